//! Evaluates the conditions and expressions of compiled policies over a trace. The monitor uses the [`Evaluator`] for
//! statements, and `rules` uses it for rules.
//!
//! Every step costs *fuel*, so that no policy and no trace can take unbounded time. An evaluation that exhausts its
//! fuel fails, and no caller permits anything because of a failure. The evaluator records the regions that it reads,
//! since a statement that lowers a label may read only regions at or below that label.
//!
//! * `search` finds the assignments of values to variables that satisfy the conditions of a query.
//! * `expression` evaluates one expression. It calls `compare` for operators and tool patterns, `member` for fields,
//!   indices and slices, `block` for `forall` and `count`, and `listed` for values that a trusted text lists.
//! * `missing_values` decides the result of an operation on a missing or null value.
//! * `text_locations` lists the texts in a value, and records the locations that a match concerns.
//! * `function` defines the table of built-in functions, which `builtin` fills.

mod block;
mod compare;
mod expression;
mod function;
mod listed;
mod member;
mod missing_values;
mod search;
mod text_locations;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value as Json};

pub(crate) use crate::value::{EvalError, RegionKind, Result, Value};
pub(crate) use function::{Function, Functions};
pub(crate) use text_locations::{MatchLocation, TextLocation, TextPiece};

use crate::label::Label;
use crate::policy::dialect::Dialect;
use crate::policy::plan::{Plan, Type, VariableSlot};
use crate::predicates::PredicateAnswers;
use crate::trace::{EventBody, EventId, NodeContent, NodeId, Status, Trace};

/// The parameters of a policy: the values of `input.NAME`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters(BTreeMap<Arc<str>, Value>);

impl Parameters {
    /// No parameters: every `input.NAME` of the policy is an error.
    pub(crate) const NONE: &Self = &Self(BTreeMap::new());

    /// Converts the parameters from JSON, as the caller of the library gives them.
    pub(crate) fn new(parameters: &Map<String, Json>) -> Self {
        Self(parameters.iter().map(|(name, value)| (name.as_str().into(), Value::from_json(value))).collect())
    }

    /// Adds the given parameters, but keeps the value of a parameter that is set already. Returns whether a parameter
    /// was added.
    pub(crate) fn add(&mut self, parameters: &Map<String, Json>) -> bool {
        let before = self.0.len();
        for (name, value) in parameters {
            if self.get(name).is_none() {
                self.0.insert(name.as_str().into(), Value::from_json(value));
            }
        }
        self.0.len() > before
    }

    /// Returns all parameters as a map.
    pub(crate) fn as_dict(&self) -> Value {
        Value::Dict(self.0.iter().map(|(name, value)| (Arc::clone(name), value.clone())).collect())
    }

    /// Returns all parameters as JSON.
    pub(crate) fn to_json(&self) -> Map<String, Json> {
        self.0.iter().map(|(name, value)| (name.to_string(), value.to_json())).collect()
    }

    /// Returns the value of `input.NAME`; `None` if the caller has not set this parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// A region that a condition has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionRead {
    pub(crate) event: EventId,
    pub(crate) node: NodeId,
    /// Whether the subtree was also read; otherwise only the node's own scalar or structure was.
    pub(crate) deep: bool,
}

/// How an evaluation treats a missing value, such as an absent key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingValueMode {
    /// A missing value is `None`, which equals nothing else; an operation that needs a value, such as an order, has no
    /// result. This mode is for rules, and for the second evaluation of a statement, which counts undecided conditions
    /// as satisfied where the statement can only restrict (`doubt_restricts`).
    IsNone,
    /// A condition on a missing value does not hold, and neither does its negation. This mode is for statements that
    /// grant something.
    FailsAll,
}

/// The values of the variables of a query, by their slots.
pub(crate) type Frame = Vec<Value>;

/// The events that a variable may be bound to.
pub(crate) trait Candidates {
    /// Returns the events for the variable in `slot`; `None` means every event of the trace. `frame` contains the
    /// values of the variables that are bound already.
    fn events(&self, slot: VariableSlot, frame: &Frame) -> Option<Vec<EventId>>;
}

