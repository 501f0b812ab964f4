//! Defines [`Lattice`], a finite lattice whose elements are represented by sets of bits. A policy declares a lattice by
//! the edges of its order (`a < b`). Each [`Dimension`](super::Dimension) of the kind
//! [`Order`](super::DimensionKind::Order) has a lattice.
//!
//! Joins and comparisons of labels must take nanoseconds, whatever order the policy declares. So an element `x` is
//! represented by the set of *meet-irreducible* elements that `x` is not at or below. The join is then a bitwise *or*,
//! and "flows to" is a subset test, in every finite lattice, distributive or not (Davey and Priestley, *Introduction to
//! Lattices and Order*, chapter 2). The bitwise *and* of two elements is **not** their meet in general, so this module
//! has no operation for the meet.

use std::fmt;

/// The most elements of one declared order.
pub const MAX_ELEMENTS: usize = 256;

/// A finite lattice over named elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lattice {
    names: Vec<String>,
    /// `above[x]` holds every `y` with `x <= y`, as a row of the order relation.
    above: Vec<Vec<bool>>,
    /// `images[x]` is the embedding of `x`: bit `i` is set if `x` is not at or below the i-th meet-irreducible element.
    images: Vec<Vec<bool>>,
    /// The number of meet-irreducible elements.
    width: usize,
}

/// The reason why a declared order is not a lattice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatticeError {
    /// The order has no elements.
    Empty,
    /// The order has more than [`MAX_ELEMENTS`] elements.
    TooLarge,
    /// Each of the two elements is below the other.
    Cycle(String, String),
    /// The two elements have no upper bound at all.
    NoUpperBound(String, String),
    /// The two elements have upper bounds, but none that is below all others.
    NoLeastUpperBound(String, String, Vec<String>),
    /// The two elements have no lower bound at all.
    NoLowerBound(String, String),
}

impl fmt::Display for LatticeError {
    /// Writes the reason without advice, which [`LatticeError::help`] returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the order has no elements"),
            Self::TooLarge => write!(f, "the order has more than {MAX_ELEMENTS} elements"),
            Self::Cycle(a, b) => {
                write!(f, "the order has a cycle: `{a}` is below `{b}`, and `{b}` is below `{a}`")
            }
            Self::NoUpperBound(a, b) => {
                write!(f, "`{a}` and `{b}` have no join: no element is above both")
            }
            Self::NoLeastUpperBound(a, b, candidates) => {
                let list = candidates.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(" and ");
                write!(
                    f,
                    "`{a}` and `{b}` have no join: {list} are above both, and none of them is below the others"
                )
            }
            Self::NoLowerBound(a, b) => {
                write!(f, "`{a}` and `{b}` have no meet: no element is below both")
            }
        }
    }
}

impl LatticeError {
    /// Returns advice to the author of the declaration, such as which element to add.
    pub fn help(&self) -> String {
        match self {
            Self::Empty => "name at least one element".to_owned(),
            Self::TooLarge => {
                "declare the dimension as a set instead: `lattice NAME: set of a, b`".to_owned()
            }
            Self::Cycle(a, b) => format!("leave out one `<` on the way between `{a}` and `{b}`"),
            Self::NoUpperBound(a, b) => {
                format!("add an element above both, for example `{a} < top, {b} < top`")
            }
            Self::NoLeastUpperBound(a, b, _) => {
                format!("add an element between `{a}`, `{b}` and the elements above them")
            }
            Self::NoLowerBound(a, b) => {
                format!("add an element below both, for example `bottom < {a}, bottom < {b}`")
            }
        }
    }
}

impl std::error::Error for LatticeError {}

