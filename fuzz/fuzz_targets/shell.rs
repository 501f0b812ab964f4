//! Every text is read as a shell script without a panic; spans are in the text, and what cannot be read is an error or
//! permitted on purpose.

#![no_main]

mod fixed;

use flowgate::detect::MAX_FINDINGS;
use flowgate::detect::shell::{UnreadReason, UnsafeCommandKind, shell_code};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let code = shell_code(text);
    assert!(code.commands.len() <= MAX_FINDINGS && code.issues.len() <= MAX_FINDINGS);
    let spans = code.commands.iter().map(|command| &command.span);
    let spans = spans.chain(code.unread.iter().map(|part| &part.span));
    for span in spans.chain(code.issues.iter().map(|issue| &issue.span)) {
        assert!(text.get(span.clone()).is_some(), "{span:?}");
    }
    let is_cut = |reason| matches!(reason, UnreadReason::Limit | UnreadReason::Syntax);
    if code.unread.iter().any(|part| is_cut(part.reason)) {
        assert!(code.issues.iter().any(|issue| issue.kind == UnsafeCommandKind::Unreadable));
    }
});
