//! Defines what the gateway sends to an MCP server in the header `Authorization`: nothing, a key, or an access token
//! from the server's issuer, which `flowgate-oauth` obtains. `upstream` sends it.

use flowgate_oauth::{AccessToken, TokenFailure, TokenSource};

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
        token.map(|token| Some(Authorization::Token(token))).map_err(|error| reason(error.failure()))
    }
}

/// Returns why there is no token, for the operator's log. The texts are fixed, because `Display` of a `TokenError` may
/// contain the issuer's address and its error code, which must not reach this log.
fn reason(failure: &TokenFailure) -> &'static str {
    match failure {
        TokenFailure::NoMetadata => {
            "the issuer of the MCP server publishes no OAuth metadata, or its metadata names another issuer: check `issuer` in its `oauth` in [mcp]"
        }
        TokenFailure::TooLarge(_) => {
            "an answer of the issuer of the MCP server is too large: check that `issuer` in its `oauth` in [mcp] is the address of an OAuth issuer"
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
        TokenFailure::Interrupted => {
            "the request for a token of the MCP server was interrupted, because the gateway is ending"
        }
        _ => {
            "the issuer of the MCP server gives no token that can be used: `flowgate doctor --online` says why"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each failure has the reason that names what to check, without text of the issuer.
    #[test]
    fn reasons_name_what_to_check() {
        let refused = TokenFailure::Refused(401, "invalid_client".to_owned());
        for (failure, expected) in [
            (TokenFailure::NoMetadata, "the issuer of the MCP server publishes no OAuth metadata"),
            (TokenFailure::TooLarge(262_144), "an answer of the issuer of the MCP server is too large"),
            (TokenFailure::Unreachable, "the issuer of the MCP server cannot be reached"),
            (TokenFailure::Untrusted, "the certificate of the issuer of the MCP server is not trusted"),
            (refused, "the issuer of the MCP server refuses to give a token"),
            (TokenFailure::LoginEnded, "the login at the issuer of the MCP server has expired"),
            (TokenFailure::File("secret".to_owned()), "the `token-file` of the MCP server cannot be used"),
            (TokenFailure::Interrupted, "the request for a token of the MCP server was interrupted"),
            (TokenFailure::Unusable, "the issuer of the MCP server gives no token that can be used"),
        ] {
            assert!(reason(&failure).starts_with(expected), "{failure:?}");
        }
    }
}
