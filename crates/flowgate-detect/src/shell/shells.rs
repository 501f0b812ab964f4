//! Finds the scripts that a shell or an interpreter runs: `bash -c '…'`, `sh file`, `python -c '…'`, and the standard
//! input. [`launches`](super::launches) calls these functions for the commands of shells and interpreters.

use super::UnreadReason;
use super::effective_command::{EffectiveCommand, SHELLS};
use super::expansion::Argument;
use super::launch::{CommandInput, Launch};

/// The options of shells that take the next word as a value.
const SHELL_VALUES: &[&str] = &["--rcfile", "--init-file", "--init-command", "--features"];
/// The long options of shells without a value.
const SHELL_FLAGS: &[&str] =
    &["--norc", "--noprofile", "--login", "--posix", "--restricted", "--verbose", "--no-rcs", "--private"];

/// Returns what a shell runs: the script after `-c`, a file, or its standard input, which is `input`.
pub(super) fn shell_launches<'s>(call: &EffectiveCommand<'_, 's>, input: &CommandInput) -> Vec<Launch<'s>> {
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    let mut launches = Vec::new();
    // Whether the options `-c` and `-s` were read.
    let (mut runs_command, mut reads_input) = (false, false);
    let mut words = call.arguments.iter();
    // The first argument that is not an option.
    let operand = loop {
        let Some(word) = words.next() else { break None };
        let text = word.text.as_str();
        // After `-c`, a computed word that stays one word is the script. Any other computed word may be an option, or
        // the name of the file with the script.
        let is_unclear = !word.known && (word.splits || !runs_command);
        if is_unclear {
            launches.push(unread(UnreadReason::Script));
            return launches;
        }
        // The short options of the word, such as `ec` for `-ec`; `+ec` turns the same options off.
        let options =
            text.strip_prefix('-').or_else(|| text.strip_prefix('+')).filter(|options| !options.is_empty());
        let is_operand = !word.known || options.is_none() && text != "-";
        if is_operand {
            break Some(word);
        }
        // Both end the options.
        if text == "--" || text == "-" {
            break words.next();
        }
        if text.starts_with("--") {
            let name = text.split_once('=').map_or(text, |(name, _)| name);
            match name {
                "--version" | "--help" => return launches,
                "--command" if call.name == "fish" => runs_command = true,
                // The file is run before the script.
                _ if SHELL_VALUES.contains(&name) => {
                    launches.push(unread(UnreadReason::File));
                    words.next();
                }
                _ if SHELL_FLAGS.contains(&name) => {}
                _ => launches.push(unread(UnreadReason::Arguments)),
            }
            continue;
        }
        let options = options.unwrap_or_default();
        runs_command |= text.starts_with('-') && options.contains('c');
        reads_input |= text.starts_with('-') && options.contains('s');
        // `-o` and `-O` have the next word as their value, the name of a setting.
        if options.contains(['o', 'O']) && words.next().is_some_and(|value| value.splits) {
            launches.push(unread(UnreadReason::Arguments));
        }
    };
    match operand {
        Some(script) if runs_command => launches.extend(script_launch(script, call)),
        None if runs_command => launches.push(unread(UnreadReason::Script)),
        Some(file) if !reads_input => launches.push(file_launch(file, call)),
        _ => launches.extend(input_launch(input, call)),
    }
    launches
}

/// Returns the launches of an argument that a shell runs as a script. A computed script is not read, but its known part
/// is scanned for unsafe commands as well.
pub(super) fn script_launch<'s>(script: &Argument<'_>, call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let (text, span) = (script.text.clone(), script.span.clone());
    if script.known {
        return vec![Launch::Text(text, span)];
    }
    vec![Launch::Unread(UnreadReason::Script, call.span.clone()), Launch::Guess(text, span)]
}

/// Returns the launch of a script in a file, which is not read. A stream such as `/dev/stdin` counts as a computed
/// script.
pub(super) fn file_launch<'s>(file: &Argument<'_>, call: &EffectiveCommand<'_, 's>) -> Launch<'s> {
    let is_stream = |text: &str| ["/dev/", "/proc/"].iter().any(|start| text.contains(start));
    let known = file.known_text().is_some_and(|text| !is_stream(text));
    let reason = if known { UnreadReason::File } else { UnreadReason::Script };
    Launch::Unread(reason, call.span.clone())
}

