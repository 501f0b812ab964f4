//! Defines [`LocateError`]: why [`locate`](super::locate) cannot read a text as JSON, a Python literal or YAML. The code
//! that builds the document of an event uses the reason: prose is kept as plain text, but data with a repeated key, an
//! alias or too much nesting could be read differently by two parsers.

use std::fmt;
use std::ops::Range;

/// The reason why a text has no located structure. Never carries content of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocateError {
    /// The text is a scalar or prose, not a list or a map.
    NotStructured,
    /// The text violates the syntax of the notation.
    Syntax {
        /// The byte at or near which parsing stopped.
        offset: usize,
    },
    /// A map has the same key twice.
    DuplicateKey {
        /// The bytes that spell the second occurrence.
        span: Range<usize>,
    },
    /// The text shares nodes through YAML anchors or aliases.
    Alias {
        /// The byte at which the anchor or alias starts.
        offset: usize,
    },
    /// More than [`DEPTH_LIMIT`](super::DEPTH_LIMIT) lists and maps are open at once.
    TooDeep {
        /// The byte at which the innermost of them starts.
        offset: usize,
    },
    /// The text exceeds a limit on size: [`TEXT_LIMIT`](super::TEXT_LIMIT), [`NODE_LIMIT`](super::NODE_LIMIT), or
    /// the lower limit for YAML.
    TooLarge,
}

impl LocateError {
    /// Returns whether the text may still be valid in another notation.
    pub(super) fn may_be_other_notation(&self) -> bool {
        matches!(self, Self::NotStructured | Self::Syntax { .. })
    }
}

impl fmt::Display for LocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStructured => write!(f, "the text is not a list or a map"),
            Self::Syntax { offset } => write!(f, "the text has a syntax error at byte {offset}"),
            Self::DuplicateKey { span } => {
                write!(f, "the text repeats a key of the same map at bytes {} to {}", span.start, span.end)
            }
            Self::Alias { offset } => {
                write!(f, "the text has an anchor or an alias at byte {offset}, which is not supported")
            }
            Self::TooDeep { offset } => {
                write!(f, "the lists and maps at byte {offset} are nested more than 64 deep")
            }
            Self::TooLarge => {
                write!(
                    f,
                    "the text exceeds a limit for parsing: 200000 values, or 16777216 bytes (1048576 for YAML)"
                )
            }
        }
    }
}

impl std::error::Error for LocateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_lower_case_line() {
        for why in [
            LocateError::NotStructured,
            LocateError::Syntax { offset: 1 },
            LocateError::DuplicateKey { span: 1..2 },
            LocateError::Alias { offset: 1 },
            LocateError::TooDeep { offset: 1 },
            LocateError::TooLarge,
        ] {
            let line = why.to_string();
            assert_eq!(line.replace("YAML", "yaml"), line.to_lowercase());
            assert!(!line.contains('\n'));
        }
    }
}
