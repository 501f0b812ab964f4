//! Tests that what agents, servers and people said is found in no file of a gateway with an encryption key, and that such
//! a gateway continues after a restart and tells an operator what is wrong with its key.

use serde_json::json;

use crate::gateway::{GatewayHome, KEY, TestGateway};
use crate::mcp::{AnswerForm, McpServerDouble, text};
use crate::persisted_turns::tables;
use crate::servers;
use crate::upstream::{UpstreamDouble, says, text_of};

/// A word that occurs in every message, argument and answer.
const MARKER: &str = "Zinnoberfarben";
/// Embeddings are permitted.
const EMBEDDINGS: &str =
    "label message as trusted if:\n    (message: Message)\n    message.role == \"embedding\"\n";

/// Returns the home of a gateway with two servers, which asks people about payments and writes an audit log.
fn home(upstream: &UpstreamDouble, servers: [&McpServerDouble; 2], store: &str) -> GatewayHome {
    let more = format!("{}[audit]\nfile = \"audit.log\"\ncontent-days = 30\n", servers::PEOPLE);
    let policy = [servers::POLICY, servers::ASKS, EMBEDDINGS].concat();
    let mut home = servers::home(&upstream.url, servers, &more, &policy);
    home.edit("[store]\n", &format!("[store]\n{store}"));
    home
}

/// Returns a server of pages, all of which have the marker.
fn web() -> McpServerDouble {
    let page =
        format!("{MARKER} are pigments of mercury sulphide, which painters bought in Venice for centuries.");
    McpServerDouble::new(AnswerForm::Json, &["read"], move |_, _| text(&page))
}

/// Lets an agent say, read and ask for what has the marker.
fn talk(gateway: &TestGateway) {
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str()), ("x-flowgate-conversation", "chat")];
    let body = json!({"model": "double", "messages": [
        {"role": "user", "content": format!("What does {MARKER} mean?")},
    ]});
    assert_eq!(gateway.post("/v1/chat/completions", &headers, &body.to_string()).0, 200);
    let body = json!({"model": "double", "input": [MARKER]});
    gateway.post("/v1/embeddings", &headers[..1], &body.to_string());
    let mut client = servers::client(gateway, "one");
    client.begin("bank");
    // People are asked about it, and nobody answers.
    client.call("bank", "pay", &json!({"to": MARKER}));
    client.begin("web");
    let answer = client.call("web", "read", &json!({"path": MARKER}));
    assert!(answer.contains(MARKER), "{answer}");
}

/// Returns the files in the folder of a home, except its configuration, that contain the marker.
fn files_with_marker(home: &GatewayHome) -> Vec<String> {
    let files = std::fs::read_dir(home.folder()).unwrap().map(|entry| entry.unwrap().path());
    let has_marker = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes())
    };
    let mut names: Vec<String> = files
        .filter(has_marker)
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_said_is_in_no_file_of_a_gateway_with_a_key() {
    for (store, is_found) in [("", true), ("encryption-key-from = \"STORE_KEY\"\n", false)] {
        let upstream = UpstreamDouble::new(|request| says(&text_of(request)));
        let (web, bank) = (web(), servers::bank(AnswerForm::Json));
        let home = home(&upstream, [&web, &bank], store);
        let gateway = home.start();
        talk(&gateway);
        // While it runs, the write-ahead log has most of it.
        let check = || {
            if home.file().is_some() {
                let found: Vec<String> = files_with_marker(&home);
                assert_eq!(!found.is_empty(), is_found, "{store}: {found:?}");
                let is_expected =
                    |name: &String| name.starts_with("flowgate.db") || name == "audit.log.content";
                assert!(found.iter().all(is_expected), "{found:?}");
                assert_eq!(found.contains(&"audit.log.content".to_owned()), is_found, "{found:?}");
            } else {
                let count =
                    tables(&home, &["SELECT COUNT(*) FROM turns WHERE inputs LIKE '%Zinnoberfarben%'"]);
                assert_eq!(count > 0, is_found, "{store}");
            }
        };
        check();
        assert_eq!(tables(&home, &["SELECT COUNT(*) FROM questions"]), 1);
        assert!(tables(&home, &["SELECT COUNT(*) FROM seen"]) > 0);
        gateway.stop();
        check();
        // It continues: the labels of what was read are still there.
        let gateway = home.start();
        let (status, body) = gateway.get("/api/v1/approvals", "key-of-the-person-ann");
        assert!(status == 200 && body.contains(MARKER), "{body}");
        let answer = servers::client(&gateway, "one").call("web", "read", &json!({"path": MARKER}));
        assert!(answer.contains(MARKER), "{answer}");
        gateway.stop();
        check();
    }
}

#[test]
fn a_missing_or_wrong_key_is_reported_at_the_start() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let (web, bank) = (web(), servers::bank(AnswerForm::Json));
    let setting = "encryption-key-from = \"STORE_KEY\"\n";
    let mut home = home(&upstream, [&web, &bank], setting);
    let gateway = home.start();
    talk(&gateway);
    gateway.stop();
    for (with, expected) in [
        ("", "the configuration names no key"),
        ("encryption-key-from = \"OTHER_STORE_KEY\"\n", "the configuration has other keys"),
        ("encryption-key-from = \"SECRET\"\n", "store: encryption-key-from: key 1 is not 32 bytes"),
        (
            "encryption-key-from = \"STORE_KEY\"\nencryption-key-file = \"x\"\n",
            "the section has both `encryption-key-from` and `encryption-key-file`",
        ),
        ("encryption-key-file = \"absent.key\"\n", "absent.key"),
    ] {
        home.edit(setting, &format!("#{setting}{with}"));
        let error = home.try_start().err().unwrap();
        assert!(error.contains(expected) && !error.contains("1111"), "{with}: {error}");
        home.edit(&format!("#{setting}{with}"), setting);
    }
    home.start().stop();
}
