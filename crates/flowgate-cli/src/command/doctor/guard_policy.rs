//! Reads the policy that the command line of an MCP server or of a hook names. `servers` and `hooks`, which examine them
//! for `flowgate doctor`, call it.

use std::path::Path;

use flowgate::policy::{Dialect, Policy};

use crate::input::read_policy_text;

/// Reads a policy, with the files that it imports.
///
/// # Errors
/// Returns the reason why the policy cannot be used, as a clause for a sentence about the server or the hook.
pub(super) fn load(path: &Path) -> Result<Policy, String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    // Reads a file that the policy imports.
    let read = |imported: &str| read_policy_text(&folder.join(imported)).map_err(|error| error.0);
    let source = read_policy_text(path).map_err(|error| error.0)?;
    Policy::load(&source, Dialect::Flowgate, read).map_err(|_| {
        let shown = path.display();
        format!("{shown} has errors; `flowgate check {shown}` shows them")
    })
}
