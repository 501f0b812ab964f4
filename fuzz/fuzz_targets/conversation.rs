//! Arbitrary input from all parties of a guarded conversation, in any order: each turn ends, and no view
//! contains text whose label does not flow to the label of the view.

#![no_main]

mod answers;
mod bytes;
mod fixed;

use std::sync::{Arc, LazyLock};

use answers::{answered, names, region, said, word};
use bytes::Choices;
use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{Document, EventBody, EventId, NodeContent, PathStep, Tool};
use flowgate_guard::approve::{Decision, DigestKey};
use flowgate_guard::conversation::{Conversation, ConversationSettings, Need};
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Request, ToolCall};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static POLICY: LazyLock<Arc<Policy>> = LazyLock::new(|| {
    let source = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private
store mail: written by send, read by read
label message as trusted, public if:
    (message: Message)
    message.role in ["system", "user"]
label out.content as trusted, public if:
    (out: ToolOutput) is tool:r"list|read|send"
label out.content.note as untrusted, public if:
    (out: ToolOutput) is tool:read
label out.content.secret as trusted, private if:
    (out: ToolOutput) is tool:read
label row.y as untrusted, private if:
    (out: ToolOutput) is tool:read
    (row: dict) in out.content.rows
    row.x == "me"
label capture(out.content.note, r"Rating: (?<rating>[0-9])[^0-9].*", "rating") as trusted if:
    (out: ToolOutput) is tool:read
require top if:
    (call: ToolCall) is tool:r"list|read|inbox"
require trusted, public if:
    (call: ToolCall) is tool:send
payload call.arguments.body if:
    (call: ToolCall) is tool:send
require trusted, public else deny if:
    (call: ToolCall) is tool:pay
ask "decided without seeing all" if:
    (call: ToolCall) is tool:send
    hidden(call) > 2
raise "stop" if:
    (out: ToolOutput)
    "stop" in str(out.content)
raise "no answer" if:
    (message: Message)
    message.role == "assistant"
    "stop" in message.content
"#;
    Arc::new(Policy::parse(source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}")))
});

const TOOLS: [&str; 5] = ["list", "read", "inbox", "send", "pay"];
const INTEGRITY: [&str; 2] = ["trusted", "untrusted"];
const SECRECY: [&str; 2] = ["public", "private"];

fn label(integrity: &str, secrecy: &str) -> Label {
    let element = |dimension, name| POLICY.space().element(dimension, name).expect("declared").label;
    element("integrity", integrity).join(&element("secrecy", secrecy))
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let mut run = ConversationRun::new(&mut choices);
    while !choices.are_spent() {
        run.act(&mut choices);
    }
    while !run.need(&mut choices, true) {}
    let mut monitor = Monitor::new(Arc::clone(&POLICY));
    monitor
        .join_external_state(&run.conversation.monitor().external_state_record())
        .expect("what is remembered is recalled");
});

/// A unique text, and the labels of the places where it occurs.
struct TextMarker {
    text: String,
    /// The labels of the parts that contain it.
    at: Vec<Label>,
}

struct ConversationRun {
    conversation: Conversation,
    markers: Vec<TextMarker>,
    /// The last view of the model.
    shown: String,
    /// The number of requests since the turn began.
    needs: usize,
    settings: ConversationSettings,
}

impl ConversationRun {
    fn new(choices: &mut Choices<'_>) -> Self {
        let mut settings = ConversationSettings::new(
            choices.of(MethodRegistry::builtin().methods()),
            DigestKey::new([1; 32]),
        );
        (settings.steps, settings.messages, settings.levels, settings.calls) = (4, 12, 3, 4);
        let words = choices.of(&[DescriptionAuthor::Operator, DescriptionAuthor::Server]);
        let offered = |name: &str| OfferedTool {
            tool: Tool::local(name),
            description: name.to_owned(),
            parameters: json!({"type": "object", "properties": {"to": {"type": "string"}, "body": {}}})
                .into(),
            output: Some(json!({"properties": {"secret": {"type": "string"}}})).filter(|_| name == "read"),
            words: if name == "list" { words } else { DescriptionAuthor::Operator },
        };
        let monitor = Monitor::new(Arc::clone(&POLICY));
        let conversation = Conversation::new(monitor, TOOLS.map(offered).to_vec(), settings.clone());
        let conversation = conversation.expect("there is room");
        Self { conversation, markers: Vec::new(), shown: String::new(), needs: 0, settings }
    }

