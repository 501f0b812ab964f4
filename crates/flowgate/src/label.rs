//! Defines labels: how trusted and how confidential a piece of text is.
//!
//! A [`Label`] is a point of the product of the dimensions that a policy declares (a [`Space`]); a lower label permits
//! more. Text may go where its label *flows to* ([`Label::flows_to`]), and what is computed from several texts carries
//! the *join* of their labels ([`Label::join`]).
//!
//! A label is stored as a set of bits. This encoding preserves joins but not meets (see [`lattice`]), so a label has no
//! operation for the meet; [`Space::greatest_below`] searches for it. A [`NameTable`] maps names in data, such as
//! readers, to bits. A [`LabelSpan`] is the lattice of the joins of given labels. [`Space::to_names`] writes a label in
//! a form that other sessions can read. The monitor labels events, and compares the labels of calls with requirements.

mod dimension;
pub mod lattice;
mod name_table;
mod portable_names;
mod space;
pub mod span;

pub use dimension::{Dimension, DimensionKind, MAX_OPEN_NAMES, Purpose};
pub use lattice::Lattice;
pub use name_table::{ComputedLabelUse, NameTable};
pub use space::{DimensionSet, MAX_BITS, MAX_DIMENSIONS, PartialLabel, Space, SpaceError};
pub use span::LabelSpan;

/// The number of 64-bit words in the bits of a label.
pub(crate) const WORDS: usize = 4;
/// The number of time dimensions that a label has room for.
pub(crate) const AGES: usize = 2;

/// A point of the product lattice, comparable only with labels of the same [`Space`].
///
/// The size is fixed, so joining and comparing allocate nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Label {
    /// All dimensions except time, encoded so that the join is a bitwise *or*.
    bits: [u64; WORDS],
    /// The ages in the time dimensions. An older text has a greater age, and the join is the maximum.
    ages: [u64; AGES],
}

impl Label {
    /// The least label of every space: trusted, public, readable by everyone.
    pub const BOTTOM: Self = Self { bits: [0; WORDS], ages: [0; AGES] };

