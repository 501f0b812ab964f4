//! What holds of every command: manual pages, files that are not there, plural forms.

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

/// A page for each command, by itself and in a folder.
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
        // A command below another has its page's name as a prefix; its own name may have a hyphen.
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
    check(&["man", "chekc"], 2, "flowgate has no command `chekc`; there are check, ");
    let taken = file("no-folder", b"");
    check(&["man", "--out", name(&taken)], 2, "no-folder: ");
}

/// One wording, with the path, wherever a file is named.
#[test]
fn a_file_that_is_not_there_is_reported_in_one_way() {
    let rows: &[&[&str]] = &[
        &["check", "MISSING"],
        &["check", POLICY, "MISSING"],
        &["check", POLICY, TRACE, "MISSING"],
        &["replay", "--policy", "MISSING", TRACE],
        &["replay", "--policy", POLICY, "MISSING"],
        &["analyze", "MISSING", TRACE],
        &["analyze", POLICY, "MISSING"],
        &["explain", "MISSING", TRACE],
        &["explain", POLICY, "MISSING"],
        &["bench", "detectors", "--policy", "MISSING"],
        #[cfg(feature = "run")]
        &["run", "--policy", "MISSING", "--model", "m", "--url", "http://127.0.0.1:1/v1", "hello"],
        #[cfg(feature = "run")]
        &[
            "run",
            "--policy",
            POLICY,
            "--config",
            "MISSING",
            "--model",
            "m",
            "--url",
            "http://127.0.0.1:1/v1",
            "hello",
        ],
        #[cfg(feature = "run")]
        &[
            "run",
            "--policy",
            POLICY,
            "--system",
            "@MISSING",
            "--model",
            "m",
            "--url",
            "http://127.0.0.1:1/v1",
            "hello",
        ],
        #[cfg(feature = "run")]
        &["run", "--policy", POLICY, "--replay", "MISSING", "hello"],
        #[cfg(all(feature = "run", feature = "gateway"))]
        &["mcp", "--policy", "MISSING", "--", "true"],
        #[cfg(feature = "gateway")]
        &["serve", "--config", "MISSING"],
        #[cfg(feature = "gateway")]
        &["serve", "--token-file", "MISSING"],
        #[cfg(feature = "gateway")]
        &["audit", "verify", "MISSING"],
        #[cfg(feature = "gateway")]
        &["audit", "show", "MISSING"],
    ];
    let mut wrong = Vec::new();
    for row in rows {
        let arguments: Vec<String> =
            row.iter().map(|word| word.replace("MISSING", "/nowhere/missing")).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = flowgate(&arguments);
        let said = text(&output);
        if output.status.code() != Some(2)
            || !said.contains("/nowhere/missing: there is no such file; check the path")
        {
            wrong.push(format!("{row:?}: {:?} {said}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One of something is one thing.
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
    check(&["replay", "--policy", &elsewhere, name(&runs)], 2, "1 run of `a` was left out");
}
