//! Defines [`Sampler`], which chooses the next token of a generated text from the logits, and [`SplitMix`], a generator
//! of random numbers. `generate.rs` and `continuation.rs` use the sampler. The trainer, `classifier.rs` and
//! `jacobian.rs` use the generator.

use std::hash::{BuildHasher, RandomState};

use crate::Error;
use crate::chat::Sampling;

/// Chooses tokens. The same seed and the same logits give the same tokens.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The temperature; 0 selects the most probable token.
    temperature: f64,
    /// The share of the probability, from 0 to 1, of the most probable tokens among which one is drawn.
    top_p: f64,
    random: SplitMix,
}

impl Sampler {
    /// Creates a sampler with the parameters of a request. Without a temperature, or with a negative one, the sampler
    /// always selects the most probable token. Without a seed, it uses a random seed. Without `top_p`, it draws from
    /// all tokens.
    pub(super) fn new(sampling: &Sampling) -> Self {
        Self {
            temperature: sampling.temperature.unwrap_or(0.0).max(0.0),
            top_p: sampling.top_p.unwrap_or(1.0),
            // Each `RandomState` has random keys, so its hash of a constant is a random number.
            random: SplitMix::new(sampling.seed.unwrap_or_else(|| RandomState::new().hash_one(0))),
        }
    }

    /// Returns the next token. `logits` has one entry for each token of the vocabulary. At temperature 0, the result is
    /// the most probable token. Otherwise it is drawn from the smallest set of the most probable tokens that together
    /// have the share `top_p` of the probability.
    ///
    /// # Errors
    /// If no logit is a number.
    pub(super) fn choose(&mut self, logits: &[f32]) -> Result<u32, Error> {
        let damaged = || {
            Error::Failed(
                "the weights of the model give no probabilities, so they are damaged; download them again"
                    .to_owned(),
            )
        };
        // The tokens with their logits, which later become weights proportional to the probabilities.
        let mut ranked: Vec<(u32, f64)> = (0_u32..)
            .zip(logits)
            .filter(|(_, logit)| !logit.is_nan())
            .map(|(id, &logit)| (id, logit.into()))
            .collect();
        // Of tokens with equal logits, the first one is best, so that the result is the same on every platform.
        let best = ranked.iter().copied().reduce(|best, other| if other.1 > best.1 { other } else { best });
        let (best, highest) = best.ok_or_else(damaged)?;
        if self.temperature == 0.0 {
            return Ok(best);
        }
        // The logits become weights: a lower temperature makes the differences between them larger.
        ranked.iter_mut().for_each(|(_, logit)| *logit = ((*logit - highest) / self.temperature).exp());
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let total: f64 = ranked.iter().map(|(_, weight)| weight).sum();
        // Counts the candidates: the smallest set of the most probable tokens that has the share `top_p`, at least one.
        let mut mass = 0.0;
        let mut candidates = 0;
        for (_, weight) in &ranked {
            mass += weight;
            candidates += 1;
            if mass >= self.top_p * total {
                break;
            }
        }
        // Draws a candidate with a probability proportional to its weight: subtracts the weights, one after the other,
        // from a random part of their sum, until nothing is left.
        let mut remaining = self.random.uniform() * mass;
        for (id, weight) in ranked.iter().take(candidates) {
            remaining -= weight;
            if remaining <= 0.0 {
                return Ok(*id);
            }
        }
        // Reached only if rounding leaves a rest.
        Ok(best)
    }
}

/// A generator of numbers (SplitMix64): the same seed gives the same numbers on every platform.
#[derive(Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// Creates a generator with this seed, which is its first state.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, from the whole range of 64 bits. The constants are those of SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the next number from 0 up to, but not including, 1: the upper 53 bits of the next number, which a `f64`
    /// represents exactly, as a fraction.
    pub(super) fn uniform(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(temperature: Option<f64>, top_p: Option<f64>, seed: u64, logits: &[f32]) -> Vec<u32> {
        let sampling = Sampling { temperature, top_p, seed: Some(seed), ..Sampling::default() };
        let mut sampler = Sampler::new(&sampling);
        (0..4000).map(|_| sampler.choose(logits).unwrap()).collect()
    }

    #[test]
    fn shares_follow_temperature_and_nucleus() {
        let logits = [0.0, 2_f32.ln(), 1_f32.ln(), f32::NEG_INFINITY];
        let check = |temperature: f64, top_p: Option<f64>, expected: [f64; 4]| {
            let drawn = tokens(Some(temperature), top_p, 1, &logits);
            for (id, expected) in (0..).zip(expected) {
                #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
                let share = drawn.iter().filter(|drawn| **drawn == id).count() as f64 / drawn.len() as f64;
                assert!((share - expected).abs() < 0.03, "{temperature} {top_p:?} {id}: {share} {expected}");
            }
        };
        check(1.0, None, [0.25, 0.5, 0.25, 0.0]);
        check(0.5, None, [1.0 / 6.0, 4.0 / 6.0, 1.0 / 6.0, 0.0]);
        check(1.0, Some(0.5), [0.0, 1.0, 0.0, 0.0]);
        check(1.0, Some(0.7), [1.0 / 3.0, 2.0 / 3.0, 0.0, 0.0]);
        check(0.0, None, [0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_seed_repeats() {
        let logits = [0.0, 0.1, 0.2];
        let draw = |seed| tokens(Some(1.0), None, seed, &logits);
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(tokens(None, None, 1, &[1.0, 1.0])[0], 0);
    }

    #[test]
    fn damaged_weights_are_an_error() {
        let mut sampler = Sampler::new(&Sampling::default());
        assert_eq!(sampler.choose(&[f32::NAN, -1.0]), Ok(1));
        let error = sampler.choose(&[f32::NAN]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the weights of the model give no probabilities, so they are damaged; download them again"
        );
    }
}
