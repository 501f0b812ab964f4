//! Decides whether a token authenticates a client of the configuration (`[clients.NAME.token]`), and identifies the
//! *caller*: the subject of the token, with the claims that the client's policy reads as `input.NAME`.
//! `chat::token_authentication` calls it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::issuer::Issuer;
use super::token::{TokenClaims, TokenRefusal};
use crate::approvals::clearance::GROUP;
use crate::random;

/// The longest subject, in bytes.
const MAX_SUBJECT: usize = 256;
/// The longest string in a claim that a policy reads, in bytes.
const MAX_TEXT: usize = 256;
/// The most strings in such a claim.
const MAX_TEXTS: usize = 256;
/// The most characters of a subject that are shown in the names of conversations.
const SHOWN: usize = 32;

/// The parameter of a policy with the groups of the caller, each as the name of a reader.
pub(crate) const GROUPS: &str = "groups";

/// The prefix of the ids of callers with tokens. No id of a virtual key begins with it.
const PREFIX: &str = "jwt-";

/// The section `[clients.NAME.token]`.
#[derive(Debug, Clone)]
pub(crate) struct ClientToken {
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) audience: String,
    /// The required values of claims, by the names of the claims.
    pub(crate) claims: BTreeMap<String, Value>,
    /// The claim that names the subject.
    pub(crate) subject: String,
    /// The claim with the groups of the caller, which the policy reads as the parameter [`GROUPS`].
    pub(crate) groups: Option<String>,
    /// The claims that the policy reads, by the names of its parameters.
    pub(crate) input: BTreeMap<String, String>,
    /// The most requests of one subject in a minute.
    pub(crate) requests_per_minute: Option<u32>,
    /// The most tokens that the models of one subject may use on one day.
    pub(crate) tokens_per_day: Option<u64>,
}

/// The subject that has sent a request with a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenCaller {
    /// The id that separates the caller's conversations from others. It depends on the issuer, on the subject and on
    /// the parameters of the policy, so that no conversation continues under other parameters.
    pub(crate) id: String,
    /// The id by which the caller's requests are counted. It depends on the issuer and the subject alone.
    pub(crate) account: String,
    /// The parameters of the policy.
    pub(crate) input: Map<String, Value>,
}

/// Returns whether this is the id of a caller with a token, and not of a virtual key.
pub(crate) fn is_caller_id(id: &str) -> bool {
    id.starts_with(PREFIX)
}

impl ClientToken {
    /// Returns whether a verified token authenticates the client: it has the audience and all required claims.
    pub(crate) fn accepts(&self, claims: &TokenClaims) -> bool {
        claims.is_for(&self.audience)
            && self.claims.iter().all(|(name, required)| match claims.get(name) {
                // A claim with a list must contain the required value, unless that is a list too. Any other claim must
                // equal the required value.
                Some(Value::Array(all)) if !required.is_array() => all.contains(required),
                Some(value) => value == required,
                None => false,
            })
    }

    /// Returns the caller of a request with a token that this client accepts. Its `account` depends on the issuer and
    /// the subject, its `id` also on the parameters of the policy.
    ///
    /// # Errors
    /// If the subject or a claim that the policy reads has an unsuitable JSON type or is too long.
    pub(crate) fn caller(&self, claims: &TokenClaims) -> Result<TokenCaller, TokenRefusal> {
        let subject = claims.text(&self.subject).filter(|text| !text.is_empty() && text.len() <= MAX_SUBJECT);
        let subject = subject.ok_or(TokenRefusal::Subject)?;
        let mut input = Map::new();
        for (parameter, claim) in &self.input {
            // Without the claim, the parameter is missing, and every statement of the policy that needs it fails.
            let Some(value) = claims.get(claim) else { continue };
            input.insert(parameter.clone(), parameter_value(value).ok_or(TokenRefusal::Input)?);
        }
        if let Some(claim) = &self.groups {
            input.insert(GROUPS.to_owned(), Self::group_parameter(claims, claim)?);
        }
        let issuer = &self.issuer.settings.issuer;
        // The beginning of the subject, for people who read names of conversations; `_` replaces unusual characters.
        let readable_start: String = subject
            .chars()
            .take(SHOWN)
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@') { c } else { '_' })
            .collect();
        // The digest of the parts distinguishes callers whose subjects have the same beginning.
        let id_of = |parts: Value| {
            let digest = Sha256::digest(parts.to_string());
            let digest = digest.first_chunk::<16>().copied().unwrap_or_default();
            format!("{PREFIX}{readable_start}-{}", random::hex(&digest))
        };
        Ok(TokenCaller {
            id: id_of(serde_json::json!([issuer, subject, input])),
            account: id_of(serde_json::json!([issuer, subject])),
            input,
        })
    }

    /// Returns the value of the parameter [`GROUPS`]: the names of the groups in the claim `claim`, each after
    /// [`GROUP`].
    fn group_parameter(claims: &TokenClaims, claim: &str) -> Result<Value, TokenRefusal> {
        let groups = match claims.get(claim).map(parameter_value) {
            // A caller without the claim is in no group.
            None => Vec::new(),
            Some(Some(Value::Array(groups))) => groups,
            Some(_) => return Err(TokenRefusal::Input),
        };
        Ok(groups.iter().filter_map(Value::as_str).map(|group| format!("{GROUP}{group}")).collect())
    }
}

/// Converts a claim to a parameter of the policy: a string, a number, a boolean or a list of strings. `None` if the
/// claim is none of these, or too long.
fn parameter_value(claim: &Value) -> Option<Value> {
    let is_short = |value: &Value| value.as_str().is_some_and(|text| text.len() <= MAX_TEXT);
    match claim {
        Value::String(_) => is_short(claim).then(|| claim.clone()),
        Value::Bool(_) | Value::Number(_) => Some(claim.clone()),
        Value::Array(all) if all.len() <= MAX_TEXTS && all.iter().all(is_short) => {
            // The order of a list of groups means nothing, and must not separate conversations.
            let mut texts: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts.dedup();
            Some(texts.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_short_texts_and_lists_of_them() {
        let check = |claim: Value, expected: Option<Value>| {
            assert_eq!(parameter_value(&claim), expected, "{claim}");
        };
        let same = |value: Value| check(value.clone(), Some(value));
        same(json!("a"));
        same(json!(""));
        same(json!(true));
        same(json!(1.5));
        same(json!([]));
        check(json!(["b", "a", "b"]), Some(json!(["a", "b"])));
        check(json!("x".repeat(MAX_TEXT)), Some(json!("x".repeat(MAX_TEXT))));
        check(json!("x".repeat(MAX_TEXT + 1)), None);
        check(json!(vec!["x"; MAX_TEXTS + 1]), None);
        check(json!(["x".repeat(MAX_TEXT + 1)]), None);
        check(json!([1]), None);
        check(json!([["a"]]), None);
        check(json!({"a": 1}), None);
        check(json!(null), None);
    }
}
