//! The product of a policy's dimensions, and which bits of a label belong to which of them.

use std::fmt;

use super::dimension::{Dimension, Kind, Purpose};
use super::roster::Roster;
use super::{AGES, Label, WORDS};

/// The most bits that all dimensions of a policy may take together.
pub const MAX_BITS: usize = WORDS * 64;
/// The most dimensions that a policy may declare.
pub const MAX_DIMENSIONS: usize = 32;

/// A set of dimensions, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dims(u32);

impl Dims {
    /// No dimension.
    pub const NONE: Self = Self(0);

    /// The one dimension with this index.
    pub fn one(index: usize) -> Self {
        Self(1_u32.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0))
    }

    /// Whether the dimension with this index is in the set.
    pub fn has(self, index: usize) -> bool {
        self.0 & Self::one(index).0 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The dimensions of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The dimensions of this set that are not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A label that says something about some dimensions and nothing about the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// The dimensions it speaks of.
    pub dims: Dims,
    /// Its value there; bottom elsewhere.
    pub label: Label,
}

impl Partial {
    /// Says nothing about any dimension.
    pub const NONE: Self = Self { dims: Dims::NONE, label: Label::BOTTOM };

    /// Speaks of what either speaks of, joined where both do.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self { dims: self.dims.union(other.dims), label: self.label.join(&other.label) }
    }
}

/// Why dimensions do not make a label space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceError {
    /// The index of the dimension that is too much.
    pub dimension: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SpaceError {}

/// The product lattice that the labels of one policy live in.
#[derive(Debug, Clone, Default)]
pub struct Space {
    dimensions: Vec<Dimension>,
    /// For each dimension, its full mask: the dimension's top, bottom elsewhere.
    masks: Vec<Label>,
    /// For each dimension, its first bit, or which of the ages it is.
    offsets: Vec<usize>,
    top: Label,
}

