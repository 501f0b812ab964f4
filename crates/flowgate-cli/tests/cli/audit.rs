//! Tests of `flowgate audit`: verification, listing, and deletion of content.

use std::path::{Path, PathBuf};

use crate::{check, file, flowgate, name, text};

/// Creates a log with a refused call and its content; returns the paths of the log and of the key.
pub(crate) fn audit_log(folder: &str) -> (PathBuf, PathBuf) {
    use flowgate_audit::{
        AuditEvent, AuditKey, AuditLog, AuditOptions, ContentRetention, ContentSelector, FreezeSwitch,
        Timestamp,
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (path, key) = (folder.join("audit.jsonl"), folder.join("audit.key"));
    let options = AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() };
    let log = AuditLog::open(&path, AuditKey::load_or_create(&key).unwrap(), options, Timestamp(0)).unwrap();
    for (conversation, said) in [("c1", "a secret"), ("c2\u{9b}31m", "another")] {
        let reasons = vec!["no secrets".to_owned()];
        let (conversation, client, tenant) = (conversation.to_owned(), "agent".to_owned(), "acme".to_owned());
        let event = AuditEvent::ReplyWithheld { conversation, client, tenant, reasons };
        log.append_with(Timestamp(1000), &event, said).unwrap();
    }
    let whose = ContentSelector { conversation: Some("c1".to_owned()), ..ContentSelector::default() };
    log.forget(Timestamp(2000), &whose, "ann").unwrap();
    let stop = AuditEvent::KillSwitch {
        what: "everything".to_owned(),
        who: "ann".to_owned(),
        state: FreezeSwitch::Set,
    };
    log.append(Timestamp(3000), &stop).unwrap();
    log.close(Timestamp(4000)).unwrap();
    (path, folder.join("audit.key.pub"))
}

