//! Keeps the labels of external state (*stores*: state that tools write and read, such as a database), and shares them
//! between sessions. A chat of `flowgate run` shares them with the agents to which it delegates tasks. With
//! `--stores FILE`, `flowgate run` and `flowgate mcp` also share them with other processes of the same account.
//!
//! Before a call runs, its session saves the labels of the stores that the call can write. Before the answer of a call
//! is labelled, its session reads the labels that other sessions have saved. So no session reads a value whose label it
//! does not know.

use std::fs::File;
use std::path::{Path, PathBuf};

use flowgate::monitor::{ExternalStateError, Monitor};
use flowgate_guard::conversation::Conversation;
use serde_json::Value;

use crate::input::{InputError, describe_io_error};
use crate::private_files;

/// A session whose labels of stores are shared: the conversation of `flowgate run`, or the monitor of `flowgate mcp`.
/// Both implementations pass each call on to the method of the same name of the session.
pub(crate) trait ExternalStateSession {
    /// Marks with `stamp` the stores that this session has written since the last call of this method. The new stamp
    /// shows other sessions that there was a write, even if no label has changed.
    fn stamp_writes(&mut self, stamp: &str);
    /// Returns the labels of the stores as JSON.
    fn external_state_record(&self) -> Value;
    /// Joins to the labels of this session those that other sessions have written. `record` has the form that
    /// [`external_state_record`](Self::external_state_record) returns.
    fn join_external_state(&mut self, record: &Value) -> Result<(), ExternalStateError>;
}

impl ExternalStateSession for Conversation {
    fn stamp_writes(&mut self, stamp: &str) {
        // The method of `Conversation` itself, which has precedence over this one.
        Self::stamp_writes(self, stamp);
    }

    fn external_state_record(&self) -> Value {
        self.monitor().external_state_record()
    }

    fn join_external_state(&mut self, record: &Value) -> Result<(), ExternalStateError> {
        // The method of `Conversation` itself, which has precedence over this one.
        Self::join_external_state(self, record)
    }
}

impl ExternalStateSession for Monitor {
    fn stamp_writes(&mut self, stamp: &str) {
        // The method of `Monitor` itself, which has precedence over this one.
        Self::stamp_writes(self, stamp);
    }

    fn external_state_record(&self) -> Value {
        // The method of `Monitor` itself, which has precedence over this one.
        Self::external_state_record(self)
    }

    fn join_external_state(&mut self, record: &Value) -> Result<(), ExternalStateError> {
        // The method of `Monitor` itself, which has precedence over this one.
        Self::join_external_state(self, record)
    }
}

/// The labels of the stores that sessions have in common, in memory and, with `--stores`, in a file.
#[derive(Default)]
pub(crate) struct SharedStoreLabels {
    /// The file, and its open lock file.
    file: Option<(PathBuf, File)>,
    /// The labels as JSON, as [`ExternalStateSession::external_state_record`] returns them; `None` before the first
    /// write.
    labels: Option<Value>,
    /// The number of changes of `labels` that this process has seen. A session remembers the version that it has
    /// joined.
    version: u64,
}

impl SharedStoreLabels {
    /// Reads the labels of stores (external state) from a file, which need not exist yet, and shares them through it
    /// from now on. A lock file in the same folder orders the accesses of several processes.
    ///
    /// # Errors
    /// If the file or the lock file cannot be opened, or the file is not valid JSON.
    pub(crate) fn open(path: &Path) -> Result<Self, InputError> {
        let lock =
            private_files::lock_beside(path).map_err(|error| InputError(access_error(path, &error)))?;
        let mut stores = Self { file: Some((path.to_owned(), lock)), ..Self::default() };
        stores.with_lock(Self::read).map_err(InputError)?;
        Ok(stores)
    }

    /// Joins the labels that other sessions have written, as far as this process has read them, to the labels of a new
    /// session. Returns the version of the joined labels, which the session passes to later calls as `seen_version`.
    ///
    /// # Errors
    /// If the stored labels are malformed.
    pub(crate) fn recall(&self, monitor: &mut Monitor) -> Result<u64, InputError> {
        if let Some(labels) = &self.labels {
            let joined = monitor.join_external_state(labels);
            joined.map_err(|error| InputError(self.malformed_labels(&error)))?;
        }
        Ok(self.version)
    }

