//! How far a command is, on the standard error if that is a terminal, once it takes longer than a second.

use std::fs::File;
use std::io::{IsTerminal as _, Read, Result, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes less is done before anybody wonders.
const BRIEF: Duration = Duration::from_secs(1);

/// How much of some files has been read, and how long the rest will take.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    is_drawn: AtomicBool,
    runs: AtomicU64,
    read: Arc<AtomicU64>,
    is_wanted: bool,
}

impl Progress {
    /// Over these files; `is_wanted` says whether nothing else shows how far the command is.
    pub(crate) fn over(files: &[PathBuf], is_wanted: bool) -> Self {
        // What comes over the standard input has no length.
        let lengths =
            files.iter().map(|file| std::fs::metadata(file).ok().filter(|m| m.is_file()).map(|m| m.len()));
        let total: Option<u64> = lengths.sum();
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template(total.is_some())) {
            bar.set_style(style);
        }
        Self {
            bar,
            begun: Instant::now(),
            is_drawn: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            read: Arc::default(),
            is_wanted: is_wanted && stderr().is_terminal(),
        }
    }

    /// Where the bytes that are read are counted.
    pub(crate) fn read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// One more run has been judged.
    pub(crate) fn step(&self) {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.is_wanted {
            return;
        }
        if self.begun.elapsed() > BRIEF && !self.is_drawn.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(self.read.load(Ordering::Relaxed));
        self.bar.set_message(crate::output::plural(usize::try_from(runs).unwrap_or(usize::MAX), "run"));
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn template(has_length: bool) -> &'static str {
    if has_length {
        "{wide_bar} {msg} judged, {percent} %, {eta} left"
    } else {
        "{spinner} {msg} judged, {elapsed}"
    }
}

/// A file whose bytes are counted as they are read.
pub(crate) struct Counted {
    pub(crate) file: File,
    pub(crate) read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(count)
    }
}
