//! Verifies a recorded run: computes its manifest again, repeats the run, and compares every line. `flowgate bench verify` calls [`verify`].
//!
//! A run of a double can be repeated from its manifest. A run of a real model is refused, because the model may answer differently the next time. A
//! search for attacks cannot be repeated either, because the manifest does not record its number of queries: its lines are left out of the
//! comparison, and [`verify`] reports that.

use std::sync::Arc;

use flowgate::policy::Policy;
use serde_json::Value;

use crate::agents::{self, Guard};
use crate::detectors;
use crate::games::extended::{ExtendedFigures, ExtendedGame, ExtendedSuite};
use crate::games::figures::{DefenceFigures, Figures};
use crate::games::report::extended;
use crate::games::{self, GameSuite, ModelDouble, Variant};
use crate::policy_errors;
use crate::privacy::{self, PrivacySuite};
use crate::propagation::{self, CopyingErrors, PropagationSuite, Size};

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of recorded lines that equal those of the repeated run.
    pub repeated: usize,
    /// A text for each difference, such as `line 3: questions differs`. The run is confirmed if there is none.
    pub differences: Vec<String>,
    /// A text for each kind of line that was not compared, with the number of these lines.
    pub left_out: Vec<String>,
}

/// Verifies the lines of a run in the format jsonl, of which the first is the manifest. A difference between the
/// recorded and the repeated run is part of the result and no error.
///
/// # Errors
/// If the lines are no run of a suite, the run is one of a real model or of a public benchmark, the manifest names
/// something that this program does not have, or the repeated run fails.
pub fn verify(lines: &[Value]) -> Result<Verification, String> {
    let manifest = lines.first().filter(|line| text(line, "type") == "manifest");
    let manifest = manifest.ok_or(
        "line 1 is not the manifest of a run; give a file that `flowgate bench` wrote with `--format jsonl`",
    )?;
    match text(manifest, "suite") {
        "rtbas-privacy" => verify_privacy(manifest, lines),
        "agentsecbench-games" => verify_games(manifest, lines),
        "agentsecbench-extended" => verify_extended(manifest, lines),
        "detectors" => verify_detectors(manifest, lines),
        "agents" => verify_agents(manifest, lines),
        "permissive-propagation" => verify_propagation(manifest, lines),
        corpus if corpus.starts_with("corpus-") => {
            Err("line 1: a run of `flowgate bench corpus` needs its folder; run the command again, and compare the files".to_owned())
        }
        other => Err(format!(
            "line 1 names the suite `{}`, whose runs this version of Flowgate cannot repeat; run its command again, and compare the files",
            other.escape_debug()
        )),
    }
}

