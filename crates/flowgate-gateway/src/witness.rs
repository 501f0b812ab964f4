//! Sends the head of the audit log (the number and the digest of its newest line) to the witness, a party outside the
//! gateway that keeps these heads. If somebody restores the log and the database together to an earlier state, a kept
//! head reveals this: the restored log lacks the line of the head.
//!
//! The heads go to a file, to a server, or to both (`[audit.witness]`). Each of these destinations has its own thread.
//! There is no queue: only the newest head is sent, which covers all earlier lines, so a destination that was
//! unreachable for long receives one line. A failed delivery is retried and reported in the operator's log; with
//! `required`, no turn begins once a destination is too far behind.
//!
//! [`flowgate_audit::WitnessLine`] is the format of a line. `recorder` owns the `HeadDestinations`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use flowgate_lm::remote::Authorities;

use crate::config::{DeliveryRequirement, WitnessAddress, WitnessSpec};
use crate::log::{self, LogEvent};
use crate::ureq_tls::tls_config;
use flowgate_audit::{AcceptedLoss, AuditError, AuditLog, LastLineHandle, LogHead, Timestamp, WitnessRecord};

/// The interval at which a thread checks whether there is something to send.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The maximum time for a request to a server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses after failures: the shortest and the longest.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The reason of a failed delivery, in one line for the operator.
#[derive(Debug)]
pub(crate) enum DeliveryError {
    /// The log cannot be signed.
    Log(AuditError),
    /// The file cannot be read or written.
    File(PathBuf, io::Error),
    /// The server answers with this status.
    Status(u16),
    /// The server cannot be reached or does not answer. The text is the reason.
    Server(String),
    /// The thread that delivers heads cannot be started.
    Thread(io::Error),
}

impl fmt::Display for DeliveryError {
    /// Writes the problem, and the setting of `[audit.witness]` to check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => write!(f, "the head of the audit log cannot be signed: {error}"),
            Self::File(path, error) => {
                write!(
                    f,
                    "{} cannot be read or written: {error}: check `file` in [audit.witness]",
                    path.display()
                )
            }
            Self::Status(status) => {
                write!(
                    f,
                    "the server of the witness answered with the HTTP status {status}: check `url` and `key-from` in \
                    [audit.witness]"
                )
            }
            Self::Server(why) => {
                write!(f, "{why}: check `url` and `ca-file` in [audit.witness], and the log of the server")
            }
            Self::Thread(error) => {
                write!(
                    f,
                    "no thread can be started that delivers heads to the witness: {error}; check the limits \
                    of the system"
                )
            }
        }
    }
}

/// Reads a witness's file; returns an empty record if it does not exist.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn read_witness_record(file: &Path) -> Result<WitnessRecord, DeliveryError> {
    match File::open(file) {
        Ok(open) => WitnessRecord::read(BufReader::new(open)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(WitnessRecord::default()),
        Err(error) => Err(error),
    }
    .map_err(|error| DeliveryError::File(file.to_owned(), error))
}

/// The destinations of the heads of one log.
#[derive(Debug)]
pub(crate) struct HeadDestinations {
    destinations: Vec<Arc<HeadDestination>>,
    /// The limits beyond which no turn begins; `None` if the witness is not required.
    required: Option<DeliveryRequirement>,
    /// One for each thread, which ends when its sender is dropped.
    _running: Vec<Sender<()>>,
}

/// One destination.
#[derive(Debug)]
struct HeadDestination {
    kind: HeadDestinationKind,
    /// The log, until the gateway releases it.
    log: Mutex<Weak<AuditLog>>,
    /// The number and the digest of the last line of the log, which change as lines are appended.
    end: Arc<LastLineHandle>,
    /// The number of undelivered lines at which a head is sent.
    every: u64,
    /// The time after which a head is sent even if there are fewer undelivered lines.
    pause: Duration,
    /// The operator's log.
    operator: log::OperatorLog,
    /// Locked during a delivery, so that one delivery follows the other.
    delivery: Mutex<()>,
    state: Mutex<DeliveryState>,
}

