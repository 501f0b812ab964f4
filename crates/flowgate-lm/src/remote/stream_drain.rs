//! Drains the rest of a stream after its answer: the few bytes before its end must be read before the
//! connection can be used again.
//!
//! Usually these bytes have already arrived. If they have not, a thread waits for them instead of the caller.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::socket::without_waiting;

/// The most streams that wait to be drained; the connections of further ones are closed.
const MAX_WAITING_STREAMS: usize = 64;
/// The most bytes to read of one stream.
const MAX_DRAINED_BYTES: u64 = 16 << 10;

type ResponseBody = ureq::BodyReader<'static>;

/// Drains streams, on its own thread where that has to wait. The thread ends when the last copy is dropped.
#[derive(Clone)]
pub(super) struct StreamDrain(SyncSender<ResponseBody>);

impl StreamDrain {
    /// Starts the thread. Returns `None` if it cannot be started; connections are then closed.
    pub(super) fn new() -> Option<Self> {
        let (give, take) = sync_channel(MAX_WAITING_STREAMS);
        let thread = std::thread::Builder::new().name("leftovers".to_owned());
        thread.spawn(move || drain_all(&take)).ok().map(|_| Self(give))
    }

    pub(super) fn drain(&self, mut body: ResponseBody) {
        if without_waiting(|| drain_one(&mut body))
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        {
            drop(self.0.try_send(body));
        }
    }
}

fn drain_all(bodies: &Receiver<ResponseBody>) {
    for mut body in bodies {
        drop(drain_one(&mut body));
    }
}

/// Reads a stream to its end, or up to the limit; the connection of one that does not end is closed.
fn drain_one(body: &mut ResponseBody) -> io::Result<u64> {
    io::copy(&mut body.take(MAX_DRAINED_BYTES), &mut io::sink())
}
