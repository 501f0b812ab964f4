//! Serves the HTTP routes for people, who list and decide questions, listen to changes, order freezes and delete
//! content. `http::service` calls it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use flowgate_lm::sse;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ApprovalService;
use super::freeze_kind::FreezeKind;
use super::freeze_targets::FreezeTargetMatch;
use crate::chat::stream::{self, ReplyPart};
use crate::config::{Person, Role};
use crate::database::{
    DatabaseError, DecideError, HIDDEN_MEMBER, PersonDecision, QuestionState, StoredQuestion,
};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use flowgate_audit::{AuditEvent, ContentSelector, FreezeSwitch, RecordedDecision};

/// The most questions in one answer, for each tenant of the person.
const MAX_LISTED: i64 = 200;
/// The most questions that an event stream reads at once.
const BATCH: usize = 200;
/// The interval at which the store is polled for changes made at other gateways.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The number of idle polls between keep-alives.
const KEEP_ALIVE_TICKS: u32 = 30;

/// A person's decision on a question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionRequest {
    /// `allow`, `grant` or `deny`.
    decision: RequestedDecision,
    /// The digest of the question as it was shown: an approval is bound to what the person has seen.
    digest: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RequestedDecision {
    Allow,
    /// The call may run, and so may equal calls of the conversation.
    Grant,
    Deny,
}

/// A request to freeze or thaw.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FreezeRequest {
    kind: FreezeKind,
    /// The client, the conversation as `CLIENT/NAME`, the tool, the server, or the consent as an error message lists
    /// it.
    what: String,
    frozen: bool,
    /// Whether to freeze a name that does not exist yet.
    #[serde(default)]
    in_advance: bool,
}

/// The content to delete from beside the audit log; all given fields have to match.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForgetRequest {
    tenant: Option<String>,
    client: Option<String>,
    conversation: Option<String>,
}

