//! Lists the statements that, added to the policy, could permit a call that is not permitted now. They are sorted by
//! harm, the least harmful first. `flowgate explain` and `flowgate suggest` then try them (`trial`).
//!
//! Some statements are never listed:
//!
//! * a `payload` for an argument that decides something, such as where a text is sent, what is executed or which object
//!   is deleted;
//! * a `label` that trusts a field of prose, in which a stranger can write an instruction;
//! * an `endorse` of every number for an argument that selects an object or is a sum of money;
//! * a `require` that permits untrusted influence on a tool that acts.
//!
//! Some other statements are suggested only with evidence, which is that the tool was attacked in recordings and none of
//! these attacks passes under the statement:
//!
//! * a `label` that trusts a field from which the call takes its destination, its object or its sum of money;
//! * a `label` that trusts a field that influenced the decision to call the tool;
//! * the `endorse` statements that `endorse_forms` names.
//!
//! All others are suggested without evidence.

use flowgate::monitor::{Reason, ReasonKind};
use flowgate::policy::ArgumentRole;
use flowgate::trace::{EventBody, NodeContent, Path, PathStep, Region, Tool};
use flowgate_guard::replay::{JudgedCall, ReplayedRun};
use serde_json::Value;

use super::harm::{self, Harm, HarmRank};
use super::{argument_path, endorse_forms, is_word, origin, tool_pattern};

/// Roles of messages that a person or the operator writes. For these, a `label` of all messages of the role is
/// proposed.
const ROLES: [&str; 3] = ["developer", "system", "user"];

/// A statement that could permit a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::command) struct Candidate {
    /// The statement, as it would be added to the policy.
    pub(in crate::command) statement: String,
    /// The kind of statement, in words, such as `` `label` of a field ``.
    pub(in crate::command) form: &'static str,
    pub(in crate::command) harm: Harm,
    /// The parts of the call that the statement concerns, by their names in reasons.
    pub(in crate::command) parts: Vec<String>,
    /// Why the statement is suggested only with evidence (recorded attacks on the tool, of which none passes); `None`
    /// if it is suggested without.
    pub(in crate::command) needs_evidence: Option<String>,
}

/// The dimensions in which the label of a reason exceeds the requirement. Each is a pair: the element that the label
/// carries, and the greatest element that the requirement allows.
struct Excess {
    integrity: Vec<(String, String)>,
    secrecy: Vec<(String, String)>,
}

impl Excess {
    /// Returns the dimensions in which the label of a reason exceeds its requirement.
    fn of(reason: &Reason) -> Self {
        // `label` and `required` have one element for each dimension that exceeds. `categories` repeats the elements of
        // `label` that are about confidentiality.
        let pairs = reason.label.iter().cloned().zip(reason.required.iter().cloned());
        let (secrecy, integrity) = pairs.partition(|(carried, _)| reason.categories.contains(carried));
        Self { integrity, secrecy }
    }
}

/// Joins with commas the elements that the label carries, the first of each pair of an [`Excess`].
fn carried_elements(pairs: &[(String, String)]) -> String {
    pairs.iter().map(|(carried, _)| carried.as_str()).collect::<Vec<_>>().join(", ")
}

/// Joins with commas the greatest elements that the requirement allows, the second of each pair of an [`Excess`].
fn allowed_elements(pairs: &[(String, String)]) -> String {
    pairs.iter().map(|(_, allowed)| allowed.as_str()).collect::<Vec<_>>().join(", ")
}

/// The candidates for a call, and the fields for which a label was refused.
pub(in crate::command) struct Candidates {
    pub(in crate::command) all: Vec<Candidate>,
    /// Fields for which no `label` is proposed, because they hold prose; each with this reason, in one line.
    pub(in crate::command) refused: Vec<String>,
}

impl Candidates {
    /// Adds a statement that concerns the part `part` of the call. If the statement is listed already, only adds the
    /// part to it. `form` is the kind of statement, in words. The statement needs no evidence unless
    /// [`require_evidence`](Self::require_evidence) is called for it.
    pub(super) fn add(&mut self, form: &'static str, harm: Harm, part: &str, statement: String) {
        match self.all.iter_mut().find(|known| known.statement == statement) {
            Some(known) => known.parts.push(part.to_owned()),
            None => {
                let parts = vec![part.to_owned()];
                self.all.push(Candidate { statement, form, harm, parts, needs_evidence: None });
            }
        }
    }

