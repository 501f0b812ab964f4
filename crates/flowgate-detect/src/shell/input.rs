//! Determines the standard input of a command, since a shell runs its standard input as a script. The scanner calls
//! [`input_of`] for each command.

use super::effective_command::EffectiveCommand;
use super::expansion::{Argument, ShellVariables};
use super::launch::CommandInput;
use super::syntax::{Command, PartKind, Redirect, Word};

/// What the scanner knows of the surroundings of a script: its here-documents, its input, and whether it runs in order.
#[derive(Clone, Copy)]
pub(super) struct ScriptContext<'d> {
    /// The contents of the here-documents.
    pub(super) documents: &'d [Word],
    /// The standard input of its commands.
    pub(super) input: &'d CommandInput,
    /// Whether the script runs at most once, and its commands in the order of the text.
    pub(super) in_order: bool,
}

/// Returns the standard input of `command`: what its redirection names, or else the output of the command before it in
/// the pipeline (`previous`), or else the standard input of the script, which is in `context`. If `exec` has replaced
/// the input of the script (`replaced`), that input is unknown. `variables` are the variables that are known at the
/// command.
pub(super) fn input_of(
    replaced: bool,
    command: &Command,
    previous: Option<CommandInput>,
    context: ScriptContext<'_>,
    variables: &ShellVariables,
) -> CommandInput {
    // The redirections of the standard input. With two of them, the input counts as unknown.
    let mut feeds = command.redirects.iter().filter(|redirect| redirect.feeds_input());
    match (feeds.next(), feeds.next()) {
        (None, _) if previous.is_none() && replaced => CommandInput::Unknown,
        (None, _) => previous.unwrap_or_else(|| match context.input {
            // Several commands of the script may each read a part of the text.
            CommandInput::Text { .. } => CommandInput::Unknown,
            input => input.clone(),
        }),
        (Some(redirect), None) => redirected_input(redirect, context, variables),
        (Some(_), Some(_)) => CommandInput::Unknown,
    }
}

/// Returns the standard input that a redirection gives to a command.
fn redirected_input(
    redirect: &Redirect,
    context: ScriptContext<'_>,
    variables: &ShellVariables,
) -> CommandInput {
    let is_text = redirect.document.is_some() || redirect.operator == "<<<";
    if is_text {
        return text_of(redirect, context, variables);
    }
    let target = variables.expand(&redirect.target);
    // Files in `/dev` and `/proc` can be the input of another program.
    let is_file = |text: &str| !text.contains("/dev/") && !text.contains("/proc/");
    match target.known_text() {
        Some(text) if redirect.operator == "<" && is_file(text) => CommandInput::File,
        // An empty file.
        Some("/dev/null") => CommandInput::File,
        _ => CommandInput::Unknown,
    }
}

/// Returns what a command writes to the next command of its pipeline: the text that `echo`, or `cat` with a
/// here-document, prints. The output of every other command is unknown. `redirects` are the redirections of the
/// command, and `variables` the variables that are known at the command.
pub(super) fn output_of(
    call: &EffectiveCommand<'_, '_>,
    redirects: &[Redirect],
    context: ScriptContext<'_>,
    variables: &ShellVariables,
) -> CommandInput {
    // Behind a wrapper such as `sudo`, or as a function of the script, the command may print something else.
    let direct = call.wrappers.is_empty() && !variables.functions.contains(call.name);
    match (call.name, redirects) {
        ("echo", []) if direct => {
            // An option such as `-n` or `-e` changes what is printed.
            let is_option = call.texts().next().is_some_and(|first| first.starts_with('-'));
            // Some shells decode the escapes in what `echo` prints.
            let plain = |word: &Argument<'_>| word.known && !word.text.contains('\\');
            let known = !is_option && call.arguments.iter().all(plain);
            let text: Vec<&str> = call.texts().collect();
            CommandInput::Text { text: text.join(" "), known, span: call.span.clone() }
        }
        ("cat", [redirect]) if direct && call.arguments.is_empty() && redirect.document.is_some() => {
            text_of(redirect, context, variables)
        }
        _ => CommandInput::Unknown,
    }
}

/// Returns the standard input of the commands in a script. `input` is the standard input of the shell that runs it. If
/// that is a text, the input of the commands is unknown, since the shell may have read a part of it.
pub(super) fn inner_input(input: &CommandInput) -> &CommandInput {
    match input {
        CommandInput::Text { .. } => &CommandInput::Unknown,
        other => other,
    }
}

/// Returns the text of a here-document or a here-string, as far as `variables` make it known. `context` has the
/// contents of the here-documents.
fn text_of(redirect: &Redirect, context: ScriptContext<'_>, variables: &ShellVariables) -> CommandInput {
    let content = redirect.document.and_then(|number| context.documents.get(number));
    let word = content.unwrap_or(&redirect.target);
    let argument = variables.expand(word);
    // The shell expands no patterns in a here-document, so its literal text is known even if it looks like one.
    let known = argument.known
        || content.is_some() && word.parts.iter().all(|part| part.quoted && part.kind == PartKind::Literal);
    CommandInput::Text { text: argument.text, known, span: word.span.clone() }
}
