//! Drafts a first policy from the descriptions of tools, so that a user need not begin with an empty file. The draft
//! judges a tool by the roles of its arguments, by the annotations of its MCP server and by its name, and states the
//! reasons as comments. If the description of a tool says too little, or no statement can name the tool safely, the
//! tool stays *closed*: its calls may depend on trusted, public text alone. A comment in the draft says so.
//!
//! Everything that describes a tool is untrusted. A draft contains names of tools and arguments only if they are plain
//! words ([`plain_name`]), and no other text of a description, so a description cannot end a comment, a string or a
//! statement. `flowgate init` writes a draft, and `flowgate scan` prints the [`ToolTraits`] of each tool.
//!
//! * `described_tool` defines what the server or the client says about a tool, and reads it from a list of tools.
//! * `tool_traits` guesses from this description whether the tool reads, acts or destroys, and who can receive the
//!   arguments of its calls.
//! * `statements` writes the statements of the draft about one tool.

mod described_tool;
mod statements;
mod tool_traits;

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::Tool;
pub use described_tool::{DescribedArgument, DescribedTool, DescribedTools, ToolHints, read_tools};
pub use tool_traits::{ToolEffect, ToolReach, ToolTraits};

/// The choices of the person who asks for a draft.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftOptions {
    /// Whether annotations by which a server claims that its tool is harmless, such as `readOnlyHint`, have no effect.
    pub ignores_hints: bool,
}

/// A drafted policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDraft {
    /// The policy, which compiles without warnings.
    pub text: String,
    /// The tools for which the draft has statements, in the order of the list, with what each does and the reasons.
    pub tools: Vec<(Tool, ToolTraits)>,
    /// The number of tools that stay closed, since the draft cannot name them or does not know what they do.
    pub closed: usize,
    /// The tools whose description resembles an instruction to the model, or has hidden characters. They stay hidden.
    pub suspicious: Vec<Tool>,
}

/// The most characters of a name that a draft contains, which bounds the length of its lines.
const MAX_NAME: usize = 100;

/// The text at the beginning of every draft.
const HEADER: &str = "\
# A first policy, drafted from the descriptions of the tools. Read it before you rely on it: names and annotations are
# what the servers say about themselves. What no statement names is closed: answers are untrusted and private, and calls
# may depend on trusted, public text alone.

lattice integrity: trusted < untrusted
lattice secrecy:   public < private

label message as trusted, public if:    # what you and the operator write; if it is private, write `trusted, private`
    (message: Message)
    message.role in [\"system\", \"user\"]
";

/// Drafts a policy for these tools: a fixed beginning with two lattices, and then statements for each tool. A tool that
/// the list has several times gets its statements once. A tool that no statement can name safely gets a comment
/// instead, which says why it stays closed. The same tools and options give the same text.
pub fn draft_policy(tools: &[DescribedTool], options: DraftOptions) -> PolicyDraft {
    let mut draft =
        PolicyDraft { text: HEADER.to_owned(), tools: Vec::new(), closed: 0, suspicious: Vec::new() };
    let ambiguous = ambiguous_tools(tools);
    let mut seen = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        if !seen.insert(&tool.tool) {
            continue;
        }
        draft.text.push('\n');
        // The reason why no statement can name the tool safely.
        let problem = match pattern(&tool.tool) {
            None if tool.tool.server.as_deref() == Some(Tool::FLOWGATE_SERVER) => {
                Some("its server has the name `flowgate`, which is reserved; give the server another name")
            }
            None => Some(
                "its name, or that of its server, cannot be written without quotes; to open it, write statements that \
                name it by a pattern, `tool:r\"...\"`",
            ),
            Some(_) => ambiguous.get(&tool.tool).copied(),
        };
        if let Some(problem) = problem {
            draft.closed += 1;
            draft.text.push_str(&format!(
                "# {}: it stays closed, since {problem}.\n",
                shown_name(&tool.tool, index)
            ));
            continue;
        }
        // A tool of unknown effect gets statements, too, but no `require`, so it also stays closed.
        let traits = ToolTraits::of(tool, !options.ignores_hints);
        if statements::is_suspicious(tool) {
            draft.suspicious.push(tool.tool.clone());
        }
        if traits.effect == ToolEffect::Unknown {
            draft.closed += 1;
        }
        statements::write(tool, &traits, &mut draft.text);
        draft.tools.push((tool.tool.clone(), traits));
    }
    if tools.is_empty() {
        draft.text.push_str(
            "\n# There are no tools. `flowgate init` with a list of tools adds a statement for each.\n",
        );
    }
    draft
}

/// Returns the name unchanged if a policy can spell it without quotation marks, otherwise `None`. Such a name consists
/// of at most 100 ASCII letters, digits, `_`, `-` and `.`; the first is a letter or `_`, and the last a letter, a digit
/// or `_`.
pub fn plain_name(name: &str) -> Option<&str> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let ends = name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (name.len() <= MAX_NAME && begins && ends && name.chars().all(is_inner)).then_some(name)
}

/// Returns the pattern that names exactly this tool, such as `mail/send`. `None` if the name of the tool or of its
/// server is not a [`plain_name`], or if the server has the name that is reserved for Flowgate's own tools.
fn pattern(tool: &Tool) -> Option<String> {
    let name = plain_name(&tool.name)?;
    match tool.server.as_deref() {
        None => Some(name.to_owned()),
        Some(Tool::FLOWGATE_SERVER) => None,
        Some(server) => Some(format!("{}/{name}", plain_name(server)?)),
    }
}

/// Returns the tools that a statement cannot name without ambiguity, each with the reason, which completes the sentence
/// "it stays closed, since ...". Either the list has two different descriptions of one tool, or a tool of the agent has
/// the name of a tool of a server: a pattern for the tool of the agent names no server, and so matches both tools.
fn ambiguous_tools(tools: &[DescribedTool]) -> BTreeMap<&Tool, &'static str> {
    // The first description of each tool.
    let mut known: BTreeMap<&Tool, &DescribedTool> = BTreeMap::new();
    let mut ambiguous = BTreeMap::new();
    for tool in tools {
        match known.get(&tool.tool) {
            Some(first) if *first != tool => {
                ambiguous
                    .insert(&tool.tool, "the list has two different descriptions of it; remove one of them");
            }
            _ => {
                known.insert(&tool.tool, tool);
            }
        }
    }
    let of_servers: BTreeSet<&str> =
        tools.iter().filter(|tool| tool.tool.server.is_some()).map(|tool| &*tool.tool.name).collect();
    for tool in tools.iter().filter(|tool| tool.tool.server.is_none()) {
        if of_servers.contains(&*tool.tool.name) {
            ambiguous.insert(
                &tool.tool,
                "a server has a tool of the same name; list the tools of the agent under a server's name",
            );
        }
    }
    ambiguous
}

/// Returns a phrase that identifies a tool in a comment: its number in the list (`index` counts from 0), and at most 60
/// characters of its name. The name is untrusted, so each character that could end the comment or mislead its reader is
/// replaced by `?`.
fn shown_name(tool: &Tool, index: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let name: String = tool.to_string().chars().take(60).map(|c| if is_plain(c) { c } else { '?' }).collect();
    format!("tool {} of the list, `{name}`", index + 1)
}
