//! Runs `flowgate bench`, whose operations are repeatable measurements: of detectors, of the guard's methods, and of defences in
//! security games.

mod detectors;
mod feedback;
#[cfg(feature = "bench")]
mod games;

use crate::args::BenchCommand;
use crate::input::InputError;
use crate::output::Console;
#[cfg(feature = "bench")]
use crate::progress::{INTERRUPTED, Progress};

/// Runs a measurement; returns the exit code.
pub(crate) fn run(bench: &BenchCommand, output: &mut Console) -> Result<u8, InputError> {
    match bench {
        BenchCommand::Detectors { policy, format, content } => {
            let options = detectors::DetectorBenchOptions {
                policy: policy.as_deref(),
                format: *format,
                content: *content,
            };
            detectors::run(&options, output)
        }
        #[cfg(feature = "bench")]
        BenchCommand::Games(options) => games::run(options, output),
        #[cfg(feature = "bench")]
        BenchCommand::Agents => {
            use flowgate_bench::agents::{Guard, TaskSuite, table};
            let suite = TaskSuite::new().map_err(InputError)?;
            let progress = Progress::over_steps(suite.run_count(&Guard::ALL), "run", output);
            let mut rows = Vec::new();
            for guard in Guard::ALL {
                let step = &mut || {
                    progress.step();
                    progress.is_interrupted()
                };
                match suite.run_guard(guard, step).map_err(InputError)? {
                    Some(row) => rows.push(row),
                    None => break,
                }
            }
            let is_interrupted = progress.finish(output);
            // A method whose runs are incomplete has no row.
            output.write_bytes(table(&Guard::ALL, &rows).as_bytes());
            Ok(if is_interrupted { INTERRUPTED } else { 0 })
        }
    }
}
