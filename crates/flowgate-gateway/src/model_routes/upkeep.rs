//! What is done for the store from time to time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::approvals::Approvals;
use crate::log::{Event, Log};
use crate::recorder::Recorder;
use crate::store::Store;

/// How often this gateway says that it is still there: several times in the time for which it holds conversations.
const HOLD: Duration = Duration::from_secs(8);
/// How often questions that are over are marked.
const EXPIRE: Duration = Duration::from_secs(30);
/// How often the store is written how far the audit log has come beyond the last turn.
const NOTE: Duration = Duration::from_secs(5);
/// How often what is too old is deleted.
const CLEAN: Duration = Duration::from_secs(600);

/// How often content beside the audit log is deleted that is too old: all that is kept is written anew.
const FORGET: Duration = Duration::from_secs(3600);

/// Looks after a store until it is closed. What was not used for `retention` is deleted, and what clients were shown longer than
/// `quotations` ago.
pub(super) fn begin(
    store: &Arc<Store>,
    approvals: &Arc<Approvals>,
    recorder: &Recorder,
    log: &Log,
    retention: Duration,
    quotations: Duration,
) {
    if let Some(recording) = recorder.recording() {
        let log = log.clone();
        tokio::spawn(often(FORGET, recording, move |recording| {
            let log = log.clone();
            async move {
                // What cannot be deleted now is tried again, but somebody may have to do something about it.
                if let Ok(Err(error)) = tokio::task::spawn_blocking(move || recording.expire()).await {
                    let sentence = format!("content that is too old is not deleted: {error}");
                    log.write(Event::Failure, "", Vec::new(), &sentence);
                }
            }
        }));
    }
    if store.is_shared() {
        let store = Arc::downgrade(store);
        // What fails is tried again: a conversation that was held by nobody for too long is not kept.
        tokio::spawn(often(HOLD, store, |store| async move { drop(store.hold_on().await) }));
    }
    // What fails is tried again, and written with the next turn as well.
    let noted = Arc::downgrade(store);
    tokio::spawn(often(NOTE, noted, |store| async move { drop(store.note_log().await) }));
    let age = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX / 2);
    let (store, approvals) = (Arc::downgrade(store), Arc::downgrade(approvals));
    let shown = i64::try_from(quotations.as_millis()).unwrap_or(i64::MAX / 2);
    tokio::spawn(often(CLEAN, store, move |store| async move {
        drop(store.delete_unused(age).await);
        drop(store.delete_old_seen(shown).await);
    }));
    tokio::spawn(often(
        EXPIRE,
        approvals,
        move |approvals| async move { drop(approvals.clean(retention).await) },
    ));
}

async fn often<T, F: Future<Output = ()>>(pause: Duration, what: Weak<T>, work: impl Fn(Arc<T>) -> F) {
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(what) = what.upgrade() else { return };
        work(what).await;
    }
}
