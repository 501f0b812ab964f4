//! Writes the events of a chat to the file of `--trace`, as JSON lines for `flowgate check`.
//! Calls that did not run are left out.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flowgate::monitor::Monitor;
use flowgate::trace::Status;
use flowgate_guard::trace_lines;

use crate::private_files;

/// The trace file of a session.
pub(super) struct TraceFile {
    file: File,
    /// The number of events that were written or left out.
    written: usize,
}

impl TraceFile {
    /// Creates the file; an existing one is emptied.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: private_files::create(path)?, written: 0 })
    }

    /// Writes the events since the last call of this function, except calls that did not run. Stops before a tool call
    /// whose outcome is still open.
    pub(super) fn write_new_events(&mut self, monitor: &Monitor) -> io::Result<()> {
        let events = monitor.trace().events();
        let mut lines = String::new();
        // `written` is the number of events that were handled, those that are left out too.
        for event in events.iter().skip(self.written) {
            if event.status == Status::Pending {
                break;
            }
            self.written += 1;
            // Any other status means that the call did not run.
            if event.status == Status::Done {
                lines.push_str(&trace_lines::line(event, monitor).to_string());
                lines.push('\n');
            }
        }
        self.file.write_all(lines.as_bytes())
    }
}
