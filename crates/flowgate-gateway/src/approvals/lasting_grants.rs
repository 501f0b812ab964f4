//! Answers questions by lasting grants. A person gives a grant as the answer to one question; the grant then answers
//! the questions about equal calls in all conversations of the client. Its terms say for how many days it holds, and
//! can limit the calls in a day and the sum of one argument in a day, such as an amount of money.
//!
//! `ApprovalService` looks for a grant whenever it asks a question. `decisions` serves the decision that gives a grant.
//! This module serves the routes that list and withdraw grants of both kinds: lasting ones, and those for the rest of a
//! conversation ([`super::conversation_grants`]).
//!
//! A grant covers a question that has the same tool, arguments, label and reasons as the question that the person
//! answered, under the same policy and settings of the client. Only two kinds of values may differ: those of payload
//! arguments, as under a grant for the conversation, and that of the argument whose sum the grant limits. A covered
//! question is stored, and allowed in the name of the person who gave the grant. Its approval is used once, expires or
//! becomes void, and is recorded, like that of any other question.
//!
//! A question that is allowed without delay reveals that a grant exists. This leaks nothing: the covered question has
//! the same label as the question that the person answered, so everyone who may observe the one may observe the other
//! as well.

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::PersonDecision;
use flowgate::policy::{ArgumentRole, GrantScope, Policy};
use flowgate_audit::AuditEvent;
use flowgate_guard::approve::ApprovalRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};
use sha2::{Digest as _, Sha256};

use super::ApprovalService;
use crate::config::{ClientSettings, Role};
use crate::database::{
    DatabaseError, GrantCandidate, GrantLimits, HIDDEN_MEMBER, NewGrant, StoredGrant, StoredQuestion,
};
use crate::http::reply::HttpReply;
use crate::random;

/// The member of the hidden part of a question's content that holds its [`GrantOffer`].
pub(super) const OFFER: &str = "lasting";
/// The days for which a grant holds if the person names no number, unless the policy allows fewer.
const DEFAULT_DAYS: u32 = 30;
/// The factor by which an amount is multiplied to be stored as an integer.
const MILLIONTHS: i64 = 1_000_000;

/// The lasting grants that the policy lets a person give in answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GrantOffer {
    /// The longest permitted time in days; `None`: until the grant is withdrawn.
    days: Option<u32>,
    /// The digest that every question covered by such a grant has ([`matching_digest`]).
    matching: String,
    /// For each argument that is an amount: its name, the digest of the question without its value
    /// ([`matching_digest`]), and its value in millionths. A grant with this digest covers every value of the argument,
    /// as long as the sum of a day stays below a limit.
    amounts: Vec<(String, String, i64)>,
    /// How many equal calls the question is about.
    calls: i64,
}

/// The terms of a grant in a decision.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GrantTerms {
    /// The number of days; 0: until the grant is withdrawn.
    days: Option<u32>,
    /// The most calls in a day (UTC).
    calls_a_day: Option<u32>,
    /// The largest sum of an argument in a day (UTC).
    sum_a_day: Option<SumLimit>,
}

/// The terms of a decision that names none.
pub(super) const NO_TERMS: GrantTerms = GrantTerms { days: None, calls_a_day: None, sum_a_day: None };

/// The limit on the sum of one argument in a day.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SumLimit {
    /// The name of the argument.
    argument: String,
    most: Number,
}

impl GrantOffer {
    /// Returns the lasting grants that the policy lets a person give in answer to the question `ask` of a client;
    /// `None` if the policy allows none for this question.
    pub(super) fn new(client: &ClientSettings, ask: &ApprovalRequest) -> Option<Self> {
        let days = match ask.grant_scope {
            GrantScope::Call | GrantScope::Conversation => return None,
            GrantScope::Days(days) => Some(days),
            // No limit in days: the grant may hold until it is withdrawn.
            GrantScope::Always => None,
        };
        // The digest of the question, without the value of the argument `amount` if it names one.
        let digest_without =
            |amount: Option<&str>| matching_digest((&client.name, &client.config_fingerprint), ask, amount);
        let amounts = amounts(&client.policy, ask)
            .map(|(name, value)| (name.clone(), digest_without(Some(&name)), value))
            .collect();
        // One question may be about several equal calls.
        let calls = i64::try_from(ask.times.max(1)).ok()?;
        Some(Self { days, matching: digest_without(None), amounts, calls })
    }

