//! Reads and writes the ids of answers. A request of the Responses API may name an earlier answer by its id
//! (`previous_response_id`) and send only what is new; `answer` then takes the rest of the chat from the conversation.
//!
//! An id contains the name of the conversation, the number of messages before the answer, the number of the answer in
//! the conversation, and a digest of the messages before it, so the gateway stores nothing for an id. An id gives no
//! access: a conversation is looked up only among those of the client or virtual key that sends the id.

use std::fmt;

use flowgate_guard::history::{History, MessageDigests};
use flowgate_lm::wire::Api;

use super::headers::is_conversation_name;
use crate::random;

/// The digest of the messages before an answer, shortened: it only has to detect changed chats, and no access depends
/// on it.
type ShortDigest = [u8; 8];

/// The id of an answer in the Responses API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseId {
    /// The name of the conversation, as its client knows it.
    pub(crate) conversation: String,
    /// The number of messages of the chat before the answer.
    messages: usize,
    /// The number of the answer in the conversation. If the same chat is answered again, the new answer has another
    /// number.
    answer: u64,
    /// The digest of the messages before the answer.
    digest: ShortDigest,
}

impl ResponseId {
    /// Returns the id of the answer with the number `answer`, which follows the messages `chat` in the conversation
    /// with this name.
    pub(crate) fn following(conversation: &str, chat: &MessageDigests, answer: u64) -> Self {
        // Always `Some`: the chat has as many messages as it is long.
        let digest = short_digest(chat, chat.len()).unwrap_or_default();
        Self { conversation: conversation.to_owned(), messages: chat.len(), answer, digest }
    }

    /// Reads an id; `None` if the text is not one of this gateway's ids.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // PREFIX_MESSAGES_ANSWER_DIGEST_CONVERSATION; only the last part, the name, may contain `_`.
        let mut parts = text.strip_prefix(Api::Responses.form().id_prefix)?.strip_prefix('_')?.splitn(4, '_');
        let (messages, answer) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (digest, conversation) = (random::from_hex(parts.next()?)?, parts.next()?);
        // A name with the scope of a virtual key is not accepted, since a scope has characters that a client's name
        // cannot have. The caller adds the scope of the request's own key, so an id cannot name a conversation of
        // another key.
        let conversation = Some(conversation).filter(|name| is_conversation_name(name))?.to_owned();
        Some(Self { conversation, messages, answer, digest })
    }

    /// Returns whether the answer is the message with this index in the history.
    pub(crate) fn is_at(&self, index: usize, history: &History) -> bool {
        self.messages == index && history.is_answer(index, self.answer)
    }

    /// Returns the digests of the chat up to and including the answer; `None` if the history does not have this answer
    /// at this position, or has other messages before it.
    pub(crate) fn chat_in(&self, history: &History) -> Option<MessageDigests> {
        let chat = history.answered_chat(self.messages, self.answer)?;
        (short_digest(&chat, self.messages)? == self.digest).then_some(chat)
    }
}

impl fmt::Display for ResponseId {
    /// Writes the id in the form that [`ResponseId::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = Api::Responses.form().id_prefix;
        let Self { conversation, messages, answer, digest } = self;
        write!(f, "{prefix}_{messages}_{answer}_{}_{conversation}", random::hex(digest))
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
            let id = ResponseId::following(name, &SentChat::of(&messages).message_digests(), 7);
            assert_eq!(ResponseId::parse(&id.to_string()), Some(id), "{name}");
        }
    }

    #[test]
    fn other_texts_are_no_ids() {
        let digest = "0123456789abcdef";
        let check = |text: &str, is_id: bool| assert_eq!(ResponseId::parse(text).is_some(), is_id, "{text}");
        check(&format!("resp_1_2_{digest}_c"), true);
        check(&format!("resp_1_2_{digest}_"), false);
        check(&format!("resp_1_2_{digest}"), false);
        check(&format!("resp_-1_2_{digest}_c"), false);
        check(&format!("resp_1_2_{digest}00_c"), false);
        check(&format!("resp_99999999999999999999999_2_{digest}_c"), false);
        check(&format!("msg_1_{digest}_c"), false);
        check(&format!("resp_1_{digest}_c"), false);
        check("resp-1700000000-1", false);
        check("", false);
        // The scope of a virtual key cannot be sent.
        check(&format!("resp_1_2_{digest}_«fgk:0a1b»c"), false);
        check(&format!("resp_1_2_{digest}_{}", "c".repeat(129)), false);
    }
}
