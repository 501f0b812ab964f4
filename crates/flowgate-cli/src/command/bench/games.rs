//! Runs `flowgate bench games`: plays the games of AgentSecBench and prints the figures.
//!
//! The suite, the defences and the measures are in `flowgate_bench::games`; this module chooses the model, shows
//! progress and chooses the format.

use std::path::Path;
use std::time::{Duration, Instant};

use flowgate_bench::corpora::{load_mails, load_prompt_shield};
use flowgate_bench::cost::{CountedModel, RequestCounter};
use flowgate_bench::games::adaptive::{AttackSearch, SearchSettings, search, search_pair};
use flowgate_bench::games::figures::DefenceFigures;
use flowgate_bench::games::report::{
    PageContent, attempt_rows, comparison_rows, comparison_text, csv_tables, figure_rows, object_rows, page,
    paper_rows, paper_tables, search_text, tables,
};
use flowgate_bench::games::{
    ANSWER_TOKENS, Defence, Execution, GameSuite, Runner, Side, TextSources, Variant, manifest, with_search,
};
use flowgate_guard::conversation::Method;
use flowgate_lm::{BlockingModel, ChatModel};
use serde_json::{Map, Value, json};

use super::corpus::Folder;
use super::model::{ask_ahead, attacker, model, print_cost_of_search};
use crate::args::{GamesArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench games`: executes the suite under each defence, searches for attacks if the options ask for it,
/// and prints the figures. Returns 1 if a violation took effect under a defence that enforces labels
/// ([`Defence::Labels`]), [`INTERRUPTED`] after an interrupt, otherwise 0. With `--dry-run`, only prints what the run
/// would cost with a model.
pub(crate) fn run(options: &GamesArgs, output: &mut Console) -> Result<u8, InputError> {
    // The model: the one that the options name, or else a double, whose requests are counted.
    let counter = RequestCounter::default();
    let double = options.double();
    let counted = CountedModel { model: &double, counter: &counter };
    let named = if options.model.dry_run { None } else { model(&options.model)? };
    let begun = Instant::now();
    let clock: &dyn Fn() -> Duration = &|| begun.elapsed();
    let model: &dyn ChatModel = match &named {
        Some(model) => model.chat(),
        None => &counted,
    };
    // The time is measured only if every answer comes from a model: the time of a double, or of an answer from a file,
    // says nothing, and without times the output of a double is the same in each run.
    let measures_time = named.is_some() && options.model.answers.is_none();
    let runner = Runner::new(model, measures_time.then_some(clock));
    let mut runner = runner.map_err(|error| InputError(error.to_string()))?;
    // A double can block attention, too: it answers as if it had not been shown what is blocked.
    let blocking: Option<&dyn BlockingModel> = match &named {
        Some(model) => model.blocking(),
        None => Some(&counted),
    };
    if let Some(blocking) = blocking {
        runner = runner.with_blocking(blocking);
    }
    let defences = if options.defences.is_empty() {
        let by_attention = Defence::by_attention().into_iter().filter(|_| options.model.is_local());
        Defence::standard().into_iter().chain(by_attention).collect()
    } else {
        options.defences.clone()
    };
    if blocking.is_none()
        && let Some(defence) = defences.iter().find(|defence| defence.needs_blocking())
    {
        return Err(needs_local_model(*defence));
    }
    if named.is_none() && defences.iter().any(|defence| defence.needs_tool_choice()) {
        return Err(needs_model());
    }
    let instances = usize::try_from(options.instances).unwrap_or(usize::MAX);
    let seeds = u64::from(options.seeds);
    let texts = sources(options.background.as_deref(), options.attack_texts.as_deref())?;
    let suite = GameSuite::generate_from(options.seed, seeds, instances, options.variant, &texts);
    let queries = usize::try_from(options.queries).unwrap_or(usize::MAX);
    let steps = suite.executions_per_defence() + suite.pairs().len() * queries;
    // An execution is a step, and so is a query of a search, whether it is needed or not.
    let progress = Progress::over_steps(steps * defences.len(), "step", output);
    // Asks the model on several threads, so that its answers are recorded before the measurement runs in order. A unit
    // is one pair of observations under one defence.
    ask_ahead(options.model.threads(), suite.pairs().len() * defences.len(), &progress, &|unit| {
        let failed = |error: flowgate_bench::games::ExecutionError| InputError(error.to_string());
        let (pair, defence) = (suite.pairs().get(unit / defences.len()), defences.get(unit % defences.len()));
        let (Some(pair), Some(defence)) = (pair, defence) else { return Ok(()) };
        // Answers with blocked attention are not recorded.
        if defence.needs_blocking() {
            return Ok(());
        }
        // `None`: no clock, since only the answers matter here.
        let runner = Runner::new(model, None).map_err(failed)?;
        for side in Side::ALL {
            runner.run(pair.side(side), side, *defence).map_err(failed)?;
        }
        Ok(())
    })?;
    let failed = |error: flowgate_bench::games::ExecutionError| InputError(error.to_string());
    // The executions in the ideal world, with which the others are compared, need further requests, so with a model they
    // run only with `--ideal`.
    let has_ideal = options.ideal || (named.is_none() && !options.model.dry_run);
    let ideals = if has_ideal { suite.ideal_meanings(&runner).map_err(failed)? } else { Vec::new() };
    let attack_counter = RequestCounter::default();
    let attacker = attacker(&options.attacker, options.model.dry_run.then_some(&attack_counter))?;
    let settings = SearchSettings { queries, author: attacker.as_deref() };
    // The searches, too, ask the models on several threads first. This has no use if the answers of the attacker's model
    // are not recorded, since it would give other answers in the measurement.
    let searches_ahead = queries > 0 && (attacker.is_none() || options.attacker.keeps_answers());
    let searched_defences: Vec<Defence> =
        defences.iter().copied().filter(|defence| searches_ahead && !defence.needs_blocking()).collect();
    ask_ahead(options.model.threads(), suite.pairs().len() * searched_defences.len(), &progress, &|unit| {
        let Some(defence) = searched_defences.get(unit / suite.pairs().len().max(1)) else { return Ok(()) };
        let runner = Runner::new(model, None).map_err(failed)?;
        let task = (&suite, unit % suite.pairs().len().max(1));
        let is_stopped = &mut || progress.is_interrupted();
        search_pair(task, &runner, *defence, settings, is_stopped).map_err(failed)?;
        Ok(())
    })?;
    // The measurement: the executions, the leakage and the search for attacks under each defence.
    let mut results = GameResults::default();
    for defence in &defences {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        let Some(mut executions) = suite.run_defence(&runner, *defence, step).map_err(failed)? else { break };
        suite.compare_with_ideals(&mut executions, &ideals);
        let leakage = match &named {
            Some(_) => Vec::new(),
            // A dry run counts the requests to a model, and the enumeration is never run with a model.
            None if options.model.dry_run => Vec::new(),
            None => suite.enumerate_leakage(&runner, *defence).map_err(failed)?,
        };
        results.figures.push(DefenceFigures::of(*defence, &executions, leakage));
        results.executions.extend(executions);
        if queries > 0 {
            let Some(searches) = search(&suite, &runner, *defence, settings, step).map_err(failed)? else {
                break;
            };
            // A search that succeeds early leaves out the rest of its queries, which the progress counts as well.
            let used_queries: usize = searches.iter().map(|search| search.queries).sum();
            (used_queries..suite.pairs().len() * queries).for_each(|_| progress.step());
            results.searches.extend(searches);
        }
    }
    let is_interrupted = progress.finish(output);
    if options.model.dry_run {
        let attacker = attacker.is_some().then_some(&attack_counter);
        print_cost_of_search(&counter, ANSWER_TOKENS, attacker, output);
        return Ok(if is_interrupted { INTERRUPTED } else { 0 });
    }
    let manifest = manifest(&suite, &defences, model);
    let manifest = with_search(manifest, queries, attacker.as_ref().map(|attacker| attacker.name()));
    results.is_of_double = named.is_none();
    print(options, &manifest, &results, is_interrupted, output);
    Ok(match results.has_effect_under_labels() {
        _ if is_interrupted => INTERRUPTED,
        true => 1,
        false => 0,
    })
}

/// Reads the texts that folders add to the games: mails as the background of the observations (`--background`), and
/// injections that others have written (`--attack-texts`).
///
/// # Errors
/// If a folder cannot be read, or that of `--attack-texts` has no injection.
pub(super) fn sources(
    background: Option<&Path>,
    attack_texts: Option<&Path>,
) -> Result<TextSources, InputError> {
    let mut sources = TextSources::default();
    if let Some(path) = background {
        sources.background = load_mails(&Folder::open(path)?)
            .map_err(|error| InputError(format!("--background {}: {error}", path.display())))?;
    }
    if let Some(path) = attack_texts {
        let labelled = load_prompt_shield(&Folder::open(path)?)
            .map_err(|error| InputError(format!("--attack-texts {}: {error}", path.display())))?;
        let texts = labelled.splits.into_iter().flat_map(|(_, texts)| texts);
        sources.injections = texts.filter(|text| text.is_injection).map(|text| text.text).collect();
        if sources.injections.is_empty() {
            let problem = "no text has the label 1; give a part of PromptShield with injections";
            return Err(InputError(format!("--attack-texts {}: {problem}", path.display())));
        }
    }
    Ok(sources)
}

/// The results of the defences whose executions are complete.
#[derive(Default)]
struct GameResults {
    executions: Vec<Execution>,
    figures: Vec<DefenceFigures>,
    searches: Vec<AttackSearch>,
    /// Whether a double answered. Its figures are not compared with those of the paper.
    is_of_double: bool,
}

impl GameResults {
    /// Returns whether a violation took effect under a defence that enforces labels, in the executions or in a search.
    fn has_effect_under_labels(&self) -> bool {
        let is_labelled = |defence: Defence| matches!(defence, Defence::Labels(_));
        let mut executions = self.executions.iter();
        executions.any(|execution| is_labelled(execution.defence) && execution.is_executed)
            || self.searches.iter().any(|search| is_labelled(search.defence) && search.executed_at.is_some())
    }
}

/// Prints the results in the format of the options. `manifest` says how they were measured. `is_interrupted` says whether
/// defences are missing because of an interrupt.
fn print(
    options: &GamesArgs,
    manifest: &Value,
    results: &GameResults,
    is_interrupted: bool,
    output: &mut Console,
) {
    let GameResults { executions, figures, searches, is_of_double } = results;
    let model = manifest.get("model").and_then(Value::as_str).unwrap_or_default();
    let own_figures = [(model, figures.as_slice())];
    // The paper has no variants, and measures no doubles.
    let is_compared = !*is_of_double && options.variant == Variant::Paper;
    let beside_paper = if is_compared { own_figures.as_slice() } else { &[] };
    // The figures without a defence, with which each row compares those of its defence.
    let undefended = figures.iter().find(|figures| figures.defence == Defence::None);
    let rows = || -> Vec<Map<String, Value>> {
        figures.iter().flat_map(|figures| figure_rows(figures, undefended, model)).collect()
    };
    match options.format {
        ReportFormat::Text => {
            let mut text = tables(figures, model);
            let compared = comparison_text(executions, options.seed);
            if !compared.is_empty() {
                text = format!("{text}\n{compared}");
            }
            if !searches.is_empty() {
                let queries = usize::try_from(options.queries).unwrap_or(usize::MAX);
                text = format!("{text}\n{}", search_text(searches, queries));
            }
            if !beside_paper.is_empty() {
                text = format!("{text}\n{}", paper_tables(beside_paper));
            }
            text.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Html => {
            let content = PageContent { figures, executions, searches, compared: beside_paper };
            output.write_bytes(page(content, manifest).as_bytes());
        }
        ReportFormat::Csv => {
            let compared = object_rows(comparison_rows(executions, options.seed));
            let tables = csv_tables(&[&rows(), &attempt_rows(searches, model), &compared]);
            tables.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Json => {
            let searches: Vec<Value> = searches.iter().map(|search| search.to_json(model)).collect();
            let document = json!({
                "manifest": manifest,
                "figures": rows(),
                "searches": searches,
                "comparisons": comparison_rows(executions, options.seed),
                "paper": paper_rows(beside_paper),
                "interrupted": is_interrupted,
            });
            output.line(&document.to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            for execution in executions {
                output.line(&execution.to_json(model, options.content).to_string());
            }
            searches.iter().for_each(|search| output.line(&search.to_json(model).to_string()));
            rows().into_iter().for_each(|row| output.line(&Value::Object(row).to_string()));
            let compared = comparison_rows(executions, options.seed);
            compared.iter().for_each(|row| output.line(&row.to_string()));
            paper_rows(beside_paper).iter().for_each(|row| output.line(&row.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "executions": executions.len()}).to_string());
            }
        }
    }
}

/// Returns the error for a defence that blocks attention, which a server cannot do.
fn needs_local_model(defence: Defence) -> InputError {
    InputError(format!(
        "--defence {}: this defence blocks attention inside of a local model: name its folder with `--local` (in a program that was built with the feature `local`), or leave the defence out",
        defence.name()
    ))
}

/// Returns the error for a defence in which a model chooses tools, if a double answers.
pub(super) fn needs_model() -> InputError {
    let name = Defence::Labels(Method::ToolFilter).name();
    let advice = "name a model with `--model` and `--url`, or leave the defence out";
    InputError(format!(
        "--defence {name}: in this defence, a model chooses tools, which a double cannot do; {advice}"
    ))
}
