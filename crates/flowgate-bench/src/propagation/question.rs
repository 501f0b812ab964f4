//! Defines the questions of the propagation suite: labelled documents, the facts that they state, and the ground truth,
//! which is the set of the minimal labels whose documents suffice for the answer. The ground truth is computed from the
//! facts, so no model and no person has to judge it. The data sets create the questions, and `method.rs` finds labels
//! for their answers.

use std::collections::BTreeSet;

use flowgate::label::span::{SpanElement, minimal};
use flowgate::label::{
    ComputedLabelUse, Dimension, DimensionKind, Label, LabelSpan, Lattice, NameTable, Purpose, Space,
};
use flowgate_guard::propagation::{LabelledContext, LabelledDocument};

/// The number of a fact. Each data set numbers its facts.
pub type Fact = usize;

/// A document, with the facts that it states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDocument {
    /// The text.
    pub text: String,
    /// The label.
    pub label: Label,
    /// The facts that the text states.
    pub facts: BTreeSet<Fact>,
}

/// A question with the documents that were retrieved for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentQuestion {
    /// The question.
    pub text: String,
    /// The answer of the data set, y* in *Permissive Information-Flow Analysis*.
    pub answer: String,
    /// The facts that the answer states.
    pub needs: BTreeSet<Fact>,
    /// The documents that were retrieved.
    pub documents: Vec<SourceDocument>,
    /// Whether the prompt has the question before the documents, as a conversation has the request before the output
    /// of a tool. All subcontexts then share the evaluation of the question.
    pub asks_first: bool,
}

impl DocumentQuestion {
    /// Returns the lattice of the joins of the documents' labels; `None` if there are more than 128 labels.
    pub fn span(&self) -> Option<LabelSpan> {
        let labels: Vec<Label> = self.documents.iter().map(|document| document.label).collect();
        LabelSpan::new(&labels).ok()
    }

    /// Returns whether the documents whose labels flow to `element` state every fact of the answer. A fact that no
    /// document of the question states does not count: its document was not retrieved, so no element could cover it.
    pub fn is_covered(&self, span: &LabelSpan, element: SpanElement) -> bool {
        let visible = span.documents(element);
        self.needs
            .iter()
            .filter(|fact| !self.holders(**fact).is_empty())
            .all(|fact| self.holders(*fact).iter().any(|holder| visible.contains(holder)))
    }

    /// Returns the ground truth: the minimal elements of the span whose documents state all facts of the answer,
    /// sorted. Such an element is the join of the labels of one document for each fact, so all these joins are formed,
    /// and the minimal ones remain. Facts that no document states are left out.
    pub fn truth(&self, span: &LabelSpan) -> Vec<SpanElement> {
        let mut joins = BTreeSet::from([span.bottom()]);
        for fact in &self.needs {
            let holders = self.holders(*fact);
            if holders.is_empty() {
                continue;
            }
            // The join of an element with the label of one document.
            let join = |element: &SpanElement, holder: usize| {
                span.join_of(element.labels().chain(span.join_of_documents([holder]).labels()))
            };
            // Each join so far is combined with each document that states this fact.
            joins = joins
                .iter()
                .flat_map(|element| holders.iter().map(move |holder| join(element, *holder)))
                .collect();
        }
        minimal(joins)
    }

    /// Returns the documents and the question as a labelled context, from which prompts are written. The question
    /// comes before the documents if `asks_first` is true, and otherwise after them. The question counts as public
    /// and trusted.
    pub fn context(&self) -> LabelledContext {
        let document =
            |source: &SourceDocument| LabelledDocument { text: source.text.clone(), label: source.label };
        let question = format!("Question: {}\n", self.text);
        let (preamble, question) = match self.asks_first {
            true => (format!("{question}Documents:\n"), "Answer:".to_owned()),
            false => ("Documents:\n".to_owned(), format!("{question}Answer:")),
        };
        LabelledContext {
            preamble,
            documents: self.documents.iter().map(document).collect(),
            question,
            question_label: Label::BOTTOM,
        }
    }

