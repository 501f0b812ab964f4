//! Changes the command lines of servers in a configuration file of an MCP client, for `flowgate wrap` and `unwrap`.
//! Every other byte stays: comments, the order, and fields that Flowgate does not know.

use flowgate::trace::located_text::{LocatedNode, LocatedNodeKind};
use serde_json::{Value, json};

use super::config_file::{ConfigText, ConfiguredServer, ConfiguredTransport, json_entry};
use super::wrapping::{WrapSettings, guarded_command, is_usable_name};

/// What to change in a server's entry of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerChange {
    /// The server gets this command line.
    Command(Vec<String>),
    /// The command line of the server is already the wanted one.
    None,
    /// The server cannot be changed. The text is the reason, with advice.
    Refused(&'static str),
}

/// Returns how to put a server behind `flowgate mcp`, with the policy and the options of `wrapping`: the new command
/// line, no change if the server already has this command line, or the reason why it cannot be wrapped.
pub(crate) fn wrap_change(server: &ConfiguredServer, wrapping: &WrapSettings) -> ServerChange {
    match &server.transport {
        ConfiguredTransport::Command(command) => match guarded_command(command) {
            // The server has exactly this command line already.
            Some(own_command) if *command == wrapping.command(&server.name, own_command) => {
                ServerChange::None
            }
            Some(_) => ServerChange::Refused(
                "the server runs behind another `flowgate mcp` already; run `flowgate unwrap` first",
            ),
            None if !is_usable_name(&server.name) => ServerChange::Refused(
                "no policy can refer to the server by its name; rename it, for example to `mail-2`: at most 64 characters of A-Z, a-z, 0-9, `-`, `_` and `.`, with A-Z or a-z at the beginning, and none of `-` and `.` at the end; `flowgate` is reserved",
            ),
            None => ServerChange::Command(wrapping.command(&server.name, command)),
        },
        ConfiguredTransport::Url(_) => ServerChange::Refused(
            "the server has an address, but `flowgate mcp` guards only programs; put it behind `flowgate serve` (docs/mcp.md)",
        ),
        ConfiguredTransport::Unknown => ServerChange::Refused(
            "the server needs either `command`, with strings as its `args`, or an address; correct its entry",
        ),
    }
}

/// Returns how to let a server run without `flowgate mcp`: its own command line, or no change if it is not behind
/// `flowgate mcp`.
pub(crate) fn unwrap_change(server: &ConfiguredServer) -> ServerChange {
    match &server.transport {
        ConfiguredTransport::Command(command) => {
            guarded_command(command).map_or(ServerChange::None, |own| ServerChange::Command(own.to_vec()))
        }
        _ => ServerChange::None,
    }
}

/// Returns the text of a file with a new command line for each of the servers in `changes`. `config` is the parsed
/// `text`.
///
/// # Errors
/// If an entry of a server is not as it was read; this is a defect of Flowgate.
pub(crate) fn with_commands(
    text: &str,
    config: &ConfigText,
    changes: &[(ConfiguredServer, Vec<String>)],
) -> Result<String, String> {
    let changed = match config {
        ConfigText::Json(root) => json_with_commands(text, root, changes),
        ConfigText::Toml(document) => toml_with_commands(document, changes),
    };
    changed.ok_or_else(|| {
        "an entry is not in the form in which it was read; this is a defect of Flowgate; please report it"
            .to_owned()
    })
}

/// Returns the text of a JSON file in which the values of `command` and `args` are replaced; `args` is inserted after
/// `command` where it is missing. `changes` has the servers, each with its new command line. Returns `None` if an entry
/// or its command is not where it was read, or if a new command line is empty.
fn json_with_commands(
    text: &str,
    root: &LocatedNode,
    changes: &[(ConfiguredServer, Vec<String>)],
) -> Option<String> {
    let mut edits: Vec<(std::ops::Range<usize>, String)> = Vec::new();
    for (server, command) in changes {
        let entry = json_entry(root, server)?;
        let (program, arguments) = command.split_first()?;
        let program_span = entry.get("command")?.span.clone();
        let layout = ArgumentLayout::of(text, entry);
        let arguments = layout.format_arguments(arguments);
        match entry.get("args") {
            Some(args) => edits.push((args.span.clone(), arguments)),
            None => edits.push((
                program_span.end..program_span.end,
                format!(",{}\"args\": {arguments}", layout.before_field),
            )),
        }
        edits.push((program_span, json!(program).to_string()));
    }
    // The edits are made from the end of the file to its beginning, so that the remaining spans stay valid.
    edits.sort_by_key(|(span, _)| std::cmp::Reverse((span.start, span.end)));
    let mut changed = text.to_owned();
    for (span, new) in edits {
        // `None` for a span outside the text or within a character, with which `replace_range` would panic.
        changed.get(span.clone())?;
        changed.replace_range(span, &new);
    }
    Some(changed)
}

