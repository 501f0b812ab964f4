//! Reads the section `[audit.witness]` of the configuration file. A witness is a file or a program outside the gateway
//! that receives the head of the audit log (the number and the digest of its newest line). The section says where the
//! witnesses are, how often they receive the head, and how far behind a required witness may be. `audit` calls it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flowgate_lm::remote::Authorities;

use super::ConfigReader;
use super::file::WitnessTable;
use crate::secret::Secret;

/// The default number of lines of the log after which a witness receives the next head.
const DEFAULT_LINES: u32 = 64;
/// The default number of seconds after which a witness receives the next head.
const DEFAULT_SECONDS: u32 = 60;
/// The default limit on the lines by which a required witness may be behind.
const BEHIND_LINES: u32 = 1000;
/// The default limit on the seconds for which a required witness may be behind.
const BEHIND_SECONDS: u32 = 300;

/// The destinations of heads, and the consequences of failures.
#[derive(Debug, Clone)]
pub struct WitnessSpec {
    /// An append-only file.
    pub file: Option<PathBuf>,
    /// The address of a server that receives the lines.
    pub url: Option<WitnessAddress>,
    /// The number of lines of the log after which a head is sent.
    pub every: u64,
    /// The time after which a head is sent even if fewer lines were added.
    pub pause: Duration,
    /// The limits beyond which no turn begins while a destination fails; `None` if failures stop no turn.
    pub required: Option<DeliveryRequirement>,
}

/// A server's address, with the credentials for it.
#[derive(Debug, Clone)]
pub struct WitnessAddress {
    /// The address.
    pub url: String,
    /// The key that is sent.
    pub key: Option<Secret>,
    /// The certificate authorities that are trusted for the server.
    pub authorities: Authorities,
}

/// The limits beyond which no turn begins while a destination fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryRequirement {
    /// The maximum number of undelivered lines of the log while deliveries fail.
    pub lines: u64,
    /// The maximum time for which deliveries fail.
    pub time: Duration,
}

impl ConfigReader<'_> {
    /// Checks the section `[audit.witness]` of the audit log in the file `log`, and converts it to settings. A setting
    /// that the section leaves out has the default value.
    ///
    /// # Errors
    /// The first problem of the section, as a message for the operator.
    pub(super) fn witness(&self, table: WitnessTable, log: &Path) -> Result<WitnessSpec, String> {
        // The destinations of heads: a file, a server, or both.
        let key = self.key(table.key_from.as_deref(), table.key_file.as_deref())?;
        let file = table.file.map(|file| self.folder.join(file));
        if file.as_deref() == Some(log) {
            return Err(
                "`file` is the file of the audit log itself: name another one, preferably on another machine"
                    .to_owned(),
            );
        }
        let url = match table.url {
            Some(url) if url.starts_with("https://") || url.starts_with("http://") => {
                let authorities = self.authorities(&url, table.ca_file.as_deref())?;
                Some(WitnessAddress { url, key: key.map(Secret::new), authorities })
            }
            Some(_) => {
                return Err(
                    "the address in `url` does not begin with https:// or http://: write the whole address"
                        .to_owned(),
                );
            }
            None if key.is_some() || table.ca_file.is_some() => {
                return Err(
                    "the section has a key or a `ca-file`, but no server that uses them: write url = \
                    \"https://...\", or remove them"
                        .to_owned(),
                );
            }
            None => None,
        };
        if file.is_none() && url.is_none() {
            return Err(
                "the section has neither `file` nor `url`: write file = \"FILE\" or url = \"https://...\""
                    .to_owned(),
            );
        }
        // How far a required witness may be behind.
        let has_bounds = table.behind_lines.is_some() || table.behind_seconds.is_some();
        if has_bounds && !table.required {
            return Err(
                "`behind-lines` and `behind-seconds` have no effect without `required`: write required = \
                true, or remove them"
                    .to_owned(),
            );
        }
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let required = table.required.then(|| DeliveryRequirement {
            lines: u64::from(table.behind_lines.unwrap_or(BEHIND_LINES)),
            time: seconds(table.behind_seconds.unwrap_or(BEHIND_SECONDS)),
        });
        Ok(WitnessSpec {
            file,
            url,
            every: u64::from(table.every.map_or(DEFAULT_LINES, |every| every.get())),
            pause: seconds(table.seconds.map_or(DEFAULT_SECONDS, |seconds| seconds.get())),
            required,
        })
    }
}
