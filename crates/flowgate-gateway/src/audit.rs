//! The audit log: a file to which is added what the gateway judged, asked and was told, and in which nothing can be changed unseen.
//!
//! Every line is a JSON object with the hash of the line before. Heads, every few lines, sign all that stands before them. Content
//! is in no line: if it is kept, it is in a file of its own and can be deleted, and the log stays whole. What a log can show and
//! what it cannot: `docs/audit.md`.
//!
//! * [`Event`]: what is recorded.
//! * [`Log`]: where it is recorded. After a write that failed it takes nothing more until there is room again.
//! * [`verify()`]: whether a log is what was written.
//! * `record`: one line. `chain`: hashes and heads. `key`: who signs. `content`: what is kept beside the log. [`Sidecar`]: what is
//!   left of it. `tail`: where a log
//!   that was closed, or whose process was killed, goes on. [`Anchors`]: what a database knows of logs.

mod anchor;
mod chain;
mod content;
mod event;
mod failure;
mod key;
mod lines;
mod record;
mod sidecar;
mod tail;
mod verify;

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

pub use anchor::{Anchor, Anchors, Loss, Past};
pub use chain::{Hash, Head};
pub use content::Forget;
pub use event::{Answer, Event, Judged, Phase, Switch};
pub use failure::{AuditError, Failure};
pub use key::{Key, PublicKey};
pub use record::{Flaw, Record, Time};
pub use sidecar::{Said, Sidecar};
pub use verify::{Contents, Expected, Problem, Records, Summary, What, verify};

use content::Entry;
use record::Fields;

/// Who has content deleted that is too old.
const RETENTION: &str = "retention";
/// How many numbers of lines one record names.
const MAX_NAMED: usize = 256;

/// How a log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// After how many lines there is a head.
    pub every: u64,
    /// What is on the disk before it counts as recorded.
    pub sync: Sync,
    /// Whether content is kept.
    pub content: Content,
}

impl Default for Options {
    fn default() -> Self {
        Self { every: 64, sync: Sync::Decisions, content: Content::Dropped }
    }
}

/// What is on the disk before it counts as recorded. The rest is there as soon as the system writes it: it outlives the process,
/// but not a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sync {
    /// Heads, with all that stands before them.
    Heads,
    /// Also what people decided.
    Decisions,
    /// Everything.
    Everything,
}

/// Whether content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// No.
    Dropped,
    /// Beside the log, in `FILE.content`.
    Kept,
}

/// A log that is open. Several threads may use it; nobody else appends to its file meanwhile.
///
/// ```
/// use flowgate_gateway::audit::{Event, Expected, Key, Log, Options, Switch, Time, verify};
///
/// # let folder = std::env::temp_dir().join(format!("flowgate-audit-example-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let key = Key::load_or_create(&folder.join("audit.key"))?;
/// let log = Log::open(&folder.join("audit.jsonl"), key, Options::default(), Time::now())?;
/// let stop = Event::KillSwitch { what: "everything".into(), who: "ann".into(), state: Switch::Set };
/// log.append(Time::now(), &stop)?;
/// let head = log.close(Time::now())?;
///
/// let mut file = std::io::BufReader::new(std::fs::File::open(folder.join("audit.jsonl"))?);
/// let expected = Expected { hash: Some(head.hash), ..Expected::default() };
/// assert_eq!(verify(&mut file, &expected, None)?.lines, 4);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    id: Hash,
    key: PublicKey,
    end: Arc<End>,
    inner: Mutex<Inner>,
}

/// The last line of a log that is open, for whoever does not want to wait for it.
#[derive(Debug)]
pub struct End(Mutex<Head>);

impl End {
    /// The last line that was written.
    pub fn get(&self) -> Head {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, head: Head) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = head;
    }
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    /// The file of contents, once something was written to it.
    contents: Option<File>,
    key: Key,
    options: Options,
    next: u64,
    previous: Hash,
    /// The last head of this opening, and the lines behind it.
    head: Option<Head>,
    unsigned: u64,
    latest: Time,
    end: Arc<End>,
    /// The bytes of complete lines.
    length: u64,
    failed: Option<Failed>,
    /// Held as long as the log is open.
    _lock: File,
}

