//! Ranks documents for a query with BM25, for the games with a real retriever.
//!
//! The ranking is that of Robertson and Zaragoza (*The Probabilistic Relevance Framework: BM25 and Beyond*, 2009) with k1 = 1.2 and
//! b = 0.75, over words in lower case. Equal scores keep the order of the documents, so a ranking is the same on every platform.
//! [`generate`](super::generate) builds the indexes. The ranking does not know the tenants of documents.

use std::collections::BTreeMap;

/// How much repetitions of a word in a document count: the greater this is, the more repetitions still raise the score.
const K1: f64 = 1.2;
/// How much the length of a document counts, from 0 (not at all) to 1.
const B: f64 = 0.75;

/// An index over documents.
#[derive(Debug, Clone, Default)]
pub(super) struct Bm25Index {
    /// For each word, the numbers of the documents with it, each with the number of occurrences.
    postings: BTreeMap<String, Vec<(usize, f64)>>,
    /// The number of words of each document.
    lengths: Vec<f64>,
}

/// Returns the words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

impl Bm25Index {
    /// Indexes documents, which are numbered from 0 in the given order.
    pub(super) fn new<T: AsRef<str>>(documents: impl IntoIterator<Item = T>) -> Self {
        let mut index = Self::default();
        for (number, document) in documents.into_iter().enumerate() {
            let mut counts: BTreeMap<String, f64> = BTreeMap::new();
            for word in words(document.as_ref()) {
                *counts.entry(word).or_default() += 1.0;
            }
            index.lengths.push(counts.values().sum());
            for (word, count) in counts {
                index.postings.entry(word).or_default().push((number, count));
            }
        }
        index
    }

    /// Returns the numbers of the `limit` documents that fit a query best by BM25, the best first. A document without a word of the query is not
    /// returned, so there may be fewer.
    pub(super) fn search(&self, query: &str, limit: usize) -> Vec<usize> {
        let documents = self.lengths.len() as f64;
        // The mean length of a document; 0 in an empty index.
        let mean = self.lengths.iter().sum::<f64>() / documents.max(1.0);
        let mut scores: BTreeMap<usize, f64> = BTreeMap::new();
        for word in words(query) {
            let Some(postings) = self.postings.get(&word) else { continue };
            let containing = postings.len() as f64;
            // The weight of a word: the fewer documents have it, the more it counts. Without the 1, the weight of a
            // frequent word would be below 0.
            let rarity = (1.0 + (documents - containing + 0.5) / (containing + 0.5)).ln();
            for (number, count) in postings {
                let length = self.lengths.get(*number).copied().unwrap_or(0.0);
                // The longer a document is, the less an occurrence of the word counts.
                let norm = K1 * (1.0 - B + B * length / mean);
                *scores.entry(*number).or_default() += rarity * count * (K1 + 1.0) / (count + norm);
            }
        }
        let mut ranked: Vec<(usize, f64)> = scores.into_iter().collect();
        // The sort is stable, and the map is in the order of the documents, so of two equal scores the earlier document is first.
        ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        ranked.into_iter().take(limit).map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The score by its definition, without an index.
    fn score(documents: &[String], number: usize, query: &str) -> f64 {
        let split = |text: &str| words(text).collect::<Vec<_>>();
        let all: Vec<Vec<String>> = documents.iter().map(|document| split(document)).collect();
        let mean = all.iter().map(Vec::len).sum::<usize>() as f64 / all.len() as f64;
        let terms = split(query).into_iter().map(|term| {
            let count = all[number].iter().filter(|word| **word == term).count() as f64;
            let containing = all.iter().filter(|words| words.contains(&term)).count() as f64;
            let rarity = (1.0 + (all.len() as f64 - containing + 0.5) / (containing + 0.5)).ln();
            rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * all[number].len() as f64 / mean))
        });
        terms.sum()
    }

    proptest! {
        /// The index ranks as the definition does.
        #[test]
        fn the_index_equals_the_definition(
            documents in proptest::collection::vec("[abc]( [abcd]){0,6}", 1..8),
            query in "[abcd]( [abcd]){0,3}",
            limit in 0_usize..10,
        ) {
            let mut expected: Vec<(usize, f64)> =
                (0..documents.len()).map(|number| (number, score(&documents, number, &query))).collect();
            expected.retain(|(_, score)| *score > 0.0);
            expected.sort_by(|a, b| b.1.total_cmp(&a.1));
            let found = Bm25Index::new(&documents).search(&query, limit);
            prop_assert_eq!(found.len(), expected.len().min(limit));
            for (number, (_, best)) in found.iter().zip(&expected) {
                let reached = score(&documents, *number, &query);
                prop_assert!((reached - best).abs() < 1e-9, "{} {}", reached, best);
            }
        }
    }

    #[test]
    fn rare_words_and_short_documents_rank_high() {
        let check = |query: &str, expected: &[usize]| {
            let documents = ["the red car", "the blue car and the blue house and more", "the blue bird", ""];
            assert_eq!(Bm25Index::new(documents).search(query, 9), expected, "{query}");
        };
        check("blue bird", &[2, 1]);
        check("Red", &[0]);
        check("unknown", &[]);
        check("", &[]);
        assert!(Bm25Index::new([""; 0]).search("x", 3).is_empty());
    }
}
