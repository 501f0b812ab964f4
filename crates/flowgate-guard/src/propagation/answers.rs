//! Lets models answer questions about labelled documents for the wrapper, by its trait [`AnswerModel`]: [`ChatAnswers`]
//! asks a model for chats, and [`ContinuedAnswers`] lets a model without a chat template continue the prompt.

use flowgate_lm::chat::{Message, Part, Request, ToolChoice};
use flowgate_lm::{BoxFuture, ChatModel, ContinuationEnd, ContinuationModel, Error, ignore_deltas};

use super::AnswerModel;

/// Answers by a model for chats, remote or local: the prompt is the only message, and no tools are on offer.
#[derive(Clone, Copy)]
pub struct ChatAnswers<'a> {
    /// The model.
    pub model: &'a dyn ChatModel,
    /// The system message, which describes the task; empty for none.
    pub instructions: &'a str,
}

impl std::fmt::Debug for ChatAnswers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChatAnswers({})", self.model.name())
    }
}

impl AnswerModel for ChatAnswers<'_> {
    /// Returns the text of the message, without white space at its ends. Fails if it has none: an empty answer has the
    /// same probability everywhere, so every label would seem sufficient.
    fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(async move {
            let text = |text: &str| vec![Part::Text(text.to_owned())];
            let mut request = Request { choice: ToolChoice::None, ..Request::default() };
            if !self.instructions.is_empty() {
                request.messages.push(Message::System(text(self.instructions)));
            }
            request.messages.push(Message::User(text(prompt)));
            let completion = self.model.complete(&request, &mut ignore_deltas).await?;
            checked(&completion.text)
        })
    }
}

/// Answers by a model that continues the prompt, up to the end of the line.
#[derive(Clone, Copy)]
pub struct ContinuedAnswers<'a> {
    /// The model.
    pub model: &'a dyn ContinuationModel,
    /// The most tokens of an answer.
    pub tokens: usize,
}

impl std::fmt::Debug for ContinuedAnswers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContinuedAnswers").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl AnswerModel for ContinuedAnswers<'_> {
    /// Returns the rest of the line with which the model continues the prompt, without white space at its ends. Fails
    /// if it is empty, as for [`ChatAnswers`].
    fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(async move {
            let end = ContinuationEnd { tokens: self.tokens, stop: "\n" };
            let text = self.model.continue_text(prompt, end).await?;
            checked(&text)
        })
    }
}

/// Returns an answer without white space at its ends.
///
/// # Errors
/// If nothing is left.
fn checked(answer: &str) -> Result<String, Error> {
    match answer.trim() {
        "" => Err(Error::Failed(
            "the model gave an empty answer; reword the question, or use another model".to_owned(),
        )),
        answer => Ok(answer.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use flowgate_lm::chat::Completion;
    use flowgate_lm::{ScriptedModel, block_on};

    use super::*;

    /// Continues a prompt with its last word.
    struct LastWord;

    impl ContinuationModel for LastWord {
        fn continue_text<'a>(
            &'a self,
            prompt: &'a str,
            end: ContinuationEnd<'a>,
        ) -> BoxFuture<'a, Result<String, Error>> {
            assert_eq!((end.tokens, end.stop), (7, "\n"));
            Box::pin(ready(Ok(format!(" {} ", prompt.split(' ').next_back().unwrap_or_default()))))
        }
    }

    #[test]
    fn a_chat_model_answers_the_prompt_and_nothing_else() {
        let model = ScriptedModel::from_function(|request| {
            assert_eq!((request.tools.len(), &request.choice), (0, &ToolChoice::None));
            let text = format!(" {} ", request.messages.iter().count());
            Ok(Completion { text, ..Completion::default() })
        });
        let answer =
            |instructions| block_on(ChatAnswers { model: &model, instructions }.answer("Who?")).unwrap();
        assert_eq!((answer(""), answer("Answer briefly.")), ("1".to_owned(), "2".to_owned()));
    }

    #[test]
    fn an_empty_answer_is_an_error() {
        let model = ScriptedModel::from_function(|_| Ok(Completion::default()));
        let error = block_on(ChatAnswers { model: &model, instructions: "" }.answer("Who?")).unwrap_err();
        assert!(error.to_string().contains("an empty answer"), "{error}");
        let continued = ContinuedAnswers { model: &LastWord, tokens: 7 };
        assert_eq!(block_on(continued.answer("the room")).unwrap(), "room");
        assert!(block_on(continued.answer("the room ")).is_err());
    }
}
