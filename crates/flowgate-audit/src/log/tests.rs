//! Tests of the writer of audit logs: reopening, killed writers, full disks, and concurrent processes.

use std::fs;
use std::io::BufReader;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::log_files::append_extension;
use crate::*;

/// A temporary folder of one test, deleted on drop.
pub(crate) struct TestFolder(PathBuf);

impl TestFolder {
    /// Creates an empty folder, whose name begins with `flowgate-audit-` and `name`.
    pub(crate) fn new(name: &str) -> Self {
        // Tests run concurrently, so each has its own folder.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("flowgate-audit-{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.file("audit.jsonl")
    }

    pub(crate) fn open(&self, options: AuditOptions) -> Result<AuditLog, AuditError> {
        AuditLog::open(&self.log(), key(), options, Timestamp(1))
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn key() -> AuditKey {
    AuditKey::from_seed([7; 32])
}

/// An event of a conversation.
pub(crate) fn withheld(conversation: &str) -> AuditEvent {
    AuditEvent::ReplyWithheld {
        conversation: conversation.to_owned(),
        client: "agent".to_owned(),
        tenant: "acme".to_owned(),
        reasons: vec!["no secrets".to_owned()],
    }
}

pub(crate) fn of_lines(lines: &[u64]) -> ContentSelector {
    ContentSelector { lines: Some(lines.iter().copied().collect()), ..ContentSelector::default() }
}

pub(crate) fn of_conversation(name: &str) -> ContentSelector {
    ContentSelector { conversation: Some(name.to_owned()), ..ContentSelector::default() }
}

/// Verifies the log in the file `path`, with its contents and with the key of the tests.
pub(crate) fn checked(path: &Path) -> Result<LogSummary, VerifyError> {
    let expected = LogExpectations { key: Some(key().public_key()), ..LogExpectations::default() };
    let mut log = BufReader::new(File::open(path).unwrap());
    let contents = fs::read(content::content_path(path)).unwrap_or_default();
    verify(&mut log, &expected, Some(&mut contents.as_slice()))
}

/// The kinds of all lines, with the fields of openings.
fn kinds(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| AuditRecord::read(line.as_bytes()).unwrap());
    let shown = records.map(|record| match (record.kind.name(), record.text("torn")) {
        ("opened", torn) => format!("opened {} {}", record.object["unsigned"], torn.unwrap_or("-")),
        (kind, _) => kind.to_owned(),
    });
    shown.collect()
}

#[test]
fn heads_come_every_few_lines_and_at_the_end() {
    let folder = TestFolder::new("heads");
    let log = folder.open(AuditOptions { every: 2, ..AuditOptions::default() }).unwrap();
    let seqs: Vec<u64> = (2..5).map(|time| log.append(Timestamp(time), &withheld("c1")).unwrap()).collect();
    assert_eq!(seqs, [2, 3, 5]);
    let head = log.sign_head(Timestamp(9)).unwrap();
    assert_eq!(log.sign_head(Timestamp(10)).unwrap(), head);
    assert_eq!(log.close(Timestamp(11)).unwrap(), head);
    let [event, sealed] = ["reply-withheld", "head"];
    assert_eq!(kinds(&folder.log()), ["opened 0 -", sealed, event, event, sealed, event, sealed]);
    let summary = checked(&folder.log()).unwrap();
    assert_eq!((summary.head, summary.end, summary.unsigned), (Some(head), head, 0));
    // Dropped, not closed.
    folder.open(AuditOptions::default()).unwrap().append(Timestamp(12), &withheld("c2")).unwrap();
    assert_eq!(kinds(&folder.log())[7..], ["opened 0 -", sealed, event, sealed]);
    assert_eq!(checked(&folder.log()).unwrap().openings, 2);
}

#[test]
fn a_process_may_be_killed_at_any_byte() {
    let folder = TestFolder::new("killed");
    let log =
        folder.open(AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() }).unwrap();
    log.append_with(Timestamp(2), &withheld("c1"), "a secret").unwrap();
    log.append_with(Timestamp(3), &withheld("c1"), "another").unwrap();
    drop(log);
    let (whole, contents) = (fs::read(folder.log()).unwrap(), content::content_path(&folder.log()));
    let kept = fs::read(&contents).unwrap();
    // The ends of lines, and many offsets within them.
    let is_end = |at: usize| whole.get(at).is_none_or(|byte| *byte == b'\n');
    let places = (0..=whole.len()).filter(|at| at % 29 == 0 || is_end(*at) || (*at > 0 && is_end(at - 1)));
    for length in places {
        let folder = TestFolder::new("killed-at");
        fs::write(folder.log(), &whole[..length]).unwrap();
        fs::write(content::content_path(&folder.log()), &kept).unwrap();
        drop(folder.open(AuditOptions::default()).unwrap());
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        let torn = whole[..length].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let aside = fs::read(append_extension(&folder.log(), &format!("torn-{lines}"))).unwrap_or_default();
        assert_eq!(aside, torn, "{length}");
        let name = if torn.is_empty() { "-".to_owned() } else { format!("audit.jsonl.torn-{lines}") };
        let unsigned = [0, 1, 0, 1, 2, 0][lines];
        assert_eq!(kinds(&folder.log())[lines], format!("opened {unsigned} {name}"), "{length}");
        let summary = checked(&folder.log()).unwrap();
        let kept = u64::try_from([0, 0, 0, 1, 2, 2][lines]).unwrap();
        assert_eq!(summary.contents, Some(ContentCounts { kept, ..ContentCounts::default() }), "{length}");
        assert_eq!((summary.torn, summary.unsigned), (u64::from(!torn.is_empty()), 0));
    }
}

