//! Converts labels to a portable form and back ([`Space::to_names`], [`Space::from_names`]), to pass them to another
//! session or to persist them. The form consists of names, which have the same meaning in every session, while the bits
//! of a label do not. The monitor converts labels in this way for programs such as the gateway. The Python package also
//! converts them itself, with the space of a policy, to represent labels outside of a session.
//!
//! ```json
//! {"integrity": "untrusted", "sources": ["web"], "readers": ["ann"], "age": 1716076800}
//! ```
//!
//! A dimension at its top (all elements of a set, no readers, an unknown age) is written `"top"`. Readers at the bottom
//! are written `"everyone"`, and a time at the bottom `"fresh"`. A value that is missing or malformed is read as top,
//! so a restored label is never lower than the original.

use serde_json::{Map, Value};

use super::Label;
use super::dimension::DimensionKind;
use super::name_table::{ComputedLabelUse, NameTable};
use super::space::{DimensionSet, Space};

/// The name of the greatest element of a dimension.
const TOP: &str = "top";

impl Space {
    /// Returns a label as a JSON object with one entry for each dimension: an element, a list of names, a time, or
    /// `TOP`. A part of the label that has no portable name is written as `TOP`, which permits least.
    pub fn to_names(&self, label: &Label, name_table: &NameTable) -> Value {
        let mut names = Map::new();
        for (index, dimension) in self.dimensions().iter().enumerate() {
            let part = self.restrict(label, DimensionSet::single(index));
            let value = if part == self.dimension_top(index).label {
                Value::from(TOP)
            } else {
                match &dimension.kind {
                    DimensionKind::Order(lattice) => {
                        let is_its_label = |name: &&String| {
                            self.element(&dimension.name, name).is_some_and(|element| element.label == part)
                        };
                        lattice.names().iter().find(is_its_label).map_or(TOP, String::as_str).into()
                    }
                    DimensionKind::Time => self.seconds(&part, index).map_or(Value::from(TOP), Value::from),
                    DimensionKind::Set(_)
                    | DimensionKind::OpenSet
                    | DimensionKind::Readers
                    | DimensionKind::Approvers => {
                        self.set_names(&part, index, name_table).map_or(Value::from(TOP), Value::from)
                    }
                }
            };
            names.insert(dimension.name.clone(), value);
        }
        Value::Object(names)
    }

    /// Returns the label that these names represent. A dimension whose names are missing or malformed becomes top, and
    /// a name that cannot be represented rounds its dimension up, so the result is never lower than the original label.
    pub fn from_names(&self, names: &Value, name_table: &mut NameTable) -> Label {
        let mut label = Label::BOTTOM;
        for (index, dimension) in self.dimensions().iter().enumerate() {
            let list_of_texts = |value: &Value| -> Option<Vec<String>> {
                value.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
            };
            // The text `top` counts as missing, which makes the dimension top. Only an order may have an element of
            // this name; it is looked up below.
            let is_top = |value: &Value| {
                value.as_str() == Some(TOP) && !matches!(dimension.kind, DimensionKind::Order(_))
            };
            let value = names.get(&dimension.name).filter(|value| !is_top(value));
            // `None` if the value is missing or malformed.
            let part = value.and_then(|value| match &dimension.kind {
                DimensionKind::Order(_) => self.element(&dimension.name, value.as_str()?),
                DimensionKind::Time if value.as_str() == Some("fresh") => Some(self.dimension_bottom(index)),
                DimensionKind::Time => self.instant(&dimension.name, value.as_i64()?),
                DimensionKind::Readers if value.as_str() == Some("everyone") => {
                    Some(self.dimension_bottom(index))
                }
                // The names are those of a label of data, so unknown names round it up.
                DimensionKind::Set(_)
                | DimensionKind::OpenSet
                | DimensionKind::Readers
                | DimensionKind::Approvers => {
                    name_table.set(self, &dimension.name, &list_of_texts(value)?, ComputedLabelUse::Data)
                }
            });
            label = label.join(&part.unwrap_or_else(|| self.dimension_top(index)).label);
        }
        label
    }

