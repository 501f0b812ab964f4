//! Runs `flowgate bench extended`: plays the security games that AgentSecBench does not contain, such as those with
//! encoded attacks or several sessions, and prints the figures.
//!
//! The games and the defences are in `flowgate_bench::games::extended`; this module chooses the model, shows progress
//! and chooses the format.

use std::time::{Duration, Instant};

use flowgate_bench::cost::{CountedModel, RequestCounter};
use flowgate_bench::games::adaptive::{AttackSearch, SearchSettings, search_extended, search_extended_pair};
use flowgate_bench::games::extended::{ExtendedFigures, ExtendedGame, ExtendedSuite};
use flowgate_bench::games::figures::Figures;
use flowgate_bench::games::report::extended::{
    comparison_rows, comparison_text, execution_row, figure_row, page, tables,
};
use flowgate_bench::games::report::{attempt_rows, csv_tables, object_rows, search_text};
use flowgate_bench::games::{ANSWER_TOKENS, Defence, Execution, Runner, extended_manifest, with_search};
use flowgate_lm::ChatModel;
use serde_json::{Value, json};

use super::model::{ask_ahead, attacker, model, print_cost_of_search};
use crate::args::{ExtendedArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Plays each game under each defence, and prints the figures. Returns 1 if a violation took effect in a game in which
/// none may, under a defence that enforces labels ([`Defence::Labels`]); [`INTERRUPTED`] after an interrupt; otherwise
/// 0. With `--dry-run`, only prints what the run would cost with a model.
pub(crate) fn run(options: &ExtendedArgs, output: &mut Console) -> Result<u8, InputError> {
    // The model: the one that the options name, or else a double, whose requests are counted.
    let counter = RequestCounter::default();
    let double = options.double();
    let counted = CountedModel { model: &double, counter: &counter };
    let named = if options.model.dry_run { None } else { model(&options.model)? };
    let model: &dyn ChatModel = match &named {
        Some(model) => model.chat(),
        None => &counted,
    };
    let suite = ExtendedSuite {
        seed: options.seed,
        seeds: options.seeds.into(),
        instances: usize::try_from(options.instances).unwrap_or(usize::MAX),
    };
    let games = if options.games.is_empty() { ExtendedGame::all() } else { options.games.clone() };
    let defences =
        if options.defences.is_empty() { ExtendedSuite::defences() } else { options.defences.clone() };
    if named.is_none() && defences.iter().any(|defence| defence.needs_tool_choice()) {
        return Err(super::games::needs_model());
    }
    if let Some(defence) = defences.iter().find(|defence| defence.needs_blocking()) {
        return Err(InputError(format!(
            "--defence {}: only `flowgate bench games` measures this defence; leave it out",
            defence.name()
        )));
    }
    // A row of the result is a game under a defence.
    let rows: Vec<(ExtendedGame, Defence)> =
        games.iter().flat_map(|game| defences.iter().map(move |defence| (*game, *defence))).collect();
    let progress = {
        let queries = usize::try_from(options.queries).unwrap_or(usize::MAX);
        let steps = suite.executions_per_row() + suite.pairs_per_row().saturating_mul(queries);
        Progress::over_steps(steps * rows.len(), "step", output)
    };
    let failed = |error: flowgate_bench::games::ExecutionError| InputError(error.to_string());
    // With `--jobs`, several threads ask the model first; the run below then reads the answers from the file of
    // answers.
    ask_ahead(options.model.threads(), rows.len(), &progress, &|unit| {
        let Some((game, defence)) = rows.get(unit) else { return Ok(()) };
        // `None`: no clock, since only the answers matter here.
        let runner = Runner::new(model, None).map_err(failed)?;
        suite.run(&runner, *game, *defence, &mut || progress.is_interrupted()).map_err(failed)?;
        Ok(())
    })?;
    let begun = Instant::now();
    let clock: &dyn Fn() -> Duration = &|| begun.elapsed();
    // The time is measured only if every answer comes from the model: the time of an answer from a file says nothing.
    let measures_time = named.is_some() && options.model.answers.is_none();
    let runner = Runner::new(model, measures_time.then_some(clock)).map_err(failed)?;
    let attack_counter = RequestCounter::default();
    let attacker = attacker(&options.attacker, options.model.dry_run.then_some(&attack_counter))?;
    let queries = usize::try_from(options.queries).unwrap_or(usize::MAX);
    let settings = SearchSettings { queries, author: attacker.as_deref() };
    // The searches, too, ask the models on several threads first. This has no use if the answers of the attacker's model
    // are not recorded, since it would give other answers in the measurement.
    let pairs = suite.pairs_per_row().max(1);
    let searches_ahead = queries > 0 && (attacker.is_none() || options.attacker.keeps_answers());
    let units = if searches_ahead { pairs * rows.len() } else { 0 };
    ask_ahead(options.model.threads(), units, &progress, &|unit| {
        let Some((game, defence)) = rows.get(unit / pairs) else { return Ok(()) };
        let runner = Runner::new(model, None).map_err(failed)?;
        let (task, is_stopped) = ((&suite, *game, unit % pairs), &mut || progress.is_interrupted());
        search_extended_pair(task, &runner, *defence, settings, is_stopped).map_err(failed)?;
        Ok(())
    })?;
    let (mut results, mut all_executions, mut searches) = (Vec::new(), Vec::new(), Vec::new());
    for (game, defence) in rows {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        let Some(executions) = suite.run(&runner, game, defence, step).map_err(failed)? else { break };
        results.push(ExtendedFigures { game, defence, figures: Figures::of(&executions) });
        all_executions.extend(executions.into_iter().map(|execution| (game, execution)));
        if queries > 0 {
            let found = search_extended(&suite, game, &runner, defence, settings, step).map_err(failed)?;
            let Some(found) = found else { break };
            // A search that succeeds early leaves out the rest of its queries, which the progress counts as well.
            let used: usize = found.iter().map(|search| search.queries).sum();
            (used..suite.pairs_per_row() * queries).for_each(|_| progress.step());
            searches.extend(found);
        }
    }
    let is_interrupted = progress.finish(output);
    if options.model.dry_run {
        let attacker = attacker.is_some().then_some(&attack_counter);
        print_cost_of_search(&counter, ANSWER_TOKENS, attacker, output);
        return Ok(if is_interrupted { INTERRUPTED } else { 0 });
    }
    let manifest = extended_manifest(&suite, &games, &defences, model);
    let manifest = with_search(manifest, queries, attacker.as_ref().map(|attacker| attacker.name()));
    print(
        options,
        &manifest,
        &ExtendedResults {
            figures: &results,
            executions: &all_executions,
            searches: &searches,
            is_interrupted,
        },
        output,
    );
    let has_effect = results.iter().any(|row| {
        matches!(row.defence, Defence::Labels(_))
            && row.game.must_stay_without_effect()
            && row.figures.executed.hits > 0
    }) || searches.iter().any(|search| {
        let must_stay = ExtendedGame::parse(&search.game).is_ok_and(ExtendedGame::must_stay_without_effect);
        matches!(search.defence, Defence::Labels(_)) && must_stay && search.executed_at.is_some()
    });
    Ok(match has_effect {
        _ if is_interrupted => INTERRUPTED,
        true => 1,
        false => 0,
    })
}

/// The results of the games and defences whose executions are complete.
#[derive(Clone, Copy)]
struct ExtendedResults<'r> {
    figures: &'r [ExtendedFigures],
    executions: &'r [(ExtendedGame, Execution)],
    searches: &'r [AttackSearch],
    /// Whether games or defences are missing because of an interrupt.
    is_interrupted: bool,
}

