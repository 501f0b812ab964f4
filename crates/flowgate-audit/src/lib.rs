//! Writes and verifies the audit log, an append-only file of the gateway's verdicts, of its questions to people, and
//! of their decisions. Any changed, removed or inserted line is detectable; missing lines at the end are detectable
//! only by a head that is kept elsewhere.
//!
//! Every line is a JSON object with the hash of the previous line. After every few lines, the writer adds a *head*, a
//! line with a signature of everything before it. No line contains the content of messages or calls. If the operator
//! wants content, it is kept in a separate file and can be deleted without breaking the log. `docs/audit.md` describes
//! what a log can prove and what it cannot. The gateway's recorder writes the log; `flowgate audit` verifies it.
//!
//! * [`AuditEvent`]: describes a recorded event; [`ConfigurationCause`]: why a configuration was loaded.
//! * [`AuditLog`]: writes the log. After a failed write, it rejects records until it can repair and write the file.
//! * [`verify()`]: checks that a log is unchanged; `verify_error`: defines the results of this check.
//! * `record` and `record_kind`: encode and parse one line; `line_hash`: computes its hash; `chain`: signs and checks
//!   heads; `key` and `key_file`: define and read the signing key.
//! * `content`: writes the separate file of content; [`ContentReader`]: reads it; [`ContentCipher`]: encrypts and decrypts
//!   it with the keys of the program that owns the log; [`seal_contents`]: encrypts what was written before.
//! * `tail`: finds the end of a log, at which its writer continues, also after its process was killed.
//! * [`DatabaseLogAnchors`]: compares a log with a database's record of it; [`WitnessRecord`]: compares a log with the
//!   heads that a program outside the gateway has received.
//! * `loss` and `error`: define why a log does not fit its database or witness, and why it cannot be opened or written.
//! * [`file_lock`]: locks files; `log_files`: names and syncs the files of a log; `bounded_lines`: reads their lines.
//! * [`policy_digest()`]: identifies a policy by its text.
//! * [`watch`]: writes the watch log, a separate file of verdicts that are not enforced.

mod anchor;
mod bounded_lines;
mod chain;
mod configuration_cause;
mod content;
mod content_cipher;
mod content_reader;
mod content_sealing;
mod error;
mod event;
pub mod file_lock;
mod key;
mod key_file;
mod line_hash;
mod log;
mod log_files;
mod loss;
mod policy_digest;
mod record;
mod record_kind;
mod tail;
mod verify;
mod verify_error;
pub mod watch;
mod witness;

pub use anchor::{DatabaseLogAnchors, UnopenedLog};
pub use chain::LogHead;
pub use configuration_cause::ConfigurationCause;
pub use content::ContentSelector;
pub use content_cipher::{ContentCipher, ContentOpenError};
pub use content_reader::{ContentReader, LineContent};
pub use content_sealing::seal_contents;
pub use error::{AuditError, AuditErrorKind};
pub use event::{AuditEvent, FreezeSwitch, JudgedCallRecord, SessionPhase};
pub use key::{AuditKey, AuditPublicKey};
pub use line_hash::LineHash;
pub use log::{AuditLog, AuditOptions, ContentRetention, LastLineHandle, SyncPolicy};
pub use loss::{AuditLoss, LogAnchor};
pub use policy_digest::policy_digest;
pub use record::{AuditRecord, RecordError, Timestamp};
pub use record_kind::RecordKind;
pub use verify::{LogExpectations, LogSummary, VerifiedRecords, verify};
pub use verify_error::{ContentCounts, VerifyError, VerifyErrorKind};
pub use witness::{AcceptedLoss, WitnessLine, WitnessLineError, WitnessRecord};
