//! A double of an issuer of tokens: it has keys, describes itself, and exchanges codes for ID tokens as an OpenID provider
//! does. Tests sign tokens of any form with its keys.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A key of an issuer.
pub(crate) struct TestKey {
    pub(crate) id: String,
    pair: SigningPair,
}

enum SigningPair {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair),
}

impl TestKey {
    /// Generates an Ed25519 key.
    pub(crate) fn ed(id: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = SigningPair::Ed(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap());
        Self { id: id.to_owned(), pair }
    }

    /// Generates a key on the curve P-256.
    pub(crate) fn ec(id: &str) -> Self {
        let (method, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(method, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(method, document.as_ref(), &random).unwrap();
        Self { id: id.to_owned(), pair: SigningPair::Ec(pair) }
    }

    /// Returns the bytes of the public key.
    pub(crate) fn public(&self) -> Vec<u8> {
        match &self.pair {
            SigningPair::Ed(pair) => pair.public_key().as_ref().to_vec(),
            SigningPair::Ec(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    pub(crate) fn jwk(&self) -> Value {
        let (public, encode) = (self.public(), |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes));
        match &self.pair {
            SigningPair::Ed(_) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "use": "sig", "x": encode(&public)})
            }
            SigningPair::Ec(_) => json!({
                "kty": "EC", "crv": "P-256", "kid": self.id, "alg": "ES256", "x": encode(&public[1..33]), "y": encode(&public[33..]),
            }),
        }
    }

    fn algorithm(&self) -> &'static str {
        match &self.pair {
            SigningPair::Ed(_) => "EdDSA",
            SigningPair::Ec(_) => "ES256",
        }
    }

    /// Signs these bytes.
    fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        match &self.pair {
            SigningPair::Ed(pair) => pair.sign(bytes).as_ref().to_vec(),
            SigningPair::Ec(pair) => pair.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec(),
        }
    }

    /// Returns a token with this header and these claims, as texts of JSON.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.sign_bytes(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns a token with these claims, and `more` in its header.
    pub(crate) fn sign_with(&self, more: &Value, claims: &Value) -> String {
        let mut header = json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"});
        merge(&mut header, more);
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({}), claims)
    }
}

/// Sets the members of an object; `null` removes one.
pub(crate) fn merge(object: &mut Value, more: &Value) {
    let object = object.as_object_mut().unwrap();
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(object.remove(name)),
            value => drop(object.insert(name.clone(), value.clone())),
        }
    }
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// What an issuer answers to requests for its keys.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum KeyAnswer {
    Keys,
    Error,
    Html,
    /// A redirect to this address.
    Redirect(&'static str),
    /// A document without an end.
    Endless,
    /// Nothing.
    Silence,
}

/// A running double.
pub(crate) struct IssuerDouble {
    /// The issuer in its tokens, and the beginning of its addresses.
    pub(crate) url: String,
    state: Arc<Mutex<IssuerState>>,
}

struct IssuerState {
    url: String,
    keys: Vec<Arc<TestKey>>,
    answer: KeyAnswer,
    /// The number of requests for the keys.
    fetches: usize,
    /// Members of the description, in place of the usual ones.
    description: Value,
    /// The codes that can be exchanged: the query of the login, and the claims of the ID token.
    codes: BTreeMap<String, (BTreeMap<String, String>, Value)>,
    /// The requests to exchange a code: the header `authorization`, and the form.
    exchanges: Vec<(String, String)>,
}

