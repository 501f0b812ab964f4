//! Reports the harmful effects of one shell command, by its program, its arguments and its redirections. The scanner
//! calls [`EffectiveCommand::report_effects`] for each command. This module knows the programs and options that attacks
//! usually use, and misses the effects of others.

use super::{EffectiveCommand, INTERPRETERS, SHELLS, is_sensitive_path};
use crate::shell::IssueSeverity::{Error, Warning};
use crate::shell::{IssueSeverity, UnsafeCommandKind};

/// A function that receives the kind of an effect and its severity.
type EffectReport<'r> = dyn FnMut(UnsafeCommandKind, IssueSeverity) + 'r;

/// Programs that rarely output the content of a sensitive file, although they name it.
const HARMLESS_READERS: &[&str] =
    &["echo", "printf", "grep", "rg", "git", "ls", "stat", "chmod", "chown", "test", "["];

impl EffectiveCommand<'_, '_> {
    /// Reports the unsafe effects of the command alone, regardless of the other commands of its pipeline. `report`
    /// receives the kind of each effect and its severity.
    pub(in crate::shell) fn report_effects(&self, report: &mut EffectReport<'_>) {
        let is_socket = |text: &str| text.contains("/dev/tcp/") || text.contains("/dev/udp/");
        let targets = self.redirects.iter().map(|redirect| redirect.target.text.as_str());
        if self.texts().chain(targets).any(is_socket) {
            report(UnsafeCommandKind::ReverseShell, Error);
        }
        // Each of these methods knows the programs of one sort, and reports nothing for any other program.
        self.report_destruction(report);
        self.report_connections(report);
        self.report_weaker_protection(report);
        self.report_execution(report);
        self.report_writes(report);
        if self.dumps_environment() {
            report(UnsafeCommandKind::EnvironmentDump, Warning);
        }
        if self.reads_sensitive() && !self.is_one_of(HARMLESS_READERS) {
            report(UnsafeCommandKind::SensitiveFile, Warning);
        }
    }

    /// Returns whether an argument passes a test.
    fn any_argument(&self, test: impl Fn(&str) -> bool) -> bool {
        self.texts().any(test)
    }

    /// Reports programs that remove a whole tree, overwrite a device, or open files to everybody.
    fn report_destruction(&self, report: &mut EffectReport<'_>) {
        match self.name {
            "rm" => {
                let recursive = self.has_option('r', "--recursive") || self.has_option('R', "--recursive");
                if recursive && self.any_argument(is_whole_tree) || self.has_argument("--no-preserve-root") {
                    report(UnsafeCommandKind::RemoveAll, Error);
                }
            }
            "find"
                if self.any_argument(is_whole_tree)
                    && (self.has_argument("-delete") || self.has_argument("rm")) =>
            {
                report(UnsafeCommandKind::RemoveAll, Error)
            }
            "chmod" => {
                if self.any_argument(lets_everybody_write) {
                    report(UnsafeCommandKind::WorldWritable, Warning);
                }
                if self.any_argument(passes_rights_on) {
                    report(UnsafeCommandKind::Privilege, Error);
                }
            }
            "dd" if self.texts().filter_map(|text| text.strip_prefix("of=")).any(is_device) => {
                report(UnsafeCommandKind::DiskWrite, Error);
            }
            "shred" | "wipefs" | "fdisk" if self.any_argument(is_device) => {
                report(UnsafeCommandKind::DiskWrite, Error)
            }
            name if name.starts_with("mkfs") => report(UnsafeCommandKind::DiskWrite, Error),
            _ => {}
        }
    }