    /// Returns the grants that would cover this question, for the database to search for: one existing candidate
    /// suffices. The first candidate is a grant for exactly these arguments. For each argument that is an amount, a
    /// further candidate is a grant that covers every value of this argument; such a grant counts the value, in
    /// millionths, against its daily sum.
    pub(super) fn candidates(&self) -> Vec<GrantCandidate> {
        let calls = self.calls;
        // A grant for exactly these arguments limits no sum, so it counts no amount.
        let exact = GrantCandidate { matching: self.matching.clone(), calls, amount: 0 };
        let of_amount = |(_, matching, amount): &(String, String, i64)| GrantCandidate {
            matching: matching.clone(),
            calls,
            amount: amount.saturating_mul(calls),
        };
        std::iter::once(exact).chain(self.amounts.iter().map(of_amount)).collect()
    }

    /// Parses the offer that a stored question has in the hidden part of its content; `None` if it has none.
    pub(super) fn of_question(question: &StoredQuestion) -> Option<Self> {
        let content: Value = serde_json::from_str(&question.content).ok()?;
        serde_json::from_value(content.get(HIDDEN_MEMBER)?.get(OFFER)?.clone()).ok()
    }

    /// Returns the longest time for which a grant may hold, in the words of the policy: `30 days` or `always`.
    pub(super) fn longest(&self) -> String {
        self.days.map_or(GrantScope::Always, GrantScope::Days).to_string()
    }

    /// Returns the names of the arguments whose sum in a day a grant may limit: those that are amounts.
    pub(super) fn amount_arguments(&self) -> Vec<&str> {
        self.amounts.iter().map(|(name, ..)| name.as_str()).collect()
    }

    /// Creates the grant with these terms, under the policy and settings whose digest is `config_fingerprint`. The
    /// calls of the answered question count as the first use of the grant. A grant without `days` in its terms holds
    /// for [`DEFAULT_DAYS`], or for as long as the policy allows if that is shorter; with 0, it holds until it is
    /// withdrawn.
    ///
    /// # Errors
    /// The message for the person, if the terms exceed what the policy allows, or if their limits are too low for the
    /// answered question itself.
    pub(super) fn grant(self, config_fingerprint: String, terms: &GrantTerms) -> Result<NewGrant, String> {
        let days = self.days_of(terms)?;
        let calls = terms.calls_a_day.map(i64::from);
        // The limit must have room for the calls of this question.
        if let Some(most) = calls.filter(|most| *most < self.calls) {
            return Err(format!(
                "`calls_a_day` is {most}, but this question alone is about more calls: send at least {}",
                self.calls
            ));
        }
        // The digest that covered questions must have, the limit on the sum, and the sum of the answered question.
        let (matching, sum, first_sum) = match &terms.sum_a_day {
            None => (self.matching, None, 0),
            Some(wanted) => {
                let (matching, limit, total) = self.limited_sum(wanted)?;
                (matching, Some((wanted.argument.clone(), limit)), total)
            }
        };
        let id = random::unguessable_name().map_err(|_| {
            "the operating system of the gateway returned no random bytes: try again".to_owned()
        })?;
        Ok(NewGrant {
            id,
            config_fingerprint,
            matching,
            days,
            limits: GrantLimits { calls, sum },
            // What the answered question itself uses of the limits.
            used: (self.calls, first_sum),
        })
    }

