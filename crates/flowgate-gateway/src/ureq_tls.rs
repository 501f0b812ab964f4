//! Builds the TLS settings for HTTP clients of the crate ureq. They send heads of the audit log to witnesses
//! (`witness`), spans to a collector (`telemetry`) and requests to issuers (`identity`).

use flowgate_lm::remote::Authorities;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Returns TLS settings that trust only the certificates of these authorities or, if none are configured, the default
/// authorities.
pub(crate) fn tls_config(authorities: &Authorities) -> TlsConfig {
    match authorities.certificates() {
        None => TlsConfig::default(),
        Some(certificates) => {
            let read = certificates.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
            let roots: Vec<Certificate<'static>> = read.collect();
            TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build()
        }
    }
}
