//! Tests of the verification of logs that were tampered with.

use std::fs;

use proptest::prelude::*;

use super::super::chain;
use super::super::content;
use super::super::{AuditKey, AuditLog, AuditOptions, ContentRetention};
use super::*;
use crate::log::tests::{TestFolder, key, of_lines, withheld};

/// A log of two openings with content, of which one was deleted.
fn example() -> (String, String) {
    let folder = TestFolder::new("example");
    let options = AuditOptions { every: 2, content: ContentRetention::Kept, ..AuditOptions::default() };
    let log = folder.open(options).unwrap();
    for (conversation, said) in [("c1", "one"), ("c2", "two"), ("c1", "three")] {
        log.append_with(Timestamp(2), &withheld(conversation), said).unwrap();
    }
    log.forget(Timestamp(3), &of_lines(&[2]), "ann").unwrap();
    drop(log);
    let log = folder.open(options).unwrap();
    log.append(Timestamp(4), &withheld("c3")).unwrap();
    log.close(Timestamp(5)).unwrap();
    let contents = fs::read_to_string(content::content_path(&folder.log())).unwrap();
    (fs::read_to_string(folder.log()).unwrap(), contents)
}

/// Verifies the log with this text. `contents` is the text of its file of contents; `None` leaves the contents out.
fn outcome(
    log: &str,
    expected: &LogExpectations<'_>,
    contents: Option<&str>,
) -> Result<LogSummary, VerifyError> {
    let mut contents = contents.map(str::as_bytes);
    let contents = contents.as_mut().map(|contents| contents as &mut dyn BufRead);
    verify(&mut log.as_bytes(), expected, contents)
}

/// A log of these lines with a new chain, signed by a forger.
fn forged(lines: &[&str], key: &AuditKey) -> String {
    let (mut previous, mut text) = (LineHash::NONE, String::new());
    for (seq, line) in (0..).zip(lines) {
        let mut object = AuditRecord::read(line.as_bytes()).unwrap().object;
        object["seq"] = seq.into();
        object["previous"] = previous.to_string().into();
        let line = match object["kind"].as_str() {
            Some("head") => chain::head_line(seq, Timestamp(object["time"].as_u64().unwrap()), previous, key),
            _ => Value::Object(object).to_string(),
        };
        previous = LineHash::of_line(line.as_bytes());
        text += &line;
        text.push('\n');
    }
    text
}

#[test]
fn a_log_that_is_whole_is_summed_up() {
    let (log, contents) = example();
    let lines: Vec<&str> = log.lines().collect();
    let last = LogHead { seq: 11, hash: LineHash::of_line(lines[11].as_bytes()) };
    let kept = ContentCounts { kept: 2, missing: 1, forgotten: 1, stray: 0, sealed: 0 };
    let summary = || LogSummary {
        id: LineHash::of_line(lines[0].as_bytes()),
        anchor: None,
        witnessed: None,
        lines: 12,
        key: key().public_key(),
        begun: Timestamp(1),
        head: Some(last),
        end: last,
        unsigned: 0,
        openings: 2,
        torn: 0,
        contents: Some(kept),
    };
    let public = Some(key().public_key());
    let known = LogExpectations {
        key: public,
        hash: Some(LineHash::of_line(lines[4].as_bytes())),
        seq: Some(4),
        ..LogExpectations::default()
    };
    assert_eq!(outcome(&log, &known, Some(&contents)), Ok(summary()));
    assert_eq!(
        outcome(&log, &LogExpectations::default(), None),
        Ok(LogSummary { contents: None, ..summary() })
    );
    // The last line is unsigned, and the summary reports that.
    let head = Some(LogHead { seq: 9, hash: LineHash::of_line(lines[9].as_bytes()) });
    let end = LogHead { seq: 10, hash: LineHash::of_line(lines[10].as_bytes()) };
    let cut = format!("{}\n", lines[..11].join("\n"));
    let unsigned = LogSummary { lines: 11, head, end, unsigned: 1, ..summary() };
    assert_eq!(outcome(&cut, &LogExpectations::default(), Some(&contents)), Ok(unsigned));
}

