//! Implements Algorithm 1 of Permissive Information-Flow Analysis (section 3.2) exactly: as the recursion of the paper
//! ([`minimal_labels`]), and as a machine without I/O ([`Literal`]). Tests and benchmarks compare the faster
//! [`HittingSet`](super::HittingSet) with both; `find` uses `Literal` if the options of a search ask for it.
//!
//! The algorithm finds the least *similar* labels, those whose documents alone give an answer nearly the same utility
//! as all documents do. It starts at the top of the lattice, and descends to every similar child.
//!
//! The relation in line 3 of the algorithm is missing in the printed paper, and is read as "flows to". Both forms
//! record which labels they have visited, as section 3.3 suggests, so that each label is tested once.
//!
//! If the utility is not monotone, the result need not be an antichain: of two children, one may lead to a label below
//! a label that the other returns. For example, let the labels be all sets of the elements a to d, and let the sets
//! abcd, abc, abd, ad and a be similar. Then the result is the sets abc and a, although a is below abc. [`minimal`]
//! reduces such a result. The algorithm itself does not, because it must stay comparable with the paper.

use std::collections::{BTreeMap, BTreeSet};

use flowgate::label::LabelSpan;
use flowgate::label::span::{SpanElement, minimal};

use super::search::LabelSearch;

/// Returns the set Λ of Algorithm 1 of Permissive Information-Flow Analysis for the top of the lattice, sorted: the
/// similar labels that the algorithm reaches and that have no similar child. `is_similar` is the test of line 4 of the
/// algorithm: whether the documents at or below a label give the answer nearly the same utility as all documents do.
///
/// # Errors
/// The first error of the test.
pub fn minimal_labels<E>(
    span: &LabelSpan,
    mut is_similar: impl FnMut(SpanElement) -> Result<bool, E>,
) -> Result<Vec<SpanElement>, E> {
    let mut visited = BTreeMap::new();
    let found = visit(span, span.top(), &mut is_similar, &mut visited)?;
    Ok(found.into_iter().collect())
}

/// Returns the set Λ that the recursion of the paper computes for the similar label `label`: the union of the sets of
/// its similar children or, without such a child, `label` alone. `visited` maps each similar label that was visited to
/// its set, and each other label that was tested to `None`.
fn visit<E>(
    span: &LabelSpan,
    label: SpanElement,
    is_similar: &mut impl FnMut(SpanElement) -> Result<bool, E>,
    visited: &mut BTreeMap<SpanElement, Option<BTreeSet<SpanElement>>>,
) -> Result<BTreeSet<SpanElement>, E> {
    let mut found = BTreeSet::new();
    for child in span.children(label) {
        if !visited.contains_key(&child) {
            let below =
                if is_similar(child)? { Some(visit(span, child, is_similar, visited)?) } else { None };
            visited.insert(child, below);
        }
        // The set of the child, if the child is similar; a child that is not similar has none (`None`).
        found.extend(visited.get(&child).into_iter().flatten().flatten().copied());
    }
    if found.is_empty() {
        found.insert(label);
    }
    Ok(found)
}

/// Algorithm 1 as a machine. It tests the children of one similar label at a time, which can be one batch. The set of
/// visited labels, and so the result, does not depend on the order.
#[derive(Debug, Clone)]
pub struct Literal {
    span: LabelSpan,
    /// Whether each tested element is similar; the top counts as tested.
    tested: BTreeMap<SpanElement, bool>,
    /// Similar elements whose children were not all requested yet.
    unexpanded: Vec<SpanElement>,
    /// Children that are not tested yet.
    pending: Vec<SpanElement>,
}

impl Literal {
    /// Starts the search at the top of a lattice.
    #[must_use]
    pub fn new(span: LabelSpan) -> Self {
        let top = span.top();
        Self { span, tested: BTreeMap::from([(top, true)]), unexpanded: vec![top], pending: Vec::new() }
    }

    /// Returns whether an element was tested and is similar.
    fn is_similar(&self, element: SpanElement) -> bool {
        self.tested.get(&element) == Some(&true)
    }
}

