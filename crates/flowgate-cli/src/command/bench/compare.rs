//! Runs `flowgate bench compare`: prints an HTML page that compares runs which `flowgate bench` has recorded in files.
//! `flowgate_bench::compare` writes the page; this module reads the files.

use std::path::PathBuf;

use flowgate_bench::compare::page;

use super::verify::read_lines;
use crate::input::InputError;
use crate::output::Console;

/// Prints an HTML page that compares the recorded runs in the files. Returns 0.
///
/// # Errors
/// If a file cannot be read or is not a run.
pub(crate) fn run(paths: &[PathBuf], output: &mut Console) -> Result<u8, InputError> {
    let runs: Result<Vec<_>, InputError> =
        paths.iter().map(|path| Ok((path.display().to_string(), read_lines(path)?))).collect();
    output.write_bytes(page(&runs?).map_err(InputError)?.as_bytes());
    Ok(0)
}
