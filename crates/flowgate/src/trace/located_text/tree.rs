//! Builds the nodes of a structured text, such as JSON or YAML, while the text is parsed. It rejects a text that
//! exceeds the limits on depth and on the number of nodes, and a map that repeats a key. The parsers of JSON, Python
//! literals and YAML use it.

use std::collections::HashSet;
use std::ops::Range;

use super::{DEPTH_LIMIT, LocateError, LocatedNode, LocatedNodeKind, MapEntry, NODE_LIMIT};

/// Builds one node from the events of a parser, without recursion.
#[derive(Default)]
pub(super) struct TreeBuilder {
    /// The open lists and maps, the innermost last.
    open: Vec<OpenNode>,
    /// The number of nodes so far, of which [`NODE_LIMIT`] is the maximum.
    nodes: usize,
    /// The outermost node, once it is complete.
    root: Option<LocatedNode>,
}

/// A list or map whose end has not been parsed.
struct OpenNode {
    /// The offset of its first byte.
    start: usize,
    body: OpenContent,
}

/// The parsed content of an open list or map.
enum OpenContent {
    List(Vec<LocatedNode>),
    /// `seen` are the keys so far, and `key` is the key whose value must come next.
    Map {
        entries: Vec<MapEntry>,
        seen: HashSet<String>,
        key: Option<(String, Range<usize>)>,
    },
}

/// The kind of node that the innermost open list or map expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedNode {
    /// An item of a list.
    Item,
    /// A key of a map.
    Key,
    /// The value of the key that was parsed last.
    Value,
}

impl TreeBuilder {
    /// Returns the kind of node that must come next; `None` outside of every list and map, before and after the root.
    pub(super) fn expected_node(&self) -> Option<ExpectedNode> {
        self.open.last().map(|open| match open.body {
            OpenContent::List(_) => ExpectedNode::Item,
            OpenContent::Map { key: None, .. } => ExpectedNode::Key,
            OpenContent::Map { key: Some(_), .. } => ExpectedNode::Value,
        })
    }

    /// Returns the number of complete items in the innermost open list, or of entries in the innermost open map; 0 if
    /// no list and no map is open.
    pub(super) fn len(&self) -> usize {
        self.open.last().map_or(0, |open| match &open.body {
            OpenContent::List(items) => items.len(),
            OpenContent::Map { entries, .. } => entries.len(),
        })
    }

    /// Opens a list at an offset.
    pub(super) fn open_list(&mut self, start: usize) -> Result<(), LocateError> {
        self.open(start, OpenContent::List(Vec::new()))
    }

    /// Opens a map at an offset.
    pub(super) fn open_map(&mut self, start: usize) -> Result<(), LocateError> {
        let (entries, seen, key) = (Vec::new(), HashSet::new(), None);
        self.open(start, OpenContent::Map { entries, seen, key })
    }

    /// Opens a list or a map whose text begins at `start`; fails if too many are open, or if the text has too many
    /// nodes.
    fn open(&mut self, start: usize, body: OpenContent) -> Result<(), LocateError> {
        if self.open.len() >= DEPTH_LIMIT {
            return Err(LocateError::TooDeep { offset: start });
        }
        self.count()?;
        self.open.push(OpenNode { start, body });
        Ok(())
    }

    /// Adds a key, which `span` spells and whose value must come next. Fails if the map has the key already, since
    /// parsers differ in which of the two values they use, or if the innermost open node is no map or waits for a
    /// value.
    pub(super) fn key(&mut self, name: String, span: Range<usize>) -> Result<(), LocateError> {
        match self.open.last_mut().map(|open| &mut open.body) {
            Some(OpenContent::Map { seen, key, .. }) if key.is_none() => {
                if !seen.insert(name.clone()) {
                    return Err(LocateError::DuplicateKey { span });
                }
                *key = Some((name, span));
                Ok(())
            }
            _ => Err(LocateError::Syntax { offset: span.start }),
        }
    }

    /// Adds a scalar to the innermost open list or map; `span` is the location of its spelling. Fails if no node is
    /// expected there, or if the text has too many nodes.
    pub(super) fn add_scalar(
        &mut self,
        span: Range<usize>,
        kind: LocatedNodeKind,
    ) -> Result<(), LocateError> {
        self.count()?;
        self.add_node(LocatedNode { span, kind })
    }

    /// Ends the innermost open list or map just before the offset `end`, and adds it to the node around it. Fails if
    /// none is open, or if the last key of a map has no value.
    pub(super) fn close(&mut self, end: usize) -> Result<(), LocateError> {
        let broken = LocateError::Syntax { offset: end };
        let Some(OpenNode { start, body }) = self.open.pop() else {
            return Err(broken);
        };
        let kind = match body {
            OpenContent::List(items) => LocatedNodeKind::List(items),
            // `key: None`: no key waits for its value.
            OpenContent::Map { entries, key: None, .. } => LocatedNodeKind::Map(entries),
            OpenContent::Map { .. } => return Err(broken),
        };
        let span = start..end;
        self.add_node(LocatedNode { span, kind })
    }

    /// Returns the root.
    ///
    /// # Errors
    /// If a list or a map is still open, or if the root is a scalar.
    pub(super) fn finish(self) -> Result<LocatedNode, LocateError> {
        match self.root {
            Some(root) if matches!(root.kind, LocatedNodeKind::List(_) | LocatedNodeKind::Map(_)) => Ok(root),
            _ => Err(LocateError::NotStructured),
        }
    }

    /// Counts a node; fails if there are too many.
    fn count(&mut self) -> Result<(), LocateError> {
        self.nodes += 1;
        if self.nodes > NODE_LIMIT {
            return Err(LocateError::TooLarge);
        }
        Ok(())
    }

    /// Adds a complete node where it belongs: as an item of the innermost open list, as the value of the last key of
    /// the innermost open map, or as the root. Fails where no node is expected: after the root, or in a map without a
    /// key for it.
    fn add_node(&mut self, node: LocatedNode) -> Result<(), LocateError> {
        let broken = LocateError::Syntax { offset: node.span.start };
        match self.open.last_mut().map(|open| &mut open.body) {
            None if self.root.is_none() => self.root = Some(node),
            None => return Err(broken),
            Some(OpenContent::List(items)) => items.push(node),
            Some(OpenContent::Map { entries, key, .. }) => {
                let (key, key_span) = key.take().ok_or(broken)?;
                entries.push(MapEntry { key, key_span, value: node });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_out_of_order_are_refused() {
        let refused = Err(LocateError::Syntax { offset: 1 });
        let mut tree = TreeBuilder::default();
        assert_eq!(tree.close(1), refused);
        assert_eq!(tree.key("k".into(), 1..2), refused);
        tree.open_map(0).unwrap();
        assert_eq!(tree.add_scalar(1..2, LocatedNodeKind::Null), refused);
        tree.key("k".into(), 1..2).unwrap();
        assert_eq!(tree.key("l".into(), 1..2), refused);
        assert_eq!(tree.close(1), refused);
    }

    #[test]
    fn there_is_one_root() {
        let mut tree = TreeBuilder::default();
        tree.open_list(0).unwrap();
        tree.close(2).unwrap();
        assert_eq!(tree.open_list(2), Ok(()));
        assert_eq!(tree.close(4), Err(LocateError::Syntax { offset: 2 }));
        assert_eq!(tree.finish().map(|n| n.span), Ok(0..2));
        assert_eq!(TreeBuilder::default().finish(), Err(LocateError::NotStructured));
    }
}
