//! Computes the readings of a text: the forms in which a client may quote it, beyond those that
//! [normalisation](super::normalization) makes equal.
//!
//! `query` and `remembered_texts` compare all readings. A text has up to five; a reading that equals an earlier one is
//! left out:
//!
//! 1. the text as it is written;
//! 2. the text with its base64 decoded;
//! 3. the text with its base64 decoded twice;
//! 4. the decoded text with confusable characters replaced by the ASCII letters that they look like (the *skeleton* of
//!    UTS 39, the Unicode standard on security);
//! 5. the decoded text transliterated into ASCII (`\u{f8}` becomes `o`, Cyrillic is romanised).
//!
//! Remembered texts and compared texts have the same readings, so a quotation is found whichever of the two was encoded
//! or transliterated. The user's own texts have these readings, too: they stay the user's if a page repeats them in
//! another script.
//!
//! # How much memory a text can take
//!
//! The five readings together have at most 7 times the bytes of the text. Each of the first three counts once, since
//! decoding shortens. Each of the last two counts twice, since a replaced character becomes at most two bytes per
//! byte of its own. Their normal forms are remembered, and can have more bytes:
//!
//! * A reading with markup is also remembered without the markup ([`super::remembered_texts`]): at most 14 times the
//!   bytes of the text.
//! * The text as written is also remembered without the numbers or common prefixes of its lines, in up to two variants:
//!   at most 16 times the bytes of the text.
//! * [`super::normalization`] decomposes compatibility characters: each can then have up to 4 bytes per byte of its
//!   own.
//!
//! A plain text of ASCII words has one normal form, which is shorter than the text. All normal forms count towards the
//! memory of the source of the text.

use std::sync::Arc;

use deunicode::deunicode_char;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

use super::escapes::{SourceChar, decode_escapes, source_chars};
use super::normalization::fold;
use super::windows::SHORTEST;

/// The number of readings of a text, including the text as it is written.
pub(super) const READINGS: usize = DEPTH + 3;
/// The most bytes of all readings together, per byte of the text: one as written, one for each decoding, and two for
/// each of the two readings in ASCII.
#[cfg(test)]
const MOST: usize = 1 + DEPTH + 2 * 2;
/// How many levels of nested base64 are decoded.
const DEPTH: usize = 2;
/// The shortest run of base64 that is decoded, in characters: it decodes to at least [`SHORTEST`] bytes.
const SHORTEST_RUN: usize = 28;
/// The longest run of base64 that is decoded at once, in characters; a longer one is decoded in pieces.
const LONGEST_RUN: usize = 1 << 16;
/// The size of a block of decoded characters. A block in which fewer than three quarters of the characters are readable
/// is dropped: it is binary data, such as an image.
const BLOCK: usize = 32;

/// Whether a text is remembered or compared with remembered texts. The side limits how much a character may grow when
/// it is replaced by ASCII: each variant states the most bytes for each byte of the character. A character that would
/// become longer stays unchanged.
///
/// A compared text does not grow. Otherwise four ideographs would become twenty letters in a row, and every phrase of a
/// client that writes in them could match as a quotation.
#[derive(Debug, Clone, Copy)]
pub(super) enum ComparisonSide {
    /// A remembered text: two bytes.
    Remembered,
    /// A compared text: one byte.
    Compared,
}

/// The readings of a text. Those that are not decoded are computed when they are requested.
#[derive(Debug)]
pub(super) struct Readings {
    /// The text at each level of decoding; the first entry is the text as written.
    decoded: Vec<Arc<Vec<SourceChar>>>,
    side: ComparisonSide,
}

impl Readings {
    /// Decodes a text as often as it contains base64, up to [`DEPTH`] times. `side` says whether the text is remembered
    /// or compared with remembered texts, which limits how much it may grow.
    pub(super) fn of(text: &str, side: ComparisonSide) -> Self {
        let mut decoded = vec![Arc::new(source_chars(text))];
        while decoded.len() <= DEPTH
            && let Some(next) = decoded.last().and_then(|last| decode_base64(last))
        {
            decoded.push(Arc::new(decode_escapes(next)));
        }
        Self { decoded, side }
    }

