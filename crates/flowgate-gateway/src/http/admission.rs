//! Admits connections up to a limit, and closes connections of clients without a key to make room for new ones.
//! `server` requests a place among the open connections for each new connection, and `connection` reports what happens
//! on the connection.
//!
//! Every client can hold connections open without authenticating, so not every open connection may keep its place. A
//! connection is *unprotected* until its client has shown a valid key or has sent a complete request that needs none;
//! from then on it is *protected*, and not closed for another one. The rules for unprotected connections are:
//!
//! * All of them together have a bounded share of all places. Those of one address have a bound of their own.
//! * If no place is free for a new connection, an unprotected one is closed: of the address with the most places, the
//!   one for which the server has waited longest. If the address of the new connection is at its bound, one of its own
//!   connections is closed.
//! * A connection is not closed while the server has unread bytes of it, or has waited for its client only briefly. The
//!   new connection waits until one can be closed. If its address is at its bound, it waits outside the queue of all
//!   new connections, so that it does not delay connections of other addresses.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

/// The time for which the server waits for the client of an unprotected connection before the connection may be closed
/// for another one.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(250);
/// The reciprocal of the share of places that is reserved for protected connections.
const RESERVE: usize = 4;

/// All open connections.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The most open connections.
    most: usize,
    /// The most unprotected connections of one address.
    most_of_address: usize,
    open: Mutex<OpenConnections>,
    /// Notified when a place becomes free or its state changes.
    changed: Notify,
}

/// The state of all open connections, behind the lock of [`Admission`].
#[derive(Debug, Default)]
struct OpenConnections {
    /// The number of the connection that was added last; 0 before the first one.
    last_number: u64,
    /// The unprotected connections, by number.
    unprotected: BTreeMap<u64, UnprotectedConnection>,
    /// The number of protected connections, and of their further requests.
    protected: usize,
    /// The number of further requests of the unprotected connections: open requests of HTTP/2 beyond the first one of a
    /// connection.
    further: usize,
    /// The number of connections of each address that wait until the address has room.
    waiting_of_address: HashMap<IpAddr, usize>,
}

/// A connection whose client has neither shown a valid key nor sent a complete request that needs none.
#[derive(Debug)]
struct UnprotectedConnection {
    peer: IpAddr,
    /// The time since which the server has waited for the client; `None` while it does not wait.
    waiting: Option<Instant>,
    /// Notifies the task of the connection to end.
    close: Option<oneshot::Sender<()>>,
    /// The number of its open requests beyond the first one.
    further: usize,
}

/// The next step towards a place for another connection.
#[derive(Debug, PartialEq, Eq)]
enum AdmissionStep {
    /// A place is free.
    Free,
    /// Close this connection.
    Close(u64),
    /// Wait for a change of the connections, at most until this time, at which an unprotected one may be closed.
    Wait(Option<Instant>),
}

/// The place of an open connection; released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    admission: Arc<Admission>,
    number: u64,
    /// The address of the client; of IPv6, its network of 64 bits.
    peer: IpAddr,
    /// Whether the connection is protected: it may not be closed for another one.
    is_protected: AtomicBool,
    /// The number of its open requests that have a place; changed only while the connections are locked.
    requests: AtomicUsize,
}

/// The place of a request of HTTP/2; released on drop. The only open request of a connection uses the place of the
/// connection; any further one counts as a connection.
#[derive(Debug)]
pub(crate) struct RequestPlace(Arc<ConnectionPlace>);

/// The reason why a further request of a connection has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestPlaceError {
    /// All places are taken.
    Full,
    /// The address has its maximum number of unprotected connections.
    Crowded,
}

impl Admission {
    /// Creates the admission of connections. At most `most` connections (but at least one) are open at the same time,
    /// and at most `most_of_address` unprotected ones of one address, or any number if that is 0. A connection is
    /// unprotected until its client has shown a valid key or has sent a complete request that needs none.
    pub(crate) fn new(most: usize, most_of_address: usize) -> Arc<Self> {
        let most_of_address = if most_of_address == 0 { usize::MAX } else { most_of_address };
        Arc::new(Self { most: most.max(1), most_of_address, open: Mutex::default(), changed: Notify::new() })
    }

