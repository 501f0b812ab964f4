//! Reads the fields of JSON objects, for the decoders of all formats.
//!
//! [`ObjectFields`] reads the objects of a client's request. Each of their fields is either known
//! ([`super::known_fields`]) or rejected by name, and a value of an unexpected type is an error. [`JsonNode`] and the
//! functions at the end of this file read a server's answer, in which a value of an unexpected type counts as absent.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use serde_json::{Number, Value};

use super::WireError;
use super::known_fields::{DecodeOptions, FieldRule, KnownFields};
use crate::Error;
use crate::chat::{ProviderTool, Source};
use crate::json::Json;

/// An object of a request, and its path. A field that is null counts as absent. The methods that read a field fail if
/// its value has another type.
#[derive(Debug)]
pub(super) struct ObjectFields<'a> {
    entries: &'a [(Cow<'a, str>, Json<'a>)],
    path: FieldPath,
    /// The fields and tools that are dropped instead of being rejected.
    options: &'a DecodeOptions,
}

/// The path of an object. It is formatted only for errors.
#[derive(Debug, Clone)]
struct FieldPath {
    /// The path of the object, or of the list that contains it.
    name: Rc<str>,
    /// The index of the object in the list, if a list contains it.
    index: Option<usize>,
}

impl fmt::Display for FieldPath {
    /// Writes the path, such as `messages[3]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// The name of the field in which a client declares what the format cannot express, such as the provenance of a
/// message.
pub(super) const EXTENSION: &str = "flowgate";

/// The problem of a part of a message that is neither a text nor a document nor an image.
pub(super) const UNKNOWN_PART: &str = "is a kind of content that no rule can judge; send it as text";

/// The problem of an item or a block about a tool that the provider has run.
pub(super) const PROVIDER_RECORD: &str =
    "is the record of a tool that the provider has run, whose output has no label; leave it out";

/// The problem of a choice among some of the declared tools.
pub(super) const ALLOWED_TOOLS: &str =
    "is a choice among tools; declare only those that the model may call in `tools`";

/// The problem of a custom tool, or a call of one, in the form of chat completions.
pub(super) const CUSTOM_TOOL: &str = "is supported in the Responses API only; declare a function";

/// The problem of a field that no declaration names.
const UNKNOWN: &str = "is not known";

/// The problem of a field that an object has twice, in both spellings.
const TWICE: &str = "is sent in two spellings; send it once";

/// Returns the spelling of a name without underscores: `topP` for `top_p`. Servers of Gemini's API accept both
/// spellings of a field, and clients mix them. In the other formats, no declared field has a capital letter, so this
/// other spelling never names a known field.
fn camel_case(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len());
    let mut is_capital = false;
    for char in name.chars() {
        match char {
            '_' => is_capital = true,
            char if is_capital => {
                spelled.push(char.to_ascii_uppercase());
                is_capital = false;
            }
            char => spelled.push(char),
        }
    }
    spelled
}

/// The problem of a tool that the provider runs instead of the client.
pub(super) const PROVIDER_TOOL: &str = "is a tool that the provider runs, and what it returns would reach the model \
    without a label; leave it out";

/// The problem of a tool of the provider that is accepted only if its outputs have labels.
pub(super) const UNLABELLED_TOOL: &str = "is a tool that the provider runs: the policy has to label its outputs, and \
    the upstream has to have it; leave it out";

/// The problem of an MCP server that the provider would call, and that is accepted only if its outputs have labels.
pub(super) const UNLABELLED_SERVER: &str = "is an MCP server that the provider would call: the policy has to label \
    its outputs by name (`label out.content as untrusted if: (out: ToolOutput) is tool:mcp__LABEL`, with the label of \
    the server, which has letters, digits, `-` and single `_`), and the upstream has to have such servers; or put the \
    server behind the gateway";

/// The problem of an effort that no format defines.
pub(super) const UNKNOWN_EFFORT: &str = "is not `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`";

/// The problem of a type of tool that no format defines.
pub(super) const UNKNOWN_TOOL: &str = "is not a known type of tool; leave the tool out";

/// The fields of the object `flowgate`, in which a client declares the provenance of a user's message or of a part.
const SOURCE: KnownFields =
    KnownFields { title: "flowgate", rows: &[("source", FieldRule::Read("the provenance"))] };

