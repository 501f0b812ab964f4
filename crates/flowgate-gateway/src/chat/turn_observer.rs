//! Observes the guard's [agent](flowgate_guard::agent::Agent), which drives the conversation, during a turn: streams
//! text that may be released early, stops calls that were frozen since they were judged, and cancels the turn when the
//! client has disconnected. Before the provider runs a call, stores what must be durable by then: the use of its
//! approval, its labels and its verdict. `turn` creates one [`TurnObserver`] for each turn.

use std::future::ready;

use flowgate::monitor::AuthorizedCall;
use flowgate::trace::Tool;
use flowgate_audit::AuditEvent;
use flowgate_guard::agent::{Observer, ProviderToolRunner};
use flowgate_guard::conversation::{CallVerdict, Conversation};
use flowgate_lm::BoxFuture;
use flowgate_lm::chat::Completion;

use super::clients::ClientState;
use super::frozen_approvals::{CHANGED, StandingApprovals};
use super::provider_tools::ProviderCallLimits;
use super::stream::OutgoingReply;
use super::turn_completion::{REPLY_SEPARATOR, joined_text};
use super::turn_trace::JudgingClock;
use super::used_approvals::UsedApprovals;
use crate::approvals::ApprovalService;
use crate::database::{DatabaseError, TurnApprovals};
use crate::http::client_presence::ClientPresence;
use crate::recorder::{self, AuditEntry, Recorder};

/// A function that returns why the provider may not run calls of a tool in this turn; `None` if the provider may run
/// them, or if the tool is not one of the provider.
pub(super) type ProviderToolRefusal<'a> = dyn Fn(&Tool) -> Option<String> + Sync + 'a;

/// The observer of one turn.
pub(super) struct TurnObserver<'a> {
    pub(super) client: &'a ClientState,
    /// The name of the conversation.
    pub(super) name: &'a str,
    pub(super) approvals: &'a ApprovalService,
    pub(super) presence: &'a ClientPresence,
    /// Runs the calls of tools of the provider.
    pub(super) provider_tools: &'a dyn ProviderToolRunner,
    /// Returns why the provider may not run calls of a tool in this turn.
    pub(super) refusal: &'a ProviderToolRefusal<'a>,
    pub(super) stream: &'a mut Option<OutgoingReply>,
    /// The text of the model's earlier replies in this turn, which precedes the streamed reply.
    pub(super) before: String,
    /// The labels of the tenant's stores (external state), as the record in JSON that the conversation last joined.
    pub(super) recalled: Option<String>,
    /// Notes when calls are judged.
    pub(super) clock: JudgingClock,
    /// The consents and approvals that were in force when the turn began.
    pub(super) standing: &'a StandingApprovals,
    /// The audit log.
    pub(super) recorder: &'a Recorder,
    /// The key that is removed from content in the audit log: the client's own for the upstream.
    pub(super) key: Option<&'a str>,
    /// The approvals that the turn uses.
    pub(super) used: &'a UsedApprovals,
    /// The indices of the events of calls whose verdicts the audit log has already, because the provider has run them.
    pub(super) recorded: Vec<usize>,
    /// The calls that the provider may still run in this turn.
    pub(super) provider_calls: ProviderCallLimits,
}

