//! What a server says unasked, for as long as a client listens: `GET` of the revisions with connections, `subscriptions/listen` of the one
//! without.
//!
//! Such a stream holds no place of those who ask, and no conversation. It ends when its client goes, when its server, conversation or client
//! is stopped, and when the gateway ends; the client asks for another.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::{StatusCode, header};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::events::Events;
use super::exchange::{Exchange, Heard, Place, Request};
use super::upstream::{Body, SESSION};
use super::way::{Way, refusal};
use crate::mcp::{LISTEN, SUBSCRIPTION};
use crate::model_routes::clients::Listening;
use crate::model_routes::stream::Part;
use crate::model_routes::turn::Failure;
use crate::model_routes::{ModelRoutes, Waiting};
use crate::reply::Reply;

/// How many messages of a server one stream may bring, and how many of them may ask for something.
const MOST_UNASKED: usize = 1_000;
const MOST_ASKED: usize = 64;
const MANY: &str = "this client has as many requests open as it may: wait for one of them";
/// How often it is looked whether somebody has stopped what is listened to.
const LOOK: Duration = Duration::from_secs(2);
/// How often whoever listens hears that there still is somebody.
const ALIVE: Duration = Duration::from_secs(15);

impl ModelRoutes {
    /// The gateway ends: nobody is listened to any more.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Passes on what a server says unasked. It waits for long, and so runs beside the sockets.
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

/// Whether a message asks to hear of what happens, however it spells that.
pub(crate) fn listens(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        method: String,
    }
    serde_json::from_slice::<Named>(body).is_ok_and(|message| message.method == LISTEN)
}

impl Request {
    /// The request takes a place of those who listen, and gives back its own.
    pub(crate) fn listen(&mut self) -> Result<(), Reply> {
        let Some(place) = Listening::begin(&self.client) else {
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, MANY));
        };
        self.place = Place::Listens(Arc::new(place));
        Ok(())
    }
}

impl Exchange<'_> {
    /// What is to be done for what a server says in the stream of a subscription, which is kept no more than what it says unasked.
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
        let told = if is_for_it { self.overhear(text)? } else { None };
        Ok((told.unwrap_or_default(), None))
    }

    /// Passes on what the server says unasked, until there is no more of it.
    fn pass_on(&mut self, events: &mut Events, watch: &Watch<'_>) -> Result<(), Failure> {
        let mut asked = 0;
        for _ in 0..MOST_UNASKED {
            let Ok(Some(event)) = events.next(&|| watch.is_over()) else { return Ok(()) };
            if watch.stopped().is_some() {
                return Ok(());
            }
            let out = match self.overhear(&event)? {
                Some(out) => out,
                None if asked == MOST_ASKED => return Ok(()),
                None => {
                    asked += 1;
                    self.heard(&Value::Null, event)?.0
                }
            };
            self.carry_out(out)?;
            if watch.is_over() || self.way.is_lost {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What is to be done for a message that changes nothing. `None` if it is to be put in.
    fn overhear(&self, text: &str) -> Result<Option<Vec<crate::mcp::Out>>, Failure> {
        let Request { client, server, conversation, .. } = self.request;
        let sessions = &self.routes.sessions;
        let found = sessions.named(client, conversation);
        let mut held = sessions.lock(client, &found, self.waiting)?;
        let heard = held.get().map(|session| {
            // Nothing is labelled here, so nobody needs to know what others have written.
            session.overhear(&client.spec, &server.name, text)
        });
        // Nothing was put in, so this only lets others go on with the conversation.
        sessions.keep(client, &found, &mut held)?;
        Ok(heard.unwrap_or_else(|| Some(Vec::new())))
    }
}

/// Looks whether there still is somebody to listen for, and tells who listens that there is.
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

    /// Why nothing may be heard any more.
    fn stopped(&self) -> Option<String> {
        let Request { client, server, conversation, .. } = self.request;
        self.looked.set(Instant::now());
        self.routes.approvals.stops(&client.spec, conversation, &format!("{}/", server.name))
    }

    /// Whether nobody listens any more, or nobody may.
    pub(super) fn is_over(&self) -> bool {
        if self.waiting.has_gone() || self.routes.is_closing() {
            return true;
        }
        if self.alive.get().elapsed() >= ALIVE {
            self.alive.set(Instant::now());
            // Where it cannot be taken now, there is something on its way.
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
        // What is refused by who reads strictly.
        check(r#"{"method":"subscriptions/listen","method":"tools/call"}"#, false);
        check(r#"[{"method":"subscriptions/listen"}]"#, false);
        check("no JSON", false);
    }
}
