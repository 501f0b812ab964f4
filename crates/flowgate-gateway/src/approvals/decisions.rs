//! Decides questions on behalf of a person: one by its id, or several in one request, such as all questions of a turn.
//! `http::service` calls it for `POST /api/v1/approvals` and `POST /api/v1/approvals/{id}`.
//!
//! Each decision is bound to the digest of the question that the person was shown. Each decision takes effect, and is
//! recorded in the audit log, in a separate transaction: the other decisions of a request take effect even if one is
//! rejected.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::PersonDecision;
use flowgate_audit::AuditEvent;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Value, json};

use super::ApprovalService;
use super::lasting_grants::{GrantOffer, GrantTerms, NO_TERMS};
use super::routes::{database_error_reply, may_grant, not_found_reply, read};
use crate::config::{Person, Role};
use crate::database::{DecideError, NewGrant, QuestionState, StoredQuestion};
use crate::http::reply::HttpReply;

/// The most decisions in one request.
const MAX_DECISIONS: usize = 100;

/// The form of a decision, for error messages.
const DECISION_FORM: &str = "`{\"decision\": \"allow\", \"grant\", \"grant-lasting\" or \"deny\", \"digest\": \"...\"}`; `grant-lasting` \
    may have `\"terms\": {\"days\": 30, \"calls_a_day\": 5, \"sum_a_day\": {\"argument\": \"amount\", \"most\": 50}}`, or some of them";

/// The form of several decisions, for error messages.
const DECISIONS_FORM: &str =
    "`{\"decisions\": [{\"id\": \"...\", \"decision\": \"allow\", \"digest\": \"...\"}, ...]}`";

/// A person's decision on a question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionRequest {
    #[serde(deserialize_with = "decision_of_name")]
    decision: PersonDecision,
    /// The digest of the question as it was shown: an approval is bound to what the person has seen.
    digest: String,
    /// The terms of a `grant-lasting`.
    #[serde(default)]
    terms: Option<GrantTerms>,
}

/// A person's decisions on several questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionsRequest {
    decisions: Vec<IdentifiedDecision>,
}

/// One of several decisions: a [`DecisionRequest`] with the id of its question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentifiedDecision {
    id: String,
    #[serde(deserialize_with = "decision_of_name")]
    decision: PersonDecision,
    digest: String,
    #[serde(default)]
    terms: Option<GrantTerms>,
}

/// Reads the decision that a request names.
///
/// # Errors
/// If the value is not a string, or no decision has this name.
fn decision_of_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PersonDecision, D::Error> {
    let name = String::deserialize(deserializer)?;
    PersonDecision::from_name(&name).ok_or_else(|| {
        let names: Vec<String> =
            PersonDecision::ALL.iter().map(|decision| format!("`{}`", decision.name())).collect();
        D::Error::custom(format_args!("unknown decision `{name}`: expected one of {}", names.join(", ")))
    })
}

/// Why a decision has no effect: the status and the message of the reply.
type Rejection = (StatusCode, String);

