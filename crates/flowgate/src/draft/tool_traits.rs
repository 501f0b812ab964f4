//! Guesses what a tool does from its name, its arguments and its annotations: whether it reads, acts or destroys, and
//! whether anybody except its server can receive the arguments of its calls. Drafts of policies and the list of
//! `flowgate scan` are based on these guesses.
//!
//! A guess proves nothing, since the server itself chooses the name and the annotations. Where two indications
//! contradict each other, the more restrictive one counts. Without any indication, the result is
//! [`ToolEffect::Unknown`] and [`ToolReach::Open`].

use super::described_tool::DescribedTool;
use crate::policy::{ArgumentRole, name_words};

/// What a call of a tool changes, in ascending order. If several verbs of a name count, the greatest effect applies.
///
/// The list is exhaustive on purpose: a draft has to state what it assumes of each tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolEffect {
    /// It only reads.
    Reads,
    /// It writes or sends.
    Acts,
    /// It destroys, spends, or cannot be undone.
    Destroys,
    /// Neither its name nor an annotation says what it does.
    Unknown,
}

/// Who can receive the arguments of a tool's calls.
///
/// The list is exhaustive on purpose: a draft has to state what it assumes of each tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolReach {
    /// Nobody but its server, or nobody at all, since no argument can carry a text.
    Closed,
    /// Others than its server, or it is unknown who.
    Open,
}

/// What a tool does, as far as its description says. The reasons are fixed phrases, which contain no text of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolTraits {
    /// What a call changes.
    pub effect: ToolEffect,
    /// Why: a sentence without a full stop.
    pub effect_reason: &'static str,
    /// Who can receive the arguments.
    pub reach: ToolReach,
    /// Why: a sentence without a full stop.
    pub reach_reason: &'static str,
    /// Whether its answer is a page of the web: anybody can have written it, and anybody may read it.
    pub reads_web: bool,
}

/// Verbs in the names of tools that destroy or spend.
const DESTROY: &[&str] = &[
    "buy",
    "delete",
    "destroy",
    "drop",
    "erase",
    "kill",
    "pay",
    "prune",
    "purchase",
    "purge",
    "remove",
    "revoke",
    "terminate",
    "transfer",
    "wipe",
];
/// Verbs in the names of tools that write, send or execute.
const ACT: &[&str] = &[
    "accept",
    "add",
    "append",
    "approve",
    "archive",
    "assign",
    "book",
    "cancel",
    "change",
    "click",
    "close",
    "commit",
    "copy",
    "create",
    "deploy",
    "disable",
    "dismiss",
    "download",
    "edit",
    "enable",
    "eval",
    "evaluate",
    "exec",
    "execute",
    "fill",
    "fork",
    "forward",
    "grant",
    "insert",
    "install",
    "invite",
    "mark",
    "merge",
    "modify",
    "move",
    "notify",
    "patch",
    "post",
    "press",
    "publish",
    "push",
    "put",
    "react",
    "rename",
    "replace",
    "reply",
    "reschedule",
    "reserve",
    "reset",
    "restart",
    "run",
    "save",
    "schedule",
    "send",
    "set",
    "share",
    "store",
    "submit",
    "subscribe",
    "sync",
    "trigger",
    "type",
    "unsubscribe",
    "update",
    "upload",
    "upsert",
    "write",
];
/// Verbs of [`ACT`] after which something is sent, published or ordered: it cannot be taken back.
const SEND: &[&str] =
    &["book", "forward", "invite", "notify", "post", "publish", "reply", "reserve", "send", "submit"];
/// Verbs in the names of tools that read.
const READ: &[&str] = &[
    "browse", "cat", "check", "count", "describe", "diff", "fetch", "find", "get", "glob", "grep", "inspect",
    "list", "lookup", "ls", "query", "read", "retrieve", "search", "show", "stat", "status", "tail", "view",
];
/// Words in the names of tools that act, which say that the tool spends.
const MONEY: &[&str] = &["invoice", "money", "payment", "purchase"];
/// Words in the names of tools that read pages of the web.
const WEB: &[&str] =
    &["browse", "fetch", "http", "internet", "page", "url", "web", "webpage", "website", "wikipedia"];

impl ToolTraits {
    /// Guesses what a tool does. Without `uses_hints`, the annotations of its server that permit something, such as
    /// `readOnlyHint: true`, have no effect; annotations that restrict always have an effect, since a lie in them harms
    /// nothing.
    pub fn of(tool: &DescribedTool, uses_hints: bool) -> Self {
        let (effect, effect_reason) = effect(tool, uses_hints);
        let (reach, reach_reason) = reach(tool, uses_hints);
        // The draft labels the answer of a tool that reads the web as public. So all evidence must agree: the effect,
        // the annotation, and a word of the tool's name.
        let reads_web = effect == ToolEffect::Reads
            && tool.hints.open_world == Some(true)
            && uses_hints
            && has_word(tool, WEB);
        Self { effect, effect_reason, reach, reach_reason, reads_web }
    }
}