/// Returns whether the type `kind` of a tool is the type `known`, with or without a variant or a date at the end: for
/// example, `web_search_20250305` is of the type `web_search`.
pub(super) fn is_tool_type(kind: &str, known: &str) -> bool {
    kind.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Returns a path without the indices of lists, such as `tools.name` for `tools[3].name`. The operator lists the fields
/// to drop in this form.
fn without_indices(path: &str) -> String {
    // Whether the current character is in an index: from the opening bracket to the last digit. A character after such
    // a character is left out as well, which covers the closing bracket.
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
    /// Returns the fields of the body of a request. Fails if the body is not an object.
    pub(super) fn of_body(value: &'a Json<'a>, options: &'a DecodeOptions) -> Result<Self, WireError> {
        Self::from_value(value, FieldPath { name: "".into(), index: None }, options)
    }

    /// Returns the fields of the object `value`, which has the path `path` in the body (for errors). Fails if the value
    /// is not an object.
    fn from_value(
        value: &'a Json<'a>,
        path: FieldPath,
        options: &'a DecodeOptions,
    ) -> Result<Self, WireError> {
        match value {
            Json::Object(entries) => Ok(Self { entries, path, options }),
            _ => Err(WireError { place: path.to_string(), problem: "is not an object" }),
        }
    }

    /// Returns whether tools of this type, which the provider runs, are dropped instead of being rejected.
    pub(super) fn drops_tool(&self, kind: &str) -> bool {
        self.options.dropped_tools.iter().any(|known| known == kind)
    }

    /// Returns whether the caller has the provider run this tool in separate requests, so that clients may ask for it.
    pub(super) fn accepts_provider_tool(&self, tool: &ProviderTool) -> bool {
        self.options.provider_tools.contains(tool)
    }

    /// Returns the path of the field `key` in the body of the request, for errors: only the key if this object is the
    /// body itself.
    pub(super) fn path_to(&self, key: &str) -> String {
        match (self.path.name.is_empty(), self.path.index) {
            (true, None) => key.to_owned(),
            _ => format!("{}.{key}", self.path),
        }
    }

    /// Fails with the error that the field `key` has this problem.
    pub(super) fn field_error<T>(&self, key: &str, problem: &'static str) -> Result<T, WireError> {
        Err(WireError { place: self.path_to(key), problem })
    }

    /// Returns the field `key`; `None` if it is absent or null. Also finds a field whose name in camel case is `key`,
    /// such as `top_p` for the key `topP`, since clients of Gemini mix both spellings.
    pub(super) fn get(&self, key: &str) -> Option<&'a Json<'a>> {
        let is_field = |name: &str| name == key || name.contains('_') && camel_case(name) == key;
        let (_, value) = self.entries.iter().find(|(name, _)| is_field(name))?;
        Some(value).filter(|value| **value != Json::Null)
    }

    /// Fails at the first field that is not supported. A field is supported if it is null, if `known` declares it as
    /// read or dropped, if `known` permits its value, or if the operator's configuration lists it among the fields to
    /// drop. The error names the field, or `...` if the name is long or not a plain word.
    pub(super) fn reject_unsupported(&self, known: &KnownFields) -> Result<(), WireError> {
        self.reject_unsupported_except(known, |_| false)
    }

    /// Fails as [`Self::reject_unsupported`] does, except for a field that `known` declares as refused and for which
    /// `is_dropped` returns true.
    pub(super) fn reject_unsupported_except(
        &self,
        known: &KnownFields,
        is_dropped: impl Fn(&str) -> bool,
    ) -> Result<(), WireError> {
        for (key, value) in self.entries.iter().filter(|(_, value)| *value != Json::Null) {
            let key = key.as_ref();
            // The other spelling of the key.
            let other = camel_case(key);
            let problem = match known.rule(key).or_else(|| known.rule(&other)) {
                Some(_) if key != other && self.entries.iter().any(|(name, _)| *name == other) => TWICE,
                Some(FieldRule::Read(_) | FieldRule::Dropped(_)) => continue,
                Some(FieldRule::Only(values, _)) if values.contains(&value.to_string().as_str()) => continue,
                Some(FieldRule::Refused(_)) if is_dropped(key) || is_dropped(&other) => continue,
                Some(FieldRule::Only(_, reason) | FieldRule::Refused(reason)) => reason,
                None => UNKNOWN,
            };
            // A declaration of provenance in the wrong object must not be dropped: the message would then be treated as
            // if its client had declared nothing.
            if key != EXTENSION && self.is_dropped_by_operator(key) {
                continue;
            }
            // The error repeats the client's key only if it is a short plain word; any other text is replaced by `...`.
            let is_plain_word = !key.is_empty()
                && key.len() <= 64
                && key.chars().all(|char| char.is_ascii_alphanumeric() || "_-.".contains(char));
            return self.field_error(if is_plain_word { key } else { "..." }, problem);
        }
        Ok(())
    }

    /// Returns whether the operator's configuration lists the field `key` among the fields to drop.
    pub(super) fn is_dropped_by_operator(&self, key: &str) -> bool {
        let path = without_indices(&self.path_to(key));
        self.options.dropped_fields.contains(&path)
    }

    /// Returns the provenance that this object, a user's message or a part of one, declares, as in `"flowgate":
    /// {"source": "typed"}`; `None` if the object declares none. Fails if the declaration is unknown or malformed.
    pub(super) fn source(&self) -> Result<Option<Source>, WireError> {
        if self.get(EXTENSION).is_none() {
            return Ok(None);
        }
        let extension = self.object(EXTENSION)?;
        extension.reject_unsupported(&SOURCE)?;
        match Source::from_name(extension.text("source")?) {
            Some(source) => Ok(Some(source)),
            None => {
                extension.field_error("source", "is not `typed`, `file`, `tool`, `retrieved` or `program`")
            }
        }
    }

    /// Returns the text in the field `key`, which must be present.
    pub(super) fn text(&self, key: &str) -> Result<&'a str, WireError> {
        match self.get(key).map(Json::as_str) {
            Some(Some(text)) => Ok(text),
            Some(None) => self.field_error(key, "is not a string"),
            None => self.field_error(key, "is missing"),
        }
    }

    /// Returns the text in the field `key`, if the field is present.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, WireError> {
        if self.get(key).is_none() { Ok(None) } else { self.text(key).map(Some) }
    }

    /// Returns the items of the list in the field `key`; none if the field is absent.
    pub(super) fn list(&self, key: &str) -> Result<&'a [Json<'a>], WireError> {
        match self.get(key) {
            Some(Json::List(items)) => Ok(items),
            Some(_) => self.field_error(key, "is not a list"),
            None => Ok(&[]),
        }
    }

    /// Returns the object in the field `key`, which must be present: an absent field is reported as one that is not an
    /// object.
    pub(super) fn object(&self, key: &str) -> Result<Self, WireError> {
        let path = FieldPath { name: self.path_to(key).into(), index: None };
        Self::from_value(self.get(key).unwrap_or(&Json::Null), path, self.options)
    }

    /// Returns the items of the list in the field `key`, each of which must be an object; none if the field is absent.
    pub(super) fn objects(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = Result<Self, WireError>> + use<'a>, WireError> {
        let items = self.list(key)?;
        // Only the errors of items need the path, so it is not formatted for an empty list, such as that of the calls
        // of most messages.
        let name: Rc<str> = if items.is_empty() { "".into() } else { self.path_to(key).into() };
        let options = self.options;
        Ok(items.iter().enumerate().map(move |(at, item)| {
            Self::from_value(item, FieldPath { name: Rc::clone(&name), index: Some(at) }, options)
        }))
    }

    /// Returns the values of the map in the field `key`, each with its name; none if the field is absent. The names are
    /// the client's.
    pub(super) fn entries(&self, key: &str) -> Result<&'a [(Cow<'a, str>, Json<'a>)], WireError> {
        match self.get(key) {
            Some(Json::Object(entries)) => Ok(entries),
            Some(_) => self.field_error(key, "is not an object"),
            None => Ok(&[]),
        }
    }

    /// Returns the objects of the map in the field `key`, each with its name; none if the field is absent. The path of
    /// each object has `*` in place of the name, which is the client's.
    pub(super) fn named_objects(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = Result<(&'a str, Self), WireError>> + use<'a>, WireError> {
        let (path, options) =
            (FieldPath { name: self.path_to(&format!("{key}.*")).into(), index: None }, self.options);
        Ok(self.entries(key)?.iter().map(move |(name, value)| {
            Self::from_value(value, path.clone(), options).map(|object| (name.as_ref(), object))
        }))
    }

    /// Returns the Boolean in the field `key`; false if the field is absent.
    pub(super) fn flag(&self, key: &str) -> Result<bool, WireError> {
        match self.get(key) {
            Some(Json::Bool(flag)) => Ok(*flag),
            Some(_) => self.field_error(key, "is neither true nor false"),
            None => Ok(false),
        }
    }

    /// Returns the value of an enumeration that the field `key` names, if the field is present. `from_name` returns the
    /// value for a name. If `from_name` returns `None`, fails with the error that the field has the problem `problem`.
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

    /// Returns the number in the field `key`, if the field is present.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, WireError> {
        match self.get(key).map(|value| number(value)?.as_f64()) {
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => self.field_error(key, "is not a number"),
            None => Ok(None),
        }
    }

    /// Returns the non-negative integer in the field `key`, if the field is present.
    pub(super) fn whole_number(&self, key: &str) -> Result<Option<u64>, WireError> {
        match self.get(key).map(|value| number(value)?.as_u64()) {
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => self.field_error(key, "is not a non-negative integer"),
            None => Ok(None),
        }
    }

    /// Returns the number of tokens in the field `key`, if the field is present. The number must fit into 32 bits.
    pub(super) fn tokens(&self, key: &str) -> Result<Option<u32>, WireError> {
        match self.whole_number(key)?.map(u32::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => self.field_error(key, "is larger than 4294967295"),
            None => Ok(None),
        }
    }

    /// Returns the texts in the field `key`, which is a text or a list of texts; none if the field is absent.
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

    /// Returns the schema of a tool's arguments in the field `key`. If the field is absent, returns the schema of an
    /// object without properties.
    pub(super) fn schema(&self, key: &str) -> Result<Value, WireError> {
        match self.get(key) {
            None => Ok(serde_json::json!({"type": "object", "properties": {}})),
            Some(schema @ Json::Object(_)) => Ok(schema.to_value()),
            Some(_) => self.field_error(key, "is not an object"),
        }
    }
}

