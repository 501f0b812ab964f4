//! Guesses what the tools of an MCP server read and do: whether strangers write what a tool reads, whether what it
//! reads is private, and whether it acts. `flowgate scan --start` searches for dangerous combinations by these guesses.
//!
//! Whether a tool acts is guessed as for `flowgate init` (`flowgate::draft::ToolTraits`: by its name, the roles of its
//! arguments, its annotations). Whose text a tool reads is guessed from the words of its name or, if these words say
//! nothing, from the name of its server. A guess proves nothing.

use flowgate::draft::{DescribedTool, ToolEffect, ToolReach, ToolTraits};
use flowgate::policy::{ArgumentRole, name_words};

use super::known_servers::ServerTraits;

/// What a server or a tool reads and does. A field is `None` if nothing suggests its value; the server or tool may then
/// do anything in this respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GuessedTraits {
    /// Whether it reads text that strangers write and in which they can put instructions.
    pub(crate) reads_strangers: Option<bool>,
    /// Whether it reads what others must not see.
    pub(crate) reads_private: Option<bool>,
    /// Whether it changes or sends something, or the arguments of its calls leave the machine.
    pub(crate) acts: Option<bool>,
}

impl From<Option<ServerTraits>> for GuessedTraits {
    /// Returns the traits that the names of a server suggest; all are `None` if they suggest nothing.
    fn from(traits: Option<ServerTraits>) -> Self {
        Self {
            reads_strangers: traits.map(|traits| traits.reads_strangers),
            reads_private: traits.map(|traits| traits.reads_private),
            acts: traits.map(|traits| traits.acts),
        }
    }
}

impl GuessedTraits {
    /// Returns what several tools read and do together: what at least one of them does, or may do.
    pub(crate) fn of_all(traits: &[Self]) -> Self {
        // `Some(true)` outweighs `None`, and `None` outweighs `Some(false)`.
        let any = |of: &dyn Fn(&Self) -> Option<bool>| {
            if traits.iter().any(|traits| of(traits) == Some(true)) {
                return Some(true);
            }
            traits.iter().all(|traits| of(traits).is_some()).then_some(false)
        };
        Self {
            reads_strangers: any(&|traits| traits.reads_strangers),
            reads_private: any(&|traits| traits.reads_private),
            acts: any(&|traits| traits.acts),
        }
    }
}

/// Words of what strangers can write, in the singular.
const STRANGERS: &[&str] = &[
    "article",
    "attachment",
    "channel",
    "chat",
    "comment",
    "conversation",
    "discussion",
    "dm",
    "email",
    "event",
    "feed",
    "history",
    "inbox",
    "invitation",
    "invite",
    "issue",
    "mail",
    "message",
    "notification",
    "post",
    "profile",
    "pr",
    "pull",
    "reply",
    "repo",
    "repository",
    "review",
    "sms",
    "thread",
    "ticket",
    "transaction",
    "transcript",
    "tweet",
];
/// Words of the web: strangers write it, everybody may read it, and an address can carry data away.
const WEB: &[&str] = &[
    "browse",
    "browser",
    "crawl",
    "fetch",
    "html",
    "http",
    "internet",
    "navigate",
    "page",
    "scrape",
    "url",
    "web",
    "webpage",
    "website",
    "wiki",
    "wikipedia",
];
/// Words of what others must not see, in the singular.
const PRIVATE: &[&str] = &[
    "account",
    "address",
    "appointment",
    "attachment",
    "balance",
    "bill",
    "calendar",
    "card",
    "channel",
    "chat",
    "code",
    "contact",
    "conversation",
    "credential",
    "customer",
    "database",
    "diff",
    "directory",
    "dm",
    "document",
    "drive",
    "email",
    "env",
    "event",
    "file",
    "folder",
    "graph",
    "history",
    "inbox",
    "invoice",
    "issue",
    "log",
    "mail",
    "memory",
    "message",
    "note",
    "order",
    "password",
    "patient",
    "payment",
    "profile",
    "record",
    "repo",
    "repository",
    "row",
    "schema",
    "secret",
    "sheet",
    "spreadsheet",
    "table",
    "thread",
    "ticket",
    "token",
    "transaction",
    "transcript",
    "user",
    "wallet",
];

