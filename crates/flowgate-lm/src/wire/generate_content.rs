//! Encodes and decodes Gemini's API: `generateContent`, and `streamGenerateContent` for streams. In this format, a chat
//! is a list of "contents" (one for each message), and a content is a list of parts. The gateway and `RemoteModel` use
//! the format as [`Api::GenerateContent`](super::Api::GenerateContent).
//!
//! This file contains the descriptor of the format and the declared fields of requests. The submodules encode and
//! decode requests (`request`, and `request_decoder` with `content`, `schema` and `tools`), answers (`response`),
//! streamed answers (`stream`), addresses (`target`) and the tools of the provider (`provider_tools`).
//!
//! Differences from the other formats:
//!
//! * The address names the model, and says whether the answer is streamed ([`Target`]). The body says neither.
//! * System messages at the beginning are sent in the field `systemInstruction`, with each of their parts as one part
//!   of this field. A later system message, or one with an image, is sent at its position as a user's content.
//! * Consecutive tool outputs form one content. An image or a PDF that follows an output in the same content belongs to
//!   this output, unless it declares a provenance of its own.
//! * A client may leave out the ids of calls. A call without an id gets one from its position in the chat, and an
//!   output without an id answers the first call of its tool that has no answer, so that equal chats have equal ids.
//! * The arguments of a call and the output of a tool are objects. Arguments that are not an object are sent in the
//!   field `unparsed` of an object. An output that is a text is sent in the field `output` or `error` of an object.
//!   Decoded arguments are serialised again and lose their white space, also in streams.
//! * Consecutive contents of the model are one message: some clients store each event of a stream as a content.
//! * A stream has no event that ends it: it ends with the event that states the finish reason.
//! * The model's reasoning consists of parts with the field `thought`. The server signs calls and texts; the signatures
//!   are sent back with the same call or text. The reasoning in a client's request is dropped: the gateway has its own
//!   copy.

mod content;
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

use super::documents::FETCHED;
use super::fields::{PROVIDER_RECORD, PROVIDER_TOOL, UNLABELLED_TOOL};
use super::form::{Form, FormRoute, KeyHeader, TokenCountRequest, decode_stream};
use super::known_fields::FieldRule::{Dropped, Only, Read, Refused};
use super::known_fields::{KnownFields, known_fields};
use super::status::error_names;
use crate::sse::SseEvent;

pub use content::CALL_ID;
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
    declare_mcp_server: None,
    remove_provider_items,
    objects: OBJECTS,
    path: |model, stream| Cow::Owned(target::path(model, stream)),
    unsupported_feature: |_| None,
    // `_`: the address says whether the answer is streamed, and the body does not.
    encode_request: |request, model, _| encode_request(request, model),
    decode_request,
    encode_response,
    decode_response,
    is_response: |value| value.get("candidates").is_some(),
    // `_`: every stream of this format reports the token usage, so the caller cannot choose.
    encode_stream: |completion, pieces, head, (_, order)| encode_stream(completion, pieces, head, order),
    decoder: || Box::new(StreamDecoder::default()),
    encode_error,
    encode_error_event: |body| SseEvent::new("", body.to_string()),
    encode_model_list,
};

/// Encodes the body of an error with Gemini's name for the HTTP status.
fn encode_error(status: u16, message: &str) -> Value {
    json!({"error": {"code": status, "message": message, "status": error_names(status).gemini}})
}

/// Encodes the list of the models with these names, for clients that list the models of the gateway. The format has no
/// field for their owner.
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

// The fields of requests, for the decoder (`request_decoder`) and for `docs/wire-forms.md`.

// Reasons that several fields share.
const OWN_COPY: &str = "the gateway keeps the reasoning and returns it to the model itself";
const PROVIDER_STATE: &str = "refers to state at the provider, which has no label; send the content itself";
const OPERATOR: &str = "is the operator's decision, not the client's; leave it out";
const NOT_TEXT: &str = "concerns speech, images or video, which no rule can judge; leave it out";
const OTHER_FILES: &str = "describes a file that is neither an image nor a PDF; leave it out";
const RESOLUTION: &str = "affects only how many tokens an image takes";
const LIVE: &str = "is for live sessions with the provider, which the gateway does not have; leave it out";
const SENT_LATER: &str = "arguments are sent after the call was judged";