impl ApprovalService {
    /// Serves the route that decides the question `id`: `body` has the decision. The person needs the role of an
    /// approver or admin. Replies with the question as it is after the decision; the error is also a reply to send.
    pub(crate) async fn decide(
        &self,
        headers: &HeaderMap,
        id: &str,
        body: &[u8],
    ) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Approver)?;
        let request: DecisionRequest = read(body, DECISION_FORM)?;
        let question = self.decide_question(&person, id, &request).await?;
        Ok(HttpReply::json(StatusCode::OK, &question))
    }

    /// Serves the route that decides several questions, in the order of the list in `body`. The reply has one result
    /// for each: the decided question, or why the decision has no effect.
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated or not an approver, the body is malformed, a question
    /// occurs twice, or the number of decisions is 0 or above [`MAX_DECISIONS`]. Nothing is decided then.
    pub(crate) async fn decide_several(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Approver)?;
        let DecisionsRequest { decisions } = read(body, DECISIONS_FORM)?;
        check_decisions(&decisions).map_err(|(status, message)| HttpReply::detail(status, &message))?;
        let mut results = Vec::<Value>::new();
        // The number of questions that were decided, and the last decision that failed through a fault of the gateway.
        let (mut decided, mut failed) = (0, None);
        for IdentifiedDecision { id, decision, digest, terms } in decisions {
            let request = DecisionRequest { decision, digest, terms };
            results.push(match self.decide_question(&person, &id, &request).await {
                Ok(question) => {
                    decided += 1;
                    json!({"id": id, "status": StatusCode::OK.as_u16(), "question": question})
                }
                Err(rejection) => {
                    let result =
                        json!({"id": id, "status": rejection.status.as_u16(), "detail": rejection.detail_text()});
                    if rejection.status.is_server_error() {
                        // The reply as a whole is a success, so the cause for the operator's log is taken from the
                        // failed decision.
                        failed = Some(rejection);
                    }
                    result
                }
            });
        }
        let reply = HttpReply::json(StatusCode::OK, &json!({"decided": decided, "results": results}));
        Ok(reply.annotate_from(failed))
    }

    /// Decides a question for a person with the role of an approver or admin. Returns the decided question as the
    /// person sees it.
    ///
    /// # Errors
    /// The reply that says why the decision has no effect: the person may not give this answer
    /// ([`Self::check_decision`]), the question does not exist, has changed or is not open, or the decision cannot be
    /// stored or recorded.
    async fn decide_question(
        &self,
        person: &Person,
        id: &str,
        request: &DecisionRequest,
    ) -> Result<Value, HttpReply> {
        let question = self.store.question(id).await.map_err(database_error_reply)?;
        let question =
            question.filter(|question| person.sees_tenant(&question.tenant)).ok_or_else(not_found_reply)?;
        let decision = request.decision;
        let grant = self
            .check_decision(person, &question, decision, request.terms.as_ref())
            .map_err(|(status, message)| HttpReply::detail(status, &message))?;
        let mut is_recorded = false;
        // `Database::decide` calls this before it commits the decision, so that no decision takes effect unrecorded.
        let record = || {
            is_recorded = true;
            let event = AuditEvent::Decided {
                conversation: question.name.clone(),
                digest: question.digest.clone(),
                who: person.name.clone(),
                role: person.role.name().to_owned(),
                answer: decision,
            };
            self.recorder.record(&[event.into()])
        };
        let decided = self.store.decide((id, &request.digest), decision, &person.name, grant, record).await;
        let decided = decided.map_err(|error| {
            if is_recorded {
                let what = format!("decision {}", question.digest);
                // The log has the decision, but the transaction may have failed.
                self.recorder.record_unconfirmed(what, &person.name, &error);
            }
            database_error_reply(error)
        })?;
        let conflict = |message: &str| Err(HttpReply::detail(StatusCode::CONFLICT, message));
        match decided {
            Ok(question) => {
                if question.state == QuestionState::Open {
                    // Others must approve as well: their event streams show that one has.
                    self.wake_waiters();
                    return Ok(self.question_json(&question, person));
                }
                self.count_decision(&question, decision);
                self.notify_decision(&question);
                Ok(self.question_json(&question, person))
            }
            Err(DecideError::Unknown) => Err(not_found_reply()),
            Err(DecideError::OtherDigest) => conflict(
                "the `digest` does not match the question, which has changed: fetch the question again, and \
                send its digest",
            ),
            Err(DecideError::NotCounted(question)) => conflict(&not_counted(&question, &person.name)),
        }
    }

    /// Counts the decision of a question in the metrics, with the time for which the question waited.
    fn count_decision(&self, question: &StoredQuestion, decision: PersonDecision) {
        let waited = question.decided.saturating_sub(question.asked);
        let after = Duration::from_millis(waited.try_into().unwrap_or_default());
        let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
        let tool = content.get("tool").and_then(Value::as_str).unwrap_or_default();
        self.metrics.count_decision((&question.client, tool), decision.name(), after);
    }

    /// Checks that the person may give this answer to the question. Returns the lasting grant to store with the
    /// decision; `None` if the decision gives no lasting grant. `terms` are the terms that the request names for such a
    /// grant, if any.
    ///
    /// # Errors
    /// If the person owns the client or may not decide for its tenant, the policy does not allow this kind of answer,
    /// the terms do not fit it, the person may not read all of what the answer would allow, or an approval by this
    /// person does not count ([`check_approver`]).
    fn check_decision(
        &self,
        person: &Person,
        question: &StoredQuestion,
        decision: PersonDecision,
        terms: Option<&GrantTerms>,
    ) -> Result<Option<NewGrant>, Rejection> {
        let refuse = |status, message: &str| Err((status, message.to_owned()));
        // The callers have checked the role and the tenant, so only the owner of the client fails here.
        if !person.decides_for(&question.tenant, self.people.owner(&question.client)) {
            let message = "the owner of a client cannot decide its questions: another person has to decide";
            return refuse(StatusCode::FORBIDDEN, message);
        }
        if decision == PersonDecision::AllowForConversation && !may_grant(question) {
            let message = "this question can be answered for one call only, since the policy does not say \
                `grant conversation` for it, or the tool reads external state: send `allow` or `deny`";
            return refuse(StatusCode::CONFLICT, message);
        }
        let grant = self.new_grant(question, decision, terms)?;
        // A denial needs no clearance.
        let (_, is_fully_readable) = self.readable_content(question, person);
        if decision.allows() && !is_fully_readable {
            let message = "your clearance does not cover what this question shows: you may deny it; only a \
                person who may read all of it may allow it";
            return refuse(StatusCode::FORBIDDEN, message);
        }
        check_approver(person, question, decision)?;
        Ok(grant)
    }

    /// Returns the lasting grant that the decision [`PersonDecision::AllowLasting`] gives, with these terms or the
    /// default ones; `None` for every other decision.
    ///
    /// # Errors
    /// If another decision has terms, or the question or the policy does not allow a grant with these terms.
    fn new_grant(
        &self,
        question: &StoredQuestion,
        decision: PersonDecision,
        terms: Option<&GrantTerms>,
    ) -> Result<Option<NewGrant>, Rejection> {
        let refuse = |status, message: &str| Err((status, message.to_owned()));
        if decision != PersonDecision::AllowLasting {
            return match terms {
                None => Ok(None),
                Some(_) => refuse(
                    StatusCode::BAD_REQUEST,
                    "only the decision `grant-lasting` has `terms`: remove them, or send `grant-lasting`",
                ),
            };
        }
        // The digest of the client's policy and settings, under which alone the grant is valid.
        let config_fingerprint = self.people.config_fingerprint(&question.client);
        let Some((offer, config_fingerprint)) = GrantOffer::of_question(question).zip(config_fingerprint)
        else {
            let message = "this question cannot be granted beyond its conversation, since the policy says neither \
                `grant N days` nor `grant always` for it, or the tool reads external state: send `allow` or `deny`";
            return refuse(StatusCode::CONFLICT, message);
        };
        let terms = terms.unwrap_or(&NO_TERMS);
        offer
            .grant(config_fingerprint.to_owned(), terms)
            .map(Some)
            .map_err(|fault| (StatusCode::CONFLICT, fault))
    }
}

