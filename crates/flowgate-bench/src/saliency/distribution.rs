//! Collects the distributions of attention scores ([`ScoreDistribution`]) that RTBAS's Figures 2 and 3 show. The score
//! of a region is the highest saliency of one of its tokens, divided by the highest saliency of all tokens of the
//! prompt. [`run`](super::run) and [`run_traces`](super::run_traces) collect them.
//!
//! RTBAS computes the scores with OPT-125m over runs of AgentDojo. This module computes them for the cases of this
//! suite.

use flowgate_lm::{AttentionLoss, AttentionRequest, Error, TokenWeighting, region_features};

use super::InsideModel;
use super::instruction::InstructionCase;

/// The number of bins between 0 and 1.
pub const BINS: usize = 10;

/// The scores of regions of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreDistribution {
    /// The number of the figure in RTBAS: `2`, `3a` or `3b`.
    pub figure: &'static str,
    /// The kind of the regions whose scores these are, such as `dependent`.
    pub which_regions: &'static str,
    /// The scores.
    pub scores: Vec<f64>,
}

impl ScoreDistribution {
    /// Returns the share of scores in each of [`BINS`] equal ranges from 0 to 1; the last one includes 1.
    pub fn shares(&self) -> [f64; BINS] {
        let mut shares = [0.0; BINS];
        for (bin, share) in shares.iter_mut().enumerate() {
            let (low, high) = (bin as f64 / BINS as f64, (bin + 1) as f64 / BINS as f64);
            let is_last = bin + 1 == BINS;
            *share = self.share_of(|score| score >= low && (score < high || is_last));
        }
        shares
    }

    /// Returns the share of scores below 0.2, which RTBAS reports.
    pub fn below_a_fifth(&self) -> f64 {
        self.share_of(|score| score < 0.2)
    }

    /// Returns the share of scores for which `is_counted` holds; 0 without scores.
    fn share_of(&self, is_counted: impl Fn(f64) -> bool) -> f64 {
        let count = self.scores.iter().filter(|score| is_counted(**score)).count();
        count as f64 / self.scores.len().max(1) as f64
    }
}

/// Returns the two distributions of RTBAS's Figure 2: the scores of the regions on which the output depends, and those
/// of the others. `scored` has the score of each region, with whether the output depends on it.
pub(super) fn figure_2(scored: &[(f64, bool)]) -> [ScoreDistribution; 2] {
    [("dependent", true), ("not dependent", false)].map(|(which_regions, depends)| ScoreDistribution {
        figure: "2",
        which_regions,
        scores: scored.iter().filter(|(_, is)| *is == depends).map(|(score, _)| *score).collect(),
    })
}

/// Returns the four distributions of RTBAS's Figure 3. In 3a the output follows the user's instruction, in 3b an
/// injected one. Both parts have two distributions: of the scores of the user's prompts, and of those of the tools'
/// responses. A case has one score for its responses, the highest. `step` is called after each case; if it returns true
/// (the user has interrupted the command), the result is `None`.
pub(super) fn figure_3(
    model: &dyn InsideModel,
    cases: &[InstructionCase],
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<[ScoreDistribution; 4]>, Error> {
    // Each distribution: its figure, its regions, and whether its cases follow an injected instruction.
    let kinds = [
        ("3a", "user prompt", false),
        ("3a", "tool responses", false),
        ("3b", "user prompt", true),
        ("3b", "tool responses", true),
    ];
    let mut found = kinds.map(|(figure, which_regions, _)| ScoreDistribution {
        figure,
        which_regions,
        scores: Vec::new(),
    });
    for InstructionCase { case, is_injected: follows_injection } in cases {
        let attention = model.attention(&AttentionRequest {
            prefix: None,
            prompt: &case.prompt,
            continuation: &case.output,
            loss: AttentionLoss::NegativeLogProbability,
        })?;
        // The first region is the user's prompt, and the others are the responses.
        let mut regions = vec![case.request.clone()];
        regions.extend(case.regions.iter().cloned());
        let features = region_features(&attention, &regions, TokenWeighting::Plain);
        let mut peaks = features.iter().map(|features| features.peak);
        let user = peaks.next().unwrap_or(0.0);
        let response = peaks.fold(0.0, f64::max);
        for ((_, which_regions, is_injected), distribution) in kinds.iter().zip(&mut found) {
            if is_injected == follows_injection {
                let score = if *which_regions == "user prompt" { user } else { response };
                distribution.scores.push(score);
            }
        }
        if step() {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_fall_into_bins() {
        let scores = vec![0.0, 0.05, 0.1, 0.95, 1.0];
        let distribution = ScoreDistribution { figure: "2", which_regions: "dependent", scores };
        let shares = distribution.shares();
        assert_eq!((shares[0], shares[1], shares[9]), (0.4, 0.2, 0.4));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(distribution.below_a_fifth(), 0.6);
        let empty = ScoreDistribution { scores: Vec::new(), ..distribution };
        assert_eq!(empty.shares(), [0.0; BINS]);
    }
}
