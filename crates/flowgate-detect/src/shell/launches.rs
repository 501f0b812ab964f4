//! Finds what a program runs because of its arguments: scripts (`eval`, `ssh host …`), commands (`xargs`, and `-exec`
//! of `find`), and code that the scanner cannot follow, which is reported as unread: computed code, code from a pipe or
//! a file, and code in another language.
//!
//! The scanner calls [`launches`] for each command and follows each launch. A program that this module does not list is
//! assumed to run nothing that its arguments name.

use super::UnreadReason;
use super::effective_command::{EffectiveCommand, INTERPRETERS, program_name};
use super::expansion::Argument;
use super::foreign_launches::{awk, sed};
use super::launch::{CommandInput, Launch, abbreviates, is_cluster_with, joined_script, split_options};
use super::remote::{container_launches, git_launches, ssh_launches};
use super::shells::{file_launch, interpreter_launches, is_shell, script_launch, shell_launches};

/// Interpreters that are not in [`INTERPRETERS`].
const OTHER_INTERPRETERS: &[&str] = &[
    "pypy",
    "pypy3",
    "nodejs",
    "bun",
    "deno",
    "lua",
    "luajit",
    "tclsh",
    "wish",
    "osascript",
    "Rscript",
    "julia",
    "ghci",
    "irb",
    "pwsh",
    "powershell",
    "groovy",
    "guile",
    "racket",
    "scheme",
    "sbcl",
    "elixir",
    "erl",
    "escript",
    "jshell",
    "ts-node",
    "tsx",
    "ipython",
    "ipython3",
    "gdb",
    "lldb",
    "expect",
    "raku",
    "octave",
    "scala",
    "clojure",
];
/// Programs that run commands given in their arguments or in their input, in ways that are not followed.
const OPAQUE: &[&str] = &[
    "parallel",
    "tmux",
    "screen",
    "hyperfine",
    "entr",
    "watchexec",
    "systemd-run",
    "unshare",
    "nsenter",
    "bwrap",
    "firejail",
    "strace",
    "ltrace",
    "valgrind",
    "perf",
    "script",
    "flock",
    "at",
    "batch",
    "xvfb-run",
    "start-stop-daemon",
    "run-parts",
    "socat",
    "dialog",
    "nix-shell",
    "nix",
    "direnv",
    "pkexec",
    "runcon",
    "sg",
    "newgrp",
    "capsh",
    "setpriv",
    "setarch",
    "prlimit",
    "numactl",
    "proot",
    "schroot",
    "machinectl",
    "lxc-attach",
    "vagrant",
    "ansible",
    "pdsh",
    "salt",
    "fc",
    "complete",
    "compgen",
    "bind",
    "enable",
    "coproc",
    "m4",
    "rundll32",
    "cmd",
    "wsl",
    "adb",
    "inotifywait",
    "fswatch",
    "nodemon",
    "concurrently",
    "dotenv",
    "mosh",
    "rsh",
    "rexec",
    "autossh",
    "sshpass",
    "ssh-agent",
    "gosu",
    "su-exec",
    "tini",
    "dumb-init",
    "s6-setuidgid",
    "daemonize",
    "ld.so",
];
/// Editors that run commands given by their options.
const EDITORS: &[&str] =
    &["vi", "vim", "nvim", "view", "ex", "vimdiff", "emacs", "emacsclient", "ed", "less", "more", "man"];
/// Programs with the subcommands that run the program named after them: `uv run pytest`.
const RUNNERS: &[(&str, &[&str])] = &[
    ("uv", &["run"]),
    ("poetry", &["run"]),
    ("pipenv", &["run"]),
    ("pdm", &["run"]),
    ("hatch", &["run"]),
    ("rye", &["run"]),
    ("bundle", &["exec"]),
    ("npm", &["exec"]),
    ("pnpm", &["exec"]),
    ("yarn", &["exec"]),
    ("mise", &["exec"]),
    ("conda", &["run"]),
    ("rustup", &["run"]),
];

