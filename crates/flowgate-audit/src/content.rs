//! Writes and deletes the contents of recorded events, such as the arguments of a call. The contents are in a separate
//! file, `LOG.content`, one *entry* for each. A line of the log contains only the salted hash of its content, so
//! content can be deleted without breaking the log. [`AuditLog`](super::AuditLog) owns the file.
//!
//! With a [`ContentCipher`], the content of an entry and the salt of its hash are encrypted (*sealed*), bound to the place
//! of the entry. The number of the line, the time and the names stay readable, as they are in the log, so that content
//! can be selected and deleted without a key. A file may have plain entries and sealed ones.
//!
//! An entry is written before its line. An entry without a line therefore belongs to an event that was never
//! recorded, and is removed when the log is opened again; a line without an entry has lost its content.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use flowgate::json::{self, Numbers};
use serde_json::{Value, json};

use super::bounded_lines::{BoundedLines, NextLine};
use super::content_cipher::{self, ContentCipher, ContentOpenError};
use super::error::{AuditError, AuditErrorKind};
use super::event::AuditEvent;
use super::line_hash::{LineHash, hex, parse_hex};
use super::log_files::{append_extension, restrict_to_owner, sync_folder};
use super::record::{AuditRecord, RecordFields, Timestamp, field_text, truncate_escaped};
use super::tail;

/// The maximum size of a stored content, in bytes, after escaping.
const MAX_CONTENT: usize = 1 << 20;
/// The maximum size of a line in the file of contents, in bytes. A sealed content is in base64, which needs four
/// characters for three bytes. The other fields have room in 16 KiB more.
pub(super) const MAX_ENTRY: usize = MAX_CONTENT / 3 * 4 + (16 << 10);

/// The content to delete: entries that match every field that is set. If none is set, nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentSelector {
    /// The tenant of the entries.
    pub tenant: Option<String>,
    /// The client of the entries.
    pub client: Option<String>,
    /// The conversation of the entries. Clients may have conversations of the same name.
    pub conversation: Option<String>,
    /// The time before which the entries were written.
    pub before: Option<Timestamp>,
    /// The numbers of the entries' lines.
    pub lines: Option<BTreeSet<u64>>,
}

impl ContentSelector {
    /// Returns whether no field is set.
    fn is_unrestricted(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the selector selects an entry. A selector without any field selects none.
    fn matches(&self, entry: &ContentEntry) -> bool {
        let Self { tenant, client, conversation, before, lines } = self;
        // An entry contains each name truncated to the bound of a text, so the selected name is truncated likewise.
        let is_selected = |selected: &Option<String>, name: &Option<String>| {
            selected.as_deref().is_none_or(|selected| name.as_deref() == Some(&field_text(selected)))
        };
        !self.is_unrestricted()
            && is_selected(tenant, &entry.tenant)
            && is_selected(client, &entry.client)
            && is_selected(conversation, &entry.conversation)
            && before.is_none_or(|before| entry.time < before)
            && lines.as_ref().is_none_or(|lines| lines.contains(&entry.seq))
    }

    /// Returns the fields of the record of a deletion that `who` requested. The selected `lines` are not among them:
    /// the caller adds the lines whose content was deleted.
    pub(super) fn fields(&self, who: &str) -> RecordFields {
        let Self { tenant, client, conversation, before, .. } = self;
        let mut fields = RecordFields::default();
        fields
            .optional_text("tenant", tenant.as_deref())
            .optional_text("client", client.as_deref())
            .optional_text("conversation", conversation.as_deref())
            .text("who", who);
        if let Some(Timestamp(before)) = before {
            fields.number("before", *before);
        }
        fields
    }
}

/// Returns the path of the file of contents of the log in the file `log`.
pub(super) fn content_path(log: &Path) -> PathBuf {
    append_extension(log, "content")
}

/// A new entry, as it is written.
#[derive(Debug)]
pub(super) struct NewContentEntry {
    /// The line of the file of contents, with its line feed.
    pub(super) line: String,
    /// The reference to the entry in the line of the log: the salted hash, and whether the content was truncated.
    pub(super) reference: Value,
}

impl NewContentEntry {
    /// Creates the entry for the event in line `seq` of the log, and the reference to the entry that this line
    /// contains. The reference is a hash of the content and a new random salt. The salt is in the entry and is deleted
    /// with the content, so that nobody can later confirm a guess of the content by the hash. A content that is too
    /// long is truncated, and the reference then has `"cut": true`. With `cipher`, the entry is sealed for its place;
    /// `previous` is the hash of the line before line `seq`.
    ///
    /// # Errors
    /// If the operating system has no random bytes, or the content cannot be encrypted.
    pub(super) fn new(
        (seq, previous): (u64, LineHash),
        time: Timestamp,
        event: &AuditEvent,
        content: &str,
        cipher: Option<&dyn ContentCipher>,
    ) -> Result<Self, AuditErrorKind> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(|_| AuditErrorKind::Random)?;
        let (content, is_cut) = truncate_escaped(content, MAX_CONTENT);
        let mut reference = json!({"salted": LineHash::salted(&salt, &content).to_string()});
        if is_cut && let Some(reference) = reference.as_object_mut() {
            reference.insert("cut".to_owned(), json!(true));
        }
        let entry = ContentEntry {
            seq,
            time: Timestamp(time.clamped()),
            tenant: event.tenant().map(field_text),
            client: event.client().map(field_text),
            conversation: event.conversation().map(field_text),
            body: EntryBody::Plain(OpenedContent { salt, content }),
        };
        Ok(Self { line: entry.sealed(previous, cipher)?.line(), reference })
    }
}

