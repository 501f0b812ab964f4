//! Fetches the public keys and the description of an issuer, and caches them. `config` creates an [`Issuer`] for each
//! section `[issuers.NAME]`; the verification of tokens and the logins share it.
//!
//! The keys are fetched at the start, every five minutes, and when a token names an unknown key, at most
//! [`MAX_FETCHES`] times in a minute. If the issuer cannot be reached, the last keys are valid for an hour after they
//! were fetched; without valid keys, every token is refused.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use flowgate::json::{self, Numbers};
use flowgate_lm::remote::Authorities;
use jsonwebtoken::Algorithm;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::bounded_http::BoundedHttp;
use super::key_set::KeySet;
use super::token::{TokenClaims, TokenRefusal, TokenRequirements, UnverifiedToken};
use crate::log::{LogEvent, OperatorLog};

/// The interval at which the keys are fetched.
pub(crate) const REFRESH: Duration = Duration::from_mins(5);
/// The time for which fetched keys are valid if they cannot be fetched again.
const MAX_AGE: Duration = Duration::from_hours(1);
/// The time for which a fetched description of the issuer is cached.
const DESCRIPTION_TIME: Duration = Duration::from_mins(1);
/// The time for which the failure to fetch the description is cached.
const DESCRIPTION_FAILURE_TIME: Duration = Duration::from_secs(5);
/// The most authorization codes of logins that are exchanged for ID tokens at the same time.
const MAX_EXCHANGES: usize = 16;
/// The most fetches of the keys of one issuer in a minute.
pub(crate) const MAX_FETCHES: usize = 4;

/// The place from which the keys of an issuer are read.
#[derive(Debug, Clone)]
pub(crate) enum KeySource {
    /// In a file, which was read with the configuration.
    File(Arc<KeySet>),
    /// At an address of the configuration.
    Address(String),
    /// At the address that the issuer's description (`/.well-known/openid-configuration`) names.
    Discovery,
}

/// The section `[issuers.NAME]`.
#[derive(Debug, Clone)]
pub(crate) struct IssuerSettings {
    /// The name of the section.
    pub(crate) name: String,
    /// The issuer as its tokens name it (`iss`).
    pub(crate) issuer: String,
    pub(crate) source: KeySource,
    pub(crate) algorithms: Vec<Algorithm>,
    /// The tolerance for clocks that differ.
    pub(crate) leeway: Duration,
    /// The authorities that must certify the servers of the issuer.
    pub(crate) authorities: Authorities,
}

/// An issuer of tokens, with its keys.
pub(crate) struct Issuer {
    pub(crate) settings: IssuerSettings,
    pub(super) http: BoundedHttp,
    keys: RwLock<Option<FetchedKeys>>,
    /// Locked while the keys are fetched.
    fetching: tokio::sync::Mutex<()>,
    /// The times of the fetches of the last minute.
    fetches: Mutex<VecDeque<Instant>>,
    /// The last description or failure to fetch it, and its time. Locked while the description is fetched.
    described: tokio::sync::Mutex<Option<(Instant, Result<IssuerDescription, String>)>>,
    /// Limits the authorization codes that are exchanged at the same time.
    pub(super) exchanges: Semaphore,
}

/// The keys, and when they were fetched.
#[derive(Debug, Clone)]
struct FetchedKeys {
    keys: Arc<KeySet>,
    fetched: Instant,
}

/// The description that an issuer publishes at `/.well-known/openid-configuration`.
#[derive(Debug, Clone)]
pub(crate) struct IssuerDescription {
    /// The name of the issuer's section.
    name: String,
    document: Value,
}

impl Issuer {
    /// Creates an issuer without fetched keys.
    pub(crate) fn new(settings: IssuerSettings) -> Self {
        let http = BoundedHttp::new(&settings.authorities);
        let (keys, fetching, fetches, described) = Default::default();
        let exchanges = Semaphore::new(MAX_EXCHANGES);
        Self { settings, http, keys, fetching, fetches, described, exchanges }
    }

    /// Takes over the keys that an earlier configuration has fetched from the same place: of the same issuer, at the
    /// same address, under the same authorities. Keys from a file are not fetched, so none are taken over.
    pub(crate) fn continue_from(&self, earlier: &Self) {
        let (own, before) = (&self.settings, &earlier.settings);
        let is_same_place = match (&own.source, &before.source) {
            (KeySource::Address(address), KeySource::Address(address_before)) => address == address_before,
            (KeySource::Discovery, KeySource::Discovery) => true,
            _ => false,
        };
        if own.issuer == before.issuer
            && is_same_place
            && own.authorities.certificates() == before.authorities.certificates()
        {
            let fetched = earlier.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = fetched;
        }
    }

    /// Returns the keys; `None` if they are too old or were never fetched. Keys from a file are always usable.
    fn usable_keys(&self) -> Option<Arc<KeySet>> {
        if let KeySource::File(keys) = &self.settings.source {
            return Some(Arc::clone(keys));
        }
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.as_ref().filter(|keys| keys.fetched.elapsed() < MAX_AGE).map(|keys| Arc::clone(&keys.keys))
    }

