//! Content beside the log: a line contains only the salted hash, so content can be deleted without breaking the log.
//!
//! An entry is written before its line. An entry without a line therefore belongs to an event that was never recorded,
//! and is truncated when the log is opened again; a line without an entry has lost its content.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use flowgate::json::{self, Numbers};
use serde_json::{Value, json};

use super::chain::{Hash, bytes, hex};
use super::event::Event;
use super::failure::{AuditError, Failure};
use super::lines::{Lines, Next};
use super::record::{Fields, Record, Time, bounded, shown};
use super::{beside, private, tail};

/// The maximum size of a kept content, in bytes, after escaping.
const MAX_CONTENT: usize = 1 << 20;
/// The maximum size of a line in the file of contents, in bytes.
pub(super) const MAX_ENTRY: usize = MAX_CONTENT + (4 << 10);

/// The content to delete: entries that match every field that is set. If none is set, nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forget {
    /// The tenant of the entries.
    pub tenant: Option<String>,
    /// The client of the entries.
    pub client: Option<String>,
    /// The conversation of the entries. Clients may have conversations of the same name.
    pub conversation: Option<String>,
    /// The time before which the entries were written.
    pub before: Option<Time>,
    /// The numbers of the entries' lines.
    pub lines: Option<BTreeSet<u64>>,
}

impl Forget {
    fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn is_meant(&self, entry: &Found) -> bool {
        let Self { tenant, client, conversation, before, lines } = self;
        let is = |meant: &Option<String>, name: &Option<String>| {
            meant.as_deref().is_none_or(|meant| name.as_deref() == Some(&shown(meant)))
        };
        !self.says_nothing()
            && is(tenant, &entry.tenant)
            && is(client, &entry.client)
            && is(conversation, &entry.conversation)
            && before.is_none_or(|before| entry.time < before)
            && lines.as_ref().is_none_or(|lines| lines.contains(&entry.seq))
    }

    /// Returns the fields of the record of a deletion that `who` requested.
    pub(super) fn fields(&self, who: &str) -> Fields {
        let Self { tenant, client, conversation, before, .. } = self;
        let mut fields = Fields::default();
        fields
            .some("tenant", tenant.as_deref())
            .some("client", client.as_deref())
            .some("conversation", conversation.as_deref())
            .text("who", who);
        if let Some(Time(before)) = before {
            fields.number("before", *before);
        }
        fields
    }
}

/// Returns the path of the file of contents.
pub(super) fn path(log: &Path) -> PathBuf {
    beside(log, "content")
}

/// A new entry, as it is written.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: String,
    /// The reference to it in the line of the log.
    pub(super) mark: Value,
}

impl Entry {
    pub(super) fn new(seq: u64, time: Time, event: &Event, content: &str) -> Result<Self, Failure> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(|_| Failure::Random)?;
        let (content, is_cut) = bounded(content, MAX_CONTENT);
        let mut mark = json!({"salted": Hash::salted(&salt, &content).to_string()});
        if is_cut && let Some(mark) = mark.as_object_mut() {
            mark.insert("cut".to_owned(), json!(true));
        }
        let entry = json!({
            "seq": seq,
            "time": time.bounded(),
            "tenant": event.tenant().map(shown),
            "client": event.client().map(shown),
            "conversation": event.conversation().map(shown),
            "salt": hex(&salt),
            "content": content,
        });
        Ok(Self { line: format!("{entry}\n"), mark })
    }
}

/// An entry that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) seq: u64,
    time: Time,
    tenant: Option<String>,
    client: Option<String>,
    conversation: Option<String>,
    pub(super) content: String,
    hash: Hash,
}

impl Found {
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let value = json::parse(std::str::from_utf8(line).ok()?, Numbers::Exact).ok()?;
        let salt = bytes(value.get("salt")?.as_str()?)?;
        let name = |name: &str| match value.get(name)? {
            Value::Null => Some(None),
            Value::String(name) => Some(Some(name.clone())),
            _ => None,
        };
        let content = value.get("content")?.as_str()?.to_owned();
        Some(Self {
            seq: value.get("seq")?.as_u64()?,
            time: Time(value.get("time")?.as_u64()?),
            tenant: name("tenant")?,
            client: name("client")?,
            conversation: name("conversation")?,
            hash: Hash::salted(&salt, &content),
            content,
        })
    }

    /// Returns whether the entry belongs to this line of the log. Its owner must match as well, since content is
    /// deleted by owner.
    pub(super) fn is_of(&self, record: &Record, hash: Hash) -> bool {
        let is = |name: &str, of: &Option<String>| record.text(name) == of.as_deref();
        self.hash == hash
            && self.time == record.time
            && is("tenant", &self.tenant)
            && is("client", &self.client)
            && is("conversation", &self.conversation)
    }
}

