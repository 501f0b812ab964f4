//! Defines [`ProviderMcpServer`], an MCP server that a client's request declares and that the model's provider calls: its
//! address ([`McpAddress`]), the client's credentials for it ([`McpCredentials`]), and which of its tools may be
//! called.
//!
//! [`McpLabel`] is the name that the client gives to the server (not a label of the policy). The model is offered the
//! whole server as one tool with this name, [`ProviderTool::McpServer`](super::ProviderTool::McpServer). The
//! credentials are sent only in the request in which the provider calls the server: no description, no debug output and
//! no error contains them. The decoders and encoders of [`wire`](crate::wire) read and write such servers.

use std::fmt;

use serde_json::json;
use sha2::{Digest, Sha256};

/// The beginning of each restriction that is appended to the description of a tool that the provider runs.
pub(super) const RESTRICTION: &str = " Returns ";

/// The beginning of the name of the tool by which the model calls an MCP server.
const PREFIX: &str = "mcp__";

/// The most bytes of a label. With [`PREFIX`], the name has 64 bytes, the most that providers permit.
const MAX_LABEL: usize = 59;

/// The most bytes of an address.
const MAX_ADDRESS: usize = 2048;

/// The most bytes of the name of a server's tool, according to the specification of MCP.
const MAX_TOOL_NAME: usize = 128;

/// How many bytes of the digest of an address the description of the tool contains: enough that nobody finds two
/// addresses with the same bytes.
const DIGEST_BYTES: usize = 16;

/// The label of an MCP server: a name of 1 to 59 letters, digits, `-` and `_` that begins with a letter or a digit.
///
/// A label does not contain `__`. Some agents give the tools of their own MCP servers names of the form
/// `mcp__SERVER__TOOL`. If `SERVER__TOOL` were a label, a statement of the policy about such a tool would also apply to
/// the server with this label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct McpLabel {
    /// The name of the server's tool: [`PREFIX`] and the label.
    tool_name: Box<str>,
}

impl McpLabel {
    /// Returns the label with this text; `None` if the text does not have the form that [`McpLabel`] describes.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_label = (1..=MAX_LABEL).contains(&label.len())
            && label.starts_with(|c: char| c.is_ascii_alphanumeric())
            && label.chars().all(is_of_name)
            && !label.contains("__");
        is_label.then(|| Self { tool_name: format!("{PREFIX}{label}").into() })
    }

    /// Returns the label of the server whose tool has this name, such as `weather` for `mcp__weather`; `None` if `name`
    /// is not the name of a server's tool.
    #[must_use]
    pub fn of_tool(name: &str) -> Option<Self> {
        Self::parse(name.strip_prefix(PREFIX)?)
    }

    /// Returns the label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.tool_name.strip_prefix(PREFIX).unwrap_or_default()
    }

    /// Returns the name by which models call the server and policies refer to it: `mcp__` and the label.
    #[must_use]
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }
}

/// The address of an MCP server: an HTTPS URL with a host, without a user name and without a fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct McpAddress {
    url: String,
    /// The scheme, the host in lower case, and the port if it is not 443.
    origin: String,
}

impl McpAddress {
    /// Returns the address with this text; `None` if the text is not a URL of the form that [`McpAddress`] describes,
    /// or has more than 2048 bytes. Parsers of URLs disagree about unusual characters. The host may therefore contain
    /// only letters, digits, `-` and `.`, and the rest only plain ASCII characters, so that the provider reads the same
    /// host in the text as this function.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("https://").filter(|_| url.len() <= MAX_ADDRESS)?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
        let is_of_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let has_host = host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(is_of_host);
        // `parse` alone would accept `+443`.
        let port = port.parse::<u16>().ok().filter(|_| port.chars().all(|c| c.is_ascii_digit()))?;
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '\\' | '#');
        if !has_host || !rest.chars().all(is_plain) {
            return None;
        }
        let host = host.to_ascii_lowercase();
        let origin = if port == 443 { format!("https://{host}") } else { format!("https://{host}:{port}") };
        Some(Self { url: url.to_owned(), origin })
    }

    /// Returns the URL. Its path or its query may contain a secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns the scheme, the host, and the port if it is not 443, such as `https://mcp.example.org`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the beginning of the SHA-256 of the URL, in hexadecimal digits.
    fn digest(&self) -> String {
        let digest = Sha256::digest(self.url.as_bytes());
        digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for McpAddress {
    /// Writes the origin alone: the path may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpAddress").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// What a client's request contains to authenticate the provider to an MCP server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpCredentials {
    /// The token that the provider sends to the server.
    pub token: Option<String>,
    /// Headers that the provider sends to the server, with their values.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for McpCredentials {
    /// Writes the name of the type alone: the values are secrets of the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpCredentials").finish_non_exhaustive()
    }
}

/// An MCP server that the provider calls, as a client's request declares it. Its label is that of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderMcpServer {
    /// The address of the server.
    pub address: McpAddress,
    /// What authenticates the provider to the server.
    pub credentials: McpCredentials,
    /// If not empty, the only tools of the server that the provider may call.
    pub allowed_tools: Vec<String>,
    /// Tools of the server that the provider may not call.
    pub blocked_tools: Vec<String>,
    /// What the client says about the server; empty if it says nothing.
    pub description: String,
}

