//! Finds the person who sends a request, by the key that the request carries or by a login at an issuer, and decides
//! which freezes that person may see. [`People`] also has the owner, the policy and the tenant of each client, which
//! decisions on questions need: the owner is the person for whom the client works, and must not decide its questions.
//! [`ApprovalService`](super::ApprovalService) owns the [`People`]; the start of the gateway and each reload build them
//! from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use flowgate::policy::Policy;

use crate::config::{ClientSettings, LoginSettings, Person};
use crate::database::FreezeKind;
use crate::identity::login_identity::LoginIdentity;

/// All people, and the owners, policies and tenants of clients.
#[derive(Debug, Default)]
pub(crate) struct People {
    people: Vec<Arc<Person>>,
    /// The settings for logins at an issuer (`[login.oidc]`), if the configuration has them.
    login: Option<LoginSettings>,
    /// Pairs of a client's name and the name of its owner, the person for whom it asks.
    owners: Vec<(String, String)>,
    /// The policy of each client.
    policies: BTreeMap<String, Arc<Policy>>,
    /// The tenant of each client.
    tenants: BTreeMap<String, String>,
    /// The digest of the policy and settings of each client.
    fingerprints: BTreeMap<String, String>,
}

impl People {
    /// Collects the people, and from each client what decisions on its questions need: its owner, its policy, its
    /// tenant, and the digest of its policy and settings (a lasting grant is valid only under the digest under which it
    /// was given). `login` are the settings of logins at an issuer; `None` if the configuration has none.
    pub(crate) fn new(people: Vec<Person>, login: Option<LoginSettings>, clients: &[ClientSettings]) -> Self {
        let owner = |client: &ClientSettings| Some((client.name.clone(), client.owner.clone()?));
        let policies = clients.iter().map(|client| (client.name.clone(), Arc::clone(&client.policy)));
        let tenants = clients.iter().map(|client| (client.name.clone(), client.tenant.clone()));
        let owners = clients.iter().filter_map(owner).collect();
        let fingerprints =
            clients.iter().map(|client| (client.name.clone(), client.config_fingerprint.clone()));
        Self {
            people: people.into_iter().map(Arc::new).collect(),
            login,
            owners,
            policies: policies.collect(),
            tenants: tenants.collect(),
            fingerprints: fingerprints.collect(),
        }
    }

    /// Returns whether a person may see the freeze of the target `what` of this kind. Freezes of tools and servers are
    /// visible to all people; other freezes concern one client and are visible to the people of its tenant.
    pub(crate) fn sees_freeze(&self, person: &Person, kind: FreezeKind, what: &str) -> bool {
        // The tenant of the client that the name begins with; `None` if the configuration has no such client.
        let tenant = match kind {
            FreezeKind::Tool | FreezeKind::Server => return true,
            FreezeKind::Client => self.tenants.get(what),
            // The name is CLIENT:LINE-DIGEST.
            FreezeKind::Consent => what.rsplit_once(':').and_then(|(client, _)| self.tenants.get(client)),
            // The name is CLIENT/CONVERSATION. The name of a client may contain a slash, so every slash is tried.
            FreezeKind::Conversation | FreezeKind::Grants => {
                let mut client_names = what.match_indices('/').filter_map(|(at, _)| what.get(..at));
                client_names.find_map(|client| self.tenants.get(client))
            }
        };
        // A person without a list of tenants sees all tenants, and also the freezes of removed clients.
        person.tenants.is_empty() || tenant.is_some_and(|tenant| person.sees_tenant(tenant))
    }

    /// Returns the policy of a client; `None` if the configuration has no such client.
    pub(crate) fn policy(&self, client: &str) -> Option<&Arc<Policy>> {
        self.policies.get(client)
    }

    /// Returns the digest of the policy and settings of a client; `None` if the configuration has no such client.
    pub(crate) fn config_fingerprint(&self, client: &str) -> Option<&str> {
        self.fingerprints.get(client).map(String::as_str)
    }

    /// Returns whether any person may decide questions of a client: one of the configuration, or the people of a group
    /// who log in at the issuer.
    pub(crate) fn can_decide_for(&self, client: &ClientSettings) -> bool {
        let mut groups = self.login.iter().flat_map(|login| &login.groups);
        self.people.iter().any(|person| person.decides_for(&client.tenant, client.owner.as_deref()))
            || groups.any(|group| group.decides_for(&client.tenant))
    }

    /// Returns the name of the person for whom a client asks; `None` if the client has no owner.
    pub(crate) fn owner(&self, client: &str) -> Option<&str> {
        self.owners.iter().find(|(name, _)| name == client).map(|(_, owner)| owner.as_str())
    }

    /// Returns the settings for logins at an issuer, if the configuration has them.
    pub(crate) fn login(&self) -> Option<&LoginSettings> {
        self.login.as_ref()
    }

