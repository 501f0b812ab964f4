//! Defines a virtual key or a token that a request has shown, with the limits that apply in addition to those of its
//! client. `chat::authentication` creates it once the database has the key, or the token has been verified.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};

use super::scope::scope;
use crate::config::Budget;
use crate::config::Prices;
use crate::database::StoredVirtualKey;
use crate::identity::client_token::{ClientToken, TokenCaller};

/// A key or a token that was neither revoked nor expired when its request arrived.
#[derive(Debug)]
pub(crate) struct ValidKey {
    pub(crate) id: String,
    /// The most requests in a minute.
    pub(crate) requests_per_minute: Option<u32>,
    /// What the models may use on one day.
    pub(crate) budget: Budget,
    /// The models that may be asked for; an empty list for all that the client may ask for.
    models: Vec<String>,
    /// The id by which requests and spending are counted.
    account: String,
    /// The parameters of the policy that a token has.
    pub(crate) input: Map<String, Value>,
    /// When the token expires; `None` for a virtual key, for which the database is asked.
    pub(crate) expires: Option<SystemTime>,
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
        let (account, input, expires) = (stored.id.clone(), Map::new(), None);
        let (requests_per_minute, models) = (limits.requests_per_minute, limits.models);
        Self { id: stored.id, requests_per_minute, budget, models, account, input, expires }
    }

    /// Creates the key that represents the caller of a request with a token, which `own` accepts until `expires`.
    pub(crate) fn of_token(
        caller: TokenCaller,
        (own, expires): (&ClientToken, SystemTime),
        prices: &Arc<Prices>,
    ) -> Self {
        let TokenCaller { id, account, input } = caller;
        let budget =
            Budget { tokens_per_day: own.tokens_per_day, cost_per_day: None, prices: Arc::clone(prices) };
        let (requests_per_minute, models) = (own.requests_per_minute, Vec::new());
        Self { id, requests_per_minute, budget, models, account, input, expires: Some(expires) }
    }

    /// Returns the name under which the requests and the spending of the key are counted, which no client has.
    pub(crate) fn account(&self) -> String {
        scope(Some(&self.account))
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
