//! Defines what the draft of a policy knows about a tool: its name, its description, its arguments and its annotations.
//! A server or a client writes all of this, so it is untrusted. [`read_tools`] reads it from a list of tools, for
//! `flowgate init` and `flowgate scan`.

use serde_json::{Map, Value};

use crate::policy::{ArgumentRole, suggested_role};
use crate::tool_schemas::ToolListError;
use crate::tool_schemas::read::read_list;
use crate::trace::Tool;

/// The most arguments of a tool that a draft reads.
const MAX_ARGUMENTS: usize = 200;

/// The annotations of an MCP tool: claims of its server, each absent if the server does not make it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// `readOnlyHint`: the tool changes nothing.
    pub read_only: Option<bool>,
    /// `destructiveHint`: the tool may destroy something.
    pub destructive: Option<bool>,
    /// `openWorldHint`: the tool exchanges data with parties outside.
    pub open_world: Option<bool>,
}

/// A tool as a list describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedTool {
    /// The tool.
    pub tool: Tool,
    /// The description for the model.
    pub description: String,
    /// The arguments, as the schema lists them.
    pub arguments: Vec<DescribedArgument>,
    /// The annotations.
    pub hints: ToolHints,
}

/// An argument of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedArgument {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The purpose of its value, as its name or its schema suggests.
    pub role: Option<ArgumentRole>,
    /// Whether its value cannot be a free text: it is a number, a Boolean, null, or one of the values of the schema.
    pub is_narrow: bool,
}

/// The tools of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DescribedTools {
    /// The tools, in the order of the list.
    pub tools: Vec<DescribedTool>,
    /// Whether the list has entries without a name, which the provider of a model runs.
    pub has_hosted_tools: bool,
    /// Whether the list is one page, and others follow.
    pub has_next_page: bool,
}

/// Reads the tools in a JSON text, in the forms that
/// [`ToolSchemas::add_list`](crate::tool_schemas::ToolSchemas::add_list) reads. `server` is the name of their server in
/// policies; `None` means that these are tools of the agent itself.
///
/// # Errors
/// If the text is not JSON or contains no list of tools, or an entry of the list is not a tool.
pub fn read_tools(server: Option<&str>, text: &str) -> Result<DescribedTools, ToolListError> {
    let list = read_list(text)?;
    let tools = list.tools.into_iter().map(|listed| {
        let tool = match server {
            Some(server) => Tool::of(server, &listed.name),
            None => Tool::local(&listed.name),
        };
        let hint = |name: &str| listed.annotations.get(name).and_then(Value::as_bool);
        let hints = ToolHints {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            open_world: hint("openWorldHint"),
        };
        DescribedTool::new(tool, listed.description, listed.input.as_ref(), hints)
    });
    Ok(DescribedTools {
        tools: tools.collect(),
        has_hosted_tools: list.has_hosted_tools,
        has_next_page: list.has_next_page,
    })
}

impl DescribedTool {
    /// Creates a tool from the JSON schema of its input. Without a schema, the tool has no arguments; of many
    /// arguments, only the first `MAX_ARGUMENTS` are read.
    pub fn new(tool: Tool, description: String, input: Option<&Value>, hints: ToolHints) -> Self {
        let empty = Map::new();
        let properties = input.and_then(|input| input.get("properties")).and_then(Value::as_object);
        let arguments = properties.unwrap_or(&empty).iter().take(MAX_ARGUMENTS);
        let arguments = arguments.map(|(name, schema)| DescribedArgument::new(name, schema));
        Self { tool, description, arguments: arguments.collect(), hints }
    }
}

impl DescribedArgument {
    /// Creates an argument from its JSON schema. Its role follows from the `format` of the schema, such as `email`. If
    /// the format implies no role, the role follows from the words of the argument's name, which are more ambiguous.
    /// The argument is narrow if the schema permits no free text: only a number, a Boolean, null, or listed values.
    pub fn new(name: &str, schema: &Value) -> Self {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let is_listed = schema.get("enum").is_some() || schema.get("const").is_some();
        let is_narrow = is_listed || matches!(text("type"), Some("integer" | "number" | "boolean" | "null"));
        let role = match text("format") {
            Some("email" | "idn-email") => Some(ArgumentRole::Recipient),
            Some("uri" | "url" | "iri" | "hostname") => Some(ArgumentRole::Url),
            Some("password") => Some(ArgumentRole::Credential),
            _ => suggested_role(name),
        };
        let description = text("description").unwrap_or_default().to_owned();
        Self { name: name.to_owned(), description, role, is_narrow }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_suggest_roles() {
        use ArgumentRole::{Amount, Content, Credential, Path, Recipient, Selector, Url};
        for (name, schema, role, is_narrow) in [
            ("to", json!({"type": "string"}), Some(Recipient), false),
            ("owner", json!({"type": "string", "format": "email"}), Some(Recipient), false),
            ("page", json!({"type": "string", "format": "uri"}), Some(Url), false),
            ("pin", json!({"format": "password"}), Some(Credential), false),
            ("event_id", json!({}), Some(Selector), false),
            ("amount", json!({"type": "number"}), Some(Amount), true),
            ("api_key", json!({"type": "string"}), Some(Credential), false),
            ("folder", json!({"type": "string"}), Some(Path), false),
            ("guests", json!({"type": "array"}), Some(Recipient), false),
            ("html", json!({"type": "string"}), Some(Content), false),
            ("body", json!({"type": "string"}), Some(Content), false),
            ("mode", json!({"enum": ["a", "b"]}), None, true),
            ("day", json!(true), None, false),
        ] {
            let argument = DescribedArgument::new(name, &schema);
            assert_eq!((argument.role, argument.is_narrow), (role, is_narrow), "{name}");
        }
    }
}