    /// Returns the number of days for which a grant with these terms holds; `None` if it holds until it is withdrawn.
    ///
    /// # Errors
    /// The message for the person, if the policy does not allow that many days.
    fn days_of(&self, terms: &GrantTerms) -> Result<Option<u32>, String> {
        // `terms.days` is what the person asks for, and `self.days` the most that the policy allows (`None`: no limit).
        match (terms.days, self.days) {
            (None, most) => Ok(Some(most.unwrap_or(DEFAULT_DAYS).min(DEFAULT_DAYS))),
            (Some(0), None) => Ok(None),
            (Some(0), Some(most)) => Err(format!(
                "the policy lets this grant hold for at most {most} days: send `days` from 1 to {most}"
            )),
            (Some(days), Some(most)) if days > most => Err(format!(
                "`days` is {days}, but the policy lets this grant hold for at most {most} days: send fewer"
            )),
            (Some(days), _) => Ok(Some(days)),
        }
    }

    /// Returns, for a grant that limits the daily sum of an argument: the digest that covered questions must have, the
    /// limit in millionths, and the part of it that the answered question uses.
    ///
    /// # Errors
    /// The message for the person, if the argument is not an amount, the limit is not a number that is permitted here,
    /// or the answered question alone exceeds it.
    fn limited_sum(&self, SumLimit { argument, most }: &SumLimit) -> Result<(String, i64, i64), String> {
        let found = self.amounts.iter().find(|(name, ..)| name == argument);
        let Some((_, matching, amount)) = found else {
            let names = self.amount_arguments();
            return Err(format!(
                "`sum_a_day`: the call has no argument `{argument}` that the policy declares as an amount \
                and whose value is a number: leave `sum_a_day` out, or name one of these: {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ));
        };
        let limit = millionths(&Value::Number(most.clone())).ok_or(
            "`sum_a_day`: `most` must be a number between 0 and 9,000,000,000,000 with at most six \
            decimals: write such a number, without an exponent",
        )?;
        let total = amount.saturating_mul(self.calls);
        if total > limit {
            return Err(format!(
                "`sum_a_day`: `most` is {most}, but the amount of this question alone is greater: \
                send a greater `most`"
            ));
        }
        Ok((matching.clone(), limit, total))
    }
}

/// Returns the reply to a request for a grant that does not exist, or that the person may not see.
fn no_grant_reply() -> HttpReply {
    let message = "there is no grant of this id, or it is of a tenant that you may not see: take the id from \
        the list of grants";
    HttpReply::detail(StatusCode::NOT_FOUND, message)
}

/// Returns the name and the value, in millionths, of each argument of the call that has the role `amount` in the policy
/// and a value that [`millionths`] can convert.
fn amounts(policy: &Policy, ask: &ApprovalRequest) -> impl Iterator<Item = (String, i64)> {
    let arguments = ask.arguments.as_object().into_iter().flatten();
    arguments.filter_map(|(name, value)| {
        let is_amount = policy.argument_role(&ask.tool, name) == Some(ArgumentRole::Amount);
        Some((name.clone(), millionths(value).filter(|_| is_amount)?))
    })
}

/// Converts a JSON number, or a string that is one, to millionths, so that sums are exact; `None` if it is negative,
/// has an exponent (`1e5`) or more than six decimals, or is too large.
fn millionths(value: &Value) -> Option<i64> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, "0"));
    let is_plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(decimals) || decimals.len() > 6 {
        return None;
    }
    let whole = whole.parse::<i64>().ok()?.checked_mul(MILLIONTHS)?;
    // The decimals are filled up with zeros at the end to six digits, and are then the number of millionths.
    whole.checked_add(format!("{decimals:0<6}").parse().ok()?)
}

