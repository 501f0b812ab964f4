//! Tests noninterference: two runs that differ only in what an observer may not see are indistinguishable to that
//! observer.
//!
//! Two runs of one conversation differ only in what does not flow to an observer's label: contents and types,
//! lengths, rows and keys, whether an answer is an error, whether a memory was retrieved, the descriptions
//! that servers give of their tools, the number of steps above the label. Policies, tools and texts are
//! random, and the model is adversarial: everything that it sees influences its calls, their order, number
//! and arguments, its looks and its slots. Nothing of the first run is replayed in the second. The sequence
//! of views, calls and questions at or below the label must be equal, byte for byte.
//!
//! What a policy releases is equal in both runs: the captured part of a text, and that the text has the form;
//! an endorsed value, and how confidential it is. A label that depends on the text that it labels reveals
//! information about that text, and random policies contain none.
//!
//! `FLOWGATE_NONINTERFERENCE_CASES` sets the number of cases, and `FLOWGATE_NONINTERFERENCE_SEED` the first
//! seed.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::string_slice,
    reason = "a test"
)]

mod agents;
mod answers;
mod attention;
mod changed_answers;
mod chat;
mod declared_policy;
mod edits;
mod effects;
mod features;
mod form_focus;
mod forms;
mod labels;
mod model;
mod observed_run;
mod one_argument;
mod oracle;
mod oracle_conditions;
mod oracle_label;
mod output_formats;
mod policy;
mod proxy_activity;
mod random;
mod rules;
mod run;
mod session;
mod space;
mod taint_tracker;
mod tools;
mod turns;
mod world;

use std::collections::BTreeMap;

use flowgate_guard::method::{Method, MethodRegistry};

use features::FeatureCounts;
use observed_run::ObservedRun;
use run::NoninterferenceCase;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Statistics that show whether the test is effective: in how many cases text was hidden, and in how many it
/// has an effect.
struct CaseCounts {
    hid: u64,
    looked: u64,
    slots: u64,
    visible: u64,
    differed: u64,
    /// The number of parts of answers, and of those for which monitor and oracle agree.
    parts: (u64, u64),
    features: FeatureCounts,
}

/// Runs all cases, with replayed labels of steps or without. Panics with the position of the first
/// difference.
fn try_all(method: Method, replay: bool, must_agree: bool, usually: u64) -> (u64, CaseCounts) {
    let cases = number("FLOWGATE_NONINTERFERENCE_CASES", usually);
    let first = number("FLOWGATE_NONINTERFERENCE_SEED", 1);
    let features = FeatureCounts::default();
    let mut tried =
        CaseCounts { hid: 0, looked: 0, slots: 0, visible: 0, differed: 0, parts: (0, 0), features };
    let dumps = std::env::var("FLOWGATE_NONINTERFERENCE_DUMP").is_ok();
    let (mut seeds, mut first_difference) = (Vec::new(), None);
    let mut objected: Vec<(u64, String)> = Vec::new();
    for seed in first..first + cases {
        let case = NoninterferenceCase::case(seed, method);
        let one = case.first();
        let two = case.second(&one, replay);
        for run in [&one, &two] {
            tried.parts = (tried.parts.0 + run.parts.0, tried.parts.1 + run.parts.1);
        }
        let broken = [("first", &one), ("second", &two)].into_iter().find(|(_, run)| !run.broken.is_empty());
        if let Some((name, run)) = broken {
            if dumps {
                eprintln!("{}", run.dump());
            }
            let NoninterferenceCase { observer, text, .. } = &case;
            let objections = run.broken.join("\n");
            objected.push((seed, format!("{name} run, label {observer}\n{text}\n{objections}")));
        }
        if let Some(difference) = ObservedRun::difference(&one, &two) {
            tried.differed += 1;
            seeds.push(seed);
            if first_difference.is_none() && must_agree {
                if dumps {
                    eprintln!("first\n{}second\n{}", one.dump(), two.dump());
                }
                let NoninterferenceCase { observer, text, .. } = &case;
                first_difference = Some(format!("seed {seed}, label {observer}\n{text}\n{difference}"));
            }
        }
        tried.hid += u64::from(two.changed > 0);
        tried.looked += u64::from(one.looks > 0);
        tried.slots += u64::from(one.slots > 0);
        tried.visible += u64::from(one.log.len() > 3);
        tried.features.count(&case, &one);
    }
    let CaseCounts { hid, looked, visible, differed, .. } = tried;
    let how = if replay { ", labels replayed" } else { "" };
    eprintln!(
        "{}{how}: {cases} cases from seed {first}; something hidden differed in {hid}, hidden text was asked for in \
         {looked}, more than three things were visible in {visible}; the observer could tell the runs apart in {differed}",
        method.name(),
    );
    eprintln!("{}", tried.features);
    if must_agree && !seeds.is_empty() {
        eprintln!("what is hidden shows with the seeds {seeds:?}");
    }
    if let Some((_, objection)) = objected.first() {
        let seeds: Vec<u64> = objected.iter().map(|(seed, _)| *seed).collect();
        panic!(
            "{}: the oracle objects with the seeds {seeds:?}; with the first of them:\n{objection}",
            method.name()
        );
    }
    if let Some(difference) = first_difference {
        panic!(
            "{}: what is hidden shows with the seeds {seeds:?}; with the first of them:\n{difference}",
            method.name()
        );
    }
    (cases, tried)
}

