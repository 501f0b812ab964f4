//! Collects the outcome of one request of an agent: its status, its verdicts and its duration. When the request ends,
//! counts it in the metrics, ends its spans and writes its line of the operator's log, which contains no text of the
//! chat. The model routes create one [`RequestReport`] for each request.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate::monitor::{Outcome, ReasonKind};
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate_audit::watch::{WatchedSubject, WatchedVerdict};
use flowgate_guard::conversation::{CallVerdict, Turn, TurnEnd};
use flowgate_lm::Error;
use flowgate_lm::chat::Usage;
use flowgate_lm::remote::UNTRUSTED;
use serde_json::Value;

use super::ModelRoutes;
use super::clients::ClientState;
use super::handed_calls::HandedLabel;
use super::turn_trace::{TracedOutcome, TurnTrace};
use crate::config::ClientSettings;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::http::waiting_status::WaitingStatus;
use crate::log::{Limit, LogEvent, OperatorLog, millis};
use crate::metrics::agents::{AgentMetrics, TurnMetrics, VerdictCounts};
use crate::page::figures::RequestFigures;
use crate::page::findings::RequestFindings;
use crate::random;
use crate::secret::Secret;
use crate::virtual_keys::scope::name_for_client;

/// The outcome of a request, collected while the request runs.
#[derive(Debug)]
pub(crate) struct RequestReport {
    begun: Instant,
    /// Whether the client has named the conversation.
    is_named: bool,
    conversation: Option<String>,
    verdicts: VerdictTotals,
    /// The number of calls that the client received.
    calls: usize,
    /// The number of questions to people.
    questions: usize,
    /// The number of hidden regions.
    hidden: usize,
    /// The number of messages that the model generated.
    messages: usize,
    /// The number of replies that a rule withheld from the client.
    withheld: usize,
    /// Why the turn ended before the model's final message, if it did.
    ended: Option<TurnEnd>,
    /// The time for which the request waited for models.
    upstream: Duration,
    /// The tokens of the turn; `None` if no turn ran.
    tokens: Option<Usage>,
    /// The status for the client and the cause for the log, if the request has failed.
    failure: Option<(StatusCode, RequestErrorCause)>,
    /// The detail of the failure, for the log only.
    detail: Option<String>,
    /// The explanation of what is hidden from the model, if the client asks for an explanation.
    pub(crate) explained: Option<String>,
    /// The labels of the calls that the client receives, in their order.
    pub(super) handed_labels: Vec<Option<HandedLabel>>,
    /// The question for which the turn waits, if there is one.
    pub(crate) waits: Option<WaitingStatus>,
    /// Whether the client is in watch mode: the verdicts were not enforced.
    is_watching: bool,
    /// The spans of the request.
    pub(super) trace: TurnTrace,
}

/// The numbers of judged calls by verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VerdictTotals {
    /// The numbers by tool, for the metrics.
    pub(crate) by_tool: VerdictCounts,
    permitted: usize,
    asked: usize,
    denied: usize,
    /// The number of calls whose evaluation a limit cut off.
    unfinished: usize,
    /// What objected to the calls.
    pub(crate) findings: RequestFindings,
    /// The tools of the calls, each as often as it was called.
    pub(crate) tools: Vec<Tool>,
}

impl VerdictTotals {
    /// Adds these verdicts of `policy` to the totals. A call whose evaluation a limit cut off is also counted as
    /// unfinished.
    pub(crate) fn count(&mut self, judged: &[CallVerdict], policy: &Policy) {
        for call in judged {
            self.findings.add(call, policy);
            let count = match call.outcome {
                Outcome::Permit => &mut self.permitted,
                Outcome::Confirm => &mut self.asked,
                Outcome::Deny => &mut self.denied,
            };
            *count += 1;
            self.by_tool.count(&call.tool.to_string(), call.outcome);
            let is_unfinished = call.reasons.iter().any(|reason| reason.kind == ReasonKind::Limit);
            self.unfinished += usize::from(is_unfinished);
        }
    }

    /// Adds the verdicts of watch mode on calls, which were not enforced. Ignores verdicts on texts, such as replies.
    pub(crate) fn count_watched(&mut self, watched: &[WatchedVerdict]) {
        for verdict in watched.iter().filter(|verdict| verdict.subject == WatchedSubject::Call) {
            let tool = verdict.tool.as_deref().unwrap_or_default();
            self.by_tool.count(tool, verdict.outcome);
            if verdict.outcome != Outcome::Permit {
                self.findings.add_watched(tool);
            }
            *match verdict.outcome {
                Outcome::Permit => &mut self.permitted,
                Outcome::Confirm => &mut self.asked,
                Outcome::Deny => &mut self.denied,
            } += 1;
        }
    }

