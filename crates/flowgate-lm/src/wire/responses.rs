//! Encodes and decodes OpenAI's Responses API. The gateway and `RemoteModel` use the format as
//! [`Api::Responses`](super::Api::Responses).
//!
//! This file contains the descriptor of the format (`FORM`) and the declared fields of requests. The submodules encode
//! and decode requests (`request`, and `request_decoder` with `input_items` and `tools`), answers (`response`),
//! streamed answers (`stream`), the ids of items (`item_ids`), the tools of the provider (`provider_tools`) and the MCP
//! servers that it calls (`mcp_servers`).
//!
//! Differences from the other formats:
//!
//! * Each request to a server contains the whole chat, and asks the server to store nothing (`store` is false).
//! * A client of the gateway may continue from an earlier answer (`previous_response_id`), and may refer to items of
//!   earlier answers (`item_reference`). It cannot refer to other stored state (`conversation`).
//! * Text and calls are separate items; a call belongs to the preceding message of the model.
//! * There are no stop sequences and no seed. A tool output cannot be marked as an error: only its content is sent.
//! * The model's reasoning is a list of items with encrypted content. Requests to a server and answers contain these
//!   items. The reasoning in a client's request is dropped, since the gateway has its own copy.

mod input_items;
mod item_ids;
mod mcp_servers;
mod provider_tools;
mod request;
mod request_decoder;
mod response;
mod stream;
mod tools;

use std::borrow::Cow;

use serde_json::Value;

use super::chat_completions::encode_model_list;
use super::documents::FETCHED;
use super::form::{Form, FormRoute, KeyHeader, decode_stream};
use super::known_fields::FieldRule::{Dropped, Only, Read, Refused};
use super::known_fields::{KnownFields, known_fields};
use super::put;
use super::status::encode_openai_error;
use crate::chat::Request;
use crate::sse::SseEvent;

use mcp_servers::declare_mcp_server;
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
    declare_mcp_server: Some(declare_mcp_server),
    remove_provider_items,
    objects: OBJECTS,
    path: |_, _| Cow::Borrowed("/responses"),
    unsupported_feature,
    encode_request,
    decode_request,
    encode_response,
    decode_response,
    is_response: |value| value.get("output").is_some(),
    // `_`: every stream of this format reports the token usage, so the caller cannot choose.
    encode_stream: |completion, pieces, head, (_, order)| encode_stream(completion, pieces, head, order),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error: encode_openai_error,
    encode_error_event,
    encode_model_list,
};

/// Returns the problem, with advice, of a request that has stop sequences, which the format cannot express; `None` for
/// any other request.
fn unsupported_feature(request: &Request) -> Option<&'static str> {
    let has_stop = !request.sampling.stop.is_empty();
    has_stop.then_some("the Responses API has no stop sequences; leave out `stop`")
}

/// Encodes the event that ends a stream with an error. `body` is the body of the error, to which the name of the event
/// is added.
fn encode_error_event(mut body: Value) -> SseEvent {
    put(&mut body, "type", "error");
    SseEvent::new("error", body.to_string())
}

// The fields of requests, for the decoder (`request_decoder`) and for `docs/wire-forms.md`.

// Reasons that several fields share.
const CACHING: &str = "affects only caching and cost";
const END_USER: &str = "identifies the end user to the provider";
const ITEM_ID: &str = "identifies an item of an earlier answer, whose content is in the item";
const PROVIDER_STATE: &str = "refers to state at the provider, which has no label; send the content itself";
const DIRECT: &str = "is supported only as `direct`: otherwise code at the provider would make calls that the policy does not judge";
const ASYNC: &str =
    "is supported only as false: otherwise the model would continue before the tool has answered";
const LOG_PROBABILITIES: &str =
    "asks for words that the model did not write, which no rule has judged; leave it out";
const OPERATOR: &str = "is the operator's decision, not the client's; leave it out";
const CALLERS: &str = "is supported only as `[\"direct\"]`: otherwise code at the provider would make calls that the policy does not judge";

