//! `flowgate bench`: measurements that anybody can make again.

mod detectors;
mod feedback;

use crate::args::Bench;
use crate::input::InputError;
use crate::output::Output;

/// Runs a measurement; returns the exit code.
pub(crate) fn run(bench: &Bench, output: &mut Output) -> Result<u8, InputError> {
    match bench {
        Bench::Detectors { policy, format, content } => {
            let options =
                detectors::Options { policy: policy.as_deref(), format: *format, content: *content };
            detectors::run(&options, output)
        }
        Bench::Agents => {
            use flowgate_bench::agents::{Guard, run, table};
            let rows = run(&Guard::ALL).map_err(InputError)?;
            output.raw(table(&Guard::ALL, &rows).as_bytes());
            Ok(0)
        }
    }
}
