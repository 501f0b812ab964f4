//! Tests of the verdicts on calls for which Claude Code asks in auto mode.

use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, POLICY, config};
use crate::upstream::{UpstreamDouble, calls};

/// The first data line of a stream that has the member `safeguard_results`, or the whole body, in JSON.
fn results(body: &str) -> Option<Value> {
    let all: Vec<Value> = match serde_json::from_str(body) {
        Ok(whole) => vec![whole],
        Err(_) => {
            let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
            lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["delta"].clone()).collect()
        }
    };
    all.into_iter().find_map(|mut part| part.as_object_mut()?.remove("safeguard_results"))
}

/// The gateway answers only if it is asked, vouches for calls only if its operator says so, and never in watch mode.
#[test]
fn verdicts_are_given_as_the_operator_says() {
    let upstream = UpstreamDouble::new(|_| calls(&[("read", "{}"), ("forbidden", "{}")]));
    let unsupported = json!([{"type": "dangerous_tool_use", "status": {"type": "unsupported"}}]);
    let check = |more: &str, sections: &str, safeguards: Value, expected: &dyn Fn(&str) -> Option<Value>| {
        let more = format!("user-messages = \"trust-unmarked-even-if-pasted\"\n{more}");
        let home = GatewayHome::new(&(config(&upstream.url, "chat-completions", &more) + sections), POLICY);
        let gateway = home.start();
        for stream in [false, true] {
            let body = json!({
                "model": "double", "max_tokens": 100, "stream": stream, "safeguards": safeguards,
                "messages": [{"role": "user", "content": "Read it."}],
                "tools": [{"name": "read", "input_schema": {"type": "object"}}]
            });
            let (status, answer) = gateway.post("/v1/messages", &[("x-api-key", KEY)], &body.to_string());
            assert_eq!(status, 200, "{answer}");
            // The call of a tool that is not on offer was refused, so only the other one is in the answer.
            let (_, rest) = answer.split_once("\"id\":\"c1-").unwrap();
            let id = format!("c1-{}", rest.split('"').next().unwrap());
            assert_eq!(results(&answer), expected(&id), "{more} {stream} {answer}");
        }
    };
    let asked =
        || json!([{"type": "dangerous_tool_use", "classifier_context": {"v": 1, "permission_mode": "auto"}}]);
    check("", "", json!(null), &|_| None);
    check("safeguards = \"policy\"", "", json!(null), &|_| None);
    check("", "", asked(), &|_| Some(unsupported.clone()));
    check("safeguards = \"policy\"", "", asked(), &|id| {
        let verdicts = json!({id: {"type": "evaluated", "outcome": "not_flagged"}});
        Some(json!([{"type": "dangerous_tool_use", "status": {"type": "available", "tool_uses": verdicts}}]))
    });
    let watch = "[watch]\nfile = \"watch.jsonl\"\n";
    check("safeguards = \"policy\"\nmode = \"watch\"", watch, asked(), &|_| Some(unsupported.clone()));
}
