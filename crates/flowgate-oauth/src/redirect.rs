//! Receives the outcome of a login: the issuer sends the browser to an address on this machine, at which
//! [`RedirectListener`] listens. Every program that can reach this address can send a request to it, so `login`, which
//! owns the listener, accepts only a request with the `state` of the login.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The path of the address.
const PATH: &str = "/callback";
/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// The time limit for the head of a request, and for the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most connections at a time. Browsers also open connections that they do not use.
const MAX_CONNECTIONS: usize = 16;

/// Listens on an address of this machine for the outcome of a login, until this value is dropped.
pub(crate) struct RedirectListener {
    port: u16,
    requests: mpsc::Receiver<RedirectRequest>,
    task: AbortHandle,
}

impl Drop for RedirectListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request of the browser, which waits for an answer.
pub(crate) struct RedirectRequest {
    /// The query of the address.
    pub(crate) query: String,
    stream: TcpStream,
}

impl RedirectListener {
    /// Listens on this port of 127.0.0.1, or on any free port if it is 0. Each connection is read in a task of its own,
    /// so that a slow one does not delay the others.
    ///
    /// # Errors
    /// If the port is not free.
    pub(crate) async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let (sender, requests) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // The system has no socket left. Another connection may end until the next attempt.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                // A connection beyond the limit is closed.
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Ok(Some(request)) = timeout(TIMEOUT, receive(stream, port)).await {
                        // Fails if the login has ended.
                        let _ = sender.send(request).await;
                    }
                    drop(place);
                });
            }
        });
        Ok(Self { port, requests, task: task.abort_handle() })
    }

    /// Returns the address to which the issuer sends the browser.
    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Returns the query of an address that a person has copied from the browser after the issuer sent the browser to
    /// it; `None` if it is not the address of this listener.
    pub(crate) fn query_of<'a>(&self, address: &'a str) -> Option<&'a str> {
        address.trim().strip_prefix(&self.address())?.strip_prefix('?')
    }

    /// Waits for the next request. `None` if the listener has ended.
    pub(crate) async fn next(&mut self) -> Option<RedirectRequest> {
        self.requests.recv().await
    }
}

/// Reads the head of a request. Returns `None` if the head cannot be read, or if the request is not for the address of
/// the listener; such a request is answered with a page that says so.
async fn receive(mut stream: TcpStream, port: u16) -> Option<RedirectRequest> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8(head).ok()?;
    match query_of_head(&text, port).map(str::to_owned) {
        Some(query) => Some(RedirectRequest { query, stream }),
        None => {
            answer(&mut stream, "404 Not Found", "This address is for the outcome of a login only.").await;
            None
        }
    }
}

/// Returns the query of a request for the address of the listener; `None` for any other request. The request must name
/// the host `127.0.0.1`. A web page whose own host name resolves to this machine (DNS rebinding) sends its own name,
/// and is refused.
fn query_of_head(head: &str, port: u16) -> Option<&str> {
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let hosts: Vec<&str> = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim())
        .collect();
    let is_own = hosts == [format!("127.0.0.1:{port}")];
    let query = target.strip_prefix(PATH)?.strip_prefix('?')?;
    (method == "GET" && is_own).then_some(query)
}

/// Sends a page with one sentence, and closes the connection. A failure is ignored, since the page only informs the
/// person.
async fn answer(stream: &mut TcpStream, status: &str, sentence: &str) {
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Flowgate</title></head><body><p>{sentence}</p></body></html>"
    );
    let reply = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         content-security-policy: default-src 'none'; frame-ancestors 'none'\r\nreferrer-policy: no-referrer\r\n\
         x-content-type-options: nosniff\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    let sent = async {
        stream.write_all(reply.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = timeout(TIMEOUT, sent).await;
}

impl RedirectRequest {
    /// Answers the request with a page that contains `sentence`, a fixed text. `is_done` says whether this request has
    /// completed the login; otherwise, the answer has the HTTP status of an error.
    pub(crate) async fn answer(mut self, is_done: bool, sentence: &'static str) {
        answer(&mut self.stream, if is_done { "200 OK" } else { "400 Bad Request" }, sentence).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_the_address_are_read() {
        let check = |head: &str, expected: Option<&str>| {
            assert_eq!(query_of_head(head, 80), expected, "{head:?}");
        };
        let host = "Host: 127.0.0.1:80";
        check(&format!("GET /callback?code=1&state=2 HTTP/1.1\r\n{host}\r\n\r\n"), Some("code=1&state=2"));
        check(&format!("POST /callback?code=1 HTTP/1.1\r\n{host}\r\n\r\n"), None);
        check(&format!("GET /favicon.ico HTTP/1.1\r\n{host}\r\n\r\n"), None);
        check(&format!("GET /callbacks?code=1 HTTP/1.1\r\n{host}\r\n\r\n"), None);
        check(&format!("GET /callback HTTP/1.1\r\n{host}\r\n\r\n"), None);
        check("GET /callback?code=1 HTTP/1.1\r\nhost: evil.example:80\r\n\r\n", None);
        check(&format!("GET /callback?code=1 HTTP/1.1\r\n{host}\r\nhost: evil.example\r\n\r\n"), None);
        check("GET /callback?code=1 HTTP/1.1\r\n\r\n", None);
        check("", None);
        check("\r\n\r\n", None);
    }
}
