//! Compares a chat that a client sends with the messages of its session ([`History`]): which messages are unchanged,
//! new or rewritten. The merge of a sent chat into a conversation uses the result.
//!
//! A client that keeps the chat itself sends all of it with every request, and may have changed it: it summarises,
//! drops long messages, or inserts retrieved text. A label therefore belongs to a message at its position in the chat,
//! and not to its content. A message at its old position keeps its label. Messages that replace others carry the join
//! of the labels of the replaced messages. A new message is trusted as far as the operator trusts the
//! [client](ClientProfile), except for quotations that were [seen](QuotationMemory) with a label. The content of a
//! message never vouches for its origin: a page can quote the user's own sentence.
//!
//! **Files.** `chat` represents a sent chat ([`SentChat`]), `digest` computes the digests by which messages are
//! compared, and `client` defines the profile of a client. The other files find quotations. `quotation_memory`
//! remembers texts as `windows`, and `lookup` searches it. A text is compared in several forms, so that a quotation is
//! found in any spelling: `normalization`, `readings`, `pieces`, `query` and `remembered_texts` compute these forms.

mod chat;
mod client;
mod digest;
mod escapes;
pub(crate) mod lookup;
mod markup_mask;
mod normalization;
pub(crate) mod pieces;
mod query;
mod quotation_memory;
mod readings;
mod remembered_texts;
mod windows;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;

use flowgate::label::Label;
use flowgate_lm::chat::Message;
use sha2::{Digest as _, Sha256};

pub use chat::{MessageDigests, SentChat};
pub use client::{ClientProfile, MessageTemplate};
pub use lookup::TextQuotations;
pub use quotation_memory::{
    LearnedTexts, QuotationMemory, QuotationSpan, RememberedText, SHARE, SHORTEST, SourceShare,
};

use digest::MessageHasher;
use normalization::fold;
use pieces::Pieces;
pub(crate) use quotation_memory::SessionTexts;

/// The messages of one session, as the client holds them.
#[derive(Debug, Default)]
pub struct History {
    messages: Vec<HistoryMessage>,
    /// The number of answers of the model so far, including those that were removed from the chat since.
    answers: u64,
    prefixes: ChatPrefixDigests,
    /// The numbers of events of the trace, and of items of the conversation, whose texts are in the client's
    /// [`QuotationMemory`].
    pub(crate) memorized: (usize, usize),
    /// How many items of the conversation precede the first message that the client holds.
    pub(crate) preceding_items: Option<usize>,
    /// The end of the last text of each source: a page may arrive in pieces.
    pub(crate) pieces: DerivedValue<Pieces>,
    /// The end of the latest texts of user and system messages: a quotation may continue from it into the next message.
    pub(crate) tail: String,
    /// The end of the latest text that is the user's own.
    pub(crate) own: String,
    /// Whether the client sent messages of a model or a tool that this session did not record.
    pub(crate) has_unknown: bool,
    /// The events of user and system messages whose label is raised only because their source is unknown.
    pub(crate) unknown: BTreeSet<usize>,
    /// The labelled texts of this session, if new messages are compared with them.
    pub(crate) shown: DerivedValue<Option<SessionTexts>>,
}

/// A value that is computed from the session when it is needed, and is left out of `Debug` output.
#[derive(Default)]
pub(crate) struct DerivedValue<T>(pub(crate) T);

impl<T> fmt::Debug for DerivedValue<T> {
    /// Writes a constant in place of the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived")
    }
}

/// How much of the preceding text is joined with the next one, in bytes.
const TAIL: usize = 512;
/// How many characters in a row that are not compared are copied into a tail. Some are needed: escapes and markup
/// consist of a few such characters.
const LONGEST_RUN: usize = 4;

/// Appends a text to `tail`, the end of earlier texts, and shortens the result from the front to [`TAIL`] bytes. The
/// next message is compared together with this end, because a quotation may begin in it.
fn append_to_tail(tail: &mut String, text: &str) {
    tail.push('\n');
    // Of a run of characters that are not compared, only the first ones are copied. Otherwise padding could push the
    // compared text out of the tail.
    let mut run = 0;
    for c in text.chars() {
        let mut is_compared = false;
        // `fold` emits the normal form of a character, and nothing for one that is not compared.
        fold(c, &mut |_| is_compared = true);
        run = if is_compared { 0 } else { run + 1 };
        if run <= LONGEST_RUN {
            tail.push(c);
        }
    }
    let from = tail.len().saturating_sub(TAIL);
    let from = (from..=tail.len()).find(|at| tail.is_char_boundary(*at)).unwrap_or(0);
    tail.drain(..from);
}

