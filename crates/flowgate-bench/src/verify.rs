//! Verifies a recorded run: computes its manifest again, repeats the run, and compares every line.
//! `flowgate bench verify` calls [`verify`].
//!
//! A run of a double can be repeated from its manifest. A run of a real model can be repeated with the answers that
//! `--answers` kept; without them, it is refused, because the model may answer differently the next time. A search for
//! attacks takes minutes, so it is repeated only on demand; otherwise, its lines are left out of the comparison, and
//! [`verify`] reports that.
//!
//! A run is repeated if this code gives the same lines, even if other code recorded it: another version or digest of
//! the sources in the manifest gives a note, and no difference.

mod folders;
mod games;
mod lines;
mod searches;

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_lm::ChatModel;
use serde_json::Value;

use self::folders::{CORPUS_PREFIX, needs_folder, verify_corpus, verify_injections};
use self::lines::{SkippedLines, compare, not_repeatable, number, string_list, text};
use crate::agents::{self, Guard};
use crate::corpora::{CorpusFolder, load_news_pairs};
use crate::detectors;
use crate::games::TextSources;
use crate::policy_errors;
use crate::privacy::{self, AnswerSource, PrivacySuite};
use crate::propagation::{self, CopyingErrors, PropagationSuite, Size};

pub use searches::MAX_QUERIES;

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of recorded lines that equal those of the repeated run.
    pub repeated: usize,
    /// A text for each difference, such as `line 3: questions differs`. The run is confirmed if there is none.
    pub differences: Vec<String>,
    /// What differs without being a difference of the run: that other code recorded it.
    pub notes: Vec<String>,
    /// A text for each kind of line that was not compared, with the number of these lines.
    pub left_out: Vec<String>,
}

/// Opens the recorded answers of the model with a name; the error says why they cannot be used.
pub type OpenAnswers<'a> = dyn Fn(&str) -> Result<Box<dyn ChatModel>, String> + 'a;

/// How a run is repeated.
#[derive(Clone, Copy, Default)]
pub struct VerifySettings<'a> {
    /// Opens the recorded answers of a real model; `None` if there are none.
    pub answers: Option<&'a OpenAnswers<'a>>,
    /// Whether the searches for attacks are repeated as well.
    pub repeats_searches: bool,
    /// Opens the recorded answers of the model that drove the attacker; `None` if there are none.
    pub attacker_answers: Option<&'a OpenAnswers<'a>>,
    /// The folder that the run read, of a public benchmark, of labelled texts or of articles; `None` if it is not at
    /// hand.
    pub folder: Option<&'a dyn CorpusFolder>,
    /// The texts of folders that a run of the games read; `None` if they are not at hand.
    pub texts: Option<&'a TextSources>,
}

impl std::fmt::Debug for VerifySettings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifySettings")
            .field("has_answers", &self.answers.is_some())
            .field("repeats_searches", &self.repeats_searches)
            .field("has_attacker_answers", &self.attacker_answers.is_some())
            .field("has_folder", &self.folder.is_some())
            .field("has_texts", &self.texts.is_some())
            .finish()
    }
}

