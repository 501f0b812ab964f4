//! Verifies recorded runs of the security games for [`verify`](super): repeats each run from its manifest, and compares
//! the lines. It covers AgentSecBench's games, the games beyond its limits (`games::extended`), and the experiment of
//! AgentSecBench (its sections 6.2 to 6.4).

use flowgate_lm::ChatModel;
use serde_json::Value;

use super::lines::{SkippedLines, compare, not_repeatable, number, string_list, text};
use super::searches::RecordedSearch;
use super::{OpenAnswers, Verification, VerifySettings};
use crate::games::adaptive::{search, search_extended};
use crate::games::experiment::{ModelRun, experiment_lines};
use crate::games::extended::{ExtendedFigures, ExtendedGame, ExtendedSuite};
use crate::games::figures::{DefenceFigures, Figures};
use crate::games::report::extended;
use crate::games::{self, GameSuite, ModelDouble, TextSources, Variant};

/// Repeats a run of the games, and compares the lines with the recorded ones. The manifest names the seed, the number
/// of pairs, the variant, the defences, and the attempts of the search for attacks.
pub(super) fn verify_games(
    manifest: &Value,
    lines: &[Value],
    verification: VerifySettings<'_>,
) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let instances = instances(manifest)?;
    let variant = Variant::parse(text(manifest, "variant")).map_err(|error| format!("line 1: {error}"))?;
    let named = string_list(manifest, "defences")?;
    let defences: Result<Vec<_>, _> = named.iter().map(|name| games::Defence::parse(name)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    let no_texts = TextSources::default();
    let texts = texts_of_run(manifest, verification.texts)?.unwrap_or(&no_texts);
    let suite = GameSuite::generate_from(seed, seeds(manifest)?, instances, variant, texts);
    let name = text(manifest, "model");
    let answering = AnsweringModel::open(name, verification.answers)?;
    answering.check(&defences)?;
    let recorded_search = RecordedSearch::open(manifest, verification)?;
    let mut left_out = recorded_search.left_out().to_vec();
    // The model of a run with attention blocking, if it is at hand. A double blocks by itself.
    let needs_blocking = defences.iter().any(|defence| defence.needs_blocking());
    let blocking = match (&answering, verification.local) {
        (AnsweringModel::Recorded(_), Some(local)) if needs_blocking => local.blocking_model(name)?,
        _ => None,
    };
    // `None`: without a clock, no time is measured.
    let mut runner = games::Runner::new(answering.chat(), None).map_err(|error| error.to_string())?;
    match (&answering, &blocking) {
        (AnsweringModel::Double(double), _) => runner = runner.with_blocking(double),
        (AnsweringModel::Recorded(_), Some(model)) => runner = runner.with_blocking(&**model),
        // Leaves out nothing if no defence blocks attention: the run then has no lines of this kind.
        (AnsweringModel::Recorded(_), None) => left_out.push(ATTENTION),
    }
    // Only a run that was recorded with `--content` has the texts of the answers.
    let has_content = lines.iter().any(|line| line.get("response").is_some());
    let mut repeated = vec![recorded_search.add_to(games::manifest(&suite, &defences, answering.chat()))];
    let (mut executions, mut figures, mut searches) = (Vec::new(), Vec::new(), Vec::new());
    // A run of a model has executions in the ideal world only on demand.
    let has_ideal = lines.iter().any(|line| line.get("deviates_from_ideal").is_some_and(Value::is_boolean));
    let ideals = if has_ideal {
        suite.ideal_meanings(&runner).map_err(|error| error.to_string())?
    } else {
        Vec::new()
    };
    // Without a model that can block attention, the defences that need one are left out. Nothing interrupts the
    // repeated run (`|| false`), so each other defence has results.
    let blocks = matches!(answering, AnsweringModel::Double(_)) || blocking.is_some();
    for defence in defences.iter().filter(|defence| blocks || !defence.needs_blocking()) {
        let failed = |error: games::ExecutionError| error.to_string();
        let mut found =
            suite.run_defence(&runner, *defence, &mut || false).map_err(failed)?.unwrap_or_default();
        suite.compare_with_ideals(&mut found, &ideals);
        // The enumeration of the leakage is never run with a model.
        let leakage = match answering {
            AnsweringModel::Double(_) => suite.enumerate_leakage(&runner, *defence).map_err(failed)?,
            AnsweringModel::Recorded(_) => Vec::new(),
        };
        figures.push(DefenceFigures::of(*defence, &found, leakage));
        executions.extend(found);
        if let Some(settings) = recorded_search.settings() {
            let found = search(&suite, &runner, *defence, settings, &mut || false).map_err(failed)?;
            searches.extend(found.unwrap_or_default());
        }
    }
    repeated.extend(executions.iter().map(|execution| execution.to_json(name, has_content)));
    repeated.extend(searches.iter().map(|search| search.to_json(name)));
    let undefended = figures.iter().find(|figures| figures.defence == games::Defence::None);
    let rows = figures.iter().flat_map(|figures| games::report::figure_rows(figures, undefended, name));
    repeated.extend(rows.map(Value::Object));
    repeated.extend(games::report::comparison_rows(&executions, seed));
    // The paper has no variants, and measures no doubles.
    if matches!(answering, AnsweringModel::Recorded(_)) && variant == Variant::Paper {
        repeated.extend(games::report::paper_rows(&[(name, figures.as_slice())]));
    }
    Ok(compare(lines, &repeated, &left_out))
}

