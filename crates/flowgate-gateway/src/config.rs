//! Reads the configuration file of the gateway, in TOML. `flowgate serve` calls [`read_with_overrides`], and the
//! gateway is built from the settings that it returns ([`GatewayConfig`]).
//!
//! `file` declares the tables of the file. `client_settings` and `message_trust` define the settings of a client.
//! `overrides` sets fields from environment variables, with the types of `schema`. `loader` reads the configuration
//! again for a reload, and `fixed_sections` says what a reload cannot change. Each other submodule checks a section, or
//! a part of one, and converts it to settings: `approvals`, `audit` (with `witness`), `client` (with `budget`),
//! `issuer`, `login`, `person`, `server`, `telemetry`, `tls`, and `upstream` (with `dropped_parts`).
//!
//! ```toml
//! [upstreams.local]
//! url = "http://localhost:8080/v1"
//! models = ["qwen3"]
//!
//! [clients.assistant]
//! key-from = "ASSISTANT_KEY"      # the variable of the environment that holds the key it sends
//! upstream = "local"
//! policy = "mail.flow"
//! user-messages = "marked"        # parts that it marks as typed by a person are the user's
//!
//! [store]
//! url = "sqlite:flowgate.db"      # or `postgres://...`, for many gateways
//! ```

mod approvals;
mod audit;
mod budget;
mod client;
mod client_settings;
mod dropped_parts;
mod file;
pub(crate) mod fixed_sections;
mod issuer;
mod loader;
pub(crate) mod login;
mod message_trust;
mod overrides;
mod person;
mod schema;
mod server;
mod telemetry;
mod tls;
mod upstream;
mod witness;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowgate_audit::watch::WatchLog;
use flowgate_guard::approve::QuestionBudget;
use flowgate_guard::method::MethodRegistry;
use flowgate_lm::remote::Authorities;
use flowgate_mcp::ProxySettings;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use budget::Budget;
pub(crate) use budget::{MAX_COST, Prices};
use fixed_sections::FixedSections;
pub use loader::ConfigLoader;

use file::{FormatSpec, StoreTable};
use overrides::EffectiveFile;

pub use crate::database::{DatabaseAddress, DatabaseAddressError, EncryptionKeys};
use crate::log::LogLineFormat;
use crate::predicates::{PredicateSourceError, PredicateSourceSpec, PredicateSources};
use crate::random;
use crate::read_error;
use crate::secret::Secret;
use crate::tls::files::TlsSettings;
pub use approvals::{ApprovalSettings, WebhookSettings};
pub use audit::AuditSpec;
pub use client_settings::ClientSettings;
pub(crate) use login::LoginSettings;
pub use message_trust::{SystemMessageTrust, UserMessageTrust};
pub use overrides::Overrides;
pub use person::{Person, Role};
pub use schema::SCHEMA;
pub use server::McpServer;
pub use telemetry::TelemetrySpec;
pub use upstream::{FallbackUpstream, UpstreamConfig};
pub use witness::{DeliveryRequirement, WitnessAddress, WitnessSpec};

/// The settings that the gateway is built from, as [`read`] returns them.
#[derive(Debug, Default)]
pub struct GatewayConfig {
    /// The clients, sorted by name.
    pub clients: Vec<ClientSettings>,
    /// The database and the retention times.
    pub store: DatabaseSpec,
    /// The people who decide questions.
    pub people: Vec<Person>,
    /// How people log in at an issuer; `None` without the section `[login.oidc]`.
    pub(crate) login: Option<LoginSettings>,
    /// The settings of questions to people.
    pub approvals: ApprovalSettings,
    /// Whether callers without a token may use the policy API.
    pub policy_api_anonymous: bool,
    /// Who is notified of questions, if anybody.
    pub webhook: Option<WebhookSettings>,
    /// The audit log.
    pub audit: Option<AuditSpec>,
    /// The format of log lines, if the file sets one.
    pub log_format: Option<LogLineFormat>,
    /// Where spans go, if they are recorded.
    pub telemetry: Option<TelemetrySpec>,
    /// The TLS settings towards clients, if they connect with TLS.
    pub tls: Option<TlsSettings>,
    /// Every key that the file names, to be hidden in texts that must not contain one.
    pub keys: Vec<Secret>,
    /// The paths of the fields that environment variables set, such as `store.retention-days`.
    pub overridden_fields: Vec<String>,
    /// The sections that a reload does not change.
    pub(crate) fixed_sections: FixedSections,
}

