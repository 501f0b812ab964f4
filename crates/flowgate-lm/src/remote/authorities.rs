//! Defines [`Authorities`], the certificate authorities that a client trusts for TLS servers: those of a PEM file, or
//! by default Mozilla's list. Three clients use them: that of model servers, the gateway for its connections to MCP
//! servers, issuers, witnesses and collectors, and the command line for its connection to a gateway.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The trusted authorities: Mozilla's list (`None`), or only those of a file. The operating system's authorities are
/// never trusted.
#[derive(Debug, Clone, Default)]
pub struct Authorities(Option<Arc<[CertificateDer<'static>]>>);

/// Why a file of authorities cannot be used. Displays as one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// The file contains no certificate.
    None,
    /// This certificate, counted from 1, cannot be parsed.
    Unreadable(usize),
}

impl fmt::Display for AuthoritiesError {
    /// Writes the problem and what to do, in one line. The caller adds the path of the file, which the error does not
    /// have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(
                "the file contains no certificate; a certificate in PEM begins with `-----BEGIN \
                CERTIFICATE-----`",
            ),
            Self::Unreadable(number) => {
                write!(f, "certificate {number} of the file cannot be parsed; replace it")
            }
        }
    }
}

impl std::error::Error for AuthoritiesError {}

impl Authorities {
    /// Parses the certificates of authorities in PEM. Other items of the file, such as keys, are skipped.
    ///
    /// # Errors
    /// If there is no certificate, or if one cannot be parsed or used as an authority: a certificate is never skipped
    /// silently.
    pub fn read(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        let mut certificates = Vec::new();
        // This store only serves to check that each certificate can be used as an authority.
        let mut roots = RootCertStore::empty();
        for item in CertificateDer::pem_slice_iter(pem) {
            // The error names a certificate by its number in the file, from 1.
            let unreadable = AuthoritiesError::Unreadable(certificates.len() + 1);
            let certificate = item.map_err(|_| unreadable)?;
            roots.add(certificate.clone()).map_err(|_| unreadable)?;
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            Err(AuthoritiesError::None)
        } else {
            Ok(Self(Some(certificates.into())))
        }
    }

    /// Returns the certificates of the file; `None` if Mozilla's list is trusted.
    #[must_use]
    pub fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.0.as_deref()
    }

    /// Returns a TLS configuration that trusts the certificates of the file, or Mozilla's list without a file, and uses
    /// the cryptography of *ring*. It offers no protocol by ALPN: a caller that speaks HTTP/2 adds its protocols.
    ///
    /// # Errors
    /// If rustls rejects the configuration, which is not expected: the authorities were checked when they were read.
    pub fn tls(&self) -> Result<ClientConfig, rustls::Error> {
        let mut roots = RootCertStore::empty();
        match self.certificates() {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(certificates) => {
                for certificate in certificates {
                    roots.add(certificate.clone())?;
                }
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A truncated certificate.
    const BROKEN: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    /// A certificate of a test authority: P-256, valid until 2124.
    const AUTHORITY: &str = include_str!("tests/authority.pem");

    #[test]
    fn certificates_are_read() {
        let check = |pem: &str, expected: Result<usize, &str>| {
            let read = Authorities::read(pem.as_bytes()).map_err(|error| error.to_string());
            let count = read.map(|read| read.0.unwrap().len());
            assert_eq!(
                count.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|text| *text),
                "{pem}"
            );
        };
        check(AUTHORITY, Ok(1));
        check(&format!("Nobody\n{AUTHORITY}\n{AUTHORITY}"), Ok(2));
        let none = "the file contains no certificate; a certificate in PEM begins with `-----BEGIN \
            CERTIFICATE-----`";
        check("", Err(none));
        check("hello", Err(none));
        check("-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n", Err(none));
        check(BROKEN, Err("certificate 1 of the file cannot be parsed; replace it"));
        check(&format!("{AUTHORITY}{BROKEN}"), Err("certificate 2 of the file cannot be parsed; replace it"));
        check(
            &AUTHORITY.replace("-----END", "----"),
            Err("certificate 1 of the file cannot be parsed; replace it"),
        );
    }
}
