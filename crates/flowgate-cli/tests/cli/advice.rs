//! Tests that advice does no harm: the suggestions of `flowgate explain` for many false questions are applied and
//! replayed over recorded attacks.
//!
//! A false question comes from a policy that lacks a statement: from each policy of `examples/agentdojo`, each statement that
//! grants something is removed in turn, and every question about a useful run of `advice/runs.txt` is explained. The attacks
//! of that file pick values from prose, from short fields, and from lists that the user's task has read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{file, flowgate, name, text};

/// Policies that lack a statement, by its beginning: the questions about useful runs get several suggestions, of which some
/// let attacks pass.
const LACKING: [(&str, &str); 2] =
    [("banking", "payload call.arguments.subject"), ("slack", "payload call.arguments.body")];

const SUITES: [&str; 4] = ["banking", "slack", "travel", "workspace"];

/// Returns the runs of a suite as lines of a corpus: the useful ones, or the attacks.
fn corpus(suite: &str, attacks: bool) -> String {
    let mut runs: Vec<(bool, &str, Vec<Value>)> = Vec::new();
    let mut calls = 0;
    for line in include_str!("advice/runs.txt").lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if matches!(word, "=" | "!") {
            runs.push((word == "!", rest, Vec::new()));
            continue;
        }
        let Some((_, _, messages)) = runs.last_mut() else { continue };
        match word {
            "user:" => messages.push(json!({"role": "user", "content": rest})),
            "out:" => {
                messages.push(json!({"role": "tool", "tool_call_id": format!("c{calls}"), "content": rest.replace("\\\\n", "\n")}));
            }
            "call" | "inject" => {
                calls += 1;
                let (tool, arguments) = rest.split_once(' ').unwrap();
                let origin = if word == "call" { "user" } else { "injection" };
                messages.push(json!({"role": "assistant", "content": null, "origin": origin, "tool_calls": [
                    {"id": format!("c{calls}"), "type": "function", "function": {"name": tool, "arguments": arguments}}]}));
            }
            _ => assert!(word.is_empty() || word == "#", "{line}"),
        }
    }
    let mut lines = String::new();
    for (is_attack, title, messages) in runs {
        let (of, task) = title.split_once(' ').unwrap();
        if of == suite && is_attack == attacks {
            let attack = if is_attack { "direct" } else { "none" };
            let run = json!({"suite": of, "user_task_id": task, "attack": attack, "messages": messages});
            lines.push_str(&format!("{run}\n"));
        }
    }
    lines
}

/// Returns the statements of a policy, each with the comments before it.
fn statements(source: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in source.lines() {
        match found.last_mut() {
            Some(last) if line.starts_with(' ') || line.is_empty() => last.push_str(&format!("{line}\n")),
            _ => found.push(format!("{line}\n")),
        }
    }
    found
}

/// What is suggested for one question: the call, and the statements of the first suggestion, if there is one.
#[derive(Debug)]
struct Advice {
    call: String,
    first: Option<String>,
    /// Whether the first suggestion has a number, by which it is recommended.
    is_ranked: bool,
}

/// Returns the first suggestion for each question in the output of `flowgate explain`, ranked or not.
fn advice(output: &str) -> Vec<Advice> {
    let mut found: Vec<Advice> = Vec::new();
    let mut is_first = false;
    for line in output.lines() {
        if let Some(call) = line.strip_prefix("? confirm ").or_else(|| line.strip_prefix("✗ deny ")) {
            found.push(Advice { call: call.trim().to_owned(), first: None, is_ranked: false });
        }
        let Some(last) = found.last_mut() else { continue };
        if let Some(mark) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
            let is_ranked = mark.starts_with("1. ");
            is_first = last.first.is_none() && (is_ranked || mark.starts_with("- "));
            last.is_ranked |= is_ranked;
        }
        let statement =
            line.strip_prefix("    ").filter(|line| !line.starts_with(' ') || line.starts_with("    "));
        if let Some(statement) = statement.filter(|_| is_first) {
            last.first.get_or_insert_default().push_str(&format!("{statement}\n"));
        }
        if line.is_empty() {
            is_first = false;
        }
    }
    found
}

/// Returns the figures of the attacks of a suite under a policy: injected calls, and those permitted.
fn injected(suite: &str, policy: &Path, attacks: &Path) -> (u64, u64) {
    let policy = format!("{suite}={}", policy.display());
    let output = flowgate(&[
        "replay",
        "--policy",
        &policy,
        "--influence",
        "provenance",
        "--format",
        "json",
        name(attacks),
    ]);
    let rows: Vec<Value> = String::from_utf8(output.stdout.clone())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let row = rows.iter().find(|row| row.get("injected_calls").is_some());
    assert!(row.is_some(), "{}", text(&output));
    let row = row.unwrap();
    let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap();
    (number("injected_calls"), number("injected_permitted"))
}

/// The figures that `explain --against` prints about a suggestion: recorded runs, useful runs that it frees, those that
/// need a question, attacks that pass, all attacks, and attacks that pass in part.
type Figures = [usize; 6];

