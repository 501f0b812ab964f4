//! Defines the watch log, a file of the verdicts of a policy in watch mode, in which verdicts are not enforced.
//! `flowgate hook`, `flowgate mcp` and the gateway append to it, and `flowgate report` reads it.
//!
//! The watch log describes a policy that is not in force yet, so it is not signed, unlike the audit log. A line names
//! the tool and the reasons of the policy. A line has no content of the conversation, except what the message of a rule
//! quotes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flowgate::monitor::{Judgement, Outcome, Reason};
use serde_json::{Value, json};

/// A verdict that was not enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedVerdict {
    /// What was judged.
    pub subject: WatchedSubject,
    /// The tool, as policies name it; `None` for a prompt or a reply, and if it is not known.
    pub tool: Option<String>,
    /// What would have been decided. A text that would have been withheld counts as denied.
    pub outcome: Outcome,
    /// The reason; empty if the outcome is a permission.
    pub reason: String,
}

/// What a watched verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WatchedSubject {
    /// A call of a tool.
    Call,
    /// The output of a tool.
    Output,
    /// A prompt: a message of the user, or another text that the agent puts before its model.
    Prompt,
    /// A reply of the model.
    Reply,
    /// The description of a tool.
    Description,
}

impl WatchedSubject {
    /// All subjects, for the search by name.
    const ALL: [Self; 5] = [Self::Call, Self::Output, Self::Prompt, Self::Reply, Self::Description];

    /// Returns the name in the file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Output => "output",
            Self::Prompt => "prompt",
            Self::Reply => "reply",
            Self::Description => "description",
        }
    }
}

impl WatchedVerdict {
    /// Returns the verdict on a call of `tool`, with the reasons of the policy unless it permits the call.
    pub fn of_call(tool: &str, judgement: &Judgement) -> Self {
        let outcome = judgement.outcome();
        let reason = match outcome {
            Outcome::Permit => String::new(),
            Outcome::Confirm => format!("the policy asks: {}", describe_reasons(&judgement.reasons)),
            Outcome::Deny => format!("the policy denies this call: {}", describe_reasons(&judgement.reasons)),
        };
        Self { subject: WatchedSubject::Call, tool: Some(tool.to_owned()), outcome, reason }
    }

    /// Returns the verdict on a text: a denial if there is an objection, otherwise a permission. `objection` is the
    /// reason why the text would have been withheld; `tool` is the tool that it belongs to.
    pub fn of_text(subject: WatchedSubject, tool: Option<&str>, objection: Option<&str>) -> Self {
        let outcome = if objection.is_some() { Outcome::Deny } else { Outcome::Permit };
        let reason = objection.unwrap_or_default().to_owned();
        Self { subject, tool: tool.map(str::to_owned), outcome, reason }
    }

    /// Returns the line of the file for this verdict, without a line break. `time` is in seconds since 1970.
    pub fn to_line(&self, time: u64) -> String {
        let line = json!({
            "time": time,
            "subject": self.subject.name(),
            "tool": self.tool,
            "outcome": self.outcome.name(),
            "reason": self.reason,
        });
        line.to_string()
    }

    /// Parses a line of the file. Returns the time, in seconds since 1970, and the verdict. A verdict without a tool is
    /// valid, since a prompt or a reply has none.
    ///
    /// # Errors
    /// If the line is not JSON, or a field other than `tool` is missing or invalid; the message names the field.
    pub fn parse(line: &str) -> Result<(u64, Self), String> {
        let value: Value = serde_json::from_str(line).map_err(|error| {
            format!("the line is not valid JSON: {error}; give a file that is a watch log")
        })?;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let subject = WatchedSubject::ALL.into_iter().find(|subject| text("subject") == Some(subject.name()));
        let outcomes = [Outcome::Permit, Outcome::Confirm, Outcome::Deny];
        let outcome = outcomes.into_iter().find(|outcome| text("outcome") == Some(outcome.name()));
        let time = value.get("time").and_then(Value::as_u64).ok_or(
            "the field `time` of the line must be a whole number of seconds since 1970; give a file that is a watch log",
        )?;
        let verdict = Self {
            subject: subject
                .ok_or("the field `subject` of the line must be `call`, `output`, `prompt`, `reply` or `description`; give a file that is a watch log")?,
            tool: text("tool").map(str::to_owned),
            outcome: outcome.ok_or("the field `outcome` of the line must be `permit`, `confirm` or `deny`; give a file that is a watch log")?,
            reason: text("reason").ok_or("the field `reason` of the line must be a string; give a file that is a watch log")?.to_owned(),
        };
        Ok((time, verdict))
    }
}

