//! Tests of inputs that are processed again under another policy. The oracle is a run that had the other policy from
//! the start: as long as both policies rule alike, its events have the same labels.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{EventBody, TraceEntry};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::random_messages::messages;
use super::{POLICY, tool};
use crate::{MonitoredSession, Proxy, ProxyAction, ProxyDecision, ProxyRuling, ProxySettings};

/// An input of a proxy, as the gateway stores it.
#[derive(Debug, Clone)]
pub(super) enum TestInput {
    Client(String),
    Server(String),
    Failed(Value),
    Unsent(Value),
    Decided(String, ProxyDecision),
}

impl TestInput {
    /// Hands the input to a proxy, and returns the actions.
    pub(super) fn hand_to(&self, proxy: &mut Proxy, session: &mut dyn MonitoredSession) -> Vec<ProxyAction> {
        match self {
            Self::Client(text) => proxy.handle_client_message(session, text.as_bytes()),
            Self::Server(text) => proxy.handle_server_message(session, text.as_bytes()),
            Self::Failed(id) => proxy.handle_failed_request(session, id, "it failed"),
            Self::Unsent(id) => proxy.handle_unsent_request(id, "it was not sent"),
            Self::Decided(name, decision) => proxy.handle_decision(session, name, decision),
        }
    }
}

/// Returns a proxy that records its rulings.
pub(super) fn recording_proxy(id_word: &str) -> Proxy {
    let settings = ProxySettings {
        is_interactive: true,
        asks_elsewhere: true,
        id_word: Some(id_word.to_owned()),
        ..ProxySettings::new("files")
    };
    let mut proxy = Proxy::new(settings);
    proxy.record_rulings();
    proxy
}

/// A proxy with the session that it guards.
struct Guarded {
    proxy: Proxy,
    monitor: Monitor,
}

impl Guarded {
    fn under(policy: &str, id_word: &str) -> Self {
        Self {
            proxy: recording_proxy(id_word),
            monitor: Monitor::new(Arc::new(Policy::parse(policy).unwrap())),
        }
    }

    fn process(&mut self, input: &TestInput) -> Vec<ProxyAction> {
        input.hand_to(&mut self.proxy, &mut self.monitor)
    }

    /// Processes an input of an earlier conversation. Returns whether the proxy could follow its rulings.
    fn carry(&mut self, input: &TestInput, rulings: &[ProxyRuling]) -> bool {
        self.proxy.begin_earlier_input(rulings, "old");
        self.process(input);
        self.proxy.end_earlier_input()
    }

    /// Returns the events with their labels, and the labels of the stores. Leaves the refusals out: a record of an
    /// earlier policy does not have their texts.
    fn labels(&self) -> (Vec<(String, Label, Label)>, Value) {
        let events = self.monitor.trace().events().iter();
        let is_refusal =
            |body: &EventBody| matches!(body, EventBody::Message(message) if &*message.role == "assistant");
        let shown = events
            .filter(|event| !is_refusal(&event.body))
            .map(|event| (format!("{:?}", event.body), event.label, event.decided));
        (shown.collect(), self.monitor.external_state_record())
    }

    /// Returns the label that the next call of the client carries at least.
    fn context(&self) -> Label {
        let entry = TraceEntry::assistant(Value::Null);
        self.monitor.trace().position_of(&entry).unwrap().context
    }
}

/// Policies that rule and label differently.
pub(super) fn policies() -> Vec<String> {
    let read = "label out.content as untrusted, public if:\n    (out: ToolOutput) is tool:files/read\n";
    let asks = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:files/size\n";
    let changed = |from: &str, to: &str| {
        assert!(POLICY.contains(from), "{from}");
        POLICY.replacen(from, to, 1)
    };
    vec![
        POLICY.to_owned(),
        changed(read, &read.replace("untrusted, public", "trusted, public")),
        changed(read, &read.replace("untrusted, public", "trusted, private")),
        changed("label tool as trusted, public", "label tool as untrusted, public"),
        changed("require trusted, public else deny", "require untrusted, private else deny"),
        changed(
            "require untrusted, public if:\n    (call: ToolCall) is tool:files/read",
            "require trusted, public else deny if:\n    (call: ToolCall) is tool:files/read",
        ),
        changed("\"hunter2\" in out.content", "\"SECRET\" in out.content"),
        format!("{POLICY}{asks}"),
        format!("{POLICY}store notes: written by files/write, read by files/size\n"),
        format!(
            "{POLICY}raise \"no diary after a page\" if:\n    (read: ToolCall) is tool:files/read\n    (call: ToolCall) is tool:files/diary\n    read -> call\n"
        ),
    ]
}

