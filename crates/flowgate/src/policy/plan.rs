//! Defines the compiled form of a policy, the [`Plan`]. In it, names of variables are replaced by numbers (*slots*),
//! names of functions by rows of the table of functions, and patterns are compiled. The compiler creates the plan; the
//! monitor and the rules evaluate it.

mod dispatch;
mod exemption;
mod order;
mod types;

use std::fmt;
use std::sync::Arc;

use ::regex::Regex;
use serde_json::Value as Json;

use super::argument_role::ArgumentRole;
use super::diagnostic::Span;
use super::dialect::Dialect;
use super::exact_amount::ExactAmount;
use super::grant_scope::GrantOffer;
use super::pattern::{PatternId, ToolPattern};
use super::regex::{MatchExtent, Pattern};
use super::syntax::{Action, Arithmetic, Comparison};
pub(crate) use dispatch::Dispatch;
pub(crate) use order::{order_conditions, single_variable_conditions};
pub(crate) use types::Type;

use crate::label::{ComputedLabelUse, DimensionSet, Label, NameTable, PartialLabel, Space};
use crate::value::Value;

/// The number of a variable in its query.
pub(crate) type VariableSlot = usize;

/// A function that policies can call: its position in the table of functions.
#[derive(Clone, Copy)]
pub(crate) struct FunctionId {
    pub(crate) name: &'static str,
    /// The index of its family of functions, such as those of texts.
    pub(crate) family: usize,
    /// The index of its row within the family.
    pub(crate) row: usize,
}

impl fmt::Debug for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the canonical form of a value, if the value has one.
pub(crate) type CanonicalForm = fn(&Json) -> Option<Json>;

/// A kind of values with a canonical form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CanonicalKind {
    pub(crate) form: CanonicalForm,
    /// An upper bound on the information in a canonical form, in bits.
    pub(crate) bits: u32,
}

/// Maximum number of variables of a query.
pub(crate) const MAX_SLOTS: usize = 64;

/// The compiled statements of a policy, as the monitor evaluates them.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) dialect: Dialect,
    pub(crate) space: Space,
    pub(crate) patterns: Vec<ToolPattern>,
    pub(crate) stores: Vec<DeclaredStore>,
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) externs: Vec<ExternPredicate>,
    /// The label of regions that no statement labels; `None` is top.
    pub(crate) default: Option<Label>,
    pub(crate) labels: Vec<LabelStatement>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) consents: Vec<Consent>,
    pub(crate) endorsements: Vec<Endorsement>,
    pub(crate) roles: Vec<DeclaredRole>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) dispatch: Dispatch,
    /// The total size of its patterns, as measured by `regex::weight`.
    pub(crate) patterns_weight: usize,
}

/// The declared role of an argument.
#[derive(Debug)]
pub(crate) struct DeclaredRole {
    /// The patterns that a tool must match.
    pub(crate) tools: Vec<PatternId>,
    /// The path of the argument below `arguments`, such as `to` or `payee.iban`.
    pub(crate) argument: String,
    pub(crate) role: ArgumentRole,
}

/// External state that some tools write and others read.
#[derive(Debug)]
pub(crate) struct DeclaredStore {
    pub(crate) name: String,
    pub(crate) written: Vec<PatternId>,
    pub(crate) read: Vec<PatternId>,
}

/// A `label` statement: grants a label to a region of each event that its query matches.
#[derive(Debug)]
pub(crate) struct LabelStatement {
    pub(crate) span: Span,
    pub(crate) target: TargetPath,
    pub(crate) label: LabelPlan,
    pub(crate) query: CompiledQuery,
    /// Whether a condition or the label reads the content of the event.
    pub(crate) reads: bool,
    /// Whether the statement reads the error flag; other statements do not label a tool's error text.
    pub(crate) mentions_error: bool,
    /// Whether the region depends on no argument of the call: it carries the label of the decision, not of the
    /// arguments.
    pub(crate) is_independent: bool,
}

