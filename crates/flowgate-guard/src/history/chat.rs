//! Represents a chat as a client sends it ([`SentChat`]): its messages with their digests, by which it is compared with
//! the histories of sessions. The gateway creates it for each request.
//!
//! A client sends its whole chat with every request. Messages that were [read before](MessageDigests) are represented
//! by their digests alone, as long as they keep their positions.

use std::sync::Arc;

use flowgate_lm::chat::{Message, Sources};
use sha2::{Digest as _, Sha256};

use super::digest::MessageHasher;
use super::{ChatPrefixDigest, ChatPrefixDigests, MessageDigest};

/// A chat whose first messages may be represented by their digests alone.
#[derive(Debug)]
pub struct SentChat<'m> {
    /// The digests of all messages.
    all: Arc<MessageDigests>,
    /// The last messages, in full.
    messages: &'m [Message],
    /// The provenance of the parts of `messages`, as the client declares it.
    sources: Sources,
    /// How many of the first messages are those of the session by their positions, because the client names the answer
    /// that it continues.
    certain: usize,
}

/// The digests of the first messages of a chat, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageDigests {
    digests: Vec<MessageDigest>,
    /// Whether a model wrote each message.
    written: Vec<bool>,
}

impl MessageDigests {
    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Returns one digest of the first `count` messages together; `None` if there are fewer.
    pub fn digest_of_first(&self, count: usize) -> Option<[u8; 32]> {
        Some(Sha256::digest(self.digests.get(..count)?.as_flattened()).into())
    }
}

impl FromIterator<(MessageDigest, bool)> for MessageDigests {
    /// Collects the digests of messages, each with whether a model wrote the message.
    fn from_iter<I: IntoIterator<Item = (MessageDigest, bool)>>(messages: I) -> Self {
        let (digests, written) = messages.into_iter().unzip();
        Self { digests, written }
    }
}

impl<'m> SentChat<'m> {
    /// Creates a chat of these messages.
    pub fn of(messages: &'m [Message]) -> Self {
        Self::continuing(&MessageDigests::default(), messages)
    }

    /// Creates a chat that begins with the messages of `prefix` and continues with `messages`. Only the digests of the
    /// messages of `prefix` are known.
    pub fn continuing(prefix: &MessageDigests, messages: &'m [Message]) -> Self {
        let (count, mut hasher) = (prefix.len() + messages.len(), MessageHasher::default());
        // `written`: whether the model wrote each message.
        let (mut digests, mut written) = (Vec::with_capacity(count), Vec::with_capacity(count));
        digests.extend_from_slice(&prefix.digests);
        written.extend_from_slice(&prefix.written);
        digests.extend(messages.iter().map(|message| hasher.digest(message)));
        written.extend(messages.iter().map(|message| matches!(message, Message::Assistant { .. })));
        Self {
            all: Arc::new(MessageDigests { digests, written }),
            messages,
            sources: Sources::default(),
            certain: 0,
        }
    }

    /// Creates the chat of a client that names the answer which it continues: `prefix` are the digests of the session's
    /// messages up to this answer, and `messages` are the messages that the client sends after it, with the declared
    /// provenance `sources`. A system message at the beginning of `messages` is left out if `prefix` begins with the
    /// same message, since clients repeat the instructions in each request.
    pub fn following(prefix: &MessageDigests, messages: &'m [Message], sources: &Sources) -> Self {
        let is_repeated = |first: &Message| {
            matches!(first, Message::System(_))
                && prefix.digests.first() == Some(&MessageHasher::default().digest(first))
        };
        let repeated = usize::from(messages.first().is_some_and(is_repeated));
        let rest = messages.get(repeated..).unwrap_or_default();
        let chat = Self::continuing(prefix, rest).with_sources(sources.starting_at(repeated));
        Self { certain: prefix.len(), ..chat }
    }

    /// Creates the chat of a client that sends all its `messages`, with their declared provenance, and names answers of
    /// the session in place of some of them. `is_answer` returns whether the message with an index names an answer;
    /// such a message counts as equal to the answer. `before` are the digests of the session's messages up to the last
    /// named answer. Returns `None` if the chat has fewer messages than `before`, or if one of its first messages
    /// neither names an answer nor has its digest in `before`.
    pub fn with_answers(
        before: &MessageDigests,
        messages: &'m [Message],
        sources: &Sources,
        is_answer: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let (first, rest) = messages.split_at_checked(before.len())?;
        let mut hasher = MessageHasher::default();
        let mut pairs = first.iter().zip(&before.digests).enumerate();
        let is_same = pairs.all(|(at, (message, digest))| is_answer(at) || hasher.digest(message) == *digest);
        is_same.then(|| {
            let chat = Self::continuing(before, rest).with_sources(sources.starting_at(before.len()));
            Self { certain: before.len(), ..chat }
        })
    }

    /// Sets the declared provenance of the message parts. The digests do not cover it.
    #[must_use]
    pub fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// Returns the digests of all messages.
    pub fn message_digests(&self) -> Arc<MessageDigests> {
        Arc::clone(&self.all)
    }

    /// Returns the digest of each message of the chat, in order.
    pub(crate) fn digests(&self) -> &[MessageDigest] {
        &self.all.digests
    }

    /// Returns how many of the first messages are certainly those of the session, because the client names the answer
    /// that it continues; 0 if the client names none.
    pub(crate) fn certain_count(&self) -> usize {
        self.certain
    }

    /// Returns the number of messages that this chat holds only as digests.
    pub(crate) fn digest_only_count(&self) -> usize {
        self.all.len() - self.messages.len()
    }

