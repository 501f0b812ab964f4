//! Reads the fields of JSON objects, for the decoders of all formats. This file also contains the errors about fields
//! that several formats share.
//!
//! [`ObjectFields`] reads the objects of a client's request, and is strict: it rejects a field that is not declared
//! ([`super::known_fields`]), and a value of an unexpected type. The functions at the end of this file read a server's
//! answer, and are lenient: a value of an unexpected type counts as absent. They read both types in which an answer can
//! be parsed ([`JsonNode`]).

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use serde_json::{Number, Value};

use super::WireError;
use super::known_fields::{DecodeOptions, FieldRule, KnownFields};
use crate::Error;
use crate::chat::{ProviderTool, Source};
use crate::json::Json;

/// An object of a client's request, and its path for errors. A field that is null counts as absent. A method that reads
/// a field fails if the value does not have the type that the method returns.
#[derive(Debug)]
pub(super) struct ObjectFields<'a> {
    /// The keys and the values, in the order of the body.
    entries: &'a [(Cow<'a, str>, Json<'a>)],
    path: FieldPath,
    /// What the decoder accepts in addition to the declared fields.
    options: &'a DecodeOptions,
}

/// The path of an object in the body of the request, such as `messages[3]`; empty for the body itself. Its parts are
/// kept apart, since the path is formatted only for errors.
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

/// The name of Flowgate's own field, in which a client declares what the format has no field for: the provenance of a
/// message, or that a tool failed.
pub(super) const EXTENSION: &str = "flowgate";

/// The problem of a part of a message that is neither a text nor a document nor an image.
pub(super) const UNKNOWN_PART: &str = "is a kind of content that no rule can judge; send it as text";

/// The problem of an item or a block about a tool that the provider has run.
pub(super) const PROVIDER_RECORD: &str =
    "is the record of a tool that the provider has run, whose output has no label; leave it out";

/// The problem of a choice among some of the declared tools.
pub(super) const ALLOWED_TOOLS: &str =
    "is a choice among tools; declare in `tools` only those that the model may call";

/// The problem of a custom tool, or a call of one, in the form of chat completions.
pub(super) const CUSTOM_TOOL: &str = "is supported in the Responses API only; declare a function";

/// The problem of a field that no declaration names.
const UNKNOWN: &str = "is not known";

/// The problem of a field that an object has twice, as `top_p` and as `topP`.
const TWICE: &str = "is sent in two spellings; send it once";

