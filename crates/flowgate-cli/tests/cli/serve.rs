//! Tests of `flowgate serve` as a process: addresses, tokens, and signals.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::{check, file, name};

/// A running server, killed on drop, and its address.
#[cfg(unix)]
struct TestServer(std::process::Child, String);

#[cfg(unix)]
impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[cfg(unix)]
impl TestServer {
    fn start(arguments: &[&str]) -> Self {
        use std::io::BufRead;
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).env_remove("FLOWGATE_TOKEN");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("note: listening on http://").and_then(|line| line.split_once(';'));
        assert!(address.is_some(), "{line}");
        Self(child, address.unwrap().0.to_owned())
    }

    /// Sends a request; returns the first line of the response.
    fn get(&self, path: &str, headers: &str) -> String {
        use std::io::Read;
        let mut stream = std::net::TcpStream::connect(&self.1).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    fn signal(&self, signal: &str) {
        let process = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.0.wait().unwrap().code()
    }
}

#[cfg(unix)]
#[test]
fn a_server_prints_its_address_and_ends_on_a_signal() {
    for signal in ["-INT", "-TERM"] {
        let server = TestServer::start(&[]);
        assert_eq!(server.get("/health", ""), "HTTP/1.1 200 OK");
        assert_eq!(server.get("/metrics", ""), "HTTP/1.1 200 OK");
        assert_eq!(server.end(signal), Some(0), "{signal}");
    }
    // A second signal ends the drain.
    let server = TestServer::start(&["--drain-time", "3600", "--head-time", "3600"]);
    let mut slow = std::net::TcpStream::connect(&server.1).unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    assert_eq!(server.get("/health", ""), "HTTP/1.1 200 OK");
    server.signal("-INT");
    while std::net::TcpStream::connect(&server.1).is_ok() {}
    assert_eq!(server.end("-INT"), Some(0));
    let token = file("token.txt", b"0123456789abcdef\n");
    let server = TestServer::start(&["--compat", "--token-file", name(&token)]);
    assert_eq!(server.get("/metrics", ""), "HTTP/1.1 401 Unauthorized");
    assert_eq!(server.get("/metrics", "Authorization: Bearer 0123456789abcdef\r\n"), "HTTP/1.1 200 OK");
    check(&["serve", "--listen", &server.1], 2, "is in use by another program: choose another port");
}

