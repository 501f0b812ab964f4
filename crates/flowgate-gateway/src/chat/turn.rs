//! Runs one turn: from the decoded request of a client to the completion that it receives.
//!
//! The request's conversation is locked while the turn runs. `answer` calls [`run`] and stores the outcome afterwards.
//! Before that, `answer` and `embeddings` check here whether the client may ask for the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate::monitor::PushError;
use flowgate_guard::agent::{Agent, Toolbox, TurnError};
use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{Turn, TurnEnd, VoidedCall};
use flowgate_guard::history::SentChat;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, Message, ProviderToolUse, ToolSpec};
use flowgate_lm::wire::{self, Api};
use flowgate_lm::{Error, RemoteModel};

use super::budgets::TurnSpending;
use super::clients::ClientState;
use super::conversations::ConversationState;
use super::fallback_model::{FallbackModel, UpstreamChoice};
use super::frozen_approvals::{CHANGED, frozen_approvals, is_grant_of_calls_withdrawn};
use super::handed_calls::HandedLabel;
use super::model_error::model_error;
use super::person_approver::PersonApprover;
use super::provider_tools::{ProviderCallLimits, ProviderTools};
use super::report::RequestReport;
use super::stream::OutgoingReply;
use super::tool_choice_model::ToolChoiceModel;
use super::turn_completion::{completion, number_calls, waiting_completion};
use super::turn_observer::TurnObserver;
use super::upstream_model::UpstreamModel;
use super::used_approvals::UsedApprovals;
use crate::approvals::freeze_targets::FreezeTargets;
use crate::approvals::{ApprovalContext, ApprovalOutcome, ApprovalReference, ApprovalService};
use crate::config::{ClientSettings, UpstreamConfig};
use crate::database::{DatabaseError, QuestionOrigin};
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::RequestError;
use crate::http::waiting_status::WaitingStatus;
use crate::log::{LogEvent, OperatorLog};
use crate::recorder::{self, AuditEntry, Recorder};
use crate::telemetry::names;
use crate::virtual_keys::valid_key::ValidKey;
use crate::visibility;
use flowgate_audit::AuditEvent;

/// The maximum number of tools that one request may offer.
const MAX_TOOLS: usize = 512;

/// A request with everything needed to answer it.
#[derive(Clone, Copy)]
pub(crate) struct TurnRequest<'t> {
    /// The API of the client.
    pub(crate) api: Api,
    pub(crate) client: &'t ClientState,
    /// The name of the conversation.
    pub(crate) name: &'t str,
    /// The decoded request.
    pub(crate) decoded: &'t wire::ReceivedRequest,
    /// The messages of the request, with their digests, as the conversation compares them with its history.
    pub(crate) chat: &'t SentChat<'t>,
    /// The client's key for the upstream, if the client sends one.
    pub(crate) key: Option<&'t str>,
    /// The features of the Messages API that the client asks for, and that change no judgement.
    pub(crate) betas: &'t [&'static str],
    pub(crate) presence: &'t ClientPresence,
    pub(crate) approvals: &'t ApprovalService,
    /// The audit log, for calls that the provider runs during the turn.
    pub(crate) recorder: &'t Recorder,
    pub(crate) log: &'t OperatorLog,
    /// Whether the client asks for an explanation of what is hidden from the model.
    pub(crate) explains: bool,
    /// Receives what the models of the turn use.
    pub(super) spending: &'t TurnSpending,
}

