//! Labels, traces, policies and the monitor.
pub mod label;
