//! Passes each request to its handler, after every check that may reject it. `server` and `connection` share one
//! [`GatewayService`], which holds the state of all routes.
//!
//! * `receive`: reads the body of a request.
//! * `reached_limits`: reports limits that were reached, in the log and as rejections.
//! * `agent_requests`: serves requests of agents to models and MCP servers, questions of hooks, and judgements of
//!   chats.
//! * `external_processor`: serves Envoy's external processor.
//! * `long_response`: sends responses that take long, in one piece or as a stream.
//! * `page`: serves the page for people.
//! * `policy_review`: serves evaluations of policies for people.
//! * `reload`: reloads the configuration.
//! * `metrics`: collects the metrics.
//! * `route`: lists the routes.
//! * `unmatched`: rejects requests that match no route.
//! * `health`: defines the answer of the health route.

mod agent_requests;
mod external_processor;
mod health;
mod long_response;
mod metrics;
mod page;
mod policy_review;
mod reached_limits;
mod receive;
mod reload;
mod route;
mod unmatched;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use flowgate::policy::Dialect;
use flowgate_lm::wire::Api;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::approvals::ApprovalService;
use crate::chat::ModelRoutes;
use crate::chat::error_reply::error_reply;
use crate::chat::report::sentence_of;
use crate::config::{self, ConfigLoader};
use crate::database::DatabaseError;
use crate::http::access::AccessControl;
use crate::http::admission::ConnectionPlace;
use crate::http::reply::{AlreadyLogged, HttpReply, LogAnnotation};
use crate::http::turn_tasks::TurnTasks;
use crate::http::value_budget::ValueBudget;
use crate::http::workers::{WorkError, WorkerPool};
use crate::limits::ServerLimits;
use crate::log::{LogEvent, OperatorLog, millis};
use crate::metrics::Metrics;
use crate::openapi;
use crate::policy_api::PolicyApi;
use crate::predicates::PredicateSources;
use crate::tls::client_certificate::ClientCertificate;
pub(crate) use health::Health;
use reached_limits::GatewayBound;
pub(crate) use route::{ROUTES, ServiceRoute};
use unmatched::implied_api;

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct GatewayService {
    access: AccessControl,
    limits: ServerLimits,
    log: OperatorLog,
    api: Arc<PolicyApi>,
    /// Whether the policy API is served to authorized callers.
    has_policy_api: bool,
    workers: WorkerPool,
    /// The model routes under the configuration in force; present if the gateway has a configuration.
    models: RwLock<Option<Arc<ModelRoutes>>>,
    /// Reads the configuration again, if that is possible.
    loader: Option<ConfigLoader>,
    /// Locked during a reload.
    reloading: tokio::sync::Mutex<()>,
    /// The turns of agents.
    turns: TurnTasks,
    /// The orders and decisions of people that are being carried out.
    orders: TaskTracker,
    /// Messages to MCP servers.
    exchanges: TurnTasks,
    /// Streams of unsolicited messages of MCP servers.
    streams: TurnTasks,
    /// The bytes of bodies that may still be read.
    bodies: Arc<Semaphore>,
    /// The memory budget of parsed values: of bodies, of answers of servers, and of conversations.
    values: ValueBudget,
    metrics: Metrics,
    /// The number of open connections.
    connections: AtomicU64,
}

impl GatewayService {
    /// Opens the service: the model routes, if there is a configuration (`models`), the policy API, and the threads for
    /// both. `access` controls the policy API, whose policies are in `dialect` and have the extern predicates of
    /// `predicate_sources`. `loader` reads the configuration again for a reload; without it, none is possible.
    ///
    /// # Errors
    /// If the database, the audit log or the webhook cannot be opened, or a thread cannot be started.
    pub(crate) async fn open(
        dialect: Dialect,
        access: AccessControl,
        predicate_sources: PredicateSources,
        (models, loader): (Option<config::GatewayConfig>, Option<ConfigLoader>),
        limits: ServerLimits,
        log: OperatorLog,
    ) -> Result<Self, DatabaseError> {
        // Without a token, a gateway with clients authenticates callers by the clients' keys. The policy API knows no
        // such keys, so it is closed then, unless the configuration opens it to all callers.
        let is_closed = |config: &config::GatewayConfig| {
            !matches!(access, AccessControl::Token(_)) && !config.policy_api_anonymous
        };
        let has_policy_api = !models.as_ref().is_some_and(is_closed);
        let values = ValueBudget::new(limits.values);
        let models = match models {
            Some(config) => Some(Arc::new(ModelRoutes::open(config, values.clone(), log.clone()).await?)),
            None => None,
        };
        let turns = TurnTasks::new(limits.turns).map_err(DatabaseError::Runtime)?;
        Ok(Self {
            access,
            has_policy_api,
            api: Arc::new(PolicyApi::new(dialect, predicate_sources, &limits)),
            workers: WorkerPool::new(limits.workers, limits.queue),
            models: RwLock::new(models),
            loader,
            reloading: tokio::sync::Mutex::default(),
            exchanges: turns.with_own_bound(limits.exchanges),
            orders: TaskTracker::new(),
            streams: turns.with_own_bound(limits.streams),
            turns,
            bodies: Arc::new(Semaphore::new(limits.bodies.min(Semaphore::MAX_PERMITS))),
            values,
            metrics: Metrics::new(),
            connections: AtomicU64::new(0),
            limits,
            log,
        })
    }

