//! Tests of answers with a part that depends on no argument: a step that may not read the arguments is shown the part, and
//! learns only that the call ran.

use flowgate_guard::conversation::Method;
use serde_json::json;

use crate::script::ScriptedConversation;

/// `send` writes a file and answers with its text and the id that it has chosen.
const POLICY: &str = r#"
lattice integrity: trusted < untrusted

store drive: written by send, read by list

label message as trusted if:
    (message: Message)
    message.role == "user"
label out.content as untrusted if:
    (out: ToolOutput) is tool:read
label out.content as untrusted if:
    (out: ToolOutput) is tool:send
label capture_line(out.content, r".*\nid: (?<id>[0-9]{1,9})", "id") as trusted independent of arguments if:
    (out: ToolOutput) is tool:send
label out.content as trusted if:
    (out: ToolOutput) is tool:list

require top if:
    (call: ToolCall) is tool:read
require trusted if:
    (call: ToolCall) is tool:r"list|send"
payload call.arguments.body if:
    (call: ToolCall) is tool:send
"#;

#[test]
fn the_part_is_shown_and_that_it_exists_is_counted() {
    let check = |policy: &str, body: &str, fails: bool, is_shown: bool, bits: usize| {
        let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
        run.fills_nothing = fails;
        run.answers.push(("send", json!("text: a summary\nid: 7\nid: 26")));
        let send = format!("send {{\"body\": {body}}}");
        let turn = run.turn("Write it into a file.", &["read {}", &send, r#"list {"body": "26"}"#, "Done."]);
        let view = run.last_view().to_owned();
        assert_eq!(view.contains(r#"; id: "26"]"#), is_shown, "{body}: {view}");
        assert!(!view.contains("a summary\\nid: 7"), "the rest is hidden: {view}");
        let has_listed = run.calls().last().is_some_and(|call| call.contains(" list "));
        assert!(has_listed, "{body}: the step carries no label of the page");
        assert_eq!(turn.spent.bits, bits, "{body}");
    };
    let slot = json!({"$slot": {"regions": ["h1"], "fill": "a summary"}}).to_string();
    check(POLICY, &slot, false, true, 1);
    check(POLICY, &slot, true, false, 1);
    check(POLICY, "\"what the user says\"", false, true, 0);
    // A part that is labelled like the rest is hidden with it.
    let dependent = POLICY.replace("as trusted independent of arguments", "as untrusted");
    check(&dependent, &slot, false, false, 0);
    // A rule that reads other answers could have stopped the call, so the part carries what they could contain.
    let observing = format!(
        "{POLICY}ask \"a page\" if:\n    (out: ToolOutput) -> (call: ToolCall)\n    \"zzz\" in str(out.content)\n    call is tool:send\n"
    );
    check(&observing, &slot, false, false, 1);
}
