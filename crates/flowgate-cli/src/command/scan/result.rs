//! Prints the result of `flowgate scan`, as text or as JSON. The names of servers and of tools are untrusted, so they
//! are escaped and truncated in the text.

use serde_json::{Value, json};

use super::programs::{hook_program, program};
use super::{
    Bypass, Combination, CombinationKind, HookCover, ScanResult, ScannedFile, ScannedServer, ScannedTool,
    ServerTools,
};
use crate::clients::hooks::{ConfiguredHook, HookEffect};
use crate::clients::known_tools::GuessedTraits;
use crate::clients::packages::UnreadPackage;
use crate::clients::places::{FileScope, McpClient};
use crate::escaping;
use crate::output::{Console, plural};

/// The maximum number of servers or tools that a finding names in each group: those that read text of strangers, those
/// that read private data, and those that act.
const MAX_NAMED: usize = 6;
/// The maximum number of tools that are shown of one server.
const MAX_TOOLS: usize = 40;

/// Prints the servers and hooks of each file, the combinations (what the servers of one client can do together), and a
/// summary.
pub(super) fn print_text(result: &ScanResult, output: &mut Console) {
    for found in result.files.iter().filter(|found| !found.servers.is_empty() || !found.hooks.is_empty()) {
        let title = format!("{}  {}", found.file.client.name, found.file.path.display());
        let title = output.paint("1", &escaping::line(&title));
        output.line(&title);
        let rows: Vec<Vec<String>> = found.servers.iter().flat_map(rows_of).collect();
        if !rows.is_empty() {
            output
                .table(&["  server", "program", "strangers' text", "private data", "acts", "guarded"], &rows);
        }
        print_notes(found, output);
        for hook in &found.hooks {
            output.line(&hook_line(found, hook));
        }
        output.line("");
    }
    for (client, combination) in &result.combinations {
        let mark = output.paint("33", "!");
        output.line(&format!("{mark} {}", sentence(client, combination)));
    }
    print_summary(result, output);
}

/// Returns the line about a hook: whether it guards the client and, if it is a hook of Flowgate that does not, why.
fn hook_line(found: &ScannedFile, hook: &ConfiguredHook) -> String {
    // A hook can have a key in its command line: only its program is shown.
    let program = escaping::excerpt(&hook_program(&hook.command), 60);
    match found.effect_of(hook) {
        HookEffect::NotFlowgate => format!("  hook   {program}"),
        HookEffect::Gap(gap) => format!("  hook   {program} {}", escaping::excerpt(&gap.description(), 120)),
        HookEffect::Guards if found.hooks_are_off => {
            let cause = if found.switches_hooks_off {
                "this file switches hooks off"
            } else {
                "another file switches hooks off"
            };
            format!("  hook   {program} does not run, since {cause}")
        }
        HookEffect::Guards => {
            let place = if found.file.scope == FileScope::Project { " in this project" } else { "" };
            let failure = if hook.fails_open() {
                "; if it cannot run, calls pass: end its command with `|| exit 2`"
            } else {
                ""
            };
            format!("  guards {program}{place}{failure}")
        }
    }
}

/// Returns the rows of a server and of its tools in the table. `?` says that nothing suggests the answer.
fn rows_of(found: &ScannedServer) -> Vec<Vec<String>> {
    let row = |name: String, program: String, traits: &GuessedTraits, guarded: &str| {
        let cell = |has: Option<bool>| match has {
            None => "?".to_owned(),
            Some(true) => "yes".to_owned(),
            Some(false) => "-".to_owned(),
        };
        let cells = [traits.reads_strangers, traits.reads_private, traits.acts].map(cell);
        [name, program].into_iter().chain(cells).chain([guarded.to_owned()]).collect()
    };
    let guarded = if found.server.is_guarded() { "yes" } else { "-" };
    let name = format!("  {}", escaping::excerpt(&found.server.name, 40));
    let mut rows = vec![row(name, program(&found.server), &found.traits, guarded)];
    if let ServerTools::Listed(tools) = &found.tools {
        // The row of a tool has the effect of the tool where the row of a server has the program.
        rows.extend(tools.iter().take(MAX_TOOLS).map(|tool| {
            row(
                format!("    {}", escaping::excerpt(&tool.name, 60)),
                tool.effect.to_owned(),
                &tool.traits,
                "",
            )
        }));
    }
    rows
}

