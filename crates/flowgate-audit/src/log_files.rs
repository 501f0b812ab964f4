//! Locks, names and syncs the files of an audit log, restricts them to their owner, and moves the partial last line
//! of a killed process to a file of its own. [`AuditLog`](super::AuditLog), the writer of the log's file of contents
//! (`content`) and the reader of its key (`key_file`) use these functions.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{AuditError, AuditErrorKind};
use crate::file_lock;

/// Locks a log against other processes, by a lock on `FILE.lock` in the same folder. The returned file holds the lock
/// until it is dropped. Fails if another process still has the lock after the time that [`file_lock::acquire`] waits.
pub(crate) fn lock(path: &Path) -> Result<File, AuditError> {
    let path = &append_extension(path, "lock");
    let failed = |failure| AuditError::new(path, failure);
    let options = restrict_to_owner(OpenOptions::new().write(true).create(true));
    let file = options.open(path).map_err(|error| failed(AuditErrorKind::Write(error)))?;
    match file_lock::acquire(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed(AuditErrorKind::Locked)),
        Err(TryLockError::Error(error)) => Err(failed(AuditErrorKind::Write(error))),
    }
}

/// Moves the partial line at the end of a log to a new file, `FILE.torn-NEXT`, and returns the name of that file;
/// `None` if the log ends in a complete line. `whole` is the size of the complete lines in bytes, and `next` the number
/// of the line that is written next.
pub(crate) fn set_aside(path: &Path, file: &mut File, whole: u64, next: u64) -> io::Result<Option<String>> {
    let length = file.metadata()?.len();
    if length <= whole {
        return Ok(None);
    }
    // A file with the first name may remain from an earlier opening; it is not replaced.
    for attempt in 0..u32::MAX {
        let suffix = if attempt == 0 { String::new() } else { format!(".{attempt}") };
        let aside = append_extension(path, &format!("torn-{next}{suffix}"));
        let mut copy = match restrict_to_owner(OpenOptions::new().write(true).create_new(true)).open(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            copy => copy?,
        };
        file.seek(SeekFrom::Start(whole))?;
        io::copy(&mut Read::take(&mut *file, length - whole), &mut copy)?;
        copy.sync_all()?;
        sync_folder(path)?;
        // Truncated only after the copy is on disk, so that nothing is lost.
        file.set_len(whole)?;
        file.sync_all()?;
        return Ok(aside.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the path with a dot and `end` appended to its file name; an extension that the path has remains.
pub(crate) fn append_extension(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(end);
    PathBuf::from(name)
}

/// Returns these options with one addition: on Unix, only the owner of a file that is created with them can read and
/// write it. The options that the caller has passed are changed as well.
pub(crate) fn restrict_to_owner(options: &mut OpenOptions) -> OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.clone()
}

/// Syncs the folder of `path`, so that the names of its files are on disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    // Other systems do not let a program open a folder as a file.
    let _ = path;
    Ok(())
}
