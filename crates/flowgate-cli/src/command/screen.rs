//! Runs `flowgate screen`. `screen train` trains a screener that reads the attention of a local model, measures it,
//! and writes it to a folder that `flowgate run --screener` reads. `screen time` measures how long such a screener
//! takes for a step.
//!
//! `flowgate_bench::saliency` provides the cases and figures, as for `flowgate bench screeners`. `attention_screener`
//! defines the format of the files in the folder.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgate_bench::saliency::{self, ScreenerRow, ScreenerScore};
use flowgate_lm::local::classifier::DependencyClassifier;
use flowgate_lm::{
    AttentionLoss, AttentionModel as _, AttentionRequest, FeatureSet, RegionClassifier as _, region_summaries,
};

use super::bench::screeners::{read_traces, screener_error};
use crate::args::{ScreenCommand, ScreenFeatures, ScreenTimeArgs, ScreenTrainArgs};
use crate::attention_screener::{SavedScreener, load_parts, save};
use crate::input::InputError;
use crate::local_model::{self, IdentifiedModel};
use crate::output::{Console, plural};
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate screen`. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(command: &ScreenCommand, output: &mut Console) -> Result<u8, InputError> {
    match command {
        ScreenCommand::Train(options) => train(options, output),
        ScreenCommand::Time(options) => time(options, output),
    }
}

/// Trains and measures a screener, on generated cases or, with `--traces`, on recorded runs, and writes it to the
/// folder of the options. Returns 0. After an interrupt, writes nothing and returns [`INTERRUPTED`].
fn train(options: &ScreenTrainArgs, output: &mut Console) -> Result<u8, InputError> {
    let IdentifiedModel { model, name, digest } =
        local_model::load_identified(&options.local, options.device.processor)?;
    let cases = usize::from(options.cases);
    let limit = usize::try_from(options.prompt_limit).unwrap_or(usize::MAX);
    let traces = match &options.traces {
        Some(path) => Some(read_traces(path, limit)?.sample(options.seed, cases)),
        None => None,
    };
    // If the folder cannot be created, the command fails here and not after the long training.
    std::fs::create_dir_all(&options.folder).map_err(|error| {
        let folder = options.folder.display();
        InputError(format!("{folder}: the folder cannot be created: {error}; name another folder"))
    })?;
    let steps = traces.as_ref().map_or_else(|| saliency::steps(cases), saliency::trace_steps);
    let progress = Progress::over_steps(steps, "case", output);
    // Counts a case, and returns whether to stop.
    let mut count_case = || {
        progress.step();
        progress.is_interrupted()
    };
    let (wanted_features, screener) = match options.features {
        ScreenFeatures::Paper => (FeatureSet::Paper, ScreenerScore::Network),
        ScreenFeatures::Extended => (FeatureSet::Extended, ScreenerScore::NetworkExtended),
    };
    // `saliency` calls `train_network` for each set of features that it compares. `network` keeps the network for the
    // set that the options name.
    let mut network = None;
    let mut train_network = |features: FeatureSet, prompts: &[saliency::LabelledPrompt]| {
        let stop = &mut || progress.is_interrupted();
        let trained = Arc::new(DependencyClassifier::train(prompts, features, options.seed, stop)?);
        if features == wanted_features {
            network = Some(Arc::clone(&trained));
        }
        Ok(Box::new(trained) as _)
    };
    let results = match &traces {
        Some(traces) => {
            let suite = options.suite.as_deref();
            saliency::run_traces(&model, &mut train_network, options.seed, traces, suite, &mut count_case)
        }
        None => saliency::run(&model, &mut train_network, options.seed, cases, &mut count_case),
    };
    let is_interrupted = progress.finish(output);
    let results = results.map_err(|error| screener_error(&error, &name, options.traces.as_deref()))?;
    // After an interrupt, there are no results, or the network may not be trained yet.
    let (Some(results), Some(network), false) = (results, network, is_interrupted) else {
        return Ok(INTERRUPTED);
    };
    saliency::table_text(&name, &results).lines().for_each(|line| output.line(line));
    let Some(threshold) = threshold(&results.rows, screener) else {
        let advice = match &options.traces {
            Some(_) => "raise --cases, or give more runs with --traces",
            None => "raise --cases",
        };
        return Err(InputError(format!("the cases have no dependencies to measure; {advice}")));
    };
    let screener = SavedScreener {
        model: options.local.clone(),
        model_name: name,
        model_sha256: digest.as_hex().to_owned(),
        threshold,
        seed: options.seed,
        cases: options.cases,
        suite: options.suite.clone(),
    };
    save(&options.folder, &screener, &network)?;
    output.line(&format!("the screener is in {}", Path::display(&options.folder)));
    Ok(0)
}

/// Returns the threshold of the trained screener: it selects the regions whose score is at least this value. Returns
/// `None` if nothing was measured. All rows of one screener have the same threshold, so the first row is used.
fn threshold(rows: &[ScreenerRow], screener: ScreenerScore) -> Option<f64> {
    rows.iter().find(|row| row.screener == screener).map(|row| row.threshold)
}

/// Measures how long a screener takes for a step, and prints a table. Returns 0, or [`INTERRUPTED`] after an interrupt;
/// the table then covers the steps so far, and is not printed if there are none. Fails if the screener or its model
/// cannot be loaded, or cannot evaluate a step.
fn time(options: &ScreenTimeArgs, output: &mut Console) -> Result<u8, InputError> {
    let screener = load_parts(&options.folder, options.device.processor)?;
    let failed = |error: flowgate_lm::Error| InputError(error.to_string());
    let tokens = usize::try_from(options.tokens).unwrap_or(usize::MAX);
    let runs = usize::from(options.runs);
    let count = |text: &str| screener.model.count_tokens(text).unwrap_or_default();
    let progress = Progress::over_steps(runs, "step", output);
    let mut times = Vec::with_capacity(runs);
    // The sizes of the last case: tokens of the prompt, tokens of the call, and regions.
    let mut last_sizes = None;
    // The number of regions that the screener has selected in all measured steps.
    let mut selected = 0;
    // The first step also allocates, so it is not measured.
    for run in 0..=runs {
        let case = saliency::case_of_length(options.seed.wrapping_add(run as u64), tokens, &count);
        let start = Instant::now();
        let request = AttentionRequest {
            prefix: None,
            prompt: &case.prompt,
            continuation: &case.output,
            loss: AttentionLoss::NegativeLogProbability,
        };
        let attention = screener.model.attention(&request).map_err(failed)?;
        let summaries = region_summaries(&attention, &case.regions);
        let probabilities = screener.network.probabilities(&summaries).map_err(failed)?;
        let elapsed = start.elapsed();
        last_sizes = Some((attention.prompt_tokens().len(), attention.rows(), case.regions.len()));
        if run > 0 {
            selected +=
                probabilities.iter().filter(|probability| **probability >= screener.threshold).count();
            times.push(elapsed);
            progress.step();
        }
        if progress.is_interrupted() {
            break;
        }
    }
    let is_interrupted = progress.finish(output);
    times.sort_unstable();
    // There are no times if an interrupt came before the first measured step.
    let (Some((prompt, written, regions)), Some(least), Some(most)) =
        (last_sizes, times.first(), times.last())
    else {
        return Ok(INTERRUPTED);
    };
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let milliseconds = |time: Duration| format!("{:.1}", 1000.0 * time.as_secs_f64());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    output.line(&format!(
        "{} on {}: {prompt} tokens of the prompt, {written} of the call, {}; {:.1} are selected on average",
        plural(times.len(), "step"),
        plural(cores, "core"),
        plural(regions, "region"),
        selected as f64 / times.len().max(1) as f64,
    ));
    let row =
        vec!["milliseconds".to_owned(), milliseconds(*least), milliseconds(median), milliseconds(*most)];
    output.table(&["time of a step", "least", "median", "most"], &[row]);
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}
