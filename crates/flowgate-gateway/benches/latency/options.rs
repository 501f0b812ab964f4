//! What is to be measured.

use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All ways to the upstream, in turn.
    Compare,
    /// What the gateway takes of memory.
    Memory,
    Upstream,
    Proxy,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    /// Where the bare proxy asks.
    pub(crate) url: String,
    /// The gateway's binaries: more than one, to hold builds against each other.
    pub(crate) flowgate: Vec<PathBuf>,
    /// LiteLLM's; it is left out without one.
    pub(crate) litellm: Option<PathBuf>,
    /// Requests in a second.
    pub(crate) rates: Vec<f64>,
    pub(crate) rounds: usize,
    /// Seconds of one round of one way.
    pub(crate) seconds: f64,
    /// Chats that go on side by side.
    pub(crate) chats: usize,
    /// Messages of a chat when it ends.
    pub(crate) messages: usize,
    /// Whether chats name their conversation.
    pub(crate) named: bool,
    /// Whether only the gateway is asked.
    pub(crate) only_flowgate: bool,
    /// Where the gateway keeps its conversations.
    pub(crate) store: String,
}

impl Options {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            mode: Mode::Compare,
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
            store: "sqlite:flowgate.db".to_owned(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value"));
            match word.as_str() {
                "upstream" => options.mode = Mode::Upstream,
                "proxy" => (options.mode, options.url) = (Mode::Proxy, value()),
                "--memory" => options.mode = Mode::Memory,
                // It is started in a folder of its own.
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
                // Whether it works, and nothing more.
                "--test" => {
                    (options.rates, options.rounds, options.seconds) = (vec![50.0], 1, 0.2);
                    (options.chats, options.messages) = (4, 9);
                }
                "--bench" => {}
                // Whoever looks for another benchmark by its name passes the name to all of them.
                _ => std::process::exit(0),
            }
        }
        options
    }
}