    /// Records that a statement is suggested only with evidence: recorded attacks on the tool, of which none passes
    /// under the statement. `why` says what could go wrong; only the first `why` of a statement is kept.
    pub(super) fn require_evidence(&mut self, statement: &str, why: String) {
        let candidate = self.all.iter_mut().find(|candidate| candidate.statement == statement);
        if let Some(candidate) = candidate.filter(|candidate| candidate.needs_evidence.is_none()) {
            candidate.needs_evidence = Some(why);
        }
    }

    /// Records, once, a field for which no `label` is proposed; `what` names it and says why.
    fn refuse(&mut self, what: String) {
        if !self.refused.contains(&what) {
            self.refused.push(what);
        }
    }
}

/// Collects the statements that, added to the policy, could permit a call of the replayed run `run`. For each reason
/// against the call, statements are proposed about the argument, about each region that the reason names, and about
/// the tool. The result is sorted by harm, the least harmful first.
pub(in crate::command) fn candidates(call: &JudgedCall, run: &ReplayedRun) -> Candidates {
    let mut candidates = Candidates { all: Vec::new(), refused: Vec::new() };
    let names = origin::argument_names(call, run);
    for reason in &call.judgement.reasons {
        // Each proposed statement concerns a part of a call. So no statement can remove a reason without a part, such
        // as a matched rule.
        let Some(part) = reason.part.as_deref() else { continue };
        let excess = Excess::of(reason);
        let argument = names.iter().map(String::as_str).find(|name| reason.is_about_argument(name));
        if let Some(argument) = argument {
            add_for_argument(&mut candidates, call, run, argument, part, &excess);
        }
        for (region, _) in &reason.regions {
            add_for_region(&mut candidates, call, run, argument, part, region, &excess);
        }
        add_require(&mut candidates, call, run, reason, part, &excess);
    }
    candidates.all.sort_by_key(|candidate| candidate.harm.rank);
    candidates
}

/// Adds the statements about one argument, for the dimensions in which its label exceeds the requirement (`excess`):
/// `endorse` and `payload` for integrity, `consent` for confidentiality. `part` is the name of the argument in reasons, and
/// `run` is the replayed run that contains `call`.
fn add_for_argument(
    candidates: &mut Candidates,
    call: &JudgedCall,
    run: &ReplayedRun,
    argument: &str,
    part: &str,
    excess: &Excess,
) {
    let tool = tool_pattern(&call.tool);
    let path = argument_path(argument);
    let on_call = |head: String| format!("{head} if:\n    (call: ToolCall) is {tool}");
    if !excess.integrity.is_empty() {
        // The elements of integrity that the requirement allows.
        let elements = allowed_elements(&excess.integrity);
        let role = run.monitor.policy().argument_role(&call.tool, argument);
        for proposal in endorse_forms::propose(call, run, argument, &elements) {
            candidates.add(proposal.kind, proposal.harm, part, proposal.statement.clone());
            if let Some(why) = proposal.needs_evidence {
                candidates.require_evidence(&proposal.statement, why);
            }
        }
        // `payload` is proposed for prose and for an argument that holds content, unless the role of the argument gives
        // the author of the text something to gain, such as the choice of a recipient.
        let is_prose = origin::argument_texts(call, run, argument).iter().any(|text| harm::is_prose(text));
        let author_gains_nothing = role.is_none_or(|role| role.gain().is_none());
        if author_gains_nothing && (is_prose || role == Some(ArgumentRole::Content)) {
            let gain = format!("the words of `{argument}`, for a recipient that a trusted text names");
            candidates.add(
                "`payload` of a text",
                Harm::new(HarmRank::Words, gain),
                part,
                on_call(format!("payload {path}")),
            );
        }
    }
    if !excess.secrecy.is_empty() {
        let elements = carried_elements(&excess.secrecy);
        let gain = format!(
            "nothing while the whole call is trusted; the recipient of `{argument}` receives {elements} data"
        );
        let statement = on_call(format!("consent {elements} for {path}"));
        candidates.add("`consent`", Harm::new(HarmRank::TrustedRequest, gain), part, statement);
    }
}

