//! Judges chats between agents and a model that run through another gateway, such as LiteLLM or Envoy. That gateway
//! asks this one before it asks the model and after the model has answered. `http::service` calls this module.
//!
//! The chat is replayed under the policy of the client, in a conversation that exists for this request only. Before the
//! model is asked, the reply says whether the model may read the chat; after the model has answered, it says whether
//! the answer may reach the agent. What cannot be judged is stopped, with a reason that a client of the other gateway
//! can read. No person is asked.
//!
//! * `litellm`: reads and writes the messages of LiteLLM's generic guardrail API.
//! * `ext_proc`: judges the HTTP requests about which Envoy asks its external processor.
//! * `recorded_chat`: replays and judges a chat.
//! * `remembered_chats`: remembers the chats whose answers have not been judged yet.

pub(crate) mod ext_proc;
mod litellm;
mod recorded_chat;
pub(crate) mod remembered_chats;

use std::time::Instant;

use axum::http::StatusCode;
use flowgate_guard::conversation::CallVerdict;
use flowgate_lm::chat::Completion;
use flowgate_lm::wire::{Api, ReceivedRequest};

use super::ModelRoutes;
use super::model_request::ModelRouteRequest;
use super::report::RequestReport;
use super::turn_trace::TurnTrace;
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::RequestError;
use crate::http::value_budget::ValueBudgetShare;
use crate::limits::estimated_memory;
use crate::recorder::{self, AuditEntry};
use crate::telemetry::names;
use crate::virtual_keys::scope::scope;
use litellm::{GuardrailInput, GuardrailRequest};
use recorded_chat::{NotPermitted, RecordedChat};

/// The form of the chats, and of errors before a body is read.
pub(crate) const API: Api = Api::ChatCompletions;
/// The name of the conversation in records. No client can give this name to a conversation, since names in the header
/// are ASCII.
const RECORDED_NAME: &str = "«guardrail»";

impl ModelRoutes {
    /// Answers a message of LiteLLM's guardrail, and writes its line of the operator's log. The status is 200 also if
    /// the chat or the answer is stopped: LiteLLM can be configured to continue after any other status. `presence` says
    /// whether LiteLLM still waits.
    pub(crate) async fn guardrail(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
    ) -> HttpReply {
        let mut report = self.begin_guardrail_report(received);
        let judged = self.judge_guardrail(received, body, presence, &mut report).await;
        let reply = match self.end_guardrail_report(received, report, judged) {
            Ok(()) => litellm::permitted(),
            Err(failure) => litellm::blocked(&failure.message),
        };
        HttpReply::json(StatusCode::OK, &reply).mark_logged()
    }

    /// Begins the report of the judgement on a chat or an answer.
    fn begin_guardrail_report(&self, received: &ModelRouteRequest) -> RequestReport {
        let span = self.telemetry.begin_request(names::GUARDRAIL, received.trace_parent.as_ref());
        // `None`: a judged chat has no conversation that the report could name.
        RequestReport::begin(None, TurnTrace::begin(span, names::GUARDRAIL, &received.client.spec))
    }

    /// Writes the report of a judgement with the outcome `judged`. Returns the outcome that the gateway that has asked
    /// for the judgement receives. It differs from `judged` only in watch mode, in which the policy stops nothing: a
    /// refusal by the policy becomes a permission.
    ///
    /// # Errors
    /// Why the request or the answer is stopped. In watch mode, only freezes, limits and failures of the gateway stop
    /// anything.
    fn end_guardrail_report(
        &self,
        received: &ModelRouteRequest,
        mut report: RequestReport,
        judged: Result<(), NotPermitted>,
    ) -> Result<(), RequestError> {
        let client = &received.client;
        // In watch mode, a `Failed` outcome still stops the request.
        let is_only_watched =
            client.spec.watch.is_some() && matches!(judged, Ok(()) | Err(NotPermitted::Stopped(_)));
        let judged = judged.map_err(|not_permitted| match not_permitted {
            NotPermitted::Stopped(stopped) => RequestError::new(StatusCode::FORBIDDEN, stopped.reason),
            NotPermitted::Failed(failure) => failure,
        });
        if let Err(failure) = &judged {
            report.set_failure(failure);
        }
        report.count_in(self, &client.spec.name);
        report.end_trace(&client.spec);
        report.write(&self.log, &client.spec.name, received.key.as_deref());
        if is_only_watched { Ok(()) } else { judged }
    }

