//! Content, kept beside the log: a line has only its salted hash, so that content can be deleted and the log stays whole.
//!
//! An entry is written before its line. So an entry without a line is of an event that was never recorded, and is cut off when
//! the log is opened again; a line without an entry has lost its content.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use flowgate::json::{self, Numbers};
use serde_json::{Value, json};

use super::chain::{Hash, bytes, hex};
use super::failure::{AuditError, Failure};
use super::lines::{Lines, Next};
use super::record::{bounded, shown};
use super::{beside, private, tail};

/// The longest content that is kept, in bytes, as it is escaped.
const MAX_CONTENT: usize = 1 << 20;
/// The longest line of a sidecar.
pub(super) const MAX_ENTRY: usize = MAX_CONTENT + (4 << 10);

/// Whose content is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forget {
    /// That of a conversation.
    Conversation(String),
    /// That of lines, by their numbers.
    Lines(BTreeSet<u64>),
}

/// The file beside a log.
pub(super) fn path(log: &Path) -> PathBuf {
    beside(log, "content")
}

/// A content with its salt, as it is written.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: String,
    /// What the line of the log says of it.
    pub(super) mark: Value,
}

impl Entry {
    pub(super) fn new(seq: u64, conversation: Option<&str>, content: &str) -> Result<Self, Failure> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(|_| Failure::Random)?;
        let (content, is_cut) = bounded(content, MAX_CONTENT);
        let mut mark = json!({"salted": Hash::salted(&salt, &content).to_string()});
        if is_cut && let Some(mark) = mark.as_object_mut() {
            mark.insert("cut".to_owned(), json!(true));
        }
        let conversation = conversation.map(shown);
        let entry = json!({"seq": seq, "conversation": conversation, "salt": hex(&salt), "content": content});
        Ok(Self { line: format!("{entry}\n"), mark })
    }
}

/// An entry that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) seq: u64,
    pub(super) conversation: Option<String>,
    pub(super) hash: Hash,
}

impl Found {
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let value = json::parse(std::str::from_utf8(line).ok()?, Numbers::Exact).ok()?;
        let salt = bytes(value.get("salt")?.as_str()?)?;
        let conversation = match value.get("conversation")? {
            Value::Null => None,
            Value::String(conversation) => Some(conversation.clone()),
            _ => return None,
        };
        let hash = Hash::salted(&salt, value.get("content")?.as_str()?);
        Some(Self { seq: value.get("seq")?.as_u64()?, conversation, hash })
    }
}

/// Opens the file for appending.
pub(super) fn open(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().read(true).append(true).create(true)).open(path)
}

