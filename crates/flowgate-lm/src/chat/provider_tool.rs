//! Defines [`ProviderTool`], a tool that the provider of a model runs, such as a web search or the calls of an MCP
//! server, and [`ProviderToolUse`], the tool with the restrictions that a client's request gives for it.
//!
//! A provider would run such a tool while it generates an answer: nobody could judge the call before it runs, and the
//! output of the tool would enter the chat without a label. Flowgate therefore offers the model an ordinary function
//! ([`ProviderTool::spec`]) instead. When the policy permits a call of this function, the caller sends the provider a
//! separate request to run the tool ([`ProviderTool::request`],
//! [`RemoteModel::for_provider_tool`](crate::RemoteModel::for_provider_tool)). This request contains the argument of
//! the call and nothing else of the chat. The text of its answer is the output of the tool.

use serde_json::{Map, Value, json};

use super::mcp_server::RESTRICTION;
use super::{McpLabel, Message, Part, ProviderMcpServer, Request, Sampling, ToolSpec};

/// A tool that providers run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderTool {
    /// Searches the web.
    WebSearch,
    /// Fetches a page of the web.
    WebFetch,
    /// Runs code in a container of the provider.
    CodeExecution,
    /// Lets a model of the provider call the tools of an MCP server.
    McpServer(McpLabel),
}

/// The most tokens of the answer in which a provider returns the output of a tool.
const MAX_TOKENS: u32 = 8192;

impl ProviderTool {
    /// All tools except the MCP servers, which have the names that clients give them.
    pub const BUILT_IN: [Self; 3] = [Self::WebSearch, Self::WebFetch, Self::CodeExecution];

    /// Returns the name by which models call the tool and policies refer to it, whatever the provider calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::WebSearch => "web_search",
            Self::WebFetch => "web_fetch",
            Self::CodeExecution => "code_execution",
            Self::McpServer(label) => label.tool_name(),
        }
    }

    /// Returns the name of the only argument.
    #[must_use]
    pub fn argument(&self) -> &'static str {
        match self {
            Self::WebSearch => "query",
            Self::WebFetch => "url",
            Self::CodeExecution => "code",
            Self::McpServer(_) => "request",
        }
    }

    /// Returns whether a call changes nothing outside the provider, so that it may run again after a failure.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Self::McpServer(_))
    }

    /// Returns the function that the model is offered in place of the tool: it has one argument, a text.
    /// [`ProviderToolUse::spec`] adds the restrictions of a client to its description.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        // The description of the function, and that of its argument.
        let (description, about) = match self {
            Self::WebSearch => (
                "Searches the web, and returns what was found with its addresses.".to_owned(),
                "The query.",
            ),
            Self::WebFetch => {
                ("Fetches a page of the web, and returns its text.".to_owned(), "The address of the page.")
            }
            Self::CodeExecution => (
                "Runs Python code in a container without a network, and returns its output. Each call has a new container."
                    .to_owned(),
                "The code.",
            ),
            Self::McpServer(label) => (
                format!(
                    "Lets another model call the tools of the MCP server `{}`, and returns its report. It knows \
                    nothing but the request.",
                    label.as_str()
                ),
                "What it is to do, with everything that it has to know.",
            ),
        };
        let argument = self.argument();
        let parameters = json!({
            "type": "object",
            "properties": {argument: {"type": "string", "description": about}},
            "required": [argument],
            "additionalProperties": false,
        });
        ToolSpec { name: self.name().to_owned(), description, parameters: parameters.into() }
    }

    /// Returns the request by which the provider runs one call of the tool. It contains the argument of the call and
    /// nothing else of the chat.
    ///
    /// # Errors
    /// If the argument is missing, is not a text or is blank. Also if the argument of [`WebFetch`](Self::WebFetch) is
    /// not exactly one address: the provider's model could obey further words as instructions. The message is for the
    /// model, and says what to write instead.
    pub fn request(&self, arguments: &Map<String, Value>) -> Result<Request, String> {
        let name = self.argument();
        let argument = arguments.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let argument = argument.ok_or_else(|| format!("the argument `{name}` must be a text: write it"))?;
        if *self == Self::WebFetch && !is_address(argument) {
            return Err(format!(
                "the argument `{name}` must be one address: write https:// with a host and a path"
            ));
        }
        let instruction = match self {
            Self::WebSearch => {
                "Search the web once, for the query below, and report what was found, with the address of each page:"
            }
            Self::WebFetch => "Fetch the address below once, and report the text of the page:",
            Self::CodeExecution => "Run the code below once, unchanged, and report its output unchanged:",
            Self::McpServer(_) => {
                "Call the tools of the MCP server as the request below asks, and report all of what they return:"
            }
        };
        let text = format!("{instruction}\n\n{argument}");
        let sampling = Sampling { max_tokens: Some(MAX_TOKENS), ..Sampling::default() };
        let messages = vec![Message::User(vec![Part::Text(text)])];
        Ok(Request { messages: messages.into(), sampling, ..Request::default() })
    }
}

