//! Asks people about calls that the policy neither permits nor denies, waits for their decisions, and enforces freezes:
//! orders of an admin that stop a tool, a client or a server. The model and MCP routes call `ApprovalService`, which
//! this module defines.
//!
//! A question is a row of the [database](crate::database), so it outlives the gateway and the request that asked it. It
//! is about one call with its exact arguments (or about several equal calls of one message), and is decided once.
//! Without a decision, the call does not run. The request waits for the decision for a limited time. Then its turn
//! ends, and continues when the agent sends the request again.
//!
//! * `people`: finds the person whose key a request carries.
//! * `clearance`: decides which parts of a question a person may read.
//! * `routes`: serves the HTTP routes by which people list questions and order freezes; `decisions`: serves those by
//!   which they decide questions.
//! * `freezes`: checks whether something is frozen; `freeze_targets`: looks up the names that can be frozen.
//! * `conversation_grants`: lists and withdraws approvals for the rest of a conversation (grants).
//! * `lasting_grants`: answers questions by approvals for all conversations of a client (lasting grants).
//! * `question_content`: writes what the database stores of a question, and what a person sees.
//! * `question_limits`: applies the limits on questions, and reports when one is reached.
//! * `tool_offers`: asks people about new and changed tools of MCP servers.
//! * `reload`: replaces the service when the configuration is reloaded.
//! * `webhook`: notifies another program of questions and decisions; `webhook_format`: writes the notifications.

pub(crate) mod clearance;
mod conversation_grants;
pub(crate) mod decisions;
pub(crate) mod freeze_targets;
pub(crate) mod freezes;
pub(crate) mod lasting_grants;
pub(crate) mod people;
pub(crate) mod question_content;
mod question_limits;
mod reload;
pub(crate) mod routes;
mod tool_offers;
pub(crate) mod webhook;
mod webhook_format;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use flowgate_guard::approve::{ApprovalRequest, Decision};
use flowgate_guard::conversation::VoidedCall;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::config::{ApprovalSettings, ClientSettings};
use crate::database::{
    APPROVERS, AskOutcome, Database, DatabaseError, HIDDEN_MEMBER, NewQuestion, QuestionLimit,
    QuestionOrigin, QuestionState, StoredQuestion,
};
use crate::http::client_presence::ClientPresence;
use crate::identity::pending_logins::PendingLogins;
use crate::log::{self, OperatorLog};
use crate::metrics::agents::AgentMetrics;
use crate::page::login_failures::LoginFailures;
use crate::page::login_links::LoginLinks;
use crate::page::sessions::PageSessions;
use crate::random;
use crate::recorder::{self, AuditEntry, Recorder};
use flowgate_audit::AuditEvent;
use freeze_targets::FreezeTargets;
use lasting_grants::{GrantOffer, OFFER};
use people::People;
use question_content::{TIMES, remove_variable_members, shown_content, stored_content};
use webhook::Webhook;
pub use webhook_format::WebhookFormat;

/// The interval at which the database is polled for decisions made at other gateways.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The upper bound in milliseconds for a time span in a statement: the database adds it to a date, which must not
/// overflow.
const MAX_MILLIS: i64 = i64::MAX / 4;

