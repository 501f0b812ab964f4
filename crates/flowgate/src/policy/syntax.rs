//! Defines the syntax tree, [`PolicyFile`]: the statements of a policy and their expressions ([`Expr`]) as written,
//! with all source locations. The parser creates the tree; the compiler and the checks of names (`occurrence`,
//! `tool_schemas`) read it.

use super::diagnostic::Span;
use super::exact_amount::ExactAmount;
use super::grant_scope::GrantClause;

/// A policy as written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PolicyFile {
    pub(crate) statements: Vec<Statement>,
}

/// A name with its location.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// The arguments of a call on which a region of its answer does not depend, as a `label` statement declares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Independence {
    /// The statement declares none.
    Undeclared,
    /// `independent of arguments`
    OfAll,
    /// `independent of arguments.otp, arguments["pin code"]`
    OfNamed(Vec<Name>),
}

/// One statement. `span` covers its first line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

/// The kind of a statement, with its parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StatementKind {
    /// `lattice integrity: trusted < untrusted`
    Lattice { name: Name, purpose: Option<Name>, order: DimensionOrder },
    /// `store payments: written by send_money, read by get_*`
    Store { name: Name, written: Vec<Expr>, read: Vec<Expr> },
    /// `default trusted, public`
    Default { label: Vec<Expr> },
    /// `label TARGET as LABEL [independent of arguments] if: ...`
    Label { target: Expr, label: Vec<Expr>, independence: Independence, body: ConditionBody },
    /// `require LABEL [for TARGET] [decided by everything] [grant SCOPE [by class]] [else deny] if: ...`
    Require {
        label: Vec<Expr>,
        target: Option<Expr>,
        is_strict: bool,
        grant: GrantClause,
        denies: bool,
        body: ConditionBody,
    },
    /// `payload TARGET if: ...`
    Payload { target: Expr, body: ConditionBody },
    /// `consent LABEL for TARGET [up to N calls] [up to N of AMOUNT] if: ...`
    Consent { label: Vec<Expr>, target: Expr, limits: Vec<ConsentLimit>, body: ConditionBody },
    /// `[unsafe] endorse TARGET as LABEL if: ...`
    Endorse { is_unsafe: bool, target: Expr, label: Vec<Expr>, body: ConditionBody },
    /// `role TARGET is ROLE if: ...`
    Role { target: Expr, role: Name, body: ConditionBody },
    /// `raise | ask | log MESSAGE [grant SCOPE [by class]] if: ...`
    Rule { action: Action, message: Expr, grant: GrantClause, body: ConditionBody },
    /// `NAME := VALUE`
    Constant { name: Name, value: Expr },
    /// `NAME(PARAMETERS) := ...`
    Predicate { name: Name, parameters: Vec<(Name, Option<Name>)>, body: ConditionBody },
    /// `extern NAME(PARAMETERS) -> TYPE`
    Extern { name: Name, parameters: Vec<(Name, Name)>, result: Name },
    /// `import a.b as c`, or `from a.b import c as d, e`
    Import { module: Name, alias: Option<Name>, names: Option<Vec<(Name, Option<Name>)>> },
    /// `import "PATH"`: the statements of another file.
    ImportFile { path: String },
}

/// A limit of a consent: how many calls it covers, or up to which sum of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsentLimit {
    pub(crate) most: ExactAmount,
    /// The argument that is summed; `None` for a number of calls.
    pub(crate) amount: Option<Expr>,
}

/// The action of a rule when it matches.
///
/// It is exhaustive on purpose: a program that acts on it must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Records the match.
    Log,
    /// Asks a person.
    Ask,
    /// Denies the event.
    Deny,
}

/// The order of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DimensionOrder {
    /// `a < b < c, a < d`: a list of chains, in each of which every element is below the next.
    Edges(Vec<Vec<Name>>),
    /// `set of a, b` or, for an open universe, `set`.
    Set(Option<Vec<Name>>),
    /// `readers`
    Readers,
    /// `approvers`
    Approvers,
    /// `time`
    Time,
}