/// Prints what the table cannot say of the servers of a file: why tools are not known, how many are not shown, and
/// which descriptions resemble instructions.
fn print_notes(found: &ScannedFile, output: &mut Console) {
    for server in &found.servers {
        let name = escaping::excerpt(&server.server.name, 40);
        match &server.tools {
            ServerTools::NotRequested => {}
            ServerTools::Unlisted(why) => {
                output.line(&format!("  {name}: {}; guessed by its name", escaping::line(why)));
            }
            ServerTools::Listed(tools) => {
                let more = tools.len().saturating_sub(MAX_TOOLS);
                if more > 0 {
                    output.line(&format!("  {name}: and {} more", plural(more, "tool")));
                }
                for tool in tools.iter().filter(|tool| tool.is_suspicious).take(MAX_NAMED) {
                    output.line(&format!(
                        "  {name}: a description resembles an instruction to the model, or has hidden characters: {}",
                        escaping::excerpt(&tool.name, 60)
                    ));
                }
            }
        }
    }
}

/// Prints how many clients and servers there are and what is not known of them, what bypasses Flowgate, what could not be
/// read, and what to do next.
fn print_summary(result: &ScanResult, output: &mut Console) {
    let servers = || result.files.iter().flat_map(|found| &found.servers);
    // Whether it is not known of some trait if the server or tool has it.
    let is_unknown = |traits: &GuessedTraits| {
        [traits.reads_strangers, traits.reads_private, traits.acts].iter().any(Option::is_none)
    };
    let guarded = servers().filter(|found| found.server.is_guarded()).count();
    let counted =
        format!("{}, {}", plural(result.clients.len(), "client"), plural(servers().count(), "server"));
    if result.has_started {
        let unknown_tools = |found: &ScannedServer| match &found.tools {
            ServerTools::Listed(tools) => tools.iter().filter(|tool| is_unknown(&tool.traits)).count(),
            _ => 0,
        };
        let unlisted = servers().filter(|found| !matches!(found.tools, ServerTools::Listed(_))).count();
        output.line(&format!(
            "{counted}: {guarded} guarded; {} did not list tools; {} may do more than the name says",
            plural(unlisted, "server"),
            plural(servers().map(unknown_tools).sum::<usize>(), "tool")
        ));
    } else {
        let unknown = servers().filter(|found| is_unknown(&found.traits)).count();
        output.line(&format!(
            "{counted}: {guarded} guarded; {} may do anything, since the name suggests nothing",
            plural(unknown, "server")
        ));
    }
    if !result.bypasses.is_empty() {
        let named: Vec<String> =
            result.bypasses.iter().map(|(client, bypass)| bypass_of(client, bypass)).collect();
        output.line(&format!("Bypasses Flowgate: {}", named.join("; ")));
    }
    if !result.unread.is_empty() {
        output.line(&format!(
            "Not read, so servers and hooks may be missing above: {}",
            not_read(&result.unread).join("; ")
        ));
    }
    if let Some((client, _)) = result.combinations.first() {
        output.line(&format!(
            "Next: `flowgate init FILE --start` drafts a policy; `flowgate wrap {} --policy policy.flow` puts the servers behind it",
            client.id
        ));
    }
}

/// Returns what could not be read, each with its client and the reason. After [`MAX_NAMED`] of them, the last text says
/// how many more there are.
fn not_read(unread: &[UnreadPackage]) -> Vec<String> {
    let named = unread.iter().take(MAX_NAMED).map(|unread| {
        let name = escaping::excerpt(&unread.name, 120);
        // `why` can have a long path before the reason, so the limit is high.
        format!("{}: {name} {}", unread.client.name, escaping::excerpt(&unread.why, 400))
    });
    let more = unread.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("and {more} more"));
    named.chain(more).collect()
}

/// Returns a client with what bypasses Flowgate there, such as `Cursor (its own tools, without a hook, web)`, where
/// `web` is a server.
fn bypass_of(client: &McpClient, bypass: &Bypass) -> String {
    let own = bypass.has_own_tools.then(|| {
        match bypass.cover {
            HookCover::NoHook => "its own tools, without a hook",
            HookCover::Gap => "its own tools, which its hook does not guard",
            // `has_own_tools` is false with `Everywhere`: the hook then guards the client's own tools as well.
            HookCover::Project | HookCover::Everywhere => "its own tools, outside this project",
        }
        .to_owned()
    });
    let servers = bypass.servers.iter().take(MAX_NAMED).map(|name| escaping::excerpt(name, 40));
    let more = bypass.servers.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("and {} more", plural(more, "server")));
    let parts: Vec<String> = own.into_iter().chain(servers).chain(more).collect();
    format!("{} ({})", client.name, parts.join(", "))
}