/// Checks that an approval by `person` counts. Where the policy names people who must all approve the question, the
/// person must be one of them, and must not have approved the question yet. A denial always counts. A question that is
/// not open passes: the database rejects the decision, and says why.
fn check_approver(
    person: &Person,
    question: &StoredQuestion,
    decision: PersonDecision,
) -> Result<(), Rejection> {
    let approvers = question.approvers();
    if !decision.allows() || approvers.is_empty() || question.state != QuestionState::Open {
        return Ok(());
    }
    if !approvers.contains(&person.name) {
        let message = format!(
            "this question needs the approval of {}, and you are not one of them: you may deny it, but not allow it",
            listed(&approvers)
        );
        return Err((StatusCode::FORBIDDEN, message));
    }
    if question.approved_by.contains(&person.name) {
        return Err((StatusCode::CONFLICT, not_counted(question, &person.name)));
    }
    Ok(())
}

/// Returns a message about why the decision of a person has no effect: the person, whose name is `who`, has approved
/// already, or the question has changed or is not open any more.
fn not_counted(question: &StoredQuestion, who: &str) -> String {
    // An open question has its own messages, which return at once. For a closed one, this says how it was closed.
    let happened = match question.state {
        QuestionState::Open if question.approved_by.iter().any(|name| name == who) => {
            let missing = listed(&question.missing_approvers());
            return format!(
                "you have approved this question already: it waits for the approval of {missing}"
            );
        }
        QuestionState::Open => {
            return "the question has changed while you decided it: fetch it again, and decide again"
                .to_owned();
        }
        QuestionState::Allowed if question.decided_by == who => "you have allowed it already",
        QuestionState::Denied if question.decided_by == who => "you have denied it already",
        QuestionState::Allowed => "another person has allowed it",
        QuestionState::Denied => "another person has denied it",
        QuestionState::Used => "it was allowed, and its call was sent",
        QuestionState::Expired => "it was not answered in time",
        QuestionState::Void => {
            "its conversation has continued without the answer, or what it is about has changed"
        }
    };
    format!("the question is no longer open: {happened}, so it needs no decision")
}

