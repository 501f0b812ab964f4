//! Represents points of a policy's lattice in the oracle's own way: by ranks and sets of names instead of the
//! bits of a label.

use std::collections::BTreeSet;

use serde_json::Value;

/// The kind of a dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DimensionShape {
    /// Elements from the lowest to the highest.
    Chain(&'static [&'static str]),
    /// Sets of names; the join is the union.
    Names,
    /// Sets of readers; the join is the intersection.
    Readers,
    /// The time of writing; older is higher.
    Age,
}

/// A point of one dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DimensionElement {
    /// The rank in a linear order, such as an age.
    Rank(u64),
    /// These names; `None` means every name.
    Names(Option<BTreeSet<String>>),
    /// These readers; `None` means everybody.
    Readers(Option<BTreeSet<String>>),
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl DimensionElement {
    pub(crate) fn names(names: &[&str]) -> Self {
        Self::Names(Some(set(names)))
    }

    pub(crate) fn readers(names: &[&str]) -> Self {
        Self::Readers(Some(set(names)))
    }

    /// Returns the age of a text that was written at this time, in seconds since 1970.
    pub(crate) fn written_at(seconds: i64) -> Self {
        Self::Rank(u64::try_from(i64::MAX - seconds).expect("after the epoch"))
    }

    fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Rank(a), Self::Rank(b)) => Self::Rank(*a.max(b)),
            (Self::Names(a), Self::Names(b)) => {
                Self::Names(a.as_ref().zip(b.as_ref()).map(|(a, b)| a.union(b).cloned().collect()))
            }
            (Self::Readers(a), Self::Readers(b)) => Self::Readers(match (a, b) {
                (Some(a), Some(b)) => Some(a.intersection(b).cloned().collect()),
                (one, None) | (None, one) => one.clone(),
            }),
            _ => panic!("elements of two dimensions"),
        }
    }

    pub(crate) fn flows_to(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rank(a), Self::Rank(b)) => a <= b,
            (Self::Names(_), Self::Names(None)) => true,
            (Self::Names(a), Self::Names(Some(b))) => a.as_ref().is_some_and(|a| a.is_subset(b)),
            (Self::Readers(None), Self::Readers(_)) => true,
            (Self::Readers(Some(a)), Self::Readers(b)) => b.as_ref().is_some_and(|b| b.is_subset(a)),
            _ => panic!("elements of two dimensions"),
        }
    }
}

impl DimensionShape {
    pub(crate) fn bottom(self) -> DimensionElement {
        match self {
            Self::Chain(_) | Self::Age => DimensionElement::Rank(0),
            Self::Names => DimensionElement::names(&[]),
            Self::Readers => DimensionElement::Readers(None),
        }
    }

    pub(crate) fn top(self) -> DimensionElement {
        match self {
            Self::Chain(elements) => DimensionElement::Rank(elements.len() as u64 - 1),
            Self::Age => DimensionElement::Rank(u64::MAX),
            Self::Names => DimensionElement::Names(None),
            Self::Readers => DimensionElement::readers(&[]),
        }
    }

    /// Parses an element as the monitor prints it.
    fn of_names(self, value: &Value) -> DimensionElement {
        let list = || -> Option<BTreeSet<String>> {
            Some(value.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        match (self, value.as_str()) {
            (Self::Chain(elements), Some(name)) if elements.contains(&name) => DimensionElement::Rank(
                elements.iter().position(|element| *element == name).expect("it is there") as u64,
            ),
            (_, Some("top")) => self.top(),
            (Self::Age, Some("fresh")) | (Self::Readers, Some("everyone")) => self.bottom(),
            (Self::Age, _) => {
                DimensionElement::written_at(value.as_i64().unwrap_or_else(|| panic!("an age: {value}")))
            }
            (Self::Names, _) => {
                DimensionElement::Names(Some(list().unwrap_or_else(|| panic!("names: {value}"))))
            }
            (Self::Readers, _) => {
                DimensionElement::Readers(Some(list().unwrap_or_else(|| panic!("readers: {value}"))))
            }
            (Self::Chain(_), _) => panic!("no element: {value}"),
        }
    }
}

/// A point of the product, one element for each dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OracleLabel(pub(crate) Vec<DimensionElement>);

impl OracleLabel {
    pub(crate) fn bottom(shapes: &[(&'static str, DimensionShape)]) -> Self {
        Self(shapes.iter().map(|(_, shape)| shape.bottom()).collect())
    }

    pub(crate) fn top(shapes: &[(&'static str, DimensionShape)]) -> Self {
        Self(shapes.iter().map(|(_, shape)| shape.top()).collect())
    }

    /// Parses a label as the monitor prints it for other sessions.
    pub(crate) fn of_names(shapes: &[(&'static str, DimensionShape)], names: &Value) -> Self {
        Self(shapes.iter().map(|(name, shape)| shape.of_names(&names[name])).collect())
    }

    #[must_use]
    pub(crate) fn join(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a.join(b)).collect())
    }

    pub(crate) fn flows_to(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.flows_to(b))
    }
}

#[test]
fn joins_are_least_upper_bounds() {
    let all = [
        vec![DimensionElement::Rank(0), DimensionElement::Rank(3), DimensionElement::Rank(u64::MAX)],
        vec![
            DimensionElement::names(&[]),
            DimensionElement::names(&["a"]),
            DimensionElement::names(&["b"]),
            DimensionElement::Names(None),
        ],
        vec![
            DimensionElement::Readers(None),
            DimensionElement::readers(&["a", "b"]),
            DimensionElement::readers(&["b"]),
            DimensionElement::readers(&["c"]),
            DimensionElement::readers(&[]),
        ],
    ];
    for elements in &all {
        for (a, b) in elements.iter().flat_map(|a| elements.iter().map(move |b| (a, b))) {
            let join = a.join(b);
            assert!(a.flows_to(&join) && b.flows_to(&join), "{a:?} {b:?}");
            let above = elements.iter().filter(|c| a.flows_to(c) && b.flows_to(c));
            assert!(above.clone().all(|c| join.flows_to(c)), "{a:?} {b:?}");
            assert!(!(a.flows_to(b) && b.flows_to(a)) || a == b);
        }
    }
}
