//! Builds the [`Document`] of an event: the tree of its fields, so that each field can have its own label. The text of
//! an output that encodes data, such as JSON, is decomposed as well, with the span of each field in it. The text stays
//! one node if two parsers could read it differently, or if the output also has a structured form (MCP's
//! `structuredContent`) whose value differs from that of the text. The content of an event that is too large, or nested
//! too deep, becomes one text. The monitor and the analysis build a document for each event that they append.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Document, DocumentNode, LabelOrigin, MAX_NODES, NodeContent, NodeId, StatementSet};
use crate::label::{DimensionSet, Label};
use crate::trace::argument_set::ArgumentSet;
use crate::trace::event::{EventBody, Output};
use crate::trace::located_text::{self, LocateError};
use crate::trace::path::PathStep;

impl Document {
    /// Builds the tree of an event with every node labelled `label`, except the role of a message and the error flag of
    /// an output, which are labelled bottom. An event that has more than `MAX_NODES` nodes, or is nested too deep,
    /// becomes one text.
    pub fn new(body: &EventBody, label: Label) -> Self {
        let mut document = Self {
            nodes: Vec::new(),
            defect: None,
            twins_differ: false,
            is_oversize: false,
            origin: LabelOrigin::default(),
        };
        // The root has the id 0, and is its own parent.
        let root = document.add(0, PathStep::Key("".into()), NodeContent::Map, label);
        match body {
            EventBody::Message(message) => {
                // The role is set by the client's protocol and is not part of the content.
                document.add_scalar(root, "role", Value::String(message.role.clone()), Label::BOTTOM);
                document.add_field(root, "content", &message.content, label);
            }
            EventBody::Call(call) => {
                document.add_scalar(root, "tool", Value::String(call.tool.to_string()), label);
                let arguments =
                    document.add(root, PathStep::Key("arguments".into()), NodeContent::Map, label);
                // A call whose arguments could not be read has none here.
                for (key, value) in call.arguments.iter().flatten() {
                    document.add_value(arguments, PathStep::Key(key.as_str().into()), value, label);
                }
                document.close(arguments);
            }
            EventBody::Output(output) => {
                document.add_output(root, output, label);
                // Rules may read the error flag; `label_frame_by_content` finally labels it like the output.
                if let Some(is_error) = output.is_error {
                    document.add_scalar(root, "is_error", Value::Bool(is_error), Label::BOTTOM);
                }
            }
            EventBody::Tool(tool) => {
                document.add_scalar(root, "name", Value::String(tool.tool.name.to_string()), label);
                document.add_scalar(root, "description", Value::String(tool.description.clone()), label);
                document.add_value(root, PathStep::Key("inputSchema".into()), &tool.input_schema, label);
                if let Some(schema) = &tool.output_schema {
                    document.add_value(root, PathStep::Key("outputSchema".into()), schema, label);
                }
                if !tool.other.is_empty() {
                    let other = document.add(root, PathStep::Key("other".into()), NodeContent::Map, label);
                    for (key, value) in &tool.other {
                        document.add_value(other, PathStep::Key(key.as_str().into()), value, label);
                    }
                    document.close(other);
                }
            }
        }
        document.close(root);
        if document.nodes.len() > MAX_NODES || document.is_oversize {
            document.collapse_to_text(body, label);
        }
        document.nodes.shrink_to_fit();
        document
    }

    /// Replaces the tree of an event that is too large by a small one, in which all of the content is one text with one
    /// label. Fields that are not content, such as a role or the name of a tool, remain nodes of their own.
    fn collapse_to_text(&mut self, body: &EventBody, label: Label) {
        self.is_oversize = true;
        self.nodes.clear();
        let root = self.add(0, PathStep::Key("".into()), NodeContent::Map, label);
        // The content as one text, under the key of the field that it replaces.
        let (content, key) = match body {
            EventBody::Message(message) => (message.content.clone(), "content"),
            EventBody::Output(output) => (Value::String(undivided_text(output)), "content"),
            EventBody::Call(call) => (Value::Object(call.arguments.clone().unwrap_or_default()), "arguments"),
            EventBody::Tool(tool) => {
                let mut text = format!("{}\n{}", tool.description, tool.input_schema);
                if let Some(schema) = &tool.output_schema {
                    // Writing to a `String` never fails.
                    let _ = write!(text, "\n{schema}");
                }
                for (key, value) in &tool.other {
                    let _ = write!(text, "\n{key}: {value}");
                }
                (Value::String(text), "description")
            }
        };
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        self.add_scalar(root, key, Value::String(text), label);
        // The other fields, with the same labels as in a tree of full size.
        match body {
            EventBody::Message(message) => {
                self.add_scalar(root, "role", Value::String(message.role.clone()), Label::BOTTOM);
            }
            EventBody::Output(output) => {
                if let Some(is_error) = output.is_error {
                    self.add_scalar(root, "is_error", Value::Bool(is_error), Label::BOTTOM);
                }
            }
            EventBody::Call(call) => {
                self.add_scalar(root, "tool", Value::String(call.tool.to_string()), label)
            }
            EventBody::Tool(tool) => {
                self.add_scalar(root, "name", Value::String(tool.tool.name.to_string()), label)
            }
        }
        self.close(root);
    }

