//! What a client was shown through all of its servers: each has a program of its own that stands between, and they share a file.
//!
//! A page that one server fetched may ask for a mail that another one sends. So what one has shown counts for the others before they
//! judge, and is in the file before it goes out.

use std::fs::File;
use std::path::{Path, PathBuf};

use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Entry, Message};
use serde_json::{Value, json};

use crate::input::{InputError, reason};

/// The file.
pub(super) struct Seen {
    path: PathBuf,
    lock: File,
}

impl Seen {
    /// Opens the file, or begins it.
    pub(super) fn open(path: &Path) -> Result<Self, InputError> {
        let mut lock = path.to_owned().into_os_string();
        lock.push(".lock");
        let lock = File::options().create(true).append(true).open(PathBuf::from(lock));
        let lock = lock.map_err(|error| InputError(format!("{}: {}", path.display(), reason(&error))))?;
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Tells the monitor what the client was shown by others, and the others what it was shown here.
    pub(super) fn exchange(&self, monitor: &mut Monitor) -> Result<(), String> {
        self.lock.lock().map_err(|error| self.wrong(&reason(&error)))?;
        let exchanged = self.exchange_locked(monitor);
        self.lock.unlock().map_err(|error| self.wrong(&reason(&error)))?;
        exchanged
    }

    fn exchange_locked(&self, monitor: &mut Monitor) -> Result<(), String> {
        let kept = match std::fs::read_to_string(&self.path) {
            Ok(text) => {
                let read: Value =
                    serde_json::from_str(&text).map_err(|error| self.wrong(&error.to_string()))?;
                Some(read.get("seen").filter(|seen| seen.is_object()).cloned())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.wrong(&reason(&error))),
        };
        let content = Value::String("what other servers of this client have shown".to_owned());
        let entry = Entry::from(Body::Message(Message { role: "assistant".to_owned(), content }));
        let place = monitor.trace().place(&entry).map_err(|error| error.to_string())?;
        let mut seen = place.context;
        if let Some(kept) = &kept {
            let kept = kept.as_ref().ok_or_else(|| self.wrong("it does not say what was seen"))?;
            let others = monitor.from_names(kept);
            if !others.flows_to(&seen) {
                seen = seen.join(&others);
                monitor.push_generated(entry, seen).map_err(|error| error.to_string())?;
            }
        }
        let now = monitor.to_names(&seen);
        if kept.flatten().as_ref() != Some(&now) {
            let mut part = self.path.clone().into_os_string();
            part.push(".part");
            let part = PathBuf::from(part);
            let text = format!("{:#}\n", json!({"seen": now}));
            let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &self.path));
            written.map_err(|error| self.wrong(&reason(&error)))?;
        }
        Ok(())
    }

    fn wrong(&self, problem: &str) -> String {
        let path = self.path.display();
        format!("{path}: {problem}; what other servers have shown is not known then: remove it to begin anew")
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
    fn what_one_has_shown_the_others_know() {
        let path = std::env::temp_dir().join(format!("flowgate-seen-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (one, two) = (Seen::open(&path).unwrap(), Seen::open(&path).unwrap());
        let (mut first, mut second) = (monitor(), monitor());
        one.exchange(&mut first).unwrap();
        two.exchange(&mut second).unwrap();
        assert_eq!(second.trace().len(), 0);
        let page = Body::Message(Message { role: "mcp".to_owned(), content: "a page".into() });
        first.push(Entry::from(page)).unwrap();
        one.exchange(&mut first).unwrap();
        two.exchange(&mut second).unwrap();
        let shown = second.trace().events().first().map(|event| second.describe(&event.label));
        assert_eq!(shown.unwrap(), ["untrusted"]);
        two.exchange(&mut second).unwrap();
        assert_eq!(second.trace().len(), 1);
        std::fs::write(&path, "{}").unwrap();
        assert!(two.exchange(&mut second).unwrap_err().contains("remove it to begin anew"));
        std::fs::remove_file(&path).unwrap();
    }
}
