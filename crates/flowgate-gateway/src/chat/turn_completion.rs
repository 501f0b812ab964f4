//! Builds the completion that a client receives from the outcome of a turn: the replies of the model, the calls that
//! may run, and notes of the gateway. `turn_end` calls [`completion`] for a turn that has ended. For a turn that waits
//! for a person, `turn_end` and `turn_start` call [`waiting_completion`].

use std::fmt::Write as _;

use flowgate::trace::Tool;
use flowgate_guard::conversation::{CONTINUE, ModelReply, Turn, TurnEnd};
use flowgate_lm::chat::{CitedPiece, Completion, Message, ReasoningPart, Stop, ToolCall};
use flowgate_lm::wire::generate_content;

use crate::approvals::ApprovalReference;
use crate::config::ClientSettings;

/// Builds the completion for a turn that waits for a person: the text so far, and a note to the user. The note names
/// the question for which the turn waits, and the number of `upcoming` questions about later calls. If the client
/// demands a form of the text, such as JSON by a schema (`is_formatted`), the note alone is the text, marked as a
/// refusal, since it does not have the form.
pub(super) fn waiting_completion(
    client: &ClientSettings,
    question: Option<&ApprovalReference>,
    upcoming: usize,
    turn: &Turn,
    is_formatted: bool,
) -> Completion {
    let more = if upcoming == 0 { String::new() } else { format!(" and {upcoming} more") };
    let note = format!(
        "[a person has to allow what comes next: question {}{more}. Say `{CONTINUE}` when the question is decided; any other message gives up what waits for it.]",
        question.map_or("unknown", |asked| &asked.id)
    );
    let mut so_far = completion(turn, &|tool| client.name_of(tool), is_formatted);
    if is_formatted {
        return Completion { text: note, stop: Stop::Refused, citations: Vec::new(), ..so_far };
    }
    // Writing to a string cannot fail.
    let _ = write!(so_far.text, "{}{note}", if so_far.text.is_empty() { "" } else { REPLY_SEPARATOR });
    so_far
}

/// Joins the model's replies into one text for the client; a withheld reply is replaced by a note that names the
/// rules that withheld it.
pub(super) fn joined_text(replies: &[ModelReply]) -> String {
    joined_replies(replies).0
}

/// Joins the model's replies as [`joined_text`] does. Also returns the cited pieces, with their positions in the joined
/// text.
fn joined_replies(replies: &[ModelReply]) -> (String, Vec<CitedPiece>) {
    let (mut text, mut cited) = (String::new(), Vec::new());
    for reply in replies {
        let part = shown_text(reply);
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{}{part}", if text.is_empty() { "" } else { REPLY_SEPARATOR });
        // Where the reply begins in the joined text.
        let before = text.len() - part.len();
        cited.extend(reply.citations.iter().map(|piece| CitedPiece {
            start: before + piece.start,
            end: before + piece.end,
            citations: piece.citations.clone(),
        }));
    }
    (text, cited)
}

/// Returns a text of the model as the client receives it: the text itself, or a note that names the rules that withhold
/// it.
fn shown_text(reply: &ModelReply) -> String {
    match reply.withheld.as_slice() {
        [] => reply.text.clone(),
        rules => format!("[withheld by a rule: {}]", rules.join("; ")),
    }
}

/// The separator between two replies of the model in one completion.
pub(super) const REPLY_SEPARATOR: &str = "\n\n";

