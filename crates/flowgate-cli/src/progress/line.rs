//! Formats the progress line of a command: the work done, its share of all work, and the time left at the same speed.
//! The module `progress` decides when the line is printed.

use std::time::Duration;

use super::WorkUnit;
use crate::output::plural;

/// Returns the line for a command that has done `done` of `total` bytes or steps in `time`. `items` is the number of
/// items that the command has handled, such as runs, and `work` has the word for one of them. If the word is empty, the
/// number of items is left out.
pub(super) fn line(work: &WorkUnit, items: usize, done: u64, total: Option<u64>, time: Duration) -> String {
    let (counted, unit) = match work {
        WorkUnit::Files("") => (String::new(), "% read"),
        WorkUnit::Files(word) => (format!("{}, ", plural(items, word)), "% read"),
        WorkUnit::Steps(word) => (format!("{}, ", plural(items, word)), "%"),
    };
    match total.map(|total| share(done, total, 100)) {
        None => format!("{counted}{}", elapsed(time)),
        // All bytes are read, but some runs may not be judged yet, so the time left is unknown.
        Some(100) => format!("{counted}100{unit}"),
        // The fallback is never used: with a percentage, there is a total.
        Some(percent) => match time_left(done, total.unwrap_or(done), time) {
            None => format!("{counted}{percent}{unit}"),
            Some(left) => format!("{counted}{percent}{unit}, {} left", elapsed(left)),
        },
    }
}

/// Returns how many tenths of the work are done. If the total is unknown, returns instead a number that grows by one
/// whenever the number of items doubles. Progress that is not shown on a terminal has a new line when this number
/// grows.
pub(super) fn tenth(done: u64, total: Option<u64>, items: u64) -> u64 {
    total.map_or_else(
        || u64::from(items.checked_ilog2().map_or(0, |log| log + 1)),
        |total| share(done, total, 10),
    )
}

/// Returns how many of `parts` equal parts of the work are done, rounded down; `parts` if there is no work at all.
fn share(done: u64, total: u64, parts: u64) -> u64 {
    let share = (u128::from(parts) * u128::from(done.min(total))).checked_div(u128::from(total));
    share.and_then(|share| u64::try_from(share).ok()).unwrap_or(parts)
}

/// Returns the time that the rest of the work takes at the speed so far; `None` before any work is done, if more than
/// `total` is done, or if the time is too long for a number.
fn time_left(done: u64, total: u64, time: Duration) -> Option<Duration> {
    let rest = total.checked_sub(done)?;
    let nanos = time.as_nanos().checked_mul(u128::from(rest))?.checked_div(u128::from(done))?;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// Formats a time in at most two units: `0 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_done_and_remaining_work() {
        let check = |work: WorkUnit,
                     items: usize,
                     (done, total): (u64, Option<u64>),
                     seconds: f64,
                     expected: &str| {
            assert_eq!(line(&work, items, done, total, Duration::from_secs_f64(seconds)), expected);
        };
        let (runs, steps, log) = (WorkUnit::Files("run"), WorkUnit::Steps("run"), WorkUnit::Files(""));
        check(runs, 0, (0, Some(1000)), 2.0, "0 runs, 0% read");
        check(runs, 1, (250, Some(1000)), 4.0, "1 run, 25% read, 12 s left");
        check(runs, 2, (999, Some(1000)), 4.0, "2 runs, 99% read, 0 s left");
        check(runs, 3, (1000, Some(1000)), 4.0, "3 runs, 100% read");
        // A file that has grown since, and an empty one.
        check(runs, 3, (1500, Some(1000)), 4.0, "3 runs, 100% read");
        check(runs, 0, (0, Some(0)), 4.0, "0 runs, 100% read");
        check(runs, 412, (1 << 40, None), 75.0, "412 runs, 1 min 15 s");
        check(steps, 30, (30, Some(1200)), 10.0, "30 runs, 2%, 6 min 30 s left");
        check(steps, 1, (1, Some(u64::MAX)), 1.0, "1 run, 0%");
        check(log, 0, (1, Some(3601)), 1.0, "0% read, 1 h 0 min left");
        check(log, 0, (1, None), 3.0, "3 s");
    }

    #[test]
    fn tenths_follow_the_work_or_the_doubling_of_items() {
        let tenths = |total: Option<u64>| -> Vec<u64> { (0..=8).map(|n| tenth(n * 5, total, n)).collect() };
        assert_eq!(tenths(Some(40)), [0, 1, 2, 3, 5, 6, 7, 8, 10]);
        assert_eq!(tenths(None), [0, 1, 2, 2, 3, 3, 3, 3, 4]);
    }
}
