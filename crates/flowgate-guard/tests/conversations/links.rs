//! Tests of links in replies, streamed or not, and in slots: with one permitted host, no other address can be
//! followed.

use std::time::Duration;

use flowgate::trace::{EventBody, Tool};
use flowgate_guard::agent::{Agent, Observer, Toolbox};
use flowgate_guard::approve::{ApprovalRequest, Decision};
use flowgate_guard::conversation::Method;
use flowgate_lm::ScriptedModel;
use flowgate_lm::chat::{Completion, ToolCall};
use serde_json::{Value, json};

use crate::script::{POLICY, ScriptedConversation};

const PERMITTED: &str = r#"
require untrusted, public if:
    (call: ToolCall) is tool:flowgate/link
    host(call.arguments.url) == "wiki.example.org"
"#;

/// Each text as a model or a page writes it, and in its cleaned form.
const ROWS: &[(&str, &str)] = &[
    // Permitted addresses are unchanged, and are separated from the text around them.
    ("https://wiki.example.org/a", "https://wiki.example.org/a"),
    ("See https://wiki.example.org/a.", "See https://wiki.example.org/a ."),
    ("[x](https://wiki.example.org/a)", "[x]( https://wiki.example.org/a )"),
    ("[x](https://wiki.example.org/a), then", "[x]( https://wiki.example.org/a ), then"),
    ("<https://wiki.example.org/a>", "https://wiki.example.org/a"),
    ("wiki.example.org/a", "https://wiki.example.org/a"),
    // Two destinations, of which only the first is permitted.
    (
        "[x](https://wiki.example.org/a)(https://evil.example/hunter2)",
        "[x]( https://wiki.example.org/a ) (hxxps: / /evil .example/hunter2)",
    ),
    (
        "[x](https://wiki.example.org/a)[y](https://evil.example/hunter2)",
        "[x]( https://wiki.example.org/a ) [y] (hxxps: / /evil .example/hunter2)",
    ),
    // Links without Markdown syntax.
    ("hunter2@evil.com", "hunter2 @ evil .com"),
    ("xmpp:hunter2@evil.com/x", "xmpp : hunter2 @ evil .com/x"),
    ("evil.com/hunter2", "evil .com/hunter2"),
    ("//evil.com/hunter2", "/ /evil .com/hunter2"),
    ("mailto:eve@evil.com?body=hunter2", "mailto : eve @ evil .com?body=hunter2"),
    ("tel:+1555hunter2", "tel : +1555hunter2"),
    ("javascript:alert(1)", "javascript : alert(1)"),
    // Constructs whose parsers drop white space or resolve escapes.
    (".. image:: //evil.com/hunter2", ".. image: : / /evil .com/hunter2"),
    (
        "*x*{style=\"background:url(\\2f\\2f evil/hunter2)\"}",
        "*x*{style =\"background: url (\\ 2f\\ 2f evil/hunter2)\"}",
    ),
    ("https://wiki.example.org/a  \nhunter2", "https://wiki.example.org/a \nhunter2"),
    // The permitted host name in another role.
    ("https://wiki.example.org@evil.com/", "hxxps: / /wiki .example .org @ evil .com/"),
    ("https://wiki.example.org.evil.com/x", "hxxps: / /wiki .example .org .evil .com/x"),
    // Ordinary text.
    (
        "e.g. 3.14 at 12:30, Note: this, and Node.js (v1.2.3)",
        "e.g. 3.14 at 12:30, Note: this, and Node.js (v1.2.3)",
    ),
    ("a < b && c > d, x[0] or f(x)", "a < b && c > d, x[0] or f(x)"),
];

fn said(text: &str) -> Completion {
    Completion { text: text.to_owned(), ..Completion::default() }
}