    /// Returns the texts that identify the question, for the digest in a manifest: the question, its answer, whether the
    /// question or the documents come first, the facts that the answer needs, and each document with its facts and with
    /// the documents whose labels flow to its label. They contain no name of a field, so that a renamed field changes no
    /// digest.
    pub(super) fn texts(&self) -> Vec<String> {
        let numbers = |numbers: &mut dyn Iterator<Item = usize>| {
            numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
        };
        let order = if self.asks_first { "the question first" } else { "the documents first" };
        let needs = numbers(&mut self.needs.iter().copied());
        let mut texts = vec![self.text.clone(), self.answer.clone(), order.to_owned(), needs];
        for document in &self.documents {
            let numbered = self.documents.iter().enumerate();
            let mut below =
                numbered.filter(|(_, other)| other.label.flows_to(&document.label)).map(|(index, _)| index);
            let facts = numbers(&mut document.facts.iter().copied());
            texts.extend([document.text.clone(), facts, numbers(&mut below)]);
        }
        texts
    }

    /// Returns the indices of the documents that state a fact.
    fn holders(&self, fact: Fact) -> Vec<usize> {
        let documents = self.documents.iter().enumerate();
        documents.filter(|(_, source)| source.facts.contains(&fact)).map(|(index, _)| index).collect()
    }
}

/// Returns `count` labels of which no two are comparable, one for each document. Each label is a set with one name of
/// its own. `None` if the label space cannot be built.
pub fn flat_labels(count: usize) -> Option<Vec<Label>> {
    let names: Vec<String> = (0..count).map(|index| format!("d{index}")).collect();
    let kind = DimensionKind::Set(names.clone());
    let space = Space::new(vec![Dimension::new("documents", Purpose::Secrecy, kind)]).ok()?;
    let mut table = NameTable::new(&space);
    let mut label = |name: &String| {
        let set = table.set(&space, "documents", std::slice::from_ref(name), ComputedLabelUse::Data)?;
        Some(set.label)
    };
    names.iter().map(&mut label).collect()
}

/// Returns the labels `trusted` and `untrusted`, in this order, of a space with one dimension; `None` if the space
/// cannot be built.
pub fn integrity_labels() -> Option<[Label; 2]> {
    let names = ["trusted", "untrusted"];
    let kind = DimensionKind::Order(Lattice::chain(&names).ok()?);
    let space = Space::new(vec![Dimension::new("integrity", Purpose::Integrity, kind)]).ok()?;
    Some([space.element("integrity", names[0])?.label, space.element("integrity", names[1])?.label])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A question over documents with these facts and incomparable labels.
    fn question(documents: &[BTreeSet<Fact>], needs: &BTreeSet<Fact>) -> DocumentQuestion {
        let labels = flat_labels(documents.len()).unwrap();
        let document = |(facts, label): (&BTreeSet<Fact>, Label)| SourceDocument {
            text: String::new(),
            label,
            facts: facts.clone(),
        };
        let documents = documents.iter().zip(labels).map(document).collect();
        let (text, answer) = (String::new(), String::new());
        DocumentQuestion { text, answer, needs: needs.clone(), documents, asks_first: false }
    }

    proptest! {
        /// The ground truth is what the definition says, over all elements.
        #[test]
        fn the_truth_is_the_minimal_covers(
            documents in proptest::collection::vec(proptest::collection::btree_set(0_usize..5, 0..3), 1..7),
            needs in proptest::collection::btree_set(0_usize..5, 0..4),
        ) {
            let question = question(&documents, &needs);
            let span = question.span().unwrap();
            let all = span.elements(usize::MAX).unwrap();
            let covered = all.into_iter().filter(|element| question.is_covered(&span, *element));
            prop_assert_eq!(question.truth(&span), minimal(covered));
        }
    }

    /// Figure 4 of the paper, with the sets of its table: {ABC, AD}.
    #[test]
    fn the_example_of_figure_4_has_its_labels() {
        let facts = [&[0, 1][..], &[2], &[3], &[2, 3]].map(|facts| facts.iter().copied().collect());
        let question = question(&facts, &(0..4).collect());
        let span = question.span().unwrap();
        let sets: Vec<Vec<usize>> = question.truth(&span).into_iter().map(|e| span.documents(e)).collect();
        assert_eq!(sets, [vec![0, 1, 2], vec![0, 3]]);
    }
}
