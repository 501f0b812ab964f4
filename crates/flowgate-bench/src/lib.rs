//! Suites, attacks, metrics and reports.
//!
//! [`agents`] runs a capable and gullible agent over tasks with injected instructions, and measures what each method of the guard
//! permits, asks and costs. The model is a test double that does each task in the best way and obeys every instruction that it
//! reads, so the figures show what a method guarantees and permits, independent of a model's abilities.

pub mod agents;
