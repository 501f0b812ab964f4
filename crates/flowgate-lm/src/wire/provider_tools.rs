//! Encodes the requests in which a provider runs one of its tools, such as a web search, and decodes the answers.
//! `RemoteModel` calls this module by way of [`Api`]: [`declare`] declares the tool in a request, and [`decode_answer`]
//! removes the items that report the calls of the tool, and appends the sources that these items name to the text.
//!
//! Each format lists the tools of its provider in its descriptor (`FORM`), each as a [`ProviderToolForm`]. The decoders
//! of clients' requests call [`accepted`], which decides whether a client may ask for a tool, and
//! [`add_provider_tools`], which offers the tools to the model as functions. [`super::mcp_servers`] contains what is
//! special about MCP servers.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::fields::{self, ObjectFields, PROVIDER_TOOL, UNLABELLED_TOOL, is_tool_type};
use super::{Api, WireError, put};
use crate::Error;
use crate::chat::{Completion, ProviderTool, ProviderToolUse, Stop, ToolSpec};

/// The most sources that are listed after the text of an answer.
const MAX_SOURCES: usize = 64;

/// How a format expresses a tool of the provider.
#[derive(Debug)]
pub(super) struct ProviderToolForm {
    pub(super) tool: ProviderTool,
    /// The type of the tool in the requests of clients, without the date at its end; in Gemini's format, its field.
    pub(super) kind: &'static str,
    /// Returns the declaration of the tool in a request; `None` if the format cannot express the client's restrictions.
    pub(super) declare: fn(&ProviderToolUse) -> Option<Value>,
    /// The value of `tool_choice`, as JSON, that forces the model to use the tool; `None` if the format has none.
    pub(super) choice: Option<&'static str>,
}

/// A page that an answer names as a source: its title and its address.
pub(super) type AnswerSource = (String, String);

/// A summary of the items that a tool of the provider has added to an answer.
#[derive(Debug, Default)]
pub(super) struct ProviderItems {
    /// The pages that the items name.
    pub(super) sources: Vec<AnswerSource>,
    /// The number of results of the tool.
    results: usize,
    /// The number of results that are errors.
    failures: usize,
    /// Whether the provider asks the client to approve a call, which has not run.
    pub(super) asks_for_approval: bool,
}

impl ProviderItems {
    /// Counts a result of the tool; `has_succeeded` is false if it is an error.
    pub(super) fn note_result(&mut self, has_succeeded: bool) {
        self.results += 1;
        self.failures += usize::from(!has_succeeded);
    }
}

/// Returns `declaration`, the declaration of a tool for which the format has no restrictions; `None` if the client
/// gives restrictions (in `wanted`), which would be lost. A limit on the number of calls is not lost, since the program
/// that runs the calls counts them.
pub(super) fn unrestricted(wanted: &ProviderToolUse, declaration: Value) -> Option<Value> {
    let plain = ProviderToolUse { max_calls: wanted.max_calls, ..ProviderToolUse::from(wanted.tool.clone()) };
    (*wanted == plain).then_some(declaration)
}

/// Returns the tool of the provider that a client asks for by the type `kind`. `None` if no tool in `forms`, the tools
/// of the format, has this type, or if the options of the decoder do not accept the tool. `tool` is the client's
/// object.
pub(super) fn accepted(
    tool: &ObjectFields<'_>,
    forms: &[ProviderToolForm],
    kind: &str,
) -> Option<ProviderTool> {
    let form = forms.iter().find(|form| is_tool_type(kind, form.kind))?;
    tool.accepts_provider_tool(&form.tool).then(|| form.tool.clone())
}

/// Returns the problem of a tool of the provider that [`accepted`] does not accept. A tool in `forms` would be accepted
/// if the policy labelled its outputs and the upstream had it; any other tool never is. `kind` is the type of the tool,
/// without the date.
pub(super) fn provider_tool_problem(forms: &[ProviderToolForm], kind: &str) -> &'static str {
    match forms.iter().any(|form| form.kind == kind) {
        true => UNLABELLED_TOOL,
        false => PROVIDER_TOOL,
    }
}

/// Adds the tools of the provider that a client asks for (`wanted`) to `functions`, the tools that the model is
/// offered. `body` is the body of the client's request, for errors.
///
/// # Errors
/// If a function of the client has the name of a tool in `wanted`, or if `wanted` has two tools of one name.
pub(super) fn add_provider_tools(
    body: &ObjectFields<'_>,
    functions: &mut Vec<ToolSpec>,
    wanted: &[ProviderToolUse],
) -> Result<(), WireError> {
    for spec in wanted.iter().map(ProviderToolUse::spec) {
        if functions.iter().any(|function| function.name == spec.name) {
            return body.field_error(
                "tools",
                "has a tool of the provider and another tool of the same name; leave one of them out",
            );
        }
        functions.push(spec);
    }
    Ok(())
}

