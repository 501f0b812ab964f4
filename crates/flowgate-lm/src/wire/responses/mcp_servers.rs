//! Decodes and encodes the MCP servers that OpenAI's servers call for a client of the Responses API: tools of the type
//! `mcp`. [`read_mcp_server`] decodes such a tool from a client's request, for [`super::tools`]. [`declare_mcp_server`]
//! encodes the tool for the request in which a permitted call runs; the descriptor of the format (`FORM`) refers to it.

use serde_json::{Map, Value, json};

use super::super::fields::ObjectFields;
use super::super::mcp_servers::{accepted_label, checked_names, is_secret, read_address, read_token};
use super::super::{WireError, put};
use super::{MCP_FILTER, MCP_SERVER};
use crate::chat::{McpCredentials, McpLabel, ProviderMcpServer, ProviderToolUse};
use crate::json::Json;

/// The most headers of a server.
const MAX_HEADERS: usize = 32;

/// Decodes a tool of the type `mcp`: the server, its credentials, and the tools that may be called. Fails if the client
/// wants to approve calls itself, since the policy judges them.
pub(super) fn read_mcp_server(tool: &ObjectFields<'_>) -> Result<ProviderToolUse, WireError> {
    let label = accepted_label(tool, "server_label", "type")?;
    tool.reject_unsupported(&MCP_SERVER)?;
    // Without the field, OpenAI's servers ask for an approval of each call.
    if tool.get("require_approval").is_none() {
        return tool.field_error(
            "require_approval",
            "is missing, so that the provider would ask for approvals; send `never`: the policy judges each call, and can ask a person",
        );
    }
    let description = tool.optional_text("server_description")?.unwrap_or_default();
    if !ProviderMcpServer::is_description(description) {
        return tool.field_error("server_description", "has `<` or `>`; leave these characters out");
    }
    let credentials =
        McpCredentials { token: read_token(tool, "authorization")?, headers: read_headers(tool)? };
    let server = ProviderMcpServer {
        credentials,
        allowed_tools: read_allowed_tools(tool)?,
        description: description.to_owned(),
        ..ProviderMcpServer::at(read_address(tool, "server_url")?)
    };
    Ok(ProviderToolUse::from((label, server)))
}

/// Decodes the field `allowed_tools`, a list or an object with a list: the names of the only tools that may be called.
/// Returns no names, which permits all tools, if the field is absent.
fn read_allowed_tools(tool: &ObjectFields<'_>) -> Result<Vec<String>, WireError> {
    let key = "allowed_tools";
    let names = match tool.get(key) {
        None => return Ok(Vec::new()),
        Some(Json::Object(_)) => {
            let filter = tool.object(key)?;
            filter.reject_unsupported(&MCP_FILTER)?;
            filter.texts("tool_names")?
        }
        Some(_) => tool.texts(key)?,
    };
    // An empty list of the client permits no tool, but an empty list in `ProviderMcpServer` permits all.
    if names.is_empty() {
        return tool.field_error(key, "names no tool; name one, or leave the server out");
    }
    checked_names(tool, key, names)
}

/// Decodes the field `headers`: the names and values of the HTTP headers that the provider sends to the server. Fails
/// if there are too many, or if one has an invalid name or value.
fn read_headers(tool: &ObjectFields<'_>) -> Result<Vec<(String, String)>, WireError> {
    let entries = tool.entries("headers")?;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_name = |name: &str| (1..=128).contains(&name.len()) && name.chars().all(is_of_name);
    // Returns a header; `None` if its name or its value is invalid.
    let header = |(name, value): &(_, Json<'_>)| {
        let name: &str = AsRef::<str>::as_ref(name);
        let value = value.as_str().filter(|value| is_secret(value))?;
        is_name(name).then(|| (name.to_owned(), value.to_owned()))
    };
    let headers = entries.iter().map(header).collect::<Option<Vec<_>>>();
    match headers.filter(|headers| headers.len() <= MAX_HEADERS) {
        Some(headers) => Ok(headers),
        None => tool.field_error(
            "headers",
            "has more than 32 headers, or an invalid one; write names of 1 to 128 letters, digits, `-` and `_`, and values \
            of 1 to 16384 printable ASCII characters",
        ),
    }
}

