//! Bounds the memory of all values parsed from JSON: in bodies of requests, in answers of servers, and in conversations
//! in use. The HTTP service, the model routes and the MCP routes take a share of the [`ValueBudget`] before they parse
//! a text, and a conversation takes one while a request uses it.
//!
//! There is one budget, so that concurrent requests cannot take more than the operator has set. A request for which the
//! budget has no room fails instead of waiting: a waiting request would hold room for which others wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The budget for the estimated memory of all values at the same time. Clones share the budget.
#[derive(Debug, Clone)]
pub(crate) struct ValueBudget {
    /// The whole budget in bytes.
    most: usize,
    /// The free KiB.
    free: Arc<Semaphore>,
}

/// The bounded quantity, as the log names it.
pub(crate) const LIMIT_NAME: &str = "bytes of the values of all bodies, answers of servers and conversations";
/// The option that raises the bound.
pub(crate) const LIMIT_SETTING: &str = "--max-values";

/// A share of the budget; returned on drop.
pub(crate) type ValueBudgetShare = OwnedSemaphorePermit;

/// The reason why a share of the budget is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueBudgetError {
    /// One body or answer exceeds the share that one may take.
    TooLarge,
    /// The budget is exhausted.
    Taken,
}

impl ValueBudget {
    /// Creates a budget of `most` bytes, rounded down to KiB.
    pub(crate) fn new(most: usize) -> Self {
        // A permit of the semaphore is one KiB, because at most `u32::MAX` permits can be taken at once.
        Self { most, free: Arc::new(Semaphore::new((most >> 10).min(Semaphore::MAX_PERMITS))) }
    }

    /// Returns the budget in bytes.
    pub(crate) fn total_bytes(&self) -> usize {
        self.most
    }

    /// Returns the bytes that one body or one answer may take: a quarter of the budget.
    pub(crate) fn max_share_bytes(&self) -> usize {
        self.most / 4
    }

    /// Takes `bytes` for one body or one answer, which may take at most a quarter of the budget.
    ///
    /// # Errors
    /// `TooLarge` if `bytes` exceed a quarter of the budget; `Taken` if that many bytes are not free now.
    pub(crate) fn take(&self, bytes: usize) -> Result<ValueBudgetShare, ValueBudgetError> {
        if bytes > self.max_share_bytes() {
            return Err(ValueBudgetError::TooLarge);
        }
        self.take_within(bytes)
    }

    /// Takes `bytes` for a conversation, but at most half of the budget. The size of a conversation has a bound of its
    /// own, which may exceed this budget: a large conversation can be used nevertheless.
    pub(crate) fn take_for_conversation(&self, bytes: usize) -> Result<ValueBudgetShare, ValueBudgetError> {
        self.take_within(bytes.min(self.most / 2))
    }

    /// Takes `bytes` of the budget, which counts in KiB: the whole KiB in `bytes`, and one more, so that no text is
    /// free.
    ///
    /// # Errors
    /// `TooLarge` if the number exceeds every budget; `Taken` if that many bytes are not free now.
    fn take_within(&self, bytes: usize) -> Result<ValueBudgetShare, ValueBudgetError> {
        let kib = u32::try_from((bytes >> 10) + 1).map_err(|_| ValueBudgetError::TooLarge)?;
        Arc::clone(&self.free).try_acquire_many_owned(kib).map_err(|_| ValueBudgetError::Taken)
    }

    /// Returns the bytes that are taken.
    pub(crate) fn taken_bytes(&self) -> usize {
        // In KiB, like the permits of the semaphore.
        let all = (self.most >> 10).min(Semaphore::MAX_PERMITS);
        all.saturating_sub(self.free.available_permits()) << 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_bytes_are_released() {
        let values = ValueBudget::new(8 << 20);
        assert_eq!(values.take((2 << 20) + 1).err(), Some(ValueBudgetError::TooLarge));
        let shares: Vec<ValueBudgetShare> = (0..3).map(|_| values.take((2 << 20) - 1).unwrap()).collect();
        assert_eq!(values.taken_bytes(), 6 << 20);
        // Half of the budget is not free.
        assert_eq!(values.take_for_conversation(1 << 40).err(), Some(ValueBudgetError::Taken));
        drop(shares);
        assert_eq!(values.taken_bytes(), 0);
        let share = values.take_for_conversation(1 << 40).unwrap();
        assert_eq!(values.taken_bytes(), (4 << 20) + 1024);
        assert_eq!(values.take((2 << 20) - 1).map(|share| share.num_permits()), Ok(2048));
        drop(share);
    }
}
