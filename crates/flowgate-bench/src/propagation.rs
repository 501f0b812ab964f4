//! Measures how well permissive labels are propagated: the evaluation of *Permissive Information-Flow Analysis for Large Language
//! Models*, sections 4 to 6, with doubles in place of its models.
//!
//! *Permissive* propagation gives an answer the labels of the documents that it needs, and not the join of the labels of all documents that were
//! retrieved, which is the naive label. `flowgate_guard::propagation` has the methods; `flowgate bench propagation` runs this suite.
//!
//! The paper's data is not public; the data sets of this suite follow its description. The ground truth of a question, which is the set of its
//! minimal labels, is computed from the facts that documents state. Doubles show bounds of the methods, not results of models.
//!
//! | file | purpose |
//! |---|---|
//! | `question.rs` | labelled documents, the facts that they state, questions, and the ground truth |
//! | `key_value.rs`, `news.rs`, `agent_set.rs` | the three data sets |
//! | `retrieve.rs` | finds the documents for a question by TF-IDF |
//! | `double.rs` | test doubles of models that score texts, answer, and cite documents |
//! | `method.rs`, `tune.rs` | the methods that find labels, and the choice of λ, the tolerated loss of utility, on questions outside the report |
//! | `measure.rs`, `rouge.rs` | compare labels with the ground truth, and answers with the answers of the data set |
//! | `regenerate.rs` | answers that are generated again at their label, attacks on them, and endorsement by quoting |
//! | `suite.rs`, `report.rs`, `manifest.rs` | runs all tables, prints them, and identifies the run |

mod agent_set;
pub mod double;
pub mod key_value;
mod manifest;
pub mod measure;
pub mod method;
pub mod news;
pub mod question;
pub mod regenerate;
pub mod report;
pub mod retrieve;
mod rouge;
mod suite;
pub mod tune;

pub use agent_set::{TOOLS, agent_questions};
pub use double::{AnswerDouble, CitingDouble, CopyModel, Copying, count_words};
pub use manifest::manifest;
pub use method::{LabelMethod, Models, Parameters, apply};
pub use news::{NewsSet, Retriever};
pub use question::{Question, SourceDocument};
pub use regenerate::{Alignment, Degradation};
pub use rouge::rouge_l;
pub use suite::{DataSet, DoubleResults, LabelRow, LiteralCost, PropagationSuite, Size};
pub use tune::{GridPoint, tune};
