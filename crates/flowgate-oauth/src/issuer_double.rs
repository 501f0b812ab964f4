//! Defines [`IssuerDouble`], a double of an MCP server behind OAuth and of its issuer, at one address, for tests: it
//! publishes metadata, registers clients, logs in every person who asks, and checks PKCE, the resource and the rotation
//! of refresh tokens.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::form_urlencoded;

use crate::secure_url::SecureUrl;

/// What the double does other than a correct issuer.
#[derive(Default)]
pub(crate) struct Deviation {
    /// Members of the metadata of the issuer, in place of the usual ones; `null` removes one.
    pub(crate) metadata: Value,
    /// Members of the metadata of the server, likewise.
    pub(crate) resource_metadata: Value,
    /// The `iss` of the outcome; the issuer itself by default.
    pub(crate) iss: Option<String>,
    /// The `state` of the outcome; the one of the request by default.
    pub(crate) state: Option<String>,
    /// The error in place of a code.
    pub(crate) error: Option<String>,
    /// The answer of the token endpoint: a head and a body.
    pub(crate) token_answer: Option<(String, String)>,
    /// The lifetime of access tokens, in seconds.
    pub(crate) expires_in: Option<u64>,
}

/// What the double has issued.
#[derive(Default)]
struct Issued {
    /// The parameters of the login that a code belongs to.
    codes: BTreeMap<String, BTreeMap<String, String>>,
    /// The refresh token that is valid, and the client that has it.
    refresh: Option<(String, String)>,
    /// The number of access tokens.
    tokens: usize,
}

/// A running double.
pub(crate) struct IssuerDouble {
    /// The address of the issuer; the MCP server is at `/mcp` below it.
    pub(crate) url: String,
    /// What the double does other than a correct issuer; tests change it while the double runs.
    pub(crate) deviation: Arc<Mutex<Deviation>>,
    issued: Arc<Mutex<Issued>>,
    /// The requests: method, path without the query, and body.
    requests: Arc<Mutex<Vec<String>>>,
}

