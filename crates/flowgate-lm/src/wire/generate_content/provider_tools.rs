//! Declares the tools of the provider in Gemini's API ([`ProviderToolForm`]), for the descriptor of the format.

use serde_json::{Value, json};

use super::super::fields;
use super::super::provider_tools::{AnswerSource, ProviderToolForm, source, unrestricted};
use crate::chat::ProviderTool;

pub(super) const PROVIDER_TOOLS: &[ProviderToolForm] = &[
    ProviderToolForm {
        tool: ProviderTool::WebSearch,
        kind: "googleSearch",
        declare: |wanted| unrestricted(wanted, json!({"googleSearch": {}})),
        choice: None,
    },
    ProviderToolForm {
        tool: ProviderTool::WebFetch,
        kind: "urlContext",
        declare: |wanted| unrestricted(wanted, json!({"urlContext": {}})),
        choice: None,
    },
    ProviderToolForm {
        tool: ProviderTool::CodeExecution,
        kind: "codeExecution",
        declare: |wanted| unrestricted(wanted, json!({"codeExecution": {}})),
        choice: None,
    },
];

/// Removes the parts with code that the provider ran, and with its output. Returns the pages on which the text is based.
pub(super) fn remove_provider_items(body: &mut Value) -> Vec<AnswerSource> {
    let Some(candidates) = body.get_mut("candidates").and_then(Value::as_array_mut) else {
        return Vec::new();
    };
    let mut sources = Vec::new();
    for candidate in candidates {
        if let Some(parts) = candidate.pointer_mut("/content/parts").and_then(Value::as_array_mut) {
            parts.retain(|part| {
                ["executableCode", "codeExecutionResult"].iter().all(|field| part.get(field).is_none())
            });
        }
        let found =
            candidate.get("groundingMetadata").and_then(|found| fields::list(found, "groundingChunks"));
        let pages = found.unwrap_or_default().iter().filter_map(|chunk| chunk.get("web"));
        sources.extend(pages.map(|page| source(page, "title", "uri")));
    }
    sources
}
