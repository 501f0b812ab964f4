//! Verification of a log: no line changed, removed or inserted.
//!
//! A log alone cannot show that lines are missing at its end: truncated after a head, it is still consistent. The
//! verifier therefore supplies the hash of a head or the number of a line from elsewhere. `flowgate audit verify` calls
//! this.

use std::fmt;
use std::io::BufRead;

use serde_json::Value;

use super::anchor::LogAnchor;
use super::bounded_lines::{BoundedLines, NextLine};
use super::chain::{HEAD, LineHash, LogHead, SIGNATURE, is_signed};
use super::content_reader::ContentReader;
use super::key::AuditPublicKey;
use super::record::{AuditRecord, MAX_LINE, RecordError, Timestamp};
use super::witness::WitnessRecord;

/// The kind of the first record of each opening.
pub(super) const OPENED: &str = "opened";
/// The kind of the record of deleted content.
pub(super) const FORGOTTEN: &str = "forgotten";
/// The version of the line format.
pub(super) const FORMAT: u64 = 1;

/// The verifier's knowledge from outside the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogExpectations<'a> {
    /// The public key. Without it, the key that the log itself names is used.
    pub key: Option<AuditPublicKey>,
    /// The hash of a line that the log must contain.
    pub hash: Option<LineHash>,
    /// The number of a line that the log must contain, from 0; with `hash`, the number of that line.
    pub seq: Option<u64>,
    /// The database's record of its logs.
    pub anchors: &'a [LogAnchor],
    /// A witness's record of logs.
    pub witness: Option<&'a WitnessRecord>,
}

/// The result for a valid log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSummary {
    /// The identity of the log: the hash of its first line.
    pub id: LineHash,
    /// The database's record of the log, which the log matches.
    pub anchor: Option<LogAnchor>,
    /// The number of the log's lines that a witness records, and the last of them; the log contains them all.
    pub witnessed: Option<(usize, LogHead)>,
    /// The number of lines.
    pub lines: u64,
    /// The key that signed.
    pub key: AuditPublicKey,
    /// The time of the first line.
    pub begun: Timestamp,
    /// The last head.
    pub head: Option<LogHead>,
    /// The last line.
    pub end: LogHead,
    /// The number of lines after the last head, which are unsigned.
    pub unsigned: u64,
    /// The number of openings.
    pub openings: u64,
    /// The number of openings that found a partial line.
    pub torn: u64,
    /// The counts of contents, if they were given.
    pub contents: Option<ContentCounts>,
}

/// The counts of a log's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentCounts {
    /// The number of contents that exist unchanged.
    pub kept: u64,
    /// The number of contents that do not exist.
    pub missing: u64,
    /// The number of contents that were deleted according to the log.
    pub forgotten: u64,
    /// The number of contents whose events were never recorded.
    pub stray: u64,
}

/// A problem of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyError {
    /// The line, from 1.
    pub line: u64,
    /// The problem.
    pub what: VerifyErrorKind,
}

