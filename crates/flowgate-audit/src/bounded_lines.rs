//! Reads the lines of a file, each up to a limit of length, so that a file of any content is read in bounded memory.
//! All readers of audit logs, of their content files and of witness files use it.

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
    most: usize,
}

impl<R: BufRead> BoundedLines<R> {
    pub(super) fn new(reader: R, most: usize) -> Self {
        Self { reader, buffer: Vec::new(), most }
    }

    pub(super) fn next(&mut self) -> io::Result<NextLine<'_>> {
        self.buffer.clear();
        let limit = u64::try_from(self.most).unwrap_or(u64::MAX).saturating_add(1);
        let mut part = io::Read::take(&mut self.reader, limit);
        part.read_until(b'\n', &mut self.buffer)?;
        Ok(match self.buffer.split_last() {
            None => NextLine::End,
            Some((b'\n', line)) => NextLine::Line(line),
            Some(_) if self.buffer.len() > self.most => NextLine::Long,
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