#[test]
fn a_set_aside_file_is_not_overwritten() {
    let folder = TestFolder::new("aside");
    for (torn, name) in [("{\"seq", "torn-0"), ("other", "torn-0.1")] {
        fs::write(folder.log(), torn).unwrap();
        drop(folder.open(AuditOptions::default()).unwrap());
        assert_eq!(fs::read_to_string(append_extension(&folder.log(), name)).unwrap(), torn);
    }
}

#[test]
fn a_log_with_an_inconsistent_end_is_refused() {
    let folder = TestFolder::new("refused");
    let log = folder.open(AuditOptions::default()).unwrap();
    for time in 2..5 {
        log.append(Timestamp(time), &withheld("c1")).unwrap();
    }
    log.state().unwrap().failed = Some(FailedOperation::Sync);
    drop(log);
    let text = fs::read_to_string(folder.log()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let check = |lines: &[&str], expected: &str| {
        let folder = TestFolder::new("refused-as");
        fs::write(folder.log(), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let error =
            folder.open(AuditOptions::default()).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
    };
    check(&lines, "");
    check(
        &[lines[0], lines[1], lines[2], lines[4]],
        "the log cannot continue from its end: the last line does not contain the hash of the previous line: \
        one of the two was changed, or lines were removed; check it with `flowgate audit verify`, keep it, \
        and begin another file",
    );
    check(
        &[lines[0], lines[1], lines[3], lines[4]],
        "line 2 from the end does not contain the hash of the previous line: one of the two was changed, or \
        lines were removed",
    );
    check(&[lines[0], lines[2]], "the last line does not contain the hash");
    check(&lines[1..], "the first line is not the record that opens a log");
    check(&["what"], "the first line is not the record that opens a log");
    check(&[lines[0], "what"], "the last line is not strict JSON");
    check(
        &[lines[0], &lines[1].replace("\"time\":1", "\"time\":2")],
        "the signature of the last line does not match the key",
    );
    let second = format!("the line that begins at byte {} is longer than 16384 bytes", lines[0].len() + 1);
    check(&[lines[0], &"x".repeat(20_000)], &second);
    let other =
        AuditLog::open(&folder.log(), AuditKey::from_seed([8; 32]), AuditOptions::default(), Timestamp(1));
    let error = other.unwrap_err().to_string();
    assert!(error.ends_with("created with another key: use that key, or begin another file"), "{error}");
}

#[test]
fn one_process_appends_at_a_time() {
    let folder = TestFolder::new("lock");
    let log = folder.open(AuditOptions::default()).unwrap();
    let error = folder.open(AuditOptions::default()).unwrap_err().to_string();
    assert!(
        error.ends_with("another process has opened this log for writing: stop it, or name another file"),
        "{error}"
    );
    drop(log);
    folder.open(AuditOptions::default()).unwrap();
}

/// On a full disk, records are rejected; afterwards they are accepted, and the file contains no remains of the failed
/// write.
#[test]
#[cfg(target_os = "linux")]
fn after_a_failed_write_nothing_is_recorded_until_there_is_room() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let check = |name: &str, fill: &dyn Fn(&mut AuditLogState), file: &str| {
        let folder = TestFolder::new(name);
        let options = AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() };
        let log = folder.open(options).unwrap();
        assert!(log.is_writable());
        fill(&mut log.state().unwrap());
        let error = log.append_with(Timestamp(2), &withheld("c1"), "a").unwrap_err();
        let expected = "cannot be written: No space left on device (os error 28); remove the cause, such as a full disk: until then, nothing";
        assert!(error.to_string().contains(&format!("{file}: {expected}")), "{error}");
        // Part of the line reached the file.
        let mut torn = OpenOptions::new().append(true).open(folder.log()).unwrap();
        torn.write_all(b"{\"seq\":2,\"ti").unwrap();
        if file == "audit.jsonl" {
            let errors = [
                log.append(Timestamp(3), &withheld("c1")).unwrap_err(),
                log.sign_head(Timestamp(3)).unwrap_err(),
                log.forget(Timestamp(3), &of_lines(&[2]), "ann").unwrap_err(),
            ];
            // `/dev/full` has no length, so it is taken for a log that another program has truncated.
            let expected = "restart the gateway; until then, nothing is recorded, and nothing runs that must be recorded";
            assert!(errors.iter().all(|error| error.to_string().contains(expected)), "{errors:?}");
            assert!(!log.is_writable());
        }
        log.state().unwrap().file = OpenOptions::new().append(true).open(folder.log()).unwrap();
        assert!(log.is_writable());
        log.append_with(Timestamp(4), &withheld("c1"), "b").unwrap();
        log.close(Timestamp(5)).unwrap();
        let summary = checked(&folder.log()).unwrap();
        assert_eq!((summary.lines, summary.torn, summary.unsigned), (4, 0, 0));
        assert_eq!(summary.contents, Some(ContentCounts { kept: 1, ..ContentCounts::default() }));
    };
    check("full", &|inner| inner.file = full(), "audit.jsonl");
    check("full-contents", &|inner| inner.contents = Some(full()), "audit.jsonl.content");
}

