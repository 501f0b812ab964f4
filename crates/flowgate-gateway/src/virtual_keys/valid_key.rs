//! Defines a virtual key that a request has shown, with the limits that apply in addition to those of its client.
//! `chat::authentication` creates it once the database has the key.

use std::sync::Arc;

use super::scope::scope;
use crate::config::Budget;
use crate::config::Prices;
use crate::database::StoredVirtualKey;

/// A key that was neither revoked nor expired when its request arrived.
#[derive(Debug)]
pub(crate) struct ValidKey {
    pub(crate) id: String,
    /// The most requests in a minute.
    pub(crate) requests_per_minute: Option<u32>,
    /// What the models may use on one day.
    pub(crate) budget: Budget,
    /// The models that may be asked for; an empty list for all that the client may ask for.
    models: Vec<String>,
}

impl ValidKey {
    /// Creates the key from its row. `prices` are those of the configuration.
    pub(crate) fn new(stored: StoredVirtualKey, prices: &Arc<Prices>) -> Self {
        let limits = stored.limits;
        let budget = Budget {
            tokens_per_day: limits.tokens_per_day,
            cost_per_day: limits.cost_per_day,
            prices: Arc::clone(prices),
        };
        Self { id: stored.id, requests_per_minute: limits.requests_per_minute, budget, models: limits.models }
    }

    /// Returns the name under which the requests and the spending of the key are counted, which no client has.
    pub(crate) fn account(&self) -> String {
        scope(Some(&self.id))
    }

    /// Returns whether the key may be used to ask for a model.
    pub(crate) fn permits_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|permitted| permitted == model)
    }

    /// Returns the models that may be asked for, separated by commas.
    pub(crate) fn models(&self) -> String {
        self.models.join(", ")
    }
}
