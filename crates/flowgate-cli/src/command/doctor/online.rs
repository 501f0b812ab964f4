//! Sends a request to a server to learn whether it answers, for `flowgate doctor --online`. `gateway` calls it for
//! the servers of models. No key is sent.

use std::time::Duration;

use flowgate_lm::remote::is_tls_failure;
use ureq::tls::TlsConfig;

/// Why there is no answer if the certificate of the server is not trusted.
const UNTRUSTED: &str =
    "the certificate of the server is not trusted; name the certificate of its authority as `ca-file`";

/// The time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a GET request to a URL, and returns the HTTP status of the answer. `tls` says which certificates of the server
/// are trusted.
///
/// # Errors
/// Returns why there is no answer, as a clause. The clause does not contain the URL, because a URL can contain a secret.
pub(super) fn status(url: &str, tls: TlsConfig) -> Result<u16, &'static str> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // A redirect is an answer as well: it shows that the server can be reached.
        .max_redirects(0)
        // The request is not sent through a proxy that the environment names.
        .proxy(None)
        .tls_config(tls)
        .timeout_global(Some(TIMEOUT))
        .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
        .build();
    let answer = ureq::Agent::new_with_config(config).get(url).call();
    answer.map(|answer| answer.status().as_u16()).map_err(|error| match error {
        ureq::Error::Timeout(_) => "the server does not answer within 10 s; check that it runs",
        ureq::Error::HostNotFound => "the host name of the server cannot be resolved; check its `url`",
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => UNTRUSTED,
        // A failed handshake is an I/O error around that of TLS.
        ureq::Error::Io(failure) if is_tls_failure(&failure) => UNTRUSTED,
        ureq::Error::BadUri(_) => "the `url` is not a valid address; write https:// with a host",
        // All other errors are taken for a failed connection.
        _ => "there is no connection; check that the server runs",
    })
}