known_fields! {
    REQUEST = "request" {
        "contents": Read("labelled one by one"),
        "systemInstruction": Read("labelled as a system message"),
        "tools": Read("labelled as tool descriptions"),
        "toolConfig": Read("see below"),
        "generationConfig": Read("see below"),
        "model": Dropped("the address names the model"),
        "safetySettings": Dropped("the operator's account decides on the provider's filters"),
        "labels": Dropped("is a note of the sender about the request"),
        "serviceTier": Dropped("the operator's account decides on capacity"),
        "store": Dropped("the provider stores nothing: the gateway sends whole conversations"),
        "cachedContent": Refused(PROVIDER_STATE),
        "continuationToken": Refused(PROVIDER_STATE),
    }
    COUNT = "request for a number of tokens" {
        "contents": Read("counted"),
        "generateContentRequest": Read("a request, which is counted as a whole"),
    }
    CONFIG = "request.generationConfig" {
        "maxOutputTokens": Read("passed on"),
        "temperature": Read("passed on"),
        "topP": Read("passed on"),
        "seed": Read("passed on"),
        "stopSequences": Read("passed on"),
        "responseMimeType": Read("`text/plain`, or `application/json` for JSON"),
        "responseSchema": Read("labelled as a message of the role `response_format`"),
        "responseJsonSchema": Read("labelled as a message of the role `response_format`"),
        "thinkingConfig": Read("see below"),
        "topK": Dropped("is a kind of sampling that the gateway does not pass on; it passes on `topP`"),
        "mediaResolution": Dropped(RESOLUTION),
        "candidateCount": Only(&["1"], "is supported only as 1: a conversation continues with one message of the model"),
        "responseLogprobs": Only(&["false"], "asks for words that the model did not write, which no rule has judged; leave it out"),
        "logprobs": Only(&["0"], "asks for words that the model did not write, which no rule has judged; leave it out"),
        "presencePenalty": Only(&["0", "0.0"], "is supported only as 0: the gateway passes on no penalties"),
        "frequencyPenalty": Only(&["0", "0.0"], "is supported only as 0: the gateway passes on no penalties"),
        "responseModalities": Only(&[r#"["TEXT"]"#], NOT_TEXT),
        "enableEnhancedCivicAnswers": Only(&["false"], "lets the provider look up more than the gateway sees; leave it out"),
        "enableAffectiveDialog": Only(&["false"], NOT_TEXT),
        "audioTimestamp": Only(&["false"], NOT_TEXT),
        "responseFormat": Refused("is another way to ask for a form of the reply; use `responseMimeType` and `responseJsonSchema`"),
        "speechConfig": Refused(NOT_TEXT),
        "imageConfig": Refused(NOT_TEXT),
        "audioTranscriptionConfig": Refused(NOT_TEXT),
        "translationConfig": Refused(NOT_TEXT),
        "routingConfig": Refused(OPERATOR),
        "modelSelectionConfig": Refused(OPERATOR),
        "modelConfig": Refused(OPERATOR),
    }
    THINKING = "request.generationConfig.thinkingConfig" {
        "includeThoughts": Read("whether the client receives the reasoning"),
        "thinkingBudget": Read("passed on; -1 lets the model decide, 0 turns reasoning off"),
        "thinkingLevel": Read("passed on; in the other formats as the effort of the reasoning"),
    }
    TOOL = "tool" {
        "functionDeclarations": Read("labelled as tool descriptions"),
        "googleSearch": Refused(UNLABELLED_TOOL),
        "googleSearchRetrieval": Refused(PROVIDER_TOOL),
        "googleMaps": Refused(PROVIDER_TOOL),
        "enterpriseWebSearch": Refused(PROVIDER_TOOL),
        "parallelAiSearch": Refused(PROVIDER_TOOL),
        "exaAiSearch": Refused(PROVIDER_TOOL),
        "retrieval": Refused(PROVIDER_TOOL),
        "fileSearch": Refused(PROVIDER_TOOL),
        "urlContext": Refused(UNLABELLED_TOOL),
        "codeExecution": Refused(UNLABELLED_TOOL),
        "mcpServers": Refused("is supported only in the forms of Responses and Messages; put the server behind the gateway, or leave it out"),
        "computerUse": Refused("is a tool whose arguments only the provider describes; declare it as a function"),
    }
    OF_PROVIDER = "tool that the provider runs" {
        "timeRangeFilter": Refused("restricts the search, and the gateway does not pass it on; leave it out"),
        "excludeDomains": Refused("restricts the search, and the gateway does not pass it on; leave it out"),
        "searchTypes": Refused("changes the search, and the gateway does not pass it on; leave it out"),
    }
    FUNCTION = "function declaration" {
        "name": Read("the name of the tool"),
        "description": Read("labelled as a tool description"),
        "parameters": Read("labelled as a tool description"),
        "parametersJsonSchema": Read("labelled as a tool description"),
        "response": Dropped("the outputs describe themselves"),
        "responseJsonSchema": Dropped("the outputs describe themselves"),
        "behavior": Only(&[r#""BLOCKING""#, r#""UNSPECIFIED""#], LIVE),
    }
    TOOL_CONFIG = "request.toolConfig" {
        "functionCallingConfig": Read("see below"),
        "retrievalConfig": Refused("configures searches of maps and data stores, which the gateway does not offer; leave it out"),
        "includeServerSideToolInvocations": Only(&["false"], "is supported only as false: the client receives neither the calls nor the outputs of tools of the provider"),
    }
    CHOICE = "request.toolConfig.functionCallingConfig" {
        "mode": Read("`AUTO`, `VALIDATED`, `ANY` or `NONE`; passed on for the first message of a turn"),
        "allowedFunctionNames": Read("the tool that must be called, or all tools"),
        "streamFunctionCallArguments": Dropped(SENT_LATER),
    }
    SYSTEM = "request.systemInstruction" {
        "role": Dropped("it is a system message, whatever its role"),
        "parts": Read("texts"),
    }
    CONTENT_OF_MODEL = "content of the model" {
        "role": Read("`model`"),
        "parts": Read("see below"),
    }
    CONTENT_OF_USER = "content of the user" {
        "role": Read("`user`, or `function` for outputs of tools"),
        "parts": Read("see below"),
        "flowgate": Read("the provenance of the content"),
    }
    PART_OF_SYSTEM = "part of the system instruction" {
        "text": Read("labelled with its message"),
        "thought": Only(&["false"], "is supported only as false: a system message has no reasoning"),
        "partMetadata": Dropped("is a note of the sender about the part"),
    }
    PART_OF_MODEL = "part of the model" {
        "text": Read("labelled with its message"),
        "functionCall": Read("a call"),
        "thought": Read("if it is true, the text is dropped: the gateway keeps the reasoning and returns it to the model itself"),
        "thoughtSignature": Dropped(OWN_COPY),
        "partMetadata": Dropped("is a note of the sender about the part"),
        "inlineData": Refused("is an image or a file, which a content of the model cannot contain; send it in a content of the user"),
        "fileData": Refused(FETCHED),
        "functionResponse": Refused("is the output of a tool; send it in a content of the user"),
        "executableCode": Refused(PROVIDER_RECORD),
        "codeExecutionResult": Refused(PROVIDER_RECORD),
        "toolCall": Refused(PROVIDER_RECORD),
        "toolResponse": Refused(PROVIDER_RECORD),
    }
    PART_OF_USER = "part of the user" {
        "text": Read("labelled by its provenance"),
        "inlineData": Read("an image or a PDF; after an output of a tool, it belongs to the output"),
        "functionResponse": Read("labelled as the output of the tool"),
        "flowgate": Read("the provenance of the part; without it, a PDF is a file"),
        "thought": Only(&["false"], "is supported only as false: a user has no reasoning"),
        "thoughtSignature": Dropped(OWN_COPY),
        "partMetadata": Dropped("is a note of the sender about the part"),
        "mediaResolution": Dropped(RESOLUTION),
        "fileData": Refused(FETCHED),
        "functionCall": Refused("is a call; send it in a content of the model"),
        "executableCode": Refused(PROVIDER_RECORD),
        "codeExecutionResult": Refused(PROVIDER_RECORD),
        "toolCall": Refused(PROVIDER_RECORD),
        "toolResponse": Refused(PROVIDER_RECORD),
        "videoMetadata": Refused(OTHER_FILES),
        "audioTranscription": Refused(OTHER_FILES),
        "mediaProcessing": Refused(OTHER_FILES),
        "speechMetadata": Refused(OTHER_FILES),
        "documentMetadata": Refused(OTHER_FILES),
        "spreadsheetMetadata": Refused(OTHER_FILES),
        "audioMetadata": Refused(OTHER_FILES),
    }
    BLOB = "inline data" {
        "mimeType": Read("the media type: that of an image, or `application/pdf`"),
        "data": Read("the content in base64"),
        "displayName": Dropped("the content identifies the file"),
    }
    CALL = "function call" {
        "id": Read("the id of the call; without it, its position is the id"),
        "name": Read("the tool"),
        "args": Read("the arguments"),
        "partialArgs": Refused("is a piece of arguments; send whole calls"),
        "willContinue": Only(&["false"], "is a piece of arguments; send whole calls"),
    }
    OUTPUT = "function response" {
        "id": Read("the id of the call; without it, the output is that of the first open call of this tool"),
        "name": Read("the tool"),
        "response": Read("labelled as the output of the tool; the field `error` alone says that the tool failed"),
        "parts": Read("images and PDFs of the output"),
        "willContinue": Only(&["false"], LIVE),
        "scheduling": Refused(LIVE),
    }
    OUTPUT_PART = "part of a function response" {
        "inlineData": Read("an image or a PDF"),
        "mediaResolution": Dropped(RESOLUTION),
        "fileData": Refused(FETCHED),
        "videoMetadata": Refused(OTHER_FILES),
        "mediaProcessing": Refused(OTHER_FILES),
        "documentMetadata": Refused(OTHER_FILES),
        "spreadsheetMetadata": Refused(OTHER_FILES),
        "audioMetadata": Refused(OTHER_FILES),
    }
}
