//! Turns that wait for a person, longer than who asked for them can.
//!
//! Such a turn ends with a message of whoever drives the conversation, which says that somebody was asked. It goes on when its
//! caller sends the same chat again, or says [`CONTINUE`]; whatever else is said gives it up.

use flowgate_lm::chat::{Message, Part};

use super::{Conversation, Ended, Phase, Turn};
use crate::history::{Chat, History, Known};
use crate::journal::Input;

/// What a caller says to go on with a turn that waits.
pub const CONTINUE: &str = "continue";

impl Conversation {
    /// Ends the turn for its caller; the [question](super::Need::Approve) stands. Calls of the same message that may run are
    /// handed over with the others, when it is answered.
    pub fn postpone(&mut self) -> Turn {
        self.put(|| Input::Postponed);
        let Phase::Asking { question, .. } = &self.phase else { return Turn::default() };
        self.said = self.said.join(&question.judgement().decided);
        let calls = std::mem::take(&mut self.turn.calls);
        let turn = Turn { ended: Some(Ended::Asked), ..std::mem::take(&mut self.turn) };
        self.turn.calls = calls;
        turn
    }

    /// Whether a person was asked, and has not answered yet.
    pub fn waits_for_decision(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. })
    }

    /// The digest of the call that a person was asked about, if there is no answer yet.
    pub fn asked(&self) -> Option<String> {
        match &self.phase {
            Phase::Asking { question, .. } => Some(self.settings.key.digest(question)),
            _ => None,
        }
    }

    /// Whether a chat goes on with a turn that waits for a person. If it does, what is [decided](Self::decided) comes next.
    pub fn resume(&mut self, history: &mut History, chat: &Chat<'_>) -> bool {
        let Some((kept, new)) = self.resumed(history, chat) else { return false };
        self.put(|| Input::Resumed { kept, new: new.cloned() });
        self.resume_again(history, kept, new);
        true
    }

    pub(crate) fn resume_again(&mut self, history: &mut History, kept: usize, new: Option<&Message>) {
        self.delivered.clear();
        let mut known: Vec<Known> = history.known().iter().take(kept).cloned().collect();
        // It asks for nothing but to go on, and the model is not shown it.
        known.extend(new.map(|message| Known::new(message, self.base, self.items.len())));
        history.set(known);
    }

    /// How many messages of the chat stand, and the one that asks to go on.
    fn resumed<'m>(&self, history: &History, chat: &Chat<'m>) -> Option<(usize, Option<&'m Message>)> {
        if !self.waits_for_decision() {
            return None;
        }
        let known = history.known().len();
        let found = history.align(chat.digests());
        match chat.after(found.kept)? {
            // The same request as before, without the message that says that somebody was asked.
            [] if found.kept + 1 == known || found.kept == known => Some((found.kept, None)),
            [message @ Message::User(parts)] if found.kept == known => {
                let says = |part: &Part| matches!(part, Part::Text(text) if text.trim().eq_ignore_ascii_case(CONTINUE));
                let is_all = matches!(parts.as_slice(), [part] if says(part));
                is_all.then_some((known, Some(message)))
            }
            _ => None,
        }
    }
}
