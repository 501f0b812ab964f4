//! Defines what the searches for similar labels have in common: a machine without I/O that says which labels it needs
//! tested, and the loop that tests them within a budget. A label is similar if the documents at or below it alone give
//! an answer nearly the same utility as all documents.
//!
//! [`Literal`](super::Literal) and [`HittingSet`](super::HittingSet) implement [`LabelSearch`]. The caller tests labels
//! with a model, or in tests with a table.

use flowgate::label::span::SpanElement;

use super::shapley::ShapleyValues;

/// A search for the minimal labels whose documents are sufficient.
///
/// The top of the lattice, the naive label, counts as similar: it is the context itself.
pub trait LabelSearch {
    /// Returns the elements to test next, at most `most` of them and at least one; empty if the search is complete.
    fn need(&mut self, most: usize) -> Vec<SpanElement>;

    /// Records whether the subcontext of an element is similar to the context.
    fn answer(&mut self, element: SpanElement, is_similar: bool);

    /// Returns the elements that the search has found, sorted. Each was tested and is similar, or is the top. Before
    /// the search is complete, they are the least so far: the top, if nothing better was found.
    fn found(&self) -> Vec<SpanElement>;
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SimilarLabels {
    /// The elements found.
    pub elements: Vec<SpanElement>,
    /// Whether the search ended by itself; otherwise the budget was spent, and the elements are the least so far.
    pub is_complete: bool,
    /// What was spent of the budget: the number of elements that were tested, and of those that were scored for a
    /// pruning.
    pub tests: usize,
    /// The Shapley values of the labels with their standard errors, if labels were pruned by them.
    pub shapley: Option<ShapleyValues>,
}

impl SimilarLabels {
    /// Returns what a search has found in `tests` tests, without a pruning.
    pub(super) fn of(search: &dyn LabelSearch, is_complete: bool, tests: usize) -> Self {
        Self { elements: search.found(), is_complete, tests, shapley: None }
    }
}

/// Runs a search with at most `budget` tests, one element at a time. `is_similar` tests whether the subcontext of an
/// element is similar to the context.
///
/// # Errors
/// The first error of the test.
pub fn run_search<E>(
    search: &mut dyn LabelSearch,
    budget: usize,
    mut is_similar: impl FnMut(SpanElement) -> Result<bool, E>,
) -> Result<SimilarLabels, E> {
    let mut tests = 0;
    loop {
        let needed = search.need(1);
        let Some(element) = needed.first().copied() else {
            return Ok(SimilarLabels::of(search, true, tests));
        };
        if tests >= budget {
            return Ok(SimilarLabels::of(search, false, tests));
        }
        tests += 1;
        search.answer(element, is_similar(element)?);
    }
}
