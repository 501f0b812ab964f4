//! Writes the lines that a witness receives, reads a witness's record of logs, and compares a log with this record.
//! The record is a file outside the gateway with signed heads of logs, one per line. The writer of a log, the gateway
//! at its start and `flowgate audit` call this module.
//!
//! A log and its database still agree with each other if both were restored to the same earlier state. A witness that
//! has received a later head shows what was lost.
//!
//! ```json
//! {"witness":1,"log":"5f2c…","key":"9a41…","lines":1204,"head":"77e0…","time":1766000000000,"signature":"03bd…"}
//! ```
//!
//! `log` is the hash of the log's first line, `lines` the number of its lines and `head` the hash of its last line at
//! that time. `signature` is Ed25519, over `flowgate audit witness 1`, a line feed, and the bytes of the line before
//! `,"signature":`. A field `gives_up` records a loss that an operator has accepted: the lines of its `log` from number
//! `since` on, counted from 1, are no longer expected.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead};

use flowgate::json::{self, Numbers};
use serde_json::{Map, Value};

use super::anchor::UnopenedLog;
use super::bounded_lines::{BoundedLines, NextLine};
use super::chain::LogHead;
use super::error::AuditErrorKind;
use super::key::{AuditKey, AuditPublicKey};
use super::line_hash::{LineHash, hex, parse_hex};
use super::loss::{AuditLoss, LogAnchor};
use super::record::Timestamp;

/// The prefix of every signed message, for domain separation.
const DOMAIN: &[u8] = b"flowgate audit witness 1\n";
/// The text between a line and its signature.
const SIGNATURE_SEPARATOR: &str = ",\"signature\":\"";
/// The version of the line format.
const FORMAT: u64 = 1;
/// The maximum size of a line, in bytes.
const MAX_WITNESS_LINE: usize = 4 << 10;
/// The largest integer that every JSON parser represents exactly.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The state of a log at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WitnessLine {
    /// The log, by the hash of its first line.
    pub log: LineHash,
    /// The public key of the log.
    pub key: AuditPublicKey,
    /// The last line at that time.
    pub head: LogHead,
    /// The time.
    pub time: Timestamp,
    /// The loss that an operator has accepted.
    pub gives_up: Option<AcceptedLoss>,
}

/// Lines that an operator declares lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// The log, by the hash of its first line.
    pub log: LineHash,
    /// The number of the first lost line, from 0; all later ones are lost as well.
    pub since: u64,
}

/// The reason why a line is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WitnessLineError {
    /// The line is malformed.
    Form,
    /// The line is not signed by the key that it names.
    Signature,
    /// The line is signed with a key that is not the key of its log.
    OtherKey,
}

impl fmt::Display for WitnessLineError {
    /// Writes what is wrong with the line, and what this means.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "the line is not one that a gateway sent to the witness: it was changed, or another program \
                added it; find out who changed the file"
            }
            Self::Signature => {
                "the signature of the line does not match the key that the line names: the line was changed \
                or forged; find out who changed the file"
            }
            Self::OtherKey => {
                "the line is signed with a key that is not the key of its log: the line is forged; find out who changed \
                the file"
            }
        })
    }
}

impl std::error::Error for WitnessLineError {}

impl WitnessLine {
    /// Returns the line, signed with `key`, without the line feed. The line contains the public half of `key`.
    pub(super) fn signed_line(&self, key: &AuditKey) -> String {
        let Self { log, head, time, gives_up, .. } = self;
        let mut line = Map::new();
        line.insert("witness".to_owned(), FORMAT.into());
        line.insert("log".to_owned(), log.to_string().into());
        line.insert("key".to_owned(), key.public_key().to_string().into());
        // Lines are counted from 1 here. A number beyond the bound would not be exact for every JSON parser.
        line.insert("lines".to_owned(), head.seq.saturating_add(1).min(MAX_NUMBER).into());
        line.insert("head".to_owned(), head.hash.to_string().into());
        line.insert("time".to_owned(), time.clamped().into());
        if let Some(AcceptedLoss { log: lost_log, since }) = gives_up {
            let mut lost = Map::new();
            lost.insert("log".to_owned(), lost_log.to_string().into());
            lost.insert("since".to_owned(), since.saturating_add(1).min(MAX_NUMBER).into());
            line.insert("gives_up".to_owned(), Value::Object(lost));
        }
        let line = Value::Object(line).to_string();
        // The signature covers the object without its closing brace, and is added as the last member.
        let signed = line.strip_suffix('}').unwrap_or(&line);
        format!("{signed}{SIGNATURE_SEPARATOR}{}\"}}", hex(&key.sign(&signed_message(signed))))
    }

