//! Encodes and decodes OpenAI's Chat Completions, which nearly every server of local models also supports. The gateway
//! and `RemoteModel` use the format as [`Api::ChatCompletions`](super::Api::ChatCompletions).
//!
//! This file contains the descriptor of the format and the declared fields of requests. The submodules encode and
//! decode requests (`request`, `request_decoder`), answers (`response`) and streamed answers (`stream`).
//!
//! Limits of the format, and of this module:
//!
//! * The format cannot mark a tool output as an error, so a model's server receives only the content of the output. A
//!   client of the gateway can mark it in Flowgate's own field (`extension`).
//! * The text of the model's reasoning is neither encoded nor decoded.
//! * The token limit has two names. [`encode_request`] writes `max_completion_tokens`; `RemoteModel` writes the older
//!   name `max_tokens` unless the server is OpenAI's or the program chooses otherwise.

mod request;
mod request_decoder;
mod response;
mod stream;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::fields::UNLABELLED_TOOL;
use super::form::{Form, FormRoute, KeyHeader, decode_stream};
use super::known_fields::FieldRule::{Dropped, Only, Read, Refused};
use super::known_fields::{KnownFields, known_fields};
use super::provider_tools::ProviderItems;
use super::status::encode_openai_error;
use crate::sse::SseEvent;

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
    declare_mcp_server: None,
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

/// Encodes a list of models for both formats of OpenAI. `names` are the names of the models, and `owner` is sent as the
/// owner of each. The formats require the time at which a model was created; it is not known, so 0 is sent.
pub(super) fn encode_model_list(names: &[&str], owner: &str) -> Value {
    let model = |name: &&str| json!({"id": name, "object": "model", "created": 0, "owned_by": owner});
    let models: Vec<Value> = names.iter().map(model).collect();
    json!({"object": "list", "data": models})
}

// The fields of requests, for the decoder (`request_decoder`) and for `docs/wire-forms.md`.

// Reasons that several fields share.
const CACHING: &str = "affects only caching and cost";
const END_USER: &str = "identifies the end user to the provider";
const LOG_PROBABILITIES: &str =
    "asks for words that the model did not write, which no rule has judged; leave it out";
const PENALTY: &str = "is supported only as 0: the gateway passes on no penalties";
const OLD_FUNCTIONS: &str = "is the old form of `tools` and `tool_choice`; send these instead";
const AUDIO: &str = "concerns speech, which no rule can judge; leave it out";
const PARTICIPANT: &str =
    "names a participant, which is text for the model without a label; put the name into the content";

