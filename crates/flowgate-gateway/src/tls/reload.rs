//! Reloads the certificate of the gateway when its files change, while the gateway runs.
//!
//! Each handshake checks whether the files have changed. A changed file that cannot be used is reported once, and the
//! earlier certificate remains in use. A certificate and its key are two files: between their replacements they do not
//! match, and the second replacement is noticed in turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use tokio::sync::OwnedMutexGuard;

use super::files::{FileVersions, TlsFiles, TlsSettings};
use crate::log::{LogEvent, OperatorLog};

/// The TLS settings of a running server.
#[derive(Debug)]
pub(crate) struct ServerTls {
    files: TlsFiles,
    current: Mutex<Arc<ServerConfig>>,
    /// The versions of the files that were read last; locked while the files are examined.
    versions: Arc<tokio::sync::Mutex<FileVersions>>,
    log: OperatorLog,
}

impl ServerTls {
    pub(crate) fn new(settings: TlsSettings, log: OperatorLog) -> Self {
        if let Some(warning) = settings.warning() {
            log.write(LogEvent::Remark, "", Vec::new(), &format!("tls.{warning}"));
        }
        let TlsSettings { files, versions, config } = settings;
        let versions = Arc::new(tokio::sync::Mutex::new(versions));
        Self { files, current: Mutex::new(config), versions, log }
    }

    /// Returns the settings for the next handshake. While another handshake examines the files, these are the present
    /// ones: handshakes do not wait for each other.
    pub(crate) async fn settings(self: &Arc<Self>) -> Arc<ServerConfig> {
        if let Ok(versions) = Arc::clone(&self.versions).try_lock_owned() {
            let tls = Arc::clone(self);
            // On a thread that may wait for a slow disk. It also completes if the connection ends meanwhile.
            let _ = tokio::task::spawn_blocking(move || tls.read_changed_files(versions)).await;
        }
        Arc::clone(&self.current())
    }

    fn read_changed_files(&self, mut versions: OwnedMutexGuard<FileVersions>) {
        let found = self.files.versions();
        if *versions == found {
            return;
        }
        *versions = found;
        match self.files.load() {
            Ok(settings) => {
                *self.current() = settings.config;
                self.log.write(
                    LogEvent::Certificate,
                    "",
                    Vec::new(),
                    "the files of [tls] have changed and are in use",
                );
            }
            Err(error) => {
                let sentence = format!("tls.{error}; the gateway keeps the certificate that it has");
                self.log.write(LogEvent::Remark, "", Vec::new(), &sentence);
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Arc<ServerConfig>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
