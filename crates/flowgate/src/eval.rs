//! Evaluation of conditions and expressions over a trace.
//!
//! Every step costs fuel, so that a policy and a trace together cannot take forever; whoever asks decides
//! what spent fuel means, and it never means yes. The evaluator notes which regions it has looked at: a label
//! that lowers may only look at what is at or below it.

mod expression;
mod value;

use std::fmt;

pub(crate) use value::Value;

use crate::label::Label;
use crate::policy::plan::{Op, Plan, Slot, Type};
use crate::trace::{Body, Content, EventId, NodeId, Status, Trace};

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EvalError {
    /// It took too many steps.
    Fuel,
    /// It does something that its values do not allow.
    Type(String),
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fuel => f.write_str("the step took too long to evaluate"),
            Self::Type(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for EvalError {}

pub(crate) type Result<T> = std::result::Result<T, EvalError>;

/// A piece of an event that a condition has looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) event: EventId,
    pub(crate) node: NodeId,
    /// With everything below it, or only its own scalar or structure.
    pub(crate) deep: bool,
}

/// What a missing value means in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// As in Python, it is `None`: for rules, which then rather match.
    IsNone,
    /// The condition does not hold, whichever way it is put: for statements that grant something.
    FailsAll,
}

/// The variables of a query.
pub(crate) type Frame = Vec<Value>;

/// Where a variable over events may point.
pub(crate) type Candidates<'a> = dyn Fn(Slot) -> Option<Vec<EventId>> + 'a;

/// Called for each assignment that satisfies a query; returns whether to stop.
pub(crate) type OnMatch<'a> = dyn FnMut(&mut Evaluator<'_>, &Frame) -> Result<bool> + 'a;

pub(crate) struct Evaluator<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) trace: &'a Trace,
    pub(crate) fuel: &'a mut u64,
    pub(crate) missing: Missing,
    pub(crate) reads: Vec<Read>,
    /// Whether the query may go through rows without that being noted as looking at the structure around them.
    pub(crate) quiet: bool,
    /// Set while it does.
    is_quiet: bool,
    /// Whether a comparison has failed because a value was missing.
    pub(crate) missed: bool,
    depth: usize,
}

/// How deep predicates may call each other.
const MAX_DEPTH: usize = 32;

impl<'a> Evaluator<'a> {
    pub(crate) fn new(plan: &'a Plan, trace: &'a Trace, fuel: &'a mut u64, missing: Missing) -> Self {
        Self {
            plan,
            trace,
            fuel,
            missing,
            reads: Vec::new(),
            quiet: false,
            is_quiet: false,
            missed: false,
            depth: 0,
        }
    }

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

    /// The join of the labels of all regions looked at so far.
    pub(crate) fn read_label(&self) -> Label {
        let label = |read: &Read| {
            let document = self.trace.event(read.event).map(|event| &event.document);
            document.map_or(Label::BOTTOM, |document| match read.deep {
                true => document.label_of(read.node),
                false => document.node(read.node).map_or(Label::BOTTOM, |node| node.label),
            })
        };
        self.reads.iter().fold(Label::BOTTOM, |joined, read| joined.join(&label(read)))
    }

    /// Finds all assignments that satisfy `ops`, and calls `found` for each until it says to stop.
    pub(crate) fn solve(
        &mut self,
        ops: &[Op],
        frame: &mut Frame,
        candidates: &Candidates<'_>,
        found: &mut OnMatch<'_>,
    ) -> Result<bool> {
        self.spend(1)?;
        let Some((op, rest)) = ops.split_first() else { return found(self, frame) };
        let noted = self.reads.len();
        let result = match op {
            Op::Test(ex) => {
                let holds = self.evaluate(ex, frame)?;
                if self.truth(&holds)? { self.solve(rest, frame, candidates, found) } else { Ok(false) }
            }
            Op::Let(slot, ex) => {
                let value = self.evaluate(ex, frame)?;
                set(frame, *slot, value);
                self.solve(rest, frame, candidates, found)
            }
            Op::Events(slot, ty) => {
                let events =
                    candidates(*slot).unwrap_or_else(|| (0..self.trace.len()).map(EventId).collect());
                self.solve_each(
                    *slot,
                    *ty,
                    events.into_iter().map(Value::Event).collect(),
                    rest,
                    frame,
                    candidates,
                    found,
                )
            }
            Op::Each(slot, ty, domain) => {
                let domain = self.evaluate(domain, frame)?;
                self.is_quiet = self.quiet && self.depth == 0;
                let items = self.items(&domain);
                self.is_quiet = false;
                let items = items?;
                self.solve_each(*slot, *ty, items, rest, frame, candidates, found)
            }
        };
        // A branch that fails grants nothing, so what it looked at is forgotten; but that a predicate does not hold
        // is an answer too, which depends on everything that it looked at.
        if !matches!(result, Ok(true)) && self.depth == 0 {
            self.reads.truncate(noted);
        }
        result
    }

