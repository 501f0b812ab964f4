//! Routes: from a request to a response, with every check that may reject it on the way.
//!
//! * `receive`: the body of a request.
//! * `talk`: responses that are computed on a blocking thread, in one piece or as a stream.

mod receive;
mod talk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use flowgate::policy::Dialect;
use flowgate_lm::wire::Api;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::access::Access;
use crate::admission::Place;
use crate::approvals::Approvals;
use crate::ask::Asker;
use crate::limits::Limits;
use crate::log::{Event, Limit, Log, millis};
use crate::metrics::Metrics;
use crate::model_routes::report::sentence_of;
use crate::model_routes::stream;
use crate::model_routes::{ModelRoutes, Waiting, config, listens, of_conversation, refusal};
use crate::openapi;
use crate::policy_api::PolicyApi;
use crate::reply::{Aside, Logged, Reply};
use crate::store::StoreError;
use crate::values::Values;
use crate::workers::{Refused, Workers};
use talk::{Broken, of_server};

/// The target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Load,
    Check,
    Batch,
    OpenApi,
    Health,
    Metrics,
    Model(Api),
    Models,
    Questions,
    QuestionEvents,
    Question,
    Decide,
    Frozen,
    Freeze,
    Forget,
    Quotations,
    ClearQuotations,
    Server,
    Listen,
    EndConnection,
}

impl Route {
    /// Returns whether the route authenticates requests by keys of its own, or needs no authentication.
    fn has_own_access(self) -> bool {
        match self {
            Self::Health | Self::OpenApi | Self::Model(_) | Self::Models => true,
            Self::Questions | Self::QuestionEvents | Self::Question | Self::Decide => true,
            Self::Frozen | Self::Freeze | Self::Forget => true,
            Self::Quotations | Self::ClearQuotations => true,
            Self::Server | Self::Listen | Self::EndConnection => true,
            Self::Load | Self::Check | Self::Batch | Self::Metrics => false,
        }
    }
}

/// Every route: what is served, what `openapi.json` describes, and what the answer to an unknown path lists.
pub(crate) const ROUTES: [(Method, &str, Route); 23] = [
    (Method::POST, "/api/v1/policy/load", Route::Load),
    (Method::POST, "/api/v1/policy/check", Route::Check),
    (Method::POST, "/api/v1/policy/check/batch", Route::Batch),
    (Method::GET, "/api/openapi.json", Route::OpenApi),
    (Method::GET, "/api/v1/gateway/health", Route::Health),
    (Method::GET, "/health", Route::Health),
    (Method::GET, "/metrics", Route::Metrics),
    (Method::POST, "/v1/chat/completions", Route::Model(Api::ChatCompletions)),
    (Method::POST, "/v1/responses", Route::Model(Api::Responses)),
    (Method::POST, "/v1/messages", Route::Model(Api::Messages)),
    (Method::GET, "/v1/models", Route::Models),
    (Method::GET, "/api/v1/approvals", Route::Questions),
    (Method::GET, "/api/v1/approvals/events", Route::QuestionEvents),
    (Method::GET, "/api/v1/approvals/{id}", Route::Question),
    (Method::POST, "/api/v1/approvals/{id}", Route::Decide),
    (Method::GET, "/api/v1/freezes", Route::Frozen),
    (Method::POST, "/api/v1/freezes", Route::Freeze),
    (Method::POST, "/api/v1/audit/forget", Route::Forget),
    (Method::GET, "/api/v1/quotations", Route::Quotations),
    (Method::POST, "/api/v1/quotations/clear", Route::ClearQuotations),
    (Method::POST, "/mcp/{server}", Route::Server),
    (Method::GET, "/mcp/{server}", Route::Listen),
    (Method::DELETE, "/mcp/{server}", Route::EndConnection),
];

/// The answer of the health route.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
    /// The failing parts that keep the gateway from working: the store, the audit log, or a required witness of it.
    failing: Vec<&'static str>,
    /// The failing parts that do not: an optional witness of the audit log.
    late: Vec<&'static str>,
}

impl Health {
    pub(crate) fn new(failing: Vec<&'static str>, late: Vec<&'static str>) -> Self {
        let status = if failing.is_empty() { "ok" } else { "failing" };
        Self { status, version: env!("CARGO_PKG_VERSION"), failing, late }
    }

