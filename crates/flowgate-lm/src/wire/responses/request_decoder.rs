//! Decodes requests of OpenAI's Responses API, as the gateway receives them from its clients. This file decodes the
//! settings; [`super::input_items`] decodes the items of the input, and [`super::tools`] the tools.

use std::sync::Arc;

use super::super::fields::{ObjectFields, UNKNOWN_EFFORT};
use super::super::known_fields::DecodeOptions;
use super::super::output_format::{read_format, read_named_schema};
use super::super::provider_tools::add_provider_tools;
use super::super::{ReceivedRequest, WireError};
use super::input_items::{read_item, read_reference};
use super::tools::{ReceivedTools, read_choice};
use super::{JSON_FORMAT, REASONING, REQUEST, SCHEMA_FORMAT, STREAM_OPTIONS, TEXT, TEXT_FORMAT};
use crate::chat::{
    Effort, Message, OutputFormat, Part, Reasoning, ReasoningSummary, Request, Sampling, Sources, Verbosity,
};
use crate::json::Json;

/// Decodes the body of a request. `options` says which fields and tools are dropped, and which tools of the provider
/// are accepted.
///
/// # Errors
/// If the body violates the format, or asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>, options: &DecodeOptions) -> Result<ReceivedRequest, WireError> {
    let body = ObjectFields::of_body(body, options)?;
    body.reject_unsupported(&REQUEST)?;
    if body.get("stream_options").is_some() {
        body.object("stream_options")?.reject_unsupported(&STREAM_OPTIONS)?;
    }
    let (mut messages, mut sources, mut item_references) = (Vec::new(), Sources::default(), Vec::new());
    let mut tools = ReceivedTools::default();
    for tool in body.objects("tools")? {
        tools.read(&tool?, None)?;
    }
    if let Some(text) = body.optional_text("instructions")? {
        messages.push(Message::System(vec![Part::from(text)]));
    }
    match body.get("input") {
        None => return body.field_error("input", "is missing"),
        Some(Json::Text(text)) => messages.push(Message::User(vec![Part::Text(text.clone().into_owned())])),
        Some(_) => {
            for item in body.objects("input")? {
                let item = item?;
                match item.optional_text("type")? {
                    Some("item_reference") => read_reference(&item, &mut messages, &mut item_references)?,
                    Some("additional_tools") => tools.read_item(&item)?,
                    _ => read_item(&item, &mut messages, &mut sources)?,
                }
            }
        }
    }
    let (verbosity, format) = read_text_settings(&body)?;
    // The model is offered each tool of the provider as a function, besides those of the client.
    let (mut functions, provider_tools) = (tools.take_specs(), tools.take_provider_tools());
    add_provider_tools(&body, &mut functions, &provider_tools)?;
    let request = Request {
        messages: messages.into(),
        tools: functions,
        choice: read_choice(&body)?,
        sampling: Sampling {
            max_tokens: body.tokens("max_output_tokens")?,
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: None,
            stop: Vec::new(),
            reasoning: read_reasoning(&body)?,
            verbosity,
            // Without the field, a message may have several calls.
            single_call: body.get("parallel_tool_calls").is_some() && !body.flag("parallel_tool_calls")?,
        },
        format,
    };
    let (model, stream) = (body.text("model")?.to_owned(), body.flag("stream")?);
    let previous_response = body.optional_text("previous_response_id")?.map(str::to_owned);
    Ok(ReceivedRequest {
        request,
        model,
        stream,
        // Every answer of this format reports the token usage.
        usage: true,
        sources,
        tool_forms: tools.forms,
        previous_response,
        item_references,
        provider_tools,
        max_provider_calls: body.whole_number("max_tool_calls")?,
        citable: Arc::default(),
    })
}

/// The values of `include` that are ignored, because they ask for details of items that no answer of the gateway
/// contains, such as the items of tools of the provider.
const IDLE_INCLUDES: [&str; 6] = [
    "web_search_call.action.sources",
    "web_search_call.results",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "message.input_image.image_url",
];

