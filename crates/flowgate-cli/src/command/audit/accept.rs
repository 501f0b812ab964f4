//! `flowgate audit accept-loss`: a loss is recorded, and the gateway starts again.

use std::path::Path;

use flowgate_gateway::recorder::accept_loss;

use crate::command::serve;
use crate::input::InputError;
use crate::output::Output;

/// The person whom the log names as accepting the loss: an operator who can read its key.
const WHO: &str = "who has the key";

/// Runs the command; returns the exit code.
pub(super) fn run(path: &Path, output: &mut Output) -> Result<u8, InputError> {
    let failed = |why: &dyn std::fmt::Display| InputError(format!("{}: {why}", path.display()));
    let config = serve::model_routes(path)?;
    let Some(file) = config.audit.as_ref().map(|audit| audit.file.clone()) else {
        return Err(failed(&"there is no [audit]: this gateway keeps no log"));
    };
    let loss = accept_loss(config, WHO).map_err(|error| failed(&error))?;
    let mark = output.paint("32", "✓");
    let name = file.display();
    match loss {
        None => output.line(&format!("{mark} {name} has lost nothing that its database knows of")),
        Some(loss) => {
            output.line(&format!("{mark} {name} goes on, and says what was lost: {}", loss.name()));
            if let Some(known) = loss.known() {
                let line = known.head.seq.saturating_add(1);
                output.line(&format!("  expected  line {line}, {}", known.head.hash));
            }
            output.line(&format!("  found     {} lines", loss.lines()));
        }
    }
    Ok(0)
}
