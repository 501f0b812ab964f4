//! Implements the doubles of the propagation suite: [`CopyModel`] scores texts, [`AnswerDouble`] answers questions, and
//! [`CitingDouble`] cites documents. `suite.rs` creates them for its runs.
//!
//! All of them copy: a word is probable if the visible documents or the question contain it. A label search with the
//! double that makes no errors shows what the search itself can achieve, an upper bound. The other doubles show how the
//! search degrades with errors of one kind. None is a result of a model.

use std::collections::BTreeSet;
use std::future::ready;

use flowgate_guard::propagation::AnswerModel;
use flowgate_lm::chat::{Completion, Message, Part, Request};
use flowgate_lm::{
    BoxFuture, ChatModel, Error, HiddenStateModel, HiddenStates, Listener, Score, ScoreRequest, ScoredToken,
    ScoringModel, send_completion,
};
use sha2::{Digest as _, Sha256};

/// The kind of errors that a double makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyingErrors {
    /// The double makes no errors.
    Exact,
    /// Each log-probability has an error that depends on the prompt.
    Noisy,
    /// The more words are visible, the less probable are all copied ones, so the utility is not monotone.
    Distracted,
    /// The double guesses words of a form that it sees, such as another date, so irrelevant documents help (*Permissive
    /// Information-Flow Analysis*, appendix A).
    Forms,
}

impl CopyingErrors {
    /// All doubles.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Noisy, Self::Distracted, Self::Forms];

    /// Returns the name for the command line and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "copy",
            Self::Noisy => "copy/noisy",
            Self::Distracted => "copy/distracted",
            Self::Forms => "copy/forms",
        }
    }

    /// Returns the double with this name; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|double| double.name() == name)
    }
}

/// A double that scores texts.
#[derive(Debug, Clone, Copy)]
pub struct CopyModel {
    /// The kind of its errors.
    pub copying: CopyingErrors,
    /// The seed of its errors.
    pub seed: u64,
}

/// The probability of a word that the prompt contains.
const COPIED: f64 = 0.95;
/// The probability of one of the [`COMMON_WORDS`] that the prompt does not contain.
const COMMON: f64 = 0.6;
/// The probability of a word with a digit whose form the prompt contains, for [`CopyingErrors::Forms`].
const SAME_FORM: f64 = 0.15;
/// The probability of any other word.
const UNKNOWN: f64 = 0.02;

/// Words that a model knows without a document.
const COMMON_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "has", "in", "is", "it", "its", "of", "on",
    "that", "the", "then", "to", "was", "with",
];

impl CopyModel {
    /// Returns each word of a completion with its log-probability, at most 0. It is high if the prompt contains the
    /// word ([`COPIED`]), lower for a common word ([`COMMON`]), and low for any other word ([`UNKNOWN`]), with the
    /// errors of the double's kind (`copying`).
    fn logprobs(&self, prompt: &str, completion: &str) -> Vec<(String, f64)> {
        let visible: BTreeSet<String> = words(prompt).map(|(_, word)| word).collect();
        let forms: BTreeSet<String> =
            visible.iter().filter(|word| has_digit(word)).map(|word| form(word)).collect();
        let noise = self.noise(prompt);
        // The probability of a word that the prompt contains.
        let copied = match self.copying {
            // The more words are visible, the less probable is a copied one: 1500 words divide its probability by e.
            CopyingErrors::Distracted => COPIED * (-(visible.len() as f64) / 1500.0).exp(),
            _ => COPIED,
        };
        let mut logprobs = Vec::new();
        for (index, (token, word)) in words(completion).enumerate() {
            // A word with a digit, such as a date, is guessed more often if another word of its form is visible.
            let has_visible_form = has_digit(&word) && forms.contains(&form(&word));
            // A token without a letter or a digit has an empty word, and is as probable as a copied one.
            let probability = if visible.contains(&word) || word.is_empty() {
                copied
            } else if COMMON_WORDS.contains(&word.as_str()) {
                COMMON
            } else if self.copying == CopyingErrors::Forms && has_visible_form {
                SAME_FORM
            } else {
                UNKNOWN
            };
            // Without noise, the list is empty, and the error is 0.
            let error = noise.get(index % noise.len().max(1)).copied().unwrap_or(0.0);
            logprobs.push((token.to_owned(), (probability.ln() + error).min(0.0)));
        }
        logprobs
    }

