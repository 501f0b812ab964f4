//! Tests of `flowgate run` with real servers as child processes, and a scripted model.

#![cfg(feature = "run")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod agents;
#[cfg(all(unix, feature = "gateway"))]
mod approvals;
#[cfg(feature = "bench")]
mod games;
#[cfg(unix)]
mod grants;
#[cfg(all(unix, feature = "gateway"))]
mod keys;
mod program;
#[cfg(feature = "local")]
mod screener;
#[cfg(all(unix, feature = "gateway"))]
mod watched;

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use program::{DOUBLES, EXAMPLE, ModelServerDouble, err, example, file, flowgate, folder, out, outbox, run};

const FETCH: &str = r#"web__fetch {"url": "https://example.org/news"}"#;

#[test]
fn a_page_is_hidden_and_a_slot_passes_its_summary_on() {
    let folder = folder("guarded");
    let send = r#"mail__send_mail {"to": "bob@example.org", "subject": "News", "body": {"$slot": {"regions": ["h1"], "fill": "sum up"}}}"#;
    let model = ModelServerDouble::new(&[FETCH, send, "Otters are back.", "Bob has it."]);
    let prompt = "Send Bob a summary of https://example.org/news";
    let more = [
        "--labels",
        "--record",
        "answers.jsonl",
        "--trace",
        "trace.jsonl",
        "--key-from",
        "MODEL_KEY",
        "--small-model",
        "small",
        prompt,
    ];
    let output = run(&folder, &example(&model, &more), "");
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "Bob has it.\n"), "{}", err(&output));

    let sent = json!({"to": "bob@example.org", "subject": "News", "body": "Otters are back."});
    assert_eq!(outbox(&folder), std::slice::from_ref(&sent));
    for step in [0, 1, 3] {
        assert!(!model.shown(step).contains("IGNORE"), "{}", model.shown(step));
    }
    assert!(model.shown(1).contains("[hidden h1]"), "{}", model.shown(1));
    assert!(model.shown(2).contains("IGNORE") && model.tools(2).is_empty(), "only who has no tools reads it");
    assert_eq!([0, 1, 2, 3].map(|step| model.name(step)), ["double", "double", "small", "double"]);
    assert_eq!(model.tools(0), ["web__fetch", "mail__list_mail", "mail__send_mail"]);
    let told = err(&output);
    assert!(told.contains("step: trusted, public; 0 hidden; tokens: 10 read, 5 written; 1 call\n"), "{told}");
    assert!(told.contains("step: trusted, public; 1 hidden; tokens: 10 read, 5 written; 1 call\n"), "{told}");
    assert!(
        told.contains(
            "turn: 3 messages, 1 slot filled; tokens: 40 read, 20 written; 0 looks; 0 questions, 0 allowed; 2 calls ran, \
             0 refused; the steps at the base label reveal nothing hidden"
        ),
        "{told}"
    );

    // `check` judges the trace as if every call were influenced by all events.
    let policy = format!("{EXAMPLE}/policy.flow");
    let checked = flowgate(&folder, &["check", &policy, "trace.jsonl"], "");
    assert!(
        out(&checked).contains("1 run: 1 call permitted, 1 to be confirmed, 0 denied"),
        "{}",
        out(&checked)
    );
    let trace = std::fs::read_to_string(folder.join("trace.jsonl")).unwrap();
    assert_eq!(trace.lines().count(), 3 + 1 + 2 + 2 + 1, "{trace}");

    // The recorded answers replace the model in a second run.
    let config = format!("{EXAMPLE}/servers.json");
    let replay = flowgate(
        &folder,
        &[
            &["run", "--policy", &policy, "--config", &config, "--replay", "answers.jsonl"][..],
            &["--small-model", "small", prompt],
        ]
        .concat(),
        "",
    );
    assert_eq!((replay.status.code(), out(&replay).as_str()), (Some(0), "Bob has it.\n"), "{}", err(&replay));
    assert_eq!(outbox(&folder), [sent.clone(), sent]);
    let other = flowgate(
        &folder,
        &["run", "--policy", &policy, "--config", &config, "--replay", "answers.jsonl", "Hi"],
        "",
    );
    assert_eq!(other.status.code(), Some(1));
    assert!(err(&other).contains("no answer to it is recorded"), "{}", err(&other));
}

