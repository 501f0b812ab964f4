//! Labels, traces, policies and the monitor.
mod builtin;
pub mod detect;
mod eval;
pub mod json;
pub mod label;
pub mod monitor;
pub mod policy;
pub mod trace;
