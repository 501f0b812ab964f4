//! Placeholders that a model writes as text: `[hidden h2]` in a reply or in an argument.
//!
//! A view shows placeholders of this form ([`crate::redact`]), and models repeat them, with other brackets, spaces or case. In an
//! argument that is payload it is a reference to the region ([`crate::slot`]); in any other the call is refused; in a reply a
//! constant takes its place. What becomes of it depends on what the model wrote and on the names in its own view, never on what is hidden.

use serde_json::Value;

use crate::links::view::{Seen, view};

/// What a reply has in place of a placeholder.
pub(crate) const NEUTRAL: &str = "(hidden text)";

/// The longest placeholder, in bytes, without a bracket that closes it.
const MAX_LENGTH: usize = 300;

/// A placeholder in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// The bytes of it.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The name of the region.
    pub(crate) name: String,
}

/// What a place in a text may be the beginning of.
enum Read {
    Placeholder(Placeholder),
    /// More must come to know.
    Unknown,
    No,
}

/// The placeholders in a text, in order.
pub(crate) fn find(text: &str) -> Vec<Placeholder> {
    let seen = view(text);
    let mut found: Vec<Placeholder> = Vec::new();
    for index in 0..seen.len() {
        let is_open = seen
            .get(index)
            .is_some_and(|first| opens(first.c) && found.last().is_none_or(|last| last.end <= first.start));
        if is_open && let Read::Placeholder(placeholder) = read(&seen, index, text.len(), true) {
            found.push(placeholder);
        }
    }
    found
}

/// Whether the name of a field has a placeholder in it.
pub(crate) fn is_in_names(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(is_in_names),
        Value::Object(entries) => {
            entries.iter().any(|(name, value)| !find(name).is_empty() || is_in_names(value))
        }
        _ => false,
    }
}

/// The names of the placeholders in the texts of a value, each once.
pub(crate) fn names(value: &Value) -> Vec<String> {
    let mut names = Vec::new();
    collect(value, &mut names);
    names
}

fn collect(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            for placeholder in find(text) {
                if !names.contains(&placeholder.name) {
                    names.push(placeholder.name);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Object(entries) => entries.values().for_each(|value| collect(value, names)),
        _ => {}
    }
}

/// Puts texts in the place of placeholders, once: placeholders in what is put in are text.
pub(crate) fn replace(value: &mut Value, text_of: &mut dyn FnMut(&str) -> String) {
    match value {
        Value::String(text) => *text = replaced(text, text_of),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, text_of)),
        Value::Object(entries) => entries.values_mut().for_each(|value| replace(value, text_of)),
        _ => {}
    }
}

/// A text with a constant in the place of each placeholder.
pub(crate) fn neutral(text: &str) -> String {
    replaced(text, &mut |_| NEUTRAL.to_owned())
}

fn replaced(text: &str, text_of: &mut dyn FnMut(&str) -> String) -> String {
    let (mut written, mut at) = (String::with_capacity(text.len()), 0);
    for placeholder in find(text) {
        written.push_str(text.get(at..placeholder.start).unwrap_or_default());
        written.push_str(&text_of(&placeholder.name));
        at = placeholder.end;
    }
    written.push_str(text.get(at..).unwrap_or_default());
    written
}

/// The same as [`neutral`], piece by piece: gives out what no later piece can change.
#[derive(Debug, Default)]
pub(crate) struct Neutral {
    pending: String,
}

impl Neutral {
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let seen = view(&self.pending);
        let (mut written, mut at, mut kept) = (String::new(), 0, self.pending.len());
        for (index, first) in seen.iter().enumerate() {
            if first.start < at || !opens(first.c) {
                continue;
            }
            match read(&seen, index, self.pending.len(), false) {
                Read::Placeholder(placeholder) => {
                    written.push_str(self.pending.get(at..placeholder.start).unwrap_or_default());
                    written.push_str(NEUTRAL);
                    at = placeholder.end;
                }
                Read::Unknown => {
                    kept = first.start;
                    break;
                }
                Read::No => {}
            }
        }
        written.push_str(self.pending.get(at..kept).unwrap_or_default());
        self.pending = self.pending.get(kept..).unwrap_or_default().to_owned();
        written
    }
}

