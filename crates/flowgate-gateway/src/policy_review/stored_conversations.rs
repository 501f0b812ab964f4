//! Selects the last stored conversations of a client, within limits on their number and size
//! ([`ModelRoutes::stored_conversations`]), and replays them one after the other
//! ([`StoredConversations::replay_each`]). For the replay, a conversation that began under another policy or other
//! settings of the client is carried over to the present ones, as it would be at its next request.
//!
//! `policy_view` and `dry_run` call it: they judge each replayed conversation under a policy. The journals are read in
//! the task of the request. The replay runs on a worker thread; when it ends, the memory that was reserved for it is
//! released.

use std::sync::Arc;

use axum::http::StatusCode;
use flowgate::monitor::Monitor;
use flowgate_guard::conversation::CallVerdict;
use serde::Serialize;

use super::review_runs::ReviewRun;
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::chat::conversations::{self, MEMORY_OF_A_BYTE};
use crate::database::{ConversationJournal, ShownTexts};
use crate::http::reply::HttpReply;
use crate::http::value_budget::ValueBudgetShare;
use crate::limits::estimated_memory;

/// The number of conversations if the request names none.
const DEFAULT_LAST: usize = 20;
/// The most conversations of one evaluation.
const MAX_LAST: usize = 50;
/// The most conversations that are read beyond the requested number, in case that some cannot be carried over.
const MAX_SPARE: usize = 20;
/// The most bytes of the journal of one conversation.
const MAX_JOURNAL: usize = 4 << 20;
/// The most bytes of all journals of one evaluation.
const MAX_JOURNALS: usize = 16 << 20;
/// The number of conversations that one query of the database reads, of all clients.
const CHUNK: i64 = 200;
/// The most queries for one evaluation, so that the search ends even if nearly all conversations belong to other
/// clients.
const MAX_QUERIES: usize = 20;

/// How many conversations an evaluation has judged, and how many it left out for each reason. The person sees these
/// numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct ConversationCounts {
    /// The number of conversations that were judged.
    replayed: usize,
    /// The number of those that began under another policy or other settings of the client, and were carried over to
    /// the present ones.
    carried_over: usize,
    /// The number that began under another policy or other settings, and cannot be carried over.
    not_carried_over: usize,
    /// The number that exceed a limit on sizes.
    too_large: usize,
    /// The number whose replay diverges from the recorded state.
    diverged: usize,
}

/// The stored conversations that an evaluation has found, before the replay.
#[derive(Debug)]
pub(super) struct StoredConversations {
    client: Arc<ClientState>,
    /// The conversations, newest first. They can be more than `last`.
    found: Vec<FoundConversation>,
    /// The number of conversations to judge.
    last: usize,
    /// The texts that the client was shown, among which quotations are searched; empty if no conversation has to be
    /// carried over.
    shown: ShownTexts,
    /// The memory of the journals and texts, and of the conversation that is being replayed.
    _memory: ValueBudgetShare,
}

