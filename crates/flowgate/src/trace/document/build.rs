//! Builds the tree of a reported event. Outputs that encode data are decomposed, with the span of each field; values
//! that are too large or ambiguous stay whole.

use serde_json::Value;

use super::{Content, Document, MAX_NODES, Node, NodeId};
use crate::label::{Dims, Label};
use crate::trace::event::{Body, Output};
use crate::trace::located::{self, Unlocated};
use crate::trace::path::Step;

impl Document {
    /// Builds the tree of an event with every node labelled `label`.
    pub fn new(body: &Body, label: Label) -> Self {
        let mut document = Self { nodes: Vec::new(), defect: None, twins_differ: false, is_oversize: false };
        let root = document.add(0, Step::Key("".into()), Content::Map, label);
        match body {
            Body::Message(message) => {
                // The role is set by the client's protocol and is not part of the content.
                document.scalar(root, "role", Value::String(message.role.clone()), Label::BOTTOM);
                document.field(root, "content", &message.content, label);
            }
            Body::Call(call) => {
                document.scalar(root, "tool", Value::String(call.tool.to_string()), label);
                let arguments = document.add(root, Step::Key("arguments".into()), Content::Map, label);
                for (key, value) in call.arguments.iter().flatten() {
                    document.value(arguments, Step::Key(key.as_str().into()), value, label);
                }
                document.close(arguments);
            }
            Body::Output(output) => {
                document.output(root, output, label);
                // Rules may read the error flag; `frame_by_content` finally labels it like the output.
                if let Some(is_error) = output.is_error {
                    document.scalar(root, "is_error", Value::Bool(is_error), Label::BOTTOM);
                }
            }
            Body::Tool(tool) => {
                document.scalar(root, "name", Value::String(tool.tool.name.to_string()), label);
                document.scalar(root, "description", Value::String(tool.description.clone()), label);
                document.value(root, Step::Key("inputSchema".into()), &tool.schema, label);
            }
        }
        document.close(root);
        if document.nodes.len() > MAX_NODES || document.is_oversize {
            document.shrink(body, label);
        }
        document
    }

    /// Keeps a value that is too large as one text: it has one label, and no content is lost.
    fn shrink(&mut self, body: &Body, label: Label) {
        self.is_oversize = true;
        self.nodes.clear();
        let root = self.add(0, Step::Key("".into()), Content::Map, label);
        let (content, key) = match body {
            Body::Message(message) => (message.content.clone(), "content"),
            Body::Output(output) => match &output.structured {
                Some(structured) => {
                    (Value::Array(vec![output.content.clone(), structured.clone()]), "content")
                }
                None => (output.content.clone(), "content"),
            },
            Body::Call(call) => (Value::Object(call.arguments.clone().unwrap_or_default()), "arguments"),
            Body::Tool(tool) => {
                (Value::String(format!("{}\n{}", tool.description, tool.schema)), "description")
            }
        };
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        self.scalar(root, key, Value::String(text), label);
        match body {
            Body::Message(message) => {
                self.scalar(root, "role", Value::String(message.role.clone()), Label::BOTTOM);
            }
            Body::Output(output) => {
                if let Some(is_error) = output.is_error {
                    self.scalar(root, "is_error", Value::Bool(is_error), Label::BOTTOM);
                }
            }
            Body::Call(call) => self.scalar(root, "tool", Value::String(call.tool.to_string()), label),
            Body::Tool(tool) => self.scalar(root, "name", Value::String(tool.tool.name.to_string()), label),
        }
        self.close(root);
    }

    fn add(&mut self, parent: NodeId, step: Step, content: Content, label: Label) -> NodeId {
        let id = self.nodes.len();
        let (text, span, declared, read, floor) = (None, None, Dims::NONE, false, Label::BOTTOM);
        self.nodes.push(Node {
            parent,
            end: id + 1,
            step,
            content,
            text,
            span,
            label,
            declared,
            read,
            floor,
        });
        id
    }

    fn close(&mut self, id: NodeId) {
        let end = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(id) {
            node.end = end;
        }
    }

    fn scalar(&mut self, parent: NodeId, key: &str, value: Value, label: Label) {
        self.add(parent, Step::Key(key.into()), Content::Scalar(value), label);
    }

    fn field(&mut self, parent: NodeId, key: &str, value: &Value, label: Label) {
        let id = self.nodes.len();
        self.value(parent, Step::Key(key.into()), sole_text(value).unwrap_or(value), label);
        self.spell_blocks(id, value);
    }

