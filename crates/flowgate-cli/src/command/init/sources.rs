//! Reads the files from which `flowgate init` drafts a policy: lists of tools, requests to a model, `mcpServers` files,
//! traces, and results of `flowgate scan` (by `scan_result`). Collects the tools, servers and system messages that they
//! describe. [`super::run`] calls [`read()`], and starts the servers only with `--start`.

use std::collections::BTreeMap;
use std::path::Path;

use flowgate::draft::{DescribedArgument, DescribedTool, ToolHints, read_tools};
use flowgate::trace::{EventBody, Tool, read};
use serde_json::Value;

use super::scan_result;
use crate::input::{self, InputError, bounded_text};
use crate::mcp::{self, McpServerSpec};

/// The largest file, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// The maximum number of system messages that are kept, for the configuration of the gateway to pin.
const MAX_INSTRUCTIONS: usize = 4;

/// The tools, servers and system messages that the files describe.
#[derive(Default)]
pub(super) struct ToolSources {
    pub(super) tools: Vec<DescribedTool>,
    /// The servers of `mcpServers` files, and of the files that scans name.
    pub(super) servers: Vec<McpServerSpec>,
    /// The texts of system messages in requests, which the operator wrote.
    pub(super) instructions: Vec<String>,
    /// The servers of a scan that cannot be used, each with the reason on one line.
    pub(super) left_out: Vec<String>,
    /// Whether a list has further pages, or tools that the provider of the model runs.
    pub(super) has_unknown_tools: bool,
}

/// Reads all files, each given as `FILE` or `SERVER=FILE`; an argument with a `/` before the `=` is a path. `expands`
/// says whether to put the values of environment variables into the command lines of servers. The values are needed
/// only to start the servers.
///
/// # Errors
/// If a file cannot be read, or has none of the known forms.
pub(super) fn read(arguments: &[String], expands: bool) -> Result<ToolSources, InputError> {
    let mut found = ToolSources::default();
    for argument in arguments {
        let (server, path) = input::split_name(argument);
        let problem = match server {
            Some("") => Some("the server has no name; write NAME=FILE"),
            Some(Tool::FLOWGATE_SERVER) => {
                Some("the name `flowgate` is reserved for Flowgate itself; write NAME=FILE with another name")
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(InputError(format!("{argument}: {problem}")));
        }
        let text = bounded_text(Path::new(path), MAX_FILE)?;
        found.add(server, path, &text, expands)?;
    }
    Ok(found)
}

impl ToolSources {
    /// Adds what one file with the content `text` describes: servers of a configuration with `mcpServers`, servers
    /// that `flowgate scan` found, tools of a list or of a request to a model, or the tools of a trace. `server` is
    /// the server of the listed tools, and `path` the name of the file in error messages. `expands` says whether to
    /// put the values of environment variables into the command lines of servers.
    ///
    /// # Errors
    /// If the file is none of these.
    fn add(&mut self, server: Option<&str>, path: &str, text: &str, expands: bool) -> Result<(), InputError> {
        let document: Value = serde_json::from_str(text).unwrap_or_default();
        if document.get("mcpServers").is_some() {
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            let servers = mcp::read(text, folder, &|name| {
                // A server that is not started needs no values of variables, which may be secrets.
                if expands { std::env::var(name).ok() } else { Some(String::new()) }
            });
            self.servers.extend(servers.map_err(|error| InputError(format!("{path}: {error}")))?);
            return Ok(());
        }
        if let Some(files) = scan_result::files(&document) {
            let found = scan_result::servers(&files, expands)
                .map_err(|problem| InputError(format!("{path}: {problem}")))?;
            self.servers.extend(found.servers);
            self.left_out.extend(found.left_out);
            return Ok(());
        }
        match read_tools(server, text) {
            Ok(list) => {
                self.tools.extend(list.tools);
                self.has_unknown_tools |= list.has_hosted_tools || list.has_next_page;
                self.instructions.extend(instructions(&document));
                self.instructions.truncate(MAX_INSTRUCTIONS);
                Ok(())
            }
            Err(problem) => match tools_of_trace(text) {
                Some(tools) if !tools.is_empty() => {
                    self.tools.extend(tools);
                    Ok(())
                }
                // A request to a model can be read as a trace as well. If the document has `tools`, the problem is in
                // them.
                Some(_) if document.get("tools").is_none() => Err(InputError(format!(
                    "{path}: the trace describes no tool and calls none: give one that does, or a list of tools"
                ))),
                _ => Err(InputError(format!("{path}: {problem}; the file is not a trace with tools either"))),
            },
        }
    }
}

/// Returns the instructions in a request to a model, which the configuration of the gateway can pin: the texts of its
/// system messages and of its fields `system` and `instructions`.
fn instructions(request: &Value) -> Vec<String> {
    let messages = ["messages", "input"].into_iter().filter_map(|key| request.get(key)?.as_array()).flatten();
    let system_messages = messages.filter(|message| {
        matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer"))
    });
    let contents = system_messages.filter_map(|message| message.get("content"));
    // Some APIs have the instructions in a field of the request.
    let fields = ["system", "instructions"].into_iter().filter_map(|key| request.get(key));
    let texts = contents.chain(fields).flat_map(|content| match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    });
    texts.filter(|text| !text.trim().is_empty()).collect()
}

/// Returns the tools that a trace describes or calls; `None` if the text is not a trace, or has no entries. If a call
/// has an argument that the tool's description lacks, the argument is added to the tool.
fn tools_of_trace(text: &str) -> Option<Vec<DescribedTool>> {
    let runs = read::file(text).ok()?;
    let mut tools: BTreeMap<Tool, DescribedTool> = BTreeMap::new();
    let entries = || runs.iter().flat_map(|run| &run.entries);
    // An empty text can be read as a trace without entries.
    entries().next()?;
    // The descriptions are read first, so that the calls add only arguments that the descriptions lack.
    for entry in entries() {
        if let EventBody::Tool(described) = &entry.body {
            let (tool, words) = (described.tool.clone(), described.description.clone());
            let described =
                DescribedTool::new(tool.clone(), words, Some(&described.input_schema), ToolHints::default());
            tools.insert(tool, described);
        }
    }
    for entry in entries() {
        let EventBody::Call(call) = &entry.body else { continue };
        let known = tools.entry(call.tool.clone()).or_insert_with(|| {
            DescribedTool::new(call.tool.clone(), String::new(), None, ToolHints::default())
        });
        for (name, value) in call.arguments.iter().flatten() {
            if !known.arguments.iter().any(|argument| argument.name == *name) {
                let kind = match value {
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "number",
                    _ => "string",
                };
                known.arguments.push(DescribedArgument::new(name, &serde_json::json!({"type": kind})));
            }
        }
    }
    Some(tools.into_values().collect())
}
