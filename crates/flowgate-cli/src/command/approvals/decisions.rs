//! Asks for the decision on a question at the terminal, and sends it to the gateway. `flowgate approvals allow`, `deny`
//! and `watch` use it.

use flowgate::monitor::PersonDecision;
use serde_json::{Value, json};

use crate::args::SumADay;
use crate::escaping;
use crate::gateway_client::{GatewayClient, GatewayError, question_path};
use crate::output::{Console, plural};
use crate::question_text::{amounts, approvers, missing_approvers};
use crate::typed_lines::{self, TypedLines};

/// The terms of a lasting grant, as the command line gives them. `None` leaves a term to the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LastingTerms {
    /// The number of days until the grant expires; 0 is until it is withdrawn.
    pub(super) days: Option<u32>,
    /// The maximum number of calls on one day.
    pub(super) calls_a_day: Option<u32>,
    /// The largest sum of one argument on one day; calls may then have any value of it within the sum.
    pub(super) sum_a_day: Option<SumADay>,
}

/// A decision that a person has typed. `terms` has an effect only for `AllowLasting`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypedDecision {
    pub(super) decision: PersonDecision,
    pub(super) terms: LastingTerms,
}

/// Makes a decision without terms. A lasting grant without terms holds for as long as the policy permits.
impl From<PersonDecision> for TypedDecision {
    fn from(decision: PersonDecision) -> Self {
        Self { decision, terms: LastingTerms::default() }
    }
}

impl TypedDecision {
    /// Returns why the person may not decide `question` in this way, according to the fields `you_may_...` that the
    /// gateway has computed for the person; `None` if the person may.
    pub(super) fn objection(&self, question: &Value) -> Option<String> {
        let may = |name: &str| question.get(name).is_some_and(|value| *value == Value::Bool(true));
        if !may("you_may_decide") {
            let message = "you may not decide this question: it is not open, you own the client, or your role is that of a viewer; another approver may decide it while it is open";
            return Some(message.to_owned());
        }
        let needed = approvers(question);
        // Whether the gateway accepts this decision from the person, and the message if it does not.
        let (is_offered, refusal) = match self.decision {
            PersonDecision::Deny => (true, ""),
            PersonDecision::AllowOnce if may("you_have_approved") => {
                let message = "you have approved this question already: it waits for the approval of";
                return Some(format!(
                    "{message} {}; you may still deny it",
                    missing_approvers(question).join(", ")
                ));
            }
            // An open question names its approvers only to a person whose clearance covers it.
            PersonDecision::AllowOnce if !needed.is_empty() && !may("you_may_allow") => {
                let needed = needed.join(", ");
                return Some(format!(
                    "this question needs the approval of {needed}, and you are not one of them: you may deny it, but not allow it"
                ));
            }
            PersonDecision::AllowOnce => (
                may("you_may_allow"),
                "your clearance does not cover what the question shows: you may deny it, and another person may allow it",
            ),
            PersonDecision::AllowForConversation | PersonDecision::AllowLasting if !needed.is_empty() => (
                false,
                "a question that certain people must approve is answered for one call only: leave out --conversation and --lasting",
            ),
            PersonDecision::AllowForConversation => (
                may("you_may_grant"),
                "the policy does not say `grant conversation` for this question, or your clearance does not cover it: leave out --conversation",
            ),
            PersonDecision::AllowLasting => (
                question.get("you_may_grant_for").is_some_and(|longest| !longest.is_null()),
                "the policy says neither `grant N days` nor `grant always` for this question, or your clearance does not cover it: leave out --lasting",
            ),
        };
        if !is_offered {
            return Some(refusal.to_owned());
        }
        self.objection_to_sum(question)
    }

    /// Checks `--sum-a-day`, which limits the sum of one argument over a day. Returns an objection if the policy does not
    /// declare this argument an amount, or if its value in the call is not a number. Returns `None` if the argument can
    /// be limited, or if the option was not given.
    fn objection_to_sum(&self, question: &Value) -> Option<String> {
        let SumADay { argument, .. } = self.terms.sum_a_day.as_ref()?;
        let amounts = amounts(question);
        // The names in `amounts` are escaped as well.
        let argument = escaping::line(argument);
        (!amounts.contains(&argument)).then(|| {
            let which = match amounts.is_empty() {
                true => "leave out --sum-a-day".to_owned(),
                false => format!("--sum-a-day can name {}", amounts.join(", ")),
            };
            format!(
                "the call has no argument `{argument}` that the policy declares as an amount and whose value is a number: {which}"
            )
        })
    }

    /// Returns the decision in words, for the question by which the person confirms it.
    fn words(&self) -> String {
        match self.decision {
            PersonDecision::AllowOnce => "allow this call once".to_owned(),
            PersonDecision::AllowForConversation => {
                "allow this call, and equal ones of the conversation".to_owned()
            }
            PersonDecision::AllowLasting => {
                let until = match self.terms.days {
                    // 0 days: the grant does not expire.
                    Some(0) => " until the grant is withdrawn".to_owned(),
                    Some(days) => format!(" for {}", plural(days, "day")),
                    None => " for as long as the policy permits".to_owned(),
                };
                let most =
                    self.terms.calls_a_day.map(|most| format!(", at most {} a day", plural(most, "call")));
                let sum = self.terms.sum_a_day.as_ref().map(|SumADay { argument, most }| {
                    format!(", with any {} up to a sum of {most} a day", escaping::line(argument))
                });
                format!(
                    "allow this call, and equal ones of all conversations{until}{}{}",
                    most.unwrap_or_default(),
                    sum.unwrap_or_default()
                )
            }
            PersonDecision::Deny => "deny this call".to_owned(),
        }
    }
}

