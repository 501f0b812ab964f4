//! Sends the requests of chats to a server, in one of two ways: at a fixed rate, independent of earlier responses
//! ([`offer`](LoadTarget::offer)), where a latency is measured from the time at which its request was due; or with a
//! fixed number of open requests ([`keep_open`](LoadTarget::keep_open)).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::chat::BenchChat;
use crate::connections::ConnectionPool;
use crate::options::LatencyOptions;
use crate::process::KEY;

/// A server under load, with the chats of its clients.
pub(crate) struct LoadTarget {
    connections: ConnectionPool<Full<Bytes>>,
    /// The idle chats.
    chats: Mutex<VecDeque<BenchChat>>,
    /// Counts the idle chats, so that requests can wait for one.
    idle: Semaphore,
    /// The number of chats so far, which names them.
    begun: AtomicUsize,
    /// The length at which a chat ends.
    messages: usize,
    /// The bytes of text with which each chat begins.
    context: usize,
    /// Whether requests name their conversation.
    named: bool,
}

/// When an answer arrived, from when its request was sent.
#[derive(Debug)]
pub(crate) struct AnswerTiming {
    /// The time until its first byte.
    pub(crate) first: Duration,
    /// The times between its further parts, as they arrive.
    pub(crate) gaps: Vec<Duration>,
    /// The time until its end.
    pub(crate) whole: Duration,
}

/// A request that was answered or abandoned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSample {
    pub(crate) stream: bool,
    /// The time from when the request was due to the end of its answer.
    pub(crate) whole: Duration,
    pub(crate) is_answered: bool,
}

impl LoadTarget {
    /// Creates a target at `address` without chats.
    pub(crate) fn new(address: &str, options: &LatencyOptions) -> Arc<Self> {
        Arc::new(Self {
            connections: ConnectionPool::new(address),
            chats: Mutex::default(),
            idle: Semaphore::new(0),
            begun: AtomicUsize::new(0),
            messages: options.messages,
            context: options.context,
            named: options.named,
        })
    }

    /// Begins a chat.
    fn begin(&self) -> BenchChat {
        let name = format!("chat {}", self.begun.fetch_add(1, Ordering::Relaxed));
        BenchChat::new(name, self.context)
    }

    /// Begins a chat, sends `times` messages in it, and adds it to the idle chats.
    async fn grow(&self, times: usize) -> Result<(), String> {
        let mut chat = self.begin();
        for time in 0..times {
            self.ask(&mut chat, time % 2 == 0).await?;
        }
        self.put(chat);
        Ok(())
    }

    /// Begins chats of all lengths up to the maximum, so that the mean length, and with it the load, is constant over
    /// time. Returns the number of requests per second.
    pub(crate) fn prepare(self: &Arc<Self>, runtime: &Runtime, chats: usize) -> Result<f64, String> {
        let begun = Instant::now();
        let most = self.messages / 2 + 1;
        let times: Vec<usize> = (0..chats).map(|index| index * most / chats).collect();
        let all: usize = times.iter().sum();
        self.grow_all(runtime, times)?;
        Ok(all as f64 / begun.elapsed().as_secs_f64())
    }

    /// Begins one chat for each number in `times` and sends this many messages in it, sixteen chats at a time.
    pub(crate) fn grow_all(self: &Arc<Self>, runtime: &Runtime, times: Vec<usize>) -> Result<(), String> {
        runtime.block_on(async {
            let places = Arc::new(Semaphore::new(16));
            let mut tasks = Vec::new();
            for times in times {
                let place = Arc::clone(&places).acquire_owned().await.unwrap();
                let target = Arc::clone(self);
                tasks.push(tokio::spawn(async move {
                    let grown = target.grow(times).await;
                    drop(place);
                    grown
                }));
            }
            for task in tasks {
                task.await.unwrap()?;
            }
            Ok(())
        })
    }

    /// Adds a chat to the idle chats.
    fn put(&self, chat: BenchChat) {
        // A chat of the maximum length is replaced by a new one.
        let chat = if chat.length >= self.messages { self.begin() } else { chat };
        self.chats.lock().unwrap().push_back(chat);
        self.idle.add_permits(1);
    }

    /// Removes all idle chats, which frees their memory. `idle` still counts them, so `offer` must not be called
    /// afterwards.
    pub(crate) fn clear(&self) {
        self.chats.lock().unwrap().clear();
    }

