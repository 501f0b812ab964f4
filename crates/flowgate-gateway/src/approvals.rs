//! Human decisions: on calls that the policy neither permits nor denies, and on freezes.
//!
//! A question is a row of the [store](crate::store). It outlives the gateway and the request that asked it, is
//! decided once, for a call with exactly its arguments, and no answer means no. The request waits for a while; then
//! its turn ends, and continues when the agent asks again.
//!
//! * `people`: who may see, decide and freeze.
//! * `clearance`: what they may read.
//! * `known`: what can be frozen.
//! * `routes`: the routes for people.
//! * `webhook`: notifications.

pub(crate) mod clearance;
pub(crate) mod known;
pub(crate) mod people;
pub(crate) mod routes;
pub(crate) mod webhook;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate_guard::approve::{Ask, Decision};
use flowgate_guard::conversation::Void;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::audit::Event;
use crate::log::{self, Limit, Log};
use crate::model_routes::{Client, Failure, Waiting};
use crate::random;
use crate::recorder::{self, Note, Recorder};
use crate::store::{
    Freeze, MOST_OFFERED, Most, NewQuestion, OFFERED, OWN, Offer, Posed, Question, State, Store, StoreError,
    wait,
};
use known::Names;
use people::People;
use routes::Kind;
use webhook::Webhook;

/// The maximum size of a tool's description about which people are asked, in bytes; a person could not review a longer
/// one.
const MOST_SAID: usize = 64 << 10;
/// The interval at which the store is polled for decisions made at other gateways.
const LOOK: Duration = Duration::from_millis(500);

/// The longest time in milliseconds that the store adds to a date.
const LONGEST: i64 = i64::MAX / 4;
/// No name can be made for a question.
const NO_RANDOM: StoreError = StoreError::Damaged("the system gives no random bytes");

/// The settings of questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// The time for which a request waits for an answer.
    pub wait: Duration,
    /// The time until a question expires.
    pub stands: Duration,
    /// The most open questions of one client.
    pub of_client: u32,
    /// The most open questions of one conversation, so that no conversation uses up the room of the others.
    pub of_conversation: u32,
}

impl Default for Asking {
    fn default() -> Self {
        let (wait, stands) = (Duration::from_secs(30), Duration::from_secs(60 * 60));
        Self { wait, stands, of_client: 1000, of_conversation: 20 }
    }
}

/// The service that asks people and enforces their decisions.
#[derive(Debug)]
pub(crate) struct Approvals {
    pub(crate) store: Arc<Store>,
    pub(crate) people: People,
    recorder: Recorder,
    asking: Asking,
    webhook: Option<Webhook>,
    /// The names of what can be frozen.
    pub(crate) names: Names,
    pub(crate) log: Log,
    /// Notified when a question changes at this gateway.
    bell: watch::Sender<()>,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) decision: Decision,
    /// The question; none if no person was asked.
    pub(crate) asked: Option<Asked>,
}

/// A question that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: String,
    /// The digest of the call.
    pub(crate) digest: String,
    pub(crate) tool: String,
}

/// The turn in which a question is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'t> {
    pub(crate) client: &'t Client,
    pub(crate) conversation: &'t str,
    /// The number of turns of the conversation that were persisted before.
    pub(crate) turns: i64,
    pub(crate) waiting: &'t Waiting,
    /// The client's key for the upstream, if it sends one; it is kept out of every record.
    pub(crate) key: Option<&'t str>,
}

impl Answered {
    /// No person was asked.
    const NOBODY: Self = Self { decision: Decision::Silent, asked: None };
    /// No person was asked, since too many questions are open.
    const UNASKED: Self = Self { decision: Decision::Unasked, asked: None };
}

impl Approvals {
    pub(crate) fn new(
        store: Arc<Store>,
        people: People,
        recorder: Recorder,
        asking: Asking,
        webhook: Option<Webhook>,
        names: Names,
        log: Log,
    ) -> Self {
        Self { store, people, recorder, asking, webhook, names, log, bell: watch::Sender::new(()) }
    }