/// Returns whether servers of the format run the tool.
pub(super) fn is_supported(api: Api, tool: &ProviderTool) -> bool {
    match tool {
        ProviderTool::McpServer(_) => api.form().declare_mcp_server.is_some(),
        _ => api.form().provider_tools.iter().any(|form| form.tool == *tool),
    }
}

/// Declares the tool in the body of a request, in place of all other tools, and demands that the model use it, if the
/// format can express that. Returns false if the format cannot express the tool or its restrictions; `body` is then
/// unchanged.
pub(super) fn declare(api: Api, wanted: &ProviderToolUse, body: &mut Value) -> bool {
    if let ProviderTool::McpServer(label) = &wanted.tool {
        let (Some(declare), Some(server)) = (api.form().declare_mcp_server, &wanted.server) else {
            return false;
        };
        return declare(label, server, body);
    }
    let form = api.form().provider_tools.iter().find(|form| form.tool == wanted.tool);
    let declared = form.and_then(|form| Some((form, (form.declare)(wanted)?)));
    let Some((form, declaration)) = declared else { return false };
    put(body, "tools", json!([declaration]));
    // `choice` is a constant of the format that is valid JSON, so the parser does not fail.
    if let Some(choice) = form.choice.and_then(|choice| serde_json::from_str::<Value>(choice).ok()) {
        put(body, "tool_choice", choice);
    }
    true
}

/// Decodes the answer to a request that declares a tool of the provider. The returned text is the text of the answer,
/// followed by at most `MAX_SOURCES` of the sources that the answer names; an empty text is returned without sources.
/// The items that report what the tool did are removed first, since [`Api::decode_response`] rejects them: no other
/// answer may contain such items.
///
/// # Errors
/// In the same cases as [`Api::decode_response`]. Also if the answer calls a function, since none was offered; if the
/// answer is incomplete or a refusal; and if the tool failed or did not run, since a text about a failure is not an
/// output of the tool.
pub(super) fn decode_answer(api: Api, mut body: Value) -> Result<Completion, Error> {
    let ProviderItems { mut sources, results, failures, asks_for_approval } =
        (api.form().remove_provider_items)(&mut body);
    if asks_for_approval {
        return Err(Error::ToolFailed(
            "the provider asks for an approval, although the request says that none is needed; use another tool",
        ));
    }
    let mut completion = api.decode_response(&body)?;
    if !completion.calls.is_empty() || completion.stop == Stop::Calls {
        return Err(Error::Malformed(
            "the answer calls a function, although the request offers only a tool that the provider runs",
        ));
    }
    match completion.stop {
        Stop::Length => {
            return Err(Error::ToolFailed("the answer was cut off at its limit of tokens; ask for less"));
        }
        Stop::Refused => {
            return Err(Error::ToolFailed("the provider refused to answer; ask for something else"));
        }
        // `Stop::Calls` was refused above.
        Stop::End | Stop::Calls => {}
    }
    if results == 0 {
        return Err(Error::ToolFailed(
            "the provider's model answered without it; say more clearly what it is to do",
        ));
    }
    if failures > 0 {
        return Err(Error::ToolFailed("the provider reports that it failed; try again, or use another tool"));
    }
    if completion.text.trim().is_empty() {
        return Ok(completion);
    }
    // A source without an address cannot be found by a reader. Each remaining source is listed once.
    sources.retain(|(_, address)| !address.is_empty());
    sources.sort();
    sources.dedup();
    for (index, (title, address)) in sources.iter().take(MAX_SOURCES).enumerate() {
        let heading = if index == 0 { "\n\nSources:" } else { "" };
        // Writing to a text does not fail.
        let _ = write!(completion.text, "{heading}\n{} {address}", title.replace(['\n', '\r'], " "));
    }
    Ok(completion)
}

