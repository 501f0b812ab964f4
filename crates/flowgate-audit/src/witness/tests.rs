//! Tests that a witness's record reveals logs that were restored, replaced or forged, and that an operator can accept the
//! loss of lines.

use std::fs;
use std::io::BufReader;

use super::super::{AuditLog, AuditOptions, LogExpectations, VerifyError, VerifyErrorKind, verify};
use super::*;
use crate::log::tests::{TestFolder, key, withheld};

fn other_key() -> AuditKey {
    AuditKey::from_seed([8; 32])
}

/// A log with this number of events, and the line that a witness receives.
fn seen(folder: &TestFolder, key: AuditKey, name: &str, events: u64) -> (String, String) {
    let path = folder.file(name);
    let log = AuditLog::open(&path, key, AuditOptions::default(), Timestamp(1)).unwrap();
    for _ in 0..events {
        log.append(Timestamp(2), &withheld(name)).unwrap();
    }
    let (_, line) = log.witness_line(Timestamp(3), None).unwrap();
    drop(log);
    (fs::read_to_string(path).unwrap(), line)
}

fn witness(lines: &[&str]) -> WitnessRecord {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    WitnessRecord::read(text.as_bytes()).unwrap()
}

/// The number of lines of a valid log that the witness records, or the problem.
fn verified(log: &str, witness: Option<&WitnessRecord>) -> Result<Option<usize>, VerifyErrorKind> {
    let expected = LogExpectations { witness, ..LogExpectations::default() };
    let summary = verify(&mut log.as_bytes(), &expected, None);
    summary.map(|summary| summary.witnessed.map(|(count, _)| count)).map_err(|VerifyError { what, .. }| what)
}

#[test]
fn a_line_is_signed_as_a_whole() {
    let folder = TestFolder::new("sighting");
    let (_, line) = seen(&folder, key(), "a.jsonl", 2);
    let sighting = WitnessLine::read(line.as_bytes()).unwrap();
    assert_eq!((sighting.head.seq, sighting.time, sighting.key), (4, Timestamp(3), key().public_key()));
    assert_eq!(sighting.signed_line(&key()), line);
    let lost = AcceptedLoss { log: sighting.log, since: 2 };
    let giving_up = WitnessLine { gives_up: Some(lost), ..sighting }.signed_line(&key());
    assert_eq!(WitnessLine::read(giving_up.as_bytes()).unwrap().gives_up, Some(lost));
    let check = |forged: &str, expected: WitnessLineError| {
        assert_ne!(forged, line);
        assert_eq!(WitnessLine::read(forged.as_bytes()), Err(expected), "{forged}");
    };
    let (own, others) = (key().public_key().to_string(), other_key().public_key().to_string());
    check(&line.replace("\"lines\":5", "\"lines\":4"), WitnessLineError::Signature);
    check(&line.replace("\"time\":3", "\"time\":4"), WitnessLineError::Signature);
    check(&line.replace(&own, &others), WitnessLineError::Signature);
    check(&line.replace("\"witness\":1", "\"witness\":2"), WitnessLineError::Form);
    check(&line.replace("\"lines\":5", "\"lines\":0"), WitnessLineError::Form);
    check(&line.replace("\"lines\":5,", ""), WitnessLineError::Form);
    check(&line.replace("\"}", "\",\"x\":1}"), WitnessLineError::Form);
    check(&line.replace(",\"time\"", ", \"time\""), WitnessLineError::Signature);
    check(&giving_up.replace("\"since\":3", "\"since\":1"), WitnessLineError::Signature);
    check(&giving_up.replace("\"since\":3", "\"since\":0"), WitnessLineError::Form);
    check("{}", WitnessLineError::Form);
    check("", WitnessLineError::Form);
    // The signature of a head is not valid here, and vice versa.
    let path = folder.file("a.jsonl");
    let head = fs::read_to_string(path).unwrap().lines().last().unwrap().to_owned();
    check(&head, WitnessLineError::Form);
}

