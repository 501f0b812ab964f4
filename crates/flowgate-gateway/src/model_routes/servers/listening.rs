//! Server messages that answer no request, as long as a client listens: by `GET` in protocol revisions with sessions,
//! by `subscriptions/listen` in the one without.
//!
//! Such a stream takes no slot of ordinary requests, and does not hold its conversation. It ends when the client
//! disconnects, when a freeze stops its server, conversation or client, and when the gateway shuts down; the client may
//! then open another.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::{StatusCode, header};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::Told;
use super::events::Events;
use super::exchange::{Exchange, Heard, Place, Request};
use super::upstream::{Body, SESSION};
use super::way::{Way, refusal};
use crate::log::Limit;
use crate::mcp::{LISTEN, SUBSCRIPTION};
use crate::model_routes::clients::Listening;
use crate::model_routes::stream::Part;
use crate::model_routes::turn::Failure;
use crate::model_routes::{Bound, ModelRoutes, Waiting};
use crate::reply::Reply;

/// The limit on server messages in one stream; `MOST_ASKED` bounds those among them that are requests.
pub(crate) const MOST_UNASKED: usize = 1_000;
const MOST_ASKED: usize = 64;
const MANY: &str = "this client has as many requests open as it may: wait for one of them";
/// The interval at which the freezes are checked.
const LOOK: Duration = Duration::from_secs(2);
/// The interval at which a comment is sent to the client to keep the stream alive.
const ALIVE: Duration = Duration::from_secs(15);

impl ModelRoutes {
    /// Ends all listening streams, since the gateway shuts down.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Passes on server messages that answer no request. It blocks for long and therefore runs on a worker thread.
    pub(crate) fn listen(&self, request: &Request, waiting: &Waiting, parts: Sender<Part>) -> Option<Reply> {
        if !request.streams {
            let why = "what a server says unasked is a stream: send `accept: text/event-stream`";
            return Some(refusal(StatusCode::NOT_ACCEPTABLE, why));
        }
        let watch = Watch::new(self, request, waiting, parts.clone());
        if let Some(why) = watch.stopped() {
            return Some(refusal(StatusCode::FORBIDDEN, &why));
        }
        let mut headers = request.beside.of(&Value::Null);
        headers.extend(request.session.iter().map(|session| (SESSION.to_owned(), session.clone())));
        let held = match &request.place {
            Place::Listens(held) => Some(held),
            Place::Asks(_) => None,
        };
        let answer = match request.server.upstream.listen(None, held, &headers, &|| watch.is_over()) {
            Ok(answer) => answer,
            Err(why) => return Some(refusal(StatusCode::BAD_GATEWAY, why)),
        };
        let mut events = match answer.body {
            Body::Stream(events) => events,
            Body::Unknown => {
                let why = "the server does not know the connection any more; begin a new one";
                return Some(refusal(StatusCode::NOT_FOUND, why));
            }
            Body::Nothing | Body::Message(_) | Body::NotAllowed => {
                let why = "messages are sent by POST; this server says nothing unasked";
                let reply = refusal(StatusCode::METHOD_NOT_ALLOWED, why);
                return Some(reply.header(header::ALLOW, "POST, DELETE"));
            }
        };
        let mut way = Way::new(parts, true, &request.conversation);
        way.begin();
        let mut exchange = Exchange::new(self, request, waiting, way);
        if let Err(failure) = exchange.pass_on(&mut events, &watch)
            && !waiting.has_gone()
        {
            self.remark(&format!("{}: {}", request.client.spec.name, failure.message));
        }
        None
    }
}

/// Returns whether a message opens a listening stream, whatever the JSON encoding of its method.
pub(crate) fn listens(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        method: String,
    }
    serde_json::from_slice::<Named>(body).is_ok_and(|message| message.method == LISTEN)
}

impl Request {
    /// Exchanges the slot of an ordinary request for that of a listening stream.
    pub(crate) fn listen(&mut self, routes: &ModelRoutes) -> Result<(), Reply> {
        let Some(place) = Listening::begin(&self.client) else {
            routes.client_limit(&self.client, Some(&self.conversation), Bound::Listening);
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, MANY).logged());
        };
        self.place = Place::Listens(Arc::new(place));
        Ok(())
    }
}

