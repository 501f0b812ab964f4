//! Runs `flowgate bench`, whose operations are repeatable measurements.
//!
//! * `detectors` compares detectors with a flow rule, on runs that `feedback` builds.
//! * `games` and `extended` measure defences in security games, `paper` those of AgentSecBench with its protocol.
//! * `privacy` measures defences on tasks with private data.
//! * `propagation` measures how low the labels of answers about documents can be.
//! * `screeners` measures screeners that read the attention of a model.
//! * `corpus` measures a drafted policy on public benchmarks, and `injections` detectors on labelled texts.
//! * `model` provides the model of a measurement.
//! * `compare` writes a page that compares recorded measurements, and `verify` repeats one.
//!
//! The operation `agents`, which measures the methods of guarded conversations, runs in this file.

#[cfg(feature = "bench")]
mod compare;
#[cfg(feature = "bench")]
mod corpus;
mod detectors;
#[cfg(feature = "bench")]
mod extended;
mod feedback;
#[cfg(feature = "bench")]
mod games;
#[cfg(feature = "bench")]
mod injections;
#[cfg(feature = "bench")]
mod model;
#[cfg(feature = "local")]
mod paper;
#[cfg(feature = "bench")]
mod privacy;
#[cfg(feature = "bench")]
mod propagation;
#[cfg(feature = "local")]
mod screeners;
#[cfg(feature = "bench")]
mod verify;

use crate::args::BenchCommand;
use crate::input::InputError;
use crate::output::Console;
#[cfg(feature = "bench")]
use crate::progress::{INTERRUPTED, Progress};

/// Runs the measurement that the command line names, and returns its exit code. The exit code of `agents` is 0, or
/// 130 after an interrupt.
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
        BenchCommand::Extended(options) => extended::run(options, output),
        #[cfg(feature = "bench")]
        BenchCommand::Compare { runs } => compare::run(runs, output),
        #[cfg(feature = "bench")]
        BenchCommand::Privacy(options) => privacy::run(options, output),
        #[cfg(feature = "bench")]
        BenchCommand::Propagation(options) => propagation::run(options, output),
        #[cfg(feature = "local")]
        BenchCommand::Paper(options) => paper::run(options, output),
        #[cfg(feature = "local")]
        BenchCommand::Screeners(options) => screeners::run(options, output),
        #[cfg(feature = "bench")]
        BenchCommand::Corpus(options) => corpus::run(options, output),
        #[cfg(feature = "bench")]
        BenchCommand::Injections { folder, seed, format } => injections::run(folder, *seed, *format, output),
        #[cfg(feature = "bench")]
        BenchCommand::Verify { run } => verify::run(run, output),
        #[cfg(feature = "bench")]
        BenchCommand::Agents => {
            use flowgate_bench::agents::{Guard, TaskSuite, table};
            let suite = TaskSuite::new().map_err(InputError)?;
            let progress = Progress::over_steps(suite.run_count(&Guard::ALL), "run", output);
            let mut rows = Vec::new();
            for guard in Guard::ALL {
                // Returns whether to stop.
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
