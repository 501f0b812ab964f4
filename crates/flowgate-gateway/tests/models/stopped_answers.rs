//! Tests of outputs that a rule of the policy stops: the decision of the rule depends on content, so it is hidden from
//! a model at a lower label.

use serde_json::{Value, json};

use crate::gateway::{KEY, POLICY, TestGateway, config};
use crate::tool_errors::bodies;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// Returns the view of the model at the lowest label after a tool returned a trusted output that contains MALLORY.
fn shown(path: &str, rule: &str) -> String {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("tool ") {
        true => says("Done."),
        false => calls(&[("read", "{}")]),
    });
    let declared = "label out.content as untrusted if:\n    (out: ToolOutput) is tool:read\n";
    assert!(POLICY.contains(declared));
    // A tool that requires trusted is on offer.
    let policy = POLICY
        .replace(declared, &declared.replace("untrusted", "trusted"))
        .replace("require top if:", "require trusted if:");
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"");
    let gateway = TestGateway::configured(&text, &(policy + rule));
    let nothing = json!({});
    let (first, second) = bodies(path, &nothing);
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str())];
    let (status, answer) = gateway.post(path, &headers, &first.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let (status, told) = gateway.post(path, &headers, &second(&answer).to_string());
    assert_eq!(status, 200, "{told}");
    upstream.shown().pop().unwrap()
}

#[test]
fn a_lower_model_does_not_see_a_withheld_answer() {
    let rule = |action: &str, word: &str| {
        format!("{action} \"no orders\" if:\n    (out: ToolOutput)\n    \"{word}\" in out.content\n")
    };
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for (rule, is_shown) in [
            (String::new(), true),
            (rule("raise", "ALICE"), true),
            (rule("log", "MALLORY"), true),
            (rule("raise", "MALLORY"), false),
        ] {
            let shown = shown(path, &rule);
            assert_eq!(shown.contains("MALLORY"), is_shown, "{path} {rule}: {shown}");
            assert!(!shown.contains("denies the answer"), "{path} {rule}: {shown}");
        }
    }
}

/// That an output was not stopped reveals content too: if a rule can stop outputs of a tool, each carries the greatest
/// label that an output of this tool may carry.
#[test]
fn an_answer_that_a_rule_can_stop_carries_the_most_of_its_tool() {
    let some = "label out.content as untrusted if:\n    (out: ToolOutput) is tool:read\n    \"BOB\" in out.content\n";
    let rule = |tool: &str| {
        format!(
            "raise \"no orders\" if:\n    (out: ToolOutput) is tool:{tool}\n    \"ALICE\" in out.content\n"
        )
    };
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for (statements, is_shown) in [
            (some.to_owned(), true),
            (rule("read"), true),
            (format!("{some}{}", rule("send")), true),
            (format!("{some}{}", rule("read")), false),
        ] {
            let shown = shown(path, &statements);
            assert_eq!(shown.contains("MALLORY"), is_shown, "{path} {statements}: {shown}");
        }
    }
}
