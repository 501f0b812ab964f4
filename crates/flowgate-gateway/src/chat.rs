//! Serves the model routes: the HTTP routes on which agents send chats for a model. The policy decides what the model
//! is shown, and which calls and texts of its answer the agent receives.
//!
//! An agent uses the gateway instead of a provider as its base URL; the agent needs no other change. The gateway
//! decodes a request of any supported API into a chat, and [adds the
//! chat](flowgate_guard::conversation::Conversation::accept_messages) to the guarded conversation that it belongs to.
//! No part of the model's output reaches the agent before the gateway has judged that part. Streaming and non-streaming
//! routes share this code, which `http::service` calls. This module defines `ModelRoutes`, the state that all routes
//! share: it is opened when the gateway starts, and closed when the gateway ends.
//!
//! A chat request passes these modules:
//!
//! * `model_request`: reads the headers of the request. `authentication` finds its client by the keys that
//!   `credentials` reads, or by a token (`token_authentication`). `client_limits` checks the limits on the client's
//!   requests, and `budgets` those on what its models use on a day.
//! * `answer`: turns the body of the request into the reply; `requested_model`: checks the model that the body names.
//! * `turn`: turns the chat into a completion, from the input that `turn_request` defines. `turn_models` creates the
//!   models of the turn, `turn_start` resumes a waiting turn or begins one, and `turn_end` records the verdicts.
//! * `upstream_model`: measures each model that a turn calls; `fallback_model`: asks another upstream if the first one
//!   cannot answer; `tool_choice_model`: applies the client's `tool_choice`.
//! * `person_approver`: asks people about the calls of a turn; `used_approvals`: collects the approvals that the turn
//!   uses; `frozen_approvals`: reads which approvals are frozen or withdrawn.
//! * `turn_observer`: streams text that may be released early, and cancels the turn if the client has disconnected;
//!   `provider_tools`: runs calls of tools of the provider; `turn_completion`: builds the completion from the outcome
//!   of the turn.
//! * `stream`: streams the reply; `error_reply`: builds errors in the form of the API; `model_error`: converts failures
//!   of models to errors for the client.
//! * `report`: writes the log line of the request; `turn_trace`: records its spans.
//!
//! These modules answer other requests:
//!
//! * `embeddings`: a request for embeddings, if the policy permits it.
//! * `guardrail`: the question of another gateway whether a chat or an answer is permitted.
//! * `handed_calls`: the question of a coding agent's hook whether the gateway has handed a call to the agent.
//! * `model_list`: a request for the list of models; `count_tokens`: a request for a number of tokens.
//! * `quotations`: the requests by which admins list and clear the texts that clients were shown.
//!
//! The others are used by several of these, or by the program:
//!
//! * `clients`: finds clients by their keys; `request_quota`: limits how often a client may send requests.
//! * `headers`: reads the headers by which a client names a conversation and the provenance of its messages.
//! * `request_decoder`: decodes the bodies of requests.
//! * `item_references`: finds the earlier answers to whose items a request refers.
//! * `response_id`: reads and writes the ids of answers that a later request may continue from.
//! * `conversations`: finds and stores the conversation that a request belongs to.
//! * `reload`: replaces clients, policies and people by those of a reloaded configuration.
//! * `maintenance`: maintains the database, the audit log and the keys of issuers periodically.
//! * [`stored_trace`]: replays the traces of stored conversations.
//! * [`recheck`]: compares an audit log with a replay of the stored conversations.

mod answer;
pub(crate) mod authentication;
mod budgets;
pub(crate) mod client_limits;
pub(crate) mod clients;
pub(crate) mod conversations;
mod count_tokens;
mod credentials;
pub(crate) mod embeddings;
pub(crate) mod error_reply;
mod fallback_model;
mod frozen_approvals;
pub(crate) mod guardrail;
pub(crate) mod handed_calls;
pub(crate) mod headers;
mod item_references;
mod maintenance;
mod model_error;
mod model_list;
mod model_request;
mod person_approver;
pub(crate) mod provider_tools;
mod quotations;
pub mod recheck;
pub(crate) mod reload;
pub(crate) mod report;
mod request_decoder;
mod request_quota;
mod requested_model;
mod response_id;
pub mod stored_trace;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod token_authentication;
mod tool_choice_model;
mod turn;
mod turn_completion;
mod turn_end;
mod turn_models;
pub(crate) mod turn_observer;
mod turn_request;
mod turn_start;
pub(crate) mod turn_trace;
mod upstream_model;
mod used_approvals;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use flowgate_audit::watch::{WatchLog, WatchedVerdict};
use flowgate_lm::wire::ReceivedRequest;
use tokio_util::sync::CancellationToken;

