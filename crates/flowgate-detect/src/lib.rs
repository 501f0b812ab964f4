//! Finds kinds of content in a text, such as secrets or shell commands, by their form. The built-in functions of the
//! policy language call these detectors.
//!
//! A detector finds only content that is written plainly. A text without findings is not proven harmless: its author
//! can spell a secret backwards. Rules that must hold use labels, with detectors in addition.
//!
//! * [`personal`] finds e-mail and other addresses, numbers with check digits, names and places.
//! * [`secrets`](mod@secrets) finds keys and tokens by the formats of their issuers, and by entropy.
//! * [`python`] and [`shell`] find the imports, calls and harmful effects of a piece of code, and [`tool_script`] the
//!   calls of tools in a program that a model writes.
//! * [`unicode`] finds categories of characters, and text that is invisible to a reader.
//! * [`injection`] finds phrases of prompt injections.
//! * [`markup`] finds links, images and hidden parts of HTML and Markdown.
//! * [`licence`] finds licences and copyright notices.
//! * [`fuzzy`] finds a query in a text although some characters differ.
//! * [`moderation`] and [`topic`] classify a text by word lists. They implement the trait [`Classifier`], which a model
//!   can implement instead.
//!
//! The private modules `pattern` and `lexicon` serve the detectors: `pattern` matches tables of regular expressions,
//! and `lexicon` scores texts by word lists. Every function of this crate is total, takes time about linear in the text
//! and returns at most [`MAX_FINDINGS`] findings. Spans are byte ranges on character boundaries. `tests/detectors.rs`
//! measures the accuracy of the detectors over a labelled corpus.

#![deny(clippy::disallowed_methods, reason = "detectors do no I/O and read no clock")]

pub mod fuzzy;
pub mod injection;
mod lexicon;
pub mod licence;
pub mod markup;
pub mod moderation;
mod pattern;
pub mod personal;
pub mod python;
pub mod secrets;
pub mod shell;
pub mod tool_script;
pub mod topic;
pub mod unicode;

use std::ops::Range;

pub use lexicon::{Classifier, Lexicon};
pub use personal::{emails, personal_data};
pub use secrets::secrets;

/// Maximum number of findings that one detector reports about one text.
pub const MAX_FINDINGS: usize = 10_000;

/// A finding in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the rule or class that found it, such as `EMAIL_ADDRESS`. It is a text and not an enumeration, since
    /// the tables of the detectors have hundreds of rows, each with a name of its own.
    pub kind: &'static str,
    /// The bytes of the finding.
    pub span: Range<usize>,
}
