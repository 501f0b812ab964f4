//! Runs `flowgate report`: sums up watch logs, in which a guard in watch mode has recorded its verdicts. Prints what
//! the guard would have asked about and denied, and how often.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use flowgate::monitor::Outcome;
use flowgate_audit::watch::{WatchedSubject, WatchedVerdict};
use serde_json::json;

use crate::args::{ReportArgs, TableFormat};
use crate::escaping;
use crate::input::{self, InputError, describe_io_error};
use crate::output::{Console, plural};

/// The longest reason in a table, in characters.
const MAX_REASON: usize = 100;
/// The longest line that is read as a whole, in bytes; a longer one is read in parts.
const MAX_LINE: u64 = 1 << 20;
/// The maximum number of different objections that are listed; further ones are only counted.
const MAX_ROWS: usize = 10_000;

/// The key of a row of the table: events that would have been stopped with the same outcome, of the same kind and
/// tool, and for the same reason.
type Objection = (Outcome, WatchedSubject, Option<String>, String);

/// The figures over all verdicts.
#[derive(Debug, Default, PartialEq)]
struct WatchSummary {
    /// The numbers of permitted, asked and denied events.
    outcomes: [usize; 3],
    /// The times of the first and the last event, in seconds since 1970.
    times: Option<(u64, u64)>,
    /// How often each objection would have been made.
    objections: BTreeMap<Objection, usize>,
    /// The number of objections that are not listed, because there are too many different ones.
    unlisted: usize,
}

impl WatchSummary {
    /// Adds one verdict with its time in seconds. At most [`MAX_ROWS`] different objections are listed, so that memory
    /// stays bounded; further ones are only counted, in `unlisted`.
    fn add(&mut self, (time, verdict): (u64, WatchedVerdict)) {
        let WatchedVerdict { subject, tool, outcome, reason } = verdict;
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        let [permitted, asked, denied] = &mut self.outcomes;
        match outcome {
            Outcome::Permit => *permitted += 1,
            Outcome::Confirm => *asked += 1,
            Outcome::Deny => *denied += 1,
        }
        if outcome == Outcome::Permit {
            return;
        }
        let objection = (outcome, subject, tool, reason);
        if self.objections.len() >= MAX_ROWS && !self.objections.contains_key(&objection) {
            self.unlisted += 1;
            return;
        }
        *self.objections.entry(objection).or_default() += 1;
    }

    /// Returns the objections, the most frequent ones first.
    fn by_frequency(&self) -> Vec<(&Objection, usize)> {
        let mut rows: Vec<_> = self.objections.iter().map(|(objection, count)| (objection, *count)).collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        rows
    }
}

/// Runs `flowgate report`: prints the sums over all files. Returns 0 if nothing would have been stopped and every line
/// could be read, otherwise 1.
pub(crate) fn run(options: &ReportArgs, output: &mut Console) -> Result<u8, InputError> {
    let mut summary = WatchSummary::default();
    let mut unreadable = 0;
    for path in &options.files {
        for_each_line(path, &mut |number, line| match line.and_then(|line| WatchedVerdict::parse(&line)) {
            Ok(verdict) => summary.add(verdict),
            Err(why) => {
                output.error(&format!("{}:{number}: {why}", path.display()));
                unreadable += 1;
            }
        })?;
    }
    match options.format {
        TableFormat::Text => print_text(&summary, output),
        TableFormat::Json => print_json(&summary, output),
    }
    // The first number, that of permitted events, is not a number of objections.
    let [_, asked, denied] = summary.outcomes;
    Ok(u8::from(asked + denied + unreadable > 0))
}

/// Passes each line of a file to `each`, with its number, except lines of white space. A line that is not UTF-8 is
/// passed as an error. A line that is longer than [`MAX_LINE`] is passed in several parts, so that memory stays
/// bounded.
///
/// # Errors
/// If the file cannot be read.
fn for_each_line(path: &Path, each: &mut dyn FnMut(usize, Result<String, String>)) -> Result<(), InputError> {
    let mut reader = input::open(path)?;
    let mut number = 1;
    loop {
        let mut bytes = Vec::new();
        let read = std::io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut bytes);
        read.map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?;
        if bytes.is_empty() {
            break;
        }
        // The parts of a line that is cut have the number of the line.
        let line = number;
        number += usize::from(bytes.ends_with(b"\n"));
        let text = String::from_utf8(bytes).map_err(|_| {
            "the line is not valid UTF-8, so the file is not a watch log; give a watch log".to_owned()
        });
        if !text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            each(line, text);
        }
    }
    Ok(())
}