/// Returns a name in camel case, such as `topP` for `top_p`. Gemini's API declares its fields in camel case and also
/// accepts them with underscores, and clients mix both spellings. The other formats declare no field with a capital
/// letter, so there the result is never a declared field unless the name itself is one. An underscore that no lower-case
/// letter follows stays, so that `top__p` and `top_p_` are not further spellings of `topP`.
fn camel_case(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(char) = chars.next() {
        let next = chars.next_if(|next| char == '_' && !spelled.is_empty() && next.is_ascii_lowercase());
        spelled.push(next.map_or(char, |next| next.to_ascii_uppercase()));
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

/// The fields of the object `flowgate` of a user's message or of a part of one, in which a client declares the
/// provenance.
const SOURCE: KnownFields =
    KnownFields { title: "flowgate", rows: &[("source", FieldRule::Read("the provenance"))] };

/// Returns whether `kind`, the type of a tool in a client's request, is `known`, or `known` with a variant or a date
/// after a `_`: for example, `web_search_20250305` is of the type `web_search`.
pub(super) fn is_tool_type(kind: &str, known: &str) -> bool {
    kind.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Returns a path without the indices of lists, such as `tools.name` for `tools[3].name`. The operator lists the fields
/// to drop in this form.
fn without_indices(path: &str) -> String {
    // Whether the current character is the opening bracket or a digit of an index. The closing bracket follows such a
    // character, so it is left out because of `was_index`.
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

    /// Returns whether the operator's configuration lists `kind`, a type of tools that the provider runs, among the
    /// tools to drop: such a tool is left out of the request, which is not rejected.
    pub(super) fn drops_tool(&self, kind: &str) -> bool {
        self.options.dropped_tools.iter().any(|known| known == kind)
    }

    /// Returns whether the client may ask for this tool of the provider, because the caller of the decoder has the
    /// provider run each call of it in a separate request.
    pub(super) fn accepts_provider_tool(&self, tool: &ProviderTool) -> bool {
        self.options.provider_tools.contains(tool)
    }

    /// Returns the path of the field `key` of this object, from the body of the request, for errors:
    /// `messages[3].role`, or only `key` if this object is the body itself.
    pub(super) fn path_to(&self, key: &str) -> String {
        match (self.path.name.is_empty(), self.path.index) {
            (true, None) => key.to_owned(),
            _ => format!("{}.{key}", self.path),
        }
    }

    /// Returns the error that the field `key` has a problem, as a result of the type that the decoder returns.
    /// `problem` completes a sentence that begins with the path of the field.
    pub(super) fn field_error<T>(&self, key: &str, problem: &'static str) -> Result<T, WireError> {
        Err(WireError { place: self.path_to(key), problem })
    }

    /// Returns the value of the field `key`; `None` if it is absent or null. If `key` is in camel case, such as `topP`,
    /// also finds the spelling with underscores (`top_p`), since clients of Gemini mix both.
    pub(super) fn get(&self, key: &str) -> Option<&'a Json<'a>> {
        let is_field = |name: &str| name == key || name.contains('_') && camel_case(name) == key;
        let (_, value) = self.entries.iter().find(|(name, _)| is_field(name))?;
        Some(value).filter(|value| **value != Json::Null)
    }

    /// Fails if this object has a field that is not supported; the error is about the first one. A field is supported
    /// if it is null, if `known` declares it as read or dropped, if `known` permits its value, or if the operator's
    /// configuration lists it among the fields to drop. The error names the field, or has `...` in place of a name that
    /// is long or not a plain word.
    pub(super) fn reject_unsupported(&self, known: &KnownFields) -> Result<(), WireError> {
        self.reject_unsupported_except(known, |_| false)
    }

    /// Fails as [`Self::reject_unsupported`] does, but accepts a field that `known` declares as refused if
    /// `is_excepted` returns true for its name. In Gemini's format, each tool of the provider is such a field, and some
    /// of these tools are accepted or dropped.
    pub(super) fn reject_unsupported_except(
        &self,
        known: &KnownFields,
        is_excepted: impl Fn(&str) -> bool,
    ) -> Result<(), WireError> {
        for (key, value) in self.entries.iter().filter(|(_, value)| *value != Json::Null) {
            let key = key.as_ref();
            let camel_key = camel_case(key);
            let has_both_spellings =
                || key != camel_key && self.entries.iter().any(|(name, _)| *name == camel_key);
            // What is wrong with the field; if nothing is, the loop continues with the next field. The field may be
            // declared with its own spelling or in camel case, but the object must not have it in both spellings.
            let problem = match known.rule(key).or_else(|| known.rule(&camel_key)) {
                Some(_) if has_both_spellings() => TWICE,
                Some(FieldRule::Read(_) | FieldRule::Dropped(_)) => continue,
                Some(FieldRule::Only(values, _)) if values.contains(&value.to_string().as_str()) => continue,
                Some(FieldRule::Refused(_)) if is_excepted(key) || is_excepted(&camel_key) => continue,
                Some(FieldRule::Only(_, reason) | FieldRule::Refused(reason)) => reason,
                None => UNKNOWN,
            };
            // The operator may have a field dropped, but never Flowgate's own: if a provenance that is declared in the
            // wrong object were dropped, the message would be treated as if its client had declared nothing.
            if key != EXTENSION && self.is_dropped_by_operator(key) {
                continue;
            }
            // The key is the client's text. The error repeats it only if it is a short plain word.
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

    /// Returns the provenance that this object declares, as in `"flowgate": {"source": "typed"}`; `None` if it declares
    /// none. The object is a user's message or a part of one. Fails if the declaration is malformed, or names an
    /// unknown provenance.
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

    /// Returns the text in the field `key`; `None` if the field is absent.
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
        // Only the errors about items need the path. It is not formatted for an empty list, since most lists are empty,
        // such as the calls of a message.
        let name: Rc<str> = if items.is_empty() { "".into() } else { self.path_to(key).into() };
        let options = self.options;
        Ok(items.iter().enumerate().map(move |(at, item)| {
            Self::from_value(item, FieldPath { name: Rc::clone(&name), index: Some(at) }, options)
        }))
    }

    /// Returns the entries of the map in the field `key`, each with its name; none if the field is absent. In a map,
    /// the client chooses the names, so they are not declared.
    pub(super) fn entries(&self, key: &str) -> Result<&'a [(Cow<'a, str>, Json<'a>)], WireError> {
        match self.get(key) {
            Some(Json::Object(entries)) => Ok(entries),
            Some(_) => self.field_error(key, "is not an object"),
            None => Ok(&[]),
        }
    }

    /// Returns the entries of the map in the field `key`, each of which must be an object, with their names; none if
    /// the field is absent. The path of each object has `*` in place of its name, since the name is the client's text.
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

    /// Returns the value that the text in the field `key` names, such as a variant of an enumeration; `None` if the
    /// field is absent. `from_name` returns the value for a name, or `None` for an unknown name, for which this method
    /// fails with `problem`.
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

    /// Returns the number in the field `key`; `None` if the field is absent.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, WireError> {
        match self.get(key).map(|value| number(value)?.as_f64()) {
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => self.field_error(key, "is not a number"),
            None => Ok(None),
        }
    }

    /// Returns the non-negative integer in the field `key`; `None` if the field is absent.
    pub(super) fn whole_number(&self, key: &str) -> Result<Option<u64>, WireError> {
        match self.get(key).map(|value| number(value)?.as_u64()) {
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => self.field_error(key, "is not a non-negative integer"),
            None => Ok(None),
        }
    }

    /// Returns the number of tokens in the field `key`, which must fit into 32 bits; `None` if the field is absent.
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

/// A JSON value of a server's answer. Whole answers are parsed into a [`Value`], and the events of some streams into
/// [`Json`], which borrows from the text that was parsed. With this trait, the same functions read both.
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

/// Returns the value of the field `key` of an object; `None` if it is absent or null.
pub(super) fn non_null_child<'v, N: JsonNode>(value: &'v N, key: &str) -> Option<&'v N> {
    value.child(key).filter(|value| !value.is_null_node())
}

/// Returns the text in the field `key` of an object; empty if the field is absent or not a text.
pub(super) fn text<'v, N: JsonNode>(value: &'v N, key: &str) -> &'v str {
    value.child(key).and_then(N::text).unwrap_or_default()
}

/// Returns the items of the list in the field `key` of an object; `None` if the field is absent or not a list.
pub(super) fn list<'v, N: JsonNode>(value: &'v N, key: &str) -> Option<&'v [N]> {
    value.child(key).and_then(N::items)
}

/// Returns the non-negative integer in the field `key` of an object; `None` if the field is absent or anything else.
pub(super) fn count(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

/// Returns the name of the tool in `call`, the object of an answer that has the field `name` of a call. Fails if the
/// name is absent or empty.
pub(super) fn called_tool_name(call: &Value) -> Result<&str, Error> {
    let name = text(call, "name");
    if name.is_empty() { Err(Error::Malformed("a tool call of the answer has no `name`")) } else { Ok(name) }
}
