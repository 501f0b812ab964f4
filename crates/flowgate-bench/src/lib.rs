//! Measures the guard's methods: suites, attacks, metrics and reports.
//!
//! [`agents`] runs a capable and gullible agent over tasks with injected instructions, and measures what each
//! method of the guard permits, how many questions it asks, and what it costs. The model is a test double
//! that performs each task in the best way and follows every instruction in its view, so the figures show
//! what a method guarantees and permits, independently of a model's abilities.
//!
//! [`games`] plays the security games of AgentSecBench with the defences of that paper and with guarded conversations, and
//! measures channel closure, adversarial advantage, leakage and benign utility.

pub mod agents;
pub mod games;
mod screening;
