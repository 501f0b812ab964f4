//! Recognises placeholders that a model writes as text: `[hidden h2]` in a reply or in an argument.
//! [`crate::conversation`] and [`crate::slot`] use this module, and so does [`crate::links`] for streamed replies.
//!
//! A view shows placeholders in this form ([`crate::redact`]). Models repeat them with other brackets, spaces or case,
//! several in one pair of brackets, or percent-encoded. `hidden h2` without brackets and `[h2]` are placeholders only
//! if the view has a region of that name; otherwise they are words (an HTML heading).
//!
//! What happens to a placeholder depends on its place. In an argument that may be a slot, it is a reference to its
//! region ([`crate::slot`]). In any other argument, the conversation refuses the call. In a reply, a constant replaces
//! it. The outcome depends on what the model wrote and on the names in its own view, never on hidden text.

use serde_json::Value;

use crate::links::rendered::{RenderedChar, rendered_chars};

/// The constant that replaces a placeholder in a reply.
pub(crate) const NEUTRAL: &str = "(hidden text)";

/// The longest placeholder, in bytes, without its closing bracket.
const MAX_LENGTH: usize = 300;

/// A placeholder in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// Its bytes, from `start` to `end`.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The name of the region.
    pub(crate) name: String,
}

/// The result of reading a placeholder at a position.
enum PlaceholderMatch {
    /// One or more placeholders, in order.
    Placeholders(Vec<Placeholder>),
    /// The text ends before it is certain whether a placeholder begins there.
    Unknown,
    /// No placeholder begins there.
    No,
}

/// Returns the placeholders in a text, in order. `hidden_count` is the number of regions that the view of the text's
/// author hides: the forms without brackets or without the word `hidden` count only for `h1` to `h{hidden_count}`.
pub(crate) fn find(text: &str, hidden_count: usize) -> Vec<Placeholder> {
    let chars = decoded_chars(text);
    let mut found: Vec<Placeholder> = Vec::new();
    for (index, first) in chars.iter().enumerate() {
        // A placeholder does not begin inside the previous one.
        let may_read =
            may_begin(&chars, index, hidden_count) && found.last().is_none_or(|last| last.end <= first.start);
        // The text is complete (`true`): no more text follows that could complete a placeholder.
        if may_read
            && let PlaceholderMatch::Placeholders(placeholders) =
                read_placeholder(&chars, index, text.len(), true, hidden_count)
        {
            found.extend(placeholders);
        }
    }
    found
}

/// Returns the characters of a text as a renderer may show them, with percent escapes and numeric HTML escapes decoded.
/// A decoded character has the bytes of its whole escape.
fn decoded_chars(text: &str) -> Vec<RenderedChar> {
    let chars = rendered_chars(text);
    if !chars.iter().any(|rendered| matches!(rendered.c, '%' | '&')) {
        return chars;
    }
    let (mut decoded, mut at) = (Vec::with_capacity(chars.len()), 0);
    while let Some(first) = chars.get(at) {
        // The escape that begins here: the character that it spells, its length, and its last character.
        let escape = decode_escape(&chars, at)
            .and_then(|(code, length)| Some((char::from_u32(code)?, length, chars.get(at + length - 1)?)));
        match escape {
            Some((c, length, last)) => {
                decoded.push(RenderedChar { c, end: last.end.max(last.start), ..*first });
                at += length;
            }
            None => {
                decoded.push(*first);
                at += 1;
            }
        }
    }
    decoded
}

