//! Connects values of the evaluator with the locations in the trace that they come from. The evaluator, the built-in
//! functions and the [`analysis`](crate::analysis) use this module for three purposes:
//!
//! * [`Evaluator::pieces`] lists the texts in a value, each with its location, for the functions that examine text.
//! * [`Evaluator::select`] and [`Evaluator::parts`] list the values of a type in an event or a list, over which a typed
//!   variable ranges.
//! * [`Evaluator::mark`], [`Evaluator::mark_bytes`] and [`Evaluator::mark_occurrences`] record the locations that a
//!   match of a rule concerns, such as the bytes that a detector found, so that findings can name them.

use std::ops::Range;
use std::sync::Arc;

use super::{BYTES_PER_STEP, EvalError, Evaluator, Frame, RegionKind, RegionRead, Result, Value};
use crate::policy::plan::{CompiledExpr, Type};
use crate::trace::{EventBody, EventId, NodeContent, NodeId, PathStep, sole_text};

/// A text, and its location if it is part of an event.
#[derive(Debug, Clone)]
pub(crate) struct TextPiece {
    pub(crate) location: Option<TextLocation>,
    pub(crate) text: Arc<str>,
}

/// The location of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextLocation {
    /// A node of the event's document.
    Node(EventId, NodeId),
    /// The tool name of a call.
    ToolName(EventId),
}

/// A location that a match concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MatchLocation {
    Event(EventId),
    /// The `function` of a call.
    Function(EventId),
    /// The tool name of a call.
    ToolName(EventId),
    /// A node of the event's document.
    Node(EventId, NodeId),
    /// A content block or a tool parameter.
    Part(EventId, NodeId),
    /// Bytes of a text.
    Bytes(TextLocation, Range<usize>),
}

impl MatchLocation {
    /// Returns the location of a whole value, if the value is an event or a part of one; `None` for a computed value.
    pub(crate) fn of_value(value: &Value) -> Option<Self> {
        match value {
            Value::Event(event) => Some(Self::Event(*event)),
            Value::Function(event) => Some(Self::Function(*event)),
            Value::ToolName(event) => Some(Self::ToolName(*event)),
            Value::Node(event, node) => Some(Self::Node(*event, *node)),
            Value::Part(_, event, node) => Some(Self::Part(*event, *node)),
            _ => None,
        }
    }
}

/// Maximum number of texts that are taken from one value.
const MAX_PIECES: usize = 250_000;
/// Maximum number of locations that are recorded for one match.
const MAX_MARKS: usize = 1_000;

