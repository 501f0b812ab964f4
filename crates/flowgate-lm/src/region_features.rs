//! Summarises the attention that an output pays to each region of its prompt in a few numbers, the features of the
//! region ([`region_features`], [`region_summaries`]), and defines [`RegionClassifier`], the trait of classifiers that
//! decide from these features which regions the output depends on. The features are those of *RTBAS: Defending LLM
//! Agents Against Prompt Injection and Privacy Leakage*, section 7.2 (called RTBAS in this file), and further ones.
//!
//! The screener of `flowgate-guard` that reads attention, `flowgate screen train` and `flowgate bench screeners` call
//! this module.

use std::ops::Range;

use crate::Error;
use crate::interior::Attention;

/// How the scores of the output's tokens are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TokenWeighting {
    /// The scores are added unchanged, as in the paper on RTBAS. Output tokens of which the model is unsure dominate.
    #[default]
    Plain,
    /// The scores of each output token are divided by their sum, so that all output tokens have the same weight.
    PerToken,
}

/// The features of a region. A score is the saliency of a token of the prompt ([`Attention::saliency`]), added over the
/// tokens of the output.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RegionFeatures {
    /// The sum of the scores in the region, divided by the sum of all scores.
    pub sum: f64,
    /// `sum`, divided by the region's share of the tokens: 1 if the region has the same score per token as the prompt.
    pub mean: f64,
    /// The 20, 50, 80 and 99 % quantiles of the scores in the region, each divided by the mean of all scores.
    pub quantiles: [f64; 4],
    /// The highest score in the region, divided by the highest score in the prompt (RTBAS, Figure 2).
    pub peak: f64,
}

/// All numbers that one evaluation of a model gives for a region. The *mass* of an output token is the attention that
/// the token pays to the whole region in one head, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RegionSummary {
    /// The features of the paper.
    pub plain: RegionFeatures,
    /// The features of the paper, but with the same weight for each token of the output ([`TokenWeighting::PerToken`]).
    pub per_token: RegionFeatures,
    /// The greatest share that the region has in the saliency of one token of the output. If the output copies only a
    /// short value from the region, this changes a sum over a long output little, but this share much.
    pub strongest: f64,
    /// The mean, over the tokens of the output, of the token's greatest mass in any head.
    pub mean_mass: f64,
    /// The greatest mass of any token of the output in any head.
    pub greatest_mass: f64,
    /// The greatest attention that a token of the output pays to one token of the region in any head.
    pub attention_peak: f64,
}

/// Which numbers of a [`RegionSummary`] a classifier reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureSet {
    /// Sum, mean and quantiles of the saliency, as in RTBAS, section 7.2.
    Paper,
    /// The features of `Paper`, the same features with equal weight for each output token, and features of the
    /// attention.
    Extended,
}

impl FeatureSet {
    /// All sets.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Extended];

    /// Returns the name for files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Extended => "extended",
        }
    }

    /// Returns the number of features of a region.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Paper => 6,
            // The 6 features of the paper in each of the two weightings, and 4 more (`of` lists them).
            Self::Extended => 16,
        }
    }

    /// Returns the features of a region, [`size`](Self::size) numbers.
    #[must_use]
    pub fn of(self, region: &RegionSummary) -> Vec<f64> {
        let mut features = region.plain.of_the_paper().to_vec();
        if self == Self::Extended {
            features.extend(region.per_token.of_the_paper());
            features.extend([
                region.strongest,
                region.mean_mass,
                region.greatest_mass,
                region.attention_peak,
            ]);
        }
        features
    }
}

/// Decides from features of regions which of them an output depends on.
pub trait RegionClassifier: Send + Sync {
    /// Returns for each region, in the order of the prompt, the probability that the output depends on it.
    ///
    /// # Errors
    /// If a probability is not a number.
    fn probabilities(&self, regions: &[RegionSummary]) -> Result<Vec<f64>, Error>;
}

impl<C: RegionClassifier + ?Sized> RegionClassifier for std::sync::Arc<C> {
    fn probabilities(&self, regions: &[RegionSummary]) -> Result<Vec<f64>, Error> {
        (**self).probabilities(regions)
    }
}

/// The quantiles of the features.
const QUANTILES: [f64; 4] = [0.2, 0.5, 0.8, 0.99];

impl RegionFeatures {
    /// Returns the features that the classifier of the paper on RTBAS reads: sum, mean and quantiles.
    #[must_use]
    pub fn of_the_paper(&self) -> [f64; 6] {
        let [low, middle, high, top] = self.quantiles;
        [self.sum, self.mean, low, middle, high, top]
    }
}

