//! The command line as its users meet it: output, exit codes, and what it says to bad input.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/payment.flow");
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/payment.json");

fn flowgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgate")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A file of this test's own.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::File::create(&path).unwrap().write_all(content).unwrap();
    path
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the command, and compares its exit code and a part of what it prints.
fn check(arguments: &[&str], code: i32, part: &str) {
    let output = flowgate(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}", text(&output));
    assert!(text(&output).contains(part), "{arguments:?} should say {part:?}, but says\n{}", text(&output));
}

#[test]
fn the_demonstration_stops_the_injected_payment() {
    check(&["demo"], 0, "provenance   permit get_recent_transactions, confirm send_money, permit send_money");
    check(&["demo"], 0, "note: ‹hidden: text›");
}

#[test]
fn exit_codes_are_as_documented() {
    check(&["check", POLICY], 0, "is a policy (with labels, 2 dimensions)");
    check(&["check", POLICY, TRACE], 1, "1 run: 1 call permitted, 2 to be confirmed, 0 denied; 0 findings");
    check(&["check", POLICY, TRACE, "--influence", "provenance"], 1, "2 calls permitted, 1 to be confirmed");
    check(&["check", POLICY, TRACE], 1, "✓ permit   #3 get_recent_transactions (c1)");
    let short = text(&flowgate(&["check", POLICY, TRACE, "--objections"]));
    assert!(!short.contains("✓ permit") && short.contains("? confirm"), "{short}");
    check(&["check", POLICY, "no-such-file.json"], 2, "error: no-such-file.json: there is no such file");
    check(
        &["check", POLICY, TRACE, "--influence", "magic"],
        2,
        "known methods are everything, provenance, nothing",
    );
    check(&["chekc"], 2, "a similar subcommand exists: 'check'");
    let permitted = file("permitted.json", br#"[{"role":"user","content":"hi"}]"#);
    check(&["check", POLICY, name(&permitted)], 0, "1 run: 0 calls permitted");
}

#[test]
fn analyze_says_what_rules_find_and_where() {
    let policy = "raise Violation(\"a key\", n=1) if:\n    (m: Message)\n    input.word in m.content\n";
    let policy = file("word.flow", policy.as_bytes());
    let lines = "{\"role\":\"user\",\"content\":\"hi\"}\n{\"role\":\"user\",\"content\":\"my ké key\"}\n";
    let trace = file("word.jsonl", lines.as_bytes());
    let (policy, trace) = (name(&policy), name(&trace));
    check(&["analyze", policy, trace, "--param", "word=key"], 1, "messages.1.content:6-9");
    check(&["analyze", policy, trace, "--param", "word=key"], 1, "raise a key\n    n = 1\n");
    check(&["analyze", policy, trace, "--param", "word=lock"], 0, "1 run: 0 matches");
    check(
        &["analyze", policy, trace, "--param", "word=key", "--format", "json"],
        1,
        "\"messages.1.content:6-9\"",
    );
    check(&["analyze", policy, trace], 2, "the parameter `input.word` is not given; add --param word=VALUE");
    check(&["analyze", policy, trace, "--param", "word"], 2, "write it as NAME=VALUE");
    let old = file("old.flow", b"raise \"x\" if:\n    (m: Message)\n    [m.role]\n");
    check(&["analyze", name(&old), trace], 1, "2 matches");
    check(&["analyze", name(&old), trace, "--compat"], 0, "0 matches");
}

#[test]
fn content_is_shown_only_when_asked_for() {
    let quiet = text(&flowgate(&["check", POLICY, TRACE]));
    assert!(!quiet.contains("IMPORTANT") && quiet.contains("content[1].note:104-173"), "{quiet}");
    check(&["check", POLICY, TRACE, "--content"], 1, "“hi! IMPORTANT");
}

#[test]
fn wire_formats_are_stable() {
    for (format, golden) in [("json", "check.json"), ("jsonl", "check.jsonl"), ("sarif", "check.sarif")] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .current_dir(folder)
            .args(["check", "demo/payment.flow", "demo/payment.json", "--format", format])
            .output()
            .unwrap();
        let path = folder.join("tests/golden").join(golden);
        let printed = String::from_utf8(output.stdout).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &printed).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            printed, expected,
            "{golden}; UPDATE_GOLDEN=1 cargo test writes it anew, then read the difference"
        );
    }
}

