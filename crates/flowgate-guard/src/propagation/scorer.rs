//! Scores a completion (the answer in question) in a context (the question with its documents) and in its subcontexts
//! (the question with the documents at or below one label). Label searches compare these scores. The scorer also counts
//! what scoring costs.
//!
//! The scorer saves work in four ways. Subcontexts share the evaluation of their common beginnings ([`Prefix`]).
//! Several subcontexts are passed to the model in one batch. The scoring of a subcontext stops as soon as its utility
//! is certain to be too low. And a subcontext that was scored to its end is not scored again.

use std::collections::BTreeMap;

use flowgate::label::LabelSpan;
use flowgate::label::span::SpanElement;
use flowgate_lm::{Error, Prefix, ScoreRequest, ScoringModel};

use super::prefix_store::PrefixStore;
use super::prompt::{LabelledContext, order_by_label};
use super::utility::Utility;

/// The most beginnings whose evaluation is stored for reuse. Without room, the least recently used is dropped.
pub const MAX_PREFIXES: usize = 256;

/// A function that counts the tokens of a text, for [`Cost`].
pub type TokenCount<'a> = dyn Fn(&str) -> usize + Send + Sync + 'a;

/// What a search has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Texts that the model scored.
    pub calls: usize,
    /// Calls in which scoring stopped early.
    pub stopped: usize,
    /// Tokens of prompts and completions that the calls would process one by one.
    pub unshared_tokens: usize,
    /// Tokens that are processed: of each shared beginning once, of the rest of each prompt, and of each completion as
    /// far as it was scored.
    pub processed_tokens: usize,
    /// Tokens of the whole context with the completion: one forward pass.
    pub forward_tokens: usize,
}

/// What a scorer scores.
#[derive(Clone, Copy)]
pub struct ScoringTask<'a> {
    /// The model.
    pub model: &'a dyn ScoringModel,
    /// The utility of a score.
    pub utility: &'a dyn Utility,
    /// The question and its documents.
    pub context: &'a LabelledContext,
    /// The completion that is scored (y in the paper).
    pub completion: &'a str,
    /// Counts tokens.
    pub count: &'a TokenCount<'a>,
}

impl std::fmt::Debug for ScoringTask<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScoringTask").field("utility", &self.utility.name()).finish_non_exhaustive()
    }
}

/// Scores the subcontexts of one context.
#[derive(Debug)]
pub struct ContextScorer<'a> {
    task: ScoringTask<'a>,
    span: LabelSpan,
    /// The documents in the order of the prompt.
    order: Vec<usize>,
    /// The evaluated beginnings.
    prefixes: PrefixStore,
    /// Utilities of elements that were scored to the end.
    utilities: BTreeMap<SpanElement, f64>,
    /// For each element whose scoring stopped early, a bound: the utility of the element is below it.
    below: BTreeMap<SpanElement, f64>,
    /// The number of tokens of the completion, known once one text was scored to the end.
    completion_length: usize,
    cost: Cost,
}

impl<'a> ContextScorer<'a> {
    /// Creates a scorer, and scores the whole context, with which subcontexts are compared.
    ///
    /// # Errors
    /// If the model cannot score it.
    pub async fn new(task: ScoringTask<'a>, span: LabelSpan) -> Result<Self, Error> {
        let order = order_by_label(&span);
        let mut scorer = Self {
            task,
            span,
            order,
            prefixes: PrefixStore::new(MAX_PREFIXES),
            utilities: BTreeMap::new(),
            below: BTreeMap::new(),
            completion_length: 0,
            cost: Cost::default(),
        };
        let whole = task.context.prompt(&scorer.order);
        scorer.cost.forward_tokens = (task.count)(&whole) + (task.count)(task.completion);
        let top = scorer.span.top();
        scorer.utilities(&[top]).await?;
        Ok(scorer)
    }

    /// Returns the lattice of the documents' labels.
    #[must_use]
    pub fn span(&self) -> &LabelSpan {
        &self.span
    }

    /// Returns the utility of the whole context.
    #[must_use]
    pub fn context_utility(&self) -> f64 {
        // `new` has scored the whole context, so the fallback is never used.
        self.utilities.get(&self.span.top()).copied().unwrap_or(f64::NAN)
    }

    /// Returns whether an element was scored to the end, so that its utility costs nothing more.
    pub(super) fn has_scored(&self, element: SpanElement) -> bool {
        self.utilities.contains_key(&element)
    }

    /// Returns the cost so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the utility of each element: of the subcontext that it represents, scored to the end.
    ///
    /// # Errors
    /// If the model cannot score one.
    pub async fn utilities(&mut self, elements: &[SpanElement]) -> Result<Vec<f64>, Error> {
        let unknown: Vec<_> = elements.iter().filter(|e| !self.utilities.contains_key(e)).copied().collect();
        self.score(&unknown, None).await?;
        // `score` has stored each utility, so the fallback is never used.
        Ok(elements.iter().map(|element| self.utilities.get(element).copied().unwrap_or(f64::NAN)).collect())
    }