    /// Presents several text blocks as one text where text is asked for.
    fn spell_blocks(&mut self, id: NodeId, value: &Value) {
        let Some(blocks) = value.as_array().filter(|blocks| blocks.len() > 1) else { return };
        let texts: Option<Vec<&str>> =
            blocks.iter().map(|block| block.get("text").and_then(Value::as_str)).collect();
        if let (Some(texts), Some(node)) = (texts, self.nodes.get_mut(id)) {
            node.text = Some(texts.join("\n").into());
        }
    }

    fn value(&mut self, parent: NodeId, step: Step, value: &Value, label: Label) {
        self.nested(parent, step, value, label, 0);
    }

    fn nested(&mut self, parent: NodeId, step: Step, value: &Value, label: Label, depth: usize) {
        self.is_oversize |= depth > located::DEPTH_LIMIT;
        if self.nodes.len() > MAX_NODES || self.is_oversize {
            return;
        }
        match value {
            Value::Array(items) => {
                let list = self.add(parent, step, Content::List, label);
                for (index, item) in items.iter().enumerate() {
                    self.nested(list, Step::Index(index), item, label, depth + 1);
                }
                self.close(list);
            }
            Value::Object(entries) => {
                let map = self.add(parent, step, Content::Map, label);
                for (key, value) in entries {
                    self.nested(map, Step::Key(key.as_str().into()), value, label, depth + 1);
                }
                self.close(map);
            }
            scalar => {
                self.add(parent, step, Content::Scalar(scalar.clone()), label);
            }
        }
    }

    /// Adds a tool output: text that encodes a list or a map is decomposed, with the span of each field.
    fn output(&mut self, root: NodeId, output: &Output, label: Label) {
        let content = sole_text(&output.content).unwrap_or(&output.content);
        let Value::String(text) = content else {
            self.field(root, "content", content, label);
            self.twin(root, output, label);
            return;
        };
        match located::locate(text, None) {
            // The two encodings of one output must agree; otherwise the label of a field in one would apply to the
            // other.
            Ok(located)
                if output.structured.as_ref().is_none_or(|value| *value == located.root.to_value()) =>
            {
                let id = self.located(root, Step::Key("content".into()), &located.root, label);
                if let Some(node) = self.nodes.get_mut(id) {
                    node.text = Some(text.as_str().into());
                    node.span = None;
                }
            }
            Ok(_) | Err(Unlocated::NotStructured | Unlocated::Syntax { .. }) => {
                self.whole(root, output, text, label)
            }
            Err(defect) => {
                self.defect = Some(defect);
                self.whole(root, output, text, label);
            }
        }
    }

    /// Adds an output without decomposing it. A search of its text also covers the structured twin.
    fn whole(&mut self, root: NodeId, output: &Output, text: &str, label: Label) {
        let text = match output.structured.as_ref().filter(|twin| !is_spelled(text, twin)) {
            Some(structured) => format!("{text}\n{structured}"),
            None => text.to_owned(),
        };
        self.scalar(root, "content", Value::String(text), label);
        self.twin(root, output, label);
    }

    /// Adds a structured twin as content of its own if the text does not spell it.
    fn twin(&mut self, root: NodeId, output: &Output, label: Label) {
        let text = output.content.as_str().or_else(|| sole_text(&output.content)?.as_str());
        let spelled = |twin: &&Value| text.is_some_and(|text| is_spelled(text, twin));
        if let Some(structured) = output.structured.as_ref().filter(|twin| !spelled(twin)) {
            self.twins_differ = true;
            self.value(root, Step::Key("structured".into()), structured, label);
        }
    }

    fn located(&mut self, parent: NodeId, step: Step, source: &located::Node, label: Label) -> NodeId {
        let content = match &source.kind {
            located::Kind::List(_) => Content::List,
            located::Kind::Map(_) => Content::Map,
            _ => Content::Scalar(source.to_value()),
        };
        let id = self.add(parent, step, content, label);
        match &source.kind {
            located::Kind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.located(id, Step::Index(index), item, label);
                }
            }
            located::Kind::Map(entries) => {
                for entry in entries {
                    self.located(id, Step::Key(entry.key.as_str().into()), &entry.value, label);
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

/// Returns whether a text spells a single value, so that there is nothing to decompose.
fn is_spelled(text: &str, value: &Value) -> bool {
    let is_single = !value.is_array() && !value.is_object();
    is_single && (value.as_str() == Some(text) || serde_json::from_str(text).ok().as_ref() == Some(value))
}

/// Returns the text of content that consists of exactly one text block.
pub(crate) fn sole_text(content: &Value) -> Option<&Value> {
    match content.as_array()?.as_slice() {
        [Value::Object(block)] if block.get("type").and_then(Value::as_str) == Some("text") => {
            block.get("text").filter(|text| text.is_string())
        }
        _ => None,
    }
}
