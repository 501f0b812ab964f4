//! Verifies a token (a signed JWT) with the keys of its issuer: its form, its signature, and the claims that every
//! token must have. `issuer` calls it.
//!
//! A token chooses a key only by its id (`kid`) among the issuer's keys; keys and addresses in the token are ignored.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flowgate::json::{self, Numbers};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};

use super::key_set::KeySet;
use super::signature;

/// The longest token that is read, in bytes.
pub(crate) const MAX_TOKEN: usize = 16 << 10;
/// The algorithms with which a token may be signed, all of them asymmetric.
pub(crate) const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];
/// The types of tokens that are accepted, in lower case. A token for another purpose, such as a logout, has another
/// type.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// The reason why a token is refused. `Display` writes a sentence for the operator's log, without any part of the
/// token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    TooLong,
    Malformed,
    Critical,
    Type,
    Algorithm,
    NoKeyId,
    NoIssuer,
    UnknownIssuer,
    NoKeys,
    UnknownKey,
    KeyOfOtherAlgorithm,
    Signature,
    Expired,
    NotYetValid,
    NoExpiry,
    Time,
    Issuer,
    Audience,
    AuthorizedParty,
    Claims,
    SeveralClients,
    Subject,
    Input,
    Nonce,
}

impl fmt::Display for TokenRefusal {
    /// Writes the reason as a constant: nothing of the token is quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token is longer than 16 KiB",
            Self::Malformed => "the token is not a signed JWT, or one of its parts is not a JSON object that has each field once",
            Self::Critical => "the token needs an extension (`crit`) that the gateway does not have",
            Self::Type => "the type of the token (`typ`) is that of a token for another purpose",
            Self::Algorithm => "the algorithm of the token (`alg`) is not among `algorithms` of its issuer",
            Self::NoKeyId => "the token does not name its key (`kid`)",
            Self::NoIssuer => "the token does not name its issuer (`iss`)",
            Self::UnknownIssuer => "no client accepts tokens of the issuer of this token (`iss`): check [issuers.NAME] and [clients.NAME.token]",
            Self::NoKeys => "the keys of the issuer of the token could not be fetched",
            Self::UnknownKey => "the key of the token (`kid`) is not among those of its issuer",
            Self::KeyOfOtherAlgorithm => "the key of the token (`kid`) is not for its algorithm (`alg`)",
            Self::Signature => "the signature of the token is not valid",
            Self::Expired => "the token has expired (`exp`)",
            Self::NotYetValid => "the token is not valid yet (`nbf`)",
            Self::NoExpiry => "the token has no `exp`, or one that is not a time",
            Self::Time => "a time in the token (`exp`, `nbf` or `iat`) is not a number of seconds",
            Self::Issuer => "the issuer of the token (`iss`) is not the configured one",
            Self::Audience => "the audience of the token (`aud`) is not the configured one",
            Self::AuthorizedParty => "the token was made for another party (`azp`)",
            Self::Claims => "the token does not have the `claims` that a client of its issuer and audience requires",
            Self::SeveralClients => "more than one client accepts this token: write different `claims` for them",
            Self::Subject => "the token has no string of 1 to 256 bytes in the claim that `subject` of the client's `token` names (by default `sub`)",
            Self::Input => "a claim that `input` or `groups` of the client's `token` names is not a string of at most 256 bytes, a number, a boolean, or a list of at most 256 such strings",
            Self::Nonce => "the token was not made for this login (`nonce`)",
        })
    }
}

/// A token whose signature has not been verified yet.
#[derive(Debug)]
pub(crate) struct UnverifiedToken<'t> {
    text: &'t str,
    algorithm: Algorithm,
    key_id: String,
    /// The issuer that it names.
    pub(crate) issuer: String,
}

/// The requirements that a token must meet.
#[derive(Debug)]
pub(crate) struct TokenRequirements<'r> {
    pub(crate) issuer: &'r str,
    /// The accepted audiences; the token must have one of them.
    pub(crate) audiences: Vec<&'r str>,
    pub(crate) algorithms: &'r [Algorithm],
    /// The tolerance for clocks that differ.
    pub(crate) leeway: Duration,
}

/// The claims of a verified token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenClaims {
    claims: Map<String, Value>,
    /// The time after which the token is refused.
    pub(crate) expires: SystemTime,
}

