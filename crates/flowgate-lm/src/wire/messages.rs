//! Encodes and decodes Anthropic's Messages API. The gateway and `RemoteModel` use the format as
//! [`Api::Messages`](super::Api::Messages).
//!
//! Differences from the other formats:
//!
//! * System messages at the beginning are sent in the field `system`: each part of them becomes one block. A later one,
//!   or one with an image, is sent at its position as a user's message: only some models accept system messages there,
//!   and only after some turns, and text must not gain authority in transit. When requests are decoded, later system
//!   messages stay system messages.
//! * Consecutive tool outputs form one message of the user.
//! * The arguments of a call are an object. Arguments that are no object are wrapped in one, in its field `unparsed`.
//!   Decoded arguments are serialised again and lose their white space, except in streams: these contain the
//!   arguments exactly as the model wrote them.
//! * The token limit is mandatory: [`MAX_TOKENS`] by default.
//! * There is no seed.
//! * The model's reasoning is a list of blocks with signatures. It is encoded with its signatures, and decoded from
//!   answers. The reasoning in a client's request is dropped: the gateway has its own copy.

mod content;
mod fields;
mod provider_tools;
mod request;
mod request_decoder;
mod response;
mod stream;
mod tools;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::form::{Form, FormRoute, KeyHeader, TokenCountRequest, decode_stream};
use super::status::error_names;
use crate::chat::{OutputFormat, Request};
use crate::sse::SseEvent;

use fields::OBJECTS;
use provider_tools::{PROVIDER_TOOLS, remove_provider_items};
pub use request::{MAX_TOKENS, encode_request};
pub use request_decoder::{decode_count_request, decode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};

decode_stream!(StreamDecoder);

/// The descriptor of the format.
pub(super) static FORM: Form = Form {
    name: "messages",
    python_name: "anthropic",
    description: "Anthropic's Messages API",
    version: "Anthropic's Messages 2023-06-01 as of November 2026",
    provider: "anthropic",
    routes: &[FormRoute::Answer("/v1/messages"), FormRoute::CountTokens("/v1/messages/count_tokens")],
    own_prefix: None,
    key_header: KeyHeader { name: "x-api-key", prefix: "" },
    betas_header: Some("anthropic-beta"),
    id_prefix: "msg",
    has_embeddings: false,
    numbers_calls: false,
    token_count: Some(TokenCountRequest { answer_field: "input_tokens", decode: decode_count_request }),
    separates_refusals: false,
    // The start of the message, a ping, and the start of the block with the text.
    events_before_text: 3,
    provider_tools: PROVIDER_TOOLS,
    remove_provider_items,
    objects: OBJECTS,
    path: |_, _| Cow::Borrowed("/messages"),
    unsupported_feature,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
    is_response: |value| {
        value.get("stop_reason").is_some() || value.get("type").is_some_and(|kind| kind == "message")
    },
    encode_stream: |completion, pieces, head, (_, order)| encode_stream(completion, pieces, head, order),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error,
    encode_error_event: |body| SseEvent::new("error", body.to_string()),
    encode_model_list,
};

/// Returns the feature of a request that the format cannot express: JSON without a schema.
fn unsupported_feature(request: &Request) -> Option<&'static str> {
    (request.format == Some(OutputFormat::JsonObject)).then_some(
        "JSON without a schema in the Messages API; send a schema, or describe the JSON in a message",
    )
}

/// Encodes the body of an error with Anthropic's name for its HTTP status. If a thread was refused, `details` has the code
/// with which Anthropic's server refuses one: the tool runners of the official clients ask for a thread by default, and
/// then repeat the request without it.
fn encode_error(status: u16, message: &str) -> Value {
    let kind = error_names(status).anthropic;
    let error = if message.contains(&format!("`thread` {}", fields::THREAD)) {
        let details = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
        json!({"type": kind, "message": message, "details": details})
    } else {
        json!({"type": kind, "message": message})
    };
    json!({"type": "error", "error": error})
}

/// Encodes the list of the models with these names. The format has no field for their owner. The time at which a model
/// was created is not known; the format requires one.
fn encode_model_list(names: &[&str], _owner: &str) -> Value {
    let model = |name: &&str| json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"});
    let models: Vec<Value> = names.iter().map(model).collect();
    json!({"first_id": names.first(), "last_id": names.last(), "has_more": false, "data": models})
}
