//! Runs `flowgate bench agentdojo` and `flowgate bench replay`: starts the Python module that has these measurements,
//! which is part of Flowgate's Python package. This Rust module only finds the interpreter, and says what to install if
//! the package is missing.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::InterpreterArgs;
use crate::input::{InputError, describe_io_error};

/// The module that is started.
const MODULE: &str = "flowgate.bench.agentdojo";
/// What has to be installed, with the version of AgentDojo that the module is tested with.
const PACKAGES: &str = "flowgate-ifc agentdojo==0.1.35";

/// Starts the Python module [`MODULE`] with the subcommand `command`, if there is one, and with `arguments`, and returns
/// its exit code. On Unix, the interpreter replaces this process, so Ctrl-C reaches only the interpreter.
///
/// # Errors
/// If there is no such interpreter, or it does not have the package; the message says how to install it.
pub(super) fn run(
    interpreter: &InterpreterArgs,
    command: Option<&str>,
    arguments: &[OsString],
) -> Result<u8, InputError> {
    let python = interpreter.python.as_path();
    let name = python.display();
    // Importing the package shows whether it is installed.
    let mut probe = isolated(python);
    probe
        .args(["-c", "import flowgate.bench"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let advice = "install Python 3.10 or newer, or name an interpreter with --python";
    let found = probe
        .status()
        .map_err(|error| InputError(format!("{name}: {}; {advice}", describe_io_error(&error))))?;
    if !found.success() {
        return Err(InputError(format!(
            "{name} does not have the Python package of Flowgate: run `{name} -m pip install {PACKAGES}`, or name another interpreter with --python"
        )));
    }
    let mut module = isolated(python);
    module.args(["-m", MODULE]).args(command).args(arguments);
    start(&mut module).map_err(|error| InputError(format!("{name}: {}; {advice}", describe_io_error(&error))))
}

/// Returns a command that starts the interpreter such that it imports no modules from the current folder: a folder that
/// comes from somebody else may contain a module of any name.
fn isolated(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.env("PYTHONSAFEPATH", "1");
    command
}

/// Replaces this process by the interpreter. Returns only if that fails.
#[cfg(unix)]
fn start(module: &mut Command) -> std::io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(module))
}

/// Runs the interpreter, and returns its exit code, or 2 if it has none.
#[cfg(not(unix))]
fn start(module: &mut Command) -> std::io::Result<u8> {
    let status = module.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2))
}
