//! Joins labels and models: which regions of the context a call depends on, and what follows from it.
//!
//! An [influence method](influence) answers the first question; [`replay`] asks it for every call of a recorded
//! run and lets the monitor judge.

#![deny(clippy::disallowed_methods, reason = "the guard does its I/O through traits")]

pub mod influence;
pub mod replay;
