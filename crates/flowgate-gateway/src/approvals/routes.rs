//! Serves the HTTP routes by which people list questions, listen to their changes, order freezes, and delete content of
//! the audit log. `http::service` calls it; [`super::decisions`] serves decisions, and [`super::lasting_grants`] serves
//! grants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use flowgate_lm::sse;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ApprovalService;
use super::freeze_targets::FreezeTargetMatch;
use super::lasting_grants::GrantOffer;
use crate::chat::stream::{self, ReplyPart};
use crate::config::{Person, Role};
use crate::database::{DatabaseError, FreezeKind, HIDDEN_MEMBER, QuestionState, StoredQuestion};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use flowgate_audit::{AuditEvent, ContentSelector, FreezeSwitch};

/// The most questions in one answer, for each tenant of the person.
const MAX_LISTED: i64 = 200;
/// The most changed questions that an event stream reads from the database at once.
const BATCH: usize = 200;
/// The interval at which the database is polled for changes made at other gateways.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The number of polls without a change between two keep-alives of an event stream.
const KEEP_ALIVE_TICKS: u32 = 30;

/// A request to freeze or thaw a target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FreezeRequest {
    kind: FreezeKind,
    /// The client, the conversation as `CLIENT/NAME`, the tool, the server, or the consent as `CLIENT:LINE-DIGEST`.
    what: String,
    frozen: bool,
    /// Whether to freeze a name that does not exist yet.
    #[serde(default)]
    in_advance: bool,
}

/// A request to delete content from the file next to the audit log. Content is deleted if it matches all given fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForgetRequest {
    tenant: Option<String>,
    client: Option<String>,
    conversation: Option<String>,
}

