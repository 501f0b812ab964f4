//! Proposes `endorse` statements for an argument by the form of its value: a date, a time, yes or no, a number, a URL
//! on a host that a message names, a path in a folder, or a code of a fixed form. For a list, the statement endorses
//! its items. `in tool:NAME` is proposed if a trusted answer that the agent had seen lists the value. `candidates`
//! adds these statements to its list.
//!
//! Some statements are suggested only with evidence: the corpora have attacks on the tool, and none passes under the
//! statement. `in tool:NAME` needs it for a decisive argument ([`harm::is_decisive`]), such as an account, since the
//! author of an untrusted text can then choose among the user's own accounts. `is_url_on` (for a URL), `is_path_in`
//! (for a path) and a pattern (for a code of a fixed form) always need it.

use flowgate::label::Label;
use flowgate::policy::ArgumentRole;
use flowgate::trace::{EventBody, NodeContent};
use flowgate_guard::replay::{JudgedCall, ReplayedRun};
use serde_json::Value;

use super::harm::{self, Harm, HarmRank};
use super::{argument_path, tool_pattern};

/// A condition under which an argument, or an item of a list, is endorsed.
struct Form {
    /// The condition, with `{}` in place of the value.
    condition: String,
    rank: HarmRank,
    /// What the author of an untrusted text can choose under the statement, such as `the date`. A choice with a relative
    /// clause ends with a comma, since ` in ARGUMENT` follows.
    choice: String,
    /// Why the statement needs evidence; `None` if it needs none.
    needs_evidence: Option<String>,
}

/// A statement that is proposed.
pub(super) struct EndorseProposal {
    /// The kind of statement, in words.
    pub(super) kind: &'static str,
    pub(super) statement: String,
    /// What an attacker gains by it.
    pub(super) harm: Harm,
    /// Why the statement needs evidence; `None` if it needs none.
    pub(super) needs_evidence: Option<String>,
}

/// Returns the `endorse` statements that fit the value of an argument of `call`, which is in the replayed run `run`.
/// `elements` are the elements of integrity that the requirement allows; the statements endorse the argument as these.
pub(super) fn propose(
    call: &JudgedCall,
    run: &ReplayedRun,
    argument: &str,
    elements: &str,
) -> Vec<EndorseProposal> {
    let role = run.monitor.policy().argument_role(&call.tool, argument);
    let value = argument_value(call, run, argument);
    let (path, tool) = (argument_path(argument), tool_pattern(&call.tool));
    let is_list = value.is_array();
    let (target, items) = match is_list {
        true => ("item", format!("\n    (item: str) in {path}")),
        false => (path.as_str(), String::new()),
    };
    let mut forms = forms(argument, &value, role);
    forms
        .extend(listing_tools(call, run, &value).into_iter().map(|pattern| listed(argument, &pattern, role)));
    let proposed = forms.into_iter().map(|form| {
        // A condition has `{}` in place of the value: the argument, or an item of the list.
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

/// Returns the forms that fit the value `value` of the argument `argument`, which has the role `role`. A decisive
/// argument, such as the id of an object or a sum of money, gets no form for numbers or codes: even a checked number
/// would let an attacker choose the object or the sum.
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
    // Proposed for every value: a trial drops a statement whose condition does not hold for the value.
    let mut forms = vec![
        form("is_date", HarmRank::Time, "the date"),
        form("is_datetime", HarmRank::Time, "the date and time"),
        form("is_time", HarmRank::Time, "the time"),
    ];
    if !value.is_array() {
        // `propose` endorses only the items of a list that are texts, for which `is_bool` never holds.
        forms.push(form("is_bool", HarmRank::Number, "the yes or no"));
    }
    if all(&|text| matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "true" | "false")) {
        forms.push(form("is_yes_no", HarmRank::Number, "the yes or no"));
    }
    if !is_decisive {
        // `is_integer` and `is_number` never hold for a text either.
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
                "`endorse` of `{argument}` on the hosts that messages name: a stranger can choose among them, and can choose the path and the query"
            )),
        });
    }
    if role == Some(ArgumentRole::Path)
        && let Some(folder) = common_folder(&texts)
    {
        forms.push(Form {
            condition: format!("is_path_in({{}}, {folder:?})"),
            rank: HarmRank::HostPath,
            choice: format!("a path below {folder:?}"),
            needs_evidence: Some(format!(
                "`endorse` of `{argument}` in {folder:?}: a stranger can choose any path below this folder"
            )),
        });
    }
    if !is_decisive && let Some(pattern) = common_pattern(&texts) {
        forms.push(Form {
            condition: format!("fullmatch(r\"{pattern}\", {{}})"),
            rank: HarmRank::HostPath,
            choice: "a text of this pattern".to_owned(),
            needs_evidence: Some(format!(
                "`endorse` of `{argument}` by a pattern: one value does not show which texts are harmless"
            )),
        });
    }
    forms
}

