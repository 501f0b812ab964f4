//! Defines [`TextEmbedder`], the trait of models that represent texts by vectors, so that texts of a similar meaning
//! have similar vectors. The caches of answers in `flowgate-guard`, and the retrievers of the benchmarks, compare such
//! vectors.

use crate::{Error, HiddenStateModel};

/// A model that represents texts by vectors.
pub trait TextEmbedder: Send + Sync {
    /// Returns one vector for each text, all of the same length.
    ///
    /// # Errors
    /// If the model fails.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f64>>, Error>;
}

/// Represents a text by the mean of its tokens' hidden states in the last layer. Returns the sum of these vectors in
/// place of their mean: both have the same direction, and callers compare only directions.
#[derive(Clone, Copy)]
pub struct MeanHiddenState<'a>(pub &'a dyn HiddenStateModel);

impl std::fmt::Debug for MeanHiddenState<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MeanHiddenState").finish_non_exhaustive()
    }
}

impl TextEmbedder for MeanHiddenState<'_> {
    /// Evaluates the model on each text, and adds up the hidden states of the text's tokens. Tokens that the model adds
    /// itself, such as one at the beginning, are left out of the sum, unless the text has no other tokens.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
        let embedding = |text: &&str| {
            let states = self.0.hidden_states(text, self.0.layer_count())?;
            // A token that the model adds has an empty range in the text.
            let is_added = |index: usize| states.tokens.get(index).is_none_or(std::ops::Range::is_empty);
            let text_tokens = (0..states.vectors.len()).filter(|index| !is_added(*index)).count();
            let mut sum: Vec<f64> = Vec::new();
            for (index, vector) in states.vectors.iter().enumerate() {
                if text_tokens > 0 && is_added(index) {
                    continue;
                }
                // The first vector sets the length of the sum.
                sum.resize(vector.len().max(sum.len()), 0.0);
                sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(*value));
            }
            // Callers compare vectors by their cosine, which does not depend on their lengths. The sum therefore serves
            // as the mean.
            Ok(sum)
        };
        texts.iter().map(embedding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HiddenStates;

    /// A model that gives each word the vector (its length, 1), and adds a token at the beginning.
    struct WordLengthModel;

    impl HiddenStateModel for WordLengthModel {
        fn layer_count(&self) -> usize {
            3
        }

        /// The token that the model adds has the vector (100, 100), which would change a sum noticeably.
        fn hidden_states(&self, text: &str, layer: usize) -> Result<HiddenStates, Error> {
            assert_eq!(layer, 3);
            let words = text.split_whitespace();
            let mut tokens: Vec<_> = std::iter::once(0..0).collect();
            let mut vectors = vec![vec![100.0, 100.0]];
            for word in words {
                tokens.push(0..word.len());
                vectors.push(vec![f32::from(u8::try_from(word.len()).unwrap()), 1.0]);
            }
            Ok(HiddenStates { tokens, vectors })
        }
    }

    #[test]
    fn hidden_states_are_averaged_without_added_tokens() {
        let found = MeanHiddenState(&WordLengthModel).embed(&["ab abcd", ""]).unwrap();
        assert_eq!(found, [vec![6.0, 2.0], vec![100.0, 100.0]]);
    }
}