/// Returns the suggestions in the output of `explain --against`, recommended or not: the statements and the figures.
fn printed_figures(output: &str) -> Vec<(String, Figures)> {
    let (mut found, mut statements) = (Vec::new(), String::new());
    for line in output.lines() {
        if let Some(figures) = line.strip_prefix("     over ") {
            let digits = figures.split(|c: char| !c.is_ascii_digit());
            let mut figures: Vec<usize> = digits.filter_map(|digits| digits.parse().ok()).collect();
            // No attack passes in part if the line does not say so.
            figures.resize(6, 0);
            found.push((std::mem::take(&mut statements), figures.try_into().unwrap()));
        } else if line.starts_with("  ") && !line.starts_with("   ") {
            // The first line of a suggestion, or a line of the tree above.
            statements.clear();
        } else if let Some(statement) =
            line.strip_prefix("    ").filter(|_| !line.contains("; what an attacker gains: "))
        {
            statements.push_str(&format!("{statement}\n"));
        }
    }
    found
}

/// A recorded run of a corpus under a policy: whether it is an attack, and for each call whether the attack asked for it
/// and whether the policy permits it.
type JudgedRun = (bool, Vec<(bool, bool)>);

/// Judges the runs of the files with `flowgate check`, which knows nothing of attacks. Who asked for a call is read from the
/// files.
fn judged_runs(policy: &Path, files: &[&Path]) -> Vec<JudgedRun> {
    let mut runs = Vec::new();
    for &file in files {
        let output =
            flowgate(&["check", name(policy), name(file), "--influence", "provenance", "--format", "jsonl"]);
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is = |value: &Value, key: &str, expected: &Value| value.get(key) == Some(expected);
        for (index, line) in std::fs::read_to_string(file).unwrap().lines().enumerate() {
            let run: Value = serde_json::from_str(line).unwrap();
            let messages = run.get("messages").and_then(Value::as_array).unwrap();
            let calls =
                messages.iter().filter_map(|message| Some((message, message.pointer("/tool_calls/0/id")?)));
            let is_of_run =
                |call: &&Value| is(call, "type", &"call".into()) && is(call, "line", &(index + 1).into());
            let calls = calls.zip(printed.iter().filter(is_of_run)).map(|((message, id), call)| {
                assert!(is(call, "id", id), "{id} in {call}");
                (is(message, "origin", &"injection".into()), is(call, "verdict", &"permit".into()))
            });
            runs.push((!is(&run, "attack", &"none".into()), calls.collect()));
        }
    }
    runs
}

/// Counts what a change does to recorded runs, which are judged without the change and with it.
fn counted(now: &[JudgedRun], then: &[JudgedRun]) -> Figures {
    let mut figures = [now.len(), 0, 0, 0, 0, 0];
    for ((is_attack, before), (_, after)) in now.iter().zip(then) {
        let is_free = |calls: &[(bool, bool)]| calls.iter().all(|(_, is_permitted)| *is_permitted);
        if !is_attack {
            figures[1] += usize::from(!is_free(before) && is_free(after));
            figures[2] += usize::from(!is_free(before));
            continue;
        }
        let is_new = |((is_asked, was), (_, is)): (&(bool, bool), &(bool, bool))| *is_asked && !was && *is;
        let passes = before.iter().zip(after).any(is_new);
        let is_stopped_in_part = after.iter().any(|(is_asked, is_permitted)| *is_asked && !is_permitted);
        figures[3] += usize::from(passes);
        figures[4] += 1;
        figures[5] += usize::from(passes && is_stopped_in_part);
    }
    figures
}

/// The result for all policies that lack a statement.
#[derive(Debug, Default)]
struct Tally {
    questions: usize,
    advised: usize,
    /// The number of questions with a recommended suggestion.
    ranked: usize,
    /// The number of first suggestions by their first word.
    forms: BTreeMap<String, usize>,
    /// Suggestions that let a recorded attack do more, with their questions.
    harmful: Vec<String>,
    /// Those that let more calls of attacks pass than the whole policy does, which has the removed statement.
    beyond: Vec<String>,
}

