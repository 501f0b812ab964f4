//! Enforces the budgets of clients: counts what their models use, and refuses requests after a budget is used up.
//!
//! A turn that has begun ends, also if it exceeds the budget: requests in parallel may together use more than is left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use flowgate_lm::chat::{Completion, Request, Usage};
use flowgate_lm::{estimated_input_tokens, estimated_tokens, estimated_usage};
use tokio::runtime::Handle;

use super::ModelRoutes;
use super::client_limits::{ClientLimit, QuotaRefusal};
use super::clients::ClientState;
use crate::config::ClientSettings;
use crate::database::Database;
use crate::log::{LogEvent, OperatorLog};
use crate::metrics::agents::AgentMetrics;

/// What the models of one turn have used, by the name of the model, until it is recorded. If a turn is cut off before that,
/// it is recorded when this is dropped.
#[derive(Debug)]
pub(super) struct TurnSpending {
    client: Arc<ClientState>,
    store: Arc<Database>,
    metrics: Arc<AgentMetrics>,
    log: OperatorLog,
    used: Mutex<BTreeMap<String, Usage>>,
}

/// What a request to a model uses. Until the answer has ended, this is an estimate: the request, and what of the answer has
/// arrived. It is counted when this is dropped, so also if the client disconnects or the turn is cut off.
#[derive(Debug)]
pub(super) struct PendingUse<'s> {
    spending: &'s TurnSpending,
    model: &'s str,
    usage: Usage,
    received_bytes: usize,
}

impl TurnSpending {
    /// Begins to count a request to a model; `None` if the client has no budget.
    pub(super) fn begin<'s>(&'s self, model: &'s str, request: &Request) -> Option<PendingUse<'s>> {
        if !self.client.spec.budget.is_limited() {
            return None;
        }
        let usage = Usage { input: estimated_input_tokens(request), output: 0 };
        Some(PendingUse { spending: self, model, usage, received_bytes: 0 })
    }

    /// Adds what the turn has used to what its client has used today. If it cannot be stored, the operator's log says so.
    pub(super) async fn record(&self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        record(&self.client, &self.store, &self.metrics, &self.log, &used).await;
    }
}

impl Drop for TurnSpending {
    fn drop(&mut self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        if let (false, Ok(runtime)) = (used.is_empty(), Handle::try_current()) {
            let (client, store) = (Arc::clone(&self.client), Arc::clone(&self.store));
            let (metrics, log) = (Arc::clone(&self.metrics), self.log.clone());
            runtime.spawn(async move { record(&client, &store, &metrics, &log, &used).await });
        }
    }
}

/// Adds what models have used to what a client has used today.
async fn record(
    client: &ClientState,
    store: &Database,
    metrics: &AgentMetrics,
    log: &OperatorLog,
    used: &BTreeMap<String, Usage>,
) {
    let ClientSettings { name, budget, .. } = &client.spec;
    let tokens = used.values().map(|usage| usage.input.saturating_add(usage.output));
    let tokens = tokens.fold(0, u64::saturating_add);
    let cost: f64 = used.iter().map(|(model, usage)| budget.prices.cost(model, *usage)).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is not negative"
    )]
    let cost = cost.ceil() as u64;
    if (tokens, cost) == (0, 0) {
        return;
    }
    metrics.count_cost(name, cost);
    if let Err(error) = store.add_spending(name, tokens, cost).await {
        let sentence = format!("{tokens} tokens were not counted against the budget: {error}");
        log.write(LogEvent::Failure, name, Vec::new(), &sentence);
    }
}

impl PendingUse<'_> {
    /// Adds a part of the answer to the estimate.
    pub(super) fn add_received(&mut self, bytes: usize) {
        self.received_bytes += bytes;
        self.usage.output = estimated_tokens(self.received_bytes);
    }

    /// Replaces the estimate by what the server has reported. A number that it has not reported is estimated: otherwise
    /// a server without a report would have no budget.
    pub(super) fn settle(&mut self, request: &Request, completion: &Completion) {
        let estimate = estimated_usage(request, completion);
        let known = |reported: u64, estimated: u64| if reported == 0 { estimated } else { reported };
        self.usage = Usage {
            input: known(completion.usage.input, estimate.input),
            output: known(completion.usage.output, estimate.output),
        };
    }

    /// Counts nothing if nothing of an answer has arrived: the request has failed.
    pub(super) fn fail(&mut self) {
        if self.received_bytes == 0 {
            self.usage = Usage::default();
        }
    }
}

impl Drop for PendingUse<'_> {
    fn drop(&mut self) {
        let mut used = self.spending.used.lock().unwrap_or_else(PoisonError::into_inner);
        let total = used.entry(self.model.to_owned()).or_default();
        *total = total.plus(self.usage);
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

    /// Begins to count what the models of a turn use.
    pub(super) fn begin_spending(&self, client: &Arc<ClientState>) -> TurnSpending {
        TurnSpending {
            client: Arc::clone(client),
            store: Arc::clone(self.sessions.store()),
            metrics: Arc::clone(&self.metrics),
            log: self.log.clone(),
            used: Mutex::default(),
        }
    }
}