#[test]
fn a_log_that_was_put_back_is_noticed_with_a_witness_alone() {
    let folder = TestFolder::new("put-back");
    let (short, first) = seen(&folder, key(), "a.jsonl", 2);
    let (whole, second) = seen(&folder, key(), "a.jsonl", 3);
    assert!(whole.starts_with(&short));
    let knows = witness(&[&first, &second]);
    assert_eq!(verified(&whole, Some(&knows)), Ok(Some(2)));
    // Restored to an earlier state, the log is consistent by itself.
    assert_eq!(verified(&short, None), Ok(None));
    assert_eq!(verified(&short, Some(&knows)), Err(VerifyErrorKind::Unseen(10)));
    assert_eq!(verified(&short, Some(&witness(&[&first]))), Ok(Some(1)));
    // Restored and continued by a party with the key, to the same length and beyond.
    fs::write(folder.file("a.jsonl"), &short).unwrap();
    let (rewritten, third) = seen(&folder, key(), "a.jsonl", 4);
    assert_eq!(verified(&rewritten, None), Ok(None));
    assert_eq!(verified(&rewritten, Some(&knows)), Err(VerifyErrorKind::Contradicted));
    // The same if the witness received both.
    assert_eq!(
        verified(&rewritten, Some(&witness(&[&first, &second, &third]))),
        Err(VerifyErrorKind::Contradicted)
    );
    // Emptied and created again.
    fs::remove_file(folder.file("a.jsonl")).unwrap();
    drop(AuditLog::open(&folder.file("a.jsonl"), key(), AuditOptions::default(), Timestamp(7)).unwrap());
    let (anew, _) = seen(&folder, key(), "a.jsonl", 9);
    assert_eq!(verified(&anew, Some(&knows)), Err(VerifyErrorKind::Unwitnessed));
    let named: Vec<u64> = knows.signed_by(key().public_key()).map(|(_, head)| head.seq).collect();
    assert_eq!(named, [10]);
}

#[test]
fn a_restored_older_log_is_not_continued() {
    let folder = TestFolder::new("not-opened");
    let (short, first) = seen(&folder, key(), "a.jsonl", 2);
    let (whole, second) = seen(&folder, key(), "a.jsonl", 3);
    let (_, foreign) = seen(&folder, other_key(), "b.jsonl", 9);
    let knows = witness(&[&first, &foreign, &second]);
    let check = |text: &str, witness: &WitnessRecord, expected: Option<&str>| {
        fs::write(folder.file("a.jsonl"), text).unwrap();
        let opened = AuditLog::open_after(
            &folder.file("a.jsonl"),
            key(),
            AuditOptions::default(),
            Timestamp(9),
            |past| witness.loss(past),
        );
        let error = opened.err().map(|error| error.to_string());
        match (&error, expected) {
            (None, None) => {}
            (Some(error), Some(expected)) => {
                assert!(error.contains(expected) && error.contains("audit accept-loss"), "{error}");
                // Nothing was written.
                assert_eq!(fs::read_to_string(folder.file("a.jsonl")).unwrap(), text);
            }
            _ => panic!("{error:?} {expected:?}"),
        }
    };
    check(&whole, &knows, None);
    check(&short, &knows, Some("the witness has received line 11"));
    check(&short, &witness(&[&first]), None);
    check(&short, &witness(&[&foreign]), None);
    check("", &knows, Some("this log has 0 lines"));
    check("", &witness(&[&foreign]), None);
    check("", &WitnessRecord::default(), None);
    // With lines after the last one that the witness records, as a killed process leaves them.
    check(&whole, &witness(&[&first]), None);
    // A forged line does not keep a gateway from starting.
    let forged = second.replace("\"lines\":11", "\"lines\":99");
    check(&whole, &witness(&[&first, &forged]), None);
}

