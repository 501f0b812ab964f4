//! Defines [`OAuthSpec`]: how the access tokens for a remote MCP server behind OAuth are obtained. `config` reads it from
//! the field `oauth` of a server's entry, and `server_tokens` obtains tokens accordingly.

use flowgate_oauth::{ClientCredentials, RegisteredClient, SecureUrl};

use crate::escaping;

/// How the tokens for a server are obtained: the section `oauth` of its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OAuthSpec {
    /// Without a person.
    ClientCredentials(ClientCredentials),
    /// A person logs in with `flowgate mcp login`.
    Login {
        /// The issuer; without it, the server names one.
        issuer: Option<SecureUrl>,
        /// The client at the issuer; without it, Flowgate registers itself.
        client: Option<RegisteredClient>,
        scopes: Vec<String>,
        /// The port of this machine for the outcome; 0 is any free one.
        port: u16,
    },
}

impl OAuthSpec {
    /// Returns how a person logs in to a server whose configuration does not mention OAuth.
    pub(super) fn unconfigured_login() -> Self {
        Self::Login { issuer: None, client: None, scopes: Vec::new(), port: 0 }
    }
}

/// Returns whether the configured headers include `Authorization`: requests to such a server have no token of OAuth.
pub(super) fn has_authorization(headers: &[(String, String)]) -> bool {
    headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
}

/// Returns a phrase for where the tokens come from, for the line that says how the server is reached.
pub(super) fn describe(oauth: &OAuthSpec) -> String {
    match oauth {
        OAuthSpec::ClientCredentials(ClientCredentials { issuer, .. })
        | OAuthSpec::Login { issuer: Some(issuer), .. } => {
            format!("with tokens of {}", escaping::line(issuer.as_str()))
        }
        OAuthSpec::Login { issuer: None, .. } => "with tokens of a login".to_owned(),
    }
}
