//! People decide: on calls that the policy neither permits nor forbids, and on what has to stop.
//!
//! A question is a row of the [store](crate::store). It outlives the gateway and the request that asked it, is decided once, for a
//! call with exactly its arguments, and no answer is a no. The request waits a while; then its turn ends, and goes on when the
//! agent asks again.
//!
//! * `people`: who may see, decide and stop. * `known`: what can be stopped. * `routes`: how they do it. * `webhook`: how they hear of it.

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

/// The most bytes that a server may say of a tool for people to be asked about it: nobody reads more.
const MOST_SAID: usize = 64 << 10;
/// How often is looked whether somebody has decided in another gateway.
const LOOK: Duration = Duration::from_millis(500);

/// How questions are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// How long a request waits for an answer.
    pub wait: Duration,
    /// How long a question stands.
    pub stands: Duration,
    /// How many questions of one client may be open at the same time.
    pub of_client: u32,
    /// How many of one conversation: so many that no conversation takes the room of the others.
    pub of_conversation: u32,
}

impl Default for Asking {
    fn default() -> Self {
        let (wait, stands) = (Duration::from_secs(30), Duration::from_secs(60 * 60));
        Self { wait, stands, of_client: 1000, of_conversation: 20 }
    }
}

/// Whoever is asked.
#[derive(Debug)]
pub(crate) struct Approvals {
    pub(crate) store: Arc<Store>,
    pub(crate) people: People,
    recorder: Recorder,
    asking: Asking,
    webhook: Option<Webhook>,
    /// What can be stopped.
    pub(crate) names: Names,
    pub(crate) log: Log,
    /// Rings when something happened to a question here.
    bell: watch::Sender<()>,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) decision: Decision,
    /// The question; none if nobody was asked.
    pub(crate) asked: Option<Asked>,
}

/// A question that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: String,
    /// Stands for the call.
    pub(crate) digest: String,
    pub(crate) tool: String,
}

/// The turn in which something is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'t> {
    pub(crate) client: &'t Client,
    pub(crate) conversation: &'t str,
    /// How many turns of the conversation were kept before.
    pub(crate) turns: i64,
    pub(crate) waiting: &'t Waiting,
    /// The client's key for the upstream, if it brings one: no record has it.
    pub(crate) key: Option<&'t str>,
}

impl Answered {
    /// Nobody was asked.
    const NOBODY: Self = Self { decision: Decision::Silent, asked: None };
    /// Nobody was asked, since too many questions are open.
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

    /// Asks whether a call may run, and waits a while for the answer. Where nobody may decide, the answer is no. What was allowed in
    /// this turn already is `used`.
    pub(crate) fn ask(&self, asker: Asker<'_>, ask: &Ask, used: &[Asked]) -> Answered {
        let Asker { client, conversation, turns, waiting, key } = asker;
        if !self.people.can_decide_for(client) {
            let sentence = "a call that a person has to allow did not run, since nobody may decide for this client: \
                            write [people.NAME] with role = \"approver\"";
            let fields = vec![("conversation", conversation.into()), ("tool", ask.tool.to_string().into())];
            self.log.write(log::Event::Remark, &client.name, fields, sentence);
            return Answered::NOBODY;
        }
        let Ok(id) = random::name() else {
            self.report_failure(client, conversation, "the system gives no random bytes");
            return Answered::NOBODY;
        };
        let (shown, content) = (content(ask), stored(ask));
        let used: Vec<String> = used.iter().map(|asked| asked.id.clone()).collect();
        let new = NewQuestion {
            id: &id,
            client: &client.name,
            name: conversation,
            tenant: &client.tenant,
            digest: &ask.digest,
            content: &content.to_string(),
            stands: i64::try_from(self.asking.stands.as_millis()).unwrap_or(i64::MAX / 4),
            turn: turns,
            used: &used,
            most: self.most(),
        };
        let (id, void) = match wait(self.store.ask(&new)) {
            Ok(Posed::Known(id)) => (id, None),
            Ok(Posed::New { id, void }) => (id, Some(void)),
            Ok(full @ (Posed::FullConversation | Posed::FullClient)) => {
                return self.report_full(client, conversation, ask, &full);
            }
            Err(error) => {
                self.report_failure(client, conversation, &error.to_string());
                return Answered::NOBODY;
            }
        };
        let asked = Asked { id, digest: ask.digest.clone(), tool: ask.tool.to_string() };
        if let Some(void) = void {
            let changed = void.into_iter().map(|_| {
                let (tool, digest) = (ask.tool.clone(), ask.digest.clone());
                let cause = "state that the call refers to has changed".to_owned();
                recorder::void(client, conversation, Void { tool, digest, reasons: Vec::new(), cause })
            });
            let mut notes: Vec<Note> = changed.collect();
            notes.push(recorder::asked(client, conversation, ask, shown));
            if let Err(error) = self.recorder.record_without(&notes, key) {
                self.report_failure(client, conversation, &error.to_string());
                return Answered::NOBODY;
            }
            self.ring();
            if let (Some(webhook), Ok(Some(question))) = (&self.webhook, wait(self.store.question(&asked.id)))
            {
                webhook.tell("question.asked", &question);
            }
        }
        self.await_answer(asked, waiting)
    }