/// The database, and the limits on what it stores and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSpec {
    /// The address of the database.
    pub address: DatabaseAddress,
    /// The retention time of an unused conversation.
    pub retention: Duration,
    /// The approximate memory for conversations, in bytes.
    pub memory: usize,
    /// The limit on the input that one conversation may store, in bytes.
    pub conversation: u64,
    /// The limit on the texts that are remembered of what one client was shown. The unit is a window of text: there is
    /// about one for each byte of normalised text.
    pub quotations: usize,
    /// The retention time of the remembered texts.
    pub quotation_age: Duration,
    /// The keys with which stored content is encrypted, if there are any.
    pub encryption: EncryptionKeys,
}

impl Default for DatabaseSpec {
    /// Returns the default sizes and times, for a database in memory. `ConfigReader::store` sets the address.
    fn default() -> Self {
        let (address, retention) = (DatabaseAddress::Memory, Duration::from_secs(30 * DAY));
        // `quotations` is a number of windows of text; the other sizes are in bytes.
        let (quotations, quotation_age) = (8 << 20, retention);
        let encryption = EncryptionKeys::default();
        Self {
            address,
            retention,
            memory: 256 << 20,
            conversation: 32 << 20,
            quotations,
            quotation_age,
            encryption,
        }
    }
}

/// The seconds of a day.
const DAY: u64 = 24 * 60 * 60;
/// The version of the rules by which `flowgate_mcp` counts the questions to the person at a client. Sessions that were
/// stored under other rules are not replayed: the replay could ask a question that the session did not ask.
const QUESTION_COUNTING: u32 = 2;
/// The default file of the database, in the folder of the configuration.
const FILE: &str = "flowgate.db";

/// An error in the file: one line, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// The least length of a key, in bytes: shorter ones can be guessed.
const MIN_KEY: usize = 16;