impl ApprovalService {
    /// Authenticates the person who sends a request, by a key or by a session of the page, and requires at least the
    /// role `least`. The error is the reply to send.
    pub(crate) fn person(&self, headers: &HeaderMap, least: Role) -> Result<Arc<Person>, HttpReply> {
        let (person, _) = self.authenticate(headers).ok_or_else(|| {
            let message = "the request has no valid key of a person: send `Authorization: Bearer KEY`";
            HttpReply::detail(StatusCode::UNAUTHORIZED, message).header(header::WWW_AUTHENTICATE, "Bearer")
        })?;
        if person.role < least {
            let message = format!(
                "this request needs the role {least}, but this person has the role {}: ask a person with the role {least}",
                person.role.name(),
                least = least.name()
            );
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, &message));
        }
        Ok(person)
    }

    /// Checks that a request has the valid key or session of a person, of any role. The error is the reply to send if
    /// not.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), HttpReply> {
        self.person(headers, Role::Viewer).map(drop)
    }

    /// Lists the questions of all tenants that the person may see. `query` is the query of the address: `state=NAME`
    /// selects the questions in a state; without a query, the open ones are listed. The reply also has the number of
    /// questions left out because of [`MAX_LISTED`]. The error is the reply to send if the person is not authenticated,
    /// the query is invalid, or the database fails.
    pub(crate) async fn list(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        // `None` if the query names no known state.
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
            // The person may see the questions of all tenants.
            [] => vec![None],
            tenants => tenants.iter().map(|tenant| Some(tenant.as_str())).collect(),
        };
        let (mut list, mut left_out) = (Vec::<Value>::new(), 0_i64);
        for tenant in tenants {
            let (questions, rest) =
                self.store.questions(state, tenant, MAX_LISTED).await.map_err(database_error_reply)?;
            left_out = left_out.saturating_add(rest);
            list.extend(questions.iter().map(|question| self.question_json(question, &person)));
        }
        Ok(HttpReply::json(StatusCode::OK, &json!({"questions": list, "left_out": left_out})))
    }

    /// Serves the question with this id, if it belongs to a tenant that the person may see; otherwise returns the
    /// error to send.
    pub(crate) async fn get(&self, headers: &HeaderMap, id: &str) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let question = self.store.question(id).await.map_err(database_error_reply)?;
        let question =
            question.filter(|question| person.sees_tenant(&question.tenant)).ok_or_else(not_found_reply)?;
        Ok(HttpReply::json(StatusCode::OK, &self.question_json(&question, &person)))
    }

    /// Streams the changes of questions as server-sent events. Changes have increasing numbers: the header
    /// `last-event-id` names the last change that the reader has received; without this header, the stream has the
    /// changes from now on.
    ///
    /// A task reads the changes from the database: at once when a question changes at this gateway
    /// (`question_changes`), otherwise at each [`POLL_INTERVAL`], since another gateway may have changed one. The task
    /// ends when the reader disconnects, the session of the page that opened the stream ends, or the configuration is
    /// reloaded. The error is the reply to send.
    pub(crate) async fn events(self: &Arc<Self>, headers: &HeaderMap) -> Result<Response, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let session = self.authenticate(headers).and_then(|(_, session)| session);
        let requested = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<i64>().ok());
        let mut last_change = match requested {
            Some(change) => change,
            None => self.store.last_change().await.map_err(database_error_reply)?,
        };
        let (parts, reader) = stream::reply_channel();
        let presence = ClientPresence::default();
        let disconnect_guard = presence.disconnect_on_drop();
        let approvals = Arc::clone(self);
        let mut question_changes = self.question_changes.subscribe();
        tokio::spawn(async move {
            let mut idle_polls = 0;
            // A person who has sent a key has no session, and stays authenticated.
            let is_authenticated =
                || session.is_none_or(|session| approvals.sessions.is_open(&session, Instant::now()));
            while !presence.is_disconnected() && is_authenticated() && !approvals.is_replaced() {
                // A failed read is retried with the next poll.
                let changed_questions =
                    approvals.store.questions_after(last_change, BATCH).await.unwrap_or_default();
                let mut text = approvals.change_events(&changed_questions, &person);
                if let Some(last) = changed_questions.last() {
                    last_change = last.change;
                }
                idle_polls = if changed_questions.is_empty() { idle_polls + 1 } else { 0 };
                // A comment keeps an idle connection open, and its failure shows that the reader has disconnected.
                if is_keep_alive_due(idle_polls) {
                    text.push_str(": still here\n\n");
                }
                if !text.is_empty() && parts.send(ReplyPart::Bytes(text.into_bytes())).await.is_err() {
                    return;
                }
                if changed_questions.is_empty() {
                    // Waits for a change or the end of the interval; the next read follows in both cases.
                    let _ = timeout(POLL_INTERVAL, question_changes.changed()).await;
                }
            }
        });
        Ok(stream::events(reader, disconnect_guard))
    }

    /// Encodes the changed questions that the person may see as server-sent events, each with the number of its change.
    fn change_events(&self, questions: &[StoredQuestion], person: &Person) -> String {
        let mut text = String::new();
        for question in questions {
            if person.sees_tenant(&question.tenant) {
                let data = self.question_json(question, person).to_string();
                text.push_str(&format!("id: {}\n", question.change));
                text.push_str(&sse::SseEvent::new("question", data).encode());
            }
        }
        text
    }

    /// Lists the freezes that the person may see. The error is the reply to send if the person is not authenticated or
    /// the database fails.
    pub(crate) async fn freezes(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let freezes = self.store.freezes().await.map_err(database_error_reply)?;
        let shown = freezes
            .iter()
            .filter(|freeze| self.people.sees_freeze(&person, freeze.kind, &freeze.what))
            .map(|freeze| json!({"kind": freeze.kind.name(), "what": freeze.what, "who": freeze.who, "since": freeze.since}));
        Ok(HttpReply::json(StatusCode::OK, &json!({"frozen": shown.collect::<Vec<_>>()})))
    }

    /// Freezes or thaws a target, as the body of the request says. The order is recorded in the audit log first, so
    /// that no freeze is without a record.
    ///
    /// # Errors
    /// The reply to send if the person is not an admin of all tenants, the body is malformed, the name to freeze is
    /// unknown, there is nothing to thaw, or the order cannot be recorded or stored.
    pub(crate) async fn switch(&self, headers: &HeaderMap, body: &[u8]) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Admin)?;
        if !person.tenants.is_empty() {
            let message = "your role is limited to some tenants, but a freeze applies to all of them: ask an \
                admin of all tenants";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let form = "`{\"kind\": KIND, \"what\": NAME, \"frozen\": true or false}`, where KIND is one of \"client\", \"conversation\", \"tool\", \"server\", \"consent\" and \"grants\"; with `\"in_advance\": true` for a name that has not occurred yet";
        let switch: FreezeRequest = read(body, form)?;
        let (kind, what) = (switch.kind.name(), switch.what.as_str());
        let refuse = |why: &str| Err(HttpReply::detail(StatusCode::NOT_FOUND, why));
        // What the order affects, for the reply; an empty object if the target does not exist.
        let matched = match self
            .freeze_targets
            .find(&self.store, switch.kind, what)
            .await
            .map_err(database_error_reply)?
        {
            FreezeTargetMatch::Known(matched) => matched,
            FreezeTargetMatch::Unseen(_) if switch.in_advance => json!({}),
            // A frozen target may not exist any more, and can still be thawed.
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
        // Carries out the order. The result is false if there was nothing to thaw.
        let order = async {
            // The database learns of the record before the order takes effect, so that truncating the log would be
            // noticed.
            self.store.persist_log_head().await?;
            if switch.frozen {
                return self.store.freeze(switch.kind, what, &person.name).await.map(|()| true);
            }
            self.store.thaw(switch.kind, what).await
        };
        let had_effect = order.await.map_err(|error| {
            let verb = if switch.frozen { "freeze" } else { "thaw" };
            self.recorder.record_unconfirmed(format!("{verb} {kind} {what}"), &person.name, &error);
            database_error_reply(error)
        })?;
        if !had_effect {
            return Err(HttpReply::detail(
                StatusCode::NOT_FOUND,
                "no freeze has this `kind` and `what`, so there is nothing to thaw: take both from the list of freezes",
            ));
        }
        let done = json!({"kind": kind, "what": what, "frozen": switch.frozen, "matched": matched});
        Ok(HttpReply::json(StatusCode::OK, &done))
    }

    /// Serves the route that deletes the content of audit records: that of a tenant, a client or a conversation. The
    /// content is in a file next to the audit log; the records themselves remain. An admin of only some tenants has to
    /// name one of these tenants. The error is the reply to send if the body is malformed, the person may not delete
    /// the content, there is no audit log, or the deletion fails.
    pub(crate) async fn forget(&self, headers: &HeaderMap, body: &[u8]) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Admin)?;
        let form = "`{\"tenant\": \"...\", \"client\": \"...\", \"conversation\": \"...\"}`, with one of them or more";
        let ForgetRequest { tenant, client, conversation } = read(body, form)?;
        let selector = ContentSelector { tenant, client, conversation, ..ContentSelector::default() };
        if selector == ContentSelector::default() {
            return Err(HttpReply::detail(
                StatusCode::BAD_REQUEST,
                &format!("the body of the request does not say whose content to delete: send {form}"),
            ));
        }
        let may_forget = match selector.tenant.as_deref() {
            Some(tenant) => person.sees_tenant(tenant),
            // The selector may match content of every tenant.
            None => person.tenants.is_empty(),
        };
        if !may_forget {
            let message = "your role is limited to some tenants: set `tenant` to one of them";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let (recorder, who) = (self.recorder.clone(), person.name.clone());
        if recorder.recording().is_none() {
            let message = "this gateway keeps no audit log, so there is no content to delete: its configuration has no \
                [audit]";
            return Err(HttpReply::detail(StatusCode::NOT_FOUND, message));
        }
        // The file is rewritten, which may take a while.
        let forgotten = tokio::task::spawn_blocking(move || recorder.forget(&selector, &who)).await;
        let forgotten = forgotten.map_err(|_| {
            let message = "the deletion of content was interrupted and may be incomplete: `flowgate audit show --content` \
                shows what is left; send the request again";
            HttpReply::detail(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?;
        Ok(HttpReply::json(StatusCode::OK, &json!({"forgotten": forgotten.map_err(database_error_reply)?})))
    }

    /// Returns the content of a question as a person may read it, and whether this is the whole content.
    pub(super) fn readable_content(&self, question: &StoredQuestion, person: &Person) -> (Value, bool) {
        let stored: Value = serde_json::from_str(&question.content).unwrap_or_default();
        person.may_read.show(self.people.policy(&question.client), &stored)
    }

    /// Returns a question as JSON for a person: its readable content, and the decisions that the person may make
    /// (`you_may_...`), by which the page shows its buttons.
    pub(super) fn question_json(&self, question: &StoredQuestion, person: &Person) -> Value {
        let (content, is_fully_readable) = self.readable_content(question, person);
        let may_decide = question.state == QuestionState::Open
            && person.decides_for(&question.tenant, self.people.owner(&question.client));
        // Who must approve follows from the label, so only a reader of the whole question learns it.
        let approvers = if is_fully_readable { question.approvers() } else { Vec::new() };
        let approved_by: &[String] = if is_fully_readable { &question.approved_by } else { &[] };
        let has_approved = approved_by.contains(&person.name);
        let may_allow = may_decide
            && is_fully_readable
            && (approvers.is_empty() || question.missing_approvers().contains(&person.name));
        // The lasting grants that the person may give.
        let offer = GrantOffer::of_question(question).filter(|_| may_decide && is_fully_readable);
        json!({
            "id": question.id,
            "state": question.state.name(),
            "client": question.client,
            "conversation": question.name,
            "turn": question.turn,
            "tenant": question.tenant,
            "digest": question.digest,
            "asked": question.asked,
            "expires": question.expires,
            "decided_by": (!question.decided_by.is_empty()).then_some(&question.decided_by),
            // 0 and empty texts are stored for what has not happened.
            "decided": (question.decided != 0).then_some(question.decided),
            "you_may_decide": may_decide,
            "approvers": approvers,
            "approved_by": approved_by,
            "you_have_approved": has_approved,
            "you_may_allow": may_allow,
            "you_may_grant": may_decide && is_fully_readable && may_grant(question),
            // The names of the arguments whose values may differ under a grant.
            "grant_leaves_open": changeable_arguments(question),
            "granted": question.is_granted,
            "you_may_grant_for": offer.as_ref().map(GrantOffer::longest),
            // The names of the arguments whose sum in a day such a grant may limit.
            "grant_amounts": offer.as_ref().map(GrantOffer::amount_arguments).unwrap_or_default(),
            "lasting_grant": (!question.lasting_grant.is_empty()).then_some(&question.lasting_grant),
            "call": content,
        })
    }
}

/// Returns, as a JSON list, the names of the arguments whose values may differ under a grant for the rest of the
/// conversation; an empty list if the question cannot be answered by such a grant.
pub(super) fn changeable_arguments(question: &StoredQuestion) -> Value {
    let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
    let hidden = content.get(HIDDEN_MEMBER).filter(|_| may_grant(question));
    hidden.and_then(|hidden| hidden.get("changeable")).cloned().unwrap_or_else(|| json!([]))
}

/// Returns whether the question can be answered for the rest of its conversation.
pub(super) fn may_grant(question: &StoredQuestion) -> bool {
    let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
    content.get(HIDDEN_MEMBER).and_then(|hidden| hidden.get("may_grant")) == Some(&Value::Bool(true))
}

/// Returns whether an event stream sends a keep-alive now. `idle_polls` is the number of polls in a row without a
/// change: a keep-alive follows the first of them, and then every [`KEEP_ALIVE_TICKS`]th.
fn is_keep_alive_due(idle_polls: u32) -> bool {
    idle_polls % KEEP_ALIVE_TICKS == 1
}

/// Parses the JSON body of a request. The error is the reply to send; its message contains `form`, a description of the
/// expected body.
pub(super) fn read<T: for<'de> Deserialize<'de>>(body: &[u8], form: &str) -> Result<T, HttpReply> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body of the request does not have the form {form}: {error}");
        HttpReply::detail(StatusCode::BAD_REQUEST, &message)
    })
}

/// Returns the reply to a request for a question that does not exist, or that the person may not see.
pub(super) fn not_found_reply() -> HttpReply {
    HttpReply::detail(
        StatusCode::NOT_FOUND,
        "there is no question of this id, or it is of a tenant that you may not see: take the id from the \
        list of questions",
    )
}

/// Returns the reply to a request for which the database or the audit log failed.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
pub(super) fn database_error_reply(error: DatabaseError) -> HttpReply {
    HttpReply::of_database_error(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle stream sends a keep-alive at once, which shows the listener that the stream is open, and then
    /// periodically.
    #[test]
    fn an_idle_stream_is_kept_alive() {
        let due: Vec<u32> = (0..=KEEP_ALIVE_TICKS * 2 + 1).filter(|idle| is_keep_alive_due(*idle)).collect();
        assert_eq!(due, [1, KEEP_ALIVE_TICKS + 1, KEEP_ALIVE_TICKS * 2 + 1]);
    }
}
