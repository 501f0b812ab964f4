//! Defines [`HookAnswer`], the answer of `flowgate hook` to an event, and formats it for Claude Code: JSON on the
//! standard output, or nothing if Claude Code's own permissions decide. [`super::harness`] formats it for other agents.

use flowgate::monitor::{Monitor, Outcome, Verdict};
use flowgate_audit::watch::describe_reasons;
use serde_json::{Map, Value, json};

use super::{HookEvent, decision};
use crate::escaping;

/// The longest reason, in characters.
const MAX_REASON: usize = 1_000;
/// The replacement of a withheld text.
const WITHHELD: &str = "[withheld by flowgate]";
/// The values of a field `type` that determine the shape of an output for Claude Code. A replacement keeps them, since
/// Claude Code rejects a replacement of another shape, and then uses the original output.
const SHAPES: [&str; 8] = ["text", "image", "notebook", "pdf", "parts", "create", "update", "resource"];

/// An answer to a coding agent.
#[derive(Debug)]
pub(super) enum HookAnswer {
    /// The outcome of judging a call, the reason, and the evidence: sentences for the approver that state where the
    /// values of the call occur. The evidence is empty unless the outcome is a question. It is displayed and not
    /// logged.
    Call(Outcome, String, Vec<String>),
    /// There is no objection to an output or a prompt, or the event is not judged.
    Nothing,
    /// An output or a prompt is blocked for this reason. The last field is what the model receives in place of an
    /// output; `None` for a prompt, and for agents that receive the reason in place of the output.
    Stop(HookEvent, String, Option<Value>),
}

impl HookAnswer {
    /// Returns the answer to a proposed call that `monitor` has judged: the outcome, with the reasons in words.
    pub(super) fn from_verdict(verdict: &Verdict, monitor: &Monitor) -> Self {
        let judgement = verdict.judgement();
        let outcome = judgement.outcome();
        let evidence = match verdict {
            Verdict::Confirm(question) => monitor.question_evidence(question),
            _ => Vec::new(),
        };
        let reason = match outcome {
            Outcome::Permit => "the policy permits this call".to_owned(),
            Outcome::Confirm => format!("the policy asks: {}", describe_reasons(&judgement.reasons)),
            Outcome::Deny => format!("the policy denies this call: {}", describe_reasons(&judgement.reasons)),
        };
        Self::Call(outcome, reason, evidence)
    }

    /// Returns the answer for an output or a prompt. `objections` says why the model must not receive the text; `None`
    /// if it may. The replacement of a blocked output is added by [`with_replacement`](Self::with_replacement).
    pub(super) fn from_objections(event: HookEvent, objections: Option<String>) -> Self {
        objections.map_or(Self::Nothing, |why| Self::Stop(event, why, None))
    }

    /// Returns the refusal of an event that could not be judged; `why` is the reason. The replacement of a refused
    /// output is added by [`with_replacement`](Self::with_replacement).
    pub(super) fn from_failure(event: HookEvent, why: &str) -> Self {
        let reason = format!("Flowgate could not judge this event and therefore refuses it: {why}");
        match event {
            HookEvent::PreToolUse => Self::Call(Outcome::Deny, reason, Vec::new()),
            HookEvent::PostToolUse | HookEvent::UserPromptSubmit => Self::Stop(event, reason, None),
        }
    }

    /// Turns a question for a person into a denial. `why` says why no person can be asked. Other answers stay as they
    /// are.
    pub(super) fn deny_question(self, why: &str) -> Self {
        match self {
            Self::Call(Outcome::Confirm, asked, _) => {
                Self::Call(Outcome::Deny, format!("{asked}; {why}, so the call is denied"), Vec::new())
            }
            other => other,
        }
    }

    /// Adds to a blocked output what the model receives in its place. `response` is the output; its replacement has the
    /// same shape, without the content. Other answers stay as they are.
    pub(super) fn with_replacement(self, response: Option<&Value>) -> Self {
        match self {
            // The empty key: the output is no field of another value.
            Self::Stop(event, why, _) => Self::Stop(event, why, response.map(|value| withhold(value, ""))),
            other => other,
        }
    }

    /// Returns the outcome and its reason, which is empty if nothing is stopped. A blocked text is a denial.
    pub(super) fn outcome(&self) -> (Outcome, String) {
        match self {
            Self::Nothing | Self::Call(Outcome::Permit, ..) => (Outcome::Permit, String::new()),
            Self::Call(outcome, why, _) => (*outcome, why.clone()),
            Self::Stop(_, why, _) => (Outcome::Deny, why.clone()),
        }
    }

