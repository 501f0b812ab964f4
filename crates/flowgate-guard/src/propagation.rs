//! Propagates labels permissively: an answer carries the labels of the documents that it needs, and not those of all documents
//! that were retrieved (*Permissive Information-Flow Analysis for Large Language Models*).
//!
//! | file | purpose |
//! |---|---|
//! | `search.rs` | a label search as a machine without I/O |
//! | `algorithm_1.rs` | Algorithm 1 exactly as in the paper |
//! | `hitting_set.rs` | finds the same labels in fewer tests, and says when they are the same |
//! | `shapley.rs` | Shapley values of labels (how much each label contributes to the utility), exact and sampled |
//! | `utility.rs`, `prompt.rs` | utilities such as negative perplexity; the prompt of a question about labelled documents |
//! | `scorer.rs` | scores subcontexts with shared beginnings and early stops, and counts the cost |
//! | `options.rs`, `find.rs` | drives a search with a model, within a budget |
//! | `wrapper.rs` | answers at the chosen label: the wrapper around retrieval |
//! | `knn.rs` | utilities of the kNN-LM architecture, a language model that looks up documents by their hidden states |
//! | `introspection.rs` | the model says which documents it needs |
//! | `answer_cache.rs` | keeps answers with their labels for later questions that are similar |
//!
//! Nothing here is a default of a guarded conversation. A program that wants an answer with a lower label calls [`Propagator`], and its
//! guarantee is in [`wrapper`]: what is returned depends on the documents at or below its label, and the choice of the label on
//! all of them. λ-similarity is not noninterference.

mod algorithm_1;
pub mod answer_cache;
mod find;
pub mod hitting_set;
pub mod introspection;
pub mod knn;
mod options;
mod prompt;
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
pub use find::{find_labels, leave_one_in, loss_at};
pub use hitting_set::HittingSet;
pub use options::{Goal, PropagationOptions, SearchKind, ShapleyPruning};
pub use prompt::{LabelledContext, LabelledDocument, order_by_label};
pub use scorer::{ContextScorer, Cost, MAX_PREFIXES, ScoringTask, TokenCount};
pub use search::{LabelSearch, SimilarLabels, run_search};
pub use utility::{MeanLogProbability, NegativePerplexity, Utility, is_similar};
pub use wrapper::{AnswerModel, Candidate, Propagated, Propagator, answer_at, prefer};
