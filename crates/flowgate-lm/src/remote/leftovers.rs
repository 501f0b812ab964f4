//! Drains the rest of a stream after its answer: the few bytes before its end must be read before the
//! connection can be used again.
//!
//! Usually these bytes have already arrived. If they have not, a thread waits for them instead of the caller.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::socket::at_once;

/// The most streams that wait to be drained; the connections of further ones are closed.
const WAITING: usize = 64;
/// The most bytes to read of one stream.
const MOST: u64 = 16 << 10;

type Body = ureq::BodyReader<'static>;

/// Drains streams, on its own thread where that has to wait. The thread ends when the last copy is dropped.
#[derive(Clone)]
pub(super) struct Leftovers(SyncSender<Body>);

impl Leftovers {
    /// Starts the thread. Returns `None` if it cannot be started; connections are then closed.
    pub(super) fn new() -> Option<Self> {
        let (give, take) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("leftovers".to_owned());
        thread.spawn(move || read(&take)).ok().map(|_| Self(give))
    }

    pub(super) fn take(&self, mut body: Body) {
        if at_once(|| finish(&mut body)).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            drop(self.0.try_send(body));
        }
    }
}

fn read(bodies: &Receiver<Body>) {
    for mut body in bodies {
        drop(finish(&mut body));
    }
}

/// Reads a stream to its end, or up to the limit; the connection of one that does not end is closed.
fn finish(body: &mut Body) -> io::Result<u64> {
    io::copy(&mut body.take(MOST), &mut io::sink())
}
