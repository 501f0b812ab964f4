//! Defines a question about labelled documents ([`LabelledContext`]), and builds its prompt. The scorer of subcontexts
//! and the wrapper around retrieval use this module.
//!
//! The prompt contains the documents in the order of their labels, most permissive first. If the labels form a chain,
//! then for each label the documents whose labels flow to it are a prefix of the context, and a model evaluates each
//! prefix only once (section 6.3 of *Permissive Information-Flow Analysis*). The paper treats a context as a set of
//! documents, so the order is free.

use flowgate::label::{Label, LabelSpan};

/// A document with its label. A caller that knows no label of a document uses the top of the label space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledDocument {
    /// The text, without the markers of the prompt.
    pub text: String,
    /// The label.
    pub label: Label,
}

/// A question with the documents that were retrieved for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledContext {
    /// What precedes the documents.
    pub preamble: String,
    /// The documents.
    pub documents: Vec<LabelledDocument>,
    /// What follows the documents, up to the beginning of the answer.
    pub question: String,
    /// The label of preamble and question, which every answer carries.
    pub question_label: Label,
}

impl LabelledContext {
    /// Returns the labels of the documents, in order.
    #[must_use]
    pub fn labels(&self) -> Vec<Label> {
        self.documents.iter().map(|document| document.label).collect()
    }

    /// Returns the part of the prompt for one document, given by index; empty if there is none. It ends with a line
    /// break, so that no token spans its end.
    #[must_use]
    pub fn document_text(&self, document: usize) -> String {
        self.documents
            .get(document)
            .map(|document| format!("{}\n", document.text.trim_end()))
            .unwrap_or_default()
    }

    /// Returns the whole prompt with the documents of `order`, given by index.
    #[must_use]
    pub fn prompt(&self, order: &[usize]) -> String {
        let documents: String = order.iter().map(|document| self.document_text(*document)).collect();
        format!("{}{documents}{}", self.preamble, self.question)
    }
}

/// Returns the indices of all documents, ordered so that a document follows those whose labels flow to its own.
#[must_use]
pub fn order_by_label(span: &LabelSpan) -> Vec<usize> {
    let mut order = span.documents(span.top());
    // An element below another one contains fewer labels.
    order.sort_by_key(|document| {
        let element = span.join_of_documents([*document]);
        (element.len(), element)
    });
    order
}

#[cfg(test)]
mod tests {
    use super::super::test_labels::{element, product_labels};
    use super::*;

    #[test]
    fn documents_follow_those_below_them() {
        let labels = product_labels(&[(3, 3, 2), (1, 3, 2), (0, 3, 0), (8, 3, 1), (1, 3, 2)]);
        let span = LabelSpan::new(&labels).unwrap();
        let order = order_by_label(&span);
        for (at, document) in order.iter().enumerate() {
            for later in &order[at..] {
                let is_above =
                    labels[*later].flows_to(&labels[*document]) && labels[*later] != labels[*document];
                assert!(!is_above, "{order:?}");
            }
        }
        assert_eq!(order[0], 2);
        assert_eq!(span.documents(element(&span, "b")), [1, 2, 4]);
        let document = |text: &str| LabelledDocument { text: text.to_owned(), label: labels[0] };
        let context = LabelledContext {
            preamble: "Read.\n".to_owned(),
            documents: vec![document("one\n"), document("two")],
            question: "Q:".to_owned(),
            question_label: Label::BOTTOM,
        };
        assert_eq!(context.prompt(&[1, 0, 7]), "Read.\ntwo\none\nQ:");
    }
}
