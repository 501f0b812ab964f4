//! Compares a policy with files that describe tools, for `flowgate check --tools`. Prints which tools and arguments the
//! policy names although no file describes them, and which tools the policy does not cover. `warnings` adds the result
//! to the output in JSON and SARIF.

use std::path::Path;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::{Diagnostic, Policy, Severity};
use flowgate::tool_schemas::ToolSchemas;
use flowgate::trace::Tool;
use serde_json::{Value, json};

use crate::escaping;
use crate::input::{self, InputError};
use crate::output::{Console, plural};

/// The largest file of tools, in bytes.
const MAX_TOOL_FILE: u64 = 16 << 20;
/// The maximum number of tools that a printed note names.
const MAX_NAMED: usize = 20;

/// The result of a comparison that found no errors.
#[derive(Debug, Default)]
pub(crate) struct ToolComparison {
    /// The warnings, which are printed already.
    pub(crate) warnings: Vec<Diagnostic>,
    notes: Vec<ToolNote>,
}

/// A note about tools: that they were not compared, or that no statement covers them.
#[derive(Debug)]
struct ToolNote {
    /// The identifier of this kind of note, for programs that read the output.
    code: &'static str,
    message: String,
    /// The tools that the note lists; may be empty.
    tools: Vec<String>,
}

/// Compares a policy with the files of the arguments, each `FILE` or `SERVER=FILE`, and prints the result. `name` is
/// the name of the policy's file.
///
/// # Errors
/// If a file cannot be used, or if the policy names a tool or an argument that does not exist.
pub(crate) fn compare(
    arguments: &[String],
    name: &str,
    policy: &Arc<Policy>,
    output: &mut Console,
) -> Result<ToolComparison, InputError> {
    let tools = read_files(arguments)?;
    let mut diagnostics = tools.diagnostics(policy);
    for diagnostic in &mut diagnostics {
        // Names of tools and arguments come from servers and are untrusted.
        diagnostic.message = escaping::line(&diagnostic.message);
        diagnostic.help = diagnostic.help.as_deref().map(escaping::line);
    }
    output.diagnostics(name, policy.files(), &diagnostics);
    let errors = diagnostics.iter().filter(|found| found.severity == Severity::Error).count();
    let mut notes = unknown_tool_notes(&tools, policy);
    // After an error, coverage is not reported: a tool whose name the policy misspells would seem uncovered.
    if errors == 0 {
        notes.extend(coverage_notes(&tools, policy));
    }
    notes.iter().for_each(|note| output.note(&note.sentence()));
    if errors > 0 {
        return Err(InputError(format!(
            "{name} has {}; correct the names that are reported",
            plural(errors, "error")
        )));
    }
    // Without errors, all diagnostics are warnings.
    Ok(ToolComparison { warnings: diagnostics, notes })
}

/// Splits an argument of `--tools`, `FILE` or `SERVER=FILE`, into the server, if the argument names one, and the path.
/// An argument with a `/` before the `=` is a path. `flowgate attack` calls this function, too.
///
/// # Errors
/// If the name of the server is empty, or is reserved for Flowgate's own tools.
pub(crate) fn named_file(argument: &str) -> Result<(Option<&str>, &str), InputError> {
    let (server, path) = input::split_name(argument);
    if server.is_some_and(str::is_empty) {
        return Err(InputError(format!("--tools {argument}: the server has no name; write NAME=FILE")));
    }
    if server == Some(Tool::FLOWGATE_SERVER) {
        let problem = "is the server of tools that are part of Flowgate; give the server another name";
        return Err(InputError(format!("--tools {argument}: `{}` {problem}", Tool::FLOWGATE_SERVER)));
    }
    Ok((server, path))
}

/// Reads the files of `--tools`, each `FILE` or `SERVER=FILE`; an argument with a `/` before the `=` is a path. Fails
/// if an argument has an invalid server, or a file cannot be read or does not describe tools.
fn read_files(arguments: &[String]) -> Result<ToolSchemas, InputError> {
    let mut tools = ToolSchemas::new();
    for argument in arguments {
        let (server, path) = named_file(argument)?;
        let text = input::bounded_text(Path::new(path), MAX_TOOL_FILE)?;
        tools.add_list(server, &text).map_err(|error| InputError(format!("{path}: {error}")))?;
    }
    Ok(tools)
}

