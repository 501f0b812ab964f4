//! Defines [`Space`], the product of a policy's dimensions, and the layout of the dimensions in the bits of a label.
//! Each operation on labels that needs to know the dimensions, such as a restriction to some of them, is a method of
//! [`Space`]. The compiler creates the space of a policy, and the monitor computes labels with it. `describe` writes
//! labels as text.

mod describe;

use std::fmt;

use super::dimension::{Dimension, DimensionKind, Purpose};
use super::{AGES, Label, WORDS};

/// The most bits that all dimensions of a policy may take together.
pub const MAX_BITS: usize = WORDS * 64;
/// The most dimensions that a policy may declare.
pub const MAX_DIMENSIONS: usize = 32;

/// A set of dimensions, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DimensionSet(u32);

impl DimensionSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set of the one dimension with this index; the empty set for an index of [`MAX_DIMENSIONS`] or more.
    pub fn single(index: usize) -> Self {
        Self(1_u32.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0))
    }

    /// Returns whether the dimension with this index is in the set.
    pub fn has(self, index: usize) -> bool {
        self.0 & Self::single(index).0 != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the dimensions of this set that are not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A label that is defined in some dimensions only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialLabel {
    /// The dimensions in which the label is defined.
    pub dims: DimensionSet,
    /// The value in these dimensions; bottom in all others.
    pub label: Label,
}

impl PartialLabel {
    /// The label that is defined in no dimension.
    pub const NONE: Self = Self { dims: DimensionSet::NONE, label: Label::BOTTOM };

    /// Returns the join. It is defined in each dimension in which one of the two labels is defined.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self { dims: self.dims.union(other.dims), label: self.label.join(&other.label) }
    }
}

/// The reason why dimensions do not form a label space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceError {
    /// The index of the dimension that does not fit.
    pub dimension: usize,
    /// The problem, as one sentence.
    pub message: String,
    /// The advice to the author of the policy.
    pub help: &'static str,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SpaceError {}

/// The product of the dimensions of one policy: the lattice of which its labels are points.
#[derive(Debug, Clone, Default)]
pub struct Space {
    dimensions: Vec<Dimension>,
    /// For each dimension, its mask: top in this dimension, bottom in all others.
    masks: Vec<Label>,
    /// For each dimension, the index of its first bit in a label; for a time dimension, the index of its age.
    offsets: Vec<usize>,
    top: Label,
}

impl Space {
    /// Creates the product of dimensions, and assigns to each its bits of a label, or one of the fields for time.
    ///
    /// # Errors
    /// If there are more than [`MAX_DIMENSIONS`], or they need more room than a [`Label`] has.
    pub fn new(dimensions: Vec<Dimension>) -> Result<Self, SpaceError> {
        let mut space = Self::default();
        let (mut next_bit, mut next_age) = (0, 0);
        for (index, dimension) in dimensions.iter().enumerate() {
            // The error names the first dimension that exceeds a limit.
            let too_much = |message: String, help| SpaceError { dimension: index, message, help };
            if index >= MAX_DIMENSIONS {
                let message = format!("the policy declares more than {MAX_DIMENSIONS} dimensions");
                return Err(too_much(message, "replace some of them by one dimension, such as a set"));
            }
            // The mask of a dimension is top in this dimension, and bottom in all others.
            let mut mask = Label::BOTTOM;
            if dimension.kind == DimensionKind::Time {
                let Some(age) = mask.ages.get_mut(next_age) else {
                    let message = format!("the policy declares more than {AGES} time dimensions");
                    return Err(too_much(message, "remove one `time` dimension"));
                };
                *age = u64::MAX;
                space.offsets.push(next_age);
                next_age += 1;
            } else {
                let width = dimension.width();
                if next_bit + width > MAX_BITS {
                    let message = format!("the dimensions need more than {MAX_BITS} bits");
                    return Err(too_much(
                        message,
                        "an order needs about one bit for each element, a set one bit for each name: declare \
                        fewer of them",
                    ));
                }
                for bit in next_bit..next_bit + width {
                    set_bit(&mut mask, bit);
                }
                space.offsets.push(next_bit);
                next_bit += width;
            }
            space.top = space.top.join(&mask);
            space.masks.push(mask);
        }
        space.dimensions = dimensions;
        Ok(space)
    }