/// An entry of the file of contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentEntry {
    /// The number of the entry's line in the log.
    pub(super) seq: u64,
    time: Timestamp,
    tenant: Option<String>,
    client: Option<String>,
    conversation: Option<String>,
    body: EntryBody,
}

/// The content of an entry with its salt, as the file contains them.
#[derive(Debug, PartialEq, Eq)]
enum EntryBody {
    /// Content and salt are not encrypted.
    Plain(OpenedContent),
    /// Content and salt are encrypted, in the form of the [`ContentCipher`].
    Sealed(String),
}

/// A readable content, with the salt of its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenedContent {
    salt: [u8; 32],
    pub(super) content: String,
}

impl OpenedContent {
    /// Reads the members `salt` and `content` of an object; `None` if one of the two is missing or malformed.
    fn read(value: &Value) -> Option<Self> {
        let salt = parse_hex(value.get("salt")?.as_str()?)?;
        Some(Self { salt, content: value.get("content")?.as_str()?.to_owned() })
    }

    /// Returns the hash that the line of the content has.
    fn hash(&self) -> LineHash {
        LineHash::salted(&self.salt, &self.content)
    }
}

impl ContentEntry {
    /// Parses an entry; `None` if it is malformed.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let value = json::parse(std::str::from_utf8(line).ok()?, Numbers::Exact).ok()?;
        // `None` if the member is missing or malformed, which no writer leaves; `Some(None)` if the event has no such
        // name.
        let name = |name: &str| match value.get(name)? {
            Value::Null => Some(None),
            Value::String(name) => Some(Some(name.clone())),
            _ => None,
        };
        let body = match value.get("sealed") {
            None => EntryBody::Plain(OpenedContent::read(&value)?),
            Some(sealed) => EntryBody::Sealed(sealed.as_str()?.to_owned()),
        };
        Some(Self {
            seq: value.get("seq")?.as_u64()?,
            time: Timestamp(value.get("time")?.as_u64()?),
            tenant: name("tenant")?,
            client: name("client")?,
            conversation: name("conversation")?,
            body,
        })
    }

    /// Returns the line of the entry, with its line feed.
    pub(super) fn line(&self) -> String {
        let Self { seq, time, tenant, client, conversation, body } = self;
        let mut entry = json!({
            "seq": seq, "time": time.0, "tenant": tenant, "client": client, "conversation": conversation,
        });
        if let Some(entry) = entry.as_object_mut() {
            match body {
                EntryBody::Plain(OpenedContent { salt, content }) => {
                    entry.insert("salt".to_owned(), hex(salt).into());
                    entry.insert("content".to_owned(), content.as_str().into());
                }
                EntryBody::Sealed(sealed) => {
                    entry.insert("sealed".to_owned(), sealed.as_str().into());
                }
            }
        }
        format!("{entry}\n")
    }

    /// Returns the place of the entry, to which its sealed content is bound. The place consists of the hash `previous`
    /// of the line before the entry's line, which identifies the entry's line among all logs, and of the other fields of
    /// the entry.
    fn place(&self, previous: LineHash) -> Vec<u8> {
        let Self { seq, time, tenant, client, conversation, .. } = self;
        let place = json!(["audit content", previous.to_string(), seq, time.0, tenant, client, conversation]);
        place.to_string().into_bytes()
    }

    /// Seals a plain content for its place with `cipher`, if there is one. A sealed content stays as it is. `previous`
    /// is the hash of the line before the entry's line in the log.
    ///
    /// # Errors
    /// If the content cannot be encrypted.
    pub(super) fn sealed(
        mut self,
        previous: LineHash,
        cipher: Option<&dyn ContentCipher>,
    ) -> Result<Self, AuditErrorKind> {
        if let (EntryBody::Plain(OpenedContent { salt, content }), Some(cipher)) = (&self.body, cipher) {
            let text = json!({"salt": hex(salt), "content": content}).to_string();
            let sealed = cipher.seal(&text, &self.place(previous)).ok_or(AuditErrorKind::NotSealed)?;
            self.body = EntryBody::Sealed(sealed);
        }
        Ok(self)
    }

    /// Returns the id of the key that sealed the content; `None` if the content is not sealed.
    pub(super) fn sealing_key(&self) -> Option<String> {
        match &self.body {
            EntryBody::Plain(_) => None,
            EntryBody::Sealed(sealed) => Some(content_cipher::key_id(sealed)),
        }
    }

    /// Returns the entry with a readable content: decrypts a sealed content with `cipher`, and leaves a plain one as
    /// it is. `previous` is the hash of the line before the entry's line in the log.
    ///
    /// # Errors
    /// If the content is sealed by another key, or was altered or moved.
    pub(super) fn opened(
        mut self,
        previous: LineHash,
        cipher: &dyn ContentCipher,
    ) -> Result<Self, ContentOpenError> {
        if let EntryBody::Sealed(sealed) = &self.body {
            let text = cipher.open(sealed, &self.place(previous))?;
            let value = json::parse(&text, Numbers::Exact).map_err(|_| ContentOpenError::Altered)?;
            self.body = EntryBody::Plain(OpenedContent::read(&value).ok_or(ContentOpenError::Altered)?);
        }
        Ok(self)
    }

    /// Returns the readable content; `None` if it is sealed.
    pub(super) fn into_content(self) -> Option<String> {
        match self.body {
            EntryBody::Plain(opened) => Some(opened.content),
            EntryBody::Sealed(_) => None,
        }
    }

    /// Returns whether the entry is the content of the line `record`, which contains the salted hash `hash`. The
    /// tenant, the client, the conversation and the time must match as well, since a deletion selects content by them.
    /// The hash of a sealed content is not compared.
    pub(super) fn belongs_to(&self, record: &AuditRecord, hash: LineHash) -> bool {
        let is_equal = |name: &str, value: &Option<String>| record.text(name) == value.as_deref();
        let has_hash = match &self.body {
            EntryBody::Plain(opened) => opened.hash() == hash,
            EntryBody::Sealed(_) => true,
        };
        has_hash
            && self.time == record.time
            && is_equal("tenant", &self.tenant)
            && is_equal("client", &self.client)
            && is_equal("conversation", &self.conversation)
    }
}

