//! Finds clients by their keys and certificates, and owns the state of each client: the texts that it was shown, its
//! quota and its counters. `authentication` calls it for every request to a model or an MCP server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use flowgate_guard::history::{self, QuotationMemory};

use super::credentials::PresentedKeys;
use super::provider_tools::accepted_tools;
use super::request_decoder::RequestDecoder;
use super::request_quota::RequestQuota;
use crate::config::ClientSettings;
use crate::http::request_error::RequestError;
use crate::telemetry::shown_names::ShownNames;
use crate::tls::client_certificate::ClientCertificate;

/// A client and its state.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) spec: ClientSettings,
    /// The texts that the client was shown.
    history: Arc<tokio::sync::Mutex<ClientHistory>>,
    /// Decodes the bodies of the client's requests.
    pub(crate) decoder: RequestDecoder,
    /// The names of tools, servers and models that spans may show; other names could contain text of the chat.
    pub(crate) shown_names: ShownNames,
    quota: RequestQuota,
    /// The number of the client's listening streams.
    pub(crate) listening: Arc<AtomicUsize>,
    counters: Arc<ClientCounters>,
    /// A number that identifies these settings of the client: each reload creates settings with a new number. A
    /// conversation in memory has the number of the settings under which it was loaded.
    pub(crate) generation: u64,
    /// Whether a reloaded configuration has removed the client, or changed what its conversations depend on.
    is_replaced: AtomicBool,
}

/// The number of the last settings of any client in this process.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The counters of a client, which a reload of the configuration does not reset.
#[derive(Debug, Default)]
struct ClientCounters {
    /// The number of the client's requests that are being answered.
    at_work: AtomicUsize,
    /// The number of conversations that the client has begun since this process started.
    begun: AtomicUsize,
    /// An upper bound, in bits, on what models may have learned of the texts that the client was shown: words of users
    /// that quote such texts are hidden, so which words are hidden depends on the texts.
    bits: AtomicU64,
    /// The number of text windows that were forgotten because the memory of quotations was full: about one per byte of
    /// normalised text.
    forgotten: AtomicU64,
}

/// The texts that a client was shown, as far as this process has loaded them from the database, and the client's
/// profile.
#[derive(Debug)]
pub(crate) struct ClientHistory {
    /// The profile of the client, whose memory of quotations has the loaded texts.
    pub(crate) client: history::ClientProfile,
    /// The number in the database of the first text that is not loaded.
    pub(crate) next: i64,
    /// How often the stored texts had been cleared when they were last loaded. If the database has a different count,
    /// they were cleared since.
    pub(crate) cleared: i64,
    /// Whether the stored texts have been loaded.
    pub(crate) is_loaded: bool,
    /// The time at which stale texts were last forgotten.
    pub(crate) aged: Instant,
    /// The [`ClientState::generation`] of the settings that declare the profile in `client`.
    generation: u64,
}

impl ClientHistory {
    /// Forgets all texts, so that the next use loads the stored texts again.
    pub(crate) fn reset(&mut self) {
        self.client.quotations.clear(None);
        (self.next, self.is_loaded) = (0, false);
    }
}

/// Returns the profile that the configuration declares for a client, with an empty memory of the texts that it was
/// shown.
fn declared_profile(spec: &ClientSettings) -> history::ClientProfile {
    history::ClientProfile {
        is_interactive: spec.user_messages.trusts_unmarked(),
        marks_typed: spec.user_messages.believes_marks(),
        trusts_system: spec.system_messages.trusts_all(),
        pinned: spec.pinned.clone(),
        ..history::ClientProfile::default()
    }
}