/// A `require` statement: an upper bound on the label of each call, or argument of a call, that its query matches.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) span: Span,
    pub(crate) label: LabelPlan,
    /// The argument that is restricted; `None` is the whole call.
    pub(crate) target: Option<TargetPath>,
    /// Whether the decision depends on everything that the agent has seen, whatever the influence method says.
    pub(crate) is_strict: bool,
    /// For how long a person's approval of what exceeds the requirement may hold, and for what.
    pub(crate) grant: GrantOffer,
    /// Whether a call that exceeds the requirement is denied instead of confirmed.
    pub(crate) denies: bool,
    pub(crate) query: CompiledQuery,
}

/// A `payload` statement: exempts an argument from the integrity requirement.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) span: Span,
    pub(crate) target: TargetPath,
    pub(crate) query: CompiledQuery,
}

/// A standing consent: the label that an argument may carry to the tool, if nothing untrusted influenced the call.
#[derive(Debug)]
pub(crate) struct Consent {
    pub(crate) span: Span,
    pub(crate) label: LabelPlan,
    pub(crate) target: TargetPath,
    /// The limits on the calls of a session that it covers; empty if there are none.
    pub(crate) limits: Vec<ConsentLimit>,
    pub(crate) query: CompiledQuery,
}

/// A limit of a consent, on all calls of a session to the tools that the consent is about.
#[derive(Debug)]
pub(crate) struct ConsentLimit {
    pub(crate) most: ExactAmount,
    /// The argument whose values are summed; `None` if the calls are counted.
    pub(crate) amount: Option<TargetPath>,
}

/// What the conditions of an endorsement establish about the value.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EndorsedValue {
    /// How the value is normalised before it is passed on; `None` for a value that is endorsed unchanged.
    pub(crate) canonical: Option<CanonicalForm>,
    /// An upper bound on what the author of the value can choose, in bits; `None` if there is none.
    pub(crate) bits: Option<u32>,
}

/// An `endorse` statement: lowers the integrity label of an argument whose value satisfies its query.
#[derive(Debug)]
pub(crate) struct Endorsement {
    pub(crate) span: Span,
    pub(crate) target: TargetPath,
    pub(crate) label: LabelPlan,
    pub(crate) value: EndorsedValue,
    /// The name of the argument and the class of its values in words, if a grant `by class` may leave the argument open.
    pub(crate) class: Option<(String, String)>,
    pub(crate) query: CompiledQuery,
}

/// A rule: denies, asks or logs for each assignment of its variables that satisfies its query.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) span: Span,
    pub(crate) action: Action,
    /// For how long a person's approval of a match may hold, and for what.
    pub(crate) grant: GrantOffer,
    /// Its message: the arguments of `Violation(...)`, by position and by name.
    pub(crate) args: Vec<CompiledExpr>,
    pub(crate) kwargs: Vec<(Arc<str>, CompiledExpr)>,
    pub(crate) query: CompiledQuery,
    /// The variables over events, including those of its blocks.
    pub(crate) events: Vec<EventVariable>,
    /// The number of variables over events of the preceding rules.
    pub(crate) first_event: usize,
    /// The search for matches when no variable is bound.
    pub(crate) ops: Vec<SearchOp>,
    /// Whether a match is final once all its events have happened: the rule has an event variable, no block, and no
    /// condition that reads events of `other_event_kinds`.
    pub(crate) is_settled: bool,
    /// The kinds of events that the rule reads in addition to those that its variables are bound to. These are all
    /// kinds if it calls a predicate that reads the trace, and calls if it reads those that a message proposes.
    pub(crate) other_event_kinds: Vec<Type>,
    /// The names from which the keys of matches are built, in alphabetical order.
    pub(crate) named: Vec<(String, VariableSlot)>,
    /// Patterns by which the rule may exempt a tool.
    pub(crate) exempting: Vec<PatternId>,
}