    /// Counts an open connection in the metrics until the returned guard is dropped.
    pub(crate) fn count_connection(self: &Arc<Self>) -> ConnectionGuard {
        self.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(Arc::clone(self))
    }

    /// Builds the router from [`ROUTES`], with answers to unknown paths and methods.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for (method, path, route) in ROUTES.iter().cloned() {
            let filter = match method {
                Method::POST => MethodFilter::POST,
                Method::DELETE => MethodFilter::DELETE,
                // The routes have no other method.
                _ => MethodFilter::GET,
            };
            let answer = move |State(service): State<Arc<Self>>, request: Request| async move {
                // Boxed, because a nested future is stored once for each level that it is moved through.
                service.counted_response(path, Box::pin(service.route(route, request))).await
            };
            let pattern = match route {
                // The name of a model may contain slashes, and `{*target}` matches them too.
                ServiceRoute::ModelMethod(_) => path.replace("{target}", "{*target}"),
                _ => path.to_owned(),
            };
            router = router.route(&pattern, on(filter, answer));
        }
        let unknown = |State(service): State<Arc<Self>>, headers: HeaderMap, uri: Uri| async move {
            service.counted_response("other", service.unknown(&headers, uri.path())).await
        };
        let wrong_method = |State(service): State<Arc<Self>>, headers: HeaderMap, uri: Uri| async move {
            service.counted_response("other", service.wrong_method(&headers, uri.path())).await
        };
        router.fallback(unknown).method_not_allowed_fallback(wrong_method).with_state(Arc::clone(self))
    }

    /// Awaits the reply of the route `path`, and returns it as a response. Counts it in the metrics, and logs a failure
    /// or a rejection that is not logged yet.
    async fn counted_response<T: IntoResponse>(
        &self,
        path: &'static str,
        reply: impl Future<Output = Result<T, HttpReply>>,
    ) -> Response {
        let begun = Instant::now();
        let response = match reply.await {
            Ok(reply) => reply.into_response(),
            Err(refusal) => refusal.into_response(),
        };
        let status = response.status();
        self.metrics.count(path, status.as_u16(), begun.elapsed());
        if status.as_u16() >= 400 && response.extensions().get::<AlreadyLogged>().is_none() {
            let event = if status.is_server_error() { LogEvent::Failure } else { LogEvent::Refused };
            let mut fields = vec![
                ("route", path.into()),
                ("status", status.as_u16().into()),
                ("ms", millis(begun.elapsed())),
            ];
            let annotation = response.extensions().get::<LogAnnotation>();
            fields.extend(annotation.map(|annotation| ("detail", annotation.0.as_str().into())));
            // The empty name: which client has sent the request is not known here.
            self.log.write(event, "", fields, sentence_of(status));
        }
        response
    }

    /// Checks the access to a route, and hands the request to its handler. After authentication, the connection is
    /// protected from being closed for another one.
    async fn route(self: &Arc<Self>, route: ServiceRoute, request: Request) -> Result<Response, HttpReply> {
        // Health and the description of the API are public. Clients and people have separate keys.
        if !route.has_own_access() {
            self.access.check(request.headers())?;
            if matches!(self.access, AccessControl::Token(_)) {
                protect_connection(request.extensions());
            }
        }
        if !self.has_policy_api
            && matches!(route, ServiceRoute::Load | ServiceRoute::Check | ServiceRoute::Batch)
        {
            let message = "a gateway with clients serves the policy API only to holders of its token: start the gateway with --token-file, \
                           or write [policy-api] allow-anonymous = true in its configuration";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message).close());
        }
        // A handler of clients or people that receives the whole request protects the connection itself.
        let reply = match route {
            ServiceRoute::Model(api) => return self.turn(api, None, request).await,
            ServiceRoute::CountTokens(api) => self.count_tokens(api, request).await,
            ServiceRoute::Embeddings => return self.embeddings(request).await,
            ServiceRoute::HandedCall => self.handed_call(request).await,
            ServiceRoute::ExternalProcessor => return self.process_externally(request).await,
            ServiceRoute::Guardrail => return self.guardrail(request).await,
            ServiceRoute::ModelMethod(api) => return self.model_method(api, request).await,
            ServiceRoute::Server => return self.exchange(request).await,
            ServiceRoute::EndMcpSession => self.end_mcp_session(request).await,
            ServiceRoute::Listen => return self.listen(request).await,
            ServiceRoute::Models => {
                let api = implied_api(request.headers(), request.uri().path());
                self.model_routes(api)?
                    .models(api, request.headers(), certificate_of(request.extensions()))
                    .await
                    .inspect(|_| protect_connection(request.extensions()))
            }
            ServiceRoute::QuestionEvents => {
                return self
                    .approvals()?
                    .events(request.headers())
                    .await
                    .inspect(|_| protect_connection(request.extensions()));
            }
            ServiceRoute::Questions => self
                .approvals()?
                .list(request.headers(), request.uri().query())
                .await
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::Question => self
                .approvals()?
                .get(request.headers(), last_segment(request.uri()))
                .await
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::Frozen => self
                .approvals()?
                .freezes(request.headers())
                .await
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::Grants => self
                .approvals()?
                .list_grants(request.headers())
                .await
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::Keys => self
                .routes_of_people()?
                .list_keys(request.headers())
                .await
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::Quotations => self
                .routes_of_people()?
                .quotations(request.headers())
                .await
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::Policies => self
                .routes_of_people()?
                .list_policies(request.headers())
                .inspect(|_| protect_connection(request.extensions())),
            ServiceRoute::PolicyUsage => self.policy_usage(request).await,
            ServiceRoute::DryRun => self.dry_run(request).await,
            ServiceRoute::Reload => self.reload_by_order(request).await,
            ServiceRoute::Decide
            | ServiceRoute::DecideSeveral
            | ServiceRoute::Freeze
            | ServiceRoute::Forget
            | ServiceRoute::MakeKey
            | ServiceRoute::ClearQuotations => self.serve_person_request(route, request).await,
            ServiceRoute::WithdrawGrant | ServiceRoute::RevokeKey => self.withdraw(route, request).await,
            ServiceRoute::PageStart
            | ServiceRoute::PageFile
            | ServiceRoute::Session
            | ServiceRoute::LogIn
            | ServiceRoute::LogOut
            | ServiceRoute::BeginLogin
            | ServiceRoute::CompleteLogin
            | ServiceRoute::Conversations
            | ServiceRoute::Conversation
            | ServiceRoute::Trace
            | ServiceRoute::LoginLink
            | ServiceRoute::Figures
            | ServiceRoute::Coverage => self.page(route, request).await,
            ServiceRoute::Health => Ok(self.health().await.reply()),
            ServiceRoute::OpenApi => Ok(HttpReply::json_document(openapi::DOCUMENT)),
            ServiceRoute::Metrics => {
                Ok(HttpReply::document("text/plain; version=0.0.4; charset=utf-8", self.metrics_text()))
            }
            ServiceRoute::Load => self.compute_on_worker(request, PolicyApi::load).await,
            ServiceRoute::Check => self.compute_on_worker(request, PolicyApi::check).await,
            ServiceRoute::Batch => self.compute_on_worker(request, PolicyApi::batch).await,
        };
        reply.map(IntoResponse::into_response)
    }

    /// Returns the model routes under the configuration in force; `None` if the gateway was started without one.
    fn models(&self) -> Option<Arc<ModelRoutes>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the model routes: requests that arrive from now on are served by these.
    fn set_models(&self, models: Arc<ModelRoutes>) {
        *self.models.write().unwrap_or_else(PoisonError::into_inner) = Some(models);
    }

    /// Returns the model routes; the error, in the form of `api`, says that the gateway has none.
    fn model_routes(&self, api: Api) -> Result<Arc<ModelRoutes>, HttpReply> {
        let message = "this gateway has no routes for models: its operator can enable them with `--config`";
        self.models().ok_or_else(|| error_reply(api, StatusCode::NOT_FOUND, message))
    }

    /// Returns the service that asks people; the error says that the gateway has none.
    fn approvals(&self) -> Result<Arc<ApprovalService>, HttpReply> {
        self.routes_of_people().map(|models| Arc::clone(&models.approvals))
    }

    /// Returns the model routes, which also serve people; the error says that the gateway has none.
    fn routes_of_people(&self) -> Result<Arc<ModelRoutes>, HttpReply> {
        let message = "this gateway has no routes for people (questions, freezes, keys, the page): its operator can enable them with `--config`";
        self.models().ok_or_else(|| HttpReply::detail(StatusCode::NOT_FOUND, message))
    }

    /// Returns the state of the gateway: the failing parts without which it does not work (`failing`), the failing
    /// parts without which it still works (`late`), and the number of clients in watch mode. Without a configuration
    /// of clients there is nothing to report.
    async fn health(&self) -> Health {
        let models = self.models();
        let failing = match &models {
            Some(models) => models.failing_parts().await,
            None => Vec::new(),
        };
        let late = models.as_ref().map(|models| models.degraded_parts()).unwrap_or_default();
        let watching = models.as_ref().map(|models| models.watching_count()).unwrap_or_default();
        Health::new(failing, late, watching)
    }

    /// Serves an order or a decision of a person, which has a body. Runs it as a task that the end of the request
    /// does not cancel. Returns the error to send if the person is not authenticated or the order fails.
    async fn serve_person_request(
        &self,
        route: ServiceRoute,
        request: Request,
    ) -> Result<HttpReply, HttpReply> {
        let models = self.routes_of_people()?;
        let (head, body) = request.into_parts();
        // The body of an unauthenticated request is not read.
        models.approvals.check(&head.headers)?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        // Looked up again, since the configuration may have been reloaded while the body arrived.
        let models = self.routes_of_people()?;
        // In a task, which completes even if the client disconnects or the request takes too long: otherwise the audit
        // log would have an order that was not carried out.
        let served = self.orders.spawn(async move {
            let (headers, body) = (&head.headers, &read.bytes);
            match route {
                ServiceRoute::Decide => models.approvals.decide(headers, last_segment(&head.uri), body).await,
                ServiceRoute::DecideSeveral => models.approvals.decide_several(headers, body).await,
                ServiceRoute::Forget => models.approvals.forget(headers, body).await,
                ServiceRoute::ClearQuotations => models.clear_quotations(headers, body).await,
                ServiceRoute::MakeKey => models.make_key(headers, body).await,
                // The remaining route with a body: an order to freeze, or to end a freeze.
                _ => models.approvals.switch(headers, body).await,
            }
        });
        served.await.unwrap_or_else(|_| Err(failed_order_reply()))
    }

    /// Serves the withdrawal of a lasting grant or of a virtual key, which has no body, as a task like other orders.
    /// Returns the error to send if the person is not authenticated or the withdrawal fails.
    async fn withdraw(&self, route: ServiceRoute, request: Request) -> Result<HttpReply, HttpReply> {
        let models = self.routes_of_people()?;
        let (head, _) = request.into_parts();
        models.approvals.check(&head.headers)?;
        protect_connection(&head.extensions);
        let withdrawn = self.orders.spawn(async move {
            let (headers, id) = (&head.headers, last_segment(&head.uri));
            match route {
                ServiceRoute::RevokeKey => models.revoke_key(headers, id).await,
                // The only other route that is served here is `WithdrawGrant`.
                _ => models.approvals.withdraw_grant(headers, id).await,
            }
        });
        withdrawn.await.unwrap_or_else(|_| Err(failed_order_reply()))
    }

    /// Ends the listening streams and the event streams, which would otherwise never end, because the gateway stops.
    pub(crate) fn close(&self) {
        if let Some(models) = self.models() {
            models.close();
        }
    }

    /// Waits for the orders of people, the turns, the messages to MCP servers and the streams that still run; none
    /// begins any more. Called when no connection is open. Evaluations for the policy API write nothing and are not
    /// awaited.
    pub(crate) async fn wait_for_turns(&self) {
        self.orders.close();
        self.orders.wait().await;
        self.turns.close_when_idle().await;
        self.exchanges.close_when_idle().await;
        self.streams.close_when_idle().await;
    }

    /// Signs the audit log, records its head in the database, sends it to the witnesses that are behind, and closes the
    /// database. Called after the last answer.
    pub(crate) async fn finish(&self) {
        if let Some(models) = self.models() {
            models.finish().await;
        }
    }

    /// Reads the body of a request to the policy API, and computes the answer with the method `answer` of the API on a
    /// worker thread, within the time limit. Rejects the request if the queue is full or the time is over.
    async fn compute_on_worker(
        &self,
        request: Request,
        answer: fn(&PolicyApi, &[u8]) -> HttpReply,
    ) -> Result<HttpReply, HttpReply> {
        let (head, body) = request.into_parts();
        let read = self.receive(&head.headers, body).await?;
        // A client of a server without a token has no key to show, so its complete request protects the connection.
        protect_connection(&head.extensions);
        let api = Arc::clone(&self.api);
        // The worker owns the bytes, and releases them when it is done, also if the request is cancelled.
        self.run_on_worker(move || answer(&api, &read.bytes)).await
    }

    /// Computes an answer on a worker thread within the time limit. Returns the rejection if the queue is full, the
    /// time is over, or the computation panics or cannot be started.
    async fn run_on_worker(
        &self,
        answer: impl FnOnce() -> HttpReply + Send + 'static,
    ) -> Result<HttpReply, HttpReply> {
        let work = self.workers.run(answer);
        let limit = self.limits.answer_time;
        match timeout(limit, work).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(WorkError::Busy)) => Err(self.refuse(
                &GatewayBound {
                    what: "evaluations that wait for a worker",
                    effect: "a request to the policy API, for a conversation on the page or for an evaluation of a policy was refused with 503",
                    setting: Some("--queue, or --workers"),
                    advice: None,
                    most: self.limits.queue,
                },
                busy_reply(),
            )),
            Ok(Err(WorkError::Broken)) => Err(HttpReply::detail(
                StatusCode::INTERNAL_SERVER_ERROR,
                "Error during analysis: the evaluation failed because of a bug in the gateway: report it",
            )),
            Err(_) => {
                let detail = format!(
                    "the evaluation did not end within {} s: send fewer messages or simpler rules, or try \
                    again later",
                    limit.as_secs_f32()
                );
                let reply = HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, &detail)
                    .header(header::RETRY_AFTER, "5");
                let bound = GatewayBound {
                    what: "seconds for an evaluation",
                    effect: "a request to the policy API, for a conversation on the page or for an evaluation of a policy was refused with 503",
                    setting: Some("--answer-time"),
                    advice: None,
                    most: usize::try_from(limit.as_secs()).unwrap_or(usize::MAX),
                };
                Err(self.refuse(&bound, reply))
            }
        }
    }
}