/// Rejects a request before its chat is added to the conversation, if its client has no upstream, or if the request has
/// too many tools. Also rejects a model that the client or its virtual key may not use, or that has no price although
/// the cost is limited.
pub(crate) fn check_request(
    caller: (&ClientState, Option<&ValidKey>),
    decoded: &wire::ReceivedRequest,
) -> Result<(), RequestError> {
    check_model(caller, &decoded.model)?;
    if decoded.request.tools.len() > MAX_TOOLS {
        let message =
            format!("the request has more than {MAX_TOOLS} tools: send only those that the agent needs");
        return Err(RequestError::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(())
}

/// Rejects a model that a client, or its virtual key, may not use, or that has no price although there is a budget for
/// costs.
pub(super) fn check_model(
    (client, key): (&ClientState, Option<&ValidKey>),
    model: &str,
) -> Result<(), RequestError> {
    let upstream = upstream(client)?;
    // An empty list permits every model.
    if !upstream.models.is_empty() && !upstream.models.iter().any(|permitted| permitted == model) {
        let message = format!(
            "this client may not ask for the model `{model}`; it may ask for: {} (`models` in [upstreams])",
            upstream.models.join(", ")
        );
        return Err(RequestError::new(StatusCode::NOT_FOUND, message));
    }
    if let Some(key) = key.filter(|key| !key.permits_model(model)) {
        let models = key.models();
        let message =
            format!("this key may not be used for the model `{model}`; it may be used for: {models}");
        return Err(RequestError::new(StatusCode::NOT_FOUND, message));
    }
    let budgets = std::iter::once(&client.spec.budget).chain(key.map(|key| &key.budget));
    if !budgets.into_iter().all(|budget| budget.permits_model(model)) {
        let message = format!(
            "the model `{model}` has no price, so its cost cannot be counted against the budget: ask for \
             another model, or the operator of the gateway to add it to [prices]"
        );
        return Err(RequestError::new(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

/// Returns the upstream of a client; the error says that the client has none.
pub(super) fn upstream(client: &ClientState) -> Result<&UpstreamConfig, RequestError> {
    client.spec.upstream().map_err(|why| RequestError::new(StatusCode::NOT_FOUND, why))
}

/// Adds a chat to its conversation and runs the agent until the turn ends, hands calls to the client or waits for a
/// person.
///
/// A request that repeats the chat of a turn that waits for a person resumes that turn if the person has decided, and
/// otherwise returns the note that the turn waits. Any other request adds its messages to the conversation, and voids
/// open questions. Then the agent runs, the verdicts become audit events of `session`, and calls that a freeze has
/// stopped in the meantime are withheld. The returned completion is what the client receives; the caller stores
/// `session`. Text that may be released early is sent to `stream`, and the numbers for the log line go to `report`.
///
/// # Errors
/// If the model or the database fails, the conversation is full or does not have the beginning of the chat, or calls
/// are withheld because of a freeze. The caller must store `session` in these cases too, since it has events to record.
pub(crate) async fn run(
    turn: TurnRequest<'_>,
    session: &mut ConversationState,
    stream: &mut Option<OutgoingReply>,
    report: &mut RequestReport,
) -> Result<Completion, RequestError> {
    let TurnRequest {
        api,
        client,
        name,
        decoded,
        chat,
        key,
        betas,
        presence,
        approvals,
        recorder,
        log,
        explains,
        spending,
    } = turn;
    // The models: the client's own with its fallbacks, and the small one.
    let upstream = upstream(client)?;
    let request = &decoded.request;
    let mut remote = upstream.remote.with_model(&decoded.model).betas(betas);
    if let Some(key) = key {
        remote = remote
            .key(key)
            .map_err(|error| RequestError::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
    }
    let on_failure = |model: &str, error: &Error| {
        let sentence = format!("{model} failed, so the next upstream of `fallback` is asked: {error}");
        let fields = vec![("conversation", name.into())];
        log.write(LogEvent::Upstream, &client.spec.name, fields, &sentence);
    };
    // Separate records, so that the model that has answered is that of `calls`, and never another one.
    let [calls, small_calls, provider_calls] =
        [(); 3].map(|()| report.trace.model_calls(names::CHAT, client));
    let with_fallback = |first: RemoteModel, model: &str, provider_tool: Option<&ProviderToolUse>, calls| {
        let adapt = |remote: RemoteModel| match provider_tool {
            Some(tool) => remote.for_provider_tool(tool.clone()),
            None => remote,
        };
        let others = client.spec.fallback.iter().filter_map(|further| {
            let remote = further.upstream.remote.with_model(further.model_for(model)?);
            Some(UpstreamChoice { remote: adapt(remote.betas(betas)), upstream: &further.upstream })
        });
        let first = UpstreamChoice { remote: adapt(first), upstream };
        FallbackModel::new(first, others.collect(), &on_failure, spending, calls)
    };
    // The screener and the filler run on the client's small model, if it has one.
    let small_name = client.spec.small_model.as_deref().unwrap_or(&decoded.model);
    let small = with_fallback(remote.with_model(small_name), small_name, None, &small_calls);
    let upstream_micros = AtomicU64::new(0);
    let provider_models: Vec<FallbackModel<'_>> = decoded
        .provider_tools
        .iter()
        .map(|tool| with_fallback(remote.clone(), &decoded.model, Some(tool), &provider_calls))
        .collect();
    let provider_models =
        provider_models.iter().map(|model| UpstreamModel::new(model, presence, &upstream_micros));
    let mut provider_tools = ProviderTools::new(&client.spec, &decoded.provider_tools, provider_models);
    let remote = with_fallback(remote, &decoded.model, None, &calls);

    // Compared with what is frozen after the turn: calls that depend on consents or grants frozen meanwhile are
    // withheld. What is frozen already is withdrawn from the conversation now.
    let has_grants = !session.conversation.monitor().session_grants().is_empty();
    let frozen_before = frozen_approvals(approvals, &client.spec, name, has_grants).await?;
    let withdrawn_from = (&mut session.conversation, &mut session.removed_grants);
    let were_approvals_withdrawn = approvals.withdraw_frozen(&client.spec, name, withdrawn_from).await?;
    // Whether this request continues an earlier turn, after a person has decided its question.
    let mut is_resumed = false;
    let turns = session.turns();
    let context = ApprovalContext {
        client: &client.spec,
        conversation: name,
        origin: QuestionOrigin::Chat { turns, since: turns },
        presence,
        key,
    };
    let used_approvals = UsedApprovals::default();
    let mut person = PersonApprover::new(approvals, context, &used_approvals);
    // The approved calls of an earlier turn that waited for a person and does not continue.
    let mut voided = Vec::new();
    // The chat is either that of a turn that waits for a person, or it is added to the conversation.
    if session.conversation.try_resume(&mut session.history, chat) {
        let digest = session.conversation.pending_question_digest().unwrap_or_default();
        let ApprovalOutcome { decision, asked } = approvals.await_earlier_answer(context, &digest).await?;
        // The request that asked may also have stored questions about later calls, under the number of its turn. This
        // turn finds them only if its questions are searched from that number on.
        let since = asked.as_ref().and_then(|asked| asked.turn).unwrap_or(turns);
        person.context.origin = QuestionOrigin::Chat { turns, since };
        match decision {
            Decision::Undecided => {
                // 0: only the request that asked knows how many questions about later calls it stored.
                let turn = session.conversation.postpone();
                let is_formatted = session.conversation.has_output_format();
                let completion = waiting_completion(&client.spec, asked.as_ref(), 0, &turn, is_formatted);
                session.push_completion(client, &completion).await;
                report.waits = asked.map(|asked| WaitingStatus { question: asked.id });
                return Ok(completion);
            }
            Decision::AllowOnce | Decision::AllowForConversation | Decision::AllowByAll => {
                used_approvals.add(asked);
            }
            Decision::Deny => person.refused.extend(asked),
            // There is no answer to note, and the call does not run.
            Decision::Unanswered | Decision::Unasked => {}
        }
        // While the question was open, other conversations may have written to the stores that the question refers to.
        let tenant = &client.spec.tenant;
        if let Some(record) = approvals.changed_external_state(tenant, session.recalled.as_deref()).await? {
            session.join_external_state(&record).map_err(|reason| {
                let tenant = tenant.clone();
                DatabaseError::ExternalState { tenant, reason }
            })?;
        }
        session.conversation.accept_decision(decision);
        person.earlier = std::mem::take(&mut session.earlier_answers);
        is_resumed = true;
        // The request that asked may have stored questions about later calls. If those calls turn out not to need
        // them, they are voided below.
        person.announced = true;
    } else {
        session.earlier_answers.clear();
        // Questions of a conversation that was carried over are about calls that no longer wait.
        if session.conversation.waits_for_decision() || session.is_newly_carried() {
            approvals.void_questions(&client.spec, name, &[]).await?;
            let cause = "the conversation continued without the answer";
            voided = session.conversation.running_turn_mut().void_approved_calls(cause);
        }
        session.offer(&client.spec, decoded, &approvals.freeze_targets)?;
        session.conversation.set_sampling(request.sampling.clone());
        let mut history = client.lock_history().await;
        let sent = session.conversation.accept_chat(&mut history.client, &mut session.history, chat)?;
        let sent = sent.ok_or_else(|| {
            RequestError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the gateway has no conversation with this beginning: send the whole chat again",
            )
        })?;
        // After the chat, because a schema may quote the texts in it.
        let format = request.format.clone();
        let format_bits =
            session.conversation.set_output_format(&mut history.client, &mut session.history, format)?;
        // For the metrics: an upper bound on what the choice of the hidden words may have revealed.
        client.add_leaked_bits(sent.bits.saturating_add(format_bits));
    }
    // Reports what the policy hides from the model: in the log and, if the client asks for it, in a header.
    let history = client.lock_history().await;
    let ConversationState { conversation, explained, .. } = session;
    visibility::log(log, &client.spec, &history.client, name, conversation, explained);
    if explains {
        let explanation = visibility::header(&client.spec, &history.client, conversation);
        if let Some(stream) = stream.as_mut() {
            stream.header(visibility::HIDDEN_HEADER, explanation.clone());
        }
        report.explained = Some(explanation);
    }
    drop(history);
    provider_tools.compare_with_offer(&client.spec, &session.conversation);
    // The agent runs until the turn ends or waits.
    let model = ToolChoiceModel::new(&remote, &request.choice);
    let begun = Instant::now();
    let provider_calls =
        ProviderCallLimits::new(&client.spec, &decoded.provider_tools, decoded.max_provider_calls);
    let mut observer = TurnObserver {
        client,
        name,
        approvals,
        presence,
        provider_tools: &provider_tools,
        refusal: &|tool| provider_tools.refusal(tool),
        stream,
        before: String::new(),
        recalled: session.recalled.clone(),
        clock: report.trace.judging_clock(&session.conversation),
        frozen_before: (has_grants, &frozen_before),
        has_stale_permits: is_resumed && were_approvals_withdrawn,
        recorder,
        key,
        used: &used_approvals,
        recorded: Vec::new(),
        provider_calls,
    };
    let is_formatted = session.conversation.has_output_format();
    let (model, small) = (
        UpstreamModel::new(&model, presence, &upstream_micros),
        UpstreamModel::new(&small, presence, &upstream_micros),
    );
    let mut agent = Agent {
        model: &model,
        screener: &small,
        filler: &small,
        tools: &Toolbox::external(),
        provider_tools: Some(&provider_tools),
        approver: &mut person,
        clock: &|| begun.elapsed(),
        observer: &mut observer,
    };
    let outcome = agent.continue_turn(&mut session.conversation).await;
    let further = person.answers_for_further_calls();
    let PersonApprover { question, upcoming, announced, asked, failure: approval_failure, .. } = person;
    // `recorded` are the verdicts on calls that the provider ran: the audit log has them, and the approvals of these
    // calls are used, whatever becomes of the turn.
    let TurnObserver { clock, recorded, .. } = observer;
    report.trace.set_judging(clock, asked);
    let used = used_approvals.into_pending();
    report.trace.set_answered(&calls);
    report.add_upstream_time(Duration::from_micros(upstream_micros.load(Ordering::Relaxed)));
    // A question could not be stored, so the turn that waits for it must not be stored either.
    if let Some(error) = approval_failure {
        outcome.iter().for_each(|turn| report.add_turn(turn, client));
        session.is_abandoned = true;
        return Err(error.into());
    }
    let mut turn = match outcome {
        Ok(turn) => turn,
        Err(error) => {
            // The verdicts of the failed turn are recorded, and its approvals become void.
            let judged = session.conversation.running_turn_mut().take_judged_calls();
            report.add_judged(&judged, client);
            voided.extend(session.conversation.running_turn_mut().void_approved_calls("the turn failed"));
            let mut failed = Turn { judged, void: voided, ..Turn::default() };
            session.events = take_audit_events(client, name, &mut failed, &recorded);
            session.void_approvals = used;
            return Err(match error {
                TurnError::Model(error) => model_error(&error),
                TurnError::Full(error) => error.into(),
                _ => RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            });
        }
    };
    report.add_turn(&turn, client);
    // The calls of the earlier turn come first, as they became void first.
    turn.void.splice(0..0, voided);
    if announced && turn.ended != Some(TurnEnd::Asked) {
        // Questions that were stored for later calls, and that these calls turned out not to need, must not stay open.
        let voided_questions = approvals.void_questions(&client.spec, name, &used).await;
        // If they cannot be voided, the turn is not stored either.
        session.is_abandoned |= voided_questions.is_err();
        voided_questions?;
    }
    // Whether the client receives a call that was approved under this digest.
    let runs = |digest: &str| turn.calls.iter().any(|call| call.approved.as_deref() == Some(digest));
    // One approval of several equal calls is used if one of them runs.
    let is_void = |asked: &ApprovalReference| {
        turn.void.iter().any(|void| void.digest == asked.digest)
            && !(asked.is_for_several && runs(&asked.digest))
    };
    (session.void_approvals, session.used_approvals) = used.into_iter().partition(is_void);
    if turn.ended == Some(TurnEnd::Asked) {
        session.earlier_answers = further;
    }
    // For hooks that ask about the calls. In watch mode, the labels are those of the permissive policy, under which no
    // hook judges, so they are left out.
    if client.spec.watch.is_none() {
        let monitor = session.conversation.monitor();
        report.handed_labels =
            turn.calls.iter().map(|call| HandedLabel::of(call, &turn.judged, monitor)).collect();
    }
    session.events = take_audit_events(client, name, &mut turn, &recorded);
    // A turn that waits for a person hands over no calls.
    if turn.ended != Some(TurnEnd::Asked) {
        // A freeze may have been ordered since the calls were permitted.
        let mut calls = turn.calls.iter();
        let freeze_reason = loop {
            let Some(call) = calls.next() else { break None };
            let reason = approvals.freeze_reason(&client.spec, name, &call.tool.to_string()).await;
            if reason.is_some() {
                break reason;
            }
        };
        if let Some(why) = freeze_reason {
            session.withhold_calls(client, name, &mut turn, &why);
            return Err(RequestError::new(StatusCode::FORBIDDEN, why));
        }
        // Calls that were permitted before a person was asked depend on the standing consents and the approvals in
        // force then; if these have changed, the calls are withheld.
        let frozen_after = match frozen_approvals(approvals, &client.spec, name, has_grants).await {
            Ok(frozen) => frozen,
            Err(error) => {
                session.withhold_calls(client, name, &mut turn, "the turn failed");
                return Err(error.into());
            }
        };
        // Earlier requests of a continued turn may have used approvals of lasting grants.
        let approved = turn.calls.iter().filter_map(|call| call.approved.as_deref()).filter(|_| is_resumed);
        let of_conversation = (&client.spec, name);
        let is_withdrawn =
            match is_grant_of_calls_withdrawn(approvals, of_conversation, approved, turns).await {
                Ok(is_withdrawn) => is_withdrawn,
                Err(error) => {
                    session.withhold_calls(client, name, &mut turn, "the turn failed");
                    return Err(error.into());
                }
            };
        let have_permits_changed =
            is_resumed && were_approvals_withdrawn || is_withdrawn || frozen_after != frozen_before;
        if !turn.calls.is_empty() && have_permits_changed {
            session.withhold_calls(client, name, &mut turn, CHANGED);
            return Err(RequestError::new(StatusCode::CONFLICT, CHANGED));
        }
    }
    // Nothing withholds the calls any more, so their approvals are recorded as used.
    if turn.ended != Some(TurnEnd::Asked) {
        for call in &turn.calls {
            let Some(digest) = call.approved.clone() else { continue };
            let (conversation, tool) = (name.to_owned(), call.tool.to_string());
            session.events.push(AuditEvent::ApprovalUsed { conversation, tool, digest }.into());
        }
    }
    // Builds what the client receives.
    let mut completion = match turn.ended {
        Some(TurnEnd::Asked) => {
            let completion =
                waiting_completion(&client.spec, question.as_ref(), upcoming, &turn, is_formatted);
            report.waits = question.map(|asked| WaitingStatus { question: asked.id });
            completion
        }
        _ => completion(&turn, &|tool| client.spec.name_of(tool), is_formatted),
    };
    if api.form().numbers_calls {
        number_calls(&mut completion.calls, chat.full_messages());
    }
    session.push_completion(client, &completion).await;
    Ok(completion)
}

impl ConversationState {
    /// Offers the tools of the request `decoded` to the model, and adds their names to `names`, so that an admin can
    /// freeze them. Does neither if the same tools are on offer already.
    ///
    /// # Errors
    /// If the session has no room for the descriptions of the tools.
    fn offer(
        &mut self,
        client: &ClientSettings,
        decoded: &wire::ReceivedRequest,
        names: &FreezeTargets,
    ) -> Result<(), PushError> {
        let tools = || decoded.request.tools.iter();
        let offered =
            tools().map(|tool| (client.tool_of(&tool.name), tool.description.as_str(), &*tool.parameters));
        if !self.conversation.has_offered(offered) {
            names.note_tools(tools().map(|tool| client.tool_of(&tool.name).to_string()));
            self.conversation.offer_tools(tools().map(|tool| to_offered_tool(client, tool)).collect())?;
        }
        Ok(())
    }

    /// Voids the approvals of a turn whose calls are not sent to the client after all, withdraws the grants of the
    /// conversation, and records this. `name` is the name of the conversation, and `cause` why the calls are withheld.
    /// The caller then fails the request: the client receives no call.
    fn withhold_calls(&mut self, client: &ClientState, name: &str, turn: &mut Turn, cause: &str) {
        self.void_approvals.append(&mut self.used_approvals);
        // One of these approvals may have been given for the rest of the conversation.
        self.conversation.withdraw_grants();
        for call in &mut turn.calls {
            let Some(digest) = call.approved.take() else { continue };
            // Without reasons: the call was not judged again.
            let (tool, reasons, cause) = (call.tool.clone(), Vec::new(), cause.to_owned());
            self.events.push(recorder::void_approval_entry(
                &client.spec,
                name,
                VoidedCall { tool, digest, reasons, cause },
            ));
        }
    }

    /// Adds the completion to the history of the conversation, as the message that the client receives, so that the
    /// next request which repeats it is recognised. The reasoning is left out, since messages are compared without it.
    async fn push_completion(&mut self, client: &ClientState, completion: &Completion) {
        let message = Message::Assistant {
            text: completion.text.clone(),
            calls: completion.calls.clone(),
            thoughts: Vec::new(),
        };
        let mut history = client.lock_history().await;
        self.conversation.record_answer(&mut history.client, &mut self.history, &message);
    }
}

/// Moves the judged calls, the approvals that no longer hold and the withheld replies out of a finished turn of the
/// conversation `name`, as entries for the audit log. Leaves out the verdicts on the calls whose events have the
/// indices in `recorded`: the log has them already.
fn take_audit_events(
    client: &ClientState,
    name: &str,
    turn: &mut Turn,
    recorded: &[usize],
) -> Vec<AuditEntry> {
    let judged = std::mem::take(&mut turn.judged).into_iter();
    let judged = judged.filter(|call| !recorded.contains(&call.event));
    let withheld = std::mem::take(&mut turn.withheld).into_iter();
    let entries = judged.map(|call| recorder::judged_entry(&client.spec, name, call));
    let void = std::mem::take(&mut turn.void).into_iter();
    let entries = entries.chain(void.map(|void| recorder::void_approval_entry(&client.spec, name, void)));
    entries.chain(withheld.map(|text| recorder::withheld_reply_entry(&client.spec, name, text))).collect()
}

/// Builds the offer of a client's tool from its declaration. Its description gets the label that the policy gives it,
/// as the description of a server's tool does. A client declares no schema of the output.
pub(super) fn to_offered_tool(client: &ClientSettings, tool: &ToolSpec) -> OfferedTool {
    OfferedTool {
        tool: client.tool_of(&tool.name),
        description: tool.description.clone(),
        parameters: Arc::clone(&tool.parameters),
        output: None,
        words: DescriptionAuthor::Server,
    }
}