    /// Judges the chat or the answer in a message of LiteLLM, and records the verdicts. Remembers each permitted chat:
    /// LiteLLM later sends the answer without the chat, and the answer is judged as the next message of that chat.
    ///
    /// # Errors
    /// Why the chat or the answer is stopped.
    async fn judge_guardrail(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
        report: &mut RequestReport,
    ) -> Result<(), NotPermitted> {
        let client = &received.client;
        let request = GuardrailRequest::read(body).map_err(NotPermitted::because)?;
        let now = Instant::now();
        match request.input {
            GuardrailInput::Chat(chat) => {
                let decoded = decode(received, &chat)?;
                self.judge_chat(received, &decoded, presence, report).await?;
                // Without an id, the answer cannot be assigned to the chat, and is stopped: the chat need not be
                // remembered.
                let Some(call) = request.call else { return Ok(()) };
                let remembered =
                    self.remembered_chats.remember(&client.spec.name, &id_of(received, &call), &chat, now);
                remembered.map_err(|_| {
                    NotPermitted::because(
                        "too many chats have the same `litellm_call_id`: do not send `x-litellm-call-id`, or send another one with each request",
                    )
                })
            }
            GuardrailInput::Answer(answer) => {
                let call = request.call.ok_or_else(|| NotPermitted::because(UNKNOWN_CALL))?;
                let chats = self.remembered_chats.of_call(&client.spec.name, &id_of(received, &call), now);
                if chats.is_empty() {
                    return Err(NotPermitted::because(UNKNOWN_CALL));
                }
                // Several chats can have the same id; the answer has to be permitted after each of them.
                for chat in chats {
                    // The body of this request has a share of the memory, and the remembered chat has another one.
                    let _share = self.reserve_chat(&chat)?;
                    let decoded = decode(received, &chat)?;
                    self.judge_answer(received, &decoded, answer.clone(), presence, report).await?;
                }
                Ok(())
            }
        }
    }

    /// Judges whether the gateway that asks for the judgement (LiteLLM or Envoy) may ask its model for an answer to a
    /// chat.
    ///
    /// # Errors
    /// Why the model may not be asked.
    async fn judge_chat(
        &self,
        received: &ModelRouteRequest,
        chat: &ReceivedRequest,
        presence: &ClientPresence,
        report: &mut RequestReport,
    ) -> Result<(), NotPermitted> {
        self.check_guardrail(received).await?;
        if received.virtual_key.as_ref().is_some_and(|key| !key.permits_model(&chat.model)) {
            let message =
                "this key may not be used for the model that the chat asks for: ask for another model";
            return Err(RequestError::new(StatusCode::FORBIDDEN, message).into());
        }
        self.note_offered_tools(&received.client, chat);
        report.trace.set_model(names::GUARDRAIL, &received.client, &chat.model);
        let replayed = RecordedChat::replay(&received.client, chat, received.default_source, presence)
            .and_then(RecordedChat::judge_request);
        // A chat without an answer has no new calls: the verdicts on its calls were recorded with earlier requests.
        self.record(received, replayed.map(|()| Vec::new()), report).await
    }

    /// Refuses a judgement while the client is frozen, if a reload has replaced the client, or while a required witness
    /// is too far behind.
    async fn check_guardrail(&self, received: &ModelRouteRequest) -> Result<(), RequestError> {
        received.client.check_replaced()?;
        self.recorder.check_witness_lag()?;
        self.approvals.check_frozen(&received.client.spec, &recorded_name(received)).await
    }

    /// Judges an answer of the model to a chat. In watch mode, the chat is replayed under a permissive policy, which
    /// stops nothing. The policy that the operator wrote is evaluated as well, and its verdicts are only recorded: in
    /// the watch log and in `report`.
    ///
    /// # Errors
    /// Why the answer is stopped.
    async fn judge_answer(
        &self,
        received: &ModelRouteRequest,
        chat: &ReceivedRequest,
        answer: Completion,
        presence: &ClientPresence,
        report: &mut RequestReport,
    ) -> Result<(), NotPermitted> {
        let client = &received.client;
        self.check_guardrail(received).await?;
        report.trace.set_model(names::GUARDRAIL, client, &chat.model);
        let mut replayed = RecordedChat::replay(client, chat, received.default_source, presence)?;
        // The verdicts on the chat were recorded with earlier requests, so they are dropped here.
        replayed.session.take_watched();
        let judged = replayed.judge_answer(answer);
        let watched = replayed.session.take_watched();
        if client.spec.watch.is_some() {
            self.record_watched(&client.spec, &watched);
        }
        // Only the verdicts are needed from here on.
        drop(replayed);
        // A stopped answer ends here: its report keeps the verdicts by which it was stopped. In watch mode, these are
        // only answers that cannot be judged.
        self.record(received, judged, report).await?;
        if client.spec.watch.is_some() {
            // `record` has reported the verdicts of the permissive policy; those of the operator's policy replace them.
            report.set_watched(&watched, client);
        }
        Ok(())
    }

