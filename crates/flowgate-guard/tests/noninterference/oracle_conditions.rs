//! Evaluates the conditions of declared statements on the structure of an event.
//!
//! [`crate::oracle`] asks for which parts a statement holds, and which parts its condition reads. Where the outcome is
//! unclear, the condition is [unknown](ConditionTruth::Unknown).

use flowgate::trace::{Document, NodeContent, NodeId};
use serde_json::Value;

use crate::declared_policy::{DeclaredCondition, LabelDeclaration, PartSelector};

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ConditionTruth {
    Yes,
    No,
    /// A value is missing; with `None` in its place the condition would hold.
    WithNone,
    Unknown,
}

/// The result of a condition for some parts, and the parts that it reads.
pub(crate) struct ConditionMatch {
    pub(crate) targets: Vec<NodeId>,
    pub(crate) holds: ConditionTruth,
    pub(crate) looked_at: Vec<NodeId>,
}

fn is_text(document: &Document, node: NodeId) -> bool {
    document
        .node(node)
        .is_some_and(|node| matches!(&node.content, NodeContent::Scalar(value) if !value.is_null()))
}

fn parts_of(document: &Document, node: NodeId, way: &PartSelector) -> Vec<NodeId> {
    match way {
        PartSelector::Key(key) => document.key(node, key).into_iter().collect(),
        PartSelector::Each if is_text(document, node) => Vec::new(),
        PartSelector::Each => document.children(node).collect(),
    }
}

/// Returns the parts at a path.
pub(crate) fn targets(document: &Document, way: &[PartSelector]) -> Vec<NodeId> {
    way.iter()
        .fold(vec![0], |nodes, step| nodes.iter().flat_map(|node| parts_of(document, *node, step)).collect())
}

/// Returns the texts at places where a statement expects further parts.
pub(crate) fn instead_of_parts(document: &Document, way: &[PartSelector]) -> Vec<NodeId> {
    let (mut nodes, mut texts) = (vec![0], Vec::new());
    for step in way {
        texts.extend(nodes.iter().copied().filter(|node| is_text(document, *node)));
        nodes = nodes.iter().flat_map(|node| parts_of(document, *node, step)).collect();
    }
    if way.len() > 1 && document.twins_differ {
        texts.push(0);
    }
    texts
}

/// Returns the results of a statement's condition, for all its targets or for each row.
pub(crate) fn answers(document: &Document, labels: &LabelDeclaration) -> Vec<ConditionMatch> {
    let all = targets(document, &labels.target);
    let content = document.key(0, "content");
    let key = |name: &str| content.and_then(|content| document.key(content, name));
    let value = |node: NodeId| document.to_value(node);
    let one = |holds: ConditionTruth, looked_at: Vec<NodeId>| {
        vec![ConditionMatch { targets: all.clone(), holds, looked_at }]
    };
    let of_key = |holds: &dyn Fn(&Value) -> bool, without: ConditionTruth| match key("k") {
        Some(node) if value(node).is_array() || value(node).is_object() => {
            one(ConditionTruth::Unknown, vec![node])
        }
        Some(node) => {
            one(if holds(&value(node)) { ConditionTruth::Yes } else { ConditionTruth::No }, vec![node])
        }
        None => one(without, content.into_iter().collect()),
    };
    let is = |value: &Value, word: &str| value.as_str() == Some(word);
    match labels.condition {
        DeclaredCondition::MentionsError => {
            one(ConditionTruth::Yes, document.key(0, "is_error").into_iter().collect())
        }
        DeclaredCondition::Always => match (labels.grant.computed, key("k")) {
            (Some(_), Some(node)) => one(ConditionTruth::Yes, vec![node]),
            (Some(_), None) => one(ConditionTruth::Yes, content.into_iter().collect()),
            (None, _) => one(ConditionTruth::Yes, Vec::new()),
        },
        DeclaredCondition::KeyIs(word) => of_key(&|value| is(value, word), ConditionTruth::No),
        DeclaredCondition::KeyIsNot(word) => of_key(&|value| !is(value, word), ConditionTruth::WithNone),
        DeclaredCondition::KeyIsNone => of_key(&Value::is_null, ConditionTruth::Yes),
        DeclaredCondition::KeyNotIn(words) => {
            of_key(&|value| !words.iter().any(|word| is(value, word)), ConditionTruth::WithNone)
        }
        DeclaredCondition::KeyIsKnown => match key("k") {
            Some(node) if value(node).is_string() => of_key(&|value| is_known(value), ConditionTruth::No),
            Some(node) => one(ConditionTruth::Unknown, vec![node]),
            None => one(ConditionTruth::Unknown, Vec::new()),
        },
        DeclaredCondition::NoZ => match key("more") {
            Some(node) if value(node).is_object() => one(
                if document.key(node, "z").is_none() { ConditionTruth::Yes } else { ConditionTruth::No },
                vec![node],
            ),
            _ => one(ConditionTruth::Unknown, Vec::new()),
        },
        DeclaredCondition::ManyRows => match key("rows") {
            Some(node) if value(node).is_array() => one(
                if document.children(node).count() > 1 { ConditionTruth::Yes } else { ConditionTruth::No },
                vec![node],
            ),
            _ => one(ConditionTruth::Unknown, Vec::new()),
        },
        DeclaredCondition::RowIs(_) | DeclaredCondition::RowIsNone(_) | DeclaredCondition::RowNotIn(_) => {
            let Some(rows) = key("rows") else { return one(ConditionTruth::No, Vec::new()) };
            rows_of(document, rows, labels)
        }
        DeclaredCondition::Describes(word) => match document.key(0, "description") {
            Some(node) => {
                let holds = value(node).as_str().is_some_and(|text| text.contains(word));
                one(if holds { ConditionTruth::Yes } else { ConditionTruth::No }, vec![node])
            }
            None => one(ConditionTruth::Unknown, Vec::new()),
        },
    }
}

/// Evaluates `(row: dict) in out.content.rows` with a condition on `row.x` that decides the label of `row.y`.
fn rows_of(document: &Document, rows: NodeId, labels: &LabelDeclaration) -> Vec<ConditionMatch> {
    let is_plain = |row: &Value| {
        row.as_object().is_some_and(|row| {
            row.contains_key("x") && row.values().all(|value| !value.is_array() && !value.is_object())
        })
    };
    let regular = document.to_value(rows).as_array().is_some_and(|rows| rows.iter().all(is_plain));
    if !regular {
        // The rows are nested, or not a list.
        let targets = (rows..document.node(rows).map_or(rows, |node| node.end)).collect();
        return vec![ConditionMatch { targets, holds: ConditionTruth::Unknown, looked_at: Vec::new() }];
    }
    let one_row = |row: NodeId| {
        let (x, y) = (document.key(row, "x")?, document.key(row, "y")?);
        let value = document.to_value(x);
        let holds = match labels.condition {
            DeclaredCondition::RowIs(word) => value.as_str() == Some(word),
            DeclaredCondition::RowIsNone(is_none) => value.is_null() == is_none,
            DeclaredCondition::RowNotIn(words) => !words.iter().any(|word| value.as_str() == Some(word)),
            _ => false,
        };
        let holds = if holds { ConditionTruth::Yes } else { ConditionTruth::No };
        // The existence of a row depends on the row itself.
        Some(ConditionMatch { targets: vec![y], holds, looked_at: vec![x] })
    };
    document.children(rows).filter_map(one_row).collect()
}

/// The embedded predicate `known`.
pub(crate) fn is_known(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() % 2 == 0)
}