impl ClientState {
    /// Creates the state of a client that has not sent any request yet.
    fn new(spec: ClientSettings) -> Self {
        let quotations = QuotationMemory::with_room(spec.quotations);
        let mut client = history::ClientProfile { quotations, ..declared_profile(&spec) };
        // From now on, new texts are collected, so that they can be stored in the database.
        client.quotations.record_learned();
        // No text is loaded from the database yet. The generation 0 is that of no settings, so the first `lock_history`
        // applies the profile of these settings.
        let (aged, generation) = (Instant::now(), 0);
        let history = ClientHistory { client, next: 0, cleared: 0, is_loaded: false, aged, generation };
        let (history, quota) =
            (Arc::new(tokio::sync::Mutex::new(history)), RequestQuota::new(spec.requests_per_minute));
        Self::with_settings(spec, history, quota, (Arc::default(), Arc::default()))
    }

    /// Creates the state of this client under the reloaded settings `spec`. The new state shares the counters, the used
    /// quota and the texts that the client was shown with the earlier state, because requests that began under the
    /// earlier state still use it.
    fn reconfigured(&self, spec: ClientSettings) -> Self {
        let (listening, counters) = (Arc::clone(&self.listening), Arc::clone(&self.counters));
        let quota = self.quota.reconfigured(spec.requests_per_minute);
        Self::with_settings(spec, Arc::clone(&self.history), quota, (listening, counters))
    }

    /// Creates the state of a client with these settings. The other arguments are the parts of the state that outlive a
    /// reload: `history`, the texts that the client was shown, its `quota` of requests, `listening`, the number of its
    /// listening streams, and its other `counters`.
    fn with_settings(
        spec: ClientSettings,
        history: Arc<tokio::sync::Mutex<ClientHistory>>,
        quota: RequestQuota,
        (listening, counters): (Arc<AtomicUsize>, Arc<ClientCounters>),
    ) -> Self {
        // The parts of requests that the client may send although its upstream does not receive them.
        let dropped = spec.upstream.as_ref().map(|upstream| upstream.dropped.clone());
        let mut options = dropped.unwrap_or_default();
        options.provider_tools = accepted_tools(&spec);
        let decoder = RequestDecoder::new(options);
        let shown_names = ShownNames::of(&spec);
        // A later reload sets this.
        let is_replaced = AtomicBool::new(false);
        // A number that no other settings have. It is never 0: a new history has the generation 0, so that the first
        // `lock_history` applies the profile of these settings to it.
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
        Self { spec, history, decoder, shown_names, quota, listening, counters, generation, is_replaced }
    }

    /// Returns the profile of this client for the replay of its conversations. Its memory of shown texts is empty: a
    /// replay does not need the memory, since the stored inputs contain the quotations that were found.
    pub(crate) fn replay_profile(&self) -> history::ClientProfile {
        declared_profile(&self.spec)
    }

    /// Returns the profile of this client with an empty memory of texts that has as much room as the client's own
    /// memory. Texts that are added to it do not become part of the client's memory.
    pub(crate) fn separate_profile(&self) -> history::ClientProfile {
        let quotations = QuotationMemory::with_room(self.spec.quotations);
        history::ClientProfile { quotations, ..declared_profile(&self.spec) }
    }

