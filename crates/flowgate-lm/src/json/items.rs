//! Locates the items of a list in a JSON text without parsing them. The gateway finds the messages of a chat this way,
//! and parses only those that it has not received before.
//!
//! The result is exact for valid JSON and unspecified otherwise. The caller therefore skips an item only if the digest
//! of its bytes shows that it has parsed the same bytes before, and parses all other text strictly.

use std::ops::Range;

/// The most items of a list. In a longer list, none is located.
const MAX_ITEMS: usize = 1 << 14;

/// Returns the byte ranges of the items of the list under `key`, where `text` is one JSON object. `None` if the object
/// has no such list, the list has too many items, or the scan fails: the caller then parses the whole text.
///
/// The text is not checked to be valid JSON; if it is not, the ranges mean nothing.
#[must_use]
pub fn items(text: &str, key: &str) -> Option<Vec<Range<usize>>> {
    let mut scan = JsonScanner { text: text.as_bytes(), at: 0 };
    // Each iteration reads one entry of the object, up to the comma after it.
    scan.eat(b'{')?;
    loop {
        let name = scan.value()?;
        // A key with escapes may be the same key, but is not recognised.
        let is_key = text.get(name)?.strip_prefix('"')?.strip_suffix('"')? == key;
        scan.eat(b':')?;
        if is_key {
            return scan.list();
        }
        scan.value()?;
        scan.eat(b',')?;
    }
}

/// Moves through a JSON text, from value to value.
struct JsonScanner<'t> {
    text: &'t [u8],
    /// The offset of the next byte.
    at: usize,
}