/// Chooses inputs like a client, a server and a person, who see what the proxy sends under the earlier policy.
pub(super) struct Driver {
    /// Requests that the server has received and not answered.
    sent: Vec<Value>,
    /// Requests that the client has received and not answered.
    received: Vec<Value>,
    questions: Vec<String>,
    texts: Vec<String>,
    next: u64,
}

impl Driver {
    pub(super) fn new() -> Self {
        Self { sent: Vec::new(), received: Vec::new(), questions: Vec::new(), texts: messages(), next: 0 }
    }

    pub(super) fn request(&mut self, method: &str, params: &Value) -> TestInput {
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        TestInput::Client(request.to_string())
    }

    /// Returns the input that a random number chooses.
    pub(super) fn choose(&mut self, (kind, which): (u8, usize)) -> Option<TestInput> {
        let names = ["read", "write", "size", "delete", "diary", "unknown"];
        let answers = [
            json!({"result": {"content": [{"type": "text", "text": "a SECRET"}]}}),
            json!({"result": {"content": [{"type": "text", "text": "hunter2"}], "_meta": {"ifc": {"integrity": "untrusted"}}}}),
            json!({"error": {"code": 1, "message": "SECRET"}}),
            json!({"result": {"content": [], "isError": 3}}),
            json!({"result": {"tools": names[..5].iter().map(|name| tool(name, "does it")).collect::<Vec<_>>()}}),
            json!({"result": {"tools": [tool("read", "IMPORTANT"), tool("more", "SECRET")], "nextCursor": "c"}}),
            json!({"result": {"contents": [{"uri": "a", "text": "SECRET"}]}}),
            json!({"result": {"resources": [{"uri": "a", "name": "SECRET"}]}}),
            json!({"result": {"capabilities": {"tools": {}}, "instructions": "SECRET", "protocolVersion": "2025-06-18"}}),
            json!({"result": {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list", "params": {"x": "SECRET"}}}, "requestState": "SEALED"}}),
        ];
        let list: Value = answers[4].clone();
        let answered = |id: &Value, answer: &Value| {
            let mut message = json!({"jsonrpc": "2.0", "id": id});
            message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
            message.to_string()
        };
        let can = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}}, "progressToken": 5});
        Some(match kind % 16 {
            0 => self.request("tools/list", &json!({})),
            1..=3 => {
                self.request("tools/call", &json!({"name": names[which % 6], "arguments": {"path": "a"}}))
            }
            4 => {
                let params = json!({"name": names[which % 6], "arguments": {"path": "a"}, "_meta": can});
                self.request("tools/call", &params)
            }
            5 => {
                let methods = [
                    "resources/list",
                    "resources/read",
                    "initialize",
                    "prompts/get",
                    "resources/subscribe",
                    "ping",
                ];
                self.request(
                    methods[which % 6],
                    &json!({"uri": "a", "capabilities": {"elicitation": {}, "sampling": {}}}),
                )
            }
            6..=9 => {
                let request = self.sent.pop()?;
                let is_list = request["method"] == "tools/list" && which % 4 > 0;
                let answer = if is_list { &list } else { &answers[which % answers.len()] };
                TestInput::Server(answered(&request["id"], answer))
            }
            10 => {
                let id = self.sent.pop()?["id"].clone();
                if which % 2 == 0 { TestInput::Failed(id) } else { TestInput::Unsent(id) }
            }
            11 => {
                let method =
                    ["roots/list", "sampling/createMessage", "notifications/tools/list_changed"][which % 3];
                let id = json!(format!("s{which}"));
                let mut message = json!({"jsonrpc": "2.0", "method": method, "params": {"x": "SECRET"}});
                if which % 3 < 2 {
                    message["id"] = id;
                }
                TestInput::Server(message.to_string())
            }
            12 => {
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 5, "progress": 1}});
                let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": self.next}});
                if which % 2 == 0 {
                    TestInput::Server(progress.to_string())
                } else {
                    TestInput::Client(cancel.to_string())
                }
            }
            13 => {
                let request = self.received.pop()?;
                let action = if which % 3 > 0 { "accept" } else { "decline" };
                TestInput::Client(answered(
                    &request["id"],
                    &json!({"result": {"action": action, "roots": []}}),
                ))
            }
            14 => {
                let name = self.questions.pop()?;
                let decision = match which % 4 {
                    0 => ProxyDecision::Deny,
                    1 => ProxyDecision::Undecided("q".to_owned()),
                    _ => ProxyDecision::AllowOnce,
                };
                TestInput::Decided(name, decision)
            }
            _ => {
                let text = self.texts[which % self.texts.len()].clone();
                if which % 2 == 0 { TestInput::Client(text) } else { TestInput::Server(text) }
            }
        })
    }

    /// Notes what both sides receive. Returns whether the client was shown a text of the server.
    pub(super) fn note(&mut self, actions: &[ProxyAction]) -> bool {
        let mut is_shown = false;
        for action in actions {
            match action {
                ProxyAction::Server(text) => {
                    let message: Value = serde_json::from_str(text).unwrap();
                    if message.get("method").is_some() && message.get("id").is_some() {
                        self.sent.push(message);
                    }
                }
                ProxyAction::Client(text) => {
                    is_shown |= text.contains("SECRET");
                    let message: Value = serde_json::from_str(text).unwrap();
                    if message.get("method").is_some() && message.get("id").is_some() {
                        self.received.push(message);
                    }
                }
                ProxyAction::Ask(name) => self.questions.push(name.clone()),
                ProxyAction::Note(_) | ProxyAction::Pins(_) | ProxyAction::Unapproved { .. } => {}
            }
        }
        is_shown
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The inputs of one policy are processed again under another one, and what the client was shown is an event. As
    /// long as a run that had the other policy from the start has the same rulings, all labels are the same, also those
    /// of stores.
    #[test]
    fn carried_labels_are_those_of_a_run_under_the_new_policy(
        (from, to) in (0..1_000_usize, 0..1_000_usize),
        choices in prop::collection::vec((any::<u8>(), 0..1_000_usize), 1..40),
    ) {
        let policies = policies();
        let (from, to) = (&policies[from % policies.len()], &policies[to % policies.len()]);
        let (mut driver, mut earlier) = (Driver::new(), Guarded::under(from, "old"));
        let (mut fresh, mut carried) = (Guarded::under(to, "old"), Guarded::under(to, "new"));
        let mut is_alike = true;
        let list = driver.request("tools/list", &json!({}));
        let first = [list].into_iter().map(Some).chain(std::iter::repeat(None));
        for (first, choice) in first.zip([(6, 4)].into_iter().chain(choices)) {
            let Some(input) = first.or_else(|| driver.choose(choice)) else { continue };
            let is_shown = driver.note(&earlier.process(&input));
            let rulings = earlier.proxy.take_rulings().unwrap();
            let has_followed = carried.carry(&input, &rulings);
            prop_assert!(has_followed, "{:?} {:?}", input, rulings);
            if is_shown {
                let has_text = |event: &flowgate::trace::Event| format!("{:?}", event.body).contains("SECRET");
                let is_event = carried.monitor.trace().events().iter().any(has_text);
                prop_assert!(is_event);
            }
            if is_alike {
                fresh.process(&input);
                is_alike = fresh.proxy.take_rulings().unwrap() == rulings;
            }
            if is_alike {
                prop_assert_eq!(fresh.labels(), carried.labels());
                prop_assert!(fresh.context().flows_to(&carried.context()));
            }
        }
        // It continues under the new policy, and nobody can answer the earlier questions.
        carried.proxy.end_earlier_conversation();
        let events = carried.monitor.trace().len();
        for name in &driver.questions {
            prop_assert!(carried.proxy.question(name).is_none());
            prop_assert_eq!(carried.process(&TestInput::Decided(name.clone(), ProxyDecision::AllowOnce)), []);
        }
        prop_assert_eq!(carried.monitor.trace().len(), events);
        prop_assert!(carried.proxy.take_rulings().is_some());
    }
}

