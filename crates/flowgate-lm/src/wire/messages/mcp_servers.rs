//! Decodes and encodes the MCP servers that Anthropic's servers call for a client of the Messages API. The field
//! `mcp_servers` of a request declares the servers, and each tool of the type `mcp_toolset` says which tools of one
//! server may be called. A server and its toolset together are one tool of the provider.
//!
//! [`DeclaredServers`] decodes both from a client's request, for [`super::request_decoder`] and [`super::tools`].
//! [`declare_mcp_server`] encodes both for the request in which a permitted call runs; the descriptor of the format
//! (`FORM`) refers to it.

use serde_json::{Map, Value, json};

use super::super::fields::ObjectFields;
use super::super::mcp_servers::{accepted_label, checked_names, read_address, read_token};
use super::super::{WireError, put};
use super::{MCP_SERVER, MCP_TOOL_CONFIG, MCP_TOOLSET};
use crate::chat::{McpCredentials, McpLabel, ProviderMcpServer, ProviderToolUse};

/// The name of the beta feature of the API that calls MCP servers.
pub(crate) const MCP_BETA: &str = "mcp-client-2025-11-20";

/// The servers that a request declares. The last item is whether a toolset names the server.
#[derive(Default)]
pub(super) struct DeclaredServers(Vec<(McpLabel, ProviderMcpServer, bool)>);

impl DeclaredServers {
    /// Decodes the field `mcp_servers` of a request. Returns no servers if the field is absent, or if the operator's
    /// configuration drops it. Fails if a server is malformed or is not accepted, or if two servers have the same name.
    pub(super) fn read(body: &ObjectFields<'_>) -> Result<Self, WireError> {
        let mut servers = Self::default();
        if body.is_dropped_by_operator("mcp_servers") {
            return Ok(servers);
        }
        for server in body.objects("mcp_servers")? {
            let server = server?;
            let label = accepted_label(&server, "name", "name")?;
            server.reject_unsupported(&MCP_SERVER)?;
            if servers.0.iter().any(|(known, ..)| *known == label) {
                return server.field_error("name", "is also the name of another server; rename one of them");
            }
            let token = read_token(&server, "authorization_token")?;
            let credentials = McpCredentials { token, ..McpCredentials::default() };
            let address = read_address(&server, "url")?;
            // `false`: no toolset has named the server yet.
            servers.0.push((
                label,
                ProviderMcpServer { credentials, ..ProviderMcpServer::at(address) },
                false,
            ));
        }
        Ok(servers)
    }

    /// Decodes a toolset, and returns its server as a tool of the provider, with the names of the tools that may be
    /// called. Records that a toolset names the server, for [`check_used`](Self::check_used). Fails if the request
    /// declares no such server, or if an earlier toolset has named it.
    pub(super) fn read_toolset(&mut self, toolset: &ObjectFields<'_>) -> Result<ProviderToolUse, WireError> {
        let label = accepted_label(toolset, "mcp_server_name", "type")?;
        toolset.reject_unsupported(&MCP_TOOLSET)?;
        let Some((_, server, is_used)) = self.0.iter_mut().find(|(known, ..)| *known == label) else {
            return toolset.field_error(
                "mcp_server_name",
                "names no server of `mcp_servers`; declare the server there",
            );
        };
        if *is_used {
            return toolset.field_error(
                "mcp_server_name",
                "names the server of an earlier toolset; write one toolset for each server",
            );
        }
        *is_used = true;
        let mut server = server.clone();
        (server.allowed_tools, server.blocked_tools) = read_tool_names(toolset)?;
        Ok(ProviderToolUse::from((label, server)))
    }

    /// Fails if there is a server that no toolset names: a client that declares a server expects that the model can
    /// call it.
    pub(super) fn check_used(&self, body: &ObjectFields<'_>) -> Result<(), WireError> {
        match self.0.iter().all(|(.., is_used)| *is_used) {
            true => Ok(()),
            false => body.field_error(
                "mcp_servers",
                "has a server that no `mcp_toolset` of `tools` names; declare one for each server",
            ),
        }
    }
}