impl TurnObserver<'_> {
    /// Checks, before the provider runs any call, that no consent or approval on which the calls of this turn may
    /// depend was frozen or withdrawn since the turn began (`standing`) or since it was given in this turn.
    /// `has_grants` says whether the conversation has grants now. Calls that the client runs are checked at the end of
    /// the turn instead, before the client receives them.
    ///
    /// # Errors
    /// Why the call must not run: a text that the model reads as the output of the call.
    async fn check_approvals_in_force(&self, has_grants: bool) -> Result<(), String> {
        let for_agent = |error: DatabaseError| error.client_message().to_owned();
        let has_changed = self.standing.has_changed(self.approvals, &self.client.spec, self.name).await;
        let has_changed = has_changed.map_err(for_agent)?;
        // A grant that a person has given during this turn is not in `standing`, so it is checked separately.
        let is_withdrawn = match has_grants {
            false => false,
            true => {
                let questions: Vec<String> = self.used.all().into_iter().map(|asked| asked.id).collect();
                let store = &self.approvals.store;
                store.is_conversation_grant_withdrawn(&questions).await.map_err(for_agent)?
            }
        };
        match has_changed || is_withdrawn {
            true => Err(CHANGED.to_owned()),
            false => Ok(()),
        }
    }

    /// Commits the effects of a call before the provider runs it. (For calls that the client runs, the end of the turn
    /// does this.) Afterwards the approval of the call is used, other conversations of the tenant have the labels that
    /// the call may write to stores, and the audit log has the verdict.
    ///
    /// # Errors
    /// If one of these steps fails: the call must not run.
    async fn commit_run(
        &mut self,
        conversation: &mut Conversation,
        call: &AuthorizedCall,
    ) -> Result<(), DatabaseError> {
        // The approval of the call, if a person approved it and this turn has not committed the approval yet.
        let digest = conversation.call_digest(call.call());
        let is_approved = conversation.approved_call() == Some(digest.as_str());
        let approval = if is_approved { self.used.pending_id(&digest) } else { None };
        let (store, tenant) = (&self.approvals.store, &self.client.spec.tenant);
        let used = TurnApprovals { used: approval.iter().cloned().collect(), ..TurnApprovals::default() };
        // Begins a transaction that uses the approval and locks the labels of the tenant's stores. The
        // conversation joins these labels.
        let begun = store.begin_turn(tenant, used).await?;
        if let Some(record) = &begun.record {
            join_record(conversation, tenant, record)?;
        }
        // The record with the labels that the call may write. It is stored unless the database has it already.
        let written = conversation.monitor().external_state_record().to_string();
        let is_current = begun.is_persisted && begun.record.as_ref() == Some(&written);
        store.commit_run(begun, (!is_current).then_some(written)).await?;
        if let Some(id) = approval {
            self.used.note_committed(&id);
        }
        // The verdict on this call is the last one on an equal call. Records it, unless it was recorded before, and the
        // use of the approval.
        let judged = conversation.running_turn().judged_calls().iter().rfind(|call| call.digest == digest);
        let judged = judged.filter(|judged| !self.recorded.contains(&judged.event));
        let entry =
            |judged: &CallVerdict| recorder::judged_entry(&self.client.spec, self.name, judged.clone());
        let mut entries: Vec<AuditEntry> = judged.map(entry).into_iter().collect();
        if is_approved {
            let (conversation, tool) = (self.name.to_owned(), call.call().tool.to_string());
            entries.push(AuditEvent::ApprovalUsed { conversation, tool, digest }.into());
        }
        self.recorder.record_redacting(&entries, self.key)?;
        self.recorded.extend(judged.map(|judged| judged.event));
        Ok(())
    }

    /// Joins the labels that other conversations of the tenant have written to stores since this conversation last
    /// joined them.
    ///
    /// # Errors
    /// If the labels cannot be read.
    async fn join_external_state(&mut self, conversation: &mut Conversation) -> Result<(), DatabaseError> {
        let tenant = &self.client.spec.tenant;
        let record = self.approvals.changed_external_state(tenant, self.recalled.as_deref()).await?;
        // `None`: there is no record, or it is still the one that was joined last (`recalled`).
        let Some(record) = record else { return Ok(()) };
        join_record(conversation, tenant, &record)?;
        self.recalled = Some(record);
        Ok(())
    }
}

/// Joins the labels in `record`, the JSON of the labels of a tenant's stores, into a conversation.
///
/// # Errors
/// If the record is malformed.
fn join_record(conversation: &mut Conversation, tenant: &str, record: &str) -> Result<(), DatabaseError> {
    let failed = |reason: String| DatabaseError::ExternalState { tenant: tenant.to_owned(), reason };
    let read = serde_json::from_str(record).map_err(|error| failed(error.to_string()))?;
    conversation.join_external_state(&read).map_err(|error| failed(error.to_string()))
}

