//! Runs the periodic tasks of a gateway. They store the head of the audit log in the database, expire questions, delete
//! old data, renew the leases by which other gateways know that this gateway uses a conversation, and fetch the keys by
//! which issuers sign tokens.
//!
//! The model routes start these tasks when they are opened or reconfigured; a task ends when the object that it
//! maintains is dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::approvals::ApprovalService;
use crate::database::Database;
use crate::identity::issuer::{Issuer, REFRESH};
use crate::log::{LogEvent, OperatorLog};
use crate::recorder::Recorder;

/// The interval at which this gateway renews its leases on conversations: a fraction of the duration of a lease, so
/// that a failed renewal can be retried.
const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(8);
/// The interval at which expired questions are marked, and old questions and lasting grants are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);
/// The interval at which the head of the audit log is stored if the log has grown since the last stored turn.
const HEAD_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which old conversations and texts are deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);

/// The interval at which expired content in the content file of the audit log is deleted. It is long, because a
/// deletion rewrites the whole file.
const CONTENT_EXPIRY_INTERVAL: Duration = Duration::from_secs(3600);

/// Starts the periodic tasks on the database and the audit log: storing the head of the audit log, expiring questions
/// and deleting old data; renewing leases, if gateways share the database; and deleting expired content of the audit
/// log, if there is one. What is deleted: conversations that were not used for `retention`, questions and lasting
/// grants that ended more than `retention` ago, and remembered texts that a client was shown more than
/// `quotation_age` ago. A task ends when the object that it works on is dropped.
pub(super) fn spawn_tasks(
    store: &Arc<Database>,
    approvals: &Arc<ApprovalService>,
    recorder: &Recorder,
    log: &OperatorLog,
    retention: Duration,
    quotation_age: Duration,
) {
    // `None` without an audit log.
    if let Some(recording) = recorder.recording() {
        let log = log.clone();
        tokio::spawn(run_periodically(CONTENT_EXPIRY_INTERVAL, recording, move |recording| {
            let log = log.clone();
            async move {
                // A failed deletion is retried, but the operator may have to act on its cause. The line names no
                // client, since the content is that of all clients.
                if let Ok(Err(error)) = tokio::task::spawn_blocking(move || recording.expire()).await {
                    let sentence = format!("expired content of the audit log could not be deleted: {error}");
                    log.write(LogEvent::Failure, "", Vec::new(), &sentence);
                }
            }
        }));
    }
    if store.is_shared() {
        let store = Arc::downgrade(store);
        // A failed renewal is retried: a turn of a conversation whose lease has expired is not stored, so nothing is
        // lost.
        tokio::spawn(run_periodically(LEASE_RENEWAL_INTERVAL, store, |store| async move {
            drop(store.renew_leases().await)
        }));
    }
    // A failed write is retried at the next interval, and the next turn stores the head as well.
    let head_store = Arc::downgrade(store);
    tokio::spawn(run_periodically(HEAD_INTERVAL, head_store, |store| async move {
        drop(store.persist_log_head().await)
    }));
    // The database computes with these ages and the current time; half of the range leaves room for that.
    let unused_millis = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX / 2);
    let store = Arc::downgrade(store);
    let shown_millis = i64::try_from(quotation_age.as_millis()).unwrap_or(i64::MAX / 2);
    tokio::spawn(run_periodically(CLEANUP_INTERVAL, store, move |store| async move {
        // A failed deletion is retried at the next interval.
        drop(store.delete_unused(unused_millis).await);
        drop(store.delete_old_shown_texts(shown_millis).await);
    }));
    spawn_expiry(approvals, retention);
}

/// Starts the periodic task that expires questions, and deletes closed questions and lasting grants that ended more
/// than `retention` ago. The task ends when the service is dropped.
pub(super) fn spawn_expiry(approvals: &Arc<ApprovalService>, retention: Duration) {
    // A failure is retried at the next interval.
    tokio::spawn(run_periodically(EXPIRY_INTERVAL, Arc::downgrade(approvals), move |approvals| async move {
        drop(approvals.expire_questions(retention).await)
    }));
}

/// Starts the task that fetches the keys of an issuer, at once and then every [`REFRESH`]. It ends when the issuer is
/// dropped.
pub(super) fn spawn_key_refresh(issuer: &Arc<Issuer>, log: &OperatorLog) {
    let log = log.clone();
    tokio::spawn(run_periodically(REFRESH, Arc::downgrade(issuer), move |issuer| {
        let log = log.clone();
        async move { issuer.refresh_on_schedule(&log).await }
    }));
}

/// Runs `work` on `target` at once, and then every `pause`, until `target` is dropped. The weak reference keeps the
/// target alive only while `work` runs.
async fn run_periodically<T, F: Future<Output = ()>>(
    pause: Duration,
    target: Weak<T>,
    work: impl Fn(Arc<T>) -> F,
) {
    let mut ticks = interval(pause);
    // If a run takes longer than a pause, the runs that it has delayed are skipped, and the next one follows a pause
    // later.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(target) = target.upgrade() else { return };
        work(target).await;
    }
}
