//! Reads the sections `[people.*]`: the key, role, tenants and clearance of each person. `config` calls it for each
//! section; `approvals` uses the people.

use super::file::{PersonSpec, RoleSpec};
use super::{ClientSettings, ConfigReader, MIN_KEY};
use crate::approvals::clearance::{Clearance, GROUP};
use crate::secret::Secret;

/// A role; each role includes the preceding ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sees questions and stored conversations.
    Viewer,
    /// Decides questions.
    Approver,
    /// Freezes and thaws, and deletes content.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Approver, Self::Admin];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

/// A person, authenticated by a key or by a login at an issuer.
#[derive(Debug, Clone)]
pub struct Person {
    /// The name under which decisions are recorded.
    pub name: String,
    /// The key that the person sends, if the person has one.
    pub key: Option<Secret>,
    /// The subject by which the issuer of `[login.oidc]` knows the person, if the person may log in there.
    pub subject: Option<String>,
    /// The role.
    pub role: Role,
    /// The tenants whose questions the person sees; an empty list means all tenants.
    pub tenants: Vec<String>,
    /// The clearance.
    pub may_read: Clearance,
}

impl Person {
    /// Returns whether the person sees the questions and conversations of a tenant.
    pub(crate) fn sees_tenant(&self, tenant: &str) -> bool {
        self.tenants.is_empty() || self.tenants.iter().any(|visible| visible == tenant)
    }

    /// Returns whether the person may decide questions of a client with this tenant and owner. The owner of a client
    /// never decides its questions.
    pub(crate) fn decides_for(&self, tenant: &str, owner: Option<&str>) -> bool {
        self.role >= Role::Approver && self.sees_tenant(tenant) && owner != Some(self.name.as_str())
    }
}

impl From<RoleSpec> for Role {
    fn from(spec: RoleSpec) -> Self {
        match spec {
            RoleSpec::Viewer => Self::Viewer,
            RoleSpec::Approver => Self::Approver,
            RoleSpec::Admin => Self::Admin,
        }
    }
}

impl ConfigReader<'_> {
    /// Checks the section of the person `name`, and returns the settings. The setting `may-read` may name only lattice
    /// elements of the policies of the clients that the person sees. These are the clients of the person's tenants or,
    /// without a list of tenants, all `clients`.
    ///
    /// # Errors
    /// If the key cannot be read or is short, the person has neither a key nor a `subject`, `may-read` names an element
    /// that none of these policies declares, or the name of the person begins like that of a group.
    pub(super) fn person(
        &self,
        name: &str,
        spec: PersonSpec,
        clients: &[ClientSettings],
    ) -> Result<Person, String> {
        let key = self.key(spec.key_from.as_deref(), spec.key_file.as_deref())?;
        if key.is_none() && spec.subject.is_none() {
            return Err("the section does not say how the person authenticates: write key-from = \"VARIABLE\" or key-file = \"FILE\", or a `subject` with [login.oidc]".to_owned());
        }
        if key.as_ref().is_some_and(|key| key.len() < MIN_KEY) {
            return Err(format!(
                "the key is too short and can be guessed: use at least {MIN_KEY} characters"
            ));
        }
        let role = spec.role.into();
        let tenants = spec.tenants;
        // An empty list of tenants means all tenants.
        let is_visible = |client: &&ClientSettings| tenants.is_empty() || tenants.contains(&client.tenant);
        let policies = clients.iter().filter(is_visible).map(|client| client.policy.as_ref());
        let may_read = Clearance::read(spec.may_read.as_deref(), &policies)?;
        if name.starts_with(GROUP) {
            return Err(format!(
                "the name begins with `{GROUP}`, by which lists of readers mark groups: rename the section"
            ));
        }
        // In the clearance, `*` stands for the person's own name.
        let may_read = may_read.with_principals(&[name.to_owned()]);
        let (name, key, subject) = (name.to_owned(), key.map(Secret::new), spec.subject);
        Ok(Person { name, key, subject, role, tenants, may_read })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_tenants_and_owners() {
        let check = |role: Role, tenants: &[&str], owner: Option<&str>, expected: (bool, bool)| {
            let tenants = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
            let (name, may_read) = ("ann".to_owned(), Clearance::default());
            let person = Person { name, key: None, subject: None, role, tenants, may_read };
            assert_eq!((person.sees_tenant("mail"), person.decides_for("mail", owner)), expected, "{role:?}");
        };
        check(Role::Viewer, &[], None, (true, false));
        check(Role::Approver, &[], None, (true, true));
        check(Role::Admin, &[], Some("bob"), (true, true));
        check(Role::Admin, &[], Some("ann"), (true, false));
        check(Role::Approver, &["bank"], None, (false, false));
        check(Role::Approver, &["bank", "mail"], None, (true, true));
    }
}