/// Verifies the lines of a run in the format jsonl, of which the first is the manifest. A difference between the
/// recorded and the repeated run is part of the result and no error.
///
/// # Errors
/// If the lines are no run of a suite, the run is one of a real model without recorded answers or of a folder that is
/// not at hand or has another form, the manifest names something that this program does not have, its searches are to
/// be repeated and it has none, or the repeated run fails.
pub fn verify(lines: &[Value], settings: VerifySettings<'_>) -> Result<Verification, String> {
    let manifest = lines.first().filter(|line| text(line, "type") == "manifest");
    let manifest = manifest.ok_or(
        "line 1 is not the manifest of a run; give a file that `flowgate bench` wrote with `--format jsonl`",
    )?;
    let answers = settings.answers;
    if settings.repeats_searches && manifest.get("search").is_none() {
        return Err(
            "line 1: the run records no search for attacks, so none can be repeated; leave `--searches` out, or record the run again"
                .to_owned(),
        );
    }
    match text(manifest, "suite") {
        "rtbas-privacy" => verify_privacy(manifest, lines, answers),
        "agentsecbench-games" => games::verify_games(manifest, lines, settings),
        "agentsecbench-extended" => games::verify_extended(manifest, lines, settings),
        "agentsecbench-paper" => games::verify_experiment(manifest, lines, answers),
        "detectors" => verify_detectors(manifest, lines),
        "agents" => verify_agents(manifest, lines),
        "permissive-propagation" => verify_propagation(manifest, lines, settings.folder),
        "injection-detectors" => verify_injections(manifest, lines, settings.folder),
        corpus if corpus.starts_with(CORPUS_PREFIX) => verify_corpus(manifest, lines, settings.folder),
        other => Err(format!(
            "line 1 names the suite `{}`, whose runs this version of Flowgate cannot repeat; run its command again, and compare the files",
            other.escape_debug()
        )),
    }
}

/// Repeats a run of the privacy suite with the seed and the defences that the manifest names, and compares the lines
/// with the recorded ones. `answers` opens the recorded answers of a model.
fn verify_privacy(
    manifest: &Value,
    lines: &[Value],
    answers: Option<&OpenAnswers<'_>>,
) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let name = text(manifest, "model");
    let recorded = if name == privacy::DOUBLE {
        None
    } else {
        let open = answers.ok_or_else(|| not_repeatable(name))?;
        Some(open(name)?)
    };
    let source = recorded.as_deref().map_or(AnswerSource::Double, AnswerSource::Model);
    let named = string_list(manifest, "defences")?;
    let defences: Result<Vec<_>, _> =
        named.iter().map(|name| privacy::PrivacyDefence::parse(name, seed)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    let suite = PrivacySuite::new().map_err(|error| error.to_string())?;
    let seeds = games::seeds(manifest)?;
    let mut results = Vec::new();
    // The weights of the local model are not at hand here.
    for defence in defences.iter().filter(|defence| **defence != privacy::PrivacyDefence::Attention) {
        // Nothing interrupts the repeated run, so each defence has a result.
        let mut is_cancelled = || false;
        let found = suite.run_defence_seeds(*defence, (seed, seeds), source, &mut is_cancelled);
        results.extend(found.map_err(|error| error.to_string())?);
    }
    let model = recorded.as_deref().map(ChatModel::name);
    let mut repeated_manifest = privacy::manifest((seed, seeds), &defences, suite.tasks().len(), model);
    // The description of the screener cannot be computed without its local model, so the recorded one is used.
    if let Some(screener) = manifest.get("screener") {
        repeated_manifest = privacy::with_screener(repeated_manifest, screener.clone());
    }
    let mut repeated = vec![repeated_manifest];
    repeated.extend(privacy::report::lines(&results, seed, &[]));
    Ok(compare(lines, &repeated, &[ATTENTION, UNMEASURED]))
}

/// The lines of the defence that reads the attention of a local model, and the comparisons with it.
const ATTENTION: SkippedLines = ("the defence `attention`, which needs its local model", |line| {
    let name = privacy::PrivacyDefence::Attention.name();
    text(line, "type") != "unmeasured" && ["defence", "second"].iter().any(|field| text(line, field) == name)
});

/// The lines of defences that were not measured.
const UNMEASURED: SkippedLines =
    ("defences that were not measured", |line| text(line, "type") == "unmeasured");

