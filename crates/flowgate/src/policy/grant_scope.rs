//! Defines [`GrantScope`] and [`GrantClause`]: for how long, and for which values, the approval of a person may hold.
//! The parser reads them from the `grant` of a statement; the monitor and the programs that ask people comply with
//! them.

use std::fmt;

/// For how long a person's approval may hold, from the shortest to the longest: `grant ...` of a statement.
///
/// The enum is exhaustive on purpose: a program has to know what an approval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum GrantScope {
    /// For one call: the statement has no `grant`.
    #[default]
    Call,
    /// For equal calls of the rest of the conversation: `grant conversation`.
    Conversation,
    /// For equal calls of all conversations of the client, for at most this many days: `grant 30 days`.
    Days(u32),
    /// For equal calls of all conversations of the client, until the grant is withdrawn: `grant always`.
    Always,
}

/// The terms on which a person may approve calls that a statement asks about: `grant ...` of the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GrantClause {
    /// For how long the approval may hold.
    pub(crate) scope: GrantScope,
    /// Whether the approval may cover other values of the class that an endorsement describes: `by class`.
    pub(crate) is_by_class: bool,
}

impl GrantScope {
    /// Returns whether an approval may hold beyond its conversation.
    pub fn is_lasting(self) -> bool {
        self > Self::Conversation
    }
}

impl fmt::Display for GrantScope {
    /// Writes the scope in the words of the policy language: `conversation`, `30 days`. The scope of a statement
    /// without `grant` has no word there, and is written as `call`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call => f.write_str("call"),
            Self::Conversation => f.write_str("conversation"),
            Self::Days(1) => f.write_str("1 day"),
            Self::Days(days) => write!(f, "{days} days"),
            Self::Always => f.write_str("always"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GrantScope::{Always, Call, Conversation, Days};

    #[test]
    fn a_longer_scope_is_greater() {
        let scopes = [Call, Conversation, Days(1), Days(30), Always];
        assert!(scopes.is_sorted() && scopes.iter().filter(|scope| scope.is_lasting()).count() == 3);
    }
}
