//! Shows the progress of a command and the time left, and handles Ctrl-C while the command runs. Progress that cannot
//! be written is dropped, since the work does not depend on it.
//!
//! On a terminal, progress is one line of the standard error, which is overwritten. It appears once the command takes
//! longer than a second. Elsewhere, progress is shown only with `--progress always`: a new line for each tenth of the
//! work.
//!
//! * `line` formats the text of the line.
//! * `interrupt` handles Ctrl-C.

mod interrupt;
mod line;

use std::io::{IsTerminal as _, Read, Result, Write, stderr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::display_mode::ProgressMode;
use crate::output::{Console, plural};

pub(crate) use interrupt::INTERRUPTED;
#[cfg(feature = "run")]
pub(crate) use line::elapsed;

/// The time before the first line on a terminal: a command that takes less time shows no progress there.
const BRIEF: Duration = Duration::from_secs(1);
/// The time between two updates of the line on a terminal.
const UPDATE: Duration = Duration::from_millis(100);
/// Clears the line that the cursor is on.
pub(crate) const CLEAR: &str = "\r\u{1b}[K";

/// The progress of a command. The line on the terminal is cleared when this value is dropped.
pub(crate) struct Progress(Arc<ProgressState>);

/// The part of the progress that the handler of Ctrl-C and the readers of files share.
struct ProgressState {
    work: WorkUnit,
    /// All work, in bytes or steps, if it is known beforehand.
    total: Option<u64>,
    /// The work done, in bytes or steps.
    done: AtomicU64,
    /// The number of steps done, or of items found in files.
    items: AtomicU64,
    /// The form in which the progress is shown.
    show: ProgressDisplay,
    /// Returns the time since the command began.
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    drawn: Mutex<DisplayState>,
    /// Whether Ctrl-C was pressed.
    is_interrupted: AtomicBool,
}

/// The unit of a command's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkUnit {
    /// The bytes of files; the word names the items in them, such as `run`, or is empty if they are not counted.
    Files(&'static str),
    /// Steps, whose number is known; the word names them, in the singular.
    Steps(&'static str),
}

/// The form in which progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressDisplay {
    Hidden,
    /// On one line of a terminal, which is overwritten.
    Terminal,
    /// On its own line for each tenth of the work.
    Lines,
}

/// The stream to which progress is written, and how far it was last shown there.
struct DisplayState {
    out: Box<dyn Write + Send>,
    /// The time of the last update of the line on the terminal; `None` if no line is shown.
    at: Option<Duration>,
    /// The tenth of the work that the last line reported.
    tenth: u64,
}

impl Progress {
    /// Begins to show the progress of reading files, in bytes, and to handle Ctrl-C. `item` names what the files
    /// contain, as in [`WorkUnit::Files`]. If `is_wanted` is false, there is no progress line on a terminal, because
    /// the command prints its results there while it works.
    pub(crate) fn over_files(
        files: &[PathBuf],
        item: &'static str,
        is_wanted: bool,
        output: &Console,
    ) -> Self {
        // The standard input and pipes have no length. If one length is `None`, so is the sum: the total is unknown.
        let lengths =
            files.iter().map(|file| std::fs::metadata(file).ok().filter(|m| m.is_file()).map(|m| m.len()));
        Self::on_stderr(WorkUnit::Files(item), lengths.sum(), is_wanted, output.progress())
    }

    /// Begins to show the progress of `total` steps, and to handle Ctrl-C. `step` is the word for one step.
    pub(crate) fn over_steps(total: usize, step: &'static str, output: &Console) -> Self {
        Self::on_stderr(WorkUnit::Steps(step), u64::try_from(total).ok(), true, output.progress())
    }

    /// Creates the progress display on the standard error. If this is a terminal and `may_rewrite` is true, the
    /// display is one line that is overwritten, unless `mode` is [`ProgressMode::Never`]. In all other cases,
    /// [`ProgressMode::Always`] prints a line for each tenth of the work, and the other modes print nothing. From now
    /// on, the first Ctrl-C requests the command to stop, and the second one ends the program.
    fn on_stderr(work: WorkUnit, total: Option<u64>, may_rewrite: bool, mode: ProgressMode) -> Self {
        let show = match (mode, stderr().is_terminal()) {
            (ProgressMode::Auto | ProgressMode::Always, true) if may_rewrite => ProgressDisplay::Terminal,
            (ProgressMode::Always, _) => ProgressDisplay::Lines,
            _ => ProgressDisplay::Hidden,
        };
        let begun = Instant::now();
        let progress = Self::new(work, total, show, Box::new(stderr()), Box::new(move || begun.elapsed()));
        interrupt::listen(Arc::clone(&progress.0));
        progress
    }

    /// Creates progress that is shown on `out` and measures time with `clock`, and does not handle Ctrl-C.
    fn new(
        work: WorkUnit,
        total: Option<u64>,
        show: ProgressDisplay,
        out: Box<dyn Write + Send>,
        clock: Box<dyn Fn() -> Duration + Send + Sync>,
    ) -> Self {
        Self(Arc::new(ProgressState {
            work,
            total,
            done: AtomicU64::new(0),
            items: AtomicU64::new(0),
            show,
            clock,
            drawn: Mutex::new(DisplayState { out, at: None, tenth: 0 }),
            is_interrupted: AtomicBool::new(false),
        }))
    }

    /// Returns progress that is not shown and does not handle Ctrl-C.
    #[cfg(test)]
    pub(crate) fn hidden() -> Self {
        let clock = Box::new(|| Duration::ZERO);
        Self::new(WorkUnit::Steps("step"), None, ProgressDisplay::Hidden, Box::new(std::io::sink()), clock)
    }

    /// Counts one step, or one item of a file. Only a step also counts as work done: the work on files is counted in
    /// bytes, by [`ProgressState::count_bytes`].
    pub(crate) fn step(&self) {
        self.0.items.fetch_add(1, Ordering::Relaxed);
        if matches!(self.0.work, WorkUnit::Steps(_)) {
            self.0.done.fetch_add(1, Ordering::Relaxed);
        }
        self.0.update();
    }

    /// Returns a reader that counts the bytes read from `from` as work done.
    pub(crate) fn counting_reader<R: Read>(&self, from: R) -> CountingReader<R> {
        CountingReader { from, shared: Arc::clone(&self.0) }
    }

    /// Returns whether the user pressed Ctrl-C: the command ends with the results so far.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.is_interrupted.load(Ordering::Relaxed)
    }

    /// Clears the line on the terminal, if there is one, so that other text can be printed. The next update shows it
    /// again.
    pub(crate) fn clear(&self) {
        let mut drawn = lock(&self.0.drawn);
        if drawn.at.take().is_some() {
            let _ = write!(drawn.out, "{CLEAR}");
            let _ = drawn.out.flush();
        }
    }

    /// Clears the line of progress, and returns whether the command was interrupted. In that case, warns in `output`
    /// that the results are incomplete, with the number of finished items.
    pub(crate) fn finish(&self, output: &mut Console) -> bool {
        self.clear();
        if self.is_interrupted() {
            let items = usize::try_from(self.0.items.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
            output.warning(&match self.0.work {
                // Without a word for them, the items are not counted.
                WorkUnit::Files("") => "interrupted: the rest of the input was not read".to_owned(),
                WorkUnit::Files(word) | WorkUnit::Steps(word) => {
                    format!("interrupted after {}: the results are incomplete", plural(items, word))
                }
            });
        }
        self.is_interrupted()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl ProgressState {
    /// Counts bytes that were read.
    fn count_bytes(&self, bytes: usize) {
        self.done.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        // On a terminal, the line is updated so that it shows that a long file is being read. Elsewhere, only finished
        // items are reported, by `step`.
        if self.show == ProgressDisplay::Terminal {
            self.update();
        }
    }

    /// Shows the progress if an update is due. On a terminal, the first update is due after [`BRIEF`], so that a short
    /// command shows nothing, and each further update when [`UPDATE`] has passed. Elsewhere, an update is due after
    /// each tenth of the work or, if the total is unknown, whenever the number of items has doubled. An update that
    /// cannot be written is dropped.
    fn update(&self) {
        if self.show == ProgressDisplay::Hidden {
            return;
        }
        let done = self.done.load(Ordering::Relaxed);
        let now = (self.clock)();
        let mut drawn = lock(&self.drawn);
        if self.show == ProgressDisplay::Terminal {
            let is_due = drawn.at.map_or(now >= BRIEF, |at| now >= at + UPDATE);
            if is_due {
                drawn.at = Some(now);
                let _ = write!(drawn.out, "{CLEAR}{}", self.text(done, now));
                let _ = drawn.out.flush();
            }
            return;
        }
        let tenth = line::tenth(done, self.total, self.items.load(Ordering::Relaxed));
        if tenth > drawn.tenth {
            drawn.tenth = tenth;
            let _ = writeln!(drawn.out, "{}", self.text(done, now));
        }
    }

    /// Returns the line that shows the progress. `done` is the work done, in bytes or steps, and `now` is the time
    /// since the command began.
    fn text(&self, done: u64, now: Duration) -> String {
        let items = usize::try_from(self.items.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        line::line(&self.work, items, done, self.total, now)
    }

    /// Records that Ctrl-C was pressed, and at the first press prints that the command is ending. Returns whether
    /// Ctrl-C was pressed before; the caller then ends the program.
    fn interrupt(&self) -> bool {
        let is_second = self.is_interrupted.swap(true, Ordering::Relaxed);
        let mut drawn = lock(&self.drawn);
        let clear = if drawn.at.take().is_some() { CLEAR } else { "" };
        if !is_second {
            let _ = writeln!(
                drawn.out,
                "{clear}interrupted: finishing the work that has begun; Ctrl-C again quits at once"
            );
        }
        is_second
    }
}

/// Locks a mutex; a poisoned one is used as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reader of a file or of the standard input, which counts the bytes that are read. After Ctrl-C, it ends early, as
/// at the end of the file. So the code that reads must check [`Progress::is_interrupted`] at the end.
pub(crate) struct CountingReader<R> {
    from: R,
    shared: Arc<ProgressState>,
}

impl<R: Read> Read for CountingReader<R> {
    /// Reads and counts bytes. After an interrupt, returns 0 as at the end of the file: the command then finishes
    /// with the results so far.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.shared.is_interrupted.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let count = self.from.read(buffer)?;
        self.shared.count_bytes(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The captured output, and a clock that the test sets, in milliseconds.
    #[derive(Clone, Default)]
    struct CapturedDisplay(Arc<Mutex<Vec<u8>>>, Arc<AtomicU64>);

    impl Write for CapturedDisplay {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    impl CapturedDisplay {
        fn progress(&self, work: WorkUnit, total: Option<u64>, show: ProgressDisplay) -> Progress {
            let clock = Arc::clone(&self.1);
            let now = move || Duration::from_millis(clock.load(Ordering::Relaxed));
            Progress::new(work, total, show, Box::new(self.clone()), Box::new(now))
        }

        fn at(&self, millis: u64) {
            self.1.store(millis, Ordering::Relaxed);
        }

        /// Returns what was drawn since the last call.
        fn drawn(&self) -> String {
            String::from_utf8(std::mem::take(&mut *lock(&self.0))).unwrap()
        }
    }

    #[test]
    fn a_terminal_shows_one_line_after_a_second() {
        let double = CapturedDisplay::default();
        let progress = double.progress(WorkUnit::Steps("run"), Some(40), ProgressDisplay::Terminal);
        let check = |millis: u64, expected: &str| {
            double.at(millis);
            progress.step();
            assert_eq!(double.drawn(), expected, "after {millis} ms");
        };
        check(0, "");
        check(999, "");
        check(1000, "\r\u{1b}[K3 runs, 7%, 12 s left");
        check(1099, "");
        check(2000, "\r\u{1b}[K5 runs, 12%, 14 s left");
        progress.clear();
        assert_eq!(double.drawn(), "\r\u{1b}[K");
        check(2001, "\r\u{1b}[K6 runs, 15%, 11 s left");
        drop(progress);
        assert_eq!(double.drawn(), "\r\u{1b}[K", "an error that follows has a separate line");
    }

    #[test]
    fn a_brief_command_shows_nothing() {
        let double = CapturedDisplay::default();
        let progress = double.progress(WorkUnit::Steps("run"), Some(1), ProgressDisplay::Terminal);
        progress.step();
        drop(progress);
        assert_eq!(double.drawn(), "");
    }

    #[test]
    fn bytes_that_are_read_move_the_line_of_a_terminal() {
        let double = CapturedDisplay::default();
        let progress = double.progress(WorkUnit::Files(""), Some(4), ProgressDisplay::Terminal);
        let mut reader = progress.counting_reader(&b"abcd"[..]);
        double.at(3000);
        let mut byte = [0];
        assert_eq!(reader.read(&mut byte).unwrap(), 1);
        assert_eq!(double.drawn(), "\r\u{1b}[K25% read, 9 s left");
    }

    #[test]
    fn a_pipe_gets_a_line_for_each_tenth_and_only_if_that_was_asked_for() {
        let double = CapturedDisplay::default();
        let progress = double.progress(WorkUnit::Steps("run"), Some(20), ProgressDisplay::Lines);
        double.at(5000);
        (0..20).for_each(|_| progress.step());
        let drawn = double.drawn();
        assert_eq!(drawn.lines().count(), 10, "{drawn}");
        assert!(
            drawn.starts_with("2 runs, 10%, 45 s left\n") && drawn.ends_with("\n20 runs, 100%\n"),
            "{drawn}"
        );
        assert!(!drawn.contains('\u{1b}') && !drawn.contains('\r'), "{drawn}");
        let progress = double.progress(WorkUnit::Steps("run"), Some(20), ProgressDisplay::Hidden);
        (0..20).for_each(|_| progress.step());
        drop(progress);
        assert_eq!(double.drawn(), "");
    }

    #[test]
    fn nothing_is_read_after_ctrl_c() {
        let double = CapturedDisplay::default();
        let progress = double.progress(WorkUnit::Files("run"), Some(4), ProgressDisplay::Terminal);
        let mut reader = progress.counting_reader(&b"abcd"[..]);
        let mut byte = [0];
        double.at(1000);
        assert_eq!(reader.read(&mut byte).unwrap(), 1);
        double.drawn();
        assert!(!progress.0.interrupt());
        assert_eq!(
            double.drawn(),
            "\r\u{1b}[Kinterrupted: finishing the work that has begun; Ctrl-C again quits at once\n"
        );
        assert_eq!(reader.read(&mut byte).unwrap(), 0);
        assert!(progress.is_interrupted() && progress.0.interrupt(), "the second time it quits");
    }
}