#[test]
fn what_is_hidden_decides_nothing_below_it() {
    let (cases, tried) = try_all(Method::LowestFirst, false, true, 150);
    // A test in which nothing is hidden, or nothing is shown, has no significance.
    assert!(tried.hid * 2 > cases && tried.looked * 5 > cases && tried.slots * 50 > cases);
    assert!(tried.visible * 2 > cases);
    assert_eq!(tried.features.rare(cases), Vec::<&str>::new(), "features lack effects");
    // An oracle that knows few labels detects few errors.
    let (parts, same) = tried.parts;
    assert!(same * 10 > parts * 6, "of {parts} parts of answers, oracle and monitor say the same of {same}");
}

#[test]
fn what_never_look_hides_decides_nothing() {
    let (cases, tried) = try_all(Method::NeverLook, false, true, 40);
    assert!(tried.hid * 2 > cases && tried.visible * 3 > cases);
}

/// Cases in which something hidden showed once: the form of one field in the labels of others, a part of an answer in
/// what a question carries, whether a question could be granted, which regions a question about an endorsed value names (twice),
/// that a call above a step ran (by the limit on steps), that a call with a hidden verdict was permitted (likewise), and that
/// statements had to be applied again, since one had read a label before another raised it.
#[test]
fn what_showed_once_shows_no_more() {
    let seeds = [
        (Method::NeverLook, 130_275),
        (Method::LowestFirst, 128_634),
        (Method::LowestFirst, 1_004_658),
        (Method::NeverLook, 1_005_290),
        (Method::LowestFirst, 3_004_569),
        (Method::LowestFirst, 3_012_767),
        (Method::LowestFirst, 3_025_162),
        (Method::LowestFirst, 8_008_101),
        (Method::LowestFirst, 11_020_936),
        (Method::LowestFirst, 50_015_549),
    ];
    let without_forms =
        seeds.into_iter().map(|(method, seed)| NoninterferenceCase::without_forms(seed, method));
    // A hidden argument made a call equal to a visible one, whose answer then had the label of both. Whether a rule stopped
    // an error because of its text showed in the label of a step.
    let with_forms = [
        (Method::LowestFirst, 60_006_984),
        (Method::LowestFirst, 63_011_317),
        (Method::NeverLook, 63_011_317),
    ];
    let with_forms = with_forms.into_iter().map(|(method, seed)| NoninterferenceCase::case(seed, method));
    for case in without_forms.chain(with_forms) {
        let (method, seed) = (case.method, case.seed);
        let one = case.first();
        let two = case.second(&one, false);
        assert_eq!(ObservedRun::difference(&one, &two), None, "{} with seed {seed}", method.name());
        assert_eq!((one.broken, two.broken), (Vec::new(), Vec::new()), "{} with seed {seed}", method.name());
    }
}

