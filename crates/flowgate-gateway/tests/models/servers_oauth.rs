//! Tests of MCP servers behind OAuth: the gateway obtains tokens from the issuer of a server, replaces them, and shows
//! none of them and no secret.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::gateway::{GatewayHome, config};
use crate::servers::{POLICY, client};
use crate::servers_attacked::NOWHERE;

/// What the double has given, and how it behaves.
#[derive(Default)]
struct IssuerState {
    /// The number of tokens so far; the server accepts the newest one.
    tokens: usize,
    /// The forms of all requests for tokens.
    asked: Vec<String>,
    /// The headers `authorization` of all messages to the server.
    shown: Vec<String>,
    /// The number of next messages whose token is rejected.
    rejects: usize,
    /// Whether the issuer refuses to give tokens.
    is_closed: bool,
}

/// A double of an MCP server, with the tool `read`, and of its issuer, at one address.
struct OAuthServerDouble {
    url: String,
    state: Arc<Mutex<IssuerState>>,
}

impl OAuthServerDouble {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let double = Self { url, state: Arc::default() };
        let (url, state) = (double.url.clone(), Arc::clone(&double.state));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (url, state) = (url.clone(), Arc::clone(&state));
                std::thread::spawn(move || serve(stream.unwrap(), &url, &state));
            }
        });
        double
    }
}

fn serve(mut stream: TcpStream, url: &str, state: &Mutex<IssuerState>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        head.push_str(&line);
        line.clear();
    }
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0_u8; header("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let first: Vec<&str> = head.split(' ').take(2).collect();
    let (status, answer) = match first.as_slice() {
        ["POST", "/mcp"] => answer(header("authorization"), &body, &mut state.lock().unwrap()),
        ["POST", "/token"] => token(body, &mut state.lock().unwrap()),
        ["GET", "/.well-known/oauth-authorization-server"] => {
            let metadata = json!({
                "issuer": url,
                "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"),
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            });
            (200, metadata.to_string())
        }
        _ => (404, String::new()),
    };
    let reply = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
    let _ = stream.write_all(reply.as_bytes());
}

fn token(form: String, state: &mut IssuerState) -> (u16, String) {
    state.asked.push(form);
    if state.is_closed {
        return (400, json!({"error": "invalid_grant", "error_description": "s3cret"}).to_string());
    }
    state.tokens += 1;
    let token = json!({"access_token": format!("t0ken-{}", state.tokens), "token_type": "Bearer", "expires_in": 3600, "refresh_token": "next"});
    (200, token.to_string())
}