    /// Returns whether a further connection of an address has to wait, because the address has the maximum number of
    /// unprotected connections, or others of it wait already. An unprotected connection is one whose client has neither
    /// shown a valid key nor sent a complete request that needs none.
    pub(crate) fn is_crowded(&self, peer: IpAddr) -> bool {
        let peer = address_of(peer);
        let open = self.connections();
        open.count_of_address(peer) >= self.most_of_address || open.waiting_of_address.contains_key(&peer)
    }

    /// Reserves a place where a connection waits until its address may open another one; `None` if too many connections
    /// of this address, or of all addresses together, wait already.
    pub(crate) fn reserve_waiting_place(self: &Arc<Self>, peer: IpAddr) -> Option<WaitingConnection> {
        let peer = address_of(peer);
        let mut open = self.connections();
        let of_peer = open.waiting_of_address.get(&peer).copied().unwrap_or_default();
        // A waiting connection takes a file descriptor as well. For one address, at most as many may wait as may be
        // open in all; for all addresses together, twice as many.
        let of_all = open.waiting_of_address.values().sum::<usize>();
        if of_peer >= self.most || of_all >= self.most.saturating_mul(2) {
            return None;
        }
        open.waiting_of_address.insert(peer, of_peer + 1);
        Some(WaitingConnection { admission: Arc::clone(self), peer })
    }