    /// Asks whether a call may run, and waits a while for the answer. The call does not run if no person may decide.
    /// `used` are the approvals that this turn has used already.
    ///
    /// # Errors
    /// If the question cannot be stored or recorded: no person can see it then, and the turn has to fail.
    pub(crate) fn ask(&self, asker: Asker<'_>, ask: &Ask, used: &[Asked]) -> Result<Answered, StoreError> {
        let Asker { client, conversation, turns, waiting, key } = asker;
        if !self.people.can_decide_for(client) {
            let sentence = "a call that a person has to allow did not run, since nobody may decide for this client: \
                            write [people.NAME] with role = \"approver\"";
            let fields = vec![("conversation", conversation.into()), ("tool", ask.tool.to_string().into())];
            self.log.write(log::Event::Remark, &client.name, fields, sentence);
            return Ok(Answered::NOBODY);
        }
        let id = random::name().map_err(|_| NO_RANDOM)?;
        let (shown, content) = (content(ask), stored(ask));
        let used: Vec<String> = used.iter().map(|asked| asked.id.clone()).collect();
        let new = NewQuestion {
            id: &id,
            client: &client.name,
            name: conversation,
            tenant: &client.tenant,
            digest: &ask.digest,
            content: &content.to_string(),
            stands: millis(self.asking.stands),
            turn: turns,
            used: &used,
            most: self.most(),
        };
        let record = |void: &[String]| {
            let changed = void.iter().map(|_| {
                let (tool, digest) = (ask.tool.clone(), ask.digest.clone());
                let cause = "state that the call refers to has changed".to_owned();
                recorder::void(client, conversation, Void { tool, digest, reasons: Vec::new(), cause })
            });
            let mut notes: Vec<Note> = changed.collect();
            notes.push(recorder::asked(client, conversation, ask, shown));
            self.recorder.record_without(&notes, key)
        };
        let (id, is_new) = match wait(self.store.ask(&new, record))? {
            Posed::Known(id) => (id, false),
            Posed::New(id) => (id, true),
            full @ (Posed::FullConversation | Posed::FullClient) => {
                self.report_full(client, conversation, ask, &full)?;
                return Ok(Answered::UNASKED);
            }
        };
        if is_new {
            self.announce(&id);
        }
        Ok(self.await_answer(Asked { id, digest: ask.digest.clone(), tool: ask.tool.to_string() }, waiting))
    }

    /// Notifies of a new question.
    fn announce(&self, id: &str) {
        self.ring();
        if let (Some(webhook), Ok(Some(question))) = (&self.webhook, wait(self.store.question(id))) {
            webhook.tell("question.asked", &question);
        }
    }

    fn most(&self) -> Most {
        let Asking { of_client, of_conversation, .. } = self.asking;
        Most { of_conversation: i64::from(of_conversation), of_client: i64::from(of_client) }
    }

    /// Reports to the log, the audit log and the agent that no question is asked since too many are open.
    fn report_full(
        &self,
        client: &Client,
        conversation: &str,
        ask: &Ask,
        full: &Posed,
    ) -> Result<(), StoreError> {
        let (what, setting, most) = match full {
            Posed::FullConversation => (
                "open questions of one conversation",
                "[approvals] open-questions-of-conversation",
                self.asking.of_conversation,
            ),
            _ => ("open questions of one client", "[approvals] open-questions", self.asking.of_client),
        };
        self.log.limit(&Limit {
            what,
            effect: "nobody is asked, and the call does not run",
            setting,
            most: u64::from(most),
            client: &client.name,
            conversation: Some(conversation),
        });
        let event = Event::Unasked {
            conversation: conversation.to_owned(),
            client: client.name.clone(),
            tenant: client.tenant.clone(),
            tool: ask.tool.to_string(),
            digest: ask.digest.clone(),
            cause: format!("too many {what}: {most}"),
        };
        self.recorder.record(&[event.into()])
    }

    /// Asks whether a tool with this description may be offered. Does not wait for the answer: a yes approves the
    /// tool for all conversations of the tenant.
    pub(crate) fn propose(&self, client: &Client, offer: &Offer, said: &Value) -> Result<(), StoreError> {
        if !self.people.can_decide_for(client) || said.to_string().len() > MOST_SAID {
            return Ok(());
        }
        let id = random::name().map_err(|_| NO_RANDOM)?;
        let tool = format!("{}/{}", offer.server, offer.tool);
        let reason =
            "the server offers a tool that is new or was changed; a yes approves of it as it stands here";
        let content = json!({
            "tool": tool, "arguments": said, "label": [], "reasons": [reason], "excerpts": [], "offer": offer,
        });
        let place = format!("tools of {}", offer.server);
        let new = NewQuestion {
            id: &id,
            client: &client.name,
            name: &place,
            tenant: &client.tenant,
            digest: &offer.digest,
            content: &content.to_string(),
            stands: millis(self.asking.stands),
            turn: OFFERED,
            used: &[],
            most: self.most(),
        };
        let event = Event::Asked {
            conversation: place.clone(),
            client: client.name.clone(),
            tenant: client.tenant.clone(),
            tool,
            digest: offer.digest.clone(),
            reasons: vec![reason.to_owned()],
        };
        let record = |_: &[String]| self.recorder.record(&[Note::new(event, content)]);
        match wait(self.store.ask(&new, record))? {
            Posed::Known(_) => {}
            Posed::New(id) => self.announce(&id),
            Posed::FullConversation | Posed::FullClient => self.log.limit(&Limit {
                what: "tools of one server that wait for approval",
                effect: "the tool stays hidden until other questions are decided",
                setting: "none: decide the questions that are open",
                most: u64::try_from(MOST_OFFERED).unwrap_or(0),
                client: &client.name,
                conversation: Some(&place),
            }),
        }
        Ok(())
    }

