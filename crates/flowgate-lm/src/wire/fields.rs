//! Reads the fields of JSON objects, for the decoders of all formats. In a client's request, each field is known
//! ([`super::known_fields`]) or rejected by name; in a server's answer, a field of an unexpected type counts as absent.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use serde_json::{Number, Value};

use super::WireError;
use super::known_fields::{DroppedParts, FieldRule, KnownFields};
use crate::Error;
use crate::chat::Source;
use crate::json::Json;

/// An object of a request, and its path.
#[derive(Debug)]
pub(super) struct ObjectFields<'a> {
    entries: &'a [(Cow<'a, str>, Json<'a>)],
    place: FieldPath,
    /// What is dropped although it is not understood.
    dropped: &'a DroppedParts,
}

/// The path of an object. It is formatted only for errors.
#[derive(Debug, Clone)]
struct FieldPath {
    /// The name of the object, or of the list that contains it.
    name: Rc<str>,
    index: Option<usize>,
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// The field in which a client declares what the format cannot express.
pub(super) const EXTENSION: &str = "flowgate";

pub(super) const NOT_SUPPORTED: &str = "is not supported";

/// The problem of a field that no declaration names.
const UNKNOWN: &str = "is not known";

/// The problem of a tool that is not run by the client.
pub(super) const PROVIDER_TOOL: &str = "is a tool that the provider runs, and what it returns would reach the model \
    without a label; leave it out";

/// The problem of an effort that no format defines.
pub(super) const UNKNOWN_EFFORT: &str = "is not `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`";

/// The problem of a type of tool that no format defines.
pub(super) const UNKNOWN_TOOL: &str = "is no known type of tool; leave the tool out";

/// The declaration of the provenance of a user's message or a part of it.
const SOURCE: KnownFields =
    KnownFields { title: "flowgate", rows: &[("source", FieldRule::Read("the provenance"))] };

/// Whether the type of a tool is a known one, with or without a variant or a date at the end.
pub(super) fn is_tool_type(kind: &str, known: &str) -> bool {
    kind.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Returns a path without the indices of lists.
fn without_indices(path: &str) -> String {
    let mut is_index = false;
    path.chars()
        .filter(|char| {
            let was_index = is_index;
            is_index = *char == '[' || is_index && *char != ']';
            !is_index && !was_index
        })
        .collect()
}

impl<'a> ObjectFields<'a> {
    /// Returns the fields of the body of a request.
    pub(super) fn of_body(value: &'a Json<'a>, dropped: &'a DroppedParts) -> Result<Self, WireError> {
        Self::from_value(value, FieldPath { name: "".into(), index: None }, dropped)
    }

    fn from_value(
        value: &'a Json<'a>,
        place: FieldPath,
        dropped: &'a DroppedParts,
    ) -> Result<Self, WireError> {
        match value {
            Json::Object(entries) => Ok(Self { entries, place, dropped }),
            _ => Err(WireError { place: place.to_string(), problem: "is not an object" }),
        }
    }

    /// Whether tools of this type, which the provider runs, are left out.
    pub(super) fn drops_tool(&self, kind: &str) -> bool {
        self.dropped.tools.iter().any(|known| known == kind)
    }

    pub(super) fn path_to(&self, key: &str) -> String {
        match (self.place.name.is_empty(), self.place.index) {
            (true, None) => key.to_owned(),
            _ => format!("{}.{key}", self.place),
        }
    }

    pub(super) fn field_error<T>(&self, key: &str, problem: &'static str) -> Result<T, WireError> {
        Err(WireError { place: self.path_to(key), problem })
    }

    /// Returns a field that is not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Json<'a>> {
        let (_, value) = self.entries.iter().find(|(known, _)| known == key)?;
        Some(value).filter(|value| **value != Json::Null)
    }

    /// Rejects every field that is not null, unless it is one that the caller reads, one that is dropped, one with a
    /// permitted value, or one that the operator lets clients send. A name that could disturb an error message is
    /// reported as `...`.
    pub(super) fn reject_unknown(&self, known: &KnownFields) -> Result<(), WireError> {
        for (key, value) in self.entries.iter().filter(|(_, value)| *value != Json::Null) {
            let key = key.as_ref();
            let problem = match known.rule(key) {
                Some(FieldRule::Read(_) | FieldRule::Dropped(_)) => continue,
                Some(FieldRule::Only(values, _)) if values.contains(&value.to_string().as_str()) => continue,
                Some(FieldRule::Only(_, reason) | FieldRule::Refused(reason)) => reason,
                None => UNKNOWN,
            };
            let is_declared = |path: &String| *path == without_indices(&self.path_to(key));
            // A misplaced declaration of provenance must not pass for none.
            if key != EXTENSION && self.dropped.fields.iter().any(is_declared) {
                continue;
            }
            let shown = !key.is_empty()
                && key.len() <= 64
                && key.chars().all(|char| char.is_ascii_alphanumeric() || "_-.".contains(char));
            return self.field_error(if shown { key } else { "..." }, problem);
        }
        Ok(())
    }

    /// Returns the declared provenance of a user's message or a part of it: `"flowgate": {"source": "typed"}`.
    pub(super) fn source(&self) -> Result<Option<Source>, WireError> {
        if self.get(EXTENSION).is_none() {
            return Ok(None);
        }
        let extension = self.object(EXTENSION)?;
        extension.reject_unknown(&SOURCE)?;
        match Source::from_name(extension.text("source")?) {
            Some(source) => Ok(Some(source)),
            None => {
                extension.field_error("source", "is not `typed`, `file`, `tool`, `retrieved` or `program`")
            }
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, WireError> {
        match self.get(key).map(Json::as_str) {
            Some(Some(text)) => Ok(text),
            Some(None) => self.field_error(key, "is not a string"),
            None => self.field_error(key, "is missing"),
        }
    }

    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, WireError> {
        if self.get(key).is_none() { Ok(None) } else { self.text(key).map(Some) }
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Json<'a>], WireError> {
        match self.get(key) {
            Some(Json::List(items)) => Ok(items),
            Some(_) => self.field_error(key, "is not a list"),
            None => Ok(&[]),
        }
    }

    /// Returns the object under a key.
    pub(super) fn object(&self, key: &str) -> Result<Self, WireError> {
        let place = FieldPath { name: self.path_to(key).into(), index: None };
        Self::from_value(self.get(key).unwrap_or(&Json::Null), place, self.dropped)
    }

    /// Returns the objects of a list.
    pub(super) fn objects(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = Result<Self, WireError>> + use<'a>, WireError> {
        let items = self.list(key)?;
        // Most messages contain no calls, so the path is not formatted.
        let name: Rc<str> = if items.is_empty() { "".into() } else { self.path_to(key).into() };
        let dropped = self.dropped;
        Ok(items.iter().enumerate().map(move |(at, item)| {
            Self::from_value(item, FieldPath { name: Rc::clone(&name), index: Some(at) }, dropped)
        }))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, WireError> {
        match self.get(key) {
            Some(Json::Bool(flag)) => Ok(*flag),
            Some(_) => self.field_error(key, "is neither true nor false"),
            None => Ok(false),
        }
    }

    /// Returns the value of an enumeration, given the function that knows its words.
    pub(super) fn word<T>(
        &self,
        key: &str,
        from_name: impl Fn(&str) -> Option<T>,
        problem: &'static str,
    ) -> Result<Option<T>, WireError> {
        match self.optional_text(key)? {
            None => Ok(None),
            Some(word) => {
                from_name(word).map_or_else(|| self.field_error(key, problem), |known| Ok(Some(known)))
            }
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, WireError> {
        match self.get(key).map(|value| number(value)?.as_f64()) {
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => self.field_error(key, "is not a number"),
            None => Ok(None),
        }
    }

    pub(super) fn whole_number(&self, key: &str) -> Result<Option<u64>, WireError> {
        match self.get(key).map(|value| number(value)?.as_u64()) {
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => self.field_error(key, "is not a non-negative integer"),
            None => Ok(None),
        }
    }

    pub(super) fn tokens(&self, key: &str) -> Result<Option<u32>, WireError> {
        match self.whole_number(key)?.map(u32::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => self.field_error(key, "is larger than 4294967295"),
            None => Ok(None),
        }
    }

    /// Returns one text or a list of texts.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, WireError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Json::Text(text)) => Ok(vec![text.clone().into_owned()]),
            Some(Json::List(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                texts
                    .collect::<Option<_>>()
                    .map_or_else(|| self.field_error(key, "contains an item that is not a string"), Ok)
            }
            Some(_) => self.field_error(key, "is neither a string nor a list of strings"),
        }
    }

    /// Returns the schema of a tool's arguments; the empty object schema if there is none.
    pub(super) fn schema(&self, key: &str) -> Result<Value, WireError> {
        match self.get(key) {
            None => Ok(serde_json::json!({"type": "object", "properties": {}})),
            Some(schema @ Json::Object(_)) => Ok(schema.to_value()),
            Some(_) => self.field_error(key, "is not an object"),
        }
    }
}

fn number<'v>(value: &'v Json<'_>) -> Option<&'v Number> {
    if let Json::Number(number) = value { Some(number) } else { None }
}

/// A node of an answer: owned, or borrowed from the event that it was parsed from.
pub(super) trait JsonNode: Sized {
    fn child(&self, key: &str) -> Option<&Self>;
    fn text(&self) -> Option<&str>;
    fn items(&self) -> Option<&[Self]>;
    fn is_null_node(&self) -> bool;
}

impl JsonNode for Value {
    fn child(&self, key: &str) -> Option<&Self> {
        self.get(key)
    }

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn items(&self) -> Option<&[Self]> {
        self.as_array().map(Vec::as_slice)
    }

    fn is_null_node(&self) -> bool {
        self.is_null()
    }
}

impl JsonNode for Json<'_> {
    fn child(&self, key: &str) -> Option<&Self> {
        self.get(key)
    }

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn items(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    fn is_null_node(&self) -> bool {
        *self == Self::Null
    }
}

/// Returns the value under a key, if it is not null.
pub(super) fn non_null_child<'v, N: JsonNode>(value: &'v N, key: &str) -> Option<&'v N> {
    value.child(key).filter(|value| !value.is_null_node())
}

/// Returns the text under a key; empty if there is none.
pub(super) fn text<'v, N: JsonNode>(value: &'v N, key: &str) -> &'v str {
    value.child(key).and_then(N::text).unwrap_or_default()
}

/// Returns the items of the list under a key.
pub(super) fn list<'v, N: JsonNode>(value: &'v N, key: &str) -> Option<&'v [N]> {
    value.child(key).and_then(N::items)
}

/// Returns the unsigned integer under a key.
pub(super) fn count(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

/// Returns the name of the called tool.
pub(super) fn called_tool_name(call: &Value) -> Result<&str, Error> {
    let name = text(call, "name");
    if name.is_empty() { Err(Error::Malformed("a tool call of the answer has no `name`")) } else { Ok(name) }
}