    /// Returns the names of the label `part` in the dimension at `index`: the elements of a set, the readers, or the
    /// approvers. If everyone may read, the result is the text `"everyone"`. `None` if no list of names represents the
    /// label exactly, for example because the bit for unknown names is set.
    fn set_names(&self, part: &Label, index: usize, name_table: &NameTable) -> Option<Value> {
        let kind = &self.dimensions().get(index)?.kind;
        if *kind == DimensionKind::Readers && *part == Label::BOTTOM {
            return Some("everyone".into());
        }
        // A copy of the table, since `NameTable::set` may add names.
        let mut scratch = name_table.clone();
        let name = &self.dimensions().get(index)?.name;
        let mut chosen: Vec<String> = name_table
            .names(index)
            .iter()
            .filter(|known| {
                let one = scratch.set(self, name, &[(*known).clone()], ComputedLabelUse::Data);
                one.is_some_and(|one| match kind {
                    // A principal is a reader if the label flows to the label of text that only this principal may
                    // read.
                    DimensionKind::Readers => part.flows_to(&one.label),
                    _ => one.label.flows_to(part),
                })
            })
            .cloned()
            .collect();
        // The order of the names in the name table differs between sessions.
        chosen.sort();
        // Checks that the names give the label back.
        let restored = scratch.set(self, name, &chosen, ComputedLabelUse::Data)?;
        (restored.label == *part).then(|| chosen.into())
    }

    /// Returns the time that `part`, a label, has in the time dimension at `index`: a number of seconds after the Unix
    /// epoch, or `"fresh"` for text that is always fresh. `None` for an unknown time, and if there is no such
    /// dimension.
    fn seconds(&self, part: &Label, index: usize) -> Option<Value> {
        match self.age(part, index)? {
            0 => Some("fresh".into()),
            u64::MAX => None,
            // The inverse of `Space::instant`, which stores `i64::MAX - seconds` as an unsigned number.
            age => Some(i64::MAX.wrapping_sub(i64::from_ne_bytes(age.to_ne_bytes())).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Dimension, Lattice, Purpose};
    use super::*;

    fn space() -> Space {
        let chain = |names: &[&str]| DimensionKind::Order(Lattice::chain(names).unwrap());
        Space::new(vec![
            Dimension::new("integrity", Purpose::Integrity, chain(&["trusted", "untrusted"])),
            Dimension::new("top", Purpose::Secrecy, chain(&["low", "top"])),
            Dimension::new("kinds", Purpose::Secrecy, DimensionKind::Set(vec!["pii".into(), "money".into()])),
            Dimension::new("sources", Purpose::Secrecy, DimensionKind::OpenSet),
            Dimension::new("readers", Purpose::Secrecy, DimensionKind::Readers),
            Dimension::new("age", Purpose::Secrecy, DimensionKind::Time),
        ])
        .unwrap()
    }

    proptest! {
        #[test]
        fn names_bring_a_label_back(picks: [u8; 6], order in any::<bool>()) {
            let space = space();
            let mut name_table = NameTable::new(&space);
            let subset = |pick: u8, names: &[&str]| -> Vec<String> {
                names.iter().enumerate().filter(|(i, _)| pick >> i & 1 == 1).map(|(_, n)| (*n).to_owned()).collect()
            };
            let parts = [
                space.element("integrity", ["trusted", "untrusted"][usize::from(picks[0] % 2)]).unwrap(),
                space.element("top", ["low", "top"][usize::from(picks[1] % 2)]).unwrap(),
                name_table.set(&space, "kinds", &subset(picks[2], &["pii", "money"]), ComputedLabelUse::Data).unwrap(),
                name_table.set(&space, "sources", &subset(picks[3], &["web", "mail"]), ComputedLabelUse::Data).unwrap(),
                name_table.set(&space, "readers", &subset(picks[4], &["ann", "bob", "eve"]), ComputedLabelUse::Data).unwrap(),
                space.instant("age", i64::from(picks[5])).unwrap(),
            ];
            let label = parts.iter().fold(Label::BOTTOM, |label, part| label.join(&part.label));
            let names = space.to_names(&label, &name_table);
            prop_assert_eq!(space.from_names(&names, &mut name_table), label, "{}", names);
            // Another session has the same names, but its name table has them in another order.
            let mut other = NameTable::new(&space);
            if order {
                other.set(&space, "readers", &["eve".into(), "zoe".into()], ComputedLabelUse::Data);
                other.set(&space, "sources", &["disk".into(), "mail".into()], ComputedLabelUse::Data);
            }
            let back = space.from_names(&names, &mut other);
            prop_assert_eq!(space.to_names(&back, &other), names);
        }
    }

    #[test]
    fn an_unreadable_label_is_top() {
        let space = space();
        let mut name_table = NameTable::new(&space);
        for names in [Value::Null, serde_json::json!({"integrity": "odd", "kinds": [1], "age": "old"})] {
            assert_eq!(space.from_names(&names, &mut name_table), space.top(), "{names}");
        }
        assert_eq!(
            space.from_names(&space.to_names(&Label::BOTTOM, &name_table), &mut name_table),
            Label::BOTTOM
        );
        assert_eq!(
            space.from_names(&space.to_names(&space.top(), &name_table), &mut name_table),
            space.top()
        );
    }
}