use crate::approvals::ApprovalService;
use crate::approvals::freeze_targets::FreezeTargets;
use crate::approvals::people::People;
use crate::approvals::webhook::Webhook;
use crate::config::fixed_sections::FixedSections;
use crate::config::{self, AuditSpec, ClientSettings, GatewayConfig};
use crate::database::{self, Database, DatabaseError};
use crate::http::value_budget::ValueBudget;
use crate::log::{LogEvent, OperatorLog};
use crate::mcp_proxy::pending_requests::PendingRequests;
use crate::metrics::agents::AgentMetrics;
use crate::page::coverage::Coverage;
use crate::page::figures::FigureSeries;
use crate::policy_review::ReviewRuns;
use crate::recorder::Recorder;
use crate::telemetry::Telemetry;
use crate::visibility;
use crate::watching;
use crate::witness::HeadDestinations;
use clients::{ClientState, Clients};
use conversations::Conversations;
use guardrail::remembered_chats::RememberedChats;
use handed_calls::HandedCalls;

/// The state that all model routes share.
#[derive(Debug)]
pub(crate) struct ModelRoutes {
    pub(crate) clients: Clients,
    /// The conversations of all clients.
    pub(crate) sessions: Arc<Conversations>,
    pub(crate) approvals: Arc<ApprovalService>,
    pub(crate) recorder: Recorder,
    /// The number of turns that this process has begun, which makes the ids of its responses unique.
    answers: Arc<AtomicU64>,
    /// Requests to MCP servers that are in progress.
    pub(crate) pending: Arc<PendingRequests>,
    pub(crate) log: OperatorLog,
    /// The memory budget of parsed JSON values, which all requests share.
    pub(crate) values: ValueBudget,
    /// Cancelled when the gateway shuts down, or a reloaded configuration replaces these routes.
    pub(crate) closing: CancellationToken,
    /// The number of clients in watch mode.
    watching: usize,
    /// The numbers of requests since the start, and their durations and verdicts, for the page for people.
    pub(crate) figures: Arc<FigureSeries>,
    /// The clients, servers and tools that were seen since the start, for the page for people.
    pub(crate) coverage: Arc<Coverage>,
    /// The counters of what agents did, for Prometheus.
    pub(crate) metrics: Arc<AgentMetrics>,
    /// Records requests as spans.
    pub(crate) telemetry: Telemetry,
    /// The chats of other gateways whose answers were not judged yet.
    remembered_chats: Arc<RememberedChats>,
    /// The calls that clients received with the last turns of their conversations.
    handed_calls: Arc<HandedCalls>,
    /// The evaluations of stored conversations that people have begun.
    pub(crate) reviews: ReviewRuns,
    /// The sections of the configuration file that are in force until the process ends.
    fixed_sections: FixedSections,
    /// The time after which unused conversations and questions are deleted.
    retention: Duration,
}

impl ModelRoutes {
    /// Opens the database, the audit log, the webhook and the export of spans, and starts the maintenance tasks. Logs
    /// advice about regions that a client's policy and settings hide from models. `values` is the memory budget of
    /// parsed JSON values, which all requests share.
    ///
    /// # Errors
    /// If one of these or the log of a client in watch mode cannot be opened, or the audit log lacks lines that the
    /// database has recorded.
    pub(crate) async fn open(
        config: GatewayConfig,
        values: ValueBudget,
        log: OperatorLog,
    ) -> Result<Self, DatabaseError> {
        announce_clients(&config, &log)?;
        let database =
            Arc::new(Database::open_with_keys(&config.store.address, &config.store.encryption).await?);
        // Opens everything else. If that fails, the database is closed again.
        let opened = Self::start(config, Arc::clone(&database), values, log).await;
        if opened.is_err() {
            database.close().await;
        }
        opened
    }

