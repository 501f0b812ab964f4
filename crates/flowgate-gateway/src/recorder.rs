//! Writes the [audit log](flowgate_audit) of the gateway, if one is configured: verdicts, questions, decisions and
//! freezes. The model routes, the MCP routes and the routes for people call it.
//!
//! Reasons are recorded without content. For a rule, the log has the line of the rule in the policy and the first line
//! of the rule's text, but not its message, which may quote content. For any other reason, the log has the kind of the
//! reason and the names of the labels.
//!
//! `log_probe` tests for the health route whether the log can be written. The command line calls [`accept_loss`] to
//! record that the operator accepts the loss of lines.

mod log_probe;

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use flowgate::monitor::{Reason, ReasonKind};
use flowgate_guard::approve::ApprovalRequest;
use flowgate_guard::conversation;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::config::GatewayConfig;
use crate::config::{AuditSpec, ClientSettings, WitnessSpec};
use crate::database::{Database, DatabaseError};
use crate::log;
use crate::secret::{Secret, add_keys};
use crate::virtual_keys::text::redact;
use crate::witness::{self, DeliveryError, HeadDestinations};
use flowgate_audit::{
    AcceptedLoss, AuditError, AuditEvent, AuditKey, AuditLog, AuditLoss, AuditOptions, ConfigurationCause,
    ContentCipher, ContentRetention, ContentSelector, JudgedCallRecord, Timestamp, UnopenedLog,
    WitnessRecord,
};
use log_probe::{LogProbe, PROBE_TIMEOUT};

/// An event for the audit log, perhaps with content such as the arguments of a call. The content is stored in a file
/// next to the log, and not in the log itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AuditEntry {
    event: AuditEvent,
    content: Option<Value>,
}

impl AuditEntry {
    /// Creates an entry with content.
    pub(crate) fn new(event: AuditEvent, content: Value) -> Self {
        Self { event, content: Some(content) }
    }
}

impl AuditEntry {
    /// If this entry records that an approved call ran, returns the entry that corrects it: the call did not run after
    /// all, because of `cause`. `None` for an entry that records something else. The caller needs it if storing the
    /// call fails after this entry was recorded.
    pub(crate) fn correction(&self, cause: &str) -> Option<Self> {
        let AuditEvent::ApprovalUsed { conversation, tool, digest } = &self.event else { return None };
        let (conversation, tool, digest) = (conversation.clone(), tool.clone(), digest.clone());
        // Without reasons: the call was not judged again.
        let (cause, reasons) = (cause.to_owned(), Vec::new());
        Some(AuditEvent::ApprovalVoid { conversation, tool, digest, cause, reasons }.into())
    }
}

impl From<AuditEvent> for AuditEntry {
    /// Creates an entry without content.
    fn from(event: AuditEvent) -> Self {
        Self { event, content: None }
    }
}

/// The audit log, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Option<Arc<RecordingLog>>);

/// An open log with its witnesses.
#[derive(Debug)]
pub(crate) struct RecordingLog {
    /// The first field, since fields are dropped in order: the threads of the witnesses must end before the log closes.
    witnesses: Option<HeadDestinations>,
    log: Arc<AuditLog>,
    /// The time after which content is deleted; `None` if no content is recorded.
    content: Option<Duration>,
    /// The keys that are removed from content.
    keys: RwLock<Vec<Secret>>,
    probe: LogProbe,
}