/// Returns the code point that is escaped at the character `at` of `chars`, and the length of the escape in
/// characters; `None` if no escape of a printable ASCII character begins there. Escapes are `%41`, `&#65;` and
/// `&#x41;`.
fn decode_escape(chars: &[RenderedChar], at: usize) -> Option<(u32, usize)> {
    let c = |offset: usize| chars.get(at + offset).map(|rendered| rendered.c);
    // The number that digits from an offset on spell, and how many digits it has.
    let number = |from: usize, radix: u32, max_digits: usize| {
        let digits: String = (from..from + max_digits)
            .map_while(c)
            .take_while(|c| c.is_ascii() && c.is_digit(radix))
            .collect();
        u32::from_str_radix(&digits, radix).ok().map(|code| (code, digits.len()))
    };
    let (code, length) = match (c(0)?, c(1)?) {
        ('%', _) => {
            let (code, digits) = number(1, 16, 2)?;
            if digits != 2 {
                return None;
            }
            (code, 3)
        }
        ('&', '#') => {
            let is_hexadecimal = matches!(c(2), Some('x' | 'X'));
            let (from, radix) = if is_hexadecimal { (3, 16) } else { (2, 10) };
            let (code, digits) = number(from, radix, 6)?;
            if c(from + digits) != Some(';') {
                return None;
            }
            (code, from + digits + 1)
        }
        _ => return None,
    };
    let is_printable_ascii = (0x20..0x7f).contains(&code);
    is_printable_ascii.then_some((code, length))
}

/// The longest escape, in characters.
const LONGEST_ESCAPE: usize = 10;

/// Returns whether more text after `chars` could complete an escape that begins at its character `at`.
fn may_be_escape(chars: &[RenderedChar], at: usize) -> bool {
    let rest = chars.get(at..).unwrap_or_default();
    let is_part = |rendered: &RenderedChar| rendered.c.is_ascii_alphanumeric() || rendered.c == '#';
    // `%` begins an escape of three characters, and `&` one of at most `LONGEST_ESCAPE`.
    let can_continue = match rest.first().map(|rendered| rendered.c) {
        Some('%') => rest.len() < 3,
        Some('&') => rest.len() < LONGEST_ESCAPE,
        _ => false,
    };
    can_continue && rest.iter().skip(1).all(is_part)
}

/// Returns whether a placeholder could begin at the character `index` of `chars`: at an opening bracket, or at an `h`
/// that begins a word (`hidden h2` without brackets). `hidden_count` is the number of regions that the view of the
/// text's author hides; an `h` begins no placeholder if it hides none.
fn may_begin(chars: &[RenderedChar], index: usize, hidden_count: usize) -> bool {
    let c = |index: usize| chars.get(index).map(|rendered| rendered.c);
    match c(index) {
        Some(first) if is_opening(first) => true,
        Some('h' | 'H') => hidden_count > 0 && !index.checked_sub(1).and_then(c).is_some_and(is_word),
        _ => false,
    }
}

/// Returns whether a field name in the value contains a placeholder. `hidden_count` is the number of regions that the
/// view of the value's author hides.
pub(crate) fn is_in_keys(value: &Value, hidden_count: usize) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| is_in_keys(item, hidden_count)),
        Value::Object(entries) => entries
            .iter()
            .any(|(name, value)| !find(name, hidden_count).is_empty() || is_in_keys(value, hidden_count)),
        _ => false,
    }
}

/// Returns the names of the placeholders in the texts of a value, in order and without duplicates. `hidden_count` is
/// the number of regions that the view of the author hides: `[h2]` and `hidden h2` count only if the view has that
/// region.
pub(crate) fn placeholder_names(value: &Value, hidden_count: usize) -> Vec<String> {
    let mut names = Vec::new();
    collect_names(value, hidden_count, &mut names);
    names
}

/// Adds the names of all placeholders in the texts of a value to `names`, each once. Field names are not searched:
/// [`is_in_keys`] checks them. `hidden_count` is the number of regions that the view of the author hides.
fn collect_names(value: &Value, hidden_count: usize, names: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            for placeholder in find(text, hidden_count) {
                if !names.contains(&placeholder.name) {
                    names.push(placeholder.name);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, hidden_count, names)),
        Value::Object(entries) => {
            entries.values().for_each(|value| collect_names(value, hidden_count, names))
        }
        _ => {}
    }
}