impl ApprovalService {
    /// Authenticates the person who sends a request, and requires a role of at least `least`.
    pub(crate) fn person(&self, headers: &HeaderMap, least: Role) -> Result<&Person, HttpReply> {
        let person = self.people.find(headers).ok_or_else(|| {
            let message = "the request has no valid key of a person: send `Authorization: Bearer KEY`";
            HttpReply::detail(StatusCode::UNAUTHORIZED, message).header(header::WWW_AUTHENTICATE, "Bearer")
        })?;
        if person.role < least {
            let message = format!(
                "the role {} may not do this: it needs the role {}",
                person.role.name(),
                least.name()
            );
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, &message));
        }
        Ok(person)
    }

    /// Rejects requests without a valid key of a person.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), HttpReply> {
        self.person(headers, Role::Viewer).map(drop)
    }

    /// Lists the questions of a state; `open` if the query names none.
    pub(crate) async fn list(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let state = match query.filter(|query| !query.is_empty()) {
            None => Some(QuestionState::Open),
            Some(query) => query
                .strip_prefix("state=")
                .and_then(|name| QuestionState::ALL.into_iter().find(|state| state.name() == name)),
        };
        let Some(state) = state else {
            let names: Vec<&str> = QuestionState::ALL.iter().map(|state| state.name()).collect();
            let message =
                format!("the query has no valid `state`: write `state=` and one of: {}", names.join(", "));
            return Err(HttpReply::detail(StatusCode::BAD_REQUEST, &message));
        };
        let tenants = match person.tenants.as_slice() {
            [] => vec![None],
            tenants => tenants.iter().map(|tenant| Some(tenant.as_str())).collect(),
        };
        let (mut list, mut left_out) = (Vec::<Value>::new(), 0_i64);
        for tenant in tenants {
            let (questions, rest) =
                self.store.questions(state, tenant, MAX_LISTED).await.map_err(database_error_reply)?;
            left_out = left_out.saturating_add(rest);
            list.extend(questions.iter().map(|question| self.question_json(question, person)));
        }
        Ok(HttpReply::json(StatusCode::OK, &json!({"questions": list, "left_out": left_out})))
    }

    /// Returns one question.
    pub(crate) async fn get(&self, headers: &HeaderMap, id: &str) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let question = self.store.question(id).await.map_err(database_error_reply)?;
        let question =
            question.filter(|question| person.sees_tenant(&question.tenant)).ok_or_else(not_found_reply)?;
        Ok(HttpReply::json(StatusCode::OK, &self.question_json(&question, person)))
    }

    /// Decides a question.
    pub(crate) async fn decide(
        &self,
        headers: &HeaderMap,
        id: &str,
        body: &[u8],
    ) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Approver)?;
        let decision_request: DecisionRequest =
            read(body, "`{\"decision\": \"allow\", \"grant\" or \"deny\", \"digest\": \"...\"}`")?;
        let question = self.store.question(id).await.map_err(database_error_reply)?;
        let question =
            question.filter(|question| person.sees_tenant(&question.tenant)).ok_or_else(not_found_reply)?;
        if !person.decides_for(&question.tenant, self.people.owner(&question.client)) {
            let message = "the owner of a client cannot decide its questions: another person has to decide";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let (decision, answer) = match decision_request.decision {
            RequestedDecision::Allow => (PersonDecision::Allow, RecordedDecision::Allow),
            RequestedDecision::Grant => (PersonDecision::Grant, RecordedDecision::Grant),
            RequestedDecision::Deny => (PersonDecision::Deny, RecordedDecision::Deny),
        };
        if decision == PersonDecision::Grant && !may_grant(&question) {
            let message = "this question can be answered for one call only, since the policy does not say \
                `grant conversation` there, or the tool reads external state: send `allow` or `deny`";
            return Err(HttpReply::detail(StatusCode::CONFLICT, message));
        }
        if decision != PersonDecision::Deny && !self.readable_content(&question, person).1 {
            let message = "your clearance does not cover what this question shows: you may deny it; only a \
                person who may read all of it may allow it";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let mut is_recorded = false;
        let record = || {
            is_recorded = true;
            let event = AuditEvent::Decided {
                conversation: question.name.clone(),
                digest: question.digest.clone(),
                who: person.name.clone(),
                role: person.role.name().to_owned(),
                answer,
            };
            self.recorder.record(&[event.into()])
        };
        let decided = self.store.decide((id, &decision_request.digest), decision, &person.name, record).await;
        let decided = decided.map_err(|error| {
            if is_recorded {
                let what = format!("decision {}", question.digest);
                self.recorder.record_unconfirmed(what, &person.name, &error);
            }
            database_error_reply(error)
        })?;
        let refuse = |status, message: &str| Err(HttpReply::detail(status, message));
        match decided {
            Ok(question) => {
                self.notify_decision(&question);
                Ok(HttpReply::json(StatusCode::OK, &self.question_json(&question, person)))
            }
            Err(DecideError::Unknown) => Err(not_found_reply()),
            Err(DecideError::OtherDigest) => refuse(
                StatusCode::CONFLICT,
                "the `digest` does not match the question, which has changed: fetch the question again, and \
                send its digest",
            ),
            Err(DecideError::NotOpen(state)) => {
                let message = format!("the question is no longer open: its state is {}", state.name());
                refuse(StatusCode::CONFLICT, &message)
            }
        }
    }

    /// Streams the changes of questions as events, after the change that the client received last; from now on, if it
    /// names none.
    pub(crate) async fn events(self: &Arc<Self>, headers: &HeaderMap) -> Result<Response, HttpReply> {
        let person = self.person(headers, Role::Viewer)?.name.clone();
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<i64>().ok());
        let mut last = match last {
            Some(last) => last,
            None => self.store.last_change().await.map_err(database_error_reply)?,
        };
        let (parts, reader) = stream::reply_channel();
        let presence = ClientPresence::default();
        let disconnect_guard = presence.disconnect_on_drop();
        let approvals = Arc::clone(self);
        let mut bell = self.bell.subscribe();
        tokio::spawn(async move {
            let Some(person) = approvals.people.find_by_name(&person) else { return };
            let mut idle = 0;
            while !presence.is_disconnected() {
                // A failed read is retried with the next poll.
                let new = approvals.store.questions_after(last, BATCH).await.unwrap_or_default();
                let mut text = String::new();
                for question in &new {
                    last = question.change;
                    if person.sees_tenant(&question.tenant) {
                        let data = approvals.question_json(question, person).to_string();
                        text.push_str(&format!("id: {last}\n"));
                        text.push_str(&sse::SseEvent::new("question", data).encode());
                    }
                }
                idle = if new.is_empty() { idle + 1 } else { 0 };
                if is_due(idle) {
                    text.push_str(": still here\n\n");
                }
                if !text.is_empty() && parts.send(ReplyPart::Bytes(text.into_bytes())).await.is_err() {
                    return;
                }
                if new.is_empty() {
                    let _ = timeout(POLL_INTERVAL, bell.changed()).await;
                }
            }
        });
        Ok(stream::events(reader, disconnect_guard))
    }

    /// Lists the freezes that the person may see.
    pub(crate) async fn freezes(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let freezes = self.store.freezes().await.map_err(database_error_reply)?;
        let shown = freezes
            .iter()
            .filter(|freeze| self.people.sees_freeze(person, &freeze.kind, &freeze.what))
            .map(|freeze| json!({"kind": freeze.kind, "what": freeze.what, "who": freeze.who, "since": freeze.since}));
        Ok(HttpReply::json(StatusCode::OK, &json!({"frozen": shown.collect::<Vec<_>>()})))
    }

    /// Freezes or thaws.
    pub(crate) async fn switch(&self, headers: &HeaderMap, body: &[u8]) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Admin)?;
        if !person.tenants.is_empty() {
            let message = "your role is limited to some tenants, but a freeze applies to all of them: ask an \
                admin of all tenants";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let form = "`{\"kind\": \"client\", \"conversation\", \"tool\", \"server\", \"consent\" or \"grants\", \"what\": \"...\", \"frozen\": true or false}`, with `\"in_advance\": true` for what there is not yet";
        let switch: FreezeRequest = read(body, form)?;
        let (kind, what) = (switch.kind.name(), switch.what.as_str());
        let refuse = |why: &str| Err(HttpReply::detail(StatusCode::NOT_FOUND, why));
        let matched = match self
            .names
            .find(&self.store, switch.kind, what)
            .await
            .map_err(database_error_reply)?
        {
            FreezeTargetMatch::Known(matched) => matched,
            FreezeTargetMatch::Unseen(_) if switch.in_advance => json!({}),
            // What was frozen may not exist any more.
            _ if !switch.frozen => json!({}),
            FreezeTargetMatch::Unseen(why) => {
                return refuse(&format!(
                    "{why}; correct `what`, or send `\"in_advance\": true` to freeze a name before it occurs"
                ));
            }
            FreezeTargetMatch::Impossible(why) => return refuse(&why),
        };
        let event = AuditEvent::KillSwitch {
            what: format!("{kind} {what}"),
            who: person.name.clone(),
            state: if switch.frozen { FreezeSwitch::Set } else { FreezeSwitch::Unset },
        };
        self.recorder.record(&[event.into()]).map_err(database_error_reply)?;
        let changed = async {
            self.store.persist_log_head().await?;
            if switch.frozen {
                return self.store.freeze(kind, what, &person.name).await.map(|()| true);
            }
            self.store.thaw(kind, what).await
        };
        let changed = changed.await.map_err(|error| {
            let order = if switch.frozen { "freeze" } else { "thaw" };
            self.recorder.record_unconfirmed(format!("{order} {kind} {what}"), &person.name, &error);
            database_error_reply(error)
        });
        if !changed? {
            return Err(HttpReply::detail(StatusCode::NOT_FOUND, "nothing of this kind and name is frozen"));
        }
        let done = json!({"kind": kind, "what": what, "frozen": switch.frozen, "matched": matched});
        Ok(HttpReply::json(StatusCode::OK, &done))
    }

    /// Deletes the content beside the audit log of a tenant, a client or a conversation.
    pub(crate) async fn forget(&self, headers: &HeaderMap, body: &[u8]) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Admin)?;
        let form = "`{\"tenant\": \"...\", \"client\": \"...\", \"conversation\": \"...\"}`, with one of them or more";
        let ForgetRequest { tenant, client, conversation } = read(body, form)?;
        let whose = ContentSelector { tenant, client, conversation, ..ContentSelector::default() };
        if whose == ContentSelector::default() {
            return Err(HttpReply::detail(
                StatusCode::BAD_REQUEST,
                &format!("the body of the request does not have the form {form}"),
            ));
        }
        if !whose.tenant.as_deref().map_or(person.tenants.is_empty(), |tenant| person.sees_tenant(tenant)) {
            let message = "your role is limited to some tenants: set `tenant` to one of them";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let (recorder, who) = (self.recorder.clone(), person.name.clone());
        if recorder.recording().is_none() {
            let message = "this gateway keeps no audit log: its configuration has no [audit]";
            return Err(HttpReply::detail(StatusCode::NOT_FOUND, message));
        }
        // The file is rewritten, which may take a while.
        let forgotten = tokio::task::spawn_blocking(move || recorder.forget(&whose, &who)).await;
        let forgotten = forgotten.map_err(|_| {
            database_error_reply(DatabaseError::Audit(
                "the deletion failed because of a bug in the gateway, but part of it may have taken effect: \
                check the audit log"
                    .to_owned(),
            ))
        })?;
        Ok(HttpReply::json(StatusCode::OK, &json!({"forgotten": forgotten.map_err(database_error_reply)?})))
    }

    /// Returns what a person may read of a question, and whether that is all of it.
    fn readable_content(&self, question: &StoredQuestion, person: &Person) -> (Value, bool) {
        let stored: Value = serde_json::from_str(&question.content).unwrap_or_default();
        person.may_read.show(self.people.policy(&question.client), &stored)
    }

    /// Returns a question as a person sees it.
    fn question_json(&self, question: &StoredQuestion, person: &Person) -> Value {
        let (content, is_all) = self.readable_content(question, person);
        let may_decide = question.state == QuestionState::Open
            && person.decides_for(&question.tenant, self.people.owner(&question.client));
        json!({
            "id": question.id,
            "state": question.state.name(),
            "client": question.client,
            "conversation": question.name,
            "turn": (question.turn >= 0).then_some(question.turn),
            "tenant": question.tenant,
            "digest": question.digest,
            "asked": question.asked,
            "expires": question.expires,
            "decided_by": (!question.decided_by.is_empty()).then_some(&question.decided_by),
            "decided": (question.decided != 0).then_some(question.decided),
            "you_may_decide": may_decide,
            "you_may_allow": may_decide && is_all,
            "you_may_grant": may_decide && is_all && may_grant(question),
            "grant_leaves_open": changeable_arguments(question),
            "granted": question.is_granted,
            "call": content,
        })
    }
}

