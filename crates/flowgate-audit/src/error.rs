//! Defines the errors of opening and writing an audit log and of reading its key, with their texts for the operator.
//! [`AuditLog`](super::AuditLog) and `key_file` return them, and the gateway prints them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::loss::AuditLoss;
use super::verify_error::VerifyError;

/// An error, with its file.
#[derive(Debug)]
pub struct AuditError {
    /// The file.
    pub file: PathBuf,
    /// The error.
    pub failure: AuditErrorKind,
}

/// The kinds of errors.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuditErrorKind {
    /// The file cannot be read.
    Read(io::Error),
    /// The file cannot be written.
    Write(io::Error),
    /// Another process appends to the log.
    Locked,
    /// Written records may not be on the disk.
    Broken,
    /// The file is shorter than what was written to it.
    Truncated,
    /// The end of the log is malformed.
    End(String),
    /// The log was created with another key.
    OtherKey,
    /// The key file contains no seed.
    NoKey,
    /// The key file is missing, and its public half exists.
    LostKey,
    /// All users may read the key file.
    OpenKey,
    /// The log or its database has lost something.
    Loss(Box<AuditLoss>),
    /// The system provides no random bytes.
    Random,
    /// The kept content in this line cannot be read.
    Content(u64),
    /// A content cannot be encrypted.
    NotSealed,
    /// The log or its contents are not as they were written, or a key of its contents is missing.
    Unverified(VerifyError),
}

impl AuditError {
    /// Creates the error of an operation on a file.
    pub(super) fn new(file: &Path, failure: AuditErrorKind) -> Self {
        Self { file: file.to_owned(), failure }
    }
}

impl fmt::Display for AuditError {
    /// Writes the file, the failure and what the operator can do about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.failure {
            AuditErrorKind::Read(error) => {
                write!(f, "cannot be read: {error}; check that the file exists, and its permissions")
            }
            AuditErrorKind::Write(error) => {
                write!(
                    f,
                    "cannot be written: {error}; remove the cause, such as a full disk: until then, nothing is recorded, and nothing runs that must be recorded"
                )
            }
            AuditErrorKind::Locked => {
                f.write_str("another process has opened this log for writing: stop it, or name another file")
            }
            AuditErrorKind::Broken => f.write_str(
                "the last records may not be on the disk, since the disk or the gateway failed: check the disk, then restart the gateway; until then, nothing is recorded",
            ),
            AuditErrorKind::Truncated => f.write_str(
                "the file is shorter than what the gateway wrote to it, so another program truncated it: stop that program, restore the file from a copy, and restart the gateway; until then, nothing is recorded, and nothing runs that must be recorded",
            ),
            AuditErrorKind::End(what) => write!(
                f,
                "the log cannot continue from its end: {what}; check it with `flowgate audit verify`, keep it, and \
                 begin another file"
            ),
            AuditErrorKind::OtherKey => {
                f.write_str("the log was created with another key: use that key, or begin another file")
            }
            AuditErrorKind::NoKey => f.write_str(
                "the file contains no key: write 64 hexadecimal digits into it, as `openssl rand -hex 32` \
                prints them",
            ),
            AuditErrorKind::LostKey => f.write_str(
                "the key is missing, but its public half exists as FILE.pub: restore the key from a copy; or move the log and FILE.pub \
                 away, to begin another log with another key",
            ),
            AuditErrorKind::OpenKey => f.write_str("the permissions of the file let other users read this \
                key: run `chmod 600` on it, or create another key"),
            AuditErrorKind::Loss(loss) => write!(f, "{loss}"),
            AuditErrorKind::Random => f.write_str("the random generator of the operating system failed: try \
                again"),
            AuditErrorKind::Content(line) => {
                write!(f, "line {line} of the file of contents is not a valid entry, since it was changed, or another \
                    program wrote it: remove the line, and try again")
            }
            AuditErrorKind::NotSealed => f.write_str(
                "a content cannot be encrypted, since the random generator of the operating system failed: try again; \
                 until then, nothing with content is recorded",
            ),
            AuditErrorKind::Unverified(problem) => write!(f, "{problem}"),
        }
    }
}

impl std::error::Error for AuditError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.failure {
            AuditErrorKind::Read(error) | AuditErrorKind::Write(error) => Some(error),
            AuditErrorKind::Loss(loss) => Some(&**loss),
            AuditErrorKind::Unverified(problem) => Some(problem),
            _ => None,
        }
    }
}
