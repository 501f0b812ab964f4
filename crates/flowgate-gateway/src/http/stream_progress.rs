//! Ends an answer on a stream of HTTP/2 if the client accepts nothing of it for too long. `connection` and
//! `connection_service` use it.
//!
//! All streams of a connection share one socket, whose [write timeout](super::write_timeout) does not notice that a
//! client leaves no room in the window of one stream. The HTTP library runs each stream as a task of
//! [`StreamExecutor`], and takes the next part of an answer from [`PacedBody`] only when it has sent the previous one.
//! The time between two parts therefore shows whether the client accepts the answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::http::open_requests::OpenRequest;

/// The most bytes of an answer that the library holds for a stream before it asks for more.
const PART: usize = 16 << 10;

tokio::task_local! {
    /// The progress of the stream whose task is polled.
    static PROGRESS: Arc<StreamProgress>;
}

/// The time at which the library took the last part of an answer, while the client may not have accepted that part;
/// `None` while the client waits for the gateway.
#[derive(Debug, Default)]
struct StreamProgress(Mutex<Option<Instant>>);

impl StreamProgress {
    /// Returns the time at which the library took the last part; `None` while no part is being sent.
    fn sending_since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which the library took a part of the answer; `None` if it waits for the next part.
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Waits until the HTTP library has been sending the same part of the answer for `limit`: it takes the next part
    /// only when the client has accepted this one. While no part is being sent, the client cannot stall, and the wait
    /// begins again.
    async fn stalled(&self, limit: Duration) {
        loop {
            let since = self.sending_since();
            sleep_until(since.unwrap_or_else(Instant::now) + limit).await;
            if since.is_some() && self.sending_since() == since {
                return;
            }
        }
    }
}

/// Runs each stream of a connection as a task, until the stream ends or its client accepts nothing for the time limit.
/// In the second case the stream is dropped, which resets it.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    pub(crate) limit: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StreamExecutor {
    /// Spawns the stream as a task that ends when the stream is complete or its client has accepted nothing for the
    /// limit. The task and the body that the stream sends share a [`StreamProgress`]: the body finds it by [`PROGRESS`]
    /// and updates it, and the task watches it.
    fn execute(&self, stream: F) {
        let (progress, limit) = (Arc::new(StreamProgress::default()), self.limit);
        let stream = PROGRESS.scope(Arc::clone(&progress), stream);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stream => {}
                () = progress.stalled(limit) => {}
            }
        });
    }
}

/// The body of an answer, in parts that a stream sends one after the other.
#[derive(Debug)]
pub(crate) struct PacedBody {
    body: Body,
    /// What is left of the last piece of the body.
    rest: Bytes,
    /// The progress of the stream that sends the body; `None` outside the task of a stream.
    progress: Option<Arc<StreamProgress>>,
    /// Open until the stream ends.
    request: OpenRequest,
}

impl PacedBody {
    /// Wraps the body of the answer to `request`. Must be called within the task of the stream that sends the answer,
    /// since the parts of the body report their progress to that task.
    pub(crate) fn new(body: Body, mut request: OpenRequest) -> Self {
        // The library asks an empty body for no part, so `poll_frame` would not note the answer.
        if body.is_end_stream() {
            request.mark_answered();
        }
        // Outside such a task there is no progress to report, and nothing watches it.
        let progress = PROGRESS.try_with(Arc::clone).ok();
        Self { body, rest: Bytes::new(), progress, request }
    }

    /// Returns the next part of the body, of at most [`PART`] bytes, so that the progress of a client shows even
    /// within a long piece of the answer. `rest` is what is left of the last piece.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    // A frame without data, such as trailers, is passed on unchanged.
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let part = self.rest.split_to(self.rest.len().min(PART));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    /// Returns the next part of the answer, and notes when the HTTP library took it.
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        // The library asks for the body only after it has sent the head of the answer. The request is therefore noted
        // as answered, and does not count as cancelled if the client ends it from now on.
        this.request.mark_answered();
        let part = this.poll_part(cx);
        if let Some(progress) = &this.progress {
            // A part that is ready is sent next; while none is, the client waits for the gateway.
            progress.set(part.is_ready().then(Instant::now));
        }
        part
    }

    /// Returns whether nothing of the answer is left.
    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// Returns the size of what is left: the rest of the current piece and the pieces after it.
    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (u64::try_from(self.rest.len()).unwrap_or(u64::MAX), self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use hyper::rt::Executor as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::http::open_requests::OpenRequests;

    fn body(text: &str) -> PacedBody {
        PacedBody::new(Body::from(text.to_owned()), Arc::new(OpenRequests::default()).begin(None))
    }

    #[tokio::test]
    async fn a_long_answer_is_sent_in_parts() {
        let text = "x".repeat(2 * PART + 1);
        let mut sent = body(&text);
        let mut lengths = Vec::new();
        assert_eq!(sent.size_hint().exact(), Some(text.len() as u64));
        while let Some(frame) = sent.frame().await {
            lengths.push(frame.unwrap().into_data().unwrap().len());
            let left = text.len() - lengths.iter().sum::<usize>();
            assert_eq!(sent.size_hint().exact(), Some(left as u64));
            assert_eq!(sent.is_end_stream(), left == 0);
        }
        assert_eq!(lengths, [PART, PART, 1]);
        assert!(body("").is_end_stream());
    }

    /// A body that is not ready at once.
    struct LateBody(oneshot::Receiver<Bytes>);

    impl HttpBody for LateBody {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Pin::new(&mut self.0).poll(cx).map(|bytes| bytes.ok().map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    /// A stream that takes no further part ends, and one whose next part is not ready does not.
    #[tokio::test]
    async fn a_stream_that_is_not_read_ends() {
        let executor = StreamExecutor { limit: Duration::from_millis(20) };
        let (ended, is_ended) = oneshot::channel::<()>();
        executor.execute(async move {
            let _ended = ended;
            let mut sent = body("text");
            sent.frame().await;
            std::future::pending::<()>().await;
        });
        assert!(is_ended.await.is_err());
        let (send, late) = oneshot::channel();
        let (ended, is_ended) = oneshot::channel();
        executor.execute(async move {
            let request = Arc::new(OpenRequests::default()).begin(None);
            PacedBody::new(Body::new(LateBody(late)), request).frame().await;
            let _ = ended.send(());
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        send.send(Bytes::from_static(b"late")).unwrap();
        assert_eq!(is_ended.await, Ok(()));
    }
}
