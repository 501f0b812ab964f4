//! Escapes untrusted text for a terminal, so that the text cannot forge what a person reads. No character in the result
//! moves the cursor, changes the direction of writing, or is invisible, apart from joiners, which some scripts need.
//!
//! All untrusted text that commands print passes through this module: they escape parts such as names with [`line()`],
//! [`excerpt`] or a similar function, and `output` passes each whole line through [`escape_output`].

use std::borrow::Cow;
use std::fmt::Write;

#[cfg(any(feature = "gateway", feature = "run"))]
use serde_json::Value;

/// Escapes a line or text that a command prints, as the last step before a terminal or a file. Line breaks, tabs,
/// joiners (invisible characters that emoji and some scripts need) and, with `has_color`, changes of colour remain.
///
/// The escapes are those of JSON, so that the value of a text that is JSON stays the same.
pub(crate) fn escape_output(text: &str, has_color: bool) -> Cow<'_, str> {
    let remains = |c: char| matches!(c, '\n' | '\t') || is_joiner(c) || !is_unsafe_char(c);
    if text.chars().all(remains) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        if remains(c) || has_color && is_change_of_color(rest) {
            shown.push(c);
        } else {
            escape(c, &mut shown);
        }
    }
    Cow::Owned(shown)
}

/// Returns whether a text begins with a terminal sequence that changes only colour or weight: one that
/// [`Console`](crate::output::Console) prints itself.
fn is_change_of_color(text: &str) -> bool {
    let codes = text.strip_prefix("\u{1b}[").and_then(|rest| Some(rest.split_once('m')?.0));
    let is_known = |code: &str| matches!(code, "0" | "1" | "2" | "31" | "32" | "33" | "34" | "35" | "36");
    codes.is_some_and(|codes| codes.split(';').all(is_known))
}

/// Escapes text that may have several lines: line breaks and tabs remain.
#[cfg(feature = "run")]
pub(crate) fn multiline(text: &str) -> String {
    escape_unless(text, |c| matches!(c, '\n' | '\t') || is_joiner(c))
}

/// Escapes text that is printed within a line: line breaks and tabs are escaped too.
pub(crate) fn line(text: &str) -> String {
    escape_unless(text, is_joiner)
}

/// Returns at most the first `characters` characters of a text, escaped, on one line: each sequence of white space
/// becomes a space, and joiners are escaped too. A text that is cut ends with `…`.
pub(crate) fn excerpt(text: &str, characters: usize) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = joined.chars().take(characters).collect();
    let end = if cut.len() < joined.len() { " …" } else { "" };
    format!("{}{end}", escape_unless(&cut, |_| false))
}

/// Returns a value as indented JSON, in which every character that a terminal could not show or would interpret is
/// escaped.
#[cfg(feature = "run")]
pub(crate) fn json(value: &Value) -> String {
    escape_json(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Returns a value as JSON on one line, in which every character that a terminal could not show or would interpret is
/// escaped.
#[cfg(any(feature = "gateway", feature = "run"))]
pub(crate) fn json_line(value: &Value) -> String {
    escape_json(&value.to_string())
}

/// Escapes the characters of a JSON text that are unsafe on a terminal, as JSON escapes them, so that the value stays
/// the same. The text must come from `serde_json`: the only unsafe characters outside its strings are line feeds, which
/// are kept.
#[cfg(any(feature = "gateway", feature = "run"))]
fn escape_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_unsafe_char(c) {
            shown.push(c);
        } else {
            escape(c, &mut shown);
        }
    }
    shown
}

/// Appends the JSON escape of a character to `shown`, such as `\u001b`.
fn escape(c: char, shown: &mut String) {
    let mut units = [0_u16; 2];
    for unit in c.encode_utf16(&mut units) {
        // Writing to a text does not fail.
        let _ = write!(shown, "\\u{unit:04x}");
    }
}

/// Escapes the unsafe characters of a text as Rust does, such as `\u{1b}`, except those for which `is_allowed` returns
/// true.
fn escape_unless(text: &str, is_allowed: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_allowed(c) || !is_unsafe_char(c) {
            shown.push(c);
        } else {
            // Writing to a text does not fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
    }
    shown
}

/// Returns whether a character is an invisible one that joins emoji or the characters of some scripts. Text needs these
/// characters, and they hide nothing; so most functions of this module do not escape them.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0f}')
}

/// Returns whether a character is a control character, changes the direction of writing, or is invisible.
fn is_unsafe_char(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_text_can_only_change_colour() {
        let check = |given: &str, with_color: &str, without: &str| {
            assert_eq!(
                (&*escape_output(given, true), &*escape_output(given, false)),
                (with_color, without),
                "{given:?}"
            );
        };
        check("grüße, 你好 👩\u{200d}🚀\n\t", "grüße, 你好 👩\u{200d}🚀\n\t", "grüße, 你好 👩\u{200d}🚀\n\t");
        check("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m", "\\u001b[1;31mred\\u001b[0m");
        check("\u{1b}[2Jgone", "\\u001b[2Jgone", "\\u001b[2Jgone");
        check("\u{1b}[8mhidden", "\\u001b[8mhidden", "\\u001b[8mhidden");
        check("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007", "\\u001b]0;title\\u0007");
        check("\u{9b}31mred\r", "\\u009b31mred\\u000d", "\\u009b31mred\\u000d");
        check("evil\u{202e}gpj", "evil\\u202egpj", "evil\\u202egpj");
        check("{\"tag\": \"\u{e0041}\"}", "{\"tag\": \"\\udb40\\udc41\"}", "{\"tag\": \"\\udb40\\udc41\"}");
    }

    #[cfg(feature = "run")]
    #[test]
    fn nothing_plays_tricks_on_the_terminal() {
        let check = |given: &str, on_lines: &str, on_one: &str| {
            assert_eq!((multiline(given).as_str(), line(given).as_str()), (on_lines, on_one), "{given:?}");
        };
        check("grüße, 你好, مرحبا", "grüße, 你好, مرحبا", "grüße, 你好, مرحبا");
        check("a\n\tb", "a\n\tb", "a\\u{a}\\u{9}b");
        check("\u{1b}[2Jgone", "\\u{1b}[2Jgone", "\\u{1b}[2Jgone");
        check("\u{9b}31m", "\\u{9b}31m", "\\u{9b}31m");
        check("over\rwritten", "over\\u{d}written", "over\\u{d}written");
        check("evil\u{202e}gpj", "evil\\u{202e}gpj", "evil\\u{202e}gpj");
        check("tag\u{e0041}s", "tag\\u{e0041}s", "tag\\u{e0041}s");
        check("👩\u{200d}🚀", "👩\u{200d}🚀", "👩\u{200d}🚀");
        assert_eq!(excerpt("a  b\n\u{200b}c", 5), "a b \\u{200b} …");
    }

    #[cfg(feature = "run")]
    #[test]
    fn json_stays_the_same_value() {
        use serde_json::json;
        let value = json!({"to": "bob\u{202e}moc", "n": ["\u{1b}[1A", "\u{7f}", "\u{e0041}", "é\n"]});
        let shown = json(&value);
        assert!(shown.contains("bob\\u202emoc") && shown.contains("\\udb40\\udc41"), "{shown}");
        assert!(shown.chars().all(|c| c == '\n' || !is_unsafe_char(c)), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
