//! Decodes the chat in a request of Gemini's API. [`ContentReader`] decodes the contents, with their texts, calls,
//! outputs of tools, images and PDFs, into messages; [`read_system`] decodes the system instruction. The decoder of
//! requests ([`super::request_decoder`]) calls both.

use super::super::documents;
use super::super::fields::ObjectFields;
use super::super::{MAX_CALLS, WireError, is_image, is_plain};
use super::{
    BLOB, CALL, CONTENT_OF_MODEL, CONTENT_OF_USER, OUTPUT, OUTPUT_PART, PART_OF_MODEL, PART_OF_SYSTEM,
    PART_OF_USER, SYSTEM,
};
use crate::chat::{Message, Part, Source, Sources, ToolCall};
use crate::json::Json;

/// The beginning of the id that a call receives if its client gives it none. The number of calls before it in the chat
/// follows.
pub const CALL_ID: &str = "call_";

/// The problem of a part with several contents, such as a text and a call: a part may have only one.
const SEVERAL: &str = "is in a part that also has other content; send each content in a part of its own";

/// The problem of a part that is not an output of a tool, in a content whose role permits only such outputs.
const NO_OUTPUT: &str =
    "is in a content of the role `function`, which has only outputs of tools; use the role `user`";

/// Decodes the field `systemInstruction` into a system message; `None` if the field is absent. Its parts must be texts.
pub(super) fn read_system(body: &ObjectFields<'_>) -> Result<Option<Message>, WireError> {
    match body.get("systemInstruction") {
        None => return Ok(None),
        // Google's servers also accept a string in place of the object with `parts`.
        Some(Json::Text(text)) => {
            return Ok(Some(Message::System(vec![Part::Text(text.clone().into_owned())])));
        }
        Some(_) => {}
    }
    let content = body.object("systemInstruction")?;
    content.reject_unsupported(&SYSTEM)?;
    let text = |part: Result<ObjectFields<'_>, WireError>| {
        let part = part?;
        part.reject_unsupported(&PART_OF_SYSTEM)?;
        Ok(Part::Text(part.text("text")?.to_owned()))
    };
    Ok(Some(Message::System(content.objects("parts")?.map(text).collect::<Result<_, WireError>>()?)))
}

/// A call that has no output yet.
#[derive(Debug)]
struct OpenCall {
    id: String,
    /// The name of the tool.
    tool: String,
    /// Whether the id is the client's; otherwise the reader has made it.
    has_given_id: bool,
}

/// Decodes the contents of a chat one after the other, and collects their messages.
#[derive(Debug, Default)]
pub(super) struct ContentReader {
    /// The messages so far.
    pub(super) messages: Vec<Message>,
    /// The declared provenance of the parts of the user's messages.
    pub(super) sources: Sources,
    /// The calls that have no output yet. If there are more than [`MAX_CALLS`], the oldest are forgotten.
    open_calls: Vec<OpenCall>,
    /// The number of calls so far, from which a call without an id gets one.
    calls: usize,
}

impl ContentReader {
    /// Decodes the next content, and appends its messages: one message of the model, or messages of the user and
    /// outputs of tools. A content without a role is the user's. A content of the role `function` may have only outputs
    /// of tools, and the files that belong to these outputs.
    pub(super) fn read(&mut self, content: &ObjectFields<'_>) -> Result<(), WireError> {
        match content.optional_text("role")? {
            Some("model") => self.read_model(content),
            None | Some("user") => self.read_user(content, false),
            Some("function") => self.read_user(content, true),
            Some(_) => content.field_error(
                "role",
                "is not `user`, `model` or `function`; send a system message in `systemInstruction`",
            ),
        }
    }

