//! The messages of a chat, and how they were written last.
//!
//! A chat is sent anew with each message, and most of what is written of it was written before. So whoever writes it leaves
//! what was written with the messages, and goes on from there. Messages may come behind those that are there; whoever
//! changes them in another way has all of them written anew, and a copy begins anew, too: nothing is sent that the
//! messages do not say now.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::Message;

/// Messages in order.
#[derive(Default)]
pub struct Messages {
    all: Vec<Message>,
    written: Mutex<Option<Written>>,
}

/// The first messages of a chat as they were sent.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The body of a request up to the last of them.
    pub(crate) text: Vec<u8>,
    /// How many.
    pub(crate) messages: usize,
}

impl Messages {
    /// Adds a message behind all others.
    pub fn push(&mut self, message: Message) {
        self.all.push(message);
    }

    /// All messages, to be changed in any way.
    pub fn edit(&mut self) -> &mut Vec<Message> {
        *self.written.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        &mut self.all
    }

    /// Takes what was written of the messages that come first.
    pub(crate) fn take_written(&self) -> Option<Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves what was written for who writes next.
    pub(crate) fn leave_written(&self, mut written: Written) {
        // A short chat was written with much behind it.
        if written.text.capacity() > 2 * written.text.len() {
            written.text.shrink_to_fit();
        }
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
    }
}

impl Deref for Messages {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.all
    }
}

impl DerefMut for Messages {
    fn deref_mut(&mut self) -> &mut [Message] {
        self.edit()
    }
}

impl Extend<Message> for Messages {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        self.all.extend(messages);
    }
}

impl From<Vec<Message>> for Messages {
    fn from(all: Vec<Message>) -> Self {
        Self { all, written: Mutex::default() }
    }
}

impl FromIterator<Message> for Messages {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        Vec::from_iter(messages).into()
    }
}

impl IntoIterator for Messages {
    type Item = Message;
    type IntoIter = std::vec::IntoIter<Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}

impl<'m> IntoIterator for &'m Messages {
    type Item = &'m Message;
    type IntoIter = std::slice::Iter<'m, Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

impl Clone for Messages {
    fn clone(&self) -> Self {
        self.all.clone().into()
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written is known until the messages may say something else.
    #[test]
    fn who_changes_messages_has_them_written_anew() {
        let check = |change: fn(&mut Messages), expected: Option<usize>| {
            let mut messages: Messages =
                [Message::User(Vec::new()), Message::System(Vec::new())].into_iter().collect();
            messages.leave_written(Written { text: b"two".to_vec(), messages: 2 });
            change(&mut messages);
            assert_eq!(messages.take_written().map(|written| written.messages), expected, "{messages:?}");
            assert!(messages.take_written().is_none());
        };
        check(|_| {}, Some(2));
        check(|messages| messages.push(Message::User(Vec::new())), Some(2));
        check(|messages| messages.extend([Message::User(Vec::new())]), Some(2));
        check(|messages| messages.reverse(), None);
        check(|messages| drop(messages.edit().pop()), None);
        check(|messages| messages.iter_mut().for_each(|_| {}), None);
        check(|messages| *messages = messages.clone(), None);
    }
}