    /// Parses and verifies a line, without its line feed.
    ///
    /// # Errors
    /// Fails if the line is malformed or not signed by the key that it names.
    pub fn read(line: &[u8]) -> Result<Self, WitnessLineError> {
        let text = std::str::from_utf8(line).map_err(|_| WitnessLineError::Form)?;
        let Ok(Value::Object(object)) = json::parse(text, Numbers::Exact) else {
            return Err(WitnessLineError::Form);
        };
        let witness_line = Self::from_fields(&object).ok_or(WitnessLineError::Form)?;
        // The signature is the last member of the object, and covers the text before it.
        let (signed, rest) = text.split_once(SIGNATURE_SEPARATOR).ok_or(WitnessLineError::Form)?;
        let signature = rest.strip_suffix("\"}").and_then(parse_hex).ok_or(WitnessLineError::Form)?;
        if witness_line.key.has_signed(&signed_message(signed), &signature) {
            Ok(witness_line)
        } else {
            Err(WitnessLineError::Signature)
        }
    }

    /// Reads the fields of a line except the signature. Returns `None` if a field is missing or malformed.
    fn from_fields(object: &Map<String, Value>) -> Option<Self> {
        let number = |object: &Map<String, Value>, name: &str| object.get(name).and_then(Value::as_u64);
        // Lines are counted from 1 in the file, and from 0 here.
        let line_index = |object: &Map<String, Value>, name: &str| number(object, name)?.checked_sub(1);
        let hash = |object: &Map<String, Value>, name: &str| LineHash::parse(object.get(name)?.as_str()?);
        if number(object, "witness")? != FORMAT {
            return None;
        }
        let gives_up = match object.get("gives_up") {
            None => None,
            Some(lost) => {
                let lost = lost.as_object()?;
                Some(AcceptedLoss { log: hash(lost, "log")?, since: line_index(lost, "since")? })
            }
        };
        Some(Self {
            log: hash(object, "log")?,
            key: object.get("key").and_then(Value::as_str).and_then(AuditPublicKey::parse)?,
            head: LogHead { seq: line_index(object, "lines")?, hash: hash(object, "head")? },
            time: Timestamp(number(object, "time")?),
            gives_up,
        })
    }
}

/// Returns the bytes that the key signs: a fixed prefix, and the text of a line before its signature (`signed`).
fn signed_message(signed: &str) -> Vec<u8> {
    [DOMAIN, signed.as_bytes()].concat()
}

/// A witness's record of logs.
#[derive(Debug, Clone, Default)]
pub struct WitnessRecord {
    logs: Vec<WitnessedLog>,
    /// The rejected lines, by their numbers from 1.
    rejected: Vec<(u64, WitnessLineError)>,
    /// The number of partial lines, which killed writers have left.
    partial_lines: u64,
}

/// A witness's record of one log.
#[derive(Debug, Clone)]
struct WitnessedLog {
    log: LineHash,
    key: AuditPublicKey,
    /// The hashes of its lines, by number; more than one if the log was forked.
    heads: BTreeMap<u64, Vec<LineHash>>,
    /// The last accepted loss: the number of the first lost line, and the time at which it was accepted.
    given_up: Option<(u64, Timestamp)>,
}

impl WitnessRecord {
    /// Reads the record of a witness, one signed head per line. A partial line, which a killed writer left, is only
    /// counted. Any other line that is malformed or wrongly signed is [rejected](Self::rejected_lines). A line that is
    /// too long is rejected and ends the reading, because the reader cannot find the next line after it.
    ///
    /// # Errors
    /// Fails on an I/O error; an invalid line is no error.
    pub fn read(reader: impl BufRead) -> io::Result<Self> {
        let mut lines = BoundedLines::new(reader, MAX_WITNESS_LINE);
        let (mut witness, mut number) = (Self::default(), 0_u64);
        loop {
            number += 1;
            match lines.next()? {
                NextLine::End => return Ok(witness),
                NextLine::Torn => {
                    witness.partial_lines += 1;
                    return Ok(witness);
                }
                NextLine::Long => {
                    witness.rejected.push((number, WitnessLineError::Form));
                    return Ok(witness);
                }
                // An empty line claims nothing, so it is neither rejected nor counted.
                NextLine::Line(b"") => {}
                NextLine::Line(line) => match WitnessLine::read(line) {
                    Ok(line) => witness.add(number, &line),
                    // A partial line need not be the last one: a later process has written after it.
                    Err(WitnessLineError::Form) if is_torn(line) => witness.partial_lines += 1,
                    Err(error) => witness.rejected.push((number, error)),
                },
            }
        }
    }