    /// Returns the person who has logged in at the issuer with this identity. If a person of the configuration has the
    /// subject of the identity, this person is returned. Otherwise a person is created, with the role and the tenants
    /// that `[login.oidc.groups]` gives to a group of the identity; if several of its groups are listed, the group with
    /// the greatest role counts.
    ///
    /// # Errors
    /// Why the person may not use the page, as a sentence for the operator's log.
    pub(crate) fn find_logged_in(&self, identity: &LoginIdentity) -> Result<Arc<Person>, String> {
        let login = self.login.as_ref().filter(|login| login.issuer.settings.issuer == identity.issuer);
        let login = login.ok_or(
            "the person logged in at an issuer that [login.oidc] no longer names, and has to log in again",
        )?;
        let has_subject = |person: &&Arc<Person>| person.subject.as_deref() == Some(&identity.subject);
        // The names that replace `*` in the person's `may-read`: the name of the person and those of the person's
        // groups.
        let principals = |name: &str| -> Vec<String> {
            std::iter::once(name.to_owned()).chain(identity.group_principals()).collect()
        };
        if let Some(person) = self.people.iter().find(has_subject) {
            let may_read = person.may_read.with_principals(&principals(&person.name));
            return Ok(Arc::new(Person { may_read, ..Person::clone(person) }));
        }
        // The groups of the configuration are sorted by role, the greatest first.
        let Some(group) = login.groups.iter().find(|group| identity.groups.contains(&group.group)) else {
            return Err(format!(
                "the person has no role: neither a section [people.NAME] with this subject nor a group of [login.oidc.groups] fits the ID token (number of groups in it: {}): write such a section or group",
                identity.groups.len()
            ));
        };
        // Records and the owners of clients name people by this name, so two people must not share one.
        if self.find_by_name(&identity.name).is_some() {
            return Err("the name in the ID token is also the name of another person in the configuration: if they are the same person, write the `sub` of the ID token as `subject` in [people.NAME]; if not, rename that section".to_owned());
        }
        Ok(Arc::new(Person {
            name: identity.name.clone(),
            key: None,
            subject: Some(identity.subject.clone()),
            role: group.role,
            tenants: group.tenants.clone(),
            may_read: group.may_read.with_principals(&principals(&identity.name)),
        }))
    }

    /// Returns the person with this name in the configuration.
    pub(crate) fn find_by_name(&self, name: &str) -> Option<&Arc<Person>> {
        self.people.iter().find(|person| person.name == name)
    }

    /// Returns the names of the people whose sessions have to end because the configuration was reloaded: in `later`,
    /// the people of the reloaded configuration, they have another key or no longer exist.
    pub(super) fn revoked_in<'p>(&'p self, later: &'p Self) -> impl Iterator<Item = &'p str> {
        let is_revoked = |person: &&Arc<Person>| {
            later.find_by_name(&person.name).is_none_or(|changed| changed.key != person.key)
        };
        self.people.iter().filter(is_revoked).map(|person| person.name.as_str())
    }

    /// Returns the person whose key a request carries as its bearer token; `None` if no person has the key, or the
    /// request has no such header, or several, which could name different people.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<Arc<Person>> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        // The pattern `None` requires that there is no second header.
        let (value, None) = (values.next()?, values.next()) else { return None };
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // All keys are compared, so that the time does not reveal which one is close.
        let found = self.people.iter().fold(None, |found, person| {
            let is_own = person.key.as_ref().is_some_and(|own| own.matches(key.trim().as_bytes()));
            if is_own { Some(person) } else { found }
        });
        found.map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::clearance::Clearance;
    use super::*;
    use crate::config::Role;
    use crate::secret::Secret;

    #[test]
    fn people_without_their_key_are_revoked() {
        let people = |keys: &[(&str, &str)]| {
            let person = |(name, key): &(&str, &str)| Person {
                name: (*name).to_owned(),
                key: Some(Secret::new(*key)),
                subject: None,
                role: Role::Viewer,
                tenants: Vec::new(),
                may_read: Clearance::default(),
            };
            People { people: keys.iter().map(person).map(Arc::new).collect(), ..People::default() }
        };
        let (before, later) =
            (people(&[("a", "1"), ("b", "2"), ("c", "3")]), people(&[("c", "3"), ("b", "1"), ("d", "4")]));
        assert_eq!(before.revoked_in(&later).collect::<Vec<_>>(), ["a", "b"]);
    }

    /// A person with tenants sees the freezes of the tenants' clients, but not those of removed clients.
    #[test]
    fn freezes_are_seen_by_the_tenant_of_their_client() {
        let tenants = [("agent", "mail"), ("a/b", "bank")];
        let tenants = tenants.map(|(client, tenant)| (client.to_owned(), tenant.to_owned()));
        let people = People { tenants: tenants.into(), ..People::default() };
        let check = |tenants: &[&str], kind: &str, what: &str, expected: bool| {
            let kind: FreezeKind = serde_json::from_value(kind.into()).unwrap();
            let tenants = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
            let (name, may_read) = ("ann".to_owned(), Clearance::default());
            let person = Person { name, key: None, subject: None, role: Role::Viewer, tenants, may_read };
            assert_eq!(people.sees_freeze(&person, kind, what), expected, "{kind:?} {what}");
        };
        check(&[], "client", "agent", true);
        check(&[], "client", "gone", true);
        check(&["mail"], "client", "agent", true);
        check(&["mail"], "client", "gone", false);
        check(&["bank"], "client", "agent", false);
        check(&["mail"], "consent", "agent:3-0123abcd", true);
        check(&["bank"], "consent", "agent:3-0123abcd", false);
        check(&["bank"], "conversation", "a/b/one", true);
        check(&["mail"], "conversation", "a/b/one", false);
        check(&["mail"], "conversation", "gone/one", false);
        check(&["bank"], "tool", "send", true);
        check(&["bank"], "server", "web", true);
    }
}