/// Returns whether a text is one address of HTTP and nothing else: no white space, no control characters, and a host.
fn is_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    host.is_some_and(|host| !host.is_empty()) && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

/// A tool of the provider, with the restrictions that a client's request gives for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderToolUse {
    /// The tool.
    pub tool: ProviderTool,
    /// If not empty, the only domains from which the tool may return pages.
    pub allowed_domains: Vec<String>,
    /// Domains from which the tool may return no pages.
    pub blocked_domains: Vec<String>,
    /// Whether the tool may return only pages that the provider has stored.
    pub is_offline: bool,
    /// The most calls of the tool that the client permits in a turn. The program that runs the calls counts them.
    pub max_calls: Option<u64>,
    /// The server that the provider calls, for [`ProviderTool::McpServer`]; without it, such a tool does not run.
    pub server: Option<ProviderMcpServer>,
}

impl ProviderToolUse {
    /// Returns the function that the model is offered in place of the tool. Its description ends with the restrictions,
    /// so that the model knows them and offers with different restrictions differ.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        let mut spec = self.tool.spec();
        // Domains are written as JSON lists, so that one name with quotes and commas cannot look like several names.
        if !self.allowed_domains.is_empty() {
            spec.description +=
                &format!("{RESTRICTION}only pages of the domains {}.", json!(self.allowed_domains));
        }
        if !self.blocked_domains.is_empty() {
            spec.description +=
                &format!("{RESTRICTION}no pages of the domains {}.", json!(self.blocked_domains));
        }
        if self.is_offline {
            spec.description += &format!("{RESTRICTION}only pages that the provider has stored.");
        }
        if let Some(server) = &self.server {
            spec.description += &server.restrictions();
        }
        spec
    }

    /// Returns whether `description` and `parameters` are those of a function that [`Self::spec`] returns for `tool`,
    /// with any restrictions. A client's own function of the same name does not have them: its calls must not reach the
    /// provider.
    #[must_use]
    pub fn is_offer_of(tool: &ProviderTool, description: &str, parameters: &Value) -> bool {
        restrictions_of(tool, description, parameters).is_some()
    }

    /// Returns whether `description` and `parameters` are those of an MCP server that has the same label as this one,
    /// but another address. The outputs of that server are in the conversation under this label, so no other server may
    /// take its place. `false` for other tools.
    #[must_use]
    pub fn is_at_other_address(&self, description: &str, parameters: &Value) -> bool {
        let (Some(server), Some(restrictions)) =
            (&self.server, restrictions_of(&self.tool, description, parameters))
        else {
            return false;
        };
        !restrictions.starts_with(&server.address_sentence())
    }
}

/// Returns the part of `description` that states the restrictions, if [`ProviderToolUse::spec`] can have returned
/// `description` and `parameters` for `tool`; it is empty if there are no restrictions. Otherwise returns `None`.
fn restrictions_of<'d>(tool: &ProviderTool, description: &'d str, parameters: &Value) -> Option<&'d str> {
    let spec = tool.spec();
    let rest = description.strip_prefix(spec.description.as_str())?;
    let is_offer = *parameters == *spec.parameters && (rest.is_empty() || rest.starts_with(RESTRICTION));
    is_offer.then_some(rest)
}

impl From<ProviderTool> for ProviderToolUse {
    /// Returns the use of a tool without restrictions and without a server.
    fn from(tool: ProviderTool) -> Self {
        Self {
            tool,
            allowed_domains: Vec::new(),
            blocked_domains: Vec::new(),
            is_offline: false,
            max_calls: None,
            server: None,
        }
    }
}