impl Recorder {
    /// Opens the audit log of a configuration, begins to record its heads in the database and to send them to the
    /// witnesses, and records the policies of `clients`. Does nothing without a configured log. `spec` is the
    /// configured log, with the cipher of its contents if they are encrypted. `keys` are the keys to remove from
    /// content, and `operator` is the log of the operator.
    ///
    /// # Errors
    /// If the log lacks a line whose hash the database or the file of a witness has recorded, or the log, its key or a
    /// required witness cannot be used.
    pub(crate) async fn open(
        spec: Option<(&AuditSpec, Option<Arc<dyn ContentCipher>>)>,
        clients: &[ClientSettings],
        keys: Vec<Secret>,
        store: &Database,
        operator: &log::OperatorLog,
    ) -> Result<Self, DatabaseError> {
        let Some((AuditSpec { file, key, content, witness }, cipher)) = spec else { return Ok(Self(None)) };
        let key = AuditKey::load_or_create(key).map_err(to_database_error)?;
        let retention = if content.is_some() { ContentRetention::Kept } else { ContentRetention::Dropped };
        let options = AuditOptions { content: retention, ..AuditOptions::default() };
        // What the database and the witness know of the log.
        let anchors = store.anchors().await?;
        let witnessed = read_configured_witness(witness.as_ref())?;
        // Returns the loss, if there is one: lines of which the database or the witness has a record, and which the log
        // does not have. A loss that both show is reported as one of the database.
        let check = |past: &mut UnopenedLog<'_>| {
            // A database in memory has no record of earlier logs.
            let loss = if store.is_memory() { None } else { anchors.loss(past)? };
            Ok(match loss {
                Some(loss) => Some(loss),
                None => witnessed.loss(past)?,
            })
        };
        let log =
            AuditLog::open_after(file, key, options, Timestamp::now(), check).map_err(to_database_error)?;
        if let Some(cipher) = cipher {
            log.encrypt_contents(cipher).map_err(to_database_error)?;
        }
        // From now on, the database records heads of the log, by which the next start notices a loss. `false`: the log
        // has lost no lines that the database has recorded, since `open_after` would have failed.
        store.watch(&log, false).await?;
        let log = Arc::new(log);
        let begin = |spec| HeadDestinations::begin(spec, &log, operator).map_err(delivery_to_database_error);
        let witnesses = witness.as_ref().map(begin).transpose()?;
        let recorder = Self(Some(Arc::new(RecordingLog {
            witnesses,
            log,
            content: *content,
            keys: RwLock::new(keys),
            probe: LogProbe::default(),
        })));
        recorder.record_configuration(clients, ConfigurationCause::Start)?;
        Ok(recorder)
    }

    /// Records that the clients have these policies from now on, and why.
    fn record_configuration(
        &self,
        clients: &[ClientSettings],
        cause: ConfigurationCause,
    ) -> Result<(), DatabaseError> {
        // The digest of each client's policy, with all settings that a replay of its conversations depends on.
        let mut policies: Vec<String> =
            clients.iter().map(|client| client.config_fingerprint.clone()).collect();
        policies.sort();
        policies.dedup();
        self.record(&[AuditEvent::ConfigurationLoaded { policies, cause }.into()])
    }

    /// Records that the configuration was reloaded because of `cause`, and from now on removes the keys of the new
    /// configuration from content as well. Earlier keys are still removed, since requests that began with them
    /// continue.
    ///
    /// # Errors
    /// If the reload cannot be recorded: the configuration must then not take effect. Its keys are removed from content
    /// nevertheless.
    pub(crate) fn reconfigure(
        &self,
        clients: &[ClientSettings],
        keys: &[Secret],
        cause: ConfigurationCause,
    ) -> Result<(), DatabaseError> {
        if let Some(recording) = self.0.as_deref() {
            let mut removed_keys = recording.keys.write().unwrap_or_else(PoisonError::into_inner);
            add_keys(&mut removed_keys, keys);
        }
        self.record_configuration(clients, cause)
    }

    /// Appends entries to the audit log, if there is one. If this fails, the caller must not take any action that
    /// depends on them.
    pub(crate) fn record(&self, entries: &[AuditEntry]) -> Result<(), DatabaseError> {
        self.record_redacting(entries, None)
    }

    /// Appends entries to the audit log, if there is one. `key` is the client's key for its upstream, which is removed
    /// from their content.
    ///
    /// # Errors
    /// If an entry cannot be written; the entries before it are then in the log.
    pub(crate) fn record_redacting(
        &self,
        entries: &[AuditEntry],
        key: Option<&str>,
    ) -> Result<(), DatabaseError> {
        let Some(recording) = self.0.as_deref().filter(|_| !entries.is_empty()) else { return Ok(()) };
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            // Recording waits for the disk, and must not block the sockets that this thread serves. A runtime with
            // several threads can move its other tasks to another thread; other runtimes cannot.
            Ok(RuntimeFlavor::MultiThread) => block_in_place(|| recording.record(entries, key)),
            _ => recording.record(entries, key),
        }
    }

    /// Records that an earlier record may be wrong: the order or decision `what` of the person `who` was recorded, but
    /// then the database failed with `error`, so it may not be in force. A failure to record this is ignored: `/health`
    /// reports that the log cannot be written.
    pub(crate) fn record_unconfirmed(&self, what: String, who: &str, error: &DatabaseError) {
        let (who, cause) = (who.to_owned(), error.to_string());
        let _ = self.record(&[AuditEvent::OrderUnconfirmed { what, who, cause }.into()]);
    }

    /// Returns whether the log can be written, as of at most a second ago; true without an audit log.
    pub(crate) async fn is_writable(&self) -> bool {
        let Some(recording) = self.0.as_deref() else { return true };
        let log = Arc::clone(&recording.log);
        recording.probe.is_writable(PROBE_TIMEOUT, move || log.is_writable()).await
    }

    /// Deletes the content of the records that `selector` matches, by order of the person `who`. Returns the number of
    /// deleted entries; 0 without an audit log.
    pub(crate) fn forget(&self, selector: &ContentSelector, who: &str) -> Result<u64, DatabaseError> {
        let Some(RecordingLog { log, .. }) = self.0.as_deref() else { return Ok(0) };
        log.forget(Timestamp::now(), selector, who).map_err(to_database_error)
    }

    /// Rejects a turn if a required witness is too far behind: the deliveries to it fail, and it lacks too many lines
    /// of the audit log, or the deliveries have failed for too long.
    pub(crate) fn check_witness_lag(&self) -> Result<(), DatabaseError> {
        match self.witnesses().and_then(HeadDestinations::overdue_destination) {
            None => Ok(()),
            Some(_) => Err(DatabaseError::Unwitnessed),
        }
    }

    /// Returns the witnesses of the log; `None` if there is no audit log, or no witness is configured.
    pub(crate) fn witnesses(&self) -> Option<&HeadDestinations> {
        self.0.as_deref()?.witnesses.as_ref()
    }

    /// Signs the head of the audit log, and with it everything recorded so far. Does nothing without an audit log.
    pub(crate) fn sign_head(&self) -> Result<(), DatabaseError> {
        let Some(RecordingLog { log, .. }) = self.0.as_deref() else { return Ok(()) };
        log.sign_head(Timestamp::now()).map(drop).map_err(to_database_error)
    }

    /// Returns a weak reference to the open log, which does not prevent its closing; `None` if there is no audit log.
    pub(crate) fn recording(&self) -> Option<Weak<RecordingLog>> {
        self.0.as_ref().map(Arc::downgrade)
    }
}

