//! Reads the contents of recorded events from `LOG.content`, the file next to an audit log, and compares each with the
//! salted hash in its line. The verifier uses this reader to check contents, and the command line to print them.

use std::io::BufRead;

use serde_json::Value;

use super::bounded_lines::{BoundedLines, NextLine};
use super::content::{ContentEntry, MAX_ENTRY};
use super::content_cipher::{ContentCipher, ContentOpenError};
use super::line_hash::LineHash;
use super::record::{AuditRecord, RecordError};
use super::verify_error::{ContentCounts, VerifyError, VerifyErrorKind};

/// A reader of the contents next to a log, in the order of its lines.
#[derive(Debug)]
pub struct ContentReader<'c, R> {
    lines: BoundedLines<R>,
    /// The cipher that opens encrypted contents, if the reader has the keys.
    cipher: Option<&'c dyn ContentCipher>,
    /// The number of the last line that was read, from 1.
    number: u64,
    /// The first entry that was not compared with a line of the log yet.
    next: Option<ContentEntry>,
    counts: ContentCounts,
}

/// The content of a line.
///
/// The type is exhaustive on purpose: a program that matches on it has to handle each case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineContent {
    /// The line never had content.
    Nothing,
    /// The line had content that does not exist any more.
    Gone,
    /// The content.
    Kept(String),
}

/// What became of the content of a line.
#[derive(Debug)]
pub(super) enum ComparedContent {
    /// The line never had content.
    Nothing,
    /// The line had content that does not exist any more.
    Gone,
    /// The entry with the content, which is readable and has the hash of the line.
    Kept(ContentEntry),
    /// The content is encrypted with the key of this id, and the reader has no keys. Whether it has the hash of the line
    /// is unknown.
    Sealed(String),
}

impl<'c, R: BufRead> ContentReader<'c, R> {
    /// Creates a reader of a file of contents, and reads its first entry.
    ///
    /// # Errors
    /// Fails if the first entry cannot be read.
    pub fn new(reader: R) -> Result<Self, VerifyError> {
        Self::with_cipher(reader, None)
    }

    /// Creates a reader of a file of contents that opens encrypted contents with `cipher`, and reads its first entry.
    ///
    /// # Errors
    /// Fails if the first entry cannot be read.
    pub fn with_cipher(reader: R, cipher: Option<&'c dyn ContentCipher>) -> Result<Self, VerifyError> {
        let lines = BoundedLines::new(reader, MAX_ENTRY);
        let mut contents = Self { lines, cipher, number: 0, next: None, counts: ContentCounts::default() };
        // No line of the log is read yet, so the error names the first one.
        contents.advance().map_err(|what| VerifyError { line: 1, what })?;
        Ok(contents)
    }

    /// Returns the content of `record`, the next line of the log. [`LineContent::Gone`] means that the content was
    /// deleted or lost, and [`LineContent::Nothing`] that the line never had content. Must be called for every line, in
    /// order.
    ///
    /// # Errors
    /// Fails if the content is not the recorded one, or it is encrypted and the reader does not have its key.
    pub fn content_of(&mut self, record: &AuditRecord) -> Result<LineContent, VerifyError> {
        // The line of the file of contents with the entry to compare, for the error: `compare` reads on, and changes the
        // number.
        let number = self.number;
        match self.compare(record)? {
            ComparedContent::Nothing => Ok(LineContent::Nothing),
            ComparedContent::Gone => Ok(LineContent::Gone),
            // The entry is readable, so there is always a content.
            ComparedContent::Kept(entry) => {
                Ok(entry.into_content().map_or(LineContent::Gone, LineContent::Kept))
            }
            ComparedContent::Sealed(key) => {
                let what = VerifyErrorKind::ContentKeyMissing { line: number, key };
                Err(VerifyError { line: record.seq.saturating_add(1), what })
            }
        }
    }

    /// Compares the content of the next line of the log with the hash in the line. Must be called for every line, in
    /// order.
    ///
    /// # Errors
    /// Fails if the content is not the recorded one, or the reader has keys but not the one of this content.
    pub(super) fn compare(&mut self, record: &AuditRecord) -> Result<ComparedContent, VerifyError> {
        self.check_against(record).map_err(|what| VerifyError { line: record.seq.saturating_add(1), what })
    }

