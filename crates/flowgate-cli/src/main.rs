//! Starts the program `flowgate`: parses the arguments, runs the command, and exits with its code.
//!
//! * `args`, `display_mode`, `parameter_args` and `predicate_args` declare the command line and its help.
//! * [`command`] has a module for each command.
//! * `input`, `policy_file`, `tool_files` and `corpus` read files.
//! * `output`, `progress`, `report`, `escaping` and `warnings` format and print the output of commands.
//! * `typed_lines` reads what a person types.
//! * `clients` reads and changes the configurations of MCP clients, the programs that use MCP servers.
//! * `mcp` starts MCP servers, and calls their tools.
//! * `gateway_client` calls a running gateway, and `question_text` writes its questions as text.
//! * `stores` and `private_files` write files that later processes read, some of them in the `state_folder`; `trace_file`
//!   and `trace_folder` write traces.
//! * `local_model` and `attention_screener` load local models, and screeners that read their attention.

mod args;
#[cfg(feature = "local")]
mod attention_screener;
#[cfg(feature = "run")]
mod clients;
mod command;
mod corpus;
mod display_mode;
mod escaping;
#[cfg(feature = "run")]
mod gateway_client;
mod input;
#[cfg(feature = "local")]
mod local_model;
#[cfg(feature = "run")]
mod mcp;
mod output;
mod parameter_args;
mod policy_file;
mod predicate_args;
#[cfg(feature = "run")]
mod private_files;
mod progress;
#[cfg(feature = "run")]
mod question_text;
mod report;
#[cfg(feature = "run")]
mod state_folder;
#[cfg(feature = "run")]
mod stores;
mod tool_files;
#[cfg(feature = "run")]
mod trace_file;
#[cfg(feature = "run")]
mod trace_folder;
#[cfg(feature = "run")]
mod typed_lines;
mod warnings;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use output::Console;

/// The allocator, which is faster than the system's for the gateway: a request with a long chat consists of thousands
/// of small strings, which are allocated and freed on different threads.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs the command of the command line, and returns its exit code; if it fails, prints the error and returns 2.
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
