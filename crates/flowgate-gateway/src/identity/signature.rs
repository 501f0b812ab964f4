//! Verifies the signatures of tokens with the crate ring, which rustls uses as well. The crate `jsonwebtoken` parses
//! tokens and leaves the cryptography to this provider; `token` installs it.
//!
//! The provider cannot sign, and has no algorithm with a shared secret (HMAC): otherwise a forged token could make the
//! gateway use a public key as the secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error as TokenError, ErrorKind};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// The provider that `jsonwebtoken` uses in this process.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

/// Lets `jsonwebtoken` verify signatures with ring. Has no effect if `jsonwebtoken` has a provider already: this one,
/// from an earlier call, or that of a program that embeds the gateway.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

/// Returns the error for signing, and for algorithms by which no signature is verified here.
fn unsupported() -> TokenError {
    ErrorKind::UnsupportedAlgorithm.into()
}

/// Refuses to sign: the gateway only verifies tokens.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, TokenError> {
    Err(unsupported())
}

/// Returns the verifier of an algorithm with a key.
///
/// # Errors
/// If the algorithm is symmetric, or the key belongs to another family of algorithms.
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, TokenError> {
    let method = SignatureMethod::of(*algorithm).ok_or_else(unsupported)?;
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, method, key: key.clone() }))
}

/// The parameters with which ring verifies a signature of one algorithm.
enum SignatureMethod {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

impl SignatureMethod {
    /// Returns the method of an asymmetric algorithm; `None` for others.
    fn of(algorithm: Algorithm) -> Option<Self> {
        Some(match algorithm {
            Algorithm::RS256 => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Curve(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Self::Curve(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Self::Curve(&signature::ED25519),
            _ => return None,
        })
    }
}

/// A public key, and the algorithm that it is used with.
struct RingVerifier {
    algorithm: Algorithm,
    method: SignatureMethod,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    /// Verifies the signature of a message. The error has no cause: a signature that does not fit and a key of another
    /// kind are refused alike.
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let verified = match (&self.method, self.key.kind()) {
            (SignatureMethod::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            // `jsonwebtoken` has no kind for keys of elliptic curves: it keeps their point in this one.
            (SignatureMethod::Curve(method), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*method, point).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
