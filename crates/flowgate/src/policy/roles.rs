//! Lists the usual roles of messages ([`ROLES`]), and warns about misspelled ones in a policy, such as `"asistant"`;
//! [`Policy::load`](super::Policy::load) calls [`misspelled_roles`]. Also finds the texts that a policy compares a
//! field with ([`compared_literals`]), for this warning and for the checks of names in `occurrence` and `tool_schemas`.
//! (The roles of arguments are in `argument_role`.)

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, Span, nearest};
use super::syntax::{Expr, ExprKind, Statement, StatementKind};

/// The usual roles of messages. A client may define others.
pub const ROLES: [&str; 8] =
    ["assistant", "developer", "function", "human", "model", "system", "tool", "user"];

/// The values of constants, by name.
pub(crate) type Constants<'p> = HashMap<&'p str, &'p Expr>;

/// Returns the constants that statements define.
pub(crate) fn constants(statements: &[Statement]) -> Constants<'_> {
    let constants = statements.iter().filter_map(|statement| match &statement.kind {
        StatementKind::Constant { name, value } => Some((name.text.as_str(), value)),
        _ => None,
    });
    constants.collect()
}

/// Warns about misspelled roles: literals that a policy compares with the role of a message and that resemble a role,
/// such as `"asistant"`. Such a comparison would never hold. Other literals may be roles of a client's own.
pub(super) fn misspelled_roles(statements: &[Statement]) -> Vec<Diagnostic> {
    let (mut found, constants) = (Vec::new(), constants(statements));
    for statement in statements {
        statement.walk(&mut |expr| {
            for (literal, span) in role_literals(expr, &constants) {
                let near = nearest(literal, ROLES).filter(|_| !ROLES.contains(&literal));
                if let Some(near) = near {
                    let message = format!("`{literal}` is not a role of messages");
                    let warning = Diagnostic::warning("unknown-role", span.clone(), message);
                    let warning = warning.help(format!("did you mean `{near}`?"));
                    // A constant may be used more than once.
                    if !found.contains(&warning) {
                        found.push(warning);
                    }
                }
            }
        });
    }
    found
}

/// Returns the roles that a comparison names, with their locations: `user` for `m.role == "user"`, and `system` and
/// `user` for `m.role in ["system", "user"]`. Empty for any other expression. Every field called `role` counts, since
/// the type of `m` is not looked up.
pub(crate) fn role_literals<'e>(expr: &'e Expr, constants: &Constants<'e>) -> Vec<(&'e str, &'e Span)> {
    let is_role = |expr: &Expr| matches!(&*expr.kind, ExprKind::Member(_, name) if name.text == "role");
    compared_literals(expr, constants, &is_role)
}

/// Returns the literal texts, with their locations, that `expr` compares with an operand for which `is_compared` holds.
/// If `is_compared` holds for `m.role`, for example, the result for `m.role in ["user", "tool"]` is `user` and `tool`.
/// The texts may also be written as constants. The result is empty if `expr` is not a comparison, or if `is_compared`
/// holds for both of its first two operands or for neither.
pub(crate) fn compared_literals<'e>(
    expr: &'e Expr,
    constants: &Constants<'e>,
    is_compared: &dyn Fn(&Expr) -> bool,
) -> Vec<(&'e str, &'e Span)> {
    let ExprKind::Compare(first, rest) = &*expr.kind else { return Vec::new() };
    let Some((_, second)) = rest.first() else { return Vec::new() };
    let literal = match (is_compared(first), is_compared(second)) {
        (true, false) => second,
        (false, true) => first,
        _ => return Vec::new(),
    };
    // A name is replaced by the constant that it denotes, and a list by its items.
    let literal = match &*literal.kind {
        ExprKind::Name(name) => constants.get(name.as_str()).copied().unwrap_or(literal),
        _ => literal,
    };
    let items = match &*literal.kind {
        ExprKind::List(items) => items.iter().collect(),
        _ => vec![literal],
    };
    let texts = items.into_iter().filter_map(|item| match &*item.kind {
        ExprKind::Str(text) => Some((text.as_str(), &item.span)),
        _ => None,
    });
    texts.collect()
}
