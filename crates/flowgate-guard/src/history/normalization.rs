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
//! selectors). `remembered_texts` and `query` compute these forms with the functions of this module.

use std::ops::Range;

use unicode_normalization::char::{compose, decompose_compatible, is_combining_mark};
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// How many levels of nested escapes are decoded.
const MAX_ESCAPE_LEVELS: usize = 8;
/// The longest tag, comment or link address that is recognised as markup, in characters.
const LONGEST_MARKUP: usize = 1 << 18;
/// The longest markup once the searches for ends of markup have read [`MAX_SEARCHED`] times the length of the text:
/// many beginnings without an end must not cost the square of the length.
const LONGEST_MARKUP_OF_MANY: usize = 2_000;
/// How many times the length of the text the searches for ends of markup may read before [`LONGEST_MARKUP_OF_MANY`]
/// applies.
const MAX_SEARCHED: usize = 8;
/// How many bytes a character may become for each of its own bytes. A ligature of a whole phrase (U+FDFA) stays as it
/// is, so that a short text does not become a long one.
const MAX_GROWTH: usize = 4;
/// The longest entity without its `&` and `;`, in characters.
const LONGEST_ENTITY: usize = 32;

/// A character of a text, and the range of bytes in which it was spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceChar {
    pub(super) c: char,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl SourceChar {
    /// Returns the range of bytes in which the character was spelled.
    pub(super) fn range(&self) -> Range<usize> {
        usize::try_from(self.start).unwrap_or(usize::MAX)..usize::try_from(self.end).unwrap_or(usize::MAX)
    }
}

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

/// Returns the characters of a text with escapes decoded, each with the bytes of `text` in which it was spelled.
pub(super) fn source_chars(text: &str) -> Vec<SourceChar> {
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let mut all = Vec::with_capacity(text.chars().count());
    all.extend(text.char_indices().map(|(start, c)| SourceChar {
        c,
        start: offset(start),
        end: offset(start + c.len_utf8()),
    }));
    decode_escapes(all)
}

/// Decodes escapes, up to [`MAX_ESCAPE_LEVELS`] levels deep.
pub(super) fn decode_escapes(mut chars: Vec<SourceChar>) -> Vec<SourceChar> {
    for _ in 0..MAX_ESCAPE_LEVELS {
        if !chars.iter().any(|char| matches!(char.c, '\\' | '&' | '%')) {
            break;
        }
        let Some(decoded) = decode_escapes_once(&chars) else { break };
        chars = decoded;
    }
    chars
}

/// Decodes one level of escapes; `None` if there are no escapes. The escapes of a high and a low surrogate become one
/// character. A surrogate without its partner, and a code that is no character, are dropped.
fn decode_escapes_once(chars: &[SourceChar]) -> Option<Vec<SourceChar>> {
    let (mut decoded, mut at, mut has_changed) = (Vec::with_capacity(chars.len()), 0, false);
    // The high surrogate of a character that is spelled as two escapes, and where it begins.
    let mut high: Option<(u32, u32)> = None;
    while let Some(char) = chars.get(at) {
        let rest = chars.get(at..).unwrap_or_default();
        let escaped = match char.c {
            '\\' => decode_backslash(rest),
            '&' => decode_entity(rest),
            '%' => decode_hex_bytes(rest, &['%']),
            _ => None,
        };
        let Some((codes, length)) = escaped.filter(|(_, length)| *length > 0) else {
            decoded.push(*char);
            (at, high) = (at + 1, None);
            continue;
        };
        has_changed = true;
        let end = chars.get(at + length - 1).map_or(char.end, |last| last.end);
        // Each decoded code point with the range of characters, from `at` on, that spell it.
        for (code, from, to) in codes {
            let start = chars.get(at + from).map_or(char.start, |char| char.start);
            let end = to.checked_sub(1).and_then(|to| chars.get(at + to)).map_or(end, |char| char.end);
            let (code, start) = match high.take() {
                // A high and a low surrogate together encode one character.
                Some((high, from)) if (0xdc00..0xe000).contains(&code) => {
                    (0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00), from)
                }
                _ => (code, start),
            };
            if (0xd800..0xdc00).contains(&code) {
                high = Some((code, start));
            } else if let Some(c) = char::from_u32(code) {
                decoded.push(SourceChar { c, start, end });
            }
        }
        at += length;
    }
    has_changed.then_some(decoded)
}

/// Decoded code points, each with the range of characters that spell it, and the number of characters that spell all of
/// them.
type DecodedEscape = (Vec<(u32, usize, usize)>, usize);

