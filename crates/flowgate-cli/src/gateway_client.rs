//! Calls the HTTP routes of a running gateway. `flowgate approvals`, `keys`, `login-link`, `explain --question` and
//! `trace export --gateway` call the routes for people, with the key of a person. `flowgate hook` calls the route for
//! hooks, with the key of the agent. `flowgate doctor` calls only [`trusted_in`].
//!
//! No redirect is followed and no proxy is used, so the key reaches only the address that the command line names. The
//! key comes from a file or the environment, never from the command line, which other users of the machine can read.

use std::path::Path;
use std::time::Duration;

use flowgate_lm::remote::Authorities;
use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::args::{AGENT_KEY, GatewayArgs, HookArgs, PERSON_KEY};
use crate::input::{self, InputError};
use crate::output::Console;

/// The time limit for a connection, and for the head of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the body of an answer. It also ends a stream of events, which its reader then opens again:
/// otherwise a dead connection would never be noticed.
const BODY_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest answer, in bytes.
const MAX_ANSWER: u64 = 64 << 20;
/// The longest error message of a gateway that is shown, in characters; a longer one is cut.
const MAX_SENTENCE: usize = 500;

/// The reason why a request failed.
#[derive(Debug)]
pub(crate) enum GatewayError {
    /// The gateway refuses the request, with this message.
    Refused(String),
    /// There is no connection, or the answer is not that of a gateway; the reason, with the address.
    Failed(String),
}

impl GatewayError {
    /// Prints the message of a gateway that refuses the request, and returns 1, the exit code of the command.
    ///
    /// # Errors
    /// If the request failed: the reason, which the caller prints; the exit code is then 2.
    pub(crate) fn report(self, output: &mut Console) -> Result<u8, InputError> {
        match self {
            Self::Refused(sentence) => {
                output.error(&sentence);
                Ok(1)
            }
            Self::Failed(why) => Err(InputError(why)),
        }
    }
}

impl GatewayError {
    /// Returns the message, no matter whether the gateway refuses the request or the request failed.
    pub(crate) fn into_sentence(self) -> String {
        let (Self::Refused(sentence) | Self::Failed(sentence)) = self;
        sentence
    }
}

/// A gateway, and the key with which it is asked.
pub(crate) struct GatewayClient {
    agent: ureq::Agent,
    /// The address, without a slash at its end.
    address: String,
    key: String,
}

impl GatewayClient {
    /// Creates a client of the gateway that the options name, with the person's key and the certificates that the
    /// options name. Warns if the key would be sent unencrypted.
    ///
    /// # Errors
    /// If no key is given, or two; if a file cannot be read; or if the address is not one of HTTP or HTTPS.
    pub(crate) fn new(options: &GatewayArgs, output: &mut Console) -> Result<Self, InputError> {
        let key = read_key(options.key_file.as_deref(), PERSON_KEY, "a person");
        Self::with_key(&options.gateway, options.ca_file.as_deref(), key, output)
    }

    /// Creates a client of the gateway at `address` for the hook of an agent, with the agent's key.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn for_hook(
        address: &str,
        options: &HookArgs,
        output: &mut Console,
    ) -> Result<Self, InputError> {
        let key = read_key(options.key_file.as_deref(), AGENT_KEY, "the agent");
        Self::with_key(address, options.ca_file.as_deref(), key, output)
    }

    /// Creates a client of the gateway at `address` with a key. `ca_file` has the certificates of the authorities that
    /// may have signed the gateway's certificate, in place of the well-known ones. A key that could not be read is an
    /// error only after the address was checked.
    ///
    /// # Errors
    /// If the address is not one of HTTP or HTTPS, the file cannot be read, or the key could not be read.
    fn with_key(
        address: &str,
        ca_file: Option<&Path>,
        key: Result<String, InputError>,
        output: &mut Console,
    ) -> Result<Self, InputError> {
        let address = address.trim_end_matches('/').to_owned();
        check_address(&address, output)?;
        let tls = match ca_file {
            None => TlsConfig::default(),
            Some(path) => trusted_in(path)?,
        };
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A redirect could send the key to another address.
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_recv_body(Some(BODY_TIMEOUT))
            .tls_config(tls)
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { agent: ureq::Agent::new_with_config(config), address, key: key? })
    }

    /// Returns the address of the gateway, without a slash at its end.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a GET request, and returns the JSON of the answer.
    ///
    /// # Errors
    /// If the gateway refuses the request, or does not answer.
    pub(crate) fn get(&self, path: &str) -> Result<Value, GatewayError> {
        self.json(self.request("GET", path, None)?)
    }

    /// Sends a POST request with a JSON body, and returns the JSON of the answer.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, GatewayError> {
        self.json(self.request("POST", path, Some(body))?)
    }

    /// Sends a DELETE request, and returns the JSON of the answer.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) fn delete(&self, path: &str) -> Result<Value, GatewayError> {
        self.json(self.request("DELETE", path, None)?)
    }

    /// Opens a stream of server-sent events.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) fn stream(&self, path: &str) -> Result<ureq::BodyReader<'static>, GatewayError> {
        let response = self.request("GET", path, None)?;
        Ok(response.into_body().into_reader())
    }

    /// Sends a request, and returns the response if its status is from 200 to 299. The body is not read yet.
    ///
    /// # Errors
    /// [`GatewayError::Refused`] for another status with a `detail` in the body, the error message of a gateway;
    /// [`GatewayError::Failed`] for any other answer, or none.
    fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<ureq::Body>, GatewayError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address))
            .header("authorization", format!("Bearer {}", self.key));
        let unusable = |_| {
            GatewayError::Failed(format!(
                "{}: the key or the id has characters that a request cannot have; copy both again",
                self.address
            ))
        };
        let sent = match body {
            None => self.agent.run(request.body(()).map_err(unusable)?),
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.to_string()).map_err(unusable)?)
            }
        };
        let mut response =
            sent.map_err(|error| GatewayError::Failed(format!("{}: {}", self.address, describe(&error))))?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        // A gateway refuses a request with JSON that has its message in the field `detail`.
        let answer: Option<Value> = response
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER)
            .read_to_vec()
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let detail = answer.as_ref().and_then(|answer| answer.get("detail")).and_then(Value::as_str);
        let Some(detail) = detail else {
            let message = format!(
                "{}: the answer is not that of a gateway (status {status}); check the address",
                self.address
            );
            return Err(GatewayError::Failed(message));
        };
        Err(GatewayError::Refused(detail.chars().take(MAX_SENTENCE).collect()))
    }

    /// Reads the body of a response as JSON. Fails with [`GatewayError::Failed`] if the connection breaks, or the
    /// body is larger than [`MAX_ANSWER`] or not JSON.
    fn json(&self, mut response: Response<ureq::Body>) -> Result<Value, GatewayError> {
        let read = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let read =
            read.map_err(|error| GatewayError::Failed(format!("{}: {}", self.address, describe(&error))))?;
        serde_json::from_slice(&read).map_err(|_| {
            GatewayError::Failed(format!("{}: the answer is not JSON; check the address", self.address))
        })
    }
}

