//! Runs `flowgate bench games`: plays the games of AgentSecBench and prints the figures.
//!
//! The suite, the defences and the measures are in `flowgate_bench::games`; this module chooses the model, shows progress and
//! chooses the format.

use std::time::{Duration, Instant};

use flowgate_bench::games::adaptive::{AttackSearch, search};
use flowgate_bench::games::figures::DefenceFigures;
use flowgate_bench::games::report::{csv, figure_rows, search_table, tables};
use flowgate_bench::games::{Defence, Execution, GameSuite, Runner, manifest};
use flowgate_lm::ChatModel;
use serde_json::{Map, Value, json};

use crate::args::{GamesArgs, GamesFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs the command; returns the exit code.
pub(crate) fn run(options: &GamesArgs, output: &mut Console) -> Result<u8, InputError> {
    let remote = remote_model(options)?;
    let double = options.double();
    let begun = Instant::now();
    let clock: &dyn Fn() -> Duration = &|| begun.elapsed();
    let model: &dyn ChatModel = remote.as_deref().unwrap_or(&double);
    // A double is deterministic and takes no time: its output is the same each time.
    let runner = Runner::new(model, remote.is_some().then_some(clock));
    let runner = runner.map_err(|error| InputError(error.to_string()))?;
    let defences = if options.defences.is_empty() { Defence::standard() } else { options.defences.clone() };
    if let Some(defence) = defences.iter().find(|defence| remote.is_none() && defence.needs_tool_choice()) {
        return Err(InputError(format!(
            "--defence {}: a double chooses no tools; name a model with `--model` and `--url`, or leave the defence out",
            defence.name()
        )));
    }
    let instances = usize::try_from(options.instances).unwrap_or(usize::MAX);
    let suite = GameSuite::generate_variant(options.seed, instances, options.variant);
    let queries = usize::try_from(options.queries).unwrap_or(usize::MAX);
    let steps = suite.executions_per_defence() + suite.pairs().len() * queries;
    // An execution is a step, and so is a query of a search, whether it is needed or not.
    let progress = Progress::over_steps(steps * defences.len(), "step", output);
    let mut results = GameResults::default();
    for defence in &defences {
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        let failed = |error: flowgate_bench::games::ExecutionError| InputError(error.to_string());
        let Some(found) = suite.run_defence(&runner, *defence, step).map_err(failed)? else { break };
        let leakage = match &remote {
            Some(_) => Vec::new(),
            None => suite.enumerate_leakage(&runner, *defence).map_err(failed)?,
        };
        results.figures.push(DefenceFigures::of(*defence, &found, leakage));
        results.executions.extend(found);
        if queries > 0 {
            let Some(found) = search(&suite, &runner, *defence, queries, step).map_err(failed)? else {
                break;
            };
            // A search that succeeds early leaves out the rest of its queries.
            let made: usize = found.iter().map(|search| search.queries).sum();
            (made..suite.pairs().len() * queries).for_each(|_| progress.step());
            results.searches.extend(found);
        }
    }
    let is_interrupted = progress.finish(output);
    let manifest = manifest(&suite, &defences, model);
    print(options, &manifest, &results, is_interrupted, output);
    Ok(match results.has_effect_under_labels() {
        _ if is_interrupted => INTERRUPTED,
        true => 1,
        false => 0,
    })
}

/// What the defences that are complete have given.
#[derive(Default)]
struct GameResults {
    executions: Vec<Execution>,
    figures: Vec<DefenceFigures>,
    searches: Vec<AttackSearch>,
}

impl GameResults {
    fn has_effect_under_labels(&self) -> bool {
        let is_labelled = |defence: Defence| matches!(defence, Defence::Labels(_));
        let mut executions = self.executions.iter();
        executions.any(|execution| is_labelled(execution.defence) && execution.is_executed)
            || self.searches.iter().any(|search| is_labelled(search.defence) && search.executed_at.is_some())
    }
}

fn print(
    options: &GamesArgs,
    manifest: &Value,
    results: &GameResults,
    is_interrupted: bool,
    output: &mut Console,
) {
    let GameResults { executions, figures, searches } = results;
    let model = manifest.get("model").and_then(Value::as_str).unwrap_or_default();
    let undefended = figures.iter().find(|figures| figures.defence == Defence::None);
    let rows = || -> Vec<Map<String, Value>> {
        figures.iter().flat_map(|figures| figure_rows(figures, undefended, model)).collect()
    };
    match options.format {
        GamesFormat::Text => {
            let mut text = tables(figures, model);
            if !searches.is_empty() {
                text = format!(
                    "{text}\n{}",
                    search_table(searches, usize::try_from(options.queries).unwrap_or(usize::MAX))
                );
            }
            text.lines().for_each(|line| output.line(line));
        }
        GamesFormat::Csv => csv(&rows()).lines().for_each(|line| output.line(line)),
        GamesFormat::Json => {
            let searches: Vec<Value> = searches.iter().map(|search| search.to_json(model)).collect();
            let document = json!({
                "manifest": manifest,
                "figures": rows(),
                "searches": searches,
                "interrupted": is_interrupted,
            });
            output.line(&document.to_string());
        }
        GamesFormat::Jsonl => {
            output.line(&manifest.to_string());
            for execution in executions {
                output.line(&execution.to_json(model, options.content).to_string());
            }
            searches.iter().for_each(|search| output.line(&search.to_json(model).to_string()));
            rows().into_iter().for_each(|row| output.line(&Value::Object(row).to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "executions": executions.len()}).to_string());
            }
        }
    }
}

/// Returns the model on a server, if the command line names one.
#[cfg(feature = "run")]
fn remote_model(options: &GamesArgs) -> Result<Option<Box<dyn ChatModel>>, InputError> {
    use flowgate_lm::RemoteModel;
    use flowgate_lm::wire::Api;
    let (Some(model), Some(url)) = (&options.model, &options.url) else { return Ok(None) };
    let remote = RemoteModel::new(Api::ChatCompletions, url, model);
    let remote = remote.map_err(|error| InputError(format!("--url {url}: {error}")))?;
    let remote = match &options.key_from {
        Some(variable) => {
            let key = crate::command::run::key(variable)?;
            remote.key(key.trim()).map_err(|error| InputError(error.to_string()))?
        }
        None => remote,
    };
    Ok(Some(Box::new(remote)))
}

/// Returns no model: a program without the feature `run` has no HTTP client.
#[cfg(not(feature = "run"))]
#[expect(clippy::unnecessary_wraps, reason = "the function with the feature `run` can fail")]
fn remote_model(_: &GamesArgs) -> Result<Option<Box<dyn ChatModel>>, InputError> {
    Ok(None)
}
