//! Answers requests for embeddings: the policy decides whether the texts may go to the model that embeds them.
//! `http::service` calls this module.
//!
//! A request belongs to no stored conversation. A conversation for this request alone receives the texts as one message
//! of the role `embedding`. If the message quotes texts that the client was shown, the message carries at least the
//! labels of these texts. Then the policy judges a call of the tool [`TOOL`] with the message. No person is asked: a
//! call that a person would have to allow is refused. The embeddings themselves are not judged, since the client has
//! the texts already.

use axum::http::StatusCode;
use flowgate::monitor::{Attribution, AuthorizedCall, Judgement, Outcome, Verdict};
use flowgate::trace::{Call, Tool, TraceEntry};
use flowgate_guard::conversation::CallVerdict;
use flowgate_lm::chat::{Completion, Message, Request};
use flowgate_lm::wire::Api;
use flowgate_lm::wire::embeddings::{EmbeddingFormat, EmbeddingsRequest, EmbeddingsResponse};
use flowgate_lm::{Error, RemoteModel};
use serde_json::{Map, Value};

use super::ModelRoutes;
use super::conversations::one_off;
use super::error_reply::error_reply;
use super::model_error::model_error;
use super::model_request::ModelRouteRequest;
use super::report::RequestReport;
use super::requested_model;
use super::turn_trace::TurnTrace;
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::RequestError;
use crate::http::value_budget::{ValueBudgetError, ValueBudgetShare};
use crate::recorder;
use crate::telemetry::names;
use crate::virtual_keys::scope::scope;

/// The tool that policies name to permit embeddings.
const TOOL: &str = "embeddings";
/// The name of the conversation in records. No client can give this name to a conversation, since names in the header
/// are ASCII.
const RECORDED_NAME: &str = "«embeddings»";
/// The number of dimensions that an embedding is assumed to have at most, if its request does not state `dimensions`.
const MAX_DIMENSIONS: usize = 4096;
/// The approximate memory of one number of an embedding in JSON, in bytes: of the parsed value and of its text.
const BYTES_OF_FLOAT: usize = 64;
/// The approximate memory of one number of an embedding in base64, in bytes.
const BYTES_OF_BASE64: usize = 16;

impl ModelRoutes {
    /// Answers a request for embeddings, and writes its line of the operator's log. `presence` says whether the
    /// client still waits.
    pub(crate) async fn embeddings(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
    ) -> HttpReply {
        let span = self.telemetry.begin_request(names::EMBEDDINGS, received.trace_parent.as_ref());
        let trace = TurnTrace::begin(span, names::EMBEDDINGS, &received.client.spec);
        // `None`: the request belongs to no stored conversation.
        let mut report = RequestReport::begin(None, trace);
        if received.client.spec.watch.is_some() {
            report.set_watching();
        }
        let outcome = self.embed(received, body, presence, &mut report).await;
        let (client, log) = (&received.client.spec.name, &self.log);
        let reply = match outcome {
            Ok(response) => HttpReply::json(StatusCode::OK, &response.encode()),
            Err(failure) => {
                report.set_failure(&failure);
                error_reply(received.api, failure.status, &failure.message)
            }
        };
        // Counts and logs the request, so the HTTP service writes no line for the reply.
        report.count_in(self, client);
        report.end_trace(&received.client.spec);
        report.write(log, client, received.key.as_deref());
        reply.mark_logged()
    }