fn called(name: &str, arguments: &Value) -> Completion {
    let call = ToolCall { id: "x".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
    Completion { calls: vec![call], ..Completion::default() }
}

#[derive(Default)]
struct ReplyRecorder(String);

impl Observer for ReplyRecorder {
    fn on_text(&mut self, text: &str) {
        self.0.push_str(text);
    }
}

/// Returns a reply that is generated after a look at a page: the streamed text and the final text.
fn reply(policy: &str, text: &str) -> (String, String) {
    let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
    let look = json!({"regions": ["h1"]});
    let model =
        ScriptedModel::from_answers(vec![called("read", &json!({})), called("look", &look), said(text)]);
    let mut tools = Toolbox::new();
    tools.add(Tool::local("read"), |_| flowgate_guard::conversation::ToolAnswer::text("a page"));
    let mut approver = |_: &ApprovalRequest| Decision::Deny;
    let mut heard = ReplyRecorder::default();
    let mut agent = Agent {
        model: &model,
        screener: &model,
        filler: &model,
        tools: &tools,
        provider_tools: None,
        approver: &mut approver,
        clock: &|| Duration::ZERO,
        observer: &mut heard,
    };
    let turn = flowgate_lm::block_on(agent.run_turn(&mut run.conversation, "Read it to me.".into())).unwrap();
    (heard.0, turn.replies.last().unwrap().text.clone())
}

/// Returns what a tool receives for a page that is copied into a slot.
fn slot(policy: &str, page: Value) -> String {
    let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
    run.answers = vec![("read", page)];
    let send = r#"send {"to": "bob", "body": {"$slot": {"regions": ["h1"]}}}"#;
    run.turn("Send it to Bob.", &["read {}", send, "Done."]);
    let calls = run.calls();
    let sent = calls.last().and_then(|call| call.strip_prefix("runs send ")).unwrap();
    let sent: Value = serde_json::from_str(sent).unwrap();
    let body = sent.get("body").unwrap();
    body.as_str().map_or_else(|| body.to_string(), str::to_owned)
}

#[test]
fn links_that_are_not_permitted_are_disabled() {
    let policy = format!("{POLICY}{PERMITTED}");
    for (text, expected) in ROWS {
        let (heard, said) = reply(&policy, text);
        assert_eq!(said, *expected, "the reply {text}");
        assert!(said.starts_with(&heard), "{heard} was heard of {said}");
        assert_eq!(slot(&policy, json!(text)), *expected, "the slot {text}");
        let nested = slot(&policy, json!({"rows": [{"note": text}]}));
        assert_eq!(nested, json!({"rows": [{"note": expected}]}).to_string(), "in a value");
    }
}

/// A policy that permits every address leaves texts unchanged, and a policy that forbids one host is
/// evaluated for each address.
#[test]
fn permitted_links_stay_unchanged() {
    let any = format!("{POLICY}require top if:\n    (call: ToolCall) is tool:flowgate/link\n");
    let but_one = format!(
        "{any}raise \"not there\" if:\n    (call: ToolCall) is tool:flowgate/link\n    \
         host(call.arguments.url) == \"evil.example\"\n"
    );
    let text = "[x](https://wiki.example.org/a)(https://evil.example/hunter2) <b>hunter2@evil.com</b>";
    assert_eq!(reply(&any, text), (text.to_owned(), text.to_owned()));
    assert_eq!(slot(&any, json!(text)), text);
    let (_, said) = reply(&but_one, text);
    assert_eq!(
        said,
        "[x]( https://wiki.example.org/a ) (hxxps: / /evil .example/hunter2) ‹b> hunter2@evil.com ‹/b>"
    );
}

/// The part of a long reply that later text cannot change is streamed while the reply is generated.
#[test]
fn text_around_disabled_links_is_streamed() {
    let policy = format!("{POLICY}{PERMITTED}");
    let text = "Some <b>markup</b> and `code`, then words and https://wiki.example.org/a in the end";
    let (heard, said) = reply(&policy, text);
    assert!(said.starts_with(&heard) && heard.ends_with("then words and "), "{heard} of {said}");
    // If no address is permitted, an address is not held back either.
    let (heard, said) = reply(POLICY, text);
    assert!(said.starts_with(&heard) && heard.ends_with("/a in the "), "{heard} of {said}");
}

/// Two keys whose cleaned forms are equal stay two keys.
#[test]
fn keys_are_cleaned_and_none_is_lost() {
    let page = json!({"evil.com": 1, "evil .com": 2, "x": {"a@evil.com": 3}});
    let sent: Value = serde_json::from_str(&slot(POLICY, page)).unwrap();
    let keys: Vec<&String> = sent.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 3, "{sent}");
    assert!(!sent.to_string().contains("evil.com"), "{sent}");
}

/// Each permitted address releases information, so the number of addresses that are judged in one text is
/// limited; the others are made inoperative.
#[test]
fn only_so_many_addresses_of_a_text_are_permitted() {
    for (count, refused) in [(200, 0), (203, 3)] {
        let mut run = ScriptedConversation::new(&format!("{POLICY}{PERMITTED}"), Method::LowestFirst);
        let text: String = (0..count).map(|number| format!("https://wiki.example.org/{number} ")).collect();
        let look = r#"look {"regions": ["h1"]}"#;
        let turn = run.turn("List what it links to.", &["read {}", look, &text]);
        assert_eq!(turn.replies[0].disarmed.len(), refused, "{count}");
        assert_eq!(turn.replies[0].text.matches("https://").count(), count - refused, "{count}");
    }
}

/// Each judged address is a call with its own id.
#[test]
fn judged_addresses_have_ids_of_their_own() {
    let mut run = ScriptedConversation::new(&format!("{POLICY}{PERMITTED}"), Method::LowestFirst);
    let read = r#"look {"regions": ["h1"]}"#;
    run.turn(
        "Read it.",
        &["read {}", read, "See https://wiki.example.org/a and https://wiki.example.org/b."],
    );
    let trace = run.conversation.monitor().trace();
    let ids: Vec<&str> = trace
        .events()
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Call(call) if *call.tool.name == *"link" => Some(call.id.as_str()),
            _ => None,
        })
        .collect();
    let distinct: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert!(ids.len() > 1 && distinct.len() == ids.len(), "{ids:?}");
}
