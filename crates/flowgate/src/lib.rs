//! The pure heart of Flowgate, an information-flow firewall for LLM agents.
//!
//! * [`label`]: how trusted and how secret a text is; a product of lattices declared by the policy.
//! * [`trace`]: what happened, as labelled pieces: messages, calls and answers of one or several agents.
//! * [`analysis`]: rules over finished traces; [`predicates`]: what the embedding program answers.
//! * [`policy`]: the language in which labels, requirements and rules are written.
//! * [`monitor`]: labels what happens, judges what is about to, and is the only maker of a
//!   [`Permit`](monitor::Permit).
//!
//! Nothing here does I/O, reads a clock or draws a random number: the same policy and the same events give the same
//! verdicts. What it deliberately lacks: a notion of which region influenced a call (it is told, see
//! [`Attribution`](monitor::Attribution)), a way to lower secrecy, and a meet of labels.
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
//! A permit cannot be made up, so nothing runs that was not judged:
//!
//! ```compile_fail
//! let permit = flowgate::monitor::Permit { .. };
//! ```
//!
//! and cannot be used twice:
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
pub mod detect;
mod eval;
pub mod json;
pub mod label;
pub mod monitor;
pub mod occurrence;
pub mod policy;
pub mod predicates;
mod rules;
pub mod trace;
