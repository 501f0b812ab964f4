//! Judges a recorded session again under another policy, to find the calls that would get another verdict if the policy
//! were changed. A gateway uses this for the dry run of an edited policy, and to count how often each statement applied.
//!
//! The events of the session stay the same: what the model was shown, what it wrote, and which calls ran, whatever the
//! other policy says about them. Only labels and verdicts are computed again:
//!
//! * A step that was shown a view carries the join of the new labels of what was in the view.
//! * A floor (a lower bound on the label of an event, see [`Floors`]) that the caller knew, such as the label of quoted
//!   text, is translated by the names of its elements. It does not raise a dimension that the policy of the recorded
//!   session did not have.
//! * Extern predicates have the answers that were recorded. If the recorded session did not ask a predicate about a
//!   value, there is no answer.
//!
//! Approvals and grants of people, and withdrawn consents, are not carried over.

use std::collections::HashMap;
use std::sync::Arc;

use super::call_examination::ExaminedCall;
use super::input_record::{MonitorInput, PushedInput};
use super::{Attribution, CallDependency, EventFinding, Floors, Judgement, Monitor};
use crate::label::Label;
use crate::policy::Policy;
use crate::predicates::Predicates;
use crate::trace::{Call, Document, EventBody, EventId, NodeId, PathStep, Status, TraceEntry};

/// A session, judged again.
#[derive(Debug)]
pub struct RejudgedSession {
    /// The calls that were judged, in order, whether or not they ran in the recorded session.
    pub calls: Vec<RejudgedCall>,
    /// The findings on the other events.
    pub findings: Vec<EventFinding>,
    /// The session at its end, with its trace and labels.
    pub monitor: Monitor,
}

/// A call of a session, judged again.
#[derive(Debug)]
pub struct RejudgedCall {
    /// The call as it was proposed.
    pub call: Call,
    /// The number of events that the trace of the recorded session had before the call.
    pub events_before: usize,
    /// The judgement under the other policy.
    pub judgement: Judgement,
}

/// # Other policies
///
/// What the verdicts of a recorded session would be under another policy.
impl Monitor {
    /// Judges the session of this monitor again under `policy`. Calls `goes_on` before each input, so that the caller
    /// can stop a long run. Returns `None` if `goes_on` returns false, or if this monitor has not
    /// [recorded](Self::record_inputs) its inputs. Leaves this monitor unchanged. The time grows at most with the
    /// number of events times the number of different views.
    pub fn rejudge(&self, policy: Arc<Policy>, goes_on: &mut dyn FnMut() -> bool) -> Option<RejudgedSession> {
        let mut monitor = Self::with_limits(policy, self.limits);
        monitor.parameters = self.parameters.clone();
        // Without functions, no extern predicate is asked again: only the recorded answers are used.
        monitor.set_predicates(Predicates::new(), self.predicate_answers());
        let mut rejudging = Rejudgement {
            recorded: self,
            session: RejudgedSession { calls: Vec::new(), findings: Vec::new(), monitor },
            events: Vec::new(),
            floors: HashMap::new(),
            views: HashMap::new(),
            judged: HashMap::new(),
        };
        for input in self.inputs.as_ref()? {
            if !goes_on() {
                return None;
            }
            rejudging.apply(input);
        }
        Some(rejudging.session)
    }

    /// Judges a call, and removes it from the trace again whatever the verdict is, so that this session has no more
    /// events than the recorded one. [`Self::run_as_recorded`] adds the call if it ran.
    fn judge_and_retract(&mut self, entry: TraceEntry, attribution: &Attribution) -> Judgement {
        // `None`: no person approved the call, so no reason is left out.
        let ExaminedCall { judgement, event, seen, .. } = self.examine(entry, attribution, None);
        if let Some(event) = event {
            self.retract(event, &seen);
        }
        judgement
    }

