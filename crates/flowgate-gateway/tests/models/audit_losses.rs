//! Tests of losses of an audit log or of its database: detection at start, verification, and acceptance by an operator.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use flowgate_audit::{
    AuditLoss, LineHash, LogExpectations, LogHead, LogSummary, VerifiedRecords, VerifyError, verify,
};
use flowgate_gateway::chat::recheck::{LoggedVerdicts, RecheckReport, read_database_snapshot, recheck};
use flowgate_gateway::recorder::accept_loss;

use crate::FORMS;
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, config};
use crate::gullible;
use crate::upstream::UpstreamDouble;

const AUDIT: &str = "[audit]\nfile = \"audit.jsonl\"\n";

/// Returns a home whose gateway has stopped and whose log contains eight conversations.
fn home(upstream: &UpstreamDouble, audit: &str) -> GatewayHome {
    let home = GatewayHome::new(
        &(config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
            + audit),
        POLICY,
    );
    work(&home, 8);
    home
}

fn work(home: &GatewayHome, conversations: usize) {
    let gateway = home.start();
    for number in 0..conversations {
        let key = if number % 2 == 0 { KEY } else { OTHER_KEY };
        TestAgent::new(&gateway, FORMS[number % 3].0, false, key).says("Mail the page to Bob.");
    }
    gateway.stop();
}

fn log(home: &GatewayHome) -> PathBuf {
    home.folder().join("audit.jsonl")
}

fn lines(home: &GatewayHome) -> Vec<String> {
    fs::read_to_string(log(home)).unwrap().lines().map(str::to_owned).collect()
}

fn write(home: &GatewayHome, lines: &[String]) {
    fs::write(log(home), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// Verifies the log against its database.
fn verified(home: &GatewayHome) -> Result<LogSummary, VerifyError> {
    let known = read_database_snapshot(&home.read()).unwrap();
    let expected = LogExpectations { anchors: &known.anchors.logs, ..LogExpectations::default() };
    verify(&mut BufReader::new(File::open(log(home)).unwrap()), &expected, None)
}

fn rechecked(home: &GatewayHome) -> RecheckReport {
    let known = read_database_snapshot(&home.read()).unwrap();
    let mut logged = LoggedVerdicts::default();
    logged.begin(LineHash::of_line(lines(home)[0].as_bytes()));
    for record in VerifiedRecords::new(BufReader::new(File::open(log(home)).unwrap()), None) {
        logged.add(&record.unwrap());
    }
    recheck(home.read(), known, logged).unwrap()
}

fn refused(home: &GatewayHome) -> String {
    let before = fs::read_to_string(log(home)).unwrap_or_default();
    let error = home.try_start().err().unwrap_or_default();
    assert_eq!(fs::read_to_string(log(home)).unwrap_or_default(), before, "a refused start writes nothing");
    error
}

/// A log that was truncated, emptied, forged or removed keeps the gateway from starting and does not verify until an
/// operator accepts the loss, which is recorded. A log that is complete or ahead of its database is continued.
#[test]
fn a_log_behind_its_database_is_refused() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, AUDIT);
    let whole = lines(&home);
    let summary = verified(&home).unwrap();
    assert_eq!(summary.anchor.unwrap().head, summary.end, "the database knows the log to its end");
    assert_eq!(rechecked(&home), RecheckReport { same: 16, ..RecheckReport::default() });

    let forged = {
        // A line that a forger without the key appends after the first head.
        let line = whole[4].replace("\"verdict\":\"permit\"", "\"verdict\":\"deny\"");
        let previous = LineHash::of_line(whole[1].as_bytes()).to_string();
        let (_, rest) = line.split_once(",\"time\"").unwrap();
        let (head, tail) = rest.split_once("\"previous\":\"").unwrap();
        format!("{{\"seq\":2,\"time\"{head}\"previous\":\"{previous}{}", tail.get(64..).unwrap())
    };
    let cut = |count: usize| whole[..count].to_vec();
    let behind = "the log is behind its database";
    let all = whole.len();
    for (name, text, expected, at) in [
        ("two lines", cut(2), behind, 2),
        ("without its last lines", cut(all - 3), behind, all - 3),
        ("without its last line", cut(all - 1), behind, all - 1),
        ("with a forged line", [cut(2), vec![forged]].concat(), behind, 3),
    ] {
        write(&home, &text);
        let problem = verified(&home).unwrap_err();
        assert!(problem.to_string().contains("it was truncated"), "{name}: {problem}");
        assert_eq!(problem.line, u64::try_from(at).unwrap(), "{name}");
        let error = refused(&home);
        assert!(error.contains(expected) && error.contains("flowgate audit accept-loss"), "{name}: {error}");
    }
    // The verdicts that the database records are missing as well.
    write(&home, &cut(2));
    let missing = rechecked(&home);
    assert_eq!((missing.same, missing.differ.len()), (0, 8), "{missing:?}");
    assert!(missing.differ[0].to_string().contains("`permit` for a call of read"), "{missing:?}");
    // The log is emptied, and then removed.
    write(&home, &[]);
    assert!(refused(&home).contains("there is no log here"), "{}", refused(&home));
    fs::remove_file(log(&home)).unwrap();
    assert!(home.try_start().err().unwrap().contains("the log that the database has recorded up to line"));

    // The complete log is continued, and so is a log that is ahead of its database.
    write(&home, &whole);
    work(&home, 1);
    assert_eq!(rechecked(&home).differ, []);

    // After the loss was accepted, the log is continued and contains a record of the loss.
    let before = verified(&home).unwrap().end;
    write(&home, &cut(2));
    let loss = accept_loss(home.read(), "who has the key").unwrap().unwrap();
    assert!(matches!(loss, AuditLoss::Behind { anchor, lines: 2 } if anchor.head == before), "{loss:?}");
    let said = lines(&home).into_iter().find(|line| line.contains("loss-accepted")).unwrap();
    let LogHead { seq, hash } = before;
    let fields = format!("\"line\":{},\"hash\":\"{hash}\",\"lines\":2}}", seq + 1);
    assert!(said.contains("\"what\":\"log behind its database\"") && said.ends_with(&fields), "{said}");
    assert_eq!(accept_loss(home.read(), "who has the key").unwrap(), None);
    work(&home, 2);
    verified(&home).unwrap();
    assert_eq!(rechecked(&home), RecheckReport { same: 4, ..RecheckReport::default() });
}

