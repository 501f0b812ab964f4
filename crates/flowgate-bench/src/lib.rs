//! Suites, attacks, metrics and reports.
//!
//! [`agents`] runs an agent that is capable and gullible over tasks in which strangers have written instructions, and
//! measures what each method of the guard lets happen, what it asks about and what it costs. The model is a test
//! double: it makes the best of every task and obeys everything that it reads, so the figures say what a method
//! guarantees and allows, not how clever a model is.

pub mod agents;
