//! `flowgate audit`: the log that the gateway keeps.

mod judge;
mod show;
mod verify;

use crate::args::Audit;
use crate::input::InputError;
use crate::output::Output;

/// Runs the command; returns the exit code.
pub(crate) fn run(audit: &Audit, output: &mut Output) -> Result<u8, InputError> {
    match audit {
        Audit::Verify { file, key, head, config } => {
            let code = verify::run(file, key.as_deref(), *head, output)?;
            match config {
                Some(config) if code == 0 => judge::run(file, config, output),
                _ => Ok(code),
            }
        }
        Audit::Show { file, conversation, json } => show::run(file, conversation.as_deref(), *json, output),
    }
}