    /// Returns the numbers of permitted, asked and denied calls.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.permitted, self.asked, self.denied].map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Returns the numbers of permitted, asked and denied calls as fields of a log line.
    pub(crate) fn fields(&self) -> [(&'static str, Value); 3] {
        let &Self { permitted, asked, denied, .. } = self;
        [("permitted", permitted.into()), ("asked", asked.into()), ("denied", denied.into())]
    }

    /// Logs that calls were denied because a limit was reached, if there are such calls. The limit is the fuel of an
    /// evaluation, or the size of a call or of the conversation. The verdicts do not say which of them, so the log line
    /// names all.
    pub(crate) fn report_limit(&self, log: &OperatorLog, client: &str, conversation: Option<&str>) {
        if self.unfinished > 0 {
            log.limit(&Limit {
                what: "evaluation of a call, or size of a call or conversation",
                effect: "the call was denied: its evaluation exceeded its fuel, or the conversation has \
                    reached its size limit",
                setting: None,
                advice: Some("simplify the policy's rules, or begin a new conversation"),
                // Of these limits, only the fuel is reported as a number.
                most: flowgate::monitor::Limits::default().fuel,
                client,
                conversation,
            });
        }
    }
}

impl RequestReport {
    /// Begins the report of a request, and starts its clock. `named` is the name of the conversation, if the client
    /// sent one; `trace` records the spans of the request.
    pub(crate) fn begin(named: Option<&str>, trace: TurnTrace) -> Self {
        Self {
            begun: Instant::now(),
            is_named: named.is_some(),
            conversation: named.map(str::to_owned),
            verdicts: VerdictTotals::default(),
            calls: 0,
            questions: 0,
            hidden: 0,
            messages: 0,
            withheld: 0,
            ended: None,
            upstream: Duration::ZERO,
            tokens: None,
            failure: None,
            detail: None,
            explained: None,
            handed_labels: Vec::new(),
            waits: None,
            is_watching: false,
            trace,
        }
    }

    /// Sets the name of the conversation.
    pub(crate) fn set_conversation(&mut self, conversation: &str) {
        self.conversation = Some(conversation.to_owned());
    }

    /// Adds the outcome of the turn: its verdicts, and for the log line the numbers of calls, of questions to people,
    /// of hidden regions, of the model's messages, of tokens and of withheld replies, and why the turn ended early.
    pub(crate) fn add_turn(&mut self, turn: &Turn, client: &ClientState) {
        self.add_judged(&turn.judged, client);
        self.calls = turn.calls.len();
        self.questions = turn.spent.questions;
        self.hidden = turn.spent.hidden;
        self.messages = turn.spent.messages;
        self.tokens = Some(turn.spent.tokens);
        self.withheld = turn.replies.iter().filter(|reply| !reply.withheld.is_empty()).count();
        self.ended = turn.ended;
    }

    /// Adds verdicts on calls, for the log line, the metrics and the spans of the request.
    pub(crate) fn add_judged(&mut self, judged: &[CallVerdict], client: &ClientState) {
        self.trace.add_judged(judged, client);
        self.verdicts.count(judged, &client.spec.policy);
        self.verdicts.tools.extend(judged.iter().map(|call| call.tool.clone()));
    }

    /// Marks the request as one of a client in watch mode, whose verdicts were not enforced.
    pub(crate) fn set_watching(&mut self) {
        self.is_watching = true;
    }

    /// Replaces the verdicts of a request in watch mode by `watched`, the verdicts of the client's own policy, which
    /// were not enforced. Also replaces the number of withheld replies by the number that this policy would have
    /// withheld.
    pub(crate) fn set_watched(&mut self, watched: &[WatchedVerdict], client: &ClientState) {
        self.trace.set_watched(watched, client);
        self.is_watching = true;
        // The list of called tools stays: the agent has made these calls.
        let tools = std::mem::take(&mut self.verdicts.tools);
        self.verdicts = VerdictTotals { tools, ..VerdictTotals::default() };
        self.verdicts.count_watched(watched);
        let is_withheld = |verdict: &&WatchedVerdict| {
            verdict.subject == WatchedSubject::Reply && verdict.outcome != Outcome::Permit
        };
        self.withheld = watched.iter().filter(is_withheld).count();
    }

    /// Adds the time for which the request waited for models.
    pub(crate) fn add_upstream_time(&mut self, took: Duration) {
        self.upstream += took;
    }