/// Opens the file of contents for appending; creates it, for its owner only, if it does not exist.
pub(super) fn open(path: &Path) -> io::Result<File> {
    restrict_to_owner(OpenOptions::new().read(true).append(true).create(true)).open(path)
}

/// Removes the draft that a killed process left behind when it deleted or encrypted contents. `path` is the path of the
/// file of contents.
pub(super) fn remove_draft(path: &Path) -> io::Result<()> {
    remove(&draft_path(path))
}

/// Returns the path of the draft that replaces the file of contents `path`: a deletion copies the entries that stay to
/// the draft, and an encryption of existing contents writes all entries to it.
pub(super) fn draft_path(path: &Path) -> PathBuf {
    append_extension(path, "new")
}

/// Returns the size of the file, in bytes; 0 if there is none.
pub(super) fn file_size(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        metadata => Ok(metadata?.len()),
    }
}

/// Truncates the file of contents after the last entry whose line the log contains. The removed entries belong to lines
/// that were never written: to the line `next`, which the log writes next, or to a later one. A partial last entry is
/// removed as well. Reads the entries backwards, so the time does not depend on the length of the file.
pub(super) fn repair(path: &Path, next: u64) -> io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let length = file.metadata()?.len();
    let mut new_length = tail::after_last_line_feed(&mut file, length)?;
    while new_length > 0 {
        // The byte before `new_length` is the line feed of the last entry.
        let entry_start = tail::after_last_line_feed(&mut file, new_length - 1)?;
        file.seek(SeekFrom::Start(entry_start))?;
        let mut lines = BoundedLines::new(BufReader::new(&file), MAX_ENTRY);
        match lines.next()? {
            NextLine::Line(line) if ContentEntry::read(line).is_some_and(|entry| entry.seq >= next) => {
                new_length = entry_start
            }
            // An entry of a recorded line, or one that cannot be read: this entry and all before it stay.
            _ => break,
        }
    }
    if new_length < length {
        file.set_len(new_length)?;
        file.sync_all()?;
    }
    Ok(())
}