/// A variable over events.
#[derive(Debug)]
pub(crate) struct EventVariable {
    pub(crate) slot: VariableSlot,
    pub(crate) ty: Type,
    /// The conditions on this variable alone.
    pub(crate) alone: Vec<SearchOp>,
    /// The search that binds the other variables once this one is bound; empty within a block.
    pub(crate) anchor: Vec<SearchOp>,
    /// Whether the event of this variable can complete a match: no condition requires a later event.
    pub(crate) can_be_last: bool,
    /// Whether the rule itself binds the variable, and not one of its blocks.
    pub(crate) is_outer: bool,
    /// Whether all events of its type count, regardless of the conditions: the variable is in `forall`.
    pub(crate) is_universal: bool,
    /// Whether the block may count its event in matches of earlier events: no condition requires it to precede one of
    /// them.
    pub(crate) matters_later: bool,
    /// The variable of which its event must be the immediate predecessor.
    pub(crate) right_before: Option<VariableSlot>,
    /// The tool name or the message role that its conditions require.
    pub(crate) named: Option<Arc<str>>,
}

/// A predicate that the embedding program answers.
#[derive(Debug)]
pub(crate) struct ExternPredicate {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, Type)>,
    pub(crate) result: Type,
}

/// A predicate that the policy defines: holds for arguments with which its query has a satisfying assignment.
#[derive(Debug)]
pub(crate) struct Predicate {
    pub(crate) name: String,
    pub(crate) parameters: Vec<String>,
    pub(crate) query: CompiledQuery,
    pub(crate) ops: Vec<SearchOp>,
}

/// Conditions over variables.
#[derive(Debug, Default)]
pub(crate) struct CompiledQuery {
    pub(crate) variables: Vec<Variable>,
    pub(crate) items: Vec<QueryItem>,
    /// The number of slots of a frame.
    pub(crate) slots: usize,
    /// The operations once the event in slot 0 is bound; rules have a list for each variable instead.
    pub(crate) ops: Vec<SearchOp>,
    /// Patterns that the event in slot 0 must match.
    pub(crate) tools: Vec<PatternId>,
    /// Every pattern that the conditions test, including those in predicates.
    pub(crate) patterns: Vec<PatternId>,
    /// Whether all variables over lists lead to the region that the statement labels. The iteration over the rows then
    /// does not count as a read of the structure around them.
    pub(crate) is_quiet: bool,
}

/// A typed variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) slot: VariableSlot,
    pub(crate) ty: Type,
    /// The values that it ranges over; `None` means the events of the trace.
    pub(crate) domain: Option<CompiledExpr>,
}

/// One line of a query.
#[derive(Debug, Clone)]
pub(crate) enum QueryItem {
    /// A condition.
    Test(CompiledExpr),
    /// A name for a value: `NAME := VALUE`.
    Let(VariableSlot, CompiledExpr),
}

/// One step in the search for assignments that satisfy a query.
#[derive(Debug, Clone)]
pub(crate) enum SearchOp {
    /// Binds a variable over events to each candidate event.
    Events(VariableSlot, Type),
    /// Binds a variable to each item of a list or each value of a map.
    Each(VariableSlot, Type, CompiledExpr),
    Let(VariableSlot, CompiledExpr),
    Test(CompiledExpr),
}

/// A region of an event: a variable, a path from it, and optionally a part of the text there.
#[derive(Debug)]
pub(crate) struct TargetPath {
    pub(crate) root: VariableSlot,
    pub(crate) steps: Vec<TargetStep>,
    /// The pattern and the name of the group that the part of the text is.
    pub(crate) capture: Option<(Regex, String)>,
}

/// One step of a target's path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TargetStep {
    Key(Arc<str>),
    Index(usize),
    /// Every item of a list, or every value of a map: `[*]`.
    Each,
}

