//! Converts texts to the normal form in which the texts that a client was shown are compared with its new messages.
//!
//! Clients clean what they retrieve, and quote it in their own spelling. Both change the bytes without changing what is
//! read, so remembered texts and compared texts are normalised alike:
//!
//! * Escapes are decoded: `\u0041` of JSON, `\x41` of Python, `&#65;` and `&Auml;` of HTML, `%41` of URLs, also nested.
//! * Compatibility forms are decomposed (NFKD), case is folded, and Hangul is recomposed so that it does not grow.
//! * Marks, default-ignorable and format characters, spaces, controls and punctuation are dropped.
//!
//! Four [normal forms](NormalizedText) of a text are compared: its alphanumeric characters; the same without markup, if
//! there is any; other symbols (emoji, Braille); and text encoded in invisible characters (tags and variation
//! selectors). `remembered_texts` and `query` compute these forms with the functions of this module, from the characters
//! that `escapes` decodes; `markup_mask` finds the markup.

use unicode_normalization::char::{compose, decompose_compatible, is_combining_mark};
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// How many bytes a character may become for each of its own bytes. A ligature of a whole phrase (U+FDFA) stays as it
/// is, so that a short text does not become a long one.
const MAX_GROWTH: usize = 4;

/// One normal form of a text: the bytes to compare and, for each of them, the position of the source character that it
/// comes from. A position has the type `P`: the index of the character among those of its text, or `()` if positions
/// are not needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NormalizedText<P> {
    pub(super) bytes: Vec<u8>,
    pub(super) positions: Vec<P>,
}

impl<P: Copy> NormalizedText<P> {
    /// Appends a normalised character, which comes from this position in the source. Joins the parts of a Hangul
    /// syllable, into which the decomposition has split it, so that the text does not grow.
    fn push_char(&mut self, c: char, position: P) {
        // The second or third part of a Hangul syllable: a vowel or a final consonant.
        if matches!(c, '\u{1161}'..='\u{1175}' | '\u{11a8}'..='\u{11c2}')
            && let Some(last) = self.last_char()
            && let Some(syllable) = compose(last, c)
        {
            self.bytes.truncate(self.bytes.len() - last.len_utf8());
            self.positions.truncate(self.bytes.len());
            return self.append_char(syllable, position);
        }
        self.append_char(c, position);
    }

    /// Appends the bytes of a normalised character. Each byte gets the same `position`: that of the source character
    /// from which the normalised one was made.
    fn append_char(&mut self, c: char, position: P) {
        let mut buffer = [0; 4];
        self.bytes.extend(c.encode_utf8(&mut buffer).bytes());
        self.positions.resize(self.bytes.len(), position);
    }

    /// Returns the last character, if it has at most three bytes, as every part of a Hangul syllable has.
    fn last_char(&self) -> Option<char> {
        let from = self.bytes.len().saturating_sub(3);
        // A suffix that begins in the middle of a character is not valid UTF-8, so the next shorter one is tried.
        (from..self.bytes.len()).find_map(|at| {
            let text = std::str::from_utf8(self.bytes.get(at..)?).ok()?;
            text.chars().last()
        })
    }
}

/// Appends a character to the normal forms that it contributes to: `alphanumeric`; `symbols`, such as emoji; or
/// `invisible`, what invisible characters encode. ASCII that is not alphanumeric contributes to none. `position` is the
/// position of the character in the source.
pub(super) fn append_normalized<P: Copy>(
    c: char,
    position: P,
    alphanumeric: &mut NormalizedText<P>,
    symbols: &mut NormalizedText<P>,
    invisible: &mut NormalizedText<P>,
) {
    if c.is_ascii() {
        if c.is_ascii_alphanumeric() {
            alphanumeric.push_char(c.to_ascii_lowercase(), position);
        }
        return;
    }
    if let Some(hidden) = decode_invisible(c) {
        fold(hidden, &mut |c| invisible.push_char(c, position));
        return;
    }
    // `fold` emits no ASCII but letters and digits, so every other character that it emits is a symbol.
    fold(c, &mut |c| {
        if c.is_alphanumeric() {
            alphanumeric.push_char(c, position);
        } else {
            symbols.push_char(c, position);
        }
    });
}

