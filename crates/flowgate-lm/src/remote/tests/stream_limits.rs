//! Tests that requests wait if a server limits the concurrent streams of an HTTP/2 connection.

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;

use super::encryption::{ServerBehaviour, TlsServer};
use super::*;

/// A limit on connecting that is much shorter than the wait for a place on a connection.
const CONNECT: Duration = Duration::from_millis(500);

/// Sends this many requests without retries, each a moment after the previous one, so that the later ones find the
/// connection full. Another request opens the connection beforehand.
async fn ask_many(server: &TlsServer, times: Timeouts, count: usize) {
    let remote = remote(Api::ChatCompletions, &server.url).authorities(&server.authorities);
    let retries = RetryPolicy { times: 0, ..RetryPolicy::default() };
    let remote = remote.keep_connections(LONG).times(times).retries(retries);
    assert_eq!(ask(&remote).await.0.unwrap().text, "hello");
    let mut asked = JoinSet::new();
    for _ in 0..count {
        let remote = remote.clone();
        asked.spawn(async move { ask(&remote).await.0.map(|completion| completion.text) });
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let answers = asked.join_all().await;
    let failed: Vec<_> = answers.iter().filter(|answer| answer.as_deref() != Ok("hello")).collect();
    assert!(failed.is_empty(), "{} of {count}: {:?}", failed.len(), failed.first());
}

/// The wait for a place on a connection counts neither as time for connecting nor as time for answering.
#[tokio::test]
async fn requests_wait_for_a_place_on_the_connection() {
    let delay = Duration::from_millis(400);
    let server =
        TlsServer::start_as(&["h2"], ServerBehaviour { delay, max_streams: 4, ..ServerBehaviour::prompt() })
            .await;
    let begun = Instant::now();
    // The last of them wait for 7 others, one after another.
    ask_many(&server, Timeouts { connect: CONNECT, first_byte: LONG, whole: LONG }, 32).await;
    assert!(begun.elapsed() > 4 * CONNECT);
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 1);
    assert_eq!(server.seen.most_open.load(Ordering::SeqCst), 4);
}

/// The client gives up a server that accepts a connection and sends no greeting, after the limit on connecting.
#[tokio::test]
async fn connecting_includes_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let times = Timeouts { connect: CONNECT, first_byte: LONG, whole: LONG };
    let remote = remote(Api::ChatCompletions, &url).times(times);
    let begun = Instant::now();
    assert_eq!(ask(&remote).await.0, Err(Error::Timeout));
    assert!((CONNECT..LONG).contains(&begun.elapsed()));
    drop(listener);
}
