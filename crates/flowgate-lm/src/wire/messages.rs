//! Encodes and decodes Anthropic's Messages API. The gateway and `RemoteModel` use the format as
//! [`Api::Messages`](super::Api::Messages).
//!
//! This file contains the descriptor of the format (`FORM`) and the declared fields of requests. The submodules encode
//! and decode requests (`request`, and `request_decoder` with `content` and `tools`), answers (`response`), streamed
//! answers (`stream`), citations of documents (`citations`), the tools of the provider (`provider_tools`) and the MCP
//! servers that it calls (`mcp_servers`). `cache_breakpoints` marks what the server is to cache.
//!
//! Differences from the other formats:
//!
//! * System messages at the beginning of the chat become the field `system`: a single part as a text, several parts as
//!   blocks. Any later system message is sent at its position as a message of the user, since only some models accept
//!   system messages there. It is not moved to the field `system`, since no text may gain authority by being moved. A
//!   system message with an image, which this field cannot contain, and all after it count as later ones. The decoder of
//!   requests keeps later system messages as system messages.
//! * Consecutive tool outputs form one message of the user.
//! * The arguments of a call are an object. Arguments that are not an object are sent in the field `unparsed` of an
//!   object. Decoded arguments are serialised again and lose their white space, except in streams, which contain the
//!   arguments exactly as the model wrote them.
//! * The token limit is mandatory: [`MAX_TOKENS`] by default.
//! * There is no seed.
//! * The model's reasoning is a list of blocks with signatures. Requests to a server and answers contain these blocks.
//!   The reasoning in a client's request is dropped, since the gateway has its own copy.

mod cache_breakpoints;
mod citations;
mod content;
mod mcp_servers;
mod provider_tools;
mod request;
mod request_decoder;
mod response;
mod stream;
mod tools;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::documents::FETCHED;
use super::form::{Form, FormRoute, KeyHeader, TokenCountRequest, decode_stream};
use super::known_fields::FieldRule::{Dropped, Only, Read, Refused};
use super::known_fields::{KnownFields, known_fields};
use super::status::error_names;
use crate::chat::{OutputFormat, Request};
use crate::sse::SseEvent;

pub(crate) use cache_breakpoints::mark_cache_breakpoints;
pub(crate) use citations::{ReportedPiece, SentDocuments, mark_citable, reported_citations};
pub(crate) use mcp_servers::MCP_BETA;
use mcp_servers::declare_mcp_server;
use provider_tools::{PROVIDER_TOOLS, remove_provider_items};
pub use request::{MAX_TOKENS, encode_request};
pub use request_decoder::{decode_count_request, decode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};

// Only this format reports citations in its streams.
decode_stream!(StreamDecoder, {
    fn take_citations(&mut self) -> Vec<ReportedPiece> {
        <StreamDecoder>::take_citations(self)
    }
});

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
    declare_mcp_server: Some(declare_mcp_server),
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
    // `_`: every stream of this format reports the token usage, so the caller cannot choose.
    encode_stream: |completion, pieces, head, (_, order)| encode_stream(completion, pieces, head, order),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error,
    encode_error_event: |body| SseEvent::new("error", body.to_string()),
    encode_model_list,
};

/// Returns the problem, with advice, of a request that demands JSON without a schema, which the format cannot express;
/// `None` for any other request.
fn unsupported_feature(request: &Request) -> Option<&'static str> {
    (request.format == Some(OutputFormat::JsonObject)).then_some(
        "the Messages API has no JSON without a schema; send a schema, or describe the JSON in a message",
    )
}

/// Encodes the body of an error with Anthropic's name for the HTTP status. If the error is about the field `thread`,
/// `details` has the code with which Anthropic's server refuses a thread: the tool runners of the official clients ask
/// for a thread by default, and repeat the request without it when they receive this code.
fn encode_error(status: u16, message: &str) -> Value {
    let kind = error_names(status).anthropic;
    // Only the message is known here, so an error about `thread` is recognised by the decoder's message about this
    // field.
    let error = if message.contains(&format!("`thread` {THREAD}")) {
        let details = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
        json!({"type": kind, "message": message, "details": details})
    } else {
        json!({"type": kind, "message": message})
    };
    json!({"type": "error", "error": error})
}