/// A deletion in progress: copies the entries that stay to a draft, which replaces the file at the end.
///
/// The log may append entries to the file while a large file is copied; a later call of [`Self::copy_until`] copies
/// these entries as well.
#[derive(Debug)]
pub(super) struct ContentDeletion<'a> {
    path: &'a Path,
    draft: PathBuf,
    /// The entries to delete.
    selector: &'a ContentSelector,
    writer: BufWriter<File>,
    /// The number of bytes of the file that were copied or left out so far.
    copied: u64,
    /// The number of lines in these bytes.
    lines: u64,
    /// The numbers of the deleted entries' lines in the log.
    deleted: Vec<u64>,
}

impl<'a> ContentDeletion<'a> {
    /// Creates the draft to which [`Self::copy_until`] copies the entries that `selector` does not select.
    /// [`Self::finish`] replaces the file of contents by the draft.
    pub(super) fn begin(path: &'a Path, selector: &'a ContentSelector) -> Result<Self, AuditError> {
        let draft = draft_path(path);
        let file = restrict_to_owner(OpenOptions::new().write(true).create(true).truncate(true)).open(&draft);
        let file = file.map_err(|error| AuditError::new(&draft, AuditErrorKind::Write(error)))?;
        Ok(Self {
            path,
            draft,
            selector,
            writer: BufWriter::new(file),
            copied: 0,
            lines: 0,
            deleted: Vec::new(),
        })
    }

