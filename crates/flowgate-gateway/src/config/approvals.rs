//! Reads the section `[approvals]`: how long questions to people wait, and how many may be asked.

use std::num::NonZeroU32;
use std::time::Duration;

use super::ConfigReader;
use super::file::ApprovalsTable;
use crate::secret::Secret;

/// The settings of questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// The time for which a request waits for an answer.
    pub wait: Duration,
    /// The time until a question expires.
    pub expires_after: Duration,
    /// The most open questions of one client.
    pub of_client: u32,
    /// The most open questions of one conversation, so that no conversation uses up the room of the others.
    pub of_conversation: u32,
    /// The most questions that one conversation may ask in an hour, decided or not. The limit stops untrusted text that
    /// provokes questions until a tired person allows one.
    pub an_hour: u32,
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        let (wait, ttl) = (Duration::from_secs(30), Duration::from_secs(60 * 60));
        Self { wait, expires_after: ttl, of_client: 1000, of_conversation: 20, an_hour: 30 }
    }
}

impl ConfigReader<'_> {
    /// Reads the section `[approvals]`. Also returns the address of the webhook and the key that signs its messages, if
    /// the section has one.
    pub(super) fn approvals(
        &self,
        spec: ApprovalsTable,
    ) -> Result<(ApprovalSettings, Option<(String, Secret)>), String> {
        let defaults = ApprovalSettings::default();
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let settings = ApprovalSettings {
            wait: spec.wait_seconds.map_or(defaults.wait, seconds),
            expires_after: spec
                .expires_minutes
                // A question that expires at once could not be answered.
                .map_or(defaults.expires_after, |minutes| seconds(minutes.max(1)) * 60),
            of_client: spec.open_questions.map_or(defaults.of_client, NonZeroU32::get),
            of_conversation: spec
                .open_questions_of_conversation
                .map_or(defaults.of_conversation, NonZeroU32::get),
            an_hour: spec.questions_an_hour_of_conversation.map_or(defaults.an_hour, NonZeroU32::get),
        };
        let secret = self.key(spec.webhook_secret_from.as_deref(), spec.webhook_secret_file.as_deref())?;
        let webhook = match (spec.webhook, secret) {
            (None, None) => None,
            (Some(url), Some(secret)) if url.starts_with("https://") || url.starts_with("http://") => {
                Some((url, Secret::new(secret)))
            }
            (Some(_), Some(_)) => {
                return Err("the address in `webhook` does not begin with https:// or http://".to_owned());
            }
            (Some(_), None) => {
                return Err(
                    "the webhook has no secret to sign with: write webhook-secret-from = \"VARIABLE\""
                        .to_owned(),
                );
            }
            (None, Some(_)) => {
                return Err("the section has a secret for a webhook, but no `webhook`: write webhook = \
                    \"https://...\", or remove the secret"
                    .to_owned());
            }
        };
        Ok((settings, webhook))
    }
}
