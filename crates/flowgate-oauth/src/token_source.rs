//! Gives the requests to a server their tokens ([`TokenSource`]). A request gets the last token, or a new one if the
//! last token is about to expire or the server has rejected it. All requests to a server share a source, and wait for
//! the same new token.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::transport::auth::{AuthError, AuthorizationManager, ClientCredentialsConfig};
use tokio::sync::Mutex;

use crate::access_token::AccessToken;
use crate::client_credentials::ClientCredentials;
use crate::discovery::{error, error_of_rmcp, listed, metadata_of};
use crate::error::{TokenError, TokenFailure};
use crate::issuer_client::IssuerClient;
use crate::secure_url::SecureUrl;
use crate::token_file::{StoredLogin, TokenFile};

/// The tokens for one server. Clones of a source share its tokens.
#[derive(Clone)]
pub struct TokenSource(Arc<SharedSource>);

struct SharedSource {
    grant: GrantKind,
    /// The server for which the tokens are requested; the issuer limits them to this server.
    server: SecureUrl,
    agent: ureq::Agent,
    /// The number of attempts to obtain a token that have ended.
    attempts: AtomicU64,
    state: Mutex<State>,
}

/// How tokens are obtained.
enum GrantKind {
    ClientCredentials(ClientCredentials),
    /// The file with the tokens of a login, and the issuer, if the configuration names one.
    Login(TokenFile, Option<SecureUrl>),
}

/// What the source knows about the issuer.
#[derive(Default)]
struct State {
    /// The state of `rmcp` for the issuer; `None` before the first token, and after a failure.
    connected: Option<Connected>,
    /// The failure of the last attempt, and its number.
    failure: Option<(u64, TokenError)>,
}

/// The state of `rmcp` for an issuer whose metadata is known.
struct Connected {
    manager: AuthorizationManager,
    client: IssuerClient,
    issuer: SecureUrl,
}

impl fmt::Debug for TokenSource {
    /// Writes how tokens are obtained, without a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.grant {
            GrantKind::ClientCredentials(credentials) => {
                f.debug_tuple("TokenSource").field(credentials).finish()
            }
            GrantKind::Login(file, _) => f.debug_tuple("TokenSource").field(file).finish(),
        }
    }
}

impl TokenSource {
    /// Creates a source for a server by client credentials. The first token is obtained when it is needed.
    #[must_use]
    pub fn with_client_credentials(
        credentials: ClientCredentials,
        server: SecureUrl,
        agent: ureq::Agent,
    ) -> Self {
        Self::new(GrantKind::ClientCredentials(credentials), server, agent)
    }

    /// Creates a source for a server from the tokens of a login, which are stored in `file`. Refreshed tokens are
    /// written to the file. If `issuer` is given, the login must have been at this issuer.
    #[must_use]
    pub fn with_login(
        file: TokenFile,
        issuer: Option<SecureUrl>,
        server: SecureUrl,
        agent: ureq::Agent,
    ) -> Self {
        Self::new(GrantKind::Login(file, issuer), server, agent)
    }

    /// Creates a source that has no token yet.
    fn new(grant: GrantKind, server: SecureUrl, agent: ureq::Agent) -> Self {
        Self(Arc::new(SharedSource {
            grant,
            server,
            agent,
            attempts: AtomicU64::new(0),
            state: Mutex::default(),
        }))
    }

    /// Returns the token for the next request: the last one, or a new one if the last one is about to expire.
    ///
    /// # Errors
    /// If the issuer gives no token, or the login has ended.
    pub async fn token(&self) -> Result<AccessToken, TokenError> {
        self.token_other_than(None).await
    }

    /// Returns the token for a request that is sent again because the server has rejected the token `rejected`: another
    /// token than this one.
    ///
    /// # Errors
    /// As for [`token`](Self::token).
    pub async fn token_after(&self, rejected: &AccessToken) -> Result<AccessToken, TokenError> {
        self.token_other_than(Some(rejected.clone())).await
    }

    /// Returns the token for the next request: a token other than `rejected`, which is the token that the server has
    /// rejected, if any. Only one attempt to obtain a token runs at a time. If it fails, all callers that wait for it
    /// receive its failure: otherwise each of them would wait in turn for an issuer that does not answer.
    async fn token_other_than(&self, rejected: Option<AccessToken>) -> Result<AccessToken, TokenError> {
        // The number of attempts that ended before this call. If a later one fails while this call waits for the lock,
        // this call returns its failure.
        let ended = self.0.attempts.load(Ordering::Acquire);
        let source = Arc::clone(&self.0);
        // Runs in a task of its own: even if the caller stops waiting while the issuer replaces a refresh token, the
        // new refresh token must reach the file.
        let task = tokio::spawn(async move {
            let mut state = source.state.lock().await;
            if let Some((number, failure)) = &state.failure
                && *number > ended
            {
                return Err(failure.clone());
            }
            let token = source.obtain(&mut state.connected, rejected.as_ref()).await;
            let number = source.attempts.fetch_add(1, Ordering::AcqRel) + 1;
            state.failure = token.as_ref().err().map(|failure| (number, failure.clone()));
            if token.is_err() {
                // The issuer may have changed its addresses, and a person may have logged in again.
                state.connected = None;
            }
            token
        });
        // The task ends early only if the runtime ends.
        task.await.unwrap_or_else(|_| Err(error(self.0.issuer(), TokenFailure::Interrupted)))
    }
}

