//! Builds the command line that runs an MCP server behind `flowgate mcp`, for `flowgate wrap`, and recognises such
//! command lines, for `unwrap`, `scan` and `doctor`.

use std::path::Path;

/// The options of the command lines that run servers behind `flowgate mcp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrapSettings {
    /// The path or name of Flowgate's program.
    pub(crate) flowgate: String,
    /// The path of the policy.
    pub(crate) policy: String,
    /// The file of labels that the proxies of a client share, if they share one.
    pub(crate) session: Option<String>,
    /// Whether a person uses the client, and can be asked there.
    pub(crate) is_interactive: bool,
}

impl WrapSettings {
    /// Returns the command line that runs a server behind `flowgate mcp`. `name` is the name by which the policy refers
    /// to the server, and `command` is the server's own command line.
    pub(crate) fn command(&self, name: &str, command: &[String]) -> Vec<String> {
        let mut wrapped =
            vec![self.flowgate.clone(), "mcp".to_owned(), "--policy".to_owned(), self.policy.clone()];
        wrapped.extend(["--name".to_owned(), name.to_owned()]);
        if let Some(session) = &self.session {
            wrapped.extend(["--session".to_owned(), session.clone()]);
        }
        if self.is_interactive {
            wrapped.push("--interactive".to_owned());
        }
        wrapped.push("--".to_owned());
        wrapped.extend_from_slice(command);
        wrapped
    }
}

/// Returns the server's own command line, the part after `--`, if `command` runs the server behind `flowgate mcp`.
/// Returns `None` if it does not, or if this part is empty. The program may be renamed or started by a script, so it
/// need not be called `flowgate` if the command has the options `--policy` and `--name`, which [`WrapSettings::command`]
/// always writes.
pub(crate) fn guarded_command(command: &[String]) -> Option<&[String]> {
    let (program, arguments) = command.split_first()?;
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_flowgate = matches!(name, "flowgate" | "flowgate.exe");
    let has_options = option(command, "--policy").is_some() && option(command, "--name").is_some();
    let separator = arguments.iter().position(|argument| argument == "--")?;
    let is_mcp = arguments.first().is_some_and(|first| first == "mcp");
    arguments.get(separator + 1..).filter(|own| is_mcp && (is_flowgate || has_options) && !own.is_empty())
}

/// Returns the value of the option `name` of `flowgate mcp` in a command line: the argument after it, or the text after
/// `NAME=`. `None` if the option is absent or has no value. The arguments after `--` belong to the server, so they are
/// not examined.
pub(crate) fn option<'c>(command: &'c [String], name: &str) -> Option<&'c str> {
    let mut options = command.iter().take_while(|argument| *argument != "--");
    options.clone().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=')).or_else(|| {
        options.find(|argument| *argument == name)?;
        options.next().map(String::as_str)
    })
}

/// Returns whether a command line that runs a server behind `flowgate mcp` has the option `--watch`, with which the
/// policy is not enforced.
pub(crate) fn is_watching(command: &[String]) -> bool {
    let mut options = command.iter().take_while(|argument| *argument != "--");
    options.any(|argument| argument == "--watch" || argument.starts_with("--watch="))
}

/// Returns whether `flowgate mcp` accepts this name of a server, and a policy can spell it without quotation marks: it
/// has at most 64 characters, each of them ASCII alphanumeric, `_`, `-` or `.`; the first one is alphabetic or `_`, and
/// the last one alphanumeric or `_`. The name `flowgate` is reserved.
pub(crate) fn is_usable_name(name: &str) -> bool {
    name.len() <= 64
        && name != flowgate::trace::Tool::FLOWGATE_SERVER
        && flowgate::draft::plain_name(name).is_some()
}

/// Returns the absolute form of a path, because a client reads its configuration in another folder. If the current
/// folder is unknown, the path stays as it is.
pub(crate) fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_servers_are_recognized() {
        for (command, own) in [
            ("/bin/flowgate mcp --policy p.flow -- npx x", Some("npx x")),
            ("C:\\bin\\flowgate.exe mcp --policy p.flow -- npx", Some("npx")),
            ("wrapper mcp --policy p.flow --name a -- npx -- y", Some("npx -- y")),
            ("wrapper mcp --policy=p.flow --name=a -- npx", Some("npx")),
            ("wrapper mcp --name a -- npx", None),
            ("flowgate mcp --policy p.flow --", None),
            ("flowgate run -- npx", None),
            ("npx -y flowgate mcp", None),
            ("", None),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(guarded_command(&words).map(|own| own.join(" ")).as_deref(), own, "{command}");
        }
        let wrapped: Vec<String> =
            "f mcp --policy p.flow -- x --policy q".split(' ').map(str::to_owned).collect();
        assert_eq!(option(&wrapped, "--policy"), Some("p.flow"));
        assert_eq!(option(&wrapped, "--name"), None);
    }

    #[test]
    fn watching_servers_are_recognized() {
        for (command, expected) in [
            ("flowgate mcp --policy p.flow --watch w.jsonl -- npx x", true),
            ("flowgate mcp --policy p.flow --watch=w.jsonl -- npx x", true),
            ("flowgate mcp --policy p.flow -- npx x --watch", false),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(is_watching(&words), expected, "{command}");
        }
    }
}
