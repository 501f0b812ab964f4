//! Formats the errors of a policy of this crate for a message. The measurements use it for a policy that does not compile,
//! which is a defect of Flowgate.

use flowgate::policy::Diagnostic;

/// Returns the errors in one line, separated by semicolons.
pub(crate) fn one_line(errors: &[Diagnostic]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
