//! Tests that the table of limits in `docs/gateway.md` matches the code: it has the default of each limit, and each
//! limit that the code reports in the log.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::{self, DatabaseSpec};
use crate::database::KeyLimits;
use crate::limits::ServerLimits;

const GATEWAY: &str = include_str!("../../../../docs/gateway.md");

/// Returns the rows of the table of limits in the documentation: the default and the setting of each limit, by its
/// name.
fn rows() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let (_, section) = GATEWAY.split_once("\n## Limits\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        let [limit, default, setting, _] = cells[..] else { panic!("{line}") };
        Some((limit.trim_end_matches('`'), (default, setting.trim_matches('`'))))
    });
    rows.collect()
}

/// Every default in the table is that of the code, and the table has no other rows.
#[test]
fn documented_defaults_are_those_of_the_code() {
    let limits = ServerLimits::default();
    let store = DatabaseSpec::default();
    let configuration = {
        let text = "[upstreams.a]\nurl = \"http://127.0.0.1:1/v1\"\n[clients.a]\nkey-from = \"KEY\"\nupstream = \"a\"\npolicy = \"p.flow\"\n";
        let folder = std::env::temp_dir().join(format!("flowgate-documented-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.flow"), "lattice integrity: trusted < untrusted\n").unwrap();
        let read = config::read(text, &folder, &|_| Some("key-of-the-first-client".to_owned())).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        read
    };
    let asking = &configuration.approvals;
    let one = configuration.clients.first().unwrap();
    let key = KeyLimits::default();
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let seconds = |time: std::time::Duration| format!("{} s", time.as_secs());
    let optional = |most: Option<u64>| most.map_or_else(|| "none".to_owned(), |most| most.to_string());
    let expected: Vec<(&str, String)> = vec![
        ("bytes of one body", mib(limits.body)),
        ("bytes of all bodies that are read or evaluated", mib(limits.bodies)),
        (crate::http::value_budget::LIMIT_NAME, mib(limits.values)),
        ("seconds for a body to arrive", seconds(limits.body_time)),
        // A handshake may take as long as the head of a request.
        ("seconds for a TLS handshake", seconds(limits.head_time)),
        ("open connections", limits.connections.to_string()),
        ("connections of one address without a valid key", limits.connections_of_address.to_string()),
        (
            "cancelled requests of one connection, less its answered ones",
            crate::http::open_requests::MAX_CANCELLED.to_string(),
        ),
        ("failed logins of one address in a minute", crate::page::login_failures::MAX_FAILURES.to_string()),
        (
            "codes from one address that the issuer has refused in a minute",
            crate::page::login_failures::MAX_FAILURES.to_string(),
        ),
        ("evaluations that wait for a worker", limits.queue.to_string()),
        ("seconds for an evaluation", seconds(limits.answer_time)),
        ("turns of agents at the same time", limits.turns.to_string()),
        ("messages to MCP servers at the same time", limits.exchanges.to_string()),
        ("streams of MCP servers at the same time", limits.streams.to_string()),
        ("seconds for a turn of an agent", seconds(limits.turn_time)),
        ("requests of one client in a minute", one.requests_per_minute.to_string()),
        ("tokens of one client in a day", optional(one.budget.tokens_per_day)),
        ("cost of one client in a day", optional(one.budget.cost_per_day)),
        ("requests of one virtual key in a minute", optional(key.requests_per_minute.map(u64::from))),
        ("tokens of one virtual key in a day", optional(key.tokens_per_day)),
        ("cost of one virtual key in a day", optional(key.cost_per_day)),
        ("virtual keys of one client", crate::virtual_keys::routes::MAX_KEYS.to_string()),
        ("requests of one client at the same time", one.parallel.to_string()),
        ("streams of one client at the same time", crate::mcp_proxy::stream_place::MAX_LISTENING.to_string()),
        ("conversations of one client", one.sessions.to_string()),
        ("bytes of one conversation", mib(usize::try_from(store.conversation).unwrap())),
        (
            "memory of one conversation, which has many short values",
            mib(usize::try_from(store.conversation).unwrap() * crate::chat::conversations::MEMORY_OF_A_BYTE),
        ),
        ("text remembered of one source", mib(store.quotations / flowgate_guard::history::SHARE)),
        ("open questions of one client", asking.open_of_client.to_string()),
        ("open questions of one conversation", asking.open_of_conversation.to_string()),
        ("questions of one conversation in an hour", asking.hourly_of_conversation.to_string()),
        ("questions of one client in an hour", asking.hourly_of_client.to_string()),
        ("questions of one conversation", asking.total_of_conversation.to_string()),
        ("refused questions of one conversation in a row", asking.refusals_of_conversation.to_string()),
        ("refused questions of one client in a row", asking.refusals_of_client.to_string()),
        // One constant limits the questions that are open and those that were refused.
        ("tools of one server that wait for approval", crate::database::MAX_OFFERED.to_string()),
        ("refused tools of one server in a row", crate::database::MAX_OFFERED.to_string()),
        (
            "messages of the model in one turn",
            flowgate_guard::conversation::ConversationSettings::new(
                one.method,
                flowgate_guard::approve::DigestKey::new([0; 32]),
            )
            .messages
            .to_string(),
        ),
        (
            "calls of one turn that the provider runs",
            crate::chat::provider_tools::MAX_PROVIDER_CALLS.to_string(),
        ),
        (
            "evaluation of a call, or size of a call or conversation",
            format!("{} steps", flowgate::monitor::Limits::default().fuel),
        ),
        ("hidden items that are reported for one conversation", crate::visibility::MAX_EXPLAINED.to_string()),
        ("messages of one stream of a server", crate::mcp_proxy::listening::MAX_UNSOLICITED.to_string()),
        (
            "bytes of the chats of one client that await an answer elsewhere",
            mib(crate::chat::guardrail::remembered_chats::MAX_BYTES),
        ),
        (
            "bytes of the calls of one client that hooks can ask about",
            mib(crate::chat::handed_calls::MAX_BYTES),
        ),
        ("spans that wait for the collector", crate::telemetry::export::MAX_WAITING.to_string()),
        (
            "cancelled requests that are remembered",
            crate::mcp_proxy::pending_requests::MAX_CANCELLED.to_string(),
        ),
    ];
    let rows = rows();
    for (limit, default) in &expected {
        let documented = rows.get(limit).unwrap_or_else(|| panic!("`{limit}` is not documented"));
        assert_eq!(documented.0, default, "{limit}");
    }
    assert_eq!(rows.len(), expected.len(), "the table has a row that this test does not know: {rows:?}");
}

