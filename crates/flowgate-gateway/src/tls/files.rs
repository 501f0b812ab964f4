//! Reads the PEM files of the gateway's certificate, of its key, and of the authorities that issue client certificates,
//! and builds the TLS settings from them. `config` loads them at the start, and `reload` when they have changed.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use webpki::{EndEntityCert, KeyUsage};

use crate::read_error;

/// The protocols that are offered by ALPN, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2_PROTOCOL, b"http/1.1"];
/// The name of HTTP/2 in ALPN.
pub(crate) const HTTP2_PROTOCOL: &[u8] = b"h2";

/// The time before the end of a certificate from which on a warning says that it expires.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * DAY);
/// The seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// The name of the setting for the certificate, in error messages.
const CERTIFICATE: &str = "certificate";
/// The name of the setting for the key, in error messages.
const KEY: &str = "key";
/// The name of the setting for the authorities of client certificates, in error messages.
const CLIENT_CA: &str = "client-ca";

/// The PEM files of a server with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The certificates of the authorities whose certificates clients must present, if they must present any.
    pub client_ca: Option<PathBuf>,
}

/// The TLS settings of a server, with the versions of the files that they were read from.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    pub(crate) files: TlsFiles,
    pub(crate) versions: FileVersions,
    pub(crate) config: Arc<ServerConfig>,
}

/// The reason why a file cannot be used. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFileError {
    /// The setting that names the file.
    setting: &'static str,
    path: PathBuf,
    problem: TlsFileProblem,
}

/// The problem with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TlsFileProblem {
    Unreadable(String),
    NoCertificate,
    /// This certificate, counted from 1, cannot be parsed.
    BadCertificate(usize),
    NoKey,
    EncryptedKey,
    SeveralKeys,
    BadKey,
    /// The key does not belong to the first certificate of this file.
    KeyMismatch(PathBuf),
    /// TLS cannot be set up with the files.
    Unusable(String),
}

impl fmt::Display for TlsFileError {
    /// Writes the setting that names the file, the file, and the problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "{}: {path}: ", self.setting)?;
        match &self.problem {
            TlsFileProblem::Unreadable(why) => f.write_str(why),
            TlsFileProblem::NoCertificate => f.write_str(
                "the file contains no certificate: name a PEM file, in which a certificate begins with `-----BEGIN \
                CERTIFICATE-----`",
            ),
            TlsFileProblem::BadCertificate(number) => {
                write!(f, "certificate {number} of the file cannot be parsed; replace it")
            }
            TlsFileProblem::NoKey => f.write_str(
                "the file contains no private key: name a PEM file, in which a key begins with `-----BEGIN PRIVATE KEY-----`",
            ),
            TlsFileProblem::EncryptedKey => {
                write!(f, "the key is encrypted: write it without a passphrase, by `openssl pkey -in {path}`")
            }
            TlsFileProblem::SeveralKeys => {
                f.write_str("the file contains more than one private key: leave only that of the certificate")
            }
            TlsFileProblem::BadKey => f.write_str(
                "the private key cannot be parsed: use an RSA, ECDSA (P-256 or P-384) or Ed25519 key",
            ),
            TlsFileProblem::KeyMismatch(certificate) => write!(
                f,
                "the key does not belong to the first certificate of {}: name the key of that certificate, \
                and begin its file with the certificate of the gateway",
                certificate.display()
            ),
            TlsFileProblem::Unusable(why) => {
                write!(f, "TLS cannot be configured with this file: {why}; name another file")
            }
        }
    }
}

impl std::error::Error for TlsFileError {}

impl TlsSettings {
    /// Returns a warning if the file of the key gives permissions to users other than its owner and its group.
    pub fn warning(&self) -> Option<String> {
        let key = &self.files.key;
        let shown = key.display();
        is_open_to_all(key).then(|| {
            format!("{KEY}: all users of this machine can read or write {shown}: run `chmod o= {shown}`")
        })
    }