/// Decodes the escape at the beginning of `rest`, after any number of backslashes: quoting a text repeatedly multiplies
/// them. Every escape of a control character (`\n`, `\t`) decodes to a newline, since the normal form drops control
/// characters. Returns the code points, each with the range of characters of `rest` that spell it, and the length of
/// the escape in characters. Returns `None` if no known escape begins there.
fn decode_backslash(rest: &[SourceChar]) -> Option<DecodedEscape> {
    let slashes = rest.iter().take_while(|char| char.c == '\\').count();
    let following = rest.get(slashes..)?;
    match following.first()?.c {
        // `\u{41}`, with up to six digits.
        'u' | 'U' if following.get(1).is_some_and(|char| char.c == '{') => {
            let digits = following.iter().skip(2).take_while(|char| char.c.is_ascii_hexdigit()).count();
            let is_closed = following.get(2 + digits).is_some_and(|char| char.c == '}');
            let code =
                parse_number(following.get(2..2 + digits)?, 16).filter(|_| is_closed && digits <= 6)?;
            Some((vec![(code, 0, slashes + 3 + digits)], slashes + 3 + digits))
        }
        // `\u0041`, with four digits; `\U00000041` has eight.
        'u' => Some((vec![(parse_number(following.get(1..5)?, 16)?, 0, slashes + 5)], slashes + 5)),
        'U' => Some((vec![(parse_number(following.get(1..9)?, 16)?, 0, slashes + 9)], slashes + 9)),
        'x' => decode_hex_bytes(rest, &['\\', 'x']),
        // An octal escape of one byte has up to three digits.
        '0'..='3' => {
            let digits = following.iter().take(3).take_while(|char| char.c.is_digit(8)).count();
            let code = parse_number(following.get(..digits)?, 8)?;
            Some((vec![(code, 0, slashes + digits)], slashes + digits))
        }
        'n' | 'r' | 't' | 'b' | 'f' | 'a' | 'v' => {
            Some((vec![(u32::from('\n'), 0, slashes + 1)], slashes + 1))
        }
        _ => None,
    }
}

/// Decodes the bytes at the beginning of `rest` that are spelled in hexadecimal, each preceded by `signs` (`%`, or `\`
/// and `x`). The bytes are read as UTF-8 or, if they are not valid, as one character per byte. Returns `None` if no
/// such byte begins there; otherwise the code points, each with the range of characters of `rest` that spell it, and
/// the number of characters that spell all of them.
fn decode_hex_bytes(rest: &[SourceChar], signs: &[char]) -> Option<DecodedEscape> {
    // The bytes, and for each the number of characters that spell it and those before it.
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        let mut from = at;
        let (first, others) = signs.split_first()?;
        // The backslash may be repeated.
        let repeated = rest.iter().skip(from).take_while(|char| char.c == *first).count();
        if repeated == 0 || repeated > 1 && *first != '\\' {
            break;
        }
        from += repeated;
        if !others.iter().zip(rest.iter().skip(from)).all(|(sign, char)| *sign == char.c) {
            break;
        }
        from += others.len();
        let Some(byte) = rest.get(from..from + 2).and_then(|digits| parse_number(digits, 16)) else { break };
        bytes.extend(u8::try_from(byte));
        at = from + 2;
        ends.push(at);
    }
    if bytes.is_empty() {
        return None;
    }
    // Returns the range of characters that spell the bytes `from..to`.
    let spelling = |from: usize, to: usize| {
        let start = from.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or(0);
        (start, to.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or(start))
    };
    let mut codes = Vec::new();
    match std::str::from_utf8(&bytes) {
        Ok(text) => codes.extend(text.char_indices().map(|(from, c)| {
            let (start, end) = spelling(from, from + c.len_utf8());
            (u32::from(c), start, end)
        })),
        Err(_) => codes.extend(bytes.iter().enumerate().map(|(from, byte)| {
            let (start, end) = spelling(from, from + 1);
            (u32::from(*byte), start, end)
        })),
    }
    Some((codes, at))
}