/// Adds the `label` statements that would lower the label of `region`, one of the regions that a reason against the
/// call names. If the region is in a message whose role is in [`ROLES`], the statement labels all messages of the role.
/// If it is in a tool's answer, one statement labels the field and another one the whole answer. `argument` is the
/// argument that the reason concerns (`None`: the decision to call), `part` is its name in reasons, and `excess` has
/// the dimensions in which its label is too high.
fn add_for_region(
    candidates: &mut Candidates,
    call: &JudgedCall,
    run: &ReplayedRun,
    argument: Option<&str>,
    part: &str,
    region: &Region,
    excess: &Excess,
) {
    let Some(event) = run.monitor.trace().event(region.event) else { return };
    match &event.body {
        EventBody::Message(message) if ROLES.contains(&message.role.as_str()) => {
            for pairs in [&excess.integrity, &excess.secrecy].into_iter().filter(|pairs| !pairs.is_empty()) {
                let gain =
                    format!("control over the agent, for every author of a `{}` message", message.role);
                let statement = format!(
                    "label message as {} if:\n    (message: Message)\n    message.role == {:?}",
                    allowed_elements(pairs),
                    message.role
                );
                candidates.add("`label` of messages", Harm::new(HarmRank::Role, gain), part, statement);
            }
        }
        EventBody::Output(_) => {
            let Some(tool) =
                event.call.and_then(|call| run.monitor.trace().event(call)).and_then(|call| call.tool())
            else {
                return;
            };
            // One statement labels the field that the reason names, and another one the whole answer. The path of the
            // whole answer (`content`, for example) is the first step of the field's path.
            let whole = Path(region.path.0.iter().take(1).cloned().collect());
            for path in [&region.path, &whole] {
                label_field(candidates, call, run, argument, part, (tool, path), excess);
            }
        }
        // For other roles, for calls and for descriptions of tools, no `label` is proposed.
        _ => {}
    }
}

/// Adds `label` statements for the field at `path` of the answers of `tool`, or of each row if an answer is a list: one
/// that raises the integrity of the field, and one that lowers its confidentiality, as far as `excess` requires.
///
/// The statements are to remove one reason of the verdict. `part` is the part of the call that this reason is about,
/// and `excess` has the dimensions in which the label of that part is too high. `argument` is the argument of the call
/// that the field influenced; `None` if the field influenced the decision to call.
///
/// The integrity of a field that holds prose is not raised. Evidence is required if the field influenced the decision
/// to call, or if a decisive argument takes its value from the field.
fn label_field(
    candidates: &mut Candidates,
    call: &JudgedCall,
    run: &ReplayedRun,
    argument: Option<&str>,
    part: &str,
    (tool, path): (&Tool, &Path),
    excess: &Excess,
) {
    let Some(target) = target(path) else { return };
    let name = format!("`{}` of the answers of {}", target.replacen("out.", "", 1), tool);
    let statement = |elements: &str| {
        format!("label {target} as {elements} if:\n    (out: ToolOutput) is {}", tool_pattern(tool))
    };
    if !excess.integrity.is_empty() {
        let texts = texts_at(run, tool, path);
        let is_prose = |text: &Value| text.as_str().is_some_and(harm::is_prose);
        if texts.iter().any(is_prose) {
            candidates.refuse(format!(
                "{name}: the field holds prose, in which a stranger can write an instruction"
            ));
        } else {
            let gain = format!("control over every call that uses {name}, for every party that can set it");
            let harm = Harm::new(HarmRank::Field, gain);
            let statement = statement(&allowed_elements(&excess.integrity));
            candidates.add("`label` of a field", harm, part, statement.clone());
            // One run does not show that the field never holds an instruction.
            if argument.is_none() {
                let why = format!(
                    "`label` of {name}: a stranger who can set this field may have asked for the call"
                );
                candidates.require_evidence(&statement, why);
            }
            let role = |argument: &str| run.monitor.policy().argument_role(&call.tool, argument);
            let decisive = argument.filter(|argument| harm::is_decisive(argument, role(argument)));
            let takes_value_from_field = |argument: &str| {
                let values = origin::argument_texts(call, run, argument);
                values.iter().any(|value| texts.iter().any(|text| origin::contains(text, value)))
            };
            if let Some(argument) = decisive
                && takes_value_from_field(argument)
            {
                let why =
                    format!("`label` of {name}: a stranger who can set this field can choose `{argument}`");
                candidates.require_evidence(&statement, why);
            }
        }
    }
    if !excess.secrecy.is_empty() {
        let elements = allowed_elements(&excess.secrecy);
        let gain = format!("{name}, for a party to which a tool may send {elements} data");
        let harm = Harm::new(HarmRank::FieldLeak, gain);
        candidates.add("`label` of a field", harm, part, statement(&elements));
    }
}

