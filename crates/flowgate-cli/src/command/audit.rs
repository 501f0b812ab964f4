//! `flowgate audit`: the log that the gateway keeps.

mod contents;
mod forget;
mod judge;
mod show;
mod verify;

use flowgate_gateway::audit::Forget;

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
        Audit::Show { file, conversation, json, content } => {
            show::run(file, conversation.as_deref(), (*json, *content), output)
        }
        Audit::Forget { file, tenant, client, conversation, key_file } => {
            let whose = Forget {
                tenant: tenant.clone(),
                client: client.clone(),
                conversation: conversation.clone(),
                ..Forget::default()
            };
            forget::run(file, &whose, key_file.as_deref(), output)
        }
    }
}
