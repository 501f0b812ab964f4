//! Reads the lines that a person types at the terminal as answers to questions, for `flowgate approvals` and
//! `flowgate scan --start`. A line that was typed before a question was shown does not answer the question.

use std::io::{BufRead as _, stdin};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::output::Console;

/// The lines that the person types at the terminal. A thread reads each line when it is typed, so that a line that was
/// typed before a question was shown can be discarded.
pub(crate) struct TypedLines(Receiver<String>);

impl TypedLines {
    /// Starts the thread that reads lines from the standard input. The returned value receives them.
    pub(crate) fn start_reading() -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            // The thread ends with the input, or with the program. Sending fails if nothing receives the lines.
            for line in stdin().lock().lines() {
                if line.is_err() || line.is_ok_and(|line| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// Discards the lines that were typed before the prompt, prints the prompt on the standard output, and returns the
    /// next line without white space around it; `None` at the end of the input.
    pub(crate) fn ask(&self, prompt: &str, output: &mut Console) -> Option<String> {
        self.discard();
        output.prompt(prompt);
        self.next()
    }

    /// Asks as [`ask`](Self::ask) does, but on the standard error: the standard output may be a file.
    pub(crate) fn ask_beside_result(&self, prompt: &str, output: &mut Console) -> Option<String> {
        self.discard();
        output.prompt_beside_result(prompt);
        self.next()
    }

    /// Discards the lines that were typed so far.
    fn discard(&self) {
        while self.0.try_recv().is_ok() {}
    }

    /// Waits for the next line, and returns it without white space around it; `None` at the end of the input.
    fn next(&self) -> Option<String> {
        self.0.recv().ok().map(|line| line.trim().to_owned())
    }
}

/// Returns whether an answer is `y` or `yes`. Any other line means no.
pub(crate) fn is_yes(line: &str) -> bool {
    matches!(line, "y" | "Y" | "yes" | "Yes" | "YES")
}
