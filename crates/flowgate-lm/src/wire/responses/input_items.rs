//! Decodes the items in the input of a request of OpenAI's Responses API: messages with their parts, calls, outputs of
//! tools, and references to items of earlier answers, whose ids [`super::item_ids`] reads. `request_decoder` calls this
//! module for each item, except those that declare tools.

use super::super::documents;
use super::super::fields::{ObjectFields, PROVIDER_RECORD, UNKNOWN_PART};
use super::super::known_fields::KnownFields;
use super::super::tool_forms::custom_arguments;
use super::super::{ItemReference, WireError, add_call, extension, parse_image_url};
use super::item_ids::{ItemKind, read_item_id};
use super::tools::called_name;
use super::{
    CALL, CUSTOM_CALL, FILE_PART, FILE_PART_OF_USER, IMAGE_PART, IMAGE_PART_OF_USER, MESSAGE, OUTPUT,
    REFERENCE, REFUSAL_PART, REFUSAL_PART_OF_USER, TEXT_PART, TEXT_PART_OF_USER, THOUGHT, USER,
};
use crate::chat::{Message, Part, Source, Sources, ToolCall};
use crate::json::Json;

/// Decodes an item of the input. Adds a call to the preceding message of the model (or to a new one if no message of
/// the model precedes it), and any other item to `messages` as a new message. Drops reasoning. Adds the declared
/// provenance of the user's parts to `sources`.
pub(super) fn read_item(
    item: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
) -> Result<(), WireError> {
    match item.optional_text("type")? {
        None | Some("message") => read_message(item, messages, sources)?,
        // The reasoning is dropped, so that a client cannot write text into it: the gateway has its own copy.
        Some("reasoning") => item.reject_unsupported(&THOUGHT)?,
        Some("function_call") => {
            item.reject_unsupported(&CALL)?;
            let (id, arguments) = (item.text("call_id")?.to_owned(), item.text("arguments")?.to_owned());
            add_call(messages, ToolCall { id, name: called_name(item)?, arguments });
        }
        Some("custom_tool_call") => {
            item.reject_unsupported(&CUSTOM_CALL)?;
            let (id, arguments) = (item.text("call_id")?.to_owned(), custom_arguments(item.text("input")?));
            add_call(messages, ToolCall { id, name: called_name(item)?, arguments });
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            item.reject_unsupported(&OUTPUT)?;
            let call_id = item.text("call_id")?.to_owned();
            messages.push(Message::Tool {
                call_id,
                content: read_content(item, "output")?,
                is_error: extension::is_error(item)?,
            });
        }
        Some(kind) => return item.field_error("type", item_problem(kind)),
    }
    Ok(())
}

/// Decodes a message, and adds it to `messages`. For a message of the user, also adds the declared provenance of its
/// parts to `sources`.
fn read_message(
    item: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
) -> Result<(), WireError> {
    // Only the parts of a user's message may declare their provenance.
    let is_user = item.text("role")? == "user";
    item.reject_unsupported(if is_user { &USER } else { &MESSAGE })?;
    let parts = read_parts(item, "content", if is_user { &PARTS_OF_USER } else { &PARTS })?;
    let message = match item.text("role")? {
        "system" | "developer" => Message::System(parts),
        "user" => {
            sources.set(messages.len(), sources_of(item)?);
            Message::User(parts)
        }
        "assistant" => {
            let mut text = String::new();
            for part in parts {
                let Part::Text(piece) = part else {
                    return item.field_error(
                        "content",
                        "has an image or a file, which an assistant message cannot contain",
                    );
                };
                text.push_str(&piece);
            }
            Message::Assistant { text, calls: Vec::new(), thoughts: Vec::new() }
        }
        _ => return item.field_error("role", "is not `user`, `assistant`, `system` or `developer`"),
    };
    messages.push(message);
    Ok(())
}

