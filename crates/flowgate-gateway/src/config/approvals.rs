//! Reads the section `[approvals]`: how long questions to people wait, how many may be asked, and the webhook that
//! notifies people of them. `config` calls it for the configuration file.

use std::num::NonZeroU32;
use std::time::Duration;

use super::ConfigReader;
use super::file::ApprovalsTable;
use crate::approvals::WebhookFormat;
use crate::secret::Secret;

/// Who is notified of questions, and how.
#[derive(Debug)]
pub struct WebhookSettings {
    /// The address that notifications are posted to. It is a secret, because anybody who knows the webhook address of a
    /// chat service can post there.
    pub url: Secret,
    /// The key that signs them, if they are signed.
    pub secret: Option<Secret>,
    /// The form of notifications.
    pub format: WebhookFormat,
    /// The address of the page for people, for links.
    pub page: Option<String>,
}

/// The settings of questions to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// The time for which a request waits for an answer.
    pub wait: Duration,
    /// The time until a question expires.
    pub expires_after: Duration,
    /// The most open questions of one client.
    pub open_of_client: u32,
    /// The most open questions of one conversation, so that no conversation uses up the room of the others.
    pub open_of_conversation: u32,
    /// The most questions that one conversation may ask in an hour, decided or not. The limit stops untrusted text that
    /// provokes questions until a tired person allows one.
    pub hourly_of_conversation: u32,
    /// The most questions that all conversations of one client together may ask in an hour.
    pub hourly_of_client: u32,
    /// The most questions that one conversation may ask in all.
    pub total_of_conversation: u32,
    /// The number of questions in a row that people refused or did not answer, within a day, after which one
    /// conversation may ask no more.
    pub refusals_of_conversation: u32,
    /// The number of questions in a row that people refused within an hour, in all conversations of one client, after
    /// which the client may ask no more.
    pub refusals_of_client: u32,
}

impl Default for ApprovalSettings {
    /// Returns the values of the settings that a section `[approvals]` leaves out: a request waits for 30 seconds, and
    /// a question expires after an hour. The other values are numbers of questions, and of refusals in a row.
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(30),
            expires_after: Duration::from_secs(60 * 60),
            open_of_client: 1000,
            open_of_conversation: 20,
            hourly_of_conversation: 30,
            hourly_of_client: 1000,
            total_of_conversation: 100,
            refusals_of_conversation: 5,
            refusals_of_client: 20,
        }
    }
}

impl ConfigReader<'_> {
    /// Converts the section `[approvals]` to settings. Also returns the settings of the webhook, if the section has
    /// one. A setting that the section leaves out has the default value.
    ///
    /// # Errors
    /// The first problem of the settings of the webhook, as a message for the operator.
    pub(super) fn approvals(
        &self,
        spec: ApprovalsTable,
    ) -> Result<(ApprovalSettings, Option<WebhookSettings>), String> {
        let defaults = ApprovalSettings::default();
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        // The number in the section or, if there is none, the default.
        let or = |number: Option<NonZeroU32>, default: u32| number.map_or(default, NonZeroU32::get);
        let settings = ApprovalSettings {
            wait: spec.wait_seconds.map_or(defaults.wait, seconds),
            expires_after: spec
                .expires_minutes
                // A question that expires at once could not be answered.
                .map_or(defaults.expires_after, |minutes| seconds(minutes.max(1)) * 60),
            open_of_client: or(spec.open_questions, defaults.open_of_client),
            open_of_conversation: or(spec.open_questions_of_conversation, defaults.open_of_conversation),
            hourly_of_conversation: or(
                spec.questions_an_hour_of_conversation,
                defaults.hourly_of_conversation,
            ),
            hourly_of_client: or(spec.questions_an_hour, defaults.hourly_of_client),
            total_of_conversation: or(spec.questions_of_conversation, defaults.total_of_conversation),
            refusals_of_conversation: or(
                spec.refusals_in_a_row_of_conversation,
                defaults.refusals_of_conversation,
            ),
            refusals_of_client: or(spec.refusals_in_a_row, defaults.refusals_of_client),
        };
        let webhook = self.webhook(spec)?;
        Ok((settings, webhook))
    }

    /// Checks the settings of the webhook in the section `[approvals]`, and converts them; `None` if the section has
    /// none.
    ///
    /// # Errors
    /// If a setting is given twice, its variable or file cannot be read, an address does not begin with http:// or
    /// https://, or a setting needs another one that is missing.
    fn webhook(&self, spec: ApprovalsTable) -> Result<Option<WebhookSettings>, String> {
        let secret = self.key_named(
            ("webhook-secret-from", spec.webhook_secret_from.as_deref()),
            ("webhook-secret-file", spec.webhook_secret_file.as_deref()),
        )?;
        if spec.webhook.is_some() && spec.webhook_from.is_some() {
            return Err("the section has both `webhook` and `webhook-from`: remove one of them".to_owned());
        }
        // The address can be a secret, so an environment variable may contain it instead. `None`: no setting names a
        // file with the address.
        let url = spec.webhook.or(self.key(spec.webhook_from.as_deref(), None)?);
        if let Some(page) = spec.page.iter().find(|page| !is_web_address(page)) {
            return Err(format!(
                "page: `{page}` does not begin with https:// or http://: write the address by which people open \
                 the page"
            ));
        }
        // `Flowgate` is the default format, so it does not show whether the section sets a format.
        match (url, &secret, spec.webhook_format) {
            (None, None, WebhookFormat::Flowgate) => Ok(None),
            (None, None, _) => {
                Err("the section has a `webhook-format`, but no `webhook`: write webhook-from = \"VARIABLE\", or remove the format"
                    .to_owned())
            }
            (None, Some(_), _) => {
                Err("the section has a secret for a webhook, but no `webhook`: write webhook = \
                \"https://...\", or remove the secret"
                    .to_owned())
            }
            (Some(url), ..) if !is_web_address(&url) => Err(
                "the address of the webhook, in `webhook` or the variable that `webhook-from` names, does not begin with https:// or http://: write the whole address"
                    .to_owned(),
            ),
            // The other formats are those of chat programs, which check no signatures.
            (Some(_), None, WebhookFormat::Flowgate) => {
                Err("the webhook has no secret to sign with: write webhook-secret-from = \"VARIABLE\""
                    .to_owned())
            }
            (Some(url), _, format) => Ok(Some(WebhookSettings {
                url: Secret::new(url),
                secret: secret.map(Secret::new),
                format,
                page: spec.page,
            })),
        }
    }
}

/// Returns whether an address is one of HTTP or HTTPS, by its beginning.
fn is_web_address(address: &str) -> bool {
    address.starts_with("https://") || address.starts_with("http://")
}