/// Decodes the HTML entity at the beginning of `rest`. As in browsers, numbers and the legacy names need no semicolon.
/// `None` if no known entity begins there. Returns the code points, each with the range of characters of `rest` that
/// spell it, and the length of the entity in characters.
fn decode_entity(rest: &[SourceChar]) -> Option<DecodedEscape> {
    let following = rest.get(1..)?;
    if following.first()?.c == '#' {
        let (skipped, radix) = match following.get(1)?.c {
            'x' | 'X' => (2, 16),
            _ => (1, 10),
        };
        let digits = following.iter().skip(skipped).take_while(|char| char.c.is_digit(radix)).count();
        let code = windows_1252(parse_number(following.get(skipped..skipped + digits)?, radix)?);
        let length = 1 + skipped + digits;
        let length = length + usize::from(rest.get(length).is_some_and(|char| char.c == ';'));
        return Some((vec![(code, 0, length)], length));
    }
    let name: String = following
        .iter()
        .take(LONGEST_ENTITY)
        .map(|char| char.c)
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    let is_closed = following.get(name.len()).is_some_and(|char| char.c == ';');
    // Returns `None` for an unknown name. `has_end`: whether a semicolon after the name belongs to the entity.
    let decode = |name: &str, has_end: bool| {
        let spelled = format!("&{name};");
        let read = html_escape::decode_html_entities(&spelled);
        let length = 1 + name.len() + usize::from(has_end);
        (read != spelled).then(|| (read.chars().map(|c| (u32::from(c), 0, length)).collect(), length))
    };
    // The longest one, as in browsers: `&notin` begins with `&not`.
    let legacy = || {
        let names = LEGACY_ENTITIES.split_whitespace().filter(|legacy| name.starts_with(legacy));
        names.max_by_key(|legacy| legacy.len()).and_then(|legacy| decode(legacy, false))
    };
    is_closed.then(|| decode(&name, true)).flatten().or_else(legacy)
}

/// The names that HTML reads without a semicolon.
const LEGACY_ENTITIES: &str = "
    AElig AMP Aacute Acirc Agrave Aring Atilde Auml COPY Ccedil ETH Eacute Ecirc Egrave Euml GT Iacute Icirc Igrave Iuml LT Ntilde
    Oacute Ocirc Ograve Oslash Otilde Ouml QUOT REG THORN Uacute Ucirc Ugrave Uuml Yacute aacute acirc acute aelig agrave amp
    aring atilde auml brvbar ccedil cedil cent copy curren deg divide eacute ecirc egrave eth euml frac12 frac14 frac34 gt
    iacute icirc iexcl igrave iquest iuml laquo lt macr micro middot nbsp not ntilde oacute ocirc ograve ordf ordm oslash
    otilde ouml para plusmn pound quot raquo reg sect shy sup1 sup2 sup3 szlig thorn times uacute ucirc ugrave uml uuml
    yacute yen yuml";

/// Returns the character that a browser shows for a numeric reference: 128 to 159 are read as Windows-1252, and all
/// other numbers are returned unchanged.
fn windows_1252(code: u32) -> u32 {
    const HIGH: [char; 32] = [
        '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}',
        '\u{2c6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}', '\u{90}',
        '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2dc}',
        '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
    ];
    let high = code.checked_sub(128).and_then(|at| HIGH.get(usize::try_from(at).ok()?));
    high.map_or(code, |c| u32::from(*c))
}

/// Returns the number that these digits spell; `None` if there is no digit, if one is not of this radix, or if it is
/// too great.
fn parse_number(digits: &[SourceChar], radix: u32) -> Option<u32> {
    (!digits.is_empty()).then_some(())?;
    digits
        .iter()
        .try_fold(0_u32, |number, digit| number.checked_mul(radix)?.checked_add(digit.c.to_digit(radix)?))
}

/// Returns which characters are markup that a reader does not see: HTML tags and comments, addresses of Markdown links,
/// tags of BBCode, and colour codes of terminals. `None` if there is none.
pub(super) fn markup_mask(chars: &[SourceChar]) -> Option<Vec<bool>> {
    let mut is_markup = vec![false; chars.len()];
    let (mut at, mut has_markup) = (0, false);
    // The end of each piece of markup is searched up to a maximal length. Once these searches have read too much in
    // total, the maximal length is smaller.
    let mut may_still_read = MAX_SEARCHED.saturating_mul(chars.len());
    while let Some(char) = chars.get(at) {
        let rest = chars.get(at..).unwrap_or_default();
        let max_length = if may_still_read > 0 { LONGEST_MARKUP } else { LONGEST_MARKUP_OF_MANY };
        let found = match char.c {
            '<' => find_tag_end(rest, max_length),
            ']' => find_address_end(rest, max_length),
            '[' => MarkupEnd::of(bbcode_tag_length(rest)),
            '\u{1b}' => MarkupEnd::of(control_sequence_length(rest)),
            _ => MarkupEnd::of(None),
        };
        may_still_read = may_still_read.saturating_sub(found.read);
        let Some(length) = found.length else {
            at += 1;
            continue;
        };
        is_markup.iter_mut().skip(at).take(length).for_each(|is_markup| *is_markup = true);
        (at, has_markup) = (at + length, true);
    }
    has_markup.then_some(is_markup)
}