/// What has failed since the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// A write: the file may end in a part of a line.
    Write,
    /// To bring what was written to the disk: nobody knows what is there.
    Sync,
}

impl Log {
    /// Opens a log, or begins one. The opening is recorded and signed.
    ///
    /// A line that was not written to its end is moved to `FILE.torn-NUMBER`, and the record of the opening says so.
    ///
    /// # Errors
    /// If another process has it open, if its end does not follow from what stands before, if it was begun with another key, or
    /// if it cannot be read and written.
    pub fn open(path: &Path, key: Key, options: Options, time: Time) -> Result<Self, AuditError> {
        Self::open_after(path, key, options, time, |_| Ok(None))
    }

    /// Opens a log, or begins one, unless `check` finds that something was lost: then nothing is written.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Failure::Loss`].
    pub fn open_after(
        path: &Path,
        key: Key,
        options: Options,
        time: Time,
        check: impl FnOnce(&mut Past<'_>) -> Result<Option<Loss>, Failure>,
    ) -> Result<Self, AuditError> {
        let failed = |failure| AuditError::new(path, failure);
        let write = |error| failed(Failure::Write(error));
        let lock = lock(path)?;
        let mut file =
            private(OpenOptions::new().read(true).append(true).create(true)).open(path).map_err(write)?;
        let end = tail::find(&mut file, &key.public()).map_err(failed)?;
        if let Some(loss) = check(&mut Past::new(&mut file, &end, key.public())).map_err(failed)? {
            return Err(failed(Failure::Loss(Box::new(loss))));
        }
        let torn = set_aside(path, &mut file, end.whole, end.next).map_err(write)?;
        let contents = content::path(path);
        content::repair(&contents, end.next)
            .map_err(|error| AuditError::new(&contents, Failure::Write(error)))?;
        sync_folder(path).map_err(write)?;
        let mut opened = Fields::default();
        opened
            .value("format", json!(verify::FORMAT))
            .text("version", env!("CARGO_PKG_VERSION"))
            .text("key", &key.public().to_string())
            .number("unsigned", end.unsigned)
            .some("torn", torn.as_deref());
        let mut inner = Inner {
            path: path.to_owned(),
            file,
            contents: None,
            key,
            options,
            next: end.next,
            previous: end.previous,
            head: None,
            unsigned: end.unsigned,
            latest: time,
            end: Arc::new(End(Mutex::new(Head { seq: 0, hash: Hash::NONE }))),
            length: end.whole,
            failed: None,
            _lock: lock,
        };
        inner.record(time, verify::OPENED, opened)?;
        inner.seal(time)?;
        let (key, end) = (inner.key.public(), Arc::clone(&inner.end));
        let whole =
            tail::End { next: inner.next, previous: inner.previous, unsigned: 0, whole: inner.length };
        let mut written = File::open(path).map_err(|error| failed(Failure::Read(error)))?;
        let id = Past::new(&mut written, &whole, key).id().map_err(failed)?.unwrap_or(Hash::NONE);
        Ok(Self { path: path.to_owned(), id, key, end, inner: Mutex::new(inner) })
    }

    /// Which log it is: the hash of its first line.
    pub fn id(&self) -> Hash {
        self.id
    }

    /// The key that signs it.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Its last line, now and later.
    pub fn end(&self) -> Arc<End> {
        Arc::clone(&self.end)
    }

    /// Records an event; gives the number of its line. When this returns, the line is in the file.
    ///
    /// # Errors
    /// If it cannot be written. Then nothing is recorded until there is room again.
    pub fn append(&self, time: Time, event: &Event) -> Result<u64, AuditError> {
        self.inner()?.append(time, event, None)
    }

    /// Records an event with what was said or called. Without [`Content::Kept`], the content is dropped.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_with(&self, time: Time, event: &Event, content: &str) -> Result<u64, AuditError> {
        self.inner()?.append(time, event, Some(content))
    }

