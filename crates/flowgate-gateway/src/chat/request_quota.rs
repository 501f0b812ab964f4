//! Counts the requests of a client at one gateway against the client's quota. `clients` owns one count for each client.
//!
//! Gateways that share a database also count all their requests together [in the
//! database](crate::database::Database::take_request). The count here then saves queries: it refuses requests that
//! exceed the quota already at this gateway alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The quota of a client: a leaky bucket that holds the requests of a minute, and drains them steadily.
#[derive(Debug)]
pub(super) struct RequestQuota {
    per_minute: f64,
    /// Shared with the quotas of the same client under earlier and later configurations.
    state: Arc<Mutex<QuotaState>>,
}

/// The level of the bucket.
#[derive(Debug)]
struct QuotaState {
    /// The number of requests that counted at `since`; it may be fractional.
    used: f64,
    /// The time of the last request, or of the creation of the quota.
    since: Instant,
}

impl RequestQuota {
    /// Creates an unused quota of `per_minute` requests.
    pub(super) fn new(per_minute: u32) -> Self {
        let state = QuotaState { used: 0.0, since: Instant::now() };
        Self { per_minute: f64::from(per_minute), state: Arc::new(Mutex::new(state)) }
    }

    /// Returns this quota under a reloaded configuration, which allows `per_minute` requests. The requests that were
    /// made under the earlier one still count.
    pub(super) fn reconfigured(&self, per_minute: u32) -> Self {
        Self { per_minute: f64::from(per_minute), state: Arc::clone(&self.state) }
    }

    /// Takes one request, which arrives at `now`, from the quota. A quota that was used up is fully available again
    /// after a minute without requests.
    ///
    /// # Errors
    /// If the quota is exhausted: the number of whole seconds until the next request is allowed, plus one for the
    /// fraction of a second that is cut off.
    pub(super) fn take(&self, now: Instant) -> Result<(), u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The requests that have drained from the bucket since the last one.
        let drained = now.saturating_duration_since(state.since).as_secs_f64() * self.per_minute / 60.0;
        // `min`: a reload may have lowered the quota, and a bucket that is fuller than the lower quota would need more
        // than a minute to drain.
        state.used = (state.used.min(self.per_minute) - drained).max(0.0);
        state.since = now;
        if state.used + 1.0 <= self.per_minute {
            state.used += 1.0;
            return Ok(());
        }
        // The time until enough has drained that one more request fits.
        let wait = Duration::from_secs_f64((state.used + 1.0 - self.per_minute) * 60.0 / self.per_minute);
        Err(wait.as_secs() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_refills_over_a_minute() {
        let (quota, start) = (RequestQuota::new(2), Instant::now() + Duration::from_secs(1));
        let check = |seconds: u64, expected| {
            assert_eq!(quota.take(start + Duration::from_secs(seconds)), expected, "after {seconds} s");
        };
        check(0, Ok(()));
        check(0, Ok(()));
        check(0, Err(31));
        check(29, Err(2));
        check(30, Ok(()));
        check(31, Err(30));
        // A pause of any length refills the quota to its maximum and no further.
        check(3600, Ok(()));
        check(3600, Ok(()));
        check(3600, Err(31));
    }

    /// A reload gives no client its quota back.
    #[test]
    fn a_reload_keeps_what_was_used() {
        let start = Instant::now() + Duration::from_secs(1);
        let check = |later: u32, expected: [Result<(), u64>; 3]| {
            let quota = RequestQuota::new(2);
            assert_eq!([(); 2].map(|()| quota.take(start)), [Ok(()); 2]);
            let reloaded = quota.reconfigured(later);
            let taken = [0, 60, 60].map(|seconds| reloaded.take(start + Duration::from_secs(seconds)));
            assert_eq!(taken, expected, "{later}");
        };
        check(2, [Err(31), Ok(()), Ok(())]);
        check(1, [Err(61), Ok(()), Err(61)]);
        check(4, [Ok(()), Ok(()), Ok(())]);
    }
}
