//! A policy made ready to be evaluated: names are resolved to slots, patterns are compiled.

mod exempting;
mod order;

use std::sync::Arc;

use ::regex::Regex;

use super::Dialect;
use super::diagnostic::Span;
use super::pattern::{PatternId, ToolPattern};
use super::regex::{Extent, Pattern};
use super::syntax::{Action, Arithmetic, Comparison};
pub(crate) use order::{alone, order};

use crate::builtin::Builtin;
use crate::eval::Value;
use crate::label::{Bound, Dims, Label, Partial, Roster, Space};
use crate::rules::Dispatch;

/// The variable with this number, in its query.
pub(crate) type Slot = usize;

/// The most variables a query may have.
pub(crate) const MAX_SLOTS: usize = 64;

/// Everything the monitor needs to know of a policy.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) dialect: Dialect,
    pub(crate) space: Space,
    pub(crate) patterns: Vec<ToolPattern>,
    pub(crate) stores: Vec<Store>,
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) externs: Vec<Extern>,
    /// What regions carry that no statement labels; `None` is top.
    pub(crate) default: Option<Label>,
    pub(crate) labels: Vec<LabelStatement>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) consents: Vec<Consent>,
    pub(crate) endorsements: Vec<Endorsement>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) dispatch: Dispatch,
    /// How large its patterns are, as `regex::weight` counts.
    pub(crate) patterns_weight: usize,
}

/// State outside the agent that some tools write and others read.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) written: Vec<PatternId>,
    pub(crate) read: Vec<PatternId>,
}

#[derive(Debug)]
pub(crate) struct LabelStatement {
    pub(crate) span: Span,
    pub(crate) target: Target,
    pub(crate) label: LabelPlan,
    pub(crate) query: Query,
    /// Whether a condition or the label looks at the event's content.
    pub(crate) reads: bool,
    /// Whether it says what it makes of errors; other statements do not speak of a tool's error text.
    pub(crate) mentions_error: bool,
}

#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) span: Span,
    pub(crate) label: LabelPlan,
    /// The argument it speaks of; `None` is the whole call.
    pub(crate) target: Option<Target>,
    /// Whether what exceeds it is stopped instead of asked about.
    pub(crate) denies: bool,
    pub(crate) query: Query,
}

#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) target: Target,
    pub(crate) query: Query,
}

/// Standing consent: an argument may carry so much to the tool, if nothing untrusted had a hand in the call.
#[derive(Debug)]
pub(crate) struct Consent {
    pub(crate) span: Span,
    pub(crate) label: LabelPlan,
    pub(crate) target: Target,
    pub(crate) query: Query,
}

#[derive(Debug)]
pub(crate) struct Endorsement {
    pub(crate) target: Target,
    pub(crate) label: LabelPlan,
    /// How the value is printed before it passes; `None` for what is endorsed as it stands.
    pub(crate) canonical: Option<Builtin>,
    pub(crate) query: Query,
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) span: Span,
    pub(crate) action: Action,
    /// What it says: the arguments of `Violation(...)`, by place and by name.
    pub(crate) args: Vec<Ex>,
    pub(crate) kwargs: Vec<(Arc<str>, Ex)>,
    pub(crate) query: Query,
    /// The variables over events, those of its blocks included.
    pub(crate) events: Vec<EventVariable>,
    /// How many variables over events the rules before it have.
    pub(crate) first_event: usize,
    /// The operations when nothing is bound yet.
    pub(crate) ops: Vec<Op>,
    /// Whether a match, once all its events are there, holds for good: no block counts other events.
    pub(crate) is_settled: bool,
    /// Kinds of events that predicates look at, besides the variables.
    pub(crate) looks_at: Vec<Type>,
    /// The names that keys of matches are made of, in alphabetical order.
    pub(crate) named: Vec<(String, Slot)>,
    /// Patterns by which it may exempt a tool.
    pub(crate) exempting: Vec<PatternId>,
}

