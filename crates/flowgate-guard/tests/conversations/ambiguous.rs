//! Tests of calls whose arguments another parser could interpret as other arguments.

use flowgate_guard::conversation::Method;
use serde_json::json;

use crate::script::{POLICY, ScriptedConversation};

/// The tools of the script declare `body`.
#[test]
fn a_name_that_another_reader_takes_for_a_declared_one_does_not_run() {
    let rows = [
        (r#"{"to": "bob", "body": "x"}"#, true),
        (r#"{"to": "bob", "body": "x", "note": {"a_b": 1, "ab": 2}}"#, true),
        (r#"{"to": "bob", "Body": "x"}"#, false),
        (r#"{"to": "bob", "body": "x", "BODY": "y"}"#, false),
        (r#"{"to": "bob", "b_ody": "x"}"#, false),
        (r#"{"to": "bob", "To": "mallory"}"#, false),
        (r#"{"to": "bob", "\u0042ody": "x"}"#, false),
        (r#"{"to": "bob", "note": [{"x": 1, "X": 2}]}"#, false),
    ];
    for (arguments, runs) in rows {
        let mut run = ScriptedConversation::new(POLICY, Method::LowestFirst);
        run.turn("Mail Bob.", &[&format!("send {arguments}"), "Done."]);
        assert_eq!(run.calls().len(), usize::from(runs), "{arguments}");
        let told = run.last_view().contains("differ");
        assert_eq!(told, !runs, "{arguments}: {}", run.last_view());
    }
}

/// The value that a slot copies may contain such names as well: the call does not run, and steps that may not
/// see the region do not see the reason.
#[test]
fn a_call_with_an_ambiguous_copied_value_does_not_run() {
    for (answer, runs) in [
        (json!({"a": 1, "b": 2}), true),
        (json!({"a": 1, "A": 2}), false),
        (json!({"x": [{"k": 1, "\u{212a}": 2}]}), false),
    ] {
        let mut run = ScriptedConversation::new(POLICY, Method::LowestFirst);
        run.answers = vec![("read", answer.clone())];
        let call = r#"send {"to": "bob", "body": {"$slot": {"regions": ["h1"]}}}"#;
        run.turn("Send it to Bob.", &["read {}", call, "Done."]);
        assert_eq!(run.calls().len(), 1 + usize::from(runs), "{answer}: {:?}", run.log);
        assert!(!run.last_view().contains("differ"), "{}", run.last_view());
    }
}
