//! Propagates labels permissively: an answer carries the labels of the documents that it needs, and not those of all
//! documents that were retrieved (*Permissive Information-Flow Analysis for Large Language Models*).
//!
//! A label is *similar* if the documents at or below it (its *subcontext*) give the answer a utility at most λ lower
//! than all documents do. A label search finds the least similar labels.
//!
//! | file | purpose |
//! |---|---|
//! | `search.rs` | defines a label search as a machine without I/O |
//! | `algorithm_1.rs` | implements Algorithm 1 exactly as in the paper |
//! | `hitting_set.rs` | finds the same labels in fewer tests, and states when they are the same |
//! | `shapley.rs` | computes Shapley values, exact or sampled: how much each label contributes to the utility |
//! | `utility.rs` | defines utilities of an answer, such as its negative perplexity |
//! | `prompt.rs` | builds the prompt of a question about labelled documents |
//! | `prefix_store.rs` | stores the beginnings of prompts that a model has evaluated |
//! | `scorer.rs` | scores subcontexts with shared beginnings and early stops, and counts the cost |
//! | `options.rs`, `find.rs` | define the options of a label search, and drive it with a model within a budget |
//! | `wrapper.rs` | answers a question at the label that the caller chooses: the wrapper around retrieval |
//! | `answers.rs` | lets chat models and local models answer for the wrapper |
//! | `knn.rs` | computes utilities with a kNN-LM, a language model that looks up documents by hidden states |
//! | `introspection.rs` | asks the model which documents its answer needs |
//! | `answer_cache.rs`, `question_form.rs` | store answers with their labels, for later questions that are similar in their words or in the vectors of a model |
//!
//! No guarded conversation uses this module by default. The influence methods `lambda`, `knn-lm` and `introspection`
//! use it. A program that wants an answer with a lower label calls [`Propagator`]. The answer depends only on the
//! documents at or below its label, but the choice of the label depends on all documents. The guarantee, which
//! [`wrapper`] states, is therefore weaker than noninterference.

mod algorithm_1;
pub mod answer_cache;
mod answers;
mod find;
pub mod hitting_set;
pub mod introspection;
pub mod knn;
mod options;
mod prefix_store;
mod prompt;
mod question_form;
mod scorer;
mod search;
pub mod shapley;
#[cfg(test)]
mod test_labels;
#[cfg(test)]
mod tests;
mod utility;
pub mod wrapper;

pub use algorithm_1::{Literal, minimal_labels};
pub use answer_cache::{AnswerCache, CachedAnswer};
pub use answers::{ChatAnswers, ContinuedAnswers};
pub use find::{find_labels, leave_one_in, loss_at};
pub use hitting_set::HittingSet;
pub use options::{Goal, PropagationOptions, SearchKind, ShapleyPruning};
pub use prompt::{LabelledContext, LabelledDocument, order_by_label};
pub use question_form::{QuestionForm, QuestionVector, QuestionWords};
pub use scorer::{ContextScorer, Cost, MAX_PREFIXES, ScoringTask, TokenCount};
pub use search::{LabelSearch, SimilarLabels, run_search};
pub use utility::{MeanLogProbability, NegativePerplexity, Utility, is_similar};
pub use wrapper::{AnswerModel, Candidate, LabelledAnswer, Propagator, answer_at, prefer};
