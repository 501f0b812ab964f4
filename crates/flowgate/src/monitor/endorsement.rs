//! Applies the `endorse` statements to a call: lowers the integrity labels of the arguments that they endorse, before
//! the call is compared with its requirements. The arguments then have the canonical form that was checked.
//! [`super::call_examination`] calls [`Monitor::endorse`] for each call.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value as Json;

use super::computed_label::compute_label;
use super::regions::region_nodes;
use super::requirement::for_each_match;
use super::{ApplicableStatements, Monitor, ValueClass};
use crate::builtin;
use crate::eval::{EvalError, MissingValueMode};
use crate::label::{ComputedLabelUse, PartialLabel};
use crate::policy::Span;
use crate::policy::plan::{Endorsement, Plan};
use crate::trace::{Document, EventBody, EventId, NodeContent, NodeId, PathStep, TraceEntry};

/// The most items of a list that is endorsed item by item.
pub(crate) const MAX_ENDORSED_ITEMS: usize = 16;

impl Monitor {
    /// Lowers the integrity label of each argument that an `endorse` statement endorses. Replaces its value by the
    /// canonical form, in the trace and in `entry`, so that the tool receives the value that was checked. Also lowers
    /// the label of a list if all of its items are endorsed. A statement endorses nothing if it cannot be evaluated, or
    /// if one of its patterns matches tools of two servers. Returns the locations of the statements that endorsed
    /// something, and the classes of values that they describe. `event` is the call in the trace, and `applicable` are
    /// the statements that apply to its tool.
    pub(super) fn endorse(
        &mut self,
        event: EventId,
        applicable: &ApplicableStatements,
        entry: &mut TraceEntry,
        fuel: &mut u64,
    ) -> (Vec<Span>, Vec<ValueClass>) {
        let (mut applied, mut classes) = (Vec::new(), Vec::new());
        let policy = std::sync::Arc::clone(&self.policy);
        let plan = &policy.plan;
        let tool = self.trace.event(event).and_then(|call| call.tool()).cloned();
        for statement in applicable.endorsements.iter().filter_map(|index| plan.endorsements.get(*index)) {
            if self.ambiguity_reason(plan, &statement.query, tool.as_ref()).is_some() {
                continue;
            }
            let Ok(mut granted) = self.evaluate_endorsement(plan, statement, event, fuel) else { continue };
            let Some(call) = self.trace.event_mut(event) else { return (applied, classes) };
            // A value that is not a scalar, or has no canonical form, is not endorsed.
            let canonical_value =
                |node: NodeId| match (&call.document.node(node)?.content, statement.value.canonical) {
                    (NodeContent::Scalar(value), Some(canonical)) => canonical(value),
                    (NodeContent::Scalar(value), None) => Some(value.clone()),
                    _ => None,
                };
            // The canonical values, in the same order as `granted`. A node without a canonical value is removed from
            // `granted`.
            let values: Vec<(NodeId, Json)> =
                granted.iter().filter_map(|(node, _)| Some((*node, canonical_value(*node)?))).collect();
            granted.retain(|(node, _)| values.iter().any(|(endorsed, _)| endorsed == node));
            if !granted.is_empty() {
                applied.push(statement.span.clone());
                classes.extend(statement.class.as_ref().map(|(argument, description)| ValueClass {
                    argument: argument.clone(),
                    description: description.clone(),
                    statement: statement.span.clone(),
                }));
            }
            for (list, label) in endorsed_lists(&call.document, &granted) {
                call.document.lower(&plan.space, list, &label);
            }
            for ((node, label), (_, canonical)) in granted.into_iter().zip(values) {
                let Some(call) = self.trace.event_mut(event) else { return (applied, classes) };
                let path = call.document.path(node);
                call.document.set_scalar(node, canonical.clone());
                call.document.lower(&plan.space, node, &label);
                for body in [&mut call.body, &mut entry.body] {
                    replace_argument(body, &path.0, &canonical);
                }
            }
        }
        (applied, classes)
    }

