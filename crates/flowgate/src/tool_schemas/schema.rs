//! Determines which keys and which values can be at a path such as `arguments.options.mode`, by the JSON schemas of
//! tools. `name_check` compares the names in a policy with these keys, and `value_check` the constants in a policy with
//! these values.
//!
//! Where a schema permits values that it does not describe, the result is *open*, and the checks report nothing. A list
//! of properties counts as complete unless a keyword permits others.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::policy::event_path::EventStep;

/// The longest chain of references that is followed.
const MAX_REFERENCES: usize = 16;
/// The most schemas that are followed at a time.
const MAX_SCHEMAS: usize = 5_000;

/// Keywords next to a reference that do not restrict the value.
const BESIDE_REFERENCES: [&str; 9] = [
    "$comment",
    "$defs",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "nullable",
    "title",
];

/// Keywords that can permit names beyond `properties`.
const OPENING: [&str; 10] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "if",
    "oneOf",
    "patternProperties",
    "unevaluatedProperties",
];

/// A schema within a document.
#[derive(Debug, Clone, Copy)]
struct SchemaNode<'s> {
    /// The document, to which references point.
    root: &'s Value,
    schema: &'s Value,
}

/// The schemas of the values that a path can lead to.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaSet<'s> {
    nodes: Vec<SchemaNode<'s>>,
    /// Whether the path can also lead to values of which no schema says anything.
    is_open: bool,
}

impl<'s> SchemaSet<'s> {
    /// Returns the schemas of whole documents, such as the arguments of several tools. A document that is `None` has no
    /// schema, so the set is open: nothing is known to be missing.
    pub(super) fn new(documents: impl IntoIterator<Item = Option<&'s Value>>) -> Self {
        let mut set = Self::default();
        for document in documents {
            match document {
                Some(root) => set.push(SchemaNode { root, schema: root }),
                None => set.is_open = true,
            }
        }
        set
    }

    /// Returns the schemas of the text contents of answers, given the schemas of their structured forms. If an answer
    /// is not an object, the server wraps its structured form as `{"result": ...}`, but not its text. So this method
    /// removes the wrapper from the schemas.
    pub(super) fn unwrapped(self) -> Self {
        let mut set = Self { nodes: Vec::new(), is_open: self.is_open };
        for node in self.nodes {
            let wrapped = match node.properties() {
                Some((properties, _)) if properties.len() == 1 => properties.get("result"),
                _ => None,
            };
            set.push(SchemaNode { schema: wrapped.unwrap_or(node.schema), ..node });
        }
        set
    }

    /// Returns the schemas of the values that one step leads to: the value of a key, each item of a list, or with
    /// [`EventStep::Within`] every map at any depth. The result is open if a schema permits a value that no schema
    /// describes: then no name is reported as missing.
    pub(super) fn step(&self, step: &EventStep) -> Self {
        let mut next = Self { nodes: Vec::new(), is_open: self.is_open };
        match step {
            EventStep::Key(key) => {
                for node in &self.nodes {
                    match node.properties() {
                        Some((properties, is_closed)) => match properties.get(key) {
                            Some(schema) => next.push(SchemaNode { schema, ..*node }),
                            None => next.is_open |= !is_closed,
                        },
                        None => next.is_open = true,
                    }
                }
            }
            EventStep::Item => self.nodes.iter().for_each(|node| match node.items() {
                Some(item) => next.push(item),
                None => next.is_open = true,
            }),
            EventStep::Within => next.push_maps_within(&self.nodes),
        }
        next
    }

    /// Adds the schemas of every map within the values that `nodes` describe, at any depth, these values included.
    fn push_maps_within(&mut self, nodes: &[SchemaNode<'s>]) {
        let mut pending = nodes.to_vec();
        let mut visited = BTreeSet::new();
        while let Some(node) = pending.pop() {
            // A schema can contain itself.
            if !visited.insert(std::ptr::from_ref(node.resolved()).addr()) {
                continue;
            }
            if node.is_scalar() {
                continue;
            }
            // A list has no names itself; the schema of its items is added to `pending` below.
            if node.items().is_none() {
                self.push(node);
            }
            match (node.properties(), node.items()) {
                (Some((properties, is_closed)), _) => {
                    self.is_open |= !is_closed;
                    pending.extend(properties.values().map(|schema| SchemaNode { schema, ..node }));
                }
                (None, Some(item)) => pending.push(item),
                (None, None) => self.is_open = true,
            }
        }
    }

    /// Returns whether no value that the path can lead to has the key. False if that is unknown: if the set is open or
    /// empty.
    pub(super) fn lacks(&self, key: &str) -> bool {
        let next = self.step(&EventStep::Key(key.to_owned()));
        !self.nodes.is_empty() && next.nodes.is_empty() && !next.is_open
    }

    /// Returns the names of all properties that the schemas list.
    pub(super) fn names(&self) -> BTreeSet<&'s str> {
        let properties = self.nodes.iter().filter_map(SchemaNode::properties);
        properties.flat_map(|(properties, _)| properties.keys().map(String::as_str)).collect()
    }