    /// Decodes a content of the model into one message. If the preceding content is the model's as well, both become
    /// one message, since some clients store each event of a stream as a content. Drops the reasoning.
    fn read_model(&mut self, content: &ObjectFields<'_>) -> Result<(), WireError> {
        content.reject_unsupported(&CONTENT_OF_MODEL)?;
        let (mut text, mut calls) = (String::new(), Vec::new());
        for part in content.objects("parts")? {
            let part = part?;
            part.reject_unsupported(&PART_OF_MODEL)?;
            let is_thought = part.flag("thought")?;
            match (part.optional_text("text")?, part.get("functionCall")) {
                (Some(_), Some(_)) => return part.field_error("functionCall", SEVERAL),
                (Some(piece), None) if !is_thought => text.push_str(piece),
                (None, Some(_)) => calls.push(self.read_call(&part.object("functionCall")?)?),
                // The part is reasoning, or has only a signature. Reasoning is dropped, so that a client cannot write
                // text into it: the gateway has its own copy.
                _ => {}
            }
        }
        if let Some(Message::Assistant { text: before, calls: calls_before, .. }) = self.messages.last_mut() {
            before.push_str(&text);
            calls_before.extend(calls);
        } else {
            self.messages.push(Message::Assistant { text, calls, thoughts: Vec::new() });
        }
        Ok(())
    }

    /// Decodes a call, and records it as open, so that [`Self::answered_call`] finds it for a later output. The
    /// arguments, which are an object in this format, become a JSON text. A call without an id gets an id from its
    /// position in the chat, so that equal chats have equal ids.
    fn read_call(&mut self, call: &ObjectFields<'_>) -> Result<ToolCall, WireError> {
        call.reject_unsupported(&CALL)?;
        let arguments = match call.get("args") {
            None => "{}".to_owned(),
            Some(arguments @ Json::Object(_)) => arguments.to_string(),
            Some(_) => return call.field_error("args", "is not an object"),
        };
        let given = call.optional_text("id")?.filter(|id| !id.is_empty());
        let id = given.map_or_else(|| format!("{CALL_ID}{}", self.calls), str::to_owned);
        self.calls += 1;
        let name = call.text("name")?.to_owned();
        // The list that `answered_call` searches is bounded: the oldest call without an output is forgotten.
        if self.open_calls.len() >= MAX_CALLS {
            self.open_calls.remove(0);
        }
        self.open_calls.push(OpenCall { id: id.clone(), tool: name.clone(), has_given_id: given.is_some() });
        Ok(ToolCall { id, name, arguments })
    }

    /// Decodes a content of the user, which can contain texts and files of the user and outputs of tools. Each output
    /// becomes a message of its own, and the parts before, between and after the outputs become messages of the user.
    /// If `only_outputs` is true, parts of the user are an error.
    fn read_user(&mut self, content: &ObjectFields<'_>, only_outputs: bool) -> Result<(), WireError> {
        content.reject_unsupported(&CONTENT_OF_USER)?;
        let content_source = content.source()?;
        // The parts of the user since the last output of a tool, each with its provenance.
        let mut pending: Vec<(Part, Option<Source>)> = Vec::new();
        // Whether the preceding part is an output of a tool, or a file that belongs to one.
        let mut follows_output = false;
        let mut is_empty = true;
        for part in content.objects("parts")? {
            let part = part?;
            is_empty = false;
            part.reject_unsupported(&PART_OF_USER)?;
            let has = |key: &str| part.get(key).is_some();
            // A part has exactly one of these three fields.
            match (has("text"), has("inlineData"), has("functionResponse")) {
                (true, false, false) if only_outputs => return part.field_error("text", NO_OUTPUT),
                (true, false, false) => {
                    follows_output = false;
                    let text = Part::Text(part.text("text")?.to_owned());
                    pending.push((text, part.source()?.or(content_source)));
                }
                (false, true, false) => {
                    let file = read_blob(&part.object("inlineData")?)?;
                    let declared = part.source()?;
                    match self.messages.last_mut() {
                        // A file directly after an output belongs to the output, unless it declares its own provenance.
                        Some(Message::Tool { content, .. }) if follows_output && declared.is_none() => {
                            content.push(file);
                        }
                        _ if only_outputs => return part.field_error("inlineData", NO_OUTPUT),
                        _ => {
                            // A person does not type a PDF: without a declaration of its own, it is not `typed`, even
                            // if its content is.
                            let source = if documents::is_pdf(&file) {
                                documents::source_of(&part, content_source)?
                            } else {
                                declared.or(content_source)
                            };
                            follows_output = false;
                            pending.push((file, source));
                        }
                    }
                }
                (false, false, true) => {
                    self.push_user(std::mem::take(&mut pending));
                    let output = self.read_output(&part.object("functionResponse")?)?;
                    self.messages.push(output);
                    follows_output = true;
                }
                (false, false, false) => return part.field_error("text", "is missing"),
                (_, _, true) => return part.field_error("functionResponse", SEVERAL),
                (true, true, false) => return part.field_error("inlineData", SEVERAL),
            }
        }
        // A content without parts becomes an empty message of the user.
        if is_empty {
            self.messages.push(Message::User(Vec::new()));
        }
        self.push_user(pending);
        Ok(())
    }