    /// Records the outcome `judged` of a judgement: the verdicts on calls, in the audit log and in `report`, and the
    /// replies that a rule withholds, in the audit log. The model provider's key, if the request has one, is removed
    /// from the records. Then refuses an answer with a call whose tool is frozen, although the policy permits the call.
    ///
    /// # Errors
    /// The error in `judged`, if it is one; otherwise, the freeze of a tool that is called, or a failure to record the
    /// verdicts.
    async fn record(
        &self,
        received: &ModelRouteRequest,
        judged: Result<Vec<CallVerdict>, NotPermitted>,
        report: &mut RequestReport,
    ) -> Result<(), NotPermitted> {
        let (client, name) = (&received.client, recorded_name(received));
        let (verdicts, stopped) = match judged {
            Ok(verdicts) => (verdicts, None),
            Err(NotPermitted::Stopped(mut stopped)) => (std::mem::take(&mut stopped.judged), Some(stopped)),
            Err(failed) => return Err(failed),
        };
        report.add_judged(&verdicts, client);
        // The freezes are read before anything is recorded. They do not matter if the answer is stopped already.
        let frozen =
            if stopped.is_none() { self.freeze_of_called_tool(received, &verdicts).await } else { None };
        let entries =
            verdicts.into_iter().map(|verdict| recorder::judged_entry(&client.spec, &name, verdict));
        let withheld = stopped.iter().flat_map(|stopped| stopped.withheld.iter().cloned());
        let withheld = withheld.map(|text| recorder::withheld_reply_entry(&client.spec, &name, text));
        let entries: Vec<AuditEntry> = entries.chain(withheld).collect();
        self.recorder.record_redacting(&entries, received.key.as_deref())?;
        match (stopped, frozen) {
            (Some(stopped), _) => Err(NotPermitted::Stopped(stopped)),
            // A failure and not `Stopped`, since a freeze also holds in watch mode, in which `Stopped` has no effect.
            (None, Some(why)) => Err(RequestError::new(StatusCode::FORBIDDEN, why).into()),
            (None, None) => Ok(()),
        }
    }

    /// Returns why a freeze stops one of the calls that `verdicts` are about: its tool, the server of the tool, the
    /// client or the conversation is frozen, the virtual key is no longer valid, or the freezes cannot be read. `None`
    /// if no freeze stops any of them.
    async fn freeze_of_called_tool(
        &self,
        received: &ModelRouteRequest,
        verdicts: &[CallVerdict],
    ) -> Option<String> {
        let (client, name) = (&received.client.spec, recorded_name(received));
        for verdict in verdicts {
            let why = self.approvals.freeze_reason(client, &name, &verdict.tool.to_string()).await;
            if why.is_some() {
                return why;
            }
        }
        None
    }

    /// Reserves memory for a chat until the returned share is dropped.
    ///
    /// # Errors
    /// If there is no room now.
    fn reserve_chat(&self, chat: &str) -> Result<ValueBudgetShare, NotPermitted> {
        let share = self.values.take(estimated_memory(chat.as_bytes()));
        share.map_err(|_| {
            let why = "the gateway is overloaded: try again in a second";
            RequestError::new(StatusCode::SERVICE_UNAVAILABLE, why).into()
        })
    }
}

/// The reason for stopping an answer that belongs to no known chat.
const UNKNOWN_CALL: &str = "the answer belongs to no chat that was judged here: the guardrail needs the modes `pre_call` and `post_call`, \
    and both must ask the same gateway";

/// Decodes a chat, which is the text of a request for chat completions.
fn decode(received: &ModelRouteRequest, chat: &str) -> Result<ReceivedRequest, NotPermitted> {
    received.client.decoder.decode(API, chat).map_err(NotPermitted::because)
}

/// Returns the name for the conversation of a judged chat in records and freezes, since the chat itself has no name: a
/// constant after the scope of the request's virtual key, which is empty without such a key.
fn recorded_name(received: &ModelRouteRequest) -> String {
    scope(received.virtual_key.as_ref().map(|key| key.id.as_str())) + RECORDED_NAME
}

/// Returns the id under which a chat is remembered: `call`, LiteLLM's id, after the scope of the request's virtual key,
/// so that virtual keys do not share chats.
fn id_of(received: &ModelRouteRequest, call: &str) -> String {
    scope(received.virtual_key.as_ref().map(|key| key.id.as_str())) + call
}