/// The kinds of problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyErrorKind {
    /// The file cannot be read.
    Read(String),
    /// The file has no line.
    Empty,
    /// The last line has no line feed.
    Torn,
    /// The line exceeds the maximum size.
    Long,
    /// The line is not a record.
    Flaw(RecordError),
    /// The line has this number instead of the next one.
    Seq(u64),
    /// The line does not contain the hash of the previous line.
    Previous,
    /// The log does not begin with an opening, or an opening lacks its key.
    NotOpened,
    /// The line was written by a later version.
    Format,
    /// The log was created with another key than the expected one.
    OtherKey,
    /// The log was opened with another key than it was created with.
    ChangedKey,
    /// A head is not signed by the key.
    Signature,
    /// The log does not contain the line with this hash.
    Missing(LineHash),
    /// The log ends before the line of this number.
    Short(u64),
    /// The log ends before this line, which the database records.
    Behind(u64),
    /// The database records another line here.
    Unanchored,
    /// The log ends before this line, which the witness records.
    Unseen(u64),
    /// The witness records another line here.
    Contradicted,
    /// The witness has no record of the log.
    Unwitnessed,
    /// The content of the line was changed.
    Content,
    /// There is content for a line without any, or content out of order.
    Foreign,
    /// This line of the file of contents cannot be read.
    Unreadable(u64),
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.what {
            VerifyErrorKind::Read(error) => write!(f, "cannot be read: {error}"),
            VerifyErrorKind::Empty => f.write_str("the file is empty: nothing is left of the log, or nothing was ever in it"),
            VerifyErrorKind::Torn => f.write_str(
                "the line has no end: it is being written, or a process was killed; opening the log again moves it aside",
            ),
            VerifyErrorKind::Long => write!(f, "longer than {MAX_LINE} bytes: no line of a log is"),
            VerifyErrorKind::Flaw(flaw) => write!(f, "{flaw}"),
            VerifyErrorKind::Seq(found) => {
                let line = self.line.saturating_sub(1);
                write!(f, "`seq` is {found}, and should be {line}: lines were taken out, added or swapped")
            }
            VerifyErrorKind::Previous => {
                f.write_str("it does not follow from the line before: one of the two was changed, or lines were taken out")
            }
            VerifyErrorKind::NotOpened => f.write_str("a log opens with its key here, and this one does not: its beginning is missing"),
            VerifyErrorKind::Format => f.write_str("written by a later version of flowgate: check it with that one"),
            VerifyErrorKind::OtherKey => f.write_str(
                "the log was begun with another key than the one given: that is the public one, from `FILE.pub` or the first \
                 line as it was",
            ),
            VerifyErrorKind::ChangedKey => f.write_str("the log was opened with another key than it was begun with"),
            VerifyErrorKind::Signature => f.write_str("the signature is not of the key: a line up to here was changed, or it is forged"),
            VerifyErrorKind::Missing(hash) => write!(f, "the log ends here without the line {hash}: it was cut off, or written anew"),
            VerifyErrorKind::Short(seq) => write!(f, "the log ends here, and should reach line {}: it was cut off", seq.saturating_add(1)),
            VerifyErrorKind::Behind(seq) => write!(
                f,
                "the log ends here, and the database knows its line {}: it was cut off",
                seq.saturating_add(1)
            ),
            VerifyErrorKind::Unanchored => f.write_str("the database knows another line here: the log was cut off and written on"),
            VerifyErrorKind::Unseen(seq) => write!(
                f,
                "the log ends here, and the witness knows its line {}: it was cut off, or put back as it was before",
                seq.saturating_add(1)
            ),
            VerifyErrorKind::Contradicted => {
                f.write_str("the witness knows another line here: the log was cut off and written on")
            }
            VerifyErrorKind::Unwitnessed => f.write_str(
                "the witness knows nothing of this log: it is another one, or the witness was not told of it yet",
            ),
            VerifyErrorKind::Content => f.write_str("its content is not what was recorded: it was changed"),
            VerifyErrorKind::Foreign => f.write_str("there is content that no line here has: entries were added, moved or renumbered"),
            VerifyErrorKind::Unreadable(line) => write!(f, "the file of contents cannot be read at its line {line}: it was changed"),
        }
    }
}

impl std::error::Error for VerifyError {}

/// An iterator over the records of a log that checks each against the preceding ones. It ends at the first problem.
#[derive(Debug)]
pub struct VerifiedRecords<R> {
    lines: BoundedLines<R>,
    expected: Option<AuditPublicKey>,
    key: Option<AuditPublicKey>,
    end: Option<LogHead>,
    head: Option<LogHead>,
    has_failed: bool,
}

impl<R: BufRead> VerifiedRecords<R> {
    /// Returns the records of `log`, signed by `key`, or by the key that the log itself names.
    pub fn new(log: R, key: Option<AuditPublicKey>) -> Self {
        let lines = BoundedLines::new(log, MAX_LINE);
        Self { lines, expected: key, key: None, end: None, head: None, has_failed: false }
    }

    /// Returns the number of the next line, from 0.
    fn seq(&self) -> u64 {
        self.end.map_or(0, |end| end.seq.saturating_add(1))
    }

