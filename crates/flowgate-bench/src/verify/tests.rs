//! Tests of the verification: runs of every suite can be repeated, every change in a run is found, and a file that is
//! not a run is refused.

use serde_json::json;

use super::*;
use crate::games::adaptive::{SearchSettings, search, search_extended};
use crate::games::extended::{ExtendedFigures, ExtendedGame, ExtendedSuite};
use crate::games::figures::{DefenceFigures, Figures};
use crate::games::report::extended;
use crate::games::{self, GameSuite, ModelDouble};

/// Returns the lines of a run of the privacy suite with two seeds: the oracle, and a judge that draws random errors.
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

/// Returns the lines of a small run of the propagation suite with the noisy double and two seeds.
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

/// Returns the lines of a run of the detectors with the built-in policy.
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

/// Returns the lines of a run of the agents without a guard.
fn agents_run() -> Vec<Value> {
    let (suite, guards) = (agents::TaskSuite::new().unwrap(), [Guard::Unguarded]);
    let rows = guards.map(|guard| suite.run_guard(guard, &mut || false).unwrap().unwrap());
    [agents::manifest(4, &guards)].into_iter().chain(agents::report::lines(&guards, &rows, 4)).collect()
}

/// Returns the lines of a run of the games with the immune double, without a defence, and with a search of five
/// attempts for each task.
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
    let open =
        |_: &str| -> Result<Box<dyn ChatModel>, String> { Ok(Box::new(NamedModel(ModelDouble::Gullible))) };
    let settings = VerifySettings { answers: Some(&open), ..VerifySettings::default() };
    let result = verify(&run, settings).unwrap();
    assert_eq!(result.differences, Vec::<String>::new());
    // Two defences with six executions, four lines of figures, and two comparisons with ours.
    let left_out = 2 * (6 + 4 + 2);
    let expected =
        "lines of defences by attention blocking, whose answers are never recorded; `--local` repeats them";
    assert_eq!(result.left_out, [format!("{left_out} {expected}")]);
    assert_eq!(result.repeated, run.len() - left_out);
    // A change of any other line is found.
    let mut changed = run;
    let of_ours = changed.iter().position(|line| line["defence"] == "labels/lowest-first").unwrap();
    changed[of_ours]["questions"] = json!(99);
    let found = verify(&changed, settings).unwrap().differences;
    assert_eq!(found, [format!("line {}: questions differs", of_ours + 1)]);
}

/// Returns the lines of a run of one game beyond AgentSecBench with the gullible double and two seeds.
fn extended_run() -> Vec<Value> {
    let (suite, defence) = (ExtendedSuite { seed: 4, seeds: 2, instances: 1 }, games::Defence::Combined);
    let game = ExtendedGame::parse("memory/base64").unwrap();
    let runner = games::Runner::new(&ModelDouble::Gullible, None).unwrap();
    let found = suite.run(&runner, game, defence, &mut || false).unwrap().unwrap();
    let manifest = games::extended_manifest(&suite, &[game], &[defence], &ModelDouble::Gullible);
    let mut lines = vec![manifest];
    lines.extend(found.iter().map(|execution| extended::execution_row(game, execution, "gullible", false)));
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
        assert_eq!(found.notes, ["line 1: other code has recorded the run: version, sha256.code differs"]);
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
        refused(&|manifest| manifest["search"]["queries"] = json!(0), "`queries` is not from 1 to 1000000");
        refused(&|manifest| manifest["search"]["queries"] = json!(10_000_000), "`queries` is not from 1 to");
        refused(
            &|manifest| manifest["search"]["attacker"] = json!("qwen"),
            "the model `qwen` drove the attacker",
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
            .contains("the policy file `mine.flow`, and only runs with the built-in policy")
    );
}

