//! Encodes and decodes OpenAI's Chat Completions, which nearly every server of local models also supports. The gateway
//! and `RemoteModel` use the format as [`Api::ChatCompletions`](super::Api::ChatCompletions).
//!
//! Limits of the format, and of this module:
//!
//! * A tool output cannot be marked as an error: its content is sent as it is.
//! * The text of the model's reasoning is neither encoded nor decoded.
//! * The token limit is sent as `max_completion_tokens`, unless the client selects the older name `max_tokens`.

mod fields;
mod request;
mod request_decoder;
mod response;
mod stream;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::form::{Form, FormRoute, KeyHeader, decode_stream};
use super::provider_tools::ProviderItems;
use super::status::encode_openai_error;
use crate::sse::SseEvent;

use fields::OBJECTS;
#[cfg(feature = "remote")]
pub(crate) use request::OLD_LIMIT;
pub use request::encode_request;
pub(crate) use request::{LIMIT, SentRequest};
pub use request_decoder::decode_request;
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};

decode_stream!(StreamDecoder);

/// The descriptor of the format.
pub(super) static FORM: Form = Form {
    name: "chat-completions",
    python_name: "openai",
    description: "OpenAI's Chat Completions API, which most servers of local models support",
    version: "OpenAI's Chat Completions as of November 2026",
    provider: "openai",
    routes: &[FormRoute::Answer("/v1/chat/completions")],
    own_prefix: None,
    key_header: KeyHeader::BEARER,
    betas_header: None,
    id_prefix: "chatcmpl",
    has_embeddings: true,
    numbers_calls: false,
    token_count: None,
    separates_refusals: true,
    // The chunk with the role.
    events_before_text: 1,
    provider_tools: &[],
    remove_provider_items: |_| ProviderItems::default(),
    objects: OBJECTS,
    path: |_, _| Cow::Borrowed("/chat/completions"),
    unsupported_feature: |_| None,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
    is_response: |value| value.get("choices").is_some(),
    encode_stream: |completion, pieces, head, (usage, _)| encode_stream(completion, pieces, head, usage),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error: encode_openai_error,
    encode_error_event: |body| SseEvent::new("", body.to_string()),
    encode_model_list,
};

/// Encodes the list of the models with these names, as OpenAI's formats have it. The time at which a model was created is not
/// known; the format requires one.
pub(super) fn encode_model_list(names: &[&str], owner: &str) -> Value {
    let model = |name: &&str| json!({"id": name, "object": "model", "created": 0, "owned_by": owner});
    let models: Vec<Value> = names.iter().map(model).collect();
    json!({"object": "list", "data": models})
}