fn opens(c: char) -> bool {
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

fn closes(c: char) -> bool {
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

/// What may stand between the words of a placeholder.
fn separates(c: char) -> bool {
    c.is_whitespace()
        || matches!(c, '_' | '-' | ':' | '#' | '*' | '`' | '~' | '.' | '=' | '"' | '\'' | '\\' | '/' | '|')
}

/// Reads what an opening bracket may be the beginning of. `length` is that of the text, which `is_whole` says is all of it.
fn read(seen: &[Seen], open: usize, length: usize, is_whole: bool) -> Read {
    let Some(first) = seen.get(open) else { return Read::No };
    let start = first.start;
    let is_near = |index: usize| seen.get(index).is_some_and(|seen| seen.start < start + MAX_LENGTH);
    let unknown = || if is_whole || length > start + MAX_LENGTH { Read::No } else { Read::Unknown };
    let c = |index: usize| seen.get(index).filter(|_| is_near(index)).map(|seen| seen.c);
    let mut at = open + 1;
    // Brackets may be doubled.
    while c(at).is_some_and(|c| separates(c) || opens(c)) {
        at += 1;
    }
    for letter in "hidden".chars() {
        match c(at) {
            Some(c) if c.eq_ignore_ascii_case(&letter) => at += 1,
            Some(_) => return Read::No,
            None => return unknown(),
        }
    }
    while c(at).is_some_and(separates) {
        at += 1;
    }
    for word in ["region", "text", "placeholder", "value"] {
        let begins = word
            .chars()
            .enumerate()
            .all(|(i, letter)| c(at + i).is_none_or(|c| c.eq_ignore_ascii_case(&letter)));
        if begins && c(at).is_some() {
            at += word.len();
            while c(at).is_some_and(separates) {
                at += 1;
            }
        }
    }
    match c(at) {
        Some('h' | 'H') => at += 1,
        Some(_) => return Read::No,
        None => return unknown(),
    }
    let digits: String =
        (at..).map_while(c).map_while(|c| c.to_digit(10)).map(|digit| digit.to_string()).collect();
    at += digits.len();
    let end_of_digits = seen.get(at.saturating_sub(1)).map_or(length, |last| last.end.max(last.start));
    match c(at) {
        Some(next) if digits.is_empty() || next.is_alphanumeric() => return Read::No,
        Some(_) => {}
        None if digits.is_empty() => return unknown(),
        None if seen.get(at).is_none() && !is_whole && length <= start + MAX_LENGTH => return Read::Unknown,
        None => {}
    }
    let name = format!(
        "h{}",
        match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        }
    );
    // What a placeholder says of a region stands before the bracket that closes it.
    let mut end = None;
    for index in at.. {
        match c(index) {
            Some('\n') => break,
            Some(c) if closes(c) => {
                end = seen.get(index).map(|last| last.end.max(last.start));
                break;
            }
            Some(_) => {}
            None if seen.get(index).is_none() && !is_whole && length <= start + MAX_LENGTH => {
                return Read::Unknown;
            }
            None => break,
        }
    }
    Read::Placeholder(Placeholder { start, end: end.unwrap_or(end_of_digits), name })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            let shown = replaced(text, &mut |name| format!("<{name}>"));
            assert_eq!(shown, if expected.is_empty() { text } else { expected }, "{text}");
            assert_eq!(!names(&json!([{"a": text}])).is_empty(), !expected.is_empty());
            assert_eq!(is_in_names(&json!([{text: 1}])), !expected.is_empty());
            assert!(find(&neutral(text)).is_empty(), "{text}");
            // In pieces it comes to the same, as far as it is given out.
            for size in 1..4 {
                let (mut pieces, mut given) = (Neutral::default(), String::new());
                for piece in text.chars().collect::<Vec<_>>().chunks(size) {
                    given.push_str(&pieces.push(&piece.iter().collect::<String>()));
                    assert!(neutral(text).starts_with(&given), "{given} of {text}");
                }
            }
        }
        assert_eq!(names(&json!(["[hidden h2] [hidden h1]", {"a": "(hidden h2)"}])), ["h2", "h1"]);
    }

    #[test]
    fn little_is_held_back() {
        let mut pieces = Neutral::default();
        assert_eq!(pieces.push("a [b] and (c) [hid"), "a [b] and (c) ");
        assert_eq!(pieces.push("e] and"), "[hide] and");
        for unit in ["[", "[hidden ", "[hidden h1", "[hidden h1 ", "(hidden h"] {
            let (mut pieces, mut given) = (Neutral::default(), 0);
            for _ in 0..2_000 {
                given += pieces.push(unit).len();
            }
            assert!(given > 0 && pieces.pending.len() <= 2 * MAX_LENGTH, "{unit} {}", pieces.pending.len());
        }
    }
}
