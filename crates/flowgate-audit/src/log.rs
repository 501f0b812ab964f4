//! Writes the audit log: [`AuditLog`] appends lines and heads to the file, keeps content in a file next to it, and
//! repairs both after a failed write. The gateway's recorder owns the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use crate::anchor::UnopenedLog;
use crate::chain::{self, LogHead};
use crate::content::{self, ContentDeletion, ContentSelector, NewContentEntry};
use crate::content_cipher::ContentCipher;
use crate::error::{AuditError, AuditErrorKind};
use crate::event::AuditEvent;
use crate::key::{AuditKey, AuditPublicKey};
use crate::line_hash::LineHash;
use crate::log_files::{lock, restrict_to_owner, set_aside, sync_folder};
use crate::loss::AuditLoss;
use crate::record::{self, RecordFields, Timestamp};
use crate::record_kind::RecordKind;
use crate::tail;
use crate::verify;
use crate::witness::{AcceptedLoss, WitnessLine};

/// The principal in records of the deletion of expired content.
const RETENTION: &str = "retention";
/// The maximum number of line numbers in one record of a deletion.
const MAX_NAMED: usize = 256;

/// The settings of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// The number of lines between heads.
    pub every: u64,
    /// The records that are synced to disk before they count as recorded.
    pub sync: SyncPolicy,
    /// Whether content is kept.
    pub content: ContentRetention,
}

impl Default for AuditOptions {
    /// Returns the settings without content: a head after every 64 lines, and people's decisions synced at once.
    fn default() -> Self {
        Self { every: 64, sync: SyncPolicy::Decisions, content: ContentRetention::Dropped }
    }
}

/// The records that are synced to disk before they count as recorded. The operating system writes the other records to
/// the disk at a later time: they survive the end of the process, but perhaps not a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// Heads, with everything before them.
    Heads,
    /// Also people's decisions.
    Decisions,
    /// Every record.
    Everything,
}

/// Whether content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentRetention {
    /// Content is dropped.
    Dropped,
    /// Content is kept next to the log, in `FILE.content`.
    Kept,
}

/// An open log. Threads may share it; a lock file keeps other processes from appending to it.
///
/// ```
/// use flowgate_audit::{AuditEvent, LogExpectations, AuditKey, AuditLog, AuditOptions, FreezeSwitch, Timestamp, verify};
///
/// # let folder = std::env::temp_dir().join(format!("flowgate-audit-example-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let key = AuditKey::load_or_create(&folder.join("audit.key"))?;
/// let log = AuditLog::open(&folder.join("audit.jsonl"), key, AuditOptions::default(), Timestamp::now())?;
/// let stop = AuditEvent::KillSwitch { what: "everything".into(), who: "ann".into(), state: FreezeSwitch::Set };
/// log.append(Timestamp::now(), &stop)?;
/// let head = log.close(Timestamp::now())?;
///
/// let mut file = std::io::BufReader::new(std::fs::File::open(folder.join("audit.jsonl"))?);
/// let expected = LogExpectations { hash: Some(head.hash), ..LogExpectations::default() };
/// assert_eq!(verify(&mut file, &expected, None)?.lines, 4);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    /// The identity of the log: the hash of its first line.
    id: LineHash,
    /// The public half of the signing key.
    key: AuditPublicKey,
    /// The last line, shared with the handles of [`Self::last_line`].
    end: Arc<LastLineHandle>,
    inner: Mutex<AuditLogState>,
    /// Held while content is deleted: one deletion at a time.
    deletion: Mutex<()>,
}

/// The last line of an open log, readable without waiting for the log's lock.
#[derive(Debug)]
pub struct LastLineHandle(Mutex<LogHead>);

impl LastLineHandle {
    /// Returns the number and hash of the last line.
    pub fn get(&self) -> LogHead {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the number and hash of a line that was written: it is now the last line.
    fn set(&self, head: LogHead) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = head;
    }
}

/// The state of an open log, under its lock.
#[derive(Debug)]
struct AuditLogState {
    path: PathBuf,
    file: File,
    /// The file of contents, once one was written since the log was opened.
    contents: Option<File>,
    /// The cipher that seals contents; `None` if they are written as they are.
    cipher: Option<Arc<dyn ContentCipher>>,
    key: AuditKey,
    options: AuditOptions,
    /// The number of the next line.
    next: u64,
    /// The hash of the last line.
    previous: LineHash,
    /// The last head since the log was opened.
    head: Option<LogHead>,
    /// The number of lines after the last head.
    unsigned: u64,
    /// The time of the last line.
    latest: Timestamp,
    /// The last line, for readers that do not wait for the lock.
    end: Arc<LastLineHandle>,
    /// The size of the complete lines, in bytes.
    length: u64,
    /// The failure that was not repaired yet, if there is one.
    failed: Option<FailedOperation>,
    /// The lock file, held as long as the log is open.
    _lock: File,
}