/// Prints the number of events by outcome, and a table of the objections.
fn print_text(summary: &WatchSummary, output: &mut Console) {
    let [permitted, asked, denied] = summary.outcomes;
    // The times are in seconds. A period within one day counts as one day.
    let period = summary.times.map_or(String::new(), |(first, last)| {
        format!(" in {}", plural((last - first).div_ceil(86_400).max(1), "day"))
    });
    output.line(&format!(
        "{}{period}: {permitted} permitted, {asked} asked about, {denied} denied",
        plural(permitted + asked + denied, "event")
    ));
    let rows: Vec<Vec<String>> = summary
        .by_frequency()
        .into_iter()
        .map(|((outcome, subject, tool, reason), count)| {
            let tool = tool.as_deref().map_or_else(|| "-".to_owned(), escaping::line);
            let reason = escaping::excerpt(reason, MAX_REASON);
            vec![count.to_string(), outcome.name().to_owned(), subject.name().to_owned(), tool, reason]
        })
        .collect();
    if !rows.is_empty() {
        output.line("");
        output.table(&["times", "decision", "of", "tool", "reason"], &rows);
    }
    if summary.unlisted > 0 {
        output.line(&format!("and {} of further kinds", plural(summary.unlisted, "objection")));
    }
    if asked + denied > 0 {
        output.line("");
        output.line(
            "`flowgate suggest POLICY TRACES` finds the least changes of the policy that let recorded traces of ordinary work pass.",
        );
    }
}

/// Prints the summary as one JSON document.
fn print_json(summary: &WatchSummary, output: &mut Console) {
    let [permitted, asked, denied] = summary.outcomes;
    let objections = summary.by_frequency().into_iter().map(|((outcome, subject, tool, reason), count)| {
        json!({
            "count": count,
            "outcome": outcome.name(),
            "subject": subject.name(),
            "tool": tool,
            "reason": reason,
        })
    });
    let document = json!({
        "permitted": permitted,
        "asked": asked,
        "denied": denied,
        "first": summary.times.map(|(first, _)| first),
        "last": summary.times.map(|(_, last)| last),
        "objections": objections.collect::<Vec<_>>(),
        "unlisted": summary.unlisted,
    });
    output.line(&document.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(time: u64, outcome: Outcome, tool: &str) -> (u64, WatchedVerdict) {
        let reason = if outcome == Outcome::Permit { "" } else { "why" };
        let (subject, tool) = (WatchedSubject::Call, Some(tool.to_owned()));
        (time, WatchedVerdict { subject, tool, outcome, reason: reason.to_owned() })
    }

    #[test]
    fn objections_are_counted_by_frequency() {
        let mut summary = WatchSummary::default();
        summary.add(verdict(20, Outcome::Deny, "pay"));
        summary.add(verdict(10, Outcome::Permit, "read"));
        summary.add(verdict(30, Outcome::Confirm, "send"));
        summary.add(verdict(40, Outcome::Confirm, "send"));
        assert_eq!((summary.outcomes, summary.times), ([1, 2, 1], Some((10, 40))));
        let rows: Vec<_> =
            summary.by_frequency().iter().map(|((_, _, tool, _), n)| (tool.clone(), *n)).collect();
        assert_eq!(rows, [(Some("send".to_owned()), 2), (Some("pay".to_owned()), 1)]);
    }

    #[test]
    fn the_number_of_rows_is_bounded() {
        let mut summary = WatchSummary::default();
        for number in 0..MAX_ROWS + 5 {
            summary.add(verdict(1, Outcome::Deny, &number.to_string()));
        }
        summary.add(verdict(1, Outcome::Deny, "0"));
        assert_eq!((summary.objections.len(), summary.unlisted), (MAX_ROWS, 5));
    }
}