    /// Returns the values that the schemas list. `None` if the permitted values are unknown: if a schema permits values
    /// that it does not list, if the set is empty, or if it is open (the path also leads to values without a schema).
    pub(super) fn values(&self) -> Option<Vec<&'s Value>> {
        if self.is_open || self.nodes.is_empty() {
            return None;
        }
        let lists: Option<Vec<_>> = self.nodes.iter().map(SchemaNode::values).collect();
        Some(lists?.concat())
    }

    /// Returns whether all values that the path can lead to are lists. False if that is unknown: if the set is open or
    /// empty.
    pub(super) fn is_list(&self) -> bool {
        !self.is_open && !self.nodes.is_empty() && self.nodes.iter().all(|node| node.items().is_some())
    }

    /// Adds a schema. If there are too many, the set becomes open instead: it then counts as one that also contains
    /// values of which no schema says anything.
    fn push(&mut self, node: SchemaNode<'s>) {
        if self.nodes.len() < MAX_SCHEMAS {
            self.nodes.push(node);
        } else {
            self.is_open = true;
        }
    }
}

impl<'s> SchemaNode<'s> {
    /// Follows references from this schema, and returns the schema at which they end. Generators of schemas mark an
    /// optional value by a choice between its schema and `null`; such a choice counts as a reference to that schema.
    /// Stops at a schema with further keywords that restrict the value, at a reference that cannot be followed, or
    /// after [`MAX_REFERENCES`], since references may form a cycle.
    fn resolved(&self) -> &'s Value {
        let mut schema = self.schema;
        for _ in 0..MAX_REFERENCES {
            let Value::Object(fields) = schema else { return schema };
            let next = match fields.get("$ref") {
                Some(Value::String(target)) => self.pointed(target),
                Some(_) => None,
                None => only_alternative(fields),
            };
            // Another keyword next to a reference or a list of alternatives restricts the value further, so only one
            // that stands alone is followed.
            let references = ["$ref", "anyOf", "oneOf", "allOf"];
            let has_no_other_keyword = fields
                .keys()
                .all(|key| BESIDE_REFERENCES.contains(&key.as_str()) || references.contains(&key.as_str()));
            let reference_count = references.iter().filter(|key| fields.contains_key(**key)).count();
            let is_alone = has_no_other_keyword && reference_count == 1;
            match next.filter(|_| is_alone) {
                Some(next) => schema = next,
                None => return schema,
            }
        }
        schema
    }

    /// Returns the schema that a reference within the document names; `None` for another reference, and if there is no
    /// such schema.
    fn pointed(&self, reference: &str) -> Option<&'s Value> {
        // A pointer with percent-encoded characters is not decoded, so it is not followed.
        let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
        self.root.pointer(pointer)
    }

    /// Returns the properties that the schema lists, and whether it permits no others; `None` if it does not list them.
    /// By JSON Schema, others are permitted by default; here a list without `additionalProperties` counts as complete,
    /// unless it is empty or another keyword can permit more. Otherwise the check would find nothing about the many
    /// schemas without that keyword.
    fn properties(&self) -> Option<(&'s Map<String, Value>, bool)> {
        // For a schema that permits no properties, since it lists none and forbids others.
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let fields = self.resolved().as_object()?;
        let listed = fields.get("properties").and_then(Value::as_object);
        match (fields.get("additionalProperties"), listed) {
            (Some(Value::Bool(false)), listed) => {
                let is_closed = !fields.contains_key("patternProperties");
                Some((listed.unwrap_or(&EMPTY), is_closed))
            }
            (_, None) => None,
            // `true`, or a schema for the others.
            (Some(_), Some(listed)) => Some((listed, false)),
            (None, Some(listed)) => {
                let is_closed = !listed.is_empty() && !OPENING.iter().any(|key| fields.contains_key(*key));
                Some((listed, is_closed))
            }
        }
    }

    /// Returns the schema of the items of a list. `None` if the schema does not describe a list, or does not describe
    /// all items of the list alike.
    fn items(&self) -> Option<Self> {
        let fields = self.resolved().as_object()?;
        let items = fields.get("items").filter(|items| items.is_object());
        let is_plain = !fields.contains_key("prefixItems") && !fields.contains_key("properties");
        items.filter(|_| is_plain).map(|schema| Self { root: self.root, schema })
    }

    /// Returns the values that the schema lists with `enum` or `const`; `None` if it does not restrict them to a list.
    fn values(&self) -> Option<Vec<&'s Value>> {
        let fields = self.resolved().as_object()?;
        match (fields.get("enum"), fields.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.iter().collect()),
            (None, Some(value)) => Some(vec![value]),
            _ => None,
        }
    }

    /// Returns whether the schema permits only values without keys and items, such as texts and numbers.
    fn is_scalar(&self) -> bool {
        let kind = self.resolved().get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| matches!(kind, "string" | "number" | "integer" | "boolean" | "null"))
    }
}

