//! Keeps a pool of persistent connections to one address, so that no measured request opens a connection.

use std::sync::Mutex;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Idle connections to one address; it grows to the number of requests that are open at the same time.
pub(crate) struct ConnectionPool<B> {
    address: String,
    idle: Mutex<Vec<SendRequest<B>>>,
}

impl<B> ConnectionPool<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Creates an empty pool for a host and a port.
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), idle: Mutex::default() }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request on an idle connection, or on a new one if none is ready, and returns the response. Its body may
    /// still be arriving.
    pub(crate) async fn send(&self, request: Request<B>) -> Result<Response<Incoming>, String> {
        let known = {
            let mut idle = self.idle.lock().unwrap();
            idle.retain(|sender| !sender.is_closed());
            // A connection whose last response was not read to its end is not ready.
            idle.iter().rposition(SendRequest::is_ready).map(|index| idle.swap_remove(index))
        };
        let mut sender = match known {
            Some(sender) => sender,
            None => {
                let stream = TcpStream::connect(&self.address).await.map_err(|error| error.to_string())?;
                let _ = stream.set_nodelay(true);
                let (sender, connection) =
                    handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
                tokio::spawn(connection);
                sender
            }
        };
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        self.idle.lock().unwrap().push(sender);
        Ok(answer)
    }
}