/// Decodes a reference to an item of an earlier answer, and adds it to `references`. Since an answer is one message of
/// the chat, the references to its text and to its calls together become one message of the model. This message is
/// empty: a caller that knows the answer puts the answer in its place, at the index that `references` has. A reference
/// to reasoning adds no message, and has no index. A reference to a call directly after a message of the model belongs
/// to that message, as a call in the request itself does.
pub(super) fn read_reference(
    item: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    references: &mut Vec<ItemReference>,
) -> Result<(), WireError> {
    item.reject_unsupported(&REFERENCE)?;
    let Some((kind, answer)) = read_item_id(item.text("id")?) else {
        return item.field_error("id", FOREIGN_ITEM);
    };
    if kind == ItemKind::Thought {
        references.push(ItemReference { answer: answer.to_owned(), message: None });
        return Ok(());
    }
    // If an earlier reference to the same answer has added the last message, this reference adds nothing.
    let last = references.iter().rev().find(|reference| reference.message.is_some());
    let is_last_message_of_answer = last.is_some_and(|reference| {
        reference.message.map(|at| at + 1) == Some(messages.len()) && reference.answer == answer
    });
    if is_last_message_of_answer {
        return Ok(());
    }
    // A call belongs to the message of the model before it.
    let continues = kind == ItemKind::Call && matches!(messages.last(), Some(Message::Assistant { .. }));
    if !continues {
        messages.push(Message::Assistant { text: String::new(), calls: Vec::new(), thoughts: Vec::new() });
    }
    references
        .push(ItemReference { answer: answer.to_owned(), message: Some(messages.len().saturating_sub(1)) });
    Ok(())
}

/// The problem of a reference whose id is not that of an item in an answer of the gateway.
const FOREIGN_ITEM: &str = "is not the id of an item in an answer of this gateway, and an item that the provider keeps has no label; send the \
    item itself, as clients do if `store` is false";

/// Returns why an item of the type `kind`, which the decoder does not support, is refused.
fn item_problem(kind: &str) -> &'static str {
    // The beginnings of the types of items in which the provider records what its own tools did.
    let of_the_provider = [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_",
        "mcp_",
        "program",
    ];
    // The beginnings of the types of items about tools that the client runs, but whose arguments the provider describes.
    let of_a_schema_of_the_provider = ["computer_call", "local_shell_call", "shell_call", "apply_patch_call"];
    match kind {
        _ if of_the_provider.into_iter().any(|known| kind.starts_with(known)) => PROVIDER_RECORD,
        _ if of_a_schema_of_the_provider.into_iter().any(|known| kind.starts_with(known)) => {
            "is about a tool whose arguments only the provider describes; declare a function, and send its calls"
        }
        _ if kind.starts_with("compaction") => {
            "is text that only the provider can read, so no rule can judge it; send the messages themselves"
        }
        _ => {
            "is not a known type of item; send messages, tools, and calls of functions and custom tools with their outputs"
        }
    }
}

/// The known fields of parts: of texts, refusals, images and files, in this order.
const PARTS: [KnownFields; 4] = [TEXT_PART, REFUSAL_PART, IMAGE_PART, FILE_PART];
/// The known fields of the parts of a user's message, in the order of [`PARTS`]. Only these parts may declare their
/// provenance.
const PARTS_OF_USER: [KnownFields; 4] =
    [TEXT_PART_OF_USER, REFUSAL_PART_OF_USER, IMAGE_PART_OF_USER, FILE_PART_OF_USER];

/// Returns the declared provenance of each part of a user's message: that of the part or, if the part declares none,
/// that of the message. If the content is a text, it counts as one part.
fn sources_of(item: &ObjectFields<'_>) -> Result<Vec<Option<Source>>, WireError> {
    let message_source = item.source()?;
    match item.get("content") {
        Some(Json::List(_)) => {
            let source = |part: Result<ObjectFields<'_>, WireError>| {
                let part = part?;
                match part.optional_text("type")? {
                    // A file without a declaration of its own is never `typed`, even if its message is.
                    Some("input_file") => documents::source_of(&part, message_source),
                    _ => Ok(part.source()?.or(message_source)),
                }
            };
            item.objects("content")?.map(source).collect()
        }
        _ => Ok(vec![message_source]),
    }
}

/// Decodes the parts in the field `key` of an item that is not a message of the user, so that they may not declare
/// their provenance.
fn read_content(item: &ObjectFields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    read_parts(item, key, &PARTS)
}

