//! Defines [`LabelSpan`], the finite lattice of all joins of the labels of given documents. These are the labels that a
//! computation over some of the documents can carry (*Permissive Information-Flow Analysis for Large Language Models*,
//! section 3.2). The label searches of `flowgate-guard` look in this lattice for the documents that an answer needs,
//! since the whole label space can be too large to search.
//!
//! An element of the lattice ([`SpanElement`]) is the join of some of the given labels. It is represented by the set of
//! all given labels that flow to it. So one element flows to another one exactly if the set of the first is a subset of
//! the set of the second.
//!
//! A search asks for the maximal elements below an element. [`LabelSpan::maximal_below`] finds them without
//! enumerating the lattice, by means of *coordinates*. A [`Label`] consists of bits and, for each time dimension, of an
//! age; a join has the bits of both labels and the greater ages. So an element other than the greatest one lacks a bit
//! that the greatest one has, or has a lesser age in some dimension. All given labels that lack a certain bit form an
//! element, and so do all labels below a certain age: these elements are the coordinates. Every element except the
//! greatest one is at or below a coordinate. So the maximal elements strictly below an element are among its meets with
//! the coordinates.

use std::collections::BTreeSet;
use std::fmt;

use super::Label;

/// The most distinct labels that a [`LabelSpan`] can have.
pub const MAX_SPAN_LABELS: usize = 128;

/// An element of the lattice that labels span: a set of the distinct labels, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanElement(u128);

impl SpanElement {
    /// Returns whether this element flows to `upper`.
    #[must_use]
    pub fn flows_to(self, upper: Self) -> bool {
        // An element is a set of labels, as bits: it flows to `upper` if its set is a subset.
        self.0 & !upper.0 == 0
    }

    /// Returns the greatest element that flows to both elements. It exists because the join of elements that flow to
    /// both flows to both as well. Its label need not be the meet of the two labels in the label space.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the number of distinct labels that flow to this element.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether no given label flows to this element: a computation over no documents.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the indices of the distinct labels that flow to this element.
    pub fn labels(self) -> impl Iterator<Item = usize> {
        (0..MAX_SPAN_LABELS).filter(move |index| self.0 >> index & 1 == 1)
    }
}

/// The lattice of the joins of given labels. Its least element is the join of none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSpan {
    /// The distinct labels, in the order in which they are first given.
    labels: Vec<Label>,
    /// For each document the index of its label.
    documents: Vec<usize>,
    /// The coordinates: every element except the greatest one is at or below one of them. See the documentation of the
    /// module.
    coordinates: Vec<SpanElement>,
    top: SpanElement,
}

/// The error that documents have more distinct labels than [`MAX_SPAN_LABELS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyLabels;

impl fmt::Display for TooManyLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the documents have more than {MAX_SPAN_LABELS} different labels; retrieve fewer documents")
    }
}

impl std::error::Error for TooManyLabels {}

impl LabelSpan {
    /// Builds the lattice that the labels of documents span.
    ///
    /// # Errors
    /// If there are more than [`MAX_SPAN_LABELS`] different labels.
    pub fn new(document_labels: &[Label]) -> Result<Self, TooManyLabels> {
        let mut labels: Vec<Label> = Vec::new();
        // The index in `labels` of each document's label. Documents with equal labels share one.
        let mut documents = Vec::with_capacity(document_labels.len());
        for label in document_labels {
            let known = labels.iter().position(|other| other == label);
            documents.push(known.unwrap_or(labels.len()));
            if known.is_none() {
                labels.push(*label);
            }
            if labels.len() > MAX_SPAN_LABELS {
                return Err(TooManyLabels);
            }
        }
        // An element is a set of labels; the top contains all of them.
        let top = set_of(&labels, |_| true);
        let coordinates = coordinates(&labels, top);
        Ok(Self { labels, documents, coordinates, top })
    }

    /// Returns the distinct labels, in the order in which they are first given.
    #[must_use]
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// Returns the greatest element: the join of all labels.
    #[must_use]
    pub fn top(&self) -> SpanElement {
        self.top
    }

    /// Returns the least element: the join of no label.
    #[must_use]
    pub fn bottom(&self) -> SpanElement {
        self.at(&Label::BOTTOM)
    }

    /// Returns the greatest element whose label flows to `bound`.
    #[must_use]
    pub fn at(&self, bound: &Label) -> SpanElement {
        set_of(&self.labels, |label| label.flows_to(bound))
    }

    /// Returns the label of an element: the join of the given labels that flow to it.
    #[must_use]
    pub fn label(&self, element: SpanElement) -> Label {
        let labels = element.labels().filter_map(|index| self.labels.get(index));
        labels.fold(Label::BOTTOM, |joined, label| joined.join(label))
    }

