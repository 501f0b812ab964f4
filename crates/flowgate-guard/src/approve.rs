//! Defines approvals: where the policy neither permits nor denies a call, a person is asked whether the call may run,
//! and decides (line 10 of Algorithm 4 of the paper RTBAS). A [conversation](crate::conversation) creates the
//! [`ApprovalRequest`], and its driver passes the request to an [`Approver`], which returns a [`Decision`]. A
//! [`QuestionBudget`] limits the questions, and a [`DigestKey`] computes the digests that identify calls.
//!
//! An approval applies to one call with exactly these arguments, once, for exactly the reasons that the person was
//! shown, and until it expires. The monitor judges the call again when the decision arrives; if it then denies the
//! call, the call does not run in spite of the approval. A question without an answer counts as refused.

mod question_budget;

use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

use flowgate::label::Label;
use flowgate::monitor::{PersonDecision, Question, Reason};
use flowgate::policy::GrantScope;
use flowgate::trace::{Call, Region, Tool};
use flowgate_lm::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

pub use question_budget::{BudgetedApprover, QuestionBudget, QuestionCount};

/// A question to a person about one call.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// The tool.
    pub tool: Tool,
    /// The arguments as they would run.
    pub arguments: Value,
    /// The label of the call, one phrase for each dimension.
    pub label: Vec<String>,
    /// The label of the question itself: readers who are not cleared for it must not learn that the question exists.
    pub decided: Label,
    /// In a few sentences, what the call would do, who may have chosen it, and what it would disclose. Quotes
    /// arguments.
    pub summary: String,
    /// For each value that untrusted text may have chosen, where it was found: in a message of the user, in a trusted
    /// answer, or only elsewhere.
    pub evidence: Vec<String>,
    /// Why the call is not simply permitted.
    pub reasons: Vec<Reason>,
    /// The regions that contributed the label, with their text.
    pub excerpts: Vec<Excerpt>,
    /// The keyed digest of the tool and these arguments; reveals nothing of them without the key.
    pub digest: String,
    /// A digest of the external state that the call refers to. A decision on the same call in another state does not
    /// apply to this one.
    pub state: String,
    /// The join of the labels of the call, the reasons and the excerpts, by the names of its elements: a reader must
    /// be cleared for it.
    pub carries: Value,
    /// The label of each reason, by the names of its elements.
    pub reasons_carry: Vec<Value>,
    /// The people who must all approve, sorted; empty if the approval of any person suffices.
    pub approvers: Vec<String>,
    /// The longest grant that the policy lets a person give in answer.
    pub grant_scope: GrantScope,
    /// The arguments whose values may differ in the further calls that a grant covers.
    pub changeable: Vec<String>,
    /// How long the question stays open.
    pub expires: Duration,
    /// The number of equal calls in the model's message, from this one on: a person can answer for all of them.
    pub times: usize,
    /// The questions about further calls of the same message, as far as they can be foreseen, so that a person can
    /// decide on all of them at once. A reader who may know of one of these questions may also know of this one. The
    /// question about a further call is asked when that call is judged: by then it may have other reasons, or need not
    /// be asked any more.
    pub upcoming: Vec<Self>,
}

impl ApprovalRequest {
    /// Returns whether the policy lets a person answer for the rest of the conversation.
    pub fn is_grantable(&self) -> bool {
        self.grant_scope >= GrantScope::Conversation
    }

    /// Whether the other question is about an equal call with equal labels, for equal reasons, with the same excerpts
    /// and in the same external state. The positions of the two calls in the trace, and how often they are made, may
    /// differ.
    #[must_use]
    pub fn is_same_question(&self, other: &Self) -> bool {
        self.is_about_same_call(other) && self.texts() == other.texts()
    }

    /// Whether `later` is the same question as this one, asked after other calls of the same message of the model have
    /// run. `later` may have further excerpts, from the answers of those calls. They are ignored: the model wrote all
    /// calls of the message before it saw any of these answers, so the answers have not influenced the call.
    #[must_use]
    pub fn is_same_question_after_answers(&self, later: &Self) -> bool {
        let later_texts = later.texts();
        self.is_about_same_call(later) && self.texts().iter().all(|text| later_texts.contains(text))
    }

