//! Reports limits of the HTTP service that were reached, in lines of the operator's log and in rejections of requests.
//! The connections and the routes of [`GatewayService`] call it.

use std::net::IpAddr;

use serde_json::Value;

use super::{GatewayService, busy_reply};
use crate::http::admission::RequestPlaceError;
use crate::http::handshake::HandshakeError;
use crate::http::open_requests::MAX_CANCELLED;
use crate::http::reply::HttpReply;
use crate::log::{Limit, LogEvent};

/// A bound on all clients together that was reached. [`Limit`] describes the fields.
pub(super) struct GatewayBound {
    pub(super) what: &'static str,
    pub(super) effect: &'static str,
    pub(super) setting: Option<&'static str>,
    pub(super) advice: Option<&'static str>,
    pub(super) most: usize,
}

impl GatewayService {
    /// Reports in the operator's log that a bound on all clients together was reached, so the line names no client.
    pub(super) fn note_bound(&self, bound: &GatewayBound) {
        let GatewayBound { what, effect, setting, advice, most } = *bound;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        self.log.limit(&Limit { what, effect, setting, advice, most, client: "", conversation: None });
    }

    /// Reports a bound that was reached, as [`Self::note_bound`] does. Returns `reply`, the rejection, marked as logged
    /// already.
    pub(super) fn refuse(&self, bound: &GatewayBound, reply: HttpReply) -> HttpReply {
        self.note_bound(bound);
        reply.mark_logged()
    }

    /// Reports in the operator's log that a connection was closed to make room for another one, because the open
    /// connections have reached their limit, `most`, or those without a valid key their share of it. The client of the
    /// closed connection is not known.
    pub(crate) fn note_closed(&self, most: usize) {
        self.log.limit(&Limit {
            what: "open connections",
            effect: "the slowest connection without a valid key was closed for another one",
            setting: Some("--max-connections"),
            advice: None,
            most: u64::try_from(most).unwrap_or(u64::MAX),
            client: "",
            conversation: None,
        });
    }

    /// Reports in the operator's log that an address has the maximum number of connections without a valid key, `most`.
    /// `effect` says what was done because of that. Which client connects from the address is not known.
    pub(crate) fn note_crowded(&self, effect: &'static str, most: usize) {
        self.log.limit(&Limit {
            what: "connections of one address without a valid key",
            effect,
            setting: Some("--max-connections-of-address"),
            advice: None,
            most: u64::try_from(most).unwrap_or(u64::MAX),
            client: "",
            conversation: None,
        });
    }

    /// Reports in the operator's log that a connection was closed because its TLS handshake failed, unless the client
    /// has disconnected, which is normal. A client that is not authenticated yet has no name, so the line of a refused
    /// handshake has the address from which it connected, if that is known.
    pub(crate) fn note_handshake(&self, error: HandshakeError, peer: Option<IpAddr>) {
        match error {
            HandshakeError::Disconnected => {}
            HandshakeError::Slow => self.log.limit(&Limit {
                what: "seconds for a TLS handshake",
                effect: "a new connection was closed",
                setting: Some("--head-time"),
                advice: None,
                most: self.limits.head_time.as_secs(),
                client: "",
                conversation: None,
            }),
            HandshakeError::Refused(why) => {
                let fields = peer.map(|address| ("address", Value::from(address.to_string())));
                self.log.write(LogEvent::Refused, "", fields.into_iter().collect(), why);
            }
        }
    }

    /// Reports in the operator's log that a connection of HTTP/2 was closed because its client cancelled too many
    /// requests. The line names no client: the requests of one connection can have different keys.
    pub(crate) fn note_flood(&self) {
        self.log.limit(&Limit {
            what: "cancelled requests of one connection, less its answered ones",
            effect: "the connection was closed",
            setting: None,
            advice: None,
            most: MAX_CANCELLED,
            client: "",
            conversation: None,
        });
    }

    /// Logs why a request of an HTTP/2 connection has no place next to the other open requests of the connection, and
    /// returns the rejection.
    pub(crate) fn refuse_request(&self, error: RequestPlaceError) -> HttpReply {
        let effect = "one of several concurrent requests of a connection was refused with 503";
        let bound = match error {
            RequestPlaceError::Full => GatewayBound {
                what: "open connections",
                effect,
                setting: Some("--max-connections"),
                advice: None,
                most: self.limits.connections,
            },
            RequestPlaceError::Crowded => GatewayBound {
                what: "connections of one address without a valid key",
                effect,
                setting: Some("--max-connections-of-address"),
                advice: None,
                most: self.limits.connections_of_address,
            },
        };
        self.refuse(&bound, busy_reply())
    }
}
