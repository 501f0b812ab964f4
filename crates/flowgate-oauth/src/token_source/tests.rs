use serde_json::json;
use ureq::tls::TlsConfig;

use super::*;
use crate::client_credentials::ClientSecret;
use crate::issuer_double::{Deviation, IssuerDouble, parsed};

/// Returns a source of tokens for the server of `double`, by client credentials with `secret` at `issuer`.
fn source(double: &IssuerDouble, issuer: &str, secret: &str) -> TokenSource {
    let credentials = ClientCredentials {
        issuer: SecureUrl::parse(issuer).unwrap(),
        client_id: "agent".to_owned(),
        client_secret: ClientSecret::new(secret),
        scopes: vec!["read".to_owned(), "write".to_owned()],
    };
    TokenSource::with_client_credentials(credentials, double.server(), crate::agent(TlsConfig::default()))
}

#[tokio::test]
async fn tokens_by_client_credentials_are_kept_and_renewed() {
    let double = IssuerDouble::new();
    let source = source(&double, &double.url, "s3cret");
    let first = source.token().await.unwrap();
    assert_eq!(source.token().await, Ok(first.clone()));
    let asked = double.requests("POST /token").concat();
    let asked = parsed(asked.rsplit(' ').next().unwrap());
    assert_eq!(
        (asked["resource"].as_str(), asked["scope"].as_str()),
        (double.server().as_str(), "read write")
    );
    // All requests whose token was rejected share one other token.
    let second = source.token_after(&first).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(source.token_after(&first).await, Ok(second.clone()));
    assert_eq!(double.requests("POST /token").len(), 2);
    // A token that is about to expire is replaced before it is sent.
    double.deviation.lock().unwrap().expires_in = Some(0);
    let third = source.token_after(&second).await.unwrap();
    assert_ne!(source.token().await, Ok(third));
    assert_eq!(double.requests("POST /token").len(), 4);
    let shown = format!("{source:?}");
    assert!(!shown.contains("s3cret") && !shown.contains("access-"), "{shown}");
}

#[tokio::test]
async fn an_issuer_that_gives_no_token_is_named_without_the_secret() {
    let large = "a".repeat(300 << 10);
    let rows: [(&str, Deviation, TokenFailure); 9] = [
        ("wrong", Deviation::default(), TokenFailure::Refused(400, "invalid_client".to_owned())),
        (
            "s3cret",
            Deviation { metadata: json!({"issuer": "https://other.example"}), ..Deviation::default() },
            TokenFailure::NoMetadata,
        ),
        (
            "s3cret",
            Deviation { metadata: json!({"issuer": null}), ..Deviation::default() },
            TokenFailure::NoMetadata,
        ),
        (
            "s3cret",
            Deviation { metadata: json!({"extra": large}), ..Deviation::default() },
            TokenFailure::TooLarge(256 << 10),
        ),
        (
            "s3cret",
            Deviation {
                metadata: json!({"token_endpoint": "http://other.example/token"}),
                ..Deviation::default()
            },
            TokenFailure::Insecure,
        ),
        (
            "s3cret",
            Deviation {
                metadata: json!({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}),
                ..Deviation::default()
            },
            TokenFailure::NoMethod,
        ),
        (
            "s3cret",
            Deviation {
                token_answer: Some(("302 x\r\nlocation: http://127.0.0.1:1/".to_owned(), String::new())),
                ..Deviation::default()
            },
            TokenFailure::Status(302),
        ),
        (
            "s3cret",
            Deviation {
                token_answer: Some(("200 OK".to_owned(), "s3cret".to_owned())),
                ..Deviation::default()
            },
            TokenFailure::Unusable,
        ),
        (
            "s3cret",
            Deviation {
                token_answer: Some((
                    "401 x".to_owned(),
                    r#"{"error": "the secret s3cret is wrong", "error_description": "s3cret"}"#.to_owned(),
                )),
                ..Deviation::default()
            },
            TokenFailure::Status(401),
        ),
    ];
    for (secret, deviation, expected) in rows {
        let double = IssuerDouble::new();
        *double.deviation.lock().unwrap() = deviation;
        let error = source(&double, &double.url, secret).token().await.unwrap_err();
        assert_eq!(error.failure(), &expected);
        let shown = error.to_string();
        assert!(
            shown.contains(&double.url) && !shown.contains("s3cret") && !shown.contains("other.example"),
            "{shown}"
        );
        assert!(!shown.contains("wrong"), "{shown}");
    }
    let double = IssuerDouble::new();
    let elsewhere =
        source(&double, &format!("{}/elsewhere", double.url), "s3cret").token().await.unwrap_err();
    assert_eq!(elsewhere.failure(), &TokenFailure::NoMetadata);
    let gone = source(&double, "http://127.0.0.1:1", "s3cret").token().await.unwrap_err();
    assert_eq!(gone.failure(), &TokenFailure::Unreachable);
}

/// What the server says about its issuer is ignored: the credentials go to the configured issuer only.
#[tokio::test]
async fn a_server_does_not_choose_who_receives_the_secret() {
    let (server, issuer) = (IssuerDouble::new(), IssuerDouble::new());
    source(&server, &issuer.url, "s3cret").token().await.unwrap();
    assert_eq!((server.requests("").len(), issuer.requests("POST /token").len()), (0, 1));
}

/// Callers that wait for an attempt that fails do not try again one after the other.
#[tokio::test]
async fn waiting_callers_share_a_failure() {
    let double = IssuerDouble::new();
    double.deviation.lock().unwrap().token_answer = Some(("500 x".to_owned(), String::new()));
    let source = source(&double, &double.url, "s3cret");
    let (a, b, c) = tokio::join!(source.token(), source.token(), source.token());
    assert_eq!(double.requests("POST /token").len(), 1);
    assert!(a.is_err() && a == b && b == c);
    // A later caller tries again.
    double.deviation.lock().unwrap().token_answer = None;
    assert!(source.token().await.is_ok());
}
