//! Defines [`JsonHandler`], which reads the answer of a server if the answer is one JSON text and not a stream: the
//! answer to a request for embeddings, or for the log-probability of a given text. `remote.rs` and `score.rs` use this
//! module.

use std::sync::Arc;

use serde_json::Value;

use super::budget::PendingCost;
use super::client::{HttpClient, ResponseHandler};
use super::response::HttpResponse;
use super::retry::AttemptFailure;
use crate::chat::Usage;
use crate::estimate;
use crate::wire::reported_error;

/// Reads the body of an answer as one JSON text, and charges the budget of the client for the request and its answer.
pub(super) struct JsonHandler<'a> {
    pub(super) client: &'a HttpClient,
    /// The size of the request, from which its cost is estimated.
    pub(super) request_bytes: usize,
}

impl ResponseHandler for JsonHandler<'_> {
    type Out = Value;

    /// Reads the answer as one JSON text. The cost is first estimated from the size of the request; the usage that the
    /// server reports replaces the estimate. The budget, if there is one, is charged when `cost` is dropped, and so
    /// also for an answer that cannot be read. Fails if the answer describes an error.
    async fn read(&mut self, mut answer: HttpResponse) -> Result<Value, AttemptFailure> {
        let mut cost = self.client.budget.as_ref().map(|budget| {
            let usage = Usage { input: estimate::tokens(self.request_bytes), output: 0, cached: 0 };
            PendingCost::new(Arc::clone(budget), usage)
        });
        let answer = answer.json().await?;
        if let Some(cost) = &mut cost {
            let usage = answer.get("usage");
            let count = |key: &str| usage.and_then(|usage| usage.get(key)).and_then(Value::as_u64);
            cost.usage.input = count("prompt_tokens").unwrap_or(cost.usage.input);
            // An answer without generated tokens, such as one with embeddings, has no `completion_tokens`.
            cost.usage.output = count("completion_tokens").unwrap_or(0);
        }
        match answer.get("error").filter(|error| !error.is_null()) {
            Some(error) => Err(reported_error(error).into()),
            None => Ok(answer),
        }
    }
}