/// The default candidates: each variable may be bound to every event of the trace.
pub(crate) struct AllEvents;

impl Candidates for AllEvents {
    /// Returns `None`, which means every event of the trace.
    fn events(&self, _: VariableSlot, _: &Frame) -> Option<Vec<EventId>> {
        None
    }
}

/// The callback for each assignment that satisfies a query; returns whether to stop.
pub(crate) type MatchCallback<'f> = dyn FnMut(&mut Evaluator<'_>, &Frame) -> Result<bool> + 'f;

/// The state of one evaluation: its inputs, its fuel, and a record of the regions that it reads.
pub(crate) struct Evaluator<'a> {
    pub(crate) plan: &'a Plan,
    functions: &'a Functions,
    pub(crate) trace: &'a Trace,
    /// The evaluation steps that are left.
    pub(crate) fuel: &'a mut u64,
    /// The meaning of a missing value.
    pub(crate) missing: MissingValueMode,
    /// The parameters of the policy.
    pub(crate) parameters: &'a Parameters,
    /// The answers to extern predicates.
    pub(crate) answers: &'a PredicateAnswers,
    /// The events to which the search binds variables.
    pub(crate) candidates: &'a dyn Candidates,
    /// The regions that were read for the current assignment.
    pub(crate) reads: Vec<RegionRead>,
    /// While set, the join of the labels of all regions that [`Self::truncate_reads`] removed from `reads`.
    pub(crate) removed_label: Option<Label>,
    /// While `removed_label` is set, the regions that were removed from `reads`.
    pub(crate) removed_reads: Vec<RegionRead>,
    /// Whether the query may iterate over the items of a list without recording a read of the list itself
    /// ([`CompiledQuery::is_quiet`](crate::policy::plan::CompiledQuery)).
    pub(crate) quiet: bool,
    /// Whether the evaluator is now listing the items for such a quiet iteration.
    is_quiet: bool,
    /// Whether an assignment could not be decided because a value was missing.
    pub(crate) missed: bool,
    /// Whether a condition that a missing value leaves undecided counts as satisfied. Set for statements that can
    /// only restrict.
    pub(crate) doubt_restricts: bool,
    /// The locations that a match concerns; `None` while they are not recorded.
    pub(crate) marks: Option<Vec<MatchLocation>>,
    /// The reasons why assignments that satisfy all other conditions could not be decided, without duplicates.
    pub(crate) failures: Vec<EvalError>,
    /// The number of assignments that could not be decided.
    undecided: u64,
    /// The error of the first condition of the current assignment that could not be evaluated.
    trouble: Option<UndecidedReason>,
    /// The number of predicates of the policy that are being evaluated, one within the other.
    depth: usize,
    /// The total size of computed values in bytes, including values that have been dropped.
    allocated_bytes: usize,
}

/// The reason why an assignment cannot be decided.
#[derive(Debug, Clone)]
struct UndecidedReason {
    error: EvalError,
    /// The number of assignments that are undecided for this reason; more than one if the values of a variable could
    /// not be read.
    assignments: u64,
}

/// Maximum depth of calls between predicates.
const MAX_DEPTH: usize = 32;

/// The answers of an evaluation without extern predicates.
static NO_ANSWERS: LazyLock<PredicateAnswers> = LazyLock::new(PredicateAnswers::default);

/// The number of bytes of a text that one step of fuel pays to read or to compare once, from the beginning to the end.
const BYTES_PER_STEP: usize = 64;
/// Maximum number of failures that are recorded.
const MAX_FAILURES: usize = 100;
/// Maximum total size of the values that one evaluation may compute, in bytes.
const MAX_ALLOCATED_BYTES: usize = 512 << 20;
/// The estimated size of an item of a list or a map without its text, in bytes.
const ITEM: usize = 32;
/// The number of assignments that count as undecided if the values of a variable cannot be read. The true number is
/// unknown; this is an upper bound.
const ANY_NUMBER: u64 = 1 << 32;

