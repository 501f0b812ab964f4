//! Records one operation of the gateway, such as a turn or a call, as a span of OpenTelemetry ([`Span`]): its times,
//! its attributes and its events. `chat::turn_trace` and `mcp_proxy::exchange_trace` begin and fill the spans.
//!
//! The caller need not know whether telemetry is on: if it is off, or the trace is not sampled, a [`Span`] records
//! nothing.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _,
};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::Span as SdkSpan;

use super::{Recording, names, trace_parent};
use crate::random::hex;

/// A span that ends when it is dropped. The default (`None`) records nothing.
#[derive(Debug, Default)]
pub(crate) struct Span(Option<Box<OpenSpan>>);

/// A span that has begun, with the recorder that exports it.
struct OpenSpan {
    span: SdkSpan,
    recording: Arc<Recording>,
}

impl std::fmt::Debug for OpenSpan {
    /// Writes the ids of the trace and of the span.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenSpan").field(self.span.span_context()).finish()
    }
}

/// The identity of a span in its trace, by which other spans begin as its children. Cheap to clone; the default
/// (`None`) belongs to no span, and its children record nothing.
#[derive(Clone, Default)]
pub(crate) struct SpanPlace(Option<(Arc<Recording>, SpanContext)>);

impl std::fmt::Debug for SpanPlace {
    /// Writes the ids of the trace and of the span, if there is one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SpanPlace").field(&self.0.as_ref().map(|(_, context)| context)).finish()
    }
}

impl Span {
    /// Begins a span. `parent` has the span that the new one belongs to, if there is one.
    pub(super) fn begin(
        recording: &Arc<Recording>,
        name: impl Into<std::borrow::Cow<'static, str>>,
        kind: SpanKind,
        parent: &Context,
    ) -> Self {
        Self::build(recording, SpanBuilder::from_name(name).with_kind(kind), parent)
    }

    /// Begins the span that `builder` describes, under the span of `parent`.
    fn build(recording: &Arc<Recording>, builder: SpanBuilder, parent: &Context) -> Self {
        let span = recording.tracer.build_with_context(builder, parent);
        Self(Some(Box::new(OpenSpan { span, recording: Arc::clone(recording) })))
    }

    /// Returns whether the span is recorded; if not, its attributes need not be computed.
    pub(crate) fn is_recording(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.span.is_recording())
    }

    /// Returns the place of this span, under which its children begin.
    pub(crate) fn place(&self) -> SpanPlace {
        SpanPlace(self.0.as_ref().map(|open| (Arc::clone(&open.recording), open.span.span_context().clone())))
    }

    /// Returns the id of the trace, in hexadecimal, if the span is recorded.
    pub(crate) fn trace_id(&self) -> Option<String> {
        let open = self.0.as_ref().filter(|open| open.span.is_recording())?;
        Some(hex(&open.span.span_context().trace_id().to_bytes()))
    }

    /// Replaces the name of the span.
    pub(crate) fn rename(&mut self, name: String) {
        if let Some(open) = &mut self.0 {
            open.span.update_name(name);
        }
    }

    /// Sets an attribute of the span, one of [`names`].
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Sets an attribute to a list of constants.
    pub(crate) fn set_list(&mut self, key: &'static str, values: impl IntoIterator<Item = &'static str>) {
        self.set(key, list(values));
    }

    /// Sets an attribute to a number.
    pub(crate) fn set_number(&mut self, key: &'static str, value: impl TryInto<i64>) {
        self.set(key, value.try_into().unwrap_or(i64::MAX));
    }

    /// Adds an event that happened at a time.
    pub(crate) fn add_event(
        &mut self,
        name: &'static str,
        at: SystemTime,
        attributes: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        if let Some(open) = &mut self.0 {
            let attributes = attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
            open.span.add_event_with_timestamp(name, at, attributes);
        }
    }

    /// Marks the operation as failed, with a constant or a number as the reason (`error`). The status has no
    /// description, which could have content.
    pub(crate) fn fail(&mut self, error: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.span.set_attribute(KeyValue::new(names::ERROR, error));
            open.span.set_status(Status::error(""));
        }
    }

    /// Ends the span at a time in the past.
    pub(crate) fn end_at(mut self, end: SystemTime) {
        if let Some(open) = &mut self.0 {
            open.span.end_with_timestamp(end);
        }
    }

    /// Returns the value of the header `traceparent` for a request that this span describes; `None` if the span is not
    /// recorded, or the operator does not let requests have the header.
    pub(crate) fn trace_parent(&self) -> Option<String> {
        let open = self.0.as_ref().filter(|open| open.recording.propagates)?;
        Some(trace_parent::write(open.span.span_context()))
    }
}

impl SpanPlace {
    /// Returns whether the place belongs to a span. If not, the children of the place record nothing, and no request to
    /// an upstream names them in its header `traceparent`.
    pub(crate) fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span as a child of the span at this place.
    pub(crate) fn begin(&self, name: impl Into<std::borrow::Cow<'static, str>>, kind: SpanKind) -> Span {
        self.build(SpanBuilder::from_name(name).with_kind(kind))
    }

    /// Begins a span as a child of the span at this place, for work of the gateway itself that began at `start`, a time
    /// in the past.
    pub(crate) fn begin_at(&self, name: String, start: SystemTime) -> Span {
        self.build(SpanBuilder::from_name(name).with_kind(SpanKind::Internal).with_start_time(start))
    }

    /// Begins the span that `builder` describes, as a child of the span at this place. If no span is recorded there,
    /// the new one records nothing either.
    fn build(&self, builder: SpanBuilder) -> Span {
        let Some((recording, context)) = &self.0 else { return Span::default() };
        let parent = Context::new().with_remote_span_context(context.clone());
        Span::build(recording, builder, &parent)
    }
}

/// Creates the value of an attribute that is a list of constants.
pub(crate) fn list(values: impl IntoIterator<Item = &'static str>) -> Value {
    Value::Array(Array::String(values.into_iter().map(StringValue::from).collect()))
}