/// Returns the digest by which a grant finds the questions that it covers: those whose digest equals that of the
/// question that the person answered. The digest leaves out the values of the changeable arguments (the payload) and, if
/// `amount` names an argument, the value of that argument, whose sum the grant limits instead.
/// `config_fingerprint` is the digest of the policy and settings of the client with the name `client`.
fn matching_digest(
    (client, config_fingerprint): (&str, &str),
    ask: &ApprovalRequest,
    amount: Option<&str>,
) -> String {
    // The values that may differ count as null.
    let mut arguments = ask.arguments.as_object().cloned().unwrap_or_default();
    for name in ask.changeable.iter().map(String::as_str).chain(amount) {
        if let Some(value) = arguments.get_mut(name) {
            *value = Value::Null;
        }
    }
    // A grant covers only questions that the same statements of the policy raise, with the same labels.
    let reasons: Vec<Value> = ask
        .reasons
        .iter()
        .map(|reason| {
            let statement = reason.statement.as_ref().map(|span| [span.start, span.end]);
            json!([reason.kind.name(), statement, reason.part, reason.label, reason.required, reason.message])
        })
        .collect();
    let common = json!({
        "client": client,
        "basis": config_fingerprint,
        "tool": [ask.tool.server, ask.tool.name],
        "arguments": sorted(&Value::Object(arguments)),
        "changeable": ask.changeable,
        "amount": amount,
        "label": ask.label,
        "carries": ask.carries,
        "reasons": reasons,
    });
    random::hex(&Sha256::digest(common.to_string()))
}

/// Returns a value with the keys of its objects in alphabetical order: the order in which a model writes them must not
/// change the digest.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

impl ApprovalService {
    /// Allows an open question by a lasting grant that covers it, and records this as a decision of the person who gave
    /// the grant. `question` is the id of the question `ask`, `conversation` the name of its conversation, and `offer`
    /// has the digests by which a grant is found. The calls of the question count against the limits of the grant.
    /// Returns false if no grant covers the question or the question is not open.
    ///
    /// # Errors
    /// If the database or the audit log fails; the question stays open then.
    pub(super) async fn answer_by_grant(
        &self,
        client: &ClientSettings,
        (question, conversation): (&str, &str),
        ask: &ApprovalRequest,
        offer: &GrantOffer,
    ) -> Result<bool, DatabaseError> {
        // The decision is recorded before the database commits it; if recording fails, the question stays open.
        let used = self
            .store
            .use_lasting_grant(&client.name, question, &offer.candidates(), |grant| {
                let event = AuditEvent::Decided {
                    conversation: conversation.to_owned(),
                    digest: ask.digest.clone(),
                    who: grant.who.clone(),
                    role: format!("lasting grant {}", grant.id),
                    answer: PersonDecision::AllowOnce,
                };
                self.recorder.record(&[event.into()])
            })
            .await?;
        Ok(used.is_some())
    }

    /// Serves the list of the grants in the person's tenants: lasting ones, and those for the rest of a conversation. A
    /// person without a list of tenants sees the grants of all tenants. Of each granted call, the list contains only
    /// what the person may read. The error is the reply to send if the person is not authenticated or the database
    /// fails.
    pub(crate) async fn list_grants(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        let mut grants = Vec::new();
        let tenants = person.tenants.iter().map(|tenant| Some(tenant.as_str()));
        // A person without a list of tenants sees all tenants: one query, without a tenant.
        let all = person.tenants.is_empty().then_some(None);
        for tenant in tenants.chain(all) {
            grants.extend(
                self.store
                    .lasting_grants(tenant)
                    .await
                    .map_err(|error| HttpReply::of_database_error(&error))?,
            );
        }
        let lasting = grants.iter().map(|grant| {
            let stored: Value = serde_json::from_str(&grant.content).unwrap_or_default();
            let (call, _) = person.may_read.show(self.people.policy(&grant.client), &stored);
            self.grant_json(grant, &call)
        });
        let mut listed: Vec<Value> = lasting.collect();
        listed.extend(
            self.list_conversation_grants(&person)
                .await
                .map_err(|error| HttpReply::of_database_error(&error))?,
        );
        Ok(HttpReply::json(StatusCode::OK, &json!({"grants": listed})))
    }

