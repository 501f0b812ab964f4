//! What the gateway writes to its [audit log](crate::audit), if it keeps one.
//!
//! Reasons are given by the policy's own words and by names of labels: what a rule says of a match may quote content.

use std::path::PathBuf;
use std::sync::Arc;

use flowgate::monitor::{Reason, ReasonKind};
use flowgate_guard::conversation;

use crate::audit::{Event, Judged, Key, Log, Options, Time};
use crate::model_routes::Client;
use crate::store::StoreError;

/// Where an audit log is kept, and the key that signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSpec {
    /// The log.
    pub file: PathBuf,
    /// The file of the key; it is made if there is none.
    pub key: PathBuf,
}

/// The audit log, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Option<Arc<Log>>);

impl Recorder {
    /// Opens a log and says which policies are in force.
    pub(crate) fn open(spec: Option<&AuditSpec>, clients: &[Client]) -> Result<Self, StoreError> {
        let Some(AuditSpec { file, key }) = spec else { return Ok(Self(None)) };
        let failed = |error: crate::audit::AuditError| StoreError::Audit(error.to_string());
        let key = Key::load_or_create(key).map_err(failed)?;
        let log = Log::open(file, key, Options::default(), Time::now()).map_err(failed)?;
        let recorder = Self(Some(Arc::new(log)));
        let mut policies: Vec<String> = clients.iter().map(|client| client.basis.clone()).collect();
        policies.sort();
        policies.dedup();
        recorder.record(&[Event::ConfigurationLoaded { policies }])?;
        Ok(recorder)
    }

    /// Records what happened. Whoever cannot does nothing that follows from it.
    pub(crate) fn record(&self, events: &[Event]) -> Result<(), StoreError> {
        let Some(log) = &self.0 else { return Ok(()) };
        for event in events {
            log.append(Time::now(), event).map_err(|error| StoreError::Audit(error.to_string()))?;
        }
        Ok(())
    }
}

/// A call that was judged in a conversation of a client's.
pub(crate) fn judged(client: &Client, name: &str, call: &conversation::Judged) -> Event {
    Event::Judged(Judged {
        conversation: name.to_owned(),
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        policy: client.basis.clone(),
        tool: call.tool.to_string(),
        verdict: call.outcome,
        reasons: reasons(client, &call.reasons),
        label: call.label.clone(),
        digest: call.digest.clone(),
        event: u64::try_from(call.event).unwrap_or(u64::MAX),
    })
}

/// Reasons without content.
pub(crate) fn reasons(client: &Client, reasons: &[Reason]) -> Vec<String> {
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
