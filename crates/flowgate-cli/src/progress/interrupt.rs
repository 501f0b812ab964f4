//! Handles Ctrl-C: the first time, a command ends with its results so far; the second time, it quits.

use std::sync::Arc;

use super::ProgressState;

/// The exit code of a command that Ctrl-C has ended, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Handles Ctrl-C from now on. If the system does not allow that, Ctrl-C ends the program at once.
pub(super) fn listen(progress: Arc<ProgressState>) {
    let on_signal = move || {
        if progress.interrupt() {
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    let _ = ctrlc::set_handler(on_signal);
}
