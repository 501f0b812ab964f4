//! Decodes the tools of a client's request in Anthropic's Messages API (the field `tools`), and the choice of the tools
//! that the model may or must call (the field `tool_choice`). The decoder of requests ([`super::request_decoder`]) calls
//! this module.

use super::super::WireError;
use super::super::fields::{ObjectFields, UNKNOWN_TOOL, is_tool_type};
use super::super::provider_tools::{accepted, provider_tool_problem};
use super::mcp_servers::DeclaredServers;
use super::provider_tools::PROVIDER_TOOLS as TOOL_FORMS;
use super::{CHOICE, OF_PROVIDER, TOOL};
use crate::chat::{ProviderTool, ProviderToolUse, ToolChoice, ToolSpec};

/// The types of tools that the provider runs, without the date at their end. The gateway supports only the tools in
/// [`TOOL_FORMS`], and toolsets of MCP servers.
const PROVIDER_TOOLS: [&str; 6] =
    ["web_search", "web_fetch", "code_execution", "tool_search_tool", "advisor", "mcp_toolset"];
/// The types of tools that the client runs, but whose arguments the provider describes; without the date at their end.
const PROVIDER_SCHEMAS: [&str; 6] =
    ["bash", "text_editor", "computer", "memory", "browser_toolset", "computer_toolset"];

/// A tool of a request.
pub(super) enum ReceivedTool {
    /// A function of the client.
    Function(ToolSpec),
    /// A tool of the provider.
    OfProvider(Box<ProviderToolUse>),
}

/// Decodes a tool. `None` for a tool that is dropped: one that the provider would run, and that the operator's
/// configuration lists among the tools to drop. `servers` are the MCP servers that the request declares.
pub(super) fn read_tool(
    tool: &ObjectFields<'_>,
    servers: &mut DeclaredServers,
) -> Result<Option<ReceivedTool>, WireError> {
    // A type other than `custom` names a tool that the provider defines: it runs the tool or describes its arguments.
    if let Some(kind) = tool.optional_text("type")?.filter(|kind| *kind != "custom") {
        // Compares types without the date at the end of `kind`.
        let is_known = |known: &str| is_tool_type(kind, known);
        return match PROVIDER_TOOLS.into_iter().find(|known| is_known(known)) {
            Some(known) if tool.drops_tool(known) => Ok(None),
            // The next arm refuses a toolset whose type has a date: it is of another version of the API.
            Some("mcp_toolset") if kind == "mcp_toolset" => {
                Ok(Some(ReceivedTool::OfProvider(Box::new(servers.read_toolset(tool)?))))
            }
            Some(known) => match accepted(tool, TOOL_FORMS, kind) {
                Some(accepted) => {
                    Ok(Some(ReceivedTool::OfProvider(Box::new(read_provider_tool(tool, accepted)?))))
                }
                None => tool.field_error("type", provider_tool_problem(TOOL_FORMS, known)),
            },
            None if PROVIDER_SCHEMAS.into_iter().any(is_known) => tool.field_error(
                "type",
                "is a tool whose arguments only the provider describes; declare it as a custom tool",
            ),
            None => tool.field_error("type", UNKNOWN_TOOL),
        };
    }
    tool.reject_unsupported(&TOOL)?;
    Ok(Some(ReceivedTool::Function(ToolSpec {
        name: tool.text("name")?.to_owned(),
        description: tool.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: tool.schema("input_schema")?.into(),
    })))
}

/// Decodes the restrictions that the client gives for `accepted`, a tool of the provider that the gateway supports.
fn read_provider_tool(tool: &ObjectFields<'_>, accepted: ProviderTool) -> Result<ProviderToolUse, WireError> {
    tool.reject_unsupported(&OF_PROVIDER)?;
    Ok(ProviderToolUse {
        allowed_domains: tool.texts("allowed_domains")?,
        blocked_domains: tool.texts("blocked_domains")?,
        max_calls: tool.whole_number("max_uses")?,
        ..ProviderToolUse::from(accepted)
    })
}

/// Decodes the field `tool_choice`. Returns whether the model may, must or must not call a tool, or which one it must
/// call; and, as the second item, whether a message may have at most one call. Without the field, the model may call
/// any number of tools.
pub(super) fn read_choice(body: &ObjectFields<'_>) -> Result<(ToolChoice, bool), WireError> {
    if body.get("tool_choice").is_none() {
        return Ok((ToolChoice::Auto, false));
    }
    let choice = body.object("tool_choice")?;
    choice.reject_unsupported(&CHOICE)?;
    let single_call = choice.flag("disable_parallel_tool_use")?;
    let choice = match choice.text("type")? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Any,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(choice.text("name")?.to_owned()),
        _ => return choice.field_error("type", "is not `auto`, `any`, `none` or `tool`"),
    };
    Ok((choice, single_call))
}
