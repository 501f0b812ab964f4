//! Parses a text that is JSON (RFC 8259, without extensions) to nodes with their spans. [`locate`](super::locate) tries
//! it first.

use super::cursor::Cursor;
use super::tree::{ExpectedNode, TreeBuilder};
use super::{LocateError, LocatedNode, LocatedNodeKind};

/// Parses a text that is one JSON array or object. A text that begins with neither `[` nor `{` is
/// [`LocateError::NotStructured`]. The function does not call itself for an inner array or object: `tree` has a list of
/// the open ones, so deep nesting cannot exhaust the stack.
pub(super) fn read(text: &str) -> Result<LocatedNode, LocateError> {
    // The cursor in the text; its offsets are bytes.
    let mut c = Cursor::new(text);
    let mut tree = TreeBuilder::default();
    space(&mut c);
    if !matches!(c.peek(), Some(b'[' | b'{')) {
        return Err(LocateError::NotStructured);
    }
    value(&mut c, &mut tree)?;
    // While an array or object is open: its end, or its next item or entry.
    while let Some(expected) = tree.expected_node() {
        space(&mut c);
        let close = if expected == ExpectedNode::Item { b']' } else { b'}' };
        if c.eat(close) {
            tree.close(c.offset())?;
            continue;
        }
        // A comma precedes each item of the innermost open array or object, except the first one.
        if tree.len() > 0 {
            c.expect(b',')?;
            space(&mut c);
        }
        if expected == ExpectedNode::Key {
            let start = c.offset();
            let key = string(&mut c)?;
            tree.key(key, start..c.offset())?;
            space(&mut c);
            c.expect(b':')?;
            space(&mut c);
        }
        value(&mut c, &mut tree)?;
    }
    space(&mut c);
    c.end()?;
    tree.finish()
}

