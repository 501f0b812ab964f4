//! Controls access to the policy API and the metrics, the routes that keys of clients and people do not protect.
//! `flowgate serve` chooses one of three modes ([`AccessControl`]) at its start, and `service` checks each request:
//!
//! * With a token, its holders have access.
//! * Without a token, programs on this machine have access; the server must listen on a loopback address. Requests for
//!   foreign host names are rejected. This prevents DNS rebinding: a web page whose host name resolves to 127.0.0.1 is
//!   not a program on this machine.
//! * Without a token, but with `allow_anonymous`, every caller that can connect has access.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, header};

use crate::http::reply::HttpReply;
use crate::secret::Secret;

/// The minimum length of a token in bytes: a shorter one can be guessed.
const MIN_TOKEN: usize = 16;

/// A secret that clients send as `Authorization: Bearer`. Not shown by `Debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken(Secret);

impl BearerToken {
    /// Creates a token, without surrounding white space.
    ///
    /// # Errors
    /// If it is too short, or has characters that a header cannot carry.
    pub fn new(text: &str) -> Result<Self, AccessError> {
        let text = text.trim();
        if text.len() < MIN_TOKEN {
            return Err(AccessError::ShortToken);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AccessError::StrangeToken);
        }
        Ok(Self(Secret::new(text)))
    }
}

/// The callers that may send requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessControl {
    /// Holders of the token.
    Token(BearerToken),
    /// Programs on this machine.
    Local,
    /// All callers that can connect.
    Anonymous,
}

/// The reason why the access control of a server would be insecure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// It would listen beyond this machine without a token.
    Open,
    /// The token can be guessed.
    ShortToken,
    /// The token cannot be sent in a header.
    StrangeToken,
}

impl fmt::Display for AccessError {
    /// Writes the problem, and the options or the token with which the server can start.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str(
                "other machines can reach this address, but no token is set: set one with `--token-file` or \
                FLOWGATE_TOKEN, listen on 127.0.0.1, or use `--allow-anonymous`",
            ),
            Self::ShortToken => {
                write!(
                    f,
                    "the token is too short: use at least {MIN_TOKEN} characters, such as those from \
                    `openssl rand -hex 32`"
                )
            }
            Self::StrangeToken => f.write_str(
                "the token contains white space or characters other than visible ASCII: use letters and \
                digits",
            ),
        }
    }
}

impl std::error::Error for AccessError {}

impl AccessControl {
    /// Decides who may send requests to a server at `address`. Other machines can reach every address that is not a
    /// loopback address.
    ///
    /// # Errors
    /// If other machines can reach the address, and neither a token nor `allow_anonymous` is given.
    pub fn for_address(
        address: SocketAddr,
        token: Option<BearerToken>,
        allow_anonymous: bool,
    ) -> Result<Self, AccessError> {
        match token {
            Some(token) => Ok(Self::Token(token)),
            None if allow_anonymous => Ok(Self::Anonymous),
            None if address.ip().is_loopback() => Ok(Self::Local),
            None => Err(AccessError::Open),
        }
    }

    /// Rejects a request that is not authorized. If the server has a token, these are the requests without it. If it
    /// has none and accepts only programs on this machine, these are the requests whose header `Host` names another
    /// host: a web page in a local browser could cause them (DNS rebinding).
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), HttpReply> {
        match self {
            Self::Anonymous => Ok(()),
            Self::Local if is_local(headers) => Ok(()),
            Self::Local => Err(HttpReply::detail(
                StatusCode::FORBIDDEN,
                "the header `Host` names a host other than this machine: send the request to `localhost`, since a \
                 server without a token accepts only that and loopback addresses",
            )),
            Self::Token(token) if bearer_token(headers).is_some_and(|given| token.0.matches(given)) => Ok(()),
            Self::Token(_) => Err(HttpReply::detail(
                StatusCode::UNAUTHORIZED,
                "the request does not have the token of this server: send `Authorization: Bearer TOKEN` \
                (INVARIANT_API_KEY for clients of Invariant)",
            )
            .header(header::WWW_AUTHENTICATE, "Bearer")),
        }
    }
}

/// Returns the bearer token of a request: what follows the seven bytes `Bearer `. `None` if there is none.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Returns whether the header `Host` names this machine: `localhost` or a loopback address. A request without the
/// header passes, one with several does not.
fn is_local(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    // HTTP/1.0 needs no host, and no browser speaks it.
    let Some(host) = hosts.next() else { return true };
    let Some(host) = host.to_str().ok().filter(|_| hosts.next().is_none()) else { return false };
    // The name without the port, and then an IPv6 address without its brackets.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_server_must_be_asked_for() {
        let check = |address: &str, token: Option<&str>, anonymous: bool, expected: &str| {
            let token = token.map(|token| BearerToken::new(token).unwrap());
            let shown = match AccessControl::for_address(address.parse().unwrap(), token, anonymous) {
                Ok(access) => format!("{access:?}"),
                Err(error) => format!("{error:?}"),
            };
            assert_eq!(shown, expected, "{address}");
        };
        check("127.0.0.1:0", None, false, "Local");
        check("[::1]:0", None, false, "Local");
        check("0.0.0.0:80", None, false, "Open");
        check("[::]:80", None, false, "Open");
        check("10.0.0.1:80", None, true, "Anonymous");
        check("10.0.0.1:80", Some("0123456789abcdef\n"), false, "Token(BearerToken(Secret(..)))");
        check("127.0.0.1:80", Some("0123456789abcdef"), true, "Token(BearerToken(Secret(..)))");
        assert_eq!(BearerToken::new(" short "), Err(AccessError::ShortToken));
        assert_eq!(BearerToken::new("0123456789 abcdef"), Err(AccessError::StrangeToken));
    }

    #[test]
    fn only_the_whole_token_opens() {
        let access = AccessControl::Token(BearerToken::new("0123456789abcdef").unwrap());
        let check = |header: Option<&str>, expected: bool| {
            let mut headers = HeaderMap::new();
            header.map(|header| headers.insert(header::AUTHORIZATION, header.parse().unwrap()));
            assert_eq!(access.check(&headers).is_ok(), expected, "{header:?}");
        };
        check(Some("Bearer 0123456789abcdef"), true);
        check(Some("bearer 0123456789abcdef"), true);
        check(Some("Bearer 0123456789abcdeF"), false);
        check(Some("Bearer 0123456789abcde"), false);
        check(Some("Bearer 0123456789abcdef0"), false);
        check(Some("Bearer "), false);
        check(Some("Basic 0123456789abcdef"), false);
        check(None, false);
    }

    #[test]
    fn a_foreign_name_for_this_machine_is_refused() {
        let check = |host: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            assert_eq!(AccessControl::Local.check(&headers).is_ok(), expected, "{host}");
            assert!(AccessControl::Anonymous.check(&headers).is_ok());
        };
        check("127.0.0.1:8000", true);
        check("localhost", true);
        check("LOCALHOST:1", true);
        check("[::1]:8000", true);
        check("evil.example:8000", false);
        check("localhost.evil.example", false);
        check("10.0.0.1", false);
        check("", false);
    }
}
