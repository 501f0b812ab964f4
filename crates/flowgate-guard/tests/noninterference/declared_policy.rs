//! Represents the declarations of a generated policy as data, which the generator records for the oracle.

use flowgate::trace::Tool;

use crate::oracle_label::{DimensionElement, DimensionShape, OracleLabel};

/// A step from a list or an object to a part of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PartSelector {
    Key(&'static str),
    Each,
}

/// The label that a statement grants, in the dimensions that it names.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeclaredGrant {
    /// The elements, by the index of the dimension.
    pub(crate) parts: Vec<(usize, DimensionElement)>,
    /// The dimension whose element is computed from `out.content.k`.
    pub(crate) computed: Option<usize>,
}

/// The condition of a statement about answers, besides the tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DeclaredCondition {
    Always,
    /// `out.is_error in [True, False]`.
    MentionsError,
    KeyIs(&'static str),
    KeyIsNot(&'static str),
    KeyIsNone,
    KeyNotIn(&'static [&'static str]),
    /// The embedded predicate holds for the key.
    KeyIsKnown,
    NoZ,
    ManyRows,
    /// `row.x`, for each row.
    RowIs(&'static str),
    RowIsNone(bool),
    RowNotIn(&'static [&'static str]),
    /// The description of a tool contains this word.
    Describes(&'static str),
}

impl DeclaredCondition {
    /// Whether the statement labels a field of some rows.
    pub(crate) fn is_of_rows(self) -> bool {
        matches!(self, Self::RowIs(_) | Self::RowIsNone(_) | Self::RowNotIn(_))
    }
}

/// The arguments on which a statement says that a part of an answer does not depend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DeclaredIndependence {
    Undeclared,
    /// `independent of arguments.b`
    OfB,
    /// `independent of arguments`
    OfAll,
}

/// A `label` statement.
#[derive(Debug, Clone)]
pub(crate) struct LabelDeclaration {
    pub(crate) pattern: String,
    pub(crate) target: Vec<PartSelector>,
    /// The captured part of the text, by the name of its group.
    pub(crate) capture: Option<&'static str>,
    pub(crate) grant: DeclaredGrant,
    pub(crate) condition: DeclaredCondition,
    pub(crate) independence: DeclaredIndependence,
}

/// A `store` statement.
#[derive(Debug, Clone)]
pub(crate) struct StoreStatement {
    pub(crate) written: String,
    pub(crate) read: String,
}

/// The declarations of a generated policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeclaredPolicy {
    pub(crate) shapes: Vec<(&'static str, DimensionShape)>,
    /// Every offered tool.
    pub(crate) tools: Vec<Tool>,
    pub(crate) answers: Vec<LabelDeclaration>,
    pub(crate) descriptions: Vec<LabelDeclaration>,
    /// The labels of messages, by role.
    pub(crate) messages: Vec<(Vec<&'static str>, DeclaredGrant)>,
    pub(crate) default: Option<OracleLabel>,
    pub(crate) stores: Vec<StoreStatement>,
    /// The tools with a statement `require top`.
    pub(crate) harmless: Vec<String>,
    /// The tools with an endorsed argument.
    pub(crate) endorsed: Vec<String>,
    /// The tools whose argument `b` is payload.
    pub(crate) payload: Vec<String>,
    /// The clearances of the model, the screener and the filler.
    pub(crate) clearances: Vec<(&'static str, DeclaredGrant)>,
}

impl DeclaredPolicy {
    /// Returns the ways in which parts of the answers of a tool do not depend on the arguments of the call.
    pub(crate) fn independent_parts(&self, tool: &Tool) -> Vec<DeclaredIndependence> {
        let of_tool = self.answers.iter().filter(|labels| Self::speaks_of(&labels.pattern, tool));
        let declared = of_tool.map(|labels| labels.independence);
        declared.filter(|independence| *independence != DeclaredIndependence::Undeclared).collect()
    }

    /// Whether a pattern matches a tool.
    pub(crate) fn speaks_of(pattern: &str, tool: &Tool) -> bool {
        match pattern.split_once('/') {
            None => *pattern == *tool.name,
            Some((server, name)) => {
                (server == "*" || tool.server.as_deref() == Some(server))
                    && (name == "*" || *name == *tool.name)
            }
        }
    }

    /// Whether a slot of the argument `b` of a tool is allowed for endorsed values only.
    pub(crate) fn takes_endorsed_values_only(&self, tool: &str) -> bool {
        let is_for = |pattern: &String| pattern.rsplit('/').next() == tool.rsplit('/').next();
        self.endorsed.iter().any(is_for)
            && !self.payload.iter().any(|pattern| is_for(pattern) || pattern.ends_with('*'))
    }

    /// Whether a pattern matches tools of two servers.
    pub(crate) fn is_ambiguous(&self, pattern: &str) -> bool {
        let mut servers: Vec<_> =
            self.tools.iter().filter(|tool| *tool.name == *pattern).map(|t| &t.server).collect();
        servers.sort();
        servers.dedup();
        servers.len() > 1
    }

    /// Returns the stores that a tool may write and read: the declared ones by their index, then the store
    /// that the undeclared tools of its server share.
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

    /// Returns the clearance of an endpoint.
    pub(crate) fn clearance(&self, endpoint: &str) -> OracleLabel {
        let named: Vec<&DeclaredGrant> =
            self.clearances.iter().filter(|(name, _)| *name == endpoint).map(|(_, grant)| grant).collect();
        if named.is_empty() && endpoint != "model" {
            return self.clearance("model");
        }
        let mut level = OracleLabel::top(&self.shapes);
        for (dimension, element) in named.iter().flat_map(|grant| &grant.parts) {
            level.0[*dimension] = element.clone();
        }
        level
    }
}

/// External state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StoreName {
    Declared(usize),
    Of(Option<String>),
}