#[test]
fn a_change_of_the_log_is_detected() {
    let (log, _) = example();
    let lines: Vec<&str> = log.lines().collect();
    let public = LogExpectations { key: Some(key().public_key()), ..LogExpectations::default() };
    let check = |log: &str, expected: &LogExpectations<'_>, message: &str| {
        let shown =
            outcome(log, expected, None).map_or_else(|problem| problem.to_string(), |_| "whole".to_owned());
        assert!(shown.starts_with(message), "{shown:?} should begin with {message:?}");
    };
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let without = |gone: usize| {
        let rest = lines.iter().enumerate().filter(|(at, _)| *at != gone);
        rest.map(|(_, line)| *line).collect::<Vec<_>>()
    };
    check(&log, &public, "whole");
    check("", &public, "line 1: the file is empty");

    let gone = "lines were removed, added or reordered";
    check(&text(&without(2)), &public, &format!("line 3: `seq` is 3 instead of 2: {gone}"));
    check(&text(&without(0)), &public, &format!("line 1: `seq` is 1 instead of 0: {gone}"));
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    check(&text(&swapped), &public, "line 3: `seq` is 3 instead of 2");
    let mut twice = lines.clone();
    twice.insert(3, lines[2]);
    check(&text(&twice), &public, "line 4: `seq` is 2 instead of 3");

    check(
        &log.replace("\"conversation\":\"c2\"", "\"conversation\":\"c1\""),
        &public,
        "line 5: the line does not contain the hash of the previous line: one of the two was changed, or \
        lines were removed",
    );
    check(&log.replace("{\"seq\":2,", "{\"seq\":2, "), &public, "line 4: the line does not contain the hash");
    check(
        &log.replace("{\"seq\":2,", "{\"seq\":2,\"seq\":2,"),
        &public,
        "line 3: not strict JSON: duplicate key",
    );
    check(
        &log.replace("{\"seq\":2,", "{"),
        &public,
        "line 3: not a record: the field `seq` is missing or malformed",
    );
    check(&log.replace('\n', "\r\n"), &public, "line 2: the line does not contain the hash");
    check(log.trim_end(), &public, "line 12: the line is incomplete");
    check(&format!("{log}{}\n", "x".repeat(20_000)), &public, "line 13: the line is longer than 16384 bytes");
    check(&format!("{log}\n"), &public, "line 13: not strict JSON: EOF");

    // Truncated after a head, a log is consistent; knowledge from elsewhere shows that it was longer.
    let cut = text(&lines[..5]);
    check(&cut, &public, "whole");
    let hash = LineHash::of_line(lines[11].as_bytes());
    let missing = format!("line 5: the log ends here without the line {hash}: it was truncated");
    check(&cut, &LogExpectations { hash: Some(hash), ..public }, &missing);
    check(
        &cut,
        &LogExpectations { seq: Some(11), ..public },
        "line 5: the log ends here, but should reach line 12: it was truncated",
    );

    // A forger who rewrites lines lacks the key.
    let other = AuditKey::from_seed([8; 32]);
    let signature = "line 2: the signature does not match the key: a line up to here was changed, or the signature is forged";
    check(&forged(&lines, &key()), &public, "whole");
    check(&forged(&lines, &other), &public, signature);
    check(&forged(&without(2), &other), &public, signature);
    let mut unsigned = forged(&lines[..2], &key());
    unsigned += &log.lines().skip(2).take(3).map(|line| format!("{line}\n")).collect::<String>();
    check(&unsigned, &public, "whole");
    let opened =
        |name: &AuditKey| lines[0].replace(&key().public_key().to_string(), &name.public_key().to_string());
    let mut theirs = lines.clone();
    let first = opened(&other);
    theirs[0] = &first;
    check(
        &forged(&theirs, &other),
        &public,
        "line 1: the log was created with another key than the given one",
    );
    check(&forged(&theirs, &other), &LogExpectations::default(), "line 9: this line names another key");
    let later = lines[0].replace("\"format\":1", "\"format\":2");
    check(
        &forged(&[&later], &other),
        &public,
        "line 1: the record was written by a later version of Flowgate",
    );
    check(
        &forged(&lines[2..], &other),
        &public,
        "line 1: the line does not name the format and the key of the log",
    );
}

#[test]
fn content_that_somebody_changed_is_found() {
    let (log, contents) = example();
    let [first, second] = contents.lines().collect::<Vec<_>>()[..] else { panic!("{contents}") };
    let check = |contents: &str, expected: &str| {
        let shown = match outcome(&log, &LogExpectations::default(), Some(contents)) {
            Ok(summary) => {
                let ContentCounts { kept, missing, forgotten, stray, .. } = summary.contents.unwrap();
                format!("{kept} kept, {missing} missing, {forgotten} forgotten, {stray} stray")
            }
            Err(problem) => problem.to_string(),
        };
        assert!(shown.starts_with(expected), "{shown:?} should begin with {expected:?}");
    };
    check(&contents, "2 kept, 1 missing, 1 forgotten, 0 stray");
    check("", "0 kept, 3 missing, 1 forgotten, 0 stray");
    check(&format!("{second}\n"), "1 kept, 2 missing, 1 forgotten, 0 stray");
    check(&format!("{contents}{{\"seq"), "2 kept, 1 missing, 1 forgotten, 1 stray");
    check(
        &contents.replace("\"two\"", "\"too\""),
        "line 4: the content does not match the digest in its record",
    );
    for (from, to) in
        [("\"c2\"", "\"c1\""), ("agent", "other"), ("acme", "other"), ("\"time\":2", "\"time\":9")]
    {
        let first = first.replace(from, to);
        check(&format!("{first}\n{second}\n"), "line 4: the content does not match the digest in its record");
    }
    check(&format!("{second}\n{first}\n"), "line 7: this content belongs to no line of the log");
    check(&format!("{first}\n{contents}"), "line 5: this content belongs to no line of the log");
    check(
        &contents.replace("{\"seq\":3", "{\"seq\":0"),
        "line 1: this content belongs to no line of the log: entries were added",
    );
    check("what\n", "line 1: the file of contents cannot be read at its line 1");
    check(&format!("{first}\nwhat\n"), "line 4: the file of contents cannot be read at its line 2");
}

#[test]
fn every_letter_counts() {
    let (log, _) = example();
    let expected = LogExpectations { key: Some(key().public_key()), ..LogExpectations::default() };
    for at in 0..log.len() {
        let mut bytes = log.clone().into_bytes();
        bytes[at] ^= 0x20;
        assert!(verify(&mut bytes.as_slice(), &expected, None).is_err(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        static LOG: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| example().0);
        let mut bytes = LOG.clone().into_bytes();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        let problem = verify(&mut bytes.as_slice(), &LogExpectations::default(), None);
        prop_assert!(problem.is_err(), "byte {at} is {byte}");
    }
}

#[test]
fn a_log_is_read_while_it_is_written() {
    let folder = TestFolder::new("read");
    let log = AuditLog::open(&folder.log(), key(), AuditOptions::default(), Timestamp(1)).unwrap();
    for number in 0..3 {
        log.append(Timestamp(2), &withheld("c1")).unwrap();
        let text = fs::read_to_string(folder.log()).unwrap();
        let summary = outcome(&text, &LogExpectations::default(), None).unwrap();
        assert_eq!((summary.lines, summary.unsigned), (3 + number, 1 + number));
    }
}