#[test]
fn a_changed_audit_log_is_found() {
    let (log, key) = audit_log("audit-verify");
    let (path, key) = (name(&log), name(&key));
    let whole = "audit.jsonl is whole: 8 lines since 1970-01-01T00:00:00.000Z, opened 1 time\n";
    check(&["audit", "verify", path], 0, whole);
    check(
        &["audit", "verify", path],
        0,
        "note: the key was read from the log itself, which does not prove who wrote it; give the key that you know",
    );
    check(&["audit", "verify", path, "--key", key], 0, "  content   1 kept, 1 forgotten\n");
    let digits = std::fs::read_to_string(key).unwrap();
    check(&["audit", "verify", path, "--key", digits.trim()], 0, &format!("  key       {digits}"));
    let printed = text(&flowgate(&["audit", "verify", path]));
    let head = printed.split_once("  head      ").unwrap().1.get(..64).unwrap();
    check(&["audit", "verify", path, "--head", head], 0, "(line 8)\n  unsigned  0 lines\n");

    let lines = std::fs::read_to_string(&log).unwrap();
    let cut =
        file("audit-cut.jsonl", (lines.lines().take(6).collect::<Vec<_>>().join("\n") + "\n").as_bytes());
    check(&["audit", "verify", name(&cut)], 0, "is whole: 6 lines");
    let missing = format!("line 6: the log ends here without the line {head}: it was truncated");
    check(&["audit", "verify", name(&cut), "--head", head], 1, &missing);
    let open = lines.lines().take(7).collect::<Vec<_>>().join("\n") + "\n";
    let open = file("audit-open.jsonl", open.as_bytes());
    check(
        &["audit", "verify", name(&open)],
        0,
        "audit-open.jsonl is whole up to its last head: 6 lines since",
    );
    check(&["audit", "verify", name(&open)], 0, "  unsigned  1 line after it, not verified\n");
    check(&["audit", "verify", name(&open), "--signed"], 1, "✗ ");
    check(&["audit", "verify", path, "--signed"], 0, whole);
    let at = |line: &str| format!("{head}:{line}");
    check(&["audit", "verify", path, "--head", &at("8")], 0, whole);
    check(&["audit", "verify", path, "--head", &at("7")], 1, "the log ends here without the line");
    check(&["audit", "verify", name(&cut), "--head", &at("8")], 1, &missing);
    check(
        &["audit", "verify", path, "--head", &at("0")],
        2,
        "expected the number of a line after the colon, from 1; write HASH:LINE",
    );
    check(&["audit", "verify", path, name(&open)], 0, "audit-open.jsonl is whole up to its last head");
    check(&["audit", "verify", name(&open)], 0, "note: lines after the last head are unsigned");
    let changed =
        file("audit-changed.jsonl", lines.replace("\"ann\",\"state\"", "\"bob\",\"state\"").as_bytes());
    check(
        &["audit", "verify", name(&changed)],
        1,
        "audit-changed.jsonl: line 8: the line does not contain the hash",
    );
    let other = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    check(&["audit", "verify", path, "--key", other], 1, "line 1: the log was created with another key");
    let contents = log.with_file_name("audit.jsonl.content");
    let kept = std::fs::read_to_string(&contents).unwrap();
    std::fs::write(&contents, kept.replace("another", "altered")).unwrap();
    check(
        &["audit", "verify", path],
        1,
        "line 4: the content does not match the digest in its record: the content was changed",
    );
    check(
        &["audit", "show", path, "--content"],
        1,
        "line 4: the content does not match the digest in its record",
    );
    std::fs::remove_file(&contents).unwrap();
    let missing = "0 kept, 1 forgotten, 1 missing without a record of their deletion\n";
    check(&["audit", "verify", path], 0, missing);

    check(&["audit", "verify", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["audit", "verify", path, "--key", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["audit", "verify", path, "--key", path], 2, "is not a public key; give 64 hexadecimal digits");
    check(&["audit", "verify", path, "--head", "5f2c"], 2, "expected the hash of a line: 64 hexadecimal");
    check(&["audit", "verify", "--help"], 0, "A log that was cut off directly after a head is consistent.");
}

/// Verification against a witness: a truncated log, a forged line, a log unknown to the witness, and another log with
/// the same key.
#[test]
fn a_log_is_held_against_its_witness() {
    use flowgate_audit::{AuditEvent, AuditKey, AuditLog, AuditOptions, FreezeSwitch, Timestamp};
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-witness");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let told = |log: &str, key: &str, time: u64| {
        let key = AuditKey::load_or_create(&folder.join(key)).unwrap();
        let log = AuditLog::open(&folder.join(log), key, AuditOptions::default(), Timestamp(time)).unwrap();
        let stop = AuditEvent::KillSwitch {
            what: log.id().to_string(),
            who: "ann".to_owned(),
            state: FreezeSwitch::Set,
        };
        log.append(Timestamp(1000), &stop).unwrap();
        log.witness_line(Timestamp(2000), None).unwrap().1
    };
    let first = told("a.jsonl", "a.key", 0);
    let short = std::fs::read_to_string(folder.join("a.jsonl")).unwrap();
    let second = told("a.jsonl", "a.key", 1);
    let foreign = told("b.jsonl", "b.key", 2);
    let sibling = told("c.jsonl", "a.key", 3);
    let (a, cut, c) = (folder.join("a.jsonl"), folder.join("cut.jsonl"), folder.join("c.jsonl"));
    std::fs::write(&cut, short).unwrap();
    let witness = |lines: &[&str]| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let path = folder.join(format!("heads-{}.jsonl", lines.len()));
        std::fs::write(&path, text).unwrap();
        path
    };
    let verify = |logs: &[&Path], lines: &[&str], code: i32, said: &str| {
        let witness = witness(lines);
        let logs = logs.iter().map(|log| name(log));
        let arguments: Vec<&str> =
            ["audit", "verify", "--witness", name(&witness)].into_iter().chain(logs).collect();
        check(&arguments, code, said);
    };
    verify(&[&a], &[&first, &foreign, &second], 0, "  witness   knows 2 of its heads, the last of line 8 (");
    // The truncated log is valid by itself.
    check(&["audit", "verify", name(&cut)], 0, "cut.jsonl is whole: 4 lines");
    let unseen = "cut.jsonl: line 4: the log ends here, but the witness has received its line 8: it was truncated, or restored to an earlier state";
    verify(&[&cut], &[&first, &second], 1, unseen);
    verify(&[&cut], &[&first], 0, "knows 1 of its heads");
    verify(&[&a], &[&foreign], 1, "the witness has no head of this log");
    let forged = second.replace("\"lines\":8", "\"lines\":9");
    verify(
        &[&a],
        &[&first, &forged],
        1,
        "heads-2.jsonl: line 2: the signature of the line does not match the key",
    );
    verify(
        &[&a],
        &[&second, "hello"],
        1,
        "heads-2.jsonl: line 2: the line is not one that a gateway sent to the witness",
    );
    verify(&[&a], &[&second, first.get(..60).unwrap()], 0, "note: a line of the witness is incomplete");
    verify(&[&a], &[&second, &sibling], 1, "the witness has received another log with the same key");
    verify(&[&a, &c], &[&second, &sibling], 0, "c.jsonl is whole");
    check(
        &["audit", "verify", name(&a), "--witness", "no-such-file"],
        2,
        "no-such-file: there is no such file",
    );
    check(&["audit", "verify", "--help"], 0, "--witness <FILE>");
}

