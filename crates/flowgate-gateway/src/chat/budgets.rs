//! Enforces the budgets of clients and of their virtual keys: counts what their models use, and refuses requests after
//! a budget is used up. The model routes check the budget before a body is read, and count during each turn.
//!
//! A turn that has begun is not stopped if it exceeds the budget, so parallel requests may together use more than is
//! left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use flowgate_lm::chat::{Completion, Request, Usage};
use flowgate_lm::{estimated_input_tokens, estimated_tokens, estimated_usage};
use tokio::runtime::Handle;

use super::ModelRoutes;
use super::client_limits::{ClientLimit, KeyLimit, QuotaRefusal};
use super::clients::ClientState;
use crate::config::Budget;
use crate::database::Database;
use crate::log::{LogEvent, OperatorLog};
use crate::metrics::agents::AgentMetrics;
use crate::virtual_keys::valid_key::ValidKey;

/// The tokens that the models of one turn have used. [`TurnSpending::record`] stores them in the database at the end of
/// the turn; if the turn is cut off earlier, they are stored on drop.
#[derive(Debug)]
pub(super) struct TurnSpending {
    payer: Payer,
    store: Arc<Database>,
    metrics: Arc<AgentMetrics>,
    log: OperatorLog,
    /// The tokens by the name of the model.
    used: Mutex<BTreeMap<String, Usage>>,
}

/// The client, and perhaps its virtual key, against whose budgets a turn is counted.
#[derive(Debug, Clone)]
struct Payer {
    client: Arc<ClientState>,
    key: Option<Arc<ValidKey>>,
}

impl Payer {
    /// Returns those budgets of the client and of its virtual key that have a limit, each with the name under which
    /// its spending is stored.
    fn budgets(&self) -> impl Iterator<Item = (String, &Budget)> {
        let own = (self.client.spec.name.clone(), &self.client.spec.budget);
        let of_key = self.key.iter().map(|key| (key.account(), &key.budget));
        std::iter::once(own).chain(of_key).filter(|(_, budget)| budget.is_limited())
    }
}

/// The tokens that one request to a model uses. Until the answer has ended, they are estimated from the request and
/// from the part of the answer that has arrived. On drop, they are added to those of the turn, so they also count if
/// the client disconnects or the turn is cut off.
#[derive(Debug)]
pub(super) struct PendingUse<'s> {
    spending: &'s TurnSpending,
    model: &'s str,
    usage: Usage,
    received_bytes: usize,
}

impl TurnSpending {
    /// Begins to count the tokens of `request` to the model with the name `model`. `None` if neither the client nor its
    /// virtual key has a limited budget: then nothing is counted.
    pub(super) fn begin<'s>(&'s self, model: &'s str, request: &Request) -> Option<PendingUse<'s>> {
        self.payer.budgets().next()?;
        let usage = Usage { input: estimated_input_tokens(request), output: 0, cached: 0 };
        Some(PendingUse { spending: self, model, usage, received_bytes: 0 })
    }

    /// Adds the tokens of the turn, and their cost, to what its client and its virtual key have used today. If they
    /// cannot be stored, the operator's log says so.
    pub(super) async fn record(&self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        record(&self.payer, &self.store, &self.metrics, &self.log, &used).await;
    }
}

impl Drop for TurnSpending {
    /// Stores what [`Self::record`] has not stored because the turn was cut off.
    fn drop(&mut self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        // `drop` cannot wait for the database, so a task records what is left. Without a runtime, the process is
        // ending.
        if let (false, Ok(runtime)) = (used.is_empty(), Handle::try_current()) {
            let (payer, store) = (self.payer.clone(), Arc::clone(&self.store));
            let (metrics, log) = (Arc::clone(&self.metrics), self.log.clone());
            runtime.spawn(async move { record(&payer, &store, &metrics, &log, &used).await });
        }
    }
}

/// Adds the tokens in `used`, by the name of the model, and their cost to what a client and its virtual key have used
/// today. If the database fails, the operator's log says so, and the turn continues.
async fn record(
    payer: &Payer,
    store: &Database,
    metrics: &AgentMetrics,
    log: &OperatorLog,
    used: &BTreeMap<String, Usage>,
) {
    let tokens = used.values().map(|usage| usage.input.saturating_add(usage.output));
    let tokens = tokens.fold(0, u64::saturating_add);
    let client = &payer.client.spec;
    // In millionths of the currency; rounded up below, so that a small use is not free.
    let cost: f64 = used.iter().map(|(model, usage)| client.budget.prices.cost(model, *usage)).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is not negative"
    )]
    let cost = cost.ceil() as u64;
    if (tokens, cost) == (0, 0) {
        return;
    }
    // The metric of costs covers only the clients that have a budget of their own.
    if client.budget.is_limited() {
        metrics.count_cost(&client.name, cost);
    }
    // The use of a virtual key counts against the budget of its client as well.
    for (account, _) in payer.budgets() {
        if let Err(error) = store.add_spending(&account, tokens, cost).await {
            let sentence = format!("{tokens} tokens were not counted against the budget: {error}");
            log.write(LogEvent::Failure, &client.name, Vec::new(), &sentence);
        }
    }
}