    /// Returns the join of labels, given by index: the least element that all of them flow to.
    #[must_use]
    pub fn join_of(&self, labels: impl IntoIterator<Item = usize>) -> SpanElement {
        let given = labels.into_iter().filter_map(|index| self.labels.get(index));
        self.at(&given.fold(Label::BOTTOM, |joined, label| joined.join(label)))
    }

    /// Returns the join of the labels of documents, given by index: the least element that all of these labels flow to.
    #[must_use]
    pub fn join_of_documents(&self, documents: impl IntoIterator<Item = usize>) -> SpanElement {
        self.join_of(documents.into_iter().filter_map(|document| self.documents.get(document).copied()))
    }

    /// Returns the documents whose labels flow to an element, in order: its subcontext.
    #[must_use]
    pub fn documents(&self, element: SpanElement) -> Vec<usize> {
        // Bit n of an element is set if the label with the index n flows to it.
        let labelled = self.documents.iter().enumerate();
        labelled.filter(|(_, label)| element.0 >> **label & 1 == 1).map(|(document, _)| document).collect()
    }

    /// Returns the coordinates of the span: for each bit of a label the element of the labels without it, and for each
    /// age the element of the younger labels. The meets of an element with the coordinates include all maximal elements
    /// strictly below it, so a search reaches every smaller element by meets with coordinates.
    #[must_use]
    pub fn coordinates(&self) -> &[SpanElement] {
        &self.coordinates
    }

    /// Returns the lower covers of an element: the maximal elements strictly below it.
    #[must_use]
    pub fn children(&self, element: SpanElement) -> Vec<SpanElement> {
        // The elements strictly below `element` are the elements below it to which it does not flow itself.
        self.maximal_below(element, element)
    }

    /// Returns the maximal elements below `element` to which `avoided` does not flow. `avoided` must flow to `element`.
    ///
    /// Such an element lacks a bit that `avoided` has, or has a lesser age than `avoided`. So it flows to the
    /// coordinate of that bit or age, and the meet of `element` with this coordinate is at least as great. Therefore,
    /// only the meets with coordinates are compared.
    #[must_use]
    pub fn maximal_below(&self, element: SpanElement, avoided: SpanElement) -> Vec<SpanElement> {
        let below = self.coordinates.iter().map(|coordinate| element.meet(*coordinate));
        maximal(below.filter(|below| !avoided.flows_to(*below)))
    }

    /// Returns all elements of the span; `None` if there are more than `limit`. The search begins at the top, and
    /// continues with the maximal elements strictly below each element that it finds.
    #[must_use]
    pub fn elements(&self, limit: usize) -> Option<Vec<SpanElement>> {
        let mut found = BTreeSet::from([self.top]);
        let mut pending = vec![self.top];
        while let Some(element) = pending.pop() {
            pending.extend(self.children(element).into_iter().filter(|child| found.insert(*child)));
            if found.len() > limit {
                return None;
            }
        }
        Some(found.into_iter().collect())
    }
}

/// Returns the elements that flow to no other one, without repetitions, sorted.
#[must_use]
pub fn maximal(elements: impl IntoIterator<Item = SpanElement>) -> Vec<SpanElement> {
    extremal(elements, |element, other| element.flows_to(other))
}

/// Returns the elements to which no other one flows, without repetitions, sorted.
#[must_use]
pub fn minimal(elements: impl IntoIterator<Item = SpanElement>) -> Vec<SpanElement> {
    extremal(elements, |element, other| other.flows_to(element))
}

/// Returns the elements that no other one makes redundant, sorted and without duplicates. `is_redundant` receives an
/// element and another one, and returns whether the other one makes the element redundant.
fn extremal(
    elements: impl IntoIterator<Item = SpanElement>,
    is_redundant: impl Fn(SpanElement, SpanElement) -> bool,
) -> Vec<SpanElement> {
    let distinct: BTreeSet<SpanElement> = elements.into_iter().collect();
    let is_needed = |element: &SpanElement| {
        !distinct.iter().any(|other| other != element && is_redundant(*element, *other))
    };
    distinct.iter().copied().filter(is_needed).collect()
}

/// Returns the labels for which a predicate holds, as an element: bit n is set for the label with the index n.
fn set_of(labels: &[Label], is_in: impl Fn(&Label) -> bool) -> SpanElement {
    let members = labels.iter().take(MAX_SPAN_LABELS).enumerate().filter(|(_, label)| is_in(label));
    SpanElement(members.fold(0, |set, (index, _)| set | 1 << index))
}

