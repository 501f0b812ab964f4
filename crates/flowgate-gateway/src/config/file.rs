//! Declares the tables of the configuration file as the operator writes them. [`super::read`] checks them and converts
//! them to the settings that the gateway uses. `config.schema.json` and `docs/gateway.md` say what each setting means.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use flowgate_guard::conversation::StepLabelling;
use flowgate_lm::wire::Api;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{SystemMessageTrust, UserMessageTrust};
use crate::approvals::WebhookFormat;

/// The whole file. The field of a section has the name of the section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    #[serde(default)]
    pub(super) upstreams: BTreeMap<String, UpstreamSpec>,
    #[serde(default)]
    pub(super) mcp: BTreeMap<String, ServerSpec>,
    #[serde(default)]
    pub(super) issuers: BTreeMap<String, IssuerSpec>,
    #[serde(default)]
    pub(super) clients: BTreeMap<String, ClientSpec>,
    #[serde(default)]
    pub(super) store: StoreTable,
    #[serde(default)]
    pub(super) people: BTreeMap<String, PersonSpec>,
    #[serde(default)]
    pub(super) login: LoginTable,
    #[serde(default)]
    pub(super) approvals: ApprovalsTable,
    pub(super) audit: Option<AuditTable>,
    pub(super) watch: Option<WatchTable>,
    #[serde(default, rename = "policy-api")]
    pub(super) policy_api: PolicyApiTable,
    #[serde(default)]
    pub(super) log: LogTable,
    pub(super) telemetry: Option<TelemetryTable>,
    pub(super) tls: Option<TlsTable>,
    /// The address of a service or the file of a module, by the name of the predicate that it answers.
    #[serde(default)]
    pub(super) predicates: BTreeMap<String, String>,
    /// The price of each model, by the name that requests have for it.
    #[serde(default)]
    pub(super) prices: BTreeMap<String, PriceSpec>,
}

/// An entry of `[prices]`: the prices of a million tokens.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PriceSpec {
    pub(super) input: f64,
    pub(super) output: f64,
    /// The price of input that the server reads from its cache; if it is absent, the price of other input.
    pub(super) cached_input: Option<f64>,
}

/// The section `[telemetry]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TelemetryTable {
    pub(super) endpoint: Option<String>,
    pub(super) headers_from: Option<String>,
    pub(super) headers_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) service_name: Option<String>,
    pub(super) sample: Option<f64>,
    #[serde(default)]
    pub(super) propagate: bool,
}

/// The section `[tls]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TlsTable {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_ca: Option<PathBuf>,
}

/// The section of watch mode.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WatchTable {
    pub(super) file: PathBuf,
}

/// The section `[log]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LogTable {
    pub(super) format: Option<FormatSpec>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FormatSpec {
    Text,
    Json,
}

/// The section `[policy-api]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PolicyApiTable {
    #[serde(default)]
    pub(super) allow_anonymous: bool,
}

/// The section `[audit]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AuditTable {
    pub(super) file: PathBuf,
    pub(super) key_file: Option<PathBuf>,
    pub(super) content_days: Option<NonZeroU32>,
    pub(super) witness: Option<WitnessTable>,
}

/// The section `[audit.witness]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WitnessTable {
    pub(super) file: Option<PathBuf>,
    pub(super) url: Option<String>,
    pub(super) key_from: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) every: Option<NonZeroU32>,
    pub(super) seconds: Option<NonZeroU32>,
    #[serde(default)]
    pub(super) required: bool,
    pub(super) behind_lines: Option<u32>,
    pub(super) behind_seconds: Option<u32>,
}

/// A section `[people.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PersonSpec {
    pub(super) key_from: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) subject: Option<String>,
    pub(super) role: RoleSpec,
    #[serde(default)]
    pub(super) tenants: Vec<String>,
    pub(super) may_read: Option<String>,
}

/// The role of a person.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RoleSpec {
    Viewer,
    Approver,
    Admin,
}