/// Prints the results in the format of the options: tables, CSV or a page with the figures; a JSON document with the
/// manifest (what the run was made with) and the figures; or JSON lines, which also have each execution.
fn print(options: &ExtendedArgs, manifest: &Value, results: &ExtendedResults<'_>, output: &mut Console) {
    let ExtendedResults { figures, executions, searches, is_interrupted } = *results;
    let model = manifest.get("model").and_then(Value::as_str).unwrap_or_default();
    let rows: Vec<_> = figures.iter().map(|row| figure_row(row, model)).collect();
    match options.format {
        ReportFormat::Text => {
            let mut texts = vec![tables(figures, model), comparison_text(executions, options.seed)];
            if !searches.is_empty() {
                let queries = usize::try_from(options.queries).unwrap_or(usize::MAX);
                texts.push(search_text(searches, queries));
            }
            texts.retain(|text| !text.is_empty());
            texts.join("\n").lines().for_each(|line| output.line(line));
        }
        ReportFormat::Csv => {
            let compared = object_rows(comparison_rows(executions, options.seed));
            let tables = csv_tables(&[&rows, &attempt_rows(searches, model), &compared]);
            tables.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Html => {
            output.write_bytes(page(figures, executions, searches, manifest).as_bytes());
        }
        ReportFormat::Json => {
            let document = json!({
                "manifest": manifest,
                "figures": rows,
                "searches": searches.iter().map(|search| search.to_json(model)).collect::<Vec<_>>(),
                "comparisons": comparison_rows(executions, options.seed),
                "interrupted": is_interrupted,
            });
            output.line(&document.to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            for (game, execution) in executions {
                output.line(&execution_row(*game, execution, model, options.content).to_string());
            }
            searches.iter().for_each(|search| output.line(&search.to_json(model).to_string()));
            rows.into_iter().for_each(|row| output.line(&Value::Object(row).to_string()));
            let compared = comparison_rows(executions, options.seed);
            compared.iter().for_each(|row| output.line(&row.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "rows": figures.len()}).to_string());
            }
        }
    }
}
