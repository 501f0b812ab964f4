//! Compiles the target of an `endorse` statement, and checks that the conditions of the statement restrict the value to
//! a harmless set: otherwise an attacker could choose a harmful value that satisfies them. The compiler calls this
//! module for each `endorse` statement. `value_class` also calls [`restriction`], and the compiler of `consent`
//! statements also calls [`Compiler::list_testing_scope`].

use super::super::argument_role::ArgumentRole;
use super::super::diagnostic::Span;
use super::super::plan::{
    CompiledExpr, CompiledQuery, EndorsedValue, FunctionId, ListedForm, QueryItem, RegexUse, TargetPath,
    TargetStep, Type,
};
use super::super::role_guess::decisive_word;
use super::super::syntax::{Comparison, ConditionBody, Expr};
use super::body::Scope;
use super::target::argument_name;
use super::{CompileResult, Compiler};
use crate::builtin::FUNCTIONS;
use crate::monitor::MAX_ENDORSED_ITEMS;
use crate::value::Value;

/// The most bits that a pattern may leave to the author of a value. A longer text could be read as an instruction.
const MAX_PATTERN_BITS: u32 = 64;

/// The bits that an attacker can choose by choosing one value of a list in a tool's answer. The evaluation accepts a
/// list of at most 2^16 values (`MAX_LISTED` in `eval/listed.rs`).
const ANSWERED_BITS: u32 = 16;

/// How a condition restricts a value.
pub(super) enum Restriction {
    /// To values that the policy or a trusted answer lists; the choice of one of them carries this many bits.
    Listed(u32),
    /// To a kind with one spelling for each value, or to a pattern.
    Typed(EndorsedValue),
    /// To the paths in a folder, or the URLs on a host. This suffices only for arguments of the given role.
    Within(ArgumentRole),
}

