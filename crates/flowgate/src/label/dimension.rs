//! One factor of the product of lattices.

use super::lattice::Lattice;

/// How many names of an open universe a session keeps apart. What comes later is treated as unknown:
/// data labelled with it becomes top, a requirement that names it becomes bottom.
pub const OPEN_SLOTS: usize = 48;

/// A named dimension of the label space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    /// The name by which the policy refers to it.
    pub name: String,
    /// What it is about, which decides what `payload` and `endorse` may do to it.
    pub purpose: Purpose,
    /// Its elements and their order.
    pub kind: Kind,
}

impl Dimension {
    /// A dimension with the given name, purpose and order.
    pub fn new(name: impl Into<String>, purpose: Purpose, kind: Kind) -> Self {
        Self { name: name.into(), purpose, kind }
    }

    /// How many bits a label spends on this dimension.
    pub fn width(&self) -> usize {
        match &self.kind {
            Kind::Order(lattice) => lattice.width(),
            Kind::Set(names) => names.len(),
            // One bit more stands for all other names, so that no list of names is ever as good as all.
            Kind::OpenSet | Kind::Readers => OPEN_SLOTS + 1,
            Kind::Time => 0,
        }
    }
}

/// What a dimension is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// How far the text can be trusted: `payload` lifts it, `endorse` lowers it.
    Integrity,
    /// Everything else, above all who may learn the text: nothing lowers it.
    Secrecy,
}

/// The order of a dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A finite order given by its edges; a chain is the common case.
    Order(Lattice),
    /// Subsets of the named elements; join is union.
    Set(Vec<String>),
    /// Subsets of an open universe of names; join is union.
    OpenSet,
    /// The principals who may read the text, from an open universe; join is intersection.
    Readers,
    /// When the text was written; the older, the higher, and unknown is top.
    Time,
}
