//! Defines the file of watched decisions: what a guard that stops nothing would have decided. `flowgate hook --watch` appends to it, and
//! `flowgate report` reads it.

use std::io::Write;
use std::path::Path;

use flowgate::monitor::Outcome;
use serde_json::{Value, json};

use crate::private_files;

/// A decision that was not enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchedDecision {
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// What was judged.
    pub(crate) subject: WatchedSubject,
    /// The tool, as policies name it; `None` for a prompt, and if it is not known.
    pub(crate) tool: Option<String>,
    /// What would have been decided. A text that would have been withheld counts as denied.
    pub(crate) outcome: Outcome,
    /// The reason; empty if the outcome is a permission.
    pub(crate) reason: String,
}

/// What a watched decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchedSubject {
    /// A call of a tool.
    Call,
    /// The output of a tool.
    Output,
    /// A prompt of the user.
    Prompt,
}

impl WatchedSubject {
    const ALL: [Self; 3] = [Self::Call, Self::Output, Self::Prompt];

    /// Returns the name in the file and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Output => "output",
            Self::Prompt => "prompt",
        }
    }
}

impl WatchedDecision {
    /// Appends the decision to a file, which is created if necessary, as one line of JSON.
    ///
    /// # Errors
    /// If the file cannot be written; the message names it.
    pub(crate) fn append(&self, path: &Path) -> Result<(), String> {
        let line = json!({
            "time": self.time,
            "subject": self.subject.name(),
            "tool": self.tool,
            "outcome": self.outcome.name(),
            "reason": self.reason,
        });
        // One write, so that the lines of programs that run at the same time do not mix.
        let written = private_files::open_to_append(path)
            .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|error| format!("{}: the decision cannot be recorded: {error}", path.display()))
    }

    /// Parses a line of the file.
    ///
    /// # Errors
    /// If the line is not JSON, or a field is missing or invalid; the message names the field.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("not valid JSON: {error}"))?;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let subject = WatchedSubject::ALL.into_iter().find(|subject| text("subject") == Some(subject.name()));
        let outcomes = [Outcome::Permit, Outcome::Confirm, Outcome::Deny];
        let outcome = outcomes.into_iter().find(|outcome| text("outcome") == Some(outcome.name()));
        Ok(Self {
            time: value.get("time").and_then(Value::as_u64).ok_or("`time` must be a number of seconds")?,
            subject: subject.ok_or("`subject` must be `call`, `output` or `prompt`")?,
            tool: text("tool").map(str::to_owned),
            outcome: outcome.ok_or("`outcome` must be `permit`, `confirm` or `deny`")?,
            reason: text("reason").ok_or("`reason` must be a string")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision() -> WatchedDecision {
        WatchedDecision {
            time: 1_764_000_000,
            subject: WatchedSubject::Call,
            tool: Some("mail/send".to_owned()),
            outcome: Outcome::Confirm,
            reason: "the policy asks: \"who\"\nsays so".to_owned(),
        }
    }

    #[test]
    fn what_is_recorded_is_read() {
        let path = std::env::temp_dir().join(format!("flowgate-watch-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let prompt = WatchedDecision { subject: WatchedSubject::Prompt, tool: None, ..decision() };
        decision().append(&path).unwrap();
        prompt.append(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let read: Vec<_> = text.lines().map(WatchedDecision::parse).collect();
        assert_eq!(read, [Ok(decision()), Ok(prompt)]);
    }

    #[test]
    fn a_line_of_another_form_names_the_field() {
        let check = |line: &str, expected: &str| {
            let error = WatchedDecision::parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        };
        check("{", "not valid JSON");
        check("{}", "`time`");
        check(r#"{"time": 1, "subject": "thought"}"#, "`subject` must be `call`, `output` or `prompt`");
        check(r#"{"time": 1, "subject": "call", "outcome": "maybe"}"#, "`outcome` must be");
        check(r#"{"time": 1, "subject": "call", "outcome": "deny"}"#, "`reason`");
        assert!(
            decision().append(Path::new("/no/such/folder/x")).unwrap_err().contains("cannot be recorded")
        );
    }
}