    /// Serves the route that withdraws the grant with this id: a lasting one, or one for the rest of a conversation.
    /// The audit log records the order before the grant is withdrawn, so that no withdrawal is without a record.
    ///
    /// # Errors
    /// The reply to send if the person is no approver, the grant does not exist or belongs to a tenant that the person
    /// may not see, or the withdrawal cannot be recorded or stored.
    pub(crate) async fn withdraw_grant(&self, headers: &HeaderMap, id: &str) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Approver)?;
        let failed = |error: DatabaseError| HttpReply::of_database_error(&error);
        let lasting_grant = self.store.lasting_grant(id).await.map_err(failed)?;
        // The result is false if there is no grant that this person may withdraw.
        let withdrawn = match lasting_grant {
            Some(grant) if person.sees_tenant(&grant.tenant) => {
                let what = format!("lasting-grant {}", grant.id);
                self.record_withdrawal(&person, what, self.store.withdraw_lasting_grant(&grant.id)).await
            }
            // To this person, a grant of another tenant does not exist.
            Some(_) => Ok(false),
            // The id may be that of a grant for the rest of a conversation.
            None => match self.store.conversation_grant(id).await.map_err(failed)? {
                Some(grant) if person.sees_tenant(&grant.tenant) => {
                    self.withdraw_conversation_grant(&person, &grant).await
                }
                _ => Ok(false),
            },
        };
        let is_withdrawn = withdrawn.map_err(failed)?;
        if !is_withdrawn {
            return Err(no_grant_reply());
        }
        Ok(HttpReply::json(StatusCode::OK, &json!({"id": id, "withdrawn": true})))
    }

    /// Returns a lasting grant as JSON for a person. `call` is the granted question as that person may read it.
    fn grant_json(&self, grant: &StoredGrant, call: &Value) -> Value {
        // Amounts are stored in millionths, and shown without trailing zeros.
        let amount = |millionths: i64| {
            let (whole, rest) = (millionths / MILLIONTHS, millionths % MILLIONTHS);
            format!("{whole}.{rest:06}").trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        // How many calls the grant has allowed today (UTC), and the sum, in millionths, of the argument that it limits.
        let (calls, sum) = grant.used_today;
        let limit = |(argument, most): &(String, i64)| json!({"argument": argument, "most": amount(*most), "used_today": amount(sum)});
        json!({
            "id": grant.id,
            "kind": "lasting",
            "client": grant.client,
            "tenant": grant.tenant,
            "who": grant.who,
            "granted": grant.granted,
            // 0 is stored for a grant without an end.
            "expires": (grant.expires != 0).then_some(grant.expires),
            "policy": grant.config_fingerprint,
            "calls_a_day": grant.limits.calls,
            "calls_today": calls,
            "sum_a_day": grant.limits.sum.as_ref().map(limit),
            // A grant has no effect while its client has another policy or other settings.
            "in_force": self.people.config_fingerprint(&grant.client) == Some(grant.config_fingerprint.as_str()),
            "call": call,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flowgate::label::Label;
    use flowgate::monitor::{Reason, ReasonKind};
    use flowgate::policy::Action;
    use flowgate::trace::Tool;

    use super::*;

    fn question() -> ApprovalRequest {
        let reason = Reason {
            kind: ReasonKind::Requirement,
            action: Action::Ask,
            message: "`to` is untrusted".to_owned(),
            statement: Some(10..20),
            part: Some("arguments.to".to_owned()),
            label: vec!["untrusted".to_owned()],
            required: vec!["trusted".to_owned()],
            regions: Vec::new(),
            grant_scope: GrantScope::Always,
            grants_class: false,
            categories: Vec::new(),
            approvers: Vec::new(),
            events: Vec::new(),
        };
        ApprovalRequest {
            tool: Tool::local("send"),
            arguments: json!({"to": "bob", "amount": 5, "body": "Hello."}),
            label: vec!["untrusted".to_owned(), "public".to_owned()],
            decided: Label::default(),
            summary: "Sends 5 to bob.".to_owned(),
            evidence: Vec::new(),
            reasons: vec![reason],
            excerpts: Vec::new(),
            digest: "d".to_owned(),
            state: "s".to_owned(),
            carries: json!({"integrity": "untrusted"}),
            reasons_carry: Vec::new(),
            approvers: Vec::new(),
            grant_scope: GrantScope::Always,
            changeable: vec!["body".to_owned()],
            expires: Duration::from_secs(60),
            times: 1,
            upcoming: Vec::new(),
        }
    }

    /// A grant covers no question that differs in anything but payload, and in the one amount whose sum it limits.
    #[test]
    fn a_grant_matches_equal_questions_only() {
        type Change = fn(&mut ApprovalRequest);
        let client = ("c", "basis");
        let check = |name: &str, change: Change, matches: bool, matches_sum: bool| {
            let (granted, mut asked) = (question(), question());
            change(&mut asked);
            let is_equal = |amount: Option<&str>| {
                matching_digest(client, &granted, amount) == matching_digest(client, &asked, amount)
            };
            assert_eq!((is_equal(None), is_equal(Some("amount"))), (matches, matches_sum), "{name}");
        };
        check("nothing", |_| (), true, true);
        check("payload", |ask| ask.arguments["body"] = json!("Bye."), true, true);
        check(
            "the order of arguments",
            |ask| ask.arguments = json!({"body": "Hello.", "amount": 5, "to": "bob"}),
            true,
            true,
        );
        check("words of the summary", |ask| ask.summary = "Pays.".to_owned(), true, true);
        check("the amount", |ask| ask.arguments["amount"] = json!(6), false, true);
        check("another argument", |ask| ask.arguments["to"] = json!("eve"), false, false);
        check("a further argument", |ask| ask.arguments["cc"] = json!("eve"), false, false);
        check("a missing payload", |ask| ask.arguments = json!({"to": "bob", "amount": 5}), false, false);
        check("what is payload", |ask| ask.changeable.clear(), false, false);
        check("the tool", |ask| ask.tool.name = "pay".into(), false, false);
        check("the server", |ask| ask.tool.server = Some("mail".into()), false, false);
        check("the label", |ask| ask.label[1] = "private".to_owned(), false, false);
        check("what it carries", |ask| ask.carries = json!({}), false, false);
        check("a further reason", |ask| ask.reasons.push(ask.reasons[0].clone()), false, false);
        check("the kind of a reason", |ask| ask.reasons[0].kind = ReasonKind::Rule, false, false);
        check("the statement of a reason", |ask| ask.reasons[0].statement = None, false, false);
        check("the part of a reason", |ask| ask.reasons[0].part = None, false, false);
        check("the label of a reason", |ask| ask.reasons[0].label.clear(), false, false);
        check("the bound of a reason", |ask| ask.reasons[0].required.clear(), false, false);
        check("the message of a reason", |ask| ask.reasons[0].message.clear(), false, false);
        let digest = |client, amount| matching_digest(client, &question(), amount);
        assert_ne!(digest(client, None), digest(("other", "basis"), None));
        assert_ne!(digest(client, None), digest(("c", "changed"), None));
        // A grant of exact arguments is not one of a sum, even where the amount is the same.
        assert_ne!(digest(client, None), digest(client, Some("amount")));
    }

    /// What is an amount follows from its name, unless the policy declares another role.
    #[test]
    fn amounts_are_named_or_declared() {
        let check = |statement: &str, expected: &[&str]| {
            let policy =
                Policy::parse(&format!("lattice integrity: trusted < untrusted\n{statement}")).unwrap();
            let mut ask = question();
            ask.arguments = json!({"to": "bob", "amount": 5, "n": 7});
            let found: Vec<String> = amounts(&policy, &ask).map(|(name, _)| name).collect();
            assert_eq!(found, expected, "{statement}");
        };
        let role = |argument: &str, role: &str| {
            format!("role call.arguments.{argument} is {role} if:\n    (call: ToolCall) is tool:send\n")
        };
        check("", &["amount"]);
        check(&role("n", "amount"), &["amount", "n"]);
        check(&role("amount", "selector"), &[]);
    }

    #[test]
    fn amounts_are_exact_or_none() {
        let check = |value: Value, expected: Option<i64>| assert_eq!(millionths(&value), expected, "{value}");
        check(json!(12.5), Some(12_500_000));
        check(json!(0), Some(0));
        check(json!("50"), Some(50_000_000));
        check(json!("0.000001"), Some(1));
        check(json!("0.0000001"), None);
        check(json!(-1), None);
        check(json!("1e3"), None);
        check(json!(1e300), None);
        check(json!("9223372036854"), Some(9_223_372_036_854_000_000));
        check(json!("9223372036855"), None);
        check(json!(" 5"), None);
        check(json!("."), None);
        check(json!([5]), None);
    }

    #[test]
    fn terms_stay_within_the_policy() {
        let offer = |days, calls| GrantOffer {
            days,
            matching: "m".to_owned(),
            amounts: vec![("amount".to_owned(), "a".to_owned(), 20 * MILLIONTHS)],
            calls,
        };
        let check = |days: Option<u32>, terms: Value, expected: Result<(Option<u32>, &str, i64), &str>| {
            let terms: GrantTerms = serde_json::from_value(terms).unwrap();
            let granted = offer(days, 1).grant("b".to_owned(), &terms);
            match (granted, expected) {
                (Ok(grant), Ok(expected)) => {
                    assert_eq!((grant.days, grant.matching.as_str(), grant.used.1), expected);
                }
                (Err(fault), Err(expected)) => assert!(fault.contains(expected), "{fault}"),
                (granted, expected) => panic!("{granted:?} is not {expected:?}"),
            }
        };
        check(None, json!({}), Ok((Some(30), "m", 0)));
        check(Some(7), json!({}), Ok((Some(7), "m", 0)));
        check(Some(90), json!({}), Ok((Some(30), "m", 0)));
        check(Some(90), json!({"days": 90}), Ok((Some(90), "m", 0)));
        check(
            Some(7),
            json!({"days": 8}),
            Err("`days` is 8, but the policy lets this grant hold for at most 7 days"),
        );
        check(Some(7), json!({"days": 0}), Err("at most 7 days"));
        check(None, json!({"days": 0}), Ok((None, "m", 0)));
        check(None, json!({"calls_a_day": 0}), Err("about more calls: send at least 1"));
        let sum = |argument: &str, most: Value| json!({"sum_a_day": {"argument": argument, "most": most}});
        check(None, sum("amount", json!(50)), Ok((Some(30), "a", 20 * MILLIONTHS)));
        check(None, sum("amount", json!(19.5)), Err("the amount of this question alone is greater"));
        check(None, sum("amount", json!(-1)), Err("must be a number between"));
        check(None, sum("price", json!(50)), Err("name one of these: amount"));
        // A question about three equal calls uses three times the amount.
        let terms = |terms: Value| serde_json::from_value::<GrantTerms>(terms).unwrap();
        let three = offer(None, 3).grant("b".to_owned(), &terms(sum("amount", json!(60)))).unwrap();
        assert_eq!(three.used, (3, 60 * MILLIONTHS));
        assert!(offer(None, 3).grant("b".to_owned(), &terms(sum("amount", json!(59)))).is_err());
        assert!(offer(None, 3).grant("b".to_owned(), &terms(json!({"calls_a_day": 2}))).is_err());
        let candidates: Vec<_> =
            offer(None, 3).candidates().iter().map(|one| (one.calls, one.amount)).collect();
        assert_eq!(candidates, [(3, 0), (3, 60 * MILLIONTHS)]);
    }
}
