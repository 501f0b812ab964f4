//! Finds the program that a shell command executes behind wrappers, such as `rm` in `sudo -u x rm`. The submodule
//! `effects` reports the harmful effects of that one command. The scanner creates an [`EffectiveCommand`] for each
//! command; `combinations` judges what the commands of a pipeline do together.

mod effects;

use std::ops::Range;

use super::expansion::Argument;
use super::wrappers::{WrapperOptions, is_assignment, wrapper};

/// A redirection, with what is known of its target.
#[derive(Debug)]
pub(super) struct RedirectTarget<'s> {
    pub(super) operator: &'static str,
    pub(super) target: Argument<'s>,
}

/// A command without its wrappers.
#[derive(Debug)]
pub(super) struct EffectiveCommand<'c, 's> {
    /// The words before the program: the names of wrappers and words that are computed.
    pub(super) wrappers: Vec<&'c Argument<'s>>,
    /// The assignments before the program, in arguments of wrappers.
    pub(super) assigned: Vec<&'c Argument<'s>>,
    /// The word that names the program. `None` if a command has only assignments and redirections, or if its wrappers
    /// lack a program.
    pub(super) program: Option<&'c Argument<'s>>,
    /// The program without its directory; empty if it is computed.
    pub(super) name: &'c str,
    /// Its arguments.
    pub(super) arguments: &'c [Argument<'s>],
    redirects: &'c [RedirectTarget<'s>],
    /// The bytes of the command.
    pub(super) span: Range<usize>,
    /// Whether it runs under `sudo` or `doas`.
    elevated: bool,
    /// Whether an option of a wrapper is unknown, so that the program may be another word.
    pub(super) unclear: bool,
}

/// Programs that run a script of shell commands.
pub(super) const SHELLS: &[&str] = &["sh", "bash", "zsh", "dash", "ksh", "fish", "ash"];
/// Programs that run a script in some language, shells included.
pub(super) const INTERPRETERS: &[&str] = &[
    "sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "python", "python2", "python3", "perl", "ruby",
    "node", "php",
];
/// Programs that download.
const FETCHERS: &[&str] = &["curl", "wget", "fetch", "http", "https", "aria2c"];
/// Programs that print a file, as text or encoded.
pub(super) const READERS: &[&str] =
    &["cat", "base64", "head", "tail", "less", "more", "xxd", "od", "strings"];
/// Programs that connect their input and output to a network address.
const NETCATS: &[&str] = &["nc", "ncat", "netcat"];