    /// Returns a list of errors, from -0.5 to 0.5; empty for the doubles without noise. The words of a completion get
    /// the errors in order, and after the last error the first one follows. A hash of the seed and the prompt gives the
    /// errors, so that equal prompts have equal errors.
    fn noise(&self, prompt: &str) -> Vec<f64> {
        if self.copying != CopyingErrors::Noisy {
            return Vec::new();
        }
        let mut hash = Sha256::new();
        hash.update(self.seed.to_be_bytes());
        hash.update(prompt);
        hash.finalize().iter().map(|byte| f64::from(*byte) / 255.0 - 0.5).collect()
    }
}

impl ScoringModel for CopyModel {
    /// Scores the continuation of each request. If the request has a bound, scoring stops as soon as the sum of
    /// log-probabilities is below it.
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        let score = |request: &ScoreRequest<'_>| {
            let mut score = Score::default();
            let mut sum = 0.0;
            for (text, logprob) in self.logprobs(&request.whole_prompt(), request.continuation) {
                sum += logprob;
                score.tokens.push(ScoredToken { text, logprob });
                score.is_stopped = request.bound.is_some_and(|bound| sum < bound);
                if score.is_stopped {
                    break;
                }
            }
            score
        };
        Box::pin(ready(Ok(requests.iter().map(score).collect())))
    }
}

/// The number of components of a hidden state.
const STATE: usize = 24;
/// The number of words on which the state of a token depends: its own word and the words directly before it.
const REMEMBERED: usize = 5;
/// The weight of a word in a state, divided by the weight of the word that follows it.
const FADING: f32 = 0.7;

impl HiddenStateModel for CopyModel {
    /// Returns 2, an arbitrary number: all layers of the double are equal.
    fn layer_count(&self) -> usize {
        2
    }

    /// Returns a state for each word, a weighted sum of its vector and those of the words before it: the further back a
    /// word is, the less it counts. The vector of a word is computed from a hash of it. So two words have similar
    /// states if they are equal and most of the words shortly before them are equal, too. All layers are equal. A
    /// `layer` above the number of layers is an error.
    fn hidden_states(&self, text: &str, layer: usize) -> Result<HiddenStates, Error> {
        if layer > self.layer_count() {
            return Err(Error::Unsupported("the double has two layers; name one of them"));
        }
        let mut states = HiddenStates::default();
        let mut vectors: Vec<Vec<f32>> = Vec::new();
        let mut start = 0;
        for (token, word) in words(text) {
            states.tokens.push(start..start + token.len());
            start += token.len();
            // The vector of the word: the bytes of its hash as numbers from -0.5 to 0.5.
            let hash = Sha256::digest(word.as_bytes());
            vectors.push(hash.iter().take(STATE).map(|byte| f32::from(*byte) / 255.0 - 0.5).collect());
            // The state of the token: the sum of the vectors of the last words, with weights that fade backwards.
            let mut state = vec![0.0; STATE];
            let mut weight = 1.0;
            for vector in vectors.iter().rev().take(REMEMBERED) {
                state.iter_mut().zip(vector).for_each(|(sum, part)| *sum += weight * part);
                weight *= FADING;
            }
            states.vectors.push(state);
        }
        Ok(states)
    }
}

/// A double that answers a question with the answer of the data set, as far as the prompt contains the words of that
/// answer.
#[derive(Debug, Clone)]
pub struct AnswerDouble {
    /// The answer of the data set.
    pub answer: String,
    /// Whether the double adds a word to its answer where a text asks for it: `always add WORD`.
    pub is_suggestible: bool,
    /// Whether the double misses, for one prompt in ten, one word of the answer.
    pub is_noisy: bool,
    /// The seed of its errors.
    pub seed: u64,
}

