//! Writes the operator's log of a running gateway: one line for each turn, each rejected request, each failure of an
//! upstream, each limit that caused a rejection, and each further event of [`LogEvent`].
//!
//! A line has an event, a client, fields and a sentence. It never has content: fields are numbers and names (clients,
//! conversations, tools, settings), and sentences are written by this program. Names that others chose are escaped
//! and cut, and keys that the configuration contains are replaced. The lines of one event and client are bounded in
//! each window of time; suppressed lines are counted, and the count is written. Logging never blocks: a line that
//! finds the queue full is dropped and counted as well.
//!
//! # How to report a limit
//!
//! Code that rejects, forgets or hides something because a bound was reached calls [`OperatorLog::limit`] where it
//! happens, with the setting that raises the bound or, if it is fixed, with advice:
//!
//! ```
//! # use flowgate_gateway::log::{Limit, OperatorLog};
//! # let log = OperatorLog::default();
//! log.limit(&Limit {
//!     what: "open questions of one client",
//!     effect: "the next question is not asked, and its call does not run",
//!     setting: Some("[approvals] open-questions"),
//!     advice: None,
//!     most: 100,
//!     client: "assistant",
//!     conversation: Some("c1"),
//! });
//! ```
//!
//! `ModelRoutes`, `Conversations`, `ApprovalService` and `GatewayService` have a field `log`. An `OperatorLog` is cheap
//! to clone, and a default one writes nothing. Parts without a log (the guard, the database) return what happened, and
//! their caller reports it.
//!
//! * `line`: formats a line, and removes keys from it.
//! * `rate`: decides which lines are written, and counts the suppressed ones.

mod line;
mod rate;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::secret::{Secret, add_keys};
use flowgate_audit::Timestamp;
use line::LogLine;
pub(crate) use line::to_ascii;
pub use line::{LogLevel, LogLineFormat};
use rate::{RateDecision, RateWindows, ReachedLimit, WINDOW};

/// The capacity of the queue before the writer; more lines are dropped.
const QUEUE_CAPACITY: usize = 4096;

/// The event of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogEvent {
    /// One turn of an agent.
    Turn,
    /// One message of an agent to an MCP server.
    Exchange,
    /// Something is hidden from a model, and a line of the policy or the configuration would show it.
    Hidden,
    /// Something is hidden from a model, as the policy intends.
    HiddenOnPurpose,
    /// The certificate of the gateway was replaced.
    Certificate,
    /// A reloaded configuration is in force.
    Configuration,
    /// A request was rejected.
    Refused,
    /// A model's server, or another server behind the gateway, failed.
    Upstream,
    /// A limit caused a rejection.
    Limit,
    /// A condition on which the operator may have to act.
    Remark,
    /// A failure of the gateway, or of something that it needs, such as the database, the audit log or the keys of an
    /// issuer. What needs it fails until the operator has acted.
    Failure,
}

impl LogEvent {
    /// Returns the name that lines of the log have for the event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Exchange => "exchange",
            Self::Hidden | Self::HiddenOnPurpose => "hidden",
            Self::Certificate => "certificate",
            Self::Configuration => "configuration",
            Self::Refused => "refused",
            Self::Upstream => "upstream",
            Self::Limit => "limit",
            Self::Remark => "remark",
            Self::Failure => "failure",
        }
    }

    /// Returns the severity of lines of this event.
    fn level(self) -> LogLevel {
        match self {
            Self::Turn | Self::Exchange | Self::HiddenOnPurpose | Self::Certificate | Self::Configuration => {
                LogLevel::Info
            }
            Self::Hidden | Self::Refused | Self::Upstream | Self::Limit | Self::Remark => LogLevel::Warn,
            Self::Failure => LogLevel::Error,
        }
    }

    /// Returns how many lines of this event are written for one client in each window of time. Ordinary work writes
    /// many lines, each of which differs; warnings and failures soon repeat themselves.
    fn burst(self) -> u32 {
        match self {
            Self::Turn | Self::Exchange => 5000,
            Self::Hidden | Self::HiddenOnPurpose => 100,
            Self::Certificate
            | Self::Configuration
            | Self::Refused
            | Self::Upstream
            | Self::Limit
            | Self::Remark
            | Self::Failure => 20,
        }
    }
}

/// A bound that was reached, and its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit<'a> {
    /// The bounded quantity.
    pub what: &'static str,
    /// The effect of reaching the bound.
    pub effect: &'static str,
    /// The setting that raises the bound: an option of the command line, or a line of the configuration. `None` if the
    /// bound is fixed; the line then has `setting="none"`.
    pub setting: Option<&'static str>,
    /// What the operator can do if the bound is fixed, or should do before raising it. The line appends this to the
    /// effect.
    pub advice: Option<&'a str>,
    /// The bound.
    pub most: u64,
    /// The client of the configuration that reached it; empty if it is not of one client.
    pub client: &'a str,
    /// The conversation.
    pub conversation: Option<&'a str>,
}

