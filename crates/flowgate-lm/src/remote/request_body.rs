//! Defines [`RequestBody`], the body of a request that notifies `client.rs` when the HTTP client begins to send it.
//!
//! The HTTP client reads a body only when it can send the request: when it has a connection and, over HTTP/2, the
//! server permits a further open request on this connection. From then on, `client.rs` limits the time until the server
//! sends the first byte of its answer. The time that a request waits for a connection does not count.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// A body of one piece.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// The content; `None` after it was read.
    bytes: Option<Bytes>,
    /// Notifies the receiver at the first read; `None` afterwards.
    sending: Option<Sender<()>>,
}

impl RequestBody {
    /// Returns a body, and a receiver that gets a message when the body is read for the first time.
    pub(super) fn new(bytes: Bytes) -> (Self, Receiver<()>) {
        let (sending, is_sending) = channel();
        (Self { bytes: Some(bytes), sending: Some(sending) }, is_sending)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    /// Returns the whole body as one frame at the first call, and `None`, the end of the body, at the next call. The
    /// first call also notifies `client.rs` that the HTTP client is sending the request.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(sending) = self.sending.take() {
            // `send` fails if the request was abandoned and its receiver no longer exists. Nobody needs the notice
            // then.
            let _ = sending.send(());
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    /// Returns whether the HTTP client has read the content.
    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    /// Returns the number of bytes that are left, from which the HTTP client writes `content-length`.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn the_first_read_is_reported() {
        let (mut body, mut sending) = RequestBody::new(Bytes::from_static(b"{}"));
        assert_eq!(body.size_hint().exact(), Some(2));
        assert!(sending.try_recv().is_err());
        let mut read = || match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap()),
            Poll::Pending => panic!("a body of one piece is always there"),
        };
        assert_eq!(read(), Some(Bytes::from_static(b"{}")));
        assert_eq!(sending.try_recv(), Ok(()));
        assert_eq!(read(), None);
        assert!(body.is_end_stream());
    }
}