/// A variable over events.
#[derive(Debug)]
pub(crate) struct EventVariable {
    pub(crate) slot: Slot,
    pub(crate) ty: Type,
    /// The conditions that speak of it alone.
    pub(crate) alone: Vec<Op>,
    /// The operations that find the others once it is bound; empty within a block.
    pub(crate) anchor: Vec<Op>,
    /// Whether a match can be completed by this variable's event: no condition asks that another one comes later.
    pub(crate) can_be_last: bool,
    /// Whether it is bound by the rule itself and not by one of its blocks.
    pub(crate) is_outer: bool,
    /// Whether all events of its type count, whatever the conditions say: it stands in `forall`.
    pub(crate) is_universal: bool,
    /// Whether the block may count its event in matches of earlier events: no condition asks that it comes before
    /// one of them.
    pub(crate) matters_later: bool,
    /// The variable of which it must be the immediate predecessor.
    pub(crate) right_before: Option<Slot>,
    /// The name of the tool, or the role of the message, that its conditions ask for.
    pub(crate) named: Option<Arc<str>>,
}

/// A predicate that the program answers which runs the policy.
#[derive(Debug)]
pub(crate) struct Extern {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, Type)>,
    pub(crate) result: Type,
}

#[derive(Debug)]
pub(crate) struct Predicate {
    pub(crate) name: String,
    pub(crate) parameters: Vec<String>,
    pub(crate) query: Query,
    pub(crate) ops: Vec<Op>,
}

/// Conditions over variables.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) variables: Vec<Variable>,
    pub(crate) items: Vec<Item>,
    /// How many slots a frame needs.
    pub(crate) slots: usize,
    /// The operations once the event in slot 0 is bound; rules have a list for each variable instead.
    pub(crate) ops: Vec<Op>,
    /// Patterns that the event in slot 0 must match.
    pub(crate) tools: Vec<PatternId>,
    /// Every pattern that its conditions ask about, by way of predicates as well.
    pub(crate) patterns: Vec<PatternId>,
    /// Whether it only goes through the rows that lead to its region.
    pub(crate) is_quiet: bool,
}

/// A typed variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) slot: Slot,
    pub(crate) ty: Type,
    /// What it ranges over; `None` is the events of the trace.
    pub(crate) domain: Option<Ex>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Message,
    ToolCall,
    ToolOutput,
    Tool,
    /// Any event: what the parts of an event are looked for in.
    Event,
    Function,
    ToolParameter,
    TextChunk,
    Image,
    Str,
    Int,
    Float,
    Bool,
    Dict,
    List,
    Any,
}

impl Type {
    pub(crate) const NAMES: [(&'static str, Self); 15] = [
        ("Message", Self::Message),
        ("ToolCall", Self::ToolCall),
        ("ToolOutput", Self::ToolOutput),
        ("Tool", Self::Tool),
        ("Function", Self::Function),
        ("ToolParameter", Self::ToolParameter),
        ("TextChunk", Self::TextChunk),
        ("Image", Self::Image),
        ("str", Self::Str),
        ("int", Self::Int),
        ("float", Self::Float),
        ("bool", Self::Bool),
        ("dict", Self::Dict),
        ("list", Self::List),
        ("any", Self::Any),
    ];

    /// What the language calls it.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, ty)| *ty == self).map_or("event", |(name, _)| name)
    }