    /// Opens the audit log, the webhook and the export of spans, and starts the maintenance tasks. `database`
    /// is open already; if this fails, the caller closes it.
    ///
    /// # Errors
    /// If the audit log, the webhook or the export of spans cannot be opened, or the audit log lacks lines that the
    /// database has recorded.
    async fn start(
        config: GatewayConfig,
        database: Arc<Database>,
        values: ValueBudget,
        log: OperatorLog,
    ) -> Result<Self, DatabaseError> {
        let GatewayConfig {
            clients,
            store,
            people,
            login,
            approvals: approval_settings,
            webhook,
            audit,
            telemetry,
            keys,
            fixed_sections,
            ..
        } = config;
        let audited = audit.as_ref().map(|spec| (spec, store.encryption.audit_content_cipher()));
        let recorder = Recorder::open(audited, &clients, keys, &database, &log).await?;
        // Writes the identity of this database to its lock file: a later start that finds another database in its place
        // fails. This is written only after `Recorder::open` has compared the database with the audit log.
        database.accept_database()?;
        remark_open_files(&store.address, audit.as_ref(), &log);
        if database.is_partly_encrypted() {
            let sentence = "the database may have content that is not encrypted, since it was stored before a key was configured and its later encryption \
                            was not completed: run `flowgate database encrypt`";
            log.write(LogEvent::Remark, "", Vec::new(), sentence);
        }
        let webhook = webhook.map(|settings| Webhook::new(settings, log.clone())).transpose();
        let webhook = webhook.map_err(DatabaseError::Runtime)?;
        let telemetry = Telemetry::open(telemetry.as_ref(), &log).map_err(DatabaseError::Runtime)?;
        // The services of the routes, and their maintenance tasks.
        let people = People::new(people, login, &clients);
        let metrics = Arc::new(AgentMetrics::new());
        let approvals = ApprovalService::new(
            Arc::clone(&database),
            people,
            recorder.clone(),
            approval_settings,
            webhook,
            FreezeTargets::of(&clients),
            (log.clone(), Arc::clone(&metrics)),
        );
        let approvals = Arc::new(approvals);
        maintenance::spawn_tasks(
            &database,
            &approvals,
            &recorder,
            &log,
            store.retention,
            store.quotation_age,
        );
        let sessions = Arc::new(Conversations::new(
            database,
            store.memory,
            store.conversation,
            values.clone(),
            log.clone(),
        ));
        let watching = clients.iter().filter(|client| client.watch.is_some()).count();
        let (clients, answers, pending) = (Clients::new(clients), Arc::default(), Arc::default());
        let closing = CancellationToken::new();
        let routes = Self {
            clients,
            sessions,
            approvals,
            recorder,
            answers,
            pending,
            log,
            values,
            closing,
            watching,
            figures: Arc::new(FigureSeries::new(Instant::now())),
            coverage: Arc::new(Coverage::new()),
            metrics,
            telemetry,
            remembered_chats: Arc::default(),
            handed_calls: Arc::default(),
            reviews: ReviewRuns::default(),
            fixed_sections,
            retention: store.retention,
        };
        // Begins to fetch the keys of the issuers, and does not wait for them.
        routes.fetch_issuer_keys();
        Ok(routes)
    }

    /// Signs the audit log, stores its head, delivers it to the witnesses, sends the last spans and closes the database
    /// before the process exits. Failures are ignored: as after a killed process, the next start signs the log and
    /// stores its head.
    pub(crate) async fn finish(&self) {
        if self.recorder.sign_head().is_ok() {
            let _ = self.sessions.store().persist_log_head().await;
        }
        let recorder = self.recorder.clone();
        let deliver_heads = move || recorder.witnesses().map(HeadDestinations::finish);
        let _ = tokio::task::spawn_blocking(deliver_heads).await;
        let telemetry = self.telemetry.clone();
        let _ = tokio::task::spawn_blocking(move || telemetry.finish()).await;
        self.sessions.store().close().await;
    }

