//! Measures the memory of the gateway: over many requests, and with many idle conversations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::load::LoadTarget;
use crate::options::LatencyOptions;
use crate::process;

/// The number of requests over which memory is measured.
const REQUESTS: usize = 100_000;
/// The number of idle conversations whose memory is measured.
const CONVERSATIONS: usize = 10_000;
/// The number of messages in a chat while requests are counted.
const LENGTH: usize = 10;

/// Prints the resident memory of a gateway after each tenth of [`REQUESTS`], and that of other gateways with
/// [`CONVERSATIONS`] idle conversations of two lengths.
pub(crate) fn run(runtime: &Runtime, options: &LatencyOptions) {
    let Some(binary) = options.flowgate.first() else {
        println!("--memory wants --flowgate BINARY");
        return;
    };
    let folder = std::env::temp_dir().join(format!("flowgate-memory-{}", std::process::id()));
    let upstream = process::upstream(Duration::ZERO, Duration::ZERO);
    let start = |name: &str| process::flowgate(options, binary, &upstream.address, &folder.join(name));
    let grow = |target: &Arc<LoadTarget>, chats: usize, length: usize| {
        target.grow_all(runtime, vec![length; chats]).unwrap();
        target.clear();
    };

    let gateway = start("requests");
    let target = LoadTarget::new(&gateway.address, options);
    println!("\n## Over {REQUESTS} requests, in chats of {} messages\n", 2 * LENGTH);
    println!("| requests | resident MiB | requests per second |\n|---|---|---|");
    println!("| 0 | {:.0} | – |", gateway.resident());
    for part in 1..=10 {
        let begun = Instant::now();
        grow(&target, REQUESTS / 10 / LENGTH, LENGTH);
        let rate = (REQUESTS / 10) as f64 / begun.elapsed().as_secs_f64();
        println!("| {} | {:.0} | {rate:.0} |", part * REQUESTS / 10, gateway.resident());
    }
    drop(gateway);

    for length in [1, 5] {
        let gateway = start(&format!("idle-{length}"));
        let target = LoadTarget::new(&gateway.address, options);
        grow(&target, CONVERSATIONS, length);
        std::thread::sleep(Duration::from_secs(2));
        println!(
            "\n{CONVERSATIONS} idle conversations of {} messages: {:.0} MiB.",
            2 * length,
            gateway.resident()
        );
    }
    let _ = std::fs::remove_dir_all(folder);
}