/// The kinds of destinations.
#[derive(Debug)]
enum HeadDestinationKind {
    /// A file, to which lines are appended.
    File(PathBuf),
    /// A server, to which each line is posted.
    Server { agent: ureq::Agent, address: WitnessAddress },
}

/// The outcomes of the deliveries to one destination.
#[derive(Debug, Default)]
struct DeliveryState {
    /// The last delivered head, and the time of its delivery.
    delivered: Option<(LogHead, Instant)>,
    /// The time since which deliveries fail.
    failing: Option<Instant>,
    /// The pause before a failed delivery is retried, which each failure doubles; zero after a success.
    retry_pause: Duration,
    /// The number of failed deliveries.
    failures: u64,
}

impl HeadDestinations {
    /// Writes a head to the witness's file at once, and starts a thread for each destination that sends further heads.
    /// A server receives its first head from its thread, so that a slow server cannot delay the start of the gateway.
    /// Failed deliveries are written to `operator`, the operator's log.
    ///
    /// # Errors
    /// If the witness is required and the head cannot be signed or written to its file, or if no thread can be
    /// started.
    pub(crate) fn begin(
        spec: &WitnessSpec,
        log: &Arc<AuditLog>,
        operator: &log::OperatorLog,
    ) -> Result<Self, DeliveryError> {
        let new_destination = |kind| {
            let (delivery, state) = (Mutex::default(), Mutex::default());
            // `end` always has the present last line of the audit log.
            let (end, log) = (log.last_line(), Mutex::new(Arc::downgrade(log)));
            let operator = operator.clone();
            Arc::new(HeadDestination {
                kind,
                log,
                end,
                every: spec.every,
                pause: spec.pause,
                operator,
                delivery,
                state,
            })
        };
        let file = spec.file.clone().map(HeadDestinationKind::File);
        let server = spec
            .url
            .clone()
            .map(|address| HeadDestinationKind::Server { agent: http_client(&address.authorities), address });
        let (mut destinations, mut stop_senders) = (Vec::new(), Vec::new());
        for kind in file.into_iter().chain(server) {
            let is_file = matches!(kind, HeadDestinationKind::File(_));
            let destination = new_destination(kind);
            if is_file {
                let delivered = destination.deliver();
                // The failure of a file that is not required is logged, and the thread retries the delivery.
                if spec.required.is_some() {
                    delivered?;
                }
            }
            let (sender, ended) = channel();
            let delivering = Arc::clone(&destination);
            let thread =
                std::thread::Builder::new().name("witness".to_owned()).spawn(move || delivering.run(&ended));
            thread.map_err(DeliveryError::Thread)?;
            destinations.push(destination);
            stop_senders.push(sender);
        }
        // Each thread ends when its sender is dropped.
        Ok(Self { destinations, required: spec.required, _running: stop_senders })
    }

    /// Sends the newest head to every destination that is behind. Called when the gateway stops.
    pub(crate) fn finish(&self) {
        for destination in self.destinations.iter().filter(|destination| destination.undelivered_lines() > 0)
        {
            // The failure is reported in the operator's log.
            let _ = destination.deliver();
        }
    }

    /// Returns the name of the first destination that is so far behind that no turn may begin; always `None` if the
    /// witness is not required. A destination is that far behind if its deliveries fail, lines are undelivered, and
    /// either more than `lines` lines are undelivered or the deliveries have failed for longer than `time`.
    pub(crate) fn overdue_destination(&self) -> Option<&'static str> {
        let DeliveryRequirement { lines, time } = self.required?;
        let is_too_late = |destination: &&Arc<HeadDestination>| {
            let behind = destination.undelivered_lines();
            let failing = destination.state().failing;
            behind > 0 && failing.is_some_and(|since| behind > lines || since.elapsed() > time)
        };
        self.destinations.iter().find(is_too_late).map(|destination| destination.name())
    }

    /// Returns the names of the destinations whose deliveries fail now.
    pub(crate) fn failing_destinations(&self) -> Vec<&'static str> {
        self.destinations
            .iter()
            .filter(|destination| destination.state().failing.is_some())
            .map(|destination| destination.name())
            .collect()
    }

    /// Returns the number of undelivered lines of the destination furthest behind, and the number of failed deliveries.
    pub(crate) fn delivery_metrics(&self) -> (u64, u64) {
        let behind =
            self.destinations.iter().map(|destination| destination.undelivered_lines()).max().unwrap_or(0);
        (behind, self.destinations.iter().map(|destination| destination.state().failures).sum())
    }
}

