//! Defines the compiled form of an expression, [`CompiledExpr`], with the types of its parts, such as blocks and
//! patterns for arguments. The compiler creates the expressions, and the evaluator evaluates them.

use std::sync::Arc;

use super::super::pattern::PatternId;
use super::super::regex::{MatchExtent, Pattern};
use super::super::syntax::{Arithmetic, Comparison};
use super::{FunctionId, QueryItem, SearchOp, Type, Variable, VariableSlot};
use crate::value::Value;

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum CompiledExpr {
    Constant(Value),
    Slot(VariableSlot),
    Member(Box<Self>, Arc<str>),
    Index(Box<Self>, Box<Self>),
    Slice(Box<Self>, Option<Box<Self>>, Option<Box<Self>>),
    List(Vec<Self>),
    Dict(Vec<(Arc<str>, Self)>),
    Call(FunctionId, Vec<Self>),
    /// `match(r"...", text)`, `find` or `fullmatch`, with a compiled pattern.
    Regex(RegexUse, Box<Pattern>, Box<Self>),
    /// `match`, `find` or `fullmatch` with a computed pattern: the pattern and the text.
    ComputedRegex(RegexUse, Box<[Self; 2]>),
    /// `input.NAME`
    Parameter(Arc<str>),
    /// `input`
    Parameters,
    /// `f"..."`
    Format(Vec<Self>),
    /// All parts of a type in an event.
    Parts(Box<Self>, Type),
    /// Whether a message proposes a call, `(call: ToolCall) in message.tool_calls`: the call and the message.
    Proposes(Box<[Self; 2]>),
    /// `isinstance(x, T)`
    IsInstance(Box<Self>, Vec<Type>),
    /// A method in the dialect of invariant-ai: only texts and maps have methods.
    CompatMethod(Box<Self>, Arc<str>, Vec<Self>),
    Quantified(Arc<QuantifiedBlock>),
    /// A call of a predicate of the policy, by its index in the plan.
    Predicate(usize, Vec<Self>),
    /// A call of an extern predicate, by its index in the plan.
    Extern(usize, Vec<Self>),
    Not(Box<Self>),
    Negate(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Arithmetic(Arithmetic, Box<Self>, Box<Self>),
    Compare(Comparison, Box<Self>, Box<Self>),
    /// `event is tool:PATTERN(SHAPE)`: whether the event is about a tool that the pattern matches, and its arguments
    /// have the shape.
    IsTool(Box<Self>, PatternId, Option<ArgumentShape>),
    /// Whether trusted text that the agent has seen lists the value; in conditions of `endorse` and `consent` only.
    Listed(Box<Self>, ListSource, ListedForm),
    /// `value if condition else other`, in the order of evaluation: the condition, the value and the other value.
    Choice(Box<[Self; 3]>),
    Comprehension {
        slot: VariableSlot,
        list: Box<Self>,
        condition: Option<Box<Self>>,
        value: Box<Self>,
    },
}

/// A block of conditions, and the required number of assignments that satisfy it.
#[derive(Debug, Clone)]
pub(crate) struct QuantifiedBlock {
    pub(crate) how: QuantifierKind,
    pub(crate) variables: Vec<Variable>,
    pub(crate) items: Vec<QueryItem>,
    /// The operations once the variables that it shares with the rule are bound.
    pub(crate) ops: Vec<SearchOp>,
    /// The slots that must be bound before the block is evaluated, as bits.
    pub(crate) needs: u64,
}

/// How many assignments must satisfy a block.
#[derive(Debug, Clone)]
pub(crate) enum QuantifierKind {
    /// Every assignment satisfies the block, and there is at least one. With `or_none` (the dialect of invariant-ai)
    /// there may be none.
    ForAll {
        or_none: bool,
    },
    /// Some assignment does not satisfy the block.
    NotForAll,
    Count {
        min: Option<CompiledExpr>,
        max: Option<CompiledExpr>,
    },
}

/// How a condition applies a pattern to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegexUse {
    /// From the start of the text.
    Match,
    /// Anywhere in the text; the result is the list of matches.
    Find,
    /// The whole text. At most 2^`bits` different texts match; `None` if there is no bound.
    FullMatch { bits: Option<u32> },
}

impl RegexUse {
    /// Returns the part of the text that a pattern must match for this use.
    pub(crate) fn extent(self) -> MatchExtent {
        match self {
            Self::Match => MatchExtent::Start,
            Self::Find => MatchExtent::Anywhere,
            Self::FullMatch { .. } => MatchExtent::Whole,
        }
    }
}

/// The required form of the arguments of a call.
#[derive(Debug, Clone)]
pub(crate) enum ArgumentShape {
    Anything,
    /// Every key must be present and match; further keys are allowed.
    Dict(Vec<(Arc<str>, Self)>),
    /// A list of the same length, with each item matching.
    List(Vec<Self>),
    /// A text that equals this text, or that the regular expression matches as a whole.
    Text(Arc<str>, Option<Box<Pattern>>),
    Equal(Value),
    /// A kind of text, such as an e-mail address.
    Kind(FunctionId),
    /// A text in which a detector finds a kind of personal data, or `MODERATED`.
    Finds(Arc<str>),
    /// A value that equals a computed one.
    Computed(Box<CompiledExpr>),
}

/// The trusted text that lists values: `tool:NAME`, `tool:NAME({...})` or `Message`.
#[derive(Debug, Clone)]
pub(crate) enum ListSource {
    /// The answers of the tools that the pattern matches.
    Answers(PatternId),
    /// The answers of these tools to calls whose arguments equal these arguments of the judged call, or constants.
    MatchingAnswers(PatternId, Vec<(Arc<str>, CompiledExpr)>),
    /// All messages except the model's.
    Messages,
}