/// Returns the notes about tools that were not compared: the tools of servers that no file describes, and the tools on
/// further pages of a list, which no file has.
fn unknown_tool_notes(tools: &ToolSchemas, policy: &Policy) -> Vec<ToolNote> {
    let undescribed = tools.undescribed_servers(policy).into_iter().map(|server| {
        let name = &server.name;
        let help = match &server.near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("`--tools {name}=FILE` describes them"),
        };
        let message =
            format!("no file describes the tools of the server `{name}`, so they are not compared; {help}");
        ToolNote { code: "undescribed-server", message, tools: Vec::new() }
    });
    let continued = tools.continued_servers().into_iter().map(|server| {
        let of_server = server.map(|server| format!(" of the server `{server}`")).unwrap_or_default();
        let message = format!(
            "the list of tools{of_server} has further pages (`nextCursor`), so a tool that is missing on this page is not reported; give the other pages too"
        );
        ToolNote { code: "continued-list", message, tools: Vec::new() }
    });
    undescribed.chain(continued).collect()
}

/// Returns the notes about described tools whose calls no `require` covers, or whose answers no `label` covers. There
/// are none for a policy with rules only, which labels nothing, and none about labels for a policy with a `default`
/// statement, which labels what no `label` covers.
fn coverage_notes(tools: &ToolSchemas, policy: &Arc<Policy>) -> Vec<ToolNote> {
    let mut notes = Vec::new();
    if policy.is_rules_only() {
        return notes;
    }
    let monitor = Monitor::new(Arc::clone(policy));
    let uncovered_tools = |is_covered: &dyn Fn(&Tool) -> bool| -> Vec<String> {
        let tools = tools.tools().into_iter().filter(|tool| !is_covered(tool));
        tools.map(ToString::to_string).collect()
    };
    let unrequired = uncovered_tools(&|tool| monitor.has_requirement(tool));
    if !unrequired.is_empty() {
        let allowed = monitor.describe(&Label::BOTTOM).join(", ");
        let count = plural(unrequired.len(), "tool");
        let message = format!("no `require` covers {count}, whose calls may carry only {allowed} data");
        notes.push(ToolNote { code: "no-requirement", message, tools: unrequired });
    }
    let unlabelled = uncovered_tools(&|tool| monitor.labels_outputs(tool));
    if !unlabelled.is_empty() && !policy.has_default_label() {
        let assumed = monitor.describe(&policy.space().top()).join(", ");
        let count = plural(unlabelled.len(), "tool");
        let message = format!("no `label` covers the answers of {count}, which are {assumed}");
        notes.push(ToolNote { code: "no-label", message, tools: unlabelled });
    }
    notes
}

impl ToolNote {
    /// Returns the note on one line: its message, at most [`MAX_NAMED`] of its tools, and its code.
    fn sentence(&self) -> String {
        let named: Vec<&str> = self.tools.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = match self.tools.len() - named.len() {
            0 => String::new(),
            more => format!(", and {more} more, which --format json lists"),
        };
        let list = if named.is_empty() { String::new() } else { format!(": {}{more}", named.join(", ")) };
        escaping::line(&format!("{}{list} [{}]", self.message, self.code))
    }
}

impl ToolComparison {
    /// Returns the notes as JSON.
    pub(crate) fn notes_json(&self) -> Vec<Value> {
        let notes = self.notes.iter();
        notes
            .map(|note| json!({"type": "note", "code": note.code, "message": note.message, "tools": note.tools}))
            .collect()
    }

    /// Returns the notes as SARIF results about the file of the policy.
    pub(crate) fn notes_sarif(&self, policy_name: &str) -> Vec<Value> {
        let notes = self.notes.iter();
        notes
            .map(|note| {
                json!({
                    "ruleId": note.code,
                    "level": "note",
                    "message": {"text": note.sentence()},
                    "locations": [{"physicalLocation": {"artifactLocation": {"uri": policy_name}}}],
                })
            })
            .collect()
    }
}
