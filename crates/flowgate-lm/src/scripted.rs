//! Defines [`ScriptedModel`], a double of a model for tests and benchmarks. It returns given answers in order, or
//! answers that a function computes from the requests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::chat::{Completion, Request};
use crate::{BoxFuture, ChatModel, Error, Listener, estimate, send_completion};

/// Computes the answer to a request.
type AnswerFunction = dyn Fn(&Request) -> Result<Completion, Error> + Send + Sync;

/// A model that returns scripted answers and counts its requests.
pub struct ScriptedModel {
    name: String,
    answer: Box<AnswerFunction>,
    /// The number of requests so far.
    requests: AtomicU64,
    /// The estimated number of input and output tokens of these requests.
    tokens: AtomicU64,
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ScriptedModel {
    /// Creates a model that returns `answers` in order, whatever the requests are. Every request after the last answer
    /// fails.
    pub fn from_answers(answers: impl IntoIterator<Item = Completion>) -> Self {
        let answers: Mutex<VecDeque<Completion>> = Mutex::new(answers.into_iter().collect());
        Self::from_function(move |_| {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.pop_front().ok_or(Error::Unsupported(
                "all scripted answers are used; script one answer for each request",
            ))
        })
    }

    /// Creates a model that answers each request with the result of the function `answer`.
    pub fn from_function(
        answer: impl Fn(&Request) -> Result<Completion, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: "scripted".to_owned(),
            answer: Box::new(answer),
            requests: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
        }
    }

    /// Sets the name of the model.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Returns the number of requests so far, including those that failed.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the estimated number of input and output tokens of all requests so far: a quarter of the bytes of the
    /// requests and answers.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }
}

impl ChatModel for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    /// Computes the answer, counts the request and its estimated tokens, and sends the answer to the listener as a
    /// whole. A request whose answer is an error counts as well, with its input tokens.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let answer = (self.answer)(request);
            let usage = match &answer {
                Ok(completion) => estimate::usage(request, completion),
                Err(_) => crate::chat::Usage { input: estimate::input(request), output: 0, cached: 0 },
            };
            self.tokens.fetch_add(usage.input.saturating_add(usage.output), Ordering::Relaxed);
            let completion = answer?;
            send_completion(&completion, listener)?;
            Ok(completion)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Message, Part};
    use crate::ignore_deltas;

    fn said(text: &str) -> Completion {
        Completion { text: text.to_owned(), ..Completion::default() }
    }

    #[tokio::test]
    async fn answers_in_order_and_counts() {
        let model = ScriptedModel::from_answers([said("12345678"), said("b")]).with_name("double");
        let request =
            Request { messages: vec![Message::User(vec![Part::from("1234")])].into(), ..Request::default() };
        assert_eq!(model.name(), "double");
        assert_eq!(model.complete(&request, &mut ignore_deltas).await.unwrap().text, "12345678");
        assert_eq!((model.requests(), model.tokens()), (1, 3));
        assert_eq!(model.complete(&request, &mut ignore_deltas).await.unwrap().text, "b");
        let none = model.complete(&request, &mut ignore_deltas).await.unwrap_err();
        assert_eq!(
            none.to_string(),
            "the model cannot answer this request: all scripted answers are used; script one answer for each request"
        );
        assert_eq!((model.requests(), model.tokens()), (3, 6));
    }

    #[tokio::test]
    async fn answers_as_a_function() {
        let model = ScriptedModel::from_function(|request| Ok(said(&request.messages.len().to_string())));
        let mut heard = String::new();
        let mut listener = |delta: crate::Delta<'_>| {
            heard += &format!("{delta:?}");
            std::ops::ControlFlow::Continue(())
        };
        assert_eq!(model.complete(&Request::default(), &mut listener).await.unwrap().text, "0");
        assert_eq!(heard, "Text(\"0\")");
        let mut stop = |_: crate::Delta<'_>| std::ops::ControlFlow::Break(());
        assert_eq!(model.complete(&Request::default(), &mut stop).await.unwrap_err(), Error::Cancelled);
    }
}
