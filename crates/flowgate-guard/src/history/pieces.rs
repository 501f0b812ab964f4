//! Joins the short texts of one source, so that a page which arrives in pieces is recognised when a client joins them.
//!
//! A text shorter than [`SHORTEST`] bytes of the normal form has no window of its own. A tool that returns a page line by line, or as
//! a list of words, would therefore not be remembered at all. Each text is also remembered together with the end of the
//! text of the same source before it, as far as a window can reach across the border.

use std::collections::BTreeMap;

use flowgate::label::Label;

use super::SHORTEST;
use super::normalization::fold;

/// The most sources of which the end of the last text is kept. A further source gives up that of the first by name.
const MOST_SOURCES: usize = 64;

/// The end of the last texts of a source, the label of what it was taken from, and whether the last text was short.
type End = (String, Label, bool);

/// The ends of the texts of each source in one session, with the label of what it was taken from.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    ends: BTreeMap<String, End>,
}

impl Pieces {
    /// Appends a text of a source. Returns the text around the border to the previous one with the label of both, if
    /// one of the two is too short to be recognised alone. Of two longer ones every letter is recognised anyway, and a
    /// window across their border would hide letters that a client writes before a quotation, if they happen to be
    /// those that precede it here.
    pub(crate) fn join(&mut self, source: &str, text: &str, label: &Label) -> Option<(String, Label)> {
        let (start, end) = (start_of(text), end_of(text));
        if !self.ends.contains_key(source) {
            if self.ends.len() >= MOST_SOURCES {
                self.ends.pop_first();
            }
            self.ends.insert(source.to_owned(), (end.to_owned(), *label, end.len() == text.len()));
            return None;
        }
        let (last, of_last, of_short) = self.ends.get_mut(source)?;
        let both = of_last.join(label);
        let is_short = end.len() == text.len();
        let joined = (is_short || *of_short).then(|| format!("{last}\n{start}"));
        // A text that has no window of its own does not hide the end of the one before.
        (*last, *of_last, *of_short) = match is_short {
            false => (end.to_owned(), *label, false),
            true => (end_of(&format!("{last}\n{text}")).to_owned(), both, true),
        };
        joined.map(|joined| (joined, both))
    }
}

/// Returns the number of bytes of a character's normal form.
fn length(c: char) -> usize {
    let mut bytes = 0;
    fold(c, &mut |c| bytes += c.len_utf8());
    bytes
}

/// Returns the beginning of a text, less than a window.
fn start_of(text: &str) -> &str {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, c)| {
        bytes += length(*c);
        bytes >= SHORTEST
    });
    text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or_default()
}

/// Returns the end of a text, less than a window.
fn end_of(text: &str) -> &str {
    let mut bytes = 0;
    let start = text.char_indices().rev().find(|(_, c)| {
        bytes += length(*c);
        bytes >= SHORTEST
    });
    text.get(start.map_or(0, |(at, c)| at + c.len_utf8())..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of sources, and what is remembered besides each.
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
        check(&[("a", "wire five"), ("a", "hundred euros")], &[None, Some("wire five\nhundred euros")]);
        check(&[("a", "wire"), ("b", "five"), ("a", "hundred")], &[None, None, Some("wire\nhundred")]);
        // Three pieces, of which no two have a window.
        check(
            &[("a", "wire"), ("a", "five"), ("a", "hundred euros")],
            &[None, Some("wire\nfive"), Some("wire\nfive\nhundred euros")],
        );
        // Beside long texts, only what a window across the border can reach.
        check(&[("a", "0123456789abcdefghijklmnopqrst"), ("a", "uvwxyz0123456789abcdefgh")], &[None, None]);
        check(
            &[("a", "0123456789abcdefghijklmnopqrst"), ("a", "u"), ("a", "vwxyz0123456789abcdefgh")],
            &[None, Some("bcdefghijklmnopqrst\nu"), Some("cdefghijklmnopqrst\nu\nvwxyz0123456789abcd")],
        );
        check(&[("a", ""), ("a", "..."), ("a", "x")], &[None, Some("\n..."), Some("\n...\nx")]);
    }
}
