//! Defines the responses of the policy API, which `policy_api` fills. These types are the wire format; `openapi.json`
//! describes them, and tests compare the two.

use flowgate::analysis::{EvaluationFailure, EvaluationFailureKind, Violation};
use flowgate::policy::{Action, Diagnostic, Policy};
use serde::Serialize;
use serde_json::{Map, Value};

/// The answer for a policy that compiles. It has no field `errors`, since clients treat an answer with this field as a
/// failure.
#[derive(Debug, Serialize)]
pub(crate) struct LoadResponse {
    warnings: Vec<PolicyWarning>,
}

/// A warning about a policy.
#[derive(Debug, Serialize)]
struct PolicyWarning {
    code: &'static str,
    line: usize,
    column: usize,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl LoadResponse {
    /// Converts the warnings of a compiled policy.
    pub(super) fn of(policy: &Policy) -> Self {
        let warning = |diagnostic: &Diagnostic| {
            let (line, column) = diagnostic.position(policy.source());
            let Diagnostic { code, message, help, .. } = diagnostic.clone();
            PolicyWarning { code, line, column, message, help }
        };
        Self { warnings: policy.warnings().iter().map(warning).collect() }
    }
}

/// The verdict of a policy on a trace.
#[derive(Debug, Serialize)]
pub(crate) struct CheckResponse {
    pub(super) errors: Vec<RuleMatchResponse>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<RuleFailureResponse>,
}

/// One match of one rule.
#[derive(Debug, Serialize)]
pub(crate) struct RuleMatchResponse {
    /// A text that identifies this match among all others, and stays the same in a longer trace.
    key: String,
    /// The message: the arguments of the rule's `Violation(...)`, or its text.
    args: Vec<Value>,
    /// The named arguments of the rule's `Violation(...)`.
    kwargs: Map<String, Value>,
    /// The locations in the messages that the match concerns.
    ranges: Vec<String>,
    action: &'static str,
    /// The line of the rule in the policy.
    rule: usize,
}

impl RuleMatchResponse {
    /// Converts a match of a rule of this policy to the form for clients.
    pub(super) fn of(violation: Violation, policy: &Policy) -> Self {
        let action = match violation.action {
            Action::Deny => "deny",
            Action::Ask => "ask",
            Action::Log => "log",
        };
        Self {
            key: violation.key,
            args: violation.args.into_iter().map(argument).collect(),
            kwargs: violation.kwargs.into_iter().map(|(name, value)| (name, argument(value))).collect(),
            ranges: violation.ranges,
            action,
            rule: policy.line(&violation.statement),
        }
    }

    /// Returns a match that denies, for a rule that cannot be evaluated. `rule` is the index of the rule in the policy;
    /// `failed.rule` is its line. `messages` is the number of messages in the trace.
    ///
    /// Some clients report only matches whose key they have not seen. The key therefore contains the length of the
    /// trace, so that they report the failure again for a longer trace.
    pub(super) fn failure(failed: &RuleFailureResponse, rule: usize, messages: usize) -> Self {
        let message = format!("the rule at line {} cannot be evaluated: {}", failed.rule, failed.message);
        Self {
            key: format!("failure:{rule}:{}:{messages}", failed.kind),
            args: vec![Value::String(message)],
            kwargs: Map::new(),
            ranges: Vec::new(),
            action: "deny",
            rule: failed.rule,
        }
    }
}

/// Converts an argument for clients, which handle strings, numbers, booleans and objects; other values become their
/// JSON text.
fn argument(value: Value) -> Value {
    match value {
        Value::Null | Value::Array(_) => Value::String(value.to_string()),
        value => value,
    }
}

/// A rule that could not be evaluated.
#[derive(Debug, Serialize)]
pub(crate) struct RuleFailureResponse {
    /// The line of the rule in the policy.
    rule: usize,
    kind: &'static str,
    message: String,
}

impl RuleFailureResponse {
    /// Converts a failure of the analysis: the line of its rule, the name of its kind, and the message.
    pub(super) fn of(failure: &EvaluationFailure, policy: &Policy) -> Self {
        let kind = match failure.kind {
            EvaluationFailureKind::MissingParameter => "missing-parameter",
            EvaluationFailureKind::Fuel => "fuel",
            EvaluationFailureKind::TooMany => "too-many",
            EvaluationFailureKind::Unavailable => "unavailable",
            EvaluationFailureKind::Attribute => "attribute",
            EvaluationFailureKind::Type => "type",
        };
        Self { rule: policy.line(&failure.statement), kind, message: failure.message.clone() }
    }
}

/// The verdicts of several policies on a trace, in their order.
#[derive(Debug, Serialize)]
pub(crate) struct BatchResponse {
    pub(super) result: Vec<BatchVerdict>,
}

/// The verdict of one of several policies.
///
/// A client of Invariant's service that sees an `error_message` ignores everything else. It is therefore present only
/// if the policy could not be used at all.
#[derive(Debug, Serialize)]
pub(crate) struct BatchVerdict {
    policy: String,
    success: bool,
    errors: Vec<RuleMatchResponse>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<RuleFailureResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
}

impl BatchVerdict {
    /// Creates the verdict of a policy that was evaluated. `success` is false if one of its rules could not be
    /// evaluated.
    pub(super) fn checked(policy: String, checked: CheckResponse) -> Self {
        let CheckResponse { errors, failures } = checked;
        Self { policy, success: failures.is_empty(), errors, failures, error_message: None }
    }

