//! Verification of a log: no line changed, removed or inserted.
//!
//! A log alone cannot show that lines are missing at its end: truncated after a head, it is still consistent. The
//! verifier therefore supplies the hash of a head or the number of a line from elsewhere. `flowgate audit verify` calls
//! this.

use std::fmt;
use std::io::BufRead;

use serde_json::Value;

use super::anchor::Anchor;
use super::chain::{HEAD, Hash, Head, SIGNATURE, is_signed};
use super::key::PublicKey;
use super::lines::{Lines, Next};
use super::record::{Flaw, MAX_LINE, Record, Time};
use super::sidecar::Sidecar;
use super::witness::Witness;

/// The kind of the first record of each opening.
pub(super) const OPENED: &str = "opened";
/// The kind of the record of deleted content.
pub(super) const FORGOTTEN: &str = "forgotten";
/// The version of the line format.
pub(super) const FORMAT: u64 = 1;

/// The verifier's knowledge from outside the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected<'a> {
    /// The public key. Without it, the key that the log itself names is used.
    pub key: Option<PublicKey>,
    /// The hash of a line that the log must contain.
    pub hash: Option<Hash>,
    /// The number of a line that the log must contain, from 0; with `hash`, the number of that line.
    pub seq: Option<u64>,
    /// The database's record of its logs.
    pub anchors: &'a [Anchor],
    /// A witness's record of logs.
    pub witness: Option<&'a Witness>,
}

/// The result for a valid log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The identity of the log: the hash of its first line.
    pub id: Hash,
    /// The database's record of the log, which the log matches.
    pub anchor: Option<Anchor>,
    /// The number of the log's lines that a witness records, and the last of them; the log contains them all.
    pub witnessed: Option<(usize, Head)>,
    /// The number of lines.
    pub lines: u64,
    /// The key that signed.
    pub key: PublicKey,
    /// The time of the first line.
    pub begun: Time,
    /// The last head.
    pub head: Option<Head>,
    /// The last line.
    pub end: Head,
    /// The number of lines after the last head, which are unsigned.
    pub unsigned: u64,
    /// The number of openings.
    pub openings: u64,
    /// The number of openings that found a partial line.
    pub torn: u64,
    /// The counts of contents, if they were given.
    pub contents: Option<Contents>,
}

/// The counts of a log's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contents {
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
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// The problem.
    pub what: What,
}

/// The kinds of problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The file cannot be read.
    Read(String),
    /// The file has no line.
    Empty,
    /// The last line has no line feed.
    Torn,
    /// The line exceeds the maximum size.
    Long,
    /// The line is not a record.
    Flaw(Flaw),
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
    Missing(Hash),
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

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.what {
            What::Read(error) => write!(f, "cannot be read: {error}"),
            What::Empty => f.write_str("the file is empty: nothing is left of the log, or nothing was ever in it"),
            What::Torn => f.write_str(
                "the line has no end: it is being written, or a process was killed; opening the log again moves it aside",
            ),
            What::Long => write!(f, "longer than {MAX_LINE} bytes: no line of a log is"),
            What::Flaw(flaw) => write!(f, "{flaw}"),
            What::Seq(found) => {
                let line = self.line.saturating_sub(1);
                write!(f, "`seq` is {found}, and should be {line}: lines were taken out, added or swapped")
            }
            What::Previous => {
                f.write_str("it does not follow from the line before: one of the two was changed, or lines were taken out")
            }
            What::NotOpened => f.write_str("a log opens with its key here, and this one does not: its beginning is missing"),
            What::Format => f.write_str("written by a later version of flowgate: check it with that one"),
            What::OtherKey => f.write_str(
                "the log was begun with another key than the one given: that is the public one, from `FILE.pub` or the first \
                 line as it was",
            ),
            What::ChangedKey => f.write_str("the log was opened with another key than it was begun with"),
            What::Signature => f.write_str("the signature is not of the key: a line up to here was changed, or it is forged"),
            What::Missing(hash) => write!(f, "the log ends here without the line {hash}: it was cut off, or written anew"),
            What::Short(seq) => write!(f, "the log ends here, and should reach line {}: it was cut off", seq.saturating_add(1)),
            What::Behind(seq) => write!(
                f,
                "the log ends here, and the database knows its line {}: it was cut off",
                seq.saturating_add(1)
            ),
            What::Unanchored => f.write_str("the database knows another line here: the log was cut off and written on"),
            What::Unseen(seq) => write!(
                f,
                "the log ends here, and the witness knows its line {}: it was cut off, or put back as it was before",
                seq.saturating_add(1)
            ),
            What::Contradicted => {
                f.write_str("the witness knows another line here: the log was cut off and written on")
            }
            What::Unwitnessed => f.write_str(
                "the witness knows nothing of this log: it is another one, or the witness was not told of it yet",
            ),
            What::Content => f.write_str("its content is not what was recorded: it was changed"),
            What::Foreign => f.write_str("there is content that no line here has: entries were added, moved or renumbered"),
            What::Unreadable(line) => write!(f, "the file of contents cannot be read at its line {line}: it was changed"),
        }
    }
}

