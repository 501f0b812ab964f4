//! Decides which names of tools and models may appear in the spans of the telemetry: those that the operator has
//! written in the policy or the configuration. An agent, a model or a server has chosen all other names, perhaps because
//! untrusted text said so; the constant [`OTHER`] replaces them. The number of names is therefore bounded by the size of
//! the policy and the configuration.
//! `chat::turn_trace` and `mcp_proxy::exchange_trace` call this module for each name that they record.

use std::collections::BTreeSet;

use flowgate::trace::Tool;

use super::names::OTHER;
use crate::config::ClientSettings;

/// The names that the spans of one client may have.
#[derive(Debug, Default)]
pub(crate) struct ShownNames {
    /// The server and the name of each tool that the policy names. A name without a server is that of a tool of any
    /// server.
    tools: BTreeSet<(Option<String>, String)>,
    /// The servers that the client may use.
    servers: BTreeSet<String>,
    models: BTreeSet<String>,
}

impl ShownNames {
    /// Collects the names in the policy and the section of a client.
    pub(crate) fn of(client: &ClientSettings) -> Self {
        let tools = client.own_policy().named_tools().into_iter();
        let tools = tools.map(|tool| (tool.server.as_deref().map(str::to_owned), tool.name.to_string()));
        // The models of the upstream and of the fallbacks, and the models that the section of the client names itself.
        let fallbacks = client.fallback.iter();
        let fallback_models = fallbacks
            .clone()
            .filter_map(|further| further.model.clone())
            .chain(fallbacks.flat_map(|further| further.upstream.models.iter().cloned()));
        let models = client.upstream.iter().flat_map(|upstream| upstream.models.iter().cloned());
        Self {
            tools: tools.collect(),
            servers: client.servers.iter().map(|server| server.name.clone()).collect(),
            models: models.chain(client.small_model.clone()).chain(fallback_models).collect(),
        }
    }

    /// Returns the name that a span may have for a tool: its own, with its server if it has one, if the policy names
    /// the tool and the client may use the server; otherwise [`OTHER`].
    pub(crate) fn tool(&self, tool: &Tool) -> String {
        let name = tool.name.to_string();
        let server = tool.server.as_deref();
        let is_named = |server: Option<&str>| self.tools.contains(&(server.map(str::to_owned), name.clone()));
        // An agent can name a server that does not exist.
        let has_known_server = server.is_none_or(|server| self.servers.contains(server));
        // A policy can name a tool without its server; it then means the tool of any server.
        if has_known_server && (is_named(server) || is_named(None)) {
            tool.to_string()
        } else {
            OTHER.to_owned()
        }
    }

    /// Returns the name that a span may have for a tool that is given as `SERVER/TOOL` or `TOOL`, as verdicts of watch
    /// mode name it.
    pub(crate) fn written_tool(&self, tool: &str) -> String {
        let tool = match tool.split_once('/') {
            Some((server, name)) => Tool::of(server, name),
            None => Tool::local(tool),
        };
        self.tool(&tool)
    }

    /// Returns the name that a span may have for a model: its own if the configuration names it, otherwise [`OTHER`].
    pub(crate) fn model(&self, model: &str) -> String {
        if self.models.contains(model) { model.to_owned() } else { OTHER.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_names_are_shown() {
        let tools = [(None, "read"), (Some("files"), "write")];
        let names = ShownNames {
            tools: tools.map(|(server, name)| (server.map(str::to_owned), name.to_owned())).into(),
            servers: ["files".to_owned()].into(),
            models: ["small".to_owned()].into(),
        };
        let check = |tool: &str, expected: &str| assert_eq!(names.written_tool(tool), expected, "{tool}");
        check("read", "read");
        check("files/read", "files/read");
        check("files/write", "files/write");
        check("write", "other");
        check("unknown/read", "other");
        check("mail/write", "other");
        check("read/", "other");
        check("Read", "other");
        check("the text of a page", "other");
        assert_eq!([names.model("small"), names.model("large")], ["small", "other"]);
    }
}
