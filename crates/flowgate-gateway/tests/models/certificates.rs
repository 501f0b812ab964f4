//! Creates certificates for tests, and clients that use them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct TestCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A certificate authority.
pub(crate) struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    certificate: CertificateDer<'static>,
}

impl TestAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (pem, certificate) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, certificate }
    }

    /// Issues a certificate for these names.
    pub(crate) fn issue(&self, names: &[SanType], usage: ExtendedKeyUsagePurpose) -> TestCertificate {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        TestCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Issues a certificate for a gateway on this machine.
    pub(crate) fn issue_for_gateway(&self) -> TestCertificate {
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        self.issue(&[address], ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Returns the settings of a client that trusts this authority, offers these protocols, and presents this
    /// certificate.
    pub(crate) fn client(&self, protocols: &[&str], shown: Option<&TestCertificate>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let certificate = CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

impl TestCertificate {
    /// Writes the certificate and the key where the `[tls]` of [`TLS`] names them.
    pub(crate) fn write_to(&self, folder: &Path) {
        std::fs::write(folder.join("gateway.pem"), &self.certificate).unwrap();
        let key = folder.join("gateway.key");
        std::fs::write(&key, &self.key).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// The section of the configuration for the files of [`TestCertificate::write_to`].
pub(crate) const TLS: &str = "[tls]\ncertificate = \"gateway.pem\"\nkey = \"gateway.key\"\n";

/// Runs a client.
pub(crate) fn run<T>(client: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(client)
}

/// Connects to the gateway by TLS.
pub(crate) async fn connect(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream).await
}

/// Returns a client of HTTP with these settings.
pub(crate) fn http_client(config: ClientConfig) -> reqwest::Client {
    reqwest::Client::builder().tls_backend_preconfigured(config).no_proxy().build().unwrap()
}
