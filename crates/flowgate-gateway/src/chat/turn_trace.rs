//! Records the OpenTelemetry spans of a client's request. [`TurnTrace`] records the span of the request and the spans
//! of its tool calls; [`ModelCalls`] records the spans of the requests that the gateway sends to upstreams for it.
//! `answer`, `embeddings` and `guardrail` begin the trace of a request, `report` owns it, and `turn` and
//! `fallback_model` add to it.
//!
//! Spans have no text of a chat: each value is a number, a constant, or a name of the configuration or the policy. See
//! [`crate::telemetry`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use axum::http::StatusCode;
use flowgate::monitor::Outcome;
use flowgate_audit::watch::{WatchedSubject, WatchedVerdict};
use flowgate_guard::conversation::{CallVerdict, Conversation};
use flowgate_lm::chat::{Completion, Stop, Usage};
use flowgate_lm::{Error, RemoteModel};
use opentelemetry::Value;
use opentelemetry::trace::SpanKind;

use super::clients::ClientState;
use crate::config::{ClientSettings, UpstreamConfig};
use crate::http::request_error::RequestErrorCause;
use crate::telemetry::names;
use crate::telemetry::shown_names::ShownNames;
use crate::telemetry::span::{Span, SpanPlace, list};

/// The trace of a request: its span, and the judged calls, which become spans at its end. The default records nothing.
#[derive(Debug, Default)]
pub(crate) struct TurnTrace {
    span: Span,
    judged: Vec<TracedCall>,
    clock: JudgingClock,
    /// The digests of the calls about which people were asked.
    asked: Vec<String>,
    /// Why the model stopped.
    stop: Option<Stop>,
    /// Whether the request was answered; if it was not, dropping the trace marks the span as failed.
    is_ended: bool,
}

/// A call of a tool, as it was judged.
#[derive(Debug)]
struct TracedCall {
    /// The tool, by the name that spans may have.
    tool: String,
    outcome: Outcome,
    /// The kinds of the reasons; empty in watch mode, whose records do not have them.
    kinds: Vec<&'static str>,
    is_asked: bool,
}

/// The outcome of a request, for its span.
pub(super) struct TracedOutcome<'r> {
    /// The name of the conversation, if the gateway has given it.
    pub(super) conversation: Option<&'r str>,
    /// The status and the cause of the error that the client receives, if the request failed.
    pub(super) failure: Option<(StatusCode, RequestErrorCause)>,
    /// The tokens that the models of the turn used; `None` if no turn ran.
    pub(super) tokens: Option<Usage>,
    /// The number of hidden regions.
    pub(super) hidden: usize,
    /// The number of questions to people.
    pub(super) questions: usize,
    /// The number of replies that a rule withheld.
    pub(super) withheld: usize,
    /// Why the turn ended early, if it did.
    pub(super) ended: Option<&'static str>,
}

impl TurnTrace {
    /// Begins the trace of a request. `span` is the span of the request; its name is `operation` until the model is
    /// known.
    pub(crate) fn begin(mut span: Span, operation: &'static str, client: &ClientSettings) -> Self {
        if span.is_recording() {
            span.set(names::OPERATION, operation);
            span.set(names::CLIENT, client.name.clone());
            span.set(names::MODE, mode(client));
            if let Some(upstream) = &client.upstream {
                span.set(names::PROVIDER, upstream.provider());
            }
        }
        // Not `Self { span, ..Self::default() }`: fields cannot be moved out of a type that implements `Drop`.
        let mut trace = Self::default();
        trace.span = span;
        trace
    }

    /// Notes the requested model in the span and in its name, which begins with `operation`.
    pub(super) fn set_model(&mut self, operation: &'static str, client: &ClientState, model: &str) {
        if self.span.is_recording() {
            let model = client.shown_names.model(model);
            self.span.rename(format!("{operation} {model}"));
            self.span.set(names::REQUEST_MODEL, model);
        }
    }

