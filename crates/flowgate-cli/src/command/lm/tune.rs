//! Runs `flowgate lm tune`: chooses two settings of label searches for a model. A label search looks for the least
//! labels whose documents, those at or below the label, suffice for an answer, so that the answer does not carry the
//! labels of all documents. One setting is λ, the loss of utility that a search tolerates; the other is the Shapley
//! threshold, below which a search prunes labels.
//!
//! The model runs in this process, or on a server that scores texts. `flowgate_bench::propagation` tries the settings;
//! this module shows progress and prints a table.

#[cfg(feature = "local")]
use std::path::Path;

#[cfg(feature = "run")]
use flowgate_bench::cost::{CountedScores, RequestCounter};
#[cfg(feature = "run")]
use flowgate_bench::propagation::{CopyModel, CopyingErrors};
use flowgate_bench::propagation::{LAMBDAS, LabelMethod, Models, PropagationSuite, Size, TunedSet};
#[cfg(feature = "run")]
use flowgate_bench::tokens::count_lines;
#[cfg(feature = "run")]
use flowgate_lm::ChatModel as _;

use crate::args::TuneArgs;
#[cfg(feature = "run")]
use crate::command::bench::model::print_cost;
#[cfg(feature = "local")]
use crate::command::bench::model::print_no_requests;
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate lm tune`: chooses λ, the loss of utility that a search for labels tolerates, for a model and each set
/// of questions. Prints a row for each method, and the parameters for pruning. Returns the exit code; after an
/// interrupt, prints nothing. A dry run only counts the requests to a server, or the steps.
///
/// # Errors
/// If the model cannot be used or fails, or the options name none that this program can run.
pub(super) fn tune(options: &TuneArgs, output: &mut Console) -> Result<u8, InputError> {
    let size = Size { questions: options.questions.into(), pairs: options.pairs.into() };
    let suite = PropagationSuite::new(options.seed, size).map_err(InputError)?;
    #[cfg(feature = "run")]
    if let Some(model) = crate::command::scoring_server::open(&options.server)? {
        if options.dry_run {
            return count_requests(&suite, options.batch.into(), output);
        }
        let scores = model.scorer(options.server.scores.method());
        // No server returns hidden states, so the kNN-LM is not tuned.
        let models = Models { batch: options.batch.into(), ..Models::scoring(&scores, &count_lines) };
        return print_tuned(&suite, models, model.name(), output);
    }
    tune_local(&suite, options, output)
}

/// Tunes for the model in the folder of the options, or else for the one that ships.
#[cfg(feature = "local")]
fn tune_local(suite: &PropagationSuite, options: &TuneArgs, output: &mut Console) -> Result<u8, InputError> {
    if options.dry_run {
        // `true`: a local model has hidden states.
        print_no_requests(Some(suite.tuning_steps(true)), output);
        return Ok(0);
    }
    let path = options.folder.as_deref().unwrap_or_else(|| Path::new(crate::local_model::EMBEDDED));
    let (model, name) = crate::local_model::load(path, options.device.processor)?;
    // A text that cannot be counted has no tokens here: only reports of cost read the counts, and this command prints
    // none.
    let count = |text: &str| model.count_tokens(text).unwrap_or_default();
    let models =
        Models { states: Some(&model), batch: options.batch.into(), ..Models::scoring(&model, &count) };
    print_tuned(suite, models, &name, output)
}

/// Reports that this program runs no model itself.
#[cfg(not(feature = "local"))]
fn tune_local(_: &PropagationSuite, _: &TuneArgs, _: &mut Console) -> Result<u8, InputError> {
    Err(InputError(
        "this program evaluates no models: name one on a server with `--model` and `--url`, or build it with the feature `local`"
            .to_owned(),
    ))
}

/// Prints how many requests to a server the tuning would send. A double replaces the model on the server, and the texts
/// that the double scores are counted.
#[cfg(feature = "run")]
fn count_requests(suite: &PropagationSuite, batch: usize, output: &mut Console) -> Result<u8, InputError> {
    let counter = RequestCounter::default();
    let double = CopyModel { copying: CopyingErrors::Exact, seed: suite.seed() };
    let scores = CountedScores { model: &double, counter: &counter };
    let models = Models { batch, ..Models::scoring(&scores, &count_lines) };
    let Some(_) = tuned(suite, models, "double", output)? else { return Ok(INTERRUPTED) };
    // A request that scores a text has the server write one token at most.
    print_cost(&counter, 1, output);
    output.line("With `--scores llama-cpp`, scoring a text takes one request for each token of the text.");
    Ok(0)
}

/// Chooses the settings of label searches with these models, and shows the progress. `name` is the model in messages.
/// Returns what was chosen for each data set; `None` after an interrupt.
fn tuned(
    suite: &PropagationSuite,
    models: Models<'_>,
    name: &str,
    output: &mut Console,
) -> Result<Option<Vec<TunedSet>>, InputError> {
    let progress = Progress::over_steps(suite.tuning_steps(models.states.is_some()), "setting", output);
    let step = &mut || {
        progress.step();
        progress.is_interrupted()
    };
    let tuned = suite.tune_model(models, step);
    let is_interrupted = progress.finish(output);
    let tuned = tuned.map_err(|error| InputError(format!("{name}: {error}")))?;
    Ok(tuned.filter(|_| !is_interrupted))
}

/// Chooses the settings of label searches with these models, and prints a table of the choices. `name` is the name of the
/// model.
fn print_tuned(
    suite: &PropagationSuite,
    models: Models<'_>,
    name: &str,
    output: &mut Console,
) -> Result<u8, InputError> {
    let Some(tuned) = tuned(suite, models, name, output)? else { return Ok(INTERRUPTED) };
    let has_states = models.states.is_some();
    let rows: Vec<Vec<String>> = tuned.iter().flat_map(|tuned| tuned_rows(tuned, has_states)).collect();
    let lambdas: Vec<String> = LAMBDAS.iter().map(f64::to_string).collect();
    let header: Vec<&str> = ["questions", "method", "number", "λ"]
        .into_iter()
        .chain(lambdas.iter().map(String::as_str))
        .collect();
    output.line(&format!("{name}, seed {}: share of questions with exactly the true labels", suite.seed()));
    output.table(&header, &rows);
    // No method prunes on the questions about news, so only the sets of keys and values have a threshold.
    let thresholds = tuned.iter().filter(|tuned| tuned.set.is_key_value());
    for tuned in thresholds {
        let (set, best) = (tuned.set.name(), tuned.parameters);
        output.line(&format!(
            "{set}: with pruning, λ is {}, and labels with a Shapley value below {} are pruned",
            best.pruned_lambda, best.shapley
        ));
    }
    Ok(0)
}

/// Returns the rows of a set of questions: one for each method that has a λ. A row has the name of the set and of the
/// method, the number of questions, the chosen λ and, for each λ that was tried, the share of questions with exactly
/// the true labels. Points of the grid that have a threshold are left out: they belong to the search for the threshold
/// of pruning. Only a model with hidden states (`has_states`) has the row of the kNN-LM.
fn tuned_rows(tuned: &TunedSet, has_states: bool) -> Vec<Vec<String>> {
    let row = |(method, lambda): (LabelMethod, f64)| {
        let mut row = vec![
            tuned.set.name().to_owned(),
            method.name().to_owned(),
            tuned.questions.to_string(),
            lambda.to_string(),
        ];
        let of_method = tuned.grid.iter().filter(|point| point.method == method && point.threshold.is_none());
        row.extend(of_method.map(|point| format!("{:.2}", point.exact)));
        row
    };
    let knn = has_states.then_some((LabelMethod::Knn, tuned.parameters.knn_lambda));
    [(LabelMethod::HittingSet, tuned.parameters.lambda)].into_iter().chain(knn).map(row).collect()
}