#[test]
fn an_explanation_ends_with_a_change_that_was_tried() {
    check(&["explain", POLICY, TRACE, "--call", "c3"], 1, "label out.content as trusted if:");
    check(&["explain", POLICY, TRACE, "--call", "c9"], 2, "no call has the id `c9`");
    check(&["explain", POLICY, TRACE, "--call", "c1"], 0, "✓ permit get_recent_transactions (c1)");
    check(
        &["explain", POLICY, TRACE, "--call", "c2", "--influence", "provenance"],
        1,
        "is_integer(call.arguments.amount)",
    );
    let undeclared = file(
        "undeclared.flow",
        b"lattice integrity: trusted < untrusted\nlabel m as untrusted if:\n    (m: Message)\n",
    );
    let trace = file(
        "undeclared.json",
        br#"[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"my-tool","arguments":"{}"}}]}]"#,
    );
    check(&["explain", name(&undeclared), name(&trace)], 1, "(call: ToolCall) is tool:\"my-tool\"");
}

#[test]
fn a_broken_policy_is_drawn_with_every_mistake() {
    let policy =
        file("broken.flow", b"lattice integrity: a < b, c < b\nlable out as a if:\n    (out: ToolOutput)\n");
    check(&["check", name(&policy)], 2, "`a` and `c` have no meet: no element is below both");
    check(&["check", name(&policy)], 2, "did you mean `label`?");
    check(&["check", name(&policy)], 2, "broken.flow has 2 errors");
    let policy = file("binary.flow", b"lattice \xff");
    check(&["check", name(&policy)], 2, "binary.flow: line 1: not UTF-8 at byte 8");
    let rules_only = file("rules.flow", b"raise \"x\" if:\n    (call: ToolCall) is tool:rm\n");
    check(&["check", name(&rules_only)], 0, "declares no lattice, so labels gate nothing");
}