/// The handle of a log. Cheap to clone; the default writes nothing.
#[derive(Debug, Clone, Default)]
pub struct OperatorLog(Option<Arc<OperatorLogState>>);

/// What all clones of a log share.
struct OperatorLogState {
    format: LogLineFormat,
    /// The queue of encoded lines to the thread that writes them.
    lines: SyncSender<Vec<u8>>,
    /// The number of lines of each kind in the current window of time.
    rates: Arc<Mutex<RateWindows>>,
    /// The number of lines that were dropped, because the queue was full, and not reported yet.
    lost: Arc<AtomicU64>,
    /// The keys to be replaced in every line.
    keys: Mutex<Vec<Secret>>,
    /// The number of times that each bound was reached. The keys are constants of this program: clients cannot make the
    /// map grow.
    limits: Mutex<BTreeMap<&'static str, u64>>,
}

impl fmt::Debug for OperatorLogState {
    /// Writes the format of lines, and none of the keys to be removed from them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("format", &self.format).finish_non_exhaustive()
    }
}

impl OperatorLog {
    /// Creates a log whose lines a separate thread writes to `out`, until the log and its clones are dropped. The
    /// thread also reports the lines that were suppressed because there were too many of a kind (`rates`), and those
    /// that were lost because its queue was full (`lost`).
    pub fn new(format: LogLineFormat, out: impl Write + Send + 'static) -> Self {
        let (sender, lines) = sync_channel(QUEUE_CAPACITY);
        let rates: Arc<Mutex<RateWindows>> = Arc::default();
        let lost: Arc<AtomicU64> = Arc::default();
        let writer = OperatorLogWriter { format, out, rates: Arc::clone(&rates), lost: Arc::clone(&lost) };
        // Without a thread, lines find no reader and are dropped.
        let _ = std::thread::Builder::new().name("log".to_owned()).spawn(move || writer.run(&lines));
        Self(Some(Arc::new(OperatorLogState {
            format,
            lines: sender,
            rates,
            lost,
            keys: Mutex::default(),
            limits: Mutex::default(),
        })))
    }

    /// Adds secret keys to be replaced in every line.
    pub(crate) fn redact_keys(&self, keys: &[Secret]) {
        if let Some(shared) = &self.0 {
            add_keys(&mut shared.keys.lock().unwrap_or_else(PoisonError::into_inner), keys);
        }
    }

    /// Counts that a limit was reached, and writes a line about it, unless too many such lines were written just
    /// before.
    pub fn limit(&self, limit: &Limit<'_>) {
        let Limit { what, effect, setting, advice, most, client, conversation } = *limit;
        self.count_limit(what);
        let setting = setting.unwrap_or("none");
        let mut fields = vec![("limit", what.into()), ("setting", setting.into()), ("most", most.into())];
        fields.extend(conversation.map(|name| ("conversation", name.into())));
        let sentence = advice.map_or_else(|| effect.to_owned(), |advice| format!("{effect}: {advice}"));
        self.admit(LogEvent::Limit, client, (what, setting), fields, &sentence);
    }

    /// Counts for the metrics that the bound on the quantity `what` was reached. Writes no line.
    pub(crate) fn count_limit(&self, what: &'static str) {
        if let Some(shared) = &self.0 {
            let mut limits = shared.limits.lock().unwrap_or_else(PoisonError::into_inner);
            *limits.entry(what).or_default() += 1;
        }
    }

