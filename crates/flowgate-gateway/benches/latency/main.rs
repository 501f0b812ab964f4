//! Measures the latency that the gateway adds, in comparison with a bare proxy; `compat/latency/run` describes its use.
//!
//! One binary contains the load, the double of the upstream and the bare proxy; each runs in its own process. A way is
//! a path of requests to the upstream, such as through the gateway.
//!
//! * `compare`, `closed_loop`, `in_flight`, `memory`: the measurements; `report`: the table of the first one.
//! * `load`, `connections`, `chat`: the clients.
//! * `routes`, `process`, `policy`: the ways, the servers, and the policy of the gateway.
//! * `double`, `proxy`: the servers that are part of this program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong ends it, and it prints what it finds"
)]

mod chat;
mod closed_loop;
mod compare;
mod connections;
mod double;
mod in_flight;
mod load;
mod memory;
mod options;
mod policy;
mod process;
mod proxy;
mod report;
mod routes;

use options::{LatencyMode, LatencyOptions};

/// Runs as one of the servers, or runs the measurement that the options choose.
fn main() {
    let options = LatencyOptions::read(std::env::args().skip(1));
    // The same runtime as in `flowgate serve`.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match options.mode {
        LatencyMode::Upstream => runtime.block_on(double::serve(options.delay, options.chunk_delay)),
        LatencyMode::Proxy => runtime.block_on(proxy::serve(&options.url)),
        LatencyMode::Compare => compare::run(&runtime, &options),
        LatencyMode::Memory => memory::run(&runtime, &options),
        LatencyMode::Streams => closed_loop::measure_streams(&runtime, &options),
        LatencyMode::Sweep => closed_loop::sweep(&runtime, &options),
        LatencyMode::InFlight => in_flight::run(&runtime, &options),
    }
}
