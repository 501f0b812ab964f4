//! Tests of `flowgate doctor`: what it says about policies, clients and configurations of the gateway.

use crate::init::folder;
use crate::{POLICY, check, file, flowgate, name, text};

const REQUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart/request.json");

/// Runs the command, and checks its exit code and each part.
fn check_parts(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = flowgate(arguments);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{said}");
    for part in parts {
        assert!(said.contains(part), "{arguments:?} should say {part:?}, but says\n{said}");
    }
}

/// The statement that shows a hidden part is named, and with it the part is not hidden.
#[test]
fn statements_that_would_show_hidden_parts() {
    let policy = |text: &str| {
        file("doctor.flow", format!("lattice integrity: trusted < untrusted\n{text}").as_bytes())
    };
    let message = "label message as trusted if:\n    (message: Message)\n    message.role == \"user\"\n";
    let tools = "label tool as trusted if:\n    (tool: Tool) is tool:*_mail*\n";
    let requires = "require trusted if:\n    (call: ToolCall) is tool:*_mail*\n";
    let all = format!("{message}{tools}{requires}");
    let system = all.replace("message.role == \"user\"", "message.role in [\"system\", \"user\"]");
    for (text, code, parts) in [
        (
            String::new(),
            1,
            &[
                "✗ no `require` covers list_mails, send_mail, so the steps at the base label are shown only what is trusted",
                "✗ the user message is hidden from the steps at the base label, since no statement labels it; write\n      label message as trusted if:\n",
                "✗ the tools list_mails, send_mail are hidden from the steps at the base label: after you have read their descriptions, write\n      \
                 label tool as trusted if:\n          (tool: Tool) is tool:list_mails\n",
            ][..],
        ),
        (all.clone(), 1, &["✗ the system message is hidden", "✓ the user message is shown to every step"]),
        (
            all.replace("label message as trusted", "label message as untrusted"),
            1,
            &["the user message is hidden from the steps at the base label: "],
        ),
        (
            system,
            0,
            &[
                "· the answers of list_mails, send_mail are hidden from the steps at the base label",
                "nothing is wrong",
            ],
        ),
        (
            "default untrusted\n".to_owned(),
            1,
            &["has a `default`, so text that no statement labels is not labelled top"],
        ),
    ] {
        let policy = policy(&text);
        check_parts(&["doctor", "--policy", name(&policy), "--request", REQUEST], code, parts);
    }
}

