//! Runs `flowgate audit forget`: deletes recorded contents, such as arguments of calls, from `LOG.content`, the file
//! next to an audit log. The lines of the log contain only hashes of contents, so the log remains verifiable.

use std::path::Path;

use flowgate_audit::{AuditError, AuditKey, AuditLog, AuditOptions, ContentSelector, Timestamp};

use crate::input::{self, InputError};
use crate::output::{Console, plural};

/// The name that the log records for the operator who deletes content. Everyone who can read the log's key can delete
/// it, so no other name is known.
const KEY_HOLDER: &str = "who has the key";

/// Runs `flowgate audit forget`: deletes the contents of the log `file` that `selector` selects, records the deletion
/// in the log, and prints how many contents were deleted. Without `key_file`, the key of the log is in the file of the
/// same name with the ending `.key`. Returns 0.
pub(super) fn run(
    file: &Path,
    selector: &ContentSelector,
    key_file: Option<&Path>,
    output: &mut Console,
) -> Result<u8, InputError> {
    // The functions below would create a missing key or a missing log, so a missing file is an error here.
    let key_file = key_file.map_or_else(|| file.with_extension("key"), Path::to_owned);
    for needed in [file, &key_file] {
        drop(input::open(needed)?);
    }
    let failed = |error: AuditError| InputError(error.to_string());
    let key = AuditKey::load_or_create(&key_file).map_err(failed)?;
    let log = AuditLog::open(file, key, AuditOptions::default(), Timestamp::now()).map_err(failed)?;
    let forgotten = log.forget(Timestamp::now(), selector, KEY_HOLDER).map_err(failed)?;
    log.close(Timestamp::now()).map_err(failed)?;
    let mark = output.paint("32", "✓");
    let were = if forgotten == 1 { "was" } else { "were" };
    let contents = plural(forgotten, "content");
    output.line(&format!(
        "{mark} {contents} {were} deleted; the log records the deletion and remains verifiable"
    ));
    Ok(0)
}