/// A label expression.
#[derive(Debug, Default)]
pub(crate) struct LabelPlan {
    pub(crate) fixed: Option<PartialLabel>,
    /// Dimensions whose element is computed from values.
    pub(crate) computed: Vec<(String, Vec<CompiledExpr>)>,
    /// All dimensions that the expression names.
    pub(crate) dims: DimensionSet,
    /// Whether the policy writes it as `top`. A requirement of `top` declares that a call is harmless: it requires
    /// nothing, and the tool writes to no store.
    pub(crate) is_top: bool,
}

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
    /// `match(r"...", text)` or `find`, with a compiled pattern.
    Regex(RegexUse, Box<Pattern>, Box<Self>),
    /// `match` or `find` with a computed pattern.
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
    /// A method in the dialect of invariant-ai: only texts and maps have methods.
    CompatMethod(Box<Self>, Arc<str>, Vec<Self>),
    Quantified(Arc<QuantifiedBlock>),
    Predicate(usize, Vec<Self>),
    Extern(usize, Vec<Self>),
    Not(Box<Self>),
    Negate(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Arithmetic(Arithmetic, Box<Self>, Box<Self>),
    Compare(Comparison, Box<Self>, Box<Self>),
    IsTool(Box<Self>, PatternId, Option<ArgumentShape>),
    /// Whether trusted text that the agent has seen lists the value; in conditions of `endorse` only.
    Listed(Box<Self>, ListSource, ListedForm),
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

impl Plan {
    /// Adds the names that the labels of the policy mention, such as `readers("ann")`, to the name table of a session.
    /// The table has a limited size, so the names of the policy must be in it before names in the data fill it.
    pub(crate) fn intern(&self, name_table: &mut NameTable) {
        let labels = self.labels.iter().map(|statement| &statement.label);
        let required = self.requirements.iter().map(|statement| &statement.label);
        let consented = self.consents.iter().map(|statement| &statement.label);
        for (dimension, arguments) in
            labels.chain(required).chain(consented).flat_map(|label| &label.computed)
        {
            let names = arguments.iter().filter_map(|ex| match ex {
                CompiledExpr::Constant(Value::Str(name)) => Some(name.to_string()),
                _ => None,
            });
            // The call is made for its effect on the table, which remembers the names. The label that it returns is not
            // needed, so any `ComputedLabelUse` would do.
            let _ =
                name_table.set(&self.space, dimension, &names.collect::<Vec<_>>(), ComputedLabelUse::Data);
        }
    }
}

/// The trusted text that lists values: `tool:NAME`, `tool:NAME({...})` or `Message`.
#[derive(Debug, Clone)]
pub(crate) enum ListSource {
    /// The answers of the tools that the pattern matches.
    Answers(PatternId),
    /// The answers to those of their calls whose arguments equal these arguments of the judged call, or constants.
    MatchingAnswers(PatternId, Vec<(Arc<str>, CompiledExpr)>),
    /// All messages except those of the model.
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
    /// Returns the direct subexpressions, including the bounds, lists and conditions of a block such as `forall:`, but
    /// not the body of a predicate that the expression calls.
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
                    .chain(block.items.iter().map(QueryItem::ex))
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
    /// Adds to `found` the expressions in the shape: those that are computed from other values of the statement, such
    /// as `call.arguments.to`. The other parts of a shape are constants.
    fn expressions<'s>(&'s self, found: &mut Vec<&'s CompiledExpr>) {
        match self {
            Self::Dict(entries) => entries.iter().for_each(|(_, shape)| shape.expressions(found)),
            Self::List(shapes) => shapes.iter().for_each(|shape| shape.expressions(found)),
            Self::Computed(ex) => found.push(ex),
            Self::Anything | Self::Text(..) | Self::Equal(_) | Self::Kind(_) | Self::Finds(_) => {}
        }
    }
}

impl QueryItem {
    /// Returns the condition, or the value that is given a name.
    pub(crate) fn ex(&self) -> &CompiledExpr {
        match self {
            Self::Test(ex) | Self::Let(_, ex) => ex,
        }
    }
}

impl CompiledQuery {
    /// Returns the domains of its variables, and its conditions.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &CompiledExpr> {
        let domains = self.variables.iter().filter_map(|variable| variable.domain.as_ref());
        domains.chain(self.items.iter().map(QueryItem::ex))
    }

    /// Returns whether each of its conditions only tests which tool the event is about.
    pub(crate) fn is_about_tool_only(&self) -> bool {
        self.items.iter().all(|item| matches!(item, QueryItem::Test(CompiledExpr::IsTool(_, _, None))))
    }

    /// Returns the steps of a search for satisfying assignments when the slots in `bound` already have a value.
    pub(crate) fn order(&self, bound: u64) -> Vec<SearchOp> {
        order_conditions(&self.variables, &self.items, bound)
    }
}