known_fields! {
    REQUEST = "request" {
        "model": Read("the model, if the client may ask for it"),
        "messages": Read("labelled one by one"),
        "tools": Read("labelled as tool descriptions"),
        "tool_choice": Read("passed on for the first message of a turn"),
        "parallel_tool_calls": Read("passed on"),
        "max_tokens": Read("passed on"),
        "max_completion_tokens": Read("passed on"),
        "temperature": Read("passed on"),
        "top_p": Read("passed on"),
        "seed": Read("passed on"),
        "stop": Read("passed on"),
        "stream": Read("whether the reply is streamed"),
        "stream_options": Read("see below"),
        "reasoning_effort": Read("passed on; in Anthropic's format as `output_config.effort`"),
        "verbosity": Read("passed on"),
        "user": Dropped(END_USER),
        "safety_identifier": Dropped(END_USER),
        "metadata": Dropped("is a note of the sender about the request"),
        "prompt_cache_key": Dropped(CACHING),
        "prompt_cache_options": Dropped(CACHING),
        "prompt_cache_retention": Dropped(CACHING),
        "service_tier": Dropped("the operator's account decides on capacity"),
        "store": Dropped("the provider stores nothing: the gateway sends whole conversations"),
        "n": Only(&["1"], "is supported only as 1: a conversation continues with one message of the model"),
        "logprobs": Only(&["false"], LOG_PROBABILITIES),
        "top_logprobs": Only(&["0"], LOG_PROBABILITIES),
        "logit_bias": Only(&["{}"], "is supported only when empty: the gateway passes on no bias"),
        "modalities": Only(&[r#"["text"]"#], AUDIO),
        "audio": Refused(AUDIO),
        "response_format": Read("the form of the reply; see below"),
        "frequency_penalty": Only(&["0", "0.0"], PENALTY),
        "presence_penalty": Only(&["0", "0.0"], PENALTY),
        "functions": Refused(OLD_FUNCTIONS),
        "function_call": Refused(OLD_FUNCTIONS),
        "prediction": Refused("carries text for the model without a label; leave it out"),
        "web_search_options": Refused(UNLABELLED_TOOL),
        "moderation": Refused("asks the provider to judge the conversation; the gateway judges it, so leave it out"),
    }
    WEB_SEARCH = "request.web_search_options" {
        "search_context_size": Dropped("how much of what it finds the provider reads; the gateway's own request leaves this to the provider"),
        "user_location": Refused("cannot be passed on with the search; leave it out"),
    }
    STREAM_OPTIONS = "request.stream_options" {
        "include_usage": Read("whether the stream reports token usage"),
        "include_obfuscation": Dropped("the gateway sends text in pieces of its own"),
    }
    TEXT_FORMAT = "request.response_format, any text" {
        "type": Read("`text`"),
    }
    JSON_FORMAT = "request.response_format, any JSON" {
        "type": Read("`json_object`; refused if the upstream has Anthropic's format"),
    }
    SCHEMA_FORMAT = "request.response_format, by a schema" {
        "type": Read("`json_schema`"),
        "json_schema": Read("see below"),
    }
    JSON_SCHEMA = "request.response_format.json_schema" {
        "name": Read("labelled with the schema"),
        "description": Read("labelled with the schema"),
        "schema": Read("labelled as a message of the role `response_format`"),
        "strict": Read("passed on"),
    }
    PLAIN = "message of the system" {
        "role": Read("`system` or `developer`"),
        "content": Read("a text or parts"),
        "name": Refused(PARTICIPANT),
    }
    USER = "message of the user" {
        "role": Read("`user`"),
        "content": Read("a text or parts"),
        "flowgate": Read("the provenance of the message"),
        "name": Refused(PARTICIPANT),
    }
    ASSISTANT = "message of the model" {
        "role": Read("`assistant`"),
        "content": Read("a text or parts"),
        "refusal": Read("text like any other"),
        "tool_calls": Read("the calls"),
        "reasoning_content": Dropped("the gateway keeps the reasoning and returns it to the model itself"),
        "annotations": Only(&["[]"], "is supported only when empty: it refers to state at the provider"),
        "name": Refused(PARTICIPANT),
        "audio": Refused(AUDIO),
        "function_call": Refused(OLD_FUNCTIONS),
    }
    OUTPUT = "output of a tool" {
        "role": Read("`tool`"),
        "content": Read("labelled as the output of the tool"),
        "tool_call_id": Read("the id of the call"),
        "flowgate": Read("whether the tool failed"),
        "name": Dropped("the call names the tool"),
    }
    CALL = "tool call" {
        "id": Read("the id of the call"),
        "type": Only(&[r#""function""#], "is supported only as `function`"),
        "function": Read("the tool and the arguments"),
        "index": Dropped("the calls are in order"),
    }
    CALLED = "function of a tool call" {
        "name": Read("the tool"),
        "arguments": Read("the arguments"),
    }
    TEXT_PART = "text part" {
        "type": Read("`text`"),
        "text": Read("labelled with its message"),
        "prompt_cache_breakpoint": Dropped(CACHING),
    }
    TEXT_PART_OF_USER = "text part of the user" {
        "type": Read("`text`"),
        "text": Read("labelled by its provenance"),
        "flowgate": Read("the provenance of the part"),
        "prompt_cache_breakpoint": Dropped(CACHING),
    }
    REFUSAL_PART = "refusal part" {
        "type": Read("`refusal`"),
        "refusal": Read("labelled with its message"),
    }
    REFUSAL_PART_OF_USER = "refusal part of the user" {
        "type": Read("`refusal`"),
        "refusal": Read("labelled by its provenance"),
        "flowgate": Read("the provenance of the part"),
    }
    IMAGE_PART = "image part" {
        "type": Read("`image_url`"),
        "image_url": Read("see below"),
        "prompt_cache_breakpoint": Dropped(CACHING),
    }
    IMAGE_PART_OF_USER = "image part of the user" {
        "type": Read("`image_url`"),
        "image_url": Read("see below"),
        "flowgate": Read("the provenance of the part"),
        "prompt_cache_breakpoint": Dropped(CACHING),
    }
    FILE_PART = "file part" {
        "type": Read("`file`"),
        "file": Read("see below"),
        "prompt_cache_breakpoint": Dropped(CACHING),
    }
    FILE_PART_OF_USER = "file part of the user" {
        "type": Read("`file`"),
        "file": Read("see below"),
        "flowgate": Read("the provenance of the part; without it, a file"),
        "prompt_cache_breakpoint": Dropped(CACHING),
    }
    FILE = "file of a file part" {
        "file_data": Read("the content of a PDF in base64"),
        "filename": Dropped("the provider receives another name, since this one is text without a label"),
        "file_id": Refused("refers to state at the provider, which has no label; send the content itself"),
    }
    IMAGE_URL = "address of an image" {
        "url": Read("the content in base64"),
        "detail": Dropped("the provider decides on the resolution"),
    }
    TOOL = "tool" {
        "type": Read("`function`"),
        "function": Read("see below"),
    }
    FUNCTION = "function of a tool" {
        "name": Read("the name of the tool"),
        "description": Read("labelled as a tool description"),
        "parameters": Read("labelled as a tool description"),
        "strict": Dropped("arguments are checked before the call runs, whatever the server enforces"),
    }
    CHOICE = "request.tool_choice" {
        "type": Only(&[r#""function""#], "is supported only as `function`"),
        "function": Read("see below"),
    }
    CHOSEN = "function of request.tool_choice" {
        "name": Read("the tool that must be called"),
    }
}
