//! Generates edits of a chat by its client: summaries, removals and replacements of messages.
//!
//! The choice of the messages does not depend on hidden text, and is the same in both runs. A replacement
//! carries the label of the messages that it replaces.

use flowgate_lm::chat::{Message, Part};

use crate::chat::{ClientHeldChat, HeldMessage, HeldMessageKind, held};
use crate::oracle_label::OracleLabel;
use crate::random::Random;
use crate::run::RunState;
use crate::session::ObservedSession;
use crate::world;

/// The kind of an edit.
enum ChatEdit {
    Summary,
    Dropped,
    User,
    Answer,
    Model,
}

impl RunState<'_> {
    /// Applies a random edit to the messages of earlier turns.
    pub(crate) fn edit(&mut self, session: &mut ObservedSession, turn: usize, shared: &mut Random) {
        let (changes, kind, number) = (shared.chance(65), shared.below(6), shared.next());
        let (from, new) = (shared.below(turn.max(1)), world::mark(shared));
        let to = from + shared.below(turn.saturating_sub(from).max(1));
        if turn == 0 || !changes {
            return;
        }
        let edit = match kind {
            0 | 1 => ChatEdit::Summary,
            2 => ChatEdit::Dropped,
            3 => ChatEdit::User,
            4 => ChatEdit::Answer,
            _ => ChatEdit::Model,
        };
        let chat = held(session);
        let Some(range) = chat.range(&edit, from, to, number) else { return };
        let gone = chat.held[range.clone()].iter().map(|held| &held.level);
        let floor = gone.fold(self.taint.oracle.bottom(), |floor, level| floor.join(level));
        let level = match edit {
            // Only a conversation writes messages of the model.
            ChatEdit::Model => self.taint.oracle.top(),
            ChatEdit::Answer => floor,
            _ => floor.join(&self.level_of_user()),
        };
        let text = self.chosen_text(&level, format!("edit {turn} {new}"));
        if let ChatEdit::Answer = edit {
            self.taint.vouch(&text, &level);
        }
        let chat = held(session);
        let new = chat.instead(&edit, range.start, text, &level);
        chat.held.splice(range, new);
        let is_seen = level.flows_to(&self.case.level);
        self.run.met.insert(match (edit, is_seen) {
            (ChatEdit::Dropped, _) => "a history of which turns are dropped",
            (ChatEdit::Summary, true) => "a summary that the observer sees",
            (ChatEdit::Summary, false) => "a summary that is hidden",
            (ChatEdit::User, true) => "a rewritten message of the user that the observer sees",
            (ChatEdit::User, false) => "a rewritten message of the user that is hidden",
            (ChatEdit::Answer, true) => "a rewritten answer that the observer sees",
            (ChatEdit::Answer, false) => "a rewritten answer that is hidden",
            (ChatEdit::Model, _) => "a rewritten message of the model",
        });
    }
}

impl ClientHeldChat {
    /// Returns the range of messages that an edit removes, if there is one.
    fn range(&self, edit: &ChatEdit, from: usize, to: usize, number: u64) -> Option<std::ops::Range<usize>> {
        let one = |at: usize| at..at + 1;
        let is_of = |held: &HeldMessage| held.turn == from;
        let mut held = self.held.iter();
        match edit {
            ChatEdit::Summary | ChatEdit::Dropped => {
                let is_gone = |held: &&HeldMessage| {
                    (from..=to).contains(&held.turn) && !matches!(held.message, Message::System(_))
                };
                let start = self.held.iter().position(|held| is_gone(&held))?;
                Some(start..start + self.held.iter().filter(is_gone).count())
            }
            ChatEdit::User => {
                held.position(|held| is_of(held) && matches!(held.message, Message::User(_))).map(one)
            }
            ChatEdit::Model => {
                // All messages and answers of the turn: their number depends on which of the calls run.
                let is_gone = |held: &&HeldMessage| {
                    is_of(held) && matches!(held.message, Message::Assistant { .. } | Message::Tool { .. })
                };
                let start = self.held.iter().position(|held| is_gone(&held))?;
                Some(start..start + self.held.iter().filter(is_gone).count())
            }
            ChatEdit::Answer => {
                let known =
                    |held: &HeldMessage| matches!(held.kind, HeldMessageKind::Known { is_answer: true });
                let places: Vec<usize> =
                    held.enumerate().filter(|(_, held)| known(held)).map(|(at, _)| at).collect();
                let which = usize::try_from(number % places.len().max(1) as u64).ok()?;
                places.get(which).copied().map(one)
            }
        }
    }

    fn instead(&self, edit: &ChatEdit, at: usize, text: String, level: &OracleLabel) -> Option<HeldMessage> {
        let HeldMessage { message, turn, .. } = &self.held[at];
        let message = match (edit, message) {
            (ChatEdit::Dropped, _) => return None,
            (ChatEdit::Answer, Message::Tool { call_id, .. }) => {
                let (call_id, content) = (call_id.clone(), vec![Part::Text(text)]);
                Message::Tool { call_id, content, is_error: None }
            }
            (ChatEdit::Model, _) => Message::Assistant { text, calls: Vec::new(), thoughts: Vec::new() },
            _ => Message::User(vec![Part::Text(text)]),
        };
        let kind = match edit {
            // The replacement is no event; it represents the removed one.
            ChatEdit::Answer => HeldMessageKind::Known { is_answer: true },
            _ => HeldMessageKind::New,
        };
        Some(HeldMessage { message, level: level.clone(), turn: *turn, kind })
    }
}
