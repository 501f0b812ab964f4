//! Counts the tokens that Algorithm 1 of *Permissive Information-Flow Analysis* would process if it were implemented
//! naively: each test of a subcontext evaluates its whole prompt again, even where two prompts begin alike. `suite.rs`
//! and `model_run.rs` state the tokens of the measured methods as a ratio to this number.
//!
//! No model runs for this count: the bench knows which facts each question needs, and these decide the outcome of each
//! test ([`literal_cost`]).

use std::collections::BTreeMap;

use super::measure::{LabelFigures, Spread};
use super::method::literal_cost;
use super::question::DocumentQuestion;

/// The tokens of the naive algorithm for the data sets of a run, each counted once.
pub(super) struct NaiveTokens<'c> {
    count: &'c (dyn Fn(&str) -> usize + Send + Sync),
    /// The mean number of tokens of a question, by the name of the data set.
    known: BTreeMap<&'static str, f64>,
}

impl<'c> NaiveTokens<'c> {
    /// Creates the counter. `count` counts the tokens of a text; the searches must count theirs with the same function.
    pub(super) fn new(count: &'c (dyn Fn(&str) -> usize + Send + Sync)) -> Self {
        Self { count, known: BTreeMap::new() }
    }

    /// Sets in `figures` the ratio of a method's tokens to those of the naive algorithm, on the data set with the name
    /// `set` and these questions. The ratio of a method that called no model is not set.
    pub(super) fn compare(
        &mut self,
        set: &'static str,
        questions: &[DocumentQuestion],
        figures: &mut LabelFigures,
    ) {
        if figures.most_calls == 0 {
            return;
        }
        let count = self.count;
        // Computed only for the first method on a data set.
        let mean = || {
            let tokens = questions.iter().filter_map(|question| literal_cost(question, &|text| count(text)));
            let tokens: Vec<f64> = tokens.map(|(_, tokens)| tokens as f64).collect();
            Spread::of(&tokens).map_or(0.0, |spread| spread.mean)
        };
        figures.compare_with_naive(*self.known.entry(set).or_insert_with(mean));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flowgate_guard::propagation::Cost;

    use super::super::measure::LabelOutcome;
    use super::super::question::{SourceDocument, integrity_labels};
    use super::*;

    /// A question with a trusted and an untrusted document of two words each, which needs the trusted one.
    fn question() -> DocumentQuestion {
        let document =
            |(fact, label)| SourceDocument { text: "two words".to_owned(), label, facts: [fact].into() };
        DocumentQuestion {
            text: "which fact is it".to_owned(),
            answer: "fact".to_owned(),
            needs: [0].into(),
            documents: integrity_labels().unwrap().into_iter().enumerate().map(document).collect(),
            asks_first: false,
        }
    }

    /// The naive algorithm tests the whole context (9 words), the trusted document (7) and nothing (5).
    #[test]
    fn the_tokens_of_a_data_set_are_counted_once() {
        let counted = AtomicUsize::new(0);
        let count = |text: &str| {
            counted.fetch_add(1, Ordering::Relaxed);
            text.split_whitespace().count()
        };
        let mut naive = NaiveTokens::new(&count);
        let questions = [question()];
        let span = questions[0].span().unwrap();
        let truth = questions[0].truth(&span);
        let figures = |calls| {
            let cost = Cost { calls, processed_tokens: 7 * calls, ..Cost::default() };
            LabelFigures::of(&[LabelOutcome::new(&span, &truth, &truth, cost)])
        };
        let mut unasked = figures(0);
        naive.compare("set", &questions, &mut unasked);
        assert_eq!((unasked.naive_ratio, counted.load(Ordering::Relaxed)), (None, 0));
        let (_, tokens) = literal_cost(&questions[0], &|text| text.split_whitespace().count()).unwrap();
        for calls in [1, 2] {
            let mut searched = figures(calls);
            naive.compare("set", &questions, &mut searched);
            assert_eq!(searched.naive_ratio, Some(7.0 * calls as f64 / tokens as f64));
            assert_eq!(counted.load(Ordering::Relaxed), 4);
        }
        assert!(tokens >= 9 + 7, "{tokens}");
    }
}
