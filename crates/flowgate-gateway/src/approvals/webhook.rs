//! Notifies another program, such as one that posts in a chat, when a question is asked or decided. A [`Webhook`] owns
//! the queue of notifications and the thread that posts them; [`ApprovalService`](super::ApprovalService) adds to the
//! queue. A notification names the tool and the label of the call, but has no arguments and no reasons: to see these, a
//! recipient requests the question with the key of a person.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::webhook_format::WebhookFormat;
use crate::config::WebhookSettings;
use crate::database::StoredQuestion;
use crate::log::{LogEvent, OperatorLog};
use crate::random;
use crate::secret::Secret;

/// The header with the time of a notification and its signature.
pub(crate) const SIGNATURE: &str = "x-flowgate-signature";
/// The capacity of the queue; further notifications are dropped, and people still find the questions in the list.
const QUEUE_CAPACITY: usize = 1024;
/// The pauses before a failed notification is sent again.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(4), Duration::from_secs(30)];

/// The sender of notifications.
#[derive(Debug)]
pub(crate) struct Webhook {
    messages: SyncSender<String>,
    format: WebhookFormat,
    /// The address of the page for people.
    page: Option<String>,
    log: OperatorLog,
}

impl Webhook {
    /// Starts the thread that posts notifications to the URL of the settings. Failures are written to `log`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new(settings: WebhookSettings, log: OperatorLog) -> std::io::Result<Self> {
        let WebhookSettings { url, secret, format, page } = settings;
        let secret = secret.map(Secret::into_bytes);
        let (messages, queued) = sync_channel(QUEUE_CAPACITY);
        let thread_log = log.clone();
        // The thread ends with the gateway.
        std::thread::Builder::new()
            .name("webhook".to_owned())
            .spawn(move || post(url.expose(), secret.as_deref(), &queued, &thread_log))?;
        Ok(Self { messages, format, page, log })
    }

    /// Queues a notification that a question has changed; `what` is its type, `question.asked` or `question.decided`.
    /// If the queue is full, drops the notification and logs that: a slow webhook must not delay a question.
    pub(super) fn tell(&self, what: &str, question: &StoredQuestion) {
        let message = self.format.write(what, question, self.page.as_deref());
        if self.messages.try_send(message.to_string()).is_err() {
            // The failure is the webhook's, so the line names no client and has no fields.
            self.log.write(
                LogEvent::Failure,
                "",
                Vec::new(),
                "the notice of a question was not sent, since too many earlier ones still wait for the webhook: check \
                why the program at `webhook` in [approvals] is slow",
            );
        }
    }
}

/// Posts the queued notifications (`messages`) to `url`, each signed with `secret` if there is one. Runs on a separate
/// thread until the [`Webhook`] that fills the queue is dropped. A failed notification is sent again after each of
/// [`RETRY_PAUSES`]; if all attempts fail, this is logged. Uses the HTTP proxy that the environment names, if any: this
/// is safe, since notifications contain no arguments of calls.
fn post(url: &str, secret: Option<&[u8]>, messages: &Receiver<String>, log: &OperatorLog) {
    let timeout = Some(Duration::from_secs(10));
    // No redirect is followed: the operator did not choose the recipient that a redirect names.
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(timeout).max_redirects(0).build().into();
    while let Ok(message) = messages.recv() {
        let mut is_sent = false;
        // The first attempt follows at once, each further one after its pause. Each is signed with its own time.
        for pause in std::iter::once(Duration::ZERO).chain(RETRY_PAUSES) {
            std::thread::sleep(pause);
            let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            let request = agent.post(url).header("content-type", "application/json");
            let request = match secret {
                Some(secret) => request.header(SIGNATURE, signature(secret, time, &message)),
                None => request,
            };
            is_sent = request.send(&message).is_ok();
            if is_sent {
                break;
            }
        }
        if !is_sent {
            let sentence = "the webhook did not accept the notice of a question: check the address `webhook` in \
                [approvals], and the log of the program there";
            // The failure is the webhook's, so the line names no client and has no fields.
            log.write(LogEvent::Failure, "", Vec::new(), sentence);
        }
    }
}

/// Returns the value of the header [`SIGNATURE`], `t=SECONDS,v1=HEX`: the time, in seconds since 1970, and the HMAC of
/// the time and the message. Since the time is signed, a recipient can reject an old notification that somebody else
/// sends again.
pub(crate) fn signature(secret: &[u8], time: u64, message: &str) -> String {
    // HMAC accepts keys of any length, so this does not fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(format!("{time}.{message}").as_bytes());
    format!("t={time},v1={}", random::hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value is that of `printf '1700000000.{}' | openssl dgst -sha256 -hmac secret`.
    #[test]
    fn signatures_are_those_of_others() {
        assert_eq!(
            signature(b"secret", 1_700_000_000, "{}"),
            "t=1700000000,v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163"
        );
    }
}
