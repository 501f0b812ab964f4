//! Logs a person in at the issuer of a server, by the authorization code flow with PKCE ([`Login`]). The person opens
//! an address in a browser. The issuer then sends the browser to an address on this machine with a code, which `Login`
//! exchanges for tokens. If the browser is on another machine, the person pastes the address to which the browser was
//! sent. `flowgate mcp login` calls this module.
//!
//! Without an `issuer` in the configuration, the server names its issuer (RFC 9728). The person sees the name of this
//! issuer, and the tokens of the login are sent to no other issuer afterwards.

use std::fmt;
use std::io;
use std::time::Duration;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore as _, InMemoryCredentialStore,
    OAuthClientConfig,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use url::Url;
use url::form_urlencoded;

use crate::access_token::AccessToken;
use crate::client_credentials::ClientSecret;
use crate::discovery::{self, error_of_rmcp, listed};
use crate::error::{TokenError, TokenFailure};
use crate::issuer_client::IssuerClient;
use crate::redirect::{RedirectListener, RedirectRequest};
use crate::secure_url::SecureUrl;
use crate::token_file::{StoredLogin, TokenFile, TokenFileError};

/// The time that a person has to log in.
const TIME: Duration = Duration::from_secs(600);
/// The longest address that a person is asked to open, in bytes. The server and the issuer choose parts of the address.
const MAX_ADDRESS: usize = 8 << 10;
/// The name under which Flowgate registers itself.
const CLIENT_NAME: &str = "Flowgate";

/// A client that is registered at an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredClient {
    /// The name of the client at the issuer.
    pub id: String,
    /// The secret of the client, if it has one.
    pub secret: Option<ClientSecret>,
}

/// At which server a person logs in, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginSettings {
    /// The address of the server.
    pub server: SecureUrl,
    /// The issuer; without it, the server names one.
    pub issuer: Option<SecureUrl>,
    /// The client; without it, Flowgate registers itself at the issuer.
    pub client: Option<RegisteredClient>,
    /// What the tokens must permit. If the list is empty, the server's metadata says what is requested.
    pub scopes: Vec<String>,
    /// The port of this machine to which the issuer sends the browser; 0 means any free port.
    pub port: u16,
}

/// Why a login failed: a sentence with advice for the person, without text of the server or the issuer.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoginError {
    /// The issuer cannot be used, or gives no token.
    Issuer(TokenError),
    /// The metadata of the server cannot be read.
    Server(SecureUrl, TokenFailure),
    /// The server names no issuer.
    NoIssuer(SecureUrl),
    /// The configuration has a secret, and does not say for which issuer.
    SecretWithoutIssuer,
    /// The issuer does not support PKCE with S256.
    NoPkce(SecureUrl),
    /// The issuer registers no clients.
    NoRegistration(SecureUrl),
    /// The issuer did not register Flowgate.
    NotRegistered(SecureUrl, TokenFailure),
    /// The port of this machine cannot be used.
    Port(u16, io::Error),
    /// The address for the browser is too long, or is not a valid URL.
    BadAddress(SecureUrl),
    /// The issuer refuses the login, with this code of OAuth.
    Refused(SecureUrl, String),
    /// The outcome names another issuer.
    OtherIssuer(SecureUrl),
    /// Nobody has logged in within the time.
    TimedOut,
    /// The tokens cannot be stored.
    File(TokenFileError),
}

