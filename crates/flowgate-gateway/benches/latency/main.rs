//! What the gateway adds to an answer, beside what a bare proxy adds: `compat/latency/run` says how it is run.
//!
//! One binary is the load, the model's server and the bare proxy, each in a process of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong ends it, and it prints what it finds"
)]

mod chat;
mod compare;
mod connections;
mod double;
mod load;
mod memory;
mod options;
mod policy;
mod process;
mod proxy;
mod report;

use options::{Mode, Options};

fn main() {
    let options = Options::read(std::env::args().skip(1));
    // As `flowgate serve` has it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match options.mode {
        Mode::Upstream => runtime.block_on(double::serve()),
        Mode::Proxy => runtime.block_on(proxy::serve(&options.url)),
        Mode::Compare => compare::run(&runtime, &options),
        Mode::Memory => memory::run(&runtime, &options),
    }
}
