//! Stores the events of a session of a coding agent whose transcript `flowgate hook` does not read: one file of JSON
//! lines for each session, readable and writable by its owner only. [`super::logged`] calls it.
//!
//! Each event starts a process of its own, so the file is locked while a process reads it, judges the event and appends
//! to the file. A line that cannot be read, such as one that a killed process has not finished, counts as an event
//! about which nothing is known. A file contains content of the session, so files without an event for [`MAX_AGE`] are
//! deleted when another session starts.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flowgate::trace::Tool;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::harness::ToolUse;
use crate::args::Harness;
use crate::input::describe_io_error;
use crate::private_files;

/// The age at which the file of a session without new events is deleted.
const MAX_AGE: Duration = Duration::from_secs(60 * 60 * 24 * 30);

/// An event of a session, as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LoggedEvent {
    /// The session has started.
    Start,
    /// The model has received a text with this role.
    Message { role: String, text: String },
    /// A call was permitted, or the user decides about it.
    Call(ToolUse),
    /// A call was denied; the model has received the reason.
    Denied { why: String },
    /// The output of the call with this number, counted from 0 among the calls of the file.
    Output { call: usize, content: Value, is_error: Option<bool> },
    /// Something that cannot be read.
    Unknown,
}

/// The file of a session, which is locked as long as this value exists.
#[derive(Debug)]
pub(super) struct SessionLog {
    file: File,
    path: PathBuf,
    /// The events in the file, in order.
    pub(super) events: Vec<LoggedEvent>,
}

