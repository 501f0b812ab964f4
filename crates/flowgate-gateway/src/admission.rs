//! Which connections are open: those whose client has shown a valid key keep their place, and the others make room.
//!
//! Whoever can connect can hold a connection open without saying who they are. Such connections have a bounded share of all places.
//! When a new connection finds none, the one that has kept the server waiting longest is closed, of the address that has most of
//! them. A connection whose bytes the server has not looked at yet, or has waited for only a moment, is not closed: the new one waits.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

/// How long the server waits for a client before its connection may be closed for another one.
const PATIENCE: Duration = Duration::from_millis(250);
/// The part of all places that is kept for connections with a valid key: a quarter.
const RESERVE: usize = 4;

/// All open connections.
#[derive(Debug)]
pub(crate) struct Admission {
    /// How many connections may be open.
    most: usize,
    open: Mutex<Open>,
    /// A place has become free, or somebody has shown a key.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// Connections without a valid key, by their numbers.
    strangers: BTreeMap<u64, Stranger>,
    /// How many connections have shown one.
    known: usize,
}

#[derive(Debug)]
struct Stranger {
    peer: IpAddr,
    /// Since when the server has waited for the client.
    waiting: Option<Instant>,
    close: Option<oneshot::Sender<()>>,
}

/// What is to be done before another connection has a place.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    /// Nothing.
    Free,
    /// This connection is closed.
    Close(u64),
    /// Wait, at most until then.
    Wait(Option<Instant>),
}

/// The place of an open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    number: u64,
    /// Whether it is not closed for another one.
    is_kept: AtomicBool,
}

impl Admission {
    /// Room for so many connections.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), open: Mutex::default(), changed: Notify::new() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from an address. The receiver is told when the connection is to be closed for another one. `closed`
    /// is called for each connection that this closes.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        peer: IpAddr,
        closed: impl Fn(),
    ) -> (Arc<Place>, oneshot::Receiver<()>) {
        loop {
            // Whoever leaves between the look and the wait is noticed all the same.
            let changed = self.changed.notified();
            let room = {
                let mut open = self.open();
                let room = open.room(self.most, Instant::now());
                match room {
                    Room::Free => {
                        let (close, told) = oneshot::channel();
                        let number = open.add(peer, close);
                        let is_kept = AtomicBool::new(false);
                        let place = Place { admission: Arc::clone(self), number, is_kept };
                        return (Arc::new(place), told);
                    }
                    Room::Close(number) => open.close(number),
                    Room::Wait(_) => {}
                }
                room
            };
            match room {
                Room::Wait(Some(until)) => {
                    let _ = tokio::time::timeout_at(until.into(), changed).await;
                }
                Room::Wait(None) => changed.await,
                Room::Close(_) => closed(),
                Room::Free => {}
            }
        }
    }

    /// Waits until no connection is open.
    pub(crate) async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.open().count() == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Open {
    fn count(&self) -> usize {
        self.strangers.len() + self.known
    }

    fn add(&mut self, peer: IpAddr, close: oneshot::Sender<()>) -> u64 {
        self.next += 1;
        self.strangers.insert(self.next, Stranger { peer, waiting: None, close: Some(close) });
        self.next
    }

    /// Whether another connection has room among `most`.
    fn room(&self, most: usize, now: Instant) -> Room {
        let for_strangers = most - most / RESERVE;
        if self.count() < most && self.strangers.len() < for_strangers {
            return Room::Free;
        }
        let mut of_peer: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in self.strangers.values() {
            *of_peer.entry(stranger.peer).or_default() += 1;
        }
        let is_slow = |stranger: &Stranger| {
            stranger.waiting.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE)
        };
        let slow = self.strangers.iter().filter(|(_, stranger)| is_slow(stranger));
        let slowest = slow.max_by_key(|(number, stranger)| {
            let waited = stranger.waiting.map(|since| now.saturating_duration_since(since));
            (of_peer.get(&stranger.peer).copied(), waited, std::cmp::Reverse(**number))
        });
        match slowest {
            Some((number, _)) => Room::Close(*number),
            None => {
                let waiting = self.strangers.values().filter_map(|stranger| stranger.waiting);
                Room::Wait(waiting.min().map(|since| since + PATIENCE))
            }
        }
    }

    fn close(&mut self, number: u64) {
        let close = self.strangers.remove(&number).and_then(|stranger| stranger.close);
        // Whoever has gone need not be told.
        if let Some(close) = close {
            let _ = close.send(());
        }
    }
}

