//! Tests of certificates of clients: which handshakes are refused, and which client a certificate identifies.

use flowgate_gateway::limits::ServerLimits;
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use serde_json::json;

use crate::certificates::{TLS, TestAuthority, TestCertificate, http_client, run};
use crate::gateway::{GatewayHome, KEY, LogLines, OTHER_KEY, POLICY, TestGateway};
use crate::issuer::TestKey;
use crate::upstream::{UpstreamDouble, says};

const PROTOCOLS: [&[&str]; 2] = [&["http/1.1"], &["h2"]];
const UNKNOWN_KEY: &str = "the-key-of-no-client";
const PERSON_KEY: &str = "key-of-the-person-ANN";

/// A gateway that asks for certificates, with a client for each way of authentication: `agent` has a key, `other` has a
/// key and a certificate, `named` and `host` have certificates, `tokened` has a certificate and takes tokens.
struct MutualTlsGateway {
    servers: TestAuthority,
    clients: TestAuthority,
    home: GatewayHome,
    gateway: TestGateway,
    log: LogLines,
    upstream: UpstreamDouble,
}

impl MutualTlsGateway {
    fn start() -> Self {
        let upstream = UpstreamDouble::new(|_| says("Hello yourself."));
        let client = |name: &str, more: &str| {
            format!("[clients.{name}]\nupstream = \"double\"\npolicy = \"policy.flow\"\n{more}\n")
        };
        let text = format!(
            "{TLS}client-ca = \"clients.pem\"\n\
             [upstreams.double]\nurl = \"{}\"\nmodels = [\"double\"]\nkey-from = \"UPSTREAM\"\n\
             [upstreams.passing]\nurl = \"{}\"\nmodels = [\"double\"]\npass-key = true\n\
             [issuers.corp]\nissuer = \"https://login.example\"\njwks-file = \"keys.json\"\n{}{}{}{}{}\
             [people.ann]\nkey-from = \"ANN\"\nrole = \"viewer\"\n\
             [people.bob]\nkey-from = \"BOB\"\nrole = \"admin\"\n",
            upstream.url,
            upstream.url,
            client("agent", "key-from = \"KEY\""),
            client("other", "key-from = \"OTHER\"\ncertificate = \"spiffe://example.org/other\""),
            client("named", "certificate = \"spiffe://example.org/named\""),
            client("host", "certificate = \"Host.example.org\"").replace("double", "passing"),
            client(
                "tokened",
                "certificate = \"spiffe://example.org/tokened\"\n\
                 [clients.tokened.token]\nissuer = \"corp\"\naudience = \"flowgate\"",
            ),
        );
        let home = GatewayHome::new(&text, POLICY);
        let keys = json!({"keys": [TestKey::ed("first").jwk()]}).to_string();
        std::fs::write(home.folder().join("keys.json"), keys).unwrap();
        let (servers, clients) = (TestAuthority::new(), TestAuthority::new());
        servers.issue_for_gateway().write_to(home.folder());
        std::fs::write(home.folder().join("clients.pem"), &clients.pem).unwrap();
        let (gateway, log) = home.start_within(ServerLimits::default());
        Self { servers, clients, home, gateway, log, upstream }
    }

