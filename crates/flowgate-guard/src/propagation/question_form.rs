//! Defines in which form questions are compared: by their words ([`QuestionWords`]) or by the vectors of a model
//! ([`QuestionVector`]). [`AnswerCache`](super::AnswerCache) returns the stored answer to an earlier question that is
//! similar in this form.

use std::collections::BTreeSet;

use flowgate_lm::{Error, TextEmbedder};

/// A question in a form in which it can be compared with others.
pub trait QuestionForm {
    /// Returns how similar two questions are: 1 for equal ones, and 0 for questions that have nothing in common.
    fn similarity(&self, other: &Self) -> f64;
}

/// The words of a question in lower case. Questions are similar if they share many words, whatever these mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionWords(BTreeSet<String>);

impl QuestionWords {
    /// Returns the words of a question, in lower case and each once.
    #[must_use]
    pub fn of(question: &str) -> Self {
        let words = question.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        Self(words.map(str::to_lowercase).collect())
    }
}

impl QuestionForm for QuestionWords {
    /// Returns the number of words that both questions have, divided by the number of all their words (Jaccard); 1 for
    /// two questions without words.
    #[expect(clippy::cast_precision_loss, reason = "a question has fewer than 2^52 words")]
    fn similarity(&self, other: &Self) -> f64 {
        let (common, all) = (self.0.intersection(&other.0).count(), self.0.union(&other.0).count());
        if all == 0 { 1.0 } else { common as f64 / all as f64 }
    }
}

/// The vector that a model gives a question. Questions are similar if their vectors point in nearly the same direction:
/// for a model that represents meanings, if they ask for the same in other words.
#[derive(Debug, Clone, PartialEq)]
pub struct QuestionVector {
    /// The vector, of length 1.
    direction: Vec<f64>,
}

impl QuestionVector {
    /// Lets a model represent a question. The model reads the question, so it needs the clearance for the question's
    /// label.
    ///
    /// # Errors
    /// If the model fails, does not give exactly one vector, or gives a vector without a direction.
    pub fn of(embedder: &dyn TextEmbedder, question: &str) -> Result<Self, Error> {
        let mut vectors = embedder.embed(&[question])?.into_iter();
        match (vectors.next(), vectors.next()) {
            (Some(vector), None) => Self::new(&vector).ok_or_else(|| {
                Error::Failed(
                    "the model gave an embedding that is empty, has only zeros, or has a number that is not finite; \
                    use another model"
                        .to_owned(),
                )
            }),
            _ => Err(Error::Failed("the model did not give exactly one embedding for one text; use another model".to_owned())),
        }
    }

    /// Creates the form from a vector. Returns `None` if the vector has no direction: it is empty, has only zeros, or
    /// has a number that is not finite.
    #[must_use]
    pub fn new(vector: &[f64]) -> Option<Self> {
        // Dividing by the greatest number first keeps the squares finite.
        let greatest = vector.iter().fold(0.0_f64, |greatest, number| greatest.max(number.abs()));
        if !vector.iter().all(|number| number.is_finite()) || greatest <= 0.0 {
            return None;
        }
        let scaled: Vec<f64> = vector.iter().map(|number| number / greatest).collect();
        let length = scaled.iter().map(|number| number * number).sum::<f64>().sqrt();
        Some(Self { direction: scaled.into_iter().map(|number| number / length).collect() })
    }
}

impl QuestionForm for QuestionVector {
    /// Returns the cosine of the angle between the vectors, and 0 if it is negative. Vectors of different lengths are
    /// of different models, so nothing is known about them: the result is 0.
    fn similarity(&self, other: &Self) -> f64 {
        if self.direction.len() != other.direction.len() {
            return 0.0;
        }
        self.direction.iter().zip(&other.direction).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_without_order_and_case() {
        for (a, b, expected) in [
            ("Where is the key?", "the KEY is where", 1.0),
            ("where is the key", "where is my key", 0.6),
            ("a b", "c", 0.0),
            ("", "?", 1.0),
        ] {
            let found = QuestionWords::of(a).similarity(&QuestionWords::of(b));
            assert!((found - expected).abs() < 1e-12, "{a:?} {b:?} {found}");
        }
    }

    #[test]
    fn vectors_are_compared_by_their_directions() {
        for (a, b, expected) in [
            (&[1.0, 0.0][..], &[5.0, 0.0][..], 1.0),
            (&[1.0, 0.0], &[1.0, 1.0], 0.5_f64.sqrt()),
            (&[1.0, 0.0], &[0.0, 1.0], 0.0),
            (&[1.0, 0.0], &[-1.0, 0.0], 0.0),
            (&[1.0], &[1.0, 0.0], 0.0),
            (&[1e300, 1e300], &[1e-300, 1e-300], 1.0),
        ] {
            let found = QuestionVector::new(a).unwrap().similarity(&QuestionVector::new(b).unwrap());
            assert!((found - expected).abs() < 1e-12, "{a:?} {b:?} {found}");
        }
    }

    /// Returns fixed vectors.
    struct FixedEmbedder(Vec<Vec<f64>>);

    impl TextEmbedder for FixedEmbedder {
        fn embed(&self, _: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn an_embedding_without_a_direction_is_an_error() {
        for (given, expected) in [
            (vec![], "exactly one embedding"),
            (vec![vec![1.0], vec![1.0]], "exactly one embedding"),
            (vec![vec![]], "an embedding that is empty"),
            (vec![vec![0.0, 0.0]], "has only zeros"),
            (vec![vec![1.0, f64::NAN]], "not finite"),
            (vec![vec![1.0, f64::INFINITY]], "not finite"),
        ] {
            let error = QuestionVector::of(&FixedEmbedder(given.clone()), "q").unwrap_err().to_string();
            assert!(error.contains(expected), "{given:?}: {error}");
        }
        let found = QuestionVector::of(&FixedEmbedder(vec![vec![3.0, 4.0]]), "q").unwrap();
        assert_eq!(found, QuestionVector { direction: vec![0.6, 0.8] });
    }
}