    /// Returns whether the other question is about an equal call with equal labels, for equal reasons, in the same
    /// external state and for the same people.
    fn is_about_same_call(&self, other: &Self) -> bool {
        // Events and regions are positions in the trace, so the comparison ignores them.
        let reasons = |request: &Self| -> Vec<Reason> {
            let reasons = request.reasons.iter().cloned();
            reasons.map(|reason| Reason { events: Vec::new(), regions: Vec::new(), ..reason }).collect()
        };
        self.digest == other.digest
            && (&self.tool, &self.arguments, &self.label, self.decided, &self.state, &self.carries)
                == (&other.tool, &other.arguments, &other.label, other.decided, &other.state, &other.carries)
            && self.approvers == other.approvers
            && reasons(self) == reasons(other)
    }

    /// Returns the label and the text of each excerpt, without its position in the trace.
    fn texts(&self) -> Vec<(&[String], &str)> {
        let excerpts = self.excerpts.iter();
        excerpts.map(|excerpt| (excerpt.label.as_slice(), excerpt.text.as_str())).collect()
    }
}

/// Text that influenced a call, or that would leave with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The region of the text.
    pub region: Region,
    /// What the text is part of: `the answer of read_mail`, `a message of the user`.
    pub source: String,
    /// Its label, one phrase for each dimension in which the label exceeds the requirement.
    pub label: Vec<String>,
    /// The beginning of the text.
    pub text: String,
}

/// The decision on a call that needs approval, as its conversation receives it: what a person decided, or why there is
/// no decision. It differs from a [`PersonDecision`] in two ways: it has no lasting grants, because a conversation does
/// not know them, and it has variants for a question that no person has answered.
///
/// The list is exhaustive on purpose: a program has to act on each decision. Some variants are serialized by a name
/// that they had in an earlier version, so that old journals stay readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call may run, once.
    #[serde(rename = "allow", alias = "allow_once")]
    AllowOnce,
    /// The call may run, and so may equal calls of this conversation: see
    /// [`Monitor::approve_for_session`](flowgate::monitor::Monitor::approve_for_session). If the question is not
    /// [grantable](ApprovalRequest::is_grantable), the call may run once.
    AllowForConversation,
    /// The call may run, once: everybody whom [`ApprovalRequest::approvers`] names has approved it. Only a program that
    /// records which person gave each approval may pass this variant. [`AllowOnce`](Self::AllowOnce) is the approval of
    /// one unnamed person, which does not suffice for such a call.
    AllowByAll,
    /// The call must not run.
    #[serde(rename = "refuse", alias = "deny")]
    Deny,
    /// No decision arrived in time.
    #[serde(rename = "silent", alias = "unanswered")]
    Unanswered,
    /// No person was asked, because a limit on questions was reached, such as a [`QuestionBudget`].
    Unasked,
    /// No decision has arrived yet: the turn [ends](crate::conversation::TurnEnd::Asked), and continues after the
    /// decision.
    #[serde(rename = "later", alias = "undecided")]
    Undecided,
}

/// A person's decision, as the conversation of the call receives it. A lasting grant allows this call once: the program
/// that keeps the grants answers the further calls.
impl From<PersonDecision> for Decision {
    fn from(decision: PersonDecision) -> Self {
        match decision {
            // The gateway stores a lasting grant, which answers later questions; this call is allowed once.
            PersonDecision::AllowOnce | PersonDecision::AllowLasting => Self::AllowOnce,
            PersonDecision::AllowForConversation => Self::AllowForConversation,
            PersonDecision::Deny => Self::Deny,
        }
    }
}

impl Decision {
    /// Whether the call may run.
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowForConversation | Self::AllowByAll)
    }
}

/// A party that decides on calls.
pub trait Approver: Send {
    /// Decides on a call. May take until the question expires.
    fn decide<'a>(&'a mut self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision>;
}

/// Refuses every call, for use without an approver.
#[derive(Debug, Clone, Copy, Default)]
pub struct DenyingApprover;

impl Approver for DenyingApprover {
    /// Denies the call without asking anybody.
    fn decide<'a>(&'a mut self, _: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(ready(Decision::Deny))
    }
}

/// A function as an approver. It may block the thread that drives the agent.
impl<F: FnMut(&ApprovalRequest) -> Decision + Send> Approver for F {
    fn decide<'a>(&'a mut self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(ready(self(request)))
    }
}

/// The key for digests of calls. Without it, the input of a digest cannot be found by trial.
#[derive(Clone)]
pub struct DigestKey([u8; 32]);

