//! Responses that are computed on a blocking thread: in one piece, or as a stream.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use flowgate_lm::sse::Event;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use super::{Bound, Service};
use crate::model_routes::Waiting;
use crate::model_routes::servers::exchange;
use crate::model_routes::stream::{self, Part};
use crate::reply::Reply;
use crate::workers::{Refused, Workers};

/// The formats of a failed turn: in place of an answer, and at the end of a stream that has begun.
pub(super) struct Broken<R, E> {
    pub(super) reply: R,
    pub(super) event: E,
}

/// Formats a status and a message.
type Said<T> = fn(StatusCode, &str) -> T;

/// Returns the formats of the route for MCP servers.
pub(super) fn of_server() -> Broken<Said<Reply>, Said<Event>> {
    Broken { reply: Reply::detail, event: |_, message| exchange::broken_off(message) }
}

/// The message for a turn that ended by a bug of the gateway.
const UNEXPECTED: &str =
    "the turn ended unexpectedly, and the conversation begins anew; this is a mistake of the gateway";

impl Service {
    /// Has one of the pools of workers compute a response.
    pub(super) async fn talk(
        self: &Arc<Self>,
        at: fn(&Self) -> &Workers,
        broken: Broken<
            impl Fn(StatusCode, &str) -> Reply,
            impl Fn(StatusCode, &str) -> Event + Send + 'static,
        >,
        answer: impl FnOnce(&Waiting, Sender<Part>) -> Option<Reply> + Send + 'static,
    ) -> Result<Response, Reply> {
        let waiting = Waiting::default();
        // Dropped when the client disconnects or the time is over: then the turn ends as soon as it can.
        let gone = waiting.until_dropped();
        let (sender, mut parts) = stream::way();
        let service = Arc::clone(self);
        let (ends, rest) = (waiting.until_dropped(), sender.clone());
        let mut work = Box::pin(async move {
            // The turn ends when its time is over, whether or not the stream is read.
            let _ends = ends;
            let work = at(&service).run(move || answer(&waiting, sender));
            timeout(service.limits.turn_time, work).await
        });
        let Broken { reply, event } = broken;
        let done = tokio::select! {
            biased;
            part = parts.recv() => match part {
                Some(Part::Begin(headers)) => {
                    let response = stream::response(&headers, parts, gone);
                    // The turn continues for the reader; the guard of the wait was moved into the body.
                    tokio::spawn(async move {
                        // A turn that takes too long reports that itself.
                        if let Ok(Err(Refused::Broken)) = work.await {
                            let event = event(StatusCode::INTERNAL_SERVER_ERROR, UNEXPECTED).encode();
                            let _ = rest.send(Part::Bytes(event.into_bytes())).await;
                        }
                    });
                    return Ok(response);
                }
                _ => work.as_mut().await,
            },
            done = work.as_mut() => done,
        };
        match done {
            Ok(Ok(Some(reply))) => Ok(reply.into_response()),
            // The stream began after the last poll.
            Ok(Ok(None)) => match parts.try_recv() {
                Ok(Part::Begin(headers)) => Ok(stream::response(&headers, parts, gone)),
                _ => Err(reply(StatusCode::INTERNAL_SERVER_ERROR, "the turn ended without an answer")),
            },
            Ok(Err(Refused::Busy)) => {
                let bound = Bound {
                    what: "turns of agents, or streams of servers, at the same time",
                    effect: "a request was refused with 503",
                    setting: "--max-turns, or --queue",
                    most: self.limits.turns,
                };
                let message = "the gateway has too much to do: try again in a second";
                Err(self.refuse(&bound, reply(StatusCode::SERVICE_UNAVAILABLE, message)))
            }
            Ok(Err(Refused::Broken)) => Err(reply(StatusCode::INTERNAL_SERVER_ERROR, UNEXPECTED)),
            Err(_) => {
                let bound = Bound {
                    what: "seconds for a turn of an agent",
                    effect: "the turn was ended, and its client told with 504",
                    setting: "--turn-time",
                    most: usize::try_from(self.limits.turn_time.as_secs()).unwrap_or(usize::MAX),
                };
                Err(self.refuse(&bound, reply(StatusCode::GATEWAY_TIMEOUT, "the turn took too long")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flowgate::policy::Dialect;
    use flowgate_lm::wire::Api;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::access::Access;
    use crate::ask::Asker;
    use crate::limits::Limits;
    use crate::log::Log;
    use crate::model_routes::refusal;

    /// Returns the status and the body that a client receives from a turn that sends `said` and then panics.
    async fn heard(api: Api, said: Vec<Part>) -> (u16, String) {
        let (access, limits) = (Access::Local, Limits::default());
        let service =
            Service::open(Dialect::Flowgate, access, Asker::default(), None, limits, Log::default()).await;
        let service = Arc::new(service.unwrap());
        let broken = Broken {
            reply: move |status, message: &str| refusal(api, status, message),
            event: move |status, message: &str| stream::broken_off(api, status, message),
        };
        let (reads, is_read) = std::sync::mpsc::channel::<()>();
        // If anything was sent, the turn panics after the answer has begun.
        let reads = (!said.is_empty()).then_some(reads);
        let answer = move |_: &Waiting, parts: Sender<Part>| {
            said.into_iter().for_each(|part| parts.blocking_send(part).unwrap());
            let _ = is_read.recv();
            panic!("a bug");
        };
        let response =
            service.talk(|service| &service.turns, broken, answer).await.unwrap_or_else(Reply::into_response);
        drop(reads);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_turn_that_breaks_says_so() {
        let begun = || vec![Part::Begin(Vec::new()), Part::Bytes(b"data: half\n\n".to_vec())];
        for (api, name) in [
            (Api::ChatCompletions, ""),
            (Api::Responses, "event: error\n"),
            (Api::Messages, "event: error\n"),
        ] {
            let (status, body) = heard(api, begun()).await;
            assert_eq!(status, 200, "{api:?}");
            let rest = body.strip_prefix("data: half\n\n").unwrap();
            assert!(rest.starts_with(&format!("{name}data: {{")) && rest.ends_with("\n\n"), "{api:?} {rest}");
            assert!(rest.contains(UNEXPECTED), "{api:?} {rest}");
            let (status, body) = heard(api, Vec::new()).await;
            assert_eq!(status, 500, "{api:?}");
            assert!(body.contains(UNEXPECTED), "{api:?} {body}");
        }
    }
}
