//! Stores the tokens of a login in a file ([`TokenFile`]), which only its owner can read and write. `login` writes the
//! file. `token_source` reads the tokens from the file for each request, since another process may have replaced them.
//! An issuer may accept a refresh token only once, so only one process at a time refreshes tokens, under a lock.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, CredentialRefreshGuard, CredentialStore, OAuthClientConfig,
    StoredCredentials,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::access_token::AccessToken;
use crate::client_credentials::ClientSecret;
use crate::secure_url::SecureUrl;

/// The version of the file's format.
const VERSION: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 512 << 10;
/// The pause before the next attempt to lock a file, and the number of attempts. Together they last 60 seconds, longer
/// than a request to an issuer takes.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
const LOCK_ATTEMPTS: u32 = 1200;

/// A file with the tokens of a login.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenFile({})", self.0.display())
    }
}

/// Why a file with the tokens of a login cannot be used. The text names the file, and has no content of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFileError(String);

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TokenFileError {}

impl TokenFile {
    /// Names the file at a path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the file for a server in a folder. The file name consists of the server's name and a digest of the
    /// server's address, so that servers of the same name at different addresses have different files. `None` if the
    /// server's name cannot be part of a file name.
    #[must_use]
    pub fn of_server(folder: &Path, name: &str, server: &SecureUrl) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return None;
        }
        let digest = Sha256::digest(server.as_str());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some(Self(folder.join(format!("{name}-{digest}.json"))))
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Checks that the file has the tokens of a login at this server, and at this issuer if one is given.
    ///
    /// # Errors
    /// If the file has no such tokens, or other users can read or write it.
    pub fn check(&self, server: &SecureUrl, issuer: Option<&SecureUrl>) -> Result<(), TokenFileError> {
        self.read()?.for_server(server, issuer, self).map(drop)
    }

    /// Removes the file. Returns whether there was one.
    ///
    /// # Errors
    /// If the file cannot be removed, or another process does not release its lock.
    pub async fn remove(&self) -> Result<bool, TokenFileError> {
        if !self.0.exists() {
            return Ok(false);
        }
        // With the lock, no other process is about to write refreshed tokens into the file.
        let _lock = self.lock().await?;
        match std::fs::remove_file(&self.0) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(&format!("cannot be removed: {error}; remove the file yourself"))),
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// If the file does not exist, other users can read or write it, or it does not contain a login.
    pub(crate) fn read(&self) -> Result<StoredLogin, TokenFileError> {
        self.read_if_there()?.ok_or_else(|| {
            self.failed("there is no such file: nobody has logged in; run `flowgate mcp login`")
        })
    }

    /// Reads the file; `None` if there is none. Fails if the file cannot be read, other users can read or write it, or
    /// it is not a file of `flowgate mcp login`.
    fn read_if_there(&self) -> Result<Option<StoredLogin>, TokenFileError> {
        let unreadable = |error: io::Error| {
            self.failed(&format!("cannot be read: {error}; check the permissions of the file"))
        };
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let is_private = is_private(&file).map_err(unreadable)?;
        if !is_private {
            return Err(self.failed(
                "other users can read or write the file, so they may have its tokens: remove it, and log in again with \
                `flowgate mcp login`",
            ));
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text).map_err(unreadable)?;
        // The error of the JSON parser is not reported, since it could quote a token.
        let parsed = serde_json::from_str(&text).ok().and_then(StoredLogin::of);
        parsed.map(Some).ok_or_else(|| {
            self.failed("it is not a file of `flowgate mcp login`: remove it, and log in again")
        })
    }

    /// Writes the file, which only its owner can access. Writes a partial file first, which then replaces the file as a
    /// whole.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&self, login: &StoredLogin) -> Result<(), TokenFileError> {
        let failed = |error: io::Error| {
            self.failed(&format!("cannot be written: {error}; check the folder and the disk"))
        };
        let text = serde_json::to_string(&login.text()).map_err(|error| failed(io::Error::other(error)))?;
        let part = self.beside(".part");
        // A partial file that a killed process left is not reused: others may be able to read it.
        match std::fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut file = private_options().write(true).create_new(true).open(&part).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&part, &self.0).map_err(failed)
    }

    /// Stores a new login in the file, in place of an earlier one. Creates the folder of the file if there is none,
    /// accessible to its owner only.
    ///
    /// # Errors
    /// If the file or its folder cannot be written, or another process does not release the lock of the file.
    pub(crate) async fn replace(&self, login: &StoredLogin) -> Result<(), TokenFileError> {
        if let Some(folder) = self.0.parent() {
            let mut builder = DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            let created = builder.recursive(true).create(folder);
            created.map_err(|error| {
                self.failed(&format!(
                    "its folder cannot be created: {error}; check the permissions of the folder above it"
                ))
            })?;
        }
        let _lock = self.lock().await?;
        self.write(login)
    }

    /// Waits for the lock of the file, and returns the lock file; the lock ends when the returned file is dropped.
    /// Fails if another process holds the lock for too long, or if the lock file cannot be used.
    async fn lock(&self) -> Result<File, TokenFileError> {
        let failed = |error: &io::Error| {
            self.failed(&format!(
                "its lock file cannot be used: {error}; check the permissions of the folder"
            ))
        };
        let file = private_options().create(true).append(true).open(self.beside(".lock"));
        let file = file.map_err(|error| failed(&error))?;
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
        }
        Err(self.failed(
            "another process holds the lock of the file for too long: end that process, and try again",
        ))
    }

    /// Returns the store through which `rmcp` reads and writes the tokens of this login.
    pub(crate) fn store(&self, login: &StoredLogin) -> FileStore {
        FileStore { file: self.clone(), login: login.clone() }
    }

    /// Returns the path of the file with `end` added to the file name.
    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.0.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    }

    /// Returns the error for the reason `why`, with the path of the file before it.
    fn failed(&self, why: &str) -> TokenFileError {
        TokenFileError(format!("{}: {why}", self.0.display()))
    }
}

