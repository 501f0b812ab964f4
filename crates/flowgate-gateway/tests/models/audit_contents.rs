//! Tests of the contents file, which the gateway writes next to the audit log: it contains no keys of clients, and
//! content can be deleted from it completely.

use std::fs::{self, File};
use std::io::BufReader;

use flowgate_audit::{
    AuditEvent, AuditKey, AuditLog, AuditOptions, AuditRecord, ContentCounts, ContentReader,
    ContentRetention, LineContent, LogExpectations, LogSummary, Timestamp, VerifyError, verify,
};
use flowgate_gateway::database::encrypt_audit_contents;
use flowgate_lm::chat::{Completion, Request};
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::audit_log::records;
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, TestGateway, config, until};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const PEOPLE: &str = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n\
     [people.amy]\nkey-from = \"amy\"\nrole = \"admin\"\ntenants = [\"acme\"]\n\
     [people.vic]\nkey-from = \"vic\"\nrole = \"viewer\"\n[approvals]\nwait-seconds = 0\n";
const KEPT: &str = "[audit]\nfile = \"audit.jsonl\"\ncontent-days = 30\n";

/// Mails a plan with the client's key, and replies with a password on request.
fn talkative(request: &Request) -> Completion {
    match text_of(request) {
        text if text.contains("Tell") => says("It is hunter2."),
        text if text.contains("\"send\"") => says("Done."),
        _ => calls(&[
            ("read", "{}"),
            ("send", &json!({"to": "bob", "body": format!("plan, {KEY}")}).to_string()),
        ]),
    }
}

