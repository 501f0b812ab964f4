//! Reads lists of tools in the forms of MCP and of model APIs: names, descriptions, schemas and annotations.
//! [`ToolSchemas::add_list`](super::ToolSchemas::add_list) and the drafts of policies call [`read_list`].

use std::fmt;

use serde_json::{Map, Value};

use crate::json::{self, Numbers};

/// The error for a text that contains no list of tools. It names the location, never a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolListError {
    /// A line and column, or the path of a value; empty if it is the whole text.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

impl ToolListError {
    /// Creates an error.
    pub(super) fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into() }
    }
}

impl fmt::Display for ToolListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            // The problem concerns the whole text.
            "" => f.write_str(&self.problem),
            place => write!(f, "{place}: {}", self.problem),
        }
    }
}

impl std::error::Error for ToolListError {}

/// A list of tools.
#[derive(Debug, Default)]
pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    /// Whether it is one page, and others follow.
    pub(crate) has_next_page: bool,
    /// Whether it has entries without a name, which the provider of a model expands to tools.
    pub(crate) has_hosted_tools: bool,
}

/// A tool of a list.
#[derive(Debug)]
pub(crate) struct ListedTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input: Option<Value>,
    pub(crate) output: Option<Value>,
    /// The `annotations` of MCP; null if there are none.
    pub(crate) annotations: Value,
}

/// Reads a list of tools: the result of MCP `tools/list`, the response that contains it, the list alone, or a request
/// to a model.
///
/// # Errors
/// If the text is not JSON, contains no list of tools, or an entry of the list is not a tool.
pub(crate) fn read_list(text: &str) -> Result<ToolList, ToolListError> {
    let document = json::parse(text, Numbers::Any).map_err(|error| {
        let place = format!("line {}, column {}", error.line, error.column);
        ToolListError::new(
            place,
            format!("not JSON: {}; correct the text here, or get the list again", error.message),
        )
    })?;
    // A JSON-RPC response wraps the result. `prefix` begins the places in messages.
    let (holder, prefix) = match document.get("result") {
        Some(result) => (result, "result."),
        None => (&document, ""),
    };
    // The list, and its place in the document for messages.
    let (items, place) = match (holder, holder.get("tools")) {
        (Value::Array(items), _) => (items, prefix.trim_end_matches('.').to_owned()),
        (_, Some(Value::Array(items))) => (items, format!("{prefix}tools")),
        (_, Some(_)) => {
            return Err(ToolListError::new(
                format!("{prefix}tools"),
                "the value is not a list; write a list of tools",
            ));
        }
        (_, None) if document.get("error").is_some() => {
            return Err(ToolListError::new(
                "error",
                "the response reports an error and has no tools; ask the server again for its list",
            ));
        }
        _ => {
            let problem = "there is no list of tools; give the result of MCP `tools/list`, or a request to a model with `tools`";
            return Err(ToolListError::new(prefix.trim_end_matches('.'), problem));
        }
    };
    let mut list = ToolList {
        has_next_page: holder.get("nextCursor").is_some_and(|cursor| !cursor.is_null()),
        ..ToolList::default()
    };
    for (index, item) in items.iter().enumerate() {
        match read_tool(item, &format!("{place}[{index}]"))? {
            Some(tool) => list.tools.push(tool),
            None => list.has_hosted_tools = true,
        }
    }
    Ok(list)
}

/// Reads one entry of a list. `place` is its location, for messages. `None` for a kind of tools that the provider of a
/// model runs, such as `web_search`, whose names are unknown. Fails if the entry is no tool, or if the schema of its
/// arguments or of its answers has no form of a schema.
fn read_tool(item: &Value, place: &str) -> Result<Option<ListedTool>, ToolListError> {
    let Value::Object(object) = item else {
        return Err(ToolListError::new(
            place,
            "the tool is not a JSON object; write an object with a `name`",
        ));
    };
    if object.contains_key("role") {
        let problem = "the entry is a message, not a tool; give a trace as an argument without `--tools`";
        return Err(ToolListError::new(place, problem));
    }
    // Chat completions nest the description.
    let nested =
        ["function", "custom"].into_iter().find_map(|key| Some((key, object.get(key)?.as_object()?)));
    let (fields, place) = match nested {
        Some((key, fields)) => (fields, format!("{place}.{key}")),
        None => (object, place.to_owned()),
    };
    let name = match fields.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        None if is_hosted(object) => return Ok(None),
        _ => {
            return Err(ToolListError::new(
                place,
                "the `name` of the tool is missing, empty or not a text; write one",
            ));
        }
    };
    // The formats name the schemas differently.
    let input = read_schema(fields, &["inputSchema", "input_schema", "parameters"], &place)?;
    let output = read_schema(fields, &["outputSchema", "output_schema"], &place)?;
    let description = fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    // Only MCP defines annotations, and MCP does not nest the description.
    let annotations = object.get("annotations").cloned().unwrap_or_default();
    Ok(Some(ListedTool { name, description, input, output, annotations }))
}

