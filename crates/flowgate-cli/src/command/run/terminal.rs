//! Owns the terminal of a chat of `flowgate run`: reads the lines that the person types, prints notes, errors,
//! questions, prompts and the running activity to the standard error, and counts presses of Ctrl-C. All parts of
//! `flowgate run` print and ask through [`ChatTerminal`]. Only the replies of the model, which go to the standard
//! output, are printed by `chat`.
//!
//! A message that cannot be printed is dropped: a closed standard error must not end the chat.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowgate_guard::approve::{Decision, QuestionBudget, QuestionCount};

use super::activity_line::ActivityLine;
use crate::display_mode::ProgressMode;
use crate::progress::INTERRUPTED;

/// The interval at which a thread that waits for a line checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The limits on questions in one chat. Without them, an attacker who provokes many questions could tire the person
/// into an approval.
pub(crate) const QUESTION_BUDGET: QuestionBudget = QuestionBudget { questions: 100, refusals_in_row: 3 };

/// The terminal of a chat. It prints to the standard error; replies go to the standard output, through
/// [`Console`](crate::output::Console).
pub(crate) struct ChatTerminal {
    err: Mutex<Box<dyn Write + Send>>,
    /// Whether the output has colours.
    color: bool,
    /// Whether a person can be asked.
    has_person: bool,
    /// Whether the input is a terminal, which gets a prompt.
    has_prompt: bool,
    /// Whether a line shows the running activity.
    has_progress: bool,
    /// Whether a turn runs, which Ctrl-C cancels.
    in_turn: AtomicBool,
    /// How often Ctrl-C was pressed since the turn began or, between turns, since the last line of the person.
    interrupts: AtomicUsize,
    /// The line of the running activity.
    activity: Mutex<Option<ActivityLine>>,
    /// The lines of the standard input, from the thread that reads them; `None` until the first wait for a line
    /// starts it.
    lines: Mutex<Option<Receiver<String>>>,
    /// The questions of all conversations of this chat, those of its agents included.
    questions: Mutex<QuestionCount>,
}

/// The result of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineInput {
    Line(String),
    /// There will be no more lines.
    End,
    /// The time limit passed without a line.
    Late,
    /// Ctrl-C has cancelled the turn.
    Stopped,
}

impl ChatTerminal {
    /// Creates a terminal on the standard streams. The running activity is shown if the standard error is a terminal,
    /// unless `progress` is [`ProgressMode::Never`].
    pub(crate) fn standard(color: bool, progress: ProgressMode) -> Self {
        let (input, output) = (stdin().is_terminal(), stderr().is_terminal());
        Self {
            err: Mutex::new(Box::new(stderr())),
            color,
            // A person must see the question and be able to answer it.
            has_person: input && output,
            has_prompt: input,
            has_progress: output && progress != ProgressMode::Never,
            in_turn: AtomicBool::new(false),
            interrupts: AtomicUsize::new(0),
            activity: Mutex::new(None),
            lines: Mutex::new(None),
            questions: Mutex::new(QuestionCount::default()),
        }
    }

    /// Creates a terminal for tests, with given input and output.
    #[cfg(test)]
    pub(crate) fn double(lines: Receiver<String>, err: impl Write + Send + 'static) -> Self {
        Self {
            err: Mutex::new(Box::new(err)),
            has_person: true,
            lines: Mutex::new(Some(lines)),
            has_prompt: false,
            has_progress: false,
            ..Self::standard(false, ProgressMode::Never)
        }
    }

