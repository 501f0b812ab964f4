//! Guesses what an MCP server reads and does from its name, its program and its address: whether strangers write
//! what it reads, whether what it reads is private, and whether it acts. `flowgate scan` searches for dangerous
//! combinations by these guesses.
//!
//! A guess proves nothing, and a server that no row of the table names is unknown: it may do anything.

use flowgate::policy::name_words;

use super::config_file::{ConfiguredServer, ConfiguredTransport};

/// What a server reads and does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ServerTraits {
    /// It reads text that strangers write and in which they can put instructions.
    pub(crate) reads_strangers: bool,
    /// It reads what others must not see.
    pub(crate) reads_private: bool,
    /// It changes or sends something, or the arguments of its calls leave the machine.
    pub(crate) acts: bool,
}

/// The bit for [`ServerTraits::reads_strangers`] in [`ROWS`].
const S: u8 = 1;
/// The bit for [`ServerTraits::reads_private`] in [`ROWS`].
const P: u8 = 2;
/// The bit for [`ServerTraits::acts`] in [`ROWS`].
const A: u8 = 4;

/// Pairs of words in the names of servers and a sum of bits for what such servers do: [`S`], [`P`] and [`A`], or 0 if
/// they do none of these. The first row with a word of the server counts.
const ROWS: &[(&[&str], u8)] = &[
    (&["filesystem", "files", "desktopcommander"], P | A),
    (
        &["github", "gitlab", "bitbucket", "jira", "atlassian", "linear", "asana", "trello", "zendesk"],
        S | P | A,
    ),
    (&["gmail", "mail", "email", "imap", "outlook", "workspace", "m365", "office365"], S | P | A),
    (&["slack", "discord", "telegram", "whatsapp", "teams", "signal", "twitter", "mastodon"], S | P | A),
    (
        &["drive", "gdrive", "dropbox", "notion", "confluence", "sharepoint", "onedrive", "box", "airtable"],
        S | P | A,
    ),
    (&["calendar"], S | P | A),
    (&["playwright", "puppeteer", "browser", "selenium", "browserbase", "chrome"], S | P | A),
    (&["fetch", "firecrawl", "crawl", "scrape", "web", "http"], S | A),
    (&["search", "brave", "tavily", "exa", "perplexity", "duckduckgo", "kagi", "wikipedia", "arxiv"], S | A),
    (&["context7", "deepwiki", "docs"], S | A),
    (
        &[
            "postgres",
            "postgresql",
            "mysql",
            "sqlite",
            "mongodb",
            "redis",
            "supabase",
            "bigquery",
            "snowflake",
            "database",
        ],
        P | A,
    ),
    (&["hubspot", "salesforce", "intercom", "crm"], S | P | A),
    (&["sentry", "datadog", "grafana", "posthog"], S | P | A),
    (&["stripe", "paypal", "shopify", "bank", "wallet"], P | A),
    (
        &["docker", "kubernetes", "k8s", "terraform", "aws", "azure", "gcp", "cloudflare", "vercel", "ssh"],
        P | A,
    ),
    (&["shell", "terminal", "bash", "exec", "interpreter", "python", "repl"], P | A),
    (&["git"], S | P | A),
    (&["memory", "obsidian", "notes", "knowledge"], P | A),
    (&["figma"], S | P | A),
    (&["time", "sequentialthinking", "thinking", "calculator", "weather"], 0),
];

/// Guesses what a server reads and does, from the first row of [`ROWS`] with a word that is also in the server's name,
/// program or address; `None` if there is no such row.
pub(crate) fn guess(server: &ConfiguredServer) -> Option<ServerTraits> {
    let mut texts = vec![server.name.clone()];
    match &server.transport {
        ConfiguredTransport::Url(url) => texts.push(url.clone()),
        _ => {
            let command = server.own_command().unwrap_or_default();
            let not_options = command.iter().filter(|part| !part.starts_with('-'));
            // The first three of them name the program and its package. The parts after them are data of the server,
            // such as a folder.
            texts.extend(not_options.take(3).cloned());
        }
    }
    let words: Vec<String> = texts.iter().flat_map(|text| words_of(text)).collect();
    let has_word = |known: &[&str]| known.iter().any(|word| words.iter().any(|found| found == word));
    let row = ROWS.iter().find(|(known, _)| has_word(known));
    // The bits of a row: S, strangers write what the server reads; P, it reads private data; A, it acts.
    row.map(|(_, traits)| ServerTraits {
        reads_strangers: traits & S != 0,
        reads_private: traits & P != 0,
        acts: traits & A != 0,
    })
}

/// Returns the words of a name, of a package or of an address, for comparison with the words of [`ROWS`]. The last item
/// is the last part of the name without separators, since [`ROWS`] spells `sequential-thinking` as
/// `sequentialthinking`. Returns no words for a program that only starts others, such as `npx`: it says nothing about
/// the server.
fn words_of(text: &str) -> Vec<String> {
    let text = if text.contains('/') && !text.contains("://") && !text.starts_with('@') {
        // Of a path, only the last part is a name.
        text.rsplit('/').next().unwrap_or_default()
    } else {
        text
    };
    let mut words: Vec<String> = name_words(&text.to_lowercase());
    let last = text.rsplit('/').next().unwrap_or_default().to_lowercase();
    // Packages of servers are often named `server-NAME`.
    let joined: String = last.trim_start_matches("server-").chars().filter(|c| c.is_alphanumeric()).collect();
    words.push(joined);
    // Programs that start other programs, and a word that follows them (`docker run`).
    const STARTERS: &[&str] = &[
        "npx", "uvx", "uv", "node", "python", "python3", "docker", "bunx", "bun", "deno", "pipx", "run",
        "cmd",
    ];
    // A text of one word gives two items: the word, and the same without separators.
    let is_one_word = words.len() <= 2;
    if words.first().is_some_and(|first| STARTERS.contains(&first.as_str())) && is_one_word {
        return Vec::new();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_servers_do() {
        let check = |name: &str, transport: ConfiguredTransport, expected: Option<&str>| {
            let server = ConfiguredServer {
                name: name.to_owned(),
                section: Vec::new(),
                key: name.to_owned(),
                transport,
                is_disabled: false,
            };
            let found = guess(&server).map(|traits| {
                let codes = [(traits.reads_strangers, 'S'), (traits.reads_private, 'P'), (traits.acts, 'A')];
                codes.into_iter().filter(|(has, _)| *has).map(|(_, code)| code).collect::<String>()
            });
            assert_eq!(found.as_deref(), expected, "{name}");
        };
        let command =
            |words: &str| ConfiguredTransport::Command(words.split(' ').map(str::to_owned).collect());
        check("a", command("npx -y @modelcontextprotocol/server-filesystem /data/mail"), Some("PA"));
        check("a", command("uvx mcp-server-fetch"), Some("SA"));
        check("a", command("npx -y @modelcontextprotocol/server-sequential-thinking"), Some(""));
        check("a", command("docker run -i ghcr.io/github/github-mcp-server"), Some("SPA"));
        check("a", command("python3 server.py"), None);
        check("x", ConfiguredTransport::Url("https://mcp.notion.com/mcp".to_owned()), Some("SPA"));
        check("x", ConfiguredTransport::Url("https://example.com/mcp".to_owned()), None);
        check("a", command("/bin/flowgate mcp --policy mail.flow --name a -- uvx mcp-server-time"), Some(""));
    }
}
