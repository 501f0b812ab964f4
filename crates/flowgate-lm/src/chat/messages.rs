//! Defines [`Messages`], the list of the messages of a chat in a [`Request`](super::Request). The list owns a cache of
//! its serialised form.
//!
//! Each request contains the whole chat, and most of it was already serialised for the previous request. The serialiser
//! (in `wire::chat_completions`) therefore stores its output with the messages, and extends it for the next request.
//! The cache survives when messages are appended. Any other change discards the cache, and a clone has no cache, so
//! that the bytes that are sent always match the current messages.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::Message;

/// The messages of a chat, in order.
#[derive(Default)]
pub struct Messages {
    all: Vec<Message>,
    /// The serialised form of the first messages, as the last request stored it; `None` if no form is stored.
    written: Mutex<Option<SerializedPrefix>>,
}

/// The serialised prefix of a chat, as it was sent.
#[derive(Debug, Default)]
pub(crate) struct SerializedPrefix {
    /// The beginning of the body of a request, up to the end of the last message that it contains.
    pub(crate) text: Vec<u8>,
    /// The number of messages that the text contains.
    pub(crate) messages: usize,
}

impl Messages {
    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.all.push(message);
    }

    /// Returns all messages for arbitrary changes, and discards the serialised form.
    pub fn edit(&mut self) -> &mut Vec<Message> {
        *self.written.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        &mut self.all
    }

    /// Removes and returns the serialised form of the first messages; `None` if none is stored.
    pub(crate) fn take_serialized_prefix(&self) -> Option<SerializedPrefix> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Stores `written`, the serialised form of the first messages as they were just sent. The next request takes it
    /// and appends only the messages that are new.
    pub(crate) fn store_serialized_prefix(&self, mut written: SerializedPrefix) {
        // The buffer also held the rest of the body, such as the tools. If this rest was more than half of the buffer,
        // the unused memory is released.
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
    /// Returns the messages for changes, and discards the serialised form, as [`Messages::edit`] does.
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
    /// Clones the messages without the serialised form, which only one chat can extend.
    fn clone(&self) -> Self {
        self.all.clone().into()
    }
}

impl PartialEq for Messages {
    /// Compares the messages. The serialised form, which is only a cache, is ignored.
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

    /// The serialised form is kept until the messages may differ from it.
    #[test]
    fn changed_messages_are_serialized_again() {
        let check = |change: fn(&mut Messages), expected: Option<usize>| {
            let mut messages: Messages =
                [Message::User(Vec::new()), Message::System(Vec::new())].into_iter().collect();
            messages.store_serialized_prefix(SerializedPrefix { text: b"two".to_vec(), messages: 2 });
            change(&mut messages);
            assert_eq!(
                messages.take_serialized_prefix().map(|written| written.messages),
                expected,
                "{messages:?}"
            );
            assert!(messages.take_serialized_prefix().is_none());
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