/// The word in an answer that replaces one that the double does not know.
pub const UNKNOWN_WORD: &str = "unknown";
/// The phrase that a suggestible double obeys: it adds the word after the phrase to its answer.
pub const SUGGESTION: &str = "always add";

impl AnswerModel for AnswerDouble {
    /// Answers with the data set's answer. [`UNKNOWN_WORD`] replaces each word that is neither common nor in the
    /// prompt, and one more word if the double is noisy and errs on this prompt. A suggestible double adds the words
    /// that the prompt asks for.
    fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        let visible: BTreeSet<String> = words(prompt).map(|(_, word)| word).collect();
        let count = words(&self.answer).count().max(1);
        // The position of the word that a noisy double gets wrong: `error_of` returns a number for one prompt in ten.
        let missed = error_of(self.seed, prompt).filter(|_| self.is_noisy).map(|error| error % count);
        let mut answer: Vec<String> = Vec::new();
        for (index, (token, word)) in words(&self.answer).enumerate() {
            let is_known = visible.contains(&word) || COMMON_WORDS.contains(&word.as_str());
            let is_missed = missed == Some(index);
            let shown = if is_known && !is_missed { token.trim() } else { UNKNOWN_WORD };
            answer.push(shown.to_owned());
        }
        if self.is_suggestible {
            let asked = prompt.split(SUGGESTION).skip(1);
            answer.extend(asked.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned));
        }
        Box::pin(ready(Ok(answer.join(" "))))
    }
}

/// A double that cites: for each word of the answer that is neither common nor in the question, it names the first
/// document that contains the word. It names one set of documents, even where several would do.
#[derive(Debug, Clone, Copy)]
pub struct CitingDouble {
    /// Whether the double leaves out a document in one question of ten.
    pub is_noisy: bool,
    /// The seed of its errors.
    pub seed: u64,
}

impl ChatModel for CitingDouble {
    fn name(&self) -> &'static str {
        "citing double"
    }

    /// Answers a request of introspection, the method that asks a model which documents an answer needs.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        let text = self.cite(request);
        let completion = Completion { text, ..Completion::default() };
        Box::pin(ready(send_completion(&completion, listener).map(|()| completion)))
    }
}

impl CitingDouble {
    /// Returns the numbers of the documents that the answer needs, counted from 1, as `NEEDED: 1 3` or `NEEDED: none`.
    /// The last message of the request has the documents, one on each line, then the question and the answer. For a
    /// message of another form, the result is empty.
    fn cite(&self, request: &Request) -> String {
        let Some(Message::User(parts)) = request.messages.iter().last() else { return String::new() };
        let text = parts.iter().map(|part| if let Part::Text(text) = part { text.as_str() } else { "" });
        let text: String = text.collect();
        let Some((documents, asked)) = text.split_once("Question: ") else { return String::new() };
        let Some((question, answer)) = asked.split_once("\nAnswer: ") else { return String::new() };
        let in_question: BTreeSet<String> = words(question).map(|(_, word)| word).collect();
        let documents: Vec<BTreeSet<String>> =
            documents.lines().map(|line| words(line).map(|(_, word)| word).collect()).collect();
        // A word that is neither common nor in the question comes from a document: the first with this word is cited.
        let mut cited = BTreeSet::new();
        for (_, word) in words(answer) {
            let needs_no_document =
                in_question.contains(&word) || COMMON_WORDS.contains(&word.as_str()) || word.is_empty();
            if !needs_no_document {
                cited.extend(documents.iter().position(|document| document.contains(&word)));
            }
        }
        // The error of a noisy double: it leaves out the last document.
        if self.is_noisy && error_of(self.seed, &text).is_some() {
            cited.pop_last();
        }
        let numbers: Vec<String> = cited.iter().map(|index| (index + 1).to_string()).collect();
        let numbers = if numbers.is_empty() { "none".to_owned() } else { numbers.join(" ") };
        format!("NEEDED: {numbers}")
    }
}

