//! Runs `flowgate init`: drafts a policy from files that describe tools, and writes it. The files are lists of tools,
//! requests to models, configurations of MCP servers, results of `flowgate scan`, or traces. With `--gateway`, also
//! writes a configuration of the gateway.
//!
//! * `sources` reads the files.
//! * `scan_result` finds the servers that a result of `flowgate scan` names.
//! * `gateway_file` writes the configuration of the gateway.

mod gateway_file;
mod scan_result;
mod sources;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowgate::draft::{
    DescribedTool, DraftOptions, PolicyDraft, ToolEffect, ToolReach, ToolTraits, draft_policy,
};
use flowgate::policy::Policy;

use crate::args::InitArgs;
use crate::escaping;
use crate::input::{InputError, describe_io_error};
use crate::mcp::{self, AsyncRuntime};
use crate::output::{Console, plural};
use sources::ToolSources;

/// The maximum number of tools that the summary lists.
const MAX_SUMMARY: usize = 40;

/// Runs `flowgate init`: reads the files, with `--start` starts the servers that they name and lists their tools, and
/// writes the draft. Returns 1 if a server did not list its tools, otherwise 0.
pub(crate) fn run(options: &InitArgs, output: &mut Console) -> Result<u8, InputError> {
    // With `--out -`, the policy is printed. A file that must not be replaced is reported before a server is started.
    let prints = options.out == Path::new("-");
    let targets = [Some(&options.out).filter(|_| !prints), options.gateway.as_ref()];
    targets.into_iter().flatten().try_for_each(|path| check_absent(path, options.force))?;
    let mut found = sources::read(&options.files, options.start)?;
    for why in &found.left_out {
        output.warning(&format!("left out: {why}"));
    }
    // The names of the started servers that did not list their tools.
    let silent = if options.start { start_servers(&mut found, options, output)? } else { Vec::new() };
    if found.tools.is_empty() && found.servers.is_empty() && silent.is_empty() {
        return Err(InputError("the files describe no tool and no server; give a list of tools".to_owned()));
    }
    let draft = draft_policy(&found.tools, DraftOptions { ignores_hints: options.no_hints });
    // `start_servers` has taken the servers, so `found.servers` has only those that were not started.
    let unlisted: Vec<&str> = found
        .servers
        .iter()
        .map(|spec| spec.name.as_str())
        .chain(silent.iter().map(String::as_str))
        .collect();
    let text = format!("{}{}", draft.text, unlisted_comments(&unlisted));
    if Policy::parse(&text).is_err() {
        return Err(InputError(
            "the draft does not compile; this is a defect of Flowgate; please report it".to_owned(),
        ));
    }
    if prints {
        output.write_bytes(text.as_bytes());
    } else {
        write(&options.out, &text, options.force)?;
    }
    if let Some(path) = &options.gateway {
        let text = gateway_file::text(options, &found.instructions);
        write(path, &text, options.force)?;
    }
    if !prints {
        print_summary(&draft, &found, options, output);
    }
    if !found.servers.is_empty() {
        let names: Vec<&str> = found.servers.iter().map(|spec| spec.name.as_str()).collect();
        output.note(&format!(
            "the tools of {} are unknown, so they stay closed: nothing was started; `--start` starts {} and lists them",
            names.join(", "),
            if names.len() == 1 { "the server" } else { "the servers" }
        ));
    }
    Ok(u8::from(!silent.is_empty()))
}

/// Starts the servers that the files name, and adds their tools to `found`; `found.servers` is empty afterwards. Prints
/// an error for each server that did not list its tools, and returns the names of these servers.
fn start_servers(
    found: &mut ToolSources,
    options: &InitArgs,
    output: &mut Console,
) -> Result<Vec<String>, InputError> {
    let specs = std::mem::take(&mut found.servers);
    if specs.is_empty() {
        output.note("--start has no effect: no file names a server; name a configuration with `mcpServers`, or leave the option out");
        return Ok(Vec::new());
    }
    output.note(&format!("starting {}, for at most {} s", plural(specs.len(), "server"), options.seconds));
    let runtime = AsyncRuntime::start().map_err(|error| {
        InputError(format!("the system can start no thread: {error}; end other programs and try again"))
    })?;
    let limit = Duration::from_secs(u64::from(options.seconds));
    let mut silent = Vec::new();
    // Never cancelled: Ctrl-C ends the program.
    for (name, tools) in mcp::list_tools(specs, limit, &Arc::new(runtime), &|| false) {
        match tools {
            Ok(tools) => found.tools.extend(tools),
            Err(why) => {
                output.error(&format!("the server `{name}` {why}"));
                silent.push(name);
            }
        }
    }
    Ok(silent)
}

