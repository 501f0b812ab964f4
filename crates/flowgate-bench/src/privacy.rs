//! Measures whether a defence asks a person before private data reaches a tool, and only then: the privacy-leak suite
//! of RTBAS (*RTBAS: Defending LLM Agents Against Prompt Injection and Privacy Leakage*, sections 8.2 and 8.3.1).
//!
//! RTBAS's tasks are not public; the 37 tasks of this suite follow its description. Each call of a task has an *oracle
//! label*, written by hand: the categories of private data that the call discloses. A person has to confirm the call if
//! there are any.
//!
//! [`read`] reads the tasks, and [`check`] validates them and their oracle labels. `flowgate bench privacy` runs a
//! [`PrivacySuite`]: its [`PrivacyRunner`] runs each task under a [`PrivacyDefence`] with the tools of a [`world`],
//! with an [`AgentDouble`] or a model as the agent. [`measure`] judges the runs, and [`report`] formats the figures.

mod attention;
mod chat;
pub mod check;
mod defence;
mod definitions;
mod double;
mod manifest;
pub mod measure;
pub mod read;
pub mod reference;
pub mod report;
mod run;
mod runner;
pub mod seeds;
mod suite;
pub mod task;
mod turn;
mod unmeasured;
mod value;
pub mod world;

pub use attention::unread;
pub use defence::{OURS, PrivacyDefence, UnknownPrivacyDefence};
pub use double::{AgentDouble, RegionChoice};
pub(crate) use manifest::DOUBLE;
pub use manifest::{manifest, with_screener};
pub use run::{AnswerSource, CategorizedCall, PersonDouble, PrivacyRun, RunError};
pub use runner::PrivacyRunner;
pub use suite::{DefenceResults, PrivacySuite, SeedResults, TaskGroup};
pub use turn::ANSWER_TOKENS;
pub use unmeasured::Unmeasured;

#[cfg(test)]
mod walkthrough;
