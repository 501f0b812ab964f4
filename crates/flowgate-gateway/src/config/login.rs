//! Reads the section `[login.oidc]`: how people log in to the page at an issuer, and which groups of the issuer give
//! their members a role. `config` calls it for the configuration file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::file::{GroupSpec, LoginSpec};
use super::{ClientSettings, ConfigReader, Person, find_named};
use crate::approvals::clearance::Clearance;
use crate::config::Role;
use crate::identity::issuer::{Issuer, is_protected};
use crate::secret::Secret;

/// The path to which the issuer sends a person back after the login.
pub(crate) const CALLBACK: &str = "/ui/login/callback";

/// The section `[login.oidc]`.
#[derive(Debug, Clone)]
pub(crate) struct LoginSettings {
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    /// The address to which the issuer sends a person back.
    pub(crate) redirect: String,
    /// The scopes, separated by spaces.
    pub(crate) scopes: String,
    /// The claim with the name under which decisions are recorded.
    pub(crate) name_claim: String,
    /// The claim with the groups of the person.
    pub(crate) groups_claim: String,
    /// How long a session lasts; `None`: as long as the ID token is valid.
    pub(crate) session: Option<Duration>,
    /// The groups whose members may use the page, those with greater roles first: a person who is in several has the
    /// role of the first.
    pub(crate) groups: Vec<GroupRole>,
}

/// The section `[login.oidc.groups.NAME]`: the rights of a member of the group who has no section `[people.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRole {
    pub(crate) group: String,
    pub(crate) role: Role,
    /// The tenants whose questions its members see; an empty list means all tenants.
    pub(crate) tenants: Vec<String>,
    pub(crate) may_read: Clearance,
}

impl GroupRole {
    /// Returns whether some member of the group may decide questions of clients of a tenant.
    pub(crate) fn decides_for(&self, tenant: &str) -> bool {
        self.role >= Role::Approver
            && (self.tenants.is_empty() || self.tenants.iter().any(|known| known == tenant))
    }
}

impl LoginSettings {
    /// Checks that nobody can misuse a client by logging in: the owner of the client must not be able to decide the
    /// client's questions, and the ID tokens of logins must not authenticate the client. `people` are those of the
    /// configuration.
    ///
    /// # Errors
    /// If the owner has no `subject`, so that a login of the owner is not recognised, and some group may decide the
    /// client's questions; or if the client accepts tokens that are made for logins. The message is for the operator.
    pub(super) fn check_client(&self, client: &ClientSettings, people: &[Person]) -> Result<(), String> {
        // The owner never decides the client's questions, but a login is recognised as the owner's only by `subject`.
        let of_owner = |person: &&Person| Some(&person.name) == client.owner.as_ref();
        if let Some(owner) = people.iter().find(of_owner).filter(|owner| owner.subject.is_none())
            && self.groups.iter().any(|group| group.decides_for(&client.tenant))
        {
            let (client, owner) = (&client.name, &owner.name);
            return Err(format!(
                "clients.{client}: its owner `{owner}` may be in a group of [login.oidc.groups] and then decide the client's questions: write the owner's `subject` in [people.{owner}]"
            ));
        }
        let issuer = &self.issuer.settings.issuer;
        // The audience of the ID tokens of logins is `client-id`.
        let takes_id_tokens = client
            .token
            .as_ref()
            .is_some_and(|token| token.issuer.settings.issuer == *issuer && token.audience == self.client_id);
        if takes_id_tokens {
            return Err(format!(
                "clients.{}: token: `audience` is the `client-id` of [login.oidc], so everyone who can log in at the issuer could use the client: let the issuer make tokens for another audience",
                client.name
            ));
        }
        Ok(())
    }
}

impl ConfigReader<'_> {
    /// Checks the section `[login.oidc]`, and converts it to settings. `issuers` are the configured issuers, and
    /// `clients` the configured clients, whose policies declare the lattice elements that `may-read` of a group may
    /// name.
    ///
    /// # Errors
    /// The first problem, as a message for the operator.
    pub(super) fn login(
        &self,
        spec: LoginSpec,
        issuers: &BTreeMap<String, Arc<Issuer>>,
        clients: &[ClientSettings],
    ) -> Result<LoginSettings, String> {
        let issuer = find_named("issuer", &spec.issuer, issuers)?;
        if !is_protected(&issuer.settings.issuer) {
            return Err(format!(
                "the `issuer` of [issuers.{}] does not begin with https://, so people cannot log in there: name \
                 an issuer with https://",
                spec.issuer
            ));
        }
        let secret = self.key_named(
            ("client-secret-from", spec.client_secret_from.as_deref()),
            ("client-secret-file", spec.client_secret_file.as_deref()),
        )?;
        if !is_protected(&spec.redirect) || !spec.redirect.ends_with(CALLBACK) {
            return Err(format!(
                "`redirect` is not of the form https://GATEWAY{CALLBACK}: write the address by which browsers reach this gateway"
            ));
        }
        if !spec.scopes.iter().any(|scope| scope == "openid") {
            return Err(
                "`scopes` lacks \"openid\", without which the issuer returns no ID token: add it".to_owned()
            );
        }
        let mut groups = Vec::new();
        for (group, spec) in spec.groups {
            let role = self.group(&group, spec, clients);
            groups.push(role.map_err(|why| format!("groups.{group}: {why}"))?);
        }
        // A person who is in several groups has the rights of the first one: greater roles come first, and equal roles
        // in the order of the names of the groups.
        groups.sort_by(|one, other| other.role.cmp(&one.role).then_with(|| one.group.cmp(&other.group)));
        Ok(LoginSettings {
            issuer,
            client_id: spec.client_id,
            client_secret: secret.map(Secret::new),
            redirect: spec.redirect,
            scopes: spec.scopes.join(" "),
            name_claim: spec.name_claim,
            groups_claim: spec.groups_claim,
            session: spec.session_minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes.get()))),
            groups,
        })
    }

    /// Checks the section of the group `group`, and returns the rights of its members. The setting `may-read` may name
    /// only lattice elements of the policies of the clients that the group sees. These are the clients of the group's
    /// tenants or, without a list of tenants, all `clients`.
    fn group(&self, group: &str, spec: GroupSpec, clients: &[ClientSettings]) -> Result<GroupRole, String> {
        let tenants = spec.tenants;
        let is_visible = |client: &&ClientSettings| tenants.is_empty() || tenants.contains(&client.tenant);
        let policies = clients.iter().filter(is_visible).map(|client| client.policy.as_ref());
        let may_read = Clearance::read(spec.may_read.as_deref(), &policies)?;
        Ok(GroupRole { group: group.to_owned(), role: spec.role.into(), tenants, may_read })
    }
}