/// A log continues neither after a failed sync, which may have lost lines, nor after an external truncation.
#[test]
fn a_log_that_lost_something_takes_nothing_more() {
    let folder = TestFolder::new("unsynced");
    let log = folder.open(AuditOptions::default()).unwrap();
    log.state().unwrap().failed = Some(FailedOperation::Sync);
    let error = log.append(Timestamp(3), &withheld("c1")).unwrap_err().to_string();
    assert!(error.ends_with("until then, nothing is recorded"), "{error}");
    log.state().unwrap().failed = Some(FailedOperation::Write);
    fs::write(folder.log(), "").unwrap();
    assert!(!log.is_writable());
    let error = log.append(Timestamp(4), &withheld("c1")).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "audit.jsonl: the file is shorter than what the gateway wrote to it, so another program truncated it: stop that program, restore the file from a copy, and restart the gateway; until then, nothing is recorded, and nothing runs that must be recorded"
        ),
        "{error}"
    );
}

#[test]
fn several_threads_record() {
    let folder = TestFolder::new("threads");
    let options = AuditOptions { every: 5, sync: SyncPolicy::Heads, content: ContentRetention::Kept };
    let log = folder.open(options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..25 {
                    let event = withheld(&format!("c{thread}"));
                    log.append_with(Timestamp(number), &event, "said").unwrap();
                }
            });
        }
    });
    log.close(Timestamp(99)).unwrap();
    let summary = checked(&folder.log()).unwrap();
    assert_eq!((summary.lines, summary.unsigned), (122, 0));
    assert_eq!(summary.contents, Some(ContentCounts { kept: 100, ..ContentCounts::default() }));
}