/// Consumes the white space of JSON, if there is any.
fn space(c: &mut Cursor<'_>) {
    c.skip(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
}

/// Parses a scalar, or only the opening bracket of an array or object, whose content the caller parses.
fn value(c: &mut Cursor<'_>, tree: &mut TreeBuilder) -> Result<(), LocateError> {
    let start = c.offset();
    let kind = match c.peek() {
        Some(b'[') => {
            c.next();
            return tree.open_list(start);
        }
        Some(b'{') => {
            c.next();
            return tree.open_map(start);
        }
        Some(b'"') => LocatedNodeKind::Text(string(c)?),
        Some(b'-' | b'0'..=b'9') => number(c)?,
        Some(b't') => word(c, "true", LocatedNodeKind::Bool(true))?,
        Some(b'f') => word(c, "false", LocatedNodeKind::Bool(false))?,
        Some(b'n') => word(c, "null", LocatedNodeKind::Null)?,
        _ => return c.fail(),
    };
    tree.add_scalar(start..c.offset(), kind)
}

/// Consumes exactly this word, and returns `kind`.
fn word(c: &mut Cursor<'_>, word: &str, kind: LocatedNodeKind) -> Result<LocatedNodeKind, LocateError> {
    for byte in word.bytes() {
        c.expect(byte)?;
    }
    Ok(kind)
}

/// Parses a number of JSON, without leading zeros. The result is its spelling, so that no digit is lost.
fn number(c: &mut Cursor<'_>) -> Result<LocatedNodeKind, LocateError> {
    let start = c.offset();
    // A sign is optional, here and in the exponent, so the result does not matter.
    c.eat(b'-');
    // After a leading zero, the number ends or continues with a fraction or an exponent. The caller fails at a digit.
    if !c.eat(b'0') {
        digits(c)?;
    }
    if c.eat(b'.') {
        digits(c)?;
    }
    if c.eat(b'e') || c.eat(b'E') {
        let _signed = c.eat(b'+') || c.eat(b'-');
        digits(c)?;
    }
    Ok(LocatedNodeKind::Number(c.text_since(start).to_owned()))
}

/// Consumes the decimal digits that follow; fails if there is none.
fn digits(c: &mut Cursor<'_>) -> Result<(), LocateError> {
    if c.skip(|b| b.is_ascii_digit()) { Ok(()) } else { c.fail() }
}

/// Parses a string and decodes it. Fails at a control character, which JSON requires to be escaped.
fn string(c: &mut Cursor<'_>) -> Result<String, LocateError> {
    c.expect(b'"')?;
    let mut decoded = String::new();
    loop {
        let start = c.offset();
        c.skip(|b| b != b'"' && b != b'\\' && b >= b' ');
        decoded.push_str(c.text_since(start));
        if c.eat(b'"') {
            return Ok(decoded);
        }
        c.expect(b'\\')?;
        decoded.push(escape(c)?);
    }
}

/// Parses the characters after a backslash, and returns the character that they represent. Two escapes that are a
/// surrogate pair represent one character; a single surrogate is an error.
fn escape(c: &mut Cursor<'_>) -> Result<char, LocateError> {
    let at = c.offset();
    let decoded = match c.next() {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let mut code = c.hex(4)?;
            if (0xD800..0xDC00).contains(&code) {
                c.expect(b'\\')?;
                c.expect(b'u')?;
                let low = c.hex(4)?;
                if !(0xDC00..0xE000).contains(&low) {
                    return c.fail();
                }
                // Each half contributes 10 bits to the code of a character beyond the first 0x10000.
                code = 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            char::from_u32(code).ok_or(LocateError::Syntax { offset: at })?
        }
        _ => return Err(LocateError::Syntax { offset: at }),
    };
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_rejected, check_spans, values};
    use super::super::{LocateError, Notation, locate};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn fields_are_located() {
        check(Notation::Json, " [] ", &[]);
        check(
            Notation::Json,
            "[1, -0.5e+3 ,true,\tfalse, null]\n",
            &[
                ("/0", "1", json!(1)),
                ("/1", "-0.5e+3", json!(-500.0)),
                ("/2", "true", json!(true)),
                ("/3", "false", json!(false)),
                ("/4", "null", json!(null)),
            ],
        );
        check(
            Notation::Json,
            r#"{"é": {"b": [[], {}, "x"]}, "": ""}"#,
            &[("/é/b/2", r#""x""#, json!("x")), ("/", r#""""#, json!(""))],
        );
        check(
            Notation::Json,
            r#"["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00", "€"]"#,
            &[
                ("/0", r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#, json!("\"\\/\u{8}\u{c}\n\r\té😀")),
                ("/1", "\"€\"", json!("€")),
            ],
        );
    }

    #[test]
    fn broken_texts_are_refused() {
        for (text, offset) in [
            ("[", 1),
            ("[1", 2),
            ("[1,]", 3),
            ("[,1]", 1),
            ("[1 2]", 3),
            ("[01]", 2),
            ("[1.]", 3),
            ("[.5]", 1),
            ("[+1]", 1),
            ("[-]", 2),
            ("[1e]", 3),
            ("[tru]", 4),
            ("[nulls]", 5),
            ("[NaN]", 1),
            ("['a']", 1),
            ("[\"a\nb\"]", 3),
            ("[\"a", 3),
            (r#"["\x41"]"#, 3),
            (r#"["\u12"]"#, 4),
            (r#"["\ud800"]"#, 8),
            (r#"["\ud800\u0041"]"#, 14),
            (r#"["\udc00"]"#, 3),
            ("{\"a\"}", 4),
            ("{\"a\":}", 5),
            ("{\"a\":1,}", 7),
            ("{1: 2}", 1),
            ("{a: 2}", 1),
            ("[1] x", 4),
            ("[1] [2]", 4),
            ("[1}", 2),
            ("[1] // x", 4),
            ("[\u{a0}1]", 1),
        ] {
            check_rejected(Notation::Json, text, &LocateError::Syntax { offset });
        }
        for text in ["", "12", "\"a\"", "null", "text", "\u{feff}[]"] {
            check_rejected(Notation::Json, text, &LocateError::NotStructured);
        }
        check_rejected(
            Notation::Json,
            r#"[{"a": 1}, {"b": {"c": 1, "c": 2}}]"#,
            &LocateError::DuplicateKey { span: 26..29 },
        );
    }

    proptest! {
        #[test]
        fn printed_values_come_back(value in values()) {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let located = locate(&text, None).unwrap();
                prop_assert_eq!(located.form, Notation::Json);
                prop_assert_eq!(located.root.to_value(), value.clone());
                for (_, spelled, decoded) in check_spans(&located, &text) {
                    prop_assert_eq!(spelled, decoded.to_string());
                }
            }
        }

        #[test]
        fn the_accepted_texts_are_those_of_serde_json(
            text in r#"[\[{]("(a|\\u?[0-9d]{0,4}|[^\x20-\x7f])?"|[-0-9.eE]{1,4}|[\[\]{}:, ]|null|true){0,9}[\]}]"#,
        ) {
            let ours = locate(&text, Some(Notation::Json)).map(|l| l.root.to_value());
            let theirs = serde_json::from_str::<Value>(&text);
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
                (Err(LocateError::DuplicateKey { .. }), _) | (Err(_), Err(_)) => {}
                // Beyond the range of a double: kept as spelled.
                (Ok(_), Err(why)) => prop_assert!(why.to_string().contains("out of range")),
                (Err(why), Ok(_)) => prop_assert!(false, "{}", why),
            }
        }
    }
}
