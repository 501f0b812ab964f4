//! The binary `flowgate`: parses the arguments, runs a command, and exits with its code.

mod args;
mod command;
mod corpus;
mod display_mode;
mod escaping;
mod input;
#[cfg(feature = "run")]
mod mcp;
mod output;
mod policy_file;
mod predicate_args;
#[cfg(feature = "run")]
mod private_files;
mod progress;
mod report;
#[cfg(feature = "run")]
mod stores;
mod tool_files;
mod warnings;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use output::Console;

/// A request with a long chat consists of thousands of small strings, which are allocated and freed on different
/// threads.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = Console::standard(args.color, args.progress);
    match command::run(args.command, &mut output) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.error(&error.0);
            ExitCode::from(2)
        }
    }
}
