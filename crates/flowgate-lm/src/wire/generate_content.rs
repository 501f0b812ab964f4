//! Encodes and decodes Gemini's API: `generateContent`, and `streamGenerateContent` for streams. A chat is a list of
//! "contents" there (one for each message), and a content is a list of parts. The gateway and `RemoteModel` use the
//! format as [`Api::GenerateContent`](super::Api::GenerateContent).
//!
//! Differences from the other formats:
//!
//! * The address names the model, and whether the answer is streamed ([`Target`]). The body states neither.
//! * System messages at the beginning are sent in the field `systemInstruction`: each part of them becomes one part of
//!   this field. A later one, or one with an image, is sent at its position as a user's content.
//! * Consecutive tool outputs form one content. An image or a PDF that follows an output in the same content belongs to
//!   this output.
//! * A client may leave out the ids of calls. A call without an id gets one from its position in the chat, and an
//!   output without an id answers the first call of its name that has no answer, so equal chats have equal ids.
//! * The arguments of a call and the output of a tool are objects. Arguments that are no object are wrapped in one, in
//!   its field `unparsed`; an output that is a text, in its field `output` or `error`. Decoded arguments are serialised
//!   again and lose their white space, also in streams.
//! * Consecutive contents of the model are one message: some clients store each event of a stream as a content.
//! * A stream has no event that ends it: it ends with the event that states the finish reason.
//! * The model's reasoning consists of parts with the field `thought`. The server signs calls and texts; the signatures
//!   are sent back with the same call or text. The reasoning in a client's request is dropped: the gateway has its own
//!   copy.

mod content;
mod fields;
mod provider_tools;
mod request;
mod request_decoder;
mod response;
mod schema;
mod stream;
mod target;
mod tools;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::form::{Form, FormRoute, KeyHeader, TokenCountRequest, decode_stream};
use super::status::error_names;
use crate::sse::SseEvent;

pub use content::CALL_ID;
use fields::OBJECTS;
use provider_tools::{PROVIDER_TOOLS, remove_provider_items};
pub use request::encode_request;
pub use request_decoder::{decode_count_request, decode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
pub use target::{Target, TargetMethod};

decode_stream!(StreamDecoder);

/// The descriptor of the format.
pub(super) static FORM: Form = Form {
    name: "generate-content",
    python_name: "gemini",
    description: "Gemini's API",
    version: "Gemini's generateContent v1beta as of November 2026",
    provider: "gcp.gemini",
    routes: &[
        FormRoute::ModelMethod("/v1beta/models/{target}"),
        FormRoute::ModelMethod("/v1/models/{target}"),
        FormRoute::ModelList("/v1beta/models"),
    ],
    own_prefix: Some("/v1beta/"),
    key_header: KeyHeader { name: "x-goog-api-key", prefix: "" },
    betas_header: None,
    id_prefix: "gen",
    has_embeddings: false,
    numbers_calls: true,
    token_count: Some(TokenCountRequest { answer_field: "totalTokens", decode: decode_count_request }),
    separates_refusals: false,
    events_before_text: 0,
    provider_tools: PROVIDER_TOOLS,
    remove_provider_items,
    objects: OBJECTS,
    path: |model, stream| Cow::Owned(target::path(model, stream)),
    unsupported_feature: |_| None,
    encode_request: |request, model, _| encode_request(request, model),
    decode_request,
    encode_response,
    decode_response,
    is_response: |value| value.get("candidates").is_some(),
    encode_stream: |completion, pieces, head, (_, order)| encode_stream(completion, pieces, head, order),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error,
    encode_error_event: |body| SseEvent::new("", body.to_string()),
    encode_model_list,
};

/// Encodes the body of an error with Gemini's name for its HTTP status.
fn encode_error(status: u16, message: &str) -> Value {
    json!({"error": {"code": status, "message": message, "status": error_names(status).gemini}})
}

/// Encodes the list of the models with these names. The format has no field for their owner.
fn encode_model_list(names: &[&str], _owner: &str) -> Value {
    let model = |name: &&str| {
        json!({
            "name": format!("models/{name}"),
            "displayName": name,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        })
    };
    let models: Vec<Value> = names.iter().map(model).collect();
    json!({"models": models})
}
