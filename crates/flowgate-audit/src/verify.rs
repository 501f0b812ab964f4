//! Verifies that no line of a log was changed, removed or inserted.
//!
//! A log alone cannot show that lines are missing at its end: truncated after a head, it is still consistent. The
//! person who verifies the log therefore supplies the hash of a head or the number of a line from elsewhere. The
//! command `flowgate audit verify` calls [`verify`]. Other readers of whole logs, such as `flowgate audit show`, use
//! [`VerifiedRecords`], which checks each line as it is read.

use std::io::BufRead;

use serde_json::Value;

use super::bounded_lines::{BoundedLines, NextLine};
use super::chain::{LogHead, SIGNATURE, is_signed};
use super::content_cipher::ContentCipher;
use super::content_reader::ContentReader;
use super::key::AuditPublicKey;
use super::line_hash::LineHash;
use super::loss::LogAnchor;
use super::record::{AuditRecord, MAX_LINE, Timestamp};
use super::record_kind::RecordKind;
use super::verify_error::{ContentCounts, VerifyError, VerifyErrorKind};
use super::witness::WitnessRecord;

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
    /// The cipher of encrypted contents. Without it, these are counted and not compared with their lines.
    pub content_cipher: Option<&'a dyn ContentCipher>,
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

/// An iterator over the records of a log that checks each against the preceding ones. It ends at the first problem.
#[derive(Debug)]
pub struct VerifiedRecords<R> {
    lines: BoundedLines<R>,
    /// The key that the log must name, if the verifier knows it.
    expected: Option<AuditPublicKey>,
    /// The key that the log names.
    key: Option<AuditPublicKey>,
    /// The last line that was read.
    end: Option<LogHead>,
    /// The last head that was read.
    head: Option<LogHead>,
    /// Whether a problem was found. No further line is read then.
    has_failed: bool,
}

impl<R: BufRead> VerifiedRecords<R> {
    /// Creates an iterator over the records of `log`. The heads of the log must be signed with `key` or, if `key` is
    /// `None`, with the key that the log itself names.
    pub fn new(log: R, key: Option<AuditPublicKey>) -> Self {
        let lines = BoundedLines::new(log, MAX_LINE);
        Self { lines, expected: key, key: None, end: None, head: None, has_failed: false }
    }

    /// Returns the number of the next line, from 0.
    fn seq(&self) -> u64 {
        self.end.map_or(0, |end| end.seq.saturating_add(1))
    }