/// The service that asks people and enforces their decisions.
#[derive(Debug)]
pub(crate) struct ApprovalService {
    pub(crate) store: Arc<Database>,
    pub(crate) people: People,
    recorder: Recorder,
    /// The limits on questions, and how long requests and questions wait.
    settings: ApprovalSettings,
    webhook: Option<Arc<Webhook>>,
    /// The clients, servers, tools and standing consents that an admin can freeze.
    pub(crate) freeze_targets: FreezeTargets,
    pub(crate) log: OperatorLog,
    metrics: Arc<AgentMetrics>,
    /// Wakes the requests and event streams that wait for a change of a question, when a question changes at this
    /// gateway.
    question_changes: Arc<watch::Sender<()>>,
    /// The sessions of people who use the page, and the failed logins.
    pub(crate) sessions: Arc<PageSessions>,
    pub(crate) login_failures: Arc<LoginFailures>,
    /// The codes of logins that the issuer has refused, by the address from which they came.
    pub(crate) refused_codes: Arc<LoginFailures>,
    /// The links by which people log in once.
    pub(crate) login_links: Arc<LoginLinks>,
    /// The logins that have begun at an issuer and are not completed.
    pub(crate) logins: Arc<PendingLogins>,
    /// Whether a reloaded configuration has replaced this service: its event streams end, and their readers reconnect.
    is_replaced: AtomicBool,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalOutcome {
    pub(crate) decision: Decision,
    /// The question; none if no person was asked.
    pub(crate) asked: Option<ApprovalReference>,
}

/// A question that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalReference {
    pub(crate) id: String,
    /// The digest of the call.
    pub(crate) digest: String,
    pub(crate) tool: String,
    /// The stored content of the question, without the members in which questions about equal calls may differ
    /// ([`remove_variable_members`]).
    content: Value,
    /// Whether the answer covers several calls, each exactly like the others.
    pub(crate) is_for_several: bool,
    /// The number of persisted turns of the conversation when an earlier request of the chat asked the question;
    /// `None` for a question of the present request, and for a question outside the chat.
    pub(crate) turn: Option<i64>,
    /// The number of further equal calls that the answer covers and that have not been judged yet; 0 if it covers one
    /// call only.
    remaining_calls: u64,
}

impl ApprovalReference {
    /// Creates the reference to the question with this id, digest and stored content (JSON). It has no `turn`;
    /// the caller sets it for a question of an earlier request.
    pub(crate) fn new(id: String, digest: String, content: &str) -> Self {
        let mut content: Value = serde_json::from_str(content).unwrap_or_default();
        let tool = content.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned();
        // The number of equal calls. One of them is the call that the question was asked for; the others remain.
        let times = content.get(TIMES).and_then(Value::as_u64).unwrap_or(1);
        // What remains of the content is compared with other calls; the removed members can differ between equal calls.
        remove_variable_members(&mut content);
        Self {
            id,
            digest,
            tool,
            content,
            is_for_several: times > 1,
            turn: None,
            remaining_calls: times.saturating_sub(1),
        }
    }

    /// Returns the decision that one call of this question receives if the question is allowed:
    /// [`Decision::AllowByAll`] if the content of the question names people who must all approve, and otherwise
    /// [`Decision::AllowOnce`]. The caller checks that the question is allowed.
    pub(crate) fn allowing_decision(&self) -> Decision {
        match self.content.get(APPROVERS) {
            Some(_) => Decision::AllowByAll,
            None => Decision::AllowOnce,
        }
    }

    /// Returns whether the answer covers a further call, which has not been judged yet: one question can be about
    /// several equal calls.
    pub(crate) fn covers_further_calls(&self) -> bool {
        self.remaining_calls > 0
    }

    /// Uses the answer of this question for the further call that `ask` asks about, if the two calls are equal and the
    /// answer covers a further one. Returns whether the answer was used; if not, `ask` needs a question of its own.
    pub(crate) fn take_equal_call(&mut self, ask: &ApprovalRequest) -> bool {
        // Both contents are compared without the members in which questions about equal calls may differ; `new` has
        // removed these members from `self.content`.
        let mut content = stored_content(ask, ask.is_grantable());
        remove_variable_members(&mut content);
        let is_covered = self.remaining_calls > 0 && self.digest == ask.digest && self.content == content;
        self.remaining_calls -= u64::from(is_covered);
        is_covered
    }
}

/// The circumstances of a question, which every method that asks needs: for which client and in which conversation it
/// is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApprovalContext<'t> {
    pub(crate) client: &'t ClientSettings,
    pub(crate) conversation: &'t str,
    /// Whether the chat, an MCP client or the offer of a tool raises the question.
    pub(crate) origin: QuestionOrigin,
    /// Reports whether the client still waits.
    pub(crate) presence: &'t ClientPresence,
    /// The client's key for the upstream, if it sends one; it is removed from every record.
    pub(crate) key: Option<&'t str>,
}

