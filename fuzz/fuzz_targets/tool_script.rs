//! Every text is read as a program that calls tools, without a panic; spans are in the text, and a program that was read
//! stays so with a comment before it.

#![no_main]

mod fixed;

use flowgate::detect::MAX_FINDINGS;
use flowgate::detect::tool_script::tool_script;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let script = tool_script(text);
    assert!(script.calls.len() <= MAX_FINDINGS);
    let spans = script.calls.iter().map(|call| &call.span);
    for span in spans.chain(script.unread.iter().map(|(_, span)| span)) {
        assert!(text.get(span.clone()).is_some(), "{span:?}");
    }
    if script.unread.is_none() {
        let commented = tool_script(&format!("// @exec: {{}}\n{text}"));
        assert!(
            commented.calls.len() == script.calls.len()
                && commented.unread.is_none_or(|(reason, _)| reason.as_str() == "limit")
        );
    }
});
