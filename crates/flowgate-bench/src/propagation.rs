//! Measures how well permissive labels are propagated: the evaluation of *Permissive Information-Flow Analysis for
//! Large Language Models*, sections 4 to 6, with doubles or a model of the user in place of its models.
//!
//! *Permissive* propagation gives an answer the join of the labels of only those documents that the answer needs. The
//! *naive* label is the join of the labels of all documents that were retrieved. `flowgate_guard::propagation` has the
//! methods; `flowgate bench propagation` runs this suite.
//!
//! The data of the publication is not public; the data sets of this suite follow its description. The ground truth of a
//! question, which is the set of its minimal labels, is computed from the facts that documents state. Figures of
//! doubles are bounds of the methods, not results of models.
//!
//! | file | purpose |
//! |---|---|
//! | `question.rs` | defines labelled documents, the facts that they state, questions, and the ground truth |
//! | `key_value.rs`, `news.rs`, `agent_set.rs` | generate or read the three data sets |
//! | `retrieve.rs`, `embeddings.rs` | find the documents for a question: by TF-IDF, by the vectors of a model |
//! | `double.rs` | implements test doubles of models that score texts, answer, and cite documents |
//! | `method.rs` | applies the methods that find labels |
//! | `tune.rs` | chooses λ, the loss of utility that a method tolerates, and the Shapley threshold, on questions that the report leaves out |
//! | `known_scores.rs` | caches scores, so that tuning scores each text once |
//! | `naive_tokens.rs` | counts the tokens of the naive algorithm, for comparison with those of the searches |
//! | `measure.rs`, `rouge.rs` | compare labels with the ground truth, and answers with the answers of the data set |
//! | `regenerate.rs` | generates answers again at the labels that were found, and measures attacks and endorsement by quoting |
//! | `model_run.rs` | runs the tables with a model in place of the doubles |
//! | `suite.rs`, `report.rs`, `drawing.rs`, `manifest.rs` | run all tables, print and draw them, and identify the run |
//! | `tables.rs`, `cells.rs`, `seed_results.rs` | build the tables, with means and ranges over several seeds |

mod agent_set;
mod cells;
pub mod double;
mod drawing;
mod embeddings;
pub mod key_value;
mod known_scores;
mod manifest;
pub mod measure;
pub mod method;
mod model_run;
mod naive_tokens;
pub mod news;
pub mod question;
pub mod regenerate;
pub mod report;
pub mod retrieve;
mod rouge;
mod seed_results;
mod suite;
mod tables;
pub mod tune;

pub use agent_set::{TOOLS, agent_questions};
pub use double::{AnswerDouble, CitingDouble, CopyModel, CopyingErrors};
pub(crate) use manifest::DOUBLE;
pub use manifest::{manifest, model_manifest};
pub use method::{LabelMethod, Models, SearchParameters, apply};
pub use model_run::{ModelResults, TunedSet};
pub use news::{NewsSet, Retriever};
pub use question::{DocumentQuestion, SourceDocument};
pub use regenerate::{Alignment, Degradation, DegradationAttack};
pub use rouge::rouge_l;
pub use suite::{DataSet, DoubleResults, LabelRow, LiteralCost, PropagationSuite, Size};
pub use tune::{GridPoint, LAMBDAS, tune};
