//! Observes the agent during a turn: streams text that may be released early, stops calls that were frozen since they
//! were judged, and cancels the turn when the client has disconnected. `turn` creates one [`TurnObserver`] for each turn.

use std::future::ready;

use flowgate::monitor::AuthorizedCall;
use flowgate::trace::Tool;
use flowgate_guard::agent::{Observer, ProviderToolRunner};
use flowgate_guard::conversation::Conversation;
use flowgate_lm::BoxFuture;
use flowgate_lm::chat::Completion;

use super::clients::ClientState;
use super::frozen_approvals::{CHANGED, FrozenApprovals, frozen_approvals};
use super::stream::OutgoingReply;
use super::turn_completion::{REPLY_SEPARATOR, joined_text};
use super::turn_trace::JudgingClock;
use crate::approvals::ApprovalService;
use crate::http::client_presence::ClientPresence;

/// The observer of one turn.
pub(super) struct TurnObserver<'a> {
    pub(super) client: &'a ClientState,
    /// The name of the conversation.
    pub(super) name: &'a str,
    pub(super) approvals: &'a ApprovalService,
    pub(super) presence: &'a ClientPresence,
    /// Runs the calls of tools of the provider; and says of a tool why the provider runs no calls of it in this turn.
    pub(super) provider_tools: (&'a dyn ProviderToolRunner, &'a (dyn Fn(&Tool) -> Option<String> + Sync)),
    pub(super) stream: &'a mut Option<OutgoingReply>,
    /// The text of the model's earlier replies in this turn, which precedes the streamed reply.
    pub(super) before: String,
    /// The record of the tenant's stores that the conversation recalled last.
    pub(super) recalled: Option<String>,
    /// Notes when calls are judged.
    pub(super) clock: JudgingClock,
    /// Whether the conversation had grants when the turn began, and what was frozen or withdrawn then.
    pub(super) frozen_before: (bool, &'a FrozenApprovals),
    /// Whether calls may depend on approvals that were withdrawn when the turn began.
    pub(super) has_stale_permits: bool,
    /// The call that is about to run: its tool and its digest.
    pub(super) starting: Option<(Tool, String)>,
    /// The calls that the provider ran in this turn: the tool and the digest of each.
    pub(super) ran: Vec<(Tool, String)>,
}

impl TurnObserver<'_> {
    /// Returns why a call that the provider is about to run must not run: a consent or an approval on which it may
    /// depend has been frozen or withdrawn since it was permitted. Calls that the client runs are checked at the end of
    /// the turn instead, before the client receives them.
    async fn stale_permit(&self) -> Result<(), String> {
        let (has_grants, frozen_before) = self.frozen_before;
        let frozen = frozen_approvals(self.approvals, &self.client.spec, self.name, has_grants).await;
        let frozen = frozen.map_err(|error| error.to_string())?;
        match self.has_stale_permits || frozen != *frozen_before {
            true => Err(CHANGED.to_owned()),
            false => Ok(()),
        }
    }
}

impl Observer for TurnObserver<'_> {
    /// Streams the text of the earlier replies of the turn, as far as it is not sent yet. Remembers that text in
    /// `before`, by which `on_text` recognises the beginning of the next reply.
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
        // Nothing of the current reply is sent yet.
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
    /// that the approved call is judged with the current ones.
    fn before_decision<'a>(
        &'a mut self,
        conversation: &'a mut Conversation,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let tenant = &self.client.spec.tenant;
            let record = self.approvals.changed_external_state(tenant, self.recalled.as_deref()).await;
            // `None`: there is no record, or it is still the one that was joined last (`recalled`).
            let Some(record) = record.map_err(|error| error.to_string())? else { return Ok(()) };
            let read = serde_json::from_str(&record).map_err(|error| error.to_string())?;
            conversation.join_external_state(&read).map_err(|error| error.to_string())?;
            self.recalled = Some(record);
            Ok(())
        })
    }

    /// Joins the labels that other conversations of the tenant have written to stores while the provider ran a call, so
    /// that the output is labelled with the current ones.
    fn after_run<'a>(&'a mut self, conversation: &'a mut Conversation) -> BoxFuture<'a, Result<(), String>> {
        self.before_decision(conversation)
    }

    /// Notes that the provider runs the call that was prepared last.
    fn on_tool_call(&mut self, _: &AuthorizedCall) {
        self.ran.extend(self.starting.take());
    }

    /// Stops a call whose client, conversation or tool an admin has frozen since it was judged, and a call of the provider
    /// whose permit is stale.
    fn before_run<'a>(
        &'a mut self,
        conversation: &'a mut Conversation,
        call: &'a AuthorizedCall,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let tool = &call.call().tool;
            self.starting = Some((tool.clone(), conversation.call_digest(call.call())));
            let reason = self.approvals.freeze_reason(&self.client.spec, self.name, &tool.to_string()).await;
            if let Some(reason) = reason {
                return Err(reason);
            }
            let (runner, refusal) = self.provider_tools;
            if let Some(why) = refusal(tool) {
                return Err(why);
            }
            if runner.runs(tool) { self.stale_permit().await } else { Ok(()) }
        })
    }

    /// Returns whether nobody waits for the turn any more, so that it stops: the client has disconnected, or its stream
    /// cannot be written to.
    fn is_cancelled(&self) -> bool {
        self.presence.is_disconnected() || self.stream.as_ref().is_some_and(|stream| stream.is_lost)
    }
}