    fn read(&mut self) -> Result<Option<AuditRecord>, VerifyErrorKind> {
        let seq = self.seq();
        let line = match self.lines.next().map_err(|error| VerifyErrorKind::Read(error.to_string()))? {
            NextLine::Line(line) => line,
            NextLine::End if self.end.is_none() => return Err(VerifyErrorKind::Empty),
            NextLine::End => return Ok(None),
            NextLine::Torn => return Err(VerifyErrorKind::Torn),
            NextLine::Long => return Err(VerifyErrorKind::Long),
        };
        let record = AuditRecord::read(line).map_err(VerifyErrorKind::Flaw)?;
        if record.seq != seq {
            return Err(VerifyErrorKind::Seq(record.seq));
        }
        if record.previous != self.end.map_or(LineHash::NONE, |end| end.hash) {
            return Err(VerifyErrorKind::Previous);
        }
        if record.kind == OPENED {
            let format =
                record.object.get("format").and_then(Value::as_u64).ok_or(VerifyErrorKind::NotOpened)?;
            if format != FORMAT {
                return Err(VerifyErrorKind::Format);
            }
            let named =
                record.text("key").and_then(AuditPublicKey::parse).ok_or(VerifyErrorKind::NotOpened)?;
            if self.expected.is_some_and(|expected| expected != named) {
                return Err(VerifyErrorKind::OtherKey);
            }
            if *self.key.get_or_insert(named) != named {
                return Err(VerifyErrorKind::ChangedKey);
            }
        }
        let key = self.key.as_ref().ok_or(VerifyErrorKind::NotOpened)?;
        let end = LogHead { seq, hash: LineHash::of_line(line) };
        // A head whose kind was changed must not pass as an unsigned line.
        if record.kind == HEAD || record.object.contains_key(SIGNATURE) {
            if record.kind != HEAD || !is_signed(line, key) {
                return Err(VerifyErrorKind::Signature);
            }
            self.head = Some(end);
        }
        self.end = Some(end);
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for VerifiedRecords<R> {
    type Item = Result<AuditRecord, VerifyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let line = self.seq().saturating_add(1);
        let read = self.read();
        self.has_failed = read.is_err();
        read.map_err(|what| VerifyError { line, what }).transpose()
    }
}

/// Verifies a whole log, in constant memory. `contents` is the file of contents beside it.
///
/// # Errors
/// Returns the first problem.
pub fn verify(
    log: &mut dyn BufRead,
    expected: &LogExpectations<'_>,
    contents: Option<&mut dyn BufRead>,
) -> Result<LogSummary, VerifyError> {
    let mut records = VerifiedRecords::new(log, expected.key);
    let mut contents = contents.map(ContentReader::new).transpose()?;
    let (mut begun, mut openings, mut torn, mut forgotten) = (None, 0, 0, 0_u64);
    let mut has_hash = expected.hash.is_none();
    let (mut id, mut anchor) = (None, None);
    while let Some(record) = records.next() {
        let record = record?;
        begun = begun.or(Some(record.time));
        match record.kind.as_str() {
            OPENED => {
                openings += 1;
                torn += u64::from(record.text("torn").is_some());
            }
            FORGOTTEN => {
                let count = record.object.get("count").and_then(Value::as_u64).unwrap_or(0);
                forgotten = forgotten.saturating_add(count);
            }
            _ => {}
        }
        let Some(end) = records.end else { continue };
        if id.is_none() {
            id = Some(end.hash);
            anchor = expected.anchors.iter().find(|anchor| anchor.log == end.hash).copied();
        }
        if anchor.is_some_and(|anchor| anchor.head.seq == end.seq && anchor.head.hash != end.hash) {
            return Err(VerifyError { line: end.seq.saturating_add(1), what: VerifyErrorKind::Unanchored });
        }
        if let (Some(witness), Some(id)) = (expected.witness, id)
            && witness.contradicts(id, end)
        {
            return Err(VerifyError { line: end.seq.saturating_add(1), what: VerifyErrorKind::Contradicted });
        }
        has_hash |= expected.hash == Some(end.hash) && expected.seq.is_none_or(|seq| seq == end.seq);
        if let Some(contents) = &mut contents {
            contents.content_of(&record)?;
        }
    }
    let (Some(end), Some(key), Some(begun), Some(id)) = (records.end, records.key, begun, id) else {
        return Err(VerifyError { line: 1, what: VerifyErrorKind::Empty });
    };
    let lines = end.seq.saturating_add(1);
    let failed = |what| Err(VerifyError { line: lines, what });
    if let Some(hash) = expected.hash.filter(|_| !has_hash) {
        return failed(VerifyErrorKind::Missing(hash));
    }
    if let Some(seq) = expected.seq.filter(|seq| *seq > end.seq) {
        return failed(VerifyErrorKind::Short(seq));
    }
    if let Some(anchor) = anchor.filter(|anchor| anchor.head.seq > end.seq) {
        return failed(VerifyErrorKind::Behind(anchor.head.seq));
    }
    let witnessed = match expected.witness {
        None => None,
        Some(witness) => Some(
            witness
                .last_line_of(id)
                .ok_or(VerifyError { line: lines, what: VerifyErrorKind::Unwitnessed })?,
        ),
    };
    if let Some((_, head)) = witnessed.filter(|(_, head)| head.seq > end.seq) {
        return failed(VerifyErrorKind::Unseen(head.seq));
    }
    let unsigned = records.head.map_or(lines, |head| end.seq.saturating_sub(head.seq));
    let contents = contents.map(|contents| contents.finish(forgotten)).transpose()?;
    Ok(LogSummary {
        id,
        anchor,
        witnessed,
        lines,
        key,
        begun,
        head: records.head,
        end,
        unsigned,
        openings,
        torn,
        contents,
    })
}

#[cfg(test)]
mod tests;
