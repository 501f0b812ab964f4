//! Nodes under construction: enforces the limits and the uniqueness of keys.

use std::collections::HashSet;
use std::ops::Range;

use super::{DEPTH_LIMIT, Entry, Kind, NODE_LIMIT, Node, Unlocated};

/// Builds one node from the events of a parser, without recursion.
#[derive(Default)]
pub(super) struct Tree {
    open: Vec<Open>,
    nodes: usize,
    root: Option<Node>,
}

/// A list or map whose end has not been parsed.
struct Open {
    start: usize,
    body: Body,
}

/// The parsed content of an open list or map.
enum Body {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashSet<String>, key: Option<(String, Range<usize>)> },
}

/// The kind of node that the innermost open list or map expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An item of a list.
    Item,
    /// A key of a map.
    Key,
    /// The value of the key that was parsed last.
    Value,
}

impl Tree {
    /// Returns the role of the next node; `None` outside of every list and map.
    pub(super) fn place(&self) -> Option<Place> {
        self.open.last().map(|open| match open.body {
            Body::List(_) => Place::Item,
            Body::Map { key: None, .. } => Place::Key,
            Body::Map { key: Some(_), .. } => Place::Value,
        })
    }

    /// Returns the number of nodes in the innermost open list or map.
    pub(super) fn len(&self) -> usize {
        self.open.last().map_or(0, |open| match &open.body {
            Body::List(items) => items.len(),
            Body::Map { entries, .. } => entries.len(),
        })
    }

    /// Opens a list at an offset.
    pub(super) fn open_list(&mut self, start: usize) -> Result<(), Unlocated> {
        self.open(start, Body::List(Vec::new()))
    }

    /// Opens a map at an offset.
    pub(super) fn open_map(&mut self, start: usize) -> Result<(), Unlocated> {
        let (entries, seen, key) = (Vec::new(), HashSet::new(), None);
        self.open(start, Body::Map { entries, seen, key })
    }

    fn open(&mut self, start: usize, body: Body) -> Result<(), Unlocated> {
        if self.open.len() >= DEPTH_LIMIT {
            return Err(Unlocated::TooDeep { offset: start });
        }
        self.count()?;
        self.open.push(Open { start, body });
        Ok(())
    }

    /// Adds a key, whose value must come next.
    pub(super) fn key(&mut self, name: String, span: Range<usize>) -> Result<(), Unlocated> {
        match self.open.last_mut().map(|open| &mut open.body) {
            Some(Body::Map { seen, key, .. }) if key.is_none() => {
                if !seen.insert(name.clone()) {
                    return Err(Unlocated::DuplicateKey { span });
                }
                *key = Some((name, span));
                Ok(())
            }
            _ => Err(Unlocated::Syntax { offset: span.start }),
        }
    }

    /// Adds a scalar.
    pub(super) fn leaf(&mut self, span: Range<usize>, kind: Kind) -> Result<(), Unlocated> {
        self.count()?;
        self.place_node(Node { span, kind })
    }

    /// Ends the innermost open list or map just before an offset.
    pub(super) fn close(&mut self, end: usize) -> Result<(), Unlocated> {
        let broken = Unlocated::Syntax { offset: end };
        let Some(Open { start, body }) = self.open.pop() else {
            return Err(broken);
        };
        let kind = match body {
            Body::List(items) => Kind::List(items),
            Body::Map { entries, key: None, .. } => Kind::Map(entries),
            Body::Map { .. } => return Err(broken),
        };
        let span = start..end;
        self.place_node(Node { span, kind })
    }

    /// Returns the root, if everything is closed and the root is a list or a map.
    pub(super) fn finish(self) -> Result<Node, Unlocated> {
        match self.root {
            Some(root) if matches!(root.kind, Kind::List(_) | Kind::Map(_)) => Ok(root),
            _ => Err(Unlocated::NotStructured),
        }
    }

    fn count(&mut self) -> Result<(), Unlocated> {
        self.nodes += 1;
        if self.nodes > NODE_LIMIT {
            return Err(Unlocated::TooLarge);
        }
        Ok(())
    }

    fn place_node(&mut self, node: Node) -> Result<(), Unlocated> {
        let broken = Unlocated::Syntax { offset: node.span.start };
        match self.open.last_mut().map(|open| &mut open.body) {
            None if self.root.is_none() => self.root = Some(node),
            None => return Err(broken),
            Some(Body::List(items)) => items.push(node),
            Some(Body::Map { entries, key, .. }) => {
                let (key, key_span) = key.take().ok_or(broken)?;
                entries.push(Entry { key, key_span, value: node });
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
        let refused = Err(Unlocated::Syntax { offset: 1 });
        let mut tree = Tree::default();
        assert_eq!(tree.close(1), refused);
        assert_eq!(tree.key("k".into(), 1..2), refused);
        tree.open_map(0).unwrap();
        assert_eq!(tree.leaf(1..2, Kind::Null), refused);
        tree.key("k".into(), 1..2).unwrap();
        assert_eq!(tree.key("l".into(), 1..2), refused);
        assert_eq!(tree.close(1), refused);
    }

    #[test]
    fn there_is_one_root() {
        let mut tree = Tree::default();
        tree.open_list(0).unwrap();
        tree.close(2).unwrap();
        assert_eq!(tree.open_list(2), Ok(()));
        assert_eq!(tree.close(4), Err(Unlocated::Syntax { offset: 2 }));
        assert_eq!(tree.finish().map(|n| n.span), Ok(0..2));
        assert_eq!(Tree::default().finish(), Err(Unlocated::NotStructured));
    }
}
