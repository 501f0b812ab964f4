//! A double of a model's server: it answers Chat Completions requests with a short text, streamed or not, at once or at
//! a given pace.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::time::Sleep;

/// The number of answers so far, which makes each answer unique.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// Serves on a free port; each answer begins after `delay`, and each further chunk of a stream after `chunk_delay`.
pub(crate) async fn serve(delay: Duration, chunk_delay: Duration) {
    let router = Router::new().fallback(move |body| answer(delay, chunk_delay, body));
    crate::proxy::listen(router.layer(axum::extract::DefaultBodyLimit::max(64 << 20))).await;
}

/// Answers a request with a constant text that contains a unique number, in the form that the request chooses.
async fn answer(delay: Duration, chunk_delay: Duration, body: Bytes) -> Response {
    tokio::time::sleep(delay).await;
    let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
    let words = [
        "Noted as item ",
        &number.to_string(),
        ". The meeting stays ",
        "on Tuesday at ten, ",
        "and the notes of last week ",
        "are in the shared folder ",
        "with the others.",
    ]
    .map(str::to_owned);
    if is_streamed(&body) {
        let events = events_of(number, &words);
        let body = match chunk_delay.is_zero() {
            true => Body::from(events.concat()),
            false => Body::new(PacedEvents::new(events, chunk_delay)),
        };
        return ([(CONTENT_TYPE, "text/event-stream")], body).into_response();
    }
    let text = words.concat();
    let body = format!(
        r#"{{"id":"c{number}","object":"chat.completion","created":0,"model":"double","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}}}"#
    );
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// A body whose events are sent one by one, with a pause before each but the first.
struct PacedEvents {
    events: std::vec::IntoIter<String>,
    pause: Duration,
    until: Pin<Box<Sleep>>,
}

impl PacedEvents {
    fn new(events: Vec<String>, pause: Duration) -> Self {
        Self { events: events.into_iter(), pause, until: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }
}

impl hyper::body::Body for PacedEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let paced = self.get_mut();
        if paced.events.as_slice().is_empty() {
            return Poll::Ready(None);
        }
        std::task::ready!(paced.until.as_mut().poll(context));
        paced.until.set(tokio::time::sleep(paced.pause));
        Poll::Ready(paced.events.next().map(|event| Ok(Frame::data(Bytes::from(event)))))
    }
}

/// Returns the events of a stream; the last ones belong together.
fn events_of(number: u64, words: &[String]) -> Vec<String> {
    let head = format!(r#"{{"id":"c{number}","object":"chat.completion.chunk","created":0,"model":"double""#);
    let mut events: Vec<String> = words
        .iter()
        .map(|word| {
            format!(
                "data: {head},\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"{word}\"}},\"finish_reason\":null}}]}}\n\n"
            )
        })
        .collect();
    events.push(format!(
        "data: {head},\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n\
         data: {head},\"choices\":[],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}}}\n\ndata: [DONE]\n\n"
    ));
    events
}

/// Returns whether a request asks for a stream. Only the beginning and the end of the body are searched; no message
/// contains the searched text.
fn is_streamed(body: &[u8]) -> bool {
    let near = |bytes: &[u8]| {
        [&b"\"stream\":true"[..], b"\"stream\": true"]
            .iter()
            .any(|sign| bytes.windows(sign.len()).any(|window| window == *sign))
    };
    near(&body[..body.len().min(256)]) || near(body)
}
