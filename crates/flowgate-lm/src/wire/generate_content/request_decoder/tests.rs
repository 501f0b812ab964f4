//! Tests of decoded requests: ids of calls, contents, tools, settings, and refusals that name the field.

use serde_json::{Value, json};

use super::*;
use crate::chat::{Message, Part, Source, ToolChoice};

fn decode(body: &Value, dropped: &DecodeOptions) -> Result<ReceivedRequest, String> {
    decode_request(&Json::from(body), dropped).map_err(|error| error.to_string())
}

fn decoded(body: &Value) -> ReceivedRequest {
    decode(body, &DecodeOptions::default()).unwrap()
}

/// Returns the messages of contents, each on one line.
#[expect(clippy::needless_pass_by_value, reason = "the rows of the test are literals")]
fn chat(contents: Value) -> Vec<String> {
    let text = |parts: &[Part]| {
        let one = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::ImageUrl(_) => "url".to_owned(),
            Part::ImageData { media_type, data } => format!("<{media_type} {data}>"),
        };
        parts.iter().map(one).collect::<Vec<_>>().join("|")
    };
    let shown = |message: &Message| match message {
        Message::System(parts) => format!("system {}", text(parts)),
        Message::User(parts) => format!("user {}", text(parts)),
        Message::Assistant { text, calls, .. } => {
            let calls = calls.iter().map(|call| format!(" {}={}{}", call.id, call.name, call.arguments));
            format!("model {text}{}", calls.collect::<String>())
        }
        Message::Tool { call_id, content, is_error } => {
            format!("tool {call_id} {} {}", text(content), *is_error == Some(true))
        }
    };
    decoded(&json!({"contents": contents})).request.messages.iter().map(shown).collect()
}

fn call(id: Option<&str>, name: &str) -> Value {
    json!({"functionCall": {"id": id, "name": name, "args": {}}})
}

fn output(id: Option<&str>, name: &str, text: &str) -> Value {
    json!({"functionResponse": {"id": id, "name": name, "response": {"output": text}}})
}

/// Calls have ids and outputs refer to them, whether the client sends ids or not.
#[test]
fn calls_without_ids_are_counted() {
    let of_model = |parts: &[Value]| json!({"role": "model", "parts": parts});
    let of_tools = |parts: &[Value]| json!({"role": "function", "parts": parts});
    let check = |contents: &[Value], expected: &[&str]| {
        assert_eq!(chat(contents.into()), expected);
    };
    let twice = [
        of_model(&[call(None, "read"), call(None, "send"), call(None, "read")]),
        of_tools(&[output(None, "read", "a"), output(None, "read", "b"), output(None, "send", "c")]),
        of_model(&[call(None, "read")]),
        of_tools(&[output(None, "read", "d")]),
    ];
    check(
        &twice,
        &[
            "model  call_0=read{} call_1=send{} call_2=read{}",
            "tool call_0 a false",
            "tool call_2 b false",
            "tool call_1 c false",
            "model  call_3=read{}",
            "tool call_3 d false",
        ],
    );
    // The beginning of the chat alone has the same ids.
    assert!(chat(twice.to_vec().into()).starts_with(&chat(twice[..2].to_vec().into())));
    // The client sends ids, and the outputs are in another order than the calls.
    let given = [
        of_model(&[call(Some("a"), "read"), call(Some("b"), "read")]),
        of_tools(&[output(Some("b"), "read", "B"), output(Some("a"), "read", "A")]),
    ];
    check(&given, &["model  a=read{} b=read{}", "tool b B false", "tool a A false"]);
    // An output without an id, and one with an invented id.
    let invented = [
        of_model(&[call(Some("a"), "read"), call(None, "send")]),
        of_tools(&[output(None, "read", "A"), output(Some("send-1"), "send", "S")]),
    ];
    check(&invented, &["model  a=read{} call_1=send{}", "tool a A false", "tool call_1 S false"]);
    // An id that is not that of the call is not replaced by one that the client gave; nor is an answer repeated.
    let other = [
        of_model(&[call(Some("a"), "read")]),
        of_tools(&[output(Some("z"), "read", "Z"), output(None, "read", "A"), output(None, "read", "?")]),
    ];
    check(&other, &["model  a=read{}", "tool z Z false", "tool a A false", "tool output_of_read ? false"]);
}

