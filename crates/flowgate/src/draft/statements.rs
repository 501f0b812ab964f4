//! Writes the part of a draft about one tool, with the reasons as comments: the label of its description, the labels of
//! its answers, the roles of its arguments, and the requirements on its calls. [`draft_policy`](super::draft_policy)
//! calls this module for each tool that a pattern can name.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::described_tool::{DescribedArgument, DescribedTool};
use super::tool_traits::{ToolEffect, ToolReach, ToolTraits, sends};
use super::{MAX_NAME, pattern};
use crate::policy::ArgumentRole;

/// The most arguments that one statement names.
const MAX_NAMED: usize = 40;
/// The score above which a text counts as an instruction to the model.
const INJECTION_SCORE: f64 = 0.5;
/// Keywords of the policy language, which cannot stand after a dot in a path.
const KEYWORDS: &[&str] = &[
    "and",
    "as",
    "contains_only",
    "else",
    "False",
    "for",
    "from",
    "if",
    "import",
    "in",
    "is",
    "none",
    "None",
    "not",
    "or",
    "True",
];

/// Appends the comments and statements about a tool to `text`: the labels of its description and of its answer, the
/// roles of its arguments, and what its calls require. Appends nothing if no pattern can name the tool.
pub(super) fn write(tool: &DescribedTool, traits: &ToolTraits, text: &mut String) {
    let Some(name) = pattern(&tool.tool) else { return };
    // Here and in the other functions: writing to a `String` never fails.
    let _ = writeln!(text, "# {name}: {}.", traits.effect_reason);
    write_description(tool, &name, text);
    write_roles(tool, traits, &name, text);
    if let Some((requirement, reason)) = requirement(traits, sends(&tool.tool.name)) {
        let _ = writeln!(text, "# {}: {reason}", capitalized(traits.reach_reason));
        let _ = writeln!(text, "require {requirement} if:\n    (call: ToolCall) is tool:{name}");
        write_payload(tool, traits, &name, text);
    } else {
        let _ = writeln!(
            text,
            "# It stays closed: a call may depend on trusted, public text alone. If it only reads and sends nothing, write:\n\
             #     require top if:\n#         (call: ToolCall) is tool:{name}"
        );
    }
    write_answer(traits, &name, text);
}

/// Returns whether a text that the model would be shown about a tool resembles an instruction to the model, or has
/// hidden characters. These texts are the description of the tool, and the names and descriptions of its arguments. The
/// draft leaves such a tool hidden from the model.
pub(super) fn is_suspicious(tool: &DescribedTool) -> bool {
    let of_arguments = tool.arguments.iter().flat_map(|argument| [&argument.name, &argument.description]);
    let mut texts = std::iter::once(&tool.description).chain(of_arguments);
    texts.any(|text| {
        crate::detect::injection::find(text).score > INJECTION_SCORE
            || !crate::detect::unicode::find_hidden(text).is_empty()
    })
}

/// Writes the statement that labels the description as trusted, so that the model is shown the tool. For a suspicious
/// description, writes a comment instead, which says why there is no such statement. `name` is the pattern that names
/// the tool.
fn write_description(tool: &DescribedTool, name: &str, text: &mut String) {
    if is_suspicious(tool) {
        let _ = writeln!(
            text,
            "# Its description resembles an instruction to the model, or has hidden characters. So it stays hidden, and the tool\n\
             # with it. Read it, and if it is harmless, write:\n\
             #     label tool as trusted, public if:\n#         (tool: Tool) is tool:{name}"
        );
    } else {
        let _ = writeln!(
            text,
            "label tool as trusted, public if:    # the description: read it before you rely on it\n    (tool: Tool) is tool:{name}"
        );
    }
}

/// Appends to `text` a `role` statement for each role that an argument has; `name` is the pattern that names the tool.
/// A tool that only reads sends nothing and runs nothing: its argument that resembles a recipient selects what is read,
/// and its query is a search and not code.
fn write_roles(tool: &DescribedTool, traits: &ToolTraits, name: &str, text: &mut String) {
    let mut by_role: BTreeMap<ArgumentRole, Vec<String>> = BTreeMap::new();
    for argument in &tool.arguments {
        let role = match (argument.role, traits.effect) {
            (Some(ArgumentRole::Recipient), ToolEffect::Reads) => Some(ArgumentRole::Selector),
            (Some(ArgumentRole::Code), ToolEffect::Reads) => None,
            (role, _) => role,
        };
        if let (Some(role), Some(path)) = (role, argument_path(argument)) {
            by_role.entry(role).or_default().push(path);
        }
    }
    for (role, arguments) in by_role {
        // A statement has at most `MAX_NAMED` paths; further paths get a further statement.
        for arguments in arguments.chunks(MAX_NAMED) {
            let arguments = arguments.join(", ");
            // Writing to a `String` never fails.
            let _ = writeln!(text, "role {arguments} is {role} if:\n    (call: ToolCall) is tool:{name}");
        }
    }
}

