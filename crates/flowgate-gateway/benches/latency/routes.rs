//! Lists the ways to the upstream that are compared: directly, through a bare proxy, through the gateway, and through
//! LiteLLM, another gateway.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::load::LoadTarget;
use crate::options::LatencyOptions;
use crate::process::{self, BenchProcess};

/// A way to the upstream.
pub(crate) struct MeasuredRoute {
    pub(crate) name: &'static str,
    /// The server in between, if there is one.
    pub(crate) process: Option<BenchProcess>,
    pub(crate) target: Arc<LoadTarget>,
}

/// Starts the servers of all ways, each with chats of all lengths, and prints how fast these grew. Leaves out ways that
/// do not answer.
pub(crate) fn start(
    runtime: &Runtime,
    options: &LatencyOptions,
    upstream: &BenchProcess,
    folder: &Path,
) -> Vec<MeasuredRoute> {
    let mut ways = Vec::new();
    let mut add = |name: &'static str, process: Option<BenchProcess>| {
        let address = process.as_ref().map_or(&upstream.address, |process| &process.address);
        let target = LoadTarget::new(address, options);
        match target.prepare(runtime, options.chats) {
            Ok(rate) => {
                println!(
                    "{name}: {rate:.0} requests per second, sixteen at the same time, in chats that grow"
                );
                ways.push(MeasuredRoute { name, process, target });
            }
            Err(error) => println!("left out, since it does not answer: {name}: {error}"),
        }
    };
    if !options.only_flowgate {
        add("direct", None);
        add("bare proxy", Some(process::start_bare_proxy(&upstream.address)));
    }
    for (index, binary) in options.flowgate.iter().enumerate() {
        let name = ["flowgate", "flowgate, second", "flowgate, third"]
            .get(index)
            .copied()
            .unwrap_or("flowgate, other");
        let process = process::flowgate(options, binary, &upstream.address, &folder.join(index.to_string()));
        add(name, Some(process));
    }
    if let Some(binary) = &options.litellm {
        match process::litellm(binary, &upstream.address, &folder.join("litellm")) {
            Ok(process) => add("LiteLLM", Some(process)),
            Err(error) => println!("left out: {error}"),
        }
    }
    ways
}