impl ApprovalOutcome {
    /// No person was asked, since no person may decide, or since there is no question to wait for.
    const NOBODY: Self = Self { decision: Decision::Unanswered, asked: None };
    /// No person was asked, since a limit on questions is reached.
    const UNASKED: Self = Self { decision: Decision::Unasked, asked: None };
}

impl ApprovalService {
    /// Creates the service. `settings` contains the limits on questions, and how long requests and questions wait;
    /// `freeze_targets` are the targets that an admin can freeze; `log` is the operator's log, and `metrics` counts the
    /// questions.
    pub(crate) fn new(
        store: Arc<Database>,
        people: People,
        recorder: Recorder,
        settings: ApprovalSettings,
        webhook: Option<Webhook>,
        freeze_targets: FreezeTargets,
        (log, metrics): (OperatorLog, Arc<AgentMetrics>),
    ) -> Self {
        // The state that the service itself owns is empty at first.
        let (question_changes, sessions, login_links, logins, is_replaced) = Default::default();
        let (login_failures, refused_codes) = Default::default();
        let webhook = webhook.map(Arc::new);
        Self {
            store,
            people,
            recorder,
            settings,
            webhook,
            freeze_targets,
            log,
            metrics,
            question_changes,
            sessions,
            login_failures,
            refused_codes,
            login_links,
            logins,
            is_replaced,
        }
    }

    /// Asks people whether the call of `ask` may run: stores the question, and waits up to the configured time for the
    /// answer. If no decision arrives in time, the outcome is `Decision::Undecided` and the question stays open. If no
    /// person may decide, or a limit on questions is reached, no question is stored, the reason is logged, and the
    /// outcome allows nothing.
    ///
    /// Also stores the questions that later calls of the same message will probably need (`ask.upcoming`), so that a
    /// person can decide all of them at once. `used` are the questions whose answers this turn has used already; they
    /// answer no further call. `context` is the client, the conversation and the request for which people are asked.
    ///
    /// # Errors
    /// If the question cannot be stored or recorded: no person can see it then, and the turn has to fail.
    pub(crate) async fn ask(
        &self,
        context: ApprovalContext<'_>,
        ask: &ApprovalRequest,
        used: &[ApprovalReference],
    ) -> Result<ApprovalOutcome, DatabaseError> {
        let ApprovalContext { client, conversation, .. } = context;
        if !self.people.can_decide_for(client) {
            let sentence = "a call that a person has to allow did not run, since no person is configured who \
                may decide for this client: write [people.NAME] with role = \"approver\"";
            let fields = vec![("conversation", conversation.into()), ("tool", ask.tool.to_string().into())];
            self.log.write(log::LogEvent::Remark, &client.name, fields, sentence);
            return Ok(ApprovalOutcome::NOBODY);
        }
        let asked = match self.store_question(context, ask, used).await? {
            Ok(asked) => asked,
            Err(limit) => {
                self.report_full(client, conversation, ask, limit)?;
                return Ok(ApprovalOutcome::UNASKED);
            }
        };
        for next in &ask.upcoming {
            // A reached limit is ignored here: when the call is judged, its question is stored again, and the limit
            // is then reported.
            if self.store_question(context, next, used).await?.is_err() {
                break;
            }
        }
        Ok(self.await_answer(context, asked).await)
    }