    /// Returns a reading by its number below [`READINGS`]; `None` if it equals one with a lower number. 0 is the text
    /// as written, and 1 to [`DEPTH`] are the decoded texts. The next one is without confusable characters, and the
    /// last one is transliterated.
    pub(super) fn get(&self, number: usize) -> Option<Arc<Vec<SourceChar>>> {
        match number {
            ..=DEPTH => self.decoded.get(number).cloned(),
            _ if number == DEPTH + 1 => self.transliterated(confusable_ascii).map(Arc::new),
            _ => self.transliterated(transliteration).map(Arc::new),
        }
    }

    /// Returns the fully decoded text.
    pub(super) fn last(&self) -> Arc<Vec<SourceChar>> {
        self.decoded.last().cloned().unwrap_or_default()
    }

    /// Returns the fully decoded text with each letter that the normal form does not bring into ASCII replaced by
    /// ASCII: `replacement_of` returns the replacement of a letter, if it has one. A letter whose replacement is longer
    /// than [`ComparisonSide`] permits stays. `None` if nothing changes.
    fn transliterated(&self, replacement_of: impl Fn(char) -> Option<String>) -> Option<Vec<SourceChar>> {
        let last = self.last();
        let is_replaced = |char: &SourceChar| is_foreign(char.c) && replacement_of(char.c).is_some();
        if !last.iter().any(is_replaced) {
            return None;
        }
        let (mut replaced, mut has_changed) = (Vec::with_capacity(last.len()), false);
        // How many bytes may replace one byte: a remembered text may grow, a compared one may not.
        let per_byte = match self.side {
            ComparisonSide::Remembered => 2,
            ComparisonSide::Compared => 1,
        };
        for char in last.iter() {
            let plain = Some(char.c).filter(|c| is_foreign(*c)).and_then(&replacement_of);
            match plain.filter(|plain| plain.len() <= per_byte * char.c.len_utf8()) {
                Some(plain) => {
                    has_changed = true;
                    replaced.extend(plain.chars().map(|c| SourceChar { c, ..*char }));
                }
                None => replaced.push(*char),
            }
        }
        has_changed.then_some(replaced)
    }
}

/// Returns whether the normal form of a character has a letter or digit outside ASCII.
fn is_foreign(c: char) -> bool {
    let mut is_foreign = false;
    if !c.is_ascii() {
        fold(c, &mut |c| is_foreign |= !c.is_ascii() && c.is_alphanumeric());
    }
    is_foreign
}

/// Returns the ASCII letters and digits that look like a character (its skeleton in UTS 39); `None` if there are
/// none.
fn confusable_ascii(c: char) -> Option<String> {
    let ascii_skeleton = |c: char| -> Option<String> {
        let mut buffer = [0; 4];
        let plain: String = skeleton(c.encode_utf8(&mut buffer)).filter(|c| !is_combining_mark(*c)).collect();
        plain.chars().all(|c| c.is_ascii_alphanumeric()).then_some(plain).filter(|plain| !plain.is_empty())
    };
    let plain = ascii_skeleton(c)?;
    // An upper-case `I` looks like a lower-case `l`, and is read as `i`.
    match plain.as_str() {
        "l" if c.is_uppercase() => c.to_lowercase().next().and_then(ascii_skeleton).or(Some(plain)),
        _ => Some(plain),
    }
}

/// Transliterates a character into ASCII letters and digits; `None` if it has no transliteration.
fn transliteration(c: char) -> Option<String> {
    let plain: String = deunicode_char(c)?.chars().filter(char::is_ascii_alphanumeric).collect();
    Some(plain).filter(|plain| !plain.is_empty())
}

/// Replaces each run of base64 by the text that it encodes; `None` if no run decodes to text.
fn decode_base64(chars: &[SourceChar]) -> Option<Vec<SourceChar>> {
    // Most texts have no base64: the copy is made at the first run.
    let (mut output, mut at): (Option<Vec<SourceChar>>, usize) = (None, 0);
    while let Some(char) = chars.get(at) {
        let rest = chars.get(at..).unwrap_or_default();
        let (run, length) = match sextet(char.c) {
            Some(_) => base64_run(rest),
            None => (Vec::new(), 1),
        };
        // The run may begin up to three characters late: preceding text may use the same alphabet.
        let decoded = (0..4).find_map(|skipped| Some((skipped, decode_base64_run(run.get(skipped..)?)?)));
        match decoded {
            Some((skipped, text)) => {
                let output = output.get_or_insert_with(|| chars.get(..at).unwrap_or_default().to_vec());
                output.extend(rest.iter().take(skipped));
                output.extend(text);
            }
            None => {
                if let Some(output) = &mut output {
                    output.extend(rest.iter().take(length));
                }
            }
        }
        at += length;
    }
    output.map(|mut output| {
        output.shrink_to_fit();
        output
    })
}