    /// Continues the copy up to the byte `end` of the file: copies the entries that stay, notes the selected ones, and
    /// syncs the draft to disk. Fails at an entry that cannot be parsed. Does nothing if everything up to `end` was
    /// copied before.
    pub(super) fn copy_until(&mut self, end: u64) -> Result<(), AuditError> {
        if end <= self.copied {
            return Ok(());
        }
        let read = |error| AuditError::new(self.path, AuditErrorKind::Read(error));
        let write = |error| AuditError::new(&self.draft, AuditErrorKind::Write(error));
        let mut file = File::open(self.path).map_err(read)?;
        file.seek(SeekFrom::Start(self.copied)).map_err(read)?;
        let part = file.take(end - self.copied);
        let mut lines = BoundedLines::new(BufReader::new(part), MAX_ENTRY);
        loop {
            self.lines += 1;
            let unreadable = || AuditError::new(self.path, AuditErrorKind::Content(self.lines));
            let line = match lines.next().map_err(read)? {
                NextLine::End => break,
                NextLine::Line(line) => line,
                NextLine::Torn | NextLine::Long => return Err(unreadable()),
            };
            // An unreadable entry could be one that must be deleted.
            let entry = ContentEntry::read(line).ok_or_else(unreadable)?;
            if self.selector.matches(&entry) {
                self.deleted.push(entry.seq);
            } else {
                self.writer.write_all(line).and_then(|()| self.writer.write_all(b"\n")).map_err(write)?;
            }
        }
        // The loop has also counted the end of the part, which is no line.
        self.lines -= 1;
        self.copied = end;
        self.writer.flush().and_then(|()| self.writer.get_ref().sync_all()).map_err(write)
    }

    /// Replaces the file of contents by the draft, which lacks the deleted entries. Returns the numbers of the lines in
    /// the log that these entries belonged to.
    pub(super) fn finish(self) -> Result<Vec<u64>, AuditError> {
        let Self { path, draft, deleted, .. } = self;
        let replaced = fs::rename(&draft, path).and_then(|()| sync_folder(path));
        replaced.map_err(|error| AuditError::new(&draft, AuditErrorKind::Write(error)))?;
        Ok(deleted)
    }
}

/// Returns the time of the first entry in a file of contents, which is the oldest; `None` if there is no entry. The
/// time is 0 if the first entry cannot be read, so that it counts as expired.
pub(super) fn oldest_entry_time(path: &Path) -> io::Result<Option<Timestamp>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut lines = BoundedLines::new(BufReader::new(file), MAX_ENTRY);
    Ok(match lines.next()? {
        NextLine::End => None,
        // An unreadable entry could be old. The deletion that follows reports the problem.
        NextLine::Line(line) => Some(ContentEntry::read(line).map_or(Timestamp(0), |entry| entry.time)),
        NextLine::Torn | NextLine::Long => Some(Timestamp(0)),
    })
}

