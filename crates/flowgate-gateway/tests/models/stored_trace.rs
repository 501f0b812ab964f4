//! Tests of the export of traces: a stored conversation is replayed while the gateway runs, and its trace is what happened.

use flowgate::trace::EventBody;
use flowgate_gateway::chat::stored_trace::{StoredTraceOutcome, read_stored_trace};

use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, config};
use crate::upstream::UpstreamDouble;
use crate::{FORMS, gullible};

#[test]
fn the_trace_of_a_conversation_is_read_beside_the_gateway() {
    let upstream = UpstreamDouble::new(gullible);
    let trust = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let home = GatewayHome::new(&config(&upstream.url, "chat-completions", trust), POLICY);
    let (gateway, mut lines) = home.start_with_log();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail the page to Bob.");
    let name = lines.next("turn")["conversation"].as_str().unwrap().to_owned();

    let mut events = Vec::new();
    let mut read = |client: &str, name: &str| {
        read_stored_trace(home.read(), client, name, &mut |monitor| {
            events.extend(monitor.trace().events().iter().filter_map(|event| match &event.body {
                EventBody::Call(call) => Some(call.tool.to_string()),
                EventBody::Message(message) => Some(message.role.clone()),
                EventBody::Output(_) => Some("output".to_owned()),
                EventBody::Tool(_) => None,
            }));
        })
        .unwrap()
    };
    assert_eq!(read("agent", &name), StoredTraceOutcome::Replayed);
    let clients = vec!["agent".to_owned(), "other".to_owned()];
    assert_eq!(read("nobody", &name), StoredTraceOutcome::UnknownClient(clients));
    assert_eq!(read("agent", "c9"), StoredTraceOutcome::UnknownConversation(vec![name.clone()]));
    assert_eq!(read("other", &name), StoredTraceOutcome::UnknownConversation(Vec::new()));
    home.policy(&format!("{POLICY}\nx := 1\n"));
    let changed = read("agent", &name);
    assert!(
        matches!(&changed, StoredTraceOutcome::Unreadable(why) if why.contains("have changed")),
        "{changed:?}"
    );
    gateway.stop();
    let calls: Vec<&str> = events
        .iter()
        .map(String::as_str)
        .filter(|name| ["user", "read", "send", "output"].contains(name))
        .collect();
    assert_eq!(calls, ["user", "read", "output", "send", "output"], "{events:?}");
}
