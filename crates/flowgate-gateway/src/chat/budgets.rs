//! Enforces the budgets of clients: counts what their models use, and refuses requests after a budget is used up.
//!
//! A turn that has begun ends, also if it exceeds the budget: requests in parallel may together use more than is left.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use flowgate_lm::chat::{Completion, Request, Usage};
use flowgate_lm::estimated_input_tokens;

use super::ModelRoutes;
use super::client_limits::{ClientLimit, QuotaRefusal};
use super::clients::ClientState;
use crate::config::ClientSettings;
use crate::log::LogEvent;

/// The bytes of an answer for one token, where the server does not report tokens: an estimate.
const BYTES_PER_TOKEN: usize = 4;

/// What the models of one turn have used, by the name of the model.
#[derive(Debug, Default)]
pub(super) struct TurnSpending(Mutex<BTreeMap<String, Usage>>);

impl TurnSpending {
    /// Adds a completion of a model. If its server has reported no tokens, they are estimated: otherwise a server without
    /// a report would have no budget.
    pub(super) fn add(&self, model: &str, request: &Request, completion: &Completion) {
        let usage = match completion.usage {
            Usage { input: 0, output: 0 } => {
                let calls = completion.calls.iter().map(|call| call.name.len() + call.arguments.len());
                let bytes = completion.text.len() + calls.sum::<usize>();
                let output = u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
                Usage { input: estimated_input_tokens(request), output }
            }
            reported => reported,
        };
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = spent.entry(model.to_owned()).or_default();
        *total = total.plus(usage);
    }

    /// Returns the number of tokens, and their cost in millionths of the currency, rounded up.
    fn total(&self, client: &ClientSettings) -> (u64, u64) {
        let spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = spent.values().map(|usage| usage.input.saturating_add(usage.output));
        let cost: f64 = spent.iter().map(|(model, usage)| client.budget.prices.cost(model, *usage)).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is not negative"
        )]
        let cost = cost.ceil() as u64;
        (tokens.fold(0, u64::saturating_add), cost)
    }
}

impl ModelRoutes {
    /// Refuses a request of a client whose budget for today is used up, and logs the limit.
    ///
    /// # Errors
    /// If the budget is used up, or the database cannot say so.
    pub(super) async fn check_budget(
        &self,
        client: &ClientState,
        conversation: Option<&str>,
    ) -> Result<(), QuotaRefusal> {
        let budget = &client.spec.budget;
        if !budget.is_limited() {
            return Ok(());
        }
        let spent = self.sessions.store().spent_today(&client.spec.name).await;
        let spent = spent.map_err(|error| self.quota_failure(client, conversation, error))?;
        let is_used_up = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        let (limit, what) = if is_used_up(budget.tokens_per_day, spent.tokens) {
            (ClientLimit::Tokens, "tokens")
        } else if is_used_up(budget.cost_per_day, spent.cost) {
            (ClientLimit::Cost, "cost")
        } else {
            return Ok(());
        };
        self.client_limit(client, conversation, limit);
        let message = format!(
            "this client has used its budget of {what} for today: wait until midnight UTC, or ask the operator of the gateway"
        );
        Err(QuotaRefusal::new(StatusCode::TOO_MANY_REQUESTS, message, spent.seconds_left))
    }

    /// Adds what a turn has used to what its client has used today. If it cannot be stored, the operator's log says so.
    pub(super) async fn record_spending(&self, client: &ClientSettings, spent: &TurnSpending) {
        let (tokens, cost) = spent.total(client);
        if !client.budget.is_limited() || (tokens, cost) == (0, 0) {
            return;
        }
        self.metrics.count_cost(&client.name, cost);
        if let Err(error) = self.sessions.store().add_spending(&client.name, tokens, cost).await {
            let sentence = format!("{tokens} tokens were not counted against the budget: {error}");
            self.log.write(LogEvent::Failure, &client.name, Vec::new(), &sentence);
        }
    }
}
