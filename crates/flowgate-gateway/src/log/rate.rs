//! Rate limits of lines: how many of a kind are written, and how many are suppressed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Event;

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The maximum number of kinds that are counted separately. Clients come from the configuration and settings from this
/// program; the bound holds nevertheless.
const MOST_KINDS: usize = 4096;

/// An event, a client and a setting.
type Kind = (Event, String, &'static str);

/// The current window of each kind.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<Kind, Window>);

#[derive(Debug)]
struct Window {
    since: Instant,
    written: u32,
    suppressed: u64,
}

/// The outcome for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It is written, with the number of lines suppressed before it.
    Written { suppressed: u64 },
    /// It is counted, not written.
    Suppressed,
}

/// The number of suppressed lines of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suppressed {
    pub(super) event: Event,
    pub(super) client: String,
    pub(super) setting: &'static str,
    pub(super) count: u64,
}

impl Rates {
    /// Decides whether a line of a kind is written.
    pub(super) fn admit(&mut self, kind: (Event, &str, &'static str), now: Instant) -> Admitted {
        let (event, client, setting) = kind;
        let mut kind = (event, client.to_owned(), setting);
        if self.0.len() >= MOST_KINDS && !self.0.contains_key(&kind) {
            kind.1.clear();
        }
        let window = self.0.entry(kind).or_insert_with(|| Window { since: now, written: 0, suppressed: 0 });
        let mut suppressed = 0;
        if now.saturating_duration_since(window.since) >= WINDOW {
            suppressed = window.suppressed;
            *window = Window { since: now, written: 0, suppressed: 0 };
        }
        if window.written >= event.burst() {
            window.suppressed = window.suppressed.saturating_add(1);
            return Admitted::Suppressed;
        }
        window.written += 1;
        Admitted::Written { suppressed }
    }

    /// Removes the windows that are over, and returns their suppressed lines that were not reported.
    pub(super) fn over(&mut self, now: Instant) -> Vec<Suppressed> {
        let is_over = |window: &Window| now.saturating_duration_since(window.since) >= WINDOW;
        let (over, open) = std::mem::take(&mut self.0).into_iter().partition(|(_, window)| is_over(window));
        self.0 = open;
        let over: BTreeMap<Kind, Window> = over;
        let suppressed = |((event, client, setting), window): (Kind, Window)| {
            (window.suppressed > 0).then_some(Suppressed { event, client, setting, count: window.suppressed })
        };
        over.into_iter().filter_map(suppressed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_window() {
        let (mut rates, begun) = (Rates::default(), Instant::now());
        let burst = Event::Refused.burst();
        for _ in 0..burst {
            assert_eq!(rates.admit((Event::Refused, "a", ""), begun), Admitted::Written { suppressed: 0 });
        }
        for _ in 0..7 {
            assert_eq!(rates.admit((Event::Refused, "a", ""), begun), Admitted::Suppressed);
        }
        assert_eq!(rates.admit((Event::Refused, "b", ""), begun), Admitted::Written { suppressed: 0 });
        assert_eq!(rates.over(begun), Vec::new());
        let later = begun + WINDOW;
        assert_eq!(rates.admit((Event::Refused, "a", ""), later), Admitted::Written { suppressed: 7 });
        for _ in 0..burst {
            rates.admit((Event::Refused, "a", ""), later);
        }
        let expected = Suppressed { event: Event::Refused, client: "a".to_owned(), setting: "", count: 1 };
        assert_eq!(rates.over(later + WINDOW), [expected]);
        assert!(rates.0.is_empty());
    }

    #[test]
    fn kinds_are_bounded() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        for client in 0..3 * MOST_KINDS {
            rates.admit((Event::Turn, &client.to_string(), ""), now);
        }
        assert!(rates.0.len() <= MOST_KINDS + 1);
    }
}