impl DimensionOrder {
    /// Returns the kind of the order and the names in it, without locations, so that the `lattice` statements of two
    /// files can be compared.
    pub(crate) fn names(&self) -> (&'static str, Vec<Vec<&str>>) {
        /// Returns the texts of names, without their locations.
        fn texts(names: &[Name]) -> Vec<&str> {
            names.iter().map(|name| name.text.as_str()).collect()
        }
        match self {
            Self::Edges(chains) => ("edges", chains.iter().map(|chain| texts(chain)).collect()),
            Self::Set(names) => ("set", names.iter().map(|names| texts(names)).collect()),
            Self::Readers => ("readers", Vec::new()),
            Self::Approvers => ("approvers", Vec::new()),
            Self::Time => ("time", Vec::new()),
        }
    }
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ConditionBody {
    pub(crate) lines: Vec<BodyLine>,
}

/// One line of a body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BodyLine {
    Condition(Expr),
    /// `NAME := VALUE`
    Let(Name, Expr),
}

impl BodyLine {
    /// Returns the condition, or the value that is given a name.
    pub(crate) fn expr(&self) -> &Expr {
        match self {
            Self::Condition(expr) | Self::Let(_, expr) => expr,
        }
    }
}

impl Expr {
    /// Returns the direct subexpressions; none for a literal or a name.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &*self.kind {
            ExprKind::Missing
            | ExprKind::None
            | ExprKind::Bool(_)
            | ExprKind::Int(_)
            | ExprKind::Float(_) => vec![],
            ExprKind::Str(_) | ExprKind::Name(_) | ExprKind::Typed(..) => vec![],
            ExprKind::Anything | ExprKind::Matcher(_) => vec![],
            ExprKind::Format(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    FormatPart::Text(_) => None,
                    FormatPart::Value(expr) => Some(expr),
                })
                .collect(),
            ExprKind::List(items) | ExprKind::And(items) | ExprKind::Or(items) => items.iter().collect(),
            ExprKind::Dict(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            ExprKind::Member(a, _) | ExprKind::Each(a) | ExprKind::Not(a) | ExprKind::Negate(a) => vec![a],
            ExprKind::Index(a, b) | ExprKind::Arithmetic(_, a, b) => vec![a, b],
            ExprKind::Slice(a, b, c) => [Some(a), b.as_ref(), c.as_ref()].into_iter().flatten().collect(),
            ExprKind::Call(f, arguments, named) => {
                std::iter::once(f).chain(arguments).chain(named.iter().map(|(_, e)| e)).collect()
            }
            ExprKind::Compare(first, rest) => {
                std::iter::once(first).chain(rest.iter().map(|(_, e)| e)).collect()
            }
            ExprKind::Choice { value, condition, other } => vec![value, condition, other],
            ExprKind::Comprehension { value, list, condition, .. } => {
                [Some(value), Some(list), condition.as_ref()].into_iter().flatten().collect()
            }
            ExprKind::Tool(tool) => tool.arguments.iter().collect(),
            ExprKind::Quantified(quantifier, body) => {
                let bounds = match quantifier {
                    Quantifier::ForAll => [None, None],
                    Quantifier::Count { min, max } => [min.as_ref(), max.as_ref()],
                };
                bounds.into_iter().flatten().chain(body.lines.iter().map(BodyLine::expr)).collect()
            }
        }
    }

    /// Visits an expression and all its subexpressions.
    pub(crate) fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        self.children().into_iter().for_each(|child| child.walk(visit));
    }
}

/// An expression with its location.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) kind: Box<ExprKind>,
    pub(crate) span: Span,
    /// The height of the expression's tree; the parser bounds it, so that a recursive walk cannot exhaust the stack.
    pub(crate) height: usize,
    /// Whether the expression is enclosed in parentheses.
    pub(crate) is_grouped: bool,
}