/// Returns names in a list, each quoted.
fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Checks that the number of decisions is between 1 and [`MAX_DECISIONS`], and that no two are on the same question:
/// only one of them could take effect. Otherwise returns the rejection of the whole request.
fn check_decisions(decisions: &[IdentifiedDecision]) -> Result<(), Rejection> {
    let refuse = |message: String| Err((StatusCode::BAD_REQUEST, message));
    if decisions.is_empty() || decisions.len() > MAX_DECISIONS {
        return refuse(format!(
            "the request has {} decisions: send between 1 and {MAX_DECISIONS}",
            decisions.len()
        ));
    }
    // After sorting, equal ids are neighbours.
    let mut ids: Vec<&str> = decisions.iter().map(|decision| decision.id.as_str()).collect();
    ids.sort_unstable();
    match ids.array_windows().find(|[first, second]| first == second) {
        None => Ok(()),
        Some([twice, _]) => refuse(format!("the question `{twice}` occurs twice: send one decision for it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what happened to a question that ann and bob must both approve, to the person whose decision came too late.
    #[test]
    fn a_decision_that_does_not_count_says_what_happened() {
        let check = |state: QuestionState, approved_by: &[&str], decided_by: &str, expected: &str| {
            let question = StoredQuestion {
                id: "q".to_owned(),
                client: "agent".to_owned(),
                name: "c1".to_owned(),
                tenant: String::new(),
                digest: "d".to_owned(),
                content: json!({"approvers": ["ann", "bob"]}).to_string(),
                state,
                asked: 0,
                expires: 0,
                approved_by: approved_by.iter().map(|name| (*name).to_owned()).collect(),
                decided_by: decided_by.to_owned(),
                decided: 0,
                change: 0,
                is_granted: false,
                turn: None,
                lasting_grant: String::new(),
                config_fingerprint: String::new(),
            };
            assert_eq!(not_counted(&question, "ann"), expected, "{state:?}");
        };
        let open = QuestionState::Open;
        // Two requests of ann at the same time: the one that came second.
        check(
            open,
            &["ann"],
            "",
            "you have approved this question already: it waits for the approval of `bob`",
        );
        check(
            open,
            &[],
            "",
            "the question has changed while you decided it: fetch it again, and decide again",
        );
        let closed = |what: &str| format!("the question is no longer open: {what}, so it needs no decision");
        let both = ["bob", "ann"];
        check(QuestionState::Allowed, &both, "ann", &closed("you have allowed it already"));
        check(QuestionState::Allowed, &both, "bob", &closed("another person has allowed it"));
        check(QuestionState::Denied, &["bob"], "ann", &closed("you have denied it already"));
        check(QuestionState::Denied, &[], "bob", &closed("another person has denied it"));
        check(QuestionState::Used, &both, "ann", &closed("it was allowed, and its call was sent"));
        check(QuestionState::Expired, &[], "", &closed("it was not answered in time"));
        let void = "its conversation has continued without the answer, or what it is about has changed";
        check(QuestionState::Void, &[], "", &closed(void));
    }
}
