//! Reads the references of a request to items of earlier answers (`item_reference` of the Responses API). A client that
//! assumes that the provider stores items sends their ids in place of the items.
//!
//! The gateway stores no items: the id of an item contains the id of its answer, and the answer is in the conversation.
//! A reference to a text or a call therefore means the whole answer. A reference to reasoning is dropped, as reasoning
//! itself is. The request has to repeat all messages before the answer unchanged. `answer` calls this module.

use axum::http::StatusCode;
use flowgate_guard::history::{History, SentChat};
use flowgate_lm::chat::{Message, Sources};
use flowgate_lm::wire::ReceivedRequest;

use super::response_id::ResponseId;
use crate::http::request_error::RequestError;

/// The reason for refusing a reference whose item is unknown.
const GONE: &str = "refers to an item of an answer that no conversation of this client has: the conversation may have been deleted, \
    or the chat before the item was changed; send the items themselves instead, as clients do if `store` is false";
/// The reason for refusing references to answers of several conversations.
const SEVERAL: &str =
    "refers to items of several conversations: send the items themselves, as clients do if `store` is false";
/// The reason for refusing references in a request that also has the id of an earlier answer.
const CONTINUED: &str = "refers to items of earlier answers that the chat of `previous_response_id` has already: leave out the references or the id";

/// The earlier answers in a request, in order: at least one, and all of one conversation.
#[derive(Debug)]
pub(crate) struct ReferencedAnswers {
    /// All but the last, each with the index of the message that refers to it.
    earlier: Vec<(usize, ResponseId)>,
    last: (usize, ResponseId),
}

/// Returns the error for a request with a reference whose item is unknown.
pub(super) fn gone() -> RequestError {
    bad_reference(GONE)
}

/// Returns the error for a request with references that cannot be used. `why` says it of the field `input`: the message
/// is the name of the field, followed by `why`.
pub(super) fn bad_reference(why: &str) -> RequestError {
    RequestError::new(StatusCode::BAD_REQUEST, format!("`input` {why}"))
}

impl ReferencedAnswers {
    /// Reads the references of a request; `None` if no message of the request refers to an answer.
    ///
    /// # Errors
    /// If an id is not one of this gateway, the answers are of several conversations, or the request also has a
    /// `previous_response_id`.
    pub(super) fn of(request: &ReceivedRequest) -> Result<Option<Self>, RequestError> {
        let mut answers = Vec::new();
        for reference in &request.item_references {
            let id = ResponseId::parse(&reference.answer).ok_or_else(gone)?;
            // A reference to reasoning has no message, and is dropped.
            answers.extend(reference.message.map(|message| (message, id)));
        }
        let Some(last) = answers.pop() else { return Ok(None) };
        if request.previous_response.is_some() {
            return Err(bad_reference(CONTINUED));
        }
        match answers.iter().any(|(_, id)| id.conversation != last.1.conversation) {
            true => Err(bad_reference(SEVERAL)),
            false => Ok(Some(Self { earlier: answers, last })),
        }
    }

    /// Returns the last answer.
    pub(super) fn last(&self) -> &ResponseId {
        &self.last.1
    }

    /// Returns the chat of a request: its `messages`, in which the answers replace the messages that refer to them.
    /// `sources` are the declared provenance of the messages. `None` if the history does not have each answer at the
    /// position of the message that refers to the answer, or if another message before the last answer differs from the
    /// history.
    pub(super) fn chat_in<'m>(
        &self,
        history: &History,
        messages: &'m [Message],
        sources: &Sources,
    ) -> Option<SentChat<'m>> {
        let (index, last) = &self.last;
        let is_known = |(index, id): &(usize, ResponseId)| id.is_at(*index, history);
        if !last.is_at(*index, history) || !self.earlier.iter().all(is_known) {
            return None;
        }
        let before = last.chat_in(history)?;
        // `earlier` is in the order of the messages.
        let is_answer = |message: usize| {
            message == *index || self.earlier.binary_search_by_key(&message, |(index, _)| *index).is_ok()
        };
        SentChat::with_answers(&before, messages, sources, is_answer)
    }
}
