//! Formats one line of the operator's log, as text or as JSON, for `log`. Parts of a line can be chosen by a client, a
//! model or a server: they are cut and escaped, so that they cannot end the line, move a cursor or change the direction
//! of writing.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::secret::Secret;
use crate::virtual_keys::text::redact;
use flowgate_audit::Timestamp;

/// The format of lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogLineFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object on each line.
    Json,
}

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Reports what was done.
    Info,
    /// Reports what was rejected or hidden, a failure of another server, or something on which the operator may have to
    /// act.
    Warn,
    /// The operator has to act.
    Error,
}

impl LogLevel {
    /// Returns the name of the level in lines.
    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The most characters of one text in a line.
const MAX_CHARACTERS: usize = 200;
/// The most characters of the sentence with which a line ends.
const MAX_SENTENCE: usize = 600;

/// One line.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) time: Timestamp,
    pub(super) level: LogLevel,
    pub(super) event: &'static str,
    /// The names and values between the event and the sentence.
    pub(super) fields: Vec<(&'static str, Value)>,
    pub(super) sentence: String,
}

impl LogLine {
    /// Replaces every virtual key, and each of the secret `keys` of clients, people and upstreams, by a constant text
    /// (`[key]`) wherever it occurs in a text field or in the sentence.
    pub(super) fn redact_keys(&mut self, keys: &[Secret]) {
        let without_keys =
            |text: &str| keys.iter().fold(redact(text).into_owned(), |text, key| key.redacted_from(&text));
        for (_, value) in &mut self.fields {
            if let Value::String(text) = value {
                *text = without_keys(text);
            }
        }
        self.sentence = without_keys(&self.sentence);
    }

    /// Returns the line with its terminator.
    pub(super) fn encode(&self, format: LogLineFormat) -> Vec<u8> {
        let mut line = match format {
            LogLineFormat::Text => self.text(),
            LogLineFormat::Json => self.json(),
        };
        line.push('\n');
        line.into_bytes()
    }

    /// Formats the line as text: `TIME LEVEL EVENT NAME=VALUE...: SENTENCE`. Long texts are cut, and characters that
    /// could end the line or are not visible are escaped.
    fn text(&self) -> String {
        let mut line = format!("{} {} {}", self.time, self.level.name(), self.event);
        for (name, value) in &self.fields {
            // Writing to a `String` cannot fail.
            let _ = match value {
                // A text without spaces and special characters needs no quotation marks.
                Value::String(text) if is_plain(text) => write!(line, " {name}={text}"),
                Value::String(text) => {
                    write!(line, " {name}=\"{}\"", escape_special(&truncate(text, MAX_CHARACTERS), true))
                }
                other => write!(line, " {name}={other}"),
            };
        }
        if !self.sentence.is_empty() {
            // As above, this cannot fail.
            let _ = write!(line, ": {}", escape_special(&truncate(&self.sentence, MAX_SENTENCE), false));
        }
        line
    }

    /// Formats the line as a JSON object in ASCII, so that no character can move a cursor or change the direction of
    /// writing. Long texts are cut.
    fn json(&self) -> String {
        let mut line = Map::new();
        line.insert("time".to_owned(), self.time.to_string().into());
        line.insert("level".to_owned(), self.level.name().into());
        line.insert("event".to_owned(), self.event.into());
        for (name, value) in &self.fields {
            let value = match value {
                Value::String(text) => truncate(text, MAX_CHARACTERS).into(),
                other => other.clone(),
            };
            line.insert((*name).to_owned(), value);
        }
        if !self.sentence.is_empty() {
            line.insert("message".to_owned(), truncate(&self.sentence, MAX_SENTENCE).into());
        }
        to_ascii(&Value::Object(line).to_string())
    }
}

/// Returns whether a text can be written without quotation marks, escapes and truncation.
fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    !text.is_empty() && text.len() <= MAX_CHARACTERS && text.chars().all(is_plain)
}

/// Returns a text cut to its first `most` characters, with `...` after them if there are more.
fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Escapes everything but letters, digits, spaces and visible ASCII, so that the text stays on one line; with
/// `is_quoted`, also quotes and backslashes.
fn escape_special(text: &str, is_quoted: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' if is_quoted => shown.extend(['\\', c]),
            ' '..='~' => shown.push(c),
            c if c.is_alphanumeric() => shown.push(c),
            c => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

/// Returns a JSON text in ASCII with an equal value: characters outside ASCII, which occur only in strings, and
/// control characters become `\u` escapes of their UTF-16 units.
pub(crate) fn to_ascii(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, ' '..='~') {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0_u16; 2]) {
                // Writing to a `String` cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}
