//! Wraps the socket of a connection with a write timeout: a client that accepts nothing of its answer loses the
//! connection. `connection` wraps each socket without TLS, and `handshake` each one with TLS, below the encryption.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http::admission::ConnectionPlace;

/// A stream with a time limit for each write.
#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// The timer of the write that waits for the client; `None` if no write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// The place of the connection among those that are admitted; notified when the server waits for the client.
    place: Option<Arc<ConnectionPlace>>,
}

impl<S> WriteTimeout<S> {
    /// Wraps `stream`. A write fails if the client accepts no byte of it within `limit`.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None, place: None }
    }

    /// Also reports waiting reads to `place`, so that a slow connection can be closed for another one.
    pub(crate) fn reporting_to(self, place: Arc<ConnectionPlace>) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Applies the time limit to a write. `written` is the outcome of polling the write. Returns it unchanged, or an
    /// error once writes have been pending without progress for the time limit. The limit begins again with each write
    /// that makes progress.
    fn with_timeout<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        waiting.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    /// Reads from the socket, and notes on the place of the connection, if it has one, when the server has to wait for
    /// the client. After such a wait, the connection may be closed for another one.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let (Poll::Pending, Some(place)) = (&read, &this.place) {
            place.mark_waiting();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    /// Writes to the socket. Fails with `TimedOut` if the client accepts nothing for the time limit.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.with_timeout(cx, written)
    }

    /// Writes several buffers to the socket. Fails with `TimedOut` if the client accepts nothing for the time limit.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.with_timeout(cx, written)
    }

    /// Returns whether the socket writes several buffers at once.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Flushes the socket. Fails with `TimedOut` if the client accepts nothing for the time limit.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.with_timeout(cx, flushed)
    }

    /// Shuts the socket down for writing, without the time limit.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_client_that_takes_nothing_ends_the_write() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut stream = WriteTimeout::new(ours, Duration::from_millis(20));
        stream.write_all(b"12345678").await.unwrap();
        assert_eq!(stream.write_all(b"9").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut taken = [0; 8];
        theirs.read_exact(&mut taken).await.unwrap();
        stream.write_all(b"9").await.unwrap();
    }
}