    /// Returns a warning if the certificate of the server is not valid at the time `now`, or expires within 14 days
    /// after it. Returns no warning if the file has changed and can no longer be read: `reload` reports that.
    pub fn validity_warning(&self, now: SystemTime) -> Option<String> {
        let path = &self.files.certificate;
        let chain = certificates(CERTIFICATE, path).ok()?;
        let certificate = EndEntityCert::try_from(chain.first()?).ok()?;
        let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let soon = since.checked_add(EXPIRES_SOON)?;
        let shown = path.display();
        let replace = "replace it, and the next connection uses the new one";
        Some(match (time_problem(&certificate, since), time_problem(&certificate, soon)) {
            (Some(TimeProblem::Expired(end)), _) => {
                let days = days(since.saturating_sub(end));
                format!(
                    "{CERTIFICATE}: {shown} expired {days} ago, so clients refuse the connection: {replace}"
                )
            }
            (Some(TimeProblem::NotYet), _) => format!(
                "{CERTIFICATE}: {shown} is not valid yet, so clients refuse the connection: check the clock of this machine"
            ),
            (None, Some(TimeProblem::Expired(end))) => {
                let days = days(end.saturating_sub(since));
                format!("{CERTIFICATE}: {shown} expires in {days}: {replace}")
            }
            _ => return None,
        })
    }
}

/// Returns a duration in whole days, as a text.
fn days(duration: Duration) -> String {
    match duration.as_secs() / DAY {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

impl TlsSettings {
    /// Returns whether the certificate of the server is for this host, a name or an address. Also returns true if this
    /// cannot be decided: the file can no longer be read, or the text is no host. Other checks report these cases.
    pub(crate) fn is_for_host(&self, host: &str) -> bool {
        let chain = certificates(CERTIFICATE, &self.files.certificate).unwrap_or_default();
        let certificate = chain.first().and_then(|first| EndEntityCert::try_from(first).ok());
        let (Some(certificate), Ok(name)) = (certificate, ServerName::try_from(host)) else { return true };
        certificate.verify_is_valid_for_subject_name(&name).is_ok()
    }
}

/// Why a certificate is not valid at a time.
enum TimeProblem {
    NotYet,
    /// It was valid until this time, counted from 1970.
    Expired(Duration),
}

/// Returns why a certificate is not valid at a time, counted from 1970; `None` if the time is within its validity. The
/// certificate is verified without any authority, which always fails; but the verification checks the validity first,
/// so its error shows whether the validity is the problem.
fn time_problem(certificate: &EndEntityCert<'_>, at: Duration) -> Option<TimeProblem> {
    let at = UnixTime::since_unix_epoch(at);
    match certificate.verify_for_usage(&[], &[], &[], at, KeyUsage::server_auth(), None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            Some(TimeProblem::Expired(Duration::from_secs(not_after.as_secs())))
        }
        Err(webpki::Error::CertNotValidYet { .. }) => Some(TimeProblem::NotYet),
        _ => None,
    }
}

/// Returns whether a file gives any permission to users other than its owner and its group. A file that cannot be
/// examined counts as closed.
#[cfg(unix)]
fn is_open_to_all(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    /// The permissions of all other users, in the mode of a file.
    const OTHERS: u32 = 0o007;
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & OTHERS != 0)
}

/// Returns false: without Unix permissions, it is not known which users can read the file.
#[cfg(not(unix))]
fn is_open_to_all(_: &Path) -> bool {
    false
}

impl TlsFiles {
    /// Reads the files, and builds the TLS settings from them.
    ///
    /// # Errors
    /// If one of the files cannot be used.
    pub fn load(&self) -> Result<TlsSettings, TlsFileError> {
        // The versions are read before the content: if a file changes in between, it later counts as a new version, and
        // is read again.
        let versions = self.versions();
        let config = Arc::new(self.config()?);
        Ok(TlsSettings { files: self.clone(), versions, config })
    }

    /// Returns the present versions of the files, without reading their content.
    pub(crate) fn versions(&self) -> FileVersions {
        FileVersions(
            [&self.certificate, &self.key]
                .into_iter()
                .chain(&self.client_ca)
                .map(|path| FileVersion::of(path))
                .collect(),
        )
    }

