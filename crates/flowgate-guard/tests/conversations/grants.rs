//! Tests of a person's approval for the rest of a conversation.

use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{Method, Need};
use serde_json::json;

use crate::script::{POLICY, ScriptedConversation, written};

fn run(decision: Decision, policy: &str) -> ScriptedConversation {
    let mut run = ScriptedConversation::new(policy, Method::LowestFirst);
    run.decision = decision;
    run
}

#[test]
fn a_person_answers_once_for_equal_calls() {
    let rule = |grant: &str| {
        format!("{POLICY}ask \"mails are confirmed\"{grant} if:\n    (call: ToolCall) is tool:send\n")
    };
    let send = r#"send {"to": "bob", "body": "a"}"#;
    let other = r#"send {"to": "eve", "body": "a"}"#;
    let asked = |decision, grant: &str| {
        let mut run = run(decision, &rule(grant));
        run.turn("Mail Bob.", &[send, send, "Done."]);
        run.turn("Mail Bob and Eve.", &[send, other, "Done."]);
        let asked = run.calls().iter().filter(|call| call.starts_with("asks")).count();
        let ran = run.calls().iter().filter(|call| call.starts_with("runs")).count();
        // Withdrawn, the next call is a question again.
        let had_grants = run.conversation.withdraw_grants();
        run.log.clear();
        run.turn("Mail Bob.", &[send, "Done."]);
        (asked, ran, had_grants, run.calls().first().is_some_and(|call| call.starts_with("asks")))
    };
    assert_eq!(asked(Decision::AllowOnce, " grant conversation"), (4, 4, false, true));
    assert_eq!(asked(Decision::AllowForConversation, " grant conversation"), (2, 4, true, true));
    // Where the policy does not say so, the answer holds for one call.
    assert_eq!(asked(Decision::AllowForConversation, ""), (4, 4, false, true));
    assert_eq!(asked(Decision::Deny, " grant conversation"), (4, 0, false, true));
}

/// What a person grants to a call that a page had a hand in says nothing for calls below it, nor for others above it.
#[test]
fn a_grant_above_the_lowest_label_is_not_used_below_it() {
    let policy = POLICY.replace(
        "require trusted, public if:\n    (call: ToolCall) is tool:send",
        "require trusted, public grant conversation if:\n    (call: ToolCall) is tool:send",
    ) + "ask \"mails are confirmed\" grant conversation if:\n    (call: ToolCall) is tool:send\n";
    let mut run = run(Decision::AllowForConversation, &policy);
    let look = r#"look {"regions": ["h1"], "then_return": true}"#;
    let send = r#"send {"to": "bob", "body": "a"}"#;
    run.turn("Read it.", &["read {}", look, send, "It says ...", send, send, "Done."]);
    let calls: Vec<&str> = run.calls().iter().map(|call| call.split(' ').next().unwrap()).collect();
    // Above the lowest label a person is asked, and below it once more; then the grant of that label covers the call.
    assert_eq!(calls, ["runs", "asks", "runs", "asks", "runs", "runs"]);
}

/// With the first question of a message come those about its further calls, as far as they can be foreseen.
#[test]
fn a_question_announces_those_about_further_calls_of_the_message() {
    let rule = format!("{POLICY}ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n");
    let (bob, eve) = (r#"send {"to": "bob", "body": "a"}"#, r#"send {"to": "eve", "body": "a"}"#);
    let read = "read {}";
    for (calls, expected) in [
        (vec![bob], "send bob x1: "),
        (vec![bob, eve], "send bob x1: send eve x1 | send eve x1: "),
        (
            vec![bob, read, bob, eve, eve],
            "send bob x2: send eve x2 | send bob x1: send eve x2 | send eve x2:  | send eve x1: ",
        ),
        (vec![bob, eve, bob], "send bob x2: send eve x1 | send eve x1: send bob x1 | send bob x1: "),
        // What is refused without a question, or what a slot will hold, is not announced.
        (vec![bob, r#"nothing {}"#, r#"send {"to": 1, "to": 2}"#], "send bob x1: "),
        (vec![bob, r#"send {"to": "eve", "body": {"$slot": {"copy": ["h1"]}}}"#], "send bob x1: "),
    ] {
        let mut run = run(Decision::AllowOnce, &rule);
        run.turn("Mail them.", &[&calls.join("\n"), "Done."]);
        assert_eq!(run.announced.join(" | "), expected, "{calls:?}");
    }
}

/// The text of the question says which other values the answer covers.
#[test]
fn a_question_names_the_classes_that_an_answer_covers() {
    let summary = |class: &str, when: &str| {
        let policy = format!(
            "{POLICY}endorse call.arguments.when as trusted if:\n    (call: ToolCall) is tool:send\n    is_date(call.arguments.when)\n\
             ask \"mails are confirmed\" grant conversation{class} if:\n    (call: ToolCall) is tool:send\n"
        );
        let mut conversation = run(Decision::Deny, &policy).conversation;
        conversation.add_user_message("Mail Bob.".into()).unwrap();
        assert!(matches!(conversation.need(), Need::Complete(_)));
        conversation.accept_completion(written(&format!("send {}", json!({"to": "bob", "when": when}))));
        let Need::Approve(ask) = conversation.need() else { panic!("no question") };
        (
            ask.summary.contains("covers other values: `when` can be a value for which `is_date` holds"),
            ask.changeable,
        )
    };
    let covered = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(summary(" by class", "2024-05-19"), (true, covered(&["when"])));
    assert_eq!(summary(" by class", "soon"), (false, covered(&[])));
    assert_eq!(summary("", "2024-05-19"), (false, covered(&[])));
}
