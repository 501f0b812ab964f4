//! Sends ended spans to the collector, from a queue and on a thread of its own: a slow or unreachable collector delays
//! no turn. `telemetry` starts the queue and ends it.
//!
//! The queue is bounded. A span that finds it full is dropped and counted, and so are the spans of a batch that the
//! collector does not accept. The operator's log reports dropped spans at most once a minute. When the gateway stops,
//! the thread has a bounded time to send the spans that still wait.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry_otlp::{Compression, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};

use super::http_client::CollectorClient;
use crate::config::TelemetrySpec;
use crate::log::{Limit, LogEvent, OperatorLog};

/// The most spans that wait; more are dropped.
pub(crate) const MAX_WAITING: usize = 4096;
/// The most spans of one request to the collector.
const MAX_BATCH: usize = 512;
/// The longest time that a span waits for its batch to become full.
const PAUSE: Duration = Duration::from_secs(1);
/// The time within which the spans that wait at the end are sent.
const END_TIME: Duration = Duration::from_secs(3);
/// The least time between two lines of the log about dropped spans, or about the collector.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The exporter of OpenTelemetry, with the gateway's HTTP client.
pub(super) struct Exporter(SpanExporter);

impl Exporter {
    /// Creates the exporter. The error says which setting it does not accept.
    pub(super) fn new(spec: &TelemetrySpec, resource: &Resource) -> Result<Self, String> {
        let exporter = SpanExporter::builder()
            .with_http()
            // The exporter sets no time limit on requests that this client sends for it, so the client sets one itself.
            .with_http_client(CollectorClient::new(spec))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&spec.endpoint)
            // The exporter's limit on the retries of a batch, which it would otherwise read from the environment.
            .with_timeout(spec.timeout);
        let exporter =
            if spec.is_compressed { exporter.with_compression(Compression::Gzip) } else { exporter };
        let mut exporter = exporter.build().map_err(|error| format!("[telemetry]: {error}"))?;
        exporter.set_resource(resource);
        Ok(Self(exporter))
    }
}

/// The queue of ended spans.
pub(super) struct SpanQueue {
    state: Mutex<QueueState>,
    /// Signals the thread that there is something to do, and [`SpanQueue::finish`] that the thread has ended.
    changed: Condvar,
    dropped: AtomicU64,
}

/// The spans of the queue, and the state of the thread that sends them.
#[derive(Default)]
struct QueueState {
    waiting: VecDeque<SpanData>,
    /// Whether the thread is to end.
    is_closed: bool,
    /// Whether the thread has ended.
    has_ended: bool,
}

impl fmt::Debug for SpanQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanQueue").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}

