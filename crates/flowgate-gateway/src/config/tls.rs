//! Reads the section `[tls]`: the files of the gateway's certificate and key, and the authorities that issue the
//! certificates of clients. `config` calls it. Also compares the certificate with the gateway's own addresses in the
//! configuration ([`GatewayConfig::certificate_notes`]).

use super::file::TlsTable;
use super::{ConfigReader, GatewayConfig};
use crate::tls::files::{TlsFiles, TlsSettings};

impl ConfigReader<'_> {
    /// Loads the files that the section `[tls]` names, relative to the configuration's folder.
    ///
    /// # Errors
    /// The first file that cannot be used. The message begins with a dot and the name of the setting, before which the
    /// caller writes the name of the section.
    pub(super) fn tls(&self, table: TlsTable) -> Result<TlsSettings, String> {
        let TlsTable { certificate, key, client_ca } = table;
        let files = TlsFiles {
            certificate: self.folder.join(certificate),
            key: self.folder.join(key),
            client_ca: client_ca.map(|file| self.folder.join(file)),
        };
        files.load().map_err(|error| format!(".{error}"))
    }
}

impl GatewayConfig {
    /// Compares the certificate with the addresses by which, as the configuration says, browsers reach the gateway
    /// (`approvals.page` and `login.oidc.redirect`). Returns a note for each host that the certificate is not for. This
    /// can be intended: a proxy in front of the gateway may have the certificate for the host.
    pub fn certificate_notes(&self) -> Vec<String> {
        let Some(tls) = &self.tls else { return Vec::new() };
        let page = self.webhook.iter().filter_map(|webhook| webhook.page.as_deref());
        let page = page.map(|url| ("approvals.page", url));
        let redirect = self.login.iter().map(|login| ("login.oidc.redirect", login.redirect.as_str()));
        let mut notes = Vec::new();
        for (setting, url) in page.chain(redirect) {
            // Only an address with https:// needs a certificate.
            let Some(url) = url::Url::parse(url).ok().filter(|url| url.scheme() == "https") else { continue };
            let Some(host) = url.host_str() else { continue };
            // An IPv6 address has brackets in a URL, and none in a certificate.
            let host = host.trim_matches(['[', ']']);
            if !tls.is_for_host(host) {
                notes.push(format!(
                    "tls.certificate: {} is not for {host}, the host of `{setting}`: unless a proxy in front of the gateway has a certificate for it, \
                     browsers refuse the connection; use a certificate for this host",
                    tls.files.certificate.display()
                ));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use crate::config::read;

    /// A folder with a policy, and with the files of a certificate.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flowgate-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.flow"), "lattice integrity: trusted < untrusted\n").unwrap();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["gateway".to_owned()]).unwrap();
        std::fs::write(folder.join("gateway.pem"), cert.pem()).unwrap();
        std::fs::write(folder.join("gateway.key"), signing_key.serialize_pem()).unwrap();
        folder
    }

    fn error_of(folder: &Path, tls: &str) -> String {
        let text = format!(
            "[upstreams.local]\nurl = \"http://localhost:8080/v1\"\n\
             [clients.a]\nkey-from = \"KEY\"\nupstream = \"local\"\npolicy = \"p.flow\"\n[tls]\n{tls}"
        );
        let read = read(&text, folder, &|_| Some("0123456789abcdef".to_owned()));
        read.map_or_else(
            |error| error.to_string().replace(&folder.display().to_string(), "DIR"),
            |_| String::new(),
        )
    }

    #[test]
    fn problems_of_certificates_are_named() {
        let folder = folder("tls");
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let certificate = std::fs::read_to_string(folder.join("gateway.pem")).unwrap();
        let key = std::fs::read_to_string(folder.join("gateway.key")).unwrap();
        let CertifiedKey { signing_key, .. } = generate_simple_self_signed(["gateway".to_owned()]).unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        write("both.pem", &(certificate.clone() + &key));
        write("chain.pem", &(certificate + broken));
        write("other.key", &signing_key.serialize_pem());
        write("two.key", &(key.clone() + &key));
        write("locked.key", &key.replace("PRIVATE", "ENCRYPTED PRIVATE"));
        write("broken.key", "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n");
        write("cut.key", "-----BEGIN PRIVATE KEY-----\nMAA=\n");
        let check = |certificate: &str, key: &str, expected: &str| {
            let mut tls = String::new();
            for (name, file) in [("certificate", certificate), ("key", key)] {
                if !file.is_empty() {
                    writeln!(tls, "{name} = \"{file}\"").unwrap();
                }
            }
            assert_eq!(error_of(&folder, &tls), expected, "{tls}");
        };
        check("gateway.pem", "gateway.key", "");
        check("both.pem", "both.pem", "");
        check("gateway.pem", "", "line 7: missing field `key`");
        check("", "gateway.key", "line 7: missing field `certificate`");
        let missing =
            "there is no file of this name; relative paths begin at the folder of the configuration";
        check("none.pem", "gateway.key", &format!("tls.certificate: DIR/none.pem: {missing}"));
        check("gateway.pem", "none.key", &format!("tls.key: DIR/none.key: {missing}"));
        check(
            "gateway.key",
            "gateway.key",
            "tls.certificate: DIR/gateway.key: the file contains no certificate: name a PEM file, in which a certificate begins \
            with `-----BEGIN CERTIFICATE-----`",
        );
        check(
            "chain.pem",
            "gateway.key",
            "tls.certificate: DIR/chain.pem: certificate 2 of the file cannot be parsed; replace it",
        );
        check(
            "gateway.pem",
            "gateway.pem",
            "tls.key: DIR/gateway.pem: the file contains no private key: name a PEM file, in which a key begins with \
            `-----BEGIN PRIVATE KEY-----`",
        );
        check(
            "gateway.pem",
            "other.key",
            "tls.key: DIR/other.key: the key does not belong to the first certificate of DIR/gateway.pem: name the key of that certificate, and begin its file with the certificate of the gateway",
        );
        check(
            "gateway.pem",
            "two.key",
            "tls.key: DIR/two.key: the file contains more than one private key: leave only that of the \
            certificate",
        );
        check(
            "gateway.pem",
            "locked.key",
            "tls.key: DIR/locked.key: the key is encrypted: write it without a passphrase, by `openssl pkey -in DIR/locked.key`",
        );
        let unreadable =
            "the private key cannot be parsed: use an RSA, ECDSA (P-256 or P-384) or Ed25519 key";
        check("gateway.pem", "broken.key", &format!("tls.key: DIR/broken.key: {unreadable}"));
        check("gateway.pem", "cut.key", &format!("tls.key: DIR/cut.key: {unreadable}"));
    }

    #[test]
    fn problems_of_certificates_of_clients_are_named() {
        let folder = folder("client-ca");
        std::fs::write(folder.join("empty.pem"), "").unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        std::fs::write(folder.join("broken.pem"), broken).unwrap();
        let tls = "certificate = \"gateway.pem\"\nkey = \"gateway.key\"\n";
        let check = |client_ca: &str, client: &str, expected: &str| {
            let client_ca =
                if client_ca.is_empty() { String::new() } else { format!("client-ca = \"{client_ca}\"\n") };
            let more =
                format!("{tls}{client_ca}[clients.b]\nupstream = \"local\"\npolicy = \"p.flow\"\n{client}");
            assert_eq!(error_of(&folder, &more), expected, "{more}");
        };
        let named = "certificate = \"spiffe://example.org/b\"\n";
        check("gateway.pem", named, "");
        check("gateway.pem", "certificate = \"b.example.org\"\n", "");
        check(
            "gateway.pem",
            "",
            "clients.b: the section does not say how the client authenticates itself: write key-from = \"VARIABLE\" or key-file = \"FILE\", a `certificate` with client-ca in [tls], or a section `token` with an issuer",
        );
        check(
            "",
            named,
            "clients.b: certificate: clients can present certificates only with `client-ca`: write client-ca \
            = \"FILE\" in [tls]",
        );
        check(
            "gateway.pem",
            "certificate = \"CN=b\"\n",
            "clients.b: certificate: the value is neither a URI nor a DNS name without a wildcard: write an \
            alternative name of the certificate's subject, such as \"spiffe://example.org/agent\" or \
            \"agent.example.org\"",
        );
        let twice = format!("{named}[clients.c]\nupstream = \"local\"\npolicy = \"p.flow\"\n{named}");
        check(
            "gateway.pem",
            &twice,
            "clients.c: the certificate is also that of b: give each client its own certificate",
        );
        check(
            "none.pem",
            named,
            "tls.client-ca: DIR/none.pem: there is no file of this name; relative paths begin at the folder \
            of the configuration",
        );
        check(
            "empty.pem",
            named,
            "tls.client-ca: DIR/empty.pem: the file contains no certificate: name a PEM file, in which a certificate begins \
            with `-----BEGIN CERTIFICATE-----`",
        );
        check(
            "broken.pem",
            named,
            "tls.client-ca: DIR/broken.pem: certificate 1 of the file cannot be parsed; replace it",
        );
    }

    /// Clients refuse a certificate outside of its validity, so the operator learns of its end in time.
    #[test]
    fn a_certificate_that_expires_is_reported() {
        use std::time::{Duration, SystemTime};
        let folder = folder("expiry");
        let mut parameters = rcgen::CertificateParams::new(["gateway".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2026, 3, 1);
        parameters.not_after = rcgen::date_time_ymd(2026, 6, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(folder.join("gateway.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(folder.join("gateway.key"), key.serialize_pem()).unwrap();
        let files = crate::tls::files::TlsFiles {
            certificate: folder.join("gateway.pem"),
            key: folder.join("gateway.key"),
            client_ca: None,
        };
        let settings = files.load().unwrap();
        // Noon of 1 March 2026, in days since 1970.
        let check = |days: u64, expected: &str| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs((20_513 + days) * 86_400 + 43_200);
            let warning = settings.validity_warning(now).unwrap_or_default();
            let warning = warning.replace(&folder.display().to_string(), "DIR");
            assert!(
                warning == expected || (!expected.is_empty() && warning.starts_with(expected)),
                "{days}: {warning}"
            );
        };
        check(0, "");
        check(77, "");
        check(78, "certificate: DIR/gateway.pem expires in 13 days: replace it");
        check(91, "certificate: DIR/gateway.pem expires in 0 days: replace it");
        check(92, "certificate: DIR/gateway.pem expired 0 days ago, so clients refuse the connection");
        check(100, "certificate: DIR/gateway.pem expired 8 days ago");
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(20_512 * 86_400);
        assert!(settings.validity_warning(before).unwrap().contains("is not valid yet"));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_all_can_read_is_reported() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder("open-key");
        let key = folder.join("gateway.key");
        for (mode, is_open) in [(0o600, false), (0o640, false), (0o644, true), (0o602, true)] {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
            let files = crate::tls::files::TlsFiles {
                certificate: folder.join("gateway.pem"),
                key: key.clone(),
                client_ca: None,
            };
            let warning = files.load().unwrap().warning();
            let path = key.display();
            let expected =
                format!("key: all users of this machine can read or write {path}: run `chmod o= {path}`");
            assert_eq!(warning, is_open.then_some(expected), "{mode:o}");
        }
    }
}
