//! Recognises *redeclared* messages: messages of the user that a caller sends again, and that are distrusted now,
//! although the history has them with a lower label. For example, a caller drops the end of a chat, and continues it
//! with a retrieved page that has exactly the words which a person typed there before.
//!
//! A chat is compared with the history by the contents of its messages, and the declared provenance is not part of the
//! content. Without this module, a redeclared message would count as unchanged, and keep the label of the person's
//! words. With it, the message is new: it is labelled by its declared provenance, and carries the labels of what it
//! replaces. [`Conversation::align_chat`] and the resumption of turns use this module before they compare a chat with
//! the history.
//!
//! A missing declaration is read in two ways. If the caller sent the whole chat again, a message is not redeclared
//! because its declaration is missing, since many callers declare the provenance of new messages only. If the caller
//! named the answer that it continues, the messages after this answer are new. A part of them without a declaration is
//! therefore distrusted, unless the operator trusts such parts of this client.
//!
//! [`Conversation::align_chat`]: super::Conversation::align_chat

use std::borrow::Cow;
use std::collections::HashSet;

use flowgate_lm::chat::{Message, Part, Source, Sources};
use sha2::{Digest as _, Sha256};

use super::Conversation;
use crate::history::{ClientProfile, History, MessageDigest, SentChat};

/// A sent chat, as far as its messages are at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentMessages<'c> {
    /// The digests of all messages.
    pub(super) digests: &'c [MessageDigest],
    /// How many of the first messages are certainly those of the history, usually because the caller names the answer
    /// that it continues; 0 if that is not known of any.
    pub(super) certain: usize,
    /// The last messages, in full.
    pub(super) messages: &'c [Message],
    /// The declared provenance of the parts of `messages`.
    pub(super) sources: &'c Sources,
}

impl<'c> SentMessages<'c> {
    /// Returns the messages of `chat`, whose full messages have the declared provenance `sources`.
    pub(super) fn of(chat: &'c SentChat<'_>, sources: &'c Sources) -> Self {
        let (digests, certain, messages) = (chat.digests(), chat.certain_count(), chat.full_messages());
        Self { digests, certain, messages, sources }
    }

    /// Returns the messages after the first `count`; `None` if not all of them are at hand.
    pub(super) fn messages_after(&self, count: usize) -> Option<&'c [Message]> {
        self.messages.get(count.checked_sub(self.offset())?..)
    }

    /// Returns the number of messages before those that are at hand.
    fn offset(&self) -> usize {
        self.digests.len().saturating_sub(self.messages.len())
    }

    /// Returns the indices in the chat of the user's messages that have a distrusted part: a part that is declared as
    /// anything but typed or, in a message that is certainly new, a part that the operator's settings of `client` do
    /// not trust. Messages are certainly new if they follow the answer that the caller names as the one that it
    /// continues. Without `client`, a part is distrusted only because of its declared provenance.
    fn distrusted(&self, client: Option<&ClientProfile>) -> impl Iterator<Item = usize> {
        let messages = self.messages.iter().enumerate();
        messages.filter_map(move |(number, message)| {
            let Message::User(parts) = message else { return None };
            let index = self.offset() + number;
            // The first `certain` messages are those of the history, and the messages after them are new. If none is
            // certain, the caller may have sent old messages again without their declarations, so
            // its messages are not distrusted because of the settings.
            let is_certainly_new = self.certain > 0 && index >= self.certain;
            let client = client.filter(|_| is_certainly_new);
            let is_distrusted = |(at, part): (usize, &Part)| match self.sources.of(number, at) {
                // A declaration as anything but typed is believed of every client.
                Some(source) if source != Source::Typed => true,
                // A pinned part needs no declaration: the operator knows its text, and what fills its holes is labelled
                // apart.
                source => client.is_some_and(|client| !client.trusts(source) && !is_pinned(client, part)),
            };
            parts.iter().enumerate().any(is_distrusted).then_some(index)
        })
    }
}

/// Returns whether the operator knows the text of a part verbatim, except for its holes, which are labelled apart.
fn is_pinned(client: &ClientProfile, part: &Part) -> bool {
    matches!(part, Part::Text(text) if client.pinned.iter().any(|form| form.holes(text).is_some()))
}

impl Conversation {
    /// Returns the digests by which a sent chat is compared with the history: the digests of its messages, except that
    /// a redeclared message gets a digest that no message of the history has. Without `client`, a message counts as
    /// redeclared only because of its declared provenance.
    pub(super) fn compared_digests<'c>(
        &self,
        history: &History,
        chat: &SentMessages<'c>,
        client: Option<&ClientProfile>,
    ) -> Cow<'c, [MessageDigest]> {
        let mut digests = Cow::Borrowed(chat.digests);
        let top = self.monitor.policy().space().top();
        // The digests of the messages in the history whose label is below top; computed when they are first needed.
        let mut below_top: Option<HashSet<MessageDigest>> = None;
        for index in chat.distrusted(client) {
            let Some(digest) = chat.digests.get(index) else { continue };
            // Whether the history has a message with this content and a label below top: only then is it redeclared.
            let is_lower = match history.messages().get(index).filter(|known| known.has_digest(digest)) {
                Some(known) => known.label != top,
                // The history has another message at this position, so the message may have been moved.
                None => below_top
                    .get_or_insert_with(|| history.digests_where(|known| known.label != top))
                    .contains(digest),
            };
            if is_lower && let Some(compared) = digests.to_mut().get_mut(index) {
                *compared = Sha256::new().chain_update("redeclared ").chain_update(digest).finalize().into();
            }
        }
        digests
    }
}