    /// Returns an empty record of requests to the upstreams of the client. Their spans are children of the span of
    /// this trace, and their names begin with `operation`.
    pub(super) fn model_calls<'c>(&self, operation: &'static str, client: &'c ClientState) -> ModelCalls<'c> {
        ModelCalls {
            place: self.span.place(),
            operation,
            names: &client.shown_names,
            answered: Mutex::default(),
        }
    }

    /// Returns a clock that notes when calls of the running turn of a conversation are judged from now on.
    pub(super) fn judging_clock(&self, conversation: &Conversation) -> JudgingClock {
        let is_on = self.span.is_recording();
        // A turn that waited for a person has calls that an earlier request judged.
        let begin = if is_on { conversation.running_turn().judged_calls().len() } else { 0 };
        JudgingClock { is_on, begin, last: SystemTime::now(), times: Vec::new() }
    }

    /// Notes when calls were judged, and the digests of those about which people were asked. Called before
    /// [`Self::add_judged`], which looks the calls up among these digests.
    pub(super) fn set_judging(&mut self, clock: JudgingClock, asked: Vec<String>) {
        (self.clock, self.asked) = (clock, asked);
    }

    /// Notes verdicts on calls, in order; [`Self::end`] records a span for each. Does nothing if no trace is recorded.
    pub(super) fn add_judged(&mut self, judged: &[CallVerdict], client: &ClientState) {
        if !self.span.is_recording() {
            return;
        }
        self.judged.extend(judged.iter().map(|call| TracedCall {
            tool: client.shown_names.tool(&call.tool),
            outcome: call.outcome,
            kinds: kinds_of(call),
            // The digest alone does not suffice: an equal call may have another outcome, and then nobody was asked
            // about it.
            is_asked: call.outcome == Outcome::Confirm && self.asked.contains(&call.digest),
        }));
    }

    /// Replaces the noted verdicts on calls by those of the policy of a client in watch mode.
    pub(super) fn set_watched(&mut self, watched: &[WatchedVerdict], client: &ClientState) {
        if !self.span.is_recording() {
            return;
        }
        let calls = watched.iter().filter(|verdict| verdict.subject == WatchedSubject::Call);
        self.judged = calls
            .map(|verdict| TracedCall {
                tool: client.shown_names.written_tool(verdict.tool.as_deref().unwrap_or_default()),
                outcome: verdict.outcome,
                // A watched verdict has its reason as text only, and nobody is asked about it.
                kinds: Vec::new(),
                is_asked: false,
            })
            .collect();
    }

    /// Notes why the model stopped, as the completion that the client receives says it.
    pub(super) fn set_completion(&mut self, completion: &Completion) {
        self.stop = Some(completion.stop);
    }

    /// Notes the model that has answered last, of those that `calls` asked; has no effect if none has answered.
    pub(super) fn set_answered(&mut self, calls: &ModelCalls<'_>) {
        let answered = calls.answered.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(model) = answered {
            self.span.set(names::RESPONSE_MODEL, model);
        }
    }

    /// Returns the id of the trace, for the log line of the request; `None` if the request is not recorded.
    pub(super) fn id(&self) -> Option<String> {
        self.span.trace_id()
    }