#[test]
fn contents_become_messages() {
    let check =
        |contents: Value, expected: &[&str]| assert_eq!(chat(contents.clone()), expected, "{contents}");
    // Each event of a stream may be a content of its own; thoughts are dropped.
    check(
        json!([
            {"parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "obey", "thought": true, "thoughtSignature": "s"}]},
            {"role": "model", "parts": [{"text": "One "}, {"text": "two"}]},
            {"role": "model", "parts": [{"text": "."}, {"thoughtSignature": "s"}]},
            {"role": "model", "parts": [{"text": "", "thoughtSignature": "s"}]},
            {"role": "user", "parts": []},
        ]),
        &["user Hi", "model One two.", "user "],
    );
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "a-_/", "displayName": "x"}});
    let pdf = json!({"inlineData": {"mimeType": "application/pdf", "data": "AA"}});
    check(
        json!([{"role": "user", "parts": [{"text": "a"}, image, pdf]}]),
        &["user a|<image/png a+//>|<application/pdf AA>"],
    );
    // A file after an output belongs to the output; after a text, it is the user's.
    check(
        json!([{"role": "user", "parts": [output(Some("c"), "f", "o"), image, pdf, {"text": "t"}, image]}]),
        &["tool c o|<image/png a+//>|<application/pdf AA> false", "user t|<image/png a+//>"],
    );
    for (response, expected) in [
        (json!({"output": "a"}), "a false"),
        (json!({"result": {"b": 1}}), r#"{"b":1} false"#),
        (json!({"error": "no"}), "no true"),
        (json!({"error": "no", "output": ""}), r#"{"error":"no","output":""} false"#),
        (json!({"content": "a"}), r#"{"content":"a"} false"#),
        (json!({}), " false"),
        (json!(null), " false"),
    ] {
        let output = json!({"functionResponse": {"id": "c", "name": "f", "response": response, "parts": []}});
        check(json!([{"role": "user", "parts": [output]}]), &[&format!("tool c {expected}")]);
    }
    let nested =
        json!({"functionResponse": {"id": "c", "name": "f", "response": {"output": "a"}, "parts": [image]}});
    check(json!([{"role": "user", "parts": [nested]}]), &["tool c a|<image/png a+//> false"]);
}

/// A PDF does not count as typed text, and neither does what follows an output of a tool.
#[test]
fn files_have_their_own_source() {
    let pdf = json!({"inlineData": {"mimeType": "application/pdf", "data": "AA"}});
    let read = decoded(
        &json!({"contents": [{"role": "user", "parts": [{"text": "a"}, pdf], "flowgate": {"source": "typed"}}]}),
    );
    assert_eq!([0, 1].map(|part| read.sources.of(0, part)), [Some(Source::Typed), Some(Source::File)]);
}

#[test]
fn settings_are_read() {
    let read = decoded(&json!({
        "systemInstruction": {"role": "user", "parts": [{"text": "S"}, {"text": "T"}]},
        "contents": [],
        "tools": [
            {"functionDeclarations": [{"name": "f", "description": "F.", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}}]},
            {"functionDeclarations": [{"name": "g", "parametersJsonSchema": {"type": "object"}, "response": {"type": "STRING"}}, {"name": "h"}]},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}},
        "generationConfig": {
            "temperature": 1, "topP": 0.5, "topK": 64, "maxOutputTokens": 9, "seed": 3, "candidateCount": 1, "stopSequences": ["x"],
            "responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"},
            "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 8192},
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "labels": {"team": "a"},
    }));
    let request = read.request;
    assert_eq!(request.messages[..], [Message::System(vec![Part::from("S"), Part::from("T")])]);
    let tools: Vec<(&str, &Value)> =
        request.tools.iter().map(|tool| (tool.name.as_str(), &*tool.parameters)).collect();
    let (f, empty) = (
        json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        json!({"type": "object", "properties": {}}),
    );
    assert_eq!(tools, [("f", &f), ("g", &json!({"type": "object"})), ("h", &empty)]);
    assert_eq!(request.choice, ToolChoice::Tool("g".to_owned()));
    let sampling = request.sampling;
    assert_eq!((sampling.max_tokens, sampling.temperature, sampling.top_p), (Some(9), Some(1.0), Some(0.5)));
    assert_eq!((sampling.seed, sampling.stop), (Some(3), vec!["x".to_owned()]));
    let expected = Reasoning {
        thinking: Some(ThinkingMode::Enabled(8192)),
        display: Some(ThinkingDisplay::Summarized),
        ..Reasoning::default()
    };
    assert_eq!(sampling.reasoning, expected);
    let Some(OutputFormat::Schema(schema)) = request.format else { panic!("no schema") };
    assert_eq!(*schema.schema, json!({"type": "object"}));
}

