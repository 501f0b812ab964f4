//! Tests of listeners that are slower than the server, and of callers that do not wait for the answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use super::*;
use crate::{BoxFuture, Listener};

/// A listener that reports what it receives, and that is ready once for each permit.
struct GatedListener {
    heard: Arc<Notify>,
    gate: Arc<Semaphore>,
}

impl Listener for GatedListener {
    fn on_delta(&mut self, _: Delta<'_>) -> ControlFlow<()> {
        self.heard.notify_one();
        ControlFlow::Continue(())
    }

    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Ok(permit) = self.gate.acquire().await {
                permit.forget();
            }
        })
    }
}

/// Returns a listener, the notice that it has received something, and the semaphore whose permits make it ready.
fn make_listener() -> (GatedListener, Arc<Notify>, Arc<Semaphore>) {
    let (heard, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    (GatedListener { heard: Arc::clone(&heard), gate: Arc::clone(&gate) }, heard, gate)
}

/// Binds a listener with a small send buffer, so that the server soon has to wait for a client that does not read.
fn bind() -> (TcpListener, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    (listener, url)
}

/// Accepts a connection, and reads the beginning of its request.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut buffer = [0; 16 << 10];
    assert!(connection.read(&mut buffer).await.unwrap() > 0);
    connection
}

/// Waits until the client has closed the connection.
async fn wait_for_end(connection: &mut TcpStream) {
    let mut buffer = [0; 1024];
    let end = async { while let Ok(1..) = connection.read(&mut buffer).await {} };
    timeout(LONG, end).await.unwrap();
}

/// Returns a stream in two parts: up to the first text, and the rest.
fn split_stream() -> (String, String) {
    let whole = stream(Api::ChatCompletions, "hello");
    let (first, rest) = whole.split_at(whole.split_inclusive("\n\n").take(2).map(str::len).sum());
    assert!(first.contains("hello"), "{first}");
    (ScriptedReply::streaming(first), rest.to_owned())
}

#[tokio::test]
async fn a_slow_listener_holds_the_server_back() {
    /// More than the buffers of both sides hold, and less than the longest answer.
    const FILLING: usize = 15 << 20;
    let (server, url) = bind();
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    tokio::spawn(async move {
        let mut connection = accept(&server).await;
        let (first, rest) = split_stream();
        connection.write_all(first.as_bytes()).await.unwrap();
        sleep(MOMENT).await;
        let comment = format!(": {}\n\n", "x".repeat((64 << 10) - 4));
        while count.fetch_add(comment.len(), Ordering::SeqCst) < FILLING {
            connection.write_all(comment.as_bytes()).await.unwrap();
        }
        connection.write_all(rest.as_bytes()).await.unwrap();
    });
    let (mut listener, heard, gate) = make_listener();
    let asked =
        tokio::spawn(
            async move { remote(Api::ChatCompletions, &url).complete(&request(), &mut listener).await },
        );
    heard.notified().await;
    let mut before = 0;
    while written.load(Ordering::SeqCst) != before || before == 0 {
        before = written.load(Ordering::SeqCst);
        sleep(10 * MOMENT).await;
    }
    assert!(before < FILLING, "the client has read {before} bytes that nobody was ready for");
    assert!(!asked.is_finished());
    gate.close();
    assert_eq!(asked.await.unwrap().unwrap().text, "hello");
}

#[tokio::test]
async fn a_listener_that_is_never_ready_does_not_hold_a_request_beyond_its_time() {
    let (server, url) = bind();
    let [whole, _] = SHORT;
    let times = Timeouts { connect: LONG, first_byte: LONG, whole };
    let (mut listener, _, _gate) = make_listener();
    let remote = remote(Api::ChatCompletions, &url).times(times);
    let request = request();
    let (answer, _connection) = tokio::join!(remote.complete(&request, &mut listener), async {
        let mut connection = accept(&server).await;
        connection.write_all(split_stream().0.as_bytes()).await.unwrap();
        connection
    });
    assert_eq!(answer, Err(Error::Timeout));
}

#[tokio::test]
async fn a_caller_that_goes_away_closes_the_connection() {
    let check = async |said: &str, expected_cost: u64| {
        let (server, url) = bind();
        let budget = Arc::new(RequestBudget::new(None, None));
        let remote = remote(Api::ChatCompletions, &url).keep_connections(LONG).budget(Arc::clone(&budget));
        let (mut listener, heard, gate) = make_listener();
        gate.add_permits(1000);
        let asked = tokio::spawn(async move { remote.complete(&request(), &mut listener).await });
        let mut connection = accept(&server).await;
        connection.write_all(said.as_bytes()).await.unwrap();
        if !said.is_empty() {
            heard.notified().await;
        }
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        wait_for_end(&mut connection).await;
        assert_eq!((budget.request_count(), budget.token_count()), (1, expected_cost), "{said}");
    };
    check("", 0).await;
    let read = estimate::input(&request()) + estimate::tokens("hello".len());
    check(&split_stream().0, read).await;
}

const MOMENT: Duration = Duration::from_millis(30);