impl fmt::Display for LoginError {
    /// Writes what prevents the login, with advice for the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issuer(error) => error.fmt(f),
            Self::Server(server, failure) => write!(
                f,
                "the server {server} does not say who its issuer is: {}; check its `url`, or write `issuer` in `oauth`",
                failure.clause()
            ),
            Self::NoIssuer(server) => write!(
                f,
                "the server {server} names no issuer that can be used; write `issuer` in `oauth`, or a key in `headers`"
            ),
            Self::SecretWithoutIssuer => f.write_str(
                "`oauth` has a `clientSecret` and no `issuer`, so the server could choose who receives the secret; write `issuer`",
            ),
            Self::NoPkce(issuer) => write!(
                f,
                "the issuer {issuer} does not state that it supports PKCE with S256, without which another program could use \
                the outcome of the login; ask the operator of the issuer to support PKCE"
            ),
            Self::NoRegistration(issuer) => write!(
                f,
                "the issuer {issuer} registers no clients by itself; register one there, and write its `clientId` in `oauth`"
            ),
            Self::NotRegistered(issuer, failure) => write!(
                f,
                "the issuer {issuer} does not register Flowgate as a client: {}; register one there, and write its `clientId` in `oauth`",
                failure.clause()
            ),
            Self::Port(port, error) => write!(
                f,
                "the port {port} of this machine cannot be used: {error}; end the program that uses it, or change `callbackPort` in `oauth`"
            ),
            Self::BadAddress(issuer) => write!(
                f,
                "the address for logins at {issuer} is not a valid URL, or is longer than {MAX_ADDRESS} bytes; write fewer \
                `scopes` in `oauth`, or ask the operator of the issuer"
            ),
            Self::Refused(issuer, code) => {
                write!(f, "the issuer {issuer} refuses the login with `{code}`; try again, or ask its operator")
            }
            Self::OtherIssuer(issuer) => write!(
                f,
                "the outcome of the login names an issuer other than {issuer}, so it was not used; try again, and stop if it happens again"
            ),
            Self::TimedOut => {
                write!(f, "nobody has logged in within {} minutes; try again", TIME.as_secs() / 60)
            }
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoginError {}

impl From<TokenError> for LoginError {
    fn from(error: TokenError) -> Self {
        Self::Issuer(error)
    }
}

/// A login that has begun.
pub struct Login {
    settings: LoginSettings,
    issuer: SecureUrl,
    metadata: AuthorizationMetadata,
    client_secret: Option<ClientSecret>,
    client: IssuerClient,
    manager: AuthorizationManager,
    /// The tokens, after the issuer has sent them.
    tokens: InMemoryCredentialStore,
    listener: RedirectListener,
    /// The address at which the person logs in.
    address: Url,
}

impl fmt::Debug for Login {
    /// Writes the server and the issuer, without the secrets of the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("server", &self.settings.server)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// The outcome of a login, as the issuer sends it with the browser.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The code, and the issuer that it names.
    Code(String, Option<String>),
    /// The code of an error.
    Error(String),
}

impl Login {
    /// Finds the issuer, registers Flowgate there if the settings name no client, and begins to listen on this machine
    /// for the outcome. `agent` sends the requests to the issuer and for the metadata of the server.
    ///
    /// # Errors
    /// If there is no issuer that can be used (for example because it does not support PKCE), if it does not register
    /// Flowgate, if the settings have a secret but no issuer, or if the port of this machine cannot be used.
    pub async fn begin(settings: LoginSettings, agent: ureq::Agent) -> Result<Self, LoginError> {
        // The server would otherwise choose the issuer that receives the secret.
        let has_secret = settings.client.as_ref().is_some_and(|client| client.secret.is_some());
        if has_secret && settings.issuer.is_none() {
            return Err(LoginError::SecretWithoutIssuer);
        }
        let is_local = settings.issuer.as_ref().unwrap_or(&settings.server).is_local();
        let client = IssuerClient::new(agent, is_local);
        let mut manager = discovery::manager(&settings.server, &client).await?;
        let (issuer, metadata) = find_issuer(&settings, &manager, &client).await?;
        manager.set_metadata(metadata.clone());
        // With PKCE, the issuer exchanges the code of the outcome only for the program that began the login.
        let methods = &metadata.code_challenge_methods_supported;
        if !methods.as_ref().is_some_and(|methods| methods.iter().any(|method| method == "S256")) {
            return Err(LoginError::NoPkce(issuer));
        }
        let scopes = match settings.scopes.as_slice() {
            [] => manager.select_initial_scopes(&[]).await,
            scopes => scopes.to_vec(),
        };
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let listener = RedirectListener::bind(settings.port).await;
        let listener = listener.map_err(|error| LoginError::Port(settings.port, error))?;
        // Removes the failures of earlier requests, so that none is taken for a failure of the registration.
        client.take_failure();
        let redirect = listener.address();
        let config =
            client_config(&settings, &issuer, &metadata, &mut manager, &client, &redirect, &scopes).await?;
        let client_secret = config.client_secret.clone().map(ClientSecret::new);
        manager.configure_client(config).map_err(|error| error_of_rmcp(&issuer, &client, &error))?;
        let tokens = InMemoryCredentialStore::new();
        manager.set_credential_store(tokens.clone());
        // `rmcp` makes the address, and keeps the secret of PKCE and the `state` for the exchange of the code.
        let address = manager.get_authorization_url(&scopes).await;
        let address = address.map_err(|error| error_of_rmcp(&issuer, &client, &error))?;
        let address = Url::parse(&address).ok().filter(|_| address.len() <= MAX_ADDRESS);
        let address = address.ok_or_else(|| LoginError::BadAddress(issuer.clone()))?;
        Ok(Self { settings, issuer, metadata, client_secret, client, manager, tokens, listener, address })
    }

