//! Locates the parts of a text that is a YAML document, in block or flow style. [`locate`](super::locate) tries it
//! last.
//!
//! The library `saphyr-parser` parses the text to events; this module finds the span of each node. Its *marks*, the
//! positions that it reports, are intended for error messages: they may end after the comment that follows a quoted
//! scalar, or start after the dash of an item. So a mark is only a hint: the indicators between the nodes (`-`, `:`,
//! quotes, brackets, `|`) are located again in the text, and a text whose indicators and marks cannot be reconciled is
//! rejected. Explicit keys (`? key`), keys that are lists or maps, tags and directives are rejected.

mod layout;
mod schema;

use std::ops::Range;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::tree::{ExpectedNode, TreeBuilder};
use super::{LocateError, LocatedNode, LocatedNodeKind};
use layout::Layout;

/// Maximum length of a YAML text that is parsed, in bytes (1 MiB). The scanner may queue a whole flow collection
/// before its first event, at a hundred times the size of the text, so this limit is the one that bounds memory.
const YAML_LIMIT: usize = 1 << 20;

/// Line breaks in YAML 1.1 (and so in `PyYAML`), ordinary characters in YAML 1.2. Printers of either version escape
/// them by default.
const BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Parses a text that is one list or map in YAML, in block style (lines and indentation) or flow style (brackets).
/// Rejects a text that is too large, or has a line break that only YAML 1.1 recognises, so that parsers of the two
/// versions would differ.
pub(super) fn read(text: &str) -> Result<LocatedNode, LocateError> {
    if text.len() > YAML_LIMIT {
        return Err(LocateError::TooLarge);
    }
    if let Some(offset) = text.find(BREAKS) {
        return syntax_error(offset);
    }
    let mut reader = YamlReader {
        layout: Layout::new(text),
        tree: TreeBuilder::default(),
        flows: Vec::new(),
        at: 0,
        started: false,
    };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => reader.event(event, span)?,
            Err(why) => return Err(reader.scan_error(&why)),
        }
    }
    reader.tree.finish()
}

/// Tracks the events of the parser through the text.
struct YamlReader<'t> {
    layout: Layout<'t>,
    tree: TreeBuilder,
    /// For each open list or map, whether it is enclosed in brackets.
    flows: Vec<bool>,
    /// The end of the consumed text.
    at: usize,
    /// Whether a document has started; a second one is rejected.
    started: bool,
}

/// The location of the next node.
struct NodeStart {
    /// The offset directly after the indicator before the node.
    gap: usize,
    /// The first byte that is neither space nor comment.
    start: usize,
}

