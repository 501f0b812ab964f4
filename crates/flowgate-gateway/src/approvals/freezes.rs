//! Enforces freezes: orders of an admin that stop a tool, a server, a client or a conversation, or that withdraw
//! standing consents and the approvals for the rest of a conversation. The model routes and the MCP routes call
//! [`ApprovalService::check_frozen`] before a turn, and [`ApprovalService::freeze_reason`] before each call.
//! [`ApprovalService::withdraw_frozen`] takes frozen consents and withdrawn grants from a conversation.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use flowgate_guard::conversation::Conversation;
use sha2::{Digest as _, Sha256};

use super::ApprovalService;
use crate::config::ClientSettings;
use crate::database::{DatabaseError, Freeze, FreezeKind};
use crate::http::request_error::RequestError;
use crate::identity::client_token::is_caller_id;
use crate::log;
use crate::random;
use crate::virtual_keys::scope::key_of;

impl ApprovalService {
    /// Rejects a request if an admin has frozen its client or its conversation, if the virtual key to which the
    /// conversation belongs was revoked or has expired, or if the database cannot be read. The key is checked here,
    /// too, because a key that ends must also stop the turns and listening streams that began with it, as a freeze
    /// does.
    pub(crate) async fn check_frozen(
        &self,
        client: &ClientSettings,
        conversation: &str,
    ) -> Result<(), RequestError> {
        let conversation_name = format!("{}/{conversation}", client.name);
        let is_stopped = |freeze: &Freeze| {
            freeze.kind == FreezeKind::Client && freeze.what == client.name
                || freeze.kind == FreezeKind::Conversation && freeze.what == conversation_name
        };
        match self.store.freezes().await?.iter().find(|freeze| is_stopped(freeze)) {
            None => {}
            Some(freeze) => {
                let message = frozen_message(freeze);
                return Err(RequestError::new(StatusCode::FORBIDDEN, message));
            }
        }
        // Only virtual keys are looked up. Whether a token (a caller id) has expired was checked when its request
        // arrived, and is checked again for a stream.
        match key_of(conversation) {
            Some(key) if !is_caller_id(key) && !self.store.is_virtual_key_valid(key).await? => {
                let message = "the key of this conversation was revoked, or has expired: ask the operator of the gateway for \
                    another one";
                Err(RequestError::new(StatusCode::FORBIDDEN, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the line numbers of the standing consents that are frozen in a client's policy. A freeze names a consent
    /// as `CLIENT:LINE-DIGEST`. The consent is matched by its digest, not by its line, so edits elsewhere in the policy
    /// do not thaw it.
    ///
    /// # Errors
    /// If the freezes cannot be read.
    pub(crate) async fn frozen_consents(
        &self,
        client: &ClientSettings,
    ) -> Result<BTreeSet<usize>, DatabaseError> {
        let freezes = self.store.freezes().await?;
        // First the digests of the client's frozen consents, then the consents of the policy with these digests.
        // `digest_in` returns the digest at the end of `CLIENT:LINE-DIGEST`.
        let digest_in = |name: &str| name.rsplit_once('-').map(|(_, digest)| digest.to_owned());
        let mut frozen: BTreeSet<String> = BTreeSet::new();
        for freeze in freezes.iter().filter(|freeze| freeze.kind == FreezeKind::Consent) {
            let is_of_client = freeze.what.rsplit_once(':').is_some_and(|(name, _)| name == client.name);
            if is_of_client {
                frozen.extend(digest_in(&freeze.what));
            }
        }
        if frozen.is_empty() {
            return Ok(BTreeSet::new());
        }
        let is_frozen =
            |(name, _): &(String, usize)| digest_in(name).is_some_and(|digest| frozen.contains(&digest));
        Ok(consents_of(client).filter(is_frozen).map(|(_, line)| line).collect())
    }

    /// Returns whether an admin has frozen the grants of a conversation: the approvals for the rest of it.
    ///
    /// # Errors
    /// If the freezes cannot be read.
    pub(crate) async fn are_grants_frozen(
        &self,
        client: &ClientSettings,
        conversation: &str,
    ) -> Result<bool, DatabaseError> {
        let conversation_name = format!("{}/{conversation}", client.name);
        let is_of_conversation =
            |freeze: &Freeze| freeze.kind == FreezeKind::Grants && freeze.what == conversation_name;
        Ok(self.store.freezes().await?.iter().any(is_of_conversation))
    }

    /// Brings a conversation in line with the orders of people: withdraws from it the standing consents that an admin
    /// has frozen, and the grants that people have withdrawn, or all grants if an admin has frozen the grants of the
    /// conversation. `name` is the name of the conversation. Adds to `removed` the ids of the questions that gave the
    /// withdrawn grants. Returns whether the conversation has changed.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn withdraw_frozen(
        &self,
        client: &ClientSettings,
        name: &str,
        (conversation, removed): (&mut Conversation, &mut Vec<String>),
    ) -> Result<bool, DatabaseError> {
        let consents = self.frozen_consents(client).await?;
        let are_frozen = self.are_grants_frozen(client, name).await?;
        let mut has_changed = conversation.withdraw_consents(&consents);
        // The rest is about grants, and this conversation has none.
        if conversation.monitor().session_grants().is_empty() {
            return Ok(has_changed);
        }
        if are_frozen {
            // Stored at once, so that the list of grants has none of them even if this turn fails.
            self.store.withdraw_conversation_grants(&client.name, name).await?;
        }
        let withdrawn = self.store.withdrawn_grants(&client.name, name).await?;
        // The conversation knows a grant by the digest of the approved call.
        let digests: BTreeSet<String> = withdrawn.iter().map(|grant| grant.digest.clone()).collect();
        has_changed |= match are_frozen {
            true => conversation.withdraw_grants(),
            false => !digests.is_empty() && conversation.withdraw_grants_for(&digests),
        };
        // An earlier call of this function may have added the same ids.
        removed.extend(withdrawn.into_iter().map(|grant| grant.id));
        removed.sort_unstable();
        removed.dedup();
        Ok(has_changed)
    }

    /// Returns why a call may not run: its client, conversation, tool or server is frozen, the virtual key of its
    /// conversation is no longer valid, or the freezes cannot be read. `None` if the call may run. `tool` is
    /// `SERVER/NAME`, or `NAME` for a tool of the agent. Logs a failure to read the freezes of tools and servers.
    pub(crate) async fn freeze_reason(
        &self,
        client: &ClientSettings,
        conversation: &str,
        tool: &str,
    ) -> Option<String> {
        // Checks the client, the conversation, and the virtual key of the conversation.
        if let Err(failure) = self.check_frozen(client, conversation).await {
            return Some(failure.message);
        }
        // A tool of the agent has no server; no server has an empty name.
        let server = tool.split_once('/').map_or("", |(server, _)| server);
        let stops_call = |freeze: &Freeze| {
            freeze.kind == FreezeKind::Tool && freeze.what == tool
                || freeze.kind == FreezeKind::Server && freeze.what == server
        };
        match self.store.freezes().await {
            Ok(freezes) => {
                let stopped = freezes.iter().find(|freeze| stops_call(freeze));
                stopped.map(frozen_message)
            }
            Err(error) => {
                let fields = vec![("conversation", conversation.into()), ("tool", tool.into())];
                let sentence = format!("the freezes cannot be read, so the call does not run: {error}");
                self.log.write(log::LogEvent::Failure, &client.name, fields, &sentence);
                Some(error.client_message().to_owned())
            }
        }
    }
}

/// Returns the message by which an agent learns that this freeze stops its request or call.
fn frozen_message(freeze: &Freeze) -> String {
    format!("an admin has frozen this {}: ask an admin to thaw it", freeze.kind.name())
}

/// Returns the name (`CLIENT:LINE-DIGEST`) and the line number of each standing consent of a client's policy. DIGEST is
/// the first eight hexadecimal digits of the digest of the statement's text.
pub(crate) fn consents_of(client: &ClientSettings) -> impl Iterator<Item = (String, usize)> + '_ {
    client.policy.consents().map(|(line, text)| {
        let digest = random::hex(&Sha256::digest(text));
        (format!("{}:{line}-{}", client.name, digest.get(..8).unwrap_or_default()), line)
    })
}
