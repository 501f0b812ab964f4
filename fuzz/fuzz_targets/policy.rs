//! An accepted policy can judge a small session; a rejected policy has diagnostics with positions.

#![no_main]

mod fixed;

use std::sync::Arc;

use flowgate::monitor::{Attribution, Limits, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::EventBody;
use flowgate::trace::read;
use libfuzzer_sys::fuzz_target;

const SESSION: &str = r#"[
  {"role": "user", "content": "pay ann 20"},
  {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "get", "arguments": "{\"n\": 1}"}}]},
  {"role": "tool", "tool_call_id": "a", "content": "- to: ann\n  note: 'Rating: 4.2'\n- to: me\n  note: x\n"},
  {"role": "assistant", "tool_calls": [{"id": "b", "function": {"name": "send", "arguments": "{\"to\": \"ann\", \"day\": \"2024-05-19\"}"}}]}
]"#;

fuzz_target!(|source: &str| {
    match Policy::parse(source) {
        Ok(policy) => {
            let policy = Arc::new(policy);
            let mut monitor = Monitor::with_limits(policy, Limits { fuel: 100_000, ..Limits::default() });
            for run in read::file(SESSION).unwrap_or_default() {
                for entry in run.entries {
                    if matches!(entry.body, EventBody::Call(_)) {
                        let _ = monitor.record(entry, &Attribution::everything());
                    } else {
                        let _ = monitor.push(entry);
                    }
                }
            }
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                assert!(diagnostic.span.start <= diagnostic.span.end && diagnostic.span.end <= source.len());
                assert!(!diagnostic.message.contains('\n'), "{}", diagnostic.message);
            }
        }
    }
});
