//! Finds the lowest labels whose documents suffice for an answer, with few tests. It is the default label search:
//! `find` and the influence method `knn-lm` create a [`HittingSet`], which owns the state of one search, and test the
//! labels that it requests with a model.
//!
//! A label is *similar* if the documents at or below it alone give the answer nearly the same utility as all documents
//! do. Testing a label costs an evaluation of the model. The search finds all minimal similar labels if similarity is
//! *monotone*, that is, if every label above a similar one is similar. The algorithm builds a tree of hitting sets
//! (Reiter, *A theory of diagnosis from first principles*, 1987).
//!
//! The search works on the *elements* of the lattice that the labels of the documents span ([`LabelSpan`]). An element
//! is a set of these labels, and represents their join. A [coordinate](LabelSpan::coordinates) is an element without
//! the labels that share one bit; every element but the top lies at or below at least one coordinate. The meet of an
//! element with a coordinate thus removes labels from the element.
//!
//! The search maintains a *frontier*, a list of elements such that each minimal similar element that was not found yet
//! lies at or below one of them. It repeats three steps until the frontier is empty:
//!
//! 1. It tests an element of the frontier. If the element is not similar, no element below it is, and it is dropped.
//! 2. If the element is similar, the search shrinks it to a minimal similar element M. It replaces the element by its
//!    meet with coordinates as long as the result is similar, with blocks of several coordinates at once, as
//!    QuickXplain does.
//! 3. Each element of the frontier to which M flows is replaced by the greatest elements below it to which M does not
//!    flow.
//!
//! # When it equals Algorithm 1
//!
//! *Claim: if similarity is monotone (equation 3: what lies above a similar element is similar), the search returns
//! exactly the minimal similar elements, and so does [Algorithm 1](super::minimal_labels).*
//!
//! 1. Everything returned is minimal. It is the end of a pass over all coordinates; for each coordinate k, either the
//!    current element X lay below k, or X ∧ k was not similar. The end E lies below X, so E ∧ k is E or not similar.
//!    Every element below E is below some E ∧ k ≠ E, hence not similar.
//! 2. Invariant: each minimal similar element was found, or lies below an element of the frontier. At the start, the
//!    frontier is the top. An element that is not similar has nothing similar below it. When X is replaced because M
//!    flows to X, a minimal element N ≠ M below X is not above M, and so lies below one of the greatest elements below
//!    X that are not above M ([`LabelSpan::maximal_below`]). An element below another one of the frontier is redundant.
//! 3. Each replacement goes strictly down in a finite lattice, so the frontier becomes empty.
//! 4. Algorithm 1 reaches every minimal similar element: all elements above it are similar, so it descends along any
//!    chain of covers. It returns only similar elements without a similar child, which are minimal.
//!
//! If similarity is not monotone, the two can differ, and neither is complete. What is returned is still sound: each
//! element was itself tested, and is similar.
//!
//! The number of tests is at most the number of maximal elements that are not similar, plus for each minimal label of
//! m of n coordinates about 2 m log₂(n / m) + 2 m. Algorithm 1 tests every similar element.

use std::collections::BTreeMap;

use flowgate::label::LabelSpan;
use flowgate::label::span::{SpanElement, maximal, minimal};

use super::search::LabelSearch;

/// The state of a search for all minimal similar elements. The header of this module explains the search.
#[derive(Debug, Clone)]
pub struct HittingSet {
    span: LabelSpan,
    /// The elements at or below which the minimal similar elements lie that were not found yet.
    frontier: Vec<SpanElement>,
    /// Whether each tested element is similar; the start counts as tested.
    tested: BTreeMap<SpanElement, bool>,
    /// The maximal elements among those that are known not to be similar.
    dissimilar: Vec<SpanElement>,
    /// The minimal similar elements found so far.
    found: Vec<SpanElement>,
    /// The order in which coordinates are removed.
    order: Vec<SpanElement>,
    /// The similar element that is being shrunk, if there is one.
    shrinking: Option<Shrinking>,
}