/// Removes a file. A file that does not exist is no error.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::{TestFolder, withheld};

    /// Deletes entries of a file that does not grow.
    fn forget(path: &Path, selector: &ContentSelector) -> Result<Vec<u64>, AuditError> {
        let mut deletion = ContentDeletion::begin(path, selector)?;
        deletion.copy_until(file_size(path).unwrap())?;
        deletion.finish()
    }

    fn new_entry(seq: u64, time: Timestamp, conversation: &str, content: &str) -> NewContentEntry {
        NewContentEntry::new((seq, LineHash::NONE), time, &withheld(conversation), content, None).unwrap()
    }

    fn entry(seq: u64, conversation: &str, content: &str) -> String {
        new_entry(seq, Timestamp(seq * 10), conversation, content).line
    }

    #[test]
    fn an_entry_has_the_hash_of_its_line() {
        let check = |content: &str, is_cut: bool| {
            let entry = new_entry(3, Timestamp(9), "c1", content);
            let found = ContentEntry::read(entry.line.trim_end().as_bytes()).unwrap();
            let EntryBody::Plain(opened) = &found.body else { panic!("{found:?}") };
            assert_eq!(entry.reference["salted"], opened.hash().to_string());
            assert_eq!(entry.reference.get("cut").is_some(), is_cut);
            let selector = [found.tenant, found.client, found.conversation].map(Option::unwrap);
            assert_eq!(
                (found.seq, found.time, selector),
                (3, Timestamp(9), ["acme", "agent", "c1"].map(str::to_owned))
            );
            assert!(entry.line.len() <= MAX_ENTRY);
        };
        check("", false);
        check("pay\n{\"a\":1}", false);
        check(&"\u{1}".repeat(MAX_CONTENT), true);
        // Trying every content does not reveal the entry from its mark: each mark has its own salt.
        let reference = || new_entry(3, Timestamp(9), "c1", "yes").reference["salted"].to_string();
        assert_ne!(reference(), reference());
    }

    #[test]
    fn entries_without_a_line_are_removed() {
        let folder = TestFolder::new("repair");
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
    fn only_selected_contents_are_deleted() {
        let folder = TestFolder::new("forget");
        let lines = [entry(1, "c1", "a"), entry(2, "c2", "b"), entry(3, "c1", "c")];
        let check = |name: &str, selector: ContentSelector, expected: &[u64]| {
            let path = folder.file(name);
            std::fs::write(&path, lines.concat()).unwrap();
            assert_eq!(forget(&path, &selector).unwrap(), expected, "{name}");
            let kept = std::fs::read_to_string(&path).unwrap();
            let rest = lines.iter().zip(1..).filter(|(_, seq)| !expected.contains(seq));
            assert_eq!(kept, rest.map(|(line, _)| line.as_str()).collect::<String>(), "{name}");
            assert!(!append_extension(&path, "new").exists());
        };
        let none = ContentSelector::default;
        let some = |name: &str| Some(name.to_owned());
        check("nothing", none(), &[]);
        check("conversation", ContentSelector { conversation: some("c1"), ..none() }, &[1, 3]);
        check("client", ContentSelector { client: some("agent"), ..none() }, &[1, 2, 3]);
        check("tenant", ContentSelector { tenant: some("acme"), ..none() }, &[1, 2, 3]);
        check(
            "other-client",
            ContentSelector { client: some("other"), conversation: some("c1"), ..none() },
            &[],
        );
        check(
            "other-tenant",
            ContentSelector { tenant: some("other"), client: some("agent"), ..none() },
            &[],
        );
        check("before", ContentSelector { before: Some(Timestamp(20)), ..none() }, &[1]);
        check("lines", ContentSelector { lines: Some([2, 3, 9].into()), ..none() }, &[2, 3]);
        check("nobody", ContentSelector { conversation: some("c"), ..none() }, &[]);
        let path = folder.file("strange");
        std::fs::write(&path, format!("{}what\n", lines[0])).unwrap();
        let error =
            forget(&path, &ContentSelector { lines: Some([1].into()), ..none() }).unwrap_err().to_string();
        assert!(error.ends_with(
            "line 2 of the file of contents is not a valid entry, since it was changed, or another program wrote it: remove the line, and try again"
        ));
        assert_eq!(oldest_entry_time(&path).unwrap(), Some(Timestamp(10)));
        assert_eq!(oldest_entry_time(&folder.file("none")).unwrap(), None);
    }

    /// Entries that are written during a deletion are deleted or kept like those before.
    #[test]
    fn a_file_may_grow_while_entries_are_deleted() {
        let folder = TestFolder::new("grows");
        let path = folder.file("grows");
        let selector = ContentSelector { conversation: Some("c1".to_owned()), ..ContentSelector::default() };
        let lines = [entry(1, "c1", "a"), entry(2, "c2", "b"), entry(3, "c1", "c"), entry(4, "c2", "d")];
        std::fs::write(&path, lines[..2].concat()).unwrap();
        let mut deletion = ContentDeletion::begin(&path, &selector).unwrap();
        deletion.copy_until(file_size(&path).unwrap()).unwrap();
        open(&path).unwrap().write_all(lines[2..].concat().as_bytes()).unwrap();
        deletion.copy_until(file_size(&path).unwrap()).unwrap();
        assert_eq!(deletion.finish().unwrap(), [1, 3]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), [&*lines[1], &*lines[3]].concat());
        open(&path).unwrap().write_all(b"what\n").unwrap();
        let mut deletion = ContentDeletion::begin(&path, &selector).unwrap();
        deletion.copy_until(u64::try_from(lines[1].len() + lines[3].len()).unwrap()).unwrap();
        let error = deletion.copy_until(file_size(&path).unwrap()).unwrap_err().to_string();
        assert!(error.contains("line 3 of the file of contents"), "{error}");
    }
}
