//! Stores answers with their labels, and returns them for similar questions: a semantic cache (Permissive
//! Information-Flow Analysis, section 6.1). The more permissive the label of an answer, the more askers may use it. A
//! program can query the cache before it calls [`Propagator`](super::Propagator).
//!
//! Questions are compared by their words, or by the vectors of a model ([`QuestionForm`]).
//!
//! A lookup has a bound, the greatest label that the asker may read, and returns only answers whose labels flow to it.
//! The number of answers is limited for each label separately, so that an answer above the bound displaces none that
//! the asker may read. Only the number of labels is limited for all answers together: once [`MAX_LABELS`] labels have
//! answers, the answers of any further label are not stored. Whether an answer is stored can therefore depend on
//! answers above the bound.

use std::collections::VecDeque;

use flowgate::label::Label;

use super::question_form::{QuestionForm, QuestionWords};

/// An answer with its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedAnswer {
    /// The question that it answered.
    pub question: String,
    /// The answer.
    pub answer: String,
    /// The label of both.
    pub label: Label,
}

/// Answers by question.
///
/// ```
/// use flowgate::label::Label;
/// use flowgate_guard::propagation::{AnswerCache, CachedAnswer};
///
/// // Room for 100 answers of each label; half of the words must be the same.
/// let mut cache = AnswerCache::new(100, 0.5);
/// cache.insert(CachedAnswer {
///     question: "How long is the bridge?".to_owned(),
///     answer: "12 metres".to_owned(),
///     label: Label::BOTTOM,
/// });
/// let found = cache.get("How long is this bridge?", &Label::BOTTOM);
/// assert_eq!(found.map(|found| found.answer.as_str()), Some("12 metres"));
/// ```
///
/// `F` is the form in which questions are compared: their words by default.
#[derive(Debug, Clone)]
pub struct AnswerCache<F = QuestionWords> {
    /// One shelf for each label.
    shelves: Vec<Shelf<F>>,
    /// The least similarity of two questions that may share an answer, from 0 to 1.
    similarity: f64,
    /// The most answers of one label.
    room: usize,
}

/// The answers of one label, oldest first.
#[derive(Debug, Clone)]
struct Shelf<F> {
    label: Label,
    /// Each answer with the form of its question.
    answers: VecDeque<(F, CachedAnswer)>,
}

/// The most labels that have answers.
pub const MAX_LABELS: usize = 256;

impl AnswerCache {
    /// Creates a cache with room for `room` answers of each label, which compares words. Two questions are similar if
    /// the words that they share are at least the fraction `similarity` (from 0 to 1) of all their words. With 1, they
    /// are similar only if they have the same words.
    #[must_use]
    pub fn new(room: usize, similarity: f64) -> Self {
        Self::by_form(room, similarity)
    }

    /// Adds an answer, as [`insert_as`](Self::insert_as) does with the words of its question.
    pub fn insert(&mut self, cached: CachedAnswer) {
        self.insert_as(QuestionWords::of(&cached.question), cached);
    }

    /// Returns the stored answer to a similar question, as [`get_as`](Self::get_as) does with the words of `question`.
    #[must_use]
    pub fn get(&self, question: &str, bound: &Label) -> Option<&CachedAnswer> {
        self.get_as(&QuestionWords::of(question), bound)
    }
}

impl<F: QuestionForm> AnswerCache<F> {
    /// Creates a cache with room for `room` answers of each label, which compares questions in the form `F`. Two
    /// questions may share an answer if their similarity is at least `similarity`, from 0 to 1.
    #[must_use]
    pub fn by_form(room: usize, similarity: f64) -> Self {
        Self { shelves: Vec::new(), similarity, room }
    }

    /// Adds an answer, whose question has the form `question`; it replaces the answer to an equal question with the
    /// same label. If the label has no room, its oldest answer is dropped. The answer is not stored if [`MAX_LABELS`]
    /// other labels have answers, or if the cache was created without room.
    pub fn insert_as(&mut self, question: F, cached: CachedAnswer) {
        if self.room == 0 {
            return;
        }
        let index = match self.shelves.iter().position(|shelf| shelf.label == cached.label) {
            Some(index) => index,
            None if self.shelves.len() >= MAX_LABELS => return,
            None => {
                self.shelves.push(Shelf { label: cached.label, answers: VecDeque::new() });
                self.shelves.len() - 1
            }
        };
        let Some(Shelf { answers, .. }) = self.shelves.get_mut(index) else { return };
        answers.retain(|(_, other)| other.question != cached.question);
        if answers.len() >= self.room {
            answers.pop_front();
        }
        answers.push_back((question, cached));
    }