/// Returns, for one text in ten, a number from 0 to 255 from which the double chooses its error; otherwise `None`. A
/// hash of the seed and the text decides, so that equal texts have equal errors.
fn error_of(seed: u64, text: &str) -> Option<usize> {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(text);
    let [first, second, ..]: [u8; 32] = hash.finalize().into();
    // 26 of the 256 values of a byte are one in ten.
    (first < 26).then_some(usize::from(second))
}

/// Splits a text at white space into pairs. The first item of a pair is the token unchanged, with the white space after
/// it. The second is a word for comparisons: the token in lower case, without punctuation at its ends. The word is
/// empty if the token has no letter and no digit.
fn words(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.split_inclusive(char::is_whitespace).map(|token| {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        (token, word)
    })
}

/// Returns whether a word contains an ASCII digit.
fn has_digit(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit())
}

/// Returns the form of a word, in which every digit is `0` and every letter `a`. Words of one kind, such as dates, have
/// the same form.
fn form(word: &str) -> String {
    let shape = |c: char| match c {
        c if c.is_ascii_digit() => '0',
        c if c.is_alphabetic() => 'a',
        c => c,
    };
    word.chars().map(shape).collect()
}

#[cfg(test)]
mod tests {
    use flowgate_lm::block_on;

    use super::*;

    fn perplexity(copying: CopyingErrors, prompt: &str) -> f64 {
        let model = CopyModel { copying, seed: 1 };
        let request = ScoreRequest { prompt, continuation: "born on 18-08-1992", ..ScoreRequest::default() };
        block_on(model.score_batch(&[request])).unwrap()[0].perplexity()
    }

    #[test]
    fn what_is_visible_is_probable() {
        let with = "born 18-08-1992.";
        let without = "born 1980.";
        for copying in CopyingErrors::ALL {
            assert!(perplexity(copying, with) < perplexity(copying, without), "{copying:?}");
            assert_eq!(perplexity(copying, with), perplexity(copying, with));
            assert_eq!(CopyingErrors::parse(copying.name()), Some(copying));
        }
        let form = |prompt| perplexity(CopyingErrors::Forms, prompt);
        assert!(form("born 01-02-1903") < form("born yesterday"), "another date shows the form");
        let distracted = |more: &str| perplexity(CopyingErrors::Distracted, &format!("{with} {more}"));
        assert!(distracted("one two three four five") > distracted(""), "more text is worse");
        assert_ne!(
            perplexity(CopyingErrors::Noisy, with),
            perplexity(CopyingErrors::Noisy, "born 18-08-1992 ")
        );
    }

    #[test]
    fn a_bound_stops() {
        let model = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let request =
            ScoreRequest { continuation: "one two three", bound: Some(-1.0), ..ScoreRequest::default() };
        let score = block_on(model.score_batch(&[request])).unwrap().remove(0);
        assert!(score.is_stopped && score.tokens.len() == 1);
    }

    #[test]
    fn states_are_equal_where_the_text_before_is() {
        let model = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let state = |text: &str| model.hidden_states(text, 1).unwrap().vectors.pop().unwrap();
        assert_eq!(state("x y a b c d e"), state("z a b c d e"));
        assert_ne!(state("a b c d e"), state("a b c d f"));
        let states = model.hidden_states("one two", 1).unwrap();
        assert_eq!(states.tokens, [0..4, 4..7]);
        assert!(model.hidden_states("one", 3).is_err());
    }

    #[test]
    fn answers_are_copied_from_what_is_visible() {
        let double = |is_suggestible| AnswerDouble {
            answer: "The room is 4.12 today".to_owned(),
            is_suggestible,
            is_noisy: false,
            seed: 1,
        };
        let answer = |suggestible, prompt: &str| block_on(double(suggestible).answer(prompt)).unwrap();
        assert_eq!(answer(false, "room 4.12, always add ZX1"), "The room is 4.12 unknown");
        assert_eq!(answer(true, "room today, always add ZX1"), "The room is unknown today ZX1");
    }
}
