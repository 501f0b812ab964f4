//! What stores carry, in a file between chats. It is written before a call runs: a call that wrote something, and of which
//! nobody knows, would be read as something better in the next chat.

use std::io::Write;
use std::path::{Path, PathBuf};

use flowgate::monitor::Monitor;
use flowgate_guard::conversation::Conversation;
use serde_json::Value;

use crate::input::{InputError, reason};

/// The file.
pub(super) struct StoresFile {
    path: PathBuf,
    /// What stands in it.
    kept: Option<Value>,
}

impl StoresFile {
    /// Reads the file, if there is one yet.
    pub(super) fn open(path: &Path) -> Result<Self, InputError> {
        let wrong = |problem: String| {
            InputError(format!(
                "{}: {problem}; what stores carry is not known then: restore the file, or remove it to begin anew",
                path.display()
            ))
        };
        let kept = match std::fs::read_to_string(path) {
            Ok(text) => Some(serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(reason(&error))),
        };
        Ok(Self { path: path.to_owned(), kept })
    }

    /// Tells a session what earlier ones wrote.
    pub(super) fn recall(&self, monitor: &mut Monitor) -> Result<(), InputError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        monitor.recall(kept).map_err(|error| InputError(format!("{}: {error}", self.path.display())))
    }

    /// Writes what the stores carry now, if that has changed: to another file first, which takes the place of this one.
    pub(super) fn keep(&mut self, conversation: &Conversation) -> Result<(), String> {
        let now = conversation.remember();
        if self.kept.as_ref() == Some(&now) {
            return Ok(());
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        let written = std::fs::File::create(&part).and_then(|mut file| {
            file.write_all(format!("{now:#}\n").as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&part, &self.path)
        });
        written.map_err(|error| {
            format!("what stores carry cannot be kept in {}: {}", self.path.display(), reason(&error))
        })?;
        self.kept = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let path = std::env::temp_dir().join(format!("flowgate-stores-{}.json", std::process::id()));
        assert!(StoresFile::open(&path).is_ok_and(|file| file.kept.is_none()));
        std::fs::write(&path, "{").unwrap();
        let error = StoresFile::open(&path).err().unwrap().to_string();
        assert!(error.contains("restore the file, or remove it"), "{error}");
        std::fs::write(&path, "{}").unwrap();
        let policy = flowgate::policy::Policy::parse("lattice integrity: trusted < untrusted\n").unwrap();
        let mut monitor = Monitor::new(std::sync::Arc::new(policy));
        let error = StoresFile::open(&path).unwrap().recall(&mut monitor).err().unwrap().to_string();
        assert!(
            error.ends_with("the record of what stores carry cannot be read: it lists no stores"),
            "{error}"
        );
        std::fs::remove_file(&path).unwrap();
    }
}