impl Drop for HeadDestinations {
    /// Releases the log: no thread can reach it afterwards.
    fn drop(&mut self) {
        for destination in &self.destinations {
            *destination.log.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
        }
    }
}

impl HeadDestination {
    /// Returns the name of the destination in messages.
    fn name(&self) -> &'static str {
        match self.kind {
            HeadDestinationKind::File(_) => "witness file",
            HeadDestinationKind::Server { .. } => "witness url",
        }
    }

    /// Locks the outcomes of the deliveries, also after a panic.
    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of lines of the log that were not delivered.
    fn undelivered_lines(&self) -> u64 {
        let end = self.end.get().seq;
        // The first line has the number 0, so without a delivery, `end + 1` lines are missing.
        self.state()
            .delivered
            .map_or(end.saturating_add(1), |(delivered_head, _)| end.saturating_sub(delivered_head.seq))
    }

    /// Sends a head when enough lines (`self.every`) were written or enough time (`self.pause`) has passed since the
    /// last one, and retries failed deliveries after growing pauses, until the sender of `ended` is dropped.
    fn run(&self, ended: &Receiver<()>) {
        // `recv_timeout` is only a pause that ends early when the sender is dropped: nothing is ever sent.
        let mut until_next_check = Duration::ZERO;
        while ended.recv_timeout(until_next_check) == Err(RecvTimeoutError::Timeout) {
            until_next_check = POLL_INTERVAL;
            // A head is due if the last delivery was long ago or failed.
            let (behind, is_due) = (self.undelivered_lines(), {
                let state = self.state();
                let is_over = state.delivered.is_none_or(|(_, at)| at.elapsed() >= self.pause);
                is_over || state.failing.is_some()
            });
            if behind > 0 && (is_due || behind >= self.every) && self.deliver().is_err() {
                until_next_check = self.state().retry_pause;
            }
        }
    }

    /// Signs the newest head of the audit log, sends it to the destination, and notes the outcome in `self.state`.
    /// Writes the first of several failures, and the first success after them, to the operator's log. Does nothing
    /// after the audit log was released.
    fn deliver(&self) -> Result<(), DeliveryError> {
        // Held until the end of this function: only one delivery to this destination runs at a time.
        let _delivering = self.delivery.lock().unwrap_or_else(PoisonError::into_inner);
        let signed = {
            // The log is locked only in this block, and not while the line is sent: the drop of `HeadDestinations`
            // waits for this lock, and must not wait for a server.
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(log) = log.upgrade() else { return Ok(()) };
            // `None`: the line does not record an accepted loss.
            log.witness_line(Timestamp::now(), None)
        };
        let sent_head =
            signed.map_err(DeliveryError::Log).and_then(|(head, line)| self.kind.send(&line).map(|()| head));
        let mut state = self.state();
        match sent_head {
            Ok(head) => {
                let was_failing = state.failing.take().is_some();
                (state.delivered, state.retry_pause) = (Some((head, Instant::now())), Duration::ZERO);
                drop(state);
                if was_failing {
                    self.report(LogEvent::Remark, "the witness of the audit log receives heads again");
                }
                Ok(())
            }
            Err(undelivered) => {
                let is_first = state.failing.is_none();
                state.failing.get_or_insert_with(Instant::now);
                state.failures += 1;
                state.retry_pause = next_pause(state.retry_pause);
                drop(state);
                if is_first {
                    let sentence =
                        format!("the witness of the audit log does not receive heads: {undelivered}");
                    self.report(LogEvent::Failure, &sentence);
                }
                Err(undelivered)
            }
        }
    }

    /// Writes a line with the name of the destination to the operator's log.
    fn report(&self, event: LogEvent, sentence: &str) {
        self.operator.write(event, "", vec![("witness", self.name().into())], sentence);
    }
}

