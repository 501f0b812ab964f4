//! Decodes the errors that a model's server reports by an HTTP status, in a body or within a stream, and encodes the
//! errors of the gateway. The decoders of answers in all formats, the HTTP client, and the `encode_error` functions of
//! the formats call this module.
//!
//! Only the status and the name of a server's error are used. The message of the error is not, since it may quote the
//! request.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;

/// The HTTP statuses of errors, each with OpenAI's, Anthropic's and Gemini's name of the error.
const NAMES: [(u16, &str, &str, &str); 10] = [
    (400, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    (401, "invalid_api_key", "authentication_error", "UNAUTHENTICATED"),
    (403, "permission_denied", "permission_error", "PERMISSION_DENIED"),
    (404, "not_found_error", "not_found_error", "NOT_FOUND"),
    (413, "request_too_large", "request_too_large", "INVALID_ARGUMENT"),
    (429, "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"),
    (500, "server_error", "api_error", "INTERNAL"),
    (503, "service_unavailable", "overloaded_error", "UNAVAILABLE"),
    (504, "timeout", "timeout_error", "DEADLINE_EXCEEDED"),
    (529, "overloaded", "overloaded_error", "UNAVAILABLE"),
];

/// Returns the error that an object describes, such as `{"type": "overloaded_error", "message": "..."}`. The name of
/// the error may be in the fields `code`, `type` and `status` (in Gemini's format). Some servers send the HTTP status
/// in the field `code` instead. If the object states no HTTP status, the status is derived from the names, and is 500
/// if all names are unknown.
pub(crate) fn reported_error(error: &Value) -> Error {
    let word = |key: &str| error.get(key).and_then(Value::as_str).filter(|word| is_word(word));
    // The names that the object has; the first of them is shown in the returned error.
    let names = [word("code"), word("type"), word("status")];
    let name = names.iter().flatten().next().copied();
    let stated = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    // The HTTP status of the first name that a provider has for a status.
    let by_name = || {
        let known = |name: &&str| {
            NAMES.iter().find(|(_, openai, anthropic, gemini)| [openai, anthropic, gemini].contains(&name))
        };
        names.iter().flatten().find_map(known).map(|(status, ..)| *status)
    };
    let status = stated.filter(|code| (400..600).contains(code)).or_else(by_name).unwrap_or(500);
    // This object states no delay before a retry: servers send it in a header.
    error_for_status(status, name, None)
}

/// Returns the error for an HTTP status: [`Error::Busy`] for 429, 503 and 529, and [`Error::Rejected`] for any other
/// status. `name` is the server's name of the error; it is ignored if it is not a plain word. `retry_after` is the
/// delay that the server requests before a retry.
pub(crate) fn error_for_status(status: u16, name: Option<&str>, retry_after: Option<Duration>) -> Error {
    if matches!(status, 429 | 503 | 529) {
        return Error::Busy { retry_after };
    }
    let name = name.filter(|name| is_word(name)).unwrap_or("no reason given");
    Error::Rejected { status, message: name.to_owned() }
}

/// Returns whether a text can be the name of an error: a short word without spaces. A sentence could quote the request.
fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.'))
}

/// The names that providers have for a status.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorNames {
    /// OpenAI's name.
    pub(super) openai: &'static str,
    /// Anthropic's name.
    pub(super) anthropic: &'static str,
    /// Gemini's name.
    pub(super) gemini: &'static str,
}

/// Returns the names that providers have for an HTTP status. A status that is not in the table gets the names of 400 if
/// it is below 500, and otherwise those of 500.
pub(super) fn error_names(status: u16) -> ErrorNames {
    let fallback = if status < 500 { 400 } else { 500 };
    let row = |status: u16| NAMES.into_iter().find(|(known, ..)| *known == status);
    // The table has rows for 400 and 500, so the last names are never used.
    let (_, openai, anthropic, gemini) =
        row(status).or_else(|| row(fallback)).unwrap_or((500, "error", "error", "UNKNOWN"));
    ErrorNames { openai, anthropic, gemini }
}

/// Encodes an error in OpenAI's formats.
pub(super) fn encode_openai_error(status: u16, message: &str) -> Value {
    let name = error_names(status).openai;
    json!({"error": {"message": message, "type": name, "param": null, "code": name}})
}

#[cfg(test)]
mod tests {
    use super::super::Api;
    use super::*;

    fn check(error: &Value, expected: &str) {
        assert_eq!(reported_error(error).to_string(), expected, "{error}");
    }

    #[test]
    fn only_error_names_are_passed_on() {
        let rejects = |status: u16, name: &str| {
            format!(
                "the model's server rejected the request with the HTTP status {status} ({name}); see the documentation of its API"
            )
        };
        check(
            &json!({"type": "invalid_request_error", "code": null, "message": "secret"}),
            &rejects(400, "invalid_request_error"),
        );
        check(
            &json!({"type": "invalid_request_error", "code": "context_length_exceeded"}),
            &rejects(400, "context_length_exceeded"),
        );
        check(&json!({"type": "overloaded_error"}), "the model server is busy; try again later");
        check(&json!({"code": "rate_limit_exceeded"}), "the model server is busy; try again later");
        check(&json!({"code": 404, "type": "NotFoundError"}), &rejects(404, "NotFoundError"));
        check(&json!({"type": "you asked for a secret"}), &rejects(500, "no reason given"));
        check(
            &json!({"status": "PERMISSION_DENIED", "message": "secret"}),
            &rejects(403, "PERMISSION_DENIED"),
        );
        check(&json!({"code": 503, "status": "UNAVAILABLE"}), "the model server is busy; try again later");
        check(&json!("text"), &rejects(500, "no reason given"));
    }

    #[test]
    fn what_is_encoded_is_read() {
        for api in Api::ALL {
            for status in [400, 401, 403, 404, 413, 429, 500, 503, 504, 529] {
                let body = api.encode_error(status, "no");
                let read = reported_error(body.get("error").unwrap());
                let decoded = match read {
                    Error::Rejected { status, .. } => status,
                    _ => 429,
                };
                assert_eq!(decoded, if matches!(status, 503 | 529) { 429 } else { status }, "{body}");
            }
        }
    }
}