/// Returns the arguments whose values may change under a grant.
fn changeable_arguments(question: &StoredQuestion) -> Value {
    let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
    let own = content.get(HIDDEN_MEMBER).filter(|_| may_grant(question));
    own.and_then(|own| own.get("changeable")).cloned().unwrap_or_else(|| json!([]))
}

/// Whether the question can be answered for the rest of its conversation.
fn may_grant(question: &StoredQuestion) -> bool {
    let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
    content.get(HIDDEN_MEMBER).and_then(|own| own.get("may_grant")) == Some(&Value::Bool(true))
}

/// Returns whether a stream that was idle for so many polls sends a keep-alive now.
fn is_due(idle: u32) -> bool {
    idle % KEEP_ALIVE_TICKS == 1
}

fn read<T: for<'de> Deserialize<'de>>(body: &[u8], form: &str) -> Result<T, HttpReply> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body of the request does not have the form {form}: {error}");
        HttpReply::detail(StatusCode::BAD_REQUEST, &message)
    })
}

fn not_found_reply() -> HttpReply {
    HttpReply::detail(
        StatusCode::NOT_FOUND,
        "there is no question of this id, or it is of a tenant for which you may not decide",
    )
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn database_error_reply(error: DatabaseError) -> HttpReply {
    HttpReply::of_database_error(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle stream sends a keep-alive at once, which shows the listener that the stream is open, and then
    /// periodically.
    #[test]
    fn an_idle_stream_is_kept_alive() {
        let due: Vec<u32> = (0..=KEEP_ALIVE_TICKS * 2 + 1).filter(|idle| is_due(*idle)).collect();
        assert_eq!(due, [1, KEEP_ALIVE_TICKS + 1, KEEP_ALIVE_TICKS * 2 + 1]);
    }
}
