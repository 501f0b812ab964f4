//! Tests of `flowgate mcp` in front of scripted servers: the input and output of the program.

#![cfg(all(unix, feature = "run"))]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A server that prints a banner, answers requests, and ends in the middle of a line.
const SERVER: &str = r#"
import json, sys
print("starting up", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/list":
        result = {"tools": [{"name": "read_file", "description": "reads", "inputSchema": {"type": "object"}},
                            {"name": "write_file", "description": "writes", "inputSchema": {"type": "object"}}]}
    elif asked.get("method") == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(asked["params"]["arguments"])}]}
        if asked["params"]["arguments"].get("end"):
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), end="", flush=True)
            sys.exit(3)
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

fn policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mcp/policy.flow")
}

fn run(server: &[&str], more: &[&str], said: &[Value]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("mcp").arg("--policy").arg(policy()).args(more).arg("--");
    command.args(server).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for message in said {
        // The program may have ended already.
        let _ = writeln!(input, "{message}");
    }
    drop(input);
    child.wait_with_output().unwrap()
}

fn call(id: u64, name: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
}

/// Returns a short form of each answer.
fn answers(output: &Output) -> Vec<String> {
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = |line: &str| {
        let answer: Value = serde_json::from_str(line).unwrap();
        let refused = answer.pointer("/result/isError").is_some();
        let kind = if refused {
            "refused"
        } else if answer.get("error").is_some() {
            "error"
        } else {
            "result"
        };
        format!("{} {kind}", answer["id"])
    };
    lines.lines().map(shown).collect()
}

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
}

/// The server answers the list after the calls were sent, so no tool is on offer yet.
#[test]
fn a_client_that_ends_gets_the_rest() {
    let output =
        run(&["python3", "-c", SERVER], &["--name", "files"], &[list(), call(2, "write_file", &json!({}))]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(answers(&output).contains(&"1 result".to_owned()), "{output:?}");
    assert!(
        said.contains("dropped 1 line of the server's standard output that were not messages of MCP; let the server write its log to the standard error"),
        "{said}"
    );
}

/// All output of a server that ends is processed, and waiting requests are answered.
#[test]
fn the_output_of_an_ended_server_is_processed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("mcp").arg("--policy").arg(policy()).args(["--name", "files", "--", "python3", "-c", SERVER]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut answer = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap_or_default()
    };
    writeln!(input, "{}", list()).unwrap();
    assert_eq!(answer()["result"]["tools"][1]["name"], "write_file");
    writeln!(input, "{}", call(2, "read_file", &json!({"path": "a"}))).unwrap();
    assert_eq!(answer()["result"]["content"][0]["text"], "{\"path\": \"a\"}");
    writeln!(input, "{}", call(3, "write_file", &json!({"path": "a"}))).unwrap();
    assert_eq!(answer()["result"]["isError"], true);
    writeln!(input, "{}", call(4, "read_file", &json!({"end": true}))).unwrap();
    assert_eq!(answer()["result"]["content"][0]["text"], "{\"end\": true}");
    assert_eq!(answer(), Value::Null);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the MCP server ended"));
}

/// Sends the messages one after the other, each after the answer to the one before. Returns the answers, and the output of the
/// program.
fn exchange(more: &[&str], said: &[Value]) -> (Vec<Value>, Output) {
    exchange_with(&policy(), SERVER, more, said)
}

/// Does the same with this policy and the program of this server.
fn exchange_with(policy: &Path, server: &str, more: &[&str], said: &[Value]) -> (Vec<Value>, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("mcp").arg("--policy").arg(policy).args(["--name", "files"]).args(more);
    command.args(["--", "python3", "-c", server]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut answers = Vec::new();
    for message in said {
        writeln!(input, "{message}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        answers.push(serde_json::from_str(&line).unwrap_or_default());
    }
    drop(input);
    (answers, child.wait_with_output().unwrap())
}

/// In watch mode, the call that the policy stops runs and is reported; `flowgate report` sums it up.
#[test]
fn a_watching_proxy_stops_nothing() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-watch.jsonl");
    let _ = std::fs::remove_file(&log);
    let said =
        [list(), call(2, "read_file", &json!({"path": "a"})), call(3, "write_file", &json!({"path": "a"}))];
    let (answers, _) = exchange(&[], &said);
    assert_eq!(answers[2]["result"]["isError"], true, "{answers:?}");

    let (answers, output) = exchange(&["--watch", log.to_str().unwrap()], &said);
    assert_eq!(answers[2]["result"]["content"][0]["text"], "{\"path\": \"a\"}", "{answers:?}");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("watch mode: nothing is stopped, asked about or hidden"), "{printed}");
    assert!(
        printed.contains("watch mode: the call of `files/write_file` passes; with enforcement it is"),
        "{printed}"
    );
    let report = Command::new(env!("CARGO_BIN_EXE_flowgate")).arg("report").arg(&log).output().unwrap();
    let summary = String::from_utf8_lossy(&report.stdout).into_owned();
    assert_eq!(report.status.code(), Some(1), "{summary}");
    assert!(summary.starts_with("4 events in 1 day: 3 permitted"), "{summary}");
    assert!(summary.contains("files/write_file"), "{summary}");
    // A person cannot be asked in a mode that asks nobody.
    let (_, refused) = exchange(&["--watch", log.to_str().unwrap(), "--interactive"], &[]);
    assert_eq!(refused.status.code(), Some(2));
}