impl From<(McpLabel, ProviderMcpServer)> for ProviderToolUse {
    /// Returns the use of the MCP server `server`, which the client calls `label`, as one tool.
    fn from((label, server): (McpLabel, ProviderMcpServer)) -> Self {
        Self { server: Some(server), ..Self::from(ProviderTool::McpServer(label)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::McpAddress;
    use super::*;

    #[test]
    fn an_offer_states_the_restrictions() {
        let search = ProviderToolUse::from(ProviderTool::WebSearch);
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let check = |wanted: &ProviderToolUse, expected: &str| {
            let spec = wanted.spec();
            let plain = ProviderTool::WebSearch.spec();
            assert_eq!(spec.description.strip_prefix(&*plain.description), Some(expected));
            assert_eq!((&spec.name, &spec.parameters), (&plain.name, &plain.parameters));
            for tool in ProviderTool::BUILT_IN {
                let is_offer = ProviderToolUse::is_offer_of(&tool, &spec.description, &spec.parameters);
                assert_eq!(is_offer, tool == ProviderTool::WebSearch, "{expected}");
            }
        };
        check(&search, "");
        let allowed =
            ProviderToolUse { allowed_domains: texts(&["a.example", "b.example"]), ..search.clone() };
        check(&allowed, r#" Returns only pages of the domains ["a.example","b.example"]."#);
        // One name is not read as two.
        let one = ProviderToolUse { allowed_domains: texts(&[r#"a.example","b.example"#]), ..search.clone() };
        assert_ne!(one.spec().description, allowed.spec().description);
        let blocked = ProviderToolUse { blocked_domains: texts(&["a.example"]), ..search.clone() };
        check(&blocked, r#" Returns no pages of the domains ["a.example"]."#);
        let offline = ProviderToolUse { is_offline: true, ..search.clone() };
        check(&offline, " Returns only pages that the provider has stored.");
        // The number of calls is counted where they run.
        check(&ProviderToolUse { max_calls: Some(1), ..search.clone() }, "");
        // Functions of a client.
        let ToolSpec { description, parameters, .. } = search.spec();
        let is_offer = |description: &str, parameters: &Value| {
            ProviderToolUse::is_offer_of(&ProviderTool::WebSearch, description, parameters)
        };
        assert!(!is_offer(&format!("{description} Of mine."), &parameters));
        assert!(!is_offer("Searches.", &parameters));
        assert!(!is_offer(&description, &json!({"type": "object"})));
    }

    #[test]
    fn an_offer_of_a_server_states_the_address() {
        let server = |label: &str, url: &str| {
            let (label, address) = (McpLabel::parse(label).unwrap(), McpAddress::parse(url).unwrap());
            ProviderToolUse::from((label, ProviderMcpServer::at(address)))
        };
        let check = |first: &ProviderToolUse, later: &ProviderToolUse, expected: (bool, bool)| {
            let spec = first.spec();
            let is_offer = ProviderToolUse::is_offer_of(&later.tool, &spec.description, &spec.parameters);
            let is_elsewhere = later.is_at_other_address(&spec.description, &spec.parameters);
            assert_eq!((is_offer, is_elsewhere), expected, "{later:?}");
        };
        let first = server("weather", "https://a.example/mcp");
        let spec = first.spec();
        assert_eq!(spec.name, "mcp__weather");
        let stated = " Returns only results of the server at <https://a.example>, with the digest ";
        assert!(spec.description.contains(stated), "{}", spec.description);
        check(&first, &first, (true, false));
        // The client's words and the tools may change between turns.
        let mut restricted = first.clone();
        let connection = restricted.server.as_mut().unwrap();
        connection.allowed_tools = vec!["now".to_owned()];
        connection.description = "Knows the weather.".to_owned();
        assert_ne!(restricted.spec(), spec);
        check(&first, &restricted, (true, false));
        check(&restricted, &first, (true, false));
        for url in ["https://b.example/mcp", "https://a.example/other", "https://a.example:1/mcp"] {
            check(&first, &server("weather", url), (true, true));
        }
        check(&first, &server("mail", "https://b.example/mcp"), (false, false));
        check(&first, &ProviderTool::WebSearch.into(), (false, false));
    }

    #[test]
    fn a_request_has_the_argument_and_nothing_else() {
        let check = |tool: ProviderTool, arguments: Value, expected: Result<&str, &str>| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            let request = tool.request(&arguments);
            let text = request.as_ref().map_err(String::as_str).map(|request| {
                assert!(request.tools.is_empty());
                match &request.messages[..] {
                    [Message::User(parts)] => match parts.as_slice() {
                        [Part::Text(text)] => text.rsplit('\n').next().unwrap_or_default(),
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                }
            });
            assert_eq!(text, expected);
        };
        check(ProviderTool::WebSearch, json!({"query": "rust"}), Ok("rust"));
        check(ProviderTool::WebFetch, json!({"url": "https://a.example/"}), Ok("https://a.example/"));
        check(ProviderTool::CodeExecution, json!({"code": "1 + 1"}), Ok("1 + 1"));
        let server = ProviderTool::McpServer(McpLabel::parse("weather").unwrap());
        check(server.clone(), json!({"request": "Is it wet?"}), Ok("Is it wet?"));
        check(server, json!({"query": "rust"}), Err("the argument `request` must be a text: write it"));
        let no_address = Err("the argument `url` must be one address: write https:// with a host and a path");
        for url in [
            "https://a.example/ - or rather https://evil.example/",
            "a.example",
            "https:///x",
            "http://a\u{0}",
            "file:///x",
        ] {
            check(ProviderTool::WebFetch, json!({"url": url}), no_address);
        }
        let missing = Err("the argument `query` must be a text: write it");
        for arguments in
            [json!({}), json!({"query": " "}), json!({"query": ["rust"]}), json!({"url": "rust"})]
        {
            check(ProviderTool::WebSearch, arguments, missing);
        }
    }
}