    /// Reads the labels that other sessions wrote, and joins them to the labels of a session that does not have them
    /// yet. `seen_version` is the version of the labels that the session has; it is updated.
    ///
    /// # Errors
    /// If the file cannot be locked or read, or its labels are malformed.
    pub(crate) fn refresh_session(
        &mut self,
        session: &mut impl ExternalStateSession,
        seen_version: &mut u64,
    ) -> Result<(), String> {
        self.with_lock(|stores| {
            stores.read()?;
            stores.update_session(session, seen_version)
        })
    }

    /// Joins the labels of other sessions to the labels of this session, and saves the result. A random stamp marks
    /// what this session wrote, so that other sessions notice the write even if no label changes. `seen_version` is the
    /// version of the labels that the session has; it is updated.
    ///
    /// # Errors
    /// If the file cannot be locked, read or written, its labels are malformed, or the system has no random bytes for
    /// the stamp.
    pub(crate) fn save_labels(
        &mut self,
        session: &mut impl ExternalStateSession,
        seen_version: &mut u64,
    ) -> Result<(), String> {
        self.with_lock(|stores| {
            stores.read()?;
            stores.update_session(session, seen_version)?;
            let mut stamp = [0; 16];
            getrandom::fill(&mut stamp).map_err(|error| {
                format!(
                    "the random generator of the operating system failed, so the labels of external state are not \
                    saved: {error}; try again"
                )
            })?;
            session.stamp_writes(&u128::from_le_bytes(stamp).to_string());
            let labels = session.external_state_record();
            // Labels that are equal to the stored ones are not written, and keep their version.
            if stores.labels.as_ref() != Some(&labels) {
                stores.write(&labels)?;
                stores.labels = Some(labels);
                stores.version += 1;
                *seen_version = stores.version;
            }
            Ok(())
        })
    }

    /// Runs `act` while this process holds the lock file, so that no other process reads or writes the labels
    /// meanwhile. Without a lock file, only runs `act`. Also fails if the file cannot be locked or unlocked.
    fn with_lock<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let lock = |(path, file): &(PathBuf, File)| file.lock().map_err(|error| access_error(path, &error));
        self.file.as_ref().map_or(Ok(()), lock)?;
        let acted = act(self);
        let unlock =
            |(path, file): &(PathBuf, File)| file.unlock().map_err(|error| access_error(path, &error));
        self.file.as_ref().map_or(Ok(()), unlock)?;
        acted
    }

    /// Returns the message for stored labels that are malformed, with advice.
    fn malformed_labels(&self, error: &ExternalStateError) -> String {
        let name = self.file.as_ref().map_or("the stores".to_owned(), |(path, _)| path.display().to_string());
        format!("{name}: {error}; restore the file, or remove it to forget the labels")
    }

    /// Joins the shared labels to the labels of a session, unless the session has the present version of them already.
    /// `seen_version` is the version that the session has, and becomes the present one. Joins nothing if no labels are
    /// stored yet. Fails if the shared labels are malformed.
    fn update_session(
        &self,
        session: &mut impl ExternalStateSession,
        seen_version: &mut u64,
    ) -> Result<(), String> {
        if *seen_version != self.version
            && let Some(labels) = &self.labels
        {
            session.join_external_state(labels).map_err(|error| self.malformed_labels(&error))?;
        }
        *seen_version = self.version;
        Ok(())
    }

    /// Reads the labels from the file, and counts a new version if another process has changed them. Does nothing if
    /// the labels are shared only within this process. A file that does not exist yet has no labels. A file that is
    /// missing after labels were read or written is an error, because these labels would be lost.
    fn read(&mut self) -> Result<(), String> {
        let Some((path, _)) = &self.file else { return Ok(()) };
        let found: Option<Value> = match std::fs::read_to_string(path) {
            Ok(text) => Some(
                serde_json::from_str(&text)
                    .map_err(|error| file_error(path, &format!("the file is not valid JSON: {error}")))?,
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.labels.is_none() => None,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!(
                    "{}: the file with the labels of external state was removed while it was in use: restore it, or run the \
                     command again to forget these labels",
                    path.display()
                ));
            }
            Err(error) => return Err(access_error(path, &error)),
        };
        if found != self.labels {
            self.labels = found;
            self.version += 1;
        }
        Ok(())
    }

    /// Writes the labels to the file that other processes read. Does nothing if the labels are shared only within this
    /// process. Fails if the file cannot be written.
    fn write(&self, labels: &Value) -> Result<(), String> {
        let Some((path, _)) = &self.file else { return Ok(()) };
        private_files::replace(path, &format!("{labels:#}\n")).map_err(|error| {
            format!(
                "the labels of external state cannot be written to {}: {}; make the file and its folder writable",
                path.display(),
                describe_io_error(&error)
            )
        })
    }
}

