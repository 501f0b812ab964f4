//! Evaluates texts of any length in pieces, and keeps the caches of recent prompts.
//!
//! Pieces begin at multiples of [`PIECE`]. What a prompt reuses of an earlier one is a whole number of pieces, so that all
//! products have the same shapes as without reuse, and the same results.

use candle_core::{D, Tensor};

use super::LocalModel;
use super::decoder::{KeyValueCache, Probe, token_row};
use crate::Error;

/// The most tokens that are evaluated at once.
pub(super) const PIECE: usize = 128;
/// The most hidden states that are mapped to the vocabulary at once.
const LOGIT_ROWS: usize = 64;
/// How many prompts of chats are kept, and how many tokens they may have together.
const RECENT_PROMPTS: usize = 4;
const RECENT_TOKENS: usize = 1 << 14;

/// Turns an error of the engine into one line.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn failed(error: candle_core::Error) -> Error {
    Error::Failed(error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// The caches of recent prompts, the latest last.
#[derive(Debug, Default)]
pub(super) struct RecentPrompts(Vec<(Vec<u32>, KeyValueCache)>);

impl RecentPrompts {
    /// Returns the cache of the longest beginning of `tokens` that is a whole number of pieces.
    fn find(&self, tokens: &[u32]) -> candle_core::Result<KeyValueCache> {
        let whole = |(prompt, cache): &(Vec<u32>, KeyValueCache)| {
            (common_length(prompt, tokens) / PIECE * PIECE, cache.clone())
        };
        match self.0.iter().map(whole).max_by_key(|(length, _)| *length) {
            Some((length, cache)) => cache.truncated(length),
            None => Ok(KeyValueCache::default()),
        }
    }

    fn insert(&mut self, tokens: &[u32], cache: &KeyValueCache) {
        // A prompt that continues an earlier one replaces it.
        self.0.retain(|(prompt, _)| !tokens.starts_with(prompt));
        self.0.push((tokens.to_vec(), cache.clone()));
        let mut room = RECENT_TOKENS;
        let mut fits = |(prompt, _): &(Vec<u32>, KeyValueCache)| {
            let fits = prompt.len() <= room;
            room = room.saturating_sub(prompt.len());
            fits
        };
        let kept = self.0.iter().rev().take(RECENT_PROMPTS).take_while(|entry| fits(entry)).count();
        self.0.drain(..self.0.len() - kept);
    }
}

/// Returns how many tokens two texts begin with in common.
pub(super) fn common_length(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl LocalModel {
    /// Fails if a text has more tokens than the model reads.
    pub(super) fn check_length(&self, tokens: usize) -> Result<(), Error> {
        let limit = self.context();
        if tokens > limit { Err(Error::TooManyTokens { tokens, limit }) } else { Ok(()) }
    }

    /// Extends a cache by tokens.
    pub(super) fn extend(&self, mut cache: KeyValueCache, tokens: &[u32]) -> Result<KeyValueCache, Error> {
        let mut left = tokens;
        while !left.is_empty() {
            let (piece, rest) = left.split_at(left.len().min(PIECE - cache.len() % PIECE));
            cache = self.evaluate(piece, &cache, &mut Probe::default())?.1;
            left = rest;
        }
        Ok(cache)
    }

    /// Evaluates some tokens after those of a cache. Returns hidden states of shape (1, tokens, width), and the new cache.
    pub(super) fn evaluate(
        &self,
        tokens: &[u32],
        cache: &KeyValueCache,
        probe: &mut Probe<'_>,
    ) -> Result<(Tensor, KeyValueCache), Error> {
        let row = token_row(tokens, self.decoder.device()).map_err(failed)?;
        self.decoder.forward(&row, cache, probe).map_err(failed)
    }

    /// Evaluates the prompt of a chat, reusing what earlier ones have in common with it. Returns the cache of all tokens, and the
    /// logits after the last one.
    pub(super) fn evaluate_prompt(&self, tokens: &[u32]) -> Result<(KeyValueCache, Vec<f32>), Error> {
        // The last piece is evaluated anyhow, for its logits.
        let last = tokens.len().saturating_sub(1) / PIECE * PIECE;
        let (before, rest) = tokens.split_at(last);
        let known = {
            let recent = self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            recent.find(before).map_err(failed)?
        };
        let cache = self.extend(known.clone(), before.get(known.len()..).unwrap_or_default())?;
        let (hidden, cache) = self.evaluate(rest, &cache, &mut Probe::default())?;
        let logits = self.last_logits(&hidden)?;
        let mut recent = self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        recent.insert(tokens, &cache);
        Ok((cache, logits))
    }

    /// Returns the logits after the last token of hidden states of shape (1, tokens, width).
    pub(super) fn last_logits(&self, hidden: &Tensor) -> Result<Vec<f32>, Error> {
        let last = |hidden: &Tensor| {
            let row = hidden.narrow(1, hidden.dim(1)? - 1, 1)?;
            self.decoder.logits(&row)?.flatten_all()?.to_vec1()
        };
        last(hidden).map_err(failed)
    }

    /// Returns the log-probability of one token after each hidden state; `hidden` has the shape (tokens, width).
    pub(super) fn logprobs(&self, hidden: &Tensor, tokens: &[u32]) -> Result<Vec<f64>, Error> {
        let mut logprobs = Vec::with_capacity(tokens.len());
        let mut start = 0;
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
            return Err(Error::Failed("its weights give no probabilities; they are damaged".to_owned()));
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