impl PendingUse<'_> {
    /// Adds a part of the answer, of this many bytes, to the estimate.
    pub(super) fn add_received(&mut self, bytes: usize) {
        self.received_bytes += bytes;
        self.usage.output = estimated_tokens(self.received_bytes);
    }

    /// Replaces the estimate by the numbers of tokens that the server has reported with its answer `completion`. If a
    /// reported number is 0, the server has probably not counted, and the number is estimated: otherwise the use of
    /// such a server would cost nothing.
    pub(super) fn settle(&mut self, request: &Request, completion: &Completion) {
        let estimate = estimated_usage(request, completion);
        let settled = |reported: u64, estimated: u64| if reported == 0 { estimated } else { reported };
        let Usage { input, output, cached } = completion.usage;
        self.usage = Usage {
            input: settled(input, estimate.input),
            output: settled(output, estimate.output),
            // If the server has not reported how many tokens it read, the number is estimated, and none of them counts
            // as cached.
            cached: if input == 0 { 0 } else { cached },
        };
    }

    /// Notes that the request has failed. If a part of the answer has arrived, the model has worked, and the estimate
    /// counts; otherwise, the request counts nothing.
    pub(super) fn fail(&mut self) {
        if self.received_bytes == 0 {
            self.usage = Usage::default();
        }
    }
}

impl Drop for PendingUse<'_> {
    /// Adds the tokens of the request to those of the turn: the reported ones or, if the request was cut off, the
    /// estimate.
    fn drop(&mut self) {
        let mut used = self.spending.used.lock().unwrap_or_else(PoisonError::into_inner);
        let total = used.entry(self.model.to_owned()).or_default();
        *total = total.plus(self.usage);
    }
}

impl ModelRoutes {
    /// Refuses a request if the budget of its client or of its virtual key for today is used up, and logs the limit.
    /// `conversation` is the name of its conversation, for the log.
    ///
    /// # Errors
    /// If a budget is used up, or the database cannot be read.
    pub(super) async fn check_budget(
        &self,
        (client, key): (&ClientState, Option<&ValidKey>),
        conversation: Option<&str>,
    ) -> Result<(), QuotaRefusal> {
        // Each budget with the virtual key to which it belongs; `None` for the budget of the client.
        let budgets = [Some((&client.spec.budget, None)), key.map(|key| (&key.budget, Some(key)))];
        for (budget, key) in budgets.into_iter().flatten() {
            if !budget.is_limited() {
                continue;
            }
            let account = key.map_or_else(|| client.spec.name.clone(), ValidKey::account);
            let spent = self.sessions.store().spent_today(&account).await;
            let spent = spent.map_err(|error| self.quota_failure(client, conversation, error))?;
            // A limit that is reached; `None` if there is room, or no limit.
            let used_up = |limit: Option<u64>, used: u64| limit.filter(|limit| used >= *limit);
            let tokens = used_up(budget.tokens_per_day, spent.tokens);
            let cost = used_up(budget.cost_per_day, spent.cost);
            // The budget that is used up, with the limit to log for the client or for the key. If the budgets of tokens
            // and of cost are both used up, that of tokens is reported.
            let (what, client_limit, key_limit) = match (tokens, cost) {
                (Some(limit), _) => ("tokens", ClientLimit::Tokens, KeyLimit::Tokens(limit)),
                (None, Some(limit)) => ("cost", ClientLimit::Cost, KeyLimit::Cost(limit)),
                (None, None) => continue,
            };
            let whose = match key {
                None => {
                    self.log_client_limit(client, conversation, client_limit);
                    "client"
                }
                Some(key) => {
                    self.log_key_limit(client, key, conversation, key_limit);
                    "key"
                }
            };
            let message = format!(
                "this {whose} has used its budget of {what} for today: wait until midnight UTC, or ask the operator of the gateway"
            );
            return Err(QuotaRefusal::new(StatusCode::TOO_MANY_REQUESTS, message, spent.seconds_left));
        }
        Ok(())
    }

    /// Begins to count what the models of a turn use, against the budgets of a client and of its virtual key.
    pub(super) fn begin_spending(
        &self,
        client: &Arc<ClientState>,
        key: Option<&Arc<ValidKey>>,
    ) -> TurnSpending {
        TurnSpending {
            payer: Payer { client: Arc::clone(client), key: key.map(Arc::clone) },
            store: Arc::clone(self.sessions.store()),
            metrics: Arc::clone(&self.metrics),
            log: self.log.clone(),
            used: Mutex::default(),
        }
    }
}