    fn most(&self) -> Most {
        let Asking { of_client, of_conversation, .. } = self.asking;
        Most { of_conversation: i64::from(of_conversation), of_client: i64::from(of_client) }
    }

    /// Nobody is asked, since too many questions are open: the log, the audit log and the agent say so.
    fn report_full(&self, client: &Client, conversation: &str, ask: &Ask, full: &Posed) -> Answered {
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
        if let Err(error) = self.recorder.record(&[event.into()]) {
            self.report_failure(client, conversation, &error.to_string());
        }
        Answered::UNASKED
    }

    fn report_failure(&self, client: &Client, conversation: &str, why: &str) {
        let fields = vec![("conversation", conversation.into())];
        let sentence = format!("a question could not be asked, and its call does not run: {why}");
        self.log.write(log::Event::Failure, &client.name, fields, &sentence);
    }

    /// Asks whether a tool may be on offer that a server has described so. Nobody waits for the answer: who allows it approves of the tool for all
    /// conversations of the tenant.
    pub(crate) fn propose(&self, client: &Client, offer: &Offer, said: &Value) -> Result<(), StoreError> {
        if !self.people.can_decide_for(client) || said.to_string().len() > MOST_SAID {
            return Ok(());
        }
        let id = random::name().map_err(|_| StoreError::Damaged("the system gives no random bytes"))?;
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
            stands: i64::try_from(self.asking.stands.as_millis()).unwrap_or(i64::MAX / 4),
            turn: OFFERED,
            used: &[],
            most: self.most(),
        };
        let posed = wait(self.store.ask(&new))?;
        if matches!(posed, Posed::FullConversation | Posed::FullClient) {
            self.log.limit(&Limit {
                what: "tools of one server that people are asked about",
                effect: "the tool stays hidden until other questions are decided",
                setting: "none: decide the questions that are open",
                most: u64::try_from(MOST_OFFERED).unwrap_or(0),
                client: &client.name,
                conversation: Some(&place),
            });
        }
        if let Posed::New { id, .. } = posed {
            let event = Event::Asked {
                conversation: place.clone(),
                client: client.name.clone(),
                tenant: client.tenant.clone(),
                tool,
                digest: offer.digest.clone(),
                reasons: vec![reason.to_owned()],
            };
            self.recorder.record(&[Note::new(event, content)])?;
            self.ring();
            if let (Some(webhook), Some(question)) = (&self.webhook, wait(self.store.question(&id))?) {
                webhook.tell("question.asked", &question);
            }
        }
        Ok(())
    }

    /// The answer to what a conversation asked about the call with this digest, waited for a while.
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
                // An answer that nobody would hear is kept for who asks again.
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

    /// Refuses what somebody has stopped.
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

    /// The lines of a client's policy whose consent is withdrawn, wherever they stood when it was.
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

    /// Whether a call may not run, since somebody has stopped it: why.
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
            Err(error) => Some(error.to_string()),
        }
    }

    /// What a conversation asked is given up: it goes on without the answer.
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

    /// What the stores of a tenant are known to carry, in JSON, if that is another record than this one.
    pub(crate) fn stores_since(
        &self,
        tenant: &str,
        known: Option<&str>,
    ) -> Result<Option<String>, StoreError> {
        Ok(wait(self.store.tenant(tenant))?.filter(|record| known != Some(record.as_str())))
    }

    /// Something happened to a question.
    pub(crate) fn ring(&self) {
        self.bell.send_replace(());
    }

    /// Tells of a decision.
    fn tell(&self, question: &Question) {
        self.ring();
        if let Some(webhook) = &self.webhook {
            webhook.tell("question.decided", question);
        }
    }

    /// What is done from time to time: questions that are over are marked, and deleted after `retention`.
    pub(crate) async fn clean(&self, retention: Duration) -> Result<(), StoreError> {
        let age = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX / 4);
        let allowed = self.store.expire(age).await?;
        self.note_void(&allowed, "the approval was not used in time")
    }
}

/// The consents of a client's policy, as they are called, with their lines: `CLIENT:LINE-DIGEST`. The digest is of what the statement says.
pub(crate) fn consents_of(client: &Client) -> impl Iterator<Item = (String, usize)> + '_ {
    client.policy.consents().map(|(line, text)| {
        let digest = random::hex(&Sha256::digest(text));
        (format!("{}:{line}-{}", client.name, digest.get(..8).unwrap_or_default()), line)
    })
}

/// A question as it is kept: what a person is shown, what it is about, and what its parts carry.
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

/// What a person is shown of a question: all that the decision is about.
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