impl SpanQueue {
    /// Creates the queue, and starts the thread that empties it.
    pub(super) fn start(exporter: Exporter, log: OperatorLog) -> std::io::Result<Arc<Self>> {
        let queue = Arc::new(Self::empty());
        let exported = Arc::clone(&queue);
        let sender = BatchSender { exporter, report: ExportReport::new(log) };
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || exported.run(sender))?;
        Ok(queue)
    }

    /// Creates a queue without spans and without a thread.
    fn empty() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), dropped: AtomicU64::new(0) }
    }

    /// Locks the state of the queue, also after a panic.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a span. Drops it, and counts that, if there is no room or the thread that sends has ended. Wakes this
    /// thread once a batch is full. Never waits for the collector.
    fn push(&self, span: SpanData) {
        let mut state = self.state();
        if state.waiting.len() >= MAX_WAITING || state.has_ended {
            drop(state);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.push_back(span);
        let is_batch = state.waiting.len() == MAX_BATCH;
        drop(state);
        if is_batch {
            self.changed.notify_all();
        }
    }

    /// Returns the number of spans that were dropped since the start.
    pub(super) fn dropped_spans(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Takes the next spans, at most [`MAX_BATCH`], once there are that many, [`PAUSE`] is over, or the queue is
    /// closed. The batch can be empty after a pause. `None` when the queue is closed and empty.
    fn take_batch(&self) -> Option<Vec<SpanData>> {
        let is_early = |state: &mut QueueState| !state.is_closed && state.waiting.len() < MAX_BATCH;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(self.state(), PAUSE, is_early)
            .unwrap_or_else(PoisonError::into_inner);
        if state.is_closed && state.waiting.is_empty() {
            return None;
        }
        let count = state.waiting.len().min(MAX_BATCH);
        Some(state.waiting.drain(..count).collect())
    }

    /// Sends batches until the queue is closed and empty, or [`END_TIME`] has passed since it was closed.
    fn run(&self, mut sender: BatchSender) {
        // The time at which sending ends, which is set when the queue is first found closed.
        let mut deadline: Option<Instant> = None;
        while let Some(batch) = self.take_batch() {
            if self.state().is_closed {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + END_TIME);
                if Instant::now() >= deadline {
                    self.dropped.fetch_add(count(batch.len()), Ordering::Relaxed);
                    break;
                }
            }
            if !batch.is_empty() {
                let lost = sender.send(batch);
                self.dropped.fetch_add(lost, Ordering::Relaxed);
            }
            sender.report.tell_dropped(self.dropped_spans(), Instant::now());
        }
        // No thread takes the spans that still wait, so they count as dropped.
        let mut state = self.state();
        state.has_ended = true;
        let unsent = std::mem::take(&mut state.waiting).len();
        drop(state);
        self.dropped.fetch_add(count(unsent), Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Tells the thread to send the spans that wait, and then to end. Does not wait for the thread.
    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Closes the queue, and waits until the thread has ended, but at most for [`END_TIME`].
    pub(super) fn finish(&self) {
        self.close();
        let runs = |state: &mut QueueState| !state.has_ended;
        // Whether the thread has ended or the time is over, the caller continues to shut down.
        let _ = self.changed.wait_timeout_while(self.state(), END_TIME, runs);
    }
}

/// Converts a number of spans to the type of counters.
fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Puts each ended span into the queue.
#[derive(Debug)]
pub(super) struct QueueingProcessor(pub(super) Arc<SpanQueue>);

impl SpanProcessor for QueueingProcessor {
    /// Does nothing: a span is queued when it ends.
    fn on_start(&self, _: &mut Span, _: &Context) {}

    /// Queues an ended span, unless the queue is full.
    fn on_end(&self, span: SpanData) {
        self.0.push(span);
    }

    /// Does nothing, and reports success although spans may wait in the queue, since the gateway never calls it.
    /// Instead, the gateway calls [`SpanQueue::finish`] when it stops, which waits a short time for these spans.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Does not wait: [`SpanQueue::finish`] does, on a thread that may wait.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        self.0.close();
        Ok(())
    }
}

/// Sends batches, and reports failures.
struct BatchSender {
    exporter: Exporter,
    report: ExportReport,
}

impl BatchSender {
    /// Sends spans, and returns how many of them were lost: all if the request to the collector fails, otherwise none.
    fn send(&mut self, batch: Vec<SpanData>) -> u64 {
        let number = count(batch.len());
        // `CollectorClient` blocks this thread until the answer has arrived, so the future needs no other thread to
        // complete.
        let sent = pollster::block_on(self.exporter.0.export(batch));
        // Reports in the operator's log when requests begin to fail, or succeed again.
        self.report.tell_outcome(sent.is_ok(), Instant::now());
        if sent.is_ok() { 0 } else { number }
    }
}

/// Writes lines about dropped spans and about the collector to the operator's log, at most one of each kind in
/// [`LOG_PAUSE`].
struct ExportReport {
    log: OperatorLog,
    /// The number of dropped spans at the last line about them, and its time.
    told_dropped: u64,
    told_dropped_at: Option<Instant>,
    /// Whether the last line said that the collector fails, and its time.
    is_failing: bool,
    told_outcome_at: Option<Instant>,
}

impl ExportReport {
    /// Creates a report of which no line is written yet.
    fn new(log: OperatorLog) -> Self {
        Self { log, told_dropped: 0, told_dropped_at: None, is_failing: false, told_outcome_at: None }
    }

    /// Writes to the operator's log that spans were dropped. Writes nothing if none were dropped since the last such
    /// line, or if that line is more recent than [`LOG_PAUSE`]. `dropped` is the number of spans that were dropped since
    /// the start.
    fn tell_dropped(&mut self, dropped: u64, now: Instant) {
        if dropped == self.told_dropped || !is_due(self.told_dropped_at, now) {
            return;
        }
        (self.told_dropped, self.told_dropped_at) = (dropped, Some(now));
        self.log.limit(&Limit {
            what: "spans that wait for the collector",
            effect: "spans were dropped, and traces are incomplete; flowgate_spans_dropped_total counts them",
            setting: None,
            advice: Some("check that the collector answers, or lower `sample` in [telemetry]"),
            most: count(MAX_WAITING),
            client: "",
            conversation: None,
        });
    }

    /// Writes to the operator's log that the collector begins to fail, or works again. `is_ok` is the outcome of a
    /// request to the collector.
    fn tell_outcome(&mut self, is_ok: bool, now: Instant) {
        // A success is reported only after a reported failure, and a failure only if none is reported yet.
        if is_ok != self.is_failing || !is_due(self.told_outcome_at, now) {
            return;
        }
        (self.is_failing, self.told_outcome_at) = (!is_ok, Some(now));
        let sentence = match is_ok {
            true => "the collector accepts spans again",
            false => {
                "the collector does not accept spans: check `endpoint`, `headers-from` and `ca-file` in [telemetry], and the log of \
                 the collector"
            }
        };
        // The empty name: the line is about no single client.
        self.log.write(LogEvent::Remark, "", Vec::new(), sentence);
    }
}

/// Returns whether a line may be written at `now`: [`LOG_PAUSE`] has passed since the last one, or there is none.
fn is_due(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= LOG_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;

    fn span() -> SpanData {
        SpanData {
            span_context: SpanContext::empty_context(),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "a".into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    /// Nothing takes spans out of this queue, as with a collector that hangs.
    #[test]
    fn a_full_queue_drops_spans_and_counts_them() {
        let queue = SpanQueue::empty();
        for _ in 0..MAX_WAITING + 7 {
            queue.push(span());
        }
        assert_eq!((queue.state().waiting.len(), queue.dropped_spans()), (MAX_WAITING, 7));
        queue.close();
        assert_eq!(queue.take_batch().map(|batch| batch.len()), Some(MAX_BATCH));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_then_ends() {
        let queue = SpanQueue::empty();
        queue.push(span());
        queue.close();
        assert_eq!(queue.take_batch().map(|batch| batch.len()), Some(1));
        assert!(queue.take_batch().is_none());
    }

    /// The log has at most one line of each kind in a minute.
    #[test]
    fn lines_are_rare() {
        let mut report = ExportReport::new(OperatorLog::default());
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let told = |report: &ExportReport| (report.told_dropped, report.is_failing);
        report.tell_dropped(0, at(0));
        report.tell_outcome(true, at(0));
        assert!(report.told_dropped_at.is_none() && report.told_outcome_at.is_none());
        for (second, dropped, is_ok, expected) in [
            (1, 5, false, (5, true)),
            (30, 9, false, (5, true)),
            (60, 9, true, (5, true)),
            (61, 9, true, (9, false)),
            (62, 10, false, (9, false)),
            (200, 10, false, (10, true)),
        ] {
            report.tell_dropped(dropped, at(second));
            report.tell_outcome(is_ok, at(second));
            assert_eq!(told(&report), expected, "{second}");
        }
    }
}