    /// Judges the texts of a request, and requests their embeddings if the policy permits it.
    ///
    /// # Errors
    /// If the request cannot be read or is not permitted, if its answer may be too large or has no room in memory now,
    /// or if a model's server, the database or the audit log fails.
    async fn embed(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
        report: &mut RequestReport,
    ) -> Result<EmbeddingsResponse, RequestError> {
        let client = &received.client;
        let bad = |message: String| RequestError::new(StatusCode::BAD_REQUEST, message);
        let text = std::str::from_utf8(body)
            .map_err(|_| bad("the body of the request is not valid UTF-8: encode it in UTF-8".to_owned()))?;
        let request = client.decoder.decode_embeddings_request(text).map_err(bad)?;
        report.trace.set_model(names::EMBEDDINGS, client, &request.model);
        // First the checks that need no judgement of the texts.
        client.check_replaced()?;
        requested_model::check_model((client, received.virtual_key.as_deref()), &request.model)?;
        let name = recorded_name(received);
        self.recorder.check_witness_lag()?;
        self.approvals.check_frozen(&client.spec, &name).await?;
        if let Some(why) = self.approvals.freeze_reason(&client.spec, &name, TOOL).await {
            return Err(RequestError::new(StatusCode::FORBIDDEN, why));
        }
        // The evidence that the policy permits to send the texts; nothing below needs its content.
        let _authorized = self.judge_texts(received, &request, report).await?;
        let upstream = requested_model::upstream(client)?;
        let mut remote = upstream.remote.with_model(&request.model);
        if let Some(key) = &received.key {
            remote = remote
                .key(key)
                .map_err(|error| RequestError::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
        }
        // Checked again, since the configuration may have been reloaded meanwhile.
        client.check_replaced()?;
        // The memory is reserved until the answer is returned.
        let _share = self.reserve_answer(&request)?;
        let begun = std::time::Instant::now();
        let calls = report.trace.model_calls(names::EMBEDDINGS, client);
        // 0: the client's own upstream; a request for embeddings has no fallback.
        let call = calls.begin(upstream, &request.model, 0);
        // A copy of the model that notes retries in the span and sends the header `traceparent`; `None` if neither is
        // needed.
        let remote = call.traced(&remote).unwrap_or(remote);
        let response = self.embed_counted(received, &remote, &request, presence).await;
        call.settle(response.as_ref().map(|response| (response.usage, None)));
        report.trace.set_answered(&calls);
        report.add_upstream_time(begun.elapsed());
        let response = response.map_err(|error| match error {
            Error::Unsupported(_) => bad(
                "the upstream of this client has an API without embeddings: the operator of this gateway has to set `api` of the upstream to `chat-completions` or `responses`"
                    .to_owned(),
            ),
            error => model_error(&error),
        })?;
        self.metrics.count_tokens(&client.spec.name, response.usage);
        Ok(response)
    }

    /// Reserves memory for the answer until the returned share is dropped: the answer to a small request can be large.
    ///
    /// # Errors
    /// If the answer may need more memory than one answer may take, or the memory budget of the gateway has no room for
    /// it now.
    fn reserve_answer(&self, request: &EmbeddingsRequest) -> Result<ValueBudgetShare, RequestError> {
        let numbers =
            request.dimensions.and_then(|number| usize::try_from(number).ok()).unwrap_or(MAX_DIMENSIONS);
        let bytes_per_number = match request.format {
            EmbeddingFormat::Base64 => BYTES_OF_BASE64,
            // JSON numbers. A form that is not known here counts like this one, which takes the most memory.
            _ => BYTES_OF_FLOAT,
        };
        let bytes = request.texts.len().saturating_mul(numbers).saturating_mul(bytes_per_number);
        self.values.take(bytes).map_err(|error| match error {
            ValueBudgetError::TooLarge => RequestError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the answer may be too large: send fewer texts, fewer `dimensions`, or `encoding_format` \"base64\"",
            ),
            ValueBudgetError::Taken => RequestError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the gateway is overloaded: try again in a second",
            ),
        })
    }

    /// Requests the embeddings from `remote`, and counts the tokens against the budgets of the client and of its
    /// virtual key.
    ///
    /// # Errors
    /// `Cancelled` if the client disconnects before the answer, otherwise the failure of the model's server.
    async fn embed_counted(
        &self,
        received: &ModelRouteRequest,
        remote: &RemoteModel,
        request: &EmbeddingsRequest,
        presence: &ClientPresence,
    ) -> Result<EmbeddingsResponse, Error> {
        let spending = self.begin_spending(&received.client, received.virtual_key.as_ref());
        // A chat request with the same texts, which is not sent: the tokens are estimated from it.
        let texts = request.texts.iter().map(|text| text.as_str().into()).collect();
        let sent = Request { messages: vec![Message::User(texts)].into(), ..Request::default() };
        // `None` if neither the client nor its virtual key has a budget.
        let mut pending = spending.begin(&request.model, &sent);
        let outcome = tokio::select! {
            biased;
            outcome = remote.embed(request) => outcome,
            () = presence.disconnected() => Err(Error::Cancelled),
        };
        if let Some(pending) = &mut pending {
            match &outcome {
                Ok(response) => {
                    pending.settle(&sent, &Completion { usage: response.usage, ..Completion::default() });
                }
                // The server may have read the texts, so the estimate of their tokens counts.
                Err(Error::Cancelled) => {}
                // Counts nothing, since nothing of an answer has arrived.
                Err(_) => pending.fail(),
            }
        }
        // `pending` adds its tokens to `spending` when it is dropped.
        drop(pending);
        spending.record().await;
        outcome
    }

    /// Lets the policy judge a call of [`TOOL`] with the texts, and records the verdict in `report` and in the audit
    /// log. The result is the evidence that the texts may be sent.
    ///
    /// # Errors
    /// If the texts may not go to the model: the message says why, and what the policy would have to say. Also if the
    /// database or the audit log fails.
    async fn judge_texts(
        &self,
        received: &ModelRouteRequest,
        request: &EmbeddingsRequest,
        report: &mut RequestReport,
    ) -> Result<AuthorizedCall, RequestError> {
        let client = &received.client;
        // A conversation for this request alone receives the texts, which gives them their labels.
        let mut session = one_off(client)?;
        // Parameters of the policy that the caller's key or token sets; then the labels of stores, and the texts that
        // the client was shown, as other requests have left them.
        session.add_caller_parameters(received.virtual_key.as_deref());
        self.sessions.catch_up(client, &mut session).await?;
        let added = {
            let mut history = client.lock_history().await;
            session.conversation.add_texts_to_embed(
                &mut history.client,
                &mut session.history,
                &request.texts,
            )?
        };
        // Words that quote texts the client was shown before are hidden. Which words are hidden tells the model
        // something about these texts; `bits` is an upper bound on that, summed for each client.
        client.add_leaked_bits(added.bits);
        // The policy judges the request like a call of this tool, which all texts have influenced.
        let tool = Tool { server: None, name: TOOL.into() };
        let call_arguments = arguments(request);
        let call = Call { id: "1".to_owned(), tool: tool.clone(), arguments: Ok(call_arguments.clone()) };
        let digest = session.conversation.call_digest(&call);
        let monitor = session.conversation.monitor_mut();
        // The audit log identifies a verdict by the number of events before its call.
        let event = monitor.trace().len();
        let verdict = monitor.judge_entry(TraceEntry::from(call), Attribution::everything());
        let judgement = verdict.judgement();
        let judged = CallVerdict {
            tool,
            arguments: call_arguments,
            // `added.stopped` has the messages of the rules that stop the texts; such a rule denies the call as well.
            outcome: if added.stopped.is_empty() { judgement.outcome() } else { Outcome::Deny },
            reasons: judgement.reasons.clone(),
            label: judgement.label.clone(),
            decided: judgement.decided,
            digest,
            event,
        };
        report.add_judged(std::slice::from_ref(&judged), client);
        let permitted = match verdict {
            _ if !added.stopped.is_empty() => Err(refused(&added.stopped)),
            // The permit is redeemed at the end, after the verdict is recorded.
            Verdict::Permit(permit) => Ok(permit),
            Verdict::Confirm(question) => Err(refused(&reasons(question.judgement()))),
            Verdict::Deny(denial) => Err(refused(&reasons(denial.judgement()))),
        };
        let entry = recorder::judged_entry(&client.spec, &recorded_name(received), judged);
        self.recorder.record_redacting(&[entry], received.key.as_deref())?;
        monitor.redeem(permitted?).map_err(|denial| refused(&reasons(denial.judgement())))
    }
}

