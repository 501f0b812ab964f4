//! Authenticates requests with a token of an issuer in place of a client's key. `authentication` calls it. Also lists
//! all issuers of the configuration, for clients and for people, and keeps their keys up to date.

use std::sync::Arc;

use super::ModelRoutes;
use super::clients::ClientState;
use super::maintenance;
use crate::identity::client_token::ClientToken;
use crate::identity::issuer::Issuer;
use crate::identity::token::{TokenRefusal, UnverifiedToken};
use crate::virtual_keys::valid_key::ValidKey;

impl ModelRoutes {
    /// Verifies the token `text`, and returns the client that it authenticates, with the identity and the limits of the
    /// sender. These have the type of a virtual key, because the routes treat a sender with a token like one with a
    /// virtual key.
    ///
    /// # Errors
    /// Why the token is refused.
    pub(super) async fn find_by_token(
        &self,
        text: &str,
    ) -> Result<(Arc<ClientState>, Arc<ValidKey>), TokenRefusal> {
        let token = UnverifiedToken::read(text)?;
        // The clients that accept tokens of the issuer that the token names.
        let candidates = self
            .clients_with_tokens()
            .filter(|(_, settings)| settings.issuer.settings.issuer == token.issuer);
        let candidates: Vec<(&Arc<ClientState>, &ClientToken)> = candidates.collect();
        // All candidates have the same issuer, so any of them can verify the token.
        let (_, first) = candidates.first().ok_or(TokenRefusal::UnknownIssuer)?;
        let audiences = candidates.iter().map(|(_, settings)| settings.audience.as_str()).collect();
        let claims = first.issuer.verify(&token, audiences, &self.log).await?;
        // Exactly one client must accept the claims: with several, the policy for the request would be ambiguous.
        let mut fitting = candidates.into_iter().filter(|(_, settings)| settings.accepts(&claims));
        let (client, settings) = match (fitting.next(), fitting.next()) {
            (Some(fitting), None) => fitting,
            (None, _) => return Err(TokenRefusal::Claims),
            (Some(_), Some(_)) => return Err(TokenRefusal::SeveralClients),
        };
        let caller = settings.caller(&claims)?;
        let key = ValidKey::of_token(caller, (settings, claims.expires), &client.spec.budget.prices);
        Ok((Arc::clone(client), Arc::new(key)))
    }

    /// Returns the clients that take tokens, and what they require of them.
    fn clients_with_tokens(&self) -> impl Iterator<Item = (&Arc<ClientState>, &ClientToken)> {
        self.clients.all().filter_map(|client| Some((client, client.spec.token.as_ref()?)))
    }

    /// Begins to fetch the keys of the issuers, now and periodically.
    pub(super) fn fetch_issuer_keys(&self) {
        for issuer in self.issuers() {
            maintenance::spawn_key_refresh(issuer, &self.log);
        }
    }

    /// Returns the issuers of the tokens of clients and of people, in the order of their names, each once.
    pub(crate) fn issuers(&self) -> Vec<&Arc<Issuer>> {
        let of_clients = self.clients_with_tokens().map(|(_, settings)| &settings.issuer);
        let of_people = self.approvals.people.login().map(|login| &login.issuer);
        let mut all: Vec<&Arc<Issuer>> = of_clients.chain(of_people).collect();
        // Clients and people with the same issuer share one object; sorting makes the repetitions adjacent.
        all.sort_by(|one, other| one.settings.name.cmp(&other.settings.name));
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        all
    }
}