/// Encodes the list of the models with these names. The format has no field for their owner. It requires the time at
/// which a model was created, which is not known, so a fixed time is sent.
fn encode_model_list(names: &[&str], _owner: &str) -> Value {
    let model = |name: &&str| json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"});
    let models: Vec<Value> = names.iter().map(model).collect();
    json!({"first_id": names.first(), "last_id": names.last(), "has_more": false, "data": models})
}

// The fields of requests, for the decoder (`request_decoder`) and for `docs/wire-forms.md`.

// Reasons that several fields share.
const CITED: &str = "whether the answer may cite the document";
const OF_ANSWER: &str = "repeats passages of documents for the reader of an answer; no model is shown it";
const CACHING: &str = "affects only caching and cost";
const OWN_COPY: &str = "the gateway keeps the reasoning and returns it to the model itself";
const PROVIDER_STATE: &str = "refers to state at the provider, which has no label; send the content itself";
/// Why a request with the field `thread` is refused.
const THREAD: &str =
    "is a conversation that the provider keeps, and its messages have no label; send the whole conversation";
const OPERATOR: &str = "is the operator's decision, not the client's; leave it out";
const HIDDEN_TURNS: &str =
    "lets the provider write or replace messages that the gateway does not see; leave it out";

known_fields! {
    REQUEST = "request" {
        "model": Read("the model, if the client may ask for it"),
        "max_tokens": Read("passed on"),
        "system": Read("labelled as a system message"),
        "messages": Read("labelled one by one"),
        "tools": Read("labelled as tool descriptions"),
        "tool_choice": Read("passed on for the first message of a turn"),
        "temperature": Read("passed on"),
        "top_p": Read("passed on"),
        "stop_sequences": Read("passed on"),
        "stream": Read("whether the reply is streamed"),
        "thinking": Read("passed on"),
        "output_config": Read("passed on"),
        "metadata": Dropped("identifies the end user to the provider"),
        "cache_control": Dropped(CACHING),
        "context_management": Dropped("the gateway decides what of the chat the model is shown"),
        "service_tier": Dropped("the operator's account decides on capacity"),
        "output_format": Read("the older name of `output_config.format`"),
        "top_k": Refused("is a kind of sampling that the gateway does not pass on; use `top_p`"),
        "speed": Only(&[r#""standard""#], "is supported only as `standard`: other speeds change the cost"),
        "mcp_servers": Read("tools of the provider, if the policy labels their outputs; see below"),
        "container": Refused(PROVIDER_STATE),
        "thread": Refused(THREAD),
        "compaction": Refused(HIDDEN_TURNS),
        "fallbacks": Refused(OPERATOR),
        "fallback_credit_token": Refused(OPERATOR),
        "billing_policy": Refused(OPERATOR),
        "inference_geo": Refused(OPERATOR),
        "user_profile_id": Refused(PROVIDER_STATE),
        "workspace_id": Refused(OPERATOR),
        "diagnostics": Refused("asks for details of earlier requests, which may have shown hidden text; leave it out"),
        "safeguards": Read("asks for verdicts on the calls of the answer: the gateway answers, see `safeguards` of a client"),
    }
    SAFEGUARD = "request.safeguards" {
        "type": Read("`dangerous_tool_use`"),
        "classifier_context": Dropped("the policy judges the calls, and no classifier"),
    }
    THINKING = "request.thinking" {
        "type": Read("`disabled`, `adaptive` or `enabled`"),
        "budget_tokens": Read("passed on"),
        "display": Read("`summarized` or `omitted`"),
        "block_binding": Refused("ties the reasoning to the client's requests, but the gateway itself returns the reasoning to the model; leave it out"),
    }
    OUTPUT_CONFIG = "request.output_config" {
        "effort": Read("passed on; in OpenAI's formats as the effort of the reasoning"),
        "format": Read("the form of the reply; see below"),
        "task_budget": Refused("counts the tokens of the client's requests, but the gateway sends other requests to the model; leave it out"),
    }
    SCHEMA_FORMAT = "request.output_config.format" {
        "type": Read("`json_schema`"),
        "schema": Read("labelled as a message of the role `response_format`"),
    }
    CHOICE = "request.tool_choice" {
        "type": Read("`auto`, `any`, `none` or `tool`"),
        "name": Read("the tool that must be called"),
        "disable_parallel_tool_use": Read("passed on"),
    }
    TOOL = "tool" {
        "type": Read("`custom`"),
        "name": Read("the name of the tool"),
        "description": Read("labelled as a tool description"),
        "input_schema": Read("labelled as a tool description"),
        "cache_control": Dropped(CACHING),
        "strict": Dropped("arguments are checked before the call runs, whatever the server enforces"),
        "eager_input_streaming": Dropped("arguments are sent after the call was judged"),
        "defer_loading": Dropped("every tool is on offer from the start"),
        "input_examples": Dropped("the schema describes the arguments"),
        "allowed_callers": Only(&[r#"["direct"]"#], "is supported only as `[\"direct\"]`: otherwise code at the provider would make calls that the policy does not judge"),
    }
    OF_PROVIDER = "tool that the provider runs" {
        "type": Read("`web_search`, `web_fetch` or `code_execution`, with a date; see below"),
        "name": Dropped("the tool has the name of its type"),
        "allowed_domains": Read("passed on"),
        "blocked_domains": Read("passed on"),
        "max_uses": Read("limits the calls of the tool in a turn, beside the gateway's own limit"),
        "user_location": Dropped("describes the client to the provider"),
        "max_content_tokens": Dropped("the output has the limit of an answer"),
        "citations": Dropped("the addresses of the sources stand after the text of the output"),
        "cache_control": Dropped(CACHING),
        "defer_loading": Dropped("every tool is on offer from the start"),
        "strict": Dropped("arguments are checked before the call runs, whatever the server enforces"),
        "allowed_callers": Only(&[r#"["direct"]"#], "is supported only as `[\"direct\"]`: otherwise code at the provider would make calls that the policy does not judge"),
    }
    MCP_SERVER = "MCP server that the provider calls" {
        "type": Only(&[r#""url""#], "is supported only as `url`"),
        "name": Read("the label of the server: the policy calls it `tool:mcp__NAME`"),
        "url": Read("passed on for the calls; the model is shown its scheme and host"),
        "authorization_token": Read("passed on for the calls, and neither stored nor shown"),
        "tool_configuration": Refused("is of an older version of the API; declare an `mcp_toolset` in `tools`"),
    }
    MCP_TOOLSET = "toolset of an MCP server" {
        "type": Read("`mcp_toolset`"),
        "mcp_server_name": Read("a server of `mcp_servers`"),
        "default_config": Read("whether tools may be called that `configs` does not name"),
        "configs": Read("the tools that may be called, or may not be called; passed on"),
        "cache_control": Dropped(CACHING),
        "tools": Refused("is a list of tools from an earlier answer, which the gateway does not pass on; leave it out"),
    }
    MCP_TOOL_CONFIG = "toolset of an MCP server.configs" {
        "enabled": Read("whether the tool may be called"),
        "defer_loading": Dropped("every tool is on offer from the start"),
    }
    MESSAGE = "message of the model or the system" {
        "role": Read("`assistant` or `system`"),
        "content": Read("a text or blocks"),
        "output_config": Dropped("the `output_config` of the request holds for all of it"),
        "clear_at": Only(&[r#""never""#], "is supported only as `never`: a system message stays in the chat"),
    }
    USER = "message of the user" {
        "role": Read("`user`"),
        "content": Read("a text or blocks"),
        "flowgate": Read("the provenance of the message"),
    }
    TEXT = "text block" {
        "type": Read("`text`"),
        "text": Read("labelled with its message"),
        "cache_control": Dropped(CACHING),
        "citations": Dropped(OF_ANSWER),
    }
    TEXT_OF_USER = "text block of the user" {
        "type": Read("`text`"),
        "text": Read("labelled by its provenance"),
        "flowgate": Read("the provenance of the block"),
        "cache_control": Dropped(CACHING),
        "citations": Dropped(OF_ANSWER),
    }
    IMAGE = "image block" {
        "type": Read("`image`"),
        "source": Read("the content in base64"),
        "cache_control": Dropped(CACHING),
        "transformations": Refused("changes the image at the provider; send the image that the model is to see"),
    }
    IMAGE_OF_USER = "image block of the user" {
        "type": Read("`image`"),
        "source": Read("the content in base64"),
        "flowgate": Read("the provenance of the block"),
        "cache_control": Dropped(CACHING),
        "transformations": Refused("changes the image at the provider; send the image that the model is to see"),
    }
    DOCUMENT = "document block" {
        "type": Read("`document`"),
        "source": Read("a text, or a PDF in base64"),
        "title": Read("the first line of the text"),
        "context": Read("the next line of the text"),
        "cache_control": Dropped(CACHING),
        "citations": Read(CITED),
    }
    DOCUMENT_OF_USER = "document block of the user" {
        "type": Read("`document`"),
        "source": Read("a text, or a PDF in base64"),
        "title": Read("the first line of the text"),
        "context": Read("the next line of the text"),
        "flowgate": Read("the provenance of the block; without it, a file"),
        "cache_control": Dropped(CACHING),
        "citations": Read(CITED),
    }
    SEARCH_RESULT = "search result block" {
        "type": Read("`search_result`"),
        "source": Read("the second line of the text"),
        "title": Read("the first line of the text"),
        "content": Read("texts"),
        "cache_control": Dropped(CACHING),
        "citations": Read(CITED),
    }
    SEARCH_RESULT_OF_USER = "search result block of the user" {
        "type": Read("`search_result`"),
        "source": Read("the second line of the text"),
        "title": Read("the first line of the text"),
        "content": Read("texts"),
        "flowgate": Read("the provenance of the block; without it, a file"),
        "cache_control": Dropped(CACHING),
        "citations": Read(CITED),
    }
    CITATIONS = "citations of a document or a search result" {
        "enabled": Read("the same for all documents of the request, and for all of its search results"),
    }
    URL = "source of an image or a document, by URL" {
        "type": Read("`url`"),
        "url": Refused(FETCHED),
    }
    FILE = "source of an image or a document, by a file" {
        "type": Read("`file`"),
        "file_id": Refused(PROVIDER_STATE),
    }
    BASE64 = "source of an image or a document, by content" {
        "type": Read("`base64`"),
        "media_type": Read("the media type; of a document `application/pdf`"),
        "data": Read("the content"),
    }
    PLAIN_TEXT = "source of a document, by text" {
        "type": Read("`text`"),
        "media_type": Only(&[r#""text/plain""#], "is supported only as `text/plain`"),
        "data": Read("labelled as a text in its place"),
    }
    TEXT_BLOCKS = "source of a document, by blocks" {
        "type": Read("`content`"),
        "content": Read("a text or text blocks, labelled as a text in its place"),
    }
    THOUGHT = "thinking block" {
        "type": Read("`thinking`"),
        "thinking": Dropped(OWN_COPY),
        "signature": Dropped(OWN_COPY),
        "cache_control": Dropped(CACHING),
    }
    REDACTED = "redacted thinking block" {
        "type": Read("`redacted_thinking`"),
        "data": Dropped(OWN_COPY),
        "cache_control": Dropped(CACHING),
    }
    USE = "tool use block" {
        "type": Read("`tool_use`"),
        "id": Read("the id of the call"),
        "name": Read("the tool"),
        "input": Read("the arguments"),
        "cache_control": Dropped(CACHING),
        "caller": Only(&[r#"{"type":"direct"}"#], "is supported only as `direct`: otherwise code at the provider would make calls that the policy does not judge"),
        "toolset_name": Refused("names tools that the provider defines; declare them as custom tools"),
    }
    RESULT = "tool result block" {
        "type": Read("`tool_result`"),
        "tool_use_id": Read("the id of the call"),
        "content": Read("labelled as the output of the tool"),
        "is_error": Read("whether the tool failed"),
        "cache_control": Dropped(CACHING),
        "toolset_name": Refused("names tools that the provider defines; declare them as custom tools"),
    }
    REFERENCE = "tool reference block" {
        "type": Read("`tool_reference`"),
        "tool_name": Read("shown to the model as text: every tool is on offer already"),
        "cache_control": Dropped(CACHING),
    }
}
