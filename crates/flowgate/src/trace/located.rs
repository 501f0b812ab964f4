//! Structure inside text, with the bytes that spell it.
//!
//! A tool output is often one string that encodes data: JSON, a Python literal (the `repr` of a list or a dict) or
//! block-style YAML. [`locate`] parses such a text and returns every list, map and scalar in it together with its
//! **span**: the byte range of the original text that spells it. A label can then be put on one field of one row, and
//! that field can be replaced in place, with the rest of the text left unchanged byte for byte.
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
mod node;
mod python;
#[cfg(test)]
mod testing;
mod tree;
mod unlocated;
mod yaml;

pub use node::{Entry, Kind, Node};
pub use unlocated::Unlocated;

/// Maximum length of a text that is parsed, in bytes (16 MiB).
pub const TEXT_LIMIT: usize = 16 << 20;

/// Maximum number of nodes (lists, maps and scalars together) of one text.
pub const NODE_LIMIT: usize = 200_000;

/// Maximum nesting depth of lists and maps.
pub const DEPTH_LIMIT: usize = 64;

/// The notation of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RFC 8259, without extensions.
    Json,
    /// The output of Python's `repr` for lists, dicts, tuples and sets.
    Python,
    /// One YAML document whose plain scalars follow the core schema.
    Yaml,
}

/// A text that was parsed as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// The notation that was recognised.
    pub form: Form,
    /// The outermost node: always a list or a map.
    pub root: Node,
}

/// Parses a text as data and locates each of its nodes.
///
/// With a `form`, only that notation is tried. Without one, strict JSON comes first, then a Python literal, then
/// block-style YAML; a text in one of these notations that violates a rule other than syntax (a duplicate key, for
/// example) is rejected without trying the next. YAML whose root is a flow collection, such as `[see note]`, is
/// parsed only on request: otherwise it is nearly always prose or broken JSON. Prose of the form `Rating: 4.2` *is* a
/// YAML map, and `- like this` a YAML list, and both are accepted as such.
///
/// # Errors
///
/// See [`Unlocated`]. If no notation fits, the error is that of the last one tried.
pub fn locate(text: &str, form: Option<Form>) -> Result<Located, Unlocated> {
    if text.len() > TEXT_LIMIT {
        return Err(Unlocated::TooLarge);
    }
    match form {
        Some(form) => read(text, form),
        None => detect(text),
    }
}

/// Parses a text in one given notation.
fn read(text: &str, form: Form) -> Result<Located, Unlocated> {
    let root = match form {
        Form::Json => json::read(text),
        Form::Python => python::read(text),
        Form::Yaml => yaml::read(text),
    }?;
    Ok(Located { form, root })
}

/// Tries the notations from the strictest to the most permissive.
fn detect(text: &str) -> Result<Located, Unlocated> {
    for form in [Form::Json, Form::Python] {
        match read(text, form) {
            Err(why) if why.leaves_open() => {}
            done => return done,
        }
    }
    if let Some(start) = text.find(|c: char| !c.is_ascii_whitespace())
        && text.get(start..).is_some_and(|t| t.starts_with(['[', '{']))
    {
        return Err(Unlocated::Syntax { offset: start });
    }
    read(text, Form::Yaml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_detected() {
        for (text, form) in [
            ("[]", Form::Json),
            (r#" {"a": [1, null]} "#, Form::Json),
            ("{'a': None}", Form::Python),
            ("[1, True]", Form::Python),
            ("(1, 2)", Form::Python),
            ("- a\n- b", Form::Yaml),
            ("Rating: 4.2\nReviews: nice", Form::Yaml),
            ("a: {b: [c]}\n", Form::Yaml),
        ] {
            assert_eq!(locate(text, None).map(|l| l.form), Ok(form), "{text}");
        }
    }

    #[test]
    fn prose_is_no_structure() {
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
            assert!(why.leaves_open(), "{text}: {why:?}");
        }
    }

    #[test]
    fn a_broken_rule_ends_detection() {
        for (text, why) in [
            (r#"{"a": 1, "\u0061": 2}"#, Unlocated::DuplicateKey { span: 9..17 }),
            ("{'a': 1, 'a': 2}", Unlocated::DuplicateKey { span: 9..12 }),
            ("a: 1\na: 2", Unlocated::DuplicateKey { span: 5..6 }),
            ("a: &x 1", Unlocated::Alias { offset: 3 }),
        ] {
            assert_eq!(locate(text, None), Err(why), "{text}");
        }
        let deep = "[".repeat(DEPTH_LIMIT + 1);
        assert_eq!(locate(&deep, None), Err(Unlocated::TooDeep { offset: DEPTH_LIMIT }));
    }

    #[test]
    fn sizes_are_limited() {
        let long = " ".repeat(TEXT_LIMIT + 1);
        assert_eq!(locate(&long, None), Err(Unlocated::TooLarge));
        let many = format!("[{}0]", "0,".repeat(NODE_LIMIT));
        for form in [Form::Json, Form::Python, Form::Yaml] {
            assert_eq!(locate(&many, Some(form)), Err(Unlocated::TooLarge));
        }
        let most = format!("[{}0]", "0,".repeat(NODE_LIMIT - 2));
        assert!(locate(&most, None).is_ok());
    }

    #[test]
    fn nesting_up_to_the_limit_is_read() {
        for form in [Form::Json, Form::Python, Form::Yaml] {
            let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
            assert!(locate(&nest(DEPTH_LIMIT), Some(form)).is_ok());
            assert_eq!(
                locate(&nest(DEPTH_LIMIT + 1), Some(form)),
                Err(Unlocated::TooDeep { offset: DEPTH_LIMIT }),
                "{form:?}"
            );
        }
    }
}