    /// Returns the names of the failing parts that the gateway can do without, for the health route: witnesses to which
    /// deliveries fail, and `issuer` if an issuer has no usable key, because no key was fetched, all keys are too old,
    /// or the issuer has withdrawn them. The gateway then refuses the tokens of this issuer.
    pub(crate) fn degraded_parts(&self) -> Vec<&'static str> {
        let mut degraded =
            self.recorder.witnesses().map(HeadDestinations::failing_destinations).unwrap_or_default();
        if self.issuers().iter().any(|issuer| issuer.key_count() == 0) {
            degraded.push("issuer");
        }
        degraded
    }

    /// Returns the names of the failing parts that the gateway cannot do without, for the health route: `store` and
    /// `audit log`, if the database or the audit log cannot be written, and the name of a required witness that is
    /// overdue. Empty if no such part fails.
    pub(crate) async fn failing_parts(&self) -> Vec<&'static str> {
        let mut failing = Vec::new();
        if !self.sessions.store().is_writable().await {
            failing.push("store");
        }
        if !self.recorder.is_writable().await {
            failing.push("audit log");
        }
        failing.extend(self.recorder.witnesses().and_then(HeadDestinations::overdue_destination));
        failing
    }

    /// Appends the verdicts on a client in watch mode to the watch log. A failure only adds a line to the operator's
    /// log, since watch mode stops nothing.
    pub(crate) fn record_watched(&self, client: &ClientSettings, verdicts: &[WatchedVerdict]) {
        let Some(watch) = &client.watch else { return };
        if let Err(error) = watch.log.append(verdicts) {
            self.log.write(LogEvent::Failure, &client.name, Vec::new(), &error);
        }
    }

    /// Notes the tools that a client offers with a request. The page for people lists the clients, servers and tools
    /// that were seen.
    pub(crate) fn note_offered_tools(&self, client: &ClientState, decoded: &ReceivedRequest) {
        let offered = decoded.request.tools.iter().map(|tool| client.spec.tool_of(&tool.name));
        self.coverage.note_offered(&client.spec.name, offered);
    }

    /// Returns the number of clients in watch mode.
    pub(crate) fn watching_count(&self) -> usize {
        self.watching
    }

    /// Writes a remark to the operator's log; a remark may contain names that clients chose.
    pub(crate) fn remark(&self, remark: &str) {
        self.log.write(LogEvent::Remark, "", Vec::new(), remark);
    }
}

/// Prepares the operator's log for the clients of a configuration: from now on, the keys of the configuration are
/// removed from log lines. Checks that the watch log of each client in watch mode can be opened, and writes a warning
/// that names the client. Logs advice about regions that a client's policy and settings hide from models.
///
/// # Errors
/// If the log of a client in watch mode cannot be opened.
fn announce_clients(config: &GatewayConfig, log: &OperatorLog) -> Result<(), DatabaseError> {
    log.redact_keys(&config.keys);
    for client in &config.clients {
        if let Some(watch) = &client.watch {
            WatchLog::open(watch.log.path()).map_err(|error| {
                DatabaseError::WatchLog(format!("{}: {error}", watch.log.path().display()))
            })?;
            log.write(LogEvent::Remark, &client.name, vec![("mode", "watch".into())], watching::WARNING);
        }
        for advice in visibility::client_advice(client) {
            let event = if advice.is_intended { LogEvent::HiddenOnPurpose } else { LogEvent::Hidden };
            log.write(event, &client.name, vec![("advice", advice.id.into())], &advice.text);
        }
    }
    Ok(())
}

/// Warns the operator if other users of the system can read or write the database files or the files of the audit log.
fn remark_open_files(address: &config::DatabaseAddress, audit: Option<&AuditSpec>, log: &OperatorLog) {
    let mut paths = match address {
        config::DatabaseAddress::File(path) => database::sqlite::file::database_files(path),
        // A database on a server or in memory has no files here.
        _ => Vec::new(),
    };
    paths.extend(
        // The audit log can have a second file, with the content of its records.
        audit.into_iter().flat_map(|audit| [audit.file.clone(), audit.file.with_added_extension("content")]),
    );
    for path in database::sqlite::file::readable_by_others(&paths) {
        let path = path.display();
        let sentence =
            format!("users other than the owner of {path} can read or write it: run `chmod 600 {path}`");
        // The empty name: the line is about no single client.
        log.write(LogEvent::Remark, "", Vec::new(), &sentence);
    }
}
