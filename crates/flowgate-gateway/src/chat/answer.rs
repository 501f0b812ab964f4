//! Answers a request to a model: reads its body, runs the turn and sends the reply. Only streamed text that the guard
//! releases early is sent during the turn. The end of the reply is sent after the turn is recorded in the audit log and
//! stored in the database. The HTTP service calls [`ModelRoutes::answer`] in a task.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use flowgate_guard::history::{History, SentChat};
use flowgate_lm::chat::{Completion, Sources};
use flowgate_lm::wire::{AnswerStorage, Api, ReceivedRequest, ResponseHead};
use tokio::sync::mpsc::Sender;

use super::ModelRoutes;
use super::clients::ClientState;
use super::conversations::{ConversationHandle, ConversationState, LockedConversation};
use super::error_reply::error_reply;
use super::handed_calls::HandedTurn;
use super::headers::{CONVERSATION, with_conversation_header};
use super::item_references::{self, ReferencedAnswers};
use super::model_request::ModelRouteRequest;
use super::report::RequestReport;
use super::request_decoder::with_default_provenance;
use super::requested_model;
use super::response_id::ResponseId;
use super::stream::{OutgoingReply, ReplyPart};
use super::turn;
use super::turn_request::TurnRequest;
use super::turn_trace::TurnTrace;
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::log::LogEvent;
use crate::recorder::AuditEntry;
use crate::telemetry::names;
use crate::virtual_keys::scope::{name_for_client, scope};
use crate::visibility::HIDDEN_HEADER;

/// The messages of a request, before its conversation is locked.
enum RequestChat<'m> {
    /// All messages of the chat.
    Whole(SentChat<'m>),
    /// The messages after an earlier answer, with their provenance.
    Continued(ResponseId, Sources),
    /// All messages of the chat, with their provenance. Some of the messages are only references to earlier answers;
    /// the answers replace these messages when the conversation is locked.
    Referring(ReferencedAnswers, Sources),
}

/// Why a request cannot continue an earlier answer: no conversation of the client has this answer.
const GONE: &str = "names no answer of a conversation of this client: the conversation may have been deleted, or the chat before the \
    answer was changed; send the whole chat instead";

/// Returns the error for a request whose `previous_response_id` cannot be used.
fn bad_previous_answer(why: &str) -> RequestError {
    RequestError::new(StatusCode::BAD_REQUEST, format!("`previous_response_id` {why}"))
}

/// Reads the id of the earlier answer that a request continues. `scope` is the prefix of the names of all conversations
/// of the request's virtual key; it is empty without such a key. `named` is the name of the conversation in the header
/// of the request, with this prefix; `None` without this header.
///
/// # Errors
/// If the text is not an id of this gateway, or the header names another conversation.
fn previous_answer(id: &str, scope: &str, named: Option<&str>) -> Result<ResponseId, RequestError> {
    let previous = ResponseId::parse(id).ok_or_else(|| bad_previous_answer(GONE))?;
    match is_elsewhere(&previous, scope, named) {
        true => Err(bad_previous_answer(&format!(
            "names an answer of one conversation, and the header `{CONVERSATION}` names another one: leave out the id or the header"
        ))),
        false => Ok(previous),
    }
}

/// Returns whether the header of a request names a conversation other than that of this answer. `named` is the name in
/// the header after `scope`, the prefix of the names of all conversations of the request's virtual key; `None` without
/// this header. The name in the answer has no such prefix.
fn is_elsewhere(answer: &ResponseId, scope: &str, named: Option<&str>) -> bool {
    named.is_some_and(|named| named.strip_prefix(scope) != Some(&*answer.conversation))
}

