//! The contents of a log, each compared with its line.
//!
//! The verifier uses this reader to check contents, and the command line to print them.

use std::io::BufRead;

use serde_json::Value;

use super::chain::Hash;
use super::content::{Found, MAX_ENTRY};
use super::lines::{Lines, Next};
use super::record::{Flaw, Record};
use super::verify::{Contents, Problem, What};

/// A reader of the contents beside a log, in the order of its lines.
#[derive(Debug)]
pub struct Sidecar<R> {
    lines: Lines<R>,
    number: u64,
    next: Option<Found>,
    found: Contents,
}

/// The content of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The line never had content.
    Nothing,
    /// The line had content that does not exist any more.
    Gone,
    /// The content.
    Kept(String),
}

impl<R: BufRead> Sidecar<R> {
    /// Returns a reader of these contents.
    ///
    /// # Errors
    /// Fails if the first entry cannot be read.
    pub fn new(reader: R) -> Result<Self, Problem> {
        let lines = Lines::new(reader, MAX_ENTRY);
        let mut sidecar = Self { lines, number: 0, next: None, found: Contents::default() };
        sidecar.advance().map_err(|what| Problem { line: 1, what })?;
        Ok(sidecar)
    }

    /// Returns the content of the next line of the log. Must be called for every line, in order.
    ///
    /// # Errors
    /// Fails if the content is not the recorded one.
    pub fn of(&mut self, record: &Record) -> Result<Said, Problem> {
        self.hold_against(record).map_err(|what| Problem { line: record.seq.saturating_add(1), what })
    }

    fn advance(&mut self) -> Result<(), What> {
        self.number += 1;
        self.next = match self.lines.next().map_err(|error| What::Read(error.to_string()))? {
            Next::Line(line) => Some(Found::read(line).ok_or(What::Unreadable(self.number))?),
            Next::Long => return Err(What::Unreadable(self.number)),
            Next::End => None,
            // The entry is being written, or its writer was killed.
            Next::Torn => {
                self.found.stray += 1;
                None
            }
        };
        Ok(())
    }

    fn hold_against(&mut self, record: &Record) -> Result<Said, What> {
        let recorded = match record.object.get("content") {
            None => None,
            Some(content) => {
                let hash = content.get("salted").and_then(Value::as_str).and_then(Hash::parse);
                Some(hash.ok_or(What::Flaw(Flaw::Field("content")))?)
            }
        };
        match (self.next.take_if(|next| next.seq <= record.seq), recorded) {
            (Some(next), Some(hash)) if next.seq == record.seq => {
                if !next.is_of(record, hash) {
                    return Err(What::Content);
                }
                self.found.kept += 1;
                self.advance()?;
                Ok(Said::Kept(next.content))
            }
            (Some(_), _) => Err(What::Foreign),
            (None, Some(_)) => {
                self.found.missing += 1;
                Ok(Said::Gone)
            }
            (None, None) => Ok(Said::Nothing),
        }
    }

    /// Returns the counts of all contents.
    pub(super) fn finish(mut self, forgotten: u64) -> Result<Contents, Problem> {
        while self.next.is_some() {
            self.found.stray += 1;
            self.advance().map_err(|what| Problem { line: 1, what })?;
        }
        Ok(Contents { forgotten, ..self.found })
    }
}
