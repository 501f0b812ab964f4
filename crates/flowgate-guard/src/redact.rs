//! Redacts an event: returns the part of the event that is visible at a label (RTBAS, Algorithm 3). [`crate::view`]
//! builds views from such parts, and `flowgate labels` prints them.
//!
//! A region is shown if its own label and the labels of everything that contains it flow to the label of the view. The
//! containing parts count because a reader of a row also learns that the list has this row. Any other region is
//! replaced by a *placeholder*, which reveals nothing that depends on the hidden content, not even its length. An
//! event whose existence is hidden is left out.
//!
//! The structure is preserved: JSON and Python literals keep every byte that spells something visible. In YAML, the
//! bytes between a key and its value depend on the value, so a YAML text with a hidden part is printed again as JSON.
//! [`Redactor`] redacts one event, and [`HiddenRegions`] collects the hidden regions of a view with the names of their
//! placeholders.

use std::ops::Range;

use flowgate::label::Label;
use flowgate::trace::located_text::{self, Notation};
use flowgate::trace::{Document, Event, EventId, NodeContent, NodeId, PathStep};
use serde_json::Value;

use crate::screener;

/// A hidden region of a view, with the name by which a model refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenRegion {
    /// The name in this view: `h1`, `h2`, ... in the order of the view, so that it reveals nothing else.
    pub name: String,
    /// The label that a view must have to show the region.
    pub label: Label,
    /// The join of the labels of all its content.
    pub(crate) reach: Label,
    /// The hidden content.
    pub content: HiddenContent,
}

/// The content behind a placeholder.
///
/// The list is exhaustive on purpose: content that is not handled would be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HiddenContent {
    /// A part of an event.
    Region(EventId, NodeId),
    /// The output of the model in an earlier step, with the answers to its calls.
    Step,
    /// An answer that is no event: a refusal, or the caller's replacement for an answer.
    Text(String),
}

/// The hidden regions of one view, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenRegions {
    hidden: Vec<HiddenRegion>,
    /// If set, regions that would be hidden are put between tags instead.
    tagging: Option<Box<RegionTagging>>,
}

/// Tags around regions that would be hidden, for a screener that decides which of them are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegionTagging {
    /// The nonce of the tags, so that no text can forge them.
    nonce: String,
    /// The clearance of the screener: regions above it are placeholders.
    reader: Label,
    /// The join of the labels of events and steps whose existence is hidden from the screener.
    omitted: Option<Label>,
}

impl HiddenRegions {
    /// Creates the empty list of hidden regions of a view. With `tag`, a nonce and the clearance of a reader, the view
    /// shows the hidden regions that the reader may read between tags with the nonce; without it, placeholders.
    pub(crate) fn with_tagging(tag: Option<(&str, Label)>) -> Self {
        let tagging =
            tag.map(|(nonce, reader)| RegionTagging { nonce: nonce.to_owned(), reader, omitted: None });
        Self { tagging: tagging.map(Box::new), ..Self::default() }
    }

    /// Returns whether regions that would be hidden are tagged instead.
    pub(crate) fn is_tagging(&self) -> bool {
        self.tagging.is_some()
    }

    /// Returns the clearance of the reader of the tags, a screener; `None` if regions are not tagged.
    pub(crate) fn reader(&self) -> Option<&Label> {
        self.tagging.as_ref().map(|tagging| &tagging.reader)
    }

    /// Records that an event or a step with this label is left out of what the reader of the tags receives.
    pub(crate) fn omit(&mut self, label: &Label) {
        if let Some(tagging) = &mut self.tagging {
            tagging.omitted = Some(tagging.omitted.map_or(*label, |omitted| omitted.join(label)));
        }
    }

    /// Returns the join of the labels of what is left out for the reader of the tags; `None` if nothing is.
    pub(crate) fn omitted_label(&self) -> Option<Label> {
        self.tagging.as_ref().and_then(|tagging| tagging.omitted)
    }

    /// Returns all hidden regions, in the order of the view.
    pub fn all(&self) -> &[HiddenRegion] {
        &self.hidden
    }

    /// Returns the number of hidden regions.
    pub fn len(&self) -> usize {
        self.hidden.len()
    }

    /// Returns whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Returns the hidden region with this name.
    pub fn get(&self, name: &str) -> Option<&HiddenRegion> {
        self.hidden.iter().find(|hidden| hidden.name == name)
    }

