//! A policy made ready to be evaluated: names are resolved to slots, patterns are compiled.

use std::sync::Arc;

use regex::Regex;

use super::diagnostic::Span;
use super::pattern::{PatternId, ToolPattern};
use super::syntax::{Action, Arithmetic, Comparison};
use crate::builtin::Builtin;
use crate::eval::Value;
use crate::label::{Bound, Dims, Label, Partial, Roster, Space};

/// The variable with this number, in its query.
pub(crate) type Slot = usize;

/// The most variables a query may have.
pub(crate) const MAX_SLOTS: usize = 64;

/// Everything the monitor needs to know of a policy.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) space: Space,
    pub(crate) patterns: Vec<ToolPattern>,
    pub(crate) stores: Vec<Store>,
    pub(crate) predicates: Vec<Predicate>,
    /// What regions carry that no statement labels; `None` is top.
    pub(crate) default: Option<Label>,
    pub(crate) labels: Vec<LabelStatement>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) endorsements: Vec<Endorsement>,
    pub(crate) rules: Vec<Rule>,
}

/// State outside the agent that some tools write and others read.
#[derive(Debug)]
pub(crate) struct Store {
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
    pub(crate) message: Ex,
    pub(crate) query: Query,
    /// For each variable over events, the operations that find the others once it is bound.
    pub(crate) anchors: Vec<(Slot, Vec<Op>)>,
    /// For each variable over events, the conditions that speak of it alone.
    pub(crate) alone: Vec<(Slot, Vec<Op>)>,
    /// Patterns by which it may exempt a tool.
    pub(crate) exempting: Vec<PatternId>,
}

#[derive(Debug)]
pub(crate) struct Predicate {
    pub(crate) name: String,
    pub(crate) parameters: usize,
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
    Str,
    Int,
    Float,
    Bool,
    Dict,
    List,
    Any,
}

