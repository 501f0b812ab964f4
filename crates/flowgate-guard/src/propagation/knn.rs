//! Computes the utility of an answer for each subcontext with a kNN-LM, a language model that also looks up its hidden
//! states among those of stored documents (Permissive Information-Flow Analysis, section 3.4, equation 4).
//!
//! The documents are not in the prompt. Each token of a document is an entry of a datastore: the hidden state before
//! it, and the token itself. The probability of a token of the answer is a mixture. It is γ times the share of the
//! token among the nearest entries of the visible documents, plus (1 - γ) times its probability for the model without
//! documents. A question therefore costs two evaluations of the model, one of the documents and one of the answer.
//! After that, each subcontext costs only arithmetic. The influence method `knn-lm` searches labels by these utilities,
//! and the benchmarks compare them with those of documents in the prompt. [`Propagator`](super::wrapper::Propagator)
//! does not use them.

use std::collections::BTreeMap;
use std::ops::Range;

use flowgate_lm::{Error, HiddenStateModel, Score, ScoredToken};

/// The parameters of the mixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnnParameters {
    /// The weight of the datastore; 0.5 in the paper.
    pub gamma: f64,
    /// The number of nearest entries.
    pub neighbours: usize,
    /// The distance at which the weight of an entry falls to 1/e.
    pub temperature: f64,
}

impl Default for KnnParameters {
    /// Returns the weight of the paper, eight entries, and the temperature 1.
    fn default() -> Self {
        Self { gamma: 0.5, neighbours: 8, temperature: 1.0 }
    }
}

/// The tokens of documents, with the hidden states before them.
#[derive(Debug, Clone, Default)]
pub struct Datastore {
    entries: Vec<Entry>,
}

/// One token of a document.
#[derive(Debug, Clone)]
struct Entry {
    /// The index of the document.
    document: usize,
    /// The hidden state before the token.
    state: Vec<f32>,
    /// The text of the token.
    token: String,
}

/// Returns the number of the layer before the last layer of a model. Its output, which is the input of the last layer,
/// is the hidden state that kNN-LM compares.
#[must_use]
pub fn penultimate_layer(model: &dyn HiddenStateModel) -> usize {
    model.layer_count().saturating_sub(1)
}