/// A similar element that is being shrunk.
#[derive(Debug, Clone)]
struct Shrinking {
    element: SpanElement,
    /// Blocks of the order that were not tried yet, each as its start and its end; the next block is last.
    blocks: Vec<(usize, usize)>,
}

impl HittingSet {
    /// Starts the search at the top of a lattice.
    #[must_use]
    pub fn new(span: LabelSpan) -> Self {
        let top = span.top();
        Self::within(span, top)
    }

    /// Starts the search for the minimal similar elements at or below `start`. The search does not test `start` itself,
    /// so the caller must have found that it is similar; the top always is.
    #[must_use]
    pub fn within(span: LabelSpan, start: SpanElement) -> Self {
        let order = span.coordinates().to_vec();
        let tested = BTreeMap::from([(start, true)]);
        let (dissimilar, found) = (Vec::new(), Vec::new());
        Self { span, frontier: vec![start], tested, dissimilar, found, order, shrinking: None }
    }

    /// Makes the search remove the labels with the lowest scores first. `scores` has one score for each distinct label
    /// of the documents, in the order of [`LabelSpan::labels`]; a low score means that the answer probably does not
    /// need the documents with this label. One test can then remove a whole block of such labels, so few tests are
    /// needed. If similarity is monotone, a complete search finds the same elements in any order.
    #[must_use]
    pub fn with_scores(mut self, scores: &[f64]) -> Self {
        // The meet with a coordinate removes the labels outside of it. Returns the greatest score among these.
        let removed = |coordinate: &SpanElement| {
            let kept: Vec<usize> = coordinate.labels().collect();
            let scores = scores.iter().enumerate().filter(|(label, _)| !kept.contains(label));
            scores.map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max)
        };
        self.order.sort_by(|a, b| removed(a).total_cmp(&removed(b)));
        self
    }

    /// Returns the maximal elements that are known not to be similar. After a complete search over a monotone utility,
    /// these are all maximal elements that are not similar.
    #[must_use]
    pub fn dissimilar(&self) -> &[SpanElement] {
        &self.dissimilar
    }

    /// Returns whether an element is similar, as far as earlier tests show it; `None` if the element must be tested. An
    /// element that was tested has the result of its test, and an element below a dissimilar one is dissimilar. The
    /// tests of other elements never show that an element is similar.
    fn known_similarity(&self, element: SpanElement) -> Option<bool> {
        if let Some(tested) = self.tested.get(&element) {
            return Some(*tested);
        }
        self.dissimilar.iter().any(|above| element.flows_to(*above)).then_some(false)
    }

    /// Tries to make a similar element smaller by its meet with blocks of coordinates; the meet with a coordinate
    /// removes some labels from an element. `shrinking` has the element and the blocks that were not tried yet. A block
    /// whose meet is not similar is halved, and its halves are tried. Returns the smaller element that has to be tested
    /// next. If no block makes the element smaller, it is minimal: adds it to those found, and returns `None`.
    fn shrink(&mut self, mut shrinking: Shrinking) -> Option<SpanElement> {
        while let Some((start, end)) = shrinking.blocks.pop() {
            let block = self.order.get(start..end).unwrap_or_default();
            let smaller = block.iter().fold(shrinking.element, |rest, coordinate| rest.meet(*coordinate));
            if smaller == shrinking.element {
                continue;
            }
            match self.known_similarity(smaller) {
                Some(true) => shrinking.element = smaller,
                Some(false) if end - start > 1 => {
                    let middle = usize::midpoint(start, end);
                    shrinking.blocks.extend([(middle, end), (start, middle)]);
                }
                Some(false) => {}
                None => {
                    // The block is tried again when the result of the test is known.
                    shrinking.blocks.push((start, end));
                    self.shrinking = Some(shrinking);
                    return Some(smaller);
                }
            }
        }
        self.found.push(shrinking.element);
        self.avoid(shrinking.element);
        None
    }

    /// Takes `minimal`, a minimal element that was found, out of the search: replaces each element of the frontier to
    /// which `minimal` flows by the greatest elements below it to which `minimal` does not flow. The elements still to
    /// be found lie at or below the new frontier.
    fn avoid(&mut self, minimal: SpanElement) {
        let mut frontier = Vec::new();
        for element in std::mem::take(&mut self.frontier) {
            if minimal.flows_to(element) {
                frontier.extend(self.span.maximal_below(element, minimal));
            } else {
                frontier.push(element);
            }
        }
        self.frontier = maximal(frontier);
        // An earlier test may have shown that a new element is dissimilar.
        self.drop_dissimilar();
    }

    /// Drops the elements of the frontier that are known not to be similar.
    fn drop_dissimilar(&mut self) {
        let kept = std::mem::take(&mut self.frontier);
        self.frontier =
            kept.into_iter().filter(|element| self.known_similarity(*element) != Some(false)).collect();
    }
}

