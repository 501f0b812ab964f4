//! What is left of a stream after its answer: a few bytes, before whose end the connection cannot be used again.
//!
//! A server may take its time with them, so that nobody waits for them who has something else to do.

use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Streams that wait to be read to their end; of more, the connections are closed.
const WAITING: usize = 64;
/// Bytes that are read of one, at most.
const MOST: u64 = 16 << 10;

type Body = ureq::BodyReader<'static>;

/// Reads streams to their end, on a thread of its own, until nobody has it any more.
#[derive(Clone)]
pub(super) struct Leftovers(SyncSender<Body>);

impl Leftovers {
    /// Nothing if there is no thread to be had: then connections are closed.
    pub(super) fn new() -> Option<Self> {
        let (give, take) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("leftovers".to_owned());
        thread.spawn(move || read(&take)).ok().map(|_| Self(give))
    }

    pub(super) fn take(&self, body: Body) {
        drop(self.0.try_send(body));
    }
}

fn read(bodies: &Receiver<Body>) {
    for body in bodies {
        // One that does not end has its connection closed, as if it had failed.
        let _ = std::io::copy(&mut body.take(MOST), &mut std::io::sink());
    }
}
