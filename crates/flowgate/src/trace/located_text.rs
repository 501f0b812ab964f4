//! Locates structure inside text: the lists, maps and scalars that it encodes, with the bytes that spell them.
//!
//! A tool output is often one string that encodes data: JSON, a Python literal (the `repr` of a list or a dict) or YAML
//! (whose outermost list or map is in block style; in flow style only on request). [`locate`] parses such a text and
//! returns every list, map and scalar in it together with its **span**: the byte range of the original text that spells
//! it. A label can then be put on one field of one row, and that field can be replaced in place, with the rest of the
//! text left unchanged byte for byte. The document of an event is built from the result.
//!
//! The spans of one result nest: they lie on character boundaries, children lie inside their parent, and siblings are
//! disjoint and in order.
//!
//! Parsing is strict, because a text that two parsers understand differently would carry a label on the wrong bytes.
//! The whole text must be consumed, a key may occur once per map, and YAML anchors, tags and merge keys are rejected,
//! as are line breaks that only YAML 1.1 recognises. Work and memory are bounded by [`TEXT_LIMIT`] (less for YAML: 1
//! MiB), [`NODE_LIMIT`] and [`DEPTH_LIMIT`]; no input makes a parser recurse.

mod cursor;
mod json;
mod locate_error;
mod node;
mod python;
#[cfg(test)]
mod testing;
mod tree;
mod yaml;

pub use locate_error::LocateError;
pub use node::{LocatedNode, LocatedNodeKind, MapEntry};

/// Maximum length of a text that is parsed, in bytes (16 MiB).
pub const TEXT_LIMIT: usize = 16 << 20;

/// Maximum number of nodes (lists, maps and scalars together) of one text.
pub const NODE_LIMIT: usize = 200_000;

/// Maximum nesting depth of lists and maps.
pub const DEPTH_LIMIT: usize = 64;

/// The notation of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notation {
    /// RFC 8259, without extensions.
    Json,
    /// The output of Python's `repr` for lists, dicts, tuples and sets.
    Python,
    /// One YAML document whose plain scalars follow the core schema.
    Yaml,
}

/// A text that was parsed as data.
#[derive(Clone, Debug, PartialEq)]
pub struct LocatedText {
    /// The notation that was recognised.
    pub form: Notation,
    /// The outermost node: always a list or a map.
    pub root: LocatedNode,
}

/// Parses a text as data and locates each of its nodes.
///
/// With a notation `form`, only that one is tried. Without one, strict JSON comes first, then a Python literal, then
/// YAML. A text in one of these notations that violates a rule other than syntax (a duplicate key, for example) is
/// rejected without trying the next. YAML whose root is in flow style, such as `[see note]`, is parsed only on request:
/// otherwise it is nearly always prose or broken JSON. Prose of the form `Rating: 4.2` *is* a YAML map, and `- like
/// this` a YAML list, and both are accepted as such.
///
/// # Errors
///
/// See [`LocateError`]. If no notation fits, the error says why the last one tried does not.
pub fn locate(text: &str, form: Option<Notation>) -> Result<LocatedText, LocateError> {
    if text.len() > TEXT_LIMIT {
        return Err(LocateError::TooLarge);
    }
    match form {
        Some(form) => parse_notation(text, form),
        None => detect(text),
    }
}

/// Parses a text in one given notation.
fn parse_notation(text: &str, form: Notation) -> Result<LocatedText, LocateError> {
    let root = match form {
        Notation::Json => json::read(text),
        Notation::Python => python::read(text),
        Notation::Yaml => yaml::read(text),
    }?;
    Ok(LocatedText { form, root })
}

/// Tries the notations from the strictest to the most permissive, and returns the result of the first that reads the
/// text. An error other than one of syntax, such as a duplicate key, ends the search too.
fn detect(text: &str) -> Result<LocatedText, LocateError> {
    for form in [Notation::Json, Notation::Python] {
        match parse_notation(text, form) {
            Err(why) if why.may_be_other_notation() => {}
            done => return done,
        }
    }
    // A root in YAML's flow style is nearly always prose or broken JSON; see `locate`.
    if let Some(start) = text.find(|c: char| !c.is_ascii_whitespace())
        && text.get(start..).is_some_and(|t| t.starts_with(['[', '{']))
    {
        return Err(LocateError::Syntax { offset: start });
    }
    parse_notation(text, Notation::Yaml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_detected() {
        for (text, form) in [
            ("[]", Notation::Json),
            (r#" {"a": [1, null]} "#, Notation::Json),
            ("{'a': None}", Notation::Python),
            ("[1, True]", Notation::Python),
            ("(1, 2)", Notation::Python),
            ("- a\n- b", Notation::Yaml),
            ("Rating: 4.2\nReviews: nice", Notation::Yaml),
            ("a: {b: [c]}\n", Notation::Yaml),
        ] {
            assert_eq!(locate(text, None).map(|l| l.form), Ok(form), "{text}");
        }
    }

    #[test]
    fn prose_has_no_structure() {
        for text in [
            "",
            "  \n",
            "42",
            "\"quoted\"",
            "None",
            "2024-05-15",
            "Reservation for the 5th, made successfully.",
            "*Note* that this is prose",
            "* one\n* two",
            "# Heading\n\nText under it.",
            "[INFO] started",
            "[INFO]",
            "{name}, welcome",
            "Error: key: value: text",
            "<Message id=1>",
            "datetime.date(2024, 5, 15)",
            "!important note",
            "%d items",
            "@user hello",
            "`code`",
            "first paragraph\n\nsecond: paragraph",
        ] {
            let why = locate(text, None).unwrap_err();
            assert!(why.may_be_other_notation(), "{text}: {why:?}");
        }
    }

    #[test]
    fn a_broken_rule_ends_detection() {
        for (text, why) in [
            (r#"{"a": 1, "\u0061": 2}"#, LocateError::DuplicateKey { span: 9..17 }),
            ("{'a': 1, 'a': 2}", LocateError::DuplicateKey { span: 9..12 }),
            ("a: 1\na: 2", LocateError::DuplicateKey { span: 5..6 }),
            ("a: &x 1", LocateError::Alias { offset: 3 }),
        ] {
            assert_eq!(locate(text, None), Err(why), "{text}");
        }
        let deep = "[".repeat(DEPTH_LIMIT + 1);
        assert_eq!(locate(&deep, None), Err(LocateError::TooDeep { offset: DEPTH_LIMIT }));
    }

    #[test]
    fn sizes_are_limited() {
        let long = " ".repeat(TEXT_LIMIT + 1);
        assert_eq!(locate(&long, None), Err(LocateError::TooLarge));
        let many = format!("[{}0]", "0,".repeat(NODE_LIMIT));
        for form in [Notation::Json, Notation::Python, Notation::Yaml] {
            assert_eq!(locate(&many, Some(form)), Err(LocateError::TooLarge));
        }
        let most = format!("[{}0]", "0,".repeat(NODE_LIMIT - 2));
        assert!(locate(&most, None).is_ok());
    }

    #[test]
    fn nesting_up_to_the_limit_is_read() {
        for form in [Notation::Json, Notation::Python, Notation::Yaml] {
            let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
            assert!(locate(&nest(DEPTH_LIMIT), Some(form)).is_ok());
            assert_eq!(
                locate(&nest(DEPTH_LIMIT + 1), Some(form)),
                Err(LocateError::TooDeep { offset: DEPTH_LIMIT }),
                "{form:?}"
            );
        }
    }
}