/// Decodes which tools of its server a toolset enables. Returns two lists, at most one of which has names: the only
/// tools that may be called, and the tools that may not be called. If both lists are empty, all tools may be called.
/// Fails if no tool is enabled.
fn read_tool_names(toolset: &ObjectFields<'_>) -> Result<(Vec<String>, Vec<String>), WireError> {
    // Returns whether `config` enables a tool; `default` if it does not say.
    let enabled = |config: &ObjectFields<'_>, default: bool| {
        config.reject_unsupported(&MCP_TOOL_CONFIG)?;
        if config.get("enabled").is_none() { Ok(default) } else { config.flag("enabled") }
    };
    // Whether tools may be called that `configs` does not name.
    let is_default = match toolset.get("default_config") {
        Some(_) => enabled(&toolset.object("default_config")?, true)?,
        None => true,
    };
    // The names of the tools whose setting in `configs` differs from the default.
    let mut names = Vec::new();
    for config in toolset.named_objects("configs")? {
        let (name, config) = config?;
        if enabled(&config, is_default)? != is_default {
            names.push(name.to_owned());
        }
    }
    let names = checked_names(toolset, "configs", names)?;
    match is_default {
        true => Ok((Vec::new(), names)),
        false if names.is_empty() => toolset.field_error(
            "default_config",
            "enables no tool; enable one in `configs`, or leave the server out",
        ),
        false => Ok((names, Vec::new())),
    }
}

/// Declares the server and its toolset in `body`, the body of a request, in place of all tools, and returns true.
/// Returns false, and leaves `body` unchanged, if the client gives headers, which the format cannot express.
pub(super) fn declare_mcp_server(label: &McpLabel, server: &ProviderMcpServer, body: &mut Value) -> bool {
    let ProviderMcpServer { address, credentials, allowed_tools, blocked_tools, .. } = server;
    if !credentials.headers.is_empty() {
        return false;
    }
    let mut declared = json!({"type": "url", "url": address.as_str(), "name": label.as_str()});
    if let Some(token) = &credentials.token {
        put(&mut declared, "authorization_token", token.as_str());
    }
    let mut toolset = json!({"type": "mcp_toolset", "mcp_server_name": label.as_str()});
    // The tools in `names` differ from all others, which are enabled if `is_default` is true.
    let (names, is_default) =
        if allowed_tools.is_empty() { (blocked_tools, true) } else { (allowed_tools, false) };
    if !names.is_empty() {
        let config = |name: &String| (name.clone(), json!({"enabled": !is_default}));
        put(&mut toolset, "default_config", json!({"enabled": is_default}));
        put(&mut toolset, "configs", names.iter().map(config).collect::<Map<String, Value>>());
    }
    put(body, "mcp_servers", json!([declared]));
    put(body, "tools", json!([toolset]));
    true
}

#[cfg(test)]
mod tests {
    use super::super::super::{Api, DecodeOptions, ReceivedRequest};
    use super::*;
    use crate::chat::ProviderTool;
    use crate::json::Json;

