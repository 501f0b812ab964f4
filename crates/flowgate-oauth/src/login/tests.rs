use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::json;
use ureq::tls::TlsConfig;

use super::*;
use crate::issuer_double::{Deviation, IssuerDouble, browse, parsed};
use crate::{TokenSource, agent};

/// A folder for the file of a login, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("flowgate-oauth-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn file(&self, double: &IssuerDouble) -> TokenFile {
        TokenFile::of_server(&self.0.join("tokens"), "web", &double.server()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn http() -> ureq::Agent {
    agent(TlsConfig::default())
}

fn settings(double: &IssuerDouble) -> LoginSettings {
    LoginSettings { server: double.server(), issuer: None, client: None, scopes: Vec::new(), port: 0 }
}

/// Logs in with these settings: a browser opens the address. Returns the outcome, and what the browser was shown.
async fn log_in(settings: LoginSettings, file: &TokenFile) -> (Result<(), LoginError>, u16) {
    let login = match Login::begin(settings, http()).await {
        Ok(login) => login,
        Err(error) => return (Err(error), 0),
    };
    let address = login.address().to_owned();
    let browser = tokio::task::spawn_blocking(move || browse(&address));
    let (_sender, pasted) = mpsc::channel(1);
    let ended = login.complete(file, pasted, &|_| {}).await;
    (ended, browser.await.unwrap().0)
}

/// Returns the tokens of a login for requests.
fn source(double: &IssuerDouble, file: &TokenFile) -> TokenSource {
    TokenSource::with_login(file.clone(), None, double.server(), http())
}

/// Returns the header of the next request, or the error.
async fn authorization(source: &TokenSource) -> Result<String, String> {
    source.token().await.map(|token| token.authorization()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_person_logs_in_and_the_tokens_are_refreshed_and_rotated() {
    let (double, folder) = (IssuerDouble::new(), Folder::new("login"));
    let file = folder.file(&double);
    let (ended, page) = log_in(settings(&double), &file).await;
    assert_eq!((ended.map_err(|error| error.to_string()), page), (Ok(()), 200));
    let registration = double.requests("POST /register").concat();
    assert!(registration.contains(r#""redirect_uris":["http://127.0.0.1:"#), "{registration}");
    assert!(registration.contains(r#""scope":"read""#), "the scope of the challenge: {registration}");
    let source = source(&double, &file);
    assert_eq!(authorization(&source).await, Ok("Bearer access-1".to_owned()));
    // A rejected token is refreshed, each time with the newest refresh token, also by another process.
    let rejected = source.token().await.unwrap();
    let other = self::source(&double, &file);
    assert_eq!(source.token_after(&rejected).await.unwrap().authorization(), "Bearer access-2");
    assert_eq!(other.token_after(&rejected).await.unwrap().authorization(), "Bearer access-2");
    let rejected = other.token().await.unwrap();
    assert_eq!(other.token_after(&rejected).await.unwrap().authorization(), "Bearer access-3");
    assert_eq!(authorization(&source).await, Ok("Bearer access-3".to_owned()));
    assert_eq!(double.requests("POST /token").len(), 3);
}

#[tokio::test]
async fn an_expired_token_is_refreshed_until_the_login_ends() {
    let (double, folder) = (IssuerDouble::new(), Folder::new("expired"));
    double.deviation.lock().unwrap().expires_in = Some(0);
    let file = folder.file(&double);
    log_in(settings(&double), &file).await.0.unwrap();
    let source = source(&double, &file);
    assert_eq!(authorization(&source).await, Ok("Bearer access-2".to_owned()));
    double.revoke();
    let ended = format!(
        "the login at {} has expired or was revoked; log in again with `flowgate mcp login`",
        double.url
    );
    assert_eq!(authorization(&source).await, Err(ended));
    // A new login works with the same source.
    double.deviation.lock().unwrap().expires_in = None;
    log_in(settings(&double), &file).await.0.unwrap();
    assert!(authorization(&source).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_deviates_receives_no_code_and_gives_no_tokens() {
    let url = |double: &IssuerDouble, text: &str| text.replace("URL", &double.url);
    let rows: [(Deviation, &str); 13] = [
        (
            Deviation { iss: Some("https://evil.example".to_owned()), ..Deviation::default() },
            "the outcome of the login names an issuer other than URL, so it was not used",
        ),
        (
            Deviation { error: Some("access_denied".to_owned()), ..Deviation::default() },
            "the issuer URL refuses the login with `access_denied`",
        ),
        (
            Deviation { error: Some("\u{1b}[2J".to_owned()), ..Deviation::default() },
            "the issuer URL refuses the login with `an unknown code`",
        ),
        (
            Deviation { metadata: json!({"issuer": "https://evil.example"}), ..Deviation::default() },
            "the server URL/mcp names no issuer that can be used",
        ),
        (
            Deviation { metadata: json!({"code_challenge_methods_supported": null}), ..Deviation::default() },
            "the issuer URL does not state that it supports PKCE with S256",
        ),
        (
            Deviation {
                metadata: json!({"code_challenge_methods_supported": ["plain"]}),
                ..Deviation::default()
            },
            "the issuer URL does not state that it supports PKCE with S256",
        ),
        (
            Deviation {
                metadata: json!({"token_endpoint": "http://evil.example/token"}),
                ..Deviation::default()
            },
            "an address in its metadata does not begin with https://",
        ),
        (
            Deviation {
                metadata: json!({"authorization_endpoint": "javascript:alert(1)"}),
                ..Deviation::default()
            },
            "an address in its metadata does not begin with https://",
        ),
        (
            Deviation { metadata: json!({"registration_endpoint": null}), ..Deviation::default() },
            "the issuer URL registers no clients by itself",
        ),
        (
            Deviation {
                resource_metadata: json!({"authorization_servers": ["http://evil.example"]}),
                ..Deviation::default()
            },
            "the server URL/mcp",
        ),
        (
            Deviation {
                token_answer: Some(("307 x\r\nlocation: http://127.0.0.1:1/token".to_owned(), String::new())),
                ..Deviation::default()
            },
            "the issuer URL gives no token: it answered with the HTTP status 307",
        ),
        (
            Deviation {
                token_answer: Some((
                    "200 OK".to_owned(),
                    r#"{"access_token":"s3cret","token_type":"mac"}"#.to_owned(),
                )),
                ..Deviation::default()
            },
            "its answer has no bearer token that a request can carry",
        ),
        (
            Deviation {
                token_answer: Some(("200 OK".to_owned(), r#"{"access_token":["s3cret"]}"#.to_owned())),
                ..Deviation::default()
            },
            "its answer has no bearer token that a request can carry",
        ),
    ];
    for (number, (deviation, expected)) in rows.into_iter().enumerate() {
        let (double, folder) = (IssuerDouble::new(), Folder::new(&format!("deviates-{number}")));
        let is_answer_of_token = deviation.token_answer.is_some();
        *double.deviation.lock().unwrap() = deviation;
        let file = folder.file(&double);
        let (ended, _) = log_in(settings(&double), &file).await;
        let shown = ended.unwrap_err().to_string();
        let expected = url(&double, expected);
        assert!(shown.contains(&expected), "{number}: {shown}");
        assert!(!shown.contains("s3cret") && !shown.contains("evil"), "{number}: {shown}");
        assert_eq!(double.requests("POST /token").is_empty(), !is_answer_of_token, "{number}");
        assert!(!file.path().exists(), "{number}");
    }
}

/// An outcome with another `state` is ignored, and the login still waits.
#[tokio::test]
async fn an_outcome_of_another_login_has_no_effect() {
    let (double, folder) = (IssuerDouble::new(), Folder::new("state"));
    let file = folder.file(&double);
    let login = Login::begin(settings(&double), http()).await.unwrap();
    let address = login.address().to_owned();
    let (sender, pasted) = mpsc::channel(8);
    let deviation = Arc::clone(&double.deviation);
    let browser = tokio::task::spawn_blocking(move || {
        deviation.lock().unwrap().state = Some("another".to_owned());
        let (first, _) = browse(&address);
        deviation.lock().unwrap().state = None;
        let (second, _) = browse(&address);
        (first, second)
    });
    sender.send("https://evil.example/callback?code=1&state=2".to_owned()).await.unwrap();
    let notes = Mutex::new(Vec::new());
    let ended = login.complete(&file, pasted, &|note| notes.lock().unwrap().push(note.to_owned())).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(browser.await.unwrap(), (400, 200));
    assert_eq!(notes.lock().unwrap().len(), 2);
    assert_eq!(double.requests("POST /token").len(), 1);
}

/// Without a browser on this machine, the person pastes the address to which the issuer has sent the browser.
#[tokio::test]
async fn a_person_pastes_the_outcome() {
    let (double, folder) = (IssuerDouble::new(), Folder::new("pasted"));
    let file = folder.file(&double);
    let login = Login::begin(settings(&double), http()).await.unwrap();
    let address = login.address().to_owned();
    let location = tokio::task::spawn_blocking(move || {
        let answer = http().get(&address).call().unwrap();
        answer.headers().get("location").unwrap().to_str().unwrap().to_owned()
    });
    let (sender, pasted) = mpsc::channel(1);
    sender.send(format!("  {}\n", location.await.unwrap())).await.unwrap();
    login.complete(&file, pasted, &|_| {}).await.unwrap();
    assert_eq!(authorization(&source(&double, &file)).await, Ok("Bearer access-1".to_owned()));
}

#[tokio::test]
async fn a_configured_issuer_and_client_are_used_in_place_of_those_of_the_server() {
    let (server, issuer, folder) = (IssuerDouble::new(), IssuerDouble::new(), Folder::new("configured"));
    let file = folder.file(&server);
    let own = SecureUrl::parse(&issuer.url).unwrap();
    let client = |secret: Option<&str>| RegisteredClient {
        id: "known".to_owned(),
        secret: secret.map(ClientSecret::new),
    };
    let settings = LoginSettings {
        issuer: Some(own.clone()),
        client: Some(client(Some("s3cret"))),
        scopes: vec!["write".to_owned()],
        ..settings(&server)
    };
    // No token is refreshed here: the double of the issuer accepts a refresh only for the server at its own address.
    log_in(settings.clone(), &file).await.0.unwrap();
    assert_eq!((server.requests("POST"), issuer.requests("POST /register")), (Vec::new(), Vec::new()));
    let exchange = issuer.requests("POST /token").concat();
    let exchange = parsed(exchange.rsplit(' ').next().unwrap());
    let expected =
        [("client_id", "known"), ("client_secret", "s3cret"), ("resource", server.server().as_str())]
            .map(|(name, value)| (name, value.to_owned()));
    for (name, value) in expected {
        assert_eq!(exchange[name], value);
    }
    // The tokens belong to this issuer.
    let other = SecureUrl::parse(&server.url).unwrap();
    for (issuer, expected) in [(Some(own), true), (Some(other), false), (None, true)] {
        let source = TokenSource::with_login(file.clone(), issuer, server.server(), http());
        assert_eq!(source.token().await.is_ok(), expected);
    }
    // A secret goes to no issuer that the server chooses.
    let refused = Login::begin(LoginSettings { issuer: None, ..settings }, http()).await;
    assert!(matches!(refused, Err(LoginError::SecretWithoutIssuer)));
}

#[tokio::test]
#[cfg(unix)]
async fn only_the_owner_can_read_the_tokens() {
    use std::os::unix::fs::PermissionsExt as _;

    let (double, folder) = (IssuerDouble::new(), Folder::new("private"));
    let file = folder.file(&double);
    log_in(settings(&double), &file).await.0.unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file.path()), mode(file.path().parent().unwrap())), (0o600, 0o700));
    let source = source(&double, &file);
    let rejected = source.token().await.unwrap();
    source.token_after(&rejected).await.unwrap();
    assert_eq!(mode(file.path()), 0o600);
    for bits in [0o640, 0o604, 0o620] {
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(bits)).unwrap();
        let shown = self::source(&double, &file).token().await.unwrap_err().to_string();
        assert!(shown.contains("other users can read or write the file"), "{bits:o} {shown}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_of_this_login_is_refused() {
    let (double, folder) = (IssuerDouble::new(), Folder::new("file"));
    let file = folder.file(&double);
    let none = source(&double, &file).token().await.unwrap_err().to_string();
    assert!(none.contains("nobody has logged in"), "{none}");
    log_in(settings(&double), &file).await.0.unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    for (from, to, expected) in [
        ("\"version\":1", "\"version\":2", "it is not a file of"),
        ("{", "", "it is not a file of"),
        ("http://127.0.0.1", "http://evil.example", "it is not a file of"),
        ("/mcp\"", "/other\"", "it has the tokens of another server"),
        ("access-1", "a\\nb", "no bearer token that a request can carry"),
    ] {
        std::fs::write(file.path(), text.replace(from, to)).unwrap();
        let shown = source(&double, &file).token().await.unwrap_err().to_string();
        assert!(shown.contains(expected) && !shown.contains("access-1"), "{from}: {shown}");
    }
    // After a logout, no token is refreshed into the file.
    std::fs::write(file.path(), text).unwrap();
    let source = source(&double, &file);
    let token = source.token().await.unwrap();
    assert_eq!(file.remove().await, Ok(true));
    assert_eq!(file.remove().await, Ok(false));
    assert!(source.token_after(&token).await.is_err());
    assert!(!file.path().exists());
}

#[test]
fn an_outcome_can_be_read_in_one_way() {
    let code =
        |code: &str, named: Option<&str>| Some(Outcome::Code(code.to_owned(), named.map(str::to_owned)));
    for (query, expected) in [
        ("code=a&state=s", code("a", None)),
        ("code=a&state=s&iss=https%3A%2F%2Fid.example", code("a", Some("https://id.example"))),
        ("error=access_denied&state=s", Some(Outcome::Error("access_denied".to_owned()))),
        ("code=a", None),
        ("code=a&state=", None),
        ("code=a&state=S", None),
        ("code=a&state=s&state=s", None),
        ("code=a&code=b&state=s", None),
        ("code=a&state=s&iss=1&iss=2", None),
        ("code=a&error=b&state=s", None),
        ("state=s", None),
        ("", None),
    ] {
        assert_eq!(outcome_of(query, "s"), expected, "{query}");
    }
    assert_eq!(outcome_of("code=a&state=", ""), None);
}