impl std::error::Error for Problem {}

/// An iterator over the records of a log that checks each against the preceding ones. It ends at the first problem.
#[derive(Debug)]
pub struct Records<R> {
    lines: Lines<R>,
    expected: Option<PublicKey>,
    key: Option<PublicKey>,
    end: Option<Head>,
    head: Option<Head>,
    has_failed: bool,
}

impl<R: BufRead> Records<R> {
    /// Returns the records of `log`, signed by `key`, or by the key that the log itself names.
    pub fn new(log: R, key: Option<PublicKey>) -> Self {
        let lines = Lines::new(log, MAX_LINE);
        Self { lines, expected: key, key: None, end: None, head: None, has_failed: false }
    }

    /// Returns the number of the next line, from 0.
    fn seq(&self) -> u64 {
        self.end.map_or(0, |end| end.seq.saturating_add(1))
    }

    fn read(&mut self) -> Result<Option<Record>, What> {
        let seq = self.seq();
        let line = match self.lines.next().map_err(|error| What::Read(error.to_string()))? {
            Next::Line(line) => line,
            Next::End if self.end.is_none() => return Err(What::Empty),
            Next::End => return Ok(None),
            Next::Torn => return Err(What::Torn),
            Next::Long => return Err(What::Long),
        };
        let record = Record::read(line).map_err(What::Flaw)?;
        if record.seq != seq {
            return Err(What::Seq(record.seq));
        }
        if record.previous != self.end.map_or(Hash::NONE, |end| end.hash) {
            return Err(What::Previous);
        }
        if record.kind == OPENED {
            let format = record.object.get("format").and_then(Value::as_u64).ok_or(What::NotOpened)?;
            if format != FORMAT {
                return Err(What::Format);
            }
            let named = record.text("key").and_then(PublicKey::parse).ok_or(What::NotOpened)?;
            if self.expected.is_some_and(|expected| expected != named) {
                return Err(What::OtherKey);
            }
            if *self.key.get_or_insert(named) != named {
                return Err(What::ChangedKey);
            }
        }
        let key = self.key.as_ref().ok_or(What::NotOpened)?;
        let end = Head { seq, hash: Hash::of(line) };
        // A head whose kind was changed must not pass as an unsigned line.
        if record.kind == HEAD || record.object.contains_key(SIGNATURE) {
            if record.kind != HEAD || !is_signed(line, key) {
                return Err(What::Signature);
            }
            self.head = Some(end);
        }
        self.end = Some(end);
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let line = self.seq().saturating_add(1);
        let read = self.read();
        self.has_failed = read.is_err();
        read.map_err(|what| Problem { line, what }).transpose()
    }
}

/// Verifies a whole log, in constant memory. `contents` is the file of contents beside it.
///
/// # Errors
/// Returns the first problem.
pub fn verify(
    log: &mut dyn BufRead,
    expected: &Expected<'_>,
    contents: Option<&mut dyn BufRead>,
) -> Result<Summary, Problem> {
    let mut records = Records::new(log, expected.key);
    let mut contents = contents.map(Sidecar::new).transpose()?;
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
            return Err(Problem { line: end.seq.saturating_add(1), what: What::Unanchored });
        }
        if let (Some(witness), Some(id)) = (expected.witness, id)
            && witness.contradicts(id, end)
        {
            return Err(Problem { line: end.seq.saturating_add(1), what: What::Contradicted });
        }
        has_hash |= expected.hash == Some(end.hash) && expected.seq.is_none_or(|seq| seq == end.seq);
        if let Some(contents) = &mut contents {
            contents.of(&record)?;
        }
    }
    let (Some(end), Some(key), Some(begun), Some(id)) = (records.end, records.key, begun, id) else {
        return Err(Problem { line: 1, what: What::Empty });
    };
    let lines = end.seq.saturating_add(1);
    let failed = |what| Err(Problem { line: lines, what });
    if let Some(hash) = expected.hash.filter(|_| !has_hash) {
        return failed(What::Missing(hash));
    }
    if let Some(seq) = expected.seq.filter(|seq| *seq > end.seq) {
        return failed(What::Short(seq));
    }
    if let Some(anchor) = anchor.filter(|anchor| anchor.head.seq > end.seq) {
        return failed(What::Behind(anchor.head.seq));
    }
    let witnessed = match expected.witness {
        None => None,
        Some(witness) => Some(witness.of(id).ok_or(Problem { line: lines, what: What::Unwitnessed })?),
    };
    if let Some((_, head)) = witnessed.filter(|(_, head)| head.seq > end.seq) {
        return failed(What::Unseen(head.seq));
    }
    let unsigned = records.head.map_or(lines, |head| end.seq.saturating_sub(head.seq));
    let contents = contents.map(|contents| contents.finish(forgotten)).transpose()?;
    Ok(Summary {
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
