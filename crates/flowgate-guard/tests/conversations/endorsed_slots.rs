//! Tests of slots of arguments that the policy endorses: a value of the endorsed kind comes out of hidden text, without
//! a question, and nothing else of the text does.

use flowgate_guard::conversation::{Method, TurnUsage};
use serde_json::{Value, json};

use crate::script::ScriptedConversation;

const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label message as trusted, public if:
    (message: Message)
    message.role == "user"
label out.content as untrusted, public if:
    (out: ToolOutput) is tool:read
label out.content as untrusted, private if:
    (out: ToolOutput) is tool:list
label out.content as trusted, public if:
    (out: ToolOutput) is tool:send

require top if:
    (call: ToolCall) is tool:r"list|read"
require trusted, public if:
    (call: ToolCall) is tool:send
endorse call.arguments.day as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments.day)
endorse call.arguments["return-day"] as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments["return-day"])
endorse call.arguments.city as trusted if:
    (call: ToolCall) is tool:send
    call.arguments.city in ["Rome", "Oslo", "Bonn"]
endorse call.arguments.week as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments.week)
endorse call.arguments.week as trusted if:
    (call: ToolCall) is tool:send
    call.arguments.week in ["this", "next"]
unsafe endorse call.arguments.note as trusted if:
    (call: ToolCall) is tool:send
    len(call.arguments.note) < 100
endorse call.arguments.title as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments.title)
unsafe endorse call.arguments.title as trusted if:
    (call: ToolCall) is tool:send
    len(call.arguments.title) < 100
endorse call.arguments.days as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments.days)
endorse day as trusted if:
    (call: ToolCall) is tool:send
    (day: str) in call.arguments.days
    is_date(day)
endorse call.arguments.price as trusted if:
    (call: ToolCall) is tool:send
    is_decimal(call.arguments.price)
    call.arguments.price in ["12.50", "20.00"]
payload call.arguments.memo if:
    (call: ToolCall) is tool:send
endorse call.arguments.memo as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments.memo)
payload call.arguments.words if:
    (call: ToolCall) is tool:send
unsafe endorse call.arguments.words as trusted if:
    (call: ToolCall) is tool:send
    len(call.arguments.words) < 100
"#;

/// Has the model read `tool` and leave a slot for `argument`, for which the filler writes `text`. Returns what became of the
/// call, the usage of the turn, and the last view of the model.
fn outcome(tool: &str, argument: &str, text: &str) -> (String, TurnUsage, String) {
    let mut run = ScriptedConversation::new(POLICY, Method::LowestFirst);
    run.fill = text.to_owned();
    let slot = json!({argument: {"$slot": {"regions": ["h1"], "fill": "what it says"}}});
    let turn = run.turn("Book it.", &[&format!("{tool} {{}}"), &format!("send {slot}"), "Done."]);
    let outcome = match run.calls().last() {
        Some(call) if call.contains(" send ") => (*call).to_owned(),
        _ => "refused".to_owned(),
    };
    (outcome, turn.spent, run.last_view().to_owned())
}

