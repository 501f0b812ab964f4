//! Obtains access tokens for remote MCP servers behind OAuth, for `http`: by client credentials, without a person.
//! `rmcp` implements the protocol; the HTTP client of `http` sends the requests.
//!
//! The configuration names the issuer. What the server says about its issuer is ignored: a server that names an issuer
//! itself, as MCP permits, could name one that collects secrets.

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, ClientCredentialsConfig, OAuthHttpClient, OAuthHttpClientError,
    OAuthHttpClientFuture, OAuthHttpRequest,
};

use crate::escaping;

/// The largest answer of an issuer, in bytes.
const MAX_ANSWER: u64 = 256 << 10;

/// How the tokens for a server are obtained: the section `oauth` of its configuration.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct OAuthSpec {
    /// The URL of the issuer, which identifies it.
    pub(super) issuer: String,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scopes: Vec<String>,
}

impl fmt::Debug for OAuthSpec {
    /// Writes everything but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { issuer, client_id, client_secret: _, scopes } = self;
        f.debug_struct("OAuthSpec")
            .field("issuer", issuer)
            .field("client_id", client_id)
            .field("scopes", scopes)
            .finish_non_exhaustive()
    }
}

/// Returns whether requests, which can contain the client's secret, may be sent to `url`: by HTTPS, or on this machine.
pub(super) fn is_confidential(url: &::http::Uri) -> bool {
    match url.scheme_str() {
        Some("https") => true,
        Some("http") => matches!(url.host(), Some("127.0.0.1" | "localhost" | "[::1]")),
        _ => false,
    }
}

/// The tokens for one server.
pub(super) struct TokenSource {
    manager: AuthorizationManager,
    credentials: ClientCredentialsConfig,
    /// The URL of the issuer, cut and escaped for error messages.
    issuer: String,
}

impl TokenSource {
    /// Reads the metadata of the issuer and obtains the first token. `resource` is the URL of the server: the tokens
    /// are requested for this server only.
    ///
    /// # Errors
    /// If the issuer cannot be reached, if its metadata names another issuer than the configured one, or if it gives no
    /// token: a clause for an error message to the user.
    pub(super) async fn connect(
        spec: &OAuthSpec,
        resource: &str,
        agent: ureq::Agent,
    ) -> Result<Self, String> {
        let shown = escaping::excerpt(&spec.issuer, 100);
        let failed = |error: &AuthError| describe(&shown, error);
        let client = Arc::new(IssuerClient { agent });
        let mut manager = AuthorizationManager::new_with_oauth_http_client(&*spec.issuer, client)
            .await
            .map_err(|error| failed(&error))?;
        let resolution = manager.resolve_metadata().await.map_err(|error| failed(&error))?;
        let stated = resolution.metadata.issuer.as_deref().map(|issuer| issuer.trim_end_matches('/'));
        // Without metadata, `rmcp` would guess the addresses.
        if !resolution.source.is_discovered() || stated != Some(spec.issuer.trim_end_matches('/')) {
            return Err(format!(
                "there is no metadata of the issuer {shown} that names it; check the `issuer` in `oauth`"
            ));
        }
        manager.set_metadata(resolution.metadata);
        let credentials = ClientCredentialsConfig::ClientSecret {
            client_id: spec.client_id.clone(),
            client_secret: spec.client_secret.clone(),
            scopes: spec.scopes.clone(),
            resource: Some(resource.to_owned()),
        };
        manager.validate_client_credentials_metadata(&credentials).map_err(|error| failed(&error))?;
        manager.configure_client_credentials(&credentials).map_err(|error| failed(&error))?;
        let mut source = Self { manager, credentials, issuer: shown };
        source.obtain().await?;
        Ok(source)
    }

    /// Returns the token for the next request: the last one, or another one if that is about to expire.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub(super) async fn token(&mut self) -> Result<String, String> {
        match self.manager.get_access_token().await {
            Ok(token) => Ok(token),
            Err(_) => self.obtain().await,
        }
    }

    /// Returns another token than `rejected`, which the server has not accepted.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub(super) async fn token_after(&mut self, rejected: &str) -> Result<String, String> {
        // Another request may have obtained one meanwhile.
        match self.manager.get_access_token().await {
            Ok(token) if token != rejected => Ok(token),
            _ => self.obtain().await,
        }
    }

    /// Obtains a token from the issuer.
    async fn obtain(&mut self) -> Result<String, String> {
        let obtained = self.manager.exchange_client_credentials(&self.credentials).await;
        obtained.map_err(|error| describe(&self.issuer, &error))?;
        self.manager.get_access_token().await.map_err(|error| describe(&self.issuer, &error))
    }
}

/// Returns why an issuer gives no token.
fn describe(issuer: &str, error: &AuthError) -> String {
    format!(
        "the issuer {issuer} gives no token: {}; check `oauth`",
        escaping::excerpt(&error.to_string(), 200)
    )
}

/// The HTTP client through which `rmcp` communicates with issuers. It follows no redirect.
struct IssuerClient {
    agent: ureq::Agent,
}

impl IssuerClient {
    /// Sends a request, and returns the answer. Blocks.
    ///
    /// # Errors
    /// If there is no answer, if the answer is too large, or if the address is not [confidential](is_confidential).
    fn send(
        agent: &ureq::Agent,
        request: ::http::Request<Vec<u8>>,
    ) -> Result<::http::Response<Vec<u8>>, OAuthHttpClientError> {
        if !is_confidential(request.uri()) {
            return Err("an address in the issuer's metadata is not one of HTTPS".into());
        }
        let answer = match request.body().is_empty() {
            true => agent.run(request.map(|_| ()))?,
            false => agent.run(request)?,
        };
        let (head, body) = answer.into_parts();
        let mut bytes = Vec::new();
        // One byte more, by which an answer that is too large is noticed.
        body.into_reader().take(MAX_ANSWER + 1).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_ANSWER {
            return Err("the answer of the issuer is too large".into());
        }
        Ok(::http::Response::from_parts(head, bytes))
    }
}

impl OAuthHttpClient for IssuerClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let agent = self.agent.clone();
        Box::pin(
            async move { tokio::task::spawn_blocking(move || Self::send(&agent, request.request)).await? },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sent_by_https_or_on_this_machine() {
        for (url, expected) in [
            ("https://issuer.example/token", true),
            ("http://127.0.0.1:80/token", true),
            ("http://localhost/token", true),
            ("http://[::1]/token", true),
            ("http://issuer.example/token", false),
            ("http://127.0.0.1.example/token", false),
            ("http://localhost.example/token", false),
            ("ftp://localhost/token", false),
        ] {
            assert_eq!(is_confidential(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