#[test]
fn a_run_of_propagation_repeats() {
    let mut run = propagation_run();
    let result = verify(&run, VerifySettings::default()).unwrap();
    assert_eq!((result.repeated, result.differences), (run.len(), Vec::new()));
    run[1]["exact_of"] = json!(99);
    assert!(
        verify(&run, VerifySettings::default()).unwrap().differences[0].contains("line 2: exact_of differs")
    );
    run[0]["seeds"] = json!(0);
    let error = verify(&run, VerifySettings::default()).unwrap_err();
    assert!(error.contains("`seeds` is not from 1 to 1000"), "{error}");
    run[0]["seeds"] = json!(2);
    run[0]["model"] = json!("Qwen3-0.6B");
    run[0]["batch"] = json!(0);
    let error = verify(&run, VerifySettings::default()).unwrap_err();
    assert!(error.contains("`batch` is not from 1 to 1000"), "{error}");
    run[0]["batch"] = json!(4);
    let error = verify(&run, VerifySettings::default()).unwrap_err();
    assert!(
        error.contains("the run of the model `Qwen3-0.6B` cannot be repeated without this model; "),
        "{error}"
    );
}

/// A program with one local model, which it does not evaluate: it returns the lines that a run with it would have.
struct LocalDouble;

/// The model of [`LocalDouble`].
const LOCAL: &str = "small 0123";

impl LocalModels for LocalDouble {
    fn attention_reader(
        &self,
        screener: &Value,
    ) -> Result<Option<(flowgate_guard::screener::attention::AttentionReader, Value)>, String> {
        let is_at_hand = text(screener, "model") == LOCAL;
        Ok(is_at_hand.then(|| (privacy::unread(), json!({"model": LOCAL, "threshold": 0.0}))))
    }

    fn screener_lines(&self, run: ScreenerRun<'_>) -> Result<Option<Vec<Value>>, String> {
        let line = json!({"type": "figures", "area": 0.5, "limit": run.prompt_limit});
        let manifest = crate::saliency::manifest(run.seed, run.cases, run.model);
        Ok((run.model == LOCAL).then(|| vec![manifest, line]))
    }

    fn propagation_lines(
        &self,
        run: PropagationRun<'_>,
        suites: Vec<PropagationSuite>,
    ) -> Result<Option<Vec<Value>>, String> {
        let line = json!({"type": "labels", "exact_of": 3});
        let manifest = propagation::model_manifest(&suites, run.size, run.model, run.batch);
        Ok((run.model == LOCAL).then(|| vec![manifest, line]))
    }

    fn blocking_model(&self, model: &str) -> Result<Option<Arc<dyn flowgate_lm::BlockingModel>>, String> {
        Ok((model == "qwen").then(|| Arc::new(ModelDouble::Gullible) as _))
    }
}

fn with_local() -> VerifySettings<'static> {
    VerifySettings { local: Some(&LocalDouble), ..VerifySettings::default() }
}

/// A run of the defence `attention` and of another one.
fn attention_run() -> Vec<Value> {
    let defences = [privacy::PrivacyDefence::Attention, privacy::PrivacyDefence::Oracle];
    let suite = PrivacySuite::new().unwrap().with_attention(privacy::unread());
    let results = defences.map(|defence| {
        suite.run_defence_seeds(defence, (4, 1), AnswerSource::Double, &mut || false).unwrap().unwrap()
    });
    let manifest = privacy::manifest((4, 1), &defences, suite.tasks().len(), None);
    let manifest = privacy::with_screener(manifest, json!({"model": LOCAL, "threshold": 0.0}));
    [manifest].into_iter().chain(privacy::report::lines(&results, 4, &[])).collect()
}

/// The lines of the defence `attention` are repeated if their model is at hand. Otherwise they are left out, and then
/// they must be of the code of this program: lines of an earlier screener do not pass as verified.
#[test]
fn the_attention_is_repeated_or_is_of_this_code() {
    let run = attention_run();
    let result = verify(&run, with_local()).unwrap();
    assert_eq!((result.repeated, result.differences, result.left_out), (run.len(), vec![], vec![]));
    let left_out = verify(&run, VerifySettings::default()).unwrap();
    assert_eq!(left_out.differences, Vec::<String>::new());
    assert!(left_out.left_out[0].contains("lines of the defence `attention`"), "{:?}", left_out.left_out);
    assert!(left_out.repeated < run.len());
    // A change of a line of the defence is found only if it is repeated.
    let mut changed = run.clone();
    let at = changed.iter().position(|line| line["defence"] == "attention").unwrap();
    changed[at]["false_negatives_count"] = json!(36);
    let found = verify(&changed, with_local()).unwrap().differences;
    assert!(found[0].starts_with(&format!("line {}: ", at + 1)), "{found:?}");
    assert!(verify(&changed, VerifySettings::default()).unwrap().differences.is_empty());
    // Other code of the screener is a difference if its lines are left out, and none if this code repeats them.
    for other in [json!("0123"), Value::Null] {
        let mut stale = run.clone();
        stale[0]["sha256"]["screener"] = other;
        let found = verify(&stale, VerifySettings::default()).unwrap();
        assert_eq!(found.differences, [STALE_ATTENTION]);
        assert_eq!(found.notes, ["line 1: other code has recorded the run: sha256.screener differs"]);
        assert_eq!(verify(&stale, with_local()).unwrap().differences, Vec::<String>::new());
    }
    // Another model is not at hand, and another network is another run.
    let mut other = run;
    other[0]["screener"]["model"] = json!("large");
    assert!(verify(&other, with_local()).unwrap().left_out[0].contains("the defence `attention`"));
    other[0]["screener"] = json!({"model": LOCAL, "threshold": 0.5});
    assert_eq!(verify(&other, with_local()).unwrap().differences, ["line 1: screener.threshold differs"]);
}