    /// Returns whether the person may be asked one more question, within [`QUESTION_BUDGET`].
    pub(crate) fn allows_question(&self) -> bool {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).allows_question(QUESTION_BUDGET)
    }

    /// Counts a question of any conversation of this chat, with its answer.
    pub(crate) fn count_question(&self, decision: Decision) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).count(decision);
    }

    /// Returns whether a person can be asked.
    pub(crate) fn has_person(&self) -> bool {
        self.has_person
    }

    /// Prints a text on a line of the standard error. The line of the running activity is cleared first; its thread
    /// draws it again below the text. The caller has escaped control characters in the text.
    pub(crate) fn print(&self, text: &str) {
        let activity = lock(&self.activity);
        let clear = activity.as_ref().map_or("", ActivityLine::clear);
        // In one write, so that the thread that draws the line cannot write in between.
        let _ = lock(&self.err).write_all(format!("{clear}{text}\n").as_bytes());
    }

    /// Prints a note.
    pub(crate) fn note(&self, text: &str) {
        self.print(&format!("{}: {text}", self.paint("1;36", "note")));
    }

    /// Prints an error.
    pub(crate) fn error(&self, text: &str) {
        self.print(&format!("{}: {text}", self.paint("1;31", "error")));
    }

    /// Returns `text` between the escape sequences of the colour `code`, such as `1;31`; unchanged if there are no
    /// colours.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Prints a prompt, without a line break.
    fn prompt(&self, prompt: &str) {
        let mut err = lock(&self.err);
        let _ = write!(err, "{prompt}");
        let _ = err.flush();
    }

    /// Shows an activity, such as `the model writes`, and its duration until the returned guard is dropped. If progress
    /// is not shown, only returns the guard.
    pub(crate) fn show_activity(&self, what: String) -> ActivityGuard<'_> {
        if self.has_progress {
            *lock(&self.activity) = Some(ActivityLine::begin(what));
        }
        ActivityGuard(self)
    }

    /// Begins a turn: from now on, Ctrl-C cancels the turn. Earlier presses are forgotten. The user has written, so
    /// questions that were refused before no longer count.
    pub(crate) fn begin_turn(&self) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).resume();
        self.interrupts.store(0, Ordering::Relaxed);
        self.in_turn.store(true, Ordering::Relaxed);
    }

    /// Ends the turn: from now on, Ctrl-C cancels nothing, and a second press ends the program.
    pub(crate) fn end_turn(&self) {
        self.in_turn.store(false, Ordering::Relaxed);
        self.interrupts.store(0, Ordering::Relaxed);
    }

    /// Returns whether Ctrl-C has cancelled the running turn.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.in_turn.load(Ordering::Relaxed) && self.interrupts.load(Ordering::Relaxed) > 0
    }

    /// Handles a press of Ctrl-C. The first one in a turn stops the turn, the first one between turns only prints a
    /// hint. The second one ends the program, which closes the input of all servers.
    pub(crate) fn handle_interrupt(&self) {
        if self.interrupts.fetch_add(1, Ordering::Relaxed) > 0 {
            std::process::exit(i32::from(INTERRUPTED));
        }
        if self.in_turn.load(Ordering::Relaxed) {
            self.print("\nThe turn is being stopped; Ctrl-C again quits.");
        } else {
            self.print("\nCtrl-C again quits, and so does Ctrl-D.");
        }
    }

    /// Waits for the next line of the user, with a prompt on a terminal. Forgets earlier presses of Ctrl-C.
    pub(crate) fn next_message(&self) -> LineInput {
        if self.has_prompt {
            self.prompt(&self.paint("1;32", "› "));
        }
        let input = self.wait_for_line(None);
        self.interrupts.store(0, Ordering::Relaxed);
        input
    }

    /// Prints a question and waits for the answer, until `until` at most. The caller discards earlier lines with
    /// [`Self::discard_lines`], so that no line typed before the question answers it.
    pub(crate) fn wait_for_answer(&self, question: &str, until: Instant) -> LineInput {
        self.prompt(question);
        self.wait_for_line(Some(until))
    }

    /// Discards the lines typed so far.
    pub(crate) fn discard_lines(&self) {
        if let Some(lines) = &*lock(&self.lines) {
            while lines.try_recv().is_ok() {}
        }
    }

    /// Waits for a line of the person, until `until` at most (`None`: for any time). Returns [`LineInput::End`] at the
    /// end of the input, [`LineInput::Stopped`] if Ctrl-C cancels the turn, and [`LineInput::Late`] after `until`. A
    /// thread reads the lines, so that the wait can end without a line.
    fn wait_for_line(&self, until: Option<Instant>) -> LineInput {
        let mut lines = lock(&self.lines);
        let lines = lines.get_or_insert_with(read_lines);
        loop {
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok(line) => return LineInput::Line(line),
                Err(RecvTimeoutError::Disconnected) => return LineInput::End,
                Err(RecvTimeoutError::Timeout) if self.is_cancelled() => return LineInput::Stopped,
                Err(RecvTimeoutError::Timeout) if until.is_some_and(|until| Instant::now() >= until) => {
                    return LineInput::Late;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Starts a thread that sends the lines of the standard input to the returned channel, because a read of the standard
/// input itself cannot be stopped. The channel ends with the input. In a line that is not valid UTF-8, the wrong bytes
/// are replaced by U+FFFD.
fn read_lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in stdin().lock().split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if sender.send(line.strip_suffix('\r').unwrap_or(&line).to_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Locks a mutex, also if a thread panicked while it held the lock: the values behind these locks are always usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard: the terminal shows the activity until this value is dropped.
pub(crate) struct ActivityGuard<'a>(&'a ChatTerminal);

impl Drop for ActivityGuard<'_> {
    /// Ends the activity: its line is removed from the terminal.
    fn drop(&mut self) {
        lock(&self.0.activity).take();
    }
}
