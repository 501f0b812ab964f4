//! What events and messages of the model carry at least, and what the fact that there is an event carries at most.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Body, Call, Entry, EventId, Message, Output, Tool};
use serde_json::json;

const POLICY: &str = "\
lattice integrity: trusted < untrusted
lattice secrecy: public < private
label m as trusted, public if:
    (m: Message)
    m.role == \"user\"
label m.content as trusted, private if:
    (m: Message)
    m.role == \"note\"
label out.content as untrusted, private if:
    (out: ToolOutput) is tool:read
require top if:
    (call: ToolCall) is tool:read
";

fn session() -> Monitor {
    Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()))
}

fn said(role: &str) -> Entry {
    Entry::from(Body::Message(Message { role: role.to_owned(), content: json!("text") }))
}

/// A call of `read` that runs, and its answer.
fn read(monitor: &mut Monitor, id: &str) -> EventId {
    let entry = Entry::from(Body::Call(Call::from_json(id, Tool::local("read"), "{}")));
    let Verdict::Permit(permit) = monitor.judge_entry(entry, Attribution::everything()) else {
        panic!("reading is harmless")
    };
    drop(monitor.redeem(permit).unwrap());
    let output = Output {
        call_id: id.to_owned(),
        tool: None,
        content: json!("x"),
        structured: None,
        is_error: Some(false),
    };
    monitor.push(Entry::from(Body::Output(output))).unwrap().0
}

fn words(monitor: &Monitor, label: &Label) -> String {
    monitor.describe(label).join(", ")
}

/// Whoever may know of the call may know that it was answered, though not what the answer says.
#[test]
fn that_there_is_an_event_is_not_as_secret_as_what_it_says() {
    let mut monitor = session();
    monitor.push(said("user")).unwrap();
    let first = read(&mut monitor, "c1");
    let second = read(&mut monitor, "c2");
    let existence = |event| words(&monitor, &monitor.trace().existence(event));
    let whole = |event| words(&monitor, &monitor.trace().event(event).unwrap().label);
    assert_eq!((existence(first).as_str(), whole(first).as_str()), ("trusted, public", "untrusted, private"));
    // The second call was made by a model that had read the first answer.
    assert_eq!(
        (existence(second).as_str(), whole(second).as_str()),
        ("untrusted, private", "untrusted, private")
    );
}

/// Where a statement speaks of the content alone, that there is a message is no worse than the content: it is not top.
#[test]
fn who_vouches_for_a_content_vouches_for_its_being_there() {
    let mut monitor = session();
    let note = monitor.push(said("note")).unwrap().0;
    let other = monitor.push(said("other")).unwrap().0;
    let existence = |event| words(&monitor, &monitor.trace().existence(event));
    assert_eq!(existence(note), "trusted, private");
    assert_eq!(existence(other), "untrusted, private");
}

/// In every dimension: what the model was shown, or else what its agent had seen.
#[test]
fn a_message_of_the_model_carries_what_the_model_was_shown() {
    for (dimension, element, expected) in [
        ("secrecy", "private", "trusted, private"),
        ("integrity", "untrusted", "untrusted, public"),
        ("integrity", "trusted", "trusted, public"),
    ] {
        let mut monitor = session();
        monitor.push(said("user")).unwrap();
        let view = monitor.policy().space().element(dimension, element).unwrap().label;
        let event = monitor.push_generated(said("assistant"), view).unwrap().0;
        let label = monitor.trace().event(event).unwrap().label;
        assert_eq!(words(&monitor, &label), expected);
        assert_eq!(words(&monitor, &monitor.trace().existence(event)), expected);
    }
    let mut monitor = session();
    monitor.push(said("user")).unwrap();
    read(&mut monitor, "c1");
    let event = monitor.push(said("assistant")).unwrap().0;
    assert_eq!(words(&monitor, &monitor.trace().event(event).unwrap().label), "untrusted, private");
}
