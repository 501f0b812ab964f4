//! Tests of `flowgate run` with real servers as child processes, and a scripted model.

#![cfg(feature = "run")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod agents;
#[cfg(all(unix, feature = "gateway"))]
mod approvals;
mod elsewhere;
#[cfg(feature = "bench")]
mod games;
#[cfg(unix)]
mod grants;
#[cfg(all(unix, feature = "gateway"))]
mod keys;
mod logins;
mod program;
#[cfg(feature = "local")]
mod screener;
#[cfg(unix)]
mod terminal;
#[cfg(all(unix, feature = "gateway"))]
mod watched;

use std::path::Path;
use std::process::Output;

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
        "may have been led to this call by #5 content in the answer of web/fetch (untrusted)\n",
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
        "the server `odd` cannot be used: the server ended or closed the connection before it answered `initialize` (its last output: no such\\u{1b}[2J \
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
        "the environment variable NO_SUCH_KEY is not set; set it to the key of the model server, or name another variable",
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
                that do not flow to it: do; to offer them, add to the policy\n  \
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
        "error: the policy hides the user's own messages from the model; to show them, add to {}\n  label message as trusted if:\n      \
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
