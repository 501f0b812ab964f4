//! Decodes the escapes of a text (of JSON, Python, HTML, URLs and style sheets), so that a text and its escaped form have
//! the same [normal forms](super::normalization). Each decoded character keeps the bytes in which the text spells it,
//! since a quotation is labelled in the text itself. `readings` calls this module.

use std::ops::Range;

/// How many levels of nested escapes are decoded.
const MAX_ESCAPE_LEVELS: usize = 8;
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
    let mut decoded = Vec::with_capacity(chars.len());
    let mut has_changed = false;
    // The high surrogate of a character that is spelled as two escapes, and where it begins.
    let mut high: Option<(u32, u32)> = None;
    let mut at = 0;
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
            let is_low_surrogate = (0xdc00..0xe000).contains(&code);
            let (code, start) = match high.take() {
                // A high and a low surrogate together encode one character.
                Some((high, high_start)) if is_low_surrogate => {
                    (0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00), high_start)
                }
                _ => (code, start),
            };
            let is_high_surrogate = (0xd800..0xdc00).contains(&code);
            if is_high_surrogate {
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

/// Returns an escape of `length` characters that spells one code point.
fn one_code(code: u32, length: usize) -> DecodedEscape {
    (vec![(code, 0, length)], length)
}

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
            Some(one_code(code, slashes + 3 + digits))
        }
        // `\u0041`, with four digits; `\U00000041` has eight.
        'u' => Some(one_code(parse_number(following.get(1..5)?, 16)?, slashes + 5)),
        'U' => Some(one_code(parse_number(following.get(1..9)?, 16)?, slashes + 9)),
        'x' => decode_hex_bytes(rest, &['\\', 'x']),
        // An octal escape of one byte has up to three digits.
        '0'..='3' => {
            let digits = following.iter().take(3).take_while(|char| char.c.is_digit(8)).count();
            let code = parse_number(following.get(..digits)?, 8)?;
            Some(one_code(code, slashes + digits))
        }
        'n' | 'r' | 't' | 'b' | 'f' | 'a' | 'v' => Some(one_code(u32::from('\n'), slashes + 1)),
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
    while let Some((byte, end)) = hex_byte_at(rest, at, signs) {
        bytes.push(byte);
        ends.push(end);
        at = end;
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

/// Reads the byte that begins at the index `at` of `rest`: `signs`, and then two hexadecimal digits. Returns the byte,
/// and the index after its last digit; `None` if no byte begins there.
fn hex_byte_at(rest: &[SourceChar], at: usize, signs: &[char]) -> Option<(u8, usize)> {
    let (first, others) = signs.split_first()?;
    // The backslash may be repeated, another sign may not.
    let repeated = rest.iter().skip(at).take_while(|char| char.c == *first).count();
    if repeated == 0 || repeated > 1 && *first != '\\' {
        return None;
    }
    let others_start = at + repeated;
    if !others.iter().zip(rest.iter().skip(others_start)).all(|(sign, char)| *sign == char.c) {
        return None;
    }
    let digits_start = others_start + others.len();
    let digits_end = digits_start + 2;
    let byte = parse_number(rest.get(digits_start..digits_end)?, 16)?;
    Some((u8::try_from(byte).ok()?, digits_end))
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
        return Some(one_code(code, length));
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
    let closed = if is_closed { decode(&name, true) } else { None };
    closed.or_else(legacy)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