impl HeadDestinationKind {
    /// Sends a line to the destination, and waits until the destination has accepted it.
    fn send(&self, line: &str) -> Result<(), DeliveryError> {
        match self {
            Self::File(path) => append(path, line).map_err(|error| DeliveryError::File(path.clone(), error)),
            Self::Server { agent, address } => post(agent, address, line),
        }
    }
}

/// Appends to the witness's file `file` a line by which the operator accepts the loss `gives_up`. The next start of the
/// gateway reads the file, and then does not fail because of this loss.
pub(crate) fn give_up(file: &Path, log: &AuditLog, gives_up: AcceptedLoss) -> Result<(), DeliveryError> {
    let (_, line) = log.witness_line(Timestamp::now(), Some(gives_up)).map_err(DeliveryError::Log)?;
    append(file, &line).map_err(|error| DeliveryError::File(file.to_owned(), error))
}

/// Appends a line to a file in one write, so that the lines of concurrent writers do not mix. Creates the file if it
/// does not exist; only its owner can then read or write it.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // Also opened to read, in order to find out whether the file ends with a complete line.
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    // A writer that was killed may have left a partial line.
    let text = if ends_with_line_feed(&mut file)? { format!("{line}\n") } else { format!("\n{line}\n") };
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Returns whether a file is empty or ends with a complete line.
fn ends_with_line_feed(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

/// Creates the HTTP client for the server of a witness. It trusts only these authorities or, if none are configured,
/// the default ones.
fn http_client(authorities: &Authorities) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        // `post` checks the status itself, to report it.
        .http_status_as_error(false)
        // Heads are sent only to the address that the operator wrote: not to the target of a redirect, and not through
        // a proxy that the environment names.
        .max_redirects(0)
        .proxy(None)
        .tls_config(tls_config(authorities))
        .timeout_global(Some(REQUEST_TIMEOUT))
        .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
        .build();
    ureq::Agent::new_with_config(config)
}

/// Sends a line to the server of a witness, by the HTTP client `agent`. Succeeds if the server answers with a status of
/// success.
fn post(agent: &ureq::Agent, address: &WitnessAddress, line: &str) -> Result<(), DeliveryError> {
    let mut request = agent.post(&address.url).header("content-type", "application/json");
    if let Some(key) = &address.key {
        request = request.header("authorization", format!("Bearer {}", key.expose()));
    }
    match request.send(line) {
        Ok(response) if response.status().is_success() => Ok(()),
        Ok(response) => Err(DeliveryError::Status(response.status().as_u16())),
        Err(ureq::Error::Timeout(_)) => {
            Err(DeliveryError::Server("the server of the witness did not answer in time".into()))
        }
        // The TLS library reports a rejected certificate as this kind of error.
        Err(ureq::Error::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            let why = format!("the certificate of the witness's server is not trusted ({error})");
            Err(DeliveryError::Server(why))
        }
        Err(error) => {
            Err(DeliveryError::Server(format!("the server of the witness cannot be reached ({error})")))
        }
    }
}

/// Returns the pause after one more failure. Each failure doubles the pause, between the shortest and the longest one.
fn next_pause(pause: Duration) -> Duration {
    (pause * 2).clamp(RETRY_PAUSES.0, RETRY_PAUSES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first failure, also the first after a success, is followed by the shortest pause.
    #[test]
    fn pauses_grow_from_the_shortest_to_the_longest() {
        let pauses: Vec<Duration> =
            std::iter::successors(Some(Duration::ZERO), |pause| Some(next_pause(*pause)))
                .skip(1)
                .take(9)
                .collect();
        let millis = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000];
        assert_eq!(pauses, millis.map(Duration::from_millis));
    }
}
