//! Writes the events of a session to a file as the lines of a trace, which `check`, `replay`, `explain` and `suggest`
//! read. `flowgate run --trace` writes one such file, and [`crate::trace_folder`] one for each session. Calls that did
//! not run are left out. If the policy has parameters, the first line has their values.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flowgate::monitor::Monitor;
use flowgate::trace::Status;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::trace_lines;
use serde_json::Value;

use crate::private_files;

/// Converts the events of a session to lines of a trace, step by step: each call of [`take_new`](Self::take_new)
/// returns the lines of the events since the previous call.
pub(crate) struct TraceLines {
    /// Whether the line of the parameters was taken, or left out because there are none.
    has_begun: bool,
    /// The number of events that were taken or left out.
    taken: usize,
    /// The number of bytes that further lines may have.
    left: usize,
    /// Whether a line exceeded `left`. From then on, no line is taken, so that the trace is a beginning of the session
    /// without gaps.
    pub(crate) is_full: bool,
}

impl TraceLines {
    /// Returns the lines of a session from its beginning, at most `limit` bytes in all.
    pub(crate) fn new(limit: usize) -> Self {
        Self { has_begun: false, taken: 0, left: limit, is_full: false }
    }

    /// Returns the lines of the events since the last call of this function, except calls that did not run. Stops
    /// before a tool call whose outcome is still open, and before a line that would exceed the limit.
    pub(crate) fn take_new(&mut self, monitor: &Monitor) -> String {
        let mut lines = String::new();
        if !self.has_begun && !monitor.trace().is_empty() {
            self.has_begun = true;
            let parameters = monitor.parameters();
            if !parameters.is_empty() {
                self.add(&Value::Object(RecordedRun::parameters_member(&parameters)), &mut lines);
            }
        }
        for event in monitor.trace().events().iter().skip(self.taken) {
            if self.is_full || event.status == Status::Pending {
                break;
            }
            self.taken += 1;
            // Any other status means that the call did not run.
            if event.status == Status::Done {
                self.add(&trace_lines::line(event, monitor), &mut lines);
            }
        }
        lines
    }

    /// Appends a line to `lines` if there is room for it. Otherwise, no further line is taken.
    fn add(&mut self, line: &Value, lines: &mut String) {
        let line = line.to_string() + "\n";
        match self.left.checked_sub(line.len()) {
            Some(left) => {
                self.left = left;
                lines.push_str(&line);
            }
            None => self.is_full = true,
        }
    }
}

/// The trace file of a session.
pub(crate) struct TraceFile {
    file: File,
    lines: TraceLines,
}

impl TraceFile {
    /// Creates the file; an existing one is emptied. The lines have at most `limit` bytes.
    pub(crate) fn create(path: &Path, limit: usize) -> io::Result<Self> {
        Ok(Self { file: private_files::create(path)?, lines: TraceLines::new(limit) })
    }

    /// Writes the events since the last call of this function. Returns false if the file reaches its limit in this
    /// call. Further calls then write nothing and return true, so that the caller reports the limit only once.
    pub(crate) fn write_new_events(&mut self, monitor: &Monitor) -> io::Result<bool> {
        let was_full = self.lines.is_full;
        self.file.write_all(self.lines.take_new(monitor).as_bytes())?;
        Ok(was_full || !self.lines.is_full)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;
    use flowgate::trace::{Message, TraceEntry};

    use super::*;

    #[test]
    fn a_trace_at_its_limit_is_a_beginning_of_the_session() {
        let policy = Policy::parse("lattice secrecy: public < private\ndefault public\n").unwrap();
        let mut monitor = Monitor::new(Arc::new(policy));
        let mut say = |text: &str, lines: &mut TraceLines| {
            monitor.push(TraceEntry::from(Message::new("user", text))).unwrap();
            lines.take_new(&monitor)
        };
        let mut lines = TraceLines::new(80);
        let first = say("a", &mut lines);
        assert_eq!(first.matches('\n').count(), 1, "{first}");
        assert_eq!((say(&"b".repeat(80), &mut lines).as_str(), lines.is_full), ("", true));
        // A shorter line would fit, but the event before it is missing.
        assert_eq!(say("c", &mut lines), "");
    }

    #[test]
    fn a_trace_begins_with_the_parameters_of_the_policy() {
        let mut monitor = Monitor::new(Arc::new(Policy::parse("").unwrap()));
        monitor.set_parameters(&serde_json::Map::from_iter([("project".to_owned(), "/p".into())]));
        let mut lines = TraceLines::new(1_000);
        assert_eq!(lines.take_new(&monitor), "", "nothing has happened");
        let mut written = String::new();
        for text in ["a", "b"] {
            monitor.push(TraceEntry::from(Message::new("user", text))).unwrap();
            written += &lines.take_new(&monitor);
        }
        let runs = flowgate::trace::read::file(&written).unwrap();
        let [run] = runs.as_slice() else { panic!("{written}") };
        assert_eq!((run.entries.len(), run.parameters()), (2, Some(&monitor.parameters())), "{written}");
        assert_eq!(written.matches("policy_parameters").count(), 1, "{written}");
    }
}
