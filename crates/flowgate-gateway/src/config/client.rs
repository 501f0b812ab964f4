//! Reads the sections `[clients.*]`: how each client authenticates itself, its upstream, its policy and its limits.
//! `config` calls it for each section.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowgate::monitor::Monitor;
use flowgate::policy::{Dialect, Policy};
use flowgate_audit::watch::WatchLog;
use flowgate_guard::conversation::StepLabelling;
use flowgate_guard::history::MessageTemplate;
use flowgate_guard::method::Method;
use flowgate_lm::wire::SafeguardAnswer;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::budget::{Budget, Prices};
use super::file::{ClientSpec, ModeSpec, SafeguardSpec};
use super::upstream::fallback_upstream;
use super::{
    ApprovalSettings, ClientSettings, ConfigReader, DatabaseSpec, MIN_KEY, McpServer, UpstreamConfig,
    UserMessageTrust, find_named,
};
use crate::identity::issuer::Issuer;
use crate::predicates::PredicateSources;
use crate::random;
use crate::secret::Secret;
use crate::tls::client_certificate::CertificateName;
use crate::watching::{ClientWatch, permissive_policy};

/// The version of the stored form of conversations. It is part of the fingerprint: conversations that were stored in
/// another version are not replayed.
const FORMAT: u32 = 6;
/// The name of the policy's parameter that receives the client's tenant, unless the configuration sets this parameter
/// to something else.
const TENANT: &str = "tenant";

