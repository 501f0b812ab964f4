//! Finds kinds of content in a text by their form, such as secrets or shell commands, with detectors that the functions
//! of policies call.
//!
//! A detector finds only content that is written plainly. A text without findings is not proven harmless: its author
//! can spell a secret backwards. Rules that must hold use labels, with detectors in addition.
//!
//! * [`personal`]: e-mail and other addresses, numbers with check digits, names and places.
//! * [`secrets`](mod@secrets): keys and tokens by the formats of their issuers, and by entropy.
//! * [`python`] and [`shell`]: the imports, calls and effects of a piece of code.
//! * [`unicode`]: categories of characters, and text that is invisible to a reader.
//! * [`injection`]: phrases of prompt injections.
//! * [`markup`]: links, images and hidden parts of HTML and Markdown.
//! * [`licence`]: licences and copyright notices.
//! * [`fuzzy`]: approximate search.
//! * [`moderation`] and [`topic`]: categories of a text by word lists, as implementations of the trait [`Classifier`],
//!   which a model can implement instead.
//!
//! Every function here is total, takes time about linear in the text and returns at most [`MAX_FINDINGS`] findings.
//! Spans are byte ranges on character boundaries. `tests/detectors.rs` measures the accuracy of the detectors over a
//! labelled corpus.

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
    /// The kind, such as `EMAIL_ADDRESS`.
    pub kind: &'static str,
    /// The bytes of the finding.
    pub span: Range<usize>,
}
