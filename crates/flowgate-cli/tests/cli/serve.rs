//! `flowgate serve`: addresses, tokens, and signals.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::{check, file, name};

/// A server that is ended with the test.
#[cfg(unix)]
struct Serving(std::process::Child, String);

#[cfg(unix)]
impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[cfg(unix)]
impl Serving {
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

    /// The first line of the answer.
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
fn a_server_says_where_it_is_and_ends_when_it_is_told() {
    for signal in ["-INT", "-TERM"] {
        let server = Serving::start(&[]);
        assert_eq!(server.get("/health", ""), "HTTP/1.1 200 OK");
        assert_eq!(server.get("/metrics", ""), "HTTP/1.1 200 OK");
        assert_eq!(server.end(signal), Some(0), "{signal}");
    }
    // Who does not want to wait for a slow client asks again.
    let server = Serving::start(&["--drain-time", "3600", "--head-time", "3600"]);
    let mut slow = std::net::TcpStream::connect(&server.1).unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    assert_eq!(server.get("/health", ""), "HTTP/1.1 200 OK");
    server.signal("-INT");
    while std::net::TcpStream::connect(&server.1).is_ok() {}
    assert_eq!(server.end("-INT"), Some(0));
    let token = file("token.txt", b"0123456789abcdef\n");
    let server = Serving::start(&["--compat", "--token-file", name(&token)]);
    assert_eq!(server.get("/metrics", ""), "HTTP/1.1 401 Unauthorized");
    assert_eq!(server.get("/metrics", "Authorization: Bearer 0123456789abcdef\r\n"), "HTTP/1.1 200 OK");
    check(&["serve", "--listen", &server.1], 2, "is taken by another program: choose another port");
}

#[test]
fn a_server_is_not_opened_by_accident() {
    let open = ["serve", "--listen", "0.0.0.0:0"];
    check(&open, 2, "error: 0.0.0.0:0: this address can be reached from other machines: give a token");
    check(&open, 2, "or say --allow-anonymous");
    check(&["serve", "--listen", "here"], 2, "expected an address and a port, such as 127.0.0.1:8000");
    let short = file("short.txt", b"secret\n");
    check(&["serve", "--token-file", name(&short)], 2, "short.txt: the token is too short");
    check(&["serve", "--token-file", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["serve", "--max-body", "0"], 2, "0 is not in 1..=512");
    check(&["serve", "--help"], 0, "INVARIANT_API_ENDPOINT=http://127.0.0.1:8000");
}