    /// Returns the dimensions, in order of declaration.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// Returns the index of the dimension with this name; `None` if the policy declares none.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.dimensions.iter().position(|d| d.name == name)
    }

    /// Returns all dimensions.
    pub fn all(&self) -> DimensionSet {
        (0..self.dimensions.len())
            .fold(DimensionSet::NONE, |dims, index| dims.union(DimensionSet::single(index)))
    }

    /// Returns the dimensions that express integrity.
    pub fn integrity(&self) -> DimensionSet {
        let indices = self.dimensions.iter().enumerate().filter(|(_, d)| d.purpose == Purpose::Integrity);
        indices.fold(DimensionSet::NONE, |dims, (index, _)| dims.union(DimensionSet::single(index)))
    }

    /// Returns the dimensions whose names are people who must approve.
    pub fn approvers(&self) -> DimensionSet {
        let indices = self.dimensions.iter().enumerate().filter(|(_, d)| d.kind == DimensionKind::Approvers);
        indices.fold(DimensionSet::NONE, |dims, (index, _)| dims.union(DimensionSet::single(index)))
    }

    /// Returns the most bits of information that the choice of a label can reveal: the binary logarithm of the number
    /// of labels, rounded up for each dimension.
    pub fn bits(&self) -> usize {
        let bits = |dimension: &Dimension| match &dimension.kind {
            DimensionKind::Order(lattice) => lattice.names().len().next_power_of_two().ilog2() as usize,
            DimensionKind::Time => 64,
            DimensionKind::Set(_)
            | DimensionKind::OpenSet
            | DimensionKind::Readers
            | DimensionKind::Approvers => dimension.width(),
        };
        self.dimensions.iter().map(bits).sum()
    }

    /// Returns top, the greatest label. Text that no statement labels has this label by default.
    pub fn top(&self) -> Label {
        self.top
    }

    /// Returns the element `name` of the order called `dimension`; `None` if there is no such order or element.
    pub fn element(&self, dimension: &str, name: &str) -> Option<PartialLabel> {
        let index = self.index(dimension)?;
        let DimensionKind::Order(lattice) = &self.dimensions.get(index)?.kind else { return None };
        // A label represents an element by the bits of its embedding.
        let image = lattice.embedding(name)?;
        let set = image.iter().enumerate().filter(|(_, set)| **set).map(|(bit, _)| bit);
        Some(self.dimension_bits(index, set))
    }

    /// Returns the label of text that was written at a time, `seconds` after the Unix epoch, in the time dimension
    /// called `dimension`. `None` if there is no such time dimension.
    pub fn instant(&self, dimension: &str, seconds: i64) -> Option<PartialLabel> {
        let index = self.index(dimension)?;
        if self.dimensions.get(index)?.kind != DimensionKind::Time {
            return None;
        }
        // An older text has a greater age; 0 is reserved for "always fresh" and the maximum for an unknown time. For a
        // negative time, the difference wraps, and is correct as an unsigned number.
        let age = (i64::MAX.wrapping_sub(seconds) as u64).clamp(1, u64::MAX - 1);
        let mut label = Label::BOTTOM;
        *label.ages.get_mut(*self.offsets.get(index)?)? = age;
        Some(PartialLabel { dims: DimensionSet::single(index), label })
    }

    /// Returns the least element of one dimension.
    pub fn dimension_bottom(&self, index: usize) -> PartialLabel {
        PartialLabel { dims: DimensionSet::single(index), label: Label::BOTTOM }
    }

    /// Returns the greatest element of one dimension; top in all dimensions if there is none with this index.
    pub fn dimension_top(&self, index: usize) -> PartialLabel {
        PartialLabel {
            dims: DimensionSet::single(index),
            label: self.masks.get(index).copied().unwrap_or(self.top),
        }
    }

    /// Returns the partial label in which `bits` of one dimension are set. A bit is given by its number in the
    /// dimension, from 0.
    pub(super) fn dimension_bits(&self, index: usize, bits: impl Iterator<Item = usize>) -> PartialLabel {
        let mut label = Label::BOTTOM;
        let offset = self.offsets.get(index).copied().unwrap_or(0);
        bits.for_each(|bit| set_bit(&mut label, offset + bit));
        PartialLabel { dims: DimensionSet::single(index), label }
    }

    /// Returns the partial label in which all bits of one dimension are set except `bits`. A bit is given by its number
    /// in the dimension, from 0.
    pub(super) fn dimension_bits_except(
        &self,
        index: usize,
        bits: impl Iterator<Item = usize>,
    ) -> PartialLabel {
        let mut partial = self.dimension_top(index);
        let except = self.dimension_bits(index, bits).label;
        for (word, off) in partial.label.bits.iter_mut().zip(except.bits) {
            *word &= !off;
        }
        partial
    }

    /// Returns the age that a label stores in the time dimension with this index: 0 for "always fresh", `u64::MAX` for
    /// an unknown time, otherwise `i64::MAX` minus the time in seconds. `None` if there is no such dimension.
    pub(super) fn age(&self, label: &Label, index: usize) -> Option<u64> {
        label.ages.get(*self.offsets.get(index)?).copied()
    }

    /// Returns a label that equals `label` in `dims` and is bottom in all other dimensions.
    pub fn restrict(&self, label: &Label, dims: DimensionSet) -> Label {
        let mut restricted = Label::BOTTOM;
        // The mask of a dimension has all bits of the dimension set, and all bits of its age.
        for (_, mask) in self.masks.iter().enumerate().filter(|(index, _)| dims.has(*index)) {
            for ((word, source), mask) in restricted.bits.iter_mut().zip(label.bits).zip(mask.bits) {
                *word |= source & mask;
            }
            for ((age, source), mask) in restricted.ages.iter_mut().zip(label.ages).zip(mask.ages) {
                *age |= source & mask;
            }
        }
        restricted
    }

    /// Returns `label` with its part in `part.dims` replaced by `part`.
    pub fn replace(&self, label: &Label, part: &PartialLabel) -> Label {
        self.restrict(label, self.all().without(part.dims)).join(&part.label)
    }

    /// Returns the meet: the greatest label that flows to both labels. In a dimension with a declared order, it is
    /// found by a search of all elements, since the bits of labels do not preserve meets: a bitwise *and* would be
    /// wrong.
    #[must_use]
    pub fn greatest_below(&self, a: &Label, b: &Label) -> Label {
        let mut below = Label::BOTTOM;
        for (index, dimension) in self.dimensions.iter().enumerate() {
            let one = DimensionSet::single(index);
            let (a, b) = (self.restrict(a, one), self.restrict(b, one));
            let part = match &dimension.kind {
                // The join of all elements that are below both: the greatest one is among them.
                DimensionKind::Order(lattice) => {
                    let label_if_below_both = |name: &String| {
                        let element = self.element(&dimension.name, name)?.label;
                        (element.flows_to(&a) && element.flows_to(&b)).then_some(element)
                    };
                    let below_both = lattice.names().iter().filter_map(label_if_below_both);
                    below_both.fold(Label::BOTTOM, |joined, element| joined.join(&element))
                }
                // The bits represent the names themselves, or the principals who may not read, so `and` is the meet.
                // Ages are a chain, whose meet is the minimum.
                DimensionKind::Set(_)
                | DimensionKind::OpenSet
                | DimensionKind::Readers
                | DimensionKind::Approvers
                | DimensionKind::Time => {
                    let mut both = a;
                    both.bits.iter_mut().zip(b.bits).for_each(|(word, other)| *word &= other);
                    both.ages.iter_mut().zip(b.ages).for_each(|(age, other)| *age = (*age).min(other));
                    both
                }
            };
            below = below.join(&part);
        }
        below
    }

    /// Returns the dimensions of `dims` in which `label` does not flow to `upper`.
    pub fn exceeded_dimensions(&self, label: &Label, upper: &Label, dims: DimensionSet) -> DimensionSet {
        let indices = (0..self.dimensions.len()).filter(|index| dims.has(*index));
        indices
            .map(DimensionSet::single)
            .filter(|one| !self.restrict(label, *one).flows_to(&self.restrict(upper, *one)))
            .fold(DimensionSet::NONE, DimensionSet::union)
    }
}