/// Returns the only alternative of a schema other than `null`. `None` if the schema has several such alternatives or
/// none, or if it has several lists of alternatives, such as `anyOf` and `allOf`.
fn only_alternative(fields: &Map<String, Value>) -> Option<&Value> {
    let mut lists = fields.iter().filter(|(key, _)| matches!(key.as_str(), "anyOf" | "oneOf" | "allOf"));
    let (Some((_, alternatives)), None) = (lists.next(), lists.next()) else { return None };
    let is_null = |schema: &&Value| schema.get("type").and_then(Value::as_str) == Some("null");
    let mut others = alternatives.as_array()?.iter().filter(|schema| !is_null(schema));
    others.next().filter(|_| others.next().is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns whether the schema excludes the last name of `path`; false if the schema does not decide this. In the
    /// path, `*` is an item of a list, and `**` any depth.
    fn lacks(schema: &Value, path: &str) -> bool {
        let (above, last) = path.rsplit_once('.').unwrap_or(("", path));
        let steps = above.split('.').filter(|step| !step.is_empty()).map(|step| match step {
            "*" => EventStep::Item,
            "**" => EventStep::Within,
            key => EventStep::Key(key.to_owned()),
        });
        steps.fold(SchemaSet::new([Some(schema)]), |set, step| set.step(&step)).lacks(last)
    }

    #[test]
    fn a_name_is_missing_only_where_the_schema_says_so() {
        let check = |schema: Value, missing: &[&str], not: &[&str]| {
            for (paths, expected) in [(missing, true), (not, false)] {
                for path in paths {
                    assert_eq!(lacks(&schema, path), expected, "{path} in {schema}");
                }
            }
        };
        let a = json!({"a": {"type": "string"}});
        check(json!({"properties": a}), &["b"], &["a", "a.b"]);
        check(json!({"properties": a, "additionalProperties": false}), &["b"], &["a"]);
        check(json!({"additionalProperties": false}), &["b"], &[]);
        // Without statements about other names, nothing is missing.
        for open in [json!({}), json!(true), json!({"type": "object"}), json!({"properties": {}})] {
            check(open, &[], &["b"]);
        }
        for (key, value) in [
            ("additionalProperties", json!(true)),
            ("additionalProperties", json!({"type": "string"})),
            ("patternProperties", json!({"^x": {}})),
            ("anyOf", json!([{"required": ["a"]}, {"properties": {"b": {}}}])),
            ("allOf", json!([{"properties": {"b": {}}}])),
            ("if", json!({})),
            ("$ref", json!("other.json")),
        ] {
            let mut schema = json!({"properties": a});
            schema.as_object_mut().unwrap().insert(key.to_owned(), value);
            check(schema, &[], &["a", "b"]);
        }
        check(json!({"$ref": "other.json#/x"}), &[], &["b"]);
        check(json!({"anyOf": [{"properties": a}, {"properties": {}}]}), &[], &["b"]);
        check(
            json!({"properties": a, "additionalProperties": false, "patternProperties": {"^x": {}}}),
            &[],
            &["b"],
        );
    }

    #[test]
    fn paths_lead_through_lists_and_references() {
        let schema = json!({
            "properties": {
                "to": {"$ref": "#/$defs/Person"},
                "copies": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
                "maybe": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
                "pair": {"prefixItems": [{"properties": {"x": {}}}]},
                "loop": {"$ref": "#/$defs/Loop"},
            },
            "$defs": {
                "Person": {"properties": {"name": {"type": "string"}, "friend": {"$ref": "#/$defs/Person"}}},
                "Loop": {"$ref": "#/$defs/Loop"},
            },
        });
        for path in [
            "to.nmae",
            "to.friend.friend.nmae",
            "copies.*.nmae",
            "maybe.nmae",
            "copies.**.nmae",
            "to.**.nmae",
            "maybe.friend.nmae",
        ] {
            assert!(lacks(&schema, path), "{path}");
        }
        for path in [
            "to.name",
            "to.friend.name",
            "copies.*.name",
            "copies.**.name",
            "copies.name",
            "pair.*.y",
            "loop.x",
            "nowhere.x",
            "to.*.name",
            "**.nmae",
        ] {
            assert!(!lacks(&schema, path), "{path}");
        }
    }
}
