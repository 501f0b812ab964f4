//! What a generated policy declares, as data: written down together with the policy's text, and read by the oracle alone.

use flowgate::trace::Tool;

use crate::level::{Element, Level, Shape};

/// A step from a list or a map to a part of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Way {
    Key(&'static str),
    Each,
}

/// The label that a statement gives, in the dimensions of which it speaks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    /// By the index of the dimension.
    pub(crate) parts: Vec<(usize, Element)>,
    /// The dimension whose element `out.content.k` says.
    pub(crate) computed: Option<usize>,
}

/// What a statement about answers asks for, besides the tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Condition {
    Always,
    /// `out.is_error in [True, False]`.
    MentionsError,
    KeyIs(&'static str),
    KeyIsNot(&'static str),
    KeyIsNone,
    KeyNotIn(&'static [&'static str]),
    /// The predicate that somebody else answers holds of the key.
    KeyIsKnown,
    NoZ,
    ManyRows,
    /// `row.x`, for each row.
    RowIs(&'static str),
    RowIsNone(bool),
    RowNotIn(&'static [&'static str]),
    /// The description of a tool holds this word.
    Describes(&'static str),
}

/// A `label` statement.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) pattern: String,
    pub(crate) target: Vec<Way>,
    /// The part of the text, by the name of its group.
    pub(crate) capture: Option<&'static str>,
    pub(crate) grant: Grant,
    pub(crate) condition: Condition,
}

/// A `store` statement.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) written: String,
    pub(crate) read: String,
}

/// A generated policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Declared {
    pub(crate) shapes: Vec<(&'static str, Shape)>,
    /// Every tool on offer.
    pub(crate) tools: Vec<Tool>,
    pub(crate) answers: Vec<Labels>,
    pub(crate) descriptions: Vec<Labels>,
    /// The roles whose messages carry this.
    pub(crate) messages: Vec<(Vec<&'static str>, Grant)>,
    pub(crate) default: Option<Level>,
    pub(crate) stores: Vec<Store>,
    /// Tools with a statement `require top`.
    pub(crate) harmless: Vec<String>,
    /// Tools of which an argument is endorsed.
    pub(crate) endorsed: Vec<String>,
    /// The most that the model, the screener and the filler may be shown.
    pub(crate) clearances: Vec<(&'static str, Grant)>,
}

impl Declared {
    /// Whether a pattern speaks of a tool.
    pub(crate) fn speaks_of(pattern: &str, tool: &Tool) -> bool {
        match pattern.split_once('/') {
            None => *pattern == *tool.name,
            Some((server, name)) => {
                (server == "*" || tool.server.as_deref() == Some(server))
                    && (name == "*" || *name == *tool.name)
            }
        }
    }

    /// Whether tools of two servers have the name that a pattern asks for.
    pub(crate) fn is_ambiguous(&self, pattern: &str) -> bool {
        let mut servers: Vec<_> =
            self.tools.iter().filter(|tool| *tool.name == *pattern).map(|t| &t.server).collect();
        servers.sort();
        servers.dedup();
        servers.len() > 1
    }

    /// The stores that a tool may write to and read: the declared ones by their index, then the one that the undeclared tools
    /// of its server share.
    pub(crate) fn stores_of(&self, tool: &Tool) -> (Vec<StoreName>, Vec<StoreName>) {
        let (mut written, mut read, mut is_declared) = (Vec::new(), Vec::new(), false);
        for (index, store) in self.stores.iter().enumerate() {
            for (pattern, list) in [(&store.written, &mut written), (&store.read, &mut read)] {
                if Self::speaks_of(pattern, tool) {
                    list.push(StoreName::Declared(index));
                    is_declared |= !self.is_ambiguous(pattern);
                }
            }
        }
        if !is_declared {
            let shared = StoreName::Of(tool.server.as_deref().map(str::to_owned));
            read.push(shared.clone());
            if !self.harmless.iter().any(|pattern| Self::speaks_of(pattern, tool)) {
                written.push(shared);
            }
        }
        (written, read)
    }

    /// What an endpoint may be shown.
    pub(crate) fn clearance(&self, endpoint: &str) -> Level {
        let named: Vec<&Grant> =
            self.clearances.iter().filter(|(name, _)| *name == endpoint).map(|(_, grant)| grant).collect();
        if named.is_empty() && endpoint != "model" {
            return self.clearance("model");
        }
        let mut level = Level::top(&self.shapes);
        for (dimension, element) in named.iter().flat_map(|grant| &grant.parts) {
            level.0[*dimension] = element.clone();
        }
        level
    }
}

/// State outside the agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StoreName {
    Declared(usize),
    Of(Option<String>),
}
