//! Proposes `endorse` statements for an argument by the form of its value, for `candidates`: dates, times and numbers, a
//! URL on a host that a message names, and the items of a list.
//!
//! `in tool:NAME` is not proposed: the method *provenance* attributes a value that a trusted answer contains to that answer,
//! and under *everything* the decision would still carry what an endorsement does not lift.

use flowgate::policy::ArgumentRole;
use flowgate_guard::replay::{JudgedCall, ReplayedRun};
use serde_json::Value;

use super::harm::{self, Harm, HarmRank};
use super::tool_pattern;

/// A condition under which an argument, or an item of it, is endorsed.
struct Form {
    /// The condition, with `{}` in place of the value.
    condition: String,
    rank: HarmRank,
    /// What the author of the text chooses.
    choice: String,
    /// Why the statement needs evidence, if it always does.
    needs_evidence: Option<String>,
}

/// A statement that is proposed.
pub(super) struct EndorseProposal {
    /// What kind of statement it is, for the person who reads it.
    pub(super) kind: &'static str,
    pub(super) statement: String,
    /// What an attacker gains by it.
    pub(super) harm: Harm,
    /// Why the statement needs evidence, if it always does.
    pub(super) needs_evidence: Option<String>,
}

/// Returns the `endorse` statements that fit the value of an argument. `elements` are those of integrity that the
/// requirement allows.
pub(super) fn propose(
    call: &JudgedCall,
    run: &ReplayedRun,
    argument: &str,
    elements: &str,
) -> Vec<EndorseProposal> {
    let role = run.monitor.policy().argument_role(&call.tool, argument);
    let value = argument_value(call, run, argument);
    let (path, tool) = (format!("call.arguments.{argument}"), tool_pattern(&call.tool));
    let is_list = value.is_array();
    let (target, items) = match is_list {
        true => ("item", format!("\n    (item: str) in {path}")),
        false => (path.as_str(), String::new()),
    };
    let proposed = forms(argument, &value, role).into_iter().map(|form| {
        let condition = form.condition.replace("{}", target);
        let statement = format!(
            "endorse {target} as {elements} if:\n    (call: ToolCall) is {tool}{items}\n    {condition}"
        );
        let of = if is_list { format!("each item of `{argument}`") } else { format!("`{argument}`") };
        let gain = format!("the choice of {} in {of}, and nothing else", form.choice);
        let kind = if is_list { "typed `endorse` of items" } else { "typed `endorse`" };
        let harm = Harm::new(form.rank, gain);
        EndorseProposal { kind, statement, harm, needs_evidence: form.needs_evidence }
    });
    proposed.collect()
}

/// Returns the forms that fit a value. A number that selects an object or is a sum of money decides too much, even if its
/// form is checked; a URL needs evidence.
fn forms(argument: &str, value: &Value, role: Option<ArgumentRole>) -> Vec<Form> {
    let form = |condition: &str, rank, choice: &str| Form {
        condition: format!("{condition}({{}})"),
        rank,
        choice: choice.to_owned(),
        needs_evidence: None,
    };
    let is_decisive = harm::is_decisive(argument, role);
    let texts: Vec<&str> = match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        value => value.as_str().into_iter().collect(),
    };
    let all = |is: &dyn Fn(&str) -> bool| !texts.is_empty() && texts.iter().all(|text| is(text.trim()));
    let mut forms = vec![
        form("is_date", HarmRank::Time, "the date"),
        form("is_datetime", HarmRank::Time, "the date and time"),
        form("is_time", HarmRank::Time, "the time"),
    ];
    if !value.is_array() {
        forms.push(form("is_bool", HarmRank::Number, "the yes or no"));
    }
    if all(&|text| matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "true" | "false")) {
        forms.push(form("is_yes_no", HarmRank::Number, "the yes or no"));
    }
    if !is_decisive {
        if !value.is_array() {
            forms.push(form("is_integer", HarmRank::Number, "the number"));
            forms.push(form("is_number", HarmRank::Number, "the number"));
        }
        if all(&|text| text.parse::<f64>().is_ok()) {
            forms.push(form("is_decimal", HarmRank::Number, "the number"));
        }
    }
    if role == Some(ArgumentRole::Url) && all(&|text| text.starts_with("http") || text.starts_with("www.")) {
        forms.push(Form {
            condition: "is_url_on({}, Message)".to_owned(),
            rank: HarmRank::HostPath,
            choice: "a host that a trusted message names, with path and query,".to_owned(),
            needs_evidence: Some(format!(
                "`endorse` of `{argument}` on the hosts that messages name: a stranger can choose among them, and path and query"
            )),
        });
    }
    forms
}

/// Returns the value of an argument in the trace; null if the call is not in it.
fn argument_value(call: &JudgedCall, run: &ReplayedRun, argument: &str) -> Value {
    let event = call.event.and_then(|event| run.monitor.trace().event(event));
    let value = event.and_then(|event| {
        let arguments = event.document.key(0, "arguments")?;
        Some(event.document.to_value(event.document.key(arguments, argument)?))
    });
    value.unwrap_or_default()
}
