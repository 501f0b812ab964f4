//! Limits the rate of log lines, for `log`: decides whether a line is written, and counts the suppressed lines. Lines
//! of the same event, the same client and the same reached limit (if any) are of one *kind*; each kind has a rate of
//! its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::LogEvent;

/// The length of a window of time, in which a limited number of lines of each kind is written.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The maximum number of kinds that are counted separately. It is a safeguard: only clients of the configuration and
/// limits of this program make new kinds.
const MAX_KINDS: usize = 4096;

/// The name of a limit, and the setting that raises it. Both are empty for events other than [`LogEvent::Limit`].
pub(super) type ReachedLimit = (&'static str, &'static str);

/// An event, a client and a limit.
type RateKey = (LogEvent, String, ReachedLimit);

/// The current window of each kind.
#[derive(Debug, Default)]
pub(super) struct RateWindows(BTreeMap<RateKey, RateWindow>);

/// The current window of one kind.
#[derive(Debug)]
struct RateWindow {
    /// The time at which the window began.
    since: Instant,
    /// The number of lines that were written in the window.
    written: u32,
    /// The number of lines that were suppressed in the window.
    suppressed: u64,
}

/// Whether a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateDecision {
    /// It is written, with the number of lines suppressed before it.
    Written { suppressed: u64 },
    /// It is counted, not written.
    Suppressed,
}

/// The number of suppressed lines of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SuppressedLines {
    pub(super) event: LogEvent,
    pub(super) client: String,
    pub(super) limit: ReachedLimit,
    pub(super) count: u64,
}

impl RateWindows {
    /// Decides whether a line of a kind is written at the time `now`, and counts it in the window of the kind. `kind`
    /// is the event, the client and the limit of the line. Begins a new window if the current one is over. In each
    /// window, the first lines of a kind are written, as many as [`LogEvent::burst`] says for its event.
    pub(super) fn admit(&mut self, kind: (LogEvent, &str, ReachedLimit), now: Instant) -> RateDecision {
        let (event, client, limit) = kind;
        let mut kind = (event, client.to_owned(), limit);
        // Beyond the bound, all clients share one window for each event and limit.
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&kind) {
            kind.1.clear();
        }
        let window =
            self.0.entry(kind).or_insert_with(|| RateWindow { since: now, written: 0, suppressed: 0 });
        // The number of lines that were suppressed in the previous window is reported with the first line of this one.
        let mut suppressed = 0;
        if now.saturating_duration_since(window.since) >= WINDOW {
            suppressed = window.suppressed;
            *window = RateWindow { since: now, written: 0, suppressed: 0 };
        }
        if window.written >= event.burst() {
            window.suppressed = window.suppressed.saturating_add(1);
            return RateDecision::Suppressed;
        }
        window.written += 1;
        RateDecision::Written { suppressed }
    }

    /// Removes the windows that are over at the time `now`. Returns the number of suppressed lines of each kind that
    /// has any. The caller has to report these numbers: no later line of the kind does.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<SuppressedLines> {
        let is_over = |window: &RateWindow| now.saturating_duration_since(window.since) >= WINDOW;
        let (over, open) = std::mem::take(&mut self.0).into_iter().partition(|(_, window)| is_over(window));
        self.0 = open;
        let over: BTreeMap<RateKey, RateWindow> = over;
        let suppressed = |((event, client, limit), window): (RateKey, RateWindow)| {
            (window.suppressed > 0).then_some(SuppressedLines {
                event,
                client,
                limit,
                count: window.suppressed,
            })
        };
        over.into_iter().filter_map(suppressed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_window() {
        let (mut rates, begun) = (RateWindows::default(), Instant::now());
        let burst = LogEvent::Refused.burst();
        for _ in 0..burst {
            assert_eq!(
                rates.admit((LogEvent::Refused, "a", ("", "")), begun),
                RateDecision::Written { suppressed: 0 }
            );
        }
        for _ in 0..7 {
            assert_eq!(rates.admit((LogEvent::Refused, "a", ("", "")), begun), RateDecision::Suppressed);
        }
        assert_eq!(
            rates.admit((LogEvent::Refused, "b", ("", "")), begun),
            RateDecision::Written { suppressed: 0 }
        );
        assert_eq!(rates.take_expired(begun), Vec::new());
        let later = begun + WINDOW;
        assert_eq!(
            rates.admit((LogEvent::Refused, "a", ("", "")), later),
            RateDecision::Written { suppressed: 7 }
        );
        for _ in 0..burst {
            rates.admit((LogEvent::Refused, "a", ("", "")), later);
        }
        let expected =
            SuppressedLines { event: LogEvent::Refused, client: "a".to_owned(), limit: ("", ""), count: 1 };
        assert_eq!(rates.take_expired(later + WINDOW), [expected]);
        assert!(rates.0.is_empty());
    }

    #[test]
    fn kinds_are_bounded() {
        let (mut rates, now) = (RateWindows::default(), Instant::now());
        for client in 0..3 * MAX_KINDS {
            rates.admit((LogEvent::Turn, &client.to_string(), ("", "")), now);
        }
        assert!(rates.0.len() <= MAX_KINDS + 1);
    }
}