impl<'c, 's> EffectiveCommand<'c, 's> {
    /// Finds the program that a command executes: skips wrappers with their options (`sudo -u x rm`), and a first word
    /// that the shell computes and that may be empty (`$SUDO rm`). `words` and `redirects` are the words and the
    /// redirections of the command after expansion, and `span` is the bytes of the command.
    pub(super) fn new(
        words: &'c [Argument<'s>],
        redirects: &'c [RedirectTarget<'s>],
        span: Range<usize>,
    ) -> Self {
        let mut call = Self {
            wrappers: Vec::new(),
            assigned: Vec::new(),
            program: None,
            name: "",
            arguments: &[],
            redirects,
            span,
            elevated: false,
            unclear: false,
        };
        let mut words = words;
        while let Some((first, rest)) = words.split_first() {
            if !first.known {
                // A first word that may be empty is skipped like a wrapper, unless an option follows, which cannot be
                // the program.
                if first.splits && rest.first().is_some_and(|next| !next.text.starts_with('-')) {
                    call.wrappers.push(first);
                    words = rest;
                    continue;
                }
                call.program = Some(first);
                call.arguments = rest;
                return call;
            }
            let name = program_name(&first.text);
            let found = wrapper(name).map(|wrapper| wrapper.find_program(rest));
            let skipped = match found {
                Some(WrapperOptions::Program(at)) => at,
                Some(WrapperOptions::Unclear(at)) => {
                    call.unclear = true;
                    at
                }
                // A wrapper without a program, such as `sudo -i` or `env`, is itself the program. Its arguments can
                // still be assignments.
                Some(WrapperOptions::Inert) | None => {
                    let is_wrapper = found.is_some();
                    call.assigned.extend(rest.iter().filter(|word| is_wrapper && is_assignment(&word.text)));
                    call.program = Some(first);
                    call.name = name;
                    call.arguments = rest;
                    return call;
                }
            };
            let (options, program) = rest.split_at_checked(skipped).unwrap_or((rest, &[]));
            call.assigned.extend(options.iter().filter(|word| is_assignment(&word.text)));
            call.elevated |= matches!(name, "sudo" | "doas");
            call.wrappers.push(first);
            words = program;
        }
        call
    }

    /// Returns whether the program has one of these names.
    pub(super) fn is_one_of(&self, names: &[&str]) -> bool {
        names.contains(&self.name)
    }

    /// Returns the texts of the arguments.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'c str> + use<'c, 's> {
        self.arguments.iter().map(|word| word.text.as_str())
    }

    /// Returns whether an argument has exactly this text.
    pub(super) fn has_argument(&self, argument: &str) -> bool {
        self.texts().any(|text| text == argument)
    }

    /// Returns whether an option is present: its letter in a group of short options (`-rf` has `f`), or the argument
    /// `long`, which is spelled with its dashes.
    pub(super) fn has_option(&self, letter: char, long: &str) -> bool {
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
            // macOS decodes with `-D`.
            "base64" | "base32" => self.has_option('d', "--decode") || self.has_argument("-D"),
            "xxd" => self.has_option('r', "-revert"),
            "openssl" => self.has_option('d', "-d"),
            "rev" | "tr" => true,
            _ => false,
        }
    }

    /// Returns whether the command executes its standard input: a shell without a script, or with `-s`; an interpreter
    /// without arguments, or with `-`.
    pub(super) fn reads_script(&self) -> bool {
        let operands = self.texts().filter(|text| !text.starts_with('-')).count();
        self.is_one_of(SHELLS) && (operands == 0 || self.has_option('s', "-s"))
            || self.is_one_of(INTERPRETERS) && (self.arguments.is_empty() || self.has_argument("-"))
    }

    /// Returns whether the command sends its standard input over the network.
    pub(super) fn connects(&self) -> bool {
        // A program that downloads also sends what an option names: `@-` is the standard input.
        let sends = |text: &str| matches!(text, "-" | "@-") || text.ends_with("=@-");
        self.is_one_of(NETCATS)
            || self.is_one_of(&["socat", "telnet"])
            || self.fetches() && self.texts().any(sends)
    }

    /// Returns whether an argument names a file with keys or passwords, or the standard input is redirected from one.
    pub(super) fn reads_sensitive(&self) -> bool {
        self.texts().any(is_sensitive_path)
            || self
                .redirects
                .iter()
                .any(|redirect| redirect.operator == "<" && is_sensitive_path(&redirect.target.text))
    }

    /// Returns whether the command prints the environment variables, which often contain secrets.
    pub(super) fn dumps_environment(&self) -> bool {
        self.is_one_of(&["env", "printenv"]) && self.arguments.is_empty()
            || self.is_one_of(&["export", "declare"]) && self.has_option('p', "-p")
            || self.texts().any(|text| text.starts_with("/proc/") && text.ends_with("/environ"))
    }

    /// Returns the names of the files that the command writes: those to which its output is redirected, and the file
    /// that an option such as `-o` of a download names.
    pub(super) fn written_files(&self) -> impl Iterator<Item = String> {
        let redirected = self.redirects.iter().filter(|redirect| redirect.operator.starts_with('>'));
        let redirected = redirected.map(|redirect| redirect.target.text.clone());
        // The option `-O` of curl has no value: the file is named as in the URL.
        let options: &[&str] =
            if self.name == "curl" { &["-o", "--output"] } else { &["-o", "-O", "--output"] };
        redirected.chain(options.iter().filter_map(|option| self.option_value(option)))
    }
}

/// Returns the name of a program without its directory.
pub(super) fn program_name(word: &str) -> &str {
    word.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(word)
}

/// Returns whether a path names a file that usually contains keys or passwords, or settings about keys and rights.
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
