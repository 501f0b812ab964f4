//! Tests of servers that `flowgate run` reaches over HTTP, with keys in headers and with OAuth's client credentials.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::ODD;
use crate::program::{DOUBLES, ModelServerDouble, err, file, flowgate, folder, out};

/// A process that is killed on drop.
pub(crate) struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the double of a server over HTTP. Returns its process and its address.
pub(crate) fn http_server() -> (KillOnDrop, String) {
    let mut server = Command::new("python3")
        .arg(format!("{DOUBLES}/streamable.py"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    (KillOnDrop(server), address.trim().to_owned())
}

#[test]
fn servers_may_be_elsewhere() {
    let folder = folder("http");
    let (_server, address) = http_server();
    let policy = file(&folder, "policy.flow", ODD);
    let attempt = |path: &str, key: &str| {
        let model = ModelServerDouble::new(&["odd__do {}", "Done."]);
        let entry =
            json!({"url": format!("{address}{path}"), "headers": {"Authorization": format!("Bearer {key}")}});
        let config = file(&folder, "servers.json", &json!({"mcpServers": {"odd": entry}}).to_string());
        let arguments =
            ["run", "--policy", &policy, "--config", &config, "--url", &model.url, "--model", "m", "Do it."];
        (flowgate(&folder, &arguments, ""), model)
    };
    let (output, model) = attempt("/mcp", "${MODEL_KEY}");
    assert_eq!(out(&output), "Done.\n", "{}", err(&output));
    assert!(model.shown(1).contains("done over http"), "{}", model.shown(1));
    for (path, key, expected) in [
        (
            "/mcp",
            "wrong",
            "the server requires authentication (HTTP status 401); add a key to `headers`, or `oauth`, or log in with `flowgate mcp login`",
        ),
        (
            "/elsewhere",
            "s3cret",
            "the server redirects to another address (HTTP status 302); write that address as `url`",
        ),
        ("/mcp", "\n", "the header `Authorization` has characters that HTTP does not permit"),
    ] {
        let (output, _) = attempt(path, key);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(expected), "{}", err(&output));
        assert!(!err(&output).contains("s3cret"), "{}", err(&output));
    }
}

/// The tokens for a server come from its issuer, by client credentials; a revoked one is replaced.
#[test]
fn servers_may_be_behind_oauth() {
    let folder = folder("oauth");
    let (_server, address) = http_server();
    let policy = file(&folder, "policy.flow", ODD);
    let attempt = |issuer: &str, secret: &str| {
        let model = ModelServerDouble::new(&["odd__do {}", "Done."]);
        let oauth =
            json!({"issuer": issuer, "clientId": "agent", "clientSecret": secret, "scopes": ["read"]});
        let entry = json!({"url": format!("{address}/guarded"), "oauth": oauth});
        let config = file(&folder, "servers.json", &json!({"mcpServers": {"odd": entry}}).to_string());
        let arguments =
            ["run", "--policy", &policy, "--config", &config, "--url", &model.url, "--model", "m", "Do it."];
        (flowgate(&folder, &arguments, ""), model)
    };
    let (output, model) = attempt(&address, "${MODEL_KEY}");
    assert_eq!(out(&output), "Done.\n", "{}", err(&output));
    assert!(model.shown(1).contains("done over http with 2 tokens"), "{}", model.shown(1));
    for (issuer, secret, expected) in [
        (address.clone(), "wrong", "gives no token"),
        (
            format!("{address}/other"),
            "${MODEL_KEY}",
            "/other publishes no OAuth metadata, or its metadata names another issuer; check `issuer` in `oauth`\n",
        ),
        (
            format!("{address}/large"),
            "${MODEL_KEY}",
            "/large is larger than 262144 bytes; `issuer` in `oauth` is probably not the address of an OAuth issuer\n",
        ),
        (format!("{address}/far"), "${MODEL_KEY}", "gives no token"),
        (format!("{address}/nowhere"), "${MODEL_KEY}", "publishes no OAuth metadata"),
        (
            "http://issuer.example".to_owned(),
            "${MODEL_KEY}",
            "the `issuer` in its `oauth` is not a URL of HTTPS",
        ),
    ] {
        let (output, _) = attempt(&issuer, secret);
        assert_eq!(output.status.code(), Some(2), "{issuer}");
        assert!(err(&output).contains(expected), "{issuer}: {}", err(&output));
        assert!(!err(&output).contains("s3cret") && !err(&output).contains("wrong"), "{}", err(&output));
    }
}
