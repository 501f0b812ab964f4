//! Reads the lines of a file from its beginning, in bounded memory: a line that is longer than a limit is reported
//! and not read. The readers of audit logs, of their files of contents and of witness files use this module; `tail`,
//! which reads a log backwards, does not.

use std::io::{self, BufRead};

/// The next item of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine<'a> {
    /// A line, without its line feed.
    Line(&'a [u8]),
    /// Bytes without a line feed at their end.
    Torn,
    /// A line that exceeds the bound.
    Long,
    /// The end of the file.
    End,
}

/// A reader that buffers at most one bounded line.
#[derive(Debug)]
pub(super) struct BoundedLines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The maximum length of a line, in bytes, without its line feed.
    limit: usize,
}

impl<R: BufRead> BoundedLines<R> {
    /// Creates a reader of lines that have at most `limit` bytes without their line feeds.
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, buffer: Vec::new(), limit }
    }

    /// Reads up to the end of the next line, and returns the line without its line feed. Returns [`NextLine::Torn`] for
    /// bytes without a line feed at the end of the file, which a killed writer may have left, and [`NextLine::Long`] for
    /// a line that exceeds the limit. After a long line, the reader is in the middle of that line, so the caller must
    /// stop.
    pub(super) fn next(&mut self) -> io::Result<NextLine<'_>> {
        self.buffer.clear();
        // One byte more than the limit has room for the line feed. A full buffer without one belongs to a longer line.
        let limit_with_feed = u64::try_from(self.limit).unwrap_or(u64::MAX).saturating_add(1);
        let mut part = io::Read::take(&mut self.reader, limit_with_feed);
        part.read_until(b'\n', &mut self.buffer)?;
        Ok(match self.buffer.split_last() {
            None => NextLine::End,
            Some((b'\n', line)) => NextLine::Line(line),
            Some(_) if self.buffer.len() > self.limit => NextLine::Long,
            Some(_) => NextLine::Torn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_and_have_a_bound() {
        let check = |text: &str, expected: &[NextLine<'_>]| {
            let mut lines = BoundedLines::new(text.as_bytes(), 3);
            for next in expected {
                assert_eq!(lines.next().unwrap(), *next, "{text:?}");
            }
        };
        check("", &[NextLine::End, NextLine::End]);
        check(
            "abc\n\nd\n",
            &[NextLine::Line(b"abc"), NextLine::Line(b""), NextLine::Line(b"d"), NextLine::End],
        );
        check("abc", &[NextLine::Torn, NextLine::End]);
        check("abc\nd", &[NextLine::Line(b"abc"), NextLine::Torn]);
        check("abcd\n", &[NextLine::Long]);
        check("abcd", &[NextLine::Long]);
    }
}
