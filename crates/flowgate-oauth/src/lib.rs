//! Obtains access tokens for MCP servers behind OAuth. The crate `rmcp` implements the protocol; this crate decides to
//! which addresses secrets may be sent, stores the tokens of logins, and shares tokens between requests. The gateway
//! and the command line use it.
//!
//! A server's tokens come from an *issuer*, an OAuth authorization server, in one of two ways:
//!
//! * by client credentials ([`ClientCredentials`]): without a person, with a secret of the configuration;
//! * by a login ([`Login`]): a person logs in at the issuer in a browser, and the tokens are kept in a [`TokenFile`].
//!
//! Both ways lead to a [`TokenSource`], from which the requests to the server take their token.
//!
//! No redirect is followed and no proxy is used. A secret is sent only by HTTPS or on this machine ([`SecureUrl`]). A
//! server may name its issuer only during a login, in which a person sees the name; later, tokens come only from the
//! issuer of the configuration or of the login.
//!
//! * `secure_url`: defines addresses to which secrets may be sent.
//! * `issuer_client`: sends HTTP requests to issuers.
//! * `discovery`: reads the metadata of an issuer.
//! * `access_token`: defines tokens that can be sent in a header.
//! * `token_source`: gives requests their tokens, and renews tokens in time.
//! * `client_credentials`: defines the settings of client credentials.
//! * `login`: runs the authorization code flow; `redirect` receives its outcome.
//! * `token_file`: stores the tokens of a login.
//! * `error`: defines why there is no token.

mod access_token;
mod client_credentials;
mod discovery;
mod error;
mod issuer_client;
mod login;
mod redirect;
mod secure_url;
mod token_file;
mod token_source;

#[cfg(test)]
mod issuer_double;

pub use access_token::AccessToken;
pub use client_credentials::{ClientCredentials, ClientSecret};
pub use error::{TokenError, TokenFailure};
pub use issuer_client::agent;
pub use login::{Login, LoginError, LoginSettings, RegisteredClient};
pub use secure_url::SecureUrl;
pub use token_file::{TokenFile, TokenFileError};
pub use token_source::TokenSource;
