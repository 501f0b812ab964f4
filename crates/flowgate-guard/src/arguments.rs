//! Rejects argument names that another parser could confuse with declared names.
//!
//! For example, a policy reads the argument `to` of a call. A tool whose JSON parser ignores case (Go, .NET, Jackson if
//! configured so) also accepts `To`, and uses the last of the two; a Protobuf JSON parser accepts `userId` for
//! `user_id`. The call that runs would then differ from the call that was judged. Therefore a name that is not in the
//! tool's schema is refused if it differs from a name there only in case, separators, normalisation or invisible
//! characters. Two undeclared names in one object are refused if they differ only in case, normalisation or invisible
//! characters. [`crate::conversation`] and the MCP proxy check the arguments of every call before the call is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization as _;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// The maximum number of schemas and names that are examined for one call.
const MAX_EXAMINED: usize = 200_000;

/// Why arguments are refused, and how to correct them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousArgumentsError {
    /// The problem. It does not repeat the name, which can be hidden text.
    pub message: &'static str,
    /// The correction.
    pub advice: &'static str,
}

impl fmt::Display for AmbiguousArgumentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.advice)
    }
}

impl std::error::Error for AmbiguousArgumentsError {}

const VARIANT: AmbiguousArgumentsError = AmbiguousArgumentsError {
    message: "an argument has almost the name of another argument that the tool declares: only the case, separators \
        such as `_` or invisible characters differ",
    advice: "write each name exactly as in the schema of the tool",
};
const DUPLICATE: AmbiguousArgumentsError = AmbiguousArgumentsError {
    message: "two names in one object of the arguments differ only in case or in invisible characters",
    advice: "send only one of them",
};
const TOO_LARGE: AmbiguousArgumentsError = AmbiguousArgumentsError {
    message: "the arguments and the schema of the tool have too many names and list items to be compared",
    advice: "call the tool with fewer arguments or shorter lists",
};

/// Checks that every parser finds the same values under the names that a tool declares, in nested objects as well.
///
/// # Errors
/// If a parser that ignores case or separators could find another value, or if the arguments and the schema are too
/// large to compare.
pub fn check(arguments: &Map<String, Value>, schema: &Value) -> Result<(), AmbiguousArgumentsError> {
    SchemaWalker { root: schema, remaining: MAX_EXAMINED }.check_object(arguments, &[schema])
}

/// Compares arguments with a schema, and stops with an error once it has examined [`MAX_EXAMINED`] schemas and names.
struct SchemaWalker<'s> {
    /// The whole schema, in which references are resolved.
    root: &'s Value,
    /// The number of schemas and names that may still be examined.
    remaining: usize,
}

impl<'s> SchemaWalker<'s> {
    /// Counts `count` schemas and names as examined; fails if fewer may still be examined.
    fn spend(&mut self, count: usize) -> Result<(), AmbiguousArgumentsError> {
        self.remaining = self.remaining.checked_sub(count).ok_or(TOO_LARGE)?;
        Ok(())
    }

