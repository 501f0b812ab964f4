//! Lists and withdraws conversation grants: approvals that a person gave for the rest of a conversation. The routes in
//! [`super::lasting_grants`] call it, since they list and withdraw grants of both kinds.
//!
//! Any approver of the tenant may withdraw a grant. Even the owner of the client may, although owners decide no
//! questions of their clients: a withdrawal permits nothing, and only leads to new questions, which others decide. The
//! withdrawal takes effect when the conversation continues ([`ApprovalService::withdraw_frozen`]).

use flowgate_audit::{AuditEvent, FreezeSwitch};
use serde_json::{Value, json};

use super::ApprovalService;
use super::routes::changeable_arguments;
use crate::config::Person;
use crate::database::{DatabaseError, FreezeKind, StoredQuestion};

impl ApprovalService {
    /// Returns the conversation grants of the tenants that the person may see, each as JSON for the list of grants. Of
    /// each granted call, the JSON contains only what the person may read.
    ///
    /// # Errors
    /// If the database fails.
    pub(super) async fn list_conversation_grants(
        &self,
        person: &Person,
    ) -> Result<Vec<Value>, DatabaseError> {
        let mut grants = Vec::new();
        let tenants = person.tenants.iter().map(|tenant| Some(tenant.as_str()));
        // A person without a list of tenants sees all tenants: one query, without a tenant.
        for tenant in tenants.chain(person.tenants.is_empty().then_some(None)) {
            grants.extend(self.store.conversation_grants(tenant).await?);
        }
        let freezes = self.store.freezes().await?;
        let listed = grants.iter().map(|grant| {
            let (call, _) = self.readable_content(grant, person);
            let conversation = format!("{}/{}", grant.client, grant.name);
            let is_frozen =
                freezes.iter().any(|freeze| freeze.kind == FreezeKind::Grants && freeze.what == conversation);
            let is_of_present_config =
                self.people.config_fingerprint(&grant.client) == Some(grant.config_fingerprint.as_str());
            json!({
                "id": grant.id,
                "kind": "conversation",
                "client": grant.client,
                "conversation": grant.name,
                "tenant": grant.tenant,
                "who": grant.decided_by,
                "granted": grant.decided,
                "expires": null,
                "policy": grant.config_fingerprint,
                // A conversation that continues under another policy or other settings has no grants.
                "in_force": is_of_present_config && !is_frozen,
                // The names of the arguments whose values may differ under the grant.
                "grant_leaves_open": changeable_arguments(grant),
                "call": call,
            })
        });
        Ok(listed.collect())
    }

    /// Withdraws a conversation grant in the name of `person`; the caller has checked that the person may. The audit
    /// log first records the order, as it records a freeze. Returns false if there is no such grant any more.
    ///
    /// # Errors
    /// If the withdrawal cannot be recorded or stored.
    pub(super) async fn withdraw_conversation_grant(
        &self,
        person: &Person,
        grant: &StoredQuestion,
    ) -> Result<bool, DatabaseError> {
        let what = format!("conversation-grant {} of {}/{}", grant.id, grant.client, grant.name);
        self.record_withdrawal(person, what, self.store.withdraw_conversation_grant(&grant.id)).await
    }

    /// Withdraws a grant of either kind: records in the audit log that `person` withdraws the grant described by
    /// `what`, runs `withdrawal`, which changes the database, and wakes the requests and event streams that wait for a
    /// change. Returns the result of `withdrawal`: whether there was such a grant.
    ///
    /// # Errors
    /// If the order cannot be recorded, or `withdrawal` fails. In the second case, a further record in the audit log
    /// says that the outcome of the order is unknown.
    pub(super) async fn record_withdrawal(
        &self,
        person: &Person,
        what: String,
        withdrawal: impl Future<Output = Result<bool, DatabaseError>>,
    ) -> Result<bool, DatabaseError> {
        // A withdrawal is recorded as an order that stops something, like a freeze.
        let event =
            AuditEvent::KillSwitch { what: what.clone(), who: person.name.clone(), state: FreezeSwitch::Set };
        self.recorder.record(&[event.into()])?;
        let outcome = async {
            // The database learns of the record before the order takes effect, so that truncating the log would be
            // noticed.
            self.store.persist_log_head().await?;
            withdrawal.await
        };
        let is_withdrawn = outcome.await.inspect_err(|error| {
            self.recorder.record_unconfirmed(format!("withdraw {what}"), &person.name, error);
        })?;
        self.wake_waiters();
        Ok(is_withdrawn)
    }
}
