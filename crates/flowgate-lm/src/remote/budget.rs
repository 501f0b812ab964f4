//! Defines [`RequestBudget`], which limits the requests and tokens of all models that share it. A request beyond the
//! budget fails before it is sent. `client.rs` counts each attempt, and the readers of answers (`remote.rs`,
//! `json_handler.rs`) charge the tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::chat::Usage;

/// A limit on the requests and tokens of all models that share it. A request that was admitted is completed, so
/// concurrent requests may exceed the limit of tokens by their own cost.
#[derive(Debug)]
pub struct RequestBudget {
    /// The most requests.
    requests: Option<u64>,
    /// The most tokens.
    tokens: Option<u64>,
    /// The requests so far.
    request_count: AtomicU64,
    /// The tokens so far.
    token_count: AtomicU64,
}

impl RequestBudget {
    /// Creates a budget of requests and tokens; `None` means no limit. Every attempt counts as a request.
    #[must_use]
    pub fn new(requests: Option<u64>, tokens: Option<u64>) -> Self {
        Self { requests, tokens, request_count: AtomicU64::new(0), token_count: AtomicU64::new(0) }
    }

    /// Returns the number of requests that were admitted.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.request_count.load(Ordering::Relaxed)
    }

    /// Returns the number of tokens that were spent, as the servers reported it, or an estimate if a server did not.
    #[must_use]
    pub fn token_count(&self) -> u64 {
        self.token_count.load(Ordering::Relaxed)
    }

    /// Counts a request that is about to be sent, or fails if the budget is spent. The tokens of a request are known
    /// only after its answer, so the requests that are open when the limit for tokens is reached can exceed it.
    pub(super) fn admit(&self) -> Result<(), Error> {
        if self.tokens.is_some_and(|limit| self.token_count() >= limit) {
            return Err(Error::OverBudget(
                "the limit for tokens is reached; raise the limit that the program passes to `RequestBudget::new`",
            ));
        }
        // The number of requests is compared and counted in one atomic step, so that threads cannot exceed the limit.
        let limit = self.requests.unwrap_or(u64::MAX);
        let next = |admitted: u64| (admitted < limit).then(|| admitted.saturating_add(1));
        let counted = self.request_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        counted.map(|_| ()).map_err(|_| Error::OverBudget("the limit for requests is reached; raise the limit that the program passes to `RequestBudget::new`"))
    }

    /// Adds the tokens of one answer and its request to the tokens that were spent.
    fn spend(&self, usage: Usage) {
        let cost = usage.input.saturating_add(usage.output);
        let add = |spent: u64| Some(spent.saturating_add(cost));
        // `add` always returns a number, so the update cannot fail.
        let _ = self.token_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The cost of an answer that is being read. The budget is charged when this value is dropped, so that an abandoned
/// answer costs as many tokens as have arrived.
#[derive(Debug)]
pub(super) struct PendingCost {
    budget: Arc<RequestBudget>,
    /// The cost so far.
    pub(super) usage: Usage,
}

impl PendingCost {
    /// Creates the pending cost of an answer. `usage` is the cost so far; the reader of the answer later raises or
    /// replaces the field `usage`.
    pub(super) fn new(budget: Arc<RequestBudget>, usage: Usage) -> Self {
        Self { budget, usage }
    }
}

impl Drop for PendingCost {
    /// Charges the budget with the cost so far.
    fn drop(&mut self) {
        self.budget.spend(self.usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_a_limit_are_refused() {
        let cost = |input, output| Usage { input, output, cached: 0 };
        let budget = RequestBudget::new(Some(2), Some(10));
        assert_eq!(budget.admit(), Ok(()));
        budget.spend(cost(4, 5));
        assert_eq!(budget.admit(), Ok(()));
        assert_eq!(
            budget.admit(),
            Err(Error::OverBudget(
                "the limit for requests is reached; raise the limit that the program passes to `RequestBudget::new`"
            ))
        );
        budget.spend(cost(1, 0));
        assert_eq!(
            budget.admit(),
            Err(Error::OverBudget(
                "the limit for tokens is reached; raise the limit that the program passes to `RequestBudget::new`"
            ))
        );
        assert_eq!((budget.request_count(), budget.token_count()), (2, 10));
        let free = RequestBudget::new(None, None);
        free.spend(cost(u64::MAX, u64::MAX));
        assert_eq!((free.admit(), free.token_count()), (Ok(()), u64::MAX));
    }

    #[test]
    fn threads_share_it() {
        let budget = RequestBudget::new(Some(100), None);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).filter(|_| budget.admit().is_ok()).count());
            }
        });
        assert_eq!(budget.request_count(), 100);
    }
}
