//! Scores the regions of a test case with each screener except the trained networks: [`score`]. The module `split`
//! trains the networks on other cases.

use std::ops::Range;

use flowgate_guard::screener::attention::DraftValues;
use flowgate_lm::{
    AttentionLoss, AttentionRequest, Error, JacobianRequest, RegionSummary, ScoreRequest, TokenWeighting,
    block_on, region_features, region_summaries,
};

use super::InsideModel;
use super::labelled_prompt::DependencyCase;

/// The number of random projections from which the Jacobian bound is estimated.
const PROJECTIONS: usize = 8;

/// The scores of the regions of one case.
pub(super) struct ScoredCase {
    /// For each screener the scores of all regions. The screeners are in the order of
    /// [`ScreenerScore::ALL`](super::ScreenerScore::ALL), without the networks at its end, which are trained later.
    pub(super) scores: Vec<Vec<f64>>,
    /// The summary of each region, which the networks read.
    pub(super) summaries: Vec<RegionSummary>,
    /// For each region whether the output depends on it.
    pub(super) depends: Vec<bool>,
}

impl ScoredCase {
    /// Returns for each region its highest saliency of a token (RTBAS, Figure 2), with whether the output depends on
    /// the region.
    pub(super) fn peaks(&self) -> Vec<(f64, bool)> {
        self.summaries.iter().map(|region| region.plain.peak).zip(self.depends.iter().copied()).collect()
    }
}

/// Scores the regions of a case by every screener that needs no training. `seed` determines the projections of the
/// Jacobian bound.
pub(super) fn score(model: &dyn InsideModel, case: &DependencyCase, seed: u64) -> Result<ScoredCase, Error> {
    let attention = |loss| {
        model.attention(&AttentionRequest {
            prefix: None,
            prompt: &case.prompt,
            continuation: &case.output,
            loss,
        })
    };
    // Screeners by attention: one evaluation for each kind of loss.
    let plain = attention(AttentionLoss::NegativeLogProbability)?;
    let summaries = region_summaries(&plain, &case.regions);
    let margin = region_features(&attention(AttentionLoss::Margin)?, &case.regions, TokenWeighting::PerToken);
    // The scores of all regions, each computed from the summary of the region.
    let of_all = |score: fn(&RegionSummary) -> f64| -> Vec<f64> { summaries.iter().map(score).collect() };
    // Screeners by the bound on information: the bound itself, and its share of the sum over the regions.
    let request =
        JacobianRequest { prompt: &case.prompt, continuation: &case.output, projections: PROJECTIONS, seed };
    let information = model.information_bounds(&request)?;
    let bounds = information.of_regions(&case.regions);
    let total: f64 = bounds.iter().sum();
    let shares = bounds.iter().map(|bound| if total > 0.0 { bound / total } else { 0.0 }).collect();
    // In the order of `ScreenerScore::ALL`, without the networks at its end, which are trained later.
    let scores = vec![
        shared_values(case),
        of_all(|region| region.plain.peak),
        of_all(|region| region.plain.sum),
        of_all(|region| region.per_token.sum),
        of_all(|region| region.strongest),
        margin.iter().map(|region| region.sum).collect(),
        of_all(|region| region.mean_mass),
        bounds,
        shares,
        information.low_rank_of_regions(&case.regions),
        leave_one_in(model, case)?,
    ];
    Ok(ScoredCase { scores, summaries, depends: case.depends.clone() })
}

/// Returns for each region the share of the output's values that the region has, as the guard's screener compares them;
/// the values in the request do not count. If the output has no values, the share of each region is 0. If it has so
/// many that the guard names every region, each share is 1.
///
/// In a conversation, the guard also leaves out the values of all other visible text. Here, values of the calls before
/// the output are not left out, since a conversation hides calls that depend on hidden regions.
fn shared_values(case: &DependencyCase) -> Vec<f64> {
    let Some(values) = DraftValues::of(&case.draft) else { return vec![1.0; case.regions.len()] };
    let values = values.without(case.request());
    let share = |region: &Range<usize>| values.share_in(case.prompt.get(region.clone()).unwrap_or_default());
    case.regions.iter().map(share).collect()
}

/// Returns for each region the mean log-probability of a token of the output, at most 0, after a prompt with this
/// region alone: all other regions are removed, and also the text between the first and the last region.
fn leave_one_in(model: &dyn InsideModel, case: &DependencyCase) -> Result<Vec<f64>, Error> {
    let (start, end) =
        (case.regions.first().map_or(0, |first| first.start), case.regions.last().map_or(0, |last| last.end));
    let text = |range: Range<usize>| case.prompt.get(range).unwrap_or_default();
    let prompts: Vec<String> = case
        .regions
        .iter()
        .map(|region| format!("{}{}{}", text(0..start), text(region.clone()), text(end..case.prompt.len())))
        .collect();
    // Without a bound, all tokens of the output are scored. No common beginning of the prompts is prepared.
    let request = |prompt| ScoreRequest { prefix: None, prompt, continuation: &case.output, bound: None };
    let requests: Vec<_> = prompts.iter().map(|prompt| request(prompt.as_str())).collect();
    let scores = block_on(model.score_batch(&requests))?;
    // The perplexity is the exponential of the mean negative log-probability.
    Ok(scores.iter().map(|score| -score.perplexity().ln()).collect())
}
