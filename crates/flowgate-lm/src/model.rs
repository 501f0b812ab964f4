//! The traits, and what can go wrong.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::chat::{Completion, Request};

/// A model that writes the next message of a chat.
pub trait Complete: Send + Sync {
    /// What to call it in reports: the model, and where it runs if that matters.
    fn name(&self) -> &str;

    /// Writes the next message. `listener` hears all of it, piece by piece if the server streams, and may stop it.
    ///
    /// # Errors
    /// If there is no answer, or none that can be understood. What was heard before then does not count.
    fn complete(&self, request: &Request, listener: &mut Listener<'_>) -> Result<Completion, Error>;
}

impl<M: Complete + ?Sized> Complete for Arc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn complete(&self, request: &Request, listener: &mut Listener<'_>) -> Result<Completion, Error> {
        (**self).complete(request, listener)
    }
}

impl<M: Complete + ?Sized> Complete for Box<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn complete(&self, request: &Request, listener: &mut Listener<'_>) -> Result<Completion, Error> {
        (**self).complete(request, listener)
    }
}

/// A model that says how likely a given text is.
pub trait Score: Send + Sync {
    /// The tokens of `continuation` with the log-probability (natural) of each after `prompt` and the tokens before it.
    ///
    /// # Errors
    /// If the server does not say, or cuts the text into tokens across the end of the prompt.
    fn score(&self, prompt: &str, continuation: &str) -> Result<Vec<Token>, Error>;
}

/// A model that shows what it computes for a text.
pub trait Hidden: Send + Sync {
    /// One vector for each token: the output of the layer before the last.
    ///
    /// # Errors
    /// If the text is too long for the model.
    fn hidden(&self, text: &str) -> Result<Vec<Vec<f32>>, Error>;
}

/// A model that shows what it attends to.
pub trait Attend: Send + Sync {
    /// For each token of `continuation`, how much it depends on each token of `prompt`: rows of one length.
    ///
    /// # Errors
    /// If the texts are too long for the model.
    fn attend(&self, prompt: &str, continuation: &str) -> Result<Vec<Vec<f32>>, Error>;
}

/// Hears of a completion as it is written; `Break` stops it.
pub type Listener<'a> = dyn FnMut(Delta<'_>) -> ControlFlow<()> + 'a;

/// A listener that does not care.
pub fn ignore(_: Delta<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Tells a listener of a whole completion.
///
/// # Errors
/// If the listener stops it.
pub fn tell(completion: &Completion, listener: &mut Listener<'_>) -> Result<(), Error> {
    let mut hear = |delta| if listener(delta).is_break() { Err(Error::Cancelled) } else { Ok(()) };
    if !completion.text.is_empty() {
        hear(Delta::Text(&completion.text))?;
    }
    for (index, call) in completion.calls.iter().enumerate() {
        hear(Delta::Call { index, id: &call.id, name: &call.name })?;
        if !call.arguments.is_empty() {
            hear(Delta::Arguments { index, json: &call.arguments })?;
        }
    }
    Ok(())
}

/// A piece of a completion that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<'a> {
    /// More text.
    Text(&'a str),
    /// A call begins.
    Call {
        /// Which of the calls, from 0.
        index: usize,
        /// Its id.
        id: &'a str,
        /// The name of the tool.
        name: &'a str,
    },
    /// More of the arguments of a call.
    Arguments {
        /// Which of the calls, from 0.
        index: usize,
        /// The next bytes of the JSON.
        json: &'a str,
    },
    /// The attempt failed and another one begins: what was heard does not count.
    Again,
}

/// A token with its log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Its text.
    pub text: String,
    /// Natural logarithm of its probability.
    pub logprob: f64,
}

/// Why a model gave no answer. No variant holds what was asked or answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The listener stopped it.
    Cancelled,
    /// No answer in time.
    Timeout,
    /// Nobody answers at the address; why, in the words of the system.
    Unreachable(String),
    /// The server asks to wait.
    Busy {
        /// How long, if it says so.
        retry_after: Option<Duration>,
    },
    /// The server does not accept the request: its status, and its message without what was asked.
    Rejected {
        /// The HTTP status.
        status: u16,
        /// What the server calls the error.
        message: String,
    },
    /// The answer is not in the form that was asked for; what is wrong with it.
    Malformed(&'static str),
    /// The answer is longer than the limit, in bytes.
    TooLong(usize),
    /// The model may not be asked any more: which budget is spent.
    OverBudget(&'static str),
    /// The server, or the recorded answers, do not have what was asked for.
    Unsupported(&'static str),
    /// The answer came, but could not be recorded; why, in the words of the system.
    NotRecorded(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the model was stopped"),
            Self::Timeout => f.write_str("the model did not answer in time"),
            Self::Unreachable(why) => write!(f, "the model cannot be reached: {why}"),
            Self::Busy { retry_after: Some(wait) } => {
                write!(f, "the model is busy and asks to wait {} s", wait.as_secs())
            }
            Self::Busy { retry_after: None } => f.write_str("the model is busy"),
            Self::Rejected { status, message } => {
                write!(f, "the model's server does not accept the request ({status}): {message}")
            }
            Self::Malformed(what) => write!(f, "the model's answer cannot be read: {what}"),
            Self::TooLong(limit) => write!(f, "the model's answer is longer than {limit} bytes"),
            Self::OverBudget(which) => write!(f, "the model may not be asked any more: {which}"),
            Self::Unsupported(what) => write!(f, "the model's server does not have {what}"),
            Self::NotRecorded(why) => write!(f, "the model's answer cannot be recorded: {why}"),
        }
    }
}

impl std::error::Error for Error {}
