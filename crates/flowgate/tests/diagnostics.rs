//! Golden test of all diagnostics: `diagnostics/policies.flow` contains mistakes, each after `# ----`, and
//! `diagnostics/messages.txt` the messages. `UPDATE_GOLDEN=1 cargo test` rewrites the latter.

use std::collections::BTreeSet;
use std::path::Path;

use flowgate::policy::{Diagnostic, Policy, diagnostic};

fn diagnostics(source: &str) -> Vec<Diagnostic> {
    match Policy::parse(source) {
        Ok(policy) => policy.warnings().to_vec(),
        Err(diagnostics) => diagnostics,
    }
}

#[test]
fn messages_are_stable_and_complete() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics");
    let policies = std::fs::read_to_string(folder.join("policies.flow")).unwrap();
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for case in policies.split("# ---- ").skip(1) {
        let (title, source) = case.split_once('\n').unwrap();
        text.push_str(&format!("# ---- {title}\n"));
        let found = diagnostics(source.trim_end_matches('\n'));
        assert!(!found.is_empty(), "nothing is said of `{title}`");
        for diagnostic in found {
            seen.insert(diagnostic.code);
            text.push_str(&diagnostic.render(source));
            text.push('\n');
        }
    }
    let golden = folder.join("messages.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(
        text, expected,
        "UPDATE_GOLDEN=1 cargo test writes messages.txt anew, then read the difference"
    );
    // Two kinds are missing there because they need a policy of a megabyte.
    let unseen: Vec<_> = diagnostic::CODES
        .iter()
        .filter(|code| !seen.contains(**code) && !["too-long", "too-large"].contains(code))
        .collect();
    assert!(unseen.is_empty(), "no mistake in policies.flow shows {unseen:?}");
    assert!(seen.iter().all(|code| diagnostic::CODES.contains(code)), "a code is missing in CODES: {seen:?}");
}

#[test]
fn too_much_is_refused() {
    let codes = |source: &str| diagnostics(source).into_iter().map(|d| d.code).collect::<Vec<_>>();
    assert_eq!(codes(&" ".repeat((1 << 20) + 1)), ["too-long"]);
    let many =
        format!("A := [{}]\nB := [{}]\nC := [{}]\n", "1,".repeat(2000), "A,".repeat(200), "B,".repeat(200));
    assert!(codes(&many).contains(&"too-large"));
}

/// Every code that the sources give to a diagnostic is in the list.
#[test]
fn the_list_of_codes_is_complete() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let source = text.split("#[cfg(test)]").next().unwrap();
            for start in ["fail(", "Diagnostic::error(", "Diagnostic::warning("] {
                let arguments = source.split(start).skip(1).map(str::trim_start);
                let codes = arguments.filter_map(|rest| rest.strip_prefix('"')?.split('"').next());
                found.extend(codes.map(str::to_owned));
            }
        }
    }
    assert!(found.len() > 40, "the search finds the codes: {found:?}");
    let missing: Vec<_> = found.iter().filter(|code| !diagnostic::CODES.contains(&code.as_str())).collect();
    assert!(missing.is_empty(), "CODES lacks {missing:?}");
}