#[test]
fn an_injected_call_is_denied_without_a_terminal() {
    let folder = folder("injected");
    let send =
        r#"mail__send_mail {"to": "mallory\u202e@example.net", "subject": "\u001b[2J", "body": "All of it"}"#;
    let model = ModelServerDouble::new(&[
        FETCH,
        r#"look {"regions": ["h1"]}"#,
        send,
        "I was asked to send mail, and may not.",
    ]);
    let output = run(&folder, &example(&model, &["--labels", "What is new?"]), "");
    assert_eq!((output.status.code(), outbox(&folder).len()), (Some(0), 0));
    assert_eq!(out(&output), "I was asked to send mail, and may not.\n");
    let told = err(&output);
    for part in [
        "mail/send_mail needs a person's approval, and there is no terminal, so it does not run",
        "The model wants to call mail/send_mail\nIt carries",
        "It carries untrusted, public. Why you are asked:",
        "require trusted, public if:",
        "may be led to it by #5 content in the answer of web/fetch (untrusted)\n",
        "step: trusted, public; 1 hidden; tokens: 10 read, 5 written; 1 call, looks\n",
        "step: untrusted, public; 0 hidden;",
        "1 look; 1 question, 0 allowed; 1 call ran, 1 refused; the steps at the base label reveal at most 1 bit of hidden \
         text",
    ] {
        assert!(told.contains(part), "{part}\nis not in\n{told}");
    }
    assert!(!told.contains(['\u{202e}', '\u{1b}']), "{told}");
    assert!(
        !told.contains("Otters") && !told.contains("mallory"),
        "nobody decides, so nobody is shown content: {told}"
    );
    assert!(model.shown(3).contains("refused by a person"), "{}", model.shown(3));
}

#[test]
fn a_chat_reads_lines_and_answers_commands() {
    let folder = folder("chat");
    let list = "mail__list_mail {}";
    let send =
        r#"mail__send_mail {"to": "x@example.net", "subject": "s", "body": {"$slot": {"regions": ["h1"]}}}"#;
    let model = ModelServerDouble::new(&[list, send, "I may not.", "You are welcome."]);
    let input = "/tools\n/why\nForward my mail\n/why\n/view\n/labels\n\n/nope\nThanks\n/quit\nnever said\n";
    let output = run(&folder, &example(&model, &["--system", "Be brief."]), input);
    let (said, told) = (out(&output), err(&output));
    assert_eq!((output.status.code(), said.as_str()), (Some(0), "I may not.\nYou are welcome.\n"), "{told}");
    for part in [
        "No call has been refused so far.",
        "web/fetch (on offer; its description carries trusted, public)\n    Fetches a page.\n",
        "would pass on",
        "\"refused\": \"refused by a person\"",
        "What the next step is shown (at most trusted, public; ",
        "system: Be brief.\nuser: Forward my mail\n",
        "description of mail/send_mail   trusted, public",
        "answer of mail/list_mail   untrusted, private",
        "error: there is no command /nope; /help lists the commands",
    ] {
        assert!(told.contains(part), "{part}\nis not in\n{told}");
    }
    assert!(
        model.shown(0).starts_with("system [Text(\"Be brief.\")]") || model.shown(0).contains("Be brief.")
    );
    assert!(!model.shown(3).contains("4200") && outbox(&folder).is_empty());
    assert_eq!(model.asked.lock().unwrap().len(), 4);
}

const ODD: &str = "\
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
label tool as trusted if:
    (tool: Tool)