/// The kind of a failure that prevents further writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedOperation {
    /// A write failed: the file may end in a partial line, which is removed before the next write.
    Write,
    /// A sync failed: it is unknown what is on the disk, so the log stays unwritable until it is opened again.
    Sync,
}

impl AuditLog {
    /// Opens a log, or creates one. Writes a record of the opening with the time `time`, and a signed head. Unlike
    /// [`open_after`](Self::open_after), compares the log with no record of a database or a witness.
    ///
    /// A partial last line is moved to `FILE.torn-NUMBER`, and the record of the opening names that file.
    ///
    /// # Errors
    /// Fails if another process has the log open, if its end does not continue its chain, if it was created with
    /// another key, or if it cannot be read and written.
    pub fn open(
        path: &Path,
        key: AuditKey,
        options: AuditOptions,
        time: Timestamp,
    ) -> Result<Self, AuditError> {
        Self::open_after(path, key, options, time, |_| Ok(None))
    }

    /// Opens a log, or creates one, after `check` has compared the existing file with what a database or a witness has
    /// recorded. If `check` returns a loss, no line is written, and the loss is the error. Otherwise moves a partial
    /// line aside, as [`open`](Self::open) describes, removes entries of contents that have no line, and records and
    /// signs the opening.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), any error of `check`, and [`AuditErrorKind::Loss`].
    pub fn open_after(
        path: &Path,
        key: AuditKey,
        options: AuditOptions,
        time: Timestamp,
        check: impl FnOnce(&mut UnopenedLog<'_>) -> Result<Option<AuditLoss>, AuditErrorKind>,
    ) -> Result<Self, AuditError> {
        let failed = |failure| AuditError::new(path, failure);
        let write = |error| failed(AuditErrorKind::Write(error));
        let lock = lock(path)?;
        let mut file = restrict_to_owner(OpenOptions::new().read(true).append(true).create(true))
            .open(path)
            .map_err(write)?;
        let end = tail::find(&mut file, &key.public_key()).map_err(failed)?;
        if let Some(loss) = check(&mut UnopenedLog::new(&mut file, &end, key.public_key())).map_err(failed)? {
            return Err(failed(AuditErrorKind::Loss(Box::new(loss))));
        }
        // A process that was killed may have left a partial line, and entries of contents without a line.
        let torn = set_aside(path, &mut file, end.whole, end.next).map_err(write)?;
        let contents = content::content_path(path);
        content::remove_draft(&contents)
            .and_then(|()| content::repair(&contents, end.next))
            .map_err(|error| AuditError::new(&contents, AuditErrorKind::Write(error)))?;
        sync_folder(path).map_err(write)?;
        // The fields of the line that records this opening. A head follows at once: its signature proves that the
        // writer has the key.
        let mut opened = RecordFields::default();
        opened
            .value("format", json!(verify::FORMAT))
            .text("version", env!("CARGO_PKG_VERSION"))
            .text("key", &key.public_key().to_string())
            // The number of lines that the previous process wrote after its last head.
            .number("unsigned", end.unsigned)
            .optional_text("torn", torn.as_deref());
        let mut inner = AuditLogState {
            path: path.to_owned(),
            file,
            contents: None,
            cipher: None,
            key,
            options,
            next: end.next,
            previous: end.previous,
            head: None,
            unsigned: end.unsigned,
            latest: time,
            // A placeholder: recording the opening, below, replaces it.
            end: Arc::new(LastLineHandle(Mutex::new(LogHead { seq: 0, hash: LineHash::NONE }))),
            length: end.whole,
            failed: None,
            _lock: lock,
        };
        inner.record(time, &RecordKind::Opened, opened)?;
        inner.sign_head(time)?;
        let (key, end) = (inner.key.public_key(), Arc::clone(&inner.end));
        // A new log has its first line, and therefore an id, only now.
        let id = Self::id_of_opened(path, &inner)?;
        Ok(Self { path: path.to_owned(), id, key, end, inner: Mutex::new(inner), deletion: Mutex::new(()) })
    }

    /// Returns the id of a log whose opening was recorded: the hash of its first line.
    fn id_of_opened(path: &Path, state: &AuditLogState) -> Result<LineHash, AuditError> {
        let failed = |failure| AuditError::new(path, failure);
        // `UnopenedLog` does not use `previous` and `unsigned`.
        let end =
            tail::LogTail { next: state.next, previous: state.previous, unsigned: 0, whole: state.length };
        let mut file = File::open(path).map_err(|error| failed(AuditErrorKind::Read(error)))?;
        let id = UnopenedLog::new(&mut file, &end, state.key.public_key()).id().map_err(failed)?;
        Ok(id.unwrap_or(LineHash::NONE))
    }

    /// Returns the identity of the log: the hash of its first line.
    pub fn id(&self) -> LineHash {
        self.id
    }

    /// Returns the public key that verifies its signatures.
    pub fn key(&self) -> AuditPublicKey {
        self.key
    }

    /// Returns a handle that gives the log's last line at any later time, without waiting for the log's lock.
    pub fn last_line(&self) -> Arc<LastLineHandle> {
        Arc::clone(&self.end)
    }

    /// Encrypts the contents that are written from now on. Contents that were written before stay as they are, until
    /// [`seal_contents`](crate::seal_contents) encrypts them.
    ///
    /// # Errors
    /// Fails if the log is unwritable since a thread has panicked.
    pub fn encrypt_contents(&self, cipher: Arc<dyn ContentCipher>) -> Result<(), AuditError> {
        self.state()?.cipher = Some(cipher);
        Ok(())
    }

    /// Records an event and returns the number of its line. The line is in the file when this function returns.
    ///
    /// # Errors
    /// Fails if the line cannot be written; nothing is recorded then until the file can be written again. Fails also
    /// if the line cannot be synced to disk; nothing is recorded then until the log is opened again.
    pub fn append(&self, time: Timestamp, event: &AuditEvent) -> Result<u64, AuditError> {
        self.state()?.append(time, event, None)
    }

    /// Records an event with its content. Without [`ContentRetention::Kept`], the content is dropped.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub fn append_with(&self, time: Timestamp, event: &AuditEvent, content: &str) -> Result<u64, AuditError> {
        self.state()?.append(time, event, Some(content))
    }