impl Compiler<'_> {
    /// Compiles the target of `endorse`: an argument of the call, a part of one, or each item of one, as declared by
    /// `(day: str) in call.arguments.days`. Fails for any other expression.
    pub(super) fn endorsed_target(&mut self, expr: &Expr, scope: &Scope) -> CompileResult<TargetPath> {
        let target = self.target(expr, scope)?;
        // A path that begins at the call (slot 0) must be an argument. A capture cannot be endorsed: `argument` reports
        // it as an error.
        if target.root == 0 || target.capture.is_some() {
            return self.argument(expr, scope);
        }
        let domain = self.variable(scope, target.root).and_then(|variable| variable.domain.as_ref());
        let is_argument = domain
            .and_then(CompiledExpr::variable_path)
            .is_some_and(|(root, keys)| root == 0 && keys.len() >= 2 && keys.first() == Some(&"arguments"));
        if is_argument && target.steps.is_empty() {
            return Ok(target);
        }
        let help =
            "write `call.arguments.NAME`, or declare `(item: str) in call.arguments.NAME` and write `item`";
        self.fail(
            "region",
            &expr.span,
            "the expression is neither an argument of the call nor an item of one",
            help,
        )
    }

    /// Checks that the conditions of an `endorse` statement restrict the value to a harmless set. Returns the canonical
    /// form of the values that satisfy the conditions, and a bound on their number. `unsafe endorse` is not checked.
    ///
    /// Which restriction suffices depends on the role of the argument. A check of the form is not enough for one that
    /// names a destination: any address satisfies `is_email`, including an attacker's.
    pub(super) fn check_endorsement(
        &mut self,
        target: &TargetPath,
        expr: &Expr,
        query: &CompiledQuery,
        is_unsafe: bool,
    ) -> CompileResult<EndorsedValue> {
        let restrictions: Vec<Restriction> = query
            .items
            .iter()
            .filter_map(|item| match item {
                QueryItem::Test(test) => restriction(test, target),
                QueryItem::Let(..) => None,
            })
            .collect();
        self.reject_nested_list(&expr.span, query)?;
        // What all restrictions together leave: the canonical form, and the bits that the choice of a value carries.
        let is_listed = restrictions.iter().any(|found| matches!(found, Restriction::Listed(_)));
        let mut endorsed = EndorsedValue::default();
        for restriction in &restrictions {
            let bits = match restriction {
                Restriction::Listed(bits) => Some(*bits),
                Restriction::Typed(value) => {
                    endorsed.canonical = value.canonical.or(endorsed.canonical);
                    value.bits
                }
                Restriction::Within(_) => None,
            };
            // Every condition holds, so the smallest set bounds the value.
            endorsed.bits = [endorsed.bits, bits].into_iter().flatten().min();
        }
        // A listed value is not rewritten: its canonical form may not be in the list.
        if is_listed {
            endorsed.canonical = None;
        }
        if is_unsafe {
            return Ok(endorsed);
        }
        // The roles of the argument decide which restriction suffices. `word` is the word of its name that suggests a
        // role, with this role.
        let name = endorsed_name(target, query);
        let word = decisive_word(&name);
        let roles = self.roles_of(&name, query, |_| word.as_ref().map(|(role, _)| *role));
        let suffices = |restriction: &Restriction| match restriction {
            Restriction::Listed(_) => true,
            Restriction::Typed(_) => !roles.iter().any(|role| role.needs_listed_values()),
            Restriction::Within(fitting) => !roles.is_empty() && roles.iter().all(|role| role == fitting),
        };
        if restrictions.iter().any(suffices) {
            // Each item of a list has a value of its own.
            let items =
                if target.root == 0 { 1 } else { u32::try_from(MAX_ENDORSED_ITEMS).unwrap_or(u32::MAX) };
            // Only a pattern can leave an attacker too much choice; a list or a canonical form does not.
            let bits = endorsed.bits.filter(|_| endorsed.canonical.is_none() && !is_listed);
            let bits = bits.map(|bits| bits.saturating_mul(items)).filter(|bits| *bits > MAX_PATTERN_BITS);
            if let Some(bits) = bits {
                let message = format!(
                    "a value that matches the pattern can carry {bits} bits of an attacker's choice, which is too many"
                );
                let help = format!(
                    "write a pattern that leaves an attacker at most {MAX_PATTERN_BITS} bits of choice, or accept any value by `unsafe endorse`"
                );
                return self.fail("endorse-untyped", &expr.span, message, help);
            }
            return Ok(endorsed);
        }
        // No restriction suffices: the error says what would.
        if let Some(role) = roles.into_iter().find(|role| role.needs_listed_values()) {
            let message = match word.filter(|(known, _)| *known == role) {
                Some((_, word)) => {
                    let named = match role {
                        ArgumentRole::Selector => "an object",
                        ArgumentRole::Credential => "a credential",
                        _ => "a destination or a command",
                    };
                    format!(
                        "`endorse` cannot let untrusted text choose `{name}`, which names {named} (`{word}`)"
                    )
                }
                None => {
                    format!("`endorse` cannot let untrusted text choose `{name}`, which has the role {role}")
                }
            };
            let form = match role {
                ArgumentRole::Path => ", or test it with `is_path_in`",
                ArgumentRole::Url => ", or test it with `is_url_on`",
                _ => "",
            };
            let help = format!(
                "keep the requirement, or list the allowed values with `in [...]` or `in tool:NAME`{form}; `unsafe endorse` accepts any \
                 value at your risk"
            );
            return self.fail("endorse-sensitive", &expr.span, message, help);
        }
        let help = "test this argument itself with `is_date`, `is_datetime`, `is_time`, `is_integer`, \
            `is_decimal`, `is_bool`, `is_yes_no`, `in [...]`, `in tool:NAME` or a bounded `fullmatch`, or write `unsafe endorse`";
        self.fail("endorse-untyped", &expr.span, "no condition limits the argument to harmless values", help)
    }
}

impl Compiler<'_> {
    /// Compiles the conditions of an `endorse` or a `consent`, the only statements whose conditions may test whether
    /// trusted text lists a value (`VALUE in tool:NAME`).
    pub(super) fn list_testing_scope(&mut self, body: &ConditionBody) -> CompileResult<Scope> {
        // The flag is reset before `?`, so that an error does not leave it set for the next statement.
        self.tests_lists = true;
        let scope = self.single_event_scope(body, &[Type::ToolCall], "a ToolCall");
        self.tests_lists = false;
        scope
    }

    /// Fails if a test whether trusted text lists a value is only a part of a condition, such as the operand of a
    /// `not`. `span` is the target of the statement, where the error is reported.
    pub(super) fn reject_nested_list(&mut self, span: &Span, query: &CompiledQuery) -> CompileResult<()> {
        if !query.items.iter().any(contains_nested_list) {
            return Ok(());
        }
        let help = "write the test, such as `VALUE in tool:NAME`, as a condition of its own: negated, it would hold as long as no trusted text lists anything";
        let message = "a test whether trusted text lists a value is only a part of a condition";
        self.fail("tool", span, message, help)
    }
}

