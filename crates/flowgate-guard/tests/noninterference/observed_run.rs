//! Represents the outcome of a run, and what the observer saw of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::forms;
use crate::model::{TypedSlot, is_typed, typed_slots};
use crate::session::ObservedSession;
use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{DocumentNode, Event, EventBody, EventId, PathStep};
use flowgate_guard::FORMAT_ROLE;
use flowgate_guard::redact::HiddenContent;
use flowgate_guard::view::View;
use flowgate_lm::chat::Completion;
use serde_json::Value;

pub(crate) const RELEASES: &str = "releases";
/// A part of an answer is shown although the argument `b` of the call is hidden, because a statement says that it does not
/// depend on `b`.
pub(crate) const ONE_ARGUMENT_HIDDEN: &str = "a part of an answer on which one argument has no influence";

/// Which copied texts an endorsement may release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReleasedCopies {
    None,
    /// Numbers, and yes or no.
    Forms,
    /// Any text: the policy endorses what answers contain.
    Any,
}

#[derive(Default)]
pub(crate) struct ObservedRun {
    /// What is visible at or below the observer's label: views, replies, calls, questions, the tasks of
    /// fillers, the labels of stores, the outcomes of turns.
    pub(crate) log: Vec<String>,
    pub(crate) sessions: Vec<ObservedSession>,
    pub(crate) looks: usize,
    pub(crate) slots: usize,
    /// The number of hidden parts that differ from the first run.
    pub(crate) changed: usize,
    /// The features that had an effect.
    pub(crate) met: BTreeSet<&'static str>,
    /// The violations that the oracle found.
    pub(crate) broken: Vec<String>,
    /// The number of parts of answers, and of those for which monitor and oracle agree.
    pub(crate) parts: (u64, u64),
}

impl ObservedRun {
    /// Returns log entries for endorsed values. An endorsement lowers integrity only, so the outcome of the
    /// call may depend on the confidentiality of the hidden text as well as on the value.
    ///
    /// `copies` says which copied texts may be released as well. A filler writes what its instruction states, in both
    /// runs.
    pub(crate) fn release(
        monitor: &Monitor,
        view: &View,
        completion: &Completion,
        copies: ReleasedCopies,
    ) -> Vec<String> {
        let slots = completion.calls.iter().flat_map(|call| typed_slots(&call.arguments));
        let slots = slots.filter(|slot| slot.is_written || copies != ReleasedCopies::None);
        let released = |slot: TypedSlot| {
            let hidden = view.names.get(&slot.region)?;
            let text = match &hidden.content {
                _ if slot.is_written => None,
                HiddenContent::Region(event, node) => {
                    monitor.trace().event(*event).map(|event| event.document.to_value(*node).to_string())
                }
                HiddenContent::Text(text) => Some(text.clone()),
                HiddenContent::Step => None,
            };
            let text = text.filter(|text| copies == ReleasedCopies::Any || forms::is_released(text));
            Some((monitor.to_names(&hidden.label), text))
        };
        slots.map(|slot| format!("{RELEASES} {:?}", released(slot))).collect()
    }

    /// Returns the first difference that the observer sees and that was not released.
    pub(crate) fn difference(one: &Self, two: &Self) -> Option<String> {
        let longest = one.log.len().max(two.log.len());
        let differs = (0..longest).find(|index| one.log.get(*index) != two.log.get(*index))?;
        let (a, b) = (one.log.get(differs), two.log.get(differs));
        if a.is_some_and(|line| line.starts_with(RELEASES))
            && b.is_some_and(|line| line.starts_with(RELEASES))
        {
            return None;
        }
        let same = a.zip(b).map_or(0, |(a, b)| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count());
        let at = |line: Option<&String>| match line {
            None => "nothing more".to_owned(),
            Some(line) => {
                let from = (0..=same.saturating_sub(300)).rev().find(|at| line.is_char_boundary(*at));
                line[from.unwrap_or(0)..].chars().take(600).collect()
            }
        };
        Some(format!("at {differs}:\n  first  {}\n  second {}", at(a), at(b)))
    }

    /// Records the features that had an effect.
    pub(crate) fn note(&mut self, observer: &Label) {
        for session in &self.sessions {
            note(session, observer, &mut self.met);
        }
    }

    /// Formats the run with labels, for debugging.
    pub(crate) fn dump(&self) -> String {
        let mut text = String::new();
        for (number, session) in self.sessions.iter().enumerate() {
            let _ = writeln!(text, "session {number}");
            dump(session, &mut text);
            for child in session.answers.iter().filter_map(|answered| answered.child.as_deref()) {
                let _ = writeln!(text, "agent");
                dump(child, &mut text);
            }
        }
        for (number, line) in self.log.iter().enumerate() {
            let _ = writeln!(text, "seen {number}: {line:.300}");
        }
        text
    }
}