/// Returns the value as a number; `None` if it is not a number.
fn number<'v>(value: &'v Json<'_>) -> Option<&'v Number> {
    if let Json::Number(number) = value { Some(number) } else { None }
}

/// A JSON value of an answer: an owned one ([`Value`]), or one that is borrowed from the text it was parsed from
/// ([`Json`]).
pub(super) trait JsonNode: Sized {
    /// Returns the value under a key, if this value is an object.
    fn child(&self, key: &str) -> Option<&Self>;
    /// Returns the text, if this value is one.
    fn text(&self) -> Option<&str>;
    /// Returns the items, if this value is a list.
    fn items(&self) -> Option<&[Self]>;
    /// Returns whether this value is null.
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

/// Returns the value under a key; `None` if it is absent or null.
pub(super) fn non_null_child<'v, N: JsonNode>(value: &'v N, key: &str) -> Option<&'v N> {
    value.child(key).filter(|value| !value.is_null_node())
}

/// Returns the text under a key; empty if it is absent or not a text.
pub(super) fn text<'v, N: JsonNode>(value: &'v N, key: &str) -> &'v str {
    value.child(key).and_then(N::text).unwrap_or_default()
}

/// Returns the items of the list under a key; `None` if it is absent or not a list.
pub(super) fn list<'v, N: JsonNode>(value: &'v N, key: &str) -> Option<&'v [N]> {
    value.child(key).and_then(N::items)
}

/// Returns the unsigned integer under a key; `None` if it is absent or not such a number.
pub(super) fn count(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

/// Returns the name of the tool that an answer calls; an absent or empty name is an error.
pub(super) fn called_tool_name(call: &Value) -> Result<&str, Error> {
    let name = text(call, "name");
    if name.is_empty() { Err(Error::Malformed("a tool call of the answer has no `name`")) } else { Ok(name) }
}
