//! Defines [`AuditLoss`], the ways in which a log can contradict the record of the log in a database or at a witness,
//! with their texts for the operator. `anchor` and `witness` detect these losses. Also defines [`LogAnchor`], the record
//! of one log.

use std::fmt;

use super::chain::LogHead;
use super::key::AuditPublicKey;
use super::line_hash::LineHash;

/// A database's record of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogAnchor {
    /// The log, by the hash of its first line.
    pub log: LineHash,
    /// The public key of the log.
    pub key: AuditPublicKey,
    /// A line that the log must contain.
    pub head: LogHead,
    /// The number of the newest conversation at the time when the database first recorded the log, or recorded it again
    /// after a loss of lines. The log may lack turns of this conversation and of those with lower numbers.
    pub after: i64,
}

/// A detected loss of a log or a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditLoss {
    /// The log does not contain a line that the database records.
    Behind {
        /// The database's record.
        anchor: LogAnchor,
        /// The number of lines in the log.
        lines: u64,
    },
    /// The log contains a line with the number that the database records, but with another hash.
    Changed {
        /// The database's record.
        anchor: LogAnchor,
        /// The number of lines in the log.
        lines: u64,
    },
    /// The log that the database records is missing or was emptied; the present file is empty or another log.
    Missing {
        /// The database's record.
        anchor: LogAnchor,
        /// The number of lines in the log that is there instead.
        lines: u64,
    },
    /// The log does not contain a line that a witness records, or is another log than the witness records.
    Witness {
        /// The witness's record.
        anchor: LogAnchor,
        /// The number of lines in the present log.
        lines: u64,
    },
    /// The database has no record of the log: the database was deleted, or is not the one of this log.
    Database {
        /// The number of lines in the log.
        lines: u64,
    },
}

impl AuditLoss {
    /// Returns the name by which a record of the log describes the loss, when the operator has accepted it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Behind { .. } => "log behind its database",
            Self::Changed { .. } => "log changed",
            Self::Missing { .. } => "log missing",
            Self::Witness { .. } => "log behind its witness",
            Self::Database { .. } => "database missing",
        }
    }

    /// Returns the recorded line that the log contradicts, as the database or a witness has it; `None` if the database
    /// has no record of the log.
    pub fn contradicted_anchor(&self) -> Option<&LogAnchor> {
        match self {
            Self::Behind { anchor, .. }
            | Self::Changed { anchor, .. }
            | Self::Missing { anchor, .. }
            | Self::Witness { anchor, .. } => Some(anchor),
            Self::Database { .. } => None,
        }
    }

    /// Returns the number of lines in the present log.
    pub fn lines(&self) -> u64 {
        match self {
            Self::Behind { lines, .. }
            | Self::Changed { lines, .. }
            | Self::Missing { lines, .. }
            | Self::Witness { lines, .. }
            | Self::Database { lines } => *lines,
        }
    }
}

/// The operator's remedy for a loss.
const ADVICE: &str = "restore what is missing from a copy; or, once you know why it is missing, record the loss with \
     `flowgate audit accept-loss --config FILE`, and start again";

impl fmt::Display for AuditLoss {
    /// Writes what was lost, the likely causes, and the advice how the operator can continue.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind { anchor, lines } => write!(
                f,
                "the log is behind its database: it has {lines} lines, but the database has recorded line {} ({}): the log was truncated, or a power failure destroyed its end; {ADVICE}",
                anchor.head.seq.saturating_add(1),
                anchor.head.hash
            ),
            Self::Changed { anchor, .. } => write!(
                f,
                "the log differs from the one that its database has recorded, in which line {} has the hash {}: the log was truncated and then continued; {ADVICE}",
                anchor.head.seq.saturating_add(1),
                anchor.head.hash
            ),
            Self::Missing { anchor, lines } => {
                let there = if *lines == 0 {
                    "there is no log here".to_owned()
                } else {
                    format!("another log, with {lines} lines, is in its place")
                };
                write!(
                    f,
                    "the log that the database has recorded up to line {} ({}) is missing: {there}; {ADVICE}",
                    anchor.head.seq.saturating_add(1),
                    anchor.head.hash
                )
            }
            Self::Witness { anchor, lines } => write!(
                f,
                "the witness has received line {} ({}) of the log {}, and this line is missing: this log has {lines} lines; the log was truncated or replaced, or restored to an earlier state together with its database; {ADVICE}",
                anchor.head.seq.saturating_add(1),
                anchor.head.hash,
                anchor.log
            ),
            Self::Database { lines } => write!(
                f,
                "the database has no record of this log of {lines} lines: the database was deleted or is another one, so the labels of stores are lost; {ADVICE}"
            ),
        }
    }
}

impl std::error::Error for AuditLoss {}