    /// Sends a request with these headers on a new connection; returns the status and the body of the answer.
    fn asks(
        &self,
        protocols: &[&str],
        shown: Option<&TestCertificate>,
        headers: &[(&str, &str)],
    ) -> Result<(u16, String), reqwest::Error> {
        let client = http_client(self.servers.client(protocols, shown));
        let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
        let url = format!("https://{}/v1/chat/completions", self.gateway.address);
        let request = client.post(url).header("content-type", "application/json").body(body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        run(async {
            let answer = request.send().await?;
            Ok((answer.status().as_u16(), answer.text().await?))
        })
    }
}

fn uri(name: &str) -> SanType {
    SanType::URI(format!("spiffe://example.org/{name}").try_into().unwrap())
}

fn for_client(authority: &TestAuthority, names: &[SanType]) -> TestCertificate {
    authority.issue(names, ExtendedKeyUsagePurpose::ClientAuth)
}

/// Returns the value of `Authorization` with a token of an issuer.
fn bearer_of(issuer: &str) -> String {
    format!("Bearer {}", TestKey::ed("first").sign(&json!({"iss": issuer, "sub": "a", "aud": "flowgate"})))
}

/// No request is read of a client without a valid certificate, whatever its key.
#[test]
fn a_handshake_needs_a_certificate_of_the_authority() {
    let mut server = MutualTlsGateway::start();
    let key = ("x-api-key", KEY);
    let of_server = server.clients.issue(&[uri("named")], ExtendedKeyUsagePurpose::ServerAuth);
    let of_others = for_client(&TestAuthority::new(), &[uri("named")]);
    let of_gateways = for_client(&server.servers, &[uri("named")]);
    for protocols in PROTOCOLS {
        for (shown, reason) in [
            (
                None,
                "a client presented no certificate: give it one that the authority `client-ca` in [tls] signed",
            ),
            (
                Some(&of_server),
                "the certificate of a client is not valid for TLS clients: issue one with the extended key usage \
                 clientAuth",
            ),
            (
                Some(&of_others),
                "the certificate of a client was not signed by the authority `client-ca` in [tls]: give it \
                 one that this authority signed",
            ),
            (
                Some(&of_gateways),
                "the certificate of a client was not signed by the authority `client-ca` in [tls]: give it \
                 one that this authority signed",
            ),
        ] {
            assert!(server.asks(protocols, shown, &[key]).is_err(), "{reason}");
            assert_eq!(server.log.next("refused")["message"], reason);
        }
        let valid = for_client(&server.clients, &[uri("unknown")]);
        assert_eq!(server.asks(protocols, Some(&valid), &[key]).unwrap().0, 200);
    }
    assert_eq!(server.upstream.keys().len(), 2);
}

/// The certificate, the headers, the status, and a part of the answer.
#[test]
fn a_certificate_is_that_of_a_client() {
    let server = MutualTlsGateway::start();
    let certificate = |names: &[SanType]| for_client(&server.clients, names);
    let host = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let (agent, other, named) =
        (certificate(&[uri("agent")]), certificate(&[uri("other")]), certificate(&[uri("named")]));
    let tokened = certificate(&[uri("tokened")]);
    // Of an issuer that the configuration does not have.
    let foreign = bearer_of("https://other.example");
    let hosted = certificate(&[host("host.EXAMPLE.org"), uri("unknown")]);
    let (wildcard, two) = (certificate(&[host("*.example.org")]), certificate(&[uri("other"), uri("named")]));
    let bearer = |key: &str| format!("Bearer {key}");
    let (own, others, unknown) = (bearer(KEY), bearer(OTHER_KEY), bearer(UNKNOWN_KEY));
    type Row<'r> = (&'r TestCertificate, &'r [(&'r str, &'r str)], u16, &'r str);
    let rows: &[Row<'_>] = &[
        // A client with a key needs any certificate of the authority.
        (&agent, &[("authorization", &own)], 200, "Hello yourself."),
        (&wildcard, &[("authorization", &own)], 200, "Hello yourself."),
        (&agent, &[("authorization", &unknown)], 401, "no client of this gateway has this key"),
        (&agent, &[], 401, "no client of this gateway has this certificate"),
        (&wildcard, &[], 401, "no client of this gateway has this certificate"),
        // A client with both needs both.
        (&other, &[("authorization", &others)], 200, "Hello yourself."),
        (&agent, &[("authorization", &others)], 401, "connect with it"),
        (&other, &[], 401, "send it"),
        (&other, &[("authorization", &unknown)], 401, "no client of this gateway has this key"),
        // The certificate of one client is of no use with the key of another one.
        (&other, &[("authorization", &own)], 401, "belong to different clients"),
        (&named, &[("authorization", &own)], 401, "belong to different clients"),
        (&named, &[("authorization", &others)], 401, "belong to different clients"),
        // A client with a certificate alone; programs of the providers send some key nevertheless.
        (&named, &[], 200, "Hello yourself."),
        (&named, &[("authorization", &unknown)], 200, "Hello yourself."),
        (&named, &[("x-flowgate-key", UNKNOWN_KEY)], 401, "no client of this gateway has this key"),
        (&two, &[], 401, "more than one client"),
        // A client that takes tokens needs one in addition to its certificate, of its issuer.
        (&tokened, &[], 401, "must send its key or token in addition to its certificate"),
        (&tokened, &[("authorization", &unknown)], 401, "no client of this gateway has this key"),
        (&tokened, &[("authorization", &foreign)], 401, "the token is not accepted"),
        // Its key is that of the provider.
        (&hosted, &[("authorization", "Bearer sk-the-providers")], 200, "Hello yourself."),
        (&hosted, &[], 401, "the request has no key for the model provider"),
    ];
    for protocols in PROTOCOLS {
        for (shown, headers, status, text) in rows {
            let (got, answer) = server.asks(protocols, Some(shown), headers).unwrap();
            assert!(got == *status && answer.contains(text), "{headers:?} {text}: {got} {answer}");
        }
    }
    let keys = server.upstream.keys();
    let known = ["Bearer key-of-the-upstream", "Bearer sk-the-providers"];
    assert!(keys.iter().all(|key| known.contains(&key.as_str())), "{keys:?}");
}