/// Decodes the fields `reasoning` and `include`: how much the model is to reason, whether it summarises the reasoning,
/// and whether the answer is to contain the encrypted reasoning.
fn read_reasoning(body: &ObjectFields<'_>) -> Result<Reasoning, WireError> {
    let mut reasoning = Reasoning::default();
    if body.get("reasoning").is_some() {
        let settings = body.object("reasoning")?;
        settings.reject_unsupported(&REASONING)?;
        reasoning.effort = settings.word("effort", Effort::from_name, UNKNOWN_EFFORT)?;
        reasoning.summary = match settings.optional_text("summary")? {
            // The client Codex sends `none` if it wants no summary.
            Some("none") => None,
            _ => settings.word(
                "summary",
                ReasoningSummary::from_name,
                "is not `auto`, `concise`, `detailed` or `none`",
            )?,
        };
    }
    for included in body.texts("include")? {
        match included.as_str() {
            "reasoning.encrypted_content" => reasoning.is_returned = true,
            idle if IDLE_INCLUDES.contains(&idle) => {}
            _ => {
                return body.field_error(
                    "include",
                    "has a value that the gateway does not support; send only `reasoning.encrypted_content`",
                );
            }
        }
    }
    Ok(reasoning)
}

/// Decodes the field `text`: the verbosity of the answer's text, and the format that the request demands of it. Each is
/// `None` if the request does not state it.
fn read_text_settings(
    body: &ObjectFields<'_>,
) -> Result<(Option<Verbosity>, Option<OutputFormat>), WireError> {
    if body.get("text").is_none() {
        return Ok((None, None));
    }
    let text = body.object("text")?;
    text.reject_unsupported(&TEXT)?;
    let verbosity = text.word("verbosity", Verbosity::from_name, "is not `low`, `medium` or `high`")?;
    if text.get("format").is_none() {
        return Ok((verbosity, None));
    }
    let known = [("text", &TEXT_FORMAT), ("json_object", &JSON_FORMAT), ("json_schema", &SCHEMA_FORMAT)];
    let unknown = "is not `text`, `json_object` or `json_schema`";
    Ok((verbosity, read_format(&text.object("format")?, &known, unknown, read_named_schema)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{ToolChoice, ToolSpec};
    use crate::wire::Api;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","input":"i",{field}}}"#);
        let shown = match decode_request(
            &Json::from(&serde_json::from_str(&text).unwrap()),
            &DecodeOptions::default(),
        ) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{field}");
    }

    /// Tools of other forms become functions, and the calls and `tool_choice` name these functions.
    #[test]
    fn tools_of_all_forms_become_functions() {
        let text = r#"{"model":"m","input":[
            {"type":"function_call","call_id":"c1","namespace":"n","name":"f","arguments":"{}"},
            {"type":"custom_tool_call","call_id":"c2","name":"patch","input":"a\n"},
            {"type":"custom_tool_call_output","call_id":"c2","output":"done"}],
            "tools":[{"type":"namespace","name":"n","description":"About n.","tools":[{"type":"function","name":"f","description":"Does f."}]},
                {"type":"custom","name":"patch","description":"Patches.","format":{"type":"grammar","syntax":"lark","definition":"start: A"}}],
            "tool_choice":{"type":"function","namespace":"n","name":"f"}}"#;
        let body = serde_json::from_str(text).unwrap();
        let read = decode_request(&Json::from(&body), &DecodeOptions::default()).unwrap();
        let tools: Vec<(&str, &str)> =
            read.request.tools.iter().map(|tool| (tool.name.as_str(), tool.description.as_str())).collect();
        let about = "Patches.\n\nThe input must match this grammar (lark):\nstart: A";
        assert_eq!(tools, [("n__f", "About n.\n\nDoes f."), ("patch", about)]);
        assert_eq!(read.request.choice, ToolChoice::Tool("n__f".to_owned()));
        let [Message::Assistant { calls, .. }, Message::Tool { call_id, .. }] = &read.request.messages[..]
        else {
            panic!("{:?}", read.request.messages)
        };
        let calls: Vec<(&str, &str)> =
            calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, [("n__f", "{}"), ("patch", r#"{"input":"a\n"}"#)]);
        assert_eq!(call_id, "c2");
        assert!(read.tool_forms.of("patch").is_some_and(|form| form.is_custom));
        assert_eq!(read.tool_forms.of("other"), None);
    }

    /// The tools of all lists are on offer together. A tool in a later list replaces those of its name in earlier ones.
    #[test]
    fn items_add_and_replace_tools() {
        let check = |tools: &str, items: &[&str], expected: &str| {
            let item = |tools: &&str| {
                format!(r#"{{"type":"additional_tools","id":"at","role":"developer","tools":[{tools}]}}"#)
            };
            let user = r#"{"role":"user","content":"u"}"#.to_owned();
            let items: Vec<String> = items.iter().map(item).flat_map(|item| [item, user.clone()]).collect();
            let text = format!(r#"{{"model":"m","tools":[{tools}],"input":[{}]}}"#, items.join(","));
            let body = serde_json::from_str(&text).unwrap();
            let shown = match decode_request(&Json::from(&body), &DecodeOptions::default()) {
                Ok(read) => {
                    // The items are no messages.
                    assert_eq!(read.request.messages.len() * 2, items.len(), "{text}");
                    let tool = |tool: &ToolSpec| {
                        let form = read
                            .tool_forms
                            .of(&tool.name)
                            .map_or("", |form| if form.is_custom { " custom" } else { " grouped" });
                        format!("{} {}{form}", tool.name, tool.description)
                    };
                    read.request.tools.iter().map(tool).collect::<Vec<_>>().join(", ")
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{text}");
        };
        let named = |kind: &str, name: &str, about: &str| {
            format!(r#"{{"type":"{kind}","name":"{name}","description":"{about}"}}"#)
        };
        let [f, g, other_f] =
            [("f", "1"), ("g", "2"), ("f", "3")].map(|(name, about)| named("function", name, about));
        let custom = named("custom", "f", "4");
        let group =
            |tools: &str| format!(r#"{{"type":"namespace","name":"n","description":"","tools":[{tools}]}}"#);
        check("", &[&f], "f 1");
        check(&f, &[&g], "f 1, g 2");
        check("", &[&f, &g], "f 1, g 2");
        check("", &[&f, &f], "f 1");
        check("", &[&format!("{f},{g}"), &other_f], "g 2, f 3");
        check(&format!("{f},{g}"), &[&other_f], "g 2, f 3");
        check(&f, &[&custom], "f 4 custom");
        check("", &[&custom, &f], "f 1");
        check("", &[&group(&format!("{custom},{g}")), &group(&custom)], "n__g 2 grouped, n__f 4 custom");
        // In one list, only plain functions share a name.
        check(&format!("{f},{other_f}"), &[], "f 1, f 3");
        check(&format!("{f},{other_f}"), &[&custom], "f 4 custom");
        let twice = "name` is also the name of another tool; rename one of them";
        check("", &[&f, &format!("{f},{custom}")], &format!("`input[2].tools[1].{twice}"));
        let flat = named("function", "n__f", "5");
        check("", &[&format!("{flat},{}", group(&f))], &format!("`input[0].tools[1].tools[0].{twice}"));
        check("", &[&flat, &group(&f)], "n__f 1 grouped");
    }

    /// The model is offered the tools of an item in the form of its own server, whichever that is.
    #[test]
    fn every_form_has_the_tools_of_items() {
        let text = r#"{"model":"m","input":[{"type":"additional_tools","role":"developer","tools":[
            {"type":"namespace","name":"functions","description":"","tools":[
                {"type":"custom","name":"exec","description":"Runs a program."},
                {"type":"function","name":"wait","description":"Waits.","parameters":{"type":"object"}}]}]},
            {"role":"user","content":"u"}]}"#;
        let body = serde_json::from_str(text).unwrap();
        let read = decode_request(&Json::from(&body), &DecodeOptions::default()).unwrap();
        for api in Api::ALL {
            let sent = api.encode_request(&read.request, "m", false);
            let tools = sent["tools"].to_string();
            for part in ["functions__exec", "Runs a program.", "functions__wait", "Waits."] {
                assert!(tools.contains(part), "{api:?}: {sent}");
            }
            assert!(!sent.to_string().contains("additional_tools"), "{api:?}: {sent}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        for fine in [
            r#""store":false"#,
            r#""previous_response_id":null"#,
            r#""text":{"format":{"type":"text"}}"#,
            r#""input":[{"role":"user","content":"a"}]"#,
            r#""input":[{"type":"message","id":"m","status":"completed","role":"assistant",
                "content":[{"type":"output_text","text":"t","annotations":[],"logprobs":[]}]}]"#,
            r#""reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"]"#,
            r#""store":true,"truncation":"auto","prompt_cache_key":"k","client_metadata":{"a":"b"}"#,
            r#""text":{"verbosity":"low","format":{"type":"text"}},"parallel_tool_calls":false"#,
            r#""text":{"format":{"type":"json_object"}}"#,
            r#""text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{},"strict":null}}"#,
            r#""input":[{"type":"reasoning","id":"rs","summary":[],"content":null,"encrypted_content":"e"}]"#,
            r#""tools":[{"type":"custom","name":"apply_patch","format":{"type":"grammar","syntax":"lark","definition":"start: \"a\""}}]"#,
            r#""tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","strict":false}]}]"#,
            r#""tool_choice":{"type":"custom","name":"apply_patch"}"#,
            r#""input":[{"type":"function_call","id":"f","status":"completed","call_id":"c","name":"n","arguments":"{}"}]"#,
            r#""input":[{"type":"additional_tools","id":"at","role":"developer","tools":[{"type":"function","name":"f"}]}]"#,
            r#""reasoning":{"context":"all_turns"}"#,
        ] {
            check(fine, "fine");
        }
        for (fields, problem) in [
            (r#""role":"user","tools":[]"#, "role` is supported only as `developer`"),
            (r#""role":"developer","tools":3"#, "tools` is not a list"),
            (r#""role":"developer","tools":[],"flowgate":{"source":"typed"}"#, "flowgate` is not known"),
            (r#""role":"developer","tools":[],"content":"c""#, "content` is not known"),
            (
                r#""role":"developer","tools":[{"type":"new"}]"#,
                "tools[0].type` is not a known type of tool; leave the tool out",
            ),
            (
                r#""role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"file_search"}]}]"#,
                "tools[0].tools[0].type` is a tool that the provider runs, and what it returns would reach the model \
                without a label; leave it out",
            ),
            (
                r#""role":"developer","tools":[{"type":"local_shell"}]"#,
                "tools[0].type` is a tool whose arguments only the provider describes; declare it as a function",
            ),
            (
                r#""role":"developer","tools":[{"type":"function","name":"f","allowed_callers":["programmatic"]}]"#,
                "tools[0].allowed_callers` is supported only as `[\"direct\"]`: otherwise code at the provider would make \
                calls that the policy does not judge",
            ),
        ] {
            let item = format!(r#"{{"type":"additional_tools",{fields}}}"#);
            check(&format!(r#""input":[{item}]"#), &format!("`input[0].{problem}"));
        }
        check(
            r#""reasoning":{"context":"current_turn"}"#,
            "`reasoning.context` is supported only as `auto` or `all_turns`: the gateway returns the reasoning of all turns",
        );
        check(r#""previous_response_id":"resp_1""#, "fine");
        check(r#""previous_response_id":1"#, "`previous_response_id` is not a string");
        for field in ["conversation", "prompt"] {
            let problem = "refers to state at the provider, which has no label; send the content itself";
            check(&format!(r#""{field}":"r""#), &format!("`{field}` {problem}"));
        }
        check(
            r#""include":["message.output_text.logprobs"]"#,
            "`include` has a value that the gateway does not support; send only `reasoning.encrypted_content`",
        );
        check(
            r#""tools":[{"type":"image_generation"}]"#,
            "`tools[0].type` is a tool that the provider runs, and what it returns would reach the model without a \
            label; leave it out",
        );
        for (field, place) in [
            (r#""tools":[{"type":"mcp","server_url":"u"}]"#, "tools[0].type"),
            (
                r#""tools":[{"type":"mcp","server_label":"weather","server_url":"https://a.example/"}]"#,
                "tools[0].type",
            ),
        ] {
            check(
                field,
                &format!(
                    "`{place}` is an MCP server that the provider would call: the policy has to label its outputs by \
                    name (`label out.content as untrusted if: (out: ToolOutput) is tool:mcp__LABEL`, with the label \
                    of the server, which has letters, digits, `-` and single `_`), and the upstream has to have such \
                    servers; or put the server behind the gateway"
                ),
            );
        }
        for kind in ["web_search", "web_search_2025_08_26"] {
            check(
                &format!(r#""tools":[{{"type":"{kind}"}}]"#),
                "`tools[0].type` is a tool that the provider runs: the policy has to label its outputs, and the \
                upstream has to have it; leave it out",
            );
        }
        check(
            r#""tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m","tools":[]}]}]"#,
            "`tools[0].tools[0].type` is not a known type of tool; leave the tool out",
        );
        check(
            r#""tools":[{"type":"local_shell"}]"#,
            "`tools[0].type` is a tool whose arguments only the provider describes; declare it as a function",
        );
        check(
            r#""tools":[{"type":"function","name":"n__f"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]"#,
            "`tools[1].tools[0].name` is also the name of another tool; rename one of them",
        );
        check(
            r#""tool_choice":{"type":"file_search"}"#,
            "`tool_choice.type` is a tool that the provider runs, and what it returns would reach the model without a label; \
            leave it out",
        );
        check(
            r#""tool_choice":{"type":"mcp","server_label":"weather"}"#,
            "`tool_choice.type` is `mcp`, but the gateway cannot force a model to call an MCP server; leave `tool_choice` out",
        );
        check(r#""tool_choice":{"type":"shell"}"#, "`tool_choice.type` is neither `function` nor `custom`");
        for (format, problem) in [
            (r#"{"type":"grammar"}"#, "type` is not `text`, `json_object` or `json_schema`"),
            (r#"{"type":"text","schema":{}}"#, "schema` is not known"),
            (r#"{"type":"json_schema","schema":{}}"#, "name` is missing"),
            (
                r#"{"type":"json_schema","name":"a b","schema":{}}"#,
                "name` is not a name of 1 to 64 letters, digits, `_` and `-`",
            ),
            (r#"{"type":"json_schema","name":"n"}"#, "schema` is missing"),
            (r#"{"type":"json_schema","name":"n","schema":true}"#, "schema` is not an object"),
            (
                r#"{"type":"json_schema","name":"n","schema":{},"strict":1}"#,
                "strict` is neither true nor false",
            ),
            (
                r#"{"type":"json_schema","name":"n","schema":{"$ref":"https://example.org/s"}}"#,
                "schema` has a `$ref` or `$dynamicRef` that does not begin with `#`: nothing is fetched, so put the schema itself there",
            ),
        ] {
            check(&format!(r#""text":{{"format":{format}}}"#), &format!("`text.format.{problem}"));
        }
        check(
            r#""background":true"#,
            "`background` is supported only as false: a reply is judged before it is sent",
        );
        for (kind, problem) in [
            (
                "mcp_call",
                "is the record of a tool that the provider has run, whose output has no label; leave it out",
            ),
            (
                "shell_call_output",
                "is about a tool whose arguments only the provider describes; declare a function, and send its calls",
            ),
            (
                "compaction",
                "is text that only the provider can read, so no rule can judge it; send the messages themselves",
            ),
            (
                "new",
                "is not a known type of item; send messages, tools, and calls of functions and custom tools with their outputs",
            ),
        ] {
            check(
                &format!(r#""input":[{{"type":"{kind}","id":"i"}}]"#),
                &format!("`input[0].type` {problem}"),
            );
        }
        for id in ["msg_1", "rs_1", "resp_1"] {
            check(
                &format!(r#""input":[{{"type":"item_reference","id":"{id}"}}]"#),
                "`input[0].id` is not the id of an item in an answer of this gateway, and an item that the provider keeps \
                has no label; send the item itself, as clients do if `store` is false",
            );
        }
        check(r#""input":[{"type":"item_reference"}]"#, "`input[0].id` is missing");
        check(r#""input":[{"type":"item_reference","id":"msg_resp_1"}]"#, "fine");
        check(
            r#""input":[{"type":"item_reference","id":"msg_resp_1","role":"user"}]"#,
            "`input[0].role` is not known",
        );
        check(
            r#""tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}"#,
            "`tool_choice.type` is a choice among tools; declare in `tools` only those that the model may call",
        );
        check(r#""input":3"#, "`input` is not a list");
        check(r#""input":null"#, "`input` is missing");
        check(
            r#""input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]"#,
            "`input[0].content[0].file_id` refers to state at the provider, which has no label; send the content itself",
        );
        for (file, expected) in [
            (r#""filename":"a.pdf","file_data":"data:application/pdf;base64,AA""#, "fine"),
            (
                r#""file_data":"f""#,
                "`input[0].content[0].file_data` is not the content of a PDF; send other documents as text",
            ),
            (
                r#""file_url":"https://example.org/a.pdf""#,
                "`input[0].content[0].file_url` would be fetched by the provider, and what it returns has no label; \
                send the content in base64",
            ),
        ] {
            let part = format!(r#"{{"type":"input_file",{file}}}"#);
            check(&format!(r#""input":[{{"role":"user","content":[{part}]}}]"#), expected);
        }
    }
}