/// Returns the name for the conversation of a request in the audit log and in freezes: the scope of its virtual key,
/// which is empty without such a key, and [`RECORDED_NAME`].
fn recorded_name(received: &ModelRouteRequest) -> String {
    scope(received.virtual_key.as_ref().map(|key| key.id.as_str())) + RECORDED_NAME
}

/// Returns the arguments of the call of [`TOOL`] that the policy judges: the model and the texts of the request.
fn arguments(request: &EmbeddingsRequest) -> Map<String, Value> {
    let texts = request.texts.iter().map(|text| Value::from(text.as_str())).collect();
    Map::from_iter([
        ("model".to_owned(), Value::from(request.model.as_str())),
        ("input".to_owned(), Value::Array(texts)),
    ])
}

/// Returns the messages of the reasons of a judgement.
fn reasons(judgement: &Judgement) -> Vec<String> {
    judgement.reasons.iter().map(|reason| reason.message.clone()).collect()
}

/// Returns the refusal of a request whose texts the policy does not permit to be embedded, with the reasons and with
/// the statements that would permit it.
fn refused(reasons: &[String]) -> RequestError {
    let message = format!(
        "the policy does not permit the gateway to send these texts to a model that embeds them: {}; the operator can \
         permit it with `label message ...` for message.role == \"embedding\" and `require ...` for tool:{TOOL}",
        reasons.join("; ")
    );
    RequestError::new(StatusCode::FORBIDDEN, message)
}

/// The API of routes for embeddings, whose form is OpenAI's.
pub(crate) const API: Api = Api::ChatCompletions;
