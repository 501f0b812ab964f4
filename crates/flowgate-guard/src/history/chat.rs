//! A chat as a caller sends it, and what stands for its messages: to compare it with what is known of one session or of many.
//!
//! A caller sends all of its chat with every message. Of messages that were [read before](Beginning) nothing is needed but
//! what stands for them, as long as they stand where they stood.

use std::sync::Arc;

use flowgate_lm::chat::{Message, Sources};
use sha2::{Digest as _, Sha256};

use super::print::Print;
use super::{Digested, Prefix, Prefixes};

/// A chat, of which the first messages may be known by what stands for them alone.
#[derive(Debug)]
pub struct Chat<'m> {
    all: Arc<Beginning>,
    /// The last ones.
    messages: &'m [Message],
    /// Where their parts come from, as far as the caller says.
    sources: Sources,
}

/// What stands for the first messages of a chat, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    digests: Vec<Digested>,
    /// Whether a model wrote it.
    written: Vec<bool>,
}

impl Beginning {
    /// How many messages it stands for.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether it stands for none.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }
}

impl<'m> Chat<'m> {
    /// The chat that has these messages.
    pub fn of(messages: &'m [Message]) -> Self {
        Self::going_on(&Beginning::default(), messages)
    }

    /// The chat that begins like this, and goes on with these messages.
    pub fn going_on(beginning: &Beginning, messages: &'m [Message]) -> Self {
        let (all, mut print) = (beginning.len() + messages.len(), Print::default());
        let (mut digests, mut written) = (Vec::with_capacity(all), Vec::with_capacity(all));
        digests.extend_from_slice(&beginning.digests);
        written.extend_from_slice(&beginning.written);
        digests.extend(messages.iter().map(|message| print.digest(message)));
        written.extend(messages.iter().map(|message| matches!(message, Message::Assistant { .. })));
        Self { all: Arc::new(Beginning { digests, written }), messages, sources: Sources::default() }
    }

    /// The same chat, of whose messages the caller says where their parts come from. That is no part of what stands for them.
    #[must_use]
    pub fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// What stands for all of it.
    pub fn beginning(&self) -> Arc<Beginning> {
        Arc::clone(&self.all)
    }

    pub(crate) fn digests(&self) -> &[Digested] {
        &self.all.digests
    }

    /// How many messages come before those that it has.
    pub(crate) fn left_out(&self) -> usize {
        self.all.len() - self.messages.len()
    }

    /// The messages after so many, or nothing if it does not have all of these.
    pub(crate) fn after(&self, kept: usize) -> Option<&'m [Message]> {
        self.messages.get(kept.checked_sub(self.left_out())?..)
    }

    /// Where the parts of the messages after so many come from.
    pub(crate) fn sources_after(&self, kept: usize) -> Sources {
        self.sources.from(kept.saturating_sub(self.left_out()))
    }

    /// What it has in common with a session that it goes on with, shortest first.
    pub fn prefixes(&self) -> Vec<Prefix> {
        let mut prefixes = Prefixes::default();
        let marked = self.all.digests.iter().zip(&self.all.written);
        marked.for_each(|(digest, is_written)| prefixes.push(digest, *is_written));
        prefixes.all
    }

    /// The last of these.
    pub fn longest_prefix(&self) -> Option<Prefix> {
        let last = self.all.written.iter().rposition(|is_written| *is_written)?;
        let all = self.all.digests.get(..=last)?;
        Some(Sha256::digest(all.as_flattened()).into())
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::Part;

    use super::*;

    fn chat() -> Vec<Message> {
        let said = |text: &str| Message::User(vec![Part::from(text)]);
        let answered = |text: &str| Message::Assistant { text: text.to_owned(), calls: Vec::new() };
        vec![said("a"), said("b"), answered("one"), said("c"), answered("two"), said("d")]
    }

    #[test]
    fn the_longest_prefix_is_the_last() {
        let all = chat();
        for count in 0..=all.len() {
            let chat = Chat::of(&all[..count]);
            assert_eq!(chat.longest_prefix(), chat.prefixes().last().copied());
            assert_eq!(chat.longest_prefix().is_some(), count > 2, "{count}");
        }
    }

    /// However much of a chat was read before, the same stands for it.
    #[test]
    fn a_chat_that_goes_on_is_the_same_chat() {
        let all = chat();
        let whole = Chat::of(&all);
        for known in 0..=all.len() {
            let (before, rest) = all.split_at(known);
            let chat = Chat::going_on(&Chat::of(before).beginning(), rest);
            assert_eq!(chat.digests(), whole.digests(), "{known}");
            assert_eq!(chat.prefixes(), whole.prefixes(), "{known}");
            for kept in 0..=all.len() + 1 {
                let expected = all.get(kept..).filter(|_| kept >= known);
                assert_eq!(chat.after(kept), expected, "{known} {kept}");
            }
        }
    }
}