    /// Checks the names of all objects in a value. `schemas` are the schemas that apply to the value.
    ///
    /// # Errors
    /// If a name is ambiguous, or more than [`MAX_EXAMINED`] schemas and names would have to be examined.
    fn check_value(&mut self, value: &Value, schemas: &[&'s Value]) -> Result<(), AmbiguousArgumentsError> {
        match value {
            Value::Object(object) => self.check_object(object, schemas),
            Value::Array(items) => {
                let schemas = self.referenced_schemas(schemas)?;
                for (index, item) in items.iter().enumerate() {
                    self.spend(1)?;
                    self.check_value(item, &Self::schemas_of_item(&schemas, index))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the schemas that `schemas`, the schemas of a list, contain for its item at `index`.
    fn schemas_of_item(schemas: &[&'s Value], index: usize) -> Vec<&'s Value> {
        let mut of_item: Vec<&'s Value> = Vec::new();
        for &schema in schemas {
            // `items` or `additionalItems`, if it is an object, is a schema for all items.
            for key in ["items", "additionalItems"] {
                of_item.extend(schema.get(key).filter(|common| common.is_object()));
            }
            // `prefixItems`, or `items` if it is a list, has one schema for each position. Both kinds may apply.
            let by_position = schema.get("prefixItems").or(schema.get("items")).and_then(Value::as_array);
            of_item.extend(by_position.and_then(|positions| positions.get(index)));
        }
        of_item
    }

    /// Checks the names of one object and of the values in it. A declared name is allowed. An undeclared name must
    /// still differ from each declared name when both are folded by [`fold_case_and_separators`], and from each other
    /// undeclared name when both are folded by [`fold_case`].
    ///
    /// # Errors
    /// If two names are ambiguous, or more than [`MAX_EXAMINED`] schemas and names would have to be examined.
    fn check_object(
        &mut self,
        object: &Map<String, Value>,
        schemas: &[&'s Value],
    ) -> Result<(), AmbiguousArgumentsError> {
        let schemas = self.referenced_schemas(schemas)?;
        let declared = self.declared_properties(&schemas)?;
        let folded_declared: BTreeSet<String> =
            declared.keys().map(|name| fold_case_and_separators(name)).collect();
        let mut folded_undeclared = BTreeSet::new();
        for (name, value) in object {
            self.spend(1)?;
            // A tool distinguishes the names that it declares, however similar they are.
            if let Some(declared_schemas) = declared.get(name.as_str()) {
                self.check_value(value, declared_schemas)?;
                continue;
            }
            if folded_declared.contains(&fold_case_and_separators(name)) {
                return Err(VARIANT);
            }
            if !folded_undeclared.insert(fold_case(name)) {
                return Err(DUPLICATE);
            }
            // The patterns are not evaluated: each of their schemas may apply to an undeclared name.
            let undeclared_schemas = |schema: &&'s Value| {
                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                patterns.into_iter().flat_map(Map::values).chain(schema.get("additionalProperties"))
            };
            let undeclared_schemas: Vec<&Value> = schemas.iter().flat_map(undeclared_schemas).collect();
            self.spend(undeclared_schemas.len())?;
            self.check_value(value, &undeclared_schemas)?;
        }
        Ok(())
    }

    /// Returns the names that schemas declare, with the schemas of their values. A name that is only required is
    /// declared as well, without a schema.
    ///
    /// # Errors
    /// If more than [`MAX_EXAMINED`] schemas and names would have to be examined.
    fn declared_properties(
        &mut self,
        schemas: &[&'s Value],
    ) -> Result<BTreeMap<&'s str, Vec<&'s Value>>, AmbiguousArgumentsError> {
        let mut declared: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for schema in schemas {
            for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                self.spend(1)?;
                declared.entry(name).or_default().push(schema);
            }
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                self.spend(1)?;
                declared.entry(name).or_default();
            }
        }
        Ok(declared)
    }

    /// Returns `schemas`, and all schemas that apply to the same value because `schemas` combine them (`allOf`, `if`
    /// and the like) or refer to them within the schema of the tool. A reference to another document is not followed.
    ///
    /// # Errors
    /// If more than [`MAX_EXAMINED`] schemas and names would have to be examined.
    fn referenced_schemas(
        &mut self,
        schemas: &[&'s Value],
    ) -> Result<Vec<&'s Value>, AmbiguousArgumentsError> {
        let (mut reached, mut pending) = (Vec::<&Value>::new(), schemas.to_vec());
        let mut followed = BTreeSet::new();
        while let Some(schema) = pending.pop() {
            self.spend(1)?;
            reached.push(schema);
            for key in ["allOf", "anyOf", "oneOf"] {
                pending.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
            }
            pending.extend(["if", "then", "else"].into_iter().filter_map(|key| schema.get(key)));
            let dependent = schema.get("dependentSchemas").and_then(Value::as_object);
            pending.extend(dependent.into_iter().flat_map(Map::values));
            for key in ["$ref", "$dynamicRef"] {
                let Some(reference) = schema.get(key).and_then(Value::as_str) else { continue };
                // Each reference is followed once: schemas may refer to each other in a circle.
                if !followed.insert(reference) {
                    continue;
                }
                match reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) {
                    Some(referred) => pending.push(referred),
                    None => pending.extend(self.named_subschemas(reference)?),
                }
            }
        }
        Ok(reached)
    }

    /// Resolves a `$ref` that is not a plain JSON pointer. Returns the subschema at a percent-encoded pointer
    /// (`#/%24defs/x`), or all subschemas with this anchor (`#name`) or identifier (`$id`). Returns an empty list if no
    /// subschema matches.
    ///
    /// # Errors
    /// If more than [`MAX_EXAMINED`] schemas and names would have to be examined.
    fn named_subschemas(&mut self, reference: &str) -> Result<Vec<&'s Value>, AmbiguousArgumentsError> {
        let fragment = reference.strip_prefix('#');
        if let Some(part) = fragment.and_then(|fragment| self.root.pointer(&percent_decoded(fragment))) {
            return Ok(vec![part]);
        }
        let is_named = |part: &Value| {
            let text = |key: &str| part.get(key).and_then(Value::as_str);
            let is_anchored = ["$anchor", "$dynamicAnchor"].iter().any(|key| text(key) == fragment);
            // Without the first condition, a reference without a fragment would match every part without an anchor.
            fragment.is_some() && is_anchored || ["$id", "id"].iter().any(|key| text(key) == Some(reference))
        };
        let (mut parts, mut pending) = (Vec::new(), vec![self.root]);
        while let Some(part) = pending.pop() {
            self.spend(1)?;
            match part {
                Value::Object(entries) => {
                    parts.extend(is_named(part).then_some(part));
                    pending.extend(entries.values());
                }
                Value::Array(items) => pending.extend(items),
                _ => {}
            }
        }
        Ok(parts)
    }
}

/// Decodes the percent escapes of a text. A `%` without two hexadecimal digits after it stays, and bytes that are
/// no UTF-8 become U+FFFD.
fn percent_decoded(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.get(..2).filter(|_| byte == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        // `from_str_radix` would accept a sign.
        let escape = escape.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(escaped) => {
                decoded.push(escaped);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Folds a name, so that names which some parser takes for the same name become equal. Such a parser ignores case,
/// normalises (NFKC, as Python does with names of arguments), or drops invisible characters and the white space around
/// a name.
fn fold_case(name: &str) -> String {
    let name: String = name.nfkc().filter(|c| !is_invisible(*c)).collect();
    // Three case mappings and the removal of the combining dot U+0307 make all spellings of a letter equal: U+0130
    // lowercases to an i with that dot, U+0131 uppercases to I without one, and U+1E9E has no uppercase mapping, but
    // its lowercase has.
    name.trim()
        .chars()
        .flat_map(char::to_lowercase)
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .filter(|char| *char != '\u{307}')
        .collect()
}

/// Folds a name as parsers that also ignore word separators do.
fn fold_case_and_separators(name: &str) -> String {
    let mut name = fold_case(name);
    name.retain(|char| !matches!(char, '_' | '-' | '.' | ' '));
    name
}

/// Returns whether a character is not displayed, so that two names that look equal can differ in it: a format or
/// control character, U+034F (combining grapheme joiner), or a variation selector.
fn is_invisible(c: char) -> bool {
    c.general_category() == GeneralCategory::Format
        || c.is_control() && !c.is_whitespace()
        || matches!(c, '\u{34f}' | '\u{fe00}'..='\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows are written in place")]
    fn check_row(arguments: Value, schema: &Value, expected: Result<(), AmbiguousArgumentsError>) {
        assert_eq!(check(arguments.as_object().unwrap(), schema), expected, "{arguments}");
    }

    #[test]
    fn names_that_another_reader_takes_for_declared_ones_are_refused() {
        let person = json!({"type": "object", "properties": {"name": {}, "mail": {}}});
        let schema = json!({
            "type": "object",
            "properties": {
                "to": {"type": "string"}, "user_id": {}, "kelvin": {}, "is_ok": {}, "x": {}, "X": {},
                "strasse": {}, "άσος": {},
                "person": {"$ref": "#/$defs/person"},
                "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
                "pair": {"prefixItems": [{}, {"$ref": "#/$defs/person"}]},
                "any": {"anyOf": [{"type": "string"}, {"allOf": [{"$ref": "#/$defs/person"}]}]},
                "map": {"additionalProperties": {"$ref": "#/$defs/person"}},
                "patterns": {"patternProperties": {"^a": {"$ref": "#/$defs/person"}}},
                "free": {},
                "loop": {"$ref": "#/$defs/loop"},
            },
            "required": ["hidden_one"],
            "if": {"properties": {"kind": {}}}, "then": {"properties": {"amount": {}}},
            "$defs": {"person": person, "loop": {"allOf": [{"$ref": "#/$defs/loop"}], "properties": {"next": {"$ref": "#/$defs/loop"}}}},
        });
        for passes in [
            json!({}),
            json!({"to": "bob", "user_id": 1, "x": 1, "X": 2, "other": 1, "amount": 1, "hidden_one": 1}),
            json!({"person": {"name": "bob", "note": {"a": 1, "b": 2}}, "people": [{"name": "a"}, {"mail": "b"}]}),
            json!({"pair": ["x", {"name": 1}], "any": {"name": 1}, "map": {"Name": {"name": 1}}}),
            json!({"free": {"a_b": 1, "ab": 2, "to": 3, "To_": 4}}),
            json!({"loop": {"next": {"next": {"next": {}}}}}),
        ] {
            check_row(passes, &schema, Ok(()));
        }
        for refused in [
            json!({"To": "mallory"}),
            json!({"to": "bob", "TO": "mallory"}),
            json!({"TO": "mallory", "to": "bob"}),
            json!({"userId": 1}),
            json!({"USER-ID": 1}),
            json!({"user_id": 1, "userid": 2}),
            json!({"to_": "mallory"}),
            json!({"\u{212a}elvin": 1}),
            json!({"i\u{17f}_ok": 1}),
            json!({"\u{130}s_ok": 1}),
            json!({"\u{131}s_ok": 1}),
            json!({"stra\u{df}e": 1}),
            json!({"STRA\u{1e9e}E": 1}),
            json!({"ΆΣΟΣ": 1}),
            json!({"Amount": 1}),
            json!({"HiddenOne": 1}),
            json!({"\u{ff54}o": 1}),
            json!({"to ": 1}),
            json!({"\u{200b}to": 1}),
            json!({"user.id": 1}),
            json!({"user id": 1}),
            json!({"person": {"NAME": "mallory"}}),
            json!({"people": [{"name": "a"}, {"mail": "a", "Mail": "b"}]}),
            json!({"pair": ["x", {"Name": 1}]}),
            json!({"any": {"Name": 1}}),
            json!({"map": {"bob": {"Name": 1}}}),
            json!({"patterns": {"abc": {"Name": 1}}}),
            json!({"loop": {"next": {"next": {"Next": {}}}}}),
        ] {
            check_row(refused, &schema, Err(VARIANT));
        }
        for twice in [
            json!({"other": 1, "Other": 2}),
            json!({"other": 1, "other\u{200d}": 2}),
            json!({"caf\u{e9}": 1, "cafe\u{301}": 2}),
            json!({"free": {"deep": [{"a": {"Key": 1, "kEY": 2}}]}}),
            json!({"free": {"\u{212a}": 1, "k": 2}}),
        ] {
            check_row(twice.clone(), &schema, Err(DUPLICATE));
            // Without a schema, the only check is that no two names differ only in case.
            check_row(twice, &json!({}), Err(DUPLICATE));
        }
        check_row(json!({"To": "bob"}), &Value::Null, Ok(()));
    }

    #[test]
    fn references_by_name_are_followed() {
        let person = json!({"$anchor": "person", "$id": "urn:person", "properties": {"name": {}}});
        for reference in ["#/$defs/p", "#/%24defs/p", "#person", "urn:person"] {
            let schema = json!({"properties": {"to": {"$ref": reference}}, "$defs": {"p": person}});
            check_row(json!({"to": {"name": 1}}), &schema, Ok(()));
            check_row(json!({"to": {"Name": 1}}), &schema, Err(VARIANT));
        }
        // References to other documents, and to nothing, are not followed.
        for reference in ["https://example.org/p", "#other", "#/$defs/q", "#%zz", "#%+1"] {
            let schema = json!({"properties": {"to": {"$ref": reference}}, "$defs": {"p": person}});
            check_row(json!({"to": {"Name": 1}}), &schema, Ok(()));
        }
    }

    /// The comparison is refused if it takes too much work, and ends even if schemas refer to each other in a circle.
    #[test]
    fn work_is_bounded() {
        let wide: Map<String, Value> = (0..2_000).map(|n| (format!("a{n}"), json!({}))).collect();
        let schema = json!({"properties": {"list": {"items": {"properties": wide}}}});
        check_row(json!({"list": vec![json!({"a1": 1}); 10]}), &schema, Ok(()));
        check_row(json!({"list": vec![json!({"a1": 1}); 1_000]}), &schema, Err(TOO_LARGE));
        let mut nested = json!({"properties": {"a": {}}});
        for _ in 0..100 {
            nested = json!({"anyOf": [nested.clone(), {"$ref": "#"}]});
        }
        check_row(json!({"A": 1}), &nested, Err(VARIANT));
    }
}
