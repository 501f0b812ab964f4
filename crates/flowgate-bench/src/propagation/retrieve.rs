//! Finds the documents whose words are most similar to those of a question, by term frequency times inverse document
//! frequency (TF-IDF) and the cosine. The data set of news articles retrieves its documents with this module, and so
//! does the measurement of attacks in which an attacker adds documents.

use std::collections::BTreeMap;

/// An index of documents.
#[derive(Debug, Clone)]
pub struct TfIdf {
    /// For each document the weights of its words, a vector of length 1.
    documents: Vec<BTreeMap<String, f64>>,
    /// The factor by which the count of each word is multiplied; it is greater for words in fewer documents.
    inverse_frequency: BTreeMap<String, f64>,
}

impl TfIdf {
    /// Indexes documents. A word in few documents weighs more than one in many.
    pub fn new(texts: &[&str]) -> Self {
        let counts: Vec<BTreeMap<String, f64>> = texts.iter().map(|text| word_counts(text)).collect();
        let mut frequency: BTreeMap<String, f64> = BTreeMap::new();
        for word in counts.iter().flat_map(BTreeMap::keys) {
            *frequency.entry(word.clone()).or_insert(0.0) += 1.0;
        }
        let total = texts.len() as f64;
        let inverse_frequency: BTreeMap<String, f64> =
            frequency.into_iter().map(|(word, count)| (word, (1.0 + total / count).ln())).collect();
        let documents = counts.into_iter().map(|counts| normalised(counts, &inverse_frequency)).collect();
        Self { documents, inverse_frequency }
    }

    /// Returns the indices of the `count` documents that are most similar to the question, best first. Documents with
    /// equal similarity are in the order of the index. A document that shares no word with the question has the
    /// similarity 0, and is returned too if there are not enough others.
    pub fn nearest(&self, question: &str, count: usize) -> Vec<usize> {
        let asked = normalised(word_counts(question), &self.inverse_frequency);
        let similarity = |document: &BTreeMap<String, f64>| -> f64 {
            asked.iter().filter_map(|(word, weight)| Some(weight * document.get(word)?)).sum()
        };
        let mut ranked: Vec<(usize, f64)> = self.documents.iter().map(similarity).enumerate().collect();
        ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        ranked.into_iter().take(count).map(|(index, _)| index).collect()
    }
}

/// Returns the words of a text in lower case, each with its number of occurrences.
fn word_counts(text: &str) -> BTreeMap<String, f64> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(BTreeMap::new(), |mut counts, word| {
        *counts.entry(word.to_lowercase()).or_insert(0.0) += 1.0;
        counts
    })
}

/// Weighs words: multiplies the count of each by its factor in `inverse`, and scales all weights so that they are a
/// vector of length 1. The inner product of two such vectors is the cosine of their angle. Words that no document has
/// are dropped; if no word remains, the result is empty.
fn normalised(counts: BTreeMap<String, f64>, inverse: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let weigh = |(word, count): (String, f64)| {
        let weight = count * inverse.get(&word)?;
        Some((word, weight))
    };
    let weights: BTreeMap<String, f64> = counts.into_iter().filter_map(weigh).collect();
    let length = weights.values().map(|weight| weight * weight).sum::<f64>().sqrt();
    if length == 0.0 {
        return weights;
    }
    weights.into_iter().map(|(word, weight)| (word, weight / length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_words_find_their_document() {
        let index = TfIdf::new(&["the red kite flies", "the blue kite", "the boat", ""]);
        let check = |question: &str, expected: &[usize]| {
            assert_eq!(index.nearest(question, expected.len()), expected, "{question}");
        };
        check("The RED kite?", &[0, 1, 2]);
        check("a boat", &[2, 0]);
        check("kite", &[1, 0]);
        check("unknown", &[0]);
        assert!(index.nearest("kite", 0).is_empty());
        assert_eq!(index.nearest("kite", 9).len(), 4);
        assert_eq!(TfIdf::new(&[]).nearest("kite", 2), [] as [usize; 0]);
    }
}
