//! Defines what the verification of a log can find. [`VerifyError`] is a problem, with its text for the person who
//! verifies the log. [`ContentCounts`] says how many stored contents are unchanged, missing, deleted according to the
//! log, not named by any record, or encrypted and therefore not compared. `verify` returns them, and `flowgate audit`
//! prints them.

use std::fmt;

use super::line_hash::LineHash;
use super::record::{MAX_LINE, RecordError};

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
    /// The number of contents that exist, but are encrypted and were not compared, since no key was given.
    pub sealed: u64,
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
#[non_exhaustive]
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
    /// The log does not begin with an opening, or an opening lacks the format or the key.
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
    /// The log ends before the line with this number, which the database records.
    Behind(u64),
    /// The database records a line with the same number and another hash.
    Unanchored,
    /// The log ends before the line with this number, which the witness records.
    Unseen(u64),
    /// The witness records a line with the same number and another hash.
    Contradicted,
    /// The witness has no record of the log.
    Unwitnessed,
    /// The content of the line was changed.
    Content,
    /// There is content for a line without any, or content out of order.
    Foreign,
    /// This line of the file of contents cannot be read.
    Unreadable(u64),
    /// The content is encrypted, and no key was given.
    ContentKeyMissing {
        /// The line of the file of contents, from 1.
        line: u64,
        /// The id of the key.
        key: String,
    },
    /// The content is encrypted with a key that is not among the given ones.
    ContentKeyOther {
        /// The line of the file of contents, from 1.
        line: u64,
        /// The id of the key.
        key: String,
        /// The ids of the given keys.
        given: String,
    },
    /// The encrypted content in this line of the file of contents was altered or moved.
    ContentAltered(u64),
}

/// The advice if lines of the log were changed or are missing.
const RESTORE_LOG: &str = "restore the log from a copy";
/// The advice if entries of the file of contents were changed.
const RESTORE_CONTENTS: &str = "restore the file of contents from a copy";

impl fmt::Display for VerifyError {
    /// Writes the number of the line, what is wrong with it, what this means, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.what {
            VerifyErrorKind::Read(error) => {
                write!(f, "cannot be read: {error}; check that the file exists, and its permissions")
            }
            VerifyErrorKind::Empty => write!(f, "the file is empty: the log was deleted, or nothing was ever written to it; {RESTORE_LOG}"),
            VerifyErrorKind::Torn => f.write_str(
                "the line is incomplete: it is being written, or a process was killed while it wrote; the next process that opens the log moves the line aside",
            ),
            VerifyErrorKind::Long => write!(f, "the line is longer than {MAX_LINE} bytes, the limit for lines of a log; {RESTORE_LOG}"),
            VerifyErrorKind::Flaw(flaw) => write!(f, "{flaw}; {RESTORE_LOG}"),
            VerifyErrorKind::Seq(found) => {
                let line = self.line.saturating_sub(1);
                write!(f, "`seq` is {found} instead of {line}: lines were removed, added or reordered; {RESTORE_LOG}")
            }
            VerifyErrorKind::Previous => write!(
                f,
                "the line does not contain the hash of the previous line: one of the two was changed, or lines were \
                 removed; {RESTORE_LOG}"
            ),
            VerifyErrorKind::NotOpened => write!(f, "the line does not name the format and the key of the log: the beginning of the log is missing, or the line was changed; {RESTORE_LOG}"),
            VerifyErrorKind::Format => f.write_str("the record was written by a later version of Flowgate: \
                check the log with that version"),
            VerifyErrorKind::OtherKey => f.write_str(
                "the log was created with another key than the given one: give the public key, from `FILE.pub` or from the original first line",
            ),
            VerifyErrorKind::ChangedKey => write!(f, "this line names another key than the first line of the log: the key was replaced, or the log was forged; {RESTORE_LOG}"),
            VerifyErrorKind::Signature => write!(f, "the signature does not match the key: a line up to here was changed, or the signature is forged; {RESTORE_LOG}"),
            VerifyErrorKind::Missing(hash) => write!(f, "the log ends here without the line {hash}: it was truncated or replaced; {RESTORE_LOG}"),
            VerifyErrorKind::Short(seq) => write!(f, "the log ends here, but should reach line {}: it was truncated; {RESTORE_LOG}", seq.saturating_add(1)),
            VerifyErrorKind::Behind(seq) => write!(
                f,
                "the log ends here, but the database has recorded its line {}: it was truncated; {RESTORE_LOG}",
                seq.saturating_add(1)
            ),
            VerifyErrorKind::Unanchored => write!(f, "the database has another hash for this line: the log was truncated and then continued; {RESTORE_LOG}"),
            VerifyErrorKind::Unseen(seq) => write!(
                f,
                "the log ends here, but the witness has received its line {}: it was truncated, or restored to an earlier state; {RESTORE_LOG}",
                seq.saturating_add(1)
            ),
            VerifyErrorKind::Contradicted => {
                write!(f, "the witness has another hash for this line: the log was truncated and then continued; {RESTORE_LOG}")
            }
            VerifyErrorKind::Unwitnessed => f.write_str(
                "the witness has no head of this log: it keeps heads of another log, or has not received a head yet; give \
                 the file of the witness of this log",
            ),
            VerifyErrorKind::Content => write!(
                f,
                "the content does not match the digest in its record: the content was changed; {RESTORE_CONTENTS}"
            ),
            VerifyErrorKind::Foreign => write!(f, "this content belongs to no line of the log: entries were added, moved or renumbered; {RESTORE_CONTENTS}"),
            VerifyErrorKind::ContentKeyMissing { line, key } => write!(
                f,
                "the content in line {line} of the file of contents is encrypted with the key {key}, and no key was given: \
                 give the configuration that names the key in [store] with `--config`"
            ),
            VerifyErrorKind::ContentKeyOther { line, key, given } => write!(
                f,
                "the content in line {line} of the file of contents is encrypted with the key {key}, and the configuration \
                 has other keys ({given}): add that key after the first one"
            ),
            VerifyErrorKind::ContentAltered(line) => write!(
                f,
                "the encrypted content in line {line} of the file of contents cannot be decrypted: it was altered, or moved \
                 from another line or log; restore the file from a copy"
            ),
            VerifyErrorKind::Unreadable(line) => write!(f, "the file of contents cannot be read at its line {line}: it was changed; {RESTORE_CONTENTS}"),
        }
    }
}

impl std::error::Error for VerifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.what {
            VerifyErrorKind::Flaw(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::{AuditError, AuditLoss, WitnessLineError};

    #[test]
    fn public_error_types_are_standard_errors_with_sources() {
        fn check<E: Error + Send + Sync + 'static>() {}
        check::<AuditError>();
        check::<AuditLoss>();
        check::<RecordError>();
        check::<WitnessLineError>();
        let error = VerifyError { line: 1, what: VerifyErrorKind::Flaw(RecordError::Encoding) };
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("not UTF-8"));
    }
}
