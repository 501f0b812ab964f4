//! Tests of `flowgate scan`, `flowgate wrap` and `flowgate unwrap`, in a home folder of their own.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::init::folder;
use crate::{POLICY, check, flowgate, name, text};

const DESKTOP: &str = "{\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]\n    },\n    \"mail\": {\"command\": \"uvx\", \"args\": [\"mail-mcp\", \"--token\", \"S3CRET\"]},\n    \"odd\\u001b[2J\": {\"command\": \"python3\", \"args\": [\"x.py\"]},\n    \"notion\": {\"url\": \"https://me:S3CRET@mcp.notion.com/mcp?key=S3CRET\"}\n  },\n  \"theme\": 1.50\n}\n";
const CODEX: &str =
    "# mine\n[mcp_servers.fetch] # web\ncommand = \"uvx\" # run\nargs = [\"mcp-server-fetch\"]\n";

/// Writes a file, and the folders that it needs.
fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Returns settings in the form of Claude Code with one hook.
fn hooks(event: &str, matcher: &str, command: &str) -> String {
    let hook = serde_json::json!({"matcher": matcher, "hooks": [{"type": "command", "command": command}]});
    serde_json::json!({"hooks": {event: [hook]}}).to_string()
}

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
        write(&home.join(path), content);
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
        "3 clients, 6 servers: 0 guarded; 1 server may do anything, since the name suggests nothing\n",
        "Bypasses Flowgate: Claude Desktop (files, mail, odd\\u{1b}[2J, notion); Cursor (its own tools, without a hook, time); \
         Codex (its own tools, without a hook, fetch)\n",
        "settings.json: the file is not valid JSON: ",
        "Not read, so servers and hooks may be missing above: Gemini CLI: file ",
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
        "the server `notion`: its `url` is not an HTTP address, or has a user name",
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
    // It guards, and calls pass if its program is missing.
    check(
        &arguments,
        0,
        "  guards flowgate; if it cannot run, calls pass: end its command with `|| exit 2`\n",
    );
    let json = flowgate(&[&arguments[..], &["--format", "json"]].concat());
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["clients"][0]["files"][0]["hooks_that_fail_open"], 1, "{document}");
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
        (&home, ".config/Code/User/profiles/-7f3a/mcp.json", servers("profile")),
        (&home, ".config/Code - Insiders/User/mcp.json", servers("insiders")),
        (&project, ".vscode/mcp.json", servers("project")),
    ] {
        write(&folder.join(path), &text);
    }
    // A folder of profiles may have files, and profiles without servers.
    write(&home.join(".config/Code/User/profiles/state.json"), "{}");
    std::fs::create_dir_all(home.join(".config/Code/User/profiles/empty")).unwrap();
    let json = flowgate(&["scan", "--home", name(&home), "--project", name(&project), "--format", "json"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    let client = &document["clients"][0];
    assert_eq!(client["client"], "vscode", "{document}");
    let files = client["files"].as_array().unwrap();
    let found: Vec<&str> = files.iter().filter_map(|file| file["servers"][0]["name"].as_str()).collect();
    assert_eq!(
        found,
        ["linux", "mac", "windows", "settings", "profile", "insiders", "project"],
        "{document}"
    );
}

/// What an administrator configures for all users is read below the root, and not with another home folder alone.
#[test]
fn scan_finds_what_is_configured_for_all_users() {
    let (home, root) = (folder("scan-system"), folder("scan-system-root"));
    let server = r#"{"mcpServers": {"web": {"command": "uvx", "args": ["mcp-server-fetch"]}}}"#;
    write(&root.join("etc/claude-code/managed-mcp.json"), server);
    write(
        &root.join("etc/codex/config.toml"),
        "[mcp_servers.web]\ncommand = \"uvx\"\nargs = [\"mcp-server-fetch\"]\n",
    );
    write(&root.join("Library/Application Support/GeminiCli/settings.json"), server);
    write(&home.join(".gemini/extensions/fetch/gemini-extension.json"), server);
    let arguments = ["scan", "--home", name(&home), "--project", name(&home)];
    check(&arguments, 1, "1 client, 1 server: 0 guarded");
    let with_root = [&arguments[..], &["--root", name(&root)]].concat();
    check(&with_root, 1, "3 clients, 4 servers: 0 guarded");
    let json = flowgate(&[&with_root[..], &["--format", "json"]].concat());
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    let scopes = |client: usize| -> Vec<&str> {
        let files = document["clients"][client]["files"].as_array().unwrap();
        files.iter().filter_map(|file| file["scope"].as_str()).collect()
    };
    assert_eq!((scopes(0), scopes(2)), (vec!["system"], vec!["user", "system"]), "{document}");
    // A hook for all users guards, and a user cannot switch it off.
    let hook = hooks("PreToolUse", "*", "flowgate hook --policy /etc/p.flow || exit 2");
    write(&root.join("etc/claude-code/managed-settings.json"), &hook);
    write(&home.join(".claude/settings.json"), r#"{"disableAllHooks": true}"#);
    let said = text(&flowgate(&with_root));
    assert!(said.contains("  guards flowgate\n") && !said.contains("Claude Code can leak"), "{said}");
}

/// Writes a plug-in of Claude Code below a home folder and the entry about it in the list of those that are installed; returns
/// its folder.
fn install_plugin(home: &Path, id: &str, entry: &Value) -> PathBuf {
    let folder = home.join(".claude/plugins/cache").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    let list = home.join(".claude/plugins/installed_plugins.json");
    let read =
        std::fs::read_to_string(&list).unwrap_or_else(|_| r#"{"version": 2, "plugins": {}}"#.to_owned());
    let mut installed: Value = serde_json::from_str(&read).unwrap();
    let mut entry = entry.clone();
    let path = folder.display().to_string().into();
    entry.as_object_mut().unwrap().insert("installPath".to_owned(), path);
    let plugins = installed.get_mut("plugins").and_then(Value::as_object_mut).unwrap();
    plugins.insert(id.to_owned(), serde_json::json!([entry]));
    write(&list, &installed.to_string());
    folder
}

/// The servers and hooks of plug-ins of Claude Code are read, wherever a plug-in has them, if settings switch it on.
#[test]
fn scan_reads_the_plug_ins_of_claude_code() {
    let (home, project) = (folder("scan-plugins"), folder("scan-plugins-project"));
    let fetch = serde_json::json!({"command": "${CLAUDE_PLUGIN_ROOT}/bin/fetch-mcp"});
    let of = |name: &str| serde_json::json!({name: fetch}).to_string();
    let nested = |name: &str| serde_json::json!({"mcpServers": {name: fetch}}).to_string();
    let user = serde_json::json!({"scope": "user"});
    let plugin = |id: &str| install_plugin(&home, id, &user);
    write(&plugin("bare@tools").join(".mcp.json"), &of("fetch-bare"));
    write(&plugin("usual@tools").join(".mcp.json"), &nested("fetch-usual"));
    write(&plugin("inline@tools").join(".claude-plugin/plugin.json"), &nested("fetch-inline"));
    let named = plugin("named@tools");
    write(&named.join(".claude-plugin/plugin.json"), r#"{"name": "named", "mcpServers": ["./conf/a.json"]}"#);
    write(&named.join("conf/a.json"), &nested("fetch-named"));
    write(&plugin("listed@tools").join("skills/x/SKILL.md"), "");
    write(
        &home.join(".claude/plugins/marketplaces/tools/.claude-plugin/marketplace.json"),
        r#"{"plugins": [{"name": "usual"}, {"name": "listed", "mcpServers": "./servers.json"}]}"#,
    );
    write(&home.join(".claude/plugins/cache/listed@tools/servers.json"), &nested("fetch-listed"));
    write(&plugin("off@tools").join(".mcp.json"), &of("fetch-off"));
    write(&plugin("unused@tools").join(".mcp.json"), &of("fetch-unused"));
    let elsewhere = serde_json::json!({"scope": "project", "projectPath": "/another/project"});
    write(&install_plugin(&home, "elsewhere@tools", &elsewhere).join(".mcp.json"), &of("fetch-elsewhere"));
    let here = serde_json::json!({"scope": "local", "projectPath": project.display().to_string()});
    write(&install_plugin(&home, "here@tools", &here).join(".mcp.json"), &of("fetch-here"));
    let on = |ids: &[&str]| {
        let enabled: serde_json::Map<String, Value> =
            ids.iter().map(|id| (format!("{id}@tools"), Value::Bool(true))).collect();
        serde_json::json!({"enabledPlugins": enabled})
    };
    let settings = home.join(".claude/settings.json");
    let all = ["bare", "usual", "inline", "named", "listed", "off", "here"];
    write(&settings, &on(&all).to_string());
    write(&project.join(".claude/settings.json"), r#"{"enabledPlugins": {"off@tools": false}}"#);
    let arguments = ["scan", "--home", name(&home), "--project", name(&project)];
    let scan = || {
        let json = flowgate(&[&arguments[..], &["--format", "json"]].concat());
        let document: Value = serde_json::from_slice(&json.stdout).unwrap();
        (json.status.code(), document)
    };
    let (code, document) = scan();
    let mut found: Vec<(&str, &str)> = Vec::new();
    for file in document["clients"][0]["files"].as_array().unwrap() {
        for server in file["servers"].as_array().unwrap() {
            found.push((server["name"].as_str().unwrap(), file["scope"].as_str().unwrap()));
        }
    }
    found.sort_unstable();
    let expected = ["bare", "here", "inline", "listed", "named", "usual"].map(|name| format!("fetch-{name}"));
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .map(|name| (name.as_str(), if name == "fetch-here" { "project" } else { "user" }))
        .collect();
    assert_eq!(found, expected, "{document}");
    assert_eq!((code, &document["not_read"]), (Some(1), &serde_json::json!([])), "{document}");
    // `init` finds the servers that the result names.
    let result = home.join("scan.json");
    write(&result, &document.to_string());
    check(&["init", name(&result), "--out", "-"], 0, "# fetch-inline: its tools are unknown");

    // A hook of a plug-in guards where the plug-in is on.
    let guard = hooks("PreToolUse", "*", "flowgate hook --policy /etc/p.flow || exit 2");
    write(&home.join(".claude/plugins/cache/bare@tools/hooks/hooks.json"), &guard);
    check(&arguments, 0, "  guards flowgate\n");
    write(&settings, &on(&["usual"]).to_string());
    write(&project.join(".claude/settings.json"), &on(&["bare"]).to_string());
    check(&arguments, 1, "  guards flowgate in this project\n");
    write(&project.join(".claude/settings.json"), "{}");
    check(&arguments, 1, "Bypasses Flowgate: Claude Code (its own tools, without a hook, fetch-usual)\n");

    // What is on and cannot be read is named, and the result is not that all is well.
    write(&settings, &on(&["gone", "usual", "bundled", "outside", "missing"]).to_string());
    std::fs::remove_dir_all(home.join(".claude/plugins/cache/usual@tools")).unwrap();
    for (id, servers) in
        [("bundled", "./server.mcpb"), ("outside", "../usual@tools/x.json"), ("missing", "./none.json")]
    {
        let manifest = serde_json::json!({"mcpServers": servers}).to_string();
        write(&plugin(&format!("{id}@tools")).join(".claude-plugin/plugin.json"), &manifest);
    }
    let (code, document) = scan();
    let left_out: Vec<String> = document["not_read"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left_out| {
            format!("{} {}", left_out["name"].as_str().unwrap(), left_out["reason"].as_str().unwrap())
        })
        .collect();
    let bundle = "names a bundle, or a file outside of its folder, which is not read";
    assert_eq!(
        left_out,
        [
            &format!("plug-in `bundled@tools` {bundle}"),
            "plug-in `gone@tools` is switched on, and its folder is not known: install it again, or switch it off",
            "plug-in `missing@tools` names a file that does not exist",
            &format!("plug-in `outside@tools` {bundle}"),
            "plug-in `usual@tools` is switched on, and its folder does not exist: install it again, or switch it off",
        ]
    );
    assert_eq!(code, Some(1), "{document}");
    check(
        &arguments,
        1,
        "Not read, so servers and hooks may be missing above: Claude Code: plug-in `bundled@tools` names a bundle",
    );
    write(&home.join(".claude/plugins/installed_plugins.json"), "{bad");
    check(&arguments, 1, "installed_plugins.json is not valid JSON");
}

/// The servers of extensions of Claude Desktop are read, unless an extension is switched off.
#[test]
fn scan_reads_the_extensions_of_claude_desktop() {
    let home = folder("scan-extensions");
    let claude = home.join("Library/Application Support/Claude");
    let arguments = ["scan", "--home", name(&home), "--project", name(&home)];
    let manifest = |server: &str| {
        let start =
            serde_json::json!({"command": "node", "args": ["${__dirname}/server.js", "${user_config.key}"]});
        serde_json::json!({"manifest_version": "0.3", "name": server, "server": {"type": "node", "mcp_config": start}})
            .to_string()
    };
    let extension = |id: &str, text: &str| {
        write(&claude.join("Claude Extensions").join(id).join("manifest.json"), text);
    };
    extension("ant.dir.mail", &manifest("gmail"));
    check(&arguments, 1, "! Claude Desktop can leak: ");
    check(&arguments, 1, "  gmail   node                 yes           yes   yes        -\n");
    let settings = claude.join("Claude Extensions Settings/ant.dir.mail.json");
    write(&settings, r#"{"isEnabled": false}"#);
    check(&arguments, 0, "0 clients, 0 servers: 0 guarded");
    // A file beside the extensions is none, and one without a command is not known.
    write(&claude.join("Claude Extensions/.DS_Store"), "");
    extension("ant.dir.odd", r#"{"name": "odd", "server": {"type": "uv"}}"#);
    check(
        &arguments,
        1,
        "Not read, so servers and hooks may be missing above: Claude Desktop: extension `ant.dir.odd` has no `server.mcp_config` in its \
         manifest\n",
    );
    std::fs::remove_dir_all(claude.join("Claude Extensions/ant.dir.odd")).unwrap();
    std::fs::create_dir_all(claude.join("Claude Extensions/ant.dir.empty")).unwrap();
    check(&arguments, 1, "extension `ant.dir.empty` has no manifest that can be read: there is no file ");
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

/// A hook guards only if it stops what the policy does not permit, of all tools, before the call, and where it is configured.
#[test]
fn a_hook_guards_only_what_it_stops() {
    let (home, project) = (folder("scan-hooks"), folder("scan-hooks-project"));
    let server = r#"{"mcpServers": {"NAME": {"command": "uvx", "args": ["mcp-server-fetch"]}}}"#;
    write(&home.join(".claude.json"), &server.replace("NAME", "web"));
    write(&project.join(".mcp.json"), &server.replace("NAME", "wiki"));
    let hook = "flowgate hook --policy /etc/p.flow || exit 2";
    let guard = hooks("PreToolUse", "*", hook);
    let none = "{}".to_owned();
    let unguarded =
        "Bypasses Flowgate: Claude Code (its own tools, which its hook does not guard, web, wiki)\n";
    // The settings of the user and of the project, the exit code, the line about the hook, and what bypasses.
    for (of_user, of_project, code, said_of_hook, bypasses) in [
        (guard.clone(), none.clone(), 0, "  guards flowgate\n", None),
        (
            hooks("PreToolUse", "*", "flowgate hook --policy /etc/p.flow --watch w.jsonl"),
            none.clone(),
            1,
            "  hook   flowgate only watches, so it stops nothing\n",
            Some(unguarded),
        ),
        (
            hooks("PreToolUse", "Bash", hook),
            none.clone(),
            1,
            "  hook   flowgate judges only the tools that match `Bash`\n",
            Some(unguarded),
        ),
        (
            hooks("PostToolUse", "*", hook),
            none.clone(),
            1,
            "  hook   flowgate runs on `PostToolUse`, not before a call\n",
            Some(unguarded),
        ),
        (
            none.clone(),
            guard.clone(),
            1,
            "  guards flowgate in this project\n",
            Some("Bypasses Flowgate: Claude Code (its own tools, outside this project, web)\n"),
        ),
        (
            none,
            guard.replace("{\"hooks\"", "{\"disableAllHooks\": true, \"hooks\""),
            1,
            "  hook   flowgate does not run, since this file switches hooks off\n",
            Some(unguarded),
        ),
        (
            guard.clone(),
            r#"{"disableAllHooks": true}"#.to_owned(),
            1,
            "  hook   flowgate does not run, since another file switches hooks off\n",
            Some(unguarded),
        ),
    ] {
        write(&home.join(".claude/settings.json"), &of_user);
        write(&project.join(".claude/settings.json"), &of_project);
        let arguments = ["scan", "--home", name(&home), "--project", name(&project)];
        let output = flowgate(&arguments);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{of_user} {of_project}\n{said}");
        assert!(said.contains(said_of_hook), "{said_of_hook}\n{said}");
        match bypasses {
            Some(bypasses) => assert!(said.contains(bypasses), "{bypasses}\n{said}"),
            None => assert!(!said.contains("Bypasses"), "{said}"),
        }
        let json = flowgate(&[&arguments[..], &["--format", "json"]].concat());
        let document: Value = serde_json::from_slice(&json.stdout).unwrap();
        let files = document["clients"][0]["files"].as_array().unwrap();
        let guarded: Vec<&Value> = files.iter().filter(|file| file["guarded_by_hook"] == true).collect();
        assert_eq!(guarded.len(), usize::from(said_of_hook.contains("guards")), "{document}");
        let is_gap = said_of_hook.contains("watches")
            || said_of_hook.contains("only")
            || said_of_hook.contains("not before");
        let gaps = files.iter().filter(|file| file["hook_gaps"] != serde_json::json!([])).count();
        assert_eq!(gaps, usize::from(is_gap), "{document}");
    }
}

/// A client with servers in several files has all of them behind `flowgate mcp`; a file without servers is left alone.
#[test]
fn every_file_of_a_client_is_wrapped() {
    let home = folder("wrap-files");
    let paths = ["mcp.json", "settings.json", "profiles/-7f3a/mcp.json"]
        .map(|path| home.join(".config/Code/User").join(path));
    let server = |name: &str| format!(r#"{{"{name}": {{"command": "uvx", "args": ["mcp-server-time"]}}}}"#);
    let texts = [
        r#"{"servers": {}}"#.to_owned(),
        format!(r#"{{"mcp": {{"servers": {}}}}}"#, server("first")),
        format!(r#"{{"servers": {}}}"#, server("second")),
    ];
    for (path, text) in paths.iter().zip(&texts) {
        write(path, text);
    }
    let read = || paths.clone().map(|path| std::fs::read_to_string(path).unwrap());
    let wrap = ["wrap", "vscode", "--home", name(&home), "--policy", POLICY, "--flowgate", "/opt/fg"];
    check(
        &[&wrap[..], &["--server", "nope"]].concat(),
        2,
        "there is no server `nope`; name one of its servers: first, second",
    );
    check(&[&wrap[..], &["--dry-run"]].concat(), 0, "profiles/-7f3a/mcp.json: 1 server would run behind");
    assert_eq!(read(), texts);
    check(&[&wrap[..], &["--server", "second"]].concat(), 0, "settings.json: nothing to change");
    assert_eq!(read().map(|text| text.contains("/opt/fg")), [false, false, true]);
    let output = flowgate(&wrap);
    let said = text(&output);
    assert!(said.contains("User/settings.json: 1 server runs behind `flowgate mcp`\n"), "{said}");
    assert!(
        said.contains("-7f3a/mcp.json: nothing to change\n") && !said.contains("User/mcp.json:"),
        "{said}"
    );
    assert_eq!(read().map(|text| text.contains("/opt/fg")), [false, true, true]);
    check(
        &["unwrap", "vscode", "--home", name(&home)],
        0,
        "settings.json: 1 server runs without `flowgate mcp`",
    );
    assert_eq!(read(), texts);
    // One file that cannot be read changes none.
    write(&paths[2], "{bad");
    check(&wrap, 2, "mcp.json: the file is not valid JSON");
    assert_eq!(read()[1], texts[1]);
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
    check(&wrap, 1, "odd\\u{1b}[2J: no policy can refer to the server by its name");
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
        (
            of("nope", &[]),
            "there is no client `nope`; the known clients are: claude-code, claude-desktop, cursor",
        ),
        (of("windsurf", &[]), "Windsurf has no configuration at "),
        (of("gemini", &[]), "settings.json: the file is not valid JSON: "),
        (of("codex", &["--server", "nope"]), "there is no server `nope`; name one of its servers: fetch"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        check(&arguments, 2, part);
    }
    let bad = crate::file("wrap-bad.flow", b"lattice\n");
    check(&["wrap", "codex", "--home", name(&home), "--policy", name(&bad)], 2, "wrap-bad.flow has 1 error");
    assert_eq!(std::fs::read_to_string(home.join(".codex/config.toml")).unwrap(), CODEX);
}
