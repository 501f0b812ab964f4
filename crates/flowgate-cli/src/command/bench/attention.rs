//! Provides what the defence `attention` of `flowgate bench privacy` reads: a screener that `flowgate screen train`
//! wrote, or one that is trained now for the small model that ships. Only a program with the feature `local` has it.

use flowgate_bench::privacy::Unmeasured;
use flowgate_guard::screener::attention::AttentionReader;
use serde_json::Value;

use crate::args::PrivacyArgs;
use crate::input::InputError;

/// The cases of each set that train the network, and as many that choose its threshold: a quarter of those of `flowgate
/// screen train`, so that the training takes no longer than the runs.
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

/// Returns the number of calls of `step` that [`reader`] makes.
#[cfg(feature = "local")]
pub(super) fn steps(options: &PrivacyArgs) -> usize {
    if options.screener.is_some() { 0 } else { flowgate_bench::saliency::training_steps(CASES) }
}

/// Returns 0: without the feature `local`, nothing is trained.
#[cfg(not(feature = "local"))]
pub(super) fn steps(_: &PrivacyArgs) -> usize {
    0
}

/// Returns what reads the attention, and its description for the manifest; `None` if `step`, which is called after each
/// case of the training, returns true.
///
/// # Errors
/// If the screener of `--screener` cannot be read, or the training fails.
#[cfg(feature = "local")]
pub(super) fn reader(
    options: &PrivacyArgs,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<(AttentionReader, Value)>, InputError> {
    use std::sync::Arc;

    use flowgate_bench::saliency::train_screener;
    use flowgate_lm::FeatureSet;
    use flowgate_lm::local::classifier::DependencyClassifier;
    use serde_json::json;

    use super::screeners::screener_error;
    use crate::attention_screener::{TrainedScreener, load_parts};
    use crate::local_model;

    if let Some(folder) = &options.screener {
        let TrainedScreener { model, name, network, threshold } =
            load_parts(folder, options.model.device.processor)?;
        let reader = AttentionReader { model: Arc::new(model), classifier: Arc::new(network), threshold };
        return Ok(Some((reader, json!({"model": name, "threshold": threshold}))));
    }
    let (model, name) = local_model::load(local_model::EMBEDDED.as_ref(), options.model.device.processor)?;
    let mut train = |features: FeatureSet, prompts: &[flowgate_bench::saliency::LabelledPrompt]| {
        Ok(Box::new(DependencyClassifier::train(prompts, features, options.seed, &mut || false)?) as _)
    };
    let trained = train_screener(&model, &mut train, options.seed, CASES, step);
    let trained = trained.map_err(|error| screener_error(&error, &name, None))?;
    Ok(trained.map(|trained| {
        let threshold = trained.threshold;
        let classifier = trained.classifier.into();
        let reader = AttentionReader { model: Arc::new(model), classifier, threshold };
        (reader, json!({"model": name, "cases": CASES, "seed": options.seed, "threshold": threshold}))
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