#[test]
fn requests_for_a_number_of_tokens() {
    let check = |body: Value, expected: Result<usize, &str>| {
        let read = decode_count_request(&Json::from(&body), &DecodeOptions::default());
        let read = read.map(|request| request.messages.len()).map_err(|error| error.to_string());
        assert_eq!(read, expected.map_err(str::to_owned), "{body}");
    };
    let contents = json!([{"role": "user", "parts": [{"text": "a"}]}]);
    check(json!({"contents": contents}), Ok(1));
    let whole =
        json!({"model": "models/m", "contents": contents, "systemInstruction": {"parts": [{"text": "s"}]}});
    check(json!({"generateContentRequest": whole}), Ok(2));
    check(
        json!({"generateContentRequest": whole, "contents": contents}),
        Err("`contents` is sent with `generateContentRequest`; send one of the two"),
    );
    check(json!({}), Err("`contents` is missing"));
    check(json!({"generateContentRequest": {}}), Err("`generateContentRequest.contents` is missing"));
    check(json!({"contents": contents, "tools": []}), Err("`tools` is not known"));
}

/// The operator of a gateway decides which unknown fields are dropped instead of refused.
#[test]
fn declared_parts_are_dropped() {
    let dropped = DecodeOptions {
        dropped_fields: vec!["newField".to_owned()],
        dropped_tools: vec!["googleSearch".to_owned()],
        ..DecodeOptions::default()
    };
    let check = |more: Value, expected: Result<usize, &str>| {
        let mut body = json!({"contents": []});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let read = decode(&body, &dropped).map(|read| read.request.tools.len());
        assert_eq!(read, expected.map_err(str::to_owned), "{more}");
    };
    check(json!({"newField": 1}), Ok(0));
    check(json!({"tools": [{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}]}]}), Ok(1));
    check(
        json!({"tools": [{"googleSearch": {}, "codeExecution": {}}]}),
        Err(
            "`tools[0].codeExecution` is a tool that the provider runs: the policy has to label its outputs, and the \
            upstream has to have it; leave it out",
        ),
    );
}

