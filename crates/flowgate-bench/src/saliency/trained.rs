//! Trains a screener that reads attention, and chooses its threshold ([`train_screener`]), without measuring any
//! figures. `flowgate bench privacy` calls it for its defence `attention`. With the same seed and number of cases, the
//! result equals what `flowgate screen train` writes.

use std::fmt;

use flowgate_lm::{
    AttentionLoss, AttentionModel, AttentionRequest, Error, FeatureSet, RegionClassifier, region_summaries,
};

use super::case::CaseSet;
use super::labelled_prompt::DependencyCase;
use super::measure::best_threshold;
use super::{LabelledPrompt, ScreenerError, THRESHOLDS, TRAINING, TrainClassifier};

/// A trained network with its threshold.
pub struct TrainedNetwork {
    /// The network.
    pub classifier: Box<dyn RegionClassifier>,
    /// The probability from which a region counts as needed.
    pub threshold: f64,
}

impl fmt::Debug for TrainedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrainedNetwork({})", self.threshold)
    }
}

/// Returns the sets of cases that train the network and choose the threshold: all except unseen phrasings, as in
/// [`run`](super::run).
fn sets() -> impl Iterator<Item = CaseSet> {
    CaseSet::ALL.into_iter().filter(|set| *set != CaseSet::UnseenPhrasing)
}

/// Returns the number of calls of `step` that [`train_screener`] makes with `cases` cases of each set.
pub fn training_steps(cases: usize) -> usize {
    2 * cases * sets().count()
}

/// Trains the network that reads the extended features on `cases` cases of each set, and chooses its threshold on as
/// many others. With the same seed and cases, network and threshold are those of `flowgate screen train`. `step` is
/// called after each case; if it returns true (the user has interrupted the command), the result is `None`.
///
/// # Errors
/// If the model or the network fails, or the cases cannot be built from the seed.
pub fn train_screener(
    model: &dyn AttentionModel,
    train: &mut TrainClassifier<'_>,
    seed: u64,
    cases: usize,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<TrainedNetwork>, ScreenerError> {
    let Some(training) = summarize(model, seed ^ TRAINING, cases, step)? else { return Ok(None) };
    let Some(choosing) = summarize(model, seed ^ THRESHOLDS, cases, step)? else { return Ok(None) };
    let classifier = train(FeatureSet::Extended, &training)?;
    // The scores of the regions of the other cases, with which the threshold is chosen.
    let mut scored = Vec::new();
    for prompt in &choosing {
        let summaries: Vec<_> = prompt.iter().map(|(summary, _)| *summary).collect();
        let probabilities = classifier.probabilities(&summaries)?;
        scored.extend(probabilities.into_iter().zip(prompt.iter().map(|(_, depends)| *depends)));
    }
    Ok(Some(TrainedNetwork { classifier, threshold: best_threshold(&scored) }))
}

/// Generates the cases of all sets from a seed, and reads the attention of each; `None` after an interrupt.
fn summarize(
    model: &dyn AttentionModel,
    seed: u64,
    cases: usize,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<LabelledPrompt>>, ScreenerError> {
    let mut prompts = Vec::new();
    for set in sets() {
        let generated = set.generate(seed, cases);
        let generated = generated.ok_or_else(|| super::not_generated(set, seed))?;
        for case in &generated {
            prompts.push(labelled(model, case)?);
            if step() {
                return Ok(None);
            }
        }
    }
    Ok(Some(prompts))
}

/// Returns the summary of each region of a case, with whether the output depends on the region.
fn labelled(model: &dyn AttentionModel, case: &DependencyCase) -> Result<LabelledPrompt, Error> {
    let attention = model.attention(&AttentionRequest {
        prefix: None,
        prompt: &case.prompt,
        continuation: &case.output,
        loss: AttentionLoss::NegativeLogProbability,
    })?;
    Ok(region_summaries(&attention, &case.regions).into_iter().zip(case.depends.iter().copied()).collect())
}
