//! Defines [`ChatModel`], the trait of models that write the next message of a chat, and [`Listener`], the trait by
//! which the caller receives the message while it is generated. Also defines [`Error`], the error type of every kind
//! of model. The guard, the gateway, the benchmarks and the command line call models through [`ChatModel`].

use std::fmt;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::chat::{Completion, Request};

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A model that writes the next message of a chat.
pub trait ChatModel: Send + Sync {
    /// Returns the model's name, as reports show it. The name of a remote model includes the host of its server.
    fn name(&self) -> &str;

    /// Generates the next message. `listener` receives the whole message, in pieces if the server streams, and may
    /// cancel. A caller that drops the future cancels as well.
    ///
    /// # Errors
    /// If the listener cancels, no answer arrives, or the answer cannot be parsed. The caller must then discard the
    /// pieces that the listener has received.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>>;
}

impl<M: ChatModel + ?Sized> ChatModel for Arc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        (**self).complete(request, listener)
    }
}

impl<M: ChatModel + ?Sized> ChatModel for Box<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        (**self).complete(request, listener)
    }
}

/// Receives a completion while it is generated.
///
/// A closure is a listener that is always ready; its parameter needs a type, as in `|delta: Delta<'_>|`.
pub trait Listener: Send {
    /// Receives the next piece; `Break` cancels the completion.
    fn on_delta(&mut self, delta: Delta<'_>) -> ControlFlow<()>;

    /// Waits until the listener can take more pieces. A model awaits it between two reads from its server.
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl<F: FnMut(Delta<'_>) -> ControlFlow<()> + Send> Listener for F {
    fn on_delta(&mut self, delta: Delta<'_>) -> ControlFlow<()> {
        self(delta)
    }
}

/// Ignores a piece of a completion: a listener for callers that need only the whole answer.
pub fn ignore_deltas(_: Delta<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Sends a whole completion to a listener, as if it were streamed: for models that do not stream their answers. Sends
/// the readable reasoning first, then the text, then the calls. Empty texts and empty arguments are not sent.
///
/// # Errors
/// If the listener cancels.
pub fn send_completion(completion: &Completion, listener: &mut dyn Listener) -> Result<(), Error> {
    let mut send = |delta| if listener.on_delta(delta).is_break() { Err(Error::Cancelled) } else { Ok(()) };
    for text in completion.thoughts.iter().flat_map(|part| &part.texts).filter(|text| !text.is_empty()) {
        send(Delta::Reasoning(text))?;
    }
    if !completion.text.is_empty() {
        send(Delta::Text(&completion.text))?;
    }
    for (index, call) in completion.calls.iter().enumerate() {
        send(Delta::Call { index, id: &call.id, name: &call.name })?;
        if !call.arguments.is_empty() {
            send(Delta::Arguments { index, json: &call.arguments })?;
        }
    }
    Ok(())
}

/// A piece of a completion that is being generated.
///
/// The enumeration is exhaustive on purpose, so that every `match` handles every kind of piece: a piece that a listener
/// did not handle would be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Further readable reasoning. Usually it precedes the text; some models alternate between reasoning and text.
    Reasoning(&'a str),
    /// Further text.
    Text(&'a str),
    /// The beginning of a call.
    Call {
        /// The index of the call, from 0.
        index: usize,
        /// The id of the call, to which the output of the tool refers.
        id: &'a str,
        /// The name of the tool.
        name: &'a str,
    },
    /// A further piece of the arguments of a call.
    Arguments {
        /// The index of the call, from 0.
        index: usize,
        /// The piece of the arguments' JSON text.
        json: &'a str,
    },
    /// The attempt to answer failed and is retried: the listener must discard all earlier pieces.
    Restart,
}

/// Why a model gave no answer. No variant contains content of the request or the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The listener cancelled the request.
    Cancelled,
    /// No answer arrived in time.
    Timeout,
    /// The request cannot be sent, or the connection failed; with the reason.
    Unreachable(String),
    /// The server is busy and asks to send the request later.
    Busy {
        /// The requested delay, if the server states one.
        retry_after: Option<Duration>,
    },
    /// The server rejects the request.
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The server's name of the error; its longer message is left out, since it may quote the request.
        message: String,
    },
    /// The answer does not have the expected form; with what is wrong with it.
    Malformed(&'static str),
    /// The answer ended too early, or has a part that its server could not read; with the reason.
    Incomplete(&'static str),
    /// The answer, or one event of a stream, is longer than this limit, in bytes.
    TooLong(usize),
    /// The answer has too many parts of a kind; with the limit, and the advice.
    TooMany(&'static str),
    /// The budget for the model is spent, so the request was not sent; with the limit that is reached.
    OverBudget(&'static str),
    /// The model cannot answer the request: its wire format, its implementation in this crate, or the file of recorded
    /// answers does not support it; with the reason, as a sentence of its own that contains the advice.
    Unsupported(&'static str),
    /// A text has more tokens than the model can read.
    TooManyTokens {
        /// The number of tokens.
        tokens: usize,
        /// The most tokens that the model can read.
        limit: usize,
    },
    /// The provider's tool that a request asks for failed or did not run; with the reason, about the tool.
    ToolFailed(&'static str),
    /// A local model or a classifier cannot be evaluated, trained or read; with the reason, as a sentence of its own.
    Failed(String),
    /// The answer arrived but could not be recorded; with the reason.
    NotRecorded(String),
}

impl Error {
    /// Returns whether the server may answer the same request later: it is busy, or the status of its answer describes
    /// a temporary condition (408, 409, 429 and 5xx). Failed connections and timeouts are not temporary in this sense:
    /// they have no status.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Busy { .. } => true,
            Self::Rejected { status, .. } => matches!(status, 408 | 409 | 429 | 500..),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    /// Writes what happened. The texts in the variants are inserted, so they begin in lower case and contain the
    /// advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the request to the model was cancelled"),
            Self::Timeout => {
                f.write_str("the model did not answer in time; see the log of its server, and try again")
            }
            Self::Unreachable(why) => write!(f, "the model cannot be reached: {why}"),
            Self::Busy { retry_after: Some(wait) } => {
                write!(f, "the model server is busy; try again in {} s", wait.as_secs())
            }
            Self::Busy { retry_after: None } => f.write_str("the model server is busy; try again later"),
            Self::Rejected { status, message } => {
                write!(
                    f,
                    "the model's server rejected the request with the HTTP status {status} ({message}); see the documentation of its API"
                )
            }
            Self::Malformed(what) => write!(
                f,
                "the model server sent an answer that cannot be read: {what}; check the address and the API of the model server"
            ),
            Self::Incomplete(why) => write!(f, "the model's answer is not complete: {why}; try again"),
            Self::TooLong(limit) => {
                write!(f, "the model's answer is longer than {limit} bytes; ask for a shorter one")
            }
            Self::TooMany(limit) => write!(f, "the model's answer has more than {limit}"),
            Self::OverBudget(which) => {
                write!(f, "the request was not sent, since the budget for the model is spent: {which}")
            }
            Self::Unsupported(what) => write!(f, "the model cannot answer this request: {what}"),
            Self::TooManyTokens { tokens, limit } => {
                write!(
                    f,
                    "the text has {tokens} tokens, but the model reads at most {limit}; shorten the text"
                )
            }
            Self::ToolFailed(why) => write!(f, "the provider's tool gave no result: {why}"),
            Self::Failed(why) => f.write_str(why),
            Self::NotRecorded(why) => {
                write!(f, "the model answered, but the answer cannot be recorded: {why}")
            }
        }
    }
}

impl std::error::Error for Error {}