impl Exchange<'_> {
    /// Handles a server's message in the stream of a subscription. Only messages that change the conversation are
    /// stored.
    pub(super) fn told(&mut self, id: &Value, message: &Value, text: &str) -> Result<Heard, Failure> {
        let Request { client, server, conversation, .. } = self.request;
        self.heard += 1;
        if self.heard > MOST_UNASKED {
            return Ok((Vec::new(), Some("the server says more than one answer may take")));
        }
        if self.routes.approvals.stops(&client.spec, conversation, &format!("{}/", server.name)).is_some() {
            return Ok((Vec::new(), Some("this server is stopped by its operator")));
        }
        let of = message.pointer("/params/_meta").and_then(|meta| meta.get(SUBSCRIPTION));
        let is_for_it = of == Some(id) && message.get("id").is_none();
        let told = match is_for_it {
            false => Vec::new(),
            true => match self.overhear(text)? {
                Some(told) => told,
                None => self.put(Told::Server(text.to_owned()))?,
            },
        };
        Ok((told, None))
    }

    /// Passes on server messages until the stream ends.
    fn pass_on(&mut self, events: &mut Events, watch: &Watch<'_>) -> Result<(), Failure> {
        let mut asked = 0;
        for _ in 0..MOST_UNASKED {
            let Ok(Some(event)) = events.next(&|| watch.is_over()) else { return Ok(()) };
            if watch.stopped().is_some() {
                return Ok(());
            }
            // A message for which there is no memory is dropped; the log reports it.
            let Ok(_share) = self.take(&event) else { continue };
            let out = match self.overhear(&event)? {
                Some(out) => out,
                None => {
                    let message: Value = serde_json::from_str(&event).unwrap_or_default();
                    asked += usize::from(message.get("id").is_some());
                    if asked > MOST_ASKED {
                        break;
                    }
                    self.heard(&Value::Null, event)?.0
                }
            };
            self.carry_out(out)?;
            if watch.is_over() || self.way.is_lost {
                return Ok(());
            }
        }
        let Request { client, conversation, .. } = self.request;
        self.routes.log.limit(&Limit {
            what: "messages of one stream of a server",
            effect: "the stream was ended; its client may ask for another",
            setting: "none; look at what the server says",
            most: u64::try_from(if asked > MOST_ASKED { MOST_ASKED } else { MOST_UNASKED })
                .unwrap_or(u64::MAX),
            client: &client.spec.name,
            conversation: Some(conversation),
        });
        Ok(())
    }

    /// Returns the actions for a message that changes nothing; `None` if it must be processed as an input.
    fn overhear(&self, text: &str) -> Result<Option<Vec<crate::mcp::Out>>, Failure> {
        let Request { client, server, conversation, .. } = self.request;
        let sessions = &self.routes.sessions;
        let found = sessions.named(client, conversation);
        let mut held = sessions.lock(client, &found, self.waiting)?;
        let heard = held.get().map(|session| {
            // Nothing is labelled here, so the labels of stores are not needed.
            session.overhear(&client.spec, &server.name, text)
        });
        // There was no input, so this only releases the conversation for other gateways.
        sessions.keep(client, &found, &mut held)?;
        Ok(heard.unwrap_or_else(|| Some(Vec::new())))
    }
}

/// Checks whether a listening stream should end, and keeps it alive.
pub(super) struct Watch<'w> {
    routes: &'w ModelRoutes,
    request: &'w Request,
    waiting: &'w Waiting,
    parts: Sender<Part>,
    looked: Cell<Instant>,
    alive: Cell<Instant>,
}

impl<'w> Watch<'w> {
    pub(super) fn new(
        routes: &'w ModelRoutes,
        request: &'w Request,
        waiting: &'w Waiting,
        parts: Sender<Part>,
    ) -> Self {
        let (looked, alive) = (Cell::new(Instant::now()), Cell::new(Instant::now()));
        Self { routes, request, waiting, parts, looked, alive }
    }

    /// Returns why a freeze stops the stream, if one does.
    fn stopped(&self) -> Option<String> {
        let Request { client, server, conversation, .. } = self.request;
        self.looked.set(Instant::now());
        self.routes.approvals.stops(&client.spec, conversation, &format!("{}/", server.name))
    }

    /// Returns whether the client has disconnected, the gateway shuts down or a freeze stops the stream.
    pub(super) fn is_over(&self) -> bool {
        if self.waiting.has_gone() || self.routes.is_closing() {
            return true;
        }
        if self.alive.get().elapsed() >= ALIVE {
            self.alive.set(Instant::now());
            // A full channel means that other data is on its way.
            let _ = self.parts.try_send(Part::Bytes(b": still here\n\n".to_vec()));
        }
        self.looked.get().elapsed() >= LOOK && self.stopped().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_known_however_it_is_spelled() {
        let check = |body: &str, expected: bool| assert_eq!(listens(body.as_bytes()), expected, "{body}");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}"#, true);
        check(r#"{"method":"subscriptions\/listen"}"#, true);
        check(r#"{"params":[{"a":"b"}],"method":"\u0073ubscriptions/listen"}"#, true);
        check(r#"{"method":"tools/call","params":{"method":"subscriptions/listen"}}"#, false);
        // Bodies that the strict parser rejects.
        check(r#"{"method":"subscriptions/listen","method":"tools/call"}"#, false);
        check(r#"[{"method":"subscriptions/listen"}]"#, false);
        check("no JSON", false);
    }
}
