//! Defines what the gateway sends to an MCP server in the header `Authorization`: nothing, a key, or an access token
//! from the server's issuer, which `flowgate-oauth` obtains. `upstream` sends it.

use flowgate_oauth::{AccessToken, TokenError, TokenFailure, TokenSource};

/// The credential that the gateway holds for a server.
#[derive(Clone)]
pub(crate) enum ServerCredential {
    /// The server needs none.
    None,
    Key(String),
    Tokens(TokenSource),
}

/// The key or token that authorizes one request.
pub(super) enum Authorization {
    Key(String),
    Token(AccessToken),
}

impl Authorization {
    /// Returns the value of the header.
    pub(super) fn header(&self) -> String {
        match self {
            Self::Key(key) => format!("Bearer {key}"),
            Self::Token(token) => token.authorization(),
        }
    }
}

impl ServerCredential {
    /// Returns the source of the tokens; `None` if the server is not behind OAuth.
    pub(super) fn tokens(&self) -> Option<&TokenSource> {
        match self {
            Self::Tokens(tokens) => Some(tokens),
            Self::None | Self::Key(_) => None,
        }
    }

    /// Returns the credential for the next request; `None` if the server needs none. `rejected` is the credential that
    /// the server has just rejected, if it has rejected one: a rejected token is replaced by another one.
    ///
    /// # Errors
    /// Why there is no token, for the operator's log, without text of the issuer and without its address.
    pub(super) async fn authorization(
        &self,
        rejected: Option<&Authorization>,
    ) -> Result<Option<Authorization>, &'static str> {
        let token = match (self, rejected) {
            (Self::None, _) => return Ok(None),
            (Self::Key(key), _) => return Ok(Some(Authorization::Key(key.clone()))),
            (Self::Tokens(tokens), Some(Authorization::Token(rejected))) => {
                tokens.token_after(rejected).await
            }
            (Self::Tokens(tokens), _) => tokens.token().await,
        };
        token.map(|token| Some(Authorization::Token(token))).map_err(|error| reason(&error))
    }
}

/// Returns why there is no token, for the operator's log.
fn reason(error: &TokenError) -> &'static str {
    match error.failure() {
        TokenFailure::NoMetadata | TokenFailure::TooLarge(_) => {
            "the issuer of the MCP server publishes no OAuth metadata, or its metadata names another issuer: check `issuer` in its `oauth` in [mcp]"
        }
        TokenFailure::Unreachable | TokenFailure::TimedOut | TokenFailure::BrokenOff => {
            "the issuer of the MCP server cannot be reached, or does not answer in time: check `issuer` in its `oauth` in [mcp], and the log of the issuer"
        }
        TokenFailure::Untrusted => {
            "the certificate of the issuer of the MCP server is not trusted: check `ca-file` in its `oauth` in [mcp]"
        }
        TokenFailure::Refused(..) | TokenFailure::Status(_) => {
            "the issuer of the MCP server refuses to give a token: check the client, its secret and the scopes in its `oauth` in [mcp]"
        }
        TokenFailure::LoginEnded => {
            "the login at the issuer of the MCP server has expired or was revoked: log in again with `flowgate mcp login`, and replace its `token-file` in [mcp]"
        }
        TokenFailure::File(_) => {
            "the `token-file` of the MCP server cannot be used: `flowgate serve --check` says why"
        }
        _ => {
            "the issuer of the MCP server gives no token that can be used: `flowgate doctor --online` says why"
        }
    }
}
