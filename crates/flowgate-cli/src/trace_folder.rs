//! Keeps the traces of watched sessions in a folder, one file for each session. `flowgate mcp --watch --traces` and
//! `flowgate hook --watch --traces` write the traces, and `flowgate suggest` reads the folder.
//!
//! The traces have the content of the sessions, so only their owner can read them. The size of a trace and the number
//! of traces are limited; nothing in the folder is deleted.

use std::path::{Path, PathBuf};

use flowgate::monitor::Monitor;

use crate::input::describe_io_error;
use crate::output::plural;
use crate::private_files;
use crate::trace_file::{TraceFile, TraceLines};

/// The largest trace of a session, in bytes.
const MAX_TRACE: usize = 64 << 20;
/// The maximum number of files in the folder; the session after it is not recorded.
const MAX_FILES: usize = 10_000;

/// A folder of traces.
pub(crate) struct TraceFolder {
    path: PathBuf,
    max_files: usize,
}

impl TraceFolder {
    /// Returns the folder at `path`, and creates it if it does not exist. Its parent must exist.
    ///
    /// # Errors
    /// If it cannot be created. The message names it.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let mut folder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
        match folder.create(path) {
            Err(error) if !path.is_dir() => Err(format!("{}: {}", path.display(), describe_io_error(&error))),
            _ => Ok(Self { path: path.to_owned(), max_files: MAX_FILES }),
        }
    }

    /// Creates the file of a new session, whose events are added as they happen.
    ///
    /// # Errors
    /// If the folder has too many files, or the file cannot be created.
    pub(crate) fn begin(&self, name: &str) -> Result<TraceFile, String> {
        let path = self.path_for(name)?;
        TraceFile::create(&path, MAX_TRACE)
            .map_err(|error| format!("{}: {}", path.display(), describe_io_error(&error)))
    }

    /// Replaces the content of a session's file by all events of the session so far. Several processes can do this at
    /// the same time.
    ///
    /// # Errors
    /// If the folder has too many files, or the file cannot be written; or if the session is larger than a trace may be,
    /// in which case its beginning is written.
    pub(crate) fn replace(&self, name: &str, monitor: &Monitor) -> Result<(), String> {
        let path = self.path_for(name)?;
        let mut lines = TraceLines::new(MAX_TRACE);
        let text = lines.take_new(monitor);
        // One lock file, `traces.lock`, for all files in the folder.
        let lock = private_files::lock_beside(&self.path.join("traces"));
        let written = lock.and_then(|lock| {
            lock.lock()?;
            private_files::replace(&path, &text)
        });
        written.map_err(|error| {
            format!("{}: the trace cannot be written: {}", path.display(), describe_io_error(&error))
        })?;
        if lines.is_full { Err(self.full(name)) } else { Ok(()) }
    }

    /// Returns the message for a session that is larger than a trace may be.
    pub(crate) fn full(&self, name: &str) -> String {
        format!(
            "{}: the trace has reached {} MiB, and further events are not in it; begin a new session",
            self.path_of(name).display(),
            MAX_TRACE >> 20
        )
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of the file `name`. Fails if the file does not exist yet, and the folder has the maximum number of
    /// files already.
    fn path_for(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path_of(name);
        let is_known = path.exists();
        let count =
            || std::fs::read_dir(&self.path).map_or(0, |entries| entries.take(self.max_files).count());
        if !is_known && count() >= self.max_files {
            return Err(format!(
                "{}: the folder has {} already, so the trace of this session is not recorded; move some of them elsewhere",
                self.path.display(),
                plural(self.max_files, "file")
            ));
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;
    use flowgate::trace::{Message, TraceEntry};

    use super::*;

    #[test]
    fn a_folder_has_one_private_file_for_each_session_and_a_limit() {
        let path = std::env::temp_dir().join(format!("flowgate-traces-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let policy = Policy::parse("lattice secrecy: public < private\ndefault public\n").unwrap();
        let mut monitor = Monitor::new(Arc::new(policy));
        let folder = TraceFolder { max_files: 2, ..TraceFolder::open(&path).unwrap() };
        for count in 1..=2 {
            monitor.push(TraceEntry::from(Message::new("user", "hi"))).unwrap();
            folder.replace("one.jsonl", &monitor).unwrap();
            let text = std::fs::read_to_string(path.join("one.jsonl")).unwrap();
            assert_eq!(text.lines().count(), count, "the whole session, once: {text}");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(&path.join("one.jsonl"))), (0o700, 0o600));
        }
        // The folder has the trace and the file of the lock.
        let refused = folder.begin("two.jsonl").err().unwrap();
        assert!(refused.ends_with("the folder has 2 files already, so the trace of this session is not recorded; move some of them elsewhere"), "{refused}");
        folder.replace("one.jsonl", &monitor).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        let no_folder = TraceFolder::open(Path::new("/no/such/folder")).err().unwrap();
        assert_eq!(no_folder, "/no/such/folder: there is no such file; check the path");
    }
}
