//! Implements the oracle of the noninterference test: computes the least label of each part of a trace, following
//! `docs/language.md` only.
//!
//! The oracle favours simplicity over speed, and shares only the structure of the trace with the monitor: the
//! parts of an event, and their values. It reads the declarations that the generator recorded ([`DeclaredPolicy`]),
//! and computes in its own lattice ([`OracleLabel`]). Where the effect of a statement is unclear (an answer of an
//! unexpected shape), nothing is known in the dimensions of that statement, which is represented by the
//! lowest element.
//!
//! An endorsement lowers integrity: the oracle makes no statement about the integrity of arguments that a
//! policy may endorse.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use flowgate::trace::{Document, Event, NodeId, PathStep, Tool};
use serde_json::Value;

use crate::declared_policy::{
    DeclaredCondition, DeclaredGrant, DeclaredIndependence, DeclaredPolicy, LabelDeclaration, PartSelector,
    StoreName,
};
use crate::oracle_conditions::{ConditionMatch, ConditionTruth, answers, instead_of_parts, targets};
use crate::oracle_label::{DimensionElement, DimensionShape, OracleLabel};

/// The least labels of the parts of an event.
#[derive(Debug, Clone)]
pub(crate) struct LabelBounds {
    /// For each part, one label for each statement that may have created it.
    pub(crate) parts: Vec<Vec<OracleLabel>>,
    /// For each part, the index after the last part below it.
    pub(crate) ends: Vec<NodeId>,
}

impl LabelBounds {
    fn new(document: &Document, parts: Vec<Vec<OracleLabel>>) -> Self {
        Self { parts, ends: document.nodes().iter().map(|node| node.end).collect() }
    }

    pub(crate) fn all(document: &Document, level: &OracleLabel) -> Self {
        Self::new(document, vec![vec![level.clone()]; document.nodes().len()])
    }

    /// Returns the join of the known labels of a part and of those below it.
    pub(crate) fn of(&self, node: NodeId, bottom: &OracleLabel) -> OracleLabel {
        let known = self.parts[node..self.ends[node]].iter().filter(|bounds| bounds.len() == 1);
        known.fold(bottom.clone(), |level, bounds| level.join(&bounds[0]))
    }

    /// Returns the join of the known labels of a call without those of an argument.
    pub(crate) fn without_argument(
        &self,
        document: &Document,
        name: &str,
        bottom: &OracleLabel,
    ) -> OracleLabel {
        let argument = document.key(0, "arguments").and_then(|place| document.key(place, name));
        let left_out = argument.map_or(0..0, |node| node..self.ends[node]);
        let kept = self.parts.iter().enumerate().filter(|(node, _)| !left_out.contains(node));
        let known = kept.filter(|(_, bounds)| bounds.len() == 1);
        known.fold(bottom.clone(), |level, (_, bounds)| level.join(&bounds[0]))
    }

    fn raise(&mut self, floor: &OracleLabel) {
        for level in self.parts.iter_mut().flatten() {
            *level = level.join(floor);
        }
    }
}

/// A label for each part, and the dimensions in which nothing is known about it.
struct PartLabels {
    levels: Vec<OracleLabel>,
    /// The labels without those of captured parts.
    uncaptured: Vec<OracleLabel>,
    unknown: Vec<Vec<bool>>,
    /// The dimensions in which a statement refers to the whole event.
    root: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Oracle<'d> {
    pub(crate) declared: &'d DeclaredPolicy,
    stores: BTreeMap<(usize, StoreName), OracleLabel>,
    /// The labels of the stores at the beginning of the session.
    earlier: BTreeMap<(usize, StoreName), OracleLabel>,
    /// The account whose stores the tools use.
    pub(crate) account: usize,
    /// The effects of statements that have occurred.
    pub(crate) met: RefCell<BTreeSet<&'static str>>,
}

impl<'d> Oracle<'d> {
    pub(crate) fn new(declared: &'d DeclaredPolicy) -> Self {
        Self {
            declared,
            stores: BTreeMap::new(),
            earlier: BTreeMap::new(),
            account: 0,
            met: RefCell::default(),
        }
    }

    pub(crate) fn bottom(&self) -> OracleLabel {
        OracleLabel::bottom(&self.declared.shapes)
    }