/// Returns whether a text looks like a token: three parts with dots between them, and `eyJ` (the encoded `{"`) at the
/// beginning.
pub(crate) fn looks_like_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl<'t> UnverifiedToken<'t> {
    /// Reads the header of a token, and its issuer. Does not verify the signature.
    ///
    /// # Errors
    /// If the token is malformed, or of a kind that the gateway does not accept.
    pub(crate) fn read(text: &'t str) -> Result<Self, TokenRefusal> {
        if text.len() > MAX_TOKEN {
            return Err(TokenRefusal::TooLong);
        }
        let parts: Vec<&str> = text.split('.').collect();
        let &[header, claims, _] = parts.as_slice() else { return Err(TokenRefusal::Malformed) };
        let (header, claims) = (object(header)?, object(claims)?);
        // `crit` lists extensions that the recipient must understand: the gateway understands none.
        if header.contains_key("crit") {
            return Err(TokenRefusal::Critical);
        }
        let member = |name: &str| header.get(name).and_then(Value::as_str);
        let is_accepted_type = |kind: &Value| {
            kind.as_str().is_some_and(|kind| TYPES.contains(&kind.to_ascii_lowercase().as_str()))
        };
        // A token may leave out its type.
        if header.get("typ").is_some_and(|kind| !is_accepted_type(kind)) {
            return Err(TokenRefusal::Type);
        }
        let algorithm = ALGORITHMS.iter().find(|(name, _)| member("alg") == Some(name));
        let (_, algorithm) = algorithm.ok_or(TokenRefusal::Algorithm)?;
        let key_id = member("kid").filter(|id| !id.is_empty()).ok_or(TokenRefusal::NoKeyId)?.to_owned();
        let issuer = claims.get("iss").and_then(Value::as_str).ok_or(TokenRefusal::NoIssuer)?.to_owned();
        Ok(Self { text, algorithm: *algorithm, key_id, issuer })
    }

    /// Returns whether a set has a key with the id that the token names.
    pub(super) fn has_key_in(&self, keys: &KeySet) -> bool {
        keys.has_id(&self.key_id)
    }

    /// Verifies the signature with the keys of the issuer, and the claims that every token must have.
    ///
    /// # Errors
    /// Why the token is refused.
    pub(crate) fn verify(
        &self,
        keys: &KeySet,
        required: &TokenRequirements<'_>,
    ) -> Result<TokenClaims, TokenRefusal> {
        // `jsonwebtoken` verifies signatures by the provider that is installed here; a second call has no effect.
        signature::install();
        if !required.algorithms.contains(&self.algorithm) {
            return Err(TokenRefusal::Algorithm);
        }
        let key = keys.find(&self.key_id, self.algorithm).ok_or(match keys.has_id(&self.key_id) {
            true => TokenRefusal::KeyOfOtherAlgorithm,
            false => TokenRefusal::UnknownKey,
        })?;
        let mut validation = Validation::new(self.algorithm);
        validation.leeway = required.leeway.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[required.issuer]);
        validation.set_audience(&required.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        jsonwebtoken::decode::<Value>(self.text, key, &validation).map_err(|error| refusal(error.kind()))?;
        // The signature is valid. The claims are parsed again, since `jsonwebtoken` accepts objects in which a key
        // occurs twice.
        let claims = self.text.split('.').nth(1).ok_or(TokenRefusal::Malformed)?;
        let claims = object(claims)?;
        // `jsonwebtoken` also accepts a list that has the issuer among others: the issuer must be the only one.
        if claims.get("iss").and_then(Value::as_str) != Some(required.issuer) {
            return Err(TokenRefusal::Issuer);
        }
        let expires = claims.get("exp").and_then(Value::as_f64).ok_or(TokenRefusal::Time)?;
        let expires = Duration::try_from_secs_f64(expires).map_err(|_| TokenRefusal::Time)?;
        // The clocks of the issuer and the gateway may differ by the leeway, so the token is accepted for that much
        // longer.
        let expires = SystemTime::UNIX_EPOCH
            .checked_add(expires)
            .and_then(|expires| expires.checked_add(required.leeway))
            .ok_or(TokenRefusal::Time)?;
        Ok(TokenClaims { claims, expires })
    }
}

impl TokenClaims {
    /// Returns a claim.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.claims.get(name)
    }

    /// Returns the claim `name` if it is a string.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Returns whether the token is for this audience.
    pub(crate) fn is_for(&self, audience: &str) -> bool {
        match self.get("aud") {
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(audience)),
            Some(one) => one.as_str() == Some(audience),
            None => false,
        }
    }

    /// Returns whether the token names several audiences.
    pub(crate) fn has_several_audiences(&self) -> bool {
        self.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1)
    }
}

/// Decodes a part of a token: a JSON object, in base64, in which no name occurs twice.
fn object(part: &str) -> Result<Map<String, Value>, TokenRefusal> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenRefusal::Malformed)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| TokenRefusal::Malformed)?;
    // `json::parse` refuses an object that has a key twice.
    match json::parse(text, Numbers::Any) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(TokenRefusal::Malformed),
    }
}

/// Converts an error of `jsonwebtoken` to the reason why the token is refused.
fn refusal(error: &ErrorKind) -> TokenRefusal {
    match error {
        ErrorKind::ExpiredSignature => TokenRefusal::Expired,
        ErrorKind::ImmatureSignature => TokenRefusal::NotYetValid,
        ErrorKind::InvalidIssuer => TokenRefusal::Issuer,
        ErrorKind::InvalidAudience => TokenRefusal::Audience,
        ErrorKind::InvalidClaimFormat(_) => TokenRefusal::Time,
        ErrorKind::MissingRequiredClaim(name) => match name.as_str() {
            "exp" => TokenRefusal::NoExpiry,
            "aud" => TokenRefusal::Audience,
            // Only `exp`, `aud` and `iss` are required.
            _ => TokenRefusal::Issuer,
        },
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenRefusal::Algorithm,
        ErrorKind::InvalidSignature | ErrorKind::InvalidKeyFormat => TokenRefusal::Signature,
        _ => TokenRefusal::Malformed,
    }
}