#[test]
fn content_is_beside_the_log_and_can_be_deleted() {
    let folder = TestFolder::new("contents");
    let log =
        folder.open(AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() }).unwrap();
    for (conversation, content) in [("c1", "my password"), ("c2", "a poem"), ("c1", "my address")] {
        log.append_with(Timestamp(2), &withheld(conversation), content).unwrap();
    }
    assert_eq!(log.forget(Timestamp(3), &of_conversation("c1"), "ann").unwrap(), 2);
    assert_eq!(log.forget(Timestamp(3), &of_conversation("c1"), "ann").unwrap(), 0);
    log.append_with(Timestamp(4), &withheld("c1"), "again").unwrap();
    assert_eq!(log.forget(Timestamp(5), &of_lines(&[3, 77]), "ann").unwrap(), 1);
    log.close(Timestamp(6)).unwrap();
    let (text, contents) = (fs::read_to_string(folder.log()).unwrap(), content::content_path(&folder.log()));
    for said in ["password", "poem", "again"] {
        assert!(!text.contains(said), "{said}");
    }
    assert!(
        text.contains(r#""kind":"forgotten""#)
            && text.contains(r#""conversation":"c1","who":"ann","count":2,"lines":[2,4]}"#)
    );
    let kept = fs::read_to_string(&contents).unwrap();
    assert!(kept.contains("again") && !kept.contains("password") && !kept.contains("poem"), "{kept}");
    let expected = ContentCounts { kept: 1, missing: 3, forgotten: 3, stray: 0, sealed: 0 };
    assert_eq!(checked(&folder.log()).unwrap().contents, Some(expected));
}

#[test]
fn content_that_is_too_old_is_deleted() {
    let folder = TestFolder::new("expired");
    let log =
        folder.open(AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() }).unwrap();
    for (time, content) in [(10, "first"), (20, "second"), (30, "third")] {
        log.append_with(Timestamp(time), &withheld("c1"), content).unwrap();
    }
    let check = |before: u64, gone: u64, records: usize| {
        assert_eq!(log.expire(Timestamp(40), Timestamp(before)).unwrap(), gone, "{before}");
        let said = fs::read_to_string(folder.log()).unwrap();
        let said = said.lines().filter(|line| line.contains(r#""who":"retention""#));
        assert_eq!(said.count(), records, "{before}");
    };
    check(10, 0, 0);
    check(21, 2, 1);
    check(30, 0, 1);
    check(31, 1, 2);
    check(99, 0, 2);
    let expected = ContentCounts { kept: 0, missing: 3, forgotten: 3, stray: 0, sealed: 0 };
    assert_eq!(checked(&folder.log()).unwrap().contents, Some(expected));
}

#[test]
fn content_is_dropped_unless_it_is_asked_for() {
    let folder = TestFolder::new("dropped");
    let log = folder.open(AuditOptions::default()).unwrap();
    log.append_with(Timestamp(2), &withheld("c1"), "my password").unwrap();
    assert_eq!(log.forget(Timestamp(3), &of_conversation("c1"), "ann").unwrap(), 0);
    drop(log);
    assert!(!content::content_path(&folder.log()).exists());
    assert!(!fs::read_to_string(folder.log()).unwrap().contains("content"));
}