/// Adds a `require` statement for all calls of the tool, which allows the label that `reason` objects to. A statement
/// that permits untrusted influence is added only if it is harmless.
///
/// `reason` is a reason against `call`, `run` is the replayed run that contains the call, `part` is the part of the
/// call that the reason is about, and `excess` has the dimensions in which the label of that part is too high.
fn add_require(
    candidates: &mut Candidates,
    call: &JudgedCall,
    run: &ReplayedRun,
    reason: &Reason,
    part: &str,
    excess: &Excess,
) {
    let require = |elements: &str| {
        format!("require {elements} if:\n    (call: ToolCall) is {}", tool_pattern(&call.tool))
    };
    // An id or a number in a call of a tool that only reads chooses what is read, which changes nothing.
    let is_destination = |argument: &str| {
        let role = run.monitor.policy().argument_role(&call.tool, argument);
        !matches!(role, Some(ArgumentRole::Selector | ArgumentRole::Amount))
            && role.is_some_and(|role| role.gain().is_some())
    };
    // Harmless: the tool has no requirement (an existing one was written to keep untrusted text out), it only reads by
    // its name, and none of its arguments decides where something goes or what runs.
    let is_harmless = reason.kind == ReasonKind::Undeclared
        && harm::is_reader(&call.tool.name)
        && !origin::argument_names(call, run).iter().any(|name| is_destination(name));
    let elements = reason.label.join(", ");
    if excess.integrity.is_empty() {
        let gain = format!(
            "{elements} data in any argument of {}, for everyone to whom this tool sends it",
            call.tool
        );
        candidates.add("`require`", Harm::new(HarmRank::ToolLeak, gain), part, require(&elements));
    } else if is_harmless {
        let gain = format!(
            "a call of {} with any arguments, for every author of a text that the model reads: only for a tool that changes and sends nothing",
            call.tool
        );
        candidates.add("`require`", Harm::new(HarmRank::ToolCall, gain), part, require(&elements));
    }
}

/// Returns the target by which a `label` statement names the field at a path, such as `out.content[*].note`. Each index
/// becomes `[*]`, so that the statement labels the field in every row of a list. A key that is not a word becomes `[*]`
/// as well, which covers the values of all keys there. Returns `None` for a capture of a text, which has no such target.
fn target(path: &Path) -> Option<String> {
    let mut target = "out".to_owned();
    for step in &path.0 {
        match step {
            PathStep::Key(key) if is_word(key) => {
                target.push('.');
                target.push_str(key);
            }
            PathStep::Index(_) | PathStep::Key(_) => target.push_str("[*]"),
            PathStep::Capture(_) => return None,
        }
    }
    Some(target)
}

/// Returns the scalars in all answers of the tool that a `label` statement for this path covers. Where the path has an
/// index, or a key that is not a word, the statement covers all items ([`target`]).
fn texts_at(run: &ReplayedRun, tool: &Tool, path: &Path) -> Vec<Value> {
    let trace = run.monitor.trace();
    let step_matches = |step: &PathStep, found: &PathStep| match step {
        PathStep::Key(key) if is_word(key) => step == found,
        // `[*]` covers every key and every index. No statement names a capture in this way (see `target`).
        _ => !matches!(found, PathStep::Capture(_)),
    };
    let mut texts = Vec::new();
    for event in trace.events() {
        let from = event.call.and_then(|call| trace.event(call)).and_then(|call| call.tool());
        if !matches!(event.body, EventBody::Output(_)) || from != Some(tool) {
            continue;
        }
        for (id, node) in event.document.nodes().iter().enumerate() {
            if let NodeContent::Scalar(value) = &node.content {
                // The statement covers the value at the path and everything in that value.
                let scalar_path = event.document.path(id);
                let covers = path.0.len() <= scalar_path.0.len()
                    && path.0.iter().zip(&scalar_path.0).all(|(step, found)| step_matches(step, found));
                if covers {
                    texts.push(value.clone());
                }
            }
        }
    }
    texts
}