/// Returns the texts of folders with which a run of the games is repeated: `texts`, those that are at hand.
///
/// # Errors
/// If the run read such texts, and none are at hand.
fn texts_of_run<'a>(
    manifest: &Value,
    texts: Option<&'a TextSources>,
) -> Result<Option<&'a TextSources>, String> {
    let has_texts = number(manifest, "background_texts")? > 0 || number(manifest, "attack_texts")? > 0;
    if has_texts && texts.is_none() {
        return Err(
            "line 1: the run has texts of a folder; name this folder with `--background` or `--attack-texts`, as the run did"
                .to_owned(),
        );
    }
    Ok(texts)
}

/// Repeats the experiment of the paper with the recorded answers of its models, which `answers` opens, and compares the
/// lines with the recorded ones. The manifest names the seed, the number of pairs and the models.
pub(super) fn verify_experiment(
    manifest: &Value,
    lines: &[Value],
    answers: Option<&OpenAnswers<'_>>,
) -> Result<Verification, String> {
    let suite = GameSuite::generate(number(manifest, "seed")?, instances(manifest)?);
    let names = string_list(manifest, "models")?;
    let mut runs = Vec::new();
    for name in &names {
        let model = AnsweringModel::open(name, answers)?;
        // `None`: without a clock, no time is measured. `|| false`: nothing interrupts the repeated run.
        let run = ModelRun::complete(&suite, model.chat(), None, &mut || false);
        runs.extend(run.map_err(|error| error.to_string())?);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut repeated = vec![games::experiment_manifest(&suite, &names)];
    repeated.extend(experiment_lines(&runs));
    Ok(compare(lines, &repeated, &[]))
}

/// The lines of defences that block the attention of a local model, and the comparisons with them.
const ATTENTION: SkippedLines =
    ("defences by attention blocking, whose answers are never recorded; `--local` repeats them", |line| {
        let named = ["defence", "second"].iter().filter_map(|field| line.get(*field)?.as_str());
        named.filter_map(|name| games::Defence::parse(name).ok()).any(games::Defence::needs_blocking)
    });

/// The model that answers in a repeated run.
enum AnsweringModel {
    /// A double, which answers as in the recorded run.
    Double(ModelDouble),
    /// The recorded answers of a model.
    Recorded(Box<dyn ChatModel>),
}

impl AnsweringModel {
    /// Returns the double with this name, or the recorded answers of the model with this name.
    ///
    /// # Errors
    /// If it is the name of no double, and there are no recorded answers or they cannot be read.
    fn open(name: &str, answers: Option<&OpenAnswers<'_>>) -> Result<Self, String> {
        if let Some(double) = ModelDouble::ALL.into_iter().find(|double| double.name() == name) {
            return Ok(Self::Double(double));
        }
        let open = answers.ok_or_else(|| not_repeatable(name))?;
        open(name).map(Self::Recorded)
    }

    /// Returns the model.
    fn chat(&self) -> &dyn ChatModel {
        match self {
            Self::Double(double) => double,
            Self::Recorded(model) => &**model,
        }
    }

    /// Returns an error if a run cannot have both this model and these defences: a double chooses no tools.
    fn check(&self, defences: &[games::Defence]) -> Result<(), String> {
        let unfit = match self {
            Self::Double(_) => defences.iter().find(|defence| defence.needs_tool_choice()),
            Self::Recorded(_) => None,
        };
        unfit.map_or(Ok(()), |defence| Err(needs_model(*defence)))
    }
}

/// Returns the error for a manifest that names a double together with a defence in which a model chooses tools: no run
/// has both.
fn needs_model(defence: games::Defence) -> String {
    format!(
        "line 1: the file names a double and the defence {}, in which a model chooses tools; a double cannot do that, so no run has both: \
         give the file unchanged, as `flowgate bench` wrote it",
        defence.name()
    )
}

/// Returns the number of seeds that the manifest names. A number outside 1 to 1000 is an error, as for the pairs.
pub(super) fn seeds(manifest: &Value) -> Result<u64, String> {
    let seeds = number(manifest, "seeds")?;
    (1..=1000).contains(&seeds).then_some(seeds).ok_or_else(|| {
        "line 1: `seeds` is not from 1 to 1000; give a file that `flowgate bench` wrote".to_owned()
    })
}

/// Returns the number of pairs of each game that the manifest names. A number outside 1 to 10000 is an error: the
/// repeated run of a manipulated file could otherwise take any amount of time.
fn instances(manifest: &Value) -> Result<usize, String> {
    let instances = usize::try_from(number(manifest, "instances")?).unwrap_or(usize::MAX);
    let is_valid = (1..=10_000).contains(&instances);
    is_valid.then_some(instances).ok_or_else(|| {
        "line 1: `instances` is not from 1 to 10000; give a file that `flowgate bench` wrote".to_owned()
    })
}

/// Repeats a run of the games beyond AgentSecBench, and compares the lines with the recorded ones. The manifest names
/// the seed, the number of pairs, the games, the defences, and the attempts of the search for attacks.
pub(super) fn verify_extended(
    manifest: &Value,
    lines: &[Value],
    verification: VerifySettings<'_>,
) -> Result<Verification, String> {
    let (seed, seeds) = (number(manifest, "seed")?, seeds(manifest)?);
    let suite = ExtendedSuite { seed, seeds, instances: instances(manifest)? };
    let defences: Result<Vec<_>, _> =
        string_list(manifest, "defences")?.iter().map(|name| games::Defence::parse(name)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    let named_games: Result<Vec<_>, _> =
        string_list(manifest, "games")?.iter().map(|name| ExtendedGame::parse(name)).collect();
    let named_games = named_games.map_err(|error| format!("line 1: {error}"))?;
    let name = text(manifest, "model");
    let answering = AnsweringModel::open(name, verification.answers)?;
    answering.check(&defences)?;
    let recorded_search = RecordedSearch::open(manifest, verification)?;
    // `None`: without a clock, no time is measured.
    let runner = games::Runner::new(answering.chat(), None).map_err(|error| error.to_string())?;
    // Only a run that was recorded with `--content` has the texts of the answers.
    let has_content = lines.iter().any(|line| line.get("response").is_some());
    let repeated_manifest = games::extended_manifest(&suite, &named_games, &defences, answering.chat());
    let mut repeated = vec![recorded_search.add_to(repeated_manifest)];
    let (mut figures, mut executions, mut searches) = (Vec::new(), Vec::new(), Vec::new());
    for game in &named_games {
        for defence in &defences {
            let found =
                suite.run(&runner, *game, *defence, &mut || false).map_err(|error| error.to_string())?;
            let found = found.unwrap_or_default();
            let rows =
                found.iter().map(|execution| extended::execution_row(*game, execution, name, has_content));
            repeated.extend(rows);
            figures.push(ExtendedFigures { game: *game, defence: *defence, figures: Figures::of(&found) });
            executions.extend(found.into_iter().map(|execution| (*game, execution)));
            if let Some(settings) = recorded_search.settings() {
                let found = search_extended(&suite, *game, &runner, *defence, settings, &mut || false);
                searches.extend(found.map_err(|error| error.to_string())?.unwrap_or_default());
            }
        }
    }
    repeated.extend(searches.iter().map(|search| search.to_json(name)));
    repeated.extend(figures.iter().map(|row| Value::Object(extended::figure_row(row, name))));
    repeated.extend(extended::comparison_rows(&executions, suite.seed));
    Ok(compare(lines, &repeated, recorded_search.left_out()))
}