    /// Sets the failure with which the request ends, in place of an earlier one.
    pub(crate) fn set_failure(&mut self, failure: &RequestError) {
        self.failure = Some((failure.status, failure.cause));
        self.detail.clone_from(&failure.detail);
    }

    /// Sets a failure with this status, whose cause is the request itself, unless [`Self::set_failure`] has set one
    /// with a more exact cause.
    pub(crate) fn set_rejected(&mut self, status: StatusCode) {
        self.failure.get_or_insert((status, RequestErrorCause::Request));
    }

    /// Counts the request in the statistics and the coverage of tools that the gateway's page shows to people, and in
    /// the metrics. Must be called when the request ends, since its duration until now is counted. `client` is the name
    /// of the client.
    pub(crate) fn count_in(&self, routes: &ModelRoutes, client: &str) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let figures = RequestFigures {
            client: client.to_owned(),
            took: self.begun.elapsed(),
            is_failed: self.failure.is_some(),
            verdicts: self.verdicts.counts(),
            findings: self.verdicts.findings.clone(),
            withheld: number(self.withheld),
            hidden: number(self.hidden),
        };
        routes.figures.count(&figures, Instant::now());
        self.verdicts.tools.iter().for_each(|tool| routes.coverage.note_call(client, tool));
        self.count_in_metrics(&routes.metrics, client);
    }

    /// Counts the verdicts of the request in the metrics of its client, and its turn if one ran. Must be called when
    /// the request ends, since the duration of the turn until now is counted.
    fn count_in_metrics(&self, metrics: &AgentMetrics, client: &str) {
        metrics.count_calls(client, &self.verdicts.by_tool, self.is_watching);
        // Only a turn sets `tokens`.
        if let Some(tokens) = self.tokens {
            let hidden = u64::try_from(self.hidden).unwrap_or(u64::MAX);
            let turn = TurnMetrics { took: self.begun.elapsed(), upstream: self.upstream, tokens, hidden };
            metrics.count_turn(client, &turn);
        }
    }

    /// Ends the spans of the request with its outcome. The spans have the name of the conversation only if the gateway
    /// has generated this name.
    pub(crate) fn end_trace(&mut self, client: &ClientSettings) {
        // A name that the client has chosen is text of the client, which spans must not have. The form is checked as
        // well: every generated name is 32 hexadecimal digits.
        let is_generated_name = |name: &&str| !self.is_named && random::is_unguessable_name(name);
        let outcome = TracedOutcome {
            conversation: self.conversation.as_deref().map(name_for_client).filter(is_generated_name),
            failure: self.failure,
            tokens: self.tokens,
            hidden: self.hidden,
            questions: self.questions,
            withheld: self.withheld,
            ended: self.ended.map(name_of),
        };
        self.trace.end(client, &outcome);
    }

    /// Writes the log line of the request, and further lines if it reached a limit on evaluation or on the model's
    /// messages. `key` is the key for the upstream, if the client sends one; it is redacted from the name of the
    /// conversation.
    pub(crate) fn write(self, log: &OperatorLog, client: &str, key: Option<&str>) {
        let name = self.conversation.as_ref().map(|name| match key {
            Some(key) => Secret::new(key).redacted_from(name),
            None => name.clone(),
        });
        // The line of the request: its event and sentence depend on the failure, if there is one.
        let mut fields: Vec<(&'static str, Value)> = Vec::new();
        fields.extend(name.as_ref().map(|name| ("conversation", name.clone().into())));
        let (event, sentence) = match self.failure {
            None => (LogEvent::Turn, ""),
            Some((status, cause)) => {
                fields.push(("status", status.as_u16().into()));
                match cause {
                    RequestErrorCause::Request => (LogEvent::Refused, sentence_of(status)),
                    RequestErrorCause::Full => (
                        LogEvent::Refused,
                        "the conversation has reached its size limit: its agent must begin a new one",
                    ),
                    RequestErrorCause::Gone => {
                        (LogEvent::Refused, "the client disconnected before the answer")
                    }
                    RequestErrorCause::Upstream(why) => (LogEvent::Upstream, why),
                    RequestErrorCause::Store(why) => (LogEvent::Failure, why),
                }
            }
        };
        fields.extend(self.is_watching.then(|| ("mode", "watch".into())));
        fields.push(("calls", self.calls.into()));
        fields.extend(self.verdicts.fields());
        fields.push(("questions", self.questions.into()));
        fields.push(("hidden", self.hidden.into()));
        fields.push(("withheld", self.withheld.into()));
        fields.push(("messages", self.messages.into()));
        fields.extend(self.ended.map(|ended| ("ended", name_of(ended).into())));
        fields.extend(self.detail.map(|detail| ("detail", detail.into())));
        fields.push(("ms", millis(self.begun.elapsed())));
        fields.push(("upstream_ms", millis(self.upstream)));
        fields.extend(self.trace.id().map(|id| ("trace", id.into())));
        log.write(event, client, fields, sentence);
        // Further lines about reached limits.
        self.verdicts.report_limit(log, client, name.as_deref());
        if self.ended == Some(TurnEnd::Steps) {
            log.limit(&Limit {
                what: "messages of the model in one turn",
                effect: "the turn ended before the model's final message",
                setting: None,
                advice: Some("check in the audit log whether calls of the turn were denied, and why"),
                // The turn has reached its limit on messages or on steps with this number of messages.
                most: u64::try_from(self.messages).unwrap_or(u64::MAX),
                client,
                conversation: name.as_deref(),
            });
        }
    }
}

/// Returns the name that the log line has for the reason why a turn ended early.
fn name_of(ended: TurnEnd) -> &'static str {
    match ended {
        TurnEnd::Steps => "steps",
        TurnEnd::Full => "full",
        TurnEnd::Model => "model",
        TurnEnd::Clearance => "clearance",
        TurnEnd::Asked => "asked",
    }
}

