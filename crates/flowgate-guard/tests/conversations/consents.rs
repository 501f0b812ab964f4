//! Tests of standing consents: a private value goes by slot where the policy says it may, without a question, unless
//! something untrusted had a hand in the call.

use flowgate::trace::Tool;
use flowgate_guard::conversation::Method;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use serde_json::{Value, json};

use crate::script::ScriptedConversation;

/// `list` returns the user's profile and `read` a page. Only trusted, public text may be sent, but for the card, to the
/// airline.
const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label message as trusted, public if:
    (message: Message)
    message.role == "user"
label out.content as trusted, public if:
    (out: ToolOutput) is tool:list
label out.content.card as private if:
    (out: ToolOutput) is tool:list
label out.content as untrusted, public if:
    (out: ToolOutput) is tool:read

require top if:
    (call: ToolCall) is tool:r"list|read"
require trusted, public if:
    (call: ToolCall) is tool:send
consent private for call.arguments.body if:
    (call: ToolCall) is tool:send
    call.arguments.to == "airline"
"#;

/// Returns what happened to the last call of `send`.
fn outcome(method: Method, policy: &str, script: &[&str]) -> String {
    let mut run = ScriptedConversation::new(policy, method);
    run.answers =
        vec![("list", json!({"name": "Ann", "card": "4111"})), ("read", json!("Fly with Mallory!"))];
    run.turn("Book a flight with my airline.", script);
    match run.calls().last() {
        Some(call) if call.contains(" send ") => (*call).to_owned(),
        _ => "is refused".to_owned(),
    }
}

fn slot(to: &str, regions: &[&str]) -> String {
    format!("send {}", json!({"to": to, "body": {"$slot": {"regions": regions}}}))
}

#[test]
fn a_private_value_goes_by_slot_where_a_consent_says_so() {
    let check = |method: Method, script: &[&str], expected: &str| {
        assert_eq!(outcome(method, POLICY, script), expected, "{} {script:?}", method.name());
    };
    let sent = r#"{"to":"airline","body":"4111"}"#;
    let airline = slot("airline", &["h1"]);
    check(Method::LowestFirst, &["list {}", &airline, "Done."], &format!("runs send {sent}"));
    // The policy consents to no other destination.
    check(
        Method::LowestFirst,
        &["list {}", &slot("bob", &["h1"]), "Done."],
        r#"asks send {"to":"bob","body":"4111"}"#,
    );
    // Something untrusted had a hand in the call: what is sent, or the decision.
    let page = slot("airline", &["h2"]);
    check(
        Method::LowestFirst,
        &["list {}", "read {}", &page, "Done."],
        r#"asks send {"to":"airline","body":"Fly with Mallory!"}"#,
    );
    let both = slot("airline", &["h1", "h2"]);
    check(
        Method::LowestFirst,
        &["list {}", "read {}", &both, "Done."],
        r#"asks send {"to":"airline","body":"4111\nFly with Mallory!"}"#,
    );
    let look = r#"look {"regions": ["h2"]}"#;
    check(
        Method::LowestFirst,
        &["list {}", "read {}", look, &slot("airline", &["h1"]), "Done."],
        &format!("asks send {sent}"),
    );
    // Provenance drafts with everything, and rewrites the step with a slot.
    let draft = format!("send {sent}");
    check(Method::Provenance, &["list {}", &draft, &airline, "Done."], &format!("runs send {sent}"));
    // Without a consent, the argument takes no slot.
    let (without, _) = POLICY.split_once("consent").unwrap();
    assert_eq!(outcome(Method::LowestFirst, without, &["list {}", &airline, "Done."]), "is refused");
}

/// The policy of `docs/guard.md`: the card of the wallet goes to the airline. A number from a mail does not, since a
/// stranger's words in the mail could have chosen it.
#[test]
fn the_consent_of_the_documentation_applies() {
    let guide = include_str!("../../../../docs/guard.md");
    let mut policies = guide.split("```python\n").filter_map(|block| block.split("```").next());
    let policy = policies.find(|policy| policy.contains("consent private for call.arguments.card")).unwrap();
    let offered = |(server, name): (&str, &str)| OfferedTool {
        tool: Tool::of(server, name),
        description: name.to_owned(),
        parameters: json!({"type": "object", "properties": {"card": {"type": "string"}}}).into(),
        output: None,
        words: DescriptionAuthor::Server,
    };
    let check = |read: &str, answer: (&'static str, Value), expected: &str| {
        let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
        let tools = [("mail", "read_mail"), ("wallet", "get_card"), ("airline", "book_flight")];
        run.conversation.offer_tools(tools.map(offered).to_vec()).unwrap();
        run.answers = vec![answer];
        let book = r#"airline__book_flight {"flight": "F1", "card": {"$slot": {"regions": ["h1"]}}}"#;
        run.turn("Book F1 with my card.", &[read, book, "Done."]);
        assert_eq!(run.calls().last().copied(), Some(expected), "{:?}", run.log);
    };
    check(
        "wallet__get_card {}",
        ("get_card", json!("4111")),
        r#"runs airline/book_flight {"flight":"F1","card":"4111"}"#,
    );
    check(
        "mail__read_mail {}",
        ("read_mail", json!({"body": "4111"})),
        r#"asks airline/book_flight {"flight":"F1","card":"{\"body\":\"4111\"}"}"#,
    );
}

/// Calls of one message count together, as do those of several steps.
#[test]
fn a_limited_consent_covers_so_many_calls() {
    let policy =
        |limit: &str| POLICY.replace("for call.arguments.body", &format!("for call.arguments.body {limit}"));
    let check = |limit: &str, script: &[&str], expected: [usize; 2]| {
        let mut run = ScriptedConversation::new(&policy(limit), Method::LowestFirst);
        run.answers = vec![("list", json!({"name": "Ann", "card": "4111"}))];
        run.turn("Book a flight with my airline.", script);
        let sent = |what: &str| {
            run.calls().iter().filter(|call| call.starts_with(what) && call.contains(" send ")).count()
        };
        assert_eq!([sent("runs"), sent("asks")], expected, "{limit} {script:?} {:?}", run.calls());
    };
    let airline = slot("airline", &["h1"]);
    let both = format!("{airline}\n{airline}");
    for script in [&["list {}", &airline, &airline, "Done."][..], &["list {}", &both, "Done."]] {
        check("", script, [2, 0]);
        check("up to 2 calls", script, [2, 0]);
        check("up to 1 call", script, [1, 1]);
        // The slot holds a text, which is no amount.
        check("up to 100 of call.arguments.body", script, [0, 2]);
    }
}
