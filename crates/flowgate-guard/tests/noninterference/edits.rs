//! Edits of a chat by its client: summaries, removals and replacements of messages.
//!
//! The choice of the messages does not depend on hidden text, and is the same in both runs. A replacement
//! carries the label of the messages that it replaces.

use flowgate_lm::chat::{Message, Part};

use crate::chat::{Chat, Held, HeldKind, held};
use crate::level::Level;
use crate::random::Random;
use crate::run::Made;
use crate::session::Session;
use crate::world;

/// The kind of an edit.
enum Edit {
    Summary,
    Dropped,
    User,
    Answer,
    Model,
}

impl Made<'_> {
    /// Applies a random edit to the messages of earlier turns.
    pub(crate) fn edit(&mut self, session: &mut Session, turn: usize, shared: &mut Random) {
        let (changes, kind, number) = (shared.chance(65), shared.below(6), shared.next());
        let (from, new) = (shared.below(turn.max(1)), world::mark(shared));
        let to = from + shared.below(turn.saturating_sub(from).max(1));
        if turn == 0 || !changes {
            return;
        }
        let edit = match kind {
            0 | 1 => Edit::Summary,
            2 => Edit::Dropped,
            3 => Edit::User,
            4 => Edit::Answer,
            _ => Edit::Model,
        };
        let chat = held(session);
        let Some(range) = chat.range(&edit, from, to, number) else { return };
        let gone = chat.held[range.clone()].iter().map(|held| &held.level);
        let floor = gone.fold(self.taint.oracle.bottom(), |floor, level| floor.join(level));
        let level = match edit {
            // Only a conversation writes messages of the model.
            Edit::Model => self.taint.oracle.top(),
            Edit::Answer => floor,
            _ => floor.join(&self.level_of_user()),
        };
        let text = self.chosen_text(&level, format!("edit {turn} {new}"));
        if let Edit::Answer = edit {
            self.taint.vouch(&text, &level);
        }
        let chat = held(session);
        let new = chat.instead(&edit, range.start, text, &level);
        chat.held.splice(range, new);
        let is_seen = level.flows_to(&self.case.level);
        self.run.met.insert(match (edit, is_seen) {
            (Edit::Dropped, _) => "a history of which turns are dropped",
            (Edit::Summary, true) => "a summary that the observer sees",
            (Edit::Summary, false) => "a summary that is hidden",
            (Edit::User, true) => "a rewritten message of the user that the observer sees",
            (Edit::User, false) => "a rewritten message of the user that is hidden",
            (Edit::Answer, true) => "a rewritten answer that the observer sees",
            (Edit::Answer, false) => "a rewritten answer that is hidden",
            (Edit::Model, _) => "a rewritten message of the model",
        });
    }
}

impl Chat {
    /// Returns the range of messages that an edit removes, if there is one.
    fn range(&self, edit: &Edit, from: usize, to: usize, number: u64) -> Option<std::ops::Range<usize>> {
        let one = |at: usize| at..at + 1;
        let is_of = |held: &Held| held.turn == from;
        let mut held = self.held.iter();
        match edit {
            Edit::Summary | Edit::Dropped => {
                let is_gone = |held: &&Held| {
                    (from..=to).contains(&held.turn) && !matches!(held.message, Message::System(_))
                };
                let start = self.held.iter().position(|held| is_gone(&held))?;
                Some(start..start + self.held.iter().filter(is_gone).count())
            }
            Edit::User => {
                held.position(|held| is_of(held) && matches!(held.message, Message::User(_))).map(one)
            }
            Edit::Model => {
                // All messages and answers of the turn: their number depends on which of the calls run.
                let is_gone = |held: &&Held| {
                    is_of(held) && matches!(held.message, Message::Assistant { .. } | Message::Tool { .. })
                };
                let start = self.held.iter().position(|held| is_gone(&held))?;
                Some(start..start + self.held.iter().filter(is_gone).count())
            }
            Edit::Answer => {
                let known = |held: &Held| matches!(held.kind, HeldKind::Known { is_answer: true });
                let places: Vec<usize> =
                    held.enumerate().filter(|(_, held)| known(held)).map(|(at, _)| at).collect();
                let which = usize::try_from(number % places.len().max(1) as u64).ok()?;
                places.get(which).copied().map(one)
            }
        }
    }

    fn instead(&self, edit: &Edit, at: usize, text: String, level: &Level) -> Option<Held> {
        let Held { message, turn, .. } = &self.held[at];
        let message = match (edit, message) {
            (Edit::Dropped, _) => return None,
            (Edit::Answer, Message::Tool { call_id, .. }) => {
                let (call_id, content) = (call_id.clone(), vec![Part::Text(text)]);
                Message::Tool { call_id, content, is_error: None }
            }
            (Edit::Model, _) => Message::Assistant { text, calls: Vec::new() },
            _ => Message::User(vec![Part::Text(text)]),
        };
        let kind = match edit {
            // The replacement is no event; it represents the removed one.
            Edit::Answer => HeldKind::Known { is_answer: true },
            _ => HeldKind::New,
        };
        Some(Held { message, level: level.clone(), turn: *turn, kind })
    }
}
