//! Implements [`ChatModel`] and [`BlockingModel`] for local models: generates the next message of a chat. `template.rs`
//! renders the chat as a prompt, `sampler.rs` chooses the tokens, and `tool_calls.rs` finds the tool calls in the
//! generated text.

use super::LocalModel;
use super::blocking::render_blocking;
use super::decoder::{BlockedTokens, Probe};
use super::sampler::Sampler;
use super::template::ChatTemplate;
use super::tool_calls::CallFilter;
use crate::chat::{Completion, Message, Request, Stop, ToolChoice, ToolSpec, Usage};
use crate::{BlockedText, BlockingModel, BoxFuture, ChatModel, Delta, Error, Listener};

impl ChatModel for LocalModel {
    fn name(&self) -> &str {
        &self.name
    }

    /// Generates the next message. If the request sets no temperature, each token is the most probable one.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        // No text of the chat is blocked.
        Box::pin(self.generate(request, &[], listener))
    }
}

impl BlockingModel for LocalModel {
    /// Generates the message as [`complete`](ChatModel::complete) does. A blocked text is converted to tokens by
    /// itself, so that no token is partly blocked.
    fn complete_blocking<'a>(
        &'a self,
        request: &'a Request,
        blocked: &'a [BlockedText],
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(self.generate(request, blocked, listener))
    }
}

impl LocalModel {
    /// Generates the next message of a chat: tokens after the prompt, until an end token, a stop sequence or the limit
    /// on tokens. Passes a piece of text to the listener as soon as it cannot be the beginning of a stop sequence or of
    /// a call. Passes the calls at the end. No token outside a text of `blocked` reads a token inside this text.
    ///
    /// # Errors
    /// If the model has no chat template, if the request requires a tool call or a form of the text, if the prompt is
    /// too long, if a blocked text cannot be located, if the evaluation fails, or if the listener cancels.
    async fn generate(
        &self,
        request: &Request,
        blocked: &[BlockedText],
        listener: &mut dyn Listener,
    ) -> Result<Completion, Error> {
        let tools: &[ToolSpec] = match &request.choice {
            ToolChoice::Auto => &request.tools,
            ToolChoice::None => &[],
            ToolChoice::Any | ToolChoice::Tool(_) => {
                return Err(Error::Unsupported(
                    "a local model cannot be forced to call a tool; let the model decide whether it calls a tool",
                ));
            }
        };
        if request.format.is_some() {
            return Err(Error::Unsupported(
                "a local model has no structured output; describe the form of the text in a message",
            ));
        }
        let template = self.template.as_ref();
        let prompt =
            template.ok_or(Error::Unsupported("the model has no chat template; use a model for chats"))?;
        // Evaluate the prompt. With blocked texts, the prompt is divided into tokens differently, and a mask is needed.
        let (prompt, blocked) = if blocked.is_empty() {
            (self.prompt_tokens(prompt, &request.messages, tools)?, None)
        } else {
            let (tokens, blocked) = self.blocking_prompt(prompt, &request.messages, tools, blocked)?;
            (tokens, Some(blocked))
        };
        let (mut cache, mut logits) = match &blocked {
            Some(blocked) => self.evaluate_blocking(&prompt, blocked)?,
            None => self.evaluate_prompt(&prompt)?,
        };

        let sampling = &request.sampling;
        // How many tokens the model can still read after the prompt.
        let room = self.context().saturating_sub(prompt.len());
        let limit =
            sampling.max_tokens.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(room).min(room);
        // The most bytes at the end of the text that may be the beginning of a stop sequence: the length of the longest
        // one minus 1.
        let held_back = sampling.stop.iter().map(String::len).max().unwrap_or(0).saturating_sub(1);
        let mut sampler = Sampler::new(sampling);
        let mut filter = CallFilter::new(tools);
        let mut characters = self.tokenizer.stream();
        // The text that the listener has received.
        let mut text = String::new();
        // The number of generated tokens.
        let mut count = 0;
        let stop = loop {
            if count == limit {
                break Stop::Length;
            }
            let token = sampler.choose(&logits)?;
            if self.ends.contains(&token) {
                break Stop::End;
            }
            count += 1;
            // A token that ends within a character gives no piece yet.
            if let Some(piece) = characters(token)? {
                filter.push(&piece);
                if filter.stop_at(&sampling.stop) {
                    break Stop::End;
                }
                send_text(&filter.take_text(held_back), &mut text, listener)?;
            }
            // A listener that is not ready for more text delays the generation of the next token.
            listener.ready().await;
            // After the last token, no logits are needed.
            if count < limit {
                let (hidden, extended) =
                    self.evaluate(&[token], &cache, &mut Probe::blocking(blocked.as_ref()))?;
                cache = extended;
                logits = self.last_logits(&hidden)?;
            }
        };
        // The generated text that was not passed on yet is either text or calls.
        let (rest, calls) = filter.finish(tools, earlier_calls(&request.messages));
        send_text(&rest, &mut text, listener)?;
        for (index, call) in calls.iter().enumerate() {
            send(Delta::Call { index, id: &call.id, name: &call.name }, listener)?;
            send(Delta::Arguments { index, json: &call.arguments }, listener)?;
        }
        let stop = if calls.is_empty() { stop } else { Stop::Calls };
        let tokens = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Ok(Completion {
            text,
            calls,
            stop,
            usage: Usage { input: tokens(prompt.len()), output: tokens(count), cached: 0 },
            ..Completion::default()
        })
    }

