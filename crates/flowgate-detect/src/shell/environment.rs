//! Determines what later commands run because of an assignment to an environment variable, such as `BASH_ENV`, `PATH`
//! or `GIT_PAGER`. The scanner calls [`effect_of_assignment`] for each assignment.

use super::expansion::Argument;

/// What later commands run because of an assignment to a variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnvironmentEffect {
    /// Nothing, as far as this crate knows.
    Harmless,
    /// Something that cannot be read.
    Unknown,
    /// This script.
    Runs(String),
}

/// The variables that make shells, interpreters and other programs run code: they name files, folders or options, or
/// are scripts with expansions.
const HOOKS: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "SHELL",
    "ZDOTDIR",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "RUBYOPT",
    "LESSOPEN",
    "LESSCLOSE",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_PARAMETERS",
    "MAKEFLAGS",
    "TAR_OPTIONS",
];
/// The variables whose value is a command.
const COMMANDS: &[&str] = &[
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "RSYNC_RSH",
    "CVS_RSH",
    "RUSTC_WRAPPER",
    "CC",
    "CXX",
    "FCEDIT",
    "SYSTEMD_PAGER",
    "DELTA_PAGER",
    "BAT_PAGER",
];

/// Returns what later commands run because the variable `name` has the value `value`. The name may end with the plus
/// sign of `+=`.
pub(super) fn effect_of_assignment(name: &str, value: &Argument<'_>) -> EnvironmentEffect {
    let name = name.trim_end_matches('+');
    // Variables that make later programs load or run code. The folders of LD_LIBRARY_PATH are examined below.
    let has_hook_prefix = ["LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"]
        .iter()
        .any(|start| name.starts_with(start));
    if HOOKS.contains(&name) || has_hook_prefix && name != "LD_LIBRARY_PATH" {
        return EnvironmentEffect::Unknown;
    }
    // Variables whose value is a command that a program runs.
    if COMMANDS.contains(&name) && !value.text.is_empty() {
        return match value.known_text() {
            Some(text) => EnvironmentEffect::Runs(text.to_owned()),
            None => EnvironmentEffect::Unknown,
        };
    }
    // A folder that precedes the folders of the system can contain a program with the name of a system program. The
    // folders of the system and of users count as safe.
    if matches!(name, "PATH" | "LD_LIBRARY_PATH") {
        let is_safe = |folder: &str| {
            let is_old_value = matches!(folder, "$PATH" | "${PATH}" | "$LD_LIBRARY_PATH");
            let has_safe_start = [
                "/usr/", "/opt/", "/bin", "/sbin", "/snap/", "$HOME/", "${HOME}/", "~/", "/home/", "/root/",
                "/nix/",
            ]
            .iter()
            .any(|start| folder.starts_with(start));
            is_old_value || has_safe_start && !folder.contains("..")
        };
        if !value.text.split(':').all(is_safe) {
            return EnvironmentEffect::Unknown;
        }
    }
    EnvironmentEffect::Harmless
}