/// The section `[approvals]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ApprovalsTable {
    pub(super) wait_seconds: Option<u32>,
    pub(super) expires_minutes: Option<u32>,
    pub(super) open_questions: Option<NonZeroU32>,
    pub(super) open_questions_of_conversation: Option<NonZeroU32>,
    pub(super) questions_an_hour: Option<NonZeroU32>,
    pub(super) questions_an_hour_of_conversation: Option<NonZeroU32>,
    pub(super) questions_of_conversation: Option<NonZeroU32>,
    pub(super) refusals_in_a_row: Option<NonZeroU32>,
    pub(super) refusals_in_a_row_of_conversation: Option<NonZeroU32>,
    pub(super) webhook: Option<String>,
    pub(super) webhook_from: Option<String>,
    #[serde(default)]
    pub(super) webhook_format: WebhookFormat,
    pub(super) page: Option<String>,
    pub(super) webhook_secret_from: Option<String>,
    pub(super) webhook_secret_file: Option<PathBuf>,
}

/// The section `[store]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StoreTable {
    pub(super) url: Option<String>,
    pub(super) url_from: Option<String>,
    pub(super) encryption_key_from: Option<String>,
    pub(super) encryption_key_file: Option<PathBuf>,
    pub(super) retention_days: Option<u32>,
    pub(super) memory_mib: Option<u32>,
    pub(super) conversation_mib: Option<u32>,
    pub(super) quotation_mib: Option<u32>,
    pub(super) quotation_days: Option<u32>,
}

/// A section `[upstreams.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UpstreamSpec {
    pub(super) url: String,
    #[serde(default)]
    pub(super) api: ApiSpec,
    pub(super) key_from: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) pass_key: bool,
    #[serde(default)]
    pub(super) prompt_caching: bool,
    #[serde(default)]
    pub(super) models: Vec<String>,
    #[serde(default)]
    pub(super) dropped_fields: Vec<String>,
    #[serde(default)]
    pub(super) dropped_tools: Vec<String>,
}

/// A section `[mcp.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ServerSpec {
    pub(super) url: String,
    pub(super) key_from: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) prefix: Option<String>,
    pub(super) tools: Option<String>,
    pub(super) oauth: Option<ServerOAuthSpec>,
}

/// A section `[mcp.NAME.oauth]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ServerOAuthSpec {
    pub(super) issuer: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) client_secret_from: Option<String>,
    pub(super) client_secret_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
}

/// The API of an upstream, by the name of its wire form.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiSpec(pub(super) Api);

impl Default for ApiSpec {
    /// Returns the API of an upstream that names none: Chat Completions.
    fn default() -> Self {
        Self(Api::ChatCompletions)
    }
}

impl<'de> Deserialize<'de> for ApiSpec {
    /// Reads the name of an API. The error lists the names, in the words of other errors of the configuration file.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Api::named(&name).map(Self).ok_or_else(|| {
            let names = Api::ALL.map(|api| format!("`{}`", api.form().name)).join(", ");
            D::Error::custom(format_args!("unknown variant `{name}`, expected one of {names}"))
        })
    }
}

/// How steps are labelled.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StepLabelSpec {
    #[default]
    Floating,
    Fixed,
}

impl From<StepLabelSpec> for StepLabelling {
    fn from(spec: StepLabelSpec) -> Self {
        match spec {
            StepLabelSpec::Floating => Self::Floating,
            StepLabelSpec::Fixed => Self::Fixed,
        }
    }
}

/// Whether a policy is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModeSpec {
    #[default]
    Enforce,
    Watch,
}

/// A section `[issuers.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct IssuerSpec {
    pub(super) issuer: String,
    pub(super) jwks_file: Option<PathBuf>,
    pub(super) jwks_url: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) algorithms: Vec<String>,
    pub(super) leeway_seconds: Option<u32>,
}

