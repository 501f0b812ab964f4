//! Reads and compiles the file of a policy, and prints the compiler's errors and warnings. Every command that takes a
//! policy uses it.

use std::path::Path;

use flowgate::policy::{Dialect, InvalidPolicy, Policy, Severity};

use crate::input::{InputError, read_policy_text};
use crate::output::{Console, plural};

/// Reads a policy in Flowgate's own language like [`load_policy_as`].
pub(crate) fn load_policy(path: &Path, output: &mut Console) -> Result<Policy, InputError> {
    load_policy_as(path, Dialect::Flowgate, output)
}

/// Reads a policy in a dialect, with the files that the policy imports. Prints the errors and warnings of the compiler.
/// Also prints a note if the policy enforces no labels, or gives unlabelled regions a default label, since its author
/// may not expect either.
///
/// # Errors
/// If the file cannot be read, or the policy has errors.
pub(crate) fn load_policy_as(
    path: &Path,
    dialect: Dialect,
    output: &mut Console,
) -> Result<Policy, InputError> {
    let source = read_policy_text(path)?;
    let name = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    // Reads a file that the policy imports.
    let read = |path: &str| read_policy_text(&folder.join(path)).map_err(|error| error.0);
    match Policy::load(&source, dialect, read) {
        Ok(policy) => {
            output.diagnostics(&name, policy.files(), policy.warnings());
            if policy.is_rules_only() {
                output.note(&format!(
                    "{name} declares no lattice, so only its rules are enforced, and no labels"
                ));
            }
            if policy.has_default_label() {
                output.note(&format!(
                    "{name} gives unlabelled regions a default label; without `default` their label would be top"
                ));
            }
            Ok(policy)
        }
        Err(InvalidPolicy { source, diagnostics }) => {
            output.diagnostics(&name, &source, &diagnostics);
            let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
            Err(InputError(format!(
                "{name} has {}; correct the lines that the compiler reports",
                plural(errors, "error")
            )))
        }
    }
}