/// Explains the questions of every policy that lacks a statement; with `against`, over the recorded attacks.
fn tally(suite: &str, against: bool) -> Tally {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agentdojo");
    let source = std::fs::read_to_string(examples.join(format!("{suite}.flow"))).unwrap();
    let all = statements(&source);
    let useful = file(&format!("advice-{suite}-useful.jsonl"), corpus(suite, false).as_bytes());
    let attacks = file(&format!("advice-{suite}-attacks.jsonl"), corpus(suite, true).as_bytes());
    let mut sum = Tally::default();
    let (_, whole) = injected(suite, &examples.join(format!("{suite}.flow")), &attacks);
    for (index, removed) in all.iter().enumerate() {
        let grants = ["label ", "endorse ", "payload ", "consent "];
        if !grants.iter().any(|word| removed.starts_with(word)) {
            continue;
        }
        let rest: String = all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, line)| line.as_str())
            .collect();
        let which = format!("{suite}-{index}-{against}");
        let policy = file(&format!("advice-{which}.flow"), rest.as_bytes());
        let mut arguments = vec!["explain", name(&policy), name(&useful), "--influence", "provenance"];
        if against {
            arguments.extend(["--against", name(&useful), name(&attacks)]);
        }
        let output = flowgate(&arguments);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
        let (_, before) = injected(suite, &policy, &attacks);
        let mut tried: BTreeMap<String, u64> = BTreeMap::new();
        for Advice { call, first, is_ranked } in advice(&String::from_utf8_lossy(&output.stdout)) {
            sum.questions += 1;
            let Some(first) = first else { continue };
            sum.advised += 1;
            sum.ranked += usize::from(is_ranked);
            let form = first.split_whitespace().next().unwrap_or_default().to_owned();
            *sum.forms.entry(form).or_default() += 1;
            let after = *tried.entry(first.clone()).or_insert_with_key(|first| {
                let changed: PathBuf =
                    file(&format!("advice-{which}-changed.flow"), format!("{rest}\n{first}").as_bytes());
                injected(suite, &changed, &attacks).1
            });
            let line = || format!("{suite} without `{}`: {call}: {first}", removed.trim());
            if after > before {
                sum.harmful.push(line());
            }
            if after > before.max(whole) {
                sum.beyond.push(line());
            }
        }
    }
    sum
}

fn total(against: bool) -> Tally {
    let mut sum = Tally::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = SUITES.map(|suite| scope.spawn(move || tally(suite, against))).into();
        for worker in workers {
            let one = worker.join().unwrap();
            sum.questions += one.questions;
            sum.advised += one.advised;
            sum.ranked += one.ranked;
            one.forms.into_iter().for_each(|(form, count)| *sum.forms.entry(form).or_default() += count);
            sum.harmful.extend(one.harmful);
            sum.beyond.extend(one.beyond);
        }
    });
    sum
}

/// The advice that has seen the attacks never lets one of them do more.
#[test]
fn no_suggestion_that_was_measured_lets_an_attack_pass() {
    let sum = total(true);
    assert!(sum.questions >= 100 && sum.advised >= 16 && sum.ranked >= 16, "{sum:#?}");
    assert_eq!(sum.harmful, Vec::<String>::new());
}

/// The advice that has seen no attack lets none of them do more than the author's own policy, without the gap, does.
#[test]
#[ignore = "takes minutes: .ci/nightly advice"]
fn no_suggestion_lets_an_attack_pass_that_the_whole_policy_stops() {
    let sum = total(false);
    assert!(sum.questions >= 100 && sum.advised >= 16, "{sum:#?}");
    assert_eq!(sum.beyond, Vec::<String>::new());
    // Without a corpus, a change can be a statement of the author's own policy that lets some attack do more than the
    // policy with the gap does. So none is recommended. `docs/replay.md` names the figures.
    assert_eq!(sum.ranked, 0, "{sum:#?}");
    let document = include_str!("../../../../docs/replay.md");
    let figures = format!("{} of {} changes that are listed first", sum.harmful.len(), sum.advised);
    assert!(document.contains(&figures), "docs/replay.md lacks \"{figures}\": {:#?}", sum.harmful);
}

/// What is printed about each suggestion is what a count of the verdicts gives. The policies lack a statement without which
/// useful runs need questions.
#[test]
fn the_printed_figures_are_those_of_a_count() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agentdojo");
    let mut all: Vec<Figures> = Vec::new();
    for (suite, lacking) in LACKING {
        let source = std::fs::read_to_string(examples.join(format!("{suite}.flow"))).unwrap();
        let kept = |statement: &String| !statement.starts_with(lacking);
        let rest: String = statements(&source).into_iter().filter(kept).collect();
        assert!(rest.len() < source.len(), "{suite} has no {lacking}");
        let policy = file(&format!("figures-{suite}.flow"), rest.as_bytes());
        let useful = file(&format!("figures-{suite}-useful.jsonl"), corpus(suite, false).as_bytes());
        let attacks = file(&format!("figures-{suite}-attacks.jsonl"), corpus(suite, true).as_bytes());
        let files = [useful.as_path(), attacks.as_path()];
        let mut arguments = vec!["explain", name(&policy), name(&useful), "--influence", "provenance"];
        arguments.extend(["--against", name(&useful), name(&attacks)]);
        let output = flowgate(&arguments);
        let now = judged_runs(&policy, &files);
        let mut known: BTreeMap<String, Figures> = BTreeMap::new();
        for (statements, printed) in printed_figures(&String::from_utf8_lossy(&output.stdout)) {
            let counted = *known.entry(statements.clone()).or_insert_with_key(|statements| {
                let changed = file("figures-changed.flow", format!("{rest}\n{statements}").as_bytes());
                counted(&now, &judged_runs(&changed, &files))
            });
            assert_eq!(printed, counted, "{suite} without {lacking}: {statements}");
            all.push(printed);
        }
    }
    // The comparison is not of zeros alone.
    let occurs = |at: usize| all.iter().filter(|figures| figures[at] > 0).count();
    assert!(occurs(1) >= 1 && occurs(3) >= 1, "{all:?}");
}