/// Programs with options whose value is a further program to run. Each row has the names of the programs, the letters
/// of their short options of this kind, and their other options of this kind. Long options may be abbreviated.
const PROGRAM_OPTIONS: &[(&[&str], &str, &[&str])] = &[
    (
        &["tar", "bsdtar", "gtar"],
        "IF",
        &[
            "--to-command",
            "--checkpoint-action",
            "--use-compress-program",
            "--rsh-command",
            "--rmt-command",
            "--info-script",
            "--new-volume-script",
        ],
    ),
    (&["zip"], "", &["--unzip-command"]),
    (&["rsync"], "e", &["--rsh", "--rsync-path"]),
    (&["scp", "sftp"], "SoFD", &[]),
    (&["cpio"], "", &["--rsh-command"]),
    (&["sort"], "", &["--compress-program"]),
    (&["split"], "", &["--filter"]),
    (&["wget"], "", &["--use-askpass"]),
    (&["go"], "", &["-exec", "-toolexec", "--exec", "--toolexec"]),
];

/// Returns whether a command of one of the programs in [`PROGRAM_OPTIONS`] has an option that names a further program
/// to run. False for any other command.
fn names_program(call: &EffectiveCommand<'_, '_>) -> bool {
    let Some((_, letters, options)) = PROGRAM_OPTIONS.iter().find(|(names, ..)| names.contains(&call.name))
    else {
        return false;
    };
    let is_tar = matches!(call.name, "tar" | "bsdtar" | "gtar");
    let mut texts = call.texts().enumerate();
    texts.any(|(at, text)| {
        // The first argument of `tar` may be short options without a dash.
        let is_bundle = is_tar && at == 0 && !text.starts_with('-');
        // `--checkpoint` abbreviates `--checkpoint-action`, but is an option of its own, which runs nothing.
        let is_checkpoint = text.split('=').next() == Some("--checkpoint");
        letters.chars().any(|letter| is_cluster_with(text, letter) || is_bundle && text.contains(letter))
            || !is_checkpoint
                && options.iter().any(|option| text.starts_with(option) || abbreviates(text, option))
            // The option `-TT` of `zip` names the program that tests the archive.
            || call.name == "zip" && text.starts_with('-') && text.contains("TT")
            // `wget -e` sets any setting, whose name may have dashes and underscores anywhere.
            || call.name == "wget" && text.replace(['-', '_'], "").to_ascii_lowercase().contains("askpass")
    })
}

