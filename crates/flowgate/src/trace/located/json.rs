//! JSON texts: RFC 8259, without extensions.

use super::cursor::Cursor;
use super::tree::{Place, Tree};
use super::{Kind, Node, Unlocated};

/// Parses a text that is one JSON array or object.
pub(super) fn read(text: &str) -> Result<Node, Unlocated> {
    let mut c = Cursor::new(text);
    let mut tree = Tree::default();
    space(&mut c);
    if !matches!(c.peek(), Some(b'[' | b'{')) {
        return Err(Unlocated::NotStructured);
    }
    value(&mut c, &mut tree)?;
    while let Some(place) = tree.place() {
        space(&mut c);
        let close = if place == Place::Item { b']' } else { b'}' };
        if c.eat(close) {
            tree.close(c.at())?;
            continue;
        }
        if tree.len() > 0 {
            c.expect(b',')?;
            space(&mut c);
        }
        if place == Place::Key {
            let start = c.at();
            let key = string(&mut c)?;
            tree.key(key, start..c.at())?;
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

fn space(c: &mut Cursor<'_>) {
    c.skip(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
}

/// Parses a scalar, or the opening bracket of an array or object.
fn value(c: &mut Cursor<'_>, tree: &mut Tree) -> Result<(), Unlocated> {
    let start = c.at();
    let kind = match c.peek() {
        Some(b'[') => {
            c.next();
            return tree.open_list(start);
        }
        Some(b'{') => {
            c.next();
            return tree.open_map(start);
        }
        Some(b'"') => Kind::Text(string(c)?),
        Some(b'-' | b'0'..=b'9') => number(c)?,
        Some(b't') => word(c, "true", Kind::Bool(true))?,
        Some(b'f') => word(c, "false", Kind::Bool(false))?,
        Some(b'n') => word(c, "null", Kind::Null)?,
        _ => return c.fail(),
    };
    tree.leaf(start..c.at(), kind)
}

fn word(c: &mut Cursor<'_>, word: &str, kind: Kind) -> Result<Kind, Unlocated> {
    for byte in word.bytes() {
        c.expect(byte)?;
    }
    Ok(kind)
}

fn number(c: &mut Cursor<'_>) -> Result<Kind, Unlocated> {
    let start = c.at();
    c.eat(b'-');
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
    Ok(Kind::Number(c.since(start).to_owned()))
}

fn digits(c: &mut Cursor<'_>) -> Result<(), Unlocated> {
    if c.skip(|b| b.is_ascii_digit()) { Ok(()) } else { c.fail() }
}

/// Parses a string and decodes it.
fn string(c: &mut Cursor<'_>) -> Result<String, Unlocated> {
    c.expect(b'"')?;
    let mut decoded = String::new();
    loop {
        let start = c.at();
        c.skip(|b| b != b'"' && b != b'\\' && b >= b' ');
        decoded.push_str(c.since(start));
        if c.eat(b'"') {
            return Ok(decoded);
        }
        c.expect(b'\\')?;
        decoded.push(escape(c)?);
    }
}

/// Parses the characters after a backslash.
fn escape(c: &mut Cursor<'_>) -> Result<char, Unlocated> {
    let at = c.at();
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
                code = 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            char::from_u32(code).ok_or(Unlocated::Syntax { offset: at })?
        }
        _ => return Err(Unlocated::Syntax { offset: at }),
    };
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, refuse, sound, values};
    use super::super::{Form, Unlocated, locate};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn fields_are_located() {
        check(Form::Json, " [] ", &[]);
        check(
            Form::Json,
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
            Form::Json,
            r#"{"é": {"b": [[], {}, "x"]}, "": ""}"#,
            &[("/é/b/2", r#""x""#, json!("x")), ("/", r#""""#, json!(""))],
        );
        check(
            Form::Json,
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
            refuse(Form::Json, text, &Unlocated::Syntax { offset });
        }
        for text in ["", "12", "\"a\"", "null", "text", "\u{feff}[]"] {
            refuse(Form::Json, text, &Unlocated::NotStructured);
        }
        refuse(
            Form::Json,
            r#"[{"a": 1}, {"b": {"c": 1, "c": 2}}]"#,
            &Unlocated::DuplicateKey { span: 26..29 },
        );
    }

    proptest! {
        #[test]
        fn printed_values_come_back(value in values()) {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let located = locate(&text, None).unwrap();
                prop_assert_eq!(located.form, Form::Json);
                prop_assert_eq!(located.root.to_value(), value.clone());
                for (_, spelled, decoded) in sound(&located, &text) {
                    prop_assert_eq!(spelled, decoded.to_string());
                }
            }
        }

        #[test]
        fn what_is_accepted_is_what_serde_accepts(
            text in r#"[\[{]("(a|\\u?[0-9d]{0,4}|[^\x20-\x7f])?"|[-0-9.eE]{1,4}|[\[\]{}:, ]|null|true){0,9}[\]}]"#,
        ) {
            let ours = locate(&text, Some(Form::Json)).map(|l| l.root.to_value());
            let theirs = serde_json::from_str::<Value>(&text);
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
                (Err(Unlocated::DuplicateKey { .. }), _) | (Err(_), Err(_)) => {}
                // Beyond the range of a double: kept as spelled.
                (Ok(_), Err(why)) => prop_assert!(why.to_string().contains("out of range")),
                (Err(why), Ok(_)) => prop_assert!(false, "{}", why),
            }
        }
    }
}