    /// Adds a hidden region under the next name, and returns the text that the view shows in its place: a
    /// placeholder, or, for a screener that may read the region, the region between tags. `label` is the label that a
    /// view must have to show the region. `hidden` is the content of the region, and `reach` is the label of all of
    /// this content. `schema` is the schema of the content in the tool's declaration; the placeholder names the type in
    /// it. `text` returns the text to be put between tags.
    pub(crate) fn hide(
        &mut self,
        label: Label,
        reach: Label,
        hidden: HiddenContent,
        schema: Option<&Value>,
        text: impl FnOnce() -> String,
    ) -> String {
        let kind = schema.and_then(|schema| schema.get("type")).and_then(Value::as_str);
        let name = format!("h{}", self.hidden.len() + 1);
        // A screener that is not cleared for the whole content gets a placeholder, too.
        let placeholder = match (&self.tagging, kind) {
            (Some(tagging), _) if reach.flows_to(&tagging.reader) => {
                let nonce = &tagging.nonce;
                format!(
                    "{}{}{}",
                    screener::opening_tag(nonce, &name),
                    text(),
                    screener::closing_tag(nonce, &name)
                )
            }
            (_, Some(kind)) => format!("[hidden {name}: {kind}]"),
            (_, None) => format!("[hidden {name}]"),
        };
        self.hidden.push(HiddenRegion { name, label, reach, content: hidden });
        placeholder
    }
}

/// The redaction of the content of one event for a view.
#[derive(Debug)]
pub struct Redactor<'a> {
    /// The id of the event.
    pub id: EventId,
    /// The event in the trace.
    pub event: &'a Event,
    /// The label of the view.
    pub label: &'a Label,
    /// The JSON schema of the tool's answers, if the view may show the tool's description.
    pub schema: Option<&'a Value>,
}

