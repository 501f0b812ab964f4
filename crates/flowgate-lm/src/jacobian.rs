//! Defines [`JacobianModel`], the trait of models that bound how much of their input an output can reveal. Local
//! models implement it, and the measurement of screeners compares the bound with attention.
//!
//! The bound is that of a Gaussian channel. Let the embeddings `x` of some tokens be perturbed by independent
//! Gaussian noise with the standard deviation `s`. To first order, the logits of each step of the output change by
//! `J` times the perturbation, where `J` is the Jacobian. Near the distribution of a token, the Fisher information of
//! the softmax, `F = diag(p) - p p'`, measures how well two distributions can be distinguished. What the
//! distributions of the given output reveal about the perturbation is then at most
//! `log det(1 + s² J' F J) / 2 <= s² tr(J' F J) / 2` nats. The trace is additive over tokens, so one evaluation bounds
//! every region.
//!
//! The trace is estimated from a few random projections: for signs `z`, the gradient of `(√F z) · logits` has the
//! expected squared length `tr(J' F J)`. Each projection costs one backward pass.
//!
//! *GIF: Locally Sound Geometric Information Flow Control for LLMs* (arXiv 2606.23277) bounds information flow by the
//! Jacobian and the local geometry of the output as well. This bound was derived from that idea and not from the
//! paper, so it is not GIF, and GIF's figures do not apply to it.

use std::ops::Range;

use crate::Error;

/// A model that bounds how much of its input an output can reveal.
pub trait JacobianModel: Send + Sync {
    /// Estimates for each token of the prompt how much the output of the request reveals about it at most, in nats.
    ///
    /// # Errors
    /// If the texts are too long for the model, one of them is empty, or a token spans the end of the prompt.
    fn information_bounds(&self, request: &JacobianRequest<'_>) -> Result<InformationBounds, Error>;
}

/// A request for the bounds of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JacobianRequest<'a> {
    /// The text whose tokens are perturbed.
    pub prompt: &'a str,
    /// The output.
    pub continuation: &'a str,
    /// The number of random projections, from 1 to 256. More make the estimate more exact.
    pub projections: usize,
    /// The seed of the random projections. The same seed gives the same bounds.
    pub seed: u64,
}

/// The bounds of the tokens of a prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InformationBounds {
    /// The byte range of each token in the prompt; empty for a token that the model adds.
    pub tokens: Vec<Range<usize>>,
    /// The bound of each token in nats, in the same order, for noise whose standard deviation is the root mean square
    /// of the embeddings' entries.
    pub bounds: Vec<f64>,
}

impl InformationBounds {
    /// Returns the bound of each region, which is a range of bytes of the prompt: the sum over the tokens that begin in
    /// it. A token that the model adds has an empty range and is in no region.
    #[must_use]
    pub fn of_regions(&self, regions: &[Range<usize>]) -> Vec<f64> {
        let tokens = || self.tokens.iter().zip(&self.bounds);
        let bound = |region: &Range<usize>| {
            let own = tokens().filter(|(token, _)| !token.is_empty() && region.contains(&token.start));
            own.map(|(_, bound)| bound).sum()
        };
        regions.iter().map(bound).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_the_sum_of_its_tokens() {
        let bounds =
            InformationBounds { tokens: vec![0..0, 0..2, 2..5, 5..6], bounds: vec![8.0, 1.0, 2.0, 4.0] };
        assert_eq!(bounds.of_regions(&[0..2, 2..6, 3..6, 6..9]), [1.0, 6.0, 4.0, 0.0]);
    }
}
