//! Finds policies that other users of the machine can change, and files with keys that other users can read, for
//! `flowgate doctor`. On systems other than Unix, it finds none.

use std::path::Path;

/// Returns the problem, with advice, if users other than the owner can write a file; `None` if only the owner can, if
/// the permissions cannot be read, and on systems other than Unix.
pub(super) fn writable_by_others(path: &Path) -> Option<String> {
    let shown = path.display();
    // The group or all users can write.
    has_mode(path, 0o022).then(|| {
        format!("users other than its owner can change {shown}, and so decide what is trusted: run `chmod go-w {shown}`")
    })
}

/// Returns the problem, with advice, if users other than the owner can read or write a secret file; `None` if only the
/// owner can, if the permissions cannot be read, and on systems other than Unix.
#[cfg(feature = "gateway")]
pub(super) fn readable_by_others(path: &Path) -> Option<String> {
    let shown = path.display();
    // The group or all users can read, write or execute.
    has_mode(path, 0o077).then(|| {
        format!("users other than its owner can read or write {shown}, which contains a key: run `chmod 600 {shown}`")
    })
}

/// Returns whether a file has one of these permission bits; false if its permissions cannot be read.
#[cfg(unix)]
fn has_mode(path: &Path, bits: u32) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & bits != 0)
}

/// Returns false: permissions are examined only on Unix.
#[cfg(not(unix))]
fn has_mode(_: &Path, _: u32) -> bool {
    false
}