/// The end of a piece of markup, as far as a search found it.
struct MarkupEnd {
    /// The length of the markup in characters; `None` if it has no end.
    length: Option<usize>,
    /// The number of characters that were read.
    read: usize,
}

impl MarkupEnd {
    /// Returns the result of a search that counts as having read nothing, because its length is limited anyway.
    fn of(length: Option<usize>) -> Self {
        Self { length, read: 0 }
    }
}

/// Searches for the end of the HTML tag or comment that begins `rest`, within `max_length` characters. A quoted value
/// of an attribute may contain `<` and `>`, unless its quotation mark is never closed. `read` of the result is the
/// number of characters that the search has read, by which the caller bounds its work.
fn find_tag_end(rest: &[SourceChar], max_length: usize) -> MarkupEnd {
    let begins = |with: &str| with.chars().zip(rest).all(|(c, char)| c == char.c) && rest.len() >= with.len();
    if begins("<!--") {
        // `-->` may not overlap the four characters of `<!--`.
        let mut ends = rest.windows(3).take(max_length).enumerate().skip(4);
        let length = ends.find_map(|(at, end)| {
            let is_end = end.iter().map(|char| char.c).eq("-->".chars());
            is_end.then_some(at + 3)
        });
        return MarkupEnd { length, read: length.unwrap_or(max_length.min(rest.len())) };
    }
    let is_tag =
        rest.get(1).is_some_and(|next| next.c.is_ascii_alphabetic() || matches!(next.c, '/' | '!' | '?'));
    if !is_tag {
        return MarkupEnd::of(None);
    }
    // The quotation mark of the value that is open, and the last character that is no white space.
    let (mut open_quote, mut before) = (None, ' ');
    for (at, char) in rest.iter().enumerate().skip(1).take(max_length) {
        match (open_quote, char.c) {
            (Some(mark), c) if c == mark => open_quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before == '=' => open_quote = Some(char.c),
            (None, '>') => return MarkupEnd { length: Some(at + 1), read: at },
            (None, '<') => return MarkupEnd { length: None, read: at },
            (None, _) => {}
        }
        if !char.c.is_whitespace() {
            before = char.c;
        }
    }
    // The quotation mark of a value is never closed: the tag ends at the first `>`.
    let read = max_length.min(rest.len());
    let inside = rest.iter().skip(1).take(max_length).take_while(|char| !matches!(char.c, '<' | '>')).count();
    let is_closed = rest.get(1 + inside).is_some_and(|char| char.c == '>');
    MarkupEnd { length: is_closed.then_some(inside + 2), read }
}

/// Searches for the end of the Markdown link address that begins `rest`, `](...)`, within `max_length` characters.
/// The address may be enclosed in `<...>`, and may contain balanced round brackets and a title in quotation marks;
/// brackets inside `<...>` or a title do not count. If a blank line comes while a round bracket is open, the address
/// ends at the first closing bracket before the line. If `<...>`, a title or a bracket is never closed, the address
/// ends at the first closing bracket on its first line; without one, there is no end. `read` of the result is the
/// number of characters that the search has read, by which the caller bounds its work.
fn find_address_end(rest: &[SourceChar], max_length: usize) -> MarkupEnd {
    if rest.get(1).is_none_or(|char| char.c != '(') {
        return MarkupEnd::of(None);
    }
    // The number of open brackets within the address, the mark that ends the open title or address, and the previous
    // character.
    let (mut depth, mut open_quote, mut before) = (0_usize, None, ' ');
    let mut first_bracket = None;
    for (at, char) in rest.iter().enumerate().skip(2).take(max_length) {
        match (open_quote, char.c) {
            (Some(mark), c) if c == mark => open_quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before.is_whitespace() => open_quote = Some(char.c),
            (None, '<') if at == 2 => open_quote = Some('>'),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return MarkupEnd { length: Some(at + 1), read: at },
            (None, ')') => (depth, first_bracket) = (depth - 1, first_bracket.or(Some(at))),
            // A blank line ends the paragraph.
            (None, '\n') if before == '\n' => {
                return MarkupEnd { length: first_bracket.map(|at| at + 1), read: at };
            }
            (None, _) => {}
        }
        before = char.c;
    }
    let read = max_length.min(rest.len());
    // The brackets are not balanced, or the title does not end: the address ends at the first closing bracket.
    let inside =
        rest.iter().skip(2).take(max_length).take_while(|char| !matches!(char.c, ')' | '\n')).count();
    let is_closed = rest.get(2 + inside).is_some_and(|char| char.c == ')');
    MarkupEnd { length: is_closed.then_some(inside + 3), read }
}

