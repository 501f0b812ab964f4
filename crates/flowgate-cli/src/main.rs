//! The command line of Flowgate.

mod answering;
mod args;
mod command;
mod input;
#[cfg(feature = "run")]
mod mcp;
mod output;
mod progress;
mod report;
#[cfg(feature = "run")]
mod stores;
#[cfg(any(feature = "gateway", feature = "run"))]
mod visible;
mod warnings;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use output::Output;

/// A request of a long chat is thousands of small texts, which threads hand to each other.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = Output::standard(args.color);
    match command::run(args.command, &mut output) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.error(&error.0);
            ExitCode::from(2)
        }
    }
}
