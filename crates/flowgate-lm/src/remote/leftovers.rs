//! What is left of a stream after its answer: a few bytes, before whose end the connection cannot be used again.
//!
//! Mostly they are there already. But a server may take its time with them, so that nobody waits for them who has something
//! else to do.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::socket::at_once;

/// Streams that wait to be read to their end; of more, the connections are closed.
const WAITING: usize = 64;
/// Bytes that are read of one, at most.
const MOST: u64 = 16 << 10;

type Body = ureq::BodyReader<'static>;

/// Reads streams to their end, if need be on a thread of its own, until nobody has it any more.
#[derive(Clone)]
pub(super) struct Leftovers(SyncSender<Body>);

impl Leftovers {
    /// Nothing if there is no thread to be had: then connections are closed.
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

/// Reads one to its end. One that does not end has its connection closed, as if it had failed.
fn finish(body: &mut Body) -> io::Result<u64> {
    io::copy(&mut body.take(MOST), &mut io::sink())
}
