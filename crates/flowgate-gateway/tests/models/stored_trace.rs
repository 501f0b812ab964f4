//! Tests of the export of traces: a stored conversation is replayed while the gateway runs, and its trace is what happened.

use flowgate::trace::EventBody;
use flowgate_gateway::chat::stored_trace::{StoredTraceOutcome, read_every_stored_trace, read_stored_trace};

use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, config};
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

/// All conversations are read in the order in which they began, those of one client or of every client.
#[test]
fn every_conversation_is_read_or_named() {
    let upstream = UpstreamDouble::new(gullible);
    let trust = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let home = GatewayHome::new(&config(&upstream.url, "chat-completions", trust), POLICY);
    let gateway = home.start();
    for key in [KEY, OTHER_KEY, KEY] {
        TestAgent::new(&gateway, FORMS[0].0, false, key).says("Mail the page to Bob.");
    }
    let read = |client: Option<&str>| {
        let mut found = Vec::new();
        let outcome = read_every_stored_trace(home.read(), client, &mut |trace| {
            let events = trace.replayed.map(|monitor| monitor.trace().len() > 3);
            found.push((trace.client.to_owned(), trace.conversation.to_owned(), events));
        });
        (outcome.unwrap(), found)
    };
    let (outcome, found) = read(None);
    let clients: Vec<&str> = found.iter().map(|(client, ..)| client.as_str()).collect();
    assert_eq!((outcome, clients), (StoredTraceOutcome::Replayed, vec!["agent", "other", "agent"]));
    assert!(found.iter().all(|(_, _, events)| *events == Ok(true)), "{found:?}");
    assert_ne!(found[0].1, found[2].1);
    assert_eq!(read(Some("other")).1, found[1..2]);
    let clients = vec!["agent".to_owned(), "other".to_owned()];
    assert_eq!(read(Some("nobody")), (StoredTraceOutcome::UnknownClient(clients), Vec::new()));
    // Those that cannot be replayed are named with the reason.
    home.policy(&format!("{POLICY}\nx := 1\n"));
    let (outcome, found) = read(Some("agent"));
    assert_eq!((outcome, found.len()), (StoredTraceOutcome::Replayed, 2));
    let is_named =
        |replayed: &Result<bool, String>| matches!(replayed, Err(why) if why.contains("have changed"));
    assert!(found.iter().all(|(_, _, events)| is_named(events)), "{found:?}");
    gateway.stop();
}
