//! Reads the section `[audit]`: the file of the audit log, the key that signs it, and its witnesses. `config` calls it.

use std::path::PathBuf;
use std::time::Duration;

use super::file::AuditTable;
use super::witness::WitnessSpec;
use super::{ConfigReader, DAY};

/// The location of an audit log, and the key that signs it.
#[derive(Debug, Clone)]
pub struct AuditSpec {
    /// The log.
    pub file: PathBuf,
    /// The file of the key, which is created if it does not exist.
    pub key: PathBuf,
    /// The time after which content next to the log is deleted; `None` if no content is recorded.
    pub content: Option<Duration>,
    /// The witnesses that receive heads of the log.
    pub witness: Option<WitnessSpec>,
}

impl ConfigReader<'_> {
    /// Converts the section `[audit]` to settings: paths are relative to the configuration's folder, and the key is
    /// next to the log unless the section names a file.
    ///
    /// # Errors
    /// The first problem of the section `[audit.witness]`. The message begins with `.witness: `, before which the
    /// caller writes the name of this section.
    pub(super) fn audit(&self, table: AuditTable) -> Result<AuditSpec, String> {
        let AuditTable { file, key_file, content_days, witness } = table;
        let key = key_file.unwrap_or_else(|| file.with_extension("key"));
        // Without `content-days`, no content is recorded.
        let content = content_days.map(|days| Duration::from_secs(u64::from(days.get()) * DAY));
        let (file, key) = (self.folder.join(file), self.folder.join(key));
        // `witness` needs the path of the log to refuse it as the file of the witness.
        let witness = witness.map(|table| self.witness(table, &file)).transpose();
        let witness = witness.map_err(|why| format!(".witness: {why}"))?;
        Ok(AuditSpec { file, key, content, witness })
    }
}
