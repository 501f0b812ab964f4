//! Scores a text in categories, such as hate or finance, by lists of words and phrases. `moderation` and `topic` define
//! the lists. [`Classifier`] is the interface, which a machine-learning model can implement instead.

use std::collections::BTreeMap;

use super::Finding;
use super::pattern::{CompiledRules, DetectionRule};

/// Classifies a text into categories.
///
/// The word lists of [`moderation`](super::moderation) and [`topic`](super::topic) implement this trait; a
/// machine-learning model can implement it, too.
pub trait Classifier {
    /// Returns the categories that apply to the text, each with a score above 0 and at most 1.
    fn classify(&self, text: &str) -> Vec<(String, f64)>;
}

/// Word lists by category. A [`Lexicon`] finds their words in a text, and scores the text in each category.
pub struct Lexicon {
    /// Phrases of which one is sufficient evidence.
    strong: CompiledRules,
    /// Words of which several are needed.
    weak: CompiledRules,
}

/// The score of a category with one strong phrase.
const STRONG: f64 = 0.85;
/// The score of a category with one weak word.
const WEAK: f64 = 0.35;

impl std::fmt::Debug for Lexicon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lexicon").finish_non_exhaustive()
    }
}

impl Lexicon {
    /// Creates a lexicon from strong phrases, of which one is sufficient evidence, and weak words, of which several are
    /// needed.
    pub(super) fn new(strong: &'static [DetectionRule], weak: &'static [DetectionRule]) -> Self {
        Self { strong: CompiledRules::new(strong), weak: CompiledRules::new(weak) }
    }

    /// Returns the places in a text at which a word or phrase of the lists occurs; the kind of a finding is its
    /// category. Where a strong phrase and a weak word overlap, only the strong phrase is returned.
    pub fn find(&self, text: &str) -> Vec<Finding> {
        let mut findings = super::pattern::DisjointFindings::default();
        for finding in self.strong.find(text).into_iter().chain(self.weak.find(text)) {
            findings.insert(finding);
        }
        findings.into_vec()
    }

    #[cfg(test)]
    pub(super) fn uncompiled_kinds(&self) -> Vec<&'static str> {
        [self.strong.uncompiled_kinds(), self.weak.uncompiled_kinds()].concat()
    }
}

impl Classifier for Lexicon {
    /// Returns the categories of which a word or phrase occurs, each with a score above 0 and at most 1. The matches
    /// count as independent evidence, so each one raises the score of its category: one strong phrase gives 0.85, one
    /// weak word 0.35.
    fn classify(&self, text: &str) -> Vec<(String, f64)> {
        // The probability that a category does not apply, updated word by word.
        let mut absent: BTreeMap<&str, f64> = BTreeMap::new();
        for (rules, weight) in [(&self.strong, STRONG), (&self.weak, WEAK)] {
            for finding in rules.find(text) {
                *absent.entry(finding.kind).or_insert(1.0) *= 1.0 - weight;
            }
        }
        absent.into_iter().map(|(category, absent)| (category.to_owned(), 1.0 - absent)).collect()
    }
}