/// Describes in one sentence what a stranger can make a client do through a combination of its tools: some return text
/// of strangers (`strangers`), some read private data (`private`), and some send or change something (`acts`).
fn sentence(client: &McpClient, combination: &Combination) -> String {
    let named = |names: &[String]| {
        let first: Vec<String> =
            names.iter().take(MAX_NAMED).map(|name| escaping::excerpt(name, 40)).collect();
        let more = names.len() - first.len();
        if more == 0 { first.join(", ") } else { format!("{}, and {more} more", first.join(", ")) }
    };
    let (strangers, acts) = (named(&combination.strangers), named(&combination.acts));
    match combination.kind {
        CombinationKind::Leaks => format!(
            "{} can leak: a text that a stranger wrote (by way of {strangers}) can make it send private data (of {}) away (by way of {acts})",
            client.name,
            named(&combination.private)
        ),
        CombinationKind::IsSteered => format!(
            "{} can be steered: a text that a stranger wrote (by way of {strangers}) can make it act (by way of {acts})",
            client.name
        ),
    }
}

/// Returns the result as JSON. It has no arguments of servers and no commands of hooks, which can have keys.
pub(super) fn to_json(result: &ScanResult) -> Value {
    let clients = result.clients.iter().map(|client| {
        let files = result.files.iter().filter(|found| found.file.client == *client).map(file_json);
        let finding = result.combinations.iter().find(|(of, _)| of == client).map(|(_, combination)| {
            json!({
                "kind": match combination.kind { CombinationKind::Leaks => "leaks", CombinationKind::IsSteered => "steered" },
                "strangers": combination.strangers,
                "private": combination.private,
                "acts": combination.acts,
            })
        });
        let bypass = result.bypasses.iter().find(|(of, _)| of == client).map(
            |(_, bypass)| json!({"own_tools": bypass.has_own_tools, "servers": bypass.servers}),
        );
        json!({
            "client": client.id,
            "files": files.collect::<Vec<_>>(),
            "combination": finding,
            "bypass": bypass,
        })
    });
    let unread = result
        .unread
        .iter()
        .map(|unread| json!({"client": unread.client.id, "name": unread.name, "reason": unread.why}));
    json!({"clients": clients.collect::<Vec<_>>(), "not_read": unread.collect::<Vec<_>>()})
}

/// Returns a file of a client as JSON.
fn file_json(found: &ScannedFile) -> Value {
    json!({
        "path": found.file.path.display().to_string(),
        "scope": match found.file.scope {
            FileScope::User => "user",
            FileScope::Project => "project",
            FileScope::System => "system",
        },
        "servers": found.servers.iter().map(server_json).collect::<Vec<_>>(),
        "hooks": found.hooks.len(),
        "guarded_by_hook": found.has_guard(),
        "hooks_that_fail_open": found.hooks.iter().filter(|hook| {
            found.effect_of(hook) == HookEffect::Guards && hook.fails_open()
        }).count(),
        "hook_gaps": found.hooks.iter().filter_map(|hook| match found.effect_of(hook) {
            HookEffect::Gap(gap) => Some(gap.description()),
            HookEffect::Guards | HookEffect::NotFlowgate => None,
        }).collect::<Vec<_>>(),
    })
}

/// Returns a server as JSON. The field `judged_by` says what the traits of the server are guessed from. The field
/// `unlisted` says why the tools of a server could not be listed; other servers do not have it.
fn server_json(found: &ScannedServer) -> Value {
    let mut server = json!({
        "name": found.server.name,
        "program": program(&found.server),
        "reads_strangers": found.traits.reads_strangers,
        "reads_private": found.traits.reads_private,
        "acts": found.traits.acts,
        "guarded": found.server.is_guarded(),
        "judged_by": if matches!(found.tools, ServerTools::Listed(_)) { "tools" } else { "name" },
    });
    let Some(fields) = server.as_object_mut() else { return server };
    match &found.tools {
        ServerTools::NotRequested => {}
        ServerTools::Unlisted(why) => {
            fields.insert("unlisted".to_owned(), json!(why));
        }
        ServerTools::Listed(tools) => {
            fields.insert("tools".to_owned(), tools.iter().map(tool_json).collect());
        }
    }
    server
}

/// Returns a tool as JSON.
fn tool_json(tool: &ScannedTool) -> Value {
    json!({
        "name": tool.name,
        "effect": tool.effect,
        "reads_strangers": tool.traits.reads_strangers,
        "reads_private": tool.traits.reads_private,
        "acts": tool.traits.acts,
        "suspicious": tool.is_suspicious,
    })
}
