//! What the gateway writes to its [audit log](crate::audit), if it keeps one.
//!
//! Reasons are given by the policy's own words and by names of labels: what a rule says of a match may quote content.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use flowgate::monitor::{Reason, ReasonKind};
use flowgate_guard::approve::Ask;
use flowgate_guard::conversation;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::audit::{AuditError, Content, Event, Forget, Judged, Key, Log, Loss, Options, Past, Time};
use crate::model_routes::config::Config;
use crate::model_routes::{Client, Secret};
use crate::store::{Store, StoreError};

/// Where an audit log is kept, and the key that signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSpec {
    /// The log.
    pub file: PathBuf,
    /// The file of the key; it is made if there is none.
    pub key: PathBuf,
    /// How long content is kept beside the log, if it is.
    pub content: Option<Duration>,
}

/// Something that happened, and what was said or called, which is no part of the log itself.
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
    /// If this says that an approved call ran: that it did not after all.
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

/// A log that is open, and what is kept beside it.
#[derive(Debug)]
pub(crate) struct Recording {
    log: Log,
    /// How long content is kept, if it is.
    content: Option<Duration>,
    /// What is in no content.
    keys: Vec<Secret>,
}

impl Recorder {
    /// Opens a log and says which policies are in force. Content is kept without `keys`. From now on the store knows how far the log
    /// has come; one that is behind its store is refused.
    pub(crate) async fn open(
        spec: Option<&AuditSpec>,
        clients: &[Client],
        keys: Vec<Secret>,
        store: &Store,
    ) -> Result<Self, StoreError> {
        let Some(AuditSpec { file, key, content }) = spec else { return Ok(Self(None)) };
        let key = Key::load_or_create(key).map_err(failed)?;
        let kept = if content.is_some() { Content::Kept } else { Content::Dropped };
        let options = Options { content: kept, ..Options::default() };
        let anchors = store.anchors().await?;
        // What only the memory knows says nothing about what was there before.
        let check = |past: &mut Past<'_>| if store.is_memory() { Ok(None) } else { anchors.loss(past) };
        let log = Log::open_after(file, key, options, Time::now(), check).map_err(failed)?;
        store.watch(&log, false).await?;
        let recorder = Self(Some(Arc::new(Recording { log, content: *content, keys })));
        let mut policies: Vec<String> = clients.iter().map(|client| client.basis.clone()).collect();
        policies.sort();
        policies.dedup();
        recorder.record(&[Event::ConfigurationLoaded { policies }.into()])?;
        Ok(recorder)
    }

    /// Records what happened. Whoever cannot does nothing that follows from it.
    pub(crate) fn record(&self, notes: &[Note]) -> Result<(), StoreError> {
        self.record_without(notes, None)
    }

    /// Records what happened, with content in which this key is not.
    pub(crate) fn record_without(&self, notes: &[Note], key: Option<&str>) -> Result<(), StoreError> {
        let Some(recording) = self.0.as_deref().filter(|_| !notes.is_empty()) else { return Ok(()) };
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            // While content is being deleted it waits, and sockets must not.
            Ok(RuntimeFlavor::MultiThread) => block_in_place(|| recording.record(notes, key)),
            _ => recording.record(notes, key),
        }
    }

    /// Whether something can be recorded now.
    pub(crate) fn is_writable(&self) -> bool {
        let Some(recording) = self.0.as_deref() else { return true };
        // While content is being deleted it waits, and sockets must not.
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => block_in_place(|| recording.log.is_writable()),
            _ => recording.log.is_writable(),
        }
    }

    /// Deletes content, since somebody asks for that; gives how many there were.
    pub(crate) fn forget(&self, whose: &Forget, who: &str) -> Result<u64, StoreError> {
        let Some(Recording { log, .. }) = self.0.as_deref() else { return Ok(0) };
        log.forget(Time::now(), whose, who).map_err(failed)
    }

    /// Signs what was recorded.
    pub(crate) fn seal(&self) -> Result<(), StoreError> {
        let Some(Recording { log, .. }) = self.0.as_deref() else { return Ok(()) };
        log.seal(Time::now()).map(drop).map_err(failed)
    }

    /// What is recorded to, for as long as somebody else records there as well.
    pub(crate) fn recording(&self) -> Option<Weak<Recording>> {
        self.0.as_ref().map(Arc::downgrade)
    }
}

impl Recording {
    fn record(&self, notes: &[Note], key: Option<&str>) -> Result<(), StoreError> {
        let Self { log, content: kept, keys } = self;
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

    /// Deletes content that is too old.
    pub(crate) fn expire(&self) -> Result<u64, StoreError> {
        let Some(kept) = self.content else { return Ok(0) };
        let (now, kept) = (Time::now(), u64::try_from(kept.as_millis()).unwrap_or(u64::MAX));
        self.log.expire(now, Time(now.0.saturating_sub(kept))).map_err(failed)
    }
}

/// Records that somebody accepts what the audit log or its database has lost; from then on the gateway starts again.
///
/// # Errors
/// If there is no audit log, if a gateway uses it or its store, or if one of them cannot be written.
pub fn accept_loss(config: Config, who: &str) -> Result<Option<Loss>, StoreError> {
    let Some(AuditSpec { file, key, .. }) = config.audit else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(StoreError::Runtime)?.block_on(async {
        let store = Store::open(&config.store.place).await?;
        let anchors = store.anchors().await?;
        let key = Key::load_or_create(&key).map_err(failed)?;
        let mut found = None;
        let check = |past: &mut Past<'_>| {
            found = anchors.loss(past)?;
            Ok(None)
        };
        let log = Log::open_after(&file, key, Options::default(), Time::now(), check).map_err(failed)?;
        let Some(loss) = found else {
            store.watch(&log, false).await?;
            return Ok(None);
        };
        log.append(Time::now(), &Event::LossAccepted { who: who.to_owned(), loss }).map_err(failed)?;
        log.seal(Time::now()).map_err(failed)?;
        store.watch(&log, true).await?;
        store.accept()?;
        Ok(Some(loss))
    })
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn failed(error: AuditError) -> StoreError {
    StoreError::Audit(error.to_string())
}

/// A content as it is kept: no key is in it that the gateway knows.
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

/// A call that was judged in a conversation of a client's.
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

/// A person is asked about a call in a conversation of a client's, and shown this.
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

/// A call that a person had allowed in a conversation of a client's does not run.
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

/// A text of the model's was not passed on.
pub(crate) fn withheld(client: &Client, name: &str, text: String) -> Note {
    let event = Event::ReplyWithheld {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        reasons: Vec::new(),
    };
    Note::new(event, Value::String(text))
}

/// Reasons without content.
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
        // What everybody guesses is no key, and stands in many texts.
        check(json!("short"), "short");
    }
}
