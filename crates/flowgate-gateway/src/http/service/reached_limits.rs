//! Limits that were reached: lines of the operator's log, and rejections of requests.

use super::{GatewayService, busy_reply};
use crate::http::admission::RequestSlotError;
use crate::http::handshake::HandshakeError;
use crate::http::open_requests::MAX_CANCELLED;
use crate::http::reply::HttpReply;
use crate::log::{Limit, LogEvent};

/// A bound of the command line that was reached.
pub(super) struct CommandLineBound {
    pub(super) what: &'static str,
    pub(super) effect: &'static str,
    pub(super) setting: &'static str,
    pub(super) most: usize,
}

impl GatewayService {
    /// Reports that a bound of the command line was reached, and returns the rejection.
    pub(super) fn refuse(&self, bound: &CommandLineBound, reply: HttpReply) -> HttpReply {
        let CommandLineBound { what, effect, setting, most } = *bound;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        self.log.limit(&Limit { what, effect, setting, most, client: "", conversation: None });
        reply.mark_logged()
    }

    /// Reports that a connection was closed for another one.
    pub(crate) fn note_closed(&self, most: usize) {
        self.log.limit(&Limit {
            what: "open connections",
            effect: "the slowest connection without a valid key was closed for another one",
            setting: "--max-connections",
            most: u64::try_from(most).unwrap_or(u64::MAX),
            client: "",
            conversation: None,
        });
    }

    /// Reports that an address has as many connections without a valid key as it may.
    pub(crate) fn note_crowded(&self, effect: &'static str, most: usize) {
        self.log.limit(&Limit {
            what: "connections of one address without a valid key",
            effect,
            setting: "--max-connections-of-address",
            most: u64::try_from(most).unwrap_or(u64::MAX),
            client: "",
            conversation: None,
        });
    }

    /// Reports that a connection was closed because its TLS handshake failed.
    pub(crate) fn note_handshake(&self, error: HandshakeError) {
        match error {
            HandshakeError::Disconnected => {}
            HandshakeError::Slow => self.log.limit(&Limit {
                what: "seconds for a TLS handshake",
                effect: "a new connection was closed",
                setting: "--head-time",
                most: self.limits.head_time.as_secs(),
                client: "",
                conversation: None,
            }),
            HandshakeError::Refused(why) => self.log.write(LogEvent::Refused, "", Vec::new(), why),
        }
    }

    /// Reports that a connection was closed because its client cancelled too many requests.
    pub(crate) fn note_flood(&self) {
        self.log.limit(&Limit {
            what: "cancelled requests of one connection, beyond those that were answered",
            effect: "the connection was closed",
            setting: "none",
            most: MAX_CANCELLED,
            client: "",
            conversation: None,
        });
    }

    /// Refuses a request beside others of its connection.
    pub(crate) fn refuse_request(&self, error: RequestSlotError) -> HttpReply {
        let effect = "one of several concurrent requests of a connection was refused with 503";
        let bound = match error {
            RequestSlotError::Full => CommandLineBound {
                what: "open connections",
                effect,
                setting: "--max-connections",
                most: self.limits.connections,
            },
            RequestSlotError::Crowded => CommandLineBound {
                what: "connections of one address without a valid key",
                effect,
                setting: "--max-connections-of-address",
                most: self.limits.connections_of_address,
            },
        };
        self.refuse(&bound, busy_reply())
    }
}
