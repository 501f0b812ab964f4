//! Defines [`RemoteModel`], which queries a model over HTTP: a hosted model, or one on a server of local models.
//!
//! The server receives everything that the agent has seen, so only the operator may choose the server. The client
//! therefore follows no redirect, and uses a proxy only if the program asks for it. An error contains only the server's
//! name of the error; other texts of the server are left out, since they may quote the request. No error and no debug
//! output contains the key of the provider's account.
//!
//! `client.rs` sends a request and retries it (`retry.rs`), over pooled connections (`client_pool.rs`, `authorities.rs`
//! for TLS) and within a budget (`budget.rs`). `request_body.rs`, `response.rs` and `json_handler.rs` handle the
//! bodies, and `failure.rs` maps the errors. [`score`] obtains log-probabilities with the same client.
//!
//! The futures of the client need a tokio runtime with I/O and time; [`block_on`](crate::block_on) provides one. A
//! server with TLS chooses between HTTP/1.1 and HTTP/2.
//!
//! ```no_run
//! use flowgate_lm::chat::{Message, Part, Request};
//! use flowgate_lm::{ChatModel, RemoteModel, ignore_deltas, wire::Api};
//!
//! # async fn greet() -> Result<(), flowgate_lm::Error> {
//! let model = RemoteModel::new(Api::ChatCompletions, "http://localhost:8080/v1", "qwen3")?;
//! let request = Request { messages: vec![Message::User(vec![Part::from("Hello")])].into(), ..Request::default() };
//! println!("{}", model.complete(&request, &mut ignore_deltas).await?.text);
//! # Ok(())
//! # }
//! ```

mod authorities;
mod budget;
mod client;
mod client_pool;
mod failure;
mod json_handler;
mod request_body;
mod response;
mod retry;
pub mod score;
#[cfg(test)]
mod test_server;

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::Value;

use crate::chat::{
    CitableDocument, Completion, ProviderTool, ProviderToolUse, Request, Sampling, SerializedPrefix, Usage,
};
use crate::wire::chat_completions::{LIMIT, OLD_LIMIT, SentRequest};
use crate::wire::embeddings::{EmbeddingsRequest, EmbeddingsResponse};
use crate::wire::messages::{MCP_BETA, SentDocuments, mark_cache_breakpoints, mark_citable};
use crate::wire::{Api, MAX_ANSWER, ReportedPiece};
use crate::{BoxFuture, ChatModel, Delta, Error, Listener, estimate, send_completion, sse};

pub use authorities::{Authorities, AuthoritiesError};
use budget::PendingCost;
pub use budget::RequestBudget;
use client::{HttpClient, ResponseHandler};
pub use failure::{UNTRUSTED, is_tls_failure};
use json_handler::JsonHandler;
use response::HttpResponse;
use retry::AttemptFailure;
pub use retry::{RetryObserver, RetryPolicy};

/// Time limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The limit for establishing a connection, if none is open. If a request must wait because the server permits no
    /// further open request on its HTTP/2 connection, only `whole` limits this wait.
    pub connect: Duration,
    /// The limit from the sending of the request until the answer begins.
    pub first_byte: Duration,
    /// The limit for the whole request, including all attempts and the delays between them.
    pub whole: Duration,
}

impl Default for Timeouts {
    /// Returns 10 seconds to connect, two minutes until an answer begins, and ten minutes for the whole request.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            whole: Duration::from_secs(600),
        }
    }
}

/// A model behind an HTTP address.
#[derive(Clone)]
pub struct RemoteModel {
    client: HttpClient,
    /// The wire format.
    api: Api,
    /// The name of the model, as the server knows it.
    model: String,
    /// The name for reports: the model and the host of the server.
    name: String,
    /// Whether streamed answers are requested.
    streaming: bool,
    /// The defaults for sampling parameters that a request does not set.
    sampling: Sampling,
    /// Whether the token limit is sent under its old name `max_tokens`. Only chat completions have two names for it.
    old_max_tokens: bool,
    /// Whether requests mark the parts that the server is to cache.
    prompt_caching: bool,
    /// The tool of the provider that all requests declare instead of functions; `None` for ordinary requests.
    provider_tool: Option<ProviderToolUse>,
    /// The documents of a client's request that answers may cite.
    citable: Arc<[CitableDocument]>,
    /// The beta features that requests ask for.
    betas: Vec<&'static str>,
}

