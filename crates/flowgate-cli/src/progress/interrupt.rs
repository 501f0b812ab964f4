//! Handles Ctrl-C for a command that shows progress: at the first press, the command stops and prints its results so
//! far; at the second press, the program ends at once. [`Progress`](super::Progress) installs the handler.

use std::sync::Arc;

use super::ProgressState;

/// The exit code of a command that Ctrl-C has ended, by the convention of shells: 128 plus the number of the signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// Handles Ctrl-C from now on, for the command with this progress: the first press requests the command to stop, and
/// the second press ends the program. If no handler can be installed, Ctrl-C ends the program at once; this is not
/// an error.
pub(super) fn listen(progress: Arc<ProgressState>) {
    let on_signal = move || {
        let is_second_press = progress.interrupt();
        if is_second_press {
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    let _ = ctrlc::set_handler(on_signal);
}
