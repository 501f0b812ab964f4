//! Confirmation: a person decides on a call that the policy neither permits nor forbids (RTBAS, Algorithm 4, line 10).
//!
//! What is approved is one call with exactly these arguments, once, for exactly the reasons that the person was told,
//! and until it expires. The monitor judges again when the answer comes, and deny wins. No answer is a no.

use std::fmt::Debug;
use std::time::Duration;

use flowgate::label::Label;
use flowgate::monitor::{Question, Reason};
use flowgate::trace::{Call, Region, Tool};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

/// What a person is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The tool.
    pub tool: Tool,
    /// Its arguments, as they would run.
    pub arguments: Value,
    /// What the call carries, one phrase for each dimension.
    pub label: Vec<String>,
    /// What the question itself carries: who may not see this much must not learn that it is asked.
    pub decided: Label,
    /// Why the call is not simply permitted.
    pub reasons: Vec<Reason>,
    /// What brought the label in, with its text.
    pub excerpts: Vec<Excerpt>,
    /// Stands for the tool and these arguments, and tells nothing of them to who lacks the key.
    pub digest: String,
    /// Stands for the state that the call refers to. An answer to the same question about another state is none to this one.
    pub state: String,
    /// What the call, the reasons and the excerpts carry together, in names: whoever reads them has to be cleared for that.
    pub carries: Value,
    /// What each reason carries, in names.
    pub reasons_carry: Vec<Value>,
    /// How long the question stands.
    pub expires: Duration,
}

/// Text that influenced a call, or that would leave with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Where it stands.
    pub region: Region,
    /// Its label, in the dimensions that exceed the requirement.
    pub label: Vec<String>,
    /// Its beginning.
    pub text: String,
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run, once.
    Allow,
    /// It must not.
    Refuse,
    /// Nobody answered in time.
    Silent,
    /// Nobody could be asked, since too many questions are open already.
    Unasked,
    /// Nobody has answered yet: the turn [ends](crate::conversation::Ended::Asked), and goes on when somebody has.
    Later,
}

/// Somebody who decides.
pub trait Approver {
    /// Decides on a call. It may take as long as the question stands.
    fn decide(&mut self, ask: &Ask) -> Decision;
}

/// Nobody is there: every question is a no.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deny;

impl Approver for Deny {
    fn decide(&mut self, _: &Ask) -> Decision {
        Decision::Refuse
    }
}

/// A function decides.
impl<F: FnMut(&Ask) -> Decision> Approver for F {
    fn decide(&mut self, ask: &Ask) -> Decision {
        self(ask)
    }
}

/// The key by which digests of calls are made. Without it, nobody can find out by trying what a digest stands for.
#[derive(Clone)]
pub struct DigestKey([u8; 32]);

impl Debug for DigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

impl DigestKey {
    /// A key of random bytes, which the caller brings along.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Something that nobody can guess who lacks the key, another one for each number.
    pub(crate) fn nonce(&self, number: usize) -> String {
        let mut digest = self.mac(format!("nonce {number}").as_bytes());
        digest.truncate(16);
        digest
    }

    /// Stands for a text, and tells nothing of it.
    pub(crate) fn nonce_of(&self, text: &str) -> String {
        let mut digest = self.mac(format!("text {text}").as_bytes());
        digest.truncate(8);
        digest
    }

    fn mac(&self, bytes: &[u8]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(bytes);
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest of a call: of its tool and the canonical print of its arguments.
    pub(crate) fn digest(&self, question: &Question) -> String {
        question.call().map(|call| self.digest_of(call)).unwrap_or_default()
    }

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
