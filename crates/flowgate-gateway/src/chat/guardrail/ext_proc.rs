//! Judges the HTTP requests of agents that pass through Envoy, or through another proxy that asks an external processor
//! as Envoy does. `http::service::external_processor` reads the stream of messages about one HTTP request and passes
//! each of them to [`ExtProcStream::process`]. `messages` defines the messages.
//!
//! Envoy passes on exactly what was judged: the gateway encodes the bodies of the request and of the answer again from
//! what it has decoded, and Envoy sends these bodies in place of those that arrived. Only requests for an answer of a
//! model and for the list of models are permitted; every other request is refused, and so is a body that does not
//! arrive in one piece.
//!
//! The stream of messages must not end with the status OK before everything was judged: otherwise, Envoy passes on the
//! rest without a judgement.

pub(crate) mod messages;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use flowgate::json::{self, Numbers};
use flowgate_lm::chat::Completion;
use flowgate_lm::sse::{EventSplitter, SseEvent};
use flowgate_lm::wire::generate_content::{Target, TargetMethod};
use flowgate_lm::wire::{AnswerStorage, Api, ReceivedRequest, ResponseHead};

use super::NotPermitted;
use crate::chat::ModelRoutes;
use crate::chat::model_request::ModelRouteRequest;
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::RequestError;
use crate::http::value_budget::ValueBudgetShare;
use crate::random;
use messages::{
    BUFFERED, CommonAnswer, HttpBody, HttpHeaders, Ignored, ImmediateResponse, ProcessingAnswer,
    ProcessingEvent, ProcessingRequest, ProcessingResponse,
};

/// Why a request with a tool of the provider is refused.
const PROVIDER_TOOL: &str =
    "the request declares a tool that the provider runs without asking this gateway: leave the tool out";
/// Why a request that continues an earlier answer is refused: this gateway does not store the answers that pass through
/// the external processor, so it cannot find one by its id.
const EARLIER_ANSWER: &str = "`previous_response_id` refers to a chat at the provider, which this gateway cannot read and judge: send the whole chat";
/// Why a request that refers to items of earlier answers is refused: this gateway cannot find these items either.
const EARLIER_ITEM: &str = "`input` refers to items at the provider, which this gateway cannot read and judge: send the items themselves";

/// The state of the judgement of one HTTP request and its response.
#[derive(Debug)]
pub(crate) struct ExtProcStream {
    received: ModelRouteRequest,
    stage: Stage,
}

/// How far the judgement is: which message of Envoy is next.
#[derive(Debug)]
enum Stage {
    /// Nothing has arrived.
    Begun,
    /// The body of a request for an answer of a model is next. The target is the model and the method in the address,
    /// in Gemini's API.
    AwaitsRequest(Api, Option<Target>),
    /// The model is asked; its answer is next.
    AwaitsAnswer(Api, HeldChat),
    /// The body of the answer is next, as a stream of events or in one piece.
    AwaitsBody(Api, HeldChat, AnswerForm),
    /// Nothing more needs to be judged: the list of models, or an error.
    Passes,
    /// The request was refused.
    Refused,
}

/// A judged chat, which is held until the model has answered.
#[derive(Debug)]
struct HeldChat {
    chat: Arc<ReceivedRequest>,
    /// Its share of the memory of the gateway.
    _share: ValueBudgetShare,
}

/// The form of the body of an answer.
#[derive(Debug, Clone, Copy)]
enum AnswerForm {
    Json,
    Events,
}

impl ExtProcStream {
    /// Creates the state for an HTTP request of which nothing has arrived. `received` has the client that asks for the
    /// judgement.
    pub(crate) fn new(received: ModelRouteRequest) -> Self {
        Self { received, stage: Stage::Begun }
    }

    /// Returns the name of the client that asks for the judgement.
    pub(crate) fn client_name(&self) -> &str {
        &self.received.client.spec.name
    }