    /// Signs what was recorded, and waits until it is on the disk. Whoever keeps the head elsewhere can tell later whether the log
    /// was cut off before it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn seal(&self, time: Time) -> Result<Head, AuditError> {
        self.inner()?.seal(time)
    }

    /// Deletes content, and records who had it deleted; gives how many there were. The lines stay, and so does every hash.
    ///
    /// # Errors
    /// If the contents cannot be read or written anew: then nothing was deleted. Or if that cannot be recorded: then it was, and
    /// nothing is recorded until there is room again.
    pub fn forget(&self, time: Time, whose: &Forget, who: &str) -> Result<u64, AuditError> {
        self.inner()?.forget(time, whose, who)
    }

    /// Deletes what was written before `before`, and records that if there was any.
    ///
    /// # Errors
    /// As [`forget`](Self::forget).
    pub fn expire(&self, time: Time, before: Time) -> Result<u64, AuditError> {
        let mut inner = self.inner()?;
        let contents = content::path(&self.path);
        let oldest = content::oldest(&contents);
        let oldest = oldest.map_err(|error| AuditError::new(&contents, Failure::Read(error)))?;
        if oldest.is_none_or(|oldest| oldest >= before) {
            return Ok(0);
        }
        inner.forget(time, &Forget { before: Some(before), ..Forget::default() }, RETENTION)
    }

    /// Signs what was recorded, and lets go of the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn close(self, time: Time) -> Result<Head, AuditError> {
        self.inner()?.seal(time)
    }

    /// Whether something can be recorded now, as far as is known: what failed to be written is tried again.
    pub fn is_writable(&self) -> bool {
        self.inner().is_ok_and(|mut inner| inner.is_whole().is_ok())
    }

    fn inner(&self) -> Result<MutexGuard<'_, Inner>, AuditError> {
        // Whoever broke off while it was held may have left it half done.
        self.inner.lock().map_err(|_| AuditError::new(&self.path, Failure::Broken))
    }
}

impl Inner {
    fn append(&mut self, time: Time, event: &Event, content: Option<&str>) -> Result<u64, AuditError> {
        self.is_whole()?;
        let mut fields = event.fields();
        if let Some(content) = content.filter(|_| self.options.content == Content::Kept) {
            let entry = Entry::new(self.next, time, event, content)
                .map_err(|failure| AuditError::new(&self.path, failure))?;
            self.keep(&entry)?;
            fields.value("content", entry.mark);
        }
        let seq = self.record(time, event.kind(), fields)?;
        if self.unsigned >= self.options.every.max(1) {
            self.seal(time)?;
        } else if self.options.sync == Sync::Everything
            || (self.options.sync == Sync::Decisions && event.is_decision())
        {
            self.sync()?;
        }
        Ok(seq)
    }

    fn seal(&mut self, time: Time) -> Result<Head, AuditError> {
        self.is_whole()?;
        if let Some(head) = self.head.filter(|_| self.unsigned == 0) {
            return Ok(head);
        }
        let line = chain::head(self.next, time, self.previous, &self.key);
        let seq = self.write(line)?;
        self.sync()?;
        let head = Head { seq, hash: self.previous };
        (self.head, self.unsigned, self.latest) = (Some(head), 0, time);
        Ok(head)
    }

    fn forget(&mut self, time: Time, whose: &Forget, who: &str) -> Result<u64, AuditError> {
        self.is_whole()?;
        // What is written from now on goes to the new file.
        self.contents = None;
        let gone = content::forget(&content::path(&self.path), whose)?;
        let count = |lines: &[u64]| u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let none: &[u64] = &[];
        let parts: Vec<&[u64]> = if gone.is_empty() { vec![none] } else { gone.chunks(MAX_NAMED).collect() };
        for part in parts {
            let mut fields = whose.fields(who);
            fields.number("count", count(part)).value("lines", json!(part));
            self.record(time, verify::FORGOTTEN, fields)?;
        }
        self.seal(time)?;
        Ok(count(&gone))
    }