/// Repeats a run of the tasks of agents with the methods that the manifest names, and compares the lines with the
/// recorded ones.
fn verify_agents(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let guards = string_list(manifest, "methods")?;
    let guards: Result<Vec<Guard>, String> = guards.iter().map(|name| Guard::parse(name)).collect();
    let guards = guards.map_err(|error| format!("line 1: {error}"))?;
    let suite = agents::TaskSuite::new()?;
    let mut rows = Vec::new();
    for guard in &guards {
        // The callback returns whether the user has interrupted the run; here nobody can.
        rows.extend(suite.run_guard(*guard, &mut || false)?);
    }
    let mut repeated = vec![agents::manifest(seed, &guards)];
    repeated.extend(agents::report::lines(&guards, &rows, seed));
    // No kind of lines is left out of the comparison.
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the detectors with the built-in policy, and compares the lines with the recorded ones.
fn verify_detectors(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    if text(manifest, "policy") != detectors::BUILTIN {
        return Err(format!(
            "line 1: the run has the policy `{}`, which is a file of the user; run `flowgate bench detectors --policy` again, and compare the files",
            text(manifest, "policy").escape_debug()
        ));
    }
    let policy = Policy::parse(detectors::POLICY).map_err(|errors| {
        format!(
            "the built-in policy cannot be used; this is a defect of Flowgate; please report it: {}",
            policy_errors::one_line(&errors)
        )
    })?;
    let rows = detectors::rows()?;
    let judged = detectors::JudgedRow::all(&Arc::new(policy), &rows, &mut || false)?;
    let figures = detectors::DetectorFigures::of(&judged);
    let mut repeated = vec![detectors::manifest(seed, detectors::BUILTIN, detectors::POLICY)];
    repeated.extend(detectors::report::lines(&judged, &figures, detectors::BUILTIN, seed));
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the propagation suite, and compares the lines with the recorded ones. The manifest names the seeds,
/// the size and the doubles. `folder` has the articles, if the run read those of a folder.
fn verify_propagation(
    manifest: &Value,
    lines: &[Value],
    folder: Option<&dyn CorpusFolder>,
) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    // Only runs of doubles can be repeated. The manifest of such a run may lack a model.
    let model = text(manifest, "model");
    if !model.is_empty() && model != propagation::DOUBLE {
        return Err(not_repeatable(model));
    }
    let count = |name, least: u64| {
        let count = number(manifest, name)?;
        let count = usize::try_from(count).ok().filter(|_| (least..=1000).contains(&count));
        count.ok_or_else(|| {
            format!("line 1: `{name}` is not from {least} to 1000; give a file that `flowgate bench propagation` wrote")
        })
    };
    // The first question is only an example, and two pairs are fewer articles than a context holds. The upper limit
    // bounds the time that a manipulated file can cost.
    let size = Size { questions: count("questions", 2)?, pairs: count("pairs", 3)? };
    let double = |name: &String| {
        let found = CopyingErrors::parse(name);
        found.ok_or_else(|| {
            format!(
                "line 1: `doubles`: there is no double `{}`; use the version of Flowgate that wrote the file",
                name.escape_debug()
            )
        })
    };
    let doubles: Vec<CopyingErrors> =
        string_list(manifest, "doubles")?.iter().map(double).collect::<Result<_, _>>()?;
    let seeds = games::seeds(manifest)?;
    let news = match manifest.get("files") {
        Some(_) => {
            let folder = folder.ok_or_else(|| needs_folder("bench propagation --news"))?;
            Some(load_news_pairs(folder).map_err(|error| error.to_string())?)
        }
        None => None,
    };
    let suite = |number: u64| {
        let suite = PropagationSuite::new(seed.wrapping_add(number), size)?;
        match &news {
            Some(found) => suite.with_news_pairs(found, size.pairs),
            None => Ok(suite),
        }
    };
    let suites: Vec<PropagationSuite> = (0..seeds).map(suite).collect::<Result<_, String>>()?;
    let mut results = Vec::new();
    for double in &doubles {
        let runs = suites.iter().filter_map(|suite| suite.run(*double, &mut || false).transpose());
        results.push(runs.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?);
    }
    let literal: Vec<_> = suites.iter().filter_map(PropagationSuite::literal_cost).collect();
    let mut repeated = vec![propagation::manifest(&suites, size, &doubles)];
    repeated.extend(propagation::report::lines(&results, &literal));
    Ok(compare(lines, &repeated, &[]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::games::adaptive::{SearchSettings, search, search_extended};
    use crate::games::extended::{ExtendedFigures, ExtendedGame, ExtendedSuite};
    use crate::games::figures::{DefenceFigures, Figures};
    use crate::games::report::extended;
    use crate::games::{self, GameSuite, ModelDouble};

    fn privacy_run() -> Vec<Value> {
        let noisy = privacy::PrivacyDefence::parse("judge/noisy", 4).unwrap();
        let defences = [privacy::PrivacyDefence::Oracle, noisy];
        let suite = PrivacySuite::new().unwrap();
        let results = defences.map(|defence| {
            let double = AnswerSource::Double;
            suite.run_defence_seeds(defence, (4, 2), double, &mut || false).unwrap().unwrap()
        });
        let manifest = privacy::manifest((4, 2), &defences, suite.tasks().len(), None);
        [manifest].into_iter().chain(privacy::report::lines(&results, 4, &[])).collect()
    }

    fn propagation_run() -> Vec<Value> {
        let size = Size { questions: 2, pairs: 3 };
        let suites = [4, 5].map(|seed| PropagationSuite::new(seed, size).unwrap());
        let run = |suite: &PropagationSuite| suite.run(CopyingErrors::Noisy, &mut || false).unwrap().unwrap();
        let results = suites.iter().map(run).collect();
        let literal: Vec<_> = suites.iter().filter_map(PropagationSuite::literal_cost).collect();
        let mut lines = vec![propagation::manifest(&suites, size, &[CopyingErrors::Noisy])];
        lines.extend(propagation::report::lines(&[results], &literal));
        lines
    }

    fn detectors_run() -> Vec<Value> {
        let policy = Arc::new(Policy::parse(detectors::POLICY).unwrap());
        let rows = detectors::rows().unwrap();
        let judged = detectors::JudgedRow::all(&policy, &rows, &mut || false).unwrap();
        let figures = detectors::DetectorFigures::of(&judged);
        [detectors::manifest(4, detectors::BUILTIN, detectors::POLICY)]
            .into_iter()
            .chain(detectors::report::lines(&judged, &figures, detectors::BUILTIN, 4))
            .collect()
    }

    fn agents_run() -> Vec<Value> {
        let (suite, guards) = (agents::TaskSuite::new().unwrap(), [Guard::Unguarded]);
        let rows = guards.map(|guard| suite.run_guard(guard, &mut || false).unwrap().unwrap());
        [agents::manifest(4, &guards)].into_iter().chain(agents::report::lines(&guards, &rows, 4)).collect()
    }

    fn game_run() -> Vec<Value> {
        let suite = GameSuite::generate(4, 1);
        let defence = games::Defence::None;
        let runner = games::Runner::new(&ModelDouble::Immune, None).unwrap();
        let mut found = suite.run_defence(&runner, defence, &mut || false).unwrap().unwrap();
        suite.compare_with_ideals(&mut found, &suite.ideal_meanings(&runner).unwrap());
        let leakage = suite.enumerate_leakage(&runner, defence).unwrap();
        let figures = DefenceFigures::of(defence, &found, leakage);
        let rows = games::report::figure_rows(&figures, Some(&figures), "immune");
        let manifest = games::manifest(&suite, &[defence], &ModelDouble::Immune);
        let mut lines = vec![games::with_search(manifest, 5, None)];
        lines.extend(found.iter().map(|execution| execution.to_json("immune", false)));
        let settings = SearchSettings { queries: 5, author: None };
        let searches = search(&suite, &runner, defence, settings, &mut || false).unwrap().unwrap();
        lines.extend(searches.iter().map(|search| search.to_json("immune")));
        lines.extend(rows.into_iter().map(Value::Object));
        lines
    }

    /// A model with the answers of a double, under another name and without attention blocking, as recorded answers are.
    #[derive(Debug)]
    struct NamedModel(ModelDouble);

    impl ChatModel for NamedModel {
        fn name(&self) -> &str {
            "qwen"
        }

        fn complete<'a>(
            &'a self,
            request: &'a flowgate_lm::chat::Request,
            listener: &'a mut dyn flowgate_lm::Listener,
        ) -> flowgate_lm::BoxFuture<'a, Result<flowgate_lm::chat::Completion, flowgate_lm::Error>> {
            self.0.complete(request, listener)
        }
    }

    /// A run of a local model, which has defences by attention blocking among the others.
    fn local_run() -> Vec<Value> {
        let suite = GameSuite::generate(4, 1);
        let (model, blocking) = (NamedModel(ModelDouble::Gullible), ModelDouble::Gullible);
        let runner = games::Runner::new(&model, None).unwrap().with_blocking(&blocking);
        let [observation, unauthorized] = games::Defence::by_attention();
        let ours = games::Defence::parse("labels/lowest-first").unwrap();
        let defences = [games::Defence::None, observation, ours, unauthorized];
        let (mut executions, mut figures) = (Vec::new(), Vec::new());
        for defence in defences {
            let found = suite.run_defence(&runner, defence, &mut || false).unwrap().unwrap();
            figures.push(DefenceFigures::of(defence, &found, Vec::new()));
            executions.extend(found);
        }
        let mut lines = vec![games::manifest(&suite, &defences, &model)];
        lines.extend(executions.iter().map(|execution| execution.to_json("qwen", false)));
        let rows = figures.iter().flat_map(|row| games::report::figure_rows(row, figures.first(), "qwen"));
        lines.extend(rows.map(Value::Object));
        lines.extend(games::report::comparison_rows(&executions, 4));
        lines.extend(games::report::paper_rows(&[("qwen", figures.as_slice())]));
        lines
    }

    /// The rows of a local model that can be repeated are, and those by attention blocking are reported as left out.
    #[test]
    fn a_run_with_attention_blocking_is_verified_as_far_as_it_can_be() {
        let run = local_run();
        let open = |_: &str| -> Result<Box<dyn ChatModel>, String> {
            Ok(Box::new(NamedModel(ModelDouble::Gullible)))
        };
        let settings = VerifySettings { answers: Some(&open), ..VerifySettings::default() };
        let result = verify(&run, settings).unwrap();
        assert_eq!(result.differences, Vec::<String>::new());
        // Two defences with six executions, four lines of figures, and two comparisons with ours.
        let left_out = 2 * (6 + 4 + 2);
        let expected = "lines of defences by attention blocking, whose answers are never recorded";
        assert_eq!(result.left_out, [format!("{left_out} {expected}")]);
        assert_eq!(result.repeated, run.len() - left_out);
        // A change of any other line is found.
        let mut changed = run;
        let of_ours = changed.iter().position(|line| line["defence"] == "labels/lowest-first").unwrap();
        changed[of_ours]["questions"] = json!(99);
        let found = verify(&changed, settings).unwrap().differences;
        assert_eq!(found, [format!("line {}: questions differs", of_ours + 1)]);
    }

    fn extended_run() -> Vec<Value> {
        let (suite, defence) = (ExtendedSuite { seed: 4, seeds: 2, instances: 1 }, games::Defence::Combined);
        let game = ExtendedGame::parse("memory/base64").unwrap();
        let runner = games::Runner::new(&ModelDouble::Gullible, None).unwrap();
        let found = suite.run(&runner, game, defence, &mut || false).unwrap().unwrap();
        let manifest = games::extended_manifest(&suite, &[game], &[defence], &ModelDouble::Gullible);
        let mut lines = vec![manifest];
        lines.extend(
            found.iter().map(|execution| extended::execution_row(game, execution, "gullible", false)),
        );
        let figures = ExtendedFigures { game, defence, figures: Figures::of(&found) };
        lines.push(Value::Object(extended::figure_row(&figures, "gullible")));
        lines
    }

    #[test]
    fn a_run_repeats_and_every_change_is_found() {
        for (run, skipped) in [(privacy_run(), 0), (game_run(), 3), (extended_run(), 0), (agents_run(), 0)] {
            let result = verify(&run, VerifySettings::default()).unwrap();
            assert_eq!((result.repeated, result.differences.as_slice()), (run.len() - skipped, &[][..]));
            assert_eq!(result.left_out.len(), usize::from(skipped > 0));
            let check = |change: &dyn Fn(&mut Vec<Value>), expected: &str| {
                let mut changed = run.clone();
                change(&mut changed);
                let found = verify(&changed, VerifySettings::default()).unwrap().differences;
                assert!(found.iter().any(|difference| difference.contains(expected)), "{found:?}");
            };
            // Another prompt or policy is another run; other code with the same lines has repeated it.
            check(&|run| drop(run[0]["sha256"]["policy"].take()), "line 1: sha256.policy differs");
            let mut elsewhere = run.clone();
            elsewhere[0]["sha256"]["code"] = json!("0");
            elsewhere[0]["version"] = json!("0.0.1");
            let found = verify(&elsewhere, VerifySettings::default()).unwrap();
            assert_eq!((found.repeated, found.differences.as_slice()), (result.repeated, &[][..]));
            assert_eq!(
                found.notes,
                ["line 1: other code has recorded the run: version, sha256.code differs"]
            );
            check(&|run| run[1]["task"] = json!("other"), "line 2: task differs");
            check(&|run| run.last_mut().unwrap()["questions"] = json!(99), "questions differs");
            check(&|run| drop(run.pop()), "lines to compare");
        }
    }

    /// Searches are repeated on demand, and every change of one is found, as is another number of attempts.
    #[test]
    fn searches_are_repeated_on_demand() {
        let mut extended = extended_run();
        let (suite, defence) = (ExtendedSuite { seed: 4, seeds: 2, instances: 1 }, games::Defence::Combined);
        let runner = games::Runner::new(&ModelDouble::Gullible, None).unwrap();
        let (game, settings) =
            (ExtendedGame::parse("memory/base64").unwrap(), SearchSettings { queries: 3, author: None });
        let found = search_extended(&suite, game, &runner, defence, settings, &mut || false).unwrap();
        let found: Vec<Value> = found.unwrap().iter().map(|search| search.to_json("gullible")).collect();
        // The searches follow the executions of both seeds.
        extended.splice(5..5, found);
        extended[0] = games::with_search(extended[0].take(), 3, None);
        let settings = VerifySettings { repeats_searches: true, ..VerifySettings::default() };
        for run in [game_run(), extended] {
            let result = verify(&run, settings).unwrap();
            assert_eq!((result.repeated, result.differences), (run.len(), Vec::new()));
            assert_eq!(result.left_out, Vec::<String>::new());
            let at = run.iter().position(|line| line["type"] == "search").unwrap();
            let check = |change: &dyn Fn(&mut Vec<Value>), expected: &str| {
                let mut changed = run.clone();
                change(&mut changed);
                let found = verify(&changed, settings).unwrap().differences;
                assert!(found.iter().any(|difference| difference.contains(expected)), "{found:?}");
            };
            check(&|run| run[at]["questions"] = json!(99), "questions differs");
            check(&|run| run[at]["best_attempts"][0]["attack"] = json!("other"), "best_attempts differs");
            check(&|run| drop(run.remove(at)), "lines to compare");
            let refused = |change: &dyn Fn(&mut Value), expected: &str| {
                let mut changed = run.clone();
                change(&mut changed[0]);
                let error = verify(&changed, settings).unwrap_err();
                assert!(error.contains(expected), "{error}");
            };
            refused(
                &|manifest| manifest["search"]["queries"] = json!(0),
                "`queries` is not from 1 to 1000000",
            );
            refused(
                &|manifest| manifest["search"]["queries"] = json!(10_000_000),
                "`queries` is not from 1 to",
            );
            refused(
                &|manifest| manifest["search"]["attacker"] = json!("qwen"),
                "the model `qwen` has driven the attacker",
            );
            let drop_search = |manifest: &mut Value| drop(manifest.as_object_mut().unwrap().remove("search"));
            refused(&drop_search, "the run records no search for attacks");
        }
        // The attempts of a run are known without repeating them, and another attacker is another run.
        let mut changed = game_run();
        changed[0]["search"]["prompts_sha256"] = json!("0");
        let found = verify(&changed, VerifySettings::default()).unwrap().differences;
        assert_eq!(found, ["line 1: search.prompts_sha256 differs"]);
    }

    #[test]
    fn a_run_of_detectors_repeats() {
        let mut run = detectors_run();
        let result = verify(&run, VerifySettings::default()).unwrap();
        assert_eq!((result.repeated, result.differences), (run.len(), Vec::new()));
        run[2]["detectors"]["injection"]["score"] = json!(0.123);
        assert!(
            verify(&run, VerifySettings::default()).unwrap().differences[0]
                .contains("line 3: detectors.injection differs")
        );
        run[0]["policy"] = json!("mine.flow");
        assert!(
            verify(&run, VerifySettings::default())
                .unwrap_err()
                .contains("`mine.flow`, which is a file of the user")
        );
    }

    #[test]
    fn a_run_of_propagation_repeats() {
        let mut run = propagation_run();
        let result = verify(&run, VerifySettings::default()).unwrap();
        assert_eq!((result.repeated, result.differences), (run.len(), Vec::new()));
        run[1]["exact_of"] = json!(99);
        assert!(
            verify(&run, VerifySettings::default()).unwrap().differences[0]
                .contains("line 2: exact_of differs")
        );
        run[0]["seeds"] = json!(0);
        let error = verify(&run, VerifySettings::default()).unwrap_err();
        assert!(error.contains("`seeds` is not from 1 to 1000"), "{error}");
        run[0]["model"] = json!("Qwen3-0.6B");
        assert!(
            verify(&run, VerifySettings::default())
                .unwrap_err()
                .contains("the run of the model `Qwen3-0.6B` cannot be repeated")
        );
    }

    #[test]
    fn what_is_no_run_is_refused_with_advice() {
        let check = |line: Value, expected: &str| {
            let error = verify(&[line], VerifySettings::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        assert!(verify(&[], VerifySettings::default()).unwrap_err().contains("line 1 is not the manifest"));
        check(json!({"type": "task"}), "line 1 is not the manifest");
        check(json!({"type": "manifest", "suite": "chess"}), "the suite `chess`");
        check(json!({"type": "manifest", "suite": "rtbas-privacy"}), "no number `seed`");
        let mut privacy = privacy_run()[0].clone();
        privacy["defences"] = json!(["prayer"]);
        check(privacy, "there is no defence `prayer`");
        let mut game = game_run()[0].clone();
        game["attack_texts"] = json!(3);
        check(game.clone(), "the run has texts of a folder");
        game["attack_texts"] = json!(0);
        game["seeds"] = json!(0);
        check(game.clone(), "`seeds` is not from 1 to 1000");
        game["seeds"] = json!(1);
        game["model"] = json!("qwen");
        check(game.clone(), "the run of the model `qwen` cannot be repeated");
        game["instances"] = json!(1_000_000_000);
        check(game, "`instances` is not from 1 to 10000");
        let mut extended = extended_run()[0].clone();
        extended["seeds"] = json!(1001);
        check(extended, "`seeds` is not from 1 to 1000");
        let mut propagation = json!({"type": "manifest", "suite": "permissive-propagation", "seed": 1, "questions": 2, "pairs": 2});
        check(propagation.clone(), "`pairs` is not from 3 to 1000");
        propagation["pairs"] = json!(3);
        propagation["doubles"] = json!(["oracle"]);
        check(propagation, "there is no double `oracle`");
    }
}
