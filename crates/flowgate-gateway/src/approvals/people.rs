//! Who may see, decide and stop.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use flowgate::policy::Policy;

use super::clearance::Clearance;

use crate::model_routes::{Client, Secret};

/// What a person may do; each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See questions.
    Viewer,
    /// Decide them.
    Approver,
    /// Stop and start things.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Approver, Self::Admin];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

/// A person, known by a key.
#[derive(Debug)]
pub struct Person {
    /// The name under which decisions are kept.
    pub name: String,
    /// The key that the person sends.
    pub key: Secret,
    /// What the person may do.
    pub role: Role,
    /// Whose questions; all, if none is named.
    pub tenants: Vec<String>,
    /// What the person may read.
    pub may_read: Clearance,
}

impl Person {
    /// Whether questions of a tenant are this person's business.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.tenants.is_empty() || self.tenants.iter().any(|known| known == tenant)
    }

    /// Whether the person may decide questions of a client. Who asks for something never allows it.
    pub(crate) fn decides_for(&self, tenant: &str, owner: Option<&str>) -> bool {
        self.role >= Role::Approver && self.sees(tenant) && owner != Some(self.name.as_str())
    }
}

/// All people, and whose clients are theirs.
#[derive(Debug, Default)]
pub(crate) struct People {
    people: Vec<Person>,
    /// The name of a client and that of the person for whom it asks.
    owners: Vec<(String, String)>,
    /// The policies of clients.
    policies: BTreeMap<String, Arc<Policy>>,
}

impl People {
    pub(crate) fn new(people: Vec<Person>, clients: &[Client]) -> Self {
        let owner = |client: &Client| Some((client.name.clone(), client.owner.clone()?));
        let policies = clients.iter().map(|client| (client.name.clone(), Arc::clone(&client.policy)));
        Self { people, owners: clients.iter().filter_map(owner).collect(), policies: policies.collect() }
    }

    /// The policy of a client.
    pub(crate) fn policy(&self, client: &str) -> Option<&Arc<Policy>> {
        self.policies.get(client)
    }

    /// Whether anybody may decide questions of a client.
    pub(crate) fn can_decide_for(&self, client: &Client) -> bool {
        self.people.iter().any(|person| person.decides_for(&client.tenant, client.owner.as_deref()))
    }

    /// The person for whom a client asks.
    pub(crate) fn owner(&self, client: &str) -> Option<&str> {
        self.owners.iter().find(|(name, _)| name == client).map(|(_, owner)| owner.as_str())
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Person> {
        self.people.iter().find(|person| person.name == name)
    }

    /// The person whose key a request has.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<&Person> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // All of them are compared, so that nobody can tell by the time who is near.
        self.people
            .iter()
            .fold(None, |found, person| if person.key.is(key.trim()) { Some(person) } else { found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_tenants_and_owners() {
        let check = |role: Role, tenants: &[&str], owner: Option<&str>, expected: (bool, bool)| {
            let tenants = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
            let (name, key, may_read) = ("ann".to_owned(), Secret::new("k"), Clearance::default());
            let person = Person { name, key, role, tenants, may_read };
            assert_eq!((person.sees("mail"), person.decides_for("mail", owner)), expected, "{role:?}");
        };
        check(Role::Viewer, &[], None, (true, false));
        check(Role::Approver, &[], None, (true, true));
        check(Role::Admin, &[], Some("bob"), (true, true));
        check(Role::Admin, &[], Some("ann"), (true, false));
        check(Role::Approver, &["bank"], None, (false, false));
        check(Role::Approver, &["bank", "mail"], None, (true, true));
    }
}
