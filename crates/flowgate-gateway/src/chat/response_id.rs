//! Reads and writes the ids of answers. A request of the Responses API may name an earlier answer by its id
//! (`previous_response_id`) and send only what is new; `answer` then takes the rest of the chat from the conversation.
//!
//! An id contains the name of the conversation, the number of messages before the answer, and a digest of these
//! messages. So the gateway stores nothing for an id. It proves nothing either: a conversation is looked up only among
//! those of the client or virtual key that sends the id.

use std::fmt;

use flowgate_guard::history::{History, MessageDigests};
use flowgate_lm::wire::Api;

use super::headers::is_conversation_name;
use crate::random;

/// The digest of the messages before an answer, shortened: it detects changed chats, and protects nothing.
type ShortDigest = [u8; 8];

/// The id of an answer in the Responses API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseId {
    /// The name of the conversation, as its client knows it.
    pub(crate) conversation: String,
    /// The number of messages of the chat before the answer.
    messages: usize,
    digest: ShortDigest,
}

impl ResponseId {
    /// Returns the id of the answer that follows the messages `chat` in the conversation with this name.
    pub(crate) fn following(conversation: &str, chat: &MessageDigests) -> Self {
        let digest = short_digest(chat, chat.len()).unwrap_or_default();
        Self { conversation: conversation.to_owned(), messages: chat.len(), digest }
    }

    /// Reads an id; `None` if the text is not one of this gateway's ids.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(Api::Responses.form().id_prefix)?.strip_prefix('_')?.splitn(3, '_');
        let (messages, digest, conversation) = (parts.next()?, parts.next()?, parts.next()?);
        let (messages, digest) = (messages.parse().ok()?, random::from_hex(digest)?);
        // The names of a virtual key's conversations begin with its scope in the gateway, which must not come from here.
        let conversation = Some(conversation).filter(|name| is_conversation_name(name))?.to_owned();
        Some(Self { conversation, messages, digest })
    }

    /// Returns the digests of the chat up to the answer, which included; `None` if the history has no answer of the
    /// model at this position, or other messages before it.
    pub(crate) fn chat_in(&self, history: &History) -> Option<MessageDigests> {
        let chat = history.answered_chat(self.messages)?;
        (short_digest(&chat, self.messages)? == self.digest).then_some(chat)
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = Api::Responses.form().id_prefix;
        write!(f, "{prefix}_{}_{}_{}", self.messages, random::hex(&self.digest), self.conversation)
    }
}

/// Returns the short digest of the first `count` messages; `None` if there are fewer.
fn short_digest(chat: &MessageDigests, count: usize) -> Option<ShortDigest> {
    chat.digest_of_first(count)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use flowgate_guard::history::SentChat;
    use flowgate_lm::chat::{Message, Part};

    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let messages = [Message::User(vec![Part::from("Hi.")])];
        for name in ["0a1b", "my chat_1", "_", "a_b_c"] {
            let id = ResponseId::following(name, &SentChat::of(&messages).message_digests());
            assert_eq!(ResponseId::parse(&id.to_string()), Some(id), "{name}");
        }
    }

    #[test]
    fn other_texts_are_no_ids() {
        let digest = "0123456789abcdef";
        let check = |text: &str, is_id: bool| assert_eq!(ResponseId::parse(text).is_some(), is_id, "{text}");
        check(&format!("resp_1_{digest}_c"), true);
        check(&format!("resp_1_{digest}_"), false);
        check(&format!("resp_1_{digest}"), false);
        check(&format!("resp_-1_{digest}_c"), false);
        check(&format!("resp_1_{digest}00_c"), false);
        check(&format!("resp_99999999999999999999999_{digest}_c"), false);
        check(&format!("msg_1_{digest}_c"), false);
        check("resp-1700000000-1", false);
        check("", false);
        // The scope of a virtual key cannot be sent.
        check(&format!("resp_1_{digest}_«fgk:0a1b»c"), false);
        check(&format!("resp_1_{digest}_{}", "c".repeat(129)), false);
    }
}
