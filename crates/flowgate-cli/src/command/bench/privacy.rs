//! Runs `flowgate bench privacy`: measures each defence on the privacy-leak tasks of RTBAS.
//!
//! The tasks, the defences and the measures are in `flowgate_bench::privacy`; this module shows progress and chooses
//! the format.

use flowgate_bench::cost::RequestCounter;
use flowgate_bench::games::report::csv;
use flowgate_bench::privacy::check::composition;
use flowgate_bench::privacy::report::{figure_rows, lines, page, tables};
use flowgate_bench::privacy::seeds::spread_rows;
use flowgate_bench::privacy::{
    ANSWER_TOKENS, AnswerSource, DefenceResults, PrivacyDefence, PrivacySuite, TaskGroup, manifest,
};
use serde_json::json;

use super::model::{ask_ahead, model, print_cost};
use crate::args::{PrivacyArgs, PrivacyFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs the tasks under each defence, and prints the figures. Returns 1 if something was disclosed that nobody allowed,
/// [`INTERRUPTED`] after an interrupt, otherwise 0. With `--dry-run`, only prints what the run would cost with a model.
pub(crate) fn run(options: &PrivacyArgs, output: &mut Console) -> Result<u8, InputError> {
    let failed = |error: flowgate_bench::privacy::RunError| InputError(error.to_string());
    let suite = PrivacySuite::new().map_err(failed)?;
    let counter = RequestCounter::default();
    let named = if options.model.dry_run { None } else { model(&options.model)? };
    // With a model, defences that are defined by what a double does have no meaning.
    let has_model = named.is_some() || options.model.dry_run;
    let defences = if options.defences.is_empty() {
        if has_model { PrivacyDefence::for_models() } else { PrivacyDefence::every(options.seed) }
    } else {
        let parsed = options.defences.iter().map(|name| PrivacyDefence::parse(name, options.seed));
        parsed.collect::<Result<_, _>>().map_err(|error| InputError(error.to_string()))?
    };
    if let Some(unfit) =
        defences.iter().find(|defence| has_model && !PrivacyDefence::for_models().contains(defence))
    {
        let names: Vec<&str> = PrivacyDefence::for_models().into_iter().map(PrivacyDefence::name).collect();
        return Err(InputError(format!(
            "--defence {}: this defence can be measured only with a double; with a model, use one of {}",
            unfit.name(),
            names.join(", ")
        )));
    }
    let of_doubles = PrivacyDefence::every(options.seed);
    if let Some(unfit) = defences.iter().find(|defence| !has_model && !of_doubles.contains(defence)) {
        let advice = "name a model with `--model` and `--url`, or use judge/honest or introspection/honest";
        return Err(InputError(format!(
            "--defence {}: this defence can be measured only with a model; {advice}",
            unfit.name()
        )));
    }
    let seeds = u64::from(options.seeds);
    if seeds > 1 && defences.iter().all(|defence| defence.with_seed(0).is_none()) {
        let advice = "name judge/noisy, which does, or leave `--seeds` out";
        return Err(InputError(format!(
            "--seeds {seeds}: none of these defences draws random numbers; {advice}"
        )));
    }
    let answering = match &named {
        Some(model) => AnswerSource::Model(model.chat()),
        None if options.model.dry_run => AnswerSource::Counted(&counter),
        None => AnswerSource::Double,
    };
    let progress = Progress::over_steps(
        defences.iter().map(|defence| suite.runs_with_seeds(*defence, seeds)).sum(),
        "run",
        output,
    );
    ask_ahead(options.model.jobs, defences.len(), &progress, &|unit| {
        let Some(defence) = defences.get(unit) else { return Ok(()) };
        suite.run_defence_with(*defence, answering, &mut || progress.is_interrupted()).map_err(failed)?;
        Ok(())
    })?;
    let mut results: Vec<DefenceResults> = Vec::new();
    for defence in &defences {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        match suite.run_defence_seeds(*defence, (options.seed, seeds), answering, step).map_err(failed)? {
            Some(found) => results.push(found),
            // A defence whose runs are incomplete has no row.
            None => break,
        }
    }
    let is_interrupted = progress.finish(output);
    if options.model.dry_run {
        print_cost(&counter, ANSWER_TOKENS, output);
        return Ok(if is_interrupted { INTERRUPTED } else { 0 });
    }
    let manifest = manifest(
        (options.seed, seeds),
        &defences,
        suite.tasks().len(),
        named.as_ref().map(|model| model.chat().name()),
    );
    match options.format {
        PrivacyFormat::Text => {
            let composition = composition(suite.tasks()).map_err(InputError)?;
            tables(&results, composition, options.seed).lines().for_each(|line| output.line(line));
        }
        PrivacyFormat::Csv => {
            let rows: Vec<_> = results.iter().flat_map(figure_rows).collect();
            csv(&rows).lines().for_each(|line| output.line(line));
            // The figures over several seeds are a table of their own, after an empty line.
            let spreads = spread_rows(&results, options.seed);
            if !spreads.is_empty() {
                output.line("");
                csv(&spreads).lines().for_each(|line| output.line(line));
            }
        }
        PrivacyFormat::Html => {
            output.write_bytes(page(&results, &manifest, options.seed).as_bytes());
        }
        PrivacyFormat::Jsonl => {
            output.line(&manifest.to_string());
            lines(&results, options.seed).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "defences": results.len()}).to_string());
            }
        }
    }
    let is_disclosed = results.iter().any(|results| {
        let mut further = results.further_seeds.iter().flat_map(|of| &of.tasks);
        results.figures(TaskGroup::All).disclosed.hits > 0 || further.any(|task| task.is_disclosed)
    });
    Ok(match is_disclosed {
        _ if is_interrupted => INTERRUPTED,
        true => 1,
        false => 0,
    })
}
