//! Compares an audit log with the record of the log in the gateway's database, and detects losses on either side.
//! The gateway calls [`DatabaseLogAnchors::loss`] when it opens a log.
//!
//! An *anchor* is the last signed line of a log, as the database has recorded this line. A line is written to the log
//! before the turn that the line describes is stored in the database, so a log may be ahead of its database, but never
//! behind it. If a log contains events and the database has no anchor for the log, the log was written with another
//! database.

use std::fs::File;

use super::bounded_lines::{BoundedLines, NextLine};
use super::error::AuditErrorKind;
use super::key::AuditPublicKey;
use super::line_hash::LineHash;
use super::loss::{AuditLoss, LogAnchor};
use super::record::{AuditRecord, MAX_LINE};
use super::record_kind::RecordKind;
use super::tail;

/// A database's record of all its logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseLogAnchors {
    /// The identity of the database.
    pub database: String,
    /// Whether several gateways use the database, each with its own log.
    pub is_shared: bool,
    /// Whether the database had conversations before it recorded logs.
    pub is_upgraded: bool,
    /// The recorded logs.
    pub logs: Vec<LogAnchor>,
}

/// The file of a log that is about to be opened, for checks before anything is written to it.
#[derive(Debug)]
pub struct UnopenedLog<'f> {
    file: &'f mut File,
    /// The size of the complete lines, in bytes.
    whole: u64,
    /// The number of the next line.
    pub next: u64,
    /// The public half of the key that signs.
    pub key: AuditPublicKey,
}

/// The kinds of records that a gateway writes without any event: its start writes one of each.
const FIRST_LINE_KINDS: [RecordKind; 3] =
    [RecordKind::Opened, RecordKind::Head, RecordKind::ConfigurationLoaded];

impl<'f> UnopenedLog<'f> {
    /// Creates the view of a log from its file, the end that [`tail::find`] has found in it, and the key that will
    /// sign.
    pub(super) fn new(file: &'f mut File, end: &tail::LogTail, key: AuditPublicKey) -> Self {
        Self { file, whole: end.whole, next: end.next, key }
    }

    /// Returns the identity of the log: the hash of its first line. `None` if it has no complete line.
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn id(&mut self) -> Result<Option<LineHash>, AuditErrorKind> {
        // 0 if there was no complete line when the end of the log was found. A line that was completed since then does
        // not count.
        let whole = self.whole;
        let mut lines = self.lines()?;
        Ok(match lines.next().map_err(AuditErrorKind::Read)? {
            NextLine::Line(line) if whole > 0 => Some(LineHash::of_line(line)),
            // An empty log, or one whose first line is partial or too long, has no identity.
            _ => None,
        })
    }

    /// Returns the hash of the line with the number `seq`; `None` if the log does not have the line. Reads backwards,
    /// since the line is usually near the end of the log. Fails at a malformed line.
    pub(super) fn hash_of(&mut self, seq: u64) -> Result<Option<LineHash>, AuditErrorKind> {
        // The offset after the line that is read next.
        let mut at = self.whole;
        while at > 0 {
            let line = tail::line_before(self.file, &mut at)?;
            let record = AuditRecord::read(&line).map_err(|flaw| {
                AuditErrorKind::End(format!("the line that begins at byte {at} is {flaw}"))
            })?;
            // Numbers fall towards the beginning, so the search ends here even if this is another line.
            if record.seq <= seq {
                return Ok((record.seq == seq).then(|| LineHash::of_line(&line)));
            }
        }
        Ok(None)
    }

    /// Returns whether the log contains any line except those that the start of a gateway writes
    /// ([`FIRST_LINE_KINDS`]). A line that cannot be parsed or is too long counts as an event; a partial last line,
    /// which was never recorded, does not.
    fn has_events(&mut self) -> Result<bool, AuditErrorKind> {
        let mut lines = self.lines()?;
        loop {
            match lines.next().map_err(AuditErrorKind::Read)? {
                NextLine::Line(line) => match AuditRecord::read(line) {
                    Ok(record) if FIRST_LINE_KINDS.contains(&record.kind) => {}
                    _ => return Ok(true),
                },
                NextLine::End | NextLine::Torn => return Ok(false),
                NextLine::Long => return Ok(true),
            }
        }
    }

    /// Returns a reader of all lines, from the beginning of the file.
    fn lines(&mut self) -> Result<BoundedLines<std::io::BufReader<&mut File>>, AuditErrorKind> {
        std::io::Seek::rewind(self.file).map_err(AuditErrorKind::Read)?;
        Ok(BoundedLines::new(std::io::BufReader::new(&mut *self.file), MAX_LINE))
    }
}