/// A gateway whose certificate has expired, or whose key others can read, is found before its clients fail.
#[cfg(unix)]
#[test]
fn certificates_of_a_gateway() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder("doctor-tls");
    std::fs::copy(POLICY, folder.join("p.flow")).unwrap();
    let config = folder.join("gateway.toml");
    let settings = "[upstreams.local]\nurl = \"http://localhost:8080/v1\"\n[clients.a]\nkey-file = \"a.key\"\nupstream = \"local\"\npolicy = \"p.flow\"\n\
                [tls]\ncertificate = \"gateway.pem\"\nkey = \"gateway.key\"\n";
    std::fs::write(&config, settings).unwrap();
    let protect = |file: &str, mode: u32| {
        std::fs::set_permissions(folder.join(file), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::write(folder.join("a.key"), "0123456789abcdef").unwrap();
    protect("a.key", 0o600);
    let certificate_for = |hosts: &[&str], until: i32| {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut parameters = rcgen::CertificateParams::new(hosts).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(folder.join("gateway.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(folder.join("gateway.key"), key.serialize_pem()).unwrap();
        protect("gateway.key", 0o600);
    };
    let certificate = |until: i32| certificate_for(&["gateway"], until);
    let doctor = || text(&flowgate(&["doctor", "--config", name(&config)]));
    certificate(2001);
    assert!(doctor().contains("gateway.pem expired "), "{}", doctor());
    check(&["serve", "--check", "--deny-warnings", "--config", name(&config)], 1, "gateway.pem expired ");
    certificate(3000);
    assert!(!doctor().contains("tls."), "{}", doctor());
    protect("gateway.key", 0o644);
    assert!(doctor().contains("tls.key: all users of this machine can read or write "), "{}", doctor());
    // The hosts in the addresses that the configuration states.
    let webhook = "[approvals]\nwebhook = \"https://chat.example/hook\"\nwebhook-format = \"slack\"\npage = ";
    for (hosts, page, note) in [
        (&["gateway.example"][..], "https://gateway.example/ui/", None),
        (&["*.corp.example"], "https://gateway.corp.example:8443/ui/", None),
        (&["gateway", "other.example"], "https://gateway.example/ui/", Some("gateway.example")),
        (&["gateway.example"], "https://10.0.0.7/ui/", Some("10.0.0.7")),
        (&["10.0.0.7", "fd00::7"], "https://[fd00::7]/ui/", None),
        // A proxy with TLS is in front of it, or the address has no TLS.
        (&["gateway"], "http://gateway.example/ui/", None),
    ] {
        std::fs::write(&config, format!("{settings}{webhook}\"{page}\"\n")).unwrap();
        certificate_for(hosts, 3000);
        let said = doctor();
        assert_eq!(said.matches(" is not for ").count(), usize::from(note.is_some()), "{page}: {said}");
        let Some(host) = note else { continue };
        let expected = format!("gateway.pem is not for {host}, the host of `approvals.page`: ");
        assert!(said.contains(&expected) && said.contains("· "), "{page}: {said}");
    }
}

#[test]
fn servers_of_a_client() {
    let folder = folder("doctor");
    let servers = folder.join("mcp.json");
    let policy = folder.join("p.flow");
    std::fs::copy(POLICY, &policy).unwrap();
    let list = |command: &str, args: &[&str]| {
        let list = serde_json::json!({"mcpServers": {"a": {"command": command, "args": args}, "u": {"url": "https://x"}}});
        std::fs::write(&servers, list.to_string()).unwrap();
    };
    let arguments = ["doctor", "--file", name(&servers)];
    list("no-such-program-anywhere", &[]);
    check_parts(
        &arguments,
        1,
        &[
            "there is no program `no-such-program-anywhere`",
            "a is not guarded; `flowgate wrap`",
            "u is not guarded: it has an address",
        ],
    );
    let program = env!("CARGO_BIN_EXE_flowgate");
    let watching =
        ["mcp", "--policy", name(&policy), "--name", "bank", "--watch", "w.jsonl", "--", "python3", "x.py"];
    list(program, &watching);
    check_parts(
        &arguments,
        1,
        &["a only watches: nothing is stopped; remove `--watch` to enforce the policy"],
    );
    list(program, &["mcp", "--policy", name(&policy), "--name", "bank", "--", "python3", "x.py"]);
    check_parts(&arguments, 1, &["✓ ", "a is guarded by "]);
    std::fs::write(
        &policy,
        "lattice integrity: trusted < untrusted\nrequire trusted if:\n    (call: ToolCall) is tool:other/x\n",
    )
    .unwrap();
    check_parts(&arguments, 1, &["its policy names no tool of `bank`, so all of them are closed"]);
    std::fs::write(&policy, "lattice").unwrap();
    check_parts(&arguments, 1, &["a does not start: ", "p.flow has errors"]);
    list(program, &["mcp", "--policy", "nowhere.flow", "--name", "bank", "--", "python3", "x.py"]);
    check_parts(
        &arguments,
        1,
        &["nowhere.flow: there is no such file", "the path of its policy is relative"],
    );
    check(&["doctor"], 2, "required arguments were not provided");
    check(&["doctor", "--client", "nope"], 2, "there is no client `nope`");
}

#[test]
fn hooks_of_a_client() {
    let home = folder("doctor-hooks");
    std::fs::create_dir_all(home.join(".claude")).unwrap();
    let (settings, policy) = (home.join(".claude/settings.json"), home.join("p.flow"));
    let text_of = |condition: &str| {
        format!(
            "lattice integrity: trusted < untrusted\nlabel out as trusted if:\n    (out: ToolOutput) is tool:Read\n    {condition}\n"
        )
    };
    std::fs::write(&policy, text_of("input.project == out.content")).unwrap();
    let arguments = ["doctor", "--client", "claude-code", "--home", name(&home)];
    let hook = |event: &str, matcher: &str, more: &str| {
        let command = format!("flowgate hook --policy '{}' {more} || exit 2", name(&policy));
        serde_json::json!({event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]})
    };
    let check_hooks = |hooks: &serde_json::Value, code: i32, parts: &[&str]| {
        std::fs::write(&settings, serde_json::json!({"hooks": hooks}).to_string()).unwrap();
        check_parts(&arguments, code, parts);
    };
    let own = "· Claude Code has no hook of Flowgate, so nothing judges its own tools";
    check_hooks(&serde_json::json!({}), 0, &[own, "nothing is wrong"]);
    let project = "--param project=\"$CLAUDE_PROJECT_DIR\"";
    check_hooks(
        &hook("PreToolUse", "*", project),
        0,
        &["settings.json: the hook guards the client by the policy "],
    );
    check_hooks(
        &hook("PreToolUse", "*", ""),
        1,
        &[
            "settings.json: the policy of the hook reads `input.project`, which the hook does not set; add --param project=VALUE",
        ],
    );
    for (hooks, problem) in [
        (
            hook("PreToolUse", "*", "--watch w.jsonl"),
            "the hook of Flowgate only watches, so it stops nothing; remove `--watch`",
        ),
        (
            hook("PreToolUse", "Bash", project),
            "judges only the tools that match `Bash`; write `\"matcher\": \"*\"`",
        ),
        (
            hook("PostToolUse", "*", project),
            "runs on `PostToolUse`, not before a call; add it to the event before calls",
        ),
        (
            hook("PreToolUse", "*", "--harness codex"),
            "is for another agent: it needs `--harness claude-code`",
        ),
    ] {
        check_hooks(&hooks, 1, &[problem]);
    }
    // Hooks of other events next to the one before calls are as they should be.
    let mut both = hook("PreToolUse", "*", project);
    both.as_object_mut().unwrap().extend(hook("PostToolUse", "*", project).as_object().unwrap().clone());
    check_hooks(&both, 0, &["the hook guards the client by the policy ", "nothing is wrong"]);
    let off = serde_json::json!({"disableAllHooks": true, "hooks": both}).to_string();
    std::fs::write(&settings, off).unwrap();
    check_parts(
        &arguments,
        1,
        &["settings.json: hooks are switched off, so none of them guards; remove `disableAllHooks`"],
    );
    // If its program is missing, calls pass.
    let open = serde_json::json!({"hooks": both}).to_string().replace(" || exit 2", "");
    std::fs::write(&settings, open).unwrap();
    check_parts(
        &arguments,
        0,
        &["· ", "the client continues if the hook of Flowgate cannot run or takes too long"],
    );
    // In the files of a project.
    std::fs::write(&settings, "{}").unwrap();
    let project_folder = folder("doctor-hooks-project");
    std::fs::create_dir_all(project_folder.join(".claude")).unwrap();
    let of_project = serde_json::json!({"hooks": both}).to_string();
    std::fs::write(project_folder.join(".claude/settings.json"), of_project).unwrap();
    let in_project = [&arguments[..], &["--project", name(&project_folder)]].concat();
    let note =
        "· the hook of Flowgate is in the files of this project, so it guards only what the client does here";
    check_parts(&in_project, 0, &["the hook guards the client by the policy ", note]);
    let server = serde_json::json!({"mcpServers": {"a": {"command": "no-such-program-anywhere"}}});
    std::fs::write(project_folder.join(".mcp.json"), server.to_string()).unwrap();
    check_parts(&in_project, 1, &[".mcp.json: a is not guarded; `flowgate wrap`"]);
    check_parts(&[&arguments[..], &["--project", name(&home)]].concat(), 0, &[own]);
    // By its file alone, without the name of the client.
    std::fs::write(&settings, serde_json::json!({"hooks": hook("PreToolUse", "Bash", project)}).to_string())
        .unwrap();
    check_parts(&["doctor", "--file", name(&settings)], 1, &["judges only the tools that match `Bash`"]);
    std::fs::write(&policy, "lattice").unwrap();
    check_hooks(&both, 1, &["the hook denies every call: ", "p.flow has errors"]);
}

/// Who can change a policy decides what is trusted.
#[cfg(unix)]
#[test]
fn files_that_others_can_change() {
    use std::os::unix::fs::PermissionsExt as _;
    let policy = file("doctor-open.flow", &std::fs::read(POLICY).unwrap());
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o666)).unwrap();
    check(
        &["doctor", "--policy", name(&policy)],
        1,
        "doctor-open.flow, and so decide what is trusted: run `chmod go-w ",
    );
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o644)).unwrap();
    check(&["doctor", "--policy", name(&policy)], 0, "nothing is wrong");
}

