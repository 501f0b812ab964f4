//! Defines [`Form`], the descriptor of one format: its names, its addresses and headers, and its encoders and decoders.
//! Also defines [`Decoder`], which decodes the streams of any format.
//!
//! Each format declares its descriptor in the file with its name, and [`Api::form`](super::Api::form) returns the
//! descriptor. The functions of `Api`, the gateway, the command line and the Python package read the descriptors, so
//! that their code need not distinguish the formats.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::known_fields::KnownFields;
use super::provider_tools::{ProviderItems, ProviderToolForm};
use super::{DecodeOptions, ReasoningOrder, ReceivedRequest, ReportedPiece, ResponseHead, WireError};
use crate::Error;
use crate::chat::{Completion, McpLabel, ProviderMcpServer, Request};
use crate::json::Json;
use crate::model::Listener;
use crate::sse::SseEvent;

/// The type of a function that encodes an answer as a stream. The second parameter is the text of the answer in pieces,
/// each of which becomes one event. The last parameter says whether the stream also reports the token usage, and at
/// which position the stream has the reasoning.
type EncodeStream = fn(&Completion, &[&str], ResponseHead<'_>, (bool, ReasoningOrder)) -> Vec<SseEvent>;

/// The descriptor of a format.
#[derive(Debug)]
pub struct Form {
    /// The name in configurations and on the command line.
    pub name: &'static str,
    /// The name in the Python package.
    pub python_name: &'static str,
    /// The description of the format that the command line shows.
    pub description: &'static str,
    /// The version of the format that is understood.
    pub version: &'static str,
    /// The name that the conventions of OpenTelemetry have for the provider.
    pub provider: &'static str,
    /// The routes of a server of this format.
    pub routes: &'static [FormRoute],
    /// The beginning of the paths that only this format has, by which the gateway recognises the format of a request
    /// with an unknown path; `None` if the format shares its paths with others.
    pub own_prefix: Option<&'static str>,
    /// The header in which a client sends its key.
    pub key_header: KeyHeader,
    /// The header that requests beta features by their names; `None` if the format has no such header.
    pub betas_header: Option<&'static str>,
    /// The beginning of the identifiers of answers.
    pub id_prefix: &'static str,
    /// Whether servers of this format compute embeddings.
    pub has_embeddings: bool,
    /// Whether clients may leave out the ids of calls. In such a format, an answer gives each call an id with its
    /// position in the chat.
    pub numbers_calls: bool,
    /// How a client asks for the number of tokens of a request; `None` if the format has no such request.
    pub token_count: Option<TokenCountRequest>,
    /// Whether the format sends the text of a refusal in a field of its own. In such a format, an answer whose
    /// beginning was already sent as ordinary text cannot become a refusal.
    pub(super) separates_refusals: bool,
    /// The number of events before the first piece of text in the stream of an answer without reasoning. `writer` needs
    /// it to find the event with the text.
    pub(super) events_before_text: usize,
    /// The tools of the provider that servers of this format can run.
    pub(super) provider_tools: &'static [ProviderToolForm],
    /// Writes the declaration of an MCP server that the provider is to call into the body of a request, in place of all
    /// tools. The function returns false, and leaves the body as it is, if the format cannot express what the client's
    /// request says about the server. `None` if providers with this format call no MCP servers.
    pub(super) declare_mcp_server: Option<fn(&McpLabel, &ProviderMcpServer, &mut Value) -> bool>,
    /// Removes from the body of an answer the items that tools of the provider have added next to the text, and returns
    /// a summary of these items.
    pub(super) remove_provider_items: fn(&mut Value) -> ProviderItems,
    /// The objects that requests consist of, with the rules of their fields.
    pub(super) objects: &'static [KnownFields],
    /// Returns the path, below a server's base address, at which a model answers; if `stream` is true, in a stream.
    pub(super) path: fn(model: &str, stream: bool) -> Cow<'static, str>,
    /// Returns a description, with advice, of a feature of the request that the format cannot express and without which
    /// the answer would be wrong; `None` if there is no such feature.
    pub(super) unsupported_feature: fn(&Request) -> Option<&'static str>,
    /// Encodes the body of a request to a model; if `stream` is true, asks for a streamed answer.
    pub(super) encode_request: fn(&Request, model: &str, stream: bool) -> Value,
    /// Decodes the body of a request. The options say what the decoder drops or accepts in addition.
    pub(super) decode_request: fn(&Json<'_>, &DecodeOptions) -> Result<ReceivedRequest, WireError>,
    /// Encodes the body of an answer that is not streamed.
    pub(super) encode_response: fn(&Completion, ResponseHead<'_>) -> Value,
    /// Decodes the body of an answer that is not streamed.
    pub(super) decode_response: fn(&Value) -> Result<Completion, Error>,
    /// Returns whether a JSON value has the fields that only answers of this format have.
    pub(super) is_response: fn(&Value) -> bool,
    /// Encodes an answer as a stream; see [`EncodeStream`].
    pub(super) encode_stream: EncodeStream,
    /// Creates a decoder of streams.
    pub(super) decoder: fn() -> Box<dyn DecodeStream>,
    /// Encodes the body of an error with this HTTP status.
    pub(super) encode_error: fn(status: u16, message: &str) -> Value,
    /// Encodes the event that ends a stream after a failure. The parameter is the body of the error.
    pub(super) encode_error_event: fn(Value) -> SseEvent,
    /// Encodes the list of the models with these names, which belong to `owner`.
    pub(super) encode_model_list: fn(names: &[&str], owner: &str) -> Value,
}

impl Form {
    /// Returns whether the address of a request names the model and says whether the answer is streamed; if not, the
    /// body does.
    #[must_use]
    pub fn is_addressed(&self) -> bool {
        self.routes.iter().any(|route| matches!(route, FormRoute::ModelMethod(_)))
    }
}

/// A route that a server of a format has, with its path.
///
/// The enumeration is exhaustive on purpose: a server has to serve every kind of route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormRoute {
    /// Asks for an answer of a model.
    Answer(&'static str),
    /// Calls a method of a model. The path has the parameter `target`, which names the model and the method.
    ModelMethod(&'static str),
    /// Asks for the number of tokens of a request.
    CountTokens(&'static str),
    /// Asks for the list of models, at a path that only this format has.
    ModelList(&'static str),
}

/// The HTTP header in which a client sends its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHeader {
    /// The name of the header, in lower case.
    pub name: &'static str,
    /// The text before the key in the value of the header, such as `Bearer `.
    pub prefix: &'static str,
}

impl KeyHeader {
    /// The header `Authorization: Bearer KEY`.
    pub const BEARER: Self = Self { name: "authorization", prefix: "Bearer " };
}

/// How a client asks for the number of tokens that a request has.
#[derive(Debug)]
pub struct TokenCountRequest {
    /// The field of the answer with the number.
    pub answer_field: &'static str,
    /// Decodes the body of the request. The options say what the decoder drops or accepts in addition.
    pub(super) decode: fn(&Json<'_>, &DecodeOptions) -> Result<Request, WireError>,
}

impl TokenCountRequest {
    /// Decodes the body by which a client asks for a number of tokens, and returns the request whose tokens are to be
    /// counted. `options` says what the decoder drops or accepts in addition.
    ///
    /// # Errors
    /// In the same cases as for a request for an answer.
    pub fn decode(&self, body: &Json<'_>, options: &DecodeOptions) -> Result<Request, WireError> {
        (self.decode)(body, options)
    }
}

/// The decoder of the streams of one format, which [`Decoder`] contains.
pub(super) trait DecodeStream: fmt::Debug + Send + Sync {
    /// Decodes the next event, and passes its pieces to the listener.
    fn feed(&mut self, event: &SseEvent, listener: &mut dyn Listener) -> Result<(), Error>;

    /// Returns whether the answer is complete.
    fn is_done(&self) -> bool;

    /// Returns the answer; fails if the stream ended before the answer was complete.
    fn finish(self: Box<Self>) -> Result<Completion, Error>;

    /// Takes the citations that the stream has reported; none in formats without citations.
    fn take_citations(&mut self) -> Vec<ReportedPiece> {
        Vec::new()
    }
}

/// Implements [`DecodeStream`] for a type that has its own functions `feed`, `is_done` and `finish`: each method of the
/// trait calls the function of the same name. The implementation of `take_citations` can follow in braces, for a format
/// with citations.
macro_rules! decode_stream {
    ($decoder:ty $(, { $($further:tt)* })?) => {
        impl crate::wire::form::DecodeStream for $decoder {
            fn feed(
                &mut self,
                event: &crate::sse::SseEvent,
                listener: &mut dyn crate::model::Listener,
            ) -> Result<(), crate::Error> {
                <$decoder>::feed(self, event, listener)
            }

            fn is_done(&self) -> bool {
                <$decoder>::is_done(self)
            }

            fn finish(self: Box<Self>) -> Result<crate::chat::Completion, crate::Error> {
                <$decoder>::finish(*self)
            }

            $($($further)*)?
        }
    };
}
pub(super) use decode_stream;

/// Decodes the stream of one answer, event by event, in the format that created this decoder.
#[derive(Debug)]
pub struct Decoder(pub(super) Box<dyn DecodeStream>);

impl Decoder {
    /// Decodes the next event, and passes its pieces to the listener.
    ///
    /// # Errors
    /// If the event violates the format, the server reports an error, or the listener cancels.
    pub fn feed(&mut self, event: &SseEvent, listener: &mut dyn Listener) -> Result<(), Error> {
        self.0.feed(event, listener)
    }

    /// Returns whether the answer is complete. Later events are ignored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// If the stream ended before the answer was complete.
    pub fn finish(self) -> Result<Completion, Error> {
        self.0.finish()
    }

    /// Takes the citations that the stream has reported.
    pub(crate) fn take_citations(&mut self) -> Vec<ReportedPiece> {
        self.0.take_citations()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Api;
    use super::*;

    #[test]
    fn a_name_belongs_to_one_form() {
        for (index, api) in Api::ALL.into_iter().enumerate() {
            let form = api.form();
            assert_eq!(Api::named(form.name), Some(api));
            for other in Api::ALL.into_iter().skip(index + 1).map(Api::form) {
                assert_ne!(form.python_name, other.python_name);
                assert_ne!(form.id_prefix, other.id_prefix);
                assert!(form.routes.iter().all(|route| !other.routes.contains(route)), "{}", form.name);
            }
        }
        assert_eq!(Api::named("openai"), None);
    }

    #[test]
    fn a_path_belongs_to_one_form() {
        for api in Api::ALL {
            let path = api.path("m", true);
            assert_eq!(Api::of_path(&path).map(|(found, _)| found), Some(api), "{path}");
        }
        for path in ["", "/", "/v1/messages", "/models/m", "/completions"] {
            assert_eq!(Api::of_path(path), None, "{path}");
        }
    }

    #[test]
    fn an_answer_is_recognised_by_its_fields() {
        let head = ResponseHead {
            id: "r",
            model: "m",
            created: 1,
            tools: &super::super::ONLY_FUNCTIONS,
            storage: super::super::AnswerStorage::NotStored,
        };
        for api in Api::ALL {
            let body = api.encode_response(&Completion::default(), head);
            assert_eq!(Api::of_response(&body), Some(api), "{body}");
        }
        assert_eq!(Api::of_response(&json!({"role": "assistant", "content": "a"})), None);
    }

    /// An API that counts tokens has a route for it: one of its own, or a method of a model.
    #[test]
    fn token_counts_have_a_route() {
        for form in Api::ALL.map(Api::form) {
            let has_route = form.routes.iter().any(|route| matches!(route, FormRoute::CountTokens(_)));
            assert_eq!(form.token_count.is_some(), has_route || form.is_addressed(), "{}", form.name);
        }
    }

    #[test]
    fn model_lists_name_the_models() {
        for (api, expected) in [
            (
                Api::ChatCompletions,
                r#"{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"o"}]}"#,
            ),
            (
                Api::Responses,
                r#"{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"o"}]}"#,
            ),
            (
                Api::Messages,
                r#"{"first_id":"a","last_id":"a","has_more":false,"data":[{"type":"model","id":"a","display_name":"a","created_at":"1970-01-01T00:00:00Z"}]}"#,
            ),
            (
                Api::GenerateContent,
                r#"{"models":[{"name":"models/a","displayName":"a","supportedGenerationMethods":["generateContent","countTokens"]}]}"#,
            ),
        ] {
            assert_eq!(api.encode_model_list(&["a"], "o").to_string(), expected, "{api:?}");
        }
    }
}