    /// Returns the address at which the person logs in. Its characters are visible ASCII.
    #[must_use]
    pub fn address(&self) -> &str {
        self.address.as_str()
    }

    /// Returns the issuer at which the person logs in.
    #[must_use]
    pub fn issuer(&self) -> &SecureUrl {
        &self.issuer
    }

    /// Waits until the person has logged in, and stores the tokens in `file`. The outcome arrives either as a request
    /// of the browser or as a line of `pasted`, the lines that the person types: a line may be the address to which the
    /// issuer has sent the browser. `note` is called with a sentence about each line or request that is not the outcome
    /// of this login.
    ///
    /// # Errors
    /// If the issuer refuses the login or gives no usable tokens, nobody logs in in time, or the tokens cannot be
    /// stored.
    pub async fn complete(
        mut self,
        file: &TokenFile,
        mut pasted: mpsc::Receiver<String>,
        note: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), LoginError> {
        let deadline = Instant::now() + TIME;
        loop {
            let (query, request): (String, Option<RedirectRequest>) = tokio::select! {
                () = sleep_until(deadline) => return Err(LoginError::TimedOut),
                Some(request) = self.listener.next() => (request.query.clone(), Some(request)),
                Some(line) = pasted.recv() => match self.listener.query_of(&line) {
                    Some(query) => (query.to_owned(), None),
                    None => {
                        let begins = self.listener.address();
                        note(&format!("this is not the address to which the issuer sends the browser; paste the one that begins with `{begins}?`"));
                        continue;
                    }
                },
            };
            let Some(outcome) = outcome_of(&query, &self.parameter("state")) else {
                note("a request does not belong to this login, and is ignored; the login still waits");
                if let Some(request) = request {
                    request.answer(false, "This does not belong to the login that is running.").await;
                }
                continue;
            };
            let ended = self.end(outcome, file).await;
            if let Some(request) = request {
                let sentence = match &ended {
                    Ok(()) => "You are logged in. You can close this page.",
                    Err(_) => "The login failed. The terminal says why.",
                };
                request.answer(ended.is_ok(), sentence).await;
            }
            return ended;
        }
    }

    /// Returns the parameter `name` of the address at which the person logs in; empty if the address does not have it.
    fn parameter(&self, name: &str) -> String {
        let found = self.address.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned()).unwrap_or_default()
    }

    /// Exchanges the code of the outcome for tokens, and stores them in `file`, with the addresses at which they may be
    /// refreshed. Fails if the outcome is an error or comes from another issuer, or if there are no usable tokens.
    async fn end(&self, outcome: Outcome, file: &TokenFile) -> Result<(), LoginError> {
        let (code, named) = match outcome {
            Outcome::Error(code) => return Err(LoginError::Refused(self.issuer.clone(), code)),
            Outcome::Code(code, named) => (code, named),
        };
        // Removes the failures of earlier requests, so that none is taken for a failure of the exchange.
        self.client.take_failure();
        let state = self.parameter("state");
        let exchanged = self.manager.exchange_code_for_token_with_issuer(&code, &state, named.as_deref());
        let token = exchanged.await.map_err(|problem| match problem {
            AuthError::AuthorizationServerMismatch { .. }
            | AuthError::AuthorizationServerMissingIssuer { .. } => {
                LoginError::OtherIssuer(self.issuer.clone())
            }
            problem => error_of_rmcp(&self.issuer, &self.client, &problem).into(),
        })?;
        let unusable = || LoginError::from(discovery::error(&self.issuer, TokenFailure::Unusable));
        if AccessToken::of(&token).is_none() {
            return Err(unusable());
        }
        let credentials = self.tokens.load().await.ok().flatten().ok_or_else(unusable)?;
        let insecure = || LoginError::from(discovery::error(&self.issuer, TokenFailure::Insecure));
        let methods = listed(&self.metadata, "token_endpoint_auth_methods_supported").unwrap_or_default();
        let login = StoredLogin {
            server: self.settings.server.clone(),
            resource: SecureUrl::parse(&self.parameter("resource")).ok_or_else(insecure)?,
            issuer: self.issuer.clone(),
            authorization_endpoint: SecureUrl::parse(&self.metadata.authorization_endpoint)
                .ok_or_else(insecure)?,
            token_endpoint: SecureUrl::parse(&self.metadata.token_endpoint).ok_or_else(insecure)?,
            auth_methods: methods.into_iter().map(str::to_owned).collect(),
            client_secret: self.client_secret.clone(),
            credentials,
        };
        file.replace(&login).await.map_err(LoginError::File)
    }
}