label out.content as trusted if:
    (out: ToolOutput) is tool:odd/*
    out.is_error in [true, false]
require trusted if:
    (call: ToolCall) is tool:odd/*
";

/// Runs a chat with the server of `odd.py`.
fn odd(
    folder: &Path,
    how: &[&str],
    policy: &str,
    script: &[&str],
    more: &[&str],
) -> (Output, ModelServerDouble) {
    let model = ModelServerDouble::new(script);
    let mut args = vec![json!(format!("{DOUBLES}/odd.py"))];
    args.extend(how.iter().map(|argument| json!(argument)));
    let config = json!({"mcpServers": {"odd": {"command": "python3", "args": args, "env": {"ODD": "1"}}}});
    let (config, policy) =
        (file(folder, "servers.json", &config.to_string()), file(folder, "policy.flow", policy));
    let mut arguments =
        vec!["run", "--policy", &policy, "--config", &config, "--url", &model.url, "--model", "m"];
    arguments.extend(more);
    let output = flowgate(folder, &arguments, "");
    (output, model)
}

#[test]
fn a_server_that_dies_is_an_error_of_its_call_and_is_started_again() {
    let folder = folder("dies");
    let flag = folder.join("died");
    let script = ["odd__do {}", "odd__do {}", "Done."];
    let more = ["--key-from", "MODEL_KEY", "Do it."];
    let (output, model) = odd(&folder, &["dies", flag.to_str().unwrap()], ODD, &script, &more);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "Done.\n"), "{}", err(&output));
    let told = err(&output);
    let note = "note: the server `odd` ended; the next call of one of its tools restarts it; its last output: out of memory";
    assert!(told.contains(note), "{told}");
    assert!(
        model.shown(1).contains("the server ended during the call, which may have run"),
        "{}",
        model.shown(1)
    );
    assert!(model.shown(2).contains("done ["), "{}", model.shown(2));
    assert!(model.shown(2).contains("ODD") && !model.shown(2).contains("MODEL_KEY"), "{}", model.shown(2));
}

#[test]
fn calls_have_limits() {
    let folder = folder("limits");
    for (how, more, expected) in [
        ("slow", ["--call-time", "1", "Do it."], "the tool did not answer within 1 s; it may have run"),
        (
            "large",
            ["--call-time", "30", "Do it."],
            "the tool's answer is larger than 4194304 bytes; ask for less",
        ),
        ("paged", ["--call-time", "30", "Do it."], "done ["),
        ("chatty", ["--call-time", "30", "Do it."], "done ["),
    ] {
        let (output, model) = odd(&folder, &[how], ODD, &["odd__do {}", "Done."], &more);
        assert_eq!(out(&output), "Done.\n", "{how}: {}", err(&output));
        assert!(model.shown(1).contains(expected), "{how}: {}", model.shown(1));
        assert!(!model.shown(0).contains("IGNORE"), "nobody is told a server's instructions");
        let tools = if how == "paged" { vec!["odd__first", "odd__do"] } else { vec!["odd__do"] };
        assert_eq!(model.tools(0), tools, "{how}");
    }
}

#[test]
fn configuration_mistakes_are_named_with_advice() {
    let folder = folder("errors");
    let policy = file(&folder, "policy.flow", ODD);
    let check = |config: &str, more: &[&str], expected: &str| {
        let config = file(&folder, "servers.json", config);
        let mut arguments =
            vec!["run", "--policy", &policy, "--url", "http://127.0.0.1:9/v1", "--model", "m"];
        arguments.extend(["--config", &config].into_iter().chain(more.iter().copied()).chain(["Hi"]));
        let output = flowgate(&folder, &arguments, "");
        assert_eq!(output.status.code(), Some(2), "{expected}\n{}", err(&output));
        let expected = format!("error: {}\n", expected.replace("FILE", &config));
        assert_eq!(err(&output), expected);
    };
    let one = |entry: Value| json!({"mcpServers": {"odd": entry}}).to_string();
    let python = |how: &str| one(json!({"command": "python3", "args": [format!("{DOUBLES}/odd.py"), how]}));
    check("{", &[], "FILE: the file is not valid JSON: EOF while parsing an object at line 1 column 1");
    check(
        &one(json!({"command": "x", "env": {"KEY": "${NO_SUCH_KEY}"}})),
        &[],
        "FILE: the server `odd`: its `env.KEY` needs the variable NO_SUCH_KEY, which is not set; set it, or write \
         ${NO_SUCH_KEY:-default}",
    );
    check(
        &one(json!({"command": "no-such-program"})),
        &[],
        "the server `odd` cannot be started: its program or its working folder does not exist; try to run \
        `no-such-program` by hand",
    );
    check(
        &python("mute"),
        &[],
        "the server `odd` cannot be used: the server ended or closed the connection before it answered `initialize` (no such\\u{1b}[2J \
        licence); try to run `python3` by hand",
    );
    check(
        &python("listless"),
        &[],
        "the server `odd` does not list its tools: the server answered: no list today; try to run `python3` by hand",
    );
    check(
        &python("endless"),
        &[],
        "the server `odd` lists its tools on more pages than Flowgate reads (1000 pages); configure the server to list more \
        tools on each page, or to offer fewer",
    );
    check(
        &one(json!({"url": "http://127.0.0.1:9/mcp"})),
        &[],
        "the server `odd` cannot be used: no connection can be established; check its `url` and `headers`",
    );
    let none = r#"{"mcpServers": {}}"#;
    check(
        none,
        &["--key-from", "NO_SUCH_KEY"],
        "`--key-from`: the environment variable NO_SUCH_KEY is not set; set it to the key of the model server",
    );
    check(none, &["--system", "@no-such-file"], "no-such-file: there is no such file; check the path");
    check(none, &["--replay", "no-such-file"], "no-such-file: there is no such file; check the path");
    check(none, &["--trace", "no/such/folder"], "no/such/folder: there is no such file; check the path");
    let output = flowgate(&folder, &["run", "--policy", &policy, "Hi"], "");
    let which = "error: the command line names no model: name it with `--model` and its server with `--url`, \
        such as `--url http://localhost:8080/v1`\n";
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(2), which));
}

/// Returns the statement at the end of a note, without its indentation.
fn statement(told: &str) -> String {
    let lines = told.lines().skip_while(|line| !line.starts_with("  label "));
    lines
        .take_while(|line| line.starts_with("  "))
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap()))
        .collect()
}

#[test]
fn hidden_items_are_reported_at_start_with_the_missing_statement() {
    let folder = folder("hidden");
    let without = |part: &str| ODD.replace(part, "");
    let tools = without("label tool as trusted if:\n    (tool: Tool)\n");
    let (output, model) = odd(&folder, &["plain"], &tools, &["Hello."], &["Hi"]);
    let told = err(&output);
    let note = "note: steps at the base label (trusted) do not offer these tools of `odd`, whose descriptions have labels \
                that do not flow to it: do; to offer them, add\n  \
                label tool as trusted if:\n      (tool: Tool)\n      tool.server == \"odd\"\n";
    assert_eq!((told.as_str(), model.tools(0).len()), (note, 0));
    let (output, model) =
        odd(&folder, &["plain"], &format!("{tools}{}", statement(&told)), &["Hello."], &["Hi"]);
    assert_eq!((err(&output).as_str(), model.tools(0)), ("", vec!["odd__do".to_owned()]));

    // A pattern for tools applies to their descriptions as well.
    let pattern = ODD.replace("(tool: Tool)\n", "(tool: Tool) is tool:odd/*\n");
    let (output, model) = odd(&folder, &["plain"], &pattern, &["Hello."], &["Hi"]);
    assert_eq!((err(&output).as_str(), model.tools(0)), ("", vec!["odd__do".to_owned()]));

    let messages = without("label message as trusted if:\n    (message: Message)\n");
    let (output, model) = odd(&folder, &["plain"], &messages, &["Hello."], &["Hi"]);
    let told = err(&output);
    let expected = format!(
        "error: the policy hides the user's own messages from the model; add to {}\n  label message as trusted if:\n      \
         (message: Message)\n      message.role == \"user\"\n",
        folder.join("policy.flow").display()
    );
    assert_eq!((output.status.code(), told.as_str()), (Some(2), expected.as_str()));
    assert!(model.asked.lock().unwrap().is_empty());
    let (output, model) =
        odd(&folder, &["plain"], &format!("{messages}{}", statement(&told)), &["Hello."], &["Hi"]);
    assert_eq!(out(&output), "Hello.\n");
    assert!(model.shown(0).contains("Hi"));
    let (output, _) = odd(&folder, &["plain"], &messages, &["Hello."], &["--method", "everything", "Hi"]);
    assert_eq!(out(&output), "Hello.\n");
}

#[test]
fn a_reply_that_a_rule_forbids_is_withheld() {
    let folder = folder("withheld");
    let rule = "raise \"no passwords\" if:\n    (m: Message)\n    m.role == \"assistant\"\n    \"hunter2\" in m.content\n";
    let policy = format!("{ODD}{rule}");
    let (output, _) = odd(&folder, &["plain"], &policy, &["It is hunter2."], &["--labels", "Hi"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""));
    let told = err(&output);
    assert!(told.contains("note: a reply of the model was withheld: no passwords\n"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn the_help_shows_how() {
    let output = flowgate(&folder("help"), &["run", "--help"], "");
    for part in
        ["--policy examples/run/policy.flow", "\"mcpServers\"", "tool.server == \"mail\"", "Exit codes:"]
    {
        assert!(out(&output).contains(part), "{}", out(&output));
    }
}

/// A process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the double of a server over HTTP. Returns its process and its address.
fn http_server() -> (KillOnDrop, String) {
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

/// Runs the example at a terminal; `steps` lists the expected outputs and the lines to type after them.
fn at_terminal(folder: &Path, model: &ModelServerDouble, steps: &Value) -> (Option<i32>, String) {
    at_terminal_under(&format!("{EXAMPLE}/policy.flow"), folder, model, steps)
}

/// Does the same under another policy, of which `policy` is the path.
fn at_terminal_under(
    policy: &str,
    folder: &Path,
    model: &ModelServerDouble,
    steps: &Value,
) -> (Option<i32>, String) {
    let mut arguments = example(model, &["--color", "never"]);
    let example_policy = format!("{EXAMPLE}/policy.flow");
    for argument in arguments.iter_mut().filter(|argument| **argument == example_policy) {
        policy.clone_into(argument);
    }
    let output = Command::new("python3")
        .arg(format!("{DOUBLES}/terminal.py"))
        .arg(steps.to_string())
        .arg(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .env("OUTBOX", folder.join("outbox"))
        .output()
        .unwrap();
    (output.status.code(), format!("{}{}", out(&output), err(&output)).replace("\r\n", "\n"))
}

#[test]
#[cfg(unix)]
fn a_person_at_the_terminal_decides() {
    let folder = folder("terminal");
    let send = r#"mail__send_mail {"to": "bob\u202e@example.org", "subject": "News", "body": "\u001b[2J"}"#;
    let script = [
        FETCH,
        "look {\"regions\": [\"h1\"]}",
        send,
        "Sent.",
        FETCH,
        "look {\"regions\": [\"h1\"]}",
        send,
        "Not sent.",
    ];
    let model = ModelServerDouble::new(&script);
    let steps = json!([
        ["› ", "Tell Bob\n"],
        ["[y/N/?] ", "?\n"],
        ["nothing else is allowed by it", ""],
        ["[y/N/?] ", "y\n"],
        ["Sent.", ""],
        ["› ", "Again\n"],
        ["[y/N/?] ", "\n"],
        ["Not sent.", ""],
        ["› ", "\u{4}"],
    ]);
    let (code, shown) = at_terminal(&folder, &model, &steps);
    assert_eq!((code, outbox(&folder).len()), (Some(0), 1), "{shown}");
    for part in [
        "    {\n      \"to\": \"bob\\u202e@example.org\",\n      \"subject\": \"News\",\n      \"body\": \"\\u001b[2J\"\n    }\n",
        "may be led to it by #5 content in the answer of web/fetch (untrusted)\n      “Otters are back",
        "Not sent.",
    ] {
        assert!(shown.contains(part), "{part}\nis not in\n{shown}");
    }
    assert!(!shown.contains('\u{202e}') && !shown.contains("\u{1b}[2J"), "{shown}");
}

/// The calls of one message are shown together, and one answer is for all of them.
#[test]
#[cfg(unix)]
fn one_answer_is_for_all_calls_of_a_message() {
    let folder = folder("card");
    let send = |to: &str| {
        format!(r#"mail__send_mail {{"to": "{to}@example.org", "subject": "News", "body": "Otters"}}"#)
    };
    let (both, look) = (format!("{}\n{}", send("bob"), send("eve")), "look {\"regions\": [\"h1\"]}");
    let model = ModelServerDouble::new(&[FETCH, look, &both, "Sent.", FETCH, look, &both, "Not sent."]);
    let prompt = "mail/send_mail: allow this call once, or all 2 calls once? [y/a/d/N/?] ";
    let steps = json!([
        ["› ", "Tell Bob and Eve\n"],
        [prompt, "a\n"],
        ["Sent.", ""],
        ["› ", "Again\n"],
        [prompt, "d\n"],
        ["Not sent.", ""],
        ["› ", "\u{4}"],
    ]);
    let (code, shown) = at_terminal(&folder, &model, &steps);
    let to: Vec<Value> = outbox(&folder).iter().map(|mail| mail["to"].clone()).collect();
    assert_eq!((code, to), (Some(0), vec![json!("bob@example.org"), json!("eve@example.org")]), "{shown}");
    for part in [
        "The model wants to call mail/send_mail\n    {\n      \"to\": \"bob@example.org\",\n",
        "The model then wants to call mail/send_mail\n    {\n      \"to\": \"eve@example.org\",\n",
        "One answer can be for all 2 calls: a allows each of them once, d denies all of them.\n",
    ] {
        assert_eq!(shown.matches(part).count(), 2, "{part}\nis not twice in\n{shown}");
    }
    // One text in the first card; in the second one also the answers of the first turn.
    assert_eq!(shown.matches("(untrusted), as quoted above\n").count(), 1 + 4, "{shown}");
}

#[test]
#[cfg(unix)]
fn ctrl_c_stops_a_turn_and_twice_the_chat() {
    let folder = folder("interrupt");
    let model = ModelServerDouble::new(&["wait", "Here I am.", "wait"]);
    let steps = json!([
        ["› ", "Hello\n"],
        ["the model writes", "\u{3}"],
        ["the turn was stopped", ""],
        ["› ", "Are you there?\n"],
        ["Here I am.", ""],
        ["› ", "Again\n"],
        ["the model writes", "\u{3}"],
        ["being stopped", ""],
        ["› ", "\u{3}"],
        ["Ctrl-C again quits", "\u{3}"],
    ]);
    let (code, shown) = at_terminal(&folder, &model, &steps);
    assert_eq!(code, Some(130), "{shown}");
    assert!(
        model.shown(1).contains("Hello") && model.shown(1).contains("Are you there?"),
        "{}",
        model.shown(1)
    );
}