/// Returns how a condition of an `endorse` statement restricts the value of its target: by a list, by a kind with a
/// canonical form or a pattern, or to a folder or a host. `None` if the condition tests another value or is of another
/// form: it then does not count as a restriction. Only constants restrict, since an attacker could choose a list, a
/// folder or a host that is computed from a text. Lists in trusted text (`Listed`) are an exception, since the
/// evaluation checks that the text is trusted.
pub(super) fn restriction(test: &CompiledExpr, target: &TargetPath) -> Option<Restriction> {
    // Whether an expression is exactly the path that the statement endorses.
    let is_target = |ex: &CompiledExpr| {
        ex.variable_path().is_some_and(|(root, keys)| {
            let steps = &target.steps;
            let is_key =
                |(key, step): (&&str, &TargetStep)| matches!(step, TargetStep::Key(k) if **k == **key);
            root == target.root && keys.len() == steps.len() && keys.iter().zip(steps).all(is_key)
        })
    };
    match test {
        // A function of the value, such as `is_date(VALUE)` or `is_path_in(VALUE, "FOLDER")`.
        CompiledExpr::Call(function, arguments) if arguments.first().is_some_and(is_target) => {
            restriction_by_function(*function, arguments)
        }
        CompiledExpr::Regex(RegexUse::FullMatch { bits: Some(bits) }, _, value) if is_target(value) => {
            Some(Restriction::Typed(EndorsedValue { canonical: None, bits: Some(*bits) }))
        }
        CompiledExpr::Compare(Comparison::In, value, list) if is_target(value) => match &**list {
            CompiledExpr::List(items)
                if items.iter().all(|item| matches!(item, CompiledExpr::Constant(_))) =>
            {
                // The logarithm of the number of items, rounded up: the bits that the choice of one carries.
                Some(Restriction::Listed(items.len().max(1).next_power_of_two().ilog2()))
            }
            _ => None,
        },
        // A single permitted value leaves no choice, so it carries 0 bits.
        CompiledExpr::Compare(Comparison::Equal, value, other) if is_target(value) => {
            matches!(&**other, CompiledExpr::Constant(_)).then_some(Restriction::Listed(0))
        }
        CompiledExpr::Listed(value, _, form) if is_target(value) => Some(match form {
            ListedForm::Whole => Restriction::Listed(ANSWERED_BITS),
            ListedForm::Host | ListedForm::RegistrableDomain => Restriction::Within(ArgumentRole::Url),
        }),
        _ => None,
    }
}

/// Returns how a built-in function restricts the value that is the first of its `arguments`: to the kind that the
/// function tests for, or to the constant folder or hosts in the second argument. `None` for any other function or
/// second argument.
fn restriction_by_function(function: FunctionId, arguments: &[CompiledExpr]) -> Option<Restriction> {
    if let Some(kind) = FUNCTIONS.get(function).and_then(|found| found.canonical) {
        let value = EndorsedValue { canonical: Some(kind.form), bits: Some(kind.bits) };
        return Some(Restriction::Typed(value));
    }
    let is_text = |ex: &CompiledExpr| matches!(ex, CompiledExpr::Constant(Value::Str(_)));
    match (function.name, arguments.get(1)) {
        ("is_path_in", Some(folder)) if is_text(folder) => Some(Restriction::Within(ArgumentRole::Path)),
        ("is_url_on" | "is_url_on_domain", Some(CompiledExpr::List(hosts))) if hosts.iter().all(is_text) => {
            Some(Restriction::Within(ArgumentRole::Url))
        }
        ("is_url_on" | "is_url_on_domain", Some(host)) if is_text(host) => {
            Some(Restriction::Within(ArgumentRole::Url))
        }
        _ => None,
    }
}

/// Returns whether a condition contains a test whether trusted text lists a value, such as `VALUE in tool:NAME`, and
/// does not consist of it alone. Statements reject such a condition: if the test is negated, the condition holds as
/// long as no trusted text lists anything.
fn contains_nested_list(item: &QueryItem) -> bool {
    let mut found = false;
    item.expression().walk(&mut |ex| found |= matches!(ex, CompiledExpr::Listed(..)));
    found && !matches!(item, QueryItem::Test(CompiledExpr::Listed(..)))
}

/// Returns the name of the argument that a statement endorses, or whose items it endorses, such as `mail.to`.
fn endorsed_name(target: &TargetPath, query: &CompiledQuery) -> String {
    let root = query.variables.iter().find(|variable| variable.slot == target.root);
    match root.and_then(|variable| variable.domain.as_ref()).and_then(CompiledExpr::variable_path) {
        // The target is a variable that ranges over a list in the call (slot 0). The first key of the path to the list
        // is `arguments`.
        Some((0, keys)) => keys.into_iter().skip(1).collect::<Vec<_>>().join("."),
        _ => argument_name(target),
    }
}
