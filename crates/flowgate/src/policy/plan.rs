//! Defines the compiled form of a policy, the [`Plan`]. In it, names of variables are replaced by numbers (*slots*),
//! names of functions by rows of the table of functions, and patterns are compiled. The compiler creates the plan; the
//! monitor and the rules evaluate it.
//!
//! `expression` and `types` define the expressions and their types. The other submodules compute parts of the plan:
//! `order` the steps of a search, `dispatch` the rules that a new event can concern, and `exemption` the patterns by
//! which rules exempt tools.

mod dispatch;
mod exemption;
mod expression;
mod order;
mod types;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ::regex::Regex;
use serde_json::Value as Json;

use super::argument_role::ArgumentRole;
use super::diagnostic::Span;
use super::dialect::Dialect;
use super::exact_amount::ExactAmount;
use super::grant_scope::GrantClause;
use super::pattern::{PatternId, ToolPattern};
use super::syntax::Action;
pub(crate) use dispatch::Dispatch;
pub(crate) use expression::{
    ArgumentShape, CompiledExpr, ListSource, ListedForm, QuantifiedBlock, QuantifierKind, RegexUse,
};
pub(crate) use order::{order_conditions, single_variable_conditions};
pub(crate) use types::Type;

use crate::label::{ComputedLabelUse, DimensionSet, Label, NameTable, PartialLabel, Space};
use crate::trace::ArgumentSet;
use crate::value::Value;

/// The number of a variable in its query.
pub(crate) type VariableSlot = usize;

/// A built-in function that policies can call, identified by its position in the table of functions.
#[derive(Clone, Copy)]
pub(crate) struct FunctionId {
    pub(crate) name: &'static str,
    /// The index of the family of functions that it belongs to, such as the functions on texts.
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
    /// The names of the parameters that the policy reads, as `input.NAME`.
    pub(crate) parameters: BTreeSet<String>,
    /// The label of regions that no statement labels; `None` is top.
    pub(crate) default: Option<Label>,
    pub(crate) labels: Vec<LabelStatement>,
    /// The names of arguments in `independent of arguments.NAME`, by their numbers in [`ArgumentSet`].
    pub(crate) independent_arguments: Vec<String>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) consents: Vec<Consent>,
    pub(crate) endorsements: Vec<Endorsement>,
    pub(crate) roles: Vec<DeclaredRole>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) dispatch: Dispatch,
    /// The total size of the policy's patterns, as measured by `regex::weight`.
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
    /// The arguments of the call on which the region does not depend: it carries the label of the decision and of the
    /// other arguments.
    pub(crate) independent_of: ArgumentSet,
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
    /// The terms on which a person may approve a call that exceeds the requirement.
    pub(crate) grant: GrantClause,
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

/// An `endorse` statement: raises the integrity of an argument whose value satisfies its query, that is, lowers the
/// argument's label in the dimensions of integrity.
#[derive(Debug)]
pub(crate) struct Endorsement {
    pub(crate) span: Span,
    pub(crate) target: TargetPath,
    pub(crate) label: LabelPlan,
    pub(crate) value: EndorsedValue,
    /// The name of the argument and the class of its values in words, if a grant `by class` may cover all values of the
    /// class.
    pub(crate) class: Option<(String, String)>,
    pub(crate) query: CompiledQuery,
}

/// A rule: denies, asks or logs for each assignment of its variables that satisfies its query.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) span: Span,
    pub(crate) action: Action,
    /// The terms on which a person may approve a call that the rule matches.
    pub(crate) grant: GrantClause,
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
    /// The variables and definitions whose values identify a match in an analysis, in alphabetical order of their
    /// names.
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

/// An extern predicate: one that a service, a WebAssembly module or the embedding program answers.
#[derive(Debug)]
pub(crate) struct ExternPredicate {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, Type)>,
    pub(crate) result: Type,
}

/// A predicate that the policy defines. It holds for arguments with which some assignment of its other variables
/// satisfies its query.
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
    /// The number of values that one evaluation stores: one for each variable and definition, including those of
    /// blocks.
    pub(crate) slots: usize,
    /// The operations once the event in slot 0 is bound; rules have a list for each variable instead.
    pub(crate) ops: Vec<SearchOp>,
    /// Patterns that the event in slot 0 must match.
    pub(crate) tools: Vec<PatternId>,
    /// Every pattern that the conditions test, including those in predicates.
    pub(crate) patterns: Vec<PatternId>,
    /// Whether all variables over lists lead to the region that the statement labels. The iteration over the items of
    /// such a list then does not count as a read of the list.
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
    /// The captured part of the text at the path: the pattern, and the name of the group that the part is.
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
    /// The join of its fixed elements; `None` if all are computed.
    pub(crate) fixed: Option<PartialLabel>,
    /// Dimensions whose element is computed from values.
    pub(crate) computed: Vec<(String, Vec<CompiledExpr>)>,
    /// All dimensions that the expression names.
    pub(crate) dims: DimensionSet,
    /// Whether the policy writes it as `top`. A requirement of `top` declares that a call is harmless: it requires
    /// nothing, and the tool writes to no store.
    pub(crate) is_top: bool,
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
            // Only the effect on the table matters, which stores the names. The returned label is dropped, so any
            // `ComputedLabelUse` would do.
            let _ =
                name_table.set(&self.space, dimension, &names.collect::<Vec<_>>(), ComputedLabelUse::Data);
        }
    }
}

impl QueryItem {
    /// Returns the condition, or the value that is given a name.
    pub(crate) fn expression(&self) -> &CompiledExpr {
        match self {
            Self::Test(expression) | Self::Let(_, expression) => expression,
        }
    }
}

impl CompiledQuery {
    /// Returns the lists that its variables range over, and its conditions and definitions.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &CompiledExpr> {
        let domains = self.variables.iter().filter_map(|variable| variable.domain.as_ref());
        domains.chain(self.items.iter().map(QueryItem::expression))
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