    /// Adds a call that ran in another session, and marks it as run whatever the verdict is. Its output is labelled as
    /// if the call had been permitted. Returns the event of the call; `None` if it cannot be added, for example because
    /// the session is full.
    fn run_as_recorded(&mut self, entry: TraceEntry, attribution: &Attribution) -> Option<EventId> {
        let examined = self.examine(entry, attribution, None);
        let event = examined.event?;
        self.accesses.insert(event, examined.access);
        // The call is not recorded as one that was not permitted, so its output is labelled like that of any call.
        self.run(event);
        Some(event)
    }
}

/// The label of a view in the new session, as far as it has been computed.
#[derive(Debug, Default)]
struct ViewSoFar {
    /// The number of events of the recorded session that are part of it.
    events: usize,
    label: Label,
}

/// The state of judging a recorded session again in a new session, under another policy.
struct Rejudgement<'a> {
    recorded: &'a Monitor,
    session: RejudgedSession,
    /// The event of the new session for each event of the recorded one.
    events: Vec<Option<EventId>>,
    /// The floors that were translated already, by their labels in the recorded session.
    floors: HashMap<Label, Label>,
    /// The views whose labels in the new session were computed, by their labels in the recorded session.
    views: HashMap<Label, ViewSoFar>,
    /// The calls that were judged, by their ids, each with its attribution in the new session.
    judged: HashMap<String, (TraceEntry, Attribution)>,
}

