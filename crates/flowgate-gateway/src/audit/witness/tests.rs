//! Logs that were restored, replaced, forged and given up, and the witness's record of them.

use std::fs;
use std::io::BufReader;

use super::super::tests::{Folder, key, withheld};
use super::super::{Expected, Log, Options, Problem, What, verify};
use super::*;

fn other_key() -> Key {
    Key::of_seed([8; 32])
}

/// A log with this number of events, and the line that a witness receives.
fn seen(folder: &Folder, key: Key, name: &str, events: u64) -> (String, String) {
    let path = folder.file(name);
    let log = Log::open(&path, key, Options::default(), Time(1)).unwrap();
    for _ in 0..events {
        log.append(Time(2), &withheld(name)).unwrap();
    }
    let (_, line) = log.sighting(Time(3), None).unwrap();
    drop(log);
    (fs::read_to_string(path).unwrap(), line)
}

fn witness(lines: &[&str]) -> Witness {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Witness::read(text.as_bytes()).unwrap()
}

/// The number of lines of a valid log that the witness records, or the problem.
fn verified(log: &str, witness: Option<&Witness>) -> Result<Option<usize>, What> {
    let expected = Expected { witness, ..Expected::default() };
    let summary = verify(&mut log.as_bytes(), &expected, None);
    summary.map(|summary| summary.witnessed.map(|(count, _)| count)).map_err(|Problem { what, .. }| what)
}

#[test]
fn a_line_is_signed_as_a_whole() {
    let folder = Folder::new("sighting");
    let (_, line) = seen(&folder, key(), "a.jsonl", 2);
    let sighting = Sighting::read(line.as_bytes()).unwrap();
    assert_eq!((sighting.head.seq, sighting.time, sighting.key), (4, Time(3), key().public()));
    assert_eq!(sighting.line(&key()), line);
    let lost = GivenUp { log: sighting.log, since: 2 };
    let giving_up = Sighting { gives_up: Some(lost), ..sighting }.line(&key());
    assert_eq!(Sighting::read(giving_up.as_bytes()).unwrap().gives_up, Some(lost));
    let check = |forged: &str, expected: Forged| {
        assert_ne!(forged, line);
        assert_eq!(Sighting::read(forged.as_bytes()), Err(expected), "{forged}");
    };
    let (own, others) = (key().public().to_string(), other_key().public().to_string());
    check(&line.replace("\"lines\":5", "\"lines\":4"), Forged::Signature);
    check(&line.replace("\"time\":3", "\"time\":4"), Forged::Signature);
    check(&line.replace(&own, &others), Forged::Signature);
    check(&line.replace("\"witness\":1", "\"witness\":2"), Forged::Form);
    check(&line.replace("\"lines\":5", "\"lines\":0"), Forged::Form);
    check(&line.replace("\"lines\":5,", ""), Forged::Form);
    check(&line.replace("\"}", "\",\"x\":1}"), Forged::Form);
    check(&line.replace(",\"time\"", ", \"time\""), Forged::Signature);
    check(&giving_up.replace("\"since\":3", "\"since\":1"), Forged::Signature);
    check(&giving_up.replace("\"since\":3", "\"since\":0"), Forged::Form);
    check("{}", Forged::Form);
    check("", Forged::Form);
    // The signature of a head is not valid here, and vice versa.
    let path = folder.file("a.jsonl");
    let head = fs::read_to_string(path).unwrap().lines().last().unwrap().to_owned();
    check(&head, Forged::Form);
}

#[test]
fn a_log_that_was_put_back_is_noticed_with_a_witness_alone() {
    let folder = Folder::new("put-back");
    let (short, first) = seen(&folder, key(), "a.jsonl", 2);
    let (whole, second) = seen(&folder, key(), "a.jsonl", 3);
    assert!(whole.starts_with(&short));
    let knows = witness(&[&first, &second]);
    assert_eq!(verified(&whole, Some(&knows)), Ok(Some(2)));
    // Restored to an earlier state, the log is consistent by itself.
    assert_eq!(verified(&short, None), Ok(None));
    assert_eq!(verified(&short, Some(&knows)), Err(What::Unseen(10)));
    assert_eq!(verified(&short, Some(&witness(&[&first]))), Ok(Some(1)));
    // Restored and continued by a party with the key, to the same length and beyond.
    fs::write(folder.file("a.jsonl"), &short).unwrap();
    let (rewritten, third) = seen(&folder, key(), "a.jsonl", 4);
    assert_eq!(verified(&rewritten, None), Ok(None));
    assert_eq!(verified(&rewritten, Some(&knows)), Err(What::Contradicted));
    // The same if the witness received both.
    assert_eq!(verified(&rewritten, Some(&witness(&[&first, &second, &third]))), Err(What::Contradicted));
    // Emptied and created again.
    fs::remove_file(folder.file("a.jsonl")).unwrap();
    drop(Log::open(&folder.file("a.jsonl"), key(), Options::default(), Time(7)).unwrap());
    let (anew, _) = seen(&folder, key(), "a.jsonl", 9);
    assert_eq!(verified(&anew, Some(&knows)), Err(What::Unwitnessed));
    let named: Vec<u64> = knows.signed_by(key().public()).map(|(_, head)| head.seq).collect();
    assert_eq!(named, [10]);
}

