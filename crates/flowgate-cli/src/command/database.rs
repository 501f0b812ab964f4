//! Runs `flowgate database encrypt`: encrypts the content in a gateway's database, and in the file of contents next to
//! the audit log, with the first key of the configuration. `flowgate_gateway` does the work; this module shows the
//! progress.

use std::path::Path;

use flowgate_gateway::database::{encrypt_audit_contents, encrypt_stored_content};

use crate::args::DatabaseCommand;
use crate::command::serve;
use crate::input::InputError;
use crate::output::{Console, plural};
use crate::progress::Progress;

/// Runs the subcommand of `flowgate database`, and returns its exit code.
pub(crate) fn run(database: &DatabaseCommand, output: &mut Console) -> Result<u8, InputError> {
    match database {
        DatabaseCommand::Encrypt { config, accept_unencrypted } => {
            encrypt(config, *accept_unencrypted, output)
        }
    }
}

/// Encrypts the content of the gateway with the configuration at `path`: the database, and the contents of the audit
/// log. If everything was encrypted before, a value that is not encrypted is an error, since somebody else who can
/// write to the database may have put it there; with `accepts_unencrypted`, it is encrypted as well. Returns 0, or 1
/// if the user has interrupted the run.
///
/// # Errors
/// If the configuration has no key, the database cannot be used, or a stored value was altered.
fn encrypt(path: &Path, accepts_unencrypted: bool, output: &mut Console) -> Result<u8, InputError> {
    let failed = |why: &dyn std::fmt::Display| InputError(format!("{}: {why}", path.display()));
    let config = serve::gateway_config(path)?;
    // `encrypt_stored_content` calls `show` with the number of rows that are done in the present pass over the
    // database, and their total; `show` returns whether to continue. There are at least two passes. If `done` is lower
    // than before, a new pass has begun, and a new display replaces the old one.
    //
    // `display` is the display of the present pass, with the number of rows that it shows as done.
    let mut display: Option<(Progress, u64)> = None;
    let mut show = |done: u64, total: u64| {
        let of_this_pass = display.take().filter(|(_, shown)| *shown <= done);
        let (progress, shown) = of_this_pass.unwrap_or_else(|| {
            (Progress::over_steps(usize::try_from(total).unwrap_or(usize::MAX), "row", output), 0)
        });
        (shown..done).for_each(|_| progress.step());
        let goes_on = !progress.is_interrupted();
        display = Some((progress, done));
        goes_on
    };
    let report = encrypt_stored_content(&config, accepts_unencrypted, &mut show);
    if let Some((progress, _)) = &display {
        progress.clear();
    }
    let report = report.map_err(|error| failed(&error))?.ok_or_else(|| {
        failed(&"the section [store] names no key: set `encryption-key-from` or `encryption-key-file`")
    })?;
    if !report.is_complete {
        let encrypted = plural(report.encrypted, "row");
        output.warning(&format!("interrupted after {encrypted} of the database: run the command again"));
        return Ok(1);
    }
    let (mark, name) = (output.paint("32", "✓"), config.store.address.name());
    let (rows, encrypted) = (plural(report.rows, "row"), report.encrypted);
    output
        .line(&format!("{mark} {name}: the content of {rows} is encrypted, {encrypted} of them by this run"));
    if let (Some(audit), Some(count)) =
        (&config.audit, encrypt_audit_contents(&config).map_err(|error| failed(&error))?)
    {
        let (file, contents) = (audit.file.display(), plural(count, "content"));
        output.line(&format!("{mark} {file}.content: {contents} encrypted with the first key"));
    }
    Ok(0)
}
