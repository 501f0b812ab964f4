//! Defines the authenticated virtual key or token of a request, with the limits that apply in addition to the limits of
//! its client. `chat::authentication` creates it after it has found the key in the database, or verified the token.

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
    /// The id that separates the conversations of the key, or of the caller with a token, from others.
    pub(crate) id: String,
    /// The most requests in a minute.
    pub(crate) requests_per_minute: Option<u32>,
    /// The tokens and the money that the models may use on one day.
    pub(crate) budget: Budget,
    /// The models that requests may name; an empty list permits all models of the client.
    models: Vec<String>,
    /// The id by which requests and spending are counted.
    account: String,
    /// The parameters of the policy that the claims of a token set; empty for a virtual key.
    pub(crate) input: Map<String, Value>,
    /// The time at which the token expires; `None` for a virtual key, whose expiry the database checks.
    pub(crate) expires: Option<SystemTime>,
}

impl ValidKey {
    /// Creates the key from its row in the database. `prices` are the prices of the configuration.
    pub(crate) fn new(stored: StoredVirtualKey, prices: &Arc<Prices>) -> Self {
        let limits = stored.limits;
        let budget = Budget {
            tokens_per_day: limits.tokens_per_day,
            cost_per_day: limits.cost_per_day,
            prices: Arc::clone(prices),
        };
        // A virtual key sets no parameters of the policy, and the database checks when it expires.
        let (account, input, expires) = (stored.id.clone(), Map::new(), None);
        let (requests_per_minute, models) = (limits.requests_per_minute, limits.models);
        Self { id: stored.id, requests_per_minute, budget, models, account, input, expires }
    }

    /// Creates the value for the caller of a request with a token. `own` is the client's section `token`, which has the
    /// limits of each caller, and `expires` is the time at which the token expires.
    pub(crate) fn of_token(
        caller: TokenCaller,
        (own, expires): (&ClientToken, SystemTime),
        prices: &Arc<Prices>,
    ) -> Self {
        let TokenCaller { id, account, input } = caller;
        // The section has no setting for the cost of one caller.
        let budget =
            Budget { tokens_per_day: own.tokens_per_day, cost_per_day: None, prices: Arc::clone(prices) };
        // An empty list permits every model.
        let (requests_per_minute, models) = (own.requests_per_minute, Vec::new());
        Self { id, requests_per_minute, budget, models, account, input, expires: Some(expires) }
    }

    /// Returns the name under which the requests and the spending of the key are counted. No client has such a name.
    pub(crate) fn account(&self) -> String {
        scope(Some(&self.account))
    }

    /// Returns whether a request with the key may name this model.
    pub(crate) fn permits_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|permitted| permitted == model)
    }

    /// Returns the models that requests with the key may name, separated by commas; empty if all are permitted.
    pub(crate) fn models(&self) -> String {
        self.models.join(", ")
    }
}