impl SessionLog {
    /// Opens and locks the file of the session with the id `session`, or creates it, and reads its events. The file is
    /// in the subfolder of the agent `harness` in `folder`, and may have at most `limit` bytes.
    ///
    /// # Errors
    /// If the folder or the file cannot be used, or the file is longer than `limit`.
    pub(super) fn open(folder: &Path, harness: Harness, session: &str, limit: u64) -> Result<Self, String> {
        let folder = folder.join(harness.file_name());
        let path = folder.join(file_name(session));
        let failed = |error: std::io::Error| {
            format!(
                "the file of the session, {}, cannot be used: {}; make it readable and writable, or name another folder \
                with `--sessions`",
                path.display(),
                describe_io_error(&error)
            )
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let mut file = private_files::open_to_append(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > limit {
            return Err(format!(
                "the file of the session, {}, is longer than {} MiB, the limit of `--max-transcript`; begin a new session of \
                the agent, or raise the limit",
                path.display(),
                limit >> 20
            ));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        // The part after the last line break is empty, unless a process was killed while it wrote a line.
        let is_cut = lines.pop().is_some_and(|rest| !rest.is_empty());
        let events = lines.into_iter().map(read_line).chain(is_cut.then_some(LoggedEvent::Unknown)).collect();
        // Ends the incomplete line, so that the next event is on a line of its own.
        if is_cut {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self { file, path, events })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// If the file cannot be written. The caller then refuses the event.
    pub(super) fn append(&mut self, event: LoggedEvent) -> Result<(), String> {
        let line = format!("{}\n", recorded_form(&event));
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            format!(
                "the file of the session, {}, cannot be written: {}; make it writable, or begin a new session",
                self.path.display(),
                describe_io_error(&error)
            )
        })?;
        self.events.push(event);
        Ok(())
    }

    /// Returns the calls of the session in order, and whether each has an output. [`LoggedEvent::Output`] names
    /// its call by the position in this list.
    pub(super) fn calls(&self) -> Vec<(&ToolUse, bool)> {
        let mut calls = Vec::new();
        for event in &self.events {
            match event {
                LoggedEvent::Call(call) => calls.push((call, false)),
                LoggedEvent::Output { call, .. } => {
                    if let Some((_, is_answered)) = calls.get_mut(*call) {
                        *is_answered = true;
                    }
                }
                _ => {}
            }
        }
        calls
    }

    /// Returns the number of the call that an output belongs to: the call with its id or, if the agent states no ids,
    /// the oldest call of the same tool with the same arguments that has no output. `None` if there is no such call.
    pub(super) fn call_of(&self, tool_use: &ToolUse) -> Option<usize> {
        let calls = self.calls();
        calls.iter().position(|(call, is_answered)| match &tool_use.id {
            Some(id) => call.id.as_ref() == Some(id),
            None => !is_answered && call.tool == tool_use.tool && call.arguments == tool_use.arguments,
        })
    }
}

/// Deletes the files of those sessions of the agent `harness` that have had no event for [`MAX_AGE`]: each event
/// changes the modification time of its file. `folder` has a subfolder for each agent. A file that cannot be examined
/// or deleted stays.
pub(super) fn delete_old(folder: &Path, harness: Harness) {
    let Ok(entries) = std::fs::read_dir(folder.join(harness.file_name())) else { return };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        if age.is_some_and(|age| age > MAX_AGE) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The most bytes of the id of a session that the name of its file contains.
const ID_BYTES: usize = 72;

/// Returns the name of the file of a session. The agent chooses the id of the session, so every byte of the id is
/// escaped except ASCII letters and digits. File systems limit names, so an id of more than [`ID_BYTES`] bytes is
/// truncated, and the first eight bytes of its digest are added. The name ends with the length of the whole id.
pub(super) fn file_name(session: &str) -> String {
    let mut name = String::new();
    for byte in session.bytes().take(ID_BYTES) {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => name.push(char::from(byte)),
            _ => name.push_str(&format!("-{byte:02x}")),
        }
    }
    if session.len() > ID_BYTES {
        let digest = Sha256::digest(session);
        name.push('-');
        digest.iter().take(8).for_each(|byte| name.push_str(&format!("{byte:02x}")));
    }
    format!("{name}-{}.jsonl", session.len())
}

/// Returns an event as the JSON value that is written to the file as one line. [`read_line`] reads it back.
fn recorded_form(event: &LoggedEvent) -> Value {
    match event {
        LoggedEvent::Start => json!({"start": true}),
        LoggedEvent::Message { role, text } => json!({"role": role, "text": text}),
        LoggedEvent::Call(ToolUse { id, tool, arguments }) => {
            json!({"call": tool.name, "server": tool.server, "id": id, "arguments": arguments})
        }
        LoggedEvent::Denied { why } => json!({"denied": why}),
        LoggedEvent::Output { call, content, is_error } => {
            json!({"output_of": call, "content": content, "is_error": is_error})
        }
        // [`read_line`] returns `Unknown` for each line that is no other event.
        LoggedEvent::Unknown => Value::Null,
    }
}

/// Reads a line of the file, which [`recorded_form`] has written. A line of another form, such as one that a killed
/// process has not finished, is an event about which nothing is known.
fn read_line(line: &[u8]) -> LoggedEvent {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let read = |value: &Value| {
        if value.get("start").is_some() {
            return Some(LoggedEvent::Start);
        }
        if let Some(why) = text(value, "denied") {
            return Some(LoggedEvent::Denied { why });
        }
        if let Some(call) = value.get("output_of") {
            let call = usize::try_from(call.as_u64()?).ok()?;
            let content = value.get("content")?.clone();
            return Some(LoggedEvent::Output { call, content, is_error: value.get("is_error")?.as_bool() });
        }
        if let Some(name) = text(value, "call") {
            let tool =
                text(value, "server").map_or_else(|| Tool::local(&name), |server| Tool::of(&server, &name));
            let (id, arguments) = (text(value, "id"), value.get("arguments")?.clone());
            return Some(LoggedEvent::Call(ToolUse { id, tool, arguments }));
        }
        Some(LoggedEvent::Message { role: text(value, "role")?, text: text(value, "text")? })
    };
    let value: Option<Value> = serde_json::from_slice(line).ok();
    value.as_ref().and_then(read).unwrap_or(LoggedEvent::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_two_sessions_have_different_names() {
        let long = |end: &str| format!("{}{end}", "x".repeat(ID_BYTES));
        assert_eq!(file_name("a1/ä"), "a1-2f-c3-a4-5.jsonl");
        assert_eq!(file_name(&long("")), format!("{}-72.jsonl", long("")));
        assert_ne!(file_name(&long("a")), file_name(&long("b")));
        assert!(file_name(&"/".repeat(1_000_000)).len() <= 255, "file systems limit names");
    }
}
