//! Selects the last stored conversations of a client, within bounds of their number and size, and replays them one after
//! the other on a worker thread.

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
/// The conversations that one query reads.
const CHUNK: i64 = 200;
/// The most queries for one evaluation: many conversations of other clients may have to be passed.
const MAX_QUERIES: usize = 20;

/// The numbers of conversations of an evaluation, which are shown to the person.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct ConversationCounts {
    /// Those that were replayed.
    replayed: usize,
    /// Those that began under another policy or other settings of the client.
    other_policy: usize,
    /// Those that exceed the bounds on sizes.
    too_large: usize,
    /// Those whose replay differs from what was recorded.
    diverged: usize,
}

/// Stored conversations of a client, not yet replayed.
#[derive(Debug)]
pub(super) struct StoredConversations {
    client: Arc<ClientState>,
    /// The names and the journals, newest first.
    journals: Vec<(String, ConversationJournal)>,
    counts: ConversationCounts,
    /// The memory of the journals, and of the conversation that is being replayed.
    _memory: ValueBudgetShare,
}

/// Returns the number of conversations that a request asks for.
///
/// # Errors
/// The reply to send if it is 0 or too large.
pub(super) fn read_last(last: Option<usize>) -> Result<usize, HttpReply> {
    let last = last.unwrap_or(DEFAULT_LAST);
    if (1..=MAX_LAST).contains(&last) {
        return Ok(last);
    }
    let message = format!("`last` is the number of conversations: it must be from 1 to {MAX_LAST}");
    Err(HttpReply::detail(StatusCode::BAD_REQUEST, &message))
}

impl ModelRoutes {
    /// Reads the journals of the last `last` conversations of a client. Those that cannot be replayed are counted.
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
                // A conversation may be deleted meanwhile.
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
        // Three sessions at the same time: the recorded one, and one under each policy.
        let memory = bytes.saturating_add(greatest.saturating_mul(3));
        let memory = self.values.take_for_conversation(memory).map_err(|_| {
            let message = "the gateway has no room for these conversations now: try again later";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        Ok(StoredConversations { client: Arc::clone(client), journals, counts, _memory: memory })
    }
}

/// Evaluates one conversation, given its name, its monitor and the verdicts that its calls had. Returns `None` to end
/// the evaluation of all conversations.
pub(super) type ConversationVisitor<'a> = dyn FnMut(&str, &Monitor, &[CallVerdict]) -> Option<()> + 'a;

impl StoredConversations {
    /// Replays the conversations. Calls `each` after each replay with the name of the conversation, its monitor, which
    /// has recorded its inputs, and the verdicts that its calls had. Returns the numbers of conversations; `None` if
    /// the request no longer waits for the answer, or `each` returns `None`.
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
            // The evaluation of a conversation that was replayed may have ended early.
            if outcome == Some(None) {
                return None;
            }
        }
        Some(counts)
    }
}
