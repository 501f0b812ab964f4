//! Finds the white space, comments and indicators between the nodes of a YAML document, and the end of a quoted or
//! block scalar. The reader for YAML uses [`Layout`] to check the positions that its parsing library reports.

use super::super::LocateError;

/// Number of characters between two recorded offsets.
const STRIDE: usize = 64;

/// A YAML text, from which the byte offset of a character can be computed.
pub(super) struct Layout<'t> {
    text: &'t str,
    /// The byte offset of every [`STRIDE`]th character; empty for an ASCII text.
    offsets: Vec<usize>,
}

impl<'t> Layout<'t> {
    /// Records the byte offset of every [`STRIDE`]th character of a text, since the parsing library reports positions
    /// as numbers of characters. For an ASCII text none is recorded, since each of its characters is one byte.
    pub(super) fn new(text: &'t str) -> Self {
        let offsets = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().step_by(STRIDE).map(|(at, _)| at).collect()
        };
        Self { text, offsets }
    }

    /// Returns the byte offset of the character with this index, or the end of the text if it has fewer characters.
    /// Counts at most [`STRIDE`] characters from the nearest recorded offset.
    pub(super) fn byte(&self, index: usize) -> usize {
        let end = self.text.len();
        // Only an ASCII text has no recorded offsets: the index of a character is then its byte offset.
        if self.offsets.is_empty() {
            return index.min(end);
        }
        let nearest = self.offsets.get(index / STRIDE).copied().unwrap_or(end);
        let rest = self.text.get(nearest..).unwrap_or_default();
        rest.char_indices().nth(index % STRIDE).map_or(end, |(at, _)| nearest + at)
    }

    /// Returns the byte at an offset; `None` at the end of the text.
    pub(super) fn peek(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// Returns the offset after a byte order mark at the start of the text; 0 without one.
    pub(super) fn byte_order_mark(&self) -> usize {
        let mark = '\u{feff}';
        if self.text.starts_with(mark) { mark.len_utf8() } else { 0 }
    }

    /// Returns the first offset from `at` that is not a space or tab.
    pub(super) fn skip_blanks(&self, at: usize) -> usize {
        self.skip_while(at, |b| matches!(b, b' ' | b'\t'))
    }

    /// Returns the first offset from `at` that is neither white space nor comment nor, in a flow collection (`flow`,
    /// within brackets), a comma. A `#` begins a comment only after white space, after such a comma, or at the start of
    /// the text.
    pub(super) fn skip(&self, mut at: usize, flow: bool) -> usize {
        loop {
            let space = |b| matches!(b, b' ' | b'\t' | b'\n' | b'\r') || flow && b == b',';
            at = self.skip_while(at, space);
            let may_begin_comment = at.checked_sub(1).and_then(|before| self.peek(before)).is_none_or(space);
            if self.peek(at) != Some(b'#') || !may_begin_comment {
                return at;
            }
            at = self.skip_while(at, |b| !matches!(b, b'\n' | b'\r'));
        }
    }

    /// Fails if there is a tab among the blanks directly before an offset, since YAML forbids tabs as indentation.
    pub(super) fn reject_tabs(&self, at: usize) -> Result<(), LocateError> {
        let before = self.text.get(..at).unwrap_or_default();
        let blanks = before.bytes().rev().take_while(|b| matches!(b, b' ' | b'\t'));
        match blanks.enumerate().find(|&(_, b)| b == b'\t') {
            Some((back, _)) => Err(LocateError::Syntax { offset: at - back - 1 }),
            None => Ok(()),
        }
    }

    /// Returns the offset after the closing quote of the scalar that starts at an offset with `quote`; `None` if the
    /// scalar has no closing quote. In single quotes, two quotes are an escaped one, and a backslash is an ordinary
    /// character. In double quotes, a backslash escapes the next character.
    pub(super) fn quoted_end(&self, start: usize, quote: u8) -> Option<usize> {
        let mut at = start + 1;
        loop {
            at = self.skip_while(at, |b| b != quote && (b != b'\\' || quote == b'\''));
            let next = self.peek(at + 1);
            match self.peek(at)? {
                b'\\' => at += 2,
                _ if quote == b'\'' && next == Some(quote) => at += 2,
                _ => return Some(at + 1),
            }
        }
    }

    /// Returns the end of the block scalar whose `indicator` (`|` or `>`) is at `start`, given the offset `last` at
    /// which the parsing library stopped reading it. Trailing blank lines and the last line break are left out, since
    /// they separate the scalar from the next node. `None` if there is no indicator at `start`.
    pub(super) fn block_end(&self, start: usize, indicator: u8, last: usize) -> Option<usize> {
        if self.peek(start) != Some(indicator) {
            return None;
        }
        let mut lines = self.text.get(start..last)?;
        loop {
            let shorter = lines.trim_end_matches([' ', '\t']);
            match shorter.strip_suffix(['\n', '\r']) {
                Some(shorter) => lines = shorter,
                None => return Some(start + lines.len()),
            }
        }
    }

    /// Returns the first offset from `at` whose byte does not pass a test.
    fn skip_while(&self, at: usize, test: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        at + rest.iter().position(|&b| !test(b)).unwrap_or(rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_byte_offsets() {
        let text = format!("{}é{}😀z", "a".repeat(63), "b€".repeat(70));
        for text in ["", "plain", text.as_str()] {
            let layout = Layout::new(text);
            for (index, (at, _)) in text.char_indices().enumerate() {
                assert_eq!(layout.byte(index), at);
            }
            let count = text.chars().count();
            for index in [count, count + 1, count + STRIDE, usize::MAX] {
                assert_eq!(layout.byte(index), text.len());
            }
        }
    }

    #[test]
    fn comments_are_skipped() {
        let layout = Layout::new("# a\n \t# b - c\r\n,#d\n-");
        assert_eq!(layout.skip(0, false), 15);
        assert_eq!(layout.skip(0, true), 19);
        assert_eq!(Layout::new("a#b").skip(1, false), 1);
        assert_eq!(Layout::new("a #b").skip(1, false), 4);
    }

    #[test]
    fn tabs_do_not_indent() {
        assert_eq!(Layout::new("a\t\n  b").reject_tabs(5), Ok(()));
        let refused = Err(LocateError::Syntax { offset: 3 });
        assert_eq!(Layout::new("a\n \t b").reject_tabs(5), refused);
    }

    #[test]
    fn quoted_scalars_end_at_their_quote() {
        for (text, quote, end) in [
            ("'it''s' # it's", b'\'', Some(7)),
            (r"'\' '", b'\'', Some(3)),
            (r#""\"\\" ""#, b'"', Some(6)),
            (r#""\"#, b'"', None),
            ("'''", b'\'', None),
        ] {
            assert_eq!(Layout::new(text).quoted_end(0, quote), end, "{text}");
        }
    }

    #[test]
    fn block_scalars_end_at_their_last_line() {
        let text = "|-\n  a \n\n  b  \r\n   \n\n";
        let layout = Layout::new(text);
        assert_eq!(layout.block_end(0, b'|', text.len()), Some(14));
        assert_eq!(layout.block_end(0, b'>', text.len()), None);
        assert_eq!(Layout::new("> \n \n").block_end(0, b'>', 5), Some(2));
    }
}
