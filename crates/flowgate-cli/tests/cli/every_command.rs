//! Tests of properties that all commands have: manual pages, errors for missing files, and plural forms.

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

/// A request with tools.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart/request.json");

/// There is a manual page for each command, printed or in a folder.
#[test]
fn every_command_has_a_manual_page() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("man/man1");
    let _ = std::fs::remove_dir_all(&folder);
    check(&["man", "--out", name(&folder)], 0, "manual pages in ");
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let help = text(&flowgate(&["--help"]));
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?.split(' ').next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.len() >= 9 && commands.contains(&"check"), "{help}");
    for command in commands {
        assert!(pages.contains(&format!("flowgate-{command}.1")), "{command}: {pages:?}");
    }
    for page in &pages {
        let command = page.trim_end_matches(".1");
        // The page of a subcommand has the name of its parent's page as a prefix; its own name may contain a hyphen.
        let mut arguments = Vec::new();
        let mut rest = command;
        while rest != "flowgate" {
            let names = pages.iter().map(|page| page.trim_end_matches(".1"));
            let above = names.filter(|above| rest.starts_with(&format!("{above}-")));
            let above = above.max_by_key(|above| above.len()).unwrap();
            arguments.insert(0, rest.get(above.len() + 1..).unwrap());
            rest = above;
        }
        let output = flowgate(&[&["man"], &arguments[..]].concat());
        let printed = text(&output);
        assert!(printed.contains(&format!(".TH {command} 1")), "{page}: {printed}");
        assert!(printed.contains("Exit codes"), "{page}");
        assert_eq!(printed, std::fs::read_to_string(folder.join(page)).unwrap(), "{page}");
    }
    check(&["man", "chekc"], 2, "flowgate has no command `chekc`; write one of check, ");
    let taken = file("no-folder", b"");
    check(&["man", "--out", name(&taken)], 2, "no-folder: ");
}

/// Returns the names of all commands, such as `audit verify`, with their help texts.
fn every_command() -> Vec<(String, String)> {
    let mut open = vec![String::new()];
    let mut found = Vec::new();
    while let Some(name) = open.pop() {
        let words: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
        let help = text(&flowgate(&words));
        let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
        let listed = listed.take_while(|line| line.starts_with("  "));
        let below = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        let below = below.filter_map(|line| line.split(' ').next()).filter(|word| *word != "help");
        open.extend(below.map(|word| format!("{name} {word}").trim_start().to_owned()));
        found.push((name, help));
    }
    found
}