#[test]
fn a_forged_line_is_named_and_a_torn_one_is_counted() {
    let folder = TestFolder::new("forged");
    let (log, line) = seen(&folder, key(), "a.jsonl", 2);
    let sighting = WitnessLine::read(line.as_bytes()).unwrap();
    let of_other = sighting.signed_line(&other_key());
    let changed = line.replace("\"lines\":5", "\"lines\":2");
    // The lines, the rejected ones, and the number of partial ones.
    type WitnessCase<'r> = (&'r [&'r str], &'r [(u64, WitnessLineError)], u64);
    let (torn, long) = (line.get(..40).unwrap(), "x".repeat(9000));
    let rows: [WitnessCase<'_>; 7] = [
        (&[&line], &[], 0),
        (&[&line, &changed], &[(2, WitnessLineError::Signature)], 0),
        (&["hello", &line], &[(1, WitnessLineError::Form)], 0),
        (&[&line, "{\"witness\":1}"], &[(2, WitnessLineError::Form)], 0),
        (&[&line, &of_other], &[(2, WitnessLineError::OtherKey)], 0),
        (&[torn, "", &line, "{\"wit"], &[], 2),
        (&[&line, &long], &[(2, WitnessLineError::Form)], 0),
    ];
    for (lines, forged, torn) in rows {
        let witness = witness(lines);
        assert_eq!((witness.rejected_lines(), witness.partial_lines()), (forged, torn), "{lines:?}");
        assert_eq!(verified(&log, Some(&witness)), Ok(Some(1)), "{lines:?}");
    }
    // The end of a line that is being written.
    let text = format!("{line}\n{}", line.get(..90).unwrap());
    let witness = WitnessRecord::read(BufReader::new(text.as_bytes())).unwrap();
    assert_eq!((witness.partial_lines(), witness.last_line_of(sighting.log)), (1, Some((1, sighting.head))));
}

#[test]
fn an_accepted_loss_is_not_reported_again() {
    let folder = TestFolder::new("given-up");
    let (short, first) = seen(&folder, key(), "a.jsonl", 2);
    let (_, second) = seen(&folder, key(), "a.jsonl", 3);
    let log = WitnessLine::read(first.as_bytes()).unwrap().log;
    fs::write(folder.file("a.jsonl"), &short).unwrap();
    let goes_on = |gives_up: AcceptedLoss, key: AuditKey, name: &str| {
        let log = AuditLog::open(&folder.file(name), key, AuditOptions::default(), Timestamp(5)).unwrap();
        let (_, line) = log.witness_line(Timestamp(6), Some(gives_up)).unwrap();
        drop(log);
        (fs::read_to_string(folder.file(name)).unwrap(), line)
    };
    let (whole, third) = goes_on(AcceptedLoss { log, since: 5 }, key(), "a.jsonl");
    let knows = witness(&[&first, &second, &third]);
    assert_eq!(verified(&whole, Some(&knows)), Ok(Some(2)));
    assert_eq!(verified(&short, Some(&knows)), Err(VerifyErrorKind::Unseen(6)));
    assert_eq!(knows.accepted_losses(key().public_key()).collect::<Vec<_>>(), [(log, 5, Timestamp(6))]);
    // A whole log is given up for another one; a sighting with another key has no effect.
    let (_, anew) = goes_on(AcceptedLoss { log, since: 0 }, key(), "c.jsonl");
    let (_, foreign) = goes_on(AcceptedLoss { log, since: 0 }, other_key(), "d.jsonl");
    let logs = |lines: &[&str]| witness(lines).signed_by(key().public_key()).count();
    assert_eq!((logs(&[&first, &anew]), logs(&[&first, &foreign])), (1, 1));
    assert_eq!(
        verified(&short, Some(&witness(&[&first, &second, &foreign]))),
        Err(VerifyErrorKind::Unseen(10))
    );
    assert_eq!(
        verified(&short, Some(&witness(&[&first, &second, &anew]))),
        Err(VerifyErrorKind::Unwitnessed)
    );
}
