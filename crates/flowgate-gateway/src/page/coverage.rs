//! Notes which clients, MCP servers and tools the gateway has seen since its start, and how many requests came from
//! unknown clients: the *coverage*. `coverage_route` compares it with the configuration and the policies. A person
//! then sees the tools that no statement covers, and the clients and servers of the configuration that were not
//! seen: if these are in use, their traffic does not pass the gateway.
//!
//! The routes of models and MCP servers record here what they see. Names of tools are bounded in number and length,
//! since agents and models choose them; names of clients and servers are those of the configuration.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use flowgate::trace::Tool;

/// The most tools of all clients together.
const MAX_TOOLS: usize = 2000;
/// The longest name of a tool that is noted, with the name of its server, in bytes.
const MAX_TOOL_NAME: usize = 128;

/// What was seen since the start of the gateway. A reload of the configuration keeps it.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// The time of the start, in milliseconds since 1970.
    pub(crate) begun: u64,
    seen: Mutex<SeenAgents>,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct SeenAgents {
    /// The clients that have sent a request, by their names.
    pub(crate) clients: BTreeMap<String, SeenClient>,
    /// The number of requests that no client of the configuration has sent.
    pub(crate) strangers: u64,
    /// The number of tools of all clients that are noted.
    tools: usize,
}

/// A client that has sent a request.
#[derive(Debug, Default)]
pub(crate) struct SeenClient {
    /// The times of its first and its last request, in milliseconds since 1970.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The servers of the configuration that it has used, with the time of the last use.
    pub(crate) servers: BTreeMap<String, u64>,
    /// The number of its requests to a server that it may not use.
    pub(crate) unknown_servers: u64,
    /// The tools that it has offered to its model, that its servers have listed, or that were called.
    pub(crate) tools: BTreeMap<Tool, SeenTool>,
    /// The number of times that a tool was seen but not noted, because there was no room or its name is too long.
    pub(crate) left_out: u64,
}

/// A tool of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeenTool {
    /// Whether it was offered to a model, or listed by a server. A tool that was only called may not exist: a model can
    /// invent its name.
    pub(crate) is_offered: bool,
    /// The number of calls of it that were judged.
    pub(crate) calls: u64,
    /// The time at which it was seen last, in milliseconds since 1970.
    pub(crate) last: u64,
}

impl Coverage {
    /// Begins to note; nothing has been seen yet.
    pub(crate) fn new() -> Self {
        Self { begun: now(), seen: Mutex::default() }
    }

    /// Notes a request of a client.
    pub(crate) fn note_client(&self, client: &str) {
        let mut seen = self.seen();
        seen.client(client);
    }

    /// Counts a request that no client of the configuration has sent.
    pub(crate) fn note_stranger(&self) {
        let mut seen = self.seen();
        seen.strangers = seen.strangers.saturating_add(1);
    }

    /// Notes a request of a client to a server. `server` is `None` if the client may not use the requested server.
    pub(crate) fn note_server(&self, client: &str, server: Option<&str>) {
        let mut seen = self.seen();
        let client = seen.client(client);
        // `seen.client` has set this time to now.
        let last = client.last;
        match server {
            Some(server) => {
                client.servers.insert(server.to_owned(), last);
            }
            None => client.unknown_servers = client.unknown_servers.saturating_add(1),
        }
    }

    /// Notes tools that a client offers to its model, or that one of its servers lists.
    pub(crate) fn note_offered(&self, client: &str, tools: impl Iterator<Item = Tool>) {
        let mut seen = self.seen();
        tools.for_each(|tool| seen.tool(client, tool, |tool| tool.is_offered = true));
    }

    /// Notes a judged call of a tool.
    pub(crate) fn note_call(&self, client: &str, tool: &Tool) {
        let add = |tool: &mut SeenTool| tool.calls = tool.calls.saturating_add(1);
        self.seen().tool(client, tool.clone(), add);
    }

    /// Locks what was seen.
    pub(crate) fn seen(&self) -> MutexGuard<'_, SeenAgents> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeenAgents {
    /// Notes that a client was seen now, and returns it.
    fn client(&mut self, name: &str) -> &mut SeenClient {
        let now = now();
        if !self.clients.contains_key(name) {
            self.clients.insert(name.to_owned(), SeenClient { first: now, ..SeenClient::default() });
        }
        let client = self.clients.entry(name.to_owned()).or_default();
        client.last = now;
        client
    }

    /// Notes that a tool of a client was seen now, and changes its entry by `note`. A tool without an entry gets one,
    /// unless there is no room or its name is too long; in these two cases, only the counter `left_out` is increased.
    fn tool(&mut self, client: &str, tool: Tool, note: impl FnOnce(&mut SeenTool)) {
        let has_room = self.tools < MAX_TOOLS;
        let client = self.client(client);
        let is_new = !client.tools.contains_key(&tool);
        let length = tool.name.len() + tool.server.as_ref().map_or(0, |server| server.len());
        if is_new && (!has_room || length > MAX_TOOL_NAME) {
            client.left_out = client.left_out.saturating_add(1);
            return;
        }
        let last = client.last;
        let tool = client.tools.entry(tool).or_default();
        tool.last = last;
        note(tool);
        self.tools += usize::from(is_new);
    }
}

/// Returns the present time in milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_noted_by_client() {
        let coverage = Coverage::new();
        coverage.note_client("a");
        coverage.note_server("b", Some("bank"));
        coverage.note_server("b", None);
        coverage.note_offered("a", [Tool::local("read"), Tool::local("send")].into_iter());
        coverage.note_call("a", &Tool::local("send"));
        coverage.note_call("a", &Tool::of("bank", "pay"));
        coverage.note_stranger();
        let seen = coverage.seen();
        let tools = seen.clients["a"].tools.iter();
        let tools: Vec<_> =
            tools.map(|(tool, seen)| (tool.to_string(), seen.is_offered, seen.calls)).collect();
        // The agent's own tools come before those of servers.
        let expected = [("read", true, 0), ("send", true, 1), ("bank/pay", false, 1)];
        assert_eq!(tools, expected.map(|(tool, is_offered, calls)| (tool.to_owned(), is_offered, calls)));
        let b = &seen.clients["b"];
        assert_eq!((b.servers.contains_key("bank"), b.servers.len(), b.unknown_servers), (true, 1, 1));
        assert_eq!((seen.strangers, seen.clients.len()), (1, 2));
    }

    /// An agent that invents tools does not make the memory grow without bound, and it is noted that some are left out.
    #[test]
    fn names_of_tools_are_bounded() {
        let coverage = Coverage::new();
        for number in 0..MAX_TOOLS + 5 {
            coverage.note_call("a", &Tool::local(&format!("tool{number}")));
        }
        // A known one is still counted.
        coverage.note_call("a", &Tool::local("tool0"));
        coverage.note_offered("b", [Tool::local(&"t".repeat(MAX_TOOL_NAME + 1))].into_iter());
        let seen = coverage.seen();
        assert_eq!((seen.clients["a"].tools.len(), seen.clients["a"].left_out), (MAX_TOOLS, 5));
        assert_eq!(seen.clients["a"].tools[&Tool::local("tool0")].calls, 2);
        assert_eq!((seen.clients["b"].tools.len(), seen.clients["b"].left_out), (0, 1));
    }
}
