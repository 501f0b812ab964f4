//! A double of a model's server: it answers Chat Completions requests with a short text at once, streamed or not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// The number of answers so far, which makes each answer unique.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// Serves on a free port; each answer begins after `delay`.
pub(crate) async fn serve(delay: Duration) {
    let router = Router::new().fallback(move |body| answer(delay, body));
    crate::proxy::listen(router.layer(axum::extract::DefaultBodyLimit::max(64 << 20))).await;
}

async fn answer(delay: Duration, body: Bytes) -> Response {
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
        return ([(CONTENT_TYPE, "text/event-stream")], stream(number, &words)).into_response();
    }
    let text = words.concat();
    let body = format!(
        r#"{{"id":"c{number}","object":"chat.completion","created":0,"model":"double","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}}}"#
    );
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

fn stream(number: u64, words: &[String]) -> String {
    let head = format!(r#"{{"id":"c{number}","object":"chat.completion.chunk","created":0,"model":"double""#);
    let mut events: String = words
        .iter()
        .map(|word| {
            format!(
                "data: {head},\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"{word}\"}},\"finish_reason\":null}}]}}\n\n"
            )
        })
        .collect();
    events.push_str(&format!(
        "data: {head},\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n"
    ));
    events.push_str(&format!(
        "data: {head},\"choices\":[],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}}}\n\ndata: [DONE]\n\n"
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
