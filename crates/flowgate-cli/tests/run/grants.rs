//! Tests of the grants of a chat: what a person allows for the rest of the conversation is listed and withdrawn.

use serde_json::json;

use crate::FETCH;
use crate::program::{EXAMPLE, ModelServerDouble, file, folder, outbox};
use crate::terminal::at_terminal_under;

const LOOK: &str = r#"look {"regions": ["h1"]}"#;

/// The policy of the example, by which a person may answer for the rest of the conversation.
fn policy() -> String {
    let example = std::fs::read_to_string(format!("{EXAMPLE}/policy.flow")).unwrap();
    let granted =
        example.replace("require trusted, public if:", "require trusted, public grant conversation if:");
    assert_ne!(granted, example);
    granted
}

fn send(to: &str, body: &str) -> String {
    format!(r#"mail__send_mail {{"to": "{to}", "subject": "News", "body": "{body}"}}"#)
}

#[test]
fn grants_are_listed_and_withdrawn() {
    let folder = folder("grants");
    let policy = file(&folder, "policy.flow", &policy());
    let (bob, again, eve) = (send("bob\u{202e}", "one"), send("bob\u{202e}", "two"), send("eve", "one"));
    let turns: [[&str; 4]; 6] = [
        [FETCH, LOOK, &bob, "First."],
        // Another body is payload, and another recipient is a question.
        [FETCH, LOOK, &again, "Second."],
        [FETCH, LOOK, &eve, "Third."],
        [FETCH, LOOK, &bob, "Fourth."],
        [FETCH, LOOK, &eve, "Fifth."],
        [FETCH, LOOK, &eve, "Sixth."],
    ];
    let model = ModelServerDouble::new(turns.as_flattened());
    let prompt = "once, or in this conversation with any body? [y/c/N/?] ";
    let steps = json!([
        ["› ", "/grants\n"],
        ["No call is allowed for the rest of this conversation.", ""],
        ["› ", "/withdraw\n"],
        ["error: there is no grant to withdraw", ""],
        ["› ", "Tell Bob\n"],
        [prompt, "c\n"],
        ["First.", ""],
        ["› ", "Again\n"],
        ["Second.", ""],
        ["› ", "Tell Eve\n"],
        [prompt, "c\n"],
        ["Third.", ""],
        ["› ", "/grants\n"],
        ["/withdraw NUMBER one of them.", ""],
        ["› ", "/withdraw 3\n"],
        ["error: `3` is not the number of a grant: write a number from 1 to 2", ""],
        ["› ", "/withdraw them please\n"],
        ["error: `them please` is not the number of a grant", ""],
        ["› ", "/withdraw 1\n"],
        ["1 grant is withdrawn: you are asked about such calls again.", ""],
        ["› ", "Tell Bob\n"],
        [prompt, "n\n"],
        ["Fourth.", ""],
        ["› ", "Tell Eve\n"],
        ["Fifth.", ""],
        ["› ", "/withdraw\n"],
        ["1 grant is withdrawn", ""],
        ["› ", "Tell Eve\n"],
        [prompt, "n\n"],
        ["Sixth.", ""],
        ["› ", "\u{4}"],
    ]);
    let (code, shown) = at_terminal_under(&policy, &folder, &model, &steps);
    assert_eq!((code, outbox(&folder).len()), (Some(0), 4), "{shown}");
    let listed = "1  mail/send_mail\n    {\n      \"to\": \"bob\\u202e\",\n      \"subject\": \"News\",\n      \"body\": \"one\"\n    }\n    \
                  Further calls can have other values: `body` can have any value.\n  - decision, ";
    for part in [listed, "\n2  mail/send_mail\n    {\n      \"to\": \"eve\",\n"] {
        assert!(shown.contains(part), "{part}\nis not in\n{shown}");
    }
    assert_eq!(shown.matches(prompt).count(), 4, "{shown}");
    assert!(!shown.contains('\u{202e}'), "{shown}");
    // A command with an argument is no message to the model.
    assert_eq!(model.asked.lock().unwrap().len(), turns.as_flattened().len());
}
