//! Runs `flowgate bench compare`: writes the page that compares runs.

use std::path::PathBuf;

use flowgate_bench::compare::page;

use super::verify::read_lines;
use crate::input::InputError;
use crate::output::Console;

/// Runs the command; returns the exit code.
pub(crate) fn run(paths: &[PathBuf], output: &mut Console) -> Result<u8, InputError> {
    let runs: Result<Vec<_>, InputError> =
        paths.iter().map(|path| Ok((path.display().to_string(), read_lines(path)?))).collect();
    output.write_bytes(page(&runs?).map_err(InputError)?.as_bytes());
    Ok(0)
}