impl Datastore {
    /// Evaluates documents once, each by itself. Each token but the first of a document becomes an entry, with the
    /// hidden state of `layer` before it.
    ///
    /// # Errors
    /// If the model has no such layer, or a document is too long for it.
    pub fn new(model: &dyn HiddenStateModel, layer: usize, documents: &[String]) -> Result<Self, Error> {
        let mut entries = Vec::new();
        for (document, text) in documents.iter().enumerate() {
            let states = model.hidden_states(text, layer)?;
            let following = states.tokens.iter().skip(1);
            for (state, range) in states.vectors.into_iter().zip(following) {
                let token = text.get(range.clone()).unwrap_or_default().to_owned();
                entries.push(Entry { document, state, token });
            }
        }
        Ok(Self { entries })
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The answer to one question, ready to be scored for any documents.
#[derive(Debug, Clone)]
pub struct KnnAnswer {
    parameters: KnnParameters,
    /// The tokens of the answer, in order.
    tokens: Vec<KnnToken>,
}

/// One token of the answer.
#[derive(Debug, Clone)]
struct KnnToken {
    text: String,
    /// The log-probability of the token without documents.
    logprob: f64,
    /// All entries of the datastore, the nearest first: the document of each, its distance to the state before this
    /// token, and whether its token equals this one.
    entries: Vec<(usize, f64, bool)>,
}

impl KnnAnswer {
    /// Finds the entries that are nearest to each token of an answer, by the hidden states of `layer`, which must be
    /// the layer of the datastore. `without_documents` is the score of the answer after `prompt`, by the same model.
    ///
    /// # Errors
    /// If the text is too long for the model, if no token precedes the answer, or if the numbers of states and of
    /// scores for the answer differ.
    pub fn new(
        model: &dyn HiddenStateModel,
        layer: usize,
        datastore: &Datastore,
        (prompt, answer): (&str, &str),
        without_documents: &Score,
        parameters: KnnParameters,
    ) -> Result<Self, Error> {
        let text = format!("{prompt}{answer}");
        let states = model.hidden_states(&text, layer)?;
        let is_answer = |range: &Range<usize>| range.start >= prompt.len() && !range.is_empty();
        let first = states.tokens.iter().position(is_answer).unwrap_or(states.tokens.len());
        let scored = &without_documents.tokens;
        if states.tokens.len().saturating_sub(first) != scored.len() || first == 0 {
            return Err(Error::Unsupported(
                "the hidden states and the scores are not for the same tokens of the answer; use one model for both, \
                and a prompt of at least one token",
            ));
        }
        // A token is predicted from the hidden state of the token before it, so the states begin one token before the
        // answer.
        let before = states.vectors.iter().skip(first - 1);
        let tokens = before.zip(scored).map(|(state, token)| nearest(datastore, state, token)).collect();
        Ok(Self { parameters, tokens })
    }

    /// Returns the score of the answer where the datastore has the documents for which `is_visible` holds. The
    /// probability of a token is a mixture: its share among the nearest entries has the weight `gamma`, its probability
    /// without documents the rest.
    #[must_use]
    pub fn score(&self, is_visible: impl Fn(usize) -> bool) -> Score {
        let token = |token: &KnnToken| {
            let share = self.share(token, &is_visible);
            let gamma = self.parameters.gamma;
            let probability = gamma * share + (1.0 - gamma) * token.logprob.exp();
            ScoredToken { text: token.text.clone(), logprob: probability.ln() }
        };
        // All tokens are scored, so the scoring did not stop early.
        Score { tokens: self.tokens.iter().map(token).collect(), is_stopped: false }
    }

    /// Returns the share of a token among the nearest visible entries, each weighted by `exp(-distance /
    /// temperature)`; 0 if nothing is visible. The share is the probability that the entries alone give to the token.
    fn share(&self, token: &KnnToken, is_visible: impl Fn(usize) -> bool) -> f64 {
        let visible = token.entries.iter().filter(|(document, ..)| is_visible(*document));
        let nearest: Vec<_> = visible.take(self.parameters.neighbours).collect();
        let least = nearest.first().map_or(0.0, |(_, distance, _)| *distance);
        // The distances count relative to that of the nearest entry, so that the weights are not all rounded to 0. This
        // changes no share.
        let weight = |distance: f64| (-(distance - least) / self.parameters.temperature).exp();
        let total: f64 = nearest.iter().map(|(_, distance, _)| weight(*distance)).sum();
        let same: f64 =
            nearest.iter().filter(|(.., is_same)| *is_same).map(|(_, distance, _)| weight(*distance)).sum();
        if total > 0.0 { same / total } else { 0.0 }
    }
}

/// Returns a token of the answer with all entries of the datastore, nearest to `state` first: the document of each,
/// its distance, and whether its token is the same.
fn nearest(datastore: &Datastore, state: &[f32], token: &ScoredToken) -> KnnToken {
    let distance = |entry: &Entry| -> f64 {
        let squares = entry.state.iter().zip(state).map(|(a, b)| f64::from(a - b).powi(2));
        squares.sum::<f64>().sqrt()
    };
    // Tokens are the same if they differ only in white space around them.
    let word = token.text.trim();
    let entry = |entry: &Entry| (entry.document, distance(entry), entry.token.trim() == word);
    let mut entries: Vec<_> = datastore.entries.iter().map(entry).collect();
    entries.sort_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
    KnnToken { text: token.text.clone(), logprob: token.logprob, entries }
}

/// Returns the number of entries of each document, for reports. A document without entries is left out.
#[must_use]
pub fn entries_by_document(datastore: &Datastore) -> BTreeMap<usize, usize> {
    datastore.entries.iter().fold(BTreeMap::new(), |mut counts, entry| {
        *counts.entry(entry.document).or_insert(0) += 1;
        counts
    })
}

#[cfg(test)]
mod tests {
    use flowgate_lm::HiddenStates;

    use super::*;

    /// A double whose tokens are words, and whose state of a word is its first byte.
    struct FirstBytes;

    impl HiddenStateModel for FirstBytes {
        fn layer_count(&self) -> usize {
            2
        }

        fn hidden_states(&self, text: &str, layer: usize) -> Result<HiddenStates, Error> {
            assert_eq!(layer, 1);
            let mut states = HiddenStates::default();
            for word in text.split_inclusive(' ') {
                let start = states.tokens.last().map_or(0, |range| range.end);
                states.tokens.push(start..start + word.len());
                states.vectors.push(vec![f32::from(word.as_bytes()[0])]);
            }
            Ok(states)
        }
    }

    fn answer(gamma: f64) -> KnnAnswer {
        let layer = penultimate_layer(&FirstBytes);
        let documents = ["anna lives nearby", "anna works here", "zoe lives far"].map(str::to_owned);
        let datastore = Datastore::new(&FirstBytes, layer, &documents).unwrap();
        assert_eq!((datastore.len(), entries_by_document(&datastore)[&1]), (6, 2));
        let token = |text: &str, p: f64| ScoredToken { text: text.to_owned(), logprob: p.ln() };
        let score = Score { tokens: vec![token("lives", 0.25)], is_stopped: false };
        let parameters = KnnParameters { gamma, neighbours: 2, temperature: 1.0 };
        KnnAnswer::new(&FirstBytes, layer, &datastore, ("say anna ", "lives"), &score, parameters).unwrap()
    }

    #[test]
    fn the_mixture_depends_on_the_visible_documents() {
        let check = |visible: &[usize], gamma: f64, expected: f64| {
            let score = answer(gamma).score(|document| visible.contains(&document));
            assert!((score.logprob().exp() - expected).abs() < 1e-4, "{visible:?} {}", score.logprob().exp());
        };
        // `anna` is followed by `lives` and by `works`.
        check(&[0, 1, 2], 0.5, 0.5 * 0.5 + 0.5 * 0.25);
        check(&[0], 1.0, 1.0);
        check(&[1], 0.5, 0.125);
        check(&[], 0.5, 0.125);
        check(&[0, 1, 2], 0.0, 0.25);
    }

    #[test]
    fn other_tokens_are_refused() {
        let layer = penultimate_layer(&FirstBytes);
        let datastore = Datastore::new(&FirstBytes, layer, &[]).unwrap();
        let score = Score::default();
        let error =
            KnnAnswer::new(&FirstBytes, layer, &datastore, ("a ", "b"), &score, KnnParameters::default());
        assert!(error.unwrap_err().to_string().contains("use one model for both"));
        assert!(datastore.is_empty());
    }
}
