//! Finds files that other users of the machine can read or write. On other systems than Unix, it finds none.

use std::path::Path;

/// Returns the problem with a file that others than its owner can write, with advice.
pub(super) fn writable_by_others(path: &Path) -> Option<String> {
    let shown = path.display();
    has_mode(path, 0o022).then(|| {
        format!("{shown} can be changed by others than its owner, who then decide what is trusted: chmod go-w {shown}")
    })
}

/// Returns the problem with a secret file that others than its owner can read or write, with advice.
#[cfg(feature = "gateway")]
pub(super) fn readable_by_others(path: &Path) -> Option<String> {
    let shown = path.display();
    has_mode(path, 0o077).then(|| {
        format!("others than its owner can read or write {shown}, which has a key: chmod 600 {shown}")
    })
}

#[cfg(unix)]
fn has_mode(path: &Path, bits: u32) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & bits != 0)
}

#[cfg(not(unix))]
fn has_mode(_: &Path, _: u32) -> bool {
    false
}
