//! Encodes and parses one line of the log: a JSON object of bounded size.
//!
//! The writer fills [`RecordFields`], which truncate what exceeds their bounds; the verifier and the reader of a log's
//! end parse an [`AuditRecord`].

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use flowgate::json::{self, JsonError, Numbers};
use serde_json::{Map, Value, json};

use super::line_hash::LineHash;
use super::record_kind::RecordKind;

/// The maximum size of a line, in bytes, without its line feed.
pub(super) const MAX_LINE: usize = 16 << 10;
/// The maximum size of a text in a line, in bytes, after escaping.
const MAX_TEXT: usize = 256;
/// The maximum size of a list of texts, in bytes, after escaping.
const MAX_LIST: usize = 4 << 10;
/// The largest integer that every JSON parser represents exactly.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time of the system clock; 1970 if the clock is set to an earlier time.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the milliseconds as a line contains them: at most the largest integer that every JSON parser
    /// represents exactly.
    pub(super) fn clamped(self) -> u64 {
        self.0.min(MAX_NUMBER)
    }
}

impl fmt::Display for Timestamp {
    /// Formats the time as in RFC 3339, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, milliseconds) = (self.0 / 1000, self.0 % 1000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Howard Hinnant's `civil_from_days`, for dates since 1970. Days are counted from 0000-03-01 (719 468 days
        // before 1970), so a leap day is the last day of its year. Years are grouped in eras of 400 years, which all
        // have the same number of days. With the months counted from March, `(153 * month + 2) / 5` days of the year
        // precede a month.
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
    }
}

/// The fields of a record, each within its bound. A truncated text ends in `…`, and `cut` names its field.
#[derive(Debug, Default)]
pub(super) struct RecordFields {
    /// The fields by name, in the order of the line.
    fields: Map<String, Value>,
    /// The names of the truncated fields.
    cut: Vec<&'static str>,
}

impl RecordFields {
    /// Adds the field `name` with a text, which is truncated to `MAX_TEXT` bytes in JSON.
    pub(super) fn text(&mut self, name: &'static str, text: &str) -> &mut Self {
        let bounded = self.bounded_text(name, text);
        self.value(name, json!(bounded))
    }

    /// Adds the field `name` with a text, as [`Self::text`] does; adds nothing for `None`.
    pub(super) fn optional_text(&mut self, name: &'static str, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// Adds the field `name` with a number, which is reduced to the greatest one that every parser represents exactly.
    pub(super) fn number(&mut self, name: &'static str, number: u64) -> &mut Self {
        self.value(name, json!(number.min(MAX_NUMBER)))
    }

    /// Adds the field `name` with a list of texts, which has at most `MAX_LIST` bytes in JSON. One `…` replaces the
    /// texts that have no room.
    pub(super) fn list(&mut self, name: &'static str, texts: &[String]) -> &mut Self {
        let (mut list, mut room) = (Vec::new(), MAX_LIST);
        for text in texts {
            let text = self.bounded_text(name, text);
            // Each text also takes two quotation marks and a comma.
            let size = text.chars().map(escaped_length).sum::<usize>() + 3;
            let Some(room_after) = room.checked_sub(size) else {
                list.push(json!("…"));
                self.mark_truncated(name);
                break;
            };
            room = room_after;
            list.push(json!(text));
        }
        self.value(name, Value::Array(list))
    }

    /// Adds the field `name` with any value. The value is not truncated, so the caller must bound its size.
    pub(super) fn value(&mut self, name: &'static str, value: Value) -> &mut Self {
        self.fields.insert(name.to_owned(), value);
        self
    }

    /// Returns a text truncated to `MAX_TEXT`. If it was longer, marks the field `name` as truncated.
    fn bounded_text(&mut self, name: &'static str, text: &str) -> String {
        let (bounded, is_cut) = truncate_escaped(text, MAX_TEXT);
        if is_cut {
            self.mark_truncated(name);
        }
        bounded
    }

    /// Records that the field `name` was truncated, once.
    fn mark_truncated(&mut self, name: &'static str) {
        if !self.cut.contains(&name) {
            self.cut.push(name);
        }
    }
}

/// Returns a text, truncated such that it has at most `max_bytes` bytes when JSON has escaped it, and whether it was
/// truncated. A truncated text ends in `…`. The returned text itself is not escaped.
pub(super) fn truncate_escaped(text: &str, max_bytes: usize) -> (String, bool) {
    let mut size = 0_usize;
    // The last position at which the text can be cut such that the ellipsis still fits.
    let mut cut_at = text.len();
    for (at, c) in text.char_indices() {
        if size + '…'.len_utf8() <= max_bytes {
            cut_at = at;
        }
        size += escaped_length(c);
        if size > max_bytes {
            return (format!("{}…", text.get(..cut_at).unwrap_or_default()), true);
        }
    }
    (text.to_owned(), false)
}

/// Returns a text as the field of a record contains it: truncated to `MAX_TEXT`, for comparison with such a field.
pub(super) fn field_text(text: &str) -> String {
    truncate_escaped(text, MAX_TEXT).0
}

/// Returns the size of a character in JSON, in bytes.
fn escaped_length(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

/// Serializes a record as one line, without the line feed. The fields that every record has (`seq`, `time`, `kind` and
/// `previous`, the hash of the line before) come first, then `fields`, and then the names of those that were truncated.
pub(super) fn serialize_record(
    seq: u64,
    time: Timestamp,
    kind: &RecordKind,
    previous: LineHash,
    fields: RecordFields,
) -> String {
    let mut record = Map::new();
    record.insert("seq".to_owned(), json!(seq));
    record.insert("time".to_owned(), json!(time.clamped()));
    record.insert("kind".to_owned(), json!(kind.name()));
    record.insert("previous".to_owned(), json!(previous.to_string()));
    record.extend(fields.fields);
    // The names of the fields that were truncated.
    if !fields.cut.is_empty() {
        record.insert("cut".to_owned(), json!(fields.cut));
    }
    Value::Object(record).to_string()
}

/// A parsed record. Only [`verify`](super::verify()) checks its position in the log and its chain.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    /// The number of the line, from 0.
    pub seq: u64,
    /// The time of the event.
    pub time: Timestamp,
    /// The kind of event.
    pub kind: RecordKind,
    /// The hash of the previous line.
    pub previous: LineHash,
    /// The whole object.
    pub object: Map<String, Value>,
}

/// The reason why a line is not a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// It is not UTF-8.
    Encoding,
    /// It is not strict JSON.
    Json(JsonError),
    /// This field is missing or malformed.
    Field(&'static str),
}

impl fmt::Display for RecordError {
    /// Writes what the line is not, such as "not UTF-8". Some messages put the word "is" before this text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => f.write_str("not UTF-8"),
            Self::Json(error) => write!(f, "not strict JSON: {} at column {}", error.message, error.column),
            Self::Field(name) => write!(f, "not a record: the field `{name}` is missing or malformed"),
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::Encoding | Self::Field(_) => None,
        }
    }
}