/// The kind of an expression, with its parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprKind {
    /// A placeholder that no parsed policy contains: an `and` or `or` without operands, which the parser never builds.
    Missing,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    /// `f"...{x}..."`
    Format(Vec<FormatPart>),
    Name(String),
    /// `x: T`, usually in parentheses.
    Typed(Name, Name),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Member(Expr, Name),
    /// `a[b]`
    Index(Expr, Expr),
    /// `a[*]`, only in paths.
    Each(Expr),
    /// `a[b:c]`
    Slice(Expr, Option<Expr>, Option<Expr>),
    /// `f(a, NAME=b)`: what is called, the arguments by position, and those by name.
    Call(Expr, Vec<Expr>, Vec<(Name, Expr)>),
    Not(Expr),
    Negate(Expr),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Arithmetic(Arithmetic, Expr, Expr),
    /// `a < b <= c`: each operator connects two neighbours.
    Compare(Expr, Vec<(Comparison, Expr)>),
    /// `value if condition else other`
    Choice {
        value: Expr,
        condition: Expr,
        other: Expr,
    },
    /// `[value for name in list if condition]`
    Comprehension {
        value: Expr,
        name: Name,
        list: Expr,
        condition: Option<Expr>,
    },
    /// `tool:server/name({...})`
    Tool(ToolRef),
    /// `forall:` or `count(min=1, max=2):` with the conditions below it.
    Quantified(Quantifier, ConditionBody),
    /// `*` in the arguments of a tool pattern.
    Anything,
    /// `<EMAIL_ADDRESS>`
    Matcher(String),
}

/// A part of an f-string.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FormatPart {
    Text(String),
    Value(Expr),
}

/// The required number of assignments of a block's variables that satisfy it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Quantifier {
    /// All of them.
    ForAll,
    /// At least `min` and at most `max` assignments.
    Count { min: Option<Expr>, max: Option<Expr> },
}

/// A pattern for tools.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolRef {
    /// The text after `tool:`.
    pub(crate) name: ToolName,
    pub(crate) arguments: Option<Expr>,
}

/// The name in a pattern for tools, by the notation in which it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolName {
    /// A name or `server/name`, in which `*` matches any characters.
    Glob(String),
    /// A quoted name.
    Exact(String),
    /// A regular expression for the whole name.
    Regex(String),
}

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
}

/// An operator between two operands of a comparison, which also includes the flow operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
    /// `a contains_only b`: all of `a` is in `b`.
    ContainsOnly,
    Is,
    IsNot,
    /// `->`
    Before,
    /// `~>`
    RightBefore,
    /// `=>`
    Influences,
}

impl Comparison {
    /// Returns the spelling of the operator in a policy.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::In => "in",
            Self::NotIn => "not in",
            Self::ContainsOnly => "contains_only",
            Self::Is => "is",
            Self::IsNot => "is not",
            Self::Before => "->",
            Self::RightBefore => "~>",
            Self::Influences => "=>",
        }
    }
}

impl Statement {
    /// Visits the expressions of the statement, with their subexpressions. The label of a `default` statement is not
    /// visited, since it names only fixed elements of dimensions.
    pub(crate) fn walk(&self, visit: &mut impl FnMut(&Expr)) {
        let walk_body = |body: &ConditionBody, visit: &mut dyn FnMut(&Expr)| {
            body.lines.iter().for_each(|line| line.expr().walk(&mut |expr| visit(expr)));
        };
        match &self.kind {
            StatementKind::Label { target, label, body, .. }
            | StatementKind::Endorse { target, label, body, .. } => {
                target.walk(visit);
                label.iter().for_each(|expr| expr.walk(visit));
                walk_body(body, visit);
            }
            StatementKind::Consent { label, target, limits, body } => {
                target.walk(visit);
                limits.iter().filter_map(|limit| limit.amount.as_ref()).for_each(|expr| expr.walk(visit));
                label.iter().for_each(|expr| expr.walk(visit));
                walk_body(body, visit);
            }
            StatementKind::Require { label, target, body, .. } => {
                target.iter().for_each(|expr| expr.walk(visit));
                label.iter().for_each(|expr| expr.walk(visit));
                walk_body(body, visit);
            }
            StatementKind::Payload { target, body } | StatementKind::Role { target, body, .. } => {
                target.walk(visit);
                walk_body(body, visit);
            }
            StatementKind::Rule { message, body, .. } => {
                message.walk(visit);
                walk_body(body, visit);
            }
            StatementKind::Predicate { body, .. } => walk_body(body, visit),
            StatementKind::Store { written, read, .. } => {
                written.iter().chain(read).for_each(|expr| expr.walk(visit));
            }
            StatementKind::Constant { value, .. } => value.walk(visit),
            StatementKind::Lattice { .. }
            | StatementKind::Default { .. }
            | StatementKind::Extern { .. }
            | StatementKind::Import { .. }
            | StatementKind::ImportFile { .. } => {}
        }
    }
}
