//! Declares the options of the benchmark's command line.

use std::path::PathBuf;
use std::time::Duration;

/// What a process of the benchmark does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatencyMode {
    /// Compares all ways to the upstream.
    Compare,
    /// Measures the memory of the gateway.
    Memory,
    /// Measures many turns at the same time, whose model takes its time.
    InFlight,
    /// Measures the first token and the gaps between chunks of streams that the model paces.
    Streams,
    /// Measures the rate that each way sustains, by the number of requests that are always open.
    Sweep,
    /// Serves as the double of the model's server.
    Upstream,
    /// Serves as the bare proxy.
    Proxy,
}

/// The options of the command line.
#[derive(Debug, Clone)]
pub(crate) struct LatencyOptions {
    pub(crate) mode: LatencyMode,
    /// The address to which the bare proxy forwards.
    pub(crate) url: String,
    /// The gateway binaries; several builds can be compared.
    pub(crate) flowgate: Vec<PathBuf>,
    /// The LiteLLM binary; without it, LiteLLM is not measured.
    pub(crate) litellm: Option<PathBuf>,
    /// The rates, in requests per second.
    pub(crate) rates: Vec<f64>,
    /// The number of rounds of each way.
    pub(crate) rounds: usize,
    /// The duration of one round of one way, in seconds.
    pub(crate) seconds: f64,
    /// The number of parallel chats.
    pub(crate) chats: usize,
    /// The number of messages at which a chat ends.
    pub(crate) messages: usize,
    /// Whether requests name their conversation.
    pub(crate) named: bool,
    /// Whether only the gateway is measured.
    pub(crate) only_flowgate: bool,
    /// The number of turns at the same time.
    pub(crate) in_flight: usize,
    /// The time that the model takes before an answer.
    pub(crate) delay: Duration,
    /// The time that the model takes between two chunks of a stream.
    pub(crate) chunk_delay: Duration,
    /// The requests that are always open, of `--streams`.
    pub(crate) concurrency: usize,
    /// The bytes of text with which each chat begins.
    pub(crate) context: usize,
    /// The URL of the gateway's store.
    pub(crate) store: String,
}

impl LatencyOptions {
    /// Reads the options from the words of the command line. Panics if a value is missing or invalid; ends the program
    /// if an argument is unknown, since `cargo bench` passes the name of a benchmark to all of them.
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            mode: LatencyMode::Compare,
            url: String::new(),
            flowgate: Vec::new(),
            litellm: None,
            rates: vec![500.0, 50.0],
            rounds: 9,
            seconds: 6.0,
            chats: 64,
            messages: 199,
            named: false,
            only_flowgate: false,
            in_flight: 0,
            delay: Duration::ZERO,
            chunk_delay: Duration::from_millis(20),
            concurrency: 16,
            context: 0,
            store: "sqlite:flowgate.db".to_owned(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value"));
            match word.as_str() {
                "upstream" => options.mode = LatencyMode::Upstream,
                "proxy" => (options.mode, options.url) = (LatencyMode::Proxy, value()),
                "--in-flight" => {
                    (options.mode, options.in_flight) = (LatencyMode::InFlight, value().parse().unwrap());
                }
                "--delay" => options.delay = Duration::from_secs_f64(value().parse().unwrap()),
                "--streams" => options.mode = LatencyMode::Streams,
                "--sweep" => options.mode = LatencyMode::Sweep,
                "--chunk-delay" => {
                    options.chunk_delay = Duration::from_secs_f64(value().parse().unwrap());
                }
                "--concurrency" => options.concurrency = value().parse().unwrap(),
                "--context" => options.context = value().parse().unwrap(),
                "--memory" => options.mode = LatencyMode::Memory,
                // The gateway is started in another folder, so the path must be absolute.
                "--flowgate" => options.flowgate.push(std::path::absolute(value()).unwrap()),
                "--litellm" => options.litellm = Some(value().into()),
                "--rate" => {
                    options.rates = value().split(',').map(|rate| rate.parse().unwrap()).collect();
                }
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--seconds" => options.seconds = value().parse().unwrap(),
                "--chats" => options.chats = value().parse().unwrap(),
                "--messages" => options.messages = value().parse().unwrap(),
                "--store" => options.store = value(),
                "--named" => options.named = true,
                "--only-flowgate" => options.only_flowgate = true,
                // A short run that only shows that the benchmark works.
                "--test" => {
                    (options.rates, options.rounds, options.seconds) = (vec![50.0], 1, 0.2);
                    (options.chats, options.messages) = (4, 9);
                }
                "--bench" => {}
                // An unknown argument is the name filter of another benchmark.
                _ => std::process::exit(0),
            }
        }
        options
    }
}