impl Lattice {
    /// Builds the lattice of `elements` whose order is the reflexive and transitive closure of `edges`. An edge is a
    /// pair of a lower and an upper element; an element that only an edge names is added.
    ///
    /// Elements keep the order in which they are first named.
    ///
    /// # Errors
    /// If there are no elements or more than [`MAX_ELEMENTS`], if two elements have no join or no meet, or if two
    /// elements are below each other. The error names the two elements.
    pub fn from_edges(
        elements: &[impl AsRef<str>],
        edges: &[(impl AsRef<str>, impl AsRef<str>)],
    ) -> Result<Self, LatticeError> {
        let mut names: Vec<String> = Vec::new();
        // The index of an element, which is added when it is first named.
        let mut index = |name: &str| {
            names.iter().position(|n| n == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            })
        };
        for element in elements {
            index(element.as_ref());
        }
        let edges: Vec<_> = edges.iter().map(|(a, b)| (index(a.as_ref()), index(b.as_ref()))).collect();
        let n = names.len();
        if n == 0 {
            return Err(LatticeError::Empty);
        }
        if n > MAX_ELEMENTS {
            return Err(LatticeError::TooLarge);
        }
        let above = closure(n, &edges);
        check_laws(&names, &above)?;
        // An element is meet-irreducible if it is not the meet of other elements. These elements suffice to tell all
        // elements apart.
        let irreducible: Vec<usize> = (0..n).filter(|&m| is_meet_irreducible(&above, m)).collect();
        // The bit set of each element `x`: for each irreducible element, whether `x` is not at or below it.
        let bit_set =
            |x: usize| irreducible.iter().map(|&m| !is_ordered(&above, x, m)).collect::<Vec<bool>>();
        let images = (0..n).map(bit_set).collect();
        Ok(Self { names, above, images, width: irreducible.len() })
    }

    /// Builds the total order in which each name is below the next.
    ///
    /// # Errors
    /// If there are no names or more than [`MAX_ELEMENTS`], or if a name occurs again after another one, which makes a
    /// cycle.
    pub fn chain(names: &[impl AsRef<str>]) -> Result<Self, LatticeError> {
        let edges: Vec<_> =
            names.iter().zip(names.iter().skip(1)).map(|(a, b)| (a.as_ref(), b.as_ref())).collect();
        Self::from_edges(names, &edges)
    }

    /// Returns the number of bits in the embedding of one element.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the names of the elements, in order of declaration.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the embedding of the element `name`: one bit for each meet-irreducible element, which is set if `name`
    /// is not at or below that element. `None` if there is no element `name`.
    pub fn embedding(&self, name: &str) -> Option<&[bool]> {
        let x = self.names.iter().position(|n| n == name)?;
        self.images.get(x).map(Vec::as_slice)
    }

    /// Returns the element whose embedding is `bits`; `None` if there is none.
    ///
    /// Every union of embeddings is the embedding of an element; other bit sets represent none.
    pub fn element(&self, bits: &[bool]) -> Option<&str> {
        let x = self.images.iter().position(|image| image == bits)?;
        self.names.get(x).map(String::as_str)
    }

    /// Returns whether `lower` is below or equal to `upper`, by the declared order and not by the embedding. False if
    /// one of the two is not an element.
    pub fn is_below(&self, lower: &str, upper: &str) -> bool {
        let position = |name| self.names.iter().position(|n| n == name);
        match (position(lower), position(upper)) {
            (Some(a), Some(b)) => is_ordered(&self.above, a, b),
            _ => false,
        }
    }
}

/// Returns whether `a` is below or equal to `b` in the order relation `above` ([`Lattice::above`]).
fn is_ordered(above: &[Vec<bool>], a: usize, b: usize) -> bool {
    above.get(a).and_then(|row| row.get(b)).copied().unwrap_or(false)
}

/// Returns the reflexive and transitive closure of a relation on `0..n`: row `a` states which elements are at or above
/// `a`.
fn closure(n: usize, edges: &[(usize, usize)]) -> Vec<Vec<bool>> {
    let mut successors = vec![Vec::new(); n];
    for &(a, b) in edges {
        if let Some(list) = successors.get_mut(a) {
            list.push(b);
        }
    }
    // One search along the edges for each element. It marks the elements that it reaches.
    (0..n)
        .map(|start| {
            let mut row = vec![false; n];
            let mut stack = vec![start];
            while let Some(x) = stack.pop() {
                if let Some(seen @ false) = row.get_mut(x) {
                    *seen = true;
                    stack.extend(successors.get(x).into_iter().flatten());
                }
            }
            row
        })
        .collect()
}

/// Checks that the order is a lattice: it has no cycle, and every two elements have a least upper bound and some lower
/// bound. In a finite order, this implies that any two elements have a greatest lower bound. `above` is the result of
/// [`closure`].
fn check_laws(names: &[String], above: &[Vec<bool>]) -> Result<(), LatticeError> {
    let n = names.len();
    let name = |x: usize| names.get(x).cloned().unwrap_or_default();
    // No cycle: no two elements are below each other.
    for a in 0..n {
        for b in a + 1..n {
            if is_ordered(above, a, b) && is_ordered(above, b, a) {
                return Err(LatticeError::Cycle(name(a), name(b)));
            }
        }
    }
    for a in 0..n {
        for b in a + 1..n {
            // The upper bounds of both elements. One of them must be at or below all others.
            let upper_bounds: Vec<usize> =
                (0..n).filter(|&u| is_ordered(above, a, u) && is_ordered(above, b, u)).collect();
            if upper_bounds.is_empty() {
                return Err(LatticeError::NoUpperBound(name(a), name(b)));
            }
            if !upper_bounds.iter().any(|&u| upper_bounds.iter().all(|&v| is_ordered(above, u, v))) {
                // The error names the upper bounds that have no other one below them.
                let has_none_below =
                    |u: usize| !upper_bounds.iter().any(|&v| v != u && is_ordered(above, v, u));
                let minimal = upper_bounds.iter().filter(|&&u| has_none_below(u));
                return Err(LatticeError::NoLeastUpperBound(
                    name(a),
                    name(b),
                    minimal.map(|&u| name(u)).collect(),
                ));
            }
            if !(0..n).any(|lower| is_ordered(above, lower, a) && is_ordered(above, lower, b)) {
                return Err(LatticeError::NoLowerBound(name(a), name(b)));
            }
        }
    }
    Ok(())
}