    /// Returns for each element the utility of its subcontext, or `None` if the utility is below `least`. Is faster
    /// than [`utilities`](Self::utilities), because the scoring of such an element stops early.
    ///
    /// # Errors
    /// If the model cannot score one.
    pub async fn utilities_from(
        &mut self,
        elements: &[SpanElement],
        least: f64,
    ) -> Result<Vec<Option<f64>>, Error> {
        // The utility of an element whose scoring stopped early is below the stored bound, so it is also below any
        // `least` that is not lower than this bound.
        let is_known = |e: &SpanElement| {
            self.utilities.contains_key(e) || self.below.get(e).is_some_and(|bound| *bound <= least)
        };
        let unknown: Vec<_> = elements.iter().filter(|e| !is_known(e)).copied().collect();
        self.score(&unknown, Some(least)).await?;
        let utility = |element: &SpanElement| self.utilities.get(element).copied().filter(|u| *u >= least);
        Ok(elements.iter().map(utility).collect())
    }

    /// Scores elements in one batch, and stores their utilities. The scoring of an element stops early once its
    /// utility is certain to be below `least`; then only that is stored.
    ///
    /// # Errors
    /// If the model cannot score an element, or returns another number of scores.
    async fn score(&mut self, elements: &[SpanElement], least: Option<f64>) -> Result<(), Error> {
        if elements.is_empty() {
            return Ok(());
        }
        // The sum of log-probabilities below which the utility is certain to be below `least`.
        let bound = least.and_then(|least| self.task.utility.bound(least, self.completion_length));
        let mut prefixes = Vec::with_capacity(elements.len());
        for element in elements {
            prefixes.push(self.prefix(*element).await?);
        }
        let request = |prefix| ScoreRequest {
            prefix: Some(prefix),
            prompt: &self.task.context.question,
            continuation: self.task.completion,
            bound,
        };
        let requests: Vec<ScoreRequest<'_>> = prefixes.iter().map(request).collect();
        let scores = self.task.model.score_batch(&requests).await?;
        if scores.len() != elements.len() {
            return Err(Error::Unsupported(
                "the model did not return one score for each text; use another model",
            ));
        }
        let question = (self.task.count)(&self.task.context.question);
        for ((element, prefix), score) in elements.iter().zip(&prefixes).zip(scores) {
            // The tokens of the prompt and the completion, as if nothing were shared with other subcontexts.
            let whole = (self.task.count)(prefix.text()) + question + (self.task.count)(self.task.completion);
            self.cost.calls += 1;
            self.cost.unshared_tokens += whole;
            // The tokens of the model need not be those that `count` counts.
            let scored = if score.is_stopped {
                let texts: String = score.tokens.iter().map(|token| token.text.as_str()).collect();
                (self.task.count)(&texts)
            } else {
                (self.task.count)(self.task.completion)
            };
            self.cost.processed_tokens += question + scored;
            if score.is_stopped {
                self.cost.stopped += 1;
                // Scoring stops early only if there is a `bound`, so only if there is a `least`.
                self.below.insert(*element, least.unwrap_or(f64::NEG_INFINITY));
            } else {
                // The bound of later scorings needs this number.
                self.completion_length = score.tokens.len();
                self.utilities.insert(*element, self.task.utility.of(&score));
            }
        }
        Ok(())
    }

    /// Returns the evaluated beginning of the prompt for an element: the preamble and the documents of the element.
    /// Adds one document at a time, and evaluates and stores each beginning that is not stored yet, so that the prompts
    /// of other elements can share it.
    ///
    /// # Errors
    /// If the model cannot evaluate the text.
    async fn prefix(&mut self, element: SpanElement) -> Result<Prefix, Error> {
        let documents = self.span.documents(element);
        // The documents of the element in the order of the prompt.
        let path: Vec<usize> =
            self.order.iter().copied().filter(|document| documents.contains(document)).collect();
        let mut parent: Option<Prefix> = None;
        self.prefixes.begin_prompt();
        for length in 0..=path.len() {
            let key = path.get(..length).unwrap_or_default();
            if let Some(known) = self.prefixes.get(key) {
                parent = Some(known);
                continue;
            }
            let text = match key.last() {
                Some(document) => self.task.context.document_text(*document),
                None => self.task.context.preamble.clone(),
            };
            let prefix = self.task.model.prefix(parent.as_ref(), &text).await?;
            self.cost.processed_tokens += (self.task.count)(&text);
            self.prefixes.insert(key, prefix.clone());
            parent = Some(prefix);
        }
        // The loop has run at least once, for the preamble, so the fallback is never used.
        Ok(parent.unwrap_or_else(|| Prefix::new(None, "", None)))
    }
}
