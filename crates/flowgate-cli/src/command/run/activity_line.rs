//! Draws the line of a chat in the terminal that shows the running activity ("the model writes") and its duration. A
//! thread redraws it until the [`ActivityLine`] is dropped. `terminal` begins one for each activity.

use std::io::{Write as _, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::escaping;
use crate::progress::{CLEAR, elapsed};

/// The time between two updates of the line.
const UPDATE: Duration = Duration::from_millis(100);
/// The maximum number of characters of the activity. A longer text could take more than one line of the terminal, which
/// cannot be cleared.
const MAX_SHOWN_CHARS: usize = 50;

/// The line of a running activity. It is drawn until this value is dropped.
pub(super) struct ActivityLine {
    /// Dropping this sender ends the thread.
    stop: Option<Sender<()>>,
    /// The thread that draws the line; `None` if it could not be started.
    thread: Option<JoinHandle<()>>,
}

impl ActivityLine {
    /// Starts the thread that draws the line of the activity `what`, with the time since this call. Without a thread,
    /// there is no line.
    pub(super) fn begin(what: String) -> Self {
        let (stop, stopped) = channel();
        let begun = Instant::now();
        // A line that cannot be written is left out.
        let draw = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(UPDATE) {
                let _ = stderr().write_all(format!("{CLEAR}{}", line(&what, begun.elapsed())).as_bytes());
            }
            let _ = stderr().write_all(CLEAR.as_bytes());
        };
        Self { stop: Some(stop), thread: std::thread::Builder::new().spawn(draw).ok() }
    }

    /// Returns the characters that clear the line for other text.
    pub(super) fn clear(&self) -> &'static str {
        CLEAR
    }
}

impl Drop for ActivityLine {
    /// Removes the line: closing the channel `stop` makes the thread clear it and end.
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the line, such as `step 2: the model writes, 3 s`.
fn line(what: &str, time: Duration) -> String {
    format!("{}, {}", escaping::excerpt(what, MAX_SHOWN_CHARS), elapsed(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_activity_is_shown_on_one_line() {
        let check = |what: &str, seconds: u64, expected: &str| {
            assert_eq!(line(what, Duration::from_secs(seconds)), expected);
        };
        check("step 2: the model writes", 0, "step 2: the model writes, 0 s");
        check("mail/send\nnow runs", 61, "mail/send now runs, 1 min 1 s");
        check(&"x".repeat(60), 3, &format!("{} …, 3 s", "x".repeat(50)));
    }
}