/// How a value is compared with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListedForm {
    /// The value is a whole text or integer of the list: `VALUE in tool:NAME`.
    Whole,
    /// The value is a URL on a host that a text of the list names: `is_url_on(VALUE, ...)`.
    Host,
    /// The value is a URL on the registrable domain of such a host: `is_url_on_domain(VALUE, ...)`.
    RegistrableDomain,
}

impl CompiledExpr {
    /// Splits a path of keys from a variable, such as `call.arguments.to`, into the slot of the variable and the keys.
    /// `None` if the expression is not such a path.
    pub(crate) fn variable_path(&self) -> Option<(usize, Vec<&str>)> {
        match self {
            Self::Slot(slot) => Some((*slot, Vec::new())),
            Self::Member(object, key) => {
                let (slot, mut keys) = object.variable_path()?;
                keys.push(key);
                Some((slot, keys))
            }
            _ => None,
        }
    }

    /// Returns the direct subexpressions. Those of a block such as `forall:` are its bounds, the lists of its variables
    /// and its conditions. The body of a predicate that the expression calls is not among them.
    fn children(&self) -> Vec<&Self> {
        match self {
            Self::Constant(_) | Self::Slot(_) | Self::Parameter(_) | Self::Parameters => vec![],
            Self::Member(a, _) | Self::Not(a) | Self::Negate(a) | Self::Regex(_, _, a) => vec![a],
            Self::Parts(a, _) | Self::IsInstance(a, _) => vec![a],
            Self::Listed(a, source, _) => {
                let mut children = vec![&**a];
                if let ListSource::MatchingAnswers(_, arguments) = source {
                    children.extend(arguments.iter().map(|(_, value)| value));
                }
                children
            }
            Self::IsTool(a, _, shape) => {
                let mut children = vec![&**a];
                shape.iter().for_each(|shape| shape.expressions(&mut children));
                children
            }
            Self::Index(a, b) | Self::Arithmetic(_, a, b) | Self::Compare(_, a, b) => vec![a, b],
            Self::ComputedRegex(_, pair) | Self::Proposes(pair) => pair.iter().collect(),
            Self::Slice(a, b, c) => {
                [Some(a), b.as_ref(), c.as_ref()].into_iter().flatten().map(|ex| &**ex).collect()
            }
            Self::List(items)
            | Self::Call(_, items)
            | Self::Predicate(_, items)
            | Self::Extern(_, items)
            | Self::And(items)
            | Self::Or(items)
            | Self::Format(items) => items.iter().collect(),
            Self::CompatMethod(object, _, arguments) => std::iter::once(&**object).chain(arguments).collect(),
            Self::Dict(entries) => entries.iter().map(|(_, ex)| ex).collect(),
            Self::Choice(parts) => parts.iter().collect(),
            Self::Comprehension { list, condition, value, .. } => {
                [Some(list), condition.as_ref(), Some(value)].into_iter().flatten().map(|ex| &**ex).collect()
            }
            Self::Quantified(block) => {
                let bounds = match &block.how {
                    QuantifierKind::ForAll { .. } | QuantifierKind::NotForAll => [None, None],
                    QuantifierKind::Count { min, max } => [min.as_ref(), max.as_ref()],
                };
                let domains = block.variables.iter().filter_map(|variable| variable.domain.as_ref());
                bounds
                    .into_iter()
                    .flatten()
                    .chain(domains)
                    .chain(block.items.iter().map(QueryItem::expression))
                    .collect()
            }
        }
    }

    /// Visits an expression and all its subexpressions.
    pub(crate) fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        self.children().into_iter().for_each(|child| child.walk(visit));
    }

    /// Returns whether the expression may read the calls that a message proposes, which come after the message in the
    /// trace.
    pub(crate) fn may_read_calls(&self) -> bool {
        match self {
            Self::Member(_, name) => **name == *"tool_calls",
            // A computed key may be `tool_calls`; an integer is an index and no key.
            Self::Index(_, key) => !matches!(&**key, Self::Constant(Value::Int(_)) | Self::Negate(_)),
            _ => false,
        }
    }

    /// Returns the set of variables that must be bound before this expression can be evaluated: bit n represents the
    /// variable with slot n, which is below [`MAX_SLOTS`].
    pub(crate) fn required_slots(&self) -> u64 {
        match self {
            Self::Slot(slot) => 1_u64.checked_shl(u32::try_from(*slot).unwrap_or(u32::MAX)).unwrap_or(0),
            // The block binds its own variables; `needs` are the others that it uses.
            Self::Quantified(block) => block.needs,
            // The comprehension itself binds its variable `slot`, but only after it has evaluated `list`.
            Self::Comprehension { slot, list, condition, value } => {
                let inner = value.required_slots() | condition.as_ref().map_or(0, |e| e.required_slots());
                list.required_slots() | (inner & !Self::Slot(*slot).required_slots())
            }
            _ => self.children().into_iter().fold(0, |needs, child| needs | child.required_slots()),
        }
    }
}

impl ArgumentShape {
    /// Adds to `found` the expressions in the shape that are computed from other values of the statement, such
    /// as `call.arguments.to`. The other parts of a shape are constants.
    pub(super) fn expressions<'s>(&'s self, found: &mut Vec<&'s CompiledExpr>) {
        match self {
            Self::Dict(entries) => entries.iter().for_each(|(_, shape)| shape.expressions(found)),
            Self::List(shapes) => shapes.iter().for_each(|shape| shape.expressions(found)),
            Self::Computed(ex) => found.push(ex),
            Self::Anything | Self::Text(..) | Self::Equal(_) | Self::Kind(_) | Self::Finds(_) => {}
        }
    }
}