/// Declares the server in `body`, the body of a request, in place of all tools, and returns true. Returns false, and
/// leaves `body` unchanged, if the client forbids tools of the server by name, which the format cannot express.
pub(super) fn declare_mcp_server(label: &McpLabel, server: &ProviderMcpServer, body: &mut Value) -> bool {
    let ProviderMcpServer { address, credentials, allowed_tools, blocked_tools, .. } = server;
    let mut tool = json!({
        "type": "mcp",
        "server_label": label.as_str(),
        "server_url": address.as_str(),
        "require_approval": "never",
    });
    if !allowed_tools.is_empty() {
        put(&mut tool, "allowed_tools", json!(allowed_tools));
    }
    if let Some(token) = &credentials.token {
        put(&mut tool, "authorization", token.as_str());
    }
    if !credentials.headers.is_empty() {
        let headers = credentials.headers.iter();
        let headers: Map<String, Value> =
            headers.map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        put(&mut tool, "headers", headers);
    }
    if blocked_tools.is_empty() {
        put(body, "tools", json!([tool]));
    }
    blocked_tools.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::super::{Api, DecodeOptions, ReceivedRequest};
    use super::*;
    use crate::chat::ProviderTool;

    fn decode(tools: &str) -> Result<ReceivedRequest, String> {
        let text = format!(r#"{{"model":"m","input":"u","tools":[{tools}]}}"#);
        let weather = ProviderTool::McpServer(McpLabel::parse("weather").unwrap());
        let options = DecodeOptions { provider_tools: vec![weather], ..DecodeOptions::default() };
        let body = Json::parse(&text).unwrap();
        Api::Responses.decode_request_dropping(&body, &options).map_err(|error| error.to_string())
    }

    fn server(more: &str) -> String {
        format!(
            r#"{{"type":"mcp","server_label":"weather","server_url":"https://a.example/mcp","require_approval":"never"{more}}}"#
        )
    }

    /// What a client declares is offered as one function, and declared again for a call.
    #[test]
    fn a_server_is_declared_as_the_client_declares_it() {
        let check = |more: &str, expected: &str| {
            let received = decode(&server(more)).unwrap();
            let [wanted] = &received.provider_tools[..] else { panic!("{received:?}") };
            assert_eq!(received.request.tools, [wanted.spec()]);
            let mut body = json!({"tools": []});
            assert!(Api::Responses.declare_provider_tool(wanted, &mut body));
            let plain = r#"{"type":"mcp","server_label":"weather","server_url":"https://a.example/mcp","require_approval":"never""#;
            assert_eq!(body["tools"].to_string(), format!("[{plain}{expected}}}]"), "{more}");
            assert_eq!(body.get("tool_choice"), None);
        };
        check("", "");
        check(r#","allowed_tools":["now"]"#, r#","allowed_tools":["now"]"#);
        check(r#","allowed_tools":{"tool_names":["now","then"]}"#, r#","allowed_tools":["now","then"]"#);
        check(
            r#","authorization":"t","headers":{"x-key":"k"}"#,
            r#","authorization":"t","headers":{"x-key":"k"}"#,
        );
        // What the client says is for the model that may call the server.
        check(r#","server_description":"Knows the weather.","defer_loading":true"#, "");
        let said = decode(&server(r#","server_description":"Knows the weather.""#)).unwrap();
        assert!(said.request.tools[0].description.ends_with("about the server: Knows the weather."));
    }

    #[test]
    fn other_servers_are_refused_with_advice() {
        let check = |tools: &str, expected: &str| assert_eq!(decode(tools).unwrap_err(), expected, "{tools}");
        let never = "the policy judges each call, and can ask a person";
        check(
            r#"{"type":"mcp","server_label":"weather","server_url":"https://a.example/"}"#,
            &format!(
                "`tools[0].require_approval` is missing, so that the provider would ask for approvals; send `never`: {never}"
            ),
        );
        check(
            &server("").replace("never", "always"),
            &format!("`tools[0].require_approval` is supported only as `never`: {never}"),
        );
        check(
            &server("").replace(r#""never""#, r#"{"never":{"tool_names":["now"]}}"#),
            &format!("`tools[0].require_approval` is supported only as `never`: {never}"),
        );
        check(
            &server(r#","connector_id":"connector_gmail""#),
            "`tools[0].connector_id` is a server of the provider, which has no address; put an MCP server with the same \
            tools behind the gateway",
        );
        check(
            &server(r#","tunnel_id":"t""#),
            "`tools[0].tunnel_id` is a server without an address; put it behind the gateway",
        );
        check(
            &server("").replace("https:", "http:"),
            "`tools[0].server_url` is not an address `https://HOST/PATH` of at most 2048 bytes, without a user name and \
            without a fragment",
        );
        check(&server("").replace("server_url", "x"), "`tools[0].x` is not known");
        check(
            &server(r#","server_description":"At <https://b.example>.""#),
            "`tools[0].server_description` has `<` or `>`; leave these characters out",
        );
        check(
            &server(r#","allowed_tools":[]"#),
            "`tools[0].allowed_tools` names no tool; name one, or leave the server out",
        );
        check(
            &server(r#","allowed_tools":["<https://b.example>"]"#),
            "`tools[0].allowed_tools` has a name that cannot be that of a tool; write names of 1 to 128 printable ASCII \
            characters without spaces, `<` and `>`",
        );
        check(
            &server(r#","allowed_tools":{"read_only":true}"#),
            "`tools[0].allowed_tools.read_only` trusts what the server says about its tools; name the tools in \
            `tool_names`",
        );
        let token = "is not a token of 1 to 16384 printable ASCII characters; write the token alone";
        check(&server(r#","authorization":"a\nb""#), &format!("`tools[0].authorization` {token}"));
        let many: Vec<String> = (0..=MAX_HEADERS).map(|number| format!(r#""x-{number}":"v""#)).collect();
        for headers in [r#""a b":"v""#, r#""a":"v\n""#, r#""a":1"#, &many.join(",")] {
            check(
                &server(&format!(r#","headers":{{{headers}}}"#)),
                "`tools[0].headers` has more than 32 headers, or an invalid one; write names of 1 to 128 letters, digits, \
                `-` and `_`, and values of 1 to 16384 printable ASCII characters",
            );
        }
        let twice =
            "`tools` has a tool of the provider and another tool of the same name; leave one of them out";
        let declared_twice = "`tools[1].type` is a tool of the provider, and another tool of the request has the same name; leave one \
            of them out";
        check(&format!("{},{}", server(""), server("")), declared_twice);
        check(&format!(r#"{},{{"type":"function","name":"mcp__weather"}}"#, server("")), twice);
    }

    /// An item may declare a server again, but not another one with its label.
    #[test]
    fn a_later_list_declares_the_same_server() {
        let check = |later: &str, expected: Result<usize, &str>| {
            let item = format!(r#"{{"type":"additional_tools","role":"developer","tools":[{later}]}}"#);
            let text = format!(r#"{{"model":"m","input":[{item}],"tools":[{}]}}"#, server(""));
            let weather = ProviderTool::McpServer(McpLabel::parse("weather").unwrap());
            let options = DecodeOptions { provider_tools: vec![weather], ..DecodeOptions::default() };
            let read = Api::Responses.decode_request_dropping(&Json::parse(&text).unwrap(), &options);
            let count = read.map(|read| read.provider_tools.len()).map_err(|error| error.to_string());
            assert_eq!(count, expected.map_err(str::to_owned), "{later}");
        };
        check(&server(r#","authorization":"t""#), Ok(1));
        let twice = "`input[0].tools[0].type` is a tool of the provider, and another tool of the request has the same \
            name; leave one of them out";
        check(&server("").replace("a.example", "b.example"), Err(twice));
    }
}
