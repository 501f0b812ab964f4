//! Lets a model without a chat template answer the question of introspection: [`ContinuedIntrospection`] writes the
//! request as a plain text that ends where the line with the sets begins, and the model continues it. The command line
//! and the benchmarks use it for local models.

use flowgate_lm::chat::{Completion, Message, Part, Request};
use flowgate_lm::{
    BoxFuture, ChatModel, ContinuationEnd, ContinuationModel, Error, Listener, send_completion,
};

use super::NEEDED;

/// A model that answers the requests of [`introspection_request`](super::introspection_request) by continuing a text.
/// It suits no other request.
#[derive(Clone, Copy)]
pub struct ContinuedIntrospection<'a> {
    /// The model.
    pub model: &'a dyn ContinuationModel,
    /// The most tokens of an answer.
    pub tokens: usize,
}

impl std::fmt::Debug for ContinuedIntrospection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContinuedIntrospection").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl ChatModel for ContinuedIntrospection<'_> {
    fn name(&self) -> &'static str {
        "introspection by continuing a text"
    }

    /// Lets the model continue the whole request. If the request is too long for the model, leaves out the
    /// instructions, and if it still is, the example. The question itself is never left out.
    ///
    /// # Errors
    /// If the question alone is too long, the model fails, or the listener cancels.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            let parts = parts(request);
            let mut left = parts.as_slice();
            let end = ContinuationEnd { tokens: self.tokens, stop: "\n" };
            let continued = loop {
                let prompt = left.concat() + NEEDED;
                // As long as the prompt is too long, its first part is left out, but never the last one, the question.
                match (self.model.continue_text(&prompt, end).await, left) {
                    (Err(Error::TooManyTokens { .. }), [_, rest @ ..]) if !rest.is_empty() => left = rest,
                    (continued, _) => break continued?,
                }
            };
            let completion = Completion { text: format!("{NEEDED}{continued}"), ..Completion::default() };
            send_completion(&completion, listener)?;
            Ok(completion)
        })
    }
}

/// Returns the parts of a request as plain texts: the instructions, the example with its answer if there is one, and
/// the question. Each ends with a line break.
fn parts(request: &Request) -> Vec<String> {
    let text = |parts: &[Part]| -> String {
        parts
            .iter()
            .filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None })
            .collect()
    };
    let mut all: Vec<String> = Vec::new();
    for message in request.messages.iter() {
        match message {
            Message::System(parts) | Message::User(parts) => all.push(text(parts) + "\n"),
            // An answer belongs to the question before it.
            Message::Assistant { text, .. } => match all.last_mut() {
                Some(asked) => asked.push_str(&format!("{text}\n\n")),
                None => all.push(format!("{text}\n\n")),
            },
            // A request for introspection has no outputs of tools.
            Message::Tool { .. } => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use flowgate_lm::{block_on, ignore_deltas};

    use super::super::{AnsweredQuestion, IntrospectionExample, introspection_request};
    use super::*;

    /// Continues each prompt that is not too long, and keeps all prompts.
    struct ShortReader {
        limit: usize,
        prompts: Mutex<Vec<String>>,
    }

    impl ContinuationModel for ShortReader {
        fn continue_text<'a>(
            &'a self,
            prompt: &'a str,
            end: ContinuationEnd<'a>,
        ) -> BoxFuture<'a, Result<String, Error>> {
            assert_eq!((end.tokens, end.stop), (9, "\n"));
            self.prompts.lock().unwrap().push(prompt.to_owned());
            let is_too_long = prompt.len() > self.limit;
            let error = Error::TooManyTokens { tokens: prompt.len(), limit: self.limit };
            Box::pin(ready(if is_too_long { Err(error) } else { Ok(" 2 | 1".to_owned()) }))
        }
    }

    fn ask(limit: usize) -> (Result<String, Error>, Vec<String>) {
        let texts = ["A is 1.".to_owned(), "B is 2.".to_owned()];
        let asked = |question| AnsweredQuestion { documents: &texts, question, answer: "1" };
        let example = IntrospectionExample { question: asked("example?"), sets: &[vec![0]] };
        let request = introspection_request(Some(example), asked("A?"));
        let model = ShortReader { limit, prompts: Mutex::default() };
        let answered = ContinuedIntrospection { model: &model, tokens: 9 };
        let completion = block_on(answered.complete(&request, &mut ignore_deltas));
        (completion.map(|completion| completion.text), model.prompts.into_inner().unwrap())
    }

    #[test]
    fn the_text_ends_where_the_sets_begin() {
        let (answer, prompts) = ask(usize::MAX);
        assert_eq!(answer.unwrap(), "NEEDED: 2 | 1");
        let [prompt] = prompts.as_slice() else { panic!("{prompts:?}") };
        assert!(prompt.starts_with("You are given documents"), "{prompt}");
        let rest = "[1] A is 1.\n[2] B is 2.\nQuestion: example?\nAnswer: 1\nNEEDED: 1\n\n\
                    [1] A is 1.\n[2] B is 2.\nQuestion: A?\nAnswer: 1\nNEEDED:";
        assert!(prompt.ends_with(rest), "{prompt}");
    }

    #[test]
    fn a_text_that_is_too_long_loses_its_beginning_and_never_the_question() {
        let (answer, prompts) = ask(150);
        assert_eq!((answer.is_ok(), prompts.len()), (true, 2), "{prompts:?}");
        assert!(prompts[1].starts_with("[1] A") && prompts[1].contains("example?"), "{prompts:?}");
        let (answer, prompts) = ask(80);
        assert_eq!((answer.is_ok(), prompts.len()), (true, 3), "{prompts:?}");
        assert!(!prompts[2].contains("example?") && prompts[2].contains("Question: A?"), "{prompts:?}");
        let (answer, prompts) = ask(10);
        assert!(matches!(answer, Err(Error::TooManyTokens { .. })) && prompts.len() == 3, "{answer:?}");
    }
}