impl Space {
    /// Lays the dimensions out in the bits of a label.
    ///
    /// # Errors
    /// If the dimensions need more room than a [`Label`] has.
    pub fn new(dimensions: Vec<Dimension>) -> Result<Self, SpaceError> {
        let mut space = Self::default();
        let (mut next_bit, mut next_age) = (0, 0);
        for (index, dimension) in dimensions.iter().enumerate() {
            let too_much = |message: String, help| SpaceError { dimension: index, message, help };
            if index >= MAX_DIMENSIONS {
                let message = format!("a policy has at most {MAX_DIMENSIONS} dimensions");
                return Err(too_much(message, "merge dimensions, or use a set"));
            }
            let mut mask = Label::BOTTOM;
            if dimension.kind == Kind::Time {
                let Some(age) = mask.ages.get_mut(next_age) else {
                    let message = format!("a policy has at most {AGES} time dimensions");
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
                        "an order takes about one bit an element, a set one bit a name",
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

    /// The dimensions, in order of declaration.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The index of the dimension with this name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.dimensions.iter().position(|d| d.name == name)
    }

    /// Every dimension.
    pub fn all(&self) -> Dims {
        (0..self.dimensions.len()).fold(Dims::NONE, |dims, index| dims.union(Dims::one(index)))
    }

    /// The dimensions that are about integrity.
    pub fn integrity(&self) -> Dims {
        let indices = self.dimensions.iter().enumerate().filter(|(_, d)| d.purpose == Purpose::Integrity);
        indices.fold(Dims::NONE, |dims, (index, _)| dims.union(Dims::one(index)))
    }

    /// The logarithm of the number of labels, rounded up: what the choice of one can tell at most, in bits.
    pub fn bits(&self) -> usize {
        let bits = |dimension: &Dimension| match &dimension.kind {
            Kind::Order(lattice) => lattice.names().len().next_power_of_two().ilog2() as usize,
            Kind::Time => 64,
            Kind::Set(_) | Kind::OpenSet | Kind::Readers => dimension.width(),
        };
        self.dimensions.iter().map(bits).sum()
    }

    /// The greatest label: what nobody said anything about.
    pub fn top(&self) -> Label {
        self.top
    }

    /// The element `name` of the order called `dimension`.
    pub fn element(&self, dimension: &str, name: &str) -> Option<Partial> {
        let index = self.index(dimension)?;
        let Kind::Order(lattice) = &self.dimensions.get(index)?.kind else { return None };
        let image = lattice.image(name)?;
        let set = image.iter().enumerate().filter(|(_, set)| **set).map(|(bit, _)| bit);
        Some(self.dimension_bits(index, set))
    }

    /// The point of the time dimension called `dimension` at `seconds` after the Unix epoch.
    pub fn instant(&self, dimension: &str, seconds: i64) -> Option<Partial> {
        let index = self.index(dimension)?;
        if self.dimensions.get(index)?.kind != Kind::Time {
            return None;
        }
        // The older, the greater; 0 stays free for "always fresh" and the maximum for "nobody knows".
        let key = (i64::MAX.wrapping_sub(seconds) as u64).clamp(1, u64::MAX - 1);
        let mut label = Label::BOTTOM;
        *label.ages.get_mut(*self.offsets.get(index)?)? = key;
        Some(Partial { dims: Dims::one(index), label })
    }

    /// The least element of one dimension.
    pub fn dimension_bottom(&self, index: usize) -> Partial {
        Partial { dims: Dims::one(index), label: Label::BOTTOM }
    }

    /// The greatest element of one dimension.
    pub fn dimension_top(&self, index: usize) -> Partial {
        Partial { dims: Dims::one(index), label: self.masks.get(index).copied().unwrap_or(self.top) }
    }

    pub(super) fn dimension_bits(&self, index: usize, bits: impl Iterator<Item = usize>) -> Partial {
        let mut label = Label::BOTTOM;
        let offset = self.offsets.get(index).copied().unwrap_or(0);
        bits.for_each(|bit| set_bit(&mut label, offset + bit));
        Partial { dims: Dims::one(index), label }
    }

    pub(super) fn dimension_bits_except(&self, index: usize, bits: impl Iterator<Item = usize>) -> Partial {
        let mut partial = self.dimension_top(index);
        let except = self.dimension_bits(index, bits).label;
        for (word, off) in partial.label.bits.iter_mut().zip(except.bits) {
            *word &= !off;
        }
        partial
    }

    /// The key of a label in a time dimension.
    pub(super) fn age(&self, label: &Label, index: usize) -> Option<u64> {
        label.ages.get(*self.offsets.get(index)?).copied()
    }

    /// The part of `label` that lies in `dims`, bottom elsewhere.
    pub fn restrict(&self, label: &Label, dims: Dims) -> Label {
        let mut kept = Label::BOTTOM;
        for (_, mask) in self.masks.iter().enumerate().filter(|(index, _)| dims.has(*index)) {
            for ((word, source), mask) in kept.bits.iter_mut().zip(label.bits).zip(mask.bits) {
                *word |= source & mask;
            }
            for ((age, source), mask) in kept.ages.iter_mut().zip(label.ages).zip(mask.ages) {
                *age |= source & mask;
            }
        }
        kept
    }

    /// `label` with its part in `part.dims` replaced by `part`.
    pub fn replace(&self, label: &Label, part: &Partial) -> Label {
        self.restrict(label, self.all().without(part.dims)).join(&part.label)
    }

    /// The greatest label that flows to both. Of an order it is searched for among the elements: the embedding does
    /// not preserve meets, so `and` would be wrong there.
    #[must_use]
    pub fn greatest_below(&self, a: &Label, b: &Label) -> Label {
        let mut below = Label::BOTTOM;
        for (index, dimension) in self.dimensions.iter().enumerate() {
            let one = Dims::one(index);
            let (a, b) = (self.restrict(a, one), self.restrict(b, one));
            let part = match &dimension.kind {
                Kind::Order(lattice) => {
                    let fits = |name: &String| {
                        let element = self.element(&dimension.name, name)?.label;
                        (element.flows_to(&a) && element.flows_to(&b)).then_some(element)
                    };
                    lattice.names().iter().filter_map(fits).fold(Label::BOTTOM, |x, y| x.join(&y))
                }
                // The bits are the names themselves, or those who may not read; ages are a chain.
                Kind::Set(_) | Kind::OpenSet | Kind::Readers | Kind::Time => {
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

    /// The dimensions of `dims` in which `label` does not flow to `upper`.
    pub fn exceeds(&self, label: &Label, upper: &Label, dims: Dims) -> Dims {
        let indices = (0..self.dimensions.len()).filter(|index| dims.has(*index));
        indices
            .map(Dims::one)
            .filter(|one| !self.restrict(label, *one).flows_to(&self.restrict(upper, *one)))
            .fold(Dims::NONE, Dims::union)
    }

    /// One phrase for each dimension of `dims`: the name of the element, or the names in the set.
    pub fn describe(&self, label: &Label, dims: Dims, roster: &Roster) -> Vec<String> {
        let indices = (0..self.dimensions.len()).filter(|index| dims.has(*index));
        indices.filter_map(|index| self.describe_dimension(label, index, roster)).collect()
    }

    fn describe_dimension(&self, label: &Label, index: usize, roster: &Roster) -> Option<String> {
        let dimension = self.dimensions.get(index)?;
        let offset = *self.offsets.get(index)?;
        let bits: Vec<bool> = (offset..offset + dimension.width()).map(|bit| has_bit(label, bit)).collect();
        let name = &dimension.name;
        let (all, none) = (bits.iter().all(|bit| *bit), bits.iter().all(|bit| !bit));
        let names = |set: bool| {
            let known = roster.names(index).iter().zip(&bits).filter(|(_, bit)| **bit == set);
            let mut known: Vec<String> = known.map(|(name, _)| shown(name)).collect();
            // The order in which a session met them is its own business.
            known.sort();
            known.join(", ")
        };
        Some(match &dimension.kind {
            Kind::Order(lattice) => lattice.element(&bits).unwrap_or("?").to_owned(),
            Kind::Set(_) | Kind::OpenSet if none => format!("{name}()"),
            Kind::OpenSet if all => format!("any {name}"),
            Kind::Set(_) | Kind::OpenSet => format!("{name}({})", names(true)),
            Kind::Readers if none => format!("{name}: everyone"),
            Kind::Readers if all => format!("{name}: nobody"),
            Kind::Readers => format!("{name}({})", names(false)),
            Kind::Time => match label.ages.get(offset).copied().unwrap_or(u64::MAX) {
                0 => format!("{name}: always fresh"),
                u64::MAX => format!("{name}: unknown"),
                key => format!("{name}({})", i64::MAX.wrapping_sub(key as i64)),
            },
        })
    }
}

/// A name that may come from data, printed so that it cannot play tricks on who reads it.
fn shown(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    let ellipsis = if short.len() < name.len() { "…" } else { "" };
    format!("{}{ellipsis}", short.escape_debug())
}

fn set_bit(label: &mut Label, bit: usize) {
    if let Some(word) = label.bits.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

fn has_bit(label: &Label, bit: usize) -> bool {
    label.bits.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::super::{Bound, Lattice};
    use super::*;

    fn chain(name: &str, elements: &[&str]) -> Dimension {
        Dimension::new(name, Purpose::Secrecy, Kind::Order(Lattice::chain(elements).unwrap()))
    }

    #[test]
    fn labels_are_described_by_their_elements() {
        let space = Space::new(vec![
            chain("integrity", &["trusted", "partner", "untrusted"]),
            Dimension::new("categories", Purpose::Secrecy, Kind::Set(vec!["pii".into(), "money".into()])),
            Dimension::new("readers", Purpose::Secrecy, Kind::Readers),
            Dimension::new("age", Purpose::Secrecy, Kind::Time),
        ])
        .unwrap();
        let mut roster = Roster::new(&space);
        let parts = [
            space.element("integrity", "partner").unwrap(),
            roster.set(&space, "categories", &["money".to_owned()], Bound::Data).unwrap(),
            roster.set(&space, "readers", &["ann".to_owned(), "bob".to_owned()], Bound::Data).unwrap(),
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

    /// The bits of two elements have elements in common that are none of the lattice: no `and` of bits is a meet.
    #[test]
    fn the_greatest_label_below_two_is_an_element() {
        let order = |edges: &[(&str, &str)]| {
            let mut names: Vec<&str> = edges.iter().flat_map(|(lower, upper)| [*lower, *upper]).collect();
            names.sort_unstable();
            names.dedup();
            let lattice = Lattice::from_edges(&names, edges).unwrap();
            Space::new(vec![Dimension::new("d", Purpose::Integrity, Kind::Order(lattice))]).unwrap()
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
            let roster = Roster::new(&space);
            assert_eq!(space.describe(&found, space.all(), &roster), [expected], "{left} {right}");
            assert_eq!(found, element(expected), "{left} {right}");
        }
    }

    #[test]
    fn replacing_one_dimension_leaves_the_others() {
        let space = Space::new(vec![chain("a", &["a0", "a1"]), chain("b", &["b0", "b1"])]).unwrap();
        let lowered = space.replace(&space.top(), &space.element("a", "a0").unwrap());
        assert_eq!(lowered, space.element("b", "b1").unwrap().label);
        assert_eq!(space.exceeds(&lowered, &Label::BOTTOM, space.all()), Dims::one(1));
    }

    #[test]
    fn a_space_that_does_not_fit_is_refused() {
        let names = (0..200).map(|i| i.to_string()).collect::<Vec<_>>();
        let wide = |name| Dimension::new(name, Purpose::Secrecy, Kind::Set(names.clone()));
        let error = Space::new(vec![wide("a"), wide("b")]).unwrap_err();
        assert_eq!(
            (error.dimension, error.to_string().as_str()),
            (1, "the dimensions need more than 256 bits")
        );
        let time = |name: &str| Dimension::new(name, Purpose::Secrecy, Kind::Time);
        let error = Space::new(vec![time("a"), time("b"), time("c")]).unwrap_err();
        assert_eq!(error.to_string(), "a policy has at most 2 time dimensions");
    }
}
