//! Lists the routes of the gateway: the method and the path of each, and whether its handler authenticates requests
//! itself. `http::service` builds its router from the list and calls the handlers.

use std::sync::LazyLock;

use axum::http::Method;
use flowgate_lm::wire::{Api, FormRoute};

use crate::config::login::CALLBACK;

/// The operation that a request asks for. [`ROUTES`] has the method and the path of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceRoute {
    Load,
    Check,
    Batch,
    OpenApi,
    Health,
    Metrics,
    Model(Api),
    CountTokens(Api),
    Embeddings,
    /// A question of a hook about a call.
    HandedCall,
    /// A judgement for another gateway.
    Guardrail,
    /// Judgements for Envoy, over gRPC.
    ExternalProcessor,
    /// A method of a model: the last segments of the path name both.
    ModelMethod(Api),
    Models,
    Questions,
    QuestionEvents,
    Question,
    Decide,
    DecideSeveral,
    Frozen,
    Freeze,
    Grants,
    WithdrawGrant,
    Keys,
    MakeKey,
    RevokeKey,
    Forget,
    Quotations,
    ClearQuotations,
    Policies,
    PolicyUsage,
    DryRun,
    Reload,
    Server,
    Listen,
    EndMcpSession,
    PageStart,
    PageFile,
    Session,
    LogIn,
    LogOut,
    BeginLogin,
    CompleteLogin,
    Conversations,
    Conversation,
    Trace,
    LoginLink,
    Figures,
    Coverage,
}

impl ServiceRoute {
    /// Returns whether the handler of the route authenticates requests by the keys of clients or people, or needs no
    /// authentication; otherwise the gateway's [`AccessControl`](crate::http::access::AccessControl) applies.
    pub(super) fn has_own_access(self) -> bool {
        match self {
            Self::Health | Self::OpenApi | Self::Model(_) | Self::CountTokens(_) => true,
            Self::ModelMethod(_) | Self::Models | Self::Embeddings | Self::HandedCall => true,
            Self::Guardrail | Self::ExternalProcessor => true,
            Self::Questions | Self::QuestionEvents | Self::Question => true,
            Self::Decide | Self::DecideSeveral => true,
            Self::Frozen | Self::Freeze | Self::Grants | Self::WithdrawGrant | Self::Forget => true,
            Self::Keys | Self::MakeKey | Self::RevokeKey => true,
            Self::Quotations | Self::ClearQuotations => true,
            Self::Policies | Self::PolicyUsage | Self::DryRun | Self::Reload => true,
            Self::Server | Self::Listen | Self::EndMcpSession => true,
            Self::PageStart | Self::PageFile | Self::Session | Self::LogIn | Self::LogOut => true,
            Self::BeginLogin | Self::CompleteLogin | Self::LoginLink => true,
            Self::Conversations | Self::Conversation | Self::Trace => true,
            Self::Figures | Self::Coverage => true,
            Self::Load | Self::Check | Self::Batch | Self::Metrics => false,
        }
    }
}

/// Every route: the list that the router is built from, that tests compare with `openapi.json`, and that the answer to
/// an unknown path contains. The paths are written as in `openapi.json` and in the metrics. The parameter `target`
/// covers several segments of a path; OpenAPI has no notation for that, and the router writes it as `{*target}`.
pub(crate) static ROUTES: LazyLock<Vec<(Method, &str, ServiceRoute)>> = LazyLock::new(|| {
    let of_forms =
        Api::ALL.into_iter().flat_map(|api| api.form().routes.iter().map(move |route| (api, route)));
    let of_forms = of_forms.map(|(api, route)| match *route {
        FormRoute::Answer(path) => (Method::POST, path, ServiceRoute::Model(api)),
        FormRoute::ModelMethod(path) => (Method::POST, path, ServiceRoute::ModelMethod(api)),
        FormRoute::CountTokens(path) => (Method::POST, path, ServiceRoute::CountTokens(api)),
        FormRoute::ModelList(path) => (Method::GET, path, ServiceRoute::Models),
    });
    of_forms.chain(OTHER_ROUTES).collect()
});