    pub(crate) fn top(&self) -> OracleLabel {
        OracleLabel::top(&self.declared.shapes)
    }

    fn shapes(&self) -> &[(&'static str, DimensionShape)] {
        &self.declared.shapes
    }

    fn meets(&self, what: &'static str) {
        self.met.borrow_mut().insert(what);
    }

    fn unlabelled(&self) -> OracleLabel {
        self.declared.default.clone().unwrap_or_else(|| OracleLabel::top(self.shapes()))
    }

    /// Returns the bounds of a message that is not the model's.
    pub(crate) fn said(&self, role: &str, event: &Event) -> LabelBounds {
        LabelBounds::all(&event.document, &self.level_of_role(role))
    }

    /// Returns the label that the policy gives the messages of a role.
    pub(crate) fn level_of_role(&self, role: &str) -> OracleLabel {
        let mut level = self.unlabelled();
        let grants = self.declared.messages.iter().filter(|(roles, _)| roles.contains(&role));
        // The labels of several statements for one region are joined.
        let mut granted: BTreeMap<usize, DimensionElement> = BTreeMap::new();
        for (dimension, element) in grants.flat_map(|(_, grant)| &grant.parts) {
            join(&mut granted, *dimension, element);
        }
        for (dimension, element) in granted {
            level.0[dimension] = element;
        }
        level
    }

    /// Returns the bounds of a server's description of a tool.
    pub(crate) fn description(&self, tool: &Tool, event: &Event) -> LabelBounds {
        self.labelled(&self.declared.descriptions, tool, event, &self.unlabelled(), |_| true)
    }

    /// Returns the bounds of a tool's answer to a call, which carries `carries` in addition. `call` is the label of
    /// the call, `without_b` without its argument `b`, and `decision` without any argument.
    pub(crate) fn output(
        &self,
        tool: &Tool,
        event: &Event,
        is_error: bool,
        [decision, without_b, call]: [&OracleLabel; 3],
        carries: &OracleLabel,
    ) -> LabelBounds {
        // A statement applies to errors only if it mentions them, and errors are top whatever the default is.
        let base = if is_error { OracleLabel::top(self.shapes()) } else { self.unlabelled() };
        let speaks =
            |labels: &LabelDeclaration| !is_error || labels.condition == DeclaredCondition::MentionsError;
        let mut bounds = self.labelled(&self.declared.answers, tool, event, &base, speaks);
        for (id, level) in bounds.parts.iter_mut().enumerate() {
            let declares = |independence| self.declares(independence, tool, &event.document, id, speaks);
            let floor = if declares(DeclaredIndependence::OfAll) {
                decision
            } else if declares(DeclaredIndependence::OfB) {
                without_b
            } else {
                call
            };
            level.iter_mut().for_each(|level| *level = level.join(floor));
        }
        bounds.raise(carries);
        for store in self.declared.stores_of(tool).1 {
            if let Some(level) = self.stores.get(&(self.account, store)) {
                bounds.raise(level);
            }
        }
        bounds
    }

    /// Whether a statement captures the part and says so about the arguments of the call.
    fn declares(
        &self,
        independence: DeclaredIndependence,
        tool: &Tool,
        document: &Document,
        id: NodeId,
        speaks: impl Fn(&LabelDeclaration) -> bool,
    ) -> bool {
        let Some(node) = document.node(id) else { return false };
        let PathStep::Capture(name) = &node.step else { return false };
        self.declared.answers.iter().any(|labels| {
            labels.independence == independence
                && labels.capture == Some(&**name)
                && DeclaredPolicy::speaks_of(&labels.pattern, tool)
                && speaks(labels)
                && !self.declared.is_ambiguous(&labels.pattern)
                && targets(document, &labels.target).contains(&node.parent)
        })
    }

    /// Whether a store that a tool reads carries more than this level.
    pub(crate) fn a_store_raises(&self, tool: &Tool, level: &OracleLabel) -> bool {
        let read = self.declared.stores_of(tool).1;
        let levels = read.into_iter().filter_map(|store| self.stores.get(&(self.account, store)));
        levels.into_iter().any(|store| !store.flows_to(level))
    }

    /// Whether this was the case before the session began.
    pub(crate) fn an_earlier_session_raises(&self, tool: &Tool, level: &OracleLabel) -> bool {
        let read = self.declared.stores_of(tool).1;
        let levels = read.into_iter().filter_map(|store| self.earlier.get(&(self.account, store)));
        levels.into_iter().any(|store| !store.flows_to(level))
    }

    /// Begins another session.
    pub(crate) fn next_session(&mut self) {
        self.earlier.clone_from(&self.stores);
    }

    /// Records that a call of a tool runs.
    pub(crate) fn ran(&mut self, tool: &Tool, call: &OracleLabel) {
        for store in self.declared.stores_of(tool).0 {
            let key = (self.account, store);
            let before = self.stores.get(&key).cloned().unwrap_or_else(|| self.bottom());
            self.stores.insert(key, before.join(call));
        }
    }

    /// Labels the parts of an answer. Statements may read what other statements label, without cycles: first
    /// the fields that no condition decides, then `more`, which other statements read, then the rest.
    fn labelled(
        &self,
        statements: &[LabelDeclaration],
        tool: &Tool,
        event: &Event,
        base: &OracleLabel,
        speaks: impl Fn(&LabelDeclaration) -> bool,
    ) -> LabelBounds {
        let document = &event.document;
        let of_tool =
            |labels: &&LabelDeclaration| DeclaredPolicy::speaks_of(&labels.pattern, tool) && speaks(labels);
        let all: Vec<&LabelDeclaration> = statements.iter().filter(of_tool).collect();
        let is_first = |labels: &&LabelDeclaration| {
            labels.grant.computed.is_none() && labels.condition == DeclaredCondition::Always
        };
        let is_of_errors = |labels: &&LabelDeclaration| {
            is_first(labels) || labels.condition == DeclaredCondition::MentionsError
        };
        let is_second = |labels: &&LabelDeclaration| {
            is_of_errors(labels) || labels.target == [PartSelector::Key("content"), PartSelector::Key("more")]
        };
        let bottom = self.bottom();
        let nothing = PartLabels {
            levels: vec![bottom; document.nodes().len()],
            uncaptured: Vec::new(),
            unknown: Vec::new(),
            root: Vec::new(),
        };
        let first: Vec<&LabelDeclaration> = all.iter().copied().filter(is_first).collect();
        let of_errors: Vec<&LabelDeclaration> = all.iter().copied().filter(is_of_errors).collect();
        let second: Vec<&LabelDeclaration> = all.iter().copied().filter(is_second).collect();
        let one = self.apply(&first, document, base, &nothing);
        let one = self.apply(&of_errors, document, base, &one);
        let two = self.apply(&second, document, base, &one);
        let three = self.apply(&all, document, base, &two);
        self.finish(&all, document, three)
    }

    fn apply(
        &self,
        statements: &[&LabelDeclaration],
        document: &Document,
        base: &OracleLabel,
        before: &PartLabels,
    ) -> PartLabels {
        let count = document.nodes().len();
        let dimensions = self.shapes().len();
        let mut granted: Vec<BTreeMap<usize, DimensionElement>> = vec![BTreeMap::new(); count];
        let mut floors = vec![self.bottom(); count];
        let mut unknown = vec![vec![false; dimensions]; count];
        let is_ambiguous = |labels: &LabelDeclaration| self.declared.is_ambiguous(&labels.pattern);
        // In these dimensions the whole event is at the top, whatever is granted.
        let closed: BTreeSet<usize> = (statements.iter().filter(|labels| is_ambiguous(labels)))
            .flat_map(|labels| dimensions_of(&labels.grant))
            .collect();
        for labels in statements {
            let most = self.most(&labels.grant);
            if is_ambiguous(labels) {
                self.meets("a pattern that two servers match");
                // The tool of the statement is ambiguous: the whole event is at the top in the dimensions of
                // the statement.
                let mut top = self.bottom();
                for dimension in dimensions_of(&labels.grant) {
                    top.0[dimension] = self.shapes()[dimension].1.top();
                }
                floors[0] = floors[0].join(&top);
                continue;
            }
            for node in instead_of_parts(document, &labels.target) {
                self.meets("a text in place of parts");
                floors[node] = floors[node].join(&most);
            }
            if labels.capture.is_some() {
                continue;
            }
            for ConditionMatch { targets, holds, looked_at } in answers(document, labels) {
                let mut seen =
                    looked_at.iter().fold(self.bottom(), |seen, node| seen.join(&before.levels[*node]));
                for (dimension, element) in seen.0.iter_mut().enumerate() {
                    if looked_at.iter().any(|node| before.unknown.get(*node).is_some_and(|u| u[dimension])) {
                        *element = self.shapes()[dimension].1.bottom();
                    }
                }
                let value = labels.grant.computed.map(|dimension| self.computed(document, dimension));
                // The condition reads a part whose label is unknown.
                let is_unsure = dimensions_of(&labels.grant)
                    .any(|d| looked_at.iter().any(|node| before.unknown.get(*node).is_some_and(|u| u[d])));
                let holds = if is_unsure { ConditionTruth::Unknown } else { holds };
                for node in targets {
                    floors[node] = floors[node].join(&seen);
                    let parts = match &value {
                        Some(None) => None,
                        Some(Some(part)) => {
                            Some([labels.grant.parts.as_slice(), std::slice::from_ref(part)].concat())
                        }
                        None => Some(labels.grant.parts.clone()),
                    };
                    let (Some(parts), true) = (parts, holds != ConditionTruth::Unknown) else {
                        dimensions_of(&labels.grant).for_each(|dimension| unknown[node][dimension] = true);
                        continue;
                    };
                    // A condition may read only what is at or below the granted label.
                    let is_fair = parts.iter().all(|(dimension, element)| {
                        closed.contains(dimension) || seen.0[*dimension].flows_to(element)
                    });
                    match holds {
                        ConditionTruth::Yes if is_fair => {
                            if labels.condition != DeclaredCondition::Always {
                                self.meets("a label that a condition granted");
                            }
                            if labels.grant.computed.is_some() {
                                self.meets("a label that a field says");
                            }
                            parts.iter().for_each(|(dimension, element)| {
                                join(&mut granted[node], *dimension, element)
                            });
                        }
                        ConditionTruth::Yes => self.meets("a label that looks at what is above it"),
                        ConditionTruth::No => self.meets("a label that a condition did not grant"),
                        ConditionTruth::WithNone => {
                            self.meets("a label because of a missing value");
                            for (dimension, element) in &parts {
                                let mut floor = self.bottom();
                                floor.0[*dimension] = element.clone();
                                floors[node] = floors[node].join(&floor);
                            }
                        }
                        ConditionTruth::Unknown => {}
                    }
                }
            }
        }
        let is_error = document.key(0, "is_error");
        // The narrower statement takes precedence; a raise applies to everything below.
        let mut levels: Vec<OracleLabel> = Vec::with_capacity(count);
        let mut raised: Vec<OracleLabel> = Vec::with_capacity(count);
        for (id, node) in document.nodes().iter().enumerate() {
            let (mut level, mut floor) = match id {
                0 => (base.clone(), self.bottom()),
                _ => (levels[node.parent].clone(), raised[node.parent].clone()),
            };
            if Some(id) == is_error {
                // The tool itself states whether the answer is an error; the value later gets the label of
                // the content.
                level = self.bottom();
                granted[id] = granted[0].clone();
            }
            for (dimension, element) in &granted[id] {
                level.0[*dimension] = element.clone();
            }
            floor = floor.join(&floors[id]);
            if id != 0 {
                let above = unknown[node.parent].clone();
                unknown[id].iter_mut().zip(above).for_each(|(is_unknown, above)| *is_unknown |= above);
            }
            levels.push(level);
            raised.push(floor);
        }
        let mut levels: Vec<OracleLabel> =
            levels.iter().zip(&raised).map(|(level, floor)| level.join(floor)).collect();
        let uncaptured = levels.clone();
        // A text carries the labels of its captured parts.
        for (id, node) in document.nodes().iter().enumerate() {
            for part in self.captured(statements, document, id, &uncaptured[node.parent]) {
                levels[node.parent] = levels[node.parent].join(&part);
            }
        }
        let root = granted[0].keys().copied().collect();
        PartLabels { levels, uncaptured, unknown, root }
    }

    /// Returns the labels of a captured part of a text: one for each statement that may have captured it.
    fn captured(
        &self,
        statements: &[&LabelDeclaration],
        document: &Document,
        id: NodeId,
        text: &OracleLabel,
    ) -> Vec<OracleLabel> {
        let Some(node) = document.node(id) else { return Vec::new() };
        let PathStep::Capture(name) = &node.step else { return Vec::new() };
        let made = statements.iter().filter(|labels| {
            labels.capture == Some(&**name)
                && !self.declared.is_ambiguous(&labels.pattern)
                && targets(document, &labels.target).contains(&node.parent)
        });
        let level = |labels: &&LabelDeclaration| {
            let mut level = text.clone();
            for (dimension, element) in &labels.grant.parts {
                level.0[*dimension] = element.clone();
            }
            level
        };
        made.map(level).collect()
    }

    /// Completes the bounds of captured parts, and of the event around the content.
    fn finish(&self, all: &[&LabelDeclaration], document: &Document, labelled: PartLabels) -> LabelBounds {
        let PartLabels { levels, uncaptured, unknown, root } = labelled;
        let known = |id: NodeId, level: &OracleLabel| {
            let shapes = self.shapes().iter().zip(&unknown[id]).zip(&level.0);
            OracleLabel(
                shapes
                    .map(|(((_, shape), is_unknown), e)| if *is_unknown { shape.bottom() } else { e.clone() })
                    .collect(),
            )
        };
        let mut parts: Vec<Vec<OracleLabel>> =
            levels.iter().enumerate().map(|(id, level)| vec![known(id, level)]).collect();
        let texts: Vec<OracleLabel> =
            uncaptured.iter().enumerate().map(|(id, level)| known(id, level)).collect();
        for (id, node) in document.nodes().iter().enumerate() {
            if matches!(node.step, PathStep::Capture(_)) {
                parts[id] = self.captured(all, document, id, &texts[node.parent]);
                assert!(!parts[id].is_empty(), "no statement captures {}", document.path(id));
            }
        }
        if let Some(content) = document.key(0, "content") {
            // A statement for the content also covers that the answer exists.
            for id in [Some(0), document.key(0, "is_error")].into_iter().flatten() {
                for dimension in 0..self.shapes().len() {
                    if !root.contains(&dimension) {
                        parts[id][0].0[dimension] = parts[content][0].0[dimension].clone();
                    }
                }
            }
        }
        LabelBounds::new(document, parts)
    }

    /// Returns the greatest label that a statement can grant.
    fn most(&self, grant: &DeclaredGrant) -> OracleLabel {
        let mut level = self.bottom();
        for (dimension, element) in &grant.parts {
            level.0[*dimension] = element.clone();
        }
        if let Some(dimension) = grant.computed {
            level.0[dimension] = self.shapes()[dimension].1.top();
        }
        level
    }

    /// Returns the element that is computed from `out.content.k`; `None` if it is unknown.
    fn computed(&self, document: &Document, dimension: usize) -> Option<(usize, DimensionElement)> {
        let shape = self.shapes()[dimension].1;
        let content = document.key(0, "content")?;
        let value = match document.key(content, "k") {
            None => return Some((dimension, shape.top())),
            Some(key) => document.to_value(key),
        };
        let element = match (shape, &value) {
            (_, Value::Array(_) | Value::Object(_)) => return None,
            (DimensionShape::Names, Value::String(name)) if !name.is_empty() => {
                DimensionElement::names(&[name])
            }
            (DimensionShape::Readers, Value::String(name)) if !name.is_empty() => {
                DimensionElement::readers(&[name])
            }
            (DimensionShape::Age, Value::String(day)) if day == "2024-05-19 12:00" => {
                DimensionElement::written_at(1_716_120_000)
            }
            (DimensionShape::Age, Value::String(day)) if day.starts_with(|c: char| c.is_ascii_digit()) => {
                return None;
            }
            (_, Value::String(name)) if name.is_empty() => return None,
            _ => shape.top(),
        };
        Some((dimension, element))
    }
}

fn join(granted: &mut BTreeMap<usize, DimensionElement>, dimension: usize, element: &DimensionElement) {
    let joined = match granted.get(&dimension) {
        Some(before) => {
            OracleLabel(vec![before.clone()]).join(&OracleLabel(vec![element.clone()])).0.remove(0)
        }
        None => element.clone(),
    };
    granted.insert(dimension, joined);
}

fn dimensions_of(grant: &DeclaredGrant) -> impl Iterator<Item = usize> + '_ {
    grant.parts.iter().map(|(dimension, _)| *dimension).chain(grant.computed)
}