/// Returns options with which a new file is readable and writable only by its owner (on Unix).
fn private_options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Returns whether only its owner can read and write a file.
#[cfg(unix)]
fn is_private(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(file.metadata()?.permissions().mode() & 0o077 == 0)
}

/// Returns true: permissions are examined only on Unix.
#[cfg(not(unix))]
fn is_private(_: &File) -> io::Result<bool> {
    Ok(true)
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileText {
    version: u32,
    url: String,
    resource: String,
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    auth_methods: Vec<String>,
    client_secret: Option<String>,
    credentials: StoredCredentials,
}

/// A login: the tokens, and whom they may be sent to.
#[derive(Clone)]
pub(crate) struct StoredLogin {
    /// The address of the server, as it is configured.
    pub(crate) server: SecureUrl,
    /// The name of the server at the issuer, which is this address or the beginning of it.
    pub(crate) resource: SecureUrl,
    pub(crate) issuer: SecureUrl,
    /// The address at which a person logs in. It is not used again.
    pub(crate) authorization_endpoint: SecureUrl,
    /// The address to which the refresh token is sent.
    pub(crate) token_endpoint: SecureUrl,
    /// How the issuer authenticates clients; empty if it does not say so.
    pub(crate) auth_methods: Vec<String>,
    pub(crate) client_secret: Option<ClientSecret>,
    pub(crate) credentials: StoredCredentials,
}

impl StoredLogin {
    /// Returns the login in the content of a file; `None` if the file has another version, or an address to which
    /// secrets must not be sent.
    fn of(text: FileText) -> Option<Self> {
        (text.version == VERSION).then_some(())?;
        Some(Self {
            server: SecureUrl::parse(&text.url)?,
            resource: SecureUrl::parse(&text.resource)?,
            issuer: SecureUrl::parse(&text.issuer)?,
            authorization_endpoint: SecureUrl::parse(&text.authorization_endpoint)?,
            token_endpoint: SecureUrl::parse(&text.token_endpoint)?,
            auth_methods: text.auth_methods,
            client_secret: text.client_secret.map(ClientSecret::new),
            credentials: text.credentials,
        })
    }

    /// Returns the content of the file for this login.
    fn text(&self) -> FileText {
        FileText {
            version: VERSION,
            url: self.server.as_str().to_owned(),
            resource: self.resource.as_str().to_owned(),
            issuer: self.issuer.as_str().to_owned(),
            authorization_endpoint: self.authorization_endpoint.as_str().to_owned(),
            token_endpoint: self.token_endpoint.as_str().to_owned(),
            auth_methods: self.auth_methods.clone(),
            client_secret: self.client_secret.as_ref().map(|secret| secret.expose().to_owned()),
            credentials: self.credentials.clone(),
        }
    }

    /// Returns the login if it is for this server and, if an issuer is given, was at this issuer. `file` is the file of
    /// the login, which an error names.
    pub(crate) fn for_server(
        self,
        server: &SecureUrl,
        issuer: Option<&SecureUrl>,
        file: &TokenFile,
    ) -> Result<Self, TokenFileError> {
        if self.server != *server {
            return Err(file.failed(&format!(
                "it has the tokens of another server, {}: check the `url`, or log in again with `flowgate mcp login`",
                self.server
            )));
        }
        match issuer {
            Some(issuer) if !issuer.is_issuer(self.issuer.as_str()) => Err(file.failed(&format!(
                "its tokens are from another issuer, {}: check `issuer` in `oauth`, or log in again with `flowgate mcp login`",
                self.issuer
            ))),
            _ => Ok(self),
        }
    }

    /// Returns the metadata of the issuer, as far as it is needed to refresh tokens.
    pub(crate) fn metadata(&self) -> AuthorizationMetadata {
        let mut metadata = AuthorizationMetadata::default();
        self.authorization_endpoint.as_str().clone_into(&mut metadata.authorization_endpoint);
        self.token_endpoint.as_str().clone_into(&mut metadata.token_endpoint);
        metadata.issuer = Some(self.issuer.as_str().to_owned());
        if !self.auth_methods.is_empty() {
            let methods = self.auth_methods.clone().into();
            metadata.additional_fields.insert("token_endpoint_auth_methods_supported".to_owned(), methods);
        }
        metadata
    }

    /// Returns the client that was registered at the issuer. `rmcp` requires an address for redirects, although no
    /// login is begun with this client.
    pub(crate) fn client(&self) -> OAuthClientConfig {
        let client = OAuthClientConfig::new(&*self.credentials.client_id, "http://127.0.0.1/callback");
        match &self.client_secret {
            None => client,
            Some(secret) => client.with_client_secret(secret.expose()),
        }
    }
}

/// Reads and writes the tokens of a login for `rmcp`.
pub(crate) struct FileStore {
    file: TokenFile,
    login: StoredLogin,
}

#[async_trait]
impl CredentialStore for FileStore {
    /// Reads the tokens. Returns `None` if there is no file, or if its login is for another server, issuer or token
    /// endpoint: the refresh token of that login must not be sent to the issuer of this one.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read or write it, or it is not a file of `flowgate mcp login`.
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let read = self.file.read_if_there().map_err(|why| AuthError::CredentialStoreError(why.0))?;
        Ok(read
            .filter(|login| {
                login.server == self.login.server
                    && login.issuer == self.login.issuer
                    && login.token_endpoint == self.login.token_endpoint
            })
            .map(|login| login.credentials))
    }

    /// Writes refreshed tokens to the file. `rmcp` holds the lock of the file meanwhile, by `acquire_refresh_guard`.
    ///
    /// # Errors
    /// If a request cannot carry the new token, the person has logged out, or the file cannot be written.
    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let failed = |why: TokenFileError| Err(AuthError::CredentialStoreError(why.0));
        if credentials.token_response.as_ref().is_none_or(|answer| AccessToken::of(answer).is_none()) {
            return failed(self.file.failed(
                "the issuer has sent a token that is not a bearer token; ask the operator of the issuer",
            ));
        }
        // Without the file, the person has logged out in the meantime.
        if !self.file.path().exists() {
            return failed(self.file.failed("the login has ended; log in again with `flowgate mcp login`"));
        }
        self.file.write(&StoredLogin { credentials, ..self.login.clone() }).or_else(failed)
    }

    /// Removes the login.
    async fn clear(&self) -> Result<(), AuthError> {
        self.file.remove().await.map(drop).map_err(|why| AuthError::CredentialStoreError(why.0))
    }

    /// Locks the file until the returned guard is dropped: `rmcp` reads, refreshes and writes the tokens in this time,
    /// so that no other process uses the same refresh token.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = self.file.lock().await;
        lock.map(|file| Some(CredentialRefreshGuard::new(file)))
            .map_err(|why| AuthError::CredentialStoreError(why.0))
    }
}
