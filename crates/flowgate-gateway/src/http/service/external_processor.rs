//! Serves the gRPC streams by which Envoy asks the gateway as its *external processor*, one stream for each HTTP
//! request that passes Envoy. Reads the messages about the request, and sends the answers. The routes of `service`
//! call it.
//!
//! If a stream ends with the status 0 (OK), Envoy continues without the external processor. The gateway therefore sends
//! this status only after Envoy has ended its side; every failure ends the stream with another status, or without one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Bytes, Frame};
use prost::Message as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::{GatewayBound, GatewayService, certificate_of, protect_connection};
use crate::chat::ModelRoutes;
use crate::chat::guardrail;
use crate::chat::guardrail::ext_proc::ExtProcStream;
use crate::chat::guardrail::ext_proc::messages::ProcessingRequest;
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;

/// The number of bytes that gRPC writes before each message: one says whether it is compressed, four are its length.
const PREFIX: usize = 5;
/// The bytes that a message may have in addition to a body.
const MAX_MESSAGE_OVERHEAD: usize = 64 << 10;
/// The most answers that wait in the channel until Envoy reads them.
const QUEUE_CAPACITY: usize = 4;

/// Why a stream ends with an error status of gRPC.
#[derive(Debug, Clone, Copy)]
enum StreamFailure {
    /// A message is malformed, or compressed.
    Malformed,
    /// A message is larger than the gateway accepts, so sending it again does not help.
    TooLarge,
    /// There is no room for a message now.
    NoRoom,
    /// A message did not arrive in time, or the gateway is overloaded.
    Unavailable,
}

impl StreamFailure {
    /// Returns the status of gRPC, `INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED` or `UNAVAILABLE`. It is never 0 (`OK`),
    /// which would let Envoy continue. `UNAVAILABLE` alone says that the same message may be accepted later.
    fn status(self) -> &'static str {
        match self {
            Self::Malformed => "3",
            Self::TooLarge => "8",
            Self::NoRoom | Self::Unavailable => "14",
        }
    }

    /// Returns the text that the end of the stream has for the log of Envoy. It has no character that gRPC escapes.
    fn message(self) -> &'static str {
        match self {
            Self::Malformed => {
                "the stream has a message that is malformed or compressed: send the messages of ext_proc v3 without compression"
            }
            Self::TooLarge => {
                "the message is larger than the gateway accepts: send a smaller body, or start the gateway with a larger --max-body"
            }
            Self::NoRoom => {
                "the gateway has no room for the message now: try again in a second, or start the gateway with a larger --max-bodies"
            }
            Self::Unavailable => {
                "the message did not arrive or was not judged in time, or the gateway is overloaded: try again in a second"
            }
        }
    }
}

