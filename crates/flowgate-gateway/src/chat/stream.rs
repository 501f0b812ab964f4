//! Streams the answers of the model routes to clients. `answer` writes an answer to an [`OutgoingReply`] if the client
//! asks for a stream, and `http` builds the response that reads its parts. The MCP proxy and the event stream of
//! questions send [`ReplyPart`]s as well.
//!
//! The guard decides which text is released early: only text that will be in the final answer unchanged. Calls are
//! released after the whole message was judged. A client that reads slowly delays its own turn by back-pressure; a
//! client that disconnects ends its turn.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use flowgate_lm::chat::Completion;
use flowgate_lm::sse::SseEvent;
use flowgate_lm::wire::{Api, ResponseHead, ResponseWriter};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::headers::CONVERSATION;
use crate::http::client_presence::DisconnectGuard;
use crate::http::reply::HttpReply;
use crate::http::waiting_status::WaitingStatus;

/// A part of an answer, on its way from the turn to the HTTP response.
#[derive(Debug)]
pub(crate) enum ReplyPart {
    /// The start of the answer, with these headers.
    Begin(Vec<(&'static str, String)>),
    /// Some encoded events.
    Bytes(Vec<u8>),
}

/// The content type of streamed answers.
const EVENTS: &str = "text/event-stream; charset=utf-8";

/// The number of parts that may wait in the channel until the client reads them.
const QUEUE_CAPACITY: usize = 16;

/// Creates the channel of an answer, from the turn to the response.
pub(crate) fn reply_channel() -> (Sender<ReplyPart>, Receiver<ReplyPart>) {
    channel(QUEUE_CAPACITY)
}

/// The streamed answer to one request, while it is being sent.
pub(crate) struct OutgoingReply {
    api: Api,
    conversation: String,
    /// Additional headers of the answer.
    headers: Vec<(&'static str, String)>,
    /// The encoder of events in the form of the API; `None` after [`finish`](Self::finish).
    writer: Option<ResponseWriter>,
    parts: Sender<ReplyPart>,
    /// The parts that the channel has not taken yet.
    pending: VecDeque<ReplyPart>,
    /// Whether anything was sent or is pending.
    begun: bool,
    /// Whether no text is sent before the end of the answer.
    holds_text: bool,
    /// The text that was sent, or is pending.
    sent: String,
    /// Whether the client has disconnected.
    pub(crate) is_lost: bool,
}

impl OutgoingReply {
    /// Creates an answer in the form of `api`, of which nothing is sent yet. `head` is the metadata of the answer, and
    /// `usage` says whether its last event reports the used tokens. `conversation` is the client's name of the
    /// conversation, which becomes a header. `parts` is the channel from which the HTTP response reads.
    pub(crate) fn new(
        api: Api,
        head: ResponseHead<'_>,
        usage: bool,
        conversation: &str,
        parts: Sender<ReplyPart>,
    ) -> Self {
        let (writer, conversation) = (Some(ResponseWriter::new(api, head, usage)), conversation.to_owned());
        let headers = Vec::new();
        Self {
            api,
            conversation,
            headers,
            writer,
            parts,
            pending: VecDeque::new(),
            begun: false,
            holds_text: false,
            sent: String::new(),
            is_lost: false,
        }
    }

    /// Holds all text back until the end of the answer. An answer with citations needs this: the citations are judged
    /// with the whole text, and they divide the text into blocks.
    pub(crate) fn hold_text(&mut self) {
        self.holds_text = true;
    }

    /// Adds a header to the answer; has no effect after the answer has begun.
    pub(crate) fn header(&mut self, name: &'static str, value: String) {
        self.headers.push((name, value));
    }

    /// Returns whether anything of the answer was sent or waits to be sent, after which no other reply is possible.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns the text that was sent or is pending.
    pub(crate) fn sent_text(&self) -> &str {
        &self.sent
    }

    /// Sends a further piece of the answer's text without waiting, unless the text is [held back](Self::hold_text).
    /// Parts that do not fit into the channel remain pending until [`flush`](Self::flush).
    pub(crate) fn text(&mut self, piece: &str) {
        if self.holds_text {
            return;
        }
        self.sent.push_str(piece);
        let events = self.writer.as_mut().map(|writer| writer.text(piece)).unwrap_or_default();
        self.send(&events);
    }

    /// Ends the answer: sends the rest of `completion` and, if the turn waits for a person, the status `waits`. Returns
    /// `None` if parts of the answer were sent before, and the rest now. If nothing was sent before, sends nothing and
    /// returns the whole answer as one reply, which can also have the status in its headers.
    pub(crate) async fn finish(
        &mut self,
        completion: &Completion,
        waits: Option<&WaitingStatus>,
    ) -> Option<HttpReply> {
        // The encoder knows which text it has encoded already, and encodes the rest.
        let mut events = self.writer.take().map(|writer| writer.finish(completion)).unwrap_or_default();
        waits.into_iter().for_each(|waits| waits.add_to_events(&mut events));
        if self.begun {
            self.send(&events);
            self.flush().await;
            return None;
        }
        let reply =
            HttpReply::document(EVENTS, encoded(&events)).with_header(CONVERSATION, &self.conversation);
        let reply = waits.into_iter().fold(reply, |reply, waits| waits.add_to_reply(reply));
        Some(self.headers.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value)))
    }

    /// Ends the answer with an event that reports an error.
    pub(crate) async fn fail(&mut self, status: StatusCode, message: &str) {
        self.send(&[stream_error_event(self.api, status, message)]);
        self.flush().await;
    }

    /// Sends the pending parts, and waits until the channel has taken them: a client that reads slowly delays its
    /// turn.
    pub(crate) async fn flush(&mut self) {
        while let Some(part) = self.pending.pop_front() {
            if self.parts.send(part).await.is_err() {
                // Also drops the parts that are still pending.
                self.lose_client();
            }
        }
    }

    /// Sends events without waiting; without events, or if the client has disconnected, does nothing. Before the first
    /// events, sends the beginning of the answer with its headers.
    fn send(&mut self, events: &[SseEvent]) {
        if events.is_empty() || self.is_lost {
            return;
        }
        // The first events: from now on, no header can be added.
        if !std::mem::replace(&mut self.begun, true) {
            let mut headers = vec![(CONVERSATION, self.conversation.clone())];
            headers.append(&mut self.headers);
            self.send_part(ReplyPart::Begin(headers));
        }
        self.send_part(ReplyPart::Bytes(encoded(events)));
    }

    /// Sends a part without waiting, or queues it after the pending parts, so that the order is preserved.
    fn send_part(&mut self, part: ReplyPart) {
        if !self.pending.is_empty() {
            self.pending.push_back(part);
            return;
        }
        match self.parts.try_send(part) {
            Ok(()) => {}
            Err(TrySendError::Full(part)) => self.pending.push_back(part),
            Err(TrySendError::Closed(_)) => self.lose_client(),
        }
    }

    /// Notes that the client has disconnected, and drops what cannot be sent any more.
    fn lose_client(&mut self) {
        self.is_lost = true;
        self.pending.clear();
    }
}

/// Returns the bytes of events, one after the other.
fn encoded(events: &[SseEvent]) -> Vec<u8> {
    events.iter().map(SseEvent::encode).collect::<Vec<_>>().concat().into_bytes()
}

/// Builds the event that ends a stream whose turn has failed, in the form of an API.
pub(crate) fn stream_error_event(api: Api, status: StatusCode, message: &str) -> SseEvent {
    api.encode_error_event(status.as_u16(), message)
}

/// Builds a response with these headers that streams parts as they come. The response owns `disconnect_guard`. When the
/// client disconnects, the response and with it the guard are dropped, and the guard signals this to the turn.
pub(crate) fn response(
    headers: &[(&'static str, String)],
    parts: Receiver<ReplyPart>,
    disconnect_guard: DisconnectGuard,
) -> Response {
    let mut response = events(parts, disconnect_guard);
    for (name, value) in headers {
        // A value that HTTP cannot express is left out: the answer is complete without it.
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

/// Builds a response that streams events as they come. The response owns `disconnect_guard`. When the client
/// disconnects, the response and with it the guard are dropped, and the guard signals this to the sender of the events.
pub(crate) fn events(parts: Receiver<ReplyPart>, disconnect_guard: DisconnectGuard) -> Response {
    let mut response = Response::new(Body::new(StreamedBody { parts, _disconnect_guard: disconnect_guard }));
    let headers = response.headers_mut();
    let constant = |text: &'static str| HeaderValue::from_static(text);
    headers.insert(header::CONTENT_TYPE, constant(EVENTS));
    headers.insert(header::CACHE_CONTROL, constant("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, constant("nosniff"));
    response
}

/// The body of a streamed response, which reads its parts from the channel.
struct StreamedBody {
    parts: Receiver<ReplyPart>,
    /// Signals on drop that the client has disconnected.
    _disconnect_guard: DisconnectGuard,
}

impl HttpBody for StreamedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    /// Returns the bytes of the next part, or the end of the body when the sender is dropped. Skips a part that begins
    /// an answer: it has only headers, which were sent with the response.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            return match self.parts.poll_recv(context) {
                Poll::Ready(Some(ReplyPart::Bytes(bytes))) => {
                    Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
                }
                Poll::Ready(Some(ReplyPart::Begin(_))) => continue,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}