    fn decode(servers: &str, tools: &str) -> Result<ReceivedRequest, String> {
        let text = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[],"mcp_servers":[{servers}],"tools":[{tools}]}}"#
        );
        let weather = ProviderTool::McpServer(McpLabel::parse("weather").unwrap());
        let options = DecodeOptions { provider_tools: vec![weather], ..DecodeOptions::default() };
        let body = Json::parse(&text).unwrap();
        Api::Messages.decode_request_dropping(&body, &options).map_err(|error| error.to_string())
    }

    const SERVER: &str =
        r#"{"type":"url","name":"weather","url":"https://a.example/mcp","authorization_token":"t"}"#;

    fn toolset(more: &str) -> String {
        format!(r#"{{"type":"mcp_toolset","mcp_server_name":"weather"{more}}}"#)
    }

    /// What a client declares is offered as one function, and declared again for a call.
    #[test]
    fn a_server_is_declared_as_the_client_declares_it() {
        let check = |more: &str, expected: &str, in_responses: Option<&str>| {
            let received = decode(SERVER, &toolset(more)).unwrap();
            let [wanted] = &received.provider_tools[..] else { panic!("{received:?}") };
            assert_eq!(received.request.tools, [wanted.spec()]);
            let mut body = json!({"tools": []});
            assert!(Api::Messages.declare_provider_tool(wanted, &mut body));
            let server = r#"[{"type":"url","url":"https://a.example/mcp","name":"weather","authorization_token":"t"}]"#;
            assert_eq!(body["mcp_servers"].to_string(), server);
            assert_eq!(body["tools"].to_string(), format!("[{}]", toolset(expected)), "{more}");
            // The other form has no list of tools that may not be called.
            let mut body = json!({"tools": []});
            let is_declared = Api::Responses.declare_provider_tool(wanted, &mut body);
            let allowed = is_declared.then(|| body["tools"][0]["allowed_tools"].to_string());
            assert_eq!(allowed.as_deref(), in_responses, "{more}");
        };
        check("", "", Some("null"));
        check(
            r#","default_config":{"enabled":true,"defer_loading":true},"configs":{"now":{}}"#,
            "",
            Some("null"),
        );
        check(
            r#","configs":{"now":{"enabled":false},"then":{"enabled":true}}"#,
            r#","default_config":{"enabled":true},"configs":{"now":{"enabled":false}}"#,
            None,
        );
        check(
            r#","default_config":{"enabled":false},"configs":{"now":{"enabled":true},"then":{}}"#,
            r#","default_config":{"enabled":false},"configs":{"now":{"enabled":true}}"#,
            Some(r#"["now"]"#),
        );
    }

    #[test]
    fn other_servers_are_refused_with_advice() {
        let check = |servers: &str, tools: &str, expected: &str| {
            assert_eq!(decode(servers, tools).unwrap_err(), expected, "{servers} {tools}");
        };
        let plain = toolset("");
        check(
            SERVER,
            "",
            "`mcp_servers` has a server that no `mcp_toolset` of `tools` names; declare one for each server",
        );
        check(
            "",
            &plain,
            "`tools[0].mcp_server_name` names no server of `mcp_servers`; declare the server there",
        );
        check(
            &format!("{SERVER},{SERVER}"),
            &plain,
            "`mcp_servers[1].name` is also the name of another server; rename one of them",
        );
        let twice =
            "`tools` has a tool of the provider and another tool of the same name; leave one of them out";
        check(
            SERVER,
            &format!("{plain},{plain}"),
            "`tools[1].mcp_server_name` names the server of an earlier toolset; write one toolset for each server",
        );
        check(SERVER, &format!(r#"{plain},{{"name":"mcp__weather","input_schema":{{}}}}"#), twice);
        check(
            &SERVER.replace("https", "ftp"),
            &plain,
            "`mcp_servers[0].url` is not an address `https://HOST/PATH` of at most 2048 bytes, without a user name and \
            without a fragment",
        );
        check(
            &SERVER.replace(r#""authorization_token":"t""#, r#""tool_configuration":{"enabled":true}"#),
            &plain,
            "`mcp_servers[0].tool_configuration` is of an older version of the API; declare an `mcp_toolset` in `tools`",
        );
        check(
            SERVER,
            &toolset(r#","tools":[]"#),
            "`tools[0].tools` is a list of tools from an earlier answer, which the gateway does not pass on; leave it \
            out",
        );
        check(
            SERVER,
            &toolset(r#","default_config":{"enabled":false}"#),
            "`tools[0].default_config` enables no tool; enable one in `configs`, or leave the server out",
        );
        check(
            SERVER,
            &toolset(r#","configs":{"<https://b.example>":{"enabled":false}}"#),
            "`tools[0].configs` has a name that cannot be that of a tool; write names of 1 to 128 printable ASCII \
            characters without spaces, `<` and `>`",
        );
        check(SERVER, &toolset(r#","configs":{"now":{"new":1}}"#), "`tools[0].configs.*.new` is not known");
        check(SERVER, &toolset(r#","configs":{"now":1}"#), "`tools[0].configs.*` is not an object");
        let unlabelled = decode(&SERVER.replace("weather", "mail"), &plain).unwrap_err();
        assert!(unlabelled.starts_with("`mcp_servers[0].name` is an MCP server that"), "{unlabelled}");
    }

    /// An operator may have the field and the toolsets dropped.
    #[test]
    fn servers_are_dropped_if_the_operator_says_so() {
        let text = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[],"mcp_servers":[{SERVER}],"tools":[{}]}}"#,
            toolset("")
        );
        let options = DecodeOptions {
            dropped_fields: vec!["mcp_servers".to_owned()],
            dropped_tools: vec!["mcp_toolset".to_owned()],
            ..DecodeOptions::default()
        };
        let received = Api::Messages.decode_request_dropping(&Json::parse(&text).unwrap(), &options).unwrap();
        assert!(received.request.tools.is_empty() && received.provider_tools.is_empty());
    }

    #[test]
    fn the_format_has_no_headers() {
        let server = ProviderMcpServer::at(crate::chat::McpAddress::parse("https://a.example/").unwrap());
        let headers = vec![("x-key".to_owned(), "k".to_owned())];
        let credentials = McpCredentials { headers, ..McpCredentials::default() };
        let mut body = json!({"tools": []});
        let label = McpLabel::parse("weather").unwrap();
        assert!(!declare_mcp_server(&label, &ProviderMcpServer { credentials, ..server }, &mut body));
        assert_eq!(body, json!({"tools": []}));
    }
}
