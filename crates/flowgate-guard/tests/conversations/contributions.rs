//! Tests that each contribution to the label of a step is needed: two runs that differ in hidden text alone show an observer
//! of trusted, public text the same. Without the contribution, the observer sees the last step in one run only, or
//! another view.

use flowgate_guard::conversation::Method;
use serde_json::{Value, json};

use crate::script::ScriptedConversation;

/// The bound of each step is what `send` requires: trusted, private.
const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

store notes: written by send

label message as trusted, public if:
    (message: Message)
    message.role == "user"

label out.content as trusted, public if:
    (out: ToolOutput) is tool:list
label out.content as untrusted, public if:
    (out: ToolOutput) is tool:read

require top if:
    (call: ToolCall) is tool:r"list|read"
require trusted, private if:
    (call: ToolCall) is tool:send
payload call.arguments.body if:
    (call: ToolCall) is tool:send
raise "no word of the page" if:
    (call: ToolCall) is tool:send
    "never" in str(call.arguments.body)
"#;

/// What differs between the runs: the answer of the tool, and whether it is an error.
type Answer = (&'static str, Value, bool);

/// Returns what an observer of trusted, public text sees of the last step: its view, if the step carries no more than that.
fn seen(policy: &str, answer: &Answer, script: &[&str]) -> Option<String> {
    let (tool, content, is_error) = answer;
    let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
    run.answers.insert(0, (*tool, content.clone()));
    run.is_error = *is_error;
    let turn = run.turn("Help me.", script);
    (turn.replies.last()?.label == ["trusted", "public"]).then(|| run.last_view().to_owned())
}

#[test]
fn what_is_hidden_does_not_show_in_the_label_of_a_step() {
    let notes = |text: &str| json!({"count": 2, "notes": text});
    let page = |text: &str| json!({"count": 2, "page": text});
    let private_notes = "label out.content.notes as private if:\n    (out: ToolOutput) is tool:list\n";
    let decided_by_hidden = "label out.content.meta as untrusted if:\n    (out: ToolOutput) is tool:list\n\
        label out.content.meta.k as trusted, private if:\n    (out: ToolOutput) is tool:list\n\
        label out.content.page as untrusted if:\n    (out: ToolOutput) is tool:list\n    out.content.meta.k == \"x\"\n";
    let part_of_page = "label out.content.page as untrusted if:\n    (out: ToolOutput) is tool:list\n\
        label capture(out.content.page, r\"id=(?<id>[0-9]) .*\", \"id\") as trusted, private if:\n    (out: ToolOutput) is tool:list\n";
    let part_of_answer = "label capture(out.content, r\"id=(?<id>[0-9]) .*\", \"id\") as trusted, private if:\n    (out: ToolOutput) is tool:read\n";
    let errors = "label out as trusted, private if:\n    (out: ToolOutput) is tool:read\n    out.is_error in [True, False]\n";
    let list: &[&str] = &["list {}", "Done."];
    let read: &[&str] = &["read {}", "Done."];
    let send = r#"send {"body": {"$slot": {"regions": ["h1"]}}}"#;
    let sent: &[&str] = &["read {}", send, "Done."];
    for (what, statements, one, two, script) in [
        (
            "a region that is shown",
            private_notes,
            ("list", notes("a"), false),
            ("list", notes("b"), false),
            list,
        ),
        (
            "what decided the label of a hidden region",
            decided_by_hidden,
            ("list", json!({"meta": {"k": "x"}, "page": "a"}), false),
            ("list", json!({"meta": {"k": "y"}, "page": "a"}), false),
            list,
        ),
        (
            "the form of a hidden part",
            part_of_page,
            ("list", page("id=7 x"), false),
            ("list", page("x"), false),
            list,
        ),
        (
            "the form of a hidden answer",
            part_of_answer,
            ("read", json!("id=7 x"), false),
            ("read", json!("x"), false),
            read,
        ),
        (
            "the other answers of the tool",
            errors,
            ("read", json!("a page"), false),
            ("read", json!("a page"), true),
            read,
        ),
        (
            "an error that a rule stops",
            "raise \"no word of the page\" if:\n    (out: ToolOutput) is tool:list\n    \"never\" in str(out.content)\n",
            ("list", json!("never"), true),
            ("list", json!("a page"), true),
            list,
        ),
        ("a hidden refusal", "", ("read", json!("never"), false), ("read", json!("a page"), false), sent),
    ] {
        let policy = format!("{POLICY}{statements}");
        let [first, second] = [&one, &two].map(|answer| seen(&policy, answer, script));
        assert_eq!(first, second, "{what}");
        // Nothing of this is to be seen by an observer, so that the comparison is not empty by chance.
        assert_eq!(first, None, "{what}");
    }
    // A part that is at most public lets the step be public, whether the text has it or not.
    let public_part = part_of_page.replace("as trusted, private", "as trusted, public");
    let policy = format!("{POLICY}{public_part}");
    let [first, second, without] =
        ["id=7 x", "id=7 y", "y"].map(|text| seen(&policy, &("list", page(text), false), list));
    assert!(first.is_some() && without.is_some());
    assert_eq!(first, second);
    // An observer does see a step that was shown nothing private.
    assert!(seen(POLICY, &("list", notes("a"), false), list).is_some());
}

/// Whether a call that has no answer yet was permitted can depend on hidden text.
#[test]
fn a_call_without_an_answer_does_not_show_its_verdict() {
    let seen = |page: &str| {
        let mut run = ScriptedConversation::new(POLICY, Method::LowestFirst);
        run.answers.insert(0, ("read", json!(page)));
        run.turn("Help me.", &["read {}", "It is there."]);
        run.hands_over = true;
        // A rule refuses the call for one of the pages. The other call runs elsewhere, and nobody answers it.
        let send = r#"send {"body": {"$slot": {"regions": ["h1"]}}}"#;
        let is_permitted = !run.turn("Send it.", &[send, "Done."]).calls.is_empty();
        let turn = run.turn("And now?", &["Done."]);
        let is_visible = turn.replies.last().unwrap().label == ["trusted", "public"];
        (is_permitted, is_visible.then(|| run.last_view().to_owned()))
    };
    assert_eq!([seen("never"), seen("a page")], [(false, None), (true, None)]);
}
