//! Describes the tools that Anthropic's servers run: how a request of the Messages API declares them
//! ([`PROVIDER_TOOLS`]), and which blocks of an answer they add ([`remove_provider_items`]). The descriptor of the
//! format (`FORM`) refers to both.

use serde_json::{Value, json};

use super::super::provider_tools::{ProviderItems, ProviderToolForm, source, unrestricted};
use super::super::{fields, put};
use crate::chat::{ProviderTool, ProviderToolUse};

/// The tools of Anthropic's servers that the gateway can have run, each in the version that requests ask for.
/// `max_uses` is 1, since each call gets a separate request.
pub(super) const PROVIDER_TOOLS: &[ProviderToolForm] = &[
    ProviderToolForm {
        tool: ProviderTool::WebSearch,
        kind: "web_search",
        declare: |wanted| {
            declare_web_tool(
                wanted,
                json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 1}),
            )
        },
        choice: Some(r#"{"type":"tool","name":"web_search"}"#),
    },
    ProviderToolForm {
        tool: ProviderTool::WebFetch,
        kind: "web_fetch",
        declare: |wanted| {
            declare_web_tool(
                wanted,
                json!({"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 1}),
            )
        },
        choice: Some(r#"{"type":"tool","name":"web_fetch"}"#),
    },
    ProviderToolForm {
        tool: ProviderTool::CodeExecution,
        kind: "code_execution",
        declare: |wanted| {
            unrestricted(wanted, json!({"type": "code_execution_20250825", "name": "code_execution"}))
        },
        choice: None,
    },
];

/// Adds the permitted and the forbidden domains to the declaration of a web search or web fetch. `None` if the client
/// permits only pages that the provider has stored, since the format cannot express this restriction.
fn declare_web_tool(wanted: &ProviderToolUse, mut declaration: Value) -> Option<Value> {
    let lists = [("allowed_domains", &wanted.allowed_domains), ("blocked_domains", &wanted.blocked_domains)];
    for (name, domains) in lists.into_iter().filter(|(_, domains)| !domains.is_empty()) {
        put(&mut declaration, name, json!(domains));
    }
    (!wanted.is_offline).then_some(declaration)
}

/// Removes from the body of an answer the blocks of the calls that the provider ran, of their results, and of the lists
/// of tools of MCP servers. Returns the pages that the results name, and the numbers of results and errors.
///
/// The content of a result is either a list of pages or one object, which is an error if its type ends with `_error`.
/// The result of a tool of an MCP server says in its field `is_error` whether it is an error.
pub(super) fn remove_provider_items(body: &mut Value) -> ProviderItems {
    let mut items = ProviderItems::default();
    let Some(blocks) = body.get_mut("content").and_then(Value::as_array_mut) else { return items };
    blocks.retain(|block| {
        let kind = fields::text(block, "type");
        let is_result = kind.ends_with("_tool_result");
        if is_result {
            let content = block.get("content").unwrap_or(&Value::Null);
            let is_error = block.get("is_error").is_some_and(|is_error| *is_error == true);
            items.note_result(!is_error && !fields::text(content, "type").ends_with("_error"));
            let found = fields::list(block, "content").unwrap_or_default();
            items.sources.extend(found.iter().map(|page| source(page, "title", "url")));
        }
        !is_result && !matches!(kind, "server_tool_use" | "mcp_tool_use" | "mcp_tool_listing")
    });
    items
}