/// Reads the text of a configuration file. Relative paths start at `folder`. `environment` returns the value of an
/// environment variable; `None` if it is not set. The methods of conversations are the built-in ones.
///
/// # Errors
/// The first error in the file, with its position.
pub fn read(
    text: &str,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<GatewayConfig, ConfigError> {
    read_with_methods(text, folder, environment, &MethodRegistry::builtin())
}

/// Reads the text of a configuration file as [`read`] does; `method = "NAME"` of a client names one of `methods`,
/// which an embedding program may have extended.
///
/// A section is read after the sections to which it refers: upstreams and servers, then clients, then people. At the
/// end, clients receive the settings that depend on people and on the store. Also checks that no two principals share a
/// key, and that the extern predicates of the policies and of `[predicates]` match.
///
/// # Errors
/// The first error in the file, with its position.
pub fn read_with_methods(
    text: &str,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
    methods: &MethodRegistry,
) -> Result<GatewayConfig, ConfigError> {
    read_with_overrides(text, folder, environment, methods, &Overrides::default())
}

/// Reads the text of a configuration file as [`read_with_methods`] does, with the fields that environment variables
/// set.
///
/// # Errors
/// The first error in the file, with its position, or in a variable, with its name.
pub fn read_with_overrides(
    text: &str,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
    methods: &MethodRegistry,
    overrides: &Overrides,
) -> Result<GatewayConfig, ConfigError> {
    let EffectiveFile { file, table, overridden } = overrides.apply_to(text)?;
    let reader = ConfigReader { folder, environment, methods, keys: RefCell::default() };
    let predicate_sources = reader.predicate_sources(&file.predicates)?;
    let mut upstreams = BTreeMap::new();
    for (name, spec) in file.upstreams {
        let upstream =
            reader.upstream(&name, spec).map_err(|why| ConfigError(format!("upstreams.{name}: {why}")))?;
        upstreams.insert(name, Arc::new(upstream));
    }
    let issuers = reader.issuers(file.issuers).map_err(ConfigError)?;
    let mut servers = BTreeMap::new();
    for (name, spec) in file.mcp {
        let server = reader.server(&name, spec).map_err(|why| ConfigError(format!("mcp.{name}: {why}")))?;
        servers.insert(name, Arc::new(server));
    }
    let prices = Prices::read(file.prices).map_err(|why| ConfigError(format!("prices.{why}")))?;
    let prices = Arc::new(prices);
    let watch_log = file.watch.as_ref().map(|table| WatchLog::new(&folder.join(&table.file)));
    let asks_for_certificates = file.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let mut clients: Vec<ClientSettings> = Vec::new();
    for (name, spec) in file.clients {
        let at = |why: String| ConfigError(format!("clients.{name}: {why}"));
        let mut client = reader
            .client(&name, spec, &upstreams, &servers, &issuers, (watch_log.as_ref(), &prices))
            .map_err(at)?;
        if let Some(missing) = client
            .own_policy()
            .externs()
            .find(|name| !predicate_sources.predicate_names().any(|implemented| implemented == *name))
        {
            let why = format!(
                "the extern predicate `{missing}` has no implementation: write {missing} = \"http://...\" or \
                \"FILE.wasm\" in [predicates]"
            );
            return Err(at(why));
        }
        client.predicates = predicate_sources.clone();
        if let Some(other) = clients.iter().find(|other| client.key.is_some() && other.key == client.key) {
            return Err(at(format!("the key is also that of {}: give each client its own key", other.name)));
        }
        issuer::check_ambiguity(&client, &clients).map_err(at)?;
        if client.certificate.is_some() {
            if !asks_for_certificates {
                return Err(at(
                    "certificate: clients can present certificates only with `client-ca`: write client-ca = \
                    \"FILE\" in [tls]"
                        .to_owned(),
                ));
            }
            if let Some(other) = clients.iter().find(|other| other.certificate == client.certificate) {
                return Err(at(format!(
                    "the certificate is also that of {}: give each client its own certificate",
                    other.name
                )));
            }
        }
        clients.push(client);
    }
    if clients.is_empty() {
        return Err(ConfigError(
            "the configuration has no client: write [clients.NAME] with key-from, upstream and policy"
                .to_owned(),
        ));
    }
    if watch_log.is_some() && clients.iter().all(|client| client.watch.is_none()) {
        let why = "watch: no client watches: write mode = \"watch\" in [clients.NAME], or remove the section";
        return Err(ConfigError(why.to_owned()));
    }
    // Every configured predicate must be declared by a policy.
    let is_declared = |name: &str| {
        clients.iter().any(|client| client.own_policy().externs().any(|declared| declared == name))
    };
    if let Some(unknown) = predicate_sources.predicate_names().find(|name| !is_declared(name)) {
        return Err(ConfigError(format!(
            "predicates: no policy declares `extern {unknown}`: declare it in a policy, or remove the entry"
        )));
    }
    // The people, and how they log in.
    let mut people: Vec<Person> = Vec::new();
    for (name, spec) in file.people {
        let at = |why: String| ConfigError(format!("people.{name}: {why}"));
        let person = reader.person(&name, spec, &clients).map_err(at)?;
        let is_key_of_person = |key: &Secret| person.key.as_ref() == Some(key);
        let client = clients
            .iter()
            .find(|client| client.key.as_ref().is_some_and(is_key_of_person))
            .map(|client| &client.name);
        let other = people
            .iter()
            .find(|other| other.key.as_ref().is_some_and(is_key_of_person))
            .map(|other| &other.name);
        if let Some(other) = client.or(other) {
            return Err(at(format!("the key is also that of {other}: give each person their own key")));
        }
        if person.subject.is_some() {
            if file.login.oidc.is_none() {
                let why = "subject: people can log in at an issuer only with [login.oidc]: write the section, or remove the line";
                return Err(at(why.to_owned()));
            }
            if let Some(other) = people.iter().find(|other| other.subject == person.subject) {
                return Err(at(format!(
                    "the subject is also that of {}: give each person their own",
                    other.name
                )));
            }
        }
        people.push(person);
    }
    let login = file.login.oidc.map(|spec| reader.login(spec, &issuers, &clients)).transpose();
    let login = login.map_err(|why| ConfigError(format!("login.oidc: {why}")))?;
    for client in &clients {
        if let Some(owner) = client.owner.as_ref().filter(|owner| people.iter().all(|p| p.name != **owner)) {
            let message =
                format!("clients.{}: there is no person `{owner}`: write [people.{owner}]", client.name);
            return Err(ConfigError(message));
        }
    }
    for client in &clients {
        login.iter().try_for_each(|login| login.check_client(client, &people)).map_err(ConfigError)?;
    }
    // The settings of clients that depend on people and on the store.
    let (approvals, webhook) =
        reader.approvals(file.approvals).map_err(|why| ConfigError(format!("approvals: {why}")))?;
    for client in &mut clients {
        client.approval_ttl = approvals.expires_after;
        let is_approver_of_client =
            |person: &Person| person.decides_for(&client.tenant, client.owner.as_deref());
        // Only if no approver is configured for the client, the person who uses it is asked in its chat.
        let mut groups = login.iter().flat_map(|login| &login.groups);
        client.asks_its_user = client.interactive
            && !people.iter().any(is_approver_of_client)
            && !groups.any(|group| group.decides_for(&client.tenant));
        // `config_fingerprint` is the digest of the settings under which stored conversations can be replayed. They
        // include whether the person who uses the client is asked in its chat, and within which budget: a replay counts
        // the questions again.
        let mut covered_settings: Vec<Value> =
            vec![client.config_fingerprint.as_str().into(), client.asks_its_user.into()];
        if client.asks_its_user {
            let QuestionBudget { questions, refusals_in_row } = ProxySettings::new("").questions;
            let budget: [Value; 3] = [QUESTION_COUNTING.into(), questions.into(), refusals_in_row.into()];
            covered_settings.extend(budget);
        }
        let covered_settings = Value::from(covered_settings).to_string();
        client.config_fingerprint = random::hex(&Sha256::digest(covered_settings));
    }
    let store = reader.store(file.store).map_err(|why| ConfigError(format!("store: {why}")))?;
    for client in &mut clients {
        (client.quotations, client.quotation_age) = (store.quotations, store.quotation_age);
    }
    // The errors of this section and of `[tls]` begin with the rest of the place, such as `.witness: ` or `.key: `.
    let audit = file
        .audit
        .map(|table| reader.audit(table))
        .transpose()
        .map_err(|why| ConfigError(format!("audit{why}")))?;
    let telemetry = file
        .telemetry
        .map(|table| reader.telemetry(table))
        .transpose()
        .map_err(|why| ConfigError(format!("telemetry: {why}")))?
        .flatten();
    let tls = file
        .tls
        .map(|table| reader.tls(table))
        .transpose()
        .map_err(|why| ConfigError(format!("tls{why}")))?;
    let log_format = file.log.format.map(|format| match format {
        FormatSpec::Text => LogLineFormat::Text,
        FormatSpec::Json => LogLineFormat::Json,
    });
    let mut keys = reader.keys.into_inner();
    // Longer keys come first: a key that is a prefix of a longer one must not leave the rest of it visible.
    keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
    let policy_api_anonymous = file.policy_api.allow_anonymous;
    Ok(GatewayConfig {
        clients,
        store,
        people,
        login,
        approvals,
        policy_api_anonymous,
        webhook,
        audit,
        log_format,
        telemetry,
        tls,
        keys,
        overridden_fields: overridden,
        fixed_sections: FixedSections::of(table),
    })
}

/// Returns the message for the operator about an environment variable that should contain a key and is not set.
fn missing_variable(variable: &str) -> String {
    format!(
        "the environment variable {variable} is not set: export it before the start, with the key that the \
        provider gave you; for a client or a person, with a key from `openssl rand -hex 16`"
    )
}

/// Returns the entry of a configuration that has this name. If there is none, the error message lists the names that
/// exist; `kind` is the word for an entry in this message, such as `upstream`.
fn find_named<T>(kind: &str, name: &str, all: &BTreeMap<String, Arc<T>>) -> Result<Arc<T>, String> {
    all.get(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = all.keys().map(String::as_str).collect();
        match known.as_slice() {
            [] => {
                format!("the configuration has no {kind} `{name}`, and no other {kind}: add a section for it")
            }
            known => {
                let known = known.join(", ");
                format!(
                    "the configuration has no {kind} `{name}`: write one of {known}, or add a section for it"
                )
            }
        }
    })
}

