//! Authenticates clients and people by the tokens of an identity provider: JWTs in place of a client's key, and OpenID
//! Connect for people who log in to the page.
//!
//! An *issuer* signs tokens. The gateway knows the public keys of the issuer (a JWKS), and ignores keys and addresses
//! of keys in a token. `config` creates the issuers, `chat::token_authentication` finds the client of a token, and
//! `page` logs people in.
//!
//! * `signature`: verifies signatures with ring, for the crate `jsonwebtoken`.
//! * `key_set`: reads the keys of an issuer.
//! * `token`: verifies a token.
//! * `issuer`: fetches the keys of an issuer, and caches them.
//! * `bounded_http`: sends requests to an issuer, within limits.
//! * `client_token`: decides whether a token authenticates a client, and extracts the claims that a policy reads.
//! * `login`: logs people in by the authorization code flow.
//! * `pending_logins`: holds the logins that have begun.
//! * `login_identity`: reads from an ID token who has logged in.

pub(crate) mod bounded_http;
pub(crate) mod client_token;
pub(crate) mod issuer;
pub(crate) mod key_set;
pub(crate) mod login;
pub(crate) mod login_identity;
pub(crate) mod pending_logins;
mod signature;
pub(crate) mod token;