#[test]
fn a_log_that_was_put_back_is_not_gone_on_with() {
    let folder = Folder::new("not-opened");
    let (short, first) = seen(&folder, key(), "a.jsonl", 2);
    let (whole, second) = seen(&folder, key(), "a.jsonl", 3);
    let (_, foreign) = seen(&folder, other_key(), "b.jsonl", 9);
    let knows = witness(&[&first, &foreign, &second]);
    let check = |text: &str, witness: &Witness, expected: Option<&str>| {
        fs::write(folder.file("a.jsonl"), text).unwrap();
        let opened = Log::open_after(&folder.file("a.jsonl"), key(), Options::default(), Time(9), |past| {
            witness.loss(past)
        });
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
    check(&short, &knows, Some("the witness knows line 11"));
    check(&short, &witness(&[&first]), None);
    check(&short, &witness(&[&foreign]), None);
    check("", &knows, Some("this log has 0 lines"));
    check("", &witness(&[&foreign]), None);
    check("", &Witness::default(), None);
    // With lines after the last one that the witness records, as a killed process leaves them.
    check(&whole, &witness(&[&first]), None);
    // A forged line does not keep a gateway from starting.
    let forged = second.replace("\"lines\":11", "\"lines\":99");
    check(&whole, &witness(&[&first, &forged]), None);
}

#[test]
fn a_forged_line_is_named_and_a_torn_one_is_counted() {
    let folder = Folder::new("forged");
    let (log, line) = seen(&folder, key(), "a.jsonl", 2);
    let sighting = Sighting::read(line.as_bytes()).unwrap();
    let of_other = sighting.line(&other_key());
    let changed = line.replace("\"lines\":5", "\"lines\":2");
    // The lines, the rejected ones, and the number of partial ones.
    type Row<'r> = (&'r [&'r str], &'r [(u64, Forged)], u64);
    let (torn, long) = (line.get(..40).unwrap(), "x".repeat(9000));
    let rows: [Row<'_>; 7] = [
        (&[&line], &[], 0),
        (&[&line, &changed], &[(2, Forged::Signature)], 0),
        (&["hello", &line], &[(1, Forged::Form)], 0),
        (&[&line, "{\"witness\":1}"], &[(2, Forged::Form)], 0),
        (&[&line, &of_other], &[(2, Forged::OtherKey)], 0),
        (&[torn, "", &line, "{\"wit"], &[], 2),
        (&[&line, &long], &[(2, Forged::Form)], 0),
    ];
    for (lines, forged, torn) in rows {
        let witness = witness(lines);
        assert_eq!((witness.forged(), witness.torn()), (forged, torn), "{lines:?}");
        assert_eq!(verified(&log, Some(&witness)), Ok(Some(1)), "{lines:?}");
    }
    // The end of a line that is being written.
    let text = format!("{line}\n{}", line.get(..90).unwrap());
    let witness = Witness::read(BufReader::new(text.as_bytes())).unwrap();
    assert_eq!((witness.torn(), witness.of(sighting.log)), (1, Some((1, sighting.head))));
}

#[test]
fn what_an_operator_gives_up_is_not_looked_for() {
    let folder = Folder::new("given-up");
    let (short, first) = seen(&folder, key(), "a.jsonl", 2);
    let (_, second) = seen(&folder, key(), "a.jsonl", 3);
    let log = Sighting::read(first.as_bytes()).unwrap().log;
    fs::write(folder.file("a.jsonl"), &short).unwrap();
    let goes_on = |gives_up: GivenUp, key: Key, name: &str| {
        let log = Log::open(&folder.file(name), key, Options::default(), Time(5)).unwrap();
        let (_, line) = log.sighting(Time(6), Some(gives_up)).unwrap();
        drop(log);
        (fs::read_to_string(folder.file(name)).unwrap(), line)
    };
    let (whole, third) = goes_on(GivenUp { log, since: 5 }, key(), "a.jsonl");
    let knows = witness(&[&first, &second, &third]);
    assert_eq!(verified(&whole, Some(&knows)), Ok(Some(2)));
    assert_eq!(verified(&short, Some(&knows)), Err(What::Unseen(6)));
    assert_eq!(knows.given_up(key().public()).collect::<Vec<_>>(), [(log, 5, Time(6))]);
    // A whole log is given up for another one; a sighting with another key has no effect.
    let (_, anew) = goes_on(GivenUp { log, since: 0 }, key(), "c.jsonl");
    let (_, foreign) = goes_on(GivenUp { log, since: 0 }, other_key(), "d.jsonl");
    let logs = |lines: &[&str]| witness(lines).signed_by(key().public()).count();
    assert_eq!((logs(&[&first, &anew]), logs(&[&first, &foreign])), (1, 1));
    assert_eq!(verified(&short, Some(&witness(&[&first, &second, &foreign]))), Err(What::Unseen(10)));
    assert_eq!(verified(&short, Some(&witness(&[&first, &second, &anew]))), Err(What::Unwitnessed));
}