    #[expect(clippy::too_many_arguments, reason = "the state of the search, passed on unchanged")]
    fn solve_each(
        &mut self,
        slot: Slot,
        ty: Type,
        values: Vec<Value>,
        rest: &[Op],
        frame: &mut Frame,
        candidates: &Candidates<'_>,
        found: &mut OnMatch<'_>,
    ) -> Result<bool> {
        for value in values {
            self.spend(1)?;
            if self.has_type(&value, ty) {
                set(frame, slot, value);
                if self.solve(rest, frame, candidates, found)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The items of a list or the values of a map; nothing for what is not there.
    pub(crate) fn items(&mut self, value: &Value) -> Result<Vec<Value>> {
        match value {
            Value::Absent | Value::None => Ok(Vec::new()),
            Value::List(items) => Ok(items.to_vec()),
            Value::Dict(entries) => Ok(entries.iter().map(|(_, value)| value.clone()).collect()),
            Value::Node(event, node) => {
                let Some(document) = self.trace.event(*event).map(|event| &event.document) else {
                    return Ok(Vec::new());
                };
                match document.node(*node).map(|node| &node.content) {
                    Some(Content::List | Content::Map) => {
                        if !self.is_quiet {
                            self.reads.push(Read { event: *event, node: *node, deep: false });
                        }
                        Ok(document.children(*node).map(|child| Value::Node(*event, child)).collect())
                    }
                    // A text or a number where the statement expects rows has none; that is something to know, too.
                    _ => {
                        if !self.is_quiet {
                            self.reads.push(Read { event: *event, node: *node, deep: true });
                        }
                        Ok(Vec::new())
                    }
                }
            }
            other => Err(EvalError::Type(format!("{} has no items", other.type_name()))),
        }
    }

    fn has_type(&self, value: &Value, ty: Type) -> bool {
        match value {
            Value::Event(id) => {
                self.trace.event(*id).filter(|event| event.status != Status::Withdrawn).is_some_and(|event| {
                    match &event.body {
                        Body::Message(_) => matches!(ty, Type::Message | Type::Any),
                        Body::Call(_) => matches!(ty, Type::ToolCall | Type::Any),
                        Body::Output(_) => matches!(ty, Type::ToolOutput | Type::Any),
                    }
                })
            }
            Value::Node(event, node) => {
                let node = self.trace.event(*event).and_then(|event| event.document.node(*node));
                node.is_some_and(|node| match &node.content {
                    Content::List => {
                        matches!(ty, Type::List | Type::Any) || (ty == Type::Str && node.text.is_some())
                    }
                    Content::Map => {
                        matches!(ty, Type::Dict | Type::Any) || (ty == Type::Str && node.text.is_some())
                    }
                    Content::Scalar(value) => self.has_type(&Value::from_json(value), ty),
                })
            }
            Value::Str(_) => matches!(ty, Type::Str | Type::Any),
            Value::Int(_) => matches!(ty, Type::Int | Type::Any),
            Value::Float(_) => matches!(ty, Type::Float | Type::Any),
            Value::Bool(_) => matches!(ty, Type::Bool | Type::Any),
            Value::List(_) => matches!(ty, Type::List | Type::Any),
            Value::Dict(_) => matches!(ty, Type::Dict | Type::Any),
            _ => ty == Type::Any,
        }
    }
}

pub(crate) fn set(frame: &mut Frame, slot: Slot, value: Value) {
    if let Some(place) = frame.get_mut(slot) {
        *place = value;
    }
}