impl fmt::Debug for RemoteModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).field("api", &self.api).finish_non_exhaustive()
    }
}

impl RemoteModel {
    /// Creates a client of the model `model` in the format `api`, at the base address `base`, such as
    /// `https://api.openai.com/v1`, `https://api.anthropic.com/v1`,
    /// `https://generativelanguage.googleapis.com/v1beta` or `http://localhost:8080/v1`.
    ///
    /// # Errors
    /// If the address is not an HTTP or HTTPS URL with a host, or has a user name or a query.
    pub fn new(api: Api, base: &str, model: &str) -> Result<Self, Error> {
        let client = HttpClient::new(base)?;
        let name = format!("{model} at {}", client.host());
        // OpenAI's newest models accept only the new name of the token limit. Other providers accept the old one.
        let old_max_tokens = api == Api::ChatCompletions && client.host() != "api.openai.com";
        Ok(Self {
            client,
            api,
            model: model.to_owned(),
            name,
            // The method `streaming` can change this.
            streaming: true,
            sampling: Sampling::default(),
            old_max_tokens,
            prompt_caching: false,
            provider_tool: None,
            citable: Arc::default(),
            betas: Vec::new(),
        })
    }

    /// Returns a client of another model on the same server, with the same settings.
    #[must_use]
    pub fn with_model(&self, model: &str) -> Self {
        let name = format!("{model} at {}", self.client.host());
        Self { model: model.to_owned(), name, ..self.clone() }
    }

    /// Returns the name of the model that requests ask for. The name for messages is [`ChatModel::name`].
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Sets the key of the provider's account, which is sent in the header that the format prescribes.
    ///
    /// # Errors
    /// If the key contains characters that a header cannot contain.
    pub fn key(mut self, key: &str) -> Result<Self, Error> {
        let header = self.api.form().key_header;
        self.client.header(header.name, format!("{}{key}", header.prefix))?;
        Ok(self)
    }