    /// Answers `request`, a message of Envoy about the HTTP request. A message that does not fit what has arrived
    /// before is answered with a refusal of the HTTP request. `presence` says whether Envoy still waits.
    pub(crate) async fn process(
        &mut self,
        routes: &ModelRoutes,
        request: ProcessingRequest,
        presence: &ClientPresence,
    ) -> ProcessingResponse {
        // If anything below fails, this stage stays, so every later message is refused.
        let stage = std::mem::replace(&mut self.stage, Stage::Refused);
        let api = match &stage {
            Stage::AwaitsRequest(api, _) | Stage::AwaitsAnswer(api, _) | Stage::AwaitsBody(api, ..) => *api,
            // Before the path has arrived, the API is not known: errors have the form of the default one.
            _ => super::API,
        };
        let answered = match check_mode(&request) {
            Err(failure) => Err(failure),
            Ok(()) => self.next(routes, stage, request.event, presence).await,
        };
        ProcessingResponse::of(answered.unwrap_or_else(|failure| {
            let body = api.encode_error(failure.status.as_u16(), &format!("flowgate: {}", failure.message));
            ProcessingAnswer::Immediate(ImmediateResponse::json(failure.status.as_u16(), &body))
        }))
    }

    /// Answers `event`, which has arrived at Envoy, at this `stage`, and sets the next stage.
    ///
    /// # Errors
    /// If the event does not fit the stage, or if its headers or its body are refused. The caller has set the stage
    /// [`Stage::Refused`], which then stays.
    async fn next(
        &mut self,
        routes: &ModelRoutes,
        stage: Stage,
        event: Option<ProcessingEvent>,
        presence: &ClientPresence,
    ) -> Result<ProcessingAnswer, RequestError> {
        let (stage, answer) = match (stage, event) {
            (Stage::Begun, Some(ProcessingEvent::RequestHeaders(headers))) => {
                let stage = request_stage(&headers)?;
                // Without `accept-encoding`, the model's server does not compress its answer: a compressed answer
                // cannot be judged. The length of the body may change, since the gateway encodes the request again. The
                // other requests, for the list of models, pass unchanged.
                let answer = match stage {
                    Stage::AwaitsRequest(..) => {
                        CommonAnswer::without_headers(&["accept-encoding", "content-length"])
                    }
                    _ => CommonAnswer::default(),
                };
                (stage, ProcessingAnswer::RequestHeaders(answer))
            }
            (Stage::AwaitsRequest(api, target), Some(ProcessingEvent::RequestBody(body))) => {
                let (held, body) = self.judge_request(routes, api, target, &body, presence).await?;
                (Stage::AwaitsAnswer(api, held), ProcessingAnswer::RequestBody(CommonAnswer::with_body(body)))
            }
            (stage, Some(ProcessingEvent::ResponseHeaders(headers))) => {
                let (stage, answer) = answer_stage(stage, &headers)?;
                (stage, ProcessingAnswer::ResponseHeaders(answer))
            }
            (Stage::AwaitsBody(api, held, form), Some(ProcessingEvent::ResponseBody(body))) => {
                let body = self.judge_answer(routes, api, &held.chat, form, &body, presence).await?;
                (Stage::Passes, ProcessingAnswer::ResponseBody(CommonAnswer::with_body(body)))
            }
            (Stage::Passes, Some(ProcessingEvent::ResponseBody(_))) => {
                (Stage::Passes, ProcessingAnswer::ResponseBody(CommonAnswer::default()))
            }
            // Trailers are not judged: they pass at every stage.
            (stage, Some(ProcessingEvent::RequestTrailers(_))) => {
                (stage, ProcessingAnswer::RequestTrailers(Ignored {}))
            }
            (stage, Some(ProcessingEvent::ResponseTrailers(_))) => {
                (stage, ProcessingAnswer::ResponseTrailers(Ignored {}))
            }
            _ => return Err(misconfigured()),
        };
        self.stage = stage;
        Ok(answer)
    }