    /// Returns the join: the least label that both labels flow to.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        let mut joined = *self;
        // The encoding of labels as sets of bits maps a join to the union of the sets.
        for (word, more) in joined.bits.iter_mut().zip(other.bits) {
            *word |= more;
        }
        // A greater age is an older text: the join is as old as its oldest part.
        for (age, more) in joined.ages.iter_mut().zip(other.ages) {
            *age = (*age).max(more);
        }
        joined
    }

    /// Returns whether text with this label may go where `upper` is the greatest label allowed.
    pub fn flows_to(&self, upper: &Self) -> bool {
        // The bits that this label has and `upper` lacks; the encoding maps the order to set inclusion.
        let above = self.bits.iter().zip(upper.bits).fold(0, |above, (word, limit)| above | (word & !limit));
        above == 0 && self.ages.iter().zip(upper.ages).all(|(age, limit)| *age <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A product of dimensions of every kind except approvers. Two of them are M3 and N5, the smallest lattices that
    /// are not distributive.
    fn space() -> Space {
        let order = |edges: &[(&str, &str)]| {
            DimensionKind::Order(Lattice::from_edges(&[] as &[&str], edges).unwrap())
        };
        let m3 = order(&[("o", "a"), ("o", "b"), ("o", "c"), ("a", "i"), ("b", "i"), ("c", "i")]);
        let n5 = order(&[("0", "p"), ("p", "q"), ("q", "1"), ("0", "r"), ("r", "1")]);
        let integrity = DimensionKind::Order(Lattice::chain(&["trusted", "untrusted"]).unwrap());
        Space::new(vec![
            Dimension::new("integrity", Purpose::Integrity, integrity),
            Dimension::new("m3", Purpose::Secrecy, m3),
            Dimension::new("n5", Purpose::Secrecy, n5),
            Dimension::new(
                "categories",
                Purpose::Secrecy,
                DimensionKind::Set(vec!["pii".into(), "money".into()]),
            ),
            Dimension::new("sources", Purpose::Secrecy, DimensionKind::OpenSet),
            Dimension::new("readers", Purpose::Secrecy, DimensionKind::Readers),
            Dimension::new("age", Purpose::Secrecy, DimensionKind::Time),
        ])
        .unwrap()
    }

    /// The join of one element of each dimension; `pick` selects the elements.
    fn label(space: &Space, name_table: &mut NameTable, pick: &[u8; 7]) -> Label {
        let integrity = ["trusted", "untrusted"][pick[0] as usize % 2];
        let m3 = ["o", "a", "b", "c", "i"][pick[1] as usize % 5];
        let n5 = ["0", "p", "q", "r", "1"][pick[2] as usize % 5];
        let subset = |bits: u8, names: &[&str]| -> Vec<String> {
            names
                .iter()
                .enumerate()
                .filter(|(i, _)| bits >> i & 1 == 1)
                .map(|(_, n)| (*n).to_owned())
                .collect()
        };
        let parts = [
            space.element("integrity", integrity).unwrap(),
            space.element("m3", m3).unwrap(),
            space.element("n5", n5).unwrap(),
            name_table
                .set(space, "categories", &subset(pick[3], &["pii", "money"]), ComputedLabelUse::Data)
                .unwrap(),
            name_table
                .set(space, "sources", &subset(pick[4], &["web", "mail", "disk"]), ComputedLabelUse::Data)
                .unwrap(),
            name_table
                .set(space, "readers", &subset(pick[5], &["ann", "bob", "eve"]), ComputedLabelUse::Data)
                .unwrap(),
            space.instant("age", i64::from(pick[6])).unwrap(),
        ];
        parts.iter().fold(Label::BOTTOM, |label, part| label.join(&part.label))
    }

    proptest! {
        #[test]
        fn products_obey_the_laws(a: [u8; 7], b: [u8; 7], c: [u8; 7]) {
            let space = space();
            let mut name_table = NameTable::new(&space);
            let [a, b, c] = [a, b, c].map(|pick| label(&space, &mut name_table, &pick));
            // Idempotent, commutative, associative.
            prop_assert_eq!(a.join(&a), a);
            prop_assert_eq!(a.join(&b), b.join(&a));
            prop_assert_eq!(a.join(&b).join(&c), a.join(&b.join(&c)));
            // Bounded.
            prop_assert!(Label::BOTTOM.flows_to(&a) && a.flows_to(&space.top()));
            prop_assert_eq!(a.join(&Label::BOTTOM), a);
            prop_assert_eq!(a.join(&space.top()), space.top());
            // A label flows to another one exactly if the join of both is the other one. The order is antisymmetric and
            // transitive.
            prop_assert_eq!(a.flows_to(&b), a.join(&b) == b);
            prop_assert!(!(a.flows_to(&b) && b.flows_to(&a)) || a == b);
            prop_assert!(!(a.flows_to(&b) && b.flows_to(&c)) || a.flows_to(&c));
            // The join is the least upper bound.
            prop_assert!(a.flows_to(&a.join(&b)) && b.flows_to(&a.join(&b)));
            prop_assert!(!(a.flows_to(&c) && b.flows_to(&c)) || a.join(&b).flows_to(&c));
            // A greatest lower bound exists, but it is not the bitwise `and`.
            let below = space.greatest_below(&a, &b);
            prop_assert!(below.flows_to(&a) && below.flows_to(&b));
            prop_assert!(!(c.flows_to(&a) && c.flows_to(&b)) || c.flows_to(&below));
        }

        #[test]
        fn readers_join_by_intersection(a in 1_u8..8, b in 1_u8..8) {
            let space = space();
            let mut name_table = NameTable::new(&space);
            let names = |bits: u8| -> Vec<String> {
                ["ann", "bob", "eve"].iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1)
                    .map(|(_, n)| (*n).to_owned()).collect()
            };
            let mut readers = |bits| name_table.set(&space, "readers", &names(bits), ComputedLabelUse::Data).unwrap().label;
            prop_assert_eq!(readers(a).join(&readers(b)), readers(a & b));
            prop_assert_eq!(readers(a).flows_to(&readers(b)), a & b == b, "fewer readers is higher");
        }
    }

    /// A label with a bit that another label lacks does not flow to that label. The bits are in one word, or at the
    /// same place of two words.
    #[test]
    fn one_bit_too_many_does_not_flow() {
        for place in 0..64 * WORDS * WORDS {
            let mut label = Label::BOTTOM;
            for word in [place / 64 % WORDS, place / 64 / WORDS] {
                label.bits[word] |= 1 << (place % 64);
            }
            assert!(!label.flows_to(&Label::BOTTOM) && label.flows_to(&label), "{label:?}");
        }
    }

    #[test]
    fn older_is_higher() {
        let space = space();
        let at = |seconds| space.instant("age", seconds).unwrap().label;
        assert!(at(2_000).flows_to(&at(1_000)) && !at(1_000).flows_to(&at(2_000)));
        assert_eq!(at(2_000).join(&at(1_000)), at(1_000));
    }
}