    /// Creates the verdict of a policy that could not be used, with the reason.
    pub(super) fn refused(policy: String, message: String) -> Self {
        let (errors, failures) = (Vec::new(), Vec::new());
        Self { policy, success: false, errors, failures, error_message: Some(message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SOURCE: &str = "# a comment\nraise \"x\" if:\n    (m: Message)\n";

    fn violation(action: Action) -> Violation {
        Violation {
            rule: 0,
            statement: 12..24,
            action,
            args: vec![json!("x"), json!(null), json!([1, "a"]), json!({"role": "user"}), json!(2.5)],
            kwargs: Map::from_iter([("n".to_owned(), json!(1))]),
            ranges: vec!["messages.0.content:0-1".to_owned()],
            key: "k".to_owned(),
        }
    }

    /// Returns a value of each type with every field.
    fn examples() -> [(&'static str, Value); 9] {
        let policy = Policy::parse(SOURCE).unwrap();
        let failure = EvaluationFailure {
            rule: 0,
            statement: 12..24,
            kind: EvaluationFailureKind::Type,
            message: "m".to_owned(),
        };
        let failed = || RuleFailureResponse::of(&failure, &policy);
        let found = |action| RuleMatchResponse::of(violation(action), &policy);
        let warning = || PolicyWarning {
            code: "c",
            line: 1,
            column: 1,
            message: "m".to_owned(),
            help: Some("h".to_owned()),
        };
        let checked = || CheckResponse { errors: vec![found(Action::Ask)], failures: vec![failed()] };
        let judged = || BatchVerdict {
            error_message: Some("m".to_owned()),
            ..BatchVerdict::checked(SOURCE.to_owned(), checked())
        };
        [
            ("Loaded", value(LoadResponse { warnings: vec![warning()] })),
            ("Warning", value(warning())),
            ("Checked", value(checked())),
            ("Found", value(found(Action::Deny))),
            ("Failed", value(failed())),
            ("Batched", value(BatchResponse { result: vec![judged()] })),
            ("Judged", value(judged())),
            ("Detail", value(crate::http::reply::RejectionBody { detail: "m" })),
            ("Health", value(crate::http::service::Health::new(vec!["store"], vec!["witness file"], 1))),
        ]
    }

    fn value(of: impl Serialize) -> Value {
        serde_json::to_value(of).unwrap()
    }

    #[test]
    fn a_violation_keeps_what_old_clients_read() {
        let policy = Policy::parse(SOURCE).unwrap();
        for (action, word) in [(Action::Deny, "deny"), (Action::Ask, "ask"), (Action::Log, "log")] {
            let found = serde_json::to_value(RuleMatchResponse::of(violation(action), &policy)).unwrap();
            let expected = json!({
                "key": "k", "args": ["x", "null", "[1,\"a\"]", {"role": "user"}, 2.5], "kwargs": {"n": 1},
                "ranges": ["messages.0.content:0-1"], "action": word, "rule": 2,
            });
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_rule_that_cannot_be_evaluated_denies() {
        let policy = Policy::parse(SOURCE).unwrap();
        let failure = EvaluationFailure {
            rule: 0,
            statement: 12..24,
            kind: EvaluationFailureKind::Fuel,
            message: "too long".to_owned(),
        };
        let found = RuleMatchResponse::failure(&RuleFailureResponse::of(&failure, &policy), 0, 3);
        let expected = json!({
            "key": "failure:0:fuel:3", "args": ["the rule at line 2 cannot be evaluated: too long"], "kwargs": {},
            "ranges": [], "action": "deny", "rule": 2,
        });
        assert_eq!(serde_json::to_value(found).unwrap(), expected);
    }

    #[test]
    fn the_description_has_the_fields_that_are_answered() {
        for (name, example) in examples() {
            let schema = crate::openapi::schema(name);
            assert_eq!(crate::openapi::mistakes(&example, &schema, name), [""; 0]);
            let described: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
            let answered: Vec<&String> = example.as_object().unwrap().keys().collect();
            assert_eq!(described, answered, "{name} in openapi.json");
        }
    }
}