impl Redactor<'_> {
    /// Returns the content as the view shows it: text, or a list of blocks. Adds the regions that are hidden to
    /// `hidden_regions`.
    pub fn redacted_content(&self, hidden_regions: &mut HiddenRegions) -> Value {
        let document = &self.event.document;
        // Node 0 is the root of the event's value.
        let root = document.key(0, "content").unwrap_or(0);
        // A view that may not show the structure of the event shows one placeholder for all of its content, which may
        // contain captures that the policy labels on their own.
        if !self.shows(0) {
            return Value::String(self.typed_placeholder(root, self.schema, hidden_regions));
        }
        match self.render(root, self.schema, hidden_regions) {
            Some(redacted) => redacted,
            // All of the content is shown.
            None => self.plain(root),
        }
    }

    /// Returns whether the view shows that the answer is an error.
    pub fn is_error(&self) -> bool {
        let node = self.event.document.key(0, "is_error");
        node.is_some_and(|node| {
            self.shows(0) && self.shows(node) && self.event.document.to_value(node) == Value::Bool(true)
        })
    }

    /// Returns whether the view shows a region with all its parts.
    pub fn shows_all(&self, node: NodeId) -> bool {
        // Node 0 is the root of the event's value.
        self.shows(0) && self.event.document.label_of(node).flows_to(self.label)
    }

    /// Returns the value of the event, with the labels of its parts.
    fn document(&self) -> &Document {
        &self.event.document
    }

    /// Returns whether the view may show the structure of a region. The labels of its parts may be higher.
    fn shows(&self, node: NodeId) -> bool {
        self.document().node(node).is_some_and(|node| node.label.flows_to(self.label))
    }

    /// Returns the content of a region that is shown as a whole. This is the text of the region as it was written, or
    /// its value if no text spells all of its parts.
    fn plain(&self, id: NodeId) -> Value {
        match self.document().node(id).and_then(|node| node.text.as_ref()) {
            Some(text) if self.is_spelled(id) => Value::String(text.to_string()),
            _ => self.document().to_value(id),
        }
    }

    /// Returns whether the text of a list or a map spells all of its parts, so that each part has a span in the text.
    /// Otherwise the text is the concatenation of the texts of content blocks.
    fn is_spelled(&self, id: NodeId) -> bool {
        let is_part = |child: NodeId| self.document().node(child).is_some_and(|child| child.span.is_some());
        self.document().children(id).all(is_part)
    }

    /// Returns a region with placeholders in place of its hidden parts; `None` if all of it is shown. `schema` is the
    /// schema of the region, whose types the placeholders show. Adds the hidden parts to `hidden_regions`.
    fn render(
        &self,
        id: NodeId,
        schema: Option<&Value>,
        hidden_regions: &mut HiddenRegions,
    ) -> Option<Value> {
        // `label_of` is the join of the labels of the region and of everything in it; `node.label` is the label of its
        // structure alone.
        if self.document().label_of(id).flows_to(self.label) {
            return None;
        }
        let node = self.document().node(id)?;
        if !node.label.flows_to(self.label) {
            return Some(Value::String(self.typed_placeholder(id, schema, hidden_regions)));
        }
        match &node.text {
            Some(text) if self.is_spelled(id) => {
                // Only JSON and Python literals are edited in place. Other notations, such as YAML, are printed again
                // as JSON.
                let is_in = |notation| located_text::locate(text, Some(notation)).is_ok();
                let is_literal = is_in(Notation::Json) || is_in(Notation::Python);
                Some(Value::String(if is_literal {
                    self.spell(id, text, schema, hidden_regions)
                } else {
                    self.rebuild(id, schema, hidden_regions).to_string()
                }))
            }
            _ => Some(self.rebuild(id, schema, hidden_regions)),
        }
    }

    /// Builds the value of a list or a map whose own structure is shown, with placeholders in place of hidden parts,
    /// which it adds to `hidden_regions`. `schema` is the schema of the value, whose types the placeholders show.
    fn rebuild(&self, id: NodeId, schema: Option<&Value>, hidden_regions: &mut HiddenRegions) -> Value {
        let document = self.document();
        let mut part = |child: NodeId| {
            let schema = document.node(child).and_then(|node| child_schema(schema, &node.step));
            self.render(child, schema, hidden_regions).unwrap_or_else(|| document.to_value(child))
        };
        match document.node(id).map(|node| &node.content) {
            Some(NodeContent::List) => document.children(id).map(part).collect(),
            Some(NodeContent::Map) => {
                let entries = document.children(id).filter_map(|child| {
                    let PathStep::Key(key) = &document.node(child)?.step else { return None };
                    Some((key.to_string(), part(child)))
                });
                Value::Object(entries.collect())
            }
            _ => document.to_value(id),
        }
    }

    /// Returns the text of a literal (a list or a map that `text` spells in JSON or Python) with placeholders in place
    /// of hidden parts, which it adds to `hidden_regions`.
    fn spell(
        &self,
        id: NodeId,
        text: &str,
        schema: Option<&Value>,
        hidden_regions: &mut HiddenRegions,
    ) -> String {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        self.collect_edits(id, schema, hidden_regions, &mut edits);
        let mut spelled = String::with_capacity(text.len());
        let mut at = 0;
        for (range, placeholder) in edits {
            spelled.push_str(text.get(at..range.start).unwrap_or(""));
            // A JSON string is also a Python literal.
            spelled.push_str(&Value::String(placeholder).to_string());
            at = range.end;
        }
        spelled.push_str(text.get(at..).unwrap_or(""));
        spelled
    }

    /// Adds to `edits` the spans of the hidden parts of a literal, in order, each with its placeholder. Adds the parts
    /// to `hidden_regions` as well. `schema` is the schema of the literal, whose types the placeholders show.
    fn collect_edits(
        &self,
        id: NodeId,
        schema: Option<&Value>,
        hidden_regions: &mut HiddenRegions,
        edits: &mut Vec<(Range<usize>, String)>,
    ) {
        for child in self.document().children(id) {
            let Some(node) = self.document().node(child) else { continue };
            let schema = child_schema(schema, &node.step);
            match &node.span {
                Some(span) if !node.label.flows_to(self.label) => {
                    edits.push((span.clone(), self.typed_placeholder(child, schema, hidden_regions)));
                }
                // This part is shown, but parts of it may be hidden. Every hidden part has a span: the text spells all
                // fields (`is_spelled`), and a captured part, which has none, is at most as hidden as its text.
                _ => self.collect_edits(child, schema, hidden_regions, edits),
            }
        }
    }

    /// Adds a region of the event to the hidden ones, and returns its placeholder with the type from the schema. If
    /// the view shows captures from the region, they are written into the placeholder, but not between the tags for a
    /// screener.
    fn typed_placeholder(
        &self,
        region: NodeId,
        schema: Option<&Value>,
        hidden_regions: &mut HiddenRegions,
    ) -> String {
        // A view that shows the region also shows that the event exists.
        let label = self.document().label_of(region).join(&self.document().frame_label());
        let content = || {
            let value = self.document().to_value(region);
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        };
        // `label` covers the whole content of the region, so it is also the label of the content (`reach`).
        let mut placeholder =
            hidden_regions.hide(label, label, HiddenContent::Region(self.id, region), schema, content);
        // Parts that the policy captures from the text and labels on their own.
        let captures = self.document().children(region).filter(|child| self.shows(*child));
        let shown: Vec<String> = captures
            .filter_map(|child| match &self.document().node(child)?.step {
                PathStep::Capture(name) => Some(format!("{name}: {}", self.document().to_value(child))),
                _ => None,
            })
            .collect();
        if !shown.is_empty() && !hidden_regions.is_tagging() {
            // Inserts the captures before the closing bracket.
            placeholder.truncate(placeholder.len() - 1);
            placeholder = format!("{placeholder}; {}]", shown.join(", "));
        }
        placeholder
    }
}

/// Returns the part of a JSON schema that describes the child at `step`. `None` if the schema does not describe it; it
/// describes no captures, which are parts of a text.
fn child_schema<'s>(schema: Option<&'s Value>, step: &PathStep) -> Option<&'s Value> {
    match step {
        PathStep::Key(key) => schema?.get("properties")?.get(&**key),
        PathStep::Index(_) => schema?.get("items"),
        PathStep::Capture(_) => None,
    }
}
