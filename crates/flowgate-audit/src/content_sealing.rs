//! Encrypts the existing contents of an audit log with the present key: those that were written without a key, and
//! those that an earlier key has encrypted. `flowgate database encrypt` calls [`seal_contents`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;

use super::content::{content_path, draft_path};
use super::content_cipher::ContentCipher;
use super::content_reader::{ComparedContent, ContentReader};
use super::error::{AuditError, AuditErrorKind};
use super::log_files::{lock, restrict_to_owner, sync_folder};
use super::verify::VerifiedRecords;

/// Encrypts all contents of the log `log` with the first key of `cipher`. The contents that are encrypted already are
/// decrypted first, each with the one of the keys that encrypted it. Returns the number of encrypted contents; 0 if
/// there is no file of contents. The log stays as it is. Contents of events that were never recorded are left out. An
/// interrupted run leaves the file unchanged.
///
/// # Errors
/// If another process has the log open, a file cannot be read or written, a key is missing, or a content is not the one
/// that the log recorded.
pub fn seal_contents(log: &Path, cipher: &dyn ContentCipher) -> Result<u64, AuditError> {
    let contents = content_path(log);
    let read = |file: &Path, error| AuditError::new(file, AuditErrorKind::Read(error));
    let file = match File::open(&contents) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file.map_err(|error| read(&contents, error))?,
    };
    let _lock = lock(log)?;
    let draft = draft_path(&contents);
    let write = |error| AuditError::new(&draft, AuditErrorKind::Write(error));
    let unverified = |problem| AuditError::new(log, AuditErrorKind::Unverified(problem));
    let written = restrict_to_owner(OpenOptions::new().write(true).create(true).truncate(true)).open(&draft);
    let mut written = BufWriter::new(written.map_err(write)?);
    let mut reader = ContentReader::with_cipher(BufReader::new(file), Some(cipher)).map_err(unverified)?;
    let records = BufReader::new(File::open(log).map_err(|error| read(log, error))?);
    let mut count = 0;
    for record in VerifiedRecords::new(records, None) {
        let record = record.map_err(unverified)?;
        // The reader has keys here, so it returns no sealed content: other results are lines without content.
        let ComparedContent::Kept(entry) = reader.compare(&record).map_err(unverified)? else { continue };
        let sealed = entry.sealed(record.previous, Some(cipher));
        let line = sealed.map_err(|failure| AuditError::new(&contents, failure))?.line();
        written.write_all(line.as_bytes()).map_err(write)?;
        count += 1;
    }
    written.flush().and_then(|()| written.get_ref().sync_all()).map_err(write)?;
    fs::rename(&draft, &contents).and_then(|()| sync_folder(&contents)).map_err(write)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::content_cipher::tests::TestCipher;
    use super::super::{
        AuditLog, AuditOptions, ContentRetention, LineContent, LogExpectations, Timestamp, verify,
    };
    use super::*;
    use crate::log::tests::{TestFolder, withheld};

    const FIRST: TestCipher = TestCipher(&["aa"]);
    const OLD: TestCipher = TestCipher(&["bb"]);
    const BOTH: TestCipher = TestCipher(&["aa", "bb"]);

    fn open(folder: &TestFolder) -> AuditLog {
        folder.open(AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() }).unwrap()
    }

    /// Writes a log with two plain contents and, with the key `bb`, three encrypted ones.
    fn example(name: &str) -> TestFolder {
        let folder = TestFolder::new(name);
        let log = open(&folder);
        log.append_with(Timestamp(2), &withheld("c1"), "plain one").unwrap();
        log.append_with(Timestamp(3), &withheld("c1"), "plain two").unwrap();
        log.encrypt_contents(Arc::new(OLD)).unwrap();
        for text in ["secret three", "secret four", "secret five"] {
            log.append_with(Timestamp(4), &withheld("c1"), text).unwrap();
        }
        folder
    }

    fn stored(folder: &TestFolder) -> String {
        fs::read_to_string(content_path(&folder.log())).unwrap()
    }

    /// Reads all contents with a cipher.
    fn said(folder: &TestFolder, cipher: Option<&dyn ContentCipher>) -> Result<Vec<String>, String> {
        let text = stored(folder);
        let mut reader =
            ContentReader::with_cipher(text.as_bytes(), cipher).map_err(|error| error.to_string())?;
        let records = BufReader::new(File::open(folder.log()).unwrap());
        let mut said = Vec::new();
        for record in VerifiedRecords::new(records, None) {
            let content = reader.content_of(&record.unwrap()).map_err(|error| error.to_string())?;
            if let LineContent::Kept(text) = content {
                said.push(text);
            }
        }
        Ok(said)
    }

    const ALL: [&str; 5] = ["plain one", "plain two", "secret three", "secret four", "secret five"];

    #[test]
    fn plain_and_encrypted_contents_are_read_with_the_key() {
        let folder = example("sealed");
        assert!(!stored(&folder).contains("secret") && stored(&folder).contains("plain one"));
        assert_eq!(said(&folder, Some(&OLD)).unwrap(), ALL);
        assert_eq!(said(&folder, Some(&BOTH)).unwrap(), ALL);
        // Lines 1 and 2 of the log are its opening and a head.
        assert_eq!(
            said(&folder, None).unwrap_err(),
            "line 5: the content in line 3 of the file of contents is encrypted with the key bb, and no key was given: \
             give the configuration that names the key in [store] with `--config`"
        );
        assert_eq!(
            said(&folder, Some(&FIRST)).unwrap_err(),
            "line 5: the content in line 3 of the file of contents is encrypted with the key bb, and the configuration has \
             other keys (aa): add that key after the first one"
        );
        // Without a key, the rest of the log is verified, and the contents that were not compared are counted.
        let counts = |cipher: Option<&dyn ContentCipher>| {
            let expected = LogExpectations { content_cipher: cipher, ..LogExpectations::default() };
            let mut log = BufReader::new(File::open(folder.log()).unwrap());
            let text = stored(&folder);
            let counts = verify(&mut log, &expected, Some(&mut text.as_bytes())).unwrap().contents.unwrap();
            (counts.kept, counts.sealed, counts.missing)
        };
        assert_eq!((counts(None), counts(Some(&OLD))), ((2, 3, 0), (5, 0, 0)));
        // Opening the log again, and deleting by the names of the entries, needs no key.
        let log = open(&folder);
        let selector = crate::log::tests::of_conversation("c1");
        assert_eq!(log.forget(Timestamp(9), &selector, "ann").unwrap(), 5);
        assert_eq!(stored(&folder), "");
    }

    #[test]
    fn altered_cut_and_moved_contents_are_refused_with_their_place() {
        let folder = example("sealed-altered");
        let text = stored(&folder);
        let lines: Vec<&str> = text.lines().collect();
        let sealed = |line: &str| line.split("\"sealed\":\"").nth(1).unwrap().to_owned();
        let check = |changed: &[String], expected: &str| {
            fs::write(content_path(&folder.log()), changed.join("\n") + "\n").unwrap();
            let error = said(&folder, Some(&OLD)).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{error}");
        };
        let with = |changes: &[(usize, String)]| {
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            changes.iter().for_each(|(at, line)| changed[*at].clone_from(line));
            changed
        };
        const ALTERED: &str = "line 6: the encrypted content in line 4 of the file of contents cannot be decrypted: it was altered, or moved";
        check(&with(&[(3, lines[3].replace("four", "f0ur").replace("ruof", "ru0f"))]), ALTERED);
        // Cut.
        check(
            &with(&[(3, lines[3].replace("\"}", "").split_at(lines[3].len() - 12).0.to_owned() + "\"}")]),
            ALTERED,
        );
        // The sealed contents of two lines are swapped, and the place of the first is noticed.
        let swapped = [
            (3, lines[3].replace(&sealed(lines[3]), &sealed(lines[4]))),
            (4, lines[4].replace(&sealed(lines[4]), &sealed(lines[3]))),
        ];
        check(&with(&swapped), ALTERED);
        // Whole lines are swapped: they are out of order.
        check(
            &with(&[(3, lines[4].to_owned()), (4, lines[3].to_owned())]),
            "line 8: this content belongs to no line",
        );
        // Another number in the entry, and another name.
        check(&with(&[(3, lines[3].replace("\"conversation\":\"c1\"", "\"conversation\":\"c2\""))]), ALTERED);
        // A line of another log at the same place.
        let other = example("sealed-other");
        let log = open(&other);
        log.encrypt_contents(Arc::new(OLD)).unwrap();
        drop(log);
        let line = stored(&other).lines().nth(3).unwrap().to_owned();
        let folder_of_later = TestFolder::new("sealed-later");
        let log = AuditLog::open(
            &folder_of_later.log(),
            crate::log::tests::key(),
            AuditOptions { content: ContentRetention::Kept, ..AuditOptions::default() },
            Timestamp(77),
        );
        let log = log.unwrap();
        log.encrypt_contents(Arc::new(OLD)).unwrap();
        for text in ALL {
            log.append_with(Timestamp(4), &withheld("c1"), text).unwrap();
        }
        drop(log);
        let mut lines: Vec<String> = stored(&folder_of_later).lines().map(str::to_owned).collect();
        lines[3] = line;
        fs::write(content_path(&folder_of_later.log()), lines.join("\n") + "\n").unwrap();
        let error = said(&folder_of_later, Some(&OLD)).unwrap_err();
        assert!(error.starts_with("line 6: the encrypted content in line 4 of the file"), "{error}");
        // A sealed content may be replaced by a plain one, but the line of the log has its hash.
        let plain = lines_with_plain(&text);
        check(&plain, "line 6: the content does not match the digest in its record");
    }

    /// Returns the lines of a file of contents with a plain content in place of the fourth.
    fn lines_with_plain(text: &str) -> Vec<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let start = lines[3].split("\"sealed\"").next().unwrap().to_owned();
        let salt = "0".repeat(64);
        lines[3] = format!("{start}\"salt\":\"{salt}\",\"content\":\"secret four\"}}");
        lines
    }

    #[test]
    fn a_key_is_replaced() {
        let folder = example("sealed-anew");
        let before = stored(&folder);
        // The old key is missing: nothing is changed.
        let error = seal_contents(&folder.log(), &FIRST).unwrap_err().to_string();
        assert!(error.contains("is encrypted with the key bb") && error.contains("audit.jsonl"), "{error}");
        assert_eq!(stored(&folder), before);
        assert_eq!(seal_contents(&folder.log(), &BOTH).unwrap(), 5);
        assert_eq!(said(&folder, Some(&FIRST)).unwrap(), ALL);
        let text = stored(&folder);
        assert!(!text.contains("plain") && !text.contains("test1:bb:"), "{text}");
        assert_eq!(seal_contents(&TestFolder::new("sealed-none").log(), &BOTH).unwrap(), 0);
        let log = open(&folder);
        let error = seal_contents(&folder.log(), &BOTH).unwrap_err().to_string();
        assert!(error.contains("another process has opened this log"), "{error}");
        drop(log);
    }
}