    /// Evaluates an `endorse` statement for the call `event`. Returns the nodes of the arguments that satisfy it, each
    /// with the label that it gives them.
    ///
    /// # Errors
    /// If the statement cannot be evaluated.
    fn evaluate_endorsement(
        &mut self,
        plan: &Plan,
        statement: &Endorsement,
        event: EventId,
        fuel: &mut u64,
    ) -> Result<Vec<(NodeId, PartialLabel)>, EvalError> {
        let mut granted: Vec<(NodeId, PartialLabel)> = Vec::new();
        let Self { trace, name_table, parameters, answers, .. } = self;
        let mut evaluator = builtin::evaluator(plan, trace, fuel, MissingValueMode::FailsAll)
            .with_inputs(parameters, answers);
        // Whether the query may iterate over the items of a list without recording a read of the list itself.
        evaluator.quiet = statement.query.is_quiet;
        for_each_match(&mut evaluator, &statement.query, event, |evaluator, frame| {
            let nodes = region_nodes(evaluator.trace, &statement.target, frame, event);
            // The condition on the argument itself checks its form, so that read does not count. The label of
            // everything else that was read must flow to the granted label.
            evaluator.reads.retain(|read| read.event != event || !nodes.contains(&read.node));
            let label = compute_label(
                evaluator,
                &plan.space,
                name_table,
                &statement.label,
                frame,
                ComputedLabelUse::Data,
            )?;
            let exceeded = plan.space.exceeded_dimensions(&evaluator.read_label(), &label.label, label.dims);
            if exceeded.is_empty() {
                granted.extend(nodes.into_iter().map(|node| (node, label)));
            }
            Ok(())
        })?;
        Ok(granted)
    }
}

/// Returns the lists whose items are all endorsed with the same label, each with this label. `items` are the endorsed
/// values of `document` with their labels. The author of a list chooses its items and their number. To bound how much
/// the author can encode in these choices, a list with more than [`MAX_ENDORSED_ITEMS`] items is not endorsed.
fn endorsed_lists(document: &Document, items: &[(NodeId, PartialLabel)]) -> Vec<(NodeId, PartialLabel)> {
    // `None` if items of the list have different labels: no single one holds for the list.
    let mut lists: BTreeMap<NodeId, Option<PartialLabel>> = BTreeMap::new();
    for (item, label) in items {
        let Some(list) = document.node(*item).map(|node| node.parent) else { continue };
        let common = lists.entry(list).or_insert(Some(*label));
        *common = common.filter(|common| common == label);
    }
    let endorsed: HashSet<NodeId> = items.iter().map(|(item, _)| *item).collect();
    let is_endorsed = |list: &NodeId| {
        let children: Vec<NodeId> = document.children(*list).take(MAX_ENDORSED_ITEMS + 1).collect();
        document.node(*list).is_some_and(|node| matches!(node.content, NodeContent::List))
            && children.len() <= MAX_ENDORSED_ITEMS
            && children.iter().all(|child| endorsed.contains(child))
    };
    let lists = lists.into_iter().filter(|(list, _)| is_endorsed(list));
    lists.filter_map(|(list, label)| Some((list, label?))).collect()
}

/// Replaces the value at `path` in a call; the first step of the path is `arguments`, and the second is the name of an
/// argument. Leaves the call unchanged if it has no value there.
fn replace_argument(body: &mut EventBody, path: &[PathStep], value: &Json) {
    let EventBody::Call(call) = body else { return };
    let (Ok(arguments), Some((PathStep::Key(_), rest))) = (&mut call.arguments, path.split_first()) else {
        return;
    };
    let Some((PathStep::Key(name), rest)) = rest.split_first() else { return };
    let mut target = arguments.get_mut(&**name);
    for step in rest {
        target = match (target, step) {
            (Some(Json::Object(map)), PathStep::Key(key)) => map.get_mut(&**key),
            (Some(Json::Array(items)), PathStep::Index(index)) => items.get_mut(*index),
            _ => None,
        };
    }
    if let Some(target) = target {
        *target = value.clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::label::{DimensionSet, Label};
    use crate::trace::{Call, Tool};

    #[test]
    fn a_list_is_endorsed_if_all_items_have_one_label() {
        let arguments = json!({"to": ["a", "b"]}).as_object().cloned().unwrap();
        let call = Call { id: "c".to_owned(), tool: Tool::local("send"), arguments: Ok(arguments) };
        let document = Document::new(&EventBody::Call(call), Label::BOTTOM);
        let find = |path: &str| {
            (0..document.nodes().len()).find(|id| document.path(*id).to_string() == path).unwrap()
        };
        let (list, first, second) = (find("arguments.to"), find("arguments.to[0]"), find("arguments.to[1]"));
        let dimension = |index| PartialLabel { dims: DimensionSet::single(index), label: Label::BOTTOM };
        let check = |items: &[(NodeId, PartialLabel)], expected: &[NodeId]| {
            let lists: Vec<NodeId> =
                endorsed_lists(&document, items).into_iter().map(|(list, _)| list).collect();
            assert_eq!(lists, expected, "{items:?}");
        };
        check(&[(first, dimension(0)), (second, dimension(0))], &[list]);
        check(&[(first, dimension(0)), (second, dimension(1))], &[]);
        check(&[(first, dimension(1)), (second, dimension(0)), (second, dimension(1))], &[]);
        check(&[(first, dimension(0))], &[]);
    }
}
