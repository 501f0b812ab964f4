//! Joins the short texts of one source, so that a page which arrives in pieces is recognised when a client joins them.
//!
//! A text shorter than [`SHORTEST`] bytes of the normal form has no window. A tool that returns a page line by line, or as
//! a list of words, would therefore not be remembered at all. Each text is also remembered together with the end of the
//! text of the same source before it, as far as a window can reach across the border.

use std::collections::BTreeMap;

use flowgate::label::Label;

use super::SHORTEST;
use super::normalization::fold;
use super::windows::LEAST_ACROSS_BORDER;

/// The most sources of which the end of the last text is kept. A further source gives up that of the first by name.
const MAX_SOURCES: usize = 64;

/// The end of the last texts of one source.
#[derive(Debug)]
struct TextEnd {
    text: String,
    /// The label of what it was taken from.
    label: Label,
    /// Whether the last text was too short to be recognised alone.
    is_short: bool,
    /// Texts after it that have fewer than [`LEAST_ACROSS_BORDER`] bytes together.
    tiny: String,
}

/// The ends of the texts of each source in one session.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    ends: BTreeMap<String, TextEnd>,
}

impl Pieces {
    /// Appends a text of a source. Returns the text around the border to the previous one with the label of both, if
    /// one of the two is too short to be recognised alone. Of two longer ones every letter is recognised anyway.
    pub(crate) fn join(&mut self, source: &str, text: &str, label: &Label) -> Option<(String, Label)> {
        // A text that has no window of its own.
        let is_short = start_of(text, SHORTEST).len() == text.len();
        let Some(end) = self.ends.get_mut(source) else {
            if self.ends.len() >= MAX_SOURCES {
                self.ends.pop_first();
            }
            let (text, tiny) = (end_of(text, SHORTEST - LEAST_ACROSS_BORDER + 1).to_owned(), String::new());
            self.ends.insert(source.to_owned(), TextEnd { text, label: *label, is_short, tiny });
            return None;
        };
        end.label = end.label.join(label);
        if is_short {
            end.tiny.push('\n');
            end.tiny.push_str(text);
            if start_of(&end.tiny, LEAST_ACROSS_BORDER).len() == end.tiny.len() {
                return None;
            }
        }
        let tiny = std::mem::take(&mut end.tiny);
        let text = if is_short { tiny.as_str() } else { text };
        let joined = (is_short || end.is_short).then(|| {
            (format!("{}\n{}", end.text, start_of(text, SHORTEST - LEAST_ACROSS_BORDER + 1)), end.label)
        });
        (end.text, end.is_short) = match is_short {
            // A text that has no window does not hide the end of the one before.
            true => (
                end_of(&format!("{}\n{text}", end.text), SHORTEST - LEAST_ACROSS_BORDER + 1).to_owned(),
                true,
            ),
            false => (end_of(text, SHORTEST - LEAST_ACROSS_BORDER + 1).to_owned(), false),
        };
        if !is_short {
            end.label = *label;
        }
        joined
    }
}

/// Returns the number of bytes of a character's normal form.
fn length(c: char) -> usize {
    let mut bytes = 0;
    fold(c, &mut |c| bytes += c.len_utf8());
    bytes
}

/// Returns the beginning of a text with fewer than `most` bytes of the normal form.
fn start_of(text: &str, most: usize) -> &str {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, c)| {
        bytes += length(*c);
        bytes >= most
    });
    text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or_default()
}

/// Returns the end of a text with fewer than `most` bytes of the normal form.
fn end_of(text: &str, most: usize) -> &str {
    let mut bytes = 0;
    let start = text.char_indices().rev().find(|(_, c)| {
        bytes += length(*c);
        bytes >= most
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
        check(&[("a", "wire five"), ("a", "hundred euros")], &[None, Some("wire five\n\nhundred euros")]);
        check(&[("a", "wire"), ("b", "five"), ("a", "hundred")], &[None, None, Some("wire\n\nhundred")]);
        // Three pieces, of which no two have a window.
        check(
            &[("a", "wire"), ("a", "five"), ("a", "hundred euros")],
            &[None, Some("wire\n\nfive"), Some("wire\n\nfive\n\nhundred euros")],
        );
        // Tiny ones are taken together.
        check(
            &[("a", "wire"), ("a", "to"), ("a", "me"), ("a", "at once")],
            &[None, None, Some("wire\n\nto\nme"), Some("wire\n\nto\nme\n\nat once")],
        );
        // Beside long texts, only what a window across the border can reach.
        check(&[("a", "0123456789abcdefghijklmnopqrst"), ("a", "uvwxyz0123456789abcdefgh")], &[None, None]);
        check(
            &[("a", "0123456789abcdefghijklmnopqrst"), ("a", "uvwx"), ("a", "yz0123456789abcdefghijkl")],
            &[None, Some("efghijklmnopqrst\n\nuvwx"), Some("ijklmnopqrst\n\nuvwx\nyz0123456789abcd")],
        );
        check(&[("a", ""), ("a", "..."), ("a", "x")], &[None, None, None]);
    }
}