/// The database records the decisions and freezes of people before any turn follows.
#[test]
fn a_decision_cannot_be_cut_off() {
    use crate::approvals::PersonClient;
    let upstream = UpstreamDouble::new(gullible);
    let audit = format!("[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n{AUDIT}");
    let home = home(&upstream, &audit);
    let gateway = home.start();
    let freeze = serde_json::json!({"kind": "client", "what": "agent", "frozen": true});
    assert_eq!(PersonClient(&gateway, "bob").post("/api/v1/freezes", &freeze).0, 200);
    let text = lines(&home);
    let known = read_database_snapshot(&home.read()).unwrap();
    let last = text.iter().position(|line| line.contains("kill-switch")).unwrap();
    assert!(known.anchors.logs[0].head.seq >= u64::try_from(last).unwrap(), "{known:?}");
    gateway.stop();
    write(&home, &text[..last]);
    assert!(refused(&home).contains("the log is behind its database"));
}

/// Moves a database with the files next to it, and replaces the target.
fn moved(from: &Path, to: &Path) {
    for end in ["", "-wal", "-shm"] {
        let name = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        let _ = fs::remove_file(name(to));
        let _ = fs::rename(name(from), name(to));
    }
}

/// A deleted database is detected by the log and by the lock file next to it.
#[test]
fn a_database_that_was_deleted_is_noticed() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, AUDIT);
    let Some(file) = home.file() else { return };
    let aside = home.folder().join("aside.db");
    moved(&file, &aside);
    let marker = file.with_added_extension("lock");
    let error = refused(&home);
    assert!(error.contains("the database is missing") && error.contains("remove"), "{error}");
    assert!(!file.exists(), "none is made");
    // Without the lock file, the log detects the loss.
    fs::remove_file(&marker).unwrap();
    let error = refused(&home);
    assert!(error.contains("the database has no record of this log"), "{error}");
    moved(&file, &home.folder().join("gone.db"));
    // The original database is accepted.
    moved(&aside, &file);
    work(&home, 1);
    // After the loss was accepted, an empty database is accepted, and the log records that.
    moved(&file, &home.folder().join("gone.db"));
    fs::remove_file(&marker).unwrap();
    let loss = accept_loss(home.read(), "who has the key").unwrap();
    assert!(matches!(loss, Some(AuditLoss::Database { .. })), "{loss:?}");
    assert!(lines(&home).iter().any(|line| line.contains("\"what\":\"database missing\"")));
    work(&home, 1);
    // A different database is detected as well.
    fs::remove_file(&marker).unwrap();
    let other = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    work(&other, 1);
    if let Some(other) = other.file() {
        home.start().stop();
        moved(&file, &aside);
        moved(&other, &file);
        assert!(refused(&home).contains("this is not the database that"), "{}", refused(&home));
        moved(&aside, &file);
        home.start().stop();
    }
}

/// A log that was enabled later lacks the earlier turns, which is no objection; missing later turns are.
#[test]
fn a_log_that_was_begun_later_is_whole() {
    let upstream = UpstreamDouble::new(gullible);
    let mut home = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    home.edit("[store]\n", &format!("{AUDIT}[store]\n"));
    home.edit(AUDIT, "");
    work(&home, 2);
    home.edit("[store]\n", &format!("{AUDIT}[store]\n"));
    work(&home, 2);
    verified(&home).unwrap();
    assert_eq!(rechecked(&home), RecheckReport { same: 4, ..RecheckReport::default() });
    let whole = lines(&home);
    let until = whole.iter().position(|line| line.contains("judged")).unwrap();
    write(&home, &whole[..until]);
    assert_eq!(rechecked(&home).differ.len(), 2);
}

/// Only their owner can read the files of a store.
#[test]
#[cfg(unix)]
fn files_of_a_store_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, AUDIT);
    let Some(file) = home.file() else { return };
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail the page to Bob.");
    for end in ["db", "db-wal", "db-shm", "db.lock"] {
        let path = file.with_extension(end);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    gateway.stop();
    for (mode, is_told) in [(0o600, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let (gateway, lines) = home.start_with_log();
        gateway.stop();
        let told = lines.rest();
        assert_eq!(told.contains("chmod 600") && told.contains("flowgate.db"), is_told, "{mode:o}: {told}");
    }
}