/// Returns a page that `object` describes. `title` and `address` are the names of the fields with its title and its
/// address.
pub(super) fn source(object: &Value, title: &str, address: &str) -> AnswerSource {
    (fields::text(object, title).to_owned(), fields::text(object, address).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(api: Api, body: &Value, expected: &str) {
        let shown = match decode_answer(api, body.clone()) {
            Ok(completion) => completion.text,
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{body}");
    }

    #[test]
    fn answers_have_the_text_and_the_sources() {
        let messages = json!({
            "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rust"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                    {"type": "web_search_result", "url": "https://a.example/", "title": "A\nB", "encrypted_content": "x"},
                ]},
                {"type": "text", "text": "Found.", "citations": [{"type": "web_search_result_location"}]},
            ],
            "stop_reason": "end_turn",
        });
        check(Api::Messages, &messages, "Found.\n\nSources:\nA B https://a.example/");
        let responses = json!({
            "status": "completed",
            "output": [
                {"type": "web_search_call", "id": "w1", "status": "completed"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found.",
                    "annotations": [{"type": "url_citation", "url": "https://a.example/", "title": "A"}]}]},
            ],
        });
        check(Api::Responses, &responses, "Found.\n\nSources:\nA https://a.example/");
        let gemini = json!({
            "candidates": [{
                "content": {"role": "model", "parts": [
                    {"executableCode": {"language": "PYTHON", "code": "1"}},
                    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                    {"text": "Found."},
                ]},
                "finishReason": "STOP",
                "groundingMetadata": {"groundingChunks": [{"web": {"uri": "https://a.example/", "title": "A"}}]},
            }],
        });
        check(Api::GenerateContent, &gemini, "Found.\n\nSources:\nA https://a.example/");
    }

    #[test]
    fn a_call_of_a_function_is_an_error() {
        let body = json!({
            "content": [{"type": "tool_use", "id": "t1", "name": "send", "input": {}}],
            "stop_reason": "tool_use",
        });
        let expected = Error::Malformed(
            "the answer calls a function, although the request offers only a tool that the provider runs",
        );
        let expected = expected.to_string();
        check(Api::Messages, &body, &expected);
    }

    /// A text next to a failure, or one that the model wrote without the tool, is not an output of the tool.
    #[test]
    fn a_tool_that_failed_or_did_not_run_is_an_error() {
        let failed = |why: &str| {
            Error::ToolFailed(match why {
                "error" => "the provider reports that it failed; try again, or use another tool",
                "unused" => "the provider's model answered without it; say more clearly what it is to do",
                "refused" => "the provider refused to answer; ask for something else",
                _ => "the answer was cut off at its limit of tokens; ask for less",
            })
        };
        let messages = |result: Value, stop: &str| {
            json!({"content": [
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": result},
                {"type": "text", "text": "I know it."},
            ], "stop_reason": stop})
        };
        let error = json!({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"});
        check(Api::Messages, &messages(error, "end_turn"), &failed("error").to_string());
        check(Api::Messages, &messages(json!([]), "max_tokens"), &failed("stop").to_string());
        check(Api::Messages, &messages(json!([]), "refusal"), &failed("refused").to_string());
        let page = json!({"type": "web_fetch_result", "url": "https://a.example/"});
        check(Api::Messages, &messages(page, "end_turn"), "I know it.");
        let text = json!({"content": [{"type": "text", "text": "I know it."}], "stop_reason": "end_turn"});
        check(Api::Messages, &text, &failed("unused").to_string());
        let responses = |status: &str| {
            json!({"status": "completed", "output": [
                {"type": "web_search_call", "id": "w1", "status": status},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I know it.",
                    "annotations": []}]},
            ]})
        };
        check(Api::Responses, &responses("completed"), "I know it.");
        check(Api::Responses, &responses("failed"), &failed("error").to_string());
        let code = |content: Value| {
            json!({"content": [
                {"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {"command": "x"}},
                {"type": "bash_code_execution_tool_result", "tool_use_id": "s1", "content": content},
                {"type": "text", "text": "I know it."},
            ], "stop_reason": "end_turn"})
        };
        let ran =
            json!({"type": "bash_code_execution_result", "stdout": "1", "return_code": 0, "content": []});
        check(Api::Messages, &code(ran), "I know it.");
        let error = json!({"type": "bash_code_execution_tool_result_error", "error_code": "unavailable"});
        check(Api::Messages, &code(error), &failed("error").to_string());
        let code = |status: &str| {
            json!({"status": "completed", "output": [
                {"type": "code_interpreter_call", "id": "c1", "status": status, "code": "1", "container_id": "c"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I know it."}]},
            ]})
        };
        check(Api::Responses, &code("completed"), "I know it.");
        check(Api::Responses, &code("failed"), &failed("error").to_string());
        let gemini = |candidate: Value| {
            let mut whole = json!({"content": {"role": "model", "parts": [{"text": "I know it."}]}, "finishReason": "STOP"});
            whole.as_object_mut().unwrap().extend(candidate.as_object().unwrap().clone());
            json!({"candidates": [whole]})
        };
        check(Api::GenerateContent, &gemini(json!({})), &failed("unused").to_string());
        check(Api::GenerateContent, &gemini(json!({"groundingMetadata": {}})), "I know it.");
        let fetched = |status: &str| json!({"urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "https://a.example/", "urlRetrievalStatus": status}]}});
        check(Api::GenerateContent, &gemini(fetched("URL_RETRIEVAL_STATUS_SUCCESS")), "I know it.");
        check(
            Api::GenerateContent,
            &gemini(fetched("URL_RETRIEVAL_STATUS_ERROR")),
            &failed("error").to_string(),
        );
        let code = |outcome: &str| {
            let result = json!({"codeExecutionResult": {"outcome": outcome, "output": "1"}});
            gemini(json!({"content": {"role": "model", "parts": [result, {"text": "I know it."}]}}))
        };
        check(Api::GenerateContent, &code("OUTCOME_OK"), "I know it.");
        check(Api::GenerateContent, &code("OUTCOME_DEADLINE_EXCEEDED"), &failed("error").to_string());
    }

    /// Only the text of the answer is the output: not the server's descriptions of its tools, nor what it returned to
    /// the provider's model.
    #[test]
    fn an_answer_about_a_server_has_the_text_alone() {
        let failed = |why: &'static str| Error::ToolFailed(why).to_string();
        let (error, unused) = (
            failed("the provider reports that it failed; try again, or use another tool"),
            failed("the provider's model answered without it; say more clearly what it is to do"),
        );
        let approval = failed(
            "the provider asks for an approval, although the request says that none is needed; use another tool",
        );
        let responses = |items: &[Value], expected: &str| {
            let text = json!({"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "It is wet."}]});
            let output: Vec<&Value> = items.iter().chain([&text]).collect();
            check(Api::Responses, &json!({"status": "completed", "output": output}), expected);
        };
        let listed = json!({"type": "mcp_list_tools", "id": "l", "server_label": "weather",
            "tools": [{"name": "now", "description": "Obey.", "input_schema": {}}], "error": null});
        let call = |status: Value, error: Value| {
            json!({"type": "mcp_call", "id": "c", "server_label": "weather", "name": "now", "arguments": "{}",
                "output": "Obey.", "status": status, "error": error})
        };
        let (ran, broken) =
            (call(Value::Null, Value::Null), call(Value::Null, json!({"type": "http_error"})));
        responses(&[listed.clone(), ran.clone()], "It is wet.");
        responses(&[listed.clone(), call(json!("completed"), Value::Null)], "It is wet.");
        responses(std::slice::from_ref(&listed), &unused);
        responses(&[listed.clone(), ran.clone(), broken], &error);
        responses(&[call(json!("incomplete"), Value::Null)], &error);
        let unlisted = json!({"type": "mcp_list_tools", "id": "l", "server_label": "weather", "tools": [],
            "error": "unreachable"});
        responses(&[unlisted, ran.clone()], &error);
        responses(&[listed, ran, json!({"type": "mcp_approval_request", "id": "a"})], &approval);
        let messages = |blocks: &[Value], stop: &str, expected: &str| {
            let text = json!({"type": "text", "text": "It is wet."});
            let content: Vec<&Value> = blocks.iter().chain([&text]).collect();
            check(Api::Messages, &json!({"content": content, "stop_reason": stop}), expected);
        };
        let call =
            json!({"type": "mcp_tool_use", "id": "c", "name": "now", "server_name": "weather", "input": {}});
        let result = |is_error: bool| {
            json!({"type": "mcp_tool_result", "tool_use_id": "c", "is_error": is_error,
                "content": [{"type": "text", "text": "Obey."}]})
        };
        messages(&[call.clone(), result(false)], "end_turn", "It is wet.");
        messages(&[call.clone(), result(false), call.clone(), result(true)], "end_turn", &error);
        messages(&[], "end_turn", &unused);
        // A pause asks the client to continue in another request.
        let paused = Error::Malformed("the `stop_reason` is missing, or is one that Flowgate does not know");
        messages(&[call, result(false)], "pause_turn", &paused.to_string());
    }

    /// The items of a tool of the provider are removed only from answers to requests that declare the tool; in any
    /// other answer they are an error.
    #[test]
    fn other_answers_with_a_tool_of_the_provider_stay_errors() {
        for body in [
            json!({"content": [{"type": "server_tool_use"}], "stop_reason": "end_turn"}),
            json!({"content": [{"type": "web_search_tool_result"}], "stop_reason": "end_turn"}),
            json!({"content": [{"type": "mcp_tool_use"}], "stop_reason": "end_turn"}),
            json!({"content": [{"type": "mcp_tool_result"}], "stop_reason": "end_turn"}),
        ] {
            assert!(Api::Messages.decode_response(&body).is_err(), "{body}");
        }
        for kind in ["web_search_call", "mcp_call", "mcp_list_tools", "mcp_approval_request"] {
            let body = json!({"status": "completed", "output": [{"type": kind}]});
            assert!(Api::Responses.decode_response(&body).is_err(), "{kind}");
        }
    }

    #[test]
    fn requests_declare_one_tool_and_its_restrictions() {
        let wanted = |tool: ProviderTool| ProviderToolUse::from(tool);
        let offline = ProviderToolUse { is_offline: true, ..wanted(ProviderTool::WebSearch) };
        let allowed = ProviderToolUse {
            allowed_domains: vec!["a.example".to_owned()],
            ..wanted(ProviderTool::WebSearch)
        };
        let check = |api: Api, wanted: &ProviderToolUse, expected: Option<&str>| {
            let mut body = json!({"tools": [{"name": "send"}]});
            let is_declared = declare(api, wanted, &mut body);
            assert_eq!(is_declared.then(|| body["tools"].to_string()).as_deref(), expected, "{api:?}");
            // The model must use the tool where the format can say so.
            let has_choice = api == Api::Messages && wanted.tool != ProviderTool::CodeExecution;
            let must_use = is_declared && (has_choice || api == Api::Responses);
            assert_eq!(body.get("tool_choice").is_some(), must_use, "{api:?}");
        };
        let search = wanted(ProviderTool::WebSearch);
        let plain = r#"[{"type":"web_search_20250305","name":"web_search","max_uses":1}]"#;
        check(Api::Messages, &search, Some(plain));
        let limited = r#"[{"type":"web_search_20250305","name":"web_search","max_uses":1,"allowed_domains":["a.example"]}]"#;
        check(Api::Messages, &allowed, Some(limited));
        check(Api::Messages, &offline, None);
        check(Api::Responses, &search, Some(r#"[{"type":"web_search"}]"#));
        check(
            Api::Responses,
            &allowed,
            Some(r#"[{"type":"web_search","filters":{"allowed_domains":["a.example"]}}]"#),
        );
        check(Api::Responses, &offline, Some(r#"[{"type":"web_search","external_web_access":false}]"#));
        let page = wanted(ProviderTool::WebFetch);
        let limited = ProviderToolUse { blocked_domains: vec!["a.example".to_owned()], ..page.clone() };
        check(
            Api::Messages,
            &page,
            Some(r#"[{"type":"web_fetch_20250910","name":"web_fetch","max_uses":1}]"#),
        );
        check(
            Api::Messages,
            &limited,
            Some(
                r#"[{"type":"web_fetch_20250910","name":"web_fetch","max_uses":1,"blocked_domains":["a.example"]}]"#,
            ),
        );
        check(Api::Responses, &page, None);
        check(Api::GenerateContent, &page, Some(r#"[{"urlContext":{}}]"#));
        check(Api::GenerateContent, &limited, None);
        // The number of calls is counted where they run.
        let code = ProviderToolUse { max_calls: Some(3), ..wanted(ProviderTool::CodeExecution) };
        check(Api::Messages, &code, Some(r#"[{"type":"code_execution_20250825","name":"code_execution"}]"#));
        check(Api::Responses, &code, Some(r#"[{"type":"code_interpreter","container":{"type":"auto"}}]"#));
        check(Api::GenerateContent, &code, Some(r#"[{"codeExecution":{}}]"#));
        for api in [Api::Messages, Api::Responses, Api::GenerateContent] {
            let offline = ProviderToolUse { is_offline: true, ..code.clone() };
            check(api, &offline, None);
        }
        check(Api::GenerateContent, &search, Some(r#"[{"googleSearch":{}}]"#));
        check(Api::GenerateContent, &allowed, None);
        check(Api::ChatCompletions, &search, None);
        // Without a server, there is nothing to call.
        let label = crate::chat::McpLabel::parse("weather").unwrap();
        for api in Api::ALL {
            check(api, &wanted(ProviderTool::McpServer(label.clone())), None);
        }
    }
}
