//! Encodes and decodes OpenAI's Responses API. The gateway and `RemoteModel` use the format as
//! [`Api::Responses`](super::Api::Responses).
//!
//! The whole chat is sent with each request to a server, which stores nothing: `store` is false. A client of the gateway
//! may continue an earlier answer (`previous_response_id`); other stored state (`conversation`, references to items)
//! cannot be requested. Text and calls are separate items; a call belongs to the preceding message of the model. There are no stop sequences and no seed. A tool output
//! cannot be marked as an error: its content is sent as it is.
//!
//! The model's reasoning is a list of items with encrypted content. It is encoded with this content, and decoded from
//! answers. The reasoning in a client's request is dropped: the gateway has its own copy.

mod fields;
mod provider_tools;
mod request;
mod request_decoder;
mod response;
mod stream;
mod tools;

use std::borrow::Cow;

use serde_json::Value;

use super::chat_completions::encode_model_list;
use super::form::{Form, FormRoute, KeyHeader, decode_stream};
use super::put;
use super::status::encode_openai_error;
use crate::chat::Request;
use crate::sse::SseEvent;

use fields::OBJECTS;
use provider_tools::{PROVIDER_TOOLS, remove_provider_items};
pub use request::encode_request;
pub use request_decoder::decode_request;
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};

decode_stream!(StreamDecoder);

/// The descriptor of the format.
pub(super) static FORM: Form = Form {
    name: "responses",
    python_name: "responses",
    description: "OpenAI's Responses API",
    version: "OpenAI's Responses as of November 2026",
    provider: "openai",
    routes: &[FormRoute::Answer("/v1/responses")],
    own_prefix: None,
    key_header: KeyHeader::BEARER,
    betas_header: None,
    id_prefix: "resp",
    has_embeddings: true,
    numbers_calls: false,
    token_count: None,
    separates_refusals: true,
    // The response is created and in progress; its message and the part with the text are added.
    events_before_text: 4,
    provider_tools: PROVIDER_TOOLS,
    remove_provider_items,
    objects: OBJECTS,
    path: |_, _| Cow::Borrowed("/responses"),
    unsupported_feature,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
    is_response: |value| value.get("output").is_some(),
    encode_stream: |completion, pieces, head, (_, order)| encode_stream(completion, pieces, head, order),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error: encode_openai_error,
    encode_error_event,
    encode_model_list,
};

/// Returns the feature of a request that the format cannot express: stop sequences.
fn unsupported_feature(request: &Request) -> Option<&'static str> {
    let has_stop = !request.sampling.stop.is_empty();
    has_stop.then_some("stop sequences in the Responses API; leave out `stop`")
}

/// Encodes the event that ends a stream with an error, whose body repeats the name of the event.
fn encode_error_event(mut body: Value) -> SseEvent {
    put(&mut body, "type", "error");
    SseEvent::new("error", body.to_string())
}