    /// Requests beta features of the Messages API by their names, which the header `anthropic-beta` lists, in addition
    /// to those that are requested already. Has no effect on other formats.
    #[must_use]
    pub fn betas(mut self, betas: &[&'static str]) -> Self {
        self.betas.extend(betas);
        if let Some(name) = self.api.form().betas_header.filter(|_| !betas.is_empty()) {
            // Names of features are valid in a header.
            let _ = self.client.header(name, self.betas.join(","));
        }
        self
    }

    /// Sets whether streamed answers are requested, which is the default.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    /// Sets the defaults for the sampling parameters that a request does not set. Parameters of reasoning have no
    /// effect.
    #[must_use]
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Sets whether requests ask the server to cache their beginnings, which later requests of the same chat repeat.
    /// False by default. Affects only the Messages API: servers of the other formats cache without being asked.
    ///
    /// All requests with the same key of the provider share the cache. A client can therefore learn from the time or
    /// the reported cost of a request whether another client has sent the same beginning.
    #[must_use]
    pub fn prompt_caching(mut self, prompt_caching: bool) -> Self {
        self.prompt_caching = prompt_caching;
        self
    }

    /// Has the provider run the tool `tool` for each request, which
    /// [`ProviderTool::request`](crate::chat::ProviderTool::request) must have created. The text of an answer is then
    /// the output of the tool, with its sources. Answers are not streamed, and functions are not offered to the model.
    /// A request is not sent again if the tool may have run and had effects.
    #[must_use]
    pub fn for_provider_tool(mut self, tool: ProviderToolUse) -> Self {
        if !tool.tool.is_repeatable() {
            self.client.retries.times = 0;
        }
        let model = Self { provider_tool: Some(tool), ..self };
        match model.provider_tool.as_ref().map(|used| &used.tool) {
            Some(ProviderTool::McpServer(_)) => model.betas(&[MCP_BETA]),
            _ => model,
        }
    }

    /// Lets answers cite these documents of a client's request. If a text of the chat is the whole text of such a
    /// document, the request sends it as a document, so that the server can cite it. The answer has only those citations
    /// whose passages are found in the client's own copies of the documents. Affects only the Messages API: the other
    /// formats have no citations.
    #[must_use]
    pub fn citing(mut self, citable: Arc<[CitableDocument]>) -> Self {
        self.citable = citable;
        self
    }

    /// Sets the time limits.
    #[must_use]
    pub fn times(mut self, times: Timeouts) -> Self {
        self.client.set_times(times);
        self
    }

    /// Keeps connections open for the time `idle` after an answer; by default they are closed. A server may close a
    /// connection at any time, and a request on a connection that is being closed gets no answer. Therefore use
    /// retries, and a shorter time than that after which the server closes connections.
    #[must_use]
    pub fn keep_connections(mut self, idle: Duration) -> Self {
        self.client.keep_connections(idle);
        self
    }

    /// Sets the certificate authorities that are trusted for TLS.
    #[must_use]
    pub fn authorities(mut self, authorities: &Authorities) -> Self {
        self.client.set_authorities(authorities);
        self
    }

    /// Sets how failed requests are retried.
    #[must_use]
    pub fn retries(mut self, retries: RetryPolicy) -> Self {
        self.client.retries = retries;
        self
    }

    /// Reports each retry to an observer. Requests for scores are reported as well.
    #[must_use]
    pub fn on_retry(mut self, observer: RetryObserver) -> Self {
        self.client.retry_observer = Some(observer);
        self
    }

    /// Sends the header `traceparent` with this value, by which the server can add its part to a trace. A value that a
    /// header cannot contain is ignored.
    #[must_use]
    pub fn trace_parent(mut self, value: &str) -> Self {
        let _ = self.client.header("traceparent", value.to_owned());
        self
    }

    /// Sets the budget of requests and tokens, which all models that share it spend together.
    #[must_use]
    pub fn budget(mut self, budget: Arc<RequestBudget>) -> Self {
        self.client.budget = Some(budget);
        self
    }

    /// Uses the proxy that the environment specifies, if any.
    #[must_use]
    pub fn proxy_from_environment(mut self) -> Self {
        self.client.proxy_from_environment();
        self
    }

    /// Sets whether the token limit of chat completions is sent as `max_tokens` instead of `max_completion_tokens`.
    /// True by default, except for `api.openai.com`.
    #[must_use]
    pub fn old_max_tokens(mut self, old: bool) -> Self {
        self.old_max_tokens = old;
        self
    }

    /// Returns a scorer for the same server and model. `by` is the interface by which the server reports
    /// log-probabilities. The format, sampling and streaming of this client have no effect on the scorer.
    #[must_use]
    pub fn scorer(&self, by: score::ScoreMethod) -> score::Scorer {
        score::Scorer::new(self.client.clone(), self.model.clone(), by)
    }

    /// Requests the embeddings of texts from the same server, whose format must be one of OpenAI's. The request names
    /// the model.
    ///
    /// # Errors
    /// If the server has another format, or fails, or its answer does not have one embedding for each text.
    pub async fn embed(&self, request: &EmbeddingsRequest) -> Result<EmbeddingsResponse, Error> {
        if !self.api.form().has_embeddings {
            return Err(Error::Unsupported("its wire format has no embeddings; use one of OpenAI's formats"));
        }
        let body = Bytes::from(request.encode().to_string().into_bytes());
        let mut handler = JsonHandler { client: &self.client, request_bytes: body.len() };
        let answer = self.client.ask("/embeddings", &body, &mut handler).await?;
        EmbeddingsResponse::decode(&answer, request.texts.len())
    }

    /// Returns the JSON body of a request, the offset at which the messages end in this body, and the documents in it
    /// that the answer may cite. The caller stores the body up to the offset with the chat, so that the next request
    /// need not serialise these messages again. The offset is `None` for formats that do not write the messages first,
    /// and if the body cannot be serialised and is empty.
    fn body(&self, request: &Request) -> (Vec<u8>, Option<usize>, SentDocuments) {
        let (model, stream) = (self.model.as_str(), self.is_streaming());
        if self.api == Api::ChatCompletions {
            // The field that limits the tokens of the answer has two names, and some servers accept only one of them.
            let limit = if self.old_max_tokens { OLD_LIMIT } else { LIMIT };
            let body = SentRequest { request, model, stream, limit }.body();
            // Serialisation does not fail, since all keys are strings. If it did, the server would reject the empty
            // body.
            let (body, end) = body.map_or_else(|_| (Vec::new(), None), |(body, end)| (body, Some(end)));
            return (body, end, SentDocuments::default());
        }
        let mut body = self.api.encode_request(request, model, stream);
        let sent = match self.api {
            Api::Messages if !self.citable.is_empty() => mark_citable(&mut body, &self.citable),
            _ => SentDocuments::default(),
        };
        // A request that runs a tool of the provider repeats nothing of an earlier request, so it has nothing to cache.
        if self.prompt_caching && self.api == Api::Messages && self.provider_tool.is_none() {
            mark_cache_breakpoints(&mut body);
        }
        if let Some(tool) = &self.provider_tool {
            // `complete_with_retries` has checked that the format can express it.
            self.api.declare_provider_tool(tool, &mut body);
        }
        (body.to_string().into_bytes(), None, sent)
    }

    /// Returns whether streamed answers are requested. The output of a tool of the provider is not streamed.
    fn is_streaming(&self) -> bool {
        self.streaming && self.provider_tool.is_none()
    }

    /// Fills the sampling parameters that the request does not set with the defaults of this model: the token limit,
    /// the temperature, `top_p`, the seed and the stop sequences, but not the parameters of reasoning. Copies the
    /// request only if this model has defaults. The text of the messages that an earlier request serialised is then
    /// moved to the copy, from which the body is encoded.
    fn with_defaults<'r>(&self, request: &'r Request) -> Cow<'r, Request> {
        let default = &self.sampling;
        if *default == Sampling::default() {
            return Cow::Borrowed(request);
        }
        let serialized = request.messages.take_serialized_prefix();
        let mut request = request.clone();
        if let Some(serialized) = serialized {
            // A clone of a chat has no serialised messages.
            request.messages.store_serialized_prefix(serialized);
        }
        let sampling = &mut request.sampling;
        sampling.max_tokens = sampling.max_tokens.or(default.max_tokens);
        sampling.temperature = sampling.temperature.or(default.temperature);
        sampling.top_p = sampling.top_p.or(default.top_p);
        sampling.seed = sampling.seed.or(default.seed);
        if sampling.stop.is_empty() {
            sampling.stop.clone_from(&default.stop);
        }
        Cow::Owned(request)
    }
}