/// Every limit that the code reports is in the table by its name, with its setting if it has one.
#[test]
fn every_reported_limit_is_documented() {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let rows = rows();
    let mut found = 0;
    for source in &sources {
        // Tests report other limits.
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        // A limit is reported by a literal of `Limit`, or by one of `GatewayBound` or `ResponseBound`.
        let limits = source.match_indices("Limit {\n");
        let bounds = source.match_indices("Bound {\n");
        for (at, _) in limits.chain(bounds) {
            // Up to its end: no limit has a brace in its texts.
            let literal = source.get(at..).and_then(|rest| rest.split('}').next()).unwrap_or_default();
            // The text in quotation marks that follows `prefix`.
            let field = |prefix: &str| {
                let (_, rest) = literal.split_once(&format!("{prefix}\""))?;
                rest.split('"').next()
            };
            // The declaration of a struct has no texts.
            let Some(what) = field("what: ") else { continue };
            let setting = match field("setting: Some(") {
                Some(setting) => setting,
                None if literal.contains("setting: None") => "none",
                None => continue,
            };
            let (_, documented) = rows.get(what).unwrap_or_else(|| panic!("`{what}` is not documented"));
            // After `none`, the table may explain why there is no setting.
            let is_documented = *documented == setting || setting == "none" && documented.starts_with("none");
            assert!(is_documented, "{what}: {setting} is not {documented}");
            found += 1;
        }
    }
    // A search that finds too few limits does not read the sources as they are written now.
    assert!(found >= 15, "{found}");
}

/// Adds the texts of the source files in a folder and below it to `sources`, except `log.rs`, whose limits are
/// examples.
fn read(folder: &Path, sources: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => read(&path, sources),
            false
                if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with("log.rs") =>
            {
                sources.push(std::fs::read_to_string(path).unwrap());
            }
            false => {}
        }
    }
}