/// Guesses what a tool reads and does. `traits` is what `flowgate init` concludes from the tool's description, and
/// `server` is what the names of the tool's server suggest (`None`: nothing).
pub(crate) fn guess(
    tool: &DescribedTool,
    traits: &ToolTraits,
    server: Option<ServerTraits>,
) -> GuessedTraits {
    let words = name_words(&tool.tool.name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&singular(word)));
    let (strangers, web, private) = (has(STRANGERS), has(WEB), has(PRIVATE));
    let of_server = GuessedTraits::from(server);
    let has_role = |role| tool.arguments.iter().any(|argument| argument.role == Some(role));
    let is_open_world = tool.hints.open_world == Some(true);
    match traits.effect {
        // The answer of a tool that acts only says what the tool has done, with two exceptions: a tool that works in the
        // web also returns what strangers write there, and code can also read private data.
        ToolEffect::Acts | ToolEffect::Destroys => GuessedTraits {
            reads_strangers: Some(web),
            reads_private: Some(has_role(ArgumentRole::Code)),
            acts: Some(true),
        },
        effect => {
            let reads_strangers = if strangers || web || is_open_world {
                Some(true)
            } else if private {
                // What is private, such as a note, is taken to be written by no stranger.
                Some(false)
            } else {
                of_server.reads_strangers
            };
            let reads_private = if traits.reads_web {
                // Everybody may read the web.
                Some(false)
            } else if private {
                Some(true)
            } else if strangers || web {
                // What strangers write is taken to be public, unless a word of `PRIVATE` says otherwise.
                Some(false)
            } else {
                of_server.reads_private
            };
            let acts = match effect {
                ToolEffect::Unknown => of_server.acts,
                // No argument can carry a text to anyone but the tool's own server.
                _ if traits.reach == ToolReach::Closed => Some(false),
                _ => Some(web || is_open_world || has_role(ArgumentRole::Url)),
            };
            GuessedTraits { reads_strangers, reads_private, acts }
        }
    }
}

/// Returns a word without the `s` of a plural. A word of at most three characters, or one that ends in `ss`, is returned
/// unchanged.
fn singular(word: &str) -> &str {
    word.strip_suffix('s').filter(|stem| stem.len() > 2 && !stem.ends_with('s')).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use flowgate::draft::ToolHints;
    use flowgate::trace::Tool;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tools_say_what_they_read_and_do() {
        let check = |name: &str, properties: &Value, hints: [Option<bool>; 3], expected: &str| {
            let hints = ToolHints { read_only: hints[0], destructive: hints[1], open_world: hints[2] };
            let input = json!({"properties": properties});
            let tool = DescribedTool::new(Tool::of("s", name), String::new(), Some(&input), hints);
            let found = guess(&tool, &ToolTraits::of(&tool, true), None);
            assert_eq!(codes(found), expected, "{name}");
        };
        let (none, yes) = ([None; 3], Some(true));
        check("list_mail", &json!({}), none, "SP-");
        check("send_mail", &json!({"to": {}, "body": {}}), none, "--A");
        check("fetch", &json!({"url": {}}), none, "S-A");
        check("fetch", &json!({"url": {}}), [yes, None, yes], "S-A");
        check("read_file", &json!({"path": {}}), none, "-P-");
        check("read_file", &json!({"path": {}}), [yes, None, yes], "SPA");
        check("list_issues", &json!({"repo": {}}), none, "SP-");
        check("browser_click", &json!({"element": {}}), none, "S-A");
        check("execute", &json!({"code": {}}), none, "-PA");
        check("search_things", &json!({"text": {}}), none, "??-");
        check("frobnicate", &json!({"text": {}}), none, "???");
        check("get_time", &json!({"zone": {"enum": ["UTC"]}}), none, "??-");
    }

    #[test]
    fn the_server_says_what_a_tool_does_not() {
        let tool =
            DescribedTool::new(Tool::of("s", "search_nodes"), String::new(), None, ToolHints::default());
        let server = ServerTraits { reads_strangers: false, reads_private: true, acts: true };
        let found = guess(&tool, &ToolTraits::of(&tool, true), Some(server));
        assert_eq!(codes(found), "-P-");
    }

    #[test]
    fn tools_count_together() {
        let of = |strangers| GuessedTraits { reads_strangers: strangers, ..GuessedTraits::default() };
        for (tools, expected) in [
            (vec![], Some(false)),
            (vec![Some(false), Some(true)], Some(true)),
            (vec![None, Some(true)], Some(true)),
            (vec![Some(false), None], None),
            (vec![None, Some(false)], None),
        ] {
            let found = GuessedTraits::of_all(&tools.iter().map(|tool| of(*tool)).collect::<Vec<_>>());
            assert_eq!(found.reads_strangers, expected, "{tools:?}");
        }
    }

    fn codes(traits: GuessedTraits) -> String {
        let of = |has: Option<bool>, code: char| has.map_or('?', |has| if has { code } else { '-' });
        [of(traits.reads_strangers, 'S'), of(traits.reads_private, 'P'), of(traits.acts, 'A')]
            .iter()
            .collect()
    }
}
