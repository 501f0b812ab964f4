//! `flowgate audit`: the gateway's audit log.

mod accept;
mod contents;
mod forget;
mod judge;
mod show;
mod verify;
mod witness;

use flowgate_gateway::audit::Forget;

use crate::args::Audit;
use crate::input::InputError;
use crate::output::Output;

/// Runs the command; returns the exit code.
pub(crate) fn run(audit: &Audit, output: &mut Output) -> Result<u8, InputError> {
    match audit {
        Audit::Verify { files, key, head, witness, config, signed } => {
            let witness = witness.as_deref().map(|file| witness::read(file).map(|read| (file, read)));
            let witness = witness.transpose()?;
            let witness = witness.as_ref().map(|(file, witness)| (*file, witness));
            let options = verify::Options { key: key.as_deref(), head: *head, witness, signed: *signed };
            match config {
                Some(config) => judge::run(files, config, &options, output),
                None => verify::run(files, &options, output),
            }
        }
        Audit::AcceptLoss { config } => accept::run(config, output),
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
