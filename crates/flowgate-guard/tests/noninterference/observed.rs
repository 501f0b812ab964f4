//! What somebody saw of a run, and what the run was.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use flowgate::label::Label;
use flowgate::trace::{Body, Event, EventId, Step, Trace};
use flowgate_guard::conversation::Conversation;
use flowgate_guard::view::View;
use flowgate_lm::chat::Completion;

use crate::model::{is_typed, typed_slot};
use crate::world::Spelling;

const RELEASES: &str = "releases";

pub(crate) struct Observed {
    /// Views, calls and questions at or below the observer's label.
    pub(crate) log: Vec<String>,
    /// The answers to the calls that the observer may know to run, in order, with their spelling.
    pub(crate) answers: Vec<(EventId, Spelling)>,
    /// What the user said.
    pub(crate) said: Vec<EventId>,
    pub(crate) conversation: Conversation,
    pub(crate) looks: usize,
    pub(crate) slots: usize,
    /// The labels of the steps of each turn.
    pub(crate) labels: Vec<Vec<Label>>,
    /// How many hidden parts were given other values than in the first run.
    pub(crate) changed: usize,
    /// What happened that a test should know to happen.
    pub(crate) met: BTreeSet<&'static str>,
}

impl Observed {
    pub(crate) fn new(conversation: Conversation, changed: usize) -> Self {
        Self {
            log: Vec::new(),
            answers: Vec::new(),
            said: Vec::new(),
            conversation,
            looks: 0,
            slots: 0,
            labels: Vec::new(),
            changed,
            met: BTreeSet::new(),
        }
    }

    pub(crate) fn trace(&self) -> &Trace {
        self.conversation.monitor().trace()
    }

    /// Notes what is released if the policy endorses what the model wants to be written. An endorsement lowers integrity
    /// alone; so besides the value, how secret the hidden text is may decide what comes of the call.
    pub(crate) fn release(&mut self, view: &View, completion: &Completion) {
        let monitor = self.conversation.monitor();
        for call in &completion.calls {
            for region in typed_slot(&call.arguments) {
                let label = view.names.get(&region).map(|hidden| monitor.to_names(&hidden.label));
                self.log.push(format!("{RELEASES} {label:?}"));
            }
        }
    }

    /// The first thing that the observer would notice, and that nobody has released.
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

    /// Notes what happened.
    pub(crate) fn note(&mut self, observer: &Label) {
        let space = self.conversation.monitor().policy().space().clone();
        let mut met = BTreeSet::new();
        for event in self.trace().events() {
            let shows = |label: &Label| label.flows_to(observer);
            let nodes = event.document.nodes();
            let shown_in_hidden = nodes.iter().any(|node| {
                matches!(node.step, Step::Capture(_))
                    && shows(&node.label)
                    && !shows(&nodes[node.parent].label)
            });
            if shown_in_hidden {
                met.insert("a part shown of a hidden text");
            }
            match &event.body {
                Body::Call(call) => {
                    let arguments = call.arguments.iter().flatten();
                    let is_trusted = |key: &str| {
                        let node =
                            event.document.key(0, "arguments").and_then(|a| event.document.key(a, key));
                        let label = node.map(|node| event.document.label_of(node));
                        label.is_some_and(|label| {
                            space.restrict(&label, space.integrity()) == Label::BOTTOM && !shows(&label)
                        })
                    };
                    if arguments.clone().any(|(key, value)| is_typed(value) && is_trusted(key)) {
                        met.insert("a typed value from a hidden text");
                    }
                }
                Body::Output(output) if output.structured.is_some() && event.document.twins_differ => {
                    met.insert("two forms that differ");
                }
                Body::Output(output) if output.structured.is_some() => {
                    met.insert("two forms that agree");
                }
                Body::Tool(_) if !shows(&event.label) => {
                    met.insert("a hidden description");
                }
                Body::Message(message) if message.role == "user" && !shows(&event.label) => {
                    met.insert("a hidden user");
                }
                _ => {}
            }
        }
        self.met = met;
    }

    /// What happened, with labels, for whoever looks for a leak.
    pub(crate) fn dump(&self) -> String {
        let monitor = self.conversation.monitor();
        let mut text = String::new();
        for (turn, labels) in self.labels.iter().enumerate() {
            let labels: Vec<String> = labels.iter().map(|label| monitor.describe(label).join("+")).collect();
            let _ = writeln!(text, "turn {turn}: {}", labels.join(", "));
        }
        for (index, event) in self.trace().events().iter().enumerate() {
            let exists = self.trace().existence(EventId(index));
            let labels = [exists, event.label, event.decided].map(|label| monitor.describe(&label).join("+"));
            let [exists, label, decided] = labels;
            let body = body(event);
            let _ = writeln!(text, "#{index} exists {exists} label {label} decided {decided}: {body}");
            for (node, part) in event.document.nodes().iter().enumerate() {
                let label = monitor.describe(&part.label).join("+");
                let _ = writeln!(text, "    {}: {label}", event.document.path(node));
            }
        }
        text
    }
}

fn body(event: &Event) -> String {
    let body = match &event.body {
        Body::Message(message) => format!("{}: {}", message.role, message.content),
        Body::Call(call) => format!("call {} {:?}", call.tool, call.arguments),
        Body::Output(output) => {
            format!(
                "out error={} differ={} {} ~~ {:?}",
                output.is_error == Some(true),
                event.document.twins_differ,
                output.content,
                output.structured
            )
        }
        Body::Tool(tool) => format!("tool {}: {}", tool.tool, tool.description),
    };
    body.chars().take(900).collect()
}
