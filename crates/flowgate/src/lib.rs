//! The pure core of Flowgate, an information-flow firewall for LLM agents.
//!
//! * [`label`]: how trusted and how confidential a text is; a product of lattices that the policy declares.
//! * [`trace`]: the record of what happened, as labelled events: messages, calls and outputs of one or
//!   several agents.
//! * [`analysis`]: rules over finished traces; [`predicates`]: predicates that the embedding program answers.
//! * [`detect`]: the crate `flowgate-detect`, whose detectors policies call.
//! * [`policy`]: the language in which labels, requirements and rules are written.
//! * [`monitor`]: labels events, judges calls before they run, and is the only module that creates a
//!   [`Permit`](monitor::Permit).
//!
//! Nothing here does I/O, reads a clock or draws a random number: the same policy and the same events give
//! the same verdicts. The core deliberately has no notion of which region influenced a call (the caller
//! supplies an [`Attribution`](monitor::Attribution)), no way to declassify, and no meet of labels.
//!
//! ```
//! use std::sync::Arc;
//! use flowgate::monitor::{Monitor, Verdict};
//! use flowgate::policy::Policy;
//! use flowgate::trace::{Call, Tool};
//!
//! let policy = Policy::parse("\
//! lattice integrity: trusted < untrusted
//! require trusted if:
//!     (call: ToolCall) is tool:send_money
//! ").map_err(|diagnostics| diagnostics[0].to_string())?;
//! let mut monitor = Monitor::new(Arc::new(policy));
//!
//! // Nothing untrusted has been seen yet.
//! let call = Call::from_json("c1", Tool::local("send_money"), r#"{"to": "ann"}"#);
//! let Verdict::Permit(permit) = monitor.judge(call) else { panic!() };
//! let running = monitor.redeem(permit).map_err(|_| "the call must not run")?;
//! assert_eq!(running.arguments_json(), r#"{"to":"ann"}"#);
//! # Ok::<(), String>(())
//! ```
//!
//! A permit cannot be constructed outside the monitor, so no call runs that was not judged:
//!
//! ```compile_fail
//! let permit = flowgate::monitor::Permit { .. };
//! ```
//!
//! and it cannot be used twice:
//!
//! ```compile_fail
//! # use flowgate::monitor::{Monitor, Permit};
//! fn twice(monitor: &mut Monitor, permit: Permit) {
//!     let _ = monitor.redeem(permit);
//!     let _ = monitor.redeem(permit);
//! }
//! ```

#![deny(clippy::disallowed_methods, reason = "the core does no I/O and reads no clock")]

pub mod analysis;
mod builtin;
mod eval;
pub mod json;
pub mod label;
pub mod monitor;
pub mod occurrence;
pub mod policy;
pub mod predicates;
mod rules;
pub mod trace;
mod value;

pub use flowgate_detect as detect;