    /// Reads the next line, and checks its number and the hash of the line before it. If the line is an opening, also
    /// checks the format and the key; if it is a head, also the signature. Returns `None` at the end of the log.
    /// Fails if a check fails, if the log is empty or does not begin with an opening, or if the line is partial or
    /// too long.
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
        if record.kind == RecordKind::Opened {
            let named = key_of_opening(&record)?;
            if self.expected.is_some_and(|expected| expected != named) {
                return Err(VerifyErrorKind::OtherKey);
            }
            // The first opening sets the key of the log, and every later opening must name it.
            if *self.key.get_or_insert(named) != named {
                return Err(VerifyErrorKind::ChangedKey);
            }
        }
        let key = self.key.as_ref().ok_or(VerifyErrorKind::NotOpened)?;
        let end = LogHead { seq, hash: LineHash::of_line(line) };
        let is_head = record.kind == RecordKind::Head;
        let has_signature = record.object.contains_key(SIGNATURE);
        // A head whose kind was changed must not pass as an unsigned line.
        if is_head || has_signature {
            if !is_head || !is_signed(line, key) {
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

    /// Returns the next record, or the first problem with the line at which it was found; `None` at the end and after a
    /// problem.
    fn next(&mut self) -> Option<Self::Item> {
        // After an error, the end of the chain is unknown, so no later line can be checked.
        if self.has_failed {
            return None;
        }
        // An error counts lines from 1.
        let line = self.seq().saturating_add(1);
        let read = self.read();
        self.has_failed = read.is_err();
        read.map_err(|what| VerifyError { line, what }).transpose()
    }
}

/// Returns the key that an opening names. It is an error if the opening names no key, or another format of lines.
fn key_of_opening(record: &AuditRecord) -> Result<AuditPublicKey, VerifyErrorKind> {
    let format = record.object.get("format").and_then(Value::as_u64).ok_or(VerifyErrorKind::NotOpened)?;
    if format != FORMAT {
        return Err(VerifyErrorKind::Format);
    }
    record.text("key").and_then(AuditPublicKey::parse).ok_or(VerifyErrorKind::NotOpened)
}

/// Verifies a whole log, in constant memory. Checks that every line continues the line before it, and that the log
/// contains what the verifier expects (`expected`). If the file of contents is given (`contents`), compares its entries
/// with the hashes in their lines.
///
/// # Errors
/// Returns the first problem.
pub fn verify(
    log: &mut dyn BufRead,
    expected: &LogExpectations<'_>,
    contents: Option<&mut dyn BufRead>,
) -> Result<LogSummary, VerifyError> {
    let mut records = VerifiedRecords::new(log, expected.key);
    let contents = contents.map(|contents| ContentReader::with_cipher(contents, expected.content_cipher));
    let mut contents = contents.transpose()?;
    // The time of the first line, the number of openings, how many of these found a partial line, and the number of
    // deleted contents.
    let (mut begun, mut openings, mut torn, mut forgotten) = (None, 0, 0, 0_u64);
    // Whether the line with the expected hash was found, under the expected number if one is given.
    let mut has_hash = expected.hash.is_none();
    // The hash of the first line identifies the log; the anchor is what the database has recorded of this log.
    let (mut id, mut anchor) = (None, None);
    while let Some(record) = records.next() {
        let record = record?;
        begun = begun.or(Some(record.time));
        match record.kind {
            RecordKind::Opened => {
                openings += 1;
                torn += u64::from(record.text("torn").is_some());
            }
            RecordKind::Forgotten => {
                let count = record.object.get("count").and_then(Value::as_u64).unwrap_or(0);
                forgotten = forgotten.saturating_add(count);
            }
            _ => {}
        }
        // The line of `record`; there always is one.
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
            contents.compare(&record)?;
        }
    }
    let (Some(end), Some(key), Some(begun), Some(id)) = (records.end, records.key, begun, id) else {
        return Err(VerifyError { line: 1, what: VerifyErrorKind::Empty });
    };
    // The lines are unchanged. The expectations decide whether lines are missing at the end.
    let lines = end.seq.saturating_add(1);
    if let Some(hash) = expected.hash
        && !has_hash
    {
        return Err(VerifyError { line: lines, what: VerifyErrorKind::Missing(hash) });
    }
    let witnessed = check_end(expected, id, end, anchor).map_err(|what| VerifyError { line: lines, what })?;
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

/// Checks that the log `id`, whose last line is `end`, is as long as the verifier, the database (`anchor`) and the
/// witness expect. Returns what the witness records of the log, as [`LogSummary::witnessed`].
fn check_end(
    expected: &LogExpectations<'_>,
    id: LineHash,
    end: LogHead,
    anchor: Option<LogAnchor>,
) -> Result<Option<(usize, LogHead)>, VerifyErrorKind> {
    if let Some(seq) = expected.seq
        && seq > end.seq
    {
        return Err(VerifyErrorKind::Short(seq));
    }
    if let Some(anchor) = anchor
        && anchor.head.seq > end.seq
    {
        return Err(VerifyErrorKind::Behind(anchor.head.seq));
    }
    let Some(witness) = expected.witness else {
        return Ok(None);
    };
    let (count, last) = witness.last_line_of(id).ok_or(VerifyErrorKind::Unwitnessed)?;
    if last.seq > end.seq {
        return Err(VerifyErrorKind::Unseen(last.seq));
    }
    Ok(Some((count, last)))
}

#[cfg(test)]
mod tests;