    /// Stores the question `ask`, unless an equal question is stored already. Answers it by a lasting grant if one
    /// covers it; otherwise notifies people of a new question. Returns a reference to the stored question. The inner
    /// error is the limit on questions that is reached; the question is then not stored. `used` are the questions whose
    /// answers this turn has used already: an answer is used once, so another equal call needs a new question.
    /// `context` is the client, the conversation and the request for which the question is asked.
    ///
    /// # Errors
    /// If the database or the audit log fails, or the system has no random bytes for the id.
    async fn store_question(
        &self,
        context: ApprovalContext<'_>,
        ask: &ApprovalRequest,
        used: &[ApprovalReference],
    ) -> Result<Result<ApprovalReference, QuestionLimit>, DatabaseError> {
        let ApprovalContext { client, conversation, origin, key, .. } = context;
        let id = random::unguessable_name().map_err(|_| DatabaseError::NoRandomBytes)?;
        // Questions outside the chat cannot be granted, since only calls of the chat are compared with grants.
        let may_grant = ask.is_grantable() && origin.turns().is_some();
        // `shown` is for the audit log. `content` is for the database, which also needs what people are not shown.
        let (shown, mut content) = (shown_content(ask), stored_content(ask, may_grant));
        // The offer has the lasting grants that a person may give with the answer. It is stored with the question,
        // among the content that people are not shown.
        let offer = GrantOffer::new(client, ask);
        if let (Some(offer), Some(Value::Object(hidden))) = (&offer, content.get_mut(HIDDEN_MEMBER)) {
            hidden.insert(OFFER.to_owned(), json!(offer));
        }
        let mut limits = self.question_limits();
        // For each way to grant the question, the offer has the digest by which such a grant is found.
        if let Some(offer) = &offer
            && self.store.has_lasting_grant(&client.name, &offer.candidates()).await?
        {
            // A grant answers, so the question does not count against the limits on what people are asked.
            limits.asked = None;
        }
        let used: Vec<String> = used.iter().map(|asked| asked.id.clone()).collect();
        let content = content.to_string();
        let new = NewQuestion {
            id: &id,
            client: &client.name,
            name: conversation,
            tenant: &client.tenant,
            config_fingerprint: &client.config_fingerprint,
            digest: &ask.digest,
            content: &content,
            expires_after: millis(self.settings.expires_after),
            origin,
            used: &used,
            limits,
        };
        // `void` are earlier approvals of the same call: the external state has changed since, so the new question
        // makes them void.
        let record = |void: &[String]| {
            let entries = question_entries(client, conversation, ask, void.len(), shown);
            self.recorder.record_redacting(&entries, key)
        };
        let (id, is_new) = match self.store.ask(&new, record).await? {
            AskOutcome::Known(id) => (id, false),
            AskOutcome::New(id) => (id, true),
            AskOutcome::Full(limit) => return Ok(Err(limit)),
        };
        // Also for a known question: a grant that covers it may have been given since it was asked.
        let is_answered = match &offer {
            Some(offer) => self.answer_by_grant(client, (&id, conversation), ask, offer).await?,
            None => false,
        };
        if is_new && !is_answered {
            self.metrics.count_question(&client.name, &ask.tool.to_string());
            self.notify_question(&id).await;
        }
        Ok(Ok(ApprovalReference::new(id, ask.digest.clone(), &content)))
    }

    /// Notifies the event streams of people and the webhook of a new question. If the question cannot be read, the
    /// webhook is not notified; people can still list the question.
    async fn notify_question(&self, id: &str) {
        // Wakes the event streams.
        self.wake_waiters();
        let Some(webhook) = &self.webhook else { return };
        if let Ok(Some(question)) = self.store.question(id).await {
            webhook.tell("question.asked", &question);
        }
    }

