//! Tests of `flowgate bench agentdojo` and `flowgate bench replay`, which the Python package runs, with a script in place of the interpreter.

use crate::{check, file, name};

/// An interpreter in place of Python: it has the package if `has_package` is true, and prints its arguments.
fn interpreter(file_name: &str, has_package: bool) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let probe = if has_package { "exit 0" } else { "exit 1" };
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = -c ]; then {probe}; fi\nprintf '%s;' \"$PYTHONSAFEPATH\" \"$@\"\nexit 7\n"
    );
    let path = file(file_name, script.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// `bench agentdojo` and `bench replay` start the Python package with the rest of the command line, and return its exit code.
#[test]
fn the_python_package_is_started_with_the_arguments_that_follow() {
    let python = interpreter("python-with", true);
    let python = name(&python);
    check(
        &["bench", "agentdojo", "--python", python, "run", "--sample", "50", "--out=x y"],
        7,
        "1;-m;flowgate.bench.agentdojo;run;--sample;50;--out=x y;",
    );
    check(
        &["bench", "replay", "--python", python, "runs", "--help"],
        7,
        "1;-m;flowgate.bench.agentdojo;replay;runs;--help;",
    );
}

/// Without the package or without Python, the error says what to install.
#[test]
fn a_missing_python_package_is_reported_with_the_command_that_installs_it() {
    let python = interpreter("python-without", false);
    let advice = format!("run `{0} -m pip install flowgate-ifc agentdojo==0.1.35`", name(&python));
    for command in ["agentdojo", "replay"] {
        check(&["bench", command, "--python", name(&python), "list"], 2, &advice);
        check(
            &["bench", command, "--python", "nowhere/python", "list"],
            2,
            "nowhere/python: there is no such file; check the path; install Python 3.10 or newer",
        );
    }
}