    /// Returns the stored answer to the question that is most similar to `question`, among the answers whose labels
    /// flow to `bound`; of equally similar ones, one with a lower label. Returns `None` if no question is similar
    /// enough. What the caller derives from the answer carries the join of two labels: the label of the answer and that
    /// of the caller's own question.
    #[must_use]
    pub fn get_as(&self, question: &F, bound: &Label) -> Option<&CachedAnswer> {
        let visible = self.shelves.iter().filter(|shelf| shelf.label.flows_to(bound));
        let mut best: Option<(f64, &CachedAnswer)> = None;
        for (other, cached) in visible.flat_map(|shelf| &shelf.answers) {
            let found = question.similarity(other);
            let is_better = best.is_none_or(|(most, other)| {
                let is_lower = cached.label.flows_to(&other.label) && cached.label != other.label;
                found > most || (found >= most && is_lower)
            });
            if found >= self.similarity && is_better {
                best = Some((found, cached));
            }
        }
        best.map(|(_, cached)| cached)
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::{Error, TextEmbedder};

    use super::super::question_form::QuestionVector;
    use super::super::test_labels::flat_labels;
    use super::*;

    fn cached(question: &str, answer: &str, label: Label) -> CachedAnswer {
        CachedAnswer { question: question.to_owned(), answer: answer.to_owned(), label }
    }

    #[test]
    fn an_answer_is_used_where_its_label_may_go() {
        let [first, second] = flat_labels(2).try_into().unwrap();
        let mut cache = AnswerCache::new(2, 0.6);
        cache.insert(cached("Where is the key?", "in the safe", first.join(&second)));
        cache.insert(cached("where is the key", "ask Ann", first));
        let check = |question: &str, bound: &Label, expected: Option<&str>| {
            let found = cache.get(question, bound).map(|cached| cached.answer.as_str());
            assert_eq!(found, expected, "{question}");
        };
        // Of equally similar questions, the lower label.
        check("Where is the key", &first.join(&second), Some("ask Ann"));
        check("Where's that key?", &first, None);
        check("where is my key", &first, Some("ask Ann"));
        check("Where is the key", &second, None);
        check("When is lunch", &first, None);
    }

    /// A model that represents a question by what it asks for, which the test knows: a place or a time.
    struct TopicEmbedder;

    impl TextEmbedder for TopicEmbedder {
        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
            let has = |text: &str, words: &[&str]| f64::from(words.iter().any(|word| text.contains(word)));
            let vector = |text: &&str| vec![has(text, &["Where", "place"]), has(text, &["When", "time"])];
            Ok(texts.iter().map(vector).collect())
        }
    }

    /// With vectors, the answer is found for a question in other words, and not for one with the same words but another
    /// meaning. Labels restrict what is found, as they do with words.
    #[test]
    fn vectors_find_questions_in_other_words() {
        let [first, second] = flat_labels(2).try_into().unwrap();
        let form = |question: &str| QuestionVector::of(&TopicEmbedder, question).unwrap();
        let mut cache = AnswerCache::by_form(2, 0.9);
        let mut words = AnswerCache::new(2, 0.5);
        for (question, answer, label) in
            [("Where is the key", "in the safe", first.join(&second)), ("Where is it", "ask Ann", first)]
        {
            cache.insert_as(form(question), cached(question, answer, label));
            words.insert(cached(question, answer, label));
        }
        let check = |question: &str, bound: &Label, by_vector: Option<&str>, by_word: Option<&str>| {
            let found = [cache.get_as(&form(question), bound), words.get(question, bound)];
            let answers = found.map(|found| found.map(|cached| cached.answer.as_str()));
            assert_eq!(answers, [by_vector, by_word], "{question}");
        };
        check("At which place do I find the key", &first, Some("ask Ann"), None);
        check("When is the key", &first.join(&second), None, Some("in the safe"));
        check("Where is the key", &second, None, None);
        check("Where is it", &first, Some("ask Ann"), Some("ask Ann"));
    }

    /// Whatever is inserted above a bound changes nothing below it, however full the cache is.
    #[test]
    fn entries_above_the_bound_decide_nothing() {
        let [low, high] = flat_labels(2).try_into().unwrap();
        let mut cache = AnswerCache::new(2, 1.0);
        let mut crowded = AnswerCache::new(2, 1.0);
        for number in 0..5 {
            let question = format!("question {number}");
            cache.insert(cached(&question, "low", low));
            crowded.insert(cached(&question, "high", high));
            crowded.insert(cached(&question, "low", low));
            crowded.insert(cached(&question, "both", low.join(&high)));
        }
        for number in 0..5 {
            let question = format!("question {number}");
            assert_eq!(cache.get(&question, &low), crowded.get(&question, &low), "{question}");
            assert_eq!(cache.get(&question, &low).is_some(), number >= 3, "the oldest made room");
        }
        let mut none = AnswerCache::new(0, 0.0);
        none.insert(cached("q", "a", low));
        assert_eq!(none.get("q", &low), None);
    }
}