impl Evaluator<'_> {
    /// Returns every text in a value, in order, with its location.
    ///
    /// # Errors
    /// If there are more than [`MAX_PIECES`] texts, the content of an event is not readable, or the fuel is spent.
    pub(crate) fn pieces(&mut self, value: &Value) -> Result<Vec<TextPiece>> {
        let mut pieces = Vec::new();
        self.collect(value, &mut pieces)?;
        Ok(pieces)
    }

    /// Adds the texts in a value to `pieces`, each with its location if it is in the trace. The keys of a map are texts
    /// as well. In an event, only the main field is searched, such as the content of a message.
    fn collect(&mut self, value: &Value, pieces: &mut Vec<TextPiece>) -> Result<()> {
        self.spend(1)?;
        if pieces.len() >= MAX_PIECES {
            let message = format!(
                "the searched value contains more than {MAX_PIECES} texts, the limit; search a part of it"
            );
            return Err(EvalError::Type(message));
        }
        match value {
            Value::Str(text) => pieces.push(TextPiece { location: None, text: Arc::clone(text) }),
            Value::List(items) | Value::Texts(items) => {
                for item in items.iter() {
                    self.collect(item, pieces)?;
                }
            }
            Value::Dict(entries) => {
                for (key, item) in entries.iter() {
                    pieces.push(TextPiece { location: None, text: Arc::clone(key) });
                    self.collect(item, pieces)?;
                }
            }
            // The main field of the event.
            Value::Event(event) => {
                let key = match self.trace.event(*event).map(|event| &event.body) {
                    Some(EventBody::Message(_) | EventBody::Output(_)) => "content",
                    Some(EventBody::Call(_)) => "arguments",
                    Some(EventBody::Tool(_)) => "description",
                    None => return Ok(()),
                };
                self.check_readable(*event)?;
                let node = self.child(*event, 0, key);
                self.collect(&node, pieces)?;
            }
            // The `function` of a call has the name of the tool, which is not searched, and the arguments.
            Value::Function(event) => {
                self.check_readable(*event)?;
                let node = self.child(*event, 0, "arguments");
                self.collect(&node, pieces)?;
            }
            Value::ToolName(event) => {
                if let Some(text) = self.resolve(value)?.as_text() {
                    pieces.push(TextPiece {
                        location: Some(TextLocation::ToolName(*event)),
                        text: text.into(),
                    });
                }
            }
            Value::Part(_, event, node) => self.collect_nodes(*event, *node, pieces)?,
            Value::Node(event, node) => self.collect_nodes(*event, *node, pieces)?,
            _ => {}
        }
        Ok(())
    }

    /// Adds the texts in a subtree of an event's value to `pieces`, and records a read of the subtree. The names in
    /// maps are texts as well, because a model can write a secret into a name of an argument. Images within the
    /// subtree, and the names and types of content blocks such as `"text"`, are omitted: they are not text that a user
    /// or a tool has written. An image that is itself the root of the subtree is searched: a condition that names it
    /// asks about its texts, such as the address.
    fn collect_nodes(&mut self, event: EventId, id: NodeId, pieces: &mut Vec<TextPiece>) -> Result<()> {
        self.reads.push(RegionRead { event, node: id, deep: true });
        let Some((document, body)) = self.trace.event(event).map(|event| (&event.document, &event.body))
        else {
            return Ok(());
        };
        // The names in the schema of a tool are words of JSON Schema and names of parameters.
        let has_written_names = !matches!(body, EventBody::Tool(_));
        let mut next = id;
        let end = document.node(id).map_or(id, |node| node.end);
        self.spend(end - id)?;
        while next < end {
            let Some(node) = document.node(next) else { break };
            if next != id && is_image(document, next) {
                next = node.end;
                continue;
            }
            // The names of the event's own fields, directly below the root, are always the same. A name has no
            // location, since only values have locations.
            if let PathStep::Key(name) = &node.step
                && next != id
                && node.parent != 0
                && has_written_names
                && !is_block_of_text(document, node.parent)
            {
                self.spend(name.len() / BYTES_PER_STEP)?;
                pieces.push(TextPiece { location: None, text: Arc::clone(name) });
            }
            // A list or a map has a `text` if it was parsed from a text, which is then one text, or if it is a list of
            // several text blocks: its `text` joins them, but they count as several texts.
            let encoding_text = node.text.as_ref().filter(|_| !is_list_of_text_blocks(document, next));
            let text = match (&node.content, encoding_text) {
                (_, Some(text)) => Some(Arc::clone(text)),
                (NodeContent::Scalar(serde_json::Value::String(text)), None) => Some(text.as_str().into()),
                _ => None,
            };
            // The `type` of a text block (such as `text`) is no text of its own.
            let is_block_type = matches!(&node.step, PathStep::Key(key) if **key == *"type")
                && document.key(node.parent, "text").is_some();
            if let (Some(text), false) = (text, is_block_type) {
                self.spend(text.len() / BYTES_PER_STEP)?;
                pieces.push(TextPiece { location: Some(TextLocation::Node(event, next)), text });
            }
            next = if encoding_text.is_some() { node.end } else { next + 1 };
        }
        Ok(())
    }

    /// Adds to `selected` all values of the type `ty` in a value, at any depth: the value itself, or the values in its
    /// items. A value that has the type is searched further only if the type is `list` or `dict`, since lists can
    /// contain lists and maps can contain maps.
    pub(crate) fn select(&mut self, value: &Value, ty: Type, selected: &mut Vec<Value>) -> Result<()> {
        self.spend(1)?;
        if self.has_type(value, ty) {
            selected.push(value.clone());
            // A list may contain lists, and a map may contain maps.
            if !matches!(ty, Type::List | Type::Dict) {
                return Ok(());
            }
        }
        let items = match value {
            Value::List(_) | Value::Dict(_) | Value::Texts(_) | Value::Answers(_) => self.items(value)?,
            Value::Node(event, node) => {
                let document = self.trace.event(*event).map(|event| &event.document);
                let node = *node;
                // Content blocks and parameters are found only by their place in an event.
                let is_found_by_place = match ty {
                    Type::TextChunk | Type::Image => {
                        document.is_some_and(|document| document.key(0, "content") == Some(node))
                    }
                    Type::ToolParameter => true,
                    _ => false,
                };
                let is_list_or_map = document
                    .and_then(|document| document.node(node))
                    .is_some_and(|found| matches!(found.content, NodeContent::List | NodeContent::Map));
                if is_found_by_place {
                    // They are taken from the event as a whole.
                    self.parts(&Value::Event(*event), ty)?
                } else if is_list_or_map {
                    // If the content is a single text block whose text encodes a list or a map, the search continues in
                    // the children of this list or map: `items` would return the content as a block again.
                    match document.filter(|_| self.is_sole_block(*event, node)) {
                        Some(document) => {
                            document.children(node).map(|child| Value::Node(*event, child)).collect()
                        }
                        None => self.items(value)?,
                    }
                } else {
                    return Ok(());
                }
            }
            Value::Event(_) => {
                selected.extend(self.parts(value, ty)?);
                return Ok(());
            }
            // The fields of a function: the name and the arguments of its call.
            Value::Function(call) => vec![Value::ToolName(*call), self.arguments(*call)?],
            // A part, such as a block of content, is searched like the region where it is.
            Value::Part(_, event, node) => vec![Value::Node(*event, *node)],
            _ => return Ok(()),
        };
        for item in &items {
            self.select(item, ty, selected)?;
        }
        Ok(())
    }

    /// Returns all values of the type `ty` in an event. By type, these are the calls that a message proposes, the
    /// `function` of calls, content blocks, the parameters of a described tool, or the nodes of the event's value. The
    /// list is empty if `holder` is not an event.
    pub(crate) fn parts(&mut self, holder: &Value, ty: Type) -> Result<Vec<Value>> {
        let Value::Event(id) = holder else { return Ok(Vec::new()) };
        let Some(event) = self.trace.event(*id) else { return Ok(Vec::new()) };
        let document = &event.document;
        let mut parts = Vec::new();
        match ty {
            Type::ToolCall => parts = self.calls_of(*id),
            Type::Function => {
                let calls = if matches!(event.body, EventBody::Call(_)) {
                    vec![Value::Event(*id)]
                } else {
                    self.calls_of(*id)
                };
                parts.extend(calls.iter().filter_map(|call| match call {
                    Value::Event(call) => Some(Value::Function(*call)),
                    _ => None,
                }));
            }
            Type::TextChunk | Type::Image => parts = self.content_blocks(*id, ty)?,
            Type::ToolParameter => {
                self.check_readable(*id)?;
                let schema = document.key(0, "inputSchema");
                if let Some(properties) = schema.and_then(|schema| document.key(schema, "properties")) {
                    self.reads.push(RegionRead { event: *id, node: properties, deep: false });
                    let children = document.children(properties);
                    parts.extend(children.map(|child| Value::Part(RegionKind::Parameter, *id, child)));
                }
            }
            _ => {
                self.check_readable(*id)?;
                // Node 0 is the event as a whole, which is not a part of itself.
                let mut next = 1;
                self.spend(document.nodes().len())?;
                while let Some(node) = document.node(next) {
                    let value = Value::Node(*id, next);
                    let fits = self.has_type(&value, ty);
                    if fits {
                        parts.push(value);
                    }
                    // A list may contain lists, and a map may contain maps; a text that encodes a value is one text.
                    let is_whole = fits && !matches!(ty, Type::List | Type::Dict);
                    next = if is_whole { node.end } else { next + 1 };
                }
            }
        }
        Ok(parts)
    }

    /// Returns the content blocks of the type `ty` in a message or an output: text for [`Type::TextChunk`], images for
    /// [`Type::Image`]. Events of other kinds have none.
    fn content_blocks(&mut self, id: EventId, ty: Type) -> Result<Vec<Value>> {
        let mut parts = Vec::new();
        let Some(event) = self.trace.event(id) else { return Ok(parts) };
        self.check_readable(id)?;
        let content = match &event.body {
            EventBody::Message(message) => &message.content,
            EventBody::Output(output) => &output.content,
            _ => return Ok(parts),
        };
        let document = &event.document;
        let (Some(node), Some(blocks)) = (document.key(0, "content"), content.as_array()) else {
            return Ok(parts);
        };
        self.reads.push(RegionRead { event: id, node, deep: false });
        self.spend(blocks.len())?;
        // The kind of a block that has the type `ty`.
        let kind_of =
            |block: &serde_json::Value| match (block.get("type").and_then(serde_json::Value::as_str), ty) {
                (Some("text"), Type::TextChunk) => Some(RegionKind::Text),
                (Some("image_url" | "image"), Type::Image) => Some(RegionKind::Image),
                _ => None,
            };
        if sole_text(content).is_some() {
            // A single block of text is represented by its text.
            let kind = blocks.first().and_then(kind_of);
            parts.extend(kind.map(|kind| Value::Part(kind, id, node)));
        } else {
            for (block, child) in blocks.iter().zip(document.children(node)) {
                parts.extend(kind_of(block).map(|kind| Value::Part(kind, id, child)));
            }
        }
        Ok(parts)
    }

    /// Records the locations that a satisfied expression concerns, by evaluating the expression again while `marks` is
    /// set: operators such as `in` and `find` then add the locations that they find. Does nothing if locations are not
    /// recorded, or if [`MAX_MARKS`] of them are recorded already. `frame` contains the values of variables.
    ///
    /// # Errors
    /// If the fuel is spent.
    pub(crate) fn mark(&mut self, ex: &CompiledExpr, frame: &mut Frame) -> Result<()> {
        if self.marks.as_ref().is_none_or(|marks| marks.len() >= MAX_MARKS) {
            return Ok(());
        }
        match self.evaluate(ex, frame) {
            Err(EvalError::Fuel) => Err(EvalError::Fuel),
            // An expression that cannot be evaluated concerns no location.
            _ => Ok(()),
        }
    }

    /// Records that a match concerns these bytes of the text at `location`. Does nothing for a computed text, which has
    /// no location (`None`), if locations are not recorded, or if [`MAX_MARKS`] of them are recorded already.
    pub(crate) fn mark_bytes(&mut self, location: Option<TextLocation>, bytes: Range<usize>) {
        if let (Some(marks), Some(location)) =
            (self.marks.as_mut().filter(|marks| marks.len() < MAX_MARKS), location)
        {
            marks.push(MatchLocation::Bytes(location, bytes));
        }
    }

    /// Records the locations of the occurrences that `part in value` finds: parts of a text, items of a list that equal
    /// `part`, or parts of a content block. Records nothing for a map (since `in` tests its keys, which have no
    /// location), for an empty `part` (which is in every text), and if locations are not recorded (`marks` is `None`).
    pub(crate) fn mark_occurrences(&mut self, part: &str, value: &Value) -> Result<()> {
        if self.marks.is_none() || part.is_empty() {
            return Ok(());
        }
        let items = match value {
            Value::List(items) => items.to_vec(),
            Value::Node(event, node) => match self.structure(*event, *node) {
                Some(NodeContent::List) => self.items(value)?,
                // Membership in a map finds a key, which has no location.
                Some(NodeContent::Map) => return Ok(()),
                _ => return self.mark_parts(part, value),
            },
            Value::Dict(_) => return Ok(()),
            _ => return self.mark_parts(part, value),
        };
        for item in items {
            if self.marks.as_ref().is_none_or(|marks| marks.len() >= MAX_MARKS) {
                return Ok(());
            }
            // In the text of a content block, parts are found; any other item must equal `part`.
            let is_block = match &item {
                Value::Part(RegionKind::Text, ..) => true,
                Value::Node(event, node) => {
                    matches!(self.structure(*event, *node), Some(NodeContent::Map))
                        && self
                            .trace
                            .event(*event)
                            .is_some_and(|event| is_block_of_text(&event.document, *node))
                }
                _ => false,
            };
            if is_block {
                self.mark_parts(part, &item)?;
            } else if self.resolve(&item)?.as_text() == Some(part) {
                for piece in self.pieces(&item)? {
                    self.mark_bytes(piece.location, 0..piece.text.len());
                }
            }
        }
        Ok(())
    }

    /// Returns the content of a node: whether it is a list, a map or a scalar. `None` for a node that is represented as
    /// text, and if there is no such node.
    fn structure(&self, event: EventId, node: NodeId) -> Option<&NodeContent> {
        let node = self.trace.event(event)?.document.node(node)?;
        node.text.is_none().then_some(&node.content)
    }

    /// Records the occurrences of `part` in the texts of a value, until [`MAX_MARKS`] locations are recorded for the
    /// match.
    fn mark_parts(&mut self, part: &str, value: &Value) -> Result<()> {
        for piece in self.pieces(value)? {
            self.spend(piece.text.len() / BYTES_PER_STEP)?;
            for (start, found) in piece.text.match_indices(part).take(MAX_MARKS) {
                self.mark_bytes(piece.location, start..start + found.len());
            }
        }
        Ok(())
    }
}