/// Returns the length of the tag of BBCode that begins `rest`, in characters; `None` if none does. A tag whose
/// value has 200 or more characters is not recognised.
fn bbcode_tag_length(rest: &[SourceChar]) -> Option<usize> {
    const NAMES: [&str; 14] = [
        "b", "i", "u", "s", "url", "img", "quote", "code", "color", "size", "list", "center", "font",
        "spoiler",
    ];
    let from = 1 + usize::from(rest.get(1)?.c == '/');
    // The longest name has seven characters; with one more, a longer word is no name.
    let name: String =
        rest.iter().skip(from).take(8).map(|char| char.c).take_while(char::is_ascii_alphabetic).collect();
    NAMES.contains(&name.to_ascii_lowercase().as_str()).then_some(())?;
    let after_name = from + name.len();
    let value = match rest.get(after_name)?.c {
        '=' => rest
            .iter()
            .skip(after_name)
            .take(200)
            .take_while(|char| !matches!(char.c, ']' | '[' | '\n'))
            .count(),
        _ => 0,
    };
    (rest.get(after_name + value)?.c == ']').then_some(after_name + value + 1)
}

/// Returns the length of the terminal's control sequence that begins `rest`, in characters; `None` if none does. It
/// consists of the escape character, `[`, at most 64 characters of parameters, and one final character.
fn control_sequence_length(rest: &[SourceChar]) -> Option<usize> {
    (rest.get(1)?.c == '[').then_some(())?;
    let parameters = rest.iter().skip(2).take(64).take_while(|char| matches!(char.c, ' '..='?')).count();
    matches!(rest.get(2 + parameters)?.c, '@'..='~').then_some(parameters + 3)
}

#[cfg(test)]
mod tests {
    use super::super::remembered_texts::normalized_texts;
    use super::*;

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

    /// `check` takes a text, and its decoded characters, each with the part of the text that spells it.
    #[test]
    fn characters_have_their_source_ranges() {
        let check = |text: &str, expected: &[(char, &str)]| {
            let found: Vec<(char, &str)> = source_chars(text)
                .into_iter()
                .map(|char| (char.c, text.get(char.range()).unwrap()))
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        check("a\u{e9}", &[('a', "a"), ('\u{e9}', "\u{e9}")]);
        check(r"a\\u0062c", &[('a', "a"), ('b', r"\\u0062"), ('c', "c")]);
        check(r"\ud83d\ude00", &[('\u{1f600}', r"\ud83d\ude00")]);
        check("&#97;b&amp;lt;", &[('a', "&#97;"), ('b', "b"), ('<', "&amp;lt;")]);
        check("%C3%A9%61", &[('\u{e9}', "%C3%A9"), ('a', "%61")]);
        check("%2561", &[('a', "%2561")]);
        check("& % \\", &[('&', "&"), (' ', " "), ('%', "%"), (' ', " "), ('\\', "\\")]);
    }

    /// `check` takes a text, and the text without its markup.
    #[test]
    fn markup_is_masked() {
        let check = |text: &str, expected: &str| {
            let all = source_chars(text);
            let shown: String = match markup_mask(&all) {
                None => text.to_owned(),
                Some(is) => all.iter().zip(is).filter(|(_, is)| !is).map(|(char, _)| char.c).collect(),
            };
            assert_eq!(shown, expected, "{text}");
        };
        check("a<b>c</b>d", "acd");
        check("a < b > c <3 >", "a < b > c <3 >");
        check("a<!-- b > c -->d<br/>e", "ade");
        check("[a](https://x)b ](c", "[ab ](c");
        check("[a](https://x/(y)?z)b", "[ab");
        check("[a](<https://x y> 'a ) b')c", "[ac");
        check("[a](<https://x)y>)c", "[ac");
        check("[a](<https://x(y>)c", "[ac");
        check("[a](https://x\n \"title)\")c", "[ac");
        check("[a](https://x(y)c d", "[ac d");
        check("a<b title=\"x > y <c>\">d", "ad");
        check("a<b title=\"x>d", "ad");
        check("[b]a[/b] [url=https://x]c[/url] [1] [bc]", "a c [1] [bc]");
        check("\u{1b}[1;31ma\u{1b}[0m b \u{1b}c", "a b \u{1b}c");
        check("a<b<c>", "a<b");
        check("<a", "<a");
    }
}