    /// Ends the trace with the outcome of the request, and records a span for each judged call.
    pub(super) fn end(&mut self, client: &ClientSettings, outcome: &TracedOutcome<'_>) {
        self.is_ended = true;
        if !self.span.is_recording() {
            return;
        }
        // The clock has noted when each call was judged, by its number in the turn.
        let place = self.span.place();
        for (number, call) in std::mem::take(&mut self.judged).into_iter().enumerate() {
            let (start, end) = self.clock.time_of(number);
            call.record(&place, (start, end), client);
        }
        let span = &mut self.span;
        if let Some(name) = outcome.conversation {
            span.set(names::CONVERSATION, name.to_owned());
        }
        // Absent if no turn ran.
        if let Some(tokens) = outcome.tokens {
            set_usage(span, tokens);
            span.set(names::METHOD, client.method.name());
            span.set_number(names::HIDDEN, outcome.hidden);
            span.set_number(names::QUESTIONS, outcome.questions);
            span.set_number(names::WITHHELD, outcome.withheld);
        }
        if let Some(ended) = outcome.ended {
            span.set(names::ENDED, ended);
        }
        match outcome.failure {
            Some((status, cause)) => {
                span.set_number(names::STATUS, status.as_u16());
                span.fail(match cause {
                    RequestErrorCause::Request => Value::from(status.as_str().to_owned()),
                    RequestErrorCause::Full => Value::from("conversation_full"),
                    RequestErrorCause::Gone => Value::from(CANCELLED),
                    RequestErrorCause::Upstream(_) => Value::from("upstream"),
                    RequestErrorCause::Store(_) => Value::from("store"),
                });
            }
            None => {
                if let Some(stop) = self.stop {
                    span.set_list(names::FINISH_REASONS, [finish_reason(stop)]);
                }
            }
        }
    }
}

impl Drop for TurnTrace {
    /// Marks the span of a request whose task was ended before it was answered.
    fn drop(&mut self) {
        if !self.is_ended {
            self.span.fail("aborted");
        }
    }
}

impl TracedCall {
    /// Records the span of the call as a child of the span at `place`. It lasts as long as the judgement of the call,
    /// from `start` to `end`, and the verdict is an event at its end.
    fn record(self, place: &SpanPlace, (start, end): (SystemTime, SystemTime), client: &ClientSettings) {
        let verdict = verdict_name(self.outcome);
        let mut span = place.begin_at(format!("{} {}", names::EXECUTE_TOOL, self.tool), start);
        span.set(names::OPERATION, names::EXECUTE_TOOL);
        span.set(names::TOOL, self.tool);
        span.set(names::CLIENT, client.name.clone());
        span.set(names::MODE, mode(client));
        span.set(names::VERDICT, verdict);
        span.set(names::ASKED, self.is_asked);
        let event = [
            (names::VERDICT, verdict.into()),
            (names::METHOD, client.method.name().into()),
            (names::REASON_KINDS, list(self.kinds)),
            (names::ASKED, self.is_asked.into()),
        ];
        span.add_event(names::VERDICT_EVENT, end, event);
        span.end_at(end);
    }
}

/// Notes when the calls of a turn are judged. The agent reports after each answer of the model and before it obtains
/// what the conversation needs next. A call is judged between two of these reports, which are taken for the begin and
/// the end of its judgement.
#[derive(Debug)]
pub(super) struct JudgingClock {
    /// Whether times are noted: only if the spans of the request are recorded.
    is_on: bool,
    /// The number of calls of the turn that were judged before this request.
    begin: usize,
    /// The time of the agent's last report.
    last: SystemTime,
    /// The begin and the end of each judgement.
    times: Vec<(SystemTime, SystemTime)>,
}

impl Default for JudgingClock {
    /// Creates a clock that notes nothing.
    fn default() -> Self {
        Self { is_on: false, begin: 0, last: SystemTime::now(), times: Vec::new() }
    }
}

impl JudgingClock {
    /// Notes the calls of the running turn that were judged since the last report: each has the time from that report
    /// until now.
    pub(super) fn note_judged(&mut self, conversation: &Conversation) {
        if !self.is_on {
            return;
        }
        let judged = conversation.running_turn().judged_calls().len();
        let now = SystemTime::now();
        // Adds an entry for each call that is judged now and was not at the last report. The calls before `begin` were
        // judged by an earlier request, and have no entry. `max`: the list never becomes shorter.
        self.times.resize(judged.saturating_sub(self.begin).max(self.times.len()), (self.last, now));
        self.last = now;
    }