#[test]
fn runs_of_a_local_model_are_repeated_with_it() {
    let size = Size { questions: 2, pairs: 3 };
    let suites = [4, 5].map(|seed| PropagationSuite::new(seed, size).unwrap());
    let propagation =
        vec![propagation::model_manifest(&suites, size, LOCAL, 4), json!({"type": "labels", "exact_of": 3})];
    let screeners =
        vec![crate::saliency::manifest(4, 2, LOCAL), json!({"type": "figures", "area": 0.5, "limit": null})];
    for run in [propagation, screeners.clone()] {
        let result = verify(&run, with_local()).unwrap();
        assert_eq!((result.repeated, result.differences), (2, vec![]));
        let mut changed = run.clone();
        changed[1]["type"] = json!("other");
        assert_eq!(verify(&changed, with_local()).unwrap().differences, ["line 2: type differs"]);
        changed[0]["model"] = json!("large");
        let expected = "the run of the model `large` cannot be repeated without this model; ";
        let error = verify(&changed, with_local()).unwrap_err();
        assert!(error.contains(expected) && error.contains("GGUF file, name it with `--local`"), "{error}");
        let error = verify(&run, VerifySettings::default()).unwrap_err();
        assert!(error.contains("use a program that was built with the feature `local`"), "{error}");
    }
    // The number of cases bounds the time, and a run over recorded calls has the limit of its prompts.
    let mut changed = screeners.clone();
    changed[0]["cases"] = json!(10_001);
    let error = verify(&changed, with_local()).unwrap_err();
    assert!(error.contains("`cases` is not from 1 to 10000"), "{error}");
    let mut traces = screeners;
    traces[0]["suite"] = json!("attention-screeners/traces");
    assert!(verify(&traces, with_local()).unwrap_err().contains("no number `prompt_limit`"));
    traces[0]["prompt_limit"] = json!(4000);
    let found = verify(&traces, with_local()).unwrap().differences;
    assert!(found.contains(&"line 2: limit differs".to_owned()), "{found:?}");
}

/// With its model at hand, the defences by attention blocking are repeated as well.
#[test]
fn attention_blocking_is_repeated_with_its_model() {
    let run = local_run();
    let open =
        |_: &str| -> Result<Box<dyn ChatModel>, String> { Ok(Box::new(NamedModel(ModelDouble::Gullible))) };
    let settings = VerifySettings { answers: Some(&open), ..with_local() };
    let result = verify(&run, settings).unwrap();
    assert_eq!((result.repeated, result.differences, result.left_out), (run.len(), vec![], vec![]));
    let mut changed = run;
    let blocked = changed.iter().position(|line| line["defence"] == "attention/observation").unwrap();
    changed[blocked]["questions"] = json!(99);
    let found = verify(&changed, settings).unwrap().differences;
    assert_eq!(found, [format!("line {}: questions differs", blocked + 1)]);
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
    let mut propagation =
        json!({"type": "manifest", "suite": "permissive-propagation", "seed": 1, "questions": 2, "pairs": 2});
    check(propagation.clone(), "`pairs` is not from 3 to 1000");
    propagation["pairs"] = json!(3);
    propagation["doubles"] = json!(["oracle"]);
    check(propagation, "there is no double `oracle`");
}