impl<'a> Evaluator<'a> {
    /// Creates an evaluator; [`with_inputs`](Self::with_inputs) adds the parameters of the policy and the answers to
    /// extern predicates. `missing` states how a missing value is treated, which differs between rules and statements
    /// that grant something. `functions` is the table of the built-in functions, and `fuel` the number of steps that
    /// the evaluation may spend.
    pub(crate) fn new(
        plan: &'a Plan,
        trace: &'a Trace,
        fuel: &'a mut u64,
        missing: MissingValueMode,
        functions: &'a Functions,
    ) -> Self {
        Self {
            plan,
            functions,
            trace,
            fuel,
            missing,
            parameters: Parameters::NONE,
            answers: &NO_ANSWERS,
            candidates: &AllEvents,
            reads: Vec::new(),
            removed_label: None,
            removed_reads: Vec::new(),
            quiet: false,
            is_quiet: false,
            missed: false,
            doubt_restricts: false,
            marks: None,
            failures: Vec::new(),
            undecided: 0,
            trouble: None,
            depth: 0,
            allocated_bytes: 0,
        }
    }

    /// Sets the parameters of the policy, and the answers to extern predicates.
    pub(crate) fn with_inputs(mut self, parameters: &'a Parameters, answers: &'a PredicateAnswers) -> Self {
        self.parameters = parameters;
        self.answers = answers;
        self
    }

    /// Returns the dialect in which the policy is written. A few operations differ between the dialects.
    pub(crate) fn dialect(&self) -> Dialect {
        self.plan.dialect
    }

