//! Selects the last stored conversations of a client, within limits on their number and size
//! ([`ModelRoutes::stored_conversations`]), and replays them one after the other
//! ([`StoredConversations::replay_each`]).
//!
//! `policy_view` and `dry_run` call it: they judge each replayed conversation under a policy. The journals are read in
//! the task of the request; the replay runs on a worker thread, and the reserved memory is released when it ends.

use std::sync::Arc;

use axum::http::StatusCode;
use flowgate::monitor::Monitor;
use flowgate_guard::conversation::CallVerdict;
use serde::Serialize;

use super::review_runs::ReviewRun;
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::chat::conversations;
use crate::database::ConversationJournal;
use crate::http::reply::HttpReply;
use crate::http::value_budget::ValueBudgetShare;
use crate::limits::estimated_memory;

/// The number of conversations if the request names none.
const DEFAULT_LAST: usize = 20;
/// The most conversations of one evaluation.
const MAX_LAST: usize = 50;
/// The most bytes of the journal of one conversation.
const MAX_JOURNAL: usize = 4 << 20;
/// The most bytes of all journals of one evaluation.
const MAX_JOURNALS: usize = 16 << 20;
/// The number of conversations that one query of the database reads, of all clients.
const CHUNK: i64 = 200;
/// The most queries for one evaluation, so that the search ends even if nearly all conversations belong to other
/// clients.
const MAX_QUERIES: usize = 20;

/// How many conversations an evaluation has replayed, and how many it left out for each reason. The person sees these
/// numbers.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct ConversationCounts {
    /// The number of conversations that were replayed.
    replayed: usize,
    /// The number that began under another policy or other settings of the client.
    other_policy: usize,
    /// The number that exceed a limit on sizes.
    too_large: usize,
    /// The number whose replay diverges from the recorded state.
    diverged: usize,
}

/// The journals of the selected conversations of a client, before the replay.
#[derive(Debug)]
pub(super) struct StoredConversations {
    client: Arc<ClientState>,
    /// The names and the journals, newest first.
    journals: Vec<(String, ConversationJournal)>,
    counts: ConversationCounts,
    /// The memory of the journals, and of the conversation that is being replayed.
    _memory: ValueBudgetShare,
}

/// Returns the number of conversations that a request names (`last`), or the default.
///
/// # Errors
/// The reply to send if it is 0 or too large.
pub(super) fn read_last(last: Option<usize>) -> Result<usize, HttpReply> {
    let last = last.unwrap_or(DEFAULT_LAST);
    if (1..=MAX_LAST).contains(&last) {
        return Ok(last);
    }
    let message =
        format!("`last`, the number of conversations, is {last}: send a number from 1 to {MAX_LAST}");
    Err(HttpReply::detail(StatusCode::BAD_REQUEST, &message))
}

impl ModelRoutes {
    /// Reads the journals of the last `last` conversations of a client. Conversations that began under another
    /// configuration or are too large are only counted. If the conversations of other clients are many, fewer than
    /// `last` are found, since the number of queries is limited.
    ///
    /// # Errors
    /// The reply to send if the database fails, or the gateway has no room for the conversations now.
    pub(super) async fn stored_conversations(
        &self,
        client: &Arc<ClientState>,
        last: usize,
    ) -> Result<StoredConversations, HttpReply> {
        let failed = |error| HttpReply::of_database_error(&error);
        let (mut journals, mut counts) = (Vec::new(), ConversationCounts::default());
        // The number of the oldest conversation read so far, the bytes of all journals, the greatest memory of one
        // conversation, and the number of conversations of the client.
        let (mut before, mut bytes, mut greatest, mut considered) = (i64::MAX, 0, 0, 0);
        'queries: for _ in 0..MAX_QUERIES {
            let read = self.approvals.store.newest_conversations(before, CHUNK).await.map_err(failed)?;
            let is_end = i64::try_from(read.len()).is_ok_and(|count| count < CHUNK);
            for stored in read {
                before = stored.id;
                if stored.client != client.spec.name {
                    continue;
                }
                if considered == last {
                    break 'queries;
                }
                // The conversation may have been deleted since the query.
                let journal = self.approvals.store.read_journal(&stored.client, &stored.name).await;
                let Some(journal) = journal.map_err(failed)? else { continue };
                considered += 1;
                let size: usize = journal.inputs.iter().map(String::len).sum();
                if journal.config_fingerprint != client.spec.config_fingerprint {
                    counts.other_policy += 1;
                } else if size > MAX_JOURNAL || bytes + size > MAX_JOURNALS {
                    counts.too_large += 1;
                } else {
                    bytes += size;
                    let values = journal.inputs.iter().map(|turn| estimated_memory(turn.as_bytes()));
                    greatest = greatest.max(values.sum::<usize>());
                    journals.push((stored.name, journal));
                }
            }
            if is_end {
                break;
            }
        }
        // One conversation is in memory at a time, but three times: the recorded session, and one under each policy.
        let memory = bytes.saturating_add(greatest.saturating_mul(3));
        let memory = self.values.take_for_conversation(memory).map_err(|_| {
            let message = "the gateway has no room for these conversations now: try again later";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        Ok(StoredConversations { client: Arc::clone(client), journals, counts, _memory: memory })
    }
}

/// A function that evaluates one replayed conversation. It receives the name of the conversation, its monitor and the
/// verdicts that its calls had, and returns `None` to end the evaluation of all conversations.
pub(super) type ConversationVisitor<'a> = dyn FnMut(&str, &Monitor, &[CallVerdict]) -> Option<()> + 'a;

impl StoredConversations {
    /// Replays the conversations, and calls `each` after each replay that does not diverge. `run` says whether the
    /// request still waits. The monitor that `each` receives has recorded the inputs of the conversation, so it can
    /// judge them again under another policy. Returns the numbers of conversations; `None` if the request no longer
    /// waits for the answer, or `each` returns `None`.
    pub(super) fn replay_each(
        self,
        run: &ReviewRun,
        each: &mut ConversationVisitor<'_>,
    ) -> Option<ConversationCounts> {
        let mut counts = self.counts;
        for (name, ConversationJournal { key, inputs, .. }) in &self.journals {
            if !run.is_awaited() {
                return None;
            }
            let mut outcome = None;
            let mut at_end = |monitor: &Monitor, judged: Vec<CallVerdict>| {
                outcome = Some(each(name, monitor, &judged));
            };
            match conversations::replay_recording(&self.client, key, inputs, &mut at_end) {
                Ok(()) => counts.replayed += 1,
                Err(_) => counts.diverged += 1,
            }
            // `each` has ended the evaluation.
            if outcome == Some(None) {
                return None;
            }
        }
        Some(counts)
    }
}