/// Reads the references of a request to items of earlier answers; `None` if no message of the request refers to an
/// answer. `scope` is the prefix of the names of all conversations of the request's virtual key; it is empty without
/// such a key. `named` is the name of the conversation in the header of the request, with this prefix; `None` without
/// this header.
///
/// # Errors
/// If the references cannot be used, or the header names another conversation.
fn referenced_answers(
    request: &ReceivedRequest,
    scope: &str,
    named: Option<&str>,
) -> Result<Option<ReferencedAnswers>, RequestError> {
    let answers = ReferencedAnswers::of(request)?;
    match answers.as_ref().is_some_and(|answers| is_elsewhere(answers.last(), scope, named)) {
        true => Err(item_references::bad_reference(&format!(
            "refers to items of one conversation, and the header `{CONVERSATION}` names another one: leave out the items or the header"
        ))),
        false => Ok(answers),
    }
}

impl ModelRoutes {
    /// Answers a request to a model, and writes its line of the operator's log. A streamed answer is sent to `parts`,
    /// the channel from which the HTTP response reads, and the result is then `None`. `presence` reports whether the
    /// client still waits.
    pub(crate) async fn answer(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
    ) -> Option<HttpReply> {
        let span = self.telemetry.begin_request(names::CHAT, received.trace_parent.as_ref());
        let trace = TurnTrace::begin(span, names::CHAT, &received.client.spec);
        let mut report = RequestReport::begin(received.conversation.as_deref(), trace);
        let reply = self.answer_with_report(received, body, presence, parts, &mut report).await;
        if let Some(reply) = reply.as_ref().filter(|reply| reply.status.as_u16() >= 400) {
            report.set_rejected(reply.status);
        }
        report.count_in(self, &received.client.spec.name);
        report.end_trace(&received.client.spec);
        report.write(&self.log, &received.client.spec.name, received.key.as_deref());
        // The line is written above, so the HTTP service writes none for this reply.
        reply.map(HttpReply::mark_logged)
    }

    /// Finds the conversation of a request and runs its turn. Sets the outcome in `report`, which the caller logs; if
    /// the body cannot be read, the caller sets the outcome by the status of the returned reply. A streamed answer is
    /// sent to `parts`, and the result is then `None`; a request that fails before any part is sent has an error reply
    /// as its result. `presence` reports whether the client still waits.
    async fn answer_with_report(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
        report: &mut RequestReport,
    ) -> Option<HttpReply> {
        let api = received.api;
        let bad = |message: &str| error_reply(api, StatusCode::BAD_REQUEST, message);
        let Ok(body) = std::str::from_utf8(body) else {
            return Some(bad("the body of the request is not valid UTF-8: encode it in UTF-8"));
        };
        let request = match (received.client.decoder.decode(api, body), &received.target) {
            (Ok(request), Some(target)) => request.addressed_to(target),
            (Ok(request), None) => request,
            (Err(why), _) => return Some(bad(&why)),
        };
        // Sets the failure in the report, and returns the reply for the client.
        let failed = |report: &mut RequestReport, failure: RequestError| {
            report.set_failure(&failure);
            error_reply(api, failure.status, &failure.message)
        };
        report.trace.set_model(names::CHAT, &received.client, &request.model);
        // Parts of user messages that the client has not marked with a provenance have the provenance that its header
        // declares.
        let messages = &request.request.messages;
        let sources = with_default_provenance(request.sources.clone(), messages, received.default_source);
        // The prefix of the names of all conversations of the request's virtual key; empty without such a key.
        let key_scope = scope(received.virtual_key.as_ref().map(|key| key.id.as_str()));
        let named = received.conversation.as_deref();
        let found = match referenced_answers(&request, &key_scope, named) {
            Ok(answers) => {
                self.find_chat(&received.client, (&request, answers), sources, (&key_scope, named)).await
            }
            Err(failure) => Err(failure),
        };
        let (handle, input) = match found {
            Ok(found) => found,
            Err(failure) => return Some(failed(report, failure)),
        };
        report.set_conversation(handle.name());
        let answered = self.stream_turn(received, &handle, (&request, input), presence, parts, report).await;
        answered.unwrap_or_else(|failure| {
            Some(with_conversation_header(failed(report, failure), Some(handle.name())))
        })
    }