impl ChatModel for RemoteModel {
    fn name(&self) -> &str {
        &self.name
    }

    /// Sends the request to the server and reads its answer, with retries and within the budget.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(self.complete_with_retries(request, listener))
    }
}

impl RemoteModel {
    /// Sends the request, with retries, and reads the answer. Then stores the serialised messages with the chat: the
    /// next request repeats these messages, and need not serialise them again. Marks the reasoning of the answer as
    /// written by this model. Fails without sending if the wire format cannot express a feature of the request.
    async fn complete_with_retries(
        &self,
        request: &Request,
        listener: &mut dyn Listener,
    ) -> Result<Completion, Error> {
        // The serialised messages are stored with the caller's chat, not with the copy that has the defaults.
        let original = request;
        let request = self.with_defaults(original);
        if let Some(what) = self.api.unsupported_feature(&request) {
            return Err(Error::Unsupported(what));
        }
        // Only checks that the format can express the tool: the body that is sent is encoded later.
        if let Some(tool) = &self.provider_tool
            && !self.api.declare_provider_tool(tool, &mut Value::Null)
        {
            return Err(Error::Unsupported(
                "its wire format does not have this tool of the provider, or cannot express the restrictions or \
                 headers of the tool; leave these out, or use another provider",
            ));
        }
        let mut chat = RetriedCompletion {
            remote: self,
            request: &request,
            listener,
            received_bytes: 0,
            reported: Vec::new(),
        };
        // `messages_end` is the offset at which the messages end in the body; `None` if nothing is stored with the
        // chat.
        let (body, messages_end, sent) = self.body(&request);
        let body = Bytes::from(body);
        let path = self.api.path(&self.model, self.is_streaming());
        let answered = self.client.ask(&path, &body, &mut chat).await;
        let reported = chat.reported;
        // The messages are stored after a failure as well, since they were serialised in any case.
        if let Some(messages_end) = messages_end {
            let mut text = Vec::from(body);
            text.truncate(messages_end);
            let messages = original.messages.len();
            original.messages.store_serialized_prefix(SerializedPrefix { text, messages });
        }
        answered.map(|mut completion| {
            completion.thoughts.iter_mut().for_each(|thought| thought.author.clone_from(&self.model));
            completion.citations = sent.verified(&self.citable, &completion.text, &reported);
            completion
        })
    }
}

/// The state of one completion over all its attempts.
struct RetriedCompletion<'a> {
    remote: &'a RemoteModel,
    request: &'a Request,
    listener: &'a mut dyn Listener,
    /// The number of bytes that the listener received in the current attempt.
    received_bytes: usize,
    /// The citations that the server reports, of the last answer that was read.
    reported: Vec<ReportedPiece>,
}