    /// Builds the settings of the TLS library from the files: the certificate and its key, which have to match, and the
    /// check of client certificates. Without a file of authorities (`client_ca`), clients are asked for no certificate.
    fn config(&self) -> Result<ServerConfig, TlsFileError> {
        let chain = certificates(CERTIFICATE, &self.certificate)?;
        let failed = |problem| TlsFileError { setting: KEY, path: self.key.clone(), problem };
        let key = self.private_key().map_err(failed)?;
        let provider = Arc::new(ring::default_provider());
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|_| failed(TlsFileProblem::BadKey))?;
        let certified = CertifiedKey::new(chain, key);
        // A key whose public part is unknown is refused as well: every supported kind of key has one.
        certified.keys_match().map_err(|_| failed(TlsFileProblem::KeyMismatch(self.certificate.clone())))?;
        let unusable = |error: rustls::Error| failed(TlsFileProblem::Unusable(error.to_string()));
        // With `client_ca`, clients have to show a certificate of these authorities.
        let verifier = match &self.client_ca {
            Some(path) => client_verifier(path, &provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let mut config = builder
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        if self.client_ca.is_some() {
            // A resumed session would not verify the certificate of the client again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(config)
    }

    /// Reads the file of the key, which has to contain exactly one unencrypted key.
    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsFileProblem> {
        let pem = read(&self.key)?;
        let mut keys = PrivateKeyDer::pem_slice_iter(&pem);
        match (keys.next(), keys.next()) {
            (Some(Ok(key)), None) => Ok(key),
            (Some(Ok(_)), Some(_)) => Err(TlsFileProblem::SeveralKeys),
            (Some(Err(_)), _) => Err(TlsFileProblem::BadKey),
            (None, _) if is_encrypted(&pem) => Err(TlsFileProblem::EncryptedKey),
            (None, _) => Err(TlsFileProblem::NoKey),
        }
    }
}

/// Returns the verifier that accepts only clients with a certificate of the authorities in the file `path`.
///
/// # Errors
/// If the file cannot be read, has no certificate, or has one that cannot be used.
fn client_verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
    let failed = |problem| TlsFileError { setting: CLIENT_CA, path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(CLIENT_CA, path)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|_| failed(TlsFileProblem::BadCertificate(index + 1)))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    verifier.map_err(|error| failed(TlsFileProblem::Unusable(error.to_string())))
}

/// Reads the bytes of a file.
fn read(path: &Path) -> Result<Vec<u8>, TlsFileProblem> {
    std::fs::read(path).map_err(|error| TlsFileProblem::Unreadable(read_error::reason(&error)))
}

/// Returns whether a PEM file contains an encrypted key.
fn is_encrypted(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
}

/// Reads all certificates of a file. `setting` is the setting that names the file, for errors.
///
/// # Errors
/// If the file cannot be read, has no certificate, or has one that cannot be parsed.
fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let failed = |problem| TlsFileError { setting, path: path.to_owned(), problem };
    let pem = read(path).map_err(failed)?;
    let mut certificates = Vec::new();
    for item in CertificateDer::pem_slice_iter(&pem) {
        // The number of this certificate, counted from 1.
        let bad = || failed(TlsFileProblem::BadCertificate(certificates.len() + 1));
        let certificate = item.map_err(|_| bad())?;
        ParsedCertificate::try_from(&certificate).map_err(|_| bad())?;
        certificates.push(certificate);
    }
    if certificates.is_empty() { Err(failed(TlsFileProblem::NoCertificate)) } else { Ok(certificates) }
}

/// The versions of the files that settings were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersions(Vec<FileVersion>);

/// The metadata of a file by which a change of its content is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileVersion {
    /// The metadata cannot be read, for this reason.
    Absent(io::ErrorKind),
    /// The metadata of a file that exists.
    Present { length: u64, modified: Option<SystemTime>, identity: [i64; 4] },
}

impl FileVersion {
    /// Returns the present version of a file. The version of a file that cannot be examined is the kind of the error.
    fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(found) => Self::Present {
                length: found.len(),
                modified: found.modified().ok(),
                identity: identity(&found),
            },
            Err(error) => Self::Absent(error.kind()),
        }
    }
}

/// Returns the device, the inode and the time of the last change of the file or its name: a file that replaced another
/// one may have the same length and an older time of modification.
#[cfg(unix)]
fn identity(found: &Metadata) -> [i64; 4] {
    use std::os::unix::fs::MetadataExt as _;
    [found.dev().cast_signed(), found.ino().cast_signed(), found.ctime(), found.ctime_nsec()]
}

/// Returns zeros: the system has no inodes, so a file is recognised by its length and time of modification only.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> [i64; 4] {
    [0; 4]
}
