//! A reader of lines of bounded length, so that reading a file of any content takes bounded memory.

use std::io::{self, BufRead};

/// The next item of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
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
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    most: usize,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, most: usize) -> Self {
        Self { reader, buffer: Vec::new(), most }
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        self.buffer.clear();
        let limit = u64::try_from(self.most).unwrap_or(u64::MAX).saturating_add(1);
        let mut part = io::Read::take(&mut self.reader, limit);
        part.read_until(b'\n', &mut self.buffer)?;
        Ok(match self.buffer.split_last() {
            None => Next::End,
            Some((b'\n', line)) => Next::Line(line),
            Some(_) if self.buffer.len() > self.most => Next::Long,
            Some(_) => Next::Torn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_and_have_a_bound() {
        let check = |text: &str, expected: &[Next<'_>]| {
            let mut lines = Lines::new(text.as_bytes(), 3);
            for next in expected {
                assert_eq!(lines.next().unwrap(), *next, "{text:?}");
            }
        };
        check("", &[Next::End, Next::End]);
        check("abc\n\nd\n", &[Next::Line(b"abc"), Next::Line(b""), Next::Line(b"d"), Next::End]);
        check("abc", &[Next::Torn, Next::End]);
        check("abc\nd", &[Next::Line(b"abc"), Next::Torn]);
        check("abcd\n", &[Next::Long]);
        check("abcd", &[Next::Long]);
    }
}