impl LabelSearch for HittingSet {
    /// Returns what to test next. While a similar element is being shrunk, this is one smaller element; otherwise these
    /// are elements of the frontier, at most `most`, but at least one. The result is empty at the end of the search.
    fn need(&mut self, most: usize) -> Vec<SpanElement> {
        loop {
            if let Some(shrinking) = self.shrinking.take() {
                if let Some(needed) = self.shrink(shrinking) {
                    return vec![needed];
                }
                continue;
            }
            let similar = self.frontier.iter().find(|element| self.known_similarity(**element) == Some(true));
            let Some(element) = similar.copied() else {
                // The greatest elements are tested first: if one is not similar, none of the many below it is.
                let mut needed = self.frontier.clone();
                needed.sort_by_key(|element| std::cmp::Reverse(element.len()));
                needed.truncate(most.max(1));
                return needed;
            };
            self.shrinking = Some(Shrinking { element, blocks: vec![(0, self.order.len())] });
        }
    }

    /// Records the result of a test. If the element is not similar, what lies below it is not tested any more.
    fn answer(&mut self, element: SpanElement, is_similar: bool) {
        self.tested.insert(element, is_similar);
        if !is_similar {
            self.dissimilar = maximal(self.dissimilar.iter().copied().chain([element]));
            self.drop_dissimilar();
        }
    }

    /// Returns the minimal elements found so far, with the one that is being shrunk. Before the first element is
    /// shrunk, returns the minimal ones of the elements that are known to be similar.
    fn found(&self) -> Vec<SpanElement> {
        let unfinished = self.shrinking.iter().map(|shrinking| shrinking.element);
        let found = minimal(self.found.iter().copied().chain(unfinished));
        if !found.is_empty() {
            return found;
        }
        // Nothing was shrunk yet.
        minimal(self.tested.iter().filter(|(_, similar)| **similar).map(|(element, _)| *element))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::super::algorithm_1::minimal_labels;
    use super::super::search::run_search;
    use super::super::test_labels::{flat_labels, product_labels};
    use super::*;

    /// Returns a monotone test: an element is similar if it is at or above one of `least`.
    fn above(least: &[SpanElement]) -> impl Fn(SpanElement) -> bool + '_ {
        |element| least.iter().any(|least| least.flows_to(element))
    }

