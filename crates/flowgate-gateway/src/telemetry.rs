//! Records what the gateway does as spans of OpenTelemetry, and exports them to the collector of the operator. Without a
//! section `[telemetry]` in the configuration, nothing is recorded.
//!
//! A span has no content: only numbers, constants of this program, and names that the operator has written
//! ([`shown_names`]). It has verdicts, which may depend on hidden text, so the collector is trusted like the operator.
//!
//! * [`names`]: the names of spans, attributes and events.
//! * [`span`]: a span that is being recorded, or nothing.
//! * [`trace_parent`]: the header by which a client says to which trace its request belongs.
//! * [`refusal`]: the spans of requests that are refused before they begin.
//! * [`shown_names`]: the names of tools and models that spans may have.
//! * `export`: the queue of ended spans, and the thread that sends them; `http_client`: how it sends them.
//!
//! The model routes and the MCP routes begin spans; `chat::turn_trace` and `mcp_proxy::exchange_trace` say what is in
//! them.

pub(crate) mod export;
mod http_client;
pub(crate) mod names;
pub(crate) mod refusal;
pub(crate) mod shown_names;
pub(crate) mod span;
pub(crate) mod trace_parent;

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanKind, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope, KeyValue, trace::TraceContextExt as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::config::TelemetrySpec;
use crate::log::OperatorLog;
use export::{Exporter, SpanQueue};
use span::Span;

/// The version of OpenTelemetry's semantic conventions that defines the names of the attributes.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.38.0";

/// The recorder of spans. Cheap to clone; the default records nothing.
#[derive(Clone, Default)]
pub(crate) struct Telemetry(Option<Arc<Recording>>);

/// What all clones of a recorder share.
struct Recording {
    tracer: SdkTracer,
    /// Ends the thread when it is dropped.
    _provider: SdkTracerProvider,
    queue: Arc<SpanQueue>,
    /// Whether requests to upstreams and MCP servers say to which trace they belong.
    propagates: bool,
}

impl fmt::Debug for Telemetry {
    /// Writes whether spans are recorded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Telemetry").field(&self.0.is_some()).finish()
    }
}

impl Telemetry {
    /// Starts the thread that sends spans to the collector, if the configuration has one. Failures of the collector go
    /// to the operator's log.
    ///
    /// # Errors
    /// If the exporter or the thread cannot be created.
    pub(crate) fn open(spec: Option<&TelemetrySpec>, log: &OperatorLog) -> std::io::Result<Self> {
        let Some(spec) = spec else { return Ok(Self::default()) };
        let resource = Resource::builder_empty()
            .with_attributes(
                spec.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
            )
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_service_name(spec.service_name.clone())
            .build();
        let exporter = Exporter::new(spec, &resource).map_err(std::io::Error::other)?;
        let queue = SpanQueue::start(exporter, log.clone())?;
        let provider = SdkTracerProvider::builder()
            // `sample`, the share of traces that are recorded, applies to traces that begin here. A trace that the
            // client has begun is recorded if the client says so.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(spec.sample))))
            .with_resource(resource)
            .with_span_processor(export::QueueingProcessor(Arc::clone(&queue)))
            .build();
        let scope = InstrumentationScope::builder(names::SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(SCHEMA)
            .build();
        let tracer = provider.tracer_with_scope(scope);
        Ok(Self(Some(Arc::new(Recording { tracer, _provider: provider, queue, propagates: spec.propagate }))))
    }

    /// Returns whether spans are recorded.
    fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Reads the headers of a request, and returns the client's span to which the request belongs. `None` if the
    /// headers name no span, or spans are not recorded.
    pub(crate) fn read_parent(&self, headers: &HeaderMap) -> Option<SpanContext> {
        self.0.as_ref().and_then(|_| trace_parent::read(headers))
    }

    /// Begins the span of a request. `parent` is the client's span to which the request belongs, if the client names
    /// one.
    pub(crate) fn begin_request(&self, name: &'static str, parent: Option<&SpanContext>) -> Span {
        let Some(recording) = &self.0 else { return Span::default() };
        let parent = parent
            .map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent.clone()));
        Span::begin(recording, name, SpanKind::Server, &parent)
    }

    /// Returns the number of spans that were dropped.
    pub(crate) fn dropped_spans(&self) -> u64 {
        self.0.as_ref().map_or(0, |recording| recording.queue.dropped_spans())
    }

    /// Sends the spans that wait, and ends the thread; gives up after a short time. Blocks the calling thread.
    pub(crate) fn finish(&self) {
        if let Some(recording) = &self.0 {
            recording.queue.finish();
        }
    }
}
