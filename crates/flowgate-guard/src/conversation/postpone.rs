//! Postpones turns that wait for a person's decision longer than the caller can wait, and continues them.
//!
//! The driver of the conversation ends such a turn with a message which says that a person was asked. If the caller
//! sends the same chat again, or the message [`CONTINUE`], the turn continues. Any other message drops the turn.

use flowgate_lm::chat::{Message, Part};

use super::redeclared::SentMessages;
use super::{Conversation, ConversationPhase, Turn};
use crate::history::{History, HistoryMessage, SentChat};

/// The message with which a caller continues a waiting turn.
pub const CONTINUE: &str = "continue";

impl Conversation {
    /// Ends the turn for its caller, and returns what it has produced so far; the [question](super::Need::Approve)
    /// stays open. The caller learns that a person was asked; this reveals the verdict, so the label of the verdict is
    /// added to the output. Without an open question, returns an empty turn.
    pub(super) fn postpone_turn(&mut self) -> Turn {
        let ConversationPhase::Asking { question, .. } = &self.phase else { return Turn::default() };
        self.labels.add_output(&question.judgement().decided);
        self.turn.finish_asked()
    }

    /// Returns whether a person was asked and has not decided yet.
    pub fn waits_for_decision(&self) -> bool {
        matches!(self.phase, ConversationPhase::Asking { .. })
    }

    /// Returns the keyed digest of the call that a person is being asked about; `None` if no question is open.
    pub fn pending_question_digest(&self) -> Option<String> {
        match &self.phase {
            ConversationPhase::Asking { question, .. } => Some(self.settings.key.digest(question)),
            _ => None,
        }
    }

    /// Continues a postponed turn: truncates the history to the first `unchanged` messages, and appends `new`, the
    /// message that continues the turn, if there is one. The truncation drops the message which says that a person was
    /// asked, if the caller did not send it back.
    pub(super) fn resume_turn(&mut self, history: &mut History, unchanged: usize, new: Option<&Message>) {
        // By sending another request, the caller loses the right to run calls of the last message outside the chat.
        self.handed.revoke();
        // The answer of the resumed turn carries the labels of the steps from this index on: from the last step, whose
        // call a person is asked about. `steps` yields the last step first.
        self.turn.resumed = self.items.steps().next().map(|(at, _)| at);
        let mut messages: Vec<HistoryMessage> = history.messages().iter().take(unchanged).cloned().collect();
        // The message only continues the turn; it is not shown to the model.
        messages
            .extend(new.map(|message| HistoryMessage::new(message, *self.labels.base(), self.items.len())));
        history.replace_messages(messages);
    }

    /// Returns how a chat continues the postponed turn: the number of unchanged messages, and the message [`CONTINUE`]
    /// at the end of the chat, or no message if the same chat was sent again. Returns `None` if the chat does not
    /// continue the turn in one of these two ways, or if no turn is postponed.
    pub(super) fn find_resumption<'m>(
        &self,
        history: &History,
        chat: &SentChat<'m>,
    ) -> Option<(usize, Option<&'m Message>)> {
        if !self.waits_for_decision() {
            return None;
        }
        let length = history.messages().len();
        // No client profile (`None`): a request that is sent again declares what it declared before, so only declared
        // sources are compared.
        let declared = chat.sources_after(chat.digest_only_count());
        let digests = self.compared_digests(history, &SentMessages::of(chat, &declared), None);
        let found = history.align(&digests, chat.certain_count());
        match chat.messages_after(found.unchanged)? {
            // The same request as before, with or without the message which says that a person was asked.
            [] if found.unchanged + 1 == length || found.unchanged == length => Some((found.unchanged, None)),
            [message @ Message::User(parts)] if found.unchanged == length => {
                let says_continue = |part: &Part| matches!(part, Part::Text(text) if text.trim().eq_ignore_ascii_case(CONTINUE));
                let is_only_continue = matches!(parts.as_slice(), [part] if says_continue(part));
                is_only_continue.then_some((length, Some(message)))
            }
            _ => None,
        }
    }
}