    /// Returns the answer to the question of a conversation about the call with this digest, after a bounded wait.
    pub(crate) fn answer_to(&self, asker: Asker<'_>, digest: &str) -> Result<Answered, StoreError> {
        let Asker { client, conversation, turns, waiting, .. } = asker;
        let found = wait(self.store.question_of((&client.name, conversation), digest, turns))?;
        let Some(question) = found else { return Ok(Answered::NOBODY) };
        let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
        let tool = content.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(self.await_answer(Asked { id: question.id, digest: question.digest, tool }, waiting))
    }

    fn await_answer(&self, asked: Asked, waiting: &Waiting) -> Answered {
        let until = Instant::now() + self.asking.wait;
        let mut bell = self.bell.subscribe();
        let decision = loop {
            let state = wait(self.store.question(&asked.id)).ok().flatten().map(|question| question.state);
            match state {
                // The client has disconnected: the answer is kept for its next request.
                Some(State::Open | State::Allowed) if waiting.has_gone() => break Decision::Later,
                Some(State::Allowed) => break Decision::Allow,
                Some(State::Denied) => break Decision::Refuse,
                Some(State::Open) if Instant::now() >= until => break Decision::Later,
                Some(State::Open) => {}
                Some(State::Used | State::Expired | State::Void) | None => break Decision::Silent,
            }
            let left = until.saturating_duration_since(Instant::now()).min(LOOK);
            let rings = tokio::time::timeout(left, bell.changed());
            let _ = tokio::runtime::Handle::current().block_on(rings);
        };
        Answered { decision, asked: Some(asked) }
    }

    /// Rejects requests of a frozen client or conversation.
    pub(crate) fn check_frozen(&self, client: &Client, conversation: &str) -> Result<(), Failure> {
        let full = format!("{}/{conversation}", client.name);
        let is_stopped = |freeze: &Freeze| {
            freeze.kind == Kind::Client.name() && freeze.what == client.name
                || freeze.kind == Kind::Conversation.name() && freeze.what == full
        };
        match wait(self.store.freezes())?.iter().find(|freeze| is_stopped(freeze)) {
            None => Ok(()),
            Some(freeze) => {
                let message = format!("this {} is stopped by its operator", freeze.kind);
                Err(Failure::new(StatusCode::FORBIDDEN, message))
            }
        }
    }

    /// Returns the lines of the standing consents that are frozen in a client's policy. A consent is matched by its
    /// digest, so edits elsewhere in the policy do not thaw it.
    pub(crate) fn withdrawn(&self, client: &Client) -> Result<BTreeSet<usize>, StoreError> {
        let freezes = wait(self.store.freezes())?;
        let digest = |what: &str| what.rsplit_once('-').map(|(_, digest)| digest.to_owned());
        let of = |freeze: &&Freeze| {
            freeze.kind == Kind::Consent.name()
                && freeze.what.rsplit_once(':').is_some_and(|(name, _)| name == client.name)
        };
        let frozen: BTreeSet<String> =
            freezes.iter().filter(of).filter_map(|freeze| digest(&freeze.what)).collect();
        if frozen.is_empty() {
            return Ok(BTreeSet::new());
        }
        let stopped =
            |(name, _): &(String, usize)| digest(name).is_some_and(|digest| frozen.contains(&digest));
        Ok(consents_of(client).filter(stopped).map(|(_, line)| line).collect())
    }

    /// Returns why a call may not run, if something about it is frozen or the freezes cannot be read.
    pub(crate) fn stops(&self, client: &Client, conversation: &str, tool: &str) -> Option<String> {
        if let Err(failure) = self.check_frozen(client, conversation) {
            return Some(failure.message);
        }
        let server = tool.split_once('/').map_or("", |(server, _)| server);
        let is_stopped = |freeze: &Freeze| {
            freeze.kind == Kind::Tool.name() && freeze.what == tool
                || freeze.kind == Kind::Server.name() && freeze.what == server
        };
        match wait(self.store.freezes()) {
            Ok(freezes) => {
                let stopped = freezes.iter().find(|freeze| is_stopped(freeze));
                stopped.map(|freeze| format!("this {} is stopped by its operator", freeze.kind))
            }
            Err(error) => {
                let fields = vec![("conversation", conversation.into()), ("tool", tool.into())];
                let sentence =
                    format!("whether a call is stopped is not known, and it does not run: {error}");
                self.log.write(log::Event::Failure, &client.name, fields, &sentence);
                Some(error.told().to_owned())
            }
        }
    }