/// Returns the features of each region (a range of bytes of the prompt), in the order of `regions`. The score of a
/// token of the prompt is its saliency, added over the tokens of the output as `weighting` states.
///
/// A token belongs to the region in which it begins; tokens that the model adds belong to no region. The features of a
/// region without tokens are 0. If no token of the prompt has a score above 0, the features of all regions are 0.
#[must_use]
pub fn region_features(
    attention: &Attention,
    regions: &[Range<usize>],
    weighting: TokenWeighting,
) -> Vec<RegionFeatures> {
    features_of(attention, &attention.saliency(), regions, weighting)
}

/// Returns the summary of each region (a range of bytes of the prompt), in the order of `regions`: its features with
/// both weightings, and what it has in the saliency and in the attention of single tokens of the output. A token
/// belongs to the region in which it begins, as for [`region_features`].
#[must_use]
pub fn region_summaries(attention: &Attention, regions: &[Range<usize>]) -> Vec<RegionSummary> {
    let saliency = attention.saliency();
    let plain = features_of(attention, &saliency, regions, TokenWeighting::Plain);
    let per_token = features_of(attention, &saliency, regions, TokenWeighting::PerToken);
    let prompt = attention.prompt_tokens();
    let summary = |((region, plain), per_token): ((&Range<usize>, RegionFeatures), RegionFeatures)| {
        // The indices of the tokens of the region. They are also its columns in the attention and in the saliency.
        let tokens = prompt.iter().enumerate();
        let tokens: Vec<usize> = tokens
            .filter(|(_, token)| !token.is_empty() && region.contains(&token.start))
            .map(|(index, _)| index)
            .collect();
        // The entries of a row that belong to tokens of the region.
        let inside = |row: &[f32]| -> Vec<f64> {
            tokens.iter().filter_map(|index| row.get(*index)).map(|value| f64::from(*value)).collect()
        };
        let mut found = RegionSummary { plain, per_token, ..RegionSummary::default() };
        // Each row is one token of the output.
        for (row, saliency) in saliency.iter().enumerate() {
            // The share of the region in the saliency of this output token. Columns after the prompt are earlier
            // output tokens, and are left out.
            let total: f64 = saliency.iter().take(prompt.len()).map(|score| f64::from(*score)).sum();
            if total > 0.0 {
                found.strongest = found.strongest.max(inside(saliency).iter().sum::<f64>() / total);
            }
            // The greatest attention that this output token pays to the whole region in any head.
            let mut mass = 0.0_f64;
            for layer in 0..attention.layer_count() {
                for head in 0..attention.head_count() {
                    let weights = inside(attention.weights(layer, head, row));
                    mass = mass.max(weights.iter().sum());
                    found.attention_peak = weights.iter().fold(found.attention_peak, |a, b| a.max(*b));
                }
            }
            found.greatest_mass = found.greatest_mass.max(mass);
            found.mean_mass += mass / count(attention.rows());
        }
        found
    };
    regions.iter().zip(plain).zip(per_token).map(summary).collect()
}

/// Returns the features of each region, as [`region_features`] does. `saliency` is the result of
/// [`Attention::saliency`]: [`region_summaries`] computes it once, and passes it for both weightings.
fn features_of(
    attention: &Attention,
    saliency: &[Vec<f32>],
    regions: &[Range<usize>],
    weighting: TokenWeighting,
) -> Vec<RegionFeatures> {
    let prompt = attention.prompt_tokens();
    let mut scores = vec![0.0_f64; prompt.len()];
    for row in saliency {
        // A row has the scores of the tokens of the prompt first. Those of earlier output tokens follow, and are left
        // out.
        let row: Vec<f64> = row.iter().take(prompt.len()).map(|score| f64::from(*score)).collect();
        let total: f64 = row.iter().sum();
        // An output token that depends on no token of the prompt is skipped: the divisor would be 0.
        let divisor = match weighting {
            TokenWeighting::Plain => 1.0,
            TokenWeighting::PerToken if total > 0.0 => total,
            TokenWeighting::PerToken => continue,
        };
        scores.iter_mut().zip(row).for_each(|(sum, score)| *sum += score / divisor);
    }
    // The tokens of the text, each by its beginning and its score. Tokens that the model adds are left out.
    let spelled: Vec<(usize, f64)> = prompt
        .iter()
        .zip(scores)
        .filter(|(token, _)| !token.is_empty())
        .map(|(token, score)| (token.start, score))
        .collect();
    let total: f64 = spelled.iter().map(|(_, score)| score).sum();
    let highest = spelled.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let features = |region: &Range<usize>| {
        let mut region_scores: Vec<f64> =
            spelled.iter().filter(|(start, _)| region.contains(start)).map(|(_, score)| *score).collect();
        if region_scores.is_empty() || total <= 0.0 {
            return RegionFeatures::default();
        }
        region_scores.sort_by(f64::total_cmp);
        // The features are relative to the prompt: the sum to the total, the mean and the quantiles to the mean of all
        // tokens, and the peak to the highest score.
        let mean_of_all = total / count(spelled.len());
        let sum = region_scores.iter().sum::<f64>() / total;
        RegionFeatures {
            sum,
            mean: sum * count(spelled.len()) / count(region_scores.len()),
            quantiles: QUANTILES.map(|quantile| {
                region_scores.get(rank(quantile, region_scores.len())).copied().unwrap_or(0.0) / mean_of_all
            }),
            peak: region_scores.last().copied().unwrap_or(0.0) / highest,
        }
    };
    regions.iter().map(features).collect()
}

