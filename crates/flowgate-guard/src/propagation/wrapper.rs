//! Answers a question about labelled documents with as permissive a label as possible. [`Propagator`] implements the
//! wrapper around retrieval of Permissive Information-Flow Analysis, section 3.4; embedding programs and the benchmarks
//! call it.
//!
//! 1. The model answers from the whole context, or the caller gives the answer: y.
//! 2. A search finds labels whose documents give y nearly the same utility.
//! 3. The caller chooses one, L'. The model answers again, from the documents at or below L' alone: y'.
//! 4. The result is y' with L'. y is discarded.
//!
//! # Guarantee
//!
//! y' is computed from the question and the documents at or below L' alone, whatever the searches, the scores and the
//! other documents say. An error of these costs utility, or results in a label that is less permissive than necessary.
//! The *choice* of L' is computed from all documents. It reveals at most [`LabelledAnswer::choice_bits`] bits of them,
//! as the choice of a screener does. λ-similarity is therefore not noninterference: an observer who sees which label an
//! answer carries, or that a later call was permitted, learns as many bits. Where that is too much, retrieve only what
//! flows to a label that is known beforehand ([`answer_at`], section 6.1).

use flowgate::label::{Label, LabelSpan};
use flowgate_lm::{BoxFuture, Error, ScoringModel};

use super::find::find_labels;
use super::options::PropagationOptions;
use super::prompt::{LabelledContext, order_by_label};
use super::scorer::{ContextScorer, Cost, ScoringTask, TokenCount};
use super::utility::Utility;

/// A model that continues a prompt with an answer.
pub trait AnswerModel: Send + Sync {
    /// Returns the answer.
    ///
    /// # Errors
    /// If the model cannot answer.
    fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>>;
}

/// One of the labels that a search has found, among which the caller chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The label that the answer would carry.
    pub label: Label,
    /// The documents from which it would be generated, by their indices in the context.
    pub documents: Vec<usize>,
}

/// Answers questions at permissive labels, with these models, this search and this choice among the labels found.
///
/// # Example
///
/// Two documents were retrieved for a question, and the trusted one suffices for the answer: the answer is generated
/// again from it alone, and is trusted. Doubles play the models here; `ChatAnswers` answers with a model for chats, and
/// any `ScoringModel` scores.
///
/// ```
/// use flowgate::label::Label;
/// use flowgate::policy::Policy;
/// use flowgate_guard::propagation::{
///     AnswerModel, Candidate, LabelledContext, LabelledDocument, NegativePerplexity, PropagationOptions,
///     Propagator, prefer,
/// };
/// use flowgate_lm::{BoxFuture, Error, Score, ScoreRequest, ScoredToken, ScoringModel, block_on};
///
/// # struct Double;
/// # impl AnswerModel for Double {
/// #     fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
/// #         let known = ["12", "metres"].into_iter().filter(|word| prompt.contains(*word));
/// #         let answer = known.collect::<Vec<_>>().join(" ");
/// #         Box::pin(std::future::ready(Ok(answer)))
/// #     }
/// # }
/// # impl ScoringModel for Double {
/// #     fn score_batch<'a>(
/// #         &'a self,
/// #         requests: &'a [ScoreRequest<'a>],
/// #     ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
/// #         let score = |request: &ScoreRequest<'_>| {
/// #             let prompt = request.whole_prompt();
/// #             let token = |word: &str| ScoredToken {
/// #                 text: word.to_owned(),
/// #                 logprob: if prompt.contains(word) { -0.1 } else { -5.0 },
/// #             };
/// #             let tokens = request.continuation.split_whitespace().map(token).collect();
/// #             Score { tokens, is_stopped: false }
/// #         };
/// #         Box::pin(std::future::ready(Ok(requests.iter().map(score).collect())))
/// #     }
/// # }
/// let policy = Policy::parse("lattice integrity: trusted < untrusted\n").unwrap();
/// let [trusted, untrusted] =
///     ["trusted", "untrusted"].map(|name| policy.space().element("integrity", name).unwrap().label);
/// let document = |text: &str, label| LabelledDocument { text: text.to_owned(), label };
/// let context = LabelledContext {
///     preamble: "Documents:\n".to_owned(),
///     documents: vec![
///         document("The bridge has 12 metres. Buy now!", untrusted),
///         document("The bridge has 12 metres.", trusted),
///     ],
///     question: "Question: How long is the bridge?\nAnswer:".to_owned(),
///     question_label: Label::BOTTOM,
/// };
/// let choose = |found: &[Candidate]| prefer(found, &[trusted]);
/// let propagator = Propagator {
///     answers: &Double,
///     scores: &Double,
///     utility: &NegativePerplexity,
///     options: PropagationOptions::default(),
///     count: &|text| text.split_whitespace().count(),
///     choose: &choose,
/// };
/// let answer = block_on(propagator.propagate(&context, None))?;
/// assert_eq!((answer.answer.as_str(), answer.documents.as_slice()), ("12 metres", &[1][..]));
/// assert_eq!((answer.label, answer.naive_label), (trusted, untrusted));
/// # Ok::<(), Error>(())
/// ```
pub struct Propagator<'a> {
    /// The model that answers.
    pub answers: &'a dyn AnswerModel,
    /// The model that scores; it can be a smaller one.
    pub scores: &'a dyn ScoringModel,
    /// The measure by which the answer in a subcontext is compared with the answer in the whole context.
    pub utility: &'a dyn Utility,
    /// The tolerance, the search and its budget.
    pub options: PropagationOptions,
    /// Counts tokens.
    pub count: &'a TokenCount<'a>,
    /// Returns the index of the candidate whose label serves the application best.
    pub choose: &'a (dyn Fn(&[Candidate]) -> usize + Send + Sync),
}

