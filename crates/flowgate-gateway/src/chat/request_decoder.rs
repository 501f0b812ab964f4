//! Decodes the bodies of requests to model routes in the form of their API. `answer`, `count_tokens`, `embeddings` and
//! `guardrail` call the [`RequestDecoder`] of the client.

use flowgate_lm::chat::{Message, Request, Source, Sources};
use flowgate_lm::json::Json;
use flowgate_lm::wire::embeddings::EmbeddingsRequest;
use flowgate_lm::wire::{Api, DecodeOptions, ReceivedRequest, WireError};

/// Decodes the requests of one client.
#[derive(Debug)]
pub(crate) struct RequestDecoder {
    /// The fields and tools that the gateway does not understand and drops from the client's requests. Any other field
    /// or tool that the gateway does not understand is an error.
    dropped: DecodeOptions,
}

impl RequestDecoder {
    /// Creates the decoder for a client from whose requests the fields and tools in `dropped` are dropped.
    pub(crate) fn new(dropped: DecodeOptions) -> Self {
        Self { dropped }
    }

    /// Decodes the body of a request for a message of the model.
    ///
    /// # Errors
    /// If the body is no valid request of the API. The message tells the client where.
    pub(crate) fn decode(&self, api: Api, text: &str) -> Result<ReceivedRequest, String> {
        let body = parse(text)?;
        api.decode_request_dropping(&body, &self.dropped).map_err(|error| unsupported(api, &error))
    }

    /// Decodes the body of a request that asks for the number of its tokens, in an API with such requests.
    ///
    /// # Errors
    /// As for [`decode`](Self::decode).
    pub(crate) fn decode_count_request(&self, api: Api, text: &str) -> Result<Request, String> {
        let body = parse(text)?;
        let count = api.form().token_count.as_ref().ok_or(
            "this API has no request for the number of tokens: use an API that has one, such as `/v1/messages/count_tokens`",
        )?;
        count.decode(&body, &self.dropped).map_err(|error| unsupported(api, &error))
    }

    /// Decodes the body of a request for embeddings.
    ///
    /// # Errors
    /// As for [`decode`](Self::decode).
    pub(crate) fn decode_embeddings_request(&self, text: &str) -> Result<EmbeddingsRequest, String> {
        let body = parse(text)?;
        EmbeddingsRequest::decode(&body, &self.dropped)
            .map_err(|error| unsupported(Api::ChatCompletions, &error))
    }
}

/// Parses the body of a request. The error is a message for the client.
fn parse(text: &str) -> Result<Json<'_>, String> {
    Json::parse(text).map_err(|error| format!("the body of the request is not valid JSON: {error}"))
}

/// Returns the message to the client about a part of a request that the decoder of its API does not support.
fn unsupported(api: Api, error: &WireError) -> String {
    format!(
        "the gateway does not support a part of the request, and does not forward the request: {error} (the gateway \
        supports {}; docs/wire-forms.md lists the fields)",
        api.version()
    )
}

/// Sets the provenance of message parts that their client did not mark to `default_source`, if that is given.
pub(crate) fn with_default_provenance(
    mut sources: Sources,
    messages: &[Message],
    default_source: Option<Source>,
) -> Sources {
    if let Some(default_source) = default_source {
        sources.fill_missing(messages, default_source);
    }
    sources
}
