//! The redactor: what may be seen of an event at a label (RTBAS, Algorithm 3).
//!
//! A region is shown if its label flows to the label of the view, and so do the labels of everything it is a part of:
//! that a row is there is told by its list. Whatever else there is gives way to a *placeholder*, which says nothing
//! that depends on what it hides, not even how long it is. An event whose existence is not to be known is not there.
//!
//! Structure stays: JSON and Python literals keep every byte that spells something visible. What YAML puts between a
//! key and its value depends on the value, so a YAML text of which something is hidden is written anew, as JSON.

use std::ops::Range;

use flowgate::label::Label;
use flowgate::trace::located::{self, Form};
use flowgate::trace::{Content, Document, Event, EventId, NodeId, Step};
use serde_json::Value;

use crate::screener;

/// Something that a view hides, and what a model calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Its name in this view: `h1`, `h2`, ... in the order of the view, so that it tells nothing else.
    pub name: String,
    /// What one must be allowed to see in order to see it.
    pub label: Label,
    /// What all of it carries.
    pub(crate) reach: Label,
    /// What it is.
    pub held: Held,
}

/// What stands behind a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// A part of an event.
    Region(EventId, NodeId),
    /// What the model wrote in a step of its own, and what came of it.
    Step,
    /// An answer that is no event: why a call did not run.
    Text(String),
}

/// Everything that one view hides, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    hidden: Vec<Hidden>,
    /// If set, what would be hidden stands between tags that hold this, as far as it flows to the label.
    tag: Option<(String, Label)>,
}

impl Names {
    /// For a view that shows everything that flows to a label, and marks with a nonce what it would hide.
    pub(crate) fn tagging(tag: Option<(&str, Label)>) -> Self {
        Self { hidden: Vec::new(), tag: tag.map(|(nonce, label)| (nonce.to_owned(), label)) }
    }

    /// Whether what would be hidden is marked instead.
    pub(crate) fn is_tagging(&self) -> bool {
        self.tag.is_some()
    }

    /// All of it.
    pub fn all(&self) -> &[Hidden] {
        &self.hidden
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hidden.len()
    }

    /// Whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// What has this name.
    pub fn get(&self, name: &str) -> Option<&Hidden> {
        self.hidden.iter().find(|hidden| hidden.name == name)
    }

    /// Gives something a name, and returns the placeholder for it. `label` is what a view must show to show it, `reach`
    /// what all of its content carries, and `schema` is what its tool's declaration says of it.
    pub(crate) fn hide(
        &mut self,
        label: Label,
        reach: Label,
        held: Held,
        schema: Option<&Value>,
        content: impl FnOnce() -> String,
    ) -> String {
        let kind = schema.and_then(|schema| schema.get("type")).and_then(Value::as_str);
        let name = format!("h{}", self.hidden.len() + 1);
        let placeholder = match (&self.tag, kind) {
            (Some((nonce, most)), _) if reach.flows_to(most) => {
                format!("{}{}{}", screener::open(nonce, &name), content(), screener::close(nonce, &name))
            }
            (_, Some(kind)) => format!("[hidden {name}: {kind}]"),
            (_, None) => format!("[hidden {name}]"),
        };
        self.hidden.push(Hidden { name, label, reach, held });
        placeholder
    }
}

/// What a view shows of the content of one event.
#[derive(Debug)]
pub struct Redactor<'a> {
    /// The event.
    pub id: EventId,
    /// The same, as it is in the trace.
    pub event: &'a Event,
    /// The label of the view.
    pub label: &'a Label,
    /// The JSON schema of the tool's answers, if the view may show what the tool says of itself.
    pub schema: Option<&'a Value>,
}