/// Returns whether a node is a content block with an image, whose bytes or address are not searched as text.
fn is_image(document: &crate::trace::Document, id: NodeId) -> bool {
    let kind = document.key(id, "type").map(|kind| document.to_value(kind));
    let kind = kind.as_ref().and_then(serde_json::Value::as_str);
    let has_key = |key| document.key(id, key).is_some();
    match kind {
        // OpenAI's format.
        Some("image_url") => has_key("image_url"),
        // Anthropic's format has `source`, and MCP has `data`.
        Some("image") => has_key("source") || has_key("data"),
        _ => false,
    }
}

/// Returns whether a node is a list of text blocks, at least one. False for a list that is itself encoded as text, even
/// if its items have the form of text blocks.
fn is_list_of_text_blocks(document: &crate::trace::Document, id: NodeId) -> bool {
    let mut children = document.children(id).peekable();
    children.peek().is_some()
        && matches!(document.node(id).map(|node| &node.content), Some(NodeContent::List))
        && children.all(|child| {
            // A node has a span if a text encodes it.
            let is_spelled = document.node(child).is_some_and(|node| node.span.is_some());
            !is_spelled && is_block_of_text(document, child)
        })
}

/// Returns whether a node is a text block of a content: a map with the keys `text` and `type`.
fn is_block_of_text(document: &crate::trace::Document, id: NodeId) -> bool {
    document.key(id, "text").is_some() && document.key(id, "type").is_some()
}
