//! Runs the script that translates published rules for secrets.

use std::path::Path;
use std::process::{Command, Output};

use super::{ROOT, folder};

/// Runs the script on a file with this content. Returns `None` if the machine has no Python with `tomllib`.
fn translate(name: &str, rules: &str, options: &[&str]) -> Option<Output> {
    let has_python = Command::new("python3").args(["-c", "import tomllib"]).output();
    if !has_python.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let file = folder(&format!("secret-rules-{name}")).join(name);
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(Path::new(ROOT).join("deploy/secret-rules"));
    Some(command.arg(&file).args(options).output().unwrap())
}

const RULES: &str = r##"
title = "made for this test"

[[rules]]
id = "acme-key"
regex = '''(?i)acme[\s"]?=[\w-]{2}([a-z\d]{8})\b'''
keywords = ["ACME"]
filter = '''
entropy(finding["secret"]) <= 2.5 || containsAny(finding["secret"], ["example"])
'''

[[rules]]
id = "acme-key.1"
regex = '''key\[([^\s\]&]+)\]\W(x)'''
entropy = 3
secretGroup = 2

[[rules]]
id = "acme-file"
regex = '''.*'''
path = '''\.p12$'''

[[rules]]
id = "acme-id"
regex = '''id'''
skipReport = true

[[rules]]
id = "guess"
regex = '''.'''
confidence = "low"

[[rules]]
id = "not wanted"
regex = '''a"# b'''
"##;

#[test]
fn published_rules_are_translated() {
    let Some(output) = translate("rules.toml", RULES, &[]) else {
        eprintln!("skipped: the script needs Python 3.11");
        return;
    };
    assert!(output.status.success(), "{}", crate::text(&output));
    let expected = r##"// Made by deploy/secret-rules. Do not edit.
&[
    published_rule("ACME_KEY", r#"(?i)acme[\t\n\f\r "]?=[0-9A-Za-z_-]{2}([a-z0-9]{8})\b"#, &[r#"acme"#], 0, 2.5),
    published_rule("ACME_KEY", r#"key\[([^\t\n\f\r \]\&]+)\][^0-9A-Za-z_](x)"#, &[], 2, 3.0),
]
"##;
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let expected = "secret-rules: left out 'acme-file': it is for files with certain names
secret-rules: left out 'acme-id': its findings are not secrets by themselves
secret-rules: left out 'guess': its confidence is low
secret-rules: left out 'not wanted': its id has other characters than letters, digits, `.`, `_` and `-`
";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
}

#[test]
fn a_file_without_rules_is_an_error() {
    let check = |name: &str, rules: &str, expected: &str| {
        let Some(output) = translate(name, rules, &[]) else { return };
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert_eq!(output.stdout, b"", "{name}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    };
    check("empty.toml", "title = 'x'", "the file has no `[[rules]]`");
    check("broken.toml", "[[rules]", "(at line 1");
    check("named.toml", "[[rules]]\nid = 1\nregex = 'x'", "rule 1: `id` must be a string");
    check(
        "group.toml",
        "[[rules]]\nid = 'a'\nregex = 'x'\nsecretGroup = 'y'",
        "rule 1 (a): `secretGroup` must be a whole number",
    );
}