#[test]
fn a_server_is_not_opened_by_accident() {
    let open = ["serve", "--listen", "0.0.0.0:0"];
    check(&open, 2, "error: 0.0.0.0:0: other machines can reach this address, but no token is set");
    check(&open, 2, "or use `--allow-anonymous`");
    check(&["serve", "--listen", "here"], 2, "expected an address and a port, such as 127.0.0.1:8000");
    let short = file("short.txt", b"secret\n");
    check(&["serve", "--token-file", name(&short)], 2, "short.txt: the token is too short");
    check(&["serve", "--token-file", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["serve", "--max-body", "0"], 2, "0 is not in 1..=512");
    check(&["serve", "--help"], 0, "INVARIANT_API_ENDPOINT=http://127.0.0.1:8000");
}

/// The output of `--check` and of a start: warnings with advice, and the lines that would show what is hidden.
#[test]
fn a_configuration_is_checked_before_it_serves() {
    let policy = "lattice integrity: trusted < untrusted\n\
                  label message as trusted if:\n    (message: Message)\n\
                  label tool as trusted if:\n    (tool: Tool)\n\
                  label out.content as untrusted if:\n    (out: ToolOutput) is tool:read\n\
                  require trusted if:\n    (call: ToolCall) is tool:send\n";
    let labelled = format!("{policy}label out.content as trusted if:\n    (out: ToolOutput) is tool:send\n");
    let bare = policy.replace("label tool as trusted if:\n    (tool: Tool)\n", "");
    let config = |more: &str| {
        format!(
            "[upstreams.local]\nurl = \"http://localhost:1/v1\"\n[clients.assistant]\nkey-from = \"FLOWGATE_TEST_KEY\"\nupstream = \"local\"\n\
             policy = \"checked.flow\"\n{more}\n"
        )
    };
    let whole = config("user-messages = \"trust-unmarked-even-if-pasted\"\npinned = [\"You help.\"]");
    let run = |config: &str, policy: &str, more: &[&str], key: Option<&str>| {
        file("checked.flow", policy.as_bytes());
        let config = file("checked.toml", config.as_bytes());
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", name(&config)]).args(more);
        command.env_remove("FLOWGATE_TOKEN").env_remove("FLOWGATE_TEST_KEY");
        if let Some(key) = key {
            command.env("FLOWGATE_TEST_KEY", key);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), crate::text(&output))
    };
    let key = Some("0123456789abcdef");
    let (quiet, strict): (&[&str], &[&str]) = (&["--check"], &["--check", "--deny-warnings"]);
    let start: &[&str] = &["--deny-warnings"];
    // The configuration, the policy, the options, the exit code, and parts of the output.
    type ServeCase<'r> = (&'r str, &'r str, &'r [&'r str], i32, &'r [&'r str]);
    let watching = whole.replace(
        "[clients.assistant]\n",
        "[watch]\nfile = \"w.jsonl\"\n[clients.assistant]\nmode = \"watch\"\n",
    );
    let rows: [ServeCase<'_>; 16] = [
        (&whole, &labelled, quiet, 0, &["1 client, no warnings"]),
        (&whole, &labelled, strict, 0, &["no warnings"]),
        (
            &watching,
            &labelled,
            quiet,
            0,
            &["clients.assistant: watch mode: nothing of this client is stopped", "1 warning"],
        ),
        (&watching, &labelled, strict, 1, &["1 warning"]),
        (
            &whole,
            policy,
            quiet,
            0,
            &["label out.content as LABEL if: (out: ToolOutput) is tool:send", "1 warning"],
        ),
        (&whole, policy, strict, 1, &["1 warning"]),
        (&whole, policy, start, 1, &["warning"]),
        (&whole, &bare, quiet, 0, &["label tool as LABEL if: (tool: Tool) is tool:read", "`send`"]),
        (
            &config("user-messages = \"trust-unmarked-even-if-pasted\""),
            &labelled,
            quiet,
            0,
            &["`pinned` in [clients.assistant]", "1 warning"],
        ),
        (
            &config("pinned = [\"You help.\"]"),
            &labelled,
            quiet,
            0,
            &["in [clients.assistant]", "if a person types all", "1 warning"],
        ),
        // `interactive` does not declare who typed the messages.
        (
            &config("interactive = true\npinned = [\"You help.\"]"),
            &labelled,
            strict,
            1,
            &[
                "`interactive = true` says that a person can be asked",
                "`user-messages = \"trust-unmarked-even-if-pasted\"`",
                "strangers who write these would command the agent",
                "1 warning",
            ],
        ),
        (
            &config("interactive = true\npinned = [\"You help.\", \"Today is {}.\"]"),
            &labelled,
            quiet,
            0,
            &["user messages are hidden", "1 warning"],
        ),
        (&config(""), &bare, strict, 1, &["pinned", "user-messages", "label tool", "4 warnings"]),
        (&whole, "lattice integrity: trusted <", quiet, 2, &["clients.assistant: ", "checked.flow:1:"]),
        (
            &whole.replace("checked.flow", "no-such.flow"),
            policy,
            quiet,
            2,
            &["no-such.flow: there is no file of this name"],
        ),
        (
            &format!("{whole}[tls]\ncertificate = \"no-such.pem\"\nkey = \"no-such.key\"\n"),
            &labelled,
            quiet,
            2,
            &["checked.toml: tls.certificate: ", "no-such.pem: there is no file of this name"],
        ),
    ];
    for (config, policy, more, code, parts) in rows {
        let (found, said) = run(config, policy, more, key);
        assert_eq!(found, Some(code), "{config}{policy}{more:?}\n{said}");
        for part in parts {
            assert!(said.contains(part), "{config}{more:?} should say {part:?}, but says\n{said}");
        }
    }
    let (code, said) = run(&whole, &labelled, quiet, None);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the environment variable FLOWGATE_TEST_KEY is not set: export it"), "{said}");
    check(&["serve", "--check"], 2, "--config");
}

/// Checks `serve --check` with variables that set fields of the configuration: the exit code, and a part of the output.
/// No value of a variable is printed.
#[test]
fn the_environment_sets_fields_of_the_configuration() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    file("environment.flow", read("policy.flow").as_bytes());
    let config = read("gateway.toml").replace("\"policy.flow\"", "\"environment.flow\"");
    let config = file("environment.toml", config.as_bytes());
    let check = |command: &[&str], variable: &str, value: &str, code: i32, part: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        program.args(command).args(["--config", name(&config)]).env_remove("FLOWGATE_TOKEN");
        program.env("ASSISTANT_KEY", "0123456789abcdef").env(variable, value);
        let output = program.stdin(Stdio::null()).output().unwrap();
        let said = crate::text(&output);
        assert_eq!(output.status.code(), Some(code), "{variable}\n{said}");
        assert!(said.contains(part), "{variable} should say {part:?}, but says\n{said}");
        assert!(!said.contains("hunter2"), "{variable}\n{said}");
    };
    let serve = ["serve", "--check"];
    let url = "FLOWGATE_CONFIG__STORE__URL";
    check(
        &serve,
        url,
        "postgres://flowgate:hunter2@db/x",
        0,
        "`store.url` is set by an environment variable",
    );
    check(&serve, url, "hunter2", 2, "environment.toml: store: the address of the database is none of");
    check(
        &serve,
        "FLOWGATE_CONFIG__STORE__ULR",
        "hunter2",
        2,
        "FLOWGATE_CONFIG__STORE__ULR: [store] has no field or entry of this name; did you mean FLOWGATE_CONFIG__STORE__URL?",
    );
    check(
        &serve,
        "FLOWGATE_CONFIG__CLIENTS__ASSISTANT__POLICY",
        "no-such.flow",
        2,
        "no-such.flow: there is no file of this name",
    );
    // Another command that reads the configuration.
    check(
        &["doctor"],
        "FLOWGATE_CONFIG__STORE__RETENTION_DAYS",
        "hunter2",
        1,
        "FLOWGATE_CONFIG__STORE__RETENTION_DAYS: the value is not a whole number from 0 to 4294967295",
    );
}