/// Returns the comments of the draft about servers that were not started or did not list their tools: their tools stay
/// closed, since no statement names them.
fn unlisted_comments(servers: &[&str]) -> String {
    servers
        .iter()
        .map(|name| {
            // The name has only letters, digits, `-`, `_` and `.`, so it cannot end the comment.
            format!("\n# {name}: its tools are unknown, so all of them stay closed. `flowgate init --start` lists them.\n")
        })
        .collect()
}

/// Checks that a file does not exist, unless `force` permits to replace it.
fn check_absent(path: &Path, force: bool) -> Result<(), InputError> {
    if !force && path.exists() {
        let advice = "the file exists already; replace it with --force, or give another name";
        return Err(InputError(format!("{}: {advice}", path.display())));
    }
    Ok(())
}

/// Writes a file, which must not exist unless `force` permits to replace it.
fn write(path: &Path, text: &str, force: bool) -> Result<(), InputError> {
    let mut options = std::fs::OpenOptions::new();
    let opened = if force {
        options.write(true).create(true).truncate(true).open(path)
    } else {
        options.write(true).create_new(true).open(path)
    };
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "there is no permission to write the file; name a file in another folder".to_owned()
            }
            _ => describe_io_error(&error),
        };
        InputError(format!("{}: {why}", path.display()))
    })
}

/// Prints what the draft says about each tool, and what to do next.
fn print_summary(draft: &PolicyDraft, found: &ToolSources, options: &InitArgs, output: &mut Console) {
    let rows: Vec<Vec<String>> = draft
        .tools
        .iter()
        .take(MAX_SUMMARY)
        .map(|(tool, traits)| vec![escaping::line(&tool.to_string()), summary(traits).to_owned()])
        .collect();
    if !rows.is_empty() {
        output.table(&["tool", "what the draft says"], &rows);
    }
    let more = draft.tools.len().saturating_sub(MAX_SUMMARY);
    if more > 0 {
        output.line(&format!("and {} more", plural(more, "tool")));
    }
    for tool in &draft.suspicious {
        output.warning(&format!(
            "the description of `{}` resembles an instruction to the model, or has hidden characters; the tool stays hidden",
            escaping::line(&tool.to_string())
        ));
    }
    if found.has_unknown_tools {
        output.note("the files name tools that the provider of a model runs, or lists of tools with further pages; the draft does not cover these tools, so add statements for them");
    }
    // A tool that several files describe counts once.
    let count = found
        .tools
        .iter()
        .map(|tool: &DescribedTool| &tool.tool)
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    let closed = match draft.closed {
        0 => String::new(),
        closed => format!(", {closed} of them closed"),
    };
    output.line(&format!("{}: {}{closed}", options.out.display(), plural(count, "tool")));
    if let Some(path) = &options.gateway {
        output.line(&format!("Next: read both files, then `flowgate doctor --config {}`", path.display()));
    } else {
        output.line(&format!(
            "Next: read it, then `flowgate check {}` with a recorded run",
            options.out.display()
        ));
    }
}

/// Returns the phrase in the printed summary that states how the drafted policy treats a tool with these traits.
fn summary(traits: &ToolTraits) -> &'static str {
    match (traits.effect, traits.reach) {
        (ToolEffect::Reads, ToolReach::Closed) => "reads; untrusted text may influence it",
        (ToolEffect::Reads, ToolReach::Open) => "reads; nothing private may go to it",
        (ToolEffect::Acts, ToolReach::Closed) => "acts; only trusted text decides about it",
        (ToolEffect::Acts, ToolReach::Open) => {
            "acts; only trusted text decides about it, nothing private may go to it"
        }
        (ToolEffect::Destroys, _) => "destroys or spends; needs approval once untrusted text was read",
        (ToolEffect::Unknown, _) => {
            "closed until you write its statements: neither its description nor its annotations say what it does"
        }
    }
}