/// Cuts off what is of no line: entries from `next` on, and one that was not written to its end.
pub(super) fn repair(path: &Path, next: u64) -> io::Result<()> {
    remove(&beside(path, "new"))?;
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let length = file.metadata()?.len();
    let mut whole = tail::after_last_feed(&mut file, length)?;
    while whole > 0 {
        let start = tail::after_last_feed(&mut file, whole - 1)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(start))?;
        let mut lines = Lines::new(BufReader::new(&file), MAX_ENTRY);
        match lines.next()? {
            Next::Line(line) if Found::read(line).is_some_and(|entry| entry.seq >= next) => whole = start,
            _ => break,
        }
    }
    if whole < length {
        file.set_len(whole)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Writes the file anew without some entries, and puts it in the place of the old one. Gives the numbers of their lines.
pub(super) fn forget(path: &Path, whose: &Forget) -> Result<Vec<u64>, AuditError> {
    let read = |error| AuditError::new(path, Failure::Read(error));
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(read)?,
    };
    let draft = beside(path, "new");
    let write = |error| AuditError::new(&draft, Failure::Write(error));
    let kept = private(OpenOptions::new().write(true).create(true).truncate(true)).open(&draft);
    let mut kept = BufWriter::new(kept.map_err(write)?);
    let mut lines = Lines::new(BufReader::new(file), MAX_ENTRY);
    let (mut number, mut gone) = (0, Vec::new());
    loop {
        number += 1;
        let unreadable = || AuditError::new(path, Failure::Content(number));
        let line = match lines.next().map_err(read)? {
            Next::End => break,
            Next::Line(line) => line,
            Next::Torn | Next::Long => return Err(unreadable()),
        };
        // What cannot be read could be what has to be deleted.
        let entry = Found::read(line).ok_or_else(unreadable)?;
        let is_gone = match whose {
            Forget::Conversation(name) => entry.conversation == Some(shown(name)),
            Forget::Lines(lines) => lines.contains(&entry.seq),
        };
        if is_gone {
            gone.push(entry.seq);
        } else {
            kept.write_all(line).and_then(|()| kept.write_all(b"\n")).map_err(write)?;
        }
    }
    let kept = kept.into_inner().map_err(|error| write(error.into_error()))?;
    kept.sync_all().map_err(write)?;
    fs::rename(&draft, path).and_then(|()| super::sync_folder(path)).map_err(write)?;
    Ok(gone)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    fn entry(seq: u64, conversation: Option<&str>, content: &str) -> String {
        Entry::new(seq, conversation, content).unwrap().line
    }

    #[test]
    fn an_entry_has_the_hash_that_its_line_says() {
        let check = |content: &str, is_cut: bool| {
            let entry = Entry::new(3, Some("c1"), content).unwrap();
            let found = Found::read(entry.line.trim_end().as_bytes()).unwrap();
            assert_eq!(entry.mark["salted"], found.hash.to_string());
            assert_eq!(entry.mark.get("cut").is_some(), is_cut);
            assert_eq!((found.seq, found.conversation.as_deref()), (3, Some("c1")));
            assert!(entry.line.len() <= MAX_ENTRY);
        };
        check("", false);
        check("pay\n{\"a\":1}", false);
        check(&"\u{1}".repeat(MAX_CONTENT), true);
        assert_ne!(entry(3, None, "yes"), entry(3, None, "yes"));
    }

    #[test]
    fn what_is_of_no_line_is_cut_off() {
        let folder = Folder::new("repair");
        let (first, second) = (entry(1, None, "a"), entry(4, None, "b"));
        let begun = second.trim_end();
        let check = |name: &str, text: String, expected: &str| {
            let path = folder.file(name);
            std::fs::write(&path, text).unwrap();
            repair(&path, 4).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected, "{name}");
        };
        check("whole", first.clone(), &first);
        check("ahead", format!("{first}{second}"), &first);
        check("only-ahead", second.clone(), "");
        check("torn", format!("{first}{begun}"), &first);
        check("ahead-and-torn", format!("{first}{second}{begun}"), &first);
        check("strange", format!("{first}what\n"), &format!("{first}what\n"));
        check("empty", String::new(), "");
        repair(&folder.file("none"), 4).unwrap();
    }

    #[test]
    fn only_what_is_meant_is_forgotten() {
        let folder = Folder::new("forget");
        let lines = [entry(1, Some("c1"), "a"), entry(2, Some("c2"), "b"), entry(3, None, "c")];
        let check = |name: &str, whose: Forget, expected: &[u64]| {
            let path = folder.file(name);
            std::fs::write(&path, lines.concat()).unwrap();
            assert_eq!(forget(&path, &whose).unwrap(), expected, "{name}");
            let kept = std::fs::read_to_string(&path).unwrap();
            let rest = lines.iter().zip(1..).filter(|(_, seq)| !expected.contains(seq));
            assert_eq!(kept, rest.map(|(line, _)| line.as_str()).collect::<String>(), "{name}");
            assert!(!beside(&path, "new").exists());
        };
        check("conversation", Forget::Conversation("c1".to_owned()), &[1]);
        check("lines", Forget::Lines([2, 3, 9].into()), &[2, 3]);
        check("nobody", Forget::Conversation("c".to_owned()), &[]);
        let path = folder.file("strange");
        std::fs::write(&path, format!("{}what\n", lines[0])).unwrap();
        let error = forget(&path, &Forget::Lines([1].into())).unwrap_err().to_string();
        assert!(error.ends_with("line 2: no content that the log kept: take the line out, and ask again"));
        assert_eq!(forget(&folder.file("none"), &Forget::Lines([1].into())).unwrap(), Vec::<u64>::new());
    }
}
