//! The optimised evaluator agrees with the naive one, over generated policies and traces.

#![no_main]

mod fixed;

#[path = "../../crates/flowgate/tests/generate/mod.rs"]
mod generate;

use std::collections::BTreeSet;

use flowgate::analysis::{
    Analysis, AnalysisOptions, analyze, analyze_naively, analyze_steps, analyze_steps_naively,
};
use flowgate::policy::Policy;
use flowgate::trace::read;
use generate::Choices;
use libfuzzer_sys::fuzz_target;

fn found(analysis: &Analysis) -> (BTreeSet<&str>, BTreeSet<usize>) {
    let violations = analysis.violations.iter().map(|violation| violation.key.as_str()).collect();
    (violations, analysis.failures.iter().map(|failure| failure.rule).collect())
}

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let source = generate::policy(&mut choices);
    let messages = generate::trace(&mut choices);
    let policy = Policy::parse(&source).expect("generated policies are well-formed");
    let entries = read::list(&messages).expect("generated traces are well-formed");
    let options = AnalysisOptions { fuel: 2_000_000, ..AnalysisOptions::default() };
    let runs = [analyze, analyze_naively].map(|run| run(&policy, entries.clone(), &options).unwrap());
    // One evaluator can run out of fuel long before the other.
    if runs.iter().all(|run| run.failures.is_empty()) {
        assert_eq!(found(&runs[0]), found(&runs[1]));
    }
    let steps =
        [analyze_steps, analyze_steps_naively].map(|run| run(&policy, entries.clone(), &options).unwrap());
    for (fast, slow) in steps[0].iter().zip(&steps[1]) {
        if fast.failures.is_empty() && slow.failures.is_empty() {
            assert_eq!(found(fast), found(slow));
        }
    }
});