impl SharedSource {
    /// Returns the address that errors name before the issuer is known: for a login, the address of the server.
    fn issuer(&self) -> &SecureUrl {
        match &self.grant {
            GrantKind::ClientCredentials(credentials) => &credentials.issuer,
            GrantKind::Login(..) => &self.server,
        }
    }

    /// Returns the last token if it is still valid and is not `rejected`, and otherwise a new token of the issuer.
    /// `connected` is the state for the issuer, which is created if it is `None`.
    async fn obtain(
        &self,
        connected: &mut Option<Connected>,
        rejected: Option<&AccessToken>,
    ) -> Result<AccessToken, TokenError> {
        let connected = match connected {
            Some(connected) => connected,
            None => connected.insert(match &self.grant {
                GrantKind::ClientCredentials(credentials) => self.connect(credentials).await?,
                GrantKind::Login(file, issuer) => self.open(file, issuer.as_ref()).await?,
            }),
        };
        // Removes the failure of an earlier request, so that it is not taken for one of this request.
        connected.client.take_failure();
        let manager = &connected.manager;
        // For a login, this refreshes a token that is about to expire.
        let answer = match (&self.grant, manager.get_access_token().await) {
            (_, Ok(last)) if rejected.is_none_or(|rejected| !rejected.is(&last)) => {
                return AccessToken::parse(&last).ok_or_else(|| connected.unusable());
            }
            (GrantKind::ClientCredentials(credentials), _) => {
                manager.exchange_client_credentials(&self.config(credentials)).await
            }
            // The last token has not expired, but the server has rejected it.
            (GrantKind::Login(..), Ok(_)) => manager.refresh_token().await,
            (GrantKind::Login(..), Err(problem)) => Err(problem),
        };
        let answer = answer.map_err(|problem| connected.failed(&problem))?;
        AccessToken::of(&answer).ok_or_else(|| connected.unusable())
    }

    /// Reads the metadata of the issuer, and checks that it supports client credentials.
    async fn connect(&self, credentials: &ClientCredentials) -> Result<Connected, TokenError> {
        let issuer = &credentials.issuer;
        let client = IssuerClient::new(self.agent.clone(), issuer.is_local());
        let metadata = metadata_of(issuer, &client).await?;
        let methods = listed(&metadata, "token_endpoint_auth_methods_supported");
        // Without the list, an issuer supports `client_secret_basic` (RFC 8414).
        let is_supported = methods.is_none_or(|methods| {
            methods.contains(&"client_secret_post") || methods.contains(&"client_secret_basic")
        });
        if !is_supported {
            return Err(error(issuer, TokenFailure::NoMethod));
        }
        let mut manager = crate::discovery::manager(issuer, &client).await?;
        manager.set_metadata(metadata);
        let configured = manager.configure_client_credentials(&self.config(credentials));
        configured.map_err(|problem| error_of_rmcp(issuer, &client, &problem))?;
        Ok(Connected { manager, client, issuer: issuer.clone() })
    }

    /// Reads the tokens of a login from `file`, which must be for the server of this source and, if `issuer` is given,
    /// from this issuer. The metadata of the issuer was read when the person logged in.
    async fn open(&self, file: &TokenFile, issuer: Option<&SecureUrl>) -> Result<Connected, TokenError> {
        let stored = file.read().and_then(|login| login.for_server(&self.server, issuer, file));
        let login: StoredLogin =
            stored.map_err(|why| error(&self.server, TokenFailure::File(why.to_string())))?;
        let client = IssuerClient::new(self.agent.clone(), login.issuer.is_local());
        let mut manager = crate::discovery::manager(&login.resource, &client).await?;
        manager.set_metadata(login.metadata());
        let configured = manager.configure_client(login.client());
        configured.map_err(|problem| error_of_rmcp(&login.issuer, &client, &problem))?;
        manager.set_credential_store(file.store(&login));
        Ok(Connected { manager, client, issuer: login.issuer })
    }

    /// Returns the client credentials in the form of `rmcp`, for tokens that this server accepts.
    fn config(&self, credentials: &ClientCredentials) -> ClientCredentialsConfig {
        ClientCredentialsConfig::ClientSecret {
            client_id: credentials.client_id.clone(),
            client_secret: credentials.client_secret.expose().to_owned(),
            scopes: credentials.scopes.clone(),
            resource: Some(self.server.as_str().to_owned()),
        }
    }
}

impl Connected {
    /// Returns the error about the issuer for an error of `rmcp`.
    fn failed(&self, problem: &AuthError) -> TokenError {
        match problem {
            AuthError::TokenRefreshRejected(_) => error(&self.issuer, TokenFailure::LoginEnded),
            problem => error_of_rmcp(&self.issuer, &self.client, problem),
        }
    }

    /// Returns the error about an answer without a token that a request can carry.
    fn unusable(&self) -> TokenError {
        error(&self.issuer, TokenFailure::Unusable)
    }
}

#[cfg(test)]
mod tests;