    fn keep(&mut self, entry: &Entry) -> Result<(), AuditError> {
        let path = content::path(&self.path);
        let written = match self.contents.take() {
            Some(file) => Ok(file),
            None => content::open(&path),
        };
        let written = written.and_then(|mut file| file.write_all(entry.line.as_bytes()).map(|()| file));
        self.contents = Some(written.map_err(|error| self.broken(&path, error, Failed::Write))?);
        Ok(())
    }

    fn record(&mut self, time: Time, kind: &str, fields: Fields) -> Result<u64, AuditError> {
        let seq = self.write(record::line(self.next, time, kind, self.previous, fields))?;
        self.unsigned += 1;
        self.latest = time;
        Ok(seq)
    }

    /// Writes a line at once, so that a process that is killed leaves at most one that is torn.
    fn write(&mut self, mut line: String) -> Result<u64, AuditError> {
        let (seq, hash) = (self.next, Hash::of(line.as_bytes()));
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            return Err(self.broken(&self.path.clone(), error, Failed::Write));
        }
        self.length = self.length.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        self.next = seq.saturating_add(1);
        self.previous = hash;
        self.end.set(Head { seq, hash });
        Ok(seq)
    }

    fn sync(&mut self) -> Result<(), AuditError> {
        if let Some(Err(error)) = self.contents.as_ref().map(File::sync_data) {
            return Err(self.broken(&content::path(&self.path), error, Failed::Sync));
        }
        let synced = self.file.sync_data();
        synced.map_err(|error| self.broken(&self.path.clone(), error, Failed::Sync))
    }

    fn broken(&mut self, path: &Path, error: io::Error, failed: Failed) -> AuditError {
        self.failed = Some(failed);
        AuditError::new(path, Failure::Write(error))
    }

    /// Whether something can be recorded. What a write that failed has left is taken away first.
    fn is_whole(&mut self) -> Result<(), AuditError> {
        match self.failed {
            None => Ok(()),
            Some(Failed::Sync) => Err(AuditError::new(&self.path, Failure::Broken)),
            Some(Failed::Write) => {
                self.repair().map_err(|error| AuditError::new(&self.path, Failure::Write(error)))
            }
        }
    }

    fn repair(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() < self.length {
            return Err(io::Error::other("the file is shorter than what was written to it"));
        }
        self.file.set_len(self.length)?;
        self.contents = None;
        content::repair(&content::path(&self.path), self.next)?;
        self.failed = None;
        Ok(())
    }
}

impl Drop for Inner {
    /// A log that is let go without being closed is signed all the same.
    fn drop(&mut self) {
        let _ = self.seal(self.latest);
    }
}

/// Keeps other processes from appending to a log.
fn lock(path: &Path) -> Result<File, AuditError> {
    let path = &beside(path, "lock");
    let failed = |failure| AuditError::new(path, failure);
    let options = private(OpenOptions::new().write(true).create(true));
    let file = options.open(path).map_err(|error| failed(Failure::Write(error)))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed(Failure::Locked)),
        Err(TryLockError::Error(error)) => Err(failed(Failure::Write(error))),
    }
}

/// Moves what stands behind the last whole line to a file of its own; gives its name.
fn set_aside(path: &Path, file: &mut File, whole: u64, next: u64) -> io::Result<Option<String>> {
    let length = file.metadata()?.len();
    if length <= whole {
        return Ok(None);
    }
    for attempt in 0..u32::MAX {
        let again = if attempt == 0 { String::new() } else { format!(".{attempt}") };
        let aside = beside(path, &format!("torn-{next}{again}"));
        let mut copy = match private(OpenOptions::new().write(true).create_new(true)).open(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            copy => copy?,
        };
        file.seek(SeekFrom::Start(whole))?;
        io::copy(&mut Read::take(&mut *file, length - whole), &mut copy)?;
        copy.sync_all()?;
        sync_folder(path)?;
        // Only now: nothing is dropped that stands nowhere else.
        file.set_len(whole)?;
        file.sync_all()?;
        return Ok(aside.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The file that has the name of another, and a dot and `end` behind it.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

/// Of a file that is made, only its owner can read and write it.
fn private(options: &mut OpenOptions) -> OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.clone()
}

/// Waits until the names of the files in the folder of `path` are on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

#[cfg(test)]
mod tests;