impl ConfigReader<'_> {
    /// Checks the section of the client `name`, reads its policy, and returns the settings. `upstreams`, `servers` and
    /// `issuers` are the configured ones, to which the section refers by name; `watch_log` is the log of the section
    /// [watch], and `prices` are the prices of models.
    ///
    /// # Errors
    /// The first problem of the section or of its policy, as a message for the operator.
    pub(super) fn client(
        &self,
        name: &str,
        spec: ClientSpec,
        upstreams: &BTreeMap<String, Arc<UpstreamConfig>>,
        servers: &BTreeMap<String, Arc<McpServer>>,
        issuers: &BTreeMap<String, Arc<Issuer>>,
        (watch_log, prices): (Option<&WatchLog>, &Arc<Prices>),
    ) -> Result<ClientSettings, String> {
        // How the client authenticates itself.
        let key = self.key(spec.key_from.as_deref(), spec.key_file.as_deref())?;
        let certificate = spec.certificate.as_deref().map(CertificateName::read).transpose();
        let certificate = certificate.map_err(|error| format!("certificate: {error}"))?;
        let token = spec.token.map(|token| self.client_token(token, issuers, &spec.input)).transpose();
        let token = token.map_err(|error| format!("token: {error}"))?;
        if key.is_none() && certificate.is_none() && token.is_none() {
            return Err("the section does not say how the client authenticates itself: write key-from = \"VARIABLE\" or key-file = \"FILE\", a `certificate` with client-ca in [tls], or a section `token` with an issuer".to_owned());
        }
        if key.as_ref().is_some_and(|key| key.len() < MIN_KEY) {
            return Err(format!(
                "the key is too short and can be guessed: use at least {MIN_KEY} characters"
            ));
        }
        // The models and the servers that it may use.
        let upstream =
            spec.upstream.as_ref().map(|name| find_named("upstream", name, upstreams)).transpose()?;
        let fallback = spec
            .fallback
            .into_iter()
            .map(|further| fallback_upstream(further, upstream.as_deref(), upstreams))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| format!("fallback: {why}"))?;
        // The models that the section names itself. Without an upstream, the small model is never asked.
        let named = [upstream.as_ref().and(spec.small_model.as_deref())];
        let named =
            named.into_iter().flatten().chain(fallback.iter().filter_map(|further| further.model.as_deref()));
        let budget = Budget::read(spec.tokens_per_day, spec.cost_per_day, prices, named)?;
        let servers =
            spec.mcp.iter().map(|name| find_named("server", name, servers)).collect::<Result<Vec<_>, _>>()?;
        let prefixes: Vec<&str> = servers.iter().filter_map(|server| server.prefix.as_deref()).collect();
        // Each pair of prefixes is compared once.
        for (at, one) in prefixes.iter().enumerate() {
            let mut others = prefixes.iter().skip(at + 1);
            if let Some(other) = others.find(|other| one.starts_with(**other) || other.starts_with(one)) {
                return Err(format!(
                    "mcp: two servers have the prefixes `{one}` and `{other}`, of which one is the beginning of the other, so the server of a tool is ambiguous: change one `prefix` in [mcp]"
                ));
            }
        }
        if upstream.is_none() && servers.is_empty() && !spec.guardrail {
            return Err(
                "the section has no upstream: write upstream = \"NAME\", or mcp = [\"NAME\"], or guardrail = true"
                    .to_owned()
            );
        }
        // The policy, and the method. In watch mode, conversations run under a permissive policy; the client's own
        // policy only judges.
        let path = self.folder.join(&spec.policy);
        let source = self.text(&path)?;
        let policy_folder = path.parent().unwrap_or(Path::new(""));
        let read = |imported: &str| self.text(&policy_folder.join(imported));
        let policy = Policy::load(&source, Dialect::Flowgate, read).map_err(|invalid| {
            let first = invalid.diagnostics.first().map(|error| {
                let position = invalid.source.locate(error.span.start);
                let file = position.file.map_or_else(|| path.clone(), |file| policy_folder.join(file));
                format!("{}:{}:{}: {}", file.display(), position.line, position.column, error.message)
            });
            let more = match invalid.diagnostics.len() {
                0 | 1 => String::new(),
                count => {
                    let (more, path) = (count - 1, path.display());
                    let errors = if more == 1 { "error" } else { "errors" };
                    format!(" (and {more} more {errors}: run `flowgate check {path}`)")
                }
            };
            format!("{}{more}", first.unwrap_or_default())
        })?;
        let method = match spec.method.as_deref() {
            None => Method::LowestFirst,
            Some(name) => self.methods.resolve(name).map_err(|error| error.to_string())?,
        };
        let own_policy = Arc::new(policy);
        let (policy, watch, method) = match (spec.mode, watch_log) {
            (ModeSpec::Enforce, _) => (own_policy, None, method),
            (ModeSpec::Watch, None) => {
                return Err(
                    "mode: watch mode needs a file for the verdicts: write file = \"watch.jsonl\" in [watch]"
                        .to_owned(),
                );
            }
            (ModeSpec::Watch, Some(log)) => {
                let permissive = permissive_policy::load(&own_policy, &source, read)
                    .map_err(|why| format!("mode: {}: {why}", path.display()))?;
                // Everything is shown to every step, so no method has to choose.
                (permissive, Some(ClientWatch { policy: own_policy, log: log.clone() }), Method::Everything)
            }
        };
        // A token sets parameters of the policy for one agent. But with `guardrail`, the client is another gateway,
        // which sends the chats of all its agents with its own key, so the parameters of the agent are not known.
        if spec.guardrail && token.is_some() {
            return Err("guardrail: another gateway sends one key for all its agents, so `token` cannot apply: remove one of the settings"
                .to_owned());
        }
        // The labels of stores have to outlive a chat, and the chats of another gateway (`guardrail`) have no session
        // here that keeps them.
        if spec.guardrail && declares_stores(&policy) {
            return Err("guardrail: the policy declares stores, whose labels a guardrail does not keep from one chat to the next: \
                 remove the `store` statements, or let the agents connect to this gateway directly"
                .to_owned());
        }
        // The fingerprint covers every setting whose change makes a replay diverge.
        let server_names: Vec<_> = servers.iter().map(|server| (&server.name, &server.prefix)).collect();
        // Trust in text that strangers may have written must be set explicitly, by the option that names it.
        let user_messages = spec.user_messages.unwrap_or(UserMessageTrust::Untrusted);
        let trust_name = user_messages.name();
        let step_labels = StepLabelling::from(spec.step_labels);
        let labelling = format!("{step_labels:?}");
        let mut covered_settings = vec![serde_json::json!([
            FORMAT,
            policy.source(),
            method.name(),
            labelling,
            trust_name,
            spec.pinned,
            server_names
        ])];
        // The settings below are covered only if they are set. Without them, the fingerprint equals that of earlier
        // versions of the gateway, and stored conversations can still be replayed.
        if spec.system_messages.trusts_all() {
            covered_settings.push("trusts-system".into());
        }
        let has_explicit_tenant = spec.tenant.is_some();
        let tenant = spec.tenant.unwrap_or_else(|| name.to_owned());
        let mut input = spec.input;
        let is_tenant_set = input.contains_key(TENANT)
            || token.as_ref().is_some_and(|token| token.input.contains_key(TENANT));
        // Without `tenant`, the tenant is the name of the client. That cannot change for the stored conversations of
        // the client, so the fingerprint need not cover it.
        if !is_tenant_set && has_explicit_tenant {
            input.insert(TENANT.to_owned(), tenant.as_str().into());
        }
        if !input.is_empty() {
            covered_settings.push(input.clone().into());
        }
        if !is_tenant_set {
            input.insert(TENANT.to_owned(), tenant.as_str().into());
        }
        // Earlier versions of the gateway computed the digest of the first element alone.
        let covered_settings = match covered_settings.as_slice() {
            [alone] => alone.to_string(),
            _ => Value::from(covered_settings).to_string(),
        };
        let config_fingerprint = random::hex(&Sha256::digest(covered_settings));
        // The caller sets what depends on other sections: the predicates, the times and sizes of `[approvals]` and
        // `[store]`, and `asks_its_user`.
        Ok(ClientSettings {
            config_fingerprint,
            name: name.to_owned(),
            owner: spec.owner,
            approval_ttl: ApprovalSettings::default().expires_after,
            key: key.map(Secret::new),
            certificate,
            token,
            tenant,
            policy,
            watch,
            policy_file: spec.policy.display().to_string(),
            predicates: PredicateSources::default(),
            upstream,
            fallback,
            servers,
            small_model: spec.small_model,
            method,
            step_labels,
            interactive: spec.interactive,
            user_messages,
            system_messages: spec.system_messages,
            safeguards: match (spec.safeguards, spec.mode) {
                (SafeguardSpec::Policy, ModeSpec::Enforce) => SafeguardAnswer::Permitted,
                // In watch mode, the policy stops nothing, so it vouches for nothing.
                _ => SafeguardAnswer::Unsupported,
            },
            guardrail: spec.guardrail,
            is_interactive_alone: spec.interactive && spec.user_messages.is_none(),
            quotations: DatabaseSpec::default().quotations,
            quotation_age: DatabaseSpec::default().quotation_age,
            asks_its_user: false,
            pinned: spec.pinned.iter().map(|form| MessageTemplate::new(form)).collect(),
            input,
            requests_per_minute: spec.requests_per_minute.max(1),
            budget,
            parallel: usize::try_from(spec.parallel).unwrap_or(usize::MAX).max(1),
            sessions: usize::try_from(spec.sessions).unwrap_or(usize::MAX).max(1),
        })
    }
}

/// Returns whether a policy declares stores. A record without the list of declared stores counts as one with stores.
fn declares_stores(policy: &Arc<Policy>) -> bool {
    let record = Monitor::new(Arc::clone(policy)).external_state_record();
    record.get("declared").and_then(Value::as_array).is_none_or(|declared| !declared.is_empty())
}
