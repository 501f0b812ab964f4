//! Runs `flowgate audit`, the operations on the audit log of a gateway. Calls the module of the subcommand:
//!
//! * `show` lists the records of the log.
//! * `verify` checks that the log is unchanged. With `--config`, `recheck` also compares the log with the gateway's
//!   database and recomputes the verdicts; with `--witness`, `witness` compares the log with the signed heads that a
//!   witness received.
//! * `accept` (`accept-loss`) records that an operator accepts the loss of lines, so that the gateway starts again.
//! * `forget` deletes recorded contents, such as arguments of calls.
//!
//! `contents` opens the file with the contents, which is next to the log, for `show` and `verify`.

mod accept;
mod contents;
mod forget;
mod recheck;
mod show;
mod verify;
mod witness;

use flowgate_audit::ContentSelector;

use crate::args::AuditCommand;
use crate::input::InputError;
use crate::output::Console;

/// Runs the subcommand of `flowgate audit`, and returns its exit code. The module `verify` runs `verify` without a
/// configuration; with one, `recheck` runs it, and also recomputes the verdicts.
pub(crate) fn run(audit: &AuditCommand, output: &mut Console) -> Result<u8, InputError> {
    match audit {
        AuditCommand::Verify { files, key, head, witness, config, signed } => {
            // Reads the file of the witness, if there is one; the options then borrow its name and its content.
            let witness = witness.as_deref().map(|file| witness::read(file).map(|read| (file, read)));
            let witness = witness.transpose()?;
            let witness = witness.as_ref().map(|(file, witness)| (*file, witness));
            let options = verify::VerifyOptions {
                key: key.as_deref(),
                head: *head,
                witness,
                signed: *signed,
                // With `--config`, `recheck` adds the cipher of the configuration.
                cipher: None,
            };
            match config {
                Some(config) => recheck::run(files, config, &options, output),
                None => verify::run(files, &options, output),
            }
        }
        AuditCommand::AcceptLoss { config } => accept::run(config, output),
        AuditCommand::Show { file, conversation, json, content, config } => {
            let cipher = config.as_deref().map(contents::cipher_of).transpose()?.flatten();
            show::run(file, conversation.as_deref(), (*json, *content), cipher.as_deref(), output)
        }
        AuditCommand::Forget { file, tenant, client, conversation, key_file } => {
            let selector = ContentSelector {
                tenant: tenant.clone(),
                client: client.clone(),
                conversation: conversation.clone(),
                ..ContentSelector::default()
            };
            forget::run(file, &selector, key_file.as_deref(), output)
        }
    }
}