    /// Finds the conversation of a request, and returns it with the messages of the request. A request that continues
    /// an earlier answer, or refers to items of earlier answers (`answers`), belongs to the conversation that has these
    /// answers. The conversation of any other request is found by its name or by the chat. `sources` are the provenance
    /// of the messages. `key_scope` is the prefix of the names of all conversations of the request's virtual key, and
    /// `named` the name of the conversation in the header of the request, with this prefix; `None` without this header.
    ///
    /// # Errors
    /// If the client has no conversation with the earlier answers, the id of the earlier answer cannot be used, or the
    /// database cannot be read.
    async fn find_chat<'m>(
        &self,
        client: &ClientState,
        (request, answers): (&'m ReceivedRequest, Option<ReferencedAnswers>),
        sources: Sources,
        (key_scope, named): (&str, Option<&str>),
    ) -> Result<(ConversationHandle, RequestChat<'m>), RequestError> {
        if let Some(id) = &request.previous_response {
            let previous = previous_answer(id, key_scope, named)?;
            let handle = self.find_conversation_of(client, &previous, key_scope).await?;
            let handle = handle.ok_or_else(|| bad_previous_answer(GONE))?;
            return Ok((handle, RequestChat::Continued(previous, sources)));
        }
        if let Some(answers) = answers {
            let handle = self.find_conversation_of(client, answers.last(), key_scope).await?;
            let handle = handle.ok_or_else(item_references::gone)?;
            return Ok((handle, RequestChat::Referring(answers, sources)));
        }
        let chat = SentChat::of(&request.request.messages).with_sources(sources);
        let handle = self.sessions.find((client, key_scope), named, &chat).await?;
        Ok((handle, RequestChat::Whole(chat)))
    }

    /// Finds the conversation of an earlier answer; `None` if the client has no such conversation. `key_scope` is the
    /// prefix of the names of all conversations of the request's virtual key.
    ///
    /// # Errors
    /// If the database cannot be read.
    async fn find_conversation_of(
        &self,
        client: &ClientState,
        answer: &ResponseId,
        key_scope: &str,
    ) -> Result<Option<ConversationHandle>, RequestError> {
        self.sessions.find_existing(client, &format!("{key_scope}{}", answer.conversation)).await
    }