    /// Adds a valid line of the file: removes the heads that the line gives up as an accepted loss, and adds the head
    /// of the line. `number` is the number of the line in the file, from 1. The first line of a log determines the key of
    /// the log; a later line with another key is rejected as a forgery.
    fn add(&mut self, number: u64, line: &WitnessLine) {
        let WitnessLine { log, key, head, time, gives_up } = *line;
        if let Some(AcceptedLoss { log: lost_log, since }) = gives_up {
            // A line gives up only lines of logs with the same key.
            for witnessed in
                self.logs.iter_mut().filter(|witnessed| witnessed.log == lost_log && witnessed.key == key)
            {
                // The first lost line has the number `since`; the heads before it remain.
                drop(witnessed.heads.split_off(&since));
                witnessed.given_up = Some((since, time));
            }
        }
        let at = match self.logs.iter().position(|witnessed| witnessed.log == log) {
            Some(at) => at,
            None => {
                self.logs.push(WitnessedLog { log, key, heads: BTreeMap::new(), given_up: None });
                self.logs.len() - 1
            }
        };
        let Some(witnessed) = self.logs.get_mut(at) else { return };
        if witnessed.key != key {
            self.rejected.push((number, WitnessLineError::OtherKey));
            return;
        }
        // A forked log has several lines with one number; all of them are remembered.
        let heads = witnessed.heads.entry(head.seq).or_default();
        if !heads.contains(&head.hash) {
            heads.push(head.hash);
        }
    }

    /// Returns the rejected lines, by their numbers from 1.
    pub fn rejected_lines(&self) -> &[(u64, WitnessLineError)] {
        &self.rejected
    }

    /// Returns the number of partial lines, which killed writers have left.
    pub fn partial_lines(&self) -> u64 {
        self.partial_lines
    }

    /// Returns how many lines of a log the witness has recorded, and the last of these lines; `None` if the witness has
    /// recorded none. `log` is the hash of the log's first line. Lines of a forked log with the same number count once.
    pub fn last_line_of(&self, log: LineHash) -> Option<(usize, LogHead)> {
        let witnessed = self.logs.iter().find(|witnessed| witnessed.log == log)?;
        Some((witnessed.heads.len(), witnessed.last()?))
    }

    /// Returns the accepted losses of the logs that this key has signed. Each item contains the hash of the log's first
    /// line, the number of the first lost line (from 0), and the time at which the loss was accepted.
    pub fn accepted_losses(&self, key: AuditPublicKey) -> impl Iterator<Item = (LineHash, u64, Timestamp)> {
        let of_key = self.logs.iter().filter(move |witnessed| witnessed.key == key);
        of_key.filter_map(|witnessed| witnessed.given_up.map(|(since, time)| (witnessed.log, since, time)))
    }

    /// Returns each log that this key has signed, by the hash of its first line, and the last line of it that the
    /// witness has recorded.
    pub fn signed_by(&self, key: AuditPublicKey) -> impl Iterator<Item = (LineHash, LogHead)> {
        let of_key = self.logs.iter().filter(move |witnessed| witnessed.key == key);
        of_key.filter_map(|witnessed| Some((witnessed.log, witnessed.last()?)))
    }

    /// Returns whether the witness has recorded, for the log whose first line has the hash `log`, a line with the
    /// number of `line` and another hash.
    pub(super) fn contradicts(&self, log: LineHash, line: LogHead) -> bool {
        let Some(witnessed) = self.logs.iter().find(|witnessed| witnessed.log == log) else { return false };
        witnessed.heads.get(&line.seq).is_some_and(|heads| heads.iter().any(|head| *head != line.hash))
    }

    /// Returns a loss that the witness shows: the last line that it has received of a log with the same key as
    /// `log_file`, the log that is about to be opened, if `log_file` does not contain this line. `None` if `log_file`
    /// contains the last received line of every log with its key.
    ///
    /// A line of another log is lost, too: a gateway writes one log with its key, so `log_file` has taken the place of
    /// the other log. Lines whose loss an operator has accepted do not count.
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn loss(&self, log_file: &mut UnopenedLog<'_>) -> Result<Option<AuditLoss>, AuditErrorKind> {
        let (id, lines, key) = (log_file.id()?, log_file.next, log_file.key);
        // Only the record of a database uses the field `after`, so its value does not matter here.
        let to_anchor = |(log, head)| LogAnchor { log, key, head, after: 0 };
        for anchor in self.signed_by(key).map(to_anchor) {
            let has_line =
                Some(anchor.log) == id && log_file.hash_of(anchor.head.seq)? == Some(anchor.head.hash);
            if !has_line {
                return Ok(Some(AuditLoss::Witness { anchor, lines }));
            }
        }
        Ok(None)
    }
}

impl WitnessedLog {
    /// Returns the recorded line with the greatest number. If the log was forked and several lines have this number,
    /// returns the one that was received last.
    fn last(&self) -> Option<LogHead> {
        let (seq, heads) = self.heads.last_key_value()?;
        Some(LogHead { seq: *seq, hash: *heads.last()? })
    }
}

/// Returns whether an invalid line looks like the beginning of a valid one. A process that was killed while it wrote has
/// then left this line, and the next process has begun a new line after it.
fn is_torn(line: &[u8]) -> bool {
    let begins = b"{\"witness\":";
    !line.ends_with(b"}") && (line.starts_with(begins) || begins.starts_with(line))
}

#[cfg(test)]
mod tests;
