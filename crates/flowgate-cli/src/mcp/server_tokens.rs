//! Decides where the access tokens for a server behind OAuth come from, and with which settings a person logs in to such
//! a server. `connection` and `flowgate mcp login` use it. The crate `flowgate-oauth` obtains, stores and refreshes the
//! tokens.

use std::path::PathBuf;

use flowgate_oauth::{LoginSettings, SecureUrl, TokenFile, TokenSource, agent};
use ureq::tls::TlsConfig;

use super::config::{McpServerSpec, ServerTransport};
use super::oauth::{OAuthSpec, has_authorization};
use crate::state_folder::state_folder;

impl McpServerSpec {
    /// Returns how a person logs in to the server, and the file for the tokens of the login.
    ///
    /// # Errors
    /// If nobody can log in to it: a clause about the server, with advice.
    pub(crate) fn login(&self) -> Result<(LoginSettings, TokenFile), String> {
        let ServerTransport::Url { url, headers, oauth } = &self.transport else {
            return Err(
                "is started by a command, so nobody logs in to it; give it its key in `env`".to_owned()
            );
        };
        if has_authorization(headers) {
            return Err(
                "already authenticates with its header `Authorization`, so nobody logs in to it; to use a login instead, remove the header".to_owned()
            );
        }
        let server = SecureUrl::parse(url).ok_or(
            "has a `url` at which others could read its tokens; write one that begins with https://",
        )?;
        let file = token_file(&self.name, &server).ok_or_else(|| {
            "has no file for its tokens, since there is no folder for it; set HOME or XDG_STATE_HOME"
                .to_owned()
        })?;
        match oauth.clone().unwrap_or_else(OAuthSpec::unconfigured_login) {
            OAuthSpec::ClientCredentials(_) => Err(
                "gets its tokens by client credentials, without a person; write \"grant\": \"authorization_code\" in its `oauth` to log in"
                    .to_owned(),
            ),
            OAuthSpec::Login { issuer, client, scopes, port } => {
                Ok((LoginSettings { server, issuer, client, scopes, port }, file))
            }
        }
    }

    /// Returns the source of the tokens for the server; `None` if requests to the server have no token. If the
    /// configuration has neither `oauth` nor a header `Authorization`, the tokens are those of a login, provided that a
    /// person has logged in.
    ///
    /// # Errors
    /// If the tokens are those of a login, but there is no folder for such tokens; or if a server with `oauth` does not
    /// have an address of HTTPS. The error is a clause for an error message.
    pub(super) fn tokens(&self) -> Result<Option<TokenSource>, String> {
        let ServerTransport::Url { url, headers, oauth } = &self.transport else { return Ok(None) };
        let server = SecureUrl::parse(url);
        match (oauth, server) {
            (Some(OAuthSpec::ClientCredentials(credentials)), Some(server)) => {
                Ok(Some(TokenSource::with_client_credentials(
                    credentials.clone(),
                    server,
                    agent(TlsConfig::default()),
                )))
            }
            (Some(OAuthSpec::Login { issuer, .. }), Some(server)) => {
                let file = token_file(&self.name, &server)
                    .ok_or("there is no folder with the tokens of logins; set HOME or XDG_STATE_HOME")?;
                let agent = agent(TlsConfig::default());
                Ok(Some(TokenSource::with_login(file, issuer.clone(), server, agent)))
            }
            // `config` has checked that a server with `oauth` has such an address.
            (Some(_), None) => {
                Err("others could read its tokens at its `url`; write one that begins with https://"
                    .to_owned())
            }
            (None, Some(server)) if !has_authorization(headers) => {
                let file = token_file(&self.name, &server).filter(|file| file.path().exists());
                Ok(file.map(|file| TokenSource::with_login(file, None, server, agent(TlsConfig::default()))))
            }
            (None, _) => Ok(None),
        }
    }
}

/// Returns the file with the tokens of a login; `None` if there is no folder for such files.
fn token_file(name: &str, server: &SecureUrl) -> Option<TokenFile> {
    let folder: PathBuf = state_folder()?.join("mcp-logins");
    TokenFile::of_server(&folder, name, server)
}
