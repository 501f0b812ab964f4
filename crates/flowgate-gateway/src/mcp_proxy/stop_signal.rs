//! Ends the wait for an MCP server when the client has disconnected or has cancelled the request, the gateway shuts
//! down, a freeze stops a stream, or the time is over. `server_requests` and `listening` create a [`StopSignal`];
//! `upstream` and `resumption` wait with it.

use std::pin::pin;

use flowgate_lm::BoxFuture;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::http::client_presence::ClientPresence;

/// The reason why a request has no answer if the wait for it was ended, by any of the conditions of [`StopSignal`]. It
/// is for the operator's log; a client receives it only in place of a listening stream.
pub(super) const NOT_AWAITED: &str = "the gateway stopped waiting for the MCP server: the client disconnected or cancelled the request, a time limit was reached, a freeze stops the stream, or the gateway shuts down";

/// A check that a wait repeats until it ends.
pub(super) trait PeriodicCheck: Send {
    /// Returns the time of the next check.
    fn next_check(&self) -> Instant;

    /// Runs the check if it is due. Returns true if it ends the wait.
    fn check(&mut self) -> BoxFuture<'_, bool>;
}

/// The conditions that end the wait for a server. By default, none of them does.
#[derive(Default)]
pub(super) struct StopSignal<'w> {
    /// Whether the client has disconnected.
    pub(super) client: ClientPresence,
    /// Whether the client has cancelled the request.
    pub(super) cancelled: CancellationToken,
    /// Whether the gateway shuts down.
    pub(super) closing: CancellationToken,
    /// The end of the time for the answer.
    pub(super) until: Option<Instant>,
    /// The checks of a listening stream.
    pub(super) check: Option<Box<dyn PeriodicCheck + 'w>>,
}

impl StopSignal<'_> {
    /// Returns whether the wait is over: the client has disconnected, the request is cancelled, the gateway shuts down,
    /// the time is over, or a check ends the wait. A check that is due runs here, which may also send the client a
    /// comment.
    pub(super) async fn is_over(&mut self) -> bool {
        if self.client.is_disconnected()
            || self.cancelled.is_cancelled()
            || self.closing.is_cancelled()
            || self.until.is_some_and(|until| until <= Instant::now())
        {
            return true;
        }
        match &mut self.check {
            Some(check) => check.check().await,
            None => false,
        }
    }

    /// Awaits `work`, and returns its result, even if the wait has ended at the same moment.
    ///
    /// # Errors
    /// If the wait is over before `work` is complete.
    pub(super) async fn wait_for<T>(&mut self, work: impl Future<Output = T>) -> Result<T, &'static str> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(done),
                () = self.next_event() => {}
            }
            // The check runs outside of `select!`, which would cancel it whenever `work` is ready: a fast stream could
            // then prevent the check forever.
            if self.is_over().await {
                return Err(NOT_AWAITED);
            }
        }
    }

    /// Waits until one of the conditions may hold: the client has disconnected or cancelled, the gateway shuts down,
    /// the time is over, or a check is due.
    async fn next_event(&mut self) {
        // The earlier of the next check and the end of the time; `None` if there is neither.
        let next = self.check.as_ref().map(|check| check.next_check());
        let next = [next, self.until].into_iter().flatten().min();
        let is_due = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.client.disconnected() => {}
            () = self.cancelled.cancelled() => {}
            () = self.closing.cancelled() => {}
            () = is_due => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    /// A check that ends the wait the third time.
    struct ThirdCheck(u32);

    impl PeriodicCheck for ThirdCheck {
        fn next_check(&self) -> Instant {
            Instant::now()
        }

        fn check(&mut self) -> BoxFuture<'_, bool> {
            self.0 += 1;
            Box::pin(ready(self.0 == 3))
        }
    }

    #[tokio::test]
    async fn each_signal_ends_a_wait() {
        let signals: [fn() -> StopSignal<'static>; 5] = [
            || {
                let stop = StopSignal::default();
                drop(stop.client.disconnect_on_drop());
                stop
            },
            || {
                let stop = StopSignal::default();
                stop.cancelled.cancel();
                stop
            },
            || {
                let stop = StopSignal::default();
                stop.closing.cancel();
                stop
            },
            || StopSignal { until: Some(Instant::now() + Duration::from_millis(1)), ..StopSignal::default() },
            || StopSignal { check: Some(Box::new(ThirdCheck(0))), ..StopSignal::default() },
        ];
        for signal in signals {
            assert_eq!(signal().wait_for(pending::<()>()).await, Err(NOT_AWAITED));
            // What has arrived is not lost.
            assert_eq!(signal().wait_for(ready(1)).await, Ok(1));
        }
    }

    #[tokio::test]
    async fn a_signal_during_the_wait_ends_it() {
        let mut stop = StopSignal::default();
        let token = stop.cancelled.clone();
        let (waited, ()) = tokio::join!(stop.wait_for(pending::<()>()), async { token.cancel() });
        assert_eq!(waited, Err(NOT_AWAITED));
        assert!(stop.is_over().await);
    }
}