/// Returns a home in which every mail needs an approval, with this configuration of the audit log.
fn home(upstream: &UpstreamDouble, audit: &str) -> GatewayHome {
    let more = "user-messages = \"trust-unmarked-even-if-pasted\"\ntenant = \"acme\"";
    let text = config(&upstream.url, "chat-completions", more) + PEOPLE + audit;
    GatewayHome::new(
        &text,
        &(POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n"),
    )
}

/// Causes a mail that waits for an approval, and a reply that is withheld.
fn work(gateway: &TestGateway, key: &str) {
    assert!(
        TestAgent::new(gateway, FORMS[0].0, false, key).says("Mail Bob.").contains("a person has to allow")
    );
    assert_eq!(
        TestAgent::new(gateway, FORMS[0].0, true, key).says("Tell me."),
        "[withheld by a rule: no passwords]"
    );
}

fn checked(home: &GatewayHome) -> Result<LogSummary, VerifyError> {
    let open = |name: &str| BufReader::new(File::open(home.folder().join(name)).unwrap());
    verify(&mut open("audit.jsonl"), &LogExpectations::default(), Some(&mut open("audit.jsonl.content")))
}

/// Returns the stored content of each record that had any, with its client and kind.
fn said(home: &GatewayHome) -> Vec<(String, String, LineContent)> {
    let contents = fs::read(home.folder().join("audit.jsonl.content")).unwrap();
    let mut sidecar = ContentReader::new(contents.as_slice()).unwrap();
    let of = |record: &AuditRecord| {
        (record.text("client").unwrap_or_default().to_owned(), record.kind.to_string())
    };
    let all = records(home);
    let each = all.iter().map(|record| (of(record), sidecar.content_of(record).unwrap()));
    each.filter(|(_, said)| *said != LineContent::Nothing)
        .map(|((client, kind), said)| (client, kind, said))
        .collect()
}

/// Returns the files of the log that contain this text.
fn files_with(home: &GatewayHome, word: &str) -> Vec<String> {
    let files = fs::read_dir(home.folder()).unwrap().map(|file| file.unwrap());
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("audit"));
    let found = logs.filter(|file| String::from_utf8_lossy(&fs::read(file.path()).unwrap()).contains(word));
    found.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn contents_are_stored_beside_the_log_and_can_be_deleted() {
    let upstream = UpstreamDouble::new(talkative);
    let home = home(&upstream, KEPT);
    let gateway = home.start();
    work(&gateway, KEY);
    work(&gateway, OTHER_KEY);

    let mail = r#"{"to":"bob","body":"plan, [key]"}"#;
    let kept = said(&home);
    let shown: Vec<(&str, &str, &str)> = kept
        .iter()
        .filter_map(|(client, kind, said)| match said {
            LineContent::Kept(text) if kind != "asked" => {
                Some((client.as_str(), kind.as_str(), text.as_str()))
            }
            _ => None,
        })
        .collect();
    let of = |client| {
        [(client, "judged", "{}"), (client, "judged", mail), (client, "reply-withheld", "It is hunter2.")]
    };
    assert_eq!(shown, [of("agent"), of("other")].concat());
    for client in ["agent", "other"] {
        let asked = kept.iter().find(|(whose, kind, _)| whose == client && kind == "asked").unwrap();
        let LineContent::Kept(question) = &asked.2 else { panic!("{asked:?}") };
        let question: Value = serde_json::from_str(question).unwrap();
        assert_eq!(question["arguments"].to_string(), mail);
        assert_eq!(question["reasons"], json!(["mails are confirmed"]));
    }
    for key in [KEY, OTHER_KEY, "key-of-the-upstream", "key-of-the-person-bob"] {
        assert_eq!(files_with(&home, key), Vec::<String>::new(), "{key}");
    }
    for word in ["plan", "hunter2", "Bob"] {
        assert!(!files_with(&home, word).contains(&"audit.jsonl".to_owned()), "{word}");
    }
    assert_eq!(files_with(&home, "plan"), ["audit.jsonl.content"]);

    // An admin deletes the content of one client while the gateway runs.
    let bob = PersonClient(&gateway, "bob");
    let forget = |whose: &Value, expected: &str| {
        let (status, body) = bob.post("/api/v1/audit/forget", whose);
        assert_eq!((status, body.as_str()), (200, expected), "{whose}");
    };
    forget(&json!({"client": "agent", "tenant": "other"}), r#"{"forgotten":0}"#);
    forget(&json!({"client": "agent", "conversation": "another"}), r#"{"forgotten":0}"#);
    forget(&json!({"client": "agent"}), r#"{"forgotten":4}"#);
    let whole = |kept, gone| ContentCounts { kept, missing: gone, forgotten: gone, stray: 0, sealed: 0 };
    assert_eq!(checked(&home).unwrap().contents, Some(whole(4, 4)));
    let left = said(&home);
    let is_right = |(client, _, said): &(String, String, LineContent)| {
        (client == "agent") == (*said == LineContent::Gone)
    };
    assert!(left.iter().all(is_right), "{left:?}");
    // New content is still stored.
    work(&gateway, KEY);
    assert_eq!(checked(&home).unwrap().contents, Some(whole(8, 4)));
    forget(&json!({"tenant": "acme"}), r#"{"forgotten":4}"#);
    forget(&json!({"client": "other"}), r#"{"forgotten":4}"#);
    gateway.stop();
    assert_eq!(checked(&home).unwrap().contents, Some(whole(0, 12)));
    for word in ["plan", "hunter2"] {
        assert_eq!(files_with(&home, word), Vec::<String>::new(), "{word}");
    }
    let deleted = records(&home).iter().filter(|record| record.text("who") == Some("bob")).count();
    assert_eq!(deleted, 5);
}

#[test]
fn content_that_somebody_changed_is_found() {
    let upstream = UpstreamDouble::new(talkative);
    let home = home(&upstream, KEPT);
    let gateway = home.start();
    work(&gateway, KEY);
    gateway.stop();
    assert!(checked(&home).is_ok());
    let contents = home.folder().join("audit.jsonl.content");
    let text = fs::read_to_string(&contents).unwrap();
    let check = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(&contents, text.replacen(from, to, 1)).unwrap();
        let problem = checked(&home).unwrap_err().to_string();
        assert!(
            problem.ends_with(
                "the content does not match the digest in its record: the content was changed; restore the file of \
                 contents from a copy"
            ),
            "{problem}"
        );
    };
    check("plan", "plot");
    check("hunter2", "hunter3");
    check("\"client\":\"agent\"", "\"client\":\"other\"");
    check("\"tenant\":\"acme\"", "\"tenant\":null");
}

/// With a key of the database, contents are encrypted. They are deleted like others, and read with the keys; a key is
/// replaced as that of the database is.
#[test]
fn contents_are_encrypted_with_the_keys_of_the_database() {
    let upstream = UpstreamDouble::new(talkative);
    let mut home = home(&upstream, KEPT);
    // Some contents were written before there was a key.
    let gateway = home.start();
    work(&gateway, KEY);
    gateway.stop();
    home.edit("[store]\n", "[store]\nencryption-key-from = \"STORE_KEY\"\n");
    home.save();
    let gateway = home.start();
    work(&gateway, OTHER_KEY);
    gateway.stop();
    let stored = || fs::read_to_string(home.folder().join("audit.jsonl.content")).unwrap();
    let counted = |text: &str| (text.matches("hunter2").count(), text.matches("\"sealed\":\"fg1:").count());
    assert_eq!(counted(&stored()), (1, 4), "{}", stored());
    let counts = |kept, sealed| ContentCounts { kept, sealed, ..ContentCounts::default() };
    assert_eq!(checked(&home).unwrap().contents, Some(counts(4, 4)));
    let keys = home.read().store.encryption.audit_content_cipher().unwrap();
    let all_said = || {
        let text = stored();
        let mut reader = ContentReader::with_cipher(text.as_bytes(), Some(&*keys)).unwrap();
        let found =
            records(&home).iter().map(|record| reader.content_of(record).unwrap()).collect::<Vec<_>>();
        found.into_iter().filter(|said| *said == LineContent::Kept("It is hunter2.".to_owned())).count()
    };
    assert_eq!(all_said(), 2);
    // What was there before is encrypted as well.
    assert_eq!(encrypt_audit_contents(&home.read()).unwrap(), Some(8));
    assert_eq!(counted(&stored()), (0, 8));
    assert_eq!(all_said(), 2);
    let gateway = home.start();
    let locked = encrypt_audit_contents(&home.read()).unwrap_err().to_string();
    assert!(locked.contains("another process has opened this log"), "{locked}");
    let bob = PersonClient(&gateway, "bob");
    let (status, body) = bob.post("/api/v1/audit/forget", &json!({"client": "agent"}));
    assert_eq!((status, body.as_str()), (200, r#"{"forgotten":4}"#));
    gateway.stop();
    assert_eq!((counted(&stored()), all_said()), ((0, 4), 1));
}

#[test]
fn content_is_deleted_when_it_is_too_old() {
    let upstream = UpstreamDouble::new(talkative);
    let home = home(&upstream, KEPT);
    home.start().stop();
    let file = |name: &str| home.folder().join(name);
    let key = AuditKey::load_or_create(&file("audit.key")).unwrap();
    let options = AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() };
    let log = AuditLog::open(&file("audit.jsonl"), key, options, Timestamp(1)).unwrap();
    let days = |days: u64| Timestamp(Timestamp::now().0 - days * 24 * 60 * 60 * 1000);
    for (age, text) in [(31, "long ago"), (29, "lately")] {
        let [conversation, client, tenant] = ["c1", "agent", "acme"].map(str::to_owned);
        let event = AuditEvent::ReplyWithheld { conversation, client, tenant, reasons: Vec::new() };
        log.append_with(days(age), &event, text).unwrap();
    }
    log.close(days(29)).unwrap();
    let gateway = home.start();
    until(|| files_with(&home, "long ago").is_empty());
    gateway.stop();
    assert_eq!(files_with(&home, "long ago"), Vec::<String>::new());
    assert_eq!(files_with(&home, "lately"), ["audit.jsonl.content"]);
    let expected = ContentCounts { kept: 1, missing: 1, forgotten: 1, stray: 0, sealed: 0 };
    assert_eq!(checked(&home).unwrap().contents, Some(expected));
}

/// An unreadable entry could be an expired one: the failure is reported, and nothing is deleted.
#[test]
fn a_failed_deletion_of_content_is_reported() {
    let upstream = UpstreamDouble::new(talkative);
    let home = home(&upstream, KEPT);
    home.start().stop();
    fs::write(home.folder().join("audit.jsonl.content"), "what\n").unwrap();
    let (gateway, mut lines) = home.start_with_log();
    let line = lines.next("failure");
    let told = line["message"].as_str().unwrap();
    assert!(told.starts_with("expired content of the audit log could not be deleted: "), "{told}");
    assert!(
        told.ends_with(
            "line 1 of the file of contents is not a valid entry, since it was changed, or another program wrote it: remove the line, and try again"
        ),
        "{told}"
    );
    gateway.stop();
    assert_eq!(files_with(&home, "what\n"), ["audit.jsonl.content"]);
}

#[test]
fn only_permitted_people_can_delete_content() {
    let upstream = UpstreamDouble::new(talkative);
    let check = |audit: &str, who: &'static str, whose: Value, expected: (u16, &str)| {
        let gateway = home(&upstream, audit).start();
        let (status, body) = PersonClient(&gateway, who).post("/api/v1/audit/forget", &whose);
        assert_eq!(status, expected.0, "{body}");
        assert!(body.contains(expected.1), "{body}");
    };
    check(KEPT, "vic", json!({"client": "agent"}), (403, "this request needs the role admin"));
    check(KEPT, "amy", json!({"client": "agent"}), (403, "set `tenant` to one of them"));
    check(KEPT, "amy", json!({"client": "agent", "tenant": "other"}), (403, "set `tenant` to one of them"));
    check(KEPT, "amy", json!({"client": "agent", "tenant": "acme"}), (200, r#"{"forgotten":0}"#));
    check(KEPT, "nobody", json!({"client": "agent"}), (401, "valid key of a person"));
    check(KEPT, "bob", json!({}), (400, "with one of them or more"));
    check(KEPT, "bob", json!({"clients": "agent"}), (400, "unknown field `clients`"));
    check("", "bob", json!({"client": "agent"}), (404, "this gateway keeps no audit log"));
}

#[test]
fn no_content_is_stored_without_the_setting() {
    let upstream = UpstreamDouble::new(talkative);
    let home = home(&upstream, "[audit]\nfile = \"audit.jsonl\"\n");
    let gateway = home.start();
    work(&gateway, KEY);
    gateway.stop();
    assert!(!home.folder().join("audit.jsonl.content").exists());
    assert!(records(&home).iter().all(|record| !record.object.contains_key("content")));
}
