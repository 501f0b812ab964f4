//! A text as a reader sees it that normalises: compatible forms are replaced (NFKC), and characters without a shape of their
//! own are left out. Each character of this view knows the bytes it comes from.

use unicode_normalization::UnicodeNormalization as _;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// A character of the view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) c: char,
    /// The first byte of the source.
    pub(crate) start: usize,
    /// The byte after the source; `start` for all but the first where one character of the source becomes several.
    pub(crate) end: usize,
    /// Whether a renderer of Markdown may drop it: an escape before punctuation, or a sign of emphasis or code.
    pub(super) is_silent: bool,
}

/// Signs around text, which a renderer drops wherever they stand.
pub(super) const EMPHASIS: [char; 3] = ['*', '~', '`'];

/// The view of a text.
pub(crate) fn view(text: &str) -> Vec<Seen> {
    let mut seen = Vec::with_capacity(text.len());
    let mut chars = text.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        let end = start + c.len_utf8();
        if c.is_ascii() {
            let next = chars.peek().map(|(_, next)| *next);
            let is_escape = c == '\\' && next.is_some_and(|next| next.is_ascii_punctuation());
            seen.push(Seen { c, start, end, is_silent: is_escape || EMPHASIS.contains(&c) });
        } else if !is_transparent(c) {
            let mut end = end;
            folded(c, |c| {
                seen.push(Seen { c, start, end, is_silent: false });
                end = start;
            });
        }
    }
    seen
}

/// What a character stands for.
pub(super) fn folded(c: char, mut each: impl FnMut(char)) {
    if c.is_ascii() {
        return each(c);
    }
    for c in std::iter::once(c).nfkc() {
        // The full stop of Chinese separates the labels of a host name, too.
        each(if c == '\u{3002}' { '.' } else { c });
    }
}

/// Whether a reader may drop the character: what joins, formats or marks others.
pub(super) fn is_transparent(c: char) -> bool {
    let fillers = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}', '\u{2065}'];
    !c.is_ascii()
        && (matches!(c.general_category(), GeneralCategory::Format)
            || is_mark(c)
            || fillers.contains(&c)
            || ('\u{fff0}'..='\u{fff8}').contains(&c)
            || ('\u{e0000}'..='\u{e0fff}').contains(&c))
}

/// Whether the character only changes the one before it.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark)
}

/// Whether no address and no construct of a markup language reaches across the character.
pub(super) fn is_boundary(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_whitespace() || c.is_ascii_control();
    }
    if c.is_whitespace() || c.is_control() {
        return true;
    }
    // Some readers take other signs for letters.
    if c.general_category_group() != GeneralCategoryGroup::Punctuation {
        return false;
    }
    let (mut count, mut is_plain) = (0, true);
    folded(c, |folded| {
        count += 1;
        is_plain &= folded == c || matches!(folded, ',' | '!' | ';' | '"' | '\'');
    });
    count == 1 && is_plain && c != '\u{3002}'
}
