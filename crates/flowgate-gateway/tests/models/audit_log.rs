//! Tests of the audit log of a gateway: it contains every verdict, question and decision, and a replay reproduces every
//! verdict.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::net::TcpStream;

use flowgate_audit::{AuditRecord, LogExpectations, RecordKind, VerifiedRecords, verify};
use flowgate_gateway::chat::recheck::{LoggedVerdicts, RecheckReport, read_database_snapshot, recheck};
use serde_json::json;

use crate::FORMS;
use crate::approvals::{PersonClient, mails};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, config, until};
use crate::gullible;
use crate::persisted_turns::tables;
use crate::upstream::{UpstreamDouble, says};

const AUDIT: &str = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n[audit]\nfile = \"audit.jsonl\"\n";

fn home(upstream: &UpstreamDouble, policy: &str) -> GatewayHome {
    GatewayHome::new(
        &(config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
            + AUDIT),
        policy,
    )
}

pub(crate) fn records(home: &GatewayHome) -> Vec<AuditRecord> {
    let open = || BufReader::new(File::open(home.folder().join("audit.jsonl")).unwrap());
    verify(&mut open(), &LogExpectations::default(), None).unwrap();
    VerifiedRecords::new(open(), None).collect::<Result<_, _>>().unwrap()
}

pub(crate) fn rechecked(home: &GatewayHome, records: &[AuditRecord]) -> RecheckReport {
    let mut logged = LoggedVerdicts::default();
    records.iter().for_each(|record| logged.add(record));
    recheck(home.read(), read_database_snapshot(&home.read()).unwrap(), logged).unwrap()
}

/// The log contains everything that was judged, asked and decided, and no content; a replay reproduces the verdicts.
#[test]
fn the_log_is_complete_and_a_replay_reproduces_it() {
    let upstream = UpstreamDouble::new(mails);
    let policy = POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
    let home = home(&upstream, &policy);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail Bob.");
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(bob.says(&question, "allow").0, 200);
    assert_eq!(agent.says("continue"), "Done.");
    let freeze = json!({"kind": "tool", "what": "send", "frozen": true});
    assert_eq!(bob.post("/api/v1/freezes", &freeze).0, 200);
    gateway.stop();

    let records = records(&home);
    let kinds: Vec<&str> = records.iter().map(|r| r.kind.name()).filter(|kind| *kind != "head").collect();
    assert_eq!(
        kinds,
        [
            "opened",
            "configuration-loaded",
            "asked",
            "judged",
            "judged",
            "decided",
            "approval-used",
            "kill-switch"
        ]
    );
    let judged: Vec<String> = records
        .iter()
        .filter(|record| record.kind == RecordKind::Judged)
        .map(|record| {
            format!("{} {} {}", record.object["tool"], record.object["verdict"], record.object["reasons"])
        })
        .collect();
    let asks = r#""send" "confirm" ["rule: line 24: ask \"mails are confirmed\" if:"]"#;
    assert_eq!(judged, [r#""read" "permit" []"#, asks]);
    let decided = records.iter().find(|record| record.kind == RecordKind::Decided).unwrap();
    assert_eq!((&decided.object["who"], &decided.object["digest"]), (&json!("bob"), &question["digest"]));
    let text = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
    for said in ["hello", "Mail Bob", "Otters"] {
        assert!(!text.contains(said), "{said}");
    }
    assert_eq!(rechecked(&home, &records), RecheckReport { same: 2, ..RecheckReport::default() });
}

/// An order that the database does not confirm is recorded as such: the log does not claim that it is in force.
#[test]
fn an_unconfirmed_order_is_recorded() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, POLICY);
    let gateway = home.start();
    tables(&home, &["ALTER TABLE freezes RENAME TO freezes_elsewhere"]);
    let freeze = json!({"kind": "tool", "what": "send", "frozen": true, "in_advance": true});
    let (status, body) = PersonClient(&gateway, "bob").post("/api/v1/freezes", &freeze);
    assert!(status >= 500, "{status} {body}");
    gateway.stop();

    let records = records(&home);
    let orders: Vec<String> = records
        .iter()
        .filter(|record| ["kill-switch", "order-unconfirmed"].contains(&record.kind.name()))
        .map(|record| format!("{} {} by {}", record.kind, record.object["what"], record.object["who"]))
        .collect();
    let expected =
        [r#"kill-switch "tool send" by "bob""#, r#"order-unconfirmed "freeze tool send" by "bob""#];
    assert_eq!(orders, expected);
}

/// A freeze whose client disconnects before the answer is carried out: the log and the database agree.
#[test]
fn an_order_completes_after_its_client_has_disconnected() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, POLICY);
    let gateway = home.start();
    // The test of PostgreSQL has no file.
    let Some(file) = home.file() else { return };
    let bob = PersonClient(&gateway, "bob");
    // Another process writes to the database: the freeze waits.
    let other = rusqlite::Connection::open(file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body = json!({"kind": "tool", "what": "send", "frozen": true, "in_advance": true}).to_string();
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let (key, length) = (bob.key(), body.len());
    write!(
        stream,
        "POST /api/v1/freezes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let log = home.folder().join("audit.jsonl");
    assert!(until(|| std::fs::read_to_string(&log).unwrap().contains("kill-switch")));
    drop(stream);
    gateway.waits_for_connections(1);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(until(|| gateway.get("/api/v1/freezes", &bob.key()).1.contains("\"send\"")));
    gateway.stop();
    assert!(!std::fs::read_to_string(&log).unwrap().contains("order-unconfirmed"));
}

/// A log with a changed verdict is detected, regardless of its signer; verdicts under an earlier policy are counted as
/// gone and are no objection.
#[test]
fn a_log_with_a_changed_verdict_is_detected() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, POLICY);
    let gateway = home.start();
    for (api, _) in FORMS {
        TestAgent::new(&gateway, api, true, KEY).says("Mail the page to Bob.");
    }
    gateway.stop();
    let mut records = records(&home);
    let same = rechecked(&home, &records);
    assert_eq!((same.same, same.differ.len()), (8, 0), "{same:?}");
    let changed = records.iter_mut().find(|record| record.kind == RecordKind::Judged).unwrap();
    changed.object.insert("verdict".to_owned(), json!("deny"));
    let found = rechecked(&home, &records);
    assert_eq!((found.same, found.differ.len()), (6, 1), "{found:?}");
    assert!(found.differ[0].to_string().contains("`permit` for a call of read at event"), "{found:?}");
    home.policy(&POLICY.replace("no passwords", "no passwords, please"));
    assert_eq!(rechecked(&home, &records), RecheckReport { gone: 8, ..RecheckReport::default() });
}

