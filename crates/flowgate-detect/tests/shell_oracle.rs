//! Compares the reader of shell scripts with bash: every program that bash runs must be among the commands that the
//! reader reports, unless it reports that it cannot read a part of the script.
//!
//! The scripts run in a temporary folder. The search path has one folder with programs that only write their names to a
//! log, and links to programs that run others (`env`, `xargs`). Without bash the tests pass and say that they compared
//! nothing. A second test prints which ordinary commands of coding agents are read completely.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::print_stdout, reason = "the tables are what the tests are read for")]

#[path = "shell_oracle/sandbox.rs"]
mod sandbox;
#[path = "shell_oracle/scripts.rs"]
mod scripts;

use flowgate_detect::shell::{UnreadReason, shell_code};
use sandbox::Sandbox;

/// Returns why the reader misses something that bash runs, or `None` if it misses nothing.
fn missed(sandbox: &Sandbox, script: &str) -> Option<String> {
    let code = shell_code(script);
    if !code.unread.is_empty() {
        return None;
    }
    let ran = sandbox.run(script);
    let is_reported = |name: &str| {
        code.commands.iter().any(|command| command.name.rsplit('/').next().is_some_and(|last| last == name))
    };
    let missed: Vec<&String> = ran.iter().filter(|name| !is_reported(name)).collect();
    (!missed.is_empty()).then(|| format!("{script:?}: bash runs {missed:?}, reported {:?}", code.commands))
}

/// Runs scripts and fails with all that the reader misses.
fn compare(scripts: impl Iterator<Item = String>) {
    let Some(sandbox) = Sandbox::new() else {
        println!("skipped: there is no bash on this machine, so nothing is compared");
        return;
    };
    let (mut read, mut all) = (0_usize, 0_usize);
    let mut problems = Vec::new();
    for script in scripts {
        all += 1;
        read += usize::from(shell_code(&script).unread.is_empty());
        problems.extend(missed(&sandbox, &script));
    }
    println!("{read} of {all} scripts are read completely");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn bash_runs_no_program_that_is_not_reported() {
    compare(scripts::WRITTEN.iter().map(|script| (*script).to_owned()));
}

/// Scripts from a grammar: nested constructs with quotes, substitutions and here-documents.
#[test]
fn generated_scripts_run_no_program_that_is_not_reported() {
    compare((0..400).map(scripts::generated));
}

/// Sequences of fragments, of which most are no valid scripts.
#[test]
fn fragments_run_no_program_that_is_not_reported() {
    compare((0..600).map(scripts::fragments));
}

/// Scripts that the reader must read completely, with the names of the commands that it must report.
#[test]
fn what_is_read() {
    let mut problems = Vec::new();
    for (script, names) in scripts::READ {
        let code = shell_code(script);
        let found: Vec<&str> = code.commands.iter().map(|command| command.name.as_str()).collect();
        if found != *names || !code.unread.is_empty() {
            problems.push(format!("{script:?}: {found:?}, unread {:?}", code.unread));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Scripts of which a part cannot be read, with the reasons.
#[test]
fn what_is_not_read() {
    let mut problems = Vec::new();
    for (script, reasons) in scripts::UNREAD {
        let code = shell_code(script);
        let mut found: Vec<&str> = code.unread.iter().map(|part| part.reason.as_str()).collect();
        found.dedup();
        if found != *reasons {
            problems.push(format!("{script:?}: {found:?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Prints how many ordinary commands of coding agents are read completely. A script in a file counts as read: the name
/// of the file is reported.
#[test]
fn ordinary_commands_are_read() {
    let mut complete = 0;
    for script in scripts::ORDINARY {
        let unread = shell_code(script).unread;
        let reasons: Vec<&str> = unread.iter().map(|part| part.reason.as_str()).collect();
        if unread.iter().all(|part| part.reason == UnreadReason::File) {
            complete += 1;
        } else {
            println!("{reasons:?} in {script:?}");
        }
    }
    let all = scripts::ORDINARY.len();
    println!("{complete} of {all} ordinary commands are read completely");
    assert!(complete * 100 >= all * 90, "{complete} of {all}");
}