/// Sets a bit of a label; does nothing if a label has no such bit.
fn set_bit(label: &mut Label, bit: usize) {
    if let Some(word) = label.bits.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

/// Returns whether a bit of a label is set; false if a label has no such bit.
fn has_bit(label: &Label, bit: usize) -> bool {
    label.bits.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::super::{Lattice, NameTable};
    use super::*;

    fn chain(name: &str, elements: &[&str]) -> Dimension {
        Dimension::new(name, Purpose::Secrecy, DimensionKind::Order(Lattice::chain(elements).unwrap()))
    }

    /// The bitwise `and` of two elements need not be an element of the lattice, so it is not the meet.
    #[test]
    fn the_greatest_label_below_two_is_an_element() {
        let order = |edges: &[(&str, &str)]| {
            let mut names: Vec<&str> = edges.iter().flat_map(|(lower, upper)| [*lower, *upper]).collect();
            names.sort_unstable();
            names.dedup();
            let lattice = Lattice::from_edges(&names, edges).unwrap();
            Space::new(vec![Dimension::new("d", Purpose::Integrity, DimensionKind::Order(lattice))]).unwrap()
        };
        let diamond = [("low", "a"), ("low", "b"), ("low", "c"), ("a", "high"), ("b", "high"), ("c", "high")];
        let pentagon = [("low", "a"), ("a", "b"), ("b", "high"), ("low", "c"), ("c", "high")];
        for (edges, left, right, expected) in [
            (&diamond[..], "a", "b", "low"),
            (&diamond, "b", "c", "low"),
            (&diamond, "a", "high", "a"),
            (&diamond, "a", "a", "a"),
            (&pentagon, "b", "c", "low"),
            (&pentagon, "a", "c", "low"),
            (&pentagon, "a", "b", "a"),
        ] {
            let space = order(edges);
            let element = |name: &str| space.element("d", name).unwrap().label;
            let found = space.greatest_below(&element(left), &element(right));
            let name_table = NameTable::new(&space);
            assert_eq!(space.describe(&found, space.all(), &name_table), [expected], "{left} {right}");
            assert_eq!(found, element(expected), "{left} {right}");
        }
    }

    #[test]
    fn replacing_one_dimension_leaves_the_others() {
        let space = Space::new(vec![chain("a", &["a0", "a1"]), chain("b", &["b0", "b1"])]).unwrap();
        let lowered = space.replace(&space.top(), &space.element("a", "a0").unwrap());
        assert_eq!(lowered, space.element("b", "b1").unwrap().label);
        assert_eq!(space.exceeded_dimensions(&lowered, &Label::BOTTOM, space.all()), DimensionSet::single(1));
    }

    #[test]
    fn dimensions_are_sets() {
        let of = |indices: &[usize]| {
            indices.iter().fold(DimensionSet::NONE, |dims, index| dims.union(DimensionSet::single(*index)))
        };
        for (a, b, both, first) in [
            (&[][..], &[][..], &[][..], &[][..]),
            (&[0], &[1], &[0, 1], &[0]),
            (&[0, 1], &[1, 2], &[0, 1, 2], &[0]),
            (&[1], &[1], &[1], &[]),
        ] {
            assert_eq!(of(a).union(of(b)), of(both), "{a:?} {b:?}");
            assert_eq!(of(a).without(of(b)), of(first), "{a:?} {b:?}");
            assert_eq!(of(a).is_empty(), a.is_empty());
            assert!((0..4).all(|index| of(a).has(index) == a.contains(&index)), "{a:?}");
        }
    }

    /// Every point in time is above "always fresh" and below "unknown", including the first and the last.
    #[test]
    fn a_point_in_time_is_never_an_end() {
        let space = Space::new(vec![Dimension::new("age", Purpose::Secrecy, DimensionKind::Time)]).unwrap();
        let at = |seconds| space.instant("age", seconds).unwrap().label;
        for seconds in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert!(at(seconds) != Label::BOTTOM && at(seconds) != space.top(), "{seconds}");
        }
        assert!(space.instant("else", 0).is_none());
    }

    /// The information in the choice of a label: the sum over dimensions of the logarithm of the number of
    /// elements.
    #[test]
    fn the_bits_of_a_label_choice() {
        let order = |count: usize| {
            let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            Dimension::new(
                format!("o{count}"),
                Purpose::Secrecy,
                DimensionKind::Order(Lattice::chain(&names).unwrap()),
            )
        };
        let set = Dimension::new(
            "set",
            Purpose::Secrecy,
            DimensionKind::Set(vec!["a".into(), "b".into(), "c".into()]),
        );
        let time = Dimension::new("age", Purpose::Secrecy, DimensionKind::Time);
        for (dimensions, expected) in [
            (vec![order(2)], 1),
            (vec![order(3)], 2),
            (vec![order(4)], 2),
            (vec![order(5), order(2)], 4),
            (vec![set.clone()], 3),
            (vec![time, set, order(2)], 68),
        ] {
            assert_eq!(Space::new(dimensions).unwrap().bits(), expected);
        }
    }

    #[test]
    fn a_space_that_does_not_fit_is_refused() {
        let names = (0..200).map(|i| i.to_string()).collect::<Vec<_>>();
        let wide = |name| Dimension::new(name, Purpose::Secrecy, DimensionKind::Set(names.clone()));
        let error = Space::new(vec![wide("a"), wide("b")]).unwrap_err();
        assert_eq!(
            (error.dimension, error.to_string().as_str()),
            (1, "the dimensions need more than 256 bits")
        );
        let time = |name: &str| Dimension::new(name, Purpose::Secrecy, DimensionKind::Time);
        let error = Space::new(vec![time("a"), time("b"), time("c")]).unwrap_err();
        assert_eq!(error.to_string(), "the policy declares more than 2 time dimensions");
    }
}