    /// Locks the state of all open connections.
    fn connections(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place for a connection from an address, and closes unprotected connections (whose clients have
    /// neither shown a valid key nor sent a complete request that needs none) to make room if necessary. Calls `closed`
    /// for each connection that is closed for this one. The returned receiver is notified when this connection itself
    /// has to be closed for another one.
    pub(crate) async fn acquire_place(
        self: &Arc<Self>,
        peer: IpAddr,
        closed: impl Fn(),
    ) -> (Arc<ConnectionPlace>, oneshot::Receiver<()>) {
        let peer = address_of(peer);
        loop {
            // Registered before the check, so that a change between check and wait is not missed.
            let changed = self.changed.notified();
            let step = {
                let mut open = self.connections();
                let step = open.next_step(peer, (self.most, self.most_of_address), Instant::now());
                match step {
                    AdmissionStep::Free => {
                        let (close, must_close) = oneshot::channel();
                        let number = open.add(peer, close);
                        // Not protected yet, and without requests.
                        let (is_protected, requests) = Default::default();
                        let admission = Arc::clone(self);
                        let place = ConnectionPlace { admission, number, peer, is_protected, requests };
                        return (Arc::new(place), must_close);
                    }
                    AdmissionStep::Close(number) => open.close(number),
                    AdmissionStep::Wait(_) => {}
                }
                step
            };
            match step {
                // Whether a change or the time ended the wait, the next iteration looks for a place.
                AdmissionStep::Wait(Some(until)) => {
                    let _ = tokio::time::timeout_at(until.into(), changed).await;
                }
                AdmissionStep::Wait(None) => changed.await,
                // Called without the lock, since the caller writes to the log. The next iteration looks for a place
                // again.
                AdmissionStep::Close(_) => closed(),
                // Unreachable: a free place was returned above.
                AdmissionStep::Free => {}
            }
        }
    }

    /// Waits until no connection is open.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            // Registered before the check, so that a change between check and wait is not missed.
            let changed = self.changed.notified();
            if self.connections().count() == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl OpenConnections {
    /// Returns the number of places that are taken.
    fn count(&self) -> usize {
        self.count_unprotected() + self.protected
    }

    /// Returns the number of unprotected connections, and of their further requests.
    fn count_unprotected(&self) -> usize {
        self.unprotected.len() + self.further
    }

    /// Adds a connection of the address `peer`, which has shown no valid key yet and is therefore unprotected. Returns
    /// its number. `close` notifies its task to end.
    fn add(&mut self, peer: IpAddr, close: oneshot::Sender<()>) -> u64 {
        self.last_number += 1;
        let connection = UnprotectedConnection { peer, waiting: None, close: Some(close), further: 0 };
        self.unprotected.insert(self.last_number, connection);
        self.last_number
    }

    /// Returns the number of unprotected connections of an address, and of their further requests.
    fn count_of_address(&self, peer: IpAddr) -> usize {
        let of_peer = self.unprotected.values().filter(|connection| connection.peer == peer);
        of_peer.map(|connection| 1 + connection.further).sum()
    }

    /// Removes the connection with this number from the unprotected ones, because it ends or becomes protected. Its
    /// further requests no longer count as unprotected either. `None` if the connection was removed before.
    fn remove_unprotected(&mut self, number: u64) -> Option<UnprotectedConnection> {
        let connection = self.unprotected.remove(&number)?;
        self.further -= connection.further;
        Some(connection)
    }

    /// Takes a place for a further concurrent request of the open connection `number`. At most `limit` places are taken
    /// in all, and at most `address_limit` by the unprotected connections of one address. `is_protected` says that the
    /// connection is protected: it has shown a valid key or needs none. The places of a protected connection are
    /// limited by `limit` alone.
    ///
    /// # Errors
    /// `Full` if all places, or all those for unprotected connections, are taken, or this connection is being closed
    /// for another one; `Crowded` if the address has its maximum number of unprotected connections and requests.
    fn add_further(
        &mut self,
        number: u64,
        is_protected: bool,
        (limit, address_limit): (usize, usize),
    ) -> Result<(), RequestPlaceError> {
        if self.count() >= limit {
            return Err(RequestPlaceError::Full);
        }
        if is_protected {
            self.protected += 1;
            return Ok(());
        }
        // An unprotected connection that is missing here was closed for another one.
        let peer = self.unprotected.get(&number).ok_or(RequestPlaceError::Full)?.peer;
        if self.count_unprotected() >= share_of_unprotected(limit) {
            return Err(RequestPlaceError::Full);
        }
        if self.count_of_address(peer) >= address_limit {
            return Err(RequestPlaceError::Crowded);
        }
        // Counted for the connection and in all.
        if let Some(connection) = self.unprotected.get_mut(&number) {
            connection.further += 1;
            self.further += 1;
        }
        Ok(())
    }

    /// Returns what the admission of a new connection of `peer` does next at the time `now`: take a free place, close
    /// an unprotected connection, or wait. A place is free if fewer than `limit` connections are open, the unprotected
    /// ones have not used up their share of these, and `peer` has fewer than `address_limit` unprotected ones. A
    /// connection may be closed once the server has waited for its client for [`EVICTION_TIMEOUT`]; one of the address
    /// with the most places is closed first.
    fn next_step(&self, peer: IpAddr, (limit, address_limit): (usize, usize), now: Instant) -> AdmissionStep {
        let is_crowded = self.count_of_address(peer) >= address_limit;
        let has_share = self.count_unprotected() < share_of_unprotected(limit);
        if !is_crowded && self.count() < limit && has_share {
            return AdmissionStep::Free;
        }
        // An address at its own bound closes only its own connections.
        let may_close = |connection: &UnprotectedConnection| !is_crowded || connection.peer == peer;
        // The places of each address: one for each connection, and one for each of its further concurrent requests.
        let mut places: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.unprotected.values() {
            *places.entry(connection.peer).or_default() += 1 + connection.further;
        }
        let is_slow = |connection: &UnprotectedConnection| {
            connection.waiting.is_some_and(|since| now.saturating_duration_since(since) >= EVICTION_TIMEOUT)
        };
        let connections = self.unprotected.iter();
        let slow = connections.filter(|(_, connection)| may_close(connection) && is_slow(connection));
        // Of the address with the most places, the connection for which the server has waited longest; of several, the
        // oldest.
        let slowest = slow.max_by_key(|(number, connection)| {
            let waited = connection.waiting.map(|since| now.saturating_duration_since(since));
            (places.get(&connection.peer).copied(), waited, std::cmp::Reverse(**number))
        });
        match slowest {
            Some((number, _)) => AdmissionStep::Close(*number),
            None => {
                // No connection may be closed yet. Returns when the first one may be, if the server waits for any.
                let others = self.unprotected.values().filter(|connection| may_close(connection));
                let earliest = others.filter_map(|connection| connection.waiting).min();
                AdmissionStep::Wait(earliest.map(|since| since + EVICTION_TIMEOUT))
            }
        }
    }

    /// Removes the unprotected connection (which has shown no valid key yet) with this number, and signals the task
    /// that serves it to end.
    fn close(&mut self, number: u64) {
        let close = self.remove_unprotected(number).and_then(|connection| connection.close);
        // Sending fails if the task has ended already; then nothing has to be closed.
        if let Some(close) = close {
            let _ = close.send(());
        }
    }
}

/// Returns the number of places that unprotected connections may take, of `most` in all. The rest, one in [`RESERVE`],
/// is for protected connections.
fn share_of_unprotected(most: usize) -> usize {
    most - most / RESERVE
}

/// The waiting place of a connection; released on drop.
#[derive(Debug)]
pub(crate) struct WaitingConnection {
    admission: Arc<Admission>,
    peer: IpAddr,
}

impl Drop for WaitingConnection {
    /// Releases the waiting place.
    fn drop(&mut self) {
        let mut open = self.admission.connections();
        let waiting = &mut open.waiting_of_address;
        let left = waiting.get(&self.peer).map_or(0, |count| count.saturating_sub(1));
        // An address without waiting connections has no entry: with one, its further connections would have to wait
        // (`Admission::is_crowded`).
        match left {
            0 => drop(waiting.remove(&self.peer)),
            _ => drop(waiting.insert(self.peer, left)),
        }
    }
}

/// Returns the address under which connections of `peer` are counted: for IPv6, its network of 64 bits, since one host
/// may have all addresses of the network.
fn address_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

impl ConnectionPlace {
    /// Returns the address of the client; of IPv6, its network of 64 bits.
    pub(crate) fn address(&self) -> IpAddr {
        self.peer
    }

    /// Protects the connection from being closed for another one: the client has shown a valid key, or has sent a
    /// complete request that needs none.
    pub(crate) fn protect(&self) {
        let mut open = self.admission.connections();
        // Has no effect on a connection that is protected already, or that was closed for another one.
        if let Some(connection) = open.remove_unprotected(self.number) {
            // The connection and its further requests count as protected from now on. The lock orders all accesses to
            // the flag, so `Relaxed` is enough.
            open.protected += 1 + connection.further;
            self.is_protected.store(true, Ordering::Relaxed);
            drop(open);
            self.admission.changed.notify_waiters();
        }
    }

    /// Takes a place for a request of this connection. The only open request of a connection uses the place of the
    /// connection; any further one takes a place of its own.
    ///
    /// # Errors
    /// If the request needs a place of its own, and all places, or all those of the address, are taken, or this
    /// connection is being closed for another one.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Result<RequestPlace, RequestPlaceError> {
        let Admission { most, most_of_address, .. } = *self.admission;
        // The lock orders all accesses to the two atomic fields, so `Relaxed` is enough.
        let mut open = self.admission.connections();
        if self.requests.load(Ordering::Relaxed) > 0 {
            let is_protected = self.is_protected.load(Ordering::Relaxed);
            open.add_further(self.number, is_protected, (most, most_of_address))?;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(RequestPlace(Arc::clone(self)))
    }

    /// Notes that the client has completed a step, so that the server does not wait for it now. Has no effect on a
    /// protected connection, for which waits are not measured.
    pub(crate) fn mark_active(&self) {
        if let Some(connection) = self.admission.connections().unprotected.get_mut(&self.number) {
            connection.waiting = None;
        }
    }

    /// Notes that the server waits for the client. A wait is measured from the first of these calls since the client
    /// last completed a step ([`Self::mark_active`]); after a long enough wait, an unprotected connection may be closed
    /// for another one. Has no effect on a protected connection.
    pub(crate) fn mark_waiting(&self) {
        let mut open = self.admission.connections();
        if let Some(connection) = open.unprotected.get_mut(&self.number)
            && connection.waiting.is_none()
        {
            connection.waiting = Some(Instant::now());
            drop(open);
            // Wakes the tasks that wait for a place: the time from which this connection may be closed is known now.
            self.admission.changed.notify_waiters();
        }
    }
}

impl Drop for ConnectionPlace {
    /// Releases the place, and wakes the tasks that wait for one. A connection is either protected (it has shown a
    /// valid key or needs none), and then counted in `protected`; or it has an entry by its number in `unprotected`.
    fn drop(&mut self) {
        let mut open = self.admission.connections();
        // Each open request refers to the place, so none is open now, and only one place is taken.
        if self.is_protected.load(Ordering::Relaxed) {
            open.protected = open.protected.saturating_sub(1);
        } else {
            // A connection that was closed to make room for another one has no entry any more.
            let _ = open.remove_unprotected(self.number);
        }
        drop(open);
        self.admission.changed.notify_waiters();
    }
}

impl Drop for RequestPlace {
    /// Ends the request. A connection takes one place for itself, and a further one for each open request beyond the
    /// first. So if other requests of the connection are open, one of its further places is released: for a protected
    /// connection (it has shown a valid key or needs none), the count `protected` decreases; for any other, the count
    /// in its entry of `unprotected`.
    fn drop(&mut self) {
        let Self(place) = self;
        let mut guard = place.admission.connections();
        let open = &mut *guard;
        // The number before the subtraction. The lock orders all accesses, so `Relaxed` is enough.
        if place.requests.fetch_sub(1, Ordering::Relaxed) > 1 {
            match open.unprotected.get_mut(&place.number) {
                Some(connection) => {
                    connection.further -= 1;
                    open.further -= 1;
                }
                // `protected` counts all places of a protected connection.
                None if place.is_protected.load(Ordering::Relaxed) => open.protected -= 1,
                // The connection was closed for another one, with all of its requests.
                None => return,
            }
            drop(guard);
            place.admission.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// Returns connections of these addresses, with the milliseconds for which the server has waited for each, if it
    /// has.
    fn open(strangers: &[(u8, Option<u64>)], known: usize, now: Instant) -> OpenConnections {
        let mut open = OpenConnections { protected: known, ..OpenConnections::default() };
        for (number, waited) in strangers {
            let number = open.add(peer(*number), oneshot::channel().0);
            let since = waited.map(|waited| now.checked_sub(Duration::from_millis(waited)).unwrap());
            open.unprotected.get_mut(&number).unwrap().waiting = since;
        }
        open
    }

    #[test]
    fn the_slowest_stranger_of_the_address_with_most_makes_room() {
        let now = Instant::now() + Duration::from_secs(3600);
        let later = |millis: u64| AdmissionStep::Wait(Some(now + Duration::from_millis(millis)));
        // Of eight places, two are reserved for connections with a valid key.
        let check = |strangers: &[(u8, Option<u64>)], known: usize, expected: &AdmissionStep| {
            let room = open(strangers, known, now).next_step(peer(9), (8, usize::MAX), now);
            assert_eq!(room, *expected, "{strangers:?} {known}");
        };
        check(&[], 0, &AdmissionStep::Free);
        check(&[(1, Some(9000)); 5], 0, &AdmissionStep::Free);
        check(&[(1, Some(9000)); 5], 2, &AdmissionStep::Free);
        check(&[(1, Some(9000)); 6], 0, &AdmissionStep::Close(1));
        check(&[(1, Some(9000)); 3], 5, &AdmissionStep::Close(1));
        // A connection with a valid key is never closed.
        check(&[], 8, &AdmissionStep::Wait(None));
        // The server has not waited for them, or not for long.
        check(&[(1, None); 6], 0, &AdmissionStep::Wait(None));
        check(&[(1, Some(100)), (1, Some(200)), (1, None), (1, None), (1, None), (1, None)], 0, &later(50));
        let slow = [
            (1, Some(300)),
            (1, Some(9000)),
            (1, Some(400)),
            (2, Some(9500)),
            (2, Some(9500)),
            (3, Some(9999)),
        ];
        check(&slow, 0, &AdmissionStep::Close(2));
        // Those of the address with the most connections are still fresh, and others are not.
        let fresh = [(1, None), (1, None), (1, None), (1, Some(10)), (2, Some(300)), (2, Some(400))];
        check(&fresh, 0, &AdmissionStep::Close(6));
    }

    #[test]
    fn an_address_at_its_limit_closes_its_own_connection() {
        let now = Instant::now() + Duration::from_secs(3600);
        let check = |strangers: &[(u8, Option<u64>)], of: u8, expected: &AdmissionStep| {
            let room = open(strangers, 0, now).next_step(peer(of), (64, 3), now);
            assert_eq!(room, *expected, "{strangers:?} {of}");
        };
        let three = [(2, Some(9999)), (1, Some(300)), (1, Some(400)), (1, None)];
        check(&three, 1, &AdmissionStep::Close(3));
        check(&three, 2, &AdmissionStep::Free);
        check(&[(2, Some(9999)), (1, None), (1, None), (1, None)], 1, &AdmissionStep::Wait(None));
        let later = AdmissionStep::Wait(Some(now + Duration::from_millis(150)));
        check(&[(2, Some(9999)), (1, None), (1, Some(100)), (1, Some(50))], 1, &later);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let check = |one: &str, other: &str, is_same: bool| {
            let of = |text: &str| address_of(text.parse().unwrap());
            assert_eq!(of(one) == of(other), is_same, "{one} {other}");
        };
        check("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true);
        check("2001:db8:1:2::1", "2001:db8:1:3::1", false);
        check("10.0.0.1", "::ffff:10.0.0.1", true);
        check("10.0.0.1", "10.0.0.2", false);
    }

    #[tokio::test]
    async fn waiting_connections_are_counted() {
        let admission = Admission::new(3, 2);
        let _places = [
            admission.acquire_place(peer(1), || panic!("there is room")).await,
            admission.acquire_place(peer(1), || panic!("there is room")).await,
        ];
        assert!(admission.is_crowded(peer(1)) && !admission.is_crowded(peer(2)));
        let aside: Vec<WaitingConnection> =
            (0..3).map(|_| admission.reserve_waiting_place(peer(1)).unwrap()).collect();
        assert!(admission.reserve_waiting_place(peer(1)).is_none());
        let other: Vec<WaitingConnection> =
            (0..3).map(|_| admission.reserve_waiting_place(peer(2)).unwrap()).collect();
        // The number of all waiting connections is bounded as well.
        assert!(admission.reserve_waiting_place(peer(3)).is_none());
        drop((aside, other));
        assert!(admission.connections().waiting_of_address.is_empty());
    }

    /// The first request of a connection has the place of the connection; others count as connections.
    #[tokio::test]
    async fn requests_of_one_connection_are_counted() {
        let admission = Admission::new(8, 3);
        let counts = || {
            let open = admission.connections();
            (open.protected, open.unprotected.len(), open.further)
        };
        let place = |number: u8| admission.acquire_place(peer(number), || panic!("there is room"));
        let (one, _one_told) = place(1).await;
        let first: Vec<RequestPlace> = (0..3).map(|_| one.begin_request().unwrap()).collect();
        assert_eq!(counts(), (0, 1, 2));
        assert_eq!(one.begin_request().unwrap_err(), RequestPlaceError::Crowded);
        assert!(admission.is_crowded(peer(1)));
        let (two, _two_told) = place(2).await;
        let second: Vec<RequestPlace> = (0..3).map(|_| two.begin_request().unwrap()).collect();
        // A quarter of the places is reserved for connections with a valid key.
        assert_eq!(counts(), (0, 2, 4));
        one.protect();
        assert_eq!(counts(), (3, 1, 2));
        let more: Vec<RequestPlace> = (0..2).map(|_| one.begin_request().unwrap()).collect();
        assert_eq!(one.begin_request().unwrap_err(), RequestPlaceError::Full);
        drop(first);
        assert_eq!(counts(), (2, 1, 2));
        // The requests of a connection that is closed for another one end with it.
        admission.connections().close(two.number);
        assert_eq!(counts(), (2, 0, 0));
        assert_eq!(two.begin_request().unwrap_err(), RequestPlaceError::Full);
        drop((second, two));
        drop((more, one));
        assert_eq!(counts(), (0, 0, 0));
        admission.wait_until_empty().await;
    }

    #[tokio::test]
    async fn slots_are_counted_on_every_path() {
        let admission = Admission::new(8, 0);
        let counts = || {
            let open = admission.connections();
            (open.protected, open.unprotected.len())
        };
        let mut places = Vec::new();
        for number in 0..6 {
            places.push(admission.acquire_place(peer(number), || panic!("there is room")).await);
        }
        let (kept, _told) = places.remove(0);
        kept.protect();
        kept.protect();
        kept.mark_waiting();
        assert_eq!(counts(), (1, 5));
        drop(kept);
        assert_eq!(counts(), (0, 5));
        let (closed, must_close) = places.remove(0);
        admission.connections().close(closed.number);
        assert!(must_close.await.is_ok());
        // The connection was closed before, so it is not counted as one with a valid key.
        closed.protect();
        drop(closed);
        assert_eq!(counts(), (0, 4));
        drop(places);
        admission.wait_until_empty().await;
    }
}