impl GatewayService {
    /// Serves one stream of Envoy, with the messages about one HTTP request. Returns the error to send if the stream is
    /// refused before a message is read.
    pub(super) async fn process_externally(
        self: &Arc<Self>,
        request: Request,
    ) -> Result<Response, HttpReply> {
        let routes = self.model_routes(guardrail::API)?;
        let (head, body) = request.into_parts();
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !matches!(content_type, Some("application/grpc" | "application/grpc+proto")) {
            let message =
                "this route is for the external processor of Envoy: send `Content-Type: application/grpc`";
            return Err(HttpReply::detail(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let received = routes.receive_for_guardrail(&head.headers, certificate_of(&head.extensions)).await?;
        protect_connection(&head.extensions);
        let (sender, frames) = channel(QUEUE_CAPACITY);
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let limit = service.limits.turn_time;
            let messages =
                GrpcReader { body, bytes: Vec::new(), limit: service.limits.body + MAX_MESSAGE_OVERHEAD };
            let stream = ExtProcStream::new(received);
            let ended = timeout(limit, service.answer_messages(&routes, stream, messages, &sender)).await;
            let mut trailers = HeaderMap::new();
            // The status OK of gRPC.
            let mut status = "0";
            if let Err(failure) = ended.unwrap_or(Err(StreamFailure::Unavailable)) {
                status = failure.status();
                trailers.insert("grpc-message", HeaderValue::from_static(failure.message()));
            }
            trailers.insert("grpc-status", HeaderValue::from_static(status));
            // Envoy may have ended the stream.
            let _ = sender.send(Frame::trailers(trailers)).await;
        });
        let mut response = Response::new(Body::new(GrpcAnswers(frames)));
        let content_type = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// Answers the messages about one HTTP request until Envoy ends its side of the stream. `messages` reads them,
    /// `stream` judges each and remembers what the earlier ones said, and `answers` receives the answers for Envoy.
    ///
    /// # Errors
    /// If a message cannot be read or answered.
    async fn answer_messages(
        &self,
        routes: &Arc<ModelRoutes>,
        mut stream: ExtProcStream,
        mut messages: GrpcReader,
        answers: &Sender<Frame<Bytes>>,
    ) -> Result<(), StreamFailure> {
        while let Some((message, held)) = messages.next(self).await? {
            let request =
                ProcessingRequest::decode(message.as_slice()).map_err(|_| StreamFailure::Malformed)?;
            // Only the decoded form is needed from here on.
            drop(message);
            let (client, routes) = (stream.client_name().to_owned(), Arc::clone(routes));
            // The task owns the stream while it runs, and gives it back.
            // The default presence is that of a client that never disconnects: a judgement that has begun is completed.
            let turn = async move {
                let answer = stream.process(&routes, request, &ClientPresence::default()).await;
                (stream, answer)
            };
            let done = self.turns.run(&client, Box::pin(turn)).await;
            let (continued, answer) = done.map_err(|_| StreamFailure::Unavailable)?;
            stream = continued;
            // The memory of the message was reserved until it was handled.
            drop(held);
            let encoded = answer.encode_to_vec();
            let length = u32::try_from(encoded.len()).map_err(|_| StreamFailure::TooLarge)?;
            // The prefix of gRPC: 0 for a message that is not compressed, and the length.
            let framed = [&[0], length.to_be_bytes().as_slice(), &encoded].concat();
            if answers.send(Frame::data(framed.into())).await.is_err() {
                // Envoy no longer waits.
                return Err(StreamFailure::Unavailable);
            }
        }
        Ok(())
    }
}

/// Reads the messages of a gRPC stream.
struct GrpcReader {
    body: Body,
    /// The bytes that have arrived and belong to no message that was returned.
    bytes: Vec<u8>,
    /// The most bytes of a message.
    limit: usize,
}

impl GrpcReader {
    /// Returns the next message, with permits for its bytes, of which all bodies share a limited number; `None` at the
    /// end of the stream. A message may take as long to arrive as a body, once it has begun.
    ///
    /// # Errors
    /// If the message is malformed, too large, does not arrive in time, or there is no room for it now.
    async fn next(
        &mut self,
        service: &GatewayService,
    ) -> Result<Option<(Vec<u8>, OwnedSemaphorePermit)>, StreamFailure> {
        // No time limit here: between two messages, Envoy asks the model.
        if self.bytes.is_empty() && !self.read().await? {
            return Ok(None);
        }
        let whole = timeout(service.limits.body_time, self.read_message(service)).await;
        whole.unwrap_or(Err(StreamFailure::Unavailable)).map(Some)
    }

    /// Reads until a whole message has arrived, and returns it with permits for its bytes, of which all bodies share a
    /// limited number. gRPC puts a prefix before each message: a byte that says whether it is compressed, and its
    /// length.
    ///
    /// # Errors
    /// If the message is compressed or incomplete, is too large, or there is no room for it now.
    async fn read_message(
        &mut self,
        service: &GatewayService,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), StreamFailure> {
        // The prefix.
        while self.bytes.len() < PREFIX {
            self.read_more().await?;
        }
        let Some((&[compressed, length @ ..], _)) = self.bytes.split_first_chunk::<PREFIX>() else {
            return Err(StreamFailure::Malformed);
        };
        if compressed != 0 {
            return Err(StreamFailure::Malformed);
        }
        let length = u32::from_be_bytes(length);
        let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(PREFIX);
        if end > self.limit {
            service.note_bound(&GatewayBound {
                what: "bytes of one body",
                effect: "a stream of Envoy was ended with the status 8 of gRPC",
                setting: Some("--max-body"),
                advice: None,
                most: service.limits.body,
            });
            return Err(StreamFailure::TooLarge);
        }
        // The permits are taken before the bytes of the message are read.
        let held = Arc::clone(&service.bodies).try_acquire_many_owned(length);
        let held = held.map_err(|_| {
            service.note_bound(&GatewayBound {
                what: "bytes of all bodies that are read or evaluated",
                effect: "a stream of Envoy was ended with the status 14 of gRPC",
                setting: Some("--max-bodies"),
                advice: None,
                most: service.limits.bodies,
            });
            StreamFailure::NoRoom
        })?;
        while self.bytes.len() < end {
            self.read_more().await?;
        }
        // Bytes of the next message may have arrived with this one, and stay.
        let rest = self.bytes.split_off(end);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.drain(..PREFIX);
        Ok((message, held))
    }

    /// Reads more of a message that has begun. The end of the stream is an error here.
    async fn read_more(&mut self) -> Result<(), StreamFailure> {
        if self.read().await? { Ok(()) } else { Err(StreamFailure::Malformed) }
    }

    /// Reads what arrives next. Returns false at the end of the stream. Fails if the stream breaks off.
    async fn read(&mut self) -> Result<bool, StreamFailure> {
        loop {
            match self.body.frame().await {
                None => return Ok(false),
                Some(Err(_)) => return Err(StreamFailure::Malformed),
                Some(Ok(frame)) => {
                    // Trailers are ignored.
                    let Ok(data) = frame.into_data() else { continue };
                    if !data.is_empty() {
                        self.bytes.extend_from_slice(&data);
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// The body of the response: the frames from the channel. Without trailers, the stream has failed.
struct GrpcAnswers(Receiver<Frame<Bytes>>);

impl HttpBody for GrpcAnswers {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    /// Returns the next frame from the channel; the end of the stream after the sender is dropped.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}