impl Place {
    /// The client has shown a valid key, or has sent all of a request that takes none: the connection is not closed for another one.
    pub(crate) fn keep(&self) {
        let mut open = self.admission.open();
        if open.strangers.remove(&self.number).is_some() {
            open.known += 1;
            self.is_kept.store(true, Ordering::Relaxed);
            drop(open);
            self.admission.changed.notify_waiters();
        }
    }

    /// The server waits for the client.
    pub(crate) fn waits(&self) {
        let mut open = self.admission.open();
        if let Some(stranger) = open.strangers.get_mut(&self.number)
            && stranger.waiting.is_none()
        {
            stranger.waiting = Some(Instant::now());
            drop(open);
            // From now on it can be known when the connection may be closed.
            self.admission.changed.notify_waiters();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.admission.open();
        match self.is_kept.load(Ordering::Relaxed) {
            true => open.known = open.known.saturating_sub(1),
            // It may be gone, since it was closed for another one.
            false => drop(open.strangers.remove(&self.number)),
        }
        drop(open);
        self.admission.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// Connections of these addresses, with the milliseconds for which the server has waited for each; no number: not at all.
    fn open(strangers: &[(u8, Option<u64>)], known: usize, now: Instant) -> Open {
        let mut open = Open { known, ..Open::default() };
        for (number, waited) in strangers {
            let number = open.add(peer(*number), oneshot::channel().0);
            let since = waited.map(|waited| now.checked_sub(Duration::from_millis(waited)).unwrap());
            open.strangers.get_mut(&number).unwrap().waiting = since;
        }
        open
    }

    #[test]
    fn the_slowest_stranger_of_the_address_with_most_makes_room() {
        let now = Instant::now() + Duration::from_secs(3600);
        let later = |millis: u64| Room::Wait(Some(now + Duration::from_millis(millis)));
        // Of eight places, two are for those who have shown a key.
        let check = |strangers: &[(u8, Option<u64>)], known: usize, expected: &Room| {
            assert_eq!(open(strangers, known, now).room(8, now), *expected, "{strangers:?} {known}");
        };
        check(&[], 0, &Room::Free);
        check(&[(1, Some(9000)); 5], 0, &Room::Free);
        check(&[(1, Some(9000)); 5], 2, &Room::Free);
        check(&[(1, Some(9000)); 6], 0, &Room::Close(1));
        check(&[(1, Some(9000)); 3], 5, &Room::Close(1));
        // Whoever has shown a key is never closed.
        check(&[], 8, &Room::Wait(None));
        // Nobody has waited for them, or not for long.
        check(&[(1, None); 6], 0, &Room::Wait(None));
        check(&[(1, Some(100)), (1, Some(200)), (1, None), (1, None), (1, None), (1, None)], 0, &later(50));
        let slow = [
            (1, Some(300)),
            (1, Some(9000)),
            (1, Some(400)),
            (2, Some(9500)),
            (2, Some(9500)),
            (3, Some(9999)),
        ];
        check(&slow, 0, &Room::Close(2));
        // Those of the greediest address are still fresh, and others are not.
        let fresh = [(1, None), (1, None), (1, None), (1, Some(10)), (2, Some(300)), (2, Some(400))];
        check(&fresh, 0, &Room::Close(6));
    }

    #[tokio::test]
    async fn places_are_counted_whatever_becomes_of_them() {
        let admission = Admission::new(8);
        let counts = || {
            let open = admission.open();
            (open.known, open.strangers.len())
        };
        let mut places = Vec::new();
        for number in 0..6 {
            places.push(admission.enter(peer(number), || panic!("there is room")).await);
        }
        let (kept, _told) = places.remove(0);
        kept.keep();
        kept.keep();
        kept.waits();
        assert_eq!(counts(), (1, 5));
        drop(kept);
        assert_eq!(counts(), (0, 5));
        let (closed, told) = places.remove(0);
        admission.open().close(closed.number);
        assert!(told.await.is_ok());
        // Too late: it is not counted as one that has a key.
        closed.keep();
        drop(closed);
        assert_eq!(counts(), (0, 4));
        drop(places);
        admission.empty().await;
    }
}
