//! Histories that a caller sends: what of them was said before, what is new, and what was rewritten.
//!
//! A caller that keeps the chat itself sends all of it every time, and may have changed it: it summarises, drops what is
//! long, puts what it retrieved into messages. Labels belong to *occurrences*: a message that stands where it stood keeps its
//! label; what stands in place of others carries what they carried; and what is new is trusted as far as the operator trusts
//! this [client](Client), without what has been [seen](Seen) with a label. What a message says never vouches for it: a
//! page can quote the user's own sentence.

mod chat;
mod client;
pub(crate) mod memory;
mod normal;
mod print;
mod query;
mod seen;
mod windows;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;

use flowgate::label::Label;
use flowgate_lm::chat::Message;
use sha2::{Digest as _, Sha256};

pub use chat::{Beginning, Chat};
pub use client::{Client, Template};
pub use memory::Recollected;
pub use seen::{Learned, Remembered, SHARE, SHORTEST, Seen, Share, Span};

use print::Print;
pub(crate) use seen::Shown;

/// The messages of one session, as the caller holds them.
#[derive(Debug, Default)]
pub struct History {
    known: Vec<Known>,
    prefixes: Prefixes,
    /// How many events and steps have been told to the client's [`Seen`].
    pub(crate) told: (usize, usize),
    /// How many items of the conversation stand before the first message that the caller holds.
    pub(crate) before: Option<usize>,
    /// The end of what was said last as the user's: what comes next may go on with it.
    pub(crate) tail: String,
    /// Whether the caller brought messages that only a conversation writes, and that this one did not.
    pub(crate) has_unknown: bool,
    /// Messages of the user and the system that carry something only because nobody knows where they come from.
    pub(crate) unknown: BTreeSet<usize>,
    /// What was shown here, if that is compared.
    pub(crate) shown: ShownHere,
}

/// What was shown in a session. It follows from the session, and is made when it is needed.
#[derive(Default)]
pub(crate) struct ShownHere(pub(crate) Option<Shown>);

impl fmt::Debug for ShownHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownHere")
    }
}

/// How much of what was said last is joined with what comes next, in bytes.
const TAIL: usize = 512;

/// Stands for the first messages of a chat, up to one that the model wrote.
pub type Prefix = [u8; 32];

/// A message that the caller holds.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    digest: [u8; 32],
    /// Whether the model wrote it in this conversation.
    is_written: bool,
    /// What it carries.
    pub(crate) label: Label,
    /// Where what it stands for ends among the items of the conversation. It begins where the one before ends.
    pub(crate) until: usize,
}

impl Known {
    pub(crate) fn new(message: &Message, label: Label, until: usize) -> Self {
        Self { digest: Print::default().digest(message), is_written: false, label, until }
    }

    /// The same as what the model wrote here: a chat that goes on with it belongs here.
    pub(crate) fn written(self) -> Self {
        Self { is_written: true, ..self }
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
    /// How many bits of what had been seen may show in which pieces these are, at most.
    pub bits: u32,
}

impl History {
    /// A session in which nothing was said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a chat has in common with this session that goes on with it, shortest first.
    pub fn prefixes(&self) -> Vec<Prefix> {
        self.prefixes.all.clone()
    }

    /// Something was said as the user's.
    pub(crate) fn say(&mut self, text: &str) {
        self.tail.push('\n');
        self.tail.push_str(text);
        let from = self.tail.len().saturating_sub(TAIL);
        let from = (from..=self.tail.len()).find(|at| self.tail.is_char_boundary(*at)).unwrap_or(0);
        self.tail.drain(..from);
    }

    pub(crate) fn known(&self) -> &[Known] {
        &self.known
    }

    pub(crate) fn set(&mut self, known: Vec<Known>) {
        (self.known, self.prefixes) = (Vec::with_capacity(known.len()), Prefixes::default());
        known.into_iter().for_each(|known| self.push(known));
    }

    pub(crate) fn push(&mut self, known: Known) {
        self.prefixes.push(&known.digest, known.is_written);
        self.known.push(known);
    }

    /// All known messages stand where they stood, the last of them up to here, and these come behind them.
    pub(crate) fn go_on(&mut self, until: usize, new: Vec<Known>) {
        if let Some(last) = self.known.last_mut() {
            last.until = until;
        }
        new.into_iter().for_each(|known| self.push(known));
    }

    /// The digests of a chat that begins with this many messages that are known, and goes on with these.
    pub(crate) fn digests_with(&self, kept: usize, rest: &[Message]) -> Vec<Digested> {
        let known = self.known.iter().take(kept).map(|known| known.digest);
        known.chain(Chat::of(rest).digests().iter().copied()).collect()
    }

    /// Whether the messages of a chat that it does not have are known here, and stand where they stood.
    pub fn has_beginning(&self, chat: &Chat<'_>) -> bool {
        chat.left_out() == 0 || chat.after(self.align(chat.digests()).kept).is_some()
    }

    /// Compares what was sent with what is known.
    pub(crate) fn align(&self, sent: &[Digested]) -> Alignment {
        self.align_in_rounds(sent).0
    }

    /// The same, and in how many rounds.
    fn align_in_rounds(&self, sent: &[Digested]) -> (Alignment, usize) {
        let mut most = self.known.len();
        let mut rounds = 0;
        loop {
            // A history can be made so that each round finds one message more that is doubtful: then all of them are.
            rounds += 1;
            let found = self.align_to(sent, if rounds > ROUNDS { 0 } else { most });
            // A message that could be one that is gone as well is not taken for the better of the two.
            let gone: HashSet<&Digested> =
                self.known.get(found.gone.clone()).into_iter().flatten().map(|known| &known.digest).collect();
            let mut kept = self.known.iter().take(found.kept);
            match kept.position(|known| gone.contains(&known.digest)) {
                Some(doubtful) => most = doubtful,
                None => return (found, rounds),
            }
        }
    }

