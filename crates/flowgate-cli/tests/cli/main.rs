//! Tests of the command line: output, exit codes, and error messages for invalid input.

#![expect(clippy::unwrap_used, reason = "tests")]

mod advice;
mod analyze;
mod attack;
#[cfg(feature = "gateway")]
mod audit;
mod bad_traces;
mod bench;
#[cfg(all(feature = "bench", feature = "run"))]
mod bench_model;
#[cfg(all(unix, feature = "bench"))]
mod bench_python;
mod check;
#[cfg(feature = "run")]
mod clients;
mod dead_statements;
#[cfg(all(unix, feature = "gateway"))]
mod deploy;
#[cfg(feature = "run")]
mod doctor;
mod every_command;
mod explain;
#[cfg(feature = "run")]
mod init;
mod labels;
#[cfg(feature = "local")]
mod local;
mod parameters;
#[cfg(feature = "gateway")]
mod predicates;
mod progress;
#[cfg(all(feature = "bench", feature = "run"))]
mod propagation_model;
#[cfg(feature = "run")]
mod quickstart;
mod replay;
#[cfg(all(unix, feature = "run"))]
mod scan_start;
#[cfg(all(feature = "bench", feature = "run"))]
mod scripted_server;
#[cfg(feature = "gateway")]
mod serve;
mod suggest;
mod tool_files;
#[cfg(feature = "gateway")]
mod trace;
mod untrusted_text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/payment.flow");
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/payment.json");

fn flowgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgate")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Creates a file for tests; returns its path.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    // Tests that share a file write the same content, and the rename makes the write atomic.
    let new = folder.join(format!("{name}.{:?}", std::thread::current().id()));
    std::fs::File::create(&new).unwrap().write_all(content).unwrap();
    std::fs::rename(new, &path).unwrap();
    path
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a command, and checks its exit code and that its output contains `part`.
fn check(arguments: &[&str], code: i32, part: &str) {
    let output = flowgate(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}", text(&output));
    assert!(text(&output).contains(part), "{arguments:?} should say {part:?}, but says\n{}", text(&output));
}

/// Compares the output of a command with a golden file.
fn check_golden(output: Output, golden: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    let printed = without_code_digest(&String::from_utf8(output.stdout).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        printed, expected,
        "{golden}; UPDATE_GOLDEN=1 cargo test writes it anew, then read the difference"
    );
}

/// Returns a text with a placeholder for the digest of the program's sources, which changes with each of them.
fn without_code_digest(text: &str) -> String {
    match text.split_once("\"code\":\"") {
        Some((before, after)) => {
            let rest = after.split_once('"').map_or("", |(_, rest)| rest);
            format!("{before}\"code\":\"DIGEST\"{rest}")
        }
        None => text.to_owned(),
    }
}

#[test]
fn the_demonstration_stops_the_injected_payment() {
    check(&["demo"], 0, "provenance   permit get_recent_transactions, confirm send_money, permit send_money");
    check(&["demo"], 0, "note: ‹hidden›");
}

#[test]
fn help_teaches_and_shells_complete() {
    check(&["--help"], 0, "flowgate demo                              see an injected payment stopped");
    check(&["methods"], 0, "provenance  the regions whose values reappear");
    check(&["functions"], 0, "is_date");
    check(&["completions", "bash"], 0, "_flowgate()");
    check(&["man"], 0, ".TH flowgate 1");
}