/// Opens the file for appending.
pub(super) fn open(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().read(true).append(true).create(true)).open(path)
}

/// Truncates entries without a line: those from `next` on, and a partial last one.
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

/// Rewrites the file without the matching entries, and replaces the old one. Returns the numbers of their lines.
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
        // An unreadable entry could be one that must be deleted.
        let entry = Found::read(line).ok_or_else(unreadable)?;
        if whose.is_meant(&entry) {
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

/// Returns the time of the oldest content, if there is any. Entries have the order of their lines.
pub(super) fn oldest(path: &Path) -> io::Result<Option<Time>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut lines = Lines::new(BufReader::new(file), MAX_ENTRY);
    Ok(match lines.next()? {
        Next::End => None,
        // An unreadable entry could be old: the deletion then reports the problem.
        Next::Line(line) => Some(Found::read(line).map_or(Time(0), |entry| entry.time)),
        Next::Torn | Next::Long => Some(Time(0)),
    })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, withheld};
    use super::*;

    fn entry(seq: u64, conversation: &str, content: &str) -> String {
        Entry::new(seq, Time(seq * 10), &withheld(conversation), content).unwrap().line
    }

    #[test]
    fn an_entry_has_the_hash_that_its_line_says() {
        let check = |content: &str, is_cut: bool| {
            let entry = Entry::new(3, Time(9), &withheld("c1"), content).unwrap();
            let found = Found::read(entry.line.trim_end().as_bytes()).unwrap();
            assert_eq!(entry.mark["salted"], found.hash.to_string());
            assert_eq!(entry.mark.get("cut").is_some(), is_cut);
            let whose = [found.tenant, found.client, found.conversation].map(Option::unwrap);
            assert_eq!(
                (found.seq, found.time, whose),
                (3, Time(9), ["acme", "agent", "c1"].map(str::to_owned))
            );
            assert!(entry.line.len() <= MAX_ENTRY);
        };
        check("", false);
        check("pay\n{\"a\":1}", false);
        check(&"\u{1}".repeat(MAX_CONTENT), true);
        // Trying every content does not reveal the entry from its mark: each mark has a salt of its own.
        let mark = || Entry::new(3, Time(9), &withheld("c1"), "yes").unwrap().mark["salted"].to_string();
        assert_ne!(mark(), mark());
    }

    #[test]
    fn what_is_of_no_line_is_cut_off() {
        let folder = Folder::new("repair");
        let (first, second) = (entry(1, "c1", "a"), entry(4, "c1", "b"));
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
        let lines = [entry(1, "c1", "a"), entry(2, "c2", "b"), entry(3, "c1", "c")];
        let check = |name: &str, whose: Forget, expected: &[u64]| {
            let path = folder.file(name);
            std::fs::write(&path, lines.concat()).unwrap();
            assert_eq!(forget(&path, &whose).unwrap(), expected, "{name}");
            let kept = std::fs::read_to_string(&path).unwrap();
            let rest = lines.iter().zip(1..).filter(|(_, seq)| !expected.contains(seq));
            assert_eq!(kept, rest.map(|(line, _)| line.as_str()).collect::<String>(), "{name}");
            assert!(!beside(&path, "new").exists());
        };
        let none = Forget::default;
        let some = |name: &str| Some(name.to_owned());
        check("nothing", none(), &[]);
        check("conversation", Forget { conversation: some("c1"), ..none() }, &[1, 3]);
        check("client", Forget { client: some("agent"), ..none() }, &[1, 2, 3]);
        check("tenant", Forget { tenant: some("acme"), ..none() }, &[1, 2, 3]);
        check("other-client", Forget { client: some("other"), conversation: some("c1"), ..none() }, &[]);
        check("other-tenant", Forget { tenant: some("other"), client: some("agent"), ..none() }, &[]);
        check("before", Forget { before: Some(Time(20)), ..none() }, &[1]);
        check("lines", Forget { lines: Some([2, 3, 9].into()), ..none() }, &[2, 3]);
        check("nobody", Forget { conversation: some("c"), ..none() }, &[]);
        let path = folder.file("strange");
        std::fs::write(&path, format!("{}what\n", lines[0])).unwrap();
        let error = forget(&path, &Forget { lines: Some([1].into()), ..none() }).unwrap_err().to_string();
        assert!(error.ends_with("line 2: no content that the log kept: take the line out, and ask again"));
        assert_eq!(oldest(&path).unwrap(), Some(Time(10)));
        assert_eq!(oldest(&folder.file("none")).unwrap(), None);
        assert_eq!(
            forget(&folder.file("none"), &Forget { lines: Some([1].into()), ..none() }).unwrap(),
            Vec::<u64>::new()
        );
    }
}
