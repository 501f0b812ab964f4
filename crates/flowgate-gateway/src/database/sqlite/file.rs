//! Checks the file of a SQLite database: which process owns it, who may read it, and whether it is the expected
//! database. `sqlite` locks the file here; the start of the gateway checks the permissions.
//!
//! The lock file remains when the gateway stops, and contains the identity of the database. The next start compares
//! this identity, and so notices that the database was deleted or replaced: the labels of external state and of texts
//! that clients were shown must not be lost silently.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use crate::database::error::DatabaseError;
use flowgate_audit::file_lock;

/// The file of a database that this process owns.
#[derive(Debug)]
pub(super) struct LockedDatabaseFile {
    path: PathBuf,
    lock: File,
    /// The identity of the database that the lock file names; empty if it names none.
    expected_identity: String,
}

impl LockedDatabaseFile {
    /// Locks the file of a database for this process by a lock file next to it. Creates the database file if it does
    /// not exist and the lock file names no database, and makes it readable for its owner only.
    ///
    /// # Errors
    /// If another process has the file, the expected database is missing, or a file cannot be opened.
    pub(super) fn lock_database_file(path: &Path) -> Result<Self, DatabaseError> {
        let lock = lock_path(path);
        let lock_name = lock.display().to_string();
        let failed = |error| DatabaseError::Lock(lock_name.clone(), error);
        let mut file = restrict_to_owner(OpenOptions::new().read(true).write(true).create(true))
            .open(&lock)
            .map_err(failed)?;
        match file_lock::acquire(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DatabaseError::FileInUse(lock_name)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut identity = String::new();
        // An identity is shorter; the limit bounds the reading of a file that is not a lock file.
        std::io::Read::take(&mut file, 256).read_to_string(&mut identity).map_err(failed)?;
        let identity = identity.trim().to_owned();
        if !identity.is_empty() && !path.exists() {
            return Err(DatabaseError::DatabaseMissing(path.display().to_string()));
        }
        // SQLite creates its other files, such as the write-ahead log, with the same mode.
        let created = restrict_to_owner(OpenOptions::new().write(true).create(true)).open(path);
        created.map_err(|error| DatabaseError::Lock(path.display().to_string(), error))?;
        Ok(Self { path: path.to_owned(), lock: file, expected_identity: identity })
    }

    /// Checks that the lock file names the database with the identity `database`, or no database yet.
    pub(super) fn check(&self, database: &str) -> Result<(), DatabaseError> {
        match self.expected_identity.as_str() {
            // The lock file names no database yet.
            "" => Ok(()),
            expected if expected == database => Ok(()),
            _ => Err(DatabaseError::DatabaseSwapped(self.path.display().to_string())),
        }
    }

    /// Writes the identity of this database into the lock file: later starts expect this database.
    pub(super) fn write_database_name(&self, database: &str) -> Result<(), DatabaseError> {
        if self.expected_identity == database {
            return Ok(());
        }
        // The file is emptied, and the new identity is written from its beginning on.
        let mut lock = &self.lock;
        let written =
            lock.rewind().and_then(|()| lock.set_len(0)).and_then(|()| lock.write_all(database.as_bytes()));
        written.map_err(|error| DatabaseError::Lock(lock_path(&self.path).display().to_string(), error))
    }
}

/// Returns the path of the lock file of the database file at `path`, which is next to it.
fn lock_path(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

/// Returns the options with a mode by which only the owner of a file that they create can read and write it. The mode
/// of an existing file does not change.
fn restrict_to_owner(options: &mut OpenOptions) -> OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.clone()
}

/// Returns the files among `paths` that users other than their owner can read or write; none on a system without Unix
/// permissions.
pub(crate) fn readable_by_others(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let is_open = |path: &&PathBuf| {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o077 != 0)
        }
        #[cfg(not(unix))]
        {
            let _ = path;
            false
        }
    };
    paths.iter().filter(is_open).collect()
}

/// Returns the paths of a database file and of the files next to it in which SQLite holds parts of the database.
pub(crate) fn database_files(path: &Path) -> Vec<PathBuf> {
    let beside = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    ["", "-wal", "-shm"].into_iter().map(beside).collect()
}
