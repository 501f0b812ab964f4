//! Runs a policy on a sample request, and reports which parts of the request the policy would hide from the steps at the
//! base label, for `flowgate doctor --request`. A turn begins with such a step: the model is shown only what flows to
//! the strictest requirement of the tools that it is offered. If the policy hides the system message or the request of
//! the user from it, the model says nothing sensible. This is the most frequent problem with a new policy.

use std::path::Path;
use std::sync::Arc;

use flowgate::draft::{DescribedTool, plain_name, read_tools};
use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{Message, Tool, ToolDescription, TraceEntry};
use serde_json::{Map, Value};

use super::Findings;
use crate::input::{InputError, bounded_text};
use crate::output::{plural, statement_line};

/// The largest request, in bytes.
const MAX_REQUEST: u64 = 64 << 20;
/// The maximum number of tools that a finding names.
const MAX_NAMED: usize = 8;

/// A request to a model.
pub(super) struct SampleRequest {
    tools: Vec<DescribedTool>,
    /// The roles and texts of its messages of the operator and the user.
    messages: Vec<(String, String)>,
}

impl SampleRequest {
    /// Reads a request with tools, or a list of tools.
    ///
    /// # Errors
    /// If the file cannot be read or has no list of tools.
    pub(super) fn read(path: &Path) -> Result<Self, InputError> {
        let text = bounded_text(path, MAX_REQUEST)?;
        // `None`: a request does not say on which server a tool is.
        let tools =
            read_tools(None, &text).map_err(|error| InputError(format!("{}: {error}", path.display())))?;
        // `read_tools` has parsed the text already, so this does not fail.
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(Self { tools: tools.tools, messages: messages(&document) })
    }

    /// Reports which tools and messages of the request a policy hides from the steps at the base label, which is here
    /// the strictest requirement of the request's tools. `name` is the policy's file.
    pub(super) fn examine(&self, policy: &Arc<Policy>, name: &str, findings: &mut Findings) {
        if policy.is_rules_only() {
            findings.right(format!("nothing is hidden by {name}: it has only rules"));
            return;
        }
        let mut monitor = Monitor::new(Arc::clone(policy));
        // The tools as the policy names them.
        let tools: Vec<Tool> = self.tools.iter().map(|tool| named_as(policy, &tool.tool)).collect();
        monitor.declare_tools(&tools);
        self.examine_requirements(&monitor, &tools, name, findings);
        let base = monitor.strictest_requirement(&tools);
        for (role, text) in &self.messages {
            let entry =
                TraceEntry::from(Message { role: role.clone(), content: Value::String(text.clone()) });
            examine_message(&mut monitor, entry, role, &base, name, findings);
        }
        self.examine_descriptions(&mut monitor, &tools, &base, name, findings);
        let unlabelled: Vec<&Tool> = tools.iter().filter(|tool| !monitor.labels_outputs(tool)).collect();
        if !unlabelled.is_empty() && !policy.has_default_label() {
            findings.note(format!(
                "the answers of {} are hidden from the steps at the base label, and the model looks at them when it needs them; a statement \
                 `label out as ...` shows them",
                joined_names(&unlabelled)
            ));
        }
    }

    /// Reports the tools without a `require`. Their requirement is bottom, so while the model is offered one of them, the
    /// steps at the base label are shown only trusted, public text. `tools` are the tools of the request as the policy
    /// names them, and `name` is the policy's file.
    fn examine_requirements(&self, monitor: &Monitor, tools: &[Tool], name: &str, findings: &mut Findings) {
        let unrequired: Vec<&Tool> = tools.iter().filter(|tool| !monitor.has_requirement(tool)).collect();
        if unrequired.is_empty() {
            findings.right(format!("{name} has a `require` for each of {}", plural(tools.len(), "tool")));
            return;
        }
        let what = monitor.describe(&Label::BOTTOM).join(", ");
        findings.wrong(format!(
            "no `require` covers {}, so the steps at the base label are shown only what is {what}, while such a tool is on offer; write\n\
             require LABEL if:\n    (call: ToolCall) is tool:{}",
            joined_names(&unrequired),
            pattern(unrequired.first().copied())
        ));
    }

    /// Reports the tools whose descriptions do not flow to the base label (`base`), so that the steps at this label are
    /// not offered the tools: no statement labels the description, or its label is too high. `tools` are the tools of the
    /// request as the policy names them, and `name` is the policy's file. A description that the monitor rejects is left
    /// out.
    fn examine_descriptions(
        &self,
        monitor: &mut Monitor,
        tools: &[Tool],
        base: &Label,
        name: &str,
        findings: &mut Findings,
    ) {
        let mut hidden = Vec::new();
        let mut lines: Vec<usize> = Vec::new();
        for (described, tool) in self.tools.iter().zip(tools) {
            let description = ToolDescription {
                tool: tool.clone(),
                description: described.description.clone(),
                input_schema: Arc::new(Value::Object(Map::new())),
                output_schema: None,
                other: Map::new(),
            };
            // Only the label matters here, so the findings of rules are dropped.
            let Ok((event, _)) = monitor.push(TraceEntry::from(description)) else { continue };
            // The event was added, so the fallback is never used.
            let label = monitor.trace().event(event).map_or(Label::BOTTOM, |event| event.label);
            if !label.flows_to(base) {
                hidden.push(tool);
                // Node 0 is the root of the description.
                lines.extend(
                    monitor
                        .labelling_statements(event, 0)
                        .iter()
                        .map(|span| statement_line(name, monitor.policy(), span).1),
                );
            }
        }
        lines.sort_unstable();
        lines.dedup();
        if hidden.is_empty() {
            findings.right(format!(
                "the descriptions of {} are shown to every step",
                plural(tools.len(), "tool")
            ));
            return;
        }
        let what = monitor.describe(base).join(", ");
        let advice = match lines.as_slice() {
            [] => format!(
                "after you have read their descriptions, write\nlabel tool as {what} if:\n    (tool: Tool) is tool:{}",
                pattern(hidden.first().copied())
            ),
            lines => format!(
                "the label of {name}, line {}, is above {what}; lower that label if you trust these descriptions",
                joined_numbers(lines)
            ),
        };
        findings.wrong(format!("{} hidden from the steps at the base label: {advice}", tools_are(&hidden)));
    }
}

