//! Reads the MCP servers that a configuration file of an MCP client configures; `hooks` reads the hooks of the same file.
//! The file is JSON, or TOML for Codex. The content of the file is untrusted, so nothing of it is executed or expanded
//! here.

use flowgate::trace::located_text::{LocatedNode, LocatedNodeKind, Notation, locate};
use serde_json::Value;

use super::{jsonc, wrapping};

/// The largest file, in bytes.
pub(crate) const MAX_CONFIG: u64 = 16 << 20;
/// The maximum number of servers of one file.
const MAX_SERVERS: usize = 1_000;

/// The text of a file in its notation.
#[derive(Debug)]
pub(crate) enum ConfigText {
    /// JSON, with the bytes of each value.
    Json(LocatedNode),
    /// TOML.
    Toml(Box<toml_edit::DocumentMut>),
}

/// A server that a file configures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfiguredServer {
    /// Its name.
    pub(crate) name: String,
    /// The keys from the root of the file to the table in which its entry is.
    pub(crate) section: Vec<String>,
    /// The key of its entry there: its name, except in the manifest of an extension of Claude Desktop.
    pub(crate) key: String,
    /// How it is reached.
    pub(crate) transport: ConfiguredTransport,
    /// Whether it is switched off.
    pub(crate) is_disabled: bool,
}

/// How a client reaches a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConfiguredTransport {
    /// A program with its arguments, which communicates over its standard input and output.
    Command(Vec<String>),
    /// An address.
    Url(String),
    /// The entry has no command and no address, or both of them, or one that is not in the usual form.
    Unknown,
}

/// The keys that lead from the root of a file to its table of servers, in the forms of different clients.
const SECTIONS: [&[&str]; 4] = [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp_servers"]];

impl ConfigText {
    /// Parses the text of a file: TOML if `is_toml`, otherwise JSON, which may contain comments.
    ///
    /// # Errors
    /// If the text is not in this notation; the message has the cause and, if it is known, the position.
    pub(crate) fn read(text: &str, is_toml: bool) -> Result<Self, String> {
        if is_toml {
            return match text.parse::<toml_edit::DocumentMut>() {
                Ok(document) => Ok(Self::Toml(Box::new(document))),
                Err(error) => {
                    let message = error.message().lines().next().unwrap_or_default().to_owned();
                    // The lines before the error give its line number; an error without a position has none.
                    let before = error.span().and_then(|span| text.get(..span.start));
                    let line = before.map(|before| format!("line {}: ", before.matches('\n').count() + 1));
                    Err(format!(
                        "{}the file is not valid TOML: {message}; correct the file",
                        line.unwrap_or_default()
                    ))
                }
            };
        }
        // The bytes of each value are the same in the text without comments.
        match locate(&jsonc::without_comments(text), Some(Notation::Json)) {
            Ok(located) => Ok(Self::Json(located.root)),
            Err(error) => Err(format!("the file is not valid JSON: {error}; correct the file")),
        }
    }

    /// Returns the MCP servers of the file, in the order of the file within each section. Servers after the first
    /// [`MAX_SERVERS`] are left out.
    pub(crate) fn servers(&self) -> Vec<ConfiguredServer> {
        let root = self.to_value();
        let mut servers = Vec::new();
        // The manifest of an extension of Claude Desktop has one server.
        if let Some(server) = extension_server(&root) {
            return vec![server];
        }
        // In a file of a plug-in, the servers can be at the root, without a section.
        if is_bare_list(&root) {
            collect_servers(&root, &[], &[], &mut servers);
        }
        for section in SECTIONS {
            collect_servers(&root, section, &[], &mut servers);
        }
        // Claude Code has further servers for each project.
        for (path, project) in root.get("projects").and_then(Value::as_object).into_iter().flatten() {
            collect_servers(project, &["mcpServers"], &["projects", path], &mut servers);
        }
        servers.truncate(MAX_SERVERS);
        servers
    }

    /// Returns the whole content as a JSON value.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Json(root) => root.to_value(),
            Self::Toml(document) => table_value(document.as_table()),
        }
    }
}

/// Adds the servers of one section to `servers`. `root` is the whole content of the file, or the entry of a project in
/// it. `section` has the keys from `root` to the table of servers, and `above` has the keys from the whole content to
/// `root` (none if these are the same).
fn collect_servers(root: &Value, section: &[&str], above: &[&str], servers: &mut Vec<ConfiguredServer>) {
    let table = section.iter().try_fold(root, |value, key| value.get(*key)).and_then(Value::as_object);
    for (name, entry) in table.into_iter().flatten() {
        let flag = |key: &str| entry.get(key).and_then(Value::as_bool);
        servers.push(ConfiguredServer {
            name: name.clone(),
            section: above.iter().chain(section).map(|key| (*key).to_owned()).collect(),
            key: name.clone(),
            transport: transport_of(&|key| entry.get(key)),
            is_disabled: flag("disabled") == Some(true) || flag("enabled") == Some(false),
        });
    }
}

