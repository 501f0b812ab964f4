//! Finds the program that a shell command executes behind assignments and wrappers, such as `rm` in `A=1 sudo -u x rm`,
//! and reports the harmful effects of that one command. The parent module calls it for each command, and judges what
//! the commands of a pipeline do together.

use std::ops::Range;

use super::IssueSeverity;
use super::expansion::{ShellCommand, Word};
use super::syntax::is_name;

/// A command without its assignments and wrappers.
pub(super) struct EffectiveCommand<'c> {
    pub(super) command: &'c ShellCommand,
    /// The program without its directory.
    name: &'c str,
    /// Its arguments.
    arguments: &'c [Word],
    /// The word of the program.
    program: Option<&'c Word>,
    /// Whether it runs under `sudo` or `doas`.
    elevated: bool,
    /// Whether `xargs` runs it, with its input as further arguments.
    pub(super) takes_input_as_arguments: bool,
}

/// Programs that run a script of shell commands.
pub(super) const SHELLS: &[&str] = &["sh", "bash", "zsh", "dash", "ksh", "fish", "ash"];
/// Programs that run a script in some language, shells included.
pub(super) const INTERPRETERS: &[&str] = &[
    "sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "python", "python2", "python3", "perl", "ruby",
    "node", "php",
];
/// The long options of `sudo` that take a value in the next word.
const SUDO_OPTIONS: &[&str] = &[
    "--user",
    "--group",
    "--host",
    "--prompt",
    "--chroot",
    "--chdir",
    "--role",
    "--type",
    "--close-from",
    "--command-timeout",
    "--other-user",
    "--login-class",
    "--auth-type",
];
/// Programs that download.
const FETCHERS: &[&str] = &["curl", "wget", "fetch", "http", "https", "aria2c"];
/// Programs that print a file, as text or encoded.
pub(super) const READERS: &[&str] =
    &["cat", "base64", "head", "tail", "less", "more", "xxd", "od", "strings"];
/// Programs that connect their input and output to a network address.
const NETCATS: &[&str] = &["nc", "ncat", "netcat"];

/// A script in the arguments of a command.
pub(super) struct InnerScript {
    pub(super) text: String,
    /// The bytes that contain it.
    pub(super) span: Range<usize>,
    /// Whether the text is what the shell runs, with nothing left out.
    pub(super) is_exact: bool,
}

impl<'c> EffectiveCommand<'c> {
    /// Finds the program that a command executes: skips assignments (`A=1 rm`), keywords (`time rm`) and wrappers with their options (`sudo -u x rm`). `elevated` is set if `sudo` or `doas` was skipped. A command without a
    /// program has an empty name.
    pub(super) fn new(command: &'c ShellCommand) -> Self {
        let mut words = command.words.as_slice();
        let mut elevated = false;
        let mut takes_input_as_arguments = false;
        while let Some((first, rest)) = words.split_first() {
            let name = program_name(&first.text);
            let assignment = first.text.split_once('=').is_some_and(|(name, _)| {
                let name = name.strip_suffix('+').unwrap_or(name);
                // An element of an array: `a[0]=x`.
                is_name(name.split_once('[').map_or(name, |(name, _)| name))
            });
            let keyword = matches!(name, "!" | "time");
            // The options of a wrapper that take a value in the next word: short ones, as one text, and long ones.
            let wrapper: Option<(&str, &[&str])> = match name {
                "sudo" | "doas" => Some(("ugpCDRTUhrtac", SUDO_OPTIONS)),
                "timeout" => Some(("ks", &["--kill-after", "--signal"])),
                "nice" => Some(("n", &["--adjustment"])),
                "ionice" => Some(("cn", &["--class", "--classdata"])),
                "stdbuf" => Some(("ioe", &["--input", "--output", "--error"])),
                "nohup" | "command" | "builtin" | "setsid" | "busybox" | "pkexec" | "unshare" | "chronic" => {
                    Some(("", &[]))
                }
                "xargs" => Some(("IELPadns", &["--arg-file", "--delimiter", "--max-args", "--max-procs"])),
                "chroot" | "taskset" => Some(("", &[])),
                "flock" => Some(("wE", &["--timeout", "--conflict-exit-code"])),
                "strace" | "ltrace" => Some(("aeopsuE", &[])),
                "watch" => Some(("n", &["--interval"])),
                "exec" => Some(("a", &[])),
                // Without a command, `env` prints the variables and is the program itself.
                "env" if rest.iter().any(|word| !word.text.contains('=') && !word.text.starts_with('-')) => {
                    Some(("uC", &["--unset", "--chdir"]))
                }
                _ => None,
            };
            if assignment || keyword {
                words = rest;
                continue;
            }
            // `sudo su` and `sudo -i` are the command itself.
            let Some((short_options, long_options)) = wrapper.filter(|_| !rest.is_empty()) else { break };
            let mut options = rest;
            while let Some((option, after)) =
                options.split_first().filter(|(word, _)| word.text.starts_with('-'))
            {
                let takes_value = option.text.len() == 2
                    && option.text.ends_with(|c| short_options.contains(c))
                    || long_options.contains(&option.text.as_str());
                options = if takes_value { after.get(1..).unwrap_or_default() } else { after };
            }
            // The first argument is the duration, the directory, the processors or the file.
            if matches!(name, "timeout" | "chroot" | "taskset" | "flock") {
                options = options.get(1..).unwrap_or_default();
            }
            if options.is_empty() {
                break;
            }
            elevated |= matches!(name, "sudo" | "doas" | "pkexec");
            takes_input_as_arguments |= name == "xargs";
            words = options;
        }
        let (name, arguments) = match words.split_first() {
            Some((first, rest)) => (program_name(&first.text), rest),
            None => ("", words),
        };
        Self { command, name, arguments, program: words.first(), elevated, takes_input_as_arguments }
    }

