//! Tests of conversations with a chat and a server that are processed again under another policy: no label is lower than
//! in a run that had the other policy from the start, as long as both policies decide alike.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{EventBody, Tool, TraceEntry};
use flowgate_guard::approve::{Decision, DigestKey};

use flowgate_guard::conversation::{Conversation, ConversationSettings, Method, Need};
use flowgate_guard::history::{ClientProfile, History};
use flowgate_guard::journal::Input;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Message, Part, ToolCall};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::carry_over::{Driver, TestInput, policies, recording_proxy};
use crate::{Proxy, ProxyRuling};

/// What labels messages of the chat.
const CHAT: &str =
    "label message as trusted, public if:\n    (message: Message)\n    message.role == \"user\"\n";

/// A conversation whose client has a chat and a server.
struct Mixed {
    conversation: Conversation,
    proxy: Proxy,
    client: ClientProfile,
    history: History,
    chat: Vec<Message>,
}

impl Mixed {
    fn under(policy: &str, id_word: &str) -> Self {
        let policy = Arc::new(Policy::parse(policy).unwrap());
        let settings = ConversationSettings::new(Method::Everything, DigestKey::new([8; 32]));
        let mut conversation = Conversation::new(Monitor::new(policy), Vec::new(), settings).unwrap();
        conversation.journal_mut().start();
        let client = ClientProfile { is_interactive: true, ..ClientProfile::default() };
        let proxy = recording_proxy(id_word);
        Self { conversation, proxy, client, history: History::new(), chat: Vec::new() }
    }

    /// Offers the model the tool that the chat hands over. It writes to no store.
    fn offer(&mut self) {
        let size = OfferedTool {
            tool: Tool::of("files", "size"),
            description: "does it".to_owned(),
            parameters: Arc::new(json!({"type": "object"})),
            output: None,
            words: DescriptionAuthor::Operator,
        };
        self.conversation.offer_tools(vec![size]).unwrap();
    }

    /// Sends the chat with one more message; the model calls the tool or answers. Returns its message.
    fn sends(&mut self, message: Message, calls: bool) -> Message {
        self.chat.push(message);
        let Self { conversation, client, history, chat, .. } = self;
        conversation.accept_messages(client, history, chat).unwrap();
        let mut calls = calls;
        let turn = loop {
            match conversation.need() {
                Need::Complete(view) => {
                    let name = view.request.tools.first().map(|tool| tool.name.clone()).filter(|_| calls);
                    let call = |name| ToolCall {
                        id: format!("call-{}", chat.len()),
                        name,
                        arguments: r#"{"path":"a"}"#.to_owned(),
                    };
                    let calls_now: Vec<ToolCall> = name.map(call).into_iter().collect();
                    calls = false;
                    let text = if calls_now.is_empty() { "Done." } else { "" };
                    let completion =
                        Completion { text: text.to_owned(), calls: calls_now, ..Completion::default() };
                    conversation.accept_completion(completion);
                }
                Need::Run(call) => conversation.hand_over(call),
                Need::Approve(_) => conversation.accept_decision(Decision::Deny),
                Need::Fill(_) => conversation.fail_fill(),
                Need::Screen(_) => conversation.accept_screening(&Completion::default()),
                Need::User(turn) => break turn,
            }
        };
        let calls = turn.calls.iter().map(|call| ToolCall {
            id: call.id.clone(),
            name: call.tool.to_string(),
            arguments: call.arguments.clone(),
        });
        let calls: Vec<ToolCall> = calls.collect();
        let text = turn.replies.iter().map(|reply| reply.text.as_str()).collect::<Vec<_>>().join("\n");
        let message = Message::Assistant { text, calls, thoughts: Vec::new() };
        conversation.record_answer(client, history, &message);
        chat.push(message.clone());
        message
    }

    /// Carries inputs of the chat over.
    fn carry_chat(&mut self, inputs: &[Input]) {
        let Self { conversation, client, history, .. } = self;
        let tool_of = |name: &str| {
            let local = || Tool::local(name);
            name.split_once('/').map_or_else(local, |(server, name)| Tool::of(server, name))
        };
        conversation.carry_over(client, history, inputs, &tool_of).unwrap();
    }

    /// Carries an input of the server's proxy over. Returns whether the proxy could follow its rulings.
    fn carry(&mut self, input: &TestInput, rulings: &[ProxyRuling]) -> bool {
        self.proxy.begin_earlier_input(rulings, "old");
        input.hand_to(&mut self.proxy, &mut self.conversation);
        self.proxy.end_earlier_input()
    }

