//! Models behind an HTTP address: hosted ones, and servers of local models.
//!
//! The server is one more reader of what the agent has seen, and is chosen by the operator: no redirect is followed, and no
//! proxy is used unless that is asked for. What it says of an error is not repeated, but for the error's name: it may quote
//! what was asked. The key stands in no error and no debug output.
//!
//! ```no_run
//! use flowgate_lm::chat::{Message, Part, Request};
//! use flowgate_lm::{Complete, Remote, ignore, wire::Api};
//!
//! let model = Remote::new(Api::ChatCompletions, "http://localhost:8080/v1", "qwen3")?;
//! let request = Request { messages: vec![Message::User(vec![Part::from("Hello")])].into(), ..Request::default() };
//! println!("{}", model.complete(&request, &mut ignore)?.text);
//! # Ok::<(), flowgate_lm::Error>(())
//! ```

mod authorities;
mod budget;
mod client;
mod connection;
#[cfg(test)]
mod double;
mod leftovers;
mod names;
mod retry;
pub mod score;
mod socket;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::chat::{Completion, Request, Sampling, Usage, Written};
use crate::wire::chat_completions::{LIMIT, OLD_LIMIT, Sent};
use crate::wire::{Api, MAX_ANSWER};
use crate::{Complete, Delta, Error, Listener, estimate, sse, tell};

pub use authorities::{Authorities, AuthoritiesError};
pub use budget::Budget;
pub use client::UNTRUSTED;
use client::{Answer, Client, Exchange};
use retry::Failure;
pub use retry::Retries;

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Until there is a connection.
    pub connect: Duration,
    /// From then until the answer begins.
    pub first_byte: Duration,
    /// For everything, all attempts and the waits between them included.
    pub whole: Duration,
}

impl Default for Times {
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
pub struct Remote {
    client: Client,
    api: Api,
    model: String,
    name: String,
    streaming: bool,
    sampling: Sampling,
    old_max_tokens: bool,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).field("api", &self.api).finish_non_exhaustive()
    }
}

impl Remote {
    /// The model that a server calls `model`, at a base address: `https://api.openai.com/v1`,
    /// `https://api.anthropic.com/v1`, `http://localhost:8080/v1`.
    ///
    /// # Errors
    /// If the address is not one of HTTP, or has more than a host and a path.
    pub fn new(api: Api, base: &str, model: &str) -> Result<Self, Error> {
        let client = Client::new(base)?;
        let name = format!("{model} at {}", client.host());
        // Everybody knows the old name of the limit, but for the new models of whoever renamed it.
        let old_max_tokens = api == Api::ChatCompletions && client.host() != "api.openai.com";
        Ok(Self {
            client,
            api,
            model: model.to_owned(),
            name,
            streaming: true,
            sampling: Sampling::default(),
            old_max_tokens,
        })
    }

    /// The same server, asked for another model.
    #[must_use]
    pub fn asked_for(&self, model: &str) -> Self {
        let name = format!("{model} at {}", self.client.host());
        Self { model: model.to_owned(), name, ..self.clone() }
    }

    /// With a key, which is sent in the way of the form.
    ///
    /// # Errors
    /// If the key has characters that a header cannot have.
    pub fn key(mut self, key: &str) -> Result<Self, Error> {
        if self.api == Api::Messages {
            self.client.header("x-api-key", key.to_owned())?;
        } else {
            self.client.header("authorization", format!("Bearer {key}"))?;
        }
        Ok(self)
    }

    /// Whether to ask for a stream; so it is, unless told otherwise.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    /// How to choose tokens where a request does not say.
    #[must_use]
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// How long to wait.
    #[must_use]
    pub fn times(mut self, times: Times) -> Self {
        self.client.times = times;
        self
    }

    /// Keeps connections open for so long after an answer; they are closed unless told otherwise. A server may close one at
    /// any time, and a question on one that is being closed has no answer: be briefer than the server, and try again.
    #[must_use]
    pub fn keep_connections(mut self, idle: Duration) -> Self {
        self.client.keep_connections(idle);
        self
    }

    /// Trusts a server behind TLS if one of these vouches for it.
    #[must_use]
    pub fn authorities(mut self, authorities: &Authorities) -> Self {
        self.client.set_authorities(authorities);
        self
    }

