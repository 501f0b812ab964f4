//! Detectors: what a text contains, judged by its form.
//!
//! A detector finds what is written plainly. It proves nothing about what it does not find: whoever writes the text
//! can spell a secret backwards. Rules that must hold use labels, and detectors on top.
//!
//! * [`personal`]: addresses, numbers with check digits, names and places.
//! * [`secrets`](mod@secrets): keys and tokens by the rules of those who issue them, and by entropy.
//! * [`python`] and [`shell`]: what a piece of code imports, calls and would do.
//! * [`unicode`]: categories of characters, and text that a reader does not see.
//! * [`injection`]: phrases of prompt injections.
//! * [`markup`]: links, images and hidden parts of HTML and Markdown.
//! * [`licence`]: licences and copyright notices.
//! * [`fuzzy`]: approximate search.
//! * [`moderation`] and [`topic`]: word lists, behind the trait [`Classifier`] that a model can take over.
//!
//! Every function here is total, takes time about linear in the text and returns at most [`MAX_FINDINGS`] findings.
//! Spans are byte ranges on character boundaries. How often the detectors are right is measured by
//! `tests/detectors.rs` over a labelled corpus.

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

/// The most findings that one detector reports about one text.
pub const MAX_FINDINGS: usize = 10_000;

/// Something found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is, such as `EMAIL_ADDRESS`.
    pub kind: &'static str,
    /// Its bytes.
    pub span: Range<usize>,
}