/// Returns the requirement on calls of a tool, as a `require` statement spells it, and a sentence that explains the
/// requirement. `None` if it is unknown what the tool does: the default of the policy then permits only calls that
/// depend on trusted, public text alone. `is_sent` states whether the tool sends, publishes or orders something.
/// Neither sending nor destruction can be undone, so both get `decided by everything`: everything that the model has
/// seen must flow to the required label, and not only what influenced the call.
fn requirement(traits: &ToolTraits, is_sent: bool) -> Option<(&'static str, &'static str)> {
    use ToolEffect::{Acts, Destroys, Reads, Unknown};
    use ToolReach::{Closed, Open};
    Some(match (traits.effect, traits.reach) {
        (Unknown, _) => return None,
        (Reads, Closed) => ("top", "it changes nothing, so untrusted text may influence its calls."),
        (Reads, Open) => (
            "untrusted, public",
            "untrusted text may influence its calls, but nothing private may be in its arguments.",
        ),
        (Acts, Closed) if is_sent => (
            "trusted, private decided by everything",
            "it cannot be taken back, so it needs approval as soon as untrusted text was read.",
        ),
        (Acts, Open) if is_sent => (
            "trusted, public decided by everything",
            "it cannot be taken back, so it needs approval as soon as untrusted or private text was read.",
        ),
        (Acts, Closed) => {
            ("trusted, private", "only trusted text decides about it; what is private stays here.")
        }
        (Acts, Open) => {
            ("trusted, public", "only trusted text decides about it, and nothing private leaves.")
        }
        (Destroys, Closed) => (
            "trusted, private decided by everything",
            "it needs approval as soon as untrusted text was read.",
        ),
        (Destroys, Open) => (
            "trusted, public decided by everything",
            "it needs approval as soon as untrusted or private text was read.",
        ),
    })
}

/// Writes a `payload` statement for the arguments that contain what is said, such as the body of a mail: they may come
/// from untrusted text. Names at most the first `MAX_NAMED`, the limit of a statement. `name` is the pattern that names
/// the tool.
///
/// Writes no statement for a tool that only reads, since its requirement permits untrusted text already, and none for a
/// tool whose effect is unknown, which has no requirement. Writes none for a tool that destroys or runs code either:
/// the guess that an argument decides nothing is based on its name alone, which is not enough for such a tool.
fn write_payload(tool: &DescribedTool, traits: &ToolTraits, name: &str, text: &mut String) {
    let runs_code = tool.arguments.iter().any(|argument| argument.role == Some(ArgumentRole::Code));
    if traits.effect != ToolEffect::Acts || runs_code {
        return;
    }
    let contents = tool.arguments.iter().filter(|argument| argument.role == Some(ArgumentRole::Content));
    let contents: Vec<String> = contents.filter_map(argument_path).take(MAX_NAMED).collect();
    if !contents.is_empty() {
        let _ = writeln!(
            text,
            "payload {} if:    # what is said decides nothing, so it may come from untrusted text\n    (call: ToolCall) is tool:{name}",
            contents.join(", ")
        );
    }
}

/// Appends to `text` the statement that labels the answer of a tool, if the answer is a page of the web. For any other
/// tool, appends the statement as a comment, which a person can uncomment once it is known who writes and reads the
/// answer. `name` is the pattern that names the tool.
fn write_answer(traits: &ToolTraits, name: &str, text: &mut String) {
    let query = format!("(out: ToolOutput) is tool:{name}");
    // Here and below: writing to a `String` never fails.
    if traits.reads_web {
        let _ = writeln!(
            text,
            "# Its answer is a page of the web: anybody wrote it, anybody may read it. Remove this if it reaches your own network.\n\
             label out as untrusted, public if:\n    {query}"
        );
        return;
    }
    let known = match traits.effect {
        ToolEffect::Reads => "untrusted, public if:    # if anybody may read it",
        _ => "trusted, public if:    # if it says only `done`, or a number",
    };
    let _ = writeln!(
        text,
        "# Its answer is untrusted and private, since nothing says who wrote it and who may read it. Once you know, write:\n\
         #     label out as {known}\n#         {query}"
    );
}

/// Returns the path of an argument in a statement; `None` if its name cannot stand after a dot, since it is not a plain
/// word or is a keyword, or if it is longer than [`MAX_NAME`] characters. The draft gives such an argument no role: a
/// person can write it as `call.arguments["..."]`.
fn argument_path(argument: &DescribedArgument) -> Option<String> {
    let name = argument.name.as_str();
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_word && begins && name.len() <= MAX_NAME && !KEYWORDS.contains(&name))
        .then(|| format!("call.arguments.{name}"))
}

/// Returns a sentence with its first character in upper case.
fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