impl RecordingLog {
    /// Appends entries to the log. `key` is the client's key for the upstream, which is removed from contents, as are
    /// the keys of the configuration.
    fn record(&self, entries: &[AuditEntry], key: Option<&str>) -> Result<(), DatabaseError> {
        let Self { log, content: retention_setting, .. } = self;
        let keys = &*self.keys.read().unwrap_or_else(PoisonError::into_inner);
        for AuditEntry { event, content } in entries {
            // If the configuration sets no time after which content is deleted, no content is recorded.
            let content = content.as_ref().filter(|_| retention_setting.is_some());
            let recorded = match content.map(|content| redacted_content(content, keys, key)) {
                Some(content) => log.append_with(Timestamp::now(), event, &content),
                None => log.append(Timestamp::now(), event),
            };
            recorded.map_err(to_database_error)?;
        }
        Ok(())
    }

    /// Deletes the content of records that are older than the configuration allows, and returns the number of deleted
    /// entries; 0 if no content is recorded.
    pub(crate) fn expire(&self) -> Result<u64, DatabaseError> {
        let Some(retention) = self.content else { return Ok(0) };
        let (now, retention) = (Timestamp::now(), u64::try_from(retention.as_millis()).unwrap_or(u64::MAX));
        self.log.expire(now, Timestamp(now.0.saturating_sub(retention))).map_err(to_database_error)
    }
}

/// Records that the operator `who` accepts that lines of the audit log, or the database in which they were recorded,
/// were lost. Afterwards, the gateway can start again.
///
/// Returns the accepted loss; `None` if there is no audit log, or if nothing was lost.
///
/// # Errors
/// If a gateway uses the log or the database, or one of them cannot be read or written.
pub fn accept_loss(config: GatewayConfig, who: &str) -> Result<Option<AuditLoss>, DatabaseError> {
    let Some(audit) = config.audit else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(DatabaseError::Runtime)?.block_on(async {
        let store = Database::open_with_keys(&config.store.address, &config.store.encryption).await?;
        store.close_after(async |store| accept_losses(store, audit, who).await).await
    })
}