    /// Returns the tokens of the prompt for a chat. Fails if the template cannot render the chat, or if the prompt is
    /// empty or leaves no room for a token of the message.
    fn prompt_tokens(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        tools: &[ToolSpec],
    ) -> Result<Vec<u32>, Error> {
        let prompt = template.render(messages, tools)?;
        // The template writes special tokens itself, such as the token that begins a text. The tokenizer adds none.
        let tokens = self.tokenizer.encode_written_out(&prompt)?.ids;
        self.check_prompt(&tokens)?;
        Ok(tokens)
    }

    /// Returns the tokens of the prompt for a chat, and the regions of the blocked texts among these tokens. Fails as
    /// [`prompt_tokens`](Self::prompt_tokens) does, or if a blocked text cannot be located. Each piece of the prompt is
    /// converted to tokens separately, so that no token contains a part of a blocked text and other text.
    pub(super) fn blocking_prompt(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        tools: &[ToolSpec],
        blocked: &[BlockedText],
    ) -> Result<(Vec<u32>, BlockedTokens), Error> {
        let (mut tokens, mut regions) = (Vec::new(), BlockedTokens::default());
        for piece in render_blocking(template, messages, tools, blocked)? {
            let start = tokens.len();
            tokens.extend(self.tokenizer.encode_written_out(&piece.text)?.ids);
            if piece.is_blocked {
                regions.push(start..tokens.len());
            }
        }
        self.check_prompt(&tokens)?;
        Ok((tokens, regions))
    }

    /// Fails if the prompt of a chat is empty, or leaves no room for a token of the message.
    fn check_prompt(&self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::Failed(
                "the chat template of the model gives an empty prompt; correct the template".to_owned(),
            ));
        }
        self.check_length(tokens.len().saturating_add(1))
    }
}

/// Returns the number of calls in a chat. New calls are numbered from this number on, so that their ids differ from the
/// ids of earlier calls.
fn earlier_calls(messages: &[Message]) -> usize {
    let calls = |message: &Message| match message {
        Message::Assistant { calls, .. } => calls.len(),
        _ => 0,
    };
    messages.iter().map(calls).sum()
}

/// Appends a piece to the text of the message, and passes it to the listener.
fn send_text(piece: &str, text: &mut String, listener: &mut dyn Listener) -> Result<(), Error> {
    text.push_str(piece);
    if piece.is_empty() { Ok(()) } else { send(Delta::Text(piece), listener) }
}

/// Passes a piece of the message to the listener. Fails if the listener cancels.
fn send(delta: Delta<'_>, listener: &mut dyn Listener) -> Result<(), Error> {
    if listener.on_delta(delta).is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
