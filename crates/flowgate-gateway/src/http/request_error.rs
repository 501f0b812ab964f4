//! Describes why a request for a model or an MCP server failed: the message for the client, and the cause for the
//! operator's log. The two differ, since a client may learn less than the operator: an agent passes what it receives on
//! to its model. The model routes and the MCP routes create these errors.

use axum::http::StatusCode;
use flowgate::monitor::PushError;

/// The failure of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The cause, for the log.
    pub(crate) cause: RequestErrorCause,
    /// A detail for the log only. It may name files of the operator and never contains content.
    pub(crate) detail: Option<String>,
}

/// The cause of a failure. Its texts are constants of the gateway: messages may quote what others wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestErrorCause {
    /// The request or its client.
    Request,
    /// The conversation has reached a limit on its size: on its stored bytes, its memory or its events.
    Full,
    /// The client has disconnected.
    Gone,
    /// A model's server.
    Upstream(&'static str),
    /// The database or the audit log.
    Store(&'static str),
}

impl RequestError {
    /// Creates a failure with this message for the client, whose cause is the request itself.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), cause: RequestErrorCause::Request, detail: None }
    }

    /// Sets the cause, for the operator's log. Without this, the cause is the request itself.
    pub(crate) fn with_cause(self, cause: RequestErrorCause) -> Self {
        Self { cause, ..self }
    }

    /// Adds a detail for the log.
    pub(crate) fn with_detail(self, detail: String) -> Self {
        Self { detail: Some(detail), ..self }
    }
}

impl From<PushError> for RequestError {
    /// Reports that the trace of a conversation admits no further event, because it has reached a limit of its size.
    fn from(error: PushError) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            format!("the conversation has reached a size limit: begin a new one ({error})"),
        )
        .with_cause(RequestErrorCause::Full)
    }
}
