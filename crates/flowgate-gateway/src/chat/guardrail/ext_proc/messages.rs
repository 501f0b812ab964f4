//! Defines the messages that Envoy and its external processor exchange (`envoy.service.ext_proc.v3`), with the fields
//! that the gateway reads or writes. Other fields are ignored when a message is decoded, and absent when one is
//! encoded. `http::service` decodes and encodes the messages, and `ext_proc` answers them.

/// A message of Envoy about one HTTP request and its response.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessingRequest {
    #[prost(oneof = "ProcessingEvent", tags = "2, 3, 4, 5, 6, 7")]
    pub(super) event: Option<ProcessingEvent>,
    /// Whether Envoy ignores what the processor answers.
    #[prost(bool, tag = "10")]
    pub(super) observability_mode: bool,
    /// How Envoy sends bodies; only the first message of a stream has it.
    #[prost(message, optional, tag = "11")]
    pub(super) protocol_config: Option<ProtocolConfiguration>,
}

/// What has arrived at Envoy.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ProcessingEvent {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(Ignored),
    #[prost(message, tag = "7")]
    ResponseTrailers(Ignored),
}

/// A message of which nothing is read.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Ignored {}

/// How Envoy sends bodies. The numbers are those of `ProcessingMode.BodySendMode`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProtocolConfiguration {
    #[prost(int32, tag = "1")]
    pub(super) request_body_mode: i32,
    #[prost(int32, tag = "2")]
    pub(super) response_body_mode: i32,
}

/// The mode in which a body arrives in one piece.
pub(super) const BUFFERED: i32 = 2;

/// The headers of a request or a response, with the pseudo-headers of HTTP/2 such as `:path`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(super) headers: Option<HeaderMap>,
    /// Whether there is no body.
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

/// A list of headers.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<HeaderValue>,
}

/// A header; Envoy writes the value in `raw_value`. Only one of `value` and `raw_value` may be set.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) raw_value: Vec<u8>,
}

/// The body of a request or a response, or a piece of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpBody {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) body: Vec<u8>,
    /// Whether this is the end of the body.
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

/// The answer to a message of Envoy.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessingResponse {
    #[prost(oneof = "ProcessingAnswer", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) answer: Option<ProcessingAnswer>,
}

/// What Envoy is to do.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ProcessingAnswer {
    #[prost(message, tag = "1")]
    RequestHeaders(CommonAnswer),
    #[prost(message, tag = "2")]
    ResponseHeaders(CommonAnswer),
    #[prost(message, tag = "3")]
    RequestBody(CommonAnswer),
    #[prost(message, tag = "4")]
    ResponseBody(CommonAnswer),
    #[prost(message, tag = "5")]
    RequestTrailers(Ignored),
    #[prost(message, tag = "6")]
    ResponseTrailers(Ignored),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// Lets Envoy continue: `HeadersResponse` and `BodyResponse`, which have the same form.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CommonAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<CommonResponse>,
}

/// What Envoy changes before it continues.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub(super) header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub(super) body_mutation: Option<BodyMutation>,
}

/// The headers that Envoy sets and removes.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub(super) set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub(super) remove_headers: Vec<String>,
}

/// A header that Envoy sets.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
}

/// Replaces a body.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BodyMutation {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) body: Vec<u8>,
}

/// Ends the HTTP request with a response of the processor.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) headers: Option<HeaderMutation>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) body: Vec<u8>,
}

/// The status of a response.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

impl ProcessingResponse {
    /// Creates the message with this answer.
    pub(super) fn of(answer: ProcessingAnswer) -> Self {
        Self { answer: Some(answer) }
    }
}

impl CommonAnswer {
    /// Lets Envoy continue without these headers.
    pub(super) fn without_headers(names: &[&str]) -> Self {
        let remove_headers = names.iter().map(|name| (*name).to_owned()).collect();
        let header_mutation = Some(HeaderMutation { set_headers: Vec::new(), remove_headers });
        Self { response: Some(CommonResponse { header_mutation, body_mutation: None }) }
    }

    /// Lets Envoy continue with this body in place of the one that arrived.
    pub(super) fn with_body(body: Vec<u8>) -> Self {
        let body_mutation = Some(BodyMutation { body });
        Self { response: Some(CommonResponse { header_mutation: None, body_mutation }) }
    }
}

impl ImmediateResponse {
    /// Creates a response in JSON.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        let header = HeaderValue {
            key: "content-type".to_owned(),
            // Only one of the two fields may be set.
            value: String::new(),
            raw_value: b"application/json".to_vec(),
        };
        let set_headers = vec![HeaderValueOption { header: Some(header) }];
        Self {
            status: Some(HttpStatus { code: status.into() }),
            headers: Some(HeaderMutation { set_headers, remove_headers: Vec::new() }),
            body: body.to_string().into_bytes(),
        }
    }
}

impl HttpHeaders {
    /// Returns the only value of a header; an empty string if the header is absent. `None` if the header occurs twice
    /// or is not UTF-8: the caller must not choose a value then, because another program could read another one.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().flat_map(|map| &map.headers).filter(|header| header.key == name);
        let (value, other) = (values.next(), values.next());
        match (value, other) {
            (None, _) => Some(""),
            // Only one of the two fields may be set.
            (Some(header), None) if header.raw_value.is_empty() => Some(&header.value),
            (Some(header), None) => std::str::from_utf8(&header.raw_value).ok(),
            (Some(_), Some(_)) => None,
        }
    }
}