/// A conversation that was carried over to another policy is replayed under it: the verdicts before count as gone, and
/// those after are compared.
#[test]
fn verdicts_after_a_change_of_the_policy_are_compared() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, POLICY);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, true, KEY);
    agent.says("Mail the page to Bob.");
    let chat = std::mem::take(&mut agent.chat);
    gateway.stop();
    home.policy(&POLICY.replace("no passwords", "no passwords, please"));
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, true, KEY);
    agent.chat = chat;
    agent.says("Mail the page to Bob.");
    gateway.stop();
    let mut records = records(&home);
    let same = rechecked(&home, &records);
    assert_eq!((same.same > 0, same.gone, same.differ.len()), (true, 2, 0), "{same:?}");
    let changed = records.iter_mut().rfind(|record| record.kind == RecordKind::Judged).unwrap();
    changed.object.insert("verdict".to_owned(), json!("deny"));
    assert_eq!(rechecked(&home, &records).differ.len(), 1);
}

/// A conversation that was carried over to another policy and back: the verdicts before the changes count as gone, not as
/// verdicts on calls that were never sent, and a changed verdict is detected.
#[test]
fn verdicts_after_a_change_of_the_policy_and_back_are_compared() {
    let other = POLICY.replace("no passwords", "no passwords, please");
    // Whether the conversation continues under the other policy.
    for continues in [true, false] {
        let upstream = UpstreamDouble::new(gullible);
        let home = home(&upstream, POLICY);
        let mut chat = Vec::new();
        for (policy, is_used) in [(POLICY, true), (other.as_str(), continues), (POLICY, true)] {
            home.policy(policy);
            let gateway = home.start();
            let mut agent = TestAgent::new(&gateway, FORMS[0].0, true, KEY);
            agent.chat = std::mem::take(&mut chat);
            if is_used {
                agent.says("Mail the page to Bob.");
            }
            chat = std::mem::take(&mut agent.chat);
            gateway.stop();
        }
        let mut records = records(&home);
        let judged = records.iter().filter(|record| record.kind == RecordKind::Judged).count() as u64;
        let found = rechecked(&home, &records);
        assert_eq!((found.same + found.gone, found.unsent, found.differ.len()), (judged, 0, 0), "{found:?}");
        assert_eq!((found.same > 0, found.gone > 0), (true, continues), "{found:?}");
        let changed = records.iter_mut().rfind(|record| record.kind == RecordKind::Judged).unwrap();
        changed.object.insert("verdict".to_owned(), json!("deny"));
        assert_eq!(rechecked(&home, &records).differ.len(), 1);
    }
}

/// An event that cannot be recorded has no effect.
#[test]
fn nothing_is_done_that_cannot_be_recorded() {
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let upstream = UpstreamDouble::new(|_| says("Yes."));
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"");
    let home = GatewayHome::new(&(text + "[audit]\nfile = \"/dev/full\"\nkey-file = \"full.key\"\n"), POLICY);
    let error = home.try_start().err().unwrap();
    assert!(error.contains("nothing is done that it must record"), "{error}");
}