/// Returns whether an element is meet-irreducible: exactly one element is directly above it, with no other element
/// between the two. The top is not, since no element is above it. `above` is the result of [`closure`].
fn is_meet_irreducible(above: &[Vec<bool>], element: usize) -> bool {
    let n = above.len();
    let strictly_above: Vec<usize> =
        (0..n).filter(|&u| u != element && is_ordered(above, element, u)).collect();
    let is_directly_above = |u: usize| !strictly_above.iter().any(|&v| v != u && is_ordered(above, v, u));
    strictly_above.iter().filter(|&&u| is_directly_above(u)).count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn join_bits(a: &[bool], b: &[bool]) -> Vec<bool> {
        a.iter().zip(b).map(|(x, y)| x | y).collect()
    }

    fn is_subset(a: &[bool], b: &[bool]) -> bool {
        a.iter().zip(b).all(|(x, y)| !x | y)
    }

    /// The embedding agrees with the declared order on every pair and every join.
    fn check(lattice: &Lattice) {
        for a in lattice.names() {
            for b in lattice.names() {
                let (image_a, image_b) = (lattice.embedding(a).unwrap(), lattice.embedding(b).unwrap());
                assert_eq!(is_subset(image_a, image_b), lattice.is_below(a, b), "{a} flows to {b}");
                let upper: Vec<_> = lattice
                    .names()
                    .iter()
                    .filter(|u| lattice.is_below(a, u) && lattice.is_below(b, u))
                    .collect();
                let join = upper.iter().find(|u| upper.iter().all(|v| lattice.is_below(u, v))).unwrap();
                let union = join_bits(image_a, image_b);
                assert_eq!(lattice.element(&union), Some(join.as_str()), "{a} joined with {b}");
            }
        }
    }

    #[test]
    fn known_lattices_embed() {
        let edges = |text: &str| -> Vec<(String, String)> {
            text.split_whitespace()
                .map(|edge| edge.split_once('<').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap())
                .collect()
        };
        let rows = [
            ("chain", "a<b b<c c<d", 3),
            ("diamond", "o<a o<b a<i b<i", 2),
            ("M3, not distributive", "o<a o<b o<c a<i b<i c<i", 3),
            ("N5, not modular", "o<a a<b b<i o<c c<i", 3),
            ("cube", "o<a o<b o<c a<ab a<ac b<ab b<bc c<ac c<bc ab<i ac<i bc<i", 3),
        ];
        for (name, text, width) in rows {
            let lattice = Lattice::from_edges(&[] as &[&str], &edges(text)).unwrap();
            assert_eq!(lattice.width(), width, "{name}");
            check(&lattice);
        }
        check(&Lattice::from_edges(&["only"], &[] as &[(&str, &str)]).unwrap());
    }

    #[test]
    fn the_elements_of_an_order_are_limited() {
        for (count, expected) in
            [(2, true), (MAX_ELEMENTS, true), (MAX_ELEMENTS + 1, false), (MAX_ELEMENTS + 2, false)]
        {
            let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
            assert_eq!(Lattice::chain(&names).is_ok(), expected, "{count}");
        }
    }

    #[test]
    fn an_order_that_is_no_lattice_is_reported() {
        let check = |edges: &[(&str, &str)], message: &str| {
            let error = Lattice::from_edges(&[] as &[&str], edges).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.help().is_empty());
        };
        check(&[], "the order has no elements");
        check(&[("a", "b"), ("b", "a")], "the order has a cycle: `a` is below `b`, and `b` is below `a`");
        check(&[("o", "a"), ("o", "b")], "`a` and `b` have no join: no element is above both");
        check(&[("a", "i"), ("b", "i")], "`a` and `b` have no meet: no element is below both");
        check(
            &[("o", "a"), ("o", "b"), ("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("x", "i"), ("y", "i")],
            "`a` and `b` have no join: `x` and `y` are above both, and none of them is below the others",
        );
    }

    proptest! {
        /// A family of sets that is closed under intersection and has a largest member is a lattice under inclusion.
        /// Every finite lattice has this form, so this test can draw every small lattice.
        #[test]
        fn random_lattices_embed(seeds in prop::collection::vec(0_u8..64, 1..6)) {
            let mut family = vec![63_u8];
            family.extend(&seeds);
            loop {
                let before = family.len();
                let meets: Vec<u8> = family.iter().flat_map(|a| family.iter().map(move |b| a & b)).collect();
                family.extend(meets);
                family.sort_unstable();
                family.dedup();
                if family.len() == before { break; }
            }
            let mut edges = Vec::new();
            for a in &family {
                for b in &family {
                    if a != b && a & b == *a { edges.push((a.to_string(), b.to_string())); }
                }
            }
            let names: Vec<String> = family.iter().map(u8::to_string).collect();
            check(&Lattice::from_edges(&names, &edges).unwrap());
        }
    }
}