    /// Adds a node below `parent`, with the label `label`, and returns its id. The node has no children yet, and no
    /// statement has labelled it. After its children were added, [`Self::close`] must be called, which records where
    /// its subtree ends.
    fn add(&mut self, parent: NodeId, step: PathStep, content: NodeContent, label: Label) -> NodeId {
        let id = self.nodes.len();
        self.nodes.push(DocumentNode {
            parent,
            end: id + 1,
            step,
            content,
            text: None,
            span: None,
            label,
            declared: DimensionSet::NONE,
            read: false,
            independent_of: ArgumentSet::NONE,
            floor: Label::BOTTOM,
            relied_on: Label::BOTTOM,
            labelled_by: StatementSet::default(),
        });
        id
    }

    /// Ends the subtree of a node: all nodes that were added since are below the node.
    fn close(&mut self, id: NodeId) {
        let end = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(id) {
            node.end = end;
        }
    }

    /// Adds a field with a scalar value.
    fn add_scalar(&mut self, parent: NodeId, key: &str, value: Value, label: Label) {
        self.add(parent, PathStep::Key(key.into()), NodeContent::Scalar(value), label);
    }

    /// Adds the content of a message or an output: a single text block as its text, several text blocks with their
    /// joined texts in addition, and any other content as it is.
    fn add_field(&mut self, parent: NodeId, key: &str, value: &Value, label: Label) {
        let id = self.nodes.len();
        self.add_value(parent, PathStep::Key(key.into()), sole_text(value).unwrap_or(value), label);
        self.join_text_blocks(id, value);
    }

    /// Gives a list of several text blocks a text of its own: the texts of the blocks, joined by line breaks. A
    /// condition that needs a text can then read the list as one. Does nothing if an item has no text.
    fn join_text_blocks(&mut self, id: NodeId, value: &Value) {
        let Some(blocks) = value.as_array().filter(|blocks| blocks.len() > 1) else { return };
        let texts: Option<Vec<&str>> =
            blocks.iter().map(|block| block.get("text").and_then(Value::as_str)).collect();
        if let (Some(texts), Some(node)) = (texts, self.nodes.get_mut(id)) {
            node.text = Some(texts.join("\n").into());
        }
    }

    /// Adds a value with everything in it.
    fn add_value(&mut self, parent: NodeId, step: PathStep, value: &Value, label: Label) {
        self.add_nested(parent, step, value, label, 0);
    }

    /// Adds a value that is nested `depth` deep below `parent`, with everything in it. Every node gets the label
    /// `label`. Stops if the document becomes too large or too deep; then the caller replaces the document by one text.
    fn add_nested(&mut self, parent: NodeId, step: PathStep, value: &Value, label: Label, depth: usize) {
        self.is_oversize |= depth > located_text::DEPTH_LIMIT;
        if self.nodes.len() > MAX_NODES || self.is_oversize {
            return;
        }
        match value {
            Value::Array(items) => {
                let list = self.add(parent, step, NodeContent::List, label);
                for (index, item) in items.iter().enumerate() {
                    self.add_nested(list, PathStep::Index(index), item, label, depth + 1);
                }
                self.close(list);
            }
            Value::Object(entries) => {
                let map = self.add(parent, step, NodeContent::Map, label);
                for (key, value) in entries {
                    self.add_nested(map, PathStep::Key(key.as_str().into()), value, label, depth + 1);
                }
                self.close(map);
            }
            scalar => {
                self.add(parent, step, NodeContent::Scalar(scalar.clone()), label);
            }
        }
    }

