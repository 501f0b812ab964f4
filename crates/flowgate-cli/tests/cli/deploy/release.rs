//! Runs the release script with a program that is built already.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ROOT, folder, read};

/// Returns the standard output of a command that succeeds.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", crate::text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the script. Returns the path of the archive.
fn release(folder: &Path, program: &Path) -> String {
    let mut command = Command::new(Path::new(ROOT).join("deploy/release"));
    command.arg(folder).env("FLOWGATE_BIN", program).env("SOURCE_DATE_EPOCH", "1700000000");
    output(&mut command).trim().to_owned()
}

#[test]
fn a_release_has_checksums_and_a_bill_of_materials() {
    let has = |program: &str, words: &[&str]| {
        Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
    };
    if !has("python3", &["-c", "import tomllib"])
        || !has("sha256sum", &["--version"])
        || !has("bash", &["--version"])
    {
        eprintln!("skipped: the script needs bash, Python 3.11 and GNU's tar and sha256sum");
        return;
    }
    let folder = folder("release");
    let program = folder.join("program");
    std::fs::write(&program, "a program").unwrap();
    let (first, second) = (folder.join("first"), folder.join("second"));
    let archive = release(&first, &program);
    release(&second, &program);
    let sums = |folder: &Path| std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&first), sums(&second), "the archive depends on more than its content");
    let verify = |folder: &Path| {
        let mut command = Command::new("sha256sum");
        command.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(folder);
        command.output().unwrap().status.success()
    };
    assert_eq!(sums(&first).lines().count(), 3);
    assert!(verify(&first));
    std::fs::write(second.join("flowgate"), "another program").unwrap();
    assert!(!verify(&second));
    let listed = output(Command::new("tar").args(["--list", "--gzip", "--file", &archive]));
    for name in ["/flowgate", "/sbom.cdx.json", "/LICENSE", "/deploy/flowgate.service", "/docs/operations.md"]
    {
        assert!(listed.lines().any(|line| line.ends_with(name)), "{name} is not in\n{listed}");
    }

    let text = std::fs::read_to_string(first.join("sbom.cdx.json")).unwrap();
    let bill: Value = serde_json::from_str(&text).unwrap();
    let version = format!("flowgate-cli@{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(bill["metadata"]["component"]["bom-ref"], version);
    // The checksums of Cargo.lock, by the name and the version of a crate.
    let lock = read("Cargo.lock");
    let field = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let locked: BTreeMap<String, Option<String>> = lock
        .split("[[package]]\n")
        .skip(1)
        .map(|package| {
            let name = format!("{}@{}", field(package, "name").unwrap(), field(package, "version").unwrap());
            (name, field(package, "checksum"))
        })
        .collect();
    let mut names = BTreeSet::from([version.as_str()]);
    for component in bill["components"].as_array().unwrap() {
        let name = component["bom-ref"].as_str().unwrap();
        let checksum = component["hashes"][0]["content"].as_str().map(str::to_owned);
        assert_eq!(locked.get(name), Some(&checksum), "{name}");
        assert!(component["licenses"][0]["expression"].is_string(), "{name}");
        assert!(names.insert(name), "{name} occurs twice");
    }
    for entry in bill["dependencies"].as_array().unwrap() {
        for needed in entry["dependsOn"].as_array().unwrap() {
            assert!(names.contains(needed.as_str().unwrap()), "{entry}");
        }
    }
    // What is part of the program, and what only tests need.
    for (name, is_part) in
        [("rusqlite", true), ("flowgate-gateway", true), ("proptest", false), ("rcgen", false)]
    {
        assert_eq!(names.iter().any(|known| known.starts_with(&format!("{name}@"))), is_part, "{name}");
    }
}
