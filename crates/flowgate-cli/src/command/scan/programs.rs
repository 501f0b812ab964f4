//! Shortens the command lines of servers and hooks to what `flowgate scan` shows of them: a program, a package or a
//! host. The arguments of a command line can be keys, so none is returned except the name of a package. `result` calls
//! these functions.

use crate::clients::config_file::{ConfiguredServer, ConfiguredTransport};
use crate::escaping;

/// Returns the program or the host of a server; for a program that starts packages, such as `npx`, also the name of the
/// package. Other arguments can be secret and are left out.
pub(super) fn program(server: &ConfiguredServer) -> String {
    match &server.transport {
        ConfiguredTransport::Url(url) => {
            let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let host = host.split(['/', '?', '#']).next().unwrap_or_default();
            // A user and a password before the host are left out.
            escaping::excerpt(host.rsplit('@').next().unwrap_or_default(), 40)
        }
        ConfiguredTransport::Unknown => "?".to_owned(),
        ConfiguredTransport::Command(_) => {
            let command = server.own_command().unwrap_or_default();
            let (program, arguments) =
                command.split_first().map_or(("", command), |(first, rest)| (first.as_str(), rest));
            let program = program.rsplit(['/', '\\']).next().unwrap_or_default();
            let starts_packages = matches!(program, "npx" | "uvx" | "bunx" | "pipx");
            let started = package(arguments).filter(|_| starts_packages);
            escaping::excerpt(
                &started.map_or_else(|| program.to_owned(), |package| format!("{program} {package}")),
                60,
            )
        }
    }
}

/// Returns the name of the package that a package runner such as `npx` starts; `None` if there is none that is
/// certainly a name. The argument after an unknown option is taken for its value, which can be a key, and is never
/// returned.
fn package(arguments: &[String]) -> Option<&str> {
    // Whether the next argument may be the value of an option.
    let mut is_value = false;
    for argument in arguments {
        // Options whose value is the package.
        let names_package = matches!(argument.as_str(), "-p" | "--package" | "--from");
        // Options without a value, and the subcommand of `pipx run NAME`.
        let is_flag = matches!(argument.as_str(), "-y" | "--yes" | "-q" | "--quiet" | "run");
        if argument.starts_with('-') || is_flag {
            is_value = !names_package && !is_flag && !argument.contains('=');
        } else if std::mem::take(&mut is_value) {
            // The value of an option.
        } else {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/._-".contains(c);
            // A longer text, or one with other characters, is not certainly a name.
            return Some(argument.as_str()).filter(|name| name.len() <= 80 && name.chars().all(is_plain));
        }
    }
    None
}

/// Returns the program of a hook, by a heuristic: the first word of its command that contains no `=`. Words before this
/// word set environment variables, whose values can be keys. The result is empty if a quotation mark is not closed, or
/// if a value may contain a shell substitution, which this function does not evaluate.
pub(super) fn hook_program(command: &str) -> String {
    if command.contains('=') && command.contains(['$', '`']) {
        return String::new();
    }
    // Only a command with quotation marks or an escaped space is split like in a shell: backslashes in any other command
    // are those of Windows paths.
    let words = match command.contains(['"', '\'']) || command.contains("\\ ") {
        true => shlex::split(command).unwrap_or_default(),
        false => command.split_whitespace().map(str::to_owned).collect(),
    };
    words.into_iter().find(|word| !word.contains('=')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        for (arguments, expected) in [
            ("-y @x/server-files /data", Some("@x/server-files")),
            ("--token S3CRET pkg", Some("pkg")),
            ("--token=S3CRET pkg", Some("pkg")),
            ("--from pkg tool", Some("pkg")),
            ("run pkg", Some("pkg")),
            ("-y a:b", None),
            ("--token S3CRET", None),
        ] {
            let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            assert_eq!(package(&words), expected, "{arguments}");
        }
        for (command, program) in [
            ("KEY=S3CRET /bin/check --all", "/bin/check"),
            ("KEY=\"S3 CRET\" /bin/check", "/bin/check"),
            ("KEY='S3 CRET' '/my hooks/check' x", "/my hooks/check"),
            ("KEY=\"S3 CRET /bin/check", ""),
            ("KEY=S3\\ CRET /bin/check", "/bin/check"),
            ("KEY=$(cat secret key) /bin/check", ""),
            ("$HOME/hooks/check.sh x", "$HOME/hooks/check.sh"),
            ("C:\\hooks\\check.exe x", "C:\\hooks\\check.exe"),
            ("", ""),
        ] {
            assert_eq!(hook_program(command), program, "{command}");
        }
    }
}
