//! The gateway's writer of its [audit log](crate::audit), if one is configured.
//!
//! Reasons are recorded as the policy's own text and as names of labels: the message of a rule may quote content.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use flowgate::monitor::{Reason, ReasonKind};
use flowgate_guard::approve::Ask;
use flowgate_guard::conversation;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::audit::{
    AuditError, Content, Event, Forget, GivenUp, Judged, Key, Log, Loss, Options, Past, Time, Witness,
};
use crate::log;
use crate::model_routes::config::Config;
use crate::model_routes::{Client, Secret};
use crate::store::{Store, StoreError};
use crate::witness::{self, Untold, WitnessSpec, Witnesses};

/// The location of an audit log, and the key that signs it.
#[derive(Debug, Clone)]
pub struct AuditSpec {
    /// The log.
    pub file: PathBuf,
    /// The file of the key, which is created if it does not exist.
    pub key: PathBuf,
    /// The time for which content is kept beside the log, if it is kept.
    pub content: Option<Duration>,
    /// The witnesses that receive heads of the log.
    pub witness: Option<WitnessSpec>,
}

/// An event and its content, which is not part of the log itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Note {
    event: Event,
    content: Option<Value>,
}

impl Note {
    pub(crate) fn new(event: Event, content: Value) -> Self {
        Self { event, content: Some(content) }
    }
}

impl Note {
    /// Returns the correction of a record that an approved call ran, if this is one: the call did not run after all.
    pub(crate) fn taken_back(&self, cause: &str) -> Option<Self> {
        let Event::ApprovalUsed { conversation, tool, digest } = &self.event else { return None };
        let (conversation, tool, digest) = (conversation.clone(), tool.clone(), digest.clone());
        let (cause, reasons) = (cause.to_owned(), Vec::new());
        Some(Event::ApprovalVoid { conversation, tool, digest, cause, reasons }.into())
    }
}

impl From<Event> for Note {
    fn from(event: Event) -> Self {
        Self { event, content: None }
    }
}

/// The audit log, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Option<Arc<Recording>>);

/// An open log with its witnesses.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Dropped before the log, so that no thread holds the log then.
    witnesses: Option<Witnesses>,
    log: Arc<Log>,
    /// The time for which content is kept, if it is kept.
    content: Option<Duration>,
    /// The keys that are removed from content.
    keys: Vec<Secret>,
}

impl Recorder {
    /// Opens a log and records the policies in force. `keys` are removed from content. From now on the store and the
    /// witnesses record how far the log has come; a log that is behind its store, or behind a witness's file, is
    /// rejected.
    pub(crate) async fn open(
        spec: Option<&AuditSpec>,
        clients: &[Client],
        keys: Vec<Secret>,
        store: &Store,
        operator: &log::Log,
    ) -> Result<Self, StoreError> {
        let Some(AuditSpec { file, key, content, witness }) = spec else { return Ok(Self(None)) };
        let key = Key::load_or_create(key).map_err(failed)?;
        let kept = if content.is_some() { Content::Kept } else { Content::Dropped };
        let options = Options { content: kept, ..Options::default() };
        let anchors = store.anchors().await?;
        let seen = seen(witness.as_ref())?;
        let check = |past: &mut Past<'_>| {
            // A store in memory has no record of earlier logs.
            let loss = if store.is_memory() { None } else { anchors.loss(past)? };
            Ok(match loss {
                Some(loss) => Some(loss),
                None => seen.loss(past)?,
            })
        };
        let log = Log::open_after(file, key, options, Time::now(), check).map_err(failed)?;
        store.watch(&log, false).await?;
        let log = Arc::new(log);
        let begin = |spec| Witnesses::begin(spec, &log, operator).map_err(untold);
        let witnesses = witness.as_ref().map(begin).transpose()?;
        let recorder = Self(Some(Arc::new(Recording { witnesses, log, content: *content, keys })));
        let mut policies: Vec<String> = clients.iter().map(|client| client.basis.clone()).collect();
        policies.sort();
        policies.dedup();
        recorder.record(&[Event::ConfigurationLoaded { policies }.into()])?;
        Ok(recorder)
    }

    /// Records events. If this fails, the caller must not take any action that depends on them.
    pub(crate) fn record(&self, notes: &[Note]) -> Result<(), StoreError> {
        self.record_without(notes, None)
    }

    /// Records events, with this key removed from their content.
    pub(crate) fn record_without(&self, notes: &[Note], key: Option<&str>) -> Result<(), StoreError> {
        let Some(recording) = self.0.as_deref().filter(|_| !notes.is_empty()) else { return Ok(()) };
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            // This blocks while content is being deleted, and must not block sockets.
            Ok(RuntimeFlavor::MultiThread) => block_in_place(|| recording.record(notes, key)),
            _ => recording.record(notes, key),
        }
    }

    /// Returns whether the log can be written now.
    pub(crate) fn is_writable(&self) -> bool {
        let Some(recording) = self.0.as_deref() else { return true };
        // This blocks while content is being deleted, and must not block sockets.
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => block_in_place(|| recording.log.is_writable()),
            _ => recording.log.is_writable(),
        }
    }

    /// Deletes content at the request of `who`; returns the number of deleted entries.
    pub(crate) fn forget(&self, whose: &Forget, who: &str) -> Result<u64, StoreError> {
        let Some(Recording { log, .. }) = self.0.as_deref() else { return Ok(0) };
        log.forget(Time::now(), whose, who).map_err(failed)
    }

    /// Rejects a turn if a required witness is too far behind.
    pub(crate) fn may_begin(&self) -> Result<(), StoreError> {
        match self.witnesses().and_then(Witnesses::too_late) {
            None => Ok(()),
            Some(_) => Err(StoreError::Unwitnessed),
        }
    }

    /// Returns the witnesses of the log.
    pub(crate) fn witnesses(&self) -> Option<&Witnesses> {
        self.0.as_deref()?.witnesses.as_ref()
    }

    /// Signs everything recorded so far.
    pub(crate) fn seal(&self) -> Result<(), StoreError> {
        let Some(Recording { log, .. }) = self.0.as_deref() else { return Ok(()) };
        log.seal(Time::now()).map(drop).map_err(failed)
    }

    /// Returns a weak reference to the open log, which does not keep it open; `None` if there is no audit log.
    pub(crate) fn recording(&self) -> Option<Weak<Recording>> {
        self.0.as_ref().map(Arc::downgrade)
    }
}