impl Debug for DigestKey {
    /// Does not write the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

impl DigestKey {
    /// Creates a key from random bytes that the caller provides.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns a value that cannot be guessed without the key, different for each number. It marks the regions that a
    /// screener judges, so that no text in the chat can forge the marks.
    pub(crate) fn nonce(&self, number: usize) -> String {
        let mut digest = self.mac(format!("nonce {number}").as_bytes());
        digest.truncate(16);
        digest
    }

    /// Returns a short keyed digest of a text, 8 hexadecimal digits, which reveals nothing of it without the key.
    pub fn text_digest(&self, text: &str) -> String {
        let mut digest = self.mac(format!("text {text}").as_bytes());
        digest.truncate(8);
        digest
    }

    /// Returns the HMAC-SHA256 of bytes under this key, in hexadecimal. The callers begin `bytes` differently (`nonce`,
    /// `text` or a JSON list), so that no input for one purpose is an input for another.
    fn mac(&self, bytes: &[u8]) -> String {
        // HMAC accepts a key of any length, so the empty result is never returned.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(bytes);
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the digest of the call that a question is about; empty if the question has no call.
    pub(crate) fn digest(&self, question: &Question) -> String {
        question.call().map(|call| self.digest_of(call)).unwrap_or_default()
    }

    /// Returns the digest of a call: of its tool and of its parsed arguments, in the order in which they were written.
    /// Arguments that could not be parsed count as no arguments.
    pub(crate) fn digest_of(&self, call: &Call) -> String {
        let arguments = call.arguments.as_ref().cloned().unwrap_or_default();
        let (server, name) = (call.tool.server.as_deref(), &*call.tool.name);
        let text = serde_json::json!([server, name, arguments]).to_string();
        self.mac(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: the decision, its name in journals, another name that is read as the decision, and whether the call may
    /// run.
    #[test]
    fn journals_keep_the_names_of_decisions() {
        for (decision, stored, other, allows) in [
            (Decision::AllowOnce, "allow", "allow_once", true),
            (Decision::AllowForConversation, "allow_for_conversation", "allow_for_conversation", true),
            (Decision::AllowByAll, "allow_by_all", "allow_by_all", true),
            (Decision::Deny, "refuse", "deny", false),
            (Decision::Unanswered, "silent", "unanswered", false),
            (Decision::Unasked, "unasked", "unasked", false),
            (Decision::Undecided, "later", "undecided", false),
        ] {
            assert_eq!(serde_json::to_value(decision).unwrap(), Value::from(stored));
            for name in [stored, other] {
                assert_eq!(
                    serde_json::from_value::<Decision>(Value::from(name)).unwrap(),
                    decision,
                    "{name}"
                );
            }
            assert_eq!(decision.allows(), allows, "{stored}");
        }
        for decision in PersonDecision::ALL {
            assert_eq!(Decision::from(decision).allows(), decision.allows(), "{decision:?}");
        }
    }

    #[test]
    fn a_digest_is_of_the_tool_and_of_all_its_arguments() {
        let (key, other) = (DigestKey::new([1; 32]), DigestKey::new([2; 32]));
        let digest = |key: &DigestKey, server: Option<&str>, name: &str, arguments: &str| {
            let tool = server.map_or_else(|| Tool::local(name), |server| Tool::of(server, name));
            key.digest_of(&Call::from_json("c1", tool, arguments))
        };
        let one = digest(&key, Some("bank"), "pay", r#"{"to":"bob","amount":1}"#);
        assert_eq!(one, digest(&key, Some("bank"), "pay", r#"{ "to": "bob", "amount": 1 }"#));
        for (what, another) in [
            ("the key", digest(&other, Some("bank"), "pay", r#"{"to":"bob","amount":1}"#)),
            ("the server", digest(&key, Some("mail"), "pay", r#"{"to":"bob","amount":1}"#)),
            ("no server", digest(&key, None, "pay", r#"{"to":"bob","amount":1}"#)),
            ("the tool", digest(&key, Some("bank"), "send", r#"{"to":"bob","amount":1}"#)),
            ("a value", digest(&key, Some("bank"), "pay", r#"{"to":"bob","amount":2}"#)),
            ("a name", digest(&key, Some("bank"), "pay", r#"{"from":"bob","amount":1}"#)),
            ("one more", digest(&key, Some("bank"), "pay", r#"{"to":"bob","amount":1,"now":true}"#)),
            ("none", digest(&key, Some("bank"), "pay", "{}")),
        ] {
            assert_ne!(one, another, "{what}");
        }
    }
}