/// A stored conversation of the client.
#[derive(Debug)]
enum FoundConversation {
    /// A conversation to replay. `is_earlier` says whether it has to be carried over, because it began under another
    /// policy or other settings.
    Journal { name: String, journal: ConversationJournal, is_earlier: bool },
    /// A conversation that is left out, since it exceeds a limit on sizes.
    TooLarge,
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
    /// Reads the journals of the newest conversations of a client, so that [`StoredConversations::replay_each`] can
    /// judge `last` of them, and reserves the memory for the replay.
    ///
    /// The search ends when `last` conversations are found that began under the present configuration. A conversation
    /// that began under another one may be impossible to carry over, so the search continues until [`MAX_SPARE`] more
    /// than `last` are found in all. The number of queries is limited too, so fewer conversations are found if nearly
    /// all of the database belongs to other clients.
    ///
    /// # Errors
    /// The reply to send if the database fails, or the gateway has no room for the conversations now.
    pub(super) async fn stored_conversations(
        &self,
        client: &Arc<ClientState>,
        last: usize,
    ) -> Result<StoredConversations, HttpReply> {
        let failed = |error| HttpReply::of_database_error(&error);
        let mut found = Vec::new();
        // The number of the oldest conversation read so far.
        let mut before = i64::MAX;
        // The bytes of all journals, and the greatest memory of one conversation.
        let (mut bytes, mut greatest) = (0, 0);
        // The number of conversations that began under the present configuration.
        let mut present = 0;
        'queries: for _ in 0..MAX_QUERIES {
            let read = self.approvals.store.newest_conversations(before, CHUNK).await.map_err(failed)?;
            let is_end = i64::try_from(read.len()).is_ok_and(|count| count < CHUNK);
            for stored in read {
                before = stored.id;
                if stored.client != client.spec.name {
                    continue;
                }
                if present == last || found.len() == last + MAX_SPARE {
                    break 'queries;
                }
                // The conversation may have been deleted since the query.
                let journal = self.approvals.store.read_journal(&stored.client, &stored.name).await;
                let Some(journal) = journal.map_err(failed)? else { continue };
                let size: usize = journal.inputs.iter().map(String::len).sum();
                if size > MAX_JOURNAL || bytes + size > MAX_JOURNALS {
                    found.push(FoundConversation::TooLarge);
                    continue;
                }
                bytes += size;
                let values = journal.inputs.iter().map(|turn| estimated_memory(turn.as_bytes()));
                greatest = greatest.max(values.sum::<usize>());
                let is_earlier = journal.config_fingerprint != client.spec.config_fingerprint;
                present += usize::from(!is_earlier);
                found.push(FoundConversation::Journal { name: stored.name, journal, is_earlier });
            }
            if is_end {
                break;
            }
        }
        // Only to carry over a conversation, the texts that the client was shown (all, from number 0 on) are needed.
        let is_earlier =
            |found: &FoundConversation| matches!(found, FoundConversation::Journal { is_earlier: true, .. });
        let shown = match found.iter().any(is_earlier) {
            true => self.approvals.store.shown_texts(&client.spec.name, 0).await.map_err(failed)?,
            false => ShownTexts::default(),
        };
        let remembered: usize = shown.texts.iter().map(|text| text.text.len() * MEMORY_OF_A_BYTE).sum();
        // One conversation is in memory at a time, but three times: the recorded session, and one under each policy.
        // The texts are in memory twice: each conversation that is carried over has a copy to which it adds its own.
        let memory = greatest.saturating_mul(3).saturating_add(remembered.saturating_mul(2));
        let memory = self.values.take_for_conversation(memory.saturating_add(bytes)).map_err(|_| {
            let message = "the gateway has no memory left for these conversations now: try again later, or ask for fewer of them with `last`";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        Ok(StoredConversations { client: Arc::clone(client), found, last, shown, _memory: memory })
    }
}

/// A function that evaluates one replayed conversation. It receives the name of the conversation, its monitor and the
/// verdicts that its calls had, and returns `None` to end the evaluation of all conversations. A conversation that was
/// carried over has no verdicts.
pub(super) type ConversationVisitor<'a> = dyn FnMut(&str, &Monitor, &[CallVerdict]) -> Option<()> + 'a;

impl StoredConversations {
    /// Replays the conversations, newest first, until the requested number was replayed, and calls `each` after each
    /// replay that does not diverge. `each` receives a monitor that has recorded the inputs of the conversation, and so
    /// can judge them again under another policy. Returns how many conversations were replayed or left out; `None` if
    /// `run` says that the request no longer waits for the answer, or if `each` returns `None`.
    pub(super) fn replay_each(
        self,
        run: &ReviewRun,
        each: &mut ConversationVisitor<'_>,
    ) -> Option<ConversationCounts> {
        let Self { client, found, last, shown, _memory } = self;
        let profile = conversations::profile_with(&client, shown);
        let mut counts = ConversationCounts::default();
        for conversation in &found {
            if counts.replayed == last {
                break;
            }
            if !run.is_awaited() {
                return None;
            }
            let FoundConversation::Journal { name, journal, is_earlier } = conversation else {
                counts.too_large += 1;
                continue;
            };
            let ConversationJournal { key, inputs, .. } = journal;
            // What `each` has returned; stays `None` if the replay diverges, and `each` is not called.
            let mut outcome = None;
            let mut at_end = |monitor: &Monitor, judged: Vec<CallVerdict>| {
                outcome = Some(each(name, monitor, &judged));
            };
            if *is_earlier {
                let (turns, profile) = ((key.as_str(), inputs.as_slice()), profile.clone());
                // The calls had their verdicts under another policy, so no verdicts are passed on for comparison.
                let mut without_verdicts = |monitor: &Monitor| at_end(monitor, Vec::new());
                let replayed = conversations::replay_carried_over_recording(
                    &client,
                    turns,
                    profile,
                    &mut without_verdicts,
                );
                match replayed {
                    Ok(()) => {
                        counts.replayed += 1;
                        counts.carried_over += 1;
                    }
                    Err(_) => counts.not_carried_over += 1,
                }
            } else {
                match conversations::replay_recording(&client, key, inputs, &mut at_end) {
                    Ok(()) => counts.replayed += 1,
                    Err(_) => counts.diverged += 1,
                }
            }
            // `each` was called, and has returned `None` to end the evaluation.
            if outcome == Some(None) {
                return None;
            }
        }
        Some(counts)
    }
}
