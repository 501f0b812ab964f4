//! Sends a response that takes long to compute, in one piece or as a stream, and ends the computation when the client
//! disconnects or its time is over. `agent_requests` calls [`GatewayService::respond`].

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use flowgate_lm::sse::SseEvent;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use super::{GatewayBound, GatewayService};
use crate::chat::stream::{self, ReplyPart};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::workers::WorkError;
use crate::limits::ServerLimits;
use crate::mcp_proxy::pending_reply;

/// The formats of a failed turn: in place of an answer, and at the end of a stream that has begun.
pub(super) struct FailureFormats<R, E> {
    /// Formats a reply in place of an answer.
    pub(super) reply: R,
    /// Formats the event that ends a stream.
    pub(super) event: E,
}

/// A function that formats a failure, given its status and message.
type FailureFormat<T> = fn(StatusCode, &str) -> T;

/// Returns the formats in which the route for MCP servers reports a failure. The event that ends a stream contains the
/// message only, since a stream has no status any more.
pub(super) fn for_mcp_proxy() -> FailureFormats<FailureFormat<HttpReply>, FailureFormat<SseEvent>> {
    FailureFormats {
        reply: HttpReply::detail,
        event: |_, message| pending_reply::stream_error_event(message),
    }
}

/// The message for a turn that ended by a bug of the gateway.
const UNEXPECTED: &str = "the turn failed because of a bug in the gateway: report it; the conversation continues from its last stored turn";

/// The bound on the responses of a kind that are computed at the same time. [`Limit`](crate::log::Limit) describes its
/// fields; `most` takes the bound from the limits of the server.
pub(super) struct ResponseBound {
    what: &'static str,
    setting: Option<&'static str>,
    advice: Option<&'static str>,
    most: fn(&ServerLimits) -> usize,
}

/// The bound on turns.
pub(super) const TURNS: ResponseBound = ResponseBound {
    what: "turns of agents at the same time",
    setting: Some("--max-turns"),
    advice: None,
    most: |limits| limits.turns,
};
/// The bound on messages to MCP servers.
pub(super) const EXCHANGES: ResponseBound = ResponseBound {
    what: "messages to MCP servers at the same time",
    setting: None,
    advice: None,
    most: |limits| limits.exchanges,
};
/// The bound on streams of messages of MCP servers.
pub(super) const STREAMS: ResponseBound = ResponseBound {
    what: "streams of MCP servers at the same time",
    setting: None,
    advice: Some("end streams that are not read"),
    most: |limits| limits.streams,
};

impl GatewayService {
    /// Returns the response that `answer` computes: its result or, once it has sent the first part, a stream of the
    /// parts that it sends. Cancels the [`ClientPresence`] that `answer` receives when the client disconnects or the
    /// time for a turn is over. `bound` is reported if too many responses of the kind are computed at the same time,
    /// and `failure_formats` says how failures are reported.
    pub(super) async fn respond<A>(
        self: &Arc<Self>,
        bound: &ResponseBound,
        failure_formats: FailureFormats<
            impl Fn(StatusCode, &str) -> HttpReply,
            impl Fn(StatusCode, &str) -> SseEvent + Send + 'static,
        >,
        answer: impl FnOnce(ClientPresence, Sender<ReplyPart>) -> A,
    ) -> Result<Response, HttpReply>
    where
        A: Future<Output = Result<Option<HttpReply>, WorkError>> + Send + 'static,
    {
        let presence = ClientPresence::default();
        // Dropped when the client disconnects or the time is over: then the turn ends as soon as it can.
        let disconnect_guard = presence.disconnect_on_drop();
        let (sender, mut parts) = stream::reply_channel();
        let turn_guard = presence.disconnect_on_drop();
        let error_sender = sender.clone();
        let turn_time = self.limits.turn_time;
        let answer = answer(presence, sender);
        let mut work = Box::pin(async move {
            // Dropped with this future, so that the turn ends when its time is over, whether or not the stream is read.
            let _turn_guard = turn_guard;
            timeout(turn_time, answer).await
        });
        let FailureFormats { reply, event } = failure_formats;
        let outcome = tokio::select! {
            biased;
            part = parts.recv() => match part {
                Some(ReplyPart::Begin(headers)) => {
                    let response = stream::response(&headers, parts, disconnect_guard);
                    // The turn continues while the client reads: the body of the response owns `disconnect_guard` now.
                    tokio::spawn(async move {
                        // `Err` would say that the time of the turn is over: the turn reports that in its own last
                        // event.
                        if let Ok(Err(WorkError::Broken)) = work.await {
                            let failure = event(StatusCode::INTERNAL_SERVER_ERROR, UNEXPECTED).encode();
                            // The client may have disconnected: then nobody reads the event.
                            let _ = error_sender.send(ReplyPart::Bytes(failure.into_bytes())).await;
                        }
                    });
                    return Ok(response);
                }
                // A stream begins with `Begin`. Without it, there is no stream, and the turn answers in one piece.
                _ => work.as_mut().await,
            },
            outcome = work.as_mut() => outcome,
        };
        // The outer result says whether the time limit was kept, and the inner one whether the task could end its work.
        match outcome {
            Ok(Ok(Some(reply))) => Ok(reply.into_response()),
            // The turn sent its whole stream and ended before its first part was received here.
            Ok(Ok(None)) => match parts.try_recv() {
                Ok(ReplyPart::Begin(headers)) => Ok(stream::response(&headers, parts, disconnect_guard)),
                _ => Err(reply(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the turn ended without a reply because of a bug in the gateway: report it, with the cause in the log of the gateway",
                )),
            },
            Ok(Err(WorkError::Busy)) => {
                let message = "the gateway is overloaded: try again in a second";
                Err(self.refuse_busy(bound, reply(StatusCode::TOO_MANY_REQUESTS, message)))
            }
            Ok(Err(WorkError::Broken)) => Err(reply(StatusCode::INTERNAL_SERVER_ERROR, UNEXPECTED)),
            // The time limit was exceeded.
            Err(_) => {
                let message = "the turn exceeded the time limit of this gateway: ask for less in one turn";
                Err(self.refuse_late(reply(StatusCode::GATEWAY_TIMEOUT, message)))
            }
        }
    }