impl Recording {
    fn record(&self, notes: &[Note], key: Option<&str>) -> Result<(), StoreError> {
        let Self { log, content: kept, keys, .. } = self;
        for Note { event, content } in notes {
            let content = content.as_ref().filter(|_| kept.is_some());
            let recorded = match content.map(|content| said(content, keys, key)) {
                Some(content) => log.append_with(Time::now(), event, &content),
                None => log.append(Time::now(), event),
            };
            recorded.map_err(failed)?;
        }
        Ok(())
    }

    /// Deletes expired content.
    pub(crate) fn expire(&self) -> Result<u64, StoreError> {
        let Some(kept) = self.content else { return Ok(0) };
        let (now, kept) = (Time::now(), u64::try_from(kept.as_millis()).unwrap_or(u64::MAX));
        self.log.expire(now, Time(now.0.saturating_sub(kept))).map_err(failed)
    }
}

/// Records an operator's acceptance of what the audit log or its database has lost; the gateway can start again
/// afterwards.
///
/// Returns the accepted loss; `None` if there is no audit log, or if nothing was lost.
///
/// # Errors
/// Fails if a gateway uses the log or its store, or if one of them cannot be read or written.
pub fn accept_loss(config: Config, who: &str) -> Result<Option<Loss>, StoreError> {
    let Some(AuditSpec { file, key, witness, .. }) = config.audit else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(StoreError::Runtime)?.block_on(async {
        let store = Store::open(&config.store.place).await?;
        let anchors = store.anchors().await?;
        let seen = seen(witness.as_ref())?;
        let key = Key::load_or_create(&key).map_err(failed)?;
        let (mut found, mut unseen) = (None, None);
        let check = |past: &mut Past<'_>| {
            (found, unseen) = (anchors.loss(past)?, seen.loss(past)?);
            Ok(None)
        };
        let log = Log::open_after(&file, key, Options::default(), Time::now(), check).map_err(failed)?;
        for loss in found.into_iter().chain(unseen) {
            log.append(Time::now(), &Event::LossAccepted { who: who.to_owned(), loss }).map_err(failed)?;
        }
        log.seal(Time::now()).map_err(failed)?;
        if let (Some(file), Some(loss)) = (witness.and_then(|witness| witness.file), unseen) {
            for (other, head) in seen.signed_by(log.key()) {
                // The present lines of this log are not lost.
                let since = if other == log.id() { loss.lines().min(head.seq) } else { 0 };
                witness::give_up(&file, &log, GivenUp { log: other, since }).map_err(untold)?;
            }
        }
        store.watch(&log, found.is_some()).await?;
        if found.is_some() {
            store.accept()?;
        }
        Ok(found.or(unseen))
    })
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn failed(error: AuditError) -> StoreError {
    StoreError::Audit(error.to_string())
}