/// Returns the reply to an order whose task failed.
fn failed_order_reply() -> HttpReply {
    let message = "the request failed because of a bug in the gateway, but may have taken effect: check that before you send \
         it again";
    HttpReply::detail(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// Protects the network connection of a request from being closed in favour of a new one while all places for
/// connections are taken. Called once the client has shown a valid key, or has sent a complete request that needs none.
fn protect_connection(extensions: &Extensions) {
    if let Some(place) = extensions.get::<Arc<ConnectionPlace>>() {
        place.protect();
    }
}

/// Returns the certificate that the client of a connection has presented, from the extensions of one of its requests.
fn certificate_of(extensions: &Extensions) -> Option<&ClientCertificate> {
    extensions.get::<Arc<ClientCertificate>>().map(AsRef::as_ref)
}

/// Returns the last segment of a path: the id of a question, the name of a server or the like.
fn last_segment(uri: &Uri) -> &str {
    uri.path().rsplit('/').next().unwrap_or_default()
}

/// The guard that counts an open connection.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(Arc<GatewayService>);

impl Drop for ConnectionGuard {
    /// Counts the connection as closed.
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the reply to a request for which the gateway has no room now.
fn busy_reply() -> HttpReply {
    HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, "the server is overloaded: try again in a second")
        .header(header::RETRY_AFTER, "1")
}
