//! Compares a policy with the JSON schemas of the tools that it is about, and reports names that no schema has.
//! `flowgate check --tools` prints the diagnostics.
//!
//! A statement about a tool or an argument that does not exist has no effect. The descriptions of servers and clients
//! list the tools and arguments that exist, before anything has run. A name that no description contains is reported as
//! an error or a warning ([`ToolSchemas::diagnostics`]). Where a schema does not restrict the names in a value, nothing
//! is reported.
//!
//! `read` reads lists of tools, and `schema` finds the keys and values that schemas permit at a path. `name_check`
//! compares the names in the policy with these keys, and `value_check` the constants in it with these values.

mod name_check;
pub(crate) mod read;
mod schema;
mod value_check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

pub use read::ToolListError;

use crate::policy::diagnostic::nearest;
use crate::policy::pattern::ToolPattern;
use crate::policy::syntax::{ExprKind, PolicyFile};
use crate::policy::{Diagnostic, Policy};
use crate::trace::Tool;

/// The codes of the diagnostics; their meaning is stable.
pub const CODES: &[&str] =
    &["ambiguous-tool", "unlisted-argument", "unlisted-field", "unlisted-tool", "unlisted-value"];

/// The most tools that are compared.
pub const MAX_TOOLS: usize = 5_000;

/// The beginnings of the names of methods of MCP that a policy can name like tools, such as `resources/read`. Lists of
/// tools do not contain methods.
const METHODS: [&str; 3] = ["completion/", "prompts/", "resources/"];

/// The tools of some servers, as their descriptions define them.
#[derive(Debug, Clone, Default)]
pub struct ToolSchemas {
    /// The described servers, and whether all tools of each are known.
    servers: BTreeMap<Option<Arc<str>>, ServerList>,
    tools: Vec<ToolSchema>,
}

/// How much of the list of a server's tools is known.
#[derive(Debug, Clone, Copy, Default)]
struct ServerList {
    /// Whether one of its lists has no further page.
    has_last_page: bool,
    /// Whether a list contains hosted tools, which the provider of a model runs: the names of the tools behind such an
    /// entry are unknown.
    has_hosted_tools: bool,
}

impl ServerList {
    /// Returns whether the server has no tools except those in its lists.
    fn is_complete(&self) -> bool {
        self.has_last_page && !self.has_hosted_tools
    }
}

/// One description of a tool.
#[derive(Debug, Clone)]
struct ToolSchema {
    tool: Tool,
    input: Option<Value>,
    output: Option<Value>,
}

/// A server that is named in a policy and described by no list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndescribedServer {
    /// Its name in the policy.
    pub name: String,
    /// A described server with a similar name.
    pub near: Option<String>,
}

impl ToolSchemas {
    /// Creates an empty set of tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the tools in a JSON text: the result of MCP `tools/list`, the response that contains it, the list alone, or
    /// a request to a model with a list of `tools`. `server` is the name of their server in policies, `None` for tools
    /// of the agent itself. A list with several pages is added page by page. Tools that the provider of a model runs
    /// (*hosted* tools) have no schema, and make the list incomplete.
    ///
    /// ```
    /// use flowgate::policy::Policy;
    /// use flowgate::tool_schemas::ToolSchemas;
    ///
    /// let mut tools = ToolSchemas::new();
    /// tools.add_list(None, r#"{"tools": [{"name": "send", "inputSchema": {"properties": {"to": {}}}}]}"#)?;
    /// let policy = "raise 'x' if:\n    (call: ToolCall) is tool:send({recipient: 'eve'})\n";
    /// let policy = Policy::parse(policy).map_err(|mut diagnostics| diagnostics.remove(0))?;
    /// assert_eq!(tools.diagnostics(&policy)[0].message, "the tool `send` has no argument `recipient`");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the text is not JSON or contains no list of tools, if an entry of the list is not a tool, or if there are
    /// more than [`MAX_TOOLS`].
    pub fn add_list(&mut self, server: Option<&str>, text: &str) -> Result<(), ToolListError> {
        let server: Option<Arc<str>> = server.map(Arc::from);
        let list = read::read_list(text)?;
        if self.tools.len() + list.tools.len() > MAX_TOOLS {
            return Err(ToolListError::new(
                "",
                format!("the lists have more than {MAX_TOOLS} tools; give fewer lists"),
            ));
        }
        let server_list = self.servers.entry(server.clone()).or_default();
        server_list.has_last_page |= !list.has_next_page;
        server_list.has_hosted_tools |= list.has_hosted_tools;
        self.tools.extend(list.tools.into_iter().map(|found| ToolSchema {
            tool: Tool { server: server.clone(), name: found.name.into() },
            input: found.input,
            output: found.output,
        }));
        Ok(())
    }

    /// Returns the tools, each once, in the order of their lists.
    pub fn tools(&self) -> Vec<&Tool> {
        let mut seen = BTreeSet::new();
        self.tools.iter().map(|schema| &schema.tool).filter(|tool| seen.insert(*tool)).collect()
    }