    /// Adds a tool output below `root`, with every node labelled `label`. A text that encodes a list or a map is
    /// decomposed, with the span of each field. The text remains one region if its structured form (MCP's
    /// `structuredContent`) differs, or if two parsers could read the text differently. Content that is not one text is
    /// added as it is.
    fn add_output(&mut self, root: NodeId, output: &Output, label: Label) {
        let content = sole_text(&output.content).unwrap_or(&output.content);
        let Value::String(text) = content else {
            self.add_field(root, "content", content, label);
            self.add_twin(root, output, label);
            return;
        };
        // `None`: the notation is detected.
        match located_text::locate(text, None) {
            // The two encodings of one output must agree; otherwise the label of a field in one would apply to the
            // other.
            Ok(located)
                if output.structured.as_ref().is_none_or(|value| *value == located.root.to_value()) =>
            {
                let id = self.add_located(root, PathStep::Key("content".into()), &located.root, label);
                // The content is the enclosing text itself, to which the spans of its fields refer.
                if let Some(node) = self.nodes.get_mut(id) {
                    node.text = Some(text.as_str().into());
                    node.span = None;
                }
            }
            // The structured form differs, or the text is prose or has a syntax error, which is no defect.
            Ok(_) | Err(LocateError::NotStructured | LocateError::Syntax { .. }) => {
                self.add_undecomposed(root, output, text, label)
            }
            Err(defect) => {
                self.defect = Some(defect);
                self.add_undecomposed(root, output, text, label);
            }
        }
    }

    /// Adds the text of an output as one region. A structured form of the output that the text does not spell is
    /// appended to the text, so that a search of the text covers both. It is also added as a separate value.
    fn add_undecomposed(&mut self, root: NodeId, output: &Output, text: &str, label: Label) {
        let text = match output.structured.as_ref().filter(|twin| !spells_single_value(text, twin)) {
            Some(structured) => format!("{text}\n{structured}"),
            None => text.to_owned(),
        };
        self.add_scalar(root, "content", Value::String(text), label);
        self.add_twin(root, output, label);
    }

    /// Adds the structured form of an output, if it has one, as a separate value and records that its two forms
    /// (*twins*) differ. Does neither if the text spells the same value, a scalar, which then needs no second region.
    fn add_twin(&mut self, root: NodeId, output: &Output, label: Label) {
        let text = output.content.as_str().or_else(|| sole_text(&output.content)?.as_str());
        let spelled = |twin: &&Value| text.is_some_and(|text| spells_single_value(text, twin));
        if let Some(structured) = output.structured.as_ref().filter(|twin| !spelled(twin)) {
            self.twins_differ = true;
            self.add_value(root, PathStep::Key("structured".into()), structured, label);
        }
    }

    /// Adds `source`, a value that a text encodes, with everything in it. Each node is labelled `label`, and has the
    /// bytes that spell it as its span. `step` leads from `parent` to the value. Returns the id of the node of the
    /// value.
    fn add_located(
        &mut self,
        parent: NodeId,
        step: PathStep,
        source: &located_text::LocatedNode,
        label: Label,
    ) -> NodeId {
        let content = match &source.kind {
            located_text::LocatedNodeKind::List(_) => NodeContent::List,
            located_text::LocatedNodeKind::Map(_) => NodeContent::Map,
            _ => NodeContent::Scalar(source.to_value()),
        };
        let id = self.add(parent, step, content, label);
        // The children directly follow their parent; a scalar has none.
        match &source.kind {
            located_text::LocatedNodeKind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add_located(id, PathStep::Index(index), item, label);
                }
            }
            located_text::LocatedNodeKind::Map(entries) => {
                for entry in entries {
                    self.add_located(id, PathStep::Key(entry.key.as_str().into()), &entry.value, label);
                }
            }
            _ => {}
        }
        self.close(id);
        if let Some(node) = self.nodes.get_mut(id) {
            node.span = Some(source.span.clone());
        }
        id
    }
}

/// Returns the text that replaces an output which is too large for a tree: the text of the output, followed by its
/// structured form if the text does not spell that form.
fn undivided_text(output: &Output) -> String {
    let content = sole_text(&output.content).unwrap_or(&output.content);
    let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
    // Whether the text says the same as `twin`, the structured form: equal, or JSON that spells an equal value.
    let is_spelled = |twin: &Value| {
        content == twin || serde_json::from_str::<Value>(&text).is_ok_and(|spelled| spelled == *twin)
    };
    match output.structured.as_ref().filter(|twin| !is_spelled(twin)) {
        Some(structured) => format!("{text}\n{structured}"),
        None => text,
    }
}

/// Returns whether a text spells exactly this value, and the value is a scalar: the text is the value itself, or its
/// JSON. Then there is nothing to decompose.
fn spells_single_value(text: &str, value: &Value) -> bool {
    let is_single = !value.is_array() && !value.is_object();
    is_single && (value.as_str() == Some(text) || serde_json::from_str(text).ok().as_ref() == Some(value))
}

/// Returns the text of content that consists of exactly one text block, `[{"type": "text", "text": ...}]`, so that it
/// is treated like a plain text; `None` for any other content.
pub(crate) fn sole_text(content: &Value) -> Option<&Value> {
    match content.as_array()?.as_slice() {
        [Value::Object(block)] if block.get("type").and_then(Value::as_str) == Some("text") => {
            block.get("text").filter(|text| text.is_string())
        }
        _ => None,
    }
}
