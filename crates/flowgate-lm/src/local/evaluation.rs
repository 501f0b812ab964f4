//! Evaluates long texts in pieces, and owns the caches of recent prompts ([`RecentPrompts`]). `generate.rs`,
//! `continuation.rs`, `score.rs` and `inside.rs` evaluate their texts with this module.
//!
//! Each piece ends at a multiple of [`PIECE`] tokens, or at the end of the text. A prompt that begins like an earlier
//! one reuses the evaluation of a whole number of pieces, so that all matrix products have the same shapes as without
//! reuse, and the same results.

use candle_core::{D, Tensor};

use super::LocalModel;
use super::decoder::{BlockedTokens, KeyValueCache, Probe, token_row};
use crate::Error;

/// The most tokens that are evaluated at once.
pub(super) const PIECE: usize = 128;
/// The most hidden states that are mapped to the vocabulary at once.
const LOGIT_ROWS: usize = 64;
/// The most prompts that are cached.
const RECENT_PROMPTS: usize = 4;
/// The most tokens of all cached prompts together.
const RECENT_TOKENS: usize = 1 << 14;

/// Converts an error of candle, the library that evaluates models. Only the first line of its text is used, since a
/// backtrace may follow.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn failed(error: candle_core::Error) -> Error {
    let text = error.to_string();
    Error::Failed(format!(
        "the local model failed: {}; check that the memory suffices and that the files of the model are undamaged",
        text.lines().next().unwrap_or_default()
    ))
}

/// The tokens and caches of recent prompts, the latest last.
#[derive(Debug, Default)]
pub(super) struct RecentPrompts(Vec<(Vec<u32>, KeyValueCache)>);

impl RecentPrompts {
    /// Returns the cache of the longest beginning that `tokens` shares with a recent prompt, rounded down to a whole
    /// number of pieces; an empty cache if no recent prompt shares a piece.
    fn find(&self, tokens: &[u32]) -> candle_core::Result<KeyValueCache> {
        let shared_pieces = |(prompt, cache): &(Vec<u32>, KeyValueCache)| {
            (common_length(prompt, tokens) / PIECE * PIECE, cache.clone())
        };
        match self.0.iter().map(shared_pieces).max_by_key(|(length, _)| *length) {
            Some((length, cache)) => cache.truncated(length),
            None => Ok(KeyValueCache::default()),
        }
    }

    /// Adds a prompt with its cache, and drops the oldest prompts until the limits on prompts and tokens are satisfied.
    /// If the new prompt alone exceeds the limit on tokens, nothing remains stored.
    fn insert(&mut self, tokens: &[u32], cache: &KeyValueCache) {
        // A prompt that continues an earlier one replaces it.
        self.0.retain(|(prompt, _)| !tokens.starts_with(prompt));
        self.0.push((tokens.to_vec(), cache.clone()));
        // Counts the latest prompts that fit into the limits; `room` is how many tokens may still be added.
        let mut room = RECENT_TOKENS;
        let mut fits = |(prompt, _): &(Vec<u32>, KeyValueCache)| {
            let fits = prompt.len() <= room;
            room = room.saturating_sub(prompt.len());
            fits
        };
        let count = self.0.iter().rev().take(RECENT_PROMPTS).take_while(|entry| fits(entry)).count();
        self.0.drain(..self.0.len() - count);
    }
}