impl ProviderMcpServer {
    /// Returns the server at an address, without credentials, with all its tools and without a description.
    #[must_use]
    pub fn at(address: McpAddress) -> Self {
        Self {
            address,
            credentials: McpCredentials::default(),
            allowed_tools: Vec::new(),
            blocked_tools: Vec::new(),
            description: String::new(),
        }
    }

    /// Returns whether a text can be the name of a server's tool.
    #[must_use]
    pub fn is_tool_name(name: &str) -> bool {
        let is_of_name = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>');
        (1..=MAX_TOOL_NAME).contains(&name.len()) && name.chars().all(is_of_name)
    }

    /// Returns whether a client may give a server this description. In the description of the tool, `<` and `>` mark
    /// the address, so that a policy can look for the address there. No other part of it may contain them.
    #[must_use]
    pub fn is_description(text: &str) -> bool {
        !text.contains(['<', '>'])
    }

    /// Returns the sentence that states the address in the description of the tool: the origin, and a digest of the
    /// whole URL instead of the URL itself, whose path may contain a secret.
    pub(super) fn address_sentence(&self) -> String {
        let (origin, digest) = (self.address.origin(), self.address.digest());
        format!(
            "{RESTRICTION}only results of the server at <{origin}>, with the digest {digest} of its address."
        )
    }

    /// Returns the end of the description of the tool: the address of the server, which of its tools the provider may
    /// call, and what the client says about it.
    pub(super) fn restrictions(&self) -> String {
        let mut text = self.address_sentence();
        if !self.allowed_tools.is_empty() {
            text += &format!("{RESTRICTION}only results of the tools {}.", json!(self.allowed_tools));
        }
        if !self.blocked_tools.is_empty() {
            text += &format!("{RESTRICTION}no results of the tools {}.", json!(self.blocked_tools));
        }
        if !self.description.is_empty() {
            text += &format!(" The client says about the server: {}", self.description);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_without_two_underscores() {
        let long = "a".repeat(MAX_LABEL + 1);
        for (label, is_label) in [
            ("weather", true),
            ("my-server_2", true),
            ("2", true),
            ("", false),
            ("-a", false),
            ("_a", false),
            ("a b", false),
            ("a/b", false),
            ("wetter\u{e4}", false),
            ("github__create_issue", false),
            (long.as_str(), false),
        ] {
            let parsed = McpLabel::parse(label);
            assert_eq!(parsed.as_ref().map(McpLabel::as_str), is_label.then_some(label), "{label}");
            let name = format!("mcp__{label}");
            assert_eq!(McpLabel::of_tool(&name), parsed, "{label}");
            assert!(parsed.is_none_or(|parsed| parsed.tool_name() == name), "{label}");
        }
        assert_eq!(McpLabel::of_tool("weather"), None);
    }

    #[test]
    fn an_address_has_one_host() {
        let check = |url: &str, expected: Option<&str>| {
            let address = McpAddress::parse(url);
            assert_eq!(address.as_ref().map(McpAddress::origin), expected, "{url}");
            assert!(address.is_none_or(|address| address.as_str() == url), "{url}");
        };
        check("https://mcp.example.org/sse", Some("https://mcp.example.org"));
        check("https://MCP.example.org:443?key=1", Some("https://mcp.example.org"));
        check("https://a.example:8443/mcp", Some("https://a.example:8443"));
        for url in [
            "http://a.example/",
            "HTTPS://a.example/",
            "https:///mcp",
            "https://a.example:/mcp",
            "https://a.example:+443/mcp",
            "https://a.example:99999/mcp",
            "https://user@a.example/",
            "https://a.example\\@evil.example/",
            "https://a.example#@evil.example/",
            "https://a.example/m p",
            "https://a.example/\n",
            "https://a.example/<https://evil.example>",
            "https://\u{430}.example/",
            "https://[::1]/",
            "https://.a.example/",
            &format!("https://a.example/{}", "a".repeat(MAX_ADDRESS)),
        ] {
            check(url, None);
        }
    }

    /// The path may be a secret, and the credentials are one.
    #[test]
    fn secrets_are_in_no_description_and_no_debug_output() {
        let address = McpAddress::parse("https://a.example/hunter2").unwrap();
        let headers = vec![("x-key".to_owned(), "hunter3".to_owned())];
        let credentials = McpCredentials { token: Some("hunter4".to_owned()), headers };
        let server = ProviderMcpServer { credentials, ..ProviderMcpServer::at(address) };
        assert!(!server.restrictions().contains("hunter"), "{}", server.restrictions());
        assert!(!format!("{server:?}").contains("hunter"));
        // Another path is another address.
        let other = ProviderMcpServer::at(McpAddress::parse("https://a.example/hunter5").unwrap());
        assert_ne!(other.restrictions(), server.restrictions());
    }

    #[test]
    fn only_the_address_is_in_angle_brackets() {
        for name in ["get_weather", "files/read", "a\"b"] {
            assert!(ProviderMcpServer::is_tool_name(name), "{name}");
        }
        for name in ["", "a b", "<https://a.example>", "caf\u{e9}", &"a".repeat(MAX_TOOL_NAME + 1)] {
            assert!(!ProviderMcpServer::is_tool_name(name), "{name}");
        }
        assert!(ProviderMcpServer::is_description("Tells the weather."));
        assert!(!ProviderMcpServer::is_description("At <https://a.example>."));
    }
}
