//! Reads from a verified ID token who has logged in at the issuer of `[login.oidc]` ([`LoginIdentity`]). `login` calls
//! it, and `approvals::people` finds the person with this identity in the configuration.

use std::time::SystemTime;

use serde_json::Value;

use super::token::TokenClaims;
use crate::approvals::clearance::GROUP;
use crate::config::LoginSettings;

/// The longest name, group or subject, in bytes.
const MAX_TEXT: usize = 256;
/// The most groups of a person.
const MAX_GROUPS: usize = 1_000;

/// A person as the issuer describes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginIdentity {
    /// The issuer (`iss`).
    pub(crate) issuer: String,
    /// The subject (`sub`), by which the issuer knows the person.
    pub(crate) subject: String,
    /// The name under which the decisions of the person are recorded.
    pub(crate) name: String,
    /// The groups of the person.
    pub(crate) groups: Vec<String>,
    /// When the ID token expires.
    pub(crate) expires: SystemTime,
}

impl LoginIdentity {
    /// Reads the identity from the claims of a verified ID token.
    ///
    /// # Errors
    /// Which claim is missing or cannot be used, as a sentence for the operator's log.
    pub(crate) fn read(claims: &TokenClaims, settings: &LoginSettings) -> Result<Self, String> {
        let LoginSettings { name_claim, groups_claim, issuer, .. } = settings;
        let subject = claims.text("sub").filter(|text| is_usable(text));
        let subject = subject
            .ok_or(
                "the ID token has no `sub` of at most 256 printable bytes: correct the subject at the issuer",
            )?
            .to_owned();
        let name = claims.text(name_claim).filter(|text| is_usable(text));
        let name = name.ok_or_else(|| {
            format!("the ID token has no string of at most 256 printable bytes in the claim `{name_claim}`: name another claim with `name-claim` in [login.oidc]")
        })?;
        // An issuer may let people enter any address; `email_verified` is then not true.
        if name_claim == "email" && claims.get("email_verified").and_then(Value::as_bool) != Some(true) {
            return Err(
                "the issuer has not verified the address in `email`, which `name-claim` names: let it verify \
                the address, or name another claim"
                    .to_owned()
            );
        }
        // Lists of readers mark groups by this prefix.
        if name.starts_with(GROUP) {
            return Err(format!(
                "the name of the person begins with `{GROUP}`, as the names of groups do: name another claim \
                in `name-claim`"
            ));
        }
        let groups = Self::read_groups(claims, groups_claim)?;
        let issuer = issuer.settings.issuer.clone();
        Ok(Self { issuer, subject, name: name.to_owned(), groups, expires: claims.expires })
    }

    /// Reads the groups of the person from the claim `groups_claim`; a token without the claim names no groups.
    fn read_groups(claims: &TokenClaims, groups_claim: &str) -> Result<Vec<String>, String> {
        match claims.get(groups_claim) {
            None => Ok(Vec::new()),
            Some(Value::Array(all)) if all.len() <= MAX_GROUPS => {
                let groups = all.iter().map(|group| group.as_str().filter(|text| is_usable(text)));
                // `None` if one of the groups is not usable.
                let groups: Option<Vec<&str>> = groups.collect();
                let groups = groups.ok_or_else(|| {
                    format!(
                        "a group in the claim `{groups_claim}` is not a string of at most 256 printable bytes: rename the group at the issuer"
                    )
                })?;
                Ok(groups.into_iter().map(str::to_owned).collect())
            }
            Some(_) => Err(format!(
                "the claim `{groups_claim}` is not a list of at most 1,000 groups: name another claim with `groups-claim` in [login.oidc]"
            )),
        }
    }

    /// Returns the groups of the person as principals of a lattice of readers, such as `group:finance`.
    pub(crate) fn group_principals(&self) -> impl Iterator<Item = String> {
        self.groups.iter().map(|group| format!("{GROUP}{group}"))
    }
}

/// Returns whether a string of an issuer may name a person or a group: it has 1 to [`MAX_TEXT`] bytes, no spaces around
/// it, and no invisible characters, by which two different names could look equal.
fn is_usable(text: &str) -> bool {
    // Characters of no width, and those that change the direction of the text after them.
    let is_invisible = |c: char| {
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    !text.is_empty()
        && text.len() <= MAX_TEXT
        && text.trim() == text
        && !text.chars().any(|c| c.is_control() || is_invisible(c))
}
