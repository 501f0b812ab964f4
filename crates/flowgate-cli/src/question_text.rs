//! Writes a question of a gateway as text for a terminal, with the same parts and words as the gateway's page for
//! people: what the call would do, why a person is asked, what would be sent, and which text influenced the call.
//! `flowgate approvals` and `flowgate explain --question` print it.
//!
//! Every text in a question may be untrusted, so each passes [`escaping`].

use serde_json::Value;

use crate::escaping;
use crate::output::{Console, plural};

/// The most characters of an excerpt that are shown.
const MAX_EXCERPT: usize = 2_000;
/// The most lines of one value that are shown.
const MAX_LINES: usize = 200;

/// Returns what became of a question: its state in words, and who decided it.
pub(crate) fn outcome(question: &Value) -> String {
    let words = match text(question, "state") {
        "allowed" => "allowed",
        "denied" => "denied",
        "used" => "allowed, and the call was sent",
        "expired" => "expired: nobody decided in time, or the answer was not used in time",
        "void" => {
            "void: the conversation continued without the answer, or what the question is about has changed"
        }
        other => other,
    };
    let approved_by = names(question, "approved_by");
    if matches!(text(question, "state"), "allowed" | "used") && !approved_by.is_empty() {
        // Nothing to escape: the names are escaped already, and `words` is one of the texts above.
        return format!("{words}, approved by {}", approved_by.join(", "));
    }
    let by = question.get("decided_by").and_then(Value::as_str);
    let is_lasting = question.get("lasting_grant").is_some_and(|grant| !grant.is_null());
    let said = match (by, is_lasting) {
        (Some(by), true) => format!("{words}, by a lasting grant of {by}"),
        (Some(by), false) => format!("{words}, decided by {by}"),
        (None, _) => words.to_owned(),
    };
    escaping::line(&said)
}

/// Returns the people who must all approve a question, escaped; none if the approval of any person suffices.
pub(crate) fn approvers(question: &Value) -> Vec<String> {
    names(question, "approvers")
}

/// Returns the [`approvers`] who have not approved the question yet.
pub(crate) fn missing_approvers(question: &Value) -> Vec<String> {
    let approved_by = names(question, "approved_by");
    approvers(question).into_iter().filter(|name| !approved_by.contains(name)).collect()
}

/// Returns a sentence for an open question that certain people must all approve: who has approved it, and whose
/// approval it waits for. Returns `None` for every other question.
pub(crate) fn approvals(question: &Value) -> Option<String> {
    let (approved_by, missing) = (names(question, "approved_by"), missing_approvers(question).join(", "));
    if text(question, "state") != "open" || missing.is_empty() {
        return None;
    }
    Some(match approved_by.is_empty() {
        true => format!("waits for the approval of {missing}"),
        false => format!("approved by {}, waits for the approval of {missing}", approved_by.join(", ")),
    })
}

/// Returns the names of the arguments whose sum in a day a lasting grant can limit, escaped.
pub(crate) fn amounts(question: &Value) -> Vec<String> {
    names(question, "grant_amounts")
}

/// Returns the texts in a list of a question, escaped.
pub(crate) fn names(question: &Value, list: &str) -> Vec<String> {
    let items = question.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(escaping::line).collect()
}

/// Returns a question in one line: its id, the tool, the client that asks, and its conversation.
pub(crate) fn title(question: &Value) -> String {
    let call = question.get("call").unwrap_or(&Value::Null);
    escaping::line(&format!(
        "{}  {}  asked by {}, conversation {}",
        text(question, "id"),
        text(call, "tool"),
        text(question, "client"),
        text(question, "conversation")
    ))
}

/// Prints a question with all its parts. `now` is the time in milliseconds since 1970; the minutes that are left for an
/// answer are counted from it.
pub(crate) fn print(question: &Value, now: u64, output: &mut Console) {
    let call = question.get("call").unwrap_or(&Value::Null);
    let heading = format!("{} wants to call {}", text(question, "client"), text(call, "tool"));
    let heading = output.paint("1", &escaping::line(&heading));
    output.line(&heading);
    let summary = text(call, "summary");
    if !summary.is_empty() {
        output.line(&escaping::line(summary));
    }
    print_list("why you are asked", call.get("reasons"), output);
    output.line("what would be sent:");
    print_arguments(call.get("arguments").unwrap_or(&Value::Null), output);
    let label = words(call.get("label"));
    if !label.is_empty() {
        output.line(&format!("the call carries {}", escaping::line(&label)));
    }
    print_excerpts(call, output);
    print_list("where the values were found", call.get("evidence"), output);
    let place = format!(
        "question {}, conversation {}, tenant {}",
        text(question, "id"),
        text(question, "conversation"),
        text(question, "tenant")
    );
    let place = escaping::line(&place);
    let is_open = text(question, "state") == "open";
    let state_line = if is_open {
        let expires = question.get("expires").and_then(Value::as_u64).unwrap_or_default();
        let minutes = expires.saturating_sub(now).div_ceil(60_000);
        format!("{place}; open for another {}", plural(minutes, "minute"))
    } else {
        format!("{place}; {}", outcome(question))
    };
    let state_line = output.paint("2", &state_line);
    output.line(&state_line);
    if let Some(approvals) = approvals(question) {
        output.line(&approvals);
    }
    if is_open {
        let has = |name: &str| question.get(name).is_some_and(|value| *value == Value::Bool(true));
        // In the second case, certain people must all approve, and this person, who may decide, is none of them.
        let approval = if has("you_have_approved") {
            "you have approved it; "
        } else if !approvers(question).is_empty() && has("you_may_decide") && !has("you_may_allow") {
            "your approval does not count; "
        } else {
            ""
        };
        output.line(&format!("{approval}you may {}", answers(question)));
    }
}