impl AuditRecord {
    /// Parses a line, without its line feed.
    ///
    /// # Errors
    /// Fails if the line is not UTF-8 or not strict JSON, or if a field that every record has is missing or malformed.
    pub fn read(line: &[u8]) -> Result<Self, RecordError> {
        let text = std::str::from_utf8(line).map_err(|_| RecordError::Encoding)?;
        let Value::Object(object) = json::parse(text, Numbers::Exact).map_err(RecordError::Json)? else {
            // A value that is no object lacks all fields; `seq` is the first.
            return Err(RecordError::Field("seq"));
        };
        let number = |name| object.get(name).and_then(Value::as_u64).ok_or(RecordError::Field(name));
        let text = |name| object.get(name).and_then(Value::as_str).ok_or(RecordError::Field(name));
        Ok(Self {
            seq: number("seq")?,
            time: Timestamp(number("time")?),
            kind: RecordKind::from_name(text("kind")?),
            previous: LineHash::parse(text("previous")?).ok_or(RecordError::Field("previous"))?,
            object,
        })
    }

    /// Returns a field that is a text; `None` if it is missing or not a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.object.get(name).and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_dates() {
        let check = |time: u64, expected: &str| assert_eq!(Timestamp(time).to_string(), expected);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(1_735_689_599_999, "2024-12-31T23:59:59.999Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        let _ = Timestamp(u64::MAX).to_string();
    }

    #[test]
    fn a_long_text_is_truncated_and_marked() {
        let check =
            |text: &str, most: usize, expected: &str| assert_eq!(truncate_escaped(text, most).0, expected);
        check("abcdef", 6, "abcdef");
        check("abcdefg", 6, "abc…");
        check("abcdéf", 6, "abc…");
        check("\n\n\n\n", 6, "\n…");
        check("", 6, "");
        let mut fields = RecordFields::default();
        fields.text("short", "a").text("long", &"\u{1}".repeat(900)).list("many", &vec!["b".repeat(300); 90]);
        let line = serialize_record(0, Timestamp(1), &RecordKind::Judged, LineHash::NONE, fields);
        assert!(line.ends_with(r#""…"],"cut":["long","many"]}"#), "{line}");
        assert!(line.len() < 5000, "{}", line.len());
    }

    #[test]
    fn a_record_has_what_every_record_has() {
        let none = LineHash::NONE;
        let check = |line: &str, expected: &str| {
            let shown = match AuditRecord::read(line.as_bytes()) {
                Ok(record) => format!("{} {} {}", record.seq, record.time.0, record.kind),
                Err(flaw) => flaw.to_string(),
            };
            assert_eq!(shown, expected, "{line}");
        };
        check(
            &serialize_record(7, Timestamp(9), &RecordKind::Judged, none, RecordFields::default()),
            "7 9 judged",
        );
        check("", "not strict JSON: EOF while parsing a value at column 0");
        check("[]", "not a record: the field `seq` is missing or malformed");
        check(r#"{"seq":1,"seq":1}"#, "not strict JSON: duplicate key at column 14");
        check(r#"{"seq":1.5}"#, "not a record: the field `seq` is missing or malformed");
        check(r#"{"seq":1,"time":"2"}"#, "not a record: the field `time` is missing or malformed");
        check(
            r#"{"seq":1,"time":2,"kind":"a","previous":"00"}"#,
            "not a record: the field `previous` is missing or malformed",
        );
        assert_eq!(AuditRecord::read(b"{\"a\":\"\xff\"}"), Err(RecordError::Encoding));
    }
}
