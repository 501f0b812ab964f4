//! Defines [`ClientCredentials`], the settings with which `token_source` obtains tokens without a person, and
//! [`ClientSecret`], which `login` uses as well.

use std::fmt;

use crate::secure_url::SecureUrl;

/// The secret of a client at its issuer. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(String);

impl ClientSecret {
    /// Wraps the text of a secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret itself, in order to send or store it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    /// Does not write the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(..)")
    }
}

/// How the tokens for a server are obtained without a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// The issuer. What the server says about its issuer is ignored.
    pub issuer: SecureUrl,
    /// The name of the client at the issuer.
    pub client_id: String,
    /// The secret of the client.
    pub client_secret: ClientSecret,
    /// What the tokens must permit. If the list is empty, the issuer decides.
    pub scopes: Vec<String>,
}