/// How a JSON file lays out the arguments of a server.
struct ArgumentLayout {
    /// The white space before a new field.
    before_field: String,
    /// The white space before an argument on a line of its own, and before the closing bracket; `None` if the arguments
    /// are on one line.
    lines: Option<(String, String)>,
}

impl ArgumentLayout {
    /// Finds how `text` lays out the fields and arguments of a server's `entry`, so that new fields and arguments can
    /// be written in the same way. The field `command`, which every entry has, is the model for a new field:
    /// `before_field` is the white space before it.
    fn of(text: &str, entry: &LocatedNode) -> Self {
        let command = match &entry.kind {
            LocatedNodeKind::Map(fields) => fields.iter().find(|field| field.key == "command"),
            _ => None,
        };
        let before = command.and_then(|field| text.get(..field.key_span.start)).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        // If `command` is on a line of its own, a new field after it is on a line of its own as well.
        let is_alone = before.contains('\n') && line.trim().is_empty();
        let before_field = if is_alone { format!("\n{line}") } else { " ".to_owned() };
        let lines = entry.get("args").and_then(|args| {
            let spelled = text.get(args.span.clone())?;
            let inside = spelled.strip_prefix('[')?;
            let before_first: String = inside.chars().take_while(|c| c.is_ascii_whitespace()).collect();
            // The white space before the closing bracket, read backwards.
            let closing = spelled
                .trim_end_matches(']')
                .chars()
                .rev()
                .take_while(|c| c.is_ascii_whitespace())
                .collect::<String>();
            let closing: String = closing.chars().rev().collect();
            // Arguments are on lines of their own if the first one follows a line break. Of an empty list, only the
            // closing bracket is left after the white space.
            (before_first.contains('\n') && inside.len() > before_first.len() + 1)
                .then_some((before_first, closing))
        });
        Self { before_field, lines }
    }

    /// Returns arguments as a JSON list in this layout: one per line, or all on one line.
    fn format_arguments(&self, arguments: &[String]) -> String {
        let printed: Vec<String> = arguments.iter().map(|argument| json!(argument).to_string()).collect();
        match &self.lines {
            // The white space before each argument, and before the closing bracket.
            Some((before, closing)) if !printed.is_empty() => {
                format!("[{before}{}{closing}]", printed.join(&format!(",{before}")))
            }
            _ => format!("[{}]", printed.join(", ")),
        }
    }
}

/// Replaces `command` and `args` in a TOML file, or adds them, and returns its new text. `changes` has the servers,
/// each with its new command line. Returns `None` if an entry is not where it was read, or if a new command line is
/// empty.
fn toml_with_commands(
    document: &toml_edit::DocumentMut,
    changes: &[(ConfiguredServer, Vec<String>)],
) -> Option<String> {
    let mut changed = document.clone();
    for (server, command) in changes {
        let mut table: &mut dyn toml_edit::TableLike = changed.as_table_mut();
        for key in server.section.iter().chain([&server.key]) {
            table = table.get_mut(key)?.as_table_like_mut()?;
        }
        let (program, arguments) = command.split_first()?;
        let args: toml_edit::Array = arguments.iter().map(String::as_str).collect();
        replace_value(table, "command", program.as_str().into());
        replace_value(table, "args", args.into());
    }
    Some(changed.to_string())
}

/// Replaces the value of a key, and keeps the spaces and the comment around it. Adds the key if it is missing, and
/// replaces the whole entry if the key has a table of its own.
fn replace_value(table: &mut dyn toml_edit::TableLike, key: &str, mut value: toml_edit::Value) {
    match table.get_mut(key).and_then(toml_edit::Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(key, toml_edit::Item::Value(value));
        }
    }
}

/// Returns whether two files have the same values, whatever their layout and comments. An absent list of arguments
/// equals an empty one, because unwrapping can leave an empty list behind.
pub(crate) fn is_equivalent(one: &ConfigText, other: &ConfigText) -> bool {
    let normalized = |config: &ConfigText| {
        let mut value = config.to_value();
        remove_empty_args(&mut value, 0);
        value
    };
    normalized(one) == normalized(other)
}