/// Returns what a command runs because of its name, its arguments and its standard input (`input`): one launch for each
/// script or command, and an unread launch for code that the scanner cannot follow. Empty if the program is not known
/// to run anything that its arguments name.
pub(super) fn launches<'s>(call: &EffectiveCommand<'_, 's>, input: &CommandInput) -> Vec<Launch<'s>> {
    let unread = |reason| vec![Launch::Unread(reason, call.span.clone())];
    let operands = || call.arguments.iter().filter(|word| !word.text.starts_with('-'));
    match call.name {
        // There is no program, or the shell computes its name, which the scanner reports.
        "" => Vec::new(),
        name if is_shell(name) => shell_launches(call, input),
        name if INTERPRETERS.contains(&name)
            || is_versioned_python(name)
            || OTHER_INTERPRETERS.contains(&name) =>
        {
            interpreter_launches(call, input)
        }
        "eval" => joined_script(call.arguments, call),
        "source" | "." => operands().next().map(|file| file_launch(file, call)).into_iter().collect(),
        "trap" => {
            let words = call.arguments.iter().skip_while(|word| word.text == "--");
            // An option such as `-p`, or `-` alone, sets no script.
            let script = words.clone().next().filter(|word| !word.known || !word.text.starts_with('-'));
            script.map_or_else(Vec::new, |script| script_launch(script, call))
        }
        // An alias can change how everything after it is parsed.
        "alias" if call.arguments.iter().any(|word| !word.known || word.text.contains('=')) => {
            let mut launches = unread(UnreadReason::Script);
            launches.extend(call.arguments.iter().filter_map(|word| {
                Some(Launch::Guess(word.text.split_once('=')?.1.to_owned(), word.span.clone()))
            }));
            launches
        }
        // `-C` names a command that runs while the lines are read.
        "mapfile" | "readarray" if call.has_option('C', "-C") => unread(UnreadReason::Script),
        // `-p` sets the program that later commands of a name run.
        "hash" if call.has_option('p', "-p") => unread(UnreadReason::Environment),
        // `-x` runs the arguments after the options as a command.
        "jobs" if call.has_option('x', "-x") => {
            let words = call.arguments.iter().skip_while(|word| word.text.starts_with('-'));
            vec![Launch::Words(words.cloned().collect())]
        }
        // The value of `-S` is split into the words of a command.
        "env" => match call.option_value("-S").or_else(|| call.option_value("--split-string")) {
            Some(_) => unread(UnreadReason::Arguments),
            None => Vec::new(),
        },
        "su" | "runuser" => su(call),
        "xargs" => xargs(call),
        "find" | "gfind" | "fd" | "fdfind" => find(call),
        "watch" => watch(call),
        "ssh" => ssh_launches(call),
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" | "docker-compose" => container_launches(call),
        "git" => git_launches(call),
        "awk" | "gawk" | "mawk" | "nawk" => awk(call),
        "sed" | "gsed" => sed(call),
        name if PROGRAM_OPTIONS.iter().any(|(names, ..)| names.contains(&name)) => {
            if names_program(call) {
                unread(UnreadReason::Arguments)
            } else {
                Vec::new()
            }
        }
        "make" | "gmake" | "just" | "ninja" => {
            // Whether the rules to execute are in the standard input, or are set by an argument.
            let from_input = call.texts().zip(call.texts().skip(1)).any(|(option, file)| {
                matches!(option, "-f" | "--file" | "--makefile") && (file == "-" || file.starts_with("/dev/"))
            });
            let sets = |text: &str| {
                text.starts_with("--eval")
                    || text.starts_with("SHELL=")
                    || text == "-f-"
                    || text.contains("$(")
            };
            if from_input || call.texts().any(sets) { unread(UnreadReason::Script) } else { Vec::new() }
        }
        "crontab" if operands().next().is_some() || call.has_argument("-") => unread(UnreadReason::File),
        name if EDITORS.contains(&name) => {
            // An option, or `+command`, can name a command of the editor, which can run a program.
            let runs = |text: &str| {
                text.starts_with('+')
                    || ["-c", "-S", "-s", "-e", "-l", "-f", "-P", "--"]
                        .iter()
                        .any(|option| text.starts_with(option))
            };
            // `ed` also runs commands that are in its standard input.
            let fed = name == "ed" && !matches!(input, CommandInput::Terminal);
            if fed || call.texts().any(runs) { unread(UnreadReason::Arguments) } else { Vec::new() }
        }
        name if OPAQUE.contains(&name) && !call.arguments.is_empty() => unread(UnreadReason::Arguments),
        // The commands of database clients that run a program.
        "sqlite3" | "psql" | "mysql" => {
            let runs =
                |text: &str| text.contains(".shell") || text.contains(".system") || text.contains("\\!");
            if call.texts().any(runs) { unread(UnreadReason::Arguments) } else { Vec::new() }
        }
        // Programs with subcommands that run the program named after them, such as `uv run pytest`.
        name => match RUNNERS.iter().find(|(runner, _)| *runner == name) {
            Some((_, subcommands)) => runner(call, subcommands),
            None => Vec::new(),
        },
    }
}