/// Reads the sections of a configuration file, and collects their keys. Each submodule adds the method for its section.
struct ConfigReader<'a> {
    folder: &'a Path,
    environment: &'a dyn Fn(&str) -> Option<String>,
    methods: &'a MethodRegistry,
    /// The keys that were read so far, to be removed from logs and records.
    keys: RefCell<Vec<Secret>>,
}

impl ConfigReader<'_> {
    /// Reads the section `[predicates]`, which says for each extern predicate, by its name, which service or module
    /// answers it. Loads these services and modules.
    ///
    /// # Errors
    /// If a source is neither an address nor the file of a module, or cannot be loaded.
    fn predicate_sources(
        &self,
        predicates: &BTreeMap<String, String>,
    ) -> Result<PredicateSources, ConfigError> {
        // `target` is the address of a service or the file of a module.
        let source = |(name, target): (&String, &String)| {
            let source: Result<PredicateSourceSpec, PredicateSourceError> =
                format!("{name}={target}").parse();
            source.map(|source| source.resolved_in(self.folder)).map_err(|why| match why {
                PredicateSourceError::Form => ConfigError(format!(
                    "predicates.{name}: the source must be an address that begins with http://, or a FILE.wasm"
                )),
                why => ConfigError(format!("predicates.{name}: {why}")),
            })
        };
        let sources = predicates.iter().map(source).collect::<Result<Vec<_>, _>>()?;
        PredicateSources::load(&sources).map_err(|why| ConfigError(format!("predicates: {why}")))
    }

    /// Reads the section `[store]`; a setting that it leaves out has the default value. A time or size of 0 is raised
    /// to the smallest one that works, except `memory-mib`: with 0, only conversations in use are in memory.
    ///
    /// # Errors
    /// If the address of the database is given twice or is invalid, its environment variable is not set, or the
    /// encryption keys cannot be read.
    fn store(&self, spec: StoreTable) -> Result<DatabaseSpec, String> {
        let defaults = DatabaseSpec::default();
        let url = match (spec.url, spec.url_from) {
            (Some(_), Some(_)) => {
                return Err("the section has both `url` and `url-from`: remove one of them".to_owned());
            }
            (Some(url), None) => url,
            (None, Some(name)) => (self.environment)(&name).ok_or_else(|| {
                format!("the environment variable {name} is not set: set it to the address of the database")
            })?,
            (None, None) => format!("sqlite:{FILE}"),
        };
        let address = DatabaseAddress::read(url.trim(), self.folder).map_err(|error| error.to_string())?;
        let encryption =
            self.encryption_keys(spec.encryption_key_from.as_deref(), spec.encryption_key_file.as_deref())?;
        // Converts a number of mebibytes to bytes.
        let mib = |setting: Option<u32>, default: u64| setting.map_or(default, |mib| u64::from(mib) << 20);
        let memory = u64::try_from(defaults.memory).unwrap_or(u64::MAX);
        let quotations = u64::try_from(defaults.quotations).unwrap_or(u64::MAX);
        let days = |setting: Option<u32>, default: Duration| {
            setting.map_or(default, |days| Duration::from_secs(u64::from(days.max(1)) * DAY))
        };
        Ok(DatabaseSpec {
            address,
            retention: days(spec.retention_days, defaults.retention),
            // At least 1 MiB.
            quotations: usize::try_from(mib(spec.quotation_mib, quotations).max(1 << 20))
                .unwrap_or(usize::MAX),
            quotation_age: days(spec.quotation_days, defaults.quotation_age),
            memory: usize::try_from(mib(spec.memory_mib, memory)).unwrap_or(usize::MAX),
            conversation: mib(spec.conversation_mib, defaults.conversation).max(1),
            encryption,
        })
    }

    /// Reads the keys that encrypt stored content, from the environment variable `variable` or the file `file`. Returns
    /// no keys if the section names neither; content is then not encrypted.
    ///
    /// # Errors
    /// If both are given, the variable is not set, or the text is not a list of keys.
    fn encryption_keys(&self, variable: Option<&str>, file: Option<&Path>) -> Result<EncryptionKeys, String> {
        const FROM: &str = "encryption-key-from";
        const FILE: &str = "encryption-key-file";
        // The setting that the section has, for errors.
        let setting = if variable.is_some() { FROM } else { FILE };
        // `key_named` would fail as well, but its message does not say how to make a key.
        if let Some(name) = variable.filter(|name| (self.environment)(name).is_none()) {
            return Err(format!(
                "{FROM}: the environment variable {name} is not set: set it to a key from `openssl rand -base64 32`"
            ));
        }
        let text = self.key_named((FROM, variable), (FILE, file))?;
        let Some(text) = text else { return Ok(EncryptionKeys::default()) };
        // `key_named` has noted the whole text; each of several keys in it must be removed from logs as well.
        self.keys.borrow_mut().extend(text.split_whitespace().map(Secret::new));
        EncryptionKeys::read(&text).map_err(|why| format!("{setting}: {why}"))
    }

    /// Reads a key from the environment variable or the file that a section names, and notes the key, so that it is
    /// removed from logs and records. `None` if the section names neither.
    ///
    /// # Errors
    /// If the section names both, the variable is not set, or the file cannot be read.
    fn key(&self, variable: Option<&str>, file: Option<&Path>) -> Result<Option<String>, String> {
        self.key_named(("key-from", variable), ("key-file", file))
    }

    /// Reads a key from the environment variable `variable` or the file `file`, and notes the key, so that it is
    /// removed from logs and records. `None` if neither is given. `from` and `file_setting` are the names of the two
    /// settings, for errors.
    ///
    /// # Errors
    /// If both are given, the variable is not set, or the file cannot be read.
    fn key_named(
        &self,
        (from, variable): (&str, Option<&str>),
        (file_setting, file): (&str, Option<&Path>),
    ) -> Result<Option<String>, String> {
        let key = match (variable, file) {
            (Some(_), Some(_)) => {
                return Err(format!(
                    "the section has both `{from}` and `{file_setting}`: remove one of them"
                ));
            }
            (Some(name), None) => (self.environment)(name).ok_or_else(|| missing_variable(name))?,
            (None, Some(file)) => self.text(&self.folder.join(file))?,
            (None, None) => return Ok(None),
        };
        self.keys.borrow_mut().push(Secret::new(key.trim()));
        Ok(Some(key.trim().to_owned()))
    }

    /// Reads the certificate authorities that are trusted for the server at `url` from a PEM file; without a file,
    /// returns the default ones.
    fn authorities(&self, url: &str, file: Option<&Path>) -> Result<Authorities, String> {
        self.authorities_of("url", url, file)
    }

    /// Reads the certificate authorities that are trusted for the server at `url` from a PEM file; without a file,
    /// returns the default ones. `setting` is the name of the setting with the address, for errors.
    ///
    /// # Errors
    /// If the address has no TLS, or the file cannot be read or has no certificate.
    fn authorities_of(&self, setting: &str, url: &str, file: Option<&Path>) -> Result<Authorities, String> {
        let Some(file) = file else { return Ok(Authorities::default()) };
        if !url.starts_with("https://") {
            return Err(format!(
                "the section has a `ca-file`, but its `{setting}` does not begin with https://: correct the `{setting}`, or remove the \
                 `ca-file`"
            ));
        }
        let path = self.folder.join(file);
        let failed = |why: &dyn fmt::Display| format!("ca-file: {}: {why}", path.display());
        let pem = std::fs::read(&path).map_err(|error| failed(&read_error::reason(&error)))?;
        Authorities::read(&pem).map_err(|error| failed(&error))
    }

    /// Reads a text file; the error names its path.
    fn text(&self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {}", path.display(), read_error::reason(&error)))
    }
}

#[cfg(test)]
mod tests;