/// Adds the message `entry` of the role `role` to the monitor, and reports whether its label flows to the base label
/// (`base`), so that every step is shown the message. `name` is the policy's file. A message that the monitor rejects is
/// not reported.
fn examine_message(
    monitor: &mut Monitor,
    entry: TraceEntry,
    role: &str,
    base: &Label,
    name: &str,
    findings: &mut Findings,
) {
    // Only the label matters here, so the findings of rules are dropped.
    let Ok((event, _)) = monitor.push(entry) else { return };
    // The event was added, so the fallback is never used.
    let label = monitor.trace().event(event).map_or(Label::BOTTOM, |event| event.label);
    if label.flows_to(base) {
        findings.right(format!("the {role} message is shown to every step"));
        return;
    }
    // Node 0 is the root of the message.
    let lines: Vec<usize> = monitor
        .labelling_statements(event, 0)
        .iter()
        .map(|span| statement_line(name, monitor.policy(), span).1)
        .collect();
    let what = monitor.describe(base).join(", ");
    findings.wrong(match lines.as_slice() {
        [] => format!(
            "the {role} message is hidden from the steps at the base label, since no statement labels it; write\nlabel message as {what} if:\n    \
             (message: Message)\n    message.role == \"{role}\""
        ),
        lines => format!("the {role} message is hidden from the steps at the base label: {name}, line {}, gives it a label above {what}; lower that label if you trust these messages", joined_numbers(lines)),
    });
}

/// Returns the messages of a request that the operator and the user wrote, as pairs of role and text: at most the
/// first of each role, because policies usually label messages by role. A content that is not one text is replaced
/// by another text, since only the label of the message matters.
fn messages(request: &Value) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let listed = ["messages", "input"].into_iter().filter_map(|key| request.get(key)?.as_array()).flatten();
    for message in listed {
        let role = match message.get("role").and_then(Value::as_str) {
            Some("system" | "developer") => "system",
            Some("user") => "user",
            // The model or a tool wrote the message.
            _ => continue,
        };
        let text = message.get("content").and_then(Value::as_str).unwrap_or("A message.");
        if found.iter().all(|(known, _)| known != role) {
            found.push((role.to_owned(), text.to_owned()));
        }
    }
    // Some APIs have the system message in a field of the request.
    let top = ["system", "instructions"].into_iter().find_map(|key| request.get(key));
    if let Some(top) = top.filter(|_| found.iter().all(|(role, _)| role != "system")) {
        found.insert(0, ("system".to_owned(), top.as_str().unwrap_or("A message.").to_owned()));
    }
    found
}

/// Returns a tool as the policy names it. A client gives the tool `NAME` of a server the name `mcp__SERVER__NAME`; if
/// the policy names that server and tool, returns the policy's form, otherwise the tool as it is.
fn named_as(policy: &Policy, tool: &Tool) -> Tool {
    let named = policy.named_tools().into_iter().find(|named| {
        let server = named.server.as_deref();
        server.is_some_and(|server| *tool.name == *format!("mcp__{server}__{}", named.name))
    });
    named.unwrap_or_else(|| tool.clone())
}

/// Joins the names of tools with commas for a sentence: at most [`MAX_NAMED`] of them, then how many more there are.
fn joined_names(tools: &[&Tool]) -> String {
    let first: Vec<String> = tools.iter().take(MAX_NAMED).map(|tool| tool.to_string()).collect();
    match tools.len() - first.len() {
        0 => first.join(", "),
        more => format!("{}, and {more} more", first.join(", ")),
    }
}

/// Returns the subject and the verb of a sentence about tools: `the tool a is`, or `the tools a, b are`.
fn tools_are(tools: &[&Tool]) -> String {
    if tools.len() == 1 {
        format!("the tool {} is", joined_names(tools))
    } else {
        format!("the tools {} are", joined_names(tools))
    }
}

/// Joins the numbers of lines with commas, such as `3, 7`.
fn joined_numbers(lines: &[usize]) -> String {
    lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns how a policy spells a tool, for a statement to write; `NAME` if there is no tool, or its name is not a plain
/// name.
fn pattern(tool: Option<&Tool>) -> String {
    let plain = |tool: &&Tool| {
        plain_name(&tool.name).is_some()
            && tool.server.as_deref().is_none_or(|server| plain_name(server).is_some())
    };
    tool.filter(plain).map_or_else(|| "NAME".to_owned(), ToString::to_string)
}
