//! Histories that a caller sends: what of them was said before, what is new, and what was rewritten.
//!
//! A caller that keeps the chat itself sends all of it every time, and may have changed it: it summarises, drops what is
//! long, puts what it retrieved into messages. Labels belong to *occurrences*: a message that stands where it stood keeps its
//! label; what stands in place of others carries what they carried; and what is new is trusted as far as the operator trusts
//! this [client](Client), without what has been [seen](Seen) with a label. What a message says never vouches for it: a
//! page can quote the user's own sentence.

mod client;
mod seen;

use std::ops::Range;

use flowgate::label::Label;
use flowgate_lm::chat::Message;
use sha2::{Digest as _, Sha256};

pub use client::{Client, Template};
pub use seen::{SHORTEST, Seen, Span};

/// The messages of one session, as the caller holds them.
#[derive(Debug, Default)]
pub struct History {
    known: Vec<Known>,
    /// How many events and steps have been told to the client's [`Seen`].
    pub(crate) told: (usize, usize),
    /// How many items of the conversation stand before the first message that the caller holds.
    pub(crate) before: Option<usize>,
}

/// Stands for the first messages of a chat, up to one that the model wrote.
pub type Prefix = [u8; 32];

/// A message that the caller holds.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    digest: [u8; 32],
    /// Whether it is the model's.
    is_written: bool,
    /// What it carries.
    pub(crate) label: Label,
    /// Where what it stands for ends among the items of the conversation. It begins where the one before ends.
    pub(crate) until: usize,
}

impl Known {
    pub(crate) fn new(message: &Message, label: Label, until: usize) -> Self {
        let is_written = matches!(message, Message::Assistant { .. });
        Self { digest: digest(message), is_written, label, until }
    }

    /// The same where its items end elsewhere.
    pub(crate) fn moved(&self, until: usize) -> Self {
        Self { until, ..self.clone() }
    }
}

/// How a history that was sent compares with the one that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// How many messages stand where they stood.
    pub(crate) kept: usize,
    /// The known messages that are gone.
    pub(crate) gone: Range<usize>,
    /// The messages that stand there instead.
    pub(crate) instead: Range<usize>,
    /// The known messages behind them, which come next in what was sent; what follows is new.
    pub(crate) retained: Range<usize>,
}

/// What became of a history that was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages that were known.
    pub known: usize,
    /// Known messages that are gone or were rewritten.
    pub gone: usize,
    /// Messages that are new or were rewritten.
    pub new: usize,
    /// Pieces of these that had been seen with a label.
    pub quoted: usize,
}

impl History {
    /// A session in which nothing was said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a chat has in common with this session that goes on with it, shortest first.
    pub fn prefixes(&self) -> Vec<Prefix> {
        prefixes(self.known.iter().map(|known| (known.digest, known.is_written)))
    }

    /// The same for a chat as it was sent.
    pub fn prefixes_of(chat: &[Message]) -> Vec<Prefix> {
        prefixes(chat.iter().map(|message| (digest(message), matches!(message, Message::Assistant { .. }))))
    }

    pub(crate) fn known(&self) -> &[Known] {
        &self.known
    }

    pub(crate) fn set(&mut self, known: Vec<Known>) {
        self.known = known;
    }

    pub(crate) fn push(&mut self, known: Known) {
        self.known.push(known);
    }

    /// Compares what was sent with what is known.
    pub(crate) fn align(&self, messages: &[Message]) -> Alignment {
        let sent: Vec<[u8; 32]> = messages.iter().map(digest).collect();
        let same = |(known, sent): &(&Known, &[u8; 32])| known.digest == **sent;
        let kept = self.known.iter().zip(&sent).take_while(same).count();
        let all = self.known.len();
        // The last known messages, where they stand again: what lies between was rewritten.
        let behind = |end: usize| {
            let known = self.known.get(kept..).unwrap_or_default().iter().rev();
            let sent = sent.get(kept..end).unwrap_or_default().iter().rev();
            known.zip(sent).take_while(same).count()
        };
        let ends = (kept..=messages.len()).map(|end| (behind(end), end));
        let (length, end) = ends.max().unwrap_or((0, messages.len()));
        let end = if length == 0 && kept < all { messages.len() } else { end };
        let end = if kept == all { kept } else { end };
        Alignment { kept, gone: kept..all - length, instead: kept..end - length, retained: all - length..all }
    }
}

fn prefixes(messages: impl Iterator<Item = ([u8; 32], bool)>) -> Vec<Prefix> {
    let mut before = Sha256::new();
    let mut prefixes = Vec::new();
    for (digest, is_written) in messages {
        before.update(digest);
        if is_written {
            prefixes.push(before.clone().finalize().into());
        }
    }
    prefixes
}

/// Stands for a message, by everything that it says.
fn digest(message: &Message) -> [u8; 32] {
    let text = match message {
        Message::System(parts) => format!("system {parts:?}"),
        Message::User(parts) => format!("user {parts:?}"),
        Message::Assistant { text, calls } => format!("assistant {text:?} {calls:?}"),
        Message::Tool { call_id, content, is_error } => format!("tool {call_id:?} {content:?} {is_error}"),
    };
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::Part;

    use super::*;

    /// One letter is one message.
    fn messages(text: &str) -> Vec<Message> {
        text.chars().map(|c| Message::User(vec![Part::Text(c.to_string())])).collect()
    }

    #[test]
    fn what_was_sent_is_compared_with_what_is_known() {
        let check = |known: &'static str, sent: &'static str, expected: (usize, &str, &str, &str)| {
            let known_messages = messages(known);
            let known_list = known_messages.iter().map(|m| Known::new(m, Label::BOTTOM, 0)).collect();
            let history = History { known: known_list, ..History::default() };
            let found = history.align(&messages(sent));
            let part = |of: &'static str, range: Range<usize>| of.get(range).unwrap();
            let shown =
                (found.kept, part(known, found.gone), part(sent, found.instead), part(known, found.retained));
            assert_eq!(shown, expected, "{known} {sent}");
        };
        // kept, gone, what stands there instead, known messages behind it
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
}