/// The digest of the first messages of a chat, up to and including one that the model wrote.
pub type ChatPrefixDigest = [u8; 32];

/// A message that the client holds.
#[derive(Debug, Clone)]
pub(crate) struct HistoryMessage {
    digest: [u8; 32],
    /// Whether the model wrote it in this conversation.
    is_written: bool,
    /// The number of the answer, counted from 1 in this conversation; 0 for a message that is not an answer of the
    /// model here, and for one that is not in the history yet.
    number: u64,
    /// The label of the message.
    pub(crate) label: Label,
    /// The index after the last item of the conversation that this message represents. Its items begin where those of
    /// the previous message end.
    pub(crate) until: usize,
}

impl HistoryMessage {
    /// Creates the entry of a message that the model did not write in this conversation. The items of the conversation
    /// that the message represents end before the index `until`.
    pub(crate) fn new(message: &Message, label: Label, until: usize) -> Self {
        Self { digest: MessageHasher::default().digest(message), is_written: false, number: 0, label, until }
    }

    /// Marks the message as written by the model in this conversation: a chat that has this message belongs to this
    /// session.
    pub(crate) fn into_written(self) -> Self {
        Self { is_written: true, ..self }
    }

    /// Returns whether a sent message with this digest has the content of this one.
    pub(crate) fn has_digest(&self, digest: &MessageDigest) -> bool {
        self.digest == *digest
    }

    /// Returns a copy of the message whose items end before the index `until` of the conversation's items.
    pub(crate) fn with_end(&self, until: usize) -> Self {
        Self { until, ..self.clone() }
    }
}

/// The result of comparing a sent history with the history of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// The number of messages at the beginning that are unchanged.
    pub(crate) unchanged: usize,
    /// The messages of the session that are missing, by their indices in the session.
    pub(crate) removed: Range<usize>,
    /// The sent messages that replace them, by their indices in the sent history.
    pub(crate) replacements: Range<usize>,
    /// The messages of the session after the missing ones, by their indices in the session. In the sent history, these
    /// messages follow the replacements, and all messages after them are new.
    pub(crate) moved: Range<usize>,
}

/// The outcome of merging a sent history, in counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeSummary {
    /// Messages of the session that were sent again.
    pub known: usize,
    /// Messages of the session that are missing or were rewritten.
    pub removed: usize,
    /// Messages that are new or were rewritten.
    pub new: usize,
    /// Pieces of the new messages that quote a text which was seen with a label.
    pub quoted: usize,
    /// The most bits about seen texts that the bounds of these pieces can reveal.
    pub bits: u32,
}

impl History {
    /// Creates the history of a session that has no messages yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the digests of the beginnings of this session's chat that end with a message of the model, shortest
    /// first. A chat that continues from this session has the same ones.
    pub fn prefixes(&self) -> Vec<ChatPrefixDigest> {
        self.prefixes.all.clone()
    }

    /// Returns the number that the next answer of the model will have in this session. Numbers are not used again, also
    /// if an answer is removed from the chat.
    pub fn next_answer_number(&self) -> u64 {
        self.answers + 1
    }

    /// Returns whether the message with this index is the answer with this number.
    pub fn is_answer(&self, index: usize, number: u64) -> bool {
        self.messages.get(index).is_some_and(|answer| answer.is_written && answer.number == number)
    }

    /// Returns the digests of the first `count` messages and of the answer after them, for a client that continues from
    /// this answer without sending the chat before it. Returns `None` if the message after the first `count` is not the
    /// answer with this number.
    pub fn answered_chat(&self, count: usize, number: u64) -> Option<MessageDigests> {
        if !self.is_answer(count, number) {
            return None;
        }
        let messages = self.messages.iter().take(count + 1);
        Some(messages.map(|message| (message.digest, message.is_written)).collect())
    }

    /// Appends a text of a user or system message to the tail.
    pub(crate) fn extend_tail(&mut self, text: &str) {
        append_to_tail(&mut self.tail, text);
    }

    /// Appends a text to the end of the user's own texts.
    pub(crate) fn extend_own(&mut self, text: &str) {
        append_to_tail(&mut self.own, text);
    }

    /// Returns the messages that the client holds, in order.
    pub(crate) fn messages(&self) -> &[HistoryMessage] {
        &self.messages
    }

    /// Returns the digests of the messages that meet the condition.
    pub(crate) fn digests_where(
        &self,
        condition: impl Fn(&HistoryMessage) -> bool,
    ) -> HashSet<MessageDigest> {
        self.messages.iter().filter(|message| condition(message)).map(|message| message.digest).collect()
    }