/// A virtual key takes the place of the key of its client; a certificate that its client must present, it must present as
/// well.
#[test]
fn a_virtual_key_needs_the_certificate_of_its_client() {
    let server = MutualTlsGateway::start();
    let certificate = |name: &str| for_client(&server.clients, &[uri(name)]);
    let (agent, other, named) = (certificate("agent"), certificate("other"), certificate("named"));
    let make = |client: &str| {
        let http = http_client(server.servers.client(&["http/1.1"], Some(&agent)));
        let request = http
            .post(format!("https://{}/api/v1/keys", server.gateway.address))
            .bearer_auth("key-of-the-person-BOB")
            .header("content-type", "application/json")
            .body(json!({"client": client, "name": "ci"}).to_string());
        let answer = run(async { request.send().await.unwrap().text().await.unwrap() });
        serde_json::from_str::<serde_json::Value>(&answer).unwrap()["key"].as_str().unwrap().to_owned()
    };
    let [of_agent, of_other, of_named] = ["agent", "other", "named"].map(make);
    let unknown = format!("fgk-{}", "0".repeat(64));
    for (shown, key, status, text) in [
        (&agent, &of_agent, 200, "Hello yourself."),
        (&other, &of_agent, 401, "belong to different clients"),
        (&named, &of_agent, 401, "belong to different clients"),
        (&other, &of_other, 200, "Hello yourself."),
        (&agent, &of_other, 401, "must connect with its certificate"),
        (&named, &of_other, 401, "belong to different clients"),
        (&named, &of_named, 200, "Hello yourself."),
        (&agent, &of_named, 401, "must connect with its certificate"),
        // A key that was revoked is not ignored as the key of a provider.
        (&named, &unknown, 401, "the key is not valid"),
    ] {
        for headers in [("authorization", format!("Bearer {key}")), ("x-flowgate-key", key.clone())] {
            let (got, answer) = server.asks(&["http/1.1"], Some(shown), &[(headers.0, &headers.1)]).unwrap();
            assert!(got == status && answer.contains(text), "{} {text}: {got} {answer}", headers.0);
        }
    }
}

/// People have keys; the handshake needs a certificate of them as well.
#[test]
fn people_present_certificates_too() {
    let server = MutualTlsGateway::start();
    let shown = for_client(&server.clients, &[uri("ann")]);
    let url = format!("https://{}/api/v1/approvals", server.gateway.address);
    let ask = |shown: Option<&TestCertificate>| {
        let client = http_client(server.servers.client(&["h2"], shown));
        run(client.get(&url).bearer_auth(PERSON_KEY).send()).map(|answer| answer.status().as_u16())
    };
    assert_eq!(ask(Some(&shown)).unwrap(), 200);
    assert!(ask(None).is_err());
}

/// A changed authority holds from the next handshake on: sessions of earlier ones are not resumed.
#[test]
fn the_authority_is_replaced_while_the_gateway_runs() {
    let mut server = MutualTlsGateway::start();
    let earlier = for_client(&server.clients, &[uri("named")]);
    let settings = server.servers.client(&["http/1.1"], Some(&earlier));
    let url = format!("https://{}/health", server.gateway.address);
    // The clones of the settings share their store of sessions.
    let health = |settings: &rustls::ClientConfig| run(http_client(settings.clone()).get(&url).send());
    assert_eq!(health(&settings).unwrap().status(), 200);
    let other = TestAuthority::new();
    std::fs::write(server.home.folder().join("clients.pem"), "no certificate").unwrap();
    assert_eq!(health(&settings).unwrap().status(), 200);
    let line = server.log.next("remark");
    assert!(line["message"].as_str().unwrap().starts_with("tls.client-ca: "), "{line}");
    std::fs::write(server.home.folder().join("clients.pem"), &other.pem).unwrap();
    assert!(health(&settings).is_err());
    let later = for_client(&other, &[uri("named")]);
    assert_eq!(health(&server.servers.client(&["http/1.1"], Some(&later))).unwrap().status(), 200);
}