/// Returns the coordinates of the span: for each bit of some label, the set of the labels without the bit, and for each
/// age, the set of the younger labels. `top` is the set of all labels. Every element except `top` is at or below one of
/// them. So the maximal elements strictly below an element are among its meets with the coordinates.
fn coordinates(labels: &[Label], top: SpanElement) -> Vec<SpanElement> {
    let joined = labels.iter().fold(Label::BOTTOM, |joined, label| joined.join(label));
    let mut found: Vec<SpanElement> = Vec::new();
    let mut add = |element: SpanElement| {
        if element != top && !found.contains(&element) {
            found.push(element);
        }
    };
    // For each bit that some label has, the labels without it.
    for (word, bits) in joined.bits.iter().enumerate() {
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let lacks = |label: &Label| label.bits.get(word).is_none_or(|bits| bits >> bit & 1 == 0);
            add(set_of(labels, lacks));
        }
    }
    // For each age that some label has, the labels with a lesser age.
    for dimension in 0..joined.ages.len() {
        let age = |label: &Label| label.ages.get(dimension).copied().unwrap_or(0);
        for limit in labels.iter().map(age).filter(|limit| *limit > 0).collect::<BTreeSet<_>>() {
            add(set_of(labels, |label| age(label) < limit));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Labels that are points of a product with bits in two words and an age.
    fn labels(picks: &[(u8, u8, u8)]) -> Vec<Label> {
        let label = |(low, high, age): &(u8, u8, u8)| {
            let mut label = Label::BOTTOM;
            label.bits[0] = u64::from(*low);
            label.bits[3] = u64::from(*high) << 40;
            label.ages[1] = u64::from(*age % 4);
            label
        };
        picks.iter().map(label).collect()
    }

    /// All joins of subsets, by their definition.
    fn all_joins(labels: &[Label]) -> Vec<Label> {
        let mut joins = vec![Label::BOTTOM];
        for label in labels {
            let more: Vec<Label> = joins.iter().map(|join| join.join(label)).collect();
            joins.extend(more.into_iter().filter(|join| !joins.contains(join)).collect::<Vec<_>>());
            joins.sort_by_key(|join| (join.bits, join.ages));
            joins.dedup();
        }
        joins
    }

    proptest! {
        /// The elements are exactly the joins, with the same order, and the children of an element are its lower
        /// covers.
        #[test]
        fn elements_are_the_joins(picks in proptest::collection::vec((0_u8..8, 0_u8..4, 0_u8..4), 0..7)) {
            let labels = labels(&picks);
            let span = LabelSpan::new(&labels).unwrap();
            let elements = span.elements(usize::MAX).unwrap();
            let mut found: Vec<Label> = elements.iter().map(|element| span.label(*element)).collect();
            found.sort_by_key(|join| (join.bits, join.ages));
            prop_assert_eq!(&found, &all_joins(&labels));
            for a in &elements {
                prop_assert_eq!(span.at(&span.label(*a)), *a);
                for b in &elements {
                    prop_assert_eq!(a.flows_to(*b), span.label(*a).flows_to(&span.label(*b)));
                    prop_assert!(elements.contains(&a.meet(*b)));
                    if a.flows_to(*b) {
                        let below = span.maximal_below(*b, *a);
                        let avoids = |e: &SpanElement| e.flows_to(*b) && !a.flows_to(*e);
                        prop_assert_eq!(below, maximal(elements.iter().copied().filter(avoids)));
                    }
                }
                let strictly_below = elements.iter().copied().filter(|e| e.flows_to(*a) && e != a);
                prop_assert_eq!(span.children(*a), maximal(strictly_below));
                for (document, label) in labels.iter().enumerate() {
                    let is_in = span.documents(*a).contains(&document);
                    prop_assert_eq!(is_in, label.flows_to(&span.label(*a)));
                }
            }
        }
    }

    #[test]
    fn documents_with_one_label_are_one() {
        let labels = labels(&[(1, 0, 0), (2, 0, 0), (1, 0, 0)]);
        let span = LabelSpan::new(&labels).unwrap();
        assert_eq!((span.labels().len(), span.top().len(), span.bottom().is_empty()), (2, 2, true));
        let first = span.join_of_documents([0]);
        assert_eq!((span.documents(first), span.join_of([0])), (vec![0, 2], first));
        assert_eq!(span.elements(4).map(|elements| elements.len()), Some(4));
        assert_eq!(span.elements(3), None);
    }

    #[test]
    fn many_labels_span_a_lattice_and_more_are_refused() {
        let labels: Vec<Label> = (0..=MAX_SPAN_LABELS)
            .map(|index| {
                let mut label = Label::BOTTOM;
                label.bits[index / 64] = 1 << (index % 64);
                label
            })
            .collect();
        let span = LabelSpan::new(&labels[..MAX_SPAN_LABELS]).unwrap();
        assert_eq!(span.children(span.top()).len(), MAX_SPAN_LABELS);
        assert_eq!(span.label(span.join_of([127])), labels[127]);
        let error = LabelSpan::new(&labels).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the documents have more than 128 different labels; retrieve fewer documents"
        );
    }
}