/// Processes inputs under one policy and again under another one, and returns both sessions.
fn carried(from: &str, to: &str, inputs: &[TestInput]) -> (Guarded, Guarded) {
    let (mut earlier, mut carried) = (Guarded::under(from, "old"), Guarded::under(to, "new"));
    for input in inputs {
        earlier.process(input);
        let rulings = earlier.proxy.take_rulings().unwrap();
        assert!(carried.carry(input, &rulings), "{input:?} {rulings:?}");
    }
    carried.proxy.end_earlier_conversation();
    (earlier, carried)
}

fn client(id: u64, method: &str, params: &Value) -> TestInput {
    TestInput::Client(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
}

fn server(id: &str, result: &Value) -> TestInput {
    TestInput::Server(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

/// The client lists the tools and reads a page.
fn reading() -> Vec<TestInput> {
    let tools: Vec<Value> = ["read", "write"].iter().map(|name| tool(name, "does it")).collect();
    vec![
        client(1, "tools/list", &json!({})),
        server("old-1", &json!({"tools": tools})),
        client(2, "tools/call", &json!({"name": "read", "arguments": {}})),
        server("old-2", &json!({"content": [{"type": "text", "text": "a page"}]})),
    ]
}

/// Calls `write`, and returns whether the server receives the call.
fn writes(session: &mut Guarded, id: u64) -> bool {
    let call = client(id, "tools/call", &json!({"name": "write", "arguments": {}}));
    matches!(session.process(&call).as_slice(), [ProxyAction::Server(_)])
}

#[test]
fn a_changed_label_counts_for_what_was_read_before() {
    let read = "label out.content as untrusted, public if:\n    (out: ToolOutput) is tool:files/read\n";
    let trusting = POLICY.replacen(read, &read.replace("untrusted", "trusted"), 1);
    assert_ne!(trusting, POLICY);
    for (from, to, expected) in [
        (POLICY, &*trusting, true),
        (&*trusting, POLICY, false),
        (POLICY, POLICY, false),
        (&*trusting, &*trusting, true),
    ] {
        let (_, mut carried) = carried(from, to, &reading());
        // The tools are still on offer, and new requests have ids of the new conversation.
        let call = client(9, "tools/call", &json!({"name": "read", "arguments": {}}));
        let sent = carried.process(&call);
        let ProxyAction::Server(text) = &sent[0] else { panic!("{sent:?}") };
        assert!(text.contains("\"id\":\"new-"), "{text}");
        assert_eq!(writes(&mut carried, 10), expected);
    }
}

/// If the earlier policy has shown descriptions that the new one would hide, they are events, so no tool that requires
/// trust can be called. The other way round, what the client was never shown does not taint it.
#[test]
fn what_was_shown_is_an_event_and_what_was_hidden_is_none() {
    let distrusting = POLICY.replacen("label tool as trusted, public", "label tool as untrusted, public", 1);
    assert_ne!(distrusting, POLICY);
    let inputs = &reading()[..2];
    let described = |session: &Guarded| {
        session.monitor.trace().events().iter().filter(|e| matches!(e.body, EventBody::Tool(_))).count()
    };
    let (_, mut shown) = carried(POLICY, &distrusting, inputs);
    assert_eq!((described(&shown), writes(&mut shown, 9)), (2, false));
    let (_, hidden) = carried(&distrusting, POLICY, inputs);
    assert_eq!(described(&hidden), 0);
}

/// A call that the new policy denies ran nevertheless: its answer is labelled top. A call that the earlier policy
/// denied did not run, so it is no event that a rule over the history could find.
#[test]
fn whether_a_call_ran_is_not_decided_anew() {
    let denies = POLICY.replacen(
        "require untrusted, public if:\n    (call: ToolCall) is tool:files/read",
        "require trusted, public else deny if:\n    (call: ToolCall) is tool:files/read\nraise \"never\" if:\n    (call: ToolCall) is tool:files/read",
        1,
    );
    assert_ne!(denies, POLICY);
    let (earlier, denied) = carried(POLICY, &denies, &reading());
    let label_of_page = |session: &Guarded| {
        let events = session.monitor.trace().events();
        events.iter().find(|event| matches!(event.body, EventBody::Output(_))).map(|event| event.label)
    };
    let top = denied.monitor.policy().space().top();
    assert_eq!(label_of_page(&denied), Some(top));
    assert_ne!(label_of_page(&earlier), Some(top));
    let (_, permitted) = carried(&denies, POLICY, &reading()[..3]);
    let calls = permitted.monitor.trace().events().iter().filter(|event| event.tool().is_some());
    assert_eq!(calls.filter(|event| matches!(event.body, EventBody::Call(_))).count(), 0);
}

/// The reasons of a refusal may tell of everything in the session: after a refusal, the client carries also the labels
/// of what it was not shown, here of another agent's event.
#[test]
fn a_refusal_of_an_earlier_policy_carries_everything_before_it() {
    let inputs = reading();
    let refused = client(3, "tools/call", &json!({"name": "read", "arguments": {}}));
    let check = |ruling: ProxyRuling, is_raised: bool| {
        let mut carried = Guarded::under(POLICY, "new");
        let mut earlier = Guarded::under(POLICY, "old");
        for input in &inputs[..2] {
            earlier.process(input);
            assert!(carried.carry(input, &earlier.proxy.take_rulings().unwrap()));
        }
        let mut other = TraceEntry::from(flowgate::trace::Message::new("mcp", json!("a hidden page")));
        other.agent = Some("other".into());
        carried.monitor.push(other).unwrap();
        let before = carried.context();
        assert!(carried.carry(&refused, &[ruling]));
        assert_eq!(!carried.context().flows_to(&before), is_raised, "{ruling:?}");
    };
    check(ProxyRuling::No, true);
    check(ProxyRuling::Yes, false);
}

/// The earlier policy has forwarded a request of the server. The present one may not let the answer flow to the server.
#[test]
fn the_answer_to_a_request_of_the_server_does_not_reach_it_after_a_change() {
    let permits =
        format!("{POLICY}\nrequire top if:\n    (call: ToolCall) is tool:files/sampling/createMessage\n");
    let request =
        json!({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {"messages": []}});
    let initialize = client(
        1,
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": {"name": "c", "version": "1"}}),
    );
    let inputs = [initialize, TestInput::Server(request.to_string())];
    let answer = TestInput::Client(
        json!({"jsonrpc": "2.0", "id": 7, "result": {"role": "assistant", "content": {"type": "text", "text": "private"}, "model": "m"}})
            .to_string(),
    );
    let reaches_server = |actions: &[ProxyAction]| {
        actions.iter().any(|action| matches!(action, ProxyAction::Server(text) if text.contains("private")))
    };
    let (mut earlier, mut carried) = carried(&permits, POLICY, &inputs);
    assert!(reaches_server(&earlier.process(&answer)));
    assert!(!reaches_server(&carried.process(&answer)));
}

#[test]
fn a_record_that_does_not_fit_is_refused() {
    let inputs = reading();
    let mut earlier = Guarded::under(POLICY, "old");
    let rulings: Vec<Vec<ProxyRuling>> = inputs
        .iter()
        .map(|input| {
            earlier.process(input);
            earlier.proxy.take_rulings().unwrap()
        })
        .collect();
    let follows = |change: &dyn Fn(usize, &mut Vec<ProxyRuling>), word: &str| {
        let mut carried = Guarded::under(POLICY, "new");
        let mut all = true;
        for (index, (input, rulings)) in inputs.iter().zip(&rulings).enumerate() {
            let mut rulings = rulings.clone();
            change(index, &mut rulings);
            carried.proxy.begin_earlier_input(&rulings, word);
            carried.process(input);
            all &= carried.proxy.end_earlier_input();
        }
        all
    };
    assert!(follows(&|_, _| {}, "old"));
    assert!(
        !follows(
            &|index, rulings| if index == 2 {
                rulings.clear()
            },
            "old"
        ),
        "a ruling lacks"
    );
    assert!(
        !follows(
            &|index, rulings| if index == 3 {
                rulings.push(ProxyRuling::Yes)
            },
            "old"
        ),
        "one too many"
    );
    assert!(
        !follows(
            &|index, rulings| if index == 2 {
                rulings[0] = ProxyRuling::Chat
            },
            "old"
        ),
        "no such call"
    );
    assert!(!follows(&|_, _| {}, "other"), "ids of another conversation");
    // In watch mode, nothing is ruled.
    let mut watching = Proxy::new(ProxySettings { is_watching: true, ..ProxySettings::new("files") });
    watching.record_rulings();
    assert_eq!(watching.take_rulings(), None);
    assert!(!watching.end_earlier_input());
}