/// Asks the person at the terminal to confirm a decision, and returns whether the reply is yes. Lines that were typed
/// before the person is asked do not count.
pub(super) fn confirm(lines: &TypedLines, decision: &TypedDecision, output: &mut Console) -> bool {
    let line = lines.ask(&format!("{}? [y/N] ", decision.words()), output);
    line.is_some_and(|line| typed_lines::is_yes(&line))
}

/// Sends a decision on the question `id` with this digest, and returns the question as it is after the decision. The
/// gateway rejects the decision if the question has another digest now.
pub(super) fn decide(
    gateway: &GatewayClient,
    id: &str,
    digest: &str,
    decision: &TypedDecision,
) -> Result<Value, GatewayError> {
    let TypedDecision { decision, terms: LastingTerms { days, calls_a_day, sum_a_day } } = decision;
    let name = decision.name();
    let body = match decision {
        // Only a lasting grant has terms. A term that the person did not give is left out, and the policy decides it.
        PersonDecision::AllowLasting => {
            let mut terms = serde_json::Map::new();
            terms.extend(days.map(|days| ("days".to_owned(), json!(days))));
            terms.extend(calls_a_day.map(|most| ("calls_a_day".to_owned(), json!(most))));
            let sum = sum_a_day.as_ref();
            terms.extend(sum.map(|SumADay { argument, most }| {
                ("sum_a_day".to_owned(), json!({"argument": argument, "most": most}))
            }));
            json!({"decision": name, "digest": digest, "terms": terms})
        }
        PersonDecision::AllowOnce | PersonDecision::AllowForConversation | PersonDecision::Deny => {
            json!({"decision": name, "digest": digest})
        }
    };
    gateway.post(&question_path(id), &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_offered_as_the_gateway_permits() {
        use PersonDecision::{AllowForConversation, AllowLasting, AllowOnce, Deny};
        let question = |members: &[&str], longest: Value| {
            let mut question = json!({"you_may_grant_for": longest});
            for member in ["you_may_decide", "you_may_allow", "you_may_grant"] {
                question[member] = json!(members.contains(&member));
            }
            question
        };
        let all = [Deny, AllowOnce, AllowForConversation, AllowLasting].map(TypedDecision::from);
        let check = |question: &Value, expected: [bool; 4]| {
            let offered = all.each_ref().map(|decision| decision.objection(question).is_none());
            assert_eq!(offered, expected, "{question}");
        };
        check(&question(&[], Value::Null), [false; 4]);
        check(&question(&["you_may_decide"], Value::Null), [true, false, false, false]);
        check(&question(&["you_may_decide", "you_may_allow"], Value::Null), [true, true, false, false]);
        let every = ["you_may_decide", "you_may_allow", "you_may_grant"];
        check(&question(&every, json!("30 days")), [true; 4]);
        check(&question(&["you_may_allow"], json!("30 days")), [false; 4]);
    }

    /// The sum of a grant limits an argument that the question names as an amount.
    #[test]
    fn a_sum_is_of_an_amount_of_the_call() {
        let check = |amounts: Value, argument: &str, expected: Option<&str>| {
            let question =
                json!({"you_may_decide": true, "you_may_grant_for": "always", "grant_amounts": amounts});
            let sum_a_day = Some(format!("{argument}=50.5").parse().unwrap());
            let terms = LastingTerms { days: Some(7), calls_a_day: Some(3), sum_a_day };
            let typed = TypedDecision { decision: PersonDecision::AllowLasting, terms };
            assert_eq!(typed.objection(&question).as_deref(), expected, "{question}");
            let words = format!(
                "allow this call, and equal ones of all conversations for 7 days, at most 3 calls a day, with any {} up to a sum of 50.5 a day",
                escaping::line(argument)
            );
            assert_eq!(typed.words(), words);
        };
        check(json!(["amount", "fee"]), "fee", None);
        let no_amount = "that the policy declares as an amount and whose value is a number";
        let other = format!("the call has no argument `to` {no_amount}: --sum-a-day can name amount, fee");
        check(json!(["amount", "fee"]), "to", Some(&other));
        let none = format!("the call has no argument `a\\u{{1b}}` {no_amount}: leave out --sum-a-day");
        check(json!([]), "a\u{1b}", Some(&none));
    }

    #[test]
    fn an_objection_names_the_approvals_that_count() {
        use PersonDecision::{AllowForConversation, AllowLasting, AllowOnce, Deny};
        let question = |has_approved: bool, may_allow: bool| {
            json!({
                "approvers": ["ann", "bob\u{1b}"], "approved_by": ["ann"], "you_may_decide": true, "you_may_grant": false,
                "you_may_allow": may_allow, "you_have_approved": has_approved,
            })
        };
        let check = |question: &Value, decision: PersonDecision, expected: Option<&str>| {
            let objection = TypedDecision::from(decision).objection(question);
            assert_eq!(objection.is_some(), expected.is_some(), "{decision:?} {objection:?}");
            let (objection, expected) = (objection.unwrap_or_default(), expected.unwrap_or_default());
            assert!(objection.contains(expected), "{decision:?} {objection}");
        };
        let approved = "you have approved this question already: it waits for the approval of bob\\u{1b}; you may still deny it";
        check(&question(true, false), AllowOnce, Some(approved));
        let other = "needs the approval of ann, bob\\u{1b}, and you are not one of them";
        check(&question(false, false), AllowOnce, Some(other));
        check(&question(false, true), AllowOnce, None);
        for decision in [AllowForConversation, AllowLasting] {
            check(&question(false, true), decision, Some("is answered for one call only"));
        }
        check(&question(true, false), Deny, None);
    }
}
