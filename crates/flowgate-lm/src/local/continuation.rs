//! Implements [`ContinuationModel`] for local models: continues a plain text by its most probable tokens, without a
//! chat template. Label propagation in `flowgate-guard` and the benchmarks obtain the answers to questions in this way.

use super::LocalModel;
use super::decoder::Probe;
use super::sampler::Sampler;
use crate::chat::Sampling;
use crate::{BoxFuture, ContinuationEnd, ContinuationModel, Error};

impl ContinuationModel for LocalModel {
    /// Continues the prompt as it is. No chat template is used, so the model needs none.
    fn continue_text<'a>(
        &'a self,
        prompt: &'a str,
        end: ContinuationEnd<'a>,
    ) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(std::future::ready(self.continuation(prompt, end)))
    }
}

impl LocalModel {
    /// Returns the continuation of a prompt: the most probable tokens, one after the other, until a token that ends a
    /// text, the stop text of `end`, or the limit on tokens of `end` or of the model.
    fn continuation(&self, prompt: &str, end: ContinuationEnd<'_>) -> Result<String, Error> {
        let tokens = self.tokenizer.encode(prompt)?.ids;
        if tokens.is_empty() {
            return Err(Error::Unsupported("the prompt is empty; give a text to continue"));
        }
        self.check_length(tokens.len().saturating_add(1))?;
        let limit = self.context().saturating_sub(tokens.len()).min(end.tokens);
        let (mut cache, mut logits) = self.evaluate_prompt(&tokens)?;
        let mut sampler = Sampler::new(&Sampling::default());
        let mut characters = self.tokenizer.stream();
        let mut text = String::new();
        for count in 1..=limit {
            let token = sampler.choose(&logits)?;
            if self.ends.contains(&token) {
                break;
            }
            // A token that ends within a character gives no piece yet.
            text.push_str(&characters(token)?.unwrap_or_default());
            if let Some((before, _)) = text.split_once(end.stop).filter(|_| !end.stop.is_empty()) {
                return Ok(before.to_owned());
            }
            // After the last token, no logits are needed.
            if count < limit {
                let (hidden, extended) = self.evaluate(&[token], &cache, &mut Probe::default())?;
                cache = extended;
                logits = self.last_logits(&hidden)?;
            }
        }
        Ok(text)
    }
}
