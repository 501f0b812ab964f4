//! Measures the time to join and compare labels.

#![expect(clippy::unwrap_used, reason = "benchmarks")]

use divan::{Bencher, black_box};
use flowgate::label::{
    ComputedLabelUse, Dimension, DimensionKind, Label, Lattice, NameTable, Purpose, Space,
};

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

/// Two labels of a space of 128 bits: a chain, two sets and the readers of a document.
fn labels() -> (Space, Label, Label) {
    let names = |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let chain = Lattice::chain(&names("level", 17)).unwrap();
    let space = Space::new(vec![
        Dimension::new("level", Purpose::Integrity, DimensionKind::Order(chain)),
        Dimension::new("categories", Purpose::Secrecy, DimensionKind::Set(names("category", 64))),
        Dimension::new("readers", Purpose::Secrecy, DimensionKind::Readers),
    ])
    .unwrap();
    let mut name_table = NameTable::new(&space);
    let mut label = |level: &str, category: &str, reader: &str| {
        let categories =
            name_table.set(&space, "categories", &[category.to_owned()], ComputedLabelUse::Data).unwrap();
        let readers =
            name_table.set(&space, "readers", &[reader.to_owned()], ComputedLabelUse::Data).unwrap();
        let level = space.element("level", level).unwrap();
        level.label.join(&categories.label).join(&readers.label)
    };
    let (a, b) = (label("level3", "category9", "ann"), label("level12", "category40", "bob"));
    (space, a, b)
}

#[divan::bench]
fn join(bencher: Bencher<'_, '_>) {
    let (_, a, b) = labels();
    bencher.bench_local(|| black_box(&a).join(black_box(&b)));
}

#[divan::bench]
fn flows_to(bencher: Bencher<'_, '_>) {
    let (space, a, _) = labels();
    let top = space.top();
    bencher.bench_local(|| black_box(&a).flows_to(black_box(&top)));
}
