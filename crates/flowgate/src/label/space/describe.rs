//! Prints labels as the names that their policy gives to elements, such as `untrusted` or `readers(ann, bob)`.

use super::super::dimension::DimensionKind;
use super::super::{Label, NameTable};
use super::{DimensionSet, Space, has_bit};

impl Space {
    /// Returns one phrase for each dimension of `dims`: the name of the element, or the names in the set.
    pub fn describe(&self, label: &Label, dims: DimensionSet, roster: &NameTable) -> Vec<String> {
        let indices = (0..self.dimensions.len()).filter(|index| dims.has(*index));
        indices.filter_map(|index| self.describe_dimension(label, index, roster)).collect()
    }

    /// Returns the phrase for one dimension of a label, such as `readers(ann)`. A set is described by the names whose
    /// bits are set, readers by those whose bits are not.
    fn describe_dimension(&self, label: &Label, index: usize, roster: &NameTable) -> Option<String> {
        let dimension = self.dimensions.get(index)?;
        let offset = *self.offsets.get(index)?;
        let bits: Vec<bool> = (offset..offset + dimension.width()).map(|bit| has_bit(label, bit)).collect();
        let name = &dimension.name;
        let (all, none) = (bits.iter().all(|bit| *bit), bits.iter().all(|bit| !bit));
        let names = |set: bool| {
            let known = roster.names(index).iter().zip(&bits).filter(|(_, bit)| **bit == set);
            let mut known: Vec<String> = known.map(|(name, _)| escaped_name(name)).collect();
            // The order of the names in the roster differs between sessions.
            known.sort();
            known.join(", ")
        };
        Some(match &dimension.kind {
            DimensionKind::Order(lattice) => lattice.element(&bits).unwrap_or("?").to_owned(),
            DimensionKind::OpenSet if all => format!("any {name}"),
            DimensionKind::Set(_) | DimensionKind::OpenSet => format!("{name}({})", names(true)),
            DimensionKind::Readers if none => format!("{name}: everyone"),
            DimensionKind::Readers if all => format!("{name}: nobody"),
            DimensionKind::Readers => format!("{name}({})", names(false)),
            DimensionKind::Time => match label.ages.get(offset).copied().unwrap_or(u64::MAX) {
                0 => format!("{name}: always fresh"),
                u64::MAX => format!("{name}: unknown"),
                key => format!("{name}({})", i64::MAX.wrapping_sub(key as i64)),
            },
        })
    }
}

/// Prints a name that may come from data, escaped and shortened so that it cannot mislead the reader.
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
        let mut roster = NameTable::new(&space);
        let parts = [
            space.element("integrity", "partner").unwrap(),
            roster.set(&space, "categories", &["money".to_owned()], ComputedLabelUse::Data).unwrap(),
            roster
                .set(&space, "readers", &["ann".to_owned(), "bob".to_owned()], ComputedLabelUse::Data)
                .unwrap(),
            space.instant("age", 86_400).unwrap(),
        ];
        let label = parts.iter().fold(Label::BOTTOM, |label, part| label.join(&part.label));
        let described = |label: &Label| space.describe(label, space.all(), &roster).join("; ");
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