impl std::fmt::Debug for Propagator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Propagator").field("options", &self.options).finish_non_exhaustive()
    }
}

/// An answer with its label.
#[derive(Debug)]
pub struct LabelledAnswer {
    /// The answer: generated from `documents` alone.
    pub answer: String,
    /// The label of the answer: the join of the labels of the question and of the documents.
    pub label: Label,
    /// The documents that it was generated from, by their indices in the context.
    pub documents: Vec<usize>,
    /// The label of the whole context: what the naive method gives.
    pub naive_label: Label,
    /// All labels that were found; the naive one alone if there is no better one.
    pub candidates: Vec<Candidate>,
    /// Whether the search was complete within its budget.
    pub is_complete: bool,
    /// An upper bound on what the choice of the label reveals about the other documents, in bits.
    pub choice_bits: usize,
    /// What scoring has cost.
    pub cost: Cost,
    /// The error of a model because of which the search or the second answer failed. The label is then the naive one.
    pub failure: Option<Error>,
}

/// The most elements of a lattice that are counted for [`LabelledAnswer::choice_bits`].
const COUNTED_ELEMENTS: usize = 4096;

impl Propagator<'_> {
    /// Answers with a label that is as permissive as the options allow. `completion` is the answer to the whole
    /// context, if the caller knows it; otherwise the model generates it. If the scoring model or the second answer
    /// fails, the result is the first answer with the naive label: the label of the whole context.
    ///
    /// # Errors
    /// If the model cannot answer from the whole context, or the documents have too many labels.
    pub async fn propagate(
        &self,
        context: &LabelledContext,
        completion: Option<&str>,
    ) -> Result<LabelledAnswer, Error> {
        let span = span_of(context)?;
        let order = order_by_label(&span);
        let first = match completion {
            Some(given) => given.to_owned(),
            None => self.answers.answer(&context.prompt(&order)).await?,
        };
        let naive_label = context.question_label.join(&span.label(span.top()));
        let naive = Candidate { label: naive_label, documents: span.documents(span.top()) };
        let choice_bits = choice_bits(&span);
        let mut result = LabelledAnswer {
            answer: first.clone(),
            label: naive_label,
            documents: naive.documents.clone(),
            naive_label,
            candidates: vec![naive],
            is_complete: false,
            choice_bits,
            cost: Cost::default(),
            failure: None,
        };
        if let Err(error) = self.improve(context, span, &first, &mut result).await {
            result.failure = Some(error);
        }
        Ok(result)
    }

    /// Searches labels, chooses one and answers again from its documents. `completion` is the first answer, by which
    /// the subcontexts are scored. Changes the answer in `result` only together with its label; leaves both if the
    /// chosen label has all documents, or the caller's choice is no index of a candidate.
    ///
    /// # Errors
    /// If a model fails. The caller then keeps the first answer.
    async fn improve(
        &self,
        context: &LabelledContext,
        span: LabelSpan,
        completion: &str,
        result: &mut LabelledAnswer,
    ) -> Result<(), Error> {
        let task =
            ScoringTask { model: self.scores, utility: self.utility, context, completion, count: self.count };
        let mut scorer = ContextScorer::new(task, span.clone()).await?;
        let found = find_labels(&mut scorer, &self.options).await;
        result.cost = scorer.cost();
        let found = found?;
        result.is_complete = found.is_complete;
        let candidate = |element: &_| Candidate {
            label: context.question_label.join(&span.label(*element)),
            documents: span.documents(*element),
        };
        result.candidates = found.elements.iter().map(candidate).collect();
        let Some(chosen) = result.candidates.get((self.choose)(&result.candidates)).cloned() else {
            return Ok(());
        };
        if chosen.documents == result.documents {
            return Ok(());
        }
        let answer = answer_at(self.answers, context, &chosen.label).await?;
        (result.answer, result.label, result.documents) = (answer, chosen.label, chosen.documents);
        Ok(())
    }
}

