//! Reads the names in the certificate that a client presents. `chat::clients` compares them with the names in the
//! configuration, to find the client.

use std::fmt;

use rustls::pki_types::{CertificateDer, DnsName};
use webpki::EndEntityCert;

/// A name of the holder of a certificate: a URI, such as a SPIFFE id, or a DNS name, of the subject's alternative
/// names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateName {
    /// A URI, compared byte by byte.
    Uri(String),
    /// A DNS name, in lower case.
    Dns(String),
}

/// The error if a text of the configuration is not a name that a certificate can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateNameError;

impl fmt::Display for CertificateNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the value is neither a URI nor a DNS name without a wildcard: write an alternative name of the \
            certificate's subject, such as \"spiffe://example.org/agent\" or \"agent.example.org\"",
        )
    }
}

impl std::error::Error for CertificateNameError {}

impl CertificateName {
    /// Reads a name as the configuration writes it.
    ///
    /// # Errors
    /// If it is neither a URI nor a DNS name.
    pub fn read(text: &str) -> Result<Self, CertificateNameError> {
        // A URI begins with its scheme and a colon, and a DNS name has no colon.
        match text.split_once(':') {
            Some((scheme, rest)) => {
                let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
                let is_uri = is_scheme && !rest.is_empty() && rest.chars().all(|c| c.is_ascii_graphic());
                is_uri.then(|| Self::Uri(text.to_owned())).ok_or(CertificateNameError)
            }
            None => {
                DnsName::try_from(text).map_err(|_| CertificateNameError)?;
                Ok(Self::Dns(text.to_ascii_lowercase()))
            }
        }
    }
}

/// The names in the certificate that a client has presented. The handshake has verified the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    names: Vec<CertificateName>,
}

impl ClientCertificate {
    /// Reads the names of a certificate. A certificate that cannot be parsed has none.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(read) = EndEntityCert::try_from(certificate) else { return Self { names: Vec::new() } };
        let uris = read.valid_uri_names().map(|uri| CertificateName::Uri(uri.to_owned()));
        let hosts = read.valid_dns_names().map(|host| CertificateName::Dns(host.to_ascii_lowercase()));
        Self { names: uris.chain(hosts).collect() }
    }

    /// Returns whether the certificate has a name.
    pub(crate) fn is_of(&self, name: &CertificateName) -> bool {
        self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn names_are_uris_or_hosts() {
        let check = |text: &str, expected: Option<CertificateName>| {
            assert_eq!(CertificateName::read(text).ok(), expected, "{text}");
        };
        let uri = |text: &str| Some(CertificateName::Uri(text.to_owned()));
        check("spiffe://example.org/agent", uri("spiffe://example.org/agent"));
        check("urn:agent:1", uri("urn:agent:1"));
        check("Agent.Example.org", Some(CertificateName::Dns("agent.example.org".to_owned())));
        for text in ["", "*.example.org", "agent example", "CN=agent", "://x", "a b://x", "urn:", "urn:a b"] {
            check(text, None);
        }
    }

    #[test]
    fn the_names_of_a_certificate_are_read() {
        let names =
            ["agent.example.org", "*.example.org"].map(|name| SanType::DnsName(name.try_into().unwrap()));
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.subject_alt_names.push(SanType::URI("spiffe://example.org/Agent".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = ClientCertificate::of(certificate.der());
        let check = |name: &str, expected: bool| {
            assert_eq!(certificate.is_of(&CertificateName::read(name).unwrap()), expected, "{name}");
        };
        check("AGENT.example.org", true);
        check("spiffe://example.org/Agent", true);
        check("spiffe://example.org/agent", false);
        // A wildcard denotes no name.
        check("other.example.org", false);
        check("example.org", false);
        assert_eq!(
            ClientCertificate::of(&CertificateDer::from(vec![0x30, 0])),
            ClientCertificate { names: vec![] }
        );
    }
}