    /// Judges the body of a request. Returns the decoded request, which is held until the answer arrives, and the body
    /// that the model's server receives. `target` is the model and the method in the address, in Gemini's API.
    ///
    /// # Errors
    /// Why the request is refused. In watch mode the policy refuses nothing. A freeze, a limit or a failure of the
    /// gateway still does, and so does a body that cannot be decoded and passed on.
    async fn judge_request(
        &self,
        routes: &ModelRoutes,
        api: Api,
        target: Option<Target>,
        body: &HttpBody,
        presence: &ClientPresence,
    ) -> Result<(HeldChat, Vec<u8>), RequestError> {
        let text = whole_text(body)?;
        let mut report = routes.begin_guardrail_report(&self.received);
        // The decoded request; `None` if it cannot be decoded.
        let mut judged = None;
        let outcome = async {
            let share = routes.reserve_chat(text)?;
            let decoded = Arc::new(self.decode_request(api, target.as_ref(), text)?);
            judged = Some(HeldChat { chat: Arc::clone(&decoded), _share: share });
            routes.judge_chat(&self.received, &decoded, presence, &mut report).await
        };
        let outcome = outcome.await;
        let decoding_error = undecoded(&outcome, StatusCode::BAD_REQUEST);
        // Fails if the request is refused. Watch mode refuses nothing, but what cannot be decoded cannot be passed on.
        routes.end_guardrail_report(&self.received, report, outcome)?;
        let held = judged.ok_or(decoding_error)?;
        let body = api.encode_request(&held.chat.request, &held.chat.model, held.chat.stream);
        Ok((held, body.to_string().into_bytes()))
    }

    /// Decodes the body of a request. `target` is the model and the method in the address, in Gemini's API.
    ///
    /// # Errors
    /// If the body cannot be decoded, has a part that this gateway cannot judge, or cannot be encoded again.
    fn decode_request(
        &self,
        api: Api,
        target: Option<&Target>,
        text: &str,
    ) -> Result<ReceivedRequest, NotPermitted> {
        let decoded = self.received.client.decoder.decode(api, text);
        let decoded = decoded.map_err(NotPermitted::because)?;
        if decoded.previous_response.is_some() {
            return Err(NotPermitted::because(EARLIER_ANSWER.to_owned()));
        }
        if !decoded.item_references.is_empty() {
            return Err(NotPermitted::because(EARLIER_ITEM.to_owned()));
        }
        // The provider would run the tool without a judgement. On the model routes, the gateway itself runs the calls
        // of such a tool; here, it only judges what the proxy passes on.
        if !decoded.provider_tools.is_empty() {
            return Err(NotPermitted::because(PROVIDER_TOOL.to_owned()));
        }
        let decoded = match target {
            Some(target) => decoded.addressed_to(target),
            None => decoded,
        };
        // The API can lack a feature of the decoded request, which would be lost when the request is encoded again.
        if let Some(feature) = api.unsupported_feature(&decoded.request) {
            return Err(NotPermitted::because(format!("the request cannot be passed on: {feature}")));
        }
        Ok(decoded)
    }

    /// Judges the body of an answer, and returns the body that the agent receives.
    ///
    /// # Errors
    /// Why the answer is stopped.
    async fn judge_answer(
        &self,
        routes: &ModelRoutes,
        api: Api,
        decoded: &ReceivedRequest,
        form: AnswerForm,
        body: &HttpBody,
        presence: &ClientPresence,
    ) -> Result<Vec<u8>, RequestError> {
        let text = whole_text(body)?;
        let mut report = routes.begin_guardrail_report(&self.received);
        // The decoded answer; `None` if it cannot be decoded.
        let mut judged = None;
        let outcome = async {
            let _share = routes.reserve_chat(text)?;
            let mut completion = decode_answer(api, form, text)?;
            // Keeps only the readable texts of the reasoning. The reasoning also has a seal, which only the model's
            // server can read and which therefore cannot be judged.
            for thought in &mut completion.thoughts {
                *thought = flowgate_lm::chat::ReasoningPart {
                    texts: std::mem::take(&mut thought.texts),
                    ..flowgate_lm::chat::ReasoningPart::default()
                };
            }
            judged = Some(completion.clone());
            routes.judge_answer(&self.received, decoded, completion, presence, &mut report).await
        };
        let outcome = outcome.await;
        let decoding_error = undecoded(&outcome, StatusCode::BAD_GATEWAY);
        // Fails if the answer is stopped. Watch mode stops nothing, but what cannot be decoded cannot be passed on.
        routes.end_guardrail_report(&self.received, report, outcome)?;
        let completion = judged.ok_or(decoding_error)?;
        Ok(encode_answer(api, form, decoded, &completion))
    }
}