impl LabelSearch for Literal {
    /// Returns children of a similar label that are not tested yet: at most `most`, but at least one. If all children
    /// of this label are tested, continues with the next similar label. The result is empty at the end of the search.
    fn need(&mut self, most: usize) -> Vec<SpanElement> {
        while self.pending.is_empty()
            && let Some(element) = self.unexpanded.pop()
        {
            let children = self.span.children(element);
            self.pending = children.into_iter().filter(|child| !self.tested.contains_key(child)).collect();
        }
        self.pending.iter().copied().take(most.max(1)).collect()
    }

    /// Records the result of a test. If the element is similar, [`need`](Self::need) later returns its children.
    fn answer(&mut self, element: SpanElement, is_similar: bool) {
        self.pending.retain(|pending| *pending != element);
        if self.tested.insert(element, is_similar).is_none() && is_similar {
            self.unexpanded.push(element);
        }
    }

    /// Returns the similar labels without a similar child or, before the search is complete, the minimal ones so far.
    fn found(&self) -> Vec<SpanElement> {
        let similar = self.tested.iter().filter(|(_, similar)| **similar).map(|(element, _)| *element);
        if !self.pending.is_empty() || !self.unexpanded.is_empty() {
            return minimal(similar);
        }
        let has_similar_child = |element: SpanElement| {
            self.span.children(element).into_iter().any(|child| self.is_similar(child))
        };
        similar.filter(|element| !has_similar_child(*element)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::super::search::run_search;
    use super::super::test_labels::{documents, element, flat_labels, product_labels};
    use super::*;

    /// The example for which the paper's Proposition 1 does not hold.
    #[test]
    fn the_literal_result_can_be_comparable() {
        let span = LabelSpan::new(&flat_labels(4)).unwrap();
        let similar = ["abcd", "abc", "abd", "ad", "a"].map(|names| element(&span, names));
        let is_similar = |e: SpanElement| Ok::<_, Infallible>(similar.contains(&e));
        let found = minimal_labels(&span, is_similar).unwrap();
        let names: Vec<String> = found.iter().map(|e| documents(&span, *e)).collect();
        assert_eq!(names, ["a", "abc"]);
        assert_eq!(minimal(found), [element(&span, "a")]);
    }

    #[test]
    fn a_chain_is_descended_to_the_first_drop() {
        let chain: Vec<_> = (1..5).map(|n| flat_labels(4).into_iter().take(n)).collect();
        let labels: Vec<_> =
            chain.into_iter().map(|joined| joined.reduce(|a, b| a.join(&b)).unwrap()).collect();
        let span = LabelSpan::new(&labels).unwrap();
        let mut tests = 0;
        let found = minimal_labels(&span, |e| {
            tests += 1;
            Ok::<_, Infallible>(e.len() >= 2)
        });
        assert_eq!((found.unwrap(), tests), (vec![span.join_of([1])], 3));
    }

    proptest! {
        /// [`Literal`] finds what the recursion finds, with as many tests, whether similarity is monotone or not, and
        /// in batches of any size.
        #[test]
        fn the_machine_is_the_recursion(
            picks in proptest::collection::vec((0_u8..8, 0_u8..4, 0_u8..3), 0..6),
            seed: u64,
            batch in 1_usize..5,
        ) {
            let span = LabelSpan::new(&product_labels(&picks)).unwrap();
            let is_similar = |e: SpanElement| {
                let start = seed | 1;
                let mixed = e.labels().fold(start, |mixed, label| mixed.rotate_left(9).wrapping_mul(label as u64 + 3));
                mixed % 3 != 0
            };
            let mut tests = 0;
            let expected = minimal_labels(&span, |e| { tests += 1; Ok::<_, Infallible>(is_similar(e)) }).unwrap();
            let mut search = Literal::new(span.clone());
            let mut asked = 0;
            loop {
                let needed = search.need(batch);
                if needed.is_empty() { break }
                prop_assert!(needed.len() <= batch);
                asked += needed.len();
                for element in needed { search.answer(element, is_similar(element)) }
            }
            prop_assert_eq!((search.found(), asked), (expected, tests));
            // With a budget as well, what is found was tested and is similar.
            let mut search = Literal::new(span.clone());
            let found = run_search(&mut search, tests / 2, |e| Ok::<_, Infallible>(is_similar(e))).unwrap();
            prop_assert_eq!((found.tests, found.is_complete), (tests / 2, tests / 2 == tests));
            prop_assert!(found.elements.iter().all(|e| *e == span.top() || is_similar(*e)));
            prop_assert!(!found.elements.is_empty());
        }
    }
}