    /// Reports programs that send files, or connect a shell to an address.
    fn report_connections(&self, report: &mut EffectReport<'_>) {
        match self.name {
            "curl" | "wget" | "http" | "https" => {
                // In an argument, `@` precedes the name of a file to send, as in `-d @FILE` and `-F part=@FILE`.
                let sends_file =
                    |text: &str| text.starts_with('@') || text.contains("=@") || text.starts_with("-d@");
                let file_options = ["-T", "--upload-file", "--post-file", "--body-file"];
                if self.any_argument(sends_file)
                    || file_options.iter().any(|option| self.option_value(option).is_some())
                {
                    report(UnsafeCommandKind::Upload, Error);
                }
            }
            "scp" | "rsync" | "sftp" => {
                // The last argument is the destination; one with a colon is on another host.
                let remote = self.texts().last().is_some_and(|text| text.contains(':'));
                if remote && self.any_argument(is_sensitive_path) {
                    report(UnsafeCommandKind::Upload, Error);
                }
            }
            "nc" | "ncat" | "netcat" => {
                // These options connect a program to the network.
                let runs = self.has_option('e', "--exec") || self.has_option('c', "--sh-exec");
                if runs
                    || self.any_argument(|text| text.starts_with("--exec=") || text.starts_with("--sh-exec="))
                {
                    report(UnsafeCommandKind::ReverseShell, Error);
                }
            }
            // An address of `socat` that runs a program.
            "socat"
                if self.any_argument(|text| {
                    let text = text.to_ascii_uppercase();
                    text.contains("EXEC:") || text.contains("SYSTEM:")
                }) =>
            {
                report(UnsafeCommandKind::ReverseShell, Error);
            }
            name if INTERPRETERS.contains(&name) => {
                // Returns whether the text is code that connects a shell to a socket.
                let connects_shell = |text: &str| {
                    let has =
                        |words: &[&str]| words.iter().any(|word| text.to_ascii_lowercase().contains(word));
                    has(&["socket", "tcpsocket", "fsockopen"])
                        && has(&["pty.spawn", "/bin/sh", "/bin/bash", "dup2", "subprocess", "exec"])
                };
                if self.any_argument(connects_shell) {
                    report(UnsafeCommandKind::ReverseShell, Error);
                }
            }
            _ => {}
        }
    }

    /// Reports programs that switch protection off, hide what was done, run something later, or obtain rights.
    fn report_weaker_protection(&self, report: &mut EffectReport<'_>) {
        match self.name {
            // `crontab` installs a table if it has no argument or a file. With only options, it lists or edits one.
            "crontab"
                if self.arguments.is_empty()
                    || self.any_argument(|text| text == "-" || !text.starts_with('-')) =>
            {
                report(UnsafeCommandKind::Persistence, Warning);
            }
            // `-c` clears the history, and has no long form.
            "history" if self.has_option('c', "-c") => report(UnsafeCommandKind::History, Warning),
            // Variables such as `HISTFILE` determine what the shell records.
            "unset" if self.any_argument(|text| text.starts_with("HIST")) => {
                report(UnsafeCommandKind::History, Warning)
            }
            "setenforce" if self.has_argument("0") => report(UnsafeCommandKind::DisableSecurity, Error),
            "iptables" | "ip6tables" | "nft"
                if self.has_option('F', "--flush") || self.has_argument("flush") =>
            {
                report(UnsafeCommandKind::DisableSecurity, Error);
            }
            "ufw" if self.has_argument("disable") => report(UnsafeCommandKind::DisableSecurity, Error),
            "systemctl" | "service" => {
                let is_security_service = |text: &str| {
                    ["firewalld", "ufw", "auditd", "apparmor", "falcon", "iptables"]
                        .iter()
                        .any(|name| text.starts_with(name))
                };
                if self.any_argument(is_security_service)
                    && self.any_argument(|text| matches!(text, "stop" | "disable" | "mask"))
                {
                    report(UnsafeCommandKind::DisableSecurity, Error);
                }
            }
            // A shell with the rights of root.
            "sudo" | "doas" if self.any_argument(|text| matches!(text, "-i" | "-s")) => {
                report(UnsafeCommandKind::Privilege, Warning)
            }
            // Membership in these groups gives the rights of root.
            "usermod" | "gpasswd"
                if self.any_argument(|text| matches!(text, "sudo" | "wheel" | "root" | "docker")) =>
            {
                report(UnsafeCommandKind::Privilege, Error);
            }
            _ => {}
        }
    }

