//! Builds an HTTP reply: its status, headers and body. All routes return an [`HttpReply`], except for streams.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::database::DatabaseError;

/// The content type of JSON.
const JSON: &str = "application/json";

/// A complete reply.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    content_type: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
    /// Whether the log has a line for the reply already.
    is_logged: bool,
    /// An additional text for the log.
    log_annotation: Option<String>,
}

/// Marks a response for which the log has a line already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AlreadyLogged;

/// An additional text about a response for the log.
#[derive(Debug, Clone)]
pub(crate) struct LogAnnotation(pub(crate) String);

/// The body of every rejection.
#[derive(Debug, Serialize)]
pub(crate) struct RejectionBody<'a> {
    pub(crate) detail: &'a str,
}

impl HttpReply {
    /// Creates a reply with a JSON body. The log has no line for it yet.
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self {
                status,
                content_type: JSON,
                headers: Vec::new(),
                body,
                is_logged: false,
                log_annotation: None,
            },
            // This cannot happen, since the keys of all reply types are strings; the reply would still fail closed.
            Err(_) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                content_type: JSON,
                headers: Vec::new(),
                body: br#"{"detail":"Error during analysis: the answer cannot be serialized because of a bug in the gateway: report it"}"#.to_vec(),
                is_logged: false,
                log_annotation: None,
            },
        }
    }

    /// Creates a rejection: a reply with this status, and with the message `detail` in a JSON object.
    pub(crate) fn detail(status: StatusCode, detail: &str) -> Self {
        Self::json(status, &RejectionBody { detail })
    }

    /// Creates a rejection for a failure of the database: the client receives a constant, and the log the error.
    pub(crate) fn of_database_error(error: &DatabaseError) -> Self {
        let reply = Self::detail(error.status(), error.client_message());
        Self { log_annotation: Some(error.to_string()), ..reply }
    }

    /// Gives the log line of this reply the annotation of `rejection`. This is for a reply that reports in its body
    /// that a part of the request failed; `rejection` describes that failure. `None` removes the annotation.
    pub(crate) fn annotate_from(mut self, rejection: Option<Self>) -> Self {
        self.log_annotation = rejection.and_then(|rejection| rejection.log_annotation);
        self
    }

    /// Sets the additional text for the log; `None` removes it.
    pub(crate) fn annotate(self, annotation: Option<String>) -> Self {
        Self { log_annotation: annotation, ..self }
    }

    /// Returns the message of a rejection; `None` if the reply is not a rejection.
    pub(crate) fn detail_text(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        body.get("detail")?.as_str().map(str::to_owned)
    }

    /// Creates a reply with status 200, this content type and this body, which is sent unchanged.
    pub(crate) fn document(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            headers: Vec::new(),
            body: body.into(),
            is_logged: false,
            log_annotation: None,
        }
    }

    /// Creates a reply with this status, whose body is a JSON text that is sent unchanged.
    pub(crate) fn json_text(status: StatusCode, text: String) -> Self {
        Self {
            status,
            content_type: JSON,
            headers: Vec::new(),
            body: text.into_bytes(),
            is_logged: false,
            log_annotation: None,
        }
    }

    /// Creates a reply without a body. Its content type has no meaning; every reply has one.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            content_type: JSON,
            headers: Vec::new(),
            body: Vec::new(),
            is_logged: false,
            log_annotation: None,
        }
    }

    /// Creates a reply with status 200, whose body is a JSON document that is sent unchanged.
    pub(crate) fn json_document(body: &str) -> Self {
        Self::document(JSON, body)
    }

    /// Sets the status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Marks the reply as logged already, so that `service` writes no line for it.
    pub(crate) fn mark_logged(mut self) -> Self {
        self.is_logged = true;
        self
    }

    /// Returns the body, for tests.
    #[cfg(test)]
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Adds a header with a constant value.
    pub(crate) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Sets a header to a value that the gateway generated or took from the request, instead of an earlier value. If
    /// HTTP cannot express the value, the headers remain as they are. `name` is in lower case.
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.retain(|(earlier, _)| earlier != name);
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// Closes the connection after the reply: what the client still sends is not read.
    pub(crate) fn close(self) -> Self {
        self.header(header::CONNECTION, "close")
    }
}

impl IntoResponse for HttpReply {
    /// Builds the response, which no cache may store and no browser may interpret as another type. Passes on for the
    /// log whether the reply is logged already, and the annotation of its log line.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.extend(self.headers);
        if let Some(annotation) = self.log_annotation {
            response.extensions_mut().insert(LogAnnotation(annotation));
        }
        if self.is_logged {
            response.extensions_mut().insert(AlreadyLogged);
        }
        response
    }
}
