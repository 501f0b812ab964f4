//! Counts the requests of a client at one gateway against the client's quota. `clients` owns one count for each client.
//!
//! Gateways that share a database count [in the database](crate::database::Database::take_request) as well; the count
//! here then refuses requests that exceed the quota at this gateway alone, without a query.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The quota of a client: a token bucket (its tokens are requests) that refills completely over one minute.
#[derive(Debug)]
pub(super) struct RequestQuota {
    per_minute: f64,
    state: Mutex<QuotaState>,
}

/// The level of the token bucket.
#[derive(Debug)]
struct QuotaState {
    /// The number of requests that were still allowed at `since`; it may be fractional.
    left: f64,
    /// The time of the last request, or of the creation of the quota.
    since: Instant,
}

impl RequestQuota {
    /// Creates a full quota of `per_minute` requests.
    pub(super) fn new(per_minute: u32) -> Self {
        let per_minute = f64::from(per_minute);
        Self { per_minute, state: Mutex::new(QuotaState { left: per_minute, since: Instant::now() }) }
    }

    /// Takes one request from the quota, which refills steadily up to the requests of one minute (a token bucket).
    ///
    /// # Errors
    /// If the quota is exhausted: the number of whole seconds until the next request is allowed, plus one for the
    /// fraction of a second that is cut off.
    pub(super) fn take(&self, now: Instant) -> Result<(), u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = now.saturating_duration_since(state.since).as_secs_f64() * self.per_minute / 60.0;
        state.left = (state.left + filled).min(self.per_minute);
        state.since = now;
        if state.left >= 1.0 {
            state.left -= 1.0;
            return Ok(());
        }
        let wait = Duration::from_secs_f64((1.0 - state.left) * 60.0 / self.per_minute);
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
}
