//! Writes and reads the ids of the items of an answer. Each id contains the id of the answer, so that a later request
//! can refer to an item although the gateway does not store the ids. The encoders of answers write the ids, and the
//! decoder of requests reads them in references to items (`item_reference`).

use super::super::ResponseHead;
use super::FORM;

/// The kind of an item of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A part of the model's reasoning.
    Thought,
    /// The text.
    Message,
    /// A tool call.
    Call,
}

/// Returns the id of the part of the reasoning with the index `index`.
pub(super) fn thought_id(head: ResponseHead<'_>, index: usize) -> String {
    format!("rs_{}_{index}", head.id)
}

/// Returns the id of the message item of an answer.
pub(super) fn message_id(head: ResponseHead<'_>) -> String {
    format!("msg_{}", head.id)
}

/// Returns the id of the item of the call with the index `index`.
pub(super) fn call_id(head: ResponseHead<'_>, index: usize) -> String {
    format!("fc_{}_{index}", head.id)
}

/// Returns the kind of the item with this id, and the id of its answer. `None` if no function of this module writes
/// such an id (it may be an id of the provider). The caller must check whether the answer exists.
pub(super) fn read_item_id(id: &str) -> Option<(ItemKind, &str)> {
    let (kind, rest) = id.split_once('_')?;
    let (kind, answer) = match kind {
        "rs" => (ItemKind::Thought, before_index(rest)?),
        "msg" => (ItemKind::Message, rest),
        "fc" => (ItemKind::Call, before_index(rest)?),
        _ => return None,
    };
    // The id of an answer begins with `resp_`. An id without this beginning is not one of the gateway.
    answer.strip_prefix(FORM.id_prefix)?.strip_prefix('_').map(|_| (kind, answer))
}

/// Returns `ANSWER` of a text `ANSWER_INDEX`; `None` if the text does not end with `_` and the index of an item.
fn before_index(text: &str) -> Option<&str> {
    let (answer, index) = text.rsplit_once('_')?;
    (!index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::super::super::{AnswerStorage, ONLY_FUNCTIONS};
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for id in ["resp_1_2_0123456789abcdef_c", "resp_1_2_0123456789abcdef_my chat_1", "resp_"] {
            let head = ResponseHead {
                id,
                model: "m",
                created: 0,
                tools: &ONLY_FUNCTIONS,
                storage: AnswerStorage::NotStored,
            };
            assert_eq!(read_item_id(&thought_id(head, 12)), Some((ItemKind::Thought, id)));
            assert_eq!(read_item_id(&message_id(head)), Some((ItemKind::Message, id)));
            assert_eq!(read_item_id(&call_id(head, 0)), Some((ItemKind::Call, id)));
        }
    }

    #[test]
    fn other_ids_are_not_read() {
        for id in [
            "",
            "msg",
            "msg_",
            "msg_resp",
            "msg_68a1",
            "rs_68a1_0",
            "rs_resp_1",
            "rs_resp_1_",
            "fc_resp_1_x",
            "call_resp_1_0",
            "resp_1",
        ] {
            assert_eq!(read_item_id(id), None, "{id}");
        }
    }
}
