//! The parts of a server's answer, as the thread that reads it sends them.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The interval at which a waiting request checks whether it should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The head of an answer.
pub(super) struct ServerAnswerHead {
    pub(super) status: u16,
    pub(super) kind: String,
    pub(super) session: Option<String>,
}

/// A part of an answer, from the thread that reads it and may outlive the request of the client.
pub(super) enum ServerAnswerPart {
    Head(ServerAnswerHead),
    Bytes(Vec<u8>),
    Failed(&'static str),
}

/// Returns the next part of an answer; `None` at its end.
pub(super) fn next(
    bytes: &Receiver<ServerAnswerPart>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<ServerAnswerPart>, &'static str> {
    loop {
        match bytes.recv_timeout(POLL_INTERVAL) {
            Ok(ServerAnswerPart::Failed(why)) => return Err(why),
            Ok(part) => return Ok(Some(part)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if stop() => return Err("nobody waits for the answer any more"),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
