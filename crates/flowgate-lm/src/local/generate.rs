//! Generates the next message of a chat.

use super::LocalModel;
use super::decoder::Probe;
use super::sampler::Sampler;
use super::template::ChatTemplate;
use super::tool_calls::CallFilter;
use crate::chat::{Completion, Message, Request, Stop, ToolChoice, ToolSpec, Usage};
use crate::{BoxFuture, ChatModel, Delta, Error, Listener};

impl ChatModel for LocalModel {
    fn name(&self) -> &str {
        &self.name
    }

    /// Generates the message. Without a temperature, each token is the most probable one.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(self.generate(request, listener))
    }
}

impl LocalModel {
    async fn generate(&self, request: &Request, listener: &mut dyn Listener) -> Result<Completion, Error> {
        let tools: &[ToolSpec] = match &request.choice {
            ToolChoice::Auto => &request.tools,
            ToolChoice::None => &[],
            ToolChoice::Any | ToolChoice::Tool(_) => {
                return Err(Error::Unsupported("a required tool call; let the model decide"));
            }
        };
        let template = self.template.as_ref();
        let prompt = template.ok_or(Error::Unsupported("chats, since its folder has no chat template"))?;
        let prompt = self.prompt_tokens(prompt, &request.messages, tools)?;
        let (mut cache, mut logits) = self.evaluate_prompt(&prompt)?;

        let sampling = &request.sampling;
        let room = self.context().saturating_sub(prompt.len());
        let most = sampling.max_tokens.and_then(|most| usize::try_from(most).ok()).unwrap_or(room).min(room);
        let held = sampling.stop.iter().map(String::len).max().unwrap_or(0).saturating_sub(1);
        let mut sampler = Sampler::new(sampling);
        let mut filter = CallFilter::new(tools);
        let mut characters = self.tokenizer.stream();
        let mut text = String::new();
        let mut count = 0;
        let stop = loop {
            if count == most {
                break Stop::Length;
            }
            let token = sampler.choose(&logits)?;
            if self.ends.contains(&token) {
                break Stop::End;
            }
            count += 1;
            if let Some(piece) = characters(token)? {
                filter.push(&piece);
                if filter.stop_at(&sampling.stop) {
                    break Stop::End;
                }
                send_text(&filter.take_text(held), &mut text, listener)?;
            }
            listener.ready().await;
            if count < most {
                let (hidden, extended) = self.evaluate(&[token], &cache, &mut Probe::default())?;
                cache = extended;
                logits = self.last_logits(&hidden)?;
            }
        };
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
            usage: Usage { input: tokens(prompt.len()), output: tokens(count) },
            thoughts: Vec::new(),
        })
    }

    fn prompt_tokens(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        tools: &[ToolSpec],
    ) -> Result<Vec<u32>, Error> {
        let prompt = template.render(messages, tools)?;
        let tokens = self.tokenizer.encode_written_out(&prompt)?.ids;
        if tokens.is_empty() {
            return Err(Error::Failed("its chat template gives an empty prompt".to_owned()));
        }
        self.check_length(tokens.len().saturating_add(1))?;
        Ok(tokens)
    }
}

/// How many calls a chat has, so that a new one has an id of its own.
fn earlier_calls(messages: &[Message]) -> usize {
    let calls = |message: &Message| match message {
        Message::Assistant { calls, .. } => calls.len(),
        _ => 0,
    };
    messages.iter().map(calls).sum()
}

fn send_text(piece: &str, text: &mut String, listener: &mut dyn Listener) -> Result<(), Error> {
    text.push_str(piece);
    if piece.is_empty() { Ok(()) } else { send(Delta::Text(piece), listener) }
}

fn send(delta: Delta<'_>, listener: &mut dyn Listener) -> Result<(), Error> {
    if listener.on_delta(delta).is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
