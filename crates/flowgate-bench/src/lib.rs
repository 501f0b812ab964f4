//! Measures the guard's methods: suites, attacks, metrics and reports.
//!
//! [`agents`] runs a capable and gullible agent over tasks with injected instructions, and measures what each
//! method of the guard permits, how many questions it asks, and what it costs. The model is a test double
//! that performs each task without mistakes and follows every instruction in its view, so the figures show
//! what a method guarantees and permits, independently of a model's abilities.
//!
//! [`games`] plays the security games of AgentSecBench with the defences of that paper and with guarded conversations, and
//! measures channel closure, adversarial advantage, leakage and benign utility.
//!
//! [`privacy`] runs the privacy-leak tasks of RTBAS, and measures missed and needless questions, utility, and whether a question names
//! exactly the private data that a call discloses.
//!
//! [`propagation`] lets methods choose labels for answers to questions about documents, as *Permissive Information-Flow Analysis for Large Language
//! Models* does. It measures how often a label is exactly the one that the answer needs, the improvement over the join of all labels, the cost, and
//! how well regenerated answers agree with the original ones.
//!
//! [`corpora`] reads public benchmarks from a folder of the user, and measures what a drafted policy decides on their cases.
//!
//! [`saliency`] measures how well the attention and the gradients of a model tell on which regions of a prompt an output depends. [`detection`] measures
//! detectors of injections on labelled texts, and [`detectors`] compares detectors with a flow rule on customer feedback with attacks.
//!
//! [`wordings`] lists the injections of the benchmarks, for `flowgate attack`.
//!
//! `flowgate bench` is the command. It can record a run in a file. [`verify`] repeats a recorded run, and [`compare`] draws the figures of several
//! recorded runs on one HTML page. [`document`] builds a JSON document from the lines of a run. [`cost`] counts the requests of a run in advance,
//! [`tokens`] counts the tokens of a double, and [`statistics`] tests whether a difference between two defences can be chance. [`line_chart()`]
//! draws the loss of a training.

pub mod agents;
mod code;
pub mod compare;
pub mod corpora;
pub mod cost;
pub mod detection;
pub mod detectors;
pub mod document;
pub mod games;
mod html;
mod line_chart;
mod policy_errors;
pub mod privacy;
pub mod propagation;
mod rate_columns;
mod rounding;
pub mod saliency;
mod screening;
pub mod statistics;
pub mod tokens;
pub mod verify;
pub mod wordings;

pub use line_chart::line_chart;