/// A server with a mail of a stranger, and a calendar.
const MAIL_SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/list":
        result = {"tools": [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("read_mail", "book")]}
    elif asked.get("method") == "tools/call":
        text = '{"day": "2024-05-19"}' if asked["params"]["name"] == "read_mail" else "booked"
        result = {"content": [{"type": "text", "text": text}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

/// Two watched sessions are recorded, and `flowgate suggest` finds the change that lets their calls pass.
#[test]
fn watched_sessions_lead_to_the_change_of_the_policy() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-traces");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (policy, log, traces) = (folder.join("mail.flow"), folder.join("watch.jsonl"), folder.join("traces"));
    std::fs::write(
        &policy,
        "lattice integrity: trusted < untrusted\nlabel tool as trusted if:\n    (tool: Tool) is tool:files/*\n\
         label out.content as untrusted if:\n    (out: ToolOutput) is tool:files/read_mail\n\
         require untrusted if:\n    (call: ToolCall) is tool:files/read_mail\n\
         require trusted if:\n    (call: ToolCall) is tool:files/book\n",
    )
    .unwrap();
    let said = [list(), call(2, "read_mail", &json!({})), call(3, "book", &json!({"day": "2024-05-19"}))];
    for _ in 0..2 {
        let options = ["--watch", log.to_str().unwrap(), "--traces", traces.to_str().unwrap()];
        let (answers, output) = exchange_with(&policy, MAIL_SERVER, &options, &said);
        assert_eq!(answers[2]["result"]["content"][0]["text"], "booked", "{answers:?}");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains("with the content of calls and answers"), "{printed}");
    }
    assert_eq!(std::fs::read_dir(&traces).unwrap().count(), 2, "a file for each session");
    let mut suggest = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    suggest.arg("suggest").args([&policy, &traces]).args(["--influence", "provenance"]);
    let output = suggest.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "2 useful runs, of which not permitted without a question: 2 (2 calls); with the changes below, 0 (0 calls)",
        "endorse call.arguments.day as trusted if:",
    ] {
        assert!(printed.contains(part), "{printed}{output:?}");
    }
    // Only watched sessions are recorded.
    let (_, refused) = exchange(&["--traces", traces.to_str().unwrap()], &[]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn an_unusable_server_is_reported_in_one_line() {
    let check = |server: &[&str], more: &[&str], expected: &str| {
        let output = run(server, more, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    check(
        &["no-such-program"],
        &[],
        "the server's command `no-such-program` cannot be started: no program of this name was found; try to \
        run it by hand",
    );
    check(&["true"], &["--name", "flow gate"], "no policy can refer to a server of this name");
    check(&["true"], &["--pins", "no-such-file"], "run once with `--accept-new`");
    check(&["true"], &["--accept-new"], "--pins");
}

/// A server that fails on a call: it ends or writes malformed output, at a position that a private note determines.
const FAILING: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/list":
        tool = lambda name: {"name": name, "inputSchema": {"type": "object"}}
        result = {"tools": [tool("note"), tool("size"), tool("post")]}
    elif asked.get("method") == "tools/call":
        how = asked["params"]["arguments"].get("how")
        head = '{"jsonrpc":"2.0","id":%s,"result":' % asked["id"]
        lines = {"twice": head + '{"a":"%s","b":1,"b":2}}' % ("x" * 4803),
                 "surrogate": head + '{"content":[{"type":"text","text":"xx\\ud800"}]}}',
                 "large": head + '"%s"}' % ("x" * (5 << 20)),
                 "cut": head + '{"cont'}
        if how == "end":
            sys.exit(3)
        if how:
            print(lines[how], flush=True)
            continue
        result = {"content": [{"type": "text", "text": "done"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

const NOTES: &str = "lattice secrecy: public < private
label tool as public if:
    (tool: Tool)
label out.content as private if:
    (out: ToolOutput) is tool:notes/note
label out.content as public if:
    (out: ToolOutput) is tool:notes/size
label out.content as public if:
    (out: ToolOutput) is tool:notes/post
require private if:
    (call: ToolCall) is tool:notes/*
require public else deny if:
    (call: ToolCall) is tool:notes/post
";

/// All failures have the same message and the label of the tool, at this server and at the client's other ones.
#[test]
fn a_failed_call_has_a_constant_text_and_the_label_of_its_tool() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mcp-failing");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let policy = folder.join("notes.flow");
    std::fs::write(&policy, NOTES).unwrap();
    let mut told: Option<Value> = None;
    for how in ["twice", "surrogate", "large", "cut", "end"] {
        for (tool, may_post) in [("note", false), ("size", true)] {
            let session = folder.join(format!("{how}-{tool}.json"));
            let mut children = Vec::new();
            let mut begin = || {
                let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
                command.arg("mcp").arg("--policy").arg(&policy).arg("--session").arg(&session);
                command.args(["--name", "notes", "--", "python3", "-c", FAILING]);
                let mut child = command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let mut input = child.stdin.take().unwrap();
                let mut output = BufReader::new(child.stdout.take().unwrap());
                children.push(child);
                let mut ask = move |message: &Value| {
                    writeln!(input, "{message}").unwrap();
                    let mut line = String::new();
                    output.read_line(&mut line).unwrap();
                    serde_json::from_str::<Value>(&line).unwrap()
                };
                assert_eq!(ask(&list())["result"]["tools"][0]["name"], "note");
                ask
            };
            let (mut first, mut second) = (begin(), begin());
            let answer = first(&call(7, tool, &json!({"how": how})));
            assert_eq!(*told.get_or_insert_with(|| answer.clone()), answer, "{how} {tool}");
            let posted = second(&call(8, "post", &json!({})));
            let is_posted = posted["result"]["content"][0]["text"] == "done";
            assert_eq!(is_posted, may_post, "{how} {tool}: {posted}");
            drop((first, second));
            for mut child in children {
                child.wait().unwrap();
            }
        }
    }
    assert_eq!(told.unwrap()["result"]["isError"], true);
}

/// A server that records calls and never answers them.
const SILENT: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("note", "size", "post")]
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": tools}}), flush=True)
    elif asked.get("method") == "tools/call":
        if asked["params"]["name"] == "post":
            content = [{"type": "text", "text": "done"}]
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": content}}), flush=True)
        else:
            open(asked["params"]["arguments"]["mark"], "w").close()
"#;

/// A client that ends the program during a call knows how long the call took: its other servers receive the label of
/// the outcome.
#[test]
fn a_call_that_runs_when_the_program_is_ended_has_an_outcome() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mcp-ended");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let policy = folder.join("notes.flow");
    std::fs::write(&policy, NOTES).unwrap();
    for (tool, may_post) in [("note", false), ("size", true)] {
        let (session, mark) = (folder.join(format!("{tool}.json")), folder.join(format!("{tool}.called")));
        let begin = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
            command.arg("mcp").arg("--policy").arg(&policy).arg("--session").arg(&session);
            command.args(["--name", "notes", "--", "python3", "-c", SILENT]);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            writeln!(input, "{}", list()).unwrap();
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            (child, input, output)
        };
        let (mut first, mut input, _output) = begin();
        writeln!(input, "{}", call(7, tool, &json!({"mark": mark}))).unwrap();
        while !mark.exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(Command::new("kill").arg(first.id().to_string()).status().unwrap().success());
        first.wait().unwrap();
        let (mut second, mut input, mut output) = begin();
        writeln!(input, "{}", call(8, "post", &json!({}))).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let posted: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(posted["result"]["content"][0]["text"] == "done", may_post, "{tool}: {posted}");
        drop(input);
        second.wait().unwrap();
    }
}

/// A server that writes its number and that does not end when its input is closed.
const STUBBORN: &str = r#"
import json, os, signal, sys
open(sys.argv[1], "w").write(str(os.getpid()))
asked = json.loads(sys.stdin.readline())
result = {"tools": [{"name": "read_file", "description": "reads", "inputSchema": {"type": "object"}}]}
print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
signal.pause()
"#;

/// A session that ends with an error, here because another program has broken the file of labels, ends its server too.
#[test]
fn an_error_at_the_end_of_a_session_leaves_no_server() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mcp-broken-labels");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (labels, number) = (folder.join("labels.json"), folder.join("number"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("mcp").arg("--policy").arg(policy()).args(["--name", "files", "--session"]).arg(&labels);
    command.args(["--", "python3", "-c", STUBBORN]).arg(&number);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", list()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    std::fs::write(&labels, "broken").unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    // The server is killed, but its entry goes only when the process that inherits it has waited for it.
    let number = std::fs::read_to_string(&number).unwrap();
    let is_running = || {
        let state = Command::new("ps").args(["-o", "stat=", "-p", &number]).output().unwrap().stdout;
        !matches!(state.trim_ascii().first(), None | Some(b'Z'))
    };
    let has_ended = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !is_running()
    });
    if !has_ended {
        let _ = Command::new("kill").arg(&number).status();
    }
    assert!(has_ended, "the server {number} still runs");
}