/// Returns whether a program is Python with a version in its name: `python3.12`.
fn is_versioned_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Returns what `su` runs: the values of `-c`, or a shell that reads the standard input. If a word may become several
/// words, it is unknown which one is the script. An unknown option counts as not read, and so do arguments of the
/// shell, since a file or a command may be among them.
fn su<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    if call.arguments.iter().any(|word| word.splits) {
        return vec![unread(UnreadReason::Script)];
    }
    let mut launches = Vec::new();
    let (mut operands, mut has_script) = (0, false);
    let mut words = call.arguments.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        let Some(short) = text.strip_prefix('-') else {
            operands += 1;
            continue;
        };
        match text {
            // Options without a value.
            "--login" | "--preserve-environment" | "--pty" | "--fast" => continue,
            "--command" | "--session-command" => {
                has_script = true;
                launches.extend(words.next().map(|script| script_launch(script, call)).unwrap_or_default());
                continue;
            }
            _ => {}
        }
        for (i, letter) in short.char_indices() {
            // The value of an option is the rest of the word, or else the next word.
            let rest = short.get(i + letter.len_utf8()..).unwrap_or_default();
            let attached = Argument { text: rest.to_owned(), ..word.clone() };
            let mut value = || if rest.is_empty() { words.next().cloned() } else { Some(attached.clone()) };
            match letter {
                // Options without a value: the next letter is another option.
                'l' | 'm' | 'p' | 'f' | 'P' => continue,
                'c' | 'C' => {
                    has_script = true;
                    launches.extend(value().map(|script| script_launch(&script, call)).unwrap_or_default());
                }
                's' => {
                    // A known shell is skipped, as its script is found in other arguments or in the input.
                    let is_known_shell =
                        value().is_some_and(|shell| shell.known && is_shell(program_name(&shell.text)));
                    if !is_known_shell {
                        launches.push(unread(UnreadReason::Arguments));
                    }
                }
                _ => launches.push(unread(UnreadReason::Arguments)),
            }
            break;
        }
    }
    // The first operand is the user, and further ones are arguments of the shell.
    match (has_script, operands) {
        (true, _) => {}
        (false, 0 | 1) => launches.push(unread(UnreadReason::Input)),
        (false, _) => launches.push(unread(UnreadReason::Arguments)),
    }
    launches
}

/// Returns what `xargs` runs: the command in its arguments. Words from its input are added at the end of the command
/// or, with an option such as `-I {}`, replace a mark in it (`replaced`). These words are unknown.
fn xargs<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    let mut launches = Vec::new();
    let mut replaced: Option<String> = None;
    // The options of `xargs` end before the argument `at`; its command follows.
    let mut at = 0;
    while let Some(word) = call.arguments.get(at) {
        // The word can be an option or the command. It is taken as the beginning of the command.
        if word.splits || !word.known && word.text.starts_with('$') {
            break;
        }
        let text = word.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        let Some(short) = text.strip_prefix('-').filter(|short| !short.is_empty()) else { break };
        at += 1;
        if let Some(long) = short.strip_prefix('-') {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, v)| (name, Some(v)));
            match name {
                "null" | "no-run-if-empty" | "verbose" | "interactive" | "exit" | "open-tty"
                | "show-limits" | "eof" | "max-lines" => {}
                "arg-file" | "delimiter" | "max-args" | "max-procs" | "max-chars" | "process-slot-var" => {
                    at += usize::from(value.is_none());
                }
                "replace" => replaced = Some(value.unwrap_or("{}").to_owned()),
                "help" | "version" => return launches,
                _ => launches.push(unread(UnreadReason::Arguments)),
            }
            continue;
        }
        for (i, letter) in short.char_indices() {
            let rest = short.get(i + letter.len_utf8()..).unwrap_or_default();
            match letter {
                // Options without a value: the next letter is another option.
                '0' | 'r' | 't' | 'p' | 'x' | 'o' => continue,
                // The value is the mark that words of the input replace.
                'I' | 'J' => {
                    let value = if rest.is_empty() {
                        call.arguments.get(at).map(|word| word.text.as_str())
                    } else {
                        Some(rest)
                    };
                    at += usize::from(rest.is_empty());
                    replaced = value.map(str::to_owned);
                }
                'i' => replaced = Some(if rest.is_empty() { "{}" } else { rest }.to_owned()),
                // The value of these options, if any, is the rest of the word.
                'e' | 'l' => {}
                // The value of these options is the rest of the word, or else the next word.
                'a' | 'd' | 'E' | 'L' | 'n' | 'P' | 's' | 'R' | 'S' => at += usize::from(rest.is_empty()),
                _ => launches.push(unread(UnreadReason::Arguments)),
            }
            break;
        }
    }
    // Unread if one of the options can become several words.
    launches.extend(split_options(call, at));
    let command = call.arguments.get(at..).unwrap_or_default();
    // Without a command, `xargs` prints its input.
    if command.is_empty() {
        return launches;
    }
    let mut words: Vec<Argument<'s>> = command.to_vec();
    match replaced {
        Some(mark) => mark_computed(&mut words, &mark),
        None => words.push(Argument::added(&call.span)),
    }
    launches.push(Launch::Words(words));
    launches
}