/// Returns the form `in tool:NAME` for an argument. `pattern` is `tool:NAME`, the tool whose answer lists the value.
/// The form needs evidence if the argument is decisive, such as an account: see [`harm::is_decisive`].
fn listed(argument: &str, pattern: &str, role: Option<ArgumentRole>) -> Form {
    let is_decisive = harm::is_decisive(argument, role);
    let why =
        format!("`endorse` of `{argument}` in {pattern}: a stranger can choose among the listed values");
    Form {
        // The first `{}` stays in the condition, in place of the value.
        condition: format!("{{}} in {pattern}"),
        rank: HarmRank::Listed,
        choice: format!("a value that is in a trusted answer of {pattern},"),
        needs_evidence: is_decisive.then_some(why),
    }
}

/// Returns the patterns, such as `tool:NAME`, of the tools that have listed the value: in an answer before the call, a
/// trusted field is equal to it. If the value is a list, one answer must have such a field for each item. Only texts
/// and integers are looked for; for any other value, there are no tools.
fn listing_tools(call: &JudgedCall, run: &ReplayedRun, value: &Value) -> Vec<String> {
    let values: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        value => vec![value],
    };
    if values.is_empty() || !values.iter().all(|value| value.is_string() || value.is_i64()) {
        return Vec::new();
    }
    let (trace, space) = (run.monitor.trace(), run.monitor.policy().space());
    let Some(before) = call.event else { return Vec::new() };
    let mut patterns = Vec::new();
    for event in trace.events().iter().take(before.0) {
        let answered = event.call.and_then(|call| trace.event(call)).and_then(|call| call.tool());
        let Some(tool) = answered.filter(|_| matches!(event.body, EventBody::Output(_))) else { continue };
        let mut trusted: Vec<&Value> = Vec::new();
        for (id, node) in event.document.nodes().iter().enumerate() {
            // A field is trusted if its label is bottom in the dimensions of integrity.
            let integrity = space.restrict(&event.document.label_of(id), space.integrity());
            if integrity == Label::BOTTOM
                && let NodeContent::Scalar(value) = &node.content
            {
                trusted.push(value);
            }
        }
        let pattern = tool_pattern(tool);
        if values.iter().all(|value| trusted.contains(value)) && !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    patterns
}

/// Returns the folder that directly contains each of these absolute paths; `None` if they are in different folders, if
/// the folder is the root, or if a text is not an absolute path.
fn common_folder(texts: &[&str]) -> Option<String> {
    // The folder of one path; `None` if it is not absolute. The folder of a file in the root is an empty text.
    let folder = |text: &&str| {
        text.rsplit_once('/').filter(|_| text.starts_with('/')).map(|(folder, _)| folder.to_owned())
    };
    let mut folders = texts.iter().map(folder);
    let first = folders.next()??;
    let is_common = folders.all(|other| other.as_ref() == Some(&first));
    let is_root = first.is_empty();
    (is_common && !is_root).then_some(first)
}

/// Returns a pattern for codes like `AB1234`, if all texts have upper-case letters and digits at the same positions.
/// `None` if a text has other characters, lacks a letter or a digit, or is longer than 12 characters.
fn common_pattern(texts: &[&str]) -> Option<String> {
    // The pattern of one text; `None` if the text is not a code.
    let pattern = |text: &&str| {
        let is_code = (2..=12).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
            && text.bytes().any(|byte| byte.is_ascii_digit())
            && text.bytes().any(|byte| byte.is_ascii_uppercase());
        let class = |byte: u8| if byte.is_ascii_digit() { "[0-9]" } else { "[A-Z]" };
        is_code.then(|| text.bytes().map(class).collect::<String>())
    };
    let mut patterns = texts.iter().map(pattern);
    let first = patterns.next()??;
    let is_common = patterns.all(|other| other.as_ref() == Some(&first));
    is_common.then_some(first)
}

/// Returns the value of an argument of a call in the trace; null if the trace does not have it.
fn argument_value(call: &JudgedCall, run: &ReplayedRun, argument: &str) -> Value {
    let event = call.event.and_then(|event| run.monitor.trace().event(event));
    let value = event.and_then(|event| {
        // The node 0 is the root.
        let arguments = event.document.key(0, "arguments")?;
        Some(event.document.to_value(event.document.key(arguments, argument)?))
    });
    value.unwrap_or_default()
}
