//! Defines [`TokenError`], the reason why there is no token for a server, with its message for the user. The message
//! has no text of an issuer's answer, which could repeat a secret, except an error code of OAuth.

use std::borrow::Cow;
use std::fmt;

use crate::secure_url::SecureUrl;

/// Why there is no token for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenError {
    /// The issuer that was asked.
    pub(crate) issuer: SecureUrl,
    pub(crate) failure: TokenFailure,
}

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenFailure {
    /// The issuer publishes no metadata, or its metadata names another issuer.
    NoMetadata,
    /// No connection to the issuer can be established.
    Unreachable,
    /// The issuer did not answer in time.
    TimedOut,
    /// The certificate of the issuer is not trusted.
    Untrusted,
    /// The answer of the issuer broke off.
    BrokenOff,
    /// The answer of the issuer is larger than this number of bytes.
    TooLarge(u64),
    /// Secrets must not be sent to an address in the metadata of the issuer.
    Insecure,
    /// The issuer answered with this HTTP status.
    Status(u16),
    /// The issuer answered with this HTTP status and this code of OAuth, such as `invalid_client`.
    Refused(u16, String),
    /// The issuer authenticates clients in no way that is supported.
    NoMethod,
    /// The answer of the issuer is not a token that a request can carry.
    Unusable,
    /// The login has ended: the issuer does not accept its refresh token any more, or never gave one.
    LoginEnded,
    /// The file with the tokens of the login cannot be used; the text names it and says why.
    File(String),
    /// The request for a token was interrupted.
    Interrupted,
}

impl TokenError {
    /// Returns what failed.
    #[must_use]
    pub fn failure(&self) -> &TokenFailure {
        &self.failure
    }
}

impl TokenFailure {
    /// Returns a clause that says what an issuer or a server did. "It" in the clause is this issuer or server, so the
    /// caller's message must name it before the clause.
    pub(crate) fn clause(&self) -> Cow<'_, str> {
        match self {
            Self::NoMetadata => "it publishes no OAuth metadata, or its metadata names another issuer",
            Self::Unreachable => "no connection can be established",
            Self::TimedOut => "it did not answer in time",
            Self::Untrusted => "its certificate is not trusted",
            Self::BrokenOff => "its answer broke off",
            Self::Insecure => {
                "an address in its metadata does not begin with https://, or leads to this machine"
            }
            Self::NoMethod => {
                "it accepts the secret of a client neither in the body nor in the header of a request"
            }
            Self::Unusable => "its answer has no bearer token that a request can carry",
            Self::LoginEnded => "the login has expired or was revoked",
            Self::Interrupted => "the request was interrupted",
            Self::File(why) => why,
            Self::TooLarge(limit) => return format!("its answer is larger than {limit} bytes").into(),
            Self::Status(status) => return format!("it answered with the HTTP status {status}").into(),
            Self::Refused(status, code) => {
                return format!("it refuses the request with `{code}` (HTTP status {status})").into();
            }
        }
        .into()
    }
}

impl fmt::Display for TokenError {
    /// Writes a clause with advice for the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = &self.issuer;
        match &self.failure {
            TokenFailure::NoMetadata => write!(
                f,
                "the issuer {issuer} publishes no OAuth metadata, or its metadata names another issuer; check `issuer` in `oauth`"
            ),
            TokenFailure::TooLarge(limit) => write!(
                f,
                "an answer of the issuer {issuer} is larger than {limit} bytes; `issuer` in `oauth` is probably not the \
                address of an OAuth issuer"
            ),
            TokenFailure::LoginEnded => write!(
                f,
                "the login at {issuer} has expired or was revoked; log in again with `flowgate mcp login`"
            ),
            TokenFailure::File(why) => f.write_str(why),
            TokenFailure::Unreachable | TokenFailure::TimedOut | TokenFailure::BrokenOff => write!(
                f,
                "the issuer {issuer} gives no token: {}; check `issuer` in `oauth` and the network",
                self.failure.clause()
            ),
            // The request may be interrupted before the stored login, which names the issuer, is read. For a login,
            // `issuer` is the address of the MCP server, so this message does not name it.
            TokenFailure::Interrupted => f.write_str("the request for a token was interrupted; try again"),
            failure => {
                write!(
                    f,
                    "the issuer {issuer} gives no token: {}; check the settings of the issuer and the client in `oauth`",
                    failure.clause()
                )
            }
        }
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_issuer_and_what_to_check() {
        let issuer = SecureUrl::parse("https://id.example").unwrap();
        for (failure, expected) in [
            (
                TokenFailure::NoMetadata,
                "the issuer https://id.example publishes no OAuth metadata, or its metadata names another issuer; check `issuer` in `oauth`",
            ),
            (
                TokenFailure::TooLarge(262_144),
                "an answer of the issuer https://id.example is larger than 262144 bytes; `issuer` in `oauth` is probably not the address of an OAuth issuer",
            ),
            (
                TokenFailure::LoginEnded,
                "the login at https://id.example has expired or was revoked; log in again with `flowgate mcp login`",
            ),
            (
                TokenFailure::Refused(401, "invalid_client".to_owned()),
                "the issuer https://id.example gives no token: it refuses the request with `invalid_client` (HTTP status 401); check the settings of the issuer and the client in `oauth`",
            ),
            (
                TokenFailure::Status(503),
                "the issuer https://id.example gives no token: it answered with the HTTP status 503; check the settings of the issuer and the client in `oauth`",
            ),
        ] {
            assert_eq!(TokenError { issuer: issuer.clone(), failure }.to_string(), expected);
        }
    }
}