    /// Returns the events with their labels, without what the model and refusals say, and the label that the next call
    /// of the client carries at least.
    fn labels(&self) -> (Vec<(String, Label)>, Label) {
        let trace = self.conversation.monitor().trace();
        let is_said =
            |body: &EventBody| matches!(body, EventBody::Message(message) if &*message.role == "assistant");
        let events = trace.events().iter().filter(|event| !is_said(&event.body));
        let labelled = events.map(|event| (format!("{:?}", event.body), event.label)).collect();
        (labelled, trace.position_of(&TraceEntry::assistant(Value::Null)).unwrap().context)
    }
}

/// The number of inputs that were compared, by whether they include a call of the chat that ran at the server.
#[derive(Debug, Default)]
struct Compared {
    inputs: usize,
    of_chat: usize,
}

/// Has one conversation under two policies, and checks it as the module says.
fn check(
    from: &str,
    to: &str,
    choices: &[(u8, usize)],
    compared: &mut Compared,
) -> Result<(), TestCaseError> {
    let mut driver = Driver::new();
    let [mut earlier, mut fresh] = [from, to].map(|policy| Mixed::under(policy, "old"));
    let mut carried = Mixed::under(to, "new");
    earlier.offer();
    fresh.offer();
    carried.carry_chat(&earlier.conversation.journal_mut().take());
    let mut is_alike = true;
    let list = driver.request("tools/list", &json!({}));
    let listed = driver_choice(6, 4);
    let first = [Some(list), None].into_iter().chain(std::iter::repeat_with(|| None));
    for (first, choice) in first.zip([listed, listed].iter().chain(choices)) {
        let is_chat = first.is_none() && choice.0 >= 160;
        if is_chat {
            // A new message of the user, or the answer to the call that the model was given last.
            let open = match earlier.chat.last() {
                Some(Message::Assistant { calls, .. }) => calls.first().map(|call| call.id.clone()),
                _ => None,
            };
            let message = match open.filter(|_| choice.1 % 3 > 0) {
                Some(call_id) => {
                    let content = vec![Part::from(if choice.1 % 2 == 0 { "a SECRET" } else { "3" })];
                    Message::Tool { call_id, content, is_error: Some(false) }
                }
                None => Message::User(vec![Part::Text(format!("Do {}.", choice.1 % 5))]),
            };
            let calls = choice.0 % 2 == 0;
            let answer = earlier.sends(message.clone(), calls);
            carried.carry_chat(&earlier.conversation.journal_mut().take());
            is_alike = is_alike && fresh.sends(message, calls) == answer;
        } else {
            let Some(input) = first.or_else(|| driver.choose(*choice)) else { continue };
            driver.note(&input.hand_to(&mut earlier.proxy, &mut earlier.conversation));
            let rulings = earlier.proxy.take_rulings().unwrap();
            let has_followed = carried.carry(&input, &rulings);
            prop_assert!(has_followed, "{:?} {:?}", input, rulings);
            if is_alike {
                input.hand_to(&mut fresh.proxy, &mut fresh.conversation);
                is_alike = fresh.proxy.take_rulings().unwrap() == rulings;
                compared.of_chat += usize::from(is_alike && rulings == [ProxyRuling::Chat]);
            }
        }
        if is_alike {
            let ((fresh, least), (carried, context)) = (fresh.labels(), carried.labels());
            let bodies =
                |events: &[(String, Label)]| events.iter().map(|(body, _)| body.clone()).collect::<Vec<_>>();
            prop_assert_eq!(bodies(&fresh), bodies(&carried));
            for ((body, lower), (_, label)) in fresh.iter().zip(&carried) {
                prop_assert!(lower.flows_to(label), "{}", body);
            }
            prop_assert!(least.flows_to(&context));
            compared.inputs += 1;
        }
    }
    Ok(())
}

/// Returns the choice of an input of the driver.
const fn driver_choice(kind: u8, which: usize) -> (u8, usize) {
    (kind, which)
}

#[test]
fn labels_of_a_chat_with_a_server_are_never_lower() {
    let policies: Vec<String> = policies().iter().map(|policy| format!("{policy}{CHAT}")).collect();
    let mut compared = Compared::default();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases = (0..1_000_usize, 0..1_000_usize, prop::collection::vec((any::<u8>(), 0..1_000_usize), 1..30));
    for _ in 0..150 {
        let tree = cases.new_tree(&mut runner).unwrap();
        let (from, to, choices) = proptest::strategy::ValueTree::current(&tree);
        let (from, to) = (&policies[from % policies.len()], &policies[to % policies.len()]);
        check(from, to, &choices, &mut compared).unwrap();
    }
    // The case that matters most: the model is given a call, and the client runs it at the server.
    let given = |from: &str, to: &str, compared: &mut Compared| {
        let choices = [(160, 0), (1, 2), (6, 0), (161, 2), (1, 2), (6, 0)];
        check(from, to, &choices, compared).unwrap();
    };
    for from in &policies {
        policies.iter().for_each(|to| given(from, to, &mut compared));
    }
    assert!(compared.inputs > 500 && compared.of_chat > 5, "{compared:?}");
}