fn note(session: &ObservedSession, observer: &Label, met: &mut BTreeSet<&'static str>) {
    let monitor = session.conversation.monitor();
    let space = monitor.policy().space();
    if !monitor.predicate_answers().is_empty() {
        met.insert("a predicate that was answered");
    }
    for (index, event) in session.trace().events().iter().enumerate() {
        let shows = |label: &Label| label.flows_to(observer);
        let nodes = event.document.nodes();
        let is_shown_in_hidden = |node: &&DocumentNode| {
            matches!(node.step, PathStep::Capture(_))
                && shows(&node.label)
                && !shows(&nodes[node.parent].label)
        };
        if nodes.iter().any(|node| is_shown_in_hidden(&node)) {
            met.insert("a part shown of a hidden text");
            let call = event.call.and_then(|call| session.trace().event(call));
            if call.is_some_and(|call| shows(&call.document.frame_label()) && !shows(&call.label)) {
                met.insert("a part of an answer to a call with hidden arguments");
                // A part that carries what the other arguments do, because a statement says so.
                let says_so = |id: usize| {
                    let statements = monitor.labelling_statements(EventId(index), id);
                    let mut texts =
                        statements.into_iter().filter_map(|span| monitor.policy().source().get(span));
                    texts.any(|text| text.contains("independent of arguments.b"))
                };
                let mut parts = nodes.iter().enumerate().filter(|(_, node)| is_shown_in_hidden(node));
                if parts.any(|(id, _)| says_so(id)) {
                    met.insert(ONE_ARGUMENT_HIDDEN);
                }
            }
        }
        match &event.body {
            EventBody::Call(call) => {
                let arguments = call.arguments.iter().flatten();
                let label_of = |key: &str| {
                    let node = event.document.key(0, "arguments").and_then(|a| event.document.key(a, key));
                    let label = node.map(|node| event.document.label_of(node));
                    label.filter(|label| space.restrict(label, space.integrity()) == Label::BOTTOM)
                };
                let has_trusted = |key: &str| label_of(key).is_some();
                let is_trusted = |key: &str| label_of(key).is_some_and(|label| !shows(&label));
                if arguments.clone().any(|(key, value)| is_typed(value) && is_trusted(key)) {
                    met.insert("a typed value from a hidden text");
                }
                let decision = space.restrict(&event.document.frame_label(), space.integrity());
                let is_endorsed = |(key, value): (&String, &Value)| {
                    key == "b" && !is_typed(value) && decision != Label::BOTTOM && has_trusted(key)
                };
                if arguments.into_iter().any(is_endorsed) {
                    met.insert("a value that a trusted answer contains");
                }
            }
            EventBody::Output(output) if output.structured.is_some() && event.document.twins_differ => {
                met.insert("two forms that differ");
            }
            EventBody::Output(output) if output.structured.is_some() => {
                met.insert("two forms that agree");
            }
            EventBody::Output(output) if output.is_error == Some(true) => {
                met.insert("an error");
            }
            EventBody::Tool(_) if !shows(&event.label) => {
                met.insert("a hidden description");
            }
            EventBody::Message(message) if message.role == "user" && !shows(&event.label) => {
                met.insert("a hidden user");
            }
            EventBody::Message(message) if message.role == FORMAT_ROLE && !shows(&event.label) => {
                met.insert("a hidden schema");
            }
            _ => {}
        }
    }
}

fn dump(session: &ObservedSession, text: &mut String) {
    let monitor = session.conversation.monitor();
    for (turn, labels) in session.labels.iter().enumerate() {
        let _ = writeln!(text, "turn {turn}: {labels:?}");
    }
    for (index, event) in session.trace().events().iter().enumerate() {
        let exists = session.trace().existence_label(EventId(index));
        let labels = [exists, event.label, event.decided].map(|label| monitor.describe(&label).join("+"));
        let [exists, label, decided] = labels;
        let body = body(event);
        let call = event.call.map_or(String::new(), |call| format!(" answers #{}", call.0));
        let agent = session.trace().agent_name(event.agent);
        let _ = writeln!(
            text,
            "#{index} agent {agent:?}{call} {:?} exists {exists} label {label} decided {decided}: {body}",
            event.status
        );
        for (node, part) in event.document.nodes().iter().enumerate() {
            let label = monitor.describe(&part.label).join("+");
            let bounds = session.followed.bounds.get(index).map(|bounds| &bounds.parts[node]);
            let _ = writeln!(text, "    {}: {label}; at least {bounds:?}", event.document.path(node));
        }
    }
}

/// Formats the content of an event, shortened.
pub(crate) fn body(event: &Event) -> String {
    let body = match &event.body {
        EventBody::Message(message) => format!("{}: {}", message.role, message.content),
        EventBody::Call(call) => format!("call {} {:?}", call.tool, call.arguments),
        EventBody::Output(output) => {
            format!(
                "out error={} differ={} {} ~~ {:?}",
                output.is_error == Some(true),
                event.document.twins_differ,
                output.content,
                output.structured
            )
        }
        EventBody::Tool(tool) => format!("tool {}: {}", tool.tool, tool.description),
    };
    body.chars().take(900).collect()
}
