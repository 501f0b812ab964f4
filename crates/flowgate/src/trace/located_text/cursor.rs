//! Reads a text byte by byte, for the JSON and the Python parser of located texts. Only [`Cursor::rewind`] moves back.

use super::LocateError;

/// Reads a text byte by byte. Every byte that a parser tests for is ASCII, so after a successful test the position is
/// a character boundary.
pub(super) struct Cursor<'t> {
    text: &'t str,
    /// The offset of the next byte.
    at: usize,
}

impl<'t> Cursor<'t> {
    /// Creates a cursor at the first byte of a text.
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the byte offset of the next byte.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Goes back to an offset that [`offset`](Self::offset) returned before.
    pub(super) fn rewind(&mut self, at: usize) {
        self.at = at.min(self.at);
    }

    /// Returns the next byte without consuming it.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes and returns the next byte; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Consumes the next byte if it is `byte`; returns whether it was.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
        }
        found
    }

    /// Consumes the next byte, which must be `byte`; fails with a syntax error otherwise.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), LocateError> {
        if self.eat(byte) { Ok(()) } else { self.fail() }
    }

    /// Consumes bytes while they pass a test; returns whether any did.
    pub(super) fn skip(&mut self, test: impl Fn(u8) -> bool) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let count = rest.iter().position(|&b| !test(b)).unwrap_or(rest.len());
        self.at += count;
        count > 0
    }

    /// Returns the text from an offset to the current position.
    pub(super) fn text_since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Consumes exactly this many hexadecimal digits (at most eight) and returns their value; fails if there are fewer.
    pub(super) fn hex(&mut self, digits: usize) -> Result<u32, LocateError> {
        let start = self.at;
        let stop = start + digits;
        let spelled = self.text.get(start..stop);
        match spelled.filter(|s| s.bytes().all(|b| b.is_ascii_hexdigit())) {
            Some(spelled) => {
                self.at = stop;
                u32::from_str_radix(spelled, 16).or_else(|_| self.fail())
            }
            None => self.fail(),
        }
    }

    /// Checks that the whole text was consumed; fails with a syntax error otherwise.
    pub(super) fn end(&self) -> Result<(), LocateError> {
        if self.at == self.text.len() { Ok(()) } else { self.fail() }
    }

    /// Returns a syntax error at the current position.
    pub(super) fn fail<T>(&self) -> Result<T, LocateError> {
        Err(LocateError::Syntax { offset: self.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_consumes_the_matching_bytes() {
        let mut c = Cursor::new("  ab1f€");
        assert!(c.skip(|b| b == b' '));
        assert!(!c.skip(|b| b == b' '));
        assert!(c.eat(b'a') && !c.eat(b'a'));
        assert_eq!(c.expect(b'a'), Err(LocateError::Syntax { offset: 3 }));
        assert_eq!(c.hex(3), Ok(0xb1f));
        assert_eq!(c.text_since(2), "ab1f");
        assert_eq!(c.hex(2), Err(LocateError::Syntax { offset: 6 }));
        assert_eq!(c.end(), Err(LocateError::Syntax { offset: 6 }));
        assert!(c.skip(|b| !b.is_ascii()));
        assert_eq!((c.end(), c.next()), (Ok(()), None));
    }

    #[test]
    fn hexadecimal_digits_have_no_sign() {
        assert!(Cursor::new("+123").hex(4).is_err());
    }
}
