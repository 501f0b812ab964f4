//! Examines the scripts that commands pass to `awk` and `sed`. A script that may run commands (for `sed`, also one that
//! may write a file) becomes a launch that is reported as code that is not read. [`launches`](super::launches) calls
//! [`awk`] and [`sed`] for the commands with these names.

use super::UnreadReason;
use super::effective_command::EffectiveCommand;
use super::expansion::Argument;
use super::foreign::{awk_is_plain, sed_is_plain};
use super::launch::Launch;

/// Returns nothing if the program in the arguments of `awk` certainly runs no commands, and otherwise one launch that
/// says that code is not read.
pub(super) fn awk<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| vec![Launch::Unread(reason, call.span.clone())];
    let mut words = call.arguments.iter();
    while let Some(word) = words.next() {
        match word.text.as_str() {
            _ if !word.known => return unread(UnreadReason::Language),
            "-F" | "-v" | "--assign" | "--field-separator" => {
                words.next();
            }
            "--" => {}
            // An option whose value is in the same word.
            text if text.starts_with("-F") || text.starts_with("-v") || text.starts_with("--assign=") => {}
            text if text.starts_with("-f") => return unread(UnreadReason::File),
            text if text.starts_with('-') => return unread(UnreadReason::Arguments),
            // The first argument that is not an option is the program.
            text if awk_is_plain(text) => return Vec::new(),
            _ => return unread(UnreadReason::Language),
        }
    }
    Vec::new()
}

/// The long options of `sed` without a value, or with an optional one after `=`.
const SED_FLAGS: &[&str] = &[
    "quiet",
    "silent",
    "regexp-extended",
    "in-place",
    "separate",
    "unbuffered",
    "null-data",
    "zero-terminated",
    "follow-symlinks",
    "posix",
    "sandbox",
    "debug",
    "binary",
    "help",
    "version",
];

/// Returns nothing if the scripts in the arguments of `sed` certainly run no commands, and otherwise one launch that
/// says that code is not read. An unknown or abbreviated option may give a script or take one as its value, so the
/// arguments then count as not read.
pub(super) fn sed<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    sed_reason(call).map(|reason| Launch::Unread(reason, call.span.clone())).into_iter().collect()
}

/// Returns why the scripts in the arguments of `sed` are not read; `None` if they certainly run no commands.
fn sed_reason(call: &EffectiveCommand<'_, '_>) -> Option<UnreadReason> {
    // A script that is absent runs nothing.
    let is_plain =
        |word: Option<&Argument<'_>>| word.is_none_or(|word| word.known && sed_is_plain(&word.text));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number =
        |word: Option<&Argument<'_>>| word.is_some_and(|word| word.known && is_digits(&word.text));
    // Without an option that gives a script, the first operand is the script.
    let mut has_script_option = false;
    let mut operands: Vec<&Argument<'_>> = Vec::new();
    let mut words = call.arguments.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !word.known && (word.splits || text.starts_with('-')) {
            return Some(UnreadReason::Language);
        }
        if text == "--" {
            operands.extend(words.by_ref());
        } else if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, v)| (name, Some(v)));
            match name {
                "expression" => {
                    has_script_option = true;
                    let is_plain_script = value.map_or_else(|| is_plain(words.next()), sed_is_plain);
                    if !is_plain_script {
                        return Some(UnreadReason::Language);
                    }
                }
                "line-length" => {
                    let is_length = value.map_or_else(|| is_number(words.next()), is_digits);
                    if !is_length {
                        return Some(UnreadReason::Arguments);
                    }
                }
                "file" => return Some(UnreadReason::File),
                _ if SED_FLAGS.contains(&name) => {}
                _ => return Some(UnreadReason::Arguments),
            }
        } else if let Some(short) = text.strip_prefix('-').filter(|short| !short.is_empty()) {
            for (i, letter) in short.char_indices() {
                let rest = short.get(i + letter.len_utf8()..).unwrap_or_default();
                match letter {
                    // Options without a value: the next letter is another option. Any other letter ends the word.
                    'n' | 'E' | 'r' | 's' | 'u' | 'z' => continue,
                    // The rest of the word is the suffix of the backup file.
                    'i' => {}
                    'e' => {
                        has_script_option = true;
                        let is_plain_script =
                            if rest.is_empty() { is_plain(words.next()) } else { sed_is_plain(rest) };
                        if !is_plain_script {
                            return Some(UnreadReason::Language);
                        }
                    }
                    // The length of lines. On some systems, the option has no value, and the number is taken for the
                    // script; such a script runs nothing.
                    'l' => {
                        let is_length =
                            if rest.is_empty() { is_number(words.next()) } else { is_digits(rest) };
                        if !is_length {
                            return Some(UnreadReason::Arguments);
                        }
                    }
                    'f' => return Some(UnreadReason::File),
                    _ => return Some(UnreadReason::Arguments),
                }
                break;
            }
        } else {
            operands.push(word);
        }
    }
    // `-i ''` has an empty suffix on some systems; then the script is the second operand.
    let skipped = usize::from(operands.first().is_some_and(|word| word.text.is_empty()));
    let script = operands.get(skipped).copied().filter(|_| !has_script_option);
    (!is_plain(script)).then_some(UnreadReason::Language)
}
