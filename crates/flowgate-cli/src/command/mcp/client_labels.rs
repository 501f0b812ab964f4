//! Stores in the file of `--session` the label of everything that an MCP client has received from all of its servers.
//! The proxies of these servers (`flowgate mcp`, one process each) share the file.
//!
//! A page that one server fetched may ask the agent for a mail that another server sends. So each proxy reads the file
//! before it judges a call, and writes to the file before it sends an answer.

use std::fs::File;
use std::path::{Path, PathBuf};

use flowgate::monitor::Monitor;
use flowgate::trace::TraceEntry;
use serde_json::{Value, json};

use crate::input::{InputError, describe_io_error};
use crate::private_files;

/// The file of labels, with its lock file in the same folder.
pub(super) struct ClientLabelFile {
    path: PathBuf,
    lock: File,
}

impl ClientLabelFile {
    /// Opens or creates the lock file next to `path`. The file of labels is created by the first exchange.
    pub(super) fn open(path: &Path) -> Result<Self, InputError> {
        let lock = private_files::lock_beside(path);
        let lock =
            lock.map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?;
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Exchanges labels with the file while this process holds its lock: adds the labels that other proxies have stored
    /// to the monitor, and the labels of the monitor to the file.
    pub(super) fn exchange(&self, monitor: &mut Monitor) -> Result<(), String> {
        self.lock.lock().map_err(|error| self.access_error(&error))?;
        let exchanged = self.exchange_locked(monitor);
        self.lock.unlock().map_err(|error| self.access_error(&error))?;
        exchanged
    }

    /// Joins the labels in the file with the label of everything that the client has received in this session. If the
    /// file raises that label, an event that carries the result is added to the monitor. Writes the result to the file
    /// if it differs. The caller holds the lock on the file.
    fn exchange_locked(&self, monitor: &mut Monitor) -> Result<(), String> {
        // `None` if there is no file; `Some(None)` if the file has no object `seen`, which is an error below.
        let stored = match std::fs::read_to_string(&self.path) {
            Ok(text) => {
                let read: Value = serde_json::from_str(&text)
                    .map_err(|error| self.file_error(&format!("the file is not valid JSON: {error}")))?;
                Some(read.get("seen").filter(|client_label| client_label.is_object()).cloned())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.access_error(&error)),
        };
        let content = Value::String("text from other servers of this client".to_owned());
        let entry = TraceEntry::assistant(content);
        // The entry is pushed only if the file raises the label. Here it is used to find the label of everything that
        // the client has received so far: the `context` of the position that the entry would have.
        let position = monitor.trace().position_of(&entry).map_err(|error| error.to_string())?;
        let mut client_label = position.context;
        if let Some(stored) = &stored {
            let stored = stored.as_ref().ok_or_else(|| self.file_error("the object `seen` is missing"))?;
            let others = monitor.from_names(stored);
            // Labels that raise nothing need no event.
            if !others.flows_to(&client_label) {
                client_label = client_label.join(&others);
                monitor.push_generated(entry, client_label).map_err(|error| error.to_string())?;
            }
        }
        let label_names = monitor.to_names(&client_label);
        let is_stored_already = stored.flatten().as_ref() == Some(&label_names);
        if !is_stored_already {
            let text = format!("{:#}\n", json!({"seen": label_names}));
            private_files::replace(&self.path, &text).map_err(|error| self.access_error(&error))?;
        }
        Ok(())
    }

    /// Returns the message for a file that cannot be locked, read or written, with advice.
    fn access_error(&self, error: &std::io::Error) -> String {
        format!("{}: {}", self.path.display(), describe_io_error(error))
    }

    /// Returns the message for a file whose content is invalid, with advice.
    fn file_error(&self, problem: &str) -> String {
        let path = self.path.display();
        format!(
            "{path}: {problem}; this file keeps the labels of text from other servers of this client: restore it, or \
            remove it to forget these labels"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;

    use super::*;

    fn monitor() -> Monitor {
        Monitor::new(Arc::new(Policy::parse("lattice integrity: trusted < untrusted\n").unwrap()))
    }

    #[test]
    fn labels_are_exchanged_between_proxies() {
        let path = std::env::temp_dir().join(format!("flowgate-seen-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (one, two) = (ClientLabelFile::open(&path).unwrap(), ClientLabelFile::open(&path).unwrap());
        let (mut first, mut second) = (monitor(), monitor());
        one.exchange(&mut first).unwrap();
        two.exchange(&mut second).unwrap();
        assert_eq!(second.trace().len(), 0);
        first.push(TraceEntry::from(flowgate::trace::Message::new("mcp", "a page"))).unwrap();
        one.exchange(&mut first).unwrap();
        two.exchange(&mut second).unwrap();
        let shown = second.trace().events().first().map(|event| second.describe(&event.label));
        assert_eq!(shown.unwrap(), ["untrusted"]);
        two.exchange(&mut second).unwrap();
        assert_eq!(second.trace().len(), 1);
        std::fs::write(&path, "{}").unwrap();
        assert!(two.exchange(&mut second).unwrap_err().contains("remove it to forget these labels"));
        std::fs::remove_file(&path).unwrap();
    }
}