/// Opens the log, and records in the log, in the database and in the witness's file that the operator `who` accepts a
/// loss: lines that the database or the witness has recorded and the log does not have. Returns the loss that the
/// database shows or, if it shows none, the loss that the witness shows; `None` if nothing was lost.
async fn accept_losses(
    store: &Database,
    audit: AuditSpec,
    who: &str,
) -> Result<Option<AuditLoss>, DatabaseError> {
    let AuditSpec { file, key, witness, .. } = audit;
    let anchors = store.anchors().await?;
    let witnessed = read_configured_witness(witness.as_ref())?;
    let key = AuditKey::load_or_create(&key).map_err(to_database_error)?;
    // Notes the losses before the opening writes to the log.
    let (mut database_loss, mut witness_loss) = (None, None);
    let check = |past: &mut UnopenedLog<'_>| {
        (database_loss, witness_loss) = (anchors.loss(past)?, witnessed.loss(past)?);
        // `None`: the log is opened in spite of a loss, which the operator accepts.
        Ok(None)
    };
    let log = AuditLog::open_after(&file, key, AuditOptions::default(), Timestamp::now(), check)
        .map_err(to_database_error)?;
    for loss in database_loss.into_iter().chain(witness_loss) {
        log.append(Timestamp::now(), &AuditEvent::LossAccepted { who: who.to_owned(), loss })
            .map_err(to_database_error)?;
    }
    log.sign_head(Timestamp::now()).map_err(to_database_error)?;
    if let (Some(file), Some(loss)) = (witness.and_then(|witness| witness.file), witness_loss) {
        // The witness's file may name several logs of this key: this one, and earlier ones that are gone.
        for (other, head) in witnessed.signed_by(log.key()) {
            // The number of the first lost line, counted from 0. In this log, it is the number of lines that the log
            // still has; if the log has another line in place of the last one that the witness has recorded (`head`),
            // that recorded line is lost. Of an earlier log, all lines are lost.
            let present_lines = loss.lines();
            let since = if other == log.id() { present_lines.min(head.seq) } else { 0 };
            // Writes to the file that the lines of the log `other` from `since` on are no longer expected.
            witness::give_up(&file, &log, AcceptedLoss { log: other, since })
                .map_err(delivery_to_database_error)?;
        }
    }
    // The database now records the present log in place of the one that it expected, so that the gateway can start. If
    // the database shows a loss, its conversations are recorded as older than the log, which may lack their turns.
    let database_shows_loss = database_loss.is_some();
    store.watch(&log, database_shows_loss).await?;
    if database_shows_loss {
        // The lock file may name another database as the expected one; from now on, it names this one.
        store.accept_database()?;
    }
    Ok(database_loss.or(witness_loss))
}

/// Converts an error of the audit log to the error for the caller, which must not act without its record.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn to_database_error(error: AuditError) -> DatabaseError {
    DatabaseError::Audit(error.to_string())
}

/// Reads the witness's file; returns an empty record if none is configured.
fn read_configured_witness(witness: Option<&WitnessSpec>) -> Result<WitnessRecord, DatabaseError> {
    let file = witness.and_then(|witness| witness.file.as_deref());
    file.map(witness::read_witness_record)
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(delivery_to_database_error)
}

/// Converts an error about a witness of the audit log to the error for the caller.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn delivery_to_database_error(undelivered: DeliveryError) -> DatabaseError {
    DatabaseError::Audit(undelivered.to_string())
}

/// Returns the text that is stored for `content`: without the keys of the configuration (`keys`), the client's own key
/// (`key`) and all virtual keys.
fn redacted_content(content: &Value, keys: &[Secret], key: Option<&str>) -> String {
    let hide = |text: &str| {
        // Removes the virtual keys.
        let text = redact(text).into_owned();
        let text = keys.iter().fold(text, |text, key| key.redacted_from(&text));
        key.map_or_else(|| text.clone(), |key| Secret::new(key).redacted_from(&text))
    };
    match redact_value(content, &hide) {
        // A JSON string is stored as its text, without quotation marks.
        Value::String(text) => text,
        content => content.to_string(),
    }
}

/// Returns a JSON value with `hide` applied to every string and every name of a field in it.
fn redact_value(content: &Value, hide: &dyn Fn(&str) -> String) -> Value {
    match content {
        Value::String(text) => Value::String(hide(text)),
        Value::Array(list) => list.iter().map(|one| redact_value(one, hide)).collect(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| (hide(name), redact_value(value, hide))).collect()
        }
        other => other.clone(),
    }
}