/// Removes empty lists called `args` at any depth up to 128, a bound on the recursion. `depth` is the level of `value`
/// in the file, from 0.
fn remove_empty_args(value: &mut Value, depth: usize) {
    match value {
        Value::Object(fields) if depth < 128 => {
            fields.retain(|key, value| key != "args" || value.as_array().is_none_or(|args| !args.is_empty()));
            fields.values_mut().for_each(|value| remove_empty_args(value, depth + 1));
        }
        Value::Array(items) if depth < 128 => {
            items.iter_mut().for_each(|item| remove_empty_args(item, depth + 1))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns settings without options.
    fn wrapping() -> WrapSettings {
        WrapSettings {
            flowgate: "/bin/flowgate".to_owned(),
            policy: "/p.flow".to_owned(),
            session: None,
            is_interactive: false,
        }
    }

    /// Wraps all servers of a text, and returns the new text.
    fn wrapped(text: &str, is_toml: bool) -> String {
        let config = ConfigText::read(text, is_toml).unwrap();
        let changes =
            config.servers().into_iter().filter_map(|server| match wrap_change(&server, &wrapping()) {
                ServerChange::Command(command) => Some((server, command)),
                _ => None,
            });
        with_commands(text, &config, &changes.collect::<Vec<_>>()).unwrap()
    }

    /// Unwraps all servers of a text, and returns the new text.
    fn unwrapped(text: &str, is_toml: bool) -> String {
        let config = ConfigText::read(text, is_toml).unwrap();
        let changes = config.servers().into_iter().filter_map(|server| match unwrap_change(&server) {
            ServerChange::Command(command) => Some((server, command)),
            _ => None,
        });
        with_commands(text, &config, &changes.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn only_command_lines_change() {
        let multi = "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"b\": {\n      \"env\": {\"K\": \"v\"},\n      \"command\": \"npx\",\n      \"args\": [\n        \"-y\",\n        \"x\"\n      ],\n      \"odd\": 1.50\n    },\n    \"a\": {\"command\": \"srv\"}\n  }\n}\n";
        let expected = "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"b\": {\n      \"env\": {\"K\": \"v\"},\n      \"command\": \"/bin/flowgate\",\n      \"args\": [\n        \"mcp\",\n        \"--policy\",\n        \"/p.flow\",\n        \"--name\",\n        \"b\",\n        \"--\",\n        \"npx\",\n        \"-y\",\n        \"x\"\n      ],\n      \"odd\": 1.50\n    },\n    \"a\": {\"command\": \"/bin/flowgate\", \"args\": [\"mcp\", \"--policy\", \"/p.flow\", \"--name\", \"a\", \"--\", \"srv\"]}\n  }\n}\n";
        assert_eq!(wrapped(multi, false), expected);
        assert_eq!(wrapped(expected, false), expected, "idempotent");
        let back = unwrapped(expected, false);
        assert_eq!(back.replace(", \"args\": []", ""), multi);
        let same = |a: &str, b: &str| {
            is_equivalent(&ConfigText::read(a, false).unwrap(), &ConfigText::read(b, false).unwrap())
        };
        assert!(same(&back, multi) && !same(expected, multi));
    }

    #[test]
    fn comments_of_json_stay() {
        let text = "{ // mine\n  \"servers\": {\n    /* first */ \"a\": {\"command\": \"x\", /* run */ \"args\": [\"y\"],},\n  }, // end\n}\n";
        let new = wrapped(text, false);
        let expected = text.replace("\"x\"", "\"/bin/flowgate\"").replace(
            "[\"y\"]",
            "[\"mcp\", \"--policy\", \"/p.flow\", \"--name\", \"a\", \"--\", \"x\", \"y\"]",
        );
        assert_eq!(new, expected);
        assert_eq!(unwrapped(&new, false), text);
    }

    #[test]
    fn comments_of_toml_stay() {
        let codex = "# mine\nmodel = \"x\"\n\n[mcp_servers.a] # first\ncommand = \"npx\" # run\nargs = [\"-y\", \"x\"]\n[mcp_servers.a.env]\nK = \"v\"\n";
        let text = wrapped(codex, true);
        assert_eq!(
            text,
            codex.replace("\"npx\"", "\"/bin/flowgate\"").replace(
                "[\"-y\", \"x\"]",
                "[\"mcp\", \"--policy\", \"/p.flow\", \"--name\", \"a\", \"--\", \"npx\", \"-y\", \"x\"]"
            )
        );
        assert_eq!(unwrapped(&text, true), codex);
    }

    #[test]
    fn refusals_have_advice() {
        let text = r#"{"mcpServers": {"u": {"url": "https://x"}, "my files": {"command": "x"}, "g": {"command": "flowgate",
            "args": ["mcp", "--policy", "other", "--", "x"]}}}"#;
        let servers = ConfigText::read(text, false).unwrap().servers();
        let refused = servers.iter().map(|server| match wrap_change(server, &wrapping()) {
            ServerChange::Refused(why) => why.split([',', ';']).next().unwrap(),
            _ => "changed",
        });
        let expected = [
            "the server has an address",
            "no policy can refer to the server by its name",
            "the server runs behind another `flowgate mcp` already",
        ];
        assert_eq!(refused.collect::<Vec<_>>(), expected);
    }
}