/// Converts a number of tokens to a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "texts are short")]
fn count(tokens: usize) -> f64 {
    tokens as f64
}

/// Returns the index of a quantile in a sorted list of this length (the nearest rank); 0 for an empty list.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the rank is within the list")]
fn rank(quantile: f64, length: usize) -> usize {
    ((quantile * count(length)).ceil() as usize).clamp(1, length.max(1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One layer and head, a prompt of an added token and four others of two bytes each, and an output of two tokens.
    fn attention() -> Attention {
        let prompt = [0..0, 0..2, 2..4, 4..6, 6..8].to_vec();
        let weights = vec![1.0, 1.0, 3.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 8.0, 2.0, 5.0];
        let gradients = vec![-1.0; weights.len()];
        Attention::new(prompt, vec![0..1, 1..2], (1, 1), weights, gradients).unwrap()
    }

    #[test]
    fn features_follow_their_definition() {
        let regions = [0..4, 4..8, 8..9];
        let [first, second, none] = region_features(&attention(), &regions, TokenWeighting::Plain)[..] else {
            panic!("three regions");
        };
        // The scores of the four tokens: 1, 3, 8, 2.
        assert_eq!((first.sum, second.sum), (4.0 / 14.0, 10.0 / 14.0));
        assert_eq!((first.mean, second.mean), (8.0 / 14.0, 20.0 / 14.0));
        assert_eq!(first.quantiles, [1.0, 1.0, 3.0, 3.0].map(|score| score / 3.5));
        assert_eq!((first.peak, second.peak), (3.0 / 8.0, 1.0));
        assert_eq!(none, RegionFeatures::default());
    }

    #[test]
    fn each_token_of_the_output_counts_the_same() {
        let features = region_features(&attention(), &[0..4, 4..8], TokenWeighting::PerToken);
        // Shares of the first token: 1/5 and 3/5 of the prompt, and the rest at the added token; of the second: 8/11
        // and 2/11.
        let shares = [0.2 + 0.6, 8.0 / 11.0 + 2.0 / 11.0];
        let total: f64 = shares.iter().sum();
        for (feature, share) in features.iter().zip(shares) {
            assert!((feature.sum - share / total).abs() < 1e-6, "{feature:?}");
        }
    }

    #[test]
    fn a_summary_has_what_one_token_of_the_output_depends_on() {
        let [first, second, none] = region_summaries(&attention(), &[0..4, 4..8, 8..9])[..] else {
            panic!("three regions");
        };
        let plain = region_features(&attention(), &[0..4, 4..8], TokenWeighting::Plain);
        assert_eq!([first.plain, second.plain], plain[..]);
        // Shares of the saliency: 4/5 and 0 of the first token, 0 and 10/11 of the second.
        assert!((first.strongest - 0.8).abs() < 1e-6 && (second.strongest - 10.0 / 11.0).abs() < 1e-6);
        assert_eq!((first.greatest_mass, second.greatest_mass), (4.0, 10.0));
        assert_eq!((first.mean_mass, second.mean_mass), (2.0, 5.0));
        assert_eq!((first.attention_peak, second.attention_peak), (3.0, 8.0));
        assert_eq!(none, RegionSummary::default());
        for set in FeatureSet::ALL {
            assert_eq!(set.of(&first).len(), set.size(), "{}", set.name());
        }
    }

    #[test]
    fn attention_of_0_has_no_features() {
        let nothing =
            Attention::new(vec![0..1, 1..2], vec![2..3, 3..4], (1, 1), vec![0.0; 6], vec![0.0; 6]).unwrap();
        for weighting in [TokenWeighting::Plain, TokenWeighting::PerToken] {
            assert_eq!(region_features(&nothing, &[0..1, 1..2], weighting), [RegionFeatures::default(); 2]);
        }
    }
}