impl Rejudgement<'_> {
    /// Applies one recorded input to the new session: judges a call again, pushes an event with its translated floors
    /// and view, or marks as run a call that ran in the recorded session. Declared tools, records of the external state
    /// and permissions of a further output are repeated unchanged.
    fn apply(&mut self, input: &MonitorInput) {
        match input {
            MonitorInput::Declared(tool) => self.session.monitor.declare_tools([tool]),
            MonitorInput::Pushed(pushed) => self.push(pushed),
            MonitorInput::Judged { entry, attribution, events_before } => {
                let EventBody::Call(call) = &entry.body else { return };
                let attribution = self.translated_attribution(attribution, *events_before);
                self.judged.insert(call.id.clone(), (entry.clone(), attribution.clone()));
                let judgement = self.session.monitor.judge_and_retract(entry.clone(), &attribution);
                self.session.calls.push(RejudgedCall {
                    call: call.clone(),
                    events_before: *events_before,
                    judgement,
                });
            }
            MonitorInput::Ran { call, event } => {
                let Some((entry, attribution)) = self.judged.get(call) else { return };
                let new = self.session.monitor.run_as_recorded(entry.clone(), attribution);
                self.record_counterpart(*event, new);
            }
            MonitorInput::ExternalState(record) => {
                // A record that was joined once can be read. If it cannot, every store is top.
                if self.session.monitor.join_external_state(record).is_err() {
                    let top = self.session.monitor.policy.space().top();
                    self.session.monitor.stores.raise_all(&top);
                }
            }
            MonitorInput::AnotherOutput(output) => {
                if let Some(output) = self.new_event(*output) {
                    self.session.monitor.allow_another_output(output);
                }
            }
        }
    }

    /// Pushes an event of the recorded session to the new one, with the floors and the view of the new policy.
    fn push(&mut self, pushed: &PushedInput) {
        let PushedInput { entry, view, floors, is_failure, event, rule_floor } = pushed;
        let new_view = view.map(|view| self.translated_view(view, event.0));
        let monitor = &self.session.monitor;
        let new_floors = match (&entry.body, is_failure) {
            // The label of a failed call's outcome follows from the policy, so the new policy determines it.
            (EventBody::Output(output), true) => Floors::from(monitor.failure_label(&output.call_id)),
            _ => {
                // A floor that flows to `rule_floor` follows from the rules of the recorded session's policy alone. It
                // is dropped, since the rules of the new policy have their own floor (`own`).
                let own = monitor.rule_floor(&entry.body);
                let kept = if floors.whole.flows_to(rule_floor) { Label::BOTTOM } else { floors.whole };
                let whole = own.join(&self.translated_floor(kept));
                let blocks =
                    floors.blocks.iter().map(|(index, label)| (*index, self.translated_floor(*label)));
                Floors { whole, blocks: blocks.collect() }
            }
        };
        let monitor = &mut self.session.monitor;
        let new = match monitor.push_event(entry.clone(), new_view, &new_floors, *is_failure) {
            Ok((new, findings)) => {
                self.session.findings.extend(findings);
                Some(new)
            }
            // The event does not fit into the trace of the new session.
            Err(_) => None,
        };
        self.record_counterpart(*event, new);
    }

    /// Records the counterpart of a recorded event: `new` is the event of the new session with the same content, or
    /// `None` if there is none.
    fn record_counterpart(&mut self, recorded: EventId, new: Option<EventId>) {
        if self.events.len() <= recorded.0 {
            self.events.resize(recorded.0 + 1, None);
        }
        if let Some(entry) = self.events.get_mut(recorded.0) {
            *entry = new;
        }
    }

    /// Returns the event of the new session that corresponds to a recorded event; `None` if the new session has none.
    fn new_event(&self, recorded: EventId) -> Option<EventId> {
        self.events.get(recorded.0).copied().flatten()
    }

    /// Translates a floor, a lower bound on the label of an event, from the policy of the recorded session to that of
    /// the new one. `label` is the floor. Each element becomes the one of the same name; a dimension without an element
    /// of that name becomes top. A dimension that only the new policy has becomes bottom, so that the floor does not
    /// raise it. Only the top label raises every dimension: it becomes the top label of the new policy.
    fn translated_floor(&mut self, label: Label) -> Label {
        let (from, monitor) = (self.recorded, &mut self.session.monitor);
        if label == Label::BOTTOM {
            return Label::BOTTOM;
        }
        if label == from.policy.space().top() {
            return monitor.policy.space().top();
        }
        *self.floors.entry(label).or_insert_with(|| {
            let policy = Arc::clone(&monitor.policy);
            let names = from.to_names(&label);
            let all = monitor.from_names(&names);
            // `from_names` returns top in a dimension that the names leave out.
            let new = policy.space().dimensions().iter().enumerate();
            let new = new.filter(|(_, dimension)| from.policy.space().index(&dimension.name).is_none());
            new.fold(all, |label, (index, _)| {
                policy.space().replace(&label, &policy.space().dimension_bottom(index))
            })
        })
    }

    /// Translates the attribution of a call to the new session. `events_before` is the number of events that the
    /// recorded session had before the call.
    fn translated_attribution(&mut self, attribution: &Attribution, events_before: usize) -> Attribution {
        let arguments = attribution.arguments.iter();
        Attribution {
            method: attribution.method,
            decision: self.translated_dependency(&attribution.decision, events_before),
            arguments: arguments
                .map(|(name, dependency)| {
                    (name.clone(), self.translated_dependency(dependency, events_before))
                })
                .collect(),
            hidden: attribution.hidden,
        }
    }

    /// Translates what a part of a call depends on to the new session: a view becomes a label of the new policy, and a
    /// region becomes the region of the new session with the same content. `events_before` is the number of events that
    /// the recorded session had before the call.
    fn translated_dependency(&mut self, dependency: &CallDependency, events_before: usize) -> CallDependency {
        match dependency {
            CallDependency::Everything => CallDependency::Everything,
            CallDependency::Hidden => CallDependency::Hidden,
            CallDependency::View(view) => CallDependency::View(self.translated_view(*view, events_before)),
            CallDependency::Regions(regions) => CallDependency::Regions(self.translated_regions(regions)),
            CallDependency::Slot { view, regions } => CallDependency::Slot {
                view: self.translated_view(*view, events_before),
                regions: self.translated_regions(regions),
            },
        }
    }

    /// Returns the counterparts of these regions of the recorded session in the new one, in the same order. A region
    /// without a counterpart becomes one that does not exist; it counts as everything that the agent had seen.
    fn translated_regions(&self, regions: &[(EventId, NodeId)]) -> Vec<(EventId, NodeId)> {
        let nonexistent = (EventId(usize::MAX), 0);
        let counterpart = |(event, node): &(EventId, NodeId)| {
            let old = &self.recorded.trace.event(*event)?.document;
            let new_event = self.new_event(*event)?;
            let new = &self.session.monitor.trace.event(new_event)?.document;
            let steps = old.path(*node).0;
            // Follows the path of the region in the new document. If the new session divides the text in another way
            // and a step fails, the nearest region around (`Err`) takes the place of the region.
            let found = steps.iter().try_fold(0, |at, step| new.child(at, step).ok_or(at));
            Some((new_event, found.unwrap_or_else(|around| around)))
        };
        regions.iter().map(|region| counterpart(region).unwrap_or(nonexistent)).collect()
    }

    /// Returns the label, in the new session, of a view at the label `view` of the recorded session, before the event
    /// `before`: the join of the new labels of all regions that the view showed. The join so far is kept in `views`, so
    /// that each event is visited once for each view label.
    fn translated_view(&mut self, view: Label, before: usize) -> Label {
        // Taken out of the map, since the loop uses `self`, and put back afterwards.
        let mut so_far = self.views.remove(&view).unwrap_or_default();
        while so_far.events < before.min(self.events.len()) {
            let id = EventId(so_far.events);
            so_far.events += 1;
            let Some(old) = self.recorded.trace.event(id).filter(|event| event.status == Status::Done) else {
                continue;
            };
            let new = self.new_event(id).and_then(|id| self.session.monitor.trace.event(id));
            let Some(new) = new else { continue };
            let is_output = matches!(old.body, EventBody::Output(_));
            so_far.label = so_far.label.join(&shown_label(&old.document, &new.document, &view, is_output));
        }
        let label = so_far.label;
        self.views.insert(view, so_far);
        label
    }
}