    /// Reads the next entry of the file of contents into `next`, which becomes `None` at the end of the file. A partial
    /// entry at the end counts as stray (it belongs to no line of the log) and is not read. Fails at an entry that is
    /// malformed or too long.
    fn advance(&mut self) -> Result<(), VerifyErrorKind> {
        self.number += 1;
        self.next = match self.lines.next().map_err(|error| VerifyErrorKind::Read(error.to_string()))? {
            NextLine::Line(line) => {
                Some(ContentEntry::read(line).ok_or(VerifyErrorKind::Unreadable(self.number))?)
            }
            NextLine::Long => return Err(VerifyErrorKind::Unreadable(self.number)),
            NextLine::End => None,
            // The entry is being written, or its writer was killed.
            NextLine::Torn => {
                self.counts.stray += 1;
                None
            }
        };
        Ok(())
    }

    /// Returns the content of the line `record`, after comparing the next entry of the file with the hash in the line.
    /// The entries are in the order of their lines, and have the numbers of these lines. It is an error if an entry
    /// belongs to no line: if its number is smaller than that of `record`, or if the line with its number has no hash. A
    /// line with a hash and without an entry has lost its content (`Gone`), which is only counted. A line with neither
    /// never had content (`Nothing`). Without keys, the hash of an encrypted entry is not compared (`Sealed`).
    fn check_against(&mut self, record: &AuditRecord) -> Result<ComparedContent, VerifyErrorKind> {
        let recorded = match record.object.get("content") {
            None => None,
            Some(content) => {
                let hash = content.get("salted").and_then(Value::as_str).and_then(LineHash::parse);
                Some(hash.ok_or(VerifyErrorKind::Flaw(RecordError::Field("content")))?)
            }
        };
        // An entry with a larger number belongs to a later line, and stays in `next`.
        let entry = self.next.take_if(|next| next.seq <= record.seq);
        match (entry, recorded) {
            // The entry belongs to this line.
            (Some(entry), Some(hash)) if entry.seq == record.seq => {
                let sealing_key = entry.sealing_key();
                let entry = self.decrypted(entry, record)?;
                if !entry.belongs_to(record, hash) {
                    return Err(VerifyErrorKind::Content);
                }
                let compared = match sealing_key {
                    // Without keys, an encrypted entry stays unread: its hash was not compared.
                    Some(key) if self.cipher.is_none() => {
                        self.counts.sealed += 1;
                        ComparedContent::Sealed(key)
                    }
                    _ => {
                        self.counts.kept += 1;
                        ComparedContent::Kept(entry)
                    }
                };
                self.advance()?;
                Ok(compared)
            }
            // The entry belongs to no line.
            (Some(_), _) => Err(VerifyErrorKind::Foreign),
            (None, Some(_)) => {
                self.counts.missing += 1;
                Ok(ComparedContent::Gone)
            }
            (None, None) => Ok(ComparedContent::Nothing),
        }
    }

    /// Decrypts the entry of the line `record` if the entry is encrypted and the reader has keys. Otherwise returns it
    /// as it is.
    fn decrypted(&self, entry: ContentEntry, record: &AuditRecord) -> Result<ContentEntry, VerifyErrorKind> {
        let (Some(cipher), Some(key)) = (self.cipher, entry.sealing_key()) else {
            return Ok(entry);
        };
        let line = self.number;
        entry.opened(record.previous, cipher).map_err(|error| match error {
            ContentOpenError::OtherKey => {
                VerifyErrorKind::ContentKeyOther { line, key, given: cipher.key_ids() }
            }
            ContentOpenError::Altered => VerifyErrorKind::ContentAltered(line),
        })
    }

    /// Returns the counts of all contents, after the last line of the log. The remaining entries belong to events that
    /// were never recorded, and count as `stray`. `forgotten` is the number of deleted contents according to the log.
    ///
    /// # Errors
    /// Fails if a remaining entry cannot be read.
    pub(super) fn finish(mut self, forgotten: u64) -> Result<ContentCounts, VerifyError> {
        while self.next.is_some() {
            self.counts.stray += 1;
            // The entry belongs to no line of the log, so the error names the first one.
            self.advance().map_err(|what| VerifyError { line: 1, what })?;
        }
        Ok(ContentCounts { forgotten, ..self.counts })
    }
}