    /// Signs everything recorded so far, and syncs it to disk. A party that keeps the head elsewhere can detect later
    /// that the log was truncated before it.
    ///
    /// # Errors
    /// Fails if the head cannot be written.
    pub fn sign_head(&self, time: Timestamp) -> Result<LogHead, AuditError> {
        self.state()?.sign_head(time)
    }

    /// Signs everything recorded so far. Returns the head, and the signed line that a witness receives for it.
    /// `gives_up` names lines, of this log or of an earlier one with the same key, that the operator has declared
    /// lost; the witness then does not expect them any longer.
    ///
    /// # Errors
    /// Fails if the head cannot be written.
    pub fn witness_line(
        &self,
        time: Timestamp,
        gives_up: Option<AcceptedLoss>,
    ) -> Result<(LogHead, String), AuditError> {
        let mut inner = self.state()?;
        let head = inner.sign_head(time)?;
        let line = WitnessLine { log: self.id, key: self.key, head, time, gives_up };
        Ok((head, line.signed_line(&inner.key)))
    }

    /// Deletes the contents that `selector` selects, records the deletion with `who`, the person who requested it, and
    /// returns the number of deleted entries. The lines of the log and all hashes remain. The entries that stay are copied
    /// to a new file, which replaces the old one. Existing entries are copied without the lock on the log, so that the log
    /// can be written meanwhile; only entries that are written meanwhile are copied under the lock.
    ///
    /// # Errors
    /// Fails if the contents cannot be read or rewritten; nothing was deleted then. Fails also if the deletion cannot
    /// be recorded; the content was deleted then, and nothing is recorded until the log can be written again.
    pub fn forget(&self, time: Timestamp, selector: &ContentSelector, who: &str) -> Result<u64, AuditError> {
        // Held until the end of this function, so that only one deletion runs at a time. If a deletion panicked, the
        // next one starts over and overwrites its draft.
        let _only_deletion = self.deletion.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = content::content_path(&self.path);
        let read = |error| AuditError::new(&contents, AuditErrorKind::Read(error));
        let size = {
            let mut inner = self.state()?;
            // After this repair, the entries up to `size` are complete, so they can be copied without the lock: a later
            // repair removes only entries beyond `size`.
            inner.ensure_writable()?;
            content::file_size(&contents).map_err(read)?
        };
        // The request is recorded even if there is no content to delete.
        if size == 0 {
            return self.state()?.record_deletion(time, selector, who, &[]);
        }
        let mut deletion = ContentDeletion::begin(&contents, selector)?;
        deletion.copy_until(size)?;
        let mut inner = self.state()?;
        inner.ensure_writable()?;
        deletion.copy_until(content::file_size(&contents).map_err(read)?)?;
        // Later entries go to the new file.
        inner.contents = None;
        let deleted = deletion.finish()?;
        inner.record_deletion(time, selector, who, &deleted)
    }