    /// Whether values of it can be handed to a program.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Str | Self::Int | Self::Float | Self::Bool | Self::Dict | Self::List | Self::Any)
    }

    pub(crate) fn is_event(self) -> bool {
        matches!(self, Self::Message | Self::ToolCall | Self::ToolOutput | Self::Tool | Self::Event)
    }

    /// The kind of event that things of this type are parts of.
    pub(crate) fn holder(self) -> Self {
        match self {
            Self::Function => Self::ToolCall,
            Self::ToolParameter => Self::Tool,
            _ => Self::Event,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Item {
    Test(Ex),
    Let(Slot, Ex),
}

/// One step of finding the assignments that satisfy a query.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Let a variable over events range over what happened.
    Events(Slot, Type),
    /// Let a variable range over a list or the values of a map.
    Each(Slot, Type, Ex),
    Let(Slot, Ex),
    Test(Ex),
}

/// A region of an event: a variable, the way down from it, and perhaps a part of the text there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) root: Slot,
    pub(crate) steps: Vec<TargetStep>,
    pub(crate) capture: Option<(Regex, String)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TargetStep {
    Key(Arc<str>),
    Index(usize),
    Each,
}

/// A label to be computed.
#[derive(Debug, Default)]
pub(crate) struct LabelPlan {
    pub(crate) fixed: Option<Partial>,
    /// Dimensions whose element is computed from values.
    pub(crate) computed: Vec<(String, Vec<Ex>)>,
    /// All dimensions it speaks of.
    pub(crate) dims: Dims,
    /// Whether it is written `top`: as a requirement, that the tool acts on nothing.
    pub(crate) is_top: bool,
}

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum Ex {
    Constant(Value),
    Slot(Slot),
    Member(Box<Self>, Arc<str>),
    Index(Box<Self>, Box<Self>),
    Slice(Box<Self>, Option<Box<Self>>, Option<Box<Self>>),
    List(Vec<Self>),
    Dict(Vec<(Arc<str>, Self)>),
    Call(Builtin, Vec<Self>),
    /// `match(r"...", text)` and its like, with the pattern compiled.
    Regex(RegexUse, Box<Pattern>, Box<Self>),
    /// The same, with a pattern that is computed.
    ComputedRegex(RegexUse, Box<[Self; 2]>),
    /// `input.NAME`
    Parameter(Arc<str>),
    /// `input`
    Parameters,
    /// `f"..."`
    Format(Vec<Self>),
    /// All parts of a type in an event.
    Parts(Box<Self>, Type),
    /// Whether a message proposes a call: `(call: ToolCall) in message.tool_calls`.
    Proposes(Box<[Self; 2]>),
    /// `isinstance(x, T)`
    IsInstance(Box<Self>, Vec<Type>),
    /// A method as the paper's analyzer has it: a text and a map each have theirs, and nothing else has any.
    CompatMethod(Box<Self>, Arc<str>, Vec<Self>),
    Quantified(Arc<Quantified>),
    Predicate(usize, Vec<Self>),
    Extern(usize, Vec<Self>),
    Not(Box<Self>),
    Negate(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Arithmetic(Arithmetic, Box<Self>, Box<Self>),
    Compare(Comparison, Box<Self>, Box<Self>),
    IsTool(Box<Self>, PatternId, Option<Shape>),
    Choice(Box<[Self; 3]>),
    Comprehension {
        slot: Slot,
        list: Box<Self>,
        condition: Option<Box<Self>>,
        value: Box<Self>,
    },
}

/// A block of conditions, and how many assignments must satisfy it.
#[derive(Debug, Clone)]
pub(crate) struct Quantified {
    pub(crate) how: How,
    pub(crate) variables: Vec<Variable>,
    pub(crate) items: Vec<Item>,
    /// The operations once what it shares with the rule is bound.
    pub(crate) ops: Vec<Op>,
    /// What must be bound before.
    pub(crate) needs: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum How {
    /// Every assignment, and there is one. In the other dialect there may be none.
    ForAll {
        or_none: bool,
    },
    /// Some assignment does not.
    NotForAll,
    Count {
        min: Option<Ex>,
        max: Option<Ex>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegexUse {
    /// From the start of the text.
    Match,
    /// Anywhere; the result is the list of what matched.
    Find,
}

impl RegexUse {
    pub(crate) fn extent(self) -> Extent {
        match self {
            Self::Match => Extent::Start,
            Self::Find => Extent::Anywhere,
        }
    }
}

/// What the arguments of a call must look like.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Anything,
    /// Every key must be there and match; others may be there.
    Dict(Vec<(Arc<str>, Self)>),
    /// As long, each item matching.
    List(Vec<Self>),
    /// Equal to the text, or wholly matched by it as a regular expression.
    Text(Arc<str>, Option<Box<Pattern>>),
    Equal(Value),
    /// A kind of text, such as an e-mail address.
    Kind(Builtin),
    /// What a detector finds: the kind of personal data, or `MODERATED`.
    Finds(Arc<str>),
    /// Equal to a value that is computed.
    Computed(Box<Ex>),
}

impl Plan {
    /// Gives the names that the policy's own labels mention their place in the roster.
    pub(crate) fn intern(&self, roster: &mut Roster) {
        let labels = self.labels.iter().map(|statement| &statement.label);
        let required = self.requirements.iter().map(|statement| &statement.label);
        let consented = self.consents.iter().map(|statement| &statement.label);
        for (dimension, arguments) in
            labels.chain(required).chain(consented).flat_map(|label| &label.computed)
        {
            let names = arguments.iter().filter_map(|ex| match ex {
                Ex::Constant(Value::Str(name)) => Some(name.to_string()),
                _ => None,
            });
            let _ = roster.set(&self.space, dimension, &names.collect::<Vec<_>>(), Bound::Data);
        }
    }
}

impl Ex {
    /// The expressions right below this one, the conditions of blocks included.
    fn children(&self) -> Vec<&Self> {
        match self {
            Self::Constant(_) | Self::Slot(_) | Self::Parameter(_) | Self::Parameters => vec![],
            Self::Member(a, _) | Self::Not(a) | Self::Negate(a) | Self::Regex(_, _, a) => vec![a],
            Self::Parts(a, _) | Self::IsInstance(a, _) => vec![a],
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
                    How::ForAll { .. } | How::NotForAll => [None, None],
                    How::Count { min, max } => [min.as_ref(), max.as_ref()],
                };
                let domains = block.variables.iter().filter_map(|variable| variable.domain.as_ref());
                bounds.into_iter().flatten().chain(domains).chain(block.items.iter().map(Item::ex)).collect()
            }
        }
    }

    /// Visits an expression and everything in it.
    pub(crate) fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        self.children().into_iter().for_each(|child| child.walk(visit));
    }

    /// Whether it may ask a message for the calls that it proposes, which come after it.
    pub(crate) fn may_ask_for_calls(&self) -> bool {
        match self {
            Self::Member(_, name) => **name == *"tool_calls",
            Self::Index(_, key) => !matches!(&**key, Self::Constant(Value::Int(_)) | Self::Negate(_)),
            _ => false,
        }
    }

    /// The slots that must be bound before it can be evaluated.
    pub(crate) fn needs(&self) -> u64 {
        match self {
            Self::Slot(slot) => 1_u64.checked_shl(u32::try_from(*slot).unwrap_or(u32::MAX)).unwrap_or(0),
            Self::Quantified(block) => block.needs,
            Self::Comprehension { slot, list, condition, value } => {
                let inner = value.needs() | condition.as_ref().map_or(0, |e| e.needs());
                list.needs() | (inner & !Self::Slot(*slot).needs())
            }
            _ => self.children().into_iter().fold(0, |needs, child| needs | child.needs()),
        }
    }
}

impl Shape {
    /// The expressions that must be computed to compare with it.
    fn expressions<'s>(&'s self, found: &mut Vec<&'s Ex>) {
        match self {
            Self::Dict(entries) => entries.iter().for_each(|(_, shape)| shape.expressions(found)),
            Self::List(shapes) => shapes.iter().for_each(|shape| shape.expressions(found)),
            Self::Computed(ex) => found.push(ex),
            Self::Anything | Self::Text(..) | Self::Equal(_) | Self::Kind(_) | Self::Finds(_) => {}
        }
    }
}

impl Item {
    /// The condition, or the value that is given a name.
    pub(crate) fn ex(&self) -> &Ex {
        match self {
            Self::Test(ex) | Self::Let(_, ex) => ex,
        }
    }
}

impl Query {
    /// What its variables range over, and its conditions.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Ex> {
        let domains = self.variables.iter().filter_map(|variable| variable.domain.as_ref());
        domains.chain(self.items.iter().map(Item::ex))
    }

    /// The operations once `bound` have a value.
    pub(crate) fn order(&self, bound: u64) -> Vec<Op> {
        order(&self.variables, &self.items, bound)
    }
}
