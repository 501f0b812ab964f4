//! Serves the coverage of the gateway to the page: which clients, servers and tools were seen since the start
//! (`coverage`), and what the configuration and the policies declare about them. `http::service` calls it.

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::Monitor;
use flowgate::trace::Tool;
use serde_json::{Value, json};

use super::coverage::SeenClient;
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::config::Role;
use crate::http::reply::HttpReply;
use crate::policy_review::reads_everything;

impl ModelRoutes {
    /// Returns the reply with the clients of the person's tenants. For each, it has the times of its requests, the
    /// servers that it may use and has used, and its tools with what its policy declares about them. The tools are left
    /// out for a person who may not read everything of the client, since models choose the names of the tools that
    /// they call. The number of requests of unknown clients (`strangers`) is only for people of all tenants.
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated.
    pub(crate) fn serve_coverage(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Viewer)?;
        let seen = self.coverage.seen();
        let shown = self.clients.all().filter(|client| person.sees_tenant(&client.spec.tenant));
        let clients: Vec<Value> = shown
            .map(|client| {
                let seen = seen.clients.get(&client.spec.name);
                client_json(client, seen, reads_everything(&person, client))
            })
            .collect();
        // An empty list means all tenants.
        let strangers = person.tenants.is_empty().then_some(seen.strangers);
        let answer = json!({"begun": self.coverage.begun, "strangers": strangers, "clients": clients});
        Ok(HttpReply::json(StatusCode::OK, &answer))
    }
}

/// Returns the coverage of a client as JSON; `seen` is what was seen of it, if it has sent a request. The tools are
/// null unless `shows_tools` is true.
fn client_json(client: &ClientState, seen: Option<&SeenClient>, shows_tools: bool) -> Value {
    let spec = &client.spec;
    // A server that the client has not used has null as the time of the last use.
    let servers = spec.servers.iter().map(|server| {
        let last = seen.and_then(|seen| seen.servers.get(&server.name));
        json!({"server": server.name, "last": last})
    });
    json!({
        "client": spec.name,
        "tenant": spec.tenant,
        "is_watching": spec.watch.is_some(),
        "is_rules_only": spec.own_policy().is_rules_only(),
        "first": seen.map(|seen| seen.first),
        "last": seen.map(|seen| seen.last),
        "servers": servers.collect::<Vec<_>>(),
        "unknown_servers": seen.map_or(0, |seen| seen.unknown_servers),
        "tools": shows_tools.then(|| tools_json(client, seen)),
        "tools_left_out": seen.map_or(0, |seen| seen.left_out),
    })
}

/// Returns, as JSON, the tools of a client that were seen. `is_bounded` is true if the policy has a requirement for
/// the calls of a tool, and `is_labelled` if the policy labels its answers. Both are null under a policy that has
/// only rules, which needs neither.
fn tools_json(client: &ClientState, seen: Option<&SeenClient>) -> Vec<Value> {
    let policy = client.spec.own_policy();
    let monitor = Monitor::new(std::sync::Arc::clone(policy));
    // What the policy declares about a tool; null if it has only rules.
    let of_policy = |says: &dyn Fn(&Tool) -> bool, tool| (!policy.is_rules_only()).then(|| says(tool));
    let tools = seen.iter().flat_map(|seen| &seen.tools);
    tools
        .map(|(tool, seen)| {
            json!({
                "tool": tool.to_string(),
                "is_offered": seen.is_offered,
                "calls": seen.calls,
                "last": seen.last,
                "is_bounded": of_policy(&|tool| monitor.has_requirement(tool), tool),
                "is_labelled": of_policy(&|tool| monitor.labels_outputs(tool), tool),
            })
        })
        .collect()
}