    /// Returns whether the program has one of these names.
    pub(super) fn is_one_of(&self, names: &[&str]) -> bool {
        names.contains(&self.name)
    }

    /// Returns the arguments.
    pub(super) fn words(&self) -> impl Iterator<Item = &'c Word> + use<'c> {
        self.arguments.iter()
    }

    /// Returns the word of the program.
    pub(super) fn program(&self) -> Option<&'c Word> {
        self.program
    }

    /// Returns all words, including those before the program and in redirections, but no here-document.
    fn every_word(&self) -> impl Iterator<Item = &'c Word> + use<'c> {
        let redirects = self.command.redirects.iter().filter(|(operator, _)| !is_document(operator));
        self.command.words.iter().chain(redirects.map(|(_, word)| word))
    }

    /// Returns the here-documents and here-strings, the last one first, since it is what the command reads.
    pub(super) fn documents(&self) -> impl Iterator<Item = (&'static str, &'c Word)> + use<'c> {
        let redirects = self.command.redirects.iter().rev();
        redirects.filter(|(operator, _)| operator.starts_with("<<")).map(|(operator, word)| (*operator, word))
    }

    /// Returns the texts of the arguments.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'c str> + use<'c> {
        self.arguments.iter().map(|word| word.text.as_str())
    }

    pub(super) fn has_argument(&self, argument: &str) -> bool {
        self.texts().any(|text| text == argument)
    }

    /// Returns whether a letter is among the short options, or the long option is present.
    fn has_option(&self, letter: char, long: &str) -> bool {
        self.texts().any(|text| {
            text == long || text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
        })
    }

    /// Returns the value of an option: the argument after it (`-o x`), or the text after `=` (`--output=x`). `None` if
    /// the option or its value is absent.
    pub(super) fn option_value(&self, option: &str) -> Option<String> {
        let after = self.texts().zip(self.texts().skip(1)).find(|(text, _)| *text == option);
        let joined = || self.texts().find_map(|text| text.strip_prefix(option)?.strip_prefix('='));
        after.map(|(_, value)| value).or_else(joined).map(str::to_owned)
    }

    /// Returns whether the command downloads.
    pub(super) fn fetches(&self) -> bool {
        self.is_one_of(FETCHERS)
    }

    /// Returns whether the command decodes or transforms its input, which can hide a script.
    pub(super) fn decodes(&self) -> bool {
        match self.name {
            "base64" | "base32" => self.has_option('d', "--decode") || self.has_argument("-D"),
            "xxd" => self.has_option('r', "-revert"),
            "openssl" => self.has_option('d', "-d"),
            "rev" | "tr" => true,
            _ => false,
        }
    }

    /// Returns whether the command executes its standard input: a shell without a script, with `-s`, or by the name of
    /// the input; an interpreter without arguments, or with `-`. With `xargs`, also a shell whose script is missing.
    pub(super) fn reads_script(&self) -> bool {
        let is_input = |text: &str| matches!(text, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0");
        let operands = self.texts().filter(|text| !text.starts_with('-')).count();
        let lacks_script =
            || self.texts().last().is_some_and(|text| text.starts_with('-') && text.ends_with('c'));
        if self.takes_input_as_arguments {
            return self.is_one_of(INTERPRETERS) && lacks_script();
        }
        self.is_one_of(SHELLS) && (operands == 0 && !lacks_script() || self.has_option('s', "-s"))
            || self.is_one_of(INTERPRETERS) && (self.arguments.is_empty() || self.texts().any(is_input))
            || self.is_one_of(&["source", "."]) && self.texts().next().is_some_and(is_input)
    }

    /// Returns whether the command is a shell, or executes a file in the current one.
    pub(super) fn runs_shell(&self) -> bool {
        self.is_one_of(SHELLS) || self.is_one_of(&["source", "."])
    }

    /// Returns the files that the command may execute: the program itself, or the arguments of an interpreter.
    pub(super) fn executed_files(&self) -> impl Iterator<Item = &'c str> + use<'c> {
        let is_interpreter = self.is_one_of(INTERPRETERS) || self.is_one_of(&["source", "."]);
        let program = self.program.map(|word| word.text.as_str()).filter(|text| text.contains('/'));
        program
            .into_iter()
            .chain(self.arguments.iter().filter(move |_| is_interpreter).map(|word| word.text.as_str()))
    }

    /// Returns the files into which a redirection, or `tee`, writes.
    pub(super) fn written_files(&self) -> impl Iterator<Item = &'c str> + use<'c> {
        let redirected = self.command.redirects.iter().filter(|(op, _)| op.contains('>'));
        let is_tee = self.name == "tee";
        let operands = self.arguments.iter().filter(move |word| is_tee && !word.text.starts_with('-'));
        redirected.map(|(_, word)| word).chain(operands).map(|word| word.text.as_str())
    }

    /// Returns the commands that `find` executes.
    pub(super) fn found_commands(&self) -> Vec<ShellCommand> {
        let is_find = self.is_one_of(&["find", "fd"]);
        let parts = self
            .arguments
            .split(|word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"));
        let commands = parts.skip(1).filter(|_| is_find).map(|words| {
            let end = words.iter().position(|word| matches!(word.text.as_str(), ";" | "+"));
            let words = words.get(..end.unwrap_or(words.len())).unwrap_or_default().to_vec();
            ShellCommand { words, redirects: Vec::new() }
        });
        commands.collect()
    }

    /// Returns the text that the command prints, if it is a part of the script: the arguments of `echo` and `printf`,
    /// and the here-document of `cat` and `tee`.
    pub(super) fn printed_text(&self) -> Option<InnerScript> {
        match self.name {
            "echo" | "printf" => {
                let (first, last) = (self.arguments.first()?, self.arguments.last()?);
                let texts = self.arguments.iter().map(|word| word.code.as_str());
                let texts: Vec<&str> =
                    texts.skip_while(|text| text.starts_with('-') && text.len() < 4).collect();
                Some(InnerScript {
                    // What `printf` and `echo -e` make of the escape that separates commands.
                    text: texts.join(" ").replace("\\n", "\n"),
                    span: first.span.start..last.span.end,
                    is_exact: self.name == "echo" && self.arguments.iter().all(|word| !word.dynamic),
                })
            }
            "cat" | "tee" => {
                let (_, word) = self.documents().next()?;
                Some(InnerScript {
                    text: word.code.clone(),
                    span: word.span.clone(),
                    is_exact: !word.dynamic,
                })
            }
            _ => None,
        }
    }

    /// Returns whether the command removes the current directory with what is in it.
    pub(super) fn removes_directory(&self) -> bool {
        let recursive = self.has_option('r', "--recursive") || self.has_option('R', "--recursive");
        self.name == "rm" && recursive && self.texts().any(|text| matches!(text, "*" | "." | "./" | "./*"))
    }

    /// Returns whether the command prints its input.
    pub(super) fn passes_input_on(&self) -> bool {
        self.name == "cat" && self.texts().all(|text| text.starts_with('-')) || self.name == "tee"
    }

    /// Returns whether the command sends its standard input over the network.
    pub(super) fn connects(&self) -> bool {
        // A program that downloads also sends what an option names: `@-` is the standard input.
        let sends = |text: &str| matches!(text, "-" | "@-") || text.ends_with("=@-");
        self.is_one_of(NETCATS)
            || self.is_one_of(&["socat", "telnet"])
            || self.fetches() && self.texts().any(sends)
    }

    /// Returns whether an argument or the input is a file with keys or passwords.
    pub(super) fn reads_sensitive(&self) -> bool {
        self.texts().any(is_sensitive_path)
            || self.command.redirects.iter().any(|(op, word)| *op == "<" && is_sensitive_path(&word.text))
    }

    /// Returns whether the command prints the environment variables, which often contain secrets.
    pub(super) fn dumps_environment(&self) -> bool {
        self.is_one_of(&["env", "printenv"]) && self.arguments.is_empty()
            || self.is_one_of(&["export", "declare"]) && self.has_option('p', "-p")
            || self.texts().any(|text| text.starts_with("/proc/") && text.ends_with("/environ"))
    }

    /// Returns the script that `eval`, `bash -c`, `trap` or `alias` receives as an argument. `None` if the command runs
    /// no such script. Unknown variables stand in it as they are spelled; substitutions are left out, since they have
    /// been followed.
    pub(super) fn inner_script(&self) -> Option<InnerScript> {
        let of_word = |word: &Word| InnerScript {
            text: word.code.clone(),
            span: word.span.clone(),
            is_exact: !word.dynamic,
        };
        let joined = |texts: Vec<&str>, separator| InnerScript {
            text: texts.join(separator),
            span: self.command.span(),
            is_exact: false,
        };
        match self.name {
            "eval" => {
                return Some(joined(self.arguments.iter().map(|word| word.code.as_str()).collect(), " "));
            }
            "alias" => {
                let values = self.arguments.iter().filter_map(|word| Some(word.code.split_once('=')?.1));
                return Some(joined(values.collect(), "\n"));
            }
            "trap" => {
                return self.arguments.first().filter(|word| !word.text.starts_with('-')).map(of_word);
            }
            _ => {}
        }
        // `-c` may be combined with other options, as in `-lc`.
        let at = self.texts().position(|text| text.starts_with('-') && text.ends_with('c'))?;
        let runs = self.is_one_of(SHELLS) || self.is_one_of(&["su", "runuser", "script"]);
        self.arguments.get(at + 1).filter(|_| runs).map(of_word)
    }

    /// Returns whether code of an interpreter connects a shell to a socket, in the arguments or in a here-document.
    fn connects_shell(&self) -> bool {
        let code = |text: &str| {
            let text = text.to_ascii_lowercase();
            let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
            has(&["socket", "tcpsocket", "fsockopen"])
                && has(&["pty.spawn", "/bin/sh", "/bin/bash", "dup2", "subprocess", "exec"])
        };
        self.texts().any(code) || self.documents().any(|(_, word)| code(&word.text))
    }

    /// Reports the unsafe effects of the command alone, regardless of the other commands of its pipeline. `report`
    /// receives the kind of each effect and its severity.
    pub(super) fn report_effects(&self, report: &mut dyn FnMut(&'static str, IssueSeverity)) {
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
                if recursive && any(is_whole_tree) || self.has_argument("--no-preserve-root") {
                    report("REMOVE_ALL", Error);
                }
            }
            "find" if any(is_whole_tree) && (self.has_argument("-delete") || self.has_argument("rm")) => {
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
            // An address of `socat` that runs a program.
            "socat"
                if any(|text| text.to_ascii_uppercase().contains("EXEC:") || text.contains("SYSTEM:")) =>
            {
                report("REVERSE_SHELL", Error);
            }
            // `crontab` installs a table if it has no argument or a file. With only options, it lists or edits one.
            "crontab" if self.arguments.is_empty() || any(|text| text == "-" || !text.starts_with('-')) => {
                report("PERSISTENCE", Warning);
            }
            // `-c` clears the history, and has no long form.
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
            name if INTERPRETERS.contains(&name) && self.connects_shell() => report("REVERSE_SHELL", Error),
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
        // Programs that rarely output the content of such a file, although they name it.
        let harmless_readers =
            ["echo", "printf", "grep", "rg", "git", "ls", "stat", "chmod", "chown", "test", "["];
        if self.reads_sensitive() && !self.is_one_of(&harmless_readers) {
            report("SENSITIVE_FILE", Warning);
        }
    }
}

/// Returns whether an operator begins a here-document.
fn is_document(operator: &str) -> bool {
    matches!(operator, "<<" | "<<-")
}

/// Returns the name of a program without its directory.
fn program_name(word: &str) -> &str {
    word.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(word)
}

/// Returns whether a path is that of a whole tree, whose removal destroys the system or the user's files: the root, a
/// home directory, or a system directory.
pub(super) fn is_whole_tree(path: &str) -> bool {
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
    // `curl -d @file` sends the content of the file.
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