/// Returns the length of the longest beginning that two texts share, in tokens.
pub(super) fn common_length(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl LocalModel {
    /// Fails if `tokens`, the number of tokens of a text, exceeds what the model reads.
    pub(super) fn check_length(&self, tokens: usize) -> Result<(), Error> {
        let limit = self.context();
        if tokens > limit { Err(Error::TooManyTokens { tokens, limit }) } else { Ok(()) }
    }

    /// Evaluates `tokens`, which follow the tokens of `cache`, and returns the cache extended by them. The tokens are
    /// evaluated in pieces that end at multiples of [`PIECE`]. Pieces bound the memory. They also give matrix products
    /// the same shapes, and so the same results, whether or not the beginning of the text came from a cache.
    pub(super) fn extend(&self, cache: KeyValueCache, tokens: &[u32]) -> Result<KeyValueCache, Error> {
        self.extend_blocking(cache, tokens, None)
    }

    /// Evaluates `tokens`, which follow the tokens of `cache`, and returns the cache extended by them. No token outside
    /// a region of `blocked` reads a token inside it. The tokens are evaluated in pieces that end at multiples of
    /// [`PIECE`], so that results are the same wherever the cache ends; see [`extend`](Self::extend).
    fn extend_blocking(
        &self,
        mut cache: KeyValueCache,
        tokens: &[u32],
        blocked: Option<&BlockedTokens>,
    ) -> Result<KeyValueCache, Error> {
        let mut remaining = tokens;
        while !remaining.is_empty() {
            let (piece, rest) = remaining.split_at(remaining.len().min(PIECE - cache.len() % PIECE));
            // `evaluate` also returns the hidden states, which are not needed here.
            cache = self.evaluate(piece, &cache, &mut Probe::blocking(blocked))?.1;
            remaining = rest;
        }
        Ok(cache)
    }

    /// Evaluates `tokens`, which follow the tokens of `cache`, all at once. Returns their hidden states, of shape (1,
    /// tokens, width), and the cache extended by them.
    pub(super) fn evaluate(
        &self,
        tokens: &[u32],
        cache: &KeyValueCache,
        probe: &mut Probe<'_>,
    ) -> Result<(Tensor, KeyValueCache), Error> {
        let row = token_row(tokens, self.decoder.device()).map_err(failed)?;
        self.decoder.forward(&row, cache, probe).map_err(failed)
    }

    /// Evaluates a prompt, and adds it to the recent prompts. The longest beginning that the prompt shares with a
    /// recent one is not evaluated again. Returns the cache of all tokens of the prompt, and the logits after the last
    /// token.
    pub(super) fn evaluate_prompt(&self, tokens: &[u32]) -> Result<(KeyValueCache, Vec<f32>), Error> {
        // The last piece is evaluated in any case, for its logits.
        let last = tokens.len().saturating_sub(1) / PIECE * PIECE;
        let (before, rest) = tokens.split_at(last);
        let reused = {
            let recent = self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            recent.find(before).map_err(failed)?
        };
        let cache = self.extend(reused.clone(), before.get(reused.len()..).unwrap_or_default())?;
        let (hidden, cache) = self.evaluate(rest, &cache, &mut Probe::default())?;
        let logits = self.last_logits(&hidden)?;
        let mut recent = self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        recent.insert(tokens, &cache);
        Ok((cache, logits))
    }

    /// Evaluates the prompt of a chat with blocked regions. Returns the cache of all tokens of the prompt, and the
    /// logits after the last token. Recent prompts are neither used nor stored, since blocked regions change the
    /// evaluation.
    pub(super) fn evaluate_blocking(
        &self,
        tokens: &[u32],
        blocked: &BlockedTokens,
    ) -> Result<(KeyValueCache, Vec<f32>), Error> {
        // The last piece is evaluated separately, for the logits after its last token.
        let (before, rest) = tokens.split_at(tokens.len().saturating_sub(1) / PIECE * PIECE);
        let cache = self.extend_blocking(KeyValueCache::default(), before, Some(blocked))?;
        let (hidden, cache) = self.evaluate(rest, &cache, &mut Probe::blocking(Some(blocked)))?;
        Ok((cache, self.last_logits(&hidden)?))
    }

    /// Returns the logits from which the next token of a text is chosen. `hidden` are the hidden states of the last
    /// tokens of the text, of shape (1, tokens, width).
    pub(super) fn last_logits(&self, hidden: &Tensor) -> Result<Vec<f32>, Error> {
        let last = |hidden: &Tensor| {
            let row = hidden.narrow(1, hidden.dim(1)? - 1, 1)?;
            self.decoder.logits(&row)?.flatten_all()?.to_vec1()
        };
        last(hidden).map_err(failed)
    }

    /// Returns the log-probability of each token of `tokens`. `hidden` has the shape (tokens, width): its row `i` is
    /// the hidden state of the token before `tokens[i]`, from which that token is predicted.
    ///
    /// # Errors
    /// If a log-probability is not a number.
    pub(super) fn logprobs(&self, hidden: &Tensor, tokens: &[u32]) -> Result<Vec<f64>, Error> {
        let mut logprobs = Vec::with_capacity(tokens.len());
        let mut start = 0;
        // A row of logits is as long as the vocabulary, so only a few rows are computed at once.
        for piece in tokens.chunks(LOGIT_ROWS) {
            let rows = || {
                let logits = self.decoder.logits(&hidden.narrow(0, start, piece.len())?)?;
                let targets = Tensor::from_slice(piece, (piece.len(), 1), self.decoder.device())?;
                let chosen = logits.gather(&targets, D::Minus1)?.squeeze(1)?;
                (chosen - logits.log_sum_exp(D::Minus1)?)?.to_vec1::<f32>()
            };
            logprobs.extend(rows().map_err(failed)?.into_iter().map(f64::from));
            start += piece.len();
        }
        if logprobs.iter().any(|logprob| logprob.is_nan()) {
            return Err(Error::Failed(
                "the weights of the model give no probabilities, so they are damaged; download them again"
                    .to_owned(),
            ));
        }
        Ok(logprobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_prompts_are_bounded() {
        let mut recent = RecentPrompts::default();
        let lengths = |recent: &RecentPrompts| -> Vec<usize> {
            recent.0.iter().map(|(prompt, _)| prompt.len()).collect()
        };
        let cache = KeyValueCache::default();
        for length in [10, 20, 30] {
            // Each continues the one before.
            recent.insert(&vec![1; length], &cache);
        }
        assert_eq!(lengths(&recent), [30]);
        for first in 2..9 {
            recent.insert(&[first; 5], &cache);
        }
        assert_eq!(lengths(&recent), [5; RECENT_PROMPTS]);
        recent.insert(&vec![9; RECENT_TOKENS - 7], &cache);
        assert_eq!(lengths(&recent), [5, RECENT_TOKENS - 7]);
        recent.insert(&vec![10; RECENT_TOKENS + 1], &cache);
        assert!(lengths(&recent).is_empty());
    }
}
