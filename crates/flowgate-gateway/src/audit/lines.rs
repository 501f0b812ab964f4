//! Lines of bounded length.

use std::io::{self, BufRead};

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A line, without its line feed.
    Line(&'a [u8]),
    /// Bytes without a line feed behind them.
    Torn,
    /// A line that is longer than it may be.
    Long,
    /// Nothing.
    End,
}

/// Reads lines, and never more of one than its bound.
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
