//! `flowgate audit forget`: content is deleted, and the log stays whole.

use std::path::Path;

use flowgate_gateway::audit::{AuditError, Forget, Key, Log, Options, Time};

use crate::input::{self, InputError};
use crate::output::Output;

/// Who has content deleted, as the log says it: whoever can read its key.
const WHO: &str = "who has the key";

/// Runs the command; returns the exit code.
pub(super) fn run(
    file: &Path,
    whose: &Forget,
    key_file: Option<&Path>,
    output: &mut Output,
) -> Result<u8, InputError> {
    // Neither a log nor a key is made here.
    let key_file = key_file.map_or_else(|| file.with_extension("key"), Path::to_owned);
    for needed in [file, &key_file] {
        drop(input::open(needed)?);
    }
    let failed = |error: AuditError| InputError(error.to_string());
    let key = Key::load_or_create(&key_file).map_err(failed)?;
    let log = Log::open(file, key, Options::default(), Time::now()).map_err(failed)?;
    let forgotten = log.forget(Time::now(), whose, WHO).map_err(failed)?;
    log.close(Time::now()).map_err(failed)?;
    let mark = output.paint("32", "✓");
    let contents = if forgotten == 1 { "content was" } else { "contents were" };
    output.line(&format!("{mark} {forgotten} {contents} deleted; the log says so, and is whole"));
    Ok(0)
}