/// Guesses what a call of the tool changes, and returns the effect with the reason as a sentence. If the name and the
/// annotations of the tool disagree, the more restrictive one counts. A tool that runs code acts at least, unless its
/// annotation says that it only reads. Without `uses_hints`, annotations that permit something have no effect.
fn effect(tool: &DescribedTool, uses_hints: bool) -> (ToolEffect, &'static str) {
    use ToolEffect::{Acts, Destroys, Reads, Unknown};
    let (named, hints) = (effect_of_name(&tool.tool.name), tool.hints);
    // `readOnlyHint: true` permits, so it counts only with `uses_hints`; `false` restricts.
    let read_only = hints.read_only.filter(|read_only| uses_hints || !read_only);
    let destroys = hints.destructive == Some(true);
    if runs_code(tool) && named != Destroys && !destroys && read_only != Some(true) {
        return (Acts, "an argument is code that it runs");
    }
    match (named, read_only) {
        _ if destroys => (Destroys, "its server says that it may destroy something (`destructiveHint`)"),
        (Acts | Destroys, Some(true)) => (
            named,
            "its annotation says that it only reads, but its name has a verb of change, and the name counts",
        ),
        (_, Some(true)) => (Reads, "its server says that it only reads (`readOnlyHint`)"),
        (Destroys, _) => (Destroys, "its name has a verb of destruction or payment"),
        (Acts, _) => (Acts, "its name has a verb of change, such as `send` or `create`"),
        (_, Some(false)) => (Acts, "its server says that it does not only read (`readOnlyHint`)"),
        (Reads, None) => (Reads, "its name has a verb of reading"),
        (Unknown, None) => (Unknown, "neither its name nor an annotation says what it does"),
    }
}

/// Guesses who can receive the arguments of the tool, and returns the reach with the reason as a sentence. A tool
/// counts as open if its annotation says so, or if its name or the role of an argument refers to others. Any other tool
/// counts as closed if its annotation says so (and `uses_hints` holds), or if each argument is a number, a Boolean or
/// one of a few values; otherwise it counts as open.
fn reach(tool: &DescribedTool, uses_hints: bool) -> (ToolReach, &'static str) {
    use ToolReach::{Closed, Open};
    let names_others = tool
        .arguments
        .iter()
        .any(|argument| matches!(argument.role, Some(ArgumentRole::Url | ArgumentRole::Recipient)));
    let is_outward = names_others || has_word(tool, WEB);
    // `openWorldHint: true` restricts, so it counts even without `uses_hints`; `false` permits.
    match tool.hints.open_world {
        Some(true) => (Open, "its server says that it exchanges data with others (`openWorldHint`)"),
        Some(false) if uses_hints && is_outward => (
            Open,
            "its annotation says that it reaches nobody outside, but its name or an argument says that it reaches somebody, and this counts",
        ),
        Some(false) if uses_hints => {
            (Closed, "its server says that it reaches nobody outside (`openWorldHint`)")
        }
        _ if tool.arguments.iter().all(|argument| argument.is_narrow) && !is_outward => {
            (Closed, "no argument can carry a text")
        }
        _ => (Open, "nothing says who can receive its arguments"),
    }
}

/// Guesses whether a tool sends, publishes or orders something: whether the first verb in its name, or a verb after
/// `and`, `or` or `then`, is in the list `SEND`.
pub(super) fn sends(name: &str) -> bool {
    let words = name_words(name);
    let is_verb = |word: &String| [DESTROY, ACT, READ].iter().any(|list| list.contains(&word.as_str()));
    let first = words.iter().position(is_verb);
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).and_then(|before| words.get(before)).map(String::as_str);
        let is_main_verb = Some(at) == first || matches!(before, Some("and" | "or" | "then"));
        is_main_verb && SEND.contains(&word.as_str())
    })
}

