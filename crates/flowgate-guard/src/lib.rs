//! Connects labels and models: decides what a model may be shown and what a call depends on, and which label the
//! results carry. The command line, the gateway, the MCP proxy, the Python package and the benchmarks embed this crate.
//!
//! In a live [`conversation`], the model is shown a [`view`] at a label, and the monitor judges the calls that the
//! model generates. A [`method`] chooses the label; some methods ask a [`screener`]. [`redact`] hides the regions that
//! do not flow to the label, and a [`slot`] lets the model pass them on unread. An [`agent`] drives a conversation with
//! real models and tools, and with people who decide on [approvals](approve).
//!
//! Around a conversation, [`history`] compares the chat that a client sends with the chat of its session, [`arguments`]
//! rejects ambiguous names of arguments, and [`links`] disarms addresses in replies. A [`journal`] records the inputs,
//! so that the conversation can be replayed.
//!
//! For a recorded run, an [influence method](influence) determines what each call depends on, and [`replay`] has the
//! monitor judge every call. [`trace_lines`] writes the events of a session as JSON lines. [`propagation`] answers
//! questions about labelled documents with labels that are as low as possible.
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