/// Explains a status with which the gateway refuses a request, for the operator's log, by a constant that quotes
/// nothing of the request.
pub(crate) fn sentence_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "the request is malformed; the answer to the client says where",
        401 => "the request has no key or certificate that this gateway knows",
        403 => "a freeze, a role or the configuration forbids the request",
        404 => "the route, model, server or question does not exist",
        405 => "the route does not have the method of the request",
        408 => "the request did not arrive in time, or its client has disconnected",
        409 => "another request changed the state in the meantime; the client may try again",
        413 => "the body of the request is larger than the limit",
        415 => "the request does not declare its body as JSON",
        429 => "the client has reached a limit on its requests, and has to wait",
        500 => "the request failed because of a bug in the gateway: report it",
        503 => "the gateway is too busy, or its database does not answer",
        504 => "the answer was not complete within the time limit",
        _ => "the request was refused",
    }
}

/// Explains to the operator, in the log, why a request to a model failed. The explanation is a constant: a text of the
/// model's server may quote the prompt.
pub(crate) fn cause_of_error(error: &Error) -> RequestErrorCause {
    if *error == Error::Cancelled {
        return RequestErrorCause::Gone;
    }
    RequestErrorCause::Upstream(match error {
        Error::Timeout => "the model's server did not answer in time: see the log of that server",
        Error::Unreachable(why) if why == UNTRUSTED => {
            "the certificate of the model's server is not trusted: its issuer is unknown, it has expired, or it names another host; check `ca-file` in \
            [upstreams]"
        }
        Error::Unreachable(_) => "the model's server cannot be reached: check `url` in [upstreams]",
        Error::Busy { .. } => "the model's server is busy: the agent can try again later",
        Error::Rejected { status: 401 | 403, .. } => {
            "the model's server refuses the key: check `key-from` in [upstreams]"
        }
        Error::Rejected { status: 404, .. } => {
            "the model's server does not know the model or the path: check `url` and `models` in [upstreams]"
        }
        Error::Rejected { status: 413, .. } => {
            "the model's server rejected the request as too large: the agent must send less text"
        }
        Error::Rejected { status: 500.., .. } => "the model's server failed: see the log of that server",
        Error::Rejected { .. } => {
            "the model's server rejected the request: check that the model supports the tools and parameters that the \
             agent sends"
        }
        Error::Malformed(_) => {
            "the answer of the model's server cannot be read: check that `api` and `url` in [upstreams] are \
            those of the server"
        }
        Error::Incomplete(_) => {
            "the model's answer is not complete: see the log of the model's server; the agent can try again"
        }
        Error::TooLong(_) => {
            "the model's answer exceeds the gateway's fixed size limit: ask for a shorter answer"
        }
        Error::TooMany(_) => {
            "the model's answer has more parts than the gateway reads (256 tool calls, 4096 parts of reasoning, 4096 content blocks): ask for less at a time"
        }
        Error::OverBudget(_) => {
            "the budget that a program gave the model (`RequestBudget`) is spent: raise its limits in that program"
        }
        Error::Unsupported(_) => {
            "the model's server does not have the requested model or function: check `api` and `models` in [upstreams]"
        }
        Error::NotRecorded(_) => {
            "the model's answer could not be recorded: check the disk and the file of the record"
        }
        _ => "the model's server failed: see the log of that server",
    })
}