/// Guesses the effect of a tool from the first verb in its name, such as `delete`. If further verbs follow after `and`,
/// `or` or `then`, the greatest effect of all counts. A tool that acts on money spends it, which cannot be undone, so
/// it counts as one that destroys. [`ToolEffect::Unknown`] if no word is a known verb.
fn effect_of_name(name: &str) -> ToolEffect {
    let words = name_words(name);
    // The effect that a word means, if it is a known verb.
    let of_word = |word: &str| {
        let lists = [(DESTROY, ToolEffect::Destroys), (ACT, ToolEffect::Acts), (READ, ToolEffect::Reads)];
        lists.into_iter().find(|(list, _)| list.contains(&word)).map(|(_, effect)| effect)
    };
    let mut effects = words.iter().enumerate().filter_map(|(at, word)| Some((at, of_word(word)?)));
    let Some((_, first)) = effects.next() else { return ToolEffect::Unknown };
    // Whether the word at this index follows a conjunction.
    let is_joined = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| words.get(before)).map(String::as_str);
        matches!(before, Some("and" | "or" | "then"))
    };
    let effect = effects.filter(|(at, _)| is_joined(*at)).fold(first, |most, (_, effect)| most.max(effect));
    let is_about_money = words.iter().any(|word| MONEY.contains(&word.as_str()));
    if effect == ToolEffect::Acts && is_about_money { ToolEffect::Destroys } else { effect }
}

/// Returns whether an argument is a program, a command or a statement that the tool runs, by the roles that the names
/// of the arguments suggest. An argument whose name has the word `query` does not count, since it is more often a
/// search than a program.
fn runs_code(tool: &DescribedTool) -> bool {
    tool.arguments.iter().any(|argument| {
        argument.role == Some(ArgumentRole::Code)
            && !name_words(&argument.name).iter().any(|word| word == "query")
    })
}

/// Returns whether the name of a tool has one of these words.
fn has_word(tool: &DescribedTool, list: &[&str]) -> bool {
    name_words(&tool.tool.name).iter().any(|word| list.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::described_tool::ToolHints;
    use super::*;
    use crate::trace::Tool;

    fn traits(name: &str, properties: &Value, hints: [Option<bool>; 3]) -> ToolTraits {
        let hints = ToolHints { read_only: hints[0], destructive: hints[1], open_world: hints[2] };
        let input = json!({"properties": properties});
        ToolTraits::of(&DescribedTool::new(Tool::local(name), String::new(), Some(&input), hints), true)
    }

    #[test]
    fn verbs_decide() {
        use ToolEffect::{Acts, Destroys, Reads, Unknown};
        for (name, effect) in [
            ("get_most_recent_transactions", Reads),
            ("slack_post_message", Acts),
            ("github_list_issues", Reads),
            ("list_and_delete", Destroys),
            ("get_or_create_channel", Acts),
            ("deleteFile", Destroys),
            ("directory_tree", Unknown),
            ("share_file", Acts),
            ("send_money", Destroys),
            ("get_payment", Reads),
            ("mark_read", Acts),
            ("x", Unknown),
        ] {
            assert_eq!(effect_of_name(name), effect, "{name}");
        }
    }

    #[test]
    fn what_is_sent_cannot_be_taken_back() {
        for (name, expected) in [
            ("send_mail", true),
            ("slack_post_message", true),
            ("inviteUser", true),
            ("draft_and_send", true),
            ("reserve_hotel", true),
            ("get_post", false),
            ("update_mail", false),
            ("append_to_file", false),
            ("list_sent_mails", false),
        ] {
            assert_eq!(sends(name), expected, "{name}");
        }
    }

    #[test]
    fn annotations_that_restrict_win() {
        use ToolEffect::{Acts, Destroys, Reads};
        use ToolReach::{Closed, Open};
        let (yes, no) = (Some(true), Some(false));
        for (name, arguments, hints, expected) in [
            ("send_mail", json!({"to": {}}), [yes, None, None], (Acts, Open)),
            ("read_file", json!({"path": {}}), [yes, None, no], (Reads, Closed)),
            ("read_file", json!({"path": {}}), [yes, None, None], (Reads, Open)),
            ("read_file", json!({"path": {}}), [no, None, no], (Acts, Closed)),
            ("tidy", json!({"path": {}}), [no, yes, no], (Destroys, Closed)),
            ("read_file", json!({"path": {}}), [yes, yes, no], (Destroys, Closed)),
            ("get_time", json!({"zone": {"enum": ["UTC"]}}), [None; 3], (Reads, Closed)),
            ("fetch", json!({"url": {}}), [yes, None, no], (Reads, Open)),
            ("find_rows", json!({"sql": {}}), [None; 3], (Acts, Open)),
        ] {
            let found = traits(name, &arguments, hints);
            assert_eq!((found.effect, found.reach), expected, "{name} {hints:?}");
        }
        assert!(traits("fetch", &json!({"url": {}}), [yes, None, yes]).reads_web);
        assert!(!traits("fetch", &json!({"url": {}}), [yes, None, None]).reads_web);
    }
}
