//! Defines sets of arguments of a call. A region of an answer has such a set: the arguments on which the region does not
//! depend (`independent of arguments`). The compiler numbers the argument names in these declarations, and a set has
//! one bit for each name.

/// A set of arguments: all of them, or those with some names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ArgumentSet {
    /// The lowest bit represents all arguments, and the bit `n + 1` the arguments whose name has the number `n`.
    bits: u32,
}

impl ArgumentSet {
    /// The empty set.
    pub(crate) const NONE: Self = Self { bits: 0 };
    /// All arguments, whatever their names.
    pub(crate) const ALL: Self = Self { bits: 1 };
    /// The number of names that a set can distinguish. Every region of every event has a set, so sets are kept small.
    pub(crate) const MAX_NAMES: usize = 31;

    /// Returns the set of the argument whose name has this number. `None` if the number is not below
    /// [`MAX_NAMES`](Self::MAX_NAMES).
    pub(crate) fn of_name(number: usize) -> Option<Self> {
        (number < Self::MAX_NAMES).then(|| Self { bits: 1 << (number + 1) })
    }

    /// Returns the set of the arguments in one of the sets.
    pub(crate) fn union(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits }
    }

    /// Returns whether the set contains every argument in `other`. The set of all arguments does.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.bits & Self::ALL.bits != 0 || self.bits & other.bits == other.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_was_added() {
        let [first, last] =
            [0, ArgumentSet::MAX_NAMES - 1].map(|number| ArgumentSet::of_name(number).unwrap());
        assert_eq!(ArgumentSet::of_name(ArgumentSet::MAX_NAMES), None);
        assert!(first.contains(first) && !first.contains(last) && !first.contains(ArgumentSet::ALL));
        assert!(first.union(last).contains(last) && ArgumentSet::ALL.contains(last));
        assert!(!ArgumentSet::NONE.contains(first) && ArgumentSet::NONE.contains(ArgumentSet::NONE));
    }
}