/// Returns how a server is reached. `field` returns a field of the server's entry by its key; `None` if the entry does
/// not have the field.
fn transport_of<'v>(field: &dyn Fn(&str) -> Option<&'v Value>) -> ConfiguredTransport {
    let text = |key: &str| field(key).and_then(Value::as_str).map(str::to_owned);
    let args = field("args").and_then(Value::as_array).into_iter().flatten();
    let args: Option<Vec<String>> = args.map(|arg| arg.as_str().map(str::to_owned)).collect();
    let url = ["url", "httpUrl", "serverUrl"].into_iter().find_map(text);
    // A server with both a command and an address, or with an argument that is not a text, has no known form.
    match (text("command"), args, url) {
        (Some(command), Some(args), None) => {
            ConfiguredTransport::Command(std::iter::once(command).chain(args).collect())
        }
        (None, _, Some(url)) => ConfiguredTransport::Url(url),
        _ => ConfiguredTransport::Unknown,
    }
}

/// Returns the server of an extension of Claude Desktop; `None` if `root` is not the manifest of an extension. Fields
/// that the manifest has for this operating system replace its general fields.
fn extension_server(root: &Value) -> Option<ConfiguredServer> {
    let entry = root.get("server")?.get("mcp_config")?;
    entry.as_object()?;
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let of_system = entry.get("platform_overrides").and_then(|systems| systems.get(system));
    let transport =
        transport_of(&|key| of_system.and_then(|fields| fields.get(key)).or_else(|| entry.get(key)));
    let name = root.get("name").and_then(Value::as_str).unwrap_or_default();
    Some(ConfiguredServer {
        name: name.to_owned(),
        section: vec!["server".to_owned()],
        key: "mcp_config".to_owned(),
        transport,
        is_disabled: false,
    })
}

/// Returns whether a file has nothing but servers, each with a command or an address: the form that the `.mcp.json` of a
/// plug-in of Claude Code may have. In settings, the type `command` marks a program that is not a server, such as that of
/// `statusLine`.
fn is_bare_list(root: &Value) -> bool {
    let is_server = |entry: &Value| {
        let is_program = entry.get("type").and_then(Value::as_str) == Some("command");
        !is_program && transport_of(&|key| entry.get(key)) != ConfiguredTransport::Unknown
    };
    root.as_object().is_some_and(|entries| !entries.is_empty() && entries.values().all(is_server))
}

/// Converts a table of TOML to a JSON value; dates become texts.
fn table_value(table: &dyn toml_edit::TableLike) -> Value {
    Value::Object(table.iter().map(|(key, item)| (key.to_owned(), item_value(item))).collect())
}

/// Converts an entry of a TOML table to a JSON value.
fn item_value(item: &toml_edit::Item) -> Value {
    use toml_edit::Item;
    match item {
        Item::None => Value::Null,
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table_value(table)).collect(),
        Item::Value(value) => plain_value(value),
    }
}

/// Converts a TOML value to a JSON value; dates become texts.
fn plain_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Value::from(*number.value()),
        Toml::Boolean(value) => Value::from(*value.value()),
        Toml::Datetime(date) => Value::from(date.value().to_string()),
        Toml::Array(items) => items.iter().map(plain_value).collect(),
        Toml::InlineTable(table) => table_value(table),
    }
}

impl ConfiguredServer {
    /// Returns the command and arguments of the server itself, also if it runs behind `flowgate mcp`; `None` if
    /// the entry has no usable command, for example only an address.
    pub(crate) fn own_command(&self) -> Option<&[String]> {
        match &self.transport {
            ConfiguredTransport::Command(command) => {
                Some(wrapping::guarded_command(command).unwrap_or(command))
            }
            _ => None,
        }
    }

    /// Returns whether the server runs behind a `flowgate mcp` that enforces a policy; false in watch mode, and for a
    /// server with an address.
    pub(crate) fn is_guarded(&self) -> bool {
        match &self.transport {
            ConfiguredTransport::Command(command) => {
                wrapping::guarded_command(command).is_some() && !wrapping::is_watching(command)
            }
            _ => false,
        }
    }
}

