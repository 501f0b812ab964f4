//! Starts and stops the servers under test (the gateway, the bare proxy, the double of the model's server), each in its
//! own process.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::chat::SYSTEM;
use crate::options::{LatencyMode, LatencyOptions};

/// The number of clock ticks per second in `/proc`.
const TICKS: u64 = 100;
/// The time limit for a server to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// The CPU time of the machine since boot, in clock ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MachineCpuTime {
    all: u64,
    stolen: u64,
}

/// Reads the CPU time from `/proc/stat`; zero if that does not exist.
pub(crate) fn machine() -> MachineCpuTime {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal; user includes guest time.
    MachineCpuTime { all: ticks.iter().take(8).sum(), stolen: ticks.get(7).copied().unwrap_or_default() }
}

impl MachineCpuTime {
    /// Returns the share of the time since then that other virtual machines took.
    pub(crate) fn stolen_until(self, later: Self) -> f64 {
        later.stolen.saturating_sub(self.stolen) as f64 / later.all.saturating_sub(self.all).max(1) as f64
    }
}

/// A running process; killed on drop.
pub(crate) struct BenchProcess {
    child: Child,
    /// The host and the port.
    pub(crate) address: String,
}

impl BenchProcess {
    /// Starts a program and waits until it is ready: until it prints its address or, for a program that does not, until
    /// it listens on `known_address`. The error message contains the last line of its output.
    fn start(command: &mut Command, known_address: Option<&str>) -> Result<Self, String> {
        let name = command.get_program().display().to_string();
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let (sender, lines) = channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            // The output is read to its end, so that the process never blocks on a full pipe.
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        drop(sender);
        let mut process = Self { child, address: String::new() };
        let (mut last, begun) = (String::new(), Instant::now());
        while begun.elapsed() < PATIENCE {
            let address = match (lines.recv_timeout(Duration::from_millis(100)), known_address) {
                (Ok(line), _) => {
                    let found = line.split_once(" on http://").and_then(|(_, rest)| rest.split(';').next());
                    let found = found.filter(|_| known_address.is_none()).map(str::to_owned);
                    last = if line.trim().is_empty() { last } else { line };
                    found
                }
                (Err(RecvTimeoutError::Disconnected), _) => break,
                (Err(RecvTimeoutError::Timeout), Some(known_address)) => {
                    TcpStream::connect(known_address).is_ok().then(|| known_address.to_owned())
                }
                (Err(RecvTimeoutError::Timeout), None) => None,
            };
            if let Some(address) = address {
                process.address = address;
                return Ok(process);
            }
        }
        Err(format!("{name} did not start; it said last: {last}"))
    }

    /// Returns the CPU time of all threads.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The preceding field is the name in parentheses, which may contain any character.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / TICKS)
    }

    /// Returns the resident memory in MiB.
    pub(crate) fn resident(&self) -> f64 {
        self.status("VmRSS:") / 1024.0
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> f64 {
        self.status("Threads:")
    }

    /// Returns the first number of a line of `/proc`; zero if that does not exist.
    fn status(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
    }
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that runs this program.
fn own_command() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// Starts the double of a model's server, whose answers begin after `delay` and which waits `chunk_delay` between two
/// chunks of a stream.
pub(crate) fn upstream(delay: Duration, chunk_delay: Duration) -> BenchProcess {
    let [delay, chunk_delay] = [delay, chunk_delay].map(|time| time.as_secs_f64().to_string());
    let mut command = own_command();
    command.args(["upstream", "--delay", &delay, "--chunk-delay", &chunk_delay]);
    BenchProcess::start(&mut command, None).unwrap()
}

/// Starts the bare proxy in front of the upstream.
pub(crate) fn start_bare_proxy(upstream: &str) -> BenchProcess {
    BenchProcess::start(own_command().args(["proxy", upstream]), None).unwrap()
}

/// The key of the only client.
pub(crate) const KEY: &str = "sk-the-key-of-the-benchmark";

/// Starts a gateway in front of the upstream, with one client and limits that no measurement reaches. Its files are in
/// `folder`. When streams are measured, its policy has no rules about messages, which would withhold a text until it is
/// complete.
pub(crate) fn flowgate(
    options: &LatencyOptions,
    binary: &Path,
    upstream: &str,
    folder: &Path,
) -> BenchProcess {
    std::fs::create_dir_all(folder).unwrap();
    let config = format!(
        "[upstreams.double]\nurl = \"http://{upstream}/v1\"\napi = \"chat-completions\"\nmodels = [\"double\"]\n\
         [clients.agent]\nkey-from = \"KEY\"\nupstream = \"double\"\npolicy = \"policy.flow\"\nuser-messages = \"trust-unmarked-even-if-pasted\"\n\
         pinned = [\"{SYSTEM}\"]\nrequests-per-minute = 10000000\nparallel = 10000\nsessions = 20000\n\
         [store]\nurl = \"{}\"\n",
        options.store
    );
    std::fs::write(folder.join("gateway.toml"), config).unwrap();
    std::fs::write(folder.join("policy.flow"), crate::policy::text(options.mode != LatencyMode::Streams))
        .unwrap();
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.join("gateway.toml"));
    BenchProcess::start(command.env("KEY", KEY).current_dir(folder), None).unwrap()
}

/// Starts an installed LiteLLM proxy; returns its output if it does not start.
pub(crate) fn litellm(binary: &Path, upstream: &str, folder: &Path) -> Result<BenchProcess, String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let config = format!(
        "model_list:\n  - model_name: double\n    litellm_params:\n      model: openai/double\n      api_base: http://{upstream}/v1\n      api_key: none\n"
    );
    std::fs::write(folder.join("config.yaml"), config).map_err(|error| error.to_string())?;
    // LiteLLM does not report its port, so it receives one that was free before.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| error.to_string())?;
    let port = address.port().to_string();
    let mut command = Command::new(binary);
    command.args(["--config", "config.yaml", "--host", "127.0.0.1", "--port", &port, "--telemetry", "False"]);
    // Otherwise, LiteLLM requests prices from the network.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_LOG", "ERROR");
    // LiteLLM does not start without a key.
    command.env("LITELLM_MASTER_KEY", KEY).current_dir(folder);
    BenchProcess::start(&mut command, Some(&address.to_string()))
}
