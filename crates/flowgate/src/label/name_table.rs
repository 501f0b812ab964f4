//! Defines [`NameTable`], which maps names, such as those of readers, to the bits that represent them in labels. The
//! monitor has one table for its session, and computes labels from names with [`NameTable::set`].
//!
//! The policy lists the names of some dimensions (`set of a, b`). The names of an *open* dimension appear only in data:
//! bits are assigned to them as they appear, so the table is part of a session's state. No name is dropped, since
//! labels refer to its bit.

use std::collections::HashMap;

use super::dimension::{DimensionKind, MAX_OPEN_NAMES};
use super::space::{PartialLabel, Space};

/// The purpose of a label that is computed from names. It decides whether an unknown name rounds the label up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ComputedLabelUse {
    /// The label of data: rounding up is safe.
    Data,
    /// The greatest label that a requirement allows: rounding down is safe.
    Requirement,
}

/// The names known in each dimension that has names.
#[derive(Debug, Clone, Default)]
pub struct NameTable {
    /// The names of each dimension, by bit.
    names: Vec<Vec<String>>,
    /// The inverse of `names`.
    bits: Vec<HashMap<String, usize>>,
}

impl NameTable {
    /// Creates a table with the declared names of each set dimension. Open dimensions, such as readers, begin empty:
    /// their names are added as they appear.
    pub fn new(space: &Space) -> Self {
        let names: Vec<Vec<String>> = space
            .dimensions()
            .iter()
            .map(|dimension| match &dimension.kind {
                DimensionKind::Set(names) => names.clone(),
                _ => Vec::new(),
            })
            .collect();
        let bits = names
            .iter()
            .map(|list| list.iter().cloned().enumerate().map(|(i, n)| (n, i)).collect())
            .collect();
        Self { names, bits }
    }

    /// Returns the names known in the dimension with this index, by bit.
    pub fn names(&self, dimension: usize) -> &[String] {
        self.names.get(dimension).map_or(&[], Vec::as_slice)
    }

    /// Returns the bit of a name in the dimension with the index `dimension`. A new name gets the next free bit.
    /// Returns `None` for a new name if the policy itself lists the names of the dimension, or if no bit is free.
    fn intern_name(&mut self, space: &Space, dimension: usize, name: &str) -> Option<usize> {
        let bits = self.bits.get_mut(dimension)?;
        if let Some(bit) = bits.get(name) {
            return Some(*bit);
        }
        let names = self.names.get_mut(dimension)?;
        let declared = space.dimensions().get(dimension)?;
        if matches!(declared.kind, DimensionKind::Set(_)) || names.len() >= MAX_OPEN_NAMES {
            return None;
        }
        names.push(name.to_owned());
        bits.insert(name.to_owned(), names.len() - 1);
        Some(names.len() - 1)
    }

    /// Returns the label that a set of names has in the dimension called `dimension`. What the names are depends on the
    /// kind of the dimension: the elements of a set, the only principals who may read the text, or the people who must
    /// all approve.
    ///
    /// If a name cannot be represented, the label is rounded to the safe side: up for data, down for a requirement, as
    /// `label_use` says. A requirement computed from no names is bottom: an empty or absent address list is not a
    /// permission. Returns `None` if the dimension has no names, or if there is no such dimension.
    pub fn set(
        &mut self,
        space: &Space,
        dimension: &str,
        names: &[String],
        label_use: ComputedLabelUse,
    ) -> Option<PartialLabel> {
        let index = space.index(dimension)?;
        let kind = &space.dimensions().get(index)?.kind;
        let bits: Vec<Option<usize>> =
            names.iter().map(|name| self.intern_name(space, index, name)).collect();
        let known_bits = || bits.iter().flatten().copied();
        let has_unknown = bits.iter().any(Option::is_none);
        let bottom = || Some(space.dimension_bottom(index));
        let top = || Some(space.dimension_top(index));
        match (kind, label_use) {
            (
                DimensionKind::Set(_) | DimensionKind::OpenSet | DimensionKind::Approvers,
                ComputedLabelUse::Data,
            ) if has_unknown => top(),
            // Here, only a requirement can have a name without a bit. Such a name is left out, which permits less.
            (DimensionKind::Set(_) | DimensionKind::OpenSet | DimensionKind::Approvers, _) => {
                Some(space.dimension_bits(index, known_bits()))
            }
            (DimensionKind::Readers, ComputedLabelUse::Requirement) if has_unknown || names.is_empty() => {
                bottom()
            }
            // A bit of readers represents a name that may not read, and all bits except those of `names` are set. An
            // unknown name has no bit that could be excepted, so in a label of data it counts as one that may not read.
            (DimensionKind::Readers, _) => Some(space.dimension_bits_except(index, known_bits())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dimension, MAX_OPEN_NAMES, Purpose};
    use super::*;

    #[test]
    fn a_full_roster_rounds_to_the_safe_side() {
        let dimensions =
            ["sources", "readers"].into_iter().zip([DimensionKind::OpenSet, DimensionKind::Readers]);
        let space =
            Space::new(dimensions.map(|(n, k)| Dimension::new(n, Purpose::Secrecy, k)).collect()).unwrap();
        let mut name_table = NameTable::new(&space);
        let many: Vec<String> = (0..MAX_OPEN_NAMES).map(|i| format!("name{i}")).collect();
        let late = vec!["late".to_owned()];
        for (dimension, data_is_top, requirement_is_bottom) in
            [("sources", true, true), ("readers", true, true)]
        {
            name_table.set(&space, dimension, &many, ComputedLabelUse::Data).unwrap();
            let data = name_table.set(&space, dimension, &late, ComputedLabelUse::Data).unwrap();
            let requirement =
                name_table.set(&space, dimension, &late, ComputedLabelUse::Requirement).unwrap();
            let index = space.index(dimension).unwrap();
            assert_eq!(data == space.dimension_top(index), data_is_top, "{dimension}");
            assert_eq!(requirement == space.dimension_bottom(index), requirement_is_bottom, "{dimension}");
        }
    }

    #[test]
    fn a_requirement_for_no_reader_permits_nothing() {
        let space =
            Space::new(vec![Dimension::new("readers", Purpose::Secrecy, DimensionKind::Readers)]).unwrap();
        let mut name_table = NameTable::new(&space);
        let requirement = name_table.set(&space, "readers", &[], ComputedLabelUse::Requirement).unwrap();
        assert_eq!(requirement, space.dimension_bottom(0));
        let data = name_table.set(&space, "readers", &[], ComputedLabelUse::Data).unwrap();
        assert_eq!(data, space.dimension_top(0));
    }
}