impl DatabaseLogAnchors {
    /// Returns the contradiction between this record and a log that is about to be opened; `None` if they agree. They
    /// contradict each other if the recorded line is missing in the log or different, if the database has recorded
    /// another log of this gateway and not this one, or if the database has recorded no log although this one has
    /// events. The last is no contradiction if an earlier version of the gateway, which recorded no logs, used the
    /// database.
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn loss(&self, log: &mut UnopenedLog<'_>) -> Result<Option<AuditLoss>, AuditErrorKind> {
        // The number of the next line is the number of lines.
        let (id, lines) = (log.id()?, log.next);
        if let Some(anchor) = self.logs.iter().find(|anchor| Some(anchor.log) == id).copied() {
            return Ok(match log.hash_of(anchor.head.seq)? {
                None => Some(AuditLoss::Behind { anchor, lines }),
                Some(hash) if hash != anchor.head.hash => Some(AuditLoss::Changed { anchor, lines }),
                Some(_) => None,
            });
        }
        // The database has no record of this log. If it has a record of another log of this gateway, that log is
        // missing. If several gateways share the database, each has its own key, and the records of logs with other keys
        // belong to other gateways.
        let lost_log = self.logs.iter().find(|anchor| !self.is_shared || anchor.key == log.key).copied();
        if let Some(anchor) = lost_log {
            return Ok(Some(AuditLoss::Missing { anchor, lines }));
        }
        // An earlier version of the gateway recorded no anchors, so its database may lack one for a log with events.
        let may_lack_anchors = self.is_upgraded && self.logs.is_empty();
        Ok((!may_lack_anchors && log.has_events()?).then_some(AuditLoss::Database { lines }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::LogHead;
    use super::super::{AuditError, AuditKey, AuditLog, AuditOptions, Timestamp};
    use super::*;
    use crate::log::tests::{TestFolder, key, withheld};

    /// Opens a log with these lines, and expects this error.
    fn check(lines: &[&str], anchors: &DatabaseLogAnchors, expected: Option<&str>) {
        let folder = TestFolder::new("anchored");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.log(), &text).unwrap();
        let opened =
            AuditLog::open_after(&folder.log(), key(), AuditOptions::default(), Timestamp(9), |log| {
                anchors.loss(log)
            });
        let error = opened.err().map(|error: AuditError| error.to_string());
        match (&error, expected) {
            (None, None) => {}
            (Some(error), Some(expected)) => {
                assert!(error.contains(expected) && error.contains("audit accept-loss"), "{error}");
                // Nothing was written.
                assert_eq!(std::fs::read_to_string(folder.log()).unwrap(), text);
            }
            _ => panic!("{error:?} {expected:?}"),
        }
    }

    /// Writes a log with two events. Returns its text, and the record that a database has of its last line.
    fn log(name: &str) -> (String, LogAnchor) {
        let folder = TestFolder::new(name);
        let log = folder.open(AuditOptions::default()).unwrap();
        for conversation in [name, "c2"] {
            log.append(Timestamp(2), &withheld(conversation)).unwrap();
        }
        let head = log.last_line().get();
        let id = log.id();
        drop(log);
        let text = std::fs::read_to_string(folder.log()).unwrap();
        (text, LogAnchor { log: id, key: key().public_key(), head, after: 0 })
    }

    #[test]
    fn a_log_that_lost_lines_is_not_continued() {
        let (text, anchor) = log("one");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), anchor.head.seq), (5, 3));
        let known =
            |logs: &[LogAnchor]| DatabaseLogAnchors { logs: logs.to_vec(), ..DatabaseLogAnchors::default() };
        let shared = |logs: &[LogAnchor]| DatabaseLogAnchors { is_shared: true, ..known(logs) };
        let one = known(&[anchor]);
        // Unchanged; ahead of the database after a killed process; with one more head.
        check(&lines, &one, None);
        check(&lines[..4], &one, None);
        let earlier =
            LogAnchor { head: LogHead { seq: 2, hash: LineHash::of_line(lines[2].as_bytes()) }, ..anchor };
        check(&lines, &known(&[earlier]), None);
        // Truncated at each line.
        for (count, there) in [(3, "it has 3 lines"), (2, "it has 2 lines"), (1, "it has 1 lines")] {
            check(&lines[..count], &one, Some(there));
            check(&lines[..count], &shared(&[anchor]), Some(there));
        }
        // Emptied; created again; truncated and continued by a party with the key.
        check(&[], &one, Some("the log that the database has recorded up to line 4"));
        check(&[], &shared(&[anchor]), Some("there is no log here"));
        let (other, _) = log("other");
        let others: Vec<&str> = other.lines().collect();
        check(
            &others[..2],
            &known(&[LogAnchor { log: LineHash::NONE, ..anchor }]),
            Some("another log, with 2 lines,"),
        );
        let mut rewritten = lines[..2].to_vec();
        rewritten.extend(&others[2..]);
        check(
            &rewritten,
            &one,
            Some("the log differs from the one that its database has recorded, in which line 4"),
        );
        // A database without a record of a log with events was deleted, unless it is older than its record of logs.
        check(&lines, &known(&[]), Some("the database has no record of this log of 5 lines"));
        check(&lines, &DatabaseLogAnchors { is_upgraded: true, ..known(&[]) }, None);
        check(&lines[..2], &known(&[]), None);
        check(&[], &known(&[]), None);
        // Another gateway of a shared database creates its own log, with its own key.
        let foreign =
            LogAnchor { log: LineHash::NONE, key: AuditKey::from_seed([8; 32]).public_key(), ..anchor };
        check(&[], &shared(&[foreign]), None);
        check(&lines, &shared(&[foreign]), Some("the database has no record of this log"));
        check(&lines, &shared(&[foreign, anchor]), None);
        check(&[], &known(&[foreign]), Some("there is no log here"));
    }
}
