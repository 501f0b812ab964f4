//! Ends a turn: records its verdicts and the approvals that it used, withholds its calls if an admin has frozen
//! something on which they depend, and builds the completion for the client. `turn` calls [`end`] when the guard's
//! agent has stopped.

use axum::http::StatusCode;
use flowgate_audit::AuditEvent;
use flowgate_guard::agent::TurnError;
use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{Turn, TurnEnd, VoidedCall};
use flowgate_lm::chat::{Completion, Message};

use super::clients::ClientState;
use super::conversations::ConversationState;
use super::frozen_approvals::{CHANGED, StandingApprovals, is_grant_of_calls_withdrawn};
use super::handed_calls::HandedLabel;
use super::model_error::model_error;
use super::report::RequestReport;
use super::turn_completion::{completion, number_calls, waiting_completion};
use super::turn_request::TurnRequest;
use crate::approvals::ApprovalReference;
use crate::database::DatabaseError;
use crate::http::request_error::RequestError;
use crate::http::waiting_status::WaitingStatus;
use crate::recorder::{self, AuditEntry};

/// The results of the run of the guard's agent, which the end of the turn records and sends.
pub(super) struct AgentOutcome {
    /// The turn, or why it failed.
    pub(super) turn: Result<Turn, TurnError>,
    /// The approved calls of an earlier turn that waited for a person and does not continue.
    pub(super) voided: Vec<VoidedCall>,
    /// The indices of the events of calls whose verdicts the audit log has already, because the provider has run them.
    pub(super) recorded: Vec<usize>,
    /// The approvals that the turn uses when it is stored.
    pub(super) used: Vec<ApprovalReference>,
    /// The answers of people that cover further calls of the message about which the turn waits.
    pub(super) further: Vec<(ApprovalReference, Decision)>,
    /// The question for which the turn waits.
    pub(super) question: Option<ApprovalReference>,
    /// How many questions about later calls were stored together with `question`.
    pub(super) upcoming: usize,
    /// Whether the turn has stored questions about calls before these calls were judged.
    pub(super) announced: bool,
    /// Why the database could not store a question, or could not check an earlier answer.
    pub(super) approval_failure: Option<DatabaseError>,
}