impl IssuerDouble {
    /// Starts a double on a free port, with a thread that answers requests until the process ends.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let double =
            Self { url, deviation: Arc::default(), issued: Arc::default(), requests: Arc::default() };
        // The thread shares the state of the returned double.
        let serving = Self {
            url: double.url.clone(),
            deviation: Arc::clone(&double.deviation),
            issued: Arc::clone(&double.issued),
            requests: Arc::clone(&double.requests),
        };
        std::thread::spawn(move || listener.incoming().for_each(|stream| serving.serve(stream.unwrap())));
        double
    }

    /// Returns the address of the server.
    pub(crate) fn server(&self) -> SecureUrl {
        SecureUrl::parse(&format!("{}/mcp", self.url)).unwrap()
    }

    /// Returns the requests with this beginning, such as `POST /token`.
    pub(crate) fn requests(&self, beginning: &str) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.starts_with(beginning)).cloned().collect()
    }

    /// Ends the validity of all refresh tokens.
    pub(crate) fn revoke(&self) {
        self.issued.lock().unwrap().refresh = None;
    }

    /// Reads one request, records it, and answers it.
    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut line = String::new();
        // The headers end at an empty line, which consists of two bytes.
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let mut words = first.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        self.requests.lock().unwrap().push(format!("{method} {path} {body}"));
        let (head, body) = self.answer(&format!("{method} {path}"), query, &body);
        let reply = format!(
            "HTTP/1.1 {head}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(reply.as_bytes());
    }

    /// Returns the answer to a request: a head, which begins with the HTTP status, and a body. `request` is the method
    /// and the path without the query. A test can replace parts of the answer by `deviation`.
    fn answer(&self, request: &str, query: &str, body: &str) -> (String, String) {
        let (url, deviation) = (&self.url, self.deviation.lock().unwrap());
        let json = |value: Value| ("200 OK".to_owned(), value.to_string());
        match request {
            "GET /mcp" => (
                format!(
                    "401 Unauthorized\r\nwww-authenticate: Bearer resource_metadata=\"{url}/.well-known/oauth-protected-resource\", scope=\"read\""
                ),
                String::new(),
            ),
            "GET /.well-known/oauth-protected-resource" => {
                let mut own = json!({"resource": format!("{url}/mcp"), "authorization_servers": [url]});
                merge(&mut own, &deviation.resource_metadata);
                json(own)
            }
            "GET /.well-known/oauth-authorization-server" => {
                let mut own = json!({
                    "issuer": url,
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "registration_endpoint": format!("{url}/register"),
                    "code_challenge_methods_supported": ["S256"],
                    "response_types_supported": ["code"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
                    "authorization_response_iss_parameter_supported": true,
                });
                merge(&mut own, &deviation.metadata);
                json(own)
            }
            "POST /register" => {
                let asked: Value = serde_json::from_str(body).unwrap();
                json(json!({"client_id": "registered", "redirect_uris": asked["redirect_uris"]}))
            }
            "GET /authorize" => {
                let asked = parsed(query);
                let mut outcome = form_urlencoded::Serializer::new(String::new());
                match &deviation.error {
                    Some(error) => outcome.append_pair("error", error),
                    None => outcome.append_pair("code", "c0de"),
                };
                outcome.append_pair("state", deviation.state.as_ref().unwrap_or(&asked["state"]));
                outcome.append_pair("iss", deviation.iss.as_ref().unwrap_or(url));
                let location = format!("{}?{}", asked["redirect_uri"], outcome.finish());
                self.issued.lock().unwrap().codes.insert("c0de".to_owned(), asked);
                (format!("302 Found\r\nlocation: {location}"), String::new())
            }
            "POST /token" => match &deviation.token_answer {
                Some(answer) => answer.clone(),
                None => self.token(&parsed(body), deviation.expires_in),
            },
            _ => ("404 Not Found".to_owned(), String::new()),
        }
    }

    /// Returns the answer of the token endpoint to a request with the parameters `asked`: a head and a body.
    fn token(&self, asked: &BTreeMap<String, String>, expires_in: Option<u64>) -> (String, String) {
        let mut issued = self.issued.lock().unwrap();
        let refused = |code: &str| ("400 Bad Request".to_owned(), json!({"error": code}).to_string());
        let client = asked.get("client_id").cloned().unwrap_or_default();
        let is_granted = match asked["grant_type"].as_str() {
            "authorization_code" => issued.codes.remove(&asked["code"]).is_some_and(|login| {
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&asked["code_verifier"]));
                ["client_id", "redirect_uri", "resource"].iter().all(|name| login[*name] == asked[*name])
                    && login["code_challenge"] == challenge
                    && login["code_challenge_method"] == "S256"
                    && login["response_type"] == "code"
            }),
            // A refresh token is valid once.
            "refresh_token" => {
                issued.refresh.take() == Some((asked["refresh_token"].clone(), client.clone()))
                    && asked["resource"] == format!("{}/mcp", self.url)
            }
            "client_credentials" => {
                if client != "agent" || asked["client_secret"] != "s3cret" {
                    return refused("invalid_client");
                }
                true
            }
            _ => return refused("unsupported_grant_type"),
        };
        if !is_granted {
            return refused("invalid_grant");
        }
        issued.tokens += 1;
        let number = issued.tokens;
        let mut token = json!({"access_token": format!("access-{number}"), "token_type": "Bearer"});
        if let Some(seconds) = expires_in {
            token["expires_in"] = seconds.into();
        }
        if asked["grant_type"] != "client_credentials" {
            token["refresh_token"] = format!("refresh-{number}").into();
            issued.refresh = Some((format!("refresh-{number}"), client));
        }
        ("200 OK".to_owned(), token.to_string())
    }
}

/// Opens an address as a browser does, follows one redirect, and returns the status and the text of the last answer.
pub(crate) fn browse(address: &str) -> (u16, String) {
    let agent = crate::agent(ureq::tls::TlsConfig::default());
    let answer = agent.get(address).call().unwrap();
    let location = answer.headers().get("location").unwrap().to_str().unwrap().to_owned();
    let mut answer = agent.get(location).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// Returns the parameters of a query or a form.
pub(crate) fn parsed(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// Copies the members of `more` into `object`; a `null` removes the member of this name.
fn merge(object: &mut Value, more: &Value) {
    for (name, value) in more.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            value => object[name] = value.clone(),
        }
    }
}
