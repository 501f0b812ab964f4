//! Defines [`RetryPolicy`], which decides whether, and after which delay, [`HttpClient`](super::client::HttpClient)
//! sends a failed request again: only after temporary failures, such as a busy server, and a limited number of times.
//! Also defines [`AttemptFailure`], the failure of one attempt, and reads the delay that a server requests.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;

/// Receives the error of each attempt after which a request is sent again.
pub type RetryObserver = Arc<dyn Fn(&Error) + Send + Sync>;

/// The number of retries, and the delays before them. The delays have no random part, so that runs are
/// reproducible.
///
/// Failed connections, truncated answers and the statuses 408, 409, 429 and 5xx are retried. A timeout is retried only
/// while no connection exists: otherwise, the next attempt would most likely time out as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of retries; 0 disables them.
    pub times: u32,
    /// The delay before the first retry; it doubles with each further retry.
    pub first: Duration,
    /// The longest delay. A request is not retried if the server requests a longer delay.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy with four retries, after 0.5, 1, 2 and 4 seconds, or after a longer delay that the server
    /// requests, of at most a minute.
    fn default() -> Self {
        Self { times: 4, first: Duration::from_millis(500), longest: Duration::from_secs(60) }
    }
}

impl RetryPolicy {
    /// Returns the delay before a failed attempt is retried; `attempt` is the index of the failed attempt, from 0. The
    /// delay doubles with each attempt, and is at least what the server requests. `None` if there is no retry, because
    /// the failure would recur, all retries (`self.times`) are used up, or the server requests more than the longest
    /// delay.
    pub(super) fn delay(&self, attempt: u32, failure: &AttemptFailure) -> Option<Duration> {
        if !failure.is_retryable || attempt >= self.times {
            return None;
        }
        let own_delay = self.first.saturating_mul(2_u32.saturating_pow(attempt)).min(self.longest);
        let requested = failure.retry_after.unwrap_or_default();
        (requested <= self.longest).then(|| own_delay.max(requested))
    }
}

/// A failed attempt to send a request and to read its answer.
#[derive(Debug)]
pub(super) struct AttemptFailure {
    /// The error that the caller gets if there is no retry.
    pub(super) error: Error,
    /// Whether a retry may succeed.
    pub(super) is_retryable: bool,
    /// The delay that the server requests, if it requests one.
    pub(super) retry_after: Option<Duration>,
}

impl AttemptFailure {
    /// Creates the failure of an attempt that may be retried, whatever the error is.
    pub(super) fn transient(error: Error) -> Self {
        Self { is_retryable: true, ..Self::from(error) }
    }
}

impl From<Error> for AttemptFailure {
    /// Decides from the error alone whether a retry may succeed: yes if the server is busy, or if the status of its
    /// answer describes a temporary condition.
    fn from(error: Error) -> Self {
        let is_retryable = error.is_temporary();
        let retry_after = match &error {
            Error::Busy { retry_after } => *retry_after,
            _ => None,
        };
        Self { error, is_retryable, retry_after }
    }
}

/// Returns the delay that a server requests before a retry. `seconds` is the header `retry-after` of its answer, and
/// `milliseconds` is `retry-after-ms`, which takes precedence. `None` if neither is a number, or if the delay is
/// negative or too large. A date in `retry-after` is ignored, because clocks differ.
pub(super) fn retry_after(seconds: Option<&str>, milliseconds: Option<&str>) -> Option<Duration> {
    let read = |text: Option<&str>| text?.trim().parse::<f64>().ok();
    let seconds = read(milliseconds).map(|number| number / 1000.0).or_else(|| read(seconds))?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_longest() {
        let retries =
            RetryPolicy { times: 6, first: Duration::from_millis(500), longest: Duration::from_secs(8) };
        let busy = |retry_after: Option<u64>| {
            AttemptFailure::from(Error::Busy { retry_after: retry_after.map(Duration::from_secs) })
        };
        let check = |failure: &AttemptFailure, expected: &[Option<u64>]| {
            let waits: Vec<Option<u64>> = (0..7)
                .map(|attempt| {
                    retries.delay(attempt, failure).map(|wait| wait.as_millis().try_into().unwrap())
                })
                .collect();
            assert_eq!(waits, expected, "{failure:?}");
        };
        let doubled = [Some(500), Some(1000), Some(2000), Some(4000), Some(8000), Some(8000), None];
        check(&busy(None), &doubled);
        check(&AttemptFailure::transient(Error::Unreachable(String::new())), &doubled);
        check(
            &busy(Some(3)),
            &[Some(3000), Some(3000), Some(3000), Some(4000), Some(8000), Some(8000), None],
        );
        check(&busy(Some(9)), &[None; 7]);
        check(&AttemptFailure::from(Error::Timeout), &[None; 7]);
        for (status, is_retryable) in
            [(400, false), (401, false), (408, true), (409, true), (500, true), (502, true)]
        {
            let failure = AttemptFailure::from(Error::Rejected { status, message: String::new() });
            assert_eq!(failure.is_retryable, is_retryable, "{status}");
        }
    }

    #[test]
    fn headers_state_the_wait() {
        let check = |seconds: &str, milliseconds: Option<&str>, expected: Option<u64>| {
            assert_eq!(
                retry_after(Some(seconds), milliseconds),
                expected.map(Duration::from_millis),
                "{seconds}"
            );
        };
        check("2", None, Some(2000));
        check(" 0.5 ", None, Some(500));
        check("2", Some("30"), Some(30));
        for bad in ["-1", "nan", "inf", "1e99", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            check(bad, None, None);
        }
    }
}