/// Prints the excerpts of a call: the texts that may have led to it, each with its source and its label.
fn print_excerpts(call: &Value, output: &mut Console) {
    let excerpts = call.get("excerpts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !excerpts.is_empty() {
        output.line("text that had a hand in it:");
    }
    for excerpt in excerpts {
        let label = words(excerpt.get("label"));
        // A question of an older gateway has no source.
        let (place, source) = (text(excerpt, "place"), text(excerpt, "source"));
        let from = if source.is_empty() { place.to_owned() } else { format!("{source}, {place}") };
        output.line(&format!("  from {} ({})", escaping::line(&from), escaping::line(&label)));
        print_block(text(excerpt, "text"), output);
    }
}

/// Returns what the person whose key is used may answer to a question, such as `allow it once, deny it`. A person who
/// may answer nothing gets `not decide it`.
pub(crate) fn answers(question: &Value) -> String {
    let may = |name: &str| question.get(name).is_some_and(|value| *value == Value::Bool(true));
    let mut answers = Vec::new();
    if may("you_may_allow") {
        answers.push("allow it once".to_owned());
    }
    if may("you_may_grant") {
        answers.push("allow equal calls of the conversation".to_owned());
    }
    // A lasting grant lasts for at most the time `longest`, which is a text of the gateway such as `always`.
    if let Some(longest) = question.get("you_may_grant_for").and_then(Value::as_str) {
        let longest = escaping::line(longest);
        let sum = match amounts(question) {
            names if names.is_empty() => String::new(),
            names => format!("; a sum a day can limit {}", names.join(", ")),
        };
        answers.push(format!("allow equal calls from now on ({longest}{sum})"));
    }
    if may("you_may_decide") {
        answers.push("deny it".to_owned());
    }
    match answers.is_empty() {
        true => "not decide it".to_owned(),
        false => answers.join(", "),
    }
}

/// Returns a text field of a JSON object; empty if the field is absent or no text.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Joins a JSON list of texts with commas, or returns one text unchanged; empty for any other value.
fn words(value: Option<&Value>) -> String {
    match value {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Prints a title and, below it, each text of a JSON list on one line. Prints nothing if the list is absent or empty.
fn print_list(title: &str, items: Option<&Value>, output: &mut Console) {
    let items = items.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return;
    }
    output.line(&format!("{title}:"));
    for item in items.iter().filter_map(Value::as_str) {
        output.line(&format!("  - {}", escaping::line(item)));
    }
}

/// Prints the arguments of a call: each name with its value below it. If `arguments` is a text, it says that the person
/// may not read the arguments, and is printed alone. Any other value that is not an object is printed as JSON.
pub(crate) fn print_arguments(arguments: &Value, output: &mut Console) {
    let Value::Object(arguments) = arguments else {
        let shown = arguments.as_str().map_or_else(|| escaping::json(arguments), escaping::line);
        output.line(&format!("  {shown}"));
        return;
    };
    if arguments.is_empty() {
        output.line("  no arguments");
    }
    for (name, value) in arguments {
        output.line(&format!("  {}:", escaping::line(name)));
        match value.as_str() {
            Some(text) => print_block(text, output),
            None => print_escaped_block(&escaping::json(value), output),
        }
    }
}

/// Prints a text, escaped and with each line behind a bar: no line of it can pass for a line of the program. A text
/// longer than [`MAX_EXCERPT`] is cut, which a last line `[…]` shows.
fn print_block(text: &str, output: &mut Console) {
    let cut: String = text.chars().take(MAX_EXCERPT).collect();
    let is_cut = cut.len() < text.len();
    print_escaped_block(&escaping::multiline(&cut), output);
    if is_cut {
        output.line("    │ […]");
    }
}

/// Prints a text that is escaped already, each line behind a bar. If there are more than [`MAX_LINES`] lines, `[…]`
/// replaces the rest.
fn print_escaped_block(text: &str, output: &mut Console) {
    for line in text.lines().take(MAX_LINES) {
        output.line(&format!("    │ {line}"));
    }
    if text.lines().nth(MAX_LINES).is_some() {
        output.line("    │ […]");
    }
}