/// Returns the new label of what a view showed of one event. `old` and `new` are the documents of the event in the
/// recorded and in the new session. A view at the label `view` showed the regions of `old` whose labels flow to `view`;
/// the result is the join of the labels that these regions have in `new`. `is_output` states whether the event is an
/// output: a view shows its text, not its structured form.
fn shown_label(old: &Document, new: &Document, view: &Label, is_output: bool) -> Label {
    let mut label = Label::BOTTOM;
    // The counterparts of the nodes so far: in pre-order, a parent is before its children.
    let mut counterparts: Vec<NodeId> = vec![0; old.nodes().len()];
    let mut id = 0;
    while let Some(node) = old.node(id) {
        let parent = counterparts.get(node.parent).copied().unwrap_or_default();
        // A node that is not in the new document is a part of what corresponds to its parent.
        let found = if id == 0 { Some(0) } else { new.child(parent, &node.step) };
        let counterpart = found.unwrap_or(parent);
        if let Some(entry) = counterparts.get_mut(id) {
            *entry = counterpart;
        }
        // The root is its own parent, but no field of the event.
        let is_field = id != 0 && node.parent == 0;
        let is_structured_form = is_output && is_field && node.step == PathStep::Key("structured".into());
        if is_structured_form || !node.label.flows_to(view) {
            // The view did not show the node. Skips it and everything below it.
            id = node.end;
            continue;
        }
        let is_leaf = node.end <= id + 1;
        let shown = if is_leaf || found.is_none() {
            // The new labels may divide the text into further parts, so the labels of all of them are joined.
            new.label_of(counterpart)
        } else {
            new.node(counterpart).map_or(Label::BOTTOM, |node| node.label)
        };
        label = label.join(&shown);
        id += 1;
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::{Limits, Outcome, ReasonKind};
    use crate::trace::Tool;

    const LATTICES: &str = "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n";
    const MESSAGES: &str = "label message as trusted, public if:\n    (message: Message)\n";
    const READ: &str = "label out.content as untrusted, public if:\n    (out: ToolOutput) is tool:read\n";
    const NOTES: &str = "label out.content as trusted, private if:\n    (out: ToolOutput) is tool:notes\n";
    const TOOLS: &str = "require top if:\n    (call: ToolCall) is tool:read\nrequire top if:\n    (call: ToolCall) is tool:notes\n";
    const SEND: &str = "require trusted, public if:\n    (call: ToolCall) is tool:send\n";

    /// Returns the policy with these statements about `read`, `notes` and `send`.
    fn whole(read: &str, notes: &str, send: &str) -> Arc<Policy> {
        Arc::new(Policy::parse(&[LATTICES, MESSAGES, read, notes, TOOLS, send].concat()).unwrap())
    }

    /// Returns a session that has recorded its inputs: it called the tools in `reads`, and then `send` in a step that
    /// was shown what flows to `view`, a label as names.
    fn session(policy: &Arc<Policy>, reads: &[&str], view: &serde_json::Value) -> Monitor {
        session_within(Limits::default(), policy, reads, view)
    }

    fn session_within(
        limits: Limits,
        policy: &Arc<Policy>,
        reads: &[&str],
        view: &serde_json::Value,
    ) -> Monitor {
        let mut monitor = Monitor::with_limits(Arc::clone(policy), limits);
        monitor.record_inputs();
        monitor.push(TraceEntry::user("go")).unwrap();
        for (number, tool) in reads.iter().enumerate() {
            let id = format!("c{number}");
            let call = TraceEntry::tool_call(&id, Tool::local(tool), "{}");
            monitor.record(call, &Attribution::view("m", Label::BOTTOM, 0));
            monitor.push(TraceEntry::tool_output(id, format!("the text of {tool}"))).unwrap();
        }
        let view = monitor.from_names(view);
        let call = TraceEntry::tool_call("s", Tool::local("send"), r#"{"to": "bob"}"#);
        let _ = monitor.judge_entry(call, Attribution::view("m", view, 0));
        monitor
    }

    fn last_outcome(monitor: &Monitor, policy: &Arc<Policy>) -> Outcome {
        let session = monitor.rejudge(Arc::clone(policy), &mut || true).unwrap();
        session.calls.last().unwrap().judgement.outcome()
    }

    /// The verdict under another policy depends on the labels of what the step was shown, and of nothing else.
    #[test]
    fn a_step_carries_the_new_labels_of_what_it_was_shown() {
        let old = whole(READ, NOTES, SEND);
        let trusts_pages = whole(&READ.replace("untrusted", "trusted"), NOTES, SEND);
        let open_notes = whole(READ, &NOTES.replace("private", "public"), SEND);
        let refuses = whole(READ, NOTES, &SEND.replace("public if", "public else deny if"));
        let free = whole(READ, NOTES, "require top if:\n    (call: ToolCall) is tool:send\n");
        let view =
            |integrity: &str, secrecy: &str| serde_json::json!({"integrity": integrity, "secrecy": secrecy});
        let check =
            |reads: &[&str], view: &serde_json::Value, other: &Arc<Policy>, expected: [Outcome; 2]| {
                let monitor = session(&old, reads, view);
                let found = [last_outcome(&monitor, &old), last_outcome(&monitor, other)];
                assert_eq!(found, expected, "{reads:?} {view} {}", other.source());
            };
        use Outcome::{Confirm, Deny, Permit};
        let (low, all) = (view("trusted", "public"), view("untrusted", "private"));
        check(&["read"], &low, &refuses, [Permit, Permit]);
        check(&["read"], &all, &trusts_pages, [Confirm, Permit]);
        check(&["read"], &all, &open_notes, [Confirm, Confirm]);
        check(&["read"], &all, &refuses, [Confirm, Deny]);
        check(&["read"], &all, &free, [Confirm, Permit]);
        check(&["notes"], &view("trusted", "private"), &open_notes, [Confirm, Permit]);
        check(&["read", "notes"], &view("untrusted", "public"), &open_notes, [Confirm, Confirm]);
        check(&["read", "notes"], &view("trusted", "private"), &trusts_pages, [Confirm, Confirm]);
    }

    /// Floors of the caller hold under every policy, and say nothing about a dimension that they did not know.
    #[test]
    fn floors_are_taken_over_by_their_names() {
        let old = whole(READ, NOTES, SEND);
        let more = whole(READ, NOTES, SEND).source().replace(
            "lattice secrecy: public < private\n",
            "lattice secrecy: public < private\nlattice age: new < old\n",
        );
        let more = Arc::new(Policy::parse(&more.replace("trusted, public", "trusted, public, new")).unwrap());
        let mut monitor = Monitor::new(Arc::clone(&old));
        monitor.record_inputs();
        let floor = monitor.from_names(&serde_json::json!({"integrity": "untrusted", "secrecy": "public"}));
        monitor.push_with_floors(TraceEntry::user("quoted"), &floor.into()).unwrap();
        monitor.push_with_floors(TraceEntry::user("unknown"), &old.space().top().into()).unwrap();
        for (policy, expected) in [
            (&old, [["untrusted", "public"].as_slice(), &["untrusted", "private"]]),
            (&more, [&["untrusted", "public", "new"], &["untrusted", "private", "old"]]),
        ] {
            let session = monitor.rejudge(Arc::clone(policy), &mut || true).unwrap();
            let events = session.monitor.trace().events();
            let labels: Vec<Vec<String>> =
                events.iter().map(|event| session.monitor.describe(&event.label)).collect();
            assert_eq!(labels, expected, "{}", policy.source());
        }
    }

    /// Each statement about a call that applied is named, and a call that ran is judged once.
    #[test]
    fn statements_that_apply_are_named() {
        let old = whole(READ, NOTES, SEND);
        let monitor = session(&old, &["read"], &serde_json::json!({}));
        let session = monitor.rejudge(Arc::clone(&old), &mut || true).unwrap();
        let calls: Vec<(String, Vec<usize>)> = session
            .calls
            .iter()
            .map(|call| {
                let lines = call.judgement.applied.iter().map(|span| old.line(span)).collect();
                (call.call.tool.to_string(), lines)
            })
            .collect();
        assert_eq!(calls, [("read".to_owned(), vec![9]), ("send".to_owned(), vec![13])]);
    }

    /// A session that reaches its bound on events is judged again to its end, with the same verdicts and labels.
    #[test]
    fn a_full_session_is_judged_to_its_end() {
        let old = whole(READ, NOTES, SEND);
        let view = serde_json::json!({"integrity": "untrusted", "secrecy": "private"});
        // The message of the user, a call and an output for each read, and room for the last call or none.
        for (events, expected) in [(8, ReasonKind::Requirement), (7, ReasonKind::Limit)] {
            let limits = Limits { events, ..Limits::default() };
            let monitor = session_within(limits, &old, &["read", "notes", "read"], &view);
            let session = monitor.rejudge(Arc::clone(&old), &mut || true).unwrap();
            assert_eq!(session.calls.len(), 4, "{events}");
            let reasons: Vec<_> = session
                .calls
                .iter()
                .flat_map(|call| &call.judgement.reasons)
                .map(|reason| reason.kind)
                .collect();
            assert!(
                reasons.iter().all(|kind| *kind == expected) && !reasons.is_empty(),
                "{events}: {reasons:?}"
            );
            let labels = |monitor: &Monitor| {
                monitor.trace().events().iter().map(|event| event.label).collect::<Vec<_>>()
            };
            assert_eq!(labels(&session.monitor), labels(&monitor), "{events}");
        }
    }

    #[test]
    fn a_session_without_a_record_or_time_is_not_judged() {
        let old = whole(READ, NOTES, SEND);
        assert!(Monitor::new(Arc::clone(&old)).rejudge(Arc::clone(&old), &mut || true).is_none());
        let monitor = session(&old, &["read"], &serde_json::json!({}));
        let mut left = 2;
        let mut goes_on = || {
            left -= 1;
            left > 0
        };
        assert!(monitor.rejudge(old, &mut goes_on).is_none());
    }
}