    /// Performs an action, which need not be the one that the conversation waits for.
    fn act(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0 | 1 => {
                self.needs = 0;
                self.put(choices, |run, marker, choices| {
                    let content = said(choices, marker);
                    run.conversation.add_user_message(content).expect("there is room");
                });
            }
            2 => {
                self.put(choices, |run, marker, choices| {
                    let (role, content) = (choices.of(&["memory", "system", ""]), said(choices, marker));
                    run.conversation.add_context(role, content).expect("there is room");
                });
            }
            3 => {
                self.needs = 0;
                self.put(choices, |run, marker, choices| {
                    let (content, carries) = (said(choices, marker), names(choices));
                    run.conversation.add_task(content, &carries).expect("there is room");
                });
            }
            4 => {
                self.needs = 0;
                self.conversation.continue_turn();
            }
            5 => match choices.below(3) {
                0 => self.conversation.stop(),
                1 => self.conversation.fail_completion(),
                _ => self.conversation.choose_label(label(choices.of(&INTEGRITY), choices.of(&SECRECY))),
            },
            6 => match choices.below(5) {
                0 => self.complete(choices),
                1 => self.conversation.accept_screening(&Completion::default()),
                2 => self.conversation.accept_fill(&Completion::default()),
                3 => self.conversation.accept_decision(Decision::AllowOnce),
                _ => self.answer(choices),
            },
            7 => drop(self.need(choices, false)),
            _ => drop(self.need(choices, true)),
        }
        self.look_everywhere();
    }

    /// Processes what the conversation waits for, if `met`. Returns whether it waits for the user.
    fn need(&mut self, choices: &mut Choices<'_>, met: bool) -> bool {
        self.needs += 1;
        assert!(
            self.needs <= self.settings.messages * (3 + 6 * self.settings.calls),
            "the turn does not end"
        );
        match self.conversation.need() {
            Need::User(_) => {
                self.needs = 0;
                return true;
            }
            Need::Complete(view) => {
                self.shown = format!("{:?}", view.request);
                self.check(&view.label, &view.request);
                if met {
                    self.complete(choices);
                }
            }
            Need::Screen(request) if met => {
                let regions: Vec<String> = (0..choices.below(4)).map(|_| region(choices)).collect();
                let text = format!("CITED: {}", regions.join(", "));
                let arguments = json!({"regions": regions}).to_string();
                let mut calls =
                    vec![ToolCall { id: String::new(), name: "needed_regions".to_owned(), arguments }];
                calls.truncate(request.tools.len());
                self.conversation.accept_screening(&Completion { text, calls, ..Completion::default() });
            }
            Need::Fill(request) if met => {
                let text = self.copied(&format!("{request:?}"), choices);
                self.conversation.accept_fill(&Completion { text, ..Completion::default() });
            }
            Need::Approve(_) if met => {
                let decisions = [Decision::Deny, Decision::AllowOnce, Decision::Unanswered];
                self.conversation.accept_decision(choices.of(&decisions));
            }
            Need::Run(call) if met => {
                let _ = self.conversation.call_label_names(&call);
                self.answer(choices);
            }
            _ => {}
        }
        false
    }

    /// Completes a message of the model, which knows its last view.
    fn complete(&mut self, choices: &mut Choices<'_>) {
        let mut completion = Completion::default();
        if choices.below(3) == 1 {
            completion.text = self.copied(&self.shown, choices);
        }
        for _ in 0..choices.below(4) {
            let name = choices.of(&["read", "look", "send", "inbox", "pay", "list", "look_2"]).to_owned();
            let arguments = if name == "look" && choices.below(6) < 5 {
                json!({"regions": [region(choices)], "then_return": choices.below(2) == 0}).to_string()
            } else {
                match choices.below(8) {
                    0 => "{}".to_owned(),
                    1 => word(choices, 12),
                    _ => json!({"to": self.argument(choices), "body": self.argument(choices)}).to_string(),
                }
            };
            completion.calls.push(ToolCall { id: word(choices, 2), name, arguments });
        }
        self.conversation.accept_completion(completion);
    }

    fn argument(&self, choices: &mut Choices<'_>) -> Value {
        match choices.below(7) {
            0 => json!(self.copied(&self.shown, choices)),
            1 => json!({"$slot": {"regions": [region(choices)]}}),
            2 => json!({"$slot": {"regions": [region(choices), region(choices)], "fill": "briefly"}}),
            3 => json!({"$slot": region(choices)}),
            4 => json!([{"$slot": {"regions": [region(choices)]}}]),
            _ => json!(word(choices, 4)),
        }
    }

    /// Returns a marker from what is visible, or a word.
    fn copied(&self, seen: &str, choices: &mut Choices<'_>) -> String {
        let held: Vec<&TextMarker> =
            self.markers.iter().filter(|marker| seen.contains(&marker.text)).collect();
        let nth = choices.below(held.len() + 2);
        held.get(nth)
            .map_or_else(|| choices.of(&["me", "stop", "https://a.b/"]).to_owned(), |m| m.text.clone())
    }

    fn answer(&mut self, choices: &mut Choices<'_>) {
        let first = self.conversation.monitor().trace().len();
        let marker = self.put(choices, |run, marker, choices| {
            let answer = answered(choices, marker);
            run.conversation.accept_tool_answer(answer);
        });
        // An undeclared part is visible only at the top, whatever its value is.
        let trace = self.conversation.monitor().trace();
        let call = trace.event(EventId(first)).and_then(|output| trace.event(output.call?));
        let tool = call.and_then(|call| call.tool());
        if tool.is_some_and(|tool| &*tool.name == "inbox") {
            assert!(self.markers[marker].at.iter().all(|at| *at == POLICY.space().top()));
        }
    }

    /// Adds a new marker, and records where it occurs.
    fn put(
        &mut self,
        choices: &mut Choices<'_>,
        act: impl FnOnce(&mut Self, &str, &mut Choices<'_>),
    ) -> usize {
        let number = self.markers.len();
        let text = format!("q{number:04}z");
        let first = self.conversation.monitor().trace().len();
        act(self, &text, choices);
        let events = self.conversation.monitor().trace().events().iter().skip(first);
        let said = events.filter(|event| matches!(event.body, EventBody::Message(_) | EventBody::Output(_)));
        let mut at: Vec<Label> = said.flat_map(|event| holders(&event.document, &text)).collect();
        at.dedup();
        self.markers.push(TextMarker { text, at });
        number
    }

    fn look_everywhere(&self) {
        for (integrity, secrecy) in INTEGRITY.iter().flat_map(|one| SECRECY.map(|two| (*one, two))) {
            let label = label(integrity, secrecy);
            self.check(&label, &self.conversation.view_at(label).request);
        }
    }

    fn check(&self, label: &Label, request: &Request) {
        let shown = format!("{request:?}");
        for marker in &self.markers {
            let may = marker.at.iter().any(|at| at.flows_to(label));
            assert!(may || !shown.contains(&marker.text), "{} at {label:?} in {shown}", marker.text);
        }
    }
}

/// Returns the labels of the smallest parts that contain a text.
fn holders(document: &Document, text: &str) -> Vec<Label> {
    let frame = document.frame_label();
    let nodes = document.nodes();
    let scalars = nodes.iter().filter(|node| match &node.content {
        NodeContent::Scalar(value) => value.to_string().contains(text),
        NodeContent::List | NodeContent::Map => false,
    });
    // A key is part of the structure.
    let keys = nodes.iter().filter(|node| matches!(&node.step, PathStep::Key(key) if key.contains(text)));
    let keys = keys.filter_map(|node| document.node(node.parent));
    let mut found: Vec<Label> = scalars.chain(keys).map(|node| node.label.join(&frame)).collect();
    if found.is_empty() {
        // The text is between the parts of a text.
        let spelled =
            nodes.iter().filter(|node| node.text.as_ref().is_some_and(|spelled| spelled.contains(text)));
        found.extend(spelled.map(|node| node.label.join(&frame)));
    }
    found
}