/// Joins the messages of reasons with semicolons. A message that equals the previous one is omitted, since several
/// statements of a policy can object in the same words.
pub fn describe_reasons(reasons: &[Reason]) -> String {
    let mut messages: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
    messages.dedup();
    messages.join("; ")
}

/// The file of watched verdicts.
#[derive(Debug, Clone)]
pub struct WatchLog {
    path: PathBuf,
}

impl WatchLog {
    /// Returns the log in the file `path`, which the first verdict creates.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the log in the file `path`, after checking that verdicts can be appended to the file. Creates the file
    /// if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let log = Self::new(path);
        log.open_file()?;
        Ok(log)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends verdicts to the file, with the current time, each as one line of JSON.
    ///
    /// # Errors
    /// If the file cannot be written; the message names it.
    pub fn append(&self, verdicts: &[WatchedVerdict]) -> Result<(), String> {
        if verdicts.is_empty() {
            return Ok(());
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let lines: String = verdicts.iter().map(|verdict| verdict.to_line(time) + "\n").collect();
        // One write, so that the lines of programs that run at the same time do not mix.
        let written = self.open_file().and_then(|mut file| file.write_all(lines.as_bytes()));
        written.map_err(|error| {
            format!(
                "{}: the verdict cannot be recorded: {error}; make the file and its folder writable",
                self.path.display()
            )
        })
    }

    /// Opens the file to append to it. A new file is readable and writable only by its owner (on Unix).
    fn open_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.create(true).append(true).open(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verdict whose reason has a quotation mark and a line break, which a line of the file must escape.
    fn verdict() -> WatchedVerdict {
        WatchedVerdict {
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
        let log = WatchLog::open(&path).unwrap();
        let prompt = WatchedVerdict { subject: WatchedSubject::Prompt, tool: None, ..verdict() };
        let tool = WatchedVerdict::of_text(WatchedSubject::Description, Some("mail/send"), Some("changed"));
        log.append(&[verdict(), prompt.clone()]).unwrap();
        log.append(std::slice::from_ref(&tool)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let read: Vec<_> = text.lines().map(|line| WatchedVerdict::parse(line).unwrap().1).collect();
        assert_eq!(read, [verdict(), prompt, tool]);
        assert_eq!(WatchedVerdict::parse(&verdict().to_line(7)), Ok((7, verdict())));
    }

    #[test]
    fn a_line_of_another_form_names_the_field() {
        let check = |line: &str, expected: &str| {
            let error = WatchedVerdict::parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        };
        check("{", "not valid JSON");
        check("{}", "`time`");
        check(
            r#"{"time": 1, "subject": "thought"}"#,
            "`subject` of the line must be `call`, `output`, `prompt`",
        );
        check(r#"{"time": 1, "subject": "call", "outcome": "maybe"}"#, "`outcome` of the line must be");
        check(r#"{"time": 1, "subject": "call", "outcome": "deny"}"#, "`reason`");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let nowhere = Path::new("/no/such/folder/x");
        assert_eq!(WatchLog::open(nowhere).unwrap_err().kind(), io::ErrorKind::NotFound);
        let error = WatchLog::new(nowhere).append(&[verdict()]).unwrap_err();
        assert!(error.starts_with("/no/such/folder/x: the verdict cannot be recorded: "), "{error}");
    }
}