fn answer(authorization: Option<String>, body: &str, state: &mut IssuerState) -> (u16, String) {
    let shown = authorization.unwrap_or_default();
    let is_newest = shown == format!("Bearer t0ken-{}", state.tokens);
    state.shown.push(shown);
    if state.rejects > 0 || !is_newest {
        state.rejects = state.rejects.saturating_sub(1);
        return (401, String::new());
    }
    let message: Value = serde_json::from_str(body).unwrap();
    let result = match message["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
        Some("tools/list") => {
            json!({"tools": [{"name": "read", "description": "read", "inputSchema": {"type": "object"}}]})
        }
        Some("tools/call") => crate::mcp::text("a page"),
        _ => return (202, String::new()),
    };
    (200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
}

/// Returns a home whose server `web` has this `oauth`.
fn home(double: &OAuthServerDouble, oauth: &str) -> GatewayHome {
    let web = format!("[mcp.web]\nurl = \"{}/mcp\"\noauth = {{ {oauth} }}\n", double.url);
    let mcp = "mcp = [\"web\"]\nuser-messages = \"trust-unmarked-even-if-pasted\"";
    GatewayHome::new(
        &(config(NOWHERE, "chat-completions", mcp) + &web + "[audit]\nfile = \"audit.jsonl\"\n"),
        POLICY,
    )
}

/// Returns `oauth` for client credentials of the double.
fn credentials(double: &OAuthServerDouble) -> String {
    format!(
        "issuer = \"{}\", client-id = \"agent\", client-secret-from = \"s3cret\", scopes = [\"read\"]",
        double.url
    )
}

#[test]
fn tokens_are_obtained_and_replaced_once_after_a_rejection() {
    let double = OAuthServerDouble::new();
    let home = home(&double, &credentials(&double));
    let (gateway, log) = home.start_with_log();
    let mut one = client(&gateway, "one");
    assert_eq!(one.begin("web"), ["read"]);
    assert_eq!(one.call("web", "read", &json!({})), "a page");
    let asked = double.state.lock().unwrap().asked.concat();
    for part in
        ["grant_type=client_credentials", "client_id=agent", "scope=read", "resource=http%3A%2F%2F127.0.0.1"]
    {
        assert!(asked.contains(part), "{part} is not in {asked}");
    }
    // A revoked token is replaced, and the call arrives once.
    let before = double.state.lock().unwrap().shown.len();
    double.state.lock().unwrap().rejects = 1;
    assert_eq!(one.call("web", "read", &json!({})), "a page");
    let shown: Vec<String> = double.state.lock().unwrap().shown.iter().skip(before).cloned().collect();
    assert_eq!(shown, ["Bearer t0ken-1", "Bearer t0ken-2"]);
    // A server that rejects each token receives a call twice, not more.
    double.state.lock().unwrap().rejects = 2;
    let asked = double.state.lock().unwrap().asked.len();
    let failed = one.ask("web", "tools/call", &json!({"name": "read", "arguments": {}}));
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert_eq!(double.state.lock().unwrap().asked.len(), asked + 1);
    assert_eq!(double.state.lock().unwrap().rejects, 0);
    // An issuer that refuses.
    double.state.lock().unwrap().rejects = 1;
    double.state.lock().unwrap().is_closed = true;
    let refused = one.ask("web", "tools/call", &json!({"name": "read", "arguments": {}}));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let audit = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
    gateway.stop();
    let log = log.rest();
    for why in [
        "the MCP server rejected the key or the token of the gateway (401 or 403)",
        "the issuer of the MCP server refuses to give a token: check the client, its secret and the scopes",
    ] {
        assert!(log.contains(why), "{why} is not in {log}");
    }
    for hidden in ["s3cret", "t0ken", &double.url] {
        for (name, text) in [
            ("log", &log),
            ("audit", &audit),
            ("answer", &refused.to_string()),
            ("answer", &failed.to_string()),
        ] {
            assert!(!text.contains(hidden), "{hidden} is in the {name}: {text}");
        }
    }
}

/// The tokens of a login are refreshed in its file, which is the only one that has them.
#[test]
fn tokens_come_from_the_file_of_a_login() {
    let double = OAuthServerDouble::new();
    double.state.lock().unwrap().tokens = 1;
    let url = &double.url;
    let login = json!({
        "version": 1,
        "url": format!("{url}/mcp"),
        "resource": format!("{url}/mcp"),
        "issuer": url,
        "authorizationEndpoint": format!("{url}/authorize"),
        "tokenEndpoint": format!("{url}/token"),
        "authMethods": [],
        "clientSecret": null,
        "credentials": {
            "client_id": "registered",
            "token_response": {"access_token": "t0ken-0", "token_type": "bearer", "refresh_token": "first", "expires_in": 60},
            // Long ago.
            "token_received_at": 1,
        },
    });
    let home = home(&double, "token-file = \"web.json\"");
    let file = home.folder().join("web.json");
    assert!(
        home.read_with(&flowgate_guard::method::MethodRegistry::builtin())
            .unwrap_err()
            .contains("mcp.web: oauth: token-file: ")
    );
    let write = |login: &Value, mode: u32| {
        std::fs::write(&file, login.to_string()).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    #[cfg(unix)]
    {
        write(&login, 0o644);
        let refused = home.read_with(&flowgate_guard::method::MethodRegistry::builtin()).unwrap_err();
        assert!(refused.contains("other users can read or write the file"), "{refused}");
    }
    let mut other = login.clone();
    other["url"] = "https://other.example/mcp".into();
    write(&other, 0o600);
    let refused = home.read_with(&flowgate_guard::method::MethodRegistry::builtin()).unwrap_err();
    assert!(refused.contains("it has the tokens of another server, https://other.example/mcp"), "{refused}");
    write(&login, 0o600);
    let gateway = home.start();
    let mut one = client(&gateway, "one");
    assert_eq!(one.begin("web"), ["read"]);
    double.state.lock().unwrap().rejects = 1;
    assert_eq!(one.call("web", "read", &json!({})), "a page");
    let asked = double.state.lock().unwrap().asked.clone();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].contains("refresh_token=first") && asked[1].contains("refresh_token=next"), "{asked:?}");
    let stored = std::fs::read_to_string(&file).unwrap();
    assert!(stored.contains("t0ken-3") && !stored.contains("t0ken-0"), "{stored}");
    // The login ends.
    double.state.lock().unwrap().rejects = 1;
    double.state.lock().unwrap().is_closed = true;
    let ended = one.ask("web", "tools/call", &json!({"name": "read", "arguments": {}}));
    assert_eq!(ended["result"]["isError"], true, "{ended}");
}