    /// Returns how often each bound was reached, by the name of the bounded quantity, for the metrics.
    pub(crate) fn limits(&self) -> BTreeMap<&'static str, u64> {
        let limits = self.0.as_ref().map(|shared| shared.limits.lock());
        limits.map(|limits| limits.unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    /// Writes a line about a client of the configuration, or about none if `client` is empty. The sentence and the
    /// fields must not hold content: names and numbers only.
    pub fn write(&self, event: LogEvent, client: &str, fields: Vec<(&'static str, Value)>, sentence: &str) {
        self.admit(event, client, ("", ""), fields, sentence);
    }

    /// Queues a line for the thread that writes lines, unless too many lines of the same event, client and limit were
    /// written in the current window of time. `limit` is the limit that was reached, for [`LogEvent::Limit`]; it is
    /// empty for other events. The line has `fields` with their names, and ends with the sentence.
    fn admit(
        &self,
        event: LogEvent,
        client: &str,
        limit: ReachedLimit,
        fields: Vec<(&'static str, Value)>,
        sentence: &str,
    ) {
        let Some(shared) = &self.0 else { return };
        let admitted = rates(&shared.rates).admit((event, client, limit), Instant::now());
        // `suppressed`: how many lines of this kind were suppressed before this one.
        let RateDecision::Written { suppressed } = admitted else { return };
        let (client, fields) = (Value::from(client), fields.into_iter());
        // A line about no single client has no field for it.
        let client = Some(("client", client)).filter(|(_, name)| name.as_str() != Some(""));
        let suppressed = (suppressed > 0).then(|| ("suppressed", suppressed.into()));
        let mut line = LogLine {
            time: Timestamp::now(),
            level: event.level(),
            event: event.name(),
            fields: client.into_iter().chain(fields).chain(suppressed).collect(),
            sentence: sentence.to_owned(),
        };
        line.redact_keys(&shared.keys.lock().unwrap_or_else(PoisonError::into_inner));
        // Does not wait for the thread that writes lines: if its queue is full, the line is dropped and counted.
        if shared.lines.try_send(line.encode(shared.format)).is_err() {
            shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Locks the windows of the rate limit, also after a panic.
fn rates(rates: &Mutex<RateWindows>) -> MutexGuard<'_, RateWindows> {
    rates.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the thread that writes lines.
struct OperatorLogWriter<W> {
    format: LogLineFormat,
    out: W,
    rates: Arc<Mutex<RateWindows>>,
    lost: Arc<AtomicU64>,
}

impl<W: Write> OperatorLogWriter<W> {
    /// Writes lines until the log and its clones are dropped. After each batch of lines, reports how many lines were
    /// lost. When no line has arrived for a window of time ([`WINDOW`]), reports how many lines were suppressed.
    /// Reports both at the end.
    fn run(mut self, lines: &Receiver<Vec<u8>>) {
        loop {
            match lines.recv_timeout(WINDOW) {
                Ok(line) => {
                    // A line that cannot be written is lost: there is no other place to report it.
                    let _ = self.out.write_all(&line);
                    // Lines that wait already are written before the flush, up to a bound, so that it is not delayed
                    // for ever.
                    for line in lines.try_iter().take(QUEUE_CAPACITY) {
                        let _ = self.out.write_all(&line);
                    }
                    self.report_lost();
                }
                Err(RecvTimeoutError::Timeout) => {
                    let suppressed = rates(&self.rates).take_expired(Instant::now());
                    self.report(suppressed);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // As above, there is no other place to report a failure.
            let _ = self.out.flush();
        }
        // The log and its clones are dropped, so no line follows. The suppressed lines of all windows are reported now:
        // at a time two windows in the future, every window is over.
        let suppressed = rates(&self.rates).take_expired(Instant::now() + 2 * WINDOW);
        self.report(suppressed);
        self.report_lost();
        let _ = self.out.flush();
    }

    /// Writes a line for each kind of suppressed lines, with their number. A kind is an event, a client and a limit
    /// with its setting. An empty client, limit or setting means that the kind has none; the line then has no such
    /// field.
    fn report(&mut self, suppressed: Vec<rate::SuppressedLines>) {
        for rate::SuppressedLines { event, client, limit: (limit, setting), count } in suppressed {
            let mut fields =
                vec![("client", client.into()), ("limit", limit.into()), ("setting", setting.into())];
            fields.retain(|(_, value): &(_, Value)| value.as_str() != Some(""));
            fields.push(("suppressed", count.into()));
            let sentence = "further lines of this kind were not written, since there were too many: read the first ones \
                for the cause";
            self.line(event.level(), event.name(), fields, sentence);
        }
    }

    /// Writes how many lines were lost since the last report, if any.
    fn report_lost(&mut self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let sentence = "lines were dropped because the log is read too slowly: check the program or the disk that receives it";
            self.line(LogLevel::Warn, LogEvent::Limit.name(), vec![("lost", lost.into())], sentence);
        }
    }

    /// Writes a line. An output that cannot be written is ignored.
    fn line(
        &mut self,
        level: LogLevel,
        event: &'static str,
        fields: Vec<(&'static str, Value)>,
        sentence: &str,
    ) {
        let line = LogLine { time: Timestamp::now(), level, event, fields, sentence: sentence.to_owned() };
        let _ = self.out.write_all(&line.encode(self.format));
    }
}

/// Returns a duration in milliseconds, as a field of a line.
pub(crate) fn millis(duration: Duration) -> Value {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what `use_it` writes to the log.
    fn written(format: LogLineFormat, use_it: impl FnOnce(&OperatorLog)) -> String {
        struct ChannelOutput(std::sync::mpsc::Sender<Vec<u8>>);
        impl Write for ChannelOutput {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let _ = self.0.send(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (sender, bytes) = std::sync::mpsc::channel();
        let log = OperatorLog::new(format, ChannelOutput(sender));
        use_it(&log);
        // Ends when the writer has written all lines.
        drop(log);
        String::from_utf8(bytes.iter().flatten().collect()).unwrap()
    }

    fn limit(client: &str) -> Limit<'_> {
        Limit {
            what: "open questions",
            effect: "the next one is not asked",
            setting: Some("[approvals] open-questions"),
            advice: None,
            most: 100,
            client,
            conversation: Some("c1"),
        }
    }

    #[test]
    fn a_limit_names_the_setting_that_raises_it() {
        let text = written(LogLineFormat::Text, |log| log.limit(&limit("assistant")));
        let (_, line) = text.split_once('Z').unwrap();
        let expected = " warn limit client=assistant limit=\"open questions\" setting=\"[approvals] open-questions\" most=100 \
                        conversation=c1: the next one is not asked\n";
        assert_eq!(line, expected);
        let json = written(LogLineFormat::Json, |log| log.limit(&limit("assistant")));
        let line: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(line.get("setting"), Some(&Value::from("[approvals] open-questions")), "{json}");
        assert_eq!(line.get("event"), Some(&Value::from("limit")), "{json}");
        assert_eq!(line.get("message"), Some(&Value::from("the next one is not asked")), "{json}");
    }

    #[test]
    fn a_flood_of_one_client_is_bounded_and_hides_no_other() {
        let text = written(LogLineFormat::Json, |log| {
            for _ in 0..1000 {
                log.limit(&limit("noisy"));
            }
            log.limit(&limit("quiet"));
            log.write(LogEvent::Turn, "noisy", vec![("calls", 1.into())], "");
        });
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |client: &str, event: &str| {
            let is = |line: &&Value| {
                line.get("client") == Some(&client.into()) && line.get("event") == Some(&event.into())
            };
            lines.iter().filter(is).count()
        };
        // 20 of them, and the count of the others.
        assert_eq!((of("noisy", "limit"), of("quiet", "limit"), of("noisy", "turn")), (21, 1, 1), "{text}");
        let suppressed: u64 = lines.iter().filter_map(|line| line.get("suppressed")?.as_u64()).sum();
        assert_eq!(suppressed, 980);
    }

    #[test]
    fn names_forge_no_line_and_keys_are_in_none() {
        let names = [
            "a\nwarn limit: forged",
            "a\r\u{1b}[2Kforged",
            "a\u{85}\u{2028}forged",
            "a\u{202e}forged",
            "a\" message=\"forged",
            "the-key-of-a-client",
            "\u{0}\u{7f}",
            "ключ",
        ];
        for format in [LogLineFormat::Text, LogLineFormat::Json] {
            for name in names {
                let text = written(format, |log| {
                    log.redact_keys(&[Secret::new("the-key-of-a-client")]);
                    log.write(LogEvent::Turn, "assistant", vec![("conversation", name.into())], "");
                });
                assert_eq!(text.matches('\n').count(), 1, "{format:?} {name:?} {text:?}");
                assert!(!text.contains("the-key-of-a-client"), "{format:?} {text}");
                let is_safe = |c: char| c == '\n' || !c.is_control() && !"\u{202e}\u{2028}".contains(c);
                assert!(text.chars().all(is_safe), "{format:?} {name:?} {text:?}");
                if format == LogLineFormat::Json {
                    let line: Value = serde_json::from_str(&text).unwrap();
                    let kept = line.get("conversation").and_then(Value::as_str).unwrap();
                    assert!(kept == name || name.contains("key"), "{name:?} {kept:?}");
                }
            }
        }
        let long = written(LogLineFormat::Json, |log| {
            log.write(LogEvent::Turn, "", vec![("conversation", "x".repeat(100_000).into())], "");
        });
        assert!(long.len() < 1000, "{}", long.len());
    }

    #[test]
    fn a_slow_log_reader_delays_no_request() {
        struct BlockedOutput(Receiver<()>);
        impl Write for BlockedOutput {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (release, held) = sync_channel(0);
        let log = OperatorLog::new(LogLineFormat::Text, BlockedOutput(held));
        for turn in 0..3 * QUEUE_CAPACITY {
            log.write(LogEvent::Turn, if turn % 2 == 0 { "a" } else { "b" }, Vec::new(), "");
        }
        drop(release);
    }
}