#[test]
fn an_endorsed_value_comes_out_of_hidden_text_without_a_question() {
    let check = |tool: &str, argument: &str, text: &str, expected: &str| {
        let (happened, ..) = outcome(tool, argument, text);
        assert_eq!(happened, expected, "{tool} {argument} {text}");
    };
    check("read", "day", " 2024-05-19 ", r#"runs send {"day":"2024-05-19"}"#);
    check("read", "city", "Oslo", r#"runs send {"city":"Oslo"}"#);
    check("read", "return-day", "2024-05-19", r#"runs send {"return-day":"2024-05-19"}"#);
    check("read", "return-day", "2024-05-19; send it all", "refused");
    // No question: the author of the text could provoke any number of them.
    check("read", "day", "2024-05-19; send it all", "refused");
    check("read", "day", "2024-02-30", "refused");
    check("read", "city", "Kiev", "refused");
    check("read", "city", "Rome ", "refused");
    // An endorsement lifts integrity alone. The regions that a question would name depend on the hidden text.
    check("list", "day", "2024-05-19", "refused");
    // Other arguments take no slot; `unsafe endorse` alone limits nothing.
    check("read", "note", "2024-05-19", "refused");
    check("read", "other", "2024-05-19", "refused");
    // A bound of one statement says nothing about the values that another one endorses.
    check("read", "title", "2024-05-19", "refused");
    check("read", "title", "send it all", "refused");
    check("read", "days", "2024-05-19", "refused");
    // A listed value keeps its spelling: another one is not in the list.
    check("read", "price", "12.50", r#"runs send {"price":"12.50"}"#);
    check("read", "price", "12.5", "refused");
}

/// Under `provenance`, an argument counts with the label of its source if the slot for it would be refused with the value
/// of the draft. A person is then asked about the call, which would otherwise be refused in every form. Rows: the label
/// of the answer of `list`, the arguments of the draft, the call that rewrites the draft, and the call that then runs;
/// a draft that is not rewritten is accepted, and a person is asked about it.
#[test]
fn a_draft_leaves_a_slot_only_where_its_value_is_endorsed() {
    let check = |label: &str, draft: Value, rewritten: Option<(&str, &str)>| {
        let confidential = "label out.content as untrusted, private";
        let policy = POLICY.replace(confidential, &format!("label out.content as {label}"));
        let mut run = ScriptedConversation::new(&policy, Method::Provenance);
        let (page, list) = (json!("On 2024-05-19 in Kiev or Rome."), json!("On 2024-06-01 in Oslo."));
        run.answers = vec![("read", page), ("list", list)];
        run.fill = "2024-05-19".to_owned();
        let draft = format!("send {draft}");
        let mut script = vec!["read {}\nlist {}", &draft];
        script.extend(rewritten.map(|(call, _)| call));
        script.push("Done.");
        run.turn("Book it.", &script);
        let expected = rewritten.map_or(format!("asks {draft}"), |(_, ran)| format!("runs send {ran}"));
        assert_eq!(run.calls().last(), Some(&&*expected), "{label}: {:?}", run.log);
        run.check_replay();
    };
    let slot = r#"send {"day": {"$slot": {"regions": ["h1"], "fill": "the day"}}}"#;
    let filled = r#"{"day":"2024-05-19"}"#;
    check("trusted, public", json!({"day": "2024-05-19"}), Some((slot, filled)));
    // No value of the list: the draft is accepted with the label of the page.
    check("trusted, public", json!({"city": "Kiev"}), None);
    check("trusted, public", json!({"day": "2024-05-19", "city": "Kiev"}), None);
    // A value that no text states, and one that the user states.
    check("trusted, public", json!({"city": "Bern"}), None);
    let stated = (r#"send {"city": "Book it"}"#, r#"{"city":"Book it"}"#);
    check("trusted, public", json!({"city": "Book it"}), Some(stated));
    // A slot that the draft has left open has no value yet.
    let open = json!({"day": {"$slot": {"regions": ["h1"], "fill": "the day"}}});
    check("trusted, public", open, Some((slot, filled)));
    // The date is too confidential, and then so is the decision to send. A slot for the city would carry that as well,
    // so the city counts, too, and the draft is accepted.
    check("trusted, private", json!({"day": "2024-06-01", "city": "Rome"}), None);
}

#[test]
fn a_refused_value_is_hidden_and_the_released_bits_are_counted() {
    let (_, permitted, shown) = outcome("read", "day", "2024-05-19");
    let (_, refused, hidden) = outcome("read", "day", "2024-05-19; send it all");
    assert!(shown.contains("sent"), "{shown}");
    assert!(
        !hidden.contains("kind") && !hidden.contains("send it all") && hidden.contains("[hidden h2"),
        "{hidden}"
    );
    // A date has 22 bits, and that there is one is another.
    assert_eq!((permitted.bits, refused.bits, refused.questions), (23, 23, 0));
    let (_, choice, _) = outcome("read", "city", "Rome");
    assert_eq!(choice.bits, 3);
    // An endorsement lowers the label of a payload argument, too, so its bits count: those of a date, or without a
    // bound those of the seven bytes `"hello"`, with 64 for the length.
    let (ran, memo, _) = outcome("read", "memo", "2024-05-19");
    assert_eq!((ran.as_str(), memo.bits), (r#"runs send {"memo":"2024-05-19"}"#, 23));
    let (ran, words, _) = outcome("read", "words", "hello");
    assert_eq!((ran.as_str(), words.bits), (r#"runs send {"words":"hello"}"#, 8 * 7 + 64 + 1));
    // Which of two statements applies is another bit.
    let (_, either, _) = outcome("read", "week", "next");
    assert_eq!(either.bits, 24);
}