    fn reply(&self) -> Reply {
        let status = if self.failing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Reply::json(status, self)
    }
}

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Service {
    access: Access,
    limits: Limits,
    log: Log,
    api: Arc<PolicyApi>,
    /// Whether the policy API is served to authorized callers.
    has_policy_api: bool,
    workers: Workers,
    /// The model routes; present if the gateway has a configuration.
    models: Option<Arc<ModelRoutes>>,
    /// The workers for turns of agents, which mostly wait for models.
    turns: Workers,
    /// The workers for streams of unsolicited messages of servers, which wait for longer.
    streams: Workers,
    /// The bytes of bodies that may still be read.
    bodies: Arc<Semaphore>,
    /// The memory budget of parsed values: of bodies, of answers of servers, and of conversations.
    values: Values,
    metrics: Metrics,
    connections: AtomicU64,
}

impl Service {
    /// Opens the service.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub(crate) async fn open(
        dialect: Dialect,
        access: Access,
        asker: Asker,
        models: Option<config::Config>,
        limits: Limits,
        log: Log,
    ) -> Result<Self, StoreError> {
        // A gateway with clients and without a token authenticates callers by the clients' keys; the policy API has
        // no such keys.
        let is_closed =
            |config: &config::Config| !matches!(access, Access::Token(_)) && !config.policy_api_anonymous;
        let has_policy_api = !models.as_ref().is_some_and(is_closed);
        let values = Values::new(limits.values);
        let models = match models {
            Some(config) => Some(Arc::new(ModelRoutes::open(config, values.clone(), log.clone()).await?)),
            None => None,
        };
        Ok(Self {
            access,
            has_policy_api,
            api: Arc::new(PolicyApi::new(dialect, asker, &limits)),
            workers: Workers::new(limits.workers, limits.queue),
            models,
            turns: Workers::new(limits.turns, limits.queue),
            streams: Workers::new(limits.streams, 0),
            bodies: Arc::new(Semaphore::new(limits.bodies.min(Semaphore::MAX_PERMITS))),
            values,
            metrics: Metrics::default(),
            connections: AtomicU64::new(0),
            limits,
            log,
        })
    }

    /// Reports that a bound of the command line was reached, and returns the rejection.
    fn refuse(&self, bound: &Bound, reply: Reply) -> Reply {
        let Bound { what, effect, setting, most } = *bound;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        self.log.limit(&Limit { what, effect, setting, most, client: "", conversation: None });
        reply.logged()
    }

    /// Reports that a connection was closed for another one.
    pub(crate) fn note_closed(&self, most: usize) {
        self.log.limit(&Limit {
            what: "open connections",
            effect: "the slowest connection without a valid key was closed for another one",
            setting: "--max-connections",
            most: u64::try_from(most).unwrap_or(u64::MAX),
            client: "",
            conversation: None,
        });
    }

    /// Reports that an address has as many connections without a valid key as it may.
    pub(crate) fn note_crowded(&self, effect: &'static str, most: usize) {
        self.log.limit(&Limit {
            what: "connections of one address without a valid key",
            effect,
            setting: "--max-connections-of-address",
            most: u64::try_from(most).unwrap_or(u64::MAX),
            client: "",
            conversation: None,
        });
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connection(self: &Arc<Self>) -> Connection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connection(Arc::clone(self))
    }

    /// Returns the router.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for (method, path, route) in ROUTES {
            let filter = match method {
                Method::POST => MethodFilter::POST,
                Method::DELETE => MethodFilter::DELETE,
                _ => MethodFilter::GET,
            };
            let answer = move |State(service): State<Arc<Self>>, request: Request| async move {
                service.count(path, service.route(route, request)).await
            };
            router = router.route(path, on(filter, answer));
        }
        let unknown = |State(service): State<Arc<Self>>, headers: HeaderMap, uri: Uri| async move {
            service.count("other", service.unknown(&headers, uri.path())).await
        };
        let wrong_method = |State(service): State<Arc<Self>>, headers: HeaderMap, uri: Uri| async move {
            service.count("other", service.wrong_method(&headers, uri.path())).await
        };
        router.fallback(unknown).method_not_allowed_fallback(wrong_method).with_state(Arc::clone(self))
    }

    async fn count<T: IntoResponse>(
        &self,
        path: &'static str,
        reply: impl Future<Output = Result<T, Reply>>,
    ) -> Response {
        let begun = Instant::now();
        let response = match reply.await {
            Ok(reply) => reply.into_response(),
            Err(refusal) => refusal.into_response(),
        };
        let status = response.status();
        self.metrics.count(path, status.as_u16(), begun.elapsed());
        if status.as_u16() >= 400 && response.extensions().get::<Logged>().is_none() {
            let event = if status.is_server_error() { Event::Failure } else { Event::Refused };
            let mut fields = vec![
                ("route", path.into()),
                ("status", status.as_u16().into()),
                ("ms", millis(begun.elapsed())),
            ];
            let aside = response.extensions().get::<Aside>();
            fields.extend(aside.map(|aside| ("detail", aside.0.as_str().into())));
            self.log.write(event, "", fields, sentence_of(status));
        }
        response
    }

    async fn route(self: &Arc<Self>, route: Route, request: Request) -> Result<Response, Reply> {
        // Health and the description of the API are public. Clients and people have keys of their own.
        if !route.has_own_access() {
            self.access.check(request.headers())?;
            if matches!(self.access, Access::Token(_)) {
                keep(request.extensions());
            }
        }
        if !self.has_policy_api && matches!(route, Route::Load | Route::Check | Route::Batch) {
            let message = "a gateway with clients serves the policy API to holders of its token: start it with --token-file, \
                           or write [policy-api] allow-anonymous = true in its configuration";
            return Err(Reply::detail(StatusCode::FORBIDDEN, message).close());
        }
        let reply = match route {
            Route::Model(api) => return self.turn(api, request).await,
            Route::Server => return self.exchange(request).await,
            Route::EndConnection => self.end_connection(request).await,
            Route::Listen => return self.listen(request).await,
            Route::Models => self
                .model_routes(Api::ChatCompletions)?
                .models(request.headers())
                .inspect(|_| keep(request.extensions())),
            Route::QuestionEvents => {
                return self
                    .approvals()?
                    .events(request.headers())
                    .await
                    .inspect(|_| keep(request.extensions()));
            }
            Route::Questions => self
                .approvals()?
                .list(request.headers(), request.uri().query())
                .await
                .inspect(|_| keep(request.extensions())),
            Route::Question => self
                .approvals()?
                .get(request.headers(), last(request.uri()))
                .await
                .inspect(|_| keep(request.extensions())),
            Route::Frozen => {
                self.approvals()?.freezes(request.headers()).await.inspect(|_| keep(request.extensions()))
            }
            Route::Quotations => self
                .routes_of_people()?
                .quotations(request.headers())
                .await
                .inspect(|_| keep(request.extensions())),
            Route::Decide | Route::Freeze | Route::Forget | Route::ClearQuotations => {
                self.say(route, request).await
            }
            Route::Health => Ok(self.health().await.reply()),
            Route::OpenApi => Ok(Reply::json_document(openapi::DOCUMENT)),
            Route::Metrics => Ok(Reply::document("text/plain; version=0.0.4; charset=utf-8", self.figures())),
            Route::Load => self.work(request, PolicyApi::load).await,
            Route::Check => self.work(request, PolicyApi::check).await,
            Route::Batch => self.work(request, PolicyApi::batch).await,
        };
        reply.map(IntoResponse::into_response)
    }

    fn model_routes(&self, api: Api) -> Result<&Arc<ModelRoutes>, Reply> {
        let message = "this gateway has no model routes: its operator starts it with --config";
        self.models.as_ref().ok_or_else(|| refusal(api, StatusCode::NOT_FOUND, message))
    }

    fn approvals(&self) -> Result<&Arc<Approvals>, Reply> {
        self.routes_of_people().map(|models| &models.approvals)
    }

    fn routes_of_people(&self) -> Result<&Arc<ModelRoutes>, Reply> {
        let message = "this gateway asks nobody: its operator starts it with --config";
        self.models.as_ref().ok_or_else(|| Reply::detail(StatusCode::NOT_FOUND, message))
    }

    async fn health(&self) -> Health {
        let failing = match &self.models {
            Some(models) => models.failing().await,
            None => Vec::new(),
        };
        let late = self.models.as_ref().map(|models| models.late()).unwrap_or_default();
        Health::new(failing, late)
    }

    /// Serves a request of a person that has a body.
    async fn say(&self, route: Route, request: Request) -> Result<Reply, Reply> {
        let approvals = self.approvals()?;
        let (head, body) = request.into_parts();
        // The body of an unauthenticated request is not read.
        approvals.check(&head.headers)?;
        keep(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        match route {
            Route::Decide => approvals.decide(&head.headers, last(&head.uri), &read.bytes).await,
            Route::Forget => approvals.forget(&head.headers, &read.bytes).await,
            Route::ClearQuotations => {
                self.routes_of_people()?.clear_quotations(&head.headers, &read.bytes).await
            }
            _ => approvals.switch(&head.headers, &read.bytes).await,
        }
    }

    /// Serves one turn of an agent.
    async fn turn(self: &Arc<Self>, api: Api, request: Request) -> Result<Response, Reply> {
        let routes = Arc::clone(self.model_routes(api)?);
        let (head, body) = request.into_parts();
        let received = routes.receive(api, &head.headers)?;
        keep(&head.extensions);
        // Every answer names the conversation that the client has named.
        let name = received.conversation.clone();
        let named = move |reply: Reply| of_conversation(reply, name.as_deref());
        let read = self.receive(&head.headers, body).await.map_err(&named)?;
        let refused = named.clone();
        let broken = Broken {
            reply: move |status, message: &str| refused(refusal(api, status, message)),
            event: move |status, message: &str| stream::broken_off(api, status, message),
        };
        let answer =
            move |waiting: &Waiting, parts| routes.answer(&received, &read.bytes, waiting, parts).map(named);
        self.talk(|service| &service.turns, broken, answer).await
    }

    /// Serves one message of an agent to an MCP server.
    async fn exchange(self: &Arc<Self>, request: Request) -> Result<Response, Reply> {
        let routes = Arc::clone(self.servers()?);
        let (head, body) = request.into_parts();
        let mut received = routes.receive_for(last(&head.uri), &head.headers)?;
        keep(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        let listens = listens(&read.bytes);
        if listens {
            received.listen(&routes)?;
        }
        let at: fn(&Self) -> &Workers = match listens {
            true => |service| &service.streams,
            false => |service| &service.turns,
        };
        let answer = move |waiting: &Waiting, parts| routes.exchange(&received, &read.bytes, waiting, parts);
        self.talk(at, of_server(), answer).await
    }

    /// Streams the unsolicited messages of a server.
    async fn listen(self: &Arc<Self>, request: Request) -> Result<Response, Reply> {
        let routes = Arc::clone(self.servers()?);
        let received = routes.receive_listener(last(request.uri()), request.headers())?;
        keep(request.extensions());
        let listen = move |waiting: &Waiting, parts| routes.listen(&received, waiting, parts);
        self.talk(|service| &service.streams, of_server(), listen).await
    }

    /// Ends the streams that have no end of their own, since the gateway stops.
    pub(crate) fn close(&self) {
        if let Some(models) = &self.models {
            models.close();
        }
    }

    /// Signs the audit log and records its head in the store. Called after the last answer.
    pub(crate) async fn finish(&self) {
        if let Some(models) = &self.models {
            models.finish().await;
        }
    }

    async fn end_connection(self: &Arc<Self>, request: Request) -> Result<Reply, Reply> {
        let routes = Arc::clone(self.servers()?);
        let received = routes.receive_for(last(request.uri()), request.headers())?;
        keep(request.extensions());
        let work = self.turns.run(move || routes.end_connection(&received));
        work.await.map_err(|_| busy())
    }

    fn servers(&self) -> Result<&Arc<ModelRoutes>, Reply> {
        let message = "this gateway has no servers: its operator starts it with --config";
        self.models.as_ref().ok_or_else(|| Reply::detail(StatusCode::NOT_FOUND, message))
    }

    /// Reads the body and has a worker compute the answer.
    async fn work(&self, request: Request, answer: fn(&PolicyApi, &[u8]) -> Reply) -> Result<Reply, Reply> {
        let (head, body) = request.into_parts();
        let read = self.receive(&head.headers, body).await?;
        // Without a token, a complete request is all that a client can show.
        keep(&head.extensions);
        let api = Arc::clone(&self.api);
        // The worker owns the bytes, and releases them when it is done, also if the request is cancelled.
        let work = self.workers.run(move || answer(&api, &read.bytes));
        let limit = self.limits.answer_time;
        match timeout(limit, work).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Refused::Busy)) => Err(self.refuse(
                &Bound {
                    what: "evaluations that wait for a worker",
                    effect: "a request to the policy API was refused with 503",
                    setting: "--queue, or --workers",
                    most: self.limits.queue,
                },
                busy(),
            )),
            Ok(Err(Refused::Broken)) => Err(Reply::detail(
                StatusCode::INTERNAL_SERVER_ERROR,
                "Error during analysis: the evaluation ended unexpectedly; this is a mistake of the server",
            )),
            Err(_) => {
                let detail = format!(
                    "the answer was not there within {} s: send fewer messages or simpler rules, or try again later",
                    limit.as_secs_f32()
                );
                let reply =
                    Reply::detail(StatusCode::SERVICE_UNAVAILABLE, &detail).header(header::RETRY_AFTER, "5");
                let bound = Bound {
                    what: "seconds for an answer of the policy API",
                    effect: "a request was refused with 503",
                    setting: "--answer-time",
                    most: usize::try_from(limit.as_secs()).unwrap_or(usize::MAX),
                };
                Err(self.refuse(&bound, reply))
            }
        }
    }

    async fn unknown(&self, headers: &HeaderMap, path: &str) -> Result<Reply, Reply> {
        // The other routes of a provider are requested by programs that expect its format of errors.
        if path.starts_with("/v1/") {
            let api = if headers.contains_key("x-api-key") { Api::Messages } else { Api::ChatCompletions };
            let message = "this gateway does not serve this route, and does not pass it on: there are \
                 /v1/chat/completions, /v1/responses, /v1/messages and /v1/models";
            return Err(refusal(api, StatusCode::NOT_FOUND, message));
        }
        self.access.check(headers)?;
        let routes: Vec<String> = ROUTES.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        let detail = format!("there is no such route; there are {}", routes.join(", "));
        Err(Reply::detail(StatusCode::NOT_FOUND, &detail))
    }

    async fn wrong_method(&self, headers: &HeaderMap, path: &str) -> Result<Reply, Reply> {
        self.access.check(headers)?;
        let route = ROUTES.iter().find(|(_, known, _)| *known == path);
        let detail = route.map_or_else(
            || "this route has another method".to_owned(),
            |(method, path, _)| format!("{path} is asked by {method}"),
        );
        Err(Reply::detail(StatusCode::METHOD_NOT_ALLOWED, &detail))
    }

    fn figures(&self) -> String {
        let held = self.limits.bodies.saturating_sub(self.bodies.available_permits());
        let mut figures = self.api.figures().to_vec();
        figures.push((
            "flowgate_connections",
            "Open connections.",
            self.connections.load(Ordering::Relaxed),
            false,
        ));
        figures.push((
            "flowgate_body_bytes",
            "Bytes of bodies that are being read or evaluated.",
            u64::try_from(held).unwrap_or(u64::MAX),
            false,
        ));
        figures.push((
            "flowgate_value_bytes",
            "Bytes that the values of bodies, answers and conversations take that are being evaluated, roughly.",
            u64::try_from(self.values.taken()).unwrap_or(u64::MAX),
            false,
        ));
        figures.extend(self.models.iter().flat_map(|models| models.figures()));
        self.metrics.text(&figures, &self.log.limits())
    }
}

/// Keeps the connection from being closed for another one: the client has shown a valid key, or has sent a complete
/// request where none is needed.
fn keep(extensions: &Extensions) {
    if let Some(place) = extensions.get::<Arc<Place>>() {
        place.keep();
    }
}

/// Returns the last segment of a path.
fn last(uri: &Uri) -> &str {
    uri.path().rsplit('/').next().unwrap_or_default()
}

/// A bound of the command line that was reached.
struct Bound {
    what: &'static str,
    effect: &'static str,
    setting: &'static str,
    most: usize,
}

/// The guard that counts an open connection.
#[derive(Debug)]
pub(crate) struct Connection(Arc<Service>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn busy() -> Reply {
    Reply::detail(StatusCode::SERVICE_UNAVAILABLE, "the server has too much to do: try again in a second")
        .header(header::RETRY_AFTER, "1")
}