/// The routes that do not depend on a wire form.
const OTHER_ROUTES: [(Method, &str, ServiceRoute); 48] = [
    (Method::POST, "/api/v1/policy/load", ServiceRoute::Load),
    (Method::POST, "/api/v1/policy/check", ServiceRoute::Check),
    (Method::POST, "/api/v1/policy/check/batch", ServiceRoute::Batch),
    (Method::GET, "/api/openapi.json", ServiceRoute::OpenApi),
    (Method::GET, "/api/v1/gateway/health", ServiceRoute::Health),
    (Method::GET, "/health", ServiceRoute::Health),
    (Method::GET, "/metrics", ServiceRoute::Metrics),
    (Method::POST, "/v1/embeddings", ServiceRoute::Embeddings),
    (Method::POST, "/api/v1/handed-calls", ServiceRoute::HandedCall),
    (Method::POST, "/beta/litellm_basic_guardrail_api", ServiceRoute::Guardrail),
    (Method::POST, "/envoy.service.ext_proc.v3.ExternalProcessor/Process", ServiceRoute::ExternalProcessor),
    (Method::GET, "/v1/models", ServiceRoute::Models),
    (Method::GET, "/api/v1/approvals", ServiceRoute::Questions),
    (Method::POST, "/api/v1/approvals", ServiceRoute::DecideSeveral),
    (Method::GET, "/api/v1/approvals/events", ServiceRoute::QuestionEvents),
    (Method::GET, "/api/v1/approvals/{id}", ServiceRoute::Question),
    (Method::POST, "/api/v1/approvals/{id}", ServiceRoute::Decide),
    (Method::GET, "/api/v1/freezes", ServiceRoute::Frozen),
    (Method::POST, "/api/v1/freezes", ServiceRoute::Freeze),
    (Method::GET, "/api/v1/grants", ServiceRoute::Grants),
    (Method::DELETE, "/api/v1/grants/{id}", ServiceRoute::WithdrawGrant),
    (Method::GET, "/api/v1/keys", ServiceRoute::Keys),
    (Method::POST, "/api/v1/keys", ServiceRoute::MakeKey),
    (Method::DELETE, "/api/v1/keys/{id}", ServiceRoute::RevokeKey),
    (Method::POST, "/api/v1/audit/forget", ServiceRoute::Forget),
    (Method::GET, "/api/v1/quotations", ServiceRoute::Quotations),
    (Method::POST, "/api/v1/quotations/clear", ServiceRoute::ClearQuotations),
    (Method::GET, "/api/v1/policies", ServiceRoute::Policies),
    (Method::GET, "/api/v1/policies/usage", ServiceRoute::PolicyUsage),
    (Method::POST, "/api/v1/policies/dry-run", ServiceRoute::DryRun),
    (Method::POST, "/api/v1/policies/reload", ServiceRoute::Reload),
    (Method::POST, "/mcp/{server}", ServiceRoute::Server),
    (Method::GET, "/mcp/{server}", ServiceRoute::Listen),
    (Method::DELETE, "/mcp/{server}", ServiceRoute::EndMcpSession),
    (Method::GET, "/ui", ServiceRoute::PageStart),
    (Method::GET, "/ui/", ServiceRoute::PageFile),
    (Method::GET, "/ui/login", ServiceRoute::BeginLogin),
    (Method::GET, CALLBACK, ServiceRoute::CompleteLogin),
    (Method::GET, "/ui/{file}", ServiceRoute::PageFile),
    (Method::GET, "/ui/api/session", ServiceRoute::Session),
    (Method::POST, "/ui/api/session", ServiceRoute::LogIn),
    (Method::DELETE, "/ui/api/session", ServiceRoute::LogOut),
    (Method::POST, "/ui/api/login-link", ServiceRoute::LoginLink),
    (Method::GET, "/ui/api/conversations", ServiceRoute::Conversations),
    (Method::GET, "/ui/api/conversation", ServiceRoute::Conversation),
    (Method::GET, "/ui/api/trace", ServiceRoute::Trace),
    (Method::GET, "/ui/api/figures", ServiceRoute::Figures),
    (Method::GET, "/ui/api/coverage", ServiceRoute::Coverage),
];