impl Redactor<'_> {
    /// The content as the view shows it: text, or a list of blocks.
    pub fn content(&self, names: &mut Names) -> Value {
        let document = &self.event.document;
        let root = document.key(0, "content").unwrap_or(0);
        // Whoever must not know what the answer is like must not know what it is part of either.
        if !self.shows(0) {
            return Value::String(self.placeholder(0, root, names));
        }
        match self.render(root, self.schema, names) {
            Some(changed) => changed,
            None => self.plain(root),
        }
    }

    /// Whether the view says that the answer is an error.
    pub fn is_error(&self) -> bool {
        let node = self.event.document.key(0, "is_error");
        node.is_some_and(|node| {
            self.shows(0) && self.shows(node) && self.event.document.to_value(node) == Value::Bool(true)
        })
    }

    /// Whether all of a part is shown.
    pub fn shows_all(&self, node: NodeId) -> bool {
        self.shows(0) && self.event.document.label_of(node).flows_to(self.label)
    }

    fn document(&self) -> &Document {
        &self.event.document
    }

    fn shows(&self, node: NodeId) -> bool {
        self.document().node(node).is_some_and(|node| node.label.flows_to(self.label))
    }

    /// What stands there for a part that is shown whole.
    fn plain(&self, id: NodeId) -> Value {
        match self.document().node(id).and_then(|node| node.text.as_ref()) {
            Some(text) if self.is_spelled(id) => Value::String(text.to_string()),
            _ => self.document().to_value(id),
        }
    }

    /// Whether the text of a list or a map spells its parts, rather than being their texts one after another.
    fn is_spelled(&self, id: NodeId) -> bool {
        let is_part = |child: NodeId| self.document().node(child).is_some_and(|child| child.span.is_some());
        self.document().children(id).all(is_part)
    }

    /// A part with placeholders in it; `None` if all of it is shown.
    fn render(&self, id: NodeId, schema: Option<&Value>, names: &mut Names) -> Option<Value> {
        if self.document().label_of(id).flows_to(self.label) {
            return None;
        }
        let node = self.document().node(id)?;
        if !node.label.flows_to(self.label) {
            return Some(Value::String(self.typed_placeholder(id, id, schema, names)));
        }
        match &node.text {
            Some(text) if self.is_spelled(id) => {
                let is = |form| located::locate(text, Some(form)).is_ok();
                let is_literal = is(Form::Json) || is(Form::Python);
                Some(Value::String(if is_literal {
                    self.spell(id, text, schema, names)
                } else {
                    self.rebuild(id, schema, names).to_string()
                }))
            }
            _ => Some(self.rebuild(id, schema, names)),
        }
    }

    /// The value of a list or a map whose own structure is shown.
    fn rebuild(&self, id: NodeId, schema: Option<&Value>, names: &mut Names) -> Value {
        let document = self.document();
        let mut part = |child: NodeId| {
            let schema = document.node(child).and_then(|node| below(schema, &node.step));
            self.render(child, schema, names).unwrap_or_else(|| document.to_value(child))
        };
        match document.node(id).map(|node| &node.content) {
            Some(Content::List) => document.children(id).map(part).collect(),
            Some(Content::Map) => {
                let entries = document.children(id).filter_map(|child| {
                    let Step::Key(key) = &document.node(child)?.step else { return None };
                    Some((key.to_string(), part(child)))
                });
                Value::Object(entries.collect())
            }
            _ => document.to_value(id),
        }
    }

    /// The text of a literal with placeholders in place of what is hidden.
    fn spell(&self, id: NodeId, text: &str, schema: Option<&Value>, names: &mut Names) -> String {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        self.edits(id, schema, names, &mut edits);
        let mut spelled = String::with_capacity(text.len());
        let mut at = 0;
        for (range, placeholder) in edits {
            spelled.push_str(text.get(at..range.start).unwrap_or(""));
            // A JSON string is a Python literal, too.
            spelled.push_str(&Value::String(placeholder).to_string());
            at = range.end;
        }
        spelled.push_str(text.get(at..).unwrap_or(""));
        spelled
    }

    fn edits(
        &self,
        id: NodeId,
        schema: Option<&Value>,
        names: &mut Names,
        edits: &mut Vec<(Range<usize>, String)>,
    ) {
        for child in self.document().children(id) {
            let Some(node) = self.document().node(child) else { continue };
            let schema = below(schema, &node.step);
            match &node.span {
                Some(span) if !node.label.flows_to(self.label) => {
                    edits.push((span.clone(), self.typed_placeholder(child, child, schema, names)));
                }
                _ => self.edits(child, schema, names, edits),
            }
        }
    }

    fn typed_placeholder(
        &self,
        id: NodeId,
        region: NodeId,
        schema: Option<&Value>,
        names: &mut Names,
    ) -> String {
        let label = self.document().label_of(region).join(&self.document().frame_label());
        let content = || {
            let value = self.document().to_value(region);
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        };
        let mut placeholder = names.hide(label, label, Held::Region(self.id, region), schema, content);
        // Parts of a text that the policy takes out of it, and vouches for on their own.
        let captures = self.document().children(id).filter(|child| self.shows(*child));
        let shown: Vec<String> = captures
            .filter_map(|child| match &self.document().node(child)?.step {
                Step::Capture(name) => Some(format!("{name}: {}", self.document().to_value(child))),
                _ => None,
            })
            .collect();
        if !shown.is_empty() && !names.is_tagging() {
            placeholder.truncate(placeholder.len() - 1);
            placeholder = format!("{placeholder}; {}]", shown.join(", "));
        }
        placeholder
    }

    /// The placeholder for the whole of an answer.
    fn placeholder(&self, id: NodeId, region: NodeId, names: &mut Names) -> String {
        self.typed_placeholder(id, region, self.schema, names)
    }
}

/// What a JSON schema says of the part that `step` leads to.
fn below<'s>(schema: Option<&'s Value>, step: &Step) -> Option<&'s Value> {
    match step {
        Step::Key(key) => schema?.get("properties")?.get(&**key),
        Step::Index(_) => schema?.get("items"),
        Step::Capture(_) => None,
    }
}
