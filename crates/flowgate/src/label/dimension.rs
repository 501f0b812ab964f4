//! Defines [`Dimension`], one factor of the label space, such as integrity. A policy declares each of its dimensions by
//! a `lattice` statement. [`Space`](super::Space) combines them, and a label has one element of each.

use super::lattice::Lattice;

/// The number of names of an open dimension that a session distinguishes. Later names are treated as unknown, and a
/// label that contains one is rounded to the safe side; see [`NameTable::set`](super::NameTable::set).
pub const MAX_OPEN_NAMES: usize = 48;

/// A named dimension of the label space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    /// The name by which the policy refers to it.
    pub name: String,
    /// Its purpose, which decides whether `payload` and `endorse` apply to it.
    pub purpose: Purpose,
    /// Its elements and their order.
    pub kind: DimensionKind,
}

impl Dimension {
    /// Creates a dimension with the given name, purpose and order.
    pub fn new(name: impl Into<String>, purpose: Purpose, kind: DimensionKind) -> Self {
        Self { name: name.into(), purpose, kind }
    }

    /// Returns the number of bits that a label uses for this dimension; 0 for time, which has a separate field.
    pub fn width(&self) -> usize {
        match &self.kind {
            DimensionKind::Order(lattice) => lattice.width(),
            DimensionKind::Set(names) => names.len(),
            // One extra bit represents all other names, so that no list of names equals the whole universe.
            DimensionKind::OpenSet | DimensionKind::Readers | DimensionKind::Approvers => MAX_OPEN_NAMES + 1,
            DimensionKind::Time => 0,
        }
    }
}

/// The purpose of a dimension.
///
/// The list is exhaustive on purpose: a purpose decides what statements may lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The trust in the text. A `payload` statement exempts an argument from requirements in these dimensions, and an
    /// `endorse` statement lowers the label of a value in them.
    Integrity,
    /// Everything else, above all confidentiality. No statement lowers a label in these dimensions.
    Secrecy,
}

/// The order of a dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DimensionKind {
    /// A finite order given by its edges; a chain is the common case.
    Order(Lattice),
    /// Subsets of the named elements; join is union.
    Set(Vec<String>),
    /// Subsets of an open universe of names; join is union.
    OpenSet,
    /// The principals who may read the text, from an open universe; join is intersection.
    Readers,
    /// The people who must all approve what depends on the text, from an open universe; join is union.
    Approvers,
    /// The time at which the text was written; older is higher, and unknown is top.
    Time,
}
