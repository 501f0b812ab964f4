//! Describes the tools that OpenAI's servers run: how a request of the Responses API declares them
//! ([`PROVIDER_TOOLS`]), and which items of an answer they add ([`remove_provider_items`]). The descriptor of the
//! format (`FORM`) refers to both.

use serde_json::{Value, json};

use super::super::provider_tools::{ProviderItems, ProviderToolForm, source, unrestricted};
use super::super::{fields, put};
use crate::chat::{ProviderTool, ProviderToolUse};

/// The tools of OpenAI's servers that the gateway can have run.
pub(super) const PROVIDER_TOOLS: &[ProviderToolForm] = &[
    ProviderToolForm {
        tool: ProviderTool::WebSearch,
        kind: "web_search",
        declare: declare_search,
        choice: Some(r#"{"type":"web_search"}"#),
    },
    ProviderToolForm {
        tool: ProviderTool::CodeExecution,
        kind: "code_interpreter",
        declare: |wanted| {
            unrestricted(wanted, json!({"type": "code_interpreter", "container": {"type": "auto"}}))
        },
        choice: Some(r#"{"type":"code_interpreter"}"#),
    },
];

/// Returns the declaration of a web search with the client's restrictions; `None` if the client forbids domains, which
/// the format cannot express.
fn declare_search(wanted: &ProviderToolUse) -> Option<Value> {
    let mut declaration = json!({"type": "web_search"});
    if !wanted.allowed_domains.is_empty() {
        put(&mut declaration, "filters", json!({"allowed_domains": wanted.allowed_domains}));
    }
    if wanted.is_offline {
        put(&mut declaration, "external_web_access", false);
    }
    wanted.blocked_domains.is_empty().then_some(declaration)
}

/// Removes from the body of an answer the items that report the calls that the provider ran, the lists of tools that it
/// received from MCP servers, and its requests for an approval. Returns the pages that the text cites, the numbers of
/// calls and of failed calls, and whether there was a request for an approval. A server that could not list its tools
/// counts as a failed call.
pub(super) fn remove_provider_items(body: &mut Value) -> ProviderItems {
    let mut found = ProviderItems::default();
    let Some(items) = body.get_mut("output").and_then(Value::as_array_mut) else { return found };
    items.retain(|item| {
        let has_failed = || fields::non_null_child(item, "error").is_some();
        match fields::text(item, "type") {
            "web_search_call" | "code_interpreter_call" => {
                found.note_result(fields::text(item, "status") == "completed");
            }
            // Servers may leave out the status of a call that has completed.
            "mcp_call" => {
                let status = fields::text(item, "status");
                found.note_result(matches!(status, "" | "completed") && !has_failed());
            }
            "mcp_list_tools" if has_failed() => found.note_result(false),
            "mcp_list_tools" => {}
            "mcp_approval_request" => found.asks_for_approval = true,
            _ => return true,
        }
        false
    });
    let parts = items.iter().flat_map(|item| fields::list(item, "content").unwrap_or_default());
    let cited = parts.flat_map(|part| fields::list(part, "annotations").unwrap_or_default());
    found.sources = cited.map(|cited| source(cited, "title", "url")).collect();
    found
}