impl IssuerDouble {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(IssuerState {
            url: url.clone(),
            keys: vec![Arc::new(TestKey::ed("first"))],
            answer: KeyAnswer::Keys,
            fetches: 0,
            description: json!({}),
            codes: BTreeMap::new(),
            exchanges: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream.unwrap(), &state));
            }
        });
        Self { url, state }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, IssuerState> {
        self.state.lock().unwrap()
    }

    /// Returns the last key.
    pub(crate) fn key(&self) -> Arc<TestKey> {
        Arc::clone(self.state().keys.last().unwrap())
    }

    /// Replaces all keys by this one.
    pub(crate) fn rotate(&self, key: TestKey) {
        self.state().keys = vec![Arc::new(key)];
    }

    pub(crate) fn answer_with(&self, answer: KeyAnswer) {
        self.state().answer = answer;
    }

    pub(crate) fn describe_as(&self, description: Value) {
        self.state().description = description;
    }

    pub(crate) fn fetches(&self) -> usize {
        self.state().fetches
    }

    pub(crate) fn exchanges(&self) -> Vec<(String, String)> {
        self.state().exchanges.clone()
    }

    /// Returns the claims of a token for the gateway, changed by `more`.
    pub(crate) fn claims(&self, more: &Value) -> Value {
        let now = now();
        let mut claims =
            json!({"iss": self.url, "aud": "flowgate", "sub": "ci", "iat": now, "exp": now + 600});
        merge(&mut claims, more);
        claims
    }

    /// Returns a token for the gateway, with the claims changed by `more`.
    pub(crate) fn token(&self, more: &Value) -> String {
        self.key().sign(&self.claims(more))
    }

    /// Lets a person log in at the address to which the gateway has sent a browser, and returns the code. The ID token
    /// will have the usual claims, changed by `more`.
    pub(crate) fn log_in(&self, address: &str, more: &Value) -> String {
        let query = query_of(address.split_once('?').unwrap().1);
        let mut state = self.state();
        let code = format!("code-{}", state.codes.len());
        let now = now();
        let mut claims = json!({
            "iss": state.url, "aud": query["client_id"], "sub": "s-1", "iat": now, "exp": now + 600, "nonce": query["nonce"],
        });
        merge(&mut claims, more);
        state.codes.insert(code.clone(), (query, claims));
        code
    }
}

/// Encodes a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Parses a query or a form.
pub(crate) fn query_of(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    text.split('&')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn serve(mut stream: TcpStream, state: &Mutex<IssuerState>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
        head.push_str(&line);
        line.clear();
    }
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.clone().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let reply = |stream: &mut TcpStream, status: &str, more: &str, body: &str| {
        let length = body.len();
        let text =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n{body}");
        let _ = stream.write_all(text.as_bytes());
    };
    let mut state = state.lock().unwrap();
    match path.as_str() {
        "/.well-known/openid-configuration" => {
            let url = state.url.clone();
            let mut description = json!({
                "issuer": url, "jwks_uri": format!("{url}/keys"),
                "authorization_endpoint": format!("{url}/authorize?tenant=1"), "token_endpoint": format!("{url}/token"),
            });
            merge(&mut description, &state.description);
            reply(&mut stream, "200 OK", "", &description.to_string());
        }
        "/keys" => {
            state.fetches += 1;
            let keys: Vec<Value> = state.keys.iter().map(|key| key.jwk()).collect();
            let answer = state.answer;
            drop(state);
            match answer {
                KeyAnswer::Keys => reply(&mut stream, "200 OK", "", &json!({"keys": keys}).to_string()),
                KeyAnswer::Error => reply(&mut stream, "500 Oops", "", &json!({"keys": keys}).to_string()),
                KeyAnswer::Html => reply(&mut stream, "200 OK", "", "<html>Log in</html>"),
                KeyAnswer::Redirect(to) => {
                    reply(&mut stream, "302 Found", &format!("location: {to}\r\n"), "")
                }
                KeyAnswer::Endless => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"keys\": [");
                    while stream.write_all(&[b' '; 4096]).is_ok() {}
                }
                KeyAnswer::Silence => std::thread::sleep(Duration::from_secs(20)),
            }
        }
        "/token" => {
            state.exchanges.push((header("authorization").unwrap_or_default(), body.clone()));
            let form = query_of(&body);
            let secret = STANDARD.encode("gate:secret");
            let has_secret = header("authorization") == Some(format!("Basic {secret}"))
                || form.get("client_secret").is_some_and(|given| given == "secret");
            let exchanged = state.codes.remove(&form["code"]).filter(|(query, _)| {
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
                query["code_challenge"] == challenge
                    && query["code_challenge_method"] == "S256"
                    && query["redirect_uri"] == form["redirect_uri"]
                    && form["grant_type"] == "authorization_code"
            });
            match exchanged.filter(|_| has_secret) {
                Some((_, claims)) => {
                    let token = state.keys.last().unwrap().sign(&claims);
                    let answer = json!({"access_token": "at", "token_type": "Bearer", "id_token": token});
                    reply(&mut stream, "200 OK", "", &answer.to_string());
                }
                None => reply(&mut stream, "400 Bad Request", "", r#"{"error": "invalid_grant"}"#),
            }
        }
        _ => reply(&mut stream, "404 Not Found", "", ""),
    }
}
