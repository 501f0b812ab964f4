//! Joins the short texts of one source, so that a page which arrives in pieces is recognised when a client joins them.
//! The conversation passes each text of a tool's answer through [`Pieces`] before it is remembered.
//!
//! The memory of quotations compares windows of [`SHORTEST`] bytes of the normal form (the letters, digits and symbols
//! of a text, in one spelling), so a shorter text has no window. A page that a tool returns line by line, or as a list
//! of words, would therefore not be remembered at all. Each text is also remembered together with the end of the text
//! of the same source before it, as far as a window can reach across the border.

use std::collections::BTreeMap;

use flowgate::label::Label;

use super::SHORTEST;
use super::normalization::fold;
use super::windows::LEAST_ACROSS_BORDER;

/// The maximum number of sources whose last texts are remembered. One more source replaces the first in the order of
/// names.
const MAX_SOURCES: usize = 64;

/// The end of the last texts of one source.
#[derive(Debug)]
struct TextEnd {
    /// The end of the last texts, as far as a window that crosses the border to the next text can reach back.
    text: String,
    /// The join of the labels of the texts that `text` and `tiny` were taken from.
    label: Label,
    /// Whether the last text was too short to be recognised alone.
    is_short: bool,
    /// Texts after `text`, joined, that are too short to be joined with it: fewer than [`LEAST_ACROSS_BORDER`] bytes
    /// together.
    tiny: String,
}

/// The ends of the texts of each source in one session.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    ends: BTreeMap<String, TextEnd>,
}

impl Pieces {
    /// Takes the next text of a source. A text is recognised alone by its windows, the stretches of [`SHORTEST`]
    /// bytes of its normal form; a short text has none. If this text or the previous one of the source is short,
    /// returns the text around the border between the two, with the join of their labels; the caller remembers it
    /// in addition to this text. Returns `None` between two longer texts, each character of which is in a window of
    /// its own text, and for the first text of a source. Texts of a few characters are collected, with `None` as
    /// the result, and joined once they are long enough together.
    pub(crate) fn join(&mut self, source: &str, text: &str, label: &Label) -> Option<(String, Label)> {
        // A window that crosses the border has at least `LEAST_ACROSS_BORDER` bytes on each side of the border. So it
        // has at most `SHORTEST - LEAST_ACROSS_BORDER` bytes on one side: fewer than this limit.
        let side_limit = SHORTEST - LEAST_ACROSS_BORDER + 1;
        // A short text has no window of its own. `start_of` returns the longest beginning with fewer bytes of the
        // normal form than the limit, which is all of a short text.
        let is_short = start_of(text, SHORTEST).len() == text.len();
        let Some(end) = self.ends.get_mut(source) else {
            // The first text of a source has none before it. If too many sources are tracked, one of them is dropped.
            if self.ends.len() >= MAX_SOURCES {
                self.ends.pop_first();
            }
            let (text, tiny) = (end_of(text, side_limit).to_owned(), String::new());
            self.ends.insert(source.to_owned(), TextEnd { text, label: *label, is_short, tiny });
            return None;
        };
        end.label = end.label.join(label);
        if is_short {
            // Short texts are collected until they are long enough to be joined.
            end.tiny.push('\n');
            end.tiny.push_str(text);
            // All collected texts together still have fewer bytes than the limit.
            if start_of(&end.tiny, LEAST_ACROSS_BORDER).len() == end.tiny.len() {
                return None;
            }
        }
        let tiny = std::mem::take(&mut end.tiny);
        // A short text is itself among the collected texts (`tiny`). Before a longer text, the collected texts are
        // between it and the text before them.
        let (between, text) = if is_short { ("", tiny.as_str()) } else { (tiny.as_str(), text) };
        let joined = (is_short || end.is_short || !between.is_empty()).then(|| {
            let start = start_of(text, side_limit);
            (format!("{}{between}\n{start}", end.text), end.label)
        });
        (end.text, end.is_short) = match is_short {
            // After a text without a window of its own, the end of the text before it still counts.
            true => (end_of(&format!("{}\n{text}", end.text), side_limit).to_owned(), true),
            false => (end_of(text, side_limit).to_owned(), false),
        };
        // The remembered end now comes from this text alone, so the labels of earlier texts no longer count.
        if !is_short {
            end.label = *label;
        }
        joined
    }
}

/// Returns the number of bytes in the normal form of a character.
fn normal_form_length(c: char) -> usize {
    let mut bytes = 0;
    fold(c, &mut |c| bytes += c.len_utf8());
    bytes
}

/// Returns the longest beginning of a text with fewer than `limit` bytes of the normal form. With [`SHORTEST`], that
/// is the whole text exactly if the text has no window.
fn start_of(text: &str, limit: usize) -> &str {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, c)| {
        bytes += normal_form_length(*c);
        bytes >= limit
    });
    text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or_default()
}

/// Returns the longest end of a text with fewer than `limit` bytes of the normal form.
fn end_of(text: &str, limit: usize) -> &str {
    let mut bytes = 0;
    let start = text.char_indices().rev().find(|(_, c)| {
        bytes += normal_form_length(*c);
        bytes >= limit
    });
    text.get(start.map_or(0, |(at, c)| at + c.len_utf8())..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `check` takes texts with their sources, and the joined text that is remembered in addition to each.
    #[test]
    fn a_text_is_joined_with_the_end_of_the_one_before() {
        let check = |texts: &[(&str, &str)], expected: &[Option<&str>]| {
            let mut pieces = Pieces::default();
            let joined: Vec<Option<String>> = texts
                .iter()
                .map(|(source, text)| pieces.join(source, text, &Label::BOTTOM).map(|(text, _)| text))
                .collect();
            assert_eq!(joined.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{texts:?}");
        };
        check(&[("a", "wire five"), ("a", "hundred euros")], &[None, Some("wire five\n\nhundred euros")]);
        check(&[("a", "wire"), ("b", "five"), ("a", "hundred")], &[None, None, Some("wire\n\nhundred")]);
        // Three pieces, of which no two have a window.
        check(
            &[("a", "wire"), ("a", "five"), ("a", "hundred euros")],
            &[None, Some("wire\n\nfive"), Some("wire\n\nfive\n\nhundred euros")],
        );
        // Tiny texts are collected.
        check(
            &[("a", "wire"), ("a", "to"), ("a", "me"), ("a", "at once")],
            &[None, None, Some("wire\n\nto\nme"), Some("wire\n\nto\nme\n\nat once")],
        );
        // Tiny texts before a longer text are part of what a quotation may contain.
        let long = "0123456789abcdefghijklmnopqrst";
        check(
            &[("a", "wire five"), ("a", "to"), ("a", long)],
            &[None, None, Some("wire five\nto\n0123456789abcdef")],
        );
        check(
            &[("a", long), ("a", "to"), ("a", long)],
            &[None, None, Some("efghijklmnopqrst\nto\n0123456789abcdef")],
        );
        // Of long texts, only what a window across the border can reach is joined. Two long texts in a row are not.
        check(&[("a", "0123456789abcdefghijklmnopqrst"), ("a", "uvwxyz0123456789abcdefgh")], &[None, None]);
        check(
            &[("a", "0123456789abcdefghijklmnopqrst"), ("a", "uvwx"), ("a", "yz0123456789abcdefghijkl")],
            &[None, Some("efghijklmnopqrst\n\nuvwx"), Some("ijklmnopqrst\n\nuvwx\nyz0123456789abcd")],
        );
        check(&[("a", ""), ("a", "..."), ("a", "x")], &[None, None, None]);
    }
}
