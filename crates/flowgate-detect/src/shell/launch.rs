//! Defines what a command starts, [`Launch`], and the standard input that it reads, [`CommandInput`].
//! [`launches`](super::launches) returns launches, and the scanner follows them.

use std::ops::Range;

use super::UnreadReason;
use super::effective_command::EffectiveCommand;
use super::expansion::Argument;

/// Something that a command runs.
#[derive(Debug)]
pub(super) enum Launch<'s> {
    /// A command that consists of these words.
    Words(Vec<Argument<'s>>),
    /// A script, spelled in these bytes of the whole text.
    Text(String, Range<usize>),
    /// A script with computed parts, as far as its text is known. It is scanned for unsafe commands, but what in it
    /// cannot be read is not reported: an `Unread` launch must accompany it.
    Guess(String, Range<usize>),
    /// Code that cannot be read.
    Unread(UnreadReason, Range<usize>),
}

/// The standard input of a command.
#[derive(Debug, Clone)]
pub(super) enum CommandInput {
    /// The standard input with which the whole script was started.
    Terminal,
    /// A file.
    File,
    /// The output of a command, or something else that is computed.
    Unknown,
    /// A text of the script; `known` says whether all of it is known.
    Text { text: String, known: bool, span: Range<usize> },
}

/// Returns whether a text is a group of short options that contains a letter.
pub(super) fn is_cluster_with(text: &str, letter: char) -> bool {
    text.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

/// Returns whether a text is an abbreviation of a long option, which many programs accept, with or without a value
/// after `=`: `--to-c=rm` of `--to-command`.
pub(super) fn abbreviates(text: &str, option: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    name.len() > "--".len() && name.starts_with("--") && option.starts_with(name)
}

/// Returns the launches of a program such as `eval`, which joins its arguments `words` with spaces and runs the result
/// as a script: one `Text` if all words are known, otherwise an `Unread` and a `Guess`; none without words.
pub(super) fn joined_script<'s>(words: &[Argument<'s>], call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    if words.is_empty() {
        return Vec::new();
    }
    let script: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let script = script.join(" ");
    if words.iter().all(|word| word.known) {
        return vec![Launch::Text(script, call.span.clone())];
    }
    vec![Launch::Unread(UnreadReason::Script, call.span.clone()), Launch::Guess(script, call.span.clone())]
}

/// Returns an unread launch if one of the options of a command can expand to several words: it is then uncertain which
/// word is the program. The options, and all other arguments that precede the program, are before the index `end`.
/// `None` if each of them stays one word.
pub(super) fn split_options<'s>(call: &EffectiveCommand<'_, 's>, end: usize) -> Option<Launch<'s>> {
    let splits = call.arguments.iter().take(end).any(|word| word.splits);
    splits.then(|| Launch::Unread(UnreadReason::Arguments, call.span.clone()))
}
