//! Records the spans of requests that are refused before a turn or an exchange begins: by a limit of their client, or
//! because of their head or body. Requests of unauthenticated clients have no span: anybody can send them, and could
//! fill the queue of spans. `chat::model_request`, `mcp_proxy::request` and `http::service` use it.

use axum::http::StatusCode;
use opentelemetry::trace::SpanContext;

use super::{Telemetry, names};

/// Records the span of a request if the request is refused, and nothing otherwise. Cheap to clone; the default never
/// records anything.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusedRequest(Option<RefusedSpan>);

/// The contents of the span of a refused request, and the recorder for it.
#[derive(Debug, Clone)]
struct RefusedSpan {
    telemetry: Telemetry,
    operation: &'static str,
    client: String,
    parent: Option<SpanContext>,
}

impl RefusedRequest {
    /// Prepares the span of a request for the case that the request is refused. `operation` becomes the name of the
    /// span, since the model or tool is not known yet; `client` is the name of the client, and `parent` the client's
    /// span to which the request belongs.
    pub(crate) fn new(
        telemetry: &Telemetry,
        operation: &'static str,
        client: &str,
        parent: Option<SpanContext>,
    ) -> Self {
        if !telemetry.is_on() {
            return Self::default();
        }
        Self(Some(RefusedSpan { telemetry: telemetry.clone(), operation, client: client.to_owned(), parent }))
    }

    /// Records a span of its own for the request, which is refused with this status. Does nothing if the request has
    /// no span.
    pub(crate) fn record(&self, status: StatusCode) {
        let Some(refused) = &self.0 else { return };
        let mut span = refused.telemetry.begin_request(refused.operation, refused.parent.as_ref());
        // `OTHER` is the name of the span of a message to an MCP server, which is no operation on a model.
        if refused.operation != names::OTHER {
            span.set(names::OPERATION, refused.operation);
        }
        span.set(names::CLIENT, refused.client.clone());
        span.set_number(names::STATUS, status.as_u16());
        // The span ends when it is dropped, at the end of this function.
        span.fail(status.as_str().to_owned());
    }
}
