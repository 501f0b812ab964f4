//! Provides labels, and names for the elements that they span, for the tests of the label searches in `propagation`.

use flowgate::label::span::SpanElement;
use flowgate::label::{
    ComputedLabelUse, Dimension, DimensionKind, Label, LabelSpan, Lattice, NameTable, Purpose, Space,
};

/// Returns labels of which no two are comparable: each is a set with one name.
pub(crate) fn flat_labels(count: usize) -> Vec<Label> {
    let names: Vec<String> = (0..count).map(|n| format!("d{n}")).collect();
    let set = Dimension::new("sources", Purpose::Secrecy, DimensionKind::Set(names.clone()));
    let space = Space::new(vec![set]).unwrap();
    let mut table = NameTable::new(&space);
    let label = |name: &String| {
        let set = table.set(&space, "sources", std::slice::from_ref(name), ComputedLabelUse::Data);
        set.unwrap().label
    };
    names.iter().map(label).collect()
}

/// Returns labels of a product of a set, a chain and the lattice N5, which is not modular. Each pick chooses one label:
/// the bits of its set, and the indices of its elements of N5 and the chain.
pub(crate) fn product_labels(picks: &[(u8, u8, u8)]) -> Vec<Label> {
    let names = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    let n5 = [("0", "p"), ("p", "q"), ("q", "1"), ("0", "r"), ("r", "1")];
    let order = |lattice| DimensionKind::Order(lattice);
    let space = Space::new(vec![
        Dimension::new("set", Purpose::Secrecy, DimensionKind::Set(names.clone())),
        Dimension::new("n5", Purpose::Secrecy, order(Lattice::from_edges(&[] as &[&str], &n5).unwrap())),
        Dimension::new("chain", Purpose::Integrity, order(Lattice::chain(&["low", "mid", "high"]).unwrap())),
    ])
    .unwrap();
    let mut table = NameTable::new(&space);
    let mut label = |(set, order, chain): &(u8, u8, u8)| {
        let chosen: Vec<String> = names
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, name)| name.clone())
            .collect();
        let set = table.set(&space, "set", &chosen, ComputedLabelUse::Data).unwrap().label;
        // No pick has the greatest element of N5, `1`: it arises as the join of others.
        let order = space.element("n5", ["p", "q", "r", "0"][*order as usize % 4]).unwrap().label;
        let chain = space.element("chain", ["low", "mid", "high"][*chain as usize % 3]).unwrap().label;
        set.join(&order).join(&chain)
    };
    picks.iter().map(&mut label).collect()
}

/// Returns the join of the labels of these documents, which `names` lists by one character each: `a` is the first one.
pub(crate) fn element(span: &LabelSpan, names: &str) -> SpanElement {
    span.join_of_documents(names.bytes().map(|name| usize::from(name - b'a')))
}

/// Names the documents of an element, one character for each: `a` for the first document.
pub(crate) fn documents(span: &LabelSpan, element: SpanElement) -> String {
    span.documents(element)
        .into_iter()
        .map(|document| char::from(b'a' + u8::try_from(document).unwrap()))
        .collect()
}
