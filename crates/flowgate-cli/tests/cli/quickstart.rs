//! Runs the commands of `docs/quickstart.md`, in a copy of the folder that it names.

#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::init::folder;
use crate::text;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Copies the examples that the page uses into the folder of a test, and returns the folder of the commands.
fn examples(test: &str) -> std::path::PathBuf {
    let folder = folder(test);
    for example in ["quickstart", "run"] {
        std::fs::create_dir_all(folder.join(example)).unwrap();
        for entry in std::fs::read_dir(Path::new(ROOT).join("examples").join(example)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                std::fs::copy(entry.path(), folder.join(example).join(entry.file_name())).unwrap();
            }
        }
    }
    folder.join("quickstart")
}

/// Returns the commands in the console blocks of the page, without `$ `.
fn commands() -> Vec<String> {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/quickstart.md")).unwrap();
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).map(|line| line.strip_prefix("$ ").unwrap().to_owned()).collect()
}

/// Every command of the page works, in the order of the page. The gateway is not started, but its configuration is read.
#[test]
fn the_commands_of_the_page_work() {
    let folder = examples("quickstart");
    let before = std::fs::read_to_string(folder.join("servers.json")).unwrap();
    let (mut variables, mut count) = (vec![("HOME".to_owned(), folder.display().to_string())], 0);
    for line in commands() {
        if let Some((variable, value)) = line.strip_prefix("export ").and_then(|line| line.split_once('=')) {
            variables.push((variable.to_owned(), value.to_owned()));
            continue;
        }
        let (words, comment) = line.split_once(" # ").unwrap_or((&line, ""));
        let mut words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(words.remove(0), "flowgate", "{line}");
        if !cfg!(feature = "gateway") && (words[0] == "serve" || words.contains(&"--config")) {
            continue;
        }
        if words[0] == "serve" {
            words.push("--check");
        }
        let expected = if comment.contains("exits with 1") { 1 } else { 0 };
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.current_dir(&folder).args(&words).stdin(Stdio::null());
        let output = command.envs(variables.iter().cloned()).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{line}\n{}", text(&output));
        count += 1;
    }
    assert!(count >= 7, "{count} commands");
    assert_eq!(
        std::fs::read_to_string(folder.join("servers.json")).unwrap(),
        before,
        "the last command restores it"
    );
}

/// From an `mcpServers` file to a stopped injection: two commands, and then the client calls the servers as before.
#[test]
fn an_injection_is_stopped_behind_wrapped_servers() {
    let folder = examples("quickstart-live");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        let output = command.current_dir(&folder).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}\n{}", text(&output));
    };
    run(&["init", "servers.json", "--start", "--out", "servers.flow"]);
    run(&["wrap", "--file", "servers.json", "--policy", "servers.flow"]);
    let servers: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("servers.json")).unwrap()).unwrap();
    let mail = &servers["mcpServers"]["mail"];
    let arguments: Vec<&str> =
        mail["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut command = Command::new(mail["command"].as_str().unwrap());
    command.args(arguments).current_dir(folder.join(mail["cwd"].as_str().unwrap()));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut ask = |id: u64, method: &str, params: Value| -> Value {
        use std::io::{BufRead as _, Write as _};
        writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let client = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    ask(1, "initialize", client);
    let tools = ask(2, "tools/list", json!({}));
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(2), "{tools}");
    // Before it has read a mail, the agent sends what its user asks for.
    let to = |to: &str| json!({"name": "send_mail", "arguments": {"to": to, "subject": "s", "body": "b"}});
    let honest = ask(3, "tools/call", to("ann@example.org"));
    assert_eq!(honest["result"]["isError"], false, "{honest}");
    let read = ask(4, "tools/call", json!({"name": "list_mail", "arguments": {}}));
    assert_eq!(read["result"]["isError"], false, "{read}");
    let injected = ask(5, "tools/call", to("mallory@example.net"));
    assert_eq!(injected["result"]["isError"], true, "{injected}");
    drop(input);
    child.wait().unwrap();
}
