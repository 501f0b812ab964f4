//! Reads the sections `[mcp.*]`, one for each MCP server: its address, how the gateway authenticates itself to it, the
//! prefix of its tools, and which of its tools are on offer. `config` calls it for the configuration file. Also
//! requests a token for a server behind OAuth, for `flowgate doctor` ([`McpServer::check_token`]).

use flowgate::trace::Tool;
use flowgate_oauth::{ClientCredentials, ClientSecret, SecureUrl, TokenFile, TokenSource, agent};

use super::ConfigReader;
use super::file::{ServerOAuthSpec, ServerSpec};
use crate::mcp_proxy::server_credential::ServerCredential;
use crate::mcp_proxy::upstream::McpServerClient;
use crate::ureq_tls::tls_config;

/// An MCP server.
#[derive(Debug)]
pub struct McpServer {
    /// Its name in policies.
    pub name: String,
    /// The connection to it.
    pub(crate) upstream: McpServerClient,
    /// The prefix that clients add to the names of its tools when they offer them to a model.
    pub prefix: Option<String>,
    /// Whether people approve its tools before any of them is on offer; otherwise those of the first list that a
    /// tenant receives count as approved.
    pub approves_first: bool,
}

impl McpServer {
    /// Asks the issuer of the server for a token, to learn whether the issuer gives one; `flowgate doctor` calls it.
    /// Returns `None` if the server is not behind OAuth. Blocks the thread.
    ///
    /// # Errors
    /// Why there is no token, with advice for the operator.
    pub fn check_token(&self) -> Option<Result<(), String>> {
        let tokens = self.upstream.tokens()?.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Some(match runtime {
            Ok(runtime) => runtime.block_on(tokens.token()).map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(format!(
                "no token can be requested from the issuer, since the system refuses the resources for it: {error}; raise the limit on open files (`ulimit -n`), or end other programs"
            )),
        })
    }
}

impl ConfigReader<'_> {
    /// Checks the section of the MCP server `name`, and creates the HTTP client for its address.
    ///
    /// # Errors
    /// The first problem of the section, as a message for the operator.
    pub(super) fn server(&self, name: &str, spec: ServerSpec) -> Result<McpServer, String> {
        let is_permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name == Tool::FLOWGATE_SERVER {
            return Err(
                "this name is reserved for the gateway itself: give the server another name".to_owned()
            );
        }
        if name.is_empty() || !name.chars().all(is_permitted) {
            return Err("the name of the server is empty, or has characters other than ASCII letters, digits, `-`, `_` and `.`: rename the server"
                .to_owned());
        }
        if !spec.url.starts_with("https://") && !spec.url.starts_with("http://") {
            return Err(
                "the address in `url` does not begin with https:// or http://: write the whole address"
                    .to_owned(),
            );
        }
        let key = self.key(spec.key_from.as_deref(), spec.key_file.as_deref())?;
        if key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err("the key contains characters that an HTTP header cannot contain, such as a line break: check the key".to_owned());
        }
        let authorities = self.authorities(&spec.url, spec.ca_file.as_deref())?;
        let credential = match (key, spec.oauth) {
            (Some(_), Some(_)) => {
                return Err("the section has both a key and `oauth`: remove one of them".to_owned());
            }
            (None, Some(oauth)) => {
                let tokens = self.tokens(&spec.url, oauth).map_err(|why| format!("oauth: {why}"))?;
                ServerCredential::Tokens(tokens)
            }
            (Some(key), None) => ServerCredential::Key(key),
            (None, None) => ServerCredential::None,
        };
        let upstream = McpServerClient::new(&spec.url, credential, &authorities);
        // Without the setting, the tools of the first list of a server count as approved; only changes need an
        // approval.
        let approves_first = match spec.tools.as_deref() {
            None | Some("first") => false,
            Some("approved") => true,
            Some(_) => {
                return Err("`tools` is neither \"first\" (the tools of the first list are on offer) nor \
                    \"approved\" (tools that a person approves are on offer): write one of them"
                    .to_owned());
            }
        };
        let (name, prefix) = (name.to_owned(), spec.prefix.filter(|prefix| !prefix.is_empty()));
        Ok(McpServer { name, upstream, prefix, approves_first })
    }

    /// Reads how the tokens for the server at `url` are obtained: by client credentials, or from the file of a login.
    ///
    /// # Errors
    /// The first problem of the section, as a message for the operator.
    fn tokens(&self, url: &str, spec: ServerOAuthSpec) -> Result<TokenSource, String> {
        let server = SecureUrl::parse(url).ok_or(
            "tokens cannot be sent to `url` safely: write an address that begins with https://, without a user name and without `#`",
        )?;
        let issuer = spec.issuer.as_deref().map(|issuer| {
            SecureUrl::parse(issuer)
                .ok_or("a secret cannot be sent to `issuer` safely: write an address that begins with https://, without a user name and without `#`")
        });
        let issuer = issuer.transpose()?;
        let authorities = self.authorities_of(
            "issuer",
            spec.issuer.as_deref().unwrap_or_default(),
            spec.ca_file.as_deref(),
        )?;
        // The HTTP client (of the crate `ureq`) for requests to the issuer.
        let agent = agent(tls_config(&authorities));
        let secret = self.key_named(
            ("client-secret-from", spec.client_secret_from.as_deref()),
            ("client-secret-file", spec.client_secret_file.as_deref()),
        )?;
        // With the file of a login, which also has the client and the scopes.
        if let Some(file) = spec.token_file {
            if spec.client_id.is_some() || secret.is_some() || !spec.scopes.is_empty() {
                return Err(
                    "the section has a `token-file`, which has the client and the scopes of the login: remove `client-id`, the secret and `scopes`"
                        .to_owned(),
                );
            }
            let file = TokenFile::at(self.folder.join(file));
            file.check(&server, issuer.as_ref()).map_err(|error| format!("token-file: {error}"))?;
            return Ok(TokenSource::with_login(file, issuer, server, agent));
        }
        // Without such a file, the gateway uses client credentials, so the section must have all of their settings.
        let missing = |setting: &str| {
            format!("the section has no `{setting}`: write it, or the `token-file` of a login")
        };
        let credentials = ClientCredentials {
            issuer: issuer.ok_or_else(|| missing("issuer"))?,
            client_id: spec.client_id.ok_or_else(|| missing("client-id"))?,
            client_secret: ClientSecret::new(secret.ok_or_else(|| missing("client-secret-from"))?),
            scopes: spec.scopes,
        };
        Ok(TokenSource::with_client_credentials(credentials, server, agent))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::read;

    #[test]
    fn tools_have_the_servers_that_their_names_say() {
        let text = "[mcp.web]\nurl = \"http://localhost/mcp\"\nprefix = \"mcp__web__\"\n[mcp.bank]\nurl = \"http://localhost/mcp\"\n\
                    [clients.a]\nkey-from = \"KEY\"\npolicy = \"policy.flow\"\nmcp = [\"web\", \"bank\"]\n";
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway");
        let config = read(text, &folder, &|_| Some("0123456789abcdef".to_owned())).unwrap();
        let client = config.clients.first().unwrap();
        for (name, tool) in [
            ("mcp__web__read", "web/read"),
            ("mcp__web__", "mcp__web__"),
            ("mcp__bank__pay", "mcp__bank__pay"),
            ("read", "read"),
        ] {
            assert_eq!(client.tool_of(name).to_string(), tool);
            assert_eq!(client.name_of(&client.tool_of(name)), name);
        }
        assert!(client.upstream().is_err());
    }
}