    /// How often to try again.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.client.retries = retries;
        self
    }

    /// What all that share the budget may cost together.
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> Self {
        self.client.budget = Some(budget);
        self
    }

    /// Goes through the proxy that the environment names, if it names one.
    #[must_use]
    pub fn proxy_from_environment(mut self) -> Self {
        self.client.proxy_from_environment();
        self
    }

    /// Whether the limit of chat completions is called `max_tokens` instead of `max_completion_tokens`; so it is, but at
    /// `api.openai.com`.
    #[must_use]
    pub fn old_max_tokens(mut self, old: bool) -> Self {
        self.old_max_tokens = old;
        self
    }

    /// The same server and model, asked for the log-probability of texts. Its form, sampling and streaming do not matter.
    #[must_use]
    pub fn scorer(&self, by: score::ScoreBy) -> score::Scorer {
        score::Scorer::new(self.client.clone(), self.model.clone(), by)
    }

    /// The body of a request, in JSON, and where its messages end if they are at its beginning.
    fn body(&self, request: &Request) -> (Vec<u8>, Option<usize>) {
        let (model, stream) = (self.model.as_str(), self.streaming);
        if self.api == Api::ChatCompletions {
            let limit = if self.old_max_tokens { OLD_LIMIT } else { LIMIT };
            let body = Sent { request, model, stream, limit }.body();
            // Our own types have text for keys, so that this does not fail; an empty question is refused.
            return body.map_or_else(|_| (Vec::new(), None), |(body, end)| (body, Some(end)));
        }
        (self.api.encode_request(request, model, stream).to_string().into_bytes(), None)
    }

    fn with_defaults<'r>(&self, request: &'r Request) -> Cow<'r, Request> {
        let default = &self.sampling;
        if *default == Sampling::default() {
            return Cow::Borrowed(request);
        }
        let mut request = request.clone();
        let asked = &mut request.sampling;
        asked.max_tokens = asked.max_tokens.or(default.max_tokens);
        asked.temperature = asked.temperature.or(default.temperature);
        asked.top_p = asked.top_p.or(default.top_p);
        asked.seed = asked.seed.or(default.seed);
        if asked.stop.is_empty() {
            asked.stop.clone_from(&default.stop);
        }
        Cow::Owned(request)
    }
}

impl Complete for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn complete(&self, request: &Request, listener: &mut Listener<'_>) -> Result<Completion, Error> {
        let request = self.with_defaults(request);
        if let Some(what) = self.api.lost(&request) {
            return Err(Error::Unsupported(what));
        }
        let mut chat = Chat { remote: self, request: &request, listener, heard: 0 };
        let (mut body, end) = self.body(&request);
        let answered = self.client.ask(self.api.path(), &body, &mut chat);
        if let Some(end) = end {
            body.truncate(end);
            request.messages.leave_written(Written { text: body, messages: request.messages.len() });
        }
        answered
    }
}

/// One completion, over all attempts.
struct Chat<'a, 'b> {
    remote: &'a Remote,
    request: &'a Request,
    listener: &'a mut Listener<'b>,
    /// The bytes that the listener has heard in this attempt.
    heard: usize,
}

impl Chat<'_, '_> {
    fn read_stream(&mut self, answer: &mut Answer) -> Result<Completion, Failure> {
        let mut decoder = self.remote.api.decoder();
        let mut splitter = sse::Splitter::default();
        let mut buffer = vec![0_u8; 16 << 10];
        let (heard, listener) = (&mut self.heard, &mut *self.listener);
        let mut hear = |delta: Delta<'_>| {
            *heard += match delta {
                Delta::Text(text) | Delta::Arguments { json: text, .. } => text.len(),
                Delta::Call { name, .. } => name.len(),
                Delta::Again => 0,
            };
            listener(delta)
        };
        while !decoder.is_done() {
            let bytes = answer.read(&mut buffer)?;
            if bytes.is_empty() {
                // Whoever goes away in the middle of an answer may be back.
                return decoder.finish().map_err(Failure::passing);
            }
            for event in splitter.feed(bytes) {
                // What comes after the answer is no part of it.
                if decoder.is_done() {
                    break;
                }
                decoder.feed(&event?, &mut hear)?;
            }
        }
        Ok(decoder.finish()?)
    }

    /// Takes what an attempt cost from the budget, and more or less so if the server does not say.
    fn spend(&self, completion: Option<&Completion>) {
        let Some(budget) = &self.remote.client.budget else { return };
        let usage = match completion {
            Some(completion) if completion.usage != Usage::default() => completion.usage,
            Some(completion) => estimate::usage(self.request, completion),
            None => Usage { input: estimate::input(self.request), output: estimate::tokens(self.heard) },
        };
        budget.spend(usage);
    }
}

impl Exchange for Chat<'_, '_> {
    type Out = Completion;

    fn read(&mut self, mut answer: Answer) -> Result<Completion, Failure> {
        let read = if answer.is_stream() {
            self.read_stream(&mut answer)
        } else {
            answer.json().and_then(|body| Ok(self.remote.api.decode_response(&body)?))
        };
        self.spend(read.as_ref().ok());
        let completion = read?;
        if answer.is_stream() {
            answer.leave();
        } else {
            tell(&completion, self.listener)?;
        }
        Ok(completion)
    }

    fn again(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.heard) > 0 && (self.listener)(Delta::Again).is_break() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// The most bytes to read of a body: a stream says everything several times, and with many words.
const MAX_BODY: usize = 16 * MAX_ANSWER;

#[cfg(test)]
mod tests;
