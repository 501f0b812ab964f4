//! Reads the runs over which `flowgate suggest` tries changes of a policy: useful runs, whose calls should pass, and
//! recorded attacks, which must not do more than before.

use std::io::BufRead as _;
use std::path::Path;

use flowgate::trace::read::RecordedRun;
use flowgate_audit::watch::WatchedVerdict;

use crate::corpus::RunMarks;
use crate::input::{self, InputError};
use crate::progress::Progress;

/// The runs in memory: each change is tried over all of them.
#[derive(Debug, Default)]
pub(super) struct RecordedRuns {
    /// Runs without an attack, whose calls should pass.
    pub(super) useful: Vec<RecordedRun>,
    /// Runs with an attack.
    pub(super) attacks: Vec<RecordedRun>,
}

impl RecordedRuns {
    /// Adds the runs of a file. Without `counts_useful`, which is for a corpus of attacks, adds only the runs with an
    /// attack. Runs whose user task is itself an injection task are always left out. Adds an error to `errors` for each
    /// run that cannot be read.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(
        &mut self,
        path: &Path,
        counts_useful: bool,
        progress: &Progress,
        errors: &mut Vec<InputError>,
    ) -> Result<(), InputError> {
        input::for_each_run(path, progress, &mut |item| {
            match item {
                Ok((_, run)) if RunMarks::of(&run).attack.is_some() => self.attacks.push(run),
                Ok((_, run)) if counts_useful && !RunMarks::of(&run).is_injection_alone() => {
                    self.useful.push(run)
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
            progress.step();
            // Continues with the next run, also after an error.
            true
        })
    }
}

/// Returns an error if a file is a watch log, which its first line shows. A watch log does not have the contents of
/// events, so its calls cannot be judged again. A file whose first line cannot be read counts as no watch log: the
/// problem is reported when its runs are read. The standard input is not checked, because it can be read only once.
///
/// # Errors
/// If the file is a watch log, in which case the message says what to give instead; or if it cannot be opened.
pub(super) fn refuse_watch_log(path: &Path) -> Result<(), InputError> {
    if path == Path::new("-") {
        return Ok(());
    }
    let mut line = Vec::new();
    // At most 1 MiB is read. A longer line is cut, so it does not parse as a verdict.
    let read = std::io::Read::take(input::open(path)?, 1 << 20).read_until(b'\n', &mut line);
    let is_watch_log =
        read.is_ok() && std::str::from_utf8(&line).is_ok_and(|line| WatchedVerdict::parse(line).is_ok());
    match is_watch_log {
        false => Ok(()),
        true => Err(InputError(format!(
            "{}: the file is a watch log, which has no content, so its calls cannot be judged again: give recorded traces of the \
            same work, which `--traces` beside `--watch` or `flowgate trace export --all` writes; `flowgate report` sums up the watch log",
            path.display()
        ))),
    }
}