/// Returns the arguments of a command that take a file or a folder, by its help text.
fn file_arguments(help: &str) -> Vec<String> {
    let paths = [
        "FILE",
        "FOLDER",
        "<POLICY>",
        "[POLICY]",
        "TRACES]",
        "<TRACE>",
        "[TRACE]",
        "TRACES>",
        "<CORPORA>",
        "FILES>",
    ];
    let lines =
        help.lines().skip_while(|line| !line.starts_with("Arguments:") && !line.starts_with("Options:"));
    let lines = lines.take_while(|line| !line.starts_with("Examples:"));
    let named = lines
        .map(str::trim_start)
        .filter(|line| line.starts_with(['-', '<', '[']) && !line.starts_with("[default"));
    let takes = named.filter(|line| paths.iter().any(|path| line.contains(path)));
    takes.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// All commands report a missing file in the same words, with its path, for every argument that takes a file.
#[test]
fn a_file_that_is_not_there_is_reported_in_one_way() {
    let url = "http://127.0.0.1:1/v1";
    #[cfg(all(feature = "bench", feature = "run"))]
    let driven_search = [
        "--instances",
        "1",
        "--queries",
        "1",
        "--attacker-model",
        "m",
        "--attacker-url",
        url,
        "--attacker-answers",
        "MISSING",
    ];
    // The command, the argument as its help text names it, and a command line with a missing file there.
    let rows: Vec<(&str, &str, Vec<&str>)> = vec![
        ("check", "<POLICY>", vec!["MISSING"]),
        ("check", "[TRACES]...", vec![POLICY, "MISSING"]),
        ("check", "[TRACES]...", vec![POLICY, TRACE, "MISSING"]),
        ("check", "--tools", vec![POLICY, "--tools", "MISSING"]),
        ("check", "--tools", vec![POLICY, "--tools", "bank=MISSING"]),
        ("replay", "--policy", vec!["--policy", "MISSING", TRACE]),
        ("replay", "--policy", vec!["--policy", "a=MISSING", TRACE]),
        ("replay", "<CORPORA>...", vec!["--policy", POLICY, "MISSING"]),
        ("analyze", "<POLICY>", vec!["MISSING", TRACE]),
        ("analyze", "<TRACES>...", vec![POLICY, "MISSING"]),
        ("explain", "[POLICY]", vec!["MISSING", TRACE]),
        ("explain", "[TRACE]", vec![POLICY, "MISSING"]),
        ("explain", "--key-file", vec!["--question", "q", "--key-file", "MISSING"]),
        ("explain", "--ca-file", vec!["--question", "q", "--ca-file", "MISSING"]),
        ("approvals list", "--key-file", vec!["--key-file", "MISSING"]),
        ("approvals list", "--ca-file", vec!["--ca-file", "MISSING"]),
        ("approvals show", "--key-file", vec!["q", "--key-file", "MISSING"]),
        ("approvals show", "--ca-file", vec!["q", "--ca-file", "MISSING"]),
        ("approvals allow", "--key-file", vec!["q", "--key-file", "MISSING"]),
        ("approvals allow", "--ca-file", vec!["q", "--ca-file", "MISSING"]),
        ("approvals deny", "--key-file", vec!["q", "--key-file", "MISSING"]),
        ("approvals deny", "--ca-file", vec!["q", "--ca-file", "MISSING"]),
        ("approvals grants", "--key-file", vec!["--key-file", "MISSING"]),
        ("approvals grants", "--ca-file", vec!["--ca-file", "MISSING"]),
        ("approvals withdraw", "--key-file", vec!["g", "--key-file", "MISSING"]),
        ("approvals withdraw", "--ca-file", vec!["g", "--ca-file", "MISSING"]),
        ("approvals watch", "--key-file", vec!["--key-file", "MISSING"]),
        ("approvals watch", "--ca-file", vec!["--ca-file", "MISSING"]),
        ("keys list", "--key-file", vec!["--key-file", "MISSING"]),
        ("keys list", "--ca-file", vec!["--ca-file", "MISSING"]),
        ("keys create", "--key-file", vec!["agent", "ci", "--key-file", "MISSING"]),
        ("keys create", "--ca-file", vec!["agent", "ci", "--ca-file", "MISSING"]),
        ("keys revoke", "--key-file", vec!["k", "--key-file", "MISSING"]),
        ("keys revoke", "--ca-file", vec!["k", "--ca-file", "MISSING"]),
        ("bench agents", "--resume", vec!["--format", "jsonl", "--resume", "MISSING"]),
        ("bench detectors", "--resume", vec!["--format", "jsonl", "--resume", "MISSING"]),
        ("bench detectors", "--policy", vec!["--policy", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench verify", "<FILE>", vec!["MISSING"]),
        #[cfg(feature = "bench")]
        ("bench verify", "--answers", vec![TRACE, "--answers", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench verify", "--attacker-answers", vec![TRACE, "--searches", "--attacker-answers", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench verify", "--folder", vec![TRACE, "--folder", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench verify", "--background", vec![TRACE, "--background", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench verify", "--attack-texts", vec![TRACE, "--attack-texts", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench compare", "<FILE>...", vec!["MISSING"]),
        ("bench corpus", "<FOLDER>", vec!["injecagent", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench injections", "<FOLDER>", vec!["MISSING"]),
        #[cfg(feature = "bench")]
        ("bench train-detector", "<FILE>", vec!["MISSING"]),
        #[cfg(feature = "bench")]
        ("bench propagation", "--news", vec!["--news", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench news-questions", "<FOLDER>", vec!["MISSING"]),
        #[cfg(all(feature = "bench", feature = "run"))]
        (
            "bench news-questions",
            "--answers",
            vec![env!("CARGO_MANIFEST_DIR"), "--answers", "MISSING", "--model", "m", "--url", url],
        ),
        #[cfg(feature = "bench")]
        ("bench games", "--background", vec!["--background", "MISSING"]),
        #[cfg(feature = "bench")]
        ("bench games", "--attack-texts", vec!["--attack-texts", "MISSING"]),
        #[cfg(all(feature = "bench", feature = "run"))]
        ("bench games", "--answers", vec!["--answers", "MISSING", "--model", "m", "--url", url]),
        #[cfg(all(feature = "bench", feature = "run"))]
        ("bench extended", "--answers", vec!["--answers", "MISSING", "--model", "m", "--url", url]),
        #[cfg(all(feature = "bench", feature = "run"))]
        ("bench games", "--attacker-answers", [&["--defence", "none"], driven_search.as_slice()].concat()),
        #[cfg(all(feature = "bench", feature = "run"))]
        (
            "bench extended",
            "--attacker-answers",
            [&["--defence", "none", "--game", "memory"], driven_search.as_slice()].concat(),
        ),
        #[cfg(all(feature = "bench", feature = "run"))]
        ("bench privacy", "--answers", vec!["--answers", "MISSING", "--model", "m", "--url", url]),
        ("run", "--policy", vec!["--policy", "MISSING", "--model", "m", "--url", url, "hi"]),
        (
            "run",
            "--config",
            vec!["--policy", POLICY, "--config", "MISSING", "--model", "m", "--url", url, "hi"],
        ),
        (
            "run",
            "--system",
            vec!["--policy", POLICY, "--system", "@MISSING", "--model", "m", "--url", url, "hi"],
        ),
        (
            "run",
            "--record",
            vec!["--policy", POLICY, "--record", "MISSING", "--model", "m", "--url", url, "hi"],
        ),
        ("run", "--replay", vec!["--policy", POLICY, "--replay", "MISSING", "hi"]),
        (
            "run",
            "--stores",
            vec!["--policy", POLICY, "--stores", "MISSING", "--model", "m", "--url", url, "hi"],
        ),
        (
            "run",
            "--trace",
            vec!["--policy", POLICY, "--trace", "MISSING", "--model", "m", "--url", url, "hi"],
        ),
        ("attack", "<POLICY>", vec!["MISSING", "--tools", TRACE]),
        ("attack", "[TRACES]...", vec![POLICY, "MISSING", "--tools", TOOLS]),
        ("attack", "--tools", vec![POLICY, "--tools", "MISSING"]),
        ("labels", "<POLICY>", vec!["MISSING", TRACE]),
        ("labels", "<TRACE>", vec![POLICY, "MISSING"]),
        ("report", "<FILES>...", vec!["MISSING"]),
        ("suggest", "<POLICY>", vec!["MISSING", TRACE]),
        ("suggest", "<TRACES>...", vec![POLICY, "MISSING"]),
        ("init", "<[NAME=]FILES>...", vec!["MISSING", "--out", "-"]),
        ("init", "--gateway", vec![TRACE, "--out", "-", "--gateway", "MISSING"]),
        ("wrap", "--policy", vec!["codex", "--policy", "MISSING"]),
        ("wrap", "--file", vec!["--file", "MISSING", "--policy", POLICY]),
        ("wrap", "--session", vec!["--file", TRACE, "--policy", POLICY, "--session", "MISSING"]),
        ("unwrap", "--file", vec!["--file", "MISSING"]),
        #[cfg(feature = "gateway")]
        ("doctor", "--config", vec!["--config", "MISSING"]),
        ("doctor", "--policy", vec!["--policy", "MISSING"]),
        ("doctor", "--file", vec!["--file", "MISSING"]),
        ("doctor", "--request", vec!["--policy", POLICY, "--request", "MISSING"]),
        ("mcp login", "--config", vec!["web", "--config", "MISSING"]),
        ("mcp logout", "--config", vec!["web", "--config", "MISSING"]),
        ("mcp", "--policy", vec!["--policy", "MISSING", "--", "true"]),
        ("mcp", "--stores", vec!["--policy", POLICY, "--stores", "MISSING", "--", "true"]),
        ("mcp", "--session", vec!["--policy", POLICY, "--session", "MISSING", "--", "true"]),
        ("mcp", "--watch", vec!["--policy", POLICY, "--watch", "MISSING", "--", "true"]),
        (
            "mcp",
            "--traces",
            vec!["--policy", POLICY, "--watch", "/dev/null", "--traces", "MISSING", "--", "true"],
        ),
        ("mcp", "--pins", vec!["--policy", POLICY, "--pins", "MISSING", "--", "true"]),
        ("serve", "--config", vec!["--config", "MISSING"]),
        ("serve", "--token-file", vec!["--token-file", "MISSING"]),
        ("database encrypt", "--config", vec!["--config", "MISSING"]),
        ("trace export", "--config", vec!["--config", "MISSING", "--client", "a", "--conversation", "c"]),
        (
            "trace export",
            "--key-file",
            vec!["--gateway", url, "--client", "a", "--conversation", "c", "--key-file", "MISSING"],
        ),
        (
            "trace export",
            "--ca-file",
            vec!["--gateway", url, "--client", "a", "--conversation", "c", "--ca-file", "MISSING"],
        ),
        ("login-link", "--key-file", vec!["--key-file", "MISSING"]),
        ("login-link", "--ca-file", vec!["--ca-file", "MISSING"]),
        ("audit verify", "<FILES>...", vec!["MISSING"]),
        ("audit verify", "--key", vec![TRACE, "--key", "MISSING"]),
        ("audit verify", "--config", vec![TRACE, "--config", "MISSING"]),
        ("audit verify", "--witness", vec![TRACE, "--witness", "MISSING"]),
        ("audit show", "<FILE>", vec!["MISSING"]),
        ("audit show", "--config", vec![TRACE, "--content", "--config", "MISSING"]),
        ("audit forget", "<FILE>", vec!["MISSING", "--client", "a"]),
        ("audit forget", "--key-file", vec![TRACE, "--client", "a", "--key-file", "MISSING"]),
        ("audit accept-loss", "--config", vec!["--config", "MISSING"]),
    ];
    let commands = every_command();
    let mut wrong = Vec::new();
    for (command, help) in &commands {
        for argument in file_arguments(help) {
            // Modules need a feature, `hook` reports errors in JSON (`hook.rs` tests that), and `man` creates the
            // folder.
            let is_elsewhere = argument == "--predicate" || command == "hook" || argument == "--out";
            if !is_elsewhere && !rows.iter().any(|(name, named, _)| name == command && *named == argument) {
                wrong.push(format!("`flowgate {command}` has an argument {argument} that has no row here"));
            }
        }
    }
    for (command, argument, row) in rows {
        let Some((_, help)) = commands.iter().find(|(name, _)| name == command) else { continue };
        assert!(file_arguments(help).contains(&argument.to_owned()), "{command} {argument}\n{help}");
        let row: Vec<String> = row.iter().map(|word| word.replace("MISSING", "nowhere/missing")).collect();
        let words: Vec<&str> = command.split(' ').chain(row.iter().map(String::as_str)).collect();
        let output = flowgate(&words);
        let said = text(&output);
        if output.status.code() != Some(2)
            || !said.contains("nowhere/missing: there is no such file; check the path")
        {
            wrong.push(format!("{words:?}: {:?} {said}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// For every command, an unknown option has the exit code 2, and `--help` has 0.
#[test]
fn every_command_refuses_an_unknown_option_and_helps() {
    let commands = every_command();
    assert!(commands.len() >= 12, "{} commands", commands.len());
    for (command, help) in &commands {
        let words: Vec<&str> = command.split_whitespace().chain(["--no-such-option"]).collect();
        let output = flowgate(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output).contains("--no-such-option"), "{words:?}: {}", text(&output));
        assert!(help.contains("Usage: flowgate"), "{command}: {help}");
    }
}

/// The completions of all shells contain all commands.
#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = text(&flowgate(&["completions", shell]));
        for (command, _) in every_command() {
            let word = command.split(' ').next_back().unwrap_or_default();
            assert!(script.contains(word), "the script for {shell} lacks `{command}`");
        }
        assert!(script.contains("--deny-warnings") || script.contains("deny-warnings"), "{shell}");
    }
}

/// Messages use the singular for one.
#[test]
fn numbers_agree_with_their_words() {
    let one = file("one.flow", b"lattice integrity: trusted < untrusted\n");
    check(&["check", name(&one)], 0, "(with labels, 1 dimension)");
    check(&["check", POLICY], 0, "(with labels, 2 dimensions)");
    let rule = file("user.flow", b"raise \"x\" if:\n    (m: Message)\n    m.role == \"user\"\n");
    let (hi, chat) = (
        file("hi.json", br#"[{"role":"user","content":"hi"}]"#),
        file("hihi.json", br#"[{"role":"user","content":"hi"},{"role":"user","content":"hi"}]"#),
    );
    check(
        &["check", name(&rule), name(&hi)],
        1,
        "1 run: 0 calls permitted, 0 to be confirmed, 0 denied; 1 finding\n",
    );
    check(&["check", name(&rule), name(&hi), name(&chat)], 1, "2 runs: 0 calls permitted");
    check(&["analyze", name(&rule), name(&hi)], 1, "1 run: 1 match\n");
    check(&["analyze", name(&rule), name(&chat)], 1, "1 run: 2 matches\n");
    let runs =
        file("left-out.jsonl", b"{\"suite\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n");
    let elsewhere = format!("b={POLICY}");
    check(&["replay", "--policy", &elsewhere, name(&runs)], 2, "1 run of the suite `a` was skipped");
}