#[cfg(feature = "gateway")]
mod gateway {
    use std::process::Command;

    use super::*;

    /// Runs `doctor --config` in a folder with these variables.
    fn doctor(folder: &std::path::Path, variables: &[(&str, &str)], more: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.current_dir(folder).args(["doctor", "--config", "gateway.toml"]).args(more);
        command.env_remove("UPSTREAM_KEY").env_remove("AGENT_KEY").envs(variables.iter().copied());
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    }

    /// A drafted configuration lacks only what the person must say: keys, and who types.
    #[test]
    fn a_drafted_configuration() {
        let folder = folder("doctor-gateway");
        let init = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
            command
                .current_dir(&folder)
                .args(["init", REQUEST, "--gateway", "gateway.toml", "--force"])
                .args(more);
            assert!(command.status().unwrap().success());
        };
        let keys = [("UPSTREAM_KEY", "the-key-of-the-provider"), ("AGENT_KEY", "a-key-of-the-agent")];
        init(&[]);
        let (code, said) = doctor(&folder, &[], &[]);
        assert_eq!(code, Some(1), "{said}");
        for part in [
            "✗ upstreams.model.key-from: the variable UPSTREAM_KEY is not set; set it to ",
            "✗ clients.agent.key-from: the variable AGENT_KEY is not set",
            "user-messages",
        ] {
            assert!(said.contains(part), "{part}\n{said}");
        }
        init(&["--user-types"]);
        let (code, said) = doctor(&folder, &keys, &["--request", REQUEST]);
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("the-key-of-the-provider"), "{said}");
    }

    #[test]
    fn broken_configurations() {
        let folder = folder("doctor-broken");
        let keys = [("UPSTREAM_KEY", "the-key-of-the-provider"), ("AGENT_KEY", "short")];
        for (text, part) in [
            ("[clients", "gateway.toml: line 1: the file is not valid TOML"),
            ("odd = 1\n", "gateway.toml: line 1: unknown field `odd`"),
            ("", "gateway.toml: the configuration has no client: write [clients.NAME]"),
            (
                "[upstreams.m]\nurl = \"http://127.0.0.1:1/v1\"\n[clients.a]\nkey-from = \"AGENT_KEY\"\nupstream = \"m\"\npolicy = \"p.flow\"\n",
                "the key is too short and can be guessed",
            ),
        ] {
            std::fs::write(folder.join("gateway.toml"), text).unwrap();
            let (code, said) = doctor(&folder, &keys, &[]);
            assert_eq!(code, Some(1), "{text}\n{said}");
            assert!(said.contains(part), "{part}\n{said}");
        }
        let (code, said) = doctor(&folder, &keys, &["--online"]);
        assert_eq!(code, Some(1));
        assert!(said.contains("upstreams.m cannot be reached: there is no connection"), "{said}");
    }

    /// With `--online`, the issuer of an MCP server is asked for a token; without its secret, it is not asked.
    #[test]
    fn servers_behind_oauth() {
        let folder = folder("doctor-oauth");
        std::fs::copy(POLICY, folder.join("p.flow")).unwrap();
        std::fs::write(
            folder.join("gateway.toml"),
            "[mcp.web]\nurl = \"http://127.0.0.1:1/mcp\"\noauth = { issuer = \"http://127.0.0.1:1\", client-id = \"c\", client-secret-from = \"WEB_SECRET\" }\n\
             [clients.a]\nkey-from = \"AGENT_KEY\"\nmcp = [\"web\"]\npolicy = \"p.flow\"\n[store]\nurl = \"memory\"\n",
        )
        .unwrap();
        let keys = [("AGENT_KEY", "0123456789abcdef"), ("WEB_SECRET", "s3cret")];
        let asked = "mcp.web: the issuer http://127.0.0.1:1 gives no token: no connection can be established; check `issuer` in `oauth` and the network";
        let missing = "mcp.web.oauth.client-secret-from: the variable WEB_SECRET is not set";
        for (keys, more, expected) in [
            (&keys[..], &["--online"][..], [true, false]),
            (&keys[..], &[], [false, false]),
            (&keys[..1], &["--online"], [false, true]),
        ] {
            let (_, said) = doctor(&folder, keys, more);
            assert_eq!([asked, missing].map(|part| said.contains(part)), expected, "{more:?}\n{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    /// A running gateway, killed on drop.
    struct RunningGateway(std::process::Child);

    impl Drop for RunningGateway {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The certificate of a model's server is checked by its `ca-file`, as the gateway does it. Here, the server is a
    /// gateway with a certificate of its own.
    #[test]
    fn servers_with_a_certificate_of_their_own() {
        use std::io::{BufRead as _, BufReader};
        let folder = folder("doctor-ca-file");
        std::fs::copy(POLICY, folder.join("p.flow")).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.join("server.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(folder.join("server.key"), key.serialize_pem()).unwrap();
        let config = |url: &str, ca_file: &str, more: &str| {
            format!(
                "[upstreams.m]\nurl = \"{url}\"\n{ca_file}\n[clients.a]\nkey-from = \"AGENT_KEY\"\nupstream = \"m\"\n\
                 policy = \"p.flow\"\n[store]\nurl = \"memory\"\n{more}"
            )
        };
        let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n";
        let server = folder.join("server.toml");
        std::fs::write(&server, config("http://127.0.0.1:1/v1", "", tls)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", name(&server)]);
        command.env("AGENT_KEY", "a-key-of-the-agent").env_remove("FLOWGATE_TOKEN");
        let mut process = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let _running = RunningGateway(process);
        let address = lines.find_map(|line| {
            let (_, rest) = line.split_once("listening on https://")?;
            Some(rest.split(';').next()?.to_owned())
        });
        let url = format!("https://{}/v1", address.unwrap());
        let in_environment = "FLOWGATE_CONFIG__UPSTREAMS__M__CA_FILE";
        for (ca_file, variable, expected) in [
            ("ca-file = \"server.pem\"", None, "upstreams.m can be reached (status "),
            (
                "",
                None,
                "upstreams.m cannot be reached: the certificate of the server is not trusted; name the certificate of its authority as `ca-file`",
            ),
            (
                "ca-file = \"none.pem\"",
                None,
                "upstreams.m: its server was not asked, since `ca-file` cannot be used: ",
            ),
            ("", Some((in_environment, "server.pem")), "upstreams.m can be reached (status "),
            (
                "ca-file = \"none.pem\"",
                Some((in_environment, "server.pem")),
                "upstreams.m can be reached (status ",
            ),
            (
                "ca-file = \"server.pem\"",
                Some(("FLOWGATE_CONFIG__UPSTREAMS__M__URL", "http://127.0.0.1:1/v1")),
                "upstreams.m cannot be reached: there is no connection",
            ),
        ] {
            std::fs::write(folder.join("gateway.toml"), config(&url, ca_file, "")).unwrap();
            let variables: Vec<(&str, &str)> =
                variable.into_iter().chain([("AGENT_KEY", "a-key-of-the-agent")]).collect();
            let (_, said) = doctor(&folder, &variables, &["--online"]);
            assert!(said.contains(expected), "{ca_file} {variable:?}: {said}");
        }
    }

    /// The fields that environment variables set are examined, not those of the file.
    #[cfg(unix)]
    #[test]
    fn fields_from_the_environment() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder("doctor-environment");
        std::fs::copy(POLICY, folder.join("p.flow")).unwrap();
        std::fs::write(
            folder.join("gateway.toml"),
            "[upstreams.m]\nurl = \"http://127.0.0.1:1/v1\"\n[clients.a]\nkey-from = \"AGENT_KEY\"\nupstream = \"m\"\npolicy = \"p.flow\"\n\
             [store]\nurl = \"memory\"\n",
        )
        .unwrap();
        std::fs::write(folder.join("open.key"), "0123456789abcdef").unwrap();
        std::fs::set_permissions(folder.join("open.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::write(folder.join("bad.flow"), "lattice\n").unwrap();
        let readable = "users other than its owner can read or write ";
        for (variable, value, expected) in [
            (
                "CLIENTS__A__KEY_FROM",
                "NO_SUCH_KEY",
                "clients.a.key-from: the variable NO_SUCH_KEY is not set".to_owned(),
            ),
            (
                "STORE__URL_FROM",
                "NO_SUCH_URL",
                "store.url-from: the variable NO_SUCH_URL is not set".to_owned(),
            ),
            ("UPSTREAMS__M__KEY_FILE", "open.key", format!("upstreams.m.key-file: {readable}")),
            ("TLS__KEY", "open.key", format!("tls.key: {readable}")),
            ("STORE__ENCRYPTION_KEY_FILE", "open.key", format!("store.encryption-key-file: {readable}")),
            ("CLIENTS__A__POLICY", "bad.flow", "bad.flow".to_owned()),
            ("CLIENTS__A__MODE", "watch", "[watch]".to_owned()),
            (
                "UPSTREAMS__M__URLL",
                "http://127.0.0.1:2/v1",
                "FLOWGATE_CONFIG__UPSTREAMS__M__URLL: [upstreams.m] has no field".to_owned(),
            ),
        ] {
            let name = format!("FLOWGATE_CONFIG__{variable}");
            let variables = [("AGENT_KEY", "a-key-of-the-agent"), (name.as_str(), value)];
            let (code, said) = doctor(&folder, &variables, &["--online"]);
            assert_eq!(code, Some(1), "{variable}: {said}");
            assert!(said.contains(&expected), "{variable} should give {expected:?}: {said}");
            // Without usable variables, the address of the server is not known.
            assert_eq!(said.contains("upstreams.m cannot be reached"), !variable.ends_with("URLL"), "{said}");
        }
    }
}
