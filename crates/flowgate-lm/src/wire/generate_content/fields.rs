//! Declares the fields of requests in Gemini's format, for their decoder ([`super::request_decoder`]) and for
//! `docs/wire-forms.md`.

use super::super::documents::FETCHED;
use super::super::fields::{PROVIDER_TOOL, UNLABELLED_TOOL};
use super::super::known_fields::FieldRule::{Dropped, Only, Read, Refused};
use super::super::known_fields::{KnownFields, known_fields};

// Reasons that several fields share.
const OWN_COPY: &str = "the gateway keeps the reasoning and returns it to the model itself";
const PROVIDER_STATE: &str = "refers to state at the provider, which has no label; send the content itself";
const OPERATOR: &str = "is the operator's decision, not the client's; leave it out";
const NOT_TEXT: &str = "concerns speech, images or video, which no rule can judge; leave it out";
const PROVIDER_CALL: &str =
    "is of a tool that the provider runs, which the gateway does not offer; leave it out";
const OTHER_FILES: &str = "describes a file of another kind than images and PDFs; leave it out";
const RESOLUTION: &str = "affects only how many tokens an image takes";
const LIVE: &str = "is for sessions with the provider, which the gateway does not have; leave it out";
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
        "labels": Dropped("labels the request for its sender"),
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
        "topK": Dropped("is a kind of sampling that the gateway does not pass on; `topP` is"),
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
        "mcpServers": Refused(PROVIDER_TOOL),
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
        "retrievalConfig": Refused("is for tools that the provider runs, which the gateway does not offer; leave it out"),
        "includeServerSideToolInvocations": Only(&["false"], "is for tools that the provider runs, which the gateway does not offer; leave it out"),
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
        "partMetadata": Dropped("labels the part for its sender"),
    }
    PART_OF_MODEL = "part of the model" {
        "text": Read("labelled with its message"),
        "functionCall": Read("a call"),
        "thought": Read("if it is true, the text is dropped: the gateway keeps the reasoning and returns it to the model itself"),
        "thoughtSignature": Dropped(OWN_COPY),
        "partMetadata": Dropped("labels the part for its sender"),
        "inlineData": Refused("is an image or a file, which a content of the model cannot contain"),
        "fileData": Refused(FETCHED),
        "functionResponse": Refused("is the output of a tool, which belongs into a content of the user"),
        "executableCode": Refused(PROVIDER_CALL),
        "codeExecutionResult": Refused(PROVIDER_CALL),
        "toolCall": Refused(PROVIDER_CALL),
        "toolResponse": Refused(PROVIDER_CALL),
    }
    PART_OF_USER = "part of the user" {
        "text": Read("labelled by its provenance"),
        "inlineData": Read("an image or a PDF; after an output of a tool, it belongs to the output"),
        "functionResponse": Read("labelled as the output of the tool"),
        "flowgate": Read("the provenance of the part; without it, a PDF is a file"),
        "thought": Only(&["false"], "is supported only as false: a user has no reasoning"),
        "thoughtSignature": Dropped(OWN_COPY),
        "partMetadata": Dropped("labels the part for its sender"),
        "mediaResolution": Dropped(RESOLUTION),
        "fileData": Refused(FETCHED),
        "functionCall": Refused("is a call, which belongs into a content of the model"),
        "executableCode": Refused(PROVIDER_CALL),
        "codeExecutionResult": Refused(PROVIDER_CALL),
        "toolCall": Refused(PROVIDER_CALL),
        "toolResponse": Refused(PROVIDER_CALL),
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