/// Decodes the parts in the field `key`: a text, or a list of texts, refusals, images and files. The last
/// argument has the known fields of parts of these four kinds: it is [`PARTS`] or [`PARTS_OF_USER`]. An empty text has
/// no parts.
fn read_parts(
    item: &ObjectFields<'_>,
    key: &str,
    [text_fields, refusal_fields, image_fields, file_fields]: &[KnownFields; 4],
) -> Result<Vec<Part>, WireError> {
    match item.get(key) {
        None => return item.field_error(key, "is missing"),
        Some(Json::Text(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Json::Text(text)) => return Ok(vec![Part::Text(text.clone().into_owned())]),
        Some(_) => {}
    }
    let part = |part: Result<ObjectFields<'_>, WireError>| {
        let part = part?;
        match part.text("type")? {
            "input_text" | "output_text" => {
                part.reject_unsupported(text_fields)?;
                Ok(Part::Text(part.text("text")?.to_owned()))
            }
            // A refusal becomes a text, since `Part` has no variant for refusals.
            "refusal" => {
                part.reject_unsupported(refusal_fields)?;
                Ok(Part::Text(part.text("refusal")?.to_owned()))
            }
            "input_image" => {
                part.reject_unsupported(image_fields)?;
                parse_image_url(part.text("image_url")?)
                    .or_else(|problem| part.field_error("image_url", problem))
            }
            "input_file" => {
                part.reject_unsupported(file_fields)?;
                let pdf = documents::parse_pdf(part.text("file_data")?);
                pdf.map_or_else(|| part.field_error("file_data", documents::ONLY_PDF), Ok)
            }
            _ => part.field_error("type", UNKNOWN_PART),
        }
    };
    item.objects(key)?.map(part).collect()
}

#[cfg(test)]
mod tests {
    use crate::chat::Message;
    use crate::json::Json;
    use crate::wire::DecodeOptions;
    use crate::wire::responses::decode_request;

    /// A reference is in the place of the whole answer: further references to the answer, and its calls, add no
    /// message.
    #[test]
    fn references_are_in_place_of_answers() {
        let check = |items: &str, expected_messages: &str, expected: &[(&str, Option<usize>)]| {
            let text = format!(r#"{{"model":"m","instructions":"s","input":[{items}]}}"#);
            let body = serde_json::from_str(&text).unwrap();
            let read = decode_request(&Json::from(&body), &DecodeOptions::default()).unwrap();
            let kinds = read.request.messages.iter().map(|message| match message {
                Message::System(_) => 's',
                Message::User(_) => 'u',
                Message::Assistant { .. } => 'a',
                Message::Tool { .. } => 't',
            });
            assert_eq!(kinds.collect::<String>(), expected_messages, "{items}");
            let references = read.item_references.iter();
            let found: Vec<_> = references.map(|one| (one.answer.as_str(), one.message)).collect();
            assert_eq!(found, expected, "{items}");
        };
        let refer = |id: &str| format!(r#"{{"type":"item_reference","id":"{id}"}}"#);
        let [thought, text, call] = ["rs_resp_1_0", "msg_resp_1", "fc_resp_1_0"].map(refer);
        let user = r#"{"role":"user","content":"u"}"#;
        let whole = r#"{"role":"assistant","content":"a"}"#;
        let function = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        let output = r#"{"type":"function_call_output","call_id":"c","output":"o"}"#;
        let (thought_of, text_of) = (("resp_1", None), ("resp_1", Some(2)));
        check(&format!("{user},{thought},{function},{output}"), "suat", &[thought_of]);
        check(&format!("{user},{thought},{text},{function},{output}"), "suat", &[thought_of, text_of]);
        check(&format!("{user},{text},{thought},{call},{output}"), "suat", &[text_of, thought_of]);
        check(&format!("{user},{text},{call},{function},{output}"), "suat", &[text_of]);
        check(&format!("{user},{call},{output}"), "suat", &[text_of]);
        check(&format!("{user},{whole},{call},{output}"), "suat", &[text_of]);
        check(&format!("{user},{text},{user},{text}"), "suaua", &[text_of, ("resp_1", Some(4))]);
        check(&format!("{user},{text},{}", refer("msg_resp_2")), "suaa", &[text_of, ("resp_2", Some(3))]);
        check(&format!("{user},{whole},{text}"), "suaa", &[("resp_1", Some(3))]);
    }
}