    /// Reports `eval`, and shells with the rights of another user.
    fn report_execution(&self, report: &mut EffectReport<'_>) {
        if self.name == "eval" {
            let is_computed = self.arguments.iter().any(|word| !word.known);
            report(UnsafeCommandKind::Eval, if is_computed { Error } else { Warning });
        }
        if self.elevated && (self.name == "su" || self.is_one_of(SHELLS) && self.arguments.is_empty()) {
            report(UnsafeCommandKind::Privilege, Warning);
        }
    }

    /// Reports redirections and programs that write to a device, to a file that grants rights, to a file that runs
    /// later, or to the history of commands.
    fn report_writes(&self, report: &mut EffectReport<'_>) {
        if self.writes(is_device) {
            report(UnsafeCommandKind::DiskWrite, Error);
        }
        if self.writes(|text| text.starts_with("/etc/sudoers")) {
            report(UnsafeCommandKind::Privilege, Error);
        }
        if self.writes(is_run_at_start) {
            report(UnsafeCommandKind::Persistence, Warning);
        }
        let is_history = |text: &str| text.ends_with("_history");
        let changes_history =
            self.is_one_of(&["rm", "shred", "truncate", "ln"]) && self.any_argument(is_history);
        if changes_history || self.writes(is_history) {
            report(UnsafeCommandKind::History, Warning);
        }
    }

    /// Returns whether a redirection or `tee` writes to a file that passes a test.
    fn writes(&self, test: impl Fn(&str) -> bool) -> bool {
        let to_file = self.redirects.iter().any(|it| it.operator.contains('>') && test(&it.target.text));
        to_file || self.name == "tee" && self.any_argument(test)
    }
}

/// Returns whether a mode of `chmod` lets every user write to the file.
fn lets_everybody_write(mode: &str) -> bool {
    matches!(mode, "777" | "0777" | "a+rwx" | "a=rwx" | "ugo+rwx" | "+rwx" | "o+w" | "a+w" | "666" | "0666")
}

/// Returns whether with this mode of `chmod`, a program runs with the rights of its owner (`u+s`, `4755`) or its group
/// (`g+s`, `2755`), no matter which user starts it.
fn passes_rights_on(mode: &str) -> bool {
    // In the first of four octal digits, 4 is the bit for the owner and 2 the bit for the group.
    matches!(mode, "u+s" | "+s" | "g+s" | "ug+s")
        || mode.len() == 4
            && mode.starts_with(['2', '3', '4', '5', '6', '7'])
            && mode.bytes().all(|digit| matches!(digit, b'0'..=b'7'))
}

/// Returns whether a path names a disk or a part of one.
fn is_device(path: &str) -> bool {
    ["/dev/sd", "/dev/hd", "/dev/vd", "/dev/nvme", "/dev/disk", "/dev/mmcblk", "/dev/mapper"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}

/// Returns whether a path names a file that is run at a start, such as a login, or that lets somebody log in.
fn is_run_at_start(path: &str) -> bool {
    [".ssh/authorized_keys", ".bashrc", ".bash_profile", ".profile", ".zshrc"]
        .iter()
        .any(|end| path.ends_with(end))
        || ["/etc/cron", "/etc/profile", "/etc/rc.local", "/etc/systemd/", "/var/spool/cron"]
            .iter()
            .any(|start| path.starts_with(start))
}

/// Returns whether a path names a whole tree, whose removal destroys the system or the user's files: the root, the
/// user's home directory or that of root, the directory of all home directories, or a system directory.
fn is_whole_tree(path: &str) -> bool {
    // `/etc/*` and `/etc/` mean `/etc`, but `/` remains.
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
