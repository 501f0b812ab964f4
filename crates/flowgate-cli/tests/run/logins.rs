//! Tests of `flowgate mcp login` and `logout`: a person logs in to a server, and chats use the stored tokens.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::ODD;
use crate::elsewhere::http_server;
use crate::program::{ModelServerDouble, err, file, folder, out};

/// Starts a login at the server `odd` of a configuration; a browser opens the address if `opens` is set. Returns the exit
/// code and all that was printed.
fn log_in(folder: &Path, config: &str, opens: bool) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["mcp", "login", "odd", "--config", config])
        .env("XDG_STATE_HOME", folder.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut lines, mut address) = (BufReader::new(program.stdout.take().unwrap()), String::new());
    lines.read_line(&mut address).unwrap();
    if opens {
        let page = ureq::get(address.trim()).call().unwrap().body_mut().read_to_string().unwrap();
        assert!(page.contains("You are logged in."), "{page}");
    }
    let mut shown = address;
    lines.read_to_string(&mut shown).unwrap();
    let output = program.wait_with_output().unwrap();
    (output.status.code(), shown + &err(&output))
}

/// A person logs in once, and later chats use and refresh the tokens, until the logout.
#[test]
fn a_person_logs_in_to_a_server() {
    let folder = folder("login");
    let (_server, address) = http_server();
    let policy = file(&folder, "policy.flow", ODD);
    let entry = json!({"url": format!("{address}/guarded")});
    let servers = json!({"mcpServers": {"odd": entry, "other": {"command": "${NOT_SET}"}}}).to_string();
    let both = file(&folder, "both.json", &servers);
    let config = file(&folder, "servers.json", &json!({"mcpServers": {"odd": entry}}).to_string());
    let chat = || {
        let model = ModelServerDouble::new(&["odd__do {}", "Done."]);
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args([
                "run", "--policy", &policy, "--config", &config, "--url", &model.url, "--model", "m",
                "Do it.",
            ])
            .env("XDG_STATE_HOME", folder.join("state"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output, model)
    };
    let (output, _) = chat();
    assert!(err(&output).contains("or log in with `flowgate mcp login`"), "{}", err(&output));
    // An entry that cannot be read does not matter for another one.
    let (code, shown) = log_in(&folder, &both, true);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(&format!("to log in at {address}, open this address")), "{shown}");
    assert!(shown.contains("logged in to odd\n") && !shown.contains("token-0"), "{shown}");
    let (output, model) = chat();
    assert_eq!(out(&output), "Done.\n", "{}", err(&output));
    // The double has revoked the first token.
    assert!(model.shown(1).contains("done over http with 2 tokens"), "{}", model.shown(1));
    let (output, _) = chat();
    assert_eq!(out(&output), "Done.\n", "{}", err(&output));
    let logout = || {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["mcp", "logout", "odd", "--config", &config])
            .env("XDG_STATE_HOME", folder.join("state"))
            .output()
            .unwrap();
        (output.status.code(), out(&output))
    };
    assert_eq!(logout(), (Some(0), "logged out of odd\n".to_owned()));
    assert_eq!(logout(), (Some(0), "nobody was logged in to odd\n".to_owned()));
    let (output, _) = chat();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
}

/// A login that cannot begin says why, and what to do.
#[test]
fn a_login_that_cannot_begin_says_why() {
    let folder = folder("no-login");
    for (entry, code, expected) in [
        (json!({"command": "x"}), 2, "the server `odd` is started by a command, so nobody logs in to it"),
        (
            json!({"url": "https://x.example", "headers": {"Authorization": "Bearer s3cret"}}),
            2,
            "the server `odd` already authenticates with its header `Authorization`",
        ),
        (
            json!({"url": "https://x.example", "oauth": {"issuer": "https://x.example", "clientId": "c", "clientSecret": "s3cret"}}),
            2,
            "the server `odd` gets its tokens by client credentials, without a person",
        ),
        (
            json!({"url": "http://x.example"}),
            2,
            "the server `odd` has a `url` at which others could read its tokens",
        ),
        (
            json!({"url": "http://127.0.0.1:1/mcp"}),
            1,
            "the login to odd failed: the server http://127.0.0.1:1/mcp does not say who its issuer is: no connection can be established; check its `url`",
        ),
        (
            json!({"url": "https://x.example", "oauth": {"issuer": "http://127.0.0.1:1", "clientId": "c"}}),
            1,
            "the login to odd failed: the issuer http://127.0.0.1:1 gives no token: no connection can be established",
        ),
    ] {
        let config = file(&folder, "servers.json", &json!({"mcpServers": {"odd": entry}}).to_string());
        let (found, shown) = log_in(&folder, &config, false);
        assert_eq!(found, Some(code), "{entry} {shown}");
        assert!(shown.contains(expected) && !shown.contains("s3cret"), "{entry}: {shown}");
    }
    let config = file(&folder, "servers.json", r#"{"mcpServers": {"web": {"url": "https://x.example"}}}"#);
    let (code, shown) = log_in(&folder, &config, false);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("there is no server `odd`; the servers are: web"), "{shown}");
}
