//! Tests of `flowgate scan`, `flowgate wrap` and `flowgate unwrap`, in a home folder of their own.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::init::folder;
use crate::{POLICY, check, flowgate, name, text};

const DESKTOP: &str = "{\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]\n    },\n    \"mail\": {\"command\": \"uvx\", \"args\": [\"mail-mcp\", \"--token\", \"S3CRET\"]},\n    \"odd\\u001b[2J\": {\"command\": \"python3\", \"args\": [\"x.py\"]},\n    \"notion\": {\"url\": \"https://me:S3CRET@mcp.notion.com/mcp?key=S3CRET\"}\n  },\n  \"theme\": 1.50\n}\n";
const CODEX: &str =
    "# mine\n[mcp_servers.fetch] # web\ncommand = \"uvx\" # run\nargs = [\"mcp-server-fetch\"]\n";

/// Creates a home folder with configurations of three clients.
fn home(test: &str) -> PathBuf {
    let home = folder(test);
    for (path, content) in [
        (".config/Claude/claude_desktop_config.json", DESKTOP),
        (".codex/config.toml", CODEX),
        (
            ".cursor/mcp.json",
            "{\"mcpServers\": {\"time\": {\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}}, // mine\n}",
        ),
        (".gemini/settings.json", "{bad"),
    ] {
        let path = home.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    home
}

fn desktop(home: &Path) -> PathBuf {
    home.join(".config/Claude/claude_desktop_config.json")
}

#[test]
fn scan_names_what_can_leak() {
    let home = home("scan");
    let arguments = ["scan", "--home", name(&home), "--project", name(&home)];
    let output = flowgate(&arguments);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "files         npx @modelcontextprotocol/server-filesystem                -           yes   yes        -\n",
        "odd\\u{1b}[2J",
        "! Claude Desktop can leak: a text that a stranger wrote (by way of mail, notion) can make it send private data (of files, mail, \
         notion) away (by way of files, mail, notion)\n",
        "! Codex can leak: a text that a stranger wrote (by way of fetch) can make it send private data (of Codex itself) away",
        "3 clients, 6 servers: 0 guarded; names say nothing about 1, which may do anything\n",
        "Bypasses Flowgate: Claude Desktop (files, mail, odd\\u{1b}[2J, notion); Cursor (its own tools, without a hook, time); \
         Codex (its own tools, without a hook, fetch)\n",
        "settings.json: the file is not valid JSON: ",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let json = flowgate(&[&arguments[..], &["--format", "json"]].concat());
    let printed = String::from_utf8(json.stdout).unwrap();
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["clients"][0]["combination"]["kind"], "leaks");
    assert_eq!(document["clients"][1]["combination"], Value::Null, "a clock alone leaks nothing");
    assert!(!said.contains("S3CRET") && !printed.contains("S3CRET"), "keys are not printed");
    check(&["scan", "--home", name(&home.join("none"))], 2, "there is no home folder; name one with --home");
}