    proptest! {
        /// Both searches find the same minimal labels over random monotone utilities on random lattices, and every
        /// label found is similar, also if the budget ends early.
        #[test]
        fn it_equals_algorithm_1_if_the_utility_is_monotone(
            picks in proptest::collection::vec((0_u8..16, 0_u8..4, 0_u8..3), 0..8),
            chosen in proptest::collection::vec(proptest::collection::vec(0_usize..8, 0..5), 0..5),
            scores in proptest::collection::vec(-1.0_f64..1.0, 8),
            budget in 0_usize..12,
            batch in 1_usize..4,
        ) {
            let span = LabelSpan::new(&product_labels(&picks)).unwrap();
            let top = span.top();
            let mut least: Vec<SpanElement> = chosen.into_iter().map(|labels| span.join_of(labels)).collect();
            least.push(top);
            let is_similar = above(&least);
            let expected = minimal_labels(&span, |e| Ok::<_, Infallible>(is_similar(e))).unwrap();
            let plain = HittingSet::new(span);
            for search in [plain.clone(), plain.with_scores(&scores)] {
                let mut asked = Vec::new();
                let mut complete = search.clone();
                let found = run_search(&mut complete, usize::MAX, |e| {
                    asked.push(e);
                    Ok::<_, Infallible>(is_similar(e))
                }).unwrap();
                prop_assert_eq!(&found.elements, &expected);
                prop_assert!(found.is_complete && complete.dissimilar().iter().all(|e| !is_similar(*e)));
                // No test is repeated.
                let count = asked.len();
                asked.sort_unstable();
                asked.dedup();
                prop_assert_eq!(asked.len(), count);
                let mut limited = search.clone();
                let partial = run_search(&mut limited, budget, |e| Ok::<_, Infallible>(is_similar(e))).unwrap();
                prop_assert!(partial.tests <= budget && !partial.elements.is_empty());
                prop_assert!(partial.elements.iter().all(|e| is_similar(*e)));
                let mut batched = search;
                loop {
                    let needed = batched.need(batch);
                    if needed.is_empty() { break }
                    for element in needed { batched.answer(element, is_similar(element)) }
                }
                prop_assert_eq!(batched.found(), expected.clone());
            }
        }

        /// Whatever the utility, monotone or not, each label found was tested and is similar, and the search ends.
        #[test]
        fn what_is_found_was_tested(
            picks in proptest::collection::vec((0_u8..16, 0_u8..4, 0_u8..3), 0..8),
            seed: u64,
        ) {
            let span = LabelSpan::new(&product_labels(&picks)).unwrap();
            let is_similar = |e: SpanElement| {
                e.labels().fold(seed | 1, |mixed, label| mixed.rotate_left(9).wrapping_mul(label as u64 + 3)) % 3 != 0
            };
            let mut tested = Vec::new();
            let mut search = HittingSet::new(span.clone());
            let found = run_search(&mut search, usize::MAX, |e| {
                tested.push(e);
                Ok::<_, Infallible>(is_similar(e))
            }).unwrap();
            prop_assert!(found.elements.iter().all(|e| *e == span.top() || tested.contains(e) && is_similar(*e)));
            prop_assert_eq!(minimal(found.elements.clone()), found.elements);
        }
    }

    /// Two of three facts are in two of the 14 documents each, and the third one is in one document: there are 4
    /// minimal labels, and a fraction of the tests of Algorithm 1 finds them.
    #[test]
    fn it_needs_few_tests_on_incomparable_labels() {
        let span = LabelSpan::new(&flat_labels(14)).unwrap();
        let facts: [&[usize]; 3] = [&[3, 9], &[0, 13], &[6]];
        let is_similar = |e: SpanElement| {
            let documents = span.documents(e);
            facts.iter().all(|holders| holders.iter().any(|holder| documents.contains(holder)))
        };
        let mut literal = 0;
        let expected = minimal_labels(&span, |e| {
            literal += 1;
            Ok::<_, Infallible>(is_similar(e))
        })
        .unwrap();
        let mut search = HittingSet::new(span.clone());
        let found = run_search(&mut search, usize::MAX, |e| Ok::<_, Infallible>(is_similar(e))).unwrap();
        assert_eq!((found.elements.len(), &found.elements), (4, &expected));
        assert!(found.tests * 50 < literal, "{} of {literal}", found.tests);
        // The documents that hold one fact are removed together.
        assert_eq!(search.dissimilar().len(), 3);
    }

    /// Few tests suffice even with 128 documents.
    #[test]
    fn it_needs_few_tests_on_many_labels() {
        let span = LabelSpan::new(&flat_labels(128)).unwrap();
        let needed = span.join_of([5, 77, 100]);
        let mut search = HittingSet::new(span);
        let found = run_search(&mut search, 200, |e| Ok::<_, Infallible>(needed.flows_to(e))).unwrap();
        assert_eq!((found.elements, found.is_complete), (vec![needed], true));
        assert!(found.tests < 60, "{}", found.tests);
    }
}