impl RetriedCompletion<'_> {
    /// Reads a streamed answer up to its end, and passes its pieces to the listener. While the listener is not ready,
    /// nothing more is read: a slow listener slows the server down. Each piece raises the estimated output in `cost`.
    /// If the answer ends early, the failure says that a retry may succeed.
    async fn read_stream(
        &mut self,
        answer: &mut HttpResponse,
        cost: &mut Option<PendingCost>,
    ) -> Result<Completion, AttemptFailure> {
        let mut decoder = self.remote.api.decoder();
        let mut splitter = sse::EventSplitter::default();
        while !decoder.is_done() {
            let bytes = answer.read().await?;
            if bytes.is_empty() {
                // The connection was closed before the end of the answer; a retry may succeed.
                return decoder.finish().map_err(AttemptFailure::transient);
            }
            // Whether these bytes contained a piece for the listener. Otherwise, there is no need to wait until it is
            // ready.
            let mut was_listener_called = false;
            let mut pass_on = |delta: Delta<'_>| -> ControlFlow<()> {
                was_listener_called = true;
                self.received_bytes += match delta {
                    Delta::Text(text) | Delta::Reasoning(text) | Delta::Arguments { json: text, .. } => {
                        text.len()
                    }
                    Delta::Call { name, .. } => name.len(),
                    Delta::Restart => 0,
                };
                if let Some(cost) = cost {
                    cost.usage.output = estimate::tokens(self.received_bytes);
                }
                self.listener.on_delta(delta)
            };
            for event in splitter.feed(&bytes) {
                // Events after the end of the answer are ignored.
                if decoder.is_done() {
                    break;
                }
                decoder.feed(&event?, &mut pass_on)?;
            }
            if was_listener_called {
                answer.wait_for(self.listener.ready()).await?;
            }
        }
        self.reported = decoder.take_citations();
        Ok(decoder.finish()?)
    }

    /// Returns the initial cost of an attempt: the estimated tokens of the request. The budget is charged when the
    /// returned value is dropped. `None` if there is no budget.
    fn begin_cost(&self) -> Option<PendingCost> {
        let budget = self.remote.client.budget.as_ref()?;
        let usage = Usage { input: estimate::input(self.request), output: 0, cached: 0 };
        Some(PendingCost::new(Arc::clone(budget), usage))
    }
}

impl ResponseHandler for RetriedCompletion<'_> {
    type Out = Completion;

    /// Reads an answer, streamed or not, and passes it to the listener. The cost of the answer is estimated while it is
    /// read. At the end, the usage that the server reports replaces the estimate.
    async fn read(&mut self, mut answer: HttpResponse) -> Result<Completion, AttemptFailure> {
        let mut cost = self.begin_cost();
        let completion = if self.remote.provider_tool.is_some() {
            // No stream was requested, and a stream would not say whether the tool ran: it is refused as not JSON.
            self.remote.api.decode_provider_answer(answer.json().await?)?
        } else if answer.is_stream() {
            self.read_stream(&mut answer, &mut cost).await?
        } else {
            let body = answer.json().await?;
            self.reported = self.remote.api.reported_citations(&body);
            self.remote.api.decode_response(&body)?
        };
        if let Some(cost) = &mut cost {
            // A usage of 0 means that the server reports none: the cost is then the estimate for the whole answer.
            let is_reported = completion.usage != Usage::default();
            // `estimate::usage` covers request and answer.
            cost.usage =
                if is_reported { completion.usage } else { estimate::usage(self.request, &completion) };
        }
        // Charges the budget now, before the connection is released.
        drop(cost);
        // The listener has already received a streamed answer, but the body may have more bytes after the answer's end.
        if answer.is_stream() {
            answer.release_connection().await;
        } else {
            send_completion(&completion, self.listener)?;
        }
        Ok(completion)
    }

    /// If the listener has received pieces of the failed attempt, tells it to discard them. Sets `received_bytes` to 0
    /// for the next attempt. Fails if the listener cancels.
    fn begin_retry(&mut self) -> Result<(), Error> {
        let is_void = std::mem::take(&mut self.received_bytes) > 0;
        if is_void && self.listener.on_delta(Delta::Restart).is_break() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// The most bytes to read of a body. This limit exceeds that of an answer, because a stream repeats content and has
/// overhead for each event.
const MAX_BODY: usize = 16 * MAX_ANSWER;

#[cfg(test)]
mod tests;