/// Answers from the documents whose labels flow to `bound`, and no others (Permissive Information-Flow Analysis,
/// section 6.1). The label is known beforehand, so nothing is searched, and no choice of a label reveals anything.
///
/// # Errors
/// If the model cannot answer, or the documents have too many labels.
pub async fn answer_at(
    model: &dyn AnswerModel,
    context: &LabelledContext,
    bound: &Label,
) -> Result<String, Error> {
    let span = span_of(context)?;
    let visible = span.documents(span.at(bound));
    let order: Vec<usize> =
        order_by_label(&span).into_iter().filter(|document| visible.contains(document)).collect();
    model.answer(&context.prompt(&order)).await
}

/// Returns the lattice of the labels of a question's documents.
///
/// # Errors
/// If the documents have too many labels.
fn span_of(context: &LabelledContext) -> Result<LabelSpan, Error> {
    LabelSpan::new(&context.labels()).map_err(|_| {
        Error::Failed(
            "the documents have more than 128 different labels; retrieve fewer documents".to_owned(),
        )
    })
}

/// Chooses a candidate: tries `bounds` in order, the most preferred first, and returns the index of the first candidate
/// whose label flows to the bound. If none flows to any bound, returns the index of the candidate with the fewest
/// documents, or 0 without candidates.
#[must_use]
pub fn prefer(candidates: &[Candidate], bounds: &[Label]) -> usize {
    let serves = |bound: &Label| candidates.iter().position(|candidate| candidate.label.flows_to(bound));
    let fewest = candidates.iter().enumerate().min_by_key(|(_, candidate)| candidate.documents.len());
    bounds.iter().find_map(serves).unwrap_or_else(|| fewest.map_or(0, |(index, _)| index))
}

/// Returns the most bits that the choice of a label can reveal: the binary logarithm of the number of elements of the
/// lattice, rounded up. If there are more than [`COUNTED_ELEMENTS`], returns the number of labels instead: an element
/// is a set of labels, so this many bits suffice to name one.
fn choice_bits(span: &LabelSpan) -> usize {
    let counted = span.elements(COUNTED_ELEMENTS);
    counted.map_or(span.labels().len(), |elements| elements.len().next_power_of_two().ilog2() as usize)
}
