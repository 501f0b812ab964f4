//! Reads the characters of a segment (a span of a text between characters that no address reaches across) as renderers
//! of Markdown and HTML do. Returns where the host names and the addresses in it begin and end.
//!
//! [`super::segment`] decides by these positions what to write in place of the segment. This module changes nothing.
//! Every index counts characters of [`SegmentText::chars`].

use super::host_names;
use super::markup;
use super::rendered::{EMPHASIS, RenderedChar, is_transparent};

/// A segment of a text: its source, and its characters without those that every renderer may drop.
pub(super) struct SegmentText<'s> {
    /// The segment as it was written.
    pub(super) source: &'s str,
    /// The characters of the segment as a renderer may show them.
    pub(super) chars: Vec<char>,
    /// The same characters, each with the bytes of `source` that it comes from.
    pub(super) plain: Vec<RenderedChar>,
    /// Whether a character directly precedes the segment.
    pub(super) is_inside: bool,
}

impl SegmentText<'_> {
    /// Returns the character at an index; `None` after the end of the segment.
    pub(super) fn char_at(&self, index: usize) -> Option<char> {
        self.chars.get(index).copied()
    }

    /// Returns the character before an index; `None` at the beginning of the segment.
    pub(super) fn char_before(&self, index: usize) -> Option<char> {
        index.checked_sub(1).and_then(|index| self.char_at(index))
    }

    /// Returns the characters from `start` to `end`, which is excluded; empty if the range is not in the segment.
    pub(super) fn slice(&self, start: usize, end: usize) -> String {
        self.chars.get(start..end).unwrap_or_default().iter().collect()
    }

    /// Returns whether `word` is at an index, in any case.
    pub(super) fn starts_with_at(&self, start: usize, word: &str) -> bool {
        word.chars()
            .enumerate()
            .all(|(i, c)| self.char_at(start + i).is_some_and(|seen| seen.eq_ignore_ascii_case(&c)))
    }

    /// Returns whether a character other than an emphasis sign is directly before the character at `index` in the
    /// source. At the beginning of the segment, returns whether a character precedes the segment.
    pub(super) fn is_preceded(&self, index: usize) -> bool {
        self.head(index).chars().next_back().map_or(self.is_inside, |c| !EMPHASIS.contains(&c))
    }

    /// Returns whether any character other than emphasis signs is before the character at `index` in the segment.
    pub(super) fn has_before(&self, index: usize) -> bool {
        self.head(index).chars().any(|c| !EMPHASIS.contains(&c))
    }

    /// Returns the part of the source before the character at `index`, including what renderers may drop.
    pub(super) fn head(&self, index: usize) -> &str {
        self.plain.get(index).and_then(|seen| self.source.get(..seen.start)).unwrap_or_default()
    }

    /// Returns whether the text after the dot at the index `dot` begins with a top-level domain for some renderer, so
    /// that this renderer can take the text before it for a host name. Renderers differ in where the label after the
    /// dot ends; each way is tried.
    pub(super) fn ends_name(&self, dot: usize) -> bool {
        let marked = self.slice(dot + 1, self.run_end(dot + 1, |c| is_label(c) || markup::is_mark(c)));
        // A renderer that ends the label at the first mark.
        let label: String = marked.chars().take_while(|c| is_label(*c)).collect();
        // A renderer that drops the marks.
        let joined: String = marked.chars().filter(|c| is_label(*c)).collect();
        // A renderer that turns markup into elements: the label ends wherever markup separates two characters. No
        // top-level domain is longer than `LONGEST_END`.
        let end = self.run_end(dot + 1, is_label).min(dot + 1 + host_names::LONGEST_END);
        let mut ends = (dot + 1..end).filter(|index| !self.is_adjacent(*index));
        let is_ended = ends.any(|last| host_names::begins_top_level(&self.slice(dot + 1, last + 1)));
        is_ended || [&label, &joined].into_iter().any(|label| host_names::begins_top_level(label))
    }

    /// Returns the end of the name that begins at `start`, and whether some renderer takes the name for a host name. A
    /// name consists of labels joined by dots.
    pub(super) fn name_end(&self, start: usize) -> (usize, bool) {
        let mut end = self.run_end(start, is_label);
        while self.char_at(end) == Some('.') && self.char_at(end + 1).is_some_and(is_label) {
            end = self.run_end(end + 1, is_label);
        }
        let name = self.slice(start, end);
        let labels: Vec<&str> = name.split('.').collect();
        // Whether a path follows, and the name is not itself a part of a path.
        let is_path_next =
            self.char_at(end) == Some('/') && !matches!(self.char_before(start), Some('/' | '.'));
        (end, host_names::is_host(&labels, is_path_next))
    }

    /// Returns the end of the characters from `start` on that satisfy `is_part`.
    pub(super) fn run_end(&self, start: usize, is_part: impl Fn(char) -> bool) -> usize {
        let length = self.chars.get(start..).unwrap_or_default().iter().take_while(|c| is_part(**c)).count();
        start + length
    }

    /// Returns the end of the address that begins at `start`, without the punctuation of the surrounding sentence. The
    /// address ends before an emphasis sign, and before a bracket that has no partner in the address.
    pub(super) fn end_of_address(&self, start: usize) -> usize {
        let mut open = Vec::new();
        let mut end = start;
        while let Some(c) = self.char_at(end) {
            // `chars` leaves out emphasis signs: one that the source has directly before this character ends the
            // address.
            if end > start && self.has_emphasis_before(end) {
                break;
            }
            match c {
                '(' => open.push(end),
                ')' if open.pop().is_none() => break,
                ')' => {}
                c if c.is_alphanumeric() || "-._~%+@:/?#=&!$,;*'".contains(c) => {}
                _ => break,
            }
            end += 1;
        }
        // The address ends before a bracket that is never closed.
        self.trimmed_end(start, open.first().copied().unwrap_or(end))
    }

    /// Returns the end of an address without the punctuation at its end.
    pub(super) fn trimmed_end(&self, start: usize, end: usize) -> usize {
        let is_in_address = |index: &usize| !self.char_at(*index).is_some_and(|c| ".,;:!?*_~'-".contains(c));
        (start..end).rev().find(is_in_address).map_or(start, |last| last + 1)
    }

    /// Returns whether a slash or backslash directly follows a character in the source, even a backslash that is the
    /// escape of the next character.
    pub(super) fn is_slash_after(&self, index: usize) -> bool {
        let end = self.plain.get(index).map_or(self.source.len(), |seen| seen.end);
        let mut rest = self.source.get(end..).unwrap_or_default().chars();
        rest.find(|c| !is_transparent(*c)).is_some_and(|c| matches!(c, '/' | '\\'))
    }

    /// Returns whether the characters at `index` and `index + 1` also follow each other directly in the source, with
    /// nothing between them that a renderer may drop, such as an emphasis sign.
    pub(super) fn is_adjacent(&self, index: usize) -> bool {
        match (self.plain.get(index), self.plain.get(index + 1)) {
            (Some(first), Some(second)) => first.end == second.start,
            _ => false,
        }
    }

    /// Returns whether an emphasis sign is between a character and the one before it in the source.
    pub(super) fn has_emphasis_before(&self, index: usize) -> bool {
        let ends = (index.checked_sub(1).and_then(|before| self.plain.get(before)), self.plain.get(index));
        let (Some(before), Some(seen)) = ends else { return false };
        self.source.get(before.end..seen.start).is_some_and(|between| between.contains(EMPHASIS))
    }

    /// Returns whether `www` precedes a dot, as a word of its own for some renderer.
    pub(super) fn is_after_www(&self, dot: usize) -> bool {
        // Finds three letters `w` before the dot, apart from marks between them that some renderer drops.
        let (mut start, mut count) = (dot, 0);
        while count < 3
            && let Some(c) = self.char_before(start)
            && (c.eq_ignore_ascii_case(&'w') || markup::is_mark(c))
        {
            start -= 1;
            count += usize::from(!markup::is_mark(c));
        }
        let is_word = !self.char_before(start).is_some_and(|c| c.is_ascii_alphanumeric());
        // Markup before the `www` also separates it from the word before. If there is such a word, `start` is above 0.
        count == 3 && (is_word || !self.is_adjacent(start - 1))
    }

    /// Returns whether the ampersand at this index can begin an HTML entity: a `#` follows, as before a number, or a
    /// name of at most 32 characters and a semicolon.
    pub(super) fn begins_entity(&self, index: usize) -> bool {
        let end = self.run_end(index + 1, |c| c.is_ascii_alphanumeric());
        self.char_at(index + 1) == Some('#')
            || end > index + 1 && end <= index + 33 && self.char_at(end) == Some(';')
    }
}

/// Returns whether some renderer accepts a character in a label of a host name.
pub(super) fn is_label(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
}