    /// Sends the next message of a chat and reads the answer to its end.
    async fn ask(&self, chat: &mut BenchChat, stream: bool) -> Result<AnswerTiming, String> {
        let body = Full::new(Bytes::from(chat.ask(stream)));
        let mut request = Request::post("/v1/chat/completions")
            .header("host", self.connections.address())
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {KEY}"));
        if self.named {
            request = request.header("x-flowgate-conversation", &chat.name);
        }
        let begun = Instant::now();
        let mut answer = self.connections.send(request.body(body).unwrap()).await?;
        let (mut arrived, mut body) = (Vec::new(), Vec::new());
        while let Some(frame) = answer.body_mut().frame().await {
            if let Some(data) = frame.map_err(|error| error.to_string())?.data_ref() {
                arrived.push(begun.elapsed());
                body.extend_from_slice(data);
            }
        }
        let whole = begun.elapsed();
        chat.push_answer(stream, &body)?;
        let gaps = arrived.windows(2).map(|two| two[1].saturating_sub(two[0])).collect();
        Ok(AnswerTiming { first: arrived.first().copied().unwrap_or(whole), gaps, whole })
    }

    /// Runs `concurrency` clients for `seconds`, each of which sends its next request when the last one is answered, in
    /// idle chats or new ones. Returns the timings of the answers, and a failure if there was one.
    pub(crate) fn keep_open(
        self: &Arc<Self>,
        runtime: &Runtime,
        (concurrency, seconds): (usize, f64),
        stream: bool,
    ) -> (Vec<AnswerTiming>, Option<String>) {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let client = |target: Arc<Self>| async move {
            let (mut timings, mut failure) = (Vec::new(), None);
            while Instant::now() < end {
                let idle = target.chats.lock().unwrap().pop_front();
                let mut chat = idle.unwrap_or_else(|| target.begin());
                match target.ask(&mut chat, stream).await {
                    Ok(timing) => timings.push(timing),
                    Err(error) => {
                        failure = Some(error);
                        chat = target.begin();
                    }
                }
                target.put(chat);
            }
            (timings, failure)
        };
        runtime.block_on(async {
            let clients: Vec<_> = (0..concurrency).map(|_| tokio::spawn(client(Arc::clone(self)))).collect();
            let (mut all, mut failure) = (Vec::new(), None);
            for client in clients {
                let (timings, failed) = client.await.unwrap();
                all.extend(timings);
                failure = failure.or(failed);
            }
            (all, failure)
        })
    }

    /// Sends a request that was due at `due` in an idle chat. Waits for such a chat until `end`; then the request is
    /// abandoned.
    async fn sample(&self, stream: bool, due: Instant, end: Instant) -> RequestSample {
        let failed = |due: Instant| RequestSample { stream, whole: due.elapsed(), is_answered: false };
        let place = tokio::time::timeout_at(end.into(), self.idle.acquire()).await;
        let Ok(Ok(place)) = place else { return failed(due) };
        place.forget();
        let chat = self.chats.lock().unwrap().pop_front();
        let mut chat = chat.unwrap();
        let done = self.ask(&mut chat, stream).await;
        let whole = due.elapsed();
        if let Err(error) = &done {
            eprintln!("{} of {} messages: {error}", chat.name, chat.length);
            chat = self.begin();
        }
        self.put(chat);
        RequestSample { stream, whole, is_answered: done.is_ok() }
    }

    /// Sends requests at this rate for this many seconds. Requests that have not begun after twice that time are
    /// abandoned.
    pub(crate) fn offer(self: &Arc<Self>, runtime: &Runtime, rate: f64, seconds: f64) -> Vec<RequestSample> {
        let count = (rate * seconds).ceil() as u32;
        let begun = Instant::now() + Duration::from_millis(5);
        let end = begun + Duration::from_secs_f64(seconds * 2.0);
        let mut tasks = Vec::new();
        // This thread sleeps, since that is more precise than tokio's timers.
        for index in 0..count {
            let due = begun + Duration::from_secs_f64(f64::from(index) / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let target = Arc::clone(self);
            tasks.push(runtime.spawn(async move { target.sample(index % 2 == 0, due, end).await }));
        }
        runtime.block_on(async {
            let mut samples = Vec::new();
            for task in tasks {
                samples.push(task.await.unwrap());
            }
            samples
        })
    }
}