    /// Returns the number of valid keys.
    pub(crate) fn key_count(&self) -> usize {
        self.usable_keys().map_or(0, |keys| keys.len())
    }

    /// Verifies a token of this issuer for one of these audiences. Fetches the keys if none are valid now, or the token
    /// names an unknown key; if that fails, the token is verified with the cached keys.
    ///
    /// # Errors
    /// Why the token is refused.
    pub(crate) async fn verify(
        self: &Arc<Self>,
        token: &UnverifiedToken<'_>,
        audiences: Vec<&str>,
        log: &OperatorLog,
    ) -> Result<TokenClaims, TokenRefusal> {
        let mut keys = self.usable_keys();
        if keys.as_ref().is_none_or(|keys| !token.has_key_in(keys)) {
            self.refresh(keys.as_ref(), log).await;
            keys = self.usable_keys();
        }
        self.check(token, keys.as_deref(), audiences)
    }

    /// Verifies a token with `keys` and the settings of this issuer. Without keys, every token is refused.
    fn check(
        &self,
        token: &UnverifiedToken<'_>,
        keys: Option<&KeySet>,
        audiences: Vec<&str>,
    ) -> Result<TokenClaims, TokenRefusal> {
        let IssuerSettings { issuer, algorithms, leeway, .. } = &self.settings;
        let required = TokenRequirements { issuer, audiences, algorithms, leeway: *leeway };
        token.verify(keys.ok_or(TokenRefusal::NoKeys)?, &required)
    }

    /// Fetches the keys, unless they come from a file, and logs a failure. `known` are the keys that the caller has
    /// tried. Fetches nothing if the cached keys differ from `known`, since another task has then fetched new ones in
    /// the meantime, or if the keys were fetched [`MAX_FETCHES`] times in the last minute.
    pub(crate) async fn refresh(self: &Arc<Self>, known: Option<&Arc<KeySet>>, log: &OperatorLog) {
        if matches!(self.settings.source, KeySource::File(_)) {
            return;
        }
        let _fetching = self.fetching.lock().await;
        let is_fetched = match (known, &self.usable_keys()) {
            (Some(known), Some(keys)) => !Arc::ptr_eq(known, keys),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if is_fetched || !self.may_fetch(Instant::now()) {
            return;
        }
        self.fetch_on_thread(log).await;
    }

    /// Fetches the keys, unless they come from a file. There is no limit on these fetches: the caller begins one at
    /// each interval [`REFRESH`].
    pub(crate) async fn refresh_on_schedule(self: &Arc<Self>, log: &OperatorLog) {
        if matches!(self.settings.source, KeySource::File(_)) {
            return;
        }
        let _fetching = self.fetching.lock().await;
        self.fetch_on_thread(log).await;
    }

    /// Fetches the keys on a thread that may block, and caches them even if the caller stops waiting. Logs a failure.
    async fn fetch_on_thread(self: &Arc<Self>, log: &OperatorLog) {
        let (issuer, log) = (Arc::clone(self), log.clone());
        let fetched = tokio::task::spawn_blocking(move || match issuer.fetch() {
            Ok(keys) => {
                let fetched = FetchedKeys { keys: Arc::new(keys), fetched: Instant::now() };
                *issuer.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(fetched);
            }
            Err(why) => {
                let effect = match issuer.key_count() {
                    0 => "its tokens are refused",
                    _ => "its earlier keys are valid for an hour after they were fetched",
                };
                let name = &issuer.settings.name;
                let sentence = format!(
                    "issuers.{name}: the keys of the issuer could not be fetched, so {effect}: {why}"
                );
                log.write(LogEvent::Failure, "", Vec::new(), &sentence);
            }
        });
        // An error means that the task panicked: the keys are not fetched then, and the next fetch tries again.
        let _ = fetched.await;
    }

    /// Fetches the keys; keys from a file are returned as they are. This may block the thread.
    ///
    /// # Errors
    /// Why there are no keys: a sentence for the operator's log, without content.
    fn fetch(&self) -> Result<KeySet, String> {
        let address = match &self.settings.source {
            KeySource::File(keys) => return Ok(KeySet::clone(keys)),
            KeySource::Address(address) => address.clone(),
            KeySource::Discovery => self.describe()?.address("jwks_uri")?.to_owned(),
        };
        KeySet::read(&self.http.get(&address)?)
            .map_err(|why| format!("the JWKS of the issuer (its keys): {why}"))
    }

    /// Returns the description of the issuer (its OpenID configuration). A description that was fetched is cached for a
    /// minute, and a failure to fetch it for five seconds: anybody can begin a login, which must not cause a request to
    /// the issuer each time.
    ///
    /// # Errors
    /// Why the description cannot be used: a sentence for the operator's log, without content.
    pub(super) async fn recent_description(self: &Arc<Self>) -> Result<IssuerDescription, String> {
        let mut described = self.described.lock().await;
        if let Some((at, description)) = &*described {
            let cached_for = if description.is_ok() { DESCRIPTION_TIME } else { DESCRIPTION_FAILURE_TIME };
            if at.elapsed() < cached_for {
                return description.clone();
            }
        }
        let issuer = Arc::clone(self);
        let fetched = tokio::task::spawn_blocking(move || issuer.describe()).await;
        let description = fetched.unwrap_or_else(|_| {
            Err("fetching the OpenID configuration of the issuer failed because of a \
                bug in the gateway: report it"
                .to_owned())
        });
        *described = Some((Instant::now(), description.clone()));
        description
    }

    /// Fetches the description of the issuer: the document that OpenID Connect calls its configuration. This may block
    /// the thread.
    ///
    /// # Errors
    /// Why the description cannot be used: a sentence for the operator's log, without content.
    pub(crate) fn describe(&self) -> Result<IssuerDescription, String> {
        let IssuerSettings { issuer, name, .. } = &self.settings;
        let text =
            self.http.get(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')))?;
        // `Numbers::Any`: numbers that parsers may read differently are accepted too.
        let document = json::parse(&text, Numbers::Any).map_err(|_| {
            format!("the OpenID configuration of the issuer is not JSON: check `issuer` in [issuers.{name}]")
        })?;
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err(format!(
                "the OpenID configuration of the issuer names another issuer: correct `issuer` in [issuers.{name}]"
            ));
        }
        Ok(IssuerDescription { name: name.clone(), document })
    }

    /// Returns whether the keys may be fetched now: whether they were fetched fewer than [`MAX_FETCHES`] times in the
    /// last minute. If so, counts this fetch.
    fn may_fetch(&self, now: Instant) -> bool {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        fetches.retain(|fetch| now.saturating_duration_since(*fetch) < Duration::from_mins(1));
        let may_fetch = fetches.len() < MAX_FETCHES;
        if may_fetch {
            fetches.push_back(now);
        }
        may_fetch
    }
}

impl fmt::Debug for Issuer {
    /// Writes the settings, and leaves out the fetched keys and the state of requests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl IssuerDescription {
    /// Returns the address in the member `name` of the description, such as `jwks_uri`.
    ///
    /// # Errors
    /// If there is no such member, or requests to the address would not be protected by TLS.
    pub(crate) fn address(&self, name: &str) -> Result<&str, String> {
        let address = self.document.get(name).and_then(Value::as_str);
        let address = address.ok_or_else(|| {
            format!(
                "the OpenID configuration of the issuer has no `{name}`: check `issuer` in [issuers.{}]",
                self.name
            )
        })?;
        match is_protected(address) {
            true => Ok(address),
            false => Err(format!(
                "`{name}` in the OpenID configuration of the issuer in [issuers.{}] is not a protected address \
                (`https://HOST…`, without a user name or password): correct it at the issuer",
                self.name
            )),
        }
    }

