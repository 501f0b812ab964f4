//! The syntax tree: what the author wrote, with the place of everything.

use super::diagnostic::Span;

/// A policy as written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct File {
    pub(crate) statements: Vec<Statement>,
}

/// A word with its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// One statement. `span` covers its first line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StatementKind {
    /// `lattice integrity: trusted < untrusted`
    Lattice { name: Name, purpose: Option<Name>, order: Order },
    /// `store payments: written by send_money, read by get_*`
    Store { name: Name, written: Vec<Expr>, read: Vec<Expr> },
    /// `default trusted, public`
    Default { label: Vec<Expr> },
    /// `label TARGET as LABEL if: ...`
    Label { target: Expr, label: Vec<Expr>, body: Body },
    /// `require LABEL [for TARGET] [else deny] if: ...`
    Require { label: Vec<Expr>, target: Option<Expr>, denies: bool, body: Body },
    /// `payload TARGET if: ...`
    Payload { target: Expr, body: Body },
    /// `[unsafe] endorse TARGET as LABEL if: ...`
    Endorse { is_unsafe: bool, target: Expr, label: Vec<Expr>, body: Body },
    /// `raise | ask | log MESSAGE if: ...`
    Rule { action: Action, message: Expr, body: Body },
    /// `NAME := VALUE`
    Constant { name: Name, value: Expr },
    /// `NAME(PARAMETERS) := ...`
    Predicate { name: Name, parameters: Vec<(Name, Option<Name>)>, body: Body },
    /// `import a.b` or `from a.b import c`
    Import { module: Name },
}

/// What a rule does when it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Only record it.
    Log,
    /// Ask a person.
    Ask,
    /// Stop it.
    Deny,
}

/// The order of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    /// `a < b < c, a < d`: each path is a list of names, each below the next.
    Edges(Vec<Vec<Name>>),
    /// `set of a, b` or, for an open universe, `set`.
    Set(Option<Vec<Name>>),
    /// `readers`
    Readers,
    /// `time`
    Time,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Body {
    pub(crate) lines: Vec<BodyLine>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BodyLine {
    Condition(Expr),
    /// `NAME := VALUE`
    Let(Name, Expr),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) kind: Box<ExprKind>,
    pub(crate) span: Span,
    /// How deep the tree is; the parser bounds it, so that walking it cannot exhaust the stack.
    pub(crate) height: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprKind {
    /// Stands where something could not be read.
    Missing,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Name(String),
    /// `(x: T)`, or `(x: T)` without parentheses around a larger expression.
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
    Call(Expr, Vec<Expr>, Vec<(Name, Expr)>),
    Not(Expr),
    Negate(Expr),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Arithmetic(Arithmetic, Expr, Expr),
    /// `a < b <= c`: each operator stands between two neighbours.
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
    /// `*` in the arguments of a tool pattern.
    Anything,
    /// `<EMAIL_ADDRESS>`
    Matcher(String),
}

/// A pattern for tools.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolRef {
    /// What stands after `tool:`.
    pub(crate) name: ToolName,
    pub(crate) arguments: Option<Expr>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolName {
    /// A name or `server/name`, in which `*` stands for any characters.
    Glob(String),
    /// A quoted name.
    Exact(String),
    /// A regular expression for the whole name.
    Regex(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
}

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
