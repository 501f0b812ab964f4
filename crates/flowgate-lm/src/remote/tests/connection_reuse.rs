//! Tests of which connections are kept open, and of what is sent over them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::sleep;

use super::*;

/// When the body of a streamed answer ends.
#[derive(Clone, Copy)]
enum StreamEnding {
    /// Together with the answer.
    AtOnce,
    /// This time after the answer.
    After(Duration),
    Never,
}

/// A server that counts connections and requests.
struct CountingServer {
    url: String,
    seen: Arc<ServerCounts>,
}

#[derive(Default)]
struct ServerCounts {
    connections: AtomicUsize,
    questions: AtomicUsize,
    /// The total size of all bodies.
    bytes: AtomicUsize,
}

impl ServerCounts {
    /// Returns the numbers of connections and requests.
    fn counts(&self) -> [usize; 2] {
        [&self.connections, &self.questions].map(|count| count.load(Ordering::SeqCst))
    }
}

impl CountingServer {
    /// Starts a server. Each of the first connections ends its streams as listed, and all later ones as the
    /// last entry.
    fn new(ends: &[StreamEnding]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (seen, ends) = (Arc::new(ServerCounts::default()), ends.to_vec());
        let sees = Arc::clone(&seen);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let count = sees.connections.fetch_add(1, Ordering::SeqCst);
                let (sees, end) = (Arc::clone(&sees), ends[count.min(ends.len() - 1)]);
                std::thread::spawn(move || answer_requests(connection.unwrap(), end, &sees));
            }
        });
        Self { url, seen }
    }

    fn remote(&self) -> RemoteModel {
        let retries = RetryPolicy { times: 0, ..RetryPolicy::default() };
        let times = Timeouts { connect: LONG, first_byte: LONG, whole: LONG };
        RemoteModel::new(Api::ChatCompletions, &self.url, "m").unwrap().times(times).retries(retries)
    }
}

/// Answers each request on a connection with a stream, as long as the connection is open. `end` says when the body of
/// an answer ends; `seen` counts the requests and the bytes of their bodies.
fn answer_requests(mut connection: TcpStream, end: StreamEnding, seen: &ServerCounts) {
    let mut buffer = vec![0_u8; 64 << 10];
    let mut heard = Vec::new();
    while let Ok(count @ 1..) = connection.read(&mut buffer) {
        heard.extend_from_slice(&buffer[..count]);
        let Some(head) = heard.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let fields = String::from_utf8_lossy(&heard[..head]).to_ascii_lowercase();
        let length = fields.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let length: usize = length.parse().unwrap();
        if heard.len() < head + 4 + length {
            continue;
        }
        let body: Value = serde_json::from_slice(&heard[head + 4..]).unwrap();
        assert_eq!(body["model"], "m");
        heard.clear();
        seen.bytes.fetch_add(length, Ordering::SeqCst);
        seen.questions.fetch_add(1, Ordering::SeqCst);
        let text = stream(Api::ChatCompletions, "hello");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = format!("{head}{:x}\r\n{text}\r\n", text.len());
        let last = "0\r\n\r\n";
        match end {
            StreamEnding::AtOnce => connection.write_all(format!("{answer}{last}").as_bytes()).unwrap(),
            StreamEnding::After(time) => {
                connection.write_all(answer.as_bytes()).unwrap();
                std::thread::sleep(time);
                let _ = connection.write_all(last.as_bytes());
            }
            StreamEnding::Never => connection.write_all(answer.as_bytes()).unwrap(),
        }
    }
}

/// Returns a request with a text of this many bytes.
fn long(letters: usize) -> Request {
    Request {
        messages: vec![Message::User(vec![Part::from("x".repeat(letters).as_str())])].into(),
        ..request()
    }
}

const MOMENT: Duration = Duration::from_millis(50);
/// Waiting times, after one of which the server has read the bytes that the client sent; the later ones are for busy
/// machines.
const WAITS: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(30)];

/// Runs `run` with increasing waiting times until it returns the expected numbers of connections and requests; fails if
/// it never does.
async fn check_counts_with_waits(expected: [usize; 2], run: impl AsyncFn(Duration) -> [usize; 2]) {
    let mut found = Vec::new();
    for time in WAITS {
        found.push(run(time).await);
        if found.last() == Some(&expected) {
            return;
        }
    }
    panic!("{expected:?} was expected, and found was {found:?}");
}

#[tokio::test]
async fn connections_are_reused_if_configured() {
    // Sends two requests with the client that `remote` configures, and expects this number of connections.
    let check = async |remote: &dyn Fn(RemoteModel) -> RemoteModel, end: StreamEnding, expected: usize| {
        check_counts_with_waits([expected, 2], async |time| {
            let server = CountingServer::new(&[end]);
            let remote = remote(server.remote());
            for _ in 0..2 {
                assert_eq!(ask(&remote).await.0.unwrap().text, "hello");
                sleep(time).await;
            }
            server.seen.counts()
        })
        .await;
    };
    let long = |remote: RemoteModel| remote.keep_connections(LONG);
    let brief = |remote: RemoteModel| remote.keep_connections(Duration::from_millis(10));
    for end in [StreamEnding::AtOnce, StreamEnding::After(MOMENT)] {
        check(&|remote| remote, end, 2).await;
        check(&long, end, 1).await;
        check(&brief, end, 2).await;
    }
    check(&long, StreamEnding::Never, 2).await;
}

#[tokio::test]
async fn models_of_one_server_share_connections() {
    check_counts_with_waits([1, 2], async |time| {
        let server = CountingServer::new(&[StreamEnding::AtOnce]);
        let first = server.remote().keep_connections(LONG);
        let other = first.with_model("m");
        for remote in [first, other] {
            assert_eq!(ask(&remote).await.0.unwrap().text, "hello");
            sleep(time).await;
        }
        server.seen.counts()
    })
    .await;
}

#[test]
fn connections_survive_between_callers_that_are_not_asynchronous() {
    let server = CountingServer::new(&[StreamEnding::After(MOMENT)]);
    let remote = server.remote().keep_connections(LONG);
    for _ in 0..3 {
        assert_eq!(crate::block_on(ask(&remote)).0.unwrap().text, "hello");
        std::thread::sleep(WAITS[0]);
    }
    let [connections, questions] = server.seen.counts();
    assert!((1..3).contains(&connections), "{connections}");
    assert_eq!(questions, 3);
}

#[tokio::test]
async fn long_questions_arrive_whole() {
    let server = CountingServer::new(&[StreamEnding::AtOnce]);
    let remote = server.remote().keep_connections(LONG);
    for length in [120 << 10, 128 << 10, 5 << 20] {
        let request = long(length);
        assert_eq!(remote.complete(&request, &mut crate::ignore_deltas).await.unwrap().text, "hello");
        let body = remote.body(&request).0.len();
        assert_eq!(server.seen.bytes.swap(0, Ordering::SeqCst), body);
    }
}

#[tokio::test]
async fn a_slow_listener_ends_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let [whole, _] = SHORT;
    let remote = RemoteModel::new(Api::ChatCompletions, &url, "m").unwrap().keep_connections(LONG);
    let remote = remote.times(Timeouts { connect: LONG, first_byte: LONG, whole });
    let begun = Instant::now();
    assert_eq!(remote.complete(&long(20 << 20), &mut crate::ignore_deltas).await, Err(Error::Timeout));
    assert!((whole..LONG).contains(&begun.elapsed()));
    drop(listener);
}