/// Replaces the placeholders in the texts of a value by what `text_of` returns for the name of the region. The
/// replacements are not searched again: a placeholder in one stays text. The names of fields stay unchanged.
/// `hidden_count` is the number of regions that the view of the author hides.
pub(crate) fn replace(value: &mut Value, hidden_count: usize, text_of: &mut dyn FnMut(&str) -> String) {
    match value {
        Value::String(text) => *text = replace_in_text(text, hidden_count, text_of),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, hidden_count, text_of)),
        Value::Object(entries) => {
            entries.values_mut().for_each(|value| replace(value, hidden_count, text_of))
        }
        _ => {}
    }
}

/// Replaces each placeholder in a text by [`NEUTRAL`]. `hidden_count` is the number of regions that the view of the
/// text's author hides. With 0, only the full form `[hidden h2]` counts as a placeholder.
pub(crate) fn neutralize(text: &str, hidden_count: usize) -> String {
    replace_in_text(text, hidden_count, &mut |_| NEUTRAL.to_owned())
}

/// Replaces the placeholders in one text, as [`replace`] does.
fn replace_in_text(text: &str, hidden_count: usize, text_of: &mut dyn FnMut(&str) -> String) -> String {
    let (mut written, mut at) = (String::with_capacity(text.len()), 0);
    for placeholder in find(text, hidden_count) {
        written.push_str(text.get(at..placeholder.start).unwrap_or_default());
        written.push_str(&text_of(&placeholder.name));
        at = placeholder.end;
    }
    written.push_str(text.get(at..).unwrap_or_default());
    written
}

/// Does the work of [`neutralize`] piece by piece, for a reply that is streamed: returns the text that no later piece
/// can change.
#[derive(Debug, Default)]
pub(crate) struct StreamNeutralizer {
    /// The end of the text so far, which could become a placeholder.
    pending: String,
    /// The number of regions that the author's view hides.
    hidden_count: usize,
    /// The character before `pending`, since a placeholder without brackets must begin a word.
    before: Option<char>,
}

impl StreamNeutralizer {
    /// Creates a neutralizer for a reply whose author's view hides `hidden_count` regions.
    pub(crate) fn new(hidden_count: usize) -> Self {
        Self { hidden_count, ..Self::default() }
    }

    /// Takes a piece of a streamed reply, and returns the text that is certain by now, with its placeholders replaced.
    /// If the end of the piece could be the beginning of a placeholder, this end waits for the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let mut chars = decoded_chars(&self.pending);
        // The text is processed up to `end`: an incomplete escape at the end waits for its remaining characters.
        let tail = chars.len().saturating_sub(LONGEST_ESCAPE);
        let escape = (tail..chars.len()).find(|at| may_be_escape(&chars, *at));
        let end = escape.and_then(|at| chars.get(at)).map_or(self.pending.len(), |first| first.start);
        chars.truncate(escape.unwrap_or(chars.len()));
        // Up to `at`, the text is written already; from `held_from` on, it waits for the next piece.
        let (mut written, mut at, mut held_from) = (String::new(), 0, end);
        for (index, first) in chars.iter().enumerate() {
            // The character is part of a placeholder that was replaced.
            if first.start < at {
                continue;
            }
            // A placeholder without brackets must begin a word, and the word may have begun in an earlier piece.
            let is_inside_word = index == 0 && !is_opening(first.c) && self.before.is_some_and(is_word);
            if is_inside_word || !may_begin(&chars, index, self.hidden_count) {
                continue;
            }
            // `false`: the text is not complete, since more may follow.
            match read_placeholder(&chars, index, self.pending.len(), false, self.hidden_count) {
                PlaceholderMatch::Placeholders(placeholders) => {
                    for placeholder in placeholders {
                        written.push_str(self.pending.get(at..placeholder.start).unwrap_or_default());
                        written.push_str(NEUTRAL);
                        at = placeholder.end;
                    }
                }
                // Text that could become a placeholder waits for the next piece.
                PlaceholderMatch::Unknown => {
                    held_from = first.start;
                    break;
                }
                PlaceholderMatch::No => {}
            }
        }
        written.push_str(self.pending.get(at..held_from).unwrap_or_default());
        // The last character before the text that waits.
        self.before = chars
            .iter()
            .rev()
            .find(|rendered| rendered.start < held_from)
            .map(|rendered| rendered.c)
            .or(self.before);
        self.pending = self.pending.get(held_from..).unwrap_or_default().to_owned();
        written
    }
}

