//! Converts the failure of a request to a model's server into the error that the client receives, without anything that
//! the server has chosen. `turn_end` and `embeddings` call [`model_error`].

use axum::http::StatusCode;
use flowgate_lm::Error;

use super::report;
use crate::http::request_error::RequestError;

/// The message to a client for every failure of a model's server. It is constant, because details could reveal hidden
/// text.
const NO_COMPLETION: &str = "the model's server sent no answer that can be forwarded: try again later, or ask the operator of \
    the gateway; the log of the gateway has the reason";

/// Converts a failure of a model. The client receives nothing that a model's server can choose, such as its status, the
/// name of its error or the time to wait: the server may have been shown hidden text, and the policy does not label
/// errors. The operator's log receives a constant that describes the cause.
pub(super) fn model_error(error: &Error) -> RequestError {
    let (status, message) = match error {
        // The gateway itself raises these errors before it sends anything, so their text is safe to show.
        Error::OverBudget(_) => (StatusCode::PAYMENT_REQUIRED, error.to_string()),
        Error::Unsupported(_) => (StatusCode::BAD_REQUEST, error.to_string()),
        _ => (StatusCode::BAD_GATEWAY, NO_COMPLETION.to_owned()),
    };
    RequestError::new(status, message).with_cause(report::cause_of_error(error))
}
