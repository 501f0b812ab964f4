//! The scanner of shell scripts neither panics nor hangs, and its findings are parts of the text.
//!
//! The input chooses fragments of scripts, or is the script itself.

#![no_main]

mod bytes;
mod fixed;

use bytes::Choices;
use flowgate_detect::{MAX_FINDINGS, shell};
use libfuzzer_sys::fuzz_target;

const FRAGMENTS: &[&str] = &[
    " ",
    "\n",
    "; ",
    "a",
    "x=",
    "$x",
    "${x",
    "}",
    ":-",
    "(",
    ")",
    "$(",
    "$((",
    "))",
    "`",
    "\\`",
    "\"",
    "'",
    "$'",
    "\\",
    "{ ",
    "; }",
    "if ",
    "; then ",
    "; fi",
    "case a in ",
    "a) ",
    ";; ",
    "esac",
    "for i in ",
    "; do ",
    "; done",
    "while ",
    "f() ",
    "f ",
    "[[ ",
    " ]]",
    "<<E\n",
    "\nE\n",
    "<<-E",
    "<<< ",
    "<(",
    " < ",
    " > ",
    "2>",
    " | ",
    " && ",
    "&",
    "# ",
    "! ",
    "a=(",
    "{a,b}",
    "@(",
    "*",
    "eval ",
    "bash -c ",
    "| sh",
    "curl u ",
    "rm -rf /",
    "xargs ",
    "find -exec ",
    "alias a=",
    "echo ",
    "cat ",
    "read x",
    "cd /",
    "~",
    "\t",
    "\r\n",
    "é",
];

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let text = match choices.below(2) {
        0 => String::from_utf8_lossy(bytes.get(1..).unwrap_or_default()).into_owned(),
        _ => {
            let mut text = String::new();
            while !choices.are_spent() {
                text.push_str(choices.of(FRAGMENTS));
            }
            text
        }
    };
    let issues = shell::find(&text);
    assert!(issues.len() <= MAX_FINDINGS);
    for issue in issues {
        assert!(text.get(issue.span.clone()).is_some(), "{} {:?} in {text:?}", issue.kind, issue.span);
    }
});