impl JsonScanner<'_> {
    /// Skips white space, and returns the next byte without skipping it; `None` at the end of the text.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..)?;
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.at += blanks;
        rest.get(blanks).copied()
    }

    /// Skips white space and this byte; `None` if another byte is next.
    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Returns the byte ranges of the items of the list that begins here; `None` if it is not a list, does not end, or
    /// has more than [`MAX_ITEMS`] items.
    fn list(&mut self) -> Option<Vec<Range<usize>>> {
        // Most items have at least 128 bytes, so this is usually the only allocation.
        let mut items = Vec::with_capacity((self.text.len() / 128).min(MAX_ITEMS));
        self.eat(b'[')?;
        if self.peek()? == b']' {
            return Some(items);
        }
        while items.len() < MAX_ITEMS {
            items.push(self.value()?);
            if self.peek()? == b']' {
                return Some(items);
            }
            self.eat(b',')?;
        }
        None
    }

    /// Skips the next value, and returns its byte range; `None` if the text ends first, or there is no value here.
    fn value(&mut self) -> Option<Range<usize>> {
        let first = self.peek()?;
        let begin = self.at;
        match first {
            b'"' => self.skip_text()?,
            b'{' | b'[' => self.skip_brackets()?,
            // A number, `true`, `false` or `null`: up to the next separator.
            _ => {
                let is_end =
                    |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\n' | b'\r');
                self.at += self.text.get(begin..)?.iter().position(is_end)?;
            }
        }
        Some(begin..self.at).filter(|range| !range.is_empty())
    }

    /// Skips a string, from its opening quotation mark to its closing one; `None` if it does not end.
    fn skip_text(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            let rest = self.text.get(self.at..)?;
            // The number of bytes before the next quotation mark or backslash.
            let plain = memchr::memchr2(b'"', b'\\', rest)?;
            let is_end = rest.get(plain) == Some(&b'"');
            // After a backslash, skips the escaped byte as well: it may be a quotation mark.
            self.at += plain + if is_end { 1 } else { 2 };
            if is_end {
                return Some(());
            }
        }
    }

    /// Skips a list or an object, from its opening bracket, which is the next byte, to the closing one; `None` if it
    /// does not end. Accepts a bracket that is closed by one of the other kind: the strict parser rejects it.
    fn skip_brackets(&mut self) -> Option<()> {
        // The number of open brackets: at least 1 after the first iteration, so that it can be decremented.
        let mut depth = 0_usize;
        loop {
            let rest = self.text.get(self.at..)?;
            self.at += rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'))?;
            match self.text.get(self.at)? {
                b'"' => {
                    self.skip_text()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth -= 1,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::super::Json;
    use super::super::tests::value;
    use super::*;

    /// Fragments that often form almost valid JSON.
    const LETTERS: &str = r#"((\{"[am]":)|\}|\[|\]|,|(,"m":\[)|(":)|"|"a"|\\|1| ){0,6}"#;

    #[test]
    fn items_have_their_byte_ranges() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let found = items(text, "m")
                .map(|items| items.into_iter().map(|at| text.get(at).unwrap()).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check(r#"{"m":[]}"#, Some(&[]));
        check(
            r#"{"m":[{"a":"]"},[1,[2]], -1.5e3 ,"x\"]","\\",null]}"#,
            Some(&[r#"{"a":"]"}"#, "[1,[2]]", "-1.5e3", r#""x\"]""#, r#""\\""#, "null"]),
        );
        check("\n{ \"a\\\"m\" : {\"m\":[0]} , \"b\":true,\"m\" : [ 1\n, 2 ] , \"m\":3", Some(&["1", "2"]));
        // A different spelling of the key, or no such key.
        check(r#"{"\u006d":[1]}"#, None);
        check(r#"{"n":[1]}"#, None);
        check(r#"{"m":{"m":[1]}}"#, None);
        check(r#"["m",[1]]"#, None);
        for broken in [
            "",
            "{",
            r#"{"m"#,
            r#"{"m":[1"#,
            r#"{"m":["\"#,
            r#"{"m":[1,]}"#,
            r#"{"m":[}"#,
            r#"{"m":[[1}"#,
            r#"{"m" [1]}"#,
        ] {
            assert!(
                items(broken, "m")
                    .is_none_or(|items| items.iter().all(|at| broken.get(at.clone()).is_some())),
                "{broken}"
            );
        }
        assert_eq!(items(&format!(r#"{{"m":[{}0]}}"#, "0,".repeat(MAX_ITEMS)), "m"), None);
    }

    proptest! {
        #[test]
        fn items_equal_those_of_the_parsed_list(
            list in prop::collection::vec(value(), 0..6),
            before in prop::collection::vec(("[a-l\"\\\\]{0,3}", value()), 0..3),
            pretty in any::<bool>(),
        ) {
            let mut object: Map<String, Value> = before.into_iter().collect();
            object.insert("m".to_owned(), list.clone().into());
            object.insert("z".to_owned(), "]".into());
            let text = if pretty { format!("{:#}", Value::from(object)) } else { Value::from(object).to_string() };
            let found: Option<Vec<Value>> =
                items(&text, "m").map(|items| items.into_iter().map(|at| serde_json::from_str(text.get(at).unwrap()).unwrap()).collect());
            let list: Value = serde_json::from_str(&Value::from(list).to_string()).unwrap();
            prop_assert_eq!(found.map(Value::from), Some(list));
        }

        /// Text that is not JSON as a whole does not parse in parts either.
        #[test]
        fn items_parse_only_if_the_whole_parses(before in LETTERS, list in LETTERS, behind in LETTERS) {
            let text = format!(r#"{{{before}"m":[{list}]{behind}}}"#);
            let places = items(&text, "m").unwrap_or_default();
            let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(()) };
            let (before, rest) = text.split_at(first.start);
            let (list, behind) = rest.split_at(last.end - first.start);
            let (others, list) = (format!("{before}{behind}"), format!(r#"{{"m":[{list}]}}"#));
            if let (Ok(_), Ok(list)) = (Json::parse(&others), Json::parse(&list)) {
                let whole = Json::parse(&text);
                let said = whole.as_ref().ok().and_then(|whole| whole.get("m"));
                prop_assert_eq!(said, list.get("m"), "{}", text);
            }
        }
    }
}
