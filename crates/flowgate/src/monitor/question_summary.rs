//! Writes the summary of a question for the person who is asked whether a call may run: what the call would do, which
//! text may have chosen it, and what it would disclose. The programs that ask people call [`Question::summary`].
//!
//! The summary follows from the [roles](ArgumentRole) of the arguments and from the reasons of the verdict. It quotes
//! values of arguments, and so carries the label of the question.

use serde_json::Value;

use super::argument_path::argument_in;
use super::{Question, Reason, ReasonKind};
use crate::policy::diagnostic::one_line;
use crate::policy::{ArgumentRole, Policy};
use crate::trace::Call;

/// The most characters of a value that the summary quotes.
const QUOTED: usize = 80;

impl Question {
    /// Returns a few sentences for the person who decides: what the call would do, which text may have chosen its
    /// values, what it would disclose, the messages of rules that ask, and whose approval it needs. The sentences quote
    /// arguments.
    pub fn summary(&self, policy: &Policy) -> String {
        let Some(call) = self.call() else { return String::new() };
        let reasons = &self.judgement().reasons;
        let sentences =
            [effects(policy, call), influences(policy, call, reasons), disclosures(policy, call, reasons)];
        let rules = reasons.iter().filter(|reason| reason.kind == ReasonKind::Rule);
        let rules = distinct(rules.map(|reason| {
            // The author of the policy may have ended the message like a sentence.
            let end = if reason.message.ends_with(['.', '!', '?']) { "" } else { "." };
            format!("A rule of the policy asks: {}{end}", reason.message)
        }));
        let approvers: Vec<String> =
            self.approvers().iter().map(|name| format!("`{}`", escaped(name))).collect();
        let approvers = enumerate(&approvers).map(|names| format!("It needs the approval of {names}."));
        sentences.into_iter().flatten().chain(rules).chain(approvers).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a sentence that says what the call does, by the roles of its arguments, in the order of the roles; `None`
/// if no argument has a role that the sentence names, or if the arguments are invalid.
fn effects(policy: &Policy, call: &Call) -> Option<String> {
    let arguments = call.arguments.as_ref().ok()?;
    let mut clauses: Vec<(ArgumentRole, String)> = Vec::new();
    for (name, value) in arguments {
        let Some(role) = policy.argument_role(&call.tool, name) else { continue };
        let value = quote(value);
        let clause = match role {
            ArgumentRole::Recipient => format!("sends to {value}"),
            ArgumentRole::Account => format!("uses the account {value}"),
            ArgumentRole::Amount => format!("has the amount {value}"),
            ArgumentRole::Url => format!("opens {value}"),
            ArgumentRole::Path => format!("reads or writes {value}"),
            ArgumentRole::Code => format!("runs {value}"),
            ArgumentRole::Credential => format!("uses the credential in `{}`", escaped(name)),
            ArgumentRole::Selector => format!("acts on {value}"),
            ArgumentRole::Content => continue,
        };
        clauses.push((role, clause));
    }
    clauses.sort_by_key(|(role, _)| *role);
    let clauses: Vec<String> = clauses.into_iter().map(|(_, clause)| clause).collect();
    Some(format!("This call of {} {}.", call.tool, enumerate(&clauses)?))
}

/// Returns a sentence that says what untrusted text may have done: led to the call, or chosen some of its arguments.
/// `reasons` are the reasons of the verdict; `None` if none of them is about integrity.
fn influences(policy: &Policy, call: &Call, reasons: &[Reason]) -> Option<String> {
    // `label` has a text for each exceeded dimension. The texts about confidentiality are also in `categories`, so the
    // others are about integrity.
    let is_about_integrity =
        |reason: &&Reason| reason.label.iter().any(|phrase| !reason.categories.contains(phrase));
    let reasons: Vec<&Reason> =
        reasons.iter().filter(|reason| is_excess(reason)).filter(is_about_integrity).collect();
    let labels = reasons
        .iter()
        .flat_map(|reason| reason.label.iter().filter(|phrase| !reason.categories.contains(phrase)));
    let labels = enumerate(&distinct(labels.cloned()))?;
    let parts = enumerate(&distinct(reasons.iter().filter_map(|reason| argument_name(policy, call, reason))));
    let may_have_led = "may have led to this call";
    Some(match (reasons.iter().any(|reason| is_about_decision(reason)), parts) {
        (true, Some(parts)) => format!("Text that is {labels} {may_have_led}, and may have chosen {parts}."),
        // If no argument can be named, the reason is taken as one about the decision to call.
        (_, None) => format!("Text that is {labels} {may_have_led}."),
        (false, Some(parts)) => format!("Text that is {labels} may have chosen {parts}."),
    })
}

/// Returns a sentence that says which kinds of confidential text the call would disclose, and by which parts. `reasons`
/// are the reasons of the verdict. `None` if they name no such text, or no part.
fn disclosures(policy: &Policy, call: &Call, reasons: &[Reason]) -> Option<String> {
    // The categories of a reason describe its label in the dimensions of confidentiality.
    let reasons: Vec<&Reason> =
        reasons.iter().filter(|reason| is_excess(reason) && !reason.categories.is_empty()).collect();
    let labels = enumerate(&distinct(reasons.iter().flat_map(|reason| reason.categories.iter().cloned())))?;
    let mut parts = distinct(reasons.iter().filter_map(|reason| argument_name(policy, call, reason)));
    if reasons.iter().any(|reason| is_about_decision(reason)) {
        parts.push("the fact that it is made".to_owned());
    }
    Some(format!("It would disclose what is {labels}, by {}.", enumerate(&parts)?))
}

/// Returns whether a reason says that a part of the call exceeds a requirement.
fn is_excess(reason: &Reason) -> bool {
    matches!(reason.kind, ReasonKind::Requirement | ReasonKind::Undeclared)
}

/// Returns whether a reason is about the decision to make the call, and not about an argument.
fn is_about_decision(reason: &Reason) -> bool {
    reason.part.as_deref().is_some_and(|part| argument_of(part).is_none())
}

/// Returns the words for the argument, or the part of one, that a reason is about: its role, if it has one, and its
/// printed path. `None` if the reason is not about an argument of the call.
fn argument_name(policy: &Policy, call: &Call, reason: &Reason) -> Option<String> {
    let part = reason.part.as_deref()?;
    // `argument` is the part as it is printed, such as `to[0]`, and `name` the argument that it is in, such as `to`.
    let (argument, name) = (argument_of(part)?, argument_in(call, part)?);
    let argument = escaped(argument);
    // The role is left out if the argument is named like it.
    Some(match policy.argument_role(&call.tool, name) {
        Some(role) if role.name() != name => format!("the {role} (`{argument}`)"),
        _ => format!("`{argument}`"),
    })
}

/// Returns the path of an argument within the arguments, such as `to` or `["odd name"]`, if the part of a reason is an
/// argument.
fn argument_of(part: &str) -> Option<&str> {
    let path = part.strip_prefix("arguments")?;
    path.strip_prefix('.').or_else(|| path.starts_with('[').then_some(path))
}

/// Returns a value as JSON on one line. Of a value longer than [`QUOTED`] characters, returns only the beginning, with
/// the length of the value.
fn quote(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => {
            let beginning = one_line(text.get(..end).unwrap_or_default().to_owned());
            format!("{beginning}... ({} characters)", text.chars().count())
        }
        None => one_line(text),
    }
}

/// Returns the name of an argument, which the model may have chosen, for quotation in backquotes: on one line, of at
/// most [`QUOTED`] characters, and with `'` in place of a backquote.
fn escaped(name: &str) -> String {
    one_line(name.chars().take(QUOTED).collect()).replace('`', "'")
}

/// Joins phrases to "a, b and c"; `None` if there are none.
fn enumerate(phrases: &[String]) -> Option<String> {
    match phrases {
        [] => None,
        [one] => Some(one.clone()),
        [all @ .., last] => Some(format!("{} and {last}", all.join(", "))),
    }
}

/// Returns the phrases without repetitions, each at its first position.
fn distinct(phrases: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for phrase in phrases {
        if !distinct.contains(&phrase) {
            distinct.push(phrase);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::monitor::{Monitor, Verdict};
    use crate::trace::{Tool, TraceEntry};

    const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private
role call.arguments.whom is recipient if:
    (call: ToolCall) is tool:mail
role call.arguments.sum is amount if:
    (call: ToolCall) is tool:pay
require trusted, private if:
    (call: ToolCall) is tool:pay
require trusted, private if:
    (call: ToolCall) is tool:now
require untrusted, public if:
    (call: ToolCall) is tool:post
require top if:
    (call: ToolCall) is tool:noted
ask "is the day right?" if:
    (call: ToolCall) is tool:noted
"#;

    #[test]
    fn a_question_says_what_would_happen_and_why_it_is_asked() {
        let long = "x".repeat(200);
        for (name, arguments, expected) in [
            (
                "mail",
                r#"{"whom": "ann@example.org", "text": "hi"}"#.to_owned(),
                "This call of mail sends to \"ann@example.org\". Text that is untrusted may have led to this call, and may have chosen \
                 the recipient (`whom`) and the content (`text`). It would disclose what is private, by the recipient (`whom`), the \
                 content (`text`) and the fact that it is made."
                    .to_owned(),
            ),
            (
                "pay",
                r#"{"sum": 50, "iban": "DE1", "day": "2024-05-19"}"#.to_owned(),
                "This call of pay uses the account \"DE1\" and has the amount 50. Text that is untrusted may have led to this call, and \
                 may have chosen the amount (`sum`), the account (`iban`) and `day`."
                    .to_owned(),
            ),
            (
                "pay",
                r#"{"event_id": "7", "attachments": "/a", "token": "s3cr3t", "guests": "bob"}"#.to_owned(),
                "This call of pay sends to \"bob\", reads or writes \"/a\", uses the credential in `token` and acts on \"7\". Text that \
                 is untrusted may have led to this call, and may have chosen the selector (`event_id`), the path (`attachments`), the \
                 credential (`token`) and the recipient (`guests`)."
                    .to_owned(),
            ),
            (
                "post",
                r#"{"url": "https://example.org", "n": 1}"#.to_owned(),
                "This call of post opens \"https://example.org\". It would disclose what is private, by `url`, `n` and the fact that it is \
                 made."
                    .to_owned(),
            ),
            (
                "noted",
                format!(r#"{{"command": "{long}"}}"#),
                format!("This call of noted runs \"{}... (202 characters). A rule of the policy asks: is the day right?", "x".repeat(79)),
            ),
            (
                "log",
                r#"{"to": "a\u202eb", "x`\u2028y": 1}"#.to_owned(),
                "This call of log sends to \"a\\u{202e}b\". Text that is untrusted may have led to this call, and may have chosen the \
                 recipient (`to`) and `[\"x'\\u{2028}y\"]`. It would disclose what is private, by the recipient (`to`), \
                 `[\"x'\\u{2028}y\"]` and the fact that it is made."
                    .to_owned(),
            ),
            ("now", "{}".to_owned(), "Text that is untrusted may have led to this call.".to_owned()),
        ] {
            let policy = Arc::new(Policy::parse(POLICY).unwrap());
            let mut monitor = Monitor::new(Arc::clone(&policy));
            monitor.push(TraceEntry::user("x")).unwrap();
            let call = Call::from_json("c1", Tool::local(name), &arguments);
            let Verdict::Confirm(question) = monitor.judge(call) else { panic!("{name}") };
            assert_eq!(question.summary(&policy), expected, "{name}");
        }
    }
}