known_fields! {
    REQUEST = "request" {
        "model": Read("the model, if the client may ask for it"),
        "input": Read("labelled item by item"),
        "instructions": Read("labelled as a system message"),
        "tools": Read("labelled as tool descriptions"),
        "tool_choice": Read("passed on for the first message of a turn"),
        "parallel_tool_calls": Read("passed on"),
        "max_output_tokens": Read("passed on"),
        "temperature": Read("passed on"),
        "top_p": Read("passed on"),
        "stream": Read("whether the reply is streamed"),
        "stream_options": Read("see below"),
        "reasoning": Read("passed on"),
        "include": Read("`reasoning.encrypted_content` is passed on; what concerns tools of the provider is dropped"),
        "text": Read("passed on"),
        "user": Dropped(END_USER),
        "safety_identifier": Dropped(END_USER),
        "metadata": Dropped("is a note of the sender about the request"),
        "client_metadata": Dropped("describes the client to the provider"),
        "prompt_cache_key": Dropped(CACHING),
        "prompt_cache_options": Dropped(CACHING),
        "prompt_cache_retention": Dropped(CACHING),
        "service_tier": Dropped("the operator's account decides on capacity"),
        "store": Dropped("the gateway stores every conversation, and the provider none"),
        "truncation": Dropped("the gateway decides what of the chat the model is shown"),
        "context_management": Dropped("the gateway decides what of the chat the model is shown"),
        "max_tool_calls": Read("limits the calls of tools of the provider in a turn, beside the gateway's own limit"),
        "background": Only(&["false"], "is supported only as false: a reply is judged before it is sent"),
        "background_options": Refused("configures replies in the background, which are not supported; leave it out"),
        "top_logprobs": Only(&["0"], LOG_PROBABILITIES),
        "previous_response_id": Read("continues the gateway's own conversation; see below"),
        "conversation": Refused(PROVIDER_STATE),
        "prompt": Refused(PROVIDER_STATE),
        "moderation": Refused("asks the provider to judge the conversation; the gateway judges it, so leave it out"),
        "access_programs": Refused(OPERATOR),
        "image": Refused("configures images that the model writes, which are not supported; leave it out"),
    }
    STREAM_OPTIONS = "request.stream_options" {
        "include_obfuscation": Dropped("the gateway sends text in pieces of its own"),
    }
    REASONING = "request.reasoning" {
        "effort": Read("passed on; in Anthropic's format as `output_config.effort`"),
        "summary": Read("passed on; the summaries are judged like replies"),
        "generate_summary": Dropped("the older name of `summary`"),
        "context": Only(&[r#""auto""#, r#""all_turns""#], "is supported only as `auto` or `all_turns`: the gateway returns the reasoning of all turns"),
        "mode": Refused("selects a way of reasoning that the gateway does not know; leave it out"),
    }
    TEXT = "request.text" {
        "verbosity": Read("passed on"),
        "format": Read("the form of the reply; see below"),
    }
    TEXT_FORMAT = "request.text.format, any text" {
        "type": Read("`text`"),
    }
    JSON_FORMAT = "request.text.format, any JSON" {
        "type": Read("`json_object`; refused if the upstream has Anthropic's format"),
    }
    SCHEMA_FORMAT = "request.text.format, by a schema" {
        "type": Read("`json_schema`"),
        "name": Read("labelled with the schema"),
        "description": Read("labelled with the schema"),
        "schema": Read("labelled as a message of the role `response_format`"),
        "strict": Read("passed on"),
    }
    FUNCTION = "function tool" {
        "type": Read("`function`"),
        "name": Read("the name of the tool"),
        "description": Read("labelled as a tool description"),
        "parameters": Read("labelled as a tool description"),
        "strict": Dropped("arguments are checked before the call runs, whatever the server enforces"),
        "defer_loading": Dropped("every tool is on offer from the start"),
        "output_schema": Dropped("outputs are labelled by the policy"),
        "allowed_callers": Only(&[r#"["direct"]"#], CALLERS),
        "async": Only(&["false"], ASYNC),
    }
    OF_PROVIDER = "tool that the provider runs" {
        "type": Read("`web_search` or `code_interpreter`; see below"),
        "filters": Read("see below"),
        "external_web_access": Read("passed on"),
        "search_context_size": Dropped("the provider decides on the length"),
        "search_content_types": Dropped("the output is text"),
        "user_location": Dropped("describes the client to the provider"),
        "container": Only(&[r#"{"type":"auto"}"#], "is supported only as `{\"type\":\"auto\"}`: another container has files or state without a label"),
    }
    FILTERS = "tool that the provider runs.filters" {
        "allowed_domains": Read("passed on"),
    }
    MCP_SERVER = "MCP server that the provider calls" {
        "type": Read("`mcp`"),
        "server_label": Read("the label of the server: the policy calls it `tool:mcp__LABEL`"),
        "server_url": Read("passed on for the calls; the model is shown its scheme and host"),
        "server_description": Read("labelled as a tool description"),
        "allowed_tools": Read("passed on"),
        "require_approval": Only(&[r#""never""#], "is supported only as `never`: the policy judges each call, and can ask a person"),
        "authorization": Read("passed on for the calls, and neither stored nor shown"),
        "headers": Read("passed on for the calls, and neither stored nor shown"),
        "connector_id": Refused("is a server of the provider, which has no address; put an MCP server with the same tools behind the gateway"),
        "tunnel_id": Refused("is a server without an address; put it behind the gateway"),
        "defer_loading": Dropped("every tool is on offer from the start"),
        "allowed_callers": Only(&[r#"["direct"]"#], CALLERS),
    }
    MCP_FILTER = "MCP server that the provider calls.allowed_tools" {
        "tool_names": Read("passed on"),
        "read_only": Refused("trusts what the server says about its tools; name the tools in `tool_names`"),
    }
    CUSTOM = "custom tool" {
        "type": Read("`custom`"),
        "name": Read("the name of the tool"),
        "description": Read("labelled as a tool description"),
        "format": Read("added to the description"),
        "defer_loading": Dropped("every tool is on offer from the start"),
        "allowed_callers": Only(&[r#"["direct"]"#], CALLERS),
        "async": Only(&["false"], ASYNC),
    }
    FORMAT = "format of a custom tool" {
        "type": Read("`text` or `grammar`"),
        "syntax": Read("added to the description"),
        "definition": Read("added to the description"),
    }
    NAMESPACE = "namespace of tools" {
        "type": Read("`namespace`"),
        "name": Read("becomes the beginning of the names of its tools"),
        "description": Read("added to the descriptions of its tools"),
        "tools": Read("functions and custom tools"),
    }
    ADDITIONAL_TOOLS = "item with additional tools" {
        "type": Read("`additional_tools`"),
        "role": Only(&[r#""developer""#], "is supported only as `developer`"),
        "tools": Read("labelled as tool descriptions, wherever the item is; see below"),
        "id": Dropped("identifies the item to the client"),
    }
    CHOICE = "request.tool_choice" {
        "type": Read("`function` or `custom`"),
        "name": Read("the tool that must be called"),
        "namespace": Read("the namespace of the tool"),
    }
    MESSAGE = "message of the model or the system" {
        "type": Only(&[r#""message""#], "is not `message`"),
        "role": Read("`assistant`, `system` or `developer`"),
        "content": Read("a text or parts"),
        "id": Dropped(ITEM_ID),
        "status": Dropped(ITEM_ID),
        "phase": Dropped("the answer is complete when the turn ends"),
    }
    USER = "message of the user" {
        "type": Only(&[r#""message""#], "is not `message`"),
        "role": Read("`user`"),
        "content": Read("a text or parts"),
        "flowgate": Read("the provenance of the message"),
        "id": Dropped(ITEM_ID),
        "status": Dropped(ITEM_ID),
        "phase": Dropped("the answer is complete when the turn ends"),
    }
    REFERENCE = "reference to an item" {
        "type": Read("`item_reference`"),
        "id": Read("an item of the gateway's own answers; see below"),
    }
    THOUGHT = "reasoning item" {
        "type": Read("`reasoning`"),
        "id": Dropped(ITEM_ID),
        "summary": Dropped("the gateway keeps the reasoning and returns it to the model itself"),
        "content": Dropped("the gateway keeps the reasoning and returns it to the model itself"),
        "encrypted_content": Dropped("the gateway keeps the reasoning and returns it to the model itself"),
        "status": Dropped(ITEM_ID),
    }
    CALL = "function call item" {
        "type": Read("`function_call`"),
        "call_id": Read("the id of the call"),
        "name": Read("the tool"),
        "namespace": Read("the namespace of the tool"),
        "arguments": Read("the arguments"),
        "id": Dropped(ITEM_ID),
        "status": Dropped(ITEM_ID),
        "caller": Only(&[r#"{"type":"direct"}"#], DIRECT),
        "async": Only(&["false"], ASYNC),
    }
    CUSTOM_CALL = "custom tool call item" {
        "type": Read("`custom_tool_call`"),
        "call_id": Read("the id of the call"),
        "name": Read("the tool"),
        "namespace": Read("the namespace of the tool"),
        "input": Read("becomes the argument `input`"),
        "id": Dropped(ITEM_ID),
        "status": Dropped(ITEM_ID),
        "caller": Only(&[r#"{"type":"direct"}"#], DIRECT),
        "async": Only(&["false"], ASYNC),
    }
    OUTPUT = "output of a call" {
        "type": Read("`function_call_output` or `custom_tool_call_output`"),
        "call_id": Read("the id of the call"),
        "output": Read("labelled as the output of the tool"),
        "flowgate": Read("whether the tool failed"),
        "id": Dropped(ITEM_ID),
        "name": Dropped("the call names the tool"),
        "namespace": Dropped("the call names the tool"),
        "status": Dropped(ITEM_ID),
        "caller": Only(&[r#"{"type":"direct"}"#], DIRECT),
    }
    TEXT_PART = "text part" {
        "type": Read("`input_text` or `output_text`"),
        "text": Read("labelled with its message"),
        "prompt_cache_breakpoint": Dropped(CACHING),
        "annotations": Only(&["[]"], "is supported only when empty: it refers to state at the provider"),
        "logprobs": Only(&["[]"], LOG_PROBABILITIES),
    }
    TEXT_PART_OF_USER = "text part of the user" {
        "type": Read("`input_text` or `output_text`"),
        "text": Read("labelled by its provenance"),
        "flowgate": Read("the provenance of the part"),
        "prompt_cache_breakpoint": Dropped(CACHING),
        "annotations": Only(&["[]"], "is supported only when empty: it refers to state at the provider"),
        "logprobs": Only(&["[]"], LOG_PROBABILITIES),
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
        "type": Read("`input_image`"),
        "image_url": Read("the content in base64"),
        "detail": Dropped("the provider decides on the resolution"),
        "prompt_cache_breakpoint": Dropped(CACHING),
        "file_id": Refused(PROVIDER_STATE),
    }
    IMAGE_PART_OF_USER = "image part of the user" {
        "type": Read("`input_image`"),
        "image_url": Read("the content in base64"),
        "flowgate": Read("the provenance of the part"),
        "detail": Dropped("the provider decides on the resolution"),
        "prompt_cache_breakpoint": Dropped(CACHING),
        "file_id": Refused(PROVIDER_STATE),
    }
    FILE_PART = "file part" {
        "type": Read("`input_file`"),
        "file_data": Read("the content of a PDF in base64"),
        "filename": Dropped("the provider receives another name, since this one is text without a label"),
        "detail": Dropped("the provider decides on the resolution"),
        "prompt_cache_breakpoint": Dropped(CACHING),
        "file_id": Refused(PROVIDER_STATE),
        "file_url": Refused(FETCHED),
    }
    FILE_PART_OF_USER = "file part of the user" {
        "type": Read("`input_file`"),
        "file_data": Read("the content of a PDF in base64"),
        "flowgate": Read("the provenance of the part; without it, a file"),
        "filename": Dropped("the provider receives another name, since this one is text without a label"),
        "detail": Dropped("the provider decides on the resolution"),
        "prompt_cache_breakpoint": Dropped(CACHING),
        "file_id": Refused(PROVIDER_STATE),
        "file_url": Refused(FETCHED),
    }
}