/// Reads the witness's file, if one is configured.
fn seen(witness: Option<&WitnessSpec>) -> Result<Witness, StoreError> {
    let file = witness.and_then(|witness| witness.file.as_deref());
    file.map(witness::known).transpose().map(Option::unwrap_or_default).map_err(untold)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn untold(untold: Untold) -> StoreError {
    StoreError::Audit(untold.to_string())
}

/// Returns a content as it is kept: without any key that the gateway knows.
fn said(content: &Value, keys: &[Secret], key: Option<&str>) -> String {
    let hide = |text: &str| {
        let text = keys.iter().fold(text.to_owned(), |text, key| key.hidden_in(&text));
        key.map_or_else(|| text.clone(), |key| Secret::new(key).hidden_in(&text))
    };
    match without(content, &hide) {
        Value::String(text) => text,
        content => content.to_string(),
    }
}

fn without(content: &Value, hide: &dyn Fn(&str) -> String) -> Value {
    match content {
        Value::String(text) => Value::String(hide(text)),
        Value::Array(list) => list.iter().map(|one| without(one, hide)).collect(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| (hide(name), without(value, hide))).collect()
        }
        other => other.clone(),
    }
}

/// Returns the record of a judged call in a client's conversation.
pub(crate) fn judged(client: &Client, name: &str, call: conversation::Judged) -> Note {
    let event = Event::Judged(Judged {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        policy: client.basis.clone(),
        tool: call.tool.to_string(),
        verdict: call.outcome,
        reasons: reasons(client, &call.reasons),
        label: call.label,
        digest: call.digest,
        event: u64::try_from(call.event).unwrap_or(u64::MAX),
    });
    Note::new(event, Value::Object(call.arguments))
}

/// Returns the record of a question about a call in a client's conversation, with what the person is shown.
pub(crate) fn asked(client: &Client, name: &str, ask: &Ask, shown: Value) -> Note {
    let event = Event::Asked {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        tool: ask.tool.to_string(),
        digest: ask.digest.clone(),
        reasons: reasons(client, &ask.reasons),
    };
    Note::new(event, shown)
}

/// Returns the record of an approved call in a client's conversation that does not run.
pub(crate) fn void(client: &Client, name: &str, void: conversation::Void) -> Note {
    let event = Event::ApprovalVoid {
        conversation: name.to_owned(),
        tool: void.tool.to_string(),
        digest: void.digest,
        cause: void.cause,
        reasons: reasons(client, &void.reasons),
    };
    event.into()
}

/// Returns the record of a withheld text of the model.
pub(crate) fn withheld(client: &Client, name: &str, text: String) -> Note {
    let event = Event::ReplyWithheld {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        reasons: Vec::new(),
    };
    Note::new(event, Value::String(text))
}

/// Returns reasons without content.
fn reasons(client: &Client, reasons: &[Reason]) -> Vec<String> {
    let one = |reason: &Reason| {
        let kind = reason.kind.name();
        match (&reason.statement, reason.kind) {
            (Some(span), ReasonKind::Rule | ReasonKind::RuleError) => {
                let (line, text) = (client.policy.line(span), client.policy.excerpt(span));
                format!("{kind}: line {line}: {}", text.lines().next().unwrap_or_default().trim())
            }
            _ if reason.label.is_empty() => kind.to_owned(),
            _ => format!(
                "{kind}: {} where at most {} may be",
                reason.label.join(" "),
                reason.required.join(" ")
            ),
        }
    };
    let mut told: Vec<String> = reasons.iter().map(one).collect();
    told.dedup();
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_key_is_in_a_content() {
        let keys = [Secret::new("key-of-the-client"), Secret::new("short"), Secret::new("")];
        let check = |content: Value, expected: &str| {
            assert_eq!(said(&content, &keys, Some("key-of-the-provider")), expected);
        };
        check(json!("nothing"), "nothing");
        check(json!("a key-of-the-client, twice: key-of-the-client"), "a [key], twice: [key]");
        check(json!({"header": ["Bearer key-of-the-provider", 1]}), r#"{"header":["Bearer [key]",1]}"#);
        check(json!({"key-of-the-client": {"x": null}}), r#"{"[key]":{"x":null}}"#);
        // A short key is not removed, since it can be guessed and occurs in many texts.
        check(json!("short"), "short");
    }
}