    /// Voids the questions of a conversation that continues without the answers.
    pub(crate) fn give_up(&self, client: &Client, conversation: &str) -> Result<(), StoreError> {
        let allowed = wait(self.store.give_up(&client.name, conversation))?;
        self.note_void(&allowed, "the conversation went on without the answer")?;
        self.ring();
        Ok(())
    }

    /// Records that these questions were allowed and that their calls do not run.
    fn note_void(&self, questions: &[Question], cause: &str) -> Result<(), StoreError> {
        let note = |question: &Question| {
            let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
            let event = Event::ApprovalVoid {
                conversation: question.name.clone(),
                tool: content.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned(),
                digest: question.digest.clone(),
                cause: cause.to_owned(),
                reasons: Vec::new(),
            };
            event.into()
        };
        self.recorder.record(&questions.iter().map(note).collect::<Vec<Note>>())
    }

    /// Returns the record of a tenant's stores in JSON, if it differs from `known`.
    pub(crate) fn stores_since(
        &self,
        tenant: &str,
        known: Option<&str>,
    ) -> Result<Option<String>, StoreError> {
        Ok(wait(self.store.tenant(tenant))?.filter(|record| known != Some(record.as_str())))
    }

    /// Wakes the requests that wait for a question.
    pub(crate) fn ring(&self) {
        self.bell.send_replace(());
    }

    /// Notifies of a decision.
    fn tell(&self, question: &Question) {
        self.ring();
        if let Some(webhook) = &self.webhook {
            webhook.tell("question.decided", question);
        }
    }

    /// Marks expired questions, and deletes them after `retention`. Called periodically.
    pub(crate) async fn clean(&self, retention: Duration) -> Result<(), StoreError> {
        let allowed = self.store.expire(millis(retention)).await?;
        self.note_void(&allowed, "the approval was not used in time")
    }
}

/// Returns a time in milliseconds, at most the longest.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).map_or(LONGEST, |time| time.min(LONGEST))
}

/// Returns the standing consents of a client's policy as `CLIENT:LINE-DIGEST`, with their lines. The digest is that
/// of the statement's text.
pub(crate) fn consents_of(client: &Client) -> impl Iterator<Item = (String, usize)> + '_ {
    client.policy.consents().map(|(line, text)| {
        let digest = random::hex(&Sha256::digest(text));
        (format!("{}:{line}-{}", client.name, digest.get(..8).unwrap_or_default()), line)
    })
}

/// Returns a question as it is stored: what a person is shown, the state that it is about, and the labels of its
/// parts.
fn stored(ask: &Ask) -> Value {
    let mut stored = content(ask);
    if let Some(stored) = stored.as_object_mut() {
        let reasons = ask.reasons.iter().zip(&ask.reasons_carry);
        let reasons: Vec<Value> =
            reasons.map(|(reason, carries)| json!({"text": reason.message, "carries": carries})).collect();
        let own = json!({"state": ask.state, "carries": ask.carries, "reasons": reasons});
        stored.insert(OWN.to_owned(), own);
    }
    stored
}

/// Returns what a person is shown of a question: everything that the decision depends on.
pub(crate) fn content(ask: &Ask) -> Value {
    let mut reasons: Vec<&str> = ask.reasons.iter().map(|reason| reason.message.as_str()).collect();
    reasons.dedup();
    let excerpt = |excerpt: &flowgate_guard::approve::Excerpt| json!({"place": excerpt.region.to_string(), "label": excerpt.label, "text": excerpt.text});
    json!({
        "tool": ask.tool.to_string(),
        "arguments": ask.arguments,
        "label": ask.label,
        "reasons": reasons,
        "excerpts": ask.excerpts.iter().map(excerpt).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unlimited time is replaced by the longest time that the store can add to a date.
    #[test]
    fn times_are_bounded() {
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        assert_eq!(millis(Duration::from_micros(1_999)), 1);
        assert_eq!(millis(days(365)), 365 * 24 * 60 * 60 * 1000);
        assert!(millis(Duration::MAX) > millis(days(365_000_000)));
        assert!(millis(Duration::MAX).checked_add(millis(days(365_000_000))).is_some());
    }
}