    /// Locks the texts that the client was shown, for a request under these settings. The states of the client before
    /// and after a reload share these texts. If the profile that is stored with them was set under other settings, or
    /// not yet (generation 0), it is replaced by the one that these settings declare.
    pub(crate) async fn lock_history(&self) -> tokio::sync::MutexGuard<'_, ClientHistory> {
        let mut history = self.history.lock().await;
        if history.generation != self.generation {
            // The texts stay; only the profile is replaced.
            let quotations = std::mem::take(&mut history.client.quotations);
            history.client = history::ClientProfile { quotations, ..declared_profile(&self.spec) };
            history.generation = self.generation;
        }
        history
    }

    /// Refuses a request that has not begun, if a reloaded configuration has removed the client or changed what its
    /// conversations depend on.
    ///
    /// # Errors
    /// The refusal, which asks the client to send the request again.
    pub(crate) fn check_replaced(&self) -> Result<(), RequestError> {
        if !self.is_replaced() {
            return Ok(());
        }
        let message = "the configuration of the gateway was reloaded while the request waited: send it again";
        Err(RequestError::new(StatusCode::SERVICE_UNAVAILABLE, message))
    }

    /// Returns whether a reloaded configuration has removed the client, or changed what its conversations depend on.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Adds `bits`, an upper bound on what the model may learn from one request about the texts that the client was
    /// shown, to the sum that [`Self::leaked_bits`] returns.
    pub(crate) fn add_leaked_bits(&self, bits: u32) {
        self.counters.bits.fetch_add(u64::from(bits), Ordering::Relaxed);
    }

    /// Returns an upper bound, in bits, on what models may have learned from all requests of the client about the texts
    /// that the client was shown. Words of users that quote these texts are hidden, so a model that sees which words
    /// are hidden learns something about the texts.
    pub(crate) fn leaked_bits(&self) -> u64 {
        self.counters.bits.load(Ordering::Relaxed)
    }

    /// Adds the number of text windows that were forgotten because the memory of quotations was full.
    pub(crate) fn add_forgotten(&self, windows: u64) {
        self.counters.forgotten.fetch_add(windows, Ordering::Relaxed);
    }

    /// Returns the number of text windows that were forgotten because the memory of quotations was full.
    pub(crate) fn forgotten_windows(&self) -> u64 {
        self.counters.forgotten.load(Ordering::Relaxed)
    }

    /// Forgets the texts in memory, so that the next use loads the stored texts again.
    pub(crate) async fn reload_history(&self) {
        self.lock_history().await.reset();
    }

    /// Counts a new conversation, and returns whether the caller must now delete conversations beyond the client's
    /// limit. The search for these is a slow query, so it does not run for each new conversation, but only once for
    /// every `limit / 64` new ones. A client with a high limit therefore causes few queries, and the surplus stays
    /// small.
    pub(crate) fn count_new_conversation(&self) -> bool {
        self.counters.begun.fetch_add(1, Ordering::Relaxed).is_multiple_of((self.spec.sessions / 64).max(1))
    }

    /// Takes one request from the client's quota, as this gateway alone counts it.
    ///
    /// # Errors
    /// If the quota is exhausted: the number of seconds until the next request is allowed.
    pub(crate) fn take_request(&self) -> Result<(), u64> {
        self.quota.take(Instant::now())
    }
}

/// A place for one of a client's parallel requests, released on drop.
#[derive(Debug)]
pub(crate) struct ClientRequestPlace(Arc<ClientState>);

impl ClientRequestPlace {
    /// Takes a place for a request of `client`; `None` if the client has reached its limit on parallel requests.
    pub(crate) fn acquire(client: &Arc<ClientState>) -> Option<Self> {
        let place = Self(Arc::clone(client));
        // If the limit is reached already, `place` is dropped here, which decrements the count again.
        (client.counters.at_work.fetch_add(1, Ordering::Relaxed) < client.spec.parallel).then_some(place)
    }
}