    /// Waits, up to the configured time, for the answer to the question that an earlier request of this chat asked
    /// about the call with this digest. Called at the start of a turn whose conversation still waits for a decision
    /// about that call. If there is no such question, the decision is `Unanswered`, which allows nothing. `context` is
    /// the client, the conversation and the present request.
    ///
    /// # Errors
    /// If the database cannot search for the question.
    pub(crate) async fn await_earlier_answer(
        &self,
        context: ApprovalContext<'_>,
        digest: &str,
    ) -> Result<ApprovalOutcome, DatabaseError> {
        let ApprovalContext { client, conversation, origin, .. } = context;
        // Only the chat resumes its questions in a later request; other origins have no number of turns.
        let Some(turns) = origin.turns() else { return Ok(ApprovalOutcome::NOBODY) };
        let question = self.store.find_question((&client.name, conversation), digest, turns).await?;
        let Some(question) = question else { return Ok(ApprovalOutcome::NOBODY) };
        // `find_question` searches only turns before this one. The question belongs to the turn of the request that
        // asked it.
        let turn = question.turn;
        let asked = ApprovalReference {
            turn,
            ..ApprovalReference::new(question.id, question.digest, &question.content)
        };
        Ok(self.await_answer(context, asked).await)
    }

    /// Waits until the question `asked` is decided, its client disconnects, or the time of `[approvals] wait-seconds`
    /// ends. In the last two cases the outcome is `Decision::Undecided`: the question stays open, and the next request
    /// of the client asks again. If the question can no longer be answered, the outcome is `Decision::Unanswered`,
    /// which allows nothing. The outcome always contains the question. `context` says for whom the question was asked.
    async fn await_answer(&self, context: ApprovalContext<'_>, asked: ApprovalReference) -> ApprovalOutcome {
        let ApprovalContext { client, conversation, presence, .. } = context;
        let until = Instant::now() + self.settings.wait;
        // Whether the last reading of the question failed.
        let mut is_failing = false;
        let mut question_changes = self.question_changes.subscribe();
        let decision = loop {
            // The state is `None` if the database has no such question. While the database does not answer, the
            // question counts as open.
            let (state, is_granted) = match self.store.question(&asked.id).await {
                Ok(question) => {
                    is_failing = false;
                    let state = question.as_ref().map(awaited_state);
                    (state, question.is_some_and(|question| question.is_granted))
                }
                Err(error) => {
                    // The next reading is retried, but the operator may have to act on the cause. One line for each
                    // failure, not for each reading.
                    if !is_failing {
                        let fields = vec![
                            ("conversation", conversation.into()),
                            ("question", asked.id.as_str().into()),
                        ];
                        let sentence =
                            format!("the decision of a question cannot be read, so its call waits: {error}");
                        self.log.write(log::LogEvent::Failure, &client.name, fields, &sentence);
                    }
                    is_failing = true;
                    (Some(QuestionState::Open), false)
                }
            };
            match state {
                // The client has disconnected: the answer is stored for its next request.
                Some(QuestionState::Open | QuestionState::Allowed) if presence.is_disconnected() => {
                    break Decision::Undecided;
                }
                Some(QuestionState::Allowed) if is_granted => break Decision::AllowForConversation,
                Some(QuestionState::Allowed) => break asked.allowing_decision(),
                Some(QuestionState::Denied) => break Decision::Deny,
                Some(QuestionState::Open) if Instant::now() >= until => break Decision::Undecided,
                Some(QuestionState::Open) => {}
                // No answer can come any more: the question ended in another way, or its row was deleted.
                Some(QuestionState::Used | QuestionState::Expired | QuestionState::Void) | None => {
                    break Decision::Unanswered;
                }
            }
            let left = until.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
            // `question_changes` reports changes at this gateway; changes at other gateways are found by polling.
            tokio::select! {
                _ = question_changes.changed() => {}
                () = presence.disconnected(), if !presence.is_disconnected() => {}
                () = tokio::time::sleep(left) => {}
            }
        };
        ApprovalOutcome { decision, asked: Some(asked) }
    }

    /// Voids the questions of a conversation that continues without their answers, except the questions whose
    /// approvals the turn uses (`used`). Records the voided questions that were allowed, since their calls do not run.
    ///
    /// # Errors
    /// If the database or the audit log fails.
    pub(crate) async fn void_questions(
        &self,
        client: &ClientSettings,
        conversation: &str,
        used: &[ApprovalReference],
    ) -> Result<(), DatabaseError> {
        let used: Vec<String> = used.iter().map(|asked| asked.id.clone()).collect();
        let allowed = self.store.void_questions(&client.name, conversation, &used).await?;
        self.record_void(&allowed, "the conversation continued without the answer")?;
        self.wake_waiters();
        Ok(())
    }