/// Repeats a run of the privacy suite with the seed and the defences that the manifest names, and compares the lines with the recorded ones.
fn verify_privacy(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    if text(manifest, "model") != privacy::DOUBLE {
        return Err(not_repeatable(text(manifest, "model")));
    }
    let named = string_list(manifest, "defences")?;
    let defences: Result<Vec<_>, _> =
        named.iter().map(|name| privacy::PrivacyDefence::parse(name, seed)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    let suite = PrivacySuite::new().map_err(|error| error.to_string())?;
    let mut results = Vec::new();
    for defence in &defences {
        // Nothing interrupts the repeated run, so each defence has a result.
        let mut is_cancelled = || false;
        results.extend(suite.run_defence(*defence, &mut is_cancelled).map_err(|error| error.to_string())?);
    }
    let mut repeated = vec![privacy::manifest(seed, &defences, suite.tasks().len(), None)];
    repeated.extend(privacy::report::lines(&results, seed));
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the tasks of agents with the methods that the manifest names, and compares the lines with the recorded ones.
fn verify_agents(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let guards = string_list(manifest, "methods")?;
    let guards: Result<Vec<Guard>, String> = guards.iter().map(|name| Guard::parse(name)).collect();
    let guards = guards.map_err(|error| format!("line 1: {error}"))?;
    let suite = agents::TaskSuite::new()?;
    let mut rows = Vec::new();
    for guard in &guards {
        rows.extend(suite.run_guard(*guard, &mut || false)?);
    }
    let mut repeated = vec![agents::manifest(seed, &guards)];
    repeated.extend(agents::report::lines(&guards, &rows, seed));
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

/// Repeats a run of the propagation suite, and compares the lines with the recorded ones. The manifest names the seed,
/// the size and the doubles.
fn verify_propagation(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
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
    // The first question is only an example, and two pairs are fewer articles than a context holds. The upper limit bounds the time that a
    // manipulated file can cost.
    let size = Size { questions: count("questions", 2)?, pairs: count("pairs", 3)? };
    let double = |name: &String| {
        let found = CopyingErrors::parse(name);
        found.ok_or_else(|| {
            format!("line 1: there is no double `{}`; use a later version of Flowgate", name.escape_debug())
        })
    };
    let doubles: Vec<CopyingErrors> =
        string_list(manifest, "doubles")?.iter().map(double).collect::<Result<_, _>>()?;
    let suite = PropagationSuite::new(seed, size)?;
    let mut results = Vec::new();
    for double in &doubles {
        results.extend(suite.run(*double, &mut || false).map_err(|error| error.to_string())?);
    }
    let mut repeated = vec![propagation::manifest(&suite, size, &doubles)];
    repeated.extend(propagation::report::lines(&results, suite.literal_cost()));
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the games, and compares the lines with the recorded ones. The manifest names the seed, the number
/// of pairs, the variant and the defences. Lines of searches for attacks are left out.
fn verify_games(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let instances = instances(manifest)?;
    let variant = Variant::parse(text(manifest, "variant")).map_err(|error| format!("line 1: {error}"))?;
    let named = string_list(manifest, "defences")?;
    let defences: Result<Vec<_>, _> = named.iter().map(|name| games::Defence::parse(name)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    if number(manifest, "background_texts")?.saturating_add(number(manifest, "attack_texts")?) > 0 {
        return Err(
            "line 1: the run has texts of a folder; run `flowgate bench games` again, and compare the files"
                .to_owned(),
        );
    }
    let seeds = number(manifest, "seeds")?;
    if !(1..=1000).contains(&seeds) {
        return Err(
            "line 1: `seeds` is not from 1 to 1000; give a file that `flowgate bench games` wrote".to_owned()
        );
    }
    let suite = GameSuite::generate_seeds(seed, seeds, instances, variant);
    let name = text(manifest, "model");
    let double = ModelDouble::ALL.into_iter().find(|double| flowgate_lm::ChatModel::name(double) == name);
    let Some(double) = double else {
        return Err(not_repeatable(name));
    };
    if let Some(defence) = defences.iter().find(|defence| defence.needs_tool_choice()) {
        return Err(needs_model(*defence));
    }
    let runner = games::Runner::new(&double, None).map_err(|error| error.to_string())?.with_blocking(&double);
    // Only a run that was recorded with `--content` has the texts of the answers.
    let has_content = lines.iter().any(|line| line.get("response").is_some());
    let mut repeated = vec![games::manifest(&suite, &defences, &double)];
    let (mut executions, mut figures) = (Vec::new(), Vec::new());
    let ideals = suite.ideal_meanings(&runner).map_err(|error| error.to_string())?;
    for defence in &defences {
        let failed = |error: games::ExecutionError| error.to_string();
        let mut found =
            suite.run_defence(&runner, *defence, &mut || false).map_err(failed)?.unwrap_or_default();
        suite.compare_with_ideals(&mut found, &ideals);
        let leakage = suite.enumerate_leakage(&runner, *defence).map_err(failed)?;
        figures.push(DefenceFigures::of(*defence, &found, leakage));
        executions.extend(found);
    }
    repeated.extend(executions.iter().map(|execution| execution.to_json(name, has_content)));
    let undefended = figures.iter().find(|figures| figures.defence == games::Defence::None);
    let rows = figures.iter().flat_map(|figures| games::report::figure_rows(figures, undefended, name));
    repeated.extend(rows.map(Value::Object));
    repeated.extend(games::report::comparison_rows(&executions, seed));
    Ok(compare(lines, &repeated, &["search"]))
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

/// Returns the error for a run of a real model.
fn not_repeatable(model: &str) -> String {
    format!(
        "line 1: the run of the model `{}` cannot be repeated; give a run of a double",
        model.escape_debug()
    )
}

/// Returns the number of pairs of each game that the manifest names. A number outside 1 to 10000 is an error: the
/// repeated run of a manipulated file could otherwise take any amount of time.
fn instances(manifest: &Value) -> Result<usize, String> {
    let instances = usize::try_from(number(manifest, "instances")?).unwrap_or(usize::MAX);
    let is_valid = (1..=10_000).contains(&instances);
    is_valid.then_some(instances).ok_or_else(|| {
        "line 1: `instances` is not from 1 to 10000; give a file that `flowgate bench games` wrote".to_owned()
    })
}

/// Repeats a run of the games beyond AgentSecBench, and compares the lines with the recorded ones. The manifest names
/// the seed, the number of pairs, the games and the defences. Lines of searches for attacks are left out.
fn verify_extended(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let suite = ExtendedSuite { seed: number(manifest, "seed")?, instances: instances(manifest)? };
    let defences: Result<Vec<_>, _> =
        string_list(manifest, "defences")?.iter().map(|name| games::Defence::parse(name)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    let named: Result<Vec<_>, _> =
        string_list(manifest, "games")?.iter().map(|name| ExtendedGame::parse(name)).collect();
    let named = named.map_err(|error| format!("line 1: {error}"))?;
    let name = text(manifest, "model");
    let double = ModelDouble::ALL.into_iter().find(|double| flowgate_lm::ChatModel::name(double) == name);
    let double = double.ok_or_else(|| not_repeatable(name))?;
    if let Some(defence) = defences.iter().find(|defence| defence.needs_tool_choice()) {
        return Err(needs_model(*defence));
    }
    let runner = games::Runner::new(&double, None).map_err(|error| error.to_string())?;
    // Only a run that was recorded with `--content` has the texts of the answers.
    let has_content = lines.iter().any(|line| line.get("response").is_some());
    let mut repeated = vec![games::extended_manifest(&suite, &named, &defences, &double)];
    let (mut figures, mut executions) = (Vec::new(), Vec::new());
    for game in &named {
        for defence in &defences {
            let found =
                suite.run(&runner, *game, *defence, &mut || false).map_err(|error| error.to_string())?;
            let found = found.unwrap_or_default();
            let rows =
                found.iter().map(|execution| extended::execution_row(*game, execution, name, has_content));
            repeated.extend(rows);
            figures.push(ExtendedFigures { game: *game, defence: *defence, figures: Figures::of(&found) });
            executions.extend(found.into_iter().map(|execution| (*game, execution)));
        }
    }
    repeated.extend(figures.iter().map(|row| Value::Object(extended::figure_row(row, name))));
    repeated.extend(extended::comparison_rows(&executions, suite.seed));
    Ok(compare(lines, &repeated, &["search"]))
}

/// Compares the recorded lines with those of the repeated run, in order. Recorded lines whose `type` is in `skipped` are left out and counted. A
/// difference names the line by its number in the file. A different number of lines is a difference of its own.
fn compare(recorded: &[Value], repeated: &[Value], skipped: &[&str]) -> Verification {
    let mut result = Verification::default();
    let is_skipped = |line: &Value| skipped.contains(&text(line, "type"));
    let left_out = recorded.iter().filter(|line| is_skipped(line)).count();
    if left_out > 0 {
        result.left_out.push(format!("{left_out} lines of searches"));
    }
    let compared = recorded.iter().enumerate().filter(|(_, line)| !is_skipped(line));
    let compared: Vec<(usize, &Value)> = compared.collect();
    for ((index, line), repeated_line) in compared.iter().zip(repeated) {
        if *line == repeated_line {
            result.repeated += 1;
        } else {
            result.differences.push(format!("line {}: {}", index + 1, difference(line, repeated_line)));
        }
    }
    if compared.len() != repeated.len() {
        let (has, again) = (compared.len(), repeated.len());
        result.differences.push(format!("the file has {has} lines to compare, the repeated run has {again}"));
    }
    result
}

/// Returns a phrase that names the fields in which two lines differ, each once, such as `questions, sha256.code
/// differs`. A field of an object within a line is named `OBJECT.FIELD`. The phrase omits the values, since they can be
/// long.
fn difference(recorded: &Value, repeated: &Value) -> String {
    let (Some(recorded), Some(repeated)) = (recorded.as_object(), repeated.as_object()) else {
        return "the line is not a JSON object".to_owned();
    };
    let mut fields: Vec<String> = Vec::new();
    for name in recorded.keys().chain(repeated.keys()) {
        let (one, other) = (recorded.get(name), repeated.get(name));
        // Two objects are compared field by field, other values as a whole.
        let objects = one.and_then(Value::as_object).zip(other.and_then(Value::as_object));
        let found: Vec<String> = match objects {
            _ if one == other => Vec::new(),
            Some((one, other)) => {
                let changed = one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key));
                changed.map(|key| format!("{name}.{key}")).collect()
            }
            None => vec![name.clone()],
        };
        for field in found {
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
    }
    let fields: Vec<String> = fields.iter().map(|field| field.escape_debug().to_string()).collect();
    format!("{} differs", fields.join(", "))
}

/// Returns a field of a line as text; empty if it is absent or no text.
fn text<'v>(line: &'v Value, name: &str) -> &'v str {
    line.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the whole number `name` of the manifest, 0 or more; an error with advice if there is no such number.
fn number(manifest: &Value, name: &str) -> Result<u64, String> {
    let found = manifest.get(name).and_then(Value::as_u64);
    found.ok_or_else(|| format!("line 1 has no number `{name}`; give a file that `flowgate bench` wrote"))
}

/// Returns the strings in the list `name` of the manifest; an error with advice if there is no such list.
fn string_list(manifest: &Value, name: &str) -> Result<Vec<String>, String> {
    let found = manifest.get(name).and_then(Value::as_array);
    let texts = found.and_then(|found| found.iter().map(|name| name.as_str().map(str::to_owned)).collect());
    texts.ok_or_else(|| {
        format!("line 1 has no list `{name}` of names; give a file that `flowgate bench` wrote")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn privacy_run() -> Vec<Value> {
        let defences = [privacy::PrivacyDefence::Oracle];
        let suite = PrivacySuite::new().unwrap();
        let results = defences.map(|defence| suite.run_defence(defence, &mut || false).unwrap().unwrap());
        let manifest = privacy::manifest(4, &defences, suite.tasks().len(), None);
        [manifest].into_iter().chain(privacy::report::lines(&results, 4)).collect()
    }

    fn propagation_run() -> Vec<Value> {
        let size = Size { questions: 2, pairs: 3 };
        let suite = PropagationSuite::new(4, size).unwrap();
        let results = suite.run(CopyingErrors::Noisy, &mut || false).unwrap().unwrap();
        let mut lines = vec![propagation::manifest(&suite, size, &[CopyingErrors::Noisy])];
        lines.extend(propagation::report::lines(&[results], suite.literal_cost()));
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
        let mut lines = vec![games::manifest(&suite, &[defence], &ModelDouble::Immune)];
        lines.extend(found.iter().map(|execution| execution.to_json("immune", false)));
        lines.push(json!({"type": "search"}));
        lines.extend(rows.into_iter().map(Value::Object));
        lines
    }

    fn extended_run() -> Vec<Value> {
        let (suite, defence) = (ExtendedSuite { seed: 4, instances: 1 }, games::Defence::Combined);
        let game = ExtendedGame::parse("memory/base64").unwrap();
        let runner = games::Runner::new(&ModelDouble::Gullible, None).unwrap();
        let found = suite.run(&runner, game, defence, &mut || false).unwrap().unwrap();
        let mut lines = vec![games::extended_manifest(&suite, &[game], &[defence], &ModelDouble::Gullible)];
        lines.extend(
            found.iter().map(|execution| extended::execution_row(game, execution, "gullible", false)),
        );
        let figures = ExtendedFigures { game, defence, figures: Figures::of(&found) };
        lines.push(Value::Object(extended::figure_row(&figures, "gullible")));
        lines
    }

    #[test]
    fn a_run_repeats_and_every_change_is_found() {
        for (run, skipped) in [(privacy_run(), 0), (game_run(), 1), (extended_run(), 0), (agents_run(), 0)] {
            let result = verify(&run).unwrap();
            assert_eq!((result.repeated, result.differences.as_slice()), (run.len() - skipped, &[][..]));
            assert_eq!(result.left_out.len(), usize::from(skipped > 0));
            let check = |change: &dyn Fn(&mut Vec<Value>), expected: &str| {
                let mut changed = run.clone();
                change(&mut changed);
                let found = verify(&changed).unwrap().differences;
                assert!(found.iter().any(|difference| difference.contains(expected)), "{found:?}");
            };
            check(&|run| run[0]["sha256"]["code"] = json!("0"), "line 1: sha256.code differs");
            check(&|run| run[1]["task"] = json!("other"), "line 2: task differs");
            check(&|run| run.last_mut().unwrap()["questions"] = json!(99), "questions differs");
            check(&|run| drop(run.pop()), "lines to compare");
        }
    }

    #[test]
    fn a_run_of_detectors_repeats() {
        let mut run = detectors_run();
        let result = verify(&run).unwrap();
        assert_eq!((result.repeated, result.differences), (run.len(), Vec::new()));
        run[2]["detectors"]["injection"]["score"] = json!(0.123);
        assert!(verify(&run).unwrap().differences[0].contains("line 3: detectors.injection differs"));
        run[0]["policy"] = json!("mine.flow");
        assert!(verify(&run).unwrap_err().contains("`mine.flow`, which is a file of the user"));
    }

    #[test]
    fn a_run_of_propagation_repeats() {
        let mut run = propagation_run();
        let result = verify(&run).unwrap();
        assert_eq!((result.repeated, result.differences), (run.len(), Vec::new()));
        run[1]["exact_of"] = json!(99);
        assert!(verify(&run).unwrap().differences[0].contains("line 2: exact_of differs"));
        run[0]["model"] = json!("Qwen3-0.6B");
        assert!(verify(&run).unwrap_err().contains("the run of the model `Qwen3-0.6B` cannot be repeated"));
    }

    #[test]
    fn what_is_no_run_is_refused_with_advice() {
        let check = |line: Value, expected: &str| {
            let error = verify(&[line]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        assert!(verify(&[]).unwrap_err().contains("line 1 is not the manifest"));
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
        let mut propagation = json!({"type": "manifest", "suite": "permissive-propagation", "seed": 1, "questions": 2, "pairs": 2});
        check(propagation.clone(), "`pairs` is not from 3 to 1000");
        propagation["pairs"] = json!(3);
        propagation["doubles"] = json!(["oracle"]);
        check(propagation, "there is no double `oracle`");
    }
}