    /// Deletes content that was written before `before`, and records the deletion if there was any, with `retention`
    /// in place of a person who requested it. Returns the number of deleted entries.
    ///
    /// # Errors
    /// If the file of contents cannot be read, and the errors of [`forget`](Self::forget).
    pub fn expire(&self, time: Timestamp, before: Timestamp) -> Result<u64, AuditError> {
        let contents = content::content_path(&self.path);
        let oldest = content::oldest_entry_time(&contents);
        let oldest = oldest.map_err(|error| AuditError::new(&contents, AuditErrorKind::Read(error)))?;
        if oldest.is_none_or(|oldest| oldest >= before) {
            return Ok(0);
        }
        self.forget(time, &ContentSelector { before: Some(before), ..ContentSelector::default() }, RETENTION)
    }

    /// Signs everything recorded so far, and closes the file.
    ///
    /// # Errors
    /// Fails if the head cannot be written.
    pub fn close(self, time: Timestamp) -> Result<LogHead, AuditError> {
        self.state()?.sign_head(time)
    }

    /// Returns whether the log can be written now, as far as is known; repairs a failed write if possible.
    pub fn is_writable(&self) -> bool {
        self.state().is_ok_and(|mut inner| inner.ensure_writable().is_ok())
    }

    /// Locks the state of the log. Fails if a thread has panicked while it held the lock: the log is unwritable from
    /// then on.
    fn state(&self) -> Result<MutexGuard<'_, AuditLogState>, AuditError> {
        // A thread that panicked while it held the lock may have left the log inconsistent.
        self.inner.lock().map_err(|_| AuditError::new(&self.path, AuditErrorKind::Broken))
    }
}

impl AuditLogState {
    /// Writes `content`, the content of the event, if contents are kept, and then the line of the event. Signs a head or
    /// waits for the disk, as the options require. Returns the number of the line.
    fn append(
        &mut self,
        time: Timestamp,
        event: &AuditEvent,
        content: Option<&str>,
    ) -> Result<u64, AuditError> {
        self.ensure_writable()?;
        let mut fields = event.fields();
        if let Some(content) = content.filter(|_| self.options.content == ContentRetention::Kept) {
            let place = (self.next, self.previous);
            let entry = NewContentEntry::new(place, time, event, content, self.cipher.as_deref())
                .map_err(|failure| AuditError::new(&self.path, failure))?;
            self.write_content(&entry)?;
            fields.value("content", entry.reference);
        }
        let seq = self.record(time, &event.kind(), fields)?;
        // A head is due after every `every` lines; 0 counts as 1.
        if self.unsigned >= self.options.every.max(1) {
            // A head is always synced, with all lines before it.
            self.sign_head(time)?;
        } else if self.options.sync == SyncPolicy::Everything
            || (self.options.sync == SyncPolicy::Decisions && event.is_decision())
        {
            self.sync()?;
        }
        Ok(seq)
    }

    /// Writes a head and syncs it to disk. Returns the last head instead if no line follows it.
    fn sign_head(&mut self, time: Timestamp) -> Result<LogHead, AuditError> {
        self.ensure_writable()?;
        if let Some(head) = self.head.filter(|_| self.unsigned == 0) {
            return Ok(head);
        }
        let line = chain::head_line(self.next, time, self.previous, &self.key);
        let seq = self.write(line)?;
        self.sync()?;
        // `write` has set `previous` to the hash of the line that it wrote, the head.
        let head = LogHead { seq, hash: self.previous };
        (self.head, self.unsigned, self.latest) = (Some(head), 0, time);
        Ok(head)
    }

    /// Records that the contents of the lines `deleted` were deleted, as `who` requested with `selector`, and signs a
    /// head. One record names at most [`MAX_NAMED`] lines, so there may be several; there is one even if nothing was
    /// deleted. Returns how many contents were deleted.
    fn record_deletion(
        &mut self,
        time: Timestamp,
        selector: &ContentSelector,
        who: &str,
        deleted: &[u64],
    ) -> Result<u64, AuditError> {
        self.ensure_writable()?;
        let count = |lines: &[u64]| u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let no_lines: &[u64] = &[];
        let parts: Vec<&[u64]> =
            if deleted.is_empty() { vec![no_lines] } else { deleted.chunks(MAX_NAMED).collect() };
        for part in parts {
            let mut fields = selector.fields(who);
            fields.number("count", count(part)).value("lines", json!(part));
            self.record(time, &RecordKind::Forgotten, fields)?;
        }
        self.sign_head(time)?;
        Ok(count(deleted))
    }