/// Returns the six bits of a character of base64, in the standard or the URL-safe alphabet. `None` for any other
/// character.
fn sextet(c: char) -> Option<u8> {
    let number = match c {
        'A'..='Z' => u32::from(c) - u32::from('A'),
        'a'..='z' => u32::from(c) - u32::from('a') + 26,
        '0'..='9' => u32::from(c) - u32::from('0') + 52,
        '+' | '-' => 62,
        '/' | '_' => 63,
        _ => return None,
    };
    u8::try_from(number).ok()
}

/// Returns the run of base64 at the beginning of `rest`: the six bits of each character with the character, and the
/// length of the run in characters, line breaks included. A run whose first line is too short is returned without its
/// characters.
fn base64_run(rest: &[SourceChar]) -> (Vec<(u8, SourceChar)>, usize) {
    let mut run: Vec<(u8, SourceChar)> = Vec::new();
    let mut at = 0;
    // Each round reads one line of the run.
    loop {
        let line = rest.iter().skip(at).take(LONGEST_RUN - run.len());
        let line = line.map_while(|char| Some((sextet(char.c)?, *char)));
        let before = run.len();
        run.extend(line);
        at += run.len() - before;
        if run.len() < SHORTEST_RUN {
            return (Vec::new(), at);
        }
        if run.len() == LONGEST_RUN {
            return (run, at);
        }
        // The run continues if only white space with a line break separates the line from more base64.
        let gap = rest.iter().skip(at).take_while(|char| char.c.is_ascii_whitespace());
        let (mut length, mut ends_line) = (0, false);
        gap.for_each(|char| (length, ends_line) = (length + 1, ends_line || char.c == '\n'));
        let has_next_line = rest.get(at + length).is_some_and(|char| sextet(char.c).is_some());
        if !ends_line || !has_next_line {
            return (run, at);
        }
        at += length;
    }
}

/// Decodes a run of base64, given as six-bit values with the characters that they come from. Each decoded character
/// refers to the source bytes that encode it.
///
/// Bytes that are not UTF-8, and control characters other than white space, are unreadable. The decoded characters are
/// divided into blocks of [`BLOCK`]. A block counts if at least three quarters of it are readable: binary data is not
/// text. The text consists of the readable characters of these blocks. Returns `None` if the text has fewer than
/// [`SHORTEST`] bytes.
fn decode_base64_run(run: &[(u8, SourceChar)]) -> Option<Vec<SourceChar>> {
    let bytes: Vec<u8> = run
        .chunks(4)
        .flat_map(|four| {
            // Four values make three bytes; the last values of a run, fewer bytes.
            let bits = four.iter().fold(0_u32, |bits, (six, _)| bits << 6 | u32::from(*six));
            let [_, bytes @ ..] = (bits << (6 * (4 - four.len()))).to_be_bytes();
            bytes.into_iter().take(four.len() * 6 / 8)
        })
        .collect();
    // The decoded characters; `None` for bytes that are no character, and for one that is not readable.
    let mut decoded: Vec<Option<SourceChar>> = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // The characters that spell the bytes `from..to`: each spells 6 of their bits.
            let to = from + c.len_utf8();
            let (first, last) = (run.get(from * 8 / 6)?.1, run.get((to * 8 - 1) / 6)?.1);
            let is_readable = !c.is_control() || c.is_ascii_whitespace();
            decoded.push(is_readable.then_some(SourceChar { c, start: first.start, end: last.end }));
            from = to;
        }
        decoded.extend((!chunk.invalid().is_empty()).then_some(None));
        from += chunk.invalid().len();
    }
    let readable =
        decoded.chunks(BLOCK).filter(|block| block.iter().flatten().count() * 4 >= block.len() * 3);
    let text: Vec<SourceChar> = readable.flatten().flatten().copied().collect();
    (text.iter().map(|char| char.c.len_utf8()).sum::<usize>() >= SHORTEST).then_some(text)
}

#[cfg(test)]
mod tests;
