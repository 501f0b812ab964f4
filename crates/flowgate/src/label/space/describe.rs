//! Describes labels in the words of the policy, such as `untrusted` or `readers(ann, bob)`. The monitor calls
//! [`Space::describe`] when it writes a reason or a question, and the Python package calls it to show a label.

use super::super::dimension::DimensionKind;
use super::super::{Label, NameTable};
use super::{DimensionSet, Space, has_bit};

impl Space {
    /// Returns one phrase for each dimension of `dims`: the name of the element, or the names in the set.
    pub fn describe(&self, label: &Label, dims: DimensionSet, name_table: &NameTable) -> Vec<String> {
        let indices = (0..self.dimensions.len()).filter(|index| dims.has(*index));
        indices.filter_map(|index| self.describe_dimension(label, index, name_table)).collect()
    }

    /// Returns the phrase for one dimension of a label, such as `readers(ann)`; `None` if there is no dimension with
    /// this index. A set is described by the names whose bits are set. Readers are described by the names whose bits
    /// are not set, since a set bit represents a name that may not read. A time is described by its number of seconds
    /// after the Unix epoch.
    fn describe_dimension(&self, label: &Label, index: usize, name_table: &NameTable) -> Option<String> {
        let dimension = self.dimensions.get(index)?;
        let offset = *self.offsets.get(index)?;
        let bits: Vec<bool> = (offset..offset + dimension.width()).map(|bit| has_bit(label, bit)).collect();
        let name = &dimension.name;
        let (all_set, none_set) = (bits.iter().all(|bit| *bit), bits.iter().all(|bit| !bit));
        // The names whose bits are set or, for `set` false, those whose bits are not set.
        let names = |set: bool| {
            let known = name_table.names(index).iter().zip(&bits).filter(|(_, bit)| **bit == set);
            let mut known: Vec<String> = known.map(|(name, _)| escaped_name(name)).collect();
            // The order of the names in the name table differs between sessions.
            known.sort();
            known.join(", ")
        };
        Some(match &dimension.kind {
            // The bits of a label of this space are always the embedding of an element.
            DimensionKind::Order(lattice) => lattice.element(&bits).unwrap_or("?").to_owned(),
            DimensionKind::OpenSet | DimensionKind::Approvers if all_set => format!("any {name}"),
            DimensionKind::Set(_) | DimensionKind::OpenSet | DimensionKind::Approvers => {
                format!("{name}({})", names(true))
            }
            DimensionKind::Readers if none_set => format!("{name}: everyone"),
            DimensionKind::Readers if all_set => format!("{name}: nobody"),
            DimensionKind::Readers => format!("{name}({})", names(false)),
            // For a time, the offset is the index of its age, not of a bit.
            DimensionKind::Time => match label.ages.get(offset).copied().unwrap_or(u64::MAX) {
                0 => format!("{name}: always fresh"),
                u64::MAX => format!("{name}: unknown"),
                // An age is `i64::MAX` minus the time of the value, so that the join, a maximum, keeps the oldest.
                age => format!("{name}({})", i64::MAX.wrapping_sub(age as i64)),
            },
        })
    }
}

/// Returns a name that may come from data, shortened to 40 characters and escaped so that it cannot mislead the reader.
fn escaped_name(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    let ellipsis = if short.len() < name.len() { "…" } else { "" };
    format!("{}{ellipsis}", short.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::super::super::{ComputedLabelUse, Dimension, Lattice, Purpose};
    use super::*;

    #[test]
    fn labels_are_described_by_their_elements() {
        let space = Space::new(vec![
            Dimension::new(
                "integrity",
                Purpose::Secrecy,
                DimensionKind::Order(Lattice::chain(&["trusted", "partner", "untrusted"]).unwrap()),
            ),
            Dimension::new(
                "categories",
                Purpose::Secrecy,
                DimensionKind::Set(vec!["pii".into(), "money".into()]),
            ),
            Dimension::new("readers", Purpose::Secrecy, DimensionKind::Readers),
            Dimension::new("age", Purpose::Secrecy, DimensionKind::Time),
        ])
        .unwrap();
        let mut name_table = NameTable::new(&space);
        let parts = [
            space.element("integrity", "partner").unwrap(),
            name_table.set(&space, "categories", &["money".to_owned()], ComputedLabelUse::Data).unwrap(),
            name_table
                .set(&space, "readers", &["ann".to_owned(), "bob".to_owned()], ComputedLabelUse::Data)
                .unwrap(),
            space.instant("age", 86_400).unwrap(),
        ];
        let label = parts.iter().fold(Label::BOTTOM, |label, part| label.join(&part.label));
        let described = |label: &Label| space.describe(label, space.all(), &name_table).join("; ");
        assert_eq!(described(&label), "partner; categories(money); readers(ann, bob); age(86400)");
        assert_eq!(described(&Label::BOTTOM), "trusted; categories(); readers: everyone; age: always fresh");
        assert_eq!(
            described(&space.top()),
            "untrusted; categories(money, pii); readers: nobody; age: unknown"
        );
    }
    #[test]
    fn long_names_are_shortened() {
        for (length, expected) in [(40, "a".repeat(40)), (41, format!("{}…", "a".repeat(40)))] {
            assert_eq!(escaped_name(&"a".repeat(length)), expected);
        }
    }
}
