//! Reloads the certificate of the gateway when its files change, while the gateway runs. `http::server` calls
//! [`ServerTls::settings`] for each handshake.
//!
//! Each handshake checks whether the files have changed. A changed file that cannot be used is reported once, and the
//! earlier certificate remains in use. The certificate and its key are two files: when only the first has been
//! replaced, they do not match until the second is replaced too, which a later handshake notices. Some failures, such
//! as too many open files, end without a change of the files, so the files are also read again after
//! [`RETRY_INTERVAL`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use tokio::sync::OwnedMutexGuard;

use super::files::{FileVersions, TlsFileError, TlsFiles, TlsSettings};
use crate::log::{LogEvent, OperatorLog};

/// The time after a failure for which files with the same versions are not read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The versions of the files at the last examination, and whether they could be used.
#[derive(Debug)]
struct ExaminedFiles {
    versions: FileVersions,
    /// The time and the reason of the failure, if they could not be used.
    failure: Option<(Instant, TlsFileError)>,
}

impl ExaminedFiles {
    /// Returns whether files of the versions `found` need not be read again: they were read before, and could be used,
    /// or failed less than [`RETRY_INTERVAL`] ago.
    fn is_current(&self, found: &FileVersions) -> bool {
        let needs_no_retry = self.failure.as_ref().is_none_or(|(at, _)| at.elapsed() < RETRY_INTERVAL);
        self.versions == *found && needs_no_retry
    }

    /// Returns whether the operator's log has a line already about this failure of files of the versions `found`.
    fn is_reported(&self, found: &FileVersions, error: &TlsFileError) -> bool {
        self.versions == *found && self.failure.as_ref().is_some_and(|(_, known)| known == error)
    }
}

/// The TLS settings of a running server.
#[derive(Debug)]
pub(crate) struct ServerTls {
    files: TlsFiles,
    /// The settings in use.
    current: Mutex<Arc<ServerConfig>>,
    /// Locked while the files are examined.
    examined: Arc<tokio::sync::Mutex<ExaminedFiles>>,
    log: OperatorLog,
}

impl ServerTls {
    /// Creates the settings of a server from those that were loaded at its start. Writes their warnings to
    /// the operator's log.
    pub(crate) fn new(settings: TlsSettings, log: OperatorLog) -> Self {
        for warning in
            [settings.warning(), settings.validity_warning(SystemTime::now())].into_iter().flatten()
        {
            // The empty name: the line is about no single client.
            log.write(LogEvent::Remark, "", Vec::new(), &format!("tls.{warning}"));
        }
        let TlsSettings { files, versions, config } = settings;
        let examined = ExaminedFiles { versions, failure: None };
        let examined = Arc::new(tokio::sync::Mutex::new(examined));
        Self { files, current: Mutex::new(config), examined, log }
    }

    /// Returns the settings for the next handshake, after examining the files. If another handshake examines them at
    /// the moment, returns the present settings: handshakes do not wait for each other.
    pub(crate) async fn settings(self: &Arc<Self>) -> Arc<ServerConfig> {
        if let Ok(examined) = Arc::clone(&self.examined).try_lock_owned() {
            let tls = Arc::clone(self);
            // On a thread that may wait for a slow disk. The examination completes even if the connection ends
            // meanwhile; if it panics, the present settings stay in use.
            let _ = tokio::task::spawn_blocking(move || tls.read_changed_files(examined)).await;
        }
        Arc::clone(&self.current())
    }

    /// Reads the files again, unless their versions are current ([`ExaminedFiles::is_current`]). If they can be used,
    /// the next handshakes use them. The outcome is written to the operator's log, and the same failure only once;
    /// after a failure, the present settings stay in use.
    fn read_changed_files(&self, mut examined: OwnedMutexGuard<ExaminedFiles>) {
        let versions = self.files.versions();
        if examined.is_current(&versions) {
            return;
        }
        match self.files.load() {
            Ok(settings) => {
                *examined = ExaminedFiles { versions, failure: None };
                // From now on, handshakes use these settings.
                *self.current() = settings.config;
                self.log.write(
                    LogEvent::Certificate,
                    "",
                    Vec::new(),
                    "the files of [tls] have changed and are in use",
                );
            }
            Err(error) => {
                if !examined.is_reported(&versions, &error) {
                    let sentence = format!("tls.{error}; the gateway keeps its current certificate");
                    self.log.write(LogEvent::Remark, "", Vec::new(), &sentence);
                }
                *examined = ExaminedFiles { versions, failure: Some((Instant::now(), error)) };
            }
        }
    }

    /// Locks the settings in use, also after a panic.
    fn current(&self) -> MutexGuard<'_, Arc<ServerConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;
    use crate::log::LogLineFormat;

    /// A log whose lines are received one by one.
    fn log() -> (OperatorLog, Receiver<String>) {
        struct LogOutput(Sender<String>);
        impl Write for LogOutput {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (sender, lines) = channel();
        (OperatorLog::new(LogLineFormat::Text, LogOutput(sender)), lines)
    }

    /// Files that could not be used are read again after a while, also if they have not changed, and the failure is
    /// reported once.
    #[tokio::test]
    async fn unchanged_files_are_read_again_after_a_failure() {
        let name = crate::random::unguessable_name().unwrap();
        let folder = std::env::temp_dir().join(format!("flowgate-reload-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let files = TlsFiles {
            certificate: folder.join("gateway.pem"),
            key: folder.join("gateway.key"),
            client_ca: None,
        };
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&files.certificate, cert.pem()).unwrap();
        std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        // The log warns of a key that others can read.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (log, lines) = log();
        let tls = Arc::new(ServerTls::new(files.load().unwrap(), log));
        let first = tls.settings().await;
        // Time passes since the last failure.
        let wait = async || {
            let mut examined = tls.examined.lock().await;
            if let Some((at, _)) = &mut examined.failure {
                *at = at.checked_sub(RETRY_INTERVAL).unwrap();
            }
        };

        // A failure of files that are whole, such as too many open files.
        let failure = std::fs::write(&files.key, "no key").map(|()| files.load().unwrap_err()).unwrap();
        std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        let versions = files.versions();
        *tls.examined.lock().await = ExaminedFiles { versions, failure: Some((Instant::now(), failure)) };
        assert!(Arc::ptr_eq(&tls.settings().await, &first));
        wait().await;
        let second = tls.settings().await;
        assert!(!Arc::ptr_eq(&second, &first));
        assert!(lines.recv().unwrap().contains("have changed and are in use"));

        std::fs::write(&files.key, "no key").unwrap();
        for _ in 0..3 {
            assert!(Arc::ptr_eq(&tls.settings().await, &second));
            wait().await;
        }
        std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        assert!(!Arc::ptr_eq(&tls.settings().await, &second));
        drop(tls);
        let said: Vec<String> = lines.iter().collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("no private key") && said[1].contains("are in use"), "{said:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