/// Returns the record of a judged call in the conversation `name` of a client, with the arguments of the call as its
/// content.
pub(crate) fn judged_entry(
    client: &ClientSettings,
    name: &str,
    call: conversation::CallVerdict,
) -> AuditEntry {
    let event = AuditEvent::Judged(JudgedCallRecord {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        policy: client.config_fingerprint.clone(),
        tool: call.tool.to_string(),
        verdict: call.outcome,
        reasons: reason_names(client, &call.reasons),
        label: call.label,
        digest: call.digest,
        event: u64::try_from(call.event).unwrap_or(u64::MAX),
    });
    AuditEntry::new(event, Value::Object(call.arguments))
}

/// Returns the record of a question about a call in the conversation `name` of a client. Its content is `shown`,
/// the question in the form in which a person sees it.
pub(crate) fn question_entry(
    client: &ClientSettings,
    name: &str,
    ask: &ApprovalRequest,
    shown: Value,
) -> AuditEntry {
    let event = AuditEvent::Asked {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        tool: ask.tool.to_string(),
        digest: ask.digest.clone(),
        reasons: reason_names(client, &ask.reasons),
    };
    AuditEntry::new(event, shown)
}

/// Returns the record that an approved call in the conversation `name` of a client does not run, and why.
pub(crate) fn void_approval_entry(
    client: &ClientSettings,
    name: &str,
    void: conversation::VoidedCall,
) -> AuditEntry {
    let event = AuditEvent::ApprovalVoid {
        conversation: name.to_owned(),
        tool: void.tool.to_string(),
        digest: void.digest,
        cause: void.cause,
        reasons: reason_names(client, &void.reasons),
    };
    event.into()
}

/// Returns the audit entry for a reply of the model that a rule withheld. The text is the entry's content, which is
/// stored next to the log. The list of reasons is empty: the message of the rule may quote the text, and the log itself
/// contains no content.
pub(crate) fn withheld_reply_entry(client: &ClientSettings, conversation: &str, text: String) -> AuditEntry {
    let event = AuditEvent::ReplyWithheld {
        conversation: conversation.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        reasons: Vec::new(),
    };
    AuditEntry::new(event, Value::String(text))
}

/// Describes reasons for the audit log, which has no content: a rule by its position and the first line of its text in
/// the policy (its message may quote content), other reasons by their kind and the names of the labels.
fn reason_names(client: &ClientSettings, reasons: &[Reason]) -> Vec<String> {
    let name_of_reason = |reason: &Reason| {
        let kind = reason.kind.name();
        match (&reason.statement, reason.kind) {
            (Some(span), ReasonKind::Rule | ReasonKind::RuleError) => {
                let (position, text) = (client.policy.locate(span), client.policy.excerpt(span));
                let first_line = text.lines().next().unwrap_or_default().trim();
                format!("{kind}: {}: {first_line}", position.line_name())
            }
            _ if reason.label.is_empty() => kind.to_owned(),
            _ => format!(
                "{kind}: the label is {}, and at most {} is permitted",
                reason.label.join(" "),
                reason.required.join(" ")
            ),
        }
    };
    // Equal texts are listed once.
    let mut texts: Vec<String> = Vec::new();
    for text in reasons.iter().map(name_of_reason) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_key_is_in_a_content() {
        let keys = [Secret::new("key-of-the-client"), Secret::new("short"), Secret::new("")];
        let check = |content: Value, expected: &str| {
            assert_eq!(redacted_content(&content, &keys, Some("key-of-the-provider")), expected);
        };
        check(json!("nothing"), "nothing");
        check(json!("a key-of-the-client, twice: key-of-the-client"), "a [key], twice: [key]");
        check(json!({"header": ["Bearer key-of-the-provider", 1]}), r#"{"header":["Bearer [key]",1]}"#);
        check(json!({"key-of-the-client": {"x": null}}), r#"{"[key]":{"x":null}}"#);
        let virtual_key = format!("fgk-{}", "0".repeat(64));
        check(json!({"key": format!("Bearer {virtual_key}")}), r#"{"key":"Bearer [key]"}"#);
        // A short key is not removed, since it can be guessed and occurs in many texts.
        check(json!("short"), "short");
    }
}
