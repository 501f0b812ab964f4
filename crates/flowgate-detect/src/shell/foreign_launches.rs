//! Finds the programs of `awk` and `sed` that may run commands. [`launches`](super::launches) calls it for the commands
//! with these names.

use super::UnreadReason;
use super::effective_command::EffectiveCommand;
use super::expansion::Argument;
use super::foreign::{awk_is_plain, sed_is_plain};
use super::launch::{Launch, is_cluster_with};

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
            // The first argument that is no option is the program.
            text if awk_is_plain(text) => return Vec::new(),
            _ => return unread(UnreadReason::Language),
        }
    }
    Vec::new()
}

/// Returns nothing if the scripts in the arguments of `sed` certainly run no commands, and otherwise one launch that
/// says that code is not read.
pub(super) fn sed<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| vec![Launch::Unread(reason, call.span.clone())];
    // Without an option that gives a script, the first operand is the script.
    let mut scripts: Vec<&Argument<'_>> = Vec::new();
    let mut operands: Vec<&Argument<'_>> = Vec::new();
    let mut words = call.arguments.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if let Some(script) = text.strip_prefix("--expression=") {
            if !word.known || !sed_is_plain(script) {
                return unread(UnreadReason::Language);
            }
            scripts.push(word);
        } else if text == "--expression" || is_cluster_with(text, 'e') && text.ends_with('e') {
            scripts.extend(words.next());
        } else if text.starts_with("--file") || is_cluster_with(text, 'f') && text.ends_with('f') {
            return unread(UnreadReason::File);
        } else if !word.known && word.splits {
            return unread(UnreadReason::Language);
        } else if !text.starts_with('-') {
            operands.push(word);
        }
    }
    // Scripts after `--expression=` were checked above; the others are checked below.
    let given = scripts.iter().filter(|word| !word.text.starts_with("--expression="));
    let mut checked: Vec<&Argument<'_>> = given.copied().collect();
    if scripts.is_empty() {
        // `-i ''` has an empty suffix on some systems; then the script is the second operand.
        let skipped = usize::from(operands.first().is_some_and(|word| word.text.is_empty()));
        checked.extend(operands.get(skipped));
    }
    let plain = |word: &&Argument<'_>| word.known && sed_is_plain(&word.text);
    if checked.iter().all(plain) { Vec::new() } else { unread(UnreadReason::Language) }
}