impl Observer for TurnObserver<'_> {
    /// Streams the text of the finished replies of the turn, as far as the client does not have it yet. Remembers the
    /// text in `before`, by which `on_text` recognises the beginning of the next reply.
    fn before_need(&mut self, conversation: &Conversation) {
        self.clock.note_judged(conversation);
        // After the turn, the rest of the text is sent with the end of the answer.
        if conversation.is_turn_over() {
            return;
        }
        // A client that demands a form of the text receives the last reply alone.
        if conversation.has_output_format() {
            return;
        }
        // If the replies do not begin with the text that was sent, nothing is added to it.
        self.before = joined_text(conversation.running_turn().replies());
        if let Some(stream) = self.stream.as_mut()
            && let Some(rest) = self.before.strip_prefix(stream.sent_text())
        {
            let rest = rest.to_owned();
            stream.text(&rest);
        }
    }

    /// Notes the time: the calls of this message of the model are judged next.
    fn after_completion(&mut self, _: &Completion) {
        self.clock.note_answer();
    }

    /// Streams a piece of the model's current reply, after a separator if an earlier reply of the turn precedes it.
    fn on_text(&mut self, text: &str) {
        let Some(stream) = self.stream.as_mut() else { return };
        // True for the first piece of a reply that follows another one: only the earlier replies were sent.
        if stream.sent_text() == self.before && !self.before.is_empty() {
            stream.text(REPLY_SEPARATOR);
        }
        stream.text(text);
    }

    /// Waits until the channel to the client has taken the streamed text, so that a slow client delays its turn.
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        match self.stream.as_mut() {
            Some(stream) => Box::pin(stream.flush()),
            None => Box::pin(ready(())),
        }
    }

    /// Joins the labels that other conversations of the tenant have written to stores while the person decided, so
    /// that the approved call is judged with the current labels.
    fn before_decision<'a>(
        &'a mut self,
        conversation: &'a mut Conversation,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            // The error, like everything that a model may read, has no details of the database.
            self.join_external_state(conversation).await.map_err(|error| error.client_message().to_owned())
        })
    }

    /// Joins the labels that other conversations of the tenant have written to stores while the provider ran a call, so
    /// that the output is labelled with the current labels. The error names the cause only: the messages for clients
    /// advise to try again, but the call ran.
    fn after_run<'a>(&'a mut self, conversation: &'a mut Conversation) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.join_external_state(conversation).await.map_err(|error| match error {
                DatabaseError::Timeout => "the gateway's database did not answer in time".to_owned(),
                _ => "the gateway's database failed".to_owned(),
            })
        })
    }

    /// Stops a call if an admin has frozen its client, conversation, tool or server since it was judged. A call that
    /// the provider would run is also stopped if the provider may not run its tool in this turn, if it exceeds a limit
    /// of the turn, if its permit no longer holds, or if its approval, its labels or its verdict cannot be stored. The
    /// error is the reason, which the model reads as the output of the call.
    fn before_run<'a>(
        &'a mut self,
        conversation: &'a mut Conversation,
        call: &'a AuthorizedCall,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let tool = &call.call().tool;
            let reason = self.approvals.freeze_reason(&self.client.spec, self.name, &tool.to_string()).await;
            if let Some(reason) = reason {
                return Err(reason);
            }
            if let Some(why) = (self.refusal)(tool) {
                return Err(why);
            }
            // The end of the turn checks and commits the calls that the client runs.
            if !self.provider_tools.runs(tool) {
                return Ok(());
            }
            self.provider_calls.take(tool)?;
            let has_grants = !conversation.monitor().session_grants().is_empty();
            self.check_approvals_in_force(has_grants).await?;
            self.commit_run(conversation, call).await.map_err(|error| error.client_message().to_owned())
        })
    }

    /// Returns whether nobody waits for the turn any more, so that it stops: the client has disconnected, or its stream
    /// cannot be written to.
    fn is_cancelled(&self) -> bool {
        self.presence.is_disconnected() || self.stream.as_ref().is_some_and(|stream| stream.is_lost)
    }
}