/// Returns the message for a file that cannot be opened, locked or read, with advice.
fn access_error(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {}", path.display(), describe_io_error(error))
}

/// Returns the message for a file whose content is invalid, with advice.
fn file_error(path: &Path, problem: &str) -> String {
    format!(
        "{}: {problem}; the file has the labels of external state: restore it, or remove it to forget these \
        labels",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;
    use flowgate_guard::approve::DigestKey;
    use flowgate_guard::conversation::{ConversationSettings, Method};

    use super::*;

    const POLICY: &str = "\
lattice integrity: trusted < untrusted
store notes: written by note, read by recall
require top if:
    (call: ToolCall) is tool:note
";

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("flowgate-{name}-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn monitor() -> Monitor {
        Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()))
    }

    fn conversation() -> Conversation {
        let settings = ConversationSettings::new(Method::Everything, DigestKey::new([1; 32]));
        Conversation::new(monitor(), Vec::new(), settings).unwrap()
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let path = path("stores");
        assert!(SharedStoreLabels::open(&path).is_ok_and(|stores| stores.labels.is_none()));
        std::fs::write(&path, "{").unwrap();
        let error = SharedStoreLabels::open(&path).err().unwrap().to_string();
        assert!(error.contains("restore it, or remove it"), "{error}");
        std::fs::write(&path, "{}").unwrap();
        let error = SharedStoreLabels::open(&path).unwrap().recall(&mut monitor()).err().unwrap().to_string();
        assert!(
            error.ends_with(
                "the recorded labels of external state cannot be read: the list `stores` is missing in the \
                record; restore the file, or remove it to forget the labels"
            ),
            "{error}"
        );
        std::fs::remove_file(&path).unwrap();
    }

    /// Two chats of one account at the same time: one reads the labels that the other stores before it labels an
    /// answer.
    #[test]
    fn chats_at_the_same_time_know_of_each_other() {
        let path = path("shared");
        let untrusted = |conversation: &mut Conversation| {
            let mut record = conversation.monitor().external_state_record();
            record["stores"] = serde_json::json!([{"store": "notes", "label": {"integrity": "untrusted"}}]);
            conversation.join_external_state(&record).unwrap();
            conversation.monitor().external_state_record()["stores"].clone()
        };
        let (mut one, mut two) =
            (SharedStoreLabels::open(&path).unwrap(), SharedStoreLabels::open(&path).unwrap());
        let (mut first, mut second) = (conversation(), conversation());
        let (mut knows, mut also_knows) = (0, 0);
        let carried = untrusted(&mut first);
        second_carries(&second, &carried, false);
        one.save_labels(&mut first, &mut knows).unwrap();
        two.refresh_session(&mut second, &mut also_knows).unwrap();
        second_carries(&second, &carried, true);
        // If the file is removed in between, the labels are lost: that is an error.
        std::fs::remove_file(&path).unwrap();
        assert!(
            two.refresh_session(&mut second, &mut also_knows)
                .unwrap_err()
                .contains("the file with the labels of external state was removed")
        );
    }

    /// Checks whether the labels of the stores in a conversation are `stores`; `expected` is the answer.
    fn second_carries(conversation: &Conversation, stores: &Value, expected: bool) {
        assert_eq!(
            conversation.monitor().external_state_record()["stores"] == *stores,
            expected,
            "{}",
            conversation.monitor().external_state_record()
        );
    }

    /// Without a file, agents of one chat share the labels of stores.
    #[test]
    fn agents_of_one_chat_share_store_labels() {
        let mut stores = SharedStoreLabels::default();
        let (mut chat, mut agent) = (conversation(), conversation());
        let mut record = chat.monitor().external_state_record();
        record["stores"] = serde_json::json!([{"store": "notes", "label": {"integrity": "untrusted"}}]);
        chat.join_external_state(&record).unwrap();
        stores.save_labels(&mut chat, &mut 0).unwrap();
        stores.refresh_session(&mut agent, &mut 0).unwrap();
        assert_eq!(agent.monitor().external_state_record(), chat.monitor().external_state_record());
    }
}