    /// Reports that too many responses of the kind of `bound` are computed, and returns `reply`, marked as reported.
    fn refuse_busy(&self, bound: &ResponseBound, reply: HttpReply) -> HttpReply {
        let bound = GatewayBound {
            what: bound.what,
            effect: "a request was refused with 429",
            setting: bound.setting,
            advice: bound.advice,
            most: (bound.most)(&self.limits),
        };
        self.refuse(&bound, reply)
    }

    /// Reports that a turn exceeded its time limit, and returns `reply`, marked as reported.
    fn refuse_late(&self, reply: HttpReply) -> HttpReply {
        let bound = GatewayBound {
            what: "seconds for a turn of an agent",
            effect: "the turn was ended with 504",
            setting: Some("--turn-time"),
            advice: None,
            most: usize::try_from(self.limits.turn_time.as_secs()).unwrap_or(usize::MAX),
        };
        self.refuse(&bound, reply)
    }
}

#[cfg(test)]
mod tests {
    use flowgate::policy::Dialect;
    use flowgate_lm::wire::Api;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::chat::error_reply::error_reply;
    use crate::http::access::AccessControl;
    use crate::limits::ServerLimits;
    use crate::log::OperatorLog;
    use crate::predicates::PredicateSources;

    /// Returns the status and the body that a client receives from a turn that sends `parts` and then panics.
    async fn respond_and_panic(api: Api, sent: Vec<ReplyPart>) -> (u16, String) {
        let (access, limits) = (AccessControl::Local, ServerLimits::default());
        let service = GatewayService::open(
            Dialect::Flowgate,
            access,
            PredicateSources::default(),
            (None, None),
            limits,
            OperatorLog::default(),
        )
        .await;
        let service = Arc::new(service.unwrap());
        let broken = FailureFormats {
            reply: move |status, message: &str| error_reply(api, status, message),
            event: move |status, message: &str| stream::stream_error_event(api, status, message),
        };
        let (reads, is_read) = tokio::sync::oneshot::channel::<()>();
        // If anything was sent, the turn panics after the answer has begun.
        let reads = (!sent.is_empty()).then_some(reads);
        let turns = Arc::clone(&service);
        let answer = move |_: ClientPresence, parts: Sender<ReplyPart>| async move {
            let turn = async move {
                for part in sent {
                    parts.send(part).await.unwrap();
                }
                let _ = is_read.await;
                panic!("a bug");
            };
            turns.turns.run("a", turn).await
        };
        let response = service.respond(&TURNS, broken, answer).await.unwrap_or_else(HttpReply::into_response);
        drop(reads);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_broken_turn_reports_its_failure() {
        let begun = || vec![ReplyPart::Begin(Vec::new()), ReplyPart::Bytes(b"data: half\n\n".to_vec())];
        for (api, name) in [
            (Api::ChatCompletions, ""),
            (Api::Responses, "event: error\n"),
            (Api::Messages, "event: error\n"),
            (Api::GenerateContent, ""),
        ] {
            let (status, body) = respond_and_panic(api, begun()).await;
            assert_eq!(status, 200, "{api:?}");
            let rest = body.strip_prefix("data: half\n\n").unwrap();
            assert!(rest.starts_with(&format!("{name}data: {{")) && rest.ends_with("\n\n"), "{api:?} {rest}");
            assert!(rest.contains(UNEXPECTED), "{api:?} {rest}");
            let (status, body) = respond_and_panic(api, Vec::new()).await;
            assert_eq!(status, 500, "{api:?}");
            assert!(body.contains(UNEXPECTED), "{api:?} {body}");
        }
    }
}