#[test]
fn the_calls_of_a_message_count_as_they_come() {
    let calls: Vec<String> = (0..3)
        .map(|n| format!(r#"{{"id":"c{n}","function":{{"name":"send","arguments":"{{}}"}}}}"#))
        .collect();
    let trace = format!(r#"[{{"role":"assistant","content":"","tool_calls":[{}]}}]"#, calls.join(","));
    let trace = file("proposed.json", trace.as_bytes());
    for (condition, denied) in [
        ("len(m.tool_calls) > 2", 1),
        ("len(m[\"tool_calls\"]) > 2", 1),
        ("len(m[f\"tool_{'calls'}\"]) > 2", 1),
        ("(c: ToolCall) in m[\"tool_calls\"]\n    c is tool:send", 3),
        ("(c: ToolCall) in m\n    c is tool:send", 3),
        ("(f: Function) in m.tool_calls\n    f.name == \"send\"", 3),
        ("count(min=3):\n        (c: ToolCall) in m\n        c is tool:send", 1),
        ("count(min=3):\n        (f: Function) in [m]\n        f.name == \"send\"", 1),
        ("proposes(m)", 3),
    ] {
        let policy =
            file("proposed.flow", format!("proposes(m: Message) :=\n    (c: ToolCall) in m\n    c is tool:send\nraise \"x\" if:\n    (m: Message)\n    {condition}\n").as_bytes());
        check(&["check", name(&policy), name(&trace)], 1, &format!("{denied} denied"));
    }
}

/// Every row is bad input; what is said names the place, and the verdict is never a plain permit of a payment.
#[test]
fn bad_traces_are_located_or_fail_closed() {
    let pay = |arguments: &str| {
        format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"c1","function":{{"name":"send_money","arguments":{arguments}}}}}]}}"#
        )
    };
    let user = r#"{"role":"user","content":"pay"}"#;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let rows: Vec<(&str, String, i32, &str)> = vec![
        (
            "truncated",
            format!("{user}\n{{\"role\":\"assi"),
            2,
            "line 2: no strict JSON: EOF while parsing a string",
        ),
        (
            "printed over lines",
            format!("{{\"messages\": [{user},\n {user}\n]}}"),
            0,
            "1 run: 0 calls permitted",
        ),
        (
            "cut off",
            format!("{{\"messages\": [{user},\n {user}"),
            2,
            "line 2: no strict JSON: EOF while parsing a list",
        ),
        ("empty", String::new(), 0, "0 runs"),
        ("prose", "Hello\n".into(), 2, "line 1: no strict JSON: expected value at column 1"),
        ("number", "[1]".into(), 2, "line 1, message 0: a message is a JSON object"),
        ("twins", r#"{"role":"user","role":"system"}"#.into(), 2, "duplicate key at column 21"),
        ("deep", format!(r#"[{{"role":"user","content":{deep}}}]"#), 2, "recursion limit exceeded"),
        (
            "no call",
            format!(r#"[{user},{{"role":"tool","tool_call_id":"x","content":"ok"}}]"#),
            1,
            "the output answers no call",
        ),
        ("no output", format!("[{user},{}]", pay(r#""{}""#)), 0, "1 call permitted"),
        (
            "same id",
            format!("[{user},{},{}]", pay(r#""{}""#), pay(r#""{}""#)),
            1,
            "another call has the same id",
        ),
        (
            "two keys",
            format!("[{user},{}]", pay(r#""{\"to\":\"a\",\"to\":\"b\"}""#)),
            1,
            "the arguments are no strict JSON: duplicate key",
        ),
        (
            "big number",
            format!("[{user},{}]", pay(r#""{\"amount\":12345678901234567890}""#)),
            1,
            "number is too large to be exact",
        ),
        ("no object", format!("[{user},{}]", pay(r#""[1]""#)), 1, "the arguments are no JSON object"),
        (
            "no name",
            format!(r#"[{user},{{"role":"assistant","tool_calls":[{{"id":"c"}}]}}]"#),
            2,
            "line 1, message 1: a tool call has no `function.name`",
        ),
    ];
    for (row, trace, code, part) in rows {
        let path = file(&format!("{}.json", row.replace(' ', "-")), trace.as_bytes());
        check(&["check", POLICY, name(&path)], code, part);
    }
    let path = file("latin.json", b"{\"role\":\"user\",\"content\":\"caf\xe9\"}\n");
    check(&["check", POLICY, name(&path)], 2, "latin.json: line 1: not UTF-8 at byte 29");
    let path = file("broken.json.gz", &[0x1f, 0x8b, 8, 0, 1, 2, 3]);
    check(&["check", POLICY, name(&path)], 2, "broken.json.gz: line 1:");
}

#[test]
fn a_line_of_a_hundred_megabytes_is_refused_by_its_number() {
    let mut line = br#"{"role":"user","content":""#.to_vec();
    line.resize(100 << 20, b'x');
    let path = file("long.jsonl", &line);
    check(&["check", POLICY, name(&path)], 2, "long.jsonl: line 1: longer than 64 MiB; split the file");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_corpus_is_summed_up_by_suite() {
    let payment = std::fs::read_to_string(TRACE).unwrap().replace('\n', "");
    let run = |suite: &str, attack: &str, origin: &str| {
        let messages = payment.replace("\"tool_calls\"", &format!("\"origin\": {origin:?}, \"tool_calls\""));
        format!(
            "{{\"suite\":{suite:?},\"attack\":{attack:?},\"attack_succeeded\":true,\"user_task_id\":\"t\",\"messages\":{messages}}}\n"
        )
    };
    let corpus =
        [run("payment", "none", "user"), run("payment", "direct", "injection"), run("other", "none", "user")]
            .concat();
    let path = file("corpus.jsonl", corpus.as_bytes());
    let output = flowgate(&[
        "replay",
        "--policy",
        POLICY,
        "--influence",
        "everything",
        "--format",
        "json",
        name(&path),
    ]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (key, expected) in [
        ("runs", 2),
        ("injected_calls", 2),
        ("injected_permitted", 0),
        ("attacks_succeeded", 0),
        ("benign_tasks", 1),
        ("benign_without_question", 0),
        ("questions", 2),
    ] {
        assert_eq!(line.get(key), Some(&expected.into()), "{key} in {line}");
    }
    assert_eq!(
        (line.get("suite"), line.get("influence")),
        (Some(&"payment".into()), Some(&"everything".into()))
    );
    assert!(text(&output).contains("1 runs of `other` were left out"));
    let everywhere = format!("*={POLICY}");
    check(&["replay", "--policy", &everywhere, "--influence", "all", name(&path)], 0, "all      provenance");
    check(
        &["replay", "--policy", POLICY, "--policy", POLICY, name(&path)],
        2,
        "two policies are called `payment`",
    );
    let elsewhere = format!("nowhere={POLICY}");
    check(&["replay", "--policy", &elsewhere, name(&path)], 2, "no run was judged");
    let broken = file("broken-corpus.jsonl", format!("{{\n{corpus}").as_bytes());
    check(&["replay", "--policy", POLICY, name(&broken)], 2, "no strict JSON");
    // A corpus whose calls have no origin has no figures of attacks.
    let plain = file("plain.jsonl", format!("{{\"messages\":{payment}}}\n").as_bytes());
    let output = flowgate(&["replay", "--policy", POLICY, "--format", "json", name(&plain)]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line.get("injected_calls").is_none() && line.get("benign_tasks") == Some(&1.into()), "{line}");
}

#[test]
fn the_table_of_detectors_is_stable() {
    for (arguments, golden) in [
        (&["bench", "detectors"][..], "bench-detectors.txt"),
        (&["bench", "detectors", "--format", "json"], "bench-detectors.jsonl"),
    ] {
        let output = flowgate(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
        let printed = String::from_utf8(output.stdout).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &printed).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            printed, expected,
            "{golden}; UPDATE_GOLDEN=1 cargo test writes it anew, then read the difference"
        );
    }
    check(&["bench", "detectors", "--help"], 0, "How to read the table:");
    check(&["bench", "detectors", "--content"], 0, "hidden: ZERO_WIDTH");
    check(&["bench", "detectors", "--policy", "no-such.flow"], 2, "no-such.flow: there is no such file");
    check(&["bench"], 2, "Usage: flowgate bench");
}

/// The figures follow the policy: the listing of the paper knows one way to switch previews on, and no rule stops nothing.
#[test]
fn another_policy_gives_other_figures() {
    let listing = file(
        "listing.flow",
        b"raise \"x\" if:\n    (out: ToolOutput) -> (call: ToolCall)\n    out is tool:gsheets_read\n    call is tool:send_slack_message({link_preview: true})\n",
    );
    check(&["bench", "detectors", "--policy", name(&listing)], 1, "stopped 0 of 15 injected messages");
    let nothing = file("nothing.flow", b"");
    let output = flowgate(&["bench", "detectors", "--policy", name(&nothing), "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let last = String::from_utf8(output.stdout).unwrap();
    let figures: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    let share = |key: &str| figures.get(key).and_then(|share| share.get("found")).cloned();
    assert_eq!(share("injected_messages_denied"), Some(0.into()), "{figures}");
    assert_eq!(share("honest_messages_with_preview_permitted"), Some(27.into()), "{figures}");
    assert_eq!(figures.get("rule_holds"), Some(&false.into()));
}

#[test]
fn help_teaches_and_shells_complete() {
    check(&["--help"], 0, "flowgate demo                              see an injected payment stopped");
    check(&["methods"], 0, "provenance  the regions whose values reappear");
    check(&["functions"], 0, "is_date");
    check(&["completions", "bash"], 0, "_flowgate()");
    check(&["man"], 0, ".TH flowgate 1");
}

/// A server that is ended with the test.
#[cfg(all(unix, feature = "gateway"))]
struct Serving(std::process::Child, String);

#[cfg(all(unix, feature = "gateway"))]
impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[cfg(all(unix, feature = "gateway"))]
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

#[cfg(all(unix, feature = "gateway"))]
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

#[cfg(feature = "gateway")]
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

#[cfg(feature = "gateway")]
#[test]
fn predicates_are_answered_by_whom_the_operator_names() {
    use std::io::Read;

    let policy = file(
        "extern.flow",
        b"extern is_customer(email: str) -> bool\nraise \"no customer\" if:\n    (c: ToolCall)\n    not is_customer(c.arguments.to)\n",
    );
    let trace = file(
        "extern.json",
        br#"[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"send","arguments":"{\"to\":\"ann@example.org\"}"}},
            {"id":"2","function":{"name":"send","arguments":"{\"to\":\"eve@example.org\"}"}}]}]"#,
    );
    let (policy, trace) = (name(&policy), name(&trace));
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in service.incoming() {
            let mut stream = stream.unwrap();
            let (mut bytes, mut heard) = ([0; 4096], String::new());
            while !heard.ends_with('}') {
                let count = stream.read(&mut bytes).unwrap();
                heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let answer = format!("{{\"answer\": {}}}", heard.contains("ann@example.org"));
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
            stream.write_all((head + &answer).as_bytes()).unwrap();
        }
    });
    let by = format!("is_customer=http://{address}/");
    check(&["analyze", policy, trace, "--predicate", &by], 1, "messages.0.tool_calls.1\n");
    check(&["analyze", policy, trace, "--predicate", &by], 1, "1 run: 1 match");
    check(&["check", policy, trace, "--predicate", &by], 1, "1 call permitted, 0 to be confirmed, 1 denied");
    check(
        &["explain", policy, trace, "--predicate", &by],
        1,
        "a rule objects: only changing the rule would permit",
    );

    check(&["analyze", policy, trace], 2, "nobody answers `is_customer`; add --predicate is_customer=URL");
    let closed = "is_customer=http://127.0.0.1:1/";
    check(
        &["analyze", policy, trace, "--predicate", closed],
        2,
        "has no answer: the service cannot be reached",
    );
    check(
        &["check", policy, trace, "--predicate", closed],
        1,
        "0 calls permitted, 0 to be confirmed, 2 denied",
    );
    check(&["check", POLICY, TRACE, "--predicate", closed], 2, "declares no `extern is_customer`");
    check(&["check", policy, "--predicate", "is_customer=https://a.b"], 2, "the address begins with http://");
    check(
        &["serve", "--predicate", "a=http://a.b", "--predicate", "a=http://c.d"],
        2,
        "`a` is answered by two",
    );
    #[cfg(not(feature = "wasm"))]
    check(
        &["check", policy, trace, "--predicate", "is_customer=a.wasm"],
        2,
        "build it with `--features wasm`",
    );
    #[cfg(feature = "wasm")]
    {
        // Its answer is `true` for what ends with `n@example.org"]`, and `false` otherwise.
        let module = wat::parse_str(
            r#"(module (memory (export "memory") 1) (data (i32.const 0) "truefalse")
                (func (export "alloc") (param i32) (result i32) i32.const 1024)
                (func (export "is_customer") (param $at i32) (param $length i32) (result i64)
                    local.get $at local.get $length i32.add i32.const 15 i32.sub i32.load8_u i32.const 0x6e i32.eq
                    if (result i64) i64.const 4 else i64.const 0x4_00000005 end))"#,
        );
        let module = format!("is_customer={}", name(&file("checks.wasm", &module.unwrap())));
        check(&["analyze", policy, trace, "--predicate", &module], 1, "messages.0.tool_calls.1\n");
        check(
            &["check", policy, trace, "--predicate", &module],
            1,
            "1 call permitted, 0 to be confirmed, 1 denied",
        );
        let none = format!("is_customer={}", name(&file("none.wasm", b"none")));
        check(
            &["analyze", policy, trace, "--predicate", &none],
            2,
            "none.wasm: it is no WebAssembly module: ",
        );
    }
}

/// A log in which a call was refused, with its content, and the file of the key.
#[cfg(feature = "gateway")]
fn audit_log(folder: &str) -> (PathBuf, PathBuf) {
    use flowgate_gateway::audit::{Content, Event, Forget, Key, Log, Options, Switch, Time};
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (path, key) = (folder.join("audit.jsonl"), folder.join("audit.key"));
    let options = Options { content: Content::Kept, ..Options::default() };
    let log = Log::open(&path, Key::load_or_create(&key).unwrap(), options, Time(0)).unwrap();
    for (conversation, said) in [("c1", "a secret"), ("c2\u{9b}31m", "another")] {
        let reasons = vec!["no secrets".to_owned()];
        let (conversation, client, tenant) = (conversation.to_owned(), "agent".to_owned(), "acme".to_owned());
        let event = Event::ReplyWithheld { conversation, client, tenant, reasons };
        log.append_with(Time(1000), &event, said).unwrap();
    }
    let whose = Forget { conversation: Some("c1".to_owned()), ..Forget::default() };
    log.forget(Time(2000), &whose, "ann").unwrap();
    let stop = Event::KillSwitch { what: "everything".to_owned(), who: "ann".to_owned(), state: Switch::Set };
    log.append(Time(3000), &stop).unwrap();
    log.close(Time(4000)).unwrap();
    (path, folder.join("audit.key.pub"))
}

#[cfg(feature = "gateway")]
#[test]
fn a_changed_audit_log_is_found() {
    let (log, key) = audit_log("audit-verify");
    let (path, key) = (name(&log), name(&key));
    let whole = "audit.jsonl is whole: 8 lines since 1970-01-01T00:00:00.000Z, opened 1 time\n";
    check(&["audit", "verify", path], 0, whole);
    check(&["audit", "verify", path], 0, "note: the key is the log's own word; give the one that you know");
    check(&["audit", "verify", path, "--key", key], 0, "  content   1 kept, 1 forgotten\n");
    let digits = std::fs::read_to_string(key).unwrap();
    check(&["audit", "verify", path, "--key", digits.trim()], 0, &format!("  key       {digits}"));
    let printed = text(&flowgate(&["audit", "verify", path]));
    let head = printed.split_once("  head      ").unwrap().1.get(..64).unwrap();
    check(&["audit", "verify", path, "--head", head], 0, "(line 8)\n  unsigned  0 lines\n");

    let lines = std::fs::read_to_string(&log).unwrap();
    let cut =
        file("audit-cut.jsonl", (lines.lines().take(6).collect::<Vec<_>>().join("\n") + "\n").as_bytes());
    check(&["audit", "verify", name(&cut)], 0, "is whole: 6 lines");
    let missing = format!("line 6: the log ends here without the line {head}: it was cut off");
    check(&["audit", "verify", name(&cut), "--head", head], 1, &missing);
    let open = lines.lines().take(7).collect::<Vec<_>>().join("\n") + "\n";
    let open = file("audit-open.jsonl", open.as_bytes());
    check(&["audit", "verify", name(&open)], 0, "  unsigned  1 line\n");
    check(&["audit", "verify", name(&open)], 0, "note: lines behind the last head are signed by nobody");
    let changed =
        file("audit-changed.jsonl", lines.replace("\"ann\",\"state\"", "\"bob\",\"state\"").as_bytes());
    check(&["audit", "verify", name(&changed)], 1, "audit-changed.jsonl: line 8: it does not follow from");
    let other = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    check(&["audit", "verify", path, "--key", other], 1, "line 1: the log was begun with another key");
    let contents = log.with_file_name("audit.jsonl.content");
    let kept = std::fs::read_to_string(&contents).unwrap();
    std::fs::write(&contents, kept.replace("another", "altered")).unwrap();
    check(&["audit", "verify", path], 1, "line 4: its content is not what was recorded: it was changed");
    check(&["audit", "show", path, "--content"], 1, "line 4: its content is not what was recorded");
    std::fs::remove_file(&contents).unwrap();
    let missing = "0 kept, 1 forgotten, 1 missing that the log does not say were forgotten\n";
    check(&["audit", "verify", path], 0, missing);

    check(&["audit", "verify", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["audit", "verify", path, "--key", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["audit", "verify", path, "--key", path], 2, "no public key: give 64 hexadecimal digits");
    check(&["audit", "verify", path, "--head", "5f2c"], 2, "expected the hash of a line: 64 hexadecimal");
    check(&["audit", "verify", "--help"], 0, "A log that was cut off behind a head is whole.");
}

#[cfg(feature = "gateway")]
#[test]
fn an_audit_log_is_listed() {
    let (log, _) = audit_log("audit-show");
    let path = name(&log);
    let listed = text(&flowgate(&["audit", "show", path]));
    let kinds: Vec<&str> = listed.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(kinds, ["kind", "opened", "reply-withheld", "reply-withheld", "forgotten", "kill-switch"]);
    check(&["audit", "show", path], 0, "1970-01-01T00:00:01.000Z  reply-withheld        c2\\u{9b}31m");
    check(&["audit", "show", path, "--json"], 0, "\"conversation\":\"c2\\u009b31m\"");
    let json = ["audit", "show", path, "--conversation", "c1", "--json"];
    assert_eq!(text(&flowgate(&json)).lines().count(), 2);
    let lines = std::fs::read_to_string(&log).unwrap();
    let swapped = lines.replace("\"seq\":3", "\"seq\":4");
    let swapped = file("audit-swapped.jsonl", swapped.as_bytes());
    check(&["audit", "show", name(&swapped)], 1, "error: ");
    check(&["audit", "show", name(&swapped)], 1, "line 4: `seq` is 4, and should be 3");
    check(&["audit", "show", "no-such-file"], 2, "no-such-file: there is no such file");
    check(&["audit", "show", "--help"], 0, "--json | jq 'select(.verdict == \"deny\")'");
}

#[cfg(feature = "gateway")]
#[test]
fn content_is_shown_and_deleted() {
    let (log, _) = audit_log("audit-forget");
    let path = name(&log);
    let contents = log.with_file_name("audit.jsonl.content");
    let before = std::fs::read_to_string(&contents).unwrap();
    check(
        &["audit", "show", path, "--content"],
        0,
        "reply-withheld        c1                                                                   agent\n    (gone)\n",
    );
    check(&["audit", "show", path, "--content"], 0, "agent\n    another\n");
    check(&["audit", "show", path, "--content", "--json"], 0, "\"said\":null}\n");
    check(&["audit", "show", path, "--content", "--json"], 0, "\"said\":\"another\"}\n");

    check(&["audit", "forget", path], 2, "required");
    check(
        &["audit", "forget", "no-such-file", "--client", "agent"],
        2,
        "no-such-file: there is no such file",
    );
    let no_key = ["audit", "forget", path, "--client", "agent", "--key-file", "no-such-file"];
    check(&no_key, 2, "no-such-file: there is no such file");
    check(&["audit", "forget", path, "--client", "agent", "--tenant", "other"], 0, "0 contents were deleted");
    let busy = std::fs::File::open(log.with_file_name("audit.jsonl.lock")).unwrap();
    busy.lock().unwrap();
    check(&["audit", "forget", path, "--client", "agent"], 2, "another process appends to this log: stop it");
    drop(busy);
    check(&["audit", "forget", path, "--client", "agent"], 0, "1 content was deleted; the log says so");
    check(&["audit", "verify", path], 0, "  content   0 kept, 2 forgotten\n");
    assert_eq!(std::fs::read_to_string(&contents).unwrap(), "");
    // What was deleted comes back from somewhere.
    std::fs::write(&contents, before).unwrap();
    let again = "1 kept, 1 forgotten, 1 there again that the log says were forgotten\n";
    check(&["audit", "verify", path], 0, again);
}
