//! Retrieves documents by embeddings: [`EmbeddingIndex`] finds the documents whose embeddings have the greatest cosine
//! with the embedding of a question. This is the realistic retriever of *Permissive Information-Flow Analysis*, section
//! 5.2. A [`TextEmbedder`] computes the embeddings.
//! [`PropagationSuite::add_embeddings`](super::PropagationSuite::add_embeddings) creates questions with the index.

use flowgate_lm::{Error, TextEmbedder};

/// An index of documents by their vectors.
#[derive(Debug, Clone)]
pub(super) struct EmbeddingIndex {
    /// The vector of each document, of length 1.
    documents: Vec<Vec<f64>>,
}

impl EmbeddingIndex {
    /// Indexes documents.
    ///
    /// # Errors
    /// If the model fails, or does not give one vector of finite numbers for each text, all of one length.
    pub(super) fn new(embedder: &dyn TextEmbedder, texts: &[&str]) -> Result<Self, Error> {
        Ok(Self { documents: vectors(embedder, texts, None)? })
    }

    /// Returns for each question the indices of the `count` documents that are most similar to it, best first.
    /// Documents with equal similarity are in the order of the index.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and if the vector of a question differs in length from those of the documents.
    pub(super) fn nearest(
        &self,
        embedder: &dyn TextEmbedder,
        questions: &[&str],
        count: usize,
    ) -> Result<Vec<Vec<usize>>, Error> {
        let asked = vectors(embedder, questions, self.documents.first().map(Vec::len))?;
        let nearest = |question: &Vec<f64>| {
            // The vectors have the length 1, so the cosine is their inner product.
            let similarity =
                |document: &Vec<f64>| document.iter().zip(question).map(|(a, b)| a * b).sum::<f64>();
            let mut ranked: Vec<(usize, f64)> = self.documents.iter().map(similarity).enumerate().collect();
            ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            ranked.into_iter().take(count).map(|(index, _)| index).collect()
        };
        Ok(asked.iter().map(nearest).collect())
    }
}

/// Returns the vector of each text, scaled to the length 1; a vector of zeros stays as it is. `expected` is the
/// number of components that the vectors must have, if it is known.
///
/// # Errors
/// If the model fails, if it does not give one vector for each text, or if a vector has another number of components
/// or a number that is not finite.
fn vectors(
    embedder: &dyn TextEmbedder,
    texts: &[&str],
    expected: Option<usize>,
) -> Result<Vec<Vec<f64>>, Error> {
    let fail = |problem: String| Err(Error::Failed(problem));
    let mut vectors = embedder.embed(texts)?;
    if vectors.len() != texts.len() {
        return fail(format!(
            "the model gave {} embeddings for {} texts; use another model",
            vectors.len(),
            texts.len()
        ));
    }
    // If no length is expected, all vectors must be as long as the first one.
    let expected = expected.or_else(|| vectors.first().map(Vec::len)).unwrap_or_default();
    for (index, vector) in vectors.iter_mut().enumerate() {
        let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
        if vector.len() != expected || !length.is_finite() {
            return fail(format!(
                "embedding {index} differs in length from the others or has a number that is not finite; use another model"
            ));
        }
        if length > 0.0 {
            vector.iter_mut().for_each(|value| *value /= length);
        }
    }
    Ok(vectors)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Represents a text by how often each letter occurs in it.
    pub(in crate::propagation) struct CharacterCounts;

    impl TextEmbedder for CharacterCounts {
        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
            let count = |text: &str, letter: char| text.chars().filter(|c| *c == letter).count() as f64;
            Ok(texts.iter().map(|text| ('a'..='z').map(|letter| count(text, letter)).collect()).collect())
        }
    }

    #[test]
    fn similar_texts_are_found() {
        let index = EmbeddingIndex::new(&CharacterCounts, &["abc", "aab", "xyz", ""]).unwrap();
        for (question, expected) in [("aaab", vec![1, 0]), ("zyx", vec![2, 0]), ("", vec![0, 1, 2, 3])] {
            let found = index.nearest(&CharacterCounts, &[question], expected.len()).unwrap();
            assert_eq!(found, [expected], "{question}");
        }
    }

    /// Returns fixed vectors.
    struct Fixed(Vec<Vec<f64>>);

    impl TextEmbedder for Fixed {
        fn embed(&self, _: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn odd_embeddings_are_errors() {
        for (given, expected) in [
            (vec![vec![1.0]], "gave 1 embeddings for 2 texts"),
            (vec![vec![1.0], vec![1.0, 2.0]], "embedding 1 differs in length"),
            (
                vec![vec![1.0], vec![f64::NAN]],
                "embedding 1 differs in length from the others or has a number that is not finite",
            ),
            (vec![vec![f64::INFINITY], vec![1.0]], "embedding 0"),
        ] {
            let error = EmbeddingIndex::new(&Fixed(given), &["a", "b"]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let index = EmbeddingIndex::new(&Fixed(vec![vec![1.0]]), &["a"]).unwrap();
        let error = index.nearest(&Fixed(vec![vec![1.0, 2.0]]), &["q"], 1).unwrap_err().to_string();
        assert!(error.contains("embedding 0 differs in length"), "{error}");
    }
}
