//! Connects labels and models: what a model may be shown, what a call depends on, and what label the results carry.
//!
//! Live, a [`conversation`] shows the model a [`view`] at a label and judges the calls that it generates; a [`method`]
//! chooses the label, and an [`agent`] drives a conversation with real models, tools and people. Over a log, an
//! [influence method](influence) determines what each call depends on; [`replay`] applies it to every call of a
//! recorded run, and the monitor judges the call. [`propagation`] answers questions about labelled documents with
//! labels that are as low as possible.
//!
//! The algorithms come from two papers: *RTBAS: Defending LLM Agents Against Prompt Injection and Privacy Leakage*, and
//! *Permissive Information-Flow Analysis for Large Language Models*.

#![deny(clippy::disallowed_methods, reason = "the guard does its I/O through traits")]

pub mod agent;
pub mod approve;
pub mod arguments;
mod canonical_json;
mod catalogue;
mod clearance;
pub mod conversation;
pub mod history;
pub mod influence;
pub mod journal;
pub mod links;
pub mod method;
mod placeholder;
pub mod propagation;
pub mod redact;
mod refusal;
pub mod replay;
mod requested_format;
pub mod screener;
pub mod slot;
pub mod trace_lines;
pub mod view;

pub use catalogue::{DescriptionAuthor, OfferedTool};
pub use requested_format::FORMAT_ROLE;