    /// Returns the messages after the first `count`; `None` if this chat does not hold all of them in full.
    pub(crate) fn messages_after(&self, count: usize) -> Option<&'m [Message]> {
        self.messages.get(count.checked_sub(self.digest_only_count())?..)
    }

    /// Returns the messages that this chat holds in full, which are the last ones.
    pub fn full_messages(&self) -> &'m [Message] {
        self.messages
    }

    /// Returns the provenance of the parts of the messages after the first `count`.
    pub(crate) fn sources_after(&self, count: usize) -> Sources {
        self.sources.starting_at(count.saturating_sub(self.digest_only_count()))
    }

    /// Returns the digests of the beginnings of this chat that end with a message of the model, shortest first. A
    /// session that this chat continues has the same [prefixes](super::History::prefixes).
    pub fn prefixes(&self) -> Vec<ChatPrefixDigest> {
        let mut prefixes = ChatPrefixDigests::default();
        let marked = self.all.digests.iter().zip(&self.all.written);
        marked.for_each(|(digest, is_written)| prefixes.push(digest, *is_written));
        prefixes.all
    }

    /// Returns the longest of [`Self::prefixes`]; `None` if no message is a model's.
    pub fn longest_prefix(&self) -> Option<ChatPrefixDigest> {
        let last = self.all.written.iter().rposition(|is_written| *is_written)?;
        let all = self.all.digests.get(..=last)?;
        Some(Sha256::digest(all.as_flattened()).into())
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::{Part, Source};

    use super::*;

    fn chat() -> Vec<Message> {
        let said = |text: &str| Message::User(vec![Part::from(text)]);
        let answered = |text: &str| Message::Assistant {
            text: text.to_owned(),
            calls: Vec::new(),
            thoughts: Vec::new(),
        };
        vec![said("a"), said("b"), answered("one"), said("c"), answered("two"), said("d")]
    }

    #[test]
    fn the_longest_prefix_is_the_last() {
        let all = chat();
        for count in 0..=all.len() {
            let chat = SentChat::of(&all[..count]);
            assert_eq!(chat.longest_prefix(), chat.prefixes().last().copied());
            assert_eq!(chat.longest_prefix().is_some(), count > 2, "{count}");
        }
    }

    #[test]
    fn repeated_instructions_are_left_out() {
        let system = |text: &str| Message::System(vec![Part::from(text)]);
        let user = || Message::User(vec![Part::from("a")]);
        let check = |first: Message, sent: Vec<Message>, added: usize| {
            let prefix = SentChat::of(&[first]).message_digests();
            let mut sources = Sources::default();
            sources.set(sent.len() - 1, vec![Some(Source::File)]);
            let chat = SentChat::following(&prefix, &sent, &sources);
            assert_eq!(chat.digests().len(), 1 + added, "{sent:?}");
            assert_eq!(chat.sources_after(added).of(0, 0), Some(Source::File), "{sent:?}");
        };
        check(system("x"), vec![system("x"), user()], 1);
        check(system("x"), vec![user()], 1);
        // Other instructions are added to the chat.
        check(system("x"), vec![system("y"), user()], 2);
        // A message of the user is never left out.
        check(user(), vec![user()], 1);
    }

    /// A message in place of an answer has the digest of the answer; every other one must be that of the session.
    #[test]
    fn answers_of_the_session_are_not_sent_again() {
        let all = chat();
        let before = SentChat::of(&all[..5]).message_digests();
        let check = |change: fn(&mut Vec<Message>), answers: &[usize], is_chat: bool| {
            let mut sent = all.clone();
            change(&mut sent);
            let mut sources = Sources::default();
            sources.set(5, vec![Some(Source::File)]);
            let chat = SentChat::with_answers(&before, &sent, &sources, |at| answers.contains(&at));
            assert_eq!(chat.is_some(), is_chat, "{answers:?}");
            let Some(chat) = chat else { return };
            assert_eq!(chat.digests(), SentChat::of(&all).digests());
            assert_eq!((chat.certain_count(), chat.full_messages()), (5, &all[5..]));
            assert_eq!(chat.sources_after(5).of(0, 0), Some(Source::File));
        };
        check(|_| {}, &[2, 4], true);
        check(|_| {}, &[], true);
        let both: fn(&mut Vec<Message>) = |sent| {
            for at in [2, 4] {
                let (text, calls, thoughts) = (String::new(), Vec::new(), Vec::new());
                sent[at] = Message::Assistant { text, calls, thoughts };
            }
        };
        check(both, &[2, 4], true);
        check(both, &[4], false);
        check(|sent| sent[0] = Message::User(vec![Part::from("other")]), &[2, 4], false);
        check(|sent| drop(sent.remove(1)), &[2, 4], false);
        check(|sent| sent.truncate(4), &[2], false);
    }

    /// The digests do not depend on how much of the chat was read before.
    #[test]
    fn digests_do_not_depend_on_the_cached_prefix() {
        let all = chat();
        let whole = SentChat::of(&all);
        for digest_only in 0..=all.len() {
            let (before, rest) = all.split_at(digest_only);
            let chat = SentChat::continuing(&SentChat::of(before).message_digests(), rest);
            assert_eq!(chat.digests(), whole.digests(), "{digest_only}");
            assert_eq!(chat.prefixes(), whole.prefixes(), "{digest_only}");
            for count in 0..=all.len() + 1 {
                let expected = all.get(count..).filter(|_| count >= digest_only);
                assert_eq!(chat.messages_after(count), expected, "{digest_only} {count}");
            }
        }
    }
}
