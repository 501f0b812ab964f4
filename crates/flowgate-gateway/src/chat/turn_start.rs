//! Begins a turn: either resumes the turn that waits for a person, or adds the chat of the request to the conversation.
//! `turn` calls [`begin`] before the guard's agent drives the conversation.

use std::sync::Arc;

use axum::http::StatusCode;
use flowgate::monitor::PushError;
use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::VoidedCall;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Completion, ToolSpec};
use flowgate_lm::wire;

use super::conversations::ConversationState;
use super::person_approver::PersonApprover;
use super::report::RequestReport;
use super::stream::OutgoingReply;
use super::turn_completion::waiting_completion;
use super::turn_request::TurnRequest;
use crate::approvals::ApprovalOutcome;
use crate::approvals::freeze_targets::FreezeTargets;
use crate::config::ClientSettings;
use crate::database::{DatabaseError, QuestionOrigin};
use crate::http::request_error::RequestError;
use crate::http::waiting_status::WaitingStatus;
use crate::visibility;

/// How a turn begins.
pub(super) enum TurnStart {
    /// A person has not decided yet. Contains what the client receives: the note that the turn waits.
    Waits(Completion),
    /// The guard's agent continues the turn that waited for a person.
    Resumes,
    /// The guard's agent begins a turn. Contains the approved calls of an earlier turn that waited and does not
    /// continue.
    Begins(Vec<VoidedCall>),
}

/// Resumes the turn that waits for a person if the request repeats its chat; otherwise adds the chat of the request to
/// the conversation, and voids open questions. `person` is the approver of the turn.
///
/// # Errors
/// If the database fails, or the conversation is full or does not have the beginning of the chat.
pub(super) async fn begin(
    turn: &TurnRequest<'_>,
    session: &mut ConversationState,
    person: &mut PersonApprover<'_>,
    report: &mut RequestReport,
) -> Result<TurnStart, RequestError> {
    if session.conversation.try_resume(&mut session.history, turn.chat) {
        resume(turn, session, person, report).await
    } else {
        add_chat(turn, session).await.map(TurnStart::Begins)
    }
}

/// Continues the turn that waits for a person, if the person has decided or no answer can come any more. Otherwise lets
/// the turn wait for the next request.
///
/// # Errors
/// If the database fails, or its record of the tenant's stores cannot be read.
async fn resume(
    turn: &TurnRequest<'_>,
    session: &mut ConversationState,
    person: &mut PersonApprover<'_>,
    report: &mut RequestReport,
) -> Result<TurnStart, RequestError> {
    let TurnRequest { client, approvals, .. } = *turn;
    let turns = session.turns();
    let digest = session.conversation.pending_question_digest().unwrap_or_default();
    let ApprovalOutcome { decision, asked } = approvals.await_earlier_answer(person.context, &digest).await?;
    // The request that asked may also have stored questions about later calls, under the number of its turn. They are
    // found only if questions are searched from that number on.
    let since = asked.as_ref().and_then(|asked| asked.turn).unwrap_or(turns);
    person.context.origin = QuestionOrigin::Chat { turns, since };
    match decision {
        Decision::Undecided => {
            let turn = session.conversation.postpone();
            let is_formatted = session.conversation.has_output_format();
            // 0: only the request that asked knows how many questions about later calls it stored.
            let completion = waiting_completion(&client.spec, asked.as_ref(), 0, &turn, is_formatted);
            session.push_completion(client, &completion).await;
            report.waits = asked.map(|asked| WaitingStatus { question: asked.id });
            return Ok(TurnStart::Waits(completion));
        }
        Decision::AllowOnce | Decision::AllowForConversation | Decision::AllowByAll => {
            person.used.add(asked);
        }
        Decision::Deny => person.refused.extend(asked),
        // No person has answered: there is no answer to note, and the call does not run.
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
    // The request that asked may have stored questions about later calls. If those calls turn out not to need
    // them, they are voided at the end of the turn.
    person.announced = true;
    Ok(TurnStart::Resumes)
}

/// Adds the chat of a request to the conversation, with the tools that it offers and the form of the answer that it
/// demands. Returns the approved calls of an earlier turn that waited for a person and does not continue.
///
/// # Errors
/// If the database fails, or the conversation is full or does not have the beginning of the chat.
async fn add_chat(
    turn: &TurnRequest<'_>,
    session: &mut ConversationState,
) -> Result<Vec<VoidedCall>, RequestError> {
    let TurnRequest { client, name, decoded, chat, approvals, .. } = *turn;
    let mut voided = Vec::new();
    // These answers cover calls of an earlier turn, which does not continue.
    session.earlier_answers.clear();
    // An earlier turn that waits does not continue, so its questions and approvals become void. After a conversation
    // was carried over to another policy, no call waits any more either.
    if session.conversation.waits_for_decision() || session.is_newly_carried() {
        approvals.void_questions(&client.spec, name, &[]).await?;
        let cause = "the conversation continued without the answer";
        voided = session.conversation.running_turn_mut().void_approved_calls(cause);
    }
    session.offer(&client.spec, decoded, &approvals.freeze_targets)?;
    session.conversation.set_sampling(decoded.request.sampling.clone());
    let mut history = client.lock_history().await;
    let sent = session.conversation.accept_chat(&mut history.client, &mut session.history, chat)?;
    // `None` if the request continues an earlier answer, and the history lacks a message before it.
    let sent = sent.ok_or_else(|| {
        RequestError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the gateway has no conversation with this beginning: send the whole chat again",
        )
    })?;
    // After the chat, because a schema may quote the texts in it.
    let format = decoded.request.format.clone();
    let format_bits =
        session.conversation.set_output_format(&mut history.client, &mut session.history, format)?;
    // For the metrics: an upper bound on what may be learned about remembered texts from which words were hidden.
    client.add_leaked_bits(sent.bits.saturating_add(format_bits));
    Ok(voided)
}

/// Reports what the policy hides from the model: to the operator in the log and, if the client asks for an explanation,
/// in a header of the answer. A streamed answer takes the header from `stream`, any other from `report`.
pub(super) async fn report_hidden(
    turn: &TurnRequest<'_>,
    session: &mut ConversationState,
    stream: &mut Option<OutgoingReply>,
    report: &mut RequestReport,
) {
    let TurnRequest { client, name, log, explains, .. } = *turn;
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
}

impl ConversationState {
    /// Offers the tools of the request `decoded` to the model, and adds their names to `names`, the names that an admin
    /// can freeze. Does neither if the same tools are on offer already.
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
        if self.conversation.has_offered(offered) {
            return Ok(());
        }
        names.note_tools(tools().map(|tool| client.tool_of(&tool.name).to_string()));
        self.conversation.offer_tools(tools().map(|tool| to_offered_tool(client, tool)).collect())
    }
}

/// Builds the offer of a client's tool to the model from its declaration. The policy labels its description, as it
/// labels that of a server's tool. A client declares no schema of the output.
pub(super) fn to_offered_tool(client: &ClientSettings, tool: &ToolSpec) -> OfferedTool {
    OfferedTool {
        tool: client.tool_of(&tool.name),
        description: tool.description.clone(),
        parameters: Arc::clone(&tool.parameters),
        output: None,
        words: DescriptionAuthor::Server,
    }
}