impl YamlReader<'_> {
    /// Handles an event of the parsing library, such as the start of a list: finds its node in the text, and adds the
    /// node to the tree. `span` is the mark of the event, the position that the library reports. Rejects the text if a
    /// scalar does not fit its mark or a list does not begin with `[` or `-`, since the span would then be uncertain;
    /// also an alias, a tag, a directive, a second document, and a document that is only a scalar.
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), LocateError> {
        match event {
            Event::DocumentStart(explicit) => {
                if self.started {
                    return syntax_error(self.byte(span.start));
                }
                self.started = true;
                self.at = self.layout.byte_order_mark();
                if explicit {
                    // Only `---` may precede the root; a directive is rejected.
                    let start = self.layout.skip(self.at, false);
                    if start != self.byte(span.start) {
                        return syntax_error(start);
                    }
                    self.at = self.byte(span.end);
                }
                Ok(())
            }
            Event::Alias(_) => Err(LocateError::Alias { offset: self.byte(span.start) }),
            Event::Scalar(text, style, anchor, tag) => {
                if self.tree.expected_node().is_none() {
                    return Err(LocateError::NotStructured);
                }
                let node_start = self.advance_to_node(anchor, tag.is_some())?;
                let spelled = self.scalar_span(&node_start, &text, style, span)?;
                self.scalar(text.into_owned(), style, spelled)
            }
            Event::SequenceStart(anchor, tag) => {
                let start = self.advance_to_node(anchor, tag.is_some())?.start;
                // `true`: the list is in flow style (brackets), and not in block style.
                match self.layout.peek(start) {
                    Some(b'[') => self.open(start, true)?,
                    Some(b'-') => self.open(start, false)?,
                    _ => return syntax_error(start),
                }
                self.tree.open_list(start)
            }
            Event::MappingStart(anchor, tag) => {
                let start = self.advance_to_node(anchor, tag.is_some())?.start;
                self.open(start, self.layout.peek(start) == Some(b'{'))?;
                self.tree.open_map(start)
            }
            Event::SequenceEnd => self.close(b']'),
            Event::MappingEnd => self.close(b'}'),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => Ok(()),
        }
    }

    /// Finds the start of the next node, after the white space and the indicator (`-`) before it. Rejects a node with
    /// an anchor (`anchor` is its number, 0 if it has none) or with a tag.
    fn advance_to_node(&mut self, anchor: usize, tagged: bool) -> Result<NodeStart, LocateError> {
        let is_in_flow = self.flows.last() == Some(&true);
        let mut start = self.layout.skip(self.at, is_in_flow);
        // Where a missing value counts as spelled: directly after what was consumed, or after the indicator.
        let mut gap = self.at;
        let expected = self.tree.expected_node();
        // YAML forbids tabs as indentation; within brackets, indentation has no meaning.
        if !is_in_flow && matches!(expected, Some(ExpectedNode::Item | ExpectedNode::Key)) {
            self.layout.reject_tabs(start)?;
        }
        if !is_in_flow && expected == Some(ExpectedNode::Item) {
            if self.layout.peek(start) != Some(b'-') {
                return syntax_error(start);
            }
            gap = start + 1;
            start = self.layout.skip(gap, false);
        }
        if anchor > 0 {
            return Err(LocateError::Alias { offset: start });
        }
        if tagged {
            return syntax_error(start);
        }
        Ok(NodeStart { gap, start })
    }

    /// Returns the range of the document that spells a scalar, given the scalar's decoded value (`text`), the position
    /// that this reader has found for it (`node_start`), and its mark, the range that the parsing library reports
    /// (`span`). Rejects the document if the position and the mark do not agree: the mark of a plain or quoted scalar
    /// must begin at `node_start`; a block scalar must have its indicator (`|` or `>`) at `node_start`; and no scalar
    /// may end after its mark. The end is searched in the document, since a mark may end later than its scalar. Only a
    /// plain scalar ends where its mark ends: it has no sign at its end.
    fn scalar_span(
        &self,
        node_start: &NodeStart,
        text: &str,
        style: ScalarStyle,
        span: Span,
    ) -> Result<Range<usize>, LocateError> {
        let start = node_start.start;
        let (first, last) = (self.byte(span.start), self.byte(span.end));
        let end = match style {
            // A missing value, as after `key:`, is spelled by no byte.
            ScalarStyle::Plain if text.is_empty() => return Ok(node_start.gap..node_start.gap),
            // Inside brackets, `PyYAML` reads a `?` at the start of a scalar as the indicator of a key. `None` rejects
            // the document, since parsers would read it differently.
            ScalarStyle::Plain if text.starts_with('?') && self.flows.contains(&true) => None,
            ScalarStyle::Plain if first == start => Some(last),
            ScalarStyle::SingleQuoted if first == start => self.layout.quoted_end(start, b'\''),
            ScalarStyle::DoubleQuoted if first == start => self.layout.quoted_end(start, b'"'),
            ScalarStyle::Literal => self.layout.block_end(start, b'|', last),
            ScalarStyle::Folded => self.layout.block_end(start, b'>', last),
            _ => None,
        };
        match end {
            Some(end) if start < end && end <= last => Ok(start..end),
            _ => syntax_error(start),
        }
    }

    /// Adds a scalar, which `span` spells: a key, which a `:` must follow, or a value. Rejects a value without a key,
    /// as in `: 1`, and the key `<<`, by which some parsers merge another map into this one.
    fn scalar(&mut self, text: String, style: ScalarStyle, span: Range<usize>) -> Result<(), LocateError> {
        let plain = style == ScalarStyle::Plain;
        self.at = span.end;
        if self.tree.expected_node() == Some(ExpectedNode::Key) {
            let merge = plain && text == "<<";
            let colon = self.layout.skip_blanks(span.end);
            if span.is_empty() || merge || self.layout.peek(colon) != Some(b':') {
                return syntax_error(span.start);
            }
            self.at = colon + 1;
            return self.tree.key(text, span);
        }
        let kind = if plain { schema::resolve(text) } else { LocatedNodeKind::Text(text) };
        self.tree.add_scalar(span, kind)
    }

    /// Begins a list or map at the offset `start`, and consumes its bracket if it has one; the caller adds the node to
    /// the tree. `flow` states whether it is in flow style (in brackets) or in block style. Fails where a key is
    /// expected, since a list or map cannot be a key here, and for a tab before a node in block style.
    fn open(&mut self, start: usize, flow: bool) -> Result<(), LocateError> {
        if self.tree.expected_node() == Some(ExpectedNode::Key) {
            return syntax_error(start);
        }
        if !flow {
            self.layout.reject_tabs(start)?;
        }
        self.flows.push(flow);
        self.at = start + usize::from(flow);
        Ok(())
    }

    /// Closes a list or map. A flow collection ends after its closing `bracket`, a block collection after its last
    /// node.
    fn close(&mut self, bracket: u8) -> Result<(), LocateError> {
        if self.flows.pop() == Some(true) {
            // `true`: a comma may precede the bracket.
            let end = self.layout.skip(self.at, true);
            if self.layout.peek(end) != Some(bracket) {
                return syntax_error(end);
            }
            self.at = end + 1;
        }
        self.tree.close(self.at)
    }

    /// Converts an error of the parsing library. The library reports an alias without an anchor as an error, which
    /// becomes [`LocateError::Alias`]; at the root, a `*` is more likely prose, so the error there is one of syntax.
    fn scan_error(&self, why: &ScanError) -> LocateError {
        let offset = self.byte(*why.marker());
        let name = self.layout.peek(offset + 1);
        let has_name = name.is_some_and(|b| !b.is_ascii_whitespace());
        match self.layout.peek(offset) {
            // An alias (`*name`), or an anchor (`&name`), which is not supported either, within a list or a map.
            Some(b'*' | b'&') if has_name && self.tree.expected_node().is_some() => {
                LocateError::Alias { offset }
            }
            _ => LocateError::Syntax { offset },
        }
    }

    /// Returns the byte offset of a mark, a position that the parsing library reports as a number of characters.
    fn byte(&self, marker: Marker) -> usize {
        self.layout.byte(marker.index())
    }
}

/// Returns the error that the text has a syntax error at this byte.
fn syntax_error<T>(offset: usize) -> Result<T, LocateError> {
    Err(LocateError::Syntax { offset })
}

#[cfg(test)]
mod tests;
