//! Answers that are sent while they come into being.
//!
//! Only text goes out early that will stand in the answer as it is, whatever follows: the guard says which. Calls go out
//! when all of the message has been judged. A client that reads slowly slows its own turn; one that goes away ends it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use flowgate_lm::chat::Completion;
use flowgate_lm::sse::Event;
use flowgate_lm::wire::{Api, Head, Writer};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{CONVERSATION, Gone};
use crate::reply::Reply;
use crate::status::Waits;

/// What goes from a turn to the client.
#[derive(Debug)]
pub(crate) enum Part {
    /// The answer begins, with these headers.
    Begin(Vec<(&'static str, String)>),
    Bytes(Vec<u8>),
}

const EVENTS: &str = "text/event-stream; charset=utf-8";

/// Parts that may wait for a client to take them.
const WAITING: usize = 16;

/// A way for an answer: where the turn writes, and where the client reads.
pub(crate) fn way() -> (Sender<Part>, Receiver<Part>) {
    channel(WAITING)
}

/// The answer to one request, as far as it has been sent.
pub(crate) struct Outgoing {
    api: Api,
    conversation: String,
    /// More headers of the answer.
    headers: Vec<(&'static str, String)>,
    writer: Option<Writer>,
    parts: Sender<Part>,
    begun: bool,
    /// What was sent of the text.
    sent: String,
    /// Whether nobody reads any more.
    pub(crate) is_lost: bool,
}

impl Outgoing {
    pub(crate) fn new(
        api: Api,
        head: Head<'_>,
        usage: bool,
        conversation: &str,
        parts: Sender<Part>,
    ) -> Self {
        let (writer, conversation) = (Some(Writer::new(api, head, usage)), conversation.to_owned());
        let headers = Vec::new();
        Self { api, conversation, headers, writer, parts, begun: false, sent: String::new(), is_lost: false }
    }

    /// The answer has this header as well, if it has not begun.
    pub(crate) fn header(&mut self, name: &'static str, value: String) {
        self.headers.push((name, value));
    }

    /// Whether the client has been sent something: then there is no other answer any more.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// What was sent of the text.
    pub(crate) fn sent(&self) -> &str {
        &self.sent
    }

    /// Sends more text.
    pub(crate) fn text(&mut self, piece: &str) {
        self.sent.push_str(piece);
        let events = self.writer.as_mut().map(|writer| writer.text(piece)).unwrap_or_default();
        self.send(&events);
    }

    /// Sends what is left of the answer; or returns all of it, if nothing has been sent.
    pub(crate) fn finish(&mut self, completion: &Completion, waits: Option<&Waits>) -> Option<Reply> {
        let mut events = self.writer.take().map(|writer| writer.finish(completion)).unwrap_or_default();
        waits.into_iter().for_each(|waits| waits.in_events(&mut events));
        if self.begun {
            self.send(&events);
            return None;
        }
        let reply = Reply::document(EVENTS, encoded(&events)).named(CONVERSATION, &self.conversation);
        let reply = waits.into_iter().fold(reply, |reply, waits| waits.of_reply(reply));
        Some(self.headers.iter().fold(reply, |reply, (name, value)| reply.named(name, value)))
    }

    /// Breaks the answer off with an error.
    pub(crate) fn fail(&mut self, status: StatusCode, message: &str) {
        self.send(&[broken_off(self.api, status, message)]);
    }

    fn send(&mut self, events: &[Event]) {
        if events.is_empty() || self.is_lost {
            return;
        }
        if !std::mem::replace(&mut self.begun, true) {
            let mut headers = vec![(CONVERSATION, self.conversation.clone())];
            headers.append(&mut self.headers);
            self.put(Part::Begin(headers));
        }
        self.put(Part::Bytes(encoded(events)));
    }

    fn put(&mut self, part: Part) {
        self.is_lost |= self.parts.blocking_send(part).is_err();
    }
}

fn encoded(events: &[Event]) -> Vec<u8> {
    events.iter().map(Event::encode).collect::<Vec<_>>().concat().into_bytes()
}

/// What ends a stream whose answer cannot go on.
pub(crate) fn broken_off(api: Api, status: StatusCode, message: &str) -> Event {
    let mut body = api.encode_error(status.as_u16(), message);
    let name = if api == Api::ChatCompletions { "" } else { "error" };
    if let (Api::Responses, Some(body)) = (api, body.as_object_mut()) {
        body.insert("type".to_owned(), Value::from("error"));
    }
    Event::new(name, body.to_string())
}

/// The response to a client that is sent parts as they come; when it is dropped, the turn is told.
pub(crate) fn response(headers: &[(&'static str, String)], parts: Receiver<Part>, gone: Gone) -> Response {
    let mut response = events(parts, gone);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

/// A response of events, which come as they happen; when it is dropped, whoever sends them is told.
pub(crate) fn events(parts: Receiver<Part>, gone: Gone) -> Response {
    let mut response = Response::new(Body::new(Incoming { parts, _gone: gone }));
    let headers = response.headers_mut();
    let known = |text: &'static str| HeaderValue::from_static(text);
    headers.insert(header::CONTENT_TYPE, known(EVENTS));
    headers.insert(header::CACHE_CONTROL, known("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, known("nosniff"));
    response
}

struct Incoming {
    parts: Receiver<Part>,
    _gone: Gone,
}

impl HttpBody for Incoming {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            return match self.parts.poll_recv(context) {
                Poll::Ready(Some(Part::Bytes(bytes))) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
                Poll::Ready(Some(Part::Begin(_))) => continue,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}
