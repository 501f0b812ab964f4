//! Recognises wrappers, such as `sudo` in `sudo -u x rm`: programs that run another program, which follows their
//! options and operands. [`effective_command`](super::effective_command) calls [`wrapper`] and
//! [`Wrapper::find_program`] to find that program.
//!
//! An option that is not in the table may take the next word as its value, so it is then uncertain which word is the
//! program.

use super::expansion::Argument;

/// How the arguments of a wrapper are read up to the program.
#[derive(Debug)]
pub(super) struct Wrapper {
    /// The short options without a value.
    flags: &'static str,
    /// The short options with a value.
    values: &'static str,
    /// The long options without a value, or with an optional one after `=`.
    long_flags: &'static [&'static str],
    /// The long options with a value.
    long_values: &'static [&'static str],
    /// The short options with which it runs no program.
    inert: &'static str,
    /// The number of operands before the program.
    operands: usize,
    /// Whether assignments may precede the program.
    assignments: bool,
}

/// A wrapper without options and operands, from which the table derives the others.
const PLAIN: Wrapper = Wrapper {
    flags: "",
    values: "",
    long_flags: &[],
    long_values: &[],
    inert: "",
    operands: 0,
    assignments: false,
};

/// Returns how the arguments of the program `name` are read, if it is a wrapper: a program that runs another one, such
/// as `sudo`. `None` for every other program. In the table, `flags` are the short options without a value, `values`
/// those with one, and `inert` those with which no program is run; `operands` is the number of words before the
/// program, and `assignments` says whether `NAME=value` may precede it. See [`Wrapper`].
pub(super) fn wrapper(name: &str) -> Option<Wrapper> {
    Some(match name {
        "sudo" => Wrapper {
            flags: "ABbEHiknNPSs",
            values: "ugpCDRTUhrtac",
            long_flags: &[
                "askpass",
                "bell",
                "background",
                "preserve-env",
                "set-home",
                "login",
                "reset-timestamp",
                "non-interactive",
                "no-update",
                "preserve-groups",
                "stdin",
                "shell",
            ],
            long_values: &[
                "user",
                "group",
                "host",
                "prompt",
                "chroot",
                "chdir",
                "role",
                "type",
                "close-from",
                "command-timeout",
                "other-user",
                "login-class",
                "auth-type",
            ],
            inert: "eKlVv",
            assignments: true,
            ..PLAIN
        },
        "doas" => Wrapper { flags: "ns", values: "u", inert: "LC", ..PLAIN },
        "env" => Wrapper {
            flags: "iv0",
            values: "uCa",
            long_flags: &[
                "ignore-environment",
                "null",
                "debug",
                "block-signal",
                "default-signal",
                "ignore-signal",
            ],
            long_values: &["unset", "chdir", "argv0"],
            assignments: true,
            ..PLAIN
        },
        "timeout" | "gtimeout" => Wrapper {
            flags: "vfp",
            values: "ks",
            long_flags: &["foreground", "preserve-status", "verbose"],
            long_values: &["kill-after", "signal"],
            operands: 1,
            ..PLAIN
        },
        "nice" => Wrapper { flags: "0123456789", values: "n", long_values: &["adjustment"], ..PLAIN },
        "ionice" => Wrapper {
            flags: "t",
            values: "cn",
            long_flags: &["ignore"],
            long_values: &["class", "classdata"],
            inert: "pPu",
            ..PLAIN
        },
        "stdbuf" => Wrapper { values: "ioe", long_values: &["input", "output", "error"], ..PLAIN },
        "nohup" | "builtin" | "busybox" | "toybox" | "unbuffer" | "linux32" | "linux64" => PLAIN,
        "setsid" => Wrapper { flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..PLAIN },
        "time" => Wrapper {
            flags: "pvaq",
            values: "fo",
            long_flags: &["portability", "verbose", "append", "quiet"],
            long_values: &["format", "output"],
            ..PLAIN
        },
        "command" => Wrapper { flags: "p", inert: "vV", ..PLAIN },
        "exec" => Wrapper { flags: "cl", values: "a", ..PLAIN },
        "chroot" => Wrapper {
            long_flags: &["skip-chdir"],
            long_values: &["userspec", "groups"],
            operands: 1,
            ..PLAIN
        },
        "taskset" => Wrapper { flags: "ac", inert: "p", operands: 1, ..PLAIN },
        "chrt" => Wrapper { flags: "abfioriv", inert: "mp", operands: 1, ..PLAIN },
        "caffeinate" => Wrapper { flags: "dimsu", values: "tw", ..PLAIN },
        "arch" => Wrapper { values: "deh", flags: "6", long_flags: &["x86_64", "arm64"], ..PLAIN },
        "fakeroot" | "dbus-run-session" | "cachegrind" | "winpty" | "noglob" | "nocorrect" | "rlwrap"
        | "chronic" | "ifne" | "i386" | "x86_64" | "uname26" => PLAIN,
        _ => return None,
    })
}