/// Returns whether an `h` after this character is inside a word or a selector of a style sheet, and so begins no
/// placeholder.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '#')
}

/// Returns whether a character opens brackets, in any of the forms in which models write placeholders. The escapes are
/// `‹`, `«`, `【`, `〔`, `「`, `『`, `⟨`, `〈` and `《`.
fn is_opening(c: char) -> bool {
    matches!(
        c,
        '[' | '('
            | '{'
            | '<'
            | '\u{2039}'
            | '\u{ab}'
            | '\u{3010}'
            | '\u{3014}'
            | '\u{300c}'
            | '\u{300e}'
            | '\u{27e8}'
            | '\u{3008}'
            | '\u{300a}'
    )
}

/// Returns whether a character closes brackets. The escapes are the partners of those in [`is_opening`].
fn is_closing(c: char) -> bool {
    matches!(
        c,
        ']' | ')'
            | '}'
            | '>'
            | '\u{203a}'
            | '\u{bb}'
            | '\u{3011}'
            | '\u{3015}'
            | '\u{300d}'
            | '\u{300f}'
            | '\u{27e9}'
            | '\u{3009}'
            | '\u{300b}'
    )
}

/// Returns whether a character may separate the words of a placeholder.
fn is_separator(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '_' | '-' | ':' | '#' | '*' | '`' | '~' | '.' | '=' | '"' | '\'' | '\\' | '/' | '|' | '+'
        )
}

/// Reads the elements of one placeholder from the characters of a text.
struct PlaceholderReader<'s> {
    /// The characters of the text.
    chars: &'s [RenderedChar],
    /// The byte offset at which the longest possible placeholder ends.
    limit: usize,
}

impl PlaceholderReader<'_> {
    /// Returns the character at an index; `None` at the end of the text and beyond the longest placeholder.
    fn char_at(&self, index: usize) -> Option<char> {
        self.chars.get(index).filter(|rendered| rendered.start < self.limit).map(|rendered| rendered.c)
    }

    /// Returns the index of the first character from `at` on that is not skipped.
    fn skip(&self, mut at: usize, is_skipped: impl Fn(char) -> bool) -> usize {
        while self.char_at(at).is_some_and(&is_skipped) {
            at += 1;
        }
        at
    }

    /// Reads the name of a region, `h` and digits: returns the index after the digits, and the digits. The digits are
    /// empty if none follows the `h`; in a text that is not complete, they may follow later. `None` if no `h` is at the
    /// index.
    fn read_name(&self, at: usize) -> Option<(usize, String)> {
        if !matches!(self.char_at(at), Some('h' | 'H')) {
            return None;
        }
        let digits = (at + 1..).map_while(|index| self.char_at(index)).map_while(|c| c.to_digit(10));
        let digits: String = digits.map(|digit| digit.to_string()).collect();
        Some((at + 1 + digits.len(), digits))
    }

    /// Skips the optional words between `hidden` and the name, from `at` on, and returns the index after them. A word
    /// that the end of the text cuts off is skipped, too.
    fn skip_optional_words(&self, mut at: usize) -> usize {
        for word in ["region", "text", "placeholder", "value"] {
            let has_word = word
                .chars()
                .enumerate()
                .all(|(i, letter)| self.char_at(at + i).is_none_or(|c| c.eq_ignore_ascii_case(&letter)));
            if has_word && self.char_at(at).is_some() {
                at = self.skip(at + word.len(), is_separator);
            }
        }
        at
    }

    /// Reads further names in the same brackets, on the same line, from `at` on, the index after a name. Adds their
    /// placeholders to `found`, and returns the index after the last name.
    fn read_further_names(&self, mut at: usize, found: &mut Vec<Placeholder>) -> usize {
        loop {
            let mut next = self.skip(at, |c| is_separator(c) && c != '\n' || matches!(c, ',' | ';' | '&'));
            if "and".chars().enumerate().all(|(i, letter)| self.char_at(next + i) == Some(letter)) {
                next = self.skip(next + 3, char::is_whitespace);
            }
            let Some((end, digits)) = self.read_name(next) else { return at };
            let is_separated = next > at;
            let is_part_of_word = self.char_at(end).is_some_and(char::is_alphanumeric);
            if !is_separated || digits.is_empty() || is_part_of_word {
                return at;
            }
            let start = self.chars.get(next).map_or(0, |rendered| rendered.start);
            found.push(Placeholder { start, end: self.end_of(end - 1), name: region_name(&digits) });
            at = end;
        }
    }

    /// Returns the byte offset after a character.
    fn end_of(&self, index: usize) -> usize {
        self.chars.get(index).map_or(0, |rendered| rendered.end.max(rendered.start))
    }
}