/// Fails if `address` is not one of HTTP or HTTPS. Warns if the key would be sent unencrypted to another machine.
fn check_address(address: &str, output: &mut Console) -> Result<(), InputError> {
    let uri: Option<ureq::http::Uri> = address.parse().ok();
    let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]" | "::1");
    match uri.as_ref().and_then(|uri| uri.scheme_str()) {
        Some("https") => {}
        Some("http") if is_local => {}
        Some("http") => output.warning(&format!(
            "{address}: the key is sent unencrypted; use an https:// address if others can read the network"
        )),
        _ => {
            let message = format!(
                "--gateway: `{address}` is not the address of a gateway; write it as http://127.0.0.1:8000"
            );
            return Err(InputError(message));
        }
    }
    Ok(())
}

/// Returns the path of the gateway's route for the question with this id.
pub(crate) fn question_path(id: &str) -> String {
    format!("/api/v1/approvals/{}", encode(id))
}

/// Percent-encodes a text, as a segment of a path or a value of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Returns the key of `owner`, such as "a person", from the file or from the environment variable. Fails if both or
/// neither is given, if the file cannot be read, or if the key is empty or has characters that no key has.
fn read_key(file: Option<&Path>, variable: &str, owner: &str) -> Result<String, InputError> {
    let (text, source) = match (file, std::env::var(variable)) {
        (Some(_), Ok(_)) => {
            return Err(InputError(format!(
                "the key is given twice: leave out `--key-file`, or unset the environment variable {variable}"
            )));
        }
        // The key is in the file, so it does not matter whether the variable is absent or invalid.
        (Some(file), Err(_)) => (input::bounded_text(file, 1 << 16)?, file.display().to_string()),
        (None, Ok(text)) => (text, variable.to_owned()),
        (None, Err(std::env::VarError::NotPresent)) => {
            return Err(InputError(format!(
                "there is no key of {owner}: set the environment variable {variable}, or use `--key-file FILE`"
            )));
        }
        // The text of this error would contain the key.
        (None, Err(_)) => {
            return Err(InputError(format!("{variable}: the key is not valid UTF-8; copy it again")));
        }
    };
    let key = text.trim();
    if key.is_empty() {
        return Err(InputError(format!("{source}: the key is empty; give the key of {owner}")));
    }
    if key.chars().any(|c| !c.is_ascii_graphic()) {
        return Err(InputError(format!(
            "{source}: the key has white space within it, or characters other than ASCII; copy it again"
        )));
    }
    Ok(key.to_owned())
}

/// Returns a TLS configuration that trusts only the authorities whose certificates are in a file of at most 16 MiB.
///
/// # Errors
/// If the file cannot be read, or has no certificate or one that cannot be parsed.
pub(crate) fn trusted_in(path: &Path) -> Result<TlsConfig, InputError> {
    let authorities = Authorities::read(input::bounded_text(path, 16 << 20)?.as_bytes());
    let named = |error| InputError(format!("{}: {error}", path.display()));
    Ok(trusted(&authorities.map_err(named)?))
}

/// Returns a TLS configuration that trusts only these authorities. Without any, it trusts no server.
fn trusted(authorities: &Authorities) -> TlsConfig {
    let certificates = authorities.certificates().unwrap_or_default().iter();
    let roots: Vec<Certificate<'static>> =
        certificates.map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
    TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build()
}

/// Returns a clause for an error message that says why a request has no answer that can be used.
fn describe(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "the gateway does not answer in time; check that it runs",
        ureq::Error::HostNotFound => "the host name of the gateway cannot be resolved; check the address",
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => {
            "the certificate of the gateway is not trusted; name its authority with `--ca-file`"
        }
        ureq::Error::BadUri(_) => "the address is not that of a gateway; write it as http://127.0.0.1:8000",
        ureq::Error::BodyExceedsLimit(_) => "the answer is larger than 64 MiB; check the address",
        // All other errors are reported as a failed connection.
        _ => "there is no connection; check that the gateway runs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_addresses_are_encoded() {
        let check = |text: &str, expected: &str| assert_eq!(encode(text), expected);
        check("a-1_b.c~", "a-1_b.c~");
        check("a/../b?c=d&e", "a%2F..%2Fb%3Fc%3Dd%26e");
        check("é\n", "%C3%A9%0A");
    }
}
