//! Tools of the provider in arbitrary requests are decoded or rejected: a request that declares one is rejected unless the
//! caller accepts it, and offers it exactly once. Arbitrary arguments become a request with this argument alone, or an
//! error of one line.

#![no_main]

mod bytes;
mod fixed;
mod json;

use std::fmt::Display;

use bytes::Choices;
use flowgate_lm::chat::{McpLabel, Message, Part, ProviderTool, ProviderToolUse};
use flowgate_lm::json::Json;
use flowgate_lm::wire::{Api, DecodeOptions};
use json::edit;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let (api, body) = choices.of(&GOOD);
    let mut body: Value = serde_json::from_str(body).expect("good");
    body["tools"] = json!([declaration(api, &mut choices)]);
    if body["tools"][0]["type"] == "mcp_toolset" {
        let url = choices.of(&URLS);
        body["mcp_servers"] = json!([{"type": "url", "name": "weather", "url": url, "authorization_token": TOKEN}]);
    }
    for tool in all_tools() {
        let text = choices.text(40);
        arguments(&tool, json!({tool.argument(): text, "other": "a secret"}));
    }
    while !choices.are_spent() {
        edit(&mut body, &mut choices);
    }
    request(api, &body);
});

/// The requests to mutate.
const GOOD: [(Api, &str); 4] = [
    (Api::ChatCompletions, include_str!("good/chat-request.json")),
    (Api::Responses, include_str!("good/responses-request.json")),
    (Api::Messages, include_str!("good/messages-request.json")),
    (Api::GenerateContent, include_str!("good/generate-content-request.json")),
];

const URLS: [&str; 4] =
    ["https://a.example/hunter2", "https://user@a.example/", "http://a.example/", "https://a.example:1/<b>"];

/// The token of a server, which no offer contains.
const TOKEN: &str = "hunter3";

/// The tools that requests may declare.
fn all_tools() -> Vec<ProviderTool> {
    let server = McpLabel::parse("weather").map(ProviderTool::McpServer);
    ProviderTool::BUILT_IN.into_iter().chain(server).collect()
}

/// The declaration of an MCP server that the provider calls.
fn server(api: Api, choices: &mut Choices<'_>) -> Value {
    let label = choices.of(&["weather", "mail", "weather__now"]);
    match api {
        Api::Messages => json!({"type": "mcp_toolset", "mcp_server_name": label,
            "default_config": {"enabled": choices.below(2) == 1}, "configs": {"now": {"enabled": true}}}),
        _ => json!({"type": "mcp", "server_label": label, "server_url": choices.of(&URLS), "authorization": TOKEN,
            "require_approval": choices.of(&["never", "always"]), "allowed_tools": ["now"],
            "headers": {"x-key": TOKEN}}),
    }
}

/// The declaration of a tool of the provider, in a form of a client.
fn declaration(api: Api, choices: &mut Choices<'_>) -> Value {
    if api != Api::GenerateContent && choices.below(3) == 1 {
        return server(api, choices);
    }
    let names = match api {
        Api::GenerateContent => return json!({choices.of(&["googleSearch", "urlContext", "codeExecution"]): {}}),
        Api::Messages => ["web_search_20260318", "web_fetch_20260318", "code_execution_20260521"],
        _ => ["web_search", "code_interpreter", "web_search_preview"],
    };
    let kind = choices.of(&names);
    let mut tool = json!({"type": kind});
    if api == Api::Messages {
        tool["name"] = json!(choices.of(&["web_search", "web_fetch", "code_execution"]));
    }
    for (key, value) in [
        ("allowed_domains", json!(["a.example"])),
        ("filters", json!({"allowed_domains": ["a.example"]})),
        ("container", json!({"type": "auto"})),
    ] {
        if choices.below(4) == 1 {
            tool[key] = value;
        }
    }
    tool
}

fn request(api: Api, body: &Value) {
    let options = DecodeOptions { provider_tools: all_tools(), ..DecodeOptions::default() };
    let received = match api.decode_request_dropping(&Json::from(body), &options) {
        Ok(received) => received,
        Err(error) => return is_one_line(&error),
    };
    for wanted in &received.provider_tools {
        let offered = received.request.tools.iter().filter(|tool| tool.name == wanted.tool.name());
        let offered: Vec<_> = offered.collect();
        let [tool] = offered[..] else { panic!("{body}") };
        assert!(ProviderToolUse::is_offer_of(&wanted.tool, &tool.description, &tool.parameters), "{body}");
        if let Some(server) = &wanted.server {
            let shown = format!("{tool:?} {server:?}");
            assert!(!shown.contains(TOKEN), "{shown}");
            assert!(shown.contains(&format!("<{}>", server.address.origin())), "{shown}");
            assert_eq!(shown.matches(['<', '>']).count(), 2, "{shown}");
        }
    }
    let without = api.decode_request_dropping(&Json::from(body), &DecodeOptions::default());
    assert_eq!(without.is_err(), !received.provider_tools.is_empty(), "{body}");
}

fn arguments(tool: &ProviderTool, arguments: Value) {
    let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
    let request = match tool.request(&arguments) {
        Ok(request) => request,
        Err(error) => return is_one_line(&error),
    };
    let argument = arguments[tool.argument()].as_str().expect("a text");
    assert!(request.tools.is_empty() && request.messages.len() == 1);
    let Message::User(parts) = &request.messages[0] else { panic!("{request:?}") };
    let [Part::Text(text)] = &parts[..] else { panic!("{request:?}") };
    assert!(text.ends_with(argument) && !text.contains("a secret"), "{text:?}");
    if *tool == ProviderTool::WebFetch {
        assert!(!argument.contains(char::is_whitespace) && argument.starts_with("http"), "{argument:?}");
    }
}

fn is_one_line(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.contains(char::is_control) && text.len() < 500, "{text:?}");
}