/// Returns the configuration of the client that logs in: the client of the settings or, if they name none, one that is
/// registered now. The issuer sends the browser to the address `redirect`.
async fn client_config(
    settings: &LoginSettings,
    issuer: &SecureUrl,
    metadata: &AuthorizationMetadata,
    manager: &mut AuthorizationManager,
    client: &IssuerClient,
    redirect: &str,
    scopes: &[&str],
) -> Result<OAuthClientConfig, LoginError> {
    if let Some(registered) = &settings.client {
        let config = OAuthClientConfig::new(&*registered.id, redirect);
        return Ok(match &registered.secret {
            None => config,
            Some(secret) => config.with_client_secret(secret.expose()),
        });
    }
    if metadata.registration_endpoint.is_none() {
        return Err(LoginError::NoRegistration(issuer.clone()));
    }
    let registered = manager.register_client(CLIENT_NAME, redirect, scopes).await;
    registered.map_err(|_| {
        let failure = client.take_failure().unwrap_or(TokenFailure::Unusable);
        LoginError::NotRegistered(issuer.clone(), failure)
    })
}

/// Returns the issuer and its metadata: the issuer of the settings, or the one that the server names. The metadata of
/// the server is read in either case, by `manager`, which remembers two values of it for the login: the name of the
/// server at its issuer, and the scopes that the server asks for.
async fn find_issuer(
    settings: &LoginSettings,
    manager: &AuthorizationManager,
    client: &IssuerClient,
) -> Result<(SecureUrl, AuthorizationMetadata), LoginError> {
    let named = manager.resolve_metadata().await;
    let failure = client.take_failure();
    if let Some(issuer) = &settings.issuer {
        return Ok((issuer.clone(), discovery::metadata_of(issuer, client).await?));
    }
    let server = &settings.server;
    let no_issuer = || LoginError::NoIssuer(server.clone());
    let resolved = named.map_err(|_| match failure {
        Some(failure) => LoginError::Server(server.clone(), failure),
        None => no_issuer(),
    })?;
    // Without metadata, `rmcp` guesses the addresses.
    let metadata =
        Some(resolved.metadata).filter(|_| resolved.source.is_discovered()).ok_or_else(no_issuer)?;
    let issuer = metadata.issuer.as_deref().and_then(SecureUrl::parse).ok_or_else(no_issuer)?;
    discovery::check_addresses(&issuer, &metadata, client)?;
    Ok((issuer, metadata))
}

/// Reads the outcome from the query of an address; `None` if the query does not belong to the login with this `state`,
/// or can be read in more than one way, such as with a parameter that occurs twice.
fn outcome_of(query: &str, state: &str) -> Option<Outcome> {
    // The value of a parameter: `Some(None)` if the query lacks it, and `None` if the query gives it twice.
    let value = |name: &str| {
        let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
        match (found.next(), found.next()) {
            (found, None) => Some(found.map(|(_, value)| value.into_owned())),
            (_, Some(_)) => None,
        }
    };
    let (code, named, error) = (value("code")?, value("iss")?, value("error")?);
    if state.is_empty() || value("state")?.as_deref() != Some(state) {
        return None;
    }
    match (code, error) {
        (Some(code), None) => Some(Outcome::Code(code, named)),
        (None, Some(error)) => {
            let is_code = (1..=40).contains(&error.len())
                && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            Some(Outcome::Error(if is_code { error } else { "an unknown code".to_owned() }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
