//! Tests of a model that writes a placeholder as text: it is a reference where a slot may be, is rejected elsewhere,
//! and never leaves as text.

use flowgate_guard::conversation::Method;
use serde_json::{Value, json};

use crate::script::{POLICY, ScriptedConversation};

/// Spellings of the placeholder of the first region.
const WAYS: &[&str] = &[
    "[hidden h1]",
    "[Hidden H1]",
    "[ hidden  h1 ]",
    "[hidden h1: string]",
    "\u{ff3b}hidden h1\u{ff3d}",
    "\u{ff3b}\u{ff48}idden \u{ff48}\u{ff11}\u{ff3d}",
    "[hid\u{200b}den h1]",
    "(hidden h1)",
    "\u{3010}hidden h1\u{3011}",
    // Spellings that count only if the view has a region of this name.
    "hidden h1",
    "Hidden H1",
    "[h1]",
    "%5Bhidden%20h1%5D",
    "&#91;hidden h1&#93;",
];

fn run(policy: &str, page: &str, call: &str) -> ScriptedConversation {
    let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
    run.answers = vec![("read", json!(page))];
    run.turn("Go.", &["read {}", call, "Done."]);
    run
}

fn sent(run: &ScriptedConversation) -> Value {
    let calls = run.calls();
    serde_json::from_str(calls.last().and_then(|call| call.strip_prefix("runs send ")).unwrap()).unwrap()
}

#[test]
fn in_payload_a_placeholder_is_the_region() {
    let check = |body: Value, page: &str, expected: Value| {
        let call = format!("send {}", json!({"to": "bob", "body": body}));
        assert_eq!(sent(&run(POLICY, page, &call)), json!({"to": "bob", "body": expected}), "{body}");
    };
    for way in WAYS {
        check(json!(way), "Note: pay", json!("Note: pay"));
        check(json!(format!("It says {way}, twice: {way}.")), "hi", json!("It says hi, twice: hi."));
        check(json!([{"a": way, "b": 1}, "x"]), "hi", json!([{"a": "hi", "b": 1}, "x"]));
    }
    let all = json!({"to": "bob", "body": "[hidden h1, h1]"});
    assert_eq!(sent(&run(POLICY, "hi", &format!("send {all}"))), json!({"to": "bob", "body": "hi, hi"}));
    // The content of a region is text: it contains no references and forms no links, not even together with
    // the surrounding text.
    check(json!("a [hidden h1]"), "[hidden h1] b", json!("a [hidden h1] b"));
    check(json!("https://[hidden h1]/x"), "evil.com", json!("hxxps: / /evil .com/x"));
    // Words that are not placeholders are unchanged.
    check(json!("[hidden] [h2] hidden ham"), "hi", json!("[hidden] [h2] hidden ham"));
}

#[test]
fn elsewhere_the_call_is_refused() {
    let check = |arguments: Value, method: Method, expected: &str| {
        let mut run = ScriptedConversation::new(POLICY, method);
        run.decision = flowgate_guard::approve::Decision::AllowOnce;
        run.turn("Go.", &["read {}", &format!("send {arguments}"), "Done."]);
        assert_eq!(run.calls(), ["runs read {}"], "{arguments}");
        assert!(run.last_view().contains(expected), "{arguments}: {}", run.last_view());
    };
    let holds = "an argument contains the placeholder of a hidden region";
    for way in WAYS {
        check(json!({"to": way, "body": "x"}), Method::LowestFirst, holds);
        check(json!({"to": ["x", {"y": format!("a {way} b")}], "body": "x"}), Method::LowestFirst, holds);
        check(json!({"to": "bob", "body": way}), Method::NeverLook, holds);
        check(
            json!({"to": "bob", "body": {*way: 1}}),
            Method::LowestFirst,
            "the name of a field contains the placeholder of a hidden region",
        );
        check(json!({"to": "bob", *way: 1}), Method::LowestFirst, holds);
    }
    // Whether a region of that name exists is known from the view; nothing else is revealed.
    check(json!({"to": "bob", "body": "[hidden h7]"}), Method::LowestFirst, "there is no hidden region `h7`");
    check(
        json!({"to": "bob", "body": "[hidden h1] [hidden h99999999999999999999]"}),
        Method::LowestFirst,
        "there is no hidden region `h9999999999999999999`",
    );
    check(json!({"to": "[hidden h7]", "body": "x"}), Method::LowestFirst, holds);
}

/// Payload exempts from the integrity requirement only, whatever text surrounds the region.
#[test]
fn a_reference_carries_no_secret_out() {
    let private = "label out.content as untrusted, private if:";
    let policy = POLICY.replace("label out.content as untrusted, public if:", private);
    let run = run(&policy, "4711", r#"send {"to": "bob", "body": "the code is [hidden h1]"}"#);
    assert_eq!(run.calls().last(), Some(&r#"asks send {"to":"bob","body":"the code is 4711"}"#));
    assert!(run.last_view().ends_with("call_2: [hidden h2]"), "{}", run.last_view());
}

/// In a reply, every placeholder is replaced by a constant, whether the region exists or not.
#[test]
fn replies_have_no_placeholders() {
    let any = format!("{POLICY}require top if:\n    (call: ToolCall) is tool:flowgate/link\n");
    for policy in [POLICY, &any] {
        for way in WAYS.iter().chain(&["[hidden h7]"]) {
            let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
            let turn = run.turn("Go.", &["read {}", &format!("It says {way}, I think.")]);
            assert_eq!(turn.replies.last().unwrap().text, "It says (hidden text), I think.", "{way}");
        }
    }
    // Without a region of this name they are ordinary words.
    for words in ["What is [hidden]?", "a hidden h1 tag, see [h1]"] {
        let turn = ScriptedConversation::new(POLICY, Method::LowestFirst).turn("Go.", &[words]);
        assert_eq!(turn.replies.last().unwrap().text, words);
    }
}
