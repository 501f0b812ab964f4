//! Provides the screener of the defence `attention` of `flowgate bench privacy`: a screener that `flowgate screen train`
//! wrote, or one that is trained now for the small model that ships with Flowgate. Only a program with the feature
//! `local` can measure this defence. `privacy` calls this module, and so does `local_models`, with which `flowgate bench
//! verify` repeats a recorded run.

#[cfg(feature = "local")]
use std::sync::Arc;

use flowgate_bench::privacy::Unmeasured;
use flowgate_guard::screener::attention::AttentionReader;
#[cfg(feature = "local")]
use flowgate_lm::local::{LocalModel, Processor};
use serde_json::Value;
#[cfg(feature = "local")]
use serde_json::json;

use crate::args::PrivacyArgs;
use crate::input::InputError;

/// The number of cases of each set that train the network; as many others choose its threshold. It is a quarter of the
/// number of `flowgate screen train`, so that the training takes no longer than the runs.
#[cfg(feature = "local")]
const CASES: usize = 10;

/// Returns the defences that this program cannot measure.
pub(super) fn unmeasured() -> &'static [Unmeasured] {
    #[cfg(feature = "local")]
    return &[];
    #[cfg(not(feature = "local"))]
    &[Unmeasured {
        defence: "attention",
        reason: "this program has no local model; build it with `--features local`",
    }]
}

/// Returns how often [`reader`] calls its argument `step`, which the progress counts: once for each case of a training,
/// or never if it loads a screener.
#[cfg(feature = "local")]
pub(super) fn steps(options: &PrivacyArgs) -> usize {
    if options.screener.is_some() { 0 } else { flowgate_bench::saliency::training_steps(CASES) }
}

/// Returns 0: without the feature `local`, nothing is trained.
#[cfg(not(feature = "local"))]
pub(super) fn steps(_: &PrivacyArgs) -> usize {
    0
}

/// Returns the reader of attention (the model, the network and its threshold), and its description for the manifest;
/// `None` if `step`, which is called after each case of the training, returns true.
///
/// # Errors
/// If the screener of `--screener` cannot be read, or the training fails.
#[cfg(feature = "local")]
pub(super) fn reader(
    options: &PrivacyArgs,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<(AttentionReader, Value)>, InputError> {
    if let Some(folder) = &options.screener {
        return saved_reader(folder, options.model.device.processor).map(Some);
    }
    let (model, name) =
        crate::local_model::load(crate::local_model::EMBEDDED.as_ref(), options.model.device.processor)?;
    trained_reader(model, &name, (CASES, options.seed), step)
}

/// Loads the screener in a folder that `flowgate screen train` wrote; `processor` evaluates its model. Returns the reader
/// of attention, and its description for the manifest.
///
/// # Errors
/// If the screener or its model cannot be loaded.
#[cfg(feature = "local")]
pub(super) fn saved_reader(
    folder: &std::path::Path,
    processor: Processor,
) -> Result<(AttentionReader, Value), InputError> {
    use crate::attention_screener::{TrainedScreener, load_parts};

    let TrainedScreener { model, name, network, network_sha256, threshold } = load_parts(folder, processor)?;
    let reader = AttentionReader { model: Arc::new(model), classifier: Arc::new(network), threshold };
    // Two networks of one model can have the same threshold, so the digest of the file tells them apart.
    let description = json!({"model": name, "network_sha256": network_sha256, "threshold": threshold});
    Ok((reader, description))
}

/// Trains a network for a model, whose name in reports is `name`. Returns the reader of attention, and its description
/// for the manifest; `None` if `step`, which is called after each case, returns true. `cases` is the number of cases of
/// each set, and `seed` determines the cases and the training.
///
/// # Errors
/// If the training fails.
#[cfg(feature = "local")]
pub(super) fn trained_reader(
    model: LocalModel,
    name: &str,
    (cases, seed): (usize, u64),
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<(AttentionReader, Value)>, InputError> {
    use flowgate_bench::saliency::{LabelledPrompt, train_screener};
    use flowgate_lm::FeatureSet;
    use flowgate_lm::local::classifier::DependencyClassifier;

    use super::screeners::screener_error;

    // `|| false`: the training of the network on the cases is short, so nothing interrupts it.
    let mut train = |features: FeatureSet, prompts: &[LabelledPrompt]| {
        Ok(Box::new(DependencyClassifier::train(prompts, features, seed, &mut || false)?) as _)
    };
    let trained = train_screener(&model, &mut train, seed, cases, step);
    let trained = trained.map_err(|error| screener_error(&error, name, None))?;
    Ok(trained.map(|trained| {
        let threshold = trained.threshold;
        let classifier = trained.classifier.into();
        let reader = AttentionReader { model: Arc::new(model), classifier, threshold };
        (reader, json!({"model": name, "cases": cases, "seed": seed, "threshold": threshold}))
    }))
}

/// Returns an error: without the feature `local`, no attention can be read.
#[cfg(not(feature = "local"))]
pub(super) fn reader(
    _: &PrivacyArgs,
    _: &mut dyn FnMut() -> bool,
) -> Result<Option<(AttentionReader, Value)>, InputError> {
    let reasons = unmeasured().iter().map(|one| format!("--defence {}: {}", one.defence, one.reason));
    Err(InputError(reasons.collect::<Vec<_>>().join("; ")))
}
