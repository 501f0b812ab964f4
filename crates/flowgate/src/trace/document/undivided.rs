//! Makes the content of an event that was decomposed into fields one region again. The monitor calls
//! [`Document::keep_content_undivided`] before it labels an event, if a `label` statement captures a part of the whole
//! content by a pattern. Otherwise, the author of the content could choose whether the statement applies, by writing a
//! text that can or cannot be parsed as data.

use serde_json::Value;

use super::{Document, NodeContent, NodeId};

impl Document {
    /// Undoes the division of a text content into the fields that it encodes: the content is one node with the whole
    /// text again, from which a `label` statement can capture parts. Does nothing if the content was not divided.
    ///
    /// Labels that the removed regions had are lost, so this precedes all labelling.
    pub(crate) fn keep_content_undivided(&mut self) {
        let Some(content) = self.key(0, "content") else { return };
        let Some(text) = self.spelled_text(content) else { return };
        let Some(end) = self.nodes.get(content).map(|node| node.end) else { return };
        // The nodes from the one after the content up to `end` are the fields.
        let removed = end - content - 1;
        self.nodes.drain(content + 1..end);
        // The indices of the nodes after the content move down.
        for node in &mut self.nodes {
            if node.parent >= end {
                node.parent -= removed;
            }
            if node.end >= end {
                node.end -= removed;
            }
        }
        if let Some(node) = self.nodes.get_mut(content) {
            node.content = NodeContent::Scalar(Value::String(text));
            // Only a divided node has its text next to its fields.
            node.text = None;
        }
    }

    /// Returns the text of a node that spells a list or a map. `None` if the node has no text, or if its text only joins
    /// the texts of several blocks.
    fn spelled_text(&self, id: NodeId) -> Option<String> {
        let text = self.nodes.get(id)?.text.as_ref()?;
        // A node has a span if it is a part of a text; a block of text has none.
        let is_part = |child: NodeId| self.nodes.get(child).is_some_and(|child| child.span.is_some());
        self.children(id).all(is_part).then(|| text.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Label;
    use crate::trace::event::{EventBody, Output};

    fn undivided(content: Value, structured: Option<Value>) -> Document {
        let (call_id, tool, is_error) = ("c".to_owned(), None, Some(false));
        let output = Output { call_id, tool, content, structured, is_error };
        let mut document = Document::new(&EventBody::Output(output), Label::BOTTOM);
        document.keep_content_undivided();
        document
    }

    /// Returns the path and the number of nodes of each child of the root.
    fn shape(document: &Document) -> Vec<(String, usize)> {
        let children = document.children(0);
        children.map(|id| (document.path(id).to_string(), document.nodes()[id].end - id)).collect()
    }

    #[test]
    fn texts_in_every_notation_become_one_region() {
        for text in ["Rating: 4\nReviews: nice", "{\"a\": [1, {\"b\": 2}]}", "{'a': (1, 2)}", "[]", "prose"] {
            let document = undivided(Value::from(text), None);
            let content = document.key(0, "content").unwrap();
            assert_eq!(document.to_value(content), text);
            assert_eq!(shape(&document), [("content".to_owned(), 1), ("is_error".to_owned(), 1)], "{text}");
            assert!(document.nodes().iter().all(|node| node.parent == 0), "{text}");
            assert_eq!(document.nodes()[0].end, document.nodes().len(), "{text}");
        }
    }

    #[test]
    fn values_and_blocks_keep_their_parts() {
        let block = |text: &str| serde_json::json!({"type": "text", "text": text});
        for content in [serde_json::json!({"a": 1}), serde_json::json!([block("a: 1"), block("b: 2")])] {
            let document = undivided(content.clone(), None);
            let id = document.key(0, "content").unwrap();
            assert_eq!(document.to_value(id), content);
            assert!(document.children(id).count() > 0);
        }
        let sole = undivided(serde_json::json!([block("a: 1")]), None);
        assert_eq!(sole.to_value(sole.key(0, "content").unwrap()), "a: 1");
    }
}
