//! Maps errors of the HTTP client to errors of models, without content of the request, and decides after which errors a
//! retry may succeed. `client.rs` and `response.rs` call this module. It also recognises failures of TLS, for the
//! gateway.
//!
//! The HTTP client reports an error as a chain of causes, from its own error to the error of the operating system. The
//! most specific cause in the chain determines the result.

use std::error::Error as StdError;
use std::io;
use std::iter::successors;

use super::retry::AttemptFailure;
use crate::Error;

/// The text of [`Error::Unreachable`] if the server's certificate is not trusted.
pub const UNTRUSTED: &str = "the certificate of the model server is not trusted: its issuer is unknown, it has expired, or it names another host; check the address and the certificate";

/// The text of [`Error::Malformed`] for an answer that is not HTTP.
const NOT_HTTP: &str = "the answer is not valid HTTP";

/// Converts an error of the HTTP client into the failure of an attempt: the error that the caller gets, and whether a
/// retry may help. The causes are checked from the most specific to the least specific one.
pub(super) fn to_failure(error: &reqwest::Error) -> AttemptFailure {
    if error.is_dns() {
        return AttemptFailure::transient(unreachable_error(
            "the host name cannot be resolved; check the address",
        ));
    }
    if error.is_timeout() {
        // A timeout is retried only if no connection was established: the server has then done no work that a retry
        // would repeat.
        let timeout = AttemptFailure::from(Error::Timeout);
        return AttemptFailure { is_retryable: error.is_connect(), ..timeout };
    }
    if is_tls_failure(error) {
        return unreachable_error(UNTRUSTED).into();
    }
    let http = list_causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>());
    if http.is_some_and(hyper::Error::is_parse) {
        return Error::Malformed(NOT_HTTP).into();
    }
    if http.is_some_and(hyper::Error::is_incomplete_message) {
        return connection_failure(io::ErrorKind::UnexpectedEof);
    }
    // The last I/O error of the chain is the error of the operating system.
    let system = list_causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last();
    match system.map(io::Error::kind) {
        // If a body is malformed, the HTTP parser reports an I/O error of these kinds.
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) if http.is_some() => {
            Error::Malformed(NOT_HTTP).into()
        }
        Some(kind) if kind != io::ErrorKind::Other => connection_failure(kind),
        _ if error.is_connect() => AttemptFailure::transient(unreachable_error(
            "no connection can be established; check the address, and that the server runs",
        )),
        // For example, an HTTP/2 server has reset the stream of the request.
        _ if http.is_some() => connection_failure(io::ErrorKind::ConnectionReset),
        _ => unreachable_error("the HTTP client cannot send the request; check the address").into(),
    }
}

/// Returns whether TLS caused an error: usually, the server's certificate is not trusted.
#[must_use]
pub fn is_tls_failure(error: &(dyn StdError + 'static)) -> bool {
    list_causes(error).any(|cause| cause.is::<rustls::Error>())
}

/// Returns the error `first` and its causes, from the outermost one to the innermost one. The error of the HTTP client
/// itself does not say why a request failed, so callers search the causes.
fn list_causes<'e>(
    first: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    successors(Some(first), |&cause| match cause.downcast_ref::<io::Error>() {
        // `source` of an I/O error skips the error that it wraps, and returns the source of the wrapped error.
        Some(system) => system.get_ref().map(|inner| -> &(dyn StdError + 'static) { inner }),
        None => cause.source(),
    })
}

/// Returns the failure for a connection that the system could not establish or that was closed, by the kind of the
/// system's error. A retry may succeed.
fn connection_failure(kind: io::ErrorKind) -> AttemptFailure {
    AttemptFailure::transient(unreachable_error(&format!(
        "{kind}; check the address, and that the server runs"
    )))
}

/// Returns the error that the model cannot be reached, for this reason.
fn unreachable_error(why: &str) -> Error {
    Error::Unreachable(why.to_owned())
}
