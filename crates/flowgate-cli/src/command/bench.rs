//! Runs `flowgate bench`. Its subcommands are repeatable measurements, and tools for these measurements:
//!
//! * `agents` measures the methods of guarded conversations on tasks with injected instructions.
//! * `detectors` compares detectors with a flow rule, on customer feedback with attacks.
//! * `games` and `extended` measure defences in security games.
//! * `paper` runs the defences of AgentSecBench in its games, with the protocol of that paper.
//! * `privacy` measures defences on tasks with private data.
//! * `propagation` measures how low the labels of answers about documents can be; `news-questions` writes questions for it.
//! * `screeners` measures screeners that read the attention of a model.
//! * `corpus` measures a drafted policy on public benchmarks, and `injections` detectors on labelled texts.
//! * `train-detector` trains the detector that ships, and writes its weights.
//! * `agentdojo` and `replay` start the Python package, which has these two measurements.
//! * `compare` writes a page that compares recorded measurements, and `verify` repeats a recorded measurement.
//!
//! Five modules are not subcommands: `model` opens the model that a measurement asks, and prints what a run would cost;
//! `attention` provides a screener that reads attention; `local_models` loads the models with which `verify` repeats a run;
//! `resume` reads an interrupted run; `python` starts the Python package.

mod agents;
mod attention;
mod compare;
mod corpus;
mod detectors;
mod extended;
mod games;
mod injections;
#[cfg(feature = "local")]
mod local_models;
pub(super) mod model;
mod news_questions;
#[cfg(feature = "local")]
mod paper;
mod privacy;
mod propagation;
mod python;
mod resume;
#[cfg(feature = "local")]
pub(crate) mod screeners;
mod train_detector;
mod verify;

use crate::args::BenchCommand;
use crate::input::InputError;
use crate::output::Console;

/// Runs the measurement that the command line names, and returns its exit code.
pub(crate) fn run(bench: &BenchCommand, output: &mut Console) -> Result<u8, InputError> {
    match bench {
        BenchCommand::Detectors(options) => detectors::run(options, output),
        BenchCommand::Games(options) => games::run(options, output),
        BenchCommand::Extended(options) => extended::run(options, output),
        BenchCommand::Compare { runs } => compare::run(runs, output),
        BenchCommand::Privacy(options) => privacy::run(options, output),
        BenchCommand::Propagation(options) => propagation::run(options, output),
        BenchCommand::NewsQuestions(options) => news_questions::run(options, output),
        #[cfg(feature = "local")]
        BenchCommand::Paper(options) => paper::run(options, output),
        #[cfg(feature = "local")]
        BenchCommand::Screeners(options) => screeners::run(options, output),
        BenchCommand::Corpus(options) => corpus::run(options, output),
        BenchCommand::Injections(options) => injections::run(options, output),
        BenchCommand::TrainDetector { seed, weights } => train_detector::run(*seed, weights, output),
        BenchCommand::Agentdojo { interpreter, arguments } => python::run(interpreter, None, arguments),
        BenchCommand::Replay { interpreter, arguments } => {
            python::run(interpreter, Some("replay"), arguments)
        }
        BenchCommand::Verify(options) => verify::run(options, output),
        BenchCommand::Agents(options) => agents::run(options, output),
    }
}
