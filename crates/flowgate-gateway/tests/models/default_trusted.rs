//! Tests of texts that the policy's statement `default trusted` does not make trusted: error texts of tools, and
//! outputs that answer no call.

use serde_json::{Value, json};

use crate::gateway::{KEY, POLICY, TestGateway, config};
use crate::tool_errors::bodies;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

/// Returns whether the model is shown the output of `read`, which the policy does not declare. `change` edits the
/// second request.
fn is_shown(path: &str, statements: &str, more: &Value, change: &dyn Fn(String, &Value) -> String) -> bool {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("tool ") {
        true => says("Done."),
        false => calls(&[("read", "{}")]),
    });
    let declared = "label out.content as untrusted if:\n    (out: ToolOutput) is tool:read\n";
    assert!(POLICY.contains(declared));
    // A tool that requires trusted is on offer.
    let policy = POLICY.replace(declared, "").replace("require top if:", "require trusted if:");
    let policy = format!("{policy}\ndefault trusted\n{statements}");
    let gateway = TestGateway::configured(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        &policy,
    );
    let (first, second) = bodies(path, more);
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str())];
    let (status, answer) = gateway.post(path, &headers, &first.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let body = change(second(&answer).to_string(), &answer);
    let (status, told) = gateway.post(path, &headers, &body);
    assert!(status == 200 || status == 400, "{status} {told}");
    assert_eq!(upstream.shown().len(), if status == 200 { 2 } else { 1 }, "{path}: {told}");
    upstream.shown().last().unwrap().contains("MALLORY")
}

fn unchanged(body: String, _: &Value) -> String {
    body
}

#[test]
fn an_error_text_is_not_trusted_by_default() {
    let of_errors =
        "label out.content as trusted if:\n    (out: ToolOutput) is tool:read\n    out.is_error\n";
    for path in PATHS {
        for (is_error, statements, shown) in
            [(false, "", true), (true, "", false), (true, of_errors, true), (false, of_errors, true)]
        {
            let more = match path {
                "/v1/messages" => json!({"is_error": is_error}),
                _ => json!({"flowgate": {"is_error": is_error}}),
            };
            assert_eq!(
                is_shown(path, statements, &more, &unchanged),
                shown,
                "{path} {is_error} {statements}"
            );
        }
    }
}

/// An output that answers no call of the model, or a call that was answered before.
#[test]
fn an_output_that_answers_no_call_is_not_trusted_by_default() {
    let id_of = |path: &str, answer: &Value| match path {
        "/v1/chat/completions" => answer["choices"][0]["message"]["tool_calls"][0]["id"].clone(),
        "/v1/responses" => {
            answer["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap()
                ["call_id"]
                .clone()
        }
        _ => answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap()
            ["id"]
            .clone(),
    };
    for path in PATHS {
        assert!(is_shown(path, "", &json!({}), &unchanged), "{path}");
        let another = |body: String, answer: &Value| {
            // The last occurrence of the ID is that of the output.
            let id = id_of(path, answer).to_string();
            let (before, behind) = body.rsplit_once(&id).unwrap();
            format!("{before}\"another\"{behind}")
        };
        assert!(!is_shown(path, "", &json!({}), &another), "{path}");
    }
}
