//! Runs `flowgate bench privacy`: measures each defence on the privacy-leak tasks of RTBAS.
//!
//! The tasks, the defences and the measures are in `flowgate_bench::privacy`; this module shows progress and chooses
//! the format.

use flowgate_bench::cost::RequestCounter;
use flowgate_bench::games::report::{csv_tables, object_rows};
use flowgate_bench::privacy::check::composition;
use flowgate_bench::privacy::report::{comparison_rows, document, figure_rows, lines, page, tables};
use flowgate_bench::privacy::seeds::spread_rows;
use flowgate_bench::privacy::{
    ANSWER_TOKENS, AnswerSource, DefenceResults, PrivacyDefence, PrivacySuite, RunError, TaskGroup,
    Unmeasured, manifest, unread, with_screener,
};
use serde_json::{Value, json};

use super::attention;
use super::model::{ask_ahead, model, print_cost};
use crate::args::{PrivacyArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs the tasks under each defence, and prints the figures. Returns 1 if a defence disclosed something without a
/// permission, [`INTERRUPTED`] after an interrupt, otherwise 0. With `--dry-run`, only prints what the run would cost
/// with a model.
pub(crate) fn run(options: &PrivacyArgs, output: &mut Console) -> Result<u8, InputError> {
    let failed = |error: RunError| InputError(error.to_string());
    let mut suite = PrivacySuite::new().map_err(failed)?;
    let counter = RequestCounter::default();
    // In a dry run, no model answers: the requests that a model would receive are only counted.
    let is_counted = options.model.dry_run;
    let named = if is_counted { None } else { model(&options.model)? };
    let defences = defences(options, named.is_some() || is_counted)?;
    let reads_attention = defences.contains(&PrivacyDefence::Attention);
    let seeds = u64::from(options.seeds);
    let answering = match &named {
        Some(model) => AnswerSource::Model(model.chat()),
        None if is_counted => AnswerSource::Counted(&counter),
        None => AnswerSource::Double,
    };
    let runs: usize = defences.iter().map(|defence| suite.runs_with_seeds(*defence, seeds)).sum();
    let training = if reads_attention && !is_counted { attention::steps(options) } else { 0 };
    let progress = Progress::over_steps(training + runs, "step", output);
    // Returns whether to stop.
    let step = &mut || {
        progress.step();
        progress.is_interrupted()
    };
    // The description of the screener that reads attention, for the manifest.
    let mut screener = None;
    // A dry run evaluates no local model: `unread` takes the place of the reader of attention.
    if reads_attention && is_counted {
        suite = suite.with_attention(unread());
    } else if reads_attention {
        let Some((reader, description)) = attention::reader(options, step)? else {
            progress.finish(output);
            return Ok(INTERRUPTED);
        };
        suite = suite.with_attention(reader);
        screener = Some(description);
    }
    ask_ahead(options.model.threads(), defences.len(), &progress, &|unit| {
        let Some(defence) = defences.get(unit) else { return Ok(()) };
        suite.run_defence_with(*defence, answering, &mut || progress.is_interrupted()).map_err(failed)?;
        Ok(())
    })?;
    let mut results: Vec<DefenceResults> = Vec::new();
    for defence in &defences {
        match suite.run_defence_seeds(*defence, (options.seed, seeds), answering, step).map_err(failed)? {
            Some(found) => results.push(found),
            // A defence whose runs are incomplete has no row.
            None => break,
        }
    }
    let is_interrupted = progress.finish(output);
    if is_counted {
        print_cost(&counter, ANSWER_TOKENS, output);
        return Ok(if is_interrupted { INTERRUPTED } else { 0 });
    }
    let name = named.as_ref().map(|model| model.chat().name());
    let mut manifest = manifest((options.seed, seeds), &defences, suite.tasks().len(), name);
    if let Some(description) = screener {
        manifest = with_screener(manifest, description);
    }
    // A defence that `--defence` names is measured, or its absence is an error above: only the default set can lack
    // one.
    let unmeasured = if options.defences.is_empty() { attention::unmeasured() } else { &[] };
    print(options, &suite, (&results, unmeasured), (&manifest, is_interrupted), output)?;
    Ok(if is_interrupted { INTERRUPTED } else { u8::from(has_disclosed(&results)) })
}

/// Returns whether a defence disclosed something without a permission, in the runs of any seed.
fn has_disclosed(results: &[DefenceResults]) -> bool {
    results.iter().any(|results| {
        let mut further_tasks = results.further_seeds.iter().flat_map(|of_seed| &of_seed.tasks);
        results.figures(TaskGroup::All).disclosed.hits > 0 || further_tasks.any(|task| task.is_disclosed)
    })
}

/// Returns the defences that the options name. If they name none, returns all defences that can be measured: with a
/// model if `has_model` (a model answers, or the requests to one are counted), otherwise with the double.
///
/// # Errors
/// If one of the defences cannot be measured, or if `--seeds` or `--screener` has an effect on none of them.
fn defences(options: &PrivacyArgs, has_model: bool) -> Result<Vec<PrivacyDefence>, InputError> {
    // Some defences are defined by what a double does, so they cannot be measured with a model.
    let of_models = PrivacyDefence::for_models();
    let of_doubles: Vec<PrivacyDefence> =
        PrivacyDefence::every(options.seed).into_iter().chain([PrivacyDefence::Attention]).collect();
    let measurable = if has_model { &of_models } else { &of_doubles };
    let defences: Vec<PrivacyDefence> = if options.defences.is_empty() {
        let is_left_out = |defence: &PrivacyDefence| {
            attention::unmeasured().iter().any(|one| one.defence == defence.name())
        };
        measurable.iter().filter(|defence| !is_left_out(defence)).copied().collect()
    } else {
        let parsed = options.defences.iter().map(|name| PrivacyDefence::parse(name, options.seed));
        parsed.collect::<Result<_, _>>().map_err(|error| InputError(error.to_string()))?
    };
    if let Some(unfit) = defences.iter().find(|defence| !measurable.contains(defence)) {
        let problem = if has_model {
            let names: Vec<&str> = of_models.iter().map(|defence| defence.name()).collect();
            format!("only with a double; with a model, use one of {}", names.join(", "))
        } else {
            "only with a model; name a model with `--model` and `--url`, or use judge/honest or introspection/honest"
                .to_owned()
        };
        return Err(InputError(format!(
            "--defence {}: this defence can be measured {problem}",
            unfit.name()
        )));
    }
    check_effects(options, &defences)?;
    Ok(defences)
}

/// Checks that `--seeds` and `--screener`, if they are given, have an effect on one of the defences.
///
/// # Errors
/// If one of them has none.
fn check_effects(options: &PrivacyArgs, defences: &[PrivacyDefence]) -> Result<(), InputError> {
    let seeds = options.seeds;
    // `with_seed` returns `None` for a defence that draws no random numbers.
    if seeds > 1 && defences.iter().all(|defence| defence.with_seed(0).is_none()) {
        let advice = "name judge/noisy, which does, or leave `--seeds` out";
        return Err(InputError(format!(
            "--seeds {seeds}: none of these defences draws random numbers; {advice}"
        )));
    }
    #[cfg(feature = "local")]
    if let Some(folder) = options.screener.as_ref().filter(|_| !defences.contains(&PrivacyDefence::Attention))
    {
        return Err(InputError(format!(
            "--screener {}: none of these defences reads attention; name `attention` with `--defence`, or leave the option out",
            folder.display()
        )));
    }
    Ok(())
}

/// Prints the results, and the defences that were not measured (`unmeasured`), in the format of the options. `manifest`
/// says how the results were measured. `is_interrupted` says whether defences are missing because of an interrupt.
fn print(
    options: &PrivacyArgs,
    suite: &PrivacySuite,
    (results, unmeasured): (&[DefenceResults], &[Unmeasured]),
    (manifest, is_interrupted): (&Value, bool),
    output: &mut Console,
) -> Result<(), InputError> {
    let seed = options.seed;
    match options.format {
        ReportFormat::Text => {
            let composition = composition(suite.tasks()).map_err(InputError)?;
            let text = tables(results, composition, seed, unmeasured);
            text.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Csv => {
            let rows: Vec<_> = results.iter().flat_map(figure_rows).collect();
            let compared = object_rows(comparison_rows(results, seed));
            let tables = csv_tables(&[&rows, &spread_rows(results, seed), &compared]);
            tables.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Html => {
            output.write_bytes(page(results, manifest, seed, unmeasured).as_bytes());
        }
        ReportFormat::Json => {
            let document = document(results, manifest, (seed, is_interrupted), unmeasured);
            output.line(&document.to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            lines(results, seed, unmeasured).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "defences": results.len()}).to_string());
            }
        }
    }
    Ok(())
}