impl Drop for ClientRequestPlace {
    /// Frees the place: the request has ended.
    fn drop(&mut self) {
        self.0.counters.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All clients of the configuration.
#[derive(Debug)]
pub(crate) struct Clients(Vec<Arc<ClientState>>);

impl Clients {
    /// Creates the state of the configured clients, which have not sent any request yet.
    pub(crate) fn new(clients: Vec<ClientSettings>) -> Self {
        Self(clients.into_iter().map(|spec| Arc::new(ClientState::new(spec))).collect())
    }

    /// Creates the state of clients under a reloaded configuration. A client with the name of an earlier one continues
    /// its counters and its memory of texts.
    pub(crate) fn reconfigured(&self, clients: Vec<ClientSettings>) -> Self {
        let mut reconfigured = Vec::new();
        for spec in clients {
            reconfigured.push(Arc::new(match self.find_by_name(&spec.name) {
                Some(client) => client.reconfigured(spec),
                None => ClientState::new(spec),
            }));
        }
        Self(reconfigured)
    }

    /// Marks as replaced the clients that `later` does not have, and those whose policy or settings are different in
    /// `later`. From then on, their requests whose turn has not begun are refused.
    pub(crate) fn replace_by(&self, later: &Self) {
        for client in &self.0 {
            let is_same =
                |other: Arc<ClientState>| other.spec.config_fingerprint == client.spec.config_fingerprint;
            if !later.find_by_name(&client.spec.name).is_some_and(is_same) {
                client.is_replaced.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns all clients.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ClientState>> {
        self.0.iter()
    }

    /// Returns the client with this name in the configuration.
    pub(crate) fn find_by_name(&self, name: &str) -> Option<Arc<ClientState>> {
        self.0.iter().find(|client| client.spec.name == name).map(Arc::clone)
    }

    /// Returns the client whose own key a request has; `None` if the request has no key for the gateway, or a key that
    /// is not a client's own, such as a virtual key.
    pub(super) fn holder_of(&self, keys: &PresentedKeys) -> Option<&Arc<ClientState>> {
        let key = keys.for_gateway()?;
        // All keys are compared, so that the time does not reveal which key is similar.
        self.0.iter().fold(None, |found, client| {
            let is_own = client.spec.key.as_ref().is_some_and(|own| own.matches(key.as_bytes()));
            if is_own { Some(client) } else { found }
        })
    }

    /// Finds the client of a request by its key and by the certificate of its connection. `keys` are the keys in the
    /// headers, and `by_key` is the client to which one of them belongs, if there is such a client. The second part of
    /// the result is the key for the upstream, if the client sends one.
    ///
    /// A client that is configured with a key and a certificate must present both. A certificate of one client together
    /// with a key of another client is rejected.
    ///
    /// # Errors
    /// The reason why the request is rejected.
    pub(super) fn find_by_credentials(
        &self,
        keys: PresentedKeys,
        by_key: Option<&Arc<ClientState>>,
        certificate: Option<&ClientCertificate>,
    ) -> Result<(Arc<ClientState>, Option<String>), &'static str> {
        let holds_certificate =
            |client: &&Arc<ClientState>| match (client.spec.certificate.as_ref(), certificate) {
                (Some(name), Some(shown)) => shown.is_of(name),
                _ => false,
            };
        let mut holders = self.0.iter().filter(holds_certificate);
        let by_certificate = match (holders.next(), holders.next()) {
            (_, Some(_)) => {
                return Err(
                    "more than one client of this gateway has this certificate: ask the operator of the gateway to give each client its own certificate",
                );
            }
            (only_holder, None) => only_holder,
        };
        let PresentedKeys { own, standard } = keys;
        let client = match (by_key, by_certificate) {
            (Some(one), Some(other)) if !Arc::ptr_eq(one, other) => {
                return Err(
                    "the key and the certificate belong to different clients: send the key and the certificate of the same client",
                );
            }
            (Some(client), None) if client.spec.certificate.is_some() => {
                return Err("this client must connect with its certificate in addition to its key");
            }
            (Some(client), _) => {
                // Without a separate header, the value of `Authorization` is the gateway's key and not the provider's.
                let provider_key = if own.is_some() { standard } else { None };
                return Ok((Arc::clone(client), provider_key));
            }
            // The certificate alone authenticates this client. A key in the gateway's own header (`own`) would be
            // wrong: such a key must belong to a client, and the request's key belongs to none (`by_key` is `None`).
            (None, Some(client))
                if client.spec.key.is_none() && client.spec.token.is_none() && own.is_none() =>
            {
                client
            }
            (None, _) if own.is_some() || standard.is_some() => {
                return Err(
                    "no client of this gateway has this key: send the key that the operator of the gateway gave you",
                );
            }
            (None, Some(_)) => {
                return Err("this client must send its key or token in addition to its certificate");
            }
            (None, None) if certificate.is_some() => {
                return Err(
                    "no client of this gateway has this certificate: ask the operator of the gateway to register it",
                );
            }
            (None, None) => {
                return Err(
                    "this gateway requires a key: send the key that the operator of the gateway gave you",
                );
            }
        };
        Ok((Arc::clone(client), standard))
    }
}