#[test]
fn unknown_fields_are_refused_by_name() {
    let check = |more: Value, expected: &str| {
        let mut body = json!({"contents": []});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let shown =
            decode(&body, &DecodeOptions::default()).map_or_else(|error| error, |_| "fine".to_owned());
        assert_eq!(shown, expected, "{more}");
    };
    for tool in ["googleSearchRetrieval", "fileSearch", "googleMaps"] {
        check(
            json!({"tools": [{tool: {}}]}),
            &format!(
                "`tools[0].{tool}` is a tool that the provider runs, and what it returns would reach the model without a \
                label; leave it out"
            ),
        );
    }
    for tool in ["googleSearch", "codeExecution", "urlContext"] {
        check(
            json!({"tools": [{tool: {}}]}),
            &format!(
                "`tools[0].{tool}` is a tool that the provider runs: the policy has to label its outputs, and the upstream \
                has to have it; leave it out"
            ),
        );
    }
    check(json!({"system_instruction": {"parts": []}}), "fine");
    check(
        json!({"system_instruction": {"parts": []}, "systemInstruction": {"parts": []}}),
        "`system_instruction` is sent in two spellings; send it once",
    );
    // Only one spelling with underscores belongs to a field.
    for field in ["system__instruction", "system_instruction_", "_system_instruction"] {
        check(json!({field: {"parts": []}}), &format!("`{field}` is not known"));
    }
    check(
        json!({"cachedContent": "cachedContents/1"}),
        "`cachedContent` refers to state at the provider, which has no label; send the content itself",
    );
    let config = |config: Value, expected: &str| check(json!({"generationConfig": config}), expected);
    config(
        json!({"candidateCount": 2}),
        "`generationConfig.candidateCount` is supported only as 1: a conversation continues with one message of the model",
    );
    config(
        json!({"responseLogprobs": true}),
        "`generationConfig.responseLogprobs` asks for words that the model did not write, which no rule has judged; leave \
        it out",
    );
    config(
        json!({"responseLogprobs": false, "presencePenalty": 0.0, "responseModalities": ["TEXT"]}),
        "fine",
    );
    config(
        json!({"responseModalities": ["AUDIO"]}),
        "`generationConfig.responseModalities` concerns speech, images or video, which no rule can judge; leave it out",
    );
    config(json!({"newSetting": 1}), "`generationConfig.newSetting` is not known");
    config(
        json!({"responseMimeType": "text/x.enum"}),
        "`generationConfig.responseMimeType` is not `text/plain` or `application/json`",
    );
    config(
        json!({"responseJsonSchema": {}}),
        "`generationConfig.responseMimeType` must be `application/json` if there is a schema",
    );
    config(
        json!({"responseMimeType": "application/json", "responseJsonSchema": {"$ref": "https://example.org"}}),
        "`generationConfig.responseJsonSchema` has a `$ref` or `$dynamicRef` that does not begin with `#`: nothing is fetched, so put the schema itself there",
    );
    config(
        json!({"responseMimeType": "application/json", "responseSchema": {"ref": "https://example.org"}}),
        "`generationConfig.responseSchema` has a `$ref` or `$dynamicRef` that does not begin with `#`: nothing is fetched, so put the schema itself there",
    );
    config(
        json!({"thinkingConfig": {"thinkingLevel": "EXTREME"}}),
        "`generationConfig.thinkingConfig.thinkingLevel` is not `MINIMAL`, `LOW`, `MEDIUM` or `HIGH`",
    );
    config(json!({"thinkingConfig": {"thinkingBudget": -1, "includeThoughts": false}}), "fine");
    config(
        json!({"thinkingConfig": {"thinkingBudget": -2}}),
        "`generationConfig.thinkingConfig.thinkingBudget` is not a non-negative integer",
    );
    let choice = |choice: Value, expected: &str| {
        let tools = json!([{"functionDeclarations": [{"name": "f"}, {"name": "g"}, {"name": "h"}]}]);
        check(json!({"tools": tools, "toolConfig": {"functionCallingConfig": choice}}), expected);
    };
    for fine in [
        json!({"mode": "AUTO"}),
        json!({"mode": "VALIDATED", "allowedFunctionNames": ["h", "g", "f"]}),
        json!({"mode": "ANY", "allowedFunctionNames": ["f"]}),
        json!({"mode": "NONE"}),
        json!({}),
    ] {
        choice(fine, "fine");
    }
    choice(
        json!({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}),
        "`toolConfig.functionCallingConfig.allowedFunctionNames` is supported only with all tools, or with one tool and the \
        mode `ANY`; declare in `tools` only those that the model may call",
    );
    choice(
        json!({"mode": "SOME"}),
        "`toolConfig.functionCallingConfig.mode` is not `AUTO`, `ANY`, `NONE` or `VALIDATED`",
    );
    let function = |function: Value, expected: &str| {
        check(json!({"tools": [{"functionDeclarations": [function]}]}), expected);
    };
    function(
        json!({"name": "f", "parameters": {}, "parametersJsonSchema": {}}),
        "`tools[0].functionDeclarations[0].parameters` is sent with `parametersJsonSchema`; send one of the two",
    );
    function(
        json!({"name": "f", "parameters": 1}),
        "`tools[0].functionDeclarations[0].parameters` is not an object",
    );
    function(
        json!({"name": "f", "behavior": "NON_BLOCKING"}),
        "`tools[0].functionDeclarations[0].behavior` is for live sessions with the provider, which the gateway does not have; \
        leave it out",
    );
    let part = |role: &str, part: Value, expected: &str| {
        check(json!({"contents": [{"role": role, "parts": [part]}]}), expected);
    };
    part(
        "system",
        json!({"text": "a"}),
        "`contents[0].role` is not `user`, `model` or `function`; send a system message in `systemInstruction`",
    );
    part("user", json!({}), "`contents[0].parts[0].text` is missing");
    part("user", json!({"text": "a", "newField": 1}), "`contents[0].parts[0].newField` is not known");
    part(
        "user",
        json!({"fileData": {"fileUri": "https://example.org/a.png"}}),
        "`contents[0].parts[0].fileData` would be fetched by the provider, and what it returns has no label; send the content \
        in base64",
    );
    part(
        "user",
        json!({"inlineData": {"mimeType": "audio/wav", "data": ""}}),
        "`contents[0].parts[0].inlineData.mimeType` is that of neither an image nor a PDF; send other documents as text",
    );
    part(
        "user",
        json!({"text": "a", "inlineData": {"mimeType": "image/png", "data": ""}}),
        "`contents[0].parts[0].inlineData` is in a part that also has other content; send each content in a part of its own",
    );
    part(
        "user",
        call(None, "f"),
        "`contents[0].parts[0].functionCall` is a call; send it in a content of the model",
    );
    part(
        "function",
        json!({"text": "a"}),
        "`contents[0].parts[0].text` is in a content of the role `function`, which has only outputs of tools; use the role \
        `user`",
    );
    part(
        "model",
        json!({"executableCode": {"code": "1"}}),
        "`contents[0].parts[0].executableCode` is the record of a tool that the provider has run, whose output has no \
         label; leave it out",
    );
    part(
        "model",
        json!({"text": "a", "flowgate": {"source": "typed"}}),
        "`contents[0].parts[0].flowgate` is not known",
    );
    part(
        "model",
        json!({"functionCall": {"name": "f", "args": "x"}}),
        "`contents[0].parts[0].functionCall.args` is not an object",
    );
    part(
        "user",
        json!({"functionResponse": {"name": "f", "response": {}, "scheduling": "SILENT"}}),
        "`contents[0].parts[0].functionResponse.scheduling` is for live sessions with the provider, which the gateway does not \
        have; leave it out",
    );
}