    /// Replaces all messages, and recomputes the digests of the prefixes.
    pub(crate) fn replace_messages(&mut self, messages: Vec<HistoryMessage>) {
        (self.messages, self.prefixes) = (Vec::with_capacity(messages.len()), ChatPrefixDigests::default());
        messages.into_iter().for_each(|message| self.push_message(message));
    }

    /// Appends a message, and updates the digests of the prefixes. An answer of the model that has no number yet gets
    /// the next one.
    pub(crate) fn push_message(&mut self, mut message: HistoryMessage) {
        if message.is_written && message.number == 0 {
            self.answers += 1;
            message.number = self.answers;
        }
        self.prefixes.push(&message.digest, message.is_written);
        self.messages.push(message);
    }

    /// Appends messages to the history; the caller has checked that the client changed none of the old messages. The
    /// items of the conversation before the index `until` belong to the old messages: the last of these now ends there.
    pub(crate) fn append_messages(&mut self, until: usize, new: Vec<HistoryMessage>) {
        if let Some(last) = self.messages.last_mut() {
            last.until = until;
        }
        new.into_iter().for_each(|message| self.push_message(message));
    }

    /// Returns the digests of a chat that begins with `unchanged` messages of the session and continues with `rest`.
    pub(crate) fn digests_with(&self, unchanged: usize, rest: &[Message]) -> Vec<MessageDigest> {
        let digests = self.messages.iter().take(unchanged).map(|message| message.digest);
        digests.chain(SentChat::of(rest).digests().iter().copied()).collect()
    }

    /// Replaces the digest of the message at `index` by the digest of `sent`, so that chats in this spelling match from
    /// now on. The model wrote this message here, and `sent` has the same calls in another spelling. `recorded` is the
    /// message as the client received it. `digests` are the digests of the sent chat; its first `certain` messages are
    /// those of the history, because the client has named the answer that it continues. Returns the new alignment. Does
    /// nothing and returns `None` if the message at `index` is not `recorded`, or would still count as changed.
    pub(crate) fn respell(
        &mut self,
        index: usize,
        recorded: &Message,
        sent: &Message,
        (digests, certain): (&[MessageDigest], usize),
    ) -> Option<Alignment> {
        let mut hasher = MessageHasher::default();
        let message = self.messages.get_mut(index)?;
        if !message.is_written || message.digest != hasher.digest(recorded) {
            return None;
        }
        // The comparison runs with the new digest. If the message still counts as changed, the old digest is restored.
        let recorded_digest = std::mem::replace(&mut message.digest, hasher.digest(sent));
        let alignment = self.align(digests, certain);
        if alignment.unchanged <= index {
            self.messages.get_mut(index)?.digest = recorded_digest;
            return None;
        }
        // Recomputes the digests of the prefixes, which depend on the digest of the message.
        let messages = std::mem::take(&mut self.messages);
        self.replace_messages(messages);
        Some(alignment)
    }

    /// Compares a sent history with the history of the session: finds the unchanged messages at the beginning, and the
    /// longest end of the session's history that the sent history repeats after other messages. Every sent message
    /// between the two is a replacement. The first `certain` messages of both histories are certainly the same, because
    /// the client has named the answer that it continues.
    pub(crate) fn align(&self, sent: &[MessageDigest], certain: usize) -> Alignment {
        self.align_in_rounds(sent, certain).0
    }

    /// Compares as [`Self::align`] does, and also returns the number of rounds, which a test limits. Each round is one
    /// comparison ([`Self::align_to`]). If a round takes a message as unchanged that equals a removed one, it is
    /// unknown which of the two the client removed, so the next round ends the unchanged messages before that message.
    /// `sent` are the digests of the chat that the client sends. The first `certain` messages are never in doubt.
    fn align_in_rounds(&self, sent: &[MessageDigest], certain: usize) -> (Alignment, usize) {
        let mut max_unchanged = self.messages.len();
        let mut rounds = 0;
        loop {
            // A crafted history can make each round find one more ambiguous message. After the last permitted round,
            // all messages but the first `certain` ones count as ambiguous.
            rounds += 1;
            let alignment = self.align_to(sent, if rounds > MAX_ROUNDS { certain } else { max_unchanged });
            // A message that equals a removed one is ambiguous: it must not get the more permissive label of the two,
            // so it does not count as unchanged.
            let removed = self.messages.get(alignment.removed.clone()).into_iter().flatten();
            let removed: HashSet<&MessageDigest> = removed.map(|message| &message.digest).collect();
            let mut unchanged = self.messages.iter().enumerate().take(alignment.unchanged).skip(certain);
            match unchanged.find(|(_, message)| removed.contains(&message.digest)) {
                Some((ambiguous, _)) => max_unchanged = ambiguous,
                None => return (alignment, rounds),
            }
        }
    }

