//! Implements the built-in function `should_allow_rbac` for role-based access control: whether a role of a user is
//! granted a scope. invariant-ai has a function of this name, which its policies call. The evaluator calls it through
//! the table in [`builtin`](super).

use super::{Function, resolved_argument, row};
use crate::eval::{Evaluator, Result, Value};

pub(super) const TABLE: &[Function] = &[Function {
    parameters: &["data", "scope", "user", "user_roles", "role_grants"],
    ..row(
        "should_allow_rbac",
        (5, 5),
        "Whether a role of the user (`user_roles[user]`) is granted the scope (`role_grants[role][scope]`).",
        should_allow,
    )
}];

/// Implements `should_allow_rbac(data, scope, user, user_roles, role_grants)`: returns whether a role of the user
/// grants the scope. A user who is unknown, or whose roles are not a list, has no roles. `data` has no effect:
/// it is a parameter only because invariant-ai's function of this name has it.
fn should_allow(evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Value> {
    let (scope, user) =
        (resolved_argument(evaluator, arguments, 1)?, resolved_argument(evaluator, arguments, 2)?);
    let (roles, grants) =
        (resolved_argument(evaluator, arguments, 3)?, resolved_argument(evaluator, arguments, 4)?);
    let roles = field(&roles, &user).map_or_else(Vec::new, |roles| match roles {
        Value::List(roles) => roles.to_vec(),
        _ => Vec::new(),
    });
    evaluator.spend(roles.len())?;
    let is_granted = |role: &Value| {
        field(&grants, role).and_then(|scopes| field(&scopes, &scope)).is_some_and(|grant| grant.is_true())
    };
    Ok(Value::Bool(roles.iter().any(is_granted)))
}

/// Returns the value under a key of a map; `None` if the map has no such key, `map` is not a map, or `key` is not a
/// text.
fn field(map: &Value, key: &Value) -> Option<Value> {
    match (map, key) {
        (Value::Dict(entries), Value::Str(key)) => {
            entries.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn a_role_must_be_granted_the_scope() {
        let tables = r#"{"ann": ["user"], "bob": ["admin", "user"]}, {"admin": {"internal": true}, "user": {"internal": false}}"#;
        check("should_allow_rbac", &format!(r#"{{}}, "internal", "bob", {tables}"#), "true");
        check("should_allow_rbac", &format!(r#"{{}}, "internal", "ann", {tables}"#), "false");
        check("should_allow_rbac", &format!(r#"{{}}, "internal", "eve", {tables}"#), "false");
        check("should_allow_rbac", &format!(r#"{{}}, null, "bob", {tables}"#), "false");
    }
}
