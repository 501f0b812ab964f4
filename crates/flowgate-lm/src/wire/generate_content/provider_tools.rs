//! Describes the tools that Google's servers run: how a request of Gemini's API declares them ([`PROVIDER_TOOLS`]), and
//! which items of an answer they add ([`remove_provider_items`]). The descriptor of the format refers to both.

use serde_json::{Value, json};

use super::super::fields;
use super::super::provider_tools::{ProviderItems, ProviderToolForm, source, unrestricted};
use crate::chat::ProviderTool;

/// The tools of Google's servers that the gateway can have run. The format cannot express restrictions of a tool, such
/// as the domains of a search, so a use with restrictions is refused (`unrestricted`).
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

/// Removes from the body of an answer the parts with code that the provider has run, and with the output of this code:
/// the decoder of answers rejects such parts. Returns the pages on which the text is based, and counts the results of
/// tools and the failures among them.
///
/// Three items of an answer show that a tool ran: the result of code, the metadata of a search, and the status of each
/// address that was fetched. The latter two are not parts of the content; the decoder of answers ignores them.
pub(super) fn remove_provider_items(body: &mut Value) -> ProviderItems {
    let mut items = ProviderItems::default();
    let Some(candidates) = body.get_mut("candidates").and_then(Value::as_array_mut) else { return items };
    for candidate in candidates {
        if let Some(parts) = candidate.pointer_mut("/content/parts").and_then(Value::as_array_mut) {
            parts.retain(|part| {
                if let Some(result) = part.get("codeExecutionResult") {
                    items.note_result(fields::text(result, "outcome") == "OUTCOME_OK");
                }
                ["executableCode", "codeExecutionResult"].iter().all(|field| part.get(field).is_none())
            });
        }
        if let Some(found) = candidate.get("groundingMetadata") {
            // `true`: the metadata of a search reports no failure.
            items.note_result(true);
            let chunks = fields::list(found, "groundingChunks").unwrap_or_default();
            let pages = chunks.iter().filter_map(|chunk| chunk.get("web"));
            items.sources.extend(pages.map(|page| source(page, "title", "uri")));
        }
        let fetched =
            candidate.get("urlContextMetadata").and_then(|found| fields::list(found, "urlMetadata"));
        for page in fetched.unwrap_or_default() {
            let status = fields::text(page, "urlRetrievalStatus");
            items.note_result(status == "URL_RETRIEVAL_STATUS_SUCCESS");
        }
    }
    items
}