    /// Compares the chat that the client sends, given by its digests `sent`, with the history once. At most the
    /// first `max_unchanged` messages count as unchanged. In the history, the unchanged messages are followed by
    /// the removed ones, and then by the moved ones, which the chat has again. In the chat, the unchanged messages
    /// are followed by the replacements of the removed ones, by the moved ones, and then by new ones.
    fn align_to(&self, sent: &[MessageDigest], max_unchanged: usize) -> Alignment {
        let length_of_history = self.messages.len();
        let is_unchanged = |(message, sent): &(&HistoryMessage, &MessageDigest)| message.digest == **sent;
        let unchanged = self.messages.iter().take(max_unchanged).zip(sent).take_while(is_unchanged).count();
        if unchanged == length_of_history {
            return Alignment {
                unchanged,
                removed: length_of_history..length_of_history,
                replacements: unchanged..unchanged,
                moved: length_of_history..length_of_history,
            };
        }
        // Finds the longest suffix of the session's messages that occurs in the sent ones: these messages are the moved
        // ones, and the messages before them were rewritten.
        let old_reversed: Vec<&MessageDigest> =
            self.messages.iter().skip(unchanged).rev().map(|message| &message.digest).collect();
        let sent_reversed: Vec<&MessageDigest> = sent.iter().skip(unchanged).rev().collect();
        // Both lists are reversed, so the length at a position is the length of the suffix of the session that ends
        // at this position, counted from the end of the sent messages. If the longest suffix occurs several times,
        // its last occurrence counts.
        let lengths = common_prefix_lengths(&old_reversed, &sent_reversed);
        let ends = lengths.iter().enumerate().map(|(from_end, length)| (*length, sent.len() - from_end));
        let (length, end) = ends.max().filter(|(length, _)| *length > 0).unwrap_or((0, sent.len()));
        Alignment {
            unchanged,
            removed: unchanged..length_of_history - length,
            replacements: unchanged..end - length,
            moved: length_of_history - length..length_of_history,
        }
    }
}

/// The digest of one message.
pub(crate) type MessageDigest = [u8; 32];

/// The maximum number of rounds of a comparison. Histories of agents take one or two.
const MAX_ROUNDS: usize = 32;

/// Returns for each position in `text` the length of the longest prefix of `pattern` that begins there (Gusfield's
/// Z-function).
fn common_prefix_lengths<T: PartialEq>(pattern: &[T], text: &[T]) -> Vec<usize> {
    // The item at an index of `pattern` followed by `text`.
    let at = |index: usize| {
        if index < pattern.len() { pattern.get(index) } else { text.get(index - pattern.len()) }
    };
    let total = pattern.len() + text.len();
    let mut lengths = vec![0_usize; total];
    // Of the matches found so far, the one that ends last is `left..right`: its items equal those at the beginning of
    // the pattern, so their lengths are known already.
    let (mut left, mut right) = (0, 0);
    for index in 1..total {
        let mut length = if index < right {
            lengths.get(index - left).copied().unwrap_or(0).min(right - index)
        } else {
            0
        };
        while length < pattern.len() && index + length < total && at(length) == at(index + length) {
            length += 1;
        }
        if let Some(entry) = lengths.get_mut(index) {
            *entry = length;
        }
        if index + length > right {
            (left, right) = (index, index + length);
        }
    }
    lengths.split_off(pattern.len().min(total))
}

/// The prefix digests of a chat, extended incrementally.
#[derive(Debug, Clone, Default)]
struct ChatPrefixDigests {
    /// The digests of the prefixes so far, shortest first.
    all: Vec<ChatPrefixDigest>,
    /// The hash of all messages so far.
    before: Sha256,
}