    /// Writes an entry to the file of contents. Opens the file if it is not open: at the first entry, and after a
    /// failed write or a deletion.
    fn write_content(&mut self, entry: &NewContentEntry) -> Result<(), AuditError> {
        let path = content::content_path(&self.path);
        // If the write fails, the file is not put back into `contents`: `repair` removes the partial entry, and the next
        // call opens the file again.
        let written = match self.contents.take() {
            Some(file) => Ok(file),
            None => content::open(&path),
        };
        let written = written.and_then(|mut file| file.write_all(entry.line.as_bytes()).map(|()| file));
        self.contents =
            Some(written.map_err(|error| self.mark_failed(&path, error, FailedOperation::Write))?);
        Ok(())
    }

    /// Writes a line of the kind `kind`, with the time `time` and these fields, and returns the number of the line. The
    /// line is unsigned until the next head.
    fn record(
        &mut self,
        time: Timestamp,
        kind: &RecordKind,
        fields: RecordFields,
    ) -> Result<u64, AuditError> {
        let seq = self.write(record::serialize_record(self.next, time, kind, self.previous, fields))?;
        self.unsigned += 1;
        self.latest = time;
        Ok(seq)
    }

    /// Writes a line in one call, so that a killed process leaves at most one partial line. Returns the number of the
    /// line. If the write fails, the next call of [`Self::ensure_writable`] removes the partial line.
    fn write(&mut self, mut line: String) -> Result<u64, AuditError> {
        let (seq, hash) = (self.next, LineHash::of_line(line.as_bytes()));
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            return Err(self.mark_failed(&self.path.clone(), error, FailedOperation::Write));
        }
        self.length = self.length.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        self.next = seq.saturating_add(1);
        self.previous = hash;
        self.end.set(LogHead { seq, hash });
        Ok(seq)
    }

    /// Waits until the contents and the log are on disk. After a failure, the log stays unwritable until it is opened
    /// again, because it is unknown what is on disk.
    fn sync(&mut self) -> Result<(), AuditError> {
        if let Some(Err(error)) = self.contents.as_ref().map(File::sync_data) {
            return Err(self.mark_failed(&content::content_path(&self.path), error, FailedOperation::Sync));
        }
        let synced = self.file.sync_data();
        synced.map_err(|error| self.mark_failed(&self.path.clone(), error, FailedOperation::Sync))
    }

    /// Notes that an operation of the kind `failed` on the file `path` failed with `error`, and returns the error for the
    /// caller. From now on, nothing is written until [`Self::ensure_writable`] has repaired the log; a failed sync cannot
    /// be repaired.
    fn mark_failed(&mut self, path: &Path, error: io::Error, failed: FailedOperation) -> AuditError {
        self.failed = Some(failed);
        AuditError::new(path, AuditErrorKind::Write(error))
    }

    /// Makes sure that the log can be written: removes the remains of a failed write.
    ///
    /// # Errors
    /// Fails if that is not possible, or if a sync has failed since the log was opened, because it is then unknown
    /// which lines are on disk.
    fn ensure_writable(&mut self) -> Result<(), AuditError> {
        match self.failed {
            None => Ok(()),
            Some(FailedOperation::Sync) => Err(AuditError::new(&self.path, AuditErrorKind::Broken)),
            Some(FailedOperation::Write) => {
                self.repair().map_err(|failure| AuditError::new(&self.path, failure))
            }
        }
    }

    /// Removes what a failed write left: a partial last line of the log, and in the file of contents a partial entry
    /// and the entry whose line was not written. Fails if the log is shorter than what was written to it, since
    /// complete lines are then lost.
    fn repair(&mut self) -> Result<(), AuditErrorKind> {
        let length = self.file.metadata().map_err(AuditErrorKind::Write)?.len();
        if length < self.length {
            return Err(AuditErrorKind::Truncated);
        }
        self.file.set_len(self.length).map_err(AuditErrorKind::Write)?;
        // Opened again at the next entry.
        self.contents = None;
        content::repair(&content::content_path(&self.path), self.next).map_err(AuditErrorKind::Write)?;
        self.failed = None;
        Ok(())
    }
}

impl Drop for AuditLogState {
    /// Signs the lines after the last head, so that a log that is dropped without [`AuditLog::close`] is signed as
    /// well. A failure is ignored: these lines then remain unsigned, and the next opening records their number.
    fn drop(&mut self) {
        let _ = self.sign_head(self.latest);
    }
}

#[cfg(test)]
pub(crate) mod tests;
