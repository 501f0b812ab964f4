//! Builds the TLS settings of the HTTP clients that send heads of the audit log to witnesses (`witness`) and spans to a
//! collector (`telemetry`). They trust the configured authorities or, if none are configured, the default ones.

use flowgate_lm::remote::Authorities;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Returns TLS settings that trust only these authorities or, if none are configured, the default ones.
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