impl ChatPrefixDigests {
    /// Adds the digest of the next message. The chat so far becomes a prefix only after a message that the model wrote
    /// (`is_written`): only such a message, which the client has received, distinguishes two sessions.
    fn push(&mut self, digest: &MessageDigest, is_written: bool) {
        self.before.update(digest);
        if is_written {
            self.all.push(self.before.clone().finalize().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::Part;

    use super::*;

    /// The prefixes depend only on the messages, not on how they were added. A letter is a message; the model wrote
    /// those in upper case.
    #[test]
    fn prefixes_grow_with_the_messages() {
        let old = |text: &str| -> Vec<HistoryMessage> {
            let old = |message: &Message| HistoryMessage::new(message, Label::BOTTOM, 0);
            let mark = |(c, old): (char, HistoryMessage)| {
                if c.is_uppercase() { old.into_written() } else { old }
            };
            text.chars().zip(messages(text).iter().map(old)).map(mark).collect()
        };
        let check = |steps: &[(&str, &str)]| {
            let mut history = History::new();
            for (how, text) in steps {
                match *how {
                    "set" => history.replace_messages(old(text)),
                    "go on" => history.append_messages(7, old(text)),
                    _ => old(text).into_iter().for_each(|old| history.push_message(old)),
                }
                let mut before = Sha256::new();
                let mut expected: Vec<ChatPrefixDigest> = Vec::new();
                for old in history.messages() {
                    before.update(old.digest);
                    expected
                        .extend(old.is_written.then(|| ChatPrefixDigest::from(before.clone().finalize())));
                }
                assert_eq!(history.prefixes(), expected, "{steps:?}");
            }
        };
        check(&[("push", "a"), ("push", "B"), ("push", "cD")]);
        check(&[("set", "aB"), ("push", "C"), ("go on", "de"), ("push", "F")]);
        check(&[("set", "aBcD"), ("set", "aBx"), ("push", "Y"), ("set", "")]);
        check(&[("go on", ""), ("go on", "a"), ("push", "B")]);
    }

    /// Returns one message per character.
    fn messages(text: &str) -> Vec<Message> {
        text.chars().map(|c| Message::User(vec![Part::Text(c.to_string())])).collect()
    }

    #[test]
    fn a_sent_history_is_aligned_with_the_session() {
        let check = |old: &'static str, sent: &'static str, expected: (usize, &str, &str, &str)| {
            let old_messages = messages(old);
            let old_list = old_messages.iter().map(|m| HistoryMessage::new(m, Label::BOTTOM, 0)).collect();
            let mut history = History::new();
            history.replace_messages(old_list);
            let found = history.align(SentChat::of(&messages(sent)).digests(), 0);
            let part = |of: &'static str, range: Range<usize>| of.get(range).unwrap();
            let shown = (
                found.unchanged,
                part(old, found.removed),
                part(sent, found.replacements),
                part(old, found.moved),
            );
            assert_eq!(shown, expected, "{old} {sent}");
        };
        // The history of the session and the sent one, a letter for each message; then what is unchanged, removed, a
        // replacement or moved.
        check("", "abc", (0, "", "", ""));
        check("abc", "abc", (3, "", "", ""));
        check("abc", "abcde", (3, "", "", ""));
        check("abcdef", "aXef", (1, "bcd", "X", "ef"));
        check("abcdef", "aXefg", (1, "bcd", "X", "ef"));
        check("abcdef", "aef", (1, "bcd", "", "ef"));
        check("abcdef", "abXYZ", (2, "cdef", "XYZ", ""));
        check("abcdef", "abc", (3, "def", "", ""));
        check("abcdef", "X", (0, "abcdef", "X", ""));
        check("abcdef", "abXcdef", (2, "", "X", "cdef"));
        check("aba", "aXa", (1, "b", "X", "a"));
        check("ab", "aab", (1, "", "a", "b"));
    }

    /// Every comparison takes a bounded number of rounds; past the bound, ambiguous messages do not count as unchanged.
    #[test]
    fn alignment_takes_few_rounds() {
        let check = |old: &[Message], sent: &[Message], rounds: usize, unchanged: usize| {
            let mut history = History::new();
            history.replace_messages(
                old.iter().map(|message| HistoryMessage::new(message, Label::BOTTOM, 0)).collect(),
            );
            let (found, took) = history.align_in_rounds(SentChat::of(sent).digests(), 0);
            assert_eq!((took, found.unchanged), (rounds, unchanged));
        };
        let message = |number: usize| Message::User(vec![Part::Text(number.to_string())]);
        // Each message recurs three positions later, so for each message that is missing, there is an equal one before.
        let chain: Vec<Message> =
            (0..3000).flat_map(|number| [message(number + 1), message(number)]).collect();
        check(&chain, chain.get(..5999).unwrap(), MAX_ROUNDS + 1, 0);
        let plain: Vec<Message> = (0..6000).map(message).collect();
        check(&plain, plain.get(..5999).unwrap(), 1, 5999);
    }
}