/// Ends a turn, and returns what the client receives. `standing` are the approvals in force when the turn began.
///
/// # Errors
/// If the turn or the database has failed, or calls are withheld. The caller must store `session` in these cases too.
pub(super) async fn end(
    request: &TurnRequest<'_>,
    session: &mut ConversationState,
    standing: &StandingApprovals,
    outcome: AgentOutcome,
    report: &mut RequestReport,
) -> Result<Completion, RequestError> {
    let TurnRequest { api, client, name, chat, approvals, .. } = *request;
    let AgentOutcome {
        turn,
        voided,
        recorded,
        used,
        further,
        question,
        upcoming,
        announced,
        approval_failure,
    } = outcome;
    // The state of a question is unknown, so the turn that depends on it must not be stored.
    if let Some(error) = approval_failure {
        turn.iter().for_each(|turn| report.add_turn(turn, client));
        session.is_abandoned = true;
        return Err(error.into());
    }
    let mut turn = match turn {
        Ok(turn) => turn,
        Err(error) => {
            record_failed_turn(request, session, report, voided, &recorded);
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
    let waits = turn.ended == Some(TurnEnd::Asked);
    if announced && !waits {
        // Questions that were stored for later calls, and that these calls turned out not to need, must not stay open.
        let voided_questions = approvals.void_questions(&client.spec, name, &used).await;
        // If they cannot be voided, the turn is not stored either.
        session.is_abandoned |= voided_questions.is_err();
        voided_questions?;
    }
    session.split_approvals(used, &turn);
    if waits {
        session.earlier_answers = further;
    }
    // For hooks that ask about the calls (`handed_calls`). In watch mode, the labels are left out: they are those of
    // the permissive policy, and no hook judges calls by that policy.
    if client.spec.watch.is_none() {
        let monitor = session.conversation.monitor();
        report.handed_labels =
            turn.calls.iter().map(|call| HandedLabel::of(call, &turn.judged, monitor)).collect();
    }
    session.events = take_audit_events(client, name, &mut turn, &recorded);
    // A turn that waits for a person hands over no calls.
    if !waits {
        session.withhold_stale_calls(request, standing, &mut turn).await?;
        // Nothing withholds the calls any more, so their approvals are recorded as used.
        for call in &turn.calls {
            let Some(digest) = call.approved.clone() else { continue };
            let (conversation, tool) = (name.to_owned(), call.tool.to_string());
            session.events.push(AuditEvent::ApprovalUsed { conversation, tool, digest }.into());
        }
    }
    // Builds what the client receives.
    let is_formatted = session.conversation.has_output_format();
    let mut completion = if waits {
        let completion = waiting_completion(&client.spec, question.as_ref(), upcoming, &turn, is_formatted);
        report.waits = question.map(|asked| WaitingStatus { question: asked.id });
        completion
    } else {
        completion(&turn, &|tool| client.spec.name_of(tool), is_formatted)
    };
    if api.form().numbers_calls {
        number_calls(&mut completion.calls, chat.full_messages());
    }
    session.push_completion(client, &completion).await;
    Ok(completion)
}

/// Prepares the audit records of a failed turn: its verdicts, and its approvals, which become void. `voided` are the
/// approved calls of an earlier turn, and `recorded` the indices of the events of calls that the audit log has already.
fn record_failed_turn(
    request: &TurnRequest<'_>,
    session: &mut ConversationState,
    report: &mut RequestReport,
    mut voided: Vec<VoidedCall>,
    recorded: &[usize],
) {
    let TurnRequest { client, name, .. } = *request;
    let judged = session.conversation.running_turn_mut().take_judged_calls();
    report.add_judged(&judged, client);
    voided.extend(session.conversation.running_turn_mut().void_approved_calls("the turn failed"));
    let mut failed = Turn { judged, void: voided, ..Turn::default() };
    session.events = take_audit_events(client, name, &mut failed, recorded);
}

impl ConversationState {
    /// Divides `used`, the approvals that a turn uses, into `void_approvals` and `used_approvals`, which are stored
    /// with the turn. An approval is void if its call does not run (`Turn::void`); all others count as used.
    fn split_approvals(&mut self, used: Vec<ApprovalReference>, turn: &Turn) {
        // Whether the client receives a call that was approved under this digest.
        let runs = |digest: &str| turn.calls.iter().any(|call| call.approved.as_deref() == Some(digest));
        // An approval can cover several equal calls. It counts as used if the client receives at least one of them.
        let is_void = |asked: &ApprovalReference| {
            turn.void.iter().any(|void| void.digest == asked.digest)
                && !(asked.is_for_several && runs(&asked.digest))
        };
        (self.void_approvals, self.used_approvals) = used.into_iter().partition(is_void);
    }

    /// Withholds the calls of a turn if a freeze now stops one of them, or if consents or approvals on which they may
    /// depend have changed since the calls were permitted. `standing` are the approvals in force when the turn began.
    ///
    /// # Errors
    /// If the calls are withheld, or the database fails: then they are withheld too.
    async fn withhold_stale_calls(
        &mut self,
        request: &TurnRequest<'_>,
        standing: &StandingApprovals,
        turn: &mut Turn,
    ) -> Result<(), RequestError> {
        let TurnRequest { client, name, approvals, .. } = *request;
        // Why a freeze stops the first call that it stops; `None` if it stops no call.
        let mut freeze_reason = None;
        for call in &turn.calls {
            freeze_reason = approvals.freeze_reason(&client.spec, name, &call.tool.to_string()).await;
            if freeze_reason.is_some() {
                break;
            }
        }
        if let Some(why) = freeze_reason {
            self.withhold_calls(client, name, turn, &why);
            return Err(RequestError::new(StatusCode::FORBIDDEN, why));
        }
        // Calls that were permitted before a person was asked depend on the standing consents and the approvals in
        // force then; if these have changed, the calls are withheld.
        let mut has_changed = standing.has_changed(approvals, &client.spec, name).await;
        if standing.is_resumed && matches!(has_changed, Ok(false)) {
            // Earlier requests of a continued turn may have used approvals that a lasting grant gave, and that
            // `standing` does not contain.
            let approved = turn.calls.iter().filter_map(|call| call.approved.as_deref());
            let turns = self.turns();
            has_changed = is_grant_of_calls_withdrawn(approvals, (&client.spec, name), approved, turns).await;
        }
        let has_changed = match has_changed {
            Ok(has_changed) => has_changed,
            Err(error) => {
                self.withhold_calls(client, name, turn, "the turn failed");
                return Err(error.into());
            }
        };
        if !turn.calls.is_empty() && has_changed {
            self.withhold_calls(client, name, turn, CHANGED);
            return Err(RequestError::new(StatusCode::CONFLICT, CHANGED));
        }
        Ok(())
    }

    /// Takes back a turn whose calls are not sent to the client after all: voids its approvals, adds this to the events
    /// for the audit log, and withdraws the grants of the conversation. `name` is the name of the conversation, and
    /// `cause` why the calls are withheld. The caller then fails the request, so that the client receives no call.
    fn withhold_calls(&mut self, client: &ClientState, name: &str, turn: &mut Turn, cause: &str) {
        self.void_approvals.append(&mut self.used_approvals);
        // One of these approvals may have been given for the rest of the conversation.
        self.conversation.withdraw_grants();
        for call in &mut turn.calls {
            // Only calls that a person approved have an approval to void.
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
    /// next request, which repeats the message, is recognised. The reasoning is left out, since messages are compared
    /// without it.
    pub(super) async fn push_completion(&mut self, client: &ClientState, completion: &Completion) {
        let message = Message::Assistant {
            text: completion.text.clone(),
            calls: completion.calls.clone(),
            thoughts: Vec::new(),
        };
        let mut history = client.lock_history().await;
        self.conversation.record_answer(&mut history.client, &mut self.history, &message);
    }
}

/// Takes what the audit log records of a turn of the conversation `name` out of the turn: the verdicts on its calls,
/// the approvals that no longer hold, and the withheld replies. Returns these as entries of the log, in this order.
/// Leaves out the verdicts on the calls whose events have the indices in `recorded`: the log has them already.
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