/// A log that is unknown to its database keeps the gateway from starting and does not verify until an operator accepts
/// the loss.
#[test]
fn a_loss_is_accepted() {
    let (log, key) = audit_log("audit-loss");
    let folder = log.parent().unwrap();
    std::fs::write(folder.join("policy.flow"), "raise \"no\" if:\n    (call: ToolCall) is tool:rm\n")
        .unwrap();
    std::fs::write(folder.join("client.key"), "the-key-of-the-client").unwrap();
    let text = |audit: &str| {
        format!(
            "[upstreams.one]\nurl = \"http://127.0.0.1:9/v1\"\n[clients.agent]\nkey-file = \"client.key\"\nupstream = \"one\"\n\
             policy = \"policy.flow\"\n{audit}"
        )
    };
    let (config, without) = (folder.join("gateway.toml"), folder.join("without.toml"));
    std::fs::write(&config, text("[audit]\nfile = \"audit.jsonl\"\n")).unwrap();
    std::fs::write(&without, text("")).unwrap();
    let (path, key, config) = (name(&log), name(&key), name(&config));
    let verify = ["audit", "verify", path, "--key", key, "--config", config];
    check(&verify, 2, "the database schema is outdated");
    check(
        &["serve", "--listen", "127.0.0.1:0", "--config", config],
        2,
        "the database has no record of this log of 8 lines",
    );
    check(
        &["serve", "--listen", "127.0.0.1:0", "--config", config],
        2,
        "flowgate audit accept-loss --config FILE",
    );
    check(&verify, 0, "note: the database has no record of an audit log yet");
    check(
        &["audit", "accept-loss", "--config", config],
        0,
        "now records it (database missing), and the gateway can start again\n  found     8 lines\n",
    );
    check(&["audit", "accept-loss", "--config", config], 0, "has all lines that the database has recorded");
    check(&["audit", "show", path], 0, "loss-accepted");
    check(&verify, 0, "  database  knows it up to line ");
    let lines = std::fs::read_to_string(&log).unwrap();
    let count = lines.lines().count();
    std::fs::write(&log, lines.lines().take(8).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    check(
        &verify,
        1,
        &format!(
            "line 8: the log ends here, but the database has recorded its line {count}: it was truncated"
        ),
    );
    check(
        &["audit", "accept-loss", "--config", config],
        0,
        "now records it (log behind its database), and the gateway can start again\n",
    );
    // The log is replaced by another one.
    std::fs::rename(&log, folder.join("aside.jsonl")).unwrap();
    check(
        &["audit", "accept-loss", "--config", config],
        0,
        "now records it (log missing), and the gateway can start again\n",
    );
    let aside = folder.join("aside.jsonl");
    check(
        &["audit", "verify", name(&aside), "--config", config],
        1,
        "the database has no record of this log",
    );
    check(
        &["audit", "verify", name(&aside), "--config", config],
        1,
        "the database has recorded another log, up to line ",
    );
    check(
        &["audit", "accept-loss", "--config", name(&without)],
        2,
        "the configuration has no section [audit], so this gateway writes no audit log; name the configuration of another gateway",
    );
    check(&["audit", "accept-loss", "--help"], 0, "Look for a copy first");
}

#[test]
fn an_audit_log_is_listed() {
    let (log, _) = audit_log("audit-show");
    let path = name(&log);
    let listed = text(&flowgate(&["audit", "show", path]));
    let kinds: Vec<&str> = listed.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(kinds, ["kind", "opened", "reply-withheld", "reply-withheld", "forgotten", "kill-switch"]);
    check(&["audit", "show", path], 0, "1970-01-01T00:00:01.000Z  reply-withheld        c2\\u{9b}31m");
    check(&["audit", "show", path, "--json"], 0, "\"conversation\":\"c2\\u009b31m\"");
    let json = ["audit", "show", path, "--conversation", "c1", "--json"];
    assert_eq!(text(&flowgate(&json)).lines().count(), 2);
    let lines = std::fs::read_to_string(&log).unwrap();
    let swapped = lines.replace("\"seq\":3", "\"seq\":4");
    let swapped = file("audit-swapped.jsonl", swapped.as_bytes());
    check(&["audit", "show", name(&swapped)], 1, "error: ");
    check(&["audit", "show", name(&swapped)], 1, "line 4: `seq` is 4 instead of 3");
    check(&["audit", "show", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["audit", "show", "--help"], 0, "--json | jq 'select(.verdict == \"deny\")'");
}

#[test]
fn content_is_shown_and_deleted() {
    let (log, _) = audit_log("audit-forget");
    let path = name(&log);
    let contents = log.with_file_name("audit.jsonl.content");
    let before = std::fs::read_to_string(&contents).unwrap();
    check(
        &["audit", "show", path, "--content"],
        0,
        "reply-withheld        c1                                                                   agent\n    (deleted)\n",
    );
    check(&["audit", "show", path, "--content"], 0, "agent\n    another\n");
    check(&["audit", "show", path, "--content", "--json"], 0, "\"said\":null}\n");
    check(&["audit", "show", path, "--content", "--json"], 0, "\"said\":\"another\"}\n");

    check(&["audit", "forget", path], 2, "required");
    check(
        &["audit", "forget", "no-such-file", "--client", "agent"],
        2,
        "no-such-file: there is no such file",
    );
    let no_key = ["audit", "forget", path, "--client", "agent", "--key-file", "no-such-file"];
    check(&no_key, 2, "no-such-file: there is no such file");
    check(&["audit", "forget", path, "--client", "agent", "--tenant", "other"], 0, "0 contents were deleted");
    let busy = std::fs::File::open(log.with_file_name("audit.jsonl.lock")).unwrap();
    busy.lock().unwrap();
    check(
        &["audit", "forget", path, "--client", "agent"],
        2,
        "another process has opened this log for writing: stop it",
    );
    drop(busy);
    check(
        &["audit", "forget", path, "--client", "agent"],
        0,
        "1 content was deleted; the log records the deletion",
    );
    check(&["audit", "verify", path], 0, "  content   0 kept, 2 forgotten\n");
    assert_eq!(std::fs::read_to_string(&contents).unwrap(), "");
    // The deleted content is restored from a copy.
    std::fs::write(&contents, before).unwrap();
    let again = "1 kept, 1 forgotten, 1 present although the log records their deletion\n";
    check(&["audit", "verify", path], 0, again);
}

/// Contents that are encrypted with the keys of the database are shown and checked with the configuration that names the
/// keys. Without it, or with another key, the command says what is missing.
#[test]
fn encrypted_content_is_shown_with_its_key() {
    let (log, _) = audit_log("audit-encrypted");
    let folder = log.parent().unwrap();
    let config = |file: &str, key: &str| {
        let text = format!(
            "[upstreams.one]\nurl = \"http://127.0.0.1:9/v1\"\n[clients.agent]\nkey-file = \"client.key\"\nupstream = \"one\"\n\
             policy = \"policy.flow\"\n[audit]\nfile = \"audit.jsonl\"\n[store]\nencryption-key-file = \"{key}\"\n"
        );
        std::fs::write(folder.join(file), text).unwrap();
        folder.join(file)
    };
    std::fs::write(folder.join("policy.flow"), "raise \"no\" if:\n    (call: ToolCall) is tool:rm\n")
        .unwrap();
    std::fs::write(folder.join("client.key"), "the-key-of-the-client").unwrap();
    for (file, digit) in [("store.key", "1"), ("other.key", "2")] {
        std::fs::write(folder.join(file), digit.repeat(64)).unwrap();
    }
    let (right, wrong) = (config("gateway.toml", "store.key"), config("wrong.toml", "other.key"));
    let (path, right, wrong) = (name(&log), name(&right), name(&wrong));
    check(&["audit", "show", path, "--content"], 0, "agent\n    another\n");
    check(
        &["database", "encrypt", "--config", right],
        0,
        "audit.jsonl.content: 1 content encrypted with the first key\n",
    );
    let contents = log.with_file_name("audit.jsonl.content");
    let stored = std::fs::read_to_string(&contents).unwrap();
    assert!(!stored.contains("another") && stored.contains("\"sealed\":\"fg1:"), "{stored}");
    let missing = "line 4: the content in line 1 of the file of contents is encrypted with the key ";
    check(&["audit", "show", path, "--content"], 1, missing);
    check(&["audit", "show", path, "--content"], 1, "with `--config`");
    check(
        &["audit", "show", path, "--content", "--config", wrong],
        1,
        "and the configuration has other keys (",
    );
    check(&["audit", "show", path, "--content", "--config", right], 0, "agent\n    another\n");
    check(&["audit", "show", path, "--config", right], 2, "--content");
    let counted =
        "  content   0 kept, 1 forgotten, 1 encrypted and not checked: give their keys with `--config`\n";
    check(&["audit", "verify", path], 0, counted);
    std::fs::write(&contents, stored.replacen("fg1:", "fg1:0", 1)).unwrap();
    check(&["audit", "show", path, "--content", "--config", right], 1, "is encrypted with the key 0");
    let (start, end) = stored.split_at(stored.len() - 20);
    let altered = format!("{start}{}", end.replacen(|c: char| c.is_alphanumeric(), "/", 1));
    std::fs::write(&contents, altered).unwrap();
    check(
        &["audit", "show", path, "--content", "--config", right],
        1,
        "line 4: the encrypted content in line 1 of the file of contents cannot be decrypted: it was altered, or moved",
    );
    check(&["audit", "forget", path, "--client", "agent"], 0, "1 content was deleted");
}