impl Type {
    pub(crate) const NAMES: [(&'static str, Self); 10] = [
        ("Message", Self::Message),
        ("ToolCall", Self::ToolCall),
        ("ToolOutput", Self::ToolOutput),
        ("str", Self::Str),
        ("int", Self::Int),
        ("float", Self::Float),
        ("bool", Self::Bool),
        ("dict", Self::Dict),
        ("list", Self::List),
        ("any", Self::Any),
    ];

    pub(crate) fn is_event(self) -> bool {
        matches!(self, Self::Message | Self::ToolCall | Self::ToolOutput)
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

#[derive(Debug, PartialEq)]
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
    Regex(RegexUse, Regex, Box<Self>),
    Predicate(usize, Vec<Self>),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegexUse {
    /// From the start of the text.
    Match,
    /// Anywhere; the result is the list of what matched.
    Find,
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
    Text(Arc<str>, Option<Regex>),
    Equal(Value),
    /// A kind of text, such as an e-mail address.
    Kind(Builtin),
}

impl Plan {
    /// Gives the names that the policy's own labels mention their place in the roster.
    pub(crate) fn intern(&self, roster: &mut Roster) {
        let labels = self.labels.iter().map(|statement| &statement.label);
        let required = self.requirements.iter().map(|statement| &statement.label);
        for (dimension, arguments) in labels.chain(required).flat_map(|label| &label.computed) {
            let names = arguments.iter().filter_map(|ex| match ex {
                Ex::Constant(Value::Str(name)) => Some(name.to_string()),
                _ => None,
            });
            let _ = roster.set(&self.space, dimension, &names.collect::<Vec<_>>(), Bound::Data);
        }
    }

    /// The patterns by which a rule may exempt a tool: those that stand below a `not`.
    pub(crate) fn exempting(&self, items: &[Item]) -> Vec<PatternId> {
        let mut negated = Vec::new();
        for item in items {
            let (Item::Test(ex) | Item::Let(_, ex)) = item;
            ex.walk(&mut |ex| {
                if let Ex::Not(inner) = ex {
                    negated.push(Item::Test((**inner).clone()));
                }
            });
        }
        self.patterns_of(&negated)
    }

    /// Every pattern that a list of conditions asks about, by way of predicates as well.
    pub(crate) fn patterns_of(&self, items: &[Item]) -> Vec<PatternId> {
        let (mut patterns, mut pending) = (Vec::new(), Vec::new());
        let mut seen = vec![false; self.predicates.len()];
        let mut collect = |items: &[Item], pending: &mut Vec<usize>| {
            for item in items {
                let (Item::Test(ex) | Item::Let(_, ex)) = item;
                ex.walk(&mut |ex| match ex {
                    Ex::IsTool(_, pattern, _) => patterns.push(*pattern),
                    Ex::Predicate(index, _) => pending.push(*index),
                    _ => {}
                });
            }
        };
        collect(items, &mut pending);
        while let Some(index) = pending.pop() {
            if let (Some(first @ false), Some(predicate)) = (seen.get_mut(index), self.predicates.get(index))
            {
                *first = true;
                collect(&predicate.query.items, &mut pending);
            }
        }
        patterns
    }
}

impl Ex {
    /// Visits an expression and everything in it.
    pub(crate) fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        match self {
            Self::Constant(_) | Self::Slot(_) => {}
            Self::Member(a, _)
            | Self::Not(a)
            | Self::Negate(a)
            | Self::IsTool(a, ..)
            | Self::Regex(_, _, a) => {
                a.walk(visit);
            }
            Self::Index(a, b) | Self::Arithmetic(_, a, b) | Self::Compare(_, a, b) => {
                a.walk(visit);
                b.walk(visit);
            }
            Self::Slice(a, b, c) => {
                a.walk(visit);
                b.iter().chain(c).for_each(|ex| ex.walk(visit));
            }
            Self::List(items)
            | Self::Call(_, items)
            | Self::Predicate(_, items)
            | Self::And(items)
            | Self::Or(items) => {
                items.iter().for_each(|ex| ex.walk(visit));
            }
            Self::Dict(entries) => entries.iter().for_each(|(_, ex)| ex.walk(visit)),
            Self::Choice(parts) => parts.iter().for_each(|ex| ex.walk(visit)),
            Self::Comprehension { list, condition, value, .. } => {
                list.walk(visit);
                condition.iter().for_each(|ex| ex.walk(visit));
                value.walk(visit);
            }
        }
    }

    /// The slots that must be bound before it can be evaluated.
    pub(crate) fn needs(&self) -> u64 {
        let all = |list: &[Self]| list.iter().fold(0, |needs, ex| needs | ex.needs());
        match self {
            Self::Constant(_) => 0,
            Self::Slot(slot) => 1_u64.checked_shl(u32::try_from(*slot).unwrap_or(u32::MAX)).unwrap_or(0),
            Self::Member(a, _)
            | Self::Not(a)
            | Self::Negate(a)
            | Self::IsTool(a, ..)
            | Self::Regex(_, _, a) => a.needs(),
            Self::Index(a, b) | Self::Arithmetic(_, a, b) | Self::Compare(_, a, b) => a.needs() | b.needs(),
            Self::Slice(a, b, c) => {
                a.needs() | b.as_ref().map_or(0, |e| e.needs()) | c.as_ref().map_or(0, |e| e.needs())
            }
            Self::List(items) | Self::Call(_, items) | Self::Predicate(_, items) => all(items),
            Self::And(items) | Self::Or(items) => all(items),
            Self::Dict(entries) => entries.iter().fold(0, |needs, (_, ex)| needs | ex.needs()),
            Self::Choice(parts) => all(parts.as_slice()),
            Self::Comprehension { slot, list, condition, value } => {
                let inner = value.needs() | condition.as_ref().map_or(0, |e| e.needs());
                list.needs() | (inner & !Self::Slot(*slot).needs())
            }
        }
    }
}

impl Query {
    /// Orders the query: bind what is missing in order of declaration, and test as early as possible.
    ///
    /// `bound` are the slots that have a value already.
    pub(crate) fn order(&self, bound: u64) -> Vec<Op> {
        let mut bound = bound;
        let bit = |slot: Slot| Ex::Slot(slot).needs();
        let mut items: Vec<&Item> = self.items.iter().collect();
        let mut variables: Vec<&Variable> =
            self.variables.iter().filter(|v| bound & bit(v.slot) == 0).collect();
        let mut ops = Vec::new();
        loop {
            let ready = |needs: u64| needs & !bound == 0;
            let item = items.iter().position(|item| match item {
                Item::Test(ex) | Item::Let(_, ex) => ready(ex.needs()),
            });
            if let Some(index) = item {
                match items.remove(index) {
                    Item::Test(ex) => ops.push(Op::Test(ex.clone())),
                    Item::Let(slot, ex) => {
                        bound |= bit(*slot);
                        ops.push(Op::Let(*slot, ex.clone()));
                    }
                }
                continue;
            }
            let next =
                variables.iter().position(|v| v.domain.as_ref().is_none_or(|domain| ready(domain.needs())));
            let Some(index) = next else {
                if !items.is_empty() {
                    // Names are resolved in order, so this cannot be; a lost condition must not hold.
                    ops.push(Op::Test(Ex::Constant(Value::Bool(false))));
                }
                return ops;
            };
            let variable = variables.remove(index);
            bound |= bit(variable.slot);
            ops.push(match &variable.domain {
                Some(domain) => Op::Each(variable.slot, variable.ty, domain.clone()),
                None => Op::Events(variable.slot, variable.ty),
            });
        }
    }

    /// The conditions that speak of one variable alone, and so hold or not once and for all.
    ///
    /// A predicate that looks around in the trace may come to hold later; `looks_around` says which do.
    pub(crate) fn alone(&self, slot: Slot, looks_around: &[bool]) -> Vec<Op> {
        let only = Ex::Slot(slot).needs();
        let is_settled = |ex: &Ex| {
            let mut settled = true;
            ex.walk(&mut |ex| {
                if let Ex::Predicate(index, _) = ex {
                    settled &= looks_around.get(*index) == Some(&false);
                }
            });
            settled
        };
        let tests = self.items.iter().filter_map(|item| match item {
            Item::Test(ex) if ex.needs() == only && is_settled(ex) => Some(Op::Test(ex.clone())),
            _ => None,
        });
        tests.collect()
    }
}
