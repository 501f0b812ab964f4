//! What is answered, before it becomes bytes.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

const JSON: &str = "application/json";

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    content_type: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
    is_logged: bool,
}

/// That the log has a line for this answer already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logged;

/// What every refusal says.
#[derive(Debug, Serialize)]
pub(crate) struct Detail<'a> {
    pub(crate) detail: &'a str,
}

impl Reply {
    /// An answer in JSON.
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self { status, content_type: JSON, headers: Vec::new(), body, is_logged: false },
            // Our own types have text for keys, so that this does not happen; the answer would be closed.
            Err(_) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                content_type: JSON,
                headers: Vec::new(),
                body: br#"{"detail":"Error during analysis: the answer cannot be written"}"#.to_vec(),
                is_logged: false,
            },
        }
    }

    /// A refusal.
    pub(crate) fn detail(status: StatusCode, detail: &str) -> Self {
        Self::json(status, &Detail { detail })
    }

    /// A document that is there already.
    pub(crate) fn document(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            headers: Vec::new(),
            body: body.into(),
            is_logged: false,
        }
    }

    /// A text in JSON.
    pub(crate) fn json_text(status: StatusCode, text: String) -> Self {
        Self { status, content_type: JSON, headers: Vec::new(), body: text.into_bytes(), is_logged: false }
    }

    /// An answer without a body.
    pub(crate) fn nothing(status: StatusCode) -> Self {
        Self { status, content_type: JSON, headers: Vec::new(), body: Vec::new(), is_logged: false }
    }

    /// A document in JSON that is there already.
    pub(crate) fn json_document(body: &str) -> Self {
        Self::document(JSON, body)
    }

    /// The same answer, of which the log says something already.
    pub(crate) fn logged(mut self) -> Self {
        self.is_logged = true;
        self
    }

    /// The body, for tests.
    #[cfg(test)]
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// The same answer with a header.
    pub(crate) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// The same answer with a header whose value was made up here, or stood in the request.
    pub(crate) fn named(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.retain(|(known, _)| known != name);
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// The same answer, after which the connection ends: what the client still sends is not read.
    pub(crate) fn close(self) -> Self {
        self.header(header::CONNECTION, "close")
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.extend(self.headers);
        if self.is_logged {
            response.extensions_mut().insert(Logged);
        }
        response
    }
}
