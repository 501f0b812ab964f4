//! Runs `flowgate audit accept-loss`. The gateway refuses to start if its audit log lacks lines that its database or
//! the witness's file has recorded, or if the log has events and the database has no record of it. This command records that an operator
//! accepts the loss, so that the gateway can start again.

use std::path::Path;

use flowgate_gateway::recorder::accept_loss;

use crate::command::serve;
use crate::input::InputError;
use crate::output::{Console, plural};

/// The name that the log records for the operator who accepts the loss. Everyone who can read the log's key can accept
/// it, so no other name is known.
const KEY_HOLDER: &str = "who has the key";

/// Runs `flowgate audit accept-loss` for the gateway with the configuration at `path`: if the log lacks lines that the
/// database or the witness's file has recorded, or has events of which the database has no record, records that an operator
/// accepts the loss, and prints what is lost. Returns 0, also if nothing is lost.
pub(super) fn run(path: &Path, output: &mut Console) -> Result<u8, InputError> {
    let failed = |why: &dyn std::fmt::Display| InputError(format!("{}: {why}", path.display()));
    let config = serve::gateway_config(path)?;
    let Some(file) = config.audit.as_ref().map(|audit| audit.file.clone()) else {
        return Err(failed(
            &"the configuration has no section [audit], so this gateway writes no audit log; name the configuration of another gateway",
        ));
    };
    let loss = accept_loss(config, KEY_HOLDER).map_err(|error| failed(&error))?;
    let mark = output.paint("32", "✓");
    let name = file.display();
    match loss {
        None => output.line(&format!("{mark} {name} has all lines that the database has recorded")),
        Some(loss) => {
            output.line(&format!(
                "{mark} the loss is accepted: {name} now records it ({}), and the gateway can start again",
                loss.name()
            ));
            // The last line that the database or the witness has recorded, if either still knows one. `seq` is the
            // number of the line from 0.
            if let Some(anchor) = loss.contradicted_anchor() {
                let line = anchor.head.seq.saturating_add(1);
                output.line(&format!("  expected  line {line}, {}", anchor.head.hash));
            }
            output.line(&format!("  found     {}", plural(loss.lines(), "line")));
        }
    }
    Ok(0)
}
