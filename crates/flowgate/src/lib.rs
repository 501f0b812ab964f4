//! Labels, traces, policies and the monitor.
pub mod json;
pub mod label;
pub mod policy;
// pub mod trace;