/// One argument of each tool does not flow into a part of its answers, which an observer may see who does not see the
/// argument.
#[test]
fn an_argument_that_does_not_flow_reveals_nothing() {
    let cases = number("FLOWGATE_NONINTERFERENCE_CASES", 60);
    let first = number("FLOWGATE_NONINTERFERENCE_SEED", 1);
    let mut effects = 0;
    for seed in first..first + cases {
        let case = NoninterferenceCase::with_one_argument(seed, Method::LowestFirst);
        let one = case.first();
        let two = case.second(&one, false);
        assert_eq!(ObservedRun::difference(&one, &two), None, "seed {seed}\n{}", case.text);
        assert_eq!((one.broken, two.broken), (Vec::new(), Vec::new()), "seed {seed}\n{}", case.text);
        effects += u64::from(one.met.contains(observed_run::ONE_ARGUMENT_HIDDEN));
    }
    eprintln!("{cases} cases from seed {first}; the observer sees a part without the argument in {effects}");
    assert!(effects * 50 > cases, "the observer sees such a part in {effects} of {cases} cases");
}

#[test]
fn given_the_chosen_labels_it_decides_nothing_either() {
    let mut screened = 0;
    for method in [Method::Judge, Method::Introspection, Method::Provenance, Method::CheapestFirst] {
        let (cases, tried) = try_all(method, true, true, 30);
        assert!(tried.hid * 2 > cases && tried.visible * 3 > cases, "{}", method.name());
        screened += tried.features.of("a screener that the observer may read as");
        let by_attention = tried.features.of("a screener that reads attention");
        assert_eq!(by_attention > 0, method == Method::Judge, "{}", method.name());
        // Without the recorded labels the runs differ, which is what the bits count.
        let (_, tried) = try_all(method, false, false, 15);
        assert!(tried.differed > 0, "{}", method.name());
    }
    assert!(screened > 0, "the observer was never shown what a screener is");
}

#[test]
fn a_replayed_conversation_equals_the_original() {
    for &method in MethodRegistry::builtin().methods() {
        for seed in 1..=number("FLOWGATE_NONINTERFERENCE_CASES", 12) {
            let case = NoninterferenceCase::case(seed, method);
            for session in &mut case.first().sessions {
                assert!(case.comes_to_the_same(session), "{} with seed {seed}", method.name());
            }
        }
    }
}

/// A form of statement that changes no verdict is not tested by the other tests, whose cases these are.
#[test]
fn every_form_of_statement_changes_verdicts() {
    let cases = number("FLOWGATE_NONINTERFERENCE_CASES", effects::USUAL_CASES).min(20_000);
    let first = number("FLOWGATE_NONINTERFERENCE_SEED", 1);
    let mut seeds: BTreeMap<&str, Vec<u64>> = effects::names().map(|name| (name, Vec::new())).collect();
    // The sessions of other cases are not recorded, and their policies have none of the forms.
    let cases_with_forms = (first..first + cases)
        .map(|seed| NoninterferenceCase::case(seed, Method::LowestFirst))
        .filter(|case| case.has_forms);
    for case in cases_with_forms {
        for effect in effects::of(&case, &case.first()) {
            seeds.entry(effect).or_default().push(case.seed);
        }
    }
    let count = |seeds: &Vec<u64>| u64::try_from(seeds.len()).expect("few");
    let counts = seeds.iter().map(|(name, seeds)| (*name, count(seeds))).collect();
    let counted: Vec<String> = seeds
        .iter()
        .map(|(name, seeds)| format!("{name} {} (first seed {:?})", seeds.len(), seeds.first()))
        .collect();
    eprintln!("{cases} cases from seed {first}; verdicts changed by {}", counted.join(", "));
    assert_eq!(effects::rare(&counts, cases), Vec::<String>::new(), "forms change too few verdicts");
}

#[test]
fn the_rare_effects_occur_and_reveal_nothing() {
    for (effect, seed) in effects::RARE {
        let case = NoninterferenceCase::case(seed, Method::LowestFirst);
        let one = case.first();
        let two = case.second(&one, false);
        assert!(effects::of(&case, &one).contains(effect), "{effect} with seed {seed}");
        assert_eq!(ObservedRun::difference(&one, &two), None, "{effect} with seed {seed}");
        assert_eq!((one.broken, two.broken), (Vec::new(), Vec::new()), "{effect} with seed {seed}");
    }
}
