//! Reads the public keys of an issuer from a JWKS, a JSON document. `issuer` fetches the document, and `token` chooses
//! the key that verifies a token.

use flowgate::json::{self, Numbers};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde_json::Value;

/// The most keys of one issuer.
pub(crate) const MAX_KEYS: usize = 100;

/// The keys of an issuer that can verify a token.
#[derive(Debug, Clone)]
pub(crate) struct KeySet(Vec<IssuerKey>);

/// A public key of an issuer.
#[derive(Debug, Clone)]
struct IssuerKey {
    id: String,
    /// The only algorithm with which the issuer uses the key, if the issuer names one.
    algorithm: Option<Algorithm>,
    /// The algorithms for which the kind of the key (RSA, curve) is suitable.
    fitting: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    /// Reads a JWKS. Keys that cannot verify a token are left out: secrets, keys for encryption, keys without an id,
    /// and keys of an unknown kind. The set may be empty: an issuer can withdraw all its keys.
    ///
    /// # Errors
    /// If the text is not a JWKS, or has more than [`MAX_KEYS`] keys. The caller writes the name of the document before
    /// the message.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        // `Numbers::Any`: numbers that parsers may read differently are accepted too.
        let document = json::parse(text, Numbers::Any).map_err(|_| {
            "it is not JSON, or an object in it has a field twice: correct the JWKS, or check its address"
                .to_owned()
        })?;
        let keys = document.get("keys").and_then(Value::as_array);
        let keys = keys
            .ok_or("the field `keys` is missing or is not a list: correct the JWKS, or check its address")?;
        if keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys: remove those that are not used any more"));
        }
        Ok(Self(keys.iter().filter_map(IssuerKey::read).collect()))
    }

    /// Returns the first key with this id whose kind suits this algorithm, unless the issuer uses the key only with
    /// another algorithm.
    pub(super) fn find(&self, id: &str, algorithm: Algorithm) -> Option<&DecodingKey> {
        let fits = |key: &&IssuerKey| {
            key.id == id
                && key.fitting.contains(&algorithm)
                && key.algorithm.is_none_or(|only| only == algorithm)
        };
        self.0.iter().find(fits).map(|key| &key.key)
    }

    /// Returns whether a key has this id, whatever algorithm it is for.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id == id)
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl IssuerKey {
    /// Reads a key; `None` if it cannot verify a token, or has no id by which a token could name it.
    fn read(value: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        let common = &jwk.common;
        let is_for_signatures =
            common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
                && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        // A key with the name of an unknown algorithm is left out: it must not be used with another algorithm.
        let algorithm = match common.key_algorithm {
            Some(name) => Some(Algorithm::try_from(name).ok()?),
            None => None,
        };
        // The algorithms for which this kind of key is suitable.
        let fitting = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
            AlgorithmParameters::EllipticCurve(point) => match point.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // For example a shared secret: anybody may read this document, so a signature with that secret proves
            // nothing.
            _ => return None,
        };
        let id = common.key_id.clone().filter(|id| !id.is_empty())?;
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        is_for_signatures.then_some(Self { id, algorithm, fitting, key })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_public_keys_that_can_verify_are_read() {
        let key = |more: Value| {
            let mut key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "AAAA"});
            key.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            key.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            key
        };
        let check = |key: Value, expected: &[Algorithm]| {
            let read = KeySet::read(&json!({"keys": [key]}).to_string());
            let found: Vec<Algorithm> =
                [Algorithm::EdDSA, Algorithm::ES256, Algorithm::RS256, Algorithm::HS256]
                    .into_iter()
                    .filter(|algorithm| read.as_ref().is_ok_and(|set| set.find("a", *algorithm).is_some()))
                    .collect();
            assert_eq!(found, expected, "{key}");
        };
        check(key(json!({})), &[Algorithm::EdDSA]);
        check(key(json!({"alg": "EdDSA", "use": "sig", "key_ops": ["verify"]})), &[Algorithm::EdDSA]);
        check(key(json!({"alg": "ES256"})), &[]);
        check(key(json!({"alg": "none"})), &[]);
        check(key(json!({"alg": "ML-DSA-44"})), &[]);
        check(key(json!({"use": "enc"})), &[]);
        check(key(json!({"key_ops": ["sign"]})), &[]);
        check(key(json!({"kid": null})), &[]);
        check(key(json!({"kid": ""})), &[]);
        check(key(json!({"crv": "X25519"})), &[]);
        check(key(json!({"kty": "EC", "crv": "P-256", "y": "AAAA"})), &[Algorithm::ES256]);
        check(key(json!({"kty": "EC", "crv": "P-521", "y": "AAAA"})), &[]);
        check(key(json!({"kty": "RSA", "n": "AAAA", "e": "AQAB"})), &[Algorithm::RS256]);
        check(key(json!({"kty": "RSA", "n": "AAAA", "e": "AQAB", "alg": "RS512"})), &[]);
        check(key(json!({"kty": "oct", "k": "AAAA", "alg": "HS256"})), &[]);
        check(key(json!({"kty": "new"})), &[]);
    }

    #[test]
    fn an_issuer_can_withdraw_all_keys() {
        let check = |text: &str| assert_eq!(KeySet::read(text).map(|keys| keys.len()), Ok(0), "{text}");
        check(r#"{"keys": []}"#);
        check(r#"{"keys": [1, null, "x"]}"#);
    }

    #[test]
    fn what_is_no_set_of_keys_is_refused() {
        let check = |text: &str, expected: &str| {
            assert_eq!(KeySet::read(text).map(|keys| keys.len()), Err(expected.to_owned()), "{text}")
        };
        check(
            "<html>",
            "it is not JSON, or an object in it has a field twice: correct the JWKS, or check its address",
        );
        check("{}", "the field `keys` is missing or is not a list: correct the JWKS, or check its address");
        check(
            r#"{"keys": {}}"#,
            "the field `keys` is missing or is not a list: correct the JWKS, or check its address",
        );
        check(
            &json!({"keys": vec![json!({}); MAX_KEYS + 1]}).to_string(),
            "it has more than 100 keys: remove those that are not used any more",
        );
        check(
            r#"{"keys": [], "keys": []}"#,
            "it is not JSON, or an object in it has a field twice: correct the JWKS, or check its address",
        );
    }
}
