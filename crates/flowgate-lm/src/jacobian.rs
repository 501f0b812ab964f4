//! Defines [`JacobianModel`], the trait of models that bound how much an output can reveal of each token of its prompt,
//! from the derivatives of the output's logits. Local models implement the trait. The measurement of screeners compares
//! the bound with attention, as two ways to find the regions that an output depends on.
//!
//! The bound is that of a Gaussian channel. Let the embeddings `x` of some tokens be perturbed by independent
//! Gaussian noise with the standard deviation `s`. To first order, the logits of each step of the output change by
//! `J` times the perturbation, where `J` is the Jacobian. Near the distribution of a token, the Fisher information of
//! the softmax, `F = diag(p) - p p'`, measures how well two distributions can be distinguished (`p` is the vector of
//! probabilities, `'` the transpose). What the distributions of the given output reveal about the perturbation is then
//! at most `log det(1 + s² J' F J) / 2` nats, which is at most `s² tr(J' F J) / 2`. The trace is additive over tokens,
//! so one evaluation bounds every region.
//!
//! The trace is estimated from a few random projections: for signs `z`, the gradient of `(√F z) · logits` has the
//! expected squared length `tr(J' F J)`. Each projection costs one backward pass.
//!
//! The determinant is estimated from the same gradients: `J' F J` is approximated by the mean of `g g'` over the `k`
//! gradients `g`, a matrix of rank at most `k`. The determinant then equals that of a matrix with `k` rows, computed
//! from the inner products of the gradients (restricted to the tokens of the region). This estimate is never above that
//! of the trace, and does not grow with every token of a long region. With few projections, the estimate is too low if
//! the true rank is higher: it can order regions, but is no bound.
//!
//! *GIF: Locally Sound Geometric Information Flow Control for LLMs* (arXiv 2606.23277) bounds information flow by the
//! Jacobian and the local geometry of the output as well. The bound of this module was derived from that idea and not
//! from the paper: it is not GIF, and GIF's figures do not apply to it.

use std::ops::Range;

use crate::Error;

/// A model that bounds how much an output can reveal of its input.
pub trait JacobianModel: Send + Sync {
    /// Returns for each token of the prompt an estimate, in nats, of the most that the output (`request.continuation`)
    /// can reveal about the token.
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
    /// The output whose information about the prompt is bounded.
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
    /// For each token, the inner products of the gradients of all projections, restricted to this token's embedding:
    /// the entries of a symmetric matrix, row by row, scaled so that its trace is twice the token's bound. Empty if the
    /// model does not compute the products.
    pub products: Vec<Vec<f64>>,
}

impl InformationBounds {
    /// Returns the bound of each region (a range of bytes of the prompt): the sum over the tokens that begin in the
    /// region. A token that the model adds has an empty range and is in no region.
    #[must_use]
    pub fn of_regions(&self, regions: &[Range<usize>]) -> Vec<f64> {
        let tokens = || self.tokens.iter().zip(&self.bounds);
        let bound = |region: &Range<usize>| {
            let own = tokens().filter(|(token, _)| !token.is_empty() && region.contains(&token.start));
            own.map(|(_, bound)| bound).sum()
        };
        regions.iter().map(bound).collect()
    }

    /// Returns for each region (a range of bytes of the prompt) the low-rank estimate of what the output reveals about
    /// the region, in nats: half the logarithm of the determinant of the identity plus the sum of the products of the
    /// region's tokens (the header of this module derives it). The estimate is between 0 and the bound of
    /// [`of_regions`](Self::of_regions). If the model has computed no products, returns those bounds.
    #[must_use]
    pub fn low_rank_of_regions(&self, regions: &[Range<usize>]) -> Vec<f64> {
        if self.products.len() != self.tokens.len() {
            return self.of_regions(regions);
        }
        let estimate = |region: &Range<usize>| {
            let tokens = self.tokens.iter().zip(&self.products);
            let own = tokens.filter(|(token, _)| !token.is_empty() && region.contains(&token.start));
            // The products of a region are the sums of those of its tokens.
            let sum = own.fold(Vec::new(), |mut sum: Vec<f64>, (_, products)| {
                sum.resize(products.len().max(sum.len()), 0.0);
                sum.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
                sum
            });
            half_log_determinant(sum)
        };
        regions.iter().map(estimate).collect()
    }
}

/// Returns half the logarithm of the determinant of the identity plus a symmetric matrix without negative eigenvalues,
/// given row by row in one list. This is the sum of the logarithms of the diagonal entries of the Cholesky factor of
/// that sum of matrices.
fn half_log_determinant(mut matrix: Vec<f64>) -> f64 {
    let size = matrix.len().isqrt();
    for index in 0..size {
        if let Some(entry) = matrix.get_mut(index * size + index) {
            *entry += 1.0;
        }
    }
    let mut half_log = 0.0;
    // Eliminates one row after the other; the pivots are the squares of the diagonal of the factor.
    for pivot_row in 0..size {
        let at = |matrix: &[f64], row: usize, column: usize| matrix.get(row * size + column).copied();
        // Without rounding errors, each pivot would be at least 1. `max` keeps a pivot above 0, so that it has a
        // logarithm.
        let pivot = at(&matrix, pivot_row, pivot_row).unwrap_or(1.0).max(f64::MIN_POSITIVE);
        half_log += pivot.ln() / 2.0;
        for row in pivot_row + 1..size {
            let factor = at(&matrix, row, pivot_row).unwrap_or_default() / pivot;
            for column in pivot_row..size {
                let above = at(&matrix, pivot_row, column).unwrap_or_default();
                if let Some(entry) = matrix.get_mut(row * size + column) {
                    *entry -= factor * above;
                }
            }
        }
    }
    half_log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_the_sum_of_its_tokens() {
        let bounds = InformationBounds {
            tokens: vec![0..0, 0..2, 2..5, 5..6],
            bounds: vec![8.0, 1.0, 2.0, 4.0],
            products: Vec::new(),
        };
        let regions = [0..2, 2..6, 3..6, 6..9];
        assert_eq!(bounds.of_regions(&regions), [1.0, 6.0, 4.0, 0.0]);
        // Without products, the trace is all that is known.
        assert_eq!(bounds.low_rank_of_regions(&regions), [1.0, 6.0, 4.0, 0.0]);
    }

    /// Two gradients: equal ones reveal one direction, orthogonal ones two, and the determinant tells them apart.
    #[test]
    fn the_low_rank_estimate_counts_directions() {
        let equal = vec![3.0, 3.0, 3.0, 3.0];
        let orthogonal = vec![3.0, 0.0, 0.0, 3.0];
        let bounds = InformationBounds {
            tokens: vec![0..1, 1..2, 2..3],
            bounds: vec![3.0, 3.0, 3.0],
            products: vec![equal.clone(), equal, orthogonal],
        };
        let found = bounds.low_rank_of_regions(&[0..1, 0..2, 2..3, 0..3, 5..6]);
        // The determinants of the identity plus the sums, by hand.
        let expected =
            [7.0_f64, 13.0, 16.0, 10.0 * 10.0 - 6.0 * 6.0, 1.0].map(|determinant| determinant.ln() / 2.0);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        let traces = bounds.of_regions(&[0..1, 0..2, 2..3, 0..3, 5..6]);
        assert!(found.iter().zip(traces).all(|(estimate, trace)| *estimate <= trace));
    }
}