    /// Returns the line of JSON that the caller prints for Claude Code. `None` if nothing is to be printed: there is no
    /// objection to an output or a prompt, the event is not judged, or Claude Code's own permissions decide about a
    /// permitted call. With `allow`, they do not decide: the line for a permitted call says `allow`.
    pub(super) fn print(&self, allow: bool) -> Option<String> {
        let line = match self {
            // Without a decision, Claude Code's own permissions apply.
            Self::Call(Outcome::Permit, ..) if !allow => return None,
            Self::Nothing => return None,
            Self::Call(outcome, why, evidence) => json!({"hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": decision(*outcome),
                "permissionDecisionReason": question_text(why, evidence),
            }}),
            Self::Stop(HookEvent::PostToolUse, why, replacement) => {
                let mut line = json!({"decision": "block", "reason": reason_text(why)});
                if let (Some(map), Some(replacement)) = (line.as_object_mut(), replacement) {
                    // `decision` alone would only add the reason to what the model is shown. Older versions of Claude
                    // Code know only `updatedMCPToolOutput`, which applies to tools of MCP servers.
                    map.insert(
                        "hookSpecificOutput".to_owned(),
                        json!({
                            "hookEventName": "PostToolUse",
                            "updatedMCPToolOutput": replacement,
                            "updatedToolOutput": replacement,
                        }),
                    );
                }
                line
            }
            // A blocked prompt.
            Self::Stop(_, why, _) => json!({"decision": "block", "reason": reason_text(why)}),
        };
        Some(line.to_string())
    }
}

/// Returns a reason as the agent receives it: one line of bounded length that names its author.
pub(super) fn reason_text(why: &str) -> String {
    format!("flowgate: {}", escaping::excerpt(why, MAX_REASON))
}

/// Formats a question for the approver: the reason, followed by the evidence if there is any. The text is limited as in
/// [`reason_text`].
pub(super) fn question_text(why: &str, evidence: &[String]) -> String {
    match evidence {
        [] => reason_text(why),
        evidence => reason_text(&format!("{why}. What is known: {}", evidence.join(" "))),
    }
}

/// Converts an output to the form in which rules examine it. A text and a list of content blocks (objects with a
/// `type`) stay as they are; of another value, each key, string and number becomes a block of text. A Boolean value or
/// null has no text.
pub(super) fn content(response: Value) -> Value {
    let is_block = |block: &Value| block.get("type").is_some_and(Value::is_string);
    match response {
        Value::String(_) => response,
        Value::Array(ref blocks) if !blocks.is_empty() && blocks.iter().all(is_block) => response,
        other => {
            let mut texts = Vec::new();
            collect_texts(&other, &mut texts);
            texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()
        }
    }
}

/// Adds all texts of a value to `texts`: keys, strings and numbers.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                texts.push(key.clone());
                collect_texts(value, texts);
            }
        }
        Value::Number(number) => texts.push(number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns the replacement of `value`, which is an output or a part of one: a value of the same shape without the
/// content, since Claude Code rejects a replacement of another shape. `key` is the name of the field that has the
/// value: a word of [`SHAPES`] in a field `type` is kept, because it determines the shape. Of a list, only the first
/// item is kept, also without content.
fn withhold(value: &Value, key: &str) -> Value {
    match value {
        Value::String(word) if key == "type" && SHAPES.contains(&word.as_str()) => value.clone(),
        Value::String(_) => WITHHELD.into(),
        Value::Number(_) => 0.into(),
        Value::Bool(_) => false.into(),
        Value::Null => Value::Null,
        Value::Array(items) => items.iter().take(1).map(|item| withhold(item, key)).collect(),
        Value::Object(fields) => {
            let withheld_fields = fields.iter().map(|(name, value)| (name.clone(), withhold(value, name)));
            Value::Object(withheld_fields.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withheld_value_keeps_its_shape_without_content() {
        let check = |value: Value, expected: Value| assert_eq!(withhold(&value, ""), expected);
        check(
            json!({"stdout": "secret", "stderr": "", "interrupted": true, "lines": 7, "rest": null}),
            json!({"stdout": WITHHELD, "stderr": WITHHELD, "interrupted": false, "lines": 0, "rest": null}),
        );
        check(
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            json!([{"type": "text", "text": WITHHELD}]),
        );
        check(json!({"type": "secret"}), json!({"type": WITHHELD}));
        check(json!("secret"), json!(WITHHELD));
    }

    #[test]
    fn rules_see_every_text_of_an_output() {
        let check = |value: Value, expected: Value| assert_eq!(content(value), expected);
        check(json!("plain"), json!("plain"));
        check(json!([{"type": "text", "text": "a"}]), json!([{"type": "text", "text": "a"}]));
        check(
            json!({"file": {"content": "a"}}),
            json!([{"type": "text", "text": "file"}, {"type": "text", "text": "content"}, {"type": "text", "text": "a"}]),
        );
    }
}
