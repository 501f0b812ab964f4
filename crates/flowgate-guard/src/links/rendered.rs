//! Converts text to what a renderer may show: compatible forms are replaced (NFKC), and invisible characters and marks
//! are left out. The other files of `links` and [`crate::placeholder`] search for links and placeholders in this form,
//! since a renderer may recognise one that the bytes do not show. Each character records the bytes that it comes from.

use unicode_normalization::UnicodeNormalization as _;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// A character as a renderer may show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenderedChar {
    pub(crate) c: char,
    /// The first byte in the source.
    pub(crate) start: usize,
    /// The byte after it in the source. Where one source character becomes several, only the first of these covers its
    /// bytes, and for the others `end` is `start`.
    pub(crate) end: usize,
    /// Whether a Markdown renderer may drop it: an escape before punctuation, or a sign of emphasis or code.
    pub(crate) is_silent: bool,
}

/// Emphasis signs, which a renderer drops at every position.
pub(super) const EMPHASIS: [char; 3] = ['*', '~', '`'];

/// Returns the characters of a text as a renderer may show them, each with the bytes that it comes from. Backslashes
/// before punctuation and signs of emphasis, which a renderer may leave out, are in the result, and marked as silent.
pub(crate) fn rendered_chars(text: &str) -> Vec<RenderedChar> {
    let mut rendered = Vec::with_capacity(text.len());
    let mut chars = text.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        let end = start + c.len_utf8();
        if c.is_ascii() {
            let next = chars.peek().map(|(_, next)| *next);
            let is_escape = c == '\\' && next.is_some_and(|next| next.is_ascii_punctuation());
            rendered.push(RenderedChar { c, start, end, is_silent: is_escape || EMPHASIS.contains(&c) });
        } else if !is_transparent(c) {
            let mut end = end;
            for_each_normalized(c, |c| {
                rendered.push(RenderedChar { c, start, end, is_silent: false });
                // All characters but the first cover no bytes of their own.
                end = start;
            });
        }
    }
    rendered
}

/// Calls `each` with the characters of the compatibility form (NFKC) of a character.
pub(super) fn for_each_normalized(c: char, mut each: impl FnMut(char)) {
    if c.is_ascii() {
        return each(c);
    }
    for c in std::iter::once(c).nfkc() {
        // The ideographic full stop also separates the labels of a host name.
        each(if c == '\u{3002}' { '.' } else { c });
    }
}

/// Returns whether a renderer may drop the character: joiners, fillers, format characters, marks, and the unassigned
/// characters that Unicode reserves for more of these.
pub(super) fn is_transparent(c: char) -> bool {
    let fillers = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}', '\u{2065}'];
    !c.is_ascii()
        && (matches!(c.general_category(), GeneralCategory::Format)
            || is_mark(c)
            || fillers.contains(&c)
            || ('\u{fff0}'..='\u{fff8}').contains(&c)
            || ('\u{e0000}'..='\u{e0fff}').contains(&c))
}

/// Returns whether the character is a mark without a width of its own, which only modifies the character before it.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark)
}

/// Returns whether an address or a markup construct certainly ends at the character: white space, a control character,
/// or a punctuation character outside ASCII that no renderer treats as part of an address.
pub(super) fn is_boundary(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_whitespace() || c.is_ascii_control();
    }
    if c.is_whitespace() || c.is_control() {
        return true;
    }
    // A character outside ASCII that is not punctuation is no boundary, since some renderers treat it as a letter of an
    // address.
    if c.general_category_group() != GeneralCategoryGroup::Punctuation {
        return false;
    }
    // A punctuation character whose compatibility form contains a character that has a meaning in addresses or markup,
    // such as a full-width dot, is no boundary either.
    let (mut count, mut is_plain) = (0, true);
    for_each_normalized(c, |folded| {
        count += 1;
        is_plain &= folded == c || matches!(folded, ',' | '!' | ';' | '"' | '\'');
    });
    // Some programs read the ideographic full stop as a dot in a host name.
    count == 1 && is_plain && c != '\u{3002}'
}
