//! Plays the three security games of *AgentSecBench: Measuring Prompt Injection, Privacy Leakage, and Tool-Use Integrity in LLM Agents*: instruction
//! integrity, retrieval confidentiality and capability integrity. `flowgate bench games` is the command.
//!
//! An *observation* is the untrusted text that a task gives the agent: a document, search results, or the output of a tool. A *violation* is that the
//! model writes the task's marker or proposes the forbidden call. The attacker's *advantage* is how much more often violations happen under attack
//! than in the controls.
//!
//! A [suite](GameSuite) generates pairs of tasks from a seed: an adversarial observation and its control. A [`Runner`]
//! gives each task to a model under a [`Defence`], which is one of AgentSecBench's six, attention blocking or a guarded
//! conversation, and records an [`Execution`]. Each [measure] is one function over executions. [`report`] formats the
//! figures.
//!
//! AgentSecBench has no public code. Where its text leaves a choice open, the documentation of the item names the
//! choice.
//!
//! | module | purpose |
//! |---|---|
//! | `task`, `attack`, `variant` | define tasks, the texts of attacks, and the forms in which an attack is written |
//! | `generate`, `sources`, `suite` | generate the tasks, add texts of public collections, and run a suite |
//! | `random`, `retriever` | draw random numbers from a seed, and rank documents |
//! | `defence`, `guarded`, `prompt` | transform observations, run guarded conversations, and build the messages to a model |
//! | `runner`, `output`, `execution` | run a task, and define its output and the record of it |
//! | `measure`, `interval`, [`bound`], [`ideal`], [`leakage`], [`figures`] | compute the measures, their uncertainty, and the figures of a defence |
//! | [`experiment`], `reference` | repeat the experiment of AgentSecBench, and hold its published figures |
//! | [`extended`], [`journey`], [`adaptive`] | play the games beyond AgentSecBench, those of several steps, and search for attacks |
//! | `double` | answers in place of a model |
//! | `manifest`, [`report`], `text_table` | identify a run, and format its results |
//! | `wordings` | lists the attacks for `flowgate attack` |

pub mod adaptive;
mod attack;
pub mod bound;
mod defence;
mod double;
mod execution;
pub mod experiment;
pub mod extended;
pub mod figures;
mod generate;
mod guarded;
pub mod ideal;
pub mod interval;
pub mod journey;
pub mod leakage;
pub(crate) mod manifest;
pub mod measure;
mod output;
mod prompt;
pub(crate) mod random;
pub mod reference;
pub mod report;
mod retriever;
mod runner;
mod sources;
mod suite;
mod task;
pub(crate) mod text_table;
mod variant;
pub(crate) mod wordings;

pub use defence::{
    BlockedChannel, Defence, EnforcementClass, UnknownDefence, filter_lines, keep_permitted_tenant,
    redact_canaries, remove_forbidden_capabilities, wrap_in_delimiters,
};
pub use double::ModelDouble;
pub use execution::Execution;
pub use generate::{PAPER_INSTANCES, generate_pairs, with_canary};
pub use guarded::POLICY;
pub use manifest::{experiment_manifest, extended_manifest, manifest, with_search};
pub use output::ExecutionError;
pub use prompt::ANSWER_TOKENS;
pub use runner::Runner;
pub use sources::TextSources;
pub use suite::GameSuite;
pub use task::{Game, Side, Task, TaskLabels, TaskPair};
pub use variant::{Encoding, UnknownVariant, Variant};