/// Builds the completion of a turn for the client: its replies, its calls and the readable reasoning. `name_for_client`
/// returns the client's name of a tool.
///
/// The completion shows why a turn ended early. If the clearance of the model's server does not suffice for the next
/// step, a note in the text says so. If a limit was reached, the stop reason is [`Stop::Length`].
///
/// A client that demands a form of the text, such as JSON by a schema (`is_formatted`), receives the last reply alone,
/// because several replies or a note after one do not have the form. A note in place of the last reply is marked as a
/// refusal.
pub(super) fn completion(
    turn: &Turn,
    name_for_client: &dyn Fn(&Tool) -> String,
    is_formatted: bool,
) -> Completion {
    let replies = match turn.replies.split_last() {
        Some((last, _)) if is_formatted => std::slice::from_ref(last),
        _ => turn.replies.as_slice(),
    };
    let (mut text, mut citations) = joined_replies(replies);
    // A rule that withholds a reply puts a note in its place, which does not have the form.
    let mut is_note = is_formatted && replies.iter().any(|reply| !reply.withheld.is_empty());
    if turn.ended == Some(TurnEnd::Clearance) {
        let note = "[the policy does not let the model's server see what the next step needs]";
        if is_formatted {
            (text, is_note) = (String::new(), true);
            citations.clear();
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{note}", if text.is_empty() { "" } else { REPLY_SEPARATOR });
    }
    let to_tool_call = |call: &flowgate_guard::conversation::HandedOverCall| {
        let (id, name, arguments) = (call.id.clone(), name_for_client(&call.tool), call.arguments.clone());
        ToolCall { id, name, arguments }
    };
    let calls: Vec<ToolCall> = turn.calls.iter().map(to_tool_call).collect();
    let stop = match (calls.is_empty(), turn.ended) {
        (false, _) => Stop::Calls,
        (true, _) if is_note => Stop::Refused,
        (true, Some(TurnEnd::Steps | TurnEnd::Full)) => Stop::Length,
        // The stop reason must not be calls if the client receives no calls.
        (true, _) if turn.stop == Stop::Calls => Stop::End,
        (true, _) => turn.stop,
    };
    // The client receives only the readable texts of the reasoning. The seal, which only the model's server can read,
    // stays in the conversation, since no rule can judge it.
    let to_thought =
        |thought: &ModelReply| ReasoningPart { texts: vec![shown_text(thought)], ..ReasoningPart::default() };
    let thoughts = turn.thoughts.iter().map(to_thought).collect();
    Completion { text, calls, thoughts, citations, stop, usage: turn.spent.tokens }
}

/// Gives `calls`, those of an answer in Gemini's form, ids with consecutive numbers. A client may leave out the ids in
/// its next request; the decoder of that request then numbers all calls of the chat, and these ids have to have the
/// same numbers. `messages` is the chat so far. The ids continue after its calls, so that no number is used twice.
pub(super) fn number_calls(calls: &mut [ToolCall], messages: &[Message]) {
    let earlier = messages.iter().flat_map(|message| match message {
        Message::Assistant { calls, .. } => calls.as_slice(),
        _ => &[],
    });
    // The successor of the number in the id of a call; `None` if the id does not have Gemini's form.
    let number_after = |call: &ToolCall| {
        let number = call.id.strip_prefix(generate_content::CALL_ID)?.parse::<u32>().ok()?;
        usize::try_from(number).ok()?.checked_add(1)
    };
    // The first number that is greater than all in use, and at least the number of earlier calls.
    let first = earlier.clone().filter_map(number_after).fold(earlier.count(), usize::max);
    for (number, call) in (first..).zip(calls) {
        call.id = format!("{}{number}", generate_content::CALL_ID);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_numbered_by_their_position() {
        let call =
            |id: &str| ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        let check = |earlier: &[&str], expected: &[&str]| {
            let calls = earlier.iter().map(|id| call(id)).collect();
            let message = Message::Assistant { text: String::new(), calls, thoughts: Vec::new() };
            let mut calls = vec![call("c1-a"), call("c2-a")];
            number_calls(&mut calls, &[message]);
            let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
            assert_eq!(ids, expected, "{earlier:?}");
        };
        check(&[], &["call_0", "call_1"]);
        check(&["call_0", "other"], &["call_2", "call_3"]);
        check(&["call_7", "call_x"], &["call_8", "call_9"]);
    }

    #[test]
    fn a_turn_is_one_message() {
        let reply = |text: &str, withheld: &[&str]| ModelReply {
            text: text.to_owned(),
            label: Vec::new(),
            withheld: withheld.iter().map(|rule| (*rule).to_owned()).collect(),
            disarmed: Vec::new(),
            citations: Vec::new(),
        };
        // The expected text and stop reason: for a client that demands no form of the text, and for one that does.
        let check = |turn: Turn, [any, formatted]: [(&str, Stop); 2]| {
            for (is_formatted, expected) in [(false, any), (true, formatted)] {
                let completion = completion(&turn, &|tool| tool.name.to_string(), is_formatted);
                assert_eq!((completion.text.as_str(), completion.stop), expected);
            }
        };
        check(Turn::default(), [("", Stop::End); 2]);
        let replies = vec![reply("one", &[]), reply("", &["no secrets"]), reply("two", &[])];
        check(
            Turn { replies, ..Turn::default() },
            [("one\n\n[withheld by a rule: no secrets]\n\ntwo", Stop::End), ("two", Stop::End)],
        );
        let withheld = "[withheld by a rule: no secrets]";
        check(
            Turn { replies: vec![reply("", &["no secrets"])], ..Turn::default() },
            [(withheld, Stop::End), (withheld, Stop::Refused)],
        );
        check(Turn { ended: Some(TurnEnd::Steps), ..Turn::default() }, [("", Stop::Length); 2]);
        // The positions of citations are those in the one message.
        let citing = |text: &str, start, end| ModelReply {
            citations: vec![CitedPiece { start, end, citations: Vec::new() }],
            ..reply(text, &[])
        };
        let replies = vec![citing("one", 0, 3), reply("", &["no secrets"]), citing("and two", 4, 7)];
        let (text, cited) = joined_replies(&replies);
        let cited: Vec<&str> = cited.iter().map(|piece| text.get(piece.start..piece.end).unwrap()).collect();
        assert_eq!(cited, ["one", "two"]);
        let (ended, replies) = (Some(TurnEnd::Clearance), vec![reply("{}", &[])]);
        let note = "[the policy does not let the model's server see what the next step needs]";
        check(
            Turn { ended, replies, ..Turn::default() },
            [(&format!("{{}}\n\n{note}"), Stop::End), (note, Stop::Refused)],
        );
    }
}