/// Refuses a message of a proxy that would not obey the answer (`observability_mode`), or that does not pass bodies in
/// one piece. Only the first message of a stream says how the proxy passes bodies (`protocol_config`).
fn check_mode(request: &ProcessingRequest) -> Result<(), RequestError> {
    let is_buffered = request
        .protocol_config
        .as_ref()
        .is_none_or(|config| config.request_body_mode == BUFFERED && config.response_body_mode == BUFFERED);
    if request.observability_mode || !is_buffered { Err(misconfigured()) } else { Ok(()) }
}

/// Returns the refusal of an HTTP request that cannot be judged because of how the proxy is configured.
fn misconfigured() -> RequestError {
    let message = "the external processor must see whole bodies: set request_header_mode and response_header_mode to SEND, \
        request_body_mode and response_body_mode to BUFFERED, and no observability_mode";
    RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// Returns the error for a body that could not be decoded. `outcome` is the judgement on the body, whose reason becomes
/// the message. `status` is the status of the error: the caller blames the agent for the body of a request, and the
/// model's server for the body of an answer.
fn undecoded(outcome: &Result<(), NotPermitted>, status: StatusCode) -> RequestError {
    match outcome {
        Err(NotPermitted::Stopped(stopped)) => RequestError::new(status, stopped.reason.clone()),
        // Unreachable: a body that is not decoded either stops the judgement, or makes it fail, and the caller has
        // returned a failure already.
        _ => misconfigured(),
    }
}

/// Returns the stage that follows the headers of a request.
///
/// # Errors
/// If the request asks neither for an answer of a model nor for the list of models, if its body is compressed, or if
/// its method or path occurs twice or is not UTF-8.
fn request_stage(headers: &HttpHeaders) -> Result<Stage, RequestError> {
    let refuse = |why: &str| Err(RequestError::new(StatusCode::FORBIDDEN, why));
    let (Some(method), Some(path)) = (headers.get(":method"), headers.get(":path")) else {
        return refuse(
            "`:method` or `:path` of the request occurs twice or is not UTF-8: send each of them once, as UTF-8",
        );
    };
    // `get` returns an empty text for an absent header.
    if !matches!(headers.get("content-encoding"), Some("" | "identity")) {
        return refuse("the body of the request is compressed: send it uncompressed");
    }
    let path = path.split('?').next().unwrap_or_default();
    // `end_of_stream` is true if the request has no body.
    match (method, headers.end_of_stream) {
        ("POST", false) => match api_of(path) {
            Some((api, target)) => Ok(Stage::AwaitsRequest(api, target)),
            None => refuse(
                "the path does not belong to a request for an answer of a model: send the request past the external \
                 processor",
            ),
        },
        ("GET" | "HEAD", true) if path.ends_with("/models") => Ok(Stage::Passes),
        _ => refuse(
            "the request asks neither for an answer of a model nor for the list of models: send it past the \
             external processor",
        ),
    }
}

/// Returns the API of a request, which the end of its path determines, and in Gemini's API also the model and the
/// method in the path. `None` if it is not a request for an answer of a model.
fn api_of(path: &str) -> Option<(Api, Option<Target>)> {
    // The path of an API that is not addressed (in which the path does not name the model) depends neither on the model
    // nor on streaming, so any arguments of `path` will do.
    let has_path = |api: &Api| !api.form().is_addressed() && path.ends_with(&*api.path("", false));
    if let Some(api) = Api::ALL.into_iter().find(has_path) {
        return Some((api, None));
    }
    let (_, target) = path.rsplit_once("/models/")?;
    let target = Target::parse(target)?;
    (target.method != TargetMethod::CountTokens).then_some((Api::GenerateContent, Some(target)))
}

/// Returns the stage that follows the headers of a response, and the answer to them.
///
/// # Errors
/// If the response belongs to a request that was not judged, or its body cannot be judged.
fn answer_stage(stage: Stage, headers: &HttpHeaders) -> Result<(Stage, CommonAnswer), RequestError> {
    let status = headers.get(":status").and_then(|status| status.parse::<u16>().ok()).unwrap_or(200);
    // Errors of the model's server and of the proxy itself contain no answer of a model, so they pass without a
    // judgement. A response without a readable status counts as 200, so it is judged.
    let is_error = status >= 400;
    match stage {
        // The proxy can send an error of its own before this gateway has judged the request.
        Stage::Begun | Stage::AwaitsRequest(..) | Stage::AwaitsAnswer(..) if is_error => {
            Ok((Stage::Passes, CommonAnswer::default()))
        }
        Stage::Passes => Ok((Stage::Passes, CommonAnswer::default())),
        Stage::AwaitsAnswer(api, held) => {
            // `get` returns an empty text for a header that is absent.
            let is_plain = matches!(headers.get("content-encoding"), Some("" | "identity"));
            // A response that ends with its headers has no body to judge.
            let has_readable_body = is_plain && !headers.end_of_stream;
            let media_type = headers.get("content-type").unwrap_or_default();
            let form = match media_type.split(';').next().unwrap_or_default().trim() {
                "application/json" => Some(AnswerForm::Json),
                "text/event-stream" => Some(AnswerForm::Events),
                _ => None,
            };
            match form {
                Some(form) if has_readable_body => Ok((
                    Stage::AwaitsBody(api, held, form),
                    // The judged body may have another length.
                    CommonAnswer::without_headers(&["content-length"]),
                )),
                _ => Err(RequestError::new(
                    StatusCode::BAD_GATEWAY,
                    "the answer of the model's server is neither JSON nor a stream of events, or is compressed: \
                     check which server the proxy asks",
                )),
            }
        }
        _ => Err(misconfigured()),
    }
}

/// Returns the text of a body that arrived in one piece.
fn whole_text(body: &HttpBody) -> Result<&str, RequestError> {
    if !body.end_of_stream {
        return Err(misconfigured());
    }
    std::str::from_utf8(&body.body).map_err(|_| {
        RequestError::new(StatusCode::BAD_REQUEST, "the body that the proxy sent is not valid UTF-8: check what the agent and the model's server send")
    })
}

/// Decodes the answer of a model's server from its body, `text`: one JSON value, or a complete stream of events.
///
/// # Errors
/// If the body is not an answer in the form of this API.
fn decode_answer(api: Api, form: AnswerForm, text: &str) -> Result<Completion, NotPermitted> {
    let unreadable = |_| {
        NotPermitted::because(
            "the answer of the model's server cannot be read: check which server the proxy asks",
        )
    };
    match form {
        AnswerForm::Json => {
            let body = json::parse(text, Numbers::Any).map_err(|_| {
                NotPermitted::because(
                    "the answer of the model's server is not valid JSON: check which server the proxy asks",
                )
            })?;
            api.decode_response(&body).map_err(unreadable)
        }
        AnswerForm::Events => {
            // The whole stream has arrived, so the deltas between its events are not needed.
            let (mut decoder, mut splitter) = (api.decoder(), EventSplitter::default());
            for event in splitter.feed(text.as_bytes()) {
                if decoder.is_done() {
                    break;
                }
                let event = event.map_err(unreadable)?;
                decoder.feed(&event, &mut flowgate_lm::ignore_deltas).map_err(unreadable)?;
            }
            decoder.finish().map_err(unreadable)
        }
    }
}

/// Encodes the answer `completion` to the request `decoded`; `form` is the form in which the answer arrived. The agent
/// receives this text and not that of the model's server, so that it receives exactly what was judged.
fn encode_answer(api: Api, form: AnswerForm, decoded: &ReceivedRequest, completion: &Completion) -> Vec<u8> {
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    // The id only tells answers apart, so it may lack the random part if the system has no random bytes.
    let id = format!("flowgate-{}", random::unguessable_name().unwrap_or_default());
    let head = ResponseHead {
        id: &id,
        model: &decoded.model,
        created,
        tools: &decoded.tool_forms,
        storage: AnswerStorage::NotStored,
    };
    match form {
        AnswerForm::Json => api.encode_response(completion, head).to_string().into_bytes(),
        AnswerForm::Events => {
            let events = api.encode_stream(completion, head, decoded.usage);
            events.iter().map(SseEvent::encode).collect::<String>().into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::messages::{HeaderMap, HeaderValue, ProtocolConfiguration};
    use super::*;

    /// Returns headers in the form of Envoy, which has the values in `raw_value`.
    fn headers(pairs: &[(&str, &str)], end_of_stream: bool) -> HttpHeaders {
        let header = |(key, value): &(&str, &str)| HeaderValue {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: value.as_bytes().to_vec(),
        };
        HttpHeaders {
            headers: Some(HeaderMap { headers: pairs.iter().map(header).collect() }),
            end_of_stream,
        }
    }

    #[test]
    fn only_requests_for_answers_and_lists_of_models_begin() {
        // `more` are further headers. `expected` is the API, in Gemini's API with the model, or `passes` or `refused`.
        let check = |method: &str, path: &str, has_body: bool, more: &[(&str, &str)], expected: &str| {
            let head = [&[(":method", method), (":path", path)], more].concat();
            let found = match request_stage(&headers(&head, !has_body)) {
                Ok(Stage::AwaitsRequest(api, target)) => {
                    format!("{api:?} {}", target.map(|target| target.model).unwrap_or_default())
                }
                Ok(Stage::Passes) => "passes".to_owned(),
                other => if other.is_err() { "refused" } else { "" }.to_owned(),
            };
            assert_eq!(found.trim_end(), expected, "{method} {path}");
        };
        check("POST", "/v1/chat/completions", true, &[], "ChatCompletions");
        check("POST", "/openai/v1/responses?x=1", true, &[], "Responses");
        check("POST", "/v1/messages", true, &[], "Messages");
        check("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", true, &[], "GenerateContent m");
        check("GET", "/v1/models", false, &[], "passes");
        for (method, path, has_body) in [
            ("POST", "/v1/chat/completions", false),
            ("POST", "/v1/embeddings", true),
            ("POST", "/v1/messages/count_tokens", true),
            ("POST", "/v1beta/models/m:countTokens", true),
            ("POST", "/v1beta/models/m:embedContent", true),
            ("PUT", "/v1/chat/completions", true),
            ("GET", "/v1/chat/completions/chatcmpl-1", false),
            ("GET", "/v1/models", true),
            ("OPTIONS", "/v1/chat/completions", false),
        ] {
            check(method, path, has_body, &[], "refused");
        }
        check("POST", "/v1/messages", true, &[("content-encoding", "gzip")], "refused");
        check("POST", "/v1/messages", true, &[("content-encoding", "identity")], "Messages");
        check("POST", "/v1/messages", true, &[(":path", "/v1/models")], "refused");
        check(
            "POST",
            "/v1/messages",
            true,
            &[("content-encoding", ""), ("content-encoding", "gzip")],
            "refused",
        );
    }

    /// Only the answer to a judged request is judged. A response at any other stage is refused, unless it is an error
    /// or nothing has to be judged.
    #[test]
    fn answers_belong_to_judged_requests() {
        let memory = Arc::new(tokio::sync::Semaphore::new(100));
        let held = || {
            let body = r#"{"model":"m","messages":[]}"#;
            let body = flowgate_lm::json::Json::parse(body).unwrap();
            let chat = Arc::new(Api::ChatCompletions.decode_request(&body).unwrap());
            HeldChat { chat, _share: Arc::clone(&memory).try_acquire_owned().unwrap() }
        };
        let stages: [(&str, &dyn Fn() -> Stage); 6] = [
            ("begun", &|| Stage::Begun),
            ("request", &|| Stage::AwaitsRequest(Api::ChatCompletions, None)),
            ("answer", &|| Stage::AwaitsAnswer(Api::ChatCompletions, held())),
            ("body", &|| Stage::AwaitsBody(Api::ChatCompletions, held(), AnswerForm::Json)),
            ("passes", &|| Stage::Passes),
            ("refused", &|| Stage::Refused),
        ];
        // At each of the stages, a response with the headers `head`, and without a body if `is_end`, is refused,
        // passes, or is judged when its body arrives in the form `Json` or `Events`.
        let check = |head: &[(&str, &str)], is_end: bool, expected: [&str; 6]| {
            for ((name, stage), expected) in stages.iter().zip(expected) {
                let found = match answer_stage(stage(), &headers(head, is_end)) {
                    Ok((Stage::AwaitsBody(_, _, form), _)) => format!("{form:?}"),
                    Ok((Stage::Passes, _)) => "passes".to_owned(),
                    Ok(other) => format!("{other:?}"),
                    Err(_) => "refused".to_owned(),
                };
                assert_eq!(found, expected, "{name}: {head:?}");
            }
        };
        let (no, yes) = ("refused", "passes");
        let ok = (":status", "200");
        check(&[ok, ("content-type", "application/json")], false, [no, no, "Json", no, yes, no]);
        check(
            &[ok, ("content-type", "text/event-stream; charset=utf-8")],
            false,
            [no, no, "Events", no, yes, no],
        );
        check(&[ok, ("content-type", "text/html")], false, [no, no, no, no, yes, no]);
        check(&[ok, ("content-type", "application/json")], true, [no, no, no, no, yes, no]);
        let compressed = [ok, ("content-type", "application/json"), ("content-encoding", "gzip")];
        check(&compressed, false, [no, no, no, no, yes, no]);
        check(&[(":status", "500")], false, [yes, yes, yes, no, yes, no]);
        // Without a status, or with two, it counts as an answer.
        check(&[], false, [no, no, no, no, yes, no]);
        check(&[(":status", "500"), ok], false, [no, no, no, no, yes, no]);
    }

    #[test]
    fn a_proxy_that_would_not_obey_is_refused() {
        // `modes` are the numbers of the modes in which the bodies of requests and of responses arrive: 2 is
        // `BUFFERED`.
        let check = |observability_mode: bool, modes: Option<(i32, i32)>, expected: bool| {
            let protocol_config = modes.map(|(request_body_mode, response_body_mode)| {
                ProtocolConfiguration { request_body_mode, response_body_mode }
            });
            let request = ProcessingRequest { event: None, observability_mode, protocol_config };
            assert_eq!(check_mode(&request).is_ok(), expected, "{request:?}");
        };
        check(false, None, true);
        check(false, Some((2, 2)), true);
        check(true, None, false);
        for modes in [(0, 2), (2, 0), (1, 2), (2, 4), (0, 0)] {
            check(false, Some(modes), false);
        }
        let body = |text: &[u8], end_of_stream: bool| {
            whole_text(&HttpBody { body: text.to_vec(), end_of_stream }).is_ok()
        };
        assert_eq!([body(b"{}", true), body(b"{}", false), body(b"\xff", true)], [true, false, false]);
    }

    #[test]
    fn answers_are_encoded_as_they_arrived() {
        let decoded = {
            let body = flowgate_lm::json::Json::parse(r#"{"model":"m","messages":[]}"#).unwrap();
            Api::ChatCompletions.decode_request(&body).unwrap()
        };
        let call = flowgate_lm::chat::ToolCall {
            id: "c".to_owned(),
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
        };
        let completion = Completion {
            text: "Hi.".to_owned(),
            calls: vec![call],
            stop: flowgate_lm::chat::Stop::Calls,
            ..Completion::default()
        };
        for form in [AnswerForm::Json, AnswerForm::Events] {
            let encoded = encode_answer(Api::ChatCompletions, form, &decoded, &completion);
            let text = String::from_utf8(encoded).unwrap();
            assert_eq!(decode_answer(Api::ChatCompletions, form, &text).unwrap(), completion, "{text}");
            // The beginning of an answer cannot be decoded.
            let half = text.get(..text.len() / 2).unwrap();
            assert!(decode_answer(Api::ChatCompletions, form, half).is_err(), "{half}");
        }
        let twice = r#"{"choices":[],"choices":[]}"#;
        assert!(decode_answer(Api::ChatCompletions, AnswerForm::Json, twice).is_err());
    }
}