    /// Subtracts the cost of an operation, in steps, from the fuel of the evaluation.
    ///
    /// # Errors
    /// If less fuel is left than the operation costs. All of it is then spent, so every later step fails as well.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<()> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        match self.fuel.checked_sub(steps) {
            Some(left) => {
                *self.fuel = left;
                Ok(())
            }
            None => {
                *self.fuel = 0;
                Err(EvalError::Fuel)
            }
        }
    }

    /// Spends the fuel for a value of this many bytes before it is allocated, so that the fuel bounds memory as well as
    /// time.
    ///
    /// # Errors
    /// If the fuel is spent, or the evaluation has computed more than [`MAX_ALLOCATED_BYTES`] in total.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        // Values that have been dropped count as well, so the total never decreases.
        self.allocated_bytes = self.allocated_bytes.saturating_add(bytes);
        if self.allocated_bytes > MAX_ALLOCATED_BYTES {
            return Err(EvalError::Fuel);
        }
        // One step pays for 16 bytes.
        self.spend(bytes / 16)
    }

    /// Spends the fuel for a value that has been computed, with its content, as [`Self::charge_bytes`] does.
    pub(crate) fn charge_value(&mut self, value: &Value) -> Result<()> {
        let mut size = 0;
        add_value_size(value, &mut size);
        self.charge_bytes(size)
    }

    /// Spends the fuel for a copy of a region, the node `node` of an event with its subtree, as [`Self::charge_bytes`]
    /// does. Spends none if the event does not exist.
    fn charge_copy(&mut self, event: EventId, node: NodeId) -> Result<()> {
        let Some(document) = self.trace.event(event).map(|event| &event.document) else { return Ok(()) };
        // Nodes are stored in pre-order, so the subtree is a range.
        let end = document.node(node).map_or(node, |found| found.end);
        let text = |node: NodeId| match document.node(node).map(|node| (&node.text, &node.content)) {
            Some((Some(text), _)) => text.len(),
            Some((None, NodeContent::Scalar(Json::String(text)))) => text.len(),
            _ => 0,
        };
        self.charge_bytes((node..end).map(|node| ITEM + text(node)).sum())
    }

    /// Returns the join of the labels of all regions read so far.
    pub(crate) fn read_label(&self) -> Label {
        self.label_of(&self.reads)
    }

    /// Returns the join of the labels of regions that were read.
    fn label_of(&self, reads: &[RegionRead]) -> Label {
        let label = |read: &RegionRead| {
            // Reads are recorded only of regions that exist, so `BOTTOM` hides no label here.
            let document = self.trace.event(read.event).map(|event| &event.document);
            // A shallow read has seen the node alone, not what is below it.
            document.map_or(Label::BOTTOM, |document| document.label_read(read.node, read.deep))
        };
        reads.iter().fold(Label::BOTTOM, |joined, read| joined.join(&label(read)))
    }

    /// Removes all recorded reads except the first `retained`. The caller does so when the result no longer depends on
    /// the others. While `removed_label` is set, joins the labels of the removed reads into it, and moves these reads
    /// to `removed_reads`.
    pub(crate) fn truncate_reads(&mut self, retained: usize) {
        let removed = self.reads.split_off(retained.min(self.reads.len()));
        if let Some(label) = self.removed_label {
            self.removed_label = Some(label.join(&self.label_of(&removed)));
            self.removed_reads.extend(removed);
        }
    }

    /// Returns whether a region is the schema of a tool, whose items are the tool's parameters.
    pub(crate) fn is_schema(&self, event: EventId, node: NodeId) -> bool {
        self.trace.event(event).is_some_and(|event| {
            matches!(event.body, EventBody::Tool(_)) && event.document.key(0, "inputSchema") == Some(node)
        })
    }

    /// Returns the items of a list or the values of a map. For a part of an event, records a read of the list or map
    /// itself, unless the iteration is quiet. A missing value in a rule, and the empty content of a message (`Silent`),
    /// have no items.
    ///
    /// # Errors
    /// If the value is missing in a statement that grants something, or is of another type.
    pub(crate) fn items(&mut self, value: &Value) -> Result<Vec<Value>> {
        match value {
            Value::Absent | Value::None | Value::Silent => self.items_of_non_list(value),
            Value::List(items) | Value::Texts(items) => Ok(items.to_vec()),
            Value::Answers(answers) => Ok(answers.iter().copied().map(Value::Bool).collect()),
            Value::Dict(entries) => Ok(entries.iter().map(|(_, value)| value.clone()).collect()),
            // The client sent a list with one block of text, of which the event stores only the text. In a rule, the
            // only item of such a content is the block.
            Value::Node(event, node)
                if self.is_sole_block(*event, *node) && self.missing == MissingValueMode::IsNone =>
            {
                Ok(vec![Value::Part(RegionKind::Text, *event, *node)])
            }
            // The items of a tool's schema are the tool's parameters.
            Value::Node(event, node) if self.is_schema(*event, *node) => {
                self.parts(&Value::Event(*event), Type::ToolParameter)
            }
            Value::Node(event, node) => self.items_of_node(*event, *node),
            other => self.items_of_non_list(other),
        }
    }

    /// Returns the children of a node that is a list or a map. Another node has the items of its value, as
    /// [`items_of_non_list`](Self::items_of_non_list) decides. Records a read of the node, unless the iteration is
    /// quiet.
    fn items_of_node(&mut self, event: EventId, node: NodeId) -> Result<Vec<Value>> {
        let Some(document) = self.trace.event(event).map(|event| &event.document) else {
            return Ok(Vec::new());
        };
        let content = document.node(node).map(|found| &found.content);
        let is_list_or_map = matches!(content, Some(NodeContent::List | NodeContent::Map));
        // The statement may permit an iteration without a read of the list around the items.
        if !self.is_quiet {
            self.reads.push(RegionRead { event, node, deep: !is_list_or_map });
        }
        if is_list_or_map {
            return Ok(document.children(node).map(|child| Value::Node(event, child)).collect());
        }
        match content {
            // Such as a text in place of a list.
            Some(NodeContent::Scalar(value)) => self.items_of_non_list(&Value::from_json(value)),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the items of a value that is neither a list nor a map. The empty content of a message (`Silent`), and a
    /// missing value in a rule, have no items; any other value is an error. Otherwise, a text in place of a list could
    /// evade a rule, or satisfy a condition over all items.
    fn items_of_non_list(&self, value: &Value) -> Result<Vec<Value>> {
        match (value, self.missing) {
            (Value::Absent | Value::None, MissingValueMode::IsNone) | (Value::Silent, _) => Ok(Vec::new()),
            (Value::Absent | Value::None, MissingValueMode::FailsAll) => Err(EvalError::Missing),
            (other, _) => Err(EvalError::Type(format!(
                "a value of the type {} has no items; give a list or a map",
                other.type_name()
            ))),
        }
    }

    /// Returns whether a value has the type `ty` of the policy language, so that a variable of this type ranges over
    /// it. A text that encodes a list is both a `str` and a `list`. A withdrawn call has no type, since rules no longer
    /// see it.
    pub(crate) fn has_type(&self, value: &Value, ty: Type) -> bool {
        match value {
            // A value whose evaluation failed has every type, so that the failure is reported unless another condition
            // rules it out.
            Value::Failed(_) => true,
            Value::Event(id) => {
                self.trace.event(*id).filter(|event| event.status != Status::Withdrawn).is_some_and(|event| {
                    match &event.body {
                        EventBody::Message(_) => matches!(ty, Type::Message | Type::Event | Type::Any),
                        EventBody::Call(_) => matches!(ty, Type::ToolCall | Type::Event | Type::Any),
                        EventBody::Output(_) => matches!(ty, Type::ToolOutput | Type::Event | Type::Any),
                        EventBody::Tool(_) => matches!(ty, Type::Tool | Type::Event | Type::Any),
                    }
                })
            }
            Value::Node(event, node) => {
                let node = self.trace.event(*event).and_then(|event| event.document.node(*node));
                node.is_some_and(|node| match &node.content {
                    NodeContent::List => {
                        matches!(ty, Type::List | Type::Any) || (ty == Type::Str && node.text.is_some())
                    }
                    NodeContent::Map => {
                        matches!(ty, Type::Dict | Type::Any) || (ty == Type::Str && node.text.is_some())
                    }
                    NodeContent::Scalar(value) => self.has_type(&Value::from_json(value), ty),
                })
            }
            Value::Function(_) => matches!(ty, Type::Function | Type::Any),
            Value::Part(RegionKind::Text, ..) => matches!(ty, Type::TextChunk | Type::Dict | Type::Any),
            Value::Part(RegionKind::Image, ..) => matches!(ty, Type::Image | Type::Dict | Type::Any),
            Value::Part(RegionKind::Parameter, ..) => {
                matches!(ty, Type::ToolParameter | Type::Dict | Type::Any)
            }
            Value::Str(_) | Value::ToolName(_) => matches!(ty, Type::Str | Type::Any),
            Value::Int(_) => matches!(ty, Type::Int | Type::Any),
            Value::Float(_) => matches!(ty, Type::Float | Type::Any),
            Value::Bool(_) => matches!(ty, Type::Bool | Type::Any),
            Value::List(_) | Value::Texts(_) | Value::Answers(_) => matches!(ty, Type::List | Type::Any),
            Value::Dict(_) => matches!(ty, Type::Dict | Type::Any),
            // Missing values and `None` have no type of their own.
            _ => ty == Type::Any,
        }
    }
}

/// Adds the size of a value with its content to `size`; stops once `size` exceeds [`MAX_ALLOCATED_BYTES`].
fn add_value_size(value: &Value, size: &mut usize) {
    *size = size.saturating_add(ITEM);
    if *size > MAX_ALLOCATED_BYTES {
        return;
    }
    match value {
        Value::Str(text) => *size = size.saturating_add(text.len()),
        Value::List(items) | Value::Texts(items) => items.iter().for_each(|item| add_value_size(item, size)),
        Value::Dict(entries) => entries.iter().for_each(|(key, item)| {
            *size = size.saturating_add(key.len());
            add_value_size(item, size);
        }),
        Value::Answers(answers) => *size = size.saturating_add(answers.len()),
        _ => {}
    }
}

/// Sets the value of a variable; does nothing if the frame has no such slot.
pub(crate) fn set(frame: &mut Frame, slot: VariableSlot, value: Value) {
    if let Some(variable) = frame.get_mut(slot) {
        *variable = value;
    }
}
