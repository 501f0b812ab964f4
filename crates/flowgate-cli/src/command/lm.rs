//! Runs `flowgate lm`: trains small language models (`train`), measures how well a model copies values from its prompt
//! (`evaluate`), and chooses λ, the loss of utility that a search for labels tolerates (`tune`).

#[cfg(feature = "local")]
mod evaluate;
#[cfg(feature = "local")]
mod train;
mod tune;

use crate::args::LmCommand;
use crate::input::InputError;
use crate::output::Console;

/// Runs the subcommand of `flowgate lm`. Returns 0, or [`INTERRUPTED`](crate::progress::INTERRUPTED) after an interrupt.
pub(crate) fn run(command: &LmCommand, output: &mut Console) -> Result<u8, InputError> {
    match command {
        #[cfg(feature = "local")]
        LmCommand::Train(options) => train::train(options, output),
        #[cfg(feature = "local")]
        LmCommand::Evaluate(options) => evaluate::evaluate(options, output),
        LmCommand::Tune(options) => tune::tune(options, output),
    }
}