    /// The same with at most so many messages at the beginning that stand where they stood.
    fn align_to(&self, sent: &[Digested], most: usize) -> Alignment {
        let all = self.known.len();
        let same = |(known, sent): &(&Known, &Digested)| known.digest == **sent;
        let kept = self.known.iter().take(most).zip(sent).take_while(same).count();
        if kept == all {
            return Alignment { kept, gone: all..all, instead: kept..kept, retained: all..all };
        }
        // The last known messages, where they stand again: what lies between was rewritten.
        let known: Vec<&Digested> = self.known.iter().skip(kept).rev().map(|known| &known.digest).collect();
        let behind: Vec<&Digested> = sent.iter().skip(kept).rev().collect();
        let lengths = common_beginnings(&known, &behind);
        let ends = lengths.iter().enumerate().map(|(from_end, length)| (*length, sent.len() - from_end));
        let (length, end) = ends.max().filter(|(length, _)| *length > 0).unwrap_or((0, sent.len()));
        Alignment { kept, gone: kept..all - length, instead: kept..end - length, retained: all - length..all }
    }
}

pub(crate) type Digested = [u8; 32];

/// In how many rounds a history is compared. The histories of agents take one or two.
const ROUNDS: usize = 32;

/// For each place in `text`, how long what begins there is the same as the beginning of `pattern` (Gusfield's Z-function).
fn common_beginnings<T: PartialEq>(pattern: &[T], text: &[T]) -> Vec<usize> {
    let at = |index: usize| {
        if index < pattern.len() { pattern.get(index) } else { text.get(index - pattern.len()) }
    };
    let all = pattern.len() + text.len();
    let mut lengths = vec![0_usize; all];
    let (mut left, mut right) = (0, 0);
    for index in 1..all {
        let known = if index < right {
            lengths.get(index - left).copied().unwrap_or(0).min(right - index)
        } else {
            0
        };
        let mut length = known;
        while length < pattern.len() && index + length < all && at(length) == at(index + length) {
            length += 1;
        }
        if let Some(place) = lengths.get_mut(index) {
            *place = length;
        }
        if index + length > right {
            (left, right) = (index, index + length);
        }
    }
    lengths.split_off(pattern.len().min(all))
}

/// What stands for the beginnings of a chat, which only grows.
#[derive(Debug, Clone, Default)]
struct Prefixes {
    all: Vec<Prefix>,
    /// All messages so far.
    before: Sha256,
}

impl Prefixes {
    fn push(&mut self, digest: &Digested, is_written: bool) {
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

    /// However messages came to be known, what stands for them is the same.
    #[test]
    fn prefixes_grow_with_the_messages() {
        let known = |text: &str| -> Vec<Known> {
            let known = |message: &Message| Known::new(message, Label::BOTTOM, 0);
            let mark = |(c, known): (char, Known)| if c.is_uppercase() { known.written() } else { known };
            text.chars().zip(messages(text).iter().map(known)).map(mark).collect()
        };
        let check = |steps: &[(&str, &str)]| {
            let mut history = History::new();
            for (how, text) in steps {
                match *how {
                    "set" => history.set(known(text)),
                    "go on" => history.go_on(7, known(text)),
                    _ => known(text).into_iter().for_each(|known| history.push(known)),
                }
                let mut before = Sha256::new();
                let mut expected: Vec<Prefix> = Vec::new();
                for known in history.known() {
                    before.update(known.digest);
                    expected.extend(known.is_written.then(|| Prefix::from(before.clone().finalize())));
                }
                assert_eq!(history.prefixes(), expected, "{steps:?}");
            }
        };
        check(&[("push", "a"), ("push", "B"), ("push", "cD")]);
        check(&[("set", "aB"), ("push", "C"), ("go on", "de"), ("push", "F")]);
        check(&[("set", "aBcD"), ("set", "aBx"), ("push", "Y"), ("set", "")]);
        check(&[("go on", ""), ("go on", "a"), ("push", "B")]);
    }

    /// One letter is one message.
    fn messages(text: &str) -> Vec<Message> {
        text.chars().map(|c| Message::User(vec![Part::Text(c.to_string())])).collect()
    }

    #[test]
    fn what_was_sent_is_compared_with_what_is_known() {
        let check = |known: &'static str, sent: &'static str, expected: (usize, &str, &str, &str)| {
            let known_messages = messages(known);
            let known_list = known_messages.iter().map(|m| Known::new(m, Label::BOTTOM, 0)).collect();
            let mut history = History::new();
            history.set(known_list);
            let found = history.align(Chat::of(&messages(sent)).digests());
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

    /// However a history is made, comparing it takes a bounded number of rounds; what is doubtful then is not taken for what stood there.
    #[test]
    fn comparing_takes_few_rounds() {
        let check = |known: &[Message], sent: &[Message], rounds: usize, kept: usize| {
            let mut history = History::new();
            history.set(known.iter().map(|message| Known::new(message, Label::BOTTOM, 0)).collect());
            let (found, took) = history.align_in_rounds(Chat::of(sent).digests());
            assert_eq!((took, found.kept), (rounds, kept));
        };
        let message = |number: usize| Message::User(vec![Part::Text(number.to_string())]);
        // Each message stands again three places later: whatever is gone, one before it could be it as well.
        let chain: Vec<Message> =
            (0..3000).flat_map(|number| [message(number + 1), message(number)]).collect();
        check(&chain, chain.get(..5999).unwrap(), ROUNDS + 1, 0);
        let plain: Vec<Message> = (0..6000).map(message).collect();
        check(&plain, plain.get(..5999).unwrap(), 1, 5999);
    }
}