    /// Returns whether the member `name` of the description is `true`: the issuer has this feature.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.document.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns the strings in the list `name` of the description; `None` if there is no such list.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<&str>> {
        self.document.get(name)?.as_array().map(|all| all.iter().filter_map(Value::as_str).collect())
    }
}

/// Returns whether requests to an address are protected: by TLS, or because they do not leave this machine. An address
/// with a user name or a password counts as not protected.
pub(crate) fn is_protected(address: &str) -> bool {
    let Ok(url) = url::Url::parse(address) else { return false };
    let is_local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.username().is_empty()
        && url.password().is_none()
        && match url.scheme() {
            "https" => url.host().is_some(),
            "http" => is_local,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_protection_are_refused() {
        let check = |address: &str, expected: bool| assert_eq!(is_protected(address), expected, "{address}");
        check("https://login.example/keys", true);
        check("http://127.0.0.1:8080/keys", true);
        check("http://localhost/keys", true);
        check("http://[::1]/keys", true);
        check("http://login.example/keys", false);
        check("http://localhost.evil.example/keys", false);
        check("http://169.254.169.254/latest", false);
        check("https://user:password@login.example/keys", false);
        check("file:///etc/passwd", false);
        check("login.example", false);
        check("", false);
    }

    #[test]
    fn fetches_are_few() {
        let issuer = Issuer::new(IssuerSettings {
            name: "a".to_owned(),
            issuer: "https://a.example".to_owned(),
            source: KeySource::Discovery,
            algorithms: Vec::new(),
            leeway: Duration::ZERO,
            authorities: Authorities::default(),
        });
        let begun = Instant::now();
        let at = |seconds: u64| issuer.may_fetch(begun + Duration::from_secs(seconds));
        let found: Vec<bool> = [0, 1, 2, 3, 4, 59, 60, 60, 61].into_iter().map(at).collect();
        assert_eq!(found, [true, true, true, true, false, false, true, false, true]);
    }
}
