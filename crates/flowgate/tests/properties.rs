//! Tests of properties of the monitor over generated sessions: each fast path is compared with a slow, simple
//! computation.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use flowgate::monitor::{Attribution, CallDependency, Monitor, Outcome, ReasonKind, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, EventBody, EventId, Message, Output, Tool, TraceEntry};
use proptest::prelude::*;
use serde_json::Value;

/// One step of a generated session.
#[derive(Debug, Clone)]
enum GeneratedStep {
    Say {
        agent: u8,
        role: u8,
        parent: Option<u8>,
    },
    /// A call of one of a few tools, answered at once.
    Use {
        agent: u8,
        tool: u8,
        text: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<GeneratedStep>> {
    let say = (0_u8..3, 0_u8..3, prop::option::of(0_u8..20))
        .prop_map(|(agent, role, parent)| GeneratedStep::Say { agent, role, parent });
    let call =
        (0_u8..3, 0_u8..4, 0_u8..3).prop_map(|(agent, tool, text)| GeneratedStep::Use { agent, tool, text });
    prop::collection::vec(prop_oneof![say, call], 1..16)
}

const TOOLS: [&str; 4] = ["read", "trusted_read", "send", "publish"];

/// Returns the entries of a session: messages, calls and answers, with the parents of each.
fn entries(steps: &[GeneratedStep]) -> Vec<TraceEntry> {
    let mut entries: Vec<TraceEntry> = Vec::new();
    let agent = |agent: u8| Some(format!("agent{agent}")).filter(|_| agent > 0);
    for (index, step) in steps.iter().enumerate() {
        match step {
            GeneratedStep::Say { agent: who, role, parent } => {
                let role = ["user", "assistant", "stranger"][usize::from(*role)].to_owned();
                let parents = parent
                    .map(|p| usize::from(p) % (index + 1))
                    .filter(|p| *p < index)
                    .map(|p| format!("s{p}"));
                entries.push(TraceEntry {
                    agent: agent(*who),
                    name: Some(format!("s{index}")),
                    parents: parents.into_iter().collect(),
                    ..TraceEntry::from(Message { role, content: Value::String("x".into()) })
                });
            }
            GeneratedStep::Use { agent: who, tool, text } => {
                let id = format!("c{index}");
                let call =
                    Call::from_json(&id, Tool::local(TOOLS[usize::from(*tool)]), "{\"a\": 1, \"b\": \"t\"}");
                entries.push(TraceEntry { agent: agent(*who), ..TraceEntry::from(call) });
                let content = ["ok", "[{\"f\": \"x\", \"g\": 2}]", "{'f': 'y'}"][usize::from(*text)];
                let output = Output::result(id, content);
                entries.push(TraceEntry {
                    agent: agent(*who),
                    name: Some(format!("s{index}")),
                    ..TraceEntry::from(output)
                });
            }
        }
    }
    entries
}

const POLICY: &str = "
lattice integrity: trusted < partner < untrusted
lattice secrecy:   public < private
label message as trusted, public if:
    (message: Message)
    message.role == \"user\"
label out.content as trusted, public if:
    (out: ToolOutput) is tool:trusted_read
label out.content[*].f as partner if:
    (out: ToolOutput) is tool:read
require top if:
    (call: ToolCall) is tool:read
require top if:
    (call: ToolCall) is tool:trusted_read
require partner, private if:
    (call: ToolCall) is tool:send
payload call.arguments.b if:
    (call: ToolCall) is tool:send
raise \"pair\" if:
    (first: ToolCall) -> (second: ToolCall)
    first is tool:read
    second is tool:publish
log \"both\" if:
    (one: ToolCall) is tool:trusted_read
    (two: ToolCall) is tool:trusted_read
log \"influence\" if:
    (out: ToolOutput) => (call: ToolCall)
    out is tool:read
    call is tool:send
";

fn policy(source: &str) -> Arc<Policy> {
    Arc::new(Policy::parse(source).unwrap())
}

/// Records all entries; returns the verdict of each call and the matches of rules.
fn record(policy: &Arc<Policy>, entries: &[TraceEntry]) -> (Monitor, Vec<Outcome>, Vec<Vec<EventId>>) {
    let mut monitor = Monitor::new(Arc::clone(policy));
    let (mut outcomes, mut matches) = (Vec::new(), Vec::new());
    for entry in entries {
        let reasons = match &entry.body {
            EventBody::Call(_) => {
                let recorded = monitor.record(entry.clone(), &Attribution::everything());
                outcomes.push(recorded.outcome);
                [recorded.judgement.reasons, recorded.judgement.notes].concat()
            }
            _ => match monitor.push(entry.clone()) {
                Ok((_, findings)) => findings.into_iter().map(|finding| finding.reason).collect(),
                Err(_) => Vec::new(),
            },
        };
        matches.extend(reasons.into_iter().filter(|r| r.kind == ReasonKind::Rule).map(|r| r.events));
    }
    matches.sort();
    (monitor, outcomes, matches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Rules evaluated event by event have the same matches as a search over all pairs.
    #[test]
    fn incremental_rules_equal_a_search_over_all_pairs(steps in steps()) {
        let (monitor, _, matches) = record(&policy(POLICY), &entries(&steps));
        let trace = monitor.trace();
        let ids: Vec<EventId> = (0..trace.len()).map(EventId).collect();
        let tool = |id: &EventId| {
            let event = trace.event(*id).unwrap();
            let call = event.call.and_then(|call| trace.event(call)).unwrap_or(event);
            call.tool().map(|tool| tool.name.to_string()).unwrap_or_default()
        };
        let is_call = |id: &EventId| matches!(trace.event(*id).unwrap().body, EventBody::Call(_));
        let is_output = |id: &EventId| matches!(trace.event(*id).unwrap().body, EventBody::Output(_));
        let mut expected = Vec::new();
        for a in &ids {
            for b in &ids {
                let pair = is_call(a) && is_call(b) && tool(a) == "read" && tool(b) == "publish" && trace.sees(*b, *a);
                let influence = is_output(a) && is_call(b) && tool(a) == "read" && tool(b) == "send" && trace.influences(*a, *b);
                // Every assignment counts once, including the one that binds both variables to the same
                // event.
                let both = is_call(a) && is_call(b) && tool(a) == "trusted_read" && tool(b) == "trusted_read";
                for _ in 0..usize::from(pair) + usize::from(influence) + usize::from(both) {
                    let mut events = vec![*a, *b];
                    events.sort();
                    events.dedup();
                    expected.push(events);
                }
            }
        }
        expected.sort();
        prop_assert_eq!(matches, expected);
    }

    /// The context of an event is the join of everything that its agent has seen, and of the event itself.
    #[test]
    fn the_context_is_the_join_of_all_seen_labels(steps in steps()) {
        let (monitor, _, _) = record(&policy(POLICY), &entries(&steps));
        let trace = monitor.trace();
        for (index, event) in trace.events().iter().enumerate() {
            let seen = (0..trace.len()).map(EventId).filter(|id| id.0 == index || trace.sees(EventId(index), *id));
            let joined = seen.fold(flowgate::label::Label::BOTTOM, |label, id| label.join(&trace.event(id).unwrap().label));
            prop_assert_eq!(event.context, joined);
            prop_assert_eq!(event.label, event.document.label_of(0));
        }
    }

    /// Removing a declaration that lowers labels never permits more calls.
    #[test]
    fn fewer_labels_never_permit_more(steps in steps()) {
        let entries = entries(&steps);
        let (_, with, _) = record(&policy(POLICY), &entries);
        let poorer = POLICY.replace("label out.content[*].f as partner if:\n    (out: ToolOutput) is tool:read\n", "")
            .replace("label out.content as trusted, public if:\n    (out: ToolOutput) is tool:trusted_read\n", "");
        let (_, without, _) = record(&policy(&poorer), &entries);
        prop_assert!(with.iter().zip(&without).all(|(with, without)| with <= without), "{:?} {:?}", with, without);
    }

    /// An attribution to fewer sources never yields a higher label than an attribution to everything.
    #[test]
    fn every_attribution_flows_to_everything(steps in steps(), pick in 0_usize..100) {
        let (mut monitor, _, _) = record(&policy(POLICY), &entries(&steps));
        let call = || TraceEntry::from(Call::from_json("last", Tool::local("read"), "{\"a\": 1}"));
        let place = monitor.trace().position_of(&call()).unwrap();
        let seen: Vec<EventId> = (0..monitor.trace().len()).map(EventId).filter(|id| monitor.trace().has_seen(&place, *id)).collect();
        prop_assume!(!seen.is_empty());
        let event = seen[pick % seen.len()];
        let regions = CallDependency::Regions(vec![(event, pick % monitor.trace().event(event).unwrap().document.nodes().len())]);
        let attribution = Attribution { method: "some", decision: regions.clone(), arguments: vec![("a".into(), regions)], hidden: 0 };
        let Verdict::Permit(some) = monitor.judge_entry(call(), attribution) else { panic!("reading is harmless") };
        let some_label = monitor.trace().event(some.event()).unwrap().label;
        drop(some);
        let Verdict::Permit(all) = monitor.judge_entry(call(), Attribution::everything()) else { panic!("reading is harmless") };
        prop_assert!(some_label.flows_to(&monitor.trace().event(all.event()).unwrap().label));
    }

    /// The offline scan returns the verdicts of the live monitor, for permits that are redeemed at once and
    /// for recorded calls.
    #[test]
    fn offline_equals_live(steps in steps()) {
        let entries = entries(&steps);
        let (_, offline, _) = record(&policy(POLICY), &entries);
        let mut live = Monitor::new(policy(POLICY));
        let mut verdicts = Vec::new();
        for entry in &entries {
            match &entry.body {
                EventBody::Call(_) => {
                    let verdict = live.judge_entry(entry.clone(), Attribution::everything());
                    verdicts.push(verdict.judgement().outcome());
                    match verdict {
                        Verdict::Permit(permit) => drop(live.redeem(permit).unwrap()),
                        Verdict::Confirm(question) => {
                            let permit = live.approve(question).unwrap();
                            drop(live.redeem(permit).unwrap());
                        }
                        // A denied call is not recorded; from here on the two sessions differ.
                        Verdict::Deny(_) => break,
                    }
                }
                _ => { let _ = live.push(entry.clone()); }
            }
        }
        prop_assert_eq!(&offline[..verdicts.len()], &verdicts[..]);
    }

    /// Equal policies and equal events yield equal verdicts.
    #[test]
    fn sessions_are_deterministic(steps in steps()) {
        let entries = entries(&steps);
        let (_, first, matches) = record(&policy(POLICY), &entries);
        let (_, second, again) = record(&policy(POLICY), &entries);
        prop_assert_eq!((first, matches), (second, again));
    }

    /// Parsing of arbitrary text terminates, and errors have a position within the text.
    #[test]
    fn any_text_is_read_or_refused(source in "[a-z(){}\\[\\]:=<>~\\-\"' \n.,#*0-9]{0,200}") {
        if let Err(diagnostics) = Policy::parse(&source) {
            prop_assert!(diagnostics.iter().all(|d| d.span.end <= source.len() && !d.message.contains('\n')));
        }
        let _ = flowgate::trace::read::file(&source);
    }
}
