//! Limits the failed logins of one IP address. Otherwise, one address could try many keys (`session_routes`), or make
//! the gateway ask an issuer about many invented codes (`login_routes`). Failures with keys and failures with codes
//! are counted separately.
//!
//! While an address is refused, a login with a valid key fails too: otherwise the answers would reveal which key is
//! valid. Other requests with a session or a key are not affected.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most failed logins of one address in a [`WINDOW`].
pub(crate) const MAX_FAILURES: u32 = 10;
/// The time for which failed logins are counted, from the first one on.
const WINDOW: Duration = Duration::from_mins(1);
/// The most addresses whose failures are counted at the same time; beyond them, the oldest count is dropped.
const MAX_ADDRESSES: usize = 4096;

/// The failed logins of each address.
#[derive(Debug, Default)]
pub(crate) struct LoginFailures(Mutex<BTreeMap<IpAddr, FailureCount>>);

/// The failed logins of one address in a window.
#[derive(Debug, Clone, Copy)]
struct FailureCount {
    begun: Instant,
    count: u32,
}

impl LoginFailures {
    /// Returns whether the address has failed as often as it may, so that its logins are refused at `now`.
    pub(crate) fn is_refused(&self, address: IpAddr, now: Instant) -> bool {
        self.counts()
            .get(&address)
            .is_some_and(|failures| failures.count >= MAX_FAILURES && !failures.is_over(now))
    }

    /// Counts a failed login of an address at `now`. If there is no room for a further address, forgets the addresses
    /// whose window is over or, if there are none, the address whose count began first.
    pub(crate) fn count(&self, address: IpAddr, now: Instant) {
        let mut counts = self.counts();
        if !counts.contains_key(&address) && counts.len() >= MAX_ADDRESSES {
            counts.retain(|_, failures| !failures.is_over(now));
            if counts.len() >= MAX_ADDRESSES {
                let oldest =
                    counts.iter().min_by_key(|(_, failures)| failures.begun).map(|(oldest, _)| *oldest);
                oldest.map(|oldest| counts.remove(&oldest));
            }
        }
        // Begins a window with the first failure, and another one with the first failure after its end.
        let failures = counts.entry(address).or_insert(FailureCount { begun: now, count: 0 });
        if failures.is_over(now) {
            *failures = FailureCount { begun: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
    }

    /// Locks the counts, also after a panic.
    fn counts(&self) -> MutexGuard<'_, BTreeMap<IpAddr, FailureCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailureCount {
    /// Returns whether the window of this count has ended at `now`, so that the count no longer applies.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn an_address_is_refused_for_the_rest_of_a_minute() {
        let (failures, begun) = (LoginFailures::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        for number in 0..MAX_FAILURES {
            assert!(!failures.is_refused(address(1), at(0)), "{number}");
            failures.count(address(1), at(0));
        }
        assert!(failures.is_refused(address(1), at(59)));
        assert!(!failures.is_refused(address(2), at(0)));
        assert!(!failures.is_refused(address(1), at(60)));
        failures.count(address(1), at(60));
        assert!(!failures.is_refused(address(1), at(60)));
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let (failures, begun) = (LoginFailures::default(), Instant::now());
        for number in 0..MAX_ADDRESSES + 10 {
            let number = u32::try_from(number).unwrap();
            failures.count(address(number), begun + Duration::from_micros(number.into()));
        }
        assert_eq!(failures.counts().len(), MAX_ADDRESSES);
        assert!(!failures.counts().contains_key(&address(9)) && failures.counts().contains_key(&address(10)));
    }
}