    /// Runs one turn in a conversation, and stores it before the end of its reply is sent. `input` are the messages of
    /// `request`. Returns the reply; `None` if the answer was streamed, to `parts`.
    ///
    /// # Errors
    /// Why the turn failed or could not be stored, unless a part of a streamed answer has been sent: the failure is
    /// then sent in the stream.
    async fn stream_turn(
        &self,
        received: &ModelRouteRequest,
        handle: &ConversationHandle,
        (request, input): (&ReceivedRequest, RequestChat<'_>),
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
        report: &mut RequestReport,
    ) -> Result<Option<HttpReply>, RequestError> {
        let client = &received.client;
        let mut locked = self.sessions.lock(client, handle, presence).await?;
        // The configuration may have been reloaded while the request waited for the lock.
        client.check_replaced()?;
        // The whole chat: the client sends it, or refers to earlier answers that are stored.
        let messages = &request.request.messages;
        let chat = match input {
            RequestChat::Whole(chat) => Ok(chat),
            RequestChat::Continued(previous, sources) => {
                let before = locked.history().and_then(|history| previous.chat_in(history));
                let chat = before.map(|before| SentChat::following(&before, messages, &sources));
                chat.ok_or_else(|| bad_previous_answer(GONE))
            }
            RequestChat::Referring(answers, sources) => {
                let history = locked.history();
                let chat = history.and_then(|history| answers.chat_in(history, messages, &sources));
                chat.ok_or_else(item_references::gone)
            }
        };
        let chat = &match chat {
            Ok(chat) => chat,
            Err(failure) => {
                // Without this, another gateway, which the client may ask next, would wait until the lease expires. A
                // lease that cannot be released expires by itself. The lease is released while the conversation is
                // locked, so that the lease of the next request is not released instead.
                let _ = self.sessions.store().release_lease(&client.spec.name, handle.name()).await;
                return Err(failure);
            }
        };
        // Prepares the metadata of the answer, and the stream if the client asks for one.
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let id = match received.api {
            Api::Responses => {
                let answer = locked.history().map_or(1, History::next_answer_number);
                let chat = chat.message_digests();
                ResponseId::following(name_for_client(handle.name()), &chat, answer).to_string()
            }
            api => format!("{}-{created}-{number}", api.form().id_prefix),
        };
        let mut tool_forms = request.tool_forms.clone();
        // What the answer says if the request asks for verdicts on its calls (`safeguards`).
        tool_forms.answer_safeguards(client.spec.safeguards);
        let head = ResponseHead {
            id: &id,
            model: &request.model,
            created,
            tools: &tool_forms,
            storage: AnswerStorage::Stored(request.previous_response.as_deref()),
        };
        let mut stream =
            OutgoingReply::new(received.api, head, request.usage, name_for_client(handle.name()), parts);
        // The answer may have citations, which divide its text into blocks and are judged with the whole text. So no
        // text is sent before the answer is complete. Only upstreams with the Messages API are asked for citations.
        if !request.citable.is_empty()
            && client.spec.upstreams().any(|upstream| upstream.api == Api::Messages)
        {
            stream.hold_text();
        }
        let mut stream = request.stream.then_some(stream);
        let reply = (&mut stream, &mut *report);
        let outcome =
            self.run_guarded(received, handle.name(), &mut locked, (request, chat), presence, reply).await;
        // The turn is recorded and stored before its reply is sent, whether or not it failed. `events` are its audit
        // records, and `watched` are the verdicts of watch mode.
        let events = locked.get().map(|session| std::mem::take(&mut session.events)).unwrap_or_default();
        let watched = locked.get().map(ConversationState::take_watched).unwrap_or_default();
        let persisted = match self.recorder.record_redacting(&events, received.key.as_deref()) {
            Ok(()) => self.sessions.persist(client, handle, &mut locked).await,
            Err(error) => Err(self.sessions.evict_unpersisted(handle, &mut locked, error).await),
        };
        match persisted {
            Ok(()) if client.spec.watch.is_some() => {
                self.record_watched(&client.spec, &watched);
                report.set_watched(&watched, client);
            }
            Ok(()) => {}
            // The audit log may say already that approvals were used, but their calls are not sent.
            Err(_) => self.record_taken_back(&events),
        }
        drop(locked);
        // The answer of a turn that could not be stored must not be sent, so the request fails.
        let outcome = outcome.and_then(|completion| persisted.map(|()| completion));
        if let Ok(completion) = &outcome {
            report.trace.set_completion(completion);
            let labels = std::mem::take(&mut report.handed_labels);
            let handed = HandedTurn { calls: &completion.calls, tools: &request.request.tools, labels };
            self.handed_calls.note(&client.spec.name, handle.name(), handed);
        }
        // Sends the end of the reply.
        match (outcome, stream) {
            (Ok(completion), Some(mut stream)) => Ok(stream.finish(&completion, report.waits.as_ref()).await),
            (Ok(completion), None) => {
                Ok(Some(Self::whole_reply(received.api, &completion, head, handle.name(), report)))
            }
            // The status of the reply has been sent, so the failure becomes an event of the stream.
            (Err(failure), Some(mut stream)) if stream.has_begun() => {
                report.set_failure(&failure);
                stream.fail(failure.status, &failure.message).await;
                Ok(None)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Builds the reply of a request that does not ask for a stream: the answer, and in its headers the conversation
    /// `name`, the question for which the turn waits, and the explanation of what is hidden from the model.
    fn whole_reply(
        api: Api,
        completion: &Completion,
        head: ResponseHead<'_>,
        name: &str,
        report: &RequestReport,
    ) -> HttpReply {
        let mut body = api.encode_response(completion, head);
        if let Some(waits) = &report.waits {
            waits.add_to_body(&mut body);
        }
        let reply = HttpReply::json(StatusCode::OK, &body);
        let reply = with_conversation_header(reply, Some(name));
        let reply = match &report.waits {
            Some(waits) => waits.add_to_reply(reply),
            None => reply,
        };
        match &report.explained {
            Some(explanation) => reply.with_header(HIDDEN_HEADER, explanation),
            None => reply,
        }
    }

    /// Records that approved calls of a turn did not run, because the turn could not be stored. `events` are the
    /// records of the turn that the audit log may have already: for each record that says that an approval was used,
    /// appends a record that corrects it.
    pub(crate) fn record_taken_back(&self, events: &[AuditEntry]) {
        let cause = "the turn could not be stored";
        let notes: Vec<AuditEntry> = events.iter().filter_map(|note| note.correction(cause)).collect();
        if let Err(error) = self.recorder.record(&notes) {
            let sentence = format!("the audit log does not record that approved calls did not run: {error}");
            // The empty name: the audit log belongs to no single client.
            self.log.write(LogEvent::Failure, "", Vec::new(), &sentence);
        }
    }

    /// Checks whether a turn may run, and runs it in the locked conversation `name`. The checks are about the room in
    /// the conversation, the requested model, the witnesses of the audit log, and freezes. `decoded` is the request,
    /// and `chat` are its messages. Text that may be released early is sent to `stream`, if the client asks for a
    /// stream. The numbers for the log line go to `report`. `presence` reports whether the client still waits.
    ///
    /// # Errors
    /// Why the turn may not run, or why it failed.
    async fn run_guarded(
        &self,
        received: &ModelRouteRequest,
        name: &str,
        locked: &mut LockedConversation<'_>,
        (decoded, chat): (&ReceivedRequest, &SentChat<'_>),
        presence: &ClientPresence,
        (stream, report): (&mut Option<OutgoingReply>, &mut RequestReport),
    ) -> Result<Completion, RequestError> {
        let Some(session) = locked.get() else {
            let message = "the request failed because of a bug in the gateway (its conversation was not loaded): report it";
            return Err(RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        };
        if !self.sessions.has_room(session, (&received.client.spec.name, name)) {
            let message = "the conversation has reached the size limit of this gateway: begin a new one";
            return Err(
                RequestError::new(StatusCode::BAD_REQUEST, message).with_cause(RequestErrorCause::Full)
            );
        }
        // The policy can refer to parameters of the caller, such as the groups in a token.
        session.add_caller_parameters(received.virtual_key.as_deref());
        // In watch mode, the client's own policy judges the messages from here on, without effect.
        session.begin_watching(&received.client.spec);
        requested_model::check_request((&received.client, received.virtual_key.as_deref()), decoded)?;
        self.note_offered_tools(&received.client, decoded);
        self.recorder.check_witness_lag()?;
        self.approvals.check_frozen(&received.client.spec, name).await?;
        // Joins the labels that other conversations have written to external state, and loads texts that the client was
        // shown through other gateways.
        self.sessions.catch_up(&received.client, session).await?;
        let (client, key) = (&received.client, received.key.as_deref());
        let spending = self.begin_spending(client, received.virtual_key.as_ref());
        let outcome = turn::run(
            TurnRequest {
                api: received.api,
                client,
                name,
                decoded,
                chat,
                key,
                betas: &received.betas,
                presence,
                approvals: &self.approvals,
                recorder: &self.recorder,
                log: &self.log,
                explains: received.explains,
                spending: &spending,
            },
            session,
            stream,
            report,
        )
        .await;
        // Counts the tokens against the budgets, also those of a turn that failed.
        spending.record().await;
        outcome
    }
}