/// Returns the name of the region whose number these digits spell, without the leading zeros that a model may write.
fn region_name(digits: &str) -> String {
    let digits = digits.trim_start_matches('0');
    format!("h{}", if digits.is_empty() { "0" } else { digits })
}

/// Reads the placeholders that begin at the character `open`: one, or several in one pair of brackets. `length` is the
/// length of the text in bytes; `is_whole` is whether the text is complete, and `hidden_count` is the number of regions
/// that the view of the text's author hides. The forms are `[h2]`, `[hidden h2 ...]` with optional words and
/// descriptions, and `hidden h2` without brackets; a form without the word or without brackets counts only if the view
/// has the region.
fn read_placeholder(
    chars: &[RenderedChar],
    open: usize,
    length: usize,
    is_whole: bool,
    hidden_count: usize,
) -> PlaceholderMatch {
    let Some(first) = chars.get(open) else { return PlaceholderMatch::No };
    let (start, limit) = (first.start, first.start + MAX_LENGTH);
    let reader = PlaceholderReader { chars, limit };
    // The result where the text ends within a form: more text could complete it, unless it is too long already.
    let undecided =
        || if is_whole || length > limit { PlaceholderMatch::No } else { PlaceholderMatch::Unknown };
    // Whether the text ends at an index, and more text may follow.
    let is_cut = |index: usize| chars.get(index).is_none() && !is_whole && length <= limit;
    let is_bare = !is_opening(first.c);
    // Brackets may be doubled.
    let mut at = if is_bare { open } else { reader.skip(open + 1, |c| is_separator(c) || is_opening(c)) };
    let is_known =
        |digits: &str| digits.parse().is_ok_and(|number: usize| (1..=hidden_count).contains(&number));
    // The form `[h2]`, also in the brackets `【】`.
    if matches!(first.c, '[' | '\u{3010}')
        && let Some((end, digits)) = reader.read_name(at)
        && (is_known(&digits) || is_cut(end))
    {
        let close = reader.skip(end, is_separator);
        match reader.char_at(close) {
            None if is_cut(close) => return PlaceholderMatch::Unknown,
            Some(c) if is_known(&digits) && is_closing(c) => {
                let end = reader.end_of(close);
                return PlaceholderMatch::Placeholders(vec![Placeholder {
                    start,
                    end,
                    name: region_name(&digits),
                }]);
            }
            _ => {}
        }
    }
    // All other forms begin with the word.
    for letter in "hidden".chars() {
        match reader.char_at(at) {
            Some(c) if c.eq_ignore_ascii_case(&letter) => at += 1,
            Some(_) => return PlaceholderMatch::No,
            None => return undecided(),
        }
    }
    let word_end = at;
    at = reader.skip(at, is_separator);
    // Without brackets, a separator must follow the word: `hiddenh2` is no placeholder.
    if is_bare && at == word_end {
        return if reader.char_at(at).is_none() { undecided() } else { PlaceholderMatch::No };
    }
    at = reader.skip_optional_words(at);
    let Some((end, digits)) = reader.read_name(at) else {
        return if reader.char_at(at).is_none() { undecided() } else { PlaceholderMatch::No };
    };
    match reader.char_at(end) {
        // An `h` without digits, or one that is part of a longer word, is no name.
        Some(next) if digits.is_empty() || next.is_alphanumeric() => return PlaceholderMatch::No,
        Some(_) => {}
        None if digits.is_empty() => return undecided(),
        None if is_cut(end) => return PlaceholderMatch::Unknown,
        None => {}
    }
    let mut found = vec![Placeholder { start, end: reader.end_of(end - 1), name: region_name(&digits) }];
    if is_bare {
        // Without brackets, `hidden h2` is a placeholder only if the view has such a region.
        return if is_known(&digits) { PlaceholderMatch::Placeholders(found) } else { PlaceholderMatch::No };
    }
    at = reader.read_further_names(end, &mut found);
    // The description of a region precedes the closing bracket.
    for index in at.. {
        match reader.char_at(index) {
            Some('\n') => break,
            Some(c) if is_closing(c) => {
                if let Some(last) = found.last_mut() {
                    last.end = reader.end_of(index);
                }
                break;
            }
            Some(_) => {}
            None if is_cut(index) => return PlaceholderMatch::Unknown,
            None => break,
        }
    }
    PlaceholderMatch::Placeholders(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Rows: a text, and the text with `<h1>` in place of each placeholder; empty if the text has no placeholder.
    #[test]
    fn placeholders_are_found_in_disguise() {
        for (text, expected) in [
            ("[hidden h1]", "<h1>"),
            ("see [hidden h12].", "see <h12>."),
            ("[hidden h1: string] and [hidden h2; rating: \"4.2\"]", "<h1> and <h2>"),
            ("[Hidden H1]", "<h1>"),
            ("[ hidden   h1 ]", "<h1>"),
            ("[hidden\u{a0}h1]", "<h1>"),
            ("[hid\u{200b}den h\u{ad}1]", "<h1>"),
            ("\u{ff3b}hidden h1\u{ff3d}", "<h1>"),
            ("\u{ff3b}\u{ff48}idden \u{ff48}\u{ff11}\u{ff3d}", "<h1>"),
            ("\u{3010}hidden h1\u{3011}", "<h1>"),
            ("(hidden h1) {hidden h1} <hidden h1>", "<h1> <h1> <h1>"),
            ("\\[hidden h1\\]", "\\<h1>"),
            ("[**hidden** `h1`]", "<h1>"),
            ("[hidden_h1] [hidden-h1] [hidden:h1] [hidden: h1]", "<h1> <h1> <h1> <h1>"),
            ("[hidden text h1] [hidden region: h1]", "<h1> <h1>"),
            ("[[hidden h1]]", "<h1>]"),
            ("[hidden\nh1]", "<h1>"),
            ("[hidden h01", "<h1>"),
            ("[hidden h1\nand more]", "<h1>\nand more]"),
            ("a[hidden h99999999999999999999]b", "a<h99999999999999999999>b"),
            (
                "[hidden] [h1] hidden h1 [hidden ham] [hidden h2o] [unhidden h1] (hidden H.264) (hidden text)",
                "",
            ),
            ("[hidden h", ""),
        ] {
            check(text, 0, if expected.is_empty() { text } else { expected });
        }
        let all = json!(["[hidden h2] [hidden h1]", {"a": "(hidden h2)"}]);
        assert_eq!(placeholder_names(&all, 0), ["h2", "h1"]);
    }

    fn check(text: &str, hidden_count: usize, expected: &str) {
        let shown = replace_in_text(text, hidden_count, &mut |name| format!("<{name}>"));
        assert_eq!(shown, expected, "{text}");
        assert_eq!(!placeholder_names(&json!([{"a": text}]), hidden_count).is_empty(), text != expected);
        assert_eq!(is_in_keys(&json!([{text: 1}]), hidden_count), text != expected);
        assert!(find(&neutralize(text, hidden_count), hidden_count).is_empty(), "{text}");
        // Processing in pieces returns a prefix of the same result.
        for size in 1..4 {
            let (mut pieces, mut given) = (StreamNeutralizer::new(hidden_count), String::new());
            for piece in text.chars().collect::<Vec<_>>().chunks(size) {
                given.push_str(&pieces.push(&piece.iter().collect::<String>()));
                assert!(neutralize(text, hidden_count).starts_with(&given), "{given} of {text}");
            }
        }
    }

    #[test]
    fn several_names_in_one_pair_of_brackets_are_all_found() {
        for (text, expected) in [
            ("[hidden h1, h2]", "<h1>, <h2>"),
            ("[hidden h1 and h2] [hidden h1 h3]", "<h1> and <h2> <h1> <h3>"),
            ("[hidden: h1; h2 & h3: string] x", "<h1>; <h2> & <h3> x"),
            ("[hidden h1, ham] [hidden h1 h2o]", "<h1> <h1>"),
            ("%5Bhidden%20h1%5D &#91;hidden&#x20;h1&#93; (hidden+h1)", "<h1> <h1> <h1>"),
            ("100% of R&D, 5%2 &#9; %zz", "100% of R&D, 5%2 &#9; %zz"),
        ] {
            check(text, 0, expected);
        }
    }

    /// A text that is a word elsewhere is a placeholder if the view has a region of that name.
    #[test]
    fn names_without_brackets_count_where_they_name_something() {
        for (text, expected) in [
            ("see hidden h1, and Hidden H2.", "see <h1>, and <h2>."),
            ("hidden text h1: [h2] and \u{3010}H1\u{3011}", "<h1>: <h2> and <h1>"),
            ("hidden%20h1 \"hidden h2\"", "<h1> \"<h2>\""),
            ("hid\u{200b}den h1 **hidden** h2", "<h1> **<h2>"),
            ("hidden h3 [h3] [h0] .hidden h1 #hidden h1 unhidden h1 hiddenh1 <h1>x</h1> (h2) h1", ""),
            ("hidden ham, [h1b], hidden [h", ""),
        ] {
            check(text, 2, if expected.is_empty() { text } else { expected });
            check(text, 0, text);
        }
    }

    /// Of a streamed text, at most a possible placeholder at its end is held back.
    #[test]
    fn little_is_held_back() {
        let mut pieces = StreamNeutralizer::new(0);
        assert_eq!(pieces.push("a [b] and (c) [hid"), "a [b] and (c) ");
        assert_eq!(pieces.push("e] and"), "[hide] and");
        for unit in [
            "[",
            "[hidden ",
            "[hidden h1",
            "[hidden h1 ",
            "(hidden h",
            "hidden",
            "h",
            "hidden h",
            "%",
            "&#",
            "[h",
        ] {
            let (mut pieces, mut given) = (StreamNeutralizer::new(3), 0);
            for _ in 0..2_000 {
                given += pieces.push(unit).len();
            }
            assert!(given > 0 && pieces.pending.len() <= 2 * MAX_LENGTH, "{unit} {}", pieces.pending.len());
        }
    }
}