    /// Notes that a model has answered: what it calls is judged next.
    pub(super) fn note_answer(&mut self) {
        if self.is_on {
            self.last = SystemTime::now();
        }
    }

    /// Returns when the judgement of the call with this number in its turn began and ended. For a call whose
    /// judgement was not noted, this is the time from the last report until now.
    fn time_of(&self, number: usize) -> (SystemTime, SystemTime) {
        // The calls before `begin` were judged by an earlier request, and are not noted here.
        let noted = number.checked_sub(self.begin).and_then(|number| self.times.get(number).copied());
        noted.unwrap_or_else(|| {
            let now = SystemTime::now();
            (self.last.min(now), now)
        })
    }
}

/// The requests of one turn to the upstreams of its client.
pub(super) struct ModelCalls<'c> {
    /// The span of the turn, whose children the spans of the requests are.
    place: SpanPlace,
    /// The beginning of the names of the spans.
    operation: &'static str,
    /// The names of models and tools that spans may have.
    names: &'c ShownNames,
    /// The model that has answered last, by the name that spans may have.
    answered: Mutex<Option<String>>,
}

impl<'c> ModelCalls<'c> {
    /// Begins the span of a request to `model` on `upstream`. `index` is the position of this upstream in the order in
    /// which upstreams are asked; 0 is the client's own upstream.
    pub(super) fn begin(&self, upstream: &UpstreamConfig, model: &str, index: usize) -> ModelCall<'_, 'c> {
        // Without a place in a trace, nothing is recorded, so the result has no span.
        if !self.place.is_any() {
            return ModelCall {
                calls: self,
                span: Span::default(),
                model: String::new(),
                retries: Arc::default(),
                is_settled: false,
            };
        }
        let model = self.names.model(model);
        let mut span = self.place.begin(format!("{} {model}", self.operation), SpanKind::Client);
        if span.is_recording() {
            span.set(names::OPERATION, self.operation);
            span.set(names::PROVIDER, upstream.provider());
            span.set(names::REQUEST_MODEL, model.clone());
            span.set(names::UPSTREAM, upstream.name.clone());
            span.set_number(names::FALLBACK, index);
            if let Some((host, port)) = &upstream.address {
                span.set(names::SERVER_ADDRESS, host.clone());
                span.set_number(names::SERVER_PORT, *port);
            }
        }
        ModelCall { calls: self, span, model, retries: Arc::default(), is_settled: false }
    }
}

/// The errors of the attempts after which a request was sent again, with their times.
type Retries = Arc<Mutex<Vec<(SystemTime, Value)>>>;

/// A request to a model that is not answered yet. If this value is dropped before it is settled, the client has
/// disconnected.
pub(super) struct ModelCall<'a, 'c> {
    calls: &'a ModelCalls<'c>,
    span: Span,
    /// The model, by the name that spans may have.
    model: String,
    retries: Retries,
    is_settled: bool,
}

impl ModelCall<'_, '_> {
    /// Returns a copy of `model` that notes in this call each attempt after which the request is sent again. If the
    /// operator lets requests to upstreams name their trace (the header `traceparent`), the copy also sends this
    /// header. `None` if neither is needed: the caller then asks `model` itself.
    pub(super) fn traced(&self, model: &RemoteModel) -> Option<RemoteModel> {
        let trace_parent = self.span.trace_parent();
        if !self.span.is_recording() && trace_parent.is_none() {
            return None;
        }
        let retries = Arc::clone(&self.retries);
        let model = model.clone().on_retry(Arc::new(move |error| {
            let mut retries = retries.lock().unwrap_or_else(PoisonError::into_inner);
            // The policy of retries bounds their number.
            retries.push((SystemTime::now(), error_type(error)));
        }));
        Some(match trace_parent {
            Some(value) => model.trace_parent(&value),
            None => model,
        })
    }