/// A section `[clients.NAME.token]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TokenSpec {
    pub(super) issuer: String,
    pub(super) audience: String,
    #[serde(default)]
    pub(super) claims: Map<String, Value>,
    pub(super) subject: Option<String>,
    pub(super) groups: Option<String>,
    #[serde(default)]
    pub(super) input: BTreeMap<String, String>,
    pub(super) requests_per_minute: Option<u32>,
    pub(super) tokens_per_day: Option<u64>,
}

/// The section `[login]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LoginTable {
    pub(super) oidc: Option<LoginSpec>,
}

/// The section `[login.oidc]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LoginSpec {
    pub(super) issuer: String,
    pub(super) client_id: String,
    pub(super) client_secret_from: Option<String>,
    pub(super) client_secret_file: Option<PathBuf>,
    pub(super) redirect: String,
    #[serde(default = "scopes")]
    pub(super) scopes: Vec<String>,
    #[serde(default = "name_claim")]
    pub(super) name_claim: String,
    #[serde(default = "groups_claim")]
    pub(super) groups_claim: String,
    pub(super) session_minutes: Option<NonZeroU32>,
    #[serde(default)]
    pub(super) groups: BTreeMap<String, GroupSpec>,
}

/// Returns the scopes that are asked for by default.
fn scopes() -> Vec<String> {
    vec!["openid".to_owned(), "profile".to_owned()]
}

/// Returns the default claim with the name of a person.
fn name_claim() -> String {
    "sub".to_owned()
}

/// Returns the default claim with the groups of a person.
fn groups_claim() -> String {
    "groups".to_owned()
}

/// A section `[login.oidc.groups.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GroupSpec {
    pub(super) role: RoleSpec,
    #[serde(default)]
    pub(super) tenants: Vec<String>,
    pub(super) may_read: Option<String>,
}

/// A section `[clients.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClientSpec {
    #[serde(default)]
    pub(super) mode: ModeSpec,
    pub(super) key_from: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) certificate: Option<String>,
    pub(super) token: Option<TokenSpec>,
    pub(super) tenant: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) policy: PathBuf,
    pub(super) upstream: Option<String>,
    #[serde(default)]
    pub(super) mcp: Vec<String>,
    #[serde(default)]
    pub(super) fallback: Vec<FallbackSpec>,
    pub(super) small_model: Option<String>,
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) step_labels: StepLabelSpec,
    #[serde(default)]
    pub(super) interactive: bool,
    pub(super) user_messages: Option<UserMessageTrust>,
    #[serde(default)]
    pub(super) system_messages: SystemMessageTrust,
    #[serde(default)]
    pub(super) safeguards: SafeguardSpec,
    #[serde(default)]
    pub(super) guardrail: bool,
    #[serde(default)]
    pub(super) pinned: Vec<String>,
    #[serde(default)]
    pub(super) input: Map<String, Value>,
    #[serde(default = "requests_per_minute")]
    pub(super) requests_per_minute: u32,
    pub(super) tokens_per_day: Option<u64>,
    pub(super) cost_per_day: Option<f64>,
    #[serde(default = "parallel")]
    pub(super) parallel: u32,
    #[serde(default = "sessions")]
    pub(super) sessions: u32,
}

/// What the gateway answers a client that asks for verdicts on calls (`safeguards`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SafeguardSpec {
    /// That it does not judge whether calls are dangerous.
    #[default]
    Unsupported,
    /// That the policy has permitted each call.
    Policy,
}

/// An upstream that is asked if the one before it cannot answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FallbackSpec {
    pub(super) upstream: String,
    pub(super) model: Option<String>,
}

/// Returns the default limit on a client's requests per minute.
fn requests_per_minute() -> u32 {
    600
}

/// Returns the default limit on a client's parallel requests.
fn parallel() -> u32 {
    32
}

/// Returns the default limit on a client's stored conversations.
fn sessions() -> u32 {
    1_000
}