/// Returns the launches of a shell that reads its script from the standard input, `input`. A text with computed parts
/// (`known: false`) is not read, but its known part is scanned for unsafe commands as well.
fn input_launch<'s>(input: &CommandInput, call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    match input {
        CommandInput::Terminal => vec![unread(UnreadReason::Input)],
        CommandInput::File => vec![unread(UnreadReason::File)],
        CommandInput::Unknown => vec![unread(UnreadReason::Script)],
        CommandInput::Text { text, known: true, span } => vec![Launch::Text(text.clone(), span.clone())],
        CommandInput::Text { text, known: false, span } => {
            vec![unread(UnreadReason::Script), Launch::Guess(text.clone(), span.clone())]
        }
    }
}

/// Returns what an interpreter of another language runs: one unread launch, since such code is not read, or nothing.
pub(super) fn interpreter_launches<'s>(
    call: &EffectiveCommand<'_, 's>,
    input: &CommandInput,
) -> Vec<Launch<'s>> {
    let reason = interpreter_reason(call, input);
    reason.map(|reason| Launch::Unread(reason, call.span.clone())).into_iter().collect()
}

/// Returns why the code that an interpreter runs is not read; `None` if it runs no code that is in the text or in its
/// standard input, as with `--version` or `-m module`. The function examines the arguments up to the first one that
/// decides this.
fn interpreter_reason(call: &EffectiveCommand<'_, '_>, input: &CommandInput) -> Option<UnreadReason> {
    // The short options whose value is code.
    let code_options = match call.name {
        "php" => "rBRE",
        "node" | "nodejs" | "bun" => "ep",
        "ruby" => "e",
        "perl" => "eE",
        name if name.starts_with("py") => "c",
        // `lua -e`, `guile -c`, `julia -E`, `pwsh -Command`: a few options that are none of these count as well.
        _ => "cCeE",
    };
    let mut words = call.arguments.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !word.known {
            return Some(UnreadReason::Script);
        }
        if prints_and_exits(call, text) {
            return None;
        }
        // The code is in the standard input.
        if text == "-" || text.starts_with("/dev/") || text.starts_with("/proc/") {
            return Some(input_reason(input));
        }
        if matches!(text, "--eval" | "--print" | "--run" | "eval") || text.starts_with("--eval=") {
            return Some(UnreadReason::Language);
        }
        // `-m module` names code that is not in the text, as the name of a program does.
        if text == "-m" && call.name.starts_with("py") {
            return None;
        }
        // Every other long option is skipped.
        if text.starts_with("--") {
            continue;
        }
        let Some(short) = text.strip_prefix('-') else {
            // The first argument that is not an option is the file with the code.
            return Some(UnreadReason::File);
        };
        if short.contains(|option| code_options.contains(option)) {
            return Some(UnreadReason::Language);
        }
        // These options have the next word as their value.
        if matches!(text, "-W" | "-X" | "-I" | "-r" | "--require") {
            words.next();
        }
    }
    Some(input_reason(input))
}

/// Returns whether an interpreter with this option prints something about itself and runs no code. `-v` is verbose
/// output in Python and Ruby, which then run the code, and Perl does so with `-V`. Ruby exits after `-v` if there is
/// nothing else.
fn prints_and_exits(call: &EffectiveCommand<'_, '_>, option: &str) -> bool {
    match option {
        "--version" | "--help" | "-h" => true,
        "-V" => call.name.starts_with("python"),
        "-v" if call.name == "ruby" => call.arguments.len() == 1,
        "-v" => matches!(call.name, "bun" | "node" | "nodejs" | "perl" | "php"),
        _ => false,
    }
}

/// Returns why code of another language from the standard input is not read.
fn input_reason(input: &CommandInput) -> UnreadReason {
    match input {
        CommandInput::Terminal => UnreadReason::Input,
        CommandInput::File => UnreadReason::File,
        CommandInput::Text { known: true, .. } => UnreadReason::Language,
        CommandInput::Text { .. } | CommandInput::Unknown => UnreadReason::Script,
    }
}

/// Returns whether a program is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || matches!(name, "rbash" | "mksh" | "yash" | "rksh" | "tcsh" | "csh" | "nu")
}
