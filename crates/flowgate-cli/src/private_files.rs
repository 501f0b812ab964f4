//! Creates and replaces files that only their owner can read and write: labels of stores, approved tools, the events of
//! sessions, and traces. `flowgate run`, `mcp` and `hook` use it. Other users must not write these files, because their
//! labels and events decide later verdicts.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Returns options with which a new file is readable and writable only by its owner (on Unix).
fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty file; an existing one is emptied and keeps its permissions.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// Opens a file to read it and to append to it, and creates it if there is none.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    options().read(true).create(true).append(true).open(path)
}

/// Opens the lock file of `path`, which has the same name with `.lock` added, and creates it if there is none.
/// Processes lock it so that only one of them uses the file at a time.
pub(crate) fn lock_beside(path: &Path) -> io::Result<File> {
    options().create(true).append(true).open(sibling_path(path, ".lock"))
}

/// Replaces the content of a file atomically: writes the text to a new file in the same folder, and renames the new
/// file to `path`, which need not exist before. Only the owner can read and write the result (on Unix).
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let part = sibling_path(path, ".part");
    // A partial file that a killed process left is not reused: it may be accessible to others.
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&part, path)
}

/// Returns the path with `end` added to its name.
fn sibling_path(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_owner_can_read_and_write_them() {
        let folder = std::env::temp_dir().join(format!("flowgate-private-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (trace, kept) = (folder.join("trace"), folder.join("kept"));
        create(&trace).unwrap();
        lock_beside(&kept).unwrap();
        // An existing file is replaced, and a partial file that a killed process left is not reused.
        for path in [&kept, &sibling_path(&kept, ".part")] {
            std::fs::write(path, "old").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        }
        replace(&kept, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "new");
        for path in [trace, sibling_path(&kept, ".lock"), kept.clone()] {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert!(!sibling_path(&kept, ".part").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