/// `init` drafts a policy for the servers of all clients that a scan has found, starts none of them, and says which it
/// cannot use.
#[test]
fn a_scan_becomes_a_policy() {
    let home = home("scan-init");
    // Another client has the same server as Cursor, and a different one with a name of Claude Desktop.
    let windsurf = home.join(".codeium/windsurf/mcp_config.json");
    std::fs::create_dir_all(windsurf.parent().unwrap()).unwrap();
    let same = r#"{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}, "files": {"command": "other"}, "wiki": {"serverUrl": "https://wiki.example/mcp"}}}"#;
    std::fs::write(&windsurf, same).unwrap();
    let found = flowgate(&["scan", "--home", name(&home), "--project", name(&home), "--format", "json"]);
    let (scan, policy) = (home.join("scan.json"), home.join("scan.flow"));
    std::fs::write(&scan, &found.stdout).unwrap();
    let output = flowgate(&["init", name(&scan), "--out", name(&policy)]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "odd\\u{1b}[2J`: policies cannot use this name",
        "the server `files`: another file configures a different server of this name; rename one of them",
        // Its address contains a password.
        "the server `notion`: its `url` is not a URL",
        "nothing was started",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(!said.contains("S3CRET"), "{said}");
    let written = std::fs::read_to_string(&policy).unwrap();
    for server in ["files", "mail", "fetch", "time", "wiki"] {
        let comment = format!("# {server}: its tools are unknown, so all of them stay closed.");
        assert_eq!(written.matches(&comment).count(), 1, "{server}\n{written}");
    }
    // A file that is gone since.
    std::fs::remove_file(&windsurf).unwrap();
    check(&["init", name(&scan), "--out", "-"], 2, "mcp_config.json: there is no such file");
}

/// A client without servers still reads files and runs commands by itself: without a hook, that passes by Flowgate.
#[test]
fn scan_names_what_bypasses_flowgate() {
    let home = folder("scan-bypass");
    let settings = home.join(".claude/settings.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let arguments = ["scan", "--home", name(&home), "--project", name(&home)];
    let bypass = || {
        let json = flowgate(&[&arguments[..], &["--format", "json"]].concat());
        let document: Value = serde_json::from_slice(&json.stdout).unwrap();
        document["clients"][0]["bypass"].clone()
    };
    std::fs::write(&settings, "{}").unwrap();
    check(&arguments, 0, "Bypasses Flowgate: Claude Code (its own tools, without a hook)\n");
    assert_eq!(bypass(), serde_json::json!({"own_tools": true, "servers": []}));
    let hook = serde_json::json!({"type": "command", "command": "flowgate hook --policy p.flow"});
    let hooks = serde_json::json!({"hooks": {"PreToolUse": [{"hooks": [hook]}]}});
    std::fs::write(&settings, hooks.to_string()).unwrap();
    assert!(!text(&flowgate(&arguments)).contains("Bypasses"));
    assert_eq!(bypass(), Value::Null);
}

/// VS Code keeps its servers under `servers`, in a file of the user on each system, in its settings, and in a project.
#[test]
fn scan_finds_the_files_of_vs_code() {
    let (home, project) = (folder("scan-vscode"), folder("scan-vscode-project"));
    let servers = |name: &str| {
        format!(r#"{{"servers": {{"{name}": {{"command": "uvx", "args": ["mcp-server-fetch"]}}}}}}"#)
    };
    for (folder, path, text) in [
        (&home, ".config/Code/User/mcp.json", servers("linux")),
        (&home, "Library/Application Support/Code/User/mcp.json", servers("mac")),
        (&home, "AppData/Roaming/Code/User/mcp.json", servers("windows")),
        (&home, ".config/Code/User/settings.json", format!(r#"{{"mcp": {}}}"#, servers("settings"))),
        (&project, ".vscode/mcp.json", servers("project")),
    ] {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let json = flowgate(&["scan", "--home", name(&home), "--project", name(&project), "--format", "json"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    let client = &document["clients"][0];
    assert_eq!(client["client"], "vscode", "{document}");
    let files = client["files"].as_array().unwrap();
    let found: Vec<&str> = files.iter().filter_map(|file| file["servers"][0]["name"].as_str()).collect();
    assert_eq!(found, ["linux", "mac", "windows", "settings", "project"], "{document}");
}

/// A client with the hook of Flowgate is guarded, and so is a server behind `flowgate mcp`.
#[test]
fn scan_knows_what_is_guarded() {
    let home = folder("scan-guarded");
    std::fs::create_dir_all(home.join(".claude")).unwrap();
    std::fs::write(
        home.join(".claude.json"),
        r#"{"mcpServers": {"web": {"command": "uvx", "args": ["mcp-server-fetch"]}}}"#,
    )
    .unwrap();
    let hook = |command: &str| {
        let hooks = serde_json::json!({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]}});
        std::fs::write(home.join(".claude/settings.json"), hooks.to_string()).unwrap();
    };
    let arguments = ["scan", "--home", name(&home), "--project", name(&home)];
    hook("/opt/check --token S3CRET");
    check(&arguments, 1, "Claude Code can leak");
    assert!(!text(&flowgate(&arguments)).contains("S3CRET"));
    hook("/usr/bin/flowgate hook --policy /etc/p.flow || exit 2");
    check(&arguments, 0, "  guards /usr/bin/flowgate\n");
    hook("true");
    check(
        &["wrap", "claude-code", "--home", name(&home), "--policy", POLICY],
        0,
        "1 server runs behind `flowgate mcp`",
    );
    check(&arguments, 0, "1 client, 1 server: 1 guarded");
}

#[test]
fn wrapping_is_undone_byte_for_byte() {
    let home = home("wrap");
    let wrap = [
        "wrap",
        "claude-desktop",
        "--home",
        name(&home),
        "--policy",
        POLICY,
        "--flowgate",
        "/opt/fg",
        "--interactive",
    ];
    // A trial changes nothing.
    check(&[&wrap[..], &["--dry-run"]].concat(), 1, "mail: /opt/fg mcp --policy ");
    assert_eq!(std::fs::read_to_string(desktop(&home)).unwrap(), DESKTOP);
    check(&wrap, 1, "claude_desktop_config.json: 2 servers run behind `flowgate mcp`");
    check(&wrap, 1, "notion: the server has an address, but `flowgate mcp` guards only programs");
    check(&wrap, 1, "odd\\u{1b}[2J: a policy cannot name the server by its name");
    let wrapped = std::fs::read_to_string(desktop(&home)).unwrap();
    let guard = |name: &str| {
        format!(
            "\"/opt/fg\", \"args\": [\"mcp\", \"--policy\", \"{POLICY}\", \"--name\", \"{name}\", \"--interactive\", \"--\", "
        )
    };
    let expected = DESKTOP
        .replace(
            "\"npx\",\n      \"args\": [",
            &guard("files")
                .replace(", \"args\"", ",\n      \"args\"")
                .replace("\"--\", ", "\"--\", \"npx\", "),
        )
        .replace("\"uvx\", \"args\": [", &guard("mail").replace("\"--\", ", "\"--\", \"uvx\", "));
    assert_eq!(wrapped, expected);
    // Again: nothing changes, and there is no second backup.
    check(&wrap, 1, "nothing to change");
    let backup = home.join(".config/Claude/claude_desktop_config.json.flowgate-backup");
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), DESKTOP);
    assert!(!home.join(".config/Claude/claude_desktop_config.json.flowgate-backup-2").exists());
    check(&["unwrap", "claude-desktop", "--home", name(&home)], 0, "2 servers run without `flowgate mcp`");
    assert_eq!(std::fs::read_to_string(desktop(&home)).unwrap(), DESKTOP);
    assert!(!backup.exists(), "it is the file again");
    check(&["unwrap", "claude-desktop", "--home", name(&home)], 0, "no server runs behind `flowgate mcp`");
}

/// What the person changed after `wrap` stays after `unwrap`.
#[test]
fn later_changes_stay() {
    let home = home("wrap-later");
    let file = home.join(".codex/config.toml");
    let wrap = ["wrap", "codex", "--home", name(&home), "--policy", POLICY];
    check(&wrap, 0, "1 server runs behind `flowgate mcp`");
    let later =
        format!("{}\n[mcp_servers.time]\ncommand = \"uvx\"\n", std::fs::read_to_string(&file).unwrap());
    std::fs::write(&file, &later).unwrap();
    check(&wrap, 0, "1 server runs behind `flowgate mcp`");
    check(&["unwrap", "codex", "--home", name(&home)], 0, "2 servers run without");
    let now = std::fs::read_to_string(&file).unwrap();
    assert_eq!(now.replace("args = []\n", ""), format!("{CODEX}\n[mcp_servers.time]\ncommand = \"uvx\"\n"));
}

#[cfg(unix)]
#[test]
fn a_backup_has_no_more_readers_than_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = home("wrap-mode");
    let file = home.join(".codex/config.toml");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    check(&["wrap", "codex", "--home", name(&home), "--policy", POLICY], 0, "1 server");
    assert_eq!((mode(&file), mode(&home.join(".codex/config.toml.flowgate-backup"))), (0o600, 0o600));
}

#[test]
fn mistakes_change_nothing() {
    let home = home("wrap-mistakes");
    let of = |client: &'static str, more: &[&'static str]| -> Vec<String> {
        let words = ["wrap", client, "--home", name(&home), "--policy", POLICY];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    for (arguments, part) in [
        (of("nope", &[]), "there is no client `nope`; known are: claude-code, claude-desktop, cursor"),
        (of("windsurf", &[]), "Windsurf has no configuration at "),
        (of("gemini", &[]), "settings.json: the file is not valid JSON: "),
        (of("codex", &["--server", "nope"]), "there is no server `nope`; its servers: fetch"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        check(&arguments, 2, part);
    }
    let bad = crate::file("wrap-bad.flow", b"lattice\n");
    check(&["wrap", "codex", "--home", name(&home), "--policy", name(&bad)], 2, "wrap-bad.flow has 1 error");
    assert_eq!(std::fs::read_to_string(home.join(".codex/config.toml")).unwrap(), CODEX);
}
