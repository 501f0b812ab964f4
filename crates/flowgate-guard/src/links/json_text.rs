//! Disarms the refused addresses in a reply that must be JSON because the client demands it: changes them so that no
//! renderer makes a link of them. The parent module decides which addresses are refused.
//!
//! The client decodes the JSON and shows the strings in it. In them, an escape such as `\u003a` is the character
//! that it denotes. The addresses are therefore searched for in the decoded strings, and a string that contained a
//! refused address is disarmed and encoded again. The rest of the text stays as the model wrote it: the result is
//! JSON of the same form, with the same numbers and in the same order. A string in which an address is permitted is
//! followed by a space, because a renderer that shows the JSON itself would otherwise read what follows as part of
//! the address.
//!
//! A text that is not JSON, such as a reply in words or one that was cut off, is disarmed like any other. If an
//! address appears only when the escapes of the text are decoded, the decoded text is disarmed in its place.

use serde::de::IgnoredAny;

/// A disarmed text.
#[derive(Debug)]
pub(super) struct CleanedText {
    pub(super) text: String,
    /// The addresses that were refused, and the characters of links and markup (such as `](`) that were broken apart.
    pub(super) refused: Vec<String>,
    /// Whether an address was judged and permitted, so that white space must follow the text. False where the policy
    /// permits every address.
    pub(super) has_address: bool,
}

/// Disarms a reply with `clean`, which disarms one decoded text. Returns the disarmed reply, and what was refused in it
/// ([`CleanedText::refused`]). Each string of JSON is disarmed as the client decodes it; a reply that is not valid JSON
/// is disarmed as a text.
pub(super) fn clean_json(text: &str, clean: &mut dyn FnMut(&str) -> CleanedText) -> (String, Vec<String>) {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return clean_partial(text, clean);
    }
    let (mut written, mut refused) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let (before, token) = rest.split_at(start);
        let (token, after) = token.split_at(string_end(token));
        rest = after;
        written.push_str(before);
        // The whole text is valid JSON, so each of its strings can be decoded.
        let decoded: String = serde_json::from_str(token).unwrap_or_default();
        let cleaned = clean(&decoded);
        if cleaned.text == decoded {
            written.push_str(token);
        } else {
            written.push_str(&serde_json::Value::from(cleaned.text).to_string());
        }
        // A renderer that shows the JSON itself would otherwise extend the address.
        if cleaned.has_address {
            written.push(' ');
        }
        for what in cleaned.refused {
            if !refused.contains(&what) {
                refused.push(what);
            }
        }
    }
    written.push_str(rest);
    (written, refused)
}

/// Returns the length of the string at the beginning of `token`, with both quotation marks. A string that does not end
/// extends to the end of `token`.
fn string_end(token: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in token.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    token.len()
}

/// Cleans a reply that is no valid JSON. If the decoded escapes of the reply spell a refused address, the result is the
/// cleaned decoded text, otherwise the cleaned reply as it was written.
fn clean_partial(text: &str, clean: &mut dyn FnMut(&str) -> CleanedText) -> (String, Vec<String>) {
    let decoded = decode_escapes(text);
    if decoded != text {
        let CleanedText { text, refused, .. } = clean(&decoded);
        if !refused.is_empty() {
            return (text, refused);
        }
    }
    let CleanedText { text, refused, .. } = clean(text);
    (text, refused)
}

/// Replaces the escapes of JSON in a text by the characters that they denote; other backslashes stay.
fn decode_escapes(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('\\') {
        let (before, escape) = rest.split_at(start);
        decoded.push_str(before);
        let length = escape_length(escape);
        let (escape, after) = escape.split_at(length);
        // `None` for a backslash alone, and for half of a surrogate pair: both stay as they are.
        let string: Option<String> = serde_json::from_str(&format!("\"{escape}\"")).ok();
        decoded.push_str(string.as_deref().unwrap_or(escape));
        rest = after;
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the length of the escape that begins `text`; 1, for the backslash alone, if this is no escape of JSON.
fn escape_length(text: &str) -> usize {
    let is_unicode = |text: &str| {
        text.starts_with("\\u")
            && text.get(2..6).is_some_and(|hex| hex.chars().all(|c| c.is_ascii_hexdigit()))
    };
    match text.chars().nth(1) {
        Some('u') if is_unicode(text) => {
            // Two escapes denote one character if the first is the first half of a surrogate pair.
            let second = text.get(6..).filter(|rest| is_unicode(rest));
            let half = text.get(2..4).map(str::to_ascii_lowercase);
            let is_half = half.is_some_and(|hex| ["d8", "d9", "da", "db"].contains(&hex.as_str()));
            if is_half && second.is_some() { 12 } else { 6 }
        }
        Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::LinkDecision;
    use super::*;

    /// Cleans a text under a policy that permits addresses of `ok.org`.
    fn cleaned(text: &str) -> String {
        let mut clean = |text: &str| {
            let mut has_address = false;
            let mut judge = |address: &str| match address.starts_with("https://ok.org/") {
                true => {
                    has_address = true;
                    LinkDecision::Permitted
                }
                false => LinkDecision::Refused,
            };
            let (text, refused) =
                super::super::clean(&text.replace("[hidden h1]", "(hidden text)"), &mut judge);
            CleanedText { text, refused, has_address }
        };
        clean_json(text, &mut clean).0
    }

    #[test]
    fn json_stays_json() {
        for (text, expected) in [
            // Without an address nothing changes, not even how it is spelled.
            (r#"{"a":1.50, "b" : [true,null,"x\u0041\n"]}"#, r#"{"a":1.50, "b" : [true,null,"x\u0041\n"]}"#),
            ("12345678901234567890123", "12345678901234567890123"),
            (r#""[hidden h1] and so on""#, r#""(hidden text) and so on""#),
            (r#"{"u":"https://ok.org/a","v":"b"}"#, r#"{"u":"https://ok.org/a" ,"v":"b"}"#),
        ] {
            assert_eq!(cleaned(text), expected, "{text}");
            assert!(serde_json::from_str::<IgnoredAny>(&cleaned(text)).is_ok());
        }
    }

    /// However an address is written in JSON, its decoded form is broken apart.
    #[test]
    fn no_address_hides_in_the_spelling_of_json() {
        for address in [
            "https://evil.org/a",
            r"https:\/\/evil.org\/a",
            r"\u0068ttps://evil.org/a",
            r"https\u003a//evil.org/a",
            r"https://evil\u002eorg/a",
            r"![x](https\u003A\u002F\u002Fevil.org/a)",
            r"see\nhttps://evil.org/a\nthere",
        ] {
            for text in [
                format!(r#"{{"a":"{address}"}}"#),
                format!(r#"{{"{address}":1}}"#),
                format!(r#"["{address}"]"#),
                // No JSON: words, and JSON that was cut off.
                format!("It is {address} ."),
                format!(r#"{{"a":"{address} and"#),
            ] {
                let shown = cleaned(&text);
                assert!(!decode_escapes(&shown).contains("evil.org"), "{text} -> {shown}");
                let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
                assert_eq!(is_json(&shown), is_json(&text), "{shown}");
            }
        }
    }

    /// Rows: a text, and the text with the escapes of JSON decoded.
    #[test]
    fn escapes_are_decoded() {
        for (text, expected) in [
            (r"a\u0041\\u0041", r"aA\u0041"),
            (r"\ud83d\ude00\ud83d", "😀\\ud83d"),
            (r"C:\dir \x \u12", "C:\\dir \\x \\u12"),
            ("ü\\", "ü\\"),
        ] {
            assert_eq!(decode_escapes(text), expected, "{text}");
        }
    }
}
