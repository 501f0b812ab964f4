//! Tests of `flowgate run` at a terminal: a person answers questions, and Ctrl-C stops a turn or the chat.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::FETCH;
use crate::program::{DOUBLES, EXAMPLE, ModelServerDouble, err, example, folder, out, outbox};

/// Runs the example at a terminal; `steps` lists the expected outputs and the lines to type after them.
fn at_terminal(folder: &Path, model: &ModelServerDouble, steps: &Value) -> (Option<i32>, String) {
    at_terminal_under(&format!("{EXAMPLE}/policy.flow"), folder, model, steps)
}

/// Does the same under another policy, of which `policy` is the path.
pub(crate) fn at_terminal_under(
    policy: &str,
    folder: &Path,
    model: &ModelServerDouble,
    steps: &Value,
) -> (Option<i32>, String) {
    let mut arguments = example(model, &["--color", "never"]);
    let example_policy = format!("{EXAMPLE}/policy.flow");
    for argument in arguments.iter_mut().filter(|argument| **argument == example_policy) {
        policy.clone_into(argument);
    }
    let output = Command::new("python3")
        .arg(format!("{DOUBLES}/terminal.py"))
        .arg(steps.to_string())
        .arg(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .env("OUTBOX", folder.join("outbox"))
        .output()
        .unwrap();
    (output.status.code(), format!("{}{}", out(&output), err(&output)).replace("\r\n", "\n"))
}

#[test]
fn a_person_at_the_terminal_decides() {
    let folder = folder("terminal");
    let send = r#"mail__send_mail {"to": "bob\u202e@example.org", "subject": "News", "body": "\u001b[2J"}"#;
    let script = [
        FETCH,
        "look {\"regions\": [\"h1\"]}",
        send,
        "Sent.",
        FETCH,
        "look {\"regions\": [\"h1\"]}",
        send,
        "Not sent.",
    ];
    let model = ModelServerDouble::new(&script);
    let steps = json!([
        ["› ", "Tell Bob\n"],
        ["[y/N/?] ", "?\n"],
        ["nothing else is allowed by it", ""],
        ["[y/N/?] ", "y\n"],
        ["Sent.", ""],
        ["› ", "Again\n"],
        ["[y/N/?] ", "\n"],
        ["Not sent.", ""],
        ["› ", "\u{4}"],
    ]);
    let (code, shown) = at_terminal(&folder, &model, &steps);
    assert_eq!((code, outbox(&folder).len()), (Some(0), 1), "{shown}");
    for part in [
        "    {\n      \"to\": \"bob\\u202e@example.org\",\n      \"subject\": \"News\",\n      \"body\": \"\\u001b[2J\"\n    }\n",
        "may have been led to this call by #5 content in the answer of web/fetch (untrusted)\n      “Otters are back",
        "Not sent.",
    ] {
        assert!(shown.contains(part), "{part}\nis not in\n{shown}");
    }
    assert!(!shown.contains('\u{202e}') && !shown.contains("\u{1b}[2J"), "{shown}");
}

/// The calls of one message are shown together, and one answer is for all of them.
#[test]
fn one_answer_is_for_all_calls_of_a_message() {
    let folder = folder("card");
    let send = |to: &str| {
        format!(r#"mail__send_mail {{"to": "{to}@example.org", "subject": "News", "body": "Otters"}}"#)
    };
    let (both, look) = (format!("{}\n{}", send("bob"), send("eve")), "look {\"regions\": [\"h1\"]}");
    let model = ModelServerDouble::new(&[FETCH, look, &both, "Sent.", FETCH, look, &both, "Not sent."]);
    let prompt = "mail/send_mail: allow this call once, or all 2 calls once? [y/a/d/N/?] ";
    let steps = json!([
        ["› ", "Tell Bob and Eve\n"],
        [prompt, "a\n"],
        ["Sent.", ""],
        ["› ", "Again\n"],
        [prompt, "d\n"],
        ["Not sent.", ""],
        ["› ", "\u{4}"],
    ]);
    let (code, shown) = at_terminal(&folder, &model, &steps);
    let to: Vec<Value> = outbox(&folder).iter().map(|mail| mail["to"].clone()).collect();
    assert_eq!((code, to), (Some(0), vec![json!("bob@example.org"), json!("eve@example.org")]), "{shown}");
    for part in [
        "The model wants to call mail/send_mail\n    {\n      \"to\": \"bob@example.org\",\n",
        "The model then wants to call mail/send_mail\n    {\n      \"to\": \"eve@example.org\",\n",
        "One answer can be for all 2 calls: a allows each of them once, d denies all of them.\n",
    ] {
        assert_eq!(shown.matches(part).count(), 2, "{part}\nis not twice in\n{shown}");
    }
    // One text in the first card; in the second one also the answers of the first turn.
    assert_eq!(shown.matches("(untrusted), as quoted above\n").count(), 1 + 4, "{shown}");
}

#[test]
fn ctrl_c_stops_a_turn_and_twice_the_chat() {
    let folder = folder("interrupt");
    let model = ModelServerDouble::new(&["wait", "Here I am.", "wait"]);
    let steps = json!([
        ["› ", "Hello\n"],
        ["the model writes", "\u{3}"],
        ["the turn was stopped", ""],
        ["› ", "Are you there?\n"],
        ["Here I am.", ""],
        ["› ", "Again\n"],
        ["the model writes", "\u{3}"],
        ["being stopped", ""],
        ["› ", "\u{3}"],
        ["Ctrl-C again quits", "\u{3}"],
    ]);
    let (code, shown) = at_terminal(&folder, &model, &steps);
    assert_eq!(code, Some(130), "{shown}");
    assert!(
        model.shown(1).contains("Hello") && model.shown(1).contains("Are you there?"),
        "{}",
        model.shown(1)
    );
}