impl ConfiguredServer {
    /// Returns the entry of the server in the form of `mcpServers`, as `flowgate init` and `scan --start` read it: with
    /// the server's own command, without `flowgate mcp` before it, or with its address under the key `url`. An entry is
    /// returned unchanged if it is not an object, or has no usable command or address. `root` is the whole content of
    /// the file.
    pub(crate) fn usual_entry(&self, root: &Value) -> Value {
        let table = self.section.iter().try_fold(root, |value, key| value.get(key));
        let mut entry = table.and_then(|table| table.get(&self.key)).cloned().unwrap_or_default();
        let Some(fields) = entry.as_object_mut() else { return entry };
        match (&self.transport, self.own_command().and_then(<[String]>::split_first)) {
            (ConfiguredTransport::Url(url), _) => {
                fields.insert("url".to_owned(), Value::from(url.as_str()));
            }
            (_, Some((program, arguments))) => {
                fields.insert("command".to_owned(), Value::from(program.as_str()));
                fields.insert("args".to_owned(), Value::from(arguments));
            }
            _ => {}
        }
        entry
    }
}

/// Returns the entry of a server in a JSON file, with its bytes; `None` if the file has no such entry, or it is not an
/// object.
pub(crate) fn json_entry<'n>(root: &'n LocatedNode, server: &ConfiguredServer) -> Option<&'n LocatedNode> {
    let table = server.section.iter().try_fold(root, |node, key| node.get(key))?;
    table.get(&server.key).filter(|entry| matches!(entry.kind, LocatedNodeKind::Map(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, is_toml: bool) -> Vec<String> {
        let servers = ConfigText::read(text, is_toml).unwrap().servers();
        servers
            .iter()
            .map(|s| format!("{}/{} {:?} {}", s.section.join("/"), s.name, s.transport, s.is_disabled))
            .collect()
    }

    #[test]
    fn servers_are_found_in_every_form() {
        let command = r#"Command(["npx", "-y", "x"])"#;
        for (text, expected) in [
            (
                r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"]}}}"#,
                format!("mcpServers/a {command} false"),
            ),
            (
                r#"{"servers": {"a": {"type": "http", "url": "https://x"}}}"#,
                r#"servers/a Url("https://x") false"#.to_owned(),
            ),
            (
                r#"{"mcp": {"servers": {"a": {"command": "npx", "args": ["-y", "x"]}}}}"#,
                format!("mcp/servers/a {command} false"),
            ),
            (
                r#"{"projects": {"/p": {"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "disabled": true}}}}}"#,
                format!("projects//p/mcpServers/a {command} true"),
            ),
            (
                r#"{"mcpServers": {"a": {"serverUrl": "https://x"}}}"#,
                r#"mcpServers/a Url("https://x") false"#.to_owned(),
            ),
            (r#"{"mcpServers": {"a": {"command": 3}}}"#, "mcpServers/a Unknown false".to_owned()),
            // The file of a plug-in, and the manifest of an extension.
            (r#"{"a": {"command": "npx", "args": ["-y", "x"]}}"#, format!("/a {command} false")),
            (
                r#"{"name": "a", "server": {"type": "node", "mcp_config": {"command": "npx", "args": ["-y", "x"]}}}"#,
                format!("server/a {command} false"),
            ),
            (
                r#"{"name": "a", "server": {"mcp_config": {"command": "other", "platform_overrides": {"OS": {"command": "npx", "args": ["-y", "x"]}}}}}"#,
                format!("server/a {command} false"),
            ),
        ] {
            let os = std::env::consts::OS.replace("macos", "darwin").replace("windows", "win32");
            let text = &text.replace("\"OS\"", &format!("\"{os}\""));
            assert_eq!(shown(text, false), [expected], "{text}");
        }
        let codex = "# mine\n[mcp_servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenabled = false\n";
        assert_eq!(shown(codex, true), [format!("mcp_servers/a {command} true")]);
        for other in [
            "{}",
            r#"{"a": {"command": "x"}, "b": 1}"#,
            r#"{"server": {"mcp_config": 1}}"#,
            r#"{"statusLine": {"type": "command", "command": "x"}}"#,
        ] {
            assert_eq!(shown(other, false), Vec::<String>::new(), "{other}");
        }
        assert_eq!(shown(r#"{"mcpServers": []}"#, false), Vec::<String>::new());
    }

    #[test]
    fn unreadable_files_are_reported() {
        let error = ConfigText::read("{\"a\": 1,, }", false).unwrap_err();
        assert!(error.starts_with("the file is not valid JSON: "), "{error}");
        let error = ConfigText::read("a = 1\nb = ", true).unwrap_err();
        assert!(error.starts_with("line 2: the file is not valid TOML: "), "{error}");
    }
}
