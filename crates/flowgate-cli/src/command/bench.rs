//! `flowgate bench`: repeatable measurements.

mod detectors;
mod feedback;

use crate::args::Bench;
use crate::input::InputError;
use crate::output::Output;
#[cfg(feature = "bench")]
use crate::progress::{INTERRUPTED, Progress};

/// Runs a measurement; returns the exit code.
pub(crate) fn run(bench: &Bench, output: &mut Output) -> Result<u8, InputError> {
    match bench {
        Bench::Detectors { policy, format, content } => {
            let options =
                detectors::Options { policy: policy.as_deref(), format: *format, content: *content };
            detectors::run(&options, output)
        }
        #[cfg(feature = "bench")]
        Bench::Agents => {
            use flowgate_bench::agents::{Guard, Suite, table};
            let suite = Suite::new().map_err(InputError)?;
            let progress = Progress::steps(suite.runs(&Guard::ALL), "run", output);
            let mut rows = Vec::new();
            for guard in Guard::ALL {
                let step = &mut || {
                    progress.step();
                    progress.is_interrupted()
                };
                match suite.row(guard, step).map_err(InputError)? {
                    Some(row) => rows.push(row),
                    None => break,
                }
            }
            let is_interrupted = progress.finish(output);
            // A method whose runs are incomplete has no row.
            output.raw(table(&Guard::ALL, &rows).as_bytes());
            Ok(if is_interrupted { INTERRUPTED } else { 0 })
        }
    }
}