/// Marks the words that contain `placeholder` as computed: a program replaces the placeholder by names of files or by
/// its input.
fn mark_computed(words: &mut [Argument<'_>], placeholder: &str) {
    for word in words.iter_mut().filter(|word| word.text.contains(placeholder)) {
        word.known = false;
    }
}

/// Returns the commands that `find -exec` and `fd --exec` run. A command ends at `;`, or at `+` after `{}`. The names
/// of the found files, which replace `{}` or which `fd` appends, are unknown.
fn find<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let mut launches = Vec::new();
    // A word that is split can be `-exec`.
    if call.arguments.iter().any(|word| word.splits) {
        launches.push(Launch::Unread(UnreadReason::Arguments, call.span.clone()));
    }
    let is_fd = call.name.starts_with("fd");
    let mut words = call.arguments.iter();
    while let Some(word) = words.next() {
        let begins_command = match word.text.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => !is_fd,
            "-x" | "-X" | "--exec" | "--exec-batch" => is_fd,
            // An option whose command is in the same word, such as `--exec=rm`: the command is not read.
            text => {
                let attached =
                    text.starts_with("--exec") || is_cluster_with(text, 'x') || is_cluster_with(text, 'X');
                if is_fd && attached {
                    launches.push(Launch::Unread(UnreadReason::Arguments, call.span.clone()));
                }
                false
            }
        };
        if begins_command {
            let mut command = command_of_find(&mut words);
            mark_computed(&mut command, "{}");
            if is_fd {
                // `fd` has further placeholders, such as `{/}`.
                mark_computed(&mut command, "{");
                command.push(Argument::added(&call.span));
            }
            launches.push(Launch::Words(command));
        }
    }
    launches
}

/// Takes the words of a command of `find` from `words`, up to the `;`, or the `+` after `{}`, that ends the command.
fn command_of_find<'s>(words: &mut std::slice::Iter<'_, Argument<'s>>) -> Vec<Argument<'s>> {
    let mut command: Vec<Argument<'s>> = Vec::new();
    for word in words {
        let after_files = command.last().is_some_and(|last| last.text == "{}");
        if word.text == ";" || word.text == "+" && after_files {
            break;
        }
        command.push(word.clone());
    }
    command
}

/// Returns what `watch` runs: the arguments after its options, joined to a script.
fn watch<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let mut at = 0;
    while let Some(text) = call.arguments.get(at).filter(|word| word.known).map(|word| word.text.as_str()) {
        at += match text {
            // Options with a value.
            "-n" | "--interval" | "-q" | "--equexit" => 2,
            "--" => {
                at += 1;
                break;
            }
            _ if text.starts_with('-') => 1,
            _ => break,
        };
    }
    let mut launches: Vec<Launch<'s>> = split_options(call, at).into_iter().collect();
    launches.extend(joined_script(call.arguments.get(at..).unwrap_or_default(), call));
    launches
}

/// Returns the command after the subcommand of a runner such as `uv run`; `subcommands` are those that run a command.
/// Returns nothing without such a subcommand. If options precede the subcommand or the command, the command is unread:
/// an option may take the next word as its value.
fn runner<'s>(call: &EffectiveCommand<'_, 's>, subcommands: &[&str]) -> Vec<Launch<'s>> {
    let Some(at) = call.texts().position(|text| subcommands.contains(&text)) else { return Vec::new() };
    let rest = call.arguments.get(at + 1..).unwrap_or_default();
    let rest = match rest.split_first() {
        Some((first, rest)) if first.text == "--" => rest,
        _ => rest,
    };
    let first_is_option = rest.first().is_some_and(|word| word.text.starts_with('-'));
    if first_is_option || call.texts().take(at).any(|text| text.starts_with('-')) {
        return vec![Launch::Unread(UnreadReason::Arguments, call.span.clone())];
    }
    vec![Launch::Words(rest.to_vec())]
}