/// Where the program is among the arguments of a wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrapperOptions {
    /// The program begins at this argument.
    Program(usize),
    /// There is no program: the wrapper only prints something, or lacks arguments.
    Inert,
    /// An option is unknown or computed. The program may begin at this argument.
    Unclear(usize),
}

impl Wrapper {
    /// Finds the program among the arguments of the wrapper: skips its options with their values, its operands and, if
    /// it permits them, assignments. Returns the index of the program, and whether an unknown option makes it
    /// uncertain; or [`WrapperOptions::Inert`] if no program is run.
    pub(super) fn find_program(&self, arguments: &[Argument<'_>]) -> WrapperOptions {
        let mut at = 0;
        let mut unclear = false;
        let mut operands = self.operands;
        while let Some(argument) = arguments.get(at) {
            let text = argument.text.as_str();
            let assigned = self.assignments && is_assignment(text);
            // A computed word may be an option, or several words; in quotes, it is one word.
            let is_uncertain =
                argument.splits || !argument.known && text.starts_with(['$', '`']) && !assigned;
            if is_uncertain {
                let is_operand = !argument.splits && operands > 0;
                if is_operand {
                    operands -= 1;
                    at += 1;
                    continue;
                }
                // The word counts as the program; the scanner reports a computed program.
                break;
            }
            if text == "--" {
                at += 1;
                // After `--`, only operands and assignments precede the program.
                while operands > 0
                    || self.assignments && arguments.get(at).is_some_and(|a| is_assignment(&a.text))
                {
                    operands = operands.saturating_sub(1);
                    at += 1;
                }
                break;
            }
            // `-` alone is an option of `env`, one of the wrappers with assignments.
            if assigned || text == "-" && self.assignments {
                at += 1;
            } else if let Some(option) = text.strip_prefix('-').filter(|option| !option.is_empty()) {
                let read = match option.strip_prefix('-') {
                    Some(long) => self.read_long_option(long),
                    None => self.read_short_options(option),
                };
                let Some((values, is_unknown)) = read else { return WrapperOptions::Inert };
                at += 1 + values;
                unclear |= is_unknown;
            } else if operands > 0 {
                operands -= 1;
                at += 1;
            } else {
                break;
            }
        }
        // A value that is split may contain the program.
        unclear |= arguments.iter().take(at).any(|word| word.splits);
        match (unclear, at < arguments.len()) {
            (true, _) => WrapperOptions::Unclear(at),
            (false, true) => WrapperOptions::Program(at),
            // No argument is left for a program.
            (false, false) => WrapperOptions::Inert,
        }
    }

    /// Reads a long option, without its hyphens. Returns how many of the next words are its value, and whether the
    /// option is unknown; `None` if the wrapper runs no program with it.
    fn read_long_option(&self, option: &str) -> Option<(usize, bool)> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, v)| (name, Some(v)));
        if self.long_values.contains(&name) {
            // The value is after `=`, or it is the next word.
            return Some((usize::from(value.is_none()), false));
        }
        if matches!(name, "help" | "version") {
            return None;
        }
        let is_unknown = !self.long_flags.contains(&name);
        Some((0, is_unknown))
    }

    /// Reads the short options of one word, such as `nu` for `-nu`. Returns the same as
    /// [`read_long_option`](Self::read_long_option).
    fn read_short_options(&self, options: &str) -> Option<(usize, bool)> {
        for (i, option) in options.char_indices() {
            if self.inert.contains(option) {
                return None;
            }
            if self.values.contains(option) {
                // The value is the rest of this word or, if the option is the last one, the next word.
                let is_last = i + option.len_utf8() == options.len();
                return Some((usize::from(is_last), false));
            }
            if !self.flags.contains(option) {
                return Some((0, true));
            }
        }
        Some((0, false))
    }
}

/// Returns whether a text is an assignment, as `env` and `sudo` read it.
pub(super) fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.starts_with('-'))
}