/// Passes each character of the normal form of `c` to `out`; none if the normal form drops `c`. A character whose
/// decomposition is much longer than the character itself is passed unchanged, so that a text cannot grow without
/// bound.
pub(super) fn fold(c: char, out: &mut impl FnMut(char)) {
    let mut length = 0;
    decompose_compatible(c, |c| length += c.len_utf8());
    if length > MAX_GROWTH * c.len_utf8() {
        return out(c);
    }
    let mut emit_compared = |c: char| {
        if is_compared(c) {
            out(c);
        }
    };
    decompose_compatible(c, |c| {
        // Full case folding: the upper case of `ß` is `SS`.
        let folded = c.to_uppercase().flat_map(char::to_lowercase);
        folded.for_each(|c| decompose_compatible(c, &mut emit_compared));
    });
}

/// Returns whether a character belongs to a normal form. Marks, spaces, controls, punctuation and invisible characters
/// do not: texts that differ only in these are equal.
fn is_compared(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    // Fillers and reserved characters that are shown as nothing, although their category is neither format nor mark.
    let is_ignorable = matches!(
        c,
        '\u{34f}' | '\u{640}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2065}' | '\u{3164}' | '\u{ffa0}'
            | '\u{180b}'..='\u{180f}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}'
    );
    !is_ignorable
        && !c.is_whitespace()
        && !c.is_control()
        && !is_combining_mark(c)
        && c.general_category() != GeneralCategory::Format
        && c.general_category_group() != GeneralCategoryGroup::Punctuation
}

/// Decodes an invisible character that models read: ASCII in tags, bytes in variation selectors. `None` for any other
/// character.
fn decode_invisible(c: char) -> Option<char> {
    let code = u32::from(c);
    match code {
        0xe0020..=0xe007e => char::from_u32(code - 0xe0000),
        // The variation selectors from 17 to 256 denote the bytes from 16 to 255. Returns the character of Latin-1 that
        // has the code of the byte.
        0xe0100..=0xe01ef => char::from_u32(code - 0xe0100 + 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::remembered_texts::normalized_texts;

    /// `expected` has the normal forms of the text: letters and digits, other symbols, and what invisible characters
    /// encode.
    #[test]
    fn texts_that_read_alike_are_alike() {
        let check = |text: &str, expected: [&str; 3]| {
            let normalized: Vec<String> =
                normalized_texts(text).into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect();
            assert_eq!(normalized.get(..3).unwrap(), expected, "{text}");
        };
        check("Please, wire 500 EUR!", ["pleasewire500eur", "", ""]);
        check("\u{ff30}\u{1d425}\u{24d4}\u{fb01}\u{17f}\u{301}\u{200b}\u{ad}\u{fe0f}", ["plefis", "", ""]);
        check(
            "STRASSE Stra\u{df}e \u{3a3}\u{3c2}\u{3c3} \u{130}\u{131}i",
            ["strassestrasse\u{3c3}\u{3c3}\u{3c3}iii", "", ""],
        );
        check("\u{ac01} \u{1100}\u{1161}\u{11a8} \u{3131}", ["\u{ac01}\u{ac01}\u{1100}", "", ""]);
        check(r#"a\u0042 \\\"c\n \ud83d\ude00 \x64 \u{65} \U00000066"#, ["abcdef", "\u{1f600}", ""]);
        check("&#80;&#x6c;&eacute;&nbsp;&amp;amp;&shy;a&ampb & c &unknown; 5%", ["pleabcunknown5", "", ""]);
        check(r"\160l\145\v&eacutea&#154;&notit;", ["pleeasit", "\u{ac}", ""]);
        check("%50l%C3%A9%2561 100% %zz %ff", ["plea100zzy", "", ""]);
        check("\u{1f600} \u{2800}\u{2801} \u{2014}\u{201c}\u{3002}", ["", "\u{1f600}\u{2800}\u{2801}", ""]);
        check("x\u{e0050}\u{e006c} \u{e0140}\u{e0151}", ["x", "", "plpa"]);
        check("", ["", "", ""]);
    }
}
