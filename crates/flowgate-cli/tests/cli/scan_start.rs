//! Tests of `flowgate scan --start`: what is asked before a server is started, what its tools say, why a server gives
//! none, and that every server is ended.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::init::folder;
use crate::{check, flowgate, name, text};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/run");

/// Creates a home folder in which Claude Desktop has these servers.
fn home(test: &str, servers: &Value) -> PathBuf {
    let home = folder(&format!("scan-start-{test}"));
    configure(&home, ".config/Claude/claude_desktop_config.json", servers);
    home
}

/// Writes a configuration with these servers.
fn configure(home: &Path, file: &str, servers: &Value) {
    let path = home.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, json!({"mcpServers": servers}).to_string()).unwrap();
}

/// Returns the arguments of a scan in this home folder. The limit is never reached, however busy the machine is.
fn arguments(home: &Path) -> Vec<String> {
    let words = ["scan", "--home", name(home), "--project", name(home), "--start", "--seconds", "600"];
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs a scan with further arguments, without a terminal.
fn scan(home: &Path, more: &[&str]) -> Output {
    let arguments = arguments(home);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    flowgate(&arguments)
}

/// Runs a scan at a terminal, and types these answers, one at each question.
fn scan_at_terminal(home: &Path, answers: &[&str]) -> Output {
    let steps: Vec<[String; 2]> =
        answers.iter().map(|answer| ["[y/N] ".to_owned(), format!("{answer}\n")]).collect();
    Command::new("python3")
        .args([
            &format!("{TESTS}/run/terminal.py"),
            &json!(steps).to_string(),
            env!("CARGO_BIN_EXE_flowgate"),
        ])
        .args(arguments(home))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn example(server: &str) -> Value {
    json!({"command": "python3", "args": ["server.py", server], "cwd": EXAMPLES})
}

fn odd(how: &str) -> Value {
    json!({"command": "python3", "args": [format!("{TESTS}/run/odd.py"), how]})
}

/// The tools decide about the combinations, not the names of the servers, which suggest nothing here.
#[test]
fn tools_say_what_can_leak() {
    let home = home("tools", &json!({"my own": example("mail"), "x": example("web")}));
    let output = scan(&home, &["--yes"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "note: starting my own of Claude Desktop: python3 server.py mail (in ",
        "  my own       python3              yes           yes   yes        -\n",
        "    list_mail  reads                yes           yes     -\n",
        "    send_mail  acts                   -             -   yes\n",
        "! Claude Desktop can leak: a text that a stranger wrote (by way of my own/list_mail, x/fetch) can make it send private data (of \
         my own/list_mail) away (by way of my own/send_mail, x/fetch)\n",
        "1 client, 2 servers: 0 guarded; 0 servers did not list tools; 0 tools may do more than the name says\n",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let json = scan(&home, &["--yes", "--format", "json"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    let server = &document["clients"][0]["files"][0]["servers"][0];
    assert_eq!(server["judged_by"], "tools");
    assert_eq!(
        server["tools"][1],
        json!({"name": "send_mail", "effect": "acts", "reads_strangers": false, "reads_private": false, "acts": true, "suspicious": false})
    );
    assert_eq!(document["clients"][0]["combination"]["acts"], json!(["my own/send_mail", "x/fetch"]));
    // A server that only reads cannot be made to act, whatever its name suggests.
    let home = self::home(
        "reads",
        &json!({"gmail": {"command": "python3", "args": [format!("{TESTS}/cli/reading_server.py")]}}),
    );
    check(&["scan", "--home", name(&home), "--project", name(&home)], 1, "Claude Desktop can leak");
    let output = scan(&home, &["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains(
            "gmail: a description resembles an instruction to the model, or has hidden characters: list_mail"
        ),
        "{}",
        text(&output)
    );
}

/// A server that does not list its tools is guessed by its name, and the reason is shown.
#[test]
fn servers_that_list_nothing_are_guessed() {
    for (server, why) in [
        (
            odd("mute"),
            "cannot be used: the server ended or closed the connection before it answered `initialize` (its last output: no such\\u{1b}[2J licence)",
        ),
        (odd("listless"), "does not list its tools: the server answered: no list today"),
        (
            json!({"command": "no-such-program-anywhere"}),
            "cannot be started: its program or its working folder does not exist",
        ),
        (
            json!({"command": "x", "args": ["${NO_SUCH_VARIABLE}"]}),
            "its `args` needs the variable NO_SUCH_VARIABLE, which is not set",
        ),
        (json!({"command": "x", "url": "http://127.0.0.1:1"}), "the entry has both `command` and `url`"),
        (json!({"url": "http://127.0.0.1:1/mcp"}), "cannot be used: "),
    ] {
        let home = home("silent", &json!({"mail": server}));
        let output = scan(&home, &["--yes"]);
        let said = text(&output);
        assert!(said.contains(&format!("  mail: {why}")), "{why}\n{said}");
        assert!(said.contains("; guessed by its name\n"), "{said}");
        assert!(said.contains("(by way of mail (by its name))"), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
        let document: Value =
            serde_json::from_slice(&scan(&home, &["--yes", "--format", "json"]).stdout).unwrap();
        let server = &document["clients"][0]["files"][0]["servers"][0];
        assert_eq!((&server["judged_by"], &server["tools"]), (&json!("name"), &Value::Null));
        assert!(server["unlisted"].is_string(), "{server}");
    }
}

/// An extension of Claude Desktop is started with its folder in the place of `${__dirname}`.
#[test]
fn an_extension_is_started_with_its_folder() {
    let home = folder("scan-start-extension");
    let extension = home.join(".config/Claude/Claude Extensions/reader");
    let server = json!({"command": "python3", "args": ["${__dirname}/server.py"]});
    std::fs::create_dir_all(&extension).unwrap();
    std::fs::copy(format!("{TESTS}/cli/reading_server.py"), extension.join("server.py")).unwrap();
    let manifest = json!({"name": "reader", "server": {"type": "python", "mcp_config": server}});
    std::fs::write(extension.join("manifest.json"), manifest.to_string()).unwrap();
    let said = text(&scan(&home, &["--yes"]));
    let started = format!("starting reader of Claude Desktop: python3 '{}/server.py'", extension.display());
    assert!(said.contains(&started) && said.contains("    list_mail  reads"), "{started}\n{said}");
}

/// Nothing is started unseen.
#[test]
fn nothing_is_started_without_a_yes() {
    let home = folder("scan-start-unseen");
    let started = home.join("started");
    // `touch` creates both files, one of them with an escape sequence in its name.
    let escape = home.join("a\u{1b}[2J");
    let touch =
        json!({"command": "touch", "args": [name(&started), name(&escape)], "env": {"API_KEY": "S3CRET"}});
    configure(&home, ".cursor/mcp.json", &json!({"a": touch}));
    // The same server, which is asked about once.
    configure(&home, ".config/Claude/claude_desktop_config.json", &json!({"b": touch}));
    let output = scan(&home, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("there is no terminal at which the command can ask before it starts a server")
    );
    assert!(!started.exists());
    for answers in ["n", "", "Yes please"] {
        let output = scan_at_terminal(&home, &[answers]);
        let said = text(&output);
        let (file, folder) = (name(&started), name(&home));
        let asked = format!("    touch {file} '{folder}/a\\u{{1b}}[2J' (with API_KEY=...)\r\n");
        assert!(said.contains(&asked), "{asked}\n{said}");
        assert_eq!(said.matches("Start it to list its tools? [y/N] ").count(), 1, "{said}");
        assert_eq!(said.matches("was not started, as you said; guessed by its name").count(), 2, "{said}");
        assert!(!said.contains("S3CRET"), "{said}");
        assert!(!started.exists(), "{answers}\n{said}");
    }
    let output = scan_at_terminal(&home, &["y"]);
    assert!(started.exists(), "{}", text(&output));
    // What is too long to be read is not asked about.
    std::fs::remove_file(&started).unwrap();
    let home =
        self::home("long", &json!({"a": {"command": "touch", "args": [name(&started), "x".repeat(3000)]}}));
    let said = text(&scan_at_terminal(&home, &[]));
    assert!(said.contains("a: was not started: its command line or address is too long"), "{said}");
    assert!(!started.exists());
}

/// Each server gets its own answer.
#[test]
fn each_server_is_asked_about() {
    let home = home("each", &json!({"mail": example("mail"), "web": example("web")}));
    let said = text(&scan_at_terminal(&home, &["n", "y"]));
    assert!(said.contains("mail: was not started, as you said") && said.contains("    fetch"), "{said}");
    assert!(!said.contains("list_mail"), "{said}");
}

/// A server that hangs is ended: after the limit, and after Ctrl-C.
#[test]
fn servers_are_ended() {
    for hangs_at in ["initialize", "tools/list"] {
        for is_interrupted in [false, true] {
            let home = folder("scan-start-hangs");
            let pid_file = home.join("pid");
            let server = json!({"command": "python3", "args": [format!("{TESTS}/cli/hanging_server.py"), hangs_at, name(&pid_file)]});
            configure(&home, ".config/Claude/claude_desktop_config.json", &json!({"mail": server}));
            let seconds = if is_interrupted { "600" } else { "3" };
            let child = Command::new(env!("CARGO_BIN_EXE_flowgate"))
                .args([
                    "scan",
                    "--home",
                    name(&home),
                    "--project",
                    name(&home),
                    "--start",
                    "--yes",
                    "--seconds",
                    seconds,
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            if is_interrupted {
                while !pid_file.exists() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                let pid = child.id().to_string();
                assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
            }
            let output = child.wait_with_output().unwrap();
            let said = text(&output);
            let (code, part) = match is_interrupted {
                true => (130, "error: Ctrl-C has stopped the servers, so there is no result"),
                false => (1, "mail: does not list its tools: there was no answer within 3 s"),
            };
            assert_eq!(output.status.code(), Some(code), "{hangs_at}\n{said}");
            assert!(said.contains(part), "{hangs_at}\n{said}");
            // On a very busy machine, the server may not have begun within the limit.
            if let Ok(pid) = std::fs::read_to_string(&pid_file) {
                let state = Command::new("ps").args(["-o", "stat=", "-p", &pid]).output().unwrap().stdout;
                let state = String::from_utf8(state).unwrap();
                // A process that was killed can still be listed, as a zombie.
                assert!(state.is_empty() || state.starts_with('Z'), "{hangs_at}: {state}");
            }
        }
    }
}