    /// Records in the audit log that the approvals of these questions are void, so that their calls do not run. `cause`
    /// is the reason. Fails if the audit log cannot be written.
    fn record_void(&self, questions: &[StoredQuestion], cause: &str) -> Result<(), DatabaseError> {
        let to_entry = |question: &StoredQuestion| {
            // Content that is not valid JSON leaves the name of the tool empty.
            let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
            let event = AuditEvent::ApprovalVoid {
                conversation: question.name.clone(),
                tool: content.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned(),
                digest: question.digest.clone(),
                cause: cause.to_owned(),
                // The call was not judged again, so there are no findings.
                reasons: Vec::new(),
            };
            event.into()
        };
        self.recorder.record(&questions.iter().map(to_entry).collect::<Vec<AuditEntry>>())
    }

    /// Returns the stored labels of a tenant's external state, as a record in JSON; `None` if none are stored, or if
    /// they are equal to the record that the caller has already (`known`). While a person decides a call, other
    /// conversations of the tenant may change these labels, so the caller needs them again after the decision.
    pub(crate) async fn changed_external_state(
        &self,
        tenant: &str,
        known: Option<&str>,
    ) -> Result<Option<String>, DatabaseError> {
        Ok(self.store.tenant(tenant).await?.filter(|record| known != Some(record.as_str())))
    }

    /// Wakes the requests and the event streams of people that wait at this gateway for a change of a question.
    pub(crate) fn wake_waiters(&self) {
        self.question_changes.send_replace(());
    }

    /// Notifies the waiting requests, the event streams of people and the webhook of a decision.
    fn notify_decision(&self, question: &StoredQuestion) {
        // Wakes the requests and the event streams.
        self.wake_waiters();
        if let Some(webhook) = &self.webhook {
            webhook.tell("question.decided", question);
        }
    }

    /// Marks questions that were not answered or used in time as expired, and deletes closed questions and lasting
    /// grants whose time ended more than `retention` ago. Called periodically.
    pub(crate) async fn expire_questions(&self, retention: Duration) -> Result<(), DatabaseError> {
        // `allowed` are the questions that a person had allowed, and whose calls did not run in time.
        let allowed = self.store.expire(millis(retention)).await?;
        self.record_void(&allowed, "the approval was not used in time")
    }
}

/// Returns the entries of the audit log about a new question with the content `shown`: first one for each of the
/// `voided_count` earlier approvals of the same call that the question makes void, then the question.
fn question_entries(
    client: &ClientSettings,
    conversation: &str,
    ask: &ApprovalRequest,
    voided_count: usize,
    shown: Value,
) -> Vec<AuditEntry> {
    let mut entries = Vec::new();
    for _ in 0..voided_count {
        let (tool, digest) = (ask.tool.clone(), ask.digest.clone());
        let cause = "the external state that the call refers to has changed".to_owned();
        let voided = VoidedCall { tool, digest, reasons: Vec::new(), cause };
        entries.push(recorder::void_approval_entry(client, conversation, voided));
    }
    entries.push(recorder::question_entry(client, conversation, ask, shown));
    entries
}

/// Returns the state of a question for the request that waits for it. If certain people must all approve, an allowed
/// question counts as void while the approval of one of them is missing: it allows nothing.
fn awaited_state(question: &StoredQuestion) -> QuestionState {
    let is_allowed = question.state == QuestionState::Allowed;
    if is_allowed && !question.missing_approvers().is_empty() { QuestionState::Void } else { question.state }
}

/// Converts a time span to milliseconds, at most [`MAX_MILLIS`].
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).map_or(MAX_MILLIS, |time| time.min(MAX_MILLIS))
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
