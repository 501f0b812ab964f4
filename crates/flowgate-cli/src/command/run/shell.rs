//! The terminal: what is said there, who waits, and what Ctrl-C means.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often somebody who waits for a line looks whether to stop.
const TICK: Duration = Duration::from_millis(50);
/// What shells say of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// The terminal of a chat. Replies go to the standard output, and everything else here.
pub(crate) struct Shell {
    err: Mutex<Box<dyn Write + Send>>,
    color: bool,
    /// Whether a person is there to be asked.
    has_person: bool,
    /// Whether lines come from a terminal, which wants a prompt.
    has_prompt: bool,
    has_progress: bool,
    in_turn: AtomicBool,
    interrupts: AtomicUsize,
    bar: Mutex<Option<ProgressBar>>,
    lines: Mutex<Option<Receiver<String>>>,
}

/// What came of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Line(String),
    /// There will be no more lines.
    End,
    /// Nobody said anything in time.
    Late,
    /// Ctrl-C.
    Stopped,
}

impl Shell {
    /// The standard streams.
    pub(crate) fn standard(color: bool) -> Self {
        let (input, output) = (stdin().is_terminal(), stderr().is_terminal());
        Self {
            err: Mutex::new(Box::new(stderr())),
            color,
            has_person: input && output,
            has_prompt: input,
            has_progress: output,
            in_turn: AtomicBool::new(false),
            interrupts: AtomicUsize::new(0),
            bar: Mutex::new(None),
            lines: Mutex::new(None),
        }
    }

    /// A person whose lines come from elsewhere, and a place for what they are told.
    #[cfg(test)]
    pub(crate) fn double(lines: Receiver<String>, told: impl Write + Send + 'static) -> Self {
        Self {
            err: Mutex::new(Box::new(told)),
            has_person: true,
            lines: Mutex::new(Some(lines)),
            has_prompt: false,
            has_progress: false,
            ..Self::standard(false)
        }
    }

    /// Whether a person can be asked.
    pub(crate) fn has_person(&self) -> bool {
        self.has_person
    }

    /// Says something, which has been made visible.
    pub(crate) fn say(&self, text: &str) {
        let bar = held(&self.bar);
        let write = || {
            let _ = writeln!(held(&self.err), "{text}");
        };
        match &*bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Says what one should know.
    pub(crate) fn note(&self, text: &str) {
        self.say(&format!("{}: {text}", self.paint("1;36", "note")));
    }

    /// Says what went wrong.
    pub(crate) fn error(&self, text: &str) {
        self.say(&format!("{}: {text}", self.paint("1;31", "error")));
    }

    /// `text` in a colour, if there are colours.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn ask(&self, prompt: &str) {
        let mut err = held(&self.err);
        let _ = write!(err, "{prompt}");
        let _ = err.flush();
    }

    /// Shows that something goes on, and how long it has taken, until the result is dropped.
    pub(crate) fn working(&self, what: String) -> Working<'_> {
        if self.has_progress {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.set_message(what);
            bar.enable_steady_tick(Duration::from_millis(100));
            *held(&self.bar) = Some(bar);
        }
        Working(self)
    }

    /// A turn begins: Ctrl-C cancels it.
    pub(crate) fn begin_turn(&self) {
        self.interrupts.store(0, Ordering::Relaxed);
        self.in_turn.store(true, Ordering::Relaxed);
    }

    /// The turn has ended.
    pub(crate) fn end_turn(&self) {
        self.in_turn.store(false, Ordering::Relaxed);
        self.interrupts.store(0, Ordering::Relaxed);
    }

    /// Whether the turn is to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.in_turn.load(Ordering::Relaxed) && self.interrupts.load(Ordering::Relaxed) > 0
    }

    /// Somebody pressed Ctrl-C. The second time ends the program, and with it the input of all servers.
    pub(crate) fn interrupted(&self) {
        if self.interrupts.fetch_add(1, Ordering::Relaxed) > 0 {
            std::process::exit(INTERRUPTED);
        }
        if self.in_turn.load(Ordering::Relaxed) {
            self.say("\nThe turn is being stopped; Ctrl-C again quits.");
        } else {
            self.say("\nCtrl-C again quits, and so does Ctrl-D.");
        }
    }

    /// The next message of the user.
    pub(crate) fn next_message(&self) -> Heard {
        if self.has_prompt {
            self.ask(&self.paint("1;32", "› "));
        }
        let heard = self.hear(None);
        self.interrupts.store(0, Ordering::Relaxed);
        heard
    }

    /// The answer to a question. What was typed before the question is none.
    pub(crate) fn answer(&self, question: &str, until: Instant) -> Heard {
        self.ask(question);
        self.hear(Some(until))
    }

    /// Forgets what was typed so far.
    pub(crate) fn forget_lines(&self) {
        if let Some(lines) = &*held(&self.lines) {
            while lines.try_recv().is_ok() {}
        }
    }

    fn hear(&self, until: Option<Instant>) -> Heard {
        let mut lines = held(&self.lines);
        let lines = lines.get_or_insert_with(read_lines);
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => return Heard::Line(line),
                Err(RecvTimeoutError::Disconnected) => return Heard::End,
                Err(RecvTimeoutError::Timeout) if self.is_cancelled() => return Heard::Stopped,
                Err(RecvTimeoutError::Timeout) if until.is_some_and(|until| Instant::now() >= until) => {
                    return Heard::Late;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Reads the standard input on a thread, so that waiting for a line can end without one.
fn read_lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something goes on.
pub(crate) struct Working<'a>(&'a Shell);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if let Some(bar) = held(&self.0.bar).take() {
            bar.finish_and_clear();
        }
    }
}
