//! Sends the requests of `rmcp` to issuers, within limits on time and size. [`IssuerClient`] follows no redirect, and
//! sends requests only over HTTPS or, if the caller allows it, without TLS to this machine. The errors of `rmcp` do not
//! contain the reason why a request failed, so the client remembers the reason for `discovery`, `token_source` and
//! `login`.

use std::error::Error;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};
use serde_json::Value;
use ureq::tls::TlsConfig;

use crate::error::TokenFailure;
use crate::secure_url::{Channel, channel};

/// The largest answer of an issuer, in bytes.
const MAX_ANSWER: u64 = 256 << 10;
/// The time limit for a connection to an issuer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a whole request to an issuer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the HTTP client for issuers, which trusts the certificates of `tls`. The client follows no redirect and uses
/// no proxy, since only the issuer may receive the secrets.
#[must_use]
pub fn agent(tls: TlsConfig) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        // An answer with the status of an error is an answer too.
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // No connection is kept for a later request: the issuer may have closed it, and the request would then have no
        // answer.
        .max_idle_connections(0)
        .proxy(None)
        .tls_config(tls)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(TIMEOUT))
        .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
        .build();
    ureq::Agent::new_with_config(config)
}

/// The HTTP client through which `rmcp` communicates with issuers.
#[derive(Clone)]
pub(crate) struct IssuerClient {
    agent: ureq::Agent,
    /// Whether requests may be sent to this machine without TLS: only if the configured address is on this machine as
    /// well. A remote server must not choose a service of this machine that receives requests.
    allows_this_machine: bool,
    /// Why the last failed request has failed, until [`take_failure`](Self::take_failure) removes it.
    failure: Arc<Mutex<Option<TokenFailure>>>,
}

impl IssuerClient {
    /// Creates a client that may send requests to this machine without TLS only with `allows_this_machine`.
    pub(crate) fn new(agent: ureq::Agent, allows_this_machine: bool) -> Self {
        Self { agent, allows_this_machine, failure: Arc::default() }
    }

    /// Returns and removes the reason of the last failed request since the last call; `None` if no request has failed.
    pub(crate) fn take_failure(&self) -> Option<TokenFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns whether requests may be sent to an address.
    pub(crate) fn may_send_to(&self, uri: &http::Uri) -> bool {
        match channel(uri) {
            Some(Channel::Https) => true,
            Some(Channel::ThisMachine) => self.allows_this_machine,
            None => false,
        }
    }

    /// Sends a request, and returns the answer. Blocks.
    ///
    /// # Errors
    /// If nothing may be sent to the address, there is no answer, or the answer is too large.
    fn send(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, TokenFailure> {
        if !self.may_send_to(request.uri()) {
            return Err(TokenFailure::Insecure);
        }
        // An empty body is not sent at all: a GET request has none.
        let answer = match request.body().is_empty() {
            true => self.agent.run(request.map(|_| ())),
            false => self.agent.run(request),
        };
        let (head, body) = answer.map_err(|error| failure_of(&error))?.into_parts();
        let mut bytes = Vec::new();
        // Reads one byte more than the limit, to notice an answer that is too large.
        let read = body.into_reader().take(MAX_ANSWER + 1).read_to_end(&mut bytes);
        read.map_err(|_| TokenFailure::BrokenOff)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_ANSWER {
            return Err(TokenFailure::TooLarge(MAX_ANSWER));
        }
        Ok(http::Response::from_parts(head, bytes))
    }

    /// Sends a request, and remembers the reason if it fails. An answer with the HTTP status of an error counts as a
    /// failure; the status is remembered with the OAuth code in the answer, if there is one. Blocks.
    fn send_and_note(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        // `rmcp` looks for metadata at several addresses with GET. A status from 300 to 499 at one of them is therefore
        // not a failure, except 429 (too many requests).
        let is_lookup = request.method() == http::Method::GET;
        let sent = self.send(request);
        let failure = match &sent {
            Err(failure) => Some(failure.clone()),
            Ok(answer) => match answer.status().as_u16() {
                200..=299 => None,
                status @ 300..=499 if is_lookup && status != 429 => None,
                status => Some(match oauth_code(answer.body()) {
                    Some(code) => TokenFailure::Refused(status, code),
                    None => TokenFailure::Status(status),
                }),
            },
        };
        if failure.is_some() {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        }
        // `rmcp` does not print the error, so it needs no text.
        sent.map_err(|_| "the request failed".into())
    }
}

/// Returns the code of an error answer of OAuth, such as `invalid_grant`; `None` if the answer has no code, or a text
/// that does not have the form of such a code (lower-case letters and underscores, at most 40): it could contain a
/// secret.
fn oauth_code(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let code = answer.get("error")?.as_str()?;
    let is_code = |code: &str| {
        (1..=40).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    is_code(code).then(|| code.to_owned())
}

/// Returns why a request has no answer.
fn failure_of(error: &ureq::Error) -> TokenFailure {
    match error {
        ureq::Error::Timeout(_) => TokenFailure::TimedOut,
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => TokenFailure::Untrusted,
        // A failed handshake is an I/O error around that of TLS.
        ureq::Error::Io(failure) if failure.get_ref().is_some_and(is_tls_error) => TokenFailure::Untrusted,
        // All other errors are taken for a failed connection.
        _ => TokenFailure::Unreachable,
    }
}

/// Returns whether an error, or one of its causes, is an error of TLS, such as a certificate that is not trusted.
fn is_tls_error(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl OAuthHttpClient for IssuerClient {
    /// Sends a request of `rmcp` on a thread on which it may block.
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let client = self.clone();
        Box::pin(
            async move { tokio::task::spawn_blocking(move || client.send_and_note(request.request)).await? },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_of_oauth_are_taken_from_an_answer() {
        for (answer, expected) in [
            (r#"{"error": "invalid_client", "error_description": "s3cret"}"#, Some("invalid_client")),
            (r#"{"error": "s3cret of the client"}"#, None),
            (r#"{"error": "\u001b[2J"}"#, None),
            (r#"{"error": ""}"#, None),
            (r#"{"error": 1}"#, None),
            ("[]", None),
            ("not JSON", None),
        ] {
            assert_eq!(oauth_code(answer.as_bytes()).as_deref(), expected, "{answer}");
        }
        assert_eq!(oauth_code(format!(r#"{{"error": "{}"}}"#, "a".repeat(41)).as_bytes()), None);
    }

    #[test]
    fn a_remote_server_cannot_choose_an_address_on_this_machine() {
        for (url, allows, expected) in [
            ("https://issuer.example/token", false, true),
            ("http://127.0.0.1:80/token", false, false),
            ("http://127.0.0.1:80/token", true, true),
            ("http://issuer.example/token", true, false),
        ] {
            let client = IssuerClient::new(agent(TlsConfig::default()), allows);
            assert_eq!(client.may_send_to(&url.parse().unwrap()), expected, "{url} {allows}");
            if !expected {
                let request = http::Request::post(url).body(b"s3cret".to_vec()).unwrap();
                assert!(client.send_and_note(request).is_err());
                assert_eq!(client.take_failure(), Some(TokenFailure::Insecure));
            }
        }
    }
}
