//! Text of others, as a terminal may show it: nothing in it moves the cursor, changes the direction of writing, or hides.

use std::fmt::Write;

use serde_json::Value;

/// Text over several lines.
#[cfg(feature = "run")]
pub(crate) fn text(text: &str) -> String {
    spelled(text, |c| matches!(c, '\n' | '\t') || is_joiner(c))
}

/// Text on one line.
#[cfg(feature = "run")]
pub(crate) fn line(text: &str) -> String {
    spelled(text, is_joiner)
}

/// The beginning of a text, on one line.
pub(crate) fn short(text: &str, characters: usize) -> String {
    let one = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = one.chars().take(characters).collect();
    let end = if cut.len() < one.len() { " …" } else { "" };
    format!("{}{end}", spelled(&cut, |_| false))
}

/// A value as indented JSON, every character of which can be seen and told from others of its kind.
#[cfg(feature = "run")]
pub(crate) fn json(value: &Value) -> String {
    escaped(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// The same on one line.
#[cfg(feature = "gateway")]
pub(crate) fn json_line(value: &Value) -> String {
    escaped(&value.to_string())
}

/// JSON with the escapes that hide nothing: it stays the same value.
fn escaped(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_tricky(c) {
            shown.push(c);
        } else {
            let mut units = [0_u16; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

fn spelled(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if keep(c) || !is_tricky(c) {
            shown.push(c);
        } else {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
    }
    shown
}

/// What joins emoji and letters of some scripts; it hides nothing that would be read.
#[cfg(feature = "run")]
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0f}')
}

/// Control characters, what changes the direction of writing, and what cannot be seen.
fn is_tricky(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(all(test, feature = "run"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_plays_tricks_on_the_terminal() {
        let check = |given: &str, on_lines: &str, on_one: &str| {
            assert_eq!((text(given).as_str(), line(given).as_str()), (on_lines, on_one), "{given:?}");
        };
        check("grüße, 你好, مرحبا", "grüße, 你好, مرحبا", "grüße, 你好, مرحبا");
        check("a\n\tb", "a\n\tb", "a\\u{a}\\u{9}b");
        check("\u{1b}[2Jgone", "\\u{1b}[2Jgone", "\\u{1b}[2Jgone");
        check("\u{9b}31m", "\\u{9b}31m", "\\u{9b}31m");
        check("over\rwritten", "over\\u{d}written", "over\\u{d}written");
        check("evil\u{202e}gpj", "evil\\u{202e}gpj", "evil\\u{202e}gpj");
        check("tag\u{e0041}s", "tag\\u{e0041}s", "tag\\u{e0041}s");
        check("👩\u{200d}🚀", "👩\u{200d}🚀", "👩\u{200d}🚀");
        assert_eq!(short("a  b\n\u{200b}c", 5), "a b \\u{200b} …");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = json!({"to": "bob\u{202e}moc", "n": ["\u{1b}[1A", "\u{7f}", "\u{e0041}", "é\n"]});
        let shown = json(&value);
        assert!(shown.contains("bob\\u202emoc") && shown.contains("\\udb40\\udc41"), "{shown}");
        assert!(shown.chars().all(|c| c == '\n' || !is_tricky(c)), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
