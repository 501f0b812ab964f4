//! Defines the path of a region in the value of an event: keys, indices and captured groups. Reasons and regions print
//! paths, such as `arguments.to`.

use std::fmt;
use std::sync::Arc;

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathStep {
    /// The value under a key of a map.
    Key(Arc<str>),
    /// The n-th item of a list, from 0.
    Index(usize),
    /// The part of a text that a named group of a pattern matched.
    Capture(Arc<str>),
}

/// A path from the root of an event: `content[0].recipient`, `arguments.to`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(pub Vec<PathStep>);

impl fmt::Display for Path {
    /// Writes the steps as a policy does: `arguments.to[0]`. A key that is not a plain word is quoted in brackets, and
    /// the name of a captured part is in angle brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if is_plain(key) && i == 0 => write!(f, "{key}")?,
                PathStep::Key(key) if is_plain(key) => write!(f, ".{key}")?,
                PathStep::Key(key) => write!(f, "[{key:?}]")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Capture(name) => write!(f, "<{name}>")?,
            }
        }
        Ok(())
    }
}

/// Returns whether a key is printed without brackets and quotation marks.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_printed_as_policies_write_them() {
        let path = Path(vec![
            PathStep::Key("content".into()),
            PathStep::Index(2),
            PathStep::Key("City Hub".into()),
            PathStep::Capture("rating".into()),
        ]);
        assert_eq!(path.to_string(), "content[2][\"City Hub\"]<rating>");
    }
}