    /// Returns a diagnostic for each name in the policy that the tools do not have, in order of position. It is an
    /// error if no tool or argument has the name. It is a warning if the name is a field of an answer, if the policy
    /// only tests whether the argument is present, or if a constant is not among the permitted values of an argument.
    pub fn diagnostics(&self, policy: &Policy) -> Vec<Diagnostic> {
        let file = policy.syntax();
        let mut found = name_check::diagnostics(self, &file);
        found.extend(value_check::diagnostics(self, &file));
        found.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.span.end));
        found.dedup();
        found
    }

    /// Returns the servers that are named in the policy and described by no list, each with a described server of a
    /// similar name, if there is one. The caller reports them to the user, since the tools of these servers are not
    /// compared.
    pub fn undescribed_servers(&self, policy: &Policy) -> Vec<UndescribedServer> {
        let named = named_servers(&policy.syntax());
        let undescribed = named.into_iter().filter(|server| !self.servers.contains_key(server));
        let described = || self.servers.keys().flatten().map(|server| &**server);
        // `flatten` omits the agent itself, which is `None` and has no name to show.
        undescribed
            .flatten()
            .map(|name| UndescribedServer {
                near: nearest(&name, described()).map(str::to_owned),
                name: name.to_string(),
            })
            .collect()
    }

    /// Returns the servers whose lists have further pages that were not added; `None` is the agent itself.
    pub fn continued_servers(&self) -> Vec<Option<&str>> {
        let continued = self.servers.iter().filter(|(_, list)| !list.has_last_page);
        continued.map(|(server, _)| server.as_deref()).collect()
    }

    /// Returns whether all tools that the policy can be about are listed: the lists are complete, and no pattern names
    /// another server.
    fn is_complete_for(&self, file: &PolicyFile) -> bool {
        self.servers.values().all(ServerList::is_complete)
            && named_servers(file).iter().all(|server| self.servers.contains_key(server))
    }

    /// Returns the listed tools that a pattern matches. `None` if the pattern may also match tools that are not listed,
    /// so that nothing can be reported about it. `is_complete` states whether all tools that the policy can be about
    /// are listed. For a pattern that names one tool, it suffices that this tool is listed.
    fn matching(&self, pattern: &ToolPattern, is_complete: bool) -> Option<Vec<&ToolSchema>> {
        let found: Vec<&ToolSchema> =
            self.tools.iter().filter(|schema| pattern.matches(&schema.tool)).collect();
        let is_known = match pattern.server() {
            Some(server) => self
                .servers
                .get(&server_of(server))
                .is_some_and(|list| list.is_complete() || pattern.tool().is_some() && !found.is_empty()),
            // An unlisted tool of the same name on another server need not be considered: it would make the pattern
            // ambiguous.
            None => is_complete || pattern.exact_name().is_some() && !found.is_empty(),
        };
        is_known.then_some(found)
    }
}

/// Returns the servers that are named in the patterns of a policy, without the server of Flowgate's own tools; `None`
/// is the agent itself.
fn named_servers(file: &PolicyFile) -> BTreeSet<Option<Arc<str>>> {
    let mut named = BTreeSet::new();
    for statement in &file.statements {
        statement.walk(&mut |expr| {
            if let ExprKind::Tool(tool) = &*expr.kind
                && let Ok(pattern) = ToolPattern::new(&tool.name)
                && let Some(server) = pattern.server()
                && server != Tool::FLOWGATE_SERVER
            {
                named.insert(server_of(server));
            }
        });
    }
    named
}

/// Returns the server that a pattern names before its slash. `None` if the name is empty: the agent itself.
fn server_of(named: &str) -> Option<Arc<str>> {
    (!named.is_empty()).then(|| named.into())
}

/// Returns whether a pattern is about something that no list of tools contains: an endpoint that the guard itself
/// calls, or a method of MCP, such as `resources/read`.
fn is_beyond_lists(pattern: &ToolPattern) -> bool {
    // If the server of a pattern is a wildcard, or the pattern a regular expression, its name is not known separately
    // from its server. So the whole text of the pattern is searched.
    let names_method = |method: &&str| pattern.to_string().contains(*method);
    pattern.server() == Some(Tool::FLOWGATE_SERVER)
        || pattern.name_on_server().is_some_and(|name| METHODS.iter().any(|method| name.starts_with(method)))
        || (pattern.is_qualified() && METHODS.iter().any(names_method))
}

/// The maximum number of characters of a name that a message shows.
const MAX_SHOWN: usize = 60;
/// The maximum number of names that a message lists.
const MAX_LISTED: usize = 8;

/// Returns a name or a value in backquotes, shortened to [`MAX_SHOWN`] characters.
fn quoted(name: &str) -> String {
    let cut: String = name.chars().take(MAX_SHOWN).collect();
    let end = if cut.len() < name.len() { "…" } else { "" };
    format!("`{cut}{end}`")
}

/// Returns names in backquotes, separated by commas, for a message: the first [`MAX_LISTED`], and the number of the
/// others.
fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> = names.by_ref().take(MAX_LISTED).map(quoted).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{}, and {more} more", first.join(", ")),
    }
}

/// Returns the help for a name that is not known: a question with a similar known name. Without a similar name, the
/// help is the phrase `what` (such as "the arguments are") followed by the known names, or `nothing` if no name is
/// known. Nothing is suggested for an empty name or a pattern with `*`.
fn help_for(name: &str, known: &BTreeSet<&str>, what: &str, nothing: &str) -> String {
    let near = nearest(name, known.iter().copied()).filter(|_| !name.is_empty() && !name.contains('*'));
    match near {
        Some(near) => format!("did you mean {}?", quoted(near)),
        None if known.is_empty() => nothing.to_owned(),
        None => format!("{what} {}", listed(known.iter().copied())),
    }
}