/// Returns the schema under the first of `keys` that a tool has; `None` if it has none of them, or if the value is null.
/// Fails if the value has no form of a schema. `place` is the location of `fields`, those of the tool.
fn read_schema(
    fields: &Map<String, Value>,
    keys: &[&str],
    place: &str,
) -> Result<Option<Value>, ToolListError> {
    let Some((key, value)) = keys.iter().find_map(|key| Some((key, fields.get(*key)?))) else {
        return Ok(None);
    };
    match value {
        Value::Null => Ok(None),
        // In JSON Schema, `true` and `false` are schemas, too.
        Value::Object(_) | Value::Bool(_) => Ok(Some(value.clone())),
        _ => Err(ToolListError::new(
            format!("{place}.{key}"),
            "the schema is not a JSON object; write a JSON Schema",
        )),
    }
}

/// Returns whether an entry names a kind of tools that the provider of a model runs, such as `web_search` or `mcp`: any
/// `type` but the two of a client's own tools.
fn is_hosted(entry: &Map<String, Value>) -> bool {
    let kind = entry.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| !matches!(kind, "function" | "custom"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list; returns the names with the form of their schemas, or the error.
    fn read(text: &str) -> Result<Vec<(String, bool, bool)>, String> {
        let list = read_list(text).map_err(|error| error.to_string())?;
        Ok(list
            .tools
            .into_iter()
            .map(|tool| (tool.name, tool.input.is_some(), tool.output.is_some()))
            .collect())
    }

    #[test]
    fn every_form_of_a_list_is_read() {
        let check = |text: &str, expected: &[(&str, bool, bool)]| {
            let expected = expected.iter().map(|(name, input, output)| ((*name).to_owned(), *input, *output));
            assert_eq!(read(text), Ok(expected.collect()), "{text}");
        };
        let mcp = r#"[{"name": "a", "inputSchema": {}, "outputSchema": {}}, {"name": "b"}]"#;
        let both = [("a", true, true), ("b", false, false)];
        check(mcp, &both);
        check(&format!(r#"{{"tools": {mcp}}}"#), &both);
        check(&format!(r#"{{"jsonrpc": "2.0", "id": 1, "result": {{"tools": {mcp}}}}}"#), &both);
        let one = [("a", true, false)];
        let chat = r#"{"type": "function", "function": {"name": "a", "parameters": {}}}"#;
        check(&format!("[{chat}]"), &one);
        check(&format!(r#"{{"model": "m", "messages": [{{"role": "user"}}], "tools": [{chat}]}}"#), &one);
        check(r#"{"input": "x", "tools": [{"type": "function", "name": "a", "parameters": {}}]}"#, &one);
        check(r#"{"max_tokens": 1, "tools": [{"name": "a", "input_schema": true}]}"#, &one);
        check(r#"[{"type": "custom", "custom": {"name": "a"}}]"#, &[("a", false, false)]);
        check(
            r#"[{"type": "web_search"}, {"type": "bash_20250124", "name": "bash"}]"#,
            &[("bash", false, false)],
        );
        check(r#"[{"name": "a", "inputSchema": null}]"#, &[("a", false, false)]);
        check("[]", &[]);
    }

    #[test]
    fn an_error_names_the_place() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (text, expected) in [
            (
                "",
                "line 1, column 0: not JSON: EOF while parsing a value; correct the text here, or get the list again",
            ),
            (
                "{\"tools\": [\n  {\"name\": }]}",
                "line 2, column 12: not JSON: expected value; correct the text here, or get the list again",
            ),
            (
                "{\"a\": 1, \"a\": 2}",
                "line 1, column 12: not JSON: duplicate key; correct the text here, or get the list again",
            ),
            (
                deep.as_str(),
                "line 1, column 128: not JSON: recursion limit exceeded; correct the text here, or get the list again",
            ),
            (
                "3",
                "there is no list of tools; give the result of MCP `tools/list`, or a request to a model with `tools`",
            ),
            (
                "{\"result\": {}}",
                "result: there is no list of tools; give the result of MCP `tools/list`, or a request to a model with `tools`",
            ),
            ("{\"tools\": {}}", "tools: the value is not a list; write a list of tools"),
            (
                "{\"error\": {\"code\": 1}}",
                "error: the response reports an error and has no tools; ask the server again for its list",
            ),
            ("[1]", "[0]: the tool is not a JSON object; write an object with a `name`"),
            (
                "[{\"role\": \"user\", \"content\": \"hi\"}]",
                "[0]: the entry is a message, not a tool; give a trace as an argument without `--tools`",
            ),
            (
                "{\"tools\": [{\"name\": \"a\"}, {}]}",
                "tools[1]: the `name` of the tool is missing, empty or not a text; write one",
            ),
            (
                "{\"tools\": [{\"type\": \"function\", \"function\": {}}]}",
                "tools[0].function: the `name` of the tool is missing, empty or not a text; write one",
            ),
            (
                "{\"tools\": [{\"name\": \"\"}]}",
                "tools[0]: the `name` of the tool is missing, empty or not a text; write one",
            ),
            (
                "{\"result\": {\"tools\": [{\"name\": \"a\", \"inputSchema\": 3}]}}",
                "result.tools[0].inputSchema: the schema is not a JSON object; write a JSON Schema",
            ),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }
}