    /// Ends the span with the outcome of the request: the error, or the tokens and, for a chat, why the model stopped.
    /// Adds the retries to the span. If the model has answered, notes its name in [`ModelCalls`].
    pub(super) fn settle(mut self, outcome: Result<(Usage, Option<Stop>), &Error>) {
        self.is_settled = true;
        if !self.span.is_recording() {
            return;
        }
        for (at, error) in std::mem::take(&mut *self.retries.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.span.add_event(names::RETRY_EVENT, at, [(names::ERROR, error)]);
        }
        match outcome {
            Ok((usage, stop)) => {
                set_usage(&mut self.span, usage);
                self.span.set(names::RESPONSE_MODEL, self.model.clone());
                if let Some(stop) = stop {
                    self.span.set_list(names::FINISH_REASONS, [finish_reason(stop)]);
                }
                let model = std::mem::take(&mut self.model);
                *self.calls.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(model);
            }
            Err(error) => self.span.fail(error_type(error)),
        }
    }
}

impl Drop for ModelCall<'_, '_> {
    /// Marks the span of a request that was dropped before it was answered: its client has disconnected.
    fn drop(&mut self) {
        if !self.is_settled {
            self.span.fail(CANCELLED);
        }
    }
}

/// The error of a request whose client has disconnected.
const CANCELLED: &str = "cancelled";

/// Sets the attributes of a span with the numbers of tokens.
fn set_usage(span: &mut Span, usage: Usage) {
    span.set_number(names::INPUT_TOKENS, usage.input);
    span.set_number(names::OUTPUT_TOKENS, usage.output);
}

/// Returns the mode of a client, as spans have it: `watch` if its verdicts are not enforced, otherwise `enforce`.
pub(crate) fn mode(client: &ClientSettings) -> &'static str {
    if client.watch.is_some() { "watch" } else { "enforce" }
}

/// Returns the name of a verdict, as the metrics have it.
pub(crate) fn verdict_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Permit => "permit",
        Outcome::Confirm => "confirm",
        Outcome::Deny => "deny",
    }
}

/// Returns the kinds of the reasons of a verdict, each once, in alphabetical order.
pub(crate) fn kinds_of(call: &CallVerdict) -> Vec<&'static str> {
    let mut kinds: Vec<&'static str> = call.reasons.iter().map(|reason| reason.kind.name()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Returns the name that OpenTelemetry's conventions have for why a model stopped.
fn finish_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
        Stop::Refused => "content_filter",
        // `Stop` may get further values.
        _ => names::OTHER,
    }
}

/// Returns the type of an error of a model's server: a constant, or the status of its answer. Texts of the server are
/// left out, since they may quote the prompt.
fn error_type(error: &Error) -> Value {
    Value::from(match error {
        Error::Rejected { status, .. } => return status.to_string().into(),
        Error::Cancelled => CANCELLED,
        Error::Timeout => "timeout",
        Error::Unreachable(_) => "unreachable",
        Error::Busy { .. } => "busy",
        Error::Malformed(_) => "malformed",
        Error::TooLong(_) => "too_long",
        Error::TooMany(_) => "too_many",
        Error::Incomplete(_) => "incomplete",
        Error::OverBudget(_) => "over_budget",
        Error::Unsupported(_) => "unsupported",
        // The conventions of OpenTelemetry have this value for a type of error without a name.
        _ => "_OTHER",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of a model's server are not exported.
    #[test]
    fn types_of_errors_are_constants() {
        let text = || "the prompt was ...".to_owned();
        for (error, expected) in [
            (Error::Cancelled, "cancelled"),
            (Error::Timeout, "timeout"),
            (Error::Unreachable(text()), "unreachable"),
            (Error::Busy { retry_after: None }, "busy"),
            (Error::Rejected { status: 503, message: text() }, "503"),
            (Error::Failed(text()), "_OTHER"),
            (Error::NotRecorded(text()), "_OTHER"),
        ] {
            assert_eq!(error_type(&error), Value::from(expected), "{error}");
        }
    }
}