    /// Appends a message of the user with these parts, each with its declared provenance; none if there are no parts.
    fn push_user(&mut self, parts: Vec<(Part, Option<Source>)>) {
        if parts.is_empty() {
            return;
        }
        let (parts, sources): (Vec<Part>, Vec<Option<Source>>) = parts.into_iter().unzip();
        self.sources.set(self.messages.len(), sources);
        self.messages.push(Message::User(parts));
    }

    /// Decodes an output of a tool into a message, and removes the call that it answers from the open calls.
    fn read_output(&mut self, output: &ObjectFields<'_>) -> Result<Message, WireError> {
        output.reject_unsupported(&OUTPUT)?;
        let call_id =
            self.answered_call(output.optional_text("id")?.unwrap_or_default(), output.text("name")?);
        let (mut content, mut is_error) = (Vec::new(), false);
        match output.get("response") {
            None => {}
            Some(Json::Object(entries)) => {
                let (text, failed) = output_text(entries);
                content.extend(text.map(Part::Text));
                is_error = failed;
            }
            Some(_) => return output.field_error("response", "is not an object"),
        }
        // The images and PDFs of the output follow its text.
        for part in output.objects("parts")? {
            let part = part?;
            part.reject_unsupported(&OUTPUT_PART)?;
            content.push(read_blob(&part.object("inlineData")?)?);
        }
        Ok(Message::Tool { call_id, content, is_error: Some(is_error) })
    }

    /// Returns the id of the call that an output answers, and removes this call from the open calls. `id` is the id
    /// that the client gives in the output (empty if it gives none), and `name` is the name of the tool.
    ///
    /// The output answers the open call with the same id. If there is none, the client has left out the id or invented
    /// one. An output without an id answers the first open call of the tool. An output with an unknown id answers the
    /// first open call of the tool to which the client gave no id. If there is no such call either, the output answers
    /// no known call: the result is `id`, or an id with the name of the tool if `id` is empty.
    fn answered_call(&mut self, id: &str, name: &str) -> String {
        let with_id = self.open_calls.iter().position(|call| call.id == id);
        let is_of_tool = |call: &OpenCall| call.tool == name && (id.is_empty() || !call.has_given_id);
        match with_id.or_else(|| self.open_calls.iter().position(is_of_tool)) {
            Some(at) => self.open_calls.remove(at).id,
            None if id.is_empty() => format!("output_of_{name}"),
            None => id.to_owned(),
        }
    }
}

/// Returns the text of a tool's output, and whether the tool failed. `entries` are the fields of the object `response`.
/// If its only field is `output`, `result` or `error`, the output is the value of this field, and `error` says that the
/// tool failed. Otherwise, the output is the whole object, as JSON. The text is `None` if the object is empty.
fn output_text(entries: &[(std::borrow::Cow<'_, str>, Json<'_>)]) -> (Option<String>, bool) {
    match entries {
        [] => (None, false),
        [(key, value)] if matches!(key.as_ref(), "output" | "result" | "error") => {
            let text = match value {
                Json::Text(text) => text.clone().into_owned(),
                value => value.to_string(),
            };
            (Some(text), key == "error")
        }
        entries => (Some(Json::Object(entries.to_vec()).to_string()), false),
    }
}

/// Decodes inline data, which must be an image or a PDF. Fails for any other media type, and for a media type with
/// parameters or several types.
fn read_blob(blob: &ObjectFields<'_>) -> Result<Part, WireError> {
    blob.reject_unsupported(&BLOB)?;
    let media_type = blob.text("mimeType")?;
    // Clients use either alphabet of base64. The other formats use only the one with `+` and `/`.
    let data = blob.text("data")?.replace('-', "+").replace('_', "/");
    if let Some(pdf) = documents::pdf(media_type, &data) {
        return Ok(pdf);
    }
    if !is_plain(media_type) || !is_image(media_type) {
        return blob
            .field_error("mimeType", "is that of neither an image nor a PDF; send other documents as text");
    }
    Ok(Part::ImageData { media_type: media_type.to_owned(), data })
}
